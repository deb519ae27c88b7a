"""From a model, and what is known beside it, to a report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from dppl.errors import ParameterError
from dppl.estimators.model_file import describe
from dppl.estimators.reported import Reported
from dppl.finetune.model_file import describe as describe_finetuned
from dppl.finetune.model_file import is_finetuned
from dppl.io import Source, holds_embeddings, open_source
from dppl.report.account import account_of, read_ledger
from dppl.report.content import content
from dppl.report.evidence import accuracy_over_budget, evaluation_of, read_evidence
from dppl.report.gallery import gallery_of, selected_items
from dppl.report.report import Report

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger

__all__ = ["Results", "make_report"]

_FILE = "model.safetensors"
_Path: TypeAlias = str | os.PathLike[str]
Results: TypeAlias = _Path | Mapping[str, Any]


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
        Files of `dppl evaluate --json` and of `dppl bench run` or `dppl continual run`, or what the first prints. At
        most one evaluation and one experiment.
    ledger : Ledger or path or str, default=None
        That paid for the model; of a path or URL the account is found, and others stay out.
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
    for name, found in map(_read, _several(results)):
        if isinstance(found, Mapping):
            if evaluation is not None:
                raise ParameterError("results must hold one evaluation at most; got two.")
            evaluation = evaluation_of(found, description["classes"])
        else:
            if accuracy is not None:
                raise ParameterError("results must hold one experiment at most; got two.")
            accuracy = accuracy_over_budget(found, description["estimator"], name)
    books = None
    if ledger is not None:
        books = read_ledger(ledger) if isinstance(ledger, str | os.PathLike) else [ledger.to_dict()]
    return Report(
        content(
            description,
            sha256=digest,
            file=file,
            by=by,
            evaluation=evaluation,
            accuracy=accuracy,
            ledger=None if books is None else account_of(books, description["guarantee"]["ledger_entry"], digest),
            gallery=None if public is None else _gallery(description, public),
        )
    )


def _of_file(path: Path) -> tuple[dict[str, Any], str, str]:
    description = describe_finetuned(path) if is_finetuned(path) else describe(path)
    return description, sha256(path.read_bytes()).hexdigest(), path.name


def _of_model(model: Reported) -> tuple[dict[str, Any], str, str]:
    """Return what its file says, and the hash, as if it were saved."""
    if not isinstance(model, Reported):
        raise ParameterError(
            f"must be a fitted classifier of dppl, or its file; got {type(model).__name__}.", parameter="model"
        )
    with TemporaryDirectory() as folder:
        path = Path(folder) / _FILE
        model.save(path)
        return _of_file(path)


def _several(results: Results | Sequence[Results]) -> Sequence[Results]:
    return [results] if isinstance(results, str | os.PathLike | Mapping) else results


def _read(one: Results) -> tuple[str, Any]:
    return ("", one) if isinstance(one, Mapping) else (Path(one).name, read_evidence(Path(one)))


def _gallery(description: Mapping[str, Any], public: Source | _Path) -> dict[str, Any]:
    if description.get("public_indices") is None:
        raise ParameterError(
            f"is for models that select public rows (PublicPrototypes); {description['estimator']} selects none.",
            parameter="public",
        )
    ids = description.get("public_ids")
    if ids is None:
        raise ParameterError(
            "needs a model that was fitted on public rows with ids, which `dppl embed` and `dppl train` write.",
            parameter="public",
        )
    if isinstance(public, str | os.PathLike):
        if holds_embeddings(Path(public)):
            raise ParameterError("must be the images or texts themselves; got embeddings of them.", parameter="public")
        public = open_source(Path(public))
    items = selected_items(public, {one for several in ids for one in several}, Path("the pool"))
    return gallery_of(description["classes"], ids, items, public.modality)
