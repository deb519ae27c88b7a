"""What a comparison knows of a method: its name, its estimator, what is fixed, and what a search may choose."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Self

from dppl import Classifier, lab
from dppl.encoders.python import public_code
from dppl.errors import InputError
from dppl.io.records.labels import converting
from dppl.kernel.privacy import Budget
from dppl.lab import retrained
from dppl.methods.parameters import with_options
from dppl.methods.public_data import PublicData
from dppl.methods.registry import BY_NAME

PYTHON = "python:"  # before a file and a class of one's own
# What the runner passes itself.
_GIVEN = ("budget", "classes", "random_state")


class Range(NamedTuple):
    """A hyper-parameter between two numbers, searched on a logarithmic scale."""

    low: float
    high: float


Space = Mapping[str, Range | tuple[Any, ...]]  # a range, or the values to choose from


@dataclass(frozen=True, slots=True)
class ComparedMethod:
    """One way to train a classifier."""

    label: str  # name in tables and figures
    estimator: str  # a class of the registry, or one of `dppl.lab` that is not private
    fixed: Mapping[str, Any] = field(
        default_factory=dict
    )  # parameters that make the method what it is
    public: bool = True  # whether it may read public rows that it can do without
    needs_examples: bool = (
        False  # whether a fit is impossible without public examples of the classes
    )
    from_base: bool = False  # whether it is given public rows of other classes
    space: Space = field(default_factory=dict)  # hyper-parameters to search
    # values for what neither a configuration nor a search sets, where the class's own
    # defaults would miss the point
    defaults: Mapping[str, Any] = field(default_factory=dict)
    # of a classifier of streams: the method of single fits whose settings it takes, and
    # the parameter that takes them, where it is one
    searched_as: str | None = None
    nested: str | None = None

    @property
    def of_images(self) -> bool:
        """Whether it is given images, and not embeddings."""
        return False

    @property
    def pure(self) -> bool:
        """Whether it spends budgets of pure DP."""
        return BY_NAME[self.estimator].pure

    @property
    def private(self) -> bool:
        """Whether it spends a budget; references give no guarantee."""
        return self.estimator in BY_NAME

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters that a configuration may set."""
        names = with_options(self._load()._get_param_names())
        return [name for name in names if name not in (*_GIVEN, *self.fixed)]

    def build(
        self,
        budget: Budget | None,
        classes: Any,
        random_state: int,
        parameters: Mapping[str, Any],
        public: PublicData | None = None,
    ) -> Any:
        """Return the unfitted classifier."""
        given: dict[str, Any] = {}
        if self.private:
            given = {
                "budget": budget,
                "classes": classes,
                "random_state": random_state,
            }
        kind = self._load()
        if self.private and "public" in kind._get_param_names():
            given["public"] = public
        return kind(**given, **self.fixed).set_params(**parameters)

    def sized(self, model: Any, n_records: float) -> Any:
        """Return the classifier for so many records: those of embeddings need no number."""
        return model

    def taken(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a search chose, as parameters."""
        if self.nested is None:
            return dict(settings)
        return {self.nested: dict(settings)}

    def uses_public(self, parameters: Mapping[str, Any]) -> bool:
        """Return whether a fit with these parameters reads public rows where there are some."""
        role = self.public_rows(parameters)
        return role == "required" or (role == "optional" and self.public)

    def overlaps(self, parameters: Mapping[str, Any]) -> bool:
        """Return whether tasks of a stream may share records with these parameters, so that their costs add up."""
        return bool(
            parameters.get("tasks", getattr(self._load(), "tasks", "disjoint"))
            == "overlapping"
        )

    def public_rows(self, parameters: Mapping[str, Any]) -> str:
        """Return what public rows are to a fit with these parameters."""
        if not self.private:
            return "unused"
        model = self.build(None, None, 0, parameters)
        by_lattice = model.lattice is not None and model.lattice.reads_public_rows
        if by_lattice and model.public_rows == "unused":
            return "required"
        return str(model.public_rows)

    def _load(self) -> Any:
        if self.private:
            return BY_NAME[self.estimator].load()
        return getattr(lab, self.estimator)


class RetrainedMethod(ComparedMethod):
    """A method of single fits, fitted again in every task of a stream."""

    pure = False
    private = True

    def _load(self) -> Any:
        return getattr(retrained, self.estimator)


class OwnMethod(ComparedMethod):
    """A classifier of one's own, ``python:FILE.py:CLASS``."""

    pure = False
    private = True

    @classmethod
    def named(cls, name: str) -> str:
        """Return the name with a hash of the code, so that results of other code are not taken for its own."""
        place, kind = _parts(name)
        with converting(f"{name} must be python:FILE.py:CLASS"):
            digest = sha256(Path(place).read_bytes()).hexdigest()
        return f"{PYTHON}{place}:{kind}@{digest[:8]}"

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the method of a name with a hash."""
        _, kind = _parts(name)
        return cls(kind.replace("@", " "), name)

    def overlaps(self, parameters: Mapping[str, Any]) -> bool:
        """Return that it does not: streams take none of one's own."""
        return False

    def _load(self) -> Any:
        return _own_class(self.estimator)


def _parts(name: str) -> tuple[str, str]:
    """Return the file and the class of the name of a method of one's own."""
    place, _, kind = name.removeprefix(PYTHON).rpartition(":")
    return place, kind


@cache
def _own_class(name: str) -> Any:
    """Run the file and return the class; once for each hash."""
    place, kind = _parts(name)
    kind, _, _ = kind.partition("@")
    found = public_code(place, kind)
    if not (isinstance(found, type) and issubclass(found, Classifier)):
        raise InputError(f"{kind} of {place} must be a subclass of dppl.Classifier.")
    return found


class Methods(dict[str, ComparedMethod]):
    """Methods by name; those of one's own are made when they are asked for."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).startswith(PYTHON)

    def __missing__(self, name: str) -> ComparedMethod:
        if name not in self:
            raise KeyError(name)
        return OwnMethod.of(name)
