"""Made-up persons: whose number of records has a long tail, and whose records are like those that they come from."""

import numpy as np
import pytest

from dppl.errors import InputError, ParameterError
from dppl.lab import simulated_persons


@pytest.fixture
def task():
    rng = np.random.default_rng(2)
    y = rng.integers(4, size=400)
    return (np.eye(4, 64)[y] * 5 + rng.standard_normal((400, 64))).astype(np.float32), y


def test_one_more_record_is_as_much_rarer_as_one_over_m(task):
    _, _, groups = simulated_persons(*task, 20_000, 0, largest=10)
    shares = np.bincount(np.bincount(groups))[1:] / 20_000
    expected = 1 / np.arange(1, 11) / (1 / np.arange(1, 11)).sum()
    # A share is 6 standard deviations off with probability below 2e-8 for all ten together; the seed is fixed anyway.
    assert (np.abs(shares - expected) < 6 * np.sqrt(expected / 20_000)).all()
    assert not (np.abs(shares - 0.1) < 6 * np.sqrt(0.1 / 20_000)).all()


@pytest.mark.parametrize(("share", "of_home"), [(1.0, 1.0), (0.5, 0.625)])
def test_records_are_of_the_home_class_as_often_as_told(task, share, of_home):
    X, y, groups = simulated_persons(*task, 2000, 1, share=share, offset=0, largest=40)
    sizes = np.bincount(groups)
    commonest = np.array([np.bincount(y[groups == one], minlength=4).max() for one in np.flatnonzero(sizes > 20)])
    assert np.mean(commonest / sizes[sizes > 20]) == pytest.approx(of_home, abs=0.02)
    source = {row.tobytes(): label for row, label in zip(*unit(task), strict=True)}
    assert all(source[row.tobytes()] == label for row, label in zip(X, y, strict=True))


def unit(task):
    X, y = task
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def test_a_person_moves_all_of_their_records_alike(task):
    moved, _, groups = simulated_persons(*task, 50, 3, offset=0.3)
    plain, _, _ = simulated_persons(*task, 50, 3, offset=0)
    offsets = (moved - plain)[np.unique(groups, return_index=True)[1]]
    np.testing.assert_allclose(moved - plain, offsets[groups], atol=1e-6)
    assert np.linalg.norm(offsets, axis=1).mean() == pytest.approx(0.3, rel=0.1)


def test_a_seed_repeats_and_parameters_are_checked(task):
    first, again = (simulated_persons(*task, 20, 7) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(first[2], simulated_persons(*task, 20, 8)[2])
    for given in ({"n_persons": 0}, {"largest": 0}, {"share": 0}, {"share": 1.5}, {"offset": -1}, {"random_state": -1}):
        with pytest.raises(ParameterError, match="must"):
            simulated_persons(*task, **{"n_persons": 3, "random_state": 0} | given)
    with pytest.raises(InputError, match="one label a row"):
        simulated_persons(task[0], task[1][:3], 3, 0)
