"""Tables whose shards are made by tasks: the bytes of one process, in any order, and no record on the way."""

import os
import pickle
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dppl.encoders import load_encoder
from dppl.engines import LocalEngine
from dppl.errors import EngineError, InputError, ParameterError
from dppl.io import Columns, open_source
from dppl.io.tables.shards import SourceChanged, Window
from dppl.training import embed, embedding
from dppl.training.items import Items

from .conftest import TinyImages, TinyTexts, image_bytes

N = 45
TEXTS = ["" if number % 11 == 3 else f"Quastenflosser {number}" for number in range(N)]
LABELS = ["abc"[number % 3] for number in range(N)]


def titled_file(folder):
    titles = "label,text,of,what,stands,below\n\n"
    rows = "".join(
        f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True)
    )
    (folder / "h.csv").write_text(f"{titles}text,label\n{rows}")
    return open_source(folder / "h.csv", header=3)


def csv_file(folder):
    rows = [
        f'"{text}\nand on",{label}' for text, label in zip(TEXTS, LABELS, strict=True)
    ]
    (folder / "t.csv").write_text("text,label\n\n" + "\n".join(rows))
    return open_source(folder / "t.csv")


def text_file(folder):
    (folder / "t.txt").write_text("\n".join(TEXTS) + "\nend")
    return open_source(folder / "t.txt")


def json_file(folder):
    lines = [f'{{"text": "{text}", "label": {len(text)}, "who": {number % 7}}}'
             for number, text in enumerate(TEXTS)]  # fmt: skip
    (folder / "t.jsonl").write_text("\n".join(lines))
    return open_source(folder / "t.jsonl", columns=Columns(person="who"))


def parquet_folder(folder):
    (folder / "p").mkdir()
    table = pa.table({"text": TEXTS, "label": LABELS})
    for number, (first, last) in enumerate([(0, 13), (13, 13), (13, 40), (40, N)]):
        pq.write_table(
            table.slice(first, last - first), folder / "p" / f"{number}.parquet",
            row_group_size=5,
        )  # fmt: skip
    return open_source(folder / "p")


def image_folder(folder):
    for number in range(N):
        path = folder / "i" / LABELS[number] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if number % 11 == 3 else image_bytes(number))
    return open_source(folder / "i")


def listed_images(folder):
    image_folder(folder)
    rows = [f"{LABELS[number]}/{number}.png,{number % 2}" for number in range(N)]
    (folder / "l.csv").write_text("file,label\n" + "\n".join(rows))
    return open_source(folder / "i", labels=folder / "l.csv")


SOURCES = {
    "csv": csv_file,
    "csv below titles": titled_file,
    "text": text_file,
    "json": json_file,
    "parquet": parquet_folder,
    "images": image_folder,
    "listed images": listed_images,
}


@dataclass
class Tasks:
    """An engine whose tasks end in another order; it keeps what travels, as Ray would see it."""

    order: tuple[int, ...] = ()
    sent: list = field(default_factory=list)
    returned: list = field(default_factory=list)
    assumption = None
    check = LocalEngine.check

    def each(self, function, items):
        for place in self.order or reversed(range(len(items))):
            self.sent.append(pickle.dumps((function, items[place])))
            work, item = pickle.loads(self.sent[-1])
            self.returned.append(work(item))
            yield place, self.returned[-1]


def contents(table):
    """Return the bytes of the report and of every file of the table, hidden ones too."""
    files = [table.with_name(f"{table.name}.report.jsonl"), *table.iterdir()]
    return {path.name.removeprefix(table.name): path.read_bytes() for path in files}


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    return SOURCES[request.param](tmp_path)


def encoder_of(source):
    return TinyImages() if source.modality == "image" else TinyTexts()


def test_no_byte_depends_on_the_tasks(source, tmp_path):
    embed(source, encoder_of(source), tmp_path / "alone", shard_rows=7)
    counts = []
    engine = Tasks()
    embed(
        source,
        encoder_of(source),
        tmp_path / "tasks",
        shard_rows=7,
        engine=engine,
        progress=counts.append,
    )
    assert contents(tmp_path / "tasks") == contents(tmp_path / "alone")
    assert sum(counts) == source.count()
    assert set(engine.returned) == {None}
    # Names of folders are labels, and in no message, but in a path that is typed.
    secrets = [b"Quastenflosser", b"/0.png", image_bytes(0)]
    assert not any(secret in sent for secret in secrets for sent in engine.sent)
    control = pickle.dumps(
        [(one.version, one.reference, one.load()) for one in [next(iter(source))]]
    )
    assert any(secret in control for secret in secrets)


def test_a_table_gives_the_windows_that_it_was_made_of(source, tmp_path, monkeypatch):
    encoder = encoder_of(source)
    done = embed(source, encoder, tmp_path / "t", rows="float32", engine=Tasks())
    monkeypatch.setattr(embedding, "_ROWS", 4)
    again = Window()
    for window in embedding.windows_of(source, done):
        assert len(window.usable) <= 4
        again.extend(window)
    whole = Window()
    for window in embedding.embed_windows(source, encoder):
        whole.extend(window)
    assert np.array_equal(again.rows, whole.rows)
    again.rows = whole.rows
    assert again == whole


def test_a_table_of_other_records_gives_no_windows(tmp_path):
    text_file(tmp_path)
    source = open_source(tmp_path / "t.txt")
    done = embed(source, TinyTexts(), tmp_path / "t")
    (tmp_path / "t.txt").write_text("\n".join([*TEXTS, "end", "one more"]))
    with pytest.raises(SourceChanged):
        list(embedding.windows_of(source, done))


def test_records_from_a_place_on_are_those_of_the_whole(source):
    def seen(records):
        return [(one.id, one.reference, one.label, one.person) for one in records]

    whole = seen(source)
    for place in range(len(whole) + 2):
        assert seen(source.since(place)) == whole[place:]


def test_a_parquet_file_is_read_from_the_row_group_on(tmp_path, monkeypatch):
    source = parquet_folder(tmp_path)
    read = []
    whole = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda file, **how: read.append(how["row_groups"]) or whole(file, **how),
    )
    assert next(source.since(31)).id == "32"
    assert [group for group in read if group] == [[3, 4, 5]]


@pytest.mark.parametrize("order", [(0, 0, 1, 2), (0, 1, 2, 2), (0, 1), (0, 2)])
def test_a_shard_that_an_engine_forgets_or_makes_twice_ends_no_table(order, tmp_path):
    source = text_file(tmp_path)
    with pytest.raises(EngineError, match="broken its promise"):
        embed(source, TinyTexts(), tmp_path / "t", shard_rows=20, engine=Tasks(order))
    assert b'"finished": false' in (tmp_path / "t" / "_manifest.json").read_bytes()


@pytest.mark.parametrize("changed", [False, True])
def test_shards_that_were_made_early_are_kept_if_their_records_are_as_they_were(
    changed, tmp_path
):
    """The process that owns the table ends after the tasks of the last shards, before that of the first."""

    class Stopping(Tasks):
        def each(self, function, items):
            for place, value in super().each(function, items):
                if place == 0:
                    raise KeyboardInterrupt
                yield place, value

    source = text_file(tmp_path)
    table = tmp_path / "table"
    with pytest.raises(KeyboardInterrupt):
        embed(source, TinyTexts(), table, shard_rows=20, engine=Stopping((2, 1, 0)))
    if changed:
        path = tmp_path / "t.txt"
        path.write_text(path.read_text().replace("flosser 26\n", "flossen 26\n"))
    encoder = TinyTexts()
    embed(source, encoder, table, shard_rows=20)
    n_used = [sum(map(bool, TEXTS[first : first + 20])) for first in (0, 20, 40)]
    assert encoder.encoded == (n_used[1] if changed else 0)
    embed(source, TinyTexts(), tmp_path / "alone", shard_rows=20)
    assert contents(table) == contents(tmp_path / "alone")


def test_tasks_stop_at_a_record_that_cannot_be_used(tmp_path):
    source = text_file(tmp_path)
    with pytest.raises(InputError, match=r"^unusable is stop"):
        embed(
            source,
            TinyTexts(),
            tmp_path / "t",
            shard_rows=20,
            unusable="stop",
            engine=Tasks(),
        )
    assert "line 4" in (tmp_path / "t.report.jsonl").read_text()


def test_records_in_no_file_stay_in_their_process(tmp_path):
    encoder = TinyTexts()
    with pytest.raises(ParameterError, match="engine needs records in files"):
        embed(Items(TEXTS, encoder, "X"), encoder, tmp_path / "t", engine=Tasks())
    assert not (tmp_path / "t").exists()


class Elsewhere(TinyTexts):
    """Another machine rounds its rows otherwise, and so says its encoder."""

    def __reduce__(self):
        from .conftest import TinyFingerprint

        return TinyTexts, (TinyFingerprint("of another machine"),)


def test_a_machine_with_another_encoder_ends_the_work(tmp_path):
    with pytest.raises(EngineError, match="must be the same on all machines"):
        embed(text_file(tmp_path), Elsewhere(), tmp_path / "t", engine=Tasks())


@dataclass(frozen=True)
class Dying:
    """Work that kills its process around the shard of number 2, before it is made or after, as often as marks lack."""

    work: object
    folder: str
    parent: int

    def __call__(self, number):
        assert os.getpid() != self.parent
        if number == 2:
            with suppress(FileExistsError):
                (Path(self.folder) / "before").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        self.work(number)
        if number == 2:
            with suppress(FileExistsError):
                (Path(self.folder) / "after").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class OnRay:
    """Ray, with workers that die."""

    ray: object
    folder: Path
    assumption = None

    def check(self):
        self.ray.check()

    def each(self, function, items):
        yield from self.ray.each(Dying(function, str(self.folder), os.getpid()), items)


def test_workers_that_die_change_no_byte(tmp_path, ray_engine, by_value, monkeypatch):
    """With a real encoder, which workers load by its name, and paths from the folder of the command."""
    image_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    encoder = load_encoder("pixels")
    embed(open_source("i"), encoder, "alone", shard_rows=7)
    (tmp_path / "marks").mkdir()
    engine = OnRay(ray_engine, tmp_path / "marks")
    embed(open_source("i"), encoder, "tasks", shard_rows=7, engine=engine)
    assert {path.name for path in Path("marks").iterdir()} == {"before", "after"}
    assert contents(Path("tasks")) == contents(Path("alone"))
    assert len(np.unique([len(one) for one in contents(Path("tasks")).values()])) > 2
