"""`dppl audit`: what a method leaks on data made for that, beside its promise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table as Grid

from dppl import _validate
from dppl.cli._groups import Budget, named_values, say_if_weak
from dppl.cli._output import console, print_json
from dppl.cli._progress import progress_bar
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError
from dppl.estimators.registry import BY_METHOD, estimator_of

if TYPE_CHECKING:
    from dppl.audit import AuditResult
    from dppl.estimators import EmbeddingClassifier

_VIOLATION = 5
# With 16 canaries a class: 1,024 canaries in one run.
_ONE_RUN_CLASSES = 64


@request("mu", "epsilon", "delta", "runs", "json")
class Audit:
    """What `dppl audit` is asked."""

    method: str = argument("METHOD", f"{', '.join(BY_METHOD)}.")
    budget: Budget
    runs: int = option(
        "N",
        "Fits with the canary, and as many without. Default 1000. With 1, mean alone: one fit on 1,024 canaries, which "
        "is faster, but the bound is looser.",
        1000,
        min=1,
    )
    confidence: float = option("C", "Probability with which the measured bound holds. Default 0.95.", 0.95)
    person_records: int | None = option(
        "N", "Audit the promise to a person (`dppl fit --groups`): the canary has N records.", None, min=1
    )
    spread: bool = flag("With --person-records: nearly half of these records are in the other class.")
    options: list[str] = option(
        "NAME=VALUE",
        "A parameter of the method, as of `dppl fit`; may be repeated: n_prototypes=3, adjacency=replace-one, and with "
        "--person-records max_classes_per_person=2.",
        (),
    )
    json: bool = flag("Print JSON.")


def audit(request: Audit) -> None:
    """Measure what a method leaks, and compare with its promise.

    Fits it many times on built-in data in which one record shows as much as it
    can, with and without that record, and measures a lower bound on the privacy
    loss. No private data are used. A bound above the promise refutes it and is
    a bug in dppl: exit code 5. If the promise holds, that happens with
    probability at most 1 - C. A bound below it refutes and proves nothing. A
    large budget, as here, shows more of what a method does. With --mu, --delta is where
    epsilon is measured, and no part of the budget.

    For example:

      dppl audit softmax --mu 2
      dppl audit public --epsilon 3 --options n_prototypes=3 --runs 5000
      dppl audit softmax --mu 2 --person-records 50
      dppl audit mean --epsilon 4 --delta 1e-5 --runs 1 --json
    """
    # With mu, delta is no part of the budget.
    delta = None if request.budget.mu is None else request.budget.delta
    budget = (request.budget if delta is None else replace(request.budget, delta=None)).spent()
    options = named_values(request.options)
    # One fit is compared at many canaries, which need room in many classes; many fits at one.
    one_run = request.runs == 1
    n_classes = _ONE_RUN_CLASSES if one_run else 2
    estimator = estimator_of(request.method, budget, list(range(n_classes)), **options)
    if request.person_records is None and (request.spread or "max_classes_per_person" in options):
        raise ParameterError("--spread and max_classes_per_person go with --person-records.")
    if one_run and request.person_records is not None:
        raise ParameterError("does not go with --runs 1; leave one of them out.", parameter="person_records")
    say_if_weak(budget)
    result = _one_run(estimator, request.confidence, delta) if one_run else _many_runs(estimator, request, delta)
    if request.json:
        print_json(result.to_dict())
    else:
        _print(result, estimator)
    if result.violation:
        raise typer.Exit(_VIOLATION)


def _one_run(estimator: EmbeddingClassifier, confidence: float, delta: float | None) -> AuditResult:
    from dppl.audit import Records, audit_in_one_run, orthogonal_canaries
    from dppl.prototypes import MeanPrototypes

    if not isinstance(estimator, MeanPrototypes):
        raise ParameterError(
            "must be 2 or more, but for mean: where rows are selected, or weights follow from several statistics, "
            "canaries disturb each other.",
            parameter="runs",
        )
    data = Records([[0.0] * 16], [0])
    return audit_in_one_run(estimator, data, orthogonal_canaries(estimator), confidence=confidence, delta=delta)


def _many_runs(estimator: EmbeddingClassifier, request: Audit, delta: float | None) -> AuditResult:
    from dppl.audit import audit as measure
    from dppl.audit import worst_case

    how: dict[str, Any] = {"runs": request.runs, "confidence": request.confidence}
    _validate.open_unit(confidence=request.confidence)
    data, canary = worst_case(estimator, person_records=request.person_records, spread=request.spread, **how)
    with progress_bar("fitting", 2 * request.runs, public=True) as advance:
        return measure(estimator, data, canary, delta=delta, progress=advance, **how)


def _print(result: AuditResult, estimator: EmbeddingClassifier) -> None:
    at = f" at delta = {result.delta:.3g}" if result.delta else ""
    few = "" if result.lower_bound else "; more runs, or a larger budget, show more"
    rows = {
        "method": f"{result.method}, {estimator.adjacency}",
        "protects": result.unit,
        "claimed": f"{result.parameter} = {result.claimed:.6g}{at}, {result.notion}",
        "measured": f"{result.parameter} >= {result.lower_bound:.6g}, with confidence {result.confidence:.10g}",
        "share of the claim": f"{result.lower_bound / result.claimed:.0%}{few}",
        "bound": result.bound,
        "runs": "1" if result.runs == 1 else f"{result.runs} with and {result.runs} without the canary",
        "seconds": f"{result.seconds:.1f}",
        "verdict": result.verdict,
    }
    table = Grid(show_header=False)
    for name, text in rows.items():
        table.add_row(name, text)
    console().print(table)
