"""Ordinary tables by a public schema: the default method, others on the same rows, and DP-EBM, the best public peer.

    python benchmarks/tables.py run FOLDER --out FILE [--epsilons 0.5 1 2 4] [--seeds 5]
    [--methods softmax probe dp-ebm logistic ...] [--sets NAME ...]
    python benchmarks/tables.py show FILE
    python benchmarks/tables.py speed FOLDER [--set adult] [--rows 1000000]

A folder holds NAME.csv, whose column `label` is the class, and NAME.toml, the schema.
Each seed splits a table anew: three of four rows train, 12,000 at most, and 8,000 of
the others test. A line of FILE is a cell, and those that are there are not run again.
`dp-ebm` and `ebm` want `pip install interpret-core`; the first takes two classes, and
no missing numbers, so the middle of the bounds stands for these. delta is 1e-6. CPU
seconds are of the fit alone, with the map of its rows. `speed` embeds the rows of a
table again and again, as `dppl embed` does, and prints CPU seconds and memory; with
another checkout in PYTHONPATH it measures that one.
"""

import argparse
import json
import resource
import time
import warnings
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score, roc_auc_score

from dppl import ApproxDP, SoftmaxPrototypes
from dppl.encoders.load import load_encoder
from dppl.errors import WeakBudgetWarning
from dppl.io import Columns, open_source
from dppl.methods import LinearProbe
from dppl.training.embedding import embed
from dppl.training.items import embed_items

DELTA = 1e-6
MOST_TRAIN = 12_000
MOST_TEST = 8_000
PRIVATE = ("softmax", "probe", "dp-ebm")
PUBLIC = ("logistic", "boosting", "ebm")
MEASURES = ("auroc", "balanced", "minority")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("folder", type=Path)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1, 2, 4])
    run.add_argument("--seeds", type=int, default=5)
    run.add_argument("--methods", nargs="+", default=[*PRIVATE, "logistic", "boosting"])
    run.add_argument("--sets", nargs="+")
    show = commands.add_parser("show")
    show.add_argument("file", type=Path)
    speed = commands.add_parser("speed")
    speed.add_argument("folder", type=Path)
    speed.add_argument("--set", default="adult")
    speed.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    warnings.filterwarnings("ignore", "Privacy violation")  # DP-EBM: it has a seed
    if options.command == "show":
        print(summary(read_cells(options.file)))
    elif options.command == "speed":
        print(speed_of(options.folder, options.set, options.rows))
    else:
        run_cells(options)


def run_cells(options):
    """Append what is missing, one seed of a table after the other."""
    done = set()
    if options.out.exists():
        done = {key(cell) for cell in read_cells(options.out)}
    names = options.sets or sorted(path.stem for path in options.folder.glob("*.toml"))
    for seed in range(options.seeds):
        for name in names:
            table = Table(options.folder, name, seed)
            for method in options.methods:
                # Without privacy one cell is that of all budgets.
                budgets = options.epsilons if method in PRIVATE else [None]
                for epsilon in budgets:
                    cell = {
                        "set": name,
                        "seed": seed,
                        "method": method,
                        "epsilon": epsilon,
                    }
                    if key(cell) in done or not table.takes(method):
                        continue
                    cell |= table.measured(method, epsilon)
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(cell) + "\n")


def speed_of(folder, name, rows):
    """Embed as many rows, and say what that took."""
    header, *lines = (folder / f"{name}.csv").read_text("utf-8").splitlines(True)
    encoder = load_encoder(f"columns:{folder / name}.toml")
    with TemporaryDirectory() as work:
        path = Path(work) / "records.csv"
        with path.open("w", encoding="utf-8") as file:
            file.writelines([header, *islice(cycle(lines), rows)])
        del lines
        started = time.process_time()
        source = open_source(path, columns=Columns(x=encoder.names))
        embed(source, encoder, Path(work) / "table")
        seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return f"{rows} rows of {len(encoder.names)} columns: {seconds:.1f} CPU s, at most {peak:.0f} MB"


def key(cell):
    return cell["set"], cell["seed"], cell["method"], cell["epsilon"]


def read_cells(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Table:
    """A split of a table, and its rows by the schema."""

    def __init__(self, folder, name, seed):
        self.seed = seed
        frame = pd.read_csv(folder / f"{name}.csv", dtype=str)
        self.labels = frame.pop("label").to_numpy()
        self.classes = np.unique(self.labels)
        order = np.random.default_rng(seed).permutation(len(frame))
        n_train = min(len(frame) * 3 // 4, MOST_TRAIN)
        self.train = order[:n_train]
        self.test = order[n_train:][:MOST_TEST]
        self.encoder = load_encoder(f"columns:{folder / name}.toml")
        self.frame = frame[list(self.encoder.names)]
        started = time.process_time()
        self.rows = np.asarray(embed_items(self.encoder, self.frame, name))
        mapped = time.process_time() - started
        self.map_seconds = mapped * n_train / len(frame)

    def takes(self, method):
        """Whether a method can be fitted on it."""
        return method != "dp-ebm" or len(self.classes) == 2

    def measured(self, method, epsilon):
        """Fit, and measure on the test rows."""
        started = time.process_time()
        if method in ("dp-ebm", "ebm"):
            rows = self.plain()
            seconds = 0.0
        else:
            rows = self.rows
            seconds = self.map_seconds
        model = self.estimator(method, epsilon)
        y = self.labels[self.train]
        if hasattr(rows, "iloc"):
            model.fit(rows.iloc[self.train], y)
            probabilities = model.predict_proba(rows.iloc[self.test])
        else:
            model.fit(rows[self.train], y)
            probabilities = model.predict_proba(rows[self.test])
        seconds += time.process_time() - started
        truth = self.labels[self.test]
        predicted = model.classes_[probabilities.argmax(axis=1)]
        recalls = recall_score(
            truth, predicted, labels=self.classes, average=None, zero_division=0
        )
        rarest = np.argsort(np.unique(y, return_counts=True)[1])
        if len(self.classes) == 2:
            auroc = roc_auc_score(truth == model.classes_[1], probabilities[:, 1])
        else:
            auroc = roc_auc_score(
                truth, probabilities, multi_class="ovr", labels=model.classes_
            )
        return {
            "auroc": auroc,
            "balanced": recalls.mean(),
            "minority": recalls[rarest[: max(1, len(rarest) // 4)]].mean(),
            "seconds": seconds,
        }

    def estimator(self, method, epsilon):
        """Return what is fitted."""
        seed = self.seed
        if method == "logistic":
            return LogisticRegression(C=100.0, max_iter=2000)
        if method == "boosting":
            return HistGradientBoostingClassifier(random_state=seed)
        if method == "ebm":
            from interpret.glassbox import ExplainableBoostingClassifier

            return ExplainableBoostingClassifier(random_state=seed)
        if method == "dp-ebm":
            from interpret.privacy import DPExplainableBoostingClassifier

            kinds, bounds = self.kinds()
            return DPExplainableBoostingClassifier(
                feature_types=kinds,
                privacy_bounds=bounds,
                epsilon=epsilon,
                delta=DELTA,
                random_state=seed,
                n_jobs=1,
            )
        kind = {"softmax": SoftmaxPrototypes, "probe": LinearProbe}[method]
        budget = ApproxDP(epsilon, DELTA)
        return kind(budget, classes=self.classes, random_state=seed)

    def kinds(self):
        """Return what DP-EBM calls the columns, and the public bounds of numbers."""
        kinds = []
        bounds = {}
        for place, column in enumerate(self.encoder.columns):
            numeric = hasattr(column, "low") and isinstance(column.low, int | float)
            kinds.append("continuous" if numeric else "nominal")
            if numeric:
                bounds[place] = (float(column.low), float(column.high))
        return kinds, bounds

    def plain(self):
        """Return the columns as numbers and texts."""
        _, bounds = self.kinds()
        frame = self.frame.copy()
        for place, (low, high) in bounds.items():
            name = frame.columns[place]
            numbers = pd.to_numeric(frame[name], errors="coerce")
            frame[name] = numbers.fillna((low + high) / 2).clip(low, high)
        return frame.fillna("missing")


def summary(cells):
    """Return Markdown tables of means over seeds, and of differences with their standard errors over sets."""
    frame = pd.DataFrame(cells)
    lines = []
    for measure in (*MEASURES, "seconds"):
        table = frame.pivot_table(
            index="set", columns=["epsilon", "method"], values=measure, dropna=False
        )
        lines += [f"{measure}:", "", table.round(3).to_string(), ""]
    private = frame[frame.method.isin(PRIVATE)]
    wide = private.pivot_table(
        index=["set", "epsilon"], columns="method", values="auroc"
    )
    for peer in ("dp-ebm", "probe"):
        if peer not in wide:
            continue
        ahead = (wide["softmax"] - wide[peer]).dropna()
        for epsilon, differences in ahead.groupby("epsilon"):
            error = differences.std() / len(differences) ** 0.5
            worst, _ = differences.idxmin()
            lines.append(
                f"softmax - {peer} at {epsilon:g}: {differences.mean():+.3f} ± {error:.3f} "
                f"on {len(differences)} sets, least {differences.min():+.3f} ({worst})"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
