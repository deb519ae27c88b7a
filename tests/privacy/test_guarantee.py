import json
import math

import pytest

from dppl import ZCDP, ApproxDP, Guarantee, PureDP
from dppl.privacy import Release
from dppl.privacy.guarantee import budget_from_dict

RELEASE = Release(
    mechanism="discrete Gaussian",
    statistic="class sums",
    sensitivity=2.5,
    norm="L2",
    parameters={"noise_std": 2.5},
    cost={"rho": 0.5},
)


def guarantee(budget=None, **changes):
    fields = {
        "budget": budget or ZCDP(0.5),
        "adjacency": "add-remove",
        "releases": (RELEASE,),
        "public_inputs": ("the encoder",),
        "not_covered": ("timing",),
        "fit_for_release": True,
    }
    return Guarantee(**(fields | changes))


@pytest.mark.parametrize("budget", [ZCDP(0.5), PureDP(1.0), ApproxDP(1.0, 1e-5)])
def test_a_guarantee_survives_json(budget):
    original = guarantee(budget)
    again = Guarantee.from_dict(json.loads(json.dumps(original.to_dict())))
    assert str(again) == str(original)
    assert again.to_dict() == original.to_dict()
    assert again.budget == budget


def test_the_paragraph_names_everything_a_reader_must_know():
    words = str(guarantee())
    for part in ("zCDP", "rho = 0.5", "one record", "add-remove", "class sums", "2.5", "the encoder", "timing"):
        assert part in words
    assert "\n" not in words


def test_a_seeded_run_says_first_that_it_must_not_be_released():
    assert str(guarantee(fit_for_release=False)).startswith("NOT FOR RELEASE")
    assert "NOT FOR RELEASE" not in str(guarantee())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_odds_are_those_of_a_bayesian_attacker(epsilon):
    percent = 100 / (1 + math.exp(-epsilon))
    assert f"at most {math.ceil(percent)} % sure" in str(guarantee(PureDP(epsilon)))


def test_odds_near_certainty_are_not_rounded_away():
    assert "99.1 % sure" in str(guarantee(PureDP(4.6)))


@pytest.mark.parametrize("fields", [{}, {"epsilon": 1.0, "rho": 1.0}, {"delta": 1e-5}])
def test_a_budget_needs_the_parameters_of_one_notion(fields):
    with pytest.raises(ValueError, match="no notion"):
        budget_from_dict(fields)
