"""Methods as a user would write them in NumPy, timed in turns with the library's: their CPU seconds over ours.

Guarantees of floats and of seeded noise are weaker than those of exact integers and
system noise. Accuracies are of one fit on made-up rows. For other libraries see
`side_by_side.py`.
"""

import numpy as np

import probe
from dppl import GaussianDP, MeanPrototypes, PublicData, PublicPrototypes, PureDP
from dppl.methods import LinearProbe
from measuring import entry, measure

UNIT = "of our CPU seconds"


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
