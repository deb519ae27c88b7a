import io

import numpy as np
import pytest
from PIL import Image

from dppl.statement.pictures import GAP, NAME_WIDTH, TILE, contact_sheet

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def plain(colour, size=(30, 30)):
    return Image.new("RGB", size, colour)


def drawn(rows):
    with Image.open(io.BytesIO(contact_sheet(rows))) as sheet:
        assert sheet.format == "PNG"
        return np.asarray(sheet.convert("RGB"))


def tile(sheet, row, column):
    top, left = GAP + row * (TILE + GAP), NAME_WIDTH + column * (TILE + GAP)
    return sheet[top : top + TILE, left : left + TILE]


def test_a_class_is_a_row_of_its_name_and_its_images():
    sheet = drawn([("cat", [plain(RED), plain(GREEN)]), ("dog", [plain(BLUE), plain(RED)])])
    assert sheet.shape == (2 * (TILE + GAP) + GAP, NAME_WIDTH + 2 * (TILE + GAP) + GAP, 3)
    for row, column, colour in ((0, 0, RED), (0, 1, GREEN), (1, 0, BLUE), (1, 1, RED)):
        assert (tile(sheet, row, column) == colour).all()
    for row in range(2):
        name = sheet[GAP + row * (TILE + GAP) :][:TILE, :NAME_WIDTH]
        assert (name < 128).any()
        assert (name[:, -GAP:] == 255).all()


@pytest.mark.parametrize("size", [(400, 100), (20, 5), (100, 400)])
def test_images_keep_their_form_and_lie_in_the_middle(size):
    shown = tile(drawn([("cat", [plain(RED, size)])]), 0, 0)
    red = (shown == RED).all(axis=2)
    height, width = red.any(axis=1).sum(), red.any(axis=0).sum()
    assert max(height, width) == TILE
    assert width / height == size[0] / size[1]
    assert (red == red[::-1, ::-1]).all()


def test_a_long_name_is_cut_before_the_images():
    for name in ("x" * 200, "m" * 200, "长" * 200, "", "a\nb"):
        sheet = drawn([(name, [plain(RED)])])
        assert (tile(sheet, 0, 0) == RED).all()
        assert (sheet[:, NAME_WIDTH - GAP : NAME_WIDTH] == 255).all()


def test_equal_input_gives_equal_bytes():
    rows = [("cat", [plain(RED)]), ("dog", [])]
    assert contact_sheet(rows) == contact_sheet(rows)
    assert drawn([]).shape[2] == 3
