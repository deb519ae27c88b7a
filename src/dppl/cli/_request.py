"""Commands from requests: a dataclass says what a command is asked, and its options, types and help follow from that.

A field is an option that is called as the field is (``max_records`` is ``--max-records``), and a parameter of the
library that is called so, too. A field whose type is another dataclass is a group of options that commands share.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

import typer

__all__ = ["argument", "command", "flag_of", "option", "request"]

_Type = TypeVar("_Type")


def option(
    metavar: str, text: str, default: Any = MISSING, *, typed: dict[str, str] | None = None, **limits: Any
) -> Any:
    """Return the field of an option; without a default it is required.

    `typed` says what is typed for parameters of the library that it stands for besides the one of its name.
    """
    return field(default=default, metadata={"metavar": metavar, "help": text, "typed": typed or {}, **limits})


def flag(text: str) -> Any:
    """Return the field of an option without a value."""
    return field(default=False, metadata={"help": text})


def argument(metavar: str, text: str, default: Any = MISSING) -> Any:
    """Return the field of an argument, which has no dashes."""
    return field(default=default, metadata={"metavar": metavar, "help": text, "argument": True})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option, flag, argument))
def request(*first: str, panel: str | None = None) -> Callable[[type[_Type]], type[_Type]]:
    """Return a decorator for a request or a group of options.

    The options that `first` names stand first in the help of a command, and all others under "Advanced", those of a
    group in the panel of their own.
    """

    def made(kind: type[_Type]) -> type[_Type]:
        whole = dataclass(frozen=True, kw_only=True)(kind)
        whole._first, whole._panel = first, panel  # type: ignore[attr-defined]
        return whole

    return made


def flag_of(parameter: str) -> str:
    """Return what is typed for a parameter."""
    return f"--{parameter.replace('_', '-')}"


def command(run: Callable[[Any], None]) -> Callable[..., None]:
    """Return the function that typer makes a command of: its parameters are the fields of the request of `run`."""
    (kind,) = (hint for name, hint in get_type_hints(run).items() if name == "request")
    first = {name: place for place, name in enumerate(kind._first)}
    parameters = sorted(_parameters(kind, kind._first, None), key=lambda one: first.get(one.name, len(first)))

    def called(**given: Any) -> None:
        run(_filled(kind, given))

    called.__name__, called.__doc__ = run.__name__, run.__doc__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    called.typed = _typed(kind)  # type: ignore[attr-defined]
    return called


def _parameters(kind: Any, first: tuple[str, ...], panel: str | None) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a request, those of its groups in their places."""
    hints = get_type_hints(kind)
    for one in fields(kind):
        hint = hints[one.name]
        if is_dataclass(hint):
            yield from _parameters(hint, first, hint._panel)  # type: ignore[union-attr]
            continue
        advanced = "Advanced" if panel is None else f"Advanced: {panel}"
        info = _info(one, None if one.name in first or not first else advanced)
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        yield inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, info]
        )


def _typed(kind: Any) -> dict[str, str]:
    """Return what is typed for parameters that options stand for besides their own."""
    hints = get_type_hints(kind)
    typed: dict[str, str] = {}
    for one in fields(kind):
        typed |= _typed(hints[one.name]) if is_dataclass(hints[one.name]) else one.metadata.get("typed", {})
    return typed


def _info(one: Field[Any], panel: str | None) -> Any:
    """Return what typer is told about a field; the help says the default itself."""
    told = {name: value for name, value in one.metadata.items() if name != "typed"}
    if told.pop("argument", False):
        return typer.Argument(show_default=False, **told)
    return typer.Option(flag_of(one.name), rich_help_panel=panel, show_default=False, **told)


def _filled(kind: Any, given: dict[str, Any]) -> Any:
    """Return a request with the values that were typed."""
    hints = get_type_hints(kind)
    groups = {one.name: hints[one.name] for one in fields(kind) if is_dataclass(hints[one.name])}
    own = {one.name: given[one.name] for one in fields(kind) if one.name not in groups}
    return kind(**own, **{name: _filled(group, given) for name, group in groups.items()})
