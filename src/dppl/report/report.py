"""`Report`: the content of a report, and its forms."""

from __future__ import annotations

import builtins
import json
from copy import deepcopy
from typing import Any

from dppl.errors import InputError
from dppl.report.content import FORMAT
from dppl.report.view import view

__all__ = ["Report"]


class Report:
    """What there is to say of a released model, as data, as Markdown and as a page.

    Each form is a function of the content alone: equal contents give equal pages.

    Parameters
    ----------
    content : dict
        JSON-ready, in the form of docs/report.schema.json, as `dict` returns it.

    Raises
    ------
    InputError
        If it is something else, or of another format.

    Examples
    --------
    >>> import dppl, numpy as np
    >>> model = dppl.MeanPrototypes(dppl.ApproxDP(1, 1e-6), classes=["a", "b"]).fit(np.eye(2), ["a", "b"])
    >>> report = model.report()
    >>> Report(report.dict()).html() == report.html()
    True
    >>> report.dict()["model"]["classes"]
    ['a', 'b']
    """

    def __init__(self, content: dict[str, Any]) -> None:
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise InputError(f"a report is a dict of format {FORMAT}; got {found!r}.")
        self._content = deepcopy(content)

    def dict(self) -> builtins.dict[str, Any]:
        """Return the content."""
        return deepcopy(self._content)

    def json(self) -> str:
        """Return the content as JSON; ASCII, so that it survives every terminal and pipe."""
        return json.dumps(self._content, indent=2, allow_nan=False) + "\n"

    def markdown(self) -> str:
        """Return the report as Markdown, without charts and images."""
        return _rendered("report.md", self._content)

    def html(self) -> str:
        """Return one page of HTML with everything inside: no script, no network, light and dark, and for print."""
        return _rendered("page_of_report.html", self._content, top=1)

    def html_snippet(self) -> str:
        """Return the same as a part of another page, with its style."""
        return _rendered("snippet.html", self._content, top=2)

    def __repr__(self) -> str:
        return f"<Report: {self._content['title']}; html(), markdown(), json() and dict() have it>"

    def _repr_html_(self) -> str:
        """Show the report in a notebook."""
        return self.html_snippet()


def _rendered(template: str, content: dict[str, Any], **values: Any) -> str:
    from dppl.pages import rendered  # here, so that making a report needs no templates

    return rendered("dppl.report", template, **content, **values, view=view(content))
