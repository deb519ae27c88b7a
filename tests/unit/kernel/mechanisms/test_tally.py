"""Tallies are what they say, in whatever parts and order the candidates come."""

import functools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dppl.kernel.mechanisms.exponential import NONE, Places, Tally, strata

WIDTH = 3


def rows(min_size=0):
    """Bins of two classes: near one another, far apart, and of few candidates."""
    return st.integers(min_size, 12).flatmap(
        lambda n: st.sampled_from([2, 6, 2**61]).flatmap(
            lambda most: st.lists(
                st.lists(st.integers(-most, most), min_size=n, max_size=n),
                min_size=2,
                max_size=2,
            ).map(lambda bins: np.array(bins, np.int64).reshape(2, n))
        )
    )


def assert_same(one, other):
    assert one.n == other.n
    assert one.best.tolist() == other.best.tolist()
    assert one.counts.tolist() == other.counts.tolist()


def assert_counts(tally, bins, size):
    for best, counts, row in zip(tally.best, tally.counts, bins.tolist(), strict=True):
        ordered = sorted(row, reverse=True)
        assert best.tolist() == (ordered + [NONE] * size)[:size]
        last = int(best[-1])
        down = [last - bin for bin in row if bin <= last]
        assert counts.tolist() == [
            *(down.count(depth) for depth in range(WIDTH)),
            sum(d >= WIDTH for d in down),
        ]


@given(
    rows(), st.integers(1, 4), st.lists(st.integers(0, 12), max_size=5), st.randoms()
)
def test_merged_tallies_are_the_tally_of_all(bins, size, cuts, random):
    whole = Tally.of(bins, size, WIDTH)
    assert_counts(whole, bins, size)
    parts = [
        Tally.of(part, size, WIDTH) for part in np.split(bins, sorted(cuts), axis=1)
    ]
    random.shuffle(parts)
    parts = pickle.loads(pickle.dumps(parts))  # as another process returns them
    while len(parts) > 1:  # in any order and grouping
        n = random.randint(2, len(parts))
        parts = [*parts[n:], Tally.merged(parts[:n])]
    assert_same(parts[0], whole)


def test_the_same_comparison_notices_a_count_that_is_lost():
    whole, part = (
        Tally.of(np.array([row]), 1, WIDTH) for row in ([5, 4, 4, 1], [4, 4, 1])
    )
    with pytest.raises(AssertionError):
        assert_same(part, whole)


@given(rows(min_size=4), st.integers(1, 4), st.lists(st.integers(0, 12), max_size=5))
def test_each_candidate_is_in_one_stratum_and_found_there(bins, size, cuts):
    pieces = np.split(bins, sorted(cuts), axis=1)
    parts = [Tally.of(piece, size, WIDTH) for piece in pieces]
    whole = functools.reduce(lambda one, other: Tally.merged([one, other]), parts)
    for code, row in enumerate(bins):
        places = Places(parts, code)
        found = strata(whole, code)
        before = 0
        assert sum(stratum.count for stratum in found) == len(row)
        for stratum in found:
            inside = (row >= stratum.lowest) & (row <= stratum.highest)
            assert stratum.count == np.count_nonzero(inside)
            assert before == np.count_nonzero(row > stratum.highest)
            before += stratum.count
            for lowest, highest in (
                (stratum.lowest, stratum.highest),
                (stratum.highest + 1, 2**62),
            ):
                members = np.flatnonzero((row >= lowest) & (row <= highest))
                pairs = [
                    places.find(lowest, highest, ordinal)
                    for ordinal in range(len(members))
                ]
                assert pairs == [
                    (part, place)
                    for part, piece in enumerate(pieces)
                    for place in range(
                        np.count_nonzero(
                            (piece[code] >= lowest) & (piece[code] <= highest)
                        )
                    )
                ]
