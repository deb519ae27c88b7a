import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dppl.kernel.lattice import Lattice, iter_blocks
from dppl.kernel.lattice import lattice as lattice_module
from dppl.kernel.lattice.kernels import gram_matrices
from dppl.kernel.lattice.residuals import SoftmaxGradient
from dppl.kernel.lattice.similarities import SimilarityClip, utilities
from dppl.kernel.lattice.stream import cut, in_order, one_thread_each


def everything():
    """Bytes of what every kernel computes."""
    rng = np.random.default_rng(0)
    lattice = Lattice(100, rotation=1)
    X = rng.normal(size=(3000, 100)).astype(np.float32)
    rows = np.concatenate(list(lattice.blocks(X, 250)))
    codes = rng.integers(-1, 5, len(rows))
    weights = rng.normal(size=(5, 100))
    clip = SimilarityClip(-1000, 40_000)
    gradient = SoftmaxGradient(lattice, bias=3)
    total = gradient.sum(iter_blocks(rows, 200), codes, weights, clip=0.5)
    count = gradient.count_long(iter_blocks(rows, 200), codes, weights, None, 0.9)
    found = utilities(
        [rows[:700], rows[700:900]], iter_blocks(rows, 300), len(rows), lattice, clip
    )
    grams = gram_matrices(iter_blocks(rows, 500), codes, 5, 100)
    hits = gradient.hits(iter_blocks(rows, 200), codes, weights).tobytes()
    shortfalls = gradient.shortfalls(
        iter_blocks(rows, 200), codes, weights, np.arange(len(rows)).__getitem__
    )
    return [
        *(array.tobytes() for array in (rows, total, found, grams, shortfalls)),
        count,
        hits,
    ]


def test_no_bit_depends_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(lattice_module, "_WORTH_THREADS", 0)
    results = []
    for n in (1, 2, 3):
        with threadpool_limits(n):
            assert one_thread_each.n_threads() == n
            results.append(everything())
    assert results[0] == results[1] == results[2]


class OneBuffer:
    """A table that fills one array again and again, as readers of other formats do."""

    def __init__(self, rows):
        self.rows = rows
        self.shape = rows.shape

    def blocks(self, size):
        buffer = np.empty((size, self.shape[1]))
        for block in iter_blocks(self.rows, size):
            buffer[: len(block)] = block
            yield buffer[: len(block)]
            buffer[:] = 7


@pytest.mark.parametrize("n", [1, 3])
def test_rows_of_a_table_that_uses_its_memory_again_count_once(n, monkeypatch):
    """Blocks are held while later ones are read; a block that has become another would count its rows twice."""
    monkeypatch.setattr(lattice_module, "_WORTH_THREADS", 0)
    lattice = Lattice(100)
    X = np.random.default_rng(0).normal(size=(3000, 100))
    with threadpool_limits(n):
        rows = np.concatenate(list(lattice.blocks(OneBuffer(X), 250)))
    assert (rows == lattice.transform(X)).all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_as_many_threads_work_as_are_allowed(n):
    seen = set()
    together = threading.Barrier(n)

    def fill(item):
        seen.add(threading.get_ident())
        together.wait(timeout=30)  # breaks unless n are at work at once

    with threadpool_limits(n):
        list(in_order(fill, cut(iter_blocks(np.zeros((2 * n, 1)), 1))))
    assert len(seen) == n


@pytest.mark.parametrize("n", [1, 2, 3])
def test_results_come_in_order_and_few_are_computed_ahead(n):
    begun = []

    def items():
        for item in range(20):
            begun.append(item)
            yield item

    with threadpool_limits(n):
        found = in_order(lambda item: (item, threading.get_ident()), items())
        first = next(found)
        assert len(begun) == (1 if n == 1 else n + 2)
        rest = list(found)
    assert [item for item, _ in [first, *rest]] == list(range(20))
    assert (threading.get_ident() in {thread for _, thread in rest}) == (n == 1)


@pytest.mark.parametrize("n", [1, 2])
def test_workers_warn_of_numbers_as_their_caller_does(n):
    with threadpool_limits(n), np.errstate(all="ignore"):
        (found,) = in_order(np.exp, [np.array([1e4])])
        assert np.isinf(found).all()
    with (
        threadpool_limits(n),
        np.errstate(all="raise"),
        pytest.raises(FloatingPointError),
    ):
        list(in_order(np.exp, [np.array([1e4])]))


def test_blas_is_as_before_when_results_are_left():
    with threadpool_limits(3):
        found = in_order(abs, iter(range(100)))
        assert next(found) == 0
        assert threads_of_blas() == 1
        found.close()
        assert threads_of_blas() == 3


def threads_of_blas():
    from dppl.kernel.lattice import stream

    return stream._threads_of_blas()


def test_overlapping_work_leaves_blas_as_it_was():
    """The first to come is the first to leave: a limit that each puts back by itself would stay at one thread."""
    with threadpool_limits(3):
        first, second = (in_order(abs, iter(range(100))) for _ in range(2))
        assert next(first) == next(second) == 0
        assert threads_of_blas() == 1
        assert one_thread_each.n_threads() == 3
        first.close()
        assert threads_of_blas() == 1
        second.close()
        assert threads_of_blas() == 3


def test_an_error_of_a_block_is_passed_on_and_blas_is_as_before():
    def fill(item):
        raise ValueError("of a block")

    with threadpool_limits(2):
        with pytest.raises(ValueError, match="of a block"):
            list(in_order(fill, cut([np.zeros(3)])))
        assert threads_of_blas() == 2
