"""A fit multiplies floats on one thread, whatever BLAS may have: more would add them in another order."""

from contextlib import nullcontext

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dppl import GaussianDP, PublicData, SoftmaxPrototypes
from dppl.lab import LeastSquares
from dppl.methods import base
from laws.recipes import FIRST, SHARED, each


def threads_of_blas():
    return max(
        one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"
    )


def check_one_thread(kind, monkeypatch):
    seen = []
    charge = base.charge

    def watched(*args):
        seen.append(threads_of_blas())
        return charge(*args)

    monkeypatch.setattr(base, "charge", watched)
    with threadpool_limits(3):
        kind.fit(*kind.records(23))
        assert set(seen) == {1}
        assert threads_of_blas() == 3


@each(SHARED)
def test_a_fit_has_one_thread_of_blas(kind, monkeypatch):
    check_one_thread(kind, monkeypatch)


def test_a_fit_with_the_threads_of_blas_is_caught(monkeypatch):
    monkeypatch.setattr(base, "one_thread_each", nullcontext())
    with pytest.raises(AssertionError):
        check_one_thread(FIRST[0], monkeypatch)


@pytest.mark.parametrize("method", [SoftmaxPrototypes, LeastSquares])
def test_the_number_of_threads_changes_no_bit(method):
    """At a size where BLAS shares out its work."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 20, 4000)
    X, X_public = (rng.standard_normal((n, 256), np.float32) for n in (len(y), 1000))

    def fitted(n):
        with threadpool_limits(n):
            return (
                method(GaussianDP(1.0), range(20), random_state=0)
                .set_params(public=PublicData(X_public))
                .fit(X, y)
                .to_bytes()
            )

    assert fitted(1) == fitted(3)
