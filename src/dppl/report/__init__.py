"""Faces of a released model for people: pure functions of its description."""

from dppl.report.card import model_card
from dppl.report.contact_sheet import contact_sheet

__all__ = ["contact_sheet", "model_card"]
