"""`dppl evaluate`: how good a model is on labelled records, privately or as plain numbers for their owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dppl import io
from dppl._utils import validate
from dppl._utils.progress import progress
from dppl.cli._models import load_model, read_rows_for
from dppl.cli._output import (
    console,
    echo,
    note,
    print_charge,
    print_facts,
    print_json,
    printable,
    require_stdout,
    table_of,
    tell_owner,
)
from dppl.cli._paths import check_output
from dppl.cli._records import (
    Engine,
    Persons,
    Y,
    labels_hint,
    reading,
    require_labels,
)
from dppl.cli._request import argument, flag, option, request
from dppl.cli._training import Account, NoiseBudget
from dppl.cli._unusable import BeforeCharge
from dppl.cli.predict import OnModel
from dppl.errors import InputError, ParameterError

if TYPE_CHECKING:
    from dppl.evaluation import Abstention, Evaluation
    from dppl.kernel.label_sets import MultiLabel

WARNING = (
    "For the data owner's eyes only: no guarantee covers these numbers. To release numbers of private records, type "
    "a budget, such as --epsilon 1 --delta 1e-6."
)
EXACT_THRESHOLD = (
    "Publish this threshold, or a model's answers by it, only if these records are public: chosen by private records "
    "without a budget, it is one more use of them, which no guarantee covers."
)
_PREDICTED = "predicted"  # the usual column of another model's predictions


@dataclass(frozen=True)
class _Tested:
    """A model with its test records: of these only where they lie, their labels and their ids are known."""

    model: Any  # what `dppl.evaluate` takes
    rows: Any
    labels: Any
    persons: Any  # None without --groups
    classes: Any


@request("epsilon", "delta", "out", "groups", "json")
class Evaluate(OnModel, Y, Persons, BeforeCharge, NoiseBudget, Account, Engine):
    r"""Measure how good a model is on labelled records.

    With a budget, the numbers may be released, such as 0.82 (0.80 to 0.84): the
    interval covers chance and noise, and holds with 90 %. What the budget is too
    small to say is "cannot tell". Everything printed is paid for, once: keep it
    with --out FILE. Evaluate on records that were held out (`dppl split`).

    Without a budget the numbers are exact, for the owner of the records only: no
    guarantee covers them, so do not publish them. Balanced accuracy is the mean
    of the class accuracies, and minority accuracy the mean of the smallest 25 %.
    Records that cannot be used are counted, and enter no figure.

    --max-error E also chooses from which confidence on the model should answer,
    for `dppl predict --min-confidence`, so that at most a share E of its answers
    is wrong: with 90 % confidence, for such records. Fix E before you look. By
    private records only with a budget, a share of which counts answers by
    confidence; without one, only by records that are public.

    MODEL may also be a class list (.txt), if DATA has the labels of another
    model, as texts in the column "predicted" or --x.

    Of several labels a record, all numbers are by label: F1, precision and
    recall, and how often all labels are right. They are separated as the model
    says, or --read.

    For example:

      dppl evaluate my.safetensors test.csv \
        --epsilon 1 --delta 1e-6 --out evaluation.json

      dppl evaluate my.safetensors test.parquet --groups patient \
        --epsilon 1 --delta 1e-6 --ledger wards.db wards/test

      dppl evaluate classes.txt answers.csv --y truth \
        --epsilon 1 --delta 1e-6

      dppl evaluate my.safetensors test.npz
    """

    model: Path = argument(
        "MODEL",
        "Model file of `dppl fit`, `dppl train` or `dppl finetune`; or a class list, see above.",
    )
    read: list[str] = reading("labels", "labels_separator")
    out: Path | None = option(
        "FILE", "With a budget: JSON file to write, for `dppl show --results`.", None
    )
    max_error: float | None = option(
        "E",
        "Choose a least confidence: at most a share E of the answers is wrong, such as 0.05.",
        None,
    )
    json: bool = flag("Print JSON.")

    def run(self) -> None:
        """Measure and print."""
        if self.path.suffix == ".safetensors" != self.model.suffix:
            raise ParameterError("name MODEL first, then DATA.")
        if self.max_error is not None:
            validate.open_unit(max_error=self.max_error)
            if self._is_class_list():
                raise ParameterError(
                    "needs probabilities, which DATA does not have.",
                    parameter="max_error",
                )
        if self.tasks() is not None and (
            self._is_class_list() or self.holds_embeddings()
        ):
            raise ParameterError(
                "is for images and texts, which DATA does not hold.",
                parameter="engine",
            )
        for name in ("ledger", "out"):
            if getattr(self, name) is not None and not self._is_private():
                raise ParameterError(
                    "is for a private evaluation; add a budget.", parameter=name
                )
        self._release() if self._is_private() else self._show()

    def _is_private(self) -> bool:
        """Return whether a budget is named, by which numbers may be released."""
        return any(one is not None for one in (self.epsilon, self.delta, self.mu))

    def _release(self) -> None:
        """Evaluate under differential privacy."""
        import dppl
        from dppl._utils.files import reserved
        from dppl.evaluation.evaluation import most_bytes
        from dppl.evaluation.measuring import usual_parts

        budget = self.budget()
        if self.out is not None:
            check_output(
                self.out,
                (self.model, self.path, self.labels, *self.account_file()),
                suffixes=(".json",),
            )
        else:
            require_stdout("the numbers, which are paid for,")
        account = self.account()
        note(budget.weakness)
        with ExitStack() as held:
            tested = held.enter_context(self._tested(budget, account))
            self.note_persons()
            # Before anything is charged, room for what is paid for.
            output = None
            if self.out is not None:
                output = held.enter_context(
                    reserved(self.out, most_bytes(tested.classes), overwrite=False)
                )
            if self.max_error is not None:
                account["parts"] = {*usual_parts(len(tested.classes)), "reliability"}
            evaluation = dppl.evaluate(
                tested.model,
                tested.rows,
                tested.labels,
                budget,
                groups=tested.persons,
                unknown_labels="strict" if self.unusable == "stop" else "ignore",
                **account,
            )
            # Written before a word is printed: it is paid for, and whoever reads a pipe
            # may go away.
            if output is not None:
                content = evaluation.to_json().encode()
                output.write(content)
                for charge in evaluation.guarantee.charges:
                    account["ledger"].saved(charge, sha256(content).hexdigest())
        chosen = None
        if self.max_error is not None:
            chosen = evaluation.threshold(self.max_error)
        if self.json:
            print_json(
                evaluation.to_dict()
                | ({} if chosen is None else {"threshold": chosen.to_dict()})
            )
        else:
            _print_private(evaluation)
            self._print_threshold(chosen)
            if self.ledger is not None:
                print_charge(self.ledger[0], account["ledger"], evaluation.guarantee)
            if self.out is None:
                echo(
                    "Keep this: a second run costs as much again. --out FILE writes it for dppl show."
                )
            else:
                page = f"dppl show {printable(self.model)} --out page.html --results {printable(self.out)}"
                echo(f"Saved to {printable(self.out)}. Next: {page}")
        tell_owner(
            "these numbers", "what dppl check DATA --classes FILE prints", err=self.json
        )

    @contextmanager
    def _tested(self, budget: Any, account: dict[str, Any]) -> Iterator[_Tested]:
        """Open the records; embedding begins when they are predicted."""
        from dppl.evaluation.measuring import check
        from dppl.evaluation.raw_records import labels_and_persons
        from dppl.kernel.privacy.terms import Unit
        from dppl.prediction.pending import pending_of_windows
        from dppl.reasons import NoSum
        from dppl.statement import words

        if self._is_class_list():
            yield self._predicted()
            return
        model = self._load()
        if self.groups is None and model.guarantee_.unit is Unit.PERSON:
            note(f"{words.text(NoSum.MODEL_OF_PERSONS)}; add --groups COLUMN.")
        check(model, budget, persons=self.groups is not None, **account)
        if self.holds_rows(model):
            rows = self._rows(model)
            with progress("predicting"):
                yield _Tested(
                    model,
                    rows,
                    require_labels(rows, self.path),
                    self.read_ids(),
                    model.classes_,
                )
            return
        source = self._labelled(
            self.open_records(model, labelled=True),
            model.classes_,
            getattr(model, "several", None),
        )
        predictor = self.load_predictor(model)
        labels, persons = labels_and_persons(source)
        # Before anything is charged: an interruption would lose the charge.
        with self.embedded(
            model, source, predictor.encoder, self.tasks(), ahead=True
        ) as windows:
            pending = pending_of_windows(model, windows, len(labels), predictor)
            yield _Tested(
                pending,
                None,
                labels,
                None if self.groups is None else persons,
                model.classes_,
            )

    def _load(self) -> Any:
        """Load the model, and settle how records have several labels, if they have."""
        from dppl.io.records.labels import SEPARATOR

        model: Any = load_model(self.model)
        if model.multilabel:
            if self.max_error is not None:
                raise ParameterError(
                    "is for a model that gives a record one label.",
                    parameter="max_error",
                )
            model.separator = (
                self.how.get("labels_separator") or model.separator or SEPARATOR
            )
        elif "labels_separator" in self.how:
            raise ParameterError(
                "is for a model of several labels a record.", parameter="separator"
            )
        return model

    def _is_class_list(self) -> bool:
        return self.model.suffix.lower() == ".txt"

    def _predicted(self) -> _Tested:
        """Read labels that another model predicted, and the true ones."""
        from dppl.evaluation import AlreadyPredicted
        from dppl.evaluation.raw_records import labels_and_persons, predicted_labels
        from dppl.prediction.pending import MAX_LABELS

        for name in ("encoder", "labels"):
            if getattr(self, name) is not None:
                raise ParameterError(
                    "is for a model, but MODEL is a class list.", parameter=name
                )
        classes = io.read_classes(self.model, several="labels_separator" in self.how)
        columns = replace(self.columns(), x=self.x or _PREDICTED)
        source = self._labelled(self.open_source(columns), classes, self.several())
        labels, persons = labels_and_persons(source)
        ids = None if self.groups is None else persons
        separator = self.how.get("labels_separator")
        most = None if separator is None else MAX_LABELS
        table = AlreadyPredicted(classes, max_labels=most, separator=separator)
        return _Tested(table, predicted_labels(source), labels, ids, classes)

    def _labelled(
        self, source: io.Source, classes: Any, several: MultiLabel | None
    ) -> io.Source:
        if source.label_type is None:
            raise InputError(f"{self.shown()} has no labels; {labels_hint(source)}.")
        self.check_first(lambda: (source, classes), several=several)
        return source

    def _rows(self, model: Any) -> io.EmbeddingTable:
        table = read_rows_for(
            model, self.path, x=self.x or "x", y=self.y or "y", labels=self.labels
        )
        self.check_first(
            lambda: (table, model.classes_, self.read_ids()),
            several=getattr(model, "several", None),
        )
        return table

    def _show(self) -> None:
        """Compare predictions with labels, and print plain numbers for the owner."""
        import numpy as np

        from dppl.evaluation import AlreadyPredicted, public_threshold
        from dppl.evaluation.raw_records import labels_and_persons
        from dppl.metrics import evaluate, evaluate_several
        from dppl.prediction.predictor import predict_table, predict_windows

        shares: Any = None if self.max_error is None else "equal"
        several = self.several()
        probabilities: Any = None
        if self._is_class_list():
            tested = self._predicted()
            classes = tested.model.classes_
            truth = tested.labels
            predicted = tested.rows.tolist()
            persons = tested.persons
        else:
            model = self._load()
            classes = model.classes_
            several = getattr(model, "several", None)
            if self.holds_rows(model):
                rows = self._rows(model)
                truth = require_labels(rows, self.path)
                with progress("predicting"):
                    found = predict_table(model, rows, shares)
                persons = self.read_ids()
            else:
                source = self._labelled(
                    self.open_records(model, labelled=True), classes, several
                )
                # For its owner's eyes; loading an encoder takes long.
                if next(iter(source), None) is None:
                    raise InputError(
                        f"{self.shown()} must hold labelled records to evaluate; it has none; name another source."
                    )
                predictor = self.load_predictor(model, shares)
                truth, persons = labels_and_persons(source)
                with self.embedded(
                    model, source, predictor.encoder, self.tasks()
                ) as windows:
                    found, _ = predict_windows(windows(), predictor)
            predicted = found.labels
            probabilities = found.probabilities
        ids = None if self.groups is None else list(persons)
        if several is None:
            report = evaluate(list(truth), predicted, classes, ids)
        else:
            report = evaluate_several(list(truth), predicted, classes, several, ids)
        chosen = None
        if self.max_error is not None:
            given: Any = AlreadyPredicted(classes)
            labels = np.array(truth, object)
            labels[[label is None for label in predicted]] = None
            chosen = public_threshold(
                given, probabilities, labels, max_error=self.max_error
            )
            report["threshold"] = chosen.to_dict()
        echo(WARNING, err=self.json)
        if report["balanced_accuracy"] is None:
            note(
                "no label of these records is a class of the model; see --y and --read labels."
            )
        if self.json:
            print_json(report)
        else:
            _print(report, several=several is not None)
            self._print_threshold(chosen)

    def _print_threshold(self, chosen: Abstention | None) -> None:
        """Say from which confidence on a model should answer, and what to type."""
        if chosen is None:
            return
        echo(f"{str(chosen).capitalize()}.")
        if not self._is_private():
            echo(EXACT_THRESHOLD)
        if chosen.min_confidence:
            least = f"--min-confidence {chosen.min_confidence:g}"
            echo(f"Next: dppl predict {printable(self.model)} NEW {least}")


def _print_private(evaluation: Evaluation) -> None:
    """Print what was released."""
    print_facts(evaluation.facts(), 26)
    (headings, *rows), silent = evaluation.told()
    if rows:
        console().print(table_of(headings, rows))
    if silent:
        echo(printable(silent))
    echo(
        f"Each interval covers chance and noise, and holds with {100 * evaluation.confidence:g} %."
    )
    for heading, text in evaluation.promise():
        echo(f"{heading}: {printable(text)}")


# What is printed of exact numbers, by its name in the report.
_OF_ONE = {
    "balanced accuracy": "balanced_accuracy",
    "accuracy": "accuracy",
    "minority accuracy": "minority_accuracy",
}
_OF_SEVERAL = {
    "micro F1": "micro_f1",
    "macro F1": "macro_f1",
    "mean recall of labels": "balanced_accuracy",
    "all labels right": "accuracy",
}
_BY_CLASS = {"records": "n", "accuracy": "accuracy"}
_BY_LABEL = {"records": "n", "F1": "f1", "recall": "accuracy", "precision": "precision"}


def _print(report: dict[str, Any], *, several: bool) -> None:
    """Print exact numbers, of records with one label each or with several."""
    facts = []
    for heading, name in (_OF_SEVERAL if several else _OF_ONE).items():
        # Classes of one size have no smallest.
        if name != "minority_accuracy" or report[name] is not None:
            facts.append((heading, _shown(report[name])))
    if "n_persons" in report:
        heading = "  by person" if several else "person accuracy"
        mean = f"mean over {report['n_persons']} persons of the share of their records that is right"
        facts.append((heading, f"{_shown(report['person_accuracy'])}, {mean}"))
    unknown = f"{report['n_unknown_labels']} with a label that the model does not know"
    facts.append(("records", f"{report['n']}, {unknown}"))
    print_facts(facts, 25 if several else 18)
    if report["n_unusable"]:
        echo(f"{report['n_unusable']} records could not be used and are not counted.")
    if not several:
        lost = ", ".join(map(printable, report["at_or_below_chance"])) or "none"
        echo(f"Classes at or below chance ({report['chance']:.4f}): {lost}")
    columns = _BY_LABEL if several else _BY_CLASS
    rows = [
        (one["class"], *(_shown(one[name]) for name in columns.values()))
        for one in report["per_class"]
    ]
    headings = ("label" if several else "class", *columns)
    console().print(table_of(headings, rows, columns))


def _shown(value: float | None) -> str:
    """Return a count as it is, and a share with four digits."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.4f}"
