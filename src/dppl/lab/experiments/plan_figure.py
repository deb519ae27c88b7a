"""The figure of a plan: expected recall by class size."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dppl._files import write_atomically
from dppl.lab.experiments import figures
from dppl.lab.experiments.rendering import Heading, Part, Picture, Text, to_html
from dppl.planning import BudgetPlan

__all__ = ["SUFFIXES", "save_plan"]

SUFFIXES = (".png", ".svg", ".html")
_STEM = "plan"


def save_plan(plan: BudgetPlan, path: Path) -> None:
    """Draw a plan as ``.png``, ``.svg`` or ``.html``; a page of HTML also has its sentences."""
    figure = _figure(plan)
    with tempfile.TemporaryDirectory() as folder:
        figures.save(figure, Path(folder), _STEM)
        suffix = path.suffix.lower()
        if suffix == ".html":
            picture = Picture(_STEM, "Recall by class size.", "", figure)
            parts: list[Part] = [Heading("What the budget buys", 1), picture, *map(Text, plan.sentences())]
            content = to_html(parts, Path(folder)).encode("utf-8")
        else:
            content = Path(folder, _STEM + suffix).read_bytes()
    write_atomically(path, content, overwrite=True)


def _figure(plan: BudgetPlan) -> figures.Figure:
    several = [
        figures.Line(name, {float(one.size): [getattr(one, field)] for one in plan.curve})
        for name, field in (("expected", "recall"), ("low end", "low"), ("high end", "high"))
    ]
    if plan.rehearsed:
        several.append(figures.Line("rehearsed", {float(one.size): [one.recall] for one in plan.classes}))
    title = f"{plan.n_classes} classes, {plan.method}\n{plan.budget}"
    return figures.draw([(title, several)], "recall", "records of the class", log_x=True)
