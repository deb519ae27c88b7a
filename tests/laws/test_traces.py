"""A fit leaves nothing behind that depends on a record but what its mechanisms released."""

import logging
import os
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dppl import ApproxDP, PrivateSearch
from inside import behind
from laws.recipes import BY_NAME, DIM, SHARED, WIDE, cases, each, neighbours
from laws.traces import traces

pytestmark = pytest.mark.slow


def traces_of(kind, X, y):
    return traces(partial(kind.fit, X, y, unknown_labels="ignore"))


@each(SHARED)
@given(data=st.data())
@settings(max_examples=10)
def test_everything_but_the_released_values_is_equal(kind, data):
    more, fewer = neighbours(data.draw(cases(kind.dim)), kind)
    assert traces_of(kind, *more) == traces_of(kind, *fewer)


def search(X, y):
    """Fit a search for a parameter of a kind."""
    kind = BY_NAME["MeanPrototypes add-remove"]
    searched = kind.make(
        ApproxDP(1.0, 1e-6), random_state=None, unknown_labels="ignore"
    )
    return PrivateSearch(
        searched, {"lattice__rotation": [1, 2]}, mean_runs=2, random_state=0
    ).fit(X, y)


@given(case=cases(DIM))
@settings(max_examples=10)
def test_and_of_a_search_as_well(case):
    more, fewer = neighbours(case, BY_NAME["MeanPrototypes add-remove"])
    assert traces(partial(search, *more)) == traces(partial(search, *fewer))


@pytest.mark.parametrize(
    "row",
    [
        np.frombuffer(b"\x00\x00\xa0\x7f" * WIDE, np.float32),
        np.full(WIDE, np.longdouble("1e4000")),
    ],
)
@each(SHARED)
def test_signalling_nan_and_numbers_beyond_float64_do_not_warn(kind, row):
    row = row[: kind.dim]
    X = np.ones((4, kind.dim), row.dtype)
    y = ["a", "b", "b", "c"]
    more, fewer = neighbours((X, y, row, "c"), kind)
    assert traces_of(kind, *more) == traces_of(kind, *fewer)
    if kind.variant == "" and kind.entry.name == "MeanPrototypes":
        assert traces(partial(search, *more)) == traces(partial(search, *fewer))


@each(SHARED)
def test_a_record_that_underflows_shows_nowhere(kind):
    """Whoever lets NumPy raise would else learn that there is such a record, and lose the charge."""
    X, y = kind.records()
    X[3] = [1, 1e-310, *X[3, 2:]]
    with np.errstate(all="raise"):
        kind.fit(X, y).predict(X)


@each(SHARED)
@pytest.mark.parametrize("scale", [2.0**-900, 2.0**20, 2.0**900])
def test_the_length_of_a_record_does_not_matter(kind, scale):
    X, y = kind.records()
    scaled = X.copy()
    scaled[0] *= scale
    assert kind.fit(scaled, y).to_bytes() == kind.fit(X, y).to_bytes()


# Planted faults


@each(SHARED)
def test_a_kept_sum_and_a_logged_count_are_noticed(kind, monkeypatch):
    X = np.ones((4, kind.dim))
    y = ["a"] * 4
    original = kind.cls.learn

    def keeping(self, measure, setting):
        self._exact = np.asarray(behind(measure).records.rows).sum(axis=0)
        return original(self, measure, setting)

    monkeypatch.setattr(kind.cls, "learn", keeping)
    assert traces_of(kind, X, y) != traces_of(kind, X[:3], y[:3])

    def logging_count(self, measure, setting):
        logging.getLogger("dppl").info("%d", len(behind(measure).records.codes))
        return original(self, measure, setting)

    monkeypatch.setattr(kind.cls, "learn", logging_count)
    with pytest.raises(AssertionError):
        traces_of(kind, X, y)

    def writing_count(self, measure, setting):
        os.write(2, b"%d" % len(behind(measure).records.codes))
        return original(self, measure, setting)

    monkeypatch.setattr(kind.cls, "learn", writing_count)
    with pytest.raises(AssertionError):
        traces_of(kind, X, y)


def test_a_kept_count_is_noticed(monkeypatch):
    kind = BY_NAME["SoftmaxPrototypes add-remove"]
    original = kind.cls.learn

    def keeping(self, measure, setting):
        self._count = len(behind(measure).records.codes)
        return original(self, measure, setting)

    monkeypatch.setattr(kind.cls, "learn", keeping)
    X, y = kind.records(90)
    assert traces_of(kind, X, y) != traces_of(kind, X[:9], y[:9])
