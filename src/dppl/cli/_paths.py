"""Paths that a command reads and writes: what is wrong with them is said before any work is done."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dppl._fingerprint import in_short, same_encoder
from dppl._metadata import check_encoder, encoder_of
from dppl.cli._options import FLAGS
from dppl.cli._output import note
from dppl.data import EmbeddingTable, PartedTable, read_ids, read_table
from dppl.data._places import is_url, shown_as
from dppl.embedding import Source, open_source
from dppl.errors import InputError, ParameterError
from dppl.finetune.model_file import is_finetuned
from dppl.finetune.workflow import Finetuned

if TYPE_CHECKING:
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


def ids_of_persons(table: Path, person: str, *, y: str, labels: Path | None) -> NDArray[Any]:
    """Read whose each record of a table is; labels as ids would make all records of a class one person."""
    if person == (y if labels is None else str(labels)):
        raise InputError(f"must name ids of persons; {person!r} holds the labels; name another.", parameter="groups")
    return read_ids(table, person)


def check_table(path: Path) -> None:
    """Refuse files of raw texts where embeddings are wanted."""
    if path.suffix.lower() in _RAW and path.is_file():
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty; write it again, or name another.")
        raise InputError(
            f"{path} is not a table of embeddings; if it holds raw records, train on them with dppl train {path} "
            f"--encoder URI, or embed them first: dppl embed {path} --encoder URI --out FOLDER."
        )


def opened_source(data: Path, **how: Any) -> Source:
    """Open a source as `open_source` does, and say how it is read if that was found out and is unusual."""
    source = open_source(data, **how)
    if source.note is not None:
        note(f"{source.note}; --encoding and --delimiter name others.")
    return source


def check_line(data: Path, classes: Path, **given: Any) -> str:
    """Return the command that shows the owner which records a fit leaves out, with the options that were `given`."""
    named = [str(part) for name, value in given.items() if value is not None for part in (FLAGS[name], value)]
    return shlex.join(["dppl", "check", str(data), "--classes", str(classes), *named])


def overlaps(path: Path, others: Sequence[Path | None]) -> bool:
    """Tell whether a path or URL is, holds or lies in another."""
    one = Path(shown_as(path)).resolve()
    rest = [Path(shown_as(other)).resolve() for other in others if other is not None]
    return any(one == other or one in other.parents or other in one.parents or _same(one, other) for other in rest)


def refuse_private(public: Path | None, private: Sequence[Path | None], option: str) -> None:
    """Refuse as public a path that is one of private data, holds it or lies in it."""
    if public is not None and overlaps(public, private):
        raise ParameterError(
            f"{option} must be public data; got private data, labels or embeddings, or a part of them."
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


def check_same_encoder(public: EmbeddingTable, path: Path, private: EmbeddingTable | PartedTable, table: Path) -> None:
    """Refuse public embeddings of another encoder than the private ones; names and widths of both are public."""
    made_by = {where: encoder_of(rows) for where, rows in ((path, public), (table, private))}
    ours, theirs = made_by[table], made_by[path]
    differ = ours is not None and theirs is not None and not same_encoder(ours, theirs)
    if differ or _width(public) != _width(private):
        described = [
            f"{where} has {_width(rows)} features{_by(made_by[where])}"
            for where, rows in ((path, public), (table, private))
        ]
        raise InputError(f"{', but '.join(described)}; embed both with the same encoder.")


def _width(table: EmbeddingTable | PartedTable) -> int:
    return table.n_features if isinstance(table, PartedTable) else table.shape[1]


def _by(encoder: str | None) -> str:
    """Say an encoder in a few words, if a table names one."""
    return "" if encoder is None else f" by {in_short(encoder).partition(' (')[0]}"


def required_classes(classes: Path | None) -> Path:
    """Refuse to read the list of classes off the labels."""
    if classes is None:
        raise ParameterError(
            "--classes FILE is required. The list of classes is released with the model, so it must be public, and "
            "taking it from the labels would reveal which ones occur. Write every possible class into a text file, "
            "one per line, for instance classes.txt."
        )
    return classes
