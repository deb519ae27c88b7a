"""A record that leaves moves its own outcome alone, whatever a classifier makes of its block or remembers.

The exact tables of neighbours are compared, in the noise that hides them: this is the
mu that one record realises.
"""

import signal
import threading
from contextlib import nullcontext, suppress
from copy import deepcopy
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from io import StringIO
from pickle import dumps, loads
from traceback import format_exception
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import dppl
from dppl import GaussianDP, Ledger
from dppl.errors import InputError, ParameterError
from dppl.prediction import one_record
from dppl.prediction.one_record import EXACT, FRESH, SEEN
from dppl.prediction.pending import pending
from dppl.statement.words import text
from laws.replay import watched

N = 60
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(N, 3))
LABELS = np.where(ROWS[:, 0] > 0, "b", "a")
BUDGET = GaussianDP(1.0)


def exact_tables(model, X, y):
    """Return each exact table of an evaluation, with the noise that hides it."""
    with watched() as uses:
        dppl.evaluate(model, X, y, BUDGET, random_state=0)
    assert all(exact.any() for _, exact, _ in uses[:1])  # something is counted
    return [(Fraction(mechanism.noise_std), exact) for mechanism, exact, _ in uses]


def without(X, place):
    if isinstance(X, list):
        return X[:place] + X[place + 1 :]
    keep = np.delete(np.arange(N), place)
    return X.iloc[keep].reset_index(drop=True) if hasattr(X, "iloc") else X[keep]


def realised(model, X, form=lambda X: X):
    """Return the square of the largest mu that one of a few records realises, in the `form` of a table that X has."""
    whole = exact_tables(model, form(X), LABELS)
    costs = []
    for place in (0, 1, N // 2, N - 1):
        fewer = exact_tables(model, form(without(X, place)), np.delete(LABELS, place))
        costs.append(
            sum(
                int(np.square(one - other).sum()) / noise**2
                for (noise, one), (_, other) in zip(whole, fewer, strict=True)
            )
        )
    return max(costs)


class Says:
    """Gives labels only."""

    classes_ = np.array(["a", "b"])

    def predict(self, X):
        return self.classes_[self.scores(X).ravel().astype(int)]


class Rounds(Says):
    """Adds the numbers of a row in an order that depends on its place, as a matrix product does."""

    def scores(self, X):
        return np.array(
            [sum(row[:: 1 - 2 * (place % 2)]) > 0 for place, row in enumerate(X)]
        )


class RemembersMean(Says):
    def __init__(self):
        self.total = 0.0
        self.n = 0

    def scores(self, X):
        self.total += X[:, 0].sum()
        self.n += len(X)
        return X[:, 0] > self.total / self.n


class RemembersWithin(RemembersMean):
    """Remembers in an object that it holds, and not in itself."""

    def __init__(self):
        self.held = {"seen": [0]}

    def scores(self, X):
        self.held["seen"][0] += len(X)
        return (X[:, 0] > 0) ^ (self.held["seen"][0] % 3 == 0)


class RemembersOdd(Says):
    """Remembers only rows of a kind that no public row has."""

    flipped = False

    def scores(self, X):
        self.flipped ^= bool((np.round(X[:, 0], 9) == np.round(ROWS[0, 0], 9)).any())
        return (X[:, 0] > 0) ^ self.flipped


class Compares(Says):
    """Raises if two rows are alike."""

    def scores(self, X):
        if len(np.unique(X, axis=0)) < len(X):
            raise ValueError("rows are alike")
        return X[:, 0] > 0


class Remembers(Says):
    """Raises at a row that it has seen before."""

    def __init__(self):
        self.seen = set()

    def scores(self, X):
        for row in X:
            if row.tobytes() in self.seen:
                raise ValueError("seen before")
            self.seen.add(row.tobytes())
        return X[:, 0] > 0


class Looks(Says):
    """Looks at the table that its rows are part of."""

    def scores(self, X):
        return (X[:, 0] > 0) ^ (X.base is not None and len(X.base) % 2 == 0)


class Writes(Says):
    """Writes into the rows around those that it was given."""

    def scores(self, X):
        said = X[:, 0] > 0
        around = X if X.base is None else X.base
        around[:] = -around
        return said


class ReadsIndex(Says):
    def scores(self, X):
        return np.asarray(X.index % 2, int)


class Probabilities(RemembersWithin):
    def predict_proba(self, X):
        second = 0.2 + 0.6 * self.scores(X)
        return np.column_stack([1 - second, second])


def counted_in_a_step():
    """Return a pipeline whose first step counts rows."""

    class Counts:
        def __init__(self):
            self.n = 0

        def __call__(self, X):
            self.n += len(X)
            return X * (1 if self.n % 3 else -1)

    model = make_pipeline(FunctionTransformer(Counts()), LogisticRegression())
    return model.fit(ROWS[:51], LABELS[:51])


ABSORBED = np.tile([1.0, 1e16, -1e16], (N, 1))  # 0 or 1, by the order of addition
TWICE = np.vstack([ROWS[:1], ROWS[:-1]])  # the first two rows are alike
HOSTILE = [
    (Rounds, ABSORBED),
    (RemembersMean, ROWS),
    (RemembersWithin, ROWS),
    (RemembersOdd, ROWS),
    (Compares, TWICE),
    (Remembers, TWICE),
    (Looks, ROWS),
    (Writes, ROWS),
    (ReadsIndex, pd.DataFrame(ROWS)),
    (Probabilities, ROWS),
    (counted_in_a_step, ROWS),
]


@pytest.mark.parametrize(("make", "X"), HOSTILE)
def test_a_record_realises_no_more_than_is_claimed(make, X):
    assert realised(make(), X.copy()) <= BUDGET.mu**2


def ask_as_it_is(model, ask, rows, seed=0):
    """Ask the classifier itself about the rows themselves."""
    try:
        return ask(model, rows)
    except Exception:
        return None


def in_a_block(model, ask, rows, miss, seed=0):
    found = ask_as_it_is(model, ask, rows)
    n = len(rows)
    return found or one_record.Guesses(np.repeat(miss.predicted, n))


@pytest.mark.parametrize(("make", "X"), HOSTILE)
def test_without_the_rules_it_realises_more(make, X, monkeypatch):
    monkeypatch.setattr(one_record, "_tried", lambda _, asks, *__: (asks[0], SEEN))
    monkeypatch.setattr(one_record, "_asked", ask_as_it_is)
    monkeypatch.setattr(one_record, "rebuilt", lambda rows, _: rows)
    if make in (Rounds, Compares, ReadsIndex):
        monkeypatch.setattr(one_record, "_one_by_one", in_a_block)
    assert realised(make(), X.copy()) > 4 * BUDGET.mu**2


class ReadsType(Says):
    """Looks at what the form of a table says of its other records."""

    def __init__(self, look):
        self.look = look

    def scores(self, X):
        return np.array([bool(self.look(X))])


def columns(X):
    """Return a frame of values, and of the same again: as other objects if one is long."""
    again = X if "long" not in X else [loads(dumps(one)) for one in X]
    return pd.DataFrame({"a": X, "b": again}, dtype=object)


def everyone(X):
    records = []
    records += [{"value": value, "all": records} for value in X]
    return records


SECOND, MINUTE = np.datetime64("2024-01-01T00:00:01"), np.datetime64("2024-01-01T00:01")
TEXTS = ["long", *["txt"] * (N - 1)]
FORMS = {
    "categories": (
        TEXTS,
        lambda X: pd.DataFrame({"a": pd.Categorical(X)}),
        lambda X: len(X["a"].cat.categories) == 2,
    ),
    "a column of categories": (
        TEXTS,
        lambda X: pd.Series(X, dtype="category"),
        lambda X: len(X.cat.categories) == 2,
    ),
    "width of texts": (TEXTS, np.array, lambda X: X.dtype.itemsize == 16),
    "texts that cells share": (
        TEXTS,
        columns,
        lambda X: X.iloc[0, 0] is X.iloc[0, 1],
    ),
    "a UUID that cells share": (
        ["long", *[UUID(int=5)] * (N - 1)],
        columns,
        lambda X: X.iloc[0, 0] is X.iloc[0, 1],
    ),
    "a year that Python has not": (
        ["a text", *[np.datetime64("20000-01-01")] * (N - 1)],
        lambda X: pd.DataFrame({"a": X}),
        lambda X: isinstance(X.iloc[0, 0], pd.Timestamp),
    ),
    "a masked number": (
        [None, *[np.ma.masked] * (N - 1)],
        lambda X: np.array(X if None in X else [np.nan] * len(X))[:, None],
        lambda X: X.dtype.kind == "f",
    ),
    "a missing number": (
        [None, *range(N - 1)],
        lambda X: pd.DataFrame({"a": X}),
        lambda X: "." in str(X.iloc[0, 0]),
    ),
    "a fraction": (
        [0.5, *range(N - 1)],
        lambda X: np.array(X)[:, None],
        lambda X: X.dtype.kind == "f",
    ),
    "a fraction among categories": (
        [0.5, *range(N - 1)],
        lambda X: pd.DataFrame({"a": pd.Categorical(X)}),
        lambda X: "." in str(X.iloc[0, 0]),
    ),
    "an integer of many bits": (
        [2**40, *range(N - 1)],
        lambda X: np.array(X, np.min_scalar_type(max(X)))[:, None],
        lambda X: X.dtype.itemsize == 8,
    ),
    "a time among dates": (
        [SECOND, *[SECOND.astype("M8[D]")] * (N - 1)],
        lambda X: np.array(X).astype(object),
        lambda X: isinstance(X[0], datetime),
    ),
    "the hour when clocks go back": (
        ["a text", *[datetime(2024, 10, 27, 2, 30, fold=1)] * (N - 1)],
        lambda X: pd.DataFrame({"a": X}),
        lambda X: getattr(X.iloc[0, 0], "fold", 0),
    ),
    "the precision of numbers": (
        [1e300, *range(1, N)],
        lambda X: pd.to_numeric(pd.Series(X), downcast="float").to_numpy()[:, None],
        lambda X: X.dtype == np.float64,
    ),
    "numbers that are longer than Python's": (
        [None, *np.arange(1, N, dtype=np.longdouble)],
        lambda X: np.array(X)[:, None],
        lambda X: X.dtype == object,
    ),
    "zeros below zero": (
        ["1.5", *["-0"] * (N - 1)],
        lambda X: pd.read_csv(StringIO("\n".join(["a", *X]))),
        lambda X: np.signbit(X.iloc[0, 0]),
    ),
    "zeros in a block of a sparse matrix": (
        [[1.0, 1.0], *[[1.0, 0.0]] * (N - 1)],
        lambda X: scipy.sparse.bsr_matrix(
            np.array(X + [[0.0, 0.0]] * (N - len(X))), blocksize=(N, 1)
        ).tocsr()[: len(X)],
        lambda X: X.nnz == 2,
    ),
    "the unit of times in a frame": (
        [SECOND, *[MINUTE] * (N - 1)],
        lambda X: pd.DataFrame(
            {"a": np.array(X, "M8[ns]" if SECOND in X else "M8[s]")}
        ).astype(object),
        lambda X: X.iloc[0, 0].unit == "ns",
    ),
    "attributes of a frame": (
        TEXTS,
        lambda X: pd.DataFrame({"a": X}).set_flags(
            allows_duplicate_labels="long" not in X
        ),
        lambda X: X.flags.allows_duplicate_labels,
    ),
    "what a missing value is": (
        [1, *[None] * (N - 1)],
        lambda X: pd.DataFrame({"a": pd.array(X, object if 1 in X else "string")}),
        lambda X: X.iloc[0, 0] is None,
    ),
    "an integer among objects": (
        [0.5, *range(1, N)],
        lambda X: pd.DataFrame({"a": X}).astype(object),
        lambda X: type(X.iloc[0, 0]) is int,
    ),
    "a text among numbers": (
        ["a", *range(N - 1)],
        lambda X: np.array(X, object if "a" in X else float)[:, None],
        lambda X: X.dtype.kind == "f",
    ),
    "an integer in a dictionary": (
        [0.5, *range(1, N)],
        lambda X: pd.DataFrame({"a": X}).to_dict("records"),
        lambda X: type(X[0]["a"]) is int,
    ),
    "the order of keys": (
        [{"b": 1, "a": 2}, *[{"a": 1, "b": 2}] * (N - 1)],
        lambda X: pd.DataFrame(X).to_dict("records"),
        lambda X: next(iter(X[0])) == "a",
    ),
    "a key of another record": (
        [{"b": 1}, *[{"a": 1}] * (N - 1)],
        lambda X: pd.DataFrame(X).to_dict("records"),
        lambda X: "b" in X[0],
    ),
    "the scale of a decimal": (
        ["1.55", *["1.5"] * (N - 1)],
        lambda X: (
            pd.Series(np.array(X, float))
            .map(lambda one: Decimal(f"{one:.{2 if '1.55' in X else 1}f}"))
            .to_frame()
        ),
        lambda X: "0" in str(X.iloc[0, 0]),
    ),
    "NULs at the end": (
        [None, *[b"a\0"] * (N - 1)],
        lambda X: list(np.array(X, object if None in X else None)),
        lambda X: len(X[0]) == 2,
    ),
    "truth values": (
        [np.nan, *[True] * (N - 1)],
        lambda X: np.array(X)[:, None],
        lambda X: X.dtype.kind == "f",
    ),
    "records that refer to all": (
        ROWS[:, 0].tolist(),
        everyone,
        lambda X: len(X[0].get("all", ())) % 2,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_of_a_table_says_nothing_of_other_records(name):
    records, form, look = FORMS[name]
    assert realised(ReadsType(look), records, form) <= BUDGET.mu**2


@pytest.mark.parametrize("name", FORMS)
def test_copied_as_it_is_the_form_of_a_table_says_more(name, monkeypatch):
    records, form, look = FORMS[name]
    monkeypatch.setattr(one_record, "rebuilt", lambda rows, _: deepcopy(rows))
    assert realised(ReadsType(look), records, form) > 4 * BUDGET.mu**2


CALLS = [0]


class CountsGlobally(Says):
    def scores(self, X):
        CALLS[0] += len(X)
        return (X[:, 0] > 0) ^ bool(CALLS[0] % 2)


class CountsInItsClass(Says):
    calls = 0

    def scores(self, X):
        type(self).calls += len(X)
        return (X[:, 0] > 0) ^ bool(type(self).calls % 3 == 0)


class MeansInItsClass(Says):
    total = 0.0

    def scores(self, X):
        type(self).total += X[:, 0].sum()
        return X[:, 0] > type(self).total


class Draws(Says):
    def scores(self, X):
        return np.random.random(len(X)) < 0.5  # noqa: NPY002


class Whole(Says):
    """Stays the same when it is copied."""

    def __deepcopy__(self, memo):
        return self


class Locked(Says):
    def __init__(self):
        self.lock = threading.Lock()

    def scores(self, X):
        return X[:, 0] > 0


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (CountsGlobally(), "whatever it was asked before"),
        (CountsInItsClass(), "whatever it was asked before"),
        (MeansInItsClass(), "whatever it was asked before"),
        (Draws(), "random_state"),
        (DummyClassifier(strategy="uniform").fit(ROWS, LABELS), "random_state"),
        (Locked(), "copy.deepcopy"),
        (Whole(), "copy.deepcopy"),
    ],
)
def test_what_shows_that_it_remembers_or_cannot_be_copied_is_refused_at_no_cost(
    model, what, tmp_path
):
    ledger = Ledger(tmp_path / "ledger.db", "wards", BUDGET)
    with pytest.raises(ParameterError, match=what) as caught:
        dppl.evaluate(model, ROWS, LABELS, BUDGET, ledger=ledger)
    assert caught.value.parameter == "model"
    assert ledger.releases() == []


def test_a_seeded_draw_is_one_of_each_record():
    model = DummyClassifier(strategy="uniform", random_state=0).fit(ROWS, LABELS)
    assert realised(model, ROWS) <= BUDGET.mu**2


@pytest.mark.parametrize("name", ["random", "numpy.random", "torch"])
def test_draws_that_the_caller_seeded_are_those_of_each_record(name, monkeypatch):
    module = pytest.importorskip(name)
    seed, draw = module.seed, getattr(module, "random", None)
    if name == "torch":
        seed, draw = module.manual_seed, lambda: module.rand(1).item()

    def seeded(X):
        seed(1)
        return pd.DataFrame(X)

    model = ReadsType(lambda _: draw() < 0.5)
    assert realised(model, ROWS, seeded) <= BUDGET.mu**2
    seed(1)
    list(pending(model, pd.DataFrame(ROWS)).guesses())
    drawn = draw()
    seed(1)
    assert drawn == draw()  # they go on as if nothing had been drawn
    monkeypatch.setattr(one_record, "_seeded", lambda _: nullcontext())
    assert realised(model, ROWS, seeded) > 4 * BUDGET.mu**2


class Single(Says):
    """Takes numbers of single precision only, as networks do."""

    def scores(self, X):
        if X.dtype != np.float32:
            raise TypeError("expected Float but found Double")
        return X[:, 0] > 0


@pytest.mark.parametrize("kind", [np.float64, np.float32, int, object])
def test_a_classifier_gets_the_precision_that_it_takes(kind):
    rows = (100 * ROWS).astype(kind)
    (some,) = pending(Single(), rows).guesses()
    assert some.predicted.tolist() == (rows[:, 0] > 0).astype(int).tolist()


class WritesAgain(Says):
    """Gives all of its probabilities in the same place."""

    held = np.zeros((1, 2))

    def scores(self, X):
        return X[:, 0] > 0

    def predict_proba(self, X):
        second = 0.2 + 0.6 * self.scores(X)
        self.__class__.held[:] = np.column_stack([1 - second, second])
        return self.held


def test_probabilities_are_copied():
    (some,) = pending(WritesAgain(), ROWS).guesses()
    assert (some.table[:, 1] > 0.5).tolist() == (ROWS[:, 0] > 0).tolist()


def test_what_is_not_known_is_assumed_in_words():
    assert pending(RemembersMean(), ROWS).assumption == SEEN
    assert pending(RemembersMean(), ROWS.tolist()).assumption == FRESH
    fresh, seen = (text(term) for term in (FRESH, SEEN))
    for words in (fresh, seen):
        assert "is assumed" in words
    assert "no violation was seen on public rows" in seen
    assert "public rows" not in fresh
    evaluation = dppl.evaluate(RemembersMean(), ROWS, LABELS, BUDGET)
    assert SEEN in evaluation.guarantee.assumptions
    assert seen in str(evaluation)


def test_the_classifier_and_the_records_stay_as_they_are():
    model = RemembersMean()
    dppl.evaluate(model, ROWS, LABELS, BUDGET)
    assert (model.total, model.n) == (0.0, 0)
    rows = ROWS.copy()
    dppl.evaluate(Writes(), rows, LABELS, BUDGET)
    assert (rows == ROWS).all()


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        GeneratorExit(),
        MemoryError(),
        RecursionError(),
        KeyboardInterrupt(),
    ],
)
def test_no_record_stops_a_run(error):
    class Stops(Says):
        def scores(self, X):
            if X[0, 0] == ROWS[5, 0]:
                raise error
            return X[:, 0] > 0

    (some,) = pending(Stops(), ROWS).guesses()
    assert np.flatnonzero(some.predicted < 0).tolist() == [5]


class Swallows(Says):
    """Asks for a signal, and goes on after it."""

    def __init__(self, number):
        self.number = number

    def scores(self, X):
        try:
            raise ValueError("row " + "17")
        except ValueError:
            with suppress(BaseException):
                signal.raise_signal(self.number)
        return np.array([True])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_even_if_a_classifier_goes_on(number):
    class Ended(KeyboardInterrupt):
        pass

    def end(*_):
        raise Ended

    before = signal.signal(number, end)
    try:
        with pytest.raises(Ended) as caught:
            list(pending(Swallows(number), ROWS.tolist()).guesses())
        assert "row 17" not in "".join(format_exception(caught.value))
        assert signal.getsignal(number) is end
    finally:
        signal.signal(number, before)


def test_a_block_of_ours_that_raises_is_scored_row_by_row(monkeypatch):
    model = dppl.MeanPrototypes(BUDGET, ["a", "b"]).fit(ROWS, LABELS)
    predictor = pending(model, ROWS)
    assert predictor.assumption == EXACT
    (whole,) = predictor.guesses()
    scores = one_record.Linear.scores
    sizes = []

    def short_of_memory(self, features):
        sizes.append(len(features))
        if len(features) > 1:
            raise MemoryError
        return scores(self, features)

    monkeypatch.setattr(one_record.Linear, "scores", short_of_memory)
    (alone,) = predictor.guesses()
    assert sizes == [N] + [1] * N
    assert (alone.predicted >= 0).all()
    assert alone.predicted.tobytes() == whole.predicted.tobytes()
    assert alone.table.tobytes() == whole.table.tobytes()


def test_rows_of_a_frame_are_taken_by_their_place():
    frame = pd.DataFrame(ROWS, index=np.arange(N)[::-1] + 0.5)
    model = LogisticRegression().fit(ROWS, LABELS)
    (some,) = pending(model, frame).guesses()
    assert (model.classes_[some.predicted] == model.predict(ROWS)).all()


def test_what_has_no_slices_is_refused_before_it_is_paid_for(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", BUDGET)
    with pytest.raises(InputError, match="got a dict"):
        dppl.evaluate(RemembersMean(), {0: [1.0]}, ["a"], BUDGET, ledger=ledger)
    assert ledger.releases() == []
