"""Tiny encoders that follow the protocol, and sources to embed."""

import hashlib
import io
import json
import warnings
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dppl.io import open_source, read_table
from dppl.training import embed


@dataclass(frozen=True)
class TinyFingerprint:
    name: str
    uri: str = "tiny"
    row_independent: bool = True

    def text(self):
        return json.dumps({"library": "tests", "model": self.name})


@dataclass
class TinyImages:
    """Means of the cells of a 2 x 2 grid in three colours."""

    modality = "image"
    dimension = 12
    window = 4
    fingerprint: TinyFingerprint = TinyFingerprint("grid")
    encoded: int = 0

    def prepare(self, item):
        assert item.mode == "RGB"
        return np.asarray(
            item.resize((2, 2), Image.Resampling.BOX), np.float32
        ).reshape(-1)

    def encode_prepared(self, batch, progress=None):
        if progress is not None:
            progress(len(batch))
        self.encoded += len(batch)
        return np.stack(batch) / 255 + 0.125


@dataclass
class TinyTexts:
    """The hash of a text as numbers."""

    modality = "text"
    dimension = 8
    window = 4
    fingerprint: TinyFingerprint = TinyFingerprint("hash")
    encoded: int = 0
    prepared: list = field(default_factory=list)

    def prepare(self, item):
        assert isinstance(item, str)
        self.prepared.append(item)
        return np.frombuffer(hashlib.sha256(item.encode()).digest()[:8], np.uint8)

    def encode_prepared(self, batch, progress=None):
        if progress is not None:
            progress(len(batch))
        self.encoded += len(batch)
        return np.stack(batch).astype(np.float32) - 128


def image_bytes(seed=0, size=(8, 6), kind="PNG", mode="RGB", **options):
    """Return an encoded image of random pixels."""
    pixels = np.random.default_rng(seed).integers(
        0, 256, (size[1], size[0], 3), np.uint8
    )
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.fixture
def images():
    return TinyImages()


@pytest.fixture
def texts():
    return TinyTexts()


@pytest.fixture
def run(tmp_path):
    """Embed a source and return what came out: the table, the report, the columns of the shards in order."""

    def embedded(
        path, encoder, *, out="table", kind="auto", columns=None, labels=None, **options
    ):
        source = open_source(path, kind=kind, columns=columns, labels=labels)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            done = embed(source, encoder, tmp_path / out, **options)
        return outcome(done)

    return embedded


def outcome(done):
    from skipped import said  # here, because a script outside pytest loads this file

    files = sorted(done.table.glob("*.parquet"))
    columns = (
        pa.concat_tables([pq.read_table(file) for file in files])
        .drop_columns("x")
        .to_pydict()
    )
    notice, *left_out, totals = [
        json.loads(line) for line in done.report.read_text().splitlines()
    ]
    return SimpleNamespace(
        done=done,
        files=files,
        columns=columns,
        ids=columns["id"],
        labels=columns.get("y"),
        table=read_table(done.table),
        notice=notice,
        left_out=left_out,
        reasons={entry["reference"]: said(entry["reason"]) for entry in left_out},
        totals=totals,
        bytes={file.name: file.read_bytes() for file in files},
    )
