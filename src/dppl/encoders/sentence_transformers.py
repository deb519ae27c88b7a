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
from dppl.encoders.hub import IMAGE_FILES, contents, digest, loading, model_folder, tokenizer_files
from dppl.encoders.images import pattern
from dppl.encoders.load import Source
from dppl.encoders.tokens import TextNetwork, Tokens, tokenise
from dppl.encoders.transformers import image_network, text_network
from dppl.errors import InputError, ParameterError

__all__ = ["load"]

_PROBES = ("A Probe, of  the TOKENIZER. ", "naïve Ünïcode", "words " * 5000)


def load(source: Source, device: str, precision: str) -> Network:
    """Load a model; one whose own preprocessing would fetch what a text names is refused."""
    source.check(("modality", "revision"))
    torch, library = load_torch("text"), optional("sentence_transformers", "sentence-transformers", "text")
    folder = model_folder(source.name, source.options.get("revision"), "text")
    model = _model(torch, library, folder)
    offered = [modality for modality in ("text", "image") if modality in model.modalities]
    modality = source.choice("modality", offered, offered[0])
    prompt = model.prompts.get(model.default_prompt_name) if modality == "text" else None
    _, constants = _features(model, _PROBES[0] if modality == "text" else pattern(0), prompt)

    def call(model: Any, tensors: dict[str, Any]) -> Any:
        return model({**tensors, **constants})["sentence_embedding"]

    frozen = FrozenModel(torch, model, call, device, precision)
    described = {
        "library": "sentence-transformers",
        "pooling": " > ".join(type(module).__name__ for module in model),
        "versions": f"sentence-transformers {library.__version__}, torch {torch.__version__}",
    }
    network: Network
    if modality == "text":
        network = _texts(frozen, folder, model, prompt, described)
    else:
        if set(_features(model, pattern(0), None)[0]) != {"pixel_values"}:
            raise ParameterError(f"{folder.name} takes more than the pixels of an image; dppl cannot batch its inputs.")
        processor = getattr(model.processor, "image_processor", model.processor)

        def pixels(image: Any) -> Any:
            return _features(model, image, None)[0]["pixel_values"]

        network = image_network(frozen, folder, processor, pixels, _places(folder), **described)
    poolers = frozen.poolers(network.probe)
    description = digest(contents(folder, _configurations(folder, model)))
    network.weights = frozen.weights(description, poolers)
    if any(poolers.values()):  # with weights from the files, or at a random start, another one each time
        again = FrozenModel(torch, _model(torch, library, folder), call, device, precision)
        if again.weights(description, poolers) != network.weights:
            raise InputError(f"{folder} holds no weights for a pooler that its embeddings depend on.")
    return network


def _model(torch: Any, library: Any, folder: Path) -> Any:
    with loading(str(folder), "text"):
        return library.SentenceTransformer(
            str(folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": torch.float32},
        )


def _places(folder: Path) -> list[str]:
    """Return the folders that the model's files may lie in: its own, and those of its modules with all in them."""
    if not (folder / "modules.json").is_file():
        raise InputError(f"{folder} must hold modules.json, as models of sentence-transformers do; hf: loads others.")
    modules = [module["path"] for module in _read(folder / "modules.json")]
    for router in ("router_config.json", "config.json"):  # in the model's own folder it keeps its modules beside it
        modules += _read(folder / router).get("types", ()) if (folder / router).is_file() else ()
    found = [""]
    for place in filter(None, modules):
        below = sorted(path for path in (folder / place).rglob("*") if path.is_dir())
        found += [place, *(path.relative_to(folder).as_posix() for path in below)]
    return list(dict.fromkeys(found))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _configurations(folder: Path, model: Any) -> Iterator[str]:
    """Name the files that say what the modules do, in order.

    In the model's own folder they are known by name, for a copy from the hub may hold others.
    """
    yield "modules.json"
    own = ["config.json", "router_config.json", *sorted(path.name for path in folder.glob("sentence_*_config.json"))]
    preparing = {*IMAGE_FILES, *tokenizer_files(getattr(model, "tokenizer", None))}
    for place in _places(folder):
        names = sorted({path.name for path in (folder / place).glob("*.json")} - preparing) if place else own
        yield from (str(Path(place) / name) for name in names)


def _features(model: Any, item: Any, prompt: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays that the model's own preprocessing makes of one item, and what is the same for all items."""
    features = model.preprocess([item], prompt=prompt)
    arrays = {name: value[0].numpy() for name, value in features.items() if getattr(value, "ndim", 0) > 1}
    return arrays, {name: value for name, value in features.items() if name not in arrays}


def _texts(frozen: FrozenModel, folder: Path, model: Any, prompt: str | None, described: dict[str, str]) -> TextNetwork:
    tokenizer = model.tokenizer
    limit = int(model.max_seq_length or tokenizer.model_max_length)
    prepare = _preparation(model, prompt, limit)
    if not {"input_ids", "attention_mask"} <= set(_features(model, _PROBES[0], prompt)[0]):
        raise ParameterError(f"{folder.name} does not turn a text into rows of tokens; dppl cannot batch its inputs.")
    cut = f"at most {limit}, prompt {prompt!r}"
    return text_network(frozen, folder, tokenizer, model, prepare, limit, cut, _places(folder), **described)


def _preparation(model: Any, prompt: str | None, limit: int) -> Callable[[str], Tokens]:
    """Return a model's tokenizer or, if that alone makes other tokens, its own preprocessing of a text.

    That of a model of more than texts opens files and addresses that a text names, and is refused.
    """

    def own(text: str) -> Tokens:
        arrays, _ = _features(model, text, prompt)
        return {name: row for name, row in arrays.items() if name != "attention_mask"}

    def direct(text: str) -> Tokens:
        return tokenise(model.tokenizer, (prompt or "") + text, limit)

    if all(_same(own(text), direct(text)) for text in _PROBES):
        return direct
    if set(model.modalities) - {"text", "message"}:
        raise ParameterError(
            "the model takes more than texts, and its own preprocessing, which differs from its tokenizer, would open "
            "files and addresses that a text names; dppl refuses such a model."
        )
    return own


def _same(one: Tokens, other: Tokens) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
