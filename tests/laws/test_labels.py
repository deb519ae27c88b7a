"""Labels outside the classes, and odd ones, leave no trace; what stops at them shows none, nor how many there are."""

from datetime import UTC, datetime, tzinfo

import numpy as np
import pytest

from dppl import GaussianDP, Ledger
from dppl.errors import InputError, UnknownLabelError
from dppl.kernel import reading
from inside import tensors_of
from laws.recipes import BY_NAME, FIRST, SHARED, SHARED_CHARGED, each
from laws.traces import messages_of


def check_unknown_labels_count_for_nothing(kind):
    """Records with unknown labels stand among the others, at their ends and alone."""
    X, y = kind.records()
    more = np.concatenate([X[:7], -X[:5], X[7:], X[:1]])
    unknown = [*y[:7], *"vwxyz", *y[7:], "w"]
    known = kind.fit(X, y, unknown_labels="ignore")
    assert (
        kind.fit(more, unknown, unknown_labels="ignore").to_bytes() == known.to_bytes()
    )
    nothing = kind.fit(X[:0], y[:0], unknown_labels="ignore").to_bytes()
    assert (
        kind.fit(X, ["z"] * len(X), unknown_labels="ignore").to_bytes()
        == nothing
        != known.to_bytes()
    )


MEAN = BY_NAME["MeanPrototypes add-remove"]
# The sample of a sampled one is drawn for all records, whatever their labels are.


@each(SHARED_CHARGED)
def test_unknown_labels_count_for_nothing(kind):
    check_unknown_labels_count_for_nothing(kind)


@each(SHARED)
def test_an_unknown_label_that_counts_is_noticed(kind, monkeypatch):
    whole = reading.class_codes
    monkeypatch.setattr(
        reading, "class_codes", lambda *arguments: np.maximum(whole(*arguments), 0)
    )
    with pytest.raises(AssertionError):
        check_unknown_labels_count_for_nothing(kind)


def test_floats_are_refused_for_large_integers_whether_there_is_a_record_or_not():
    """Or the error would tell an empty data set, or one of records that cannot be used, from others."""
    X = MEAN.records(2)[0]
    for rows, y in (
        (X, np.zeros(2)),
        (X[:0], np.zeros(0)),
        (np.full_like(X, np.nan), np.zeros(2)),
    ):
        with pytest.raises(InputError, match="cannot be distinguished as floats"):
            MEAN.fit(rows, y, classes=[2**60 + 1, 7])


def check_unknown_labels_are_not_shown(kind):
    X, y = kind.records()
    said = set()
    for n_unknown in (1, 3):
        with pytest.raises(UnknownLabelError) as caught:
            kind.fit(X, [*y[:-n_unknown], *["secret"] * n_unknown])
        said.add(tuple(messages_of(caught.value)))
        assert caught.value.__cause__ is None
    assert len(said) == 1
    assert "secret" not in str(said)


@each(SHARED_CHARGED)
def test_an_unknown_label_is_not_shown_and_their_number_is_not_told(kind):
    check_unknown_labels_are_not_shown(kind)


@pytest.mark.parametrize("told", [lambda y: y[-1], len])
def test_a_label_or_a_count_in_the_message_is_noticed(told, monkeypatch):
    whole = reading.class_codes

    def showing(y, *arguments):
        try:
            return whole(y, *arguments)
        except UnknownLabelError as error:
            raise UnknownLabelError(
                f"{error} {told([label for label in y if label == 'secret'])}"
            ) from None

    monkeypatch.setattr(reading, "class_codes", showing)
    with pytest.raises(AssertionError):
        check_unknown_labels_are_not_shown(FIRST[0])


# Labels that are nothing


class Talkative(tzinfo):
    def utcoffset(self, when):
        raise ValueError("private secret text")


class Hostile:
    """A label whose methods give everything away."""

    def __eq__(self, other):
        raise RuntimeError("secret label Jane Doe")

    def __hash__(self):
        raise RuntimeError("secret label Jane Doe")


ODD = [
    "x",
    b"x",
    None,
    float("nan"),
    1.5,
    10**400,
    -(10**30),
    (1, 2),
    [1],
    {},
    object(),
    True,
]
ODD += [
    np.datetime64("2024-01-01"),
    memoryview(bytearray(b"x")),
    "0" * 100_000,
    np.array([1, 2]),
    2.0**200,
]
ODD += [
    Hostile(),
    datetime(2020, 1, 1, tzinfo=Talkative()),
    datetime(2020, 1, 1, tzinfo=UTC),
]
NAMES = [
    ([0, 1], [0, 1, 1, 0]),
    (["a", "b"], ["a", "b", "b", "a"]),
    ([2**60 + 1, 7], [2**60 + 1, 7] * 2),
]


def check_odd_labels(kind, odd):
    """NumPy would find one type for all labels, and then no other would match its class."""
    n = len(odd)
    X = kind.records(4 + n)[0]
    for classes, labels in NAMES:

        def fit(X, y, classes=classes):
            return kind.fit(X, y, classes=classes, unknown_labels="ignore")

        without = fit(X[:4], labels).to_bytes()
        assert without != fit(X[:0], []).to_bytes()
        objects = np.empty(4 + n, object)
        for place, label in enumerate([*labels, *odd]):
            objects[place] = label
        for y in ([*labels, *odd], objects):
            assert fit(X, y).to_bytes() == without
            with pytest.raises(InputError) as caught:
                kind.fit(X, y, classes=classes)
            assert "Jane" not in "".join(messages_of(caught.value))
            assert "secret" not in "".join(messages_of(caught.value))


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_label_changes_no_other_record(odd):
    check_odd_labels(MEAN, [odd])


@pytest.mark.slow
@each(SHARED_CHARGED)
def test_odd_labels_change_no_other_record(kind):
    for odd in (["x"], [None], [Hostile()], ODD):
        check_odd_labels(kind, odd)


def test_labels_of_one_type_are_noticed(monkeypatch):
    monkeypatch.setattr(reading, "_as_objects", lambda y: np.asarray(y))
    with pytest.raises((AssertionError, InputError)):
        check_odd_labels(MEAN, [1.5])


BROKEN = {
    "no characters": np.array([0x7FFFFFFF, 97, 98, 97], "u4").view("U1"),
    "other byte order": np.array([0x7FFFFFFF, 97, 98, 97], ">u4").view(">U1"),
    "surrogates": np.array([0xD800, 97, 98, 97], "u4").view("U1"),
}


@pytest.mark.parametrize("name", BROKEN)
@each(SHARED)
def test_a_text_that_is_none_is_left_out_like_any_unknown_label(kind, name):
    X = kind.records(4)[0]

    def fit(y):
        return kind.fit(X, y, classes=["a", "b"], unknown_labels="ignore").to_bytes()

    assert fit(BROKEN[name]) == fit(["z", "a", "b", "a"])
    with pytest.raises(InputError, match="every label must be one of"):
        kind.fit(X, BROKEN[name], classes=["a", "b"])


# Kinds of labels: the dtype of an array is public, and the kind of an object a value.

NUMBERS = [0, 1]
TEXTS = ["0", "1"]
CODES = np.array([0, 1, 1, 0])
SAME_KIND = [
    (NUMBERS, CODES.astype(np.int8)),
    (NUMBERS, CODES.astype(np.uint64)),
    (NUMBERS, CODES.astype(np.float32)),
    (NUMBERS, [0.0, 1.0, 1, 0]),
    (NUMBERS, ["0", "1", "1", "0"]),  # as files of texts have them
    (TEXTS, CODES.astype(str)),
    (TEXTS, ["0", np.str_("1"), "1", "0"]),
]
OTHER_KIND = [
    (NUMBERS, CODES.astype(bool)),
    (NUMBERS, CODES.astype(str)),
    (NUMBERS, CODES.astype("S1")),
    (TEXTS, CODES),
    (TEXTS, CODES.astype(float)),
    (TEXTS, CODES.astype(bool)),
    (TEXTS, CODES.astype("S1")),
    (TEXTS, CODES.astype("M8[D]")),
    ([False, True], CODES),
]
# Of objects that name no class.
OF_NO_CLASS = [
    (NUMBERS, ["00", "01", "1.0", True, b"1"]),
    (TEXTS, [0, 1.0, np.int64(1), True, b"1", "01"]),
]


@pytest.mark.parametrize("case", SAME_KIND)
@each(SHARED)
def test_labels_of_the_kind_of_the_classes_name_them(kind, case):
    classes, y = case
    X = kind.records(4)[0]
    expected = kind.fit(X, CODES, classes=NUMBERS)
    assert tensors_of(kind.fit(X, y, classes=classes)) == tensors_of(expected)


@pytest.mark.parametrize("case", OTHER_KIND)
@each(SHARED)
def test_an_array_of_another_kind_is_refused_whatever_it_holds(kind, case):
    """Before anything is charged, with the same words for all values, and also where labels are ignored."""
    classes, y = case
    X = kind.records(4)[0]
    said = set()
    for rows, labels in ((X, y), (X, y[::-1].copy()), (X[:0], y[:0])):
        for unknown_labels in ("error", "ignore"):
            with pytest.raises(InputError, match="y must hold") as caught:
                kind.fit(rows, labels, classes=classes, unknown_labels=unknown_labels)
            assert not isinstance(caught.value, UnknownLabelError)
            said.add(tuple(messages_of(caught.value)))
    assert len(said) == 1
    assert "The ledger keeps the charge" not in str(said)


@pytest.mark.parametrize("case", OF_NO_CLASS)
@each(SHARED)
def test_an_object_of_another_kind_is_an_unknown_label(kind, case):
    classes, odd = case
    X = kind.records(4 + len(odd))[0]
    y = [*CODES.astype(str), *odd] if classes is TEXTS else [0, 1, 1, 0, *odd]
    with pytest.raises(UnknownLabelError, match="at least one is not"):
        kind.fit(X, y, classes=classes)
    skipped = ["nobody"] * len(odd)
    other = kind.fit(X, [*y[:4], *skipped], classes=classes, unknown_labels="ignore")
    fitted = kind.fit(X, y, classes=classes, unknown_labels="ignore")
    assert fitted.to_bytes() == other.to_bytes()


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([0, "1", 1, 0], "got both texts and numbers. Cast it to integers"),
        (np.array([0, np.str_("1"), 1, 0], object), "got both texts and numbers"),
        ([[1, 0], [0, 1], [0, 1], [1, 0]], r"shape \(n_records,\); got 2 dimensions"),
        ([(1,), [0, 1], [], (0,)], "Several labels a record"),
    ],
)
@each(SHARED)
def test_objects_of_no_one_form_stop_a_fit_that_stops_at_labels(kind, y, said):
    """A fit that ignores unknown labels reads each by itself."""
    X = kind.records(4)[0]
    with pytest.raises(UnknownLabelError, match=said) as caught:
        kind.fit(X, y, classes=NUMBERS)
    with pytest.raises(UnknownLabelError) as other:  # the same of other values
        kind.fit(X, y[::-1], classes=NUMBERS)
    assert list(messages_of(caught.value)) == list(messages_of(other.value))
    kind.fit(X, y, classes=NUMBERS, unknown_labels="ignore")
    kind.fit(X, [0, 1, 1, 0], classes=NUMBERS)  # the controls
    kind.fit(X, ["0", "1", "1", "0"], classes=NUMBERS)


def test_rows_of_no_or_another_width_are_refused_in_words():
    X = MEAN.records(4)[0]
    model = MEAN.fit(X, [0, 1, 1, 0], classes=NUMBERS)
    assert len(model.predict(X[:0])) == 0  # the control
    for rows, said in (
        ([[]], r"at least one feature; got shape \(n_records, 0\)"),
        (X[:, :0], r"got shape \(n_records, 0\)"),
        (X[:0, :2], "X has 2 features"),
        (X[:, :2], "X has 2 features"),
    ):
        with pytest.raises(InputError, match=said):
            model.predict(rows)


def test_a_score_takes_labels_of_the_kind_of_the_classes():
    X = MEAN.records(4)[0]
    model = MEAN.fit(X, [0, 1, 1, 0], classes=TEXTS, unknown_labels="ignore")
    for labels in (CODES, CODES.astype("S1")):
        with pytest.raises(InputError, match="y must hold texts"):
            model.score(X, labels)


def test_a_ledger_keeps_no_charge_of_labels_of_another_kind(tmp_path):
    ledger = Ledger(tmp_path / "ledger.json", "wards", GaussianDP(10))
    X = MEAN.records(4)[0]
    for y, error, n_charged in (
        (CODES, InputError, 0),
        ([0, 1, 1, 0], UnknownLabelError, 1),  # values are read after the charge
    ):
        with pytest.raises(error):
            MEAN.make(classes=TEXTS, random_state=None).fit(X, y, ledger=ledger)
        assert len(ledger.releases()) == n_charged
