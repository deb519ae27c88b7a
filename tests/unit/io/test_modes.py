"""Gray levels and colours of every kind become the 8 bits that they stand for, or a skip with a reason."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from dppl.encoders import load_encoder
from dppl.io.records.decoding import decode, upright_rgb
from dppl.io.records.record import BadRecord
from dppl.training.items import Items
from skipped import said

G = np.arange(256, dtype=np.uint8).reshape(16, 16)
WIDE = G.astype(np.uint16) * 257
TWELVE = G.astype(np.uint16) * 16 + G // 16
COLOURS = np.stack([G, G[::-1], G.T], axis=-1)
UNSIGNED = 1
SIGNED = 2
FLOAT = 3


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def tiff(values, form, *, bits=None, photometric=1, endian="<"):
    """Return the gray TIFF file of a 16 x 16 array, written out by hand."""
    content = values if isinstance(values, bytes) else values.tobytes()
    tags = {256: 16, 257: 16, 258: bits or 8 * values.itemsize, 259: 1}
    tags |= {262: photometric, 273: 0, 277: 1, 278: 16, 279: len(content), 339: form}
    tags[273] = 14 + 12 * len(tags)  # where the pixels begin
    header = (b"II*\0" if endian == "<" else b"MM\0*") + struct.pack(
        f"{endian}IH", 8, len(tags)
    )
    entries = [
        struct.pack(f"{endian}HHIHH", tag, 3, 1, value, 0)
        for tag, value in tags.items()
    ]
    return header + b"".join(entries) + bytes(4) + content


def packed(values):
    """Return numbers of 12 bits without a gap."""
    text = "".join(f"{value:012b}" for value in values.ravel())
    return int(text, 2).to_bytes(len(text) // 8, "big")


def pgm(values, top):
    head = f"P5 16 16 {top}\n".encode()
    return head + values.astype(">u2" if top > 255 else "u1").tobytes()


SHARES = G / 255
GRAY = {
    "8 bits": tiff(G, UNSIGNED),
    "8 bits, white is zero": tiff(255 - G, UNSIGNED, photometric=0),
    "16 bits": tiff(WIDE.astype("<u2"), UNSIGNED),
    "16 bits, big end": tiff(WIDE.astype(">u2"), UNSIGNED, endian=">"),
    "16 bits, white is zero": tiff((65535 - WIDE).astype("<u2"), 1, photometric=0),
    "12 bits": tiff(packed(TWELVE), UNSIGNED, bits=12),
    "32 bits": tiff(WIDE.astype("<i4"), SIGNED),
    "32 bits, big end": tiff(WIDE.astype(">i4"), SIGNED, endian=">"),
    "32 bits, unsigned": tiff(WIDE.astype("<u4"), UNSIGNED),
    "float": tiff(SHARES.astype("<f4"), FLOAT),
    "float, big end": tiff(SHARES.astype(">f4"), FLOAT, endian=">"),
    "float, white is zero": tiff((1 - SHARES).astype("<f4"), FLOAT, photometric=0),
    "PGM of 16 bits": pgm(WIDE, 65535),
    "PGM of 12 bits": pgm(np.round(SHARES * 4095), 4095),
    "PGM of 10 bits": pgm(np.round(SHARES * 1023), 1023),
    "PFM": b"Pf 16 16 -1.0\n" + SHARES[::-1].astype("<f4").tobytes(),
    "PNG of 16 bits": encoded(Image.fromarray(WIDE), "PNG"),
    "JPEG 2000 of 16 bits": encoded(Image.fromarray(WIDE), "JPEG2000"),
    "with alpha": encoded(Image.fromarray(G).convert("LA"), "PNG"),
    "with a palette": encoded(Image.fromarray(G).convert("P"), "PNG"),
}


@pytest.mark.parametrize("kind", GRAY)
def test_gray_levels_are_those_of_the_image_of_8_bits(kind):
    found = np.asarray(decode(GRAY[kind], "image"))
    assert np.array_equal(found, np.stack([G] * 3, axis=-1))


def changed(place, value):
    values = SHARES.astype("<f4")
    values[place] = value
    return tiff(values, FLOAT)


SIGNS = "its numbers are signed, and no file says which is black"
INTEGERS = "its numbers are not from 0 to 65535, as its type has them"
FLOATS = "its numbers are not from 0 to 1, as its type has them"
UNKNOWN = {
    "8 bits, signed": (tiff(G.view("i1"), SIGNED), SIGNS),
    "16 bits, signed": (tiff((WIDE // 2).astype("<i2"), SIGNED), SIGNS),
    "32 bits, all used": (tiff(G.astype("<u4") * 0x01010101, UNSIGNED), INTEGERS),
    "32 bits, below zero": (tiff(WIDE.astype("<i4") - 1, SIGNED), INTEGERS),
    "NaN": (changed((2, 3), np.nan), FLOATS),
    "infinite": (changed((2, 3), np.inf), FLOATS),
    "above 1": (changed((2, 3), 1.25), FLOATS),
    "below 0": (changed((2, 3), -0.25), FLOATS),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_numbers_on_an_unknown_scale_are_a_skip_with_a_reason(kind):
    content, reason = UNKNOWN[kind]
    with pytest.raises(BadRecord) as error:
        decode(content, "image")
    assert said(error.value.reason) == reason


def test_one_pixel_does_not_scale_the_others():
    """The range is of the type: half of an image is not stretched to the whole of it."""
    dim = np.asarray(decode(tiff((WIDE // 2).astype("<u4"), UNSIGNED), "image"))
    assert np.array_equal(dim[..., 0], G // 2)
    assert np.array_equal(
        np.asarray(decode(changed((0, 0), 1.0), "image"))[1:, :, 0], G[1:]
    )


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "RGBX", "RGBa", "CMYK"])
def test_colours_are_those_of_8_bits(mode):
    first = "RGBA" if mode == "RGBa" else mode
    image = Image.fromarray(COLOURS).convert(first).convert(mode)
    assert np.array_equal(np.asarray(upright_rgb(image)), COLOURS)


@pytest.mark.parametrize("mode", ["YCbCr", "HSV"])
def test_colours_of_other_spaces_are_close(mode):
    found = np.asarray(upright_rgb(Image.fromarray(COLOURS).convert(mode))).astype(int)
    assert 0 < np.abs(found - COLOURS).mean() < 4


def test_colours_of_16_bits_are_those_of_8():
    """A PNG file by hand, for Pillow writes none."""
    import zlib

    def chunk(name, content):
        check = zlib.crc32(name + content)
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)
        )

    rows = (COLOURS.astype(np.uint16) * 257).astype(">u2")
    content = b"".join(b"\0" + row.tobytes() for row in rows)
    file = b"\x89PNG\r\n\x1a\n" + chunk(
        b"IHDR", struct.pack(">IIBBBBB", 16, 16, 16, 2, 0, 0, 0)
    )
    file += chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")
    assert np.array_equal(np.asarray(decode(file, "image")), COLOURS)


def test_gray_with_weighted_alpha_and_black_and_white():
    image = Image.fromarray(G).convert("LA").convert("La")
    assert np.array_equal(np.asarray(upright_rgb(image))[..., 0], G)
    image = Image.fromarray(G > 100)
    assert image.mode == "1"
    assert np.array_equal(np.asarray(upright_rgb(image))[..., 0], (G > 100) * 255)


def test_an_unknown_mode_is_a_skip_with_a_reason(monkeypatch):
    monkeypatch.setattr("dppl.io.records.decoding._COLOURS", {"RGB"})
    with pytest.raises(BadRecord, match="unknown_colours"):
        decode(GRAY["8 bits"], "image")


def test_the_first_frame_counts(tmp_path):
    frames = [Image.fromarray(WIDE), Image.fromarray(WIDE[::-1].copy())]
    content = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert np.array_equal(np.asarray(decode(content, "image"))[..., 0], G)


def test_opened_images_are_read_as_their_files_are():
    """A copy of an image has none of its tags."""

    def opened(content):
        (record,) = Items(
            [Image.open(io.BytesIO(content))], load_encoder("pixels"), "X"
        )
        return record.load()

    for kind in ("12 bits", "float, white is zero", "32 bits"):
        assert np.array_equal(np.asarray(opened(GRAY[kind]))[..., 0], G)
    with pytest.raises(BadRecord, match="signed_numbers"):
        opened(UNKNOWN["16 bits, signed"][0])
