"""Models in other formats predict as they do in dppl; each test needs the package that reads its format."""

import io
import json
import subprocess
import sys
import zipfile
from copy import deepcopy

import numpy as np
import pytest

import dppl
from dppl.continual import ContinualEnsemble
from dppl.errors import MissingExtra, ParameterError
from dppl.export import (
    TARGETS,
    onnx_graph,
    save,
    scorer,
    to_hub,
    to_onnx,
    to_torch,
    torch_module,
)
from inside import scores_of
from laws.recipes import ONE_LABEL, each
from unit.export.readers import ROUNDING, by_onnx, by_torch


def agree(reader, model, rows, *, rounding=ROUNDING):
    """Hold what an export says of rows to what the model says."""
    found = reader(model)(rows)
    weights = max(
        np.linalg.norm(head.weights, axis=1).max()
        for head in scorer.scorer_of(model).heads
    )
    atol = rounding * weights
    scores = scores_of(model, rows)
    np.testing.assert_allclose(found.scores, scores, rtol=rounding, atol=2 * atol)
    np.testing.assert_allclose(
        found.probabilities, model.predict_proba(rows), atol=10 * rounding
    )
    differ = found.label != model.predict(rows)
    best = np.sort(scores[differ], axis=1)[:, -2:]
    assert (
        np.ptp(best, axis=1) <= 2 * atol
    ).all()  # no label differs but those of equal scores
    assert differ.mean() < 0.01
    return found


@each(ONE_LABEL)
def test_every_estimator(kind, reader):
    model = kind.fit(*kind.records(40))
    agree(
        reader,
        model,
        np.random.default_rng(5).normal(size=(60, kind.dim)).astype(np.float32),
    )


def test_real_embeddings(model, sample, reader):
    found = agree(reader, model, sample.X_test.astype(np.float32))
    assert (found.label == sample.y_test).mean() > 0.5


def test_another_model_would_be_noticed(model, sample, reader):
    """The control of the test above: the weights of one class are a thousandth longer in the export."""
    other = deepcopy(model)
    other.coef_[3] *= 1.001
    with pytest.raises(AssertionError):
        agree(lambda _: reader(other), model, sample.X_test.astype(np.float32))


NAMES = {
    "texts": ["grün", "قط", "🦜"],
    "integers": [-4, 0, 7],
    "truth": [False, True],
    "two": ["no", "yes"],
}


@pytest.mark.parametrize("classes", NAMES.values(), ids=NAMES)
def test_labels_of_all_kinds(classes, reader):
    X = np.random.default_rng(1).normal(size=(60, 5)).astype(np.float32)
    y = np.array(classes)[np.arange(60) % len(classes)]
    model = dppl.MeanPrototypes(dppl.ZCDP(100.0), classes).fit(X, y)
    assert set(agree(reader, model, X).label.tolist()) == set(classes)


def test_labels_that_are_numbers(reader):
    X = np.random.default_rng(1).normal(size=(60, 5)).astype(np.float32)
    model = dppl.MeanPrototypes(dppl.ZCDP(100.0), [0.5, 1.5, 2.5]).fit(
        X, np.resize([0.5, 1.5, 2.5], 60)
    )
    agree(reader, model, X)


def test_one_class(reader):
    model = dppl.MeanPrototypes(dppl.ZCDP(100.0), ["only"]).fit(np.eye(3), ["only"] * 3)
    assert (
        agree(reader, model, np.eye(3, dtype=np.float32)).label.tolist() == ["only"] * 3
    )


@pytest.mark.parametrize("scores", ["normalised", "largest"])
def test_several_tasks(scores, reader):
    rng = np.random.default_rng(2)
    model = ContinualEnsemble(
        dppl.ZCDP(10.0), ["a", "b", "c", "d"], scores=scores, random_state=0
    )
    for names in (["a", "b"], ["b", "c"]):
        model.partial_fit(
            rng.normal(size=(30, 6)), np.resize(names, 30), task_classes=names
        )
    found = agree(reader, model, rng.normal(size=(50, 6)).astype(np.float32))
    assert (
        found.probabilities[:, 3] < 1e-300
    ).all()  # "d" was in no task; some exponentials end before 0


@pytest.mark.parametrize("scale", [1e-38, 1e38], ids=["tiny", "huge"])
def test_rows_whose_squares_leave_the_range(scale, model, sample, reader):
    rows = sample.X_test / np.abs(sample.X_test).max(axis=1, keepdims=True)
    agree(reader, model, (scale * rows).astype(np.float32))


@pytest.mark.parametrize("by", [by_onnx, by_torch])
def test_rows_without_a_direction_have_no_scores(by, model):
    rows = np.ones((6, model.n_features_in_), np.float32)
    rows[1], rows[2, 3], rows[3, 3], rows[4], rows[5] = 0, np.nan, -np.inf, 1e-44, 3e38
    found = by(model)(rows)
    expected = np.isnan(model.decision_function(rows, unusable="empty")).any(axis=1)
    assert expected.tolist() == [False, True, True, True, False, False]
    assert np.isnan(found.scores).all(axis=1).tolist() == expected.tolist()
    assert np.isnan(found.probabilities).all(axis=1).tolist() == expected.tolist()
    np.testing.assert_allclose(found.scores[[4, 5]], found.scores[[0, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("classes", "none"), [(["a", "b"], ""), ([3, 4], np.iinfo(np.int64).min)]
)
def test_no_label_is_made_up_for_a_row_without_a_direction(classes, none):
    model = dppl.MeanPrototypes(dppl.ZCDP(100.0), classes).fit(np.eye(2), classes)
    found = by_onnx(model)(np.array([[0, 0], [1, 0], [np.nan, 1]], np.float32))
    assert found.label.tolist() == [none, classes[0], none]


@pytest.mark.parametrize("by", [by_onnx, by_torch])
def test_no_rows_have_no_labels(by, model):
    found = by(model)(np.empty((0, model.n_features_in_), np.float32))
    assert (len(found.label), found.probabilities.shape) == (
        0,
        (0, len(model.classes_)),
    )


def seeded():
    """Return a model that must not be released."""
    return dppl.MeanPrototypes(dppl.ZCDP(1.0), ["a", "b"], random_state=1).fit(
        np.eye(2), ["a", "b"]
    )


def said_by_onnx(folder):
    made = pytest.importorskip("onnx").load(folder / "file")
    said = {one.key.removeprefix("dppl."): one.value for one in made.metadata_props}
    assert made.doc_string == said["guarantee"]
    return said | {
        "statement": json.loads(said["statement"]),
        "secure_noise": json.loads(said["secure_noise"]),
    }


def said_by_torch(folder):
    found = {torch_module.STATEMENT: ""}
    pytest.importorskip("torch").export.load(folder / "file", extra_files=found)
    return json.loads(found[torch_module.STATEMENT])


def said_by_hf(folder):
    return json.loads((folder / "file" / "config.json").read_text(encoding="utf-8"))[
        "dppl"
    ]


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_every_format_holds_the_guarantee(target, released, model, tmp_path):
    pytest.importorskip({"onnx": "onnx", "torch": "torch", "hf": "json"}[target])
    made = model if released else seeded()
    save(made, tmp_path / "file", to=target)
    said = {"onnx": said_by_onnx, "torch": said_by_torch, "hf": said_by_hf}[target](
        tmp_path
    )
    assert said["statement"] == made.guarantee_.to_dict()
    assert said["secure_noise"] is released
    assert said["guarantee"] == made.guarantee_.summary()
    assert ("NOT FOR RELEASE" in said["guarantee"]) is not released
    with pytest.raises(FileExistsError):
        save(made, tmp_path / "file", to=target)
    save(made, tmp_path / "file", to=target, overwrite=True)


WITHOUT_DPPL = """
import sys
sys.modules["dppl"] = None
{reading}
"""
READING = {
    "onnx": "import onnxruntime as r, numpy; print(r.InferenceSession(sys.argv[1], "
    "providers=['CPUExecutionProvider']).run(['label'], {'rows': numpy.ones((1, 2), 'f')})[0][0])",
    "torch": "import torch; m = torch.export.load(sys.argv[1]).module(); print('ab'[m(torch.ones(1, 2)).argmax()])",
}


@pytest.mark.parametrize("target", READING)
def test_a_file_is_read_without_dppl(target, tmp_path):
    for package in {"onnx": ("onnx", "onnxruntime"), "torch": ("torch",)}[target]:
        pytest.importorskip(package)
    model = dppl.MeanPrototypes(dppl.ZCDP(1e4), ["a", "b"]).fit(
        [[1, 1], [-1, 1]] * 9, ["b", "a"] * 9
    )
    save(model, tmp_path / "file", to=target)
    command = [
        sys.executable,
        "-c",
        WITHOUT_DPPL.format(reading=READING[target]),
        str(tmp_path / "file"),
    ]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.stdout.split()[-1:] == ["b"], ended.stderr


def test_equal_models_give_equal_graphs(model):
    pytest.importorskip("onnx")
    assert onnx_graph.to_bytes(model) == onnx_graph.to_bytes(model)


def test_a_module_is_one_of_torch(model, sample):
    library = pytest.importorskip("torch")
    module = to_torch(model)
    assert isinstance(module, library.nn.Module)
    assert not list(module.parameters())
    assert module.classes == model.classes_.tolist()
    huge = (
        1e200 * library.from_numpy(sample.X_test[:5]).double()
    )  # their squares leave the range
    np.testing.assert_allclose(
        module(huge).softmax(1).numpy(), model.predict_proba(huge.numpy()), atol=1e-5
    )


def test_a_file_of_torch_holds_no_pickled_class_of_dppl(model):
    pytest.importorskip("torch")
    with zipfile.ZipFile(io.BytesIO(torch_module.to_bytes(model))) as files:
        held = [
            name
            for name in files.namelist()
            if b"ExportedClassifier" in files.read(name) and name.endswith("pkl")
        ]
    assert held == []


@pytest.mark.parametrize("released", [True, False])
def test_a_hub_reads_the_folder(released, model, tmp_path):
    hub = pytest.importorskip("huggingface_hub", reason="validates what hubs read")
    made = model if released else seeded()
    to_hub(made, tmp_path / "folder", license="apache-2.0")
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    card = hub.ModelCard.load(tmp_path / "folder" / "README.md")
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "dppl")
    assert "differential-privacy" in card.data.tags
    assert card.data.pipeline_tag == "tabular-classification"
    assert card.data.to_dict()["differential_privacy"]["secure_noise"] is released
    assert ("NOT FOR RELEASE" in card.text) is not released
    again = dppl.load(tmp_path / "folder" / "model.safetensors")
    assert again.to_bytes() == made.to_bytes()


def test_the_configuration_names_the_classes_as_hubs_do(tmp_path):
    model = dppl.MeanPrototypes(dppl.ZCDP(1.0), [3, 5]).fit(np.eye(2), [3, 5])
    to_hub(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert (config["id2label"], config["label2id"]) == (
        {"0": "3", "1": "5"},
        {"3": 0, "5": 1},
    )
    assert (config["model_type"], config["n_features"]) == ("dppl", 2)


def test_a_hub_folder_of_another_model_is_not_overwritten_unasked(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(FileExistsError, match=r"README\.md"):
        to_hub(seeded(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize(("make", "package"), [(to_onnx, "onnx"), (to_torch, "torch")])
def test_a_missing_package_is_named_with_what_installs_it(make, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    torch_module._module_class.cache_clear()
    extra = "torch" if package == "torch" else "export"
    with pytest.raises(
        MissingExtra,
        match=rf"needs {package}; install it .*pip install -e '.\[{extra}\]'",
    ):
        make(seeded())


def test_parameters_of_other_formats_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="to must be one of"):
        save(seeded(), tmp_path / "file", to="pmml")
    with pytest.raises(ParameterError, match="encoder goes with the format onnx"):
        save(seeded(), tmp_path / "file", to="torch", encoder="e.onnx")
    with pytest.raises(ParameterError, match="license goes with the format hf"):
        save(seeded(), tmp_path / "file", to="onnx", license="mit")


def test_a_file_is_not_overwritten_unasked(tmp_path):
    pytest.importorskip("onnx")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        FileExistsError,
        match="file exists; choose another name, or overwrite it with overwrite=True",
    ):
        save(seeded(), tmp_path / "file", to="onnx")
    assert (tmp_path / "file").read_text() == "mine"
    save(seeded(), tmp_path / "file", to="onnx", overwrite=True)
    assert (tmp_path / "file").read_bytes() != b"mine"
