import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

import dppl
from checksums import forged
from dppl import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    LatticeOptions,
    MeanPrototypes,
    PublicData,
    PublicPrototypes,
    PureDP,
)
from dppl.errors import ModelFileError, ParameterError
from dppl.io import EmbeddingTable, load_sample, read_table
from dppl.methods.model_file import describe, to_bytes
from dppl.methods.public_data import ExamplesKept

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 12))
P = RNG.normal(size=(40, 12))
TEXT = np.array(list("abc"))[RNG.integers(0, 3, 60)]
NUMBER = RNG.integers(0, 3, 60)
MODELS = {
    "mean": MeanPrototypes(ZCDP(1.0), list("abc")),
    "mapped": MeanPrototypes(
        GaussianDP(1.0),
        ["c", "a", "b", "é"],
        lattice=LatticeOptions(center="public", pool=2, rotation=9),
    ),
    "published": MeanPrototypes(
        ApproxDP(1.0, 1e-5), [0, 1, 2], adjacency="replace-one"
    ),
    "coinpress": MeanPrototypes(
        ZCDP(2.0), [0, 1, 2], adjacency="replace-one", coinpress=(0.25, 0.75)
    ),
    "public": PublicPrototypes(PureDP(1.0), [0, 1, 2], random_state=4),
    "top-k": PublicPrototypes(
        ZCDP(1.0), list("abc"), n_prototypes=np.int64(3), clip=(0.5, 1.5)
    ),
}


@pytest.fixture(params=MODELS, scope="module")
def model(request):
    estimator = MODELS[request.param]
    return estimator.set_params(public=PublicData(P)).fit(
        X, NUMBER if 0 in estimator.classes else TEXT
    )


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
        assert (
            describe(tmp_path / "m.safetensors")["public_indices"]
            == model.public_indices_.tolist()
        )


def with_ids(tmp_path):
    ids = [f"photo {row}" for row in range(len(P))]
    pq.write_table(pa.table({"x": list(P), "id": ids}), tmp_path / "public.parquet")
    model = PublicPrototypes(
        PureDP(1.0),
        [0, 1, 2],
        n_prototypes=2,
        public=PublicData(read_table(tmp_path / "public.parquet")),
    ).fit(X, NUMBER)
    model.save(tmp_path / "m.safetensors")
    return model, tmp_path / "m.safetensors"


def test_ids_of_public_rows_come_back(tmp_path):
    model, path = with_ids(tmp_path)
    again = dppl.load(path)
    assert again.public_ids_.tolist() == model.public_ids_.tolist()
    assert describe(path)["public_ids"] == model.public_ids_.tolist()
    assert to_bytes(again) == to_bytes(model)


IDS = [["a", "b"]] * 3


@pytest.mark.parametrize(
    "ids",
    [
        IDS[:2],
        [*IDS[:2], ["a"]],
        [["a"]] * 3,
        [["a", 1]] * 3,
        "ab",
        None,
        {},
        [None] * 3,
    ],
)
def test_ids_that_do_not_fit_are_refused(ids, tmp_path):
    _, path = with_ids(tmp_path)
    description = describe(path) | {"public_ids": IDS}
    tensors = load_file(path)
    for name in ("public_indices", "n_prototypes"):
        description.pop(name, None)
    forged(path, description, tensors)
    assert dppl.load(path).public_ids_.tolist() == IDS
    forged(path, description | {"public_ids": ids}, tensors)
    with pytest.raises(ModelFileError, match="is not a complete dppl model"):
        dppl.load(path)


@pytest.mark.parametrize("ids", [[], IDS])
def test_ids_in_a_model_without_public_rows_are_refused(ids, tmp_path):
    path = tmp_path / "m.safetensors"
    model = MODELS["mean"].fit(X, TEXT)
    model.save(path)
    forged(
        path, describe(path) | {"public_ids": ids}, {"prototypes": model.prototypes_}
    )
    with pytest.raises(ModelFileError, match="is not a complete dppl model"):
        dppl.load(path)


def with_examples(tmp_path, texts="ab"):
    model = dppl.SoftmaxPrototypes(ZCDP(1.0), list("abc"))
    rows = EmbeddingTable.of(P[:2], texts=texts)
    model.set_params(public=PublicData(examples=rows, example_classes=["c", "a"])).fit(
        X, TEXT
    ).save(tmp_path / "m.safetensors")
    return model, tmp_path / "m.safetensors"


@pytest.mark.parametrize(
    ("texts", "kept"), [("éb", (("b",), (), ("é",))), (None, None)]
)
def test_what_is_kept_of_examples_comes_back(texts, kept, tmp_path):
    model, path = with_examples(tmp_path, texts)
    again = dppl.load(path)
    assert again.examples_ == model.examples_ == ExamplesKept((1, 0, 1), kept)
    assert to_bytes(again) == to_bytes(model)
    model.set_params(public=None).fit(X, TEXT)
    assert model.examples_ is None
    assert b"examples" not in model.to_bytes()


KEPT = {"counts": [1, 0, 1], "texts": [["a"], [], ["b"]]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": [1, 1]},
        {"counts": [1, -1, 1]},
        {"counts": [1, True, 1]},
        {"counts": 3},
        {"texts": [["a"], ["b"]]},
        {"texts": [["a"], ["b"], []]},
        {"texts": [["a"], [], [1]]},
        {"texts": "a b"},
        {"texts": ["a", "", "b"]},
        {"texts": [{"a": 1}, {}, {"b": 2}]},
        {"texts": [["\ud800"], [], ["b"]]},
        {"counts": [0, 0, 0], "texts": None},
        {"counts": [10**4000, 0, 1], "texts": None},
        {"more": 1},
    ],
)
def test_examples_that_do_not_fit_are_refused(wrong, tmp_path):
    _, path = with_examples(tmp_path)
    description = describe(path)
    tensors = load_file(path)
    for examples, fits in (
        (KEPT, True),
        (KEPT | wrong, False),
        ({"counts": [1, 0, 1]}, False),
        (None, False),
    ):
        forged(path, description | {"examples": examples}, tensors)
        if fits:
            assert dppl.load(path).examples_.to_dict() == examples
        else:
            with pytest.raises(
                ModelFileError, match=r"complete dppl model|cannot be read"
            ):
                dppl.load(path)


def test_examples_in_a_model_that_takes_none_are_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    model = MODELS["mean"].fit(X, TEXT)
    model.save(path)
    forged(path, describe(path) | {"examples": KEPT}, {"prototypes": model.prototypes_})
    with pytest.raises(ModelFileError, match="starts from no examples"):
        dppl.load(path)


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
    forged(path, {"format": 99}, tensors)
    with pytest.raises(ModelFileError, match="format 99"):
        dppl.load(path)
    path.write_text("label,x\n")
    with pytest.raises(ModelFileError, match="not a whole safetensors file"):
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
        # A narrower statistic moves less.
        lambda d: d["guarantee"]["releases"][0]["statistic"].update(dim=11),
        lambda d: d["guarantee"]["releases"][0]["statistic"].update(n_classes=4),
    ],
)
def test_descriptions_that_do_not_fit_together_are_refused(tmp_path, damage):
    model = MODELS["mean"].fit(X, TEXT)
    path = tmp_path / "m.safetensors"
    model.save(path)
    description = describe(path)
    damage(description)
    forged(path, description, {"prototypes": model.prototypes_})
    with pytest.raises(
        ModelFileError,
        match=r"is not a complete dppl model|holds a os\.system, which is no method",
    ):
        dppl.load(path)


def test_a_model_that_no_file_holds_is_refused_before_it_is_paid(tmp_path, monkeypatch):
    from dppl._utils import outside, tensorfile

    ledger = dppl.Ledger(tmp_path / "ledger.db", "wards", PureDP(10.0))
    ids = [f"photo {row}" for row in range(len(P))]
    pq.write_table(pa.table({"x": list(P), "id": ids}), tmp_path / "public.parquet")
    public = PublicData(read_table(tmp_path / "public.parquet"))
    model = PublicPrototypes(PureDP(1.0), list("abc"), public=public, n_prototypes=9)
    for name in ("MOST_BYTES", "MOST_PARTS"):
        model.fit(X, TEXT)
        described = json.dumps(describe_of(model, tmp_path))
        most = {"MOST_BYTES": len(described), "MOST_PARTS": outside.n_parts(described)}
        with monkeypatch.context() as patch:
            patch.setattr(tensorfile, name, most[name] // 2)
            with pytest.raises(ParameterError, match="more than a model file takes"):
                model.fit(X, TEXT, ledger=ledger)
            patch.setattr(tensorfile, name, 2 * most[name])
            model.fit(X, TEXT)
    assert ledger.releases() == []


def test_a_search_that_no_file_holds_is_refused_before_it_is_paid(
    tmp_path, monkeypatch
):
    from dppl._utils import tensorfile

    budget = dppl.ApproxDP(1.0, 1e-6)
    ledger = dppl.Ledger(tmp_path / "l.db", "wards", budget, accounting="renyi")
    estimator = MeanPrototypes(budget, list("abc"))
    search = dppl.PrivateSearch(estimator, {"lattice__pool": [1]}, mean_runs=2)
    monkeypatch.setattr(tensorfile, "MOST_PARTS", 9)
    with pytest.raises(ParameterError, match="more than a model file takes"):
        search.fit(X, TEXT, ledger=ledger)
    assert ledger.releases() == []


def describe_of(model, folder):
    """Return what the file of a model says."""
    model.save(folder / "d.safetensors", overwrite=True)
    return describe(folder / "d.safetensors")


def overspending(description):
    """Let releases cost more than the budget."""
    description["guarantee"]["releases"][0]["cost"] = {"mu": 2.0, "rho": 2.0}


def without_mu(description):
    """Take the cost in Gaussian DP from releases under a budget in it."""
    description["guarantee"]["releases"][0]["cost"].pop("mu")


@pytest.mark.parametrize("damage", [overspending, without_mu])
def test_releases_that_a_gaussian_budget_does_not_cover_are_refused(tmp_path, damage):
    model = MeanPrototypes(GaussianDP(1.0), list("abc")).fit(X, TEXT)
    path = tmp_path / "m.safetensors"
    model.save(path)
    description = describe(path)
    assert description["guarantee"]["budget"] == {"mu": 1.0}
    assert dppl.load(path).guarantee_.mu == model.guarantee_.mu <= 1.0
    damage(description)
    forged(path, description, {"prototypes": model.prototypes_})
    with pytest.raises(
        ModelFileError, match=r"cost more than its budget|contradict each other"
    ):
        dppl.load(path)


@pytest.mark.parametrize(
    "cost",
    [
        {"mu": 0.001, "rho": 0.5},
        {"mu": 1.0, "rho": 0.5, "epsilon": 1e-6},
        {"mu": 2.0, "rho": 0.125, "epsilon": 1.0},
    ],
)
def test_costs_that_contradict_each_other_are_refused(tmp_path, cost):
    """Each alone might fit into the budget; a mu beside an epsilon is that of one selection."""
    model = MeanPrototypes(ZCDP(0.5), list("abc")).fit(X, TEXT)
    path = tmp_path / "m.safetensors"
    model.save(path)
    description = describe(path)
    description["guarantee"]["releases"][0]["cost"] = cost
    forged(path, description, {"prototypes": model.prototypes_})
    with pytest.raises(ModelFileError, match="is not a complete dppl model"):
        dppl.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"times": 4},
        {"sensitivity": -5.0},
        {"sensitivity": 1e9},
        {"parameters": {"noise_std": 1e-9}},
    ],
)
def test_noise_that_costs_more_than_is_stated_is_refused(tmp_path, change):
    model = MeanPrototypes(ZCDP(0.5), list("abc")).fit(X, TEXT)
    path = tmp_path / "m.safetensors"
    model.save(path)
    description = describe(path)
    description["guarantee"]["releases"][0] |= change
    forged(path, description, {"prototypes": model.prototypes_})
    with pytest.raises(ModelFileError, match="is not a complete dppl model"):
        dppl.load(path)


@pytest.mark.parametrize("version", [0, 1, 3, "2", 1.5, None])
def test_no_other_format_is_read(version, tmp_path):
    path = tmp_path / "m.safetensors"
    MODELS["mean"].fit(X, TEXT).save(path)
    forged(path, describe(path) | {"format": version})
    with pytest.raises(
        ModelFileError,
        match=f"has format {version!r}; this version of dppl reads format 5",
    ):
        dppl.load(path)


def test_prototypes_that_are_not_numbers_are_refused(tmp_path):
    model = MODELS["mean"].fit(X, TEXT)
    path = tmp_path / "m.safetensors"
    model.save(path)
    forged(
        path, describe(path), {"prototypes": np.full_like(model.prototypes_, np.nan)}
    )
    with pytest.raises(ModelFileError, match="is not a complete dppl model"):
        dppl.load(path)


def test_a_flipped_byte_is_refused_wherever_it_is(tmp_path):
    """Bit by bit in turn, so that what looks like another number, name or letter of the header is among them."""
    content = to_bytes(MODELS["public"].set_params(public=PublicData(P)).fit(X, NUMBER))
    path = tmp_path / "m.safetensors"
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(
            ModelFileError,
            match=r"whole safetensors|not a dppl model|is damaged|has no checksum|be read",
        ):
            dppl.load(path)
    for flip in (
        0x20,
        0xFF,
    ):  # another case of a letter, another kind of space; all bits
        for place in range(flip % 7, len(content), 7):
            path.write_bytes(
                content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :]
            )
            with pytest.raises(ModelFileError):
                dppl.load(path)


def test_a_file_without_its_checksum_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    MODELS["mean"].fit(X, TEXT).save(path)
    save_file(load_file(path), path, {"dppl": json.dumps(describe(path))})
    with pytest.raises(ModelFileError, match="has no checksum"):
        dppl.load(path)


def test_models_of_earlier_versions_load_predict_and_verify():
    """docs/stability.md promises it; the file of a version is never written again once that is out."""
    sample = load_sample()
    kept = sorted((Path(__file__).parents[2] / "files").glob("*.safetensors"))
    for path in kept:
        model = dppl.load(path)
        assert model.score(sample.X_test, sample.y_test) > 0.9
        assert dppl.verify(model).holds
    assert kept
