"""Several institutions against all records in one place, one of them alone, and merged models; time and memory of many.

    python benchmarks/federation.py accuracy FOLDER ...   # with train_x.npy, train_y.npy, test_x.npy, test_y.npy
    python benchmarks/federation.py many [--parties 20] [--records 50000] [--processes 2] ...   # on made-up records

Splits are public and made from labels, which research data allow. Noise is seeded, each
institution's its own.
"""

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from dppl import GaussianDP, Ledger, MeanPrototypes, SoftmaxPrototypes
from dppl.errors import WeakBudgetWarning
from dppl.federation import Federation, InProcess, Party, merge

SEEDS = 3
MUS = (0.25, 1.0, 4.0)
INSTITUTIONS = (2, 5, 20)


def splits(y, k, rng):
    """Yield ways to give records to k institutions."""
    order = rng.permutation(len(y))
    classes = np.unique(y)
    yield "even", np.array_split(order, k)
    if k <= len(classes):
        yield (
            "by class",
            [np.flatnonzero(np.isin(y, classes[place::k])) for place in range(k)],
        )
    large = int(0.8 * len(y))
    yield "by size", [order[:large], *np.array_split(order[large:], k - 1)]


def federation(folder, parts, classes, seed):
    """Return institutions in this process, whose ledgers and answers lie in a folder."""
    opened = {}
    for name, (X, y) in parts.items():
        ledger = Ledger(folder / f"{name}.db", "records", GaussianDP(100))
        state = folder / f"{name}-state"
        at_most = 10**6
        opened[name] = Party(
            name,
            X,
            y,
            classes=classes,
            ledger=ledger,
            state=state,
            at_most=at_most,
            random_state=seed,
        )
    return opened


def accuracy(folders):
    """Print balanced accuracies as a table."""
    print(
        "| data | method | institutions | split | mu | one place | together | merged | alone |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for folder in folders:
        X, y, X_test, y_test = (
            np.load(folder / f"{name}.npy")
            for name in ("train_x", "train_y", "test_x", "test_y")
        )
        X = X.astype(np.float32)
        X_test = X_test.astype(np.float32)
        classes = np.unique(y)

        def score(model, X=X_test, y=y_test, classes=classes):
            hits = model.predict(X) == y
            return float(np.mean([hits[y == one].mean() for one in classes]))

        for kind in (SoftmaxPrototypes, MeanPrototypes):
            for mu in MUS:
                whole = np.mean(
                    [
                        score(kind(GaussianDP(mu), classes, random_state=s).fit(X, y))
                        for s in range(SEEDS)
                    ]
                )
                for k in INSTITUTIONS:
                    for name, parts in splits(y, k, np.random.default_rng(0)):
                        rows = []
                        for seed in range(SEEDS):
                            given = {
                                f"h{place}": (X[part], y[part])
                                for place, part in enumerate(parts)
                            }
                            with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
                                opened = federation(Path(place), given, classes, seed)
                                model = kind(
                                    GaussianDP(mu), classes, unknown_labels="ignore"
                                )
                                together = score(
                                    model.fit(Federation(InProcess(opened)))
                                )
                                for one in opened.values():
                                    one.__exit__()
                            alone = {
                                one: kind(
                                    GaussianDP(mu),
                                    classes,
                                    random_state=1000 * seed + place,
                                ).fit(*data)
                                for place, (one, data) in enumerate(given.items())
                            }
                            each = np.mean(
                                [score(model) for model in list(alone.values())[:5]]
                            )
                            rows.append((together, score(merge(alone)), each))
                        numbers = " | ".join(
                            f"{value:.3f}" for value in (whole, *np.mean(rows, axis=0))
                        )
                        print(
                            f"| {folder.name} | {kind.__name__} | {k} | {name} | {mu:g} | {numbers} |",
                            flush=True,
                        )


class Processes:
    """Institutions in several processes, which answer at the same time."""

    def __init__(self, names, opened, n):
        self.names = tuple(names)
        self._pipes = []
        for start in range(n):
            near, far = multiprocessing.Pipe()
            mine = self.names[start::n]
            multiprocessing.get_context("fork").Process(
                target=self._serve, args=(far, opened, mine)
            ).start()
            far.close()
            self._pipes.append((near, mine))

    @staticmethod
    def _serve(pipe, opened, names):
        parties = {name: opened(name) for name in names}
        while name := pipe.recv():
            pipe.send_bytes(parties[name](pipe.recv_bytes()))

    def exchange(self, messages):
        """Ask in each process one institution after the other."""

        def ask(pipe, names):
            came = {}
            for name in names:
                if name in messages:
                    pipe.send(name)
                    pipe.send_bytes(messages[name])
                    came[name] = pipe.recv_bytes()
            return came

        with ThreadPoolExecutor(len(self._pipes)) as pool:
            return {
                name: reply
                for came in pool.map(lambda one: ask(*one), self._pipes)
                for name, reply in came.items()
            }

    def close(self):
        """Stop them."""
        for pipe, _ in self._pipes:
            pipe.send("")
        for process in multiprocessing.active_children():
            process.join()


def many(n_parties, n_records, n_features, n_classes, n_processes):
    """Time one fit on many institutions in a few processes, and print the largest memory of one."""
    means = (
        np.random.default_rng(0).normal(size=(n_classes, n_features)).astype(np.float32)
    )
    classes = np.arange(n_classes)

    def opened(name):
        rng = np.random.default_rng(int(name[1:]))
        y = rng.integers(n_classes, size=n_records)
        X = np.empty((n_records, n_features), np.float16)
        for start in range(
            0, n_records, 4096
        ):  # wide numbers of all rows are in nobody's memory
            rows = y[start : start + 4096]
            X[start : start + 4096] = means[rows] + 3 * rng.standard_normal(
                (len(rows), n_features), np.float32
            )
        return federation(Path(folder), {name: (X, y)}, classes, None)[name]

    with tempfile.TemporaryDirectory() as folder:
        way = Processes(
            [f"h{place}" for place in range(n_parties)], opened, n_processes
        )
        fit = Federation(way)  # waits until all have made their records
        started = time.perf_counter()
        SoftmaxPrototypes(GaussianDP(1), classes, unknown_labels="ignore").fit(fit)
        seconds = time.perf_counter() - started
        way.close()
    each, own = (
        resource.getrusage(who)
        for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)
    )
    work = sum(one.ru_utime + one.ru_stime for one in (each, own))
    print(
        f"{n_parties} institutions of {n_records} records, {n_features} features, {n_classes} classes",
        end="",
    )
    print(
        f" in {n_processes} processes: {seconds:.0f} s, {work:.0f} s of processor with making the records",
        end="",
    )
    print(
        f"; {each.ru_maxrss / 2**20:.2f} GiB the largest process, {own.ru_maxrss / 2**20:.2f} the coordinator"
    )


def main():
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("accuracy", "many"))
    parser.add_argument("folders", nargs="*", type=Path)
    for name, number in (
        ("parties", 20),
        ("records", 50_000),
        ("features", 384),
        ("classes", 77),
        ("processes", 2),
    ):
        parser.add_argument(f"--{name}", type=int, default=number)
    given = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    if given.what == "accuracy":
        accuracy(given.folders)
    else:
        many(
            given.parties, given.records, given.features, given.classes, given.processes
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
