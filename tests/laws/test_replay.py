"""With the same noise, neighbours' releases differ by no more than the stated sensitivity, and by nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dppl import GaussianDP, MeanPrototypes
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.similarities import SimilarityClip
from dppl.kernel.mechanisms import CoinPress, ExponentialMechanism, RoundedGaussian
from inside import behind, paid_for
from laws.recipes import (
    BY_NAME,
    CHARGED,
    CLASSES,
    DIM,
    FIRST_CHARGED,
    SHARED_CHARGED,
    WIDE,
    cases,
    each,
    lattice_table,
    neighbours,
)
from laws.replay import clip_nothing, compare, lone, replay

pytestmark = pytest.mark.slow
BY_COINPRESS = [kind for kind in CHARGED if "coinpress" in kind.variant]


@each()
def test_records_of_all_kinds_can_be_replaced(kind):
    """Where class sizes are public a record keeps its class; elsewhere it may change it."""
    assert kind.relabels == (
        kind.entry.name != "MeanPrototypes" or kind.adjacency == "add-remove"
    )


@each(CHARGED)
@given(data=st.data())
@settings(max_examples=8)
def test_with_the_same_noise_neighbours_differ_by_the_stated_sensitivity(kind, data):
    # A strong budget lets a gradient method be sure of its classes, so that residuals
    # are long.
    budgets = [None] if kind in BY_COINPRESS else [None, *kind.budgets, GaussianDP(1e3)]
    budget = data.draw(st.sampled_from(budgets))
    seed = data.draw(st.integers(0, 2**32))
    replay(kind, data.draw(cases(kind.dim)), budget, seed)


def replay_lattice_rows(kind, X, y, row, label, seed=0):
    more, fewer = neighbours((X, y, row, label), kind)
    compare(
        kind,
        *((lattice_table(rows), labels, {}) for rows, labels in (more, fewer)),
        seed=seed,
    )


@each(SHARED_CHARGED)
@given(data=st.data())
@settings(max_examples=6)
def test_lattice_rows_are_not_believed(kind, data):
    """Whatever bytes a file holds that says its rows are lattice rows, a record moves what the statement says."""
    some = hnp.arrays(
        np.int8, kind.dim, elements=st.sampled_from([-128, -127, -60, 0, 1, 60, 127])
    )
    y = data.draw(st.lists(st.sampled_from(CLASSES), max_size=4))
    X = np.array([data.draw(some) for _ in y], np.int8).reshape(len(y), kind.dim)
    label = data.draw(st.sampled_from([*CLASSES, "elsewhere"]))
    replay_lattice_rows(
        kind, X, y, data.draw(some), label, data.draw(st.integers(0, 2**32))
    )


def test_lattice_rows_that_are_believed_are_noticed(monkeypatch):
    kind = BY_NAME["MeanPrototypes add-remove"]
    case = np.zeros((0, kind.dim), np.int8), [], np.full(kind.dim, 127, np.int8), "a"
    replay_lattice_rows(kind, *case)
    monkeypatch.setattr(Lattice, "_bounded", lambda self, rows: rows)
    with pytest.raises(AssertionError):
        replay_lattice_rows(kind, *case)


# Planted faults


def count_into_the_model(patch, kind):
    """Go around the mechanisms."""
    whole = kind.cls.learn

    def learn(self, measure, setting):
        whole(self, measure, setting)
        name = next(
            name
            for name in ("public_indices_", "coef_", "prototypes_")
            if name in vars(self)
        )
        setattr(
            self,
            name,
            getattr(self, name)
            + np.count_nonzero(np.asarray(behind(measure).records.rows)),
        )

    patch.setattr(kind.cls, "learn", learn)


@each(FIRST_CHARGED)
def test_the_replay_notices_a_count_in_the_model(kind, monkeypatch):
    case = np.ones((2, kind.dim)), ["a", "a"], np.eye(kind.dim)[0], "a"
    replay(kind, case)
    count_into_the_model(monkeypatch, kind)
    with pytest.raises(AssertionError):
        replay(kind, case)


def plan_for_one_row(patch):
    """Calibrate noise for a record that leaves, where one is replaced."""
    whole = RoundedGaussian.within.__func__
    half = classmethod(
        lambda cls, budget, squared, times=1: whole(cls, budget, squared / 4, times)
    )
    patch.setattr(RoundedGaussian, "within", half)


def halve_the_growth(patch):
    patch.setattr(
        SimilarityClip,
        "sensitivity",
        property(lambda self: (self.high - self.low) // 2),
    )


def select_for_one(patch):
    """Forget that a replaced record may leave one selection and enter another."""
    whole = ExponentialMechanism.within.__func__
    sharp = classmethod(lambda cls, *arguments, adjacency: whole(cls, *arguments))
    patch.setattr(ExponentialMechanism, "within", sharp)


def divide_by_counts(patch):
    whole = MeanPrototypes.learn

    def learn(self, measure, setting):
        whole(self, measure, setting)
        codes = behind(measure).records.codes
        sizes = np.bincount(codes[codes >= 0], minlength=len(self.classes_))
        self.prototypes_ = self.prototypes_ / np.maximum(sizes, 1)[:, None]

    patch.setattr(MeanPrototypes, "learn", learn)


def scale_the_noise_by_the_count(patch):
    whole = MeanPrototypes.learn

    def learn(self, measure, setting):
        paid = paid_for(measure)["sums"]
        wider = replace(
            paid.mechanism,
            noise_std=paid.mechanism.noise_std * len(behind(measure).records.codes),
        )
        measure._paid = {**paid_for(measure), "sums": replace(paid, mechanism=wider)}
        whole(self, measure, setting)

    patch.setattr(MeanPrototypes, "learn", learn)


def add_the_exact_sum(patch):
    """Go around the steps of CoinPress."""
    whole = CoinPress.release

    def release(self, rows, lattice, source):
        return whole(self, rows, lattice, source) + rows.sum(axis=0)

    patch.setattr(CoinPress, "release", release)


def pay_for_one_step(patch):
    whole = RoundedGaussian.within.__func__

    def within(cls, budget, squared_sensitivity, times=1):
        return replace(whole(cls, budget, squared_sensitivity), times=times)

    patch.setattr(RoundedGaussian, "within", classmethod(within))


EAST = np.eye(DIM)[0]
OPPOSITE = -EAST[None], ["a"], EAST, "a"
FULL = np.ones((1, WIDE)), ["a"], np.full(WIDE, -1.0), "a"  # a row becomes its opposite
FEW = np.ones((2, DIM)), ["a", "a"], EAST, "a"
PUBLIC = BY_NAME["PublicPrototypes add-remove"].public
# Of rows in the encoder's own coordinates, which CoinPress clips to a ball and
# selections to a range; votes do not depend on the length of a row.
VOTES = ["PrivateNeighbours", "TeacherEnsemble"]
SELECTING = ["PublicPrototypes", "PublishedTopK", "of small classes"]
OF_SUMS = [
    kind
    for kind in CHARGED
    if not {kind.variant, kind.entry.name} & {"mapped", *SELECTING, *VOTES}
]
OF_SUMS = [kind for kind in OF_SUMS if kind not in BY_COINPRESS]
DESCENTS = [
    "LinearProbe",
    "GlobalAdapt",
    "AdaMix",
    "FeatureCovariance",
    "Newton",
    "SoftmaxPrototypes",
]
DESCENTS += ["ProjectedPrototypes"]
FAULTS = [
    *((clip_nothing, str(kind), lone(kind.dim)) for kind in OF_SUMS),
    *(
        (plan_for_one_row, str(kind), OPPOSITE)
        for kind in OF_SUMS
        if kind.adjacency == "replace-one"
    ),
    *((pay_for_one_step, f"{name} add-remove", OPPOSITE) for name in DESCENTS),
    (divide_by_counts, "MeanPrototypes add-remove", FEW),
    (scale_the_noise_by_the_count, "MeanPrototypes add-remove", FEW),
    (add_the_exact_sum, "MeanPrototypes coinpress replace-one", FULL),
    (
        halve_the_growth,
        "PublicPrototypes add-remove",
        (np.zeros((0, DIM)), [], PUBLIC[0], "a"),
    ),
    (
        select_for_one,
        "PublicPrototypes replace-one",
        (PUBLIC[:1].copy(), ["a"], PUBLIC[1], "b"),
    ),
]


@pytest.mark.parametrize(("fault", "name", "case"), FAULTS)
def test_the_replay_notices(fault, name, case, monkeypatch):
    replay(BY_NAME[name], case)
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        replay(BY_NAME[name], case)
