"""Whether all records can be used: what a strict fit, and a check before the charge, look at.

That a strict run stopped is one bit about the records, which its guarantee names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError
from dppl.kernel import reading
from dppl.kernel.lattice.lattice import usable_rows

_SHOWN = "`dppl check` shows its owner which."
NOT_ALL_USABLE = (
    "wants records that can all be used, labels and ids of persons included, and at least one; it has others. "
    f"{_SHOWN}"
)
HARDLY_ANY = f"stops a run that can use fewer than one record in ten, as this one. {_SHOWN} Nothing was charged."


def refuse_unusable(private: Any, classes: NDArray[Any]) -> None:
    """Stop unless all records of a `PrivateTable` can be used, labels and ids of persons included."""
    used = usable_rows(private.rows)
    used &= are_known(private.labels, classes, private.several)
    if private.ids is not None:
        from dppl.kernel.persons import are_missing

        used &= ~are_missing(private.ids)
    refuse_unusable_records(int(used.sum()), len(used))


def refuse_unusable_records(used: int, n: int, parameter: str = "strict") -> None:
    """Stop a strict run of whose `n` records not all can be used; under review, one that hardly uses any.

    A strict run has one message, whatever is wrong and with how many records: that it
    stopped is one bit.
    """
    strict = parameter == "strict"
    if not n or (used < n if strict else 10 * used < n):
        raise InputError(NOT_ALL_USABLE if strict else HARDLY_ANY, parameter=parameter)


def are_known(
    y: NDArray[Any], classes: NDArray[Any], several: Any = None
) -> NDArray[np.bool_]:
    """Return whether the label of each record, or all of its labels, are in the class list."""
    if several is None:
        return reading.class_codes(y, classes, "ignore") >= 0
    known: NDArray[np.bool_] = several.read(y, classes)[1]
    return known
