"""What people look at of a released model: one page that says what it does, what it promises and how to check that."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.report.making import make_report
    from dppl.report.report import Report

__all__ = ["Report", "make_report"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "make_report": "dppl.report.making",
        "Report": "dppl.report.report",
    },
)
