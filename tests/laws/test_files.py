"""A model is a file of what was released and of the guarantee: it comes back whole, without seed or code."""

import json

import pytest

import dppl
from dppl._utils import tensorfile
from dppl.methods import EmbeddingClassifier, model_file
from dppl.methods.model_file import describe
from laws.recipes import FIRST, SHARED, each

pytestmark = pytest.mark.slow


def check_comes_back(kind, path):
    X, y = kind.records()
    model = kind.fit(X, y, random_state=20240)
    model.save(path, overwrite=True)
    again = dppl.load(path)
    description = describe(path)
    assert type(again) is type(model)
    assert again.to_bytes() == model.to_bytes() == path.read_bytes()
    assert (again.decision_function(X) == model.decision_function(X)).all()
    assert (again.predict(X) == model.predict(X)).all()
    assert again.classes_.dtype.kind == model.classes_.dtype.kind
    for name in ("prototypes_", "coef_", "intercept_", "public_indices_"):
        if hasattr(model, name):
            assert (getattr(again, name) == getattr(model, name)).all()
    if hasattr(model, "predict_proba"):
        assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert again.guarantee_.to_dict() == model.guarantee_.to_dict()
    assert str(again.guarantee_) == str(model.guarantee_)
    assert description["guarantee"] == model.guarantee_.to_dict()
    assert description["guarantee"]["budget"] == model.budget.to_dict()
    assert description["guarantee"]["secure_noise"] is False
    assert "random_state" not in json.dumps(description["parameters"])
    assert "20240" not in json.dumps(description["parameters"])


@each()
def test_a_loaded_model_is_the_saved_one(kind, tmp_path):
    check_comes_back(kind, tmp_path / "m.safetensors")


@each()
def test_the_room_for_a_file_is_known_before_the_fit_and_is_enough(kind):
    X, y = kind.records()
    model = kind.fit(X, y, random_state=20240)
    if not isinstance(model, EmbeddingClassifier):
        pytest.skip("is no method of embeddings")
    plan = model.plan(X.shape[1])
    room = model.most_bytes(plan, X)
    size = len(model.to_bytes())
    assert size <= room <= 5 * size + 2**18
    # Half of the records, or other values, take the same room.
    assert model.most_bytes(plan, X[: len(X) // 2] * 0.5) == room


@each(FIRST)
def test_a_file_of_other_numbers_is_noticed(kind, tmp_path, monkeypatch):
    whole = tensorfile.read

    def other(path, key):
        description, tensors = whole(path, key)
        return description, {name: one[::-1] for name, one in tensors.items()}

    monkeypatch.setattr(tensorfile, "read", other)
    with pytest.raises((AssertionError, dppl.errors.ModelFileError)):
        check_comes_back(kind, tmp_path / "m.safetensors")


def test_a_seed_in_the_file_is_noticed(tmp_path, monkeypatch):
    kind = FIRST[0]
    monkeypatch.setattr(model_file, "UNSAVED", model_file.UNSAVED - {"random_state"})
    with pytest.raises((AssertionError, dppl.errors.ModelFileError)):
        check_comes_back(kind, tmp_path / "m.safetensors")


@each(SHARED)
def test_only_a_model_of_noise_that_nobody_can_repeat_is_secure_noise(kind, tmp_path):
    X, y = kind.records()
    for seed in (None, 0):
        model = kind.fit(X, y, random_state=seed)
        model.save(tmp_path / "m.safetensors", overwrite=True)
        for guarantee in (
            model.guarantee_,
            dppl.load(tmp_path / "m.safetensors").guarantee_,
        ):
            assert guarantee.secure_noise == (seed is None)
            assert ("NOT FOR RELEASE" in str(guarantee)) == (seed is not None)
