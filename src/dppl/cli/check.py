"""`dppl check`: what only the owner of private records may see."""

from __future__ import annotations

import shlex
import sys

from dppl._utils.progress import progress
from dppl.cli._output import console, echo, print_json, printable
from dppl.cli._owner import WARNING, print_report, report_on, verdict_on
from dppl.cli._records import Persons, Records, X, Y, reading
from dppl.cli._request import flag, option, request
from dppl.cli._training import Classes
from dppl.errors import ParameterError


@request("classes", "x", "y", "groups", "read", "json")
class Check(X, Y, Persons, Classes, Records):
    r"""Report on private records, before a fit: bad ones, unknown labels, class sizes.

    For the data owner's eyes only: the report describes private records, and
    no guarantee protects it. Type it before `dppl train`, `dppl fit` and `dppl
    finetune`: they skip a bad record (under replace-one a row counts as one of
    zeros) and say nothing about it, even if it is every one. The first line says
    GO or STOP, and the last one what to type next. Rows are counted from 1,
    without a header. The exit code is 4 at STOP. Choose the budget with `dppl plan`, not
    with this report: that is a choice made by looking at private records.

    For example:

      dppl check mails.csv --classes classes.txt
      dppl check notes.csv --read encoding=cp1252 --classes classes.txt
      dppl check notes.xlsx --read sheet=2026 --classes classes.txt
      dppl check notes.duckdb --classes classes.txt \
        --read sql="select text, label from notes order by id"
      dppl check train.npy --read labels=y.txt --classes classes.txt --json
      dppl check mails.csv --x body --groups customer --classes folders.txt
      dppl check letters.csv --classes classes.txt --encoder minilm
    """

    read: list[str] = reading("labels", "labels_separator")
    encoder: str | None = option(
        "URI",
        "Encoder of texts, to also count those longer than it reads; only its tokenizer is loaded. Or columns:SCHEMA, "
        "to count the cells that are missing, unknown or beyond the bounds.",
        None,
    )
    exit_zero: bool = flag("Exit with 0 at STOP, too.")
    json: bool = flag("Print JSON.")

    def run(self) -> None:
        """Read everything and print the report."""
        from dppl.encoders.load import languages

        about = self.open_any(self.class_list())
        modality = getattr(about[0], "modality", None)
        default = "URI"
        if modality == "text":
            default = "minilm"
        encoder = self.encoder or default
        if self.encoder is not None:
            # Here, because few ask for it.
            from dppl.encoders.load import load_windows, schema_of

            if modality not in ("text", "row"):
                raise ParameterError(
                    f"is for texts, which an encoder may cut; {self.shown()} holds none.",
                    parameter="encoder",
                )
            reads = load_windows if modality == "text" else schema_of
            about = (*about[:2], None, reads(self.encoder))
        with progress("reading"):
            report = report_on(*about, several=self.several())
        echo(WARNING, err=self.json)
        # By the same rule as the first line, so that scripts and people agree.
        goes, _ = verdict_on(report)
        if self.json:
            verdict = "go" if goes else "stop"
            print_json({"for_the_owner_only": WARNING, "verdict": verdict, **report})
        else:
            print_report(report, console())
            if language := languages(encoder):
                echo(f"The encoder {language}.")
            echo(f"{'Next' if goes else 'Then'}: {self._next(encoder)}")
        if not goes and not self.exit_zero:
            sys.exit(4)

    def _next(self, encoder: str) -> str:
        """Return the command that trains on these records, read in this way."""
        words = [*self.again(), "--classes", str(self.classes)]
        if self.holds_embeddings():
            command = "fit"
        else:
            command = "train"
            words += ["--encoder", encoder]
        words += ["--epsilon", "1", "--delta", "1e-6", "--out", "model.safetensors"]
        return printable(f"dppl {command} {shlex.join(words)}")
