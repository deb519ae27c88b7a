"""What is one person: the table of docs/persons.md, row by row, and columns by their types alone."""

import datetime
import re
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dppl import ApproxDP, GaussianDP, Ledger, MeanPrototypes
from dppl.errors import InputError, UnknownLabelError
from dppl.kernel import persons

PAGE = Path(__file__).parents[3] / "docs" / "persons.md"
# What a list of these ids is, and the number of its persons; 0 where each is refused.
TABLE = [
    ('`1`, `"1"`, `numpy.uint64(1)`, `Decimal("1.0")`', 1),
    ('`"1"`, `"01"`, `"1.0"`, `" 1"`', 4),
    ('`"a"`, `b"a"`', 1),
    ('`"a"`, `"A"`', 2),
    (r'`"\u00e9"`, `"e\u0301"` (é in two normal forms)', 2),
    ('`date(2024, 2, 29)`, `numpy.datetime64("2024-02-29")`, `"2024-02-29"`', 1),
    ('`UUID(int=5)`, `"00000000-0000-0000-0000-000000000005"`', 1),
    (r'`None`, `None`, `float("nan")`, `""`, `" "`, `" \0"` (missing)', 6),
    ('`"nan"`, `"nan"`', 1),
    (r'`"a"`, `"a\0"`, `b"a\0\0"` (NULs at the end do not count)', 1),
    (
        '`1.0`, `True`, `1j`, `Decimal("1.5")`, `datetime(2024, 2, 29)`, `timedelta(1)`, `(1, 2)`',
        0,
    ),
]
SAID = {0: "refused", 1: "one", 2: "two", 4: "four", 6: "six"}
NAMES = {
    "numpy": np,
    "Decimal": Decimal,
    "UUID": UUID,
    "date": datetime.date,
    "datetime": datetime.datetime,
    "timedelta": datetime.timedelta,
}


def number_of_persons(ids):
    found = persons.person_codes(persons.checked_ids(ids, np.empty((len(ids), 1))))
    return len(set(found.tolist()))


def examples(text):
    return [eval(one, NAMES) for one in re.findall("`([^`]+)`", text)]


@pytest.mark.parametrize("row", range(len(TABLE)))
def test_ids_are_as_many_persons_as_the_page_says(row):
    text, n = TABLE[row]
    ids = examples(text)
    if n:
        assert number_of_persons(ids) == n
        # Each by itself: the others of a list change nothing.
        assert len({persons.id_bytes(one) or object() for one in ids}) == n
    for one in ids if not n else ():
        with pytest.raises(InputError, match="compared by value"):
            number_of_persons([one])


def test_the_page_has_this_table():
    rows = [f"| {text} | {SAID[n]} |" for text, n in TABLE]
    assert "\n".join(["| ids | persons |", "|---|---|", *rows, ""]) in PAGE.read_text()


LONG = 2**53
SAME = {
    "int64 of Arrow": lambda: pa.array([LONG, LONG + 1, None]),
    "decimals of Arrow": lambda: pa.array([Decimal(LONG), Decimal(LONG + 1), None]),
    "texts of Arrow": lambda: pa.array([str(LONG), str(LONG + 1), None]),
    "views": lambda: pa.array([str(LONG), str(LONG + 1), None], pa.string_view()),
    "a dictionary": lambda: pa.array([LONG, LONG + 1, None]).dictionary_encode(),
    "runs": lambda: pc.run_end_encode(pa.array([LONG, LONG + 1, None])),
    "JSON": lambda: pa.array([str(LONG), str(LONG + 1), None]).cast(pa.json_()),
    "bytes": lambda: pa.array([b"9007199254740992", b"9007199254740993", None]),
    "Int64 of pandas": lambda: pd.Series([LONG, LONG + 1, None], dtype="Int64"),
    "Arrow in pandas": lambda: pd.Series(
        [LONG, LONG + 1, None], dtype="int64[pyarrow]"
    ),
    "texts of pandas": lambda: pd.Series([str(LONG), str(LONG + 1), None]),
    "categories": lambda: pd.Series([str(LONG), str(LONG + 1), None], dtype="category"),
    "objects of pandas": lambda: pd.Series([LONG, str(LONG + 1), None], dtype=object),
    "a masked array": lambda: np.ma.array([LONG, LONG + 1, 0], mask=[0, 0, 1]),
    "texts of NumPy": lambda: np.array([str(LONG), str(LONG + 1), ""]),
    "NumPy's strings": lambda: np.array(
        [str(LONG), str(LONG + 1), None], np.dtypes.StringDType(na_object=None)
    ),
    "strings with NaN": lambda: np.array(
        [str(LONG), str(LONG + 1), np.nan], np.dtypes.StringDType(na_object=np.nan)
    ),
    "strings with a mark": lambda: np.array(
        [str(LONG), str(LONG + 1), NAMES], np.dtypes.StringDType(na_object=NAMES)
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_columns_of_other_types_hold_the_same_persons(name):
    ids = persons.checked_ids(SAME[name](), np.empty((3, 1)))
    assert [persons.id_bytes(one) for one in ids.tolist()] == [
        b"t9007199254740992",
        b"t9007199254740993",
        None,
    ]
    assert persons.are_missing(ids).tolist() == [False, False, True]


FAR = np.array(["10183-09-21", "-2465-11-19", "275760-09-13", "NaT"], "M8[D]")
ARROW = pa.array([*FAR.astype(int).tolist()[:3], None], pa.int32()).cast(pa.date32())
TORN = ["a\udce9", "b"]
# The same ids in several forms, beside others or not.
FORMS = {
    "far days": [
        lambda: FAR,
        lambda: list(FAR),
        lambda: np.ma.array(FAR, mask=[0, 0, 0, 1]),
        lambda: ARROW,
        lambda: pa.chunked_array([ARROW[:1], ARROW[1:]]),
        lambda: ARROW.cast(pa.date64()),
        lambda: ARROW.dictionary_encode(),
        lambda: pc.run_end_encode(ARROW),
        lambda: pd.Series(pd.array(ARROW, pd.ArrowDtype(pa.date32()))),
    ],
    "half a character": [
        lambda: TORN,
        lambda: np.array(TORN),
        lambda: np.array(TORN, ">U2"),
        lambda: np.array([*TORN, "a longer one"])[:2],
        lambda: [b"a\xe9", b"b"],
    ],
    "no characters": [
        lambda: np.array([0x110000, 0x110001], np.uint32).view("U1"),
        lambda: np.array([0x110000, 0x110001], np.uint32).view("U1").astype(">U1"),
        lambda: np.array([0x110000, 0, 0x110001, 0], np.uint32).view("U2"),
    ],
    "texts of NULs": [
        lambda: ["a", "b", "\0", " \0"],
        lambda: np.array(["a", "b", "\0", " \0"]),
        lambda: np.array([b"a", b"b", b"\0", b" \0"]),
        lambda: np.array(["a", "b", "\0", " \0"], np.dtypes.StringDType()),
    ],
    "bytes of one width": [
        lambda: [b"1", b"1\0a"],
        lambda: np.array([b"1", b"1\0a"]),
        lambda: np.array([b"1", b"1\0a"], "V5"),
        lambda: pa.array([b"1", b"1\0a"]),
        lambda: pa.array([b"1\0\0", b"1\0a"], pa.binary(3)),
    ],
    "a frame of one column": [
        lambda: [2**53, 2**53 + 1, None],
        lambda: pd.DataFrame({"id": pd.array([2**53, 2**53 + 1, None], "Int64")}),
    ],
}


@pytest.mark.parametrize("name", FORMS)
def test_an_id_is_the_same_in_all_forms(name):
    found = []
    for make in FORMS[name]:
        form = make()
        ids = persons.checked_ids(form, np.empty((len(form), 1)))
        found.append([persons.id_bytes(one) for one in ids.tolist()])
    assert found == [found[0]] * len(found)
    named = [one for one in found[0] if one is not None]
    assert len(named) == len(set(named)) > 1  # the control: and no other's


REFUSED = {
    "float64": lambda: np.array([1.0, 2.0]),
    "float32": lambda: np.array([1, 2], np.float32),
    str(np.dtype(np.longdouble)): lambda: np.array([1, 2], np.longdouble),
    "complex128": lambda: np.array([1j, 2]),
    "bool": lambda: np.array([True, False]),
    "datetime64[s]": lambda: np.array([1, 2], "M8[s]"),
    "datetime64[M]": lambda: np.array([1, 2], "M8[M]"),
    "timedelta64[ns]": lambda: np.array([1, 2], "m8[ns]"),
    "records": lambda: np.array([(1, 2), (3, 4)], "i4,i4"),
    "float64 in a masked array": lambda: np.ma.array([1.0, 2.0], mask=[0, 1]),
    "double": lambda: pa.array([1.0, None]),
    "halffloat": lambda: pa.array([1.0, None], pa.float16()),
    "dictionary<values=double": lambda: pa.array([1.0, 2.0]).dictionary_encode(),
    "decimal128(3, 1)": lambda: pa.array([Decimal("10.0"), Decimal("1.5")]),
    "timestamp[us, tz=UTC]": lambda: pa.array([1, 2], pa.timestamp("us", "UTC")),
    "duration[s]": lambda: pa.array([1, 2], pa.duration("s")),
    "time32[s]": lambda: pa.array([1, 2], pa.time32("s")),
    "list<item: int64>": lambda: pa.array([[1], [2]]),
    "struct<a: int64>": lambda: pa.array([{"a": 1}, {"a": 2}]),
    "extension<arrow.bool8>": lambda: pa.array([1, 0], pa.int8()).cast(pa.bool8()),
    "null": lambda: pa.nulls(2),
    "Float64": lambda: pd.Series([1.0, None], dtype="Float64"),
    "boolean": lambda: pd.Series([True, None], dtype="boolean"),
    "float64 in pandas": lambda: pd.Series([1, None]),
    "float64 in categories": lambda: pd.Series([1.5, 2.5], dtype="category"),
    "datetime64[us, UTC]": lambda: pd.Series(
        pd.to_datetime(["2024", "2025"], utc=True)
    ),
    "period[D]": lambda: pd.Series(pd.period_range("2024", periods=2)),
    "double[pyarrow]": lambda: pd.Series([1, None], dtype="double[pyarrow]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_that_holds_no_ids_is_refused_by_its_name(name, tmp_path):
    """While nothing is charged, and whatever the values are: one bit less about them."""
    ids = REFUSED[name]()
    ledger = Ledger(
        tmp_path / f"{len(list(tmp_path.iterdir()))}.db",
        "wards",
        ApproxDP(2, 1e-6),
        unit="person",
    )
    model = MeanPrototypes(GaussianDP(0.1), classes=["a", "b"])
    with pytest.raises(InputError, match=r"^groups must be texts, integers") as caught:
        model.fit(np.eye(2), ["a", "b"], groups=ids, ledger=ledger)
    assert ledger.releases() == []
    shown = re.sub(" in .*", "", name).replace("double[pyarrow]", "double")
    assert f"got {shown}" in str(caught.value)
    with pytest.raises(InputError) as empty:
        persons.checked_ids(ids[:0], np.empty((0, 1)))
    assert str(empty.value) == str(caught.value)


def test_longer_integers_than_a_file_holds_are_ids():
    assert number_of_persons([2**200, str(2**200), 2**200 + 1]) == 2
    assert number_of_persons(np.array([2**63, 2**63 + 1], np.uint64)) == 2
    with pytest.raises(InputError, match="compared by value"):
        number_of_persons([10**5000])
    with pytest.raises(InputError, match="compared by value"):
        number_of_persons([Decimal("1E+999999999")])


def test_labels_and_classes_may_be_strings_of_numpy():
    """As an array of texts, also where a label is missing."""
    X = np.tile(np.eye(4), (6, 1))
    y = np.array(["a", "b", "c", "a"] * 6)
    plain = MeanPrototypes(GaussianDP(0.1), classes=["a", "b", "c"], random_state=0)
    bits = plain.fit(X, y).to_bytes()
    strings = np.dtypes.StringDType()
    model = MeanPrototypes(
        GaussianDP(0.1), classes=np.array(["a", "b", "c"], strings), random_state=0
    )
    assert model.fit(X, y.astype(strings)).to_bytes() == bits
    assert model.predict(X).tolist() == plain.predict(X).tolist()
    assert model.score(X, y.astype(strings)) == plain.score(X, y)
    missing = np.array([*y[:-1], None], np.dtypes.StringDType(na_object=None))
    with pytest.raises(UnknownLabelError):
        model.fit(X, missing)
    model.set_params(unknown_labels="ignore")
    assert (
        model.fit(X, missing).to_bytes()
        == plain.set_params(unknown_labels="ignore").fit(X[:-1], y[:-1]).to_bytes()
    )


@pytest.mark.parametrize("ids", [["u", None], ["u", ""], [1, float("nan")], [1, 1.0]])
def test_a_strict_fit_wants_ids_of_all_records(ids, tmp_path):
    ledger = Ledger(
        tmp_path / f"{len(list(tmp_path.iterdir()))}.db",
        "wards",
        ApproxDP(2, 1e-6),
        unit="person",
    )
    model = MeanPrototypes(GaussianDP(0.1), classes=["a", "b"], unknown_labels="strict")
    refused = r"ids of persons included|compared by value"
    with pytest.raises(InputError, match=refused):
        model.check(np.eye(2), ["a", "b"], groups=ids)
    with pytest.raises(InputError, match=refused):
        model.fit(np.eye(2), ["a", "b"], groups=ids)
    good = ["u", "u"]
    model.check(np.eye(2), ["a", "b"], groups=good)
    model.fit(np.eye(2), ["a", "b"], groups=good, ledger=ledger)
    assert len(ledger.releases()) == 1
