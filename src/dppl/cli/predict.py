"""`dppl predict`: labels of new records, which cost no further budget."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeGuard

import typer

from dppl import _validate, io
from dppl.cli._groups import Items, ModelEncoder, Where
from dppl.cli._output import is_one_line, note, print_lines, printable
from dppl.cli._paths import check_inputs, check_output, opened, opened_source, read_rows_for
from dppl.cli._progress import embedding_bar, working
from dppl.cli._request import argument, flag, option, request
from dppl.errors import InputError, ParameterError

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier
    from dppl.finetune.workflow import Finetuned
    from dppl.predictions import Predictions

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
    from dppl._files import write_atomically

    _validate.one_of(("equal", "data"), shares=request.shares)
    _check_request(request)
    model = opened(request.model)
    to_stdout = request.out == _STDOUT
    if to_stdout and not all(is_one_line(str(name)) for name in model.classes_):
        raise InputError(
            "a class name of this model holds a line break or another control character; use --out FILE.csv."
        )
    if request.shares == "data" and is_network(model):
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
        typer.echo(f"Labels: {printable(request.out)}")
    elif found.ids is None and not found.proba and not found.top:
        print_lines("" if label is None else label for label in found.labels)
    else:
        typer.echo(found.csv(), nl=False)


def _check_request(request: Predict) -> None:
    """Refuse, before anything is read, what cannot be read or written."""
    table, out, engine = request.table, request.out, request.where.opened()
    if (table is None) == (request.text is None):
        raise ParameterError("name either DATA or --text TEXT.")
    if request.text is not None and (request.items.x is not None or request.items.read):
        raise ParameterError("--x and --read say how DATA is read; leave them out for one text.")
    if table != _STDIN:
        check_inputs(table)
    if out != _STDOUT:
        from dppl.predictions import SUFFIXES

        if out.suffix.lower() not in SUFFIXES:
            raise ParameterError(f"--out must be - or end in {', '.join(SUFFIXES)}; got {out}.")
        if out.suffix.lower() == ".npy" and (request.proba or request.top):
            raise ParameterError("--out must not end in .npy with --proba or --top; .npz holds several arrays.")
        check_output(out, (request.model, table), force=request.force)
    elif engine is not None:
        # Ray may write to standard output itself, when a worker dies.
        raise ParameterError("reads a table of embeddings and writes --out FILE.", parameter="engine")


def _predicted(request: Predict, model: EmbeddingClassifier | Finetuned) -> tuple[Predictions, bool]:
    """Return what a model says of the text, the table or the source, and whether it is private to its owner."""
    from dppl.predictions import predict_source, predict_table

    # Where only labels are asked for, the fewest computations: no probabilities.
    plain = not request.proba and request.top is None
    probable = request.shares == "data" or not plain or request.min_confidence is not None
    shares: Any = request.shares if probable else None
    path, x, engine = request.table, request.items.x, request.where.opened()
    if path is not None and path != _STDIN and is_table(model, path, request.items, request.encoder.encoder):
        rows: Any = read_rows_for(model, path, x=x or "x")
        ids = None if request.out == _STDOUT and plain else rows.ids
        if engine is not None:
            rows = io.read_parts(path, x=x or "x", y=None, engine=engine)
        with working("predicting"):
            found = replace(predict_table(model, rows, shares), ids=ids)
        _tell_unusable([f"row {place}" for place, label in enumerate(found.labels) if label is None])
        return found, False
    if engine is not None:
        raise ParameterError("reads embeddings; use dppl embed --engine ray first.", parameter="engine")
    with _opened(request, model) as source:
        predictor = request.encoder.predictor(model, shares)
        with embedding_bar(source) as progress:
            found, unusable = predict_source(model.classes_, source, predictor, progress)
    _tell_unusable(unusable)
    return (found if request.text is None else replace(found, ids=None)), True


@contextmanager
def _opened(request: Predict, model: EmbeddingClassifier | Finetuned) -> Iterator[io.Source]:
    """Open the text, the standard input or the source, until it has been read."""
    from dppl.training.items import Items as TextsInMemory

    x, how = request.items.x, request.items.how()
    columns = io.Columns(x, None, how.get("id"))
    if request.text is not None:
        yield TextsInMemory([request.text], "text", "--text")
    elif request.table != _STDIN:
        assert request.table is not None
        yield opened_for(model, request.table, request.items, columns)
    else:
        kind = how.get("kind", "auto")
        if kind not in _PIPED:
            raise ParameterError(
                f"must be one of {', '.join(_PIPED)} for standard input; got {kind!r}.", parameter="kind"
            )
        suffix = ".csv" if kind == "auto" and x is not None else _PIPED[kind]
        # A file that only its owner may read: sources are read twice.
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"stdin{suffix}"
            with file.open("xb") as content:
                shutil.copyfileobj(sys.stdin.buffer, content)
            yield opened_for(model, file, request.items, columns)


def opened_for(
    model: EmbeddingClassifier | Finetuned, path: Path, items: Items, given: io.Columns, labels: Path | None = None
) -> io.Source:
    """Open a source, with the names of columns that the model remembers in place of those that are not given."""
    remembered = labels is None and io.has_columns(path, items.how().get("kind", "auto"))
    known = getattr(model, "columns_", {}) if remembered else {}
    columns = replace(given, x=given.x or known.get("x"))
    try:
        return opened_source(path, items, replace(columns, id=columns.id or known.get("id")), labels)
    except InputError as error:
        if error.parameter != "id" or given.id is not None:
            raise
    # New records need not have the ids of those that were fitted.
    return opened_source(path, items, columns, labels)


def is_table(
    model: EmbeddingClassifier | Finetuned, path: Path, items: Items, encoder: str | None
) -> TypeGuard[EmbeddingClassifier]:
    """Return whether a path holds embeddings to classify, and if so refuse options for images and texts."""
    if ("kind" in items.how() and items.how()["kind"] != "auto") or not io.holds_embeddings(path, x=items.x or "x"):
        return False
    if is_network(model):
        raise InputError(f"{path} holds embeddings; a model of `dppl finetune` takes images.")
    for name, value in (("encoder", encoder), ("read", items.read)):
        if value:
            raise ParameterError(f"is for images and texts, but {path} holds embeddings.", parameter=name)
    return True


def is_network(model: EmbeddingClassifier | Finetuned) -> TypeGuard[Finetuned]:
    """Return whether a model is of `dppl finetune`."""
    from dppl.finetune.workflow import Finetuned

    return isinstance(model, Finetuned)


def _tell_unusable(places: Sequence[str]) -> None:
    if places:
        named = ", ".join(map(printable, places[:_LISTED]))
        rest = f" and {len(places) - _LISTED} others" if len(places) > _LISTED else ""
        note(f"these cannot be used, and their labels are empty: {named}{rest} (counted from 0).")
