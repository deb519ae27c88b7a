"""Peak memory and rate of `dppl embed` on generated images, and a kill at a random moment.

    python benchmarks/embedding.py [--images 5000 20000] [--encoder pixels] [--engine
    ray] [--json FILE]

Each table is made by a process of its own. The largest is then made once more, killed
with SIGKILL after a random share of the time that it took, made to the end, and
compared byte by byte. With --engine it is also made by one process on one processor,
and by tasks of that engine: their rates count from the first shard on, when encoders
are loaded.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from measuring import write_down

CLASSES = 10
SHARD_ROWS = 512


def make_images(folder, n):
    """Write smooth random JPEG images into folders of classes."""
    rng = np.random.default_rng(0)
    for number in range(n):
        path = folder / f"class{number % CLASSES}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).resize(
            (128, 96)
        ).save(path, quality=85)


def start(source, table, encoder, engine="local", processors=None):
    command = [
        sys.executable,
        "-m",
        "dppl",
        "embed",
        source,
        "--encoder",
        encoder,
        "--out",
        table,
        "--options",
        f"shard_rows={SHARD_ROWS}",
        "--engine",
        engine,
    ]
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.DEVNULL
    )
    if processors is not None:
        os.sched_setaffinity(process.pid, processors)
    return process


def finish(process):
    """Wait for a process; return its exit code and the most memory it held, in MB."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss / 1024


def measured(source, table, n, encoder):
    """Embed once; return the figures."""
    began = time.perf_counter()
    code, peak = finish(start(source, table, encoder))
    seconds = time.perf_counter() - began
    if code:
        raise SystemExit(f"dppl embed ended with {code}")
    return {
        "images": n,
        "peak MB": round(peak, 1),
        "seconds": round(seconds, 1),
        "images/s": round(n / seconds),
    }


def contents(table):
    return {path.name: path.read_bytes() for path in table.iterdir()}


def killed(source, folder, seconds, encoder):
    """Kill a run at a random moment, run to the end, and compare with the table made before."""
    share = random.SystemRandom().uniform(0.2, 0.95)
    process = start(source, folder / "again", encoder)
    time.sleep(share * seconds)
    os.kill(process.pid, signal.SIGKILL)
    code, _ = finish(process)
    there = len(list((folder / "again").glob("*.parquet")))
    resumed, _ = finish(start(source, folder / "again", encoder))
    first = contents(folder / "table")
    second = contents(folder / "again")
    return {
        "killed after": f"{share:.0%} of the time",
        "exit codes": [code, resumed],
        "shards then": there,
        "shards at the end": len(list((folder / "again").glob("*.parquet"))),
        "files that differ": sorted(
            name for name in {*first, *second} if first.get(name) != second.get(name)
        ),
    }


def spread(source, folder, encoder, engine):
    """Return records a second of one process on one processor and of an engine, and which files differ."""
    rates = {}
    one = {min(os.sched_getaffinity(0))}
    for name, processors in (("local", one), (engine, None)):
        code, _ = finish(start(source, folder / name, encoder, name, processors))
        if code:
            raise SystemExit(f"dppl embed --engine {name} ended with {code}")
        ends = sorted(
            path.stat().st_mtime for path in (folder / name).glob("*.parquet")
        )
        rates[name] = (len(ends) - 1) * SHARD_ROWS / (ends[-1] - ends[0])
    first, second = contents(folder / "local"), contents(folder / engine)
    return {
        "records/s": {name: round(rate) for name, rate in rates.items()},
        "ratio": round(rates[engine] / rates["local"], 2),
        "load": os.getloadavg()[0],
        "files that differ": [name for name in first if first[name] != second[name]],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, nargs="+", default=[5000, 20_000])
    parser.add_argument("--encoder", default="pixels")
    parser.add_argument("--engine")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as name:
        for n in sorted(options.images):
            folder = Path(name) / str(n)
            make_images(folder / "images", n)
            figures.append(
                measured(folder / "images", folder / "table", n, options.encoder)
            )
        after_kill = killed(
            folder / "images", folder, figures[-1]["seconds"], options.encoder
        )
        spread_out = None
        if options.engine is not None:
            spread_out = spread(
                folder / "images", folder, options.encoder, options.engine
            )
    growth = figures[-1]["peak MB"] / figures[0]["peak MB"] - 1
    result = {
        "runs": figures,
        "growth of peak memory": f"{growth:+.1%}",
        "kill": after_kill,
        "spread": spread_out,
    }
    write_down(result, options.json)


if __name__ == "__main__":
    main()
