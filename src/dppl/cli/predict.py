"""`dppl predict`: labels of new records, which cost no further budget."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeGuard

from dppl import engines, io
from dppl._utils import validate
from dppl._utils.progress import progress
from dppl.cli._models import load_model, read_rows_for
from dppl.cli._output import echo, note, printable, require_stdout
from dppl.cli._paths import check_output
from dppl.cli._records import Engine, Records, X
from dppl.cli._request import argument, flag, option, request
from dppl.errors import DpplError, InputError, ParameterError
from dppl.io.records.record import EmptySource, NoRecords

if TYPE_CHECKING:
    from dppl.encoders import Encoder
    from dppl.finetune.tune import Finetuned
    from dppl.io.tables.shards import Window
    from dppl.methods import EmbeddingClassifier
    from dppl.prediction.predictions import Predictions
    from dppl.prediction.predictor import Predictor

_PIPE = Path("-")
# Records that a note names.
_LISTED = 20
_DATA = "Embeddings (see `dppl fit`), or images or texts (see `dppl embed`)"


@request(panel="encoder")
class OnModel(X, Records):
    """A model and the records that it meets."""

    model: Path = argument(
        "MODEL", "Model file of `dppl fit`, `dppl train` or `dppl finetune`."
    )
    data: str = argument(
        "DATA",
        f"{_DATA}; for `dppl predict` also - for texts on standard input.",
        allow_leading_hyphen=True,
    )
    encoder: str | None = option(
        "URI",
        "Where the model's encoder is, or the network of `dppl finetune`. Default: as the model names it.",
        None,
    )

    def holds_rows(
        self, model: EmbeddingClassifier | Finetuned
    ) -> TypeGuard[EmbeddingClassifier]:
        """Return whether the data are embeddings to classify, and if so refuse options for images and texts."""
        if not self.holds_embeddings():
            return False
        if is_network(model):
            raise InputError(
                f"{self.shown()} holds embeddings; a model of `dppl finetune` takes images."
            )
        if self.encoder:
            given = "encoder"
        elif self.how.keys() - {"labels", "labels_separator"}:
            given = "read"
        else:
            given = None
        if given is not None:
            raise ParameterError(
                f"is for images and texts, but {self.shown()} holds embeddings.",
                parameter=given,
            )
        return True

    def open_records(
        self,
        model: EmbeddingClassifier | Finetuned,
        path: Path | None = None,
        *,
        labelled: bool = False,
    ) -> io.Source:
        """Open images or texts; columns that no option names are those that the model remembers."""
        given = self.columns()
        kind = self.how.get("kind", "auto")
        try:
            remembers = self.labels is None and (
                "sql" in self.how or io.has_columns(path or self.path, kind)
            )
        except EmptySource:
            if labelled:
                raise
            return NoRecords()
        if remembers:
            known = getattr(model, "columns_", {})
        else:
            known = {}
        y = given.y or known.get("y") if labelled else None
        x = given.x or known.get("x") or self._of_schema(model)
        columns = replace(given, x=x, y=y, id=given.id or known.get("id"))
        try:
            return self.open_source(columns, path)
        except EmptySource:
            if labelled or self.labels is not None:
                raise
            return NoRecords()
        except InputError as error:
            if error.parameter != "id" or given.id is not None:
                raise
        # New records need not have the ids of those that were fitted.
        return self.open_source(replace(columns, id=None), path)

    def _of_schema(
        self, model: EmbeddingClassifier | Finetuned
    ) -> tuple[str, ...] | None:
        """Return the columns of the schema that a model was trained with, if it was."""
        from dppl._utils.fingerprint import Fingerprint
        from dppl.encoders.columns import columns_of

        encoder = getattr(model, "encoder_", None)
        columns = None if encoder is None else columns_of(Fingerprint.parse(encoder))
        return None if columns is None else tuple(one.name for one in columns)

    def load_predictor(
        self,
        model: EmbeddingClassifier | Finetuned,
        shares: Any = None,
        *,
        similarity: bool = False,
        trial: bool = True,
    ) -> Predictor:
        """Load the encoder."""
        from dppl.prediction.predictor import load_predictor

        with progress("loading the encoder"):
            return load_predictor(
                model, self.encoder, shares, similarity=similarity, trial=trial
            )

    @contextmanager
    def embedded(
        self,
        model: EmbeddingClassifier | Finetuned,
        source: io.Source,
        encoder: Encoder,
        engine: engines.Engine | None,
        *,
        ahead: bool = False,
    ) -> Iterator[Callable[[], Iterator[Window]]]:
        """Give the embeddings of a source, kept until the block ends: after an interruption the same command goes on.

        Tasks of an engine embed all before the block begins, and so does `ahead`, where
        embeddings can be kept.
        """
        from dppl._utils.files import locked
        from dppl.cli.embed import resumable
        from dppl.io.kept import kept_in, remove_older, state_place
        from dppl.training import embedding
        from dppl.training.pipeline import work_in

        maker = embedding.maker_of(encoder)
        place = state_place(f"{os.path.abspath(self.shown())} {maker}")
        remove_older(place, time.time())
        with ExitStack() as held:
            if engine is not None:
                if is_network(model):
                    raise ParameterError(
                        "is for models of `dppl fit` and `dppl train`.",
                        parameter="engine",
                    )
                folder = place.with_suffix(".work").expanduser()
                folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.enter_context(work_in(folder))
                # Whoever ends first removes it.
                busy = (
                    f"another process works on these records, in {folder}; wait for it."
                )
                held.enter_context(locked(folder, busy))
                held.enter_context(resumable(folder))
                with progress("embedding", source.count) as advance:
                    table = embedding.embed(
                        source,
                        encoder,
                        folder / "private",
                        rows="float32",
                        progress=advance,
                        engine=engine,
                    )
                try:
                    yield lambda: embedding.windows_of(source, table)
                except DpplError:
                    shutil.rmtree(folder)  # after a refusal, as `kept_in` does
                    raise
                return
            kept = None
            # What a network would keep are the images themselves.
            if not is_network(model):
                kept = held.enter_context(kept_in(place, maker))
            if kept is not None:
                file = kept
                held.enter_context(resumable(file.path, lambda: file.holds))

            def windows() -> Iterator[Window]:
                with progress("embedding", source.count) as advance:
                    yield from embedding.embed_windows(
                        source, encoder, progress=advance, kept=kept
                    )

            if ahead and kept is not None:
                deque(windows(), maxlen=0)
            yield windows


@request("out", "x", "encoder", "force")
class Predict(OnModel, Engine):
    """Label every row of a table, or every image or text of a source.

    Predictions cost no further budget. Stdout gets CSV with the id and label of
    each record, or one label per line for a table without ids. Images and texts
    are embedded with the encoder that the model names. Columns are the columns
    of `dppl train`, unless options name others. What cannot be used gets an
    empty label, and a note says where it is.

    Labels and probabilities are for classes that are equally frequent; with
    --shares data for classes as frequent as in the data of the fit, which makes
    labels right most often, and labels of a rare class seldom. Probabilities are
    rough: see docs/probabilities.md.

    --min-confidence and --min-similarity leave the label empty where the model
    should not answer; the column "reason" then says why. `dppl evaluate
    --max-error` chooses the first.

    A model of several labels a record writes them joined by its separator, and
    probabilities by label, which do not add up to 1. A record may have none.

    For example:

      dppl predict my.safetensors new.npz > labels.txt
      dppl predict my.safetensors new.csv --out labels.csv --top all
      dppl predict my.safetensors scans/ --out labels.parquet --min-confidence 0.8
      echo "my card was swallowed" | dppl predict my.safetensors - --top 3
    """

    out: Path = option(
        "FILE", ".csv or .parquet, or - for stdout.", _PIPE, allow_leading_hyphen=True
    )
    top: str = option(
        "K|all",
        "Write the K likeliest classes and their probabilities, too; all: the probability of every class.",
        "0",
    )
    min_confidence: float | None = option(
        "P", "Leave a label empty whose probability is below P.", None
    )
    min_similarity: float | None = option(
        "S",
        "Leave a label empty if the cosine with every class is below S; it is written, too.",
        None,
    )
    shares: str = option(
        "equal|data",
        "How frequent classes are: all alike, or as in the fit's data. Default equal.",
        "equal",
    )
    force: bool = flag("Replace the output file if it exists.")

    def run(self) -> None:
        """Predict, and print or write the labels."""
        from dppl._utils.files import unpaid, write_atomically
        from dppl.methods.released import ALWAYS, Least
        from dppl.prediction.predictions import SUFFIXES

        out = self.out
        suffix = self.out.suffix.lower()
        validate.one_of(("equal", "data"), shares=self.shares)
        every = self.top == "all"
        if not every and not self.top.isdecimal():
            raise ParameterError(
                f"must be a number of classes, or all; got {self.top!r}.",
                parameter="top",
            )
        top = 0 if every else int(self.top)
        least = Least(self.min_confidence, self.min_similarity)
        if out != _PIPE:
            check_output(
                out, (self.model, self.path), force=self.force, suffixes=SUFFIXES
            )
        elif self.engine != "local":
            # Ray may write to standard output itself, when a worker dies.
            raise ParameterError("needs --out FILE.", parameter="engine")
        else:
            require_stdout("the labels")
        model = load_model(self.model)
        # One label per line stays so, and no class name steers the terminal.
        if out == _PIPE and any(
            printable(name) != str(name) for name in model.classes_
        ):
            raise InputError(
                "a class name of this model holds a line break or another control character; use --out FILE.csv."
            )
        given = {
            "shares": self.shares == "data",
            "min_similarity": self.min_similarity is not None,
        }
        for name in (
            name for name, is_given in given.items() if is_given and is_network(model)
        ):
            raise ParameterError(
                "is for models of `dppl fit` and `dppl train`.", parameter=name
            )
        given["min_confidence"] = self.min_confidence is not None
        for name in (
            name for name, is_given in given.items() if is_given and model.multilabel
        ):
            raise ParameterError("is for models of one label a record.", parameter=name)
        with self._predicted(model) as (found, private):
            if least != ALWAYS:
                found = found.at_least(least)
            if out != _PIPE:
                content = found.content(suffix, proba=every, top=top)
                with unpaid():
                    write_atomically(
                        out, content, overwrite=self.force, private=private
                    )
        if out != _PIPE:
            echo(f"{len(found.labels)} labels in {printable(out)}")
        elif found.ids is None and not every and not top:
            lines = ("\n" if label is None else f"{label}\n" for label in found.texts)
            echo("".join(lines), end="")
        else:
            echo(found.content(".csv", proba=every, top=top).decode(), end="")

    @contextmanager
    def _predicted(
        self, model: EmbeddingClassifier | Finetuned
    ) -> Iterator[tuple[Predictions, bool]]:
        """Yield what a model says of the table or the source, and whether it is private to its owner."""
        from dppl.prediction.predictor import predict_table, predict_windows

        # Where only labels are asked for, the fewest computations: no probabilities.
        plain = self.top == "0"
        similarity = self.min_similarity is not None
        probable = (
            self.shares == "data"
            or not plain
            or similarity
            or self.min_confidence is not None
        )
        shares: Any = self.shares if probable else None
        engine = self.tasks()
        if self.path != _PIPE and self.holds_rows(model):
            x = self.x or "x"
            rows: Any = read_rows_for(model, self.path, x=x)
            ids = rows.ids
            if engine is not None:
                rows = io.read_parts(self.path, x=x, y=None, engine=engine)
            with progress("predicting"):
                found = replace(
                    predict_table(model, rows, shares, similarity=similarity), ids=ids
                )
            _note_unusable(
                [
                    f"row {place}"
                    for place, label in enumerate(found.labels, 1)
                    if label is None
                ]
            )
            yield found, False
            return
        with self._local_data() as path:
            source = self.open_records(model, path)
            predictor = self.load_predictor(
                model, shares, similarity=similarity, trial=False
            )
            with self.embedded(model, source, predictor.encoder, engine) as windows:
                found, unusable = predict_windows(windows(), predictor)
                _note_unusable(unusable)
                yield found, True

    @contextmanager
    def _local_data(self) -> Iterator[Path | None]:
        """Keep standard input in a file that only its owner may read, since sources are read twice."""
        if self.path != _PIPE:
            yield None
            return
        with TemporaryDirectory() as folder:
            path = Path(folder) / ("stdin.txt" if self.x is None else "stdin.csv")
            with path.open("xb") as content:
                shutil.copyfileobj(sys.stdin.buffer, content)
            try:
                yield path
            except DpplError as error:
                error.add_note(f"{path.name} is a copy of standard input.")
                raise


def is_network(model: EmbeddingClassifier | Finetuned) -> TypeGuard[Finetuned]:
    """Return whether a model is of `dppl finetune`."""
    from dppl.finetune.tune import Finetuned

    return isinstance(model, Finetuned)


def _note_unusable(places: Sequence[str]) -> None:
    if places:
        named = ", ".join(map(printable, places[:_LISTED]))
        rest = ""
        if len(places) > _LISTED:
            rest = f" and {len(places) - _LISTED} others"
        note(f"these cannot be used, and their labels are empty: {named}{rest}.")
