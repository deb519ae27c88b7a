"""The same bits come out whatever holds the rows, however they are cut, and in whatever order they come."""

import numpy as np
import pytest

from dppl import MeanPrototypes
from dppl.io import EmbeddingTable
from dppl.kernel.lattice import Lattice, iter_blocks
from inside import behind, tensors_of
from laws.recipes import BY_NAME, SHARED, SHARED_CHARGED, Table, each, lattice_table

pytestmark = pytest.mark.slow
# Whose own map centres or rotates.
MAPPING = {"SoftmaxPrototypes", "ContinualDiscriminant"}


def forms(X, tmp_path):
    """Yield the same rows in other forms."""
    np.save(tmp_path / "x.npy", X)
    yield "a list", X.tolist()
    yield "a table that streams", Table(X)
    yield "a table", EmbeddingTable.of(X)
    yield "a memory map", np.load(tmp_path / "x.npy", mmap_mode="r")
    yield "columns in a row", np.asfortranarray(X)
    yield "every other row", np.repeat(X, 2, axis=0)[::2]
    yield "every other column", np.repeat(X, 2, axis=1)[:, ::2]
    yield "the other byte order", X.astype(X.dtype.newbyteorder())


def check_forms(kind, tmp_path):
    X, y = kind.records(23)
    model = kind.fit(X, y)
    bits = model.to_bytes()
    labels = model.predict(X).tolist()
    for name, rows in forms(X, tmp_path):
        again = kind.fit(rows, y)
        assert again.to_bytes() == bits, name
        assert again.predict(rows).tolist() == labels, name
    for name, public in forms(kind.public, tmp_path) if kind.recipe.public else ():
        # Means of public rows may be added up block by block: they are floats, and no
        # record's.
        if name != "a table that streams":
            assert (
                kind.fit(X, y, public=kind.public_data(rows=public)).to_bytes() == bits
            ), name


@each(SHARED)
def test_rows_in_any_form_give_the_same_bits(kind, tmp_path):
    check_forms(kind, tmp_path)


@each(SHARED_CHARGED)  # not of one whose sample is drawn by place
def test_the_order_of_records_does_not_matter(kind):
    X, y = kind.records(23)
    order = np.random.default_rng(4).permutation(len(X))
    assert kind.fit(X[order], y[order]).to_bytes() == kind.fit(X, y).to_bytes()


@each(SHARED)
def test_the_order_in_which_classes_are_named_does_not_matter(kind):
    X, y = kind.records()
    first, second = (
        kind.fit(X, y, classes=classes)
        for classes in (["a", "b", "c", "none"], ["none", "c", "a", "b"])
    )
    assert (
        first.classes_.tolist() == second.classes_.tolist() == ["a", "b", "c", "none"]
    )
    assert (first.decision_function(X) == second.decision_function(X)).all()
    assert tensors_of(first) == tensors_of(second)


@each(SHARED)
def test_rows_that_see_their_block_are_noticed(kind, tmp_path, monkeypatch):
    whole = Lattice.transform
    monkeypatch.setattr(
        Lattice,
        "transform",
        lambda self, X: whole(self, np.asarray(X) - np.mean(X, axis=0)),
    )
    with pytest.raises(AssertionError):
        check_forms(kind, tmp_path)


@each(SHARED)
def test_no_records_at_all_are_a_data_set_like_any_other(kind):
    model = kind.fit(np.empty((0, kind.dim)), [])
    assert np.isfinite(model.decision_function(np.eye(kind.dim))).all()
    assert model.guarantee_ == kind.fit(*kind.records()).guarantee_


@each(SHARED)
def test_one_row_of_another_type_does_not_change_how_lists_are_read(kind):
    """int8 arrays are lattice rows; a list is not, or one float row would turn all others into embeddings."""
    X, y = kind.records()
    rows = list(np.rint(10 * X).astype(np.int8))
    bits = kind.fit(np.array(rows, np.float64), y).to_bytes()
    assert kind.fit(rows, y).to_bytes() == bits
    assert kind.fit([*rows[:-1], rows[-1].astype(np.float32)], y).to_bytes() == bits


def check_lattice_rows(kind):
    """Fit on lattice rows, private, public or both: bits of int8 rows, and where nothing maps them of embeddings."""
    X, y = kind.records(23)
    X[4], X[5] = np.nan, 0
    model = kind.fit(X, y)
    whole = Lattice(kind.dim).transform
    unmapped = model.lattice_.is_plain and getattr(model, "centers_", None) is None
    for rows in (kind.public, whole(kind.public)) if kind.recipe.public else (None,):
        table = (
            lattice_table(rows) if rows is not None and rows.dtype == np.int8 else rows
        )
        given, tables = (
            {"public": kind.public_data(rows=one)} for one in (rows, table)
        )
        bits = kind.fit(lattice_table(whole(X)), y, **tables).to_bytes()
        assert bits == kind.fit(whole(X), y, **given).to_bytes()
        assert not unmapped or bits == model.to_bytes()
        assert not unmapped or kind.fit(X, y, **tables).to_bytes() == bits
    return unmapped


@each(SHARED)
def test_lattice_rows_give_the_bits_of_int8_rows_or_of_embeddings(kind):
    mapped = "lattice" in kind.recipe.options
    softmax = kind.recipe.options.get("head") == "softmax"
    assert check_lattice_rows(kind) == (
        kind.entry.name not in MAPPING and not mapped and not softmax
    )


def test_a_fit_that_reads_more_than_the_lattice_rows_is_noticed(monkeypatch):
    whole = MeanPrototypes.learn

    def longer(self, measure, setting):
        whole(self, measure, setting)
        self.prototypes_ = self.prototypes_ + next(
            iter_blocks(behind(measure).records.rows, 1)
        )

    monkeypatch.setattr(MeanPrototypes, "learn", longer)
    with pytest.raises(AssertionError):
        check_lattice_rows(BY_NAME["MeanPrototypes add-remove"])
