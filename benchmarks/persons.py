"""What the privacy of a person costs, on real persons or on simulated ones.

    python benchmarks/persons.py FOLDER [FOLDER ...] [--groups NAME] [--method mean] [--seeds N] [--out RESULTS.json]
        [--figure FILE.png]

A folder holds `train_x`, `train_y`, `test_x` and `test_y` as .npy. With --groups, `train_NAME` and `test_NAME` hold ids
of persons, nobody of whom is in both. Without it persons are made up from the training set
(`dppl.data.simulated_persons`): 3,000 of 1 to 50 records, m of them with a probability in proportion to 1/m, all or
70 % from one class, with an offset of their own of 0.3 of a row's length. Prints the mean test accuracy of
SoftmaxPrototypes (or MeanPrototypes) over seeds at the same mu; with ids, also that in which each person counts once:

    records    a promise to a record alone, which is a weaker one, for comparison
    person     a promise to a person: fit(groups=)
    k = 2      the same, with two classes a person: fit(groups=, max_classes_per_person=2), where there is one
    cap M      the same by hand with M records of each person, at mu/M (group privacy)
"""

import argparse
import inspect
import json
import statistics
import warnings
from pathlib import Path

import numpy as np

from dppl import GaussianDP, MeanPrototypes, SoftmaxPrototypes
from dppl.data import simulated_persons
from dppl.errors import WeakBudgetWarning
from dppl.experiments.metrics import person_accuracies

PERSONS, SHARES = 3000, (1.0, 0.7)
MUS = (0.25, 0.5, 1.0, 2.0, 4.0)
CAPS = (1, 2, 5, 10)
CLASSES_OF_A_PERSON = "max_classes_per_person"
METHODS = {"softmax": SoftmaxPrototypes, "mean": MeanPrototypes}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--groups", metavar="NAME")
    parser.add_argument("--method", choices=METHODS, default="softmax")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    results = [result for folder in options.folders for result in compared(folder, options)]
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.figure:
        drawn(results, options.figure)


def compared(folder, options):
    """Yield one result for each share, way and mu."""
    X, y, X_test, y_test = (np.load(folder / f"{name}.npy") for name in ("train_x", "train_y", "test_x", "test_y"))
    ids, ids_test = (options.groups and np.load(folder / f"{part}_{options.groups}.npy") for part in ("train", "test"))
    classes = np.unique(y)
    for share in (None,) if options.groups else SHARES:
        accuracies = {}
        for seed in range(options.seeds):
            records = simulated_persons(X, y, PERSONS, seed, share=share) if share else (X, y, ids)
            for way, (rows, labels, given, parts) in ways(*records, METHODS[options.method], seed).items():
                for mu in MUS:
                    model = METHODS[options.method](GaussianDP(mu / parts), classes, random_state=seed)
                    predicted = model.fit(rows, labels, **given).predict(X_test)
                    measured = accuracies.setdefault((way, mu), {"accuracy": []})
                    measured["accuracy"].append(float((predicted == y_test).mean()))
                    if options.groups:
                        each = person_accuracies(y_test, predicted, ids_test)
                        measured.setdefault("person_accuracy", []).append(float(each.mean()))
        for (way, mu), measured in accuracies.items():
            found = measured["accuracy"]
            result = {"data": folder.name, "method": options.method, "share": share, "way": way, "mu": mu}
            result |= {"protects": "record" if way == "records" else "person"}
            result |= {name: statistics.mean(values) for name, values in measured.items()}
            result["std"] = statistics.stdev(found) if len(found) > 1 else 0.0
            print(" | ".join(f"{value:.3f}" if isinstance(value, float) else str(value) for value in result.values()))
            yield result


def ways(rows, labels, persons, method, seed):
    """Return rows, labels, what else a fit is given and by what its mu is divided, for each way."""
    found = {"records": (rows, labels, {}, 1), "person": (rows, labels, {"groups": persons}, 1)}
    if CLASSES_OF_A_PERSON in inspect.signature(method.fit).parameters:
        found["k = 2"] = rows, labels, {"groups": persons, CLASSES_OF_A_PERSON: 2}, 1
    place = places_at_random(persons, seed)
    for cap in CAPS:
        kept = place < cap
        found[f"cap {cap}"] = rows[kept], labels[kept], {}, cap
    return found


def places_at_random(persons, seed):
    """Return the place of each record in a random order of those of its person."""
    shuffled = np.random.default_rng((seed, 4)).permutation(len(persons))
    order = shuffled[np.argsort(persons[shuffled], kind="stable")]
    _, first, counts = np.unique(persons[order], return_index=True, return_counts=True)
    place = np.empty(len(persons), np.intp)
    place[order] = np.arange(len(persons)) - np.repeat(first, counts)
    return place


def drawn(results, file):
    """Draw accuracies over mu, one panel for each data set and share."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys((result["data"], result["share"]) for result in results))
    names = {"records": "record (a weaker promise)", "person": "person, groups=", "k = 2": "person, two classes"}
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(2.5 * len(panels) + 2, 3), sharey=True, layout="constrained"
    )
    for axis, (data, share) in zip(np.atleast_1d(axes), panels, strict=True):
        here = [result for result in results if (result["data"], result["share"]) == (data, share)]
        for way in dict.fromkeys(result["way"] for result in here):
            lines = [result for result in here if result["way"] == way]
            style = (
                {"ls": ":", "lw": 1, "ms": 3} if way.startswith("cap") else {"ls": "--" if way == "records" else "-"}
            )
            label = names.get(way, f"person, by hand: {way}")
            axis.plot([r["mu"] for r in lines], [r["accuracy"] for r in lines], marker="o", label=label, **style)
        whose = f"made-up persons, {100 * share:.0f} % of one class" if share else "real persons"
        axis.set(title=f"{data}\n{whose}", xlabel="mu", xscale="log")
        axis.set_xticks(MUS, [f"{mu:g}" for mu in MUS], minor=False)
        axis.minorticks_off()
    np.atleast_1d(axes)[0].set_ylabel("test accuracy")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.savefig(file, dpi=100)


if __name__ == "__main__":
    main()
