"""Data sets that need no download: digits, made-up clusters, and tables inside a dependency."""

from collections.abc import Callable

import numpy as np

from dppl._utils.types import Array
from dppl.encoders.columns import ColumnsEncoder, NumberColumn
from dppl.encoders.load import load_encoder
from dppl.io import load_sample

# Of clusters: how far apart two means are, in deviations of a coordinate. Nearest class
# means are right on .86 of the test rows.
_APART = 4.0
_CLUSTERS = 10
_DIMENSION = 64
_N_TRAIN = 3000
_N_TEST = 2000
_SEED = 0
# The four parts of a data set, and its public rows by name.
Parts = tuple[Array, Array, Array, Array, dict[str, Array]]


def _digits() -> Parts:
    sample = load_sample()
    public = {"digits": np.asarray(sample.X_public)}
    return sample.X, sample.y, sample.X_test, sample.y_test, public


def _clusters() -> Parts:
    """Draw Gaussian classes of one round covariance, for which class means are the best classifier."""
    rng = np.random.default_rng(_SEED)
    scale = _APART / np.sqrt(2 * _DIMENSION)
    means = rng.normal(scale=scale, size=(_CLUSTERS, _DIMENSION))

    def drawn(size: int) -> tuple[Array, Array]:
        codes = np.arange(size) % _CLUSTERS
        noise = rng.normal(size=(size, _DIMENSION))
        rows = means[codes] + noise
        return rows.astype(np.float32), codes

    train = drawn(_N_TRAIN)
    test = drawn(_N_TEST)
    return *train, *test, {}


def _table(name: str) -> Parts:
    """Embed a table of numbers between its extremes, which its documentation names; a random fifth is the test set."""
    from sklearn import datasets

    table = getattr(datasets, f"load_{name}")()
    low = table.data.min(axis=0)
    high = table.data.max(axis=0)
    columns = []
    for place, column in enumerate(table.feature_names):
        columns.append(NumberColumn(name=column, low=low[place], high=high[place]))
    encoder = ColumnsEncoder(columns, name, load_encoder)
    cells = []
    for row in table.data:
        texts = map(str, row.tolist())
        cells.append(dict(zip(table.feature_names, texts, strict=True)))
    X = encoder.encode(cells)
    y = table.target_names[table.target]
    order = np.random.default_rng(_SEED).permutation(len(X))
    test, train = np.split(order, [len(X) // 5])
    return X[train], y[train], X[test], y[test], {}


# The encoder of each, and how it is made.
BUILT_IN: dict[str, tuple[str, Callable[[], Parts]]] = {
    "sample": ("digits-diffusion-map-32", _digits),
    "clusters": ("none", _clusters),
    "breast-cancer": ("columns", lambda: _table("breast_cancer")),
    "wine": ("columns", lambda: _table("wine")),
}
