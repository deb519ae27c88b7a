"""Ordinary tables by a public schema: the default method, others on the same rows, and DP-EBM, the best public peer.

    python benchmarks/tables.py run FOLDER --out FILE [--epsilons 0.5 1 2 4] [--seeds 5]
    [--methods softmax probe dp-ebm logistic ...] [--sets NAME ...]
    python benchmarks/tables.py show FILE
    python benchmarks/tables.py speed FOLDER [--set adult] [--rows 1000000] [--frame]

A folder holds NAME.csv, whose column `label` is the class, and NAME.toml, the schema.
Each seed splits a table anew: three of four rows train, 12,000 at most, and 8,000 of
the others test. A line of FILE is a cell, and those that are there are not run again.
`dp-ebm` and `ebm` want `pip install interpret-core`; the first takes two classes, and
no missing numbers, so the middle of the bounds stands for these. delta is 1e-6. CPU
seconds are of the fit alone, with the map of its rows. `speed` embeds the rows of a
table again and again, as `dppl embed` does, and prints CPU seconds and memory; with
another checkout in PYTHONPATH it measures that one. With --frame it fits the default
method on a frame of them in memory, which is counted, too.
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
from dppl.training import PrivateClassifier
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
    speed.add_argument("--frame", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    warnings.filterwarnings("ignore", "Privacy violation")  # DP-EBM: it has a seed
    if options.command == "show":
        print(summary(read_cells(options.file)))
    elif options.command == "speed":
        measured = fit_of_frame if options.frame else embedding_of_file
        print(spent(measured, options.folder, options.set, options.rows))
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
                    measured = table.measured(method, epsilon)
                    cell |= {name: round(one, 4) for name, one in measured.items()}
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(cell) + "\n")


def spent(measured, folder, name, rows):
    """Say what it takes to embed or to fit as many rows."""
    encoder = load_encoder(f"columns:{folder / name}.toml")
    seconds = measured(encoder, folder / f"{name}.csv", rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return f"{rows} rows of {len(encoder.names)} columns: {seconds:.1f} CPU s, at most {peak:.0f} MB"


def embedding_of_file(encoder, table, rows):
    """Embed the rows of a file, and return the CPU seconds."""
    header, *lines = table.read_text("utf-8").splitlines(True)
    with TemporaryDirectory() as work:
        path = Path(work) / "records.csv"
        with path.open("w", encoding="utf-8") as file:
            file.writelines([header, *islice(cycle(lines), rows)])
        del lines
        started = time.process_time()
        source = open_source(path, columns=Columns(x=encoder.names))
        embed(source, encoder, Path(work) / "table")
        return time.process_time() - started


def fit_of_frame(encoder, table, rows):
    """Fit on the rows of a frame, and return the CPU seconds."""
    some = pd.read_csv(table, dtype=str)
    frame = pd.concat([some] * -(-rows // len(some)), ignore_index=True)[:rows]
    labels = frame.pop("label").to_numpy()
    budget = ApproxDP(1, DELTA)
    model = PrivateClassifier(encoder, budget, classes=np.unique(labels))
    started = time.process_time()
    model.fit(frame, labels)
    return time.process_time() - started


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
        taken = rows.iloc if hasattr(rows, "iloc") else rows
        model.fit(taken[self.train], y)
        predicted = model.predict(taken[self.test])
        # Ranks of one class against the rest depend on how frequent the others count.
        # Those of the default are equally frequent unless it is asked for the data's.
        shares = {"shares": "data"} if method == "softmax" else {}
        probabilities = model.predict_proba(taken[self.test], **shares)
        seconds += time.process_time() - started
        truth = self.labels[self.test]
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
    """Return Markdown: means over seeds, and what the default is ahead of others, with standard errors."""
    frame = pd.DataFrame(cells)
    lines = []
    for measure in (*MEASURES, "seconds"):
        means = frame.pivot_table(
            index="set", columns=["epsilon", "method"], values=measure, dropna=False
        )
        lines += [f"{measure}:", "", means.round(3).to_string(), ""]
    for peer in ("dp-ebm", "probe"):
        lines += [
            f"AUROC of softmax less that of {peer}:",
            "",
            *ahead_of(peer, frame),
            "",
        ]
    return "\n".join(lines)


def ahead_of(peer, frame):
    """Yield the rows of a table: by how much the default is ahead, by set and epsilon, in the mean over seeds."""
    private = frame[frame.method.isin(("softmax", peer))]
    wide = private.pivot_table(
        index=["set", "epsilon", "seed"], columns="method", values="auroc"
    )
    ahead = (wide["softmax"] - wide[peer]).dropna().groupby(["set", "epsilon"])
    means = ahead.mean().unstack()
    errors = ahead.sem().unstack()
    yield row("table", *(f"{epsilon:g}" for epsilon in means))
    yield row(*["---"] * (1 + len(means.columns)))
    for name in means.index:
        pairs = zip(means.loc[name], errors.loc[name], strict=True)
        yield row(name, *(difference(*one) for one in pairs))
    over_sets = zip(means.mean(), means.sem(), strict=True)
    yield row("mean, ± over tables", *(difference(*one) for one in over_sets))


def row(*cells):
    return f"| {' | '.join(map(str, cells))} |"


def difference(mean, error):
    return f"{mean:+.3f} ± {error:.3f}".replace("-", "−")


if __name__ == "__main__":
    main()
