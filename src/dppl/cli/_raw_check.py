"""What `dppl check` says of raw images and texts, which no encoder has seen yet; for the owner's eyes only."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.cli._output import printable
from dppl.embedding import Source
from dppl.embedding.decoding import decode, quiet
from dppl.embedding.records import BadRecord, Record

_REFERENCES = 10


def source_report(source: Source) -> tuple[dict[str, Any], Any, NDArray[Any]]:
    """Read and decode every record; return a report, the labels ("" for a missing one) and the ids of persons."""
    reasons: dict[str, list[str]] = {}
    ids: set[str | None] = set()
    repeated_ids: list[str] = []
    contents: set[bytes] = set()
    labels: list[Any] = []
    persons: list[Any] = []
    records = repeated = 0
    with quiet():
        for record in source:
            records += 1
            try:
                content = _content(record, source.modality)
            except BadRecord as reason:
                reasons.setdefault(str(reason), []).append(record.reference)
                continue
            if record.id in ids:
                repeated_ids.append(record.reference)
            ids.add(record.id)
            repeated += content in contents
            contents.add(content)
            labels.append("" if record.label is None else record.label)
            persons.append(record.person)
    report = {
        "records": records,
        "modality": source.modality,
        "unusable": [
            {"reason": reason, "n": len(where), "first": where[:_REFERENCES]} for reason, where in reasons.items()
        ],
        "repeated_ids": {"n": len(repeated_ids), "first": repeated_ids[:_REFERENCES]},
        "duplicate_records": repeated,
    }
    return report, None if source.label_type is None else _as_labels(labels), _as_objects(persons)


def _content(record: Record, modality: str) -> bytes:
    """Return 8 bytes that tell the content of a record from others, once it is known to be one."""
    payload = record.load()
    decoded = decode(payload, modality)
    content = payload.encode("utf-8", "surrogateescape") if isinstance(payload, str) else payload
    if not isinstance(content, bytes):
        content = np.asarray(decoded).tobytes()
    return hashlib.blake2b(content, digest_size=8).digest()


def _as_labels(labels: list[Any]) -> Any:
    if labels and all(isinstance(label, int) for label in labels):
        return np.array(labels, np.int64)
    return _as_objects([str(label) for label in labels])


def _as_objects(items: list[Any]) -> NDArray[Any]:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def source_lines(report: dict[str, Any]) -> list[str]:
    """Return the report without its labels as lines."""
    unusable = report["unusable"]
    lines = [
        f"{'records':<15} {report['records']}",
        f"{'what they are':<15} {report['modality']}s",
        f"{'unusable':<15} {sum(entry['n'] for entry in unusable)} (a fit leaves them out)",
    ]
    for entry in unusable:
        lines.append(f"{'':<15} {entry['reason']}: {', '.join(map(printable, entry['first']))}{_more(entry)}")
    ids, places = report["repeated_ids"], ", ".join(map(printable, report["repeated_ids"]["first"]))
    if ids["n"]:
        lines.append(f"{'repeated ids':<15} {ids['n']} (a fit takes them all): {places}{_more(ids)}")
    return [*lines, f"{'duplicates':<15} {report['duplicate_records']} (usable records equal to an earlier one)"]


def _more(entry: dict[str, Any]) -> str:
    return ", ..." if entry["n"] > len(entry["first"]) else ""
