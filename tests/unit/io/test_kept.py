"""What was embedded is kept when work is interrupted; whoever goes on ends with the bits of an uninterrupted run."""

import io
import os
import sys

import numpy as np
import pytest

from dppl.errors import InputError
from dppl.io import open_source
from dppl.io.kept import Kept, kept_in, remove_older, state_place
from dppl.training import embed
from dppl.training.embedding import embed_windows

from .conftest import TinyFingerprint, TinyTexts, outcome

N = 22
WINDOWS = 6  # of four texts, the last of two


class Stopping(TinyTexts):
    """Is interrupted after so many windows."""

    def __init__(self, windows):
        super().__init__()
        self.left = windows

    def encode_prepared(self, batch, progress):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().encode_prepared(batch, progress)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("".join(f"text {number}\n" for number in range(N)))
    return path


def interrupt(lines, out, windows):
    with pytest.raises(KeyboardInterrupt):
        embed(open_source(lines), Stopping(windows), out)
    return out / ".embeddings"


def go_on(lines, out):
    encoder = TinyTexts()
    found = outcome(embed(open_source(lines), encoder, out))
    return found.bytes, encoder.encoded


def test_a_shard_goes_on_at_the_window_where_it_was_interrupted(lines, tmp_path):
    whole, encoded = go_on(lines, tmp_path / "whole")
    assert encoded == N
    for windows in range(1, WINDOWS):
        table = tmp_path / str(windows)
        kept = interrupt(lines, table, windows)
        assert kept.stat().st_mode & 0o077 == 0 or sys.platform == "win32"
        assert go_on(lines, table) == (whole, N - 4 * windows)
        assert sorted(path.name for path in table.iterdir()) == [
            "_manifest.json",
            "part-000000.parquet",
        ]


def test_interrupted_twice_it_keeps_what_both_runs_embedded(lines, tmp_path):
    interrupt(lines, tmp_path / "table", 2)
    interrupt(lines, tmp_path / "table", 1)
    assert go_on(lines, tmp_path / "table")[1] == N - 12


def test_an_interruption_before_the_first_window_leaves_no_embeddings(lines, tmp_path):
    assert not interrupt(lines, tmp_path / "table", 0).exists()


def test_a_record_that_changed_is_embedded_anew(lines, tmp_path):
    interrupt(lines, tmp_path / "table", 3)
    lines.write_text(lines.read_text().replace("text 5\n", "text five\n"))
    whole, _ = go_on(lines, tmp_path / "whole")
    # The first and the third window are as they were.
    assert go_on(lines, tmp_path / "table") == (whole, N - 8)


def test_the_order_of_what_is_embedded_together_counts(lines, tmp_path):
    interrupt(lines, tmp_path / "table", 1)
    texts = lines.read_text().splitlines()
    lines.write_text("\n".join([texts[1], texts[0], *texts[2:]]))
    whole, _ = go_on(lines, tmp_path / "whole")
    assert go_on(lines, tmp_path / "table") == (whole, N)


def test_damage_costs_time_and_changes_nothing(lines, tmp_path):
    whole, _ = go_on(lines, tmp_path / "whole")
    content = interrupt(lines, tmp_path / "begun", 3).read_bytes()
    entry = (len(content) - 32) // 3
    for place in np.random.default_rng(0).choice(len(content), 25, replace=False):
        table = tmp_path / f"torn {place}"
        interrupt(lines, table, 3).write_bytes(content[:place])
        before = max(0, (place - 32) // entry)
        assert go_on(lines, table) == (whole, N - 4 * before)
        table = tmp_path / f"other {place}"
        other = bytes([content[place] ^ 1])
        interrupt(lines, table, 3).write_bytes(
            content[:place] + other + content[place + 1 :]
        )
        assert go_on(lines, table) == (whole, N - 4 * before)


def test_a_torn_shard_is_embedded_anew(lines, tmp_path):
    def run(encoder):
        return outcome(
            embed(open_source(lines), encoder, tmp_path / "table", shard_rows=8)
        )

    whole = run(TinyTexts())
    with whole.files[-1].open("r+b") as file:
        file.truncate(100)
    encoder = TinyTexts()
    assert run(encoder).bytes == whole.bytes
    assert encoder.encoded == N - 16


def test_embeddings_of_another_encoder_are_not_taken(lines, tmp_path):
    def rows(encoder, kept):
        windows = embed_windows(open_source(lines), encoder, kept=kept)
        return np.concatenate([np.stack(window.rows) for window in windows])

    class Doubled(TinyTexts):
        def encode_prepared(self, batch, progress=None):
            return 2 * super().encode_prepared(batch, progress)

    path = tmp_path / "kept"
    with kept_in(path, "one") as kept:
        plain = rows(TinyTexts(), kept)
        again = TinyTexts()
        assert np.array_equal(rows(again, kept), plain)
        assert again.encoded == 0
        content = path.read_bytes()
    path.write_bytes(content)
    with kept_in(path, "another") as kept:
        other = Doubled(fingerprint=TinyFingerprint("doubled"))
        assert np.array_equal(rows(other, kept), 2 * plain)


def test_what_fails_leaves_the_file_and_what_is_refused_does_not(tmp_path):
    path = tmp_path / "folder" / "kept"

    def work(error):
        with kept_in(path, "maker") as kept:
            kept.rows(bytes(32), 2, lambda: np.ones((3, 2), np.float32))
            if error is not None:
                raise error
        return True

    for error in (KeyboardInterrupt(), OSError(), MemoryError(), ValueError()):
        with pytest.raises(type(error)):
            work(error)
        assert path.exists()
        assert path.parent.stat().st_mode & 0o077 == 0 or sys.platform == "win32"
    with pytest.raises(InputError):
        work(InputError("a record cannot be used."))
    assert not path.exists()
    assert work(None)
    assert not path.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_a_file_in_use_or_behind_a_link_is_left_alone(tmp_path):
    path = tmp_path / "kept"
    with kept_in(path, "maker") as kept:
        assert kept is not None
        with kept_in(path, "maker") as second:
            assert second is None
        assert path.exists()
    (tmp_path / "other").write_bytes(b"precious")
    path.symlink_to(tmp_path / "other")
    with kept_in(path, "maker") as kept:
        assert kept is None
    assert (tmp_path / "other").read_bytes() == b"precious"
    (tmp_path / "file").touch()
    with kept_in(tmp_path / "file" / "kept", "maker") as kept:
        assert kept is None


@pytest.mark.parametrize("room", [0, 40, 200, 10**6])
def test_a_full_disk_ends_no_work(room, lines, tmp_path):
    class Disk(io.FileIO):
        left = room

        def write(self, content):
            if self.left < len(content) and not self.left % 2:
                self.left = 0
            if not self.left:
                raise OSError(28, "No space left on device")
            written = super().write(content[: self.left])
            self.left -= written
            return written

    path = tmp_path / "kept"
    path.touch()
    with Disk(path, "r+") as file:
        kept = Kept(path, file, "maker")
        encoder = TinyTexts()
        plain, found = (
            [row for window in windows for row in window.rows]
            for windows in (
                embed_windows(open_source(lines), TinyTexts()),
                embed_windows(open_source(lines), encoder, kept=kept),
            )
        )
        assert np.array_equal(plain, found)
        assert encoder.encoded == N
        assert kept.holds is (room == 10**6)


def test_old_embeddings_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    place = state_place("a work")
    assert place != state_place("another work")
    assert place.parent == tmp_path / "dppl"
    place.parent.mkdir()
    month = 30 * 24 * 3600
    for name, age in (("old.embeddings", month + 1), ("new.embeddings", month - 1)):
        path = place.parent / name
        path.touch()
        os.utime(path, (10**9 - age, 10**9 - age))
    (place.parent / "old.work" / "private").mkdir(parents=True)
    (place.parent / "new.work").mkdir()
    os.utime(place.parent / "old.work", (0, 0))
    os.utime(place.parent / "new.work", (10**9, 10**9))
    (place.parent / "other").touch()
    os.utime(place.parent / "other", (0, 0))
    remove_older(place, 10**9)
    assert sorted(path.name for path in place.parent.iterdir()) == [
        "new.embeddings",
        "new.work",
        "other",
    ]
