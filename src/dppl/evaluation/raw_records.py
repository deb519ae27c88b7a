"""The labels and persons of raw images and texts."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.io import Source
from dppl.io.records.record import BadRecord

Column = NDArray[np.object_]


def labels_and_persons(source: Source) -> tuple[Column, Column]:
    """Return the label of every record of a source and whose it is, None where that is missing; nothing is embedded."""
    columns = [(record.label, record.person) for record in source]
    labels = np.empty(len(columns), object)
    persons = np.empty(len(columns), object)
    labels[:], persons[:] = ([row[place] for row in columns] for place in range(2))
    return labels, persons


def predicted_labels(source: Source) -> Column:
    """Return the texts of a source, which are labels that another model predicted; None where one cannot be read."""

    def text(load: Callable[[], Any]) -> str | None:
        try:
            value = load()
            if isinstance(value, bytes):
                return value.decode()
            return str(value)
        except (BadRecord, UnicodeError):
            return None

    texts = [text(record.load) for record in source]
    column = np.empty(len(texts), object)
    column[:] = [None if one is None else one.strip() for one in texts]
    return column
