"""Files of models and checkpoints that are damaged, or made to look like one: a clear refusal, and nothing else."""

import contextlib
import json
import pickle
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from dppl import GaussianDP, Ledger, MeanPrototypes
from dppl._utils import tensorfile
from dppl.errors import InputError, ModelFileError, ParameterError
from dppl.finetune import Recipe, SparseFinetuner, select_weights
from dppl.finetune.checkpoint import Checkpoint
from dppl.finetune.network_file import read
from overhearing import overheard
from unit.finetune.conftest import Trainer, labelled_images, network

MODEL = "dppl_finetune"
CHECKPOINT = "dppl_checkpoint"
CLASSES = ["a", "b", "c"]


def forged(path, key, change, tensors=None):
    """Write a file again with other fields and the checksum that fits them; `change` is called with the fields."""
    fields, found = tensorfile.read(path, key)
    fields = change(fields) or fields
    path.write_bytes(
        tensorfile.to_bytes(key, fields, found if tensors is None else tensors(found))
    )


def put(*keys, value):
    def change(fields):
        place = fields
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def without(*keys):
    def change(fields):
        place = fields
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]

    return change


@pytest.fixture(scope="module")
def trained(torch, tmp_path_factory):
    X, y = labelled_images()
    options = {
        "sampling_rate": 1.0,
        "recipe": Recipe(epochs=2, batch_size=40.0),
        "sparsity": 0.1,
    }
    model = SparseFinetuner(network(torch), GaussianDP(1.0), CLASSES, **options)
    path = tmp_path_factory.mktemp("trained") / "model.safetensors"
    model.fit(X, np.array(CLASSES)[y]).save(path)
    return path


@pytest.fixture
def model_file(trained, tmp_path):
    return Path(shutil.copy(trained, tmp_path))


def trainer(net, **options):
    return Trainer(
        net,
        select_weights(net, ("head",)),
        GaussianDP(1.0),
        **{"steps": 4, "batch_size": 40.0, **options},
    )


@pytest.fixture(scope="module")
def interrupted(torch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupted")

    def stop(step):
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(network(torch)).fit(
            *labelled_images(),
            checkpoint=folder / "run.ckpt",
            ledger=Ledger(folder / "ledger.db", "images", GaussianDP(5.0)),
            progress=stop,
        )
    return folder


@pytest.fixture
def checkpoint(interrupted, tmp_path):
    return shutil.copytree(interrupted, tmp_path, dirs_exist_ok=True) / "run.ckpt"


def mutated(content, rng):
    """Change a few bytes, or cut, repeat or move a part."""
    content = bytearray(content)
    kind = rng.integers(5)
    at = rng.integers(len(content))
    # Half of the changes are in the header, where most of the meaning is.
    at = at % (8 + struct.unpack("<Q", content[:8])[0]) if rng.integers(2) else at
    length = int(rng.integers(1, 40))
    if kind == 0:
        content[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        content[at : at + length] = rng.bytes(length)
    elif kind == 2:
        del content[at : at + length]
    elif kind == 3:
        content[at:at] = content[at : at + length]
    else:
        content[at:at] = rng.choice(
            [b"0", b"9" * 30, b"-", b"null", b"[", b'"', b"NaN", b"1e308"]
        )
    return bytes(content)


def accepted(path, original, rng, times, read):
    """Return how many of so many mutations were read."""
    count = 0
    for _ in range(times):
        content = mutated(original, rng)
        if content == original:
            continue
        path.write_bytes(content)
        with contextlib.suppress(InputError, ParameterError):
            read()
            count += 1
    return count


def test_mutations_of_a_model_are_refused(net, model_file, tmp_path):
    """Without the checksum one in twenty is read, as the control shows; 500 would miss that with probability 1e-11."""
    original = model_file.read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "mutated"
    assert (
        accepted(path, original, rng, 500, lambda: SparseFinetuner.load(path, net)) == 0
    )


def test_a_model_without_its_checksum_would_be_read_with_other_weights(
    net, model_file, tmp_path, monkeypatch
):
    """The negative control."""
    content = tensorfile.read(model_file, MODEL)
    monkeypatch.setattr(
        tensorfile,
        "sha256",
        lambda content: SimpleNamespace(hexdigest=lambda: "f" * 64),
    )
    original = tensorfile.to_bytes(MODEL, *content)
    path = tmp_path / "mutated"
    found = accepted(
        path,
        original,
        np.random.default_rng(0),
        400,
        lambda: SparseFinetuner.load(path, net),
    )
    assert found > 10


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[:-9], "is not a whole safetensors file"),
        (lambda content: content[:-1] + b"!", "is damaged: its checksum is not"),
        (put("format", value=7), "has format 7; this version of dppl reads format 6"),
        (put("more", value=[0] * 2**20), "cannot be read: a text .* 1048576 parts"),
        (put("width", value=3), "its parts contradict each other"),
        (None, "holds a classifier of embeddings; dppl.load reads it"),
    ],
)
def test_a_refused_model_says_why(net, model_file, damage, reason):
    content = model_file.read_bytes()
    if damage is None:
        model = MeanPrototypes(GaussianDP(0.1), ["a"]).fit(np.eye(2), ["a", "a"])
        model.save(model_file, overwrite=True)
    elif reason.startswith("is "):
        model_file.write_bytes(damage(content))
    else:
        forged(model_file, MODEL, damage)
    with pytest.raises(ModelFileError, match=reason):
        SparseFinetuner.load(model_file, net)


def test_a_model_that_no_file_holds_is_refused_before_it_is_paid(
    net, images, tmp_path, monkeypatch
):
    ledger = Ledger(tmp_path / "l.db", "images", GaussianDP(1.0))
    model = SparseFinetuner(
        net, GaussianDP(0.5), range(5), train=("norm",), recipe=Recipe(epochs=1)
    )
    monkeypatch.setattr(tensorfile, "MOST_BYTES", 2**16)
    with pytest.raises(ParameterError, match="more than a model file takes"):
        model.fit(*images, ledger=ledger)
    assert ledger.releases() == []


def test_a_flipped_byte_of_a_model_is_refused_wherever_it_is(model_file):
    content = model_file.read_bytes()
    for place in range(0, len(content), 3):
        model_file.write_bytes(
            content[:place]
            + bytes([content[place] ^ 1 << place % 8])
            + content[place + 1 :]
        )
        with pytest.raises(ModelFileError):
            read(model_file)


def test_mutations_of_a_checkpoint_are_refused(net, checkpoint):
    original = checkpoint.read_bytes()
    rng = np.random.default_rng(1)
    with safe_open(checkpoint, framework="numpy") as file:
        identity = json.loads(file.metadata()[CHECKPOINT])["identity"]
    assert Checkpoint(checkpoint, identity).read(65, 4).begun == 2
    assert (
        accepted(
            checkpoint,
            original,
            rng,
            500,
            lambda: Checkpoint(checkpoint, identity).read(65, 4),
        )
        == 0
    )


@pytest.mark.parametrize(
    "change",
    [
        *(
            without(name)
            for name in (
                "format",
                "estimator",
                "encoder",
                "module",
                "parameters",
                "classes",
                "guarantee",
            )
        ),
        put("format", value=99),
        put("module", value=None),
        put("encoder", value=["timm:x"]),
        put("classes", value=[]),
        put("classes", value=["c", "b", "a"]),
        put("classes", value=["a", "a", "b"]),
        put("classes", value=["a", "b"]),
        put("classes", value=["a", "b", 3]),
        put("classes", value=[None, 1, 2]),
        put("classes", value=[["a"], ["b"], ["c"]]),
        put("classes", value=["a", "b", "c\0"]),
        put("classes", value={"a": 1, "b": 2, "c": 3}),
        put("classes", value=list(range(300_000))),
        put("parameters", value=[]),
        put("parameters", "sparsity", value=-1),
        put("parameters", "sparsity", value="0.1"),
        put("parameters", "sparsity", value=10**40),
        put("parameters", "train", value=7),
        put("parameters", "train", value=[]),
        put("parameters", "train", value=["body"]),
        put("parameters", "train", value=[["head"]]),
        put("parameters", "train", value=["head"]),
        put("parameters", "head", value=["8"]),
        put("parameters", "head", value="0"),
        put("parameters", "recipe", "block", value=0),
        put("parameters", "recipe", "block", value="32"),
        put("parameters", "recipe", "precision", value="float8"),
        put("parameters", "recipe", value=[]),
        without("parameters", "recipe", "clip"),
        put("parameters", "random_state", value=0),
        put("guarantee", "budget", value={"mu": 1e-3}),
        put("guarantee", "budget", value={"mu": "1"}),
        put("guarantee", "releases", value=[]),
        put("guarantee", "releases", 0, "cost", "mu", value=0.5),
        put("guarantee", "releases", 0, "parameters", "noise_std", value=1.0),
        put("guarantee", "releases", 0, "times", value=0),
        put("guarantee", "adjacency", value="replace-one"),
        put("guarantee", "secure_noise", value="yes"),
        put("guarantee", "not_covered", value="nothing"),
    ],
)
def test_forged_descriptions_of_a_model_are_refused(net, model_file, change):
    original = model_file.read_bytes()
    forged(model_file, MODEL, lambda fields: None)
    SparseFinetuner.load(model_file, net)
    forged(model_file, MODEL, change)
    with pytest.raises(ModelFileError):
        SparseFinetuner.load(model_file, net)
    model_file.write_bytes(original)


@pytest.mark.parametrize(
    "tensors",
    [
        lambda found: {},
        lambda found: {"values": found["values"][:-1]},
        lambda found: {"values": found["values"][:, None]},
        lambda found: {"values": np.array(3.0, np.float32)},
        lambda found: {"values": found["values"].astype(np.float64)},
        lambda found: {
            "values": np.where(
                found["values"] == found["values"].max(),
                np.float32("nan"),
                found["values"],
            )
        },
        lambda found: {"values": found["values"], "records": found["values"]},
    ],
)
def test_forged_weights_of_a_model_are_refused(net, model_file, tensors):
    original = model_file.read_bytes()
    forged(model_file, MODEL, lambda fields: None, tensors)
    with pytest.raises(ModelFileError):
        SparseFinetuner.load(model_file, net)
    model_file.write_bytes(original)


def test_a_model_whose_kept_head_has_other_outputs_predicts_nothing(
    net, images, tmp_path
):
    path = tmp_path / "model.safetensors"
    options = {
        "sampling_rate": 1.0,
        "recipe": Recipe(epochs=1, batch_size=40.0),
        "train": ("norm",),
    }
    model = SparseFinetuner(net, GaussianDP(1.0), range(5), **options).fit(*images)
    model.save(path)
    for classes in ([0, 1], list(range(9))):
        forged(path, MODEL, put("classes", value=classes))
        with pytest.raises(InputError, match="another number of logits"):
            SparseFinetuner.load(path, net).predict(images[0])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 8,
        pickle.dumps({"values": [1.0]}),
        struct.pack("<Q", 2**62) + b"{}",
        struct.pack("<Q", 90)
        + b'{"values":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'.ljust(
            90
        ),
        save({"values": np.ones(3, np.float32)}),
        save(
            {"values": np.ones(3, np.float32)},
            {MODEL: "[" * 100_000, CHECKPOINT: "[" * 100_000},
        ),
        save({"values": np.ones(3, np.float32)}, {MODEL: "[]", CHECKPOINT: "[]"}),
        save(
            {"values": np.ones(3, np.float32)},
            {MODEL: "9" * 10_000, CHECKPOINT: "9" * 10_000},
        ),
    ],
    # Not by content: safetensors writes metadata in any order, and parallel runs
    # compare names.
    ids=[
        "empty",
        "zeros",
        "pickle",
        "endless",
        "huge",
        "bare",
        "deep",
        "lists",
        "numbers",
    ],
)
def test_other_files_are_neither_models_nor_checkpoints(net, images, tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ModelFileError):
        SparseFinetuner.load(path, net)
    with (
        overheard() as heard,
        pytest.raises(InputError, match="damaged, or not a checkpoint"),
    ):
        trainer(net).fit(*images, checkpoint=path)
    assert not heard


@pytest.mark.parametrize(
    ("change", "tensors"),
    [
        *((without(name), None) for name in ("identity", "begun")),
        (put("identity", value="0" * 64), None),
        *(
            (put("begun", value=value), None)
            for value in (-3, 5, 10**30, 1.0, True, "2", None)
        ),
        *((put("run", value=value), None) for value in (None, 7, "", ["a" * 32])),
        (put("begun", value=1), lambda found: {"values": found["values"]}),
        (put("begun", value=1), lambda found: found | {"more": found["values"]}),
        (
            put("begun", value=1),
            lambda found: found | {"velocity": found["velocity"][:1]},
        ),
        (
            put("begun", value=1),
            lambda found: found | {"velocity": found["velocity"][:, None]},
        ),
        (
            put("begun", value=1),
            lambda found: {name: part[:-1] for name, part in found.items()},
        ),
        (
            put("begun", value=1),
            lambda found: found | {"values": found["values"].astype(np.float64)},
        ),
    ],
)
def test_forged_checkpoints_are_refused(net, images, checkpoint, change, tensors):
    original = checkpoint.read_bytes()
    forged(checkpoint, CHECKPOINT, change, tensors)
    ledger = Ledger(checkpoint.parent / "ledger.db", "images")
    with (
        overheard() as heard,
        pytest.raises(InputError, match=r"damaged, or not|contradicts itself"),
    ):
        trainer(net).fit(*images, checkpoint=checkpoint, ledger=ledger)
    assert not heard
    assert len(ledger.releases()) == 1
    checkpoint.write_bytes(original)


def test_a_checkpoint_that_claims_fewer_steps_than_the_ledger_knows_draws_nothing(
    net, images, tmp_path, checkpoint
):
    forged(checkpoint, CHECKPOINT, put("begun", value=1))
    ledger = Ledger(tmp_path / "ledger.db", "images")
    with overheard() as heard, pytest.raises(InputError, match="knows of 2 steps"):
        trainer(net).fit(*images, checkpoint=checkpoint, ledger=ledger)
    assert not heard


def test_a_checkpoint_shows_nothing_that_only_it_says(
    net, images, tmp_path, checkpoint
):
    forged(checkpoint, CHECKPOINT, put("identity", value={"secret": "Jane Doe"}))
    with pytest.raises(ParameterError, match="another budget") as caught:
        trainer(net).fit(
            *images,
            checkpoint=checkpoint,
            ledger=Ledger(tmp_path / "ledger.db", "images"),
        )
    assert "Jane" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_small_file_makes_no_large_head(net, model_file, monkeypatch):
    """Nearly as many classes as weights: a head of twelve inputs would be twelve times the file, others 2,000 times."""
    made = []
    whole = SparseFinetuner._selected
    monkeypatch.setattr(
        SparseFinetuner, "_selected", lambda self, n: made.append(n) or whole(self, n)
    )
    SparseFinetuner.load(model_file, net)
    assert made == [3]
    _, tensors = tensorfile.read(model_file, MODEL)
    forged(
        model_file, MODEL, put("classes", value=list(range(len(tensors["values"]) - 1)))
    )
    with pytest.raises(ModelFileError):
        SparseFinetuner.load(model_file, net)
    assert made == [3]
