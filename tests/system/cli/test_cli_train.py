"""`dppl train`, `dppl predict` on images and texts, and `dppl show --public`. What they tell: test_cli_leaks.py."""

import base64
import csv
import importlib
import io
import json
import re
import shutil
import stat
import tempfile
import weakref
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import dppl
from command_line import invoke
from dppl import PublicData
from dppl.encoders import load_encoder
from dppl.encoders.fixed import FixedShapeEncoder
from dppl.io import open_source, write_table
from dppl.kernel import reading
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.terms import PublicInput, Term
from dppl.methods.public_data import ExamplesKept
from dppl.training import embedding, pipeline

classifier = importlib.import_module("dppl.training.classifier")

ALPHABETS = {"cat": "abcde", "dog": "fghij", "gnu": "klmno"}
CLASSES = list(ALPHABETS)
Y = np.repeat(CLASSES, (20, 12, 5)).tolist()


def texts_of(names, seed):
    rng = np.random.default_rng(seed)
    return [
        "".join(rng.choice(list(ALPHABETS[name]), rng.integers(3, 30)))
        for name in names
    ]


TEXTS, NEW, POOL = (texts_of(Y, seed) for seed in range(3))


def write_csv(path, texts, labels=None):
    lines = (
        texts
        if labels is None
        else [f"{text},{label}" for text, label in zip(texts, labels, strict=True)]
    )
    path.write_text("\n".join(["text" if labels is None else "text,label", *lines, ""]))


@pytest.fixture
def mails(tmp_path, monkeypatch, letters):
    """A folder with private, public and new texts, in which commands run."""
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "mails.csv", TEXTS, Y)
    write_csv(tmp_path / "new.csv", NEW)
    (tmp_path / "pool.txt").write_text("".join(f"{text}\n" for text in POOL))
    (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    return tmp_path


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Folders with private images, dark, grey and bright, and with public ones in all shades and forms."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)

    def write(path, shade, size=(20, 30)):
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(shade + rng.integers(-20, 20, (*size, 3)), 0, 255).astype(
            np.uint8
        )
        Image.fromarray(pixels).save(path)

    for name, shade in zip(CLASSES, (20, 128, 235), strict=True):
        for number in range(8):
            write(tmp_path / "photos" / name / f"{number}.png", shade)
    for number, shade in enumerate(range(0, 260, 15)):
        write(tmp_path / "pool" / f"p{number:02}.jpg", shade, (20 + 3 * number, 60))
    (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    return tmp_path


TRAIN = [
    "train",
    "mails.csv",
    "--encoder",
    "letters",
    "--classes",
    "classes.txt",
    "--out",
    "m.safetensors",
]
EXACT = ["--mu", "1e4", "--weak", "--options", "random_state=3"]  # hardly any noise
WEAK = f"dppl: note: {dppl.GaussianDP(1e4).weakness}\n"  # what stderr says first of such a budget
SELECT = [
    "--epsilon",
    "500",
    "--weak",
    "--method",
    "public",
    "--options",
    "random_state=1",
    "--options",
    "n_prototypes=2",
]


@pytest.fixture
def error_line(error_line):
    """Return the one line of an error, which the note on a weak budget may precede."""
    return lambda result: error_line(
        SimpleNamespace(stdout=result.stdout, stderr=result.stderr.removeprefix(WEAK))
    )


def rows_of(result):
    """Return the lines of a CSV file on stdout below its header."""
    header, *rows = [line.split(",") for line in result.stdout.splitlines()]
    assert header == ["id", "label"]
    return rows


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_from_texts_to_predictions(mails, cli):
    before = names_in(mails)
    result = cli(*TRAIN, *EXACT, "--public", "pool.txt")
    assert (result.exit_code, result.stderr) == (0, WEAK)
    assert result.stdout.startswith(
        "SoftmaxPrototypes: 3 classes, 27 features, add-remove. Started from "
    )
    assert (
        "Before you trust the model, the owner of the records must read m.safetensors.private.jsonl: "
        in result.stdout.splitlines()[-1]
    )
    assert set(names_in(mails)) - set(before) == {
        "m.safetensors",
        "m.safetensors.private.jsonl",
    }
    assert stat.S_IMODE((mails / "m.safetensors.private.jsonl").stat().st_mode) == 0o600
    assert (
        "encoder               letters (tests, pooling none, float32, weights version 1)"
        in cli("show", "m.safetensors").stdout
    )

    raw = cli("predict", "m.safetensors", "new.csv")
    assert (raw.exit_code, raw.stderr) == (0, "")
    assert rows_of(raw) == [[str(row), label] for row, label in enumerate(Y, 1)]
    assert (
        cli("predict", "m.safetensors", "new.csv", "--out", "labels.csv").exit_code == 0
    )
    assert (mails / "labels.csv").read_text() == raw.stdout
    assert (
        cli("embed", "new.csv", "--encoder", "letters", "--out", "new").exit_code == 0
    )
    assert cli("predict", "m.safetensors", "new").stdout == raw.stdout


def test_new_records_may_have_another_form_than_those_of_the_fit(mails, cli):
    assert cli(*TRAIN, *EXACT).exit_code == 0
    labels = [label for _, label in rows_of(cli("predict", "m.safetensors", "new.csv"))]
    (mails / "new.csv").write_text(
        "key,body\n" + "".join(f"k{row},{text}\n" for row, text in enumerate(NEW))
    )
    found = cli(
        "predict",
        "m.safetensors",
        "new.csv",
        "--x",
        "body",
        "--read",
        "id=key",
        DPPL_DEVICE="cpu",
    )
    assert rows_of(found) == [[f"k{row}", label] for row, label in enumerate(labels)]
    (mails / "new").write_text("".join(f"{text}\n" for text in NEW))
    assert rows_of(cli("predict", "m.safetensors", "new", "--read", "kind=text")) == [
        [str(row), label] for row, label in enumerate(labels, 1)
    ]


def test_a_model_is_evaluated_on_raw_records(mails, photos, cli, error_line):
    assert cli(*TRAIN, *EXACT).exit_code == 0
    write_csv(mails / "test.csv", NEW, Y)
    report = json.loads(cli("evaluate", "m.safetensors", "test.csv", "--json").stdout)
    assert (report["accuracy"], report["n"]) == (1.0, len(Y))
    write_csv(mails / "test.csv", NEW, ["gnu"] * 20 + Y[20:])
    report = json.loads(
        cli(
            "evaluate", "m.safetensors", "test.csv", "--json", "--encoder", "letters"
        ).stdout
    )
    assert report["accuracy"] == pytest.approx(17 / 37)
    for options, words in (
        (["new.csv"], "has no labels"),
        (["photos"], "for images"),
        (
            ["test.csv", "--y", "animal"],
            "--y must be one column of test.csv; got 'animal'",
        ),
    ):
        result = cli("evaluate", "m.safetensors", *options)
        assert result.exit_code
        assert words in error_line(result)


def test_columns_of_the_public_pool(mails, cli):
    """Their names are those of the pool, whatever those of the private records are."""
    pool = [text for text in POOL if "," not in text]
    (mails / "pool.csv").write_text(
        "key,body\n" + "".join(f"k{row},{text}\n" for row, text in enumerate(pool))
    )
    assert cli(*TRAIN, *SELECT, "--public", "pool.csv").exit_code == 4
    assert (
        cli(
            "embed", "pool.csv", "--x", "body", "--encoder", "letters", "--out", "pool"
        ).exit_code
        == 0
    )
    assert cli(*TRAIN, *SELECT, "--public", "pool").exit_code == 0
    assert (
        cli(
            "show",
            "m.safetensors",
            "--public",
            "pool.csv",
            "--read",
            "x=body",
            "--out",
            "p.md",
        ).exit_code
        == 0
    )
    chosen = [
        pool[int(row) - 1] for row in dppl.load("m.safetensors").public_ids_.ravel()
    ]
    assert all(text in (mails / "p.md").read_text() for text in chosen)


def test_ids_of_a_column_lead_back_to_the_texts(mails, cli):
    (mails / "pool.csv").write_text(
        "key,text\n" + "".join(f"k{row},{text}\n" for row, text in enumerate(POOL))
    )
    assert (
        cli("embed", "mails.csv", "--encoder", "letters", "--out", "train").exit_code
        == 0
    )
    assert (
        cli(
            "embed",
            "pool.csv",
            "--read",
            "id=key",
            "--encoder",
            "letters",
            "--out",
            "public",
        ).exit_code
        == 0
    )
    fit = [
        "fit",
        "train",
        "--classes",
        "classes.txt",
        "--public",
        "public",
        *SELECT,
        "--out",
        "m.safetensors",
    ]
    assert cli(*fit).exit_code == 0
    assert (
        cli("show", "m.safetensors", "--public", "pool.csv", "--out", "p.md").exit_code
        == 4
    )
    assert (
        cli(
            "show",
            "m.safetensors",
            "--public",
            "pool.csv",
            "--read",
            "id=key",
            "--out",
            "p.md",
        ).exit_code
        == 0
    )
    chosen = [
        POOL[int(key[1:])] for key in dppl.load("m.safetensors").public_ids_.ravel()
    ]
    assert len(chosen) == 6
    assert all(text in (mails / "p.md").read_text() for text in chosen)


def test_it_is_embed_and_fit_one_after_the_other(mails, cli):
    assert (
        cli(*TRAIN, *EXACT, "--public", "pool.txt", "--descriptions", "none").exit_code
        == 0
    )
    for source, out in (("mails.csv", "train"), ("pool.txt", "public")):
        assert cli("embed", source, "--encoder", "letters", "--out", out).exit_code == 0
    options = ["--classes", "classes.txt", "--public", "public", *EXACT]
    assert cli("fit", "train", *options, "--out", "fit.safetensors").exit_code == 0
    content = (mails / "m.safetensors").read_bytes()
    assert (mails / "fit.safetensors").read_bytes() == content
    # A table as the public pool does as well.
    assert (
        cli(
            *TRAIN, *EXACT, "--public", "public", "--descriptions", "none", "--force"
        ).exit_code
        == 0
    )
    assert (mails / "m.safetensors").read_bytes() == content


def test_described_it_is_embed_and_fit_with_examples(mails, cli):
    """But for the texts, which a table of embeddings does not hold."""
    write_csv(mails / "names.csv", CLASSES, CLASSES)
    assert cli(*TRAIN, "--mu", "1", "--options", "random_state=3").exit_code == 0
    for source, out in (("mails.csv", "train"), ("names.csv", "named")):
        assert cli("embed", source, "--encoder", "letters", "--out", out).exit_code == 0
    options = [
        "--classes",
        "classes.txt",
        "--examples",
        "named",
        "--mu",
        "1",
        "--options",
        "random_state=3",
    ]
    assert cli("fit", "train", *options, "--out", "fit.safetensors").exit_code == 0
    described = dppl.load("m.safetensors")
    fitted = dppl.load("fit.safetensors")
    np.testing.assert_array_equal(described.coef_, fitted.coef_)
    assert str(described.guarantee_) == str(fitted.guarantee_)
    assert described.examples_ == ExamplesKept(
        (1, 1, 1), (("cat",), ("dog",), ("gnu",))
    )
    assert fitted.examples_ == ExamplesKept((1, 1, 1))


NOT_NAMED = "The classes are not described, since some names are not words; see --descriptions.\n"


@pytest.mark.parametrize(
    ("names", "options", "said", "used"),
    [
        (CLASSES, [], None, True),
        (CLASSES, ["--descriptions", "none"], None, False),
        (CLASSES, ["--descriptions", "names"], None, True),
        (["1", "2", "3"], [], NOT_NAMED, False),
        (["1", "2", "3"], ["--descriptions", "names"], None, True),
        (CLASSES, ["--method", "mean"], None, False),
        (CLASSES, ["--method", "mean", "--descriptions", "none"], None, False),
    ],
)
def test_it_is_said_whether_class_names_are_used(
    names, options, said, used, mails, cli
):
    """Which depends on the public class list, the encoder, the method and the option, and on nothing else."""
    (mails / "classes.txt").write_text("".join(f"{name}\n" for name in names))
    write_csv(mails / "mails.csv", TEXTS, [names[CLASSES.index(label)] for label in Y])
    (mails / "classes.csv").write_text("class,text\n")
    result = cli(*TRAIN, "--mu", "1", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert (NOT_NAMED in result.stdout) == (said is not None)
    assert (
        " Started from public examples: 3, for 3 of 3 classes. " in result.stdout
    ) == used
    shown = cli("show", "m.safetensors").stdout
    assert (
        "public descriptions" in shown,
        "public examples 3, for 3 of 3 classes" in " ".join(shown.split()),
    ) == (used, used)
    assert (
        "written or chosen by looking at private records" in " ".join(shown.split())
    ) == used
    assert (
        "| public examples |" in cli("show", "m.safetensors", "--for", "hub").stdout
    ) == used


DESCRIBED = 'text,class\nabcab,cat\n"abe, ced",cat\nfghij,dog\n'


def test_descriptions_come_from_a_file(mails, cli):
    (mails / "described.csv").write_text(DESCRIBED)
    result = cli(*TRAIN, "--mu", "1", "--descriptions", "described.csv")
    assert (result.exit_code, result.stderr) == (0, "")
    kept = ExamplesKept((2, 1, 0), (("abcab", "abe, ced"), ("fghij",), ()))
    assert dppl.load("m.safetensors").examples_ == kept
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in cli("show", "m.safetensors").stdout.splitlines()
    ]
    assert [row for row in rows if len(row) == 2] == [
        ["cat", "abcab"],
        ["", "abe, ced"],
        ["dog", "fghij"],
    ]
    card = cli("show", "m.safetensors", "--for", "hub").stdout
    assert "| public descriptions | cat: abcab / abe, ced, dog: fghij |" in card
    assert (
        json.loads(cli("show", "m.safetensors", "--json").stdout)["examples"]
        == kept.to_dict()
    )


def test_a_folder_of_public_images_describes_classes(photos, cli):
    train = [
        "train",
        "photos",
        "--encoder",
        "pixels",
        "--classes",
        "classes.txt",
        "--mu",
        "0.3",
        "--options",
        "random_state=1",
    ]
    rng = np.random.default_rng(1)
    for name, shade in zip(CLASSES, (20, 128, 235), strict=True):
        (photos / "examples" / name).mkdir(parents=True)
        pixels = np.clip(shade + rng.integers(-20, 20, (20, 30, 3)), 0, 255).astype(
            np.uint8
        )
        Image.fromarray(pixels).save(photos / "examples" / name / "1.png")
    result = cli(*train, "--descriptions", "examples", "--out", "m.safetensors")
    assert (result.exit_code, result.stderr) == (0, "")
    model = dppl.load("m.safetensors")
    assert model.examples_ == ExamplesKept((1, 1, 1))
    python = dppl.PrivateClassifier(
        "pixels", dppl.GaussianDP(0.3), CLASSES, random_state=1
    )
    python.set_params(descriptions=photos / "examples")
    images = sorted((photos / "photos").rglob("*.png"))
    python.fit(images, [path.parent.name for path in images])
    assert python.model_.to_bytes() == (photos / "m.safetensors").read_bytes()


def test_a_budget_in_gaussian_dp_is_spent_and_mixes_with_no_other(
    mails, cli, error_line
):
    result = cli(*TRAIN, "--mu", "1.5", "--options", "random_state=3")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(
        "SoftmaxPrototypes: 3 classes, 27 features, add-remove. Started from "
    )
    assert "\nGuarantee: NOT FOR RELEASE" in result.stdout
    assert " (mu = 1.5); a guess" in result.stdout
    assert dppl.load("m.safetensors").guarantee_.budget == dppl.GaussianDP(1.5)
    mixed = cli(*TRAIN, "--force", "--mu", "2", "--epsilon", "1")
    assert (mixed.exit_code, "exactly one budget" in error_line(mixed)) == (2, True)


# What cannot be used


def test_records_that_cannot_be_used_are_left_out_and_listed(mails, cli):
    assert cli(*TRAIN, *EXACT).exit_code == 0
    content = (mails / "m.safetensors").read_bytes()
    write_csv(mails / "mails.csv", ["", *TEXTS, "an odd one"], ["cat", *Y, "gnu"])
    assert cli(*TRAIN, *EXACT, "--force").exit_code == 0
    assert (mails / "m.safetensors").read_bytes() == content
    notice, *left_out, totals = map(
        json.loads, (mails / "m.safetensors.private.jsonl").read_text().splitlines()
    )
    assert "For the owner of the records only" in notice["notice"]
    assert [entry["reference"] for entry in left_out] == ["row 1", "row 39"]
    assert totals["embedded"] == len(TEXTS)
    write_csv(mails / "new.csv", ["abc", "odd", "klm"])
    result = cli("predict", "m.safetensors", "new.csv")
    assert result.exit_code == 0
    assert rows_of(result) == [["1", "cat"], ["2", ""], ["3", "gnu"]]
    assert "cannot be used, and their labels are empty: row 2." in result.stderr


@pytest.mark.slow
def test_the_command_and_python_make_the_same_model_and_predictions(mails, cli):
    texts = ["", *TEXTS, "an odd one", "abc"]
    labels = ["cat", *Y, "dog", "gnu"]
    write_csv(mails / "mails.csv", texts, labels)
    (mails / "described.csv").write_text(DESCRIBED)
    for options in (
        ["--method", "mean"],
        ["--method", "softmax"],
        ["--public", "pool.txt"],
        ["--descriptions", "none"],
        ["--descriptions", "names"],
        ["--descriptions", "described.csv"],
    ):
        assert cli(*TRAIN, *EXACT, *options, "--force").exit_code == 0
        model = dppl.PrivateClassifier(
            "letters", dppl.GaussianDP(1e4), CLASSES, random_state=3
        )
        model.set_params(method=options[1] if options[0] == "--method" else "auto")
        if options[0] == "--descriptions":
            given = {"none": None, "names": "names"}.get(
                options[1], mails / "described.csv"
            )
            model.set_params(descriptions=given)
        model.set_params(
            public=PublicData(POOL if options[0] == "--public" else None)
        ).fit(texts, labels)
        model.save(mails / "python.safetensors", overwrite=True)
        assert (mails / "python.safetensors").read_bytes() == (
            mails / "m.safetensors"
        ).read_bytes()
    entries = map(
        json.loads, (mails / "m.safetensors.private.jsonl").read_text().splitlines()
    )
    listed = [
        (entry["reference"], entry["reason"])
        for entry in entries
        if "reference" in entry
    ]
    assert listed == [
        (f"row {place + 1}", reason.to_dict())
        for place, reason in model.unusable(texts)
    ]
    assert [
        label for _, label in rows_of(cli("predict", "m.safetensors", "new.csv"))
    ] == model.predict(NEW).tolist()


def test_without_the_command_the_way_is_the_same(mails, cli, letters):
    assert cli(*TRAIN, *EXACT, "--descriptions", "none").exit_code == 0
    content = (mails / "m.safetensors").read_bytes()
    estimator = dppl.SoftmaxPrototypes(dppl.GaussianDP(1e4), CLASSES, random_state=3)
    folder = mails / "tables"
    pipeline.train(
        estimator, open_source("mails.csv"), letters, mails / "n.safetensors", folder
    )
    assert (mails / "n.safetensors").read_bytes() == content
    assert not folder.exists()
    replaced = dppl.MeanPrototypes(
        dppl.GaussianDP(1e4), CLASSES, adjacency="replace-one"
    )
    with pytest.raises(dppl.errors.ParameterError, match="must be 'add-remove'"):
        pipeline.train(
            replaced, open_source("mails.csv"), letters, mails / "o.safetensors", folder
        )
    with pytest.raises(dppl.errors.InputError, match="no labels"):
        pipeline.train(
            estimator, open_source("new.csv"), letters, mails / "o.safetensors", folder
        )
    assert not folder.exists()


# Predictions


@pytest.mark.slow
def test_predictions_hold_one_window_and_write_nothing(mails, cli, monkeypatch):
    assert cli(*TRAIN, *EXACT).exit_code == 0
    texts = [text if number % 7 else "odd" for number, text in enumerate(NEW * 60)]
    write_csv(mails / "new.csv", texts, Y * 60)
    before = names_in(mails)
    held = set()
    most = 0
    window = load_encoder("letters").window
    whole = embedding.embed_windows

    def embed_windows(*arguments, **options):
        nonlocal most
        for found in whole(*arguments, **options):
            for row in found.rows:
                weakref.finalize(row, held.discard, id(row))
                held.add(id(row))
            most = max(most, len(held))
            yield found

    def refuse(*_, **__):
        raise AssertionError("a file was written")

    monkeypatch.setattr(embedding, "embed_windows", embed_windows)
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    monkeypatch.setattr("dppl.training.embedding.ShardedTable", refuse)
    rows = rows_of(cli("predict", "m.safetensors", "new.csv"))
    assert rows == [
        [str(row + 1), "" if text == "odd" else Y[row % len(Y)]]
        for row, text in enumerate(texts)
    ]
    assert cli("evaluate", "m.safetensors", "new.csv").exit_code == 0
    assert names_in(mails) == before
    assert window <= most <= 2 * window < len(texts)


def test_an_evaluation_says_how_many_records_could_not_be_used(mails, cli, error_line):
    assert cli(*TRAIN, *EXACT).exit_code == 0
    write_csv(mails / "test.csv", ["", *NEW, "odd"], ["cat", *Y, "gnu"])
    report = json.loads(cli("evaluate", "m.safetensors", "test.csv", "--json").stdout)
    assert (report["accuracy"], report["n"], report["n_unusable"]) == (1.0, len(Y), 2)
    shown = cli("evaluate", "m.safetensors", "test.csv").stdout
    assert "2 records could not be used and are not counted.\n" in shown
    write_csv(mails / "test.csv", NEW, Y)
    assert (
        json.loads(cli("evaluate", "m.safetensors", "test.csv", "--json").stdout)[
            "n_unusable"
        ]
        == 0
    )
    assert (
        "could not be used" not in cli("evaluate", "m.safetensors", "test.csv").stdout
    )
    write_csv(mails / "test.csv", ["odd"], ["cat"])
    assert "no record can be used" in error_line(
        cli("evaluate", "m.safetensors", "test.csv")
    )


def test_a_source_without_a_record_makes_a_model_of_noise(mails, cli):
    write_csv(mails / "mails.csv", [""], ["cat"])
    assert cli(*TRAIN, "--mu", "1").exit_code == 0
    write_csv(mails / "new.csv", ["odd"])
    assert rows_of(cli("predict", "m.safetensors", "new.csv")) == [["1", ""]]


# Interruptions


@pytest.fixture
def encoded(monkeypatch):
    """Count the items that are encoded, and stop after `encoded.left` of them."""
    whole = FixedShapeEncoder.encode_prepared
    seen = []

    def encode(self, batch, *how):
        seen.extend(batch)
        if stop and len(seen) > stop[0]:
            raise KeyboardInterrupt
        return whole(self, batch, *how)

    stop = []
    monkeypatch.setattr(FixedShapeEncoder, "encode_prepared", encode)
    return seen, stop


@pytest.fixture
def interrupted(monkeypatch):
    """Stop every fit when its tables are there."""

    def learn(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(dppl.SoftmaxPrototypes, "learn", learn)


def test_after_an_interruption_it_goes_on(mails, cli, encoded, monkeypatch):
    seen, stop = encoded
    assert cli(*TRAIN, *EXACT, "--public", "pool.txt").exit_code == 0
    content = (mails / "m.safetensors").read_bytes()
    (mails / "m.safetensors").unlink()
    (mails / "m.safetensors.private.jsonl").unlink()
    needed = len(seen)
    seen.clear()
    stop.append(
        needed - 1
    )  # the public texts are done then, and the private ones are not
    result = cli(*TRAIN, *EXACT, "--public", "pool.txt")
    goes_on = "The same command continues where it stopped; what is done is kept in m.safetensors.work."
    assert (result.exit_code, result.stdout, result.stderr) == (
        130,
        "",
        f"{WEAK}dppl: interrupted. {goes_on}\n",
    )
    assert not (mails / "m.safetensors").exists()
    assert stat.S_IMODE((mails / "m.safetensors.work").stat().st_mode) == 0o700
    seen.clear()
    stop.clear()
    assert cli(*TRAIN, *EXACT, "--public", "pool.txt").exit_code == 0
    assert len(seen) < needed
    assert (mails / "m.safetensors").read_bytes() == content
    assert not (mails / "m.safetensors.work").exists()


@pytest.fixture
def computed(monkeypatch, letters):
    """Count the texts that the model of an encoder computes; the next to `computed.stop` interrupts."""
    whole = FixedShapeEncoder.encode_prepared
    seen = SimpleNamespace(texts=[], stop=None)  # threads append to it

    def encode(self, batch, progress=None, recall=None):
        if recall is None:
            return whole(self, batch, progress)

        def counted(shape, places, compute):
            def one():
                if seen.stop is not None and len(seen.texts) >= seen.stop:
                    raise KeyboardInterrupt
                seen.texts.extend(places)
                return compute()

            return recall(shape, places, one)

        return whole(self, batch, progress, counted)

    monkeypatch.setattr(FixedShapeEncoder, "encode_prepared", encode)
    return seen


KEPT_COMMANDS = {
    "train": (*TRAIN, *EXACT, "--force"),
    "embed": ("embed", "mails.csv", "--encoder", "letters", "--out", "table"),
    "predict": ("predict", "m.safetensors", "mails.csv", "--top", "2"),
    "predict into a file": ("predict", "m.safetensors", "mails.csv", "--out", "l.csv"),
    "evaluate": ("evaluate", "m.safetensors", "mails.csv", "--json"),
}


def written(mails):
    """Return the bytes of everything that lies in the folder and in that of the state."""
    return {
        path: path.read_bytes()
        for path in mails.rglob("*")
        if path.is_file() and path.name != "_manifest.json"
    }


@pytest.mark.parametrize("what", KEPT_COMMANDS)
def test_no_embedding_is_lost_by_an_interruption(
    what, mails, cli, computed, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(mails / "state"))
    assert cli(*TRAIN, *EXACT).exit_code == 0
    before = written(mails)

    def start_over():
        for path in written(mails):
            path.unlink() if path not in before else path.write_bytes(before[path])
        shutil.rmtree(mails / "table", ignore_errors=True)
        computed.texts.clear()

    start_over()
    whole = cli(*KEPT_COMMANDS[what])
    assert whole.exit_code == 0
    needed = len(computed.texts)
    assert needed == len(TEXTS)
    files = written(mails)
    for stop in (1, needed // 2, needed - 6):  # a batch is of four
        start_over()
        computed.stop = stop
        interrupted = cli(*KEPT_COMMANDS[what])
        assert interrupted.exit_code == 130
        assert 0 < len(computed.texts) < needed
        (note,) = re.findall("what is done is kept in (.*).", interrupted.stderr)
        place = mails / note
        kept = place if place.is_file() else next(place.rglob(".embeddings"))
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
        computed.stop = None
        again = cli(*KEPT_COMMANDS[what])
        assert (again.exit_code, again.stdout, again.stderr) == (
            whole.exit_code,
            whole.stdout,
            whole.stderr,
        )
        assert len(computed.texts) == needed
        assert written(mails) == files


def test_an_interrupted_evaluation_is_not_charged(mails, cli, computed, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(mails / "state"))
    assert cli(*TRAIN, *EXACT).exit_code == 0
    assert (
        cli("ledger", "create", "l.db", "test", "--epsilon", "9", "--delta", "1e-5")
    ).exit_code == 0
    command = ("evaluate", "m.safetensors", "mails.csv", "--epsilon", "5")
    command = (*command, "--delta", "1e-6", "--ledger", "l.db", "test")
    computed.texts.clear()
    computed.stop = len(TEXTS) // 2
    untouched = (mails / "l.db").read_bytes()
    result = cli(*command)
    assert result.exit_code == 130
    assert "what is done is kept in" in result.stderr
    assert (mails / "l.db").read_bytes() == untouched
    computed.stop = None
    assert cli(*command).exit_code == 0
    assert len(computed.texts) == len(TEXTS)
    assert (mails / "l.db").read_bytes() != untouched
    assert not list((mails / "state").rglob("*.embeddings"))


def test_nothing_is_promised_where_nothing_can_be_kept(
    mails, cli, computed, monkeypatch
):
    (mails / "state").touch()  # no folder
    monkeypatch.setenv("XDG_STATE_HOME", str(mails / "state"))
    assert cli(*TRAIN, *EXACT).exit_code == 0
    command = KEPT_COMMANDS["predict"]
    assert cli(*command).exit_code == 0
    monkeypatch.setattr(embedding, "embed_windows", _interrupted)
    result = cli(*command)
    assert (result.exit_code, result.stderr) == (130, "dppl: interrupted.\n")


def _interrupted(*_, **__):
    raise KeyboardInterrupt


def test_tables_in_a_folder_of_others_are_for_their_owner_only(mails, cli, interrupted):
    work = mails / "m.safetensors.work"
    work.mkdir(mode=0o755)
    (work / "private").mkdir(mode=0o755)
    assert cli(*TRAIN, *EXACT).exit_code == 130
    files = [path for path in work.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".parquet", ".json", ".jsonl"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_folder_with_something_else_in_it_is_left_alone(mails, cli, error_line):
    (mails / "m.safetensors.work").mkdir()
    (mails / "m.safetensors.work" / "thesis.txt").write_text("precious")
    (mails / "file.safetensors.work").touch()
    for out in ("m.safetensors", "file.safetensors"):
        result = cli(*TRAIN[:-1], out, *EXACT)
        assert result.exit_code == 2
        assert error_line(result).startswith(f"{out}.work must be a new folder")
    assert (mails / "m.safetensors.work" / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("others", ["nothing", "a file", "behind a link"])
def test_what_a_killed_run_left_is_removed_and_nothing_of_others(tmp_path, others):
    out, work, real = (tmp_path / name for name in ("m", "m.work", "real"))
    out.write_bytes(b"model")
    real.mkdir()
    (real / "saved").write_bytes(sha256(b"model").digest() + sha256(b"run").digest())
    (real / "private.report.jsonl").touch()
    if others == "a file":
        (real / "thesis.txt").touch()
    if others == "behind a link":
        work.symlink_to(real)
    else:
        real.rename(work)
    kept = sorted(work.iterdir())
    assert pipeline.finish(out, work, "another run") is None
    if others == "nothing":
        assert pipeline.finish(out, work, "run") == sha256(b"model").hexdigest()
        assert not work.exists()
    else:
        assert pipeline.finish(out, work, "run") is None
        assert sorted(work.iterdir()) == kept


@pytest.mark.parametrize("other", ["options", "data", "classes"])
def test_a_run_that_asks_for_something_else_finishes_no_killed_one(
    mails, cli, error_line, monkeypatch, other
):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "_write_report", killed)
        assert cli(*TRAIN, *EXACT).exit_code != 0
    old = (mails / "m.safetensors").read_bytes()
    budget = EXACT
    if other == "options":
        budget = ["--mu", "2e4", *EXACT[2:]]
    elif other == "data":
        write_csv(mails / "mails.csv", TEXTS[1:], Y[1:])
    else:
        (mails / "classes.txt").write_text("cat\ndog\ngnu\nyak\n")
    result = cli(*TRAIN, *budget)
    assert result.exit_code == 2
    assert "m.safetensors exists" in error_line(result)
    if other == "data":
        result = cli(*TRAIN, *budget, "--force")
        assert "rm -r m.safetensors.work" in result.stderr
        shutil.rmtree(mails / "m.safetensors.work")
    result = cli(*TRAIN, *budget, "--force")
    assert result.exit_code == 0
    assert "was killed" not in result.stdout
    assert (mails / "m.safetensors").read_bytes() != old
    assert not (mails / "m.safetensors.work").exists()


def test_mended_labels_need_no_new_start(mails, cli, error_line):
    """Nothing was embedded before they were looked at."""
    write_csv(mails / "mails.csv", TEXTS, ["Jane", *Y[1:]])
    result = cli(*TRAIN, *EXACT)
    assert result.exit_code == 4
    assert "at least one is not" in error_line(result)
    assert not (mails / "m.safetensors.work").exists()
    write_csv(mails / "mails.csv", TEXTS, Y)
    assert cli(*TRAIN, *EXACT).exit_code == 0


# Ledger and errors


def test_what_is_left_of_other_options_can_be_begun_anew(
    mails, cli, error_line, monkeypatch
):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dppl.SoftmaxPrototypes, "save", stopped)
        assert cli(*TRAIN, *EXACT).exit_code == 130
    (mails / "more.csv").write_text("other,text,label\n1,abc,cat\n2,fgh,dog\n")
    other = ["train", "more.csv", *TRAIN[2:], *EXACT]
    line = error_line(cli(*other))
    assert "has changed since m.safetensors.work was begun" in line
    assert line.endswith("To start over, type: rm -r m.safetensors.work")
    shutil.rmtree("m.safetensors.work")
    assert cli(*other).exit_code == 0
    assert not (mails / "m.safetensors.work").exists()


def test_a_ledger_pays_for_it(mails, cli, error_line):
    cli("ledger", "create", "ledger.db", "mails", "--mu", "1")
    account = ["--ledger", "ledger.db", "mails"]
    result = cli(*TRAIN, "--mu", "0.8", *account)
    assert result.exit_code == 0
    assert "to mails in ledger.db, release 1: budget mu 1 (" in result.stdout
    assert "left mu 0.6.\n" in result.stdout
    assert dppl.load("m.safetensors").guarantee_.charges == (Charge("mails", 1),)
    result = cli(*TRAIN[:-1], "n.safetensors", "--mu", "0.75", *account)
    assert result.exit_code == 3
    assert "has 0.6 left of 1" in error_line(result)
    assert not (mails / "n.safetensors").exists()
    # Known before a private text is embedded.
    assert not (mails / "n.safetensors.work" / "private").exists()


@pytest.mark.parametrize("face", ["command", "Python"])
def test_labels_public_things_and_the_account_come_first_and_the_charge_before_noise(
    face, mails, cli, monkeypatch
):
    seen = []

    def noted(owner, name, event):
        before = getattr(owner, name)

        def call(*args, **kw):
            seen.append(event(*args) if callable(event) else event)
            return before(*args, **kw)

        monkeypatch.setattr(owner, name, call)

    cli("ledger", "create", "ledger.db", "mails", "--mu", "1")
    noted(pipeline, "embed_examples", "examples embedded")
    noted(classifier, "embed_examples", "examples embedded")
    noted(pipeline, "embed", lambda source, encoder, out: f"{out.name} embedded")
    noted(classifier, "embed_items", lambda encoder, items, name: f"{name} embedded")
    noted(dppl.SoftmaxPrototypes, "plan", "planned")
    noted(dppl.Ledger, "check", "account checked")
    noted(dppl.Ledger, "charge", "charged")
    noted(reading, "class_codes", "labels matched")
    noted(dppl.SoftmaxPrototypes, "learn", "released")
    noted(dppl.SoftmaxPrototypes, "save", "saved")
    noted(pipeline, "_write_report", "report written")
    if face == "command":
        options = [
            "--mu",
            "0.5",
            "--public",
            "pool.txt",
            "--ledger",
            "ledger.db",
            "mails",
        ]
        assert cli(*TRAIN, *options).exit_code == 0
        # The list for the owner is made of labels, too.
        names = ("public", "private")
        listed = ["labels matched"]
        after = ["saved", "report written"]
        # And before the encoder is loaded.
        early = ["planned", "account checked", "labels matched"]
    else:
        ledger = dppl.Ledger("ledger.db", "mails")
        dppl.PrivateClassifier(
            "letters", dppl.ZCDP(0.5), CLASSES, public=PublicData(POOL)
        ).fit(TEXTS, Y, ledger=ledger)
        names = ("public.rows", "X")
        listed = after = []
        early = ["labels matched"]
    first = [
        "examples embedded",
        f"{names[0]} embedded",
        "planned",
        "account checked",
        f"{names[1]} embedded",
    ]
    assert seen == [
        *early,
        *first,
        *listed,
        "charged",
        "labels matched",
        "released",
        *after,
    ]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--mu", "1", "--encoder", "nothing"], 2, "nothing"),
        (["--mu", "1", "--encoder", "pixels"], 2, "must be one for texts"),
        (
            ["--mu", "1", "--public", "mails.csv"],
            2,
            "got private data, labels or embeddings",
        ),
        (
            ["--mu", "1", "--public", "pool.txt", "--read", "labels=pool.txt"],
            2,
            "got private data, labels or embeddings",
        ),
        (["--mu", "1", "--public", "none.txt"], 4, "no file or folder none.txt"),
        (["--mu", "1", "--public", "narrow.npz"], 4, "they are by another one"),
        (["--mu", "1", "--public", "other.parquet"], 4, "they are by another one"),
        (["--mu", "1", "--out", "none/m"], 2, "--out must lie in an existing folder"),
        (
            ["--mu", "1", "--out", "classes.txt", "--force"],
            2,
            "--out must not be a file that is read",
        ),
        (["--mu", "1", "--out", "taken.safetensors"], 2, "--force"),
        (
            ["--mu", "1", "--y", "animal"],
            4,
            "--y must be one column of mails.csv; got 'animal'",
        ),
        (["--mu", "1", "--read", "kind=text"], 2, "has no labels"),
        (["--mu", "1", "--method", "best"], 2, "method must be one of"),
        (["--mu", "1", "--method", "mean", "--public", "pool.txt"], 2, "has no effect"),
        (
            ["--mu", "1", "--options", "n_prototypes=2"],
            2,
            "--options must be parameters of SoftmaxPrototypes",
        ),
        (["--mu", "1", "--ledger", "ledger.db", "x"], 4, "ledger.db"),
        (["--mu", "1", "--classes", "none.txt"], 4, "none.txt"),
        (
            ["--mu", "1", "--descriptions", "name"],
            2,
            "--descriptions must be names, none, or an existing file or folder",
        ),
        (
            ["--mu", "1", "--descriptions", "mails.csv"],
            2,
            "--descriptions must be public data; got private data",
        ),
        (
            ["--mu", "1", "--descriptions", "link.csv"],
            2,
            "--descriptions must be public data; got private data",
        ),
        (
            ["--mu", "1", "--descriptions", "."],
            2,
            "--descriptions must be public data; got private data",
        ),
        (
            ["--mu", "1", "--descriptions", "names", "--method", "mean"],
            2,
            "--descriptions has no effect with",
        ),
        (
            [
                "--mu",
                "1",
                "--method",
                "public",
                "--public",
                "pool.txt",
                "--descriptions",
                "named.csv",
            ],
            2,
            "--descriptions has no effect with",
        ),
        (
            ["--mu", "1", "--descriptions", "pool.txt"],
            4,
            "pool.txt must be a CSV file in UTF-8 with the columns class and text",
        ),
        (
            ["--mu", "1", "--descriptions", "new.csv"],
            4,
            "with the columns class and text; name them in its first line, and put quotes around a text",
        ),
        (
            ["--mu", "1", "--descriptions", "odd.csv"],
            4,
            "--descriptions must describe classes of the list only; it has no 'cow', 'yak'.",
        ),
        (
            [
                "--mu",
                "1",
                "--descriptions",
                "named.csv",
                "--out",
                "named.csv",
                "--force",
            ],
            2,
            "must not be a file that is",
        ),
        (
            ["--mu", "1", "--descriptions", "short.csv"],
            4,
            "put quotes around a text with commas.",
        ),
        (
            ["--mu", "1", "--descriptions", "blank.csv"],
            4,
            "usable; the description ' ' of 'cat': it is empty",
        ),
        (
            ["--mu", "1", "--descriptions", "no.csv"],
            4,
            "--descriptions must describe at least one class",
        ),
        (["--epsilon", "1"], 2, "add --delta 1e-6 to the budget"),
        (["--epsilon", "1", "--method", "public"], 2, "--public is required"),
        (["--epsilon", "1", "--method", "mean"], 3, "pure-DP"),
        ([], 2, "exactly one budget"),
    ],
)
def test_a_mistake_gets_one_line_and_a_code(
    options, code, words, mails, cli, error_line
):
    (mails / "taken.safetensors").write_text("precious")
    (mails / "named.csv").write_text("class,text\ncat,abc\n")
    (mails / "odd.csv").write_text("class,text\ncat,abc\nyak,abc\ncow,b\nyak,c\n")
    (mails / "blank.csv").write_text("class,text\ncat, \n")
    (mails / "short.csv").write_text("class,text\ncat\n")
    (mails / "no.csv").write_text("class,text\n\n")
    (mails / "link.csv").hardlink_to(mails / "mails.csv")
    write_table(mails / "narrow.npz", np.eye(5))
    name = json.loads(load_encoder("letters?version=2").fingerprint.text())
    write_table(
        mails / "other.parquet", np.eye(27), metadata={"encoder": json.dumps(name)}
    )
    result = cli(*TRAIN, *options)
    assert result.exit_code == code
    assert words in error_line(result)
    assert (mails / "taken.safetensors").read_text() == "precious"
    assert not (mails / "m.safetensors").exists()
    assert not (mails / "m.safetensors.work").exists()


@pytest.mark.parametrize("what", ["data", "public"])
def test_what_is_read_is_not_removed_with_the_tables(what, photos, cli, error_line):
    work = photos / "m.safetensors.work"
    work.mkdir()
    source = (photos / "photos").rename(work / "public")
    public = photos / "pool"
    if what == "public":
        (work / "public").rename(photos / "photos")
        source = photos / "photos"
        public = public.rename(work / "public")
    options = [
        "--encoder",
        "pixels",
        "--classes",
        "classes.txt",
        "--out",
        "m.safetensors",
        "--mu",
        "1",
    ]
    result = cli("train", source, "--public", public, *options)
    assert (
        result.exit_code,
        "must neither hold what is read nor lie in it" in error_line(result),
    ) == (2, True)
    assert sum(path.is_file() for path in (work / "public").rglob("*")) > 10


def test_the_tables_are_no_part_of_the_images(photos, cli, error_line):
    train = [
        "train",
        "photos",
        "--encoder",
        "pixels",
        "--classes",
        "classes.txt",
        "--mu",
        "1",
        "--out",
        "photos/m.safetensors",
    ]
    assert "nor lie in it" in error_line(cli(*train))
    assert sorted(path.name for path in (photos / "photos").iterdir()) == sorted(
        CLASSES
    )


def test_a_reader_that_goes_away_leaves_nothing_undone(mails, cli, monkeypatch):
    def gone(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr("dppl.cli._training.print_model", gone)
    before = names_in(mails)
    assert cli(*TRAIN, *EXACT).exit_code == 141
    assert set(names_in(mails)) - set(before) == {
        "m.safetensors",
        "m.safetensors.private.jsonl",
    }


def test_an_interruption_after_the_charge_tells_of_it(mails, cli, monkeypatch):
    def release(*_):
        raise KeyboardInterrupt

    cli("ledger", "create", "ledger.db", "mails", "--mu", "1")
    monkeypatch.setattr(dppl.MeanPrototypes, "learn", release)
    options = ["--mu", "0.5", "--method", "mean", "--ledger", "ledger.db", "mails"]
    result = cli(*TRAIN, *options)
    assert (result.exit_code, result.stdout) == (130, "")
    assert (
        result.stderr
        == "dppl: interrupted. The ledger keeps the charge: mails, release 1.\n"
    )


def test_what_fails_before_the_embedding_leaves_no_folder(mails, cli):
    for options in (["--encoder", "pixels"], ["--public", "mails.csv"]):
        assert cli(*TRAIN, "--mu", "1", *options).exit_code == 2
        assert not (mails / "m.safetensors.work").exists()


def test_classes_are_required(mails, cli, error_line):
    result = cli(
        "train",
        "mails.csv",
        "--encoder",
        "letters",
        "--mu",
        "1",
        "--out",
        "m.safetensors",
    )
    assert (result.exit_code, "--classes FILE is required" in error_line(result)) == (
        2,
        True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (
            ["predict", "m.safetensors", "new.csv", "--encoder", "letters?version=2"],
            4,
            "another encoder",
        ),
        (["predict", "m.safetensors", "new.csv", "--encoder", "letters"], 0, None),
        (
            ["predict", "m.safetensors", "new.csv", "--out", "l.npy", "--top", "all"],
            2,
            "must end in .csv or .parquet",
        ),
        (["predict", "m.safetensors"], 2, "Missing: DATA."),
        (
            ["predict", "m.safetensors", "-", "--read", "kind=images"],
            4,
            "--read kind must be another",
        ),
        (
            ["predict", "m.safetensors", "new.csv", "--x", "body"],
            4,
            "--x must be one column of new.csv; got 'body'",
        ),
        (
            ["predict", "m.safetensors", "table.npz", "--encoder", "letters"],
            2,
            "holds embeddings",
        ),
        (
            ["predict", "m.safetensors", "table.npz", "--read", "id=key"],
            2,
            "holds embeddings",
        ),
        (
            [
                "predict",
                "m.safetensors",
                "new.csv",
                "--read",
                "kind=text",
                "--read",
                "id=key",
            ],
            2,
            "go with files that have columns",
        ),
        (
            ["predict", "nameless.safetensors", "new.csv"],
            4,
            "does not name its encoder",
        ),
        (["predict", "steering.safetensors", "new.csv"], 4, "use --out FILE.csv"),
        (
            ["predict", "m.safetensors", "photos"],
            2,
            "for images, as the source holds; letters is for texts",
        ),
        (["show", "m.safetensors", "--out", "s.png"], 2, "must end in"),
        (
            ["show", "m.safetensors", "--public", "none.txt", "--out", "p.md"],
            4,
            "none.txt",
        ),
        (
            ["show", "m.safetensors", "--public", "pool.txt", "--json"],
            2,
            "--public says what is on a page",
        ),
        (
            ["show", "m.safetensors", "--public", "photos"],
            2,
            "--public says what is on a page",
        ),
        (
            [
                "show",
                "m.safetensors",
                "--public",
                "photos",
                "--out",
                "m.safetensors",
                "--force",
            ],
            2,
            "must not be a file that is read",
        ),
        (
            ["show", "m.safetensors", "--public", "photos", "--out", "none/s.html"],
            2,
            "existing folder",
        ),
        (
            ["show", "m.safetensors", "--public", "short.txt", "--out", "p.md"],
            4,
            "some are missing",
        ),
        (
            ["show", "m.safetensors", "--public", "blank.txt", "--out", "p.md"],
            4,
            "cannot be read",
        ),
        (
            [
                "show",
                "m.safetensors",
                "--public",
                "twice.csv",
                "--read",
                "id=key",
                "--out",
                "p.md",
            ],
            4,
            "some have more",
        ),
        (
            ["show", "m.safetensors", "--public", "table.npz", "--out", "p.md"],
            2,
            "not their embeddings",
        ),
        (
            [
                "show",
                "m.safetensors",
                "--public",
                "pool.txt",
                "--read",
                "x=body",
                "--out",
                "p.md",
            ],
            2,
            "go with files that have columns",
        ),
        (
            ["show", "m.safetensors", "--read", "id=key"],
            2,
            "--read says what is on a page",
        ),
        (
            ["show", "nameless.safetensors", "--public", "pool.txt", "--out", "p.md"],
            2,
            "a model that was fitted on public rows with ids",
        ),
        (
            ["show", "mean.safetensors", "--public", "pool.txt", "--out", "p.md"],
            2,
            "MeanPrototypes selects none",
        ),
    ],
)
def test_mistakes_with_a_model(options, code, words, mails, photos, cli, error_line):
    assert cli(*TRAIN, *SELECT, "--public", "pool.txt").exit_code == 0
    y = np.array(CLASSES)
    dppl.PublicPrototypes(dppl.PureDP(1.0), y, public=PublicData(np.eye(27))).fit(
        np.eye(27)[:3], y
    ).save("nameless.safetensors")
    dppl.MeanPrototypes(dppl.ZCDP(1.0), y).fit(np.eye(27)[:3], y).save(
        "mean.safetensors"
    )
    dppl.MeanPrototypes(dppl.ZCDP(1.0), ["\x1b"]).fit(np.eye(27)[:1], ["\x1b"]).save(
        "steering.safetensors"
    )
    write_table("table.npz", np.eye(27))
    (mails / "short.txt").write_text("abc\n")
    (mails / "blank.txt").write_text("\n" * len(POOL))
    (mails / "twice.csv").write_text(
        "text,key\n" + "".join(f"a,{number}\n" * 2 for number in range(len(POOL)))
    )
    result = cli(*options)
    assert result.exit_code == code
    if code:
        assert words in error_line(result)


def test_a_lost_report_is_noticed_before_the_charge(
    mails, cli, error_line, interrupted
):
    assert cli(*TRAIN, *EXACT).exit_code == 130
    (mails / "m.safetensors.work" / "private.report.jsonl").unlink()
    cli("ledger", "create", "ledger.db", "mails", "--mu", "1e5", "--weak")
    result = cli(*TRAIN, *EXACT, "--ledger", "ledger.db", "mails")
    assert (result.exit_code, "private.report.jsonl" in error_line(result)) == (4, True)
    assert dppl.Ledger("ledger.db", "mails").releases() == []


def test_the_help_says_whose_the_report_is(cli):
    text = " ".join(cli("train", "--help").stdout.split())
    assert "for the owner of the data only" in text


def test_the_report_never_replaces_the_source_or_follows_a_link(mails, cli, error_line):
    (mails / "mails.csv").rename(mails / "m.safetensors.private.jsonl")
    content = (mails / "m.safetensors.private.jsonl").read_bytes()
    result = cli(
        "train",
        "m.safetensors.private.jsonl",
        *TRAIN[2:],
        *EXACT,
        "--read",
        "kind=csv",
        "--force",
    )
    assert result.exit_code == 2
    assert "must not be a file that is read" in error_line(result)
    assert (mails / "m.safetensors.private.jsonl").read_bytes() == content
    (mails / "m.safetensors.private.jsonl").rename(mails / "mails.csv")
    (mails / "victim").write_text("kept")
    (mails / "m.safetensors.private.jsonl").symlink_to(mails / "victim")
    assert cli(*TRAIN, *EXACT, "--force").exit_code == 0
    assert (mails / "victim").read_text() == "kept"
    assert (mails / "m.safetensors.private.jsonl").stat().st_mode & 0o777 == 0o600


def test_public_data_that_is_or_holds_the_private_is_refused(
    mails, photos, cli, error_line, interrupted
):
    images = [
        "--encoder",
        "pixels",
        "--classes",
        "classes.txt",
        "--mu",
        "1",
        "--out",
        "n.safetensors",
    ]
    private = photos / "photos"
    for public in (private, photos, private / "cat"):
        result = cli("train", private, "--public", public, *images)
        assert result.exit_code == 2
        assert "--public must be public data" in error_line(result)
    assert cli(*TRAIN, *EXACT).exit_code == 130
    result = cli(*TRAIN, *EXACT, "--public", "m.safetensors.work/private")
    assert (
        result.exit_code,
        "got private data, labels or embeddings" in error_line(result),
    ) == (2, True)


# Probabilities, single texts, standard input, columns


@pytest.fixture
def trained(mails, cli):
    """A model of columns that are not called as usual."""
    (mails / "mails.csv").write_text(
        "".join(
            f"{line}\n"
            for line in [
                "body,folder,key",
                *map(",".join, zip(TEXTS, Y, map(str, range(37)), strict=True)),
            ]
        )
    )
    names = ["--x", "body", "--y", "folder", "--read", "id=key"]
    assert cli(*TRAIN, *EXACT, *names).exit_code == 0
    return dppl.PrivateClassifier.load(mails / "m.safetensors")


def table_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_columns_that_were_typed_are_remembered(trained, mails, cli, error_line):
    assert trained.model_.columns_ == {"x": "body", "y": "folder", "id": "key"}
    assert Term(PublicInput.COLUMNS) in trained.guarantee_.public_inputs
    (mails / "new.csv").write_text(
        "key,other,body,folder\nk1,klm,abc,cat\nk2,abc,klm,gnu\n"
    )
    assert rows_of(cli("predict", "m.safetensors", "new.csv")) == [
        ["k1", "cat"],
        ["k2", "gnu"],
    ]
    # An option goes before.
    assert rows_of(cli("predict", "m.safetensors", "new.csv", "--x", "other")) == [
        ["k1", "gnu"],
        ["k2", "cat"],
    ]
    assert (
        json.loads(cli("evaluate", "m.safetensors", "new.csv", "--json").stdout)[
            "accuracy"
        ]
        == 1
    )
    # New records need no labels, and ids only if one is named.
    (mails / "new.csv").write_text("body\nabc\n")
    assert rows_of(cli("predict", "m.safetensors", "new.csv")) == [["1", "cat"]]
    assert "'key'" in error_line(
        cli("predict", "m.safetensors", "new.csv", "--read", "id=key")
    )
    # A file without columns has nothing that a name could stand for.
    (mails / "lines.txt").write_text("abc\n")
    assert rows_of(cli("predict", "m.safetensors", "lines.txt")) == [["1", "cat"]]
    (mails / "new.csv").write_text("text\nabc\n")
    assert "'body'" in error_line(cli("predict", "m.safetensors", "new.csv"))


def test_a_model_of_class_names_alone_remembers_them_too(mails, cli):
    (mails / "mails.csv").write_text("body,folder\nabc,cat\n")
    names = ["--x", "body", "--y", "folder"]
    assert cli(*TRAIN, "--mu", "0", *names).exit_code == 0
    assert dppl.load(mails / "m.safetensors").columns_ == {"x": "body", "y": "folder"}


def test_columns_that_were_found_are_not_in_the_model(mails, cli):
    """What a private file calls its columns is its owner's."""
    assert cli(*TRAIN, *EXACT).exit_code == 0
    model = dppl.load(mails / "m.safetensors")
    assert model.columns_ == {}
    assert Term(PublicInput.COLUMNS) not in model.guarantee_.public_inputs
    assert b'"columns"' not in (mails / "m.safetensors").read_bytes()


def test_standard_input_may_hold_lines_or_a_table(trained):
    def piped(text, *options):
        result = invoke(["predict", "m.safetensors", "-", *options], input=text)
        assert result.exit_code == 0
        return rows_of(result)

    assert piped("abc\nklm\n") == [["1", "cat"], ["2", "gnu"]]
    assert piped("key,body\nk1,abc\n", "--read", "kind=csv") == [["k1", "cat"]]
    assert piped("key,words\nk1,abc\n", "--x", "words") == [["k1", "cat"]]
    assert piped('{"body": "fgh", "key": "k"}\n', "--read", "kind=jsonl") == [
        ["k", "dog"]
    ]
    assert piped("") == []


def test_probabilities_go_with_labels_in_every_form(trained, mails, cli):
    texts = ["abc", "", "klm", "afk"]
    expected = trained.predict_proba(texts, unusable="empty").astype(np.float32)
    (mails / "new.csv").write_text('key,body\nk0,abc\nk1,""\nk2,klm\nk3,afk\n')
    written = table_of(
        cli("predict", "m.safetensors", "new.csv", "--top", "all").stdout
    )
    assert list(written[0]) == [
        "id",
        "label",
        *(f"probability of {name}" for name in CLASSES),
    ]
    for row, values in zip(written, expected, strict=True):
        for name, value in zip(CLASSES, values, strict=True):
            text = row[f"probability of {name}"]
            assert (text == "") == np.isnan(value)
            assert text == "" or float(text) == pytest.approx(value, rel=1e-6)
    assert [row["label"] for row in written] == [
        "cat",
        "",
        "gnu",
        trained.predict(["afk"])[0],
    ]
    assert (
        cli(
            "predict", "m.safetensors", "new.csv", "--top", "all", "--out", "p.parquet"
        ).exit_code
        == 0
    )
    for row, other in zip(
        written, pq.read_table(mails / "p.parquet").to_pylist(), strict=True
    ):
        assert row == {
            name: "" if value is None else str(value) for name, value in other.items()
        }


def test_the_likeliest_classes_are_in_order(trained, mails, cli):
    (mails / "one.txt").write_text("aabf\n")
    (row,) = table_of(cli("predict", "m.safetensors", "one.txt", "--top", "2").stdout)
    values = trained.predict_proba(["aabf"])[0]
    order = np.argsort(-values)
    assert row["label"] == row["top 1"] == CLASSES[order[0]]
    assert row["top 2"] == CLASSES[order[1]]
    assert [float(row[f"probability {place}"]) for place in (1, 2)] == pytest.approx(
        values[order[:2]].tolist(), rel=1e-6
    )
    assert "top 3" not in row
    # No more than there are.
    assert (
        "top 4" not in cli("predict", "m.safetensors", "one.txt", "--top", "9").stdout
    )


def test_from_images_to_a_page_of_public_ones(photos, cli):
    train = [
        "train",
        "photos",
        "--encoder",
        "pixels",
        "--classes",
        "classes.txt",
        "--out",
        "m.safetensors",
    ]
    assert cli(*train, "--public", "pool", *SELECT).exit_code == 0
    model = dppl.load("m.safetensors")
    assert "pure DP" in str(model.guarantee_)
    assert rows_of(cli("predict", "m.safetensors", "photos"))[::8] == [
        [f"{name}/0.png", name] for name in CLASSES
    ]

    assert (
        cli(
            "show", "m.safetensors", "--public", "pool", "--out", "chosen.json"
        ).exit_code
        == 0
    )
    shown = json.loads((photos / "chosen.json").read_text())["gallery"]["classes"]
    assert [
        [item["id"] for item in one["items"]] for one in shown
    ] == model.public_ids_.tolist()
    for item in (item for one in shown for item in one["items"]):
        jpeg = base64.b64decode(item["image"].removeprefix("data:image/jpeg;base64,"))
        with (
            Image.open(io.BytesIO(jpeg)) as tile,
            Image.open(photos / "pool" / item["id"]) as image,
        ):
            assert max(tile.size) <= 96
            whole = np.asarray(image.convert("RGB"), float)
            assert np.asarray(tile, float).mean() == pytest.approx(whole.mean(), abs=12)


def test_an_image_that_was_damaged_since_is_one_line(photos, cli, error_line):
    train = [
        "train",
        "photos",
        "--encoder",
        "pixels",
        "--classes",
        "classes.txt",
        "--out",
        "m.safetensors",
    ]
    assert cli(*train, "--public", "pool", *SELECT).exit_code == 0
    for path in (photos / "pool").iterdir():
        path.write_bytes(b"no image")
    result = cli("show", "m.safetensors", "--public", "pool", "--out", "chosen.html")
    assert result.exit_code == 4
    assert "cannot be read" in error_line(result)
    assert not (photos / "chosen.html").exists()


def test_a_column_of_another_kind_than_the_classes_stops_before_anything_is_embedded(
    mails, cli, error_line, monkeypatch
):
    """Also where records with labels outside the list are skipped."""
    table = pa.table({"text": ["abc", "klm"], "label": pa.array([0, 1], pa.int8())})
    pq.write_table(table, "codes.parquet")
    (mails / "names.txt").write_text("a\n0\n1\n")
    (mails / "digits.txt").write_text("0\n1\n")
    options = [
        "--encoder",
        "letters",
        "--mu",
        "1",
        "--options",
        "unknown_labels=ignore",
    ]
    command = ["train", "codes.parquet", *options, "--out", "m.safetensors"]
    result = cli(*command, "--classes", "digits.txt")
    assert result.exit_code == 0, result.stderr  # the control
    monkeypatch.setattr(
        "dppl.training.pipeline.embed_all", lambda *_, **__: pytest.fail("embedded")
    )
    result = cli(*command, "--classes", "names.txt", "--out", "n.safetensors")
    assert "--y must hold texts, as the class list does; got numbers" in error_line(
        result
    )


def test_where_nobody_watches_it_is_said_that_there_is_no_progress(
    mails, cli, note_on_progress
):
    result = cli(*TRAIN, "--mu", "1")
    assert result.stderr == (
        "dppl: note: Progress is shown on terminals alone, since a file of it would reveal how many records there "
        "are.\n"
    )


def test_a_start_brings_its_encoder(mails, cli, error_line):
    cli(*TRAIN, "--mu", "0.5")
    place = TRAIN.index("--encoder")
    rest = [*TRAIN[:place], *TRAIN[place + 2 : -2], "--mu", "0.5", "--out"]
    options = "2.safetensors", "--start", "m.safetensors"
    assert cli(*rest, *options).exit_code == 0
    first, second = map(dppl.load, ("m.safetensors", "2.safetensors"))
    assert second.encoder_ == first.encoder_
    result = cli(*rest, "3.safetensors")
    assert (result.exit_code, error_line(result)) == (2, "--encoder URI is required.")


def test_another_encoder_than_that_of_the_start_is_refused_before_anything_is_embedded(
    mails, cli, error_line, monkeypatch
):
    """One that a URI may lead to, too, is refused before it embeds public data; one of another name before it loads."""
    cli(*TRAIN, "--mu", "0.5")
    start = dppl.load("m.safetensors")
    name = json.loads(start.encoder_)
    asked = [*TRAIN, "--mu", "0.5", "--public", "pool.txt", "--force", "--start"]

    def by(**changes):
        start.encoder_ = json.dumps(name | changes)
        start.save("start.safetensors", overwrite=True)
        return error_line(cli(*asked, "start.safetensors"))

    monkeypatch.setattr(pipeline, "embed", None)
    assert "by the encoder that the fit names" in by(weights="another")
    monkeypatch.setattr("dppl.encoders.load_encoder", None)
    asked[asked.index("letters")] = "minilm"
    assert "start is by the encoder pixels, and --encoder" in by(uri="pixels")


@pytest.mark.parametrize("fault", ["account", "label", "option", "strict", "start"])
def test_what_needs_no_encoder_is_refused_before_it_loads(
    fault, mails, cli, error_line, monkeypatch
):
    def loaded(*_, **__):
        raise AssertionError("the encoder was loaded")

    options = ["--mu", "0.4", "--ledger", "ledger.db", "mails"]
    if fault == "start":
        cli(*TRAIN[:-1], "old.safetensors", *EXACT)
        options += ["--start", "old.safetensors"]
    monkeypatch.setattr("dppl.encoders.load_encoder", loaded)
    cli("ledger", "create", "ledger.db", "mails", "--mu", "0.5")
    if fault == "account":
        options[1] = "1"
    else:
        write_csv(mails / "mails.csv", [*TEXTS, "ab"], [*Y, "owl"])
    if fault == "strict":
        options += ["--unusable", "stop"]
    if fault == "option":  # before the labels, which are private
        options += ["--options", "unknown_labels=ignored"]
    result = cli(*TRAIN, *options)
    code, words = {
        "account": (3, "which has 0.5 left of 0.5"),
        "label": (4, "every label must be one of the 3 classes"),
        "option": (2, "unknown_labels must be one of 'error', "),
        "strict": (4, "wants records that can all be used"),
        "start": (2, "must be fit for release; its noise came from a seed"),
    }[fault]
    assert (result.exit_code, words in error_line(result)) == (code, True)
    assert "owl" not in result.stderr
    assert dppl.Ledger("ledger.db", "mails").releases() == []
