"""How far work is: shown to who watches, in public units, and to nothing that keeps it."""

import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tqdm

from dppl import (
    ApproxDP,
    GaussianDP,
    MeanPrototypes,
    PrivateSearch,
    PublicData,
    PublicPrototypes,
    SoftmaxPrototypes,
)
from dppl._utils import progress as progress_module
from dppl._utils.progress import hidden, progress, steps
from dppl.kernel.queries import selection as public_module


@pytest.fixture
def shown(monkeypatch):
    """All that bars are told, in the place of a person who watches."""
    told = []

    class Bar:
        def __init__(self, *, desc, total, delay, **_):
            told.append((desc, total, delay))

        def update(self, count):
            told.append(count)

        def close(self):
            told.append("gone")

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    return told


def test_work_shows_what_is_done_of_how_much_and_leaves_nothing(shown):
    with progress("selecting", lambda: 40) as advance:
        advance(5)
        advance()
    counted = [("counting", None, 0.0), "gone"]
    assert shown == [*counted, ("selecting", 40, 0.0), 5, 1, "gone"]
    shown.clear()
    assert list(steps(2)) == [0, 1]
    assert shown == [("fitting", 2, progress_module.PATIENCE), 1, 1, "gone"]


def test_nothing_is_counted_or_shown_where_nobody_watches(capsys):
    with progress("embedding", lambda: pytest.fail("it was counted")) as advance:
        advance(3)
    with progress("loading"):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_bar_and_clears_it(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress("selecting", 4) as advance:
        advance(4)
    with progress("loading minilm"):
        pass
    text = sys.stderr.getvalue()
    assert "selecting:   0%" in text
    assert "loading minilm ..." in text
    assert text.endswith("\r")


class Gone:
    """A terminal that somebody has closed meanwhile."""

    def isatty(self):
        return True

    def write(self, text):
        raise OSError(5, "Input/output error")


def closed():
    file = io.StringIO()
    file.close()
    return file


def test_work_that_is_paid_for_does_not_end_because_nobody_can_be_shown_it(monkeypatch):
    monkeypatch.setattr(progress_module, "PATIENCE", 0.0)
    for stderr in (None, object(), closed(), Gone()):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert list(steps(9)) == list(range(9))


def test_a_notebook_has_a_bar_of_its_own(monkeypatch):
    for kernel in (True, False):
        shell = SimpleNamespace(kernel=None) if kernel else SimpleNamespace()
        monkeypatch.setitem(
            sys.modules,
            "IPython",
            SimpleNamespace(get_ipython=lambda shell=shell: shell),
        )
        monkeypatch.setitem(
            sys.modules, "tqdm.notebook", SimpleNamespace(tqdm="bar of a notebook")
        )
        assert progress_module._bar() == ("bar of a notebook" if kernel else None)


@pytest.mark.parametrize("method", [PublicPrototypes, SoftmaxPrototypes])
def test_neighbours_and_data_of_other_sizes_show_the_same(shown, monkeypatch, method):
    monkeypatch.setattr(public_module, "PUBLIC_ROWS", 8)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    y = rng.integers(0, 2, 60)
    public = rng.normal(size=(96, 8))

    def fit(n):
        shown.clear()
        model = method(GaussianDP(1.0), [0, 1, 2], random_state=0)
        model.set_params(public=PublicData(public)).fit(X[:n], y[:n])
        return list(shown)

    assert len(fit(60)) > 3
    assert fit(60) == fit(59) == fit(2)


def test_a_search_shows_nothing_as_the_number_of_its_runs_is_secret(shown):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    y = rng.integers(0, 2, 60)
    SoftmaxPrototypes(ApproxDP(8.0, 1e-6), [0, 1]).fit(X, y)
    assert shown
    shown.clear()
    for kind in (SoftmaxPrototypes, MeanPrototypes):
        PrivateSearch(kind(ApproxDP(8.0, 1e-6), [0, 1]), {}, mean_runs=2).fit(X, y)
    with hidden():
        list(steps(3))
    assert shown == []
