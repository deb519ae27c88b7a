"""Records whose row cannot be used: left out with their label, or zero rows where the number of records is public."""

import numpy as np
import pytest

import dppl
from dppl.errors import UnknownLabelError
from dppl.kernel import reading
from laws.recipes import FIRST, KINDS, SHARED, Table, each
from laws.replay import watched
from laws.streams import FIRST_OF_TASKS

VALUES = np.array([np.nan, np.inf, -np.inf, 0.0])
LEFT_OUT = [kind for kind in SHARED if kind.adjacency == "add-remove"]
# The sample of a sampled one is drawn for all records, whether they can be used or not.
UNSAMPLED = [kind for kind in LEFT_OUT if not kind.recipe.sampled]
SAMPLED = [kind for kind in LEFT_OUT if kind.recipe.sampled]
KEPT = [kind for kind in SHARED if kind.adjacency == "replace-one"]


def unusable(kind, value, n=1):
    """Return rows of which one number cannot be used, or all are zero."""
    rows = np.zeros((n, kind.dim)) if value == 0 else kind.records(n, seed=8)[0]
    rows[:, -1] = value
    return rows


def among(kind, X, y, value):
    """Put records that cannot be used before, among and after the others; some have a label that is no class."""
    odd = unusable(kind, value, 4)
    return np.concatenate([odd[:1], X[:5], odd[1:3], X[5:], odd[3:]]), [
        y[0],
        *y[:5],
        y[-1],
        "elsewhere",
        *y[5:],
        y[0],
    ]


def check_left_out(kind, wrapped=np.asarray):
    X, y = kind.records()
    expected = kind.fit(X, y).to_bytes()
    assert kind.fit(X[:-1], y[:-1]).to_bytes() != expected
    for value in VALUES:
        rows, labels = among(kind, X, y, value)
        assert kind.fit(wrapped(rows), labels).to_bytes() == expected
    nothing = kind.fit(X[:0], y[:0]).to_bytes()
    assert kind.fit(wrapped(unusable(kind, np.nan, len(y))), y).to_bytes() == nothing


@each(UNSAMPLED)
def test_a_record_that_cannot_be_used_is_one_that_was_never_there(kind):
    check_left_out(kind)


@each(UNSAMPLED)
def test_so_it_is_in_a_table_that_streams(kind):
    check_left_out(kind, Table)


@each(UNSAMPLED)
def test_one_that_counts_is_noticed(kind, monkeypatch):
    """As a zero row it may add nothing to sums, but it is a record of its class."""
    monkeypatch.setattr(
        reading, "usable_rows", lambda rows: np.ones(rows.shape[0], bool)
    )
    with pytest.raises((AssertionError, UnknownLabelError)):
        check_left_out(kind)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.longdouble, np.int8, np.int64, bool]
)
def test_what_cannot_be_used_is_so_in_every_dtype(dtype):
    kind = FIRST[0]
    X, y = kind.records()
    X = (X * 20).astype(dtype)
    values = [0] if np.dtype(dtype).kind in "iub" else VALUES.tolist()
    if dtype is np.longdouble and np.finfo(dtype).max > np.finfo(np.float64).max:
        values.append(np.longdouble(2) ** 2000)  # no float64
    for value in values:
        rows = X.copy()
        rows[3] = value
        assert (
            kind.fit(rows, y).to_bytes()
            == kind.fit(np.delete(X, 3, axis=0), np.delete(y, 3)).to_bytes()
        )


def test_the_smallest_number_is_a_direction():
    kind = FIRST[0]
    X, y = kind.records()
    X[3] = np.eye(kind.dim)[0] * 5e-324
    same = X.copy()
    same[3] = np.eye(kind.dim)[0]
    assert kind.fit(X, y).to_bytes() == kind.fit(same, y).to_bytes()


def test_another_label_outside_the_classes_still_stops_the_fit():
    kind = FIRST[0]
    X, y = kind.records()
    rows, labels = among(kind, X, y, np.nan)
    with pytest.raises(UnknownLabelError):
        kind.fit(rows, [*labels[:-2], "elsewhere", labels[-1]])


@each(SAMPLED)
def test_samples_of_records_that_cannot_be_used_sum_to_nothing(kind):
    X, y = kind.records()
    for rows, any_sum in ((X, True), (unusable(kind, np.inf, len(X)), False)):
        with watched() as uses:
            kind.fit(rows, y)
        assert any(exact.any() for _, exact, _ in uses) == any_sum


@each(KEPT)
def test_under_replace_one_it_is_a_row_of_zeros(kind):
    """The number of records is public there, and must not change with one of them."""
    X, y = kind.records()
    zero = X.copy()
    zero[4] = 0
    with watched() as uses:
        expected = kind.fit(zero, y).to_bytes()
    with watched() as others:
        kind.fit(X, y)
    assert any(
        (one[1] != other[1]).any() for one, other in zip(uses, others, strict=True)
    )
    for value in VALUES:
        rows = X.copy()
        rows[4, -1] = value
        if value != 0:
            assert kind.fit(rows, y).to_bytes() == expected
    with pytest.raises(UnknownLabelError):
        kind.fit(zero, [*y[:4], "elsewhere", *y[5:]])


@each(FIRST_OF_TASKS)
def test_in_a_task_it_is_left_out_too(kind):
    X, y = kind.records()
    models = []
    for rows, labels in ((X, y), among(kind, X, y, np.nan)):
        model = kind.make().partial_fit(X, y)
        if kind.cls.takes_earlier_records:
            rows = np.concatenate([X, rows])
            labels = [*y, *labels]
        models.append(model.partial_fit(rows, labels))
    assert models[0].to_bytes() == models[1].to_bytes()


@pytest.mark.parametrize("scoring", ["accuracy", "balanced"])
def test_a_search_scores_nothing_that_cannot_be_used(scoring):
    kind = next(
        kind
        for kind in KINDS
        if kind.entry.name == "MeanPrototypes" and kind.adjacency == "add-remove"
    )
    X, y = kind.records(60)
    for rows, any_count in ((X, True), (unusable(kind, np.nan, len(X)), False)):
        search = dppl.PrivateSearch(
            kind.make(dppl.ApproxDP(5.0, 1e-5), random_state=None),
            {"lattice__pool": [1, 2]},
            scoring=scoring,
            random_state=0,
        )
        with watched() as uses:
            search.fit(rows, y)
        assert any(exact.any() for _, exact, _ in uses) == any_count
