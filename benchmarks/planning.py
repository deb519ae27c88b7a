"""Measure, calibrate and test the model behind `dppl plan`.

    python benchmarks/planning.py measure FOLDER SET [--names] [--fits 60] [--seed 0]
    [--out SET.jsonl] python benchmarks/planning.py calibrate python
    benchmarks/planning.py test

`measure` fits a method many times on random parts of a public labelled set of
embeddings, and writes for each fit the budget, the class sizes and the recall of each
class. FOLDER holds the sets of docs/results.md; SET is one of those, or `digits`, the
built-in sample, which needs no folder. With --names the fits start from the embedded
names of classes, as `dppl train` does with texts. `calibrate` prints the constants of
dppl/planning/recall_model.py, found on the sets of CALIBRATION; `test` prints how far its
predictions lie from what was measured on the sets of TEST, which no constant has seen.
Both read docs/results/planning/fits.jsonl.
"""

import argparse
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from dppl import PublicData
from dppl.encoders import load_encoder
from dppl.io import load_sample
from dppl.kernel.privacy import GaussianDP
from dppl.methods.registry import BY_METHOD
from dppl.planning import recall_model
from dppl.planning.budget_plan import FOUND, FOUND_IN_PART
from dppl.training.items import embed_items

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "docs/results/planning/fits.jsonl"
CALIBRATION = ("banking77", "cifar10_mobilenetv2", "digits")
TEST = ("hwu64", "sources13")
# Ordinary tables, in turns by the alphabet.
TABLES = ("adult", "car", "credita", "german", "law", "pages", "wine")
TEST_TABLES = ("bank", "compas", "default", "heart", "nursery", "pima")
# Share of groups that a range holds on the calibration sets.
COVERAGE = 0.8
PUBLIC_ROWS = 10_000
REFERENCE_ROWS = 10_003
MOST_RECORDS = 4_000
ALONE = (("softmax", False),)
NAMED = (("softmax", False), ("softmax", True))
METHODS = (("softmax", False), ("softmax", True), ("mean", False), ("public", True))


def load(folder, name):
    """Return training rows and labels, test rows and labels, and public rows."""
    if name in (*TABLES, *TEST_TABLES):
        frame = pd.read_csv(folder / f"{name}.csv", dtype=str)
        encoder = load_encoder(f"columns:{folder / name}.toml")
        X = np.asarray(embed_items(encoder, frame, name))
        y = np.unique(frame["label"], return_inverse=True)[1]
        order = np.random.default_rng(0).permutation(len(y))
        train, test = np.array_split(order, 2)
        return X[train], y[train], X[test], y[test], None
    if name == "digits":
        sample = load_sample()
        return sample.X, sample.y, sample.X_test, sample.y_test, sample.X_public
    texts = np.load(folder / "public_text/x.npy", mmap_mode="r")
    if (
        name == "sources13"
    ):  # which of 13 collections a sentence is from; the last rows are the public ones
        names = np.array((folder / "public_text/sources.txt").read_text().split())
        X = np.asarray(texts[:50_000], np.float32)
        y = np.unique(names, return_inverse=True)[1][:50_000]
        return (
            X[:40_000],
            y[:40_000],
            X[40_000:],
            y[40_000:],
            np.asarray(texts[50_000:], np.float32),
        )
    parts = [
        np.load(folder / name / f"{part}.npy")
        for part in ("train_x", "train_y", "test_x", "test_y")
    ]
    own = folder / name / "public_x.npy"
    public = np.load(own) if own.exists() else np.asarray(texts[:PUBLIC_ROWS])
    return (
        parts[0].astype(np.float32),
        parts[1],
        parts[2].astype(np.float32),
        parts[3],
        public.astype(np.float32),
    )


def design(y, rng):
    """Draw some of the classes, and how many records each has: from equal numbers to one in a hundred."""
    available = np.bincount(y)
    n_classes = int(
        np.clip(
            round(np.exp(rng.uniform(np.log(2), np.log(len(available) + 1)))),
            2,
            len(available),
        )
    )
    classes = np.sort(rng.choice(len(available), n_classes, replace=False))
    largest = np.exp(
        rng.uniform(
            np.log(8), np.log(min(available.max(), 2 * MOST_RECORDS / n_classes))
        )
    )
    ratio = rng.choice((1, 3, 10, 100))
    sizes = largest * ratio ** -rng.permutation(np.linspace(0, 1, n_classes))
    return classes, np.clip(np.rint(sizes), 1, available[classes]).astype(int)


def reference(X, y, X_test, y_test):
    """Return the balanced accuracy without privacy, from not more rows than a logistic regression takes quickly."""
    # Classes weigh alike, as in the methods and in what is measured.
    fitted = LogisticRegression(C=30.0, max_iter=1000, class_weight="balanced")
    fitted.fit(normalize(X[:REFERENCE_ROWS]), y[:REFERENCE_ROWS])
    right = fitted.predict(normalize(X_test)) == y_test
    return round(
        float(np.mean([right[y_test == c].mean() for c in np.unique(y_test)])), 3
    )


def measure(options):
    """Write the accuracy without privacy, and a line for each fit."""
    X, y, X_test, y_test, public = load(options.folder, options.set)
    names = (
        np.load(options.folder / options.set / "class_names_x.npy")
        if options.names
        else None
    )
    with options.out.open("a", encoding="utf-8") as out:
        if options.seed == 0 and not options.names:
            head = {
                "set": options.set,
                "reference": reference(X, y, X_test, y_test),
                "classes": len(np.unique(y)),
            }
            out.write(json.dumps(head) + "\n")
        for fit in range(options.fits):
            rng = np.random.default_rng((options.seed, fit))
            classes, sizes = design(y, rng)
            chosen = [
                rng.choice(np.flatnonzero(y == c), n, replace=False)
                for c, n in zip(classes, sizes, strict=True)
            ]
            rows = np.sort(np.concatenate(chosen))
            tested = np.flatnonzero(np.isin(y_test, classes))
            examples = () if names is None else (names[classes], classes)
            methods = METHODS if names is None else NAMED
            for method, with_public in methods if public is not None else ALONE:
                mu = round(float(np.exp(rng.uniform(np.log(0.1), np.log(8)))), 3)
                given = PublicData(public if with_public else None, *examples)
                fitted = BY_METHOD[method].load()(
                    GaussianDP(mu), classes=classes, public=given, random_state=fit
                )
                fitted.fit(X[rows], y[rows])
                right = fitted.predict(X_test[tested]) == y_test[tested]
                recalls = [
                    round(float(right[y_test[tested] == c].mean()), 3) for c in classes
                ]
                line = {
                    "set": options.set,
                    "method": method,
                    "public": with_public,
                    **({} if names is None else {"names": True}),
                    "mu": mu,
                    "features": X.shape[1],
                    "sizes": sizes.tolist(),
                    "recalls": recalls,
                }
                out.write(json.dumps(line) + "\n")
            out.flush()


@dataclass(frozen=True)
class Groups:
    """Classes of similar size of one fit, at most five groups a fit: columns of equal length."""

    set: np.ndarray
    fit: np.ndarray
    n_classes: np.ndarray
    n_features: np.ndarray
    mean_size: np.ndarray
    size: np.ndarray
    members: np.ndarray
    spend: np.ndarray
    s: np.ndarray
    recall: np.ndarray

    def of(self, sets):
        """Return those of some sets."""
        return self.only(np.isin(self.set, sets))

    def learnt(self):
        """Return those of fits whose smallest class has 10 records at mu = 1, or as much: with less, chance decides."""
        enough = self.size * self.spend >= 10
        return self.only(~np.isin(self.fit, self.fit[~enough]))

    def only(self, kept):
        """Return some of them."""
        return Groups(
            **{name: getattr(self, name)[kept] for name in Groups.__dataclass_fields__}
        )

    def by_fit(self, values):
        """Return the mean over the classes of each fit, as balanced accuracy is one."""
        places = np.unique(self.fit, return_inverse=True)[1]
        sums = np.bincount(places, values * self.members)
        return sums / np.bincount(places, self.members)

    @property
    def weights(self):
        """Each set counts alike."""
        names, places, counts = np.unique(
            self.set, return_inverse=True, return_counts=True
        )
        return 1 / (len(names) * counts[places])

    def variance(self, law, s):
        """Return 1/D² of each group."""
        return recall_model.variance(
            law, s, self.size, self.mean_size, self.n_features, self.spend
        )

    def misses(self, law, s):
        """Return expected less measured recall."""
        return (
            recall_model.recall(1 / np.sqrt(self.variance(law, s)), self.n_classes)
            - self.recall
        )

    def fits_covered(self, law, s, factor):
        """Return of which fits the balanced accuracy lies in the range that is stated, to a twentieth."""
        measured = self.by_fit(self.recall)
        low, high = (
            measured + self.by_fit(self.misses(law, s * scale))
            for scale in (factor, 1 / factor)
        )
        # Where nothing is learnt, half of the fits are below chance by luck.
        learnt = np.maximum(measured, self.by_fit(1 / self.n_classes))
        return (learnt >= low - 0.025) & (learnt <= high + 0.025)

    def covered(self, law, s, factor):
        """Return which groups lie in the range that is stated."""
        low, high = recall_model.recall_range(
            self.variance(law, s), self.n_classes, factor
        )
        return (self.recall >= low) & (self.recall <= high)


def groups(path, method, public, names=False):
    """Read the measurements of a method, from names of classes or from nothing."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    s = {
        line["set"]: recall_model.hardness(line["reference"], line["classes"])
        for line in lines
        if "reference" in line
    }
    columns = []
    for fit, line in enumerate(lines):
        if (line.get("method"), line.get("public"), line.get("names", False)) != (
            method,
            public,
            names,
        ):
            continue
        sizes = np.array(line["sizes"])
        recalls = np.array(line["recalls"])
        spend = recall_model.spend(method, GaussianDP(line["mu"]))
        for chosen in np.array_split(
            np.argsort(sizes, kind="stable"), min(len(sizes), 5)
        ):
            size = float(np.exp(np.log(sizes[chosen]).mean()))
            of_fit = (line["set"], fit, len(sizes), line["features"], sizes.mean())
            of_group = (
                size,
                len(chosen),
                spend,
                s[line["set"]],
                recalls[chosen].mean(),
            )
            columns.append((*of_fit, *of_group))
    return Groups(*map(np.array, zip(*columns, strict=True)))


def calibrated(data, *, table=False):
    """Return the constants that fit some groups best, in least squares, and the ranges that hold four of five."""

    def law(x):
        return recall_model.Law(*np.exp(x[:2]), *x[2:])

    def misses(x):
        missed = data.misses(law(x), data.s)
        if not table:
            return missed * np.sqrt(data.weights)
        # Of two classes, noise takes from one what it gives to the other, so that only
        # their mean says how much is learnt.
        return data.by_fit(missed) * np.sqrt(data.by_fit(data.weights))

    # How wide the rows of tables are made no difference.
    widest = 1e-9 if table else 3
    found = law(
        least_squares(
            misses, [0, 5, widest / 6, 0.3], bounds=([-1, 0, 0, 0], [4, 9, widest, 2])
        ).x
    )
    usual = recall_model.usual_hardness(table=table)
    if table:
        data = data.learnt()
    return replace(
        found,
        spread=range_of(data, found, data.s, table=table),
        wide=range_of(data, found, usual, table=table),
    )


def worth_of_names(data, law):
    """Return the variance of what names tell that fits some groups best; all else is as without names."""

    def misses(x):
        return data.misses(replace(law, names=float(np.exp(x[0]))), data.s) * np.sqrt(
            data.weights
        )

    return float(np.exp(least_squares(misses, [0]).x[0]))


def range_of(data, law, s, *, table=False):
    """Return the smallest factor whose range holds the share of groups, or of balanced accuracies."""
    covered, weights = data.covered, data.weights
    if table:
        covered, weights = data.fits_covered, data.by_fit(data.weights)
    for factor in np.exp(np.arange(0.02, 6, 0.02)):
        if np.average(covered(law, s, factor), weights=weights) >= COVERAGE:
            break
    return float(factor)


def calibrate(options):
    """Print the constants."""
    for method, public in NAMED:
        data = groups(options.results, method, public, names=True).of(CALIBRATION)
        print(
            f"    names, {public}: {worth_of_names(data, recall_model.LAWS[method, public]):.3g}"
        )
    for method, public in METHODS:
        law = calibrated(groups(options.results, method, public).of(CALIBRATION))
        print(
            f'    ("{method}", {public}): Law({", ".join(f"{value:.3g}" for value in vars_of(law))}),'
        )
    data = groups(options.results, "softmax", False).of(TABLES)
    law = calibrated(data, table=True)
    print(f"TABLE = Law({', '.join(f'{value:.3g}' for value in vars_of(law))})")
    middle = np.exp(np.log(np.unique(data.s)).mean())
    print(f"of middle hardness {middle:.3g}")


def vars_of(law):
    """Return the constants of a law that starts from no names, in order."""
    return [getattr(law, name) for name in law.__dataclass_fields__ if name != "names"]


def test(options):
    """Print the errors on sets that no constant has seen: those of TEST, then each set by the constants of the rest."""
    print(HEADER)
    for method, public in METHODS:
        data = groups(options.results, method, public)
        for name in TEST:
            print(
                row(
                    f"{method}{', public rows' if public else ''}",
                    name,
                    recall_model.LAWS[method, public],
                    data.of([name]),
                )
            )
    for method, public in NAMED:
        data = groups(options.results, method, public, names=True).of(TEST)
        print(
            row(
                f"{method}{', public rows' if public else ''}, names",
                "hwu64",
                recall_model.NAMED[public],
                data,
            )
        )
    print(
        "\nTables: error of balanced accuracy and share in range; then the same, ceiling unknown.\n"
    )
    tables = groups(options.results, "softmax", False)
    for name in TEST_TABLES:
        print(row_of_table(name, tables.of([name]).learnt()))
    print(
        "\nClasses of similar size by what the plan says of them, and shares that were found so.\n\n"
        + VERDICTS
    )
    for method, public in METHODS:
        print(
            verdicts(method, public, groups(options.results, method, public).of(TEST))
        )
    print("\nEach set by the constants of all others.\n\n" + HEADER)
    for method, public in METHODS:
        data = groups(options.results, method, public)
        for name in (*CALIBRATION, *TEST):
            law = calibrated(
                data.of([other for other in (*CALIBRATION, *TEST) if other != name])
            )
            print(
                row(
                    f"{method}{', public rows' if public else ''}",
                    name,
                    law,
                    data.of([name]),
                )
            )


HEADER = (
    "| method | set | error of recall | bias | in range | error of balanced accuracy | "
    "error of recall, ceiling unknown | in range, ceiling unknown |\n|---|---|---|---|---|---|---|---|"
)


def row(method, name, law, data):
    """Return errors of recalls and of balanced accuracies, and how many lie in the range."""
    s = recall_model.usual_hardness()
    known = data.misses(law, data.s)
    unknown = data.misses(law, s)
    balanced = data.by_fit(known)
    cells = (
        f"{np.abs(known).mean():.3f}",
        f"{known.mean():+.3f}".replace("-", "−"),
        f"{data.covered(law, data.s, law.spread).mean() * 100:.0f} %",
        f"{np.abs(balanced).mean():.3f}",
        f"{np.abs(unknown).mean():.3f}",
        f"{data.covered(law, s, law.wide).mean() * 100:.0f} %",
    )
    return f"| {' | '.join((method, name, *cells))} |"


def row_of_table(name, data):
    """Return errors of balanced accuracies, and how many lie in the range."""
    law = recall_model.TABLE
    usual = recall_model.usual_hardness(table=True)
    cells = [name]
    for s, factor in ((data.s, law.spread), (usual, law.wide)):
        missed = data.by_fit(data.misses(law, s))
        within = data.fits_covered(law, s, factor).mean()
        cells += [f"{np.abs(missed).mean():.3f}", f"{within * 100:.0f} %"]
    return f"| {' | '.join(cells)} |"


VERDICTS = "| method | said | groups | found | found in part | not found |\n|---|---|---|---|---|---|"


def verdicts(method, public, data):
    """Return rows: of what was said to be found, in part, or not, how much was so."""
    law = recall_model.LAWS[method, public]
    said, true = (
        np.digitize(
            recall_model.share_found(law, data.s, recalls, data.n_classes),
            (FOUND_IN_PART, FOUND),
        )
        for recalls in (data.recall + data.misses(law, data.s), data.recall)
    )
    rows = []
    for verdict, name in ((2, "yes"), (1, "in part"), (0, "no")):
        shares = [
            f"{(true[said == verdict] == other).mean() * 100:.0f} %"
            for other in (2, 1, 0)
        ]
        label = f"{method}{', public rows' if public else ''}"
        rows.append(
            f"| {' | '.join((label, name, str((said == verdict).sum()), *shares))} |"
        )
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("set", choices=(*CALIBRATION, *TEST, *TABLES, *TEST_TABLES))
    measuring.add_argument("--names", action="store_true")
    measuring.add_argument("--fits", type=int, default=60)
    measuring.add_argument("--seed", type=int, default=0)
    measuring.add_argument("--out", type=Path, default=MEASURED)
    measuring.set_defaults(run=measure)
    for run in (calibrate, test):
        command = commands.add_parser(run.__name__)
        command.add_argument("--results", type=Path, default=MEASURED)
        command.set_defaults(run=run)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
