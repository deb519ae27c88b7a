"""Contents of reports with everything in them, few and many classes, and names that are hard to show."""

import numpy as np

import dppl
from dppl.statement import Report
from dppl.statement.data import content
from dppl.statement.evidence import evaluation_of
from dppl.statement.report import _of_model

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


def panels(n=2, lines=4):
    """Accuracies over the budget, made up."""
    places = (0.25, 1.0, 4.0)

    def line(number):
        points = [
            {"mu": mu, "epsilon": "4.887", "low": 0.4, "median": 0.5 + number / 100, "high": 0.6, "n": 5}
            for mu in places
        ]
        return {"label": f"method {number}", "private": True, "tuned": number == 3, "own": not number, "points": points}

    reference = {
        "label": "Nearest class mean (not private)",
        "private": False,
        "tuned": False,
        "own": False,
        "points": [{"mu": 0.0, "epsilon": "0", "low": 0.8, "median": 0.9, "high": 0.95, "n": 5}],
    }
    return {
        "file": "text.jsonl",
        "panels": [
            {"name": f"data {place}, encoder, IR = 1", "seeds": 5, "lines": [*map(line, range(lines)), reference]}
            for place in range(n)
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
        "share": 0.0625,
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
    description, digest, file = _of_model(fitted(["a", "b"]))
    description = {**description, "classes": list(names)}
    return Report(
        content(
            description,
            sha256=digest,
            file=file,
            by="Klinik für Prüfung",
            evaluation=evaluation_of(evaluated(names), names),
            accuracy=panels(),
            ledger=account(),
            gallery=gallery(names[:30]),
        )
    )
