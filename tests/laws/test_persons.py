"""With person ids, a whole person more or fewer moves releases by no more than the stated sensitivity."""

import contextlib
import datetime
import enum
import uuid
import warnings
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.model_selection import GroupKFold, cross_val_score

from dppl import ApproxDP, GaussianDP, Ledger, PrivateSearch, PureDP, SoftmaxPrototypes
from dppl.errors import InputError, ParameterError, WeakBudgetWarning
from dppl.kernel import measure, persons
from dppl.kernel.lattice import Lattice, joint, usable_rows
from dppl.kernel.lattice.residuals import WEIGHT_STEPS, SoftmaxGradient
from dppl.kernel.persons import WholePersons
from dppl.kernel.privacy.sensitivity import STEPS
from dppl.kernel.privacy.terms import Neighbours, PublicInput, Term, Unit
from dppl.kernel.queries import label_gradients, search
from dppl.kernel.queries.label_gradients import LabelCounts
from dppl.kernel.queries.softmax_gradients import Shortfalls
from dppl.kernel.queries.sums import ClassCounts
from dppl.methods import LinearProbe
from dppl.methods.parameters import PersonsParameter, parameters
from dppl.methods.registry import Entry
from dppl.statement import words
from inside import takes, tensors_of
from laws.recipes import (
    BY_NAME,
    CHARGED,
    CLASSES,
    DIM,
    RECIPES,
    SHARED,
    cases,
    each,
    rows,
)
from laws.replay import compare
from laws.traces import messages_of, traces

pytestmark = pytest.mark.slow
OF_PERSONS = [kind for kind in CHARGED if kind.adjacency == "add-remove"]
# Persons enter these with all of their records, and the others as one row of a class.
WHOLE = [kind for kind in OF_PERSONS if kind.cls.whole_persons]
AS_ROWS = [kind for kind in OF_PERSONS if kind not in WHOLE]
SHARED_PERSONS = [kind for kind in SHARED if kind in OF_PERSONS]
REFUSED = [kind for kind in CHARGED if kind not in OF_PERSONS]
MEAN = BY_NAME["MeanPrototypes add-remove"]


SEVERAL = [
    kind for kind in OF_PERSONS if takes(kind.entry.load(), "max_classes_per_person")
]
SEVERAL_ROWS = [kind for kind in SEVERAL if kind not in WHOLE]


@st.composite
def whole_persons(draw, dim):
    """Records of some persons, and all records of one more: up to 50, of any classes, among the others' anywhere."""
    X, y, _, _ = draw(cases(dim))
    others = draw(
        st.lists(st.sampled_from(["a", "b", None, 7]), min_size=len(y), max_size=len(y))
    )
    n = draw(st.integers(1, 50))
    few = np.array(draw(st.lists(rows(dim), min_size=1, max_size=3)))
    labels = draw(
        st.lists(st.sampled_from([*CLASSES, "elsewhere"]), min_size=1, max_size=4)
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    own = (
        few[rng.integers(len(few), size=n)],
        np.array(labels, object)[rng.integers(len(labels), size=n)].tolist(),
    )
    return (X, y, others), own, rng.permutation(len(y) + n)


def neighbours_of(case):
    """Return the data with and without the person, as `compare` takes them."""
    (X, y, others), (own, labels), order = case
    ids = [*others, *["patient"] * len(labels)]
    more = (
        np.concatenate([X, own])[order],
        [[*y, *labels][i] for i in order],
        {"groups": [ids[i] for i in order]},
    )
    return more, (X, y, {"groups": others})


def alike(dim, n=50):
    """One person of many equal records of a class, or nobody."""
    return (
        (np.zeros((0, dim)), [], []),
        (np.tile(np.eye(dim)[:1], (n, 1)), CLASSES[:1] * n),
        np.arange(n),
    )


def opposite(dim, n=50):
    """One person of many records in two classes, or nobody."""
    own = (
        np.tile(np.eye(dim)[:1], (n, 1)) * [[1 - 2 * (i % 2)] for i in range(n)],
        [CLASSES[i % 2] for i in range(n)],
    )
    return (np.zeros((0, dim)), [], []), own, np.arange(n)


@each(OF_PERSONS)
@given(data=st.data())
@settings(max_examples=5)
def test_with_the_same_noise_a_person_moves_releases_by_the_stated_sensitivity(
    kind, data
):
    budget = data.draw(st.sampled_from([None, GaussianDP(1e3)]))
    compare(
        kind,
        *neighbours_of(data.draw(whole_persons(kind.dim))),
        budget,
        data.draw(st.integers(0, 2**32)),
    )


@each(SEVERAL)
@given(data=st.data())
@settings(max_examples=6)
def test_a_person_of_several_classes_moves_releases_by_the_stated_sensitivity(
    kind, data
):
    n_rows = data.draw(st.integers(2, 4))
    more, fewer = neighbours_of(data.draw(whole_persons(kind.dim)))
    options = {"max_classes_per_person": n_rows}
    # Rows of other classes enter sums of their own.
    growth = 1 if kind in WHOLE else min(n_rows, len(CLASSES))
    budget = data.draw(st.sampled_from([None, GaussianDP(1e3)]))
    compare(
        kind, more, fewer, budget, data.draw(st.integers(0, 2**32)), growth, **options
    )


@each(SHARED_PERSONS)
@given(data=st.data())
@settings(max_examples=10)
def test_a_person_leaves_no_other_trace(kind, data):
    def traces_of(X, y, given):
        return traces(lambda: kind.fit(X, y, given=given, unknown_labels="ignore"))

    more, fewer = neighbours_of(data.draw(whole_persons(kind.dim)))
    assert traces_of(*more) == traces_of(*fewer)


@each(SHARED_PERSONS)
def test_the_statement_is_for_persons_and_costs_the_same(kind):
    X, y = kind.records()
    alone = kind.fit(X, y).guarantee_
    guarantee = kind.fit(X, y, given={"groups": ["p", "q"] * 6}).guarantee_
    assert (guarantee.releases, guarantee.budget) == (alone.releases, alone.budget)
    counts = "number of records" in str(alone)
    assert ("number of persons" in str(guarantee)) == counts
    assert "number of records by" not in str(guarantee)
    assert guarantee.unit == Unit.PERSON
    assert "one person, with all of their records, is added or removed" in str(
        guarantee
    )
    assert "several records of one person" not in str(guarantee)
    assert "missing ids, each of which counts as a person of its own" in str(guarantee)
    assert (
        "other releases from records of the same persons, here or in other data sets"
        in str(guarantee)
    )
    assert "other releases from the same records" not in str(guarantee)
    assert "further releases from records of the same persons add up" in str(
        words.in_short(guarantee)
    )
    assert f"whether {words.text(Unit.PERSON)} was in" in guarantee.summary()


@each([kind for kind in SHARED_PERSONS if hasattr(kind.cls, "partial_fit")])
def test_a_stream_does_not_go_on_from_persons_with_records(kind):
    X, y = kind.records()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind.cls, "_opened", lambda *others: contextlib.nullcontext())
        with pytest.raises(ParameterError, match=r"other (neighbours|unit)"):
            kind.fit(X, y, given={"groups": ["p", "q"] * 6}).partial_fit(X, y)


@each(REFUSED)
def test_other_relations_are_refused_before_a_record_is_read(kind):
    X, y = kind.records()
    with pytest.raises(ParameterError, match="groups"):
        kind.fit(X, y, given={"groups": [object()] * len(y)})


@each(
    [
        kind
        for kind in OF_PERSONS
        if kind.variant == ""
        and kind.entry.name in ("MeanPrototypes", "LinearProbe", "SoftmaxPrototypes")
    ]
)
def test_persons_of_one_record_are_records(kind):
    """The lattice of these is that on which persons are added, so that the bits are the same."""
    X, y = kind.records()
    model = kind.fit(X, y, given={"groups": range(len(y))})
    alone = kind.fit(X, y)
    assert tensors_of(model) == tensors_of(alone)


@each(SHARED_PERSONS)
def test_persons_are_charged_to_their_own_accounts(kind, tmp_path):
    X, y = kind.records()
    ids = {"groups": ["p", "q"] * 6}
    of_persons = Ledger(
        tmp_path / "ledger.db", "persons", GaussianDP(9.0), unit="person"
    )
    of_records = Ledger(tmp_path / "ledger.db", "records", GaussianDP(9.0))
    for account, wrong, right in ((of_persons, {}, ids), (of_records, ids, {})):
        with pytest.raises(ParameterError, match="accounted by the"):
            kind.fit(X, y, given=wrong | {"ledger": account})
        assert account.releases() == []
        kind.fit(X, y, given=right | {"ledger": account})
        assert len(account.releases()) == 1


def test_an_account_that_no_release_fits_is_not_opened(tmp_path):
    with pytest.raises(ParameterError, match="needs the adjacency add-remove"):
        Ledger(
            tmp_path / "ledger.db",
            "wards",
            GaussianDP(9.0),
            adjacency="replace-one",
            unit="person",
        )


# What becomes of the records of a person


@given(data=st.data())
@settings(max_examples=100)
def test_a_person_is_reduced_by_their_own_records_in_any_order(data):
    (X, y, others), (own, labels), order = data.draw(whole_persons(DIM))
    codes_of = {name: code for code, name in enumerate(CLASSES)}
    codes = np.array([codes_of.get(label, -1) for label in [*y, *labels]], np.intp)
    ids = [*others, *["patient"] * len(labels)]
    most = data.draw(st.integers(1, 3))

    def reduced(which):
        everyone = np.concatenate([X, own])[which]
        numbers = persons.person_codes(
            persons.checked_ids([ids[i] for i in which], everyone)
        )
        usable = np.where(usable_rows(everyone), codes[which], -1)
        found, classes = persons.rows_of_persons(everyone, usable, numbers, 3, most)
        return sorted(
            (code, row.tobytes())
            for code, row in zip(classes.tolist(), found, strict=True)
        )

    together = reduced(order)
    alone = [
        reduced(np.flatnonzero([ids[i] == one for i in range(len(ids))]))
        for one in {*ids} - {None}
    ]
    alone += [reduced(np.array([i])) for i, one in enumerate(ids) if one is None]
    assert together == sorted(row for person in alone for row in person)
    # No sum is longer than a lattice row, in integers.
    norms = [
        int((np.frombuffer(row, np.int8).astype(np.int64) ** 2).sum())
        for _, row in together
    ]
    assert all(norm <= Lattice(DIM).squared_norm for norm in norms)


def reduce(X, y, ids, n_classes=3):
    numbers = persons.person_codes(persons.checked_ids(list(ids), np.asarray(X)))
    codes = np.where(
        usable_rows(np.asarray(X, float)), y, -1
    )  # as `codes_of_records` has them
    found, codes = persons.rows_of_persons(
        np.asarray(X, float), codes, numbers, n_classes
    )
    return found.tolist(), codes.tolist()


def test_a_person_counts_in_the_class_of_most_rows_that_can_be_used_and_the_first_of_several():
    one = [1.0, 0.0, 0.0, 0.0]
    two = [0.0, 1.0, 0.0, 0.0]
    bad = [np.nan] * 4
    mapped = Lattice(4).transform([one, two]).tolist()
    assert reduce([one, two, two], [0, 2, 2], "ppp") == ([mapped[1]], [2])
    assert reduce([two, one], [2, 1], "pp") == ([mapped[0]], [1])
    assert reduce([one, bad, bad], [2, 1, 1], "ppp") == ([mapped[0]], [2])
    assert reduce([one, two, two], [2, -1, -1], "ppp") == ([mapped[0]], [2])
    assert reduce([bad, two], [0, -1], "pp") == ([], [])
    assert reduce([one, two], [0, 1], "pq") == (mapped, [0, 1])


def test_a_sum_keeps_its_direction_and_is_shrunk_only_where_it_is_too_long():
    one, two = np.eye(16)[:2]
    lattice = Lattice(16)
    assert reduce([one + two] * 40, [0] * 40, "p" * 40) == (
        lattice.transform([one + two]).tolist(),
        [0],
    )
    (row,), _ = reduce([one, two], [0, 0], "pp")
    assert row[0] == row[1] > 80
    assert reduce([one, -one], [0, 0], "pp") == ([[0] * 16], [0])
    rng = np.random.default_rng(0)
    many = (
        rng.normal(size=(20_000, 16)) + 3 * one
    )  # more than a block, beside a person of one record
    total = lattice.transform(many).sum(axis=0, dtype=np.int64)
    found, _ = reduce([two, *many, two], [0] * 20_002, ["q", *["p"] * 20_000, "r"])
    assert found == [
        lattice.transform([two])[0].tolist(),
        lattice.transform(total[None])[0].tolist(),
        found[0],
    ]


class Named:
    """An id that shows itself wherever it can, and equals nothing by value."""

    def __repr__(self):
        return "Jane Doe"


class Unknown:
    """What pandas has for a missing value: no comparison with it is true or false."""

    def __ne__(self, other):
        return self

    def __hash__(self):
        return 0

    def __bool__(self):
        raise TypeError


class Shouting(Named):
    def __eq__(self, other):
        raise ValueError("Jane Doe")

    def __hash__(self):
        raise ValueError("Jane Doe")


def test_ids_of_all_kinds_are_matched_one_by_one():
    def numbers(ids):
        return persons.person_codes(
            persons.checked_ids(ids, np.zeros((len(ids), 1)))
        ).tolist()

    missing = [
        None,
        np.nan,
        float("nan"),
        "",
        " ",
        b"",
        Unknown(),
        np.datetime64("NaT", "s"),
        np.float32("nan"),
    ]
    assert len(set(numbers(missing * 2))) == 2 * len(missing)
    assert numbers([1, "1", np.int8(1), Decimal("1.0")]) == [0] * 4
    assert numbers(["a", "A", "a ", 1]) == [0, 1, 2, 3]
    same = uuid.UUID(int=5)
    assert numbers([same, uuid.UUID(int=5), b"x", b"x"]) == [0, 0, 1, 1]
    days = [datetime.date(2020, 1, day) for day in (1, 2, 1)]
    for ids in (days, np.array(days, "M8[D]"), pa.array(days)):
        assert numbers(ids) == [0, 1, 0]
    for kind in (pa.array, np.array, tuple):
        assert numbers(kind(["u", "v", "u"])) == [0, 1, 0]
    assert numbers([2**60, 2**60 + 1, None]) == [0, 1, 2]
    assert numbers(np.array([2**63, 2**63 + 1, 2**63], np.uint64)) == [0, 1, 0]
    assert numbers(pa.chunked_array([["u"], ["v", None, None]])) == [0, 1, 2, 3]
    assert numbers(np.ma.array([1, 1, 2, 2], mask=[0, 0, 1, 1])) == [0, 0, 1, 2]
    assert numbers(np.array(["NaT", "NaT"], "M8[D]")) == [0, 1]


class Text(str):
    """A text of a type of its own."""


class Ward(enum.IntEnum):
    NORTH = 1
    SOUTH = 2


class Frame:
    """A column as frames have it: NumPy makes floats of its integers where one is missing."""

    dtype = "Int64"

    def __init__(self, *items):
        self.items = items

    def astype(self, kind):
        assert kind is object
        return self

    def to_list(self):
        return list(self.items)

    def __len__(self):
        return len(self.items)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.items, float)


LONG = [2**60, 2**60 + 1, None]
# Two persons each, and perhaps somebody without an id.
APART = {
    "NumPy's bytes": lambda: list(np.array([b"u", b"v"])),
    "an array of bytes": lambda: np.array([b"u", b"v"]),
    "texts by type": lambda: [Text("u"), Text("v")],
    "an enumeration": lambda: list(Ward),
    "days": lambda: list(np.array(["2020-01-01", "2020-01-02"], "M8[D]")),
    "bytes of NumPy": lambda: list(np.array([b"u", b"v"], "V1")),
    "integers of Arrow": lambda: pa.array(LONG),
    "chunks of Arrow": lambda: pa.chunked_array([LONG[:1], LONG[1:]]),
    "categories of Arrow": lambda: pa.array(LONG).dictionary_encode(),
    "items of Arrow": lambda: [*pa.array([1, 2, None]), pa.scalar(None)],
    "a column of a frame": lambda: Frame(*LONG),
    "masked items": lambda: [1, 2, np.ma.masked, np.ma.masked],
    "torn texts": lambda: np.array(["u\udcff", "u\udcfe"]),
    "no texts": lambda: np.array([0x110000, 0x110001], np.uint32).view("U1"),
    "no texts, masked": lambda: np.ma.array(
        np.array([0x110000, 0x110001], np.uint32).view("U1"), mask=[0, 0]
    ),
}


@pytest.mark.parametrize("name", APART)
def test_persons_of_other_ids_stay_apart(name):
    """Were two persons one, a third whose id is missing or alike would change the row of both."""
    ids = APART[name]()
    found = persons.person_codes(persons.checked_ids(ids, np.zeros((len(ids), 1))))
    assert found.tolist() == list(range(len(found)))


def test_equal_ids_of_other_types_are_one_person():
    same = [
        [Text("u"), "u", np.str_("u")],
        [Ward.NORTH, 1, "1", pa.scalar(1)],
        [b"u", np.bytes_(b"u")],
    ]
    for ids in same:
        assert set(
            persons.person_codes(
                persons.checked_ids(ids, np.zeros((len(ids), 1)))
            ).tolist()
        ) == {0}


# What looks missing and is an id: all records that have it are those of one person, in
# whatever form they come.
ONLY_LOOKING_MISSING = {
    "a zero-width space": lambda: np.array(["\u200b", "\u200b"]),
    "a byte order mark": lambda: ["\ufeff", "\ufeff"],
    "the text of NaN": lambda: np.array(["nan", "nan"]),
}


@pytest.mark.parametrize("name", ONLY_LOOKING_MISSING)
def test_ids_that_only_look_missing_are_ids(name):
    ids = ONLY_LOOKING_MISSING[name]()
    ids = persons.checked_ids(ids, np.zeros((len(ids), 1)))
    assert persons.person_codes(ids).tolist() == [0] * len(ids)
    assert not persons.are_missing(ids).any()


WRONG_IDS = {
    "objects without a value in tuples": lambda n: [(1, Named()) for _ in range(n)],
    "objects without a value": lambda n: [Named() for _ in range(n)],
    "pairs": lambda n: [("Jane", "Doe")] * n,
    "floats": lambda n: [1.0] * n,
    "an array of floats": lambda n: np.ones(n),
    "objects that raise": lambda n: [Shouting() for _ in range(n)],
    "lists": lambda n: [["Jane Doe"] for _ in range(n)],
    "too few": lambda n: ["Jane Doe"] * (n - 1),
    "too many": lambda n: ["Jane Doe"] * (n + 1),
    "two columns": lambda n: np.full((n, 2), "Jane Doe"),
    "one": lambda n: "Jane Doe",
    "a column that raises": lambda n: pa.Array.from_buffers(
        pa.string(), 2, pa.array([b"Jane \xff", b"Doe"]).buffers()
    ),
}


def check_shows_no_id(name):
    X, y = MEAN.records()
    with pytest.raises(InputError) as caught:
        MEAN.fit(X, y, given={"groups": WRONG_IDS[name](len(y))})
    assert "Jane" not in "".join(messages_of(caught.value))


@pytest.mark.parametrize("name", WRONG_IDS)
def test_errors_show_no_id(name):
    check_shows_no_id(name)


def test_an_id_in_a_message_is_noticed(monkeypatch):
    def showing(ids):
        raise InputError(f"groups must be texts; got {ids[0]}")

    monkeypatch.setattr(persons, "person_codes", showing)
    with pytest.raises(AssertionError):
        check_shows_no_id("objects without a value")


@each(SHARED_PERSONS)
def test_no_id_is_in_a_model_or_its_ledger(kind, tmp_path):
    X, y = kind.records()
    account = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(9.0), unit="person")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", WeakBudgetWarning)
        model = kind.fit(
            X, y, given={"groups": ["Jane Doe", "John Roe"] * 6, "ledger": account}
        )
    for content in (
        model.to_bytes(),
        (tmp_path / "ledger.db").read_bytes(),
        repr(vars(model)).encode(),
    ):
        assert not any(name in content for name in (b"Jane", b"Roe"))


# Planted faults: whatever lets a person count more than once, or by the data of others


def cap_after_the_sum(patch):
    """Take the records as they are: a cap on what comes out does not bound what a person put in."""
    patch.setattr(
        persons,
        "rows_of_persons",
        lambda rows, codes, *others: (np.asarray(rows), codes),
    )


def weigh_every_record(patch):
    """Let each record of a person count as one."""
    patch.setattr(joint.Persons, "clipped", lambda self, steps, *others: steps)


def weigh_as_if_orthogonal(patch):
    """Take what the records of a person add for orthogonal: squares of norms add up then."""
    whole = joint.squares_of_persons
    patch.setattr(
        joint,
        "squares_of_persons",
        lambda *given: ((who, own[[1, 1]]) for who, own in whole(*given)),
    )


def mean_of_all_records(patch):
    """Let each record of a person count as one in the weighted sum of rows."""
    whole = WholePersons.shares

    def each_alone(self, *asked):
        return whole(replace(self, numbers=np.arange(len(self.codes))), *asked)

    patch.setattr(WholePersons, "shares", each_alone)


def sizes_by_records(patch):
    """Let each record of a person count as one in the size of its class."""

    def masses(self, blocks, codes, persons=None):
        return STEPS * np.bincount(codes[codes >= 0], minlength=self.n_classes)

    def of_labels(self, blocks, codes, label_sets, persons=None):
        return STEPS * label_sets.sum(axis=0)

    patch.setattr(ClassCounts, "exact", masses)
    patch.setattr(LabelCounts, "exact", of_labels)


def shortfalls_of_all_records(patch):
    """Let each record of a person count as one where predictions are added up."""

    def of_records(self, blocks, codes, weights, offsets, steps, persons=None):
        return SoftmaxGradient(self.lattice).shortfalls(
            blocks, codes, weights, steps[codes].__getitem__
        )

    patch.setattr(Shortfalls, "exact", of_records)
    kernel = label_gradients.label_shortfalls

    def whole(*given):
        return kernel(*given[:-1], lambda part: given[-1](part) * 0 + WEIGHT_STEPS)

    patch.setattr(label_gradients, "label_shortfalls", whole)


def count_records(patch):
    """Count the records, not the persons."""
    patch.setattr(
        WholePersons, "number", lambda self: int(np.count_nonzero(self.codes >= 0))
    )


def hits_of_records(patch):
    """Count the records that examples classify rightly, not the persons."""
    patch.setattr(
        WholePersons, "right", lambda self, right: int(np.count_nonzero(right))
    )


def shrink_nothing(patch):
    """Let sums into the fit as integers; those of one person are as long as they are many."""

    def transform(self, X):
        whole = np.asarray(X)
        return (
            whole.clip(-127, 127).astype(np.int8)
            if whole.dtype.kind == "i"
            else TRANSFORM(self, whole)
        )

    patch.setattr(Lattice, "transform", transform)


def keep_every_class(patch):
    patch.setattr(
        persons,
        "_most_frequent",
        lambda numbers, codes, *others: np.ones(len(codes), bool),
    )


def choose_the_class_by_everyone(patch):
    """Keep the class that most records of all persons have."""

    def chosen(numbers, codes, counts, _):
        sizes = np.bincount(codes, counts, minlength=3)
        ranked = np.lexsort((codes, -sizes[codes], numbers))
        kept = np.zeros(len(numbers), bool)
        kept[ranked[np.flatnonzero(np.diff(numbers, prepend=-1))]] = True
        return kept

    patch.setattr(persons, "_most_frequent", chosen)


def shrink_by_everyone(patch):
    """Scale all sums by the longest of them."""

    def shrunk(lattice, sums):
        return (sums * 63 // max(1, int(np.abs(sums).max(initial=0)))).astype(np.int8)

    patch.setattr(persons, "_shrunk", shrunk)


TRANSFORM = Lattice.transform
X1, X2 = np.eye(DIM)[:2]
# Others whose class, or row, depends on whether the person is there.
TIED = (np.array([X1, -X1]), ["a", "b"], ["u", "u"])
PAIR = (np.array([X1, X1]), ["a", "a"], ["u", "u"])
NINE = np.tile(X2, (9, 1)), ["b"] * 9
# A second row of a person changes votes of one teacher, or of few neighbours, no further.
VOTES = ["PrivateNeighbours", "TeacherEnsemble"]
ADDING = [kind for kind in AS_ROWS if kind.entry.name not in VOTES]
FAULTS = [
    *((cap_after_the_sum, kind, opposite(kind.dim)) for kind in ADDING),
    *((keep_every_class, kind, opposite(kind.dim)) for kind in ADDING),
    *(
        (fault, kind, alike(kind.dim))
        for fault in (
            weigh_every_record,
            weigh_as_if_orthogonal,
            mean_of_all_records,
            sizes_by_records,
            shortfalls_of_all_records,
            count_records,
        )
        for kind in WHOLE
    ),
    (
        hits_of_records,
        BY_NAME["SoftmaxPrototypes from examples add-remove"],
        alike(DIM),
    ),
    (choose_the_class_by_everyone, MEAN, (TIED, NINE, np.arange(11))),
    (shrink_by_everyone, MEAN, (PAIR, NINE, np.arange(11))),
]


@pytest.mark.parametrize(("fault", "kind", "case"), FAULTS)
def test_the_replay_notices(fault, kind, case, monkeypatch):
    compare(kind, *neighbours_of(case))
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        compare(kind, *neighbours_of(case))


def plan_for_one_class(patch):
    """Plan for persons of one class, whatever number is asked for."""
    patch.setattr(measure, "budget_of_one", lambda budget, *others, **more: budget)


def in_three_classes(dim):
    """One person with a record in each class, or nobody."""
    return (np.zeros((0, dim)), [], []), (np.eye(dim)[:3], CLASSES), np.arange(3)


TWO_CLASS_FAULTS = [
    *((plan_for_one_class, kind, opposite(kind.dim)) for kind in SEVERAL_ROWS),
    *(
        (keep_every_class, kind, in_three_classes(kind.dim))
        for kind in (MEAN, BY_NAME["PublicPrototypes add-remove"])
    ),
]


@pytest.mark.parametrize(("fault", "kind", "case"), TWO_CLASS_FAULTS)
def test_the_replay_notices_with_two_classes_a_person(fault, kind, case, monkeypatch):
    def replayed():
        more, fewer = neighbours_of(case)
        compare(kind, more, fewer, growth=2, max_classes_per_person=2)

    replayed()
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        replayed()


@each(SEVERAL_ROWS)
def test_the_statement_says_in_how_many_classes_a_person_counts(kind):
    X, y = kind.records()
    ids = {"groups": ["p", "q"] * 6}
    one, two = (
        kind.fit(X, y, given=ids, max_classes_per_person=k).guarantee_ for k in (1, 2)
    )
    assert two.budget == one.budget
    assert two.stays_within_budget()
    assert "a person counts as at most 2 records, each of another class" in str(two)
    assert Term(PublicInput.CLASSES_OF_A_PERSON, max_classes=2) in two.public_inputs
    for first, second in zip(one.releases, two.releases, strict=True):
        if "noise_std" in first.parameters:
            grown = second.parameters["noise_std"] / first.parameters["noise_std"]
            assert grown == pytest.approx(2**0.5, rel=1e-9)
        else:
            names = {"epsilon_per_selection", "published_epsilon"}
            (name,) = names & first.parameters.keys()
            assert 2 * second.parameters[name] <= first.parameters[name]


@each(
    [kind for kind in WHOLE if not kind.cls.multilabel]
)  # of which each is one class to persons
def test_whole_persons_count_in_any_number_of_classes_at_the_cost_of_one(kind):
    X, y = kind.records()
    ids = {"groups": ["p", "q"] * 6}
    some, every = (
        kind.fit(X, y, given=ids, max_classes_per_person=k).guarantee_
        for k in (2, None)
    )
    assert some.releases == every.releases
    assert "a person counts as much as one record, whatever their number" in str(every)
    assert Term(PublicInput.CLASSES_OF_A_PERSON, max_classes=2) in some.public_inputs
    assert Term(PublicInput.ALL_CLASSES_OF_A_PERSON) in every.public_inputs


@pytest.mark.parametrize("budget", [PureDP(1.0), ApproxDP(1.0, 1e-6)])
def test_selections_for_several_classes_share_a_pure_budget(budget):
    kind = BY_NAME["PublicPrototypes add-remove"]
    X, y = kind.records()
    guarantee = kind.fit(
        X, y, budget=budget, given={"groups": ["p", "q"] * 6}, max_classes_per_person=3
    ).guarantee_
    (release,) = guarantee.releases
    assert release.parameters["epsilon_per_selection"] == pytest.approx(
        1 / 3, rel=1e-15
    )
    assert guarantee.stays_within_budget()
    assert 1 - 1e-15 <= release.cost["epsilon"] <= 1


def test_more_classes_than_there_are_cost_no_more():
    X, y = MEAN.records()
    ids = {"groups": ["p", "q"] * 6}
    three, many = (
        MEAN.fit(X, y, given=ids, max_classes_per_person=k).guarantee_ for k in (3, 50)
    )
    assert three.releases == many.releases


@parameters
class ManyClasses(PersonsParameter, LinearProbe):
    """A method of one's own, of whose sums no entry belongs to one class."""


@pytest.mark.parametrize("variant", ["", "sampled"])
def test_sums_in_which_classes_meet_take_one_class_a_person(variant):
    kind = replace(
        BY_NAME["LinearProbe add-remove"], entry=Entry("ManyClasses", __name__)
    )
    kind = replace(kind, recipe=RECIPES["LinearProbe"][variant])
    X, y = kind.records()
    with pytest.raises(
        ParameterError,
        match="max_classes_per_person must be 1, since not every sum is of one class",
    ):
        kind.fit(X, y, given={"groups": ["p", "q"] * 6}, max_classes_per_person=2)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "2"])
def test_a_number_of_classes_is_an_integer_of_at_least_one(number):
    X, y = MEAN.records()
    with pytest.raises(ParameterError, match="max_classes_per_person"):
        MEAN.fit(X, y, given={"groups": ["p", "q"] * 6}, max_classes_per_person=number)


@pytest.mark.parametrize("ids", [set(range(12)), dict.fromkeys(range(12), "p")])
def test_ids_without_an_order_are_refused(ids):
    """A set of them may hold as many as there are rows, and name any person for any row."""
    X, y = MEAN.records()
    assert len(ids) == len(y)
    with pytest.raises(
        InputError, match="groups must be one id per row, in the order of the rows"
    ):
        MEAN.fit(X, y, given={"groups": ids})


def test_several_classes_a_person_need_persons():
    X, y = MEAN.records()
    with pytest.raises(ParameterError, match="is for fits with ids of persons"):
        MEAN.fit(X, y, max_classes_per_person=2)


@given(data=st.data())
@settings(max_examples=200)
def test_a_person_keeps_the_classes_of_most_of_their_records(data):
    """Counted by hand: most rows first, ties by class order."""
    codes = np.array(
        data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=30)), np.intp
    )
    numbers = np.array(
        data.draw(
            st.lists(st.integers(0, 3), min_size=len(codes), max_size=len(codes))
        ),
        np.intp,
    )
    k = data.draw(st.integers(1, 5))
    classes, counts, order = persons.classes_of_persons(codes, numbers, 5, k)
    expected = []
    for person in sorted(set(numbers.tolist())):
        sizes = Counter(codes[numbers == person].tolist())
        kept = sorted(sizes, key=lambda code: (-sizes[code], code))[:k]
        expected += [(person, code, sizes[code]) for code in sorted(kept)]
    assert [(code, count) for _, code, count in expected] == list(
        zip(classes.tolist(), counts.tolist(), strict=True)
    )
    rows = np.split(order, np.cumsum(counts)[:-1])
    assert [(set(numbers[r]), set(codes[r])) for r in rows] == [
        ({person}, {code}) for person, code, _ in expected
    ]


# A search


def searched(X, y, given, seed=0):
    estimator = MEAN.make(
        ApproxDP(1.0, 1e-6), random_state=None, unknown_labels="ignore"
    )
    return PrivateSearch(
        estimator, {"lattice__rotation": [1, 2]}, mean_runs=2, random_state=seed
    ).fit(X, y, **given)


@given(data=st.data())
@settings(max_examples=10)
def test_a_person_leaves_no_other_trace_in_a_search(data):
    more, fewer = neighbours_of(data.draw(whole_persons(DIM)))
    assert traces(lambda: searched(*more)) == traces(lambda: searched(*fewer))


def test_a_search_says_that_a_person_is_one_row_of_one_class():
    """Also of an estimator into which persons enter whole when it is fitted by itself."""
    X, y = MEAN.records(40)
    estimator = SoftmaxPrototypes(ApproxDP(1.0, 1e-6), CLASSES)
    search = PrivateSearch(estimator, {"public": [None]}, mean_runs=2, random_state=0)
    guarantee = search.fit(
        X, y, groups=[f"person {i // 8}" for i in range(40)]
    ).guarantee_
    assert guarantee.neighbours == Term(Neighbours.PERSON_IN_A_CLASS)


def test_a_search_tosses_one_coin_a_person(monkeypatch):
    tossed = []
    whole = search.coins
    monkeypatch.setattr(
        search, "coins", lambda n, *others: tossed.append(n) or whole(n, *others)
    )
    X, y = MEAN.records(40)
    model = searched(X, y, {"groups": [f"person {i // 8}" for i in range(40)]})
    assert tossed == [5]
    assert (model.guarantee_.unit, model.best_estimator_.guarantee_.unit) == (
        Unit.PERSON,
        Unit.PERSON,
    )
    assert searched(X, y, {}).guarantee_.unit is Unit.RECORD
    assert tossed == [5, 40]


# Beside fit


def test_samples_are_of_persons_as_well():
    kind = BY_NAME["LinearProbe sampled add-remove"]
    X, y = kind.records()
    guarantee = kind.fit(X, y, given={"groups": ["p", "q"] * 6}).guarantee_
    assert guarantee.unit == Unit.PERSON
    assert guarantee.releases == kind.fit(X, y).guarantee_.releases


def test_scikit_learn_routes_persons_to_fit_and_to_splits(monkeypatch):
    X, y = MEAN.records(60)
    ids = np.array([f"person {i // 4}" for i in range(60)])
    seen = []
    whole = persons.checked_ids
    monkeypatch.setattr(
        persons,
        "checked_ids",
        lambda groups, *others: seen.append(set(groups)) or whole(groups, *others),
    )
    estimator = MEAN.make(GaussianDP(3.0))
    with config_context(enable_metadata_routing=True):
        estimator.set_fit_request(groups=True)
        scores = cross_val_score(
            estimator,
            X,
            y,
            cv=GroupKFold(3),
            params={"groups": ids},
            error_score="raise",
        )
    assert len(scores) == len(seen) == 3
    assert [len(groups) for groups in seen] == [10, 10, 10]
    assert not set.intersection(*seen)
