"""Paths that a command reads and writes: what is wrong with them is said before any work is done."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dppl import io
from dppl.cli._output import note
from dppl.errors import InputError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dppl.cli._groups import Items, Labelled
    from dppl.estimators import EmbeddingClassifier
    from dppl.finetune.workflow import Finetuned

# How files of raw records end that `dppl embed` reads and that are not tables.
_RAW = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")


def check_output(path: Path, inputs: Sequence[Path | None], *, force: bool) -> None:
    """Refuse, before any work, an output path that cannot be written, is an input, or exists (unless `force`)."""
    if not path.parent.is_dir():
        raise ParameterError(f"--out must lie in an existing folder; {path.parent} is not one; create it first.")
    if path.is_dir():
        raise ParameterError(f"--out must name a file; {path} is a folder.")
    if path.exists() and any(source and source.exists() and path.samefile(source) for source in inputs):
        raise ParameterError(f"--out must not be a file that is read; {path} is; choose another name.")
    if path.exists() and not path.is_file():
        raise ParameterError(f"--out must name a file; {path} is a device or a pipe.")
    if os.path.lexists(path) and not force:
        raise ParameterError(f"--out must name a new file; {path} exists; choose another name, or add --force.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path.parent} cannot be written to.")


def check_inputs(*paths: Path | None, tables: bool = False) -> None:
    """Refuse a path that does not exist, or raw texts in place of tables; whoever reads a URL says that of it."""
    from dppl.io._places import is_url

    for path in paths:
        if path is None or is_url(path):
            continue
        if not path.exists():
            raise FileNotFoundError(f"there is no file or folder {path}.")
        if not tables or path.suffix.lower() not in _RAW or not path.is_file():
            continue
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty; write it again, or name another.")
        raise InputError(
            f"{path} is not a table of embeddings; if it holds raw records, train on them with dppl train {path} "
            f"--encoder URI, or embed them first: dppl embed {path} --encoder URI --out FOLDER."
        )


def overlaps(path: Path, others: Sequence[Path | None]) -> bool:
    """Return whether a path or URL is, holds or lies in another."""
    from dppl.io._places import shown_as

    one = Path(shown_as(path)).resolve()
    for other in (Path(shown_as(other)).resolve() for other in others if other is not None):
        if one == other or one in other.parents or other in one.parents:
            return True
        if one.exists() and other.exists() and one.samefile(other):  # two names of one file
            return True
    return False


def refuse_private(public: Path | None, private: Sequence[Path | None], parameter: str) -> None:
    """Refuse as public a path that is one of private data, holds it or lies in it."""
    if public is not None and overlaps(public, private):
        raise ParameterError(
            "must be public data; got private data, labels or embeddings, or a part of them.", parameter=parameter
        )


def read_public_list(classes: Path | None) -> NDArray[Any]:
    """Read the list of classes; it is required, because labels are private."""
    if classes is None:
        raise ParameterError(
            "--classes FILE is required. The list of classes is released with the model, so it must be public, and "
            "taking it from the labels would reveal which ones occur. Write every possible class into a text file, "
            "one per line, for instance classes.txt."
        )
    check_inputs(classes)
    return io.read_classes(classes)


def opened_source(data: Path, items: Items, columns: io.Columns, labels: Path | None) -> io.Source:
    """Open a source as options say."""
    how = {name: value for name, value in items.how().items() if name != "id"}
    return io.open_source(data, columns=columns, labels=labels, **how)


def opened_labelled(data: Path, items: Labelled, groups: str | None = None) -> io.Source:
    """Open a source that must have labels."""
    source = opened_source(data, items, items.columns(groups), items.labels)
    if source.label_type is None:
        raise ParameterError(f"{data} has no labels; {how_to_label(source)}.")
    return source


def how_to_label(records: io.Source) -> str:
    """Say where labels of this kind of source come from."""
    kind = records.parameters["kind"]
    if kind == "images":
        return "sort the images into a folder for each class, or name a CSV file with --labels"
    return "name a file with one label per line with --labels" if kind == "text" else "name their column with --y"


def check_line(data: Path, classes: Path | None, items: Labelled, groups: str | None = None) -> str:
    """Return the command that shows the owner which records a fit leaves out, with the options that were typed."""
    persons = [] if groups is None else ["--groups", groups]
    return shlex.join(["dppl", "check", str(data), "--classes", str(classes), *items.typed(), *persons])


def ids_of_persons(table: Path, groups: str | None, *, y: str, labels: Path | None) -> Any:
    """Read whose each record of a table is; labels as ids would make all records of a class one person."""
    if groups is not None and groups == (y if labels is None else str(labels)):
        raise InputError(f"must name ids of persons; {groups!r} holds the labels; name another.", parameter="groups")
    return None if groups is None else io.read_ids(table, groups)


def require_labels(table: io.EmbeddingTable | io.PartedTable, path: Path) -> Any:
    """Return the labels of a table; None of one in parts, where they stay."""
    labels = getattr(table, "y", None)
    if labels is None and not getattr(table, "labelled", False):
        raise InputError(f"{path} has no labels; name their array or column with --y, or their file with --labels.")
    return labels


def opened(path: Path) -> EmbeddingClassifier | Finetuned:
    """Read a model file of either form."""
    from dppl.estimators import load
    from dppl.finetune.model_file import is_finetuned
    from dppl.finetune.workflow import Finetuned

    return Finetuned(path) if is_finetuned(path) else load(path)


def read_rows_for(
    model: EmbeddingClassifier, path: Path, *, x: str, y: str | None = None, labels: Path | None = None
) -> io.EmbeddingTable:
    """Read a table whose rows are as wide as those that `model` was fitted on."""
    from dppl._metadata import ENCODER, check_encoder, stated

    check_inputs(path, labels)
    table = io.read_table(path, x=x, y=y, labels=labels)
    if table.shape[1] != model.n_features_in_:
        raise InputError(
            f"{path} has {table.shape[1]} features, but the model expects {model.n_features_in_}; embed the records "
            "with the encoder that the model was fitted on."
        )
    check_encoder(table, model.encoder_, str(path))
    if model.encoder_ is not None and stated(table, ENCODER) is None:
        note(f"{path} does not name its encoder, so it was not compared with the model's.")
    return table
