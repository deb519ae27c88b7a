"""Code of somebody else's that works with a private record: what it shows, and how it ends, may say something of that.

Hidden are warnings, records of `logging`, and what is written to standard output and
standard error, by Python or by a library in C. Files, other processes and the network
are not.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import (
    ExitStack,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from functools import cache
from io import StringIO
from typing import Any

import numpy as np

_STREAMS = (1, 2)
_STOPS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    if hasattr(signal, name)
]
_alone = threading.RLock()  # streams belong to the process


@contextmanager
def muted() -> Iterator[None]:
    """Show nothing of what happens in the block."""
    unseen = StringIO()
    with (
        _alone,
        _no_logging(),
        _no_streams(),
        redirect_stdout(unseen),
        redirect_stderr(unseen),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _no_logging() -> Iterator[None]:
    """Stop `logging`, whose handlers keep the streams, or the notebook, that they were made for."""
    before = logging.root.manager.disable
    logging.disable(sys.maxsize)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _no_streams() -> Iterator[None]:
    """Send what is written to the streams of the process nowhere."""
    _flush()
    with ExitStack() as after:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        after.callback(os.close, nowhere)
        for stream in _STREAMS:
            with suppress(OSError):  # is closed
                kept = os.dup(stream)
                after.callback(os.close, kept)
                after.callback(os.dup2, kept, stream)
                os.dup2(nowhere, stream)
        after.callback(_flush)
        yield


def _flush() -> None:
    """Write what Python and C hold back of the streams."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(Exception):  # there is none, or nobody reads it any more
            stream.flush()  # type: ignore[union-attr]
    library, file = _output_of_c()
    if library is not None:
        library.fflush(file)


@cache
def _output_of_c() -> tuple[Any, Any]:
    with suppress(Exception):  # it has another name, as in Windows
        library = ctypes.CDLL(None)
        if sys.platform == "darwin":
            name = "__stdoutp"
        else:
            name = "stdout"
        return library, ctypes.c_void_p.in_dll(library, name)
    return None, None


@contextmanager
def stops() -> Iterator[list[BaseException]]:
    """Yield a list of what signals raised in the block; code can raise the same without one.

    Python runs handlers of signals in the main thread alone.
    """
    raised: list[BaseException] = []
    with ExitStack() as after:
        if threading.current_thread() is threading.main_thread():
            for number in _STOPS:
                handler = signal.getsignal(number)
                if callable(handler):
                    after.callback(signal.signal, number, handler)
                    signal.signal(number, _noting(handler, raised))
        yield raised


def _noting(handler: Any, raised: list[BaseException]) -> Any:
    def handle(number: int, frame: Any) -> None:
        try:
            handler(number, frame)
        except BaseException as stop:
            raised.append(stop)
            raise

    return handle
