"""With the same noise, neighbours' releases differ by no more than the stated sensitivity, and by nothing else."""

import contextlib
import io
import logging
import warnings
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dppl import ZCDP, MeanPrototypes, PublicPrototypes, PureDP
from dppl.lattice import Lattice, utilities
from dppl.mechanisms import DiscreteGaussian, ExponentialMechanism
from dppl.prototypes.model_file import to_bytes

CLASSES = ["a", "b", "c"]
DIM = 6

values = st.one_of(
    st.floats(-2, 2),
    st.sampled_from([0.0, 1e-320, 1e300, -1e300, np.nan, np.inf, -np.inf]),
)
records = st.integers(0, 8).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, (n, DIM), elements=values),
        st.lists(st.sampled_from(CLASSES), min_size=n, max_size=n),
        hnp.arrays(np.float64, DIM, elements=values),
        st.sampled_from(CLASSES),
    )
)


def fit_pair(make, case, **fit_options):
    """Fit on the records with and without one more, with the same seed."""
    X, y, row, label = case
    with_row = np.concatenate([X, row[None]]), [*y, label]
    return [make().fit(*data, **fit_options) for data in (with_row, (X, y))]


def released_difference(first, second):
    lattice = first.lattice_
    return np.rint((first.prototypes_ - second.prototypes_) * lattice.scale).astype(int)


@given(records)
@settings(max_examples=150)
def test_sums_of_neighbours_differ_by_one_row(case):
    for options in ({}, {"pool": 2}, {"rotation": 3}, {"center": np.full(DIM, 0.1)}):
        first, second = fit_pair(partial(MeanPrototypes, ZCDP(1.0), CLASSES, random_state=0, **options), case)
        difference = released_difference(first, second)
        assert Fraction(int((difference**2).sum())) <= first.lattice_.squared_norm
        assert np.count_nonzero(difference.any(axis=1)) <= 1


@given(records)
@settings(max_examples=100)
def test_sums_under_replace_one_differ_by_two_rows(case):
    """The sums behind the means: lattice sums times the sensitivity stated for a replacement."""
    X, y, row, label = case
    if not len(X):
        return
    replaced = X.copy()
    replaced[0] = row
    first, second = (
        MeanPrototypes(ZCDP(1.0), CLASSES, random_state=0).fit(*data) for data in ((X, y), (replaced, [label, *y[1:]]))
    )
    difference = released_difference(first, second)
    assert Fraction(int((difference**2).sum())) <= 4 * first.lattice_.squared_norm


def test_the_neighbour_test_notices_unclipped_rows(monkeypatch):
    monkeypatch.setattr(Lattice, "transform", lambda self, X: np.rint(np.asarray(X) * 100).astype(np.int8))
    case = np.zeros((0, DIM)), [], np.full(DIM, 1.2), "a"
    with pytest.raises(AssertionError):
        test_sums_of_neighbours_differ_by_one_row.hypothesis.inner_test(case)


@given(records, st.sampled_from([(0.0, 2.0), (0.7, 1.6), (1.2, 1.3)]))
@settings(max_examples=150)
def test_utilities_of_neighbours_grow_by_the_stated_sensitivity(case, clip):
    X, y, row, label = case
    public = np.random.default_rng(0).normal(size=(7, DIM))
    lattice = Lattice(DIM)
    model = PublicPrototypes(PureDP(1.0), CLASSES, clip=clip, random_state=0).fit(X, y, X_public=public)
    bounds = model._similarity_clip()

    def scores(X, y):
        y = np.array(y, dtype="<U1")
        private = [lattice.transform(X[y == c]) for c in CLASSES]
        return utilities(private, lattice.blocks(public, 3), len(public), lattice, bounds)

    growth = scores(np.concatenate([X, row[None]]), [*y, label]) - scores(X, y)
    assert growth.min() >= 0
    assert growth.max() <= bounds.sensitivity == model.guarantee_.releases[0].sensitivity
    assert np.count_nonzero(growth.any(axis=1)) <= 1


@given(records)
@settings(max_examples=50)
def test_everything_but_the_released_values_is_equal(case):
    """Shapes, sizes of files, guarantees, warnings, output and log records of neighbours."""
    public = np.random.default_rng(0).normal(size=(9, DIM))
    for make in (
        lambda: MeanPrototypes(ZCDP(1.0), CLASSES, random_state=0),
        lambda: PublicPrototypes(PureDP(1.0), CLASSES, 2, random_state=0),
    ):
        seen = []
        X, y, row, label = case
        for data in ((np.concatenate([X, row[None]]), [*y, label]), (X, y)):
            output, log = io.StringIO(), io.StringIO()
            handler = logging.StreamHandler(log)
            logging.getLogger().addHandler(handler)
            with (
                contextlib.redirect_stdout(output),
                contextlib.redirect_stderr(output),
                warnings.catch_warnings(record=True) as caught,
            ):
                warnings.simplefilter("always")
                model = make().fit(*data, X_public=public)
            logging.getLogger().removeHandler(handler)
            content = to_bytes(model)
            attributes = {k: getattr(v, "shape", None) for k, v in vars(model).items()}
            seen.append(
                (
                    attributes,
                    len(content),
                    str(model.guarantee_),
                    output.getvalue(),
                    log.getvalue(),
                    [str(w.message) for w in caught],
                )
            )
        assert seen[0] == seen[1]
        assert seen[0][3:] == ("", "", [])


def test_the_mechanism_is_planned_before_any_record_is_read(monkeypatch):
    """Noise and selection parameters are the same whatever the data, or even without any."""
    rng = np.random.default_rng(0)
    public = rng.normal(size=(9, DIM))
    plans = []
    for cls, name in ((DiscreteGaussian, "release"), (ExponentialMechanism, "select")):
        original = getattr(cls, name)

        def spy(self, *arguments, original=original):
            plans.append(self)
            return original(self, *arguments)

        monkeypatch.setattr(cls, name, spy)
    for n in (0, 1, 50):
        X, y = rng.normal(size=(n, DIM)) * 1000, rng.choice(CLASSES, n)
        MeanPrototypes(ZCDP(1.0), CLASSES).fit(X, y)
        PublicPrototypes(PureDP(1.0), CLASSES).fit(X, y, X_public=public)
    assert len(set(plans)) == 2
