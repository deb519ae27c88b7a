"""Logs of the service: a JSON object a line, of fields that hold no part of a request or of an answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

__all__ = ["LOG", "json_lines", "tell"]

LOG = logging.getLogger("dppl.serve")
# Of a library nothing is shown but the text that its programmers wrote: arguments and tracebacks may quote a request.
_OURS = (LOG.name, "uvicorn", "uvicorn.error")
_SILENT = ("asyncio", "uvicorn.access", "uvicorn.asgi")  # they write what a request holds


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": str(record.msg).split("\n", 1)[0],
            **getattr(record, "fields", {}),
        }
        return json.dumps(said)


def tell(event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log an event.

    Parameters
    ----------
    event : str
    level : int, default=logging.INFO
    **fields : object
        JSON-ready.
    """
    LOG.log(level, event, extra={"fields": fields})


@contextmanager
def json_lines(stream: TextIO) -> Iterator[None]:
    """Write the logs of the service, and what its server says, to a stream while the block runs."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonLines())
    loggers = [logging.getLogger(name) for name in (*_OURS, *_SILENT)]
    before = [(log, log.handlers, log.propagate, log.level) for log in loggers]
    try:
        for log in loggers:
            shown = log.name in _OURS
            log.handlers, log.propagate = [handler] if shown else [logging.NullHandler()], False
            log.setLevel(logging.INFO if log is LOG else logging.WARNING if shown else logging.CRITICAL + 1)
        yield
    finally:
        for log, handlers, propagate, level in before:
            log.handlers, log.propagate = handlers, propagate
            log.setLevel(level)
