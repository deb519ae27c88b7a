"""Writing a model in one of the formats."""

from __future__ import annotations

import os
from typing import Any, Literal, TypeAlias, get_args

from dppl import _validate
from dppl._files import write_atomically
from dppl.errors import ParameterError
from dppl.export.hub import to_hub

__all__ = ["TARGETS", "Target", "save"]

Target: TypeAlias = Literal["onnx", "torch", "skops", "hf"]
TARGETS: tuple[Target, ...] = get_args(Target)


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    to: Target,
    encoder: str | os.PathLike[str] | None = None,
    license: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model in a format that is read without dppl, or as a folder for a model hub.

    Parameters
    ----------
    model : EmbeddingClassifier, PrivateClassifier or PrivateSearch
        Fitted.
    path : path
        A file, or of ``"hf"`` a folder.
    to : {"onnx", "torch", "skops", "hf"}
        What `to_onnx`, `to_torch` (as a file of `torch.export`), `to_sklearn` (as skops writes it) or `to_hub` make.
    encoder : path, default=None
        Of ``"onnx"``: the model's encoder as an ONNX file, to be put before the classifier.
    license : str, default=None
        Of ``"hf"``: under which the model is published, such as ``"apache-2.0"``. None says that it is unknown.
    overwrite : bool, default=False
        Whether existing files may be replaced.

    Raises
    ------
    ParameterError
        If there is no such format, or a parameter belongs to another.
    MissingExtra
        If a package that writes it is not installed.
    InputError
        If the model cannot be written in it.
    FileExistsError
        If a file exists and `overwrite` is False.
    """
    _validate.one_of(TARGETS, to=to)
    if encoder is not None and to != "onnx":
        raise ParameterError("goes with the format onnx; leave it out.", parameter="encoder")
    if license is not None and to != "hf":
        raise ParameterError("goes with the format hf, in whose card it stands; leave it out.", parameter="license")
    if to == "hf":
        to_hub(model, path, license=license or "unknown", overwrite=overwrite)
        return
    from dppl.export import onnx, pipeline, torch  # here, because the names of the formats need no scikit-learn

    if to == "onnx":
        content = onnx.to_bytes(model, encoder=encoder)
    else:
        content = {"torch": torch, "skops": pipeline}[to].to_bytes(model)
    try:
        write_atomically(path, content, overwrite=overwrite)
    except FileExistsError:
        raise FileExistsError(
            f"{os.fspath(path)} exists; save under another name, or replace it with overwrite=True."
        ) from None
