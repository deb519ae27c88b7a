"""How far work is: told to who watches, in public units, and to nothing that keeps it."""

import io
import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dppl import ApproxDP, GaussianDP, MeanPrototypes, PrivateSearch, PublicData, PublicPrototypes, SoftmaxPrototypes
from dppl import _progress as progress_module
from dppl._progress import progress, shown_by, steps
from dppl.kernel import selection as public_module


@pytest.fixture
def every_second(monkeypatch):
    """Let a second pass between two looks at the clock, whatever is done meanwhile."""

    def restart():
        clock = itertools.count()
        monkeypatch.setattr(progress_module, "monotonic", lambda: float(next(clock)))

    restart()
    return restart


def test_long_work_tells_its_share_and_the_time_left_and_leaves_nothing(every_second):
    told = []
    with shown_by(told.append), progress("selecting", 40) as advance:
        for _ in range(8):
            advance(5)
    assert told == [
        "selecting: 62 %, about 0:00:03 left",
        "selecting: 75 %, about 0:00:02 left",
        "selecting: 87 %, about 0:00:01 left",
        "selecting: 100 %, about 0:00:00 left",
        None,
    ]


def test_short_work_tells_nothing():
    told = []
    with shown_by(told.append):
        assert list(steps(100)) == list(range(100))
    assert told == []


def test_a_terminal_is_told_and_a_pipe_is_not(every_second, monkeypatch, capsys):
    list(steps(9))
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    every_second()
    list(steps(6))
    assert capsys.readouterr() == (
        "",
        "\r\x1b[Kfitting: 83 %, about 0:00:01 left\r\x1b[Kfitting: 100 %, about 0:00:00 left\r\x1b[K",
    )


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


@pytest.mark.parametrize("stderr", [None, object(), closed(), Gone()], ids=["none", "no file", "closed", "gone"])
def test_work_that_is_paid_for_does_not_end_because_nobody_can_be_told(every_second, monkeypatch, stderr):
    monkeypatch.setattr(sys, "stderr", stderr)
    assert list(steps(9)) == list(range(9))


class Handle:
    """What IPython returns for a display that can be updated."""

    def __init__(self, shown):
        self.shown = shown

    def update(self, text):
        self.shown.append(text)


@pytest.mark.parametrize("kernel", [True, False])
def test_a_notebook_is_told_below_the_cell_until_the_work_ends(every_second, monkeypatch, kernel):
    shown = []

    def display(text, display_id):
        assert display_id
        shown.append(text)
        return Handle(shown)

    shell = SimpleNamespace(kernel=None) if kernel else SimpleNamespace()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    list(steps(6))
    told = ["fitting: 83 %, about 0:00:01 left", "fitting: 100 %, about 0:00:00 left", ""]
    assert shown == (told if kernel else [])


def told_by(fit):
    told = []
    with shown_by(told.append):
        fit()
    return told


@pytest.mark.parametrize("method", [PublicPrototypes, SoftmaxPrototypes])
def test_neighbours_and_data_of_other_sizes_tell_the_same(every_second, monkeypatch, method):
    """With the same clock; the times themselves grow with the records, which is why nothing keeps them."""
    monkeypatch.setattr(public_module, "PUBLIC_ROWS", 8)
    rng = np.random.default_rng(0)
    X, y, public = rng.normal(size=(60, 8)), rng.integers(0, 2, 60), rng.normal(size=(96, 8))

    def fit(n):
        every_second()
        model = method(GaussianDP(1.0), [0, 1, 2], random_state=0)
        return told_by(lambda: model.set_params(public=PublicData(public)).fit(X[:n], y[:n]))

    assert len(fit(60)) > 3
    assert fit(60) == fit(59) == fit(2)


def test_a_search_tells_nothing_as_the_number_of_its_runs_is_secret(every_second):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 8)), rng.integers(0, 2, 60)
    model = SoftmaxPrototypes(ApproxDP(8.0, 1e-6), [0, 1])
    assert told_by(lambda: model.fit(X, y))
    for estimator in (model, MeanPrototypes(ApproxDP(8.0, 1e-6), [0, 1])):
        assert told_by(lambda estimator=estimator: PrivateSearch(estimator, {}, mean_runs=2).fit(X, y)) == []
