"""Rounded noise in shares adds up to nearly what one rounded draw is: by exact numbers, at shares where it matters."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from dppl.errors import ParameterError
from dppl.kernel.mechanisms import randomness
from dppl.lab import SharedNoise

REACH = 400
AT = np.arange(-REACH, REACH + 1)


def law_of_shares(std, n):
    """Return the chances of the sum of n rounded draws."""
    one = np.diff(norm.cdf((np.arange(-REACH, REACH + 2) - 0.5) / std))
    law = one
    for _ in range(n - 1):
        law = np.convolve(law, one)[REACH:-REACH]
    return law


def law_of_one(std, n):
    """Return the chances of m = 0, 1, ... for round(sigma·Z + n - 1 uniform numbers), by Gauss's rule over these."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    uniform = np.zeros(1)
    mass = np.ones(1)
    for _ in range(n - 1):
        uniform = np.add.outer(uniform, nodes / 2).ravel()
        mass = np.multiply.outer(mass, weights / 2).ravel()
    edges = np.arange(61)[:, None] - 0.5 - uniform
    return np.diff(norm.cdf(edges / (std * math.sqrt(n))), axis=0) @ mass


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_distance_is_below_the_bound_and_not_far_below(n):
    """At a share of 1 the bound is 1e-2 and less, so that floats see the distance."""
    noise = SharedNoise(math.sqrt(n), n)
    shares = law_of_shares(noise.share, n)
    one = law_of_one(noise.share, n)
    difference = np.abs(shares[REACH : REACH + 60] - one)
    distance = difference[0] / 2 + difference[1:].sum()
    assert distance <= noise.distance(1)
    assert distance > 1e-3 * math.exp(
        -(math.pi**2)
    )  # it is there, and the law is not the one of one draw
    # The control: the chances themselves are some 1e-1, which a wrong law would miss.
    assert np.abs(
        shares[REACH : REACH + 60] - law_of_one(1.05 * noise.share, n)
    ).sum() > noise.distance(1)


def test_a_sum_of_shares_keeps_what_mu_promises():
    """Neighbours differ by 3: no set of sums gains more than mu = 3/sigma allows, up to the distance."""
    noise = SharedNoise(4.0, 6, n_absent=2)
    law = law_of_shares(noise.share, 4)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        gained = np.maximum(law[3:] - math.exp(epsilon) * law[:-3], 0).sum()
        mu = 3 / 4.0
        allowed = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(
            -mu / 2 - epsilon / mu
        )
        assert gained <= allowed + (1 + math.exp(epsilon)) * noise.distance(1)
        # The control: with one institution fewer than was allowed for, the promise is
        # broken.
        fewer = law_of_shares(noise.share, 3)
        assert np.maximum(fewer[3:] - math.exp(epsilon) * fewer[:-3], 0).sum() > allowed
    assert SharedNoise(100.0, 20, n_absent=5).distance(10**9) < 1e-300


def test_sums_wrap_around_and_have_the_noise_of_all():
    """40,000 draws: their standard deviation is within 2 % of sigma, except with probability 1e-7."""
    exact = [
        np.full(40_000, 2**62),
        np.full(40_000, 2**62),
        np.full(40_000, -(2**62)),
        np.full(40_000, -(2**62)),
    ]
    seen = SharedNoise(50.0, 4).add(exact, randomness(3))
    assert abs(seen.std() - 50.0) < 1.0
    assert (
        abs(SharedNoise(50.0, 4, n_absent=2).add(exact, randomness(3)).std() - 50.0)
        > 15
    )  # the control


def test_too_few_institutions_and_too_little_noise_are_refused():
    for given, what in [
        ((9.0, 3, 2), "n_absent"),
        ((9.0, 1), "n_absent"),
        ((1.5, 4), "noise_std"),
    ]:
        with pytest.raises(ParameterError) as caught:
            SharedNoise(*given)
        assert caught.value.parameter == what


def test_shares_have_the_whole_noise_to_the_last_bit():
    for place in range(3000):
        noise = SharedNoise(40.0 + place / 7, 2 + place % 900)
        assert (
            Fraction(noise.share) ** 2 * noise.n_parties
            >= Fraction(noise.noise_std) ** 2
        )
