from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics.pairwise import cosine_similarity

from dppl import ZCDP, ApproxDP, GaussianDP, PublicData, PublicPrototypes, PureDP
from dppl.errors import InputError, ParameterError
from dppl.io import PartedTable
from dppl.kernel import parts as parts_module
from dppl.kernel.lattice import iter_blocks
from dppl.kernel.queries import selection

# Statistical tests here raise a false alarm with at most this probability.
ALARM = 1e-6


class Table:
    """A table that streams and is no array."""

    def __init__(self, rows, ids=None):
        self._rows = rows
        self.shape = rows.shape
        self.ids = ids

    def blocks(self, size):
        yield from iter_blocks(self._rows, size)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, 24))
    y = rng.integers(0, 3, 300)
    public = np.concatenate(
        [centers[rng.integers(0, 3, 120)], np.zeros((80, 24))]
    ) + 0.6 * rng.normal(size=(200, 24))
    return centers[y] + 0.5 * rng.normal(size=(300, 24)), y, public


def fitted(data, budget=None, **options):
    X, y, public = data
    return PublicPrototypes(
        budget or PureDP(2.0),
        [0, 1, 2],
        **({"random_state": 1} | options),
        public=PublicData(public),
    ).fit(X, y)


@pytest.mark.parametrize("k", [1, 4])
def test_prototypes_are_public_rows(data, k):
    model = fitted(data, n_prototypes=k)
    assert model.public_indices_.shape == (3, k)
    assert (
        model.prototypes_ == model.lattice_.transform(data[2])[model.public_indices_]
    ).all()
    assert all(len(set(chosen)) == k for chosen in model.public_indices_.tolist())
    assert model.score(data[0], data[1]) > 0.6


def test_prediction_is_by_mean_distance(data):
    """DPPL-v1 eq. (7) with cosine distance."""
    model = fitted(data, n_prototypes=3)
    distance = np.stack(
        [
            1 - cosine_similarity(data[0], prototypes)
            for prototypes in model.prototypes_
        ],
        axis=1,
    )
    assert (model.predict(data[0]) == distance.mean(axis=2).argmin(axis=1)).all()


@pytest.mark.slow
def test_the_selection_follows_the_exact_utilities(data):
    """Frequencies over many fits against the law of the exponential mechanism on eq. (14) of DPPL-v1."""
    X = data[0][:12]
    y = data[1][:12]
    public = data[2][:9]
    clip = (0.8, 1.5)
    unit = [
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in (X[y == 0], public)
    ]
    utility = (np.clip(1 + unit[0] @ unit[1].T, *clip) - clip[0]).sum(axis=0)
    weight = np.exp(3.0 * utility / (clip[1] - clip[0]))
    drawn = [
        PublicPrototypes(
            PureDP(3.0),
            [0, 1, 2],
            clip=clip,
            random_state=seed,
            public=PublicData(public),
        )
        .fit(X, y)
        .public_indices_[0, 0]
        for seed in range(700)
    ]
    counts = np.bincount(drawn, minlength=9)
    expected = 700 * weight / weight.sum()
    kept = expected >= 5
    folded = [np.append(v[kept], v[~kept].sum()) for v in (counts, expected)]
    statistic = ((folded[0] - folded[1]) ** 2 / np.maximum(folded[1], 1e-9)).sum()
    # The lattice moves probabilities by about 2 % here, far inside what 700 draws
    # resolve at this alarm.
    assert statistic <= stats.chi2.isf(ALARM, kept.sum())
    wrong = np.exp(1.5 * utility / (clip[1] - clip[0]))
    wrong *= 700 / wrong.sum()
    assert ((counts - wrong) ** 2 / wrong).sum() > stats.chi2.isf(ALARM, 8)


@pytest.mark.slow
def test_a_class_without_records_gets_a_uniform_draw(data):
    X, y, public = data
    drawn = [
        PublicPrototypes(
            PureDP(2.0),
            [0, 7],
            unknown_labels="ignore",
            random_state=seed,
            public=PublicData(public[:5]),
        )
        .fit(X[y == 0], y[y == 0])
        .public_indices_[1, 0]
        for seed in range(200)
    ]
    assert stats.chisquare(np.bincount(drawn, minlength=5)).pvalue >= ALARM


def test_damaged_public_rows_are_no_candidates(data):
    X, y, public = data
    public = public.copy()
    public[:190] = np.nan
    public[190:195] = 0.0
    model = PublicPrototypes(
        PureDP(0.01), [0, 1, 2], n_prototypes=5, public=PublicData(public)
    ).fit(X, y)
    assert model.public_indices_.tolist() == [[195, 196, 197, 198, 199]] * 3
    with pytest.raises(InputError, match="needs at least as many; got 5"):
        PublicPrototypes(
            PureDP(0.01), [0, 1, 2], n_prototypes=6, public=PublicData(public)
        ).fit(X, y)


class Rereading(Table):
    """A table of which others than the first reading find other rows, as a server may do."""

    def __init__(self, rows, later):
        super().__init__(rows)
        self._later = later

    def blocks(self, size):
        yield from super().blocks(size)
        self._rows = self._later


class FreshWorkers:
    """An engine whose every call reads the records anew, as other processes do."""

    assumption = None

    def __init__(self):
        self.calls = 0

    def check(self):
        pass

    def each(self, function, items):
        parts_module.CACHE.clear()
        self.calls += 1
        yield from ((place, function(item)) for place, item in enumerate(items))


def test_records_that_are_others_at_the_second_look_select_nothing(data):
    X, y, public = data

    def table(later):
        engine = FreshWorkers()
        part = SimpleNamespace(read=lambda: (X if engine.calls < 2 else later, y))
        return PartedTable(
            parts=(part,),
            labelled=True,
            n_features=X.shape[1],
            engine=engine,
        )

    model = PublicPrototypes(PureDP(2.0), [0, 1, 2], public=PublicData(public))
    assert model.fit(table(X)).public_indices_.shape == (3, 1)
    with pytest.raises(InputError, match="the records changed while they were read"):
        model.fit(table(np.concatenate([-X[:1], X[1:]])))


@pytest.mark.parametrize("n_prototypes", [1, 3])
def test_a_pool_that_is_another_at_the_second_look_selects_nothing(data, n_prototypes):
    """Its rows could be such that which of them has the scores of the first look tells these, without noise."""
    X, y, public = data
    model = PublicPrototypes(
        PureDP(2.0),
        [0, 1, 2],
        n_prototypes=n_prototypes,
        clip=(0.0, 2.0),
        random_state=1,
    )
    with pytest.raises(InputError, match="changed while they were read"):
        model.set_params(public=PublicData(Rereading(public, public[::-1]))).fit(X, y)
    with pytest.raises(AttributeError):
        model.public_indices_  # noqa: B018
    of_same = (
        model.set_params(public=PublicData(Rereading(public, 2 * public)))
        .fit(X, y)
        .public_indices_
    )  # the same lattice rows
    assert (
        of_same
        == fitted(data, n_prototypes=n_prototypes, clip=(0.0, 2.0)).public_indices_
    ).all()


class OddTable(Table):
    """Yields fewer rows at a time than it is asked for."""

    def blocks(self, size):
        yield from iter_blocks(self._rows, 7)


def test_streams_memory_limits_and_arrays_give_the_same_model(data, monkeypatch):
    X, y, public = data
    array = fitted(data, n_prototypes=2)

    def assert_same():
        for rows in (public, Table(public), OddTable(public)):
            model = fitted((Table(X), y, rows), n_prototypes=2)
            assert (array.public_indices_ == model.public_indices_).all()
            assert (array.prototypes_ == model.prototypes_).all()

    assert_same()
    # Parts of one block, which are looked at one by one.
    for name, value in (
        ("PUBLIC_ROWS", 16),
        ("_TALLY_BYTES", 1 << 20),
        ("_LOOK_BYTES", 999),
    ):
        monkeypatch.setattr(selection, name, value)
        assert_same()


def test_ids_of_a_public_table_name_the_selected_rows(data):
    X, y, public = data
    ids = [f"photo {row}" for row in range(len(public))]
    model = fitted((X, y, Table(public, ids)), n_prototypes=2)
    assert model.public_ids_.tolist() == [
        [f"photo {row}" for row in rows] for rows in model.public_indices_
    ]
    assert model.to_bytes() != fitted(data, n_prototypes=2).to_bytes()
    assert model.set_params(public=PublicData(public)).fit(X, y).public_ids_ is None


# What one selection of range 2 costs in Gaussian DP.
MU = float(2 * stats.norm.ppf(1 / (1 + np.exp(-1))))


@pytest.mark.parametrize(
    ("budget", "epsilon"),
    [
        (PureDP(2.0), 2.0),
        (ApproxDP(2.0, 1e-6), 2.0),
        (ZCDP(0.5), 2.0),
        (GaussianDP(MU), 2.0),
    ],
)
def test_every_notion_buys_its_selection(data, budget, epsilon):
    release = fitted(data, budget).guarantee_.releases[0]
    assert release.parameters["epsilon_per_selection"] == pytest.approx(epsilon)
    assert release.cost["epsilon"] == pytest.approx(epsilon)
    assert release.cost["rho"] == pytest.approx(epsilon**2 / 8)
    assert release.cost["mu"] == pytest.approx(MU)


@pytest.mark.parametrize("budget", [PureDP(2.0), ZCDP(0.5), GaussianDP(MU)])
def test_replace_one_pays_for_two_selections(data, budget):
    release = fitted(data, budget, adjacency="replace-one").guarantee_.releases[0]
    assert release.parameters["epsilon_per_selection"] == pytest.approx(1.0)
    assert release.cost == pytest.approx({"epsilon": 2.0, "mu": MU, "rho": 0.5})


def test_automatic_bounds_depend_on_public_rows_alone(data):
    X, y, public = data
    model = fitted(data)
    other = fitted((X[:5] * -1, y[:5], public))
    assert model.clip_ == other.clip_
    assert 0 <= model.clip_[0] < model.clip_[1] <= 2
    assert fitted((X, y, public[:1])).clip_ == (0.0, 2.0)
    assert fitted((X, y, np.ones((4, 24)))).clip_ == (0.0, 2.0)


@pytest.mark.parametrize(
    "clip", [(1.0, 1.0), (-0.1, 1.0), (0.5, 2.1), "tight", (float("nan"), 1.0)]
)
def test_bounds_must_lie_in_order_within_0_and_2(data, clip):
    with pytest.raises(ParameterError, match="clip must be"):
        fitted(data, clip=clip)


def test_public_rows_are_required_and_must_fit(data):
    X, y, public = data
    with pytest.raises(ParameterError, match="public is required"):
        PublicPrototypes(PureDP(1.0), [0, 1, 2]).fit(X, y)
    with pytest.raises(InputError, match="must have the 24 features of X; got 23"):
        PublicPrototypes(PureDP(1.0), [0, 1, 2], public=PublicData(public[:, 1:])).fit(
            X, y
        )
    with pytest.raises(ParameterError, match="n_prototypes"):
        fitted(data, n_prototypes=0)
