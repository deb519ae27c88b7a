"""What the owner of private records sees of them before a fit, and nobody else: no guarantee protects it."""

import hashlib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dppl._utils.types import Array, Flags
from dppl.encoders.columns import ODDITIES, Column
from dppl.encoders.windows import TextWindows
from dppl.io import EmbeddingTable, Source
from dppl.io.records.decoding import decode, quiet
from dppl.io.records.record import BadRecord, Record
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.lattice import usable_rows
from dppl.kernel.persons import (
    are_missing,
    checked_ids,
    classes_of_persons,
    person_codes,
)
from dppl.kernel.privacy.terms import Term
from dppl.kernel.reading import class_codes
from dppl.reasons import SkipReason

_BLOCK_ROWS = 4096
_SEPARATORS = (";", ",", "|", "/")  # that files have between several labels
# What dppl.io puts in the place of a missing label.
_MISSING = ("", int(np.iinfo(np.int64).min))


def report_on_table(
    table: EmbeddingTable,
    classes: Array | None,
    groups: Any = None,
    *,
    several: MultiLabel | None = None,
) -> dict[str, Any]:
    """Read a table, its labels and, if they are given, ids of persons; return what to say of them, JSON-ready.

    Where no class list is known (None), labels decide nothing, and those that there are
    count as classes.
    """
    report = _rows_report(table)
    usable = usable_rows(table)
    # Labels of the rows that can be used, as of raw records.
    labels = None if table.y is None else table.y[usable]
    if groups is not None:
        named = _those(labels) if classes is None else classes
        report["persons"] = _persons_report(
            checked_ids(groups, table), table.y, usable, named, several
        )
    places = (np.flatnonzero(usable) + 1).tolist()
    return _with_labels(report, places, labels, classes, several)


def report_on_source(
    source: Source,
    classes: Array | None,
    reads: TextWindows | Sequence[Column] | None = None,
    *,
    several: MultiLabel | None = None,
) -> dict[str, Any]:
    """Read and decode the records of a source, labels and ids of persons included; return what to say of them.

    `reads` are the windows in which an encoder reads texts, for the report to say which
    texts are longer; or the columns of a schema, to count the odd cells of each.
    """
    report, labels, ids, places = _records_report(source, reads)
    if source.person_type is not None:
        named = _those(labels) if classes is None else classes
        report["persons"] = _persons_report(
            ids, labels, np.ones(len(ids), bool), named, several
        )
    return _with_labels(report, places, labels, classes, several)


def _with_labels(
    report: dict[str, Any],
    places: Sequence[Any],
    labels: Array | None,
    classes: Array | None,
    several: MultiLabel | None = None,
) -> dict[str, Any]:
    """Add what is to say of the labels, and how many records are used: of those at `places` the ones in the list."""
    usable = len(places)
    if labels is None:
        return report | {"labels": None, "used": usable if classes is None else 0}
    if several is not None and classes is not None:
        return report | {
            "labels": _several_report(labels, classes, several, places),
            "used": usable,
        }
    chosen = classes is not None
    if classes is None:
        classes = _those(labels)
    codes = class_codes(labels, classes, "ignore")  # as a fit meets them
    # Their places, too, for the owner to find and mend them.
    strange = np.flatnonzero(codes < 0)
    unknown, numbers, counts = np.unique(
        labels[strange], return_inverse=True, return_counts=True
    )
    order = np.argsort(-counts, kind="stable")
    where: list[list[Any]] = [[] for _ in unknown]
    for number, place in zip(numbers.tolist(), strange.tolist(), strict=True):
        where[number].append(places[place])
    sizes = np.bincount(codes[codes >= 0], minlength=len(classes)).tolist()
    entries = [
        {"class": name, "n": n} for name, n in zip(classes.tolist(), sizes, strict=True)
    ]
    for entry, n in zip(
        entries, report.get("persons", {}).get("class_sizes", ()), strict=False
    ):
        entry["persons"] = n
    report["labels"] = {
        "type": "integers" if labels.dtype.kind == "i" else "text",
        "unknown": [
            {"label": None if name in _MISSING else name}
            | _first_of(where[number])
            | _meant(name, classes)
            for number, name in zip(
                order.tolist(), unknown[order].tolist(), strict=True
            )
        ],
        "unknown_records": int(counts.sum()),
        "class_sizes": entries,
        "classes_without_records": [
            entry["class"] for entry in entries if not entry["n"]
        ],
    }
    return report | {"used": sum(sizes) if chosen else usable}


def _those(labels: Array | None) -> Array:
    """Return the labels that there are, each once."""
    return np.array(
        [] if labels is None else sorted(set(labels.tolist()) - {*_MISSING})
    )


def _loosely(name: Any) -> str:
    """Return a label without what people overlook: case, white space, and how characters are composed."""
    return unicodedata.normalize(
        "NFC", "".join(unicodedata.normalize("NFC", str(name)).casefold().split())
    )


def _meant(label: Any, classes: Array) -> dict[str, Any]:
    """Return which class an unknown label seems to mean, or what separates the classes that it lists."""
    alike = {_loosely(name): name for name in classes.tolist()}
    if (like := alike.get(_loosely(label))) is not None:
        return {"like": like}
    for separator in _SEPARATORS:
        parts = str(label).split(separator)
        if len(parts) > 1 and all(_loosely(part) in alike for part in parts):
            return {"separator": separator}
    return {}


def _several_report(
    labels: Array, classes: Array, several: MultiLabel, places: Sequence[Any]
) -> dict[str, Any]:
    """Say what labels there are where a record may have several, or none."""
    sets, _ = several.read(labels, classes)
    each = [sorted(set(map(str, several.labels_of(one)))) for one in labels.tolist()]
    known = set(map(str, classes.tolist()))
    strange = [[label for label in some if label not in known] for some in each]
    unknown: dict[str, list[Any]] = defaultdict(list)
    for some, place in zip(strange, places, strict=True):
        for label in some:
            unknown[label].append(place)
    sizes = sets.sum(axis=0).tolist()
    several_each = sets.sum(axis=1)
    return {
        "type": "several a record",
        "labels_each": [
            {"labels": k, "n": n}
            for k, n in enumerate(np.bincount(several_each).tolist())
            if n
        ],
        "unknown": [
            {"label": label} | _first_of(where) | _meant(label, classes)
            for label, where in sorted(unknown.items(), key=lambda one: -len(one[1]))
        ],
        "unknown_records": sum(map(bool, strange)),
        "class_sizes": [
            {"class": name, "n": n}
            for name, n in zip(classes.tolist(), sizes, strict=True)
        ],
        "classes_without_records": [
            name for name, n in zip(classes.tolist(), sizes, strict=True) if not n
        ],
    }


def _rows_report(table: EmbeddingTable) -> dict[str, Any]:
    bad: dict[str, list[int]] = {"nan": [], "infinite": [], "all_zero": []}
    contents: list[bytes] = []
    start = 0
    for block in table.blocks(_BLOCK_ROWS):
        usable = np.ones(len(block), bool)
        # A bad row counts as the first kind that fits.
        tests = (
            np.isnan(block).any(axis=1),
            np.isinf(block).any(axis=1),
            ~block.any(axis=1),
        )
        for rows, fits in zip(bad.values(), tests, strict=True):
            rows += (
                np.flatnonzero(fits & usable) + start + 1
            ).tolist()  # as its owner counts
            usable &= ~fits
        contents += map(
            _digest, block[usable] + block.dtype.type(0)
        )  # -0.0 becomes 0.0, which is equal to it
        start += len(block)
    return {
        "n": table.shape[0],
        "dimension": table.shape[1],
        "dtype": table.dtype.name,
        "bad_rows": {kind: _first_of(rows) for kind, rows in bad.items()},
        "duplicates": len(contents) - len(set(contents)),
    }


def _records_report(
    source: Source, reads: TextWindows | Sequence[Column] | None
) -> tuple[dict[str, Any], Array | None, Array, list[str]]:
    """Read and decode every record; return a report, and labels ("" if missing), ids of persons and places."""
    reasons: dict[Term[SkipReason], list[str]] = {}
    repeated_ids: list[str] = []
    ids: set[str | None] = set()
    contents: list[bytes] = []
    cut: list[str] = []
    odd: Counter[tuple[str, str | None]] = Counter()
    labels: list[Any] = []
    persons: list[Any] = []
    places: list[str] = []
    scripts: Counter[str] = Counter()
    beyond_english = 0
    with quiet():
        for record in source:
            try:
                content, text = _content(record, source.modality)
            except BadRecord as skipped:
                reasons.setdefault(skipped.reason, []).append(record.reference)
                continue
            contents.append(content)
            places.append(record.reference)
            if isinstance(reads, TextWindows):
                script = script_of(text)
                scripts[script] += 1
                beyond_english += (
                    script == "Latin"
                    and not text.isascii()
                    and any(one.isalpha() and not one.isascii() for one in text)
                )
                if reads.cuts(text):
                    cut.append(record.reference)
            elif reads is not None:
                odd.update((one.name, one.oddity(text[one.name])) for one in reads)
            if record.id in ids:
                repeated_ids.append(record.reference)
            ids.add(record.id)
            labels.append("" if record.label is None else record.label)
            persons.append(record.person)
    report = {
        "n": len(contents) + sum(map(len, reasons.values())),
        "modality": source.modality,
        "unusable": [
            {"reason": reason.to_dict(), **_first_of(places)}
            for reason, places in reasons.items()
        ],
        "repeated_ids": _first_of(repeated_ids),
        "duplicates": len(contents) - len(set(contents)),
    }
    if isinstance(reads, TextWindows):
        report["cut"] = {
            "max_windows": reads.max_windows,
            "max_tokens": reads.limit,
            **_first_of(cut),
        }
        report["scripts"] = {
            "texts": dict(scripts.most_common()),
            "beyond_english": beyond_english,
        }
    elif reads is not None:
        report["columns"] = {
            one.name: {what: odd[one.name, what] for what in ODDITIES} for one in reads
        }
    if source.label_type is None:
        return report, None, _as_objects(persons), places
    integers = bool(labels) and all(isinstance(label, int) for label in labels)
    if integers:
        as_array = np.array(labels, np.int64)
    else:
        as_array = _as_objects([str(label) for label in labels])
    return report, as_array, _as_objects(persons), places


def script_of(text: str) -> str:
    """Return the script that most letters of a text are in, such as Latin or Cyrillic; "none" without letters."""
    # Most texts are of this kind, and their letters need no names.
    if text.isascii():
        return "Latin" if any(map(str.isalpha, text)) else "none"
    letters = Counter(filter(str.isalpha, text))
    scripts: Counter[str] = Counter()
    for letter, n in letters.items():
        scripts[unicodedata.name(letter, "OTHER").partition(" ")[0].capitalize()] += n
    return next((name for name, _ in scripts.most_common(1)), "none")


def _content(record: Record, modality: str) -> tuple[bytes, Any]:
    """Return a hash of the content of a record, once it is known to be one, and the image or text."""
    payload = record.load()
    decoded = decode(payload, modality)
    if isinstance(payload, Mapping):
        payload = repr(payload)
    if isinstance(payload, str):
        return _digest(payload.encode("utf-8", "surrogateescape")), decoded
    return _digest(
        payload if isinstance(payload, bytes) else np.asarray(decoded).tobytes()
    ), decoded


def _digest(content: Any) -> bytes:
    # Of 8 bytes: among a million rows two different ones agree with odds of 3 in 100
    # million.
    return hashlib.blake2b(content, digest_size=8).digest()


def _first_of(places: list[Any]) -> dict[str, Any]:
    return {"n": len(places), "first": places[:10]}


def _as_objects(items: list[Any]) -> Array:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def _persons_report(
    ids: Array,
    labels: Array | None,
    usable: Flags,
    classes: Array,
    several: MultiLabel | None = None,
) -> dict[str, Any]:
    """Say how many records persons have, and how many a fit uses; arrays have one entry a record."""
    if several is not None:  # every record counts, whatever its labels are
        labels = np.zeros(len(ids), np.int64)
        classes = np.zeros(1, np.int64)
    persons = person_codes(ids)
    ordered, places = np.unique(
        classes, return_inverse=True
    )  # as a fit has them, for persons of several classes
    codes = class_codes(
        np.empty(len(persons), object) if labels is None else labels, ordered, "ignore"
    )
    counted = usable & (codes >= 0)
    records = codes[counted], persons[counted]
    main_class, kept, _ = classes_of_persons(*records, len(classes))
    pairs = np.unique(np.stack(records), axis=1)
    each = np.bincount(persons)
    records_each = None
    if len(each):
        records_each = {"median": float(np.median(each)), "largest": int(each.max())}
    return {
        "n": len(each),
        "missing_ids": int(are_missing(ids).sum()),
        "records_each": records_each,
        "in_several_classes": int((np.bincount(pairs[1]) > 1).sum()),
        "used": len(main_class),
        "records_in_main_class": int(kept.sum()),
        "records_in_classes": int(counted.sum()),
        "class_sizes": np.bincount(main_class, minlength=len(classes))[places].tolist(),
    }
