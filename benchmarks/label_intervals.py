"""How often the intervals of labels hold where a record may have several, and how wide they are, on made-up records.

    python benchmarks/label_intervals.py [--draws 200]

A record has labels of prevalences that fall in equal ratios; a label is found with a
probability of .55 to .9, and false alarms are as many as misses. Within a record, labels,
misses and false alarms are independent, or correlated by .8 each (a normal copula). The
tables of such records with noise of the evaluation's own size go through its own
functions. `ignoring` is a control that must fail: the same tables, as if they had no
noise.
"""

import argparse
import itertools
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.stats import norm

from dppl import GaussianDP
from dppl.evaluation import intervals
from dppl.evaluation.measuring import Tables, measurements, said_of_labels, variance
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.measure import calibrated
from dppl.kernel.privacy.sensitivity import STEPS
from dppl.kernel.queries import ADD_REMOVE
from dppl.kernel.queries.outcomes import first_labels
from dppl.prediction.pending import LabelSets

MAX_LABELS = 5
WORLDS = ((6, 1), (8, 4), (20, 10))  # labels, and the most frequent over the rarest
CORRELATIONS = (0.0, 0.8)
SIZES = (300, 1000, 5000)
MUS = (0.2368, 1.0)
N = 60_000  # records whose shares are the truth
NUMBERS = ("micro F1", "macro F1", "recall", "mean recall")


def population(n_labels, tail, correlation):
    """Return whether each label of each record is found, missed and a false alarm, shape (3, N, n_labels)."""
    rng = np.random.default_rng(1)
    prevalence = 0.45 * np.geomspace(1, 1 / tail, n_labels)
    found = rng.permutation(np.linspace(0.55, 0.9, n_labels))

    def drawn(probability):
        of_record = np.sqrt(correlation) * rng.standard_normal((N, 1))
        of_label = np.sqrt(1 - correlation) * rng.standard_normal((N, n_labels))
        return of_record + of_label < norm.ppf(probability)

    truth = drawn(prevalence)
    predicted = np.where(truth, drawn(found), drawn(prevalence * (1 - found)))
    counted, said = (first_labels(one, MAX_LABELS) for one in (truth, predicted))
    return np.stack([counted & said, counted & ~said, said & ~truth])


def numbers(totals, labels, v, noise):
    """Return the intervals of NUMBERS; of single recalls, all of them."""
    tables = {
        "totals": totals,
        "labels": labels,
        "classes": labels[:2],
        "alarms": labels[2],
    }
    noisy = Tables(
        tables,
        {name: one * noise for name, one in v.items()},
        intervals.each_class(labels.shape[1]),
    )
    said = said_of_labels(noisy, [*range(labels.shape[1])], 0.9, MAX_LABELS)
    return [
        [said["labels"].f1],
        [said["labels"].macro_f1],
        [one.recall for one in said["per_class"]],
        [said["balanced_accuracy"]],
    ]


def cell(cells, n, mu, draws):
    """Return for each number how often it was held, how wide it was, and how often it was held if noise is ignored."""
    n_labels = cells.shape[2]
    found, missed, false = cells.sum(axis=1).astype(float)
    truth = [
        np.array([2 * found.sum() / (2 * found + missed + false).sum()]),
        np.array([(2 * found / (2 * found + missed + false)).mean()]),
        found / (found + missed),
        np.array([(found / (found + missed)).mean()]),
    ]
    declared = measurements(n_labels, several=LabelSets(MAX_LABELS, MultiLabel()))
    v = {
        name: variance(one.mechanism.noise_std, STEPS)
        for name, one in calibrated(GaussianDP(mu), declared, ADD_REMOVE).items()
    }
    v |= {"classes": v["labels"], "alarms": v["labels"]}
    rng = np.random.default_rng(2)
    result = np.zeros((3, len(NUMBERS)))
    for _ in range(draws):
        rows = rng.integers(0, N, n)
        labels = cells[:, rows].sum(axis=1, dtype=float)
        right = (~cells[1:, rows].any(axis=(0, 2))).sum()
        totals = np.array([right, n - right], float)
        labels += np.sqrt(v["labels"]) * rng.standard_normal(labels.shape)
        totals += np.sqrt(v["totals"]) * rng.standard_normal(2)
        for k, noise in ((0, 1.0), (2, 1e-9)):
            for place, (found_ends, values) in enumerate(
                zip(numbers(totals, labels, v, noise), truth, strict=True)
            ):
                low, high = np.array([(one.low, one.high) for one in found_ends]).T
                result[k, place] += ((low <= values) & (values <= high)).mean() / draws
                if k == 0:
                    result[1, place] += (high - low).mean() / draws
    return result


def main() -> None:
    """Print a row for each cell, then the mean and the worst."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    print(
        "labels tail correlation n mu |",
        *(f"{one}: held width ignoring |" for one in NUMBERS),
    )
    every = []
    for world, correlation in itertools.product(WORLDS, CORRELATIONS):
        cells = population(*world, correlation)
        for n, mu in itertools.product(SIZES, MUS):
            every.append(cell(cells, n, mu, draws))
            shown = (" ".join(f"{one:.2f}" for one in row) for row in every[-1].T)
            print(*world, correlation, n, mu, "|", " | ".join(shown), flush=True)
    held, width, ignoring = np.moveaxis(np.array(every), 1, 0)
    print(
        "held, mean:", *held.mean(axis=0).round(2), "worst:", *held.min(axis=0).round(2)
    )
    print("ignoring noise, worst:", *ignoring.min(axis=0).round(2))
    print("width, mean:", *width.mean(axis=0).round(3))


if __name__ == "__main__":
    main()
