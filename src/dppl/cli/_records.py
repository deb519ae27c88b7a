"""Options that say where records are, how they are read, and which columns they have."""

from __future__ import annotations

import os
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

from dppl import engines, io
from dppl.cli._output import note
from dppl.cli._pairs import parse_pairs
from dppl.cli._request import argument, option, request
from dppl.errors import InputError, ParameterError
from dppl.io.records.urls import shown_as

MISSING_IDS = "a record without a person id counts as a person: who has several such records is protected less"


# What --read says, by name; the first six of raw records.
_READ = {
    "kind": "auto, images, csv, jsonl, parquet, text, excel",
    "id": "column of ids of records, not of persons",
    "encoding": "of a file of lines; by default UTF-8",
    "sheet": "of a workbook; by default the first",
    "header": "number of the row that names the columns, if titles above it have the same names",
    "sql": "query that selects texts, with ORDER BY or an id; DATA is then a .duckdb or .sqlite file, a URL of "
    "SQLAlchemy, or env:VARIABLE that holds one, since lists of processes show passwords",
    "x": "column of texts, images or embeddings",
    "labels": "file of labels apart: of images a CSV file of files and labels; else .npy, .txt or .csv, one a line",
    "labels_separator": 'what separates the labels of a record that may have several, or none, such as ";"',
}


def reading(*names: str, raw: bool = True, what: str = "DATA") -> Any:
    """Return the option that says how records are read."""
    taken = [*list(_READ)[:6], *names] if raw else names
    text = " ".join(
        [
            f"How {what} is read; may be repeated.",
            *(f"{name}: {_READ[name]}." for name in taken),
        ]
    )
    return option(
        "NAME=VALUE",
        text,
        (),
        typed={name.removeprefix("labels_"): f"--read {name}" for name in taken},
    )


@request(panel="data")
class Records:
    """Where records are and how they are read: embeddings, or raw images and texts."""

    data: str = argument(
        "DATA", "Embeddings (see `dppl fit`), or images or texts (see `dppl embed`)."
    )
    read: list[str] = reading()

    @cached_property
    def how(self) -> dict[str, Any]:
        """What ``--read`` says, by name."""
        (typed,) = (one.metadata["typed"] for one in fields(self) if one.name == "read")
        known = [option.removeprefix("--read ") for option in typed.values()]
        how: dict[str, Any] = parse_pairs(self.read, "read", known, literal=False)
        if "header" in how:
            if not how["header"].isdecimal():
                raise ParameterError(
                    f"must be the number of a row; got {how['header']!r}.",
                    parameter="header",
                )
            how["header"] = int(how["header"])
        return how

    @property
    def path(self) -> Path:
        """DATA as a path; a database, which may be a URL, is only read as the text that was typed."""
        return Path(self.data)

    @property
    def labels(self) -> Path | None:
        """The file of labels apart."""
        if "labels" in self.how:
            return Path(self.how["labels"])
        return None

    def again(self) -> list[str]:
        """Return what another command takes to read the same records in the same way."""
        # A URL of a database may hold a password.
        words = ["DATA" if "://" in self.data else self.data]
        for name in ("x", "y", "groups"):
            if (value := getattr(self, name, None)) is not None:
                words += [f"--{name}", value]
        for one in self.read:
            words += ["--read", one]
        return words

    def shown(self) -> str:
        """Return DATA as messages show it, without a password."""
        if "sql" in self.how:
            return "the query"
        return shown_as(self.path)

    def several(self) -> Any:
        """Return how labels are given, where a record may have several."""
        from dppl.kernel.label_sets import MultiLabel

        if "labels_separator" in self.how:
            return MultiLabel(self.how["labels_separator"])
        return None

    def columns(self) -> io.Columns:
        """Return the columns that are named."""
        # Not every command asks for labels, for persons, or for an encoder.
        names = ("x", "y", "groups", "encoder")
        x, y, person, encoder = (getattr(self, name, None) for name in names)
        x = x or self.how.get("x")
        if encoder is not None:
            from dppl.encoders.load import names_of_columns

            # The schema is public, and says by itself what is read of a record.
            of_schema = names_of_columns(encoder)
            if of_schema and x:
                raise ParameterError(
                    "is for texts and images; the schema names the columns.",
                    parameter="x",
                )
            x = of_schema or x
        return io.Columns(x, y, self.how.get("id"), person)

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
            if name not in ("x", "id", "labels_separator")
        }
        place = path or (self.database() if "sql" in how else self.path)
        return io.open_source(place, columns=columns or self.columns(), **how)

    def holds_embeddings(self) -> bool:
        """Return whether DATA is a table of embeddings, and not raw records."""
        raw = "sql" in self.how or self.how.get("kind", "auto") != "auto"
        x = self.columns().x
        return not raw and io.holds_embeddings(
            self.path, x=x if isinstance(x, str) else "x"
        )

    def open_any(self, classes: Any) -> tuple[Any, ...]:
        """Return what a report is about: a table, the classes and ids of persons, or a source and the classes."""
        if not self.holds_embeddings():
            return self.open_source(), classes
        named = self.columns()
        x = named.x if isinstance(named.x, str) else "x"
        table = io.read_table(self.path, x=x, y=named.y or "y", labels=self.labels)
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


@request(panel="engine")
class Engine:
    """Where the work is done."""

    engine: str = option(
        "local|ray|ADDRESS",
        "ray: in tasks of Ray on this machine; auto or ray://HOST:10001: on a cluster (docs/scale.md). After ? what a "
        "task takes, such as 'ray?gpus=1'. Default local.",
        "local",
        typed={"cores": "cores of --engine", "gpus": "gpus of --engine"},
    )

    def tasks(self) -> engines.Engine | None:
        """Return what spreads the work, or None where this process does it."""
        return None if self.engine == "local" else engines.engine_of(self.engine)


def labels_hint(records: io.Source) -> str:
    """Say where labels of this kind of source come from."""
    kind = records.parameters["kind"]
    if kind == "images":
        return "sort the images into a folder for each class, or name a CSV file with --read labels"
    if kind == "text":
        return "write the texts with their labels as a CSV file"
    return "name their column with --y"


def require_labels(table: io.EmbeddingTable | io.PartedTable, path: Path) -> Any:
    """Return the labels of a table; None of one in parts, where they stay."""
    labels = getattr(table, "y", None)
    if labels is None and not getattr(table, "labelled", False):
        raise InputError(
            f"{shown_as(path)} has no labels; name their array or column with --y, or their file with --read labels."
        )
    return labels
