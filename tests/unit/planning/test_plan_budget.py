"""`plan_budget`: what it says, and what it refuses."""

import itertools
import json

import numpy as np
import pytest

import dppl
from dppl import ZCDP, ApproxDP, GaussianDP, PureDP, RenyiDP, plan_budget
from dppl.errors import BudgetError, ParameterError
from dppl.finetune import is_worth_training
from dppl.io import load_sample
from dppl.methods.registry import BY_METHOD
from dppl.planning import recall_model
from dppl.planning.budget_plan import FEATURES
from dppl.planning.guessed_sizes import rising_sizes

USUAL = {"n_classes": 10, "n_records": 5000, "smallest": 20, "n_features": 384}


@pytest.fixture(scope="module")
def sample():
    return load_sample()


def test_quarters_are_one_fit_of_all_records_at_its_part_of_mu():
    """So the table of docs/quarters.md has them: four quarters at mu are as good as all records at mu/2.

    With mu times records below 40 a start counts for nothing.
    """
    given = {"n_classes": 64, "n_features": 384}
    plan = plan_budget(GaussianDP(0.5), n_records=2000, quarters=4, **given)
    whole = plan_budget(GaussianDP(0.25), n_records=8000, **given)
    part = plan_budget(GaussianDP(0.25), n_records=2000, **given)
    assert plan.last_quarter.balanced_accuracy == pytest.approx(whole.balanced_accuracy)
    assert plan.same_persons.balanced_accuracy == pytest.approx(part.balanced_accuracy)
    assert "each spends mu/2, here 0.25, and a person" in str(plan)
    tiny = plan_budget(GaussianDP(1e-4), n_records=2000, quarters=1000, **given)
    assert "here 3.162e-6, and a person" in str(tiny)
    few = plan_budget(GaussianDP(0.05), n_records=799, quarters=4, **given)
    assert few.last_quarter.balanced_accuracy == few.balanced_accuracy
    more = plan_budget(GaussianDP(0.05), n_records=800, quarters=4, **given)
    assert more.last_quarter.balanced_accuracy > more.balanced_accuracy
    assert "quarter" not in str(whole).lower()
    with pytest.raises(ParameterError, match="quarters above 1"):
        plan_budget(GaussianDP(0.5), n_records=2000, quarters=4, method="mean", **given)


@pytest.mark.parametrize(
    ("n_classes", "n_records", "smallest"),
    [(2, 100, 1), (10, 5000, 20), (77, 9001, 116)],
)
def test_sizes_rise_from_the_smallest_and_add_up(n_classes, n_records, smallest):
    sizes = rising_sizes(n_classes, n_records, smallest)
    assert sizes.sum() == pytest.approx(n_records)
    assert (np.diff(sizes) >= 0).all()
    assert sizes[0] == pytest.approx(smallest, rel=0.01)


@pytest.mark.parametrize("method", ["softmax", "mean"])
def test_institutions_together_have_the_noise_of_all_of_them(method):
    given = USUAL | {"method": method}
    plan = plan_budget(GaussianDP(0.9), **given, n_parties=9)
    as_one = plan_budget(GaussianDP(0.3), **given)
    assert plan.balanced_accuracy == pytest.approx(as_one.balanced_accuracy)
    assert (
        plan.one_place.balanced_accuracy
        == plan_budget(GaussianDP(0.9), **given).balanced_accuracy
    )
    assert (
        plan.alone.balanced_accuracy
        < plan.balanced_accuracy
        < plan.one_place.balanced_accuracy
    )
    assert plan.cost["mu"] == plan_budget(GaussianDP(0.9), **given).cost["mu"]
    assert "the noise of a sum is 3 times as wide" in str(plan)
    with pytest.raises(ParameterError, match="n_parties above 1"):
        plan_budget(
            GaussianDP(0.9), **given | {"method": "public"}, n_public=100, n_parties=2
        )


def test_weights_are_trained_where_a_class_has_enough_records_for_the_budget():
    # mu is 0.25, so 100 times mu takes 400 records of each of 20 classes.
    plans = [
        plan_budget(GaussianDP(0.25), n_classes=20, n_records=n, n_features=64)
        for n in (7999, 8000)
    ]
    assert [plan.train for plan in plans] == [False, True]
    assert is_worth_training(GaussianDP(0.25), 20, 8000.0)
    assert "Here it is 99: stay with `dppl train`." in str(plans[0])
    assert (
        "Here it is 100: compare `dppl finetune` with `dppl train` on public images."
        in str(plans[1])
    )
    of_images = {"n_classes": 20, "n_records": 8000, "encoder": "resnet-50"}
    assert plan_budget(GaussianDP(0.25), **of_images).train
    for of_texts in (
        {"encoder": "minilm"},
        {"encoder": None, "n_features": 64, "describe": "names"},
    ):
        plan = plan_budget(GaussianDP(0.25), **of_images | of_texts)
        assert plan.train is None
        assert "Images" not in str(plan)


def test_a_rare_class_is_not_found_and_the_plan_says_how_many_records_it_takes():
    plan = plan_budget(ApproxDP(1, 1e-6), **USUAL)
    assert (plan.classes[0].size, plan.classes[0].found, plan.classes[-1].found) == (
        20,
        "no",
        "yes",
    )
    assert (
        "A class of 20 records is not expected to be found at epsilon = 1 at delta = 1e-06 ("
        in str(plan).replace("1e-6", "1e-06")
    )
    assert f"it takes about {plan.needed}." in str(plan)
    enough = plan_budget(ApproxDP(1, 1e-6), **USUAL | {"smallest": plan.needed})
    less = plan_budget(
        ApproxDP(1, 1e-6), **USUAL | {"smallest": int(plan.needed / 1.3)}
    )
    assert (enough.classes[0].found, less.classes[0].found == "yes") == ("yes", False)


@pytest.mark.parametrize("method", ["softmax", "mean", "public"])
@pytest.mark.parametrize("smallest", [1, 20, 500])
@pytest.mark.parametrize("n_classes", [2, 10])
def test_more_budget_and_more_records_never_predict_worse(method, smallest, n_classes):
    given = USUAL | {
        "method": method,
        "smallest": smallest,
        "n_classes": n_classes,
        "n_public": 1000,
    }
    plans = [plan_budget(GaussianDP(mu), **given) for mu in (0.01, 0.1, 1, 10)]
    balanced = [plan.balanced_accuracy for plan in plans]
    assert balanced == sorted(balanced)
    for plan in plans:
        assert (
            1 / n_classes - 1e-9 <= plan.low <= plan.balanced_accuracy <= plan.high <= 1
        )
        for gain in (plan.twice_the_budget, plan.twice_the_records):
            assert gain.balanced_accuracy >= plan.balanced_accuracy - 1e-9
            assert gain.smallest_recall >= plan.classes[0].recall - 1e-9
        recalls = [one.recall for one in plan.classes]
        assert recalls == sorted(recalls)
    needed = [plan.needed for plan in plans]
    assert needed == sorted(needed, reverse=True)


@pytest.mark.parametrize("n_public", [0, 1000])
def test_the_method_is_the_default_of_the_budget_or_as_named(n_public):
    plan = plan_budget(ZCDP(0.5), **USUAL, n_public=n_public)
    assert (plan.method, plan.is_default) == ("softmax", True)
    assert "Method: softmax, the default for this budget." in str(plan)
    named = plan_budget(ZCDP(0.5), **USUAL, method="mean")
    assert (named.method, named.is_default) == ("mean", False)


def test_the_plan_knows_a_start_from_names_and_says_what_changes():
    without, named = (
        plan_budget(ApproxDP(1, 1e-6), **USUAL, describe=start)
        for start in ("none", "names")
    )
    for plan, other in ((without, named), (named, without)):
        assert plan.otherwise.balanced_accuracy == other.balanced_accuracy
        assert plan.otherwise.smallest_recall == other.classes[0].recall
        gain = f"balanced accuracy {other.balanced_accuracy:.2f}, recall of the smallest class"
        (said,) = [line for line in plan.sentences() if "names" in line]
        assert gain in said
    assert named.balanced_accuracy > without.balanced_accuracy + 0.1
    assert named.classes[0].recall > without.classes[0].recall + 0.3
    many = USUAL | {"n_records": 10**9, "smallest": 10**7}
    ends = [
        plan_budget(GaussianDP(5), **many, describe=start).balanced_accuracy
        for start in ("none", "names")
    ]
    assert ends[0] == pytest.approx(
        ends[1], abs=1e-3
    )  # where records tell all, names add nothing


@pytest.mark.parametrize("given", [{"method": "mean"}, {"describe": "words"}])
def test_names_are_for_the_method_that_starts_from_them(given):
    with pytest.raises(ParameterError, match="describe"):
        plan_budget(ApproxDP(1, 1e-6), **USUAL, **{"describe": "names"} | given)
    assert plan_budget(ApproxDP(1, 1e-6), **USUAL, method="mean").otherwise is None


def test_pure_dp_selects_public_rows():
    plan = plan_budget(PureDP(1.0), **USUAL, n_public=1000, method="public")
    assert (plan.method, plan.cost["epsilon"]) == ("public", 1.0)
    assert "four such fits need an account of epsilon = 4." in str(plan)


def test_public_rows_count_from_as_many_as_features():
    without, few, many = (
        plan_budget(GaussianDP(0.1), **USUAL, n_public=n) for n in (0, 383, 384)
    )
    assert without.balanced_accuracy == few.balanced_accuracy != many.balanced_accuracy


@pytest.mark.parametrize(
    ("budget", "mu"),
    [(GaussianDP(0.5), 0.5), (ZCDP(0.125), 0.5), (ApproxDP(1, 1e-6), 0.2367)],
)
def test_the_cost_is_that_of_the_ledger(budget, mu):
    cost = plan_budget(budget, **USUAL).cost
    assert (cost["mu"], cost["rho"]) == (
        pytest.approx(mu, abs=1e-4),
        pytest.approx(mu**2 / 2, abs=1e-4),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "method"),
    [
        *itertools.product(
            [GaussianDP(1), ZCDP(0.5), ApproxDP(1, 1e-6)], ["softmax", "mean", "public"]
        ),
        (PureDP(1), "public"),
    ],
)
def test_an_account_of_the_cost_pays_for_one_fit_and_no_more(
    tmp_path, sample, budget, method
):
    plan = plan_budget(
        budget, n_classes=10, n_records=640, n_features=32, n_public=860, method=method
    )
    account = GaussianDP(plan.cost["mu"])
    ledger = dppl.Ledger(tmp_path / "ledger.db", "digits", account)
    public = None if method == "mean" else dppl.PublicData(sample.X_public)
    fitted = BY_METHOD[method].load()(
        budget, classes=sample.classes, public=public, random_state=0
    )
    fitted.fit(sample.X, sample.y, ledger=ledger)
    with pytest.raises(BudgetError):
        fitted.fit(sample.X, sample.y, ledger=ledger)


@pytest.mark.parametrize(
    ("budget", "mu"),
    [
        (GaussianDP(0.5), 0.5),
        (ZCDP(0.125), 0.5),
        (RenyiDP(8, 1), 0.5),
        (ApproxDP(1, 1e-6), 0.2367),
    ],
)
def test_a_plan_counts_with_the_mu_that_a_fit_has(budget, mu):
    assert recall_model.spend("mean", budget) == pytest.approx(mu, abs=1e-4)


def test_equal_costs_give_equal_plans():
    mu = plan_budget(GaussianDP(0.5), **USUAL)
    rho = plan_budget(ZCDP(0.125), **USUAL)
    assert [one.recall for one in mu.classes] == pytest.approx(
        [one.recall for one in rho.classes]
    )


def test_a_known_accuracy_without_privacy_narrows_the_range_and_bounds_what_is_expected():
    unknown = plan_budget(GaussianDP(1), **USUAL)
    known = [
        plan_budget(GaussianDP(1), **USUAL, ceiling=ceiling)
        for ceiling in (0.5, 0.7, 0.9)
    ]
    assert [plan.balanced_accuracy for plan in known] == sorted(
        plan.balanced_accuracy for plan in known
    )
    for plan, ceiling in zip(known, (0.5, 0.7, 0.9), strict=True):
        assert plan.balanced_accuracy < ceiling
        assert plan.high - plan.low < unknown.high - unknown.low


def test_the_names_of_encoders_stand_for_their_widths():
    by_name = plan_budget(
        GaussianDP(1), n_classes=5, n_records=500, encoder="resnet-50"
    )
    assert by_name == plan_budget(
        GaussianDP(1), n_classes=5, n_records=500, n_features=2048
    )
    assert FEATURES["minilm"] == 384


def test_a_schema_stands_for_its_width_and_tables_have_constants_of_their_own(tmp_path):
    schema = tmp_path / "schema.toml"
    schema.write_text('age = [18, 90]\nward = ["north", "south"]\n')
    table = {"n_classes": 2, "n_records": 5000, "encoder": f"columns:{schema}"}
    plan = plan_budget(GaussianDP(0.25), **table)
    assert plan.n_features == 25
    assert plan.otherwise is None
    assert plan.train is None
    embedded = {"n_classes": 2, "n_records": 5000, "n_features": 25}
    other = plan_budget(GaussianDP(0.25), **embedded)
    assert plan.balanced_accuracy < other.balanced_accuracy
    with pytest.raises(ParameterError, match="names goes with texts"):
        plan_budget(GaussianDP(0.25), **table, describe="names")
    schema.write_text('age = [18, 90]\nnote = "text"\n')
    with pytest.raises(ParameterError, match="without texts"):
        plan_budget(GaussianDP(0.25), **table)


def test_json_holds_everything():
    plan = plan_budget(GaussianDP(1), **USUAL)
    content = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert set(content) == {*plan.__dataclass_fields__, "sentences"}
    assert content["sentences"] == str(plan).splitlines()
    assert any(
        "guesses" in sentence and "count" in sentence
        for sentence in content["sentences"]
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"n_classes": 2.5}, "n_classes must be an integer"),
        ({"n_records": 0}, "n_records must be an integer of at least 1"),
        ({"n_records": None}, "n_records must be an integer"),
        ({"smallest": 501}, "n_records must be at least 5010"),
        ({"smallest": 0}, "smallest must be an integer of at least 1"),
        ({"n_records": 9, "smallest": None}, "n_records must be at least 10"),
        ({"n_features": None}, "n_features must be given, or a known encoder"),
        ({"n_features": 0}, "n_features must be an integer"),
        (
            {"encoder": "bert"},
            "encoder must be one of 'minilm'.*; for another, give its width, as in n_features=768",
        ),
        (
            {"encoder": "resnet-50"},
            "n_features must be 2048, as of resnet-50, or left out; got",
        ),
        ({"n_public": -1}, "n_public must be"),
        ({"n_public": 2.5}, "n_public must be"),
        ({"method": "svm"}, "method must be one of"),
        ({"method": "public"}, "n_public must be above 0"),
        ({"ceiling": 0.1}, "ceiling must be above chance"),
        ({"ceiling": 1.0}, "ceiling must lie strictly between 0 and 1"),
    ],
)
def test_wrong_inputs_are_refused(wrong, words):
    with pytest.raises(ParameterError, match=words):
        plan_budget(GaussianDP(1), **USUAL | wrong)


@pytest.mark.parametrize(
    ("budget", "method"),
    [(GaussianDP(0), "auto"), (PureDP(1), "softmax"), (PureDP(1), "mean")],
)
def test_budgets_that_the_method_cannot_spend_are_refused(budget, method):
    with pytest.raises(BudgetError):
        plan_budget(budget, **USUAL, method=method)


def test_the_plan_is_offered_at_the_top():
    assert dppl.plan_budget is plan_budget


def test_what_is_needed_never_contradicts_what_is_said_of_the_smallest_class():
    for mu in (0.05, 0.2, 1):
        plan = plan_budget(
            GaussianDP(mu), n_classes=10, n_records=250, smallest=12, n_features=32
        )
        assert (plan.classes[0].found == "yes") == (plan.needed <= 12)
        assert ("are enough" in plan.sentences()[1]) == (plan.needed <= 12)
