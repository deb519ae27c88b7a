"""Jinja templates, with every text escaped unless a function of this package made it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from dppl.pages.markdown import markdown_table, markdown_text

__all__ = ["breakable", "rendered"]

# Blanks in what people read at which no line may end: before a unit, and between a symbol and its value. What is found
# first is left alone: tags, names, and what is drawn or to be pasted.
_BLANKS = re.compile(
    r"<(style|pre|code|svg|bdi)\b.*?</\1>|<[^>]*>"
    r"|(?<=\d) (?=(?:%|[kMG]i?B\b))"
    r"| (?==\s[\d.])|(?<=\s=) (?=[\d.])"
    r"|(?:(?<=\bmu)|(?<=\brho)|(?<=\bepsilon)|(?<=\bdelta)|(?<=\bIR)) (?=[\d.])",
    re.DOTALL,
)


def rendered(package: str, template: str, **values: Any) -> str:
    """Return a filled template of a package; it can import ``parts.html`` and extend ``page.html``.

    Parameters
    ----------
    package : str
        Which has a folder ``templates``.
    template : str
        Name of a file there. Texts are escaped in .html, and in .md where the filter ``md`` is used.
    **values
        What it may name.
    """
    page = _environment(package).get_template(template).render(**values)
    if not template.endswith(".html"):
        return page
    return _BLANKS.sub(lambda found: "\N{NO-BREAK SPACE}" if found[0] == " " else found[0], page)


def breakable(name: str) -> Markup:
    """Return a name whose lines may end at its underscores.

    Examples
    --------
    >>> breakable("a_b < c")
    Markup('a_<wbr>b &lt; c')
    """
    return escape(name).replace("_", Markup("_<wbr>"))


@cache
def _environment(package: str) -> Environment:
    loader = ChoiceLoader([PackageLoader(package), PackageLoader("dppl.pages")])
    environment = Environment(
        loader=loader,
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(md=markdown_text, md_table=markdown_table, breakable=breakable)
    return environment
