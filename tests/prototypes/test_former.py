"""A model file of the former default method predicts and shows what it did; fitted again it is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import dppl
from dppl import ApproxDP, Ledger, PureDP, SoftmaxPrototypes
from dppl.cli.main import app
from dppl.data import write_table
from dppl.errors import ModelFileError, ParameterError
from dppl.estimators.model_file import describe
from dppl.estimators.registry import BY_METHOD
from dppl.prototypes.former import DiscriminantPrototypes

OLD = Path(__file__).parents[1] / "privacy" / "before" / "discriminant.safetensors"
X = np.random.default_rng(0).normal(size=(200, 8)) + 0.3


def rewritten(path, **tensors):
    """Write the old file anew with other tensors; None leaves one out."""
    tensors = {name: values for name, values in (load_file(OLD) | tensors).items() if values is not None}
    save_file(tensors, path, {"dppl": json.dumps(describe(OLD))})
    return path


@pytest.fixture(params=["as it is", "with a centre and a temperature"])
def file(request, tmp_path):
    """The old file, and one of a fit with public rows; there `fit` found a temperature as well."""
    if request.param == "as it is":
        return OLD
    return rewritten(tmp_path / "m.safetensors", center=np.linspace(-0.2, 0.4, 8), temperature=np.array([2.5]))


def by_hand(file, X):
    """Return the scores of each class: those of centred unit rows, in plain floats."""
    tensors = load_file(file)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True) - tensors.get("center", 0.0)
    return unit / np.linalg.norm(unit, axis=1, keepdims=True) @ tensors["coef"].T


def test_it_predicts_by_the_stored_weights(file):
    model, scores = dppl.load(file), by_hand(file, X)
    assert type(model) is DiscriminantPrototypes
    assert (model.coef_ == load_file(file)["coef"]).all()
    assert (model.prototypes_ == load_file(file)["prototypes"]).all()
    assert np.allclose(model.decision_function(X), scores[:, 1] - scores[:, 0], rtol=1e-5, atol=1e-5)
    labels = model.predict(X)
    assert (labels == np.array(["a", "b"])[scores.argmax(axis=1)]).all()
    assert set(labels) == {"a", "b"}
    assert model.score(X, labels) == 1.0
    # The negative control: the same rows by another class's weights, or not centred, would be others.
    assert (labels != np.array(["b", "a"])[scores.argmax(axis=1)]).all()
    if file != OLD:
        assert (labels != dppl.load(OLD).predict(X)).any()


def test_probabilities_are_the_softmax_of_scores_times_the_temperature(file):
    model = dppl.load(file)
    temperature = float(load_file(file)["temperature"][0])
    powers = np.exp(temperature * by_hand(file, X))
    expected = powers / powers.sum(axis=1, keepdims=True)
    assert model.temperature_ == temperature
    assert np.allclose(model.predict_proba(X), expected, atol=1e-5)
    # And of no other temperature.
    other = np.exp((temperature + 0.5) * by_hand(file, X))
    assert not np.allclose(model.predict_proba(X), other / other.sum(axis=1, keepdims=True), atol=1e-2)


def test_saved_again_it_is_the_same_model(file, tmp_path):
    model, path = dppl.load(file), tmp_path / "again.safetensors"
    model.save(path)
    again = dppl.load(path)
    assert type(again) is DiscriminantPrototypes
    before, after = load_file(file), load_file(path)
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    assert again.to_bytes() == path.read_bytes() == model.to_bytes()
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert again.guarantee_ == model.guarantee_
    assert describe(path)["guarantee"] == describe(file)["guarantee"]


def test_its_guarantee_is_that_of_the_file():
    model = dppl.load(OLD)
    assert model.budget == model.guarantee_.budget == ApproxDP(2.0, 1e-6)
    assert model.guarantee_.to_dict() == describe(OLD)["guarantee"]
    assert len(model.guarantee_.releases) == 9
    assert "5 times gradient of the softmax loss (2 x 8) by the discrete Gaussian" in str(model.guarantee_)


@pytest.mark.parametrize("public", [None, X[:50]])
def test_it_cannot_be_fitted_and_nothing_is_paid(public, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", ApproxDP(100.0, 1e-5))
    labels = ["a", "b"] * 100
    for make in (
        lambda: dppl.load(OLD),
        lambda: clone(dppl.load(OLD)),
        lambda: DiscriminantPrototypes(PureDP(1.0), ["a", "b"]),
    ):
        with pytest.raises(ParameterError, match=r"reads models of dppl 0\.1 only; fit SoftmaxPrototypes instead"):
            make().fit(X.copy(), labels, X_public=public, ledger=ledger)
        with pytest.raises(ParameterError, match="fit SoftmaxPrototypes instead"):
            make().plan(8, public)
    assert (ledger.releases(), ledger.spent()["epsilon"]) == ([], 0.0)
    # The account is one that a fit can charge.
    SoftmaxPrototypes(ApproxDP(2.0, 1e-6), ["a", "b"]).fit(X, labels, ledger=ledger)
    assert len(ledger.releases()) == 1


def test_a_fit_that_is_refused_leaves_no_model_that_looks_fitted():
    model = dppl.load(OLD)
    with pytest.raises(ParameterError):
        model.fit(X, ["a", "b"] * 100)
    assert not hasattr(model, "guarantee_")
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_it_is_no_method_to_choose():
    assert not hasattr(dppl, "DiscriminantPrototypes")
    assert "DiscriminantPrototypes" not in {entry.name for entry in BY_METHOD.values()}


@pytest.fixture
def command(runner):
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "100"})


def test_the_command_predicts_with_it(file, tmp_path, command):
    write_table(tmp_path / "new.npz", X)
    result = command("predict", file, tmp_path / "new.npz")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.split() == dppl.load(file).predict(X).tolist()


def test_the_command_shows_it(file, command):
    result = command("show", file)
    assert (result.exit_code, result.stderr) == (0, "")
    shown = " ".join(result.stdout.split())
    model = dppl.load(file)
    assert "estimator DiscriminantPrototypes" in shown
    assert " ".join(model.guarantee_.summary().split()) in shown
    assert "│ 5 to 9, each: gradient" in shown
    content = json.loads(command("show", file, "--json").stdout)
    assert content["estimator"] == "DiscriminantPrototypes"
    assert content["guarantee"] == model.guarantee_.to_dict()


DAMAGES = {
    "coef of another width": {"coef": np.zeros((2, 7))},
    "coef of another class": {"coef": np.zeros((3, 8))},
    "coef in single precision": {"coef": np.zeros((2, 8), np.float32)},
    "coef that is no number": {"coef": np.full((2, 8), np.nan)},
    "prototypes of another width": {"prototypes": np.zeros((2, 9), np.float32)},
    "prototypes that are infinite": {"prototypes": np.full((2, 8), np.inf, np.float32)},
    "two temperatures": {"temperature": np.ones(2)},
    "a temperature that is no number": {"temperature": np.array([np.nan])},
}
MISSING = ["coef", "prototypes", "temperature"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_tensor_is_refused(damage, tmp_path, command):
    path = rewritten(tmp_path / "m.safetensors")
    dppl.load(path)  # the file that is not damaged is a model
    rewritten(path, **DAMAGES[damage])
    (name,) = DAMAGES[damage]
    with pytest.raises(ModelFileError, match=f"its {name} do not fit its classes and lattice"):
        dppl.load(path)
    assert command("show", path).exit_code == 4


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_tensor_is_refused(name, tmp_path):
    path = rewritten(tmp_path / "m.safetensors", **{name: None})
    with pytest.raises(ModelFileError, match="is not a complete dppl model"):
        dppl.load(path)
