"""What is said of a record depends on it alone: not on its place, not on its neighbours, not on whether these fail."""

import ctypes
import logging
import os
import subprocess
import sys
import warnings
from datetime import datetime, timedelta
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from dppl import (
    ApproxDP,
    GaussianDP,
    MeanPrototypes,
    PrivateClassifier,
    PrivateSearch,
    PublicPrototypes,
    SoftmaxPrototypes,
)
from dppl.errors import InputError
from dppl.evaluation import AlreadyPredicted
from dppl.evaluation.already_predicted import predictions_of
from dppl.kernel.queries.outcomes import Guesses
from dppl.lab import ProjectedPrototypes
from dppl.prediction import muted, one_record
from dppl.prediction.one_record import EXACT, FRESH, GIVEN, SEEN, Linear
from dppl.prediction.pending import pending
from dppl.prediction.rebuilt import rebuilt
from laws.recipes import FIRST

RNG = np.random.default_rng(0)
CLASSES = ["a", "b", "c"]
Y = np.array(CLASSES)[np.arange(90) % 3]
X = RNG.normal(size=(90, 8)) + 2 * np.eye(3, 8)[np.arange(90) % 3]
MANY = np.tile(X, (30, 1))[:1100]  # more than a block


def said(model, rows):
    """Return what is said of all rows, in one table."""
    guesses = list(predictions_of(model, rows).guesses())
    tables = [one.table for one in guesses if one.table is not None]
    predicted = np.concatenate([one.predicted for one in guesses])
    return Guesses(predicted, np.concatenate(tables) if tables else None)


def bits(guesses, places):
    table = guesses.table
    return guesses.predicted[places].tobytes(), None if table is None else table[
        places
    ].tobytes()


def check_alone(model, rows=MANY):
    """Hold a model to the law: a row has the same bits alone, at other places, and next to rows that fail."""
    whole = said(model, rows)
    places = np.array([0, 5, 1023, 1024, 1030, len(rows) - 1])
    places = places[places < len(rows)]
    moved = said(model, np.roll(rows, 501, axis=0))
    assert bits(moved, (places + 501) % len(rows)) == bits(whole, places)
    others = np.full_like(rows, 7)
    others[::100], others[1::100], others[2::100] = np.nan, np.inf, 1e300
    others[places] = rows[places]
    assert bits(said(model, others), places) == bits(whole, places)
    for place in places[:2].tolist():
        assert bits(said(model, rows[place : place + 1]), [0]) == bits(whole, [place])
    return whole


MODELS = {
    "logistic regression": (lambda: LogisticRegression().fit(X, Y), SEEN),
    "a linear machine without probabilities": (lambda: LinearSVC().fit(X, Y), SEEN),
    "trees that take NaN": (
        lambda: HistGradientBoostingClassifier(max_iter=3).fit(X, Y),
        SEEN,
    ),
    "naive Bayes": (lambda: BernoulliNB().fit(X, Y), SEEN),
    "softmax prototypes": (
        lambda: SoftmaxPrototypes(GaussianDP(1), CLASSES).fit(X, Y),
        EXACT,
    ),
    "means": (lambda: MeanPrototypes(GaussianDP(1), CLASSES).fit(X, Y), EXACT),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_row_is_predicted_by_itself(name):
    made, how = MODELS[name]
    model = made()
    assert predictions_of(model, MANY).assumption == how
    rows = MANY if how == EXACT else X[:40]
    whole = check_alone(model, rows)
    names = model.classes_[whole.predicted]
    assert (names == model.predict(rows)).all()
    if whole.table is not None:
        assert whole.table == pytest.approx(model.predict_proba(rows), abs=1e-6)


@pytest.mark.parametrize("kind", FIRST[:3])
def test_scores_of_our_methods_are_exact_integers_in_any_order(kind):
    rows, labels = kind.records(30)
    linear = Linear.of(kind.fit(rows, labels))
    weights = linear.weights
    assert (weights == np.rint(weights)).all()
    # The bound: products of whole rows stay far below 2⁵³, so that no sum on the way is
    # rounded.
    assert np.sqrt(np.square(weights).sum(axis=0)).max() * 2**26 * (1 + 1e-6) < 2**53
    unit = kind.fit(rows, labels).lattice_.features(RNG.normal(size=(500, kind.dim)))
    scores = linear.scores(unit)
    order = RNG.permutation(kind.dim)
    turned = Linear(weights[order], linear.offsets, linear.unit).scores(
        np.ascontiguousarray(unit[:, order])
    )
    assert scores.tobytes() == turned.tobytes()


def test_a_method_that_is_not_linear_is_predicted_one_at_a_time():
    model = ProjectedPrototypes(GaussianDP(1), CLASSES, steps=2, n_components=2).fit(
        X, Y
    )
    assert Linear.of(model) is None
    assert predictions_of(model, MANY).assumption == SEEN
    assert (model.classes_[check_alone(model, X).predicted] == model.predict(X)).all()


class Centred:
    """Subtracts the mean of the batch, so that every row moves all others."""

    classes_ = np.array(CLASSES)

    def predict(self, rows):
        return self.classes_[(rows - rows.mean(axis=0))[:, :3].argmax(axis=1)]

    def predict_proba(self, rows):
        scores = np.exp((rows - rows.mean(axis=0))[:, :3])
        return scores / scores.sum(axis=1, keepdims=True)


def test_a_classifier_that_looks_at_other_rows_is_asked_about_one_at_a_time(
    monkeypatch,
):
    check_alone(Centred(), X)
    # The control: in blocks the law does not hold.
    monkeypatch.setattr(
        one_record,
        "_one_by_one",
        lambda model, ask, rows, *_, **__: ask(model, rows),
    )
    with pytest.raises(AssertionError):
        check_alone(Centred(), X)


def test_a_row_that_a_classifier_refuses_is_a_miss_and_stops_no_other():
    model = LogisticRegression().fit(X, Y)
    rows = X.copy()
    bad = [0, 7, 8, len(rows) - 1]
    rows[bad] = np.nan
    some = said(model, rows)
    clean = said(model, X)
    fine = np.setdiff1d(np.arange(len(rows)), bad)
    assert bits(some, fine) == bits(clean, fine)
    assert (some.predicted[bad] == -1).all()
    assert not some.table[bad].any()


def test_rows_without_a_direction_are_misses():
    model = SoftmaxPrototypes(GaussianDP(1), CLASSES).fit(X, Y)
    rows = X.copy()
    rows[[1, 4]] = np.nan
    rows[6] = 0
    whole = said(model, rows)
    assert np.flatnonzero(whole.predicted < 0).tolist() == [1, 4, 6]


class Loud(Centred):
    def predict(self, rows):
        warnings.warn(f"odd row {rows[0].tolist()}", UserWarning, stacklevel=1)
        print("one more record")
        print("one more record", file=sys.stderr)
        if (rows[:, 0] > 100).any():
            raise ValueError(f"could not use {rows.tolist()}")
        return self.classes_[rows[:, :3].argmax(axis=1)]

    def predict_proba(self, rows):
        return np.full((len(rows), 3), 1 / 3)


def to_c(text):
    ctypes.CDLL(None).puts(text.encode())


SAYS = {
    "the streams of Python": print,
    "the first streams": lambda text: print(text, file=sys.__stderr__),
    "a descriptor": lambda text: os.write(2, text.encode()),
    "C": to_c,
    "a log": logging.getLogger("a classifier").critical,
}


@pytest.fixture
def shown(capfd):
    """Return what is shown on all ways, a log with an old stream included."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger("a classifier").addHandler(handler)
    yield lambda: "".join(capfd.readouterr()) + stream.getvalue()
    logging.getLogger("a classifier").removeHandler(handler)


@pytest.mark.parametrize("way", SAYS)
def test_nothing_that_a_classifier_says_is_shown(way, shown):
    class Quoting(Loud):
        def predict(self, rows):
            SAYS[way](f"odd row {rows[0].tolist()}")
            return super().predict(rows)

    rows = X[:4].copy()
    rows[3, 0] = 1000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = said(Quoting(), rows)
    assert np.flatnonzero(whole.predicted < 0).tolist() == [3]
    assert shown() == ""
    # The control: all of it is shown by itself, also after an evaluation.
    SAYS[way]("a row")
    muted._flush()
    assert "a row" in shown()


def test_closed_streams_stay_closed():
    code = """
import os, numpy as np
from dppl.prediction.muted import muted
os.close(1)
with muted():
    print("unseen", flush=True)
try:
    os.fstat(1)
except OSError:
    os.write(2, b"closed")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "closed")


def test_texts_and_frames_are_predicted_one_at_a_time():
    texts = ["red apple", "green pear", "red rose", "green grass"]
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(
        texts, ["r", "g", "r", "g"]
    )
    predictor = predictions_of(model, [*texts, None])
    assert predictor.assumption == FRESH
    assert np.concatenate([one.predicted for one in predictor.guesses()]).tolist() == [
        1,
        0,
        1,
        0,
        -1,
    ]
    counts = model[0].transform(texts)  # a sparse matrix
    assert np.concatenate(
        [one.predicted for one in predictions_of(model[1], counts).guesses()]
    ).tolist() == [1, 0, 1, 0]


def test_a_frame_keeps_its_columns():
    frame = pd.DataFrame(X, columns=list("stuvwxyz"))
    model = LogisticRegression().fit(frame, Y)
    whole = said(model, frame)
    assert (model.classes_[whole.predicted] == model.predict(frame)).all()


def test_a_search_and_a_classifier_of_raw_items_are_what_they_hold():
    search = PrivateSearch(
        MeanPrototypes(ApproxDP(5, 1e-6), CLASSES),
        {"lattice__pool": [1, 2]},
        mean_runs=2,
    )
    search.fit(X, Y)
    assert (labels_by(search, X) == search.predict(X)).all()
    images = (np.random.default_rng(1).random((30, 8, 8)) * 255).astype(np.uint8)
    model = PrivateClassifier("pixels", GaussianDP(1), classes=[0, 1]).fit(
        images, np.arange(30) % 2
    )
    predictor = predictions_of(model, images)
    assert predictor.assumption == EXACT
    assert predictor.model is model.model_
    assert (labels_by(model, images) == model.predict(images)).all()
    with pytest.raises(InputError):
        predictions_of(model, X)


def labels_by(model, rows):
    return model.classes_[said(model, rows).predicted]


def test_a_table_of_predictions_is_taken_as_it_is():
    labels = AlreadyPredicted(["x", "1"])
    some = said(labels, ["1", 1, 1.0, "x", None, "elsewhere"])
    assert some.predicted.tolist() == [1, -1, -1, 0, -1, -1]
    with pytest.raises(InputError, match="X must hold texts"):
        predictions_of(labels, np.array([1, 1]))
    table = np.array([[0.2, 0.8], [0.9, 0.1], [np.nan, 0.5]])
    whole = said(labels, table)
    assert whole.predicted.tolist() == [1, 0, -1]
    assert predictions_of(labels, table).assumption == GIVEN
    with pytest.raises(InputError, match="probabilities"):
        predictions_of(labels, np.ones((3, 3)))


def test_another_number_of_features_is_refused_before_anything_is_predicted():
    model = LogisticRegression().fit(X, Y)
    with pytest.raises(InputError, match="9 features, but the fit had 8"):
        predictions_of(model, np.ones((4, 9)))
    with pytest.raises(ValueError, match="9 features"):
        predictions_of(
            SoftmaxPrototypes(GaussianDP(1), CLASSES).fit(X, Y), np.ones((4, 9))
        )


def test_public_prototypes_are_exact_too():
    from dppl import PublicData

    model = PublicPrototypes(
        GaussianDP(1), CLASSES, public=PublicData(RNG.normal(size=(20, 8)))
    ).fit(X, Y)
    assert (labels_by(model, X) == model.predict(X)).all()


def columns():
    """Return records of all kinds of columns, and labels that depend on the first two."""
    towns = np.array(["u", "v", "w"])[np.arange(90) // 2 % 3]
    frame = pd.DataFrame(
        {
            "town": pd.Categorical(towns),
            "n": np.arange(90) % 4,
            "x": X[:, 0],
            "day": pd.Timestamp("2024-01-31") + pd.to_timedelta(np.arange(90), "D"),
        }
    )
    return frame, np.where((towns == "u") ^ (frame["n"] == 3), "a", "b")


def of_month(frame):
    import pandas as pd

    return pd.to_datetime(frame["day"]).dt.month.to_frame()


def steps():
    return make_column_transformer(
        (OneHotEncoder(), ["town", "n"]),
        (StandardScaler(), ["x"]),
        (FunctionTransformer(of_month), ["day"]),
    )


HONEST = {
    "a tree": lambda: make_pipeline(steps(), DecisionTreeClassifier(random_state=0)),
    "texts": lambda: make_pipeline(
        FunctionTransformer(lambda frame: frame.astype({"town": object})),
        steps(),
        LogisticRegression(),
    ),
    "categories by their type": lambda: make_pipeline(
        FunctionTransformer(lambda frame: frame[["town", "n", "x"]]),
        HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype"),
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_pipelines_say_of_a_rebuilt_record_what_they_say_of_a_table(name):
    frame, labels = columns()
    model = HONEST[name]().fit(frame, labels)
    expected = model.predict(frame)
    assert np.mean(expected == labels) > 0.7
    assert (labels_by(model, frame[:9]) == expected[:9]).all()


def test_what_reads_the_type_of_a_column_says_nothing():
    frame, labels = columns()
    codes = FunctionTransformer(lambda frame: frame["town"].cat.codes.to_frame())
    model = make_pipeline(codes, DecisionTreeClassifier()).fit(frame, labels)
    assert (said(model, frame[:5]).predicted == -1).all()


REFUSED = [
    np.zeros(3, "f8,f8"),
    np.zeros(3, "m8[s]"),
    np.zeros(3, "m8"),
    np.zeros(3, "M8[s]"),
    np.zeros((3, 8), complex),
    np.zeros(3),
    np.ma.masked_equal(np.zeros((3, 8)), 1),
    np.array([b"a", b"b"]),
    np.array([["a", *range(7)]]),
    list(np.zeros((3, 8))),
    pd.DataFrame(np.zeros((3, 8), "m8[s]")),
    pd.Series(np.zeros(3, "m8[s]")),
    {0: [1.0]},
]


@pytest.mark.parametrize("rows", REFUSED)
def test_what_says_something_of_other_records_is_refused(rows):
    model = LogisticRegression().fit(X, Y)
    with pytest.raises(InputError, match=f"got a {type(rows).__name__}"):
        pending(model, rows)


def test_only_plain_values_are_handed_over():
    class Text(str):
        def rstrip(self, _):
            return self

    class Holds:
        def to_pydatetime(self, warn):
            return self

    text = "a text"
    (copied,) = rebuilt([text])
    assert copied == text
    assert copied is not text
    (copied,) = rebuilt([Text("a")])
    assert type(copied) is str
    assert rebuilt(list(np.zeros(1, "M8[s]"))) == [datetime(1970, 1, 1)]
    (alone,) = rebuilt(np.array([[-np.nan]])).ravel()
    assert alone.tobytes() == np.float64(np.nan).tobytes()  # its sign, too
    no = (Holds(), np.timedelta64(1, "s"), timedelta(1), np.zeros(2), [[1.0]])
    for one in no:
        with pytest.raises(InputError, match="plain values"):
            rebuilt([one])
