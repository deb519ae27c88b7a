"""`dppl demo`: its columns and the model that it leaves say the same of the same budget."""

import pytest

import dppl
from dppl.cli import demo
from dppl.experiments.demo import IMBALANCE_RATIOS, PAPER_EPSILONS, PRIVATE, REFERENCE, Average


@pytest.fixture
def compared(monkeypatch):
    """Leave the comparison out: it takes half a minute, and its figures are others' to test."""
    cells = [
        Average(
            method=method, imbalance_ratio=ratio, paper_epsilon=mu, balanced=0.5, minority=None if ratio == 1 else 0.25
        )
        for ratio in IMBALANCE_RATIOS
        for method, budgets in [*((method, PAPER_EPSILONS) for method in PRIVATE), (REFERENCE, [None])]
        for mu in budgets
    ]
    monkeypatch.setattr(demo, "compare", lambda sample, advance: cells)


@pytest.mark.usefixtures("compared")
def test_budgets_are_mu_with_the_exact_epsilon_and_agree(cli, tmp_path):
    result = cli("demo", "--out", tmp_path / "demo", COLUMNS="80")
    assert (result.exit_code, result.stderr.strip()) == (0, "")
    shown = result.stdout
    assert "…" not in shown
    heads = [" ".join(line.split()) for line in shown.splitlines() if line.startswith("┃")]
    assert heads == ["┃ ┃ mu 0.25 ┃ mu 1 ┃ mu 8 ┃", "┃ method ┃ epsilon 1.061 ┃ epsilon 4.887 ┃ epsilon 69.25 ┃"] * 2
    for mu, text in ((0.25, "1.061"), (1.0, "4.887"), (8.0, "69.25")):
        epsilon = dppl.GaussianDP(mu).to_approx(1e-6).epsilon
        assert epsilon <= float(text) < epsilon * 1.001
    guarantee = dppl.load(tmp_path / "demo" / "model.safetensors").guarantee_
    assert guarantee.budget == dppl.GaussianDP(1.0)
    assert guarantee.fit_for_release
    lines = shown.splitlines()
    start = lines.index(f"{guarantee.in_short()[0][0]}: {guarantee.in_short()[0][1]}")
    assert "Guarantee: epsilon = 4.887 at delta = 1e-6 (mu = 1); a guess" in lines[start]
    assert lines[start + 3] == f"All of it: dppl show {tmp_path}/demo/model.safetensors (--json for machines)"
