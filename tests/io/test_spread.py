"""Shards that tasks embed: byte for byte the table of one process, also where workers are killed on the way."""

import os
import pickle
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from dppl.encoders import load_encoder
from dppl.engines import InProcess
from dppl.errors import InputError, ParameterError
from dppl.io import Columns, embed, open_source, read_table

from .conftest import TinyTexts, image_bytes

SIZE = 6


@pytest.fixture
def lines(tmp_path):
    """Write texts of which some are empty, and some have an id of one in another shard."""
    text = "".join(
        f"{number % 35},{'' if number % 9 == 4 else f'text {number}'},c{number % 3},p{number % 7}\n"
        for number in range(40)
    )
    (tmp_path / "t.csv").write_text("id,text,label,who\n" + text)
    return tmp_path / "t.csv"


def outcome(folder):
    """Return all bytes of a table and its report, by name."""
    files = [*folder.iterdir(), folder.with_name(f"{folder.name}.report.jsonl")]
    content = {file.name.removeprefix(folder.name): file.read_bytes() for file in files}
    assert len(content) > 3
    return content


def opened(lines):
    return open_source(lines, columns=Columns(id="id", person="who"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Write images in two class folders, one of them damaged."""
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(60):
        place = folder / f"class {number % 2}"
        place.mkdir(exist_ok=True)
        content = image_bytes(number, (300, 200))
        (place / f"{number:02}.png").write_bytes(content[:100] if number == 31 else content)
    return folder


class Backwards:
    """An engine whose tasks end in the other order."""

    check = InProcess.check

    def each(self, function, items):
        for place in reversed(range(len(items))):
            yield place, function(items[place])


@pytest.mark.parametrize("engine", [InProcess(), Backwards()], ids=["in order", "backwards"])
def test_the_table_is_that_of_one_process(engine, lines, tmp_path):
    embed(opened(lines), TinyTexts(), tmp_path / "alone", shard_rows=SIZE)
    embed(opened(lines), TinyTexts(), tmp_path / "spread", shard_rows=SIZE, engine=engine)
    assert outcome(tmp_path / "spread") == outcome(tmp_path / "alone")
    assert not list((tmp_path / "spread").glob(".*.part"))


class Stopping:
    """An engine that stops after some values."""

    check = InProcess.check

    def each(self, function, items):
        for place in (1, 0, 3):
            yield place, function(items[place])
        raise KeyboardInterrupt


@pytest.mark.parametrize("engine", [None, InProcess()], ids=["alone", "spread"])
def test_a_stopped_driver_goes_on_with_and_without_tasks(engine, lines, tmp_path):
    embed(opened(lines), TinyTexts(), tmp_path / "alone", shard_rows=SIZE)
    with pytest.raises(KeyboardInterrupt):
        embed(opened(lines), TinyTexts(), tmp_path / "spread", shard_rows=SIZE, engine=Stopping())
    with pytest.raises(InputError, match="is unfinished"):
        read_table(tmp_path / "spread")
    encoder = TinyTexts()
    embed(opened(lines), encoder, tmp_path / "spread", shard_rows=SIZE, engine=engine)
    assert outcome(tmp_path / "spread") == outcome(tmp_path / "alone")
    if engine is None:
        assert encoder.encoded < len(read_table(tmp_path / "alone"))  # the first two shards were kept


def test_a_source_that_another_machine_sees_differently_is_refused(lines, tmp_path):
    class Elsewhere(Backwards):
        def each(self, function, items):
            lines.write_text(lines.read_text().replace("text 20", "another"))
            yield from super().each(function, items)

    with pytest.raises(InputError, match="source has changed"):
        embed(opened(lines), TinyTexts(), tmp_path / "spread", shard_rows=SIZE, engine=Elsewhere())


def test_what_travels_holds_no_record(lines, tmp_path):
    sent, returned = [], []

    class Watched(Backwards):
        def each(self, function, items):
            for place, item in enumerate(items):
                sent.append(pickle.dumps((function, item)))
                value = function(item)
                returned.append(value)
                yield place, value

    encoder = load_encoder("pixels")
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(8):
        (folder / f"Quastenflosser {number}.png").write_bytes(image_bytes(number))
    embed(open_source(folder), encoder, tmp_path / "table", shard_rows=3, engine=Watched())
    row = np.asarray(read_table(tmp_path / "table"))[0].tobytes()
    assert len(sent) == 3
    assert not any(secret in content for content in sent for secret in (b"Quastenflosser", row, image_bytes(0)))
    assert all([type(part) for part in value] == [str, int, int] for value in returned)


def test_strict_stops_at_the_first_record_in_order(lines, tmp_path):
    with pytest.raises(InputError, match="one cannot be used"):
        embed(opened(lines), TinyTexts(), tmp_path / "spread", shard_rows=SIZE, engine=Backwards(), strict=True)


def test_a_cache_is_of_one_process(lines, tmp_path):
    with pytest.raises(ParameterError, match="cache goes with one process"):
        embed(opened(lines), TinyTexts(), tmp_path / "t", shard_rows=SIZE, engine=InProcess(), cache=tmp_path / "cache")


def test_tasks_of_ray_write_the_same_bytes(pictures, tmp_path, ray_engine):
    encoder = load_encoder("pixels")
    embed(open_source(pictures), encoder, tmp_path / "alone", shard_rows=7)
    embed(open_source(pictures), encoder, tmp_path / "spread", shard_rows=7, engine=ray_engine)
    assert outcome(tmp_path / "spread") == outcome(tmp_path / "alone")


def at_work():
    """Return the ids of processes that run tasks of the Ray that this process started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(b"ray::_outcome"):
                parents = [int(entry.name)]
                while parents[-1] > 1:
                    parents.append(
                        int((Path("/proc") / str(parents[-1]) / "stat").read_text().rpartition(")")[2].split()[1])
                    )
                found += parents[:1] if os.getpid() in parents else []
        except OSError:
            continue  # it has ended
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds workers through /proc, which only Linux has")
def test_a_worker_killed_in_the_middle_changes_no_byte(pictures, tmp_path, ray_engine):
    encoder = load_encoder("pixels")
    embed(open_source(pictures), encoder, tmp_path / "alone", shard_rows=3)
    killed = []

    def kill(_):
        until = time.monotonic() + 10
        while not killed and time.monotonic() < until:
            for process in at_work()[:1]:
                os.kill(process, signal.SIGKILL)
                killed.append(process)

    embed(open_source(pictures), encoder, tmp_path / "spread", shard_rows=3, engine=ray_engine, progress=kill)
    assert killed
    assert outcome(tmp_path / "spread") == outcome(tmp_path / "alone")
