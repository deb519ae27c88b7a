"""Contents of reports with everything in them, few and many classes, and names that are hard to show."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import dppl
from dppl.evaluation import Estimate, Evaluation, OfClass, Together
from dppl.statement import Report
from dppl.statement.data import content, describe, evaluation_of, of_model

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
    pairs = [
        (one, classes[(place + 1) % len(classes)], int(wrong[place]))
        for place, one in enumerate(classes)
    ]
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


def privately_evaluated(classes, model_sha256=64 * "0"):
    """A private evaluation, made up: some classes are told and some cannot be."""
    told = (
        Estimate(0.8, 0.7, 0.9),
        Estimate(None, 0.0, 1.0),
        Estimate(1.0, 0.4, 1.0),
        Estimate(0.0, 0.0, 0.3),
    )
    rows = [
        OfClass(
            name, Estimate(20.0, 10.0, 30.0), told[place % 4], told[(place + 1) % 4]
        )
        for place, name in enumerate(classes)
    ]
    return Evaluation(
        classes=tuple(classes),
        unit="one record",
        confidence=0.9,
        n=Estimate(1000.0, 990.0, 1010.0),
        accuracy=told[0],
        balanced_accuracy=told[1],
        per_class=tuple(rows),
        bands=(),
        guarantee=fitted(["a", "b"]).guarantee_,
        top_k=5,
        top_k_accuracy=told[2],
        together=Together(0.3, disjoint=True),
        model_sha256=model_sha256,
    )


def account(n_releases=2):
    release = {
        "date": "2026-01-31",
        "estimator": "MeanPrototypes",
        "mechanism": "rounded Gaussian",
    }
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
            {
                **release,
                "number": number,
                "partition": "train",
                "cost": ["rho 0.5", "mu 1"],
                "status": "released",
            }
            for number in range(1, n_releases + 1)
        ],
    }


def gallery(classes, n=2):
    items = [{"id": f"line {place}", "text": "ein Satz <b> مثال"} for place in range(n)]
    return {
        "kind": "text",
        "classes": [{"class": name, "items": items} for name in classes],
        "n_left_out": 0,
    }


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
            private_evaluation=of_model(
                privately_evaluated(names, digest), description, digest
            ),
            ledger=account(),
            gallery=gallery(names[:30]),
        )
    )
