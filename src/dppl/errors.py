"""Every exception and warning of dppl.

Messages name parameters, shapes and files. They never show rows, labels or counts of
private data, because messages end up in logs.
"""

__all__ = [
    "BudgetError",
    "BudgetExceeded",
    "DpplError",
    "EngineError",
    "InputError",
    "LedgerError",
    "MissingExtra",
    "ModelFileError",
    "ParameterError",
    "UnknownLabelError",
    "WeakBudgetWarning",
]


class DpplError(Exception):
    """Root of all errors raised by dppl.

    Parameters
    ----------
    message : str
    parameter : str, default=None
        The parameter that the message is about. Its name is put before the message; the
        command line puts the option.
    suggestion : str, default=None
        A value of the parameter that may be meant; it is put behind the message.
    """

    def __init__(
        self,
        message: str = "",
        *,
        parameter: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        text = message if parameter is None else f"{parameter} {message}"
        super().__init__(
            text if suggestion is None else f"{text} Try {parameter}={suggestion!r}."
        )
        self.text = text
        self.parameter = parameter
        self.suggestion = suggestion


class ParameterError(DpplError, ValueError):
    """A parameter breaks its rule; the message says the rule, the value and what to do."""


class BudgetError(DpplError, ValueError):
    """A budget that a mechanism cannot spend, or a conversion between notions that does not exist."""


class BudgetExceeded(BudgetError):
    """A release that the ledger's budget does not cover; nothing was drawn and nothing was written."""


class LedgerError(DpplError, RuntimeError):
    """A ledger that cannot be read or written, or that a later version of dppl wrote."""


class EngineError(DpplError, RuntimeError):
    """Work that was spread over processes or machines and did not end; what a worker met is not quoted."""


class MeasurementError(DpplError, RuntimeError):
    """A method asked what it had not declared, or more often than was paid for."""


class InputError(DpplError, ValueError):
    """A table, array or file that cannot be used."""


class UnknownLabelError(InputError):
    """A record carries a label outside the public class list (the label itself is not shown)."""


class ModelFileError(InputError):
    """A model file that is damaged, or was not written by dppl."""


class MissingExtra(DpplError, ImportError):
    """An optional dependency is missing; the message names the command that installs it."""


class WeakBudgetWarning(UserWarning):
    """The budget, or its delta, is so large (`Budget.weakness`) that the guarantee says little."""
