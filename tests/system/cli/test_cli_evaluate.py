"""`dppl evaluate`: what it reads, prints and writes; of the numbers themselves see tests/unit/evaluation."""

import csv
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import dppl
from dppl.errors import InputError
from dppl.evaluation import Evaluation
from dppl.evaluation.raw_records import labels_and_persons
from dppl.io import open_source, write_table
from dppl.io.records.record import Columns
from dppl.kernel.privacy import Ledger
from dppl.prediction import predictor
from dppl.prediction.pending import pending_of_windows
from dppl.prediction.predictor import load_predictor
from dppl.training.embedding import embed_windows

# So large that noise moves no number that is compared here: one record is 30 standard
# deviations or more.
CLEAR = ["--mu", "1000", "--weak"]
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def here(task, model, monkeypatch):
    monkeypatch.chdir(task.folder)
    model.rename("model.safetensors")
    return task


def released(cli, *arguments):
    """Evaluate, and return the evaluation that was printed."""
    result = cli("evaluate", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return Evaluation.from_dict(json.loads(result.stdout))


def test_what_is_printed(here, cli):
    result = cli("evaluate", "model.safetensors", "train.npz", *CLEAR)
    lines = result.stdout.splitlines()
    said = r"for print +accuracy \d+ % \(90 % interval \d+ % to 100 %\) on about \d+ records, mu 1000\. All numbers here may"
    assert re.match(said, lines[0])
    assert [line.split("  ")[0] for line in lines[1:5]] == [
        "records tested",
        "accuracy",
        "balanced accuracy",
        "confidence above accuracy",
    ]
    assert [line.split()[1] for line in lines if line.startswith("│")] == [
        "cat",
        "dog",
        "gnu",
    ]
    rest = lines[
        next(place for place, line in enumerate(lines) if line.startswith("└")) + 1 :
    ]
    assert [line.split(":")[0] for line in rest[1:-2]] == [
        "Guarantee",
        "Protected",
        "Assumed",
        "With the model",
        "Remember",
    ]
    assert rest[0] == "Each interval covers chance and noise, and holds with 90 %."
    assert (
        rest[-2]
        == "Keep this: a second run costs as much again. --out FILE writes it for dppl show."
    )
    assert "no guarantee covers" not in result.stdout + result.stderr


def test_a_small_budget_tells_nothing_of_few_records(here, cli):
    """But with a chance of 1 %, for each of the numbers: all of four runs tell something once in 10⁴ at most."""
    told = []
    for _ in range(4):
        shown = cli("evaluate", "model.safetensors", "train.npz", "--mu", "0.01").stdout
        nothing = shown.startswith(
            "for print                  the budget is too small for "
        )
        alone = "Of single classes the budget cannot tell anything." in shown
        told.append(not (nothing and (alone or shown.count("cannot tell") >= 5)))
    assert not all(told)


def test_the_file_is_read_by_show(here, cli, error_line):
    result = cli(
        "evaluate", "model.safetensors", "train.npz", *CLEAR, "--out", "e.json"
    )
    assert result.stdout.splitlines()[-2] == (
        "Saved to e.json. Next: dppl show model.safetensors --out page.html --results e.json"
    )
    evaluation = Evaluation.from_dict(json.loads((here.folder / "e.json").read_text()))
    accuracy = str(evaluation.accuracy)
    assert accuracy in result.stdout
    shown = cli("show", "model.safetensors", "--results", "e.json")
    assert accuracy in shown.stdout
    assert shown.stderr == ""
    assert (
        f"| accuracy | {accuracy} |"
        in cli(
            "show", "model.safetensors", "--for", "hub", "--results", "e.json"
        ).stdout
    )
    page = cli("show", "model.safetensors", "--out", "page.html", "--results", "e.json")
    assert (page.stdout, page.stderr) == ("Page: page.html\n", "")
    assert accuracy in (here.folder / "page.html").read_text(encoding="utf-8")
    before = (here.folder / "e.json").read_bytes()
    again = cli("evaluate", "model.safetensors", "train.npz", *CLEAR, "--out", "e.json")
    assert (
        error_line(again)
        == "--out must name a new file; e.json exists; choose another name."
    )
    assert (here.folder / "e.json").read_bytes() == before
    assert error_line(
        cli("show", "model.safetensors", "--json", "--results", "e.json")
    ).startswith("--results is not in")
    unnamed = {**evaluation.to_dict(), "model_sha256": None}
    (here.folder / "unnamed.json").write_text(json.dumps(unnamed))
    noted = cli("show", "model.safetensors", "--results", "unnamed.json").stderr
    assert (
        noted
        == "dppl: note: these results are of predictions whose model is not named.\n"
    )
    (here.folder / "plain.json").write_text(
        cli("evaluate", "model.safetensors", "train.npz", "--json").stdout
    )
    for form in ([], ["--for", "hub"]):
        refused = cli("show", "model.safetensors", *form, "--results", "plain.json")
        assert error_line(refused).startswith("--results holds exact numbers")


def test_numbers_are_those_without_privacy_where_noise_is_small(here, cli):
    plain = json.loads(
        cli("evaluate", "model.safetensors", "train.npz", "--json").stdout
    )
    private = released(cli, "model.safetensors", "train.npz", *CLEAR)
    assert private.accuracy.value == pytest.approx(plain["accuracy"], abs=0.01)
    assert [one.recall.value for one in private.per_class] == pytest.approx(
        [one["accuracy"] for one in plain["per_class"]], abs=0.01
    )


def test_without_privacy_the_first_line_says_so(here, cli):
    shown = cli("evaluate", "model.safetensors", "train.npz")
    assert shown.stdout.splitlines()[0] == (
        "For the data owner's eyes only: no guarantee covers these numbers. To release numbers of private records, "
        "type a budget, such as --epsilon 1 --delta 1e-6."
    )
    assert shown.stderr == ""
    as_json = cli("evaluate", "model.safetensors", "train.npz", "--json")
    assert as_json.stderr == shown.stdout.splitlines()[0] + "\n"
    assert "accuracy" in json.loads(as_json.stdout)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--out", "e.json"], 2, "--out is for a private evaluation; add a budget."),
        (
            ["--ledger", "l.db", "wards"],
            2,
            "--ledger is for a private evaluation; add a budget.",
        ),
        (
            ["--delta", "1e-6"],
            2,
            "specify exactly one budget: --epsilon E --delta D, --epsilon E --alpha A, or --mu M.",
        ),
        (["--epsilon", "1"], 2, "add --delta 1e-6 to the budget."),
        ([*BUDGET, "--ledger", "l.db", "wards"], 4, "there is no ledger l.db"),
        ([*BUDGET, "--out", "train.npz"], 2, "--out must not be a file that is read"),
        (
            [*BUDGET, "--out", "nowhere/e.json"],
            2,
            "--out must lie in an existing folder",
        ),
        (
            [*BUDGET, "--y", "animal"],
            4,
            "--y must name an array or column of train.npz",
        ),
        (
            [*BUDGET, "--groups", "patient"],
            4,
            "--groups must name one array of train.npz",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    options, code, said, here, cli, error_line
):
    result = cli("evaluate", "model.safetensors", "train.npz", *options)
    assert result.exit_code == code
    assert error_line(result).startswith(said)


LEDGER = ["--ledger", "ledger.db"]


class TestAccount:
    """Of a model from one part and its evaluation on the other."""

    @pytest.fixture
    def fitted(self, here, cli):
        cli("ledger", "create", "ledger.db", "wards", "--mu", "1")
        split = ["split", "train.npz", "--test", "0.5", "--out", "a.npz", "b.npz"]
        assert cli(*split).exit_code == 0
        fit = [
            "fit",
            "a.npz",
            "--classes",
            "classes.txt",
            "--mu",
            "0.8",
            "--out",
            "m.safetensors",
        ]
        assert cli(*fit, *LEDGER, "wards/train").exit_code == 0

    @staticmethod
    def spent():
        return Ledger("ledger.db", "wards").spent()["mu"]

    def test_parts_cost_the_larger_and_the_statement_says_so(self, fitted, cli):
        result = cli(
            "evaluate", "m.safetensors", "b.npz", "--mu", "0.6", *LEDGER, "wards/test"
        )
        assert result.exit_code == 0
        assert (
            "With the model: mu = 0.8 (the evaluation says that the parts are disjoint, so the larger cost counts)."
            in result.stdout
        )
        assert (
            "Charged: rho 0.18, mu 0.6, to wards in ledger.db, release 2"
            in result.stdout
        )
        assert self.spent() == pytest.approx(0.8)
        cli("evaluate", "m.safetensors", "b.npz", "--mu", "0.6", *LEDGER, "wards/test")
        assert self.spent() == pytest.approx(
            0.6 * 2**0.5
        )  # the same records for a second time

    @pytest.mark.parametrize("part", ["wards/train", "wards"])
    def test_the_records_of_the_training_are_refused(
        self, part, fitted, cli, error_line
    ):
        result = cli("evaluate", "m.safetensors", "a.npz", "--mu", "0.1", *LEDGER, part)
        assert result.exit_code == 2
        assert error_line(result).startswith("PART of --ledger must name a part")
        assert self.spent() == pytest.approx(0.8)

    def test_nothing_is_predicted_that_is_not_paid_for(
        self, fitted, cli, error_line, monkeypatch
    ):
        def never(*_, **__):
            raise AssertionError("records were predicted")

        monkeypatch.setattr("dppl.kernel.queries.outcomes.Outcomes.of", never)
        result = cli(
            "evaluate", "m.safetensors", "b.npz", "--mu", "1.1", *LEDGER, "wards/test"
        )
        assert result.exit_code == 3
        assert result.stderr.splitlines()[-1].startswith("dppl: error: ")

    def test_the_account_is_asked_before_an_encoder_is_loaded(
        self, mails, cli, error_line, monkeypatch
    ):
        cli("ledger", "create", "ledger.db", "wards", "--mu", "1")
        cli("ledger", "create", "ledger.db", "people", "--mu", "1", "--unit", "person")
        monkeypatch.setattr("dppl.prediction.predictor.load_predictor", None)
        for mu, dataset, code in (("1.1", "wards/test", 3), ("0.5", "people/test", 2)):
            result = cli(
                "evaluate", "m.safetensors", "mails.csv", "--mu", mu, *LEDGER, dataset
            )
            assert result.exit_code == code
            assert result.stderr.splitlines()[-1].startswith("dppl: error: ")

    def test_without_a_ledger_both_add_up(self, fitted, cli):
        shown = cli("evaluate", "m.safetensors", "b.npz", "--mu", "0.6").stdout
        assert "With the model: mu = 1 (as if on the same records)." in shown


# Of nine texts one cannot be embedded and one has a label outside the class list.
TEXTS = [
    *(
        ("aaa aab", "cat"),
        ("aba a", "cat"),
        ("bbb", "dog"),
        ("", "dog"),
        ("cc", "gnu"),
        ("ccb", "gnu"),
    ),
    *(("bb b", "cat"), ("abab a", "yak"), ("odd one", "gnu")),
]


@pytest.fixture
def mails(here, letters, cli):
    with open("mails.csv", "w", newline="") as file:
        rows = [
            (text, label, number // 2) for number, (text, label) in enumerate(TEXTS)
        ]
        csv.writer(file).writerows([("text", "label", "who"), *rows])
    with open("train.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [
                ("text", "label"),
                *[("aaaa", "cat"), ("bbbb", "dog"), ("cccc", "gnu")] * 5,
            ]
        )
    train = [
        "train",
        "train.csv",
        "--encoder",
        "letters",
        "--classes",
        "classes.txt",
        "--descriptions",
        "none",
    ]
    assert (
        cli(
            *train,
            "--mu",
            "1000",
            "--weak",
            "--method",
            "mean",
            "--out",
            "m.safetensors",
        ).exit_code
        == 0
    )


def test_texts_are_evaluated_and_what_cannot_be_embedded_is_a_miss(mails, cli):
    evaluation = released(cli, "m.safetensors", "mails.csv", *CLEAR)
    assert evaluation.n.value == pytest.approx(8, abs=0.1)  # one label names no class
    # "bb b" is no cat, and neither the empty text nor the odd one can be embedded.
    assert evaluation.accuracy.value == pytest.approx(5 / 8, abs=0.02)
    assert [one.recall.value for one in evaluation.per_class] == pytest.approx(
        [2 / 3, 1 / 2, 2 / 3], abs=0.02
    )


def test_a_source_without_records_loads_no_encoder(mails, cli, monkeypatch, error_line):
    loaded = []
    whole = predictor.load_predictor
    monkeypatch.setattr(
        predictor,
        "load_predictor",
        lambda *given, **options: loaded.append(1) or whole(*given, **options),
    )
    with open("none.csv", "w") as file:
        file.write("text,label\n")
    result = cli("evaluate", "m.safetensors", "none.csv")
    assert result.exit_code == 4
    assert error_line(result).startswith("none.csv must hold labelled records")
    assert not loaded
    assert cli("evaluate", "m.safetensors", "mails.csv").exit_code == 0
    assert loaded  # the control


def test_persons_of_texts_count_once(mails, cli):
    evaluation = released(cli, "m.safetensors", "mails.csv", *CLEAR, "--groups", "who")
    assert evaluation.counted == "persons"
    assert evaluation.n.value == pytest.approx(5, abs=0.1)
    # Cats and a dog: 1, 1/2; gnus: 1; of a cat alone: 0; of one that cannot be
    # embedded: 0.
    assert evaluation.accuracy.value == pytest.approx(2.5 / 5, abs=0.03)


def test_no_embedding_outlives_its_window(mails, cli, monkeypatch):
    """Windows are alive one at a time, and the predictions of all are those of one table."""
    import weakref

    model = dppl.load("m.safetensors")
    source = open_source("mails.csv", columns=Columns(person="who"))
    loaded = load_predictor(model, None, "auto")
    windows = []

    class Window:
        def __init__(self, window):
            self.usable = window.usable
            self.rows = window.rows

    def watched():
        for window in embed_windows(source, loaded.encoder):
            watched = Window(window)
            assert not any(one() for one in windows[:-1])
            windows.append(weakref.ref(watched))
            yield watched

    monkeypatch.setattr(
        type(loaded.encoder), "window", property(lambda _: 2), raising=False
    )
    labels, persons = labels_and_persons(source)
    predictor = pending_of_windows(model, watched, len(labels), loaded)
    found = np.concatenate([one.predicted for one in predictor.guesses()])
    assert len(windows) > 2
    assert found.tolist() == [0, 0, 1, -1, 2, 2, 1, 0, -1]
    assert labels.tolist() == [label for _, label in TEXTS]
    assert persons.tolist() == [str(number // 2) for number in range(len(TEXTS))]


def test_records_that_change_while_they_are_read_are_an_error(mails, cli):
    model = dppl.load("m.safetensors")
    source = open_source("mails.csv")
    loaded = load_predictor(model, None, "auto")
    windows = partial(embed_windows, source, loaded.encoder)
    for n in (len(TEXTS) - 1, len(TEXTS) + 1):
        with pytest.raises(InputError, match="must not change"):
            list(pending_of_windows(model, windows, n, loaded).guesses())


def test_the_model_comes_first(here, cli, error_line):
    assert (
        error_line(cli("evaluate", "train.npz", "model.safetensors"))
        == "name MODEL first, then DATA."
    )


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_predictions_of_another_model_need_its_class_list_only(
    suffix, here, cli, error_line
):
    """Labels are texts, and numbers name the same class; a missing or odd prediction is a miss."""
    (here.folder / "numbers.txt").write_text("1\n2\n3\n")
    rows = [
        ("1", "1", "a"),
        ("2", "1", "a"),
        ("3", "3", "b"),
        ("2", "", "c"),
        ("2", "9", "d"),
        ("7", "1", "e"),
    ]
    if suffix == "csv":
        with open("answers.csv", "w", newline="") as file:
            csv.writer(file).writerows([("label", "predicted", "who"), *rows])
    else:
        lines = [
            json.dumps({"label": one, "predicted": two, "who": who})
            for one, two, who in rows
        ]
        (here.folder / "answers.jsonl").write_text("\n".join(lines))
    evaluation = released(cli, "numbers.txt", f"answers.{suffix}", *CLEAR)
    assert evaluation.n.value == pytest.approx(5, abs=0.1)
    assert evaluation.accuracy.value == pytest.approx(2 / 5, abs=0.02)
    assert evaluation.together is None
    assert evaluation.classes == (1, 2, 3)
    persons = released(
        cli, "numbers.txt", f"answers.{suffix}", *CLEAR, "--groups", "who"
    )
    assert persons.accuracy.value == pytest.approx(1.5 / 4, abs=0.03)
    plain = json.loads(
        cli("evaluate", "numbers.txt", f"answers.{suffix}", "--json").stdout
    )
    assert (plain["n"], plain["n_unknown_labels"]) == (6, 1)
    if suffix == "csv":
        refused = cli(
            "evaluate", "numbers.txt", "answers.csv", *BUDGET, "--x", "answer"
        )
        assert error_line(refused).startswith(
            "--x must be one column of answers.csv; got 'answer'"
        )
        refused = cli(
            "evaluate", "numbers.txt", "answers.csv", *BUDGET, "--encoder", "pixels"
        )
        assert (
            error_line(refused)
            == "--encoder is for a model, but MODEL is a class list."
        )


def test_a_weak_budget_is_noted(here, cli, notes_on_budgets):
    result = cli("evaluate", "model.safetensors", "train.npz", "--mu", "2")
    assert result.stderr.startswith(
        "dppl: note: mu = 2, Gaussian DP is a weak guarantee."
    )


def test_tables_in_parquet_have_persons(here, cli):
    write_table("t.parquet", here.X, here.y)
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table("t.parquet").append_column("who", pa.array([0] * 37))
    pq.write_table(table, "one.parquet")
    evaluation = released(
        cli, "model.safetensors", "one.parquet", *CLEAR, "--groups", "who"
    )
    assert evaluation.n.value == pytest.approx(1, abs=0.1)


def test_a_model_of_persons_evaluated_by_records_says_so(here, cli):
    ids = np.arange(len(here.y)) // 2
    np.savez("who.npz", x=here.X, y=here.y, who=ids)
    fit = [
        "fit",
        "who.npz",
        "--groups",
        "who",
        "--classes",
        "classes.txt",
        "--mu",
        "1",
        "--out",
        "p.safetensors",
    ]
    assert cli(*fit).exit_code == 0
    by_records = "the model protects persons, and this evaluation records"
    result = cli("evaluate", "p.safetensors", "who.npz", *CLEAR)
    assert f"{by_records}; add --groups COLUMN." in result.stderr
    assert f"is not known, since {by_records}." in result.stdout
    result = cli("evaluate", "p.safetensors", "who.npz", *CLEAR, "--groups", "who")
    assert "add --groups" not in result.stderr
    assert "With the model: mu = " in result.stdout


def test_a_least_confidence_is_chosen_and_said(here, cli, error_line):
    rng = np.random.default_rng(0)
    y = np.repeat(here.y, 30)
    X = (
        np.repeat(here.X, 30, axis=0)
        + rng.standard_normal((len(y), here.X.shape[1])).astype(np.float32) * 2
    )
    write_table(here.folder / "many.npz", X, y)
    given = ("evaluate", "model.safetensors", "many.npz", "--max-error", "0.1")
    model = dppl.load(here.folder / "model.safetensors")
    expected = dppl.evaluation.public_threshold(model, X, y, max_error=0.1)
    assert 0 < expected.min_confidence < 1
    for options in ([], CLEAR):
        lines = cli(*given, *options).stdout.splitlines()
        said = next(
            place for place, line in enumerate(lines) if line.startswith("At most 10 %")
        )
        assert (
            f"a confidence of {expected.min_confidence:g} or more are wrong, with 90 % confidence"
            in lines[said]
        )
        after = f"Next: dppl predict model.safetensors NEW --min-confidence {expected.min_confidence:g}"
        assert after in lines[said + 1 : said + 3]
        assert any("only if these records are public" in line for line in lines) == (
            not options
        )
        found = json.loads(cli(*given, *options, "--json").stdout)["threshold"]
        assert (found["min_confidence"], found["max_error"]) == (
            expected.min_confidence,
            0.1,
        )
    strict = cli(
        "evaluate", "model.safetensors", "many.npz", "--max-error", "0.0001"
    ).stdout
    assert "No confidence is known to keep the error at 0.01 %" in strict
    assert "Next: dppl predict" not in strict
    assert "--max-error must lie strictly between 0 and 1" in error_line(
        cli(*given[:3], "--max-error", "1")
    )
    write_csv = here.folder / "answers.csv"
    write_csv.write_text("label,predicted\ncat,cat\n")
    assert "--max-error needs probabilities" in error_line(
        cli("evaluate", here.classes, write_csv, *given[3:])
    )


def test_the_least_confidence_of_texts_counts_those_that_can_be_embedded(mails, cli):
    head, *rows = Path("mails.csv").read_text().splitlines()
    Path("many.csv").write_text("\n".join([head, *rows * 40, ""]))
    result = cli(
        "evaluate", "m.safetensors", "many.csv", "--max-error", "0.3", "--json"
    )
    found = json.loads(result.stdout)["threshold"]
    assert (found["min_confidence"], found["answered"]["value"]) == (
        0,
        1,
    )  # 1 of 6 is wrong
    found = json.loads(
        cli(
            "evaluate", "m.safetensors", "many.csv", "--max-error", "0.15", "--json"
        ).stdout
    )
    assert found["threshold"]["min_confidence"] != 0
