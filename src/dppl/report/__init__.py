"""Faces of a released model for people: pure functions of its description."""

from dppl.report.card import model_card

__all__ = ["model_card"]
