"""The app `dppl`, and the one place where failures become a line on stderr and an exit code.

Exit codes::

    0    done
    1    a bug in dppl
    2    usage: an option breaks its rule, or the output file exists
    3    budget: the mechanism cannot spend it
    4    input: a table, label, class list, model file or ledger that cannot be used
    5    audit: a violation was found
    6    bench, continual: some cells failed
    130  interrupted
    141  the reader of stdout went away
    143  told to end by SIGTERM; 129 by SIGHUP

No exception reaches the user as a traceback, because tracebacks can show private values; with DPPL_DEBUG=1 those of
bugs do. Python warnings are not shown either: whether one appears may depend on private records.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn

import typer

from dppl._progress import shown_by
from dppl._version import __version__
from dppl.cli._commands import SETTINGS, Commands
from dppl.cli._output import STDOUT, printable
from dppl.errors import BudgetError, DpplError, ParameterError

# The first type that fits decides.
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (ParameterError, 2),
    (FileExistsError, 2),
    (BudgetError, 3),
    (DpplError, 4),
    (OSError, 4),
    (MemoryError, 4),
)
# A parameter and its value as programs write them, in messages of the library.
_FOR_PYTHON = re.compile(r"\b(\w+)='([\w-]+)'")
_BROKEN_PIPE = 128 + 13
_INTERRUPTED = 128 + 2


class _Ended(KeyboardInterrupt):
    """A signal asked the process to end; it does so by the way that removes temporary folders."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = number


def _end(number: int, _: object) -> None:
    # One more signal would cut the cleaning short, and leave embeddings of private records behind.
    for other in (signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGTERM,):
        signal.signal(other, signal.SIG_IGN)
    raise _Ended(number)


class _Commands(Commands):
    """The group of commands, with our own way to fail in the place of typer's."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        """Run the command line `args` and exit."""
        arguments = list(sys.argv[1:] if args is None else args) or ["--help"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = self._exit_code(arguments)
        sys.exit(code)

    def _exit_code(self, arguments: list[str]) -> int:
        options: dict[str, str] = {}
        try:
            # Commands say themselves who sees how far a fit is; several have the screen already.
            with self.make_context("dppl", arguments, obj=options) as context, shown_by(None):
                self.invoke(context)
            sys.stdout.flush()  # here, so that a full disk or a closed pipe shows now and not after the last line
        except typer.Exit as stop:
            return stop.exit_code
        except KeyboardInterrupt as stop:
            how = "told to end" if isinstance(stop, _Ended) else "interrupted"
            typer.echo(printable(" ".join([f"dppl: {how}.", *getattr(stop, "__notes__", [])])), err=True)
            return 128 + stop.signal if isinstance(stop, _Ended) else _INTERRUPTED
        except BrokenPipeError:
            _forget_stdout()
            return _BROKEN_PIPE
        except Exception as error:
            return _report(error, options)
        return 0


def _report(error: Exception, options: Mapping[str, str]) -> int:
    """Print the one line that says what `error` means to a user; return its exit code."""
    if hasattr(error, "format_message"):  # typer's usage errors; their module differs between its versions
        return _fail(_usage_message(error), 2)
    for kind, code in _CODES:
        if isinstance(error, kind):
            return _fail(_message(error, options), code)
    if os.environ.get("DPPL_DEBUG") == "1":
        traceback.print_exception(error)
    return _fail(
        f"{type(error).__name__}. This is a bug in dppl; please report it. DPPL_DEBUG=1 shows where it happened, "
        "and may show private values.",
        1,
    )


def _usage_message(error: Any) -> str:
    text = error.format_message()
    context = getattr(error, "ctx", None)
    if context is None:
        return str(text)
    text = text.rstrip(".")
    return f"{text}{'' if text.endswith('?') else '.'} Try: {context.command_path} --help"


def _message(error: Exception, options: Mapping[str, str]) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory."  # NumPy's text would name the shape of a private array
    if isinstance(error, OSError):
        broken = _forget_stdout_if_broken()
        if error.strerror:
            name = STDOUT if error.filename is None and (broken or _raised_by_printing(error)) else error.filename
            where = "" if name is None else f"{name}: "
            return " ".join([f"{where}{error.strerror}.", *getattr(error, "__notes__", [])])
    text = _as_typed(error, options) if isinstance(error, DpplError) else str(error)
    return " ".join([text, *getattr(error, "__notes__", [])])


def _as_typed(error: DpplError, options: Mapping[str, str]) -> str:
    """Return a message of the library with the options of the command in the place of parameters."""
    text, parameter = str(error), error.parameter
    if parameter is not None:
        # Of a parameter within an object, such as ``public.rows``, the part that the command has.
        flags = [options[part] for part in (parameter, *reversed(parameter.split("."))) if part in options]
        if flags:
            text = flags[0] + error.text.removeprefix(parameter)
            if error.suggestion is not None:
                text += f" Try {flags[0]} {shlex.quote(error.suggestion)}"
    return _FOR_PYTHON.sub(lambda found: f"{options[found[1]]} {found[2]}" if found[1] in options else found[0], text)


def _raised_by_printing(error: OSError) -> bool:
    """Tell whether what prints raised an error, which then names no file."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals["__name__"].partition(".")[0] in ("click", "rich", "typer") or frame.f_code.co_name == (
        "_exit_code"
    )


def _fail(message: str, code: int) -> int:
    line = printable(" ".join(message.split()))
    typer.echo(f"dppl: error: {line}", err=True)
    return code


def _forget_stdout_if_broken() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        _forget_stdout()
        return True
    return False


def _forget_stdout() -> None:
    """Drop what stdout holds back: Python would try to write it once more at the end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    **SETTINGS,
    cls=_Commands,
    name="dppl",
    epilog="Exit codes: 0 done; 1 a bug; 2 usage, or the output exists; 3 a budget that cannot be spent; "
    "4 a table, label, class list, model file or ledger that cannot be used; 5 an audit found a violation; "
    "6 cells of an experiment failed; 130 interrupted; 143 ended by SIGTERM.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dppl {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    r"""Differentially private classifiers on embeddings of frozen, publicly pre-trained encoders.

    A model is one small file with a guarantee, and may be published.

    For example:

      dppl demo
      dppl fit train.npz --classes classes.txt --epsilon 1 --delta 1e-6 \
        --out my.safetensors
      dppl show my.safetensors
      dppl predict my.safetensors new.npz > labels.txt
    """


def run() -> None:
    """Entry point of the command `dppl`."""
    for name in ("SIGTERM", "SIGHUP"):  # told to end, or the terminal is gone
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    for stream in (sys.stdout, sys.stderr):
        # Class names may hold characters that the terminal's encoding lacks; an escape is better than a crash.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app()


if __name__ == "__main__":
    run()
