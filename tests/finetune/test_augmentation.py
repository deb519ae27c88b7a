"""Random augmentations: what a record becomes is decided by bits of its own, whoever is beside it."""

import random

import numpy as np
import pytest

from dppl import GaussianDP
from dppl.finetune import select_weights
from dppl.finetune.gradients import RADIUS
from dppl.kernel.mechanisms import Randomness
from dppl.kernel.records import HeldRecords
from finetune.conftest import Trainer

N, DIM = 100, 8
SOURCES = ("torch", "python", "numpy")


class SameBits(Randomness):
    """Gives each record the same bits, so that only what others draw could change what it draws."""

    fit_for_release = False

    def bits(self, count):
        return 12345

    def below(self, bound):
        raise AssertionError("an augmentation needs bits alone")

    def rounded_gaussian(self, noise_std, shape):
        raise AssertionError("an augmentation needs bits alone")


@pytest.fixture
def draw(torch):
    """Return, by name, what draws a number of [0, 1) from a global generator."""
    return {"torch": lambda: torch.rand(()).item(), "python": random.random, "numpy": np.random.rand}


@pytest.fixture
def seeded(torch):
    """Return what seeds all global generators, as scripts do, and what they would draw next."""

    def seed():
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002

    def upcoming():
        return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state(legacy=False))  # noqa: NPY002

    return seed, upcoming


def trainer(torch, augment, **options):
    module = torch.nn.Sequential(torch.nn.Linear(DIM, 2))
    selection = select_weights(module, ("head",))
    return Trainer(module, selection, GaussianDP(1.0), steps=2, batch_size=N, augment=augment, block=16, **options)


def longest_change(torch, augment, source, seed):
    """Return by how much one record moves the sum of a step, in multiples of the sensitivity, at most."""
    X = np.random.default_rng(0).normal(scale=5, size=(N, DIM)).astype(np.float32)
    gradients = trainer(torch, augment).plan((DIM,)).gradients
    weights = np.zeros(gradients.size)

    def total(kept):
        seed()
        records = HeldRecords(X[kept], np.zeros(len(kept), np.intp))
        return gradients.exact(records, weights=weights, bits=source.bits).astype(object)

    whole = total(np.arange(N))
    changes = [whole - total(np.delete(np.arange(N), one)) for one in (0, 1, N // 2, N - 1)]
    return max(int(np.square(change).sum()) for change in changes) / RADIUS**2


@pytest.mark.parametrize("name", SOURCES)
def test_one_record_moves_a_sum_no_further_than_without_augmentation(torch, seeded, draw, name):
    def turned(record):
        return record * (1 if draw[name]() < 0.5 else -1) * (1 + draw[name]())

    assert 0.9 < longest_change(torch, turned, SameBits(), seeded[0]) <= 1


@pytest.mark.parametrize("made", ["seeded", "a torch.Generator as it is made"])
def test_a_generator_that_counts_the_records_moves_it_further(torch, made):
    """A negative control, and what the statement says that the augmentation must not have."""
    own = []

    def seed():
        own[:] = [torch.Generator() if made != "seeded" else torch.Generator().manual_seed(3)]

    def turned(record):
        return record * (1 if torch.rand((), generator=own[0]) < 0.5 else -1)

    assert longest_change(torch, turned, SameBits(), seed) > 4
    counted = trainer(torch, turned).plan((DIM,)).guarantee
    assert any("a generator of their own with a known start" in assumption for assumption in counted.assumptions)


@pytest.mark.parametrize("name", SOURCES)
def test_each_record_has_fresh_bits_whatever_the_caller_has_seeded(torch, seeded, draw, name):
    """Numbers of at least 24 bits: two of these 80 are alike with a probability of about 0.0002."""
    seed, upcoming = seeded
    drawn = []

    def noted(record):
        drawn.append(draw[name]())
        return record

    X, y = np.ones((20, DIM), np.float32), np.zeros(20, np.int64)
    for _ in range(2):
        run = trainer(torch, noted)
        seed()
        before = upcoming()
        run.fit(X, y)
        assert upcoming() == before  # the caller's
    assert len(set(drawn)) == len(drawn) == 80


def test_the_callers_generators_are_put_back_when_an_augmentation_fails(torch, seeded, draw):
    seed, upcoming = seeded

    def broken(record):
        for one in draw.values():
            one()
        raise ZeroDivisionError

    run = trainer(torch, broken)
    seed()
    before = upcoming()
    with pytest.raises(ZeroDivisionError):
        run.fit(np.ones((3, DIM), np.float32), np.zeros(3, np.int64))
    assert upcoming() == before


def test_a_seed_repeats_the_augmentations(torch, seeded, draw):
    drawn = []

    def noted(record):
        drawn.append([one() for one in draw.values()])
        return record

    X, y = np.ones((5, DIM), np.float32), np.zeros(5, np.int64)
    for _ in range(2):
        trainer(torch, noted, random_state=3).fit(X, y)
    assert drawn[:10] == drawn[10:]
    assert len({tuple(one) for one in drawn}) == 10
