"""The ledger: what it refuses, when it is written, what it holds. Many processes at once: test_ledger_processes.py."""

import contextlib
import copy
import hashlib
import json
import math
import os
import pickle
import re
import sqlite3
import sys
import tempfile
import threading
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

import dppl
from dppl import LatticeOptions, PublicData
from dppl.errors import (
    BudgetError,
    BudgetExceeded,
    LedgerError,
    ParameterError,
    UnknownLabelError,
)
from dppl.kernel.mechanisms import ExponentialMechanism
from dppl.kernel.privacy import ZCDP, ApproxDP, GaussianDP, PureDP
from dppl.kernel.privacy import ledger as ledger_module
from dppl.kernel.privacy.accounting import (
    epsilon_of_zcdp,
    search_epsilon_and_order,
    zcdp_within,
)
from dppl.kernel.privacy.composition import (
    Cost,
    compose,
    epsilon_at,
    total_mu,
    total_rho,
)
from dppl.kernel.privacy.guarantee import Charge, Guarantee
from dppl.kernel.privacy.ledger import (
    CHARGED,
    RELEASED,
    SCHEMA_VERSION,
    UNSAVED,
    Ledger,
    LedgerEntry,
    accounts,
)
from dppl.kernel.privacy.release import Release
from dppl.kernel.privacy.rounding import cost_of_gaussian
from dppl.kernel.privacy.terms import Mechanism, Norm, Statistic, Term, Unit
from dppl.kernel.privacy.tradeoff import gaussian_epsilon, gaussian_mu_within
from laws.ledgers import content_without_times

X = np.vstack([np.eye(4), -np.eye(4)]).astype(np.float32)
Y = np.repeat(["a", "b"], 4)
X_PUBLIC = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def promise(*costs, adjacency="add-remove"):
    """Return a guarantee with releases of these costs."""
    releases = [
        Release(
            mechanism=Term(Mechanism.STATED, text="test"),
            statistic=Term(Statistic.NUMBER_OF_RECORDS),
            sensitivity=1.0,
            norm=Norm.L2,
            parameters={},
            cost=cost,
        )
        for cost in costs
    ]
    return Guarantee(
        budget=ZCDP(1e9),
        adjacency=adjacency,
        releases=tuple(releases),
        public_inputs=(),
        not_covered=(),
        secure_noise=True,
    )


def gaussian(rho, **more):
    """Return what a release whose cost is known in zCDP only promises."""
    return promise({"rho": rho}, **more)


def noise(mu, **more):
    return promise(cost_of_gaussian(Fraction(mu) ** 2), **more)


def pure(epsilon):
    return promise({"rho": epsilon**2 / 2, "epsilon": epsilon})


def searched(rho=0.01, mean_runs=3):
    return promise({"rho_per_run": rho, "mean_runs": float(mean_runs)})


def mean(budget, **parameters):
    budget = budget if isinstance(budget, GaussianDP) else ZCDP(budget)
    return dppl.MeanPrototypes(budget, classes=["a", "b"], **parameters)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(file):
    return Ledger(file, "wards", ZCDP(1.0))


# Opening


def test_a_new_account_is_empty_and_opens_again(file):
    first = Ledger(file, "wards", ZCDP(1.0), adjacency="replace-one")
    assert (first.spent(), first.left(), first.releases()) == (
        {"rho": 0.0},
        {"rho": 1.0},
        [],
    )
    first.charge(gaussian(0.25, adjacency="replace-one"))
    again = Ledger(str(file), "wards")
    assert (again.budget, again.adjacency, again.spent()) == (
        ZCDP(1.0),
        "replace-one",
        {"rho": 0.25},
    )
    assert (
        Ledger(file, "wards", ZCDP(1.0), adjacency="replace-one").to_dict()
        == again.to_dict()
    )
    assert [account.dataset for account in accounts(file)] == ["wards"]


@pytest.mark.parametrize(
    "budget", [ZCDP(2.0), ZCDP(0.5), PureDP(1.0), GaussianDP(1.0), ApproxDP(1.0, 1e-6)]
)
def test_the_budget_of_an_account_is_fixed(budget, file, ledger):
    with pytest.raises(ParameterError, match=r"has the budget ZCDP\(rho=1.0\)"):
        Ledger(file, "wards", budget)
    assert Ledger(file, "wards").budget == ZCDP(1.0)


@pytest.mark.parametrize(
    "budget",
    [ZCDP(0.1), PureDP(1 / 3), GaussianDP(0.7), ApproxDP(np.float64(0.7), 1e-300)],
)
def test_every_notion_of_budget_comes_back_to_the_last_bit(budget, file):
    Ledger(file, "wards", budget)
    assert Ledger(file, "wards").budget == budget


def test_the_relation_of_an_account_is_fixed(file, ledger):
    with pytest.raises(
        ParameterError, match="has the adjacency 'add-remove' in this ledger"
    ):
        Ledger(file, "wards", adjacency="replace-one")
    with pytest.raises(ParameterError, match="do not add"):
        ledger.charge(gaussian(0.1, adjacency="replace-one"))
    with pytest.raises(ParameterError, match="do not add"):
        mean(0.1, adjacency="replace-one").fit(X, Y, ledger=ledger)
    assert ledger.releases() == []


def test_an_account_takes_releases_of_its_unit_alone(file, ledger):
    of_persons = Ledger(file, "persons", ZCDP(1.0), unit="person")
    a_record = gaussian(0.1)
    a_person = replace(a_record, unit=Unit.PERSON)
    several = replace(a_record, unit=Unit.PERSON_IN_TASKS)
    for account, wrong, right in (
        (of_persons, [a_record, several], [a_person]),
        (ledger, [a_person], [a_record]),
    ):
        for release in wrong:
            for use in (account.charge, account.check):
                with pytest.raises(ParameterError, match="accounted by the"):
                    use(release)
        assert account.releases() == []
        for release in right:
            account.charge(release)
    ledger.charge(several)  # as those of streams ever were
    assert {account.dataset: account.unit for account in accounts(file)} == {
        "wards": "record",
        "persons": "person",
    }
    assert (of_persons.to_dict()["unit"], Ledger(file, "persons").unit) == (
        "person",
        "person",
    )
    with pytest.raises(
        ParameterError, match="has the unit 'person' in this ledger; got 'record'"
    ):
        Ledger(file, "persons", unit="record")


ROUTES = [
    (GaussianDP(1.0), "gdp"),
    (ZCDP(1.0), "zcdp"),
    (PureDP(1.0), "pure"),
    (ApproxDP(1.0, 1e-6), "gdp"),
]


@pytest.mark.parametrize(("budget", "route"), ROUTES)
def test_every_notion_has_its_way_of_adding_up(budget, route, file):
    account = Ledger(file, "wards", budget)
    assert account.accounting == account.to_dict()["accounting"] == route
    assert (
        Ledger(file, "wards").accounting
        == Ledger(file, "wards", budget, accounting=route).accounting
        == route
    )
    own = {route, "renyi"} if isinstance(budget, ApproxDP) else {route}
    for other in {"gdp", "zcdp", "renyi", "pure", "rdp"} - own:
        with pytest.raises(ParameterError, match="accounting must be one of"):
            Ledger(file, "trial", budget, accounting=other)
    assert [account.dataset for account in accounts(file)] == ["wards"]


@pytest.mark.parametrize("route", ["gdp", "renyi"])
def test_how_an_account_adds_up_is_fixed(route, file):
    """A route chosen later could be chosen by what earlier releases showed."""
    Ledger(file, "wards", ApproxDP(1.0, 1e-6), accounting=route)
    other = {"gdp": "renyi", "renyi": "gdp"}[route]
    for budget in (None, ApproxDP(1.0, 1e-6)):
        with pytest.raises(
            ParameterError,
            match=f"has the accounting '{route}' in this ledger; got '{other}'",
        ):
            Ledger(file, "wards", budget, accounting=other)
        assert Ledger(file, "wards", budget).accounting == route
        assert Ledger(file, "wards", budget, accounting=route).accounting == route
    assert [account.accounting for account in accounts(file)] == [route]


def test_a_new_data_set_needs_a_budget_and_leaves_no_account_without(file, ledger):
    with pytest.raises(
        ParameterError,
        match=r"ledger.db, which has wards; got 'ward'; .* Try dataset='wards'$",
    ):
        Ledger(file, "ward")
    assert [account.dataset for account in accounts(file)] == ["wards"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"dataset": ""},
        {"dataset": 5},
        {"dataset": None},
        {"dataset": "a" * 256},
        {"dataset": "a\nb"},
        {"dataset": "a\x00"},
        {"dataset": "\udc80"},
        {"budget": 1.0},
        {"adjacency": "near"},
        {"accounting": "renyi"},
        {"accounting": 5},
        {"unit": "people"},
    ],
)
def test_bad_arguments_make_no_file(arguments, file):
    with pytest.raises(ParameterError):
        Ledger(file, **{"dataset": "wards", "budget": ZCDP(1.0), **arguments})
    assert not file.exists()


def test_a_name_is_a_name_and_not_sql_or_a_url(tmp_path):
    name = "'; drop table dppl_releases; --%s"
    path = tmp_path / "what?.db"
    ledger = Ledger(path, "wards", ZCDP(1.0))
    ledger.charge(gaussian(0.5), estimator=name, parameters={name: name})
    assert path.exists()
    assert ledger.releases()[0]["parameters"] == {name: name}


# Adding up


def test_ten_tenths_fit_to_the_last_bit_and_nothing_more(ledger):
    # Ten times the float 0.1 is a little more than 1, so the float below it is what
    # fits ten times.
    tenth = np.nextafter(0.1, 0)
    assert 10 * Fraction(0.1) > 1 > 10 * Fraction(float(tenth))
    for _ in range(10):
        ledger.charge(gaussian(float(tenth)))
    left = 1 - 10 * Fraction(float(tenth))
    assert ledger.spent()["rho"] <= 1.0
    too_much = float(left)
    while Fraction(too_much) <= left:
        too_much = float(np.nextafter(too_much, 1))
    with pytest.raises(BudgetExceeded):
        ledger.charge(gaussian(too_much))
    with pytest.raises(BudgetExceeded):
        ledger.charge(gaussian(0.1))
    assert len(ledger.releases()) == 10


def test_an_exact_sum_is_not_refused_and_one_bit_more_is(ledger):
    for _ in range(8):
        ledger.charge(gaussian(0.125))
    assert ledger.spent() == {"rho": 1.0}
    assert ledger.left() == {"rho": 0.0}
    for rho in (5e-324, 1e-300, 1e-17):
        with pytest.raises(BudgetExceeded, match="Nothing was drawn"):
            ledger.charge(gaussian(rho))
    assert ledger.spent() == {"rho": 1.0}


def test_ten_charges_of_a_tenth_of_ten_tenths_fit(file):
    total = float(10 * Fraction(0.1))  # rounded down to 1.0
    ledger = Ledger(file, "wards", ZCDP(float(np.nextafter(total, 2))))
    for _ in range(10):
        ledger.charge(gaussian(0.1))
    with pytest.raises(BudgetExceeded):
        ledger.charge(gaussian(1e-15))


def test_all_releases_of_a_guarantee_are_charged_and_its_budget_is_not(ledger):
    ledger.charge(promise({"rho": 0.25}, {"rho": 0.5}))
    assert ledger.spent() == {"rho": 0.75}
    assert ledger.releases()[0]["mechanism"] == [
        {"mechanism": {"code": "stated", "text": "test"}, "times": 1}
    ]
    assert ledger.left() == {"rho": 0.25}


def test_a_pure_account_adds_epsilons_and_refuses_gaussian_noise(file):
    ledger = Ledger(file, "wards", PureDP(1.0))
    ledger.charge(pure(0.25))
    ledger.charge(
        promise({"rho": 0.01, "epsilon": 0.125}, {"rho": 0.01, "epsilon": 0.125})
    )
    assert ledger.spent() == {"epsilon": 0.5}
    for guarantee in (
        gaussian(1e-9),
        promise({"rho": 1e-9, "epsilon": 1e-9}, {"rho": 1e-9}),
    ):
        with pytest.raises(BudgetExceeded, match="Gaussian"):
            ledger.charge(guarantee)
    with pytest.raises(BudgetExceeded):
        ledger.charge(pure(0.5000001))
    ledger.charge(pure(0.5))
    assert ledger.spent() == {"epsilon": 1.0}


def test_a_renyi_account_adds_in_zcdp_by_one_route(file):
    """Costs chosen by what came before are proven to add up in zCDP, not in the best of several routes."""
    delta = 1e-6
    ledger = Ledger(file, "wards", ApproxDP(4.5, delta), accounting="renyi")
    ledger.charge(pure(0.1))
    costs = [Cost(rho=0.1**2 / 2, epsilon=0.1)]
    assert compose(costs, delta).epsilon == 0.1 < ledger.spent()["epsilon"]
    for _ in range(59):
        ledger.charge(pure(0.1))
    costs = [replace(costs[0], count=60)]
    converted = ZCDP(total_rho(costs)).to_approx(delta)
    assert ledger.spent() == converted.to_dict()
    assert converted.epsilon < 4.5 < 60 * 0.1  # a plain sum would have refused
    rho = 0.02
    ledger.charge(gaussian(rho))
    costs.append(Cost(rho=rho))
    assert ledger.spent() == ZCDP(total_rho(costs)).to_approx(delta).to_dict()
    assert Fraction(ledger.left()["epsilon"]) <= Fraction(4.5) - Fraction(
        ledger.spent()["epsilon"]
    )
    assert ledger.left()["epsilon"] == pytest.approx(4.5 - ledger.spent()["epsilon"])
    with pytest.raises(BudgetExceeded):
        ledger.charge(gaussian(0.5))
    assert len(ledger.releases()) == 61


# Gaussian DP


def test_squares_of_mu_fill_an_account_to_the_last_bit(file):
    ledger = Ledger(file, "wards", GaussianDP(5.0))
    assert (ledger.spent(), ledger.left()) == ({"mu": 0.0}, {"mu": 5.0})
    ledger.charge(noise(3.0))
    assert (ledger.spent(), ledger.left()) == ({"mu": 3.0}, {"mu": 4.0})
    with pytest.raises(BudgetExceeded) as caught:
        ledger.charge(noise(4.5))
    assert (
        "needs mu = 4.5 of data set 'wards', which has 4 left of 5. Nothing was drawn"
        in str(caught.value)
    )
    with pytest.raises(BudgetExceeded):
        ledger.charge(noise(math.nextafter(4.0, 5.0)))
    ledger.charge(noise(4.0))
    assert (ledger.spent(), ledger.left()) == ({"mu": 5.0}, {"mu": 0.0})
    for mu in (5e-154, 1e-100, 1e-9):
        with pytest.raises(BudgetExceeded):
            ledger.charge(noise(mu))
    assert [release["cost"] for release in ledger.releases()] == [
        {"mu": 3.0, "rho": 4.5},
        {"mu": 4.0, "rho": 8.0},
    ]


def test_what_is_left_is_the_root_of_the_squares_rounded_down(file):
    """The floats 0.6 and 0.8 have squares that add up to a little more than 1; 0.6 and the float below 0.8 have not."""
    ledger = Ledger(file, "wards", GaussianDP(1.0))
    ledger.charge(noise(0.6))
    rest = 1 - Fraction(0.6) ** 2
    left = ledger.left()["mu"]
    assert Fraction(left) ** 2 <= rest < Fraction(math.nextafter(left, 1.0)) ** 2
    assert left < 0.8
    with pytest.raises(BudgetExceeded):
        ledger.charge(noise(0.8))
    ledger.charge(noise(left))
    exact = Fraction(0.6) ** 2 + Fraction(left) ** 2
    assert exact <= Fraction(ledger.spent()["mu"]) ** 2 <= 1
    assert Fraction(ledger.left()["mu"]) ** 2 <= 1 - exact


def test_fits_are_charged_in_gaussian_dp(file):
    ledger = Ledger(file, "wards", GaussianDP(1.0))
    for mu in (0.6, 0.75):
        model = mean(GaussianDP(mu)).fit(X, Y, ledger=ledger)
        assert ledger.releases()[-1]["cost"] == model.guarantee_.releases[0].cost
        assert mu * (1 - 1e-15) < ledger.releases()[-1]["cost"]["mu"] <= mu
    assert ledger.spent()["mu"] == pytest.approx(math.hypot(0.6, 0.75), rel=1e-14)
    # Every notion of budget fits, as long as its noise has a mu; a selection has one
    # too.
    mean(0.001).fit(X, Y, ledger=ledger)
    dppl.PublicPrototypes(
        PureDP(0.1), classes=["a", "b"], public=PublicData(X_PUBLIC)
    ).fit(X, Y, ledger=ledger)
    squared = sum(Fraction(release["cost"]["mu"]) ** 2 for release in ledger.releases())
    assert (
        Fraction(math.nextafter(ledger.spent()["mu"], 0)) ** 2
        < squared
        <= Fraction(ledger.spent()["mu"]) ** 2
    )
    with pytest.raises(BudgetExceeded):
        mean(GaussianDP(0.4)).fit(X, Y, ledger=ledger)
    assert len(ledger.releases()) == 4


def test_an_account_in_gaussian_dp_takes_more_fits_than_one_in_zcdp(tmp_path):
    """As many as the exact totals allow: the sum of squares against the mu that converts, or of rho against the rho."""
    budget = ApproxDP(2.0, 1e-6)
    taken = {}
    spent = {}
    for route in ("gdp", "renyi"):
        ledger = Ledger(tmp_path / f"{route}.db", "wards", budget, accounting=route)
        for _ in range(25):
            with contextlib.suppress(BudgetExceeded):
                mean(GaussianDP(0.1)).fit(X, Y, ledger=ledger)
        taken[route], spent[route] = len(ledger.releases()), ledger.spent()["epsilon"]
        cost = Cost.from_dict(ledger.releases()[0]["cost"])
    assert taken == {
        "gdp": math.floor(
            Fraction(gaussian_mu_within(2.0, 1e-6)) ** 2 / Fraction(cost.mu) ** 2
        ),
        "renyi": math.floor(Fraction(zcdp_within(2.0, 1e-6)) / cost.exact_rho),
    }
    assert taken == {"gdp": 20, "renyi": 17}
    assert spent == {
        "gdp": gaussian_epsilon(total_mu([replace(cost, count=20)]), 1e-6),
        "renyi": epsilon_of_zcdp(total_rho([replace(cost, count=17)]), 1e-6),
    }
    assert max(spent.values()) <= 2.0


def test_selections_in_gaussian_dp_are_added_by_one_route_too(tmp_path):
    """Though another route proves less for them: a sum of zCDP costs, which an account can have from the start."""
    selection = ExponentialMechanism(epsilon=0.5, sensitivity=1).describe(
        Term(Statistic.STATED, text="rows")
    )
    guarantee = replace(noise(1.0), releases=(selection,))
    spent = {}
    costs = [Cost.from_dict(selection.cost)] * 10
    for route in ("gdp", "renyi"):
        ledger = Ledger(
            tmp_path / f"{route}.db", "wards", ApproxDP(9.0, 1e-6), accounting=route
        )
        for _ in costs:
            ledger.charge(guarantee)
        spent[route] = ledger.spent()["epsilon"]
    assert spent == {
        "gdp": gaussian_epsilon(total_mu(costs), 1e-6),
        "renyi": epsilon_of_zcdp(total_rho(costs), 1e-6),
    }
    assert compose(costs, 1e-6).epsilon <= spent["renyi"] < spent["gdp"]


def test_the_noise_that_an_approximate_budget_buys_fills_an_account_of_it(file):
    budget = ApproxDP(2.0, 1e-6)
    ledger = Ledger(file, "wards", budget)
    dppl.MeanPrototypes(budget, classes=["a", "b"]).fit(X, Y, ledger=ledger)
    assert 2.0 * (1 - 1e-12) < ledger.spent()["epsilon"] <= 2.0
    with pytest.raises(BudgetExceeded):
        ledger.charge(noise(1e-3))
    # By zCDP the same noise would not be covered.
    other = Ledger(file, "trial", budget, accounting="renyi")
    with pytest.raises(
        BudgetExceeded, match=r"needs epsilon = 2\.1\d+ .* has 2 left of 2"
    ):
        dppl.MeanPrototypes(budget, classes=["a", "b"]).fit(X, Y, ledger=other)


def test_an_account_that_nobody_means_is_not_opened(file):
    for budget in (ApproxDP(20.1, 1e-6), ApproxDP(1.0, 1e-3), PureDP(21.0)):
        with pytest.raises(ParameterError, match="set allow_weak=True"):
            Ledger(file, "wards", budget)
    meant = ApproxDP(20.1, 1e-3, allow_weak=True)
    assert Ledger(file, "wards", meant).budget == meant
    # It is open, and whoever names no budget finds it.
    assert Ledger(file, "wards").budget == meant


@pytest.mark.parametrize(
    "budget", [GaussianDP(1e8), ApproxDP(1e16, 1e-6, allow_weak=True)]
)
def test_costs_beyond_all_use_are_refused_and_change_nothing(budget, file):
    ledger = Ledger(file, "wards", budget)
    ledger.charge(noise(1e8))
    before = ledger.to_dict()
    for cost in (1e8, 1.1e8, 1e300):
        with pytest.raises(BudgetError):
            ledger.charge(promise({"mu": cost, "rho": 1.0}))
    assert ledger.to_dict() == before


@pytest.mark.parametrize(
    "budget", [GaussianDP(100.0), ApproxDP(20.0, 1e-6), ZCDP(100.0), PureDP(20.0)]
)
def test_a_search_needs_an_account_in_renyi_divergences_and_is_told_so(budget, file):
    ledger = Ledger(file, "wards", budget)
    with pytest.raises(
        BudgetExceeded,
        match=rf"has the accounting '{ledger.accounting}'.*accounting 'renyi'",
    ):
        ledger.charge(searched())
    with pytest.raises(BudgetExceeded):
        ledger.check(searched())
    assert ledger.releases() == []
    account = Ledger(file, "trial", ApproxDP(20.0, 1e-6), accounting="renyi")
    account.charge(searched())
    assert len(account.releases()) == 1


def test_fits_and_searches_after_a_first_search_are_added_at_its_order(file):
    account = Ledger(file, "trial", ApproxDP(8.0, 1e-6), accounting="renyi")
    account.charge(searched(0.05, 10))
    mean(GaussianDP(0.1)).fit(X, Y, ledger=account)
    account.charge(searched())
    costs = [Cost.from_dict(release["cost"]) for release in account.releases()]
    order = search_epsilon_and_order(costs[0].rho, costs[0].mean_runs, 1e-6)[1]
    assert account.spent()["epsilon"] == pytest.approx(
        epsilon_at(costs, 1e-6, order), rel=1e-12
    )


@pytest.mark.parametrize("budget", [GaussianDP(100.0), ApproxDP(20.0, 1e-6)])
def test_a_release_without_mu_is_refused_where_mu_is_added(budget, file):
    """One such release among others is one too many."""
    ledger = Ledger(file, "wards", budget)
    for guarantee in (
        gaussian(1e-9),
        pure(1e-9),
        promise({"rho": 0.5, "mu": 1.0}, {"rho": 1e-9}),
    ):
        with pytest.raises(
            BudgetExceeded, match="states no cost; charge it to an account in zCDP"
        ):
            ledger.charge(guarantee)
    assert ledger.releases() == []
    ledger.charge(noise(1.0))
    Ledger(file, "trial", ZCDP(1.0)).charge(gaussian(0.5))


WEAK = ApproxDP(40.0, 1e-6, allow_weak=True)


def test_parts_of_an_account_in_gaussian_dp_cost_what_the_dearest_does(file):
    for name, budget in (("wards", GaussianDP(5.0)), ("trial", WEAK)):
        ledger = Ledger(file, name, budget)

        def spent(mu, ledger=ledger):
            value = mu if ledger.dataset == "wards" else gaussian_epsilon(mu, 1e-6)
            return next(iter(ledger.spent().values())) == value

        ledger.charge(noise(3.0), partition="north")
        ledger.charge(noise(2.0), partition="south")
        assert spent(3.0)
        ledger.charge(noise(1.5), partition="south")  # 2² + 1.5² = 2.5²
        assert spent(3.0)
        ledger.charge(noise(4.0))  # for all parts
        assert spent(5.0)
        ledger.charge(noise(1.5), partition="south")
        assert spent(5.0)
    with pytest.raises(BudgetExceeded):
        Ledger(file, "wards").charge(noise(0.01), partition="north")
    Ledger(file, "wards").charge(noise(3.0), partition="east")


def test_parts_are_refused_where_a_record_may_move_between_them(file):
    account = Ledger(file, "wards", ZCDP(1.0), adjacency="replace-one")
    with pytest.raises(ParameterError, match="touch both"):
        account.charge(gaussian(0.25, adjacency="replace-one"), partition="north")
    assert account.releases() == []


def test_the_ledger_holds_no_seed(file):
    ledger = Ledger(file, "wards", ZCDP(1.0))
    mean(0.25, random_state=4711).fit(X, Y, ledger=ledger)
    (release,) = ledger.releases()
    assert "random_state" not in release["parameters"]
    assert "4711" not in str(release)


def test_parts_of_one_name_add_and_of_different_names_do_not(ledger):
    ledger.charge(gaussian(0.25), partition="north")
    ledger.charge(gaussian(0.5), partition="south")
    assert ledger.spent() == {"rho": 0.5}
    ledger.charge(gaussian(0.25), partition="south")
    assert ledger.spent() == {"rho": 0.75}
    ledger.charge(gaussian(0.25))
    assert ledger.spent() == {"rho": 1.0}
    for refused in (None, "south"):
        with pytest.raises(BudgetExceeded):
            ledger.charge(gaussian(0.125), partition=refused)
    ledger.charge(gaussian(0.5), partition="north")
    ledger.charge(gaussian(0.75), partition="east")
    assert ledger.spent() == {"rho": 1.0}


@pytest.mark.parametrize("partition", [5, "", "a" * 256, b"a", "\udc80"])
def test_a_part_needs_a_real_name(partition, ledger):
    # SQLite gives the number 5 back as "5", which would be another part: the total
    # would be found too late.
    with pytest.raises(ParameterError, match="partition"):
        ledger.charge(gaussian(0.75), partition=partition)
    assert ledger.releases() == []


def test_two_data_sets_in_one_file_share_nothing(file, ledger):
    other = Ledger(file, "trial", PureDP(2.0), adjacency="replace-one")
    ledger.charge(gaussian(1.0))
    other.charge(promise({"rho": 1.0, "epsilon": 1.5}, adjacency="replace-one"))
    assert (ledger.spent(), other.spent()) == ({"rho": 1.0}, {"epsilon": 1.5})
    assert [len(account.releases()) for account in accounts(file)] == [1, 1]
    assert ledger.releases()[0]["number"] != other.releases()[0]["number"]


CHARGES = st.lists(
    st.tuples(
        st.sampled_from([None, "p", "q", "r"]),
        st.floats(1e-3, 0.7) | st.sampled_from([0.1, 0.2, 0.3]),
    ),
    min_size=1,
    max_size=12,
)


def exact_total(charges):
    shared = sum((Fraction(rho) for part, rho in charges if part is None), Fraction(0))
    parts = {part for part, _ in charges} - {None}
    return shared + max(
        (sum(Fraction(rho) for p, rho in charges if p == part) for part in parts),
        default=Fraction(0),
    )


@pytest.mark.slow
@settings(max_examples=40)
@given(CHARGES, st.sampled_from([GaussianDP(1.0), ApproxDP(4.0, 1e-6)]))
def test_no_sequence_of_charges_overspends_in_gaussian_dp_and_none_is_refused_without_need(
    charges, budget
):
    """Against the largest mu that the account's budget allows, with sums of squares as exact fractions."""
    allowed = Fraction(budget.gaussian_allowance().mu) ** 2
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(os.path.join(folder, "ledger.db"), "wards", budget)
        taken = []
        for part, mu in charges:
            # The cost may be a float above mu²/2; what counts is mu.
            fits = exact_total([*taken, (part, Fraction(mu) ** 2)]) <= allowed
            try:
                ledger.charge(noise(mu), partition=part)
            except BudgetExceeded:
                assert not fits
            else:
                assert fits
                taken.append((part, Fraction(mu) ** 2))
        assert [
            (r["partition"], Fraction(r["cost"]["mu"]) ** 2) for r in ledger.releases()
        ] == taken
        (name, budgeted), *_ = budget.to_dict().items()
        spent = ledger.spent()[name]
        left = ledger.left()[name]
        if name == "mu":
            assert exact_total(taken) <= Fraction(spent) ** 2 <= 1
            assert Fraction(left) ** 2 + Fraction(spent) ** 2 <= 1
        else:
            assert spent <= budgeted
            used = exact_total(taken)
            assert (
                used + Fraction(gaussian_mu_within(left, 1e-6)) ** 2 <= allowed
                if left
                else True
            )
            assert (
                used
                + Fraction(gaussian_mu_within(left * (1 + 1e-9) + 1e-12, 1e-6)) ** 2
                > allowed
            )


@pytest.mark.slow
@settings(max_examples=40)
@given(CHARGES)
def test_no_sequence_of_charges_overspends_and_none_is_refused_without_need(charges):
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(os.path.join(folder, "ledger.db"), "wards", ZCDP(1.0))
        taken = []
        for part, rho in charges:
            fits = exact_total([*taken, (part, rho)]) <= 1
            try:
                ledger.charge(gaussian(rho), partition=part)
            except BudgetExceeded:
                assert not fits
            else:
                assert fits
                taken.append((part, rho))
        spent = ledger.spent()["rho"]
        assert exact_total(taken) <= Fraction(spent) <= 1
        assert [(r["partition"], r["cost"]["rho"]) for r in ledger.releases()] == taken


# Fitting


@pytest.mark.parametrize(
    ("entry", "digest"),
    [
        (Charge("wards", 2), "0" * 64),
        (Charge("other", 1), "0" * 64),
        (Charge("wards", 1), "1" * 64),
        (Charge("wards", 1, "north"), "0" * 64),
    ],
)
def test_a_file_that_a_charge_did_not_pay_for_changes_nothing(ledger, entry, digest):
    paid = ledger.charge(gaussian(0.5))
    ledger.saved(paid, "0" * 64)  # before its release
    assert ledger.releases()[0]["status"] == CHARGED
    ledger.finish(paid, model_sha256="0" * 64)
    ledger.saved(entry, digest)
    assert ledger.releases()[0]["status"] == UNSAVED
    ledger.saved(Charge("wards", paid.number), "0" * 64)
    assert ledger.releases()[0]["status"] == RELEASED


def test_a_fit_marks_its_charge_with_the_hash_of_the_model_file(ledger, tmp_path):
    model = mean(0.25, lattice=LatticeOptions(pool=2)).fit(
        X, Y, ledger=ledger, partition="north"
    )
    assert ledger.releases()[0]["status"] == UNSAVED
    (tmp_path / "taken").touch()
    with pytest.raises(FileExistsError):
        model.save(tmp_path / "taken")
    assert ledger.releases()[0]["status"] == UNSAVED
    again = pickle.loads(pickle.dumps(model))  # has no way to the ledger
    again.save(tmp_path / "again.safetensors")
    assert ledger.releases()[0]["status"] == UNSAVED
    copy.deepcopy(model).save(tmp_path / "m.safetensors")
    (release,) = ledger.releases()
    assert (
        release["model_sha256"]
        == hashlib.sha256((tmp_path / "m.safetensors").read_bytes()).hexdigest()
    )
    assert (release["status"], release["estimator"], release["partition"]) == (
        RELEASED,
        "MeanPrototypes",
        "north",
    )
    assert release["cost"] == model.guarantee_.releases[0].cost
    assert release["mechanism"] == [
        {"mechanism": {"code": "rounded_gaussian"}, "times": 1}
    ]
    assert release["dppl_version"] == dppl.__version__
    assert release["parameters"]["budget"] == {"rho": 0.25}
    assert release["parameters"]["lattice"]["pool"] == 2
    assert release["charged_at"] <= release["released_at"]
    charges = (Charge("wards", release["number"]),)
    assert model.guarantee_.charges == charges
    assert dppl.load(tmp_path / "m.safetensors").guarantee_.charges == charges
    entry = f"wards, release {release['number']}"
    assert f"Charged to the ledger: {entry}." in str(model.guarantee_)


def test_without_a_ledger_nothing_is_charged_and_a_partition_is_refused(ledger):
    model = mean(0.25).fit(X, Y)
    assert model.guarantee_.charges == ()
    assert ledger.releases() == []
    with pytest.raises(ParameterError, match="partition"):
        mean(0.25).fit(X, Y, partition="north")


def test_a_refit_pays_again(ledger):
    estimator = mean(0.25)
    numbers = {estimator.fit(X, Y, ledger=ledger).guarantee_.charges for _ in range(3)}
    assert len(numbers) == len(ledger.releases()) == 3


# Files and databases that are no ledgers, or cannot be used


def nested_lists(depth):
    """Return a list within so many others."""
    value = []
    for _ in range(depth):
        value = [value]
    return value


def one_line(caught):
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "INSERT" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"no database at all, only text that is long enough" * 50,
        b"SQLite format 3\0" * 99,
    ],
)
def test_a_file_of_other_bytes_is_refused_and_kept(content, file):
    file.write_bytes(content)
    for use in (lambda: Ledger(file, "wards", ZCDP(1.0)), lambda: accounts(file)):
        with pytest.raises(LedgerError) as caught:
            use()
        assert "cannot be used" in one_line(caught)
    assert file.read_bytes() == content


@pytest.mark.parametrize("damage", [b"PRIMARY \xff\xfe\xfd", b"PRIMARY KYE"])
def test_a_damaged_schema_is_the_ledgers_error(damage, file):
    Ledger(file, "wards", ZCDP(1.0)).charge(gaussian(0.5))
    assert len(accounts(file)) == 1
    file.write_bytes(file.read_bytes().replace(b"PRIMARY KEY", damage))
    with pytest.raises(LedgerError, match="cannot be used"):
        accounts(file)


@pytest.mark.parametrize("forged", ["[" * 100_000, "1" + "0" * 400, "NaN", "5", '"a"'])
@pytest.mark.parametrize(
    "column",
    [
        "releases SET cost",
        "releases SET mechanism",
        "releases SET parameters",
        "datasets SET budget",
    ],
)
def test_a_column_of_another_form_is_the_ledgers_error(column, forged, file):
    Ledger(file, "wards", ZCDP(1.0)).charge(gaussian(0.5))
    assert len(accounts(file)[0].to_dict()["releases"]) == 1
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE dppl_{column} = ?", (forged,))
    connection.close()
    with pytest.raises(LedgerError, match="did not write"):
        accounts(file)[0].to_dict()


@pytest.mark.parametrize(
    ("column", "forged"),
    [
        ("releases SET cost", '{"rho": -1}'),
        ("releases SET cost", '{"rho": "x"}'),
        ("releases SET mechanism", '[{"mechanism": 5, "times": 1}]'),
        (
            "releases SET mechanism",
            '[{"mechanism": {"code": "rounded_gaussian"}, "times": "x"}]',
        ),
        ("releases SET charged_at", b"\xff"),
        ("datasets SET accounting", "free"),
        ("datasets SET adjacency", "none"),
        ("datasets SET unit", "nobody"),
        ("datasets SET budget", '{"epsilon": 1, "delta": 2}'),
    ],
)
def test_a_field_of_another_type_is_the_ledgers_error(column, forged, file):
    Ledger(file, "wards", ZCDP(1.0)).charge(gaussian(0.5))
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE dppl_{column} = ?", (forged,))
    connection.close()
    with pytest.raises(LedgerError, match="did not write"):
        accounts(file)[0].to_dict()


@pytest.mark.parametrize("value", [10**30, float("nan"), nested_lists(40)])
def test_parameters_that_could_not_be_read_again_are_refused(value, ledger):
    with pytest.raises(ParameterError, match="parameters"):
        ledger.charge(gaussian(0.1), parameters={"seed": value})
    assert ledger.releases() == []
    ledger.charge(gaussian(0.1), parameters={"seed": 5})
    assert ledger.releases()[0]["parameters"] == {"seed": 5}


def test_another_database_can_hold_a_ledger_and_is_not_touched_by_looking(file):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE patients (name TEXT)")
        connection.execute("INSERT INTO patients VALUES ('x')")
    connection.close()
    before = file.read_bytes()
    assert accounts(file) == []
    assert file.read_bytes() == before
    Ledger(file, "wards", ZCDP(1.0)).charge(gaussian(0.5))
    assert accounts(file)[0].spent() == {"rho": 0.5}
    assert content_without_times(file)["patients"] == [{"name": "x"}]


def test_a_table_of_the_same_name_but_other_columns_is_refused(file):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE dppl_datasets (something TEXT)")
    connection.close()
    with pytest.raises(LedgerError) as caught:
        Ledger(file, "wards", ZCDP(1.0))
    one_line(caught)


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_ledger_of_another_schema_is_left_alone(file, ledger, version):
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE dppl_schema SET version = {version}")
    connection.close()
    before = file.read_bytes()
    for use in (
        lambda: Ledger(file, "wards"),
        lambda: Ledger(file, "new", ZCDP(1.0)),
        lambda: accounts(file),
    ):
        with pytest.raises(
            LedgerError,
            match=f"schema {version}; this version of dppl reads schema {SCHEMA_VERSION}",
        ):
            use()
    assert file.read_bytes() == before


def test_a_read_only_ledger_shows_what_is_spent_and_refuses_to_charge(file, ledger):
    ledger.charge(gaussian(0.5))
    before = file.read_bytes()
    url = f"sqlite:///file:{file}?mode=ro&uri=true"  # works for root too, who may write to every file
    read_only = Ledger(url, "wards")
    assert read_only.spent() == {"rho": 0.5}
    assert read_only.steps_begun(LedgerEntry("wards", 1, "x")) is None
    with pytest.raises(LedgerError) as caught:
        read_only.charge(gaussian(0.25))
    assert "readonly" in one_line(caught)
    if os.geteuid() != 0:
        file.chmod(0o400)
        with pytest.raises(LedgerError):
            ledger.charge(gaussian(0.25))
    assert file.read_bytes() == before


def test_a_ledger_that_others_hold_is_given_up_after_a_while(file, ledger, monkeypatch):
    monkeypatch.setattr(ledger_module, "_PATIENCE_S", 0.05)
    party = sqlite3.connect(file, isolation_level=None)
    party.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError) as caught:
        mean(0.25).fit(X, Y, ledger=ledger)
    assert "locked" in one_line(caught)
    party.execute("ROLLBACK")
    party.close()
    mean(0.25).fit(X, Y, ledger=ledger)
    assert len(ledger.releases()) == 1


def test_a_ledger_that_vanished_pays_for_nothing(file, ledger):
    file.unlink()
    with pytest.raises(LedgerError, match="no such table"):
        mean(0.25).fit(X, Y, ledger=ledger)


def test_an_account_that_vanished_pays_for_nothing_and_says_so(file, ledger):
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM dppl_datasets")
    for ask in (
        lambda: mean(0.25).fit(X, Y, ledger=ledger),
        lambda: ledger.check(gaussian(0.25)),
        ledger.spent,
    ):
        with pytest.raises(LedgerError, match="has no data set 'wards' any more"):
            ask()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT * FROM dppl_releases").fetchall() == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        (":memory:", "in memory"),
        ("", "in memory"),
        ("mssql+pyodbc://scott:tiger@host/db", "cannot be used"),
        ("nonsense+driver://scott:tiger@host/db", "cannot be used"),
        ("postgresql://scott:tiger@host:port/db", "cannot be used"),
        ("://scott:tiger", "cannot be used"),
    ],
)
def test_a_place_where_nothing_can_be_kept_is_refused(url, words):
    with pytest.raises(LedgerError, match=words) as caught:
        Ledger(url, "wards", ZCDP(1.0))
    assert "tiger" not in one_line(caught)


def test_databases_whose_locks_are_untried_are_refused(monkeypatch):
    monkeypatch.setattr(
        sa,
        "create_engine",
        lambda *_, **__: sa.create_mock_engine("mysql://", lambda *_: None),
    )
    monkeypatch.setitem(sys.modules, "MySQLdb", None)
    with pytest.raises(LedgerError):
        Ledger("mysql://host/db", "wards", ZCDP(1.0))


@pytest.mark.parametrize("where", ["", "no/folder/ledger.db"])
def test_a_folder_is_no_ledger(where, tmp_path):
    with pytest.raises(LedgerError) as caught:
        Ledger(tmp_path / where, "wards", ZCDP(1.0))
    one_line(caught)


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_looking_makes_no_file(prefix, file):
    with pytest.raises(LedgerError, match="there is no ledger"):
        accounts(f"{prefix}{file}")
    assert not file.exists()


def test_postgresql_without_its_driver_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for url in ("postgresql+psycopg://host/db", "postgresql://host/db"):
        with pytest.raises(
            LedgerError, match=r"pip install -e '\.\[postgresql\]'"
        ) as caught:
            Ledger(url, "wards", ZCDP(1.0))
        assert "psycopg" in one_line(caught)


# Two at once


def race(ledgers, monkeypatch):
    """Charge 0.75 in two threads that both wait, between reading the total and writing, for the other to have read."""
    both_have_read = threading.Barrier(2)
    outcomes = []
    whole = ledger_module._paid

    def paid(connection, dataset):
        rows = whole(connection, dataset)
        with contextlib.suppress(
            threading.BrokenBarrierError
        ):  # the other cannot read yet: the lock at work
            both_have_read.wait(timeout=1)
        return rows

    def work(ledger):
        try:
            ledger.charge(gaussian(0.75))
            outcomes.append("charged")
        except BudgetExceeded:
            outcomes.append("refused")

    monkeypatch.setattr(ledger_module, "_paid", paid)
    threads = [threading.Thread(target=work, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.setattr(ledger_module, "_paid", whole)
    return sorted(outcomes), ledgers[0].spent()["rho"]


@pytest.mark.slow
def test_of_two_charges_at_once_one_is_refused(file, monkeypatch):
    ledgers = [Ledger(file, "wards", ZCDP(1.0)) for _ in range(2)]
    assert race(ledgers, monkeypatch) == (["charged", "refused"], 0.75)


def test_without_the_lock_the_same_two_overspend(file, monkeypatch):
    ledgers = [Ledger(file, "wards", ZCDP(1.0)) for _ in range(2)]
    monkeypatch.setitem(
        ledger_module._BEGIN, "sqlite", ()
    )  # the planted fault: each statement by itself
    assert race(ledgers, monkeypatch) == (["charged", "charged"], 1.5)


def test_a_guarantee_can_be_charged_without_a_fit(ledger):
    entry = ledger.charge(
        replace(gaussian(0.5), unit=Unit.PERSON_IN_TASKS),
        estimator="mine",
        parameters={"b": 1, "a": None},
    )
    (release,) = ledger.releases()
    assert (release["status"], release["number"]) == (CHARGED, entry.number)
    assert (release["estimator"], release["parameters"]) == (
        "mine",
        {"a": None, "b": 1},
    )
    ledger.finish(entry)
    assert ledger.releases()[0]["status"] == UNSAVED
    assert ledger.releases()[0]["model_sha256"] is None
    assert json.loads(json.dumps(ledger.to_dict())) == ledger.to_dict()


def test_a_step_of_a_training_begins_once(file, ledger):
    entry = ledger.charge(gaussian(0.5), run="a" * 32)
    assert ledger.steps_begun(entry) == 0
    for step in (
        0,
        1,
        4,
    ):  # a run that was killed between its file and the ledger has lost steps
        ledger.begin_step(entry, step)
        assert ledger.steps_begun(entry) == step + 1
        for again in (step, step - 1, 0):
            with pytest.raises(
                LedgerError, match=f"step {again + 1} of the training .* begun before"
            ):
                Ledger(file, "wards").begin_step(entry, again)
    assert ledger.steps_begun(entry) == 5


def test_a_training_of_a_name_is_charged_once_whoever_asks_and_however_often(
    tmp_path, file, ledger
):
    entries = []

    def work():
        for _ in range(3):
            entries.append(Ledger(file, "wards").charge(gaussian(0.5), run="a" * 32))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(entries) == 12
    assert set(entries) == {LedgerEntry("wards", 1, "a" * 32)}
    assert ledger.spent() == {"rho": 0.5}
    ledger.begin_step(entries[0], 0)
    assert ledger.charge(gaussian(0.5), run="a" * 32) == entries[0]
    assert ledger.steps_begun(entries[0]) == 1
    # The name pays for what it was charged for, and for nothing else.
    for other in ({"guarantee": gaussian(0.6)}, {"partition": "north"}):
        with pytest.raises(LedgerError, match="another training"):
            ledger.charge(**{"guarantee": gaussian(0.5), **other}, run="a" * 32)
    assert ledger.spent() == {"rho": 0.5}
    # Another name, or the same in another account, is another charge.
    assert ledger.charge(gaussian(0.25), run="b" * 32).number == 2
    other = Ledger(file, "beds", ZCDP(1.0))
    assert other.charge(gaussian(0.25), run="a" * 32).number == 3
    with pytest.raises(BudgetExceeded):
        ledger.charge(gaussian(0.5), run="c" * 32)


def test_steps_are_those_of_one_charge(tmp_path, file, ledger):
    plain = ledger.charge(gaussian(0.1))
    assert plain.run is None
    one, two = (ledger.charge(gaussian(0.1), run=name * 32) for name in "ab")
    ledger.begin_step(one, 3)
    assert (ledger.steps_begun(one), ledger.steps_begun(two)) == (4, 0)
    other = Ledger(tmp_path / "other.db", "wards", ZCDP(1.0))
    assert other.steps_begun(one) is None
    strangers = [other.charge(gaussian(0.1), run=name * 32) for name in "cd"]
    assert strangers[1].number == one.number
    unpaid = [
        plain,
        *strangers,
        replace(one, number=plain.number),
        replace(one, dataset="beds"),
        replace(one, run=""),
    ]
    for entry in unpaid:
        assert ledger.steps_begun(entry) is None
        with pytest.raises(LedgerError, match="does not hold the charge"):
            ledger.begin_step(entry, 9)
    assert (ledger.steps_begun(one), ledger.steps_begun(two)) == (4, 0)


def test_of_threads_that_begin_one_step_one_does(file, ledger):
    entry = ledger.charge(gaussian(0.5), run="a" * 32)
    begun = []

    def work():
        for step in range(10):
            with contextlib.suppress(LedgerError):
                Ledger(file, "wards").begin_step(entry, step)
                begun.append(step)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(begun) == list(range(10))


@pytest.mark.parametrize("seed", [None, 3])
def test_a_seeded_release_is_marked_and_its_seed_is_not_told(ledger, seed):
    dppl.MeanPrototypes(ZCDP(0.1), [0, 1], random_state=seed).fit(
        np.eye(2), [0, 1], ledger=ledger
    )
    parameters = ledger.releases()[-1]["parameters"]
    assert parameters.get("secure_noise", True) == (seed is None)
    assert "exact" not in parameters
    assert "random_state" not in parameters


@pytest.mark.parametrize(
    "name",
    [
        "north ",
        " north",
        "no  rth",
        "Z\u00fcrich",
        "n\u043erth",
        "a\nb",
        "a\tb",
        "<a>",
        "a/b",
        "",
        "a" * 256,
        3,
    ],
    ids=ascii,
)
def test_names_of_other_characters_are_refused(name, ledger, file):
    for ask in (
        lambda: Ledger(file, name, ZCDP(1.0)),
        lambda: ledger.charge(gaussian(0.1), partition=name),
        lambda: ledger.check(gaussian(0.1), partition=name),
    ):
        with pytest.raises(
            ParameterError,
            match=r"must be a name of 1 to 255 ASCII letters, digits, .* got ",
        ) as caught:
            ask()
        assert str(caught.value).endswith(f"got {name!a}.")
    assert ledger.releases() == []
    assert [account.dataset for account in accounts(file)] == ["wards"]


@pytest.mark.parametrize(
    "name", ["data North 1", "Data north l", "Data north I", "Data n0rth 1"]
)
def test_a_name_that_looks_like_one_in_use_opens_no_second_account_and_no_second_part(
    file, name
):
    first = Ledger(file, "Data north 1", ZCDP(1.0))
    for budget in (ZCDP(1.0), None):
        with pytest.raises(
            ParameterError,
            match=f"dataset must not look like a name .* got '{name}'.* 'Data north 1'",
        ):
            Ledger(file, name, budget)
    first.charge(gaussian(0.75), partition="Data north 1")
    first.charge(gaussian(0.25), partition="south")
    for ask in (first.charge, first.check):
        with pytest.raises(
            ParameterError, match="partition must not look like a name that is in use"
        ):
            ask(gaussian(0.75), partition=name)
    assert first.spent() == {"rho": 0.75}
    first.charge(gaussian(0.25), partition="Data north 1")
    assert [account.dataset for account in accounts(file)] == ["Data north 1"]


def test_names_that_only_resemble_each_other_are_all_taken(file):
    names = [
        "north",
        "nord",
        "ward 1",
        "ward 2",
        "ward.1",
        "ward-1",
        "ward_1",
        "a" * 255,
    ]
    for name in names:
        Ledger(file, name, ZCDP(1.0))
    assert [account.dataset for account in accounts(file)] == names


def test_whoever_meets_an_error_after_the_charge_is_told_that_it_stays(ledger):
    with pytest.raises(UnknownLabelError) as caught:
        mean(0.25).fit(np.eye(2), ["a", "c"], ledger=ledger)
    assert caught.value.__notes__ == ["The ledger keeps the charge: wards, release 1."]
    (release,) = mean(0.25).plan(2).guarantee.releases
    assert ledger.spent() == {"rho": release.cost["rho"]}
    assert (
        0.25 * (1 - 1e-15) < release.cost["rho"] <= 0.25
    )  # the root of 2·rho, which sets the noise, is rounded down
    with pytest.raises(BudgetExceeded) as caught:
        mean(0.8).fit(np.eye(2), ["a", "b"], ledger=ledger)
    assert not hasattr(caught.value, "__notes__")
    assert "needs rho = 0.8" in str(caught.value)
    assert "has 0.75 left of 1" in str(caught.value)


def test_a_path_to_no_ledger_leaves_no_file(tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "none.db", "wards")
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_shows_the_account_rounded_to_the_weaker_side(file):
    ledger = Ledger(file, "wards", GaussianDP(1.0))
    first = ledger.charge(noise(0.3), estimator="MeanPrototypes", partition="north")
    ledger.finish(first)
    assert ", mu 0.3, not saved<" in ledger._repr_html_()
    ledger.saved(first, "0" * 64)
    ledger.charge(noise(0.7), estimator="MeanPrototypes")
    shown = ledger._repr_html_()
    assert "wards: add-remove, accounting gdp" in shown
    one, other = re.findall(r">(MeanPrototypes, [^<]*)<", shown)
    assert one.startswith("MeanPrototypes, part north, ")
    assert one.endswith(", mu 0.3")
    assert other.endswith(", mu 0.7, charged, unfinished")
    (spent,) = re.findall(r">spent</th><td[^>]*>mu ([\d.]+) ", shown)
    (left,) = re.findall(r">left</th><td[^>]*>mu ([\d.]+)<", shown)
    assert ledger.spent()["mu"] <= float(spent) < ledger.spent()["mu"] + 1e-5
    assert ledger.left()["mu"] - 1e-5 < float(left) <= ledger.left()["mu"]


def test_the_order_of_an_account_is_settled_by_its_first_release(tmp_path):
    """Searches after a fit are accounted at the order of the budget, whatever they are."""
    account = Ledger(
        tmp_path / "ledger.db", "wards", ApproxDP(8.0, 1e-6), accounting="renyi"
    )
    dppl.MeanPrototypes(ApproxDP(1.0, 1e-6), ["a", "b"]).fit(
        np.eye(2), ["a", "b"], ledger=account
    )
    costs = [Cost.from_dict(release["cost"]) for release in account.releases()]
    assert account._order(costs) is None
    orders = {
        account._order([*costs, Cost(rho=0.01, mean_runs=runs)])
        for runs in (2, 10, 100)
    }
    assert len(orders) == 1
