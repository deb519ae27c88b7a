"""How the benchmarks measure: in turns with a yardstick, since shared machines drift; and what they write down."""

import ctypes
import json
import time
from pathlib import Path
from unittest import mock

import numpy as np

from dppl.kernel.lattice import stream


def timed(function):
    """Return wall and CPU seconds of one call."""
    wall = time.perf_counter()
    cpu = time.process_time()
    function()
    return np.array([time.perf_counter() - wall, time.process_time() - cpu])


def measure(kernels, yardstick, rounds):
    """Return median seconds of each kernel, and its time over that of the yardstick just before and after it."""
    seconds = {name: [] for name in kernels}
    ratios = {name: [] for name in kernels}
    timed(yardstick)
    for _ in range(rounds):
        before = timed(yardstick)
        for name, run in kernels.items():
            own = timed(run)
            after = timed(yardstick)
            seconds[name].append(own)
            ratios[name].append(2 * own / (before + after))
            before = after
    return {
        name: (np.median(seconds[name], axis=0), np.median(ratios[name], axis=0))
        for name in kernels
    }


def on_path(run, path):
    """Return a call whose products are forced onto ``"float32"`` or ``"compiled"``."""

    def forced():
        with mock.patch.object(
            stream, "_WORTH_NUMBA", 0 if path == "compiled" else float("inf")
        ):
            return run()

    return forced


def extra_memory(run):
    """Return by how many bytes a call raised the largest memory of this process; Linux with glibc only."""
    ctypes.CDLL(None).malloc_trim(
        0
    )  # what earlier calls left free would hide what this one takes
    Path("/proc/self/clear_refs").write_text(
        "5", encoding="ascii"
    )  # the peak so far becomes what is held now
    before = _memory("VmHWM")
    run()
    return _memory("VmHWM") - before


def _memory(field):
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def entry(name, value, unit, better, note=""):
    """Return one line of the results: a positive ratio, and whether ``"lower"`` or ``"higher"`` is better."""
    return {
        "name": name,
        "value": float(value),
        "unit": unit,
        "better": better,
        "note": note,
    }


def write_down(result, path):
    """Print a result as JSON, and write it to a file if there is a path."""
    text = json.dumps(result, indent=2)
    print(text)
    if path:
        path.write_text(text + "\n", encoding="utf-8")
