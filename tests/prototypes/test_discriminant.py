"""DiscriminantPrototypes: what it releases, that neighbours differ by no more, and that it classifies."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dppl
from dppl import ZCDP, ApproxDP, DiscriminantPrototypes, GaussianDP, Ledger, PureDP
from dppl.errors import BudgetError, InputError
from dppl.lattice import Lattice, iter_blocks
from dppl.lattice import residuals as residuals_module
from dppl.mechanisms import RoundedGaussian, SymmetricRoundedGaussian
from dppl.privacy import Cost
from dppl.privacy.composition import covers
from dppl.prototypes import discriminant as module

CLASSES = ["a", "b", "c"]
DIM = 6
RNG = np.random.default_rng(0)
PUBLIC = RNG.normal(size=(80, DIM)) @ np.diag([3, 2, 1, 1, 0.5, 0.2]) + 0.3

values = st.one_of(st.floats(-2, 2), st.sampled_from([0.0, 1e-320, 1e300, -1e300, np.nan, np.inf, -np.inf]))
records = st.integers(0, 8).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, (n, DIM), elements=values),
        st.lists(st.sampled_from(CLASSES), min_size=n, max_size=n),
        hnp.arrays(np.float64, DIM, elements=values),
        st.sampled_from(CLASSES),
    )
)


class Transcript:
    """Records what goes into the mechanisms of a fit, and lets a second fit see the results of the first.

    Later releases depend on earlier results. What a record can change is therefore said for each release given the
    results before it: exactly what composition asks for.
    """

    def __init__(self, monkeypatch):
        self._monkeypatch, self._original = monkeypatch, {}
        for cls in (RoundedGaussian, SymmetricRoundedGaussian):
            self._original[cls] = cls.release

    def fit(self, model, X, y, results=None, public=PUBLIC):
        """Return the model, and (mechanism, exact input, result) of every release."""
        entries = []

        def spy(mechanism, exact, source):
            result = self._original[type(mechanism)](mechanism, exact, source)
            if results is not None:
                result = results[len(entries)]
            entries.append((mechanism, exact.copy(), result))
            return result

        with self._monkeypatch.context() as patched:
            for cls in self._original:
                patched.setattr(cls, "release", spy)
            return model.fit(X, y, X_public=public), entries


def make(budget=None, **options):
    return DiscriminantPrototypes(budget or ZCDP(2.0), CLASSES, **options)


def squared_distance(mechanism, first, second):
    difference = (first - second).astype(object)
    return Fraction(int((difference**2).sum()))


def check_neighbours(monkeypatch, case, budget=None, public=PUBLIC):
    X, y, row, label = case
    transcript = Transcript(monkeypatch)
    model, first = transcript.fit(make(budget), np.concatenate([X, row[None]]), [*y, label], public=public)
    results = [result for *_, result in first]
    other, second = transcript.fit(make(budget), X, y, results=results, public=public)
    assert model.to_bytes() == other.to_bytes()  # nothing but the releases tells them apart
    assert [m for m, *_ in first] == [m for m, *_ in second]  # the noise is planned by public and released values only
    assert len(first) == 9
    for (mechanism, with_row, _), (_, without, _) in zip(first, second, strict=True):
        assert with_row.dtype == without.dtype == np.int64
        assert squared_distance(mechanism, with_row, without) <= mechanism.squared_sensitivity
    costs = [Cost.from_dict(mechanism.cost) for mechanism, *_ in first]
    assert covers(budget or ZCDP(2.0), costs)


@given(case=records)
@settings(max_examples=60)
def test_each_release_moves_by_the_stated_sensitivity_given_those_before(case):
    with pytest.MonkeyPatch.context() as monkeypatch:
        check_neighbours(monkeypatch, case)
        check_neighbours(monkeypatch, case, ApproxDP(3.0, 1e-6), public=None)
        check_neighbours(monkeypatch, case, GaussianDP(1.3))


REAL = (RNG.normal(size=(40, DIM)) + 1, [CLASSES[i % 3] for i in range(40)], np.full(DIM, -2.0), "b")


def test_the_neighbour_test_accepts_the_estimator_as_it_is(monkeypatch):
    check_neighbours(monkeypatch, REAL)


def plant_true_size(monkeypatch):
    """The feature map follows the true number of records, which nobody paid for."""
    original = module._Features.of
    sizes = []

    def spy(self, mechanism, rows, codes, public, source):
        sizes[:] = [len(codes)]
        return release(self, mechanism, rows, codes, public, source)

    release = DiscriminantPrototypes._release
    monkeypatch.setattr(DiscriminantPrototypes, "_release", spy)
    monkeypatch.setattr(
        module._Features, "of", classmethod(lambda cls, r, m, p, h: original(r, m, p, min(1.0, sizes[0] / 60)))
    )


def plant_unclipped_residuals(monkeypatch):
    """Residuals of norm √2 at most, on a grid meant for norm 1."""

    def on_grid(residuals, norms, clip):
        return np.trunc(residuals.astype(np.float64) * residuals_module.RESOLUTION)

    monkeypatch.setattr(residuals_module, "_on_grid", on_grid)
    # At a budget where the weights are sure of their classes, and a record that they are wrong about.
    X = np.repeat(np.eye(DIM)[:3], 300, axis=0) + 0.05 * RNG.normal(size=(900, DIM))
    return (X, np.repeat(CLASSES, 300).tolist(), np.eye(DIM)[0], "b"), ZCDP(1e6)


def plant_batch_dependent_map(monkeypatch):
    """Rows are centred by their own batch."""
    original = Lattice.transform
    monkeypatch.setattr(Lattice, "transform", lambda self, X: original(self, np.asarray(X) - np.nanmean(X, axis=0)))


def plant_unreleased_weights(monkeypatch):
    """Gradients are taken at weights that noise never touched."""
    original = DiscriminantPrototypes._release

    def spy(self, mechanism, rows, codes, public, source):
        known = np.asarray(rows)[codes >= 0]
        secret.clear()
        secret.append(np.nan_to_num(known).sum())
        return original(self, mechanism, rows, codes, public, source)

    secret = []
    gradient = module.SoftmaxGradient.sum

    def sum_at_secret(self, blocks, codes, weights, offsets=None, **options):
        return gradient(self, blocks, codes, weights * (1 + secret[0] % 7), offsets, **options)

    monkeypatch.setattr(DiscriminantPrototypes, "_release", spy)
    monkeypatch.setattr(module.SoftmaxGradient, "sum", sum_at_secret)


def plant_true_counts_in_the_softmax(monkeypatch):
    """The prior in the softmax is that of the true counts, and so steep that a count shows beside the record."""
    original = DiscriminantPrototypes._release
    counts = []

    def spy(self, mechanism, rows, codes, public, source):
        counts[:] = [np.bincount(codes[codes >= 0], minlength=3)]
        return original(self, mechanism, rows, codes, public, source)

    monkeypatch.setattr(DiscriminantPrototypes, "_release", spy)
    monkeypatch.setattr(module.Discriminant, "log_priors", property(lambda self: 20 * np.log(counts[0] + 1e-3)))


@pytest.mark.parametrize(
    "plant",
    [
        plant_true_size,
        plant_unclipped_residuals,
        plant_batch_dependent_map,
        plant_unreleased_weights,
        plant_true_counts_in_the_softmax,
    ],
)
def test_planted_violations_are_caught(monkeypatch, plant):
    case, budget = plant(monkeypatch) or (REAL, None)
    with pytest.raises(AssertionError):
        check_neighbours(monkeypatch, case, budget)


def test_gram_noise_that_counts_off_diagonal_entries_once_is_caught():
    """Off the diagonal a record counts twice in the Frobenius norm, so noise of σ/√2 there is needed, and enough."""
    norm = Lattice(DIM).squared_norm
    gram = SymmetricRoundedGaussian.within(ZCDP(1.0), norm**2)
    q = Lattice(DIM).transform(np.ones((1, DIM))).astype(object)[0]
    product = np.outer(q, q)

    def cost(diagonal_std, other_std):
        squares = [Fraction(int(v)) ** 2 for v in np.diag(product)]
        others = [Fraction(int(product[i, j])) ** 2 for i in range(DIM) for j in range(i + 1, DIM)]
        return sum(squares) / (2 * Fraction(diagonal_std) ** 2) + sum(others) / (2 * Fraction(other_std) ** 2)

    assert cost(gram.noise_std, gram.off_diagonal_noise_std) <= 1
    # As if the norm counted each pair once, the noise would be set for half of these squares.
    assert cost(gram.noise_std / 2**0.5, gram.off_diagonal_noise_std / 2**0.5) > 1


BUDGETS = [ZCDP(1e-5), ZCDP(0.5), ZCDP(2048.0), ApproxDP(1.0, 1e-6), GaussianDP(1.0), GaussianDP(1 / 3)]


def squared_mu(guarantee):
    return sum(Fraction(release.cost["mu"]) ** 2 for release in guarantee.releases)


@pytest.mark.parametrize("budget", BUDGETS)
def test_what_is_released_fits_into_the_budget_and_is_stated(budget):
    model = make(budget).fit(REAL[0], REAL[1], X_public=PUBLIC)
    releases = model.guarantee_.releases
    assert covers(budget, [Cost.from_dict(release.cost) for release in releases])
    allowance = Fraction(budget.gaussian_allowance().mu) ** 2
    assert 0.999 * allowance < squared_mu(model.guarantee_) <= allowance
    assert [release.statistic.split()[0] for release in releases[:4]] == ["number", "number", "Gram", "class"]


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_plan_that_a_ledger_charges_costs_no_less_than_what_is_released(budget):
    """To the last bit: the shares of the releases follow the noisy number of records, which differs from run to run."""
    plan = make(budget).guarantee_for(DIM, PUBLIC)
    assert squared_mu(plan) <= Fraction(budget.gaussian_allowance().mu) ** 2
    for _ in range(20):
        released = make(budget).fit(REAL[0], REAL[1], X_public=PUBLIC).guarantee_
        assert squared_mu(released) <= squared_mu(plan)
        exact_rho = [sum(cost.exact_rho for cost in promise.costs()) for promise in (released, plan)]
        assert exact_rho[0] <= exact_rho[1]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(3, 24))
    y = rng.integers(0, 3, 900)
    X = centers[y] + 0.8 * rng.normal(size=(900, 24))
    return X, np.array(CLASSES)[y], rng.normal(size=(500, 24))


@pytest.mark.parametrize("with_public", [True, False])
def test_it_classifies_with_and_without_public_rows(data, with_public):
    X, y, P = data
    model = make(ZCDP(8.0), random_state=0).fit(X[:600], y[:600], X_public=P if with_public else None)
    assert model.score(X[600:], y[600:]) > 0.9
    probabilities = model.predict_proba(X[600:])
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert (np.array(CLASSES)[probabilities.argmax(axis=1)] == model.predict(X[600:])).all()
    assert model.prototypes_.shape == (3, 24)
    assert np.allclose(np.linalg.norm(model.prototypes_, axis=1), 1, atol=1e-5)
    # Each class's representative looks like its rows.
    means = np.stack([X[y == c].mean(axis=0) for c in CLASSES])
    assert ((model.prototypes_ @ means.T).argmax(axis=1) == np.arange(3)).all()


def test_probabilities_say_how_often_a_prediction_is_right(data):
    X, y, P = data
    model = make(ZCDP(2.0), random_state=0).fit(X[:600], y[:600], X_public=P)
    confidence = model.predict_proba(X[600:]).max(axis=1)
    right = model.predict(X[600:]) == y[600:]
    assert abs(confidence.mean() - right.mean()) < 0.05


class Table:
    """A table that streams and is no array."""

    def __init__(self, rows):
        self._rows, self.shape = rows, rows.shape

    def blocks(self, size):
        yield from iter_blocks(self._rows, min(size, 100))


def test_a_table_in_blocks_gives_the_same_model(data):
    X, y, P = data
    whole = make(random_state=3).fit(X, y, X_public=P)
    streamed = make(random_state=3).fit(Table(X), y, X_public=P)
    assert whole.to_bytes() == streamed.to_bytes()


def test_the_projection_of_a_row_does_not_depend_on_its_batch():
    rng = np.random.default_rng(2)
    X, projection = rng.normal(size=(1500, 37)).astype(np.float32), rng.normal(size=(41, 37))
    lattice = Lattice(37, center=rng.normal(size=37) / 10, projection=projection)
    whole = lattice.transform(X)
    assert whole.shape == (1500, 41)
    for size in (1, 2, 3, 17, 512, 1000):
        assert (np.concatenate(list(lattice.blocks(X, size))) == whole).all()
    for start in (1, 5, 600):
        assert (lattice.transform(X[start:]) == whole[start:]).all()
    # A plain float product, the negative control, moves some row of some batch by a rounding step.
    u = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    matrix = projection.astype(np.float32).T
    assert any((u[start : start + 1] @ matrix != (u @ matrix)[start]).any() for start in range(200))
    exact = (u.astype(np.float64) - lattice.center) @ projection.T
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    assert np.abs(whole / lattice.scale - exact).max() < 1.5 / lattice.scale


def test_a_saved_model_comes_back(data, tmp_path):
    X, y, P = data
    model = make(random_state=1).fit(X, y, X_public=P)
    model.save(tmp_path / "m.safetensors")
    again = dppl.load(tmp_path / "m.safetensors")
    assert again.to_bytes() == model.to_bytes()
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert str(again.guarantee_) == str(model.guarantee_)


def test_pure_dp_is_refused_with_a_way_out(data):
    X, y, _ = data
    with pytest.raises(BudgetError, match="PublicPrototypes"):
        make(PureDP(1.0)).fit(X, y)


def test_public_rows_of_another_width_are_refused(data):
    X, y, P = data
    with pytest.raises(InputError, match="features"):
        make().fit(X, y, X_public=P[:, :5])


def test_no_records_at_all_are_a_data_set_like_any_other():
    model = make().fit(np.empty((0, DIM)), [], X_public=PUBLIC)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("classes", [["a"], ["a", "b"]])
def test_one_class_and_two_are_enough(classes):
    X = np.abs(RNG.normal(size=(30, DIM)))
    y = [classes[i % len(classes)] for i in range(30)]
    model = DiscriminantPrototypes(ZCDP(1.0), classes).fit(X, y, X_public=PUBLIC)
    assert set(model.predict(X)) <= set(classes)


def test_the_ledger_pays_for_all_of_it(data, tmp_path):
    X, y, P = data
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(2.0))
    make(ZCDP(2.0)).fit(X, y, X_public=P, ledger=ledger)
    assert 2.0 * (1 - 1e-9) < ledger.spent()["rho"] <= 2.0


def test_int8_rows_are_directions(data):
    X, y, P = data
    q = Lattice(24).transform(X)
    from_int8 = make(ZCDP(8.0), random_state=0).fit(q, y, X_public=P)
    from_floats = make(ZCDP(8.0), random_state=0).fit(q.astype(np.float64), y, X_public=P)
    assert (from_int8.coef_ == from_floats.coef_).all()
    assert from_int8.score(X, y) > 0.9


def test_the_system_draws_new_noise_every_time(data):
    X, y, P = data
    first, second = (make().fit(X, y, X_public=P) for _ in range(2))
    assert (first.coef_ != second.coef_).any()
    assert first.guarantee_.fit_for_release
    assert partial(make, random_state=0)().fit(X, y).guarantee_.fit_for_release is False


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (ZCDP(1e-17), "needs a budget of mu from 2e-06 to 4e"),
        (ZCDP(1e-13), "needs a budget of mu from 2e-06 to 4e"),
        (ZCDP(2e15), "needs a budget of mu from 2e-06 to 4e"),
        (GaussianDP(1e-7), "needs a budget of mu from 2e-06 to 4e"),
        (GaussianDP(9e7), "needs a budget of mu from 2e-06 to 4e"),
        (ZCDP(1e16), "mu must be from 1e-15 to 1e"),
        (ZCDP(1e290), "mu must be from 1e-15 to 1e"),
    ],
)
def test_budgets_that_cannot_be_spent_are_refused_before_anything_is_paid(budget, words, data, tmp_path):
    account = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1e300))
    with pytest.raises(BudgetError, match=words):
        make(budget).fit(np.eye(DIM), list("abcabc"), ledger=account)
    assert account.releases() == []


def test_equal_gradients_are_told_once():
    model = make().fit(np.eye(DIM), list("abcabc"))
    assert str(model.guarantee_).count("gradient of the softmax loss") == 1
    assert "5 times gradient of the softmax loss (3 x 6) by the rounded Gaussian" in str(model.guarantee_)
    assert sum("gradient" in release.statistic for release in model.guarantee_.releases) == 5


@pytest.mark.parametrize("cls", [DiscriminantPrototypes, dppl.MeanPrototypes])
def test_a_record_that_underflows_shows_nowhere(cls):
    """Whoever lets NumPy raise would else learn that there is such a record, and lose the charge."""
    X = np.repeat(np.eye(DIM), 3, axis=0)
    X[3] = [1, 1e-310, 0, 0, 0, 0]
    with np.errstate(all="raise"):
        cls(ZCDP(1.0), CLASSES).fit(X, ["a", "b", "c"] * 6).predict(X)


def test_private_rows_as_public_ones_are_refused_whatever_holds_them():
    rows = np.eye(DIM).tolist()
    with pytest.raises(dppl.errors.ParameterError, match="X_public must be public data"):
        make().fit(rows, list("abcabc"), X_public=rows)
