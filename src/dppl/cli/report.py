"""`dppl report`: one page about a model, for people."""

from __future__ import annotations

from pathlib import Path

import typer

from dppl._files import write_atomically
from dppl.cli._groups import Items
from dppl.cli._output import note, printable
from dppl.cli._paths import check_inputs, check_output, opened_pool
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError

_FORMS = ("html", "markdown", "json")
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown", ".json": "json"}
_STDOUT = "-"


@request("out", "results", "ledger", "public", "force")
class Report:
    """What `dppl report` is asked."""

    model: Path = argument("MODEL", "Model file of `dppl fit`, `dppl train` or `dppl finetune`.")
    out: Path = option("FILE", "Page to write, or - for stdout. Default report.html.", Path("report.html"))
    results: list[Path] = option(
        "FILE",
        "What `dppl evaluate --json` printed, or `dppl bench run` or `dppl continual run` wrote; one of each kind.",
        (),
    )
    ledger: str | None = option(
        "FILE", "Ledger that paid for the model; only the account of its data set is shown.", None
    )
    public: Path | None = option("POOL", "Public images or texts among which a model of public rows selected.", None)
    format: str | None = option("html|markdown|json", "Form of the report. Default: as FILE ends.", None)
    by: str | None = option("NAME", "Who made the model, as the page shall say.", None)
    items: Items
    force: bool = flag("Replace the output file if it exists.")


def report(request: Report) -> None:
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
    from dppl.statement import make_report  # here, because the help of a command needs no scikit-learn

    model, out, results, ledger, public = request.model, request.out, request.results, request.ledger, request.public
    to_stdout = str(out) == _STDOUT
    form = _form(request.format, out, to_stdout)
    if public is None and (request.items.x or request.items.read):
        raise ParameterError("--x and --read go with --public POOL; name it too.")
    read = [*results, *([] if ledger is None or "://" in ledger else [Path(ledger)])]
    if not to_stdout:
        check_output(out, (model, public, *read), force=request.force)
    check_inputs(model, public, *results)
    pool = None if public is None else opened_pool(public, request.items)
    made = make_report(model, results=results, ledger=ledger, public=pool, by=request.by)
    if made.dict()["evaluation"] is not None:
        note("figures computed on private records are not covered by the model's guarantee.")
    text = {"html": made.html, "markdown": made.markdown, "json": made.json}[form]()
    if to_stdout:
        typer.echo(text, nl=False)
        return
    write_atomically(out, text.encode("utf-8"), overwrite=request.force)
    typer.echo(f"Report: {printable(out)}")


def _form(form: str | None, out: Path, to_stdout: bool) -> str:
    """Return the form that is asked for, by name or by how the file ends."""
    if form is not None and form not in _FORMS:
        raise ParameterError(f"--format must be one of {', '.join(_FORMS)}; got {form!r}.")
    found = form or ("html" if to_stdout else _SUFFIXES.get(out.suffix.lower()))
    if found is None:
        raise ParameterError(f"--out must be - or end in {', '.join(_SUFFIXES)}, or add --format; got {out}.")
    return found
