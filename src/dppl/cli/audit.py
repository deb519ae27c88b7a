"""`dppl audit`: measure what a method leaks on worst-case data, beside what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dppl import _validate
from dppl.cli import _options as options
from dppl.cli._methods import build, check_options
from dppl.cli._options import BUDGET, budget_from_options, option
from dppl.cli._output import console, print_json
from dppl.cli._progress import progress_bar
from dppl.errors import ParameterError
from dppl.estimators.registry import BY_METHOD

if TYPE_CHECKING:
    from dppl.audit import AuditResult
    from dppl.estimators import EmbeddingClassifier
    from dppl.prototypes import MeanPrototypes

_VIOLATION = 5
_RUNS = 1000
# With 16 canaries a class: 1,024 canaries in one run.
_ONE_RUN_CLASSES = 64


@options.first("mu", "epsilon", "delta", "runs", "as_json")
def audit(
    method: Annotated[str, typer.Argument(metavar="METHOD", help=f"{', '.join(BY_METHOD)}.", show_default=False)],
    epsilon: Annotated[
        float | None, option("E", "With --delta: approximate DP. Alone: pure DP, for public.", BUDGET)
    ] = None,
    delta: Annotated[
        float | None, option("D", "With --mu or --rho: audit the epsilon that it implies at this delta.", BUDGET)
    ] = None,
    mu: options.Mu = None,
    rho: options.Rho = None,
    runs: Annotated[int | None, option("N", "Fits with the canary, and as many without. Default 1000.", min=2)] = None,
    confidence: Annotated[float, option("C", "Probability with which the measured bound holds. Default 0.95.")] = 0.95,
    one_run: Annotated[
        bool, typer.Option("--one-run", help="mean: fit once, on 1,024 canaries; faster, but the bound is looser.")
    ] = False,
    person_records: Annotated[
        int | None,
        option("N", "Audit the promise to a person (`dppl fit --person`): the canary has N records.", min=1),
    ] = None,
    spread: Annotated[
        bool, typer.Option("--spread", help="Nearly half of this person's records are in the other class.")
    ] = False,
    classes_per_person: Annotated[
        int | None,
        option("N", "With --person-records: `--classes-per-person` of the fits that are audited.", min=1),
    ] = None,
    adjacency: options.Adjacency = "add-remove",
    prototypes: options.Prototypes = None,
    mechanism: options.Mechanism = None,
    as_json: options.Json = False,
) -> None:
    """Measure what a method leaks, and compare with its promise.

    Fits it many times on built-in data in which one record shows as much as it
    can, with and without that record, and measures a lower bound on the privacy
    loss. No private data are used. A bound above the promise refutes it and is
    a bug in dppl: exit code 5. If the promise holds, that happens with
    probability at most 1 - C. A bound below it refutes and proves nothing. A
    large budget, as here, shows more of what a method does.

    For example:

      dppl audit softmax --mu 2
      dppl audit public --epsilon 3 --prototypes 3 --runs 5000
      dppl audit softmax --mu 2 --person-records 50
      dppl audit mean --epsilon 4 --delta 1e-5 --one-run --json
    """
    # Beside --mu or --rho, --delta is where the audit looks, and no part of the budget.
    at = delta if epsilon is None else None
    _validate.one_of(BY_METHOD, METHOD=method)
    budget = budget_from_options(mu, rho, epsilon, None if epsilon is None else delta)
    given = {"adjacency": adjacency, "n_prototypes": prototypes, "mechanism": mechanism}
    check_options(method, budget, given, this=method, use="audit")
    estimator = build(method, budget, list(range(_ONE_RUN_CLASSES if one_run else 2)), given)
    if person_records is None and (spread or classes_per_person is not None):
        raise ParameterError("--spread and --classes-per-person go with --person-records.")
    estimator.max_classes_per_person = classes_per_person
    if one_run:
        if runs is not None:
            raise ParameterError("--runs has no effect with --one-run; leave one of them out.")
        if person_records is not None:
            raise ParameterError("--person-records does not go with --one-run; leave one of them out.")
        from dppl.audit import (  # here, because the help of a command needs no scikit-learn
            Records,
            audit_in_one_run,
            orthogonal_canaries,
        )

        result = audit_in_one_run(
            estimator,
            Records([[0.0] * 16], [0]),
            orthogonal_canaries(_mean(estimator)),
            confidence=confidence,
            delta=at,
        )
    else:
        case = {"person_records": person_records, "spread": spread}
        result = _audit_with_bar(estimator, _RUNS if runs is None else runs, confidence, at, case)
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result, estimator)
    if result.violation:
        raise typer.Exit(_VIOLATION)


def _audit_with_bar(
    estimator: EmbeddingClassifier, runs: int, confidence: float, delta: float | None, case: Mapping[str, Any]
) -> AuditResult:
    from dppl.audit import audit, worst_case  # here, because the help of a command needs no scikit-learn

    _validate.open_unit(confidence=confidence)
    data, canary = worst_case(estimator, runs=runs, confidence=confidence, **case)
    with progress_bar("fitting", 2 * runs, public=True) as advance:
        return audit(estimator, data, canary, runs=runs, confidence=confidence, delta=delta, progress=advance)


def _mean(estimator: EmbeddingClassifier) -> MeanPrototypes:
    from dppl.prototypes import MeanPrototypes

    if isinstance(estimator, MeanPrototypes):
        return estimator
    raise ParameterError(
        "--one-run is for mean: where rows are selected, or weights follow from several statistics, canaries disturb "
        "each other."
    )


def _print(result: AuditResult, estimator: EmbeddingClassifier) -> None:
    at = f" at delta = {result.delta:.3g}" if result.delta else ""
    table = Table(show_header=False)
    table.add_row("method", f"{result.method}, {estimator.adjacency}")
    table.add_row("protects", result.unit)
    table.add_row("claimed", f"{result.parameter} = {result.claimed:.6g}{at}, {result.notion}")
    table.add_row(
        "measured", f"{result.parameter} >= {result.lower_bound:.6g}, with confidence {result.confidence:.10g}"
    )
    few = "" if result.lower_bound else "; more runs, or a larger budget, show more"
    table.add_row("share of the claim", f"{result.lower_bound / result.claimed:.0%}{few}")
    table.add_row("bound", result.bound)
    table.add_row("runs", "1" if result.runs == 1 else f"{result.runs} with and {result.runs} without the canary")
    table.add_row("seconds", f"{result.seconds:.1f}")
    table.add_row("verdict", "VIOLATION: the claim is refuted" if result.violation else "no violation found; no proof")
    console().print(table)
