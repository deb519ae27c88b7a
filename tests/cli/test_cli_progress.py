"""What a pipe is told of how far work is: a line every ten seconds, and only where the total is public."""

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
