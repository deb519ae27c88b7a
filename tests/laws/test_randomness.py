"""Noise comes from the operating system and from nowhere else, new in every fit, unless a seed is given."""

import importlib
import random

import numpy as np
import pytest
from sklearn.base import clone

from dppl import ZCDP, MeanPrototypes, PublicData, PublicPrototypes, PureDP
from dppl.kernel.mechanisms.randomness import SeededRandomness, SystemRandomness
from inside import behind
from laws.recipes import KINDS, SHARED, each

pytestmark = pytest.mark.slow

randomness_module = importlib.import_module(
    "dppl.kernel.mechanisms.randomness"
)  # the package has a function of that name
SOURCES = {None: SystemRandomness, 0: SeededRandomness}


def sources_of(fit):
    """Return the classes of randomness that a fit draws from."""
    used = set()

    def watch(cls, original):
        return lambda *arguments: used.add(cls) or original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        for cls in SOURCES.values():
            for name in ("rounded_gaussian", "below", "bits"):
                patch.setattr(cls, name, watch(cls, getattr(cls, name)))
        fit()
    return used


def check_sources(kind):
    for seed, source in SOURCES.items():
        assert sources_of(
            lambda seed=seed: kind.fit(*kind.records(), random_state=seed)
        ) == {source}


@each(SHARED)
def test_the_system_source_is_used_whenever_no_seed_is_given(kind):
    check_sources(kind)


def test_a_seed_that_is_always_there_is_noticed(monkeypatch):
    whole = KINDS[0].cls.learn

    def learn(self, measure, setting):
        behind(measure).source = SeededRandomness(0)
        return whole(self, measure, setting)

    monkeypatch.setattr(KINDS[0].cls, "learn", learn)
    with pytest.raises(AssertionError):
        check_sources(KINDS[0])


@pytest.fixture
def system(monkeypatch):
    """Let the operating system repeat itself; list what it is asked for."""
    asked = []
    known = random.Random()
    urandom = randomness_module.os
    secrets = randomness_module.secrets
    monkeypatch.setattr(
        urandom, "urandom", lambda n: asked.append(("bytes", n)) or known.randbytes(n)
    )
    monkeypatch.setattr(
        secrets, "randbelow", lambda n: asked.append(("below", n)) or known.randrange(n)
    )
    monkeypatch.setattr(
        secrets, "randbits", lambda n: asked.append(("bits", n)) or known.getrandbits(n)
    )
    return asked, known


@each(SHARED)
def test_where_its_random_bytes_repeat_so_do_fits_and_a_seeded_fit_asks_for_none(
    kind, system
):
    asked, known = system
    X, y = kind.records()
    models = []
    for _ in range(2):
        known.seed(0)
        models.append(kind.fit(X, y, random_state=None).to_bytes())
    assert models[0] == models[1]
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :] != []
    asked.clear()
    kind.fit(X, y, random_state=0)
    assert asked == []


@each([kind for kind in SHARED if not kind.entry.pure])
def test_noise_is_new_in_every_fit(kind):
    """False alarm: below 1e-15 each. Nine values with noise 38 steps wide, or more of them, would have to be equal."""
    X, y = kind.records()
    first, second = (kind.fit(X, y, random_state=None) for _ in range(2))
    assert first.to_bytes() != second.to_bytes()


@each(SHARED)
def test_a_seed_repeats_a_fit_and_another_gives_other_noise(kind):
    X, y = kind.records()
    model = kind.fit(X, y, random_state=1)
    assert clone(model).fit(X, y).to_bytes() == model.to_bytes()
    others = [kind.fit(X, y, random_state=seed).to_bytes() for seed in range(2, 12)]
    assert any(other != model.to_bytes() for other in others)


def test_all_system_noise_comes_from_the_operating_system(system):
    """It is asked for 8 bytes a value."""
    asked, known = system
    X = np.ones((3, 6))
    classes = ["a", "b", "c"]
    public = np.random.default_rng(0).normal(size=(50, 6))
    known.seed(0)
    MeanPrototypes(ZCDP(1.0), classes).fit(X, classes)
    assert asked == [("bytes", 8 * 3 * 6)]
    asked.clear()
    PublicPrototypes(
        PureDP(1.0), classes, n_prototypes=3, public=PublicData(public)
    ).fit(X, classes)
    assert {what for what, _ in asked} == {"below", "bits"}


def test_selections_are_new_in_every_fit():
    """False alarm: 1e-11. At epsilon 1 each of three sets of 3 of 50 rows has a probability of at most e/19,600."""
    X = np.ones((3, 6))
    classes = ["a", "b", "c"]
    public = np.random.default_rng(0).normal(size=(50, 6))
    first, second = (
        PublicPrototypes(
            PureDP(1.0), classes, n_prototypes=3, public=PublicData(public)
        ).fit(X, classes)
        for _ in range(2)
    )
    assert first.public_indices_.tolist() != second.public_indices_.tolist()
