"""Records of several labels: how labels are read, and that no record or person moves a query further than its reach."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from dppl.errors import InputError, ParameterError, UnknownLabelError
from dppl.io import PartedTable
from dppl.kernel import reading
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.lattice import Lattice, joint, label_residuals, residuals
from dppl.kernel.persons import WholePersons
from dppl.kernel.privacy.sensitivity import STEPS
from dppl.kernel.queries.base import ADD_REMOVE, REPLACE_ONE
from dppl.kernel.queries.label_gradients import (
    LabelCounts,
    LabelGradients,
    LabelHits,
    LabelShortfalls,
)
from dppl.kernel.records import HeldRecords, private_data

CLASSES = np.array(["c", "a", "b", "d"])
MATRIX = np.array([[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
SETS = MATRIX == 1
LISTS = [["b", "a"], [], ["a", "b", "c", "d", "a"], ["c"]]

# Labels


@pytest.mark.parametrize(
    ("y", "separator"),
    [
        (MATRIX, None),
        (MATRIX.astype(bool), None),
        (MATRIX.astype(np.float16), ";"),
        (csr_array(MATRIX), None),
        (LISTS, None),
        ([tuple(one) for one in LISTS], ";"),
        ([set(one) for one in LISTS], None),
        ([np.array(one, object) for one in LISTS], None),
        ([np.array(["a", "b"]), None, "d;c;b;a", "c"], ";"),
        ([" b ;a", " ; ", "a;;b; c;d ;a", "c;"], ";"),
        (np.array(["b;a", "", "c;d;b;a", "c"]), ";"),
        (np.array([["b", "a"], float("nan"), ("d", "c", "b", "a"), "c"], object), None),
    ],
)
def test_labels_in_any_form_are_the_same_sets_in_the_order_of_the_class_list(
    y, separator
):
    several = MultiLabel(separator)
    sets, known = several.read(several.checked(y, np.zeros((4, 1))), CLASSES)
    assert (sets == SETS).all()
    assert known.all()


class Hostile(list):
    def __iter__(self):
        raise RuntimeError("secret label Jane Doe")


ODD = [
    ["x"],
    "x",
    1.5,
    object(),
    {"a": 1},
    [["a"]],
    [None],
    Hostile(),
    b"a",
    ["a", float("nan")],
    10**400,
    True,
]


def test_each_record_is_read_by_itself_and_an_unknown_label_is_dropped_alone():
    mixed = [one for pair in zip(ODD, LISTS * 3, strict=True) for one in pair]
    several = MultiLabel()
    sets, known = several.read(
        several.checked(mixed, np.zeros((len(mixed), 1))), CLASSES
    )
    assert (sets[1::2] == np.tile(SETS, (3, 1))).all()
    assert known[1::2].all()
    assert not known[::2].any()
    assert sets[::2].sum() == 1  # of the one that also has a label which is known
    for place, one in enumerate(mixed):
        alone, fits = several.read(several.checked([one], np.zeros((1, 1))), CLASSES)
        assert (alone[0] == sets[place]).all()
        assert fits[0] == known[place]
    # Whatever the numbers of a matrix are: only 1 is a label, and only 0 is none.
    odd = np.array(
        [[1, 0, 2, 0], [np.nan, 1, 0, 0], [-1, 0, 0.5, np.inf], [0, 0, 0, 1]]
    )
    sets, known = several.read(odd, CLASSES)
    assert (sets == (odd == 1)).all()
    assert known.tolist() == [False, False, False, True]


BIG = 2**53


@pytest.mark.parametrize(
    ("form", "lists"),  # pandas has no lists of its nullable integers
    [
        ("arrow", False),
        ("arrow", True),
        ("pyarrow", False),
        ("pyarrow", True),
        ("nullable", False),
    ],
)
def test_a_missing_number_of_one_record_does_not_round_the_labels_of_others(
    form, lists
):
    pa = pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    values = [BIG + 1, BIG + 2, None]
    y = pa.array([[one] for one in values] if lists else values)
    y = y if form == "arrow" else pd.Series(y, dtype=pd.ArrowDtype(y.type))
    y = pd.Series(values, dtype="Int64") if form == "nullable" else y
    classes = np.array([BIG, BIG + 1, BIG + 2])
    rows = np.zeros((3, 1))
    several = MultiLabel()
    assert several.read(several.checked(y, rows), classes)[0].tolist() == [
        [0, 1, 0],
        [0, 0, 1],
        [0, 0, 0],
    ]
    if not lists:
        assert reading.class_codes(
            reading.as_labels(y, rows), classes, "ignore"
        ).tolist() == [1, 2, -1]


@pytest.mark.parametrize("kind", ["boolean", "Int64", object])
def test_an_odd_cell_of_a_frame_is_its_record_s_own(kind):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(MATRIX.astype(bool)).astype(kind)
    several = MultiLabel()
    for cell in (frame.iloc[0, 0], None):
        frame.iloc[0, 0] = cell
        sets, known = several.read(several.checked(frame, np.zeros((4, 1))), CLASSES)
        assert (sets[1:] == SETS[1:]).all()
        assert known.tolist() == [cell is not None, True, True, True]


def test_an_unknown_label_stops_by_one_message_and_only_on_rows_that_can_be_used():
    rows = np.eye(4)
    several = MultiLabel()
    told = set()
    for y in (
        [["x"], ["a"], [], []],
        [["x"], ["a", "y"], ["z"], []],
        np.full((4, 4), 7),
    ):
        labels = several.checked(y, rows)
        with pytest.raises(UnknownLabelError) as caught:
            reading.read_labels(
                rows, labels, CLASSES, "error", "add-remove", None, several
            )
        told.add(str(caught.value))
    assert len(told) == 1
    rows[0] = np.nan
    labels = several.checked([["x"], ["a"], [], []], rows)
    codes, sets = reading.read_labels(
        rows, labels, CLASSES, "error", "add-remove", None, several
    )
    assert codes.tolist() == [-1, 0, 0, 0]
    assert sets.sum(axis=1).tolist() == [0, 1, 0, 0]


def test_shapes_are_refused_before_a_value_is_looked_at():
    rows = np.eye(4)
    several = MultiLabel()
    private = private_data(rows, MATRIX[:, :3], several=several)
    with pytest.raises(InputError, match="column for each of the 4 classes; got 3"):
        private.check(needs_rows=False, strict=False, classes=CLASSES)
    for y in (MATRIX[:2], LISTS[:2]):
        with pytest.raises(InputError, match="numbers differ"):
            private_data(rows, y, several=several)
    for y in (np.array([["a", "b"]] * 4), np.array([[[1]]] * 4)):
        with pytest.raises(InputError):
            private_data(rows, y, several=several)


# Reach

DIM = 16
N_CLASSES = 6
LATTICE = Lattice(DIM)
RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(5, DIM))
OTHERS = RNG.random((5, N_CLASSES)) < 0.4
LONG = np.eye(DIM)[0]
EVERY = np.ones(N_CLASSES, bool)
NONE = np.zeros(N_CLASSES, bool)
TWO = np.arange(N_CLASSES) < 2
FLAT = {"weights": np.zeros((N_CLASSES, DIM)), "clip": 0.3}
STEEP = {
    "weights": 2.0**20 * RNG.normal(size=(N_CLASSES, DIM)),
    "offsets": np.full(N_CLASSES, -(2.0**19)),
    "clip": 1.0,
}
ASKS = {
    "counts": (LabelCounts(N_CLASSES, 2), {}),
    "counts of more than there are": (LabelCounts(N_CLASSES, 99), {}),
    "gradients": (LabelGradients(LATTICE, N_CLASSES), FLAT),
    "steep gradients": (LabelGradients(LATTICE, N_CLASSES), STEEP),
    "hits": (
        LabelHits(LATTICE, N_CLASSES),
        {"weights": STEEP["weights"], "offsets": np.zeros(N_CLASSES)},
    ),
    "shortfalls": (LabelShortfalls(LATTICE, N_CLASSES), FLAT),
    "steep shortfalls": (LabelShortfalls(LATTICE, N_CLASSES), STEEP),
}


def moved(query, asked, some, others):
    """Return by how much the square of the value moves from some records to others, exactly.

    Records are rows, label sets and, where they are of persons, numbers of persons.
    """
    values = []
    for X, sets, *ids in (some, others):
        codes = np.where(np.isfinite(X).all(axis=1) & X.any(axis=1), 0, -1)
        whole = WholePersons.of(codes, np.array(ids[0]), 1) if ids else None
        held = HeldRecords(np.array(X), codes, whole, label_sets=np.array(sets))
        values.append(held.total(query, **asked))
    return sum(int(step) ** 2 for step in (values[0] - values[1]).ravel())


def check_reach(name):
    query, asked = ASKS[name]
    records = ROWS, OTHERS
    furthest = 0
    for row in (
        LONG,
        -LONG,
        *RNG.normal(size=(3, DIM)),
        np.full(DIM, 1e300),
        np.full(DIM, np.nan),
        0 * LONG,
    ):
        for labels in (EVERY, NONE, TWO, *(RNG.random((3, N_CLASSES)) < 0.5)):
            added = np.vstack([ROWS, row]), np.vstack([OTHERS, labels])
            far = moved(query, asked, records, added)
            assert far <= query.squared_sensitivity(ADD_REMOVE)
            furthest = max(furthest, far)
            replaced = np.vstack([ROWS, -row]), np.vstack([OTHERS, ~labels])
            assert moved(query, asked, added, replaced) <= query.squared_sensitivity(
                REPLACE_ONE
            )
    return furthest


@pytest.mark.parametrize("name", ASKS)
def test_no_record_moves_a_query_further_than_its_reach_and_the_worst_one_nearly_so_far(
    name,
):
    assert check_reach(name) >= 0.95 * ASKS[name][0].squared_sensitivity(ADD_REMOVE)


def check_persons(name):
    query, asked = ASKS[name]
    furthest = 0
    for many in (1, 2, 3, 40):
        for rows in (
            np.tile(LONG, (many, 1)),
            RNG.normal(size=(many, DIM)),
            np.eye(DIM)[np.arange(many) % DIM],
        ):
            for labels in (
                np.tile(EVERY, (many, 1)),
                np.tile(TWO, (many, 1)),
                RNG.random((many, N_CLASSES)) < 0.5,
            ):
                records = ROWS, OTHERS, [0, 0, 1, 2, 1]
                joined = (
                    np.vstack([ROWS, rows]),
                    np.vstack([OTHERS, labels]),
                    [0, 0, 1, 2, 1, *[3] * many],
                )
                far = moved(query, asked, records, joined)
                assert far <= query.squared_sensitivity(ADD_REMOVE)
                furthest = max(furthest, far)
    return furthest


@pytest.mark.parametrize("name", ASKS)
def test_a_whole_person_moves_a_query_no_further_than_a_record(name):
    assert ASKS[name][0].whole_persons
    assert check_persons(name) >= 0.95 * ASKS[name][0].squared_sensitivity(ADD_REMOVE)


def unclipped(patch):
    """Let residuals be as long as they are."""
    whole = residuals.on_grid

    def short(columns, norms, *others):
        return whole(columns, np.zeros_like(norms), *others)

    patch.setattr(residuals, "on_grid", short)
    patch.setattr(label_residuals, "on_grid", short)
    patch.setattr(residuals.np, "einsum", lambda _, steps, __: np.zeros(steps.shape[1]))


def all_labels(patch):
    def counts(self, blocks, codes, label_sets, persons=None):
        return STEPS * label_sets.sum(axis=0)

    patch.setattr(LabelCounts, "exact", counts)


def unshared(patch):
    whole = WholePersons.shares

    def each_alone(self, *asked):
        return whole(replace(self, numbers=np.arange(len(self.codes))), *asked)

    patch.setattr(WholePersons, "shares", each_alone)
    patch.setattr(WholePersons, "right", lambda self, records: records.sum())
    patch.setattr(joint.Persons, "clipped", lambda self, steps, *_: steps)


@pytest.mark.parametrize(
    ("fault", "name", "check"),
    [
        (all_labels, "counts", check_reach),
        *(
            (unclipped, name, check_reach)
            for name in ASKS
            if not name.startswith(("counts", "hits"))
        ),
        *((unshared, name, check_persons) for name in ASKS),
    ],
)
def test_a_query_that_moves_further_is_noticed(fault, name, check, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check(name)


def test_a_record_hits_by_its_labels_alone():
    """By one of several that is ranked first, never without a label or by a row that cannot be used."""
    rows = np.vstack([np.eye(DIM)[[0, 0, 0, 1]], np.full(DIM, np.nan)])
    sets = np.eye(N_CLASSES, dtype=bool)[[0, 1, 2, 1, 0]]
    sets[1, 0] = True
    sets[3] = False
    query = LabelHits(LATTICE, N_CLASSES)
    asked = {"weights": np.eye(N_CLASSES, DIM), "offsets": np.zeros(N_CLASSES)}
    for first, hits in ((0, 2), (1, 1), (2, 0), (3, 0), (4, 0)):
        held = HeldRecords(
            rows[first:], np.array([0, 0, 0, 0, -1])[first:], label_sets=sets[first:]
        )
        assert held.total(query, **asked).tolist() == [hits, 4 - first - hits]


@pytest.mark.parametrize("name", ASKS)
def test_the_bits_follow_neither_from_order_nor_from_blocks_nor_from_parts(name):
    query, asked = ASKS[name]
    X = RNG.normal(size=(40, DIM))
    sets = RNG.random((40, N_CLASSES)) < 0.3
    whole = HeldRecords(X, np.zeros(40, int), label_sets=sets).total(query, **asked)
    order = RNG.permutation(40)
    again = HeldRecords(X[order], np.zeros(40, int), label_sets=sets[order]).total(
        query, **asked
    )
    parts = [
        HeldRecords(X[one : one + 1], np.zeros(1, int), label_sets=sets[one : one + 1])
        for one in range(40)
    ]
    assert (again == whole).all()
    assert (sum(part.total(query, **asked) for part in parts) == whole).all()
    mask = RNG.random(40) < 0.5
    if "gradients" in name:
        sample = (
            HeldRecords(X, np.zeros(40, int), label_sets=sets)
            .sampled(mask)
            .total(query, **asked)
        )
        few = (
            HeldRecords(X, np.zeros(40, int), label_sets=sets)
            .taken(mask)
            .total(query, **asked)
        )
        assert (sample == few).all()


class Part:
    """Records of a table in parts, whose labels are texts."""

    def __init__(self, rows, labels):
        self._records = rows, labels

    def read(self):
        return self._records


def test_parts_are_read_as_one_table_is():
    texts = np.array([";".join(one) for one in LISTS] * 2)
    rows = RNG.normal(size=(8, DIM))
    rows[3] = np.nan
    parts = PartedTable(
        parts=(Part(rows[:3], texts[:3]), Part(rows[3:], texts[3:])),
        n_features=DIM,
        labelled=True,
    )
    rules = {"unknown_labels": "error", "adjacency": "add-remove"}
    query = LabelGradients(LATTICE, len(CLASSES))
    asked = {"weights": np.zeros((len(CLASSES), DIM))}
    several = MultiLabel(";")
    totals = [
        private_data(X, y, several=several)
        .records(CLASSES, **rules)
        .total(query, **asked)
        for X, y in ((rows, texts), (parts, None))
    ]
    assert (totals[0] == totals[1]).all()
    assert totals[0].any()
    with pytest.raises(UnknownLabelError):
        private_data(parts, None, several=MultiLabel(",")).records(
            CLASSES, **rules
        ).total(query, **asked)


def test_a_clip_that_float32_could_not_apply_is_refused_whatever_the_records_are():
    for rows in (ROWS, ROWS[:0]):
        held = HeldRecords(
            rows, np.zeros(len(rows), int), label_sets=OTHERS[: len(rows)]
        )
        with pytest.raises(ParameterError, match="clip must lie"):
            held.total(
                LabelShortfalls(LATTICE, N_CLASSES), **{**FLAT, "clip": float("nan")}
            )
