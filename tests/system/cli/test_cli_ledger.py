"""`dppl ledger` and `dppl fit --ledger`: what they print, what they refuse, and with which code."""

import hashlib
import json
import re
import sqlite3
import sys
from datetime import UTC, datetime, timedelta

import pytest

import dppl
from dppl import PublicData
from dppl.io import write_table
from dppl.kernel import reading
from dppl.kernel.mechanisms import RoundedGaussian
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.ledger import CHARGED, RELEASED, Ledger, accounts

CLASSES = ("cat", "dog", "gnu")


@pytest.fixture
def file(task):
    return task.folder / "ledger.db"


@pytest.fixture
def wards(file):
    Ledger(file, "wards", dppl.ZCDP(1))
    return file


def rho(value):
    """Return the options of a budget that costs this rho."""
    return ["--mu", (2 * value) ** 0.5]


def fit(task, *options, out=None):
    method = [] if "--method" in options else ["--method", "mean"]
    return [
        "fit",
        task.table,
        "--classes",
        task.classes,
        "--out",
        out or task.out,
        *method,
        *options,
    ]


def charged(file, dataset="wards"):
    return ["--ledger", file, dataset]


def show(cli, file):
    result = cli("ledger", "show", file, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_the_charge_is_on_record_before_private_rows_reach_a_mechanism(
    wards, task, cli, monkeypatch
):
    """The table is read before, as docs/ledger.md says."""
    seen = []

    def noted(module, name, event):
        before = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, **kw: seen.append(event) or before(*args, **kw)
        )

    noted(dppl.io, "read_table", "table read")
    noted(Ledger, "charge", "charged")
    noted(reading, "class_codes", "labels matched")
    noted(RoundedGaussian, "release", "noise drawn")
    assert cli(*fit(task, *rho(0.5), *charged(wards))).exit_code == 0
    assert seen == ["table read", "charged", "labels matched", "noise drawn"]


def test_a_name_that_looks_like_that_of_an_account_opens_and_charges_none(
    wards, task, cli, error_line
):
    for command in (
        ["ledger", "create", wards, "Wards", "--mu", 1],
        fit(task, *rho(1), "--ledger", wards, "Wards"),
    ):
        result = cli(*command)
        assert result.exit_code == 2
        told = error_line(result)
        assert "must not look like a name that is in use" in told
        assert "got 'Wards', which looks like 'wards'" in told
    assert [(book["dataset"], book["releases"]) for book in show(cli, wards)] == [
        ("wards", [])
    ]


@pytest.mark.parametrize(
    ("options", "budget", "relation", "accounting"),
    [
        (["--mu", "0.3"], dppl.GaussianDP(0.3), "add-remove", "gdp"),
        (
            ["--mu", "0.3", "--accounting", "gdp"],
            dppl.GaussianDP(0.3),
            "add-remove",
            "gdp",
        ),
        (["--epsilon", "2"], dppl.PureDP(2.0), "add-remove", "pure"),
        (
            ["--epsilon", "4", "--delta", "1e-6", "--adjacency", "replace-one"],
            dppl.ApproxDP(4.0, 1e-6),
            "replace-one",
            "gdp",
        ),
        (
            ["--epsilon", "4", "--delta", "1e-6", "--accounting", "renyi"],
            dppl.ApproxDP(4.0, 1e-6),
            "add-remove",
            "renyi",
        ),
    ],
)
def test_create_opens_an_account_and_says_how_to_go_on(
    options, budget, relation, accounting, file, cli
):
    result = cli("ledger", "create", file, "wards", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"Data set wards: {budget}, {relation}, accounting {accounting}.\n"
        f"Next: add --ledger {file} wards to dppl train, fit or finetune\n"
    )
    (account,) = accounts(file)
    assert (account.dataset, account.budget, account.adjacency) == (
        "wards",
        budget,
        relation,
    )
    assert account.accounting == accounting


def test_without_a_command_the_help_is_shown(cli):
    result = cli("ledger")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Open an account for a data set" in result.stdout


def test_create_adds_a_data_set_to_a_ledger_but_never_changes_one(
    wards, cli, error_line
):
    assert cli("ledger", "create", wards, "trial", "--epsilon", 3).exit_code == 0
    before = wards.read_bytes()
    for mu in (1, 1.5):
        result = cli("ledger", "create", wards, "wards", "--mu", mu)
        assert result.exit_code == 2
        assert "its budget is fixed" in error_line(result)
    assert wards.read_bytes() == before
    assert [book["dataset"] for book in show(cli, wards)] == ["wards", "trial"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["wards"], "exactly one budget"),
        (["wards", "--mu", "1", "--epsilon", "1"], "exactly one budget"),
        (["wards", "--mu", "1", "--delta", "1e-6"], "--delta belongs"),
        (
            ["wards", "--mu", "1", "--accounting", "renyi"],
            "accounting must be one of 'gdp'; got 'renyi'",
        ),
        (
            ["wards", "--epsilon", "1", "--accounting", "renyi"],
            "accounting must be one of 'pure'; got",
        ),
        (
            ["wards", "--epsilon", "1", "--delta", "1e-6", "--accounting", "zcdp"],
            "accounting must be one of 'gdp', 'renyi'",
        ),
        (["wards", "--mu", "0"], "budget must be above 0"),
        (["wards", "--mu", "inf"], "mu must be"),
        (["wards", "--mu", "1", "--adjacency", "near"], "adjacency must be one of"),
        (["", "--mu", "1"], "DATASET must be a name"),
        (["a\nb\x1b[2J", "--mu", "1"], "DATASET must be a name"),
        (["a" * 256, "--mu", "1"], "DATASET must be a name"),
        (["--mu", "1"], "Missing: DATASET."),
    ],
)
def test_create_with_a_mistake_is_usage_and_makes_no_file(
    options, words, file, cli, error_line
):
    result = cli("ledger", "create", file, *options)
    assert result.exit_code == 2
    assert words in error_line(result)
    assert not file.exists()


def test_create_by_url_does_not_repeat_the_url(file, cli):
    # A URL of PostgreSQL may hold a password, which must not end up in a log.
    result = cli("ledger", "create", f"sqlite:///{file}", "wards", "--mu", 1)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(
        "Next: add --ledger URL wards to dppl train, fit or finetune\n"
    )
    assert str(file) not in result.stdout
    assert file.exists()


def test_a_new_name_of_a_part_says_what_its_owner_vouches_for(task, wards, cli):
    said = []
    for number, part in enumerate(("/Q1", "/Q1", "/Q2", "")):
        out = task.folder / f"{number}.safetensors"
        result = cli(*fit(task, *rho(0.1), *charged(wards, f"wards{part}"), out=out))
        assert result.exit_code == 0
        said.append(result.stderr)
    vouches = (
        "is a new part of wards, and you vouch for it that no record in it is in another part: their costs do not add "
        "up. Parts so far:"
    )
    assert said == [
        f"dppl: note: Q1 {vouches} none.\n",
        "",
        f"dppl: note: Q2 {vouches} Q1.\n",
        "",
    ]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (("1", "0.5"), "--delta must be below 1e-3"),
        (("1", "1e-3"), "--delta must be below 1e-3"),
        (("20.1", "1e-6"), "--epsilon must be at most 20"),
        (("21",), "--epsilon must be at most 20"),
    ],
)
def test_a_budget_that_nobody_means_needs_to_be_allowed(
    numbers, words, file, cli, error_line
):
    budget = [*zip(("--epsilon", "--delta"), numbers, strict=False)]
    create = [
        "ledger",
        "create",
        file,
        "wards",
        *(one for pair in budget for one in pair),
    ]
    refused = cli(*create)
    assert refused.exit_code == 2
    assert words in error_line(refused)
    assert error_line(refused).endswith("If it is meant, set --weak.")
    assert not file.exists()
    allowed = cli(*create, "--weak")
    assert allowed.exit_code == 0
    assert "dppl: note: " in allowed.stderr  # that it is weak
    usual = cli("ledger", "create", file, "other", "--epsilon", 20, "--delta", 9e-4)
    assert usual.exit_code == 0


def test_a_list_of_one_class_is_refused_as_soon_as_it_is_read(
    task, wards, cli, error_line
):
    for text, words in (("cat\n", "a single class"), ("cat,dog,gnu\n", "with commas")):
        task.classes.write_text(text)
        result = cli(*fit(task, *rho(0.1), *charged(wards)))
        assert result.exit_code == 4
        assert words in error_line(result)
    assert Ledger(wards, "wards").releases() == []
    task.classes.write_text("cat\ndog\ngnu\n")
    assert cli(*fit(task, *rho(0.1), *charged(wards))).exit_code == 0


def test_a_fit_is_charged_and_its_model_is_on_record(task, wards, cli):
    plain = cli(*fit(task, *rho(0.5), out=task.folder / "plain.safetensors"))
    result = cli(*fit(task, *rho(0.5), *charged(wards, "wards/north")))
    assert (plain.exit_code, plain.stderr, result.exit_code) == (0, "", 0)
    assert result.stderr.startswith("dppl: note: north is a new part of wards, and you")
    balance = "budget rho 1; spent rho 0.5; left rho 0.5"
    *_, line, _ = result.stdout.splitlines()
    assert line == f"Charged: rho 0.5, mu 1, to wards in {wards}, release 1: {balance}."
    assert f"): {balance}\n" in cli("ledger", "show", wards, COLUMNS="200").stdout
    assert "Charged" not in plain.stdout
    shown = cli("show", task.out).stdout
    assert "\nCharged to the ledger\n  - wards, release 1\n" in shown
    assert (
        "Charged to the ledger"
        not in cli("show", task.folder / "plain.safetensors").stdout
    )
    model = dppl.load(task.out)
    assert model.guarantee_.charges == (Charge("wards", 1),)
    (book,) = show(cli, wards)
    (release,) = book.pop("releases")
    cost = model.guarantee_.releases[0].cost
    assert book == {
        "dataset": "wards",
        "adjacency": "add-remove",
        "budget": {"rho": 1.0},
        "accounting": "zcdp",
        "unit": "record",
        "spent": {"rho": cost["rho"]},
        "left": Ledger(wards, "wards").left(),
    }
    assert {
        name: release[name]
        for name in ("number", "mechanism", "cost", "status", "partition", "estimator")
    } == {
        "number": 1,
        "mechanism": [{"mechanism": {"code": "rounded_gaussian"}, "times": 1}],
        "cost": cost,
        "status": RELEASED,
        "partition": "north",
        "estimator": "MeanPrototypes",
    }
    assert release["model_sha256"] == hashlib.sha256(task.out.read_bytes()).hexdigest()
    assert release["parameters"]["budget"] == {"mu": 1.0}


def test_public_prototypes_are_charged_in_a_pure_account(task, file, cli, error_line):
    assert cli("ledger", "create", file, "wards", "--epsilon", 1).exit_code == 0
    public = ["--method", "public", "--public", task.public]
    assert cli(*fit(task, "--epsilon", 0.75, *public, *charged(file))).exit_code == 0
    assert 0 < show(cli, file)[0]["spent"]["epsilon"] <= 0.75
    before = file.read_bytes()
    for options in (["--epsilon", 0.75, *public], ["--mu", 0.1]):
        result = cli(
            *fit(task, *options, *charged(file), out=task.folder / "more.safetensors")
        )
        assert result.exit_code == 3
        error_line(result)
    assert file.read_bytes() == before


def test_a_fit_over_budget_exits_with_3_and_writes_nothing(
    task, wards, cli, error_line
):
    assert cli(*fit(task, *rho(0.75), *charged(wards))).exit_code == 0
    before = wards.read_bytes()
    folder = sorted(task.folder.iterdir())
    result = cli(
        *fit(task, *rho(0.5), *charged(wards), out=task.folder / "more.safetensors")
    )
    assert result.exit_code == 3
    line = error_line(result)
    assert "needs rho = " in line
    assert "left of 1" in line
    assert "Nothing was drawn" in line
    assert wards.read_bytes() == before
    assert sorted(task.folder.iterdir()) == folder
    # With --force the older model stays as it is, too.
    model = task.out.read_bytes()
    assert cli(*fit(task, *rho(0.5), *charged(wards), "--force")).exit_code == 3
    assert task.out.read_bytes() == model
    assert (
        cli(
            *fit(
                task, *rho(0.25), *charged(wards), out=task.folder / "rest.safetensors"
            )
        ).exit_code
        == 0
    )


def test_parts_are_charged_side_by_side(task, wards, cli):
    for place, part in enumerate(("north", "south", "east")):
        out = task.folder / f"{place}.safetensors"
        assert (
            cli(
                *fit(task, *rho(0.75), *charged(wards, f"wards/{part}"), out=out)
            ).exit_code
            == 0
        )
    assert show(cli, wards)[0]["spent"]["rho"] <= 0.75
    for again in ("wards/north", "wards"):
        assert (
            cli(
                *fit(
                    task,
                    *rho(0.75),
                    *charged(wards, again),
                    out=task.folder / "m.safetensors",
                )
            ).exit_code
            == 3
        )


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (
            ["--ledger", "{file}"],
            2,
            "A value is missing: --ledger FILE DATASET[/PART].",
        ),
        (
            ["--ledger", "{file}", "ward"],
            2,
            "ledger.db, which has wards; got 'ward'; `dppl ledger create` opens an account for another. Try wards",
        ),
        (["--ledger", "{file}", "wards/"], 2, "must be a name of 1 to 255"),
        (
            ["--ledger", "{file}", "wards", "--options", "adjacency=replace-one"],
            2,
            "accounted under add-remove",
        ),
        (["--ledger", "{folder}/no.db", "wards"], 4, "there is no ledger"),
        (
            ["--ledger", "{classes}", "wards"],
            4,
            "classes.txt cannot be used: file is not a database",
        ),
        (
            ["--ledger", "{folder}", "wards"],
            4,
            "cannot be used: unable to open database file",
        ),
        (["--ledger", "nonsense://u:tiger@h/d", "wards"], 4, "'.[postgresql]'"),
    ],
)
def test_a_mistake_with_the_ledger_gets_one_line_and_pays_nothing(
    options, code, words, task, wards, cli, error_line
):
    filled = [
        option.format(file=wards, folder=task.folder, classes=task.classes)
        for option in options
    ]
    result = cli(*fit(task, *rho(0.5), *filled))
    assert result.exit_code == code
    line = error_line(result)
    assert words in line
    assert "tiger" not in line
    assert not task.out.exists()
    assert not (task.folder / "no.db").exists()
    assert show(cli, wards)[0]["releases"] == []


def test_postgresql_without_its_driver_names_the_extra(
    task, cli, error_line, monkeypatch
):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    url = "postgresql+psycopg://u:tiger@host/db"
    for arguments in (
        fit(task, *rho(1), "--ledger", url, "wards"),
        ["ledger", "show", url],
        ["ledger", "create", url, "wards", "--mu", 1],
    ):
        result = cli(*arguments)
        assert result.exit_code == 4
        line = error_line(result)
        assert "pip install -e '.[postgresql]'" in line
        assert "tiger" not in line


def test_a_fit_that_stops_after_its_charge_shows_as_unfinished(
    task, wards, cli, error_line
):
    write_table(task.table, task.X, [*task.y[:-1], "Jane-Doe"])
    result = cli(*fit(task, *rho(0.5), *charged(wards)))
    assert result.exit_code == 4
    assert "Jane" not in error_line(result)
    (book,) = show(cli, wards)
    assert [(r["status"], r["model_sha256"]) for r in book["releases"]] == [
        (CHARGED, None)
    ]
    assert 0.4 < book["spent"]["rho"] <= 0.5
    assert "charged, unfinished" in cli("ledger", "show", wards, COLUMNS="200").stdout
    assert b"Jane" not in wards.read_bytes()


def test_show_prints_accounts_and_releases(task, wards, cli):
    assert cli("ledger", "create", wards, "trial[red]", "--epsilon", 3).exit_code == 2
    assert cli("ledger", "create", wards, "trial", "--epsilon", 3).exit_code == 0
    assert cli(*fit(task, *rho(0.5), *charged(wards, "wards/north"))).exit_code == 0
    result = cli("ledger", "show", wards, COLUMNS="200")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert (
        lines[0]
        == "wards (add-remove, accounting zcdp): budget rho 1; spent rho 0.5; left rho 0.5"
    )
    assert (
        "trial (add-remove, accounting pure): nothing spent; budget epsilon 3" in lines
    )
    ((number, (when,), what, cost, digest),) = rows_of(result.stdout)
    assert (number, what) == (
        ["1"],
        ["MeanPrototypes", "rounded Gaussian", "part north"],
    )
    assert cost == ["rho 0.5", "mu 1"]
    assert (
        datetime.now(UTC) - timedelta(hours=1)
        < datetime.fromisoformat(f"{when}+00:00")
        <= datetime.now(UTC)
    )
    assert digest == [hashlib.sha256(task.out.read_bytes()).hexdigest()[:12]]
    assert "unfinished" not in result.stdout


def rows_of(shown):
    """Return the cells of each release, each as its lines; a row begins with a number."""
    rows = []
    for line in shown.splitlines():
        if line.startswith("│"):
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            if cells[0]:
                rows.append([[] for _ in cells])
            for lines, cell in zip(rows[-1], cells, strict=True):
                lines += [cell] * bool(cell)
    return rows


def test_show_fits_into_80_columns_and_cuts_nothing(task, file, cli):
    assert cli("ledger", "create", file, "wards", "--mu", 5, "--weak").exit_code == 0
    ledger = Ledger(file, "wards")
    dppl.SoftmaxPrototypes(dppl.GaussianDP(1 / 3), classes=CLASSES).fit(
        task.X, task.y, ledger=ledger
    )
    public = dppl.PublicPrototypes(dppl.GaussianDP(1 / 7), classes=CLASSES)
    public.set_params(public=PublicData(task.X_public)).fit(
        task.X, task.y, ledger=ledger, partition="the north wing"
    )
    shown = cli("ledger", "show", file, COLUMNS="80").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    (_, _, first, paid, _), (_, _, second, less, _) = rows_of(shown)
    assert first[0] == "SoftmaxPrototypes"
    assert second[0] == "PublicPrototypes"
    assert " ".join(second).endswith("part the north wing")
    assert [cost.split()[0] for cost in paid] == ["rho", "mu"]
    assert [cost.split()[0] for cost in less] == ["rho", "mu", "epsilon"]


def test_an_account_in_gaussian_dp_adds_squares_and_says_the_epsilon(
    task, file, cli, error_line
):
    assert cli("ledger", "create", file, "wards", "--mu", 1).exit_code == 0
    empty = cli("ledger", "show", file, COLUMNS="200").stdout.splitlines()
    account = "wards (add-remove, accounting gdp): "
    budget = "budget mu 1 (epsilon 4.887, delta 1e-6)"
    assert empty[0] == f"{account}nothing spent; {budget}"
    assert cli(*fit(task, "--mu", 0.6, *charged(file))).exit_code == 0
    shown = cli("ledger", "show", file, COLUMNS="200").stdout
    assert shown.startswith(
        f"{account}{budget}; spent mu 0.6 (epsilon 2.756, delta 1e-6); left mu 0.8\n"
    )
    assert "mu 0.6" in rows_of(shown)[0][3]
    (book,) = show(cli, file)
    assert (book["accounting"], book["budget"]) == ("gdp", {"mu": 1.0})
    assert 0.6 * (1 - 1e-12) < book["spent"]["mu"] <= 0.6
    result = cli(
        *fit(task, "--mu", 0.81, *charged(file), out=task.folder / "more.safetensors")
    )
    assert result.exit_code == 3
    assert "left of 1. Nothing was drawn" in error_line(result)
    assert (
        cli(
            *fit(
                task, "--mu", 0.8, *charged(file), out=task.folder / "rest.safetensors"
            )
        ).exit_code
        == 0
    )


def test_the_three_commands_of_the_readme_fit_to_the_last_bit(
    task, file, cli, error_line
):
    assert cli("ledger", "create", file, "wards", "--mu", 1).exit_code == 0
    for mu in (0.6, 0.8):
        command = [
            "fit",
            task.table,
            "--classes",
            task.classes,
            "--mu",
            mu,
            "--out",
            task.folder / f"{mu}.safetensors",
        ]
        result = cli(
            *command, *charged(file)
        )  # by the default method, which has many releases
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.startswith("SoftmaxPrototypes: ")
    (book,) = show(cli, file)
    assert 1 - 1e-9 < book["spent"]["mu"] <= 1
    assert book["left"]["mu"] < 1e-4
    assert "; left mu 0\n" in cli("ledger", "show", file, COLUMNS="200").stdout
    before = file.read_bytes()
    result = cli(*fit(task, "--mu", 1e-3, *charged(file)))
    assert result.exit_code == 3
    assert "which has 0 left of 1. Nothing was drawn and nothing charged" in error_line(
        result
    )
    assert file.read_bytes() == before


@pytest.mark.parametrize("delta", [1e-6, 9e-4])
@pytest.mark.parametrize(
    ("whole", "first"), [(2.0, 0.5), (4.0, 3.9), (1.0, 0.01), (8.0, 1 / 3)]
)
def test_what_is_left_of_an_approximate_account_is_the_largest_gaussian_release_that_fits(
    whole, first, delta, task, file
):
    account = Ledger(file, "wards", dppl.ApproxDP(whole, delta))

    def spend(epsilon):
        dppl.MeanPrototypes(dppl.ApproxDP(epsilon, delta), classes=CLASSES).fit(
            task.X, task.y, ledger=account
        )

    assert account.left() == {"epsilon": whole}
    spend(first)
    (left,) = account.left().values()
    assert (
        whole - first < left < whole
    )  # squares of mu add up, so more fits than the difference
    charges = account.to_dict()
    with pytest.raises(dppl.errors.BudgetExceeded) as refusal:
        spend(left * (1 + 1e-9))
    needed, rest, of = re.search(
        r"needs epsilon = (\S+) of .* has (\S+) left of (\S+)\. ", str(refusal.value)
    ).groups()
    assert (float(of), float(needed) > float(rest)) == (whole, True)
    assert float(rest) == left  # all digits, since few would look the same
    assert account.to_dict() == charges
    spend(left)
    assert whole * (1 - 1e-6) < account.spent()["epsilon"] <= whole
    assert account.left()["epsilon"] < 1e-3 * whole


def test_what_is_shown_as_left_of_an_approximate_account_can_be_spent(
    task, file, cli, error_line
):
    options = ["--epsilon", 4, "--delta", 1e-6]
    assert cli("ledger", "create", file, "wards", *options).exit_code == 0
    assert (
        cli(*fit(task, "--epsilon", 2, "--delta", 1e-6, *charged(file))).exit_code == 0
    )
    shown = cli("ledger", "show", file, COLUMNS="200").stdout.splitlines()[0]
    spent, left = re.search(
        r"spent epsilon (\S+), delta 1e-6; left epsilon (\S+) \(squares of mu add",
        shown,
    ).groups()
    assert spent == "2"
    (exact,) = show(cli, file)[0]["left"].values()
    assert 2 < float(left) <= exact < float(left) + 1e-5
    more = f"{float(left) + 1e-5:.6g}"
    for epsilon, code in ((more, 3), (left, 0)):
        command = fit(
            task,
            "--epsilon",
            epsilon,
            "--delta",
            1e-6,
            *charged(file),
            out=task.folder / "rest.safetensors",
        )
        result = cli(*command)
        assert result.exit_code == code
        if code:
            assert "Nothing was drawn" in error_line(result)


def test_what_is_spent_is_shown_rounded_up_and_what_is_left_down(task, wards, cli):
    assert cli(*fit(task, *rho(1 / 7), *charged(wards))).exit_code == 0
    line, *_ = cli("ledger", "show", wards, COLUMNS="200").stdout.splitlines()
    assert line.endswith(
        "spent rho 0.142858; left rho 0.857142"
    )  # 0.1428571..., 0.8571428...


def test_the_two_accountings_in_approximate_dp_are_named_and_add_up_each_in_its_way(
    task, file, cli
):
    budget = dppl.ApproxDP(4.0, 1e-6)
    for accounting in ("gdp", "renyi"):
        options = ["--epsilon", 4, "--delta", 1e-6, "--accounting", accounting]
        assert cli("ledger", "create", file, accounting, *options).exit_code == 0
        account = Ledger(file, accounting)
        dppl.MeanPrototypes(dppl.ZCDP(0.125), classes=CLASSES).fit(
            task.X, task.y, ledger=account
        )
    books = show(cli, file)
    assert [book["accounting"] for book in books] == ["gdp", "renyi"]
    ((cost,),) = {
        (json.dumps(release["cost"]),) for book in books for release in book["releases"]
    }
    exact = dppl.GaussianDP(json.loads(cost)["mu"]).to_approx(1e-6)
    looser = dppl.ZCDP(json.loads(cost)["rho"]).to_approx(1e-6)
    assert [book["spent"] for book in books] == [exact.to_dict(), looser.to_dict()]
    assert exact < looser < budget
    shown = cli("ledger", "show", file).stdout
    assert "gdp (add-remove, accounting gdp): " in shown
    assert "renyi (add-remove, accounting renyi): " in shown


def test_show_of_a_database_without_accounts_says_so_and_changes_nothing(file, cli):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE patients (name TEXT)")
    connection.close()
    before = file.read_bytes()
    result = cli("ledger", "show", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "No data set" in result.stdout
    assert show(cli, file) == []
    assert file.read_bytes() == before


def test_looking_at_no_ledger_is_input(task, cli, error_line):
    for name, words in (
        ("no.db", "there is no ledger"),
        ("classes.txt", "cannot be used"),
    ):
        task.classes.write_text("cat\ndog\ngnu\n" * 100)
        result = cli("ledger", "show", task.folder / name)
        assert result.exit_code == 4
        assert words in error_line(result)
    assert not (task.folder / "no.db").exists()


def test_a_ledger_of_another_schema_is_input(task, wards, cli, error_line):
    with sqlite3.connect(wards) as connection:
        connection.execute("UPDATE dppl_schema SET version = 4")
    connection.close()
    before = wards.read_bytes()
    for arguments in (
        ["ledger", "show", wards],
        ["ledger", "create", wards, "trial", "--mu", 1],
        fit(task, *rho(0.5), *charged(wards)),
    ):
        result = cli(*arguments)
        assert result.exit_code == 4
        assert (
            "the ledger has schema 4; this version of dppl reads schema 5"
            in error_line(result)
        )
    assert wards.read_bytes() == before
    assert not task.out.exists()


@pytest.mark.parametrize("command", ["create", "show"])
def test_each_help_has_an_example(command, cli):
    result = cli("ledger", command, "--help")
    assert result.exit_code == 0
    assert (
        f"dppl ledger {command}" in result.stdout.split("Usage:")[1].split("\n", 1)[1]
    )
