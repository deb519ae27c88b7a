"""What people would use instead, timed in turns with what this library has for it: their CPU seconds over ours.

Guarantees differ: those of NumPy's floats and of seeded noise are weaker than those of
exact integers and system noise, and scikit-learn's regression has none. Accuracies are
those of one fit on made-up rows, with the options shown here. Peers that are not
installed are left out.
"""

import warnings
from functools import partial

import numpy as np

import probe
from dppl import (
    ApproxDP,
    GaussianDP,
    MeanPrototypes,
    PublicData,
    PublicPrototypes,
    PureDP,
    SoftmaxPrototypes,
)
from dppl.methods import LinearProbe
from measuring import entry, measure

UNIT = "of our CPU seconds"
BUDGET = ApproxDP(1.0, 1e-5)
RHO = 0.05


def numpy_means(X, y, n_classes, mu):
    """Release noisy sums of unit rows, as a user would write it."""
    rng = np.random.default_rng()
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    sums = np.stack([rows[y == code].sum(axis=0) for code in range(n_classes)])
    return sums + rng.normal(scale=1 / mu, size=sums.shape)


def numpy_probe(X, y, n_classes, steps, mu):
    """Train softmax regression by gradient descent with clipped gradients and noise."""
    rng = np.random.default_rng()
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    weights = momentum = np.zeros((n_classes, X.shape[1]), np.float32)
    for _ in range(steps):
        logits = rows @ weights.T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        residuals = np.eye(n_classes, dtype=np.float32)[y] - p
        residuals /= np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), 1)
        noise = rng.normal(scale=steps**0.5 / mu, size=weights.shape).astype(np.float32)
        momentum = 0.9 * momentum + residuals.T @ rows + noise
        weights = weights + momentum * probe.STEP / len(X)
    return weights


def numpy_public(X, y, public, n_classes, epsilon, low=0.05, high=0.6):
    """Select a public row for each class with Gumbel noise, from cosines that are clipped."""
    rng = np.random.default_rng()
    rows, candidates = (
        part / np.linalg.norm(part, axis=1, keepdims=True) for part in (X, public)
    )
    utilities = np.stack(
        [
            np.clip(rows[y == code] @ candidates.T, low, high).sum(axis=0)
            for code in range(n_classes)
        ]
    )
    return candidates[
        (epsilon / (high - low) * utilities + rng.gumbel(size=utilities.shape)).argmax(
            axis=1
        )
    ]


def accuracy(model, X, y):
    """Return that of a classifier, or of the largest product with a row of weights."""
    if hasattr(model, "score"):
        return model.score(X, y)
    return float(((X @ np.asarray(model).T).argmax(axis=1) == y).mean())


def compared(ours, theirs, rounds, data):
    """Return an entry for each peer; `ours` is a pair of a name and a call that fits, and `theirs` maps such pairs."""
    name, run = ours
    # These first calls pay for imports as well.
    found = {
        peer: f"accuracy {accuracy(fit(), *data.test):.2f}"
        for peer, fit in theirs.items()
    }
    mine = f"ours {accuracy(run(), *data.test):.2f}"
    ratios = measure(theirs, run, rounds)
    return [
        entry(
            f"{peer} beside {name}",
            ratios[peer][1][1],
            UNIT,
            "higher",
            f"{data.note}; {told}, {mine}",
        )
        for peer, told in found.items()
    ]


class Data:
    """Records, test records and, where a method takes them, as many public rows around the same class means."""

    def __init__(self, n, d, n_classes):
        rng = np.random.default_rng(0)
        self.X, self.y, self._means = probe.mixture(n, d, n_classes, rng)
        self.test = probe.mixture(2_000, d, n_classes, rng, self._means)[:2]
        self.public = probe.mixture(n, d, n_classes, rng, self._means)[0]
        self.note = f"{n} x {d}, {n_classes} classes"


def plain_numpy(quick):
    """Time three methods written in NumPy."""
    n, d, n_classes = (2_000, 64, 10) if quick else (30_000, 384, 50)
    data = Data(n, d, n_classes)
    X = data.X
    y = data.y
    few = Data(n // 5, d, n_classes)
    means = MeanPrototypes(GaussianDP(1.0), range(n_classes))
    probing = LinearProbe(GaussianDP(1.0), range(n_classes), steps=5)
    choosing = PublicPrototypes(PureDP(1.0), range(n_classes))
    rounds = 1 if quick else 7
    return [
        *compared(
            ("MeanPrototypes", lambda: means.fit(X, y)),
            {"means in NumPy": lambda: numpy_means(X, y, n_classes, 1.0)},
            rounds,
            data,
        ),
        *compared(
            ("LinearProbe, 5 steps", lambda: probing.fit(X, y)),
            {"probe in NumPy, 5 steps": lambda: numpy_probe(X, y, n_classes, 5, 1.0)},
            rounds,
            data,
        ),
        *compared(
            (
                "PublicPrototypes",
                lambda: choosing.set_params(public=PublicData(few.public)).fit(
                    few.X, few.y
                ),
            ),
            {
                "public prototypes in NumPy": lambda: numpy_public(
                    few.X, few.y, few.public, n_classes, 1.0
                )
            },
            rounds,
            few,
        ),
    ]


def scikit_learn(quick):
    """Time regression without privacy, with scikit-learn's defaults."""
    from sklearn.linear_model import LogisticRegression

    n, d, n_classes = (1_000, 32, 5) if quick else (20_000, 384, 20)
    data = Data(n, d, n_classes)
    X = data.X
    y = data.y
    theirs = {
        "LogisticRegression of scikit-learn, without privacy": lambda: (
            LogisticRegression().fit(X, y)
        )
    }
    ours = [kind(BUDGET, range(n_classes)) for kind in (SoftmaxPrototypes, LinearProbe)]
    return [
        line
        for estimator in ours
        for line in compared(
            (f"{type(estimator).__name__}, defaults", partial(estimator.fit, X, y)),
            theirs,
            1 if quick else 3,
            data,
        )
    ]


def opacus(quick):
    """Time ghost clipping in batches of all records, with the loader of tutorials and without."""
    steps = 2
    n, d, n_classes = (1_000, 32, 5) if quick else (20_000, 768, 100)
    data = Data(n, d, n_classes)
    X = data.X
    y = data.y
    size = n_classes, steps, 1
    theirs = {
        "Opacus, ghost clipping, its data loader": lambda: probe.run_opacus(
            X, y, *size, loader=True
        ),
        "Opacus, ghost clipping, ready-made batch": lambda: probe.run_opacus(
            X, y, *size, loader=False
        ),
    }
    ours = (
        f"LinearProbe, {steps} steps, system noise",
        lambda: probe.run_probe(X, y, *size, seed=None),
    )
    return compared(ours, theirs, 1 if quick else 3, data)


def dp_learning_ff(quick):
    """Time means by CoinPress with the three steps of its README."""
    from dp_learning_ff import give_private_prototypes

    n, d, n_classes = (1_000, 32, 5) if quick else (50_000, 384, 50)
    data = Data(n, d, n_classes)
    X = data.X
    y = data.y
    budgets = [share * RHO / 64 for share in (5, 7, 52)]
    wide = X * d**0.5  # it presumes coordinates of variance 1
    means = MeanPrototypes(GaussianDP((2 * RHO) ** 0.5), range(n_classes))
    return compared(
        ("MeanPrototypes", lambda: means.fit(X, y)),
        {"means of dp-learning-ff": lambda: give_private_prototypes(wide, y, budgets)},
        1 if quick else 7,
        data,
    )


def diffprivlib(quick):
    """Time its logistic regression and its naive Bayes classifier."""
    from diffprivlib.models import GaussianNB, LogisticRegression

    n, d, n_classes = (500, 16, 5) if quick else (10_000, 128, 10)
    data = Data(n, d, n_classes)
    X = data.X
    y = data.y
    theirs = {
        "LogisticRegression of diffprivlib": lambda: LogisticRegression(
            epsilon=1.0, data_norm=1.0
        ).fit(X, y),
        "GaussianNB of diffprivlib": lambda: GaussianNB(
            epsilon=1.0, bounds=(-1, 1)
        ).fit(X, y),
    }
    ours = MeanPrototypes(BUDGET, range(n_classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its advice on bounds and on convergence
        return compared(
            ("MeanPrototypes", lambda: ours.fit(X, y)), theirs, 1 if quick else 3, data
        )
