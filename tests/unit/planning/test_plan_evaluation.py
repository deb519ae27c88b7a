"""Plans of evaluations: what they expect is what the kernel's noise then gives."""

import itertools
import json

import numpy as np
import pytest

from dppl import ZCDP, ApproxDP, GaussianDP, PureDP, RenyiDP
from dppl.errors import BudgetError, ParameterError
from dppl.evaluation.intervals import each_class
from dppl.evaluation.measuring import Tables, measurements, said_of_labels, variance
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.measure import Measure, calibrated
from dppl.kernel.privacy.sensitivity import STEPS
from dppl.kernel.queries.base import ADD_REMOVE
from dppl.kernel.queries.outcomes import Outcomes
from dppl.planning import plan_evaluation
from dppl.planning.guessed_sizes import rising_sizes
from dppl.prediction.pending import LabelSets
from inside import evaluated

NUMBERS = ("accuracy", "recall", "balanced_accuracy")
# How far a plan may be off, as docs/planning.md says.
TOLERANCE = 1.3
# Classes, test records, records of the rarest class, mu and accuracy.
SETTINGS = [
    (2, 500, 250, 0.3, 0.8),
    (2, 5000, 200, 0.3, 0.9),
    (10, 500, 50, 0.1, 0.6),
    (10, 5000, 60, 0.3, 0.8),
    (10, 5000, 500, 1.0, 0.9),
    (77, 5000, 64, 0.3, 0.8),
    (77, 5000, 16, 1.0, 0.6),
]


def planned(n_classes, n_test, smallest, mu, rate):
    return plan_evaluation(
        GaussianDP(mu), n_classes=n_classes, n_test=n_test, smallest=smallest, rate=rate
    )


def half_widths(n_classes, n_test, smallest, mu, rate, draws=40):
    """Return the mean half widths of evaluations of drawn records, with seeded noise of the kernel."""
    rng = np.random.default_rng(0)
    shares = rising_sizes(n_classes, n_test, smallest) / n_test
    found = []
    for seed in range(draws):
        codes = rng.choice(n_classes, n_test, p=shares)
        right = rng.random(n_test) < rate
        predicted = np.where(
            right, codes, (codes + rng.integers(1, n_classes, n_test)) % n_classes
        )
        held = Outcomes(
            codes,
            predicted,
            np.full(n_test, STEPS),
            right,
            np.full((n_test, 5), rate),
            np.full(n_test, 0.5),
        )
        with Measure(
            calibrated(GaussianDP(mu), measurements(n_classes), ADD_REMOVE), held, seed
        ) as measure:
            said = evaluated(measure, n_classes)
        one = said["accuracy"], said["per_class"][0].recall, said["balanced_accuracy"]
        found.append([each.width / 2 for each in one])
    return dict(zip(NUMBERS, np.mean(found, axis=0), strict=True))


def is_near(plan, measured):
    """Compare what is planned; seeds are fixed, so there is no false alarm."""
    ratios = [
        getattr(plan, name) / measured[name]
        for name in NUMBERS
        if getattr(plan, name) is not None
    ]
    return all(1 / TOLERANCE <= ratio <= TOLERANCE for ratio in ratios)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_widths_are_as_planned(setting):
    assert is_near(planned(*setting), half_widths(*setting))


@pytest.mark.parametrize("setting", [SETTINGS[2], SETTINGS[5]])
def test_a_plan_without_noise_or_with_twice_as_much_would_be_noticed(setting):
    *given, mu, rate = setting
    measured = half_widths(*setting)
    for other in (100.0, mu / 2):
        assert not is_near(planned(*given, other, rate), measured)


def test_a_plan_says_where_noise_hides_class_sizes():
    plan = planned(77, 500, None, 0.3, 0.8)
    assert (plan.balanced_accuracy, plan.recall) == (None, None)
    assert plan.known_from > plan.smallest
    assert (
        f"fewer than about {plan.known_from} test records, and the rarest has 6"
        in str(plan)
    )
    assert "balanced accuracy: cannot tell" in str(plan)
    # From there on there is a number.
    for smallest in (plan.known_from, plan.known_from - 1):
        one = planned(77, 77 * 100, smallest, 0.3, 0.8)
        assert (
            (one.balanced_accuracy is None)
            == (smallest < plan.known_from)
            == ("cannot be planned" in str(one))
        )


@pytest.mark.parametrize(
    ("n_classes", "smallest"), list(itertools.product((2, 10, 77), (4, 30, 60)))
)
def test_more_budget_never_plans_a_wider_interval(n_classes, smallest):
    plans = [
        planned(n_classes, 5000, smallest, mu, 0.8) for mu in np.geomspace(0.01, 10, 15)
    ]
    for name in ("accuracy", "recall"):
        halves = [
            0.5 if (half := getattr(plan, name)) is None else half for plan in plans
        ]
        assert halves == sorted(halves, reverse=True)
    known = [plan.known_from for plan in plans]
    assert known == sorted(known, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "budget", [GaussianDP(0.3), ZCDP(0.05), RenyiDP(8, 0.4), ApproxDP(1, 1e-6)]
)
def test_the_budget_for_a_width_is_the_least_that_reaches_it(budget):
    plan = plan_evaluation(budget, n_classes=10, n_test=5000, smallest=100)
    for name, width in (
        ("accuracy", 0.02),
        ("recall", 0.1),
        ("balanced_accuracy", 0.05),
    ):
        enough = plan.budget_for(width, name)
        assert type(enough) is type(budget)
        assert enough.to_dict().get("delta") == budget.to_dict().get("delta")
        mu = enough.gaussian_allowance().mu
        reached, missed = (
            getattr(planned(10, 5000, 100, one, 0.8), name) for one in (mu, 0.99 * mu)
        )
        assert reached <= width * (1 + 1e-6)
        assert missed is None or missed > width
    assert (
        plan.budget_for(0.005) is None
    )  # so few records say no more, whatever the budget
    content = json.loads(json.dumps(plan.to_dict()))
    assert content["needed"]["0.02"]["accuracy"] == plan.budget_for(0.02).to_dict()
    assert content["balanced_accuracy"] == plan.balanced_accuracy


@pytest.mark.parametrize(
    ("budget", "changed", "words"),
    [
        (GaussianDP(1), {"n_classes": 1}, "n_classes"),
        (GaussianDP(1), {"n_test": 9}, "n_test"),
        (GaussianDP(1), {"smallest": 11}, "n_test"),
        (GaussianDP(1), {"rate": 1.0}, "rate"),
        (GaussianDP(1), {"confidence": 0.0}, "confidence"),
    ],
)
def test_wrong_numbers_are_refused(budget, changed, words):
    with pytest.raises(ParameterError, match=words):
        plan_evaluation(budget, **({"n_classes": 10, "n_test": 100} | changed))


def test_what_no_gaussian_noise_fits_into_is_refused():
    for budget in (PureDP(1), GaussianDP(0)):
        with pytest.raises(BudgetError):
            plan_evaluation(budget, n_classes=10, n_test=100)


def widths_of_labels(n_labels, n_test, mu, rate, labels_each, draws=40):
    """Return the mean half widths of evaluations of drawn records with several labels, which are as often in each."""
    rng = np.random.default_rng(0)
    declared = measurements(n_labels, several=LabelSets(5, MultiLabel()))
    v = {
        name: variance(one.mechanism.noise_std, STEPS)
        for name, one in calibrated(GaussianDP(mu), declared, ADD_REMOVE).items()
    }
    v |= {"classes": v["labels"], "alarms": v["labels"]}
    share = labels_each / n_labels
    false_share = share * (1 - rate) / (1 - share)
    found = []
    for _ in range(draws):
        truth = rng.random((n_test, n_labels)) < share
        luck = rng.random((n_test, n_labels))
        predicted = np.where(truth, luck < rate, luck < false_share)
        cells = (truth & predicted, truth & ~predicted, predicted & ~truth)
        labels = np.stack([one.sum(axis=0) for one in cells]).astype(float)
        right = (truth == predicted).all(axis=1).sum()
        totals = np.array([right, n_test - right], float)
        labels += np.sqrt(v["labels"]) * rng.standard_normal(labels.shape)
        totals += np.sqrt(v["totals"]) * rng.standard_normal(2)
        tables = {
            "totals": totals,
            "labels": labels,
            "classes": labels[:2],
            "alarms": labels[2],
        }
        noisy = Tables(tables, v, each_class(n_labels))
        said = said_of_labels(noisy, [*range(n_labels)], 0.9, 5)
        of_all = said["labels"]
        each = (of_all.f1, said["per_class"][0].recall, of_all.macro_f1)
        found.append([one.width / 2 for one in each])
    names = ("micro_f1", "recall", "macro_f1")
    return dict(zip(names, np.mean(found, axis=0), strict=True))


@pytest.mark.parametrize(
    ("n_labels", "n_test", "mu"), [(8, 400, 0.2368), (20, 3000, 0.5)]
)
def test_widths_of_several_labels_are_as_planned(n_labels, n_test, mu):
    """Seeds are fixed, so there is no false alarm; a plan for half of the budget is not near."""
    measured = widths_of_labels(n_labels, n_test, mu, 0.75, 2)

    def ratios(budget):
        plan = plan_evaluation(
            GaussianDP(budget),
            n_classes=n_labels,
            n_test=n_test,
            rate=0.75,
            labels_each=2,
        )
        return [(getattr(plan, name) or 0.5) / half for name, half in measured.items()]

    assert all(1 / TOLERANCE <= ratio <= TOLERANCE for ratio in ratios(mu))
    assert not all(1 / TOLERANCE <= one <= TOLERANCE for one in ratios(mu / 2))


def test_a_plan_of_labels_says_what_can_be_printed():
    plan = plan_evaluation(
        GaussianDP(0.2368), n_classes=8, n_test=280, labels_each=2, counted="persons"
    )
    assert (plan.accuracy, plan.balanced_accuracy) == (None, None)
    assert "micro F1 80 % (90 % interval 72 % to 88 %)" in str(plan)
    assert "Too wide to print (more than ±0.1): recall of the rarest label" in str(plan)
    with pytest.raises(ParameterError, match=r"^labels_each must be at most"):
        plan_evaluation(GaussianDP(1), n_classes=3, n_test=100, labels_each=4)
    with pytest.raises(ParameterError, match=r"^number must be one of 'micro_f1'"):
        plan.budget_for(0.05, "accuracy")
