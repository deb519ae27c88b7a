"""On neighbouring tables, with the same noise, every command says and leaves the same but for the released values.

Each table has a folder of its own with the same names in it, and the commands run
inside, so whatever differs comes from the record. Compared are exit code, stdout,
stderr, warnings, log records, and of every file left behind its name, mode, size and
content; what is released is masked, and nothing else.
"""

import contextlib
import csv
import functools
import itertools
import json
import logging
import os
import re
import sqlite3
import stat
import sys
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import dp_accounting.pld  # noqa: F401 (commands import it late; what that may log is no trace of the data)
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from PIL import Image

import dppl
from command_line import arguments as arguments_of
from command_line import commands
from dppl.cli import main
from dppl.io import write_table
from dppl.kernel.lattice import Lattice
from dppl.kernel.mechanisms import RoundedGaussian
from dppl.kernel.privacy import ledger as ledger_module
from dppl.kernel.privacy.terms import Caveat, Term
from dppl.methods.ascent import Ascent
from dppl.methods.registry import BY_METHOD, method_for
from dppl.training import pipeline
from inside import behind

pytestmark = pytest.mark.slow


CLASSES = ("cat", "dog", "gnu")
RNG = np.random.default_rng(7)
X = RNG.standard_normal((12, 8))
Y = np.repeat(CLASSES, (6, 4, 2))
PUBLIC = RNG.standard_normal((50, 8))
EVERY = np.ones(12, bool)
NONE = np.zeros(12, bool)
CATS = Y == "cat"
NO_GNU = Y != "gnu"
SECRET = 'Jane "J" Doe, 4711'

# The record that one of the neighbours has and the other has not, and the records that
# both have.
RECORDS = {
    "good": (100 * X[0], "gnu", EVERY),
    "nan": (np.full(8, np.nan), "dog", EVERY),
    "infinite": (np.append(X[0, :7], -np.inf), "dog", EVERY),
    "huge": (np.full(8, 1e300), "cat", EVERY),
    "tiny": (np.full(8, 1e-320), "cat", EVERY),
    "zero": (np.zeros(8), "cat", EVERY),
    "duplicate": (X[0], "cat", EVERY),
    "odd label": (X[0], SECRET, EVERY),
    "long label": (X[0], "x" * 5000, EVERY),
    "missing label": (X[0], "", EVERY),
    "only one of its class": (X[0], "gnu", NO_GNU),
    "beside an empty class": (X[0], "dog", NO_GNU),
    "one class only": (-X[0], "cat", CATS),
    "only one of all": (X[0], "dog", NONE),
}

FITS = {
    "sums": ["--mu", "1"],
    "sums in epsilon": ["--epsilon", "2", "--delta", "1e-6"],
    "mapped sums": [
        "--mu",
        "1",
        "--options",
        "lattice__pool=2",
        "--options",
        "lattice__rotation=auto",
        "--options",
        "lattice__center=public",
        "--public",
        "public.npz",
    ],
    "published means": ["--mu", "1", "--options", "adjacency=replace-one"],
    "coinpress": [
        "--mu",
        "1",
        "--options",
        "adjacency=replace-one",
        "--options",
        "coinpress=dppl",
    ],
    "automatic": ["--mu", "1", "--method", "auto"],
    "automatic with public rows": [
        "--mu",
        "1",
        "--method",
        "auto",
        "--public",
        "public.npz",
    ],
    "softmax": ["--epsilon", "2", "--delta", "1e-6", "--method", "softmax"],
    "softmax with public rows": [
        "--mu",
        "1",
        "--method",
        "softmax",
        "--public",
        "public.npz",
    ],
    "automatic from examples": [
        "--mu",
        "1",
        "--method",
        "auto",
        "--examples",
        "named.npz",
    ],
    "several labels": [
        "--mu",
        "1",
        "--method",
        "multilabel",
        "--read",
        "labels_separator=;",
    ],
    "public": ["--epsilon", "1", "--method", "public", "--public", "public.npz"],
    "three public": [
        "--mu",
        "1",
        "--method",
        "public",
        "--public",
        "public.npz",
        "--options",
        "n_prototypes=3",
    ],
    "replaced public": [
        "--epsilon",
        "1",
        "--method",
        "public",
        "--public",
        "public.npz",
        "--options",
        "adjacency=replace-one",
    ],
}

LEDGER = ["--ledger", "ledger.db", "wards"]

HASH = r"\b[0-9a-f]{64}\b"
IDS = rb'(?<="public_ids\\": )\[\[.*?\]\]'
LABELS = rf"^(?:({'|'.join(CLASSES)});?)*(?=\n)"
# Tensors of a model file that are released; all others are made of public things alone.
PATH = {"path", "path_variance", "path_sizes"}
RELEASED = {
    "MeanPrototypes": {"prototypes"},
    "PublicPrototypes": {"prototypes", "public_indices"},
    "SoftmaxPrototypes": {"coef", "coef_noise", "center", "intercept", "shares"} | PATH,
    "MultiLabelPrototypes": {"coef", "center", "intercept"} | PATH,
    "SparseFinetuner": {"values"},
}
# Commands that read a model, a ledger or public rows, and what of their output is
# released or the hash of it.
AFTER = [
    ("show", ["out.safetensors"], rf"(?<=│ )\d+(, \d+)* +(?=│$)|{HASH}"),
    (
        "show",
        ["out.safetensors", "--json"],
        rf'(?<="public_indices": )\[[\d\s,\[\]]*\]|{HASH}',
    ),
    ("show", ["out.safetensors", "--for", "hub"], HASH),
    ("predict", ["out.safetensors", "public.npz"], LABELS),
    ("predict", ["out.safetensors", "public.npz", "--out", "labels.csv"], None),
    ("predict", ["out.safetensors", "public.npz", "--out", "labels.parquet"], None),
    ("ledger show", ["ledger.db"], r"\b[0-9a-f]{12}\b"),
    ("ledger show", ["ledger.db", "--json"], HASH),
    # The other forms of a page are functions of this one.
    ("show", ["out.safetensors", "--out", "page.json"], None),
]
# Reports to the owner of private records, which differ by design, and the words in
# which their help forbids to publish them. So do the labels of private rows, for which
# `predict` is no command of its own.
OWNERS = {
    "bench": "no guarantee covers that",
    "check": "For the data owner's eyes only",
    "columns": "and no value",  # tests/unit/encoders/test_columns.py
    "embed": "they stay with their owner",  # what it prints is compared in test_cli_embed.py
    "table": "For the owner of the records only",
    "evaluate": "do not publish them",
    "party serve": "What is printed depends on no record",  # tests/unit/federation/test_refusals.py
}
# Commands that read no records but built-in or public ones.
WITHOUT_RECORDS = {
    *(
        "audit",
        "demo",
        "export",
        "ledger create",
        "ledger saved",
        "merge",
        "plan",
        "serve",
        "verify",
    )
}


def remarks(stderr):
    """Return what is on stderr besides the notes that follow from what was typed."""
    typed = ("a record without a person id counts as", "is a new part of")
    return "".join(
        line
        for line in stderr.splitlines(keepends=True)
        if not any(text in line for text in typed)
    )


def test_every_command_is_compared_or_has_a_reason(cli):
    assert set(commands()) == {
        "fit",
        "train",
        "finetune",
        "split",
        *(command for command, *_ in AFTER),
        *OWNERS,
        *WITHOUT_RECORDS,
    }
    for name, words in OWNERS.items():
        assert words in " ".join(cli(*name.split(), "--help").stdout.split())
    for name in WITHOUT_RECORDS:
        assert not {"table", "labels"} & {*arguments_of(name)}


def test_every_method_is_compared():
    def values(option, default):
        return {
            dict(itertools.pairwise(options)).get(option, default)
            for options in FITS.values()
        }

    assert values("--method", "mean") == {"auto", *BY_METHOD}

    def parameters(name, default):
        typed = [
            [word for word in options if word.startswith(f"{name}=")]
            for options in FITS.values()
        ]
        return {word[0].removeprefix(f"{name}=") if word else default for word in typed}

    assert parameters("coinpress", None) == {"dppl", None}


# Tables in every format


def write_npy(suffix, folder, rows, labels):
    np.save(folder / "x.npy", rows)
    if suffix == ".npy":
        np.save(folder / "y.npy", labels)
    else:
        (folder / f"y{suffix}").write_text(
            "".join(f"{label}\n" for label in labels), encoding="utf-8"
        )


def write_shards(folder, rows, labels):
    (folder / "shards").mkdir()
    middle = len(rows) // 2
    write_table(folder / "shards" / "1.parquet", rows[:middle], labels[:middle])
    write_table(folder / "shards" / "2.parquet", rows[middle:], labels[middle:])


def write_lists(folder, rows, labels):
    """Write what has no value as a null."""
    lists = [None if np.isnan(row).any() else row for row in rows]
    columns = {
        "x": pa.array(lists, pa.list_(pa.float64(), rows.shape[1])),
        "y": pa.array([label or None for label in labels.tolist()], pa.string()),
    }
    pq.write_table(pa.table(columns), folder / "lists.parquet")


LAYOUTS = {
    "npz": (
        lambda folder, x, y: np.savez(folder / "train.npz", x=x, y=y),
        ["private/train.npz"],
    ),
    "npy": (
        functools.partial(write_npy, ".npy"),
        ["private/x.npy", "--read", "labels=private/y.npy"],
    ),
    "npy and txt": (
        functools.partial(write_npy, ".txt"),
        ["private/x.npy", "--read", "labels=private/y.txt"],
    ),
    "parquet": (
        lambda folder, *data: write_table(folder / "train.parquet", *data),
        ["private/train.parquet"],
    ),
    "shards": (write_shards, ["private/shards"]),
    "nulls": (write_lists, ["private/lists.parquet"]),
}


def neighbours(name, options=()):
    """Return the records with and without the one of this name; under replace-one, without it there is another."""
    row, label, kept = RECORDS[name]

    def with_record(row):
        middle = np.count_nonzero(kept) // 2
        return np.insert(X[kept], middle, row, axis=0), np.array(
            [*Y[kept][:middle], label, *Y[kept][middle:]]
        )

    return with_record(row), with_record(X[5]) if "replace-one" in options else (
        X[kept],
        Y[kept],
    )


def fit(options=(), layout="npz", label="cat"):
    if "--method" not in options:
        options = [*options, "--method", "mean"]
    known = [] if label in CLASSES else ["--options", "unknown_labels=ignore"]
    names = [
        "--classes",
        "classes.txt",
        "--out",
        "out.safetensors",
        "--options",
        "random_state=3",
    ]
    return ["fit", *LAYOUTS[layout][1], *names, *known, *options]


# Traces


@dataclass(frozen=True)
class Trace:
    """What a run shows and leaves behind, without what is released."""

    exit_code: int
    stdout: str
    stderr: str
    warnings: list
    log: list
    files: dict


@pytest.fixture
def trace(cli, caplog, monkeypatch):
    """Run a command in a folder and return its trace."""
    # The app drops all warnings; here they count.
    kept = SimpleNamespace(
        catch_warnings=contextlib.nullcontext, simplefilter=lambda action: None
    )
    monkeypatch.setattr(main, "warnings", kept)
    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # of a user's network: it holds the time of its file
    monkeypatch.setattr(ledger_module, "_now", lambda: "2026-01-01T00:00:00+00:00")
    caplog.set_level(logging.NOTSET)

    def run(folder, *arguments, released=None):
        monkeypatch.chdir(folder)
        caplog.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter(
                "ignore", ResourceWarning
            )  # comes whenever the garbage is collected
            result = cli(*arguments)
        return Trace(
            exit_code=result.exit_code,
            stdout=masked(result.stdout, released),
            stderr=result.stderr,
            warnings=[(warning.category, str(warning.message)) for warning in caught],
            log=[
                (record.name, record.levelname, record.getMessage())
                for record in caplog.records
            ],
            files={
                str(path.relative_to(folder)): facts(path, folder)
                for path in files_in(folder)
            },
        )

    return run


def masked(text, released):
    return (
        re.sub(released, "(released)", text, flags=re.MULTILINE) if released else text
    )


def files_in(folder):
    """Return what lies in a folder, without the private images themselves, which are files each."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if folder / "private" / "photos" not in path.parents
    ]


def facts(path, folder):
    """Return mode, size and public content; of private files, which stay with their owner, the name alone counts."""
    state = path.lstat()
    if {folder / "private", folder / "out.safetensors.work"} & set(
        path.parents
    ) or not stat.S_ISREG(state.st_mode):
        return stat.S_IFMT(state.st_mode)
    if path.name == "out.safetensors.private.jsonl":
        return state.st_mode
    if path.name == "page.json":
        return state.st_mode, masked(
            path.read_text(), rf'(?<="selected": )\[[\d\s,\[\]"]*\]|{HASH}'
        )
    if path.suffix == ".csv":
        return state.st_mode, masked(
            path.read_text(), LABELS
        )  # class names differ in length
    size = (
        None if path.suffix == ".parquet" else state.st_size
    )  # names of classes differ in length
    return state.st_mode, size, public_content(path)


def public_content(path):
    content = path.read_bytes()
    if path.name == "out.safetensors":
        header = content[: 8 + int.from_bytes(content[:8], "little")]
        (description,) = json.loads(header[8:])["__metadata__"].values()
        released = RELEASED[json.loads(description)["estimator"]]
        tensors = safetensors.numpy.load(content)
        return re.sub(IDS + rb"|" + HASH.encode(), b"(released)", header), [
            tensors[name].tobytes() for name in sorted(tensors.keys() - released)
        ]
    if path.suffix == ".db":
        with contextlib.closing(sqlite3.connect(path)) as connection:
            # A charge of a training has a name that is drawn, of 32 hexadecimal digits.
            return masked(
                re.sub(r"'[0-9a-f]{32}'", "(drawn)", "\n".join(connection.iterdump())),
                HASH,
            )
    if path.name == "labels.parquet":
        table = pq.read_table(path)
        (column,) = {"label", "labels"} & set(table.column_names)
        return (
            table.schema,
            table.num_rows,
            all(re.match(LABELS, f"{one}\n") for one in table[column].to_pylist()),
        )
    return content


@pytest.fixture
def folders(tmp_path):
    """Write the two tables of a pair, each into a folder of its own beside the same public files."""

    def write(pair, layout="npz"):
        made = [Path(tempfile.mkdtemp(dir=tmp_path)) for _ in pair]
        for folder, (rows, labels) in zip(made, pair, strict=True):
            (folder / "private").mkdir()
            LAYOUTS[layout][0](folder / "private", rows, labels)
            (folder / "classes.txt").write_text(
                "".join(f"{name}\n" for name in CLASSES)
            )
            write_table(folder / "public.npz", PUBLIC)
            write_table(folder / "named.npz", PUBLIC[:3], np.array(CLASSES))
            write_table(folder / "narrow.npz", PUBLIC[:, :5])
        return made

    return write


@pytest.fixture
def assert_same(trace):
    """Run a command in two folders and assert that it leaves equal traces; return the trace."""

    def check(pair, arguments, exit_code=0, released=None):
        first, second = (
            trace(folder, *arguments, released=released) for folder in pair
        )
        assert first == second
        assert first.exit_code == exit_code
        return first

    return check


# The comparisons


# Every record meets a fit of each kind of mechanism and relation, and every fit a
# record that cannot be used.
MET = {
    *itertools.product(("sums", "published means", "public"), RECORDS),
    *itertools.product(FITS, ["nan"]),
}


@pytest.mark.parametrize(("method", "record"), sorted(MET))
def test_a_fit_shows_only_what_it_releases(method, record, folders, assert_same):
    pair = folders(neighbours(record, FITS[method]))
    trace = assert_same(pair, fit(FITS[method], label=RECORDS[record][1]))
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])


# What a format writes in a way of its own: a missing value, a label in quotation marks,
# a long one, none, one record.
WRITTEN = ("nan", "odd label", "long label", "missing label", "only one of all")


@pytest.mark.parametrize("record", WRITTEN)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "npz"])
def test_every_format_shows_only_what_is_released(layout, record, folders, assert_same):
    pair = folders(neighbours(record), layout)
    trace = assert_same(pair, fit(["--mu", "1"], layout, RECORDS[record][1]))
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])


@pytest.mark.parametrize("record", RECORDS)
def test_a_split_shows_nothing_and_only_its_owner_may_read_the_parts(
    record, folders, assert_same
):
    pair = folders(neighbours(record))
    outs = ["--out", "private/part-1.npz", "private/part-2.npz"]
    trace = assert_same(pair, ["split", "private/train.npz", "--test", "0.3", *outs])
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])
    assert {name for name in trace.files if "part" in name} == {
        "private/part-1.npz",
        "private/part-2.npz",
    }


@pytest.mark.parametrize("method", FITS)
def test_the_record_is_read(method, folders, trace):
    """Or equal traces would mean nothing."""
    pair = folders(neighbours("good", FITS[method]))
    # A budget at which one record shows, in place of the options "--mu M" or "--epsilon
    # E --delta D".
    options = [
        "--mu",
        "1e3",
        "--weak",
        *FITS[method][4 if "--delta" in FITS[method] else 2 :],
    ]
    released = []
    for folder in pair:
        trace(folder, *fit(options))
        tensors = safetensors.numpy.load_file(folder / "out.safetensors")
        released.append(tensors.get("coef", tensors.get("prototypes")))
    assert (released[0] != released[1]).any()


# What is published is made of the model file and the ledger: of each estimator, with
# each kind of release and relation.
PUBLISHED = [
    *("sums in epsilon", "mapped sums", "coinpress", "softmax with public rows"),
    *("automatic from examples", "several labels", "three public", "replaced public"),
]


@pytest.mark.parametrize("method", PUBLISHED)
def test_what_is_published_after_a_fit_shows_only_what_was_released(
    method, folders, assert_same
):
    pair = folders(neighbours("good", FITS[method]))
    relation = (
        ["--adjacency", "replace-one"]
        if "adjacency=replace-one" in FITS[method]
        else []
    )
    budget = (
        ["--mu", "3"]
        if "--mu" in FITS[method]
        else ["--epsilon", "10", "--delta", "1e-6"]
    )
    assert_same(pair, ["ledger", "create", "ledger.db", "wards", *budget, *relation])
    trace = assert_same(pair, fit([*FITS[method], *LEDGER]))
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])
    for command, arguments, released in AFTER:
        trace = assert_same(pair, [*command.split(), *arguments], released=released)
        assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])
        if command == "predict":
            assert trace.stdout in (
                f"{len(PUBLIC)} labels in {arguments[-1]}\n",
                "(released)\n" * len(PUBLIC),
            )


@pytest.fixture
def replayed(monkeypatch):
    """Let the mechanisms return the same values whatever they are given: all else must be equal, the model as well."""

    def release(mechanism, exact, source):
        generator = np.random.default_rng(exact.shape)
        return np.rint(
            12 + generator.normal(0, 2 * mechanism.noise_std, exact.shape)
        ).astype(np.int64)

    monkeypatch.setattr(RoundedGaussian, "release", release)
    for name in RELEASED:
        monkeypatch.setitem(RELEASED, name, set())


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize(
    ("record", "public"),
    [
        *((record, []) for record in RECORDS),
        ("nan", ["--public", "public.npz"]),
        ("nan", ["--examples", "named.npz"]),
    ],
    ids=str,
)
def test_the_automatic_method_makes_all_that_it_leaves_of_what_it_releases(
    record, public, folders, assert_same
):
    pair = folders(neighbours(record))
    assert_same(pair, ["ledger", "create", "ledger.db", "wards", "--mu", "2"])
    options = ["--mu", "1", "--method", "auto", *public, *LEDGER]
    trace = assert_same(pair, fit(options, label=RECORDS[record][1]))
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])
    assert "SoftmaxPrototypes" in trace.stdout
    for command, arguments, _ in (
        AFTER if record == "nan" else ()
    ):  # of all other records the files are equal as well
        trace = assert_same(pair, [*command.split(), *arguments])
        assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])


def follow_the_number(monkeypatch):
    """The number of records lengthens every step."""
    whole = Ascent.move
    numbers = []

    def move(self, gradient):
        whole(self, gradient)
        self.weights = self.weights * numbers[-1]

    monkeypatch.setattr(Ascent, "move", move)
    leak(monkeypatch, lambda model, n: None, "auto", before=numbers.append)


def shift_the_centre(monkeypatch):
    def shift(model, n):
        center = model.lattice_.center * (1 - n / 1000)
        model.lattice_ = Lattice(len(center), center=center)

    leak(monkeypatch, shift, "auto")


def add_to_a_weight(monkeypatch):
    def add(model, n):
        model.coef_[0, 0] += n

    leak(monkeypatch, add, "auto")


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize(
    "plant", [follow_the_number, shift_the_centre, add_to_a_weight]
)
def test_a_leak_into_what_the_automatic_method_makes_is_noticed(
    plant, folders, assert_same, monkeypatch
):
    pair = folders(neighbours("good"))
    assert_same(pair, fit(["--mu", "1", "--method", "auto"]))
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="Trace"):
        assert_same(pair, fit(["--mu", "1", "--method", "auto", "--force"]))


@pytest.mark.parametrize(
    "options", [[], ["--options", "unknown_labels=ignore"]], ids=["error", "ignore"]
)
def test_a_label_of_another_type_among_integers_shows_only_what_is_released(
    options, folders, assert_same
):
    numbers = np.repeat([1, 2, 10], (6, 4, 2))
    traces = []
    for labels in (np.append(numbers, 3), np.append(numbers.astype(str), SECRET)):
        known = (
            (X, numbers) if options else (np.vstack([X, X[:1]]), np.append(numbers, 4))
        )
        pair = folders([(np.vstack([X, X[:1]]), labels), known])
        for folder in pair:
            (folder / "classes.txt").write_text("1\n2\n10\n")
        traces.append(
            assert_same(
                pair, fit(["--mu", "1", *options]), exit_code=0 if options else 4
            )
        )
    assert traces[0] == traces[1]


# Raw records

TEXTS = [
    "abcab",
    "aab",
    "bca",
    "cabb",
    "ddab",
    "cba",
    "fgh",
    "ghif",
    "hhgi",
    "ffgg",
    "klm",
    "mmlk",
]
MARK = "not to be used"  # an image of these bytes is none, a line with a NUL is no text

# As RECORDS: an item, its label, and the records that both of the neighbours have.
ITEMS = {
    "good": ("klaf", "gnu", EVERY),
    "unusable": (f"{MARK}\0{SECRET}", "dog", EVERY),
    "odd to the encoder": (f"odd {SECRET}", "dog", EVERY),
    "empty": ("", "cat", EVERY),
    "long": ("abc" * 3000, "cat", EVERY),
    "duplicate": (TEXTS[0], "cat", EVERY),
    "odd label": ("klaf", SECRET, EVERY),
    "only one of its class": ("klaf", "gnu", NO_GNU),
    "unusable and alone in its class": (f"{MARK}\0", "gnu", NO_GNU),
    "only one of all": ("klaf", "dog", NONE),
    "unusable and alone": (f"{MARK}\0", "dog", NONE),
}


def write_csv_texts(folder, items, labels):
    with (folder / "mails.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "label"), *zip(items, labels, strict=True)]
        )


def write_json_texts(folder, items, labels):
    lines = [
        json.dumps({"text": item, "label": label})
        for item, label in zip(items, labels, strict=True)
    ]
    (folder / "mails.jsonl").write_text("".join(f"{line}\n" for line in lines))


def write_parquet_texts(folder, items, labels):
    columns = {
        "text": pa.array(items, pa.string()),
        "label": pa.array(list(labels), pa.string()),
    }
    pq.write_table(pa.table(columns), folder / "mails.parquet")


def write_images(folder, items, labels):
    for name in CLASSES:
        (folder / "photos" / name).mkdir(parents=True)
    for number, (item, label) in enumerate(zip(items, labels, strict=True)):
        path = folder / "photos" / label / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        shades = np.frombuffer(
            (item.encode() * 64)[:64].ljust(64, b"a"), np.uint8
        ).reshape(8, 8)
        if MARK in item or not item:
            path.write_bytes(item.encode())
        else:
            Image.fromarray(shades).save(path)


SOURCES = {
    "csv": (write_csv_texts, "letters", ["private/mails.csv"]),
    "jsonl": (write_json_texts, "letters", ["private/mails.jsonl"]),
    "parquet": (write_parquet_texts, "letters", ["private/mails.parquet"]),
    "images": (write_images, "pixels", ["private/photos"]),
}


@pytest.fixture
def raw_folders(tmp_path, letters):
    """Write the sources of a pair, each into a folder of its own beside the same public files."""

    def write(pair, source="csv"):
        made = [Path(tempfile.mkdtemp(dir=tmp_path)) for _ in pair]
        for folder, data in zip(made, pair, strict=True):
            (folder / "private").mkdir()
            SOURCES[source][0](folder / "private", *data)
            (folder / "classes.txt").write_text(
                "".join(f"{name}\n" for name in CLASSES)
            )
            (folder / "described.csv").write_text("class,text\ncat,abc\ndog,klm\n")
            # Ten public records, so that no id is longer than another.
            (folder / "pool.txt").write_text("".join(f"{text}\n" for text in TEXTS[2:]))
            SOURCES["images"][0](folder, TEXTS[2:], Y[2:])
            (folder / "photos").rename(folder / "pool")
        return made

    return write


def raw_neighbours(item, label, kept):
    """Return the items and labels with and without one more in the middle."""
    items = [TEXTS[place] for place in np.flatnonzero(kept)]
    labels = Y[kept].tolist()
    middle = len(items) // 2
    return (
        [*items[:middle], item, *items[middle:]],
        [*labels[:middle], label, *labels[middle:]],
    ), (items, labels)


def train(options, source="csv", label="cat"):
    known = [] if label in CLASSES else ["--options", "unknown_labels=ignore"]
    names = [
        "--classes",
        "classes.txt",
        "--out",
        "out.safetensors",
        "--options",
        "random_state=3",
        "--encoder",
        SOURCES[source][1],
    ]
    return ["train", *SOURCES[source][2], *names, *known, *options]


def pool_of(source):
    return ["--public", "pool" if source == "images" else "pool.txt"]


# Every item comes as CSV, and in the other forms what they write in a way of their own.
# JSON lines have no header: without a record there are no columns, which is the form of
# the file.
FORMED = ("unusable", "odd to the encoder", "empty", "odd label", "only one of all")
READ = {*itertools.product(SOURCES, FORMED), *itertools.product(["csv"], ITEMS)} - {
    ("jsonl", "only one of all")
}


@pytest.mark.parametrize(("source", "item"), sorted(READ))
def test_training_shows_only_what_it_releases(source, item, raw_folders, assert_same):
    pair = raw_folders(raw_neighbours(*ITEMS[item]), source)
    trace = assert_same(
        pair, train(["--mu", "1", "--method", "mean"], source, ITEMS[item][1])
    )
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])
    left = {name for name in trace.files if name.startswith("out.")}
    assert left == {"out.safetensors", "out.safetensors.private.jsonl"}


@pytest.mark.parametrize("source", SOURCES)
def test_a_record_that_cannot_be_used_beside_one_that_can(
    source, raw_folders, assert_same
):
    (bad, labels), (_, _) = raw_neighbours(*ITEMS["unusable"])
    (good, _), (_, _) = raw_neighbours("klaf", "dog", EVERY)
    pair = raw_folders([(bad, labels), (good, labels)], source)
    options = [
        "--epsilon",
        "1",
        "--method",
        "public",
        "--options",
        "n_prototypes=2",
        *pool_of(source),
    ]
    trace = assert_same(pair, train(options, source))
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize(
    ("item", "describe"),
    [
        *((item, []) for item in ITEMS),
        *(("unusable", ["--descriptions", how]) for how in ("none", "described.csv")),
    ],
    ids=str,
)
def test_training_by_the_automatic_method_makes_all_that_it_leaves_of_what_it_releases(
    item, describe, raw_folders, assert_same
):
    pair = raw_folders(raw_neighbours(*ITEMS[item]))
    assert_same(pair, ["ledger", "create", "ledger.db", "wards", "--mu", "2"])
    trace = assert_same(
        pair,
        train(["--mu", "1", *pool_of("csv"), *LEDGER, *describe], label=ITEMS[item][1]),
    )
    assert ("Started from public examples" in trace.stdout) == (
        describe != ["--descriptions", "none"]
    )
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])
    assert "SoftmaxPrototypes" in trace.stdout
    if item == "unusable":  # of all other items the files are equal as well
        for command, arguments, _ in AFTER:
            if command != "predict":
                assert_same(pair, [*command.split(), *arguments])
        assert_same(pair, ["predict", "out.safetensors", "pool.txt"])


# A person who is in one of the neighbours: text, label and id of each of their records.
PEOPLE = {
    "one record": [("klaf", "gnu", SECRET)],
    "records of several classes": [
        ("klaf", "gnu", SECRET),
        ("aab", "cat", SECRET),
        ("abc", "cat", SECRET),
    ],
    "many records": [("klaf", "gnu", SECRET)] * 9,
    "records that cannot be used": [
        (f"{MARK}\0", "dog", SECRET),
        ("", "cat", SECRET),
        ("abc", "cat", SECRET),
    ],
    "nothing that can be used": [(f"{MARK}\0", "dog", SECRET), ("", "cat", SECRET)],
    "no id": [("klaf", "gnu", None)],
    "a long id": [("klaf", "gnu", "x" * 5000)],
    "an id that is not UTF-8": [("klaf", "gnu", "\udcff")],
}


def write_people(folder, suffix, people):
    rows = [
        (text, label, f"p{place % 5}")
        for place, (text, label) in enumerate(zip(TEXTS, Y.tolist(), strict=True))
    ]
    rows[6:6] = people
    names = ("text", "label", "who")
    path = folder / "private" / f"mails{suffix}"
    if suffix == ".csv":
        with path.open("w", newline="", errors="surrogateescape") as file:
            csv.writer(file).writerows([names, *rows])
    elif suffix == ".jsonl":
        path.write_text(
            "".join(
                json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows
            )
        )
    else:
        columns = [
            [value and value.encode("utf-8", "surrogateescape") for value in column]
            for column in zip(*rows, strict=True)
        ]
        torn = [pa.array(column, pa.binary()) for column in columns]
        arrays = [
            pa.Array.from_buffers(pa.string(), len(rows), array.buffers())
            for array in torn
        ]
        pq.write_table(pa.table(arrays, names), path)


# Every person comes as Parquet; in CSV an id that is not UTF-8 is the encoding of the
# file, which a run may speak of.
ALSO = [
    ("no id", ".csv"),
    ("a long id", ".csv"),
    ("no id", ".jsonl"),
    ("an id that is not UTF-8", ".jsonl"),
]


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize(
    ("person", "suffix"), [*((person, ".parquet") for person in PEOPLE), *ALSO]
)
def test_training_on_persons_shows_only_what_it_releases(
    person, suffix, raw_folders, assert_same
):
    pair = raw_folders([(TEXTS, Y)] * 2)
    for folder, people in zip(pair, (PEOPLE[person], []), strict=True):
        write_people(folder, suffix, people)
    assert_same(
        pair,
        ["ledger", "create", "ledger.db", "wards", "--mu", "2", "--unit", "person"],
    )
    command, _, *options = train(["--mu", "1", "--groups", "who", *LEDGER])
    trace = assert_same(pair, [command, f"private/mails{suffix}", *options])
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])
    assert "each person has one id" in trace.stdout
    for command, arguments, _ in AFTER if person == "one record" else ():
        if command != "predict":
            assert_same(pair, [*command.split(), *arguments])


@pytest.mark.usefixtures("replayed")
def test_a_leak_of_the_number_of_persons_is_noticed(
    raw_folders, assert_same, monkeypatch
):
    def read_ids(*where):
        ids = whole(*where)
        print(len(set(ids)))
        return ids

    whole = pipeline.read_ids
    monkeypatch.setattr(pipeline, "read_ids", read_ids)
    pair = raw_folders([(TEXTS, Y)] * 2)
    for folder, people in zip(pair, (PEOPLE["one record"], []), strict=True):
        write_people(folder, ".csv", people)
    with pytest.raises(AssertionError, match="Trace"):
        assert_same(pair, train(["--mu", "1", "--groups", "who"]))


# Private evaluations: with the same noise on top of what was counted, all that they say
# and leave is the same.


@pytest.fixture
def evaluated(monkeypatch, trace, letters):
    """Evaluate a public model in two folders, with an account, and return both traces; mechanisms return one value."""

    def release(mechanism, exact, source):
        generator = np.random.default_rng(exact.shape)
        return np.rint(
            mechanism.noise_std * generator.normal(5, 1, exact.shape)
        ).astype(np.int64)

    monkeypatch.setattr(RoundedGaussian, "release", release)
    encoder = letters.fingerprint.text()
    model = dppl.MeanPrototypes(dppl.ZCDP(10.0), classes=CLASSES, random_state=0)

    def run(pair, data, options=(), raw=False):
        traces = []
        unit = "person" if "--groups" in options else "record"
        for folder in pair:
            rows = (
                np.random.default_rng(3)
                .standard_normal((12, 27 if raw else 8))
                .astype(np.float32)
            )
            table = dppl.io.EmbeddingTable.of(
                rows, metadata={"encoder": encoder} if raw else {}
            )
            model.fit(table, Y).save(folder / "out.safetensors", overwrite=True)
            if not (folder / "ledger.db").exists():
                trace(
                    folder,
                    "ledger",
                    "create",
                    "ledger.db",
                    "wards",
                    "--mu",
                    "2",
                    "--unit",
                    unit,
                )
            evaluate = [
                "evaluate",
                "out.safetensors",
                data,
                "--mu",
                "1",
                "--out",
                "evaluation.json",
            ]
            traces.append(
                trace(
                    folder, *evaluate, "--ledger", "ledger.db", "wards/test", *options
                )
            )
        return traces

    return run


@pytest.mark.parametrize("record", RECORDS)
def test_a_private_evaluation_shows_only_what_it_releases(record, folders, evaluated):
    first, second = evaluated(folders(neighbours(record)), "private/train.npz")
    assert first == second
    assert (first.exit_code, remarks(first.stderr), first.warnings, first.log) == (
        0,
        "",
        [],
        [],
    )
    assert "evaluation.json" in first.files


# Sources of other forms are read as they are for a training.
@pytest.mark.parametrize(
    ("source", "item"),
    [*(("csv", item) for item in ITEMS), ("jsonl", "empty"), ("parquet", "unusable")],
)
def test_a_private_evaluation_of_texts_shows_only_what_it_releases(
    source, item, raw_folders, evaluated
):
    pair = raw_folders(raw_neighbours(*ITEMS[item]), source)
    first, second = evaluated(pair, SOURCES[source][2][0], raw=True)
    assert first == second
    assert (first.exit_code, remarks(first.stderr), first.warnings, first.log) == (
        0,
        "",
        [],
        [],
    )


@pytest.mark.parametrize("person", PEOPLE)
def test_a_private_evaluation_of_persons_shows_only_what_it_releases(
    person, raw_folders, evaluated
):
    pair = raw_folders([(TEXTS, Y)] * 2)
    for folder, people in zip(pair, (PEOPLE[person], []), strict=True):
        write_people(folder, ".parquet", people)
    first, second = evaluated(
        pair, "private/mails.parquet", ["--groups", "who"], raw=True
    )
    assert first == second
    assert (first.exit_code, remarks(first.stderr), first.warnings, first.log) == (
        0,
        "",
        [],
        [],
    )


def test_a_leak_of_an_evaluation_is_noticed(folders, evaluated, monkeypatch):
    from dppl.kernel.queries.outcomes import Outcomes

    whole = Outcomes.of.__func__

    def of(kind, labels, *others, **options):
        print(len(labels))
        return whole(kind, labels, *others, **options)

    monkeypatch.setattr(Outcomes, "of", classmethod(of))
    first, second = evaluated(folders(neighbours("nan")), "private/train.npz")
    assert first != second


def test_a_refused_evaluation_shows_nothing_of_the_records(folders, evaluated):
    pair = folders(neighbours("good"))
    for options, code in (
        (["--mu", "3"], 3),
        (["--ledger", "ledger.db", "wards/other", "--y", "animal"], 4),
    ):
        first, second = evaluated(pair, "private/train.npz", options)
        assert first == second
        assert (first.exit_code, first.stdout) == (code, "")
        assert "evaluation.json" not in first.files


UNKNOWN_ITEMS = [
    (TEXTS, ["Jane", *Y[1:].tolist()]),
    ([*TEXTS, f"{MARK}\0"], [SECRET, "x", *Y[2:].tolist(), "cat"]),
]


@pytest.mark.parametrize("source", SOURCES)
def test_a_label_outside_the_classes_stops_training_without_a_word_about_it(
    source, raw_folders, assert_same
):
    made = raw_folders(UNKNOWN_ITEMS, source)
    assert_same(made, ["ledger", "create", "ledger.db", "wards", "--mu", "1"])
    trace = assert_same(made, train(["--mu", "1", *LEDGER], source), exit_code=4)
    assert (trace.stdout, trace.warnings, trace.log) == ("", [], [])
    assert "at least one is not" in trace.stderr
    assert trace.stderr.count("\n") == 1
    assert "out.safetensors" not in trace.files
    assert_same(made, ["ledger", "show", "ledger.db"])


@pytest.mark.parametrize("source", SOURCES)
def test_a_strict_training_tells_one_bit(source, raw_folders, assert_same):
    """Whatever is wrong, of one record or of several."""
    for item in ("unusable", "odd to the encoder", "empty", "odd label"):
        if (source, item) != (
            "images",
            "odd to the encoder",
        ):  # which the encoder of images does not know
            other = raw_neighbours(*ITEMS["unusable"])[0]
            pair = raw_folders(
                [
                    raw_neighbours(*ITEMS[item])[0],
                    ([*other[0], ""], [*other[1], "cat"]),
                ],
                source,
            )
            assert_same(pair, ["ledger", "create", "ledger.db", "wards", "--mu", "1"])
            trace = assert_same(
                pair,
                train(["--mu", "1", "--unusable", "stop", *LEDGER], source),
                exit_code=4,
            )
            assert (trace.stdout, trace.warnings, trace.log) == ("", [], [])
            assert trace.stderr.startswith(
                "dppl: error: --unusable stop wants records that can all be used"
            )
            assert "out.safetensors" not in trace.files


@pytest.mark.parametrize("item", ["good", "unusable", "odd label"])
def test_a_review_shows_nothing_but_on_the_terminal(
    item, raw_folders, assert_same, monkeypatch
):
    pair = raw_folders(raw_neighbours(*ITEMS[item]))
    shown = []
    monkeypatch.setattr("dppl.cli._owner.terminal", contextlib.nullcontext)
    monkeypatch.setattr(
        "dppl.cli._owner.review", lambda report, **_: shown.append(report["n"])
    )
    trace = assert_same(
        pair,
        train(
            ["--mu", "1", "--method", "mean", "--unusable", "ask"], label=ITEMS[item][1]
        ),
    )
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])
    assert shown[0] == shown[1] + 1


def test_the_items_are_read(raw_folders, trace):
    """Or equal traces would mean nothing."""
    released = []
    for folder in raw_folders(raw_neighbours(*ITEMS["good"])):
        trace(folder, *train(["--mu", "1e6", "--weak", "--method", "mean"]))
        released.append(
            safetensors.numpy.load_file(folder / "out.safetensors")["prototypes"]
        )
    assert (released[0] != released[1]).any()


@pytest.mark.parametrize(
    "way", ["a line of output", "a file beside the model", "the mode of the report"]
)
def test_a_leak_of_the_left_out_is_noticed(way, raw_folders, assert_same, monkeypatch):
    def embedded(*arguments, **options):
        done = whole(*arguments, **options)
        number = done.report.read_text().count("\n")
        if way == "a line of output":
            print(number)
        elif way == "a file beside the model":
            Path("left out").write_text(f"{number}")
        else:
            monkeypatch.setattr(
                pipeline,
                "write_atomically",
                lambda path, *_, **__: os.open(path, os.O_CREAT, 0o600 + number % 2),
            )
        return done

    whole = pipeline.embed
    monkeypatch.setattr(pipeline, "embed", embedded)
    pair = raw_folders(raw_neighbours(*ITEMS["unusable"]))
    with pytest.raises(AssertionError, match="Trace"):
        assert_same(pair, train(["--mu", "1", "--method", "mean"]))


# A network whose weights are trained

NET = """
import torch

def make():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 2)
    )
"""
NETWORK = "python:net.py:make@net.safetensors?size=6"
LEAKS_OF_FINETUNING = {
    "a line of output": print,
    "a warning": lambda n: warnings.warn(f"{n} records", UserWarning, stacklevel=2),
    "a file": lambda n: Path(f"left {n}").touch(),
}
FINETUNINGS = {
    "in mu": ["--mu", "1", *LEDGER],
    "in mu with a seed": ["--mu", "1", "--options", "random_state=3"],
    "on samples": [
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
        "--options",
        "sampling_rate=0.5",
    ],
    "with heads": ["--mu", "1", "--options", "default_head=true"],
    "of convolutions": [
        "--mu",
        "1",
        "--options",
        "train=head,norm,conv",
        "--options",
        "sparsity=0.3",
    ],
}


@pytest.fixture
def network_folders(torch, raw_folders):
    """Write the images of a pair, with a public network beside each."""
    from safetensors.torch import save_file

    def write(pair):
        names = {}
        exec(NET, names)
        torch.manual_seed(0)
        weights = names["make"]().state_dict()
        made = raw_folders(pair, "images")
        for folder in made:
            (folder / "net.py").write_text(NET)
            save_file(weights, folder / "net.safetensors")
        return made

    return write


def finetune(options, label="cat"):
    known = [] if label in CLASSES else ["--options", "unknown_labels=ignore"]
    names = [
        "--classes",
        "classes.txt",
        "--out",
        "out.safetensors",
        "--network",
        NETWORK,
    ]
    sizes = [
        "--n-records",
        "12",
        "--options",
        "train=head,norm,conv",
        "--options",
        "epochs=2",
        "--options",
        "block=4",
    ]
    return ["finetune", "private/photos", *names, *sizes, *known, *options]


@pytest.fixture
def assert_same_finetuning(assert_same):
    """Run a training in two folders, with an account, and assert that it leaves equal traces; return the trace."""

    def check(pair, options, label="cat", exit_code=0):
        assert_same(pair, ["ledger", "create", "ledger.db", "wards", "--mu", "1"])
        return assert_same(pair, finetune(options, label), exit_code)

    return check


@pytest.mark.parametrize(
    ("item", "options"),
    [
        *(("good", options) for options in FINETUNINGS),
        *((item, "in mu") for item in [*ITEMS][1:]),
    ],
)
def test_finetuning_shows_only_what_it_releases(
    item, options, network_folders, assert_same, assert_same_finetuning
):
    pair = network_folders(raw_neighbours(*ITEMS[item]))
    trace = assert_same_finetuning(pair, FINETUNINGS[options], ITEMS[item][1])
    assert (remarks(trace.stderr), trace.warnings, trace.log) == ("", [], [])
    left = {name for name in trace.files if name.startswith("out.")}
    assert left == {"out.safetensors", "out.safetensors.private.jsonl"}
    for command, arguments, released in AFTER:
        if command in ("show", "ledger show", "ledger export"):
            assert_same(pair, [*command.split(), *arguments], released=released)
    predict = ["predict", "out.safetensors", "pool", "--encoder", NETWORK]
    assert_same(pair, predict, released=rf"(?<=,)({'|'.join(CLASSES)})$")


def test_a_label_outside_the_classes_stops_finetuning_without_a_word_about_it(
    network_folders, assert_same_finetuning
):
    made = network_folders(UNKNOWN_ITEMS)
    trace = assert_same_finetuning(made, FINETUNINGS["in mu"], exit_code=4)
    assert (trace.stdout, trace.warnings, trace.log) == ("", [], [])
    assert "at least one is not" in trace.stderr
    assert trace.stderr.count("\n") == 1


def test_a_strict_finetuning_tells_one_bit_and_is_not_charged(
    network_folders, assert_same, assert_same_finetuning
):
    pair = network_folders(
        [raw_neighbours(*ITEMS[item])[0] for item in ("unusable", "odd label")]
    )
    trace = assert_same_finetuning(
        pair, ["--mu", "1", "--unusable", "stop", *LEDGER], exit_code=4
    )
    assert trace.stderr.startswith(
        "dppl: error: --unusable stop wants records that can all be used"
    )
    assert (
        json.loads(assert_same(pair, ["ledger", "show", "ledger.db", "--json"]).stdout)[
            0
        ]["releases"]
        == []
    )


def test_a_strict_finetuning_says_so_in_its_statement(network_folders, trace):
    folder, _ = network_folders([raw_neighbours(*ITEMS["good"])[1]] * 2)
    assert trace(folder, *finetune(["--mu", "1", "--unusable", "stop"])).exit_code == 0
    assert (
        Term(Caveat.STRICT_STOP).to_dict()
        in json.loads(trace(folder, "show", "out.safetensors", "--json").stdout)[
            "guarantee"
        ]["not_covered"]
    )


def test_finetuning_reads_the_images(network_folders, trace):
    """Or equal traces would mean nothing."""
    released = []
    for folder in network_folders(raw_neighbours(*ITEMS["good"])):
        trace(
            folder, *finetune(["--mu", "1e6", "--weak", "--options", "random_state=3"])
        )
        released.append(
            safetensors.numpy.load_file(folder / "out.safetensors")["values"]
        )
    assert (released[0] != released[1]).any()


@pytest.mark.parametrize("way", LEAKS_OF_FINETUNING)
def test_a_leak_of_finetuning_is_noticed(
    way, network_folders, assert_same_finetuning, monkeypatch
):
    from dppl.finetune.trainer import Training

    told = []
    whole = Training.run

    def run(self, records, **options):
        trained = whole(self, records, **options)
        told.append(len(records.labels))
        LEAKS_OF_FINETUNING[way](len(records.labels))
        return trained

    monkeypatch.setattr(Training, "run", run)
    pair = network_folders(raw_neighbours(*ITEMS["good"]))
    with pytest.raises(AssertionError, match="Trace"):
        assert_same_finetuning(pair, FINETUNINGS["in mu"])
    assert len(set(told)) == 2


# Failures


def unknown(*names):
    return X, np.array([*names, *Y[len(names) :]])


def damage(pair):
    for folder in pair:
        table = folder / "private" / "train.npz"
        table.write_bytes(table.read_bytes()[:-40])


def lengthen_labels(pair):
    for folder in pair:
        with (folder / "private" / "y.txt").open("a") as file:
            file.write("cat\n" * 3)


FAILURES = {
    "unknown labels": (
        4,
        ["--mu", "1"],
        [unknown("Jane"), unknown(SECRET, "Jane", "x")],
    ),
    "no labels": (4, ["--mu", "1", "--y", "animal"], neighbours("good")),
    "measured labels": (
        4,
        ["--mu", "1"],
        [(X, np.arange(12) / 7), (X[1:], np.arange(11) / 5)],
    ),
    "labels in bytes": (
        4,
        ["--mu", "1"],
        [(X, Y.astype("S")), (X, np.array([*Y[1:], SECRET], "S"))],
    ),
    "rows of texts": (
        4,
        ["--mu", "1"],
        [(np.full(X.shape, "1"), Y), (np.array([["1"] * 8] * 11 + [["12.5"] * 8]), Y)],
    ),
    "narrow public rows": (
        4,
        ["--mu", "1", "--method", "public", "--public", "narrow.npz"],
        neighbours("nan"),
    ),
    "few public rows": (
        4,
        [
            "--mu",
            "1",
            "--method",
            "public",
            "--public",
            "public.npz",
            "--options",
            "n_prototypes=51",
        ],
        neighbours("good"),
    ),
    "over the budget": (3, ["--mu", "1.5", *LEDGER], neighbours("huge")),
    "of another relation": (
        2,
        ["--mu", "1", "--options", "adjacency=replace-one", *LEDGER],
        neighbours("good"),
    ),
    "unknown labels that were paid for": (
        4,
        ["--mu", "1", *LEDGER],
        [unknown("Jane"), unknown(SECRET, "Jane", "x")],
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_fit_shows_nothing_of_the_records(name, folders, assert_same):
    exit_code, options, pair = FAILURES[name]
    made = folders(pair)
    assert_same(made, ["ledger", "create", "ledger.db", "wards", "--mu", "1"])
    trace = assert_same(made, fit(options), exit_code)
    assert (trace.stdout, trace.warnings, trace.log) == ("", [], [])
    assert trace.stderr.count("\n") == 1
    assert "out.safetensors" not in trace.files
    for command, arguments, released in AFTER:
        if command.startswith("ledger"):
            assert_same(made, [*command.split(), *arguments], released=released)


@pytest.mark.parametrize(
    ("spoil", "layout"),
    [(damage, "npz"), (lengthen_labels, "npy and txt")],
    ids=["damaged", "labels of another number"],
)
def test_a_spoilt_table_shows_nothing_of_the_records(
    spoil, layout, folders, assert_same
):
    pair = folders(neighbours("good"), layout)
    spoil(pair)
    trace = assert_same(pair, fit(["--mu", "1"], layout), exit_code=4)
    assert (trace.stdout, trace.warnings, trace.log) == ("", [], [])
    assert trace.stderr.count("\n") == 1


# Controls: whatever tells the number of records is noticed


def in_the_ledger(model, n):
    with contextlib.closing(sqlite3.connect("ledger.db")) as connection:
        connection.execute("UPDATE dppl_releases SET estimator = ?", (str(n),))
        connection.commit()


def state(model, n):
    (first, *others) = model.guarantee_.releases
    first = replace(first, parameters={"noise_std": float(n)})
    model.guarantee_ = replace(model.guarantee_, releases=(first, *others))


def fail(model, n):
    raise ValueError(f"{n} records")


def stop_with_code(model, n):
    sys.exit(n)


LEAKS = {
    "stdout": lambda model, n: print(n),
    "stderr": lambda model, n: print(n, file=sys.stderr),
    "a warning": lambda model, n: warnings.warn(
        f"{n} records", UserWarning, stacklevel=2
    ),
    "the log": lambda model, n: logging.getLogger("dppl").debug("%d records", n),
    "the size of a file": lambda model, n: Path("cache.npy").write_bytes(bytes(n)),
    "the name of a file": lambda model, n: Path(f"cache-{n}").touch(),
    "the mode of a file": lambda model, n: Path("cache").touch(0o400 + 0o200 * (n % 2)),
    "the content of a file": lambda model, n: Path("cache").write_text(f"{n:04}"),
    "a file beside the table": lambda model, n: Path(f"private/{n}").touch(),
    "the model": lambda model, n: setattr(model, "encoder_", f"{n:04}"),
    "the statement": state,
    "the ledger": in_the_ledger,
    "the exit code": stop_with_code,
}


def leak(monkeypatch, how, method="mean", before=lambda n: None):
    """Let a fit know the number of records, which it does not release; return a list of those that were told."""
    told = []
    kind = BY_METHOD[method_for(dppl.ZCDP(1.0)) if method == "auto" else method].load()
    whole = kind.learn

    def learn(self, measure, setting):
        count = len(behind(measure).records.codes)
        before(count)
        whole(self, measure, setting)
        told.append(count)
        how(self, count)

    monkeypatch.setattr(kind, "learn", learn)
    return told


@pytest.mark.parametrize(
    ("method", "way"),
    [
        *(("mean", way) for way in LEAKS),
        ("auto", "the model"),
        ("auto", "the statement"),
    ],
)
def test_a_leak_of_the_number_of_records_is_noticed(
    method, way, folders, assert_same, monkeypatch
):
    pair = folders(neighbours("nan"))
    assert_same(pair, ["ledger", "create", "ledger.db", "wards", "--mu", "2"])
    assert_same(pair, fit(["--mu", "1", "--method", method, *LEDGER]))
    told = leak(monkeypatch, LEAKS[way], method)
    with pytest.raises(AssertionError, match="Trace"):
        assert_same(pair, fit(["--mu", "1", "--method", method, "--force", *LEDGER]))
    assert len(set(told)) == 2  # both fits came to their ends


@pytest.mark.parametrize(
    ("method", "way", "after"),
    [
        ("mean", "the model", [0, 1, 2]),
        ("auto", "the model", [0, 1, 2]),
        ("mean", "the ledger", [6, 7]),
        ("mean", "the labels", [3, 4, 5]),
    ],
    ids=str,
)
def test_a_leak_into_what_is_published_is_noticed(
    way, after, method, folders, assert_same, trace, monkeypatch
):
    pair = folders(neighbours("nan"))
    assert_same(pair, ["ledger", "create", "ledger.db", "wards", "--mu", "1"])

    def rename(model, n):
        model.classes_ = np.array([f"{name} {n}" for name in CLASSES])

    leak(monkeypatch, LEAKS.get(way, rename), method)
    for folder in pair:
        assert (
            trace(folder, *fit(["--mu", "1", "--method", method, *LEDGER])).exit_code
            == 0
        )
    for command, arguments, released in [AFTER[place] for place in after]:
        first, second = (
            trace(folder, *command.split(), *arguments, released=released)
            for folder in pair
        )
        shown = [
            (one.stdout, one.files.get("labels.csv"), one.files.get("labels.parquet"))
            for one in (first, second)
        ]
        assert shown[0] != shown[1]


def test_a_crash_shows_its_kind_alone(folders, assert_same, monkeypatch):
    leak(monkeypatch, fail)
    trace = assert_same(folders(neighbours("nan")), fit(["--mu", "1"]), exit_code=1)
    assert "ValueError. This is a bug" in trace.stderr
