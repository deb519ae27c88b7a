"""`dppl audit`: a lower bound on the privacy loss of a method, measured on worst-case data. It can only refute."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dppl._utils import validate
from dppl._utils.progress import progress
from dppl.cli._output import note, print_facts, print_json
from dppl.cli._pairs import parse_pairs
from dppl.cli._request import argument, flag, option, request
from dppl.cli._training import Budget
from dppl.errors import ParameterError
from dppl.methods.registry import BY_METHOD, estimator_of

if TYPE_CHECKING:
    from dppl.audit import AuditResult

_VIOLATION = 5


@request("mu", "epsilon", "delta", "runs", "json")
class Audit(Budget):
    """Measure a lower bound on the privacy loss of a method and compare it with the promise.

    Fits the method many times on built-in data in which one record shows as
    much as it can, with and without that record. A lower bound can only refute:
    above the promise it reveals a bug in dppl (exit code 5; if the promise
    holds, with probability at most 1 - C), below it proves nothing. With --mu,
    --delta is where epsilon is measured, and no part of the budget.

    For example:

      dppl audit softmax --epsilon 1 --delta 1e-6
      dppl audit public --epsilon 1 --options n_prototypes=3 --runs 5000
      dppl audit softmax --epsilon 3 --delta 1e-6 --person-records 50 --json
    """

    method: str = argument("METHOD", f"{', '.join(BY_METHOD)}.")
    runs: int = option(
        "N",
        "Fits with the canary, and as many without; at least 2. Default 1000.",
        1000,
        min=2,
    )
    confidence: float = option(
        "C", "Probability with which the measured bound holds. Default 0.95.", 0.95
    )
    person_records: int | None = option(
        "N",
        "Audit the promise to a person (`dppl fit --groups`): the canary has N records.",
        None,
        min=1,
    )
    spread: bool = flag(
        "With --person-records: nearly half of these records are in the other class."
    )
    options: list[str] = option(
        "NAME=VALUE",
        "A parameter of the method, as of `dppl fit`; may be repeated: n_prototypes=3, adjacency=replace-one, and with "
        "--person-records max_classes_per_person=2.",
        (),
    )
    json: bool = flag("Print JSON.")

    def run(self) -> None:
        """Measure and print; a violation has a separate exit code."""
        from dppl.audit import audit, worst_case

        # With mu, delta is no part of the budget.
        delta = None if self.mu is None else self.delta
        if delta is None:
            budget = self.budget()
        else:
            budget = replace(self, delta=None).budget()
        options = parse_pairs(self.options, "options")
        estimator = estimator_of(self.method, budget, [0, 1], **options)
        if self.person_records is None and (
            self.spread or "max_classes_per_person" in options
        ):
            raise ParameterError(
                "--spread and max_classes_per_person go with --person-records."
            )
        validate.open_unit(confidence=self.confidence)
        how: dict[str, Any] = {"runs": self.runs, "confidence": self.confidence}
        # The data are made up here: an audit reads no private record.
        data, canary = worst_case(
            estimator, person_records=self.person_records, spread=self.spread, **how
        )
        note(budget.weakness)
        with progress("fitting", 2 * self.runs) as advance:
            result = audit(
                estimator, data, canary, delta=delta, progress=advance, **how
            )
        if self.json:
            print_json(result.to_dict())
        else:
            _print(result, estimator.adjacency)
        if result.violation:
            sys.exit(_VIOLATION)


def _print(result: AuditResult, adjacency: str) -> None:
    from dppl.statement.words import text

    at = ""
    if result.delta:
        at = f" at delta = {result.delta:.3g}"
    few = ""
    if not result.lower_bound:
        few = "; more runs, or a larger budget, show more"
    rows = {
        "method": f"{result.method}, {adjacency}",
        "protects": "" if result.unit is None else text(result.unit),
        "claimed": f"{result.parameter} = {result.claimed:.6g}{at}, {result.notion}",
        "measured": f"{result.parameter} >= {result.lower_bound:.6g}, with confidence {result.confidence:.10g}",
        "share of the claim": f"{result.lower_bound / result.claimed:.0%}{few}",
        "bound": result.bound,
        "runs": f"{result.runs} with and {result.runs} without the canary",
        "seconds": f"{result.seconds:.1f}",
        "verdict": result.verdict,
    }
    print_facts(rows.items(), 18)
