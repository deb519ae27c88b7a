"""`make_report` reads a model and what is known of it; `Report` renders that as JSON, Markdown and HTML."""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from dppl.errors import InputError, ParameterError
from dppl.estimators.reported import Reported
from dppl.io import Source, open_source
from dppl.io.sources import holds_embeddings
from dppl.statement.data import FORMAT, account_of, content, describe
from dppl.statement.evidence import accuracy_over_budget, evaluation_of, read_evidence
from dppl.statement.pictures import gallery_of, selected_items

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger

__all__ = ["Report", "Results", "make_report"]

_Path: TypeAlias = str | os.PathLike[str]
Results: TypeAlias = _Path | Mapping[str, Any]


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
        version = content.get("format") if isinstance(content, dict) else None
        if version != FORMAT:
            raise InputError(f"a report is a dict of format {FORMAT}; got {version!r}.")
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
    from dppl.statement.rendering import rendered  # here, so that making a report needs no templates
    from dppl.statement.view import view

    return rendered("dppl.statement", template, **content, **values, view=view(content))


def make_report(
    model: Reported | _Path,
    *,
    results: Results | Sequence[Results] = (),
    ledger: Ledger | _Path | None = None,
    public: Source | _Path | None = None,
    by: str | None = None,
) -> Report:
    """Make the report of a model.

    Parameters
    ----------
    model : classifier or path
        A fitted one of dppl, such as `SoftmaxPrototypes`, `PrivateClassifier` or `SparseFinetuner`, or its file.
    results : path, mapping or sequence of them, default=()
        Files of `dppl evaluate --json` and of `dppl bench`, or what the first prints. At
        most one evaluation and one experiment.
    ledger : Ledger or path or str, default=None
        That paid for the model; of a path or URL only its account is shown.
    public : Source or path, default=None
        Public images or texts among which the model selected.
    by : str, default=None
        Who made the model, as the report shall say.

    Returns
    -------
    Report

    Raises
    ------
    FileNotFoundError, ModelFileError
        If the model file cannot be used.
    NotFittedError
        If the model is not fitted.
    InputError, LedgerError
        If results, ledger or pool cannot be read, or are not of this model.
    ParameterError
        If `model` is something else, or `public` is given for a model that selected nothing from it.

    Notes
    -----
    A model holds nothing private, and neither does a report of it alone. What `results` say was measured by its maker;
    if that was on private records, the report must not be published.
    """
    description, digest, file = _of_file(Path(model)) if isinstance(model, str | os.PathLike) else _of_model(model)
    evaluation = accuracy = None
    for one in [results] if isinstance(results, str | os.PathLike | Mapping) else results:
        evidence, name = (one, "") if isinstance(one, Mapping) else (read_evidence(Path(one)), Path(one).name)
        if isinstance(evidence, Mapping):
            if evaluation is not None:
                raise ParameterError("results must hold one evaluation at most; got two.")
            evaluation = evaluation_of(evidence, description["classes"])
        else:
            if accuracy is not None:
                raise ParameterError("results must hold one experiment at most; got two.")
            accuracy = accuracy_over_budget(evidence, description["estimator"], name)
    return Report(
        content(
            description,
            sha256=digest,
            file=file,
            by=by,
            evaluation=evaluation,
            accuracy=accuracy,
            ledger=None if ledger is None else _account(ledger, description, digest),
            gallery=None if public is None else _gallery(description, public),
        )
    )


def _of_file(path: Path) -> tuple[dict[str, Any], str, str]:
    return describe(path), sha256(path.read_bytes()).hexdigest(), path.name


def _of_model(model: Reported) -> tuple[dict[str, Any], str, str]:
    """Return what its file says, and the hash, as if it were saved."""
    if not isinstance(model, Reported):
        raise ParameterError(
            f"must be a fitted classifier of dppl, or its file; got {type(model).__name__}.", parameter="model"
        )
    # The report is of the file that a reader gets, so the model is written as `save` writes it, and read back.
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        return _of_file(path)


def _account(ledger: Ledger | _Path, description: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """Return the account that paid. A ledger may hold those of other data sets, which must not reach the page."""
    if isinstance(ledger, str | os.PathLike):
        from dppl.kernel.privacy.ledger import accounts  # here, because the database comes with it

        books = [account.to_dict() for account in accounts(ledger)]
    else:
        books = [ledger.to_dict()]
    return account_of(books, description["guarantee"]["ledger_entry"], digest)


def _gallery(description: Mapping[str, Any], public: Source | _Path) -> dict[str, Any]:
    if isinstance(public, str | os.PathLike):
        if holds_embeddings(Path(public)):
            raise ParameterError("must be the images or texts themselves; got embeddings of them.", parameter="public")
        public = open_source(Path(public))
    return gallery_of(selected_items(description, public, Path("the pool")), public.modality)
