"""What the privacy of a person costs.

    python benchmarks/persons.py FOLDER [FOLDER ...] [--method mean] [--seeds N] [--out RESULTS.json]
        [--figure FILE.png]

A folder holds `train_x`, `train_y`, `test_x` and `test_y` as .npy. No person stands behind these records, so persons
are made up: each draws 1 to 50 rows of the training set (m of them with a probability in proportion to 1/m), a share of
them from one class and the others from any, and adds an offset of their own, of 0.3 of a row's length, to each. A
folder with real persons (benchmarks/person_sets.py makes some) holds `x`, `y` and `groups`; each seed takes a quarter
of the persons, with all of their records, for the test, and shuffles the records of each. Prints mean test accuracy
and balanced accuracy of SoftmaxPrototypes (or MeanPrototypes) over seeds, at the same mu:

    records    a promise to a record alone, for comparison
    person     a promise to a person: fit(groups=)
    two        the same by hand with one row of each of the two commonest classes of a person, at mu/2
    cap M      the same by hand with the first M records of a person, at mu/M (group privacy)
"""

import argparse
import json
import statistics
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from dppl import GaussianDP, MeanPrototypes, SoftmaxPrototypes
from dppl.errors import WeakBudgetWarning
from dppl.estimators.persons import rows_of_persons

PERSONS, LARGEST, OFFSET = 3000, 50, 0.3
SHARES = (1.0, 0.7)
MUS = (0.25, 0.5, 1.0, 2.0, 4.0)
CAPS = (1, 2, 5, 10)
METHODS = {"softmax": SoftmaxPrototypes, "mean": MeanPrototypes}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--method", choices=METHODS, default="softmax")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    results = [result for folder in options.folders for result in compared(folder, options.method, options.seeds)]
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.figure:
        drawn(results, options.figure)


def compared(folder, method, seeds):
    """Yield one result for each share, way and mu."""
    sets = real if (folder / "groups.npy").exists() else made_up
    for share, classes, draw in sets(folder):
        scores = {}
        for seed in range(seeds):
            records, X_test, y_test = draw(seed)
            for way, (rows, labels, given, parts) in ways(*records, len(classes)).items():
                for mu in MUS:
                    model = METHODS[method](GaussianDP(mu / parts), classes, random_state=seed)
                    guesses = model.fit(rows, labels, **given).predict(X_test)
                    found = np.mean(guesses == y_test), balanced_accuracy_score(y_test, guesses)
                    scores.setdefault((way, mu), []).append(found)
        for (way, mu), found in scores.items():
            result = {"data": folder.name, "method": method, "share": share, "way": way, "mu": mu}
            for name, values in zip(("", "balanced_"), np.transpose(found).tolist(), strict=True):
                result[f"{name}accuracy"] = statistics.mean(values)
                result[f"{name}std"] = statistics.stdev(values) if len(values) > 1 else 0.0
            print(" | ".join(f"{value:.3f}" if isinstance(value, float) else value for value in result.values()))
            yield result


def made_up(folder):
    """Yield shares, classes, and a function from a seed to records of persons and a test set."""
    X, y, X_test, y_test = (np.load(folder / f"{name}.npy") for name in ("train_x", "train_y", "test_x", "test_y"))
    X = X.astype(np.float32)
    for share in SHARES:

        def draw(seed, share=share):
            return simulated(X, y, share, np.random.default_rng(seed)), X_test, y_test

        yield share, np.unique(y), draw


def real(folder):
    """Yield the same for real persons; the share is that of records in the commonest class of their person."""
    X, y, ids = (np.load(folder / f"{name}.npy") for name in ("x", "y", "groups"))
    numbers, persons = np.unique(ids, return_inverse=True)
    shape = len(numbers), y.max() + 1
    counts = np.bincount(persons * shape[1] + y, minlength=shape[0] * shape[1]).reshape(shape)

    def draw(seed):
        rng = np.random.default_rng(seed)
        tested = rng.permutation(shape[0])[: shape[0] // 4]
        order = rng.permutation(len(y))  # of the records of a person
        order = order[np.argsort(persons[order], kind="stable")]
        test = np.isin(persons[order], tested)
        train, test = order[~test], order[test]
        return (X[train], y[train], np.unique(persons[train], return_inverse=True)[1]), X[test], y[test]

    yield float(counts.max(axis=1).sum() / len(y)), np.unique(y), draw


def simulated(X, y, share, rng):
    """Return rows, classes and persons of made-up records; those of a person are in random order."""
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    sizes = np.arange(1, LARGEST + 1)
    each = rng.choice(sizes, PERSONS, p=(1 / sizes) / (1 / sizes).sum())
    persons = np.repeat(np.arange(PERSONS), each)
    home = y[rng.integers(len(y), size=PERSONS)]
    anywhere = y[rng.integers(len(y), size=len(persons))]
    labels = np.where(rng.random(len(persons)) < share, home[persons], anywhere)
    rows = np.empty((len(persons), X.shape[1]), np.float32)
    for code in np.unique(y):
        chosen = labels == code
        rows[chosen] = X[rng.choice(np.flatnonzero(y == code), chosen.sum())]
    offsets = rng.standard_normal((PERSONS, X.shape[1])).astype(np.float32) / np.sqrt(X.shape[1])
    return rows + OFFSET * offsets[persons], labels, persons


def ways(rows, labels, persons, n_classes):
    """Return rows, labels, what else a fit is given and by what its mu is divided, for each way."""
    found = {"records": (rows, labels, {}, 1), "person": (rows, labels, {"groups": persons}, 1)}
    first, codes = rows_of_persons(rows, labels, persons, n_classes)
    commonest = np.empty(persons.max() + 1, np.intp)
    commonest[np.unique(persons)] = codes  # persons are numbered in the order of their rows
    second, others = rows_of_persons(rows, np.where(labels == commonest[persons], -1, labels), persons, n_classes)
    found["two"] = np.concatenate([first, second]), np.concatenate([codes, others]), {}, 2
    place = np.arange(len(persons)) - np.searchsorted(persons, persons)
    for cap in CAPS:
        kept = place < cap
        found[f"cap {cap}"] = rows[kept], labels[kept], {}, cap
    return found


def drawn(results, file):
    """Draw accuracies over mu, one panel for each data set and share."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    panels = sorted({(result["data"], -result["share"]) for result in results})
    names = {"records": "record (a weaker promise)", "person": "person, groups=", "two": "person, two classes"}
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(2.5 * len(panels) + 2, 3), sharey=True, layout="constrained"
    )
    for axis, (data, share) in zip(np.atleast_1d(axes), panels, strict=True):
        here = [result for result in results if (result["data"], -result["share"]) == (data, share)]
        for way in dict.fromkeys(result["way"] for result in here):
            lines = [result for result in here if result["way"] == way]
            style = (
                {"ls": ":", "lw": 1, "ms": 3} if way.startswith("cap") else {"ls": "--" if way == "records" else "-"}
            )
            label = names.get(way, f"person, by hand: {way}")
            axis.plot([r["mu"] for r in lines], [r["accuracy"] for r in lines], marker="o", label=label, **style)
        axis.set(title=f"{data}\n{-100 * share:.0f} % of one class", xlabel="mu", xscale="log")
        axis.set_xticks(MUS, [f"{mu:g}" for mu in MUS], minor=False)
        axis.minorticks_off()
    np.atleast_1d(axes)[0].set_ylabel("test accuracy")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.savefig(file, dpi=100)


if __name__ == "__main__":
    main()
