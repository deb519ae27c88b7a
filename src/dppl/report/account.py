"""What a ledger says of the data set that a model is of: what was spent, and what is left."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dppl.errors import InputError
from dppl.kernel.privacy import ApproxDP
from dppl.statement.words import figures, in_words, rounded_down

__all__ = ["account_of", "read_ledger"]


def read_ledger(path_or_url: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the accounts of a ledger file or database, JSON-ready."""
    from dppl.kernel.privacy.ledger import accounts  # the database comes with it

    return [account.to_dict() for account in accounts(path_or_url)]


def account_of(books: list[dict[str, Any]], entry: str | None, sha256: str) -> dict[str, Any]:
    """Return the account that paid for a model. Accounts of other data sets stay out.

    It is the one that holds the charge `entry`, or, where the guarantee names none, the hash of the model file.
    """
    for book in books:
        for release in book["releases"]:
            names_it = entry == f"{book['dataset']}, release {release['number']}"
            if names_it or (entry is None and release["model_sha256"] == sha256):
                return _account(book, release["number"], release["model_sha256"] == sha256)
    raise InputError("no account of the ledger paid for this model; name the ledger that did.")


def _account(book: Mapping[str, Any], number: int, same_file: bool) -> dict[str, Any]:
    return {
        "dataset": book["dataset"],
        "number": number,
        "same_file": same_file,
        "adjacency": book["adjacency"],
        "unit": book["unit"],
        "accounting": book["accounting"],
        "budget": in_words(book["budget"]),
        "spent": in_words(book["spent"]),
        "left": rounded_down(book["left"], book["budget"]),
        "share": _share(book["spent"], book["budget"]),
        "releases": [
            {
                "number": one["number"],
                "date": one["charged_at"].partition("T")[0],
                "estimator": one["estimator"],
                "mechanism": one["mechanism"],
                "cost": figures(one["cost"]),
                "status": one["status"],
            }
            for one in book["releases"]
        ],
    }


def _share(spent: Mapping[str, float], budget: Mapping[str, float]) -> float:
    """Return how much of a budget is spent, in what adds up: squares of mu, and else the parameter itself.

    Of (ε, δ) that is the mu that it allows.
    """
    name = next(iter(budget))
    if not spent[name]:
        return 0.0
    if "delta" in budget:
        mus = [ApproxDP(one[name], budget["delta"]).gaussian_allowance().mu for one in (spent, budget)]
        return _share({"mu": mus[0]}, {"mu": mus[1]})
    share = spent[name] / budget[name]
    return min(share**2 if name == "mu" else share, 1.0)
