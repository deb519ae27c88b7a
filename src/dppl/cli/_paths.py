"""Paths that a command reads and writes: what is wrong with them is said before any work is done."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dppl._metadata import check_encoder, encoder_of
from dppl.cli._output import note
from dppl.errors import InputError, ParameterError
from dppl.finetune.model_file import is_finetuned
from dppl.finetune.workflow import Finetuned
from dppl.io import (
    Columns,
    EmbeddingTable,
    PartedTable,
    Source,
    holds_embeddings,
    open_source,
    read_classes,
    read_ids,
    read_table,
)
from dppl.io._places import is_url, shown_as

if TYPE_CHECKING:
    from dppl.cli._groups import Items, Labelled
    from dppl.estimators import EmbeddingClassifier

# How files of raw records end that `dppl embed` reads and that are not tables.
_RAW = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")


def check_output(path: Path, inputs: Sequence[Path | None], *, force: bool, option: str = "--out") -> None:
    """Refuse, before any work, an output path that cannot be written, is an input, or exists (unless `force`)."""
    if not path.parent.is_dir():
        raise ParameterError(f"{option} must lie in an existing folder; {path.parent} is not one; create it first.")
    if path.is_dir():
        raise ParameterError(f"{option} must name a file; {path} is a folder.")
    if path.exists() and any(source and source.exists() and path.samefile(source) for source in inputs):
        raise ParameterError(f"{option} must not be a file that is read; {path} is; choose another name.")
    if path.exists() and not path.is_file():
        raise ParameterError(f"{option} must name a file; {path} is a device or a pipe.")
    if os.path.lexists(path) and not force:
        raise ParameterError(f"{option} must name a new file; {path} exists; choose another name, or add --force.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path.parent} cannot be written to.")


def check_inputs(*paths: Path | None) -> None:
    """Refuse a path that does not exist; whoever reads a URL says that of it."""
    for path in paths:
        if path is not None and not is_url(path) and not path.exists():
            raise FileNotFoundError(f"there is no file or folder {path}.")


def ids_of_persons(table: Path, groups: str | None, *, y: str, labels: Path | None) -> Any:
    """Read whose each record of a table is; labels as ids would make all records of a class one person."""
    if groups is not None and groups == (y if labels is None else str(labels)):
        raise InputError(f"must name ids of persons; {groups!r} holds the labels; name another.", parameter="groups")
    return None if groups is None else read_ids(table, groups)


def check_table(path: Path | None) -> None:
    """Refuse a file of raw texts in the place of embeddings."""
    if path is not None and path.suffix.lower() in _RAW and path.is_file():
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty; write it again, or name another.")
        raise InputError(
            f"{path} is not a table of embeddings; if it holds raw records, train on them with dppl train {path} "
            f"--encoder URI, or embed them first: dppl embed {path} --encoder URI --out FOLDER."
        )


def opened_source(data: Path, items: Items, columns: Columns, labels: Path | None) -> Source:
    """Open a source as options say."""
    how = {name: value for name, value in items.how().items() if name != "id"}
    return open_source(data, columns=columns, labels=labels, **how)


def opened_pool(public: Path, items: Items) -> Source:
    """Open the images or texts among which a model of public rows selected."""
    how = items.how()
    if "kind" not in how and holds_embeddings(public):
        raise ParameterError(f"--public must be the images or texts themselves; {public} holds embeddings of them.")
    return opened_source(public, items, Columns(items.x, id=how.get("id")), None)


def how_to_label(records: Source) -> str:
    """Say where labels of this kind of source come from."""
    kind = records.parameters["kind"]
    if kind == "images":
        return "sort the images into a folder for each class, or name a CSV file with --labels"
    return "name a file with one label per line with --labels" if kind == "text" else "name their column with --y"


def check_line(data: Path, classes: Path, items: Labelled, groups: str | None = None) -> str:
    """Return the command that shows the owner which records a fit leaves out, with the options that were typed."""
    persons = [] if groups is None else ["--groups", groups]
    return shlex.join(["dppl", "check", str(data), "--classes", str(classes), *items.typed(), *persons])


def overlaps(path: Path, others: Sequence[Path | None]) -> bool:
    """Tell whether a path or URL is, holds or lies in another."""
    one = Path(shown_as(path)).resolve()
    rest = [Path(shown_as(other)).resolve() for other in others if other is not None]
    return any(one == other or one in other.parents or other in one.parents or _same(one, other) for other in rest)


def refuse_private(public: Path | None, private: Sequence[Path | None], parameter: str) -> None:
    """Refuse as public a path that is one of private data, holds it or lies in it."""
    if public is not None and overlaps(public, private):
        raise ParameterError(
            "must be public data; got private data, labels or embeddings, or a part of them.",
            parameter=parameter.removeprefix("--"),
        )


def _same(one: Path, other: Path) -> bool:
    """Tell whether two paths are names of one file."""
    return one.exists() and other.exists() and one.samefile(other)


def require_labels(table: EmbeddingTable | PartedTable, path: Path) -> Any:
    """Return the labels of a table; None of one in parts, where they stay."""
    labels = None if isinstance(table, PartedTable) else table.y
    if labels is None and not (isinstance(table, PartedTable) and table.labelled):
        raise InputError(f"{path} has no labels; name their array or column with --y, or their file with --labels.")
    return labels


def opened(path: Path) -> EmbeddingClassifier | Finetuned:
    """Read a model file of either form."""
    from dppl.estimators import load  # here, because the help of a command needs no scikit-learn

    return Finetuned(path) if is_finetuned(path) else load(path)


def read_rows_for(
    model: EmbeddingClassifier, path: Path, *, x: str, y: str | None = None, labels: Path | None = None
) -> EmbeddingTable:
    """Read a table whose rows are as wide as those that `model` was fitted on."""
    check_inputs(path, labels)
    table = read_table(path, x=x, y=y, labels=labels)
    if table.shape[1] != model.n_features_in_:
        raise InputError(
            f"{path} has {table.shape[1]} features, but the model expects {model.n_features_in_}; embed the records "
            "with the encoder that the model was fitted on."
        )
    check_encoder(table, model.encoder_, str(path))
    if model.encoder_ is not None and encoder_of(table) is None:
        note(f"{path} does not name its encoder, so it was not compared with the model's.")
    return table


def read_public_list(classes: Path | None) -> NDArray[Any]:
    """Read the list of classes; none is refused, because labels are private."""
    check_inputs(classes)
    return read_classes(required_classes(classes))


def required_classes(classes: Path | None) -> Path:
    """Refuse to read the list of classes off the labels."""
    if classes is None:
        raise ParameterError(
            "--classes FILE is required. The list of classes is released with the model, so it must be public, and "
            "taking it from the labels would reveal which ones occur. Write every possible class into a text file, "
            "one per line, for instance classes.txt."
        )
    return classes
