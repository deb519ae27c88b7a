"""`dppl train`: from raw images or texts to a private model in one command."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dppl import io
from dppl._utils.progress import progress
from dppl.cli._models import load_model
from dppl.cli._output import echo, note, print_model, printable, tell_owner
from dppl.cli._paths import MODEL, check_output, overlaps, refuse_private
from dppl.cli._records import Engine, Persons, X, Y, labels_hint, reading
from dppl.cli._request import argument, option, request
from dppl.cli._training import Fitting, Method
from dppl.cli.embed import load_encoder, resumable
from dppl.cli.fit import summary
from dppl.errors import InputError, ParameterError
from dppl.io.records.urls import shown_as

if TYPE_CHECKING:
    from dppl.encoders import Encoder


@request(panel="data")
class Training(X, Y, Fitting):
    """Labelled images or texts that a model is trained on, and what is left of a training."""

    data: str = argument("DATA", "Labelled images or texts, as for `dppl embed`.")
    read: list[str] = reading("labels")

    @property
    def folder(self) -> Path:
        """Folder for the work."""
        return self.out.with_name(f"{self.out.name}.work")

    def asked(self, encoder: str, *read: Path | None) -> str:
        """Return what was typed, and sizes and times of the files that are read: a repeat of the run has the same."""
        typed = asdict(self)
        for name in ("force", "engine"):  # which change no model
            typed.pop(name, None)
        # Such as the schema of columns:FILE.
        of_encoder = [Path(part) for part in re.split("[:@?]", encoder) if part]
        found = []
        for path in (self.path, self.classes, self.labels, *read, *of_encoder):
            if path is None or not path.exists():
                continue
            for one in [path, *path.rglob("*")]:
                about = one.lstat()
                found.append((str(one), about.st_size, about.st_mtime_ns))
        return json.dumps([typed, sorted(found)], default=str, sort_keys=True)

    def was_killed_at_its_end(self, asked: str) -> bool:
        """Finish a run that was killed after it had saved its model, and return whether there was one."""
        from dppl.training.pipeline import finish

        digest = finish(self.out, self.folder, asked)
        if digest is None:
            return False
        guarantee = load_model(self.out).guarantee_
        ledger = self.account()["ledger"]
        for charge in guarantee.charges:
            if ledger is not None:
                ledger.saved(charge, digest)
        print_model(guarantee, self.out, "It was saved by a run that was killed then.")
        return True

    def check_outputs(self, *read: Path | None) -> Path:
        """Refuse what cannot be written; return the report for the owner."""
        from dppl.training.pipeline import report_of

        folder = self.folder
        report = report_of(self.out)
        inputs = (
            *(self.path, self.classes, self.labels, *read),
            *self.account_file(),
        )
        # Both are written at the end of hours of work.
        check_output(self.out, inputs, force=self.force, suffixes=MODEL)
        check_output(report, inputs, force=self.force)
        if overlaps(folder, inputs):
            raise ParameterError(
                f"{folder}, the folder for the tables, must neither hold what is read nor lie in it; choose another "
                "--out."
            )
        return report

    def open_labelled(self) -> io.Source:
        """Open the records, which must have labels."""
        source = self.open_source()
        if source.label_type is None:
            raise ParameterError(
                f"{self.shown()} has no labels; {labels_hint(source)}."
            )
        return source

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Name the command that removes what another run left."""
        from dppl.io.tables.shards import OtherOptions, SourceChanged

        try:
            yield
        except (OtherOptions, SourceChanged) as error:
            if (self.folder / "private").is_dir():
                path = shlex.quote(str(self.folder))
                error.add_note(f"To start over, type: rm -r {path}")
            raise


@request("encoder", "out", "classes", "epsilon", "delta", "start")
class Train(Training, Persons, Method, Engine):
    r"""Embed images or texts, train a private classifier, and save it.

    Does what `dppl embed` and `dppl fit` do, one after the other. After an
    interruption the same command continues where it stopped; embeddings are
    kept in MODEL.work until the model is saved. Records that cannot be used
    are skipped and listed in MODEL.private.jsonl, for the owner of the data
    only. How many they are is private: type `dppl check` with the same data first.

    For example:

      dppl check mails.csv --x body --y folder --classes folders.txt

      dppl train mails.csv --x body --y folder --encoder minilm \
        --public sentences.txt --classes folders.txt \
        --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl train scans/ --encoder vit-b-16 --public photos/ \
        --classes classes.txt --epsilon 1 --delta 1e-6 --out my.safetensors
    """

    encoder: str | None = option(
        "URI",
        "Frozen public encoder, as for `dppl embed`. With --start, default that of that model.",
        None,
    )
    read: list[str] = reading("labels", "labels_separator")
    public: Path | None = option(
        "POOL", "Public images or texts, or their embeddings by the same encoder.", None
    )
    descriptions: str = option(
        "names|FILE|none",
        "Public descriptions of the classes, which softmax starts from: their names; a CSV file with the columns class "
        "and text; a folder with a subfolder of images for each class; or none. Never written or chosen by looking at "
        "private records. Default: names for texts, if all are words.",
        "auto",
    )

    def run(self) -> None:
        """Embed, fit, save and print."""
        from dppl.encoders.load import check_name, is_code, names_of_columns
        from dppl.training import pipeline
        from dppl.training.descriptions import described, names_by_default

        uri, width = self._encoder()
        data = self.path
        public = self.public
        how = self.descriptions
        described_in = None
        if how not in ("auto", "names", "none"):
            described_in = Path(how)
        # What is public is checked first, so that a slip costs neither time nor budget.
        private = (data, self.labels, self.folder / "private")
        refuse_private(public, private, "public")
        refuse_private(described_in, private, "descriptions")
        read = (public, described_in, self.start)
        asked = self.asked(uri, *read)
        if self.was_killed_at_its_end(asked):
            return
        report = self.check_outputs(*read)
        engine = self.tasks()
        budget = self.budget()
        classes = self.class_list()
        if how == "" or (described_in is not None and not described_in.exists()):
            raise ParameterError(
                f"must be names, none, or an existing file or folder; there is no {how!r}.",
                parameter="descriptions",
            )
        estimator = self.estimator(budget, classes, public)
        examples = None
        if how not in ("auto", "none"):
            examples = described(described_in or how, estimator)
        account = self.account()
        if "kind" not in self.how and data.suffix.lower() in (".npy", ".npz"):
            raise ParameterError(
                f"{self.shown()} is a table of embeddings, not of raw records; train on it with dppl fit "
                f"{self.shown()}."
            )
        source = self.open_labelled()
        # The encoder loads last, since it takes long and all of this can still refuse.
        check_name(uri)
        with progress("reading labels"):
            pipeline.refuse_early(estimator, source, width=width, **account)
        encoder = load_encoder(uri)
        pool = None
        if public is not None:
            # A schema names the columns of public rows, too.
            columns = io.Columns(names_of_columns(uri))
            pool = _open_public(public, encoder, columns)
        if how == "auto":
            examples = names_by_default(estimator, encoder)
        windows = getattr(encoder, "text_windows", None)
        self.check_first(lambda: (source, classes, None, windows), fit=True)
        note(budget.weakness)
        self.note_persons()
        with self.stoppable():
            pipeline.train(
                estimator,
                source,
                encoder,
                self.out,
                self.folder,
                public=pool,
                examples=examples,
                overwrite=self.force,
                columns=self.columns(),
                asked=asked,
                compared=True,
                engine=engine,
                watch=partial(_watch, self.folder),
                **account,
            )
        # Printed when all is done: whoever reads a pipe may go away before.
        code = ""
        if is_code(uri):
            code = " --encoder URI, as here"
        self.print_release(estimator, account, summary(estimator), code)
        if (
            how == "auto"
            and self.start is None
            and estimator.starts_from_examples
            and encoder.modality == "text"
            and examples is None
        ):
            echo(
                "The classes are not described, since some names are not words; see --descriptions."
            )
        tell_owner("the model", printable(report))

    def _encoder(self) -> tuple[str, int]:
        """Return the encoder, of the start where none is typed, and a width to plan a fit with."""
        from dppl._utils.fingerprint import Fingerprint
        from dppl.encoders.load import is_surely_another, refuse_code

        typed = self.encoder
        width = 384  # at any a fit costs the same
        if self.start is not None:
            start: Any = load_model(self.start)
            if getattr(start, "encoder_", None) is None:
                raise ParameterError("must name its encoder.", parameter="start")
            width = start.n_features_in_
            named = Fingerprint.parse(start.encoder_).uri
            if typed is None:
                refuse_code(named)
                typed = named
            elif is_surely_another(typed, named):
                raise ParameterError(
                    f"is by the encoder {named}, and --encoder names another. Leave --encoder out to take that one.",
                    parameter="start",
                )
        if typed is None:
            raise ParameterError("--encoder URI is required.")
        return typed, width


@contextmanager
def _watch(
    folder: Path, records: io.Source | None
) -> Iterator[Callable[[int], object] | None]:
    """Show how far it is; an interrupted embedding says how to continue."""
    if records is None:
        with progress("fitting"):
            yield None
    else:
        with resumable(folder), progress("embedding", records.count) as advance:
            yield advance


def _open_public(
    public: Path, encoder: Encoder, columns: io.Columns
) -> io.Source | io.EmbeddingTable:
    """Open public records, or their embeddings by this encoder."""
    from dppl._utils.fingerprint import same_encoder

    if not io.holds_embeddings(public):
        try:
            return io.open_source(public, columns=columns)
        except InputError as error:  # options say how DATA is read, not this
            raise InputError(f"{shown_as(public)}: {error}") from None
    table = io.read_table(public, y=None)
    named = table.metadata.get("encoder")
    if table.shape[1] != encoder.dimension or (
        named and not same_encoder(named, encoder.fingerprint.text())
    ):
        raise InputError(
            f"{shown_as(public)} must hold embeddings by the encoder that --encoder names; they are by another one."
        )
    return table
