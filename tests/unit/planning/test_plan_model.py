"""The model behind a plan: its limits, its directions, and its constants beside the measurements."""

import functools
import importlib.util
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dppl import ApproxDP, GaussianDP, PureDP
from dppl.errors import BudgetError
from dppl.planning import recall_model
from dppl.planning.recall_model import LAWS, NAMED, TABLE

ROOT = Path(__file__).parents[3]
SPEC = importlib.util.spec_from_file_location(
    "dppl_benchmarks_planning", ROOT / "benchmarks" / "planning.py"
)
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)
script.groups = functools.cache(script.groups)  # which reads all measurements each time
needs_measurements = pytest.mark.skipif(
    not script.MEASURED.is_file(), reason="measurements are not in the sdist"
)

laws = st.sampled_from(list(LAWS.values()))
counts = st.integers(1, 10**6)
hard = st.floats(0.01, 10)
spends = st.floats(1e-3, 100)
widths = st.integers(1, 10**5)
classes = st.integers(2, 2000)


def expected(law, s, n, mean, d, spend, n_classes):
    return float(
        recall_model.recall(
            recall_model.variance(law, s, n, mean, d, spend) ** -0.5, n_classes
        )
    )


@given(laws, hard, counts, counts, widths, spends, classes)
def test_recall_is_between_chance_and_1(law, s, n, mean, d, spend, n_classes):
    value = expected(law, s, n, mean, d, spend, n_classes)
    assert 1 / n_classes - 1e-9 <= value <= 1
    v = recall_model.variance(law, s, n, mean, d, spend)
    low, high = recall_model.recall_range(v, n_classes, law.spread)
    assert 0 <= low <= value <= high <= 1


@given(laws, hard, counts, counts, widths, spends, classes, st.floats(1, 50))
def test_more_budget_more_records_and_easier_data_never_predict_worse(
    law, s, n, mean, d, spend, n_classes, factor
):
    base = expected(law, s, n, mean, d, spend, n_classes) - 1e-9
    assert expected(law, s, n, mean, d, spend * factor, n_classes) >= base
    assert expected(law, s, n * factor, mean * factor, d, spend, n_classes) >= base
    assert expected(law, s, n * factor, mean, d, spend, n_classes) >= base
    assert expected(law, s / factor, n, mean, d, spend, n_classes) >= base


@given(laws, hard, counts, counts, widths, spends, classes, st.floats(1.01, 50))
def test_wider_embeddings_and_more_classes_never_predict_better(
    law, s, n, mean, d, spend, n_classes, factor
):
    base = expected(law, s, n, mean, d, spend, n_classes) + 1e-9
    assert expected(law, s, n, mean, d * factor, spend, n_classes) <= base
    assert expected(law, s, n, mean, d, spend, n_classes + 1) <= base


def test_two_alternatives_have_a_closed_form():
    """The own class wins against one other with probability Phi(D / sqrt(2))."""
    from scipy.special import ndtr

    strengths = np.linspace(0, 5, 20)
    assert recall_model.recall(strengths, 2) == pytest.approx(
        ndtr(strengths / np.sqrt(2)), abs=1e-9
    )


@pytest.mark.slow
def test_many_alternatives_agree_with_a_simulation():
    """Five standard errors of 200,000 draws: a false alarm in less than one run of a million."""
    rng = np.random.default_rng(0)
    for strength, n_classes in ((1.0, 5), (2.5, 77), (4.0, 300)):
        wins = np.concatenate(
            [
                strength + rng.standard_normal(10_000)
                > rng.standard_normal((10_000, n_classes - 1)).max(axis=1)
                for _ in range(20)
            ]
        )
        error = wins.std() / np.sqrt(len(wins))
        assert abs(wins.mean() - recall_model.recall(strength, n_classes)) < 5 * error
        assert (
            abs(wins.mean() - recall_model.recall(1.1 * strength, n_classes))
            > 5 * error
        )  # the control


@given(st.floats(0.01, 0.99), classes)
def test_hardness_inverts_recall(share, n_classes):
    accuracy = 1 / n_classes + share * (1 - 1 / n_classes)
    s = recall_model.hardness(accuracy, n_classes)
    assert float(recall_model.recall(s**-0.5, n_classes)) == pytest.approx(
        accuracy, abs=1e-6
    )


def test_the_cost_of_a_selection_is_its_epsilon():
    assert recall_model.spend("public", PureDP(0.7)) == pytest.approx(0.7)
    assert recall_model.spend("public", ApproxDP(0.7, 1e-6)) == 0.7
    assert recall_model.spend("softmax", GaussianDP(0.7)) == 0.7
    with pytest.raises(BudgetError, match="pure"):
        recall_model.spend("softmax", PureDP(0.7))


@pytest.mark.slow
@needs_measurements
@pytest.mark.parametrize(("method", "public"), list(LAWS))
def test_the_constants_are_those_of_the_committed_measurements(method, public):
    data = script.groups(script.MEASURED, method, public).of(script.CALIBRATION)
    assert astuple(LAWS[method, public]) == pytest.approx(
        astuple(script.calibrated(data)), rel=0.01
    )


@needs_measurements
@pytest.mark.parametrize("public", list(NAMED))
def test_the_worth_of_names_is_that_of_the_committed_measurements(public):
    data = script.groups(script.MEASURED, "softmax", public, names=True).of(
        script.CALIBRATION
    )
    law = LAWS["softmax", public]
    assert NAMED[public] == replace(
        law, names=pytest.approx(script.worth_of_names(data, law), rel=0.01)
    )


@needs_measurements
@pytest.mark.parametrize("public", list(NAMED))
def test_the_page_states_the_errors_with_names_and_they_are_far_below_those_of_a_plan_without(
    public,
):
    data = script.groups(script.MEASURED, "softmax", public, names=True).of(script.TEST)
    label = f"softmax{', public rows' if public else ''}, names"
    page = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    assert script.row(label, "hwu64", NAMED[public], data) in page
    misses, without = (
        np.abs(data.misses(law, data.s)).mean()
        for law in (NAMED[public], LAWS["softmax", public])
    )
    assert misses < without / 2


@needs_measurements
def test_no_set_is_in_both_roles():
    assert not set(script.CALIBRATION) & set(script.TEST)
    assert not set(script.TABLES) & set(script.TEST_TABLES)
    assert set(script.groups(script.MEASURED, "softmax", False).set) == {
        *script.CALIBRATION,
        *script.TEST,
        *script.TABLES,
        *script.TEST_TABLES,
    }


@needs_measurements
@pytest.mark.parametrize(
    ("accuracy", "n_classes"), [recall_model.EASY, recall_model.HARD]
)
def test_the_easy_and_the_hard_set_are_calibration_sets(accuracy, n_classes):
    s = script.groups(script.MEASURED, "softmax", False).of(script.CALIBRATION).s
    assert any(
        recall_model.hardness(accuracy, n_classes) == pytest.approx(own) for own in s
    )


@needs_measurements
def test_tables_have_constants_of_their_own_and_the_page_says_how_good_they_are():
    data = script.groups(script.MEASURED, "softmax", False)
    found = script.calibrated(data.of(script.TABLES), table=True)
    assert astuple(TABLE) == pytest.approx(astuple(found), rel=0.01)
    middle = np.log(np.unique(data.of(script.TABLES).s)).mean()
    usual = recall_model.usual_hardness(table=True)
    assert usual == pytest.approx(np.exp(middle), rel=0.01)
    page = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    tested = data.of(script.TEST_TABLES)
    for name in script.TEST_TABLES:
        assert script.row_of_table(name, tested.of([name]).learnt()) in page
    # The control: by the constants of texts and images, it would be off by more.
    ours, others = (
        np.abs(tested.by_fit(tested.misses(law, tested.s))).mean()
        for law in (TABLE, LAWS["softmax", False])
    )
    assert ours < 0.75 * others


@pytest.mark.slow
@needs_measurements
@pytest.mark.parametrize(("method", "public"), list(LAWS))
def test_the_page_states_the_errors_on_the_test_sets(method, public):
    page = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    data = script.groups(script.MEASURED, method, public).of(script.TEST)
    label = f"{method}{', public rows' if public else ''}"
    for name in script.TEST:
        assert script.row(label, name, LAWS[method, public], data.of([name])) in page


@needs_measurements
def test_the_page_states_how_often_the_default_method_found_what_it_was_expected_to():
    verdicts = script.verdicts(
        "softmax",
        False,
        script.groups(script.MEASURED, "softmax", False).of(script.TEST),
    )
    # Cells: method, what the plan said, groups, and shares that were found, found in
    # part, not found.
    yes, _, no = [line.strip("| ").split(" | ") for line in verdicts.splitlines()]
    page = " ".join((ROOT / "docs" / "planning.md").read_text(encoding="utf-8").split())
    assert f"it found {yes[3]} and {yes[4]} more in part." in page
    assert f"it did not find {no[5]}." in page


@needs_measurements
def test_the_model_is_better_than_one_number_for_all_on_the_test_sets():
    """The control: always the mean recall of the calibration sets."""
    for (method, public), law in LAWS.items():
        data = script.groups(script.MEASURED, method, public)
        constant = data.of(script.CALIBRATION).recall.mean()
        tested = data.of(script.TEST)
        ours = np.abs(tested.misses(law, tested.s)).mean()
        assert ours < 0.75 * np.abs(constant - tested.recall).mean()
