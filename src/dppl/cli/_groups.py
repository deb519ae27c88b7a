"""What several commands have: options and what they stand for, and checks of the paths that they read and write.

Each class is inherited by the commands that take its options. What is wrong with a path
is said before any work.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dppl import io
from dppl._utils import validate
from dppl._utils.files import target_of
from dppl.cli._output import note, printable
from dppl.cli._request import argument, flag, option, request
from dppl.errors import InputError, ParameterError
from dppl.io.records.urls import shown_as
from dppl.methods.registry import BY_METHOD, estimator_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dppl.finetune.tune import Finetuned
    from dppl.kernel.privacy import Budget as Spent
    from dppl.methods import EmbeddingClassifier

METHODS = f"auto|{'|'.join(BY_METHOD)}"
MISSING_IDS = "a record without a person id counts as a person: who has several such records is protected less"
_CONSTANTS = {"true": True, "false": False, "none": None}


@request(panel="budget")
class Budget:
    """What a release may cost; exactly one notion of privacy."""

    epsilon: float | None = option(
        "E", "With --delta: approximate DP. Alone: pure DP, for --method public.", None
    )
    delta: float | None = option(
        "D", "Far below 1 / number of records, such as 1e-6.", None
    )
    mu: float | None = option(
        "M",
        "Gaussian DP: 0.2368 is epsilon 1 at delta 1e-6, and 0 a model of public examples alone.",
        None,
    )
    weak: bool = flag(
        "Allow an epsilon above 20 or a delta of 1e-3 or more.",
        typed={"allow_weak": "--weak"},
    )

    def budget(self) -> Spent:
        """Return the budget."""
        from dppl.kernel.privacy import ApproxDP, GaussianDP, PureDP
        from dppl.kernel.privacy.budgets import refuse_slip

        if (self.mu is None) == (self.epsilon is None):
            raise ParameterError(
                "specify exactly one budget: --epsilon E --delta D, --mu M, or --epsilon E alone, which is pure DP."
            )
        if self.mu is not None:
            # A delta here would read as part of the promise, which mu makes for every
            # delta.
            if self.delta is not None:
                raise ParameterError(
                    "belongs to --epsilon; --mu needs none.", parameter="delta"
                )
            return GaussianDP(self.mu)
        assert self.epsilon is not None
        budget = (
            PureDP(self.epsilon, allow_weak=self.weak)
            if self.delta is None
            else ApproxDP(self.epsilon, self.delta, allow_weak=self.weak)
        )
        refuse_slip(budget)
        return budget


@request(panel="budget")
class NoiseBudget(Budget):
    """What a release with Gaussian noise may cost, for which there is no pure DP."""

    epsilon: float | None = option("E", "With --delta: approximate DP.", None)

    def budget(self) -> Spent:
        """Return the budget."""
        if (self.mu is None) == (self.epsilon is None):
            raise ParameterError(
                "specify exactly one budget: --epsilon E --delta D, or --mu M."
            )
        if self.mu is None and self.delta is None:
            raise ParameterError("add --delta 1e-6 to the budget.")
        return super().budget()


@request(panel="ledger")
class Account:
    """What pays for a release."""

    ledger: tuple[str, str] | None = option(
        "FILE DATASET[/PART]",
        "Ledger that pays for the release, and the data set in it, or a part that shares no record (`dppl ledger`).",
        None,
        typed={"dataset": "DATASET of --ledger", "partition": "PART of --ledger"},
    )

    def account(self) -> dict[str, Any]:
        """Open the account in an existing ledger, and return it with the part of the data set, as `fit` takes them."""
        if self.ledger is None:
            return {"ledger": None, "partition": None}
        from dppl.kernel.privacy import Ledger  # SQLAlchemy, which no help needs

        # Parts share no record, so what one of them spends costs the others nothing.
        file, name = self.ledger
        dataset, slash, part = name.partition("/")
        ledger = Ledger(file, dataset)
        parts = {one["partition"] for one in ledger.releases()} - {None}
        if part and part not in parts:
            # A slip in a name would open another account of the same records.
            note(
                f"{printable(part)} is a new part of {printable(dataset)}, and you vouch for it that no {ledger.unit} "
                "in it is in another part: their costs do not add up. Parts so far: "
                f"{', '.join(map(printable, sorted(parts))) or 'none'}."
            )
        return {"ledger": ledger, "partition": part if slash else None}

    def account_file(self) -> list[Path]:
        """Return the file of the ledger, if it is one, which no output may replace."""
        if self.ledger is None or "://" in self.ledger[0]:
            return []
        return [Path(self.ledger[0])]


@request(panel="data")
class Classes:
    """The public list of classes."""

    classes: Path | None = option(
        "FILE",
        "Public list of classes, one per line; never taken from the labels.",
        None,
    )

    def class_list(self) -> NDArray[Any]:
        """Read the list of classes; it is required, because labels are private."""
        if self.classes is None:
            raise ParameterError(
                "--classes FILE is required. The list is released with the model, so it must be public: taking it from "
                "the labels would reveal which ones occur. Write every possible class into it, one per line."
            )
        several = (
            "separator" in getattr(self, "how", ())
            or getattr(self, "method", None) == "multilabel"
        )
        return io.read_classes(self.classes, several=several)


def parse_pairs(
    given: Iterable[str],
    parameter: str,
    known: Collection[str] | None = None,
    *,
    literal: bool = True,
) -> dict[str, Any]:
    """Return what ``NAME=VALUE`` says, by name: texts, or numbers, tuples and texts as in Python, quoted or not."""
    values: dict[str, Any] = {}
    for one in given:
        name, _, text = one.partition("=")
        if not text or not name.isidentifier():
            raise ParameterError(
                f"must be NAME=VALUE; got {one!r}.", parameter=parameter
            )
        if name in values:
            raise ParameterError(
                f"must name each value once; got {name} twice.", parameter=parameter
            )
        if known is not None and name not in known:
            raise ParameterError(
                f"takes NAME=VALUE with {', '.join(known)}; got {name!r}.",
                parameter=parameter,
            )
        values[name] = text
        # Literals alone: nothing that is typed runs as code.
        if literal:
            try:
                values[name] = (
                    _CONSTANTS[text] if text in _CONSTANTS else ast.literal_eval(text)
                )
            except (SyntaxError, ValueError):
                values[name] = tuple(text.split(",")) if "," in text else text
    return values


# What --read says, by name; the first five of raw records.
_READ = {
    "kind": "auto, images, csv, jsonl, parquet, text, excel",
    "id": "column of ids of records, not of persons",
    "encoding": "of a file of lines; by default UTF-8",
    "sheet": "of a workbook; by default the first",
    "sql": "query that selects texts, with ORDER BY or an id; DATA is then a .duckdb or .sqlite file, a URL of "
    "SQLAlchemy, or env:VARIABLE that holds one, since lists of processes show passwords",
    "x": "column of texts, images or embeddings",
    "labels": "file of labels apart: of images a CSV file of files and labels; else .npy, .txt or .csv, one a line",
    "separator": 'what separates the labels of a record that may have several, or none, such as ";"',
}


def reading(*names: str, raw: bool = True, what: str = "DATA") -> Any:
    """Return the option that says how records are read."""
    taken = [*list(_READ)[:5], *names] if raw else names
    text = " ".join(
        [
            f"How {what} is read; may be repeated.",
            *(f"{name}: {_READ[name]}." for name in taken),
        ]
    )
    return option(
        "NAME=VALUE", text, (), typed={name: f"--read {name}" for name in taken}
    )


@request(panel="data")
class Records:
    """Where records are and how they are read: embeddings, or raw images and texts."""

    data: str = argument(
        "DATA", "Embeddings (see `dppl fit`), or images or texts (see `dppl embed`)."
    )
    read: list[str] = reading()

    @cached_property
    def how(self) -> dict[str, str]:
        """What ``--read`` says, by name."""
        (known,) = (one.metadata["typed"] for one in fields(self) if one.name == "read")
        return parse_pairs(self.read, "read", known, literal=False)

    @property
    def path(self) -> Path:
        """DATA as a path; a database, which may be a URL, is only read as the text that was typed."""
        return Path(self.data)

    @property
    def labels(self) -> Path | None:
        """The file of labels apart."""
        return Path(self.how["labels"]) if "labels" in self.how else None

    def shown(self) -> str:
        """Return DATA as messages show it, without a password."""
        return "the query" if "sql" in self.how else shown_as(self.path)

    def several(self) -> Any:
        """Return how labels are given, where a record may have several."""
        from dppl.kernel.label_sets import MultiLabel

        return MultiLabel(self.how["separator"]) if "separator" in self.how else None

    def columns(self) -> io.Columns:
        """Return the columns that are named."""
        # Not every command asks for labels, or for persons.
        x, y, person = (getattr(self, name, None) for name in ("x", "y", "groups"))
        return io.Columns(x or self.how.get("x"), y, self.how.get("id"), person)

    def database(self) -> str:
        """Return DATA, or what the environment variable that it names holds."""
        scheme, _, name = self.data.partition(":")
        if scheme != "env":
            return self.data
        if name not in os.environ:
            raise ParameterError(
                "names an environment variable that is not set.", parameter="data"
            )
        return os.environ[name]

    def open_source(
        self, columns: io.Columns | None = None, path: Path | None = None
    ) -> io.Source:
        """Open images or texts as the options say."""
        # The id is a column; how labels are separated, a source need not know.
        how: Any = {
            name: value
            for name, value in self.how.items()
            if name not in ("x", "id", "separator")
        }
        place = path or (self.database() if "sql" in how else self.path)
        return io.open_source(place, columns=columns or self.columns(), **how)

    def holds_embeddings(self) -> bool:
        """Return whether DATA is a table of embeddings, and not raw records."""
        raw = "sql" in self.how or self.how.get("kind", "auto") != "auto"
        return not raw and io.holds_embeddings(self.path, x=self.columns().x or "x")

    def open_any(self, classes: Any) -> tuple[Any, ...]:
        """Return what a report is about: a table, the classes and ids of persons, or a source and the classes."""
        if not self.holds_embeddings():
            return self.open_source(), classes
        named = self.columns()
        table = io.read_table(
            self.path, x=named.x or "x", y=named.y or "y", labels=self.labels
        )
        return table, classes, self.read_ids()

    def read_ids(self) -> Any:
        """Read whose each record of a table is; labels as ids would make all records of a class one person."""
        if (groups := getattr(self, "groups", None)) is None:
            return None
        if groups == (
            (self.columns().y or "y") if self.labels is None else str(self.labels)
        ):
            raise InputError(
                f"must name ids of persons; {groups!r} holds the labels; name another.",
                parameter="groups",
            )
        return io.read_ids(self.path, groups)


@request(panel="data")
class X:
    """What records are."""

    x: str | None = option(
        "NAME",
        "Array or column of texts, images or embeddings. Default: text, image, ...; x.",
        None,
        typed={"columns": "--x, --y, --groups and --read id"},
    )


@request(panel="data")
class Y:
    """What their labels are."""

    y: str | None = option(
        "NAME", "Array or column of labels. Default: label, labels or y.", None
    )


@request(panel="data")
class Persons:
    """Whom a guarantee is for."""

    groups: str | None = option(
        "NAME",
        "Array or column of person ids, which are private and may repeat. Fits protect "
        "each person with all of their records, not each record (docs/persons.md).",
        None,
        typed={"person": "--groups"},
    )

    def note_persons(self) -> None:
        """Say whom ids that are missing leave without protection, whether there are such or not."""
        if self.groups is not None and getattr(self, "unusable", None) != "stop":
            note(
                f"{MISSING_IDS}. `dppl check --groups` counts such records, and --unusable stop refuses them."
            )


@request(panel="data")
class BeforeCharge(Records):
    """What may stop a run before anything is embedded or charged; without these options no record decides that."""

    unusable: str = option(
        "skip|stop|ask",
        "What to do if records cannot be used, have labels outside the class list or, with --groups, no id. skip: no "
        "word of them. stop: before anything is embedded or charged, which is one bit about the records. ask: first "
        "show on your terminal alone what `dppl check` shows. No guarantee covers that bit, or your answer. Default "
        "skip.",
        "skip",
        typed={"strict": "--unusable stop", "review": "--unusable ask"},
    )

    def __post_init__(self) -> None:
        validate.one_of(("skip", "stop", "ask"), unusable=self.unusable)
        if self.unusable == "ask":
            from dppl.cli.check import terminal

            with terminal():  # or nothing is read
                pass

    def check_first(
        self,
        read: Callable[[], tuple[Any, ...]],
        *,
        fit: bool = False,
        several: Any = None,
    ) -> None:
        """Show its owner what a run can use, and stop if that is not enough, as far as the options ask for it.

        `read` returns a table or source, the classes if they are known, and ids of
        persons. A strict `fit` stops by itself: it knows the encoder.
        """
        if self.unusable == "skip" or (fit and self.unusable == "stop"):
            return
        from dppl.cli.check import report_on, review
        from dppl.kernel.checking import refuse_unusable_records

        several = several or self.several()
        report = report_on(*read(), several=several)
        if self.unusable == "ask":
            review(report, fit=fit)
        else:
            # A record of several labels is used without those that are unknown, but not
            # by a strict run.
            outside = several is not None and bool(
                report["labels"] and report["labels"]["unknown"]
            )
            nobody = bool(report.get("persons", {}).get("missing_ids"))
            refuse_unusable_records(report["used"] - (outside or nobody), report["n"])

    def strictly(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return parameters of a fit, of which a strict run is one."""
        if self.unusable != "stop":
            return options
        if "unknown_labels" in options:
            raise ParameterError(
                "stop goes without --options unknown_labels.", parameter="unusable"
            )
        return options | {"unknown_labels": "strict"}


@request(panel="method")
class Method(BeforeCharge):
    """Which estimator is fitted, and with which parameters."""

    method: str = option(
        METHODS,
        f"{''.join(f'{method}: {entry.hint}. ' for method, entry in BY_METHOD.items())}Default auto: the first that "
        "offers the relation; pure DP needs public.",
        "auto",
    )
    options: list[str] = option(
        "NAME=VALUE",
        "A parameter of the method, as in Python (docs/methods.md); may be repeated: n_prototypes=3 of public, "
        "lattice__rotation=auto of mean. unknown_labels=ignore skips records with a label outside --classes (of "
        "several labels only that label), at which a fit stops otherwise. With --groups, "
        "max_classes_per_person=N. random_state=N repeats the noise; such a model must not be released.",
        (),
    )

    def estimator(
        self, budget: Spent, classes: Any, rows: Path | None, **given: Any
    ) -> Any:
        """Return the unfitted estimator; `rows`, the path of public ones, is refused if it would not use them."""
        options = self.strictly(parse_pairs(self.options, "options"))
        method = self.method
        if (separator := self.how.get("separator")) is not None:
            if method not in ("auto", "multilabel"):
                raise ParameterError(
                    "is for --method multilabel.", parameter="separator"
                )
            method = "multilabel"
            options = {**options, "separator": separator}
        # DPPL-Mean reads public rows only for the lattice; elsewhere they would seem to
        # help and do nothing.
        if (
            rows is not None
            and method == "mean"
            and not options.keys() & {"lattice__center", "lattice__rotation"}
        ):
            raise ParameterError(
                "has no effect with --method mean; add --options lattice__center=public or --options "
                "lattice__rotation=auto, or leave it out.",
                parameter="public",
            )
        return estimator_of(method, budget, classes, **given, **options)


@request(panel="engine")
class Where:
    """Where the work is done."""

    engine: str = option(
        "local|ray|ADDRESS",
        "ray: in tasks of Ray on this machine; auto or ray://HOST:10001: on a cluster (docs/scale.md). Default local.",
        "local",
    )


@request(panel="data")
class Fitting(Classes, BeforeCharge, Budget, Account):
    """What every training on private records is asked."""

    out: Path = option("MODEL", "Model file to write.")
    force: bool = flag("Replace the output file if it exists.")


# How the name of a model file ends.
MODEL = (".safetensors",)


def check_output(
    out: Path,
    inputs: Iterable[Path | None],
    *,
    force: bool | None = None,
    parameter: str = "out",
    suffixes: tuple[str, ...] = (),
) -> None:
    """Refuse, before any work, an output file that cannot be written, is an input, or exists (unless `force`).

    Without `force`, the command never replaces a file. The name must end in one of
    `suffixes`, or it would name another format than the file has.
    """
    # A link to an input, or a hard link, is the input.
    is_read = out.exists() and any(
        path and path.exists() and out.samefile(path) for path in inputs
    )
    for holds, rule in (
        (
            out.parent.is_dir(),
            f"lie in an existing folder; {out.parent} is not one; create it first",
        ),
        (not out.is_dir(), f"name a file; {out} is a folder"),
        (not is_read, f"not be a file that is read; {out} is; choose another name"),
        (
            out.is_file() or not out.exists(),
            f"name a file; {out} is a device or a pipe",
        ),
        (
            not suffixes or out.suffix.lower() in suffixes,
            f"end in {' or '.join(suffixes)}, for so the file is; got {out}",
        ),
        (
            force or not os.path.lexists(out),
            f"name a new file; {out} exists; choose another name{'' if force is None else ', or add --force'}",
        ),
    ):
        if not holds:
            raise ParameterError(f"must {rule}.", parameter=parameter)
    target = target_of(out, overwrite=True)
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"{target.parent} cannot be written to.")


def overlaps(path: Path, others: Iterable[Path | None]) -> bool:
    """Return whether a path or URL is, holds or lies in another."""
    one = Path(shown_as(path)).resolve()
    for other in (
        Path(shown_as(other)).resolve() for other in others if other is not None
    ):
        if one == other or one in other.parents or other in one.parents:
            return True
        if (
            one.exists() and other.exists() and one.samefile(other)
        ):  # two names of one file
            return True
    return False


def refuse_private(
    public: Path | None, private: Iterable[Path | None], parameter: str
) -> None:
    """Refuse as public a path that is one of private data, holds it or lies in it."""
    if public is not None and overlaps(public, private):
        raise ParameterError(
            "must be public data; got private data, labels or embeddings, or a part of them.",
            parameter=parameter,
        )


def labels_hint(records: io.Source) -> str:
    """Say where labels of this kind of source come from."""
    kind = records.parameters["kind"]
    if kind == "images":
        return "sort the images into a folder for each class, or name a CSV file with --read labels"
    return (
        "write the texts with their labels as a CSV file"
        if kind == "text"
        else "name their column with --y"
    )


def require_labels(table: io.EmbeddingTable | io.PartedTable, path: Path) -> Any:
    """Return the labels of a table; None of one in parts, where they stay."""
    labels = getattr(table, "y", None)
    if labels is None and not getattr(table, "labelled", False):
        raise InputError(
            f"{shown_as(path)} has no labels; name their array or column with --y, or their file with --read labels."
        )
    return labels


def load_model(path: Path) -> EmbeddingClassifier | Finetuned:
    """Read a model file of either form."""
    from dppl.finetune.network_file import is_finetuned
    from dppl.finetune.tune import Finetuned
    from dppl.methods import load

    return Finetuned(path) if is_finetuned(path) else load(path)


def read_rows_for(
    model: EmbeddingClassifier,
    path: Path,
    *,
    x: str,
    y: str | None = None,
    labels: Path | None = None,
) -> io.EmbeddingTable:
    """Read a table whose rows are as wide as those that `model` was fitted on."""
    from dppl._utils.metadata import ENCODER, check_encoder, stated

    table = io.read_table(path, x=x, y=y, labels=labels)
    shown = shown_as(path)
    # Rows of another encoder may have the same width, and a model answers them all,
    # wrongly.
    if table.shape[1] != model.n_features_in_:
        raise InputError(
            f"{shown} has {table.shape[1]} features, but the model expects {model.n_features_in_}; embed the records "
            "with the encoder that the model was fitted on."
        )
    check_encoder(table, model.encoder_, shown)
    if model.encoder_ is not None and stated(table, ENCODER) is None:
        note(
            f"{shown} does not name its encoder, so it was not compared with the model's."
        )
    return table
