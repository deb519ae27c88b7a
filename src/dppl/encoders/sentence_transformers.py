"""``st:NAME``: models of sentence-transformers, for texts or (CLIP) images, with all their modules.

NAME is a local folder or a model of the Hugging Face hub in its cache. An embedding is what
``SentenceTransformer.encode`` gives, up to rounding, the model's default prompt included. Options: ``modality``,
``text`` (default) or ``image`` for models of both, and ``revision`` of the hub.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dppl._optional import optional
from dppl.encoders.fixed import Network
from dppl.encoders.frozen import FrozenModel, load_torch
from dppl.encoders.hub import (
    IMAGE_FILES,
    contents,
    digest,
    loading,
    model_folder,
    preprocessing_digest,
    tokenizer_files,
)
from dppl.encoders.images import ImageNetwork, pattern
from dppl.encoders.load import Source
from dppl.encoders.tokens import TextNetwork, Tokens, tokenise
from dppl.errors import ParameterError

__all__ = ["load"]

_PROBES = ("A Probe, of  the TOKENIZER. ", "naïve Ünïcode", "words " * 5000)


def load(source: Source, device: str, precision: str) -> Network:
    """Load a model.

    Raises
    ------
    ParameterError
        If the model does not take the modality, or its inputs are no rows of tokens or pixels.
    InputError
        If the model is not on this machine, or its files are not complete.
    """
    source.check(("modality", "revision"))
    torch, library = load_torch("text"), optional("sentence_transformers", "sentence-transformers", "text")
    folder = model_folder(source.name, source.options.get("revision"), "text")
    with loading(str(folder), "text"):
        model = library.SentenceTransformer(
            str(folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": torch.float32},
        )
    offered = [modality for modality in ("text", "image") if modality in model.modalities]
    modality = source.choice("modality", offered, offered[0])
    prompt = model.prompts.get(model.default_prompt_name) if modality == "text" else None
    _, constants = _features(model, _PROBES[0] if modality == "text" else pattern(0), prompt)
    frozen = FrozenModel(
        torch, model, lambda model, tensors: model({**tensors, **constants})["sentence_embedding"], device, precision
    )
    shared = {
        "library": "sentence-transformers",
        "weights": frozen.weights(digest(contents(folder, _configurations(folder)))),
        "pooling": " > ".join(type(module).__name__ for module in model),
        "versions": f"sentence-transformers {library.__version__}, torch {torch.__version__}",
        "dtype": frozen.dtype,
        "device": frozen.device,
        "compute": frozen,
        "pool": frozen.pool,
    }
    return _texts(model, folder, prompt, shared) if modality == "text" else _images(model, folder, shared)


def _places(folder: Path) -> list[str]:
    """Return the folders that the model's files may lie in: its own, and those of its modules."""
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    return list(dict.fromkeys(["", *(module["path"] for module in modules)]))


def _configurations(folder: Path) -> Iterator[str]:
    """Name the files that say what the modules do, in order."""
    yield "modules.json"
    for place in _places(folder):
        for name in ("config.json", "sentence_bert_config.json"):
            yield str(Path(place) / name)


def _features(model: Any, item: Any, prompt: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays that the model's own preprocessing makes of one item, and what is the same for all items."""
    features = model.preprocess([item], prompt=prompt)
    arrays = {name: value[0].numpy() for name, value in features.items() if getattr(value, "ndim", 0) > 1}
    return arrays, {name: value for name, value in features.items() if name not in arrays}


def _images(model: Any, folder: Path, shared: dict[str, Any]) -> ImageNetwork:
    if set(_features(model, pattern(0), None)[0]) != {"pixel_values"}:
        raise ParameterError(f"{folder.name} takes more than the pixels of an image; dppl cannot batch its inputs.")
    processor = getattr(model.processor, "image_processor", model.processor)
    return ImageNetwork(
        **shared,
        preprocessing=f"{type(processor).__name__} {preprocessing_digest(folder, IMAGE_FILES, _places(folder))}",
        prepare=lambda image: _features(model, image, None)[0]["pixel_values"],
        batch_rows=8 if shared["device"] == "cpu" else 256,
    )


def _texts(model: Any, folder: Path, prompt: str | None, shared: dict[str, Any]) -> TextNetwork:
    tokenizer = model.tokenizer
    limit = int(model.max_seq_length or tokenizer.model_max_length)
    prepare = _preparation(model, prompt, limit)
    if not {"input_ids", "attention_mask"} <= set(_features(model, _PROBES[0], prompt)[0]):
        raise ParameterError(f"{folder.name} makes no rows of tokens of a text; dppl cannot batch its inputs.")
    files = preprocessing_digest(folder, tokenizer_files(tokenizer), _places(folder))
    return TextNetwork(
        **shared,
        preprocessing=f"tokens {files}, at most {limit}, prompt {prompt!r}",
        prepare=prepare,
        limit=limit,
        padding={"input_ids": tokenizer.pad_token_id or 0},
        batch_rows=32 if shared["device"] == "cpu" else 256,
    )


def _preparation(model: Any, prompt: str | None, limit: int) -> Callable[[str], Tokens]:
    """Return the model's own preprocessing of a text, or its tokenizer alone, which is faster, if both agree."""

    def own(text: str) -> Tokens:
        arrays, _ = _features(model, text, prompt)
        return {name: row for name, row in arrays.items() if name != "attention_mask"}

    def direct(text: str) -> Tokens:
        return tokenise(model.tokenizer, (prompt or "") + text, limit)

    return direct if all(_same(own(text), direct(text)) for text in _PROBES) else own


def _same(one: Tokens, other: Tokens) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
