"""Seconds of a fit and of the embedding over the number of shards, in one process and on Ray with one and two cores.

    python benchmarks/scale.py [--rows 20000] [--features 768] [--classes 100] [--shards 2 4 8] [--cores 1 2]

Every number is the least of three runs; a fit with one process and one table in memory stands beside those in parts.
The bits of all fits are compared.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from dppl import GaussianDP, SoftmaxPrototypes
from dppl.engines import InProcess, RayEngine
from dppl.io import read_parts, read_table
from dppl.kernel.lattice import Lattice
from dppl.kernel.queries import ClassSums, SoftmaxGradients
from dppl.kernel.records import PartReader, SpreadRecords

RUNS = 3


def write(folder, shards, rows, features, classes):
    """Write float16 rows as `dppl embed` does."""
    folder.mkdir()
    for number in range(shards):
        rng = np.random.default_rng(number)
        x = rng.standard_normal((rows, features), np.float32).astype(np.float16)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), features)
        table = pa.table({"x": lists, "y": rng.integers(0, classes, rows)})
        pq.write_table(table, folder / f"part-{number:04}.parquet")


def seconds(work):
    """Return the least of some times, and what the last run returned."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - start)
    return min(times), found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a shard")
    parser.add_argument("--features", type=int, default=768, help="numbers in a row")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 4, 8], help="numbers of shards")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], help="workers of Ray, one core each")
    options = parser.parse_args()
    classes = list(range(options.classes))
    lattice = Lattice(options.features)
    weights = np.random.default_rng(0).standard_normal((options.classes, options.features))

    def model():
        return SoftmaxPrototypes(GaussianDP(1.0), classes, random_state=1)

    print("| where | shards | class sums, s | one gradient, s | whole fit, s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folders = {shards: Path(name) / str(shards) for shards in options.shards}
        for shards, folder in folders.items():
            write(folder, shards, options.rows, options.features, options.classes)

        def measure(where, engine):
            for shards, folder in folders.items():
                table = read_parts(folder)
                spread = SpreadRecords(table.parts, engine, PartReader(np.array(classes), "error", "add-remove"))
                sums, _ = seconds(lambda s=spread: s.total(ClassSums(lattice, options.classes)))
                one, _ = seconds(lambda s=spread: s.total(SoftmaxGradients(lattice, options.classes), weights=weights))
                whole, fitted = seconds(lambda t=table: model().fit(t, engine=engine))
                expected.setdefault(shards, fitted.coef_.tobytes())
                assert fitted.coef_.tobytes() == expected[shards]
                print(f"| {where} | {shards} | {sums:.2f} | {one:.2f} | {whole:.2f} |", flush=True)

        expected = {}
        with threadpool_limits(1):
            for shards, folder in folders.items():
                table = read_table(folder)
                whole, fitted = seconds(lambda t=table: model().fit(np.asarray(t), t.y))
                expected[shards] = fitted.coef_.tobytes()
                print(f"| one table in memory | {shards} | | | {whole:.2f} |", flush=True)
            measure("in parts, this process", InProcess())
        import ray

        for cores in options.cores:
            ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False)
            RayEngine().check()
            measure(f"Ray, {cores} cores", RayEngine())
            ray.shutdown()


if __name__ == "__main__":
    main()
