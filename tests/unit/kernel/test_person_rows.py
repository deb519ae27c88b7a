"""The rows of persons, against plain integers: in any order of records, read in any blocks, with little memory."""

import tracemalloc
from dataclasses import dataclass, field

import numpy as np
import pytest

from dppl.kernel import persons
from dppl.kernel.lattice import Lattice

CASES = 100


def expected(X, codes, numbers, most):
    """Return classes and rows, one person and one class after the other."""
    lattice = Lattice(X.shape[1])
    rows = [[int(number) for number in row] for row in lattice.transform(X)]
    found = []
    for person in sorted(set(numbers.tolist())):
        of: dict[int, list[int]] = {}
        for record in np.flatnonzero((numbers == person) & (codes >= 0)).tolist():
            of.setdefault(int(codes[record]), []).append(record)
        kept = sorted(of, key=lambda code: (-len(of[code]), code))[:most]
        for code in sorted(kept):
            total = [
                sum(rows[record][place] for record in of[code])
                for place in range(X.shape[1])
            ]
            if (
                max(map(abs, total)) > 127
                or sum(number**2 for number in total) > lattice.squared_norm
            ):
                total = lattice.transform([total])[0].tolist()
            found.append((code, total))
    return found


def reduced(*given):
    rows, codes = persons.rows_of_persons(*given)
    return list(zip(codes.tolist(), rows.tolist(), strict=True))


@dataclass
class Stream:
    """A table that yields blocks of its own size, once."""

    X: np.ndarray
    rows: int
    passes: list[int] = field(default_factory=list)

    @property
    def shape(self):
        return self.X.shape

    def blocks(self, size):
        self.passes.append(size)
        for start in range(0, len(self.X), min(self.rows, size)):
            yield self.X[start : start + min(self.rows, size)].astype(np.float32)


def drawn(rng):
    """Return records of some persons: sorted, in order but for a few, or anywhere."""
    n = rng.integers(0, 80)
    dim = rng.integers(1, 7)
    n_classes = int(rng.integers(1, 6))
    numbers = np.sort(rng.integers(0, rng.integers(1, 20), n))
    order = [
        np.arange(n),
        np.argsort(np.arange(n) + 3 * rng.random(n)),
        rng.permutation(n),
    ][rng.integers(3)]
    X = (
        rng.integers(-2, 3, (n, dim))
        if rng.random() < 0.5
        else rng.normal(size=(n, dim))
    )
    X[~X.any(axis=1)] = 1
    return (
        X.astype(np.float32),
        rng.integers(-1, n_classes, n),
        numbers[order].astype(np.intp),
        n_classes,
    )


def check_against_plain_integers(monkeypatch):
    rng = np.random.default_rng(0)
    for _ in range(CASES):
        monkeypatch.setattr(persons, "_READ_ROWS", int(rng.integers(1, 30)))
        X, codes, numbers, n_classes = drawn(rng)
        most = int(rng.integers(1, n_classes + 2))
        table = Stream(X, int(rng.integers(1, 30)))
        wanted = expected(X, codes, numbers, most)
        assert reduced(X, codes, numbers, n_classes, most) == wanted
        assert reduced(table, codes, numbers, n_classes, most) == wanted
        assert len(table.passes) == 1
        again = rng.permutation(len(X))
        assert (
            reduced(X[again], codes[again], numbers[again], n_classes, most) == wanted
        )


@pytest.mark.slow
def test_rows_are_those_of_plain_integers(monkeypatch):
    check_against_plain_integers(monkeypatch)


def mix_up_sums(patch):
    """Give the sums of a block to the wrong rows."""

    patch.setattr(persons, "_shrunk", lambda lattice, sums: SHRUNK(lattice, sums[::-1]))


def choose_by_everyone(patch):
    """Keep the classes that most records of all persons have."""

    def chosen(numbers, codes, counts, most):
        sizes = np.bincount(codes, counts, minlength=1)
        return MOST_FREQUENT(numbers, codes, sizes[codes], most)

    patch.setattr(persons, "_most_frequent", chosen)


def cap_after_the_sum(patch):
    """Add all records of a person, and then drop the classes beyond the cap."""

    def kept(codes, numbers, n_classes, most):
        classes, *_ = OF_PERSONS(codes, numbers, n_classes, 1)
        return classes, *OF_PERSONS(np.zeros_like(codes), numbers, 1, 1)[1:]

    patch.setattr(persons, "classes_of_persons", kept)


SHRUNK = persons._shrunk
MOST_FREQUENT = persons._most_frequent
OF_PERSONS = persons.classes_of_persons


@pytest.mark.parametrize("fault", [mix_up_sums, choose_by_everyone, cap_after_the_sum])
def test_a_fault_is_noticed(fault, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check_against_plain_integers(monkeypatch)


def test_of_several_classes_those_of_most_rows_are_kept_and_the_first_ones():
    X = np.eye(4)[[0, 1, 2, 3, 3, 1]]
    codes = np.array([3, 2, 1, 0, 0, 2])
    numbers = np.zeros(6, np.intp)
    kept = {
        most: [code for code, _ in reduced(X, codes, numbers, 4, most)]
        for most in (1, 2, 3, 4, 9)
    }
    assert kept == {1: [0], 2: [0, 2], 3: [0, 1, 2], 4: [0, 1, 2, 3], 9: [0, 1, 2, 3]}


@pytest.mark.parametrize("n", [258, 260, 300])
def test_sums_of_many_records_stay_exact(n, monkeypatch):
    """The longest sum of 258 rows fits into 16 bits, and that of the 259 before a last one does not."""
    monkeypatch.setattr(persons, "_READ_ROWS", 1)
    X = np.tile([np.eye(16)[0], -np.eye(16)[1]], (n, 1))
    found = reduced(X, np.zeros(2 * n, np.intp), np.arange(2 * n) % 2, 1)
    assert [row for _, row in found] == Lattice(16).transform(X[:2]).tolist()


def peak(n_persons, each, order, monkeypatch):
    """Return the most bytes that were held, beside the vectors and the result, and the size of all lattice rows."""
    monkeypatch.setattr(persons, "_READ_ROWS", 64)
    numbers = order(np.repeat(np.arange(n_persons), each))
    X = np.broadcast_to(np.float32(1), (len(numbers), 1024))
    table = Stream(X, 64)
    codes = np.zeros(len(numbers), np.intp)
    persons.rows_of_persons(
        table, codes, numbers, 1
    )  # imports and caches are none of the matter
    tracemalloc.start()
    try:
        rows, _ = persons.rows_of_persons(table, codes, numbers, 1)
        return tracemalloc.get_traced_memory()[1] - rows.nbytes, X.size
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_holds_persons_and_not_their_records(monkeypatch):
    few, _ = peak(400, 5, lambda numbers: numbers, monkeypatch)
    many, everything = peak(400, 20, lambda numbers: numbers, monkeypatch)
    anywhere, _ = peak(400, 5, np.random.default_rng(0).permutation, monkeypatch)
    assert many - few < everything / 10  # labels and ids are vectors in memory
    # Two bytes, not four, for each number of a person whose rows are anywhere, and a
    # few rows of the block at hand.
    assert 2 * 400 * 1024 < anywhere - few < 4 * 400 * 1024
