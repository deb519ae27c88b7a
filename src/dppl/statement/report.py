"""`make_report` collects what is known of a model; `Report` renders it as JSON, Markdown and HTML."""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Mapping
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dppl._utils import validate
from dppl.errors import InputError, ParameterError
from dppl.evaluation import Evaluation
from dppl.io import Source, open_source
from dppl.io.records.sources import holds_embeddings
from dppl.methods.released import Reported
from dppl.statement.curves import shapes_of
from dppl.statement.data import (
    FORMAT,
    account_of,
    content,
    describe,
    evaluation_of,
    file_of,
    is_private,
    of_model,
    read_evaluation,
)
from dppl.statement.pictures import gallery_of, selected_items

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger

_Path: TypeAlias = str | os.PathLike[str]


class Report:
    """The report of a released model, as data, as Markdown and as an HTML page.

    Each form depends on the content alone: equal contents give equal pages.

    Parameters
    ----------
    content : dict
        JSON-ready, in the form of docs/report.schema.json, as `dict` returns it.

    Raises
    ------
    InputError
        If the content is not a dict of this format.

    Examples
    --------
    >>> import dppl, numpy as np
    >>> model = dppl.MeanPrototypes(dppl.ApproxDP(1, 1e-6), classes=["a", "b"]).fit(np.eye(2), ["a", "b"])
    >>> report = model.report()
    >>> Report(report.dict()).html() == report.html()
    True
    """

    def __init__(self, content: dict[str, Any]) -> None:
        version = None
        if isinstance(content, dict):
            version = content.get("format")
        if version != FORMAT:
            raise InputError(f"a report is a dict of format {FORMAT}; got {version!r}.")
        self._content = deepcopy(content)
        # Older reports have none.
        self._content.setdefault("private_evaluation", None)
        self._content.setdefault("shapes", None)

    def dict(self) -> builtins.dict[str, Any]:
        """Return the content."""
        return deepcopy(self._content)

    def json(self) -> str:
        """Return the content as JSON; ASCII, so that it survives every terminal and pipe."""
        return json.dumps(self._content, indent=2, allow_nan=False) + "\n"

    def markdown(self, *, for_: str | None = None, language: str = "en") -> str:
        """Return the report as Markdown, without charts and images.

        Parameters
        ----------
        for_ : "dpo", default=None
            ``"dpo"`` returns one page for a data protection officer instead: purpose,
            whom the model protects, what is guaranteed, who could see what, what to
            keep, and what risk remains.
        language : {"en", "de", "fr"}, default="en"
            Language of that page; all others are in English.
        """
        if for_ is None:
            return self._render("report.md")
        return self._summary("md", for_, language)

    def html(self, *, for_: str | None = None, language: str = "en") -> str:
        """Return one self-contained HTML page: no scripts, no network; for light and dark screens and for print.

        Parameters
        ----------
        for_ : "dpo", default=None
            As in `markdown`; this page prints on one sheet of A4.
        language : {"en", "de", "fr"}, default="en"
        """
        if for_ is None:
            return self._render("page.html", top=1)
        return self._summary("html", for_, language)

    def html_snippet(self) -> str:
        """Return the same page as a fragment with its style, to embed in another page."""
        return self._render("snippet.html", top=2)

    def _render(self, template: str, **values: Any) -> str:
        from dppl.statement.rendering import (
            rendered,
            view,
        )  # here, so that making a report needs no templates

        return rendered(template, **self._content, **values, view=view(self._content))

    def _summary(self, form: str, for_: str, language: str) -> str:
        from dppl.statement.rendering import summary

        validate.one_of(("dpo",), for_=for_)
        return summary(form, language, **self._content)

    def __repr__(self) -> str:
        return f"<Report: {self._content['title']}; render it with html(), markdown(), json() or dict()>"

    _repr_html_ = html_snippet  # what a notebook shows


def make_report(
    model: Reported | _Path,
    *,
    results: Mapping[str, Any] | Evaluation | _Path | None = None,
    ledger: Ledger | _Path | None = None,
    public: Source | _Path | None = None,
    by: str | None = None,
    purpose: str | None = None,
) -> Report:
    """Make the report of a model.

    Parameters
    ----------
    model : classifier or path
        A fitted one of dppl, such as `SoftmaxPrototypes`, `PrivateClassifier` or
        `SparseFinetuner`, or its file.
    results : Evaluation or path or mapping, default=None
        A private evaluation of the model, or what `dppl evaluate --json` printed
        without privacy; or a file of either.
    ledger : Ledger or path or str, default=None
        The ledger that paid for the model; only the account of its data set is shown.
    public : Source or path, default=None
        The public images or texts from which the model selected.
    by : str, default=None
        Who made the model, for the reader.
    purpose : str, default=None
        What the model is for, in the words of its publisher; shown to the reader.

    Raises
    ------
    FileNotFoundError, ModelFileError
        If the model file cannot be used.
    NotFittedError
        If the model is not fitted.
    InputError, LedgerError
        If results, ledger or pool cannot be read, or are not of this model.
    ParameterError
        If `model` is something else, or `public` is given for a model that selected
        nothing from it.

    Notes
    -----
    A model holds nothing private, and neither does a report of it with a private evaluation. Other `results` are exact
    numbers: if they were measured on private records, the report must not be published.
    """
    with file_of(model) as path:
        description = describe(path)
        digest = sha256(path.read_bytes()).hexdigest()
        shapes = shapes_of(path, description)
    # What the publisher adds; no guarantee covers it.
    known: dict[str, Any] = {"by": by, "purpose": purpose, "shapes": shapes}
    if results is not None:
        evaluation = results
        if isinstance(evaluation, str | os.PathLike):
            evaluation = read_evaluation(Path(evaluation))
        if not isinstance(evaluation, Mapping) or is_private(evaluation):
            known["private_evaluation"] = of_model(evaluation, description, digest)
        else:
            known["evaluation"] = evaluation_of(evaluation, description["classes"])
    if ledger is not None:
        if isinstance(ledger, str | os.PathLike):
            from dppl.kernel.privacy.ledger import (
                accounts,
            )  # here, because the database comes with it

            books = [account.to_dict() for account in accounts(ledger)]
        else:
            books = [ledger.to_dict()]
        # Accounts of other data sets in the same ledger must not reach the page.
        known["ledger"] = account_of(books, description["guarantee"]["charges"], digest)
    if public is not None:
        if isinstance(public, str | os.PathLike):
            if holds_embeddings(Path(public)):
                raise ParameterError(
                    "must be the images or texts themselves; got embeddings.",
                    parameter="public",
                )
            public = open_source(Path(public))
        known["gallery"] = gallery_of(
            selected_items(description, public), public.modality
        )
    return Report(content(description, sha256=digest, file=path.name, **known))
