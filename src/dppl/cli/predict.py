"""`dppl predict`: labels of new records, which cost no further budget."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import typer

from dppl import _validate
from dppl._files import write_atomically
from dppl.cli._groups import Items, ModelEncoder, Where
from dppl.cli._output import is_one_line, note, print_lines, printable
from dppl.cli._paths import check_inputs, check_output, opened, opened_source, read_rows_for
from dppl.cli._progress import embedding_bar, working
from dppl.cli._request import argument, flag, option, request
from dppl.errors import InputError, ParameterError
from dppl.finetune.workflow import Finetuned
from dppl.io import Columns, Source, read_parts
from dppl.io.sources import has_columns, holds_embeddings
from dppl.predictions import SUFFIXES, Predictions, Predictor, predict_source, predict_table
from dppl.training.items import Items as TextsInMemory

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier
    from dppl.estimators.released import Shares

# What standard input may hold, and how a file of it ends.
_PIPED = {"auto": ".txt", "text": ".txt", "csv": ".csv", "jsonl": ".jsonl"}
_STDIN = Path("-")
_STDOUT = Path("-")
# Records that a note names.
_LISTED = 20
DATA = "Embeddings (see `dppl fit`), or images or texts (see `dppl embed`)"


@request("out", "x", "encoder", "force")
class Predict:
    """What `dppl predict` is asked."""

    model: Path = argument("MODEL", "Model file of `dppl fit`, `dppl train` or `dppl finetune`.")
    table: Path | None = argument("DATA", f"{DATA}, or - for texts on standard input.", None)
    text: str | None = option("TEXT", "One text to label, in the place of DATA.", None)
    out: Path = option("FILE", ".csv, .npz or .parquet, .npy (labels alone), or - for stdout.", _STDOUT)
    proba: bool = flag("Write the probability of every class, too.")
    top: int | None = option("K", "Write the K likeliest classes and their probabilities, too.", None, min=1)
    shares: str = option(
        "equal|data", "How frequent classes are: all alike, or as in the fit's data. Default equal.", "equal"
    )
    min_confidence: float | None = option(
        "T", "Leave a label empty if its probability is below T.", None, min=0.0, max=1.0
    )
    items: Items
    encoder: ModelEncoder
    where: Where
    force: bool = flag("Replace the output file if it exists.")


def predict(request: Predict) -> None:
    """Label every row of a table, or every image or text of a source.

    Predictions cost no further budget. For a table or a single text, stdout
    gets one label per line. Images and texts are embedded with the encoder that
    the model names; the output, on stdout too, is CSV with the id and label of
    each. Columns are those that `dppl train` was told of, unless options name
    others. What cannot be used gets an empty label, and a note says where it is.

    Labels and probabilities are for classes that are equally frequent, which
    is the balanced decision. With --shares data they are for classes as
    frequent as in the data of the fit: labels are right most often then, and
    seldom name a rare class, whose probability is the number to threshold by
    costs. Probabilities are rough: see docs/probabilities.md.

    For example:

      dppl predict my.safetensors new.npz > labels.txt
      dppl predict my.safetensors --text "my card was swallowed" --top 3
      dppl predict my.safetensors new.csv --out labels.csv --proba
      dppl predict my.safetensors scans/ --min-confidence 0.8
      cut -f 2 mails.tsv | dppl predict my.safetensors -
    """
    _validate.one_of(("equal", "data"), shares=request.shares)
    _check_output(request)
    model = opened(request.model)
    to_stdout = request.out == _STDOUT
    if to_stdout and not all(is_one_line(str(name)) for name in model.classes_):
        raise InputError(
            "a class name of this model holds a line break or another control character; use --out FILE.csv."
        )
    if request.shares == "data" and isinstance(model, Finetuned):
        raise ParameterError("'data' is for models of `dppl fit` and `dppl train`.", parameter="shares")
    found, private = _predicted(request, model)
    found = replace(found, proba=request.proba, top=request.top or 0)
    if request.min_confidence is not None:
        sure = found.at_least(request.min_confidence)
        if unsure := sure.labels.count(None) - found.labels.count(None):
            limit = f"{request.min_confidence:g}"
            note(f"{unsure} of {len(sure.labels)} labels are empty, since none has a probability of {limit}.")
        found = sure
    if not to_stdout:
        content = found.content(request.out.suffix.lower())
        write_atomically(request.out, content, overwrite=request.force, private=private)
    elif found.ids is None and not found.proba and not found.top:
        print_lines("" if label is None else label for label in found.labels)
    else:
        typer.echo(found.csv(), nl=False)


def _check_output(request: Predict) -> None:
    """Refuse, before anything is read, what cannot be written."""
    table, out = request.table, request.out
    if (table is None) == (request.text is None):
        raise ParameterError("name either DATA or --text TEXT.")
    if out != _STDOUT:
        if out.suffix.lower() not in SUFFIXES:
            raise ParameterError(f"--out must be - or end in {', '.join(SUFFIXES)}; got {out}.")
        if out.suffix.lower() == ".npy" and (request.proba or request.top):
            raise ParameterError("--out must not end in .npy with --proba or --top; .npz holds several arrays.")
        check_output(out, (request.model, table), force=request.force)
    elif request.where.opened() is not None:
        # Ray may write to standard output itself, when a worker dies.
        raise ParameterError("reads a table of embeddings and writes --out FILE.", parameter="engine")


def _predicted(request: Predict, model: EmbeddingClassifier | Finetuned) -> tuple[Predictions, bool]:
    """Return what a model says of the text, the table or the source, and whether it is private to its owner."""
    # Where only labels are asked for, the fewest computations: no probabilities.
    plain = not request.proba and request.top is None
    probable = request.shares == "data" or not plain or request.min_confidence is not None
    shares = cast("Shares", request.shares) if probable else None
    path, x, engine = request.table, request.items.x, request.where.opened()
    columns = Columns(x, None, request.items.how().get("id"))
    if path is not None and path != _STDIN:
        check_inputs(path)
        if is_table(model, path, request.items, request.encoder.encoder):
            rows: Any = read_rows_for(model, path, x=x or "x")
            ids = rows.ids
            if engine is not None:
                rows = read_parts(path, x=x or "x", y=None, engine=engine)
            with working("predicting"):
                found = replace(predict_table(model, rows, shares), ids=ids)
            _tell_unusable([f"row {place}" for place, label in enumerate(found.labels) if label is None])
            return (replace(found, ids=None) if request.out == _STDOUT and plain else found), False
    if engine is not None:
        raise ParameterError("reads embeddings; use dppl embed --engine ray first.", parameter="engine")
    if request.text is not None:
        if x is not None or request.items.read:
            raise ParameterError("must be left out for one text.", parameter="read" if x is None else "x")
        source: Source = TextsInMemory([request.text], "text", "--text")
        found = _of_source(model, source, request.encoder.predictor(model, shares))
        return replace(found, ids=None), True
    if path == _STDIN:
        with _piped(request.items.how().get("kind", "auto"), x) as file:
            source = opened_for(model, file, request.items, columns)
            return _of_source(model, source, request.encoder.predictor(model, shares)), True
    assert path is not None
    source = opened_for(model, path, request.items, columns)
    return _of_source(model, source, request.encoder.predictor(model, shares)), True


@contextmanager
def _piped(kind: str, x: str | None) -> Iterator[Path]:
    """Keep what standard input holds in a file that only its owner may read, until it has been read twice."""
    if kind not in _PIPED:
        raise ParameterError(f"must be one of {', '.join(_PIPED)} for standard input; got {kind!r}.", parameter="kind")
    suffix = ".csv" if kind == "auto" and x is not None else _PIPED[kind]
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"stdin{suffix}"
        with file.open("xb") as content:
            shutil.copyfileobj(sys.stdin.buffer, content)
        yield file


def opened_for(
    model: EmbeddingClassifier | Finetuned, path: Path, items: Items, given: Columns, labels: Path | None = None
) -> Source:
    """Open a source, with the names of columns that the model remembers in the place of those that are not given."""
    remembered = labels is None and has_columns(path, items.how().get("kind", "auto"))
    known = getattr(model, "columns_", {}) if remembered else {}
    columns = replace(given, x=given.x or known.get("x"))
    try:
        return opened_source(path, items, replace(columns, id=columns.id or known.get("id")), labels)
    except InputError as error:
        if error.parameter != "id" or given.id is not None:
            raise
    # New records need not have the ids that those of the fit had.
    return opened_source(path, items, columns, labels)


def is_table(
    model: EmbeddingClassifier | Finetuned, path: Path, items: Items, encoder: str | None
) -> TypeGuard[EmbeddingClassifier]:
    """Tell whether a path holds embeddings that are to be classified, and if so refuse options for images and texts."""
    how = items.how()
    if how.get("kind", "auto") != "auto" or not holds_embeddings(path, x=items.x or "x"):
        return False
    if isinstance(model, Finetuned):
        raise InputError(f"{path} holds embeddings; a model of `dppl finetune` takes images.")
    for name, value in (("encoder", encoder), ("read", items.read)):
        if value:
            raise ParameterError(f"is for images and texts, but {path} holds embeddings.", parameter=name)
    return True


def _of_source(model: EmbeddingClassifier | Finetuned, source: Source, predictor: Predictor) -> Predictions:
    with embedding_bar(source) as progress:
        found, unusable = predict_source(model.classes_, source, predictor, progress)
    _tell_unusable(unusable)
    return found


def _tell_unusable(places: Sequence[str]) -> None:
    if places:
        named = ", ".join(map(printable, places[:_LISTED]))
        rest = f" and {len(places) - _LISTED} others" if len(places) > _LISTED else ""
        note(f"these cannot be used, and their labels are empty: {named}{rest} (counted from 0).")
