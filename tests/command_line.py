"""Commands in this process, with streams that can be read afterwards; and which there are, with which options."""

import io
import sys
from types import SimpleNamespace

import pytest

from dppl.cli.main import COMMANDS, app_with, run


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
