"""Peak memory and rate of `dppl embed` on generated images, and a kill at a random moment.

    python benchmarks/embedding.py [--images 5000 20000] [--encoder pixels] [--json
    FILE]

Each table is made by a process of its own. The largest is then made once more, killed
with SIGKILL after a random share of the time that it took, made to the end, and
compared byte by byte.
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


def make_images(folder, n):
    """Write smooth random JPEG images into folders of classes."""
    rng = np.random.default_rng(0)
    for number in range(n):
        path = folder / f"class{number % CLASSES}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).resize(
            (128, 96)
        ).save(path, quality=85)


def start(source, table, encoder):
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
        "shard_rows=1024",
    ]
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)


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


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, nargs="+", default=[5000, 20_000])
    parser.add_argument("--encoder", default="pixels")
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
    growth = figures[-1]["peak MB"] / figures[0]["peak MB"] - 1
    result = {
        "runs": figures,
        "growth of peak memory": f"{growth:+.1%}",
        "kill": after_kill,
    }
    write_down(result, options.json)


if __name__ == "__main__":
    main()
