"""What several labels a record cost: one fit of all labels against one fit a label, DP-SGD, and no privacy.

    python benchmarks/multilabel.py FOLDER [FOLDER ...] --cache FOLDER [--seeds 3]
    [--methods NAME ...]
    python benchmarks/multilabel.py FOLDER [FOLDER ...] --cache FOLDER --quarters 4
    [--seeds 3]

A folder holds `train.csv` and `test.csv` of short texts, with the columns `text` and
`label` or `class`. A record is made of 1 to 4 of them, of different classes: their
texts one after the other, which `minilm` embeds as one text, and all of their classes.
8,000 are for the fit and 2,000 for the test. Prints macro and micro F1, means over
seeds: as a method decides, and in brackets with thresholds above which lie as many
*test* records as the *exact* share of records with the label, which no private method
knows. With --quarters, what is trained again in each of so many parts of the records,
as docs/quarters.md compares; after the last part, at equal cost to a record.
"""

import argparse
import csv
import math
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.preprocessing import normalize

from dppl import GaussianDP, MultiLabelPrototypes, SoftmaxPrototypes
from dppl.encoders import load_encoder
from dppl.errors import WeakBudgetWarning
from dppl.kernel import Measurement
from dppl.kernel.queries import LabelGradients
from dppl.methods import LinearProbe

MUS = (0.25, 1.0, 4.0)
DELTA = 1e-6
SIZES = {"train": 8000, "test": 2000}
HOW_MANY = (0.4, 0.3, 0.2, 0.1)  # shares of records of 1, 2, 3 and 4 texts
RATE, STEPS = 0.1, 100  # of DP-SGD


class SampledProbe(LinearProbe):
    """DP-SGD on the same loss; its offsets and the sizes of samples follow from public numbers."""

    multilabel = True

    def measurements(self, setting):
        """Declare the gradients of samples."""
        gradients = LabelGradients(
            setting.lattice, setting.n_classes, sampling_rate=self.sampling_rate
        )
        return {"gradients": Measurement(gradients, times=self.steps)}

    def learn(self, measure, setting):
        """Take steps from equal log-odds of two labels a record."""
        self.intercept_ = np.full(setting.n_classes, logit(2 / setting.n_classes))
        super().learn(measure.at(offsets=self.intercept_), setting)


def prototypes(X, Y, classes, X_test, mu, seed):
    model = MultiLabelPrototypes(GaussianDP(mu), classes, random_state=seed).fit(X, Y)
    return model.decision_function(X_test)


def one_a_label(X, Y, classes, X_test, mu, seed):
    """Return the scores of a binary model a label; a record is in all of them, so squares of mu add up."""
    each = GaussianDP(mu / math.sqrt(len(classes)))
    n_labels = len(classes)
    models = (
        SoftmaxPrototypes(each, [0, 1], random_state=n_labels * seed + code).fit(
            X, Y[:, code].astype(int)
        )
        for code in range(n_labels)
    )
    return np.column_stack([model.decision_function(X_test) for model in models])


def dp_sgd(X, Y, classes, X_test, mu, seed):
    budget = GaussianDP(mu).to_approx(DELTA)
    sampled = {"steps": STEPS, "sampling_rate": RATE, "batch_size": RATE * len(X)}
    return (
        SampledProbe(budget, classes, random_state=seed, **sampled)
        .fit(X, Y)
        .decision_function(X_test)
    )


def not_private(X, Y, classes, X_test, mu, seed):
    """Return the scores of a logistic regression a label, with the threshold of a probability of 1/3."""
    rows = normalize(X)
    tests = normalize(X_test)
    models = (
        LogisticRegression(C=30, max_iter=300).fit(rows, Y[:, code])
        for code in range(len(classes))
    )
    return np.column_stack(
        [model.decision_function(tests) for model in models]
    ) - logit(1 / 3)


def last_of_quarters(X, Y, classes, X_test, mu, seed, *, quarters, in_all, from_last):
    """Return the scores of the last of several models; records that are in all of them pay for each."""
    order = np.random.default_rng(seed).permutation(len(X))
    each = GaussianDP(mu / math.sqrt(quarters) if in_all else mu)
    model = None
    for quarter in range(quarters):
        first = 0 if in_all else quarter
        rows = np.array_split(order, quarters)[first : quarter + 1]
        chosen = np.concatenate(rows)
        model = MultiLabelPrototypes(
            each,
            classes,
            start=model if from_last else None,
            random_state=quarters * seed + quarter,
        ).fit(X[chosen], Y[chosen])
    return model.decision_function(X_test)


QUARTERS = {
    "alone": {"in_all": False, "from_last": False},
    "start": {"in_all": False, "from_last": True},
    "all": {"in_all": True, "from_last": False},
    "all, with start": {"in_all": True, "from_last": True},
}
METHODS = {
    "MultiLabelPrototypes": prototypes,
    "one SoftmaxPrototypes a label": one_a_label,
    "DP-SGD": dp_sgd,
    "not private": not_private,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--cache", type=Path, required=True, help="where embeddings are kept"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--quarters", type=int)
    options = parser.parse_args()
    methods = {name: METHODS[name] for name in options.methods}
    mus = MUS
    if options.quarters:
        mus = (0.1, *MUS)
        methods = {
            name: partial(last_of_quarters, quarters=options.quarters, **how)
            for name, how in QUARTERS.items()
        }
    warnings.simplefilter("ignore", WeakBudgetWarning)
    for folder in options.folders:
        (X, Y), (X_test, truth) = (
            unions(folder, part, options.cache) for part in SIZES
        )
        classes = sorted({label for _, label in messages(folder, "train")})
        for name, method in methods.items():
            once = method is not_private
            for mu in (math.inf,) if once else mus:
                scores = (
                    method(X, Y, classes, X_test, mu, seed)
                    for seed in range(1 if once else options.seeds)
                )
                found = np.array(
                    [measured(one, truth, Y.mean(axis=0)) for one in scores]
                )
                macro, micro, best_macro, best_micro = found.mean(axis=0)
                spread = found.std(axis=0)[0]
                cells = f"{macro:.3f} ± {spread:.3f} [{best_macro:.3f}] | {micro:.3f} [{best_micro:.3f}]"
                print(f"| {folder.name} | {mu:g} | {name} | {cells} |", flush=True)


def measured(scores, truth, shares):
    """Return macro and micro F1, as decided and at thresholds by the shares of the labels."""
    ranked = scores > [
        np.quantile(column, 1 - share)
        for column, share in zip(scores.T, shares, strict=True)
    ]
    return [
        f1_score(truth, decided, average=average, zero_division=0)
        for decided in (scores > 0, ranked)
        for average in ("macro", "micro")
    ]


def messages(folder, part):
    """Return the texts of a file and their labels."""
    with (folder / f"{part}.csv").open(encoding="utf-8", newline="") as file:
        return [
            (row["text"], row.get("class") or row["label"])
            for row in csv.DictReader(file)
        ]


def unions(folder, part, cache):
    """Return embeddings of records made of several messages, and their labels as a matrix."""
    file = cache / f"{folder.name}-{part}.npy"
    some = messages(folder, part)
    classes = {
        label: code
        for code, label in enumerate(
            sorted({label for _, label in messages(folder, "train")})
        )
    }
    rng = np.random.default_rng(list(SIZES).index(part))
    texts = []
    labels = np.zeros((SIZES[part], len(classes)), bool)
    for record in labels:
        chosen = {}
        many = rng.choice(len(HOW_MANY), p=HOW_MANY) + 1
        while len(chosen) < many:
            text, label = some[rng.integers(len(some))]
            chosen.setdefault(label, text if text[-1] in ".?!" else text + ".")
        texts.append(" ".join(chosen.values()))
        record[[classes[label] for label in chosen]] = True
    if not file.exists():
        np.save(file, load_encoder("minilm").encode(texts))
    return np.load(file), labels


if __name__ == "__main__":
    main()
