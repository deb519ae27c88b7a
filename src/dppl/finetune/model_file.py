"""The file of a fine-tuned model: the trained weights, the guarantee, and the digest of the public module beneath.

Which weights they are follows from the public module and the parameters, so the file holds their values only.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save as to_safetensors

from dppl._files import write_atomically
from dppl._version import __version__
from dppl.encoders.frozen import tensors_digest
from dppl.errors import InputError, ModelFileError
from dppl.estimators.base import as_json
from dppl.finetune.selection import check_module
from dppl.finetune.trainer import set_weights, weights_of
from dppl.privacy import Guarantee

if TYPE_CHECKING:
    from dppl.finetune.sparse import SparseFinetuner

# The statement is that of other models of this format.
_FORMAT, _KEY = 2, "dppl_finetune"
# What decides which weights are trained and how records are taken, and the recipe; all public.
_NUMBERS = (
    *("sparsity", "block", "batch_size", "sampling_rate", "epochs", "warmup_epochs", "head_learning_rate"),
    *("learning_rate", "momentum", "clip"),
)
_SAVED = ("train", "head", *_NUMBERS)
_RATE_UNIT = 2.0**-32  # coins are tossed at a multiple of it


def module_digest(module: Any) -> str:
    """Return the SHA-256 of the weights and buffers of a module, with their names."""
    return tensors_digest("", module.state_dict().items())


def save(model: SparseFinetuner, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Write a fitted model; see `SparseFinetuner.save`."""
    description = {
        "format": _FORMAT,
        "written_by": f"dppl {__version__}",
        "estimator": type(model).__name__,
        "encoder": model.encoder_,
        "module": module_digest(model.module),
        "parameters": {name: as_json(getattr(model, name)) for name in _SAVED}
        | {"train": sorted(model.train), "sampling_rate": model.sampling_rate_},
        "classes": model.classes_.tolist(),
        "guarantee": model.guarantee_.to_dict(),
    }
    values = np.concatenate(list(weights_of(model.module_, model.selection_).values()))
    text = json.dumps(description, sort_keys=True, ensure_ascii=False, allow_nan=False)
    try:
        write_atomically(path, to_safetensors({"values": values}, {_KEY: text}), overwrite=overwrite)
    except FileExistsError:
        raise FileExistsError(
            f"{os.fspath(path)} exists; save under another name, or replace it with overwrite=True."
        ) from None


def read(
    path: str | os.PathLike[str], module: Any
) -> tuple[dict[str, Any], NDArray[Any], Guarantee, NDArray[np.float32]]:
    """Return the description, classes, guarantee and trained weights of a file, if it is one for this module.

    Raises
    ------
    ModelFileError, InputError
        As `SparseFinetuner.load`.
    """
    fields, guarantee, values = _read(path)
    check_module(module)
    if fields["module"] != module_digest(module):
        raise InputError(
            f"{os.fspath(path)} was fitted on another public module; its weights have another digest. Pass the module "
            "with the weights that it had before the fit."
        )
    return fields, np.array(fields["classes"]), guarantee, values


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file says, and its sizes, after checking it; neither torch nor the network is read.

    Sizes are the number of trained weights, of steps, and the noise of a step in multiples of the clipping norm.

    Raises
    ------
    FileNotFoundError, ModelFileError
        As `SparseFinetuner.load`.
    """
    fields, guarantee, values = _read(path)
    (release,) = guarantee.releases  # _read saw to that
    multiplier = release.parameters["noise_std"] / release.sensitivity
    return {**fields, "n_trained": len(values), "n_steps": release.times, "noise_multiplier": multiplier}


def is_finetuned(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file says that it is of `SparseFinetuner`; what is wrong with it, reading it says."""
    try:
        with safe_open(path, framework="numpy") as file:
            return _KEY in (file.metadata() or {})
    except Exception:  # a damaged file may raise anything
        return False


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Guarantee, NDArray[np.float32]]:
    name = os.fspath(path)
    found = None
    if not os.path.isfile(name):
        raise FileNotFoundError(f"there is no model file {name}.")
    try:
        with safe_open(name, framework="numpy") as file:
            fields = json.loads(file.metadata()[_KEY])
            values = file.get_tensor("values")
        guarantee = Guarantee.from_dict(fields["guarantee"])
        if (
            _is_whole(fields)
            and _is_of(fields["parameters"], guarantee)
            and values.dtype == np.float32
            and np.isfinite(values).all()
        ):
            found = fields, guarantee, values
    except Exception:  # a damaged file may raise anything
        found = None
    if found is None or not found[1].stays_within_budget():
        raise ModelFileError(f"{name} is not a whole model of SparseFinetuner. Fetch or fit it again.")
    return found


def _is_whole(fields: dict[str, Any]) -> bool:
    classes, encoder = fields["classes"], fields["encoder"]
    return (
        fields["format"] == _FORMAT
        and fields["estimator"] == "SparseFinetuner"
        and set(fields["parameters"]) == set(_SAVED)
        and isinstance(fields["module"], str)
        and isinstance(fields["written_by"], str)
        and isinstance(classes, list)
        and 0 < len(classes) == len(set(classes))
        and (encoder is None or isinstance(encoder, str))
    )


def _is_of(parameters: dict[str, Any], guarantee: Guarantee) -> bool:
    """Tell whether a recipe is the one whose noise the guarantee states."""
    if any(isinstance(parameters[name], bool) or not isinstance(parameters[name], int | float) for name in _NUMBERS):
        return False
    (release,) = guarantee.releases
    rate = parameters["sampling_rate"]
    return (
        release.parameters["noise_std"] > 0
        and abs(release.parameters.get("sampling_rate", 1.0) - rate) <= _RATE_UNIT
        and release.times == n_steps(parameters["epochs"], rate)
    )


def n_steps(epochs: float, rate: float) -> int:
    """Return the number of steps in which a record takes part as often on average, rounded up."""
    return math.ceil(epochs / rate - 1e-9)


def restored(model: SparseFinetuner, guarantee: Guarantee, values: NDArray[np.float32]) -> SparseFinetuner:
    """Return the model as it was after its fit."""
    module, selection = model._selected(len(np.unique(np.asarray(model.classes))))
    if sum(len(part) for part in weights_of(module, selection).values()) != len(values):
        raise ModelFileError("the trained weights do not fit the module.")
    set_weights(module, selection, values)
    model.module_, model.selection_ = module.requires_grad_(False), dict(selection)
    model.sampling_rate_ = float(model.sampling_rate or 1.0)  # every file states one
    model.classes_, model.guarantee_ = np.unique(np.asarray(model.classes)), guarantee
    return model
