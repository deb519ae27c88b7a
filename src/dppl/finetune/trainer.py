"""DP-SGD on any weights of a module: a training asks for noisy sums of gradients, and descends."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dppl._utils import tensorfile, validate
from dppl._utils.optional import optional
from dppl._utils.outside import parse_json
from dppl.errors import BudgetError, InputError, ParameterError
from dppl.finetune.checkpoint import Checkpoint, State
from dppl.finetune.gradients import NetworkGradients, PrivateRecords
from dppl.finetune.heads import set_head, with_center
from dppl.finetune.layers import refuse
from dppl.finetune.schedule import n_steps, releases_of
from dppl.finetune.weights import (
    WeightSelection,
    keep_filters,
    module_digest,
    set_weights,
    sizes_of,
    weights_of,
)
from dppl.kernel.measure import (
    Calibrated,
    Measure,
    Measurement,
    calibrated,
    secure_noise,
)
from dppl.kernel.privacy import Budget, Guarantee, Release
from dppl.kernel.privacy.budgets import checked_budget
from dppl.kernel.privacy.guarantee import ALWAYS_UNCOVERED
from dppl.kernel.privacy.sensitivity import RADIUS
from dppl.kernel.privacy.terms import Assumption, Caveat, PublicInput, Term

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger
    from dppl.kernel.privacy.ledger import LedgerEntry

Precision: TypeAlias = Literal["float32", "bfloat16"]


def guarantee_of(
    budget: Budget, releases: Sequence[Release], *, row_independent: bool
) -> Guarantee:
    """Return what a training guarantees, from public values alone."""
    return Guarantee(
        budget=budget,
        adjacency="add-remove",
        releases=tuple(releases),
        public_inputs=(
            Term(PublicInput.MODULE),
            Term(PublicInput.TRAINED_WEIGHTS),
            Term(PublicInput.SHAPE),
            Term(PublicInput.FORM_OF_FILES),
            Term(PublicInput.PARAMETERS),
        ),
        not_covered=(
            *([] if row_independent else [Term(Caveat.COMPUTED_TOGETHER)]),
            *ALWAYS_UNCOVERED,
            Term(Caveat.STOPPED_TRAINING),
            Term(Caveat.COPIED_CHECKPOINTS),
            Term(Caveat.CHANGED_RECORD),
        ),
        secure_noise=True,
        assumptions=(
            Term(Assumption.MODULE_MADE_APART),
            Term(Assumption.MODULE_KEEPS_NOTHING),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How weights move: a public choice, by default as in Luo, Wu, Adeli and Fei-Fei (CVPR 2021), section 5.8.

    Parameters
    ----------
    epochs : float, default=200
        A training has ``epochs / sampling_rate`` steps, rounded up, so that a record
        takes part in as many on average.
    batch_size : float, default=5000
        Public number to divide the sum of a step by: the sampling rate times a public
        guess of the number of records. The default is for 50,000 records at a rate of
        0.1. It costs no privacy.
    clip : float, default=1.0
        Longest gradient of a record that keeps its length, over all trained weights
        jointly.
    head_learning_rate : float, default=0.8
        Of the head.
    learning_rate : float, default=0.01
        Of all else.
    momentum : float, default=0.9
        Share of the velocity that is kept from step to step.
    warmup_epochs : float, default=1
        Over which the learning rate rises linearly; over all epochs it falls as a
        cosine.
    default_head : bool, default=False
        Whether `SoftmaxPrototypes` gives the head: on features of the public network
        before the training, for a tenth of mu², and on features of the trained network
        after it, for four tenths. It scores features as that method does: of length 1,
        about a centre.
    keep_filters : bool, default=False
        Whether each filter of the convolutions that are trained as a whole keeps its
        public mean and deviation, as with standardised weights (Qiao et al. 2019,
        arXiv:1903.10520): gradients are clipped without what moves these, and what
        noise does to them is undone after each step.
    block : int, default=32
        Records that are computed at once. With 1 each is computed by itself, in more
        time; with more, kernels may round a record differently in another batch, as the
        statement says.
    precision : {"float32", "bfloat16"}, default="float32"
        Of the numbers by which gradients are computed. Where a processor multiplies
        bfloat16, it takes about two thirds of the time and memory; a gradient is off by
        some per cent. Trained weights, clipping and noise are as exact.
    """

    epochs: float = 200
    batch_size: float = 5000
    clip: float = 1.0
    head_learning_rate: float = 0.8
    learning_rate: float = 0.01
    momentum: float = 0.9
    warmup_epochs: float = 1
    default_head: bool = False
    keep_filters: bool = False
    block: int = 32
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        validate.positive(
            epochs=self.epochs, batch_size=self.batch_size, clip=self.clip
        )
        validate.positive(
            head_learning_rate=self.head_learning_rate, learning_rate=self.learning_rate
        )
        if self.momentum != 0:
            validate.open_unit(momentum=self.momentum)
        validate.not_negative(warmup_epochs=self.warmup_epochs)
        validate.positive_integer(block=self.block)
        validate.one_of(get_args(Precision), precision=self.precision)
        for name in ("default_head", "keep_filters"):
            if not isinstance(value := getattr(self, name), bool):
                raise ParameterError(
                    f"must be True or False; got {value!r}.", parameter=name
                )


def _check_selection(module: Any, selection: WeightSelection) -> None:
    """Raise unless a selection gives flat positions in parameters of the module."""
    sizes = {name: weight.numel() for name, weight in module.named_parameters()}
    if not selection or not set(selection) <= set(sizes):
        raise ParameterError(
            "must name parameters of the module, at least one.", parameter="selection"
        )
    for name, places in selection.items():
        given = np.arange(1) if places is None else places
        is_array = (
            isinstance(given, np.ndarray)
            and given.dtype == np.int64
            and given.ndim == 1
            and len(given)
        )
        if (
            not is_array
            or given[0] < 0
            or given[-1] >= sizes[name]
            or (np.diff(given) <= 0).any()
        ):
            rule = "must give None or flat positions of a parameter's weights: an ascending array of int64, not empty"
            raise ParameterError(f"{rule}.", parameter="selection")


@dataclass(kw_only=True, eq=False)
class Training:
    """DP-SGD [1] on chosen weights of a module, settled from public values before a private record is read.

    In each step every record takes part with the same probability (Poisson sampling by
    fair coins). Gradients of single records are clipped, over all trained weights
    jointly, and become integers; their sum is exact, and so is the noise. The weights
    move with momentum along a rate that warms up and falls as a cosine.

    [1] Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang (2016),
    arXiv:1607.00133, Algorithm 1.
    """

    module: Any = field(
        kw_only=False
    )  # public; it is trained in the mode in which it is, and not changed
    selection: WeightSelection = field(kw_only=False)
    budget: Budget = field(kw_only=False)
    shape: tuple[int, ...]  # of one record
    integral: bool = False  # whether records hold whole numbers
    sampling_rate: float = 1.0
    recipe: Recipe
    head: str | None = None  # name of the layer that has its own learning rate
    # Models of features that become the head before the first step and after the last,
    # or none.
    heads: Sequence[Any] = ()
    random_state: int | None = None

    steps: int = field(init=False)  # of the descent
    kept: WeightSelection = field(
        init=False
    )  # the trained weights, and the centre of a head
    gradients: NetworkGradients = field(init=False)
    # the gradients, as often as there are steps, with their noise
    measurements: Mapping[str, Calibrated] = field(init=False)
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        self.budget = checked_budget(self.budget)
        if self.budget.is_zero:
            raise BudgetError(
                f"{self.budget} lets nothing be released, so there is nothing to train."
            )
        released = secure_noise(self.random_state)
        self.steps = n_steps(self.recipe.epochs, self.sampling_rate)
        self.selection = dict(self.selection)
        _check_selection(self.module, self.selection)
        refuse(self.module, self.selection)
        width = None
        if self.heads:
            width = self.module.get_submodule(self.head).in_features
        before, after, mu = releases_of(self.heads, width)
        if self.heads:
            self.kept = with_center(self.selection, self.head)
        else:
            self.kept = self.selection
        self.gradients = NetworkGradients(
            self.module,
            self.selection,
            clip=self.recipe.clip,
            shape=self.shape,
            integral=self.integral,
            block=self.recipe.block,
            precision=self.recipe.precision,
            sampling_rate=self.sampling_rate,
            mu=mu,
            kept=self.kept,
            keep_filters=self.recipe.keep_filters,
        )
        if self.heads:
            self._check_head()
        declared = {"gradients": Measurement(self.gradients, times=self.steps)}
        self.measurements = calibrated(self.budget, declared, "add-remove")
        guarantee = guarantee_of(
            self.budget,
            [
                *before,
                *(
                    one.release
                    for one in self.measurements.values()
                    if one.release is not None
                ),
                *after,
            ],
            row_independent=self.gradients.row_independent,
        )
        torch = str(optional("torch", "torch", "torch").__version__)
        software = {**guarantee.software, "torch": torch}
        self.guarantee = replace(guarantee, secure_noise=released, software=software)

    def _check_head(self) -> None:
        """Try the features of the head on a record of zeros, before anything is paid."""
        zeros = np.zeros((1, *self.shape), np.float32)
        weights = weights_of(self.module, self.kept)
        try:
            self.gradients.features(zeros, str(self.head), weights)
        except ValueError:
            rule = (
                "of a recipe needs a head that is called once a record, with one vector"
            )
            raise ParameterError(f"{rule}.", parameter="default_head") from None

    def run(
        self,
        records: PrivateRecords,
        *,
        name: str,
        meaning: Mapping[str, Any],
        ledger: Ledger | None = None,
        partition: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> tuple[Any, Guarantee]:
        """Train for an estimator of this name in the ledger; return the trained copy and what is promised of it.

        `meaning` holds public values that say what labels mean, JSON-ready; a
        checkpoint is of these, too.
        """
        if checkpoint is not None and self.random_state is not None:
            raise ParameterError(
                "needs random_state=None: a run that goes on would repeat its noise.",
                parameter="checkpoint",
            )
        if ledger is None and partition is not None:
            raise ParameterError(
                "partition names a part of a ledger's data set; pass ledger as well."
            )
        # The file is of one run: of all that decides it but the private records, its
        # noise and its account included.
        identity = {
            **self._public(),
            **meaning,
            "noise": [release.to_dict() for release in self.guarantee.releases],
            "data set in a ledger": None if ledger is None else ledger.dataset,
            "partition": partition,
        }
        file = Checkpoint(checkpoint, parse_json(tensorfile.as_json(identity)))
        with file.held():
            values = weights_of(self.module, self.kept)
            state = file.read(values.size, self.steps + len(self.heads))
            if state is None:
                state = State(0, values, np.zeros_like(values), uuid4().hex)
                # The name of the charge, on the disk before the ledger has it.
                file.write(state, 0)
            entry = None
            if ledger is not None:
                entry = ledger.charge(
                    self.guarantee,
                    estimator=name,
                    parameters=self._described(),
                    partition=partition,
                    run=state.run,
                )
                _refuse_overtaken(state, ledger.steps_begun(entry))
            from dppl.methods.base import (
                charged,
            )  # here, because reading a model file needs no scikit-learn

            # Steps that an earlier run has begun are spent, whether or not they were
            # answered.
            used = state.begun - bool(self.heads)
            with (
                charged(entry),
                records.counter(self.measurements, self.random_state, used) as measure,
            ):
                self._descend(
                    measure,
                    records,
                    state,
                    file,
                    ledger,
                    entry,
                    progress or (lambda step: None),
                )
        # A copy of the public module, and not of the one that records have passed
        # through.
        trained = deepcopy(self.module)
        set_weights(trained, self.kept, state.values)
        if ledger is None or entry is None:
            return trained, self.guarantee
        ledger.finish(entry)
        return trained, entry.noted(self.guarantee)

    def _descend(
        self,
        measure: Measure,
        records: PrivateRecords,
        state: State,
        file: Checkpoint,
        ledger: Ledger | None,
        entry: LedgerEntry | None,
        progress: Callable[[int], object],
    ) -> None:
        """Take the steps that are left: ask for a noisy sum of gradients, and move against it with momentum.

        Heads that are fitted on features are steps, too: the first and the last.
        """
        recipe = self.recipe
        head = f"{self.head}."
        rate_of_each = []
        for name in self.kept:
            if name.startswith(head):
                rate_of_each.append(recipe.head_learning_rate)
            else:
                rate_of_each.append(recipe.learning_rate)
        sizes = sizes_of(self.module, self.kept)
        rates = np.repeat(rate_of_each, sizes).astype(np.float32)
        warmup = n_steps(recipe.warmup_epochs, self.sampling_rate)
        last = self.steps + len(self.heads)
        for begun in range(state.begun, last):
            # First the file, then the ledger, then the noise: whoever goes on from
            # either never asks for this step.
            file.write(state, begun + 1)
            if ledger is not None and entry is not None:
                ledger.begin_step(entry, begun)
            state.begun = begun + 1
            step = begun - bool(self.heads)
            if not 0 <= step < self.steps:
                model = self.heads[step >= 0]
                records.fit_head(model, self.gradients, str(self.head), state.values)
                state.values = self._with_head(model, state.values)
                continue
            total = measure("gradients", weights=state.values)
            # The sum is in steps of rounding; divided by a public number, since how
            # many took part is private.
            gradient = np.zeros(len(state.values))
            gradient[: len(total)] = total * (recipe.clip / RADIUS / recipe.batch_size)
            state.velocity = (recipe.momentum * state.velocity + gradient).astype(
                np.float32
            )
            # The rate warms up linearly, and falls as a cosine over all steps.
            warm = min(1.0, (step + 1) / warmup) if warmup else 1.0
            rate = warm * (1 + math.cos(math.pi * step / self.steps)) / 2
            state.values = state.values - np.float32(rate) * rates * state.velocity
            if recipe.keep_filters:
                state.values = keep_filters(self.module, self.kept, state.values)
            progress(step + 1)
        file.write(state, last)

    def _with_head(
        self, model: Any, values: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return trained weights with the head that scores as a model of features does."""
        module = deepcopy(self.module)
        set_weights(module, self.kept, values)
        set_head(module.get_submodule(self.head), model)
        return weights_of(module, self.kept)

    def _described(self) -> dict[str, Any]:
        """Return the public parameters, JSON-ready, without the seed."""
        schedule = {"steps": self.steps, "sampling_rate": self.sampling_rate}
        return {"budget": self.budget.to_dict(), **schedule, **asdict(self.recipe)}

    def _public(self) -> dict[str, Any]:
        """Return all public values that decide a training but its noise, by their names for people."""
        # Digests take the place of what is long.
        places = {
            name: None if p is None else p.tolist()
            for name, p in self.selection.items()
        }
        return {
            **self._described(),
            "head": self.head,
            "selection of weights": sha256(
                json.dumps(places, sort_keys=True).encode()
            ).hexdigest(),
            "shape of a record": list(self.shape),
            "kind of records": "integers" if self.integral else "numbers",
            "module": module_digest(self.module),
            "kind of randomness": "the system's"
            if self.random_state is None
            else "seeded",
        }


def _refuse_overtaken(state: State, begun: int | None) -> None:
    """Refuse a state that another run has overtaken, by the steps of which the ledger knows."""
    if begun is not None and begun > state.begun:
        raise InputError(
            f"the ledger knows of {begun} steps of this run, and the checkpoint of {state.begun}: another run went on "
            "from a copy of it. Go on from the latest one, or remove this one to begin a new run, which pays again."
        )
