"""Two fits of neighbours with the same noise, compared step by step.

The second fit gets the answers of the first from its mechanisms, so that each step
starts from the same state, as the composition theorems have it. What would have been
released with the same noise is compared.
"""

import contextlib
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dppl.kernel.lattice import Lattice
from dppl.kernel.mechanisms import (
    ExponentialMechanism,
    RoundedGaussian,
    SymmetricRoundedGaussian,
)
from dppl.kernel.mechanisms.randomness import randomness
from dppl.kernel.privacy import Cost
from dppl.kernel.privacy.composition import covers
from dppl.kernel.privacy.rounding import cost_of_gaussian
from dppl.kernel.privacy.terms import Mechanism
from laws.recipes import CLASSES, neighbours


@contextlib.contextmanager
def watched(script=()):
    """List what each use of a mechanism read and answered; as long as the script lasts, it answers instead."""
    uses = []
    replies = iter(script)

    def watch(whole):
        def use(self, exact, source):
            exact = exact.copy()
            answer = whole(self, exact, source)
            uses.append((self, exact, answer))
            return next(replies, answer)

        return use

    def watch_selections(whole):
        def use(self, parts, look, source):
            # How many bits a selection takes depends on utilities; what is drawn after it
            # shall not.
            answers = whole(self, parts, look, randomness(1))
            every = {
                part: {code: [(-(2**62), 2**62)] for code in range(len(answers))}
                for part in range(len(parts))
            }
            seen = [[] for _ in answers]
            for code, _, utilities, _ in look(every):
                seen[code].append(utilities)
            uses.extend(
                (self, np.concatenate(each), answer)
                for each, answer in zip(seen, answers, strict=True)
            )
            return np.stack([next(replies, answer) for answer in answers])

        return use

    with pytest.MonkeyPatch.context() as patch:
        for mechanism in (RoundedGaussian, SymmetricRoundedGaussian):
            patch.setattr(mechanism, "release", watch(mechanism.release))
        patch.setattr(
            ExponentialMechanism,
            "select_each",
            watch_selections(ExponentialMechanism.select_each),
        )
        yield uses


def spent(first, second, times, growth=1):
    """Return the cost of what one use of a mechanism shows: mu² of noise, the range of a selection, both exact.

    The square of a sum may move by `growth` times what a single row may move it.
    """
    (mechanism, exact, answer), (same, other_exact, other_answer) = first, second
    assert mechanism == same  # its noise must not depend on the records
    if isinstance(mechanism, RoundedGaussian):
        assert exact.dtype == other_exact.dtype == np.int64
        moved = sum(int(step) ** 2 for step in (answer - other_answer).ravel())
        # A mechanism that is used several times pays for the sum of their squares: each
        # may move by its part.
        assert moved <= growth * mechanism.squared_sensitivity / times
        return Fraction(moved) / Fraction(mechanism.noise_std) ** 2
    grown = exact - other_exact
    assert np.abs(grown).max() <= mechanism.sensitivity
    return (
        Fraction(int(grown.max() - grown.min()))
        * Fraction(mechanism.epsilon)
        / mechanism.sensitivity
    )


def stated_times(mechanisms, guarantee, growth=1):
    """Return how often the entry of each mechanism says that it is used, after comparing entries with uses."""

    def cost_of(one):
        cost = cost_of_gaussian(one.squared_sensitivity / Fraction(one.noise_std) ** 2)
        return (
            cost
            if growth == 1
            else cost_of_gaussian(growth * Fraction(cost["mu"]) ** 2)
        )

    if any(
        release.mechanism.code is Mechanism.COINPRESS for release in guarantee.releases
    ):
        return dict.fromkeys(
            mechanisms, 1
        )  # one entry for all steps; its cost is compared with theirs
    selecting = [one for one in mechanisms if isinstance(one, ExponentialMechanism)]
    selected = [
        release
        for release in guarantee.releases
        if "n_selections" in release.parameters
    ]
    # The published law of sets draws with half of its epsilon, and pays for ranks, too.
    assert {(one.epsilon, one.sensitivity) for one in selecting} == {
        (
            release.parameters.get("epsilon_per_selection")
            or release.parameters["published_epsilon"] / 2,
            release.sensitivity,
        )
        for release in selected
    }
    assert len(selected) == (len(selecting) > 0)
    adding = [one for one in mechanisms if one not in selecting]
    uses = Counter((one.noise_std, cost_of(one)["mu"]) for one in adding)
    entries = Counter()
    noisy = [release for release in guarantee.releases if release not in selected]
    for release in noisy:
        entries[release.parameters["noise_std"], release.cost["mu"]] += release.times
    assert uses == entries
    times = dict.fromkeys(selecting, 1)
    for mechanism in set(adding):
        key = mechanism.noise_std, cost_of(mechanism)["mu"]
        alike = [r for r in noisy if (r.parameters["noise_std"], r.cost["mu"]) == key]
        times[mechanism] = alike[0].times
        for release in alike:
            assert release.times == times[mechanism]
            assert release.cost == cost_of(mechanism)
            sensitivity = math.sqrt(
                growth * mechanism.squared_sensitivity / release.times
            )
            assert math.isclose(
                release.sensitivity, sensitivity, rel_tol=1e-15 if growth > 1 else 0
            )
    return times


def replay(kind, case, budget=None, seed=0, given=None, **options):
    """Hold a kind to the law of neighbours: what a record changes is covered by what the guarantee says it costs."""
    compare(
        kind,
        *((*data, given or {}) for data in neighbours(case, kind)),
        budget,
        seed,
        **options,
    )


def compare(kind, more, fewer, budget=None, seed=0, growth=1, **options):
    """Hold two neighbours, each of rows, labels and what else a fit gets, to that law.

    Squared sensitivities are `growth` times those of the mechanisms, which are for
    single rows.
    """
    options |= {"budget": budget, "random_state": seed, "unknown_labels": "ignore"}
    with watched() as uses:
        first = kind.fit(*more[:2], given=more[2], **options)
    with watched([answer for _, _, answer in uses]) as again:
        second = kind.fit(*fewer[:2], given=fewer[2], **options)
    guarantee = first.guarantee_
    assert second.guarantee_ == guarantee
    times = stated_times([mechanism for mechanism, *_ in uses], guarantee, growth)
    stated = [Cost.from_dict(release.cost) for release in guarantee.releases]
    for selects in (False, True):
        pairs = [
            pair
            for pair in zip(uses, again, strict=True)
            if isinstance(pair[0][0], ExponentialMechanism) == selects
        ]
        costs = [cost for cost in stated if (cost.epsilon is not None) == selects]
        allowed = sum(
            Fraction(cost.epsilon) if selects else Fraction(cost.mu) ** 2
            for cost in costs
        )
        assert (
            sum(spent(one, other, times[one[0]], growth) for one, other in pairs)
            <= allowed
        )
    assert covers(first.budget, stated)
    # Equal answers of the mechanisms, equal model: nothing else of the records comes
    # through.
    assert first.to_bytes() == second.to_bytes()


def clip_nothing(patch):
    """Let rows of any length into sums."""
    patch.setattr(
        Lattice,
        "transform",
        lambda self, X: np.rint(np.asarray(X) * 100).astype(np.int8),
    )


def lone(dim, value=1.2):
    """One record or none."""
    return np.zeros((0, dim)), [], np.full(dim, value), CLASSES[0]
