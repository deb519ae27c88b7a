"""What the service answers; OpenAPI is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Health", "ModelAnswer", "Nearest", "Prediction", "Predictions", "Probability", "Problem"]

Label = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Probability:
    """A class and its probability, for classes that are equally frequent."""

    label: Label
    probability: float


@dataclass(frozen=True, slots=True)
class Nearest:
    """A released prototype: its class, its cosine with the item, and the public row that it is, if it is one."""

    label: Label
    similarity: float
    public_row: int | None
    public_id: str | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is predicted of one item. Of one that cannot be used the label is null, and `reason` says why."""

    label: Label | None = None
    top: list[Probability] = field(default_factory=list)
    nearest: list[Nearest] = field(default_factory=list)
    probabilities: list[float] | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Predictions:
    """The answer to a prediction: one entry an item, in their order."""

    model: str
    predictions: list[Prediction]


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model: what it takes, its classes, its guarantee and its card."""

    name: str
    estimator: str
    takes: list[str]
    features: int | None
    encoder: str | None
    classes: list[Label]
    descriptions: list[list[str]] | None
    summary: str
    in_short: list[list[str]]
    statement: str
    card: str


@dataclass(frozen=True, slots=True)
class Health:
    """That the service runs, and the names of its models."""

    status: str
    models: list[str]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request got no other answer: a word for programs, and a sentence for people."""

    error: str
    message: str
