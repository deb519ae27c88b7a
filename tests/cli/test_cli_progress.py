"""What a pipe is told of how far work is: a line every ten seconds, and only where the total is public."""

from contextlib import contextmanager
from types import SimpleNamespace

from dppl import _progress as library
from dppl.cli import _progress


def told(monkeypatch, capsys, *, public):
    """Advance a bar of ten by one every four seconds; return the lines."""
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(_progress, "monotonic", lambda: float(next(clock)))
    with _progress.progress_bar("fitting", 10, public=public) as advance:
        for _ in range(10):
            if advance is not None:
                advance()
    return capsys.readouterr().err.splitlines()


def test_a_pipe_gets_a_line_every_ten_seconds(monkeypatch, capsys):
    assert told(monkeypatch, capsys, public=True) == [
        "fitting: 30 % of 10, 0.25/s, about 0:00:28 left",
        "fitting: 60 % of 10, 0.25/s, about 0:00:16 left",
        "fitting: 90 % of 10, 0.25/s, about 0:00:04 left",
    ]


def test_a_total_that_may_be_private_is_told_to_nobody(monkeypatch, capsys):
    assert told(monkeypatch, capsys, public=False) == []


def test_a_fit_says_how_far_it_is_in_place_of_the_message(monkeypatch):
    said = []

    class Status:
        update = staticmethod(said.append)

    @contextmanager
    def status(message):
        said.append(message)
        yield Status

    monkeypatch.setattr(_progress, "Console", lambda stderr: SimpleNamespace(status=status))
    monkeypatch.setattr(library, "_PATIENCE", 0.0)
    for watched in (True, False):
        monkeypatch.setattr(_progress.sys.stderr, "isatty", lambda watched=watched: watched, raising=False)
        with _progress.working("fitting it"):
            assert list(library.steps(1)) == [0]
    assert said == ["fitting it", "fitting: 100 %, about 0:00:00 left", "fitting it"]
