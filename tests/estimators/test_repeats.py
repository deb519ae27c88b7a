"""A second fit on the same arrays, without a ledger, is warned of once; nothing of the records is kept for that."""

import gc
import warnings
import weakref

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

import dppl
from dppl import ZCDP, GaussianDP, MeanPrototypes, PureDP
from dppl.baselines import LinearProbe
from dppl.errors import RepeatedFitWarning, SplitterWarning
from dppl.estimators import repeats

Y = np.arange(12) % 2


@pytest.fixture
def rows():
    return np.random.default_rng(1).normal(size=(12, 4))


def make(budget=None, **more):
    return MeanPrototypes(budget or GaussianDP(0.3), [0, 1], **more)


def told(*fits):
    """Return the texts of the warnings of each fit."""
    texts = []
    for fit in fits:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit()
        texts.append([str(one.message) for one in caught if one.category is RepeatedFitWarning])
    return texts


def test_the_second_fit_tells_what_both_cost_and_further_ones_are_silent(rows):
    first, second, third = told(*[lambda: make().fit(rows, Y)] * 3)
    assert (first, third) == ([], [])
    assert len(second) == 1
    assert "All 2 fits together cost mu = 0.4242" in second[0]  # 0.3 times the root of 2
    assert "ledger=" in second[0]


def test_costs_of_different_estimators_add_up(rows):
    _, (text,) = told(lambda: make(GaussianDP(0.4)).fit(rows, Y), lambda: LinearProbe(ZCDP(0.045), [0, 1]).fit(rows, Y))
    # mu 0.4 is rho 0.08.
    assert "rho = 0.125" in text


def test_the_warning_depends_on_the_objects_alone(rows):
    """Equal records in another array say nothing, and other records of the same object say the same."""
    assert told(lambda: make().fit(rows, Y), lambda: make().fit(rows.copy(), Y)) == [[], []]
    changed = np.zeros((3, 4))

    def twice(X):
        return told(lambda: make().fit(X, [0] * len(X)), lambda: make().fit(X, [1] * len(X)))

    assert twice(rows.copy()) == twice(changed) != [[], []]


def test_seeds_ledgers_and_failures_count_for_nothing(rows, tmp_path):
    ledger = dppl.Ledger(tmp_path / "l.db", "wards", GaussianDP(5.0))

    def fail():
        with pytest.raises(dppl.errors.UnknownLabelError):
            make().fit(rows, ["elsewhere"] * 12)

    fits = [lambda: make(random_state=0).fit(rows, Y)] * 2 + [lambda: make().fit(rows, Y, ledger=ledger)] * 2 + [fail]
    assert told(*fits, lambda: make().fit(rows, Y)) == [[]] * 6


def test_a_cost_without_a_sum_is_said_to_have_none(rows):
    _, (text,) = told(lambda: make().fit(rows, Y), lambda: _public(rows))
    assert "what each of their guarantees states, added up" in text


@pytest.mark.parametrize("budget", [GaussianDP(0.3), ZCDP(0.1), dppl.ApproxDP(1.0, 1e-6)])
@pytest.mark.parametrize("second", [{"groups": Y}, {"adjacency": "replace-one"}])
def test_costs_of_other_units_and_relations_are_not_added(budget, second, rows):
    groups = second.get("groups")
    other = {} if groups is not None else second
    _, (text,) = told(lambda: make(budget).fit(rows, Y), lambda: make(budget, **other).fit(rows, Y, groups=groups))
    assert "which are for different units or relations and do not add up" in text
    assert not any(figure in text for figure in ("mu = ", "rho = ", "epsilon = "))


def _public(rows):
    return dppl.PublicPrototypes(PureDP(1.0), [0, 1]).fit(rows, Y, np.eye(4))


def test_fits_of_a_splitter_count_for_the_whole_array(rows):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(make(), rows, Y, cv=3)
    assert [one.category for one in caught] == [SplitterWarning]
    ((text,),) = told(lambda: make().fit(rows, Y))
    assert "All 4 fits together cost mu = 0.6" in text


def test_an_array_that_is_gone_is_forgotten(rows):
    told(lambda: make().fit(rows, Y))
    key, gone = id(rows), weakref.ref(rows)
    assert key in repeats._FITS
    copy = rows.copy()
    # The fixture's own reference goes with the array that it is replaced by.
    fits = repeats._fits_on(copy)
    assert fits.of() is copy
    key = id(copy)
    del copy
    gc.collect()
    assert key not in repeats._FITS
    assert fits.of() is None
    assert gone() is rows


def test_another_object_of_the_same_identity_starts_anew(rows):
    other = np.ones(3)
    repeats._FITS[id(rows)] = repeats._Fits(weakref.ref(other), ["of another array"])
    assert repeats._fits_on(rows).guarantees == []
    assert repeats._fits_on(rows).of() is rows


def test_lists_cannot_be_followed(rows):
    assert repeats._fits_on(rows.tolist()) is None
    assert told(*[lambda: make().fit(rows.tolist(), Y)] * 2) == [[], []]
