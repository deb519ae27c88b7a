"""A folder with fifty damaged files of ten kinds among good ones loses only those; so do single images of odd kinds."""

import io
import logging
import os
import struct
import warnings
import zlib
from contextlib import nullcontext

import numpy as np
import pytest
from PIL import Image

from dppl.errors import InputError
from dppl.io.records import decoding
from dppl.io.records.decoding import MOST_PIXELS, decode, quiet
from dppl.io.records.record import BadRecord

from .conftest import TinyImages, image_bytes

NO_IMAGE = "it is not an image of a known format"
DAMAGED = "it is a damaged or truncated image"


def png(width, height, data):
    """Return a PNG file that claims this size, whatever the data hold."""

    def chunk(kind, content):
        body = kind + content
        return (
            struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


def flipped(content):
    """Return a file with a wrong byte in the middle of its pixels."""
    return (
        content[: len(content) // 2]
        + bytes([content[len(content) // 2] ^ 0xFF])
        + content[len(content) // 2 + 1 :]
    )


def written(content):
    return lambda path, seed: path.write_bytes(content(seed))


KINDS = {
    "an empty file": (written(lambda seed: b""), "it is empty"),
    "a text": (
        written(lambda seed: b"no image, but a line of text\n" * (seed + 1)),
        NO_IMAGE,
    ),
    "random bytes": (
        written(lambda seed: np.random.default_rng(seed).bytes(500)),
        NO_IMAGE,
    ),
    "a program in PostScript": (
        written(lambda seed: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        NO_IMAGE,
    ),
    "a truncated JPEG": (
        written(lambda seed: image_bytes(seed, (64, 64), "JPEG")[: 600 + seed]),
        DAMAGED,
    ),
    "a truncated PNG": (
        written(lambda seed: image_bytes(seed, (64, 64))[: 600 + seed]),
        DAMAGED,
    ),
    "a PNG with a wrong byte": (
        written(lambda seed: flipped(image_bytes(seed, (64, 64)))),
        DAMAGED,
    ),
    "a decompression bomb": (
        written(lambda seed: png(20_000 + seed, 20_000, bytes(100))),
        f"it has more than {MOST_PIXELS} pixels",
    ),
    "a loop of links": (
        lambda path, seed: os.symlink(path.name, path),
        "it is a loop of symbolic links",
    ),
    "a pipe": (lambda path, seed: os.mkfifo(path), "it is not a regular file"),
}


@pytest.fixture
def mixed(tmp_path):
    """Return a folder with 60 good images in two classes and fifty damaged files among them, and what is wrong."""
    rng = np.random.default_rng(1)
    places = rng.permutation(110)
    damaged = {}
    for number, place in enumerate(places):
        path = tmp_path / "photos" / ("ab"[place % 2]) / f"{place:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number < 60:
            path.write_bytes(image_bytes(number, (64, 64), ("PNG", "JPEG")[number % 2]))
        else:
            make, reason = list(KINDS.values())[number % 10]
            make(path, number)
            damaged[f"{path.parent.name}/{path.name}"] = reason
    return tmp_path / "photos", damaged


def test_fifty_damaged_files_of_ten_kinds_cost_no_other(mixed, run, images):
    folder, damaged = mixed
    found = run(folder, images, shard_rows=32, workers=3)
    assert found.reasons == damaged
    assert (len(damaged), len(set(damaged.values()))) == (50, 6)
    good = sorted(f"{file.parent.name}/{file.name}" for file in folder.rglob("*.png"))
    assert found.ids == [name for name in good if name not in damaged]
    assert found.totals["embedded"] == 60
    for name in damaged:
        (folder / name).unlink()
    alone = run(folder, TinyImages(), out="alone")
    assert (alone.ids, alone.labels) == (found.ids, found.labels)
    np.testing.assert_array_equal(alone.table.to_array(), found.table.to_array())


def test_strict_stops_at_the_first_and_lists_it(mixed, run, images, tmp_path):
    folder, damaged = mixed
    with pytest.raises(
        InputError, match=r"^unusable .* see .*table\.report\.jsonl"
    ) as error:
        run(folder, images, unusable="stop")
    first = min(damaged)
    assert first not in str(error.value)
    assert first in (tmp_path / "table.report.jsonl").read_text()
    for name in damaged:
        (folder / name).unlink()
    # Mended, the same command goes on.
    assert run(folder, images, unusable="stop").totals == {
        "records": 60,
        "embedded": 60,
        "skipped": [],
    }


def test_strict_refuses_a_table_from_which_records_were_left_out_before(
    mixed, run, images
):
    folder, _ = mixed
    run(folder, images)
    with pytest.raises(InputError, match=r"^unusable "):
        run(folder, images, unusable="stop")


@pytest.fixture
def pixels():
    """Decode bytes and return their pixels."""

    def decoded(content):
        with quiet():
            return np.asarray(decode(content, "image"))

    return decoded


def saved(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_libtiff_is_silent_while_images_are_decoded(capfd):
    """It writes to the standard error of the process, past Python."""
    damaged = flipped(
        image_bytes(0, (64, 64), "TIFF", compression="tiff_adobe_deflate")
    )
    for kept_quiet in (True, False, True):
        with (
            quiet() if kept_quiet else nullcontext(),
            pytest.raises(BadRecord, match="damaged"),
        ):
            decode(damaged, "image")
        # Once more without, to see that there is something to silence.
        assert bool(capfd.readouterr().err) == (not kept_quiet)


def test_the_last_to_leave_undoes_the_silence(capfd):
    """Whichever of two threads came first."""
    damaged = flipped(
        image_bytes(0, (64, 64), "TIFF", compression="tiff_adobe_deflate")
    )
    log = logging.getLogger("PIL")
    before = log.level
    filters = list(warnings.filters)
    first = quiet()
    second = quiet()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(BadRecord):
        decode(damaged, "image")
    assert (capfd.readouterr().err, log.level > logging.CRITICAL) == ("", True)
    second.__exit__(None, None, None)
    assert (log.level, warnings.filters) == (before, filters)
    with pytest.raises(BadRecord):
        decode(damaged, "image")
    assert capfd.readouterr().err


def test_without_a_way_to_silence_it_no_tiff_is_read(monkeypatch):
    content = image_bytes(0, (8, 8), "TIFF")
    assert decode(content, "image").size == (8, 8)
    monkeypatch.setattr(decoding, "_tiff_handlers", list)
    decoding._formats.cache_clear()
    with pytest.raises(BadRecord, match="unknown_format"):
        decode(content, "image")
    monkeypatch.undo()
    decoding._formats.cache_clear()


def test_an_image_is_turned_upright(pixels):
    image = Image.fromarray(np.arange(36, dtype=np.uint8).reshape(2, 6, 3) * 7)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    turned = pixels(saved(image, exif=exif))
    np.testing.assert_array_equal(turned, np.rot90(np.asarray(image), -1))


def test_exif_that_cannot_be_read_turns_nothing(pixels):
    image = Image.fromarray(np.arange(36, dtype=np.uint8).reshape(2, 6, 3) * 7)
    np.testing.assert_array_equal(
        pixels(saved(image, exif=b"Exif\0\0broken")), np.asarray(image)
    )


def test_sixteen_bits_are_scaled_and_not_cut_off(pixels):
    grey = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    np.testing.assert_array_equal(
        pixels(saved(Image.fromarray(grey)))[:, :, 1], grey >> 8
    )


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK"])
def test_every_mode_becomes_rgb(mode, pixels):
    kind = "TIFF" if mode == "CMYK" else "PNG"
    assert pixels(image_bytes(mode=mode, kind=kind)).shape == (6, 8, 3)


def test_a_huge_file_is_refused_before_it_is_decoded(monkeypatch):
    monkeypatch.setattr("dppl.io.records.decoding.MOST_BYTES", 100)
    with pytest.raises(BadRecord, match="large_file"):
        decode(image_bytes(size=(64, 64)), "image")


def test_what_an_encoder_says_of_an_input_stays_untold(
    tmp_path, run, images, monkeypatch
):
    def prepare(item):
        raise ValueError(f"private pixels {item}")

    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "1.png").write_bytes(image_bytes())
    monkeypatch.setattr(images, "prepare", prepare)
    assert run(tmp_path / "flat", images).reasons == {
        "1.png": "the encoder cannot prepare it"
    }
