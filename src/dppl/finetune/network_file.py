"""The file of a fine-tuned model: the trained weights, the guarantee, and the digest of the public module beneath.

Which weights they are follows from the public module and the parameters, so the file
holds their values only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils import tensorfile
from dppl.encoders.frozen import tensors_digest
from dppl.errors import ModelFileError
from dppl.finetune.schedule import n_steps, statistic_of
from dppl.finetune.weights import weights_of
from dppl.kernel.privacy import Guarantee, Release
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.kernel.privacy.terms import Statistic, Unit
from dppl.kernel.reading import public_classes

if TYPE_CHECKING:
    from dppl.finetune.sparse import SparseFinetuner

_FORMAT = 6  # 5 is used by `dppl.methods.model_file`
_KEY = "dppl_finetune"
# What decides which weights are trained and how records are taken, and the recipe; all
# public.
_NUMBERS = ("sparsity", "sampling_rate")
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
_RECIPE = (
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


def module_digest(module: Any) -> str:
    """Return the SHA-256 of the weights and buffers of a module, with their names."""
    return tensors_digest("", module.state_dict().items())


def to_bytes(model: SparseFinetuner) -> bytes:
    """Return the content of the file of a fitted model; see `SparseFinetuner.save`."""
    from dppl.methods.base import (
        as_json,
    )  # here, because reading a model file needs no scikit-learn

    parameters = {
        name: as_json(getattr(model, name)) for name in ("head", *_NUMBERS)
    } | {
        "train": sorted(model.train),
        "sampling_rate": model.sampling_rate_,
        "recipe": {name: as_json(getattr(model.recipe, name)) for name in _RECIPE},
    }
    description = {
        "format": _FORMAT,
        "written_by": f"dppl {model.guarantee_.software.get('dppl', 'unknown')}",  # as in other models
        "estimator": type(model).__name__,
        "encoder": model.encoder_,
        "module": module_digest(model.module),
        "width": model.width,
        "parameters": parameters,
        "classes": model.classes_.tolist(),
        "guarantee": model.guarantee_.to_dict(),
    }
    return tensorfile.to_bytes(
        _KEY,
        description,
        {"values": weights_of(model.module_, model.kept(model.selection_))},
    )


def read(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], Guarantee, NDArray[np.float32]]:
    """Return the description, guarantee and trained weights of a file, checked."""
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise FileNotFoundError(f"there is no model file {name}.")
    whole = False
    try:
        fields, tensors = tensorfile.read(path, _KEY)
        guarantee = Guarantee.from_dict(fields["guarantee"])
        whole = _is_whole(fields, guarantee, tensors)
    except Exception:  # a file that was made to look like one may raise anything
        pass
    if not whole:
        raise ModelFileError(
            f"{name} is not a whole model of SparseFinetuner. Fetch or fit it again."
        )
    return fields, guarantee, tensors["values"]


def planned(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Guarantee]:
    """Return what a file says, unchecked except for damage, and what a training of its parameters guarantees."""
    # Here, because a page of a model needs none of it.
    from dppl.finetune.gradients import noise_within
    from dppl.finetune.heads import default_heads
    from dppl.finetune.schedule import releases_of
    from dppl.finetune.trainer import guarantee_of

    fields, tensors = tensorfile.read(path, _KEY)
    given = fields["parameters"]
    size = len(tensors["values"]) - (fields["width"] or 0)
    recipe = given["recipe"]
    rate = given["sampling_rate"]
    if size <= 0:  # a width that no file of this size has room for
        raise ValueError("the file says that a head is wider than all it holds")
    budget = budget_from_dict(fields["guarantee"]["budget"])
    if recipe["default_head"]:
        heads = default_heads(budget, np.array(fields["classes"]))
    else:
        heads = []
    before, after, mu = releases_of(heads, fields["width"])
    noise = noise_within(budget, n_steps(recipe["epochs"], rate), rate, mu)
    releases = [*before, noise.describe(statistic_of(size)), *after]
    guarantee = guarantee_of(budget, releases, row_independent=recipe["block"] == 1)
    from dppl.methods.fit_plan import of_persons  # here, because only a check needs it

    whole = Unit(fields["guarantee"]["unit"]) is Unit.PERSON
    return fields, of_persons(guarantee, whole=True) if whole else guarantee


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
    return tensorfile.holds(path, _KEY)


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
    numbers = [*(parameters[name] for name in _NUMBERS), *recipe.values()]
    return (
        set(fields) == {*_FIELDS}
        and fields["guarantee"] == guarantee.to_dict()
        and (fields["format"], fields["estimator"]) == (_FORMAT, "SparseFinetuner")
        and all(isinstance(fields[name], str) for name in ("module", "written_by"))
        and isinstance(fields["encoder"], str | None)
        and (set(parameters), set(tensors))
        == ({"train", "head", "recipe", *_NUMBERS}, {"values"})
        and isinstance(keeps_filters, bool)
        and has_heads is (len(guarantee.releases) > 1)
        and type(fields["width"]) is (int if has_heads else type(None))
        and set(parameters["recipe"]) == {*_RECIPE}
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


def training_of(guarantee: Guarantee) -> Release:
    """Return the entry of the training in a statement, which may name heads, too."""
    (release,) = (
        one
        for one in guarantee.releases
        if one.statistic.code is Statistic.NETWORK_GRADIENTS
    )
    return release


def most_bytes(
    model: SparseFinetuner, guarantee: Guarantee, names: Sequence[str]
) -> int:
    """Return what the file of a fit takes at most: a function of public values, the `names` among them."""
    n_trained: int = training_of(guarantee).statistic["n_weights"]
    texts = [
        *map(str, np.asarray(model.classes).tolist()),
        *names,
        tensorfile.as_json(guarantee.to_dict()),
    ]
    # In the file texts are JSON within JSON, which may escape every character.
    text = sum(6 * len(one.encode()) + 8 for one in texts)
    return _ROOM + 4 * (n_trained + (model.width or 0)) + text
