"""What the trial of all batch shapes found, kept between loads in the user's cache folder.

The trial takes seconds to minutes, and its result follows from the encoder, the software, the processor, and the
kernels that libraries choose by settings of their own. These show in the bits of synthetic rows. A file holds all this
and the result: nothing of any record. It lies in ``$XDG_CACHE_HOME/dppl`` or ``~/.cache/dppl``; whatever is
wrong with it, or with that folder, means that the trial is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dppl._files import write_atomically
from dppl._fingerprint import Fingerprint
from dppl._version import __version__

_TRIAL = 2  # counts changes of the trial in `dppl.encoders.fixed`


class Verdict(NamedTuple):
    """What the trial found."""

    row_independent: bool  # whether each row has the same bits in any place and company
    short: bool  # whether it has them in short batches too


def known(fingerprint: Fingerprint, rows: NDArray[np.float32]) -> Verdict | None:
    """Return what was found of an encoder here, or None if it was not tried or what is kept cannot be used.

    `rows` are embeddings of synthetic rows, which tell kernels apart.
    """
    tried = _tried(fingerprint, rows)
    try:
        kept = json.loads(_path(tried).read_text(encoding="utf-8"))
        found = Verdict(**{name: kept.pop(name) for name in Verdict._fields})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError):  # the last where there is no home
        return None
    return found if kept == tried and all(isinstance(value, bool) for value in found) else None


def keep(fingerprint: Fingerprint, rows: NDArray[np.float32], found: Verdict) -> None:
    """Keep what was found, if that is possible."""
    tried = _tried(fingerprint, rows)
    content = json.dumps({**tried, **found._asdict()}, indent=1)
    with suppress(OSError, RuntimeError):
        path = _path(tried)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, content.encode(), overwrite=True, private=True)


def _tried(fingerprint: Fingerprint, rows: NDArray[np.float32]) -> dict[str, Any]:
    """Return all that the result follows from; where the weights lie is not part of it."""
    encoder = {name: value for name, value in asdict(fingerprint).items() if name not in ("uri", "row_independent")}
    software = {"dppl": __version__, "numpy": np.__version__, "Python": platform.python_version()}
    return {
        "trial": _TRIAL,
        "encoder": encoder,
        "software": {**software, "processor": _processor()},
        "bits": hashlib.sha256(rows.tobytes()).hexdigest(),
    }


def _path(tried: dict[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(tried, sort_keys=True).encode()).hexdigest()
    return _folder() / f"row-independence-{name[:32]}.json"


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "dppl"


@cache
def _processor() -> str:
    """Return what tells kinds of processors apart: libraries choose their kernels by it."""
    described = platform.processor()
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        lines = [line.partition(":") for line in file.read().partition("\n\n")[0].splitlines()]
        parts = {name.strip(): value.strip() for name, _, value in lines}
        described = " ".join(parts.get(name, "") for name in ("model name", "flags", "Features", "CPU part"))
    return f"{platform.machine()} {hashlib.sha256(described.encode()).hexdigest()[:16]}"
