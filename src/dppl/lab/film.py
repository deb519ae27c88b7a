"""An ensemble for a stream of tasks: scale and shift of the normalisation layers, and a head, for each task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from dppl._utils.optional import optional
from dppl._utils.types import Float, Float32
from dppl.continual import _stream as stream
from dppl.continual.ensemble import Scores, combined_scores, normalised
from dppl.errors import ParameterError, warn_once
from dppl.finetune.gradients import PrivateRecords, as_inputs
from dppl.finetune.sparse import NetworkClassifier, SparseFinetuner
from dppl.finetune.weights import head_of, module_digest, weights_of
from dppl.kernel import reading
from dppl.kernel.lattice.stream import as_numpy
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.budgets import checked_budget, refuse_slip
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.reading import UnknownLabels
from dppl.methods.base import forget
from dppl.methods.fit_plan import of_persons, seed_of
from dppl.methods.parameters import check_values, parameters, same_value

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger

_OPTIONS = ("head", "sampling_rate", "recipe")


@parameters
class FilmEnsemble(NetworkClassifier):
    r"""Train a new head and the normalisation layers of a public network for each task, and let all tasks vote.

    Each `partial_fit` is one task. It starts from the public network and a head of
    zeros over all classes, since a head over fewer would publish which occur. A task is
    stored in 4 bytes for each weight of its head and of scale and shift of all
    normalisation layers (FiLM). **A prediction passes the network once for each task.**

    Parameters
    ----------
    budget : ApproxDP, GaussianDP or ZCDP, default=None
        What each task may spend; ApproxDP with a `sampling_rate` below 1. Where tasks
        are disjoint, it is also what a record pays in all.
    classes : array-like of shape (n_classes,), default=None
        Public list of all classes of all tasks.
    options : dict, default=None
        Of `SparseFinetuner`: `head`, `sampling_rate` or `recipe`. Each task is trained
        with them.
    scores : {"normalised", "largest"}, default="normalised"
        As in `ContinualEnsemble`: ``"largest"`` takes the largest logit over tasks
        [1]_. With ``"normalised"`` the weights of each class in each head are centred
        over classes and have one length, as have the rows that reach a head, and
        exponentials of logits are added up over tasks, without intercepts, which follow
        how frequent a class was in a task.
    tasks : {"disjoint", "overlapping"}, default="disjoint"
        Whether a record is in one task, or a person may have one in each of several,
        whose costs then add up; ``"overlapping"`` needs ``sampling_rate=1``.
    unknown_labels : {"error", "ignore"}, default="error"
        What to do with a label outside `classes`: stop without showing it, or skip the
        record silently.

    Attributes
    ----------
    values_ : ndarray of shape (n_tasks, n_trained), float32
        Trained weights of each task. Safe to publish.
    allowed_ : ndarray of shape (n_classes, n_tasks), bool
        Which classes each task may hold: public. A head speaks for these alone.
    n_tasks_ : int
        Number of tasks so far.

    Notes
    -----
    **Privacy.** Unit: one record; with ``tasks="overlapping"`` a person with at most
    one record in each task; with `groups` a person. Relation: add one to one task, or
    remove it; or that in several tasks. Released: for every task the sums of clipped
    gradients of all steps, as by `SparseFinetuner`, at the full budget; all models in
    between may be published. Sensitivity: as for `SparseFinetuner` for the task that
    holds the record, and nothing for all others, which start from the public network.
    Public inputs: `module`, `classes`, `task_classes`, the boundaries and the order of
    tasks, all parameters, the shape of a record. Not covered: records or persons in
    several tasks that are called disjoint, whose costs add up; boundaries set by
    private counts; skipping a task because it is empty; choice of parameters by private
    data, timing, a changed label (two steps).

    References
    ----------
    .. [1] Tobaben, Klasson, Li, Solin, Honkela (2024), Differentially private continual
    learning using pre-trained
       models, arXiv:2411.04680v2, Algorithm A5, equation A3, with FiLM.
    .. [2] Perez, Strub, de Vries, Dumoulin, Courville (2018), FiLM: visual reasoning
    with a general conditioning layer,
       AAAI. Here scale and shift do not depend on the record.
    """

    options: dict[str, Any] | None = None
    scores: Scores = "normalised"
    tasks: stream.Tasks = "disjoint"
    unknown_labels: UnknownLabels = "error"

    def fit(self, X: Any, y: Any, **further: Any) -> Self:
        """Forget earlier tasks, and learn one.

        Parameters
        ----------
        X, y, **further
            As in `partial_fit`.
        """
        forget(self)
        return self.partial_fit(X, y, **further)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        task_classes: ArrayLike | None = None,
        ledger: Ledger | None = None,
        partition: str | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Self:
        """Learn one more task. If that fails, the model of the earlier tasks stays as it was.

        Parameters
        ----------
        X : array-like or tensor of shape (n_records, ...)
            Private records of the task, as the module takes them; an empty task is one,
            too.
        y, groups, task_classes, partition
            As in `ContinualPrototypes.partial_fit`.
        ledger : Ledger, default=None
            Account of the data set, charged before the first step. It cannot be charged
            with a `sampling_rate` below 1.
        progress : callable, default=None
            Called with the number of steps of the task that are done.
        """
        check_values(self)
        n = getattr(self, "n_tasks_", 0)
        seed = self.random_state
        finetuner = self._finetuner(
            random_state=seed_of(seed, n) if n and seed is not None else seed
        )
        classes = reading.public_classes(self.classes)
        allowed = stream.codes_of_task(task_classes, classes)
        within_task = partial(
            reading.within_task, allowed=allowed, unknown_labels=self.unknown_labels
        )
        records = PrivateRecords(
            X, y, classes, self.unknown_labels, within_task, groups
        )
        training = finetuner._training(
            records.shape, integral=records.integral, ledger=ledger
        )
        finetuner.sampling_rate = training.sampling_rate
        public = self._public(finetuner, records)
        stream.refuse_partition(partition, self.tasks)
        training.guarantee = self._of_one_task(
            training.guarantee, persons=groups is not None
        )
        module, promised = training.run(
            records,
            ledger=ledger,
            partition=partition,
            progress=progress,
            name=type(self).__name__,
            meaning={"list of task classes": allowed.tolist()},
        )
        # From here on nothing private is at hand.
        values = weights_of(module, training.selection)[None]
        may = np.isin(np.arange(len(classes)), allowed)[:, None]
        guarantee = stream.of_tasks(promised, n + 1, self.tasks)
        if n:
            values = np.concatenate([self.values_, values])
            may = np.concatenate([self.allowed_, may], axis=1)
            guarantee = stream.combined(self.guarantee_, guarantee, len(values))
        self.__dict__ |= {
            "values_": values,
            "allowed_": may,
            "n_tasks_": n + 1,
            "classes_": classes,
        }
        self.__dict__ |= {"guarantee_": guarantee, "_fitted_with": public}
        return self

    def decision_function(self, X: Any) -> Float:
        """Return the score of each class, of shape (n, n_classes): one pass of the network for each task."""
        check_is_fitted(self, "values_")
        records = as_inputs(X)
        logits = (
            self._of_task(values).decision_function(records) for values in self.values_
        )
        own = (rows[:, may] for rows, may in zip(logits, self.allowed_.T, strict=True))
        return combined_scores(own, self.allowed_, len(records), self.scores)

    def _finetuner(self, **further: Any) -> SparseFinetuner:
        """Return what trains a task."""
        options = {} if self.options is None else self.options
        if not isinstance(options, dict) or not set(options) <= set(_OPTIONS):
            raise ParameterError(
                f"must be a dictionary with some of {', '.join(_OPTIONS)}.",
                parameter="options",
            )
        if getattr(options.get("recipe"), "default_head", False):
            raise ParameterError(
                "default_head of a recipe is for one task; leave it out.",
                parameter="options",
            )
        options = {**options, "unknown_labels": self.unknown_labels, **further}
        return self._kind(
            self.module, checked_budget(self.budget), self.classes, **options
        )

    @property
    def _kind(self) -> Callable[..., SparseFinetuner]:
        return partial(SparseFinetuner, train=("head", "norm"))

    def _public(
        self, finetuner: SparseFinetuner, records: PrivateRecords
    ) -> dict[str, Any]:
        """Return all that must stay as it is from task to task, and compare it with the earlier ones."""
        if self.tasks == "overlapping" and float(finetuner.sampling_rate or 1.0) < 1:
            raise ParameterError(
                "tasks='overlapping' needs options={'sampling_rate': 1.0}: the costs of several trainings on samples "
                "have no exact sum.",
                parameter="tasks",
            )
        public: dict[str, Any] = self.get_params(deep=False) | {
            "module": module_digest(self.module)
        }
        public |= {
            "shape": records.shape,
            "integral": records.integral,
            "random_state": None,
        }
        for name, value in public.items() if hasattr(self, "_fitted_with") else ():
            if not same_value(value, self._fitted_with[name]):
                raise ParameterError(
                    f"{name} must stay what it was in the earlier tasks; set it back, or start again with fit."
                )
        return public

    def _of_one_task(self, guarantee: Guarantee, *, persons: bool) -> Guarantee:
        """Return what the next task guarantees by itself, if all together stay within reason."""
        guarantee = stream.of_stream(
            guarantee, stream.RELATIONS[self.tasks], self.tasks
        )
        if persons:
            guarantee = of_persons(guarantee, whole=True)
        releases = tuple(
            replace(one, statistic=Term(Statistic.OF_ONE_TASK, of=one.statistic))
            for one in guarantee.releases
        )
        guarantee = replace(guarantee, releases=releases)
        n = getattr(self, "n_tasks_", 0)
        if n:
            stream.check_same_promise(
                self.guarantee_, stream.of_tasks(guarantee, n, self.tasks)
            )
        # A total beyond all use is refused before it is paid, and one of hardly any
        # meaning warns.
        total = stream.of_tasks(guarantee, n + 1, self.tasks).budget
        refuse_slip(total, allowed=checked_budget(self.budget).allow_weak)
        if weakness := total.weakness:
            warn_once(weakness, 3)
        return guarantee

    def _of_task(self, values: Float32) -> SparseFinetuner:
        """Return the model of one task, whose logits are scores."""
        model = self._finetuner()._restore(self.guarantee_, values)
        if self.scores == "normalised":
            torch = optional("torch", "torch", "torch")
            head = model.module_.get_submodule(head_of(model.module_, model.head))
            weights = torch.from_numpy(
                normalised(as_numpy(head.weight).astype(np.float64))
            ).to(head.weight)
            # Products of unit rows and normalised weights take the place of logits,
            # without an intercept.
            head.register_forward_hook(
                lambda _, args, output: (
                    torch.nn.functional.normalize(args[0].to(weights), dim=-1)
                    @ weights.T
                )
            )
        return model
