"""DP-SGD on any weights of a module: the trainer asks for noisy sums of gradients, and descends."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dppl import _validate
from dppl._optional import optional
from dppl.encoders.frozen import tensors_digest
from dppl.errors import BudgetError, InputError, ParameterError
from dppl.estimators.parameters import parameters
from dppl.finetune.checkpoint import Checkpoint, State
from dppl.finetune.gradients import RADIUS, NetworkGradients, PrivateRecords, fit_for_release
from dppl.finetune.layers import refuse
from dppl.finetune.selection import Selection, check_module, set_weights, weights_of
from dppl.finetune.tensor_file import as_json
from dppl.kernel.measure import Calibrated, Measure, Measurement, calibrated
from dppl.kernel.privacy import Budget, Guarantee
from dppl.kernel.privacy.budgets import checked_budget
from dppl.kernel.privacy.guarantee import ALWAYS_UNCOVERED, FORM_OF_FILES, software_versions

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger

__all__ = ["DPTrainer", "TrainingPlan"]

_ROWS_MIX = (
    "rounding by which the gradient of a record may depend on the records computed beside it, which block=1 rules out"
)
_STOPS = "whether a record stopped the training (a token that the module does not know, a code beyond its logits)"
_COPIES = "several runs that went on from copies of one checkpoint without a ledger"
_ASSUMPTIONS = (
    "the module and all public inputs were made without the private records",
    "the module and the augmentation keep nothing of a record that they have seen, nor count them, as a generator of "
    "their own with a known start does (a seeded one, or a torch.Generator as it is made)",
)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingPlan:
    """What a training asks and guarantees, settled before a private record is read."""

    gradients: NetworkGradients
    measurements: Mapping[str, Calibrated]  # the gradients, as often as there are steps, with their noise
    guarantee: Guarantee
    made_for: dict[str, Any]  # all public values that decide it, by name


@parameters
class DPTrainer:
    r"""Differentially private stochastic gradient descent on chosen weights of a module.

    In each step every record takes part with the same probability (Poisson sampling by fair coins). Gradients of single
    records are clipped, over all trained weights together, and become integers; their sum is exact, and so is the
    noise. The weights move with momentum along a rate that warms up and falls as a cosine.

    Parameters
    ----------
    module : torch.nn.Module
        Public. Maps a batch of records to logits; it is trained in the mode (``eval`` or ``train``) in which it is.
        It is not changed.
    selection : mapping of str to ndarray of int64, or None
        What `select_weights` returns: for each trained parameter the flat positions, None for all.
    budget : ApproxDP, GaussianDP or ZCDP, default=None
        What the training may spend; ApproxDP with `sampling_rate` below 1.
    steps : int
        Number of steps. Public, like `sampling_rate` and `batch_size`: never take them from the private data.
    sampling_rate : float, default=1.0
        Probability with which a record takes part in a step; 1 is the full batch.
    batch_size : float
        A public number to divide sums by: the size of a sample that is expected.
    clip : float, default=1.0
        Longest gradient that keeps its length.
    learning_rate : float or mapping of str to float, default=0.1
        One rate, or that of each trained parameter.
    momentum : float, default=0.9
        Share of the velocity that is kept from step to step.
    warmup_steps : int, default=0
        Steps over which the rate rises linearly.
    augment : callable, default=None
        Takes a record as a tensor and returns another of its shape, by itself, before the gradient is clipped. What it
        draws from the global generators of torch, Python and NumPy begins anew at each record, whatever they were
        seeded with. A generator of its own, which dppl cannot reach, must start from the system: those of NumPy and
        Python do unless they are seeded, and a ``torch.Generator`` after its ``seed()``.
    block : int, default=32
        Records that are computed at once ("virtual batch"). With 1 each is computed by itself, in more time; with more,
        kernels may round a record by what is beside it, as the statement says.
    random_state : int, default=None
        None draws samples and noise from the operating system. An integer repeats a run, and the guarantee then says
        that the model must not be released.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained copy, after `fit`. Safe to publish.
    guarantee_ : Guarantee
        What is promised, after `fit`.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the sums of clipped gradients of all
    steps; the weights follow from them. Sensitivity: 2²² in L2, over all trained weights together; that is the clipping
    norm in steps of rounding. With `sampling_rate` below 1 the cost is that of Gaussian sums over Poisson samples, by
    privacy loss distributions, in (epsilon, delta) only; at 1 squares of mu add. Public inputs: the module before the
    training, the selection, all parameters, the shape of a record. Not covered: choice of parameters by private data,
    timing, a changed label (two steps), whether a record stopped the training, runs that go on from copies of a
    checkpoint without a ledger, and, but with ``block=1``, rounding by which records that are computed together may
    touch each other.

    References
    ----------
    .. [1] Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang (2016), arXiv:1607.00133, Algorithm 1.
    .. [2] Dong, Roth, Su (2022), arXiv:1905.02383v3, Corollary 3.3 (composition).
    """

    module: Any = field(kw_only=False)
    selection: Selection = field(kw_only=False)
    budget: Budget | None = field(default=None, kw_only=False)
    steps: int
    batch_size: float
    sampling_rate: float = 1.0
    clip: float = 1.0
    learning_rate: float | Mapping[str, float] = 0.1
    momentum: float = 0.9
    warmup_steps: int = 0
    augment: Callable[[Any], Any] | None = None
    block: int = 32
    random_state: int | None = None

    def __post_init__(self) -> None:
        self.budget = checked_budget(self.budget)
        if self.budget.is_zero:
            raise BudgetError(f"{self.budget} lets nothing be released, so there is nothing to train.")
        check_module(self.module)
        if not isinstance(self.selection, Mapping):
            raise ParameterError(
                "must be a mapping from names of parameters to positions, or None for all, as select_weights returns; "
                f"got a {type(self.selection).__name__}.",
                parameter="selection",
            )
        _validate.positive_integer(steps=self.steps, block=self.block)
        _validate.positive(batch_size=self.batch_size, clip=self.clip)
        _validate.probability(sampling_rate=self.sampling_rate)
        if self.momentum != 0:
            _validate.open_unit(momentum=self.momentum)
        if self.warmup_steps != 0:
            _validate.positive_integer(warmup_steps=self.warmup_steps)
        fit_for_release(self.random_state)
        self.selection = dict(self.selection)
        sizes = {name: weight.numel() for name, weight in self.module.named_parameters()}
        if not self.selection or not set(self.selection) <= set(sizes):
            raise ParameterError("must name parameters of the module, at least one.", parameter="selection")
        if not all(_are_positions(places, sizes[name]) for name, places in self.selection.items()):
            raise ParameterError(
                "must give None or flat positions of a parameter's weights: an ascending array of int64, not empty.",
                parameter="selection",
            )
        refuse(self.module, self.selection)
        rates = self.learning_rate
        rates = dict(rates) if isinstance(rates, Mapping) else dict.fromkeys(self.selection, rates)
        if set(rates) != set(self.selection):
            raise ParameterError("must be a number, or name each trained parameter.", parameter="learning_rate")
        for rate in rates.values():
            _validate.positive(learning_rate=rate)
        self.learning_rate = rates

    def plan(self, shape: tuple[int, ...], *, integral: bool = False) -> TrainingPlan:
        """Settle what a training on records of this shape releases and guarantees: nothing is read or charged.

        Parameters
        ----------
        shape : tuple of int
            Of one record.
        integral : bool, default=False
            Whether records are integers, such as tokens.

        Raises
        ------
        ParameterError, BudgetError
            If the module cannot be trained record by record, or the budget not be spent.
        """
        gradients = NetworkGradients(
            self.module,
            self.selection,
            clip=self.clip,
            shape=shape,
            integral=integral,
            block=self.block,
            sampling_rate=self.sampling_rate,
            augment=self.augment,
        )
        budget = checked_budget(self.budget)
        measurements = calibrated(budget, {"gradients": Measurement(gradients, times=self.steps)}, "add-remove")
        guarantee = Guarantee(
            budget=budget,
            adjacency="add-remove",
            releases=tuple(one.release for one in measurements.values() if one.release is not None),
            public_inputs=(
                "the module before the training",
                "which weights are trained",
                "the shape of a record",
                FORM_OF_FILES,
                "all parameters",
            ),
            not_covered=(
                *([] if gradients.row_independent else [_ROWS_MIX]),
                *ALWAYS_UNCOVERED,
                _STOPS,
                _COPIES,
                "a changed label or record, which counts as one removed and one added",
            ),
            fit_for_release=fit_for_release(self.random_state),
            assumptions=_ASSUMPTIONS,
            software={**software_versions(), "torch": str(optional("torch", "torch", "torch").__version__)},
        )
        return TrainingPlan(gradients, measurements, guarantee, self._public(shape, integral))

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        plan: TrainingPlan | None = None,
        ledger: Ledger | None = None,
        partition: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Self:
        """Train the module on (`X`, `y`).

        Parameters
        ----------
        X : array-like or tensor of shape (n_records, ...)
            Private records. Integers reach the module as int64, all else as float32.
        y : array-like of shape (n_records,)
            Positions of the classes among the logits; a record with a negative one is left out.
        plan : TrainingPlan, default=None
            What `plan` returned for such records.
        ledger : Ledger, default=None
            Account of the data set. It cannot be charged with `sampling_rate` below 1.
        partition : str, default=None
            As in `Ledger.charge`.
        checkpoint : path, default=None
            File by which the same call goes on after an interruption, on the same data. It stays when the training has
            ended, and gives the same weights again: remove it before a training on other data. The step in which the
            run was interrupted is lost and counts. A copy of it that another run has overtaken is refused if there is a
            ledger. Not with a seed, which would repeat the noise.
        progress : callable, default=None
            Called with the number of steps that are done.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, InputError, BudgetError, BudgetExceeded
            If a parameter breaks its rule, the input does not fit, or the budget or ledger refuses.
        LedgerError
            If the ledger cannot be used, or another run overtakes this one from a copy of its checkpoint.
        """
        return self._train(
            PrivateRecords.at_positions(X, y),
            plan,
            ledger=ledger,
            partition=partition,
            checkpoint=checkpoint,
            progress=progress,
        )

    def _train(
        self,
        records: PrivateRecords,
        plan: TrainingPlan | None,
        *,
        ledger: Ledger | None,
        partition: str | None,
        checkpoint: str | os.PathLike[str] | None,
        progress: Callable[[int], object] | None,
        name: str = "DPTrainer",
        meaning: Mapping[str, Any] | None = None,
    ) -> Self:
        """Train as `fit`, for an estimator of this name in the ledger.

        `meaning` holds public values that say what labels mean, JSON-ready; a checkpoint is of these, too.
        """
        if checkpoint is not None and self.random_state is not None:
            raise ParameterError(
                "needs random_state=None: a run that goes on would repeat its noise.", parameter="checkpoint"
            )
        if ledger is None and partition is not None:
            raise ParameterError("partition names a part of a ledger's data set; pass ledger as well.")
        plan = self.plan(records.shape, integral=records.integral) if plan is None else plan
        if plan.made_for != self._public(records.shape, records.integral):
            raise ParameterError("is for other parameters, another module or records of other shape.", parameter="plan")
        # The file is of one run: of all that decides it but the private records, its noise and its account included.
        identity = {
            **plan.made_for,
            **_as_read(dict(meaning or {})),
            "noise": [release.to_dict() for release in plan.guarantee.releases],
            "data set in a ledger": None if ledger is None else ledger.dataset,
            "partition": partition,
        }
        file = Checkpoint(checkpoint, identity)
        with file.held():
            state = file.read(plan.gradients.size, self.steps) or self._start()
            if ledger is not None and not _is_paid(ledger, state):
                state.entry = ledger.charge(
                    plan.guarantee,
                    estimator=name,
                    parameters=self._described(),
                    partition=partition,
                    stepwise=True,
                )
            from dppl.estimators.base import charged  # here, because reading a model file needs no scikit-learn

            # Steps that an earlier run has begun are spent, whether or not they were answered.
            with (
                charged(state.entry),
                records.counter(plan.measurements, plan.gradients.n_outputs, self.random_state, state.begun) as measure,
            ):
                self._descend(measure, state, file, ledger, progress)
        entry = state.entry
        place = None if entry is None else f"{entry.dataset}, release {entry.number}"
        # A copy of the public module, and not of the one that records have passed through.
        self.module_, self.guarantee_ = deepcopy(self.module), replace(plan.guarantee, ledger_entry=place)
        set_weights(self.module_, self.selection, state.values)
        if ledger is not None and entry is not None:
            ledger.finish(entry)
        return self

    def _descend(
        self,
        measure: Measure,
        state: State,
        file: Checkpoint,
        ledger: Ledger | None,
        progress: Callable[[int], object] | None,
    ) -> None:
        """Take the steps that are left: ask for a noisy sum of gradients, and move against it with momentum."""
        assert isinstance(self.learning_rate, Mapping)
        rates = np.concatenate(
            [
                np.full(len(part), self.learning_rate[name], np.float32)
                for name, part in weights_of(self.module, self.selection).items()
            ]
        )
        for step in range(state.begun, self.steps):
            # First the file, then the ledger, then the noise: whoever goes on from either never asks for this step.
            file.write(state, step + 1)
            if ledger is not None and state.entry is not None:
                ledger.begin_step(state.entry, step)
            total = measure("gradients", weights=state.values)
            gradient = total * (self.clip / RADIUS / self.batch_size)
            state.velocity = (self.momentum * state.velocity + gradient).astype(np.float32)
            # The rate warms up linearly, and falls as a cosine over all steps.
            warm = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
            rate = warm * (1 + math.cos(math.pi * step / self.steps)) / 2
            state.values = state.values - np.float32(rate) * rates * state.velocity
            state.begun = step + 1
            if progress is not None:
                progress(step + 1)
        file.write(state, self.steps)

    def _start(self) -> State:
        values = np.concatenate(list(weights_of(self.module, self.selection).values()), dtype=np.float32)
        return State(0, values, np.zeros_like(values))

    def _described(self) -> dict[str, Any]:
        """Return the public parameters, JSON-ready, without the seed."""
        names = ("steps", "sampling_rate", "batch_size", "clip", "momentum", "warmup_steps", "block")
        return {"budget": checked_budget(self.budget).to_dict(), **{name: getattr(self, name) for name in names}}

    def _public(self, shape: tuple[int, ...], integral: bool) -> dict[str, Any]:
        """Return all public values that decide a training but its noise, by their names for people."""
        places = {name: None if p is None else p.tolist() for name, p in self.selection.items()}
        return _as_read(
            {
                **self._described(),
                "learning_rate": self.learning_rate,
                "selection of weights": sha256(json.dumps(places, sort_keys=True).encode()).hexdigest(),
                "shape of a record": list(shape),
                "kind of records": "integers" if integral else "numbers",
                "module": tensors_digest("", self.module.state_dict().items()),
                "kind of randomness": "the system's" if self.random_state is None else "seeded",
            }
        )


def _as_read(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields as a file gives them back."""
    read: dict[str, Any] = json.loads(as_json(fields))
    return read


def _are_positions(places: Any, size: int) -> bool:
    """Check that places of a parameter's weights are distinct and in order."""
    if places is None:
        return True
    if not isinstance(places, np.ndarray) or places.dtype != np.int64 or places.ndim != 1 or not len(places):
        return False
    return bool(places[0] >= 0 and places[-1] < size and (np.diff(places) > 0).all())


def _is_paid(ledger: Ledger, state: State) -> bool:
    """Look for the charge of the run in this ledger, and refuse a state that another run has overtaken."""
    begun = None if state.entry is None else ledger.steps_begun(state.entry)
    if begun is not None and begun > state.begun:
        raise InputError(
            f"the ledger knows of {begun} steps of this run, and the checkpoint of {state.begun}: another run went on "
            "from a copy of it. Go on from the latest one, or remove this one to begin a new run, which pays again."
        )
    return begun is not None
