"""Rows of tables as vectors: the published map, one record at a time, from any file, by the schema alone."""

import json
from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dppl._utils.fingerprint import Fingerprint
from dppl.encoders import columns, load_encoder
from dppl.encoders.proposals import proposed
from dppl.errors import InputError
from dppl.io import Columns, open_source
from dppl.io.kept import kept_in
from dppl.io.records.sources import column_types
from dppl.training.embedding import embed_windows
from dppl.training.items import Items, embed_items

SCHEMA = """
age = [18, 90]
income = { range = [-500, 1_000_000], scale = "log" }
rating = [1, 5]
sex = ["female", "male"]
stage = { order = ["I", "II", "III", "none"] }
smoker = "yes/no"
joined = [2015-01-01, 2026-12-31]
icd = "code"
pdays = { range = [0.0, 900.0], missing = [-1] }
dose = { range = [0, 2000], missing = [-1], decimal = "," }
"""
ROW = {
    "age": "41.5",
    "income": "-30",
    "rating": "3",
    "sex": "male",
    "stage": "II",
    "smoker": "No",
    "joined": "29.02.2024",
    "icd": "E11.9 type II",
    "pdays": "899",
    "dose": "1.234,5",
}


def encoder_of(text, folder):
    path = folder / "schema.toml"
    path.write_text(text)
    return load_encoder(f"columns:{path}")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return encoder_of(SCHEMA, tmp_path_factory.mktemp("schema"))


def block(encoder, name, cell, row=ROW):
    """Return what a row with this cell has in the block of its column, of unit norm, by label."""
    vector = encoder.encode([row | {name: cell}])[0] * np.sqrt(len(encoder.columns))
    return {
        label: value
        for (column, label), value in zip(encoder.coordinates, vector, strict=True)
        if column == name and value
    }


def hats(place, resolutions):
    """Linear B-splines from their definition, those of each resolution at unit norm."""
    parts = []
    for knots in resolutions:
        hat = np.maximum(0, 1 - np.abs(place * (knots - 1) - np.arange(knots)))
        parts.append(hat / np.linalg.norm(hat) / np.sqrt(len(resolutions)))
    return np.concatenate(parts)


def values(encoder, name, cell):
    start = [column for column, _ in encoder.coordinates].index(name)
    width = sum(column == name for column, _ in encoder.coordinates)
    whole = encoder.encode([ROW | {name: cell}])[0] * np.sqrt(len(encoder.columns))
    return whole[start : start + width - 2]


@pytest.mark.parametrize(
    ("name", "cell", "place", "resolutions"),
    [
        ("age", "18", 0, (2, 3, 5, 9)),
        ("age", "90", 1, (2, 3, 5, 9)),
        ("age", "41.5", 23.5 / 72, (2, 3, 5, 9)),
        ("age", "1e9", 1, (2, 3, 5, 9)),
        ("age", "-inf", 0, (2, 3, 5, 9)),
        ("rating", "4", 3 / 4, (2, 3, 5)),
        ("stage", "II", 1 / 3, (2, 3, 4)),
        ("pdays", "225", 1 / 4, (2, 3, 5, 9)),
        ("dose", "1.234,5", 1234.5 / 2000, (2, 3, 5, 9)),
        ("dose", "1.5", 1.5 / 2000, (2, 3, 5, 9)),  # as a frame has it
        (
            "income",
            "1000",
            (np.arcsinh(1) + np.arcsinh(0.5)) / (np.arcsinh(1000) + np.arcsinh(0.5)),
            (2, 3, 5, 9),
        ),
    ],
)
def test_numbers_and_ranks_are_hats_at_their_place(
    encoder, name, cell, place, resolutions
):
    expected = hats(place, resolutions)
    np.testing.assert_allclose(values(encoder, name, cell), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "cell", "label"),
    [
        ("sex", "male", "male"),
        ("sex", " male ", "male"),
        ("sex", "Male", "unknown"),
        ("sex", "", "missing"),
        ("sex", "NaN", "missing"),
        ("stage", "none", "3/3"),  # a listed value, and no missing one
        ("smoker", "TRUE", "yes"),
        ("smoker", "0.0", "no"),
        ("smoker", "Ja", "yes"),
        ("smoker", "non", "no"),
        ("smoker", "perhaps", "unknown"),
        ("age", "forty", "unknown"),
        ("age", "None", "missing"),
        ("pdays", "-1.0", "missing"),
        ("pdays", "1,5", "unknown"),
        ("dose", "-1,0", "missing"),
        ("dose", "1,2,3", "unknown"),
        ("joined", "31.02.2024", "unknown"),
        ("joined", "2024-02-29 12:30:00", "Thu"),
        ("joined", "29.02.2024", "Thu"),
        ("icd", "", "missing"),
    ],
)
def test_each_cell_fills_the_coordinates_of_its_value(encoder, name, cell, label):
    assert label in block(encoder, name, cell)
    if label in ("unknown", "missing"):
        assert block(encoder, name, cell) == {label: pytest.approx(1)}


def test_seasons_come_round_and_words_of_codes_are_shared(encoder):
    season = ["sin", "cos", "sin 2", "cos 2"]
    one, next_year = (
        block(encoder, "joined", day) for day in ("2023-05-02", "2025-05-02")
    )
    assert [one[wave] for wave in season] == [next_year[wave] for wave in season]
    alike = np.dot(*(values(encoder, "icd", code) for code in ("E11 a", "E11 b")))
    apart = np.dot(*(values(encoder, "icd", code) for code in ("E11 a", "I10 b")))
    assert alike > 0.2 > apart


CELLS = st.one_of(
    st.text(max_size=20),
    st.floats().map(str),
    st.integers().map(str),
    st.dates().map(str),
    st.sampled_from(["male", "II", "yes", "-1", "1e400", "\ud800", "١٢", "0x10"]),
)


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(ROW, CELLS)), min_size=1))
def test_any_cells_make_a_row_of_unit_norm_whose_bits_no_other_row_decides(
    encoder, rows
):
    together = encoder.encode(rows)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    alone = np.concatenate([encoder.encode([row]) for row in rows[::-1]])[::-1]
    assert together.tobytes() == alone.tobytes()


def test_a_fingerprint_holds_the_schema_and_rebuilds_the_encoder(encoder):
    named = Fingerprint.parse(encoder.fingerprint.text())
    again = columns.rebuild(named, load_encoder)
    assert again.fingerprint == encoder.fingerprint
    assert again.encode([ROW]).tobytes() == encoder.encode([ROW]).tobytes()


@pytest.mark.parametrize(
    "change", ["[18, 91]", "[18.0, 90.0]", "{ range = [18, 90], missing = [99] }"]
)
def test_another_schema_is_another_encoder(encoder, tmp_path, change):
    other = encoder_of(SCHEMA.replace("[18, 90]", change), tmp_path)
    assert not other.fingerprint.same_function(encoder.fingerprint)


@pytest.mark.parametrize(
    "line",
    [
        "age = [90, 18]",
        "age = [18, 18]",
        "age = [18, inf]",
        "age = [nan, 90.0]",
        "age = [-1.7e308, 1.7e308]",
        "age = [0.0, 5e-324]",
        f"age = [0, {10**400}]",
        "age = [18]",
        "age = [true, false]",
        "age = 3",
        'age = "number"',
        'age = "?"',
        'age = ["one"]',
        'age = ["one", "one"]',
        "age = { range = [1, 2], order = [1, 2] }",
        'age = { values = ["a", "b"], scale = "log" }',
        'age = { values = ["a", "b"], decimal = "," }',
        'age = { range = [1, 2], decimal = ";" }',
        'age = { range = [1, 2], scale = "cubic" }',
        "age = { range = [1, 2], missing = 3 }",
        "age = { range = [1, 2], colour = 3 }",
        "age = [2026-01-01, 2015-01-01]",
        'age = { text = "python:code.py:net@w" }',
        "age = [1, 2",
        "",
    ],
)
def test_a_schema_that_says_nothing_or_too_much_is_refused(tmp_path, line):
    with pytest.raises(InputError, match=r"age|columns|TOML"):
        encoder_of(line, tmp_path)


def test_a_forged_fingerprint_is_refused(encoder):
    fields = json.loads(encoder.fingerprint.text())
    for forged in (
        '[{"kind": "spy"}]',
        '[{"kind": "number", "name": "a", "low": "x", "high": 2}]',
        "[[",
        "3",
    ):
        named = Fingerprint(**fields | {"preprocessing": forged})
        with pytest.raises(InputError, match="schema"):
            columns.rebuild(named, load_encoder)


def test_texts_have_half_of_the_squared_norm(letters, tmp_path):
    encoder = encoder_of('age = [18, 90]\nnote = { text = "letters" }\n', tmp_path)
    assert (
        encoder.fingerprint.row_independent
        == load_encoder("letters").fingerprint.row_independent
    )
    rows = [
        {"age": "30", "note": note}
        for note in ("some words", "", "other words of more length")
    ]
    embedded = encoder.encode(rows)
    of_note = np.array([column == "note" for column, _ in encoder.coordinates])
    np.testing.assert_allclose((embedded[:, of_note] ** 2).sum(axis=1), 0.5, rtol=1e-6)
    plain = load_encoder("letters").encode(["some words"])[0]
    cosine = embedded[0, of_note][:-2] @ plain / np.linalg.norm(plain) / np.sqrt(0.5)
    assert cosine == pytest.approx(1)
    assert encoder.coordinates[np.flatnonzero(embedded[1])[-1]] == ("note", "missing")
    alone = np.concatenate([encoder.encode([row]) for row in rows])
    assert embedded.tobytes() == alone.tobytes()


def written(path, kind):
    """Write three records, the last with nothing in it, as users have them."""
    frame = pd.DataFrame(
        {
            "age": [41.5, 30, None],
            "sex": ["male", "female", None],
            "rating": [3, 5, None],
            "smoker": [True, False, None],
            "joined": [date(2024, 2, 29), date(2015, 1, 1), None],
            "label": ["a", "b", "a"],
        }
    )
    match kind:
        case "csv":
            frame.to_csv(path, index=False)
        case "jsonl":
            rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
            lines = [json.dumps(row, default=str) for row in rows]
            path.write_text("\n".join(lines))
        case "parquet":
            pq.write_table(pa.Table.from_pandas(frame), path)
        case "xlsx":
            frame.to_excel(path, index=False)
    return frame


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "xlsx"])
def test_a_record_has_one_row_whatever_file_it_is_in(tmp_path, kind):
    text = "\n".join(
        line
        for line in SCHEMA.splitlines()
        if line.split(" ")[0] in ("age", "sex", "rating", "smoker", "joined")
    )
    encoder = encoder_of(text, tmp_path)
    path = tmp_path / f"records.{kind}"
    if kind == "xlsx":
        pytest.importorskip("openpyxl")
        pytest.importorskip("python_calamine")
    frame = written(path, kind)
    source = open_source(path, columns=Columns(x=encoder.names))
    (window,) = embed_windows(source, encoder)
    expected = embed_items(encoder, frame, "X").to_array()
    assert np.stack(window.rows).tobytes() == expected.tobytes()
    assert window.labels == ["a", "b", "a"]
    table = pa.Table.from_pandas(frame)
    assert embed_items(encoder, table, "X").to_array().tobytes() == expected.tobytes()


CELLS = [
    2**53 + 1,
    3,
    np.float32(3),  # among objects it stays what it is
    True,
    "x",
    date(2024, 2, 29),
    timedelta(days=1, seconds=1),
    pd.Interval(0, 10),
]


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_of_a_frame_is_read_the_same_whatever_type_others_give_its_column(
    tmp_path, cell
):
    encoder = encoder_of('a = "code"', tmp_path)
    rows = [
        embed_items(encoder, pd.DataFrame({"a": [cell, *others]}), "X").to_array()[0]
        for others in ([], [None], ["other"], [3.5], [1 + 2j], [pd.Interval(0.5, 1)])
    ]
    assert len({row.tobytes() for row in rows}) == 1


def test_a_decimal_is_read_the_same_however_many_digits_others_have(tmp_path):
    encoder = encoder_of('a = "code"', tmp_path)
    rows = [
        embed_items(encoder, pa.table({"a": [Decimal("1.1"), other]}), "X").to_array()
        for other in (Decimal(2), Decimal("1.25"))
    ]
    assert rows[0][0].tobytes() == rows[1][0].tobytes()
    assert rows[0][1].tobytes() != rows[1][1].tobytes()


def test_embeddings_of_rows_are_made_again_sooner_than_kept(tmp_path):
    encoder = encoder_of('a = "code"', tmp_path)
    with kept_in(tmp_path / "kept", "") as kept:
        list(embed_windows(Items([{"a": "x"}], encoder, "X"), encoder, kept=kept))
        assert not kept.holds


@pytest.mark.parametrize("kind", ["arrow", "polars"])
def test_a_far_year_is_of_its_record_alone(tmp_path, kind):
    frame = pytest.importorskip("polars").from_arrow if kind == "polars" else pa.table
    encoder = encoder_of("a = [2000-01-01, 2030-01-01]", tmp_path)
    n = 5000  # more rows than are taken out of a frame at once
    days = [10**12 + 10**8 * day for day in range(n)]
    far = n - 2
    rows = [
        embed_items(encoder, frame(pa.table({"a": some})), "X").to_array()
        for some in (
            pa.array(days, pa.timestamp("ms")),
            pa.array([*days[:far], 10**15, days[-1]], pa.timestamp("ms")),
        )
    ]
    assert np.flatnonzero(np.isnan(rows[1]).any(axis=1)).tolist() == [far]
    others = np.arange(n) != far
    np.testing.assert_array_equal(rows[0][others], rows[1][others])
    # The control: a window's rows are its own.
    assert not np.array_equal(rows[0][0], rows[0][4096])


@pytest.mark.parametrize(
    ("cell", "as_if"),
    [
        pytest.param(10**5000, "1e400", id="more digits than Python writes"),
        pytest.param(-(10**400), "-inf", id="beyond floats"),
        (pd.NA, ""),
        (pd.NaT, ""),
        (np.array([1, 2]), "unknown"),
        (b"41", "41"),
        (True, "unknown"),
        (complex(1, 2), "unknown"),
    ],
)
def test_a_cell_of_any_type_stops_no_other_record(encoder, cell, as_if):
    rows = embed_items(encoder, [ROW | {"age": cell}, ROW], "X").to_array()
    assert rows.tobytes() == encoder.encode([ROW | {"age": as_if}, ROW]).tobytes()


class Raising:
    def __str__(self):
        raise RuntimeError("cell")


def test_a_record_with_a_cell_that_raises_is_skipped(encoder):
    rows = embed_items(encoder, [ROW | {"age": Raising()}, ROW], "X").to_array()
    assert np.isnan(rows[0]).all()
    np.testing.assert_array_equal(rows[1:], encoder.encode([ROW]))


def test_a_column_that_is_not_there_is_named(encoder):
    with pytest.raises(InputError, match="one column 'age'"):
        embed_items(encoder, pd.DataFrame([ROW]).drop(columns="age"), "X")


def test_a_frame_that_is_yet_to_be_computed_is_refused_in_words(encoder):
    frame = pytest.importorskip("polars").LazyFrame([ROW])
    with pytest.raises(InputError, match="sequence of rows"):
        embed_items(encoder, frame, "X")


@pytest.mark.parametrize("cells", ["", "17,yes,a\n99,no,b\n", "x,,\n"])
def test_a_proposal_reads_no_value(tmp_path, cells):
    path = tmp_path / "records.csv"
    path.write_text(f"ageAtVisit,isSmoker,label\n{cells}")
    lines = list(proposed(column_types(path), "label"))
    assert lines[-2:] == ["ageAtVisit = [0, 120]", 'isSmoker = "yes/no"']


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("known", "bool", 'known = "yes/no"'),
        ("from", "date32[day]", "from = [2000-01-01, 2030-12-31]"),
        ("visitCount", "int64", 'visitCount = { range = [0, 1000], scale = "log" }'),
        ("body weight", "double", '"body weight" = [1, 300]'),
        ("ward", "string", 'ward = "?"'),
        ("patientID", "int64", "# patientID is left out: it names records or persons"),
    ],
)
def test_a_proposal_follows_from_name_and_type(name, kind, line):
    assert list(proposed({name: kind}))[-1] == line
