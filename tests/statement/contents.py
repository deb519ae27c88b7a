"""Contents of reports with everything in them, few and many classes, and names that are hard to show."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import dppl
from dppl.statement import Report
from dppl.statement.data import content, describe, evaluation_of

# German, Arabic, an emoji of several characters, markup of three kinds, and a long one.
NAMES = [
    "Größenänderung",
    "قطة سوداء",
    "👩‍👩‍👧‍👦",
    "<script>alert(1)</script>",
    "a|b & 'c' \"d\"",
    "{{ 7 * 7 }}",
    "[x](javascript:alert(1))",
    "**bold** `code`",
    "long " * 40,
    "ordinary",
]


def fitted(names, budget=None, **options):
    rows = np.eye(max(len(names), 2), dtype=np.float32)[: len(names)]
    model = dppl.MeanPrototypes(budget or dppl.GaussianDP(1.0), classes=names)
    return model.fit(np.repeat(rows, 2, axis=0), np.repeat(names, 2), **options)


def described(model):
    """Return what the file of a model says, and a hash."""
    with TemporaryDirectory() as folder:
        model.save(path := Path(folder) / "model.safetensors")
        return describe(path), 64 * "0", path.name


def evaluated(classes, seed=0):
    """An evaluation as `dppl evaluate --json` prints it, made up: sizes from 1 up, and confusions of neighbours."""
    rng = np.random.default_rng(seed)
    sizes = 4 + np.arange(len(classes)) % 37
    wrong = rng.integers(0, sizes)
    pairs = [(one, classes[(place + 1) % len(classes)], int(wrong[place])) for place, one in enumerate(classes)]
    right = sizes - wrong
    return {
        "n": int(sizes.sum()),
        "n_unknown_labels": 0,
        "n_unusable": 0,
        "accuracy": float(right.sum() / sizes.sum()),
        "balanced_accuracy": float((right / sizes).mean()),
        "minority_accuracy": 0.5,
        "chance": 1 / len(classes),
        "per_class": [
            {"class": name, "n": int(n), "accuracy": float(good / n)}
            for name, n, good in zip(classes, sizes, right, strict=True)
        ],
        "confusions": [
            {"class": one, "predicted": other, "n": n}
            for one, other, n in sorted(pairs, key=lambda pair: -pair[2])
            if n
        ],
    }


def account(n_releases=2):
    release = {"date": "2026-01-31", "estimator": "MeanPrototypes", "mechanism": "rounded Gaussian"}
    return {
        "dataset": "Stationen",
        "number": 1,
        "same_file": True,
        "adjacency": "add-remove",
        "unit": "record",
        "accounting": "gdp",
        "budget": "mu 4",
        "spent": "mu 1",
        "left": "mu 3.87298",
        "releases": [
            {**release, "number": number, "cost": ["rho 0.5", "mu 1"], "status": "released"}
            for number in range(1, n_releases + 1)
        ],
    }


def gallery(classes, n=2):
    items = [{"id": f"line {place}", "text": "ein Satz <b> مثال"} for place in range(n)]
    return {"kind": "text", "classes": [{"class": name, "items": items} for name in classes], "n_left_out": 0}


def everything(names):
    """Return a report with every part."""
    description, digest, file = described(fitted(["a", "b"]))
    description = {**description, "classes": list(names)}
    return Report(
        content(
            description,
            sha256=digest,
            file=file,
            by="Klinik für Prüfung",
            evaluation=evaluation_of(evaluated(names), names),
            ledger=account(),
            gallery=gallery(names[:30]),
        )
    )
