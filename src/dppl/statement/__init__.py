"""What a model does and promises, for people: one dictionary of data, rendered as text, card and page."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.statement.card import model_card
    from dppl.statement.report import Report, make_report

__all__ = ["Report", "make_report", "model_card"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "model_card": "dppl.statement.card",
        "Report": "dppl.statement.report",
        "make_report": "dppl.statement.report",
    },
)
