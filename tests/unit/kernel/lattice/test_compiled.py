"""What numba compiles, against what NumPy does."""

import pickle
import subprocess
import sys
import time
import warnings
from threading import Barrier, BrokenBarrierError, Thread
from types import SimpleNamespace

import numpy as np
import pytest

from dppl.kernel.lattice import Lattice, stream
from dppl.kernel.lattice import lattice as lattice_module

WIDTHS = {
    1: 60_000,
    2: 60_000,
    3: 60_000,
    5: 60_000,
    9: 20_000,
    12: 20_000,
    31: 5000,
    100: 1000,
    384: 300,
    1025: 50,
}
DTYPES = ["f8", "f4", "f2", ">f8", "g", "i1", "u2", ">i8", "?"]


@pytest.fixture(scope="module")
def kernels():
    pytest.importorskip("numba")
    from dppl.kernel.lattice import compiled

    return compiled


def steps_of(lattice, rows, map_rows):
    """What both ways round, as bits, of the rows that need not be shrunk afterwards: it is left in the given rows."""
    with np.errstate(all="ignore"):
        steps = lattice._map(rows.copy(), lattice.scale)
    left = rows.copy()
    q = np.empty((len(rows), lattice.dim), np.int8)
    map_rows(left, q, *lattice._compiled())
    kept = q.any(axis=1) & (
        np.square(np.rint(steps)).sum(axis=1) <= float(lattice.squared_norm)
    )
    return (
        np.ascontiguousarray(array[kept, : lattice.dim]).view(np.int64)
        for array in (steps, left)
    )


def mapped(lattice, rows, kernels=None):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lattice_module, "compiled_kernels", lambda numbers: kernels)
        return lattice.transform(rows)


def odd_rows(rng, n, width):
    """Any bits there are, numbers of all sizes and of one, whole numbers, single huge ones, and hardly any number."""
    rows = rng.normal(size=(n, width))
    kind = rng.integers(0, 8, n)[:, None]
    bits = rng.integers(0, 2**64, (n, width), np.uint64).view(np.float64)
    special = rng.choice(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 2e-308, 1e308, -1.7e308],
        (n, width),
    )
    with np.errstate(all="ignore"):
        return np.select(
            [kind == k for k in range(7)],
            [
                bits,
                rows * 10 ** rng.uniform(-324, 308, (n, 1)),
                rows * 10 ** rng.uniform(-324, 308, (n, width)),
                np.rint(3 * rows),
                np.where(rng.random((n, width)) < 2 / width, special, rows),
                special,
                np.where(rng.random((n, width)) < 0.1, 1e4 * rows, rows),
            ],
            rows,
        )


def maps(width, rng):
    center = rng.normal(size=width) / 10
    return [
        Lattice(width),
        Lattice(width, rotation=7),
        Lattice(width, center=center),
        Lattice(width, pool=min(3, width), rotation=1),
        Lattice(width, center=center, pool=min(2, width)),
        Lattice(width, center=np.full(width, width**-0.5), rotation=0),
    ]


@pytest.mark.slow
def test_a_million_odd_rows_are_mapped_to_the_same_bits(kernels):
    rng = np.random.default_rng(0)
    n_rows = n_zero = 0
    for width, n in WIDTHS.items():
        rows = odd_rows(rng, n, width)
        for lattice in maps(width, rng):
            q = mapped(lattice, rows)
            assert (mapped(lattice, rows, kernels) == q).all()
            steps, compiled = steps_of(lattice, rows, kernels.map_rows)
            assert (steps == compiled).all()
            n_rows = n_rows + n
            n_zero = n_zero + (~q.any(axis=1)).sum()
    assert n_rows > 10**6
    assert 0.05 < n_zero / n_rows < 0.5  # neither way gives up


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [7, 96])
def test_numbers_of_every_kind_are_mapped_to_the_same_bits(kernels, dtype, width):
    rng = np.random.default_rng(1)
    size = np.dtype(dtype).itemsize
    rows = rng.integers(0, 2 if dtype == "?" else 256, (400, width * size), np.uint8)
    with np.errstate(all="ignore"):
        # Not all bytes are numbers of 80 bits.
        rows = (
            odd_rows(rng, 400, width).astype(dtype)
            if dtype == "g"
            else rows.view(dtype)
        )
    for lattice in maps(width, rng):
        q = mapped(lattice, rows)
        assert (mapped(lattice, rows, kernels) == q).all()
        wide = np.repeat(rows, 2, axis=1)[::-1, ::2]
        assert (mapped(lattice, wide, kernels) == q[::-1]).all()


def test_a_compiled_row_is_mapped_the_same_in_any_company(kernels):
    rng = np.random.default_rng(2)
    rows = odd_rows(rng, 2000, 100)
    order = rng.permutation(2000)
    for lattice in maps(100, rng):
        q = mapped(lattice, rows, kernels)
        assert (mapped(lattice, rows[order], kernels) == q[order]).all()
        assert (
            np.concatenate(
                [mapped(lattice, rows[i : i + 1], kernels) for i in range(50)]
            )
            == q[:50]
        ).all()


def test_a_lattice_that_travelled_maps_rows_although_its_arrays_are_read_only(kernels):
    rng = np.random.default_rng(3)
    rows = odd_rows(rng, 50, 96)
    for lattice in maps(96, rng):
        # As Ray hands them to a task.
        buffers = []
        packed = pickle.dumps(lattice, protocol=5, buffer_callback=buffers.append)
        there = pickle.loads(packed, buffers=[bytes(one.raw()) for one in buffers])
        assert there.center is None or not there.center.flags.writeable
        assert (mapped(there, rows, kernels) == mapped(lattice, rows)).all()


def test_the_law_notices_another_order_of_additions(kernels):
    def backwards(given, q, *rest):
        other = np.ascontiguousarray(given[:, ::-1])
        kernels.map_rows(other, q, *rest)
        given[:] = other[:, ::-1]

    steps, compiled = steps_of(
        Lattice(100), np.random.default_rng(3).normal(size=(100, 100)), backwards
    )
    assert (steps != compiled).any()


def test_numba_is_imported_once_it_pays(monkeypatch):
    monkeypatch.setattr(stream, "_numbers", 0)
    monkeypatch.setattr(stream, "_import_compiled", lambda: "kernels")
    found = [stream.compiled_kernels(stream._WORTH_NUMBA // 4) for _ in range(5)]
    assert found == [None, None, None, "kernels", "kernels"]


def test_threads_that_import_numba_at_once_leave_the_filters_of_warnings_as_they_were(
    monkeypatch,
):
    both = Barrier(2)
    before = list(warnings.filters)

    def found(_):
        try:
            if both.wait(0.3):
                time.sleep(0.1)
        except BrokenBarrierError:  # one after the other
            pass
        return SimpleNamespace(config=SimpleNamespace(DISABLE_JIT=0))

    monkeypatch.setattr(stream, "import_module", found)
    threads = [Thread(target=stream._import_compiled.__wrapped__) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before


@pytest.mark.parametrize("damage", ["missing", "damaged", "switched off"])
def test_without_numba_rows_are_mapped_without_a_word(damage, tmp_path):
    """In a new process, so that nothing is imported yet."""
    (tmp_path / "numba.py").write_text(
        "raise OSError('no LLVM')" if damage == "damaged" else "x = 1"
    )
    script = f"""
import os, sys
if {damage!r} == "damaged":
    sys.path.insert(0, {str(tmp_path)!r})
elif {damage!r} == "missing":
    sys.modules["numba"] = None
else:
    os.environ["NUMBA_DISABLE_JIT"] = "1"
import numpy as np
from dppl.kernel.lattice import Lattice, stream
stream._WORTH_NUMBA = 0
assert Lattice(3).transform(np.eye(3)).trace() == 3 * 54
assert stream.compiled_kernels(1) is None
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("fault", ["no folder", "full disk"])
def test_kernels_that_cannot_be_kept_are_compiled_again(kernels, monkeypatch, fault):
    def fails(*_):
        raise OSError(fault)

    caching = pytest.importorskip("numba.core.caching")
    if fault == "no folder":
        monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", fails)
    else:
        monkeypatch.setattr(caching.IndexDataCacheFile, "save", fails)
    twice = kernels.compiled("int64(int64)")(lambda number: 2 * number)
    assert twice(21) == 42
