"""Everything that takes rows takes none of them: the answer has the shape and the type of an answer to rows."""

import numpy as np
import pytest

from dppl.errors import InputError
from dppl.export.scorer import NUMPY, scorer_of
from dppl.io import EmbeddingTable, read_parts
from dppl.methods import released
from laws.recipes import BY_NAME, KINDS, Table, each

METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function")


def no_rows(X, folder):
    """Yield no rows, of the width of X, in every form."""
    pandas = pytest.importorskip("pandas")
    torch = pytest.importorskip("torch")
    none = X[:0]
    yield "an array", none
    yield "a frame", pandas.DataFrame(none)
    yield "a tensor", torch.from_numpy(none.copy())
    yield "a table", EmbeddingTable.of(none)
    yield "a table that streams", Table(none)
    np.save(folder / "none.npy", none)
    yield "a table in parts", read_parts(folder / "none.npy", y=None)


def check_no_rows(kind, folder):
    X, y = kind.records()
    model = kind.fit(X, y)
    methods = [*METHODS, *["similarity"] * model.has_similarity]
    ways = [(name, how) for name in methods for how in ("error", "empty")]
    usual = {(name, how): getattr(model, name)(X, unusable=how) for name, how in ways}
    for form, rows in no_rows(X, folder):
        for (name, how), expected in usual.items():
            answer = getattr(model, name)(rows, unusable=how)
            assert answer.shape == (0, *expected.shape[1:]), (name, form)
            assert answer.dtype == expected.dtype, (name, form)
        if kind.cls.multilabel:
            assert model.predict_labels(rows) == []
            continue
        assert model.predict(rows, min_confidence=0.5).shape == (0,)
        if model.has_similarity:
            assert model.predict(rows, min_similarity=0.5).shape == (0,)


@each(KINDS)
def test_no_rows_get_no_answers_of_the_usual_shape(kind, tmp_path):
    check_no_rows(kind, tmp_path)


def test_a_shape_that_rows_decide_is_noticed(tmp_path, monkeypatch):
    def of_rows(scores):
        return scores.reshape(len(scores), -1)[:, -1]

    monkeypatch.setattr(released, "_last", of_rows)
    with pytest.raises(ValueError, match="cannot reshape"):
        check_no_rows(BY_NAME["MeanPrototypes add-remove"], tmp_path)


@each(KINDS)
def test_no_rows_have_no_score(kind):
    X, y = kind.records()
    model = kind.fit(X, y)
    assert 0 <= model.score(X, y) <= 1
    with pytest.raises(InputError, match="at least one row to score"):
        model.score(X[:0], y[:0])


@each([kind for kind in KINDS if not kind.cls.multilabel])
def test_no_rows_have_no_scores_in_an_export(kind):
    X, y = kind.records()
    scorer = scorer_of(kind.fit(X, y))
    assert scorer.scores(X[:0], NUMPY).shape == (0, len(scorer.classes))


@each(KINDS)
def test_logarithms_of_probabilities(kind):
    X, y = kind.records()
    model = kind.fit(X, y)
    with np.errstate(divide="ignore"):
        expected = np.log(model.predict_proba(X))
    assert (model.predict_log_proba(X) == expected).all()
