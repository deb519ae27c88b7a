"""Sparse fine-tuning: the head, the normalisation layers and the largest weights of the convolutions."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dppl._utils import validate
from dppl._utils.files import Output
from dppl._utils.optional import optional
from dppl.errors import InputError, ModelFileError, ParameterError
from dppl.finetune import network_file
from dppl.finetune.gradients import (
    PrivateRecords,
    as_inputs,
    logits_of,
    noise_within,
)
from dppl.finetune.heads import default_heads, make_default, with_center
from dppl.finetune.networks import Network, load_network
from dppl.finetune.schedule import SHARES
from dppl.finetune.trainer import Recipe, Training
from dppl.finetune.weights import (
    PARTS,
    WeightKind,
    WeightSelection,
    check_module,
    head_of,
    is_convolutional,
    module_digest,
    select_weights,
    set_weights,
    sizes_of,
    weights_of,
)
from dppl.finetune.worth import is_worth_training
from dppl.kernel import reading
from dppl.kernel.privacy import ApproxDP, Budget, Guarantee
from dppl.kernel.privacy.budgets import checked_budget, refuse_slip, split
from dppl.kernel.privacy.sensitivity import RADIUS
from dppl.kernel.privacy.terms import Caveat, PublicInput, Term
from dppl.kernel.reading import UnknownLabels
from dppl.methods.base import as_json, forget
from dppl.methods.fit_plan import of_persons
from dppl.methods.parameters import Probability, check_values, parameters
from dppl.methods.released import PaidBy, Reported

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger

_RATE = 0.1  # 5,000 of 50,000 records, in section 5.8
_RECOMMENDED_RATE = 1 / 16
_STEPS = 48


def usual_rate(budget: Budget, ledger: Ledger | None) -> float:
    """Return the sampling rate where none is given: 1 for a budget or a ledger that cannot account for samples."""
    if isinstance(budget, ApproxDP) and ledger is None:
        return _RATE
    return 1.0


@parameters
class NetworkClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that trains weights of a public network.

    Parameters
    ----------
    module : torch.nn.Module
        Public network, with group or layer normalisation; see `to_group_norm`. It is
        not changed.
    budget : ApproxDP, GaussianDP or ZCDP, default=None
        What a training may spend; ApproxDP with `sampling_rate` below 1.
    classes : array-like of shape (n_classes,), default=None
        Public list of classes.
    unknown_labels : {"error", "ignore", "strict"}, default="error"
        What to do with a label outside `classes`: stop without showing it, or skip the
        record silently. ``"strict"`` stops before anything is charged, also if a record
        holds a number that is not finite. That it did not stop is one bit about the
        records, which the guarantee names as not covered.
    random_state : int, default=None
        None draws samples and noise from the operating system. An integer repeats a
        run, and the guarantee then says that the model must not be released.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The sorted class list: the order of the scores.
    guarantee_ : Guarantee
        What is promised. ``print(model.guarantee_)``.
    """

    module: Any = field(kw_only=False)
    budget: Budget | None = field(default=None, kw_only=False)
    classes: ArrayLike | None = field(default=None, kw_only=False)
    unknown_labels: UnknownLabels | Literal["strict"] = "error"
    random_state: int | None = None

    @abstractmethod
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the score of each class, of shape (n, n_classes).

        Parameters
        ----------
        X : array-like or tensor of shape (n, ...)
            Records to classify; they cost nothing.
        """

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of the largest score for each record.

        Parameters
        ----------
        X : array-like or tensor of shape (n, ...)
        """
        best = self.decision_function(X).argmax(axis=1)
        return np.asarray(self.classes_[best])


@parameters
class SparseFinetuner(Reported, NetworkClassifier):
    r"""Train a new head, the normalisation layers and few weights of the convolutions of a public network.

    Luo, Wu, Adeli and Fei-Fei (CVPR 2021) [1]_, with the recipe of their section 5.8 as
    defaults. Their noise multiplier of 15 is about ``ApproxDP(1.13, 1e-5)`` at these
    defaults; here the budget decides the noise.

    Parameters
    ----------
    train : collection of {"head", "norm", "conv"}, or mapping of str to ndarray of int64 or None
        What is trained: parts of the module, or as `select_weights` returns it any
        parameters, by name with the flat positions of their trained weights, None for
        all. Without ``"head"`` the module's own stays, which must have one output a
        class. A model of a mapping is not saved to a file.
    sparsity : float, default=0.01
        Share of the convolutions' weights that is trained, see `select_weights`. No
        budget covers choosing it by private data.
    head : str, default=None
        Name of the last linear layer, where the module does not hold it last. A new one
        of zeros takes its place.
    sampling_rate : float, default=None
        Probability with which a record takes part in a step. 1 is the full batch. None
        is 0.1 with ApproxDP and without a ledger, and 1 with all else, which cannot
        account for samples.
    recipe : Recipe, default=Recipe()
        Epochs, batch size, clipping norm, learning rates, momentum, warm-up, whether
        the default method gives the head, and how many records are computed at once.
        With fewer than 50,000 records the network hardly learns until its `batch_size`
        is set.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained copy. Safe to publish.
    sampling_rate_ : float
        The rate of the fit.
    selection_ : dict of str to ndarray of int64, or None
        The trained weights, by parameter.
    encoder_ : str or None
        The network's name, where it has one: `dppl finetune` and ``save(path,
        network=...)`` give it.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    sums of clipped gradients of all steps, from which `module_` follows, and with a
    default head what two fits of `SoftmaxPrototypes` release. Sensitivity: the clipping
    norm, 2²² in steps of rounding, in L2 over all trained weights jointly. With
    `sampling_rate` below 1 the cost is for Gaussian sums over Poisson samples and the
    other Gaussian releases together, by privacy loss distributions, in (epsilon, delta)
    only; at 1 squares of mu add [2]_. Public inputs: `module`, from which the mask
    follows, `classes`, all parameters, the shape of a record. Not covered: choice of
    parameters, `sparsity` among them, by private data, timing, a changed label (two
    steps), whether a record stopped the training, runs that go on from copies of a
    checkpoint without a ledger, and, but with ``block=1``, rounding by which records
    that are computed together may touch each other.

    References
    ----------
    .. [1] Luo, Wu, Adeli, Fei-Fei (2021), Scalable differential privacy with sparse
    network finetuning, CVPR.
    .. [2] Dong, Roth, Su (2022), arXiv:1905.02383v3, Corollary 3.3 (composition).
    """

    train: Collection[WeightKind] | WeightSelection = PARTS
    sparsity: float = 0.01
    head: str | None = None
    sampling_rate: Probability | None = None
    recipe: Recipe = Recipe()

    @classmethod
    def recommended(
        cls,
        module: Any,
        budget: Budget,
        classes: ArrayLike,
        n_records: float,
        *,
        head: str | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Return the training that did best on images (docs/finetune.md), settled by public numbers alone.

        Between two fits of the default method, 48 steps train all of a convolutional
        network but its filters' means and deviations, and head and normalisation layers
        of others; or the head alone, if classes have few records for the budget
        (`dppl.finetune.is_worth_training`).

        Parameters
        ----------
        module, budget, classes, head
            As of the class.
        n_records : float
            A public guess of the number of records, never their count.
        ledger : Ledger, default=None
            The account that the fit will charge: every record takes part in every step
            then, as without an ApproxDP budget, and else in one of 16.
        """
        budget = checked_budget(budget)
        classes = reading.public_classes(classes)
        validate.positive(n_records=n_records)
        rate = 1.0
        if usual_rate(budget, ledger) != 1:
            rate = _RECOMMENDED_RATE
        # The rates are for sums whose noise is below a hundredth of the batch, and fall
        # with it.
        first, _, last = split(budget, SHARES)
        noise_std = (
            noise_within(budget, _STEPS, rate, math.hypot(first.mu, last.mu)).noise_std
            / RADIUS
        )
        pace = min(1.0, rate * n_records / (100 * noise_std))
        train: tuple[WeightKind, ...] = ("head",)
        if is_worth_training(budget, len(classes), n_records):
            if is_convolutional(module):
                train = PARTS
            else:
                train = ("head", "norm")
        recipe = Recipe(
            epochs=_STEPS * rate,
            batch_size=rate * n_records,
            learning_rate=(0.15 if "conv" in train else 0.5) * pace,
            head_learning_rate=2 * pace,
            warmup_epochs=rate,
            default_head=True,
            keep_filters=True,
        )
        return cls(
            module,
            budget,
            classes,
            train=train,
            sparsity=1.0,
            head=head,
            sampling_rate=rate,
            recipe=recipe,
        )

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        ledger: Ledger | None = None,
        partition: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Self:
        """Train a copy of the module on (`X`, `y`).

        Parameters
        ----------
        X : array-like or tensor of shape (n_records, ...)
            Private records, as the module takes them.
        y : array-like of shape (n_records,)
            Private labels.
        groups : array-like of shape (n_records,), default=None
            Private ids of persons, as of `SoftmaxPrototypes.fit`. What all records of a
            person add to a gradient is clipped as what one record adds, and samples are
            of persons; the guarantee is for a person then.
        ledger : Ledger, default=None
            Account of the data set. It cannot be charged with `sampling_rate` below 1.
        partition : str, default=None
            As in `Ledger.charge`.
        checkpoint : path, default=None
            File by which the same call goes on after an interruption, on the same data.
            It stays when the training has ended, and gives the same weights again:
            remove it before a training on other data. The step in which the run was
            interrupted is lost and counts. A copy of it that another run has overtaken
            is refused if there is a ledger. Not with a seed, which would repeat the
            noise.
        progress : callable, default=None
            Called with the number of steps that are done.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, InputError, BudgetError, BudgetExceeded, UnknownLabelError, LedgerError
            If a parameter breaks its rule, the input does not fit, the budget or the
            ledger refuses, or another run overtakes this one from a copy of its
            checkpoint.
        """
        forget(self)
        refuse_slip(checked_budget(self.budget))
        classes = reading.public_classes(self.classes)
        records = PrivateRecords(X, y, classes, self.unknown_labels, groups=groups)
        training = self._training(
            records.shape, integral=records.integral, ledger=ledger
        )
        if groups is not None:
            training.guarantee = of_persons(training.guarantee, whole=True)
        network_file.most_bytes(training.guarantee, self.width, classes.tolist())
        records.refuse_unusable()
        self.module_, self.guarantee_ = training.run(
            records,
            name=type(self).__name__,
            meaning={
                "classes": classes.tolist(),
                "unknown_labels": self.unknown_labels,
                "unit of the guarantee": training.guarantee.unit,
            },
            ledger=ledger,
            partition=partition,
            checkpoint=checkpoint,
            progress=progress,
        )
        self.classes_ = classes
        self.selection_ = dict(training.selection)
        self.sampling_rate_ = training.sampling_rate
        self.encoder_: str | None = None
        if ledger is not None:
            (charge,) = self.guarantee_.charges
            self._paid_by = PaidBy(ledger, charge)
        return self

    def plan(
        self,
        shape: tuple[int, ...],
        *,
        integral: bool = False,
        ledger: Ledger | None = None,
    ) -> Guarantee:
        """Return what a fit on records of this shape would guarantee and cost: nothing is fitted or charged.

        Parameters
        ----------
        shape : tuple of int
            Of one record.
        integral : bool, default=False
            Whether records are integers, such as tokens.
        ledger : Ledger, default=None
            The account that the fit would charge; it decides the sampling rate where
            that is None.
        """
        return self._training(shape, integral=integral, ledger=ledger).guarantee

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Return the logits, of shape (n, n_classes)."""
        check_is_fitted(self, "module_")
        torch = optional("torch", "torch", "torch")
        records = as_inputs(X)
        device = next(self.module_.parameters()).device
        if records.dtype.kind in "iu":
            kind = torch.int64
        else:
            kind = torch.float32
        batches = [
            np.empty((0, len(self.classes_)), np.float32)
        ]  # no records have a shape, too
        with torch.no_grad():
            for start in range(0, len(records), self.recipe.block):
                x = torch.as_tensor(
                    records[start : start + self.recipe.block].copy()
                ).to(device, kind)
                batches.append(logits_of(self.module_(x)).cpu().numpy())
        if any(logits.shape[1:] != (len(self.classes_),) for logits in batches):
            raise InputError(
                "the module returns another number of logits than there are classes."
            )
        return np.concatenate(batches)

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Return the softmax of the logits, of shape (n, n_classes); clipping and noise leave it uncalibrated.

        Parameters
        ----------
        X : array-like or tensor of shape (n, ...)
        """
        return np.asarray(softmax(self.decision_function(X), axis=1))

    def predict_log_proba(self, X: Any) -> NDArray[np.float32]:
        """Return the logarithm of what `predict_proba` returns."""
        return np.asarray(log_softmax(self.decision_function(X), axis=1))

    def save(
        self,
        path: str | os.PathLike[str] | Output,
        *,
        network: str | Network | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the trained weights, the guarantee and the digest of the public module to one safetensors file.

        Parameters
        ----------
        path : path
        network : str or Network, default=None
            What `load_network` takes or returned, for `dppl predict` to rebuild the
            network. It is for images that were prepared as this name says; that
            `module` has its weights is checked.
        overwrite : bool, default=False
            Whether an existing file may be replaced.

        Raises
        ------
        ParameterError, InputError, FileExistsError
            If `network` cannot be loaded or has other weights than `module`, or the
            file exists.
        """
        check_is_fitted(self, "module_")
        if network is not None:
            if not isinstance(network, Network):
                network = load_network(network, device="cpu")
            if module_digest(network.module) != module_digest(self.module):
                raise InputError(
                    f"{network.fingerprint.uri} has other weights than the public module of the fit."
                )
            self.encoder_ = network.fingerprint.text()
        super().save(path, overwrite=overwrite)

    def to_bytes(self) -> bytes:
        """Return the content of the model file that `save` writes."""
        check_is_fitted(self, "module_")
        if isinstance(self.train, Mapping):
            raise ParameterError(
                "must name parts of the module for a file; save module_.",
                parameter="train",
            )
        parameters = {
            name: as_json(getattr(self, name))
            for name in ("head", *network_file.NUMBERS)
        } | {
            "train": sorted(self.train),
            "sampling_rate": self.sampling_rate_,
            "recipe": {
                name: as_json(getattr(self.recipe, name))
                for name in network_file.RECIPE
            },
        }
        fields = {
            "estimator": type(self).__name__,
            "encoder": self.encoder_,
            "module": module_digest(self.module),
            "width": self.width,
            "parameters": parameters,
            "classes": self.classes_.tolist(),
        }
        values = weights_of(self.module_, self.kept(self.selection_))
        return network_file.to_bytes(fields, self.guarantee_, values)

    @classmethod
    def load(cls, path: str | os.PathLike[str], module: Any) -> Self:
        """Read what `save` wrote, on top of the public module.

        Parameters
        ----------
        path : path
        module : torch.nn.Module
            The public module of the fit, whose digest the file holds.

        Raises
        ------
        ModelFileError, InputError
            If the file is damaged or something else, or the module is another.
        """
        fields, guarantee, values = network_file.read(path)
        check_module(module)
        if fields["module"] != module_digest(module):
            raise InputError(
                f"{os.fspath(path)} was fitted on another public module; its weights have another digest. Pass the "
                "module with the weights that it had before the fit."
            )
        given = fields["parameters"]
        try:
            model = cls(
                module,
                guarantee.budget,
                fields["classes"],
                **given | {"recipe": Recipe(**given["recipe"])},
            )
            if fields["width"] != model.width:
                raise ParameterError("the width of features does not fit the module.")
            model._restore(guarantee, values)
        except (ParameterError, TypeError):
            raise ModelFileError(
                "the trained weights or the parameters of the file do not fit the module."
            ) from None
        model.encoder_ = fields["encoder"]
        return model

    def _restore(self, guarantee: Guarantee, values: NDArray[np.float32]) -> Self:
        """Become the model that a fit of these parameters has left."""
        classes = np.array(self.classes)
        least = 0
        # A head has more weights than it has outputs and inputs, so none is made that
        # the values do not fill.
        if self._trains_head:
            head = self.module.get_submodule(head_of(self.module, self.head))
            least = len(classes) * head.in_features
        if least <= values.size:
            module, selection = self._selected(len(classes))
        else:
            module, selection = (None, {})
        if module is None or sum(sizes_of(module, self.kept(selection))) != values.size:
            raise ParameterError("the trained weights do not fit the module.")
        set_weights(module, self.kept(selection), values)
        self.module_ = module.requires_grad_(False)
        self.selection_ = dict(selection)
        self.sampling_rate_ = float(self.sampling_rate or 1.0)  # every file states one
        self.classes_ = classes
        self.guarantee_ = guarantee
        return self

    def _training(
        self,
        shape: tuple[int, ...],
        *,
        integral: bool = False,
        ledger: Ledger | None = None,
    ) -> Training:
        """Settle the training of a network with a new head on records of this shape, from public values alone."""
        budget = checked_budget(self.budget)
        if self.sampling_rate is None:
            rate = usual_rate(budget, ledger)
        else:
            rate = self.sampling_rate
        check_values(self)
        if self.recipe.default_head and not self._trains_head:
            raise ParameterError(
                "needs the part 'head' in train.", parameter="default_head"
            )
        classes = reading.public_classes(self.classes)
        module, selection = self._selected(len(classes))
        heads: Any = ()
        if self.recipe.default_head:
            heads = default_heads(
                budget, classes, self.unknown_labels, self.random_state
            )
        training = Training(
            module,
            selection,
            budget,
            shape=shape,
            integral=integral,
            sampling_rate=rate,
            recipe=self.recipe,
            head=head_of(module, self.head) if self._trains_head else None,
            heads=heads,
            random_state=self.random_state,
        )
        if training.gradients.n_outputs != len(classes):
            raise ParameterError(
                "the module's head has another number of outputs than there are classes."
            )
        # A fit that may stop says one bit about the records, which no noise covers.
        stops = {
            "error": [Term(Caveat.UNKNOWN_LABEL_STOP)],
            "strict": [Term(Caveat.STRICT_STOP)],
        }
        guarantee = training.guarantee
        training.guarantee = replace(
            guarantee,
            public_inputs=(Term(PublicInput.CLASSES), *guarantee.public_inputs),
            not_covered=(*guarantee.not_covered, *stops.get(self.unknown_labels, [])),
        )
        return training

    def kept(self, selection: WeightSelection) -> WeightSelection:
        """Return what a file holds of a module of which these weights were trained."""
        if self.recipe.default_head:
            return with_center(selection, head_of(self.module, self.head))
        return selection

    @property
    def width(self) -> int | None:
        """Numbers in the features that the default method is fitted on; None where it is not."""
        if not self.recipe.default_head:
            return None
        return int(
            self.module.get_submodule(head_of(self.module, self.head)).in_features
        )

    @property
    def _trains_head(self) -> bool:
        return (
            isinstance(self.train, Collection)
            and not isinstance(self.train, Mapping)
            and "head" in self.train
        )

    def _selected(self, n_classes: int) -> tuple[Any, WeightSelection]:
        """Return a copy of the module with a head of zeros, where it is trained, and what is trained of it."""
        check_module(self.module)
        module = deepcopy(self.module)
        if self._trains_head:
            # Zeros are public whatever the classes are called, and score every record
            # alike.
            name = head_of(module, self.head)
            old = module.get_submodule(name)
            new = (
                optional("torch", "torch", "torch")
                .nn.Linear(old.in_features, n_classes)
                .to(old.weight)
            )
            new.weight.data.zero_()
            new.bias.data.zero_()
            if self.recipe.default_head:
                make_default(new)
            module.set_submodule(name, new)
        if isinstance(self.train, Mapping):
            return module, self.train
        return module, select_weights(
            module, self.train, sparsity=self.sparsity, head=self.head
        )
