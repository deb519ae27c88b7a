"""The command `dppl`, and the one place where failures become a line on stderr and an exit code.

No exception reaches the user as a traceback, because tracebacks can show private
values; with DPPL_DEBUG=1 bugs show theirs. Python warnings are not shown either:
whether one appears may depend on private records.
"""

from __future__ import annotations

import difflib
import os
import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnusedCliTokensError,
)

from dppl.cli._commands import COMMANDS, app_with
from dppl.cli._output import echo, printable
from dppl.errors import Argument, DpplError, ErrorKind

_UNUSABLE = 4  # the exit code of all other errors
_CODES = {
    ErrorKind.PARAMETER: 2,
    ErrorKind.BUDGET: 3,
    ErrorKind.BUDGET_EXCEEDED: 3,
}
# What a value must be, by the name of its type.
_VALUES = {"int": "a whole number", "float": "a number", "bool": "yes or no"}
_BROKEN_PIPE = 128 + 13

# What asks a process to end: a caller, or the terminal that is gone.
_ENDS = [
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class _Ended(KeyboardInterrupt):
    """A signal asked the process to end; it does so by the way that removes temporary folders."""


def _end(number: int, _: object) -> None:
    # One more signal would cut the cleaning short, and leave embeddings of private
    # records behind.
    for other in _ENDS:
        signal.signal(other, signal.SIG_IGN)
    raise _Ended(number)


def run(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line `args`, or what was typed, and exit."""
    if args is None:
        _prepare_process()
    arguments = list(sys.argv[1:] if args is None else args) or ["--help"]
    code: Any = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if arguments[0] == "--install-completion":
                app = app_with(COMMANDS)
                app.register_install_completion_command()
            else:
                app = app_with(arguments[:1])  # all of them take seconds to import
            app(
                arguments,
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
        sys.stdout.flush()  # here, so that a full disk or a closed pipe shows now and not after the last line
    except SystemExit as stop:
        code = stop.code
    except KeyboardInterrupt as stop:
        if isinstance(stop, _Ended):
            how, number = ("terminated", stop.args[0])
        else:
            how, number = ("interrupted", signal.SIGINT)
        _say(" ".join([f"dppl: {how}.", *getattr(stop, "__notes__", [])]))
        code = 128 + number
    except BrokenPipeError:
        _forget_broken()
        code = _BROKEN_PIPE
    except Exception as error:
        code, message = described_error(error)
        _say(f"dppl: error: {' '.join(message.split())}")
    sys.exit(code)


def _say(text: str) -> None:
    """Write a last line on stderr; where nobody can read it, the exit code says what it can."""
    try:
        echo(printable(text), err=True)
    except OSError:
        _forget_broken()


def described_error(error: Exception) -> tuple[int, str]:
    """Return the exit code of an error, and the line that says what it means to a user."""
    if isinstance(error, CycloptsError):
        typed = " ".join(["dppl", *(error.command_chain or ())])
        return 2, f"{_usage(error)} Try: {typed} --help"
    if isinstance(error, DpplError):
        code = _CODES.get(error.kind, _UNUSABLE)
        return code, _message(error, getattr(error, "typed", {}))
    if isinstance(error, OSError | MemoryError):
        code = 2
        if not isinstance(error, FileExistsError):
            code = _UNUSABLE
        return code, _message(error, {})
    if os.environ.get("DPPL_DEBUG") == "1":
        traceback.print_exception(error)
    return 1, (
        f"{type(error).__name__}. This is a bug in dppl; please report it. DPPL_DEBUG=1 shows where it happened, "
        "and may show private values."
    )


def _usage(error: CycloptsError) -> str:
    """Return what is wrong with what was typed."""
    argument = error.argument
    if isinstance(error, MissingArgumentError) and argument is not None:
        value = argument.parameter.metavar or ""
        shape = f"{argument.name} {value}".strip().replace("\\", "")
        if error.keyword is not None:
            return f"A value is missing: {shape}."
        others = {one for one in error.unused_tokens or () if one.startswith("--")}
        near = difflib.get_close_matches(argument.name, others, n=1)
        slip = f", not {near[0]}" if near else ""
        return f"Missing: {shape}{slip}."
    if isinstance(error, RepeatArgumentError):
        return f"{error.token.keyword} is typed more than once; leave all but one out."
    if isinstance(error, UnusedCliTokensError):
        return f"Too many arguments: {' '.join(error.unused_tokens or ())}."
    if isinstance(error, CoercionError) and argument is not None and error.token:
        kind = _VALUES.get(getattr(error.target_type, "__name__", ""), "another value")
        return f"{argument.name} must be {kind}; got {error.token.value!r}."
    return str(error)


def _message(error: Exception, typed: Mapping[str, str]) -> str:
    """Return what an error says, with what is typed for parameters of the library."""
    text = str(error)
    if isinstance(error, MemoryError):
        return (
            "not enough memory."  # NumPy's text would name the shape of a private array
        )
    if isinstance(error, OSError) and error.strerror:
        # The system's words name no content, so a file and they are enough.
        name = error.filename or ("standard output" if _is_of_stdout(error) else None)
        text = f"{'' if name is None else f'{name}: '}{error.strerror}."
    elif isinstance(error, DpplError):
        called = error.parameter
        if called is not None:
            called = typed.get(_part(called, typed), called)
        text = error.told(called, lambda one: _as_typed(one, typed))
    return " ".join([text, *getattr(error, "__notes__", [])])


def _part(parameter: str, typed: Mapping[str, str]) -> str:
    """Return of a parameter within an object, such as ``public.rows``, the part that the command has."""
    parts = (parameter, *reversed(parameter.split(".")))
    return next((part for part in parts if part in typed), parameter)


def _as_typed(one: Argument, typed: Mapping[str, str]) -> str:
    """Return what is typed for a parameter with a value."""
    name = _part(one.name, typed)
    value = shlex.quote(one.text)
    if name not in typed:
        if "options" in typed:
            return f"{typed['options']} {name}={value}"
        return str(one)
    option = typed[name]
    if one.value is True:
        return option
    # An argument has no name to type, and an option such as `--read id` an equals sign.
    if not option.startswith("-"):
        return value
    if " " in option:
        return f"{option}={value}"
    return f"{option} {value}"


def _is_of_stdout(error: OSError) -> bool:
    """Return whether standard output is what cannot be written."""
    if sys.stdout in _forget_broken():
        return True
    # A failed flush may have dropped the text, so the place of the failure decides.
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1:]
    printers = ("cyclopts", "rich", "dppl.cli._output", "dppl.cli.main")
    return any(frame.f_globals["__name__"].startswith(printers) for frame in frames)


def _forget_broken() -> list[Any]:
    """Drop what stdout and stderr hold back and cannot write; return which do.

    Python would try to write it once more at the end, and complain.
    """
    broken = []
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            broken.append(stream)
    return broken


def _prepare_process() -> None:
    """End at a signal by way of what cleans up, have all streams, and write in a fixed encoding."""
    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    # A service, or a Python without a console, may start with some of them closed. In
    # this order each takes its own number, which a file of results would take.
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open to the end
    for stream in (sys.stdout, sys.stderr):
        # Files of labels are UTF-8 on every system. A terminal's encoding may lack a
        # character of a class name; an escape is better than a crash.
        encoding = None if stream.isatty() else "utf-8"
        stream.reconfigure(encoding=encoding, errors="backslashreplace")  # type: ignore[union-attr]
