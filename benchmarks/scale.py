"""Seconds of a whole fit in parts: in this process, and on Ray with one worker and with two, in turns.

    python benchmarks/scale.py [--rows 20000] [--features 768] [--classes 100] [--shards 8] [--cores 1 2] [--rounds 3]
    python benchmarks/scale.py --rows 100000 --features 384 --classes 50 --shards 100 --rounds 1   # ten million records

Prints seconds by the clock, CPU seconds of the process that took most, and the memory
of the largest, the least of the rounds each. Workers have a core each, and have fitted
two parts each before the clock starts. All fits must have the same bits. With --folder
the table is kept there, and taken from there the next time.
"""

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from threadpoolctl import threadpool_limits

from dppl import GaussianDP, SoftmaxPrototypes
from dppl.engines import LocalEngine, RayEngine
from dppl.io import read_parts


def write(folder, shards, rows, features, classes):
    """Write float16 rows as `dppl embed` does."""
    folder.mkdir()
    for number in range(shards):
        rng = np.random.default_rng(number)
        x = rng.standard_normal((rows, features), np.float32).astype(np.float16)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), features)
        table = pa.table({"x": lists, "y": rng.integers(0, classes, rows)})
        pq.write_table(
            table, folder / f"part-{number:04}.parquet", use_dictionary=["y"]
        )


def processes():
    """Return CPU seconds and the largest memory so far in MB of this process and of all workers (Linux)."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) == os.getpid() or (
                folder / "cmdline"
            ).read_bytes().startswith(b"ray::"):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                lines = dict(
                    line.split(":", 1)
                    for line in (folder / "status").read_text().splitlines()
                )
                cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                found[folder.name] = cpu, int(lines["VmHWM"].split()[0]) / 1e3
        except (OSError, KeyError):  # it has ended
            continue
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a shard")
    parser.add_argument("--features", type=int, default=768, help="numbers in a row")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument(
        "--cores",
        type=int,
        nargs="+",
        default=[1, 2],
        help="workers of Ray, one core each",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    least: dict[str, list[float]] = {}
    models = set()

    def fit(table):
        return SoftmaxPrototypes(
            GaussianDP(1.0), range(options.classes), random_state=1
        ).fit(table)

    def measure(where, folder, engine, cores=1):
        table = read_parts(folder, engine=engine)
        fit(
            replace(table, parts=table.parts[: 2 * cores])
        )  # workers start, import and compile
        before = processes()
        start = time.perf_counter()
        model = fit(table)
        taken = time.perf_counter() - start
        after = processes()
        cpu = max(
            seconds - before.get(name, (0, 0))[0]
            for name, (seconds, _) in after.items()
        )
        spent = taken, cpu, max(memory for _, memory in after.values())
        least[where] = [
            min(pair) for pair in zip(spent, least.get(where, spent), strict=True)
        ]
        models.add(model.coef_.tobytes())
        print(f"{where}: {taken:.1f} s, {cpu:.1f} CPU s, {spent[2]:.0f} MB", flush=True)

    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        folder = options.folder or Path(name) / "table"
        if not folder.exists():
            write(
                folder, options.shards, options.rows, options.features, options.classes
            )
        for _ in range(options.rounds):
            measure("this process", folder, LocalEngine())
            for cores in options.cores:
                ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False)
                measure(f"Ray, {cores} workers", folder, RayEngine(), cores)
                ray.shutdown()
    assert len(models) == 1
    first = least[f"Ray, {options.cores[0]} workers"]
    for where, (taken, cpu, memory) in least.items():
        faster = f"{first[0] / taken:.2f} times as fast as the first of Ray, {first[1] / cpu:.2f} by CPU seconds"
        print(f"{where}: {taken:.1f} s, {cpu:.1f} CPU s, {memory:.0f} MB; {faster}")


if __name__ == "__main__":
    main()
