"""`dppl predict` and `dppl evaluate`: use a released model. Predictions cost no further budget."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, cast

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from dppl import _validate, metrics
from dppl._files import write_atomically
from dppl.cli import _options as options
from dppl.cli._options import DATA, ENCODER, option
from dppl.cli._output import console, is_one_line, note, print_json, print_lines, printable
from dppl.cli._paths import (
    check_inputs,
    check_output,
    ids_of_persons,
    opened,
    opened_source,
    read_rows_for,
    require_labels,
)
from dppl.cli._predictions import SUFFIXES, Predictions
from dppl.cli._progress import embedding_bar, working
from dppl.cli.embed import how_to_label
from dppl.encoders import Encoder
from dppl.encoders.fixed import for_prediction
from dppl.encoders.load import Device
from dppl.engines import engine_of
from dppl.errors import InputError, ParameterError
from dppl.finetune.workflow import Finetuned
from dppl.io import (
    Columns,
    EmbeddingTable,
    PartedTable,
    Source,
    Window,
    embed_windows,
    has_columns,
    holds_embeddings,
    read_parts,
)
from dppl.kernel.reading import as_labels, class_codes
from dppl.training.items import Items

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier
    from dppl.estimators.released import Shares

_ROWS = 8192
_XOption = Annotated[
    str | None, option("NAME", "Column of embeddings (default x), or of texts or images.", DATA, "--x")
]
_EncoderOption = Annotated[
    str | None,
    option(
        "URI",
        "Where the model's encoder is, or the network of `dppl finetune`. Default: as the model names it.",
        ENCODER,
    ),
]
_Table = Annotated[
    Path | None,
    typer.Argument(
        metavar="DATA",
        help="Embeddings (see `dppl fit`), or images or texts (see `dppl embed`), or - for texts on standard input.",
        show_default=False,
    ),
]
# What standard input may hold, and how a file of it ends.
_PIPED = {"auto": ".txt", "text": ".txt", "csv": ".csv", "jsonl": ".jsonl"}
_STDIN = Path("-")
# Records that a note names.
_LISTED = 20
OUTPUT = "Output"


@options.first("out", "x", "encoder", "force")
def predict(
    model: options.Model,
    table: _Table = None,
    text: Annotated[str | None, option("TEXT", "One text to label, in the place of DATA.", DATA)] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help=".csv, .npz or .parquet, .npy (labels alone), or - for stdout.",
            rich_help_panel=OUTPUT,
        ),
    ] = Path("-"),
    proba: Annotated[
        bool, typer.Option("--proba", help="Write the probability of every class, too.", rich_help_panel=OUTPUT)
    ] = False,
    top: Annotated[
        int | None, option("K", "Write the K likeliest classes and their probabilities, too.", OUTPUT, min=1)
    ] = None,
    shares: Annotated[
        str,
        option("equal|data", "How frequent classes are: all alike, or as in the fit's data. Default equal.", OUTPUT),
    ] = "equal",
    min_confidence: Annotated[
        float | None,
        option("T", "Leave a label empty if its probability is below T.", OUTPUT, min=0.0, max=1.0),
    ] = None,
    x: _XOption = None,
    identity: options.Id = None,
    kind: options.Kind = "auto",
    split: options.Split = None,
    encoding: options.Encoding = None,
    delimiter: options.Delimiter = None,
    encoder: _EncoderOption = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    engine: options.EngineOption = "local",
    address: options.Address = None,
    force: options.Force = False,
) -> None:
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
    spread = None if engine == "local" and address is None else engine_of(engine, address)
    to_stdout = str(out) == "-"
    if (table is None) == (text is None):
        raise ParameterError("name either DATA or --text TEXT.")
    if not to_stdout:
        if out.suffix.lower() not in SUFFIXES:
            raise ParameterError(f"--out must be - or end in {', '.join(SUFFIXES)}; got {out}.")
        if out.suffix.lower() == ".npy" and (proba or top):
            raise ParameterError("--out must not end in .npy with --proba or --top; .npz holds several arrays.")
        check_output(out, (model, table), force=force)
    if spread is not None and (table in (None, _STDIN) or to_stdout):
        # Ray may write to standard output itself, when a worker dies.
        raise ParameterError("reads a table of embeddings and writes --out FILE.", parameter="engine")
    fitted = opened(model)
    if to_stdout and not all(is_one_line(str(name)) for name in fitted.classes_):
        raise InputError(
            "a class name of this model holds a line break or another control character; use --out FILE.csv."
        )
    _validate.one_of(("equal", "data"), shares=shares)
    wanted = shares if shares == "data" or proba or top is not None or min_confidence is not None else None
    if shares == "data" and isinstance(fitted, Finetuned):
        raise ParameterError("'data' is for models of `dppl fit` and `dppl train`.", parameter="shares")
    columns = Columns(x=x, id=identity)
    how: dict[str, Any] = {"split": split, "encoding": encoding, "delimiter": delimiter}
    if text is not None:
        _refuse_others("one text", x=x, id=identity, **how)
        found = _of_source(fitted, Items([text], "text", "--text"), encoder, device, workers, wanted)
        found = replace(found, ids=None)
    elif table == _STDIN:
        with _piped(kind, x) as file:
            source = _opened_for(fitted, file, columns, kind=kind, **how)
            found = _of_source(fitted, source, encoder, device, workers, wanted)
    else:
        assert table is not None
        check_inputs(table)
        if _is_table(fitted, table, x, kind, encoder=encoder, id=identity, **how):
            rows = read_rows_for(fitted, table, x=x or "x")
            parts = None if spread is None else read_parts(table, x=x or "x", y=None, engine=spread)
            found = _of_table(fitted, rows, wanted, parts)
            found = replace(found, ids=None) if to_stdout and not proba and not top else found
        else:
            if spread is not None:
                raise ParameterError("reads embeddings; use dppl embed --engine ray first.", parameter="engine")
            source = _opened_for(fitted, table, columns, kind=kind, **how)
            found = _of_source(fitted, source, encoder, device, workers, wanted)
    found = replace(found, proba=proba, top=top or 0)
    if min_confidence is not None:
        sure = found.at_least(min_confidence)
        if unsure := sure.count(None) - found.labels.count(None):
            note(f"{unsure} of {len(sure)} labels are empty, since none has a probability of {min_confidence:g}.")
        found = replace(found, labels=sure)
    if not to_stdout:
        write_atomically(out, found.content(out.suffix.lower()), overwrite=force, private=found.private)
    elif found.ids is None and found.plain:
        print_lines("" if label is None else label for label in found.labels)
    else:
        typer.echo(found.csv(), nl=False)


def _refuse_others(what: str, **others: str | None) -> None:
    for name, value in others.items():
        if value is not None:
            raise ParameterError(f"must be left out for {what}.", parameter=name)


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


def _opened_for(
    model: EmbeddingClassifier | Finetuned,
    path: Path,
    columns: Columns,
    *,
    kind: str,
    labels: Path | None = None,
    with_labels: bool = False,
    **how: str | None,
) -> Source:
    """Open a source, with the names of columns that the model remembers in the place of those that are not given."""
    known = getattr(model, "columns_", {}) if labels is None and has_columns(path, kind) else {}
    y = columns.y or known.get("y") if with_labels else None
    given = replace(columns, x=columns.x or known.get("x"), y=y)
    try:
        named = replace(given, id=columns.id or known.get("id"))
        return opened_source(path, kind=kind, columns=named, labels=labels, **how)
    except InputError as error:
        if error.parameter != "id" or columns.id is not None:
            raise
    # New records need not have the ids that those of the fit had.
    return opened_source(path, kind=kind, columns=given, labels=labels, **how)


def _of_table(
    model: EmbeddingClassifier,
    table: EmbeddingTable,
    wanted: Shares | None,
    parts: PartedTable | None = None,
) -> Predictions:
    """Predict the rows of a table, which an engine reads if it is in parts, and say which cannot be used."""
    with working("predicting"):
        if parts is None:
            found = _together(model.classes_, [_classified(model, block, wanted) for block in table.blocks(_ROWS)])
        else:
            found = _classified(model, parts, wanted)
    _tell_unusable([f"row {place}" for place, label in enumerate(found.labels) if label is None])
    return replace(found, ids=table.ids)


def _of_source(
    model: EmbeddingClassifier | Finetuned,
    source: Source,
    encoder: str | None,
    device: str,
    workers: int | None,
    wanted: Shares | None,
) -> Predictions:
    """Predict the records of a source in their order, and say which cannot be used."""
    parts: list[Predictions] = []
    ids: list[str | None] = []
    unusable: list[str] = []
    records = iter(source)
    for window, known in _predicted_windows(model, source, encoder, device, workers, wanted):
        left_out = {entry.reference for entry in window.left_out}
        places = [-1] * (len(window.ids) + len(window.left_out))
        number = 0
        for place, record in enumerate(islice(records, len(places))):
            if number < len(window.ids) and record.reference == window.references[number]:
                places[place], number = number, number + 1
            else:
                assert record.reference in left_out
                unusable.append(record.reference)
            ids.append(record.id)
        parts.append(_spread(known, places))
    _tell_unusable(unusable)
    return replace(_together(model.classes_, parts), ids=ids, private=True)


def _spread(found: Predictions, places: list[int]) -> Predictions:
    """Return predictions with empty ones in between, where a place is -1."""
    probabilities = None
    if found.probabilities is not None:
        probabilities = np.full((len(places), len(found.classes)), np.nan, np.float32)
        used = np.array(places, np.intp) >= 0
        probabilities[used] = found.probabilities
    return replace(
        found,
        labels=[None if place < 0 else found.labels[place] for place in places],
        probabilities=probabilities,
    )


def _together(classes: NDArray[Any], parts: list[Predictions]) -> Predictions:
    probabilities = [part.probabilities for part in parts if part.probabilities is not None]
    return Predictions(
        labels=[label for part in parts for label in part.labels],
        ids=None,
        classes=classes,
        probabilities=np.concatenate([np.empty((0, len(classes)), np.float32), *probabilities]),
    )


def _classified(model: EmbeddingClassifier, rows: Any, wanted: Shares | None) -> Predictions:
    """Predict rows, those that cannot be used as None, with probabilities if they are wanted.

    For shares of the data labels are the likeliest classes, and not those of the balanced decision.
    """
    if wanted is None:
        labels = model.predict(rows, unusable="empty")
        return Predictions(labels=labels.tolist(), ids=None, classes=model.classes_)
    probabilities = model.predict_proba(rows, shares=wanted, unusable="empty")
    if isinstance(wanted, str) and wanted == "data":
        from dppl.estimators.released import labels_of  # here, because the help of a command needs no scikit-learn

        best = np.nan_to_num(probabilities).argmax(axis=1)
        labels = labels_of(best, model.classes_, np.isnan(probabilities[:, 0]), "empty")
    else:
        labels = model.predict(rows, unusable="empty")
    return Predictions(
        labels=labels.tolist(), ids=None, classes=model.classes_, probabilities=probabilities.astype(np.float32)
    )


def _tell_unusable(places: Sequence[str]) -> None:
    if places:
        named = ", ".join(map(printable, places[:_LISTED]))
        rest = f" and {len(places) - _LISTED} others" if len(places) > _LISTED else ""
        note(f"these cannot be used, and their labels are empty: {named}{rest} (counted from 0).")


def _is_table(
    model: EmbeddingClassifier | Finetuned, path: Path, x: str | None, kind: str, **others: str | None
) -> TypeGuard[EmbeddingClassifier]:
    """Tell whether a path holds embeddings that are to be classified, and if so refuse options for images and texts."""
    if kind != "auto" or not holds_embeddings(path, x=x or "x"):
        return False
    if isinstance(model, Finetuned):
        raise InputError(f"{path} holds embeddings; a model of `dppl finetune` takes images.")
    for name, value in others.items():
        if value is not None:
            raise ParameterError(f"is for images and texts, but {path} holds embeddings.", parameter=name)
    return True


def _predicted_windows(
    model: EmbeddingClassifier | Finetuned,
    source: Source,
    encoder: str | None,
    device: str,
    workers: int | None,
    wanted: Shares | None = None,
) -> Iterator[tuple[Window, Predictions]]:
    """Embed a source with the model's encoder and predict, a window at a time: no embedding outlives its window."""
    from dppl.training import encoder_of_model  # here, because the help of a command needs no scikit-learn

    found: Encoder
    classify: Callable[[Any], Predictions]
    with working("loading the encoder"):
        if isinstance(model, Finetuned):
            found, probabilities = model.predictor(encoder, device=cast(Device, device))
            classify = partial(_of_probabilities, model.classes_, probabilities)
        else:
            loaded = encoder_of_model(model, encoder, device=cast(Device, device), predicting=True)
            found, classify = for_prediction(loaded), partial(_classified, model, wanted=wanted)
    with embedding_bar(source) as progress:
        for window in embed_windows(source, found, workers=workers, progress=progress):
            none = Predictions(labels=[], ids=None, classes=model.classes_, probabilities=_none_of(model.classes_))
            yield window, classify(np.stack(window.rows)) if window.rows else none


def _of_probabilities(classes: NDArray[Any], probabilities: Callable[[Any], NDArray[Any]], rows: Any) -> Predictions:
    values = probabilities(rows).astype(np.float32)
    return Predictions(labels=classes[values.argmax(axis=1)].tolist(), ids=None, classes=classes, probabilities=values)


def _none_of(classes: NDArray[Any]) -> NDArray[np.float32]:
    return np.empty((0, len(classes)), np.float32)


@options.first("labels", "x", "y", "encoder", "as_json")
def evaluate(
    model: options.Model,
    table: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="Labelled embeddings (see `dppl fit`), or images or texts (see `dppl embed`)."
        ),
    ],
    labels: options.Labels = None,
    x: _XOption = None,
    y: Annotated[str | None, option("NAME", "Column of labels. Default: y, or label or labels.", DATA, "--y")] = None,
    person: Annotated[
        str | None,
        option(
            "NAME|FILE",
            "Array or column of person ids (for .npy a second .npy file): also report the mean accuracy per person.",
            DATA,
        ),
    ] = None,
    kind: options.Kind = "auto",
    split: options.Split = None,
    encoding: options.Encoding = None,
    delimiter: options.Delimiter = None,
    encoder: _EncoderOption = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Compare a model's predictions with the labels of a table or source.

    Figures computed on private records are not covered by the guarantee:
    do not publish them with the model.

    Balanced accuracy is the mean of the class accuracies, over the classes
    with records in the table; guessing gets 1 / number of classes, and classes
    that get no more are named. Minority accuracy is that mean over the smallest
    25 % of them (rounded down, but at least one), by their sizes in the table;
    of equal sizes the first class in the model's order counts as smaller, and
    where all sizes are equal there is no minority. In the accuracy a label
    that the model does not know counts as a wrong prediction; the means over
    classes leave it out. Records that cannot be used are left out of these
    figures; n_unusable says how many there are.

    With --person, the accuracy per person is the mean over persons of the share
    of their records that is right: each person counts once. A missing id is a
    person of its own.

    --json also has all confusions, the most frequent first; `dppl report
    --results` shows them.

    For example:

      dppl evaluate my.safetensors test.npz
      dppl evaluate my.safetensors scans.parquet --person patient
      dppl evaluate my.safetensors test.npy --labels y.npy --json
      dppl evaluate my.safetensors scans/
    """
    fitted = opened(model)
    check_inputs(table, labels)
    truth: Any
    predicted: Any
    groups: NDArray[Any] | None = None
    how: dict[str, Any] = {"split": split, "encoding": encoding, "delimiter": delimiter}
    if _is_table(fitted, table, x, kind, encoder=encoder, **how):
        rows = read_rows_for(fitted, table, x=x or "x", y=y or "y", labels=labels)
        found = _of_table(fitted, rows, wanted=None)
        pairs = zip(require_labels(rows, table), found.labels, strict=True)
        used = [(label, name) for label, name in pairs if name is not None]
        truth, predicted = [label for label, _ in used], [name for _, name in used]
        unusable = len(found.labels) - len(used)
        if person is not None:
            ids = _ids_of_rows(table, person, len(rows), y=y or "y", labels=labels)
            groups = ids[[name is not None for name in found.labels]]
    else:
        columns = Columns(x=x, y=y, person=person)
        source = _opened_for(fitted, table, columns, kind=kind, labels=labels, with_labels=True, **how)
        if source.label_type is None:
            raise InputError(f"{table} has no labels; {how_to_label(source)}.")
        truth, predicted, persons, unusable = [], [], [], 0
        for window, found in _predicted_windows(fitted, source, encoder, device, workers):
            truth += window.labels
            predicted += found.labels
            persons += window.persons
            unusable += len(window.left_out)
        if person is not None:
            groups = np.empty(len(persons), object)
            groups[:] = persons
    if not len(truth):
        raise InputError(f"{table} has no rows{' that can be used' * bool(unusable)}, so there is nothing to evaluate.")
    codes = _codes(truth, fitted), _codes(predicted, fitted)
    report = _report(*codes, fitted.classes_, unusable)
    if groups is not None:
        report |= _of_persons(metrics.person_accuracies(*codes, groups))
    note("figures computed on private records are not covered by the model's guarantee.")
    if report["balanced_accuracy"] is None:
        note("no label of these records is a class of the model; see --y and --labels.")
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def _ids_of_rows(table: Path, name: str, n_rows: int, *, y: str, labels: Path | None) -> NDArray[Any]:
    ids = ids_of_persons(table, name, y=y, labels=labels)
    if len(ids) != n_rows:
        raise InputError(f"must name one id for each row of {table}; their numbers differ.", parameter="groups")
    return ids


def _of_persons(accuracies: NDArray[np.float64]) -> dict[str, Any]:
    return {"person_accuracy": float(accuracies.mean()), "n_persons": len(accuracies)}


def _codes(labels: Any, model: EmbeddingClassifier | Finetuned) -> NDArray[np.intp]:
    """Return the place of each label among the model's classes, -1 for one that it does not know."""
    return class_codes(as_labels(labels, np.empty((len(labels), 1))), model.classes_, "ignore")


def _report(
    truth: NDArray[np.intp], predicted: NDArray[np.intp], classes: NDArray[Any], unusable: int
) -> dict[str, Any]:
    codes = np.arange(len(classes))
    balanced = metrics.balanced_accuracy(truth, predicted, codes)
    sizes = metrics.class_sizes(truth, codes).tolist()
    each = metrics.class_accuracies(truth, predicted, codes).tolist()
    names = classes.tolist()
    return {
        "balanced_accuracy": _or_none(balanced),
        "accuracy": metrics.accuracy(truth, predicted),
        "minority_accuracy": metrics.minority_accuracy(truth, predicted, codes),
        "n": len(truth),
        "n_unknown_labels": len(truth) - sum(sizes),
        "n_unusable": unusable,
        "chance": 1 / len(classes),
        "at_or_below_chance": [
            name for name, value in zip(classes.tolist(), each, strict=True) if value <= 1 / len(classes)
        ],
        "per_class": [
            {"class": name, "n": size, "accuracy": _or_none(value)}
            for name, size, value in zip(classes.tolist(), sizes, each, strict=True)
        ],
        "confusions": [
            {"class": names[one], "predicted": names[other], "n": n}
            for one, other, n in metrics.confusions(truth, predicted, codes)
        ],
    }


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _print_report(report: dict[str, Any]) -> None:
    for key in ("balanced_accuracy", "accuracy", "minority_accuracy"):
        if key != "minority_accuracy" or report[key] is not None:
            typer.echo(f"{key.replace('_', ' '):<18} {_shown(report[key])}")
    if "n_persons" in report:
        each = (
            f"{_shown(report['person_accuracy'])}, mean over {report['n_persons']} persons of the share of their "
            "records that is right"
        )
        typer.echo(f"{'person accuracy':<18} {each}")
    typer.echo(f"{'records':<18} {report['n']}, {report['n_unknown_labels']} with a label that the model does not know")
    if report["n_unusable"]:
        typer.echo(f"{report['n_unusable']} records could not be used and are not counted.")
    lost = ", ".join(printable(name) for name in report["at_or_below_chance"])
    typer.echo(f"Classes at or below chance ({report['chance']:.4f}): {lost or 'none'}")
    table = Table()
    table.add_column("class")
    table.add_column("records", justify="right")
    table.add_column("accuracy", justify="right")
    for entry in report["per_class"]:
        table.add_row(printable(entry["class"]), str(entry["n"]), _shown(entry["accuracy"]))
    console().print(table)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
