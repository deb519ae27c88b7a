"""A folder as model hubs lay it out: the model file, a configuration, and a card with the guarantee."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from dppl._files import write_atomically
from dppl.estimators.model_file import describe
from dppl.statement import model_card

__all__ = ["FILES", "to_hub"]

FILES = ("model.safetensors", "config.json", "README.md")


def to_hub(model: Any, folder: str | os.PathLike[str], *, license: str = "unknown", overwrite: bool = False) -> None:
    """Write a folder to upload to a model hub such as Hugging Face's.

    It holds ``model.safetensors``, which is the model file that `dppl.load` reads; ``config.json`` with the classes as
    hubs read them (``id2label``) and the whole guarantee; and ``README.md``, the model card.

    Parameters
    ----------
    model : EmbeddingClassifier, PrivateClassifier or PrivateSearch
        Fitted.
    folder : path
        Made if it does not exist; its parent must.
    license : str, default="unknown"
        Under which the model is published, as model hubs abbreviate it, such as ``"apache-2.0"``.
    overwrite : bool, default=False
        Whether files in the folder may be replaced; others stay.

    Raises
    ------
    FileExistsError
        If the folder holds one of the files and `overwrite` is False.
    """
    from dppl.export.scorer import fitted, statement  # here, because the names of the files need no scikit-learn

    model, place = fitted(model), Path(folder)
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
