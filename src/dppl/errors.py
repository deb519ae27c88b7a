"""Every exception and warning of dppl.

Messages name parameters, shapes and files. They never show rows, labels or counts of
private data, because messages end up in logs.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

__all__ = [
    "Argument",
    "BudgetError",
    "BudgetExceeded",
    "DpplError",
    "EngineError",
    "ErrorKind",
    "InputError",
    "LedgerError",
    "MissingExtra",
    "ModelFileError",
    "ParameterError",
    "UnknownLabelError",
    "WeakBudgetWarning",
]


class ErrorKind(StrEnum):
    """What went wrong, for programs: a code for each class of errors."""

    ANY = "any"
    PARAMETER = "parameter"
    BUDGET = "budget"
    BUDGET_EXCEEDED = "budget_exceeded"
    LEDGER = "ledger"
    ENGINE = "engine"
    MEASUREMENT = "measurement"
    INPUT = "input"
    UNKNOWN_LABEL = "unknown_label"
    MODEL_FILE = "model_file"
    MISSING_EXTRA = "missing_extra"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter with a value, as part of a message: Python writes ``name='value'``, the command line an option."""

    name: str
    value: Any

    @property
    def text(self) -> str:
        """The value as people type it, such as 1e-6."""
        text = str(self.value)
        if isinstance(self.value, float):
            return text.replace("e-0", "e-")
        return text

    def __str__(self) -> str:
        is_text = isinstance(self.value, str)
        if is_text:
            return f"{self.name}={self.value!r}"
        return f"{self.name}={self.text}"


class DpplError(Exception):
    """Root of all errors raised by dppl.

    Parameters
    ----------
    *message : str or Argument
        The parts of the message.
    parameter : str, default=None
        The parameter that the message is about. Its name is put before the message; the
        command line puts the option.
    suggestion : str, default=None
        A value of the parameter that may be meant; it is put behind the message.

    Attributes
    ----------
    kind : ErrorKind
    """

    kind = ErrorKind.ANY

    def __init__(
        self,
        *message: str | Argument,
        parameter: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        self.message = message
        self.parameter = parameter
        self.suggestion = suggestion
        super().__init__(self.told(parameter, str))

    def told(self, parameter: str | None, write: Callable[[Argument], str]) -> str:
        """Return the message as another interface writes it.

        Parameters
        ----------
        parameter : str or None
            What the parameter that the message is about is called there.
        write : callable
            Writes each `Argument` of the message.
        """
        text = "".join(
            write(part) if isinstance(part, Argument) else part for part in self.message
        )
        if parameter is not None:
            text = f"{parameter} {text}"
        if self.parameter is None or self.suggestion is None:
            return text
        return f"{text} Try {write(Argument(self.parameter, self.suggestion))}"


class ParameterError(DpplError, ValueError):
    """A parameter breaks its rule; the message says the rule, the value and what to do."""

    kind = ErrorKind.PARAMETER


class BudgetError(DpplError, ValueError):
    """A budget that a mechanism cannot spend, or a conversion between notions that does not exist."""

    kind = ErrorKind.BUDGET


class BudgetExceeded(BudgetError):
    """A release that the ledger's budget does not cover; nothing was drawn and nothing was written."""

    kind = ErrorKind.BUDGET_EXCEEDED


class LedgerError(DpplError, RuntimeError):
    """A ledger that cannot be read or written, or that a later version of dppl wrote."""

    kind = ErrorKind.LEDGER


class EngineError(DpplError, RuntimeError):
    """Work that was spread over processes or machines and did not end; what a worker met is not quoted."""

    kind = ErrorKind.ENGINE


class MeasurementError(DpplError, RuntimeError):
    """A method asked what it had not declared, or more often than was paid for."""

    kind = ErrorKind.MEASUREMENT


class InputError(DpplError, ValueError):
    """A table, array or file that cannot be used."""

    kind = ErrorKind.INPUT


class UnknownLabelError(InputError):
    """A record carries a label outside the public class list (the label itself is not shown)."""

    kind = ErrorKind.UNKNOWN_LABEL


class ModelFileError(InputError):
    """A model file that is damaged, or was not written by dppl."""

    kind = ErrorKind.MODEL_FILE


class MissingExtra(DpplError, ImportError):
    """An optional dependency is missing; the message names the command that installs it."""

    kind = ErrorKind.MISSING_EXTRA


class WeakBudgetWarning(UserWarning):
    """The budget, or its delta, is so large (`Budget.weakness`) that the guarantee says little."""


@cache
def warn_once(weakness: str, stacklevel: int) -> None:
    """Warn of a weak budget, once a process for each: a loop over seeds would say it each time."""
    warnings.warn(weakness, WeakBudgetWarning, stacklevel=stacklevel + 1)
