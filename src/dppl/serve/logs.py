"""Logs of the service: a JSON object per line, of fields that hold no part of a request or of an answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

_LOG = logging.getLogger("dppl.serve")
# Of the server the text that its programmers wrote is shown, and of other libraries only that they said something:
# arguments and tracebacks may quote a request, and so may formatted texts.
_SERVER = "uvicorn.error"
_SILENT = ("asyncio", "uvicorn.access", "uvicorn.asgi")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": str(record.msg).split("\n", 1)[0] if record.name in (_LOG.name, _SERVER) else "library",
            **({} if record.name == _LOG.name else {"logger": record.name}),
            **getattr(record, "fields", {}),
        }
        return json.dumps(said)


def log_event(event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log an event with JSON-ready fields."""
    _LOG.log(level, event, extra={"fields": fields})


@contextmanager
def json_lines(stream: TextIO) -> Iterator[None]:
    """Write the logs of the service, and what its server says, to a stream while the block runs."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonLines())
    loggers = [logging.getLogger(name) for name in (None, _LOG.name, _SERVER, *_SILENT)]
    before = [(log, log.handlers, log.propagate, log.level) for log in loggers]
    try:
        for log in loggers:
            log.handlers, log.propagate = [handler], False
            log.setLevel(logging.CRITICAL + 1 if log.name in _SILENT else logging.WARNING)
        _LOG.setLevel(logging.INFO)
        yield
    finally:
        for log, handlers, propagate, level in before:
            log.handlers, log.propagate = handlers, propagate
            log.setLevel(level)
