"""The model file: one safetensors file with a JSON description, safe to publish and safe to open.

Tensors: ``prototypes``, and where they exist ``center`` (public) and ``public_indices``. The description, under the
single metadata key ``dppl``, holds the format version, estimator, parameters, classes, lattice and guarantee. Nothing
in it is private, and reading it runs no code.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from dppl._files import write_atomically
from dppl._version import __version__
from dppl.errors import DpplError, ModelFileError
from dppl.lattice import Lattice
from dppl.privacy import Guarantee
from dppl.prototypes.mean import MeanPrototypes
from dppl.prototypes.public import PublicPrototypes

if TYPE_CHECKING:
    from dppl.prototypes._base import PrototypeClassifier

FORMAT = 1
_KEY = "dppl"
_ESTIMATORS: dict[str, type[MeanPrototypes] | type[PublicPrototypes]] = {
    "MeanPrototypes": MeanPrototypes,
    "PublicPrototypes": PublicPrototypes,
}
# Parameters that have a place of their own, are needed by `fit` only, or would undo the noise (a seed).
_UNSAVED = {"budget", "classes", "center", "rotation", "pool", "coinpress_center", "random_state"}


def save(model: PrototypeClassifier, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a fitted model; see `PrototypeClassifier.save`."""
    try:
        write_atomically(path, to_bytes(model), overwrite=overwrite)
    except FileExistsError:
        raise FileExistsError(
            f"{os.fspath(path)} exists; choose another name, or overwrite it with overwrite=True."
        ) from None


def to_bytes(model: PrototypeClassifier) -> bytes:
    """Return the content of the model file; equal models give equal bytes."""
    lattice = model.lattice_
    tensors = {"prototypes": model.prototypes_}
    if isinstance(model, PublicPrototypes):
        tensors["public_indices"] = model.public_indices_
    if lattice.center is not None:
        tensors["center"] = lattice.center
    parameters = {name: value for name, value in model.get_params().items() if name not in _UNSAVED}
    if isinstance(model, PublicPrototypes):
        parameters["clip"] = model.clip_
    description = {
        "format": FORMAT,
        "written_by": f"dppl {__version__}",
        "estimator": type(model).__name__,
        "parameters": parameters,
        "classes": model.classes_.tolist(),
        "encoder": model.encoder_,
        "lattice": lattice.to_dict(),
        "guarantee": model.guarantee_.to_dict(),
    }
    text = json.dumps(description, sort_keys=True, ensure_ascii=False, allow_nan=False, default=_python_scalar)
    content: bytes = to_safetensors(
        {name: np.ascontiguousarray(value) for name, value in tensors.items()}, {_KEY: text}
    )
    return content


def load(path: str | os.PathLike[str]) -> MeanPrototypes | PublicPrototypes:
    """Read a model that `save` wrote, ready to predict.

    Parameters
    ----------
    path : path

    Returns
    -------
    MeanPrototypes or PublicPrototypes

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If the file is damaged, was not written by dppl, or by a later format than this version reads.

    Examples
    --------
    >>> import dppl, tempfile, numpy as np
    >>> model = dppl.MeanPrototypes(dppl.ZCDP(1.0), classes=["a", "b"]).fit(np.eye(2), ["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder + "/model.safetensors")
    ...     again = dppl.load(folder + "/model.safetensors")
    >>> bool((again.prototypes_ == model.prototypes_).all())
    True
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no model file {os.fspath(path)}.")
    description, tensors = _read(path)
    try:
        return _rebuild(description, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, DpplError) as error:
        raise ModelFileError(
            f"{os.fspath(path)} is not a complete dppl model: its description does not fit together "
            f"({type(error).__name__}). Fetch or fit it again."
        ) from error


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a model file says, with the positions of public rows where it has them, after checking it.

    Raises
    ------
    FileNotFoundError, ModelFileError
        As `load`.
    """
    load(path)
    description, tensors = _read(path)
    if "public_indices" in tensors:
        description["public_indices"] = tensors["public_indices"].tolist()
    return description


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    name = os.fspath(path)
    try:
        with safe_open(name, framework="numpy") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{name} is not a whole safetensors file; it may be truncated. Fetch it again.") from error
    if text is None:
        raise ModelFileError(f"{name} is a safetensors file, but not a dppl model.")
    try:
        description = json.loads(text)
        version = description["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{name} carries a dppl description that cannot be read.") from error
    if version != FORMAT:
        raise ModelFileError(f"{name} has format {version!r}; this version of dppl reads format {FORMAT}. Update dppl.")
    return description, tensors


def _rebuild(fields: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> MeanPrototypes | PublicPrototypes:
    guarantee = Guarantee.from_dict(fields["guarantee"])
    center = tensors.get("center")
    lattice = Lattice(**fields["lattice"], center=center)
    parameters: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields["parameters"].items()
    }
    classes = np.array(fields["classes"])
    model = _ESTIMATORS[fields["estimator"]](
        guarantee.budget, classes, center=center, rotation=lattice.rotation, pool=lattice.pool, **parameters
    )
    prototypes = tensors["prototypes"]
    if prototypes.shape[0] != len(classes) or prototypes.shape[-1] != lattice.dim or not len(classes):
        raise ValueError("the shape of the prototypes does not fit the classes and the lattice")
    if not np.isfinite(prototypes).all():
        raise ValueError("the prototypes are not finite")
    model.classes_, model.prototypes_, model.lattice_ = classes, prototypes, lattice
    model.guarantee_, model.n_features_in_, model.encoder_ = guarantee, lattice.n_features, fields["encoder"]
    if isinstance(model, PublicPrototypes):
        model.public_indices_ = tensors["public_indices"]
        model.clip_ = parameters["clip"]
        if model.public_indices_.shape != prototypes.shape[:2]:
            raise ValueError("the number of public rows does not fit the prototypes")
    return model


def _python_scalar(value: Any) -> Any:
    """Let JSON write NumPy scalars that came in as parameters."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a model file")
