"""Public examples of the classes that are texts or images: what the classes are called, descriptions, or pictures."""

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dppl.encoders import Encoder
from dppl.errors import InputError, ParameterError
from dppl.io import EmbeddingTable, Source, open_source
from dppl.io.records.labels import converting
from dppl.io.records.record import Record
from dppl.io.tables.shards import Window
from dppl.io.tables.writing import Rows
from dppl.kernel.reading import class_codes, public_classes
from dppl.methods import EmbeddingClassifier
from dppl.statement import words
from dppl.training.embedding import embed_windows, table_metadata

_HOW = "must be 'auto', 'names', None, a mapping from classes to one text or several, or a Path"
_SHOWN = 5  # names that a message lists


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
            yield Record(
                str(place),
                f"the description {text!r} of {label!r}",
                label,
                partial(str, text),
                None,
            )


def words_of(name: object) -> str:
    """Return what a class is called, as words: underscores and hyphens become spaces, question marks are dropped.

    >>> words_of("reverted_card_payment?")
    'reverted card payment'
    """
    return " ".join(re.sub(r"[_-]", " ", str(name)).replace("?", "").split())


def are_words(classes: Iterable[object]) -> bool:
    """Return whether each class has a separate name in words, and not only a number or a code.

    A word has two letters or more and no digit. Names that differ in numbers or codes
    alone do not count.

    >>> are_words(["card_arrival", "lost-card"]), are_words(["class 1", "class 2"]), are_words(["C50", "C51"])
    (True, False, False)
    """
    names = []
    for name in classes:
        words = [
            word for word in words_of(name).split() if not any(map(str.isdigit, word))
        ]
        names.append(tuple(word for word in words if sum(map(str.isalpha, word)) > 1))
    return all(names) and len(set(names)) == len(names)


def names_by_default(estimator: EmbeddingClassifier, encoder: Encoder) -> Source | None:
    """Return the names of the classes, if texts are embedded, all are words and the estimator starts from examples."""
    if (
        encoder.modality != "text"
        or estimator.start is not None
        or not estimator.starts_from_examples
        or not are_words(public_classes(estimator.classes))
    ):
        return None
    return described("names", estimator)


def described(given: Any, estimator: EmbeddingClassifier) -> Source | None:
    """Return the public examples of the classes that a fit is to start from, not embedded yet; None for no examples."""
    if given is None:
        return None
    if not estimator.starts_from_examples:
        raise ParameterError(
            f"has no effect with {type(estimator).__name__}; use the method softmax, or leave it out.",
            parameter="descriptions",
        )
    classes = public_classes(estimator.classes)  # refuses what is no list
    source: Source
    if isinstance(given, str) and given == "names":
        source = Descriptions(
            [(name, words_of(name)) for name in np.asarray(estimator.classes).tolist()]
        )
    elif isinstance(given, os.PathLike):
        source = _read(Path(given))
    elif isinstance(given, Mapping):
        source = _flattened(given)
    else:
        raise ParameterError(f"{_HOW}; got {given!r}.", parameter="descriptions")
    # A class without a description starts as it would without examples, so some classes
    # may have none.
    labels = np.array([*(record.label for record in source), None], object)[
        :-1
    ]  # with the None all stay as they are
    if not len(labels):
        raise InputError(
            "must describe at least one class; got no description.",
            parameter="descriptions",
        )
    # Descriptions and the class list are public, so the message names what is no class.
    unknown = sorted(set(map(str, labels[class_codes(labels, classes, "ignore") < 0])))
    if unknown:
        more = ""
        if len(unknown) > _SHOWN:
            more = f" and {len(unknown) - _SHOWN} more"
        shown = ", ".join(map(repr, unknown[:_SHOWN])) + more
        raise InputError(
            f"must describe classes of the list only; it has no {shown}.",
            parameter="descriptions",
        )
    return source


def _flattened(given: Mapping[Any, Any]) -> Descriptions:
    """Return descriptions, of which a class may have none, one or several."""
    texts = []
    for name, value in given.items():
        single = isinstance(value, str) or not hasattr(value, "__iter__")
        if value is None:
            several = []
        elif single:
            several = [value]
        else:
            several = list(value)
        if not all(isinstance(text, str) for text in several):
            raise ParameterError(
                f"{_HOW}; {name!r} has another type.", parameter="descriptions"
            )
        texts += [(name, text) for text in several]
    return Descriptions(texts)


def _read(path: Path) -> Source:
    """Open a CSV file of descriptions, or a folder of labelled images."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}.")
    if path.is_dir():
        images = open_source(path)
        if images.label_type is None:
            raise InputError(
                f"{path} must hold a subfolder of images for each class it describes; there is none."
            )
        return images
    form = f"{path} must be a CSV file in UTF-8 with the columns class and text"
    with converting(form), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        names = reader.fieldnames or ()
        rows = list(reader)
    # A row that is too long has the key None, and one that is too short that value.
    if not {"class", "text"} <= set(names) or any(
        None in (*row, *row.values()) for row in rows
    ):
        raise InputError(
            f"{form}; name them in its first line, and put quotes around a text with commas."
        )
    return Descriptions([(row["class"].strip(), row["text"]) for row in rows])


def embed_examples(
    source: Source,
    encoder: Encoder,
    *,
    rows: Rows,
    progress: Callable[[int], object] | None = None,
) -> EmbeddingTable:
    """Return the embeddings of public examples, with their classes and, of texts, the texts themselves."""
    tower: Encoder | None = encoder
    if source.modality != encoder.modality:
        # Of images, what embeds texts as it does: the other tower of a model such as
        # CLIP.
        tower = None
        if hasattr(encoder, "text_tower"):
            tower = encoder.text_tower()
    if tower is None:
        if encoder.modality == "text":
            wanted = "texts"
        else:
            wanted = "a folder with a subfolder of example images for each class"
        raise ParameterError(
            f"must be {wanted}, since {encoder.fingerprint.uri} embeds {encoder.modality}s only.",
            parameter="descriptions",
        )
    # Examples are few, so they are held in memory and not in a folder.
    whole = Window()
    for window in embed_windows(source, tower, rows=rows, progress=progress):
        whole.extend(window)
    if whole.skipped:
        first = whole.skipped[0]
        # It is public, so the message names it.
        raise InputError(
            f"must all be usable; {first.reference}: {words.text(first.reason)}.",
            parameter="descriptions",
        )
    labels = np.array([*whole.labels, None], object)[:-1]
    texts = None
    if isinstance(source, Descriptions):
        texts = [text for _, text in source.texts]
    return EmbeddingTable.of(
        np.stack(whole.rows), labels, metadata=table_metadata(encoder), texts=texts
    )
