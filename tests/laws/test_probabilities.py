"""Every classifier has probabilities, which say what its labels say; and rows that cannot be used have no class."""

import numpy as np
import pytest

import dppl
from dppl.errors import InputError, ParameterError
from dppl.methods import EmbeddingClassifier
from laws.recipes import KINDS_OF_ONE_LABEL, ONE_LABEL, SHARED, each

UNUSABLE = np.array([np.nan, np.inf, -np.inf, 0.0])


def check_probabilities(kind, path):
    X, y = kind.records(23)
    model = kind.fit(X, y)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (len(X), len(model.classes_))
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert np.abs(probabilities.sum(axis=1) - 1).max() < 1e-12
    # Columns are in the order of classes_: that of the predicted label is the largest,
    # or one of those that are.
    column = np.searchsorted(model.classes_, model.predict(X))
    largest = probabilities.max(axis=1)
    assert (probabilities[np.arange(len(X)), column] == largest).all()
    alone = (probabilities == largest[:, None]).sum(axis=1) == 1
    assert alone.any()
    assert (probabilities.argmax(axis=1) == column)[alone].all()
    # A row's are its own, up to the rounding of matrix products.
    assert np.allclose(
        np.concatenate([model.predict_proba(row[None]) for row in X]),
        probabilities,
        atol=1e-5,
    )
    model.save(path)
    assert dppl.load(path).predict_proba(X).tobytes() == probabilities.tobytes()


@pytest.mark.slow
@each(KINDS_OF_ONE_LABEL)
def test_probabilities_say_what_labels_say(kind, tmp_path):
    check_probabilities(kind, tmp_path / "m.safetensors")


def of_the_block(whole):
    return lambda self, X, **more: whole(
        self, np.asarray(X) + np.mean(X, axis=0), **more
    )


def of_other_columns(whole):
    return lambda self, X, **more: whole(self, X, **more)[:, ::-1]


def not_of_one(whole):
    return lambda self, X, **more: 0.9 * whole(self, X, **more)


@pytest.mark.parametrize("fault", [of_the_block, of_other_columns, not_of_one])
@each(SHARED)
def test_wrong_probabilities_are_noticed(kind, fault, tmp_path, monkeypatch):
    monkeypatch.setattr(
        EmbeddingClassifier, "predict_proba", fault(EmbeddingClassifier.predict_proba)
    )
    with pytest.raises(AssertionError):
        check_probabilities(kind, tmp_path / "m.safetensors")


def check_shares(kind):
    """Probabilities of classes that are not equally frequent are Bayes' rule on those that are."""
    X, y = kind.records(23)
    model = kind.fit(X, y)
    equal = model.predict_proba(X)
    shares = np.arange(len(model.classes_)) + 0.5
    joint = equal * shares
    assert np.allclose(
        model.predict_proba(X, shares=shares), joint / joint.sum(axis=1, keepdims=True)
    )
    assert np.allclose(model.predict_proba(X, shares=np.full(len(shares), 7)), equal)
    none = np.where(shares == shares[-1], 1.0, 0.0)
    assert (model.predict_proba(X, shares=none) == none).all()
    if model.shares_ is None:
        with pytest.raises(
            ParameterError, match="this model released none; give public frequencies"
        ):
            model.predict_proba(X, shares="data")
    else:
        assert model.shares_.sum() == pytest.approx(1)
        assert np.array_equal(
            model.predict_proba(X, shares="data"),
            model.predict_proba(X, shares=model.shares_),
        )


@each(ONE_LABEL)
def test_shares_are_those_of_the_classes(kind):
    check_shares(kind)


@pytest.mark.parametrize(
    "shares", ["rows", [1.0], [-1, 2, 3], [0, 0, 0], [np.nan, 1, 1]]
)
@each(SHARED)
def test_shares_that_are_no_frequencies_are_refused(kind, shares):
    X, y = kind.records(23)
    model = kind.fit(X, y)
    assert len(model.classes_) == 3
    with pytest.raises(ParameterError, match="shares"):
        model.predict_proba(X, shares=shares)


@each(ONE_LABEL)
def test_a_file_that_forgets_how_sharp_scores_are_is_noticed(
    kind, tmp_path, monkeypatch
):
    whole = kind.cls.predict_proba

    def sharper(self, X, **more):
        found = whole(self, X, **more)
        if self.random_state is not None:  # a loaded model has no seed
            found = found**2 / (found**2).sum(axis=1, keepdims=True)
        return found

    monkeypatch.setattr(kind.cls, "predict_proba", sharper)
    with pytest.raises(AssertionError):
        check_probabilities(kind, tmp_path / "m.safetensors")


@each(ONE_LABEL)
def test_rows_without_a_direction_are_refused_by_their_positions_alone(kind):
    X, y = kind.records(23)
    model = kind.fit(X, y)
    rows = X.copy()
    places = [2, 7, 11, 20]
    rows[places[:3], 1] = UNUSABLE[:3]
    rows[places[3]] = 0
    for method in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(InputError, match=r"at 2, 7, 11, 20, counted from 0\."):
            method(rows)
    with pytest.raises(InputError, match="and others"):
        model.predict(np.zeros((11, kind.dim)))
    with pytest.raises(InputError, match="no class"):
        model.score(rows, y)
    usable = np.setdiff1d(np.arange(len(X)), places)
    labels = model.predict(rows, unusable="empty")
    assert labels.dtype == object
    assert labels[places].tolist() == [None] * 4
    assert (labels[usable] == model.predict(X)[usable]).all()
    for method in (model.predict_proba, model.decision_function):
        values = method(rows, unusable="empty")
        assert np.isnan(values[places]).all()
        assert np.allclose(values[usable], method(X)[usable], atol=1e-5)
    with pytest.raises(dppl.errors.ParameterError, match="unusable"):
        model.predict(X, unusable="first")
