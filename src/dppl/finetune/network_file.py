"""The file of a fine-tuned model: the trained weights, the guarantee, and the digest of the public module beneath.

Which weights they are follows from the public module and the parameters, so the file
holds their values only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils import tensorfile
from dppl._utils.outside import n_parts
from dppl.errors import ModelFileError
from dppl.finetune.schedule import n_steps, statistic_of, training_of
from dppl.kernel.privacy import Guarantee
from dppl.kernel.reading import public_classes

_FORMAT = 6  # 5 is used by `dppl.methods.model_file`
KEY = "dppl_finetune"
_OTHERS = "dppl"  # the key of `dppl.methods.model_file`
# What decides which weights are trained and how records are taken, and the recipe; all
# public.
NUMBERS = ("sparsity", "sampling_rate")
_FIELDS = (
    "format",
    "written_by",
    "estimator",
    "encoder",
    "module",
    "width",
    "parameters",
    "classes",
    "guarantee",
)
RECIPE = (
    *(
        "epochs",
        "batch_size",
        "clip",
        "head_learning_rate",
        "learning_rate",
        "momentum",
        "warmup_epochs",
    ),
    *("default_head", "keep_filters", "block", "precision"),
)
_ROOM = 2**16  # bytes of what is not known before a fit
_RATE_UNIT = 2.0**-32  # coins are tossed at a multiple of it


def to_bytes(
    fields: dict[str, Any], guarantee: Guarantee, values: NDArray[np.float32]
) -> bytes:
    """Return the content of the file of a fitted model; see `SparseFinetuner.save`."""
    description = {
        "format": _FORMAT,
        "written_by": f"dppl {guarantee.software.get('dppl', 'unknown')}",  # as in other models
        "guarantee": guarantee.to_dict(),
    }
    return tensorfile.to_bytes(KEY, description | fields, {"values": values})


def read(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], Guarantee, NDArray[np.float32]]:
    """Return the description, guarantee and trained weights of a file, checked."""
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise FileNotFoundError(f"there is no model file {name}.")
    try:
        fields, tensors = tensorfile.read(path, KEY)
    except ValueError as error:
        problem = str(error)
        if tensorfile.holds(path, _OTHERS):
            problem = "holds a classifier of embeddings; dppl.load reads it."
        raise ModelFileError(f"{name} {problem}") from None
    if (found := fields.get("format")) != _FORMAT:
        raise ModelFileError(
            f"{name} has format {found!r}; this version of dppl reads format {_FORMAT}."
        )
    whole = False
    try:
        guarantee = Guarantee.from_dict(fields["guarantee"])
        whole = _is_whole(fields, guarantee, tensors)
    except Exception:  # a file that was made to look like one may raise anything
        pass
    if not whole:
        raise ModelFileError(
            f"{name} is not a whole model of SparseFinetuner: its parts contradict each other. Fetch or fit it again."
        )
    return fields, guarantee, tensors["values"]


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file says, and its sizes, after checking it; neither torch nor the network is read.

    Sizes are the number of trained weights and of steps, and the noise of a step in
    multiples of the clipping norm.
    """
    fields, guarantee, values = read(path)
    release = training_of(guarantee)
    multiplier = release.parameters["noise_std"] / release.sensitivity
    return {
        **fields,
        "n_trained": len(values) - (fields["width"] or 0),
        "n_steps": release.times,
        "noise_multiplier": multiplier,
    }


def is_finetuned(path: str | os.PathLike[str]) -> bool:
    """Return whether a file says that it is of `dppl.finetune`; reading it checks the rest."""
    return tensorfile.holds(path, KEY)


def _is_whole(
    fields: dict[str, Any], guarantee: Guarantee, tensors: dict[str, NDArray[Any]]
) -> bool:
    """Check the parts of a file, and that a recipe is the one whose noise the guarantee states; it may raise, too."""
    parameters = fields["parameters"]
    classes = fields["classes"]
    values = tensors["values"]
    release = training_of(guarantee)
    rate = parameters["sampling_rate"]
    recipe = dict(parameters["recipe"])
    has_heads = recipe.pop("default_head")
    keeps_filters = recipe.pop("keep_filters")
    precision = recipe.pop("precision")
    numbers = [*(parameters[name] for name in NUMBERS), *recipe.values()]
    return (
        set(fields) == {*_FIELDS}
        and fields["guarantee"] == guarantee.to_dict()
        and (fields["format"], fields["estimator"]) == (_FORMAT, "SparseFinetuner")
        and all(isinstance(fields[name], str) for name in ("module", "written_by"))
        and isinstance(fields["encoder"], str | None)
        and (set(parameters), set(tensors))
        == ({"train", "head", "recipe", *NUMBERS}, {"values"})
        and isinstance(keeps_filters, bool)
        and has_heads is (len(guarantee.releases) > 1)
        and type(fields["width"]) is (int if has_heads else type(None))
        and set(parameters["recipe"]) == {*RECIPE}
        and precision in ("float32", "bfloat16")
        and all(type(number) in (int, float) for number in numbers)
        and isinstance(classes, list)
        # One kind of label, all different, in the order of the logits.
        and public_classes(classes).tolist() == classes
        and (values.dtype.name, values.ndim) == ("float32", 1)
        and bool(np.isfinite(values).all())
        and guarantee.adjacency == "add-remove"
        and guarantee.stays_within_budget()
        and release.statistic == statistic_of(len(values) - (fields["width"] or 0))
        and release.parameters["noise_std"] > 0
        and abs(release.parameters.get("sampling_rate", 1.0) - rate) <= _RATE_UNIT
        and release.times == n_steps(parameters["recipe"]["epochs"], rate)
    )


def most_bytes(guarantee: Guarantee, width: int | None, names: Iterable[Any]) -> int:
    """Return what the file of a fit takes at most: a function of public values, `names` of classes among them.

    What could not be read again is a `ParameterError`.
    """
    n_trained: int = training_of(guarantee).statistic["n_weights"]
    fields = {"names": [*names], "guarantee": guarantee.to_dict()}
    described = tensorfile.as_json(fields)
    n_bytes = len(described.encode())
    tensorfile.check_size(n_bytes + _ROOM, n_parts(described) + _ROOM)
    # In the file the description is JSON within JSON, which may escape every character.
    return _ROOM + 4 * (n_trained + (width or 0)) + 2 * n_bytes
