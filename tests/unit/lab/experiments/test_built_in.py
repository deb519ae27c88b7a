"""Data sets of experiments that need no download."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dppl.lab.experiments.built_in import BUILT_IN
from dppl.lab.experiments.config import load_experiment
from dppl.lab.experiments.measure_cell import check_cells, run_cell

CELLS = load_experiment("clusters")


def test_class_means_classify_clusters_best():
    X, y, X_test, y_test, _ = BUILT_IN["clusters"][1]()
    means = np.stack([X[y == code].mean(axis=0) for code in range(10)])
    nearest = np.square(X_test[:, None] - means).sum(axis=-1).argmin(axis=1)
    fitted = LogisticRegression(C=100, max_iter=300).fit(X, y).predict(X_test)
    assert (nearest == y_test).mean() > (fitted == y_test).mean() + 0.01


@pytest.mark.parametrize(
    ("name", "sizes"), [("breast-cancer", (456, 113)), ("wine", (143, 35))]
)
def test_tables_are_split_once_and_lie_within_their_bounds(name, sizes):
    X, y, X_test, y_test, _ = BUILT_IN[name][1]()
    assert (len(X), len(X_test)) == (len(y), len(y_test)) == sizes
    assert np.allclose(
        np.linalg.norm(np.concatenate([X, X_test]), axis=1), 1, atol=1e-5
    )
    # Each column ends with two coordinates, of unknown and of missing values.
    columns = np.concatenate([X, X_test]).reshape(sum(sizes), -1, 21)
    assert not columns[..., 19:].any()
    assert len(np.unique(np.concatenate([X, X_test]), axis=0)) == sum(sizes)


def test_the_clusters_configuration_needs_nothing_but_dppl():
    assert {name for name, _ in CELLS.datasets} == set(BUILT_IN)
    cell = next(
        cell
        for cell in CELLS.cells
        if (cell.dataset, cell.method) == ("wine", "mean") and cell.budget == {"mu": 2}
    )
    check_cells([cell], CELLS.datasets)
    assert run_cell(cell, CELLS.datasets)["metrics"]["balanced_accuracy"] > 0.5
