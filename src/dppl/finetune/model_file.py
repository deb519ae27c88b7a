"""The file of a fine-tuned model: the trained weights, the guarantee, and the digest of the public module beneath.

Which weights they are follows from the public module and the parameters, so the file holds their values only.
"""

from __future__ import annotations

import math
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
from dppl.finetune import tensor_file
from dppl.finetune.selection import check_module, head_of, set_weights, weights_of
from dppl.kernel.privacy import Guarantee
from dppl.kernel.reading import public_classes

if TYPE_CHECKING:
    from dppl.finetune.sparse import NetworkClassifier, SparseFinetuner

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
    from dppl.estimators.base import as_json  # here, because reading a model file needs no scikit-learn

    parameters = {name: as_json(getattr(model, name)) for name in _SAVED}
    parameters |= {"train": sorted(model.train), "sampling_rate": model.sampling_rate_}
    values = np.concatenate(list(weights_of(model.module_, model.selection_).values()))
    write(model, path, parameters, {"values": values}, overwrite=overwrite)


def write(
    model: NetworkClassifier,
    path: str | os.PathLike[str],
    parameters: dict[str, Any],
    tensors: dict[str, NDArray[Any]],
    *,
    overwrite: bool,
) -> None:
    """Write a model: its parameters, class list and guarantee, the digest of its public module, and what it trained."""
    description = {
        "format": _FORMAT,
        "written_by": f"dppl {__version__}",
        "estimator": type(model).__name__,
        "encoder": model.encoder_,
        "module": module_digest(model.module),
        "parameters": parameters,
        "classes": model.classes_.tolist(),
        "guarantee": model.guarantee_.to_dict(),
    }
    try:
        write_atomically(path, tensor_file.to_bytes(_KEY, description, tensors), overwrite=overwrite)
    except FileExistsError:
        raise FileExistsError(
            f"{os.fspath(path)} exists; save under another name, or replace it with overwrite=True."
        ) from None


def read(path: str | os.PathLike[str], module: Any) -> tuple[dict[str, Any], Guarantee, dict[str, NDArray[Any]]]:
    """Return the description, guarantee and arrays of a file, if it is one for this module."""
    fields, guarantee, tensors = _read(path)
    check_module(module)
    if fields["module"] != module_digest(module):
        raise InputError(
            f"{os.fspath(path)} was fitted on another public module; its weights have another digest. Pass the module "
            "with the weights that it had before the fit."
        )
    return fields, guarantee, tensors


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file says, and its sizes, after checking it; neither torch nor the network is read.

    Sizes are the number of trained weights and of steps, and the noise of a step in multiples of the clipping norm.
    """
    fields, guarantee, tensors = _read(path)
    (release,) = guarantee.releases  # _read saw to that
    multiplier = release.parameters["noise_std"] / release.sensitivity
    sizes = {"n_trained": tensors["values"].shape[-1], "n_steps": release.times, "noise_multiplier": multiplier}
    return {**fields, **sizes}


def is_finetuned(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file says that it is of `dppl.finetune`; what is wrong with it, reading it says."""
    try:
        with safe_open(path, framework="numpy") as file:
            return _KEY in (file.metadata() or {})
    except Exception:  # a damaged file may raise anything
        return False


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Guarantee, dict[str, NDArray[Any]]]:
    name = os.fspath(path)
    found = None
    if not os.path.isfile(name):
        raise FileNotFoundError(f"there is no model file {name}.")
    try:
        fields, tensors = tensor_file.read(name, _KEY) or ({}, {})
        guarantee = Guarantee.from_dict(fields["guarantee"])
        parameters, parts = fields["parameters"], (set(fields["parameters"]), set(tensors))
        whole = fields["estimator"] == "SparseFinetuner" and parts == ({*_SAVED}, {"values"}) and _is_whole(fields)
        if whole and _are_weights(tensors["values"]) and _is_of_trainings(guarantee) and _is_of(parameters, guarantee):
            found = fields, guarantee, tensors
    except Exception:  # a file that was made to look like one may raise anything
        found = None
    if found is None:
        raise ModelFileError(f"{name} is not a whole model of SparseFinetuner. Fetch or fit it again.")
    return found


def _is_whole(fields: dict[str, Any]) -> bool:
    classes, encoder = fields["classes"], fields["encoder"]
    return (
        fields["format"] == _FORMAT
        and isinstance(fields["module"], str)
        and isinstance(fields["written_by"], str)
        and isinstance(classes, list)
        # One kind of label, all different, in the order of the logits.
        and public_classes(classes).tolist() == classes
        and (encoder is None or isinstance(encoder, str))
    )


def _are_weights(values: NDArray[Any]) -> bool:
    return values.dtype == np.float32 and bool(np.isfinite(values).all())


def _is_of_trainings(guarantee: Guarantee) -> bool:
    return len(guarantee.releases) == 1 and guarantee.adjacency == "add-remove" and guarantee.stays_within_budget()


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
    classes = np.array(model.classes)
    misfit = ModelFileError("the trained weights or the parameters of the file do not fit the module.")
    try:
        _validate.positive_integer(block=model.block)
        # A head has more weights than it has outputs and inputs, so none is made that the file does not fill.
        if "head" in model.train and len(classes) * _width(model) > values.size:
            raise misfit
        module, selection = model._selected(len(classes))
    except (ParameterError, TypeError):
        raise misfit from None
    if values.shape != (sum(len(part) for part in weights_of(module, selection).values()),):
        raise misfit
    set_weights(module, selection, values)
    model.module_, model.selection_ = module.requires_grad_(False), dict(selection)
    model.sampling_rate_ = float(model.sampling_rate or 1.0)  # every file states one
    model.classes_, model.guarantee_ = classes, guarantee
    return model


def _width(model: SparseFinetuner) -> int:
    """Return the number of inputs of the head."""
    return int(model.module.get_submodule(head_of(model.module, model.head)).in_features)
