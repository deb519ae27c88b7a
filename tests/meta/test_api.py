"""What docs/stability.md promises changes only where somebody also changes the file that says so."""

import sys
import warnings
from pathlib import Path

import pytest

from dppl._utils.deprecation import warn_of_end

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))

import api  # noqa: E402


def test_no_public_name_or_signature_changed():
    assert api.SNAPSHOT.read_text("utf-8") == api.snapshot(), (
        "the public interface changed: read docs/stability.md, then run tools/api.py"
    )


def test_a_parameter_that_goes_would_be_noticed(monkeypatch):
    def verify(model):
        """Stand in for a function that takes less."""

    told = api.snapshot()
    monkeypatch.setattr("dppl.verify", verify)
    changed = {*told.splitlines()} ^ {*api.snapshot().splitlines()}
    assert changed == {"verify(model, *, ledger=None)", "verify(model)"}


def test_what_ends_says_when_and_what_to_use_and_where_it_was_used():
    def old():
        warn_of_end("old()", instead="new()", version="0.3")
        return 1

    with pytest.warns(
        FutureWarning, match=r"old\(\) ends with dppl 0.3: use new\(\)"
    ) as noted:
        assert old() == 1
    assert noted[0].filename == __file__
    with warnings.catch_warnings(action="error"), pytest.raises(FutureWarning):
        old()
