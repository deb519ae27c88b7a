"""`dppl plan`: what a budget buys, before any private record is read."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from dppl._utils.progress import progress
from dppl.cli._output import console, note, print_json, printable, table_of
from dppl.cli._request import flag, option, request
from dppl.cli._training import METHODS, Budget
from dppl.errors import ParameterError

if TYPE_CHECKING:
    from dppl.kernel.privacy import Budget as Spent
    from dppl.planning import BudgetPlan, EvaluationPlan


# What a plan of accuracy takes, which was not measured for several labels a record.
_OF_ACCURACY = ("n_public", "ceiling", "describe", "n_parties", "quarters")


@request("n_classes", "n_records", "smallest", "encoder", "epsilon", "delta")
class Plan(Budget):
    r"""Say what accuracy a budget buys, by class size, before any private record is read.

    All inputs are public: guess the numbers of records, do not count them.
    For the actual table there is `dppl check`, for its owner only.

    For example:

      dppl plan --n-classes 77 --n-records 9000 --n-features 384 \
        --epsilon 1 --delta 1e-6 --ceiling 0.9
    """

    n_classes: int = option("N", "How many classes there are.", min=1)
    n_records: int = option(
        "N",
        "A guess of the number of records, never their count.",
        min=1,
    )
    n_persons: int | None = option(
        "N",
        "A guess of the number of persons, for a fit with --groups; --smallest and --n-test are of persons then.",
        None,
        min=1,
    )
    smallest: int | None = option(
        "N",
        "A guess of the records (or persons) of the rarest class. Default: all classes alike.",
        None,
        min=1,
    )
    n_features: int | None = option(
        "D", "Width of the embeddings; or name an encoder.", None, min=1
    )
    encoder: str | None = option(
        "NAME", "Encoder whose width is known, such as minilm, or columns:SCHEMA.", None
    )
    method: str = option(METHODS, "As of `dppl fit`. Default auto.", "auto")
    labels_each: float | None = option(
        "X",
        "With --method multilabel: a guess of how many labels a record has on average. Plans the evaluation alone.",
        None,
    )
    n_public: int = option(
        "N", "Unlabelled public rows that the fit may use. Default 0.", 0, min=0
    )
    ceiling: float | None = option(
        "A",
        "Public guess of the balanced accuracy without privacy: a closer range.",
        None,
    )
    describe: str = option(
        "names|none",
        "names: `dppl train` on texts starts from the names of classes, if they are words.",
        "none",
    )
    n_parties: int = option(
        "N",
        "Institutions that hold the records (docs/federation.md). Default 1.",
        1,
        min=1,
    )
    quarters: int = option(
        "N",
        "How many quarters have so many records each, with a model after each (docs/quarters.md). Default 1.",
        1,
        min=1,
    )
    n_test: int | None = option(
        "N",
        "A guess of the test records: also how exactly they would say it.",
        None,
        min=1,
    )
    json: bool = flag("Print JSON.")

    def run(self) -> None:
        """Plan and print."""
        from dppl.encoders.catalogue import reads
        from dppl.planning import plan_budget

        budget = self.budget()
        if self.method == "multilabel":
            self._plan_labels(budget)
            return
        if self.labels_each is not None:
            raise ParameterError("is for --method multilabel.", parameter="labels_each")
        names = (
            "n_classes",
            "n_records",
            "smallest",
            "n_features",
            "encoder",
            "n_public",
            "ceiling",
            "n_parties",
            "n_persons",
            "quarters",
        )
        how: dict[str, Any] = {
            name: getattr(self, name) for name in (*names, "method", "describe")
        }
        with progress("planning"):
            plan = plan_budget(budget, **how)
        note(budget.weakness)
        evaluation = None
        if self.n_test is not None:
            evaluation = _evaluation(plan, self.n_test, self.smallest is not None)
        if self.json:
            print_json(
                plan.to_dict()
                | ({"evaluation": evaluation.to_dict()} if evaluation else {})
            )
            return
        screen = console()
        unit = "records" if self.n_persons is None else "persons"
        headings = (f"{unit} of the class", "recall", "range", "found")
        rows = (
            (
                one.size,
                f"{one.recall:.2f}",
                f"{one.low:.2f} to {one.high:.2f}",
                one.found,
            )
            for one in plan.classes
        )
        screen.print(
            table_of(
                headings,
                rows,
                headings[:3],
                title="What to expect by class size",
                title_justify="left",
            )
        )
        for sentence in plan.sentences():
            screen.print(f"- {printable(sentence)}")
        if language := reads(self.encoder or ""):
            screen.print(f"- The encoder {printable(language)}.")
        if evaluation:
            _print(evaluation)

    def _plan_labels(self, budget: Spent) -> None:
        """Plan the evaluation of a model of several labels a record; its accuracy was not measured."""
        from dppl.kernel.privacy.budgets import rounded_up
        from dppl.planning import plan_evaluation

        for name in ("labels_each", "n_test"):
            if getattr(self, name) is None:
                raise ParameterError(
                    "is needed with --method multilabel, which takes --n-classes, --n-records, --labels-each and --n-test.",
                    parameter=name,
                )
        for one in fields(Plan):
            if one.name in _OF_ACCURACY and getattr(self, one.name) != one.default:
                raise ParameterError(
                    "is for methods of one label a record.", parameter=one.name
                )
        assert self.n_test is not None
        n_units = self.n_persons or self.n_records
        smallest = None
        if self.smallest is not None:
            smallest = max(1, self.smallest * self.n_test // n_units)
        evaluation = plan_evaluation(
            budget,
            n_classes=self.n_classes,
            n_test=self.n_test,
            smallest=smallest,
            labels_each=self.labels_each,
            counted="records" if self.n_persons is None else "persons",
        )
        note(budget.weakness)
        if self.json:
            print_json({"evaluation": evaluation.to_dict()})
            return
        _print(evaluation)
        four = rounded_up(2 * budget.gaussian_allowance().mu, 4)
        console().print(
            "- How good a model of several labels will be is not planned: it was not measured. Four fits at this budget "
            f"need an account of mu = {four}."
        )


def _print(evaluation: EvaluationPlan) -> None:
    """Print how exactly an evaluation says it."""
    screen = console()
    title = f"How exactly a private evaluation says it ({100 * evaluation.confidence:g} % intervals)"
    first, *widths = evaluation.headings()
    table = table_of(
        (first, *widths),
        evaluation.table(),
        widths,
        title=title,
        title_justify="left",
    )
    screen.print(table)
    for sentence in evaluation.sentences():
        screen.print(f"- {printable(sentence)}")


def _evaluation(plan: BudgetPlan, n_test: int, has_rarest: bool) -> EvaluationPlan:
    """Plan an evaluation at the same budget, of test records in which classes have the same shares."""
    from dppl.planning import plan_evaluation

    smallest = None
    if has_rarest:
        smallest = max(1, plan.smallest * n_test // plan.n_units)
    rate = plan.balanced_accuracy
    return plan_evaluation(
        plan.budget,
        n_classes=plan.n_classes,
        n_test=n_test,
        smallest=smallest,
        rate=rate,
        counted="records" if plan.n_persons is None else "persons",
    )
