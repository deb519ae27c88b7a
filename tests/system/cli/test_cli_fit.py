"""`dppl fit`: the same model as the Python API, nothing private in what is printed, one line for each failure."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import warnings
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dppl
from dppl import LatticeOptions, PublicData
from dppl.io import EmbeddingTable, read_classes, write_table
from dppl.statement.words import in_short

CLASSES = ("cat", "dog", "gnu")
SECRET = "Jane-Doe-4711"


AUTO = ["--method", "auto"]


def fit_arguments(task, *options, table=None):
    """Return a command line; sums, whose fit is the shortest, unless the options say otherwise."""
    method = [] if "--method" in options else ["--method", "mean"]
    out = [] if "--out" in options else ["--out", task.out]
    return [
        "fit",
        table or task.table,
        "--classes",
        task.classes,
        *out,
        *method,
        *options,
    ]


SAME = {
    "mean": (["--mu", "0.5"], lambda task: dppl.MeanPrototypes(dppl.GaussianDP(0.5))),
    "Gaussian DP": (
        ["--mu", "0.7"],
        lambda task: dppl.MeanPrototypes(dppl.GaussianDP(0.7)),
    ),
    "Rényi DP": (
        ["--epsilon", "2", "--alpha", "8"],
        lambda task: dppl.MeanPrototypes(dppl.RenyiDP(8.0, 2.0)),
    ),
    "approximate": (
        ["--epsilon", "2", "--delta", "1e-6"],
        lambda task: dppl.MeanPrototypes(dppl.ApproxDP(2.0, 1e-6)),
    ),
    "published": (
        [
            "--mu",
            "2",
            "--options",
            "adjacency=replace-one",
            "--options",
            "coinpress=dppl",
        ],
        lambda task: dppl.MeanPrototypes(
            dppl.GaussianDP(2.0), adjacency="replace-one", coinpress="dppl"
        ),
    ),
    "mapped": (
        [
            "--mu",
            "1",
            "--options",
            "lattice__pool=2",
            "--options",
            "lattice__rotation=5",
            "--options",
            "lattice__center=public",
            "--options",
            "unknown_labels=ignore",
        ],
        lambda task: dppl.MeanPrototypes(
            dppl.GaussianDP(1.0),
            lattice=LatticeOptions(pool=2, rotation=5, center="public"),
            unknown_labels="ignore",
        ),
    ),
    "softmax": (
        ["--mu", "1", "--method", "softmax"],
        lambda task: dppl.SoftmaxPrototypes(dppl.GaussianDP(1)),
    ),
    "automatic": (
        ["--epsilon", "2", "--delta", "1e-6", "--method", "auto"],
        lambda task: dppl.SoftmaxPrototypes(dppl.ApproxDP(2.0, 1e-6)),
    ),
    "automatic, replace-one": (
        ["--mu", "1", "--method", "auto", "--options", "adjacency=replace-one"],
        lambda task: dppl.MeanPrototypes(dppl.GaussianDP(1.0), adjacency="replace-one"),
    ),
    "public": (
        ["--epsilon", "1", "--method", "public"],
        lambda task: dppl.PublicPrototypes(dppl.PureDP(1.0)),
    ),
    "several public": (
        [
            "--mu",
            "1",
            "--method",
            "public",
            "--options",
            "n_prototypes=3",
            "--options",
            "clip=0.5,1.75",
            "--options",
            "lattice__rotation=auto",
        ],
        lambda task: dppl.PublicPrototypes(
            dppl.GaussianDP(1.0),
            n_prototypes=3,
            clip=(0.5, 1.75),
            lattice=LatticeOptions(rotation="auto"),
        ),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_a_seeded_fit_writes_the_bytes_of_the_python_api(name, task, cli):
    options, build = SAME[name]
    estimator = build(task)
    uses_public = (
        not isinstance(estimator, dppl.MeanPrototypes) or estimator.lattice is not None
    )
    public = ["--public", task.public] if uses_public else []
    result = cli(*fit_arguments(task, *options, *public, "--options", "random_state=3"))
    said = estimator.budget.weakness
    assert (result.exit_code, result.stderr) == (
        0,
        f"dppl: note: {said}\n" if said else "",
    )
    estimator.set_params(classes=read_classes(task.classes), random_state=3)
    estimator.set_params(public=PublicData(task.X_public if uses_public else None)).fit(
        task.X, task.y
    )
    estimator.save(task.folder / "api.safetensors")
    assert task.out.read_bytes() == (task.folder / "api.safetensors").read_bytes()


def test_without_a_seed_two_fits_differ_and_are_secure_noise(task, cli):
    assert cli(*fit_arguments(task, "--mu", 1)).exit_code == 0
    first = task.out.read_bytes()
    result = cli(*fit_arguments(task, "--mu", 1, "--force"))
    assert result.exit_code == 0
    assert task.out.read_bytes() != first
    assert dppl.load(task.out).guarantee_.secure_noise
    assert "NOT FOR RELEASE" not in result.stdout


def test_what_is_printed_names_what_is_public_and_where_the_rest_is(task, cli):
    result = cli(*fit_arguments(task, "--mu", 0.5, "--options", "random_state=3"))
    guarantee = dppl.load(task.out).guarantee_
    first, *promise, last, owners = result.stdout.splitlines()
    saved = f"Saved to {task.out}. Next: dppl predict {task.out} DATA"
    assert first == f"MeanPrototypes: 3 classes, 8 features, add-remove. {saved}"
    assert promise == [f"{heading}: {text}" for heading, text in in_short(guarantee)]
    assert promise[0].startswith("Guarantee: NOT FOR RELEASE")
    assert "random_state" not in result.stdout
    assert last == f"All of it: dppl show {task.out} (--json for machines)"
    assert owners.startswith(
        "Before you trust the model, the owner of the records must read what dppl check TABLE"
    )


BUDGETS = {
    "mu": ["--mu", "0.8"],
    "epsilon and delta": ["--epsilon", "1.7", "--delta", "1e-6"],
    "replace-one": ["--mu", "0.8", "--options", "adjacency=replace-one"],
    "softmax": ["--mu", "0.8", "--method", "softmax"],
    "pure": ["--epsilon", "0.7", "--method", "public", "--public", "{public}"],
    "public rows": ["--mu", "0.8", "--method", "public", "--public", "{public}"],
}


@pytest.mark.parametrize("name", BUDGETS)
def test_what_is_printed_is_short_and_says_the_numbers(name, task, cli):
    command = fit_arguments(
        task, *(option.format(public=task.public) for option in BUDGETS[name])
    )
    result = cli(*command)
    assert (result.exit_code, result.stderr) == (0, "")
    _, promise, protected, assumed, remember, _, _ = (
        result.stdout.splitlines()
    )  # seven lines
    assert (
        protected
        == "Protected: one record; a person with several records is protected less, the more they have."
    )
    assert assumed.startswith(
        "Assumed: each embedding is a function of its record alone; the encoder "
    )
    assert (
        remember
        == "Remember: further releases from the same records add up; a ledger keeps account of them."
    )
    guarantee = dppl.load(task.out).guarantee_
    implied = guarantee.implied()
    epsilon, delta, mu, percent = re.search(
        r"epsilon = ([\d.]+) at delta = (1e-6)(?: \(|, )mu = ([\d.]+)\); .* at most ([\d.]+) % of cases\.$",
        promise,
    ).groups()
    (exact,) = [
        at["epsilon"] for at in implied["epsilon"] if at["delta"] == float(delta)
    ]
    assert exact <= float(epsilon) < exact * 1.001
    assert implied["mu"] <= float(mu) < implied["mu"] * 1.001
    share = Fraction(implied["best_guess"]) * 100
    assert share <= Fraction(percent) < share + 1
    assert ("epsilon = 0.7, pure DP (" in promise) == (name == "pure")


def test_gaussian_dp_from_the_fit_to_the_statement(task, cli):
    result = cli(*fit_arguments(task, "--mu", 0.8))
    assert result.stdout.startswith(
        "MeanPrototypes: 3 classes, 8 features, add-remove. Saved to "
    )
    shown = " ".join(cli("show", task.out).stdout.split())
    assert "budget mu = 0.8, Gaussian DP unit" in shown
    assert ": epsilon = 3.798 at delta = 1e-6 (mu = 0.8). Someone who" in shown
    content = json.loads(cli("show", task.out, "--json").stdout)
    assert content["guarantee"]["notion"] == "Gaussian DP"
    assert content["guarantee"]["budget"] == {"mu": 0.8}
    (release,) = content["guarantee"]["releases"]
    assert 0.8 * (1 - 1e-12) < release["cost"]["mu"] <= 0.8
    assert content["implied"]["mu"] == release["cost"]["mu"]
    at = dict(dppl.GaussianDP(release["cost"]["mu"]).to_approx(1e-6).to_dict())
    assert at in content["implied"]["epsilon"]


@pytest.mark.parametrize("record", ["good", "bad"])
@pytest.mark.parametrize(
    "options",
    [["--mu", "5", "--weak"], ["--mu", "3"], ["--epsilon", "20", "--method", "public"]],
)
def test_neighbours_print_the_same(options, record, task, cli):
    extra = np.full((1, 8), np.nan) if record == "bad" else 100 * task.X[:1]
    neighbour = task.folder / "train-more.npz"
    write_table(neighbour, np.vstack([task.X, extra]), np.append(task.y, "gnu"))
    public = ["--public", task.public] if "public" in options else []
    outputs = []
    files = []
    for table in (task.table, neighbour):
        result = cli(
            *fit_arguments(
                task,
                *options,
                *public,
                "--options",
                "random_state=3",
                "--force",
                table=table,
            )
        )
        assert result.exit_code == 0
        outputs.append((result.stdout, result.stderr))
        files.append(task.out.read_bytes())
    assert outputs[0] == outputs[1]
    if record == "good" and options[0] != "--epsilon":
        assert (
            files[0] != files[1]
        )  # the record was read, so the equal outputs mean something


def test_an_unknown_label_stops_the_fit_unnamed(task, cli, error_line):
    write_table(task.table, task.X, np.append(task.y[:-1], SECRET))
    result = cli(*fit_arguments(task, "--mu", 1))
    assert result.exit_code == 4
    line = error_line(result)
    assert "dppl check" in line
    assert SECRET not in line
    assert "37" not in line
    assert not task.out.exists()
    first = " ".join(cli("fit", "--help").stdout.partition("For example")[0].split())
    assert "one exception: a label outside the classes stops the fit" in first


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "train.npz", "--classes", "classes.txt", "--out", "n.safetensors"],
        ["evaluate", "model.safetensors", "train.npz"],
        ["ledger", "create", "ledger.db", "wards"],
    ],
)
def test_a_mu_that_protects_hardly_anybody_must_be_meant(
    command, task, model, cli, monkeypatch, error_line
):
    monkeypatch.chdir(task.folder)
    result = cli(*command, "--mu", "3.24")
    assert result.exit_code == 2
    said = "--mu must be so small that epsilon is at most 20 at delta = 1e-6"
    assert error_line(result).startswith(said)
    assert error_line(result).endswith("got 3.24. If it is meant, set --weak.")
    assert cli(*command, "--mu", "3.24", "--weak").exit_code == 0
    for file in ("n.safetensors", "ledger.db"):
        (task.folder / file).unlink(missing_ok=True)
    assert cli(*command, "--mu", "3.23").exit_code == 0


def test_an_unknown_label_can_be_left_out(task, cli):
    write_table(task.table, task.X, np.append(task.y[:-1], SECRET))
    result = cli(
        *fit_arguments(
            task,
            "--mu",
            1,
            "--options",
            "unknown_labels=ignore",
            "--options",
            "random_state=1",
        )
    )
    assert result.exit_code == 0
    left_out = task.out.read_bytes()
    write_table(task.table, task.X[:-1], task.y[:-1])
    assert (
        cli(
            *fit_arguments(
                task,
                "--mu",
                1,
                "--options",
                "unknown_labels=ignore",
                "--options",
                "random_state=1",
                "--force",
            )
        ).exit_code
        == 0
    )
    assert task.out.read_bytes() == left_out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ([], 2, "exactly one budget"),
        (["--mu", "1", "--epsilon", "1"], 2, "exactly one budget"),
        (["--mu", "1", "--epsilon", "1", "--delta", "1e-6"], 2, "exactly one budget"),
        (["--mu", "0"], 3, "mu = 0, Gaussian DP lets nothing be released"),
        (["--mu", "inf"], 2, "mu must be"),
        (["--mu", "much"], 2, "--mu"),
        (
            ["--mu", "1", "--delta", "1e-6"],
            2,
            "--delta belongs to --epsilon; --mu needs none",
        ),
        (["--mu", "1", "--alpha", "8"], 2, "--alpha belongs to --epsilon"),
        (["--epsilon", "1", "--alpha", "1"], 2, "--alpha must be above 1"),
        (["--epsilon", "30", "--alpha", "8"], 2, "at most 20"),
        (
            ["--epsilon", "1", "--alpha", "8", "--delta", "1e-6"],
            2,
            "--alpha is of another notion than --delta",
        ),
        (["--delta", "1e-6"], 2, "exactly one budget"),
        (["--mu", "-1"], 2, "--mu must be"),
        (["--mu", "nan"], 2, "--mu must be"),
        (["--epsilon", "1", "--delta", "1"], 2, "--delta must"),
        (["--epsilon", "1"], 3, "no pure-DP guarantee"),
        (["--epsilon", "1e-200", "--delta", "1e-300"], 3, ""),
        (["--mu", "1", "--method", "median"], 2, "'auto', 'softmax', 'mean', 'public'"),
        (["--mu", "1", "--method", "public"], 2, "--public"),
        (
            ["--mu", "1", "--options", "lattice__center=public"],
            2,
            "--options center=public is fitted on public rows",
        ),
        (["--mu", "1", "--options", "lattice__rotation=left"], 2, "rotation must be"),
        (["--mu", "1", "--public", "{public}"], 2, "--public has no effect"),
        (
            ["--mu", "1", "--examples", "{folder}/ex.npz"],
            2,
            "public.examples is for methods that start from examples",
        ),
        (
            [
                "--epsilon",
                "1",
                "--method",
                "public",
                "--public",
                "{public}",
                "--examples",
                "{folder}/ex.npz",
            ],
            2,
            "public.examples is for methods that start from examples",
        ),
        (
            ["--mu", "1", *AUTO, "--examples", "{folder}/train.npz"],
            2,
            "--examples must be public data; got private",
        ),
        (
            ["--mu", "1", *AUTO, "--examples", "{folder}/link.npz"],
            2,
            "--examples must be public data; got private",
        ),
        (
            ["--mu", "1", *AUTO, "--examples", "{folder}"],
            2,
            "--examples must be public data; got private",
        ),
        (
            ["--mu", "1", *AUTO, "--public", "{folder}"],
            2,
            "--public must be public data; got private",
        ),
        (["--mu", "1", *AUTO, "--examples", "{public}"], 4, "has no labels"),
        (
            ["--mu", "1", *AUTO, "--examples", "{folder}/no.npz"],
            4,
            "there is no such file or folder",
        ),
        (
            ["--mu", "1", *AUTO, "--examples", "{classes}"],
            4,
            "is not a table of embeddings",
        ),
        (
            ["--mu", "1", *AUTO, "--examples", "{folder}/narrow.npz"],
            4,
            "--examples must have the 8 features of X; got 5 features",
        ),
        (
            ["--mu", "1", *AUTO, "--examples", "{folder}/odd.npz"],
            4,
            "labels of the class list; 'cow' is not one",
        ),
        (
            ["--mu", "1", *AUTO, "--examples", "{folder}/zero.npz"],
            4,
            "public.examples must be finite rows that are not zero",
        ),
        (
            [
                "--mu",
                "1",
                *AUTO,
                "--examples",
                "{folder}/ex.npz",
                "--out",
                "{folder}/ex.npz",
                "--force",
            ],
            2,
            "that is read",
        ),
        (
            ["--mu", "1", "--options", "clip=auto"],
            2,
            "--options must be parameters of MeanPrototypes: adjacency,",
        ),
        (["--mu", "1", "--options", "n_prototypes=2"], 2, "got 'n_prototypes'"),
        (
            [
                "--mu",
                "1",
                "--method",
                "public",
                "--public",
                "{public}",
                "--options",
                "coinpress=dppl",
            ],
            2,
            "--options must be parameters of PublicPrototypes",
        ),
        (
            [
                "--mu",
                "1",
                "--method",
                "public",
                "--public",
                "{public}",
                "--options",
                "clip=1",
            ],
            2,
            "clip must be",
        ),
        (
            [
                "--mu",
                "1",
                "--method",
                "public",
                "--public",
                "{public}",
                "--options",
                "clip=2,1",
            ],
            2,
            "clip must be",
        ),
        (["--mu", "1", "--options", "coinpress=dppl"], 2, "replace-one"),
        (
            ["--mu", "1", "--options", "adjacency=near"],
            2,
            "adjacency must be one of 'add-remove', 'replace-one'; got",
        ),
        (
            ["--mu", "1", "--options", "coinpress=dppl"],
            2,
            "coinpress divides by class sizes, which only --options adjacency=replace-one",
        ),
        (
            ["--epsilon", "1", "--method", "auto"],
            2,
            "add --delta 1e-6 to the budget, which the default method needs.",
        ),
        (
            ["--epsilon", "1", *AUTO, "--public", "{public}"],
            2,
            "it needs public rows and --method public.",
        ),
        (["--epsilon", "one", "--delta", "1e-6"], 2, "--epsilon"),
        (
            ["--mu", "1", "--method", "auto", "--options", "lattice__pool=2"],
            2,
            "--options must be parameters of SoftmaxPrototypes",
        ),
        (
            ["--mu", "1", "--options", "unknown_labels=guess"],
            2,
            "unknown_labels must be one of",
        ),
        (["--mu", "1", "--options", "lattice__pool=9"], 2, "pool must be"),
        (["--mu", "1", "--options", "random_state=-1"], 2, "random_state"),
        (["--mu", "1", "--frobnicate"], 2, " Try: dppl fit --help"),
        (["--mu", "1", "--x", "rows"], 4, "'rows'"),
        (
            ["--mu", "1", "--read", "labels={folder}/no.txt"],
            4,
            "there is no such file or folder",
        ),
        (["--mu", "1", "--read", "labels={classes}"], 4, "one label"),
        (
            ["--mu", "1", "--method", "public", "--public", "{folder}/no.npz"],
            4,
            "there is no such file or folder",
        ),
    ],
)
def test_a_mistake_gets_one_line_and_a_code(
    options, code, words, task, cli, error_line
):
    for name, rows, label in (
        ("ex", np.eye(8), "cat"),
        ("narrow", np.eye(5), "cat"),
        ("odd", np.eye(8), "cow"),
        ("zero", np.zeros((2, 8)), "cat"),
    ):
        write_table(task.folder / f"{name}.npz", rows, np.array([label] * len(rows)))
    (task.folder / "link.npz").hardlink_to(task.table)
    filled = [
        option.format(public=task.public, classes=task.classes, folder=task.folder)
        for option in options
    ]
    result = cli(*fit_arguments(task, *filled))
    assert result.exit_code == code
    assert words in error_line(result)
    assert not task.out.exists()


def test_the_class_list_must_be_given_and_the_error_says_why(task, cli, error_line):
    result = cli("fit", task.table, "--mu", 1, "--out", task.out)
    assert result.exit_code == 2
    line = error_line(result)
    assert "public" in line


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("no.npz", None),
        ("bad.npz", b"PK"),
        ("bad.parquet", b"PAR1"),
        ("text.csv", b"1,2\n"),
    ],
)
def test_a_table_that_cannot_be_read_is_input(name, content, task, cli, error_line):
    if content is not None:
        (task.folder / name).write_bytes(content)
    result = cli(*fit_arguments(task, "--mu", 1, table=task.folder / name))
    assert result.exit_code == 4
    assert name in error_line(result)


def test_raw_records_are_to_be_embedded_first(task, cli, error_line):
    (task.folder / "mails.csv").write_text("text,label\nhello,cat\n")
    result = cli(
        "fit",
        task.folder / "mails.csv",
        "--classes",
        task.classes,
        "--mu",
        1,
        "--out",
        task.out,
    )
    assert result.exit_code == 4
    assert f"embed them first: dppl embed {task.folder / 'mails.csv'}" in error_line(
        result
    )


@pytest.mark.parametrize("delta", [9e-4, 1e-4, 9e-5, 1e-6])
def test_a_large_delta_gets_a_note(delta, task, cli):
    result = cli(*fit_arguments(task, "--epsilon", 1, "--delta", delta))
    assert result.exit_code == 0
    assert (" is too large for most data" in result.stderr) == (delta >= 1e-4)
    assert result.stderr.count("\n") == (delta >= 1e-4)


@pytest.mark.usefixtures("notes_on_budgets")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--mu", 1e6, "--weak"], "mu = 1e+6, Gaussian DP is a weak guarantee"),
        (["--mu", 1], "It implies epsilon = 4.887 at delta = 1e-6"),
        (["--epsilon", 3, "--delta", 1e-6], "is a weak guarantee"),
        (["--mu", 0.64], None),
        (["--mu", 0.2], None),
    ],
)
def test_a_budget_that_promises_little_gets_a_note_whatever_its_notion(
    options, words, task, cli
):
    result = cli(*fit_arguments(task, *options))
    assert result.exit_code == 0
    assert result.stderr.count("\n") == (words is not None)
    assert (words or "") in result.stderr


def test_a_misspelt_command_gets_a_suggestion(cli, error_line):
    line = error_line(cli("shw"))
    assert line.startswith('Unknown command "shw". Did you mean "show"? ')
    assert line.endswith(" Try: dppl --help")


def test_a_table_without_labels_is_input(task, cli, error_line):
    result = cli(*fit_arguments(task, "--mu", 1, table=task.public))
    assert result.exit_code == 4
    assert "--read labels" in error_line(result)


def test_an_existing_file_stays_and_is_checked_before_anything_else(
    task, cli, error_line
):
    task.out.write_text("precious")
    result = cli(*fit_arguments(task, "--mu", "-1", table="no-such-table.npz"))
    assert result.exit_code == 2
    assert "--force" in error_line(result)
    assert cli(*fit_arguments(task, "--mu", 1)).exit_code == 2
    assert task.out.read_text() == "precious"
    assert cli(*fit_arguments(task, "--mu", 1, "--force")).exit_code == 0
    assert dppl.load(task.out).classes_.tolist() == ["cat", "dog", "gnu"]


@pytest.mark.parametrize(
    "out", ["no/folder/m.safetensors", ".", "train.npz", "classes.txt", "link.npz"]
)
def test_an_output_that_makes_no_sense_is_usage_even_with_force(
    out, task, cli, error_line
):
    (task.folder / "link.npz").symlink_to(task.table)
    before = task.table.read_bytes()
    arguments = [
        "fit",
        task.table,
        "--classes",
        task.classes,
        "--out",
        task.folder / out,
        "--mu",
        1,
        "--force",
    ]
    result = cli(*arguments)
    assert result.exit_code == 2
    assert "--out must" in error_line(result)
    assert task.table.read_bytes() == before


def test_labels_take_the_type_of_the_class_list(task, cli):
    numbers = np.repeat([1, 2, 10], (20, 12, 5))
    task.classes.write_text("1\n2\n10\n")
    files = []
    for labels in (numbers, numbers.astype(str)):
        write_table(task.table, task.X, labels)
        assert (
            cli(
                *fit_arguments(
                    task, "--mu", 1, "--options", "random_state=1", "--force"
                )
            ).exit_code
            == 0
        )
        files.append(task.out.read_bytes())
    assert files[0] == files[1]
    assert dppl.load(task.out).classes_.tolist() == [1, 2, 10]


def test_every_format_of_table_gives_the_same_model(task, cli):
    np.save(task.folder / "train.npy", task.X)
    np.save(task.folder / "y.npy", task.y)
    (task.folder / "y.txt").write_text("".join(f"{label}\n" for label in task.y))
    write_table(task.folder / "train.parquet", task.X, task.y)
    lists = pa.array(list(task.X), pa.list_(pa.float32()))
    pq.write_table(
        pa.table({"features": lists, "animal": task.y}), task.folder / "other.parquet"
    )
    files = []
    for table, *options in (
        ["train.npz"],
        ["train.parquet"],
        ["train.npy", "--read", f"labels={task.folder / 'y.npy'}"],
        ["train.npy", "--read", f"labels={task.folder / 'y.txt'}"],
        ["other.parquet", "--x", "features", "--y", "animal"],
    ):
        arguments = fit_arguments(
            task,
            "--mu",
            1,
            "--options",
            "random_state=1",
            "--force",
            *options,
            table=task.folder / table,
        )
        assert cli(*arguments).exit_code == 0
        files.append(task.out.read_bytes())
    assert len(set(files)) == 1


def test_the_table_is_handed_over_unread_so_that_it_streams(task, cli, monkeypatch):
    seen = {}

    def fit(self, X, y, **options):
        seen.update(X=X, X_public=self.public.rows)
        raise dppl.errors.InputError("seen enough.")

    monkeypatch.setattr(dppl.PublicPrototypes, "fit", fit)
    cli(*fit_arguments(task, "--mu", 1, "--method", "public", "--public", task.public))
    assert isinstance(seen["X"], EmbeddingTable)
    assert isinstance(seen["X_public"], EmbeddingTable)


def fail_with(monkeypatch, error):
    def fit(self, X, y, **options):
        raise error

    monkeypatch.setattr(dppl.MeanPrototypes, "fit", fit)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyError(SECRET), 1, "KeyError. This is a bug"),
        (ValueError(SECRET), 1, "ValueError. This is a bug"),
        (
            MemoryError("Unable to allocate an array with shape (4711, 8)"),
            4,
            "not enough memory",
        ),
        (
            PermissionError(13, "Permission denied", "some/file"),
            4,
            "some/file: Permission denied",
        ),
        (FileExistsError("x exists."), 2, "x exists."),
        (dppl.errors.BudgetError("too\nmuch\x1b[2J"), 3, "too much\\x1b[2J"),
        (dppl.errors.MissingExtra("install it"), 4, "install it"),
    ],
)
def test_a_failure_in_the_library_becomes_one_line(
    error, code, words, task, cli, error_line, monkeypatch
):
    fail_with(monkeypatch, error)
    result = cli(*fit_arguments(task, "--mu", 1))
    assert result.exit_code == code
    line = error_line(result)
    assert words in line
    assert "4711" not in line


def test_an_interruption_is_no_error(task, cli, monkeypatch):
    fail_with(monkeypatch, KeyboardInterrupt())
    result = cli(*fit_arguments(task, "--mu", 1))
    assert (result.exit_code, result.stdout, result.stderr) == (
        130,
        "",
        "dppl: interrupted.\n",
    )


def test_a_traceback_of_a_bug_has_to_be_asked_for(task, cli, monkeypatch):
    fail_with(monkeypatch, KeyError(SECRET))
    result = cli(*fit_arguments(task, "--mu", 1), DPPL_DEBUG="1")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert SECRET in result.stderr
    assert result.stderr.splitlines()[-1].startswith("dppl: error: KeyError")


def test_warnings_stay_inside(task, cli, monkeypatch):
    whole = dppl.MeanPrototypes.fit

    def fit(self, X, y, **options):
        warnings.warn(f"the label {SECRET} is odd", UserWarning, stacklevel=2)
        return whole(self, X, y, **options)

    monkeypatch.setattr(dppl.MeanPrototypes, "fit", fit)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        result = cli(*fit_arguments(task, "--mu", 1))
    assert (result.exit_code, result.stderr, shown) == (0, "", [])
    assert SECRET not in result.stdout


def test_no_arguments_show_the_help_and_the_help_shows_the_codes(cli):
    result = cli()
    assert result.exit_code == 0
    assert result.stdout == cli("--help").stdout
    for words in (
        "Exit codes: 0 done",
        "2 usage",
        "3 a budget",
        "dppl fit train.npz",
        "evaluate",
    ):
        assert words in result.stdout
    assert cli("--version").stdout == f"dppl {dppl.__version__}\n"


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "show", "check"])
def test_each_help_has_an_example(command, cli):
    result = cli(command, "--help")
    assert result.exit_code == 0
    assert f" dppl {command}" in result.stdout.split("Usage:")[1].split("\n", 1)[1]


@pytest.mark.slow
def test_the_real_command_fits_and_fails_like_the_app(task, process):
    done = process(*fit_arguments(task, "--mu", 0.2, "--options", "random_state=2"))
    assert (done.returncode, done.stderr) == (0, "")
    expected = dppl.MeanPrototypes(
        dppl.GaussianDP(0.2), classes=["cat", "dog", "gnu"], random_state=2
    )
    np.testing.assert_array_equal(
        dppl.load(task.out).prototypes_, expected.fit(task.X, task.y).prototypes_
    )
    again = process(*fit_arguments(task, "--mu", 0.2))
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith("dppl: error: --out must name a new file")
    assert again.stderr.count("\n") == 1


# Forks a child for each moment, so that everything is imported once and the moments
# count from the start of the work.
KILLER = """
import json, os, signal, sys, time
from dppl import Ledger, MeanPrototypes  # which commands import late
from dppl.cli.main import run
from dppl.io import read_parts

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us may ignore it

def fit(name, delay=None, at_sync=None):
    os.mkdir(name)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if at_sync is not None:  # the content is written, but has no name yet
            os.fsync = lambda descriptor: os.kill(os.getpid(), at_sync)
        arguments = f"fit x.npy --read labels=y.npy --classes classes.txt --mu 0.5 --method mean --out {name}/m"
        arguments += ".safetensors"
        sys.argv[1:] = arguments.split()
        run()
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

started = time.perf_counter()
codes = {"whole": fit("whole")}
duration = time.perf_counter() - started
for share in range(5):
    codes[f"killed-{share}"] = fit(f"killed-{share}", delay=share / 4 * duration)
codes["sync"] = fit("sync", at_sync=signal.SIGKILL)
codes["interrupt"] = fit("interrupt", at_sync=signal.SIGINT)
print(json.dumps(codes))
"""


@pytest.mark.slow
def test_a_killed_fit_leaves_a_whole_model_or_nothing(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.standard_normal((10_000, 64), np.float32))
    np.save(tmp_path / "y.npy", rng.integers(0, 200, 10_000))
    (tmp_path / "classes.txt").write_text("".join(f"{i}\n" for i in range(200)))
    # Forking with idle BLAS threads is what this test wants; from 3.12 on Python warns
    # of it.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", KILLER]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    codes = json.loads(done.stdout)
    # A killed fit may also leave a hidden part of the model, which has no name that
    # anything reads.
    left = {
        name: [path.name for path in (tmp_path / name).glob("[!.]*")] for name in codes
    }
    assert not [path.name for path in (tmp_path / "interrupt").iterdir()]
    assert (codes["whole"], left["whole"]) == (0, ["m.safetensors"])
    assert (codes["killed-0"], left["killed-0"]) == (-signal.SIGKILL, [])
    assert (codes["sync"], left["sync"]) == (-signal.SIGKILL, [])
    assert (codes["interrupt"], left["interrupt"]) == (130, [])
    assert done.stderr == "dppl: interrupted.\n"
    for name, files in left.items():
        assert files in ([], ["m.safetensors"])
        if files:
            assert len(dppl.load(tmp_path / name / "m.safetensors").classes_) == 200


@pytest.mark.parametrize("public", [True, False])
def test_a_linear_model_is_fitted_shown_and_used(task, cli, public):
    options = ["--public", task.public] if public else []
    result = cli(
        *fit_arguments(
            task,
            "--mu",
            1.6,
            "--method",
            "softmax",
            "--options",
            "random_state=3",
            *options,
        )
    )
    assert (result.exit_code, result.stderr) == (0, "")
    again = dppl.SoftmaxPrototypes(dppl.GaussianDP(1.6), list(CLASSES), random_state=3)
    again.set_params(public=PublicData(task.X_public if public else None)).fit(
        task.X, task.y
    )
    assert task.out.read_bytes() == again.to_bytes()
    shown = cli("show", task.out).stdout
    assert "SoftmaxPrototypes" in shown
    assert ("the public rows" in shown) == public
    assert len(cli("predict", task.out, task.table).stdout.splitlines()) == len(task.y)


def test_public_examples_are_read_and_shown(task, cli, error_line):
    examples = task.X_public[:5]
    of = np.array(["cat", "cat", "gnu", "gnu", "gnu"])
    write_table(task.folder / "examples.npz", examples, of)
    options = [
        "--mu",
        "1",
        *AUTO,
        "--options",
        "random_state=3",
        "--examples",
        task.folder / "examples.npz",
    ]
    result = cli(*fit_arguments(task, *options))
    assert (result.exit_code, result.stderr) == (0, "")
    again = dppl.SoftmaxPrototypes(dppl.GaussianDP(1.0), list(CLASSES), random_state=3)
    again.set_params(public=PublicData(examples=examples, example_classes=of)).fit(
        task.X, task.y
    )
    assert task.out.read_bytes() == again.to_bytes()
    shown = cli("show", task.out).stdout
    assert re.search("public examples +5, for 2 of 3 classes", shown)
    assert "public descriptions" not in shown
    assert "the examples or descriptions of the classes" in shown
    assert (
        "| public examples | 5, for 2 of 3 classes |"
        in cli("show", task.out, "--for", "hub").stdout
    )


def test_examples_of_another_encoder_are_refused(task, cli, error_line):
    for name, encoder in (("private", "one"), ("named", "other")):
        rows, of = (
            (task.X, task.y)
            if name == "private"
            else (np.eye(8)[:3], np.array(CLASSES))
        )
        write_table(
            task.folder / f"{name}.parquet", rows, of, metadata={"encoder": encoder}
        )
    options = ["--mu", "1", *AUTO, "--examples", task.folder / "named.parquet"]
    result = cli(*fit_arguments(task, *options, table=task.folder / "private.parquet"))
    assert result.exit_code == 4
    assert (
        "public.examples must be embedded by the encoder that the fit names"
        in error_line(result)
    )


@pytest.mark.parametrize(
    "options",
    [
        ["--options", f"pool={2}"],
        ["--options", "adjacency=replace-one"],
        ["--options", f"lattice__rotation={1}"],
        ["--options", "coinpress=dppl"],
        ["--options", "clip=auto"],
    ],
)
def test_options_of_other_methods_are_refused(task, cli, error_line, options):
    result = cli(*fit_arguments(task, "--mu", 1, "--method", "softmax", *options))
    assert result.exit_code == 2
    assert options[0] in error_line(result)


def test_a_model_of_public_examples_alone_is_shown_as_one(task, cli):
    write_table(task.folder / "examples.npz", np.eye(8)[:3], np.array(CLASSES))
    result = cli(
        *fit_arguments(
            task, "--mu", "0", *AUTO, "--examples", task.folder / "examples.npz"
        )
    )
    assert (result.exit_code, result.stderr) == (0, "")
    for command in (["show", task.out], ["show", task.out, "--for", "hub"]):
        shown = " ".join(cli(*command).stdout.split())
        assert "Nothing was released from private records" in shown
        assert "before dppl accounted" not in shown
        assert "sensitivity and parameters" not in shown
        assert "## Releases" not in shown


def test_a_fit_over_institutions_takes_no_option_of_a_table(task, cli, error_line):
    pathlib.Path("federation.toml").touch()
    fit = ["fit", "federation.toml", "--classes", "classes.txt", "--mu", "1"]
    # The control: without one, the file of the federation is what is wrong.
    assert "each institution" not in error_line(cli(*fit, "--out", "m.safetensors"))
    for option in (["--read", "id=i"], ["--groups", "g"], ["--ledger", "l.db", "a"]):
        said = error_line(cli(*fit, *option, "--out", "m.safetensors"))
        assert said.endswith("each institution has its own.")
