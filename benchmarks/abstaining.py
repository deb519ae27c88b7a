"""How often a chosen least confidence keeps its error, and how well similarity knows records of none of the classes.

    python benchmarks/abstaining.py FOLDER --public FILE --other FILE [FILE ...]
    [--seeds 2] [--draws 100]

A folder holds `train_x`, `train_y`, `test_x` and `test_y` as .npy. A model is fitted on
6 of 10 training records; the others and the test records are the population. In each
draw, test records are taken from it at random, evaluated privately at epsilon 1, and
the error among all of the population that the threshold answers is compared with the
stated one. The control takes the threshold by the noisy numbers as they are. `--other`
are vectors of other things; the similarity that all but 5 % of the first 10,000 public
rows stay below is the threshold for these. A row has the method, mu, the stated error,
the accuracy; of the threshold the share of draws with a larger error, the mean share of
records that are answered, and the share of draws in which no threshold is found; and
the first two of the control.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from dppl import (
    ApproxDP,
    GaussianDP,
    MeanPrototypes,
    PublicData,
    SoftmaxPrototypes,
    evaluate,
)
from dppl.errors import WeakBudgetWarning
from dppl.evaluation import AlreadyPredicted

MUS = (0.25, 1.0, 4.0)
ERRORS = (0.05, 0.10)
N_TEST = 3000
PUBLIC_ROWS = 10_000


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--public", type=Path, required=True)
    parser.add_argument("--other", type=Path, nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--draws", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    public = np.load(options.public, mmap_mode="r")[:PUBLIC_ROWS].astype(np.float32)
    X, y, X_test, y_test = (
        np.load(options.folder / f"{name}.npy")
        for name in ("train_x", "train_y", "test_x", "test_y")
    )
    fitted = np.random.default_rng(0).random(len(y)) < 0.6
    X_all = np.concatenate([X[~fitted], X_test])
    y_all = np.concatenate([y[~fitted], y_test])
    others = [rows(path) for path in options.other]
    for mu in MUS:
        for kind in (SoftmaxPrototypes, MeanPrototypes):
            kept = {error: [] for error in ERRORS}
            near = []
            for seed in range(options.seeds):
                model = kind(GaussianDP(mu), np.unique(y), random_state=seed)
                model.set_params(
                    public=PublicData(public if kind is SoftmaxPrototypes else None)
                )
                model.fit(X[fitted], y[fitted])
                table = model.predict_proba(X_all)
                right = model.classes_[table.argmax(axis=1)] == y_all
                confidence = table.max(axis=1)
                rng = np.random.default_rng(seed)
                for draw in range(options.draws):
                    drawn = rng.integers(0, len(y_all), N_TEST)
                    evaluation = evaluate(
                        AlreadyPredicted(model.classes_),
                        table[drawn],
                        y_all[drawn],
                        ApproxDP(1, 1e-6),
                        parts=["precision", "calibration", "reliability"],
                        random_state=draw,
                    )
                    for error in ERRORS:
                        chosen = evaluation.threshold(error).min_confidence
                        kept[error].append(
                            [
                                *outcome(chosen, confidence, right),
                                *outcome(plain(evaluation, error), confidence, right),
                            ]
                        )
                own = model.similarity(X_all)
                limit = np.quantile(model.similarity(public), 0.95)
                for other in others:
                    far = model.similarity(other)
                    auroc = roc_auc_score(
                        np.r_[np.ones(len(own)), np.zeros(len(far))], np.r_[own, far]
                    )
                    near.append([auroc, (own >= limit).mean(), (far < limit).mean()])
            for error in ERRORS:
                share, wrong, plain_share, plain_wrong = np.array(kept[error]).T
                cells = [
                    kind.__name__,
                    mu,
                    error,
                    right.mean(),
                    (wrong > error).mean(),
                    share.mean(),
                    (share == 0).mean(),
                ]
                cells += [(plain_wrong > error).mean(), plain_share.mean()]
                print(
                    "|",
                    " | ".join(
                        one if isinstance(one, str) else f"{one:.3f}" for one in cells
                    ),
                    "|",
                    flush=True,
                )
            for place, path in enumerate(options.other):
                auroc, known, refused = np.mean(near[place :: len(others)], axis=0)
                print(
                    f"  {path}: AUROC {auroc:.3f}, own kept {known:.3f}, other refused {refused:.3f}",
                    flush=True,
                )


def rows(path):
    """Read vectors."""
    return np.load(path, mmap_mode="r")[-PUBLIC_ROWS:].astype(np.float32)


def outcome(threshold, confidence, right):
    """Return the share of the population that is answered, and the error among it."""
    answered = (
        confidence >= threshold if threshold is not None else np.zeros(len(right), bool)
    )
    return answered.mean(), np.mean(~right[answered]) if answered.any() else 0.0


def plain(evaluation, error):
    """Return the lowest threshold at which noisy numbers as they are keep the error."""
    right, wrong = (
        np.array([getattr(one, name) for one in evaluation.reliability])[::-1].cumsum()
        for name in ("right", "wrong")
    )
    fine = np.flatnonzero(wrong <= error * (right + wrong))
    return evaluation.reliability[len(right) - 1 - fine[-1]].low if len(fine) else None


if __name__ == "__main__":
    main()
