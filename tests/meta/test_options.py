"""String options of public signatures are `Literal` types, and what is validated is what the type says."""

import dataclasses
import inspect
import typing

import pytest

from dppl import planning
from dppl.finetune import SparseFinetuner
from dppl.io.tables.writing import ROWS, Rows
from dppl.kernel.privacy.guarantee import ADJACENCIES, NEIGHBOURS, Adjacency
from dppl.lab import GlobalAdapt, ProjectedPrototypes
from dppl.methods.private_search import PrivateSearch
from dppl.methods.registry import BY_METHOD, ENTRIES, Method
from dppl.training import PrivateClassifier

ESTIMATORS = [entry.load() for entry in ENTRIES]


def literals(hint):
    """Return the strings that a type allows, whatever stands beside them."""
    if typing.get_origin(hint) is typing.Literal:
        return set(typing.get_args(hint))
    return set().union(*map(literals, typing.get_args(hint)))


@pytest.mark.parametrize(
    "kind",
    [*ESTIMATORS, PrivateSearch, PrivateClassifier],
    ids=lambda kind: kind.__name__,
)
def test_a_default_text_of_a_constructor_is_of_a_literal_type(kind):
    checked = 0
    hints = (
        typing.get_type_hints(kind)
        if dataclasses.is_dataclass(kind)
        else typing.get_type_hints(kind.__init__)
    )
    for name, parameter in inspect.signature(kind).parameters.items():
        if isinstance(parameter.default, str) and hints[name] is not typing.Any:
            assert parameter.default in literals(hints[name]), name
            checked += 1
    assert checked


def test_a_plain_text_would_be_noticed():
    assert not literals(str | None)
    assert literals(Adjacency | None) == set(ADJACENCIES)


def test_tuples_that_validate_are_those_of_the_types():
    assert set(ADJACENCIES) == set(NEIGHBOURS) == literals(Adjacency)
    assert literals(Rows) == set(ROWS)
    assert literals(Method) == set(BY_METHOD)
    assert literals(typing.get_type_hints(planning.plan_budget)["method"]) == {
        "auto",
        *BY_METHOD,
    }


def test_what_users_choose_among_has_ten_parameters_at_most():
    # Methods for research have every number of the rules that their papers publish.
    published = (GlobalAdapt, ProjectedPrototypes)
    estimators = [one for one in ESTIMATORS if one not in published]
    for kind in (*estimators, PrivateSearch, PrivateClassifier, SparseFinetuner):
        assert len(inspect.signature(kind).parameters) <= 10, kind
