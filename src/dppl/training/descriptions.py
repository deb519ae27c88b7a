"""Public examples of the classes that are texts or images: what the classes are called, descriptions, or pictures."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dppl.encoders import Encoder
from dppl.errors import InputError, ParameterError
from dppl.io import EmbeddingTable, Source, open_source
from dppl.io.pipeline import embed_windows, table_metadata
from dppl.io.records import Record
from dppl.io.shards import Window
from dppl.io.writing import Rows
from dppl.kernel.reading import class_codes, public_classes

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier

__all__ = ["are_words", "described", "embed_examples", "names_by_default", "takes_examples", "words_of"]

_COLUMNS = ("class", "text")
_HOW = (
    "must be 'auto', 'names', None, a mapping from classes to texts, a sequence with the text or texts of each class, "
    "or a Path"
)


@dataclass
class Descriptions(Source):
    """Public texts in memory, each with its class, in the order of the class list."""

    texts: Sequence[tuple[Any, Any]]

    modality = "text"

    def __post_init__(self) -> None:
        self.label_type = pa.string()
        self.parameters: dict[str, Any] = {"kind": "descriptions"}

    def __iter__(self) -> Iterator[Record]:
        for place, (label, text) in enumerate(self.texts):
            yield Record(str(place), f"the description {text!r} of {label!r}", label, partial(str, text), None)


def words_of(name: object) -> str:
    """Return what a class is called, as words: underscores and hyphens become spaces, question marks are dropped.

    >>> words_of("reverted_card_payment?")
    'reverted card payment'
    """
    return " ".join(re.sub(r"[_-]", " ", str(name)).replace("?", "").split())


def are_words(classes: Iterable[object]) -> bool:
    """Tell whether each class has a name of its own in words, and not only a number or a code.

    Only the public class list decides.

    A word has two letters or more and no digit. Names that differ in numbers or codes alone are none of their own.

    >>> are_words(["card_arrival", "lost-card"]), are_words(["class 1", "class 2"]), are_words(["C50", "C51"])
    (True, False, False)
    """
    names = [tuple(word for word in words_of(name).split() if _is_word(word)) for name in classes]
    return all(names) and len(set(names)) == len(names)


def _is_word(text: str) -> bool:
    return sum(map(str.isalpha, text)) > 1 and not any(map(str.isdigit, text))


def takes_examples(estimator: EmbeddingClassifier) -> bool:
    """Tell whether the fit of an estimator may start from public examples of the classes."""
    return type(estimator).starts_from_examples


def described(given: Any, estimator: EmbeddingClassifier) -> Source | None:
    """Return the public examples of the classes that a fit is to start from, not embedded yet.

    None stands for no examples; where `PrivateClassifier` says "auto", `names_by_default` decides.
    """
    if given is None:
        return None
    if not takes_examples(estimator):
        raise ParameterError(
            f"has no effect with {type(estimator).__name__}, which starts from no examples of the classes; use the "
            "method softmax, or leave it out.",
            parameter="descriptions",
        )
    source = _source(given, _list_of(estimator))
    if next(iter(source), None) is None:
        raise InputError("must describe at least one class; got no description.", parameter="descriptions")
    return source


def names_by_default(estimator: EmbeddingClassifier, encoder: Encoder) -> Source | None:
    """Return the names of the classes, if the encoder is for texts, all are words and the estimator takes examples."""
    if encoder.modality != "text" or not takes_examples(estimator):
        return None
    classes = _list_of(estimator)
    return _names(classes) if are_words(classes) else None


def _list_of(estimator: EmbeddingClassifier) -> list[Any]:
    """Return the class list in the order in which it was given."""
    public_classes(estimator.classes)  # which refuses what is none
    return list(np.asarray(estimator.classes).tolist())


def _source(given: Any, classes: list[Any]) -> Source:
    if isinstance(given, str) and given == "names":
        return _names(classes)
    if isinstance(given, os.PathLike):
        return _read(Path(given), classes)
    if isinstance(given, str | bytes) or not hasattr(given, "__getitem__"):
        raise ParameterError(f"{_HOW}; got {given!r}.", parameter="descriptions")
    if isinstance(given, Mapping):
        _refuse_unknown(given, classes, "descriptions")
        return Descriptions([(name, text) for name, texts in given.items() for text in _several(texts)])
    if len(given) != len(classes):
        raise ParameterError(
            f"must have an entry for each of the {len(classes)} classes, in their order; got {len(given)}.",
            parameter="descriptions",
        )
    return Descriptions([(name, text) for name, texts in zip(classes, given, strict=True) for text in _several(texts)])


def _names(classes: Iterable[Any]) -> Source:
    return Descriptions([(name, words_of(name)) for name in classes])


def _several(texts: Any) -> list[Any]:
    if texts is None:
        return []
    several = [texts] if isinstance(texts, str) else list(texts) if hasattr(texts, "__iter__") else [texts]
    if not all(isinstance(text, str) for text in several):
        raise ParameterError(
            f"{_HOW}; got a {type(texts).__name__} where a text or several belong.", parameter="descriptions"
        )
    return several


def _read(path: Path, classes: list[Any]) -> Source:
    """Open a CSV file of descriptions, or a folder of labelled records."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}.")
    if path.is_file() and path.suffix.lower() == ".csv":
        entries = list(_lines(path))
        _refuse_unknown([name for name, _ in entries], classes, str(path))
        return Descriptions(entries)
    if not path.is_dir():
        raise ParameterError(
            f"must be a CSV file with the columns class and text, or a folder with a subfolder of images for each "
            f"class; got {path}.",
            parameter="descriptions",
        )
    source = open_source(path)
    if source.label_type is None or source.modality == "embedding":
        raise InputError(
            f"{path} must hold a subfolder of images for each class it describes; "
            + ("it holds embeddings." if source.modality == "embedding" else "there is no subfolder.")
        )
    _refuse_unknown([record.label for record in source], classes, str(path))
    return source


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the class and the text of each line of a CSV file; it is public, so that errors may quote it."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file, strict=True)
            header = next(rows, [])
            if not header:
                raise InputError(f"{path} is empty; its first line must name the columns class and text.")
            if not set(_COLUMNS) <= set(header):
                raise InputError(
                    f"{path} must have the columns class and text, with a comma between; its first line is "
                    f"{','.join(header)!r}."
                )
            for row in rows:
                if row and len(row) != len(header):
                    raise InputError(
                        f"{path} must have {len(header)} fields in each line; line {rows.line_num} has {len(row)}; put "
                        "quotes around a text with commas."
                    )
                if row:
                    yield row[header.index("class")].strip(), row[header.index("text")]
    except UnicodeDecodeError:
        raise InputError(f"{path} must be a UTF-8 text file; save it again as UTF-8.") from None
    except csv.Error as error:
        raise InputError(f"{path} must be a CSV file; line {rows.line_num}: {error}.") from None


def _refuse_unknown(names: Iterable[Any], classes: list[Any], where: str) -> None:
    """Refuse what is no class, by name, since descriptions and the class list are public."""
    labels = np.array([*names, None], object)[:-1]  # with the None NumPy keeps every label as it is
    codes = class_codes(labels, public_classes(classes), "ignore")
    unknown = sorted({str(name) for name, code in zip(labels.tolist(), codes.tolist(), strict=True) if code < 0})
    if unknown:
        shown = ", ".join(map(repr, unknown[:5])) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        raise InputError(f"{where} must describe classes of the list only; not in the list: {shown}.")


def _tower(source: Source, encoder: Encoder) -> Encoder:
    """Return what embeds examples: the encoder, or for descriptions of images its part for texts."""
    if source.modality == encoder.modality:
        return encoder
    if source.modality == "image":
        raise ParameterError(
            f"must be texts, since {encoder.fingerprint.uri} is for texts; got images.", parameter="descriptions"
        )
    tower: Encoder | None = encoder.text_tower() if hasattr(encoder, "text_tower") else None
    if tower is None:
        raise ParameterError(
            "must be a folder with a subfolder of example images for each class, since "
            f"{encoder.fingerprint.uri} embeds images only. Texts need an encoder with two towers, such as CLIP.",
            parameter="descriptions",
        )
    return tower


def embed_examples(
    source: Source,
    encoder: Encoder,
    *,
    rows: Rows,
    progress: Callable[[int], object] | None = None,
) -> EmbeddingTable:
    """Return the embeddings of public examples, with their classes and, of texts, the texts themselves.

    An example that cannot be used is public, so the message names it.
    """
    whole = Window()
    for window in embed_windows(source, _tower(source, encoder), rows=rows, progress=progress):
        whole.extend(window)
    if whole.skipped:
        first = whole.skipped[0]
        raise InputError(
            f"descriptions of classes must all be usable; not so {first.reference}: {first.reason}. Mend it, or leave "
            "it out."
        )
    table = np.stack(whole.rows) if whole.rows else np.empty((0, encoder.dimension), rows)
    labels = np.array([*whole.labels, None], object)[:-1]
    texts = [text for _, text in source.texts] if isinstance(source, Descriptions) else None
    return EmbeddingTable.of(table, labels, metadata=table_metadata(encoder), texts=texts)
