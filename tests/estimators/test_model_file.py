import json
import os
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

import dppl
from dppl import ZCDP, ApproxDP, MeanPrototypes, PublicPrototypes, PureDP, _files
from dppl.data import read_table
from dppl.errors import ModelFileError
from dppl.estimators.model_file import describe, to_bytes

RNG = np.random.default_rng(0)
X, P = RNG.normal(size=(60, 12)), RNG.normal(size=(40, 12))
TEXT, NUMBER = np.array(list("abc"))[RNG.integers(0, 3, 60)], RNG.integers(0, 3, 60)
MODELS = {
    "mean": MeanPrototypes(ZCDP(1.0), list("abc")),
    "mapped": MeanPrototypes(ZCDP(1.0), ["c", "a", "b", "é"], center="public", pool=2, rotation=9),
    "published": MeanPrototypes(ApproxDP(1.0, 1e-5), [0, 1, 2], adjacency="replace-one", metric="euclidean"),
    "coinpress": MeanPrototypes(
        ZCDP(2.0), [0, 1, 2], adjacency="replace-one", mechanism="coinpress", coinpress_split=(0.25, 0.75)
    ),
    "public": PublicPrototypes(PureDP(1.0), [0, 1, 2], random_state=4),
    "top-k": PublicPrototypes(ZCDP(1.0), list("abc"), np.int64(3), clip=(0.5, 1.5)),
}


@pytest.fixture(params=MODELS, scope="module")
def model(request):
    estimator = MODELS[request.param]
    return estimator.fit(X, NUMBER if 0 in estimator.classes else TEXT, X_public=P)


def test_a_loaded_model_is_the_saved_one(model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    again = dppl.load(tmp_path / "m.safetensors")
    assert type(again) is type(model)
    assert (again.decision_function(X) == model.decision_function(X)).all()
    assert (again.predict(X) == model.predict(X)).all()
    assert again.classes_.dtype.kind == model.classes_.dtype.kind
    assert str(again.guarantee_) == str(model.guarantee_)
    assert to_bytes(again) == to_bytes(model)
    if isinstance(model, PublicPrototypes):
        assert (again.public_indices_ == model.public_indices_).all()
        assert describe(tmp_path / "m.safetensors")["public_indices"] == model.public_indices_.tolist()


def with_ids(tmp_path):
    ids = [f"photo {row}" for row in range(len(P))]
    pq.write_table(pa.table({"x": list(P), "id": ids}), tmp_path / "public.parquet")
    model = PublicPrototypes(PureDP(1.0), [0, 1, 2], 2).fit(X, NUMBER, X_public=read_table(tmp_path / "public.parquet"))
    model.save(tmp_path / "m.safetensors")
    return model, tmp_path / "m.safetensors"


def test_ids_of_public_rows_come_back(tmp_path):
    model, path = with_ids(tmp_path)
    again = dppl.load(path)
    assert again.public_ids_.tolist() == model.public_ids_.tolist()
    assert describe(path)["public_ids"] == model.public_ids_.tolist()
    assert to_bytes(again) == to_bytes(model)


IDS = [["a", "b"]] * 3


@pytest.mark.parametrize("ids", [IDS[:2], [*IDS[:2], ["a"]], [["a"]] * 3, [["a", 1]] * 3, "ab", None, {}, [None] * 3])
def test_ids_that_do_not_fit_are_refused(ids, tmp_path):
    _, path = with_ids(tmp_path)
    description, tensors = describe(path) | {"public_ids": IDS}, load_file(path)
    for name in ("public_indices", "n_prototypes"):
        description.pop(name, None)
    save_file(tensors, path, {"dppl": json.dumps(description)})
    assert dppl.load(path).public_ids_.tolist() == IDS
    save_file(tensors, path, {"dppl": json.dumps(description | {"public_ids": ids})})
    with pytest.raises(ModelFileError, match="is not a complete dppl model"):
        dppl.load(path)


@pytest.mark.parametrize("ids", [[], IDS])
def test_ids_in_a_model_without_public_rows_are_refused(ids, tmp_path):
    path = tmp_path / "m.safetensors"
    model = MODELS["mean"].fit(X, TEXT)
    model.save(path)
    save_file({"prototypes": model.prototypes_}, path, {"dppl": json.dumps(describe(path) | {"public_ids": ids})})
    with pytest.raises(ModelFileError, match="is not a complete dppl model"):
        dppl.load(path)


def test_the_file_says_what_is_promised_and_holds_no_seed(model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    description = describe(tmp_path / "m.safetensors")
    assert description["guarantee"]["budget"] == model.budget.to_dict()
    assert description["guarantee"]["fit_for_release"] == (model.random_state is None)
    assert "random_state" not in json.dumps(description["parameters"])


def test_an_existing_file_stays_unless_told_otherwise(model, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"precious")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        model.save(path)
    assert path.read_bytes() == b"precious"
    model.save(path, overwrite=True)
    assert dppl.load(path).classes_.shape == model.classes_.shape
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_a_truncated_file_is_refused_at_every_length(tmp_path):
    content = to_bytes(MODELS["mean"].fit(X, TEXT))
    path = tmp_path / "m.safetensors"
    for length in [0, 1, 7, 8, 9, 100, *range(200, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match="truncated"):
            dppl.load(path)


def test_foreign_and_later_files_are_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    tensors = {"prototypes": np.ones((2, 3))}
    save_file(tensors, path)
    with pytest.raises(ModelFileError, match="not a dppl model"):
        dppl.load(path)
    save_file(tensors, path, {"dppl": "{"})
    with pytest.raises(ModelFileError, match="cannot be read"):
        dppl.load(path)
    save_file(tensors, path, {"dppl": '{"format": 99}'})
    with pytest.raises(ModelFileError, match=r"format 99.*Update dppl"):
        dppl.load(path)
    path.write_text("label,x\n")
    with pytest.raises(ModelFileError, match="no whole safetensors file"):
        dppl.load(path)
    with pytest.raises(FileNotFoundError, match="no model file"):
        dppl.load(tmp_path / "absent")


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("guarantee"),
        lambda d: d.pop("lattice"),
        lambda d: d.update(estimator="os.system"),
        lambda d: d.update(classes=["a", "b"]),
        lambda d: d.update(classes=[]),
        lambda d: d["lattice"].update(n_features=13),
        lambda d: d["lattice"].update(n_features="many"),
        lambda d: d["guarantee"]["budget"].update(rho=-1),
        lambda d: d["parameters"].update(unheard_of=1),
        lambda d: d.update(parameters=[]),
    ],
)
def test_descriptions_that_do_not_fit_together_are_refused(tmp_path, damage):
    model = MODELS["mean"].fit(X, TEXT)
    path = tmp_path / "m.safetensors"
    model.save(path)
    description = describe(path)
    damage(description)
    save_file({"prototypes": model.prototypes_}, path, {"dppl": json.dumps(description)})
    with pytest.raises(ModelFileError, match="is not a complete dppl model"):
        dppl.load(path)


def test_prototypes_that_are_not_numbers_are_refused(tmp_path):
    model = MODELS["mean"].fit(X, TEXT)
    path = tmp_path / "m.safetensors"
    model.save(path)
    save_file({"prototypes": np.full_like(model.prototypes_, np.nan)}, path, {"dppl": json.dumps(describe(path))})
    with pytest.raises(ModelFileError, match="is not a complete dppl model"):
        dppl.load(path)


@pytest.mark.parametrize("nameless", [True, False])
def test_writing_is_all_or_nothing(tmp_path, monkeypatch, nameless):
    if not nameless:
        monkeypatch.setattr(_files, "_link_nameless", lambda path, content, mode: False)
    path = tmp_path / "file"
    _files.write_atomically(path, b"old", overwrite=False)
    original = os.fsync

    def fail(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(28, "No space left on device")
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        _files.write_atomically(path, b"new and longer", overwrite=True)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    monkeypatch.setattr(os, "fsync", original)
    with pytest.raises(FileExistsError):
        _files.write_atomically(path, b"new", overwrite=False)
    assert path.read_bytes() == b"old"
    _files.write_atomically(path, b"new", overwrite=True)
    assert path.read_bytes() == b"new"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        _files.write_atomically(tmp_path / "absent" / "file", b"", overwrite=True)
