"""The file of a fine-tuned model: the trained weights, the guarantee, and the digest of the public module beneath.

Which weights they are follows from the public module and the parameters, so the file holds their values only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from dppl import _validate
from dppl._files import write_atomically
from dppl._version import __version__
from dppl.encoders.frozen import tensors_digest
from dppl.errors import InputError, ModelFileError, ParameterError
from dppl.estimators.reading import public_classes
from dppl.finetune import tensor_file
from dppl.finetune.selection import head_of
from dppl.finetune.trainer import set_weights, weights_of
from dppl.privacy import Guarantee

if TYPE_CHECKING:
    from dppl.finetune.sparse import SparseFinetuner

# The statement is that of other models of this format.
_FORMAT, _KEY = 2, "dppl_finetune"
# What decides which weights are trained, and how records are taken; all else is in the guarantee or of the past.
_SAVED = ("sparsity", "train", "head", "block")


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
        "parameters": {name: getattr(model, name) for name in _SAVED} | {"train": sorted(model.train)},
        "classes": model.classes_.tolist(),
        "guarantee": model.guarantee_.to_dict(),
    }
    values = np.concatenate(list(weights_of(model.module_, model.selection_).values()))
    write_atomically(path, tensor_file.to_bytes(_KEY, description, {"values": values}), overwrite=overwrite)


def read(path: str | os.PathLike[str], module: Any) -> tuple[dict[str, Any], Guarantee, NDArray[np.float32]]:
    """Return the description, guarantee and trained weights of a file, if it is one for this module.

    Raises
    ------
    ModelFileError, InputError
        As `SparseFinetuner.load`.
    """
    fields, guarantee, values = _read(path)
    if fields["module"] != module_digest(module):
        raise InputError(f"{os.fspath(path)} was fitted on another public module; its weights have another digest.")
    return fields, guarantee, values


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file says, and how many weights it holds, after checking it; neither torch nor the network is read.

    Raises
    ------
    FileNotFoundError, ModelFileError
        As `SparseFinetuner.load`.
    """
    fields, _, values = _read(path)
    return {**fields, "n_trained": len(values)}


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
        fields, tensors = tensor_file.read(name, _KEY) or ({}, {})
        guarantee = Guarantee.from_dict(fields["guarantee"])
        if _is_whole(fields) and _are_weights(tensors) and _is_of_a_training(guarantee):
            found = fields, guarantee, tensors["values"]
    except Exception:  # a file that was made to look like one may raise anything
        found = None
    if found is None:
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
        # One kind of label, all different, in the order of the logits.
        and public_classes(classes, np.empty(0, np.intp)).tolist() == classes
        and (encoder is None or isinstance(encoder, str))
    )


def _are_weights(tensors: dict[str, NDArray[Any]]) -> bool:
    values = tensors["values"]
    return len(tensors) == 1 and values.ndim == 1 and values.dtype == np.float32 and bool(np.isfinite(values).all())


def _is_of_a_training(guarantee: Guarantee) -> bool:
    return len(guarantee.releases) == 1 and guarantee.adjacency == "add-remove" and guarantee.stays_within_budget()


def restored(model: SparseFinetuner, guarantee: Guarantee, values: NDArray[np.float32]) -> SparseFinetuner:
    """Return the model as it was after its fit.

    Raises
    ------
    ModelFileError
        If its parameters or weights do not fit the module.
    """
    classes = np.array(model.classes)
    misfit = ModelFileError("the trained weights or the parameters of the file do not fit the module.")
    try:
        _validate.positive_integer(block=model.block)
        # A head has more weights than it has outputs and inputs, so none is made that the file does not fill.
        if "head" in model.train and len(classes) * _width(model) > len(values):
            raise misfit
        module, selection = model._selected(len(classes))
    except (ParameterError, TypeError):
        raise misfit from None
    if sum(len(part) for part in weights_of(module, selection).values()) != len(values):
        raise misfit
    set_weights(module, selection, values)
    model.module_, model.selection_ = module.requires_grad_(False), dict(selection)
    model.classes_, model.guarantee_ = classes, guarantee
    return model


def _width(model: SparseFinetuner) -> int:
    """Return the number of inputs of the head."""
    return int(model.module.get_submodule(head_of(model.module, model.head)).in_features)
