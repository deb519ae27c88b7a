"""What `dppl check --person` says of persons; for the owner's eyes only."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dppl.kernel import are_missing, classes_of_persons, person_codes
from dppl.kernel.reading import class_codes

_MOST_CLASSES = 3


def persons_report(
    ids: NDArray[Any], labels: NDArray[Any] | None, usable: NDArray[np.bool_], classes: NDArray[Any]
) -> dict[str, Any]:
    """Say how many records persons have, and what a fit with ids keeps of them.

    Arrays have one entry a record; labels may be None.
    """
    persons = person_codes(ids)
    ordered, places = np.unique(classes, return_inverse=True)  # as a fit has them, for persons of several classes
    codes = class_codes(np.empty(len(persons), object) if labels is None else labels, ordered, "ignore")
    counted = usable & (codes >= 0)
    records = codes[counted], persons[counted]
    found, kept, _ = classes_of_persons(*records, len(classes))
    pairs = np.unique(np.stack(records), axis=1)
    return {
        "n": int(persons.max(initial=-1)) + 1,
        "missing_ids": int(are_missing(ids).sum()),
        "records_each": _distribution(np.bincount(persons)) if len(persons) else None,
        "in_several_classes": int((np.bincount(pairs[1]) > 1).sum()),
        "that_count": len(found),
        "records_that_count": int(kept.sum()),
        "records_in_classes": int(counted.sum()),
        "class_sizes": np.bincount(found, minlength=len(classes))[places].tolist(),
        "kept": [_kept(*records, len(classes), k) for k in range(1, min(_MOST_CLASSES, len(classes)) + 1)],
    }


def _distribution(records: NDArray[np.intp]) -> dict[str, float]:
    """Return the median, the number that at most a tenth of the persons exceed, and the largest."""
    ninety = np.quantile(records, 0.9, method="inverted_cdf")
    return {"median": float(np.median(records)), "percentile_90": int(ninety), "largest": int(records.max())}


def _kept(codes: NDArray[np.intp], persons: NDArray[np.intp], n_classes: int, k: int) -> dict[str, Any]:
    """Say what up to k classes of a person keep, and what they cost: docs/guarantees.md, one row a person."""
    _, records, _ = classes_of_persons(codes, persons, n_classes, k)
    return {
        "max_classes_per_person": k,
        "records": int(records.sum()),
        "rows": len(records),
        "noise": {"softmax": 1.0, "class_sums": sqrt(k), "gradients_and_others": float(k)},
    }


def print_persons(report: dict[str, Any], screen: Console) -> None:
    """Print a report."""
    lines = {"persons": f"{report['n']}, of which {report['missing_ids']} are records without an id"}
    each = report["records_each"]
    if each is not None:
        lines["records each"] = (
            f"median {each['median']:g}, 90 % of the persons have at most {each['percentile_90']}, none more than "
            f"{each['largest']}"
        )
    lines["several classes"] = f"{report['in_several_classes']} persons have records in more than one"
    lines["a fit uses"] = (
        f"{report['that_count']} persons: with --method softmax, the default, all of their "
        f"{report['records_in_classes']} records in classes of the list; with other methods the "
        f"{report['records_that_count']} in each person's commonest class, as one row a person"
    )
    for name, line in lines.items():
        screen.print(f"{name:<15} {line}", soft_wrap=True)
    screen.print("With --classes-per-person k a fit uses so many records, and needs so many times the noise:")
    table = Table()
    for name in ("k", "records used", "rows", "softmax", "mean", "others"):
        table.add_column(name, justify="right")
    for row in report["kept"]:
        share = f" ({row['records'] / report['records_in_classes']:.0%})" if report["records_in_classes"] else ""
        table.add_row(
            str(row["max_classes_per_person"]),
            f"{row['records']}{share}",
            str(row["rows"]),
            *(f"x {factor:.2f}" for factor in row["noise"].values()),
        )
    screen.print(table)
