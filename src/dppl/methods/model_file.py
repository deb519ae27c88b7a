"""The model file: one safetensors file with a JSON description, safe to publish and safe to open.

Tensors: what the estimator released, and ``center`` (public) where there is one. The
description, under the single metadata key ``dppl``, holds the format version,
estimator, parameters, classes, lattice and guarantee, and a checksum of the whole file.
Nothing in it is private, and reading it runs no code. The file is not signed: its
guarantee is the word of whoever wrote it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dppl._utils import tensorfile
from dppl._utils.metadata import checked_columns
from dppl._utils.outside import n_parts
from dppl._utils.types import Array
from dppl.errors import DpplError, ModelFileError
from dppl.kernel.lattice import Lattice
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.kernel.privacy.guarantee import check_length
from dppl.kernel.privacy.release import Misfit
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.methods.as_scikit import check_fitted
from dppl.methods.parameters import PUBLIC, ROTATION, LatticeOptions
from dppl.methods.public_data import ExamplesKept, PublicData
from dppl.methods.registry import BY_NAME

if TYPE_CHECKING:
    from dppl.methods.base import EmbeddingClassifier

FORMAT = 5  # 6 is used by `dppl.finetune.network_file`
KEY = "dppl"
FINETUNED = "dppl_finetune"  # the key of `dppl.finetune.network_file`
# Parameters that have a separate place, are needed by `fit` only, or would undo the
# noise (a seed).
UNSAVED = {"budget", "classes", "lattice", "random_state"}


# Bytes of what is not known before a fit: the entry of the ledger and the header.
_ROOM = 2**16
_NUMBER = 8
# A stream keeps sums of its tasks, too, in arrays of the shape of the first.
_SUMS = 4
# Weights beyond 2⁹⁰ stop a fit, and one that starts from a file has paid by then. To
# rotate these lengthens them by less than 2¹⁰.
_LARGEST = 2.0**80


def to_bytes(model: Any) -> bytes:
    """Return the content of the model file that `save` writes; equal models give equal bytes."""
    check_fitted(model, model._RELEASED)
    tensors = model._tensors()
    if model.lattice_.center is not None:
        tensors["center"] = model.lattice_.center
    return tensorfile.to_bytes(KEY, _description(model), tensors)


def most_bytes(model: Any) -> int:
    """Return what a model file takes at most, for a model of which only public values are settled.

    It is a function of these, so the room that is taken before a fit tells nothing of
    its records. What `load` would not read is refused.
    """
    # A start may come after a thousand others.
    with _whole("What this fit would write"):
        check_length(model.guarantee_.to_dict())
    numbers = sum(math.prod(shape) for _, shape in model._shapes().values())
    described = tensorfile.as_json(_description(model))
    ids = getattr((model.public or PublicData()).rows, "ids", None)
    selected = 0
    longest = 0
    if ids is not None:
        selected = len(model.classes_) * getattr(model, "n_prototypes", 1)
        longest = max((len(json.dumps(str(one)).encode()) for one in ids), default=0)
    length = len(described.encode()) + selected * (longest + 2)
    tensorfile.check_size(length, n_parts(described) + selected)
    # In the file the description is JSON within JSON, which may escape every character.
    text = 2 * length
    sums = _SUMS if hasattr(model, "n_tasks_") else 1
    return int(_ROOM + _NUMBER * (sums * numbers + model.lattice_.dim) + text)


def _description(model: Any) -> dict[str, Any]:
    """Return what a model file says."""
    parameters = {
        name: value for name, value in model._fitted_with.items() if name not in UNSAVED
    }
    description = {
        "format": FORMAT,
        # Not the version that writes: a model keeps its hash when it is read and
        # written by a later one.
        "written_by": f"dppl {model.guarantee_.software.get('dppl', 'unknown')}",
        "estimator": type(model).__name__,
        "parameters": parameters,
        "classes": model.classes_.tolist(),
        "encoder": model.encoder_,
        "lattice": model.lattice_.to_dict(),
        "guarantee": model.guarantee_.to_dict(),
    }
    if (task_budget := getattr(model, "_task_budget", None)) is not None:
        description["task_budget"] = task_budget.to_dict()
    if (ids := getattr(model, "public_ids_", None)) is not None:
        description["public_ids"] = ids.tolist()
    if model.columns_:
        description["columns"] = model.columns_
    if model.examples_ is not None:
        description["examples"] = model.examples_.to_dict()
    return description


def load(path: str | os.PathLike[str]) -> EmbeddingClassifier:
    """Read a model that `save` wrote, ready to predict.

    Returns
    -------
    EmbeddingClassifier
        Of the class that was saved. Of a `PrivateClassifier` this is what classifies
        the embeddings; `PrivateClassifier.load` adds its encoder.

    Raises
    ------
    FileNotFoundError, ModelFileError
        If there is no such file; if it is damaged, was not written by dppl, or has a
        format that this version lacks.

    Examples
    --------
    >>> import dppl, tempfile, numpy as np
    >>> model = dppl.MeanPrototypes(dppl.ApproxDP(1, 1e-6), classes=["a", "b"]).fit(np.eye(2), ["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder + "/model.safetensors")
    ...     again = dppl.load(folder + "/model.safetensors")
    >>> bool((again.prototypes_ == model.prototypes_).all())
    True
    """
    description, tensors = _read(path)
    with _whole(os.fspath(path)):
        return _rebuild(description, tensors)


def unfitted(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, Array], EmbeddingClassifier | None]:
    """Return what a model file says, its tensors, and the estimator of its parameters, if it is one of dppl.

    Of the guarantee only the budget is read.
    """
    description, tensors = _read(path)
    if description.get("estimator") not in BY_NAME:
        return description, tensors, None
    with _whole(os.fspath(path)):
        return description, tensors, _unfitted(description, tensors)


@contextmanager
def _whole(name: str) -> Iterator[None]:
    """Say of whatever goes wrong that the file of this name is not a whole model."""
    try:
        yield
        return
    except ModelFileError as error:
        raise ModelFileError(f"{name} {error}") from None
    except (Misfit, DpplError) as error:
        reason = str(error)
    except KeyError as error:
        reason = f"it has no {error.args[0]!s:.40}"
    except (
        Exception
    ) as error:  # the file may hold anything, and no list of types would be complete
        reason = f"its parts do not fit together ({type(error).__name__})"
    raise ModelFileError(
        f"{name} is not a complete dppl model ({reason}). Fetch or fit it again."
    )


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a model file says, with the positions of public rows where it has them, after checking it."""
    load(path)
    description, tensors = _read(path)
    if "public_indices" in tensors:
        description["public_indices"] = tensors["public_indices"].tolist()
    return description


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the description and the tensors of a model file of this format."""
    name = os.fspath(path)
    if not os.path.isfile(name):
        what = ""
        if os.path.isdir(name):
            what = "; that is a folder"
        raise FileNotFoundError(f"there is no model file {name}{what}.")
    try:
        description, tensors = tensorfile.read(path, KEY)
        if (found := description.get("format")) == FORMAT:
            return description, tensors
        problem = f"has format {found!r}; this version of dppl reads format {FORMAT}."
    except ValueError as error:
        problem = str(error)
        if tensorfile.holds(path, FINETUNED):
            problem = "holds weights of a network; SparseFinetuner.load reads it."
    raise ModelFileError(f"{name} {problem}")


def _unfitted(fields: dict[str, Any], tensors: dict[str, Array]) -> EmbeddingClassifier:
    """Return the estimator of the parameters in a file."""
    if fields["estimator"] not in BY_NAME:
        raise ModelFileError(
            f"holds a {fields['estimator']}, which is no method of dppl. Import the module that defines it and adds it "
            "to dppl.methods.registry.BY_NAME (docs/own-method.md, Save it), then load the file."
        )
    estimator = BY_NAME[fields["estimator"]].load()
    lattice = Lattice(**fields["lattice"], center=tensors.get("center"))
    parameters: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields["parameters"].items()
    }
    classes = np.array(fields["classes"])
    # Not every estimator lets its caller choose the map.
    if "lattice" in estimator._get_param_names():
        options = LatticeOptions(
            pool=lattice.pool, center=lattice.center, rotation=lattice.rotation
        )
        parameters["lattice"] = None if options == LatticeOptions() else options
    elif lattice.rotation not in (None, ROTATION) or lattice.pool != 1:
        raise Misfit("its map is not one of its method")
    # Where the costs of tasks add up, the guarantee is for all, and the parameter what
    # each may spend.
    budget = budget_from_dict(fields.get("task_budget", fields["guarantee"]["budget"]))
    model: EmbeddingClassifier = estimator(budget, classes, **parameters)
    model.check_parameters()
    return model


def _rebuild(fields: dict[str, Any], tensors: dict[str, Array]) -> EmbeddingClassifier:
    """Return the model in a file."""
    model = _unfitted(fields, tensors)
    guarantee = Guarantee.from_dict(fields["guarantee"])
    classes = np.array(fields["classes"])
    lattice = Lattice(**fields["lattice"], center=tensors.get("center"))
    model.classes_ = classes
    model.lattice_ = lattice
    model.guarantee_ = guarantee
    model.n_features_in_ = lattice.n_features
    model.encoder_ = fields["encoder"]
    model.columns_ = fields.get("columns", {})
    model._fitted_with = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in PUBLIC
    }
    # This finds damage and mistakes. It cannot find lies: the guarantee is the word of
    # whoever wrote the file.
    if not 0 < len(set(classes.tolist())) == classes.size:
        raise Misfit("its class list is not one of different classes")
    if not isinstance(model.encoder_, str | None):
        raise Misfit("its encoder has no name")
    if checked_columns(model.columns_) is None:
        raise Misfit("its names of columns are none")
    if (
        guarantee.adjacency != model.adjacency
        or guarantee.budget.notion != fields["guarantee"]["notion"]
    ):
        raise Misfit("its guarantee contradicts its parameters")
    if not guarantee.stays_within_budget():
        raise Misfit("its releases cost more than its budget")
    shape = {"n_classes": classes.size, "dim": lattice.dim}
    if not all(_has_shape(one.statistic, **shape) for one in guarantee.releases):
        raise Misfit("its releases are of other classes or features than it has")
    model._restore(tensors, model.get_params(deep=False))
    if "public_ids" in fields:
        ids = np.array(fields["public_ids"], object)
        rows = getattr(model, "public_indices_", None)
        if (
            rows is None
            or ids.shape != rows.shape
            or not all(isinstance(name, str) for name in ids.flat)
        ):
            raise Misfit("its ids of public rows do not fit their positions")
        model.public_ids_ = ids
    model.examples_ = None
    if "examples" in fields:
        if not model.starts_from_examples:
            raise Misfit("its method starts from no examples")
        model.examples_ = ExamplesKept.from_dict(fields["examples"], len(classes))
    elif not guarantee.releases:
        raise Misfit("it releases nothing and started from nothing")
    return model


def _has_shape(statistic: Term[Statistic], **shape: int) -> bool:
    """Return whether what was asked is of so many classes and features, where it says of how many."""
    said = dict(statistic.innermost.values)
    if statistic.code is Statistic.PROJECTED:  # to rows of any width
        said.pop("dim", None)
    return all(said.get(name, size) == size for name, size in shape.items())


def check_tensor(
    tensors: dict[str, Array], name: str, shape: tuple[int, ...], kind: type
) -> Array:
    """Return a tensor of a model file; `Misfit` if it has another shape or dtype, or a number that no fit makes."""
    tensor = tensors[name]
    if (
        tensor.shape != shape
        or tensor.dtype != kind
        or not (np.abs(tensor) <= _LARGEST).all()
    ):
        raise Misfit(f"its {name} do not fit its classes and lattice")
    return tensor
