"""Jinja templates and their filters, with foreign text escaped: a page is one file without scripts or network."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from dppl._utils import validate
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.privacy.guarantee import Guarantee
from dppl.kernel.privacy.terms import Term
from dppl.statement import english, french, german, words
from dppl.statement.curves import drawn

# Files of texts, by the tags of their languages.
LANGUAGES: dict[str, Any] = {"en": english, "de": german, "fr": french}
_MARKS = re.compile(r"([\\`*_\[\]|~])")
# Spaces at which no line of a page ends: between a number and its unit, and around what
# it is equal to.
_WITHIN = re.compile(
    r"(?<=\d) (?=%|grid |records?\b|steps?\b)|(?<=\w) (?== [\d.])|(?<==) (?=[\d.])"
)
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_LETTERS = 60  # of a name on a page
_MATRIX = 20  # classes in the confusion matrix
_DECADES = 4  # of the logarithmic scale of false alarms


def rendered(template: str, **values: Any) -> str:
    """Fill a template; text is escaped in .html, and in .md where the filter ``md`` is used."""
    text = _environment().get_template(template).render(**values)
    if template.endswith(".html"):
        return _WITHIN.sub("\N{NO-BREAK SPACE}", text)
    return text


def summary(form: str, language: str, **values: Any) -> str:
    """Fill the summary for a data protection officer in a language, as ``html`` or ``md``."""
    validate.one_of(LANGUAGES, language=language)
    said = LANGUAGES[language]
    guarantee = Guarantee.from_dict(values["guarantee"]["statement"])

    def say(name: str, /, **of: Any) -> str:
        return str(said.PAGE[name].format(**of))

    def number(text: str) -> str:
        return text.replace(".", said.DECIMAL)

    def of_terms(terms: Iterable[Term[Any]]) -> str:
        return str(said.SEPARATOR).join(words.text(one, said=said) for one in terms)

    listed = {
        "public_inputs": of_terms(guarantee.public_inputs),
        "assumptions": of_terms(guarantee.assumptions),
        "not_covered": of_terms(guarantee.not_covered),
        "parties": ", ".join(
            say("left", name=name, ask=guarantee.left[name])
            if name in guarantee.left
            else name
            for name in guarantee.parties
        ),
        "charges": str(said.SEPARATOR).join(
            say("charge" if one.party is None else "charge_of_party", **asdict(one))
            for one in guarantee.charges
        ),
    }
    page = _environment().get_template("dpo.jinja")
    text = page.render(
        form=f"dpo_form.{form}",
        escaping=form == "html",
        language=language,
        say=say,
        number=number,
        listed=listed,
        **values,
    )
    return text.strip() + "\n"


@cache
def _environment() -> Environment:
    # A name that a template misspells must fail, and foreign text in a page must not
    # become markup.
    environment = Environment(
        loader=PackageLoader("dppl.statement"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"md": markdown_text, "md_table": markdown_table}
    environment.filters |= (
        filters
        | {"up": partial(rounded_up, digits=4)}
        | {one.__name__: one for one in (name, short, percent, at_most, line, bold)}
    )
    return environment


def markdown_text(value: Any) -> str:
    """Keep text on its line, inside its cell, and without markup, links or images, which a hub would load."""
    text = "".join(char if char.isprintable() else " " for char in str(value))
    return _MARKS.sub(r"\\\1", text.replace("&", "&amp;")).replace("<", "&lt;")


def markdown_table(
    rows: Iterable[Sequence[Any]], header: Sequence[str] = ("", "")
) -> str:
    """Return a table of texts, each row as long as the header."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join(
        [*lines, *(f"| {' | '.join(map(markdown_text, row))} |" for row in rows)]
    )


def line(text: str) -> str:
    """Return a text as one line, without characters that steer a terminal."""
    return "".join(
        char if char.isprintable() else " " for char in " ".join(str(text).split())
    )


def bold(text: str) -> Markup:
    """Mark what is between two asterisks as important; the text is escaped."""
    return Markup(_BOLD.sub(r"<b>\1</b>", line(escape(text))))


def name(text: str) -> Markup:
    """Write the name of a class, in its own direction, whose lines may end at its underscores."""
    return Markup('<bdi dir="auto">{}</bdi>').format(
        escape(short(text)).replace("_", Markup("_<wbr>"))
    )


def short(text: str) -> str:
    """Cut a long name in its middle, since names often begin or end alike; the JSON form has all of it."""
    half = _LETTERS // 2
    if len(text) <= _LETTERS:
        return text
    return f"{text[: half - 1]}…{text[-half:]}"


def percent(share: float | None) -> str:
    """Write a share with one digit, such as "98.8 %"; a dash where there is none."""
    if share is None:
        return "–"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def at_most(share: float) -> str:
    """Write a bound, rounded up to a hundredth of a per cent."""
    return f"{min(math.ceil(10_000 * share), 10_000) / 100:g} %"


def view(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the charts of a page, the shapes of a model of tables, and the confusion matrix if it was evaluated."""
    evaluation = content["evaluation"]
    return {
        "charts": _charts(content["guarantee"]["curve"]),
        "matrix": None if evaluation is None else _matrix(evaluation),
        "shapes": None if content["shapes"] is None else drawn(content["shapes"]),
    }


def _charts(curve: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Place the trade-off curve twice in a unit square: over all false-alarm rates, and where they are rare."""
    # A screen reader hears three points of the curve; the table below it has all.
    near = [
        min(curve, key=lambda point: abs(math.log(point[0] / rate)))
        for rate in (0.001, 0.01, 0.1)
    ]
    text = " ".join(
        f"At a false-alarm rate of {100 * rate:g} % an adversary finds at most {at_most(power)} of the members."
        for rate, power in near
    )
    # An adversary who suspects everybody finds all members, so the curve ends at (1, 1).
    points = [*curve, (1.0, 1.0)]
    logs = [rate / 40 for rate in range(41)]
    return [
        {
            "title": "At all false-alarm rates",
            "description": f"Trade-off curve. {text}",
            "line": [(0.0, curve[0][1]), *points],
            "guessing": [(0.0, 0.0), (1.0, 1.0)],
            "ticks": [
                (share, f"{100 * share:g} %") for share in (0, 0.25, 0.5, 0.75, 1)
            ],
        },
        {
            "title": "At rare false alarms (logarithmic scale)",
            "description": f"The same curve on a logarithmic scale of false alarms. {text}",
            "line": [
                (1 + math.log10(rate) / _DECADES, power) for rate, power in points
            ],
            "guessing": [(x, 10 ** (_DECADES * (x - 1))) for x in logs],
            "ticks": [
                (k / _DECADES, f"{100 * 10 ** (k - _DECADES):g} %")
                for k in range(_DECADES + 1)
            ],
        },
    ]


def _matrix(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the confusion matrix of the classes in the largest confusions, in that order."""
    measured = [one for one in evaluation["per_class"] if one["n"]]
    confusions = evaluation["confusions"]
    order = dict.fromkeys(
        name for one in confusions for name in (one["class"], one["predicted"])
    )
    order |= dict.fromkeys(one["class"] for one in measured)
    names = list(order)[:_MATRIX]
    # The diagonal follows from sizes and accuracies; confusions list the rest.
    sizes = {one["class"]: one["n"] for one in measured}
    counts = {(one["class"], one["predicted"]): one["n"] for one in confusions}
    counts |= {
        (one["class"], one["class"]): round(one["n"] * one["accuracy"])
        for one in measured
    }
    rows = []
    for name in names:
        cells = []
        for other in names:
            n = counts.get((name, other), 0)
            size = sizes.get(name, 0)
            # A cell is shaded by its share of the class: none, up to 10, 30, 60 and 100
            # %.
            shade = sum(size and n / size > bound for bound in (0.0, 0.1, 0.3, 0.6))
            cells.append({"n": n, "style": f"h{shade}" + " right" * (name == other)})
        rows.append({"class": name, "cells": cells})
    return {"names": names, "rows": rows, "whole": len(order) <= _MATRIX}
