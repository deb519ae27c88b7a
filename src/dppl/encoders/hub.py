"""Files of models on this machine: a local folder, or the cache of the Hugging Face hub. Nothing is downloaded."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dppl._utils.optional import optional
from dppl.errors import InputError

IMAGE_FILES = ("preprocessor_config.json", "processor_config.json")
_TOKENIZER_FILES = {
    *(
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.txt",
    ),
    *(
        "vocab.json",
        "merges.txt",
        "tokenizer.model",
        "spiece.model",
        "sentencepiece.bpe.model",
    ),
}


def model_folder(name: str, revision: str | None, extra: str) -> Path:
    """Return the local folder of a model; where there is none, the message says how to get it."""
    if Path(name).is_dir():
        return Path(name)
    hub = optional("huggingface_hub", "huggingface-hub", extra)
    try:
        return Path(
            hub.snapshot_download(name, revision=revision, local_files_only=True)
        )
    except (OSError, ValueError):  # not in the cache, or not a name on the hub
        cache = hub.constants.HF_HUB_CACHE
        version = ""
        if revision is not None:
            version = f" --revision {revision}"
        raise InputError(
            f"the model {name} is not on this machine, and dppl downloads nothing. `hf download {name}{version}` puts "
            f"it into {cache} (HF_HOME names another place); or give the path of a local folder in place of the name."
        ) from None


def files_digest(folder: Path, names: Iterable[str]) -> str | None:
    """Return the SHA-256 of names and contents of the files that exist; None if there are none."""
    whole = hashlib.sha256()
    there = [name for name in names if (folder / name).is_file()]
    for name in there:
        for part in (name.encode(), (folder / name).read_bytes()):
            whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest() if there else None


def preprocessing_digest(folder: Path, tokenizer: Any = None) -> str:
    """Return the SHA-256 of the files that decide how inputs are prepared: of a tokenizer, or of images.

    Without such files nothing would distinguish this preprocessing from others, so that
    is refused.
    """
    own = {
        name
        for name in getattr(tokenizer, "vocab_files_names", {}).values()
        if isinstance(name, str)
    }
    digest = files_digest(
        folder, IMAGE_FILES if tokenizer is None else sorted(_TOKENIZER_FILES | own)
    )
    if digest is None:
        raise InputError(
            f"{folder} holds no file that says how inputs are prepared, such as tokenizer.json."
        )
    return digest


@contextmanager
def loading(what: str, extra: str) -> Iterator[None]:
    """Keep transformers silent, and turn what it raises into an `InputError`."""
    logging = optional("transformers.utils.logging", "transformers", extra)
    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(
            f"{what} holds no model that can be loaded: {str(error).splitlines()[0]}"
        ) from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
