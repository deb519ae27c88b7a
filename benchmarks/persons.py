"""What the privacy of a person costs.

    python benchmarks/persons.py FOLDER [FOLDER ...] [--seeds N] [--ways WAY ...] [--out
    RESULTS.json] python benchmarks/persons.py --persons 1000000

A folder holds `train_x`, `train_y`, `test_x` and `test_y` as .npy. No person stands
behind these records, so persons are made up from the training set
(`simulated_persons`): 3,000 of 1 to 50 records, m with a probability in proportion to
1/m, 70 % of them from one class and the others from any, with an offset of their own of
0.3 of a row's length. A folder with real persons (benchmarks/person_sets.py makes some)
holds `x`, `y` and `groups`; each seed takes a quarter of the persons, with all of their
records, for the test. Prints test accuracy, balanced accuracy and, of real persons, the
accuracy in which each counts once, of SoftmaxPrototypes at the same mu: in percent, the
mean over seeds with its standard error:

    records    a promise to a record alone, which is a weaker one, for comparison
    person     a promise to a person: fit(groups=)
    k = 1, 2   the same, of persons who count in so many classes: max_classes_per_person=
    rows 1, 2  the same by hand, with so many rows of different classes of a person, at mu/1 and mu/2
    cap M      the same by hand with M records of a person, at mu/M (group privacy)

The second form fits SoftmaxPrototypes on so many persons of 1 to 10 records, m with a
probability in proportion to 1/m², whose rows lie next to each other in a file: 384
numbers in float16, 50 classes. It prints CPU seconds and the largest memory beyond the
process before, without the mapped file.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from dppl import GaussianDP, SoftmaxPrototypes, metrics
from dppl.errors import WeakBudgetWarning
from dppl.kernel.persons import rows_of_persons

PERSONS = 3000
SHARE = 0.7
# Most records of a made-up person, and the length of their offset.
LARGEST = 50
OFFSET = 0.3
TEST_SHARE = 0.25
MUS = (0.25, 0.5, 1.0, 2.0, 4.0)
CAPS = (1, 2, 5, 10)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--persons", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--ways", nargs="+", metavar="WAY", help="only these, such as person"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    if options.persons:
        print(json.dumps(many(options.persons), indent=2))
    results = [
        result
        for folder in options.folders
        for result in compared(folder, options.seeds, options.ways)
    ]
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def many(n_persons, features=384, n_classes=50, most=10):
    """Return seconds and memory of a fit from a memory map."""
    from default_method import anonymous_mb, peak

    rng = np.random.default_rng(0)
    sizes = np.arange(1, most + 1)
    ids = np.repeat(
        np.arange(n_persons),
        rng.choice(sizes, n_persons, p=sizes**-2.0 / (sizes**-2.0).sum()),
    )
    y = rng.integers(0, n_classes, len(ids))
    means = rng.normal(size=(n_classes, features)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.npy")
        X = np.lib.format.open_memmap(
            path, mode="w+", dtype=np.float16, shape=(len(ids), features)
        )
        for start in range(0, len(ids), 10_000):
            part = y[start : start + 10_000]
            X[start : start + 10_000] = means[part] + 3 * rng.standard_normal(
                (len(part), features), np.float32
            )
        X.flush()
        del X
        rows = np.load(path, mmap_mode="r")
        model = SoftmaxPrototypes(GaussianDP(4.0), range(n_classes))
        model.fit(np.asarray(rows[:1000]), y[:1000], groups=ids[:1000])
        before = anonymous_mb()
        cpu = time.process_time()
        with peak(anonymous_mb) as highest:
            model.fit(rows, y, groups=ids)
            cpu = time.process_time() - cpu
    return {
        "persons": n_persons,
        "records": len(ids),
        "CPU seconds": round(cpu, 1),
        "MB above the process before, without the mapped file": round(
            highest[0] - before
        ),
    }


def compared(folder, seeds, only=None):
    """Yield one result for each way and mu."""
    persons = real if (folder / "groups.npy").exists() else made_up
    classes, draw = persons(folder)
    scores = {}
    for seed in range(seeds):
        records, *tested = draw(seed)
        for way, (rows, labels, ids, k, parts) in ways(*records, seed).items():
            for mu in MUS if only is None or way in only else ():
                budget = GaussianDP(mu / parts)
                model = SoftmaxPrototypes(
                    budget, classes, max_classes_per_person=k, random_state=seed
                )
                scores.setdefault((way, mu), []).append(
                    measured(model.fit(rows, labels, groups=ids), *tested)
                )
    for (way, mu), found in scores.items():
        result = {
            "data": folder.name,
            "persons": persons.__name__,
            "way": way,
            "mu": mu,
            "seeds": seeds,
        }
        for name in found[0]:
            values = [100 * one[name] for one in found]
            error = (
                statistics.stdev(values) / math.sqrt(seeds) if seeds > 1 else math.nan
            )
            result |= {
                name: round(statistics.mean(values), 2),
                f"{name} error": round(error, 2),
            }
        print(" | ".join(map(str, result.values())), flush=True)
        yield result


def measured(model, X, y, persons=None):
    """Return accuracies by name."""
    guesses = model.predict(X)
    found = {"accuracy": metrics.accuracy(y, guesses)}
    found["balanced accuracy"] = metrics.balanced_accuracy(y, guesses, model.classes_)
    if persons is not None:
        found["person accuracy"] = float(
            metrics.person_accuracies(y, guesses, persons).mean()
        )
    return found


def made_up(folder):
    """Return classes, and a function from a seed to records of persons and a test set."""
    X, y, X_test, y_test = (
        np.load(folder / f"{name}.npy")
        for name in ("train_x", "train_y", "test_x", "test_y")
    )
    return np.unique(y), lambda seed: (simulated_persons(X, y, seed), X_test, y_test)


def simulated_persons(X, y, seed):
    """Return rows, labels and persons: records drawn from those of a data set, with a long tail of records a person.

    A person has m records, from 1 to `LARGEST`, with a probability in proportion to
    1/m. Each record is of the person's home class with probability `SHARE`, and of the
    class of any row else. It is a row of its class, drawn with replacement and brought
    to length 1, plus the offset of the person: normal, and about `OFFSET` long.
    """
    rng = np.random.default_rng(seed)
    X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)
    sizes = np.arange(1, LARGEST + 1)
    persons = np.repeat(
        np.arange(PERSONS),
        rng.choice(sizes, PERSONS, p=(1 / sizes) / (1 / sizes).sum()),
    )
    home = y[rng.integers(len(y), size=PERSONS)]
    anywhere = y[rng.integers(len(y), size=len(persons))]
    labels = np.where(rng.random(len(persons)) < SHARE, home[persons], anywhere)
    rows = np.empty((len(persons), X.shape[1]), np.float32)
    for name in np.unique(y):
        chosen = labels == name
        rows[chosen] = X[rng.choice(np.flatnonzero(y == name), chosen.sum())]
    # A normal vector of d coordinates is about √d long.
    offsets = rng.standard_normal((PERSONS, X.shape[1])).astype(np.float32) / np.sqrt(
        X.shape[1]
    )
    return (rows + OFFSET * offsets[persons]).astype(np.float32), labels, persons


def real(folder):
    """Return the same for real persons."""
    X, y, ids = (np.load(folder / f"{name}.npy") for name in ("x", "y", "groups"))
    numbers, persons = np.unique(ids, return_inverse=True)

    def draw(seed):
        order = np.random.default_rng(seed).permutation(len(numbers))
        test = np.isin(persons, order[: round(TEST_SHARE * len(numbers))])
        return (X[~test], y[~test], persons[~test]), X[test], y[test], persons[test]

    return np.unique(y), draw


def ways(rows, labels, persons, seed):
    """Return rows, labels, ids, the classes a person may have and by what mu is divided, for each way."""
    classes, codes = np.unique(labels, return_inverse=True)
    found = {
        "records": (rows, labels, None, None, 1),
        "person": (rows, labels, persons, None, 1),
    }
    for k in (1, 2):
        found[f"k = {k}"] = rows, labels, persons, k, 1
        few, kept = rows_of_persons(rows, codes, persons, len(classes), k)
        found[f"rows {k}"] = few, classes[kept], None, None, k
    place = places_at_random(persons, seed)
    for cap in CAPS:
        found[f"cap {cap}"] = rows[place < cap], labels[place < cap], None, None, cap
    return found


def places_at_random(persons, seed):
    """Return the place of each record in a random order of those of its person."""
    shuffled = np.random.default_rng((seed, 4)).permutation(len(persons))
    order = shuffled[np.argsort(persons[shuffled], kind="stable")]
    place = np.empty(len(persons), np.intp)
    place[order] = np.arange(len(persons)) - np.searchsorted(
        persons[order], persons[order]
    )
    return place


if __name__ == "__main__":
    main()
