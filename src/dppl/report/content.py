"""What a report says, as one JSON-ready dictionary in the form of docs/report.schema.json: a pure function.

A model file holds nothing private. Whatever else is shown was measured on records that somebody names, and is no part
of the guarantee; the dictionary keeps it apart.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from dppl._fingerprint import in_short
from dppl.cards.card import task_of
from dppl.estimators.registry import BY_METHOD, BY_NAME
from dppl.kernel.privacy import Guarantee, Release
from dppl.kernel.privacy.budgets import rounded_up
from dppl.statement import words
from dppl.statement.words import in_a_row

__all__ = ["FORMAT", "content"]

FORMAT = 1
# False-positive rates of the trade-off curve: evenly, and for rare false alarms on a logarithmic scale.
_EVENLY = [place / 50 for place in range(1, 50)]
_RARELY = [10 ** (place / 5) for place in range(-20, -8)]
_LETTERS = 300  # of a parameter
_TASKS = {
    "text-classification": ("A private classifier of texts", "a text"),
    "image-classification": ("A private classifier of images", "an image"),
    "tabular-classification": ("A private classifier of embeddings", "an embedding"),
}


def content(
    description: Mapping[str, Any],
    *,
    sha256: str,
    file: str = "model.safetensors",
    by: str | None = None,
    evaluation: Mapping[str, Any] | None = None,
    accuracy: Mapping[str, Any] | None = None,
    ledger: Mapping[str, Any] | None = None,
    gallery: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a report says of a model file and of what its publisher gave beside it."""
    guarantee = Guarantee.from_dict(description["guarantee"])
    title, item = _TASKS[task_of(dict(description))]
    return {
        "format": FORMAT,
        "title": title,
        "model": {
            "file": file,
            "sha256": sha256,
            "by": by,
            "estimator": description["estimator"],
            "does": _does(description, item),
            "facts": _facts(description, guarantee),
            "classes": [str(name) for name in description["classes"]],
            "descriptions": (description.get("examples") or {}).get("texts"),
            "selected": _selected(description),
        },
        "guarantee": {
            "sentence": guarantee.summary(),
            "numbers": [list(row) for row in words.table(guarantee)],
            "mu": guarantee.mu,
            "fit_for_release": guarantee.fit_for_release,
            "exact": guarantee.exact,
            "notion": guarantee.budget.notion,
            "budget": guarantee.budget.to_dict(),
            "unit": guarantee.unit,
            "adjacency": guarantee.adjacency,
            "curve": _curve(guarantee),
            "releases": [_release(release, times) for release, times in in_a_row(guarantee.releases)],
            "details": [[heading, list(items)] for heading, items in words.details(guarantee)],
        },
        "ledger": None if ledger is None else dict(ledger),
        "accuracy": None if accuracy is None else dict(accuracy),
        "evaluation": None if evaluation is None else dict(evaluation),
        "gallery": None if gallery is None else dict(gallery),
        "checks": _checks(description, guarantee, file, ledger is not None),
    }


def _does(description: Mapping[str, Any], item: str) -> str:
    """Say in two sentences what the model does, and how."""
    n_classes = f"{len(description['classes']):,}"
    entry = BY_NAME.get(description["estimator"])
    method = description["estimator"] if entry is None or entry.label is None else entry.label
    encoder = description["encoder"]
    named = "a public encoder that the file does not name" if encoder is None else in_short(encoder)
    if "lattice" not in description:
        network = "which the file does not name" if encoder is None else named
        return (
            f"It gives {item} one of {n_classes} classes. {description['n_trained']:,} weights of a public network "
            f"({network}) were trained on private records; all others are as they were published."
        )
    width = description["lattice"]["n_features"]
    if item == "an embedding":
        return (
            f"It takes embeddings of {width} numbers, by {named}, and gives each one of {n_classes} classes. "
            f"Method: {method}."
        )
    return (
        f"It gives {item} one of {n_classes} classes. The frozen public encoder {named} turns {item} into {width} "
        f"numbers; what is told from these was learned from private records. Method: {method}."
    )


def _facts(description: Mapping[str, Any], guarantee: Guarantee) -> list[list[str]]:
    """Say who made the model with what, as names and values."""
    rows = [
        ("estimator", description["estimator"]),
        ("encoder", "not named" if description["encoder"] is None else in_short(description["encoder"])),
        ("written by", description["written_by"]),
        ("software", ", ".join(f"{name} {version}" for name, version in sorted(guarantee.software.items()))),
        *(
            (name.replace("_", " "), str(value))
            for name, value in sorted(description["parameters"].items())
            if value is not None  # the default, which says nothing
        ),
    ]
    return [[name, str(value)[:_LETTERS]] for name, value in rows]


def _selected(description: Mapping[str, Any]) -> list[list[str]] | None:
    """Return ids of the public rows that a model selected for each class, or else their positions."""
    found = description.get("public_ids") or description.get("public_indices")
    return None if found is None else [[str(name) for name in several] for several in found]


def _curve(guarantee: Guarantee) -> list[list[float]]:
    """Return the trade-off curve as pairs: false-positive rate, and the largest true-positive rate there."""
    return [[rate, guarantee.true_positive_rate(rate)] for rate in sorted({*_RARELY, *_EVENLY})]


def _release(release: Release, times: int) -> dict[str, Any]:
    return {
        "statistic": release.statistic,
        "drawn": release.drawn,
        "times": times,
        "norm": release.norm,
        "sensitivity": words.sensitivity(release),
        "parameters": words.noise(release),
        "cost": [f"{name} = {rounded_up(value)}" for name, value in release.cost.items()],
    }


def _checks(description: Mapping[str, Any], guarantee: Guarantee, file: str, paid: bool) -> list[dict[str, str]]:
    """Return how a reader checks what the page says: what for, and the command."""
    name = shlex.quote(file)
    checks = [
        ("The file is the one that this page is about", f"sha256sum {name}"),
        ("Everything that it promises, computed anew from its releases", f"dppl show {name}"),
        ("The same for programs, in the form of docs/statement.schema.json", f"dppl show {name} --json"),
    ]
    if paid:
        checks.append(("What the account of its data set has paid for", "dppl ledger show LEDGER"))
    entry = BY_NAME.get(description["estimator"])
    cost = _audited(guarantee)
    if entry is not None and entry.method in BY_METHOD and cost:
        checks.append(("What the method leaks on worst-case data", f"dppl audit {entry.method} {cost}"))
    return [{"what": what, "command": command} for what, command in checks]


def _audited(guarantee: Guarantee) -> str:
    """Return the budget of the guarantee, and its relation, as options of `dppl audit`; nothing where it is zero."""
    budget = guarantee.budget.to_dict()
    relation = "" if guarantee.adjacency == "add-remove" else f" --options adjacency={guarantee.adjacency}"
    return " ".join(
        f"--{name} {value:g}".replace("e-0", "e-") for name, value in budget.items() if value
    ) + relation * any(budget.values())
