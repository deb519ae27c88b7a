"""``hf:NAME``: models of transformers for images, for texts, or for both.

NAME is a local folder or a model of the Hugging Face hub in its cache. Options:

* ``pooling``: ``cls``, the first token, or ``mean``, over all tokens of a text or all tokens or places of an image. By
  default ``mean`` for texts and ``cls`` for images (``mean`` where the model has places and no tokens). Models of both
  have a projection of their own instead.
* ``modality``: ``image`` or ``text`` for models of both; by default ``image``.
* ``max_tokens``: where texts are cut; by default where the tokenizer says, or at the model's number of positions.
* ``revision``: of the hub.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._optional import optional
from dppl.encoders.fixed import Network
from dppl.encoders.frozen import FrozenModel, in_pooler, load_torch
from dppl.encoders.hub import (
    IMAGE_FILES,
    contents,
    digest,
    loading,
    model_folder,
    preprocessing_digest,
    tokenizer_files,
)
from dppl.encoders.images import ImageNetwork
from dppl.encoders.load import Source
from dppl.encoders.tokens import TextNetwork, Tokens, tokenise, vocabulary
from dppl.errors import InputError, ParameterError

__all__ = ["image_network", "load", "text_network"]

_USUAL_LIMIT = 512
# They read the last position, whatever stands there, and were trained on texts padded to the limit without a mask.
_PADDED = ("siglip", "siglip2")


def load(source: Source, device: str, precision: str) -> Network:
    """Load a model."""
    source.check(("pooling", "modality", "max_tokens", "revision"))
    torch, transformers = load_torch("text"), optional("transformers", "transformers", "text")
    folder = model_folder(source.name, source.options.get("revision"), "text")
    with loading(str(folder), "text"):
        model, report = transformers.AutoModel.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
    _refuse_missing(folder, (key for key in report["missing_keys"] if not in_pooler(key)))
    both = hasattr(model, "get_image_features") and hasattr(model, "get_text_features")
    images = any((folder / name).is_file() for name in IMAGE_FILES)
    modality = source.choice("modality", ("image", "text"), "image" if images else "text")
    call, pooling = _projection(modality) if both else _pooling(source, model, modality)
    frozen = FrozenModel(torch, model, call, device, precision)
    described = {
        "library": "transformers",
        "pooling": pooling,
        "versions": f"transformers {transformers.__version__}, torch {torch.__version__}",
    }
    network: Network
    if modality == "image":
        with loading(str(folder), "vision"):
            # Pillow's resampling, whether torchvision is installed or not.
            processor = transformers.AutoImageProcessor.from_pretrained(
                folder, backend="pil", local_files_only=True, trust_remote_code=False
            )

        def pixels(image: Any) -> NDArray[np.float32]:
            return np.asarray(processor(image, return_tensors="np")["pixel_values"][0], np.float32)

        network = image_network(frozen, folder, processor, pixels, **described)
        network.for_texts = {"modality": "text"} if both else {}
    else:
        with loading(str(folder), "text"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        config = getattr(model.config, "text_config", model.config)
        positions = getattr(config, "max_position_embeddings", None) or 0
        positions = positions if positions > 0 else _USUAL_LIMIT  # some models without a limit say -1
        limit = source.number("max_tokens", min(tokenizer.model_max_length, positions))
        padded = model.config.model_type in _PADDED
        prepare = partial(tokenise, tokenizer, limit=limit, padded=padded)
        cut = f"{'always' if padded else 'at most'} {limit}"
        network = text_network(frozen, folder, tokenizer, model, prepare, limit, cut, **described)
    poolers = frozen.poolers(network.probe)
    _refuse_missing(folder, (key for key in report["missing_keys"] if poolers.get(key, True)))
    network.weights = frozen.weights(digest(contents(folder, ["config.json"])), poolers)
    return network


def _refuse_missing(folder: Path, keys: Iterable[str]) -> None:
    """Refuse parameters that the files do not hold, which start at random."""
    if missing := sorted(keys):
        raise InputError(f"{folder} holds no weights for {missing[0]} and {len(missing) - 1} more parameters.")


def _projection(modality: str) -> tuple[Callable[..., Any], str]:
    name = f"get_{modality}_features"
    return lambda model, tensors: getattr(model, name)(**tensors).pooler_output, "projection"


def _pooling(source: Source, model: Any, modality: str) -> tuple[Callable[..., Any], str]:
    default = "mean" if modality == "text" or not hasattr(model.config, "num_attention_heads") else "cls"
    pooling = source.choice("pooling", ("cls", "mean"), default)

    def call(model: Any, tensors: dict[str, Any]) -> Any:
        hidden = model(**tensors).last_hidden_state
        if hidden.ndim == 4:
            if pooling == "cls":
                raise ParameterError("pooling='cls' needs a model with tokens; choose pooling=mean.")
            return hidden.mean((2, 3))
        if pooling == "cls":
            return hidden[:, 0]
        if modality == "image":
            return hidden.mean(1)
        mask = tensors["attention_mask"][:, :, None]
        return (hidden * mask).sum(1) / mask.sum(1)

    return call, pooling


def image_network(
    frozen: FrozenModel,
    folder: Path,
    processor: Any,
    prepare: Callable[[Any], NDArray[np.float32]],
    places: Sequence[str] = ("",),
    **described: Any,
) -> ImageNetwork:
    """Return a network of images, whose weights are named when it is known which of them count."""
    return ImageNetwork(
        **described,
        **frozen.fields,
        weights="",
        preprocessing=f"{type(processor).__name__} {preprocessing_digest(folder, IMAGE_FILES, places)}",
        prepare=prepare,
        batch_rows=frozen.batch_rows(8),
    )


def text_network(
    frozen: FrozenModel,
    folder: Path,
    tokenizer: Any,
    model: Any,
    prepare: Callable[[str], Tokens],
    limit: int,
    cut: str,
    places: Sequence[str] = ("",),
    **described: Any,
) -> TextNetwork:
    """Return a network of texts, as `image_network` does; `cut` says what becomes of long texts."""
    return TextNetwork(
        **described,
        **frozen.fields,
        weights="",
        preprocessing=f"tokens {preprocessing_digest(folder, tokenizer_files(tokenizer), places)}, {cut}",
        prepare=prepare,
        limit=limit,
        padding={"input_ids": tokenizer.pad_token_id or 0},
        vocabulary=vocabulary(tokenizer, model),
        batch_rows=frozen.batch_rows(32),
    )
