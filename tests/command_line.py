"""Commands in this process, with streams that can be read afterwards; and which there are, with which options."""

import io
import sys
from copy import copy
from types import SimpleNamespace

import pytest
from cyclopts import App, ArgumentCollection

from dppl.cli.main import COMMANDS, app_with, run

ASSEMBLE = App.assemble_argument_collection
ASSEMBLED = {}


def assembled(app, **options):
    """Return the options of a command, of which no process but that of the tests asks thousands of times.

    Cyclopts takes longer for this than most commands take for all else.
    """
    key = (id(app), *options.items())
    if key not in ASSEMBLED:
        ASSEMBLED[key] = app, ASSEMBLE(app, **options)
    copies = {id(one): copy(one) for one in ASSEMBLED[key][1]}
    for one in copies.values():
        one.tokens = []  # what is typed
        one.children = ArgumentCollection(copies[id(child)] for child in one.children)
    return ArgumentCollection(copies.values())


def invoke(arguments, input="", env=None):
    """Run `dppl`; return its streams, its exit code, and the exception that it ended with, if not with code 0."""
    streams = {
        "stdin": io.TextIOWrapper(io.BytesIO(input.encode()), "utf-8"),
        "stdout": io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True),
        "stderr": io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        patch.setattr(App, "assemble_argument_collection", assembled)
        with pytest.raises(SystemExit) as end:
            run([*map(str, arguments)])
    stdout, stderr = (
        streams[name].buffer.getvalue().decode() for name in ("stdout", "stderr")
    )
    return SimpleNamespace(
        stdout=stdout,
        stderr=stderr,
        output=stdout + stderr,
        exit_code=end.value.code,
    )


def commands():
    """Return the app of every command, by what is typed for it."""
    found = {}
    whole = app_with(COMMANDS)
    for name in COMMANDS:
        if whole[name].default_command is not None:
            found[name] = whole[name]
            continue
        for part in whole[name]:
            if not part.startswith("-"):
                found[f"{name} {part}"] = whole[name][part]
    return found


def arguments(name):
    """Return the arguments and options of a command, by the name of the field."""
    collection = commands()[name].assemble_argument_collection()
    return {one.field_info.name: one for one in collection}


def are_options_of(words):
    """Return whether all options in a command that is typed exist."""
    command = next(
        name for name in commands() if words[: len(name.split())] == name.split()
    )
    known = {option for one in arguments(command).values() for option in one.names}
    known |= {flag for flag in commands()[command] if flag.startswith("--")}
    return {word for word in words if word.startswith("--")} <= known
