"""What people look at of a released model: one page that says what it does, what it promises and how to check that."""

from dppl.report.making import make_report
from dppl.report.report import Report

__all__ = ["Report", "make_report"]
