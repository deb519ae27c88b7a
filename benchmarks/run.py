"""Measure the library against this machine's peaks, against sizes and against NumPy, and write RESULTS.md.

    python benchmarks/run.py [--quick] [--only kernels ...] [--folder benchmarks]

All that is compared is a ratio within one run, in CPU seconds of one thread;
`compare.py` holds such a file against the committed one. Each part runs in a process of
its own. Parts whose packages are not installed are left out with the reason; all of
them take `pip install torch opacus`.
Under 8 minutes on a laptop, and under one with --quick, whose small sizes say that
everything runs and nothing else. Exit code 1 if a part fails, which is then missing
from the results.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
PACKAGES = (
    "dppl",
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "torch",
    "opacus",
)
LIMIT = 600


def kernels(quick, paths=("float32",)):
    """Rates of products over that of a large one; the map and the sums over a copy are a part of their own."""
    from kernels import PEAK_SHARE, products
    from measuring import entry

    sizes = (1_000, 2_000, 1, 512) if quick else (8_000, 20_000, 7, 2_048)
    return [
        entry(
            name,
            found[PEAK_SHARE][1],
            PEAK_SHARE,
            "higher",
            f"{found['GFLOP/s'][1]} GFLOP/s",
        )
        for name, found in products(paths, *sizes).items()
        if name != "float32 product"
    ]


def compiled_kernels(quick):
    """Rates of the products that are compiled where numba is."""
    return kernels(quick, ("compiled",))


def passes(quick):
    """Time of the map to the lattice and of class sums over that of a copy."""
    from kernels import COPIES, passes
    from measuring import entry

    found = passes(*((2_000, 1) if quick else (20_000, 9)))
    return [
        entry(name, seen[COPIES][1], COPIES, "lower") for name, seen in found.items()
    ]


def selection(quick):
    """Time to select a row for each class over that of a copy of the utilities."""
    import numpy as np

    from growth import choice
    from measuring import entry, measure

    m, n_classes = (20_000, 10) if quick else (200_000, 50)
    utilities = np.ones((n_classes, m), np.int64)
    copy = np.empty_like(utilities)
    name = f"selection among {m} for {n_classes} classes"
    found = measure(
        {name: choice(m, n_classes)},
        lambda: np.copyto(copy, utilities),
        1 if quick else 9,
    )
    return [entry(name, found[name][1][1], "times a copy of the utilities", "lower")]


def evaluation(quick):
    """Time of a private evaluation beyond its predictions over that of counting hits and misses in NumPy."""
    import numpy as np

    from dppl import GaussianDP, evaluate
    from dppl.evaluation import AlreadyPredicted
    from measuring import entry, measure

    n, n_classes = (20_000, 50) if quick else (1_000_000, 1_000)
    rng = np.random.default_rng(0)
    table = AlreadyPredicted(range(n_classes))
    y = rng.integers(n_classes, size=n)
    predicted = np.where(rng.random(n) < 0.8, y, rng.integers(n_classes, size=n))
    name = f"evaluation of {n} predictions of {n_classes} classes"
    ours = {name: lambda: evaluate(table, predicted, y, GaussianDP(0.3))}
    seconds, ratio = measure(
        ours, lambda: np.bincount(2 * y + (y == predicted)), 1 if quick else 5
    )[name]
    return [
        entry(name, ratio[1], "times counts in NumPy", "lower", f"{seconds[1]:.2f} s")
    ]


def noise(quick):
    """Time of exact noise from the operating system over that of NumPy's."""
    from dppl.kernel.mechanisms.randomness import randomness
    from measuring import entry, measure
    from noise import WIDTHS

    shape, rounds = ((10, 64), 1) if quick else ((100, 768), 15)
    found = []
    for width in WIDTHS:

        def draw(seed, width=width):
            return lambda: randomness(seed).rounded_gaussian(width, shape)

        seconds, ratio = measure({"system": draw(None)}, draw(0), rounds)["system"]
        n = shape[0] * shape[1]
        note = f"{n} values, {1e9 * seconds[1] / n:.0f} ns each"
        found.append(
            entry(
                f"noise of standard deviation {width:g}",
                ratio[1],
                "times seeded noise",
                "lower",
                note,
            )
        )
    return found


def _named(module, function):
    return lambda quick: getattr(import_module(module), function)(quick)


# Title, what to run, and the packages it needs beyond the library's.
PARTS = {
    "kernels": ("Kernels over the peak of a float32 product", kernels, ()),
    "compiled": (
        "Kernels over the peak of a float32 product",
        compiled_kernels,
        ("numba",),
    ),
    "passes": ("Passes over a copy of what they read", passes, ()),
    "selection": ("Passes over a copy of what they read", selection, ()),
    "evaluation": ("Passes over a copy of what they read", evaluation, ()),
    "noise": ("Exact noise over seeded noise", noise, ()),
    "memory": ("Memory over size", _named("memory", "over_size"), ()),
    "memory-file": ("Memory over size", _named("memory", "from_file"), ()),
    "memory-opacus": (
        "Memory over size",
        _named("memory", "opacus"),
        ("torch", "opacus"),
    ),
    "growth": ("Growth", _named("growth", "exponents"), ()),
    "numpy": ("Beside NumPy", _named("plain_numpy", "plain_numpy"), ()),
}


def missing(modules):
    """Return why one of some modules cannot be imported, or an empty text."""
    for module in modules:
        try:
            if find_spec(module.partition(".")[0]) is None:
                return f"{module} is not installed"
            import_module(module)
        except ImportError as error:
            return f"{module} is installed but cannot be imported ({error.msg.partition(' (')[0]})"
    return ""


def measure(part, quick):
    """Return the entries of a part, or the reason why there are none, from a process of its own."""
    words = [sys.executable, __file__, "--part", part, *(["--quick"] if quick else [])]
    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    try:
        done = subprocess.run(
            words, env=environment, stdout=subprocess.PIPE, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took longer than {LIMIT} s"}
    return (
        json.loads(done.stdout.splitlines()[-1])
        if done.returncode == 0
        else {"failed": "failed"}
    )


def print_part(part, quick):
    """Measure a part here and print it as JSON."""
    from dppl.errors import WeakBudgetWarning

    _, run, modules = PARTS[part]
    reason = missing(modules)
    # Every fit here is of made-up records.
    warnings.simplefilter("ignore", WeakBudgetWarning)
    print(json.dumps({"skipped": reason} if reason else {"entries": run(quick)}))


def measured(parts, quick):
    """Return all results of some parts, with what they were taken on."""
    start = time.monotonic()
    load = os.getloadavg()[0]
    found = {}
    for part in parts:
        began = time.monotonic()
        found[part] = measure(part, quick)
        told = (
            found[part].get("skipped")
            or found[part].get("failed")
            or f"{time.monotonic() - began:.0f} s"
        )
        print(f"{part}: {told}", file=sys.stderr)
    versions = {name: metadata.version(name) for name in PACKAGES if _installed(name)}
    return {
        "quick": quick,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}",
        "load before": round(load, 1),
        "seconds": round(time.monotonic() - start),
        "versions": versions,
        "skipped": {
            part: seen["skipped"] for part, seen in found.items() if "skipped" in seen
        },
        "failed": [part for part, seen in found.items() if "failed" in seen],
        "entries": [
            {**line, "part": part}
            for part, seen in found.items()
            for line in seen.get("entries", [])
        ],
    }


def _installed(name):
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def page(results):
    """Return the results as Markdown."""
    versions = ", ".join(
        f"{name} {version}" for name, version in results["versions"].items()
    )
    lines = [
        "# What was measured",
        "",
        f"By `python benchmarks/run.py{' --quick' if results['quick'] else ''}` in {results['seconds']} s on "
        f"{results['machine']}, with a load of {results['load before']} before. Ratios within one run, in CPU seconds "
        "of one thread. Other libraries are in `docs/compare.md`, commands in `benchmarks/COMMANDS.md`.",
        "",
        f"Versions: {versions}.",
    ]
    for title in dict.fromkeys(title for title, _, _ in PARTS.values()):
        found = [line for line in results["entries"] if PARTS[line["part"]][0] == title]
        if found:
            lines += [
                "",
                f"## {title}",
                "",
                *(_growth(found) if title == "Growth" else _table(found)),
            ]
    if results["skipped"]:
        lines += [
            "",
            "## Left out",
            "",
            *(f"- {part}: {reason}" for part, reason in results["skipped"].items()),
        ]
    return "\n".join(lines) + "\n"


def _table(entries):
    lines = ["| what | value | | better | |", "|---|---|---|---|---|"]
    for line in entries:
        lines.append(
            f"| {line['name']} | {line['value']:.3g} | {line['unit']} | {line['better']} | {line['note']} |"
        )
    return lines


def _growth(entries):
    """Return one row a kernel: exponents, and in brackets those of the arithmetic alone."""
    cells = {}
    for line in entries:
        kernel, _, variable = (
            line["name"].removeprefix("growth of ").rpartition(" with ")
        )
        cells.setdefault(kernel, {})[variable] = (
            f"{line['exponent']:.2f} ({line['of the arithmetic']})"
        )
    rows = [
        f"| {name} | {' | '.join(found.get(key, '') for key in 'nmdC')} |"
        for name, found in cells.items()
    ]
    return [
        "Exponents of CPU seconds over records n, public rows m, coordinates d and classes C, and in brackets those of "
        "the arithmetic alone.",
        "",
        "| | n | m | d | C |",
        "|---|---|---|---|---|",
        *rows,
    ]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--folder", type=Path, default=HERE, help="where RESULTS.md and results.json go"
    )
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part:
        print_part(options.part, options.quick)
        return 0
    results = measured(options.only, options.quick)
    text = page(results)
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "results.json").write_text(
        json.dumps(results, indent=1) + "\n", encoding="utf-8"
    )
    (options.folder / "RESULTS.md").write_text(text, encoding="utf-8")
    print(text)
    return int(bool(results["failed"]))


if __name__ == "__main__":
    sys.exit(main())
