"""What is no table of records stops a fit with a message that shows none of it."""

import numpy as np
import pytest

from dppl.errors import InputError
from dppl.kernel import reading
from laws.recipes import CLASSES, FIRST, SHARED, each
from laws.traces import messages_of

WRONG = {
    "a text among numbers": lambda X, y: ([["Jane Doe", *X[0, 1:]]], y[:1]),
    "objects": lambda X, y: (np.array([["Jane", *X[0, 1:]]], dtype=object), y[:1]),
    "too few labels": lambda X, y: (X, y[:-1]),
    "too many labels": lambda X, y: (X[:-1], y),
    "one row": lambda X, y: (X[0], y),
    "a cube": lambda X, y: (X[:, :, None], y),
    "labels in two columns": lambda X, y: (X[:1], [["Jane Doe", "a"]]),
    "complex numbers": lambda X, y: (X * 1j, y),
    "no column": lambda X, y: (X[:, :0], y),
    "a ragged list": lambda X, y: ([*X[:-1].tolist(), X[-1, 1:].tolist()], y),
    "nothing": lambda X, y: (None, y),
    "a number": lambda X, y: (1234.5678, y),
    "labels that are a number": lambda X, y: (X, 1234.5678),
    "no labels": lambda X, y: (X, None),
}


def check_shows_nothing(kind, name):
    X, y = kind.records()
    X = np.round(X) + 1234.5678
    with pytest.raises((InputError, TypeError)) as caught:
        kind.fit(*WRONG[name](X, y))
    said = "".join(messages_of(caught.value))
    assert "Jane" not in said
    assert ".5678" not in said
    assert not any(f"'{label}'" in said for label in CLASSES)
    assert not [attribute for attribute in vars(kind.make()) if attribute.endswith("_")]


@pytest.mark.parametrize("name", WRONG)
@each(SHARED)
def test_errors_about_data_show_no_data(kind, name):
    check_shows_nothing(kind, name)


def test_data_in_a_message_are_noticed(monkeypatch):
    def showing(X, *others):
        raise InputError(f"X must be a table; got {X!r}")

    monkeypatch.setattr(reading, "checked_inputs", showing)
    with pytest.raises(AssertionError):
        check_shows_nothing(FIRST[0], "a cube")
