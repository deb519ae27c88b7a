"""What the pages in docs/ name exists: files, tests, commands and options, and their numbers are those of the code."""

import importlib.util
import json
import re
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from command_line import are_options_of, invoke
from dppl import (  # noqa: F401 (named in the pages)
    ZCDP,
    ApproxDP,
    GaussianDP,
    MeanPrototypes,
    MultiLabelPrototypes,
    PublicData,
    PureDP,
    SoftmaxPrototypes,
    lab,
)
from dppl.io import load_sample
from dppl.kernel.privacy import tradeoff
from dppl.kernel.privacy.accounting import search_epsilon_and_order
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.privacy.guarantee import DELTAS, FALSE_POSITIVE_RATES
from dppl.kernel.privacy.sensitivity import squared_norm_of
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.lab.experiments.compared_methods import METHODS
from dppl.methods.registry import BY_METHOD
from dppl.statement.words import percent, thousandths_of
from laws.recipes import FIRST, KINDS

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location(
    "dppl_tools_tables", ROOT / "tools" / "tables.py"
)
tables = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tables)
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
REVIEWS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs" / "review").glob("*.md"))
}
# What a reviewer reads.
PROOFS = "\n".join([GUARANTEES, *REVIEWS.values()])
COMMANDS = [
    line.partition("  #")[0]
    for block in re.findall(r"```console\n(.*?)```", PROOFS, re.DOTALL)
    for line in block.splitlines()
]
COMMANDS += re.findall(r"`(dppl audit [^`]+)`", PROOFS)


def test_what_is_on_disk_before_what_is_said_exactly():
    page = " ".join((ROOT / "docs" / "ledger.md").read_text(encoding="utf-8").split())
    assert (
        "charge is on disk before any private value enters a mechanism and before noise is drawn"
        in page
    )
    for command in ("`dppl fit` the table", "`dppl train` the records"):
        assert f"{command}, " in " ".join(PROOFS.split())


@pytest.mark.parametrize(
    "name",
    sorted(set(re.findall(r"\b((?:tests|tools|docs)/[\w/.]+\w(?:::\w+)?)", PROOFS))),
)
def test_named_files_and_tests_exist(name):
    path, _, test = name.partition("::")
    assert (ROOT / path).exists()
    assert not test or f"\ndef {test}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`((?!tests/|tools/)\w+(?:/\w+)+\.py)`", PROOFS)))
)
def test_named_sources_exist(name):
    assert (ROOT / "src" / "dppl" / name).exists()


@pytest.mark.parametrize("name", tables.WRITERS)
def test_what_a_page_repeats_of_the_code_is_what_the_code_says(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    assert tables.WRITERS[name](page) == page, "run python tools/tables.py"
    empty = re.findall(r"^\| `[^|]+` \| – \|", page, re.MULTILINE)
    assert not empty, "it wrote rows without words, which are yours to add"


def test_a_table_that_lacks_a_row_or_has_old_numbers_is_written_anew():
    (row,) = re.findall(r"^\| `kernel/` \|.*\n", GUARANTEES, re.MULTILINE)
    old = re.sub(r"(`measure`) \d+", r"\1 9", row)
    write = tables.WRITERS["docs/guarantees.md"]
    lines = write(GUARANTEES.replace(row, "")).splitlines()
    assert sum(line.startswith("| `kernel/` | – |") for line in lines) == 1
    assert write(GUARANTEES.replace(row, old)) == GUARANTEES


def test_whatever_holds_records_or_makes_outcomes_of_them_is_of_the_trusted_base():
    trusted = tables.trusted_files()
    pattern = re.compile(r"HeldRecords|\bGuesses\(|^def rebuilt\b")
    for path in tables.SOURCE.rglob("*.py"):
        if pattern.search(path.read_text(encoding="utf-8")):
            assert path.relative_to(tables.SOURCE).as_posix() in trusted


@pytest.mark.parametrize(
    "command", [line for line in COMMANDS if line.startswith("dppl ")]
)
def test_commands_and_their_options_exist(command):
    assert are_options_of(shlex.split(command)[1:])


def test_recipes_exist():
    recipes = re.findall(
        r"^([\w-]+)[^\n=]*:\n",
        (ROOT / "justfile").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    named = re.findall(r"\bjust ([a-z-]+)`", PROOFS) + [
        c.split()[1] for c in COMMANDS if c.startswith("just ")
    ]
    assert len(named) > 1
    assert set(named) <= set(recipes)


@pytest.mark.parametrize("from_examples", [False, True], ids=["demo", "train"])
def test_the_default_is_recomputed_by_hand(
    from_examples, tmp_path, monkeypatch, capsys
):
    """For a model as `dppl demo` releases it, and one with the releases of `dppl train`, which starts from names."""
    (snippet,) = re.findall(r"```python\n(.*?)```", PROOFS, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    sample = load_sample()
    examples = (sample.X_test[:20], sample.y_test[:20]) if from_examples else ()
    public = PublicData(sample.X_public, *examples)
    model = SoftmaxPrototypes(
        ApproxDP(1, 1e-6), classes=sample.classes, public=public, random_state=0
    )
    model.fit(sample.X, sample.y).save("model.safetensors")
    shown = invoke(["show", "model.safetensors", "--json"]).stdout
    file = tmp_path / "statement.json"
    file.write_text(shown)
    exec(compile(snippet, "review/index.md", "exec"), {})
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "in all: mu = 0.236704"
    assert "# 0.236704" in snippet
    assert len(lines) == len(model.guarantee_.releases)
    assert not any("not checked" in line for line in lines)
    statement = json.loads(shown)
    for release in statement["guarantee"][
        "releases"
    ]:  # the control: what is wrong is noticed
        for wrong in ("sensitivity", "times"):
            before = release.get(wrong)
            release[wrong] = 2 * release.get(wrong, 1)
            file.write_text(json.dumps(statement))
            with pytest.raises(AssertionError):
                exec(compile(snippet, "review/index.md", "exec"), {})
            release[wrong] = before or 1


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in FIRST
        if kind.entry.name
        in (
            "MultiLabelPrototypes",
            "MeanPrototypes",
            "LeastSquares",
            "GlobalAdapt",
            "ContinualPrototypes",
            "ContinualEnsemble",
        )
    ],
    ids=str,
)
def test_other_methods_are_recomputed_by_hand(kind, tmp_path, monkeypatch, capsys):
    (snippet,) = re.findall(r"```python\n(.*?)```", PROOFS, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    plan = kind.make(ApproxDP(1, 1e-6)).plan(32)
    content = {
        "lattice": {"n_features": 32},
        "classes": plan.setting.classes.tolist(),
        "guarantee": plan.guarantee.to_dict(),
    }
    file = tmp_path / "statement.json"
    file.write_text(json.dumps(content))
    exec(compile(snippet, "review/index.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == "in all: mu = 0.236704"


# Values of the statistics for which the pages name numbers: those of the demo, and of examples.
EXAMPLE = {
    "dim": 32,
    "n_classes": 10,
    "max_labels": 5,
    "max_tasks": 5,
    "constant": 90,
    "weight": 18832962,
    "n_rows": 6,
    "of": Term(Statistic.CLIPPED_GRADIENTS, n_classes=10, dim=32),
}
# What proves these is outside the table of sensitivities.
BY_AUTHORS = {Statistic.TEACHER_VOTES: 12**0.5, Statistic.NEIGHBOUR_VOTES: 2**0.5}


def sensitivity_of(code):
    """Return the sensitivity of a statistic with these values, None if the table has none or it is one of a wrapper."""
    if code in BY_AUTHORS:
        return BY_AUTHORS[code]
    if "of" in code.fields and code is not Statistic.WITH_CONSTANT:
        return None
    values = {
        name: EXAMPLE[name] if name in EXAMPLE else of()
        for name, of in code.fields.items()
    }
    squared = squared_norm_of(Term(code, **values))
    return None if squared is None else squared**0.5


def test_every_query_has_a_place_with_the_sensitivity_of_the_code():
    told = re.findall(r"^\| .*, `(\w+)` \| [^|]* \| [^|]* \| (\S+)", PROOFS, re.M)
    told = [(code, number) for code, number in told if code in set(Statistic)]
    in_tables = dict(told)
    assert len(told) == len(in_tables) > 15
    for code in Statistic:
        sensitivity = sensitivity_of(code)
        if sensitivity is None:
            assert code not in in_tables
            continue
        shown = rounded_up(float(sensitivity))
        assert f"`{code}`" in PROOFS
        assert in_tables.get(code, shown) == shown
        assert shown in PROOFS


def numbers_of(model, dim=32):
    """Return noise of a plan, as `dppl show` prints it."""
    for release in model.plan(dim).guarantee.releases:
        for name in ("noise_std", "off_diagonal_noise_std"):
            if name in release.parameters:
                short = f"{release.parameters[name]:.6g}"
                yield short.replace("e+0", "e+"), rounded_up(release.cost["mu"])


def test_numbers_by_hand_are_those_of_plans():
    sample = load_sample()
    budget = ApproxDP(1, 1e-6)
    public = PublicData(sample.X_public)
    demo = list(numbers_of(SoftmaxPrototypes(budget, sample.classes, public=public)))
    assert len(demo) == 7
    for noise, mu in demo:
        row = rf"^\|.* {re.escape(noise)}[ ;].*\| {re.escape(mu)} \|$"
        assert re.search(row, REVIEWS["softmax"], re.MULTILINE)
    several = MultiLabelPrototypes(budget, sample.classes)
    noises = [noise for noise, _ in numbers_of(several)]
    assert noises[1] in REVIEWS["multilabel"]
    assert noises[3] in REVIEWS["multilabel"]
    for adjacency in ("add-remove", "replace-one"):
        sums = MeanPrototypes(budget, sample.classes, adjacency=adjacency)
        ((noise, _),) = numbers_of(sums)
        assert noise in REVIEWS["means"]
    for epsilon in (1.0, 3.0):
        shown = [
            f"{epsilon:g}",
            rounded_up(tradeoff.selection_mu(epsilon)),
            f"{epsilon**2 / 8:g}",
            rounded_up(tradeoff.selection_epsilon(epsilon, 1e-6)),
            percent(tradeoff.selection_best_guess(epsilon)),
        ]
        assert f"| {' | '.join(shown)} |" in REVIEWS["public"]
    epsilon, _ = search_epsilon_and_order(0.01, 10, 1e-6)
    assert f"ε = {rounded_up(epsilon, 4)}" in REVIEWS["search"]


HEADINGS = ["What is released", "Sensitivity", "What is assumed", "By hand", "Files"]


@pytest.mark.parametrize("name", sorted(REVIEWS.keys() - {"index"}))
def test_pages_of_methods_have_the_same_parts(name):
    assert re.findall(r"^## (.*)$", REVIEWS[name], re.MULTILINE) == HEADINGS


def files_of(page):
    """Return the files that a page of a method names as its own."""
    text = REVIEWS[page].partition("\n## Files\n")[2]
    return set(re.findall(r"`((?:kernel|lab)/[\w/]+\.py)`", text))


def page_of(name):
    """Return the page of a method."""
    (page,) = re.findall(
        rf"^\|[^|]*`{name}`.*\((\w+)\.md\)", REVIEWS["index"], re.MULTILINE
    )
    return page


def trusted(kind):
    code = kind.make().plan(kind.dim).guarantee.trusted_code()
    return {file.path for file in code.files if not file.when}


def test_pages_name_the_files_that_their_methods_rest_on():
    shared = set(re.findall(r"`(kernel/[\w/]+\.py)`", REVIEWS["index"]))
    used = {}
    for kind in KINDS:
        page = page_of(kind.entry.name)
        linked = re.findall(
            r"\((\w+)\.md#files\)", REVIEWS[page].partition("\n## Files\n")[2]
        )
        files = trusted(kind)
        used.setdefault(page, set()).update(files)
        told = shared.union(*map(files_of, [page, *linked]))
        own = {file for file in files if not file.endswith("/__init__.py")}
        assert own <= told, (str(kind), own - told)
    for page, files in used.items():
        with_ids = {"kernel/persons.py", "kernel/lattice/joint.py"}
        assert files_of(page) <= files | with_ids, page


def in_words(guess, power):
    thousandths = [thousandths_of(power(level)) for level in FALSE_POSITIVE_RATES]
    return [percent(guess), *(f"{number / 10:g} %" for number in thousandths)]


def test_numbers_of_gaussian_noise_are_those_of_the_code():
    found = re.findall(
        r"^\| `(GaussianDP\([\d.]+\))` \| `(ZCDP\([\d.]+\))` \| (.*) \|$",
        PROOFS,
        re.MULTILINE,
    )
    assert len(found) == 4
    for text, concentrated, numbers in found:
        mu = eval(text).mu
        assert eval(concentrated).rho == pytest.approx(mu**2 / 2)
        *epsilons, guess, at_hundredth, at_thousandth = numbers.split(" | ")
        assert [float(epsilon) for epsilon in epsilons] == [
            float(rounded_up(tradeoff.gaussian_epsilon(mu, delta), 4))
            for delta in DELTAS
        ]
        expected = in_words(
            tradeoff.gaussian_best_guess(mu),
            lambda level, mu=mu: tradeoff.gaussian_power(mu, level),
        )
        assert [guess, at_hundredth, at_thousandth] == expected


def test_numbers_of_a_selection_are_those_of_the_code():
    found = re.findall(r"^\| `(PureDP\([\d.]+\))` \| (.*) \|$", PROOFS, re.MULTILINE)
    assert len(found) == 4
    for text, numbers in found:
        epsilon = eval(text).epsilon
        power = partial(tradeoff.selection_power, epsilon)
        assert numbers.split(" | ") == in_words(
            tradeoff.selection_best_guess(epsilon), power
        )


def test_the_table_of_concepts_has_the_same_numbers():
    text = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    found = re.findall(
        r"^\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (\S+ %) \| (\S+ %) \|$",
        text,
        re.MULTILINE,
    )
    assert len(found) == 4
    for mu, rho, epsilon, guess, rate in found:
        assert float(rho) == pytest.approx(float(mu) ** 2 / 2)
        assert float(epsilon) == float(
            rounded_up(tradeoff.gaussian_epsilon(float(mu), 1e-6), 4)
        )
        power = partial(tradeoff.gaussian_power, float(mu))
        assert [guess, rate] == in_words(
            tradeoff.gaussian_best_guess(float(mu)), power
        )[:2]


def test_the_names_of_methods_are_those_of_comparisons_and_commands():
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| `(\w+)` \| `([\w-]+)` \| ([^|]+) \|$", text, re.MULTILINE)
    assert all(
        METHODS[method].label == label
        for _, method, label in found
        if method in METHODS
    )
    assert [method for _, method, _ in found[: len(BY_METHOD)]] == list(BY_METHOD)


def test_the_numbers_of_the_readme_and_of_concepts_are_those_of_the_code():
    readme, concepts = (
        " ".join((ROOT / name).read_text(encoding="utf-8").split())
        for name in ("README.md", "docs/concepts.md")
    )
    exact = ApproxDP(1, 1e-6).gaussian_allowance().mu
    noise = percent(tradeoff.gaussian_best_guess(exact))
    pure = percent(tradeoff.selection_best_guess(1))
    alone = f"{100 / (1 + np.exp(-1)):.0f} %"
    assert (
        f"With the default method at epsilon = 1 and delta = 1e-6, their guess is right in at most {noise} of cases"
        in readme
    )
    assert (
        f"right in at most {noise} of cases for Gaussian noise with delta = 1e-6, in {pure} for a selection"
        in concepts
    )
    assert f"and in {alone} where nothing but epsilon is known" in concepts
    assert f"epsilon = 1 at delta = 1e-6 is mu = {exact:.3f}" in concepts
    twice = GaussianDP(exact * 2**0.5).to_approx(1e-6).epsilon
    assert f"together cost epsilon {rounded_up(twice, 3)}" in concepts


BUDGET = re.compile(
    r"--(epsilon|mu|rho) (\S+)(?: --delta (\S+))?|(ApproxDP|GaussianDP|ZCDP|PureDP)\(([^()]*)\)"
)
# Accounts are for several releases, and an audit sees little of a small budget.
OTHERS = re.compile(r"dppl (?:ledger|audit) |Ledger\(")


def first_budget(code):
    """Return the first budget that a fit or a plan may spend in some code, as (epsilon, delta), or as it is written."""
    found = BUDGET.search(
        "\n".join(line for line in code.splitlines() if not OTHERS.search(line))
    )
    if found is None:
        return None
    option, value, delta, kind, numbers = found.groups()
    if option == "epsilon":
        return float(value), float(delta or 1e-6)
    if kind in ("ApproxDP", "PureDP"):
        epsilon, delta = (
            [float(number.rpartition("=")[2]) for number in numbers.split(",")] + [1e-6]
        )[:2]
        return epsilon, delta
    return found[0]


def first_examples():
    """Return the code of each page, of the help of each command, and of each example of the library, by their names."""
    pages = [
        ROOT / "README.md",
        *(path for path in (ROOT / "docs").rglob("*.md") if path.stem != "cli"),
    ]
    code = {}
    for path in pages:
        blocks = re.findall(
            r"```(?:python|console)\n(.*?)```",
            path.read_text(encoding="utf-8"),
            re.DOTALL,
        )
        code[str(path.relative_to(ROOT))] = "\n".join(blocks)
    for section in (
        (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").split("\n## ")[1:]
    ):
        name, *blocks = (
            section.partition("\n")[0],
            *re.findall(r"```\w*\n(.*?)```", section, re.DOTALL),
        )
        code[name] = "\n".join(blocks)
    for path in (ROOT / "src" / "dppl").rglob("*.py"):
        lines = re.findall(
            r"^ +>>> (?:model|estimator) = (.*)",
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        code[str(path.relative_to(ROOT))] = "\n".join(lines)
    return code


def test_first_examples_have_epsilon_1():
    found = {name: first_budget(code) for name, code in first_examples().items()}
    told = {name: budget for name, budget in found.items() if budget is not None}
    assert {
        "README.md",
        "docs/start/texts.md",
        "dppl fit",
        "src/dppl/methods/softmax.py",
    } <= set(told)
    assert len(told) > 30
    # A fourth of the account of a year.
    assert {name: budget for name, budget in told.items() if budget != (1.0, 1e-6)} == {
        "docs/tutorials/hospital.md": "--mu 0.224"
    }


@pytest.mark.parametrize(
    "code",
    ["dppl fit t.npz --mu 1", "model.fit(GaussianDP(0.5))", "plan(ApproxDP(2, 1e-6))"],
)
def test_an_example_with_another_budget_is_noticed(code):
    assert first_budget(
        f"dppl ledger create l.db --epsilon 2 --delta 1e-6\n{code}"
    ) not in (None, (1.0, 1e-6))
