"""What the trial of an encoder found, kept on this machine, so that it is paid once.

An entry stands for everything that can change a bit: the encoder's fingerprint, dppl's
version, the processor, and the settings that libraries take from the environment. Only
trials on a processor in which no bit moved are kept, of libraries that run no code of
the model's own.
"""

from __future__ import annotations

import json
import os
import platform
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from dppl._utils.files import lasting_folder, state_folder, write_atomically
from dppl._utils.fingerprint import Fingerprint
from dppl._utils.outside import parse_json
from dppl._version import __version__

LIBRARIES = ("transformers", "onnxruntime")
# Of the names of environment variables by which libraries choose their kernels.
_SETTINGS = ("ATEN_", "DNNL_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_", "ORT_")


def place_of(fingerprint: Fingerprint) -> Path | None:
    """Return the file of an encoder's trial; None where none is kept."""
    if fingerprint.device != "cpu" or fingerprint.library not in LIBRARIES:
        return None
    # Neither the path that was typed nor what the trial finds.
    settings = {
        name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)
    }
    key = json.dumps(
        [
            fingerprint.function().text(),
            fingerprint.versions,
            fingerprint.batch,
            __version__,
            platform.platform(),
            _processor(),
            sorted(settings.items()),
        ]
    )
    name = sha256(key.encode()).hexdigest()[:32]
    return state_folder() / "trials" / f"{name}.json"


def recall(place: Path) -> list[list[int]] | None:
    """Return the smaller numbers of rows that give the same bits, for each shape in order; None if unknown."""
    with suppress(OSError, ValueError):
        return list(parse_json(place.read_bytes()))
    return None


def keep(place: Path, smaller: list[list[int]]) -> None:
    """Keep what a trial found, if the folder can be written to."""
    with suppress(OSError):
        lasting_folder(place.parent)
        write_atomically(place, json.dumps(smaller).encode(), overwrite=True)


def _processor() -> str:
    """Return the model and the abilities of the processor, by which kernels are chosen."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "".join(
            sorted(
                {
                    line
                    for line in lines
                    if line.startswith(("model name", "flags", "Features"))
                }
            )
        )
    return platform.processor()
