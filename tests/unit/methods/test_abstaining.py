"""A row that is not sure, or near no class, gets no label; rows of no class are far from all of them."""

import numpy as np
import pytest

import dppl
from dppl import (
    GaussianDP,
    MeanPrototypes,
    PublicData,
    PublicPrototypes,
    SoftmaxPrototypes,
)
from dppl.continual import ContinualEnsemble
from dppl.errors import InputError, ParameterError
from dppl.io import load_sample
from dppl.methods import LinearProbe, MultiLabelPrototypes

SAMPLE = load_sample()
KNOWN = SAMPLE.y < 6
METHODS = {
    "softmax": SoftmaxPrototypes,
    "mean": MeanPrototypes,
    "public": lambda *a, **b: PublicPrototypes(
        *a, n_prototypes=2, public=PublicData(SAMPLE.X_public), **b
    ),
    "probe": LinearProbe,
}


@pytest.fixture(scope="module")
def models():
    """Return models of the digits from 0 to 5."""
    make = {
        name: method(GaussianDP(5), range(6), random_state=0)
        for name, method in METHODS.items()
    }
    return {
        name: model.fit(SAMPLE.X[KNOWN], SAMPLE.y[KNOWN])
        for name, model in make.items()
    }


@pytest.mark.parametrize("name", METHODS)
def test_labels_are_none_exactly_below_what_is_required(name, models, tmp_path):
    model = models[name]
    X = SAMPLE.X_test
    labels = model.predict(X)
    confidence = model.predict_proba(X).max(axis=1)
    near = model.similarity(X)
    assert (np.abs(near) <= 1 + 1e-6).all()
    sure = float(np.median(confidence))
    close = float(np.median(near))
    for given in (
        {"min_confidence": sure},
        {"min_similarity": close},
        {"min_confidence": sure, "min_similarity": close},
    ):
        answered = (confidence >= given.get("min_confidence", 0)) & (
            near >= given.get("min_similarity", -1)
        )
        assert 0 < answered.sum() < len(X)
        expected = [
            label if one else None
            for label, one in zip(labels.tolist(), answered, strict=True)
        ]
        assert model.predict(X, **given).tolist() == expected
    model.save(tmp_path / "m.safetensors")
    assert (
        dppl.load(tmp_path / "m.safetensors").similarity(X).tobytes() == near.tobytes()
    )


@pytest.mark.parametrize("name", METHODS)
def test_rows_of_other_classes_are_further_away(name, models):
    near = models[name].similarity(SAMPLE.X_test)
    known = SAMPLE.y_test < 6
    pairs = np.mean(near[known][:, None] > near[~known][None])
    assert pairs > 0.9  # 0.97 to 0.99
    shuffled = np.random.default_rng(0).permutation(known)  # the control
    assert np.mean(near[shuffled][:, None] > near[~shuffled][None]) < 0.6


def test_what_cannot_be_used_is_no_row_that_is_not_sure(models):
    X = SAMPLE.X_test[:3].copy()
    X[1] = np.nan
    model = models["softmax"]
    with pytest.raises(InputError, match="at 1, counted from 0"):
        model.predict(X, min_confidence=0.5)
    with pytest.raises(InputError, match="at 1, counted from 0"):
        model.similarity(X)
    assert np.isnan(model.similarity(X, unusable="empty")).tolist() == [
        False,
        True,
        False,
    ]
    assert (
        model.predict(X, min_confidence=0.0, min_similarity=-1.0, unusable="empty")[1]
        is None
    )
    assert model.predict(X[:0], min_confidence=0.5).tolist() == []


def test_what_is_refused(models):
    X = SAMPLE.X_test
    model = models["softmax"]
    for name, value in (
        ("min_confidence", 1.5),
        ("min_confidence", "a"),
        ("min_similarity", -2),
        ("min_similarity", np.nan),
    ):
        with pytest.raises(ParameterError, match="must lie between"):
            model.predict(X, **{name: value})
    ensemble = ContinualEnsemble(GaussianDP(5), range(6), random_state=0)
    ensemble.partial_fit(SAMPLE.X[KNOWN], SAMPLE.y[KNOWN])
    assert ensemble.predict(X, min_confidence=0.5).dtype == object
    with pytest.raises(ParameterError, match="ContinualEnsemble has none"):
        ensemble.predict(X, min_similarity=0.1)
    several = MultiLabelPrototypes(GaussianDP(5), range(6), random_state=0)
    several.fit(SAMPLE.X[KNOWN], SAMPLE.y[KNOWN, None].tolist())
    for name in ("min_confidence", "min_similarity"):
        with pytest.raises(ParameterError, match="one label"):
            several.predict(X, **{name: 0.1})
