"""Faces of a released model for people: pure functions of its description."""

from dppl.cards.card import model_card
from dppl.cards.contact_sheet import contact_sheet

__all__ = ["contact_sheet", "model_card"]
