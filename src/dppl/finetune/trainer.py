"""DP-SGD on any weights of a module, with exact sums and noise."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl import _validate
from dppl._optional import optional
from dppl.encoders.frozen import tensors_digest
from dppl.errors import BudgetError, InputError, ParameterError
from dppl.finetune.augmentation import augment_each
from dppl.finetune.checkpoint import Checkpoint, State
from dppl.finetune.gradients import RADIUS, RecordGradients
from dppl.finetune.refusals import refuse
from dppl.finetune.selection import Selection, check_module
from dppl.finetune.tensor_file import as_json
from dppl.kernel.lattice.tensors import as_numpy, is_tensor
from dppl.kernel.mechanisms import RoundedGaussian, SampledGaussian, randomness
from dppl.kernel.privacy import Budget, Guarantee
from dppl.kernel.privacy.budgets import checked_budget
from dppl.kernel.privacy.guarantee import ALWAYS_UNCOVERED, FORM_OF_FILES, software_versions

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger

__all__ = ["DPTrainer", "TrainingPlan", "records_of", "set_weights", "weights_of"]

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
    """What a training releases and guarantees, settled before a private record is read."""

    gradients: RecordGradients
    noise: SampledGaussian | RoundedGaussian
    guarantee: Guarantee
    made_for: dict[str, Any]  # the public things that it was made from, by name


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

    def __init__(
        self,
        module: Any,
        selection: Selection,
        budget: Budget | None = None,
        *,
        steps: int,
        batch_size: float,
        sampling_rate: float = 1.0,
        clip: float = 1.0,
        learning_rate: float | Mapping[str, float] = 0.1,
        momentum: float = 0.9,
        warmup_steps: int = 0,
        augment: Callable[[Any], Any] | None = None,
        block: int = 32,
        random_state: int | None = None,
    ) -> None:
        budget = checked_budget(budget)
        if budget.is_zero:
            raise BudgetError(f"{budget} lets nothing be released, so there is nothing to train.")
        check_module(module)
        if not isinstance(selection, Mapping):
            raise ParameterError(
                "must be a mapping from names of parameters to positions, or None for all, as select_weights returns; "
                f"got a {type(selection).__name__}.",
                parameter="selection",
            )
        _validate.positive_integer(steps=steps, block=block)
        _validate.positive(batch_size=batch_size, clip=clip)
        _validate.probability(sampling_rate=sampling_rate)
        if momentum != 0:
            _validate.open_unit(momentum=momentum)
        if warmup_steps != 0:
            _validate.positive_integer(warmup_steps=warmup_steps)
        self.module, self.selection, self.budget = module, dict(selection), budget
        self.steps, self.batch_size, self.sampling_rate, self.clip = steps, batch_size, sampling_rate, clip
        self.momentum, self.warmup_steps, self.augment, self.block = momentum, warmup_steps, augment, block
        self.random_state = random_state
        # What codes of records mean, JSON-ready and by name: a checkpoint is of that, too.
        self.meaning: dict[str, Any] = {}
        # What a ledger calls whoever trains.
        self.name = type(self).__name__
        self._source = randomness(random_state)
        names = dict(module.named_parameters())
        if not self.selection or not set(self.selection) <= set(names):
            raise ParameterError("must name parameters of the module, at least one.", parameter="selection")
        if not all(_are_positions(places, names[name].numel()) for name, places in self.selection.items()):
            raise ParameterError(
                "must give None or flat positions of a parameter's weights: an ascending array of int64, not empty.",
                parameter="selection",
            )
        refuse(module, self.selection)
        rates = learning_rate if isinstance(learning_rate, Mapping) else dict.fromkeys(self.selection, learning_rate)
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
        module = deepcopy(self.module).requires_grad_(False)
        gradients = RecordGradients(
            module, self.selection, clip=self.clip, shape=shape, integral=integral, block=self.block
        )
        squared = gradients.squared_sensitivity
        noise: SampledGaussian | RoundedGaussian
        if self.sampling_rate < 1:
            noise = SampledGaussian.within(self.budget, squared, self.steps, self.sampling_rate)
        else:
            noise = RoundedGaussian.within(self.budget, squared, self.steps)
        guarantee = Guarantee(
            budget=self.budget,
            adjacency="add-remove",
            releases=(noise.describe(f"sum of clipped gradients ({gradients.size} trained weights)"),),
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
            fit_for_release=self._source.fit_for_release,
            assumptions=_ASSUMPTIONS,
            software={**software_versions(), "torch": str(optional("torch", "torch", "torch").__version__)},
        )
        return TrainingPlan(gradients, noise, guarantee, self._public(shape, integral))

    def fit(
        self,
        X: Any,
        y: ArrayLike | Callable[[], ArrayLike],
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
        y : array-like of shape (n_records,), or a callable that returns it
            Positions of the classes among the logits; a record with a negative one is left out. A callable is called
            after the charge.
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
        records, self._source = records_of(X), randomness(self.random_state)
        if checkpoint is not None and self.random_state is not None:
            raise ParameterError(
                "needs random_state=None: a run that goes on would repeat its noise.", parameter="checkpoint"
            )
        if ledger is None and partition is not None:
            raise ParameterError("partition names a part of a ledger's data set; pass ledger as well.")
        shape, integral = records.shape[1:], records.dtype.kind in "iu"
        plan = self.plan(shape, integral=integral) if plan is None else plan
        if plan.made_for != self._public(shape, integral):
            raise ParameterError("is for other parameters, another module or records of other shape.", parameter="plan")
        # All that decides the run but the private records, its noise and its account among it.
        released = [release.to_dict() for release in plan.guarantee.releases]
        account = {"data set in a ledger": None if ledger is None else ledger.dataset, "partition": partition}
        file = Checkpoint(checkpoint, {**plan.made_for, "noise": released, **account})
        with file.held():
            state = file.read(plan.gradients.size, self.steps) or self._start()
            if ledger is not None and not _is_paid(ledger, state):
                state.entry = ledger.charge(
                    plan.guarantee,
                    estimator=self.name,
                    parameters=self._described(),
                    partition=partition,
                    stepwise=True,
                )
            from dppl.estimators.base import charged  # here, because reading a model file needs no scikit-learn

            with charged(state.entry):
                codes = np.asarray(y() if callable(y) else y)
                if codes.shape != records.shape[:1] or codes.dtype.kind not in "iu":
                    raise InputError("y must hold one whole number for each record; its shape or dtype differs.")
                if (codes >= plan.gradients.n_outputs).any():
                    raise InputError(f"y must hold positions below {plan.gradients.n_outputs}, the number of logits.")
                self._train(plan, records, codes, state, file, ledger, progress)
        entry = state.entry
        at = None if entry is None else f"{entry.dataset}, release {entry.number}"
        # A copy of the public module, and not of the one that records have passed through.
        self.module_, self.guarantee_ = deepcopy(self.module), replace(plan.guarantee, ledger_entry=at)
        set_weights(self.module_, self.selection, state.values)
        if ledger is not None and entry is not None:
            ledger.finish(entry)
        return self

    def _train(
        self,
        plan: TrainingPlan,
        records: NDArray[Any],
        codes: NDArray[Any],
        state: State,
        file: Checkpoint,
        ledger: Ledger | None,
        progress: Callable[[int], object] | None,
    ) -> None:
        rates = np.concatenate(
            [
                np.full(len(part), self.learning_rate[name], np.float32)
                for name, part in weights_of(self.module, self.selection).items()
            ]
        )
        set_weights(plan.gradients.module, self.selection, state.values)
        for step in range(state.begun, self.steps):
            file.write(state, step + 1)
            if ledger is not None and state.entry is not None:
                ledger.begin_step(state.entry, step)
            total = self._sum(plan, records, codes)
            noisy = plan.noise.release(total, self._source) * (self.clip / RADIUS / self.batch_size)
            state.velocity = (self.momentum * state.velocity + noisy).astype(np.float32)
            state.values = state.values - np.float32(self._rate(step)) * rates * state.velocity
            state.begun = step + 1
            set_weights(plan.gradients.module, self.selection, state.values)
            if progress is not None:
                progress(step + 1)
        file.write(state, self.steps)

    def _sum(self, plan: TrainingPlan, records: NDArray[Any], codes: NDArray[Any]) -> NDArray[np.int64]:
        """Return the sum of clipped gradients over a fresh sample."""
        noise = plan.noise
        taken = codes >= 0
        if isinstance(noise, SampledGaussian):
            taken &= noise.sample(len(codes), self._source)
        places = np.flatnonzero(taken)
        total = np.zeros(plan.gradients.size, np.int64)
        augment = None if self.augment is None else partial(augment_each, self.augment, self._source)
        for start in range(0, len(places), self.block):
            part = places[start : start + self.block]
            total += plan.gradients.sum(records[part], codes[part], augment)
        return total

    def _rate(self, step: int) -> float:
        """Return the factor of the learning rate: linear warm-up, and a cosine over all steps."""
        warm = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        return warm * (1 + math.cos(math.pi * step / self.steps)) / 2

    def _start(self) -> State:
        values = np.concatenate(list(weights_of(self.module, self.selection).values()), dtype=np.float32)
        return State(0, values, np.zeros_like(values))

    def _described(self) -> dict[str, Any]:
        """Return the public parameters, JSON-ready, without the seed."""
        names = ("steps", "sampling_rate", "batch_size", "clip", "momentum", "warmup_steps", "block")
        return {"budget": self.budget.to_dict(), **{name: getattr(self, name) for name in names}}

    def _public(self, shape: tuple[int, ...], integral: bool) -> dict[str, Any]:
        """Return all public things that decide a training but its noise, JSON-ready, by their names for people."""
        places = {name: None if p is None else p.tolist() for name, p in self.selection.items()}
        public = {
            **self._described(),
            **self.meaning,
            "learning_rate": dict(self.learning_rate),
            "selection of weights": sha256(json.dumps(places, sort_keys=True).encode()).hexdigest(),
            "shape of a record": list(shape),
            "kind of records": "integers" if integral else "numbers",
            "module": tensors_digest("", self.module.state_dict().items()),
            "kind of randomness": "the system's" if self.random_state is None else "seeded",
        }
        # As a file gives it back.
        found: dict[str, Any] = json.loads(as_json(public))
        return found


def records_of(X: Any) -> NDArray[Any]:
    """Return records as an array of numbers whose first axis counts them. Messages show no value."""
    records = as_numpy(X) if is_tensor(X) else None
    if records is None:
        try:
            records = np.asarray(X)
        except Exception:
            records = np.empty(0)  # refused below, without an exception that quotes values
    if records.ndim < 2 or records.dtype.kind not in "fiub" or records.dtype.char == "g" or 0 in records.shape[1:]:
        raise InputError("X must be an array of numbers of shape (n_records, ...), all records of one shape.")
    return records.astype(records.dtype.newbyteorder("="), copy=False)


def _are_positions(places: Any, size: int) -> bool:
    """Tell whether these are distinct places of a parameter, in order."""
    if places is None:
        return True
    if not isinstance(places, np.ndarray) or places.dtype != np.int64 or places.ndim != 1 or not len(places):
        return False
    return bool(places[0] >= 0 and places[-1] < size and (np.diff(places) > 0).all())


def weights_of(module: Any, selection: Selection) -> dict[str, NDArray[np.float32]]:
    """Return the trained weights of a module, by parameter."""
    every = {name: as_numpy(module.get_parameter(name)).reshape(-1) for name in selection}
    return {name: flat if selection[name] is None else flat[selection[name]] for name, flat in every.items()}


def set_weights(module: Any, selection: Selection, values: NDArray[np.float32]) -> None:
    """Put trained weights, in the order of `selection`, into their places of a module; no other weight is touched."""
    torch = optional("torch", "torch", "torch")
    start = 0
    for name, places in selection.items():
        weight = module.get_parameter(name).data
        count = weight.numel() if places is None else len(places)
        part = torch.from_numpy(values[start : start + count]).to(weight)
        if places is None:
            weight.copy_(part.reshape(weight.shape))
        else:
            flat = weight.reshape(-1)
            flat[torch.from_numpy(places).to(weight.device)] = part
            weight.copy_(flat.reshape(weight.shape))
        start += count


def _is_paid(ledger: Ledger, state: State) -> bool:
    """Tell whether this ledger holds the charge of the run, and refuse a state that another run has left behind."""
    begun = None if state.entry is None else ledger.steps_begun(state.entry)
    if begun is not None and begun > state.begun:
        raise InputError(
            f"the ledger knows of {begun} steps of this run, and the checkpoint of {state.begun}: another run went on "
            "from a copy of it. Go on from the latest one, or remove this one to begin a new run, which pays again."
        )
    return begun is not None
