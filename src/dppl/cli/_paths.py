"""What a command reads and writes: what is wrong with a path is said before any work is done."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dppl import io
from dppl.cli._output import note
from dppl.errors import InputError, ParameterError

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier
    from dppl.finetune.workflow import Finetuned


def check_output(
    out: Path, inputs: Iterable[Path | None], *, force: bool | None = None, parameter: str = "out"
) -> None:
    """Refuse, before any work, an output file that cannot be written, is an input, or exists (unless `force`).

    Without `force`, the command never replaces a file.
    """
    # A link to an input, or a hard link, is the input.
    is_read = out.exists() and any(path and path.exists() and out.samefile(path) for path in inputs)
    for holds, rule in (
        (out.parent.is_dir(), f"lie in an existing folder; {out.parent} is not one; create it first"),
        (not out.is_dir(), f"name a file; {out} is a folder"),
        (not is_read, f"not be a file that is read; {out} is; choose another name"),
        (out.is_file() or not out.exists(), f"name a file; {out} is a device or a pipe"),
        (
            force or not os.path.lexists(out),
            f"name a new file; {out} exists; choose another name{'' if force is None else ', or add --force'}",
        ),
    ):
        if not holds:
            raise ParameterError(f"must {rule}.", parameter=parameter)
    if not os.access(out.parent, os.W_OK):
        raise PermissionError(f"{out.parent} cannot be written to.")


def overlaps(path: Path, others: Iterable[Path | None]) -> bool:
    """Return whether a path or URL is, holds or lies in another."""
    from dppl.io._places import shown_as

    one = Path(shown_as(path)).resolve()
    for other in (Path(shown_as(other)).resolve() for other in others if other is not None):
        if one == other or one in other.parents or other in one.parents:
            return True
        if one.exists() and other.exists() and one.samefile(other):  # two names of one file
            return True
    return False


def refuse_private(public: Path | None, private: Iterable[Path | None], parameter: str) -> None:
    """Refuse as public a path that is one of private data, holds it or lies in it."""
    if public is not None and overlaps(public, private):
        raise ParameterError(
            "must be public data; got private data, labels or embeddings, or a part of them.", parameter=parameter
        )


def labels_hint(records: io.Source) -> str:
    """Say where labels of this kind of source come from."""
    kind = records.parameters["kind"]
    if kind == "images":
        return "sort the images into a folder for each class, or name a CSV file with --labels"
    return "write the texts with their labels as a CSV file" if kind == "text" else "name their column with --y"


def require_labels(table: io.EmbeddingTable | io.PartedTable, path: Path) -> Any:
    """Return the labels of a table; None of one in parts, where they stay."""
    labels = getattr(table, "y", None)
    if labels is None and not getattr(table, "labelled", False):
        raise InputError(f"{path} has no labels; name their array or column with --y, or their file with --labels.")
    return labels


def load_model(path: Path) -> EmbeddingClassifier | Finetuned:
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

    table = io.read_table(path, x=x, y=y, labels=labels)
    # Rows of another encoder may have the same width, and a model answers them all, wrongly.
    if table.shape[1] != model.n_features_in_:
        raise InputError(
            f"{path} has {table.shape[1]} features, but the model expects {model.n_features_in_}; embed the records "
            "with the encoder that the model was fitted on."
        )
    check_encoder(table, model.encoder_, str(path))
    if model.encoder_ is not None and stated(table, ENCODER) is None:
        note(f"{path} does not name its encoder, so it was not compared with the model's.")
    return table
