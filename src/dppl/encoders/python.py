"""``python:MODULE:FUNCTION@WEIGHTS?size=N``: an image network that public Python code makes.

MODULE is a name that Python can import or a ``.py`` file, FUNCTION takes nothing and
returns a module for images of shape (n, 3, size, size), and WEIGHTS is a safetensors
file of its parameters. ``size`` is required; ``crop_pct``, ``crop_mode``,
``interpolation``, ``mean`` and ``std`` are as in `Preprocessing`.

As an encoder the network is without its last linear layer: an embedding is what that
layer would see. A network that has no linear layer is taken whole.
"""

import importlib
import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

from dppl._utils.optional import optional
from dppl.encoders.load import EncoderUri
from dppl.encoders.pixels import OPTIONS, ImageAdapter, ImageModel, Preprocessing
from dppl.errors import InputError, ParameterError


def load(source: EncoderUri, device: str, precision: str) -> ImageAdapter:
    """Load a network without its last linear layer, which must compute last. It runs the code that the source names."""
    torch = optional("torch", "torch", "torch")
    model = build(source)
    layers = [
        name
        for name, layer in model.module.named_modules()
        if isinstance(layer, torch.nn.Linear)
    ]
    if layers:
        _remove_head(torch, model.module, layers[-1], model.preprocessing.size)
    return model.adapter(
        f"the input of {layers[-1]}" if layers else "none", device, precision
    )


def build(source: EncoderUri) -> ImageModel:
    """Return the whole network with its weights."""
    code, _, weights = source.name.rpartition("@")
    if code and not Path(weights).is_file():
        raise InputError(f"there is no file of weights {weights}.")
    model = made(code, source)
    load_file = importlib.import_module("safetensors.torch").load_file
    try:
        model.module.load_state_dict(load_file(weights))
    except Exception as error:  # safetensors and torch have their own errors for a file that is something else
        raise InputError(
            f"{weights} does not hold the weights of the network that {code} makes; it must be a "
            f"safetensors file of its state_dict: {' '.join(str(error).split())[:200]}"
        ) from None
    return model


def made(code: str, source: EncoderUri) -> ImageModel:
    """Return the whole network as its code, MODULE:FUNCTION, makes it."""
    torch = optional("torch", "torch", "torch")
    source.check(OPTIONS)
    place, _, function = code.rpartition(":")
    if not place or not function:
        raise ParameterError(
            f"a network of code is python:MODULE:FUNCTION@WEIGHTS?size=N; got python:{source.name}."
        )
    if "size" not in source.options:
        raise ParameterError(
            "a network of code must say how large its images are, as in ...?size=32."
        )
    module = _call(place, function)
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"{function} of {place} must return a torch.nn.Module; it returned another object."
        )
    preprocessing = Preprocessing.of(
        {**source.options, "size": source.number("size", 1)}
    )
    name = f"{Path(place).name}:{function}"
    return ImageModel(
        "python", f"torch {torch.__version__}", module, name, preprocessing
    )


def _call(place: str, function: str) -> Any:
    """Call a function of public code; whatever it raises was raised without private data."""
    called = public_code(place, function)
    try:
        return called()
    except Exception as error:
        raise InputError(
            f"no network by {place}:{function}: {type(error).__name__}: {error}"
        ) from None


def public_code(place: str, name: str) -> Any:
    """Import a module, or run a .py file, and return what it calls so."""
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert spec is not None  # by the suffix, and so is its loader
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        return getattr(module, name)
    except Exception as error:
        raise InputError(
            f"there is no {name} in {place}: {type(error).__name__}: {error}"
        ) from None


def _remove_head(torch: Any, module: Any, head: str, size: int) -> None:
    """Put the identity in the place of the last linear layer, if the output then is what that layer saw."""
    width = module.get_submodule(head).in_features
    shape = None
    module.set_submodule(head, torch.nn.Identity())
    with (
        suppress(Exception),
        torch.inference_mode(),
    ):  # without this layer the network may not fit
        shape = module.float().eval()(torch.zeros(1, 3, size, size)).shape
    if shape != (1, width):
        raise ParameterError(
            f"the last linear layer of a network of code, here {head!r}, must be the last that it computes, on one row "
            "of features an image."
        )
