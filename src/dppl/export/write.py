"""Writing a model in one of the formats, or as a folder as model hubs lay it out."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from dppl._utils import validate
from dppl._utils.files import write_atomically
from dppl.errors import ParameterError
from dppl.methods.model_file import describe
from dppl.statement import model_card

Target: TypeAlias = Literal["onnx", "torch", "hf"]
TARGETS: tuple[Target, ...] = get_args(Target)
FILES = ("model.safetensors", "config.json", "README.md")  # of a folder for a hub


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    to: Target,
    encoder: str | os.PathLike[str] | None = None,
    license: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model in a format that is read without dppl, or as a folder for a model hub; or an encoder of texts.

    Parameters
    ----------
    model : EmbeddingClassifier, PrivateClassifier, PrivateSearch or str
        Fitted; or for ``"onnx"`` the URI of an encoder of texts that torch computes,
        such as ``"minilm"``. Its file is the encoder ``onnx:FILE``, which needs no
        torch. It computes the same up to rounding but not to the last bit, so it is
        another encoder: a model that predicts with it was fitted with it.
    path : path
        A file, or for ``"hf"`` a folder.
    to : {"onnx", "torch", "hf"}
        What `to_onnx`, `to_torch` (as a file of `torch.export`) or `to_hub` make.
    encoder : path, default=None
        For ``"onnx"``: the model's encoder as an ONNX file, to be put before the
        classifier.
    license : str, default=None
        For ``"hf"``: the licence of the model, such as ``"apache-2.0"``. None says that
        it is unknown.
    overwrite : bool, default=False
        Whether existing files may be replaced.

    Raises
    ------
    ParameterError
        If there is no such format, or a parameter belongs to another.
    MissingExtra
        If a package that writes it is not installed.
    InputError
        If the model cannot be written in it, or what is read back embeds some fixed
        texts otherwise.
    FileExistsError
        If a file exists and `overwrite` is False.
    """
    validate.one_of(TARGETS, to=to)
    if isinstance(model, str):
        if to != "onnx" or encoder is not None or license is not None:
            raise ParameterError(
                "must be 'onnx' for an encoder, without other options.", parameter="to"
            )
        from dppl.export.onnx_graph import encoder_to_bytes

        write_atomically(path, encoder_to_bytes(model), overwrite=overwrite)
        return
    if encoder is not None and to != "onnx":
        raise ParameterError(
            "goes with the format onnx; leave it out.", parameter="encoder"
        )
    if license is not None and to != "hf":
        raise ParameterError(
            "goes with the format hf, for its card; leave it out.", parameter="license"
        )
    if to == "hf":
        to_hub(model, path, license=license or "unknown", overwrite=overwrite)
        return
    # Imported here, so that help texts name the formats at once.
    from dppl.export import onnx_graph, torch_module

    if to == "onnx":
        content = onnx_graph.to_bytes(model, encoder=encoder)
    else:
        content = torch_module.to_bytes(model)
    write_atomically(path, content, overwrite=overwrite)


def to_hub(
    model: Any,
    folder: str | os.PathLike[str],
    *,
    license: str = "unknown",
    overwrite: bool = False,
) -> None:
    """Write a folder to upload to a model hub such as Hugging Face's.

    It holds ``model.safetensors``, which is the model file that `dppl.load` reads;
    ``config.json`` with the classes as hubs read them (``id2label``) and the whole
    guarantee; and ``README.md``, the model card.

    Parameters
    ----------
    model : EmbeddingClassifier, PrivateClassifier or PrivateSearch
        Fitted.
    folder : path
        Made if it does not exist; its parent must.
    license : str, default="unknown"
        The licence of the model, as model hubs abbreviate it, such as ``"apache-2.0"``.
    overwrite : bool, default=False
        Whether files in the folder may be replaced; others stay.

    Raises
    ------
    FileExistsError
        If the folder holds one of the files and `overwrite` is False.
    """
    from dppl.export.scorer import fitted, statement  # here, as above

    model = fitted(model)
    place = Path(folder)
    place.mkdir(exist_ok=True)
    taken = next((name for name in FILES if (place / name).exists()), None)
    if taken is not None and not overwrite:
        raise FileExistsError(
            f"{place} holds {taken} already; choose another folder, or replace it with overwrite=True."
        )
    content = model.to_bytes()
    write_atomically(place / "model.safetensors", content, overwrite=overwrite)
    description = describe(place / "model.safetensors")
    card = model_card(description, sha256=sha256(content).hexdigest(), license=license)
    names = [str(name) for name in model.classes_.tolist()]
    config = {
        "model_type": "dppl",
        "architectures": [type(model).__name__],
        "n_features": model.n_features_in_,
        "id2label": {str(code): name for code, name in enumerate(names)},
        "label2id": {name: code for code, name in enumerate(names)},
        "dppl": statement(model),
    }
    text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(place / "config.json", text.encode(), overwrite=overwrite)
    write_atomically(place / "README.md", card.encode(), overwrite=overwrite)
