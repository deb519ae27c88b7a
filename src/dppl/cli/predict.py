"""`dppl predict` and `dppl evaluate`: use a released model. Predictions cost no further budget."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeGuard

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from dppl._files import write_atomically
from dppl.cli import _options as options
from dppl.cli._options import DATA, ENCODER, option
from dppl.cli._output import console, is_one_line, note, print_json, print_lines, printable
from dppl.cli._paths import check_inputs, check_output, opened, read_rows_for, require_labels
from dppl.cli._progress import embedding_bar, working
from dppl.cli.embed import how_to_label
from dppl.data import EmbeddingTable
from dppl.embedding import Columns, Source, Window, embed_windows, holds_embeddings, open_source
from dppl.encoders import Encoder
from dppl.errors import InputError, ParameterError
from dppl.estimators import EmbeddingClassifier
from dppl.estimators.reading import as_labels, class_codes
from dppl.experiments import metrics
from dppl.finetune.workflow import Finetuned
from dppl.training import encoder_of_model

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
_SUFFIXES = (".csv", ".npy")


@options.first("out", "x", "encoder", "force")
def predict(
    model: options.Model,
    table: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="Embeddings (see `dppl fit`), or images or texts (see `dppl embed`)."),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help=".csv (id, if there are any, and label), .npy, or - for stdout."),
    ] = Path("-"),
    x: _XOption = None,
    identity: options.Id = None,
    kind: options.Kind = "auto",
    split: options.Split = None,
    encoder: _EncoderOption = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    force: options.Force = False,
) -> None:
    """Label every row of a table, or every image or text of a source.

    Predictions cost no further budget. For a table, stdout gets one label per
    line. Images and texts are embedded with the encoder that the model names;
    the output, on stdout too, is CSV with the id and label of each, without
    those that cannot be used.

    For example:

      dppl predict my.safetensors new.npz > labels.txt
      dppl predict my.safetensors new.parquet --out labels.csv
      dppl predict my.safetensors scans/ --out labels.csv
    """
    to_stdout = str(out) == "-"
    if not to_stdout:
        if out.suffix.lower() not in _SUFFIXES:
            raise ParameterError(f"--out must be - or end in {' or '.join(_SUFFIXES)}; got {out}.")
        check_output(out, (model, table), force=force)
    fitted = opened(model)
    check_inputs(table)
    if to_stdout and not all(is_one_line(str(name)) for name in fitted.classes_):
        raise InputError(
            "a class name of this model holds a line break or another control character; use --out FILE.csv."
        )
    if _is_table(fitted, table, x, kind, encoder=encoder, id=identity, split=split):
        rows = read_rows_for(fitted, table, x=x or "x")
        labels = _predicted(fitted, rows)
        if to_stdout:
            print_lines(labels.tolist())
        else:
            npy = out.suffix.lower() == ".npy"
            content = _as_npy(labels) if npy else _as_csv(labels.tolist(), rows.ids).encode("utf-8")
            write_atomically(out, content, overwrite=force)
        return
    if out.suffix.lower() == ".npy":
        raise ParameterError("--out must end in .csv for images and texts, since some may be left out.")
    source = open_source(table, kind=kind, columns=Columns(x=x, id=identity), split=split)
    ids: list[str | None] = []
    names: list[Any] = []
    for window, predicted in _predicted_windows(fitted, source, encoder, device, workers):
        ids += window.ids
        names += predicted.tolist()
    lines = _as_csv(names, ids)
    if to_stdout:
        typer.echo(lines, nl=False)
    else:
        write_atomically(out, lines.encode("utf-8"), overwrite=force, private=True)


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
    model: EmbeddingClassifier | Finetuned, source: Source, encoder: str | None, device: str, workers: int | None
) -> Iterator[tuple[Window, NDArray[Any]]]:
    """Embed a source with the model's encoder and predict, a window at a time: no embedding outlives its window."""
    found: Encoder
    classify: Callable[[Any], NDArray[Any]]
    with working("loading the encoder"):
        if isinstance(model, Finetuned):
            found, classify = model.predictor(encoder, device=device)
        else:
            found, classify = encoder_of_model(model, encoder, device=device), model.predict
    with embedding_bar(source) as progress:
        for window in embed_windows(source, found, workers=workers, progress=progress):
            yield window, classify(np.stack(window.rows)) if window.rows else model.classes_[:0]


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
    kind: options.Kind = "auto",
    split: options.Split = None,
    encoder: _EncoderOption = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Compare a model's predictions with the labels of a table or source.

    Figures computed on private records are not covered by the guarantee:
    do not publish them with the model.

    Balanced accuracy is the mean of the class accuracies, over the classes
    with records in the table. Minority accuracy is that mean over the smallest
    25 % of them (rounded down, but at least one), by their sizes in the table;
    of equal sizes the first class in the model's order counts as smaller, and
    where all sizes are equal there is no minority. In the accuracy a label
    that the model does not know counts as a wrong prediction; the means over
    classes leave it out. Images and texts that cannot be used
    are left out of these figures; n_unusable says how many there are (null for
    a table).

    For example:

      dppl evaluate my.safetensors test.npz
      dppl evaluate my.safetensors test.npy --labels y.npy --json
      dppl evaluate my.safetensors scans/
    """
    fitted = opened(model)
    check_inputs(table, labels)
    truth: Any
    predicted: Any
    unusable: int | None = None
    if _is_table(fitted, table, x, kind, encoder=encoder, split=split):
        rows = read_rows_for(fitted, table, x=x or "x", y=y or "y", labels=labels)
        truth, predicted = require_labels(rows, table), _predicted(fitted, rows)
    else:
        source = open_source(table, kind=kind, columns=Columns(x=x, y=y), labels=labels, split=split)
        if source.label_type is None:
            raise InputError(f"{table} has no labels; {how_to_label(source)}.")
        truth, predicted, unusable = [], [], 0
        for window, names in _predicted_windows(fitted, source, encoder, device, workers):
            truth += window.labels
            predicted += names.tolist()
            unusable += len(window.left_out)
    if not len(truth):
        raise InputError(f"{table} has no rows{' that can be used' * bool(unusable)}, so there is nothing to evaluate.")
    report = _report(_codes(truth, fitted), _codes(predicted, fitted), fitted.classes_, unusable)
    note("figures computed on private records are not covered by the model's guarantee.")
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def _predicted(model: EmbeddingClassifier, table: EmbeddingTable) -> NDArray[Any]:
    with working("predicting"):
        parts = [model.predict(block) for block in table.blocks(_ROWS)]
    return np.concatenate(parts) if parts else model.classes_[:0]


def _codes(labels: Any, model: EmbeddingClassifier | Finetuned) -> NDArray[np.intp]:
    """Return the place of each label among the model's classes, -1 for one that it does not know."""
    return class_codes(as_labels(labels, np.empty((len(labels), 1))), model.classes_, "ignore")


def _as_npy(labels: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, labels, allow_pickle=False)
    return buffer.getvalue()


def _as_csv(labels: list[Any], ids: Sequence[str | None] | None) -> str:
    """Return the labels below a header, with their ids if there are any."""
    columns = {"label": labels} if ids is None else {"id": ids, "label": labels}
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return buffer.getvalue()


def _report(
    truth: NDArray[np.intp], predicted: NDArray[np.intp], classes: NDArray[Any], unusable: int | None
) -> dict[str, Any]:
    codes = np.arange(len(classes))
    balanced = metrics.balanced_accuracy(truth, predicted, codes)
    sizes = metrics.class_sizes(truth, codes).tolist()
    each = metrics.class_accuracies(truth, predicted, codes).tolist()
    return {
        "accuracy": metrics.accuracy(truth, predicted),
        "balanced_accuracy": _or_none(balanced),
        "minority_accuracy": metrics.minority_accuracy(truth, predicted, codes),
        "n": len(truth),
        "n_unknown_labels": len(truth) - sum(sizes),
        "n_unusable": unusable,
        "per_class": [
            {"class": name, "n": size, "accuracy": _or_none(value)}
            for name, size, value in zip(classes.tolist(), sizes, each, strict=True)
        ],
    }


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _print_report(report: dict[str, Any]) -> None:
    for key in ("accuracy", "balanced_accuracy", "minority_accuracy"):
        typer.echo(f"{key.replace('_', ' '):<18} {_shown(report[key])}")
    typer.echo(f"{'records':<18} {report['n']}, {report['n_unknown_labels']} with a label that the model does not know")
    if report["n_unusable"]:
        typer.echo(f"{report['n_unusable']} records could not be used and are not counted.")
    table = Table()
    table.add_column("class")
    table.add_column("records", justify="right")
    table.add_column("accuracy", justify="right")
    for entry in report["per_class"]:
        table.add_row(printable(entry["class"]), str(entry["n"]), _shown(entry["accuracy"]))
    console().print(table)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
