"""How often the intervals of a private evaluation hold, and how wide they are, on real records.

    python benchmarks/intervals.py --data FOLDER [--draws 200] [--out
    docs/results/coverage.csv] python benchmarks/intervals.py --table [--out
    docs/results/coverage.csv]

FOLDER holds the sets of docs/results.md. On each set SoftmaxPrototypes is trained once,
on all training records and on a long tail of them (the largest class 100 times the
smallest). Test records are drawn from the test set with replacement, each class as
often as it is trained on, so the whole test set is the truth. Each draw is evaluated by
the exact mechanism, at 90 %. A row of the file is a cell: how often intervals held and
their mean width, for recall as a mean over classes. `ignoring` is a control that must
fail: the same tables, as if they had no noise. Rows are written as they come, and a
second run goes on after them. `--table` prints what docs show.
"""

import argparse
import csv
import os
import warnings
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from dppl import GaussianDP, SoftmaxPrototypes
from dppl.errors import WeakBudgetWarning
from dppl.evaluation.measuring import _asked, _said, measurements
from dppl.kernel.measure import Measure, calibrated
from dppl.kernel.queries import ADD_REMOVE
from dppl.kernel.queries.outcomes import Guesses, Outcomes
from dppl.lab import long_tailed

OUT = Path(__file__).resolve().parent.parent / "docs/results/coverage.csv"
SETS = ("banking77", "hwu64", "cifar10_mobilenetv2")
TAILS = (1, 100)
SIZES = (500, 5_000, 50_000)
MUS = (0.1, 0.3, 1.0)
NUMBERS = ("accuracy", "recall", "balanced")
CELL = ("set", "tail", "n", "mu")
COLUMNS = (
    *CELL,
    "draws",
    *(f"{number}{what}" for what in ("", "_width", "_ignoring") for number in NUMBERS),
)


class Population:
    """The outcomes of all test records of a set, and how often each class is drawn."""

    def __init__(self, folder, tail):
        X, y, X_test, y_test = (
            np.load(folder / f"{name}.npy")
            for name in ("train_x", "train_y", "test_x", "test_y")
        )
        rows = np.arange(len(y)) if tail == 1 else long_tailed(y, tail, 0)
        self.classes = np.unique(y)
        self.shares = np.bincount(y[rows]) / len(rows)
        self.members = [np.flatnonzero(y_test == code) for code in self.classes]
        model = SoftmaxPrototypes(GaussianDP(1.0), self.classes, random_state=0)
        proba = model.fit(X[rows].astype(np.float32), y[rows]).predict_proba(
            X_test.astype(np.float32)
        )
        self.all = Outcomes.of(
            y_test,
            None,
            self.classes,
            [Guesses(proba.argmax(axis=1), proba)],
            confidences=True,
        )
        self.recall = np.array(
            [self.all.right[of_class].mean() for of_class in self.members]
        )

    def truth(self):
        """Return what intervals should hold."""
        return {
            "accuracy": self.shares @ self.recall,
            "recall": self.recall,
            "balanced": self.recall.mean(),
        }

    def draw(self, n, rng):
        """Return the outcomes of n records."""
        drawn = rng.multinomial(n, self.shares)
        places = np.concatenate(
            [
                rng.choice(one, size)
                for one, size in zip(self.members, drawn, strict=True)
            ]
        )
        one = self.all
        return Outcomes(one.codes[places], one.predicted[places], one.weights[places], one.among[places],
                        one.confidences[places], one.scores[places])  # fmt: skip


def released(held, mu, n_classes):
    """Return the noisy tables of an evaluation."""
    with Measure(
        calibrated(GaussianDP(mu), measurements(n_classes), ADD_REMOVE), held, None
    ) as measure:
        return _asked(measure, n_classes)


def ends(tables, classes):
    """Return lower and upper ends of each number."""
    said = _said(tables, classes.tolist(), 0.9, None)
    found = {"accuracy": said["accuracy"], "balanced": said["balanced_accuracy"]}
    ends = {name: (one.low, one.high) for name, one in found.items()}
    recalls = [one.recall for one in said["per_class"]]
    return ends | {
        "recall": (
            np.array([one.low for one in recalls]),
            np.array([one.high for one in recalls]),
        )
    }


def cell(people, n, mu, draws, rng):
    """Return how often intervals held, how wide they were, and how often those held that ignore the noise."""
    truth = people.truth()
    rows = []
    for _ in range(draws):
        tables = released(people.draw(n, rng), mu, len(people.classes))
        honest = ends(tables, people.classes)
        ignoring = ends(
            replace(tables, variances=dict.fromkeys(tables.variances, 0.0)),
            people.classes,
        )
        held, held_ignoring = (
            [
                np.mean((low <= truth[name]) & (truth[name] <= high))
                for name in NUMBERS
                for low, high in [said[name]]
            ]
            for said in (honest, ignoring)
        )
        widths = [
            np.mean(high - low) for name in NUMBERS for low, high in [honest[name]]
        ]
        rows.append([*held, *widths, *held_ignoring])
    return np.mean(rows, axis=0)


def measure(folder, out, draws):
    """Append a row for each cell that the file does not have."""
    warnings.simplefilter("ignore", WeakBudgetWarning)
    done = (
        {tuple(row[name] for name in CELL) for row in rows_of(out)}
        if out.exists()
        else set()
    )
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(COLUMNS)
        for name in SETS:
            for tail in TAILS:
                people = Population(folder / name, tail)
                for n, mu in ((n, mu) for n in SIZES for mu in MUS):
                    if (name, str(tail), str(n), str(mu)) not in done:
                        found = cell(
                            people,
                            n,
                            mu,
                            draws,
                            np.random.default_rng((tail, n, int(10 * mu))),
                        )
                        writer.writerow(
                            [
                                name,
                                tail,
                                n,
                                mu,
                                draws,
                                *(f"{value:.4f}" for value in found),
                            ]
                        )
                        file.flush()


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(path):
    """Print how often intervals held: the mean over cells and the lowest cell, and widths by size and budget."""
    rows = rows_of(path)
    print(
        "| 90 % intervals of | held, on average | in the worst cell | held if noise is ignored, worst cell |"
    )
    print("|---|---|---|---|")
    for name in NUMBERS:
        held, ignoring = (
            [float(row[name + what]) for row in rows] for what in ("", "_ignoring")
        )
        print(
            f"| {name} | {np.mean(held):.3f} | {min(held):.2f} | {min(ignoring):.2f} |"
        )
    print(
        "\n| set | test records | mu | accuracy | recall | balanced accuracy |\n|---|---|---|---|---|---|"
    )
    for row in rows:
        label = row["set"] + (", long tail" if row["tail"] != "1" else "")
        cells = (
            f"{float(row[name]):.2f} (±{float(row[f'{name}_width']) / 2:.3f})"
            for name in NUMBERS
        )
        print(f"| {label} | {int(row['n']):,} | {row['mu']} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.data:
        measure(options.data, options.out, options.draws)
    if options.table:
        table(options.out)


if __name__ == "__main__":
    main()
