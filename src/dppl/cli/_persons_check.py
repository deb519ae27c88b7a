"""What `dppl check --person` says of persons; for the owner's eyes only."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dppl.estimators.persons import classes_of_persons, person_codes
from dppl.estimators.reading import class_codes

_MOST_CLASSES = 3


def persons_report(
    ids: NDArray[Any], labels: NDArray[Any] | None, usable: NDArray[np.bool_], classes: NDArray[Any]
) -> dict[str, Any]:
    """Say how many records persons have, and what a fit with ids keeps of them.

    Parameters
    ----------
    ids, labels, usable : ndarray of shape (n_records,)
        Whose each record is, its label (None: there are none), and whether it can be used.
    classes : ndarray of shape (n_classes,)

    Returns
    -------
    dict
    """
    persons = person_codes(ids)
    ordered, places = np.unique(classes, return_inverse=True)  # as a fit has them, for persons of several classes
    codes = class_codes(np.empty(len(persons), object) if labels is None else labels, ordered, "ignore")
    counted = np.flatnonzero(usable & (codes >= 0))
    pairs, counts = np.unique(persons[counted] * len(classes) + codes[counted], return_counts=True)
    whose = pairs // len(classes)
    rank = _ranks(whose, counts)
    found, kept, _ = classes_of_persons(codes[counted], persons[counted], len(classes))
    return {
        "n": int(persons.max(initial=-1)) + 1,
        "records_each": _distribution(np.bincount(persons)) if len(persons) else None,
        "in_several_classes": int((rank == 1).sum()),
        "that_count": len(found),
        "records_that_count": int(kept.sum()),
        "records_in_classes": len(counted),
        "class_sizes": np.bincount(found, minlength=len(classes))[places].tolist(),
        "kept": [_kept(k, rank, counts) for k in range(1, _MOST_CLASSES + 1)],
    }


def _distribution(records: NDArray[np.intp]) -> dict[str, float]:
    """Return the median, the number that at most a tenth of the persons exceed, and the largest."""
    ninety = np.quantile(records, 0.9, method="inverted_cdf")
    return {"median": float(np.median(records)), "percentile_90": int(ninety), "largest": int(records.max())}


def _ranks(persons: NDArray[np.intp], counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the place of each class of a person among theirs, most records first, from 0; persons are sorted."""
    order = np.lexsort((-counts, persons))  # stable, so that ties are in the order of classes
    first = np.flatnonzero(np.diff(persons, prepend=-1))
    ranks = np.empty(len(persons), np.intp)
    ranks[order] = np.arange(len(persons)) - np.repeat(first, np.diff(first, append=len(persons)))
    return ranks


def _kept(k: int, ranks: NDArray[np.intp], counts: NDArray[np.intp]) -> dict[str, Any]:
    """Say what k classes of a person keep, and what they cost: docs/guarantees.md, one row a person."""
    kept = ranks < k
    return {
        "max_classes_per_person": k,
        "records": int(counts[kept].sum()),
        "rows": int(kept.sum()),
        "noise": {"sums_and_counts": sqrt(k), "gradients_and_gram_matrices": float(k)},
    }


def print_persons(report: dict[str, Any], screen: Console) -> None:
    """Print a report."""
    screen.print(f"{'persons':<15} {report['n']}; each missing id is one", soft_wrap=True)
    each = report["records_each"]
    if each is not None:
        screen.print(
            f"{'records each':<15} {each['median']:g} in the median, at most {each['percentile_90']} for 90 % of the "
            f"persons, and {each['largest']} at most",
            soft_wrap=True,
        )
    screen.print(
        f"{'':<15} {report['in_several_classes']} have records in several classes, and count in the commonest",
        soft_wrap=True,
    )
    screen.print(
        f"{'':<15} with --person {report['records_that_count']} records of {report['that_count']} persons count",
        soft_wrap=True,
    )
    screen.print(
        f"{'':<15} in up to k classes a person (max_classes_per_person) this is kept, and noise is so much larger:",
        soft_wrap=True,
    )
    table = Table()
    for name in ("k", "records kept", "rows", "noise: sums, counts", "noise: gradients, Gram"):
        table.add_column(name, justify="right")
    for row in report["kept"]:
        share = f" ({row['records'] / report['records_in_classes']:.0%})" if report["records_in_classes"] else ""
        sums, gradients = row["noise"].values()
        table.add_row(
            str(row["max_classes_per_person"]),
            f"{row['records']}{share}",
            str(row["rows"]),
            f"x {sums:.2f}",
            f"x {gradients:.2f}",
        )
    screen.print(table)
