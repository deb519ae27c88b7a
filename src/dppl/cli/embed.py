"""`dppl embed`: raw images or texts to a table of embeddings, with a frozen public encoder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dppl import io, training
from dppl._utils.progress import progress
from dppl.cli._output import console, echo, note, printable, table_of, tell_owner
from dppl.cli._pairs import parse_pairs
from dppl.cli._records import Engine, Persons, X, Y, labels_hint, reading
from dppl.cli._request import argument, option, request
from dppl.cli._unusable import BeforeCharge
from dppl.errors import ParameterError

if TYPE_CHECKING:
    from dppl.encoders import Encoder

SILENCE = "Progress is shown on terminals alone, since a file of it would reveal how many records there are"
_OPTIONS = ("rows", "workers", "shard_rows", "precision")


def _list_encoders() -> None:
    """List the encoders: what they embed, their licence, and how to install them."""
    from dppl.encoders import list_encoders

    entries = list_encoders()
    screen = console()
    rows = (
        (
            entry.name,
            entry.kind,
            entry.dimension or "as the model",
            entry.licence,
            ("no", "yes")[entry.installed],
        )
        for entry in entries
    )
    headings = ("name", "embeds", "features", "licence of weights", "installed")
    screen.print(table_of(headings, rows, ("features",), box=None, pad_edge=False))
    of_texts: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        if entry.windows:
            of_texts.setdefault((entry.languages, entry.windows), []).append(entry.name)
    for (languages, windows), names in of_texts.items():
        said = f"Texts ({', '.join(names)}): {languages}, in {windows}, unless ?max_windows=N says how many."
        screen.print(said, soft_wrap=True)
    for entry in entries:
        if entry.install:
            screen.print(f"{entry.name}: {entry.install}", soft_wrap=True)


@request("out", "encoder", "x", "y")
class Embed(X, Y, Persons, BeforeCharge, Engine):
    r"""Embed raw images or texts with a frozen public encoder.

    Writes a folder of Parquet shards for `dppl fit`. After an interruption the
    same command continues, and the result is the same, byte for byte.

    Records that cannot be used (damaged or huge images, empty texts) are
    skipped and listed in TABLE.report.jsonl. The table and the report are as private
    as the records: they stay with their owner, and no guarantee protects them.

    For example:

      dppl embed photos/ --encoder timm:vit_base_patch16_224 --out train
      dppl embed mails.csv --x body --y folder --encoder minilm --out train
    """

    data: str = argument(
        "SOURCE",
        "Folder of images or of .parquet files; .csv, .tsv, .jsonl, .parquet, .txt, .xlsx, .ods; or a database.",
    )
    read: list[str] = reading("labels")
    out: Path = option(
        "TABLE", "Folder to write: a new one, or an unfinished one to continue."
    )
    encoder: str = option("URI", "Frozen public encoder.")
    options: list[str] = option(
        "NAME=VALUE",
        "May be repeated. rows: float16, int8 or float32, how embeddings are stored, by default float16. workers: "
        "threads that read and decode, by default one for each core, at most 8. shard_rows: records in a shard, by "
        "default 512 images or 4096 others. precision: float32 or float16, of the encoder's arithmetic.",
        (),
    )

    def run(self) -> None:
        """Embed the records and print where the table is."""
        out = self.out
        if (
            not out.parent.is_dir()
            or out.name in ("", "..")
            or (out.exists() and not out.is_dir())
        ):
            raise ParameterError(
                f"must name a folder in an existing one; got {out}.", parameter="out"
            )
        if out.resolve().is_relative_to(self.path.resolve()):
            raise ParameterError(
                f"must be outside SOURCE; {out} is in it.", parameter="out"
            )
        options = parse_pairs(self.options, "options", _OPTIONS)
        precision = options.pop("precision", "auto")
        options["unusable"] = "stop" if self.unusable == "stop" else "skip"
        engine = self.tasks()
        # The source is opened before the encoder is loaded, which takes seconds.
        records = self.open_source()
        self.check_first(lambda: (records, None))
        encoder = load_encoder(self.encoder, precision)
        with resumable(out), progress("embedding", records.count) as advance:
            done = training.embed(
                records, encoder, out, progress=advance, engine=engine, **options
            )
        echo(
            f"Table: {printable(out)}"
            + ("" if done.is_new else ", finished before; nothing to do")
        )
        if records.label_type is None:
            echo(
                f"The table has no labels, which dppl predict does not need; for a fit {labels_hint(records)}."
            )
        else:
            persons = ""
            if self.groups is not None:
                persons = f" --groups {io.PERSON}"
            echo(f"Next: dppl fit {printable(out)}{persons} --classes FILE ...")
        tell_owner("the table", printable(done.report))


FLAGS = {"--encoders": _list_encoders}


def load_encoder(encoder: str, precision: str = "auto") -> Encoder:
    """Load an encoder, and say so if a person is watching, because it takes a while."""
    from dppl import encoders
    from dppl.encoders.load import languages

    said = [languages(encoder)]
    if not sys.stderr.isatty():
        said.append(SILENCE)
    note(" ".join(f"{one}." for one in said if one))
    with progress(f"loading {encoder}"):
        return encoders.load_encoder(encoder, precision=precision)  # type: ignore[arg-type]


@contextmanager
def resumable(place: Path, works: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Tell a user who interrupts the work how to continue it, if that is possible."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if works():
            stop.add_note(
                f"The same command continues where it stopped; what is done is kept in {place}."
            )
        raise
