"""PATE and Private-kNN: votes against brute force, and how far one record moves them."""

from fractions import Fraction

import numpy as np
import pytest

from dppl import ApproxDP, GaussianDP, PublicData
from dppl.errors import InputError, MeasurementError
from dppl.io import load_sample
from dppl.kernel.lattice import Lattice
from dppl.kernel.records import HeldRecords
from dppl.lab import PrivateNeighbours, TeacherEnsemble, votes
from dppl.lab.votes import NeighbourVotes, TeacherVotes

DIM = 4
CLASSES = 3
LATTICE = Lattice(DIM)
RNG = np.random.default_rng(0)
PUBLIC = LATTICE.transform(RNG.normal(size=(20, DIM)))


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, DIM)).astype(np.float32), rng.integers(-1, CLASSES, n)


def held(X, codes):
    return HeldRecords(X, np.asarray(codes, np.intp))


def test_votes_of_neighbours_are_those_of_a_sorted_list():
    X, codes = records(60)
    query = NeighbourVotes(LATTICE, CLASSES, 7)
    rows = LATTICE.transform(X).astype(int)
    for row in PUBLIC.astype(int):
        order = sorted(
            (sum((a - b) ** 2 for a, b in zip(one, row, strict=True)), code)
            for one, code in zip(rows, codes, strict=True)
            if code >= 0
        )
        expected = np.bincount([code for _, code in order[:7]], minlength=CLASSES)
        found = held(X, codes).total(query, public=row[None].astype(np.int8))
        assert found.tolist() == expected.tolist()


def test_teachers_vote_once_each_and_one_teacher_is_the_nearest_mean():
    X, codes = records(60)
    many = TeacherVotes(LATTICE, CLASSES, len(PUBLIC), 5)
    assert (held(X, codes).total(many, public=PUBLIC).sum(axis=1) == 5).all()
    one = TeacherVotes(LATTICE, CLASSES, len(PUBLIC), 1)
    rows = LATTICE.transform(X).astype(float)
    means = np.stack([rows[codes == code].sum(axis=0) for code in range(CLASSES)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    given = held(X, codes).total(one, public=PUBLIC).argmax(axis=1)
    assert (given == (PUBLIC @ means.T).argmax(axis=1)).all()


def asked(query, X, codes):
    if isinstance(query, TeacherVotes):
        return held(X, codes).total(query, public=PUBLIC)
    return np.stack(
        [held(X, codes).total(query, public=row[None]) for row in PUBLIC[:3]]
    )


def moved(query, n_cases=150):
    """Return the largest square by which one record moved an ask, of many neighbours."""
    largest = 0
    for seed in range(n_cases):
        X, codes = records(1 + seed % 9, seed)
        X = X[np.random.default_rng(seed).integers(0, len(X), len(X))]  # with copies
        place = seed % len(X)
        change = asked(query, X, codes) - asked(
            query, np.delete(X, place, axis=0), np.delete(codes, place)
        )
        squares = np.square(change)
        whole = isinstance(query, TeacherVotes)
        largest = max(largest, int(squares.sum() if whole else squares.sum(-1).max()))
    return largest


QUERIES = [
    TeacherVotes(LATTICE, CLASSES, len(PUBLIC), 2),
    TeacherVotes(LATTICE, CLASSES, len(PUBLIC), 1),
    NeighbourVotes(LATTICE, CLASSES, 1),
    NeighbourVotes(LATTICE, CLASSES, 3),
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_record_moves_no_more_than_the_query_says(query):
    assert 0 < moved(query) <= query.squared_norm


def test_both_bounds_are_reached():
    east = PUBLIC[:1].astype(np.float32)
    for query in (TeacherVotes(LATTICE, CLASSES, 1, 1), NeighbourVotes(LATTICE, 3, 1)):
        sides = [
            held(X, codes).total(query, public=PUBLIC[:1])
            for X, codes in (
                (-east, [1]),
                (np.concatenate([-east, east]), [1, 0]),
            )
        ]
        assert np.square(sides[1] - sides[0]).sum() == query.squared_norm == Fraction(2)


def test_parts_that_depend_on_the_order_of_records_are_noticed(monkeypatch):
    """The planted fault deals records out in turn, so that one moves all behind it."""
    turn = iter(range(10**9))
    monkeypatch.setattr(votes, "part_of", lambda record: next(turn))
    query = TeacherVotes(LATTICE, CLASSES, len(PUBLIC), 2)
    assert moved(query) > query.squared_norm


def test_whole_classes_of_neighbours_are_noticed(monkeypatch):
    """The planted fault counts each of the nearest by the size of its class."""
    whole = NeighbourVotes.exact

    def weighed(self, blocks, codes, *, public):
        return whole(self, blocks, codes, public=public) * len(codes)

    monkeypatch.setattr(NeighbourVotes, "exact", weighed)
    assert moved(QUERIES[3]) > QUERIES[3].squared_norm


@pytest.mark.parametrize(
    "wrong", [PUBLIC[:2], PUBLIC[:1].astype(float), PUBLIC[:1, :3]]
)
def test_other_public_rows_than_declared_are_refused(wrong):
    with pytest.raises(MeasurementError, match="public must be int8 of the shape"):
        NeighbourVotes(LATTICE, CLASSES, 1).checked(public=wrong)


@pytest.mark.parametrize("kind", [TeacherEnsemble, PrivateNeighbours])
def test_a_student_learns_the_sample_and_states_all_of_its_noise(kind):
    sample = load_sample()
    sizes = {"n_teachers": 20} if kind is TeacherEnsemble else {"n_neighbours": 20}
    model = kind(
        GaussianDP(1e3),
        sample.classes,
        public=PublicData(sample.X_public),
        random_state=0,
        n_queries=150,
        **sizes,
    ).fit(sample.X, sample.y)
    assert model.score(sample.X_test, sample.y_test) > 0.8
    (release,) = model.guarantee_.releases
    total = release.sensitivity**2 * release.times
    assert total == pytest.approx(300)
    assert release.cost["mu"] == pytest.approx(1e3)
    loud = kind(
        GaussianDP(0.01),
        sample.classes,
        public=PublicData(sample.X_public),
        random_state=0,
        n_queries=150,
        **sizes,
    ).fit(sample.X, sample.y)
    assert loud.score(sample.X_test, sample.y_test) < 0.5


def test_samples_need_less_noise_than_all_records():
    rows = PublicData(np.ones((3, DIM)))
    noise = [
        PrivateNeighbours(
            ApproxDP(1.0, 1e-5), ["a"], public=rows, n_queries=3, sampling_rate=rate
        )
        .plan(DIM)
        .guarantee.releases[0]
        .parameters["noise_std"]
        for rate in (1.0, 0.1)
    ]
    assert noise[1] < 0.6 * noise[0]


@pytest.mark.parametrize("kind", [TeacherEnsemble, PrivateNeighbours])
def test_votes_need_public_rows(kind):
    with pytest.raises(InputError, match="give public=PublicData"):
        kind(GaussianDP(1.0), ["a"]).plan(DIM)
