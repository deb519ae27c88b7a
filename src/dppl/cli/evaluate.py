"""`dppl evaluate`: how good a model is on labelled records."""

from __future__ import annotations

from typing import Any

import typer

from dppl._progress import progress
from dppl.cli._groups import Labels, Persons, labels_hint, load_model, read_ids, read_rows_for, require_labels
from dppl.cli._output import console, note, print_facts, print_json, printable, table_of
from dppl.cli._request import flag, request
from dppl.cli.predict import OnModel
from dppl.errors import InputError


@request("labels", "x", "y", "encoder", "json")
class Evaluate(OnModel, Labels, Persons):
    """Compare a model's predictions with the labels of a table or source.

    Figures computed on private records are not covered by the guarantee:
    do not publish them with the model.

    Balanced accuracy is the mean of the class accuracies, over the classes
    with records; classes at or below 1 / number of classes are named. Minority
    accuracy is that mean over the smallest 25 % of them, if sizes differ. In
    the accuracy a label that the model does not know counts as a wrong
    prediction. Records that cannot be used are counted, and enter no
    figure. With --groups, person accuracy counts each person once.

    --json also has all confusions; `dppl show --results` draws them.

    For example:

      dppl evaluate my.safetensors test.npz
      dppl evaluate my.safetensors scans.parquet --groups patient
      dppl evaluate my.safetensors test.npy --labels y.npy --json
      dppl evaluate my.safetensors scans/
    """

    json: bool = flag("Print JSON.")

    def run(self) -> None:
        """Predict, compare and print."""
        from dppl.metrics import evaluate
        from dppl.predictions import predict_table, windows

        model, table = load_model(self.model), self.table
        truth: list[Any] = []
        predicted: list[Any] = []  # None for a record that cannot be used
        persons: list[Any] = []
        if self.holds_rows(model):
            y = self.y or "y"
            rows = read_rows_for(model, table, x=self.x or "x", y=y, labels=self.labels)
            truth = list(require_labels(rows, table))
            with progress("predicting"):
                predicted = predict_table(model, rows).labels
            if self.groups is not None:
                persons = list(read_ids(table, self.groups, y=y, labels=self.labels))
        else:
            source = self.open_records(model, table, labelled=True)
            if source.label_type is None:
                raise InputError(f"{table} has no labels; {labels_hint(source)}.")
            predictor = self.load_predictor(model)
            # A window at a time: no embedding of a private record outlives its window.
            with progress("embedding", source.count) as advance:
                for window, predictions in windows(source, predictor, advance):
                    unusable = [None] * len(window.skipped)
                    truth += window.labels + unusable
                    predicted += predictions.labels + unusable
                    persons += window.persons + unusable
        report = evaluate(truth, predicted, model.classes_, None if self.groups is None else persons)
        note("figures computed on private records are not covered by the model's guarantee.")
        if report["balanced_accuracy"] is None:
            note("no label of these records is a class of the model; see --y and --labels.")
        if self.json:
            print_json(report)
        else:
            _print(report)


def _print(report: dict[str, Any]) -> None:
    names = ["balanced_accuracy", "accuracy"]
    if report["minority_accuracy"] is not None:  # classes of one size have no smallest
        names.append("minority_accuracy")
    facts = [(name.replace("_", " "), _shown(report[name])) for name in names]
    if "n_persons" in report:
        mean = f"mean over {report['n_persons']} persons of the share of their records that is right"
        facts.append(("person accuracy", f"{_shown(report['person_accuracy'])}, {mean}"))
    unknown = f"{report['n_unknown_labels']} with a label that the model does not know"
    facts.append(("records", f"{report['n']}, {unknown}"))
    print_facts(facts, 18)
    if report["n_unusable"]:
        typer.echo(f"{report['n_unusable']} records could not be used and are not counted.")
    lost = ", ".join(printable(name) for name in report["at_or_below_chance"])
    typer.echo(f"Classes at or below chance ({report['chance']:.4f}): {lost or 'none'}")
    rows = ((entry["class"], entry["n"], _shown(entry["accuracy"])) for entry in report["per_class"])
    console().print(table_of(("class", "records", "accuracy"), rows, ("records", "accuracy")))


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
