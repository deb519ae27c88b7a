"""Jinja templates, with every text escaped unless a function of this package made it."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape

from dppl.pages.markdown import markdown_table, markdown_text

__all__ = ["rendered"]


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
    return _environment(package).get_template(template).render(**values)


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
    environment.filters.update(md=markdown_text, md_table=markdown_table)
    return environment
