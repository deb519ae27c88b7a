"""`dppl demo`: its columns and the model that it leaves say the same of the same budget."""

import pytest

import dppl
from dppl.io import load_sample
from dppl.lab.commands import demo
from dppl.lab.commands.demo import (
    BUDGETS,
    IMBALANCE_RATIOS,
    PRIVATE,
    REFERENCE,
    Runs,
    compare,
    sizes,
    winner,
)
from dppl.lab.experiments.compared_methods import METHODS
from dppl.statement import words

# The probe is ahead of all that protect as much; what is published is above it and does
# not.
ACCURACIES = {method: (0.4, 0.5) for method in (*PRIVATE, REFERENCE)} | {
    "linear-probe": (0.7, 0.8),
    "coinpress": (0.9, 0.9),
}


@pytest.fixture
def compared(monkeypatch):
    """Leave the comparison out: it takes half a minute, and its figures are others' to test."""
    cells = [
        Runs(
            method,
            ratio,
            budget,
            balanced_accuracy=ACCURACIES[method],
            minority_accuracy=() if ratio == 1 else (0.25, 0.25),
        )
        for ratio in IMBALANCE_RATIOS
        for method, budgets in [
            *((method, BUDGETS) for method in PRIVATE),
            (REFERENCE, [None]),
        ]
        for budget in budgets
    ]
    monkeypatch.setattr(demo, "compare", lambda sample, advance: cells)


@pytest.mark.usefixtures("compared")
def test_budgets_are_epsilons_with_their_mu_and_the_model_has_the_first(cli, tmp_path):
    result = cli("demo", "--out", tmp_path / "demo", COLUMNS="80")
    assert (result.exit_code, result.stderr.strip()) == (0, "")
    shown = result.stdout
    assert "…" not in shown
    heads = [
        " ".join(line.split()) for line in shown.splitlines() if line.startswith("┃")
    ]
    assert (
        heads
        == [
            "┃ ┃ epsilon 1 ┃ epsilon 3 ┃ epsilon 8 ┃",
            "┃ method ┃ mu 0.2368 ┃ mu 0.6478 ┃ mu 1.532 ┃",
        ]
        * 3
    )
    for epsilon, text in ((1, "0.2368"), (3, "0.6478"), (8, "1.532")):
        mu = dppl.ApproxDP(epsilon, 1e-6).gaussian_allowance().mu
        assert mu <= float(text) < mu * 1.001
    guarantee = dppl.load(tmp_path / "demo" / "model.safetensors").guarantee_
    assert guarantee.budget == dppl.ApproxDP(1, 1e-6)
    assert guarantee.secure_noise
    lines = shown.splitlines()
    start = lines.index(
        f"{words.in_short(guarantee)[0][0]}: {words.in_short(guarantee)[0][1]}"
    )
    assert (
        "Guarantee: epsilon = 1 at delta = 1e-6 (mu = 0.2368); a guess" in lines[start]
    )
    assert (
        lines[start + 4]
        == f"All of it: dppl show {tmp_path}/demo/model.safetensors (--json for machines)"
    )


@pytest.mark.usefixtures("compared")
def test_captions_say_sizes_and_cells_their_error_and_a_star_the_winner(cli, tmp_path):
    shown = cli("demo", "--out", tmp_path / "demo", COLUMNS="80").stdout
    for caption in (
        "59 records a class",
        "classes of 59 to 20 records",
        "the rarest classes (20 and 22 records)",
    ):
        assert shown.count(caption) == 1
    rows = [line for line in shown.splitlines() if "│ Linear probe, DP-SGD" in line]
    assert [row.count("0.750 ± 0.050*") for row in rows] == [3, 3, 0]
    assert shown.count("*") == 6 + 3  # the rest is the legend
    assert shown.count("0.450 ± 0.050 ") == 6 * (len(PRIVATE) - 2) + 6


def test_rows_have_the_names_that_methods_have_elsewhere():
    assert {METHODS[name].label for name in (*PRIVATE, REFERENCE)} >= {
        demo.row_name(name)
        for name in (*PRIVATE, REFERENCE)
        if not demo.row_name(name).startswith(" ")
    }
    assert [name for name in PRIVATE if demo.row_name(name).startswith(" ")] == [
        "mean-replace-one",
        "coinpress",
        "public-topk",
    ]


@pytest.mark.parametrize(
    ("rival", "name"),
    [((0.5, 0.6), None), ((0.2, 0.3), "one"), ((0.2,), None)],
    ids=["within two standard errors", "beyond", "one seed"],
)
def test_a_winner_is_beyond_two_standard_errors(rival, name):
    assert winner({"one": (0.6, 0.7), "two": rival, "coinpress": (0.9, 0.9)}) == name


def test_a_winner_is_ahead_of_every_rival():
    values = {"one": (0.6, 0.7), "two": (0.2, 0.3), "three": (0.55, 0.65)}
    assert winner(values) is None
    assert winner({**values, "three": (0.25, 0.35)}) == "one"


def test_sizes_are_those_that_the_runs_have(monkeypatch):
    sample = load_sample()
    found = []
    real = demo.long_tailed

    def seen(y, ratio, seed):
        rows = real(y, ratio, seed)
        found.append(sorted(demo.class_sizes(y[rows], sample.classes).tolist()))
        return rows

    monkeypatch.setattr(demo, "long_tailed", seen)
    monkeypatch.setattr(demo, "SEEDS", 2)
    monkeypatch.setattr(demo, "_SETTINGS", [(REFERENCE, None)])
    cells = compare(sample, lambda: None)
    assert [
        (cell.imbalance_ratio, len(cell.balanced_accuracy), len(cell.minority_accuracy))
        for cell in cells
    ] == [
        (1, 2, 0),
        (3, 2, 2),
    ]
    assert (
        {(counts[-1], counts[0]) for counts in found[:2]}
        == {sizes(sample, 1)[:2]}
        == {(59, 59)}
    )
    assert (
        {(counts[-1], counts[0]) for counts in found[2:]}
        == {sizes(sample, 3)[:2]}
        == {(59, 20)}
    )
    assert all(counts[:2] == sizes(sample, 3)[2] == [20, 22] for counts in found[2:])
