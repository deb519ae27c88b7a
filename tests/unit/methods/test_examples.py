"""A start from public examples: its arithmetic, what it gains, what wrong examples cost, and what is refused.

Privacy laws of fits with examples are in `tests/laws`, whose recipes include them.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

import dppl
from dppl import (
    ApproxDP,
    GaussianDP,
    MeanPrototypes,
    PrivateSearch,
    PublicData,
    SoftmaxPrototypes,
)
from dppl.errors import BudgetError, InputError, ModelFileError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.residuals import SoftmaxGradient
from dppl.kernel.privacy.terms import PublicInput, Term
from dppl.methods.ascent import CLIP, STEPS
from dppl.methods.examples import _PRIOR, _RIDGE, ExampleClassifier, GuidedAscent, Trust
from dppl.methods.sizes import ClassSizes

RNG = np.random.default_rng(0)


# The classifier of the examples


@pytest.mark.parametrize("n_classes", [3, 7])
def test_the_examples_classifier_is_ridge_softmax_regression(n_classes):
    codes = np.arange(40) % n_classes
    features = RNG.normal(size=(40, 12)) + 2 * np.eye(n_classes, 12)[codes]
    found = ExampleClassifier.fit(features, codes, n_classes)
    oracle = LogisticRegression(
        C=1 / _RIDGE, fit_intercept=False, tol=1e-8, max_iter=1000
    )
    np.testing.assert_allclose(found.coef, oracle.fit(features, codes).coef_, atol=2e-3)
    np.testing.assert_allclose(found.coef.sum(axis=0), 0, atol=1e-6)


def test_classes_without_examples_have_no_weights_and_are_never_ranked_first():
    found = ExampleClassifier.fit(np.eye(2, 5), np.array([3, 1]), 6)
    assert found.known.tolist() == [False, True, False, True, False, False]
    assert (found.coef[~found.known] == 0).all()
    logits = RNG.normal(size=(50, 5)) @ found.coef.T + found.offsets
    assert set(logits.argmax(axis=1)) <= {1, 3}


def test_one_class_with_examples_says_nothing():
    assert not ExampleClassifier.fit(np.eye(2, 5), np.array([1, 1]), 3).coef.any()


def test_the_gradient_of_examples_is_that_of_their_loss():
    features = RNG.normal(size=(6, 4)) / 4
    codes = np.array([0, 0, 1, 2, 2, 2])
    examples = ExampleClassifier.fit(features, codes, 3)
    weights = RNG.normal(size=(3, 4)) / 9
    offsets = np.log([0.5, 0.3, 0.2])
    trust = np.array([0.3, 1.0, 0.7])

    def loss(weights):
        logits = features @ weights.T + offsets
        return float(
            (
                trust[codes] * (logsumexp(logits, axis=1) - logits[np.arange(6), codes])
            ).sum()
        )

    # Residuals are longer than the clip here, so the gradient is that of a loss whose
    # examples are weighed by it.
    residuals = np.eye(3)[codes] - np.exp(
        features @ weights.T
        + offsets
        - logsumexp(features @ weights.T + offsets, axis=1, keepdims=True)
    )
    lengths = np.linalg.norm(residuals, axis=1)
    assert (lengths > CLIP).all()
    found = examples.gradient(weights, offsets, trust)
    expected = ((trust[codes] * CLIP / lengths)[:, None] * residuals).T @ features
    np.testing.assert_allclose(found, expected)
    # Without the clip it is the descent direction of the loss.
    unclipped = ((trust[codes])[:, None] * residuals).T @ features
    step = 1e-6 * unclipped
    np.testing.assert_allclose(
        loss(weights - step) - loss(weights + step),
        2 * (step * unclipped).sum(),
        rtol=1e-4,
    )


# The count of hits


@given(st.integers(0, 40), st.integers(2, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_hits_are_those_of_exact_arithmetic_in_every_blocking(n, n_classes, seed):
    rng = np.random.default_rng(seed)
    lattice = Lattice(5)
    rows = (
        lattice.transform(rng.normal(size=(n, 5))) if n else np.empty((0, 5), np.int8)
    )
    codes = rng.integers(-1, n_classes, size=n)
    weights = rng.integers(-3, 4, size=(n_classes, 5)).astype(float)  # ties are common
    exact = rows.astype(int) @ (weights.T * 2**10).astype(int)
    gradient = SoftmaxGradient(lattice)
    own = exact[np.arange(n), np.maximum(codes, 0)]
    far = np.abs(exact - own[:, None]) > 2**12
    far[np.arange(n), np.maximum(codes, 0)] = True
    clear = far.all(axis=1)  # where no rounding of weights decides
    expected = int(((exact <= own[:, None]).all(axis=1) & (codes >= 0) & clear).sum())
    for size in (1, 3, 64):
        blocks = [rows[start : start + size] for start in range(0, n, size)]
        kept = [clear[start : start + size] for start in range(0, n, size)]
        found = gradient.hits(
            [b[k] for b, k in zip(blocks, kept, strict=True)], codes[clear], weights
        )
        assert found.sum() == expected


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_a_hit_depends_on_no_record_beside_it(n, seed):
    rng = np.random.default_rng(seed)
    lattice = Lattice(5)
    rows = lattice.transform(rng.normal(size=(n, 5)).round())
    codes = rng.integers(-1, 4, size=n)
    weights = rng.integers(-2, 3, size=(4, 5)) / 3
    gradient = SoftmaxGradient(lattice)
    found = gradient.hits([rows], codes, weights)
    assert (found[:-1] == gradient.hits([rows[:-1]], codes[:-1], weights)).all()
    assert not found[codes < 0].any()


# Trust


def reference_trust(agreement, noise_std, spread, known, hits, hits_std):
    """The posterior by loops over hypotheses, shifts and accuracies."""
    n = len(known)
    pairs = [(c, d) for c in range(n) for d in range(n) if c != d and known[d]]
    weights = [
        1 / ((noise_std[c] ** 2 + 0.01 * (1 + spread[c] ** 2)) * (1 + spread[c] ** 2))
        for c, _ in pairs
    ]
    values = [agreement[pair] for pair in pairs]
    middle = float(np.average(values, weights=weights))
    excess = [
        (value - middle) ** 2 - noise_std[c] ** 2
        for value, (c, _) in zip(values, pairs, strict=True)
    ]
    variance = max(float(np.average(excess, weights=weights)), 0.0025)
    own = np.flatnonzero(known)
    posterior = {}
    likelihoods = {}
    for number, (name, prior) in enumerate(
        zip(("none", "some", "all"), _PRIOR, strict=True)
    ):
        right = number / 2
        hit = [
            norm.logpdf(
                hits,
                right * b + (1 - right) / len(own),
                math.sqrt(hits_std**2 + (0.5 / len(own)) ** 2),
            )
            for b in np.arange(0.2, 0.95, 0.1)
        ]
        for a in np.arange(0.1, 0.85, 0.1):
            total = math.log(prior) + logsumexp(hit)
            for c in own:
                wrong = norm.logpdf(
                    agreement[c, c],
                    middle,
                    math.sqrt(variance * (1 + spread[c] ** 2) + noise_std[c] ** 2),
                )
                width = math.sqrt(
                    variance
                    + noise_std[c] ** 2
                    + (abs(middle) + a) ** 2 * spread[c] ** 2
                )
                fits = norm.logpdf(agreement[c, c], middle + a, width)
                likelihoods[a, c] = math.exp(fits - np.logaddexp(wrong, fits))
                total += {
                    "none": wrong,
                    "some": np.logaddexp(wrong, fits) - math.log(2),
                    "all": fits,
                }[name]
            posterior[name, a] = total
    normalized = logsumexp(list(posterior.values()))
    whole = sum(
        math.exp(value - normalized)
        for (name, _), value in posterior.items()
        if name == "all"
    )
    complete = len(own) / n
    some = np.zeros(n)
    for c in own:
        some[c] = sum(
            math.exp(value - normalized) * likelihoods[a, c]
            for (name, a), value in posterior.items()
            if name == "some"
        ) + whole * (1 - complete)
    return whole * complete, some


@pytest.mark.slow
@given(
    st.integers(2, 7),
    st.floats(0.02, 1.5),
    st.floats(-0.1, 1.2),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_trust_is_the_posterior(n, noise, hits, seed, gaps):
    rng = np.random.default_rng(seed)
    known = rng.random(n) < 0.6 if gaps else np.ones(n, bool)
    known[rng.choice(n, 2, replace=False)] = True
    noise_std = noise * rng.uniform(0.5, 2, size=n)
    spread = rng.uniform(0, 2, size=n)
    agreement = rng.normal(size=(n, n)) * noise_std[:, None] + np.diag(
        rng.uniform(0, 0.6, size=n)
    )
    found = Trust.of(agreement, noise_std, spread, known, (hits, 0.1))
    all_right, right = reference_trust(agreement, noise_std, spread, known, hits, 0.1)
    np.testing.assert_allclose(found.all_right, all_right, atol=1e-9)
    np.testing.assert_allclose(found.right, right, atol=1e-9)
    assert ((found.all_right + found.right) <= 1 + 1e-9).all()


def test_clear_evidence_is_believed():
    """Agreement without noise to speak of: nothing here is left to chance."""
    n = 12
    right = 0.4 * np.eye(n)
    noise_std = np.full(n, 0.02)
    spread = np.zeros(n)
    known = np.ones(n, bool)
    assert Trust.of(right, noise_std, spread, known, (0.6, 0.01)).all_right > 0.99
    nothing = Trust.of(
        np.roll(right, 1, axis=1), noise_std, spread, known, (0.02, 0.01)
    )
    assert (nothing.all_right + nothing.right).max() < 0.01
    half = right * (np.arange(n) < n // 2)
    some = Trust.of(half, noise_std, spread, known, (0.3, 0.01))
    assert some.all_right < 0.01
    assert some.right[: n // 2].min() > 0.99
    assert some.right[n // 2 :].max() < 0.05


# The ascent


def ascent(hits, n=6, dim=20, total=600.0, noise_std=3.0):
    sizes = ClassSizes.of(total, np.full(n, int(total / n)), 1.0)
    features = np.eye(n, dim) - 1 / n
    examples = ExampleClassifier.fit(features, np.arange(n), n)
    return GuidedAscent(
        sizes,
        np.full(dim, 1 / dim),
        noise_std,
        examples,
        np.array([hits, total - hits]),
        1.0,
    ), examples


def test_the_ascent_starts_from_right_examples_and_not_from_wrong_ones():
    for sign, hits in ((1, 500.0), (-1, 0.0)):
        guided, examples = ascent(hits)
        directions = examples.coef / np.linalg.norm(
            examples.coef, axis=1, keepdims=True
        )
        for _ in range(3):
            guided.move(sign * 0.3 * CLIP * 100 * directions)
        along = (guided._start * examples.coef).sum(axis=1)
        assert (along > 0).all() if sign == 1 else np.abs(along).max() < 0.05


def test_where_nothing_but_noise_is_learned_the_model_is_that_of_the_examples():
    """The mend of examples that private noise made worse: with right examples the noise is scaled away."""
    guided, examples = ascent(7.0, total=12.0, noise_std=1e6)
    guided._hits = 0.6, 1e-3
    for _ in range(STEPS):
        guided.move(RNG.normal(scale=1e6, size=(6, 20)))
    cosine = (
        (guided.weights * examples.coef).sum()
        / np.linalg.norm(guided.weights)
        / np.linalg.norm(examples.coef)
    )
    assert cosine > 0.99


# Fits


def mixture(n_classes=20, dim=64, per_class=6, seed=0):
    """Rows around class directions, and one public example a class that is about as far from its direction."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_classes, dim))
    y = np.repeat(np.arange(n_classes), per_class)
    X = centers[y] + 1.2 * rng.normal(size=(len(y), dim))
    tests = np.repeat(np.arange(n_classes), 30)
    T = centers[tests] + 1.2 * rng.normal(size=(len(tests), dim))
    return X, y, centers + 0.7 * rng.normal(size=centers.shape), T, tests


def fitted(budget, data, names, labels, seed=0, **more):
    X, y, *_ = data
    public = (
        None if names is None else PublicData(examples=names, example_classes=labels)
    )
    return SoftmaxPrototypes(
        budget, classes=range(20), public=public, random_state=seed
    ).fit(X, y, **more)


def test_right_examples_help_where_records_are_few_and_permuted_ones_do_no_harm():
    """Means of 10 fixed seeds, so no alarm is by chance; the differences seen are larger by half."""
    zero = []
    right = []
    permuted = []
    for seed in range(10):
        data = mixture(seed=seed)
        _, _, names, T, t = data
        shuffled = np.roll(np.arange(20), 1)
        for found, examples in (
            (zero, (None, None)),
            (right, (names, range(20))),
            (permuted, (names, shuffled)),
        ):
            model = fitted(GaussianDP(0.5), data, *examples, seed=seed)
            found.append(model.score(T, t))
    assert np.mean(right) > np.mean(zero) + 0.3
    assert np.mean(permuted) > np.mean(zero) - 0.1


def test_declared_classes_without_records_are_predicted_by_their_examples():
    X, y, names, T, t = mixture(per_class=40)
    gone = [3, 7, 11, 15]
    seen = ~np.isin(y, gone)
    wanted = np.isin(t, gone)
    for public, low, high in (
        (PublicData(None, names, range(20)), 0.5, 1.0),
        (None, 0.0, 0.1),
    ):
        model = SoftmaxPrototypes(
            GaussianDP(2.0), range(20), public=public, random_state=0
        ).fit(X[seen], y[seen])
        assert low <= model.score(T[wanted], t[wanted]) <= high
        assert model.score(T[~wanted], t[~wanted]) > 0.95


def test_with_mu_of_0_no_private_record_is_read():
    *_, names, T, t = mixture()
    empty = np.empty((0, 64)), []
    model = SoftmaxPrototypes(
        GaussianDP(0),
        classes=range(20),
        public=PublicData(examples=names, example_classes=range(20)),
    ).fit(*empty)
    other = SoftmaxPrototypes(GaussianDP(0), classes=range(20))
    other.set_params(public=PublicData(examples=names, example_classes=range(20))).fit(
        RNG.normal(size=(9, 64)), ["not a class"] * 9
    )
    assert model.to_bytes() == other.to_bytes()
    assert model.score(T, t) > 0.8
    guarantee = model.guarantee_
    assert guarantee.releases == ()
    assert guarantee.mu == guarantee.epsilon(1e-6) == 0
    assert guarantee.best_guess() == 0.5
    assert str(guarantee).startswith(
        "Nothing was released from private records: the model is a function of public"
    )
    assert "Released:" not in str(guarantee)


def test_a_model_of_examples_alone_is_saved_and_costs_nothing(tmp_path):
    *_, names, T, t = mixture()
    ledger = dppl.Ledger(tmp_path / "ledger.db", "records", GaussianDP(1.0))
    model = SoftmaxPrototypes(GaussianDP(0), classes=range(20))
    model.set_params(public=PublicData(examples=names, example_classes=range(20))).fit(
        np.empty((0, 64)), [], ledger=ledger
    )
    assert ledger.releases() == []
    model.save(tmp_path / "m.safetensors")
    again = dppl.load(tmp_path / "m.safetensors")
    assert again.score(T, t) == model.score(T, t)
    assert again.guarantee_.to_dict() == model.guarantee_.to_dict()


def test_mu_of_0_needs_examples():
    X, y, *_ = mixture()
    with pytest.raises(BudgetError, match="give public examples of the classes"):
        SoftmaxPrototypes(GaussianDP(0), classes=range(20)).fit(X, y)
    with pytest.raises(BudgetError, match="MeanPrototypes has nothing to fit"):
        MeanPrototypes(GaussianDP(0), classes=range(20)).fit(X, y)


def test_a_search_takes_examples():
    data = mixture()
    X, y, names, *_ = data
    public = PublicData(examples=names, example_classes=range(20))
    search = PrivateSearch(
        SoftmaxPrototypes(ApproxDP(8.0, 1e-6), range(20), public=public),
        {},
        random_state=0,
    )
    search.fit(X, y)
    assert Term(PublicInput.EXAMPLES) in search.guarantee_.public_inputs


def test_examples_may_be_tables():
    data = mixture()
    _, _, names, *_ = data
    plain = fitted(GaussianDP(1.0), data, names, range(20)).to_bytes()
    table = dppl.io.EmbeddingTable.of(names)
    assert fitted(GaussianDP(1.0), data, table, range(20)).to_bytes() == plain


def test_the_order_of_examples_hardly_shows():
    data = mixture()
    _, _, names, T, _ = data
    order = np.random.default_rng(1).permutation(20)
    one = fitted(GaussianDP(1.0), data, names, np.arange(20))
    other = fitted(GaussianDP(1.0), data, names[order], np.arange(20)[order])
    np.testing.assert_allclose(
        one.decision_function(T), other.decision_function(T), rtol=1e-2, atol=1e-2
    )


WRONG = {
    "no labels": (
        (np.eye(2, 64),),
        ParameterError,
        "example_classes must be given with examples",
    ),
    "no rows": (
        (None, [0, 1]),
        ParameterError,
        "example_classes must be given with examples",
    ),
    "none": ((np.empty((0, 64)), []), InputError, "at least one row"),
    "narrow": ((np.eye(2, 63), [0, 1]), InputError, "64 features"),
    "too few labels": (
        (np.eye(2, 64), [0]),
        InputError,
        "public.examples and public.example_classes must",
    ),
    "outside": ((np.eye(2, 64), [0, "Jane"]), InputError, "'Jane' is not one"),
    "zero": ((np.zeros((2, 64)), [0, 1]), InputError, "finite rows that are not zero"),
    "infinite": ((np.full((1, 64), np.inf), [0]), InputError, "finite rows"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_examples_are_refused_before_anything_is_paid(case, tmp_path):
    given, error, words = WRONG[case]
    X, y, *_ = mixture()
    ledger = dppl.Ledger(tmp_path / "ledger.db", "records", GaussianDP(1.0))
    with pytest.raises(error, match=words):
        SoftmaxPrototypes(
            GaussianDP(1.0), range(20), public=PublicData(None, *given)
        ).fit(X, y, ledger=ledger)
    assert ledger.releases() == []


def test_private_rows_are_refused_as_examples():
    X, y, *_ = mixture()
    for same in (X, X[:20], X[::-1]):
        with pytest.raises(
            ParameterError,
            match=r"public.examples must be public data; got the private rows",
        ):
            SoftmaxPrototypes(
                GaussianDP(1.0),
                classes=range(20),
                public=PublicData(examples=same, example_classes=y[: len(same)]),
            ).fit(X, y)


def test_methods_that_do_not_start_from_examples_refuse_them():
    X, y, names, *_ = mixture()
    with pytest.raises(ParameterError, match="MeanPrototypes does not"):
        MeanPrototypes(
            GaussianDP(1.0),
            classes=range(20),
            public=PublicData(examples=names, example_classes=range(20)),
        ).fit(X, y)


# What a reviewer broke


def test_without_a_public_class_list_nothing_is_free():
    *_, names, _, _ = mixture()
    with pytest.raises(ParameterError, match="classes must be the public list"):
        SoftmaxPrototypes(
            GaussianDP(0),
            public=PublicData(examples=names + 1, example_classes=range(20)),
        ).fit(names, range(20))


def test_the_private_records_are_refused_as_examples_too():
    X, y, *_ = mixture()
    model = SoftmaxPrototypes(GaussianDP(1.0), classes=range(20))
    for rows, labels in ((X, y), (X[:20], y[:20].copy()), (X[:20] + 1, y[:20])):
        with pytest.raises(
            ParameterError,
            match=r"public.example\w+ must be public data; got the private",
        ):
            model.set_params(
                public=PublicData(examples=rows, example_classes=labels)
            ).fit(X, y)


def test_private_labels_are_refused_as_labels_of_examples_before_one_is_shown():
    X, y, *_ = mixture()
    labels = [*y.tolist()[:-1], "Jane"]
    with pytest.raises(
        ParameterError,
        match=r"public.example_classes must be public data; got the private labels",
    ) as raised:
        SoftmaxPrototypes(
            GaussianDP(1.0),
            classes=range(20),
            public=PublicData(examples=X + 1, example_classes=labels),
        ).fit(X, labels)
    assert "Jane" not in str(raised.value)


@pytest.mark.parametrize("texts", [("one",), (1, 2, 3), ("a", "b", "\ud800")])
def test_texts_that_no_model_can_keep_are_refused_before_anything_is_paid(
    texts, tmp_path
):
    X, y, names, *_ = mixture()
    ledger = dppl.Ledger(tmp_path / "ledger.db", "records", GaussianDP(1.0))
    table = dppl.io.EmbeddingTable.of(names[:3], texts=texts)
    with pytest.raises(InputError, match=r"public.examples must"):
        SoftmaxPrototypes(
            GaussianDP(1.0),
            classes=range(20),
            public=PublicData(examples=table, example_classes=[0, 1, 2]),
        ).fit(X, y, ledger=ledger)
    assert ledger.releases() == []


def test_an_attribute_of_that_name_is_not_taken_for_texts():
    class Rows(np.ndarray):
        texts = np.arange(3)

    data = mixture()
    names = data[2]
    assert (
        fitted(GaussianDP(1.0), data, names.view(Rows), range(20)).examples_.texts
        is None
    )


def test_a_part_of_a_ledger_needs_the_ledger_also_where_nothing_is_paid():
    *_, names, _, _ = mixture()
    with pytest.raises(ParameterError, match="pass ledger as well"):
        SoftmaxPrototypes(
            GaussianDP(0),
            classes=range(20),
            public=PublicData(examples=names, example_classes=range(20)),
        ).fit(np.empty((0, 64)), [], partition="part")


def test_a_file_that_started_from_nothing_and_released_nothing_is_refused(tmp_path):
    *_, names, _, _ = mixture()
    model = SoftmaxPrototypes(GaussianDP(0), classes=range(20))
    model.set_params(public=PublicData(examples=names, example_classes=range(20))).fit(
        np.empty((0, 64)), []
    )
    model.examples_ = None
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(
        ModelFileError, match="releases nothing and started from nothing"
    ):
        dppl.load(tmp_path / "m.safetensors")
