"""Commands as dataclasses: the fields say what a command is asked, the docstring is its help, and `run` does it.

A field is an option that is called as the field is (``n_records`` is ``--n-records``,
``for_`` is ``--for``), and a parameter of the library that is called so, too. Options
that commands share are fields of classes from which they inherit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import (
    Annotated,
    Any,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from cyclopts import Parameter, Token
from cyclopts.validators import Number

from dppl.errors import DpplError

__all__ = ["argument", "command", "flag", "option", "request"]

_Type = TypeVar("_Type")


def option(
    metavar: str,
    text: str,
    default: Any = MISSING,
    *,
    typed: dict[str, str] | None = None,
    min: int | None = None,
    max: int | None = None,
    **settings: Any,
) -> Any:
    """Return the field of an option; without a default it is required.

    `typed` says what is typed for parameters of the library that it stands for besides
    the one of its name. `min` and `max` are of a whole number; `settings` are those of
    a parameter of cyclopts.
    """
    if min is not None:
        settings |= {"validator": Number(gte=min, lte=max), "converter": _whole}
    # A column of names is markup, in which a bracket would open a tag.
    settings |= {"metavar": metavar.replace("[", r"\["), "help": text}
    return field(default=default, metadata={"typed": typed or {}, "settings": settings})


def flag(text: str, typed: dict[str, str] | None = None) -> Any:
    """Return the field of an option without a value; `typed` as of `option`."""
    return option("", text, False, typed=typed)


def argument(metavar: str, text: str, default: Any = MISSING, **settings: Any) -> Any:
    """Return the field of an argument, which has no dashes; `settings` as of `option`."""
    settings |= {"name": metavar, "help": text}
    return field(default=default, metadata={"typed": {}, "settings": settings})


def _whole(_: Any, tokens: Sequence[Token]) -> int:
    """Convert a whole number; cyclopts would round 3.7."""
    return int(tokens[0].value)


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(option, flag, argument)
)
def request(
    *first: str, panel: str | None = None
) -> Callable[[type[_Type]], type[_Type]]:
    """Return a decorator for a command, or for options that commands inherit.

    The options that `first` names stand first in the help of a command, and all others
    under "Advanced", inherited ones in the panel of their class.
    """

    def made(kind: type[_Type]) -> type[_Type]:
        # Frozen: what was typed is what the library gets.
        whole: Any = dataclass(frozen=True, kw_only=True)(kind)
        whole._first = first
        whole._panel = f"Advanced: {panel}" if panel else "Advanced"
        return whole  # type: ignore[no-any-return]

    return made


def command(kind: Any) -> Callable[..., None]:
    """Return the function that cyclopts makes a command of: its parameters are the fields of `kind`, which it runs."""
    # A command's own fields come before inherited ones; each is in the panel of the
    # class that it comes from.
    panels: dict[str, str] = {}
    for owner in kind.__mro__[:-1]:
        for name in inspect.get_annotations(owner):
            panels[name] = owner._panel
    # Commands with few options have no panels.
    for name in kind._first or list(panels):
        panels[name] = ""
    by_name = {one.name: one for one in fields(kind)}
    hints = get_type_hints(kind)
    typed: dict[str, str] = {}
    parameters: list[inspect.Parameter] = []
    for name in dict.fromkeys([*kind._first, *panels]):
        settings: dict[str, Any] = {"name": f"--{name.rstrip('_').replace('_', '-')}"}
        if panels[name]:
            settings["group"] = panels[name]
        settings |= by_name[name].metadata["settings"]
        typed |= {name: settings["name"]} | by_name[name].metadata["typed"]
        parameters.append(_parameter(by_name[name], hints[name], settings))
    signature = inspect.Signature(sorted(parameters, key=lambda one: one.kind))

    def called(*values: Any, **options: Any) -> None:
        given = signature.bind(*values, **options).arguments
        try:
            kind(**given).run()
        except DpplError as error:
            error.typed = typed  # type: ignore[attr-defined]  # what its parameters are called here
            raise

    # cyclopts reads a name, a docstring and a signature.
    called.__name__ = kind.__name__.lower()
    called.__doc__ = inspect.cleandoc(kind.__doc__)
    called.__signature__ = signature  # type: ignore[attr-defined]
    called.__annotations__ = {}
    return called


def _parameter(
    of: Field[Any], hint: Any, settings: dict[str, Any]
) -> inspect.Parameter:
    """Return the parameter of a field."""
    place: Any = inspect.Parameter.KEYWORD_ONLY
    if "metavar" not in settings:  # an argument
        settings.pop("group", None)
        place = inspect.Parameter.POSITIONAL_ONLY
        if get_origin(hint) is list:
            settings["required"] = True
            place = inspect.Parameter.VAR_POSITIONAL
            (hint,) = get_args(hint)
    return inspect.Parameter(
        of.name,
        place,
        default=inspect.Parameter.empty if of.default is MISSING else of.default,
        annotation=Annotated[hint, Parameter(**settings)],
    )
