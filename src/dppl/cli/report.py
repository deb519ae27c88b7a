"""`dppl report`: one page about a model, for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dppl._files import write_atomically
from dppl.cli import _options as options
from dppl.cli._options import option
from dppl.cli._output import note, printable
from dppl.cli._paths import check_inputs, check_output
from dppl.errors import ParameterError
from dppl.io import Columns, holds_embeddings, open_source

_FORMS = ("html", "markdown", "json")
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown", ".json": "json"}
_STDOUT = "-"
_POOL = "Public pool"


@options.first("out", "results", "ledger", "public", "force")
def report(
    model: options.Model,
    out: Annotated[Path, option("FILE", "Page to write, or - for stdout. Default report.html.")] = Path("report.html"),
    results: Annotated[
        list[Path] | None,
        option(
            "FILE",
            "What `dppl evaluate --json` printed, or `dppl bench run` or `dppl continual run` wrote; one of each kind.",
        ),
    ] = None,
    ledger: Annotated[
        str | None, option("FILE", "Ledger that paid for the model; only the account of its data set is shown.")
    ] = None,
    public: Annotated[
        Path | None, option("POOL", "Public images or texts among which a model of public rows selected.")
    ] = None,
    form: Annotated[
        str | None,
        option("html|markdown|json", "Form of the report. Default: as FILE ends.", None, "--format"),
    ] = None,
    by: Annotated[str | None, option("NAME", "Who made the model, as the page shall say.")] = None,
    x: Annotated[
        str | None, option("NAME", "Column of texts or images. Default as for `dppl embed`.", _POOL, "--x")
    ] = None,
    identity: Annotated[
        str | None, option("NAME", "Column of ids, if they were taken from one.", _POOL, "--id")
    ] = None,
    split: Annotated[str | None, option("NAME", "Split of a saved data set.", _POOL)] = None,
    force: options.Force = False,
) -> None:
    """Write a page about a model for people: what it does and promises, and how to check it.

    The page is one file without scripts that needs no network. A model file
    holds nothing private, and so does a page of it alone. What --results says
    was measured by whoever ran the command: the guarantee does not cover it,
    and a page with results on private records must not be published.

    For example:

      dppl report my.safetensors --out my.html
      dppl evaluate my.safetensors test.npz --json > test.json
      dppl report my.safetensors --results test.json --ledger ledger.db
      dppl report my.safetensors --public sentences.txt
      dppl report my.safetensors --format markdown --out - > README.md
    """
    from dppl.report import make_report  # here, because the help of a command needs no scikit-learn

    to_stdout = str(out) == _STDOUT
    form = _form(form, out, to_stdout)
    if public is None and (x, identity, split) != (None, None, None):
        raise ParameterError("--x, --id and --split go with --public POOL; name it too.")
    read = [*(results or ()), *([] if ledger is None or "://" in ledger else [Path(ledger)])]
    if not to_stdout:
        check_output(out, (model, public, *read), force=force)
    check_inputs(model, public, *(results or ()))
    pool = None
    if public is not None:
        if holds_embeddings(public):
            raise ParameterError(f"--public must be the images or texts themselves; {public} holds embeddings of them.")
        pool = open_source(public, columns=Columns(x=x, id=identity), split=split)
    made = make_report(model, results=results or (), ledger=ledger, public=pool, by=by)
    if made.dict()["evaluation"] is not None:
        note("figures computed on private records are not covered by the model's guarantee.")
    text = {"html": made.html, "markdown": made.markdown, "json": made.json}[form]()
    if to_stdout:
        typer.echo(text, nl=False)
        return
    write_atomically(out, text.encode("utf-8"), overwrite=force)
    typer.echo(f"Report: {printable(out)}")


def _form(form: str | None, out: Path, to_stdout: bool) -> str:
    """Return the form that is asked for, by name or by how the file ends."""
    if form is not None and form not in _FORMS:
        raise ParameterError(f"--format must be one of {', '.join(_FORMS)}; got {form!r}.")
    found = form or ("html" if to_stdout else _SUFFIXES.get(out.suffix.lower()))
    if found is None:
        raise ParameterError(f"--out must be - or end in {', '.join(_SUFFIXES)}, or add --format; got {out}.")
    return found
