"""`dppl fit`: release a model of private records. What it prints depends on public things and on what was released."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from dppl import io
from dppl._utils.files import Output, reserved
from dppl._utils.progress import progress
from dppl.cli._output import echo, note, tell_owner
from dppl.cli._paths import MODEL, check_output, refuse_private
from dppl.cli._records import Engine, Persons, X, Y, reading, require_labels
from dppl.cli._request import argument, option, request
from dppl.cli._training import Fitting, Method
from dppl.errors import InputError, ParameterError

# How files of raw records end, which are no tables.
_RAW = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")


@request("out", "classes", "epsilon", "delta", "public", "start")
class Fit(X, Y, Fitting, Persons, Method, Engine):
    r"""Train a private classifier and save it as one file that may be published.

    The classes come from a public file. What is printed depends only on
    public inputs and on what is released, with one exception: a label outside
    the classes stops the fit, unless --options unknown_labels=ignore skips its
    row. Other rows that cannot be used are skipped without a word, even if they
    are all: type `dppl check` with the same table first.

    For example:

      dppl check train.npz --classes classes.txt

      dppl fit train.npz --classes classes.txt --public web.npz \
        --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl fit q2.npz --start q1.safetensors --ledger wards.db wards/2026-Q2 \
        --epsilon 1 --delta 1e-6 --out q2.safetensors

      dppl fit scans.parquet --groups patient --classes classes.txt \
        --epsilon 1 --delta 1e-6 --out my.safetensors
    """

    data: str = argument(
        "TABLE",
        "Embeddings: .npy, .npz, .parquet, a folder of .parquet shards, or a URL of one; or a .toml file of "
        "institutions that answer by themselves (docs/federation.md).",
    )
    read: list[str] = reading("labels", "labels_separator", raw=False, what="TABLE")
    public: Path | None = option(
        "TABLE", "Public embeddings by the same encoder.", None
    )
    examples: Path | None = option(
        "TABLE",
        "softmax: public labelled embeddings to start from, never chosen by looking at private records.",
        None,
    )

    def run(self) -> None:
        """Fit, save and print."""
        institutions = self.path.suffix.lower() == ".toml"
        if institutions:
            usual: dict[str, Any] = {
                "read": (),
                "groups": None,
                "ledger": None,
                "unusable": "skip",
                "engine": "local",
            }
            for name in (
                name for name, value in usual.items() if getattr(self, name) != value
            ):
                raise ParameterError(
                    "is for a table; each institution has its own.", parameter=name
                )
        # What is public is checked first, so that a slip costs neither time nor budget.
        engine = self.tasks()
        table = self.path
        labels = self.labels
        x = self.x or "x"
        y = self.y or "y"
        check_output(
            self.out,
            (
                *(table, self.classes, labels, self.public, self.examples),
                self.start,
                *self.account_file(),
            ),
            force=self.force,
            suffixes=MODEL,
        )
        budget = self.budget()
        classes = self.class_list()
        for parameter in ("public", "examples"):
            refuse_private(getattr(self, parameter), (table, labels), parameter)
        for path in (table, self.public, self.examples):
            if path is not None and path.suffix.lower() in _RAW and path.is_file():
                raise InputError(
                    f"{path} is not a table of embeddings; if it holds raw records, train on them with dppl train "
                    f"{path} --encoder URI, or embed them first: dppl embed {path} --encoder URI --out FOLDER."
                )
        account = self.account()
        from dppl.methods import PublicData  # here, because no help needs it

        rows = None
        if self.public is not None:
            rows = io.read_table(self.public, x=x, y=None)
        examples = None
        if self.examples is not None:
            examples = io.read_table(self.examples, x=x, y=y)
        public = PublicData(rows, examples)
        if self.examples is not None:
            require_labels(public.examples, self.examples)
        # Every parameter is checked here, with nothing private read yet.
        model = self.estimator(budget, classes, self.public, public=public)
        if institutions:
            note(budget.weakness)
            self._fit_on_institutions(model)
        else:
            # Of the private table nothing is read before the fit but its shape, its
            # labels and its ids.
            here = partial(io.read_table, table, x=x, y=y, labels=labels)
            read: Any = here
            if engine is not None:
                read = partial(
                    io.read_parts, table, x=x, y=y, labels=labels, engine=engine
                )
            private = read()
            ids = self.read_ids()
            self.check_first(lambda: (here(), classes, ids), fit=True)
            note(budget.weakness)
            self.note_persons()
            with self.room_for(model, private, ids) as output:
                given = private, require_labels(private, table)
                with progress("fitting"):
                    if self.unusable == "stop" and not budget.is_zero:
                        model.check(*given, groups=ids)
                    model.fit(*given, groups=ids, **account)
                model.save(output)
        self.print_release(model, account, summary(model))
        if institutions:
            charges = "; ".join(map(str, model.guarantee_.charges))
            echo(f"Charged by each: {charges}.")
            return
        tell_owner("the model", "what dppl check TABLE --classes FILE prints")

    def room_for(
        self, model: Any, X: Any, groups: Any
    ) -> AbstractContextManager[Output]:
        """Take the room of the model file, before the fit is charged."""
        if isinstance(X, io.PartedTable):
            width = X.n_features
        else:
            width = X.shape[1]
        room = model.most_bytes(model.plan(width), X, groups)
        return reserved(self.out, room, overwrite=self.force)

    def _fit_on_institutions(self, model: Any) -> None:
        """Fit on institutions; their owners have said where records, labels, ids and ledgers are."""
        from dppl.federation import Federation
        from dppl.federation.settings import FederationFile, read

        if not any(one.startswith("unknown_labels=") for one in self.options):
            model.set_params(unknown_labels="ignore")
        settings = read(self.path, FederationFile)
        state = self.out.with_name(f"{self.out.name}.fit")
        with settings.way() as way, progress("fitting"):
            federation = Federation(way, state=state, missing=settings.missing)  # type: ignore[arg-type]
            note(federation.cost_in_words())
            with self.room_for(model, federation, federation.ids) as output:
                model.fit(federation)
                model.save(output)


def summary(model: Any) -> str:
    """Return what a model is."""
    from dppl.methods.start import chain_of  # here, because no help needs it

    started = ""
    if model.examples_ is not None:
        started = f" Started from public examples: {model.examples_}."
    for one in chain_of(model.guarantee_)[:1]:
        started = f" Started from the released model {one['sha256'][:12]}."
    shape = f"{len(model.classes_)} classes, {model.n_features_in_} features"
    return f"{type(model).__name__}: {shape}, {model.adjacency}.{started}"
