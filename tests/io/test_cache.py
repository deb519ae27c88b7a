"""The cache gives back what was embedded before, for the same encoder and content only."""

import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dppl.errors import InputError
from dppl.io.cache import Cache

from .conftest import TinyFingerprint, TinyTexts


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("\n".join(f"text {number}" for number in range(50)))
    return path


def test_a_second_run_encodes_nothing(lines, run, tmp_path):
    plain = run(lines, TinyTexts(), out="plain")
    for out in ("first", "second", "int8"):
        encoder = TinyTexts()
        rows = "int8" if out == "int8" else "float16"
        found = run(lines, encoder, out=out, cache=tmp_path / "cache", rows=rows)
        assert bool(encoder.encoded) == bool(encoder.prepared) == (out == "first")
        assert out == "int8" or found.bytes == plain.bytes


def test_another_encoder_or_content_finds_nothing(lines, run, tmp_path):
    run(lines, TinyTexts(), cache=tmp_path / "cache")
    other = TinyTexts(fingerprint=TinyFingerprint("other"))
    run(lines, other, out="other", cache=tmp_path / "cache")
    assert other.encoded == 50
    lines.write_text(lines.read_text() + "\nnew")
    encoder = TinyTexts()
    run(lines, encoder, out="longer", cache=tmp_path / "cache")
    assert encoder.encoded == 1


def test_without_a_folder_nothing_is_kept(lines, run, tmp_path):
    run(lines, TinyTexts())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.txt", "table", "table.report.jsonl"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
def test_the_folder_is_its_owners(lines, run, tmp_path):
    run(lines, TinyTexts(), cache=tmp_path / "a" / "cache")
    assert (tmp_path / "a" / "cache").stat().st_mode & 0o077 == 0
    for file in (tmp_path / "a" / "cache").iterdir():
        assert file.stat().st_mode & 0o077 == 0
        file.chmod(0o644)  # as an older version left it
    Cache(tmp_path / "a" / "cache", "maker", 4).close()
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "a" / "cache").iterdir())


def test_a_row_of_another_length_counts_for_nothing(tmp_path):
    cache = Cache(tmp_path, "maker", 4)
    key = cache.key(b"content")
    cache.add([(key, np.arange(3, dtype=np.float32))])
    assert cache.get(key) is None
    cache.close()


def test_a_file_that_is_no_cache_is_an_error(lines, run, tmp_path):
    (tmp_path / "embeddings.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(InputError, match="must be a cache of dppl"):
        run(lines, TinyTexts(), cache=tmp_path)


def test_several_writers_share_it(tmp_path):
    rows = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)

    def write(_):
        cache = Cache(tmp_path, "maker", 4)
        for start in range(0, 200, 20):
            cache.add((cache.key(bytes([place])), rows[place]) for place in range(start, start + 20))
        cache.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    cache = Cache(tmp_path, "maker", 4)
    np.testing.assert_array_equal([cache.get(cache.key(bytes([place]))) for place in range(200)], rows)
    cache.close()
    with sqlite3.connect(tmp_path / "embeddings.sqlite") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
