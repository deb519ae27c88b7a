"""An ensemble for a stream of tasks: scale and shift of the normalisation layers, and a head, for each task."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dppl import _validate
from dppl._optional import optional
from dppl.continual import _stream as stream
from dppl.continual.ensemble import SCORES, Scores, normalised, put_together
from dppl.errors import ModelFileError, ParameterError, WeakBudgetWarning
from dppl.estimators.base import as_json
from dppl.estimators.parameters import parameters
from dppl.estimators.plan import seed_of
from dppl.finetune import model_file
from dppl.finetune.gradients import PrivateRecords, as_inputs
from dppl.finetune.selection import head_of, weights_of
from dppl.finetune.sparse import NetworkClassifier, SparseFinetuner
from dppl.finetune.trainer import DPTrainer, TrainingPlan
from dppl.kernel import reading
from dppl.kernel.lattice.stream import as_numpy
from dppl.kernel.privacy import Budget, Guarantee
from dppl.kernel.privacy.budgets import budget_from_dict, checked_budget
from dppl.kernel.reading import UnknownLabels

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger

__all__ = ["FilmEnsemble"]

_OPTIONS = (
    *("head", "batch_size", "sampling_rate", "epochs", "warmup_epochs"),
    *("head_learning_rate", "learning_rate", "momentum", "clip", "block"),
)
# What must stay as it is from task to task.
_STREAM = ("module", "budget", "classes", "options", "scores", "tasks", "unknown_labels", "shape", "integral")


@parameters
class FilmEnsemble(NetworkClassifier):
    r"""Train a new head and the normalisation layers of a public network for each task, and let all tasks vote.

    Each `partial_fit` is one task. It starts from the public network and a head of zeros over all classes, since a head
    over those alone that occur would publish which do; what earlier tasks trained stays as it is. A task is stored in
    4 bytes for each weight of its head and of scale and shift of all normalisation layers (FiLM). **A prediction passes
    the network once for each task.**

    Parameters
    ----------
    module : torch.nn.Module
        Public network, with group or layer normalisation; see `to_group_norm`. It is not changed.
    budget : ApproxDP, GaussianDP or ZCDP, default=None
        What each task may spend; ApproxDP with a `sampling_rate` below 1. Where tasks are disjoint, it is also what a
        record pays in all.
    classes : array-like of shape (n_classes,), default=None
        Public list of all classes of all tasks.
    options : dict, default=None
        Of `SparseFinetuner`: `head`, `batch_size`, `sampling_rate`, `epochs`, `warmup_epochs`, `head_learning_rate`,
        `learning_rate`, `momentum`, `clip` or `block`. Each task is trained with them.
    scores : {"normalised", "largest"}, default="normalised"
        As in `ContinualEnsemble`: ``"largest"`` takes the largest logit over tasks [1]_. With ``"normalised"`` the
        weights of each class in each head are centred over classes and have one length, as have the rows that reach a
        head, and exponentials of logits are added up over tasks. Intercepts, which tell what was frequent in a task,
        are left out.
    tasks : {"disjoint", "overlapping"}, default="disjoint"
        Whether a record is in one task, or a person may have one in each of several, whose costs then add up;
        ``"overlapping"`` needs ``sampling_rate=1``.
    unknown_labels : {"error", "ignore"}, default="error"
        What to do with a label outside `classes`: stop without showing it, or leave the record out silently.
    random_state : int, default=None
        None draws samples and noise from the operating system. An integer repeats a run, and the guarantee then says
        that the model must not be released.

    Attributes
    ----------
    values_ : ndarray of shape (n_tasks, n_trained), float32
        Trained weights of each task. Safe to publish.
    allowed_ : ndarray of shape (n_classes, n_tasks), bool
        Which classes each task may hold: public. A head speaks for these alone.
    n_tasks_ : int
        Number of tasks so far.
    classes_ : ndarray of shape (n_classes,)
        The sorted class list.
    guarantee_ : Guarantee
        What is promised of all models together. ``print(model.guarantee_)``.

    Notes
    -----
    **Privacy.** Unit: one record; with ``tasks="overlapping"`` a person with at most one record in each task.
    Relation: add one record to one task, or remove it from one; or that in several tasks. Released: for every task
    the sums of clipped gradients of all steps, as by `SparseFinetuner`, at the full budget; all models in between
    may be published. Sensitivity: that of `SparseFinetuner` for the task that holds the record, and nothing for all
    others, which start from the public network. Public inputs: `module`, `classes`, `task_classes`, the boundaries
    and the order of tasks, all parameters, the shape of a record. Not covered: records or persons in several tasks
    that are called disjoint, whose costs add up; boundaries set by private counts; leaving out a task because it is
    empty; choice of parameters by private data, timing, a changed label (two steps).

    References
    ----------
    .. [1] Tobaben, Klasson, Li, Solin, Honkela (2024), Differentially private continual learning using pre-trained
       models, arXiv:2411.04680v2, Algorithm A5, equation A3, with FiLM.
    .. [2] Perez, Strub, de Vries, Dumoulin, Courville (2018), FiLM: visual reasoning with a general conditioning layer,
       AAAI. Here scale and shift do not depend on the record.
    """

    module: Any = field(kw_only=False)
    budget: Budget | None = field(default=None, kw_only=False)
    classes: ArrayLike | None = field(default=None, kw_only=False)
    options: dict[str, Any] | None = None
    scores: Scores = "normalised"
    tasks: stream.Tasks = "disjoint"
    unknown_labels: UnknownLabels = "error"
    random_state: int | None = None

    def fit(self, X: Any, y: Any, **further: Any) -> Self:
        """Forget earlier tasks, and learn one.

        Parameters
        ----------
        X, y, **further
            As in `partial_fit`.

        Returns
        -------
        self
        """
        self._forget()
        return self.partial_fit(X, y, **further)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        *,
        task_classes: ArrayLike | None = None,
        ledger: Ledger | None = None,
        partition: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Self:
        """Learn one more task. If that fails, the model of the earlier tasks stays as it was.

        Parameters
        ----------
        X : array-like or tensor of shape (n_records, ...)
            Private records of the task, as the module takes them. An empty task is one, too: leaving it out would tell
            that it is empty.
        y : array-like of shape (n_records,)
            Private labels.
        task_classes : array-like, default=None
            Classes that the task may hold by public knowledge, never by its records. A class that no task may hold is
            never predicted. None is all.
        ledger : Ledger, default=None
            Account of the data set, charged before the first step. It cannot be charged with a `sampling_rate` below 1.
        partition : str, default=None
            Name of the task in the account. Tasks of different names cost together the maximum over them, see
            `Ledger.charge`; without names their costs add up. Tasks that may overlap have none.
        checkpoint : path, default=None
            File of this task, by which the same call on a model of the same earlier tasks goes on after an
            interruption; see `SparseFinetuner.fit`. Each task has its own, and one of another task is refused.
        progress : callable, default=None
            Called with the number of steps of the task that are done.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, InputError, BudgetError, BudgetExceeded, UnknownLabelError
            If a parameter breaks its rule or is not what it was in earlier tasks, the input does not fit, or the budget
            or ledger refuses.
        """
        classes = reading.public_classes(self.classes)
        allowed = stream.codes_of_task(task_classes, classes)
        within_task = partial(reading.within_task, allowed=allowed, unknown_labels=self.unknown_labels)
        records = PrivateRecords.of_classes(X, y, classes, self.unknown_labels, within_task)
        finetuner, described = self._prepared(records.shape, integral=records.integral, ledger=ledger)
        stream.refuse_partition(partition, self.tasks)
        plan, trainer = self._plan(finetuner, described)
        # A checkpoint is of one task: that of an earlier one would end this task before its first step.
        earlier = sha256(self.values_.tobytes()).hexdigest() if self._n_earlier else None
        trainer.train(
            records,
            plan,
            ledger=ledger,
            partition=partition,
            checkpoint=checkpoint,
            progress=progress,
            name=type(self).__name__,
            meaning={
                "stream": described,
                "list of task classes": allowed.tolist(),
                "set of earlier tasks": earlier,
            },
        )
        # From here on nothing private is at hand.
        values = np.concatenate(list(weights_of(trainer.module_, trainer.selection).values()))[None]
        may = np.isin(np.arange(len(classes)), allowed)[:, None]
        guarantee = stream.of_tasks(trainer.guarantee_, self._n_earlier + 1, self.tasks)
        if self._n_earlier:
            values, may = np.concatenate([self.values_, values]), np.concatenate([self.allowed_, may], axis=1)
            guarantee = stream.together(self.guarantee_, guarantee, len(values))
        self.__dict__ |= {"values_": values, "allowed_": may, "n_tasks_": len(values), "classes_": classes}
        self.__dict__ |= {"guarantee_": guarantee, "_stream": described}
        return self

    def plan(self, shape: tuple[int, ...], *, integral: bool = False) -> Guarantee:
        """Return what a task on records of this shape would guarantee and cost by itself: nothing is read or charged.

        Parameters
        ----------
        shape : tuple of int
            Of one record.
        integral : bool, default=False
            Whether records are integers, such as tokens.
        """
        finetuner, described = self._prepared(shape, integral=integral)
        return self._plan(finetuner, described)[0].guarantee

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of each class, of shape (n, n_classes): one pass of the network for each task.

        Parameters
        ----------
        X : array-like or tensor of shape (n, ...)
            Records to classify; they cost nothing.
        """
        check_is_fitted(self, "values_")
        records = as_inputs(X)
        logits = (self._of_task(number).decision_function(records) for number in range(self.n_tasks_))
        own = (rows[:, may] for rows, may in zip(logits, self.allowed_.T, strict=True))
        return put_together(own, self.allowed_, len(records), self._stream["scores"])

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the trained weights of all tasks, the guarantee and the digest of the module to one safetensors file.

        Parameters
        ----------
        path : path
        overwrite : bool, default=False
            Whether an existing file may be replaced.

        Raises
        ------
        FileExistsError
            If the file exists and `overwrite` is False.
        """
        check_is_fitted(self, "values_")
        tensors = {"values": self.values_, "allowed": self.allowed_}
        model_file.write(self, path, {"stream": self._stream}, tensors, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], module: Any) -> Self:
        """Read what `save` wrote, on top of the public module; the stream can go on.

        Parameters
        ----------
        path : path
        module : torch.nn.Module
            The public module of the stream, whose digest the file holds.

        Raises
        ------
        ModelFileError
            If the file is damaged or something else.
        InputError
            If the module is another.
        """
        fields, guarantee, tensors = model_file.read(path, module, cls.__name__)
        classes = np.array(fields["classes"])
        described, values, allowed = fields["parameters"]["stream"], tensors["values"], tensors["allowed"]
        model = None
        if (
            values.ndim == 2
            and len(values) == guarantee.n_models
            and allowed.dtype == np.bool_
            and allowed.shape == (len(classes), len(values))
            and allowed.any(axis=0).all()
            and set(described) == set(_STREAM)
        ):
            rest = {name: described[name] for name in ("options", "scores", "tasks", "unknown_labels")}
            model = cls(module, budget_from_dict(described["budget"]), classes, **rest)
            model.__dict__ |= {"values_": values, "allowed_": allowed, "n_tasks_": len(values), "classes_": classes}
            model.__dict__ |= {"guarantee_": guarantee, "_stream": described}
        if model is None:
            raise ModelFileError(f"{os.fspath(path)} contradicts itself. Fetch it again.")
        model._of_task(0)  # which notices weights that do not fit the module
        return model

    @property
    def _n_earlier(self) -> int:
        return getattr(self, "n_tasks_", 0)

    def _prepared(
        self, shape: tuple[int, ...], *, integral: bool, ledger: Ledger | None = None
    ) -> tuple[SparseFinetuner, dict[str, Any]]:
        """Return what trains the next task, and all that must stay as it is from task to task, JSON-ready."""
        _validate.one_of(stream.TASKS, tasks=self.tasks)
        _validate.one_of(SCORES, scores=self.scores)
        options = {} if self.options is None else self.options
        if not isinstance(options, dict) or not set(options) <= set(_OPTIONS):
            raise ParameterError(f"must be a dictionary with some of {', '.join(_OPTIONS)}.", parameter="options")
        seed, n = self.random_state, self._n_earlier
        finetuner = self._finetuner(options, random_state=seed_of(seed, n) if n and seed is not None else seed)
        classes, trainer = finetuner._prepared(ledger)
        finetuner.sampling_rate = trainer.sampling_rate
        if self.tasks == "overlapping" and trainer.sampling_rate < 1:
            raise ParameterError(
                "tasks='overlapping' needs options={'sampling_rate': 1.0}: the costs of several trainings on samples "
                "have no exact sum.",
                parameter="tasks",
            )
        described = {
            "module": model_file.module_digest(self.module),
            "budget": checked_budget(self.budget).to_dict(),
            "classes": classes.tolist(),
            "options": {name: as_json(getattr(finetuner, name)) for name in _OPTIONS},
            "scores": self.scores,
            "tasks": self.tasks,
            "unknown_labels": self.unknown_labels,
            "shape": list(shape),
            "integral": integral,
        }
        for name in _STREAM if n else ():
            if described[name] != self._stream[name]:
                raise ParameterError(
                    f"{name} must stay what it was in the earlier tasks; set it back, or start again with fit."
                )
        return finetuner, described

    def _finetuner(self, options: dict[str, Any], **further: Any) -> SparseFinetuner:
        options = {**options, "train": ("head", "norm"), "unknown_labels": self.unknown_labels, **further}
        budget = checked_budget(self.budget)
        return SparseFinetuner(self.module, budget, self.classes, **options)

    def _plan(self, finetuner: SparseFinetuner, described: dict[str, Any]) -> tuple[TrainingPlan, DPTrainer]:
        """Settle what the next task releases and guarantees by itself."""
        _, trainer = finetuner._prepared()
        plan = finetuner._plan(trainer, tuple(described["shape"]), integral=described["integral"])
        guarantee = stream.of_stream(plan.guarantee, stream.RELATIONS[self.tasks], self.tasks)
        releases = tuple(replace(one, statistic=f"{one.statistic}, of one task") for one in guarantee.releases)
        guarantee = replace(guarantee, releases=releases)
        if self._n_earlier:
            stream.check_same_promise(self.guarantee_, stream.of_tasks(guarantee, self._n_earlier, self.tasks))
        # A total beyond all use is refused before it is paid, and one of hardly any meaning warns.
        total = stream.of_tasks(guarantee, self._n_earlier + 1, self.tasks).budget
        if total.is_weak:
            warnings.warn(total.weakness, WeakBudgetWarning, stacklevel=3)
        return replace(plan, guarantee=guarantee), trainer

    def _of_task(self, number: int) -> SparseFinetuner:
        """Return the model of one task, whose logits are scores."""
        model = self._finetuner(self._stream["options"])
        model = model_file.restored(model, self.guarantee_, self.values_[number])
        if self.scores == "normalised":
            _normalise(model.module_.get_submodule(head_of(model.module_, model.head)))
        return model


def _normalise(head: Any) -> None:
    """Let a linear layer return the products of unit rows and normalised weights, and no intercept."""
    torch = optional("torch", "torch", "torch")
    weights = torch.from_numpy(normalised(as_numpy(head.weight).astype(np.float64))).to(head.weight)
    head.register_forward_hook(
        lambda _, args, output: torch.nn.functional.normalize(args[0].to(weights), dim=-1) @ weights.T
    )
