"""Parameters of estimators: fields of their classes, documented once; and the groups that some of them form."""

import inspect
import re
from collections.abc import Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
)

import numpy as np
from numpy.typing import ArrayLike

from dppl._utils import validate

# What `check_values` holds the value of a parameter to that is annotated with it.
Count: TypeAlias = Annotated[int, validate.positive_integer]
Positive: TypeAlias = Annotated[float, validate.positive]
Share: TypeAlias = Annotated[float, validate.open_unit]
Probability: TypeAlias = Annotated[float, validate.probability]
ClosedUnit: TypeAlias = Annotated[float, validate.closed_unit]

Kind = TypeVar("Kind", bound=type)

# The seed of public rotations, where nobody chose another. Any fixed number does.
ROTATION = 0
# Sections of a docstring that a class shares with its bases.
_HEADINGS = ("Parameters", "Attributes")
_SECTIONS = re.compile(r"\n\n(?=\w+\n---)")
_ENTRY = re.compile(r"^(\w+) : .*(?:\n(?: .*)?)*", re.MULTILINE)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def parameters(kind: Kind) -> Kind:
    """Make the fields of a class its parameters, and complete its docstring with the entries of its bases."""
    dataclass(eq=False, repr=False, kw_only=True)(kind)
    if kind.__doc__ is None:  # python -OO
        return kind
    # The first class in the order of resolution that documents a name has the word.
    entries: dict[str, dict[str, str]] = {heading: {} for heading in _HEADINGS}
    for base in kind.__mro__:
        for section in _SECTIONS.split(
            inspect.cleandoc(vars(base).get("__doc__") or "")
        )[1:]:
            known = entries.get(section.partition("\n")[0], {})
            for entry in _ENTRY.finditer(section):
                known.setdefault(entry[1], entry[0].rstrip())
    documented = entries["Parameters"]
    names = inspect.signature(kind).parameters
    entries["Parameters"] = {
        name: documented[name] for name in names if name in documented
    }
    text, *sections = _SECTIONS.split(inspect.cleandoc(kind.__doc__))
    merged = [
        "\n".join([heading, "-" * len(heading), *own.values()])
        for heading, own in entries.items()
        if own
    ]
    others = [one for one in sections if one.partition("\n")[0] not in _HEADINGS]
    kind.__doc__ = "\n\n".join([text, *merged, *others])
    return kind


def check_values(estimator: Any) -> None:
    """Hold each parameter to its annotation: to the rule of its numbers, and to its literal texts."""
    for name, hint in _hints(estimator.__class__).items():
        value = getattr(estimator, name)
        if get_origin(hint) in (Annotated, Literal):
            kinds = (hint,)
        else:
            kinds = get_args(hint)
        rules = [
            kind.__metadata__[0] for kind in kinds if get_origin(kind) is Annotated
        ]
        texts: list[Any] = []
        for kind in kinds:
            if get_origin(kind) is Literal:
                texts += get_args(kind)
        if value is None and type(None) in kinds:
            continue
        # Of a parameter that may be something else as well, only a text has to be one
        # of these.
        if texts and (
            isinstance(value, str) or all(get_origin(kind) is Literal for kind in kinds)
        ):
            validate.one_of(texts, **{name: value})
        elif rules:
            rules[0](**{name: value})


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the annotations of a class's parameters."""
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        with suppress(NameError):  # of what only a type checker imports
            hints |= inspect.get_annotations(base, eval_str=True)
    return {
        name: hints[name]
        for name in inspect.signature(kind).parameters
        if name in hints
    }


@dataclass(frozen=True, eq=False, kw_only=True)
class LatticeOptions:
    """How embeddings become lattice rows: a public choice.

    Parameters
    ----------
    pool : int, default=1
        Kernel size of average pooling over neighbouring coordinates (the papers'
        k_pool).
    center : array-like of shape (n_features,) or "public", default=None
        Public mean that is subtracted from unit rows; ``"public"`` takes the mean of
        the public rows.
    rotation : int or "auto", default=None
        Seed of a public rotation, for encoders with a few huge coordinates; ``"auto"``
        rotates if the public rows need it.

    Examples
    --------
    >>> from dppl import ApproxDP, LatticeOptions, MeanPrototypes
    >>> model = MeanPrototypes(ApproxDP(1, 1e-6), ["a", "b"], lattice=LatticeOptions(pool=2))
    >>> model.set_params(lattice__rotation="auto").lattice
    LatticeOptions(pool=2, center=None, rotation='auto')
    """

    pool: int = 1
    center: ArrayLike | Literal["public"] | None = None
    rotation: int | Literal["auto"] | None = None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            map(np.array_equal, vars(self).values(), vars(other).values())
        )

    def __hash__(self) -> int:
        return hash((self.pool, str(self.rotation)))

    @property
    def reads_public_rows(self) -> bool:
        """Whether the lattice depends on public rows."""
        return isinstance(self.center, str) or isinstance(self.rotation, str)


@parameters
class LatticeParameter:
    """Mixin of methods whose lattice may be chosen.

    Parameters
    ----------
    lattice : LatticeOptions, default=None
        How embeddings become lattice rows. None normalises them and does no more. In a
        grid or on the command line one of its options is ``lattice__pool``,
        ``lattice__center`` or ``lattice__rotation``.
    """

    lattice: LatticeOptions | None = None


@parameters
class PersonsParameter:
    """Mixin of methods in which a person may count in several classes.

    Parameters
    ----------
    max_classes_per_person : int, default=None
        In how many classes a person counts at most, in a fit with ids of persons: the
        commonest. None is all for `SoftmaxPrototypes`, where their number costs
        nothing, and 1 elsewhere. More than 1 means more noise there: class sums by the
        square root of the number, selections by the number.
    """

    max_classes_per_person: Count | None = None


@parameters
class StartParameter:
    """Mixin of methods that may start from a released model.

    Parameters
    ----------
    start : model or path, default=None
        A released model of this class, or its file: of an earlier quarter, of another
        institution, or of public records. It is public, so it costs its own records
        nothing; whoever is in the data of both pays for both (docs/quarters.md).
        Classes are matched by name, and each is believed as far as releases bear it
        out.
    """

    start: Any = None

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted copy whose start stays fitted."""
        given: Any = self
        return type(given)(**deepcopy(given.get_params(deep=False)))


# Parameters that are public data, which files and ledgers name by a hash if at all.
PUBLIC = {"public", "start"}
# Parameters that are groups of options, which ``name__option`` sets one by one.
GROUPS = {"lattice": LatticeOptions}


def with_options(names: Iterable[str]) -> list[str]:
    """Return names of parameters, and of the options of those that are groups."""
    known = set(names)
    for name in known & GROUPS.keys():
        fields = GROUPS[name].__dataclass_fields__
        known |= {f"{name}__{option}" for option in fields}
    return sorted(known)


def same_value(one: Any, other: Any) -> bool:
    """Return whether two values of a parameter are equal, arrays included."""
    if any(
        hasattr(value, "__array__") or isinstance(value, list | tuple | range)
        for value in (one, other)
    ):
        first = np.asarray(one)
        second = np.asarray(other)
        return first.dtype.kind == second.dtype.kind and np.array_equal(first, second)
    return type(one) is type(other) and bool(one == other)
