import importlib
import math
import os
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dppl.errors import ParameterError
from dppl.kernel.mechanisms.randomness import (
    _BLOCK,
    _QUANTILE_ERROR,
    SeededRandomness,
    SystemRandomness,
    _quantile_error,
    _rounded,
    quantile,
    randomness,
)

# Each statistical test here raises a false alarm with at most this probability.
ALARM = 1e-6
SOURCES = [SystemRandomness(), SeededRandomness(0)]
IDS = ["system", "seeded"]
WIDEST = 2.0**52
# By its name `dppl.kernel.mechanisms` has the function.
MODULE = importlib.import_module("dppl.kernel.mechanisms.randomness")


def rounded_gaussian_masses(std, reach):
    k = np.arange(-reach, reach + 1)
    return k, stats.norm.cdf((k + 0.5) / std) - stats.norm.cdf((k - 0.5) / std)


def discrete_gaussian_masses(std, reach):
    k = np.arange(-reach, reach + 1)
    weight = np.exp(-(k**2) / (2 * std**2))
    return k, weight / weight.sum()


def law_holds(draws, std, masses=rounded_gaussian_masses):
    """Chi-square against the exact masses, of values of which 100 draws are expected, and the rest with the last."""
    k, mass = masses(std, int(12 * std) + 12)
    inner = mass * draws.size >= 100
    observed = np.array([(draws == value).sum() for value in k[inner]])
    expected = mass[inner] * draws.size
    # The tails may be so rare that a cell of their own would make one draw in them an
    # alarm.
    observed[-1] += draws.size - observed.sum()
    expected[-1] += draws.size - expected.sum()
    return ((observed - expected) ** 2 / expected).sum() <= stats.chi2.isf(
        ALARM, len(expected) - 1
    )


class Scripted(SystemRandomness):
    """Draws the given 64-bit words, in order."""

    def __init__(self, *words):
        self.words = list(words)

    def _bytes(self, count):
        drawn = self.words[: count // 8]
        self.words = self.words[count // 8 :]
        assert 8 * len(drawn) == count
        return b"".join(word.to_bytes(8, "little") for word in drawn)

    def bits(self, count):
        return int.from_bytes(self._bytes(count // 8), "little")


def tail_beyond(std, k):
    """Enclose P(std·Z > k + 1/2) by the complementary error function, which the sampler does not use."""
    return ((arb(k) + arb(0.5)) / (arb(std) * arb(2).sqrt())).erfc() / 2


def all_round_to(std, k, tail, count):
    """Tell whether std·z rounds to k, certainly, for all z of tail probability in [tail, tail + 1)·2^-count."""
    with ctx.workprec(count + 128):
        low = arb(tail) / arb(2) ** count
        high = arb(tail + 1) / arb(2) ** count
        return bool(tail_beyond(std, k) <= low) and (
            k == 0 or bool(high <= tail_beyond(std, k - 1))
        )


def bits_of_boundary(std, k, count):
    """Return the first `count` binary digits of P(std·Z > k + 1/2)."""
    with ctx.workprec(count + 256):
        return int((tail_beyond(std, k) * arb(2) ** count).floor().unique_fmpz())


def drawn(std, tail, *more, negative=False):
    """Return the draw of this tail and these further words, and whether all words were needed."""
    source = Scripted(2 * tail + negative, *more)
    return int(source.rounded_gaussian(std, (1,))[0]), not source.words


@pytest.mark.parametrize("std", [0.3, 0.4, 1.0, 3.7])
def test_system_noise_has_the_law_of_a_rounded_gaussian(std):
    assert law_holds(SystemRandomness().rounded_gaussian(std, (50_000,)), std)


@pytest.mark.parametrize("factor", [0.95, 1.05])
@pytest.mark.parametrize("std", [0.4, 3.7])
def test_the_law_test_notices_five_percent(std, factor):
    assert not law_holds(
        SystemRandomness().rounded_gaussian(std * factor, (50_000,)), std
    )


def test_the_law_test_tells_the_discrete_gaussian_apart():
    assert not law_holds(
        SystemRandomness().rounded_gaussian(0.4, (50_000,)),
        0.4,
        discrete_gaussian_masses,
    )


@pytest.mark.parametrize("std", [1e5, 7.7e8, 2.0**40, WIDEST])
def test_wide_system_noise_has_the_law_of_a_gaussian(std):
    # At this width the distribution functions of rounded and continuous noise differ by
    # less than 1e-5.
    size = 20_000 if std < WIDEST else 10_000
    draws = SystemRandomness().rounded_gaussian(std, (size,))
    assert stats.kstest(draws / std, "norm").pvalue >= ALARM
    assert stats.kstest(draws / (0.85 * std), "norm").pvalue < ALARM
    assert stats.kstest(np.abs(draws) / std, "norm").pvalue < ALARM


def sign_and_size_are_independent(draws, std):
    sizes = np.digitize(np.abs(draws), std * stats.norm.isf([0.4, 0.3, 0.2, 0.1, 0.01]))
    table = [np.bincount(sizes[side], minlength=6) for side in (draws > 0, draws < 0)]
    return stats.chi2_contingency(table).pvalue >= ALARM


def test_the_sign_does_not_tell_the_size():
    draws = SystemRandomness().rounded_gaussian(1e6, (50_000,))
    assert sign_and_size_are_independent(draws, 1e6)
    # The control: signs from the first bit of the tail, as if a bit were used twice.
    assert not sign_and_size_are_independent(
        np.where(np.abs(draws) < 0.5e6, 1, -1) * np.abs(draws), 1e6
    )


def test_the_float_quantile_errs_by_far_less_than_its_bound():
    """Over grids in the tail, denser where its approximations meet (at 0.075 and e^-25) and at both ends."""
    seams = [0.075, math.exp(-25)]
    grid = np.concatenate(
        [
            2.0 ** -np.linspace(1, 64, 6001),
            np.linspace(1e-6, 0.5, 4001),
            *(seam * (1 + np.linspace(-1e-12, 1e-12, 401)) for seam in seams),
            0.5 - 2.0 ** -np.arange(2, 54),
            np.arange(1, 200) * 2.0**-64,
        ]
    )
    with ctx.workprec(160):
        errors = [
            abs(float(arb(2).sqrt() * (2 * arb(p)).erfcinv() - arb(z))) / (1 + z)
            for p, z in zip(grid.tolist(), quantile(grid).tolist(), strict=True)
        ]
    assert max(errors) <= 2.0**-50 <= _QUANTILE_ERROR / 128
    assert _quantile_error() == _QUANTILE_ERROR


tails = st.one_of(
    st.integers(0, 2**63 - 1),
    st.integers(0, 62).map(lambda place: 1 << place),
    st.integers(0, 2**20),
    st.integers(2**63 - 2**20, 2**63 - 1),
)
stds = st.one_of(
    st.sampled_from([0.05, 0.3, 1.0, 249.0, 7.7e8, 2.0**40, WIDEST]),
    st.floats(1e-3, WIDEST),
)


@settings(deadline=None, max_examples=300)
@given(std=stds, tail=tails)
def test_what_floats_are_certain_of_is_certain(std, tail):
    (k,), (certain,) = _rounded(std, np.array([tail], np.uint64))
    assert not certain or all_round_to(std, int(k), tail, 64)


@pytest.mark.parametrize("std", [0.7, 249.0, 7.7e8, 2.0**40])
def test_around_the_boundaries_floats_are_certain_of_nothing_false(std):
    near = [*range(6), *(round(std * z) for z in (0.5, 1.0, 2.0, 4.0, 6.0))]
    for k in near:
        middle = bits_of_boundary(std, k, 64)
        for distance in [
            0,
            *(sign * 2**power for power in range(0, 60, 3) for sign in (-1, 1)),
        ]:
            tail = middle + distance
            if 0 <= tail < 2**63:
                (value,), (certain,) = _rounded(std, np.array([tail], np.uint64))
                assert not certain or all_round_to(std, int(value), tail, 64)
                assert not certain or distance


def test_a_bound_without_margin_would_be_noticed(monkeypatch):
    """The control of the two tests above: with no margin at all some certainties are false."""
    monkeypatch.setattr(MODULE, "_quantile_error", lambda: 0.0)
    false = 0
    for k in range(2000):
        middle = bits_of_boundary(7.7e8, 10_000 * k, 64)
        for tail in (middle - 2**10, middle - 1, middle + 1, middle + 2**10):
            (value,), (certain,) = _rounded(7.7e8, np.array([tail], np.uint64))
            false += bool(certain) and not all_round_to(7.7e8, int(value), tail, 64)
    assert false


@settings(deadline=None, max_examples=200)
@given(std=stds, tail=tails, word=st.integers(1, 2**64 - 1), negative=st.booleans())
def test_every_draw_is_the_rounded_gaussian_of_its_bits(std, tail, word, negative):
    source = Scripted(2 * tail + negative, word, word, word, word)
    value = int(source.rounded_gaussian(std, (1,))[0])
    used = 4 - len(source.words)
    bits = tail
    for _ in range(used):
        bits = (bits << 64) | word
    assert all_round_to(std, abs(value), bits, 64 + 64 * used)
    assert value == 0 or (value < 0) == negative


@pytest.mark.parametrize("std", [0.7, 249.0, 7.7e8, 2.0**40])
@pytest.mark.parametrize("k", [0, 1, 2, 5])
@pytest.mark.parametrize("words", [1, 2, 5])
def test_on_a_boundary_bits_are_drawn_until_one_side_is_certain(std, k, words):
    """U follows the digits of a boundary for some words, and then leaves them to either side."""
    digits = bits_of_boundary(std, k, 64 + 64 * words)
    tail = digits >> (64 * words)
    rest = digits & (2 ** (64 * words) - 1)
    along = [rest >> (64 * place) & (2**64 - 1) for place in reversed(range(words))]
    last = along.pop()
    assert 2**32 < last < 2**64 - 2**32  # or the next word would decide nothing
    assert drawn(std, tail, *along, last - 2**32) == (k + 1, True)
    assert drawn(std, tail, *along, last + 2**32) == (k, True)


def test_the_tails_are_reached():
    """A tail of only zeros is more than nine standard deviations out, and further words say how far."""
    value, all_used = drawn(1e6, 0, 0, 2**63)
    assert all_used
    assert all_round_to(1e6, value, 2**63, 192)
    assert value == round(1e6 * stats.norm.isf(2.0**-129))
    assert drawn(1e6, 0, 0, 2**63, negative=True)[0] == -value
    assert (
        drawn(0.01, 0, 0, 2**63)[0] == 0
    )  # a narrow Gaussian does not reach 1/2 there
    assert drawn(1e6, 2**63 - 1)[0] == 0


def test_every_bit_of_the_tail_counts():
    """In the tail, neighbouring numbers are far apart at this width; none may be taken for another."""
    values = [drawn(2.0**50, 2**10 + offset, 0, 0)[0] for offset in range(8)]
    assert values == sorted(set(values), reverse=True)
    assert all(
        all_round_to(2.0**50, value, (2**10 + offset) << 128, 192)
        for offset, value in enumerate(values)
    )


@pytest.mark.parametrize("negative", [False, True])
def test_a_quantile_that_fails_leaves_every_decision_to_balls(monkeypatch, negative):
    monkeypatch.setattr(MODULE, "quantile", lambda p: quantile(p) * (1 + 1e-11))
    _quantile_error.cache_clear()
    try:
        assert _quantile_error() == math.inf
        source = Scripted(*(2 * tail + negative for tail in range(2**60, 2**62, 2**57)))
        tails_drawn = [word >> 1 for word in source.words]
        for tail, value in zip(
            tails_drawn, source.rounded_gaussian(1e6, (len(tails_drawn),)), strict=True
        ):
            assert all_round_to(1e6, abs(int(value)), tail, 64)
            assert (value < 0) == negative
    finally:
        _quantile_error.cache_clear()


def test_no_bits_are_used_twice():
    """Values of one block and of different blocks come from bits of their own."""
    draws = SystemRandomness().rounded_gaussian(2.0**40, (4 * _BLOCK,))
    # Fewer than 2^31 pairs, each equal by chance with probability below 2^-41 (and of
    # sizes below 2^-40): 3 equal ones have probability below 1e-9, 5 of sizes below
    # 1e-12.
    assert draws.size - len(np.unique(draws)) <= 2
    assert draws.size - len(np.unique(np.abs(draws))) <= 4


@pytest.mark.parametrize("source", SOURCES, ids=IDS)
@pytest.mark.parametrize("std", [25.0, 1e6])
def test_wide_noise_has_its_scale(source, std):
    draws = source.rounded_gaussian(std, (100, 200))
    low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], draws.size)
    assert draws.shape == (100, 200)
    assert draws.dtype == np.int64
    assert low <= np.sum((draws / std) ** 2) <= high
    assert not low <= np.sum((draws / (0.9 * std)) ** 2) <= high
    assert not low <= np.sum((draws / (1.1 * std)) ** 2) <= high


@pytest.mark.parametrize("source", SOURCES, ids=IDS)
@pytest.mark.parametrize("bound", [1, 2, 5, 7, 2**70])
def test_integers_below_a_bound_are_uniform(source, bound):
    draws = [source.below(bound) for _ in range(3000)]
    assert 0 <= min(draws) <= max(draws) < bound
    cells = min(bound, 6)
    observed = np.bincount([draw * cells // bound for draw in draws], minlength=cells)
    expected = np.full(cells, 3000 / cells)
    if bound in (1, 2, 5, 2**70):  # 7 does not fall into 6 equal cells: the control
        assert stats.chisquare(observed, expected).pvalue >= ALARM or cells == 1
    else:
        assert stats.chisquare(observed, expected).pvalue < ALARM


def test_seeded_draws_repeat_and_system_draws_do_not():
    assert (
        randomness(3).rounded_gaussian(9.0, (50,))
        == randomness(3).rounded_gaussian(9.0, (50,))
    ).all()
    assert (
        randomness(3).rounded_gaussian(9.0, (50,))
        != randomness(4).rounded_gaussian(9.0, (50,))
    ).any()
    system = randomness(None)
    # 50 draws of entropy log2(9·sqrt(2·pi·e)) = 5.2 bits: equal by chance once in 2^150
    # (collision entropy below).
    assert (
        system.rounded_gaussian(9.0, (50,)) != system.rounded_gaussian(9.0, (50,))
    ).any()
    assert system.secure_noise
    assert not randomness(3).secure_noise


@pytest.mark.parametrize(
    "state", [-1, 1.5, "0", True, np.random.default_rng(0), np.random.RandomState(0)]
)
def test_only_none_and_integers_name_a_source(state):
    with pytest.raises(ParameterError, match="random_state must be None or an integer"):
        randomness(state)


def test_noise_of_no_numbers_is_empty():
    assert SystemRandomness().rounded_gaussian(1.0, (0, 4)).shape == (0, 4)


CLONES = """
import ctypes, os, signal, sys
import numpy as np
from dppl.kernel.mechanisms.randomness import randomness
source, in_memory = randomness(None), np.random.default_rng()
source.rounded_gaussian(2.0**40, (1,))  # whatever has state has it now
libc = ctypes.CDLL(None)

def fork():
    if sys.argv[1] == "forked":
        return os.fork()
    # The bare system call, in a new PID namespace: no library learns of it, and the clone has the same process id.
    return libc.syscall({"x86_64": 56, "aarch64": 220}[os.uname().machine], 0x20000000 | signal.SIGCHLD, 0, 0, 0, 0)

for child in range(8):
    pid = fork()
    if pid == 0:
        draws = source.rounded_gaussian(2.0**40, (1,))[0], source.bits(64), in_memory.integers(2**62), os.getpid()
        os.write(1, (" ".join(map(str, draws)) + chr(10)).encode())
        os._exit(0)
    assert pid > 0
    os.waitpid(pid, 0)
"""
# The cloning process is the first of its own namespace, as its clones are of theirs.
NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]


def namespaces_are_permitted():
    if shutil.which("unshare") is None or platform.machine() not in (
        "x86_64",
        "aarch64",
    ):
        return False
    return (
        subprocess.run([*NAMESPACE, *NAMESPACE, "true"], capture_output=True).returncode
        == 0
    )


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("how", ["forked", "namespaces"])
def test_clones_of_a_process_draw_noise_of_their_own(how):
    if how == "namespaces" and not namespaces_are_permitted():
        pytest.skip("this system does not permit new PID namespaces")
    prefix = NAMESPACE if how == "namespaces" else []
    done = subprocess.run(
        [*prefix, sys.executable, "-c", CLONES, how],
        capture_output=True,
        text=True,
        check=True,
    )
    noise, bits, in_memory, ids = zip(
        *(line.split() for line in done.stdout.splitlines()), strict=True
    )
    # Two of 8 equal by chance: less than 1e-10.
    assert len(set(noise)) == len(set(bits)) == len(noise) == 8
    # The control: clones of a generator in memory draw the same, and in namespaces not
    # even their ids differ.
    assert len(set(in_memory)) == 1
    assert len(set(ids)) == (1 if how == "namespaces" else 8)
