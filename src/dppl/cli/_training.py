"""Options of what is trained and released: classes, budget, ledger, method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dppl import io
from dppl.cli._models import load_model
from dppl.cli._output import note, print_charge, print_model, printable
from dppl.cli._pairs import parse_pairs
from dppl.cli._request import flag, option, request
from dppl.cli._unusable import BeforeCharge
from dppl.errors import ParameterError
from dppl.methods.registry import BY_METHOD, estimator_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dppl.kernel.privacy import Budget as Spent


METHODS = f"auto|{'|'.join(BY_METHOD)}"


@request(panel="budget")
class Budget:
    """What a release may cost; exactly one notion of privacy."""

    epsilon: float | None = option(
        "E", "With --delta: approximate DP. Alone: pure DP, for --method public.", None
    )
    delta: float | None = option(
        "D", "Far below 1 / number of records, such as 1e-6.", None
    )
    alpha: float | None = option(
        "A",
        "With --epsilon: Rényi DP of this order, which is no epsilon of the others.",
        None,
    )
    mu: float | None = option(
        "M",
        "Gaussian DP: 0.2368 is epsilon 1 at delta 1e-6, and 0 a model of public examples alone.",
        None,
    )
    weak: bool = flag(
        "Allow an epsilon above 20, a mu that implies one at delta 1e-6, or a delta of 1e-3 or more.",
        typed={"allow_weak": "--weak"},
    )

    def budget(self) -> Spent:
        """Return the budget."""
        from dppl.kernel.privacy import ApproxDP, GaussianDP, PureDP, RenyiDP
        from dppl.kernel.privacy.budgets import refuse_slip

        if (self.mu is None) == (self.epsilon is None):
            raise ParameterError(
                "specify exactly one budget: --epsilon E --delta D, --epsilon E --alpha A, --mu M, or --epsilon E alone, "
                "which is pure DP."
            )
        if self.mu is not None:
            # A delta here would read as part of the promise, which mu makes for every
            # delta, as for every order.
            for name in ("delta", "alpha"):
                if getattr(self, name) is not None:
                    raise ParameterError(
                        "belongs to --epsilon; --mu needs none.", parameter=name
                    )
            budget: Spent = GaussianDP(self.mu)
            refuse_slip(budget, allowed=self.weak, implied=True)
            return budget
        assert self.epsilon is not None
        if self.alpha is not None:
            if self.delta is not None:
                raise ParameterError(
                    "is of another notion than --delta; leave one out.",
                    parameter="alpha",
                )
            budget = RenyiDP(self.alpha, self.epsilon)
            refuse_slip(budget, allowed=self.weak, implied=True)
            return budget
        if self.delta is None:
            budget = PureDP(self.epsilon, allow_weak=self.weak)
        else:
            budget = ApproxDP(self.epsilon, self.delta, allow_weak=self.weak)
        refuse_slip(budget)
        return budget


@request(panel="budget")
class NoiseBudget(Budget):
    """What a release with Gaussian noise may cost, for which there is no pure DP."""

    epsilon: float | None = option("E", "With --delta: approximate DP.", None)

    def budget(self) -> Spent:
        """Return the budget."""
        if (self.mu is None) == (self.epsilon is None):
            raise ParameterError(
                "specify exactly one budget: --epsilon E --delta D, --epsilon E --alpha A, or --mu M."
            )
        if self.mu is None and self.delta is None and self.alpha is None:
            raise ParameterError("add --delta 1e-6 to the budget.")
        return super().budget()


@request(panel="ledger")
class Account:
    """What pays for a release."""

    ledger: tuple[str, str] | None = option(
        "FILE DATASET[/PART]",
        "Ledger that pays for the release, and the data set in it, or a part that shares no record (`dppl ledger`).",
        None,
        typed={"dataset": "DATASET of --ledger", "partition": "PART of --ledger"},
    )

    def account(self) -> dict[str, Any]:
        """Open the account in an existing ledger, and return it with the part of the data set, as `fit` takes them."""
        if self.ledger is None:
            return {"ledger": None, "partition": None}
        from dppl.kernel.privacy import Ledger  # SQLAlchemy, which no help needs

        # Parts share no record, so what one of them spends costs the others nothing.
        file, name = self.ledger
        dataset, slash, part = name.partition("/")
        ledger = Ledger(file, dataset)
        parts = {one["partition"] for one in ledger.releases()} - {None}
        if part and part not in parts:
            # A slip in a name would open another account of the same records.
            note(
                f"{printable(part)} is a new part of {printable(dataset)}, and you vouch for it that no {ledger.unit} "
                "in it is in another part: their costs do not add up. Parts so far: "
                f"{', '.join(map(printable, sorted(parts))) or 'none'}."
            )
        return {"ledger": ledger, "partition": part if slash else None}

    def account_file(self) -> list[Path]:
        """Return the file of the ledger, if it is one, which no output may replace."""
        if self.ledger is None or "://" in self.ledger[0]:
            return []
        return [Path(self.ledger[0])]


@request(panel="data")
class Classes:
    """The public list of classes."""

    classes: Path | None = option(
        "FILE",
        "Public list of classes, one per line; never taken from the labels. With --start, default those of that model.",
        None,
    )

    def class_list(self) -> NDArray[Any]:
        """Read the list of classes; it is required, because labels are private, unless a start has one."""
        start = getattr(self, "start", None)
        if self.classes is None and start is not None:
            classes = load_model(start).classes_
            note(
                f"The list of classes is that of the start, of {len(classes)} names (dppl show {start}); --classes FILE "
                "gives another."
            )
            return classes
        if self.classes is None:
            raise ParameterError(
                "--classes FILE is required. The list is released with the model, so it must be public: taking it from "
                "the labels would reveal which ones occur. Write every possible class into it, one per line."
            )
        several = (
            "labels_separator" in getattr(self, "how", ())
            or getattr(self, "method", None) == "multilabel"
        )
        return io.read_classes(self.classes, several=several)


@request(panel="method")
class Method(BeforeCharge):
    """Which estimator is fitted, and with which parameters."""

    method: str = option(
        METHODS,
        f"{''.join(f'{method}: {entry.hint}. ' for method, entry in BY_METHOD.items())}Default auto: the first that "
        "offers the relation; pure DP needs public.",
        "auto",
    )
    options: list[str] = option(
        "NAME=VALUE",
        "A parameter of the method, as in Python (docs/methods.md); may be repeated: n_prototypes=3 of public, "
        "lattice__rotation=auto of mean. unknown_labels=ignore skips records with a label outside --classes (of "
        "several labels only that label), at which a fit stops otherwise. With --groups, "
        "max_classes_per_person=N. random_state=N repeats the noise; such a model must not be released.",
        (),
    )

    start: Path | None = option(
        "MODEL",
        "Released model to start from, such as that of the last quarter, by the same method and encoder. It costs "
        "these records nothing; whoever is in its data, too, pays for both (docs/quarters.md).",
        None,
    )

    def estimator(
        self, budget: Spent, classes: Any, rows: Path | None, **given: Any
    ) -> Any:
        """Return the unfitted estimator; `rows`, the path of public ones, is refused if it would not use them."""
        options = self.strictly(parse_pairs(self.options, "options"))
        method = self.method
        if (separator := self.how.get("labels_separator")) is not None:
            if method not in ("auto", "multilabel"):
                raise ParameterError(
                    "is for --method multilabel.", parameter="separator"
                )
            method = "multilabel"
            options = {**options, "separator": separator}
        if self.start is not None:
            given["start"] = self.start
        # DPPL-Mean reads public rows only for the lattice; elsewhere they would seem to
        # help and do nothing.
        if (
            rows is not None
            and method == "mean"
            and not options.keys() & {"lattice__center", "lattice__rotation"}
        ):
            raise ParameterError(
                "has no effect with --method mean; add --options lattice__center=public or --options "
                "lattice__rotation=auto, or leave it out.",
                parameter="public",
            )
        return estimator_of(method, budget, classes, **given, **options)


@request(panel="data")
class Fitting(Classes, BeforeCharge, Budget, Account):
    """What every training on private records is asked."""

    out: Path = option("MODEL", "Model file to write.")
    force: bool = flag("Replace the output file if it exists.")

    def print_release(
        self, model: Any, account: dict[str, Any], what: str, code: str = ""
    ) -> None:
        """Say where the model is, what it promises, and what paid for it; `code` as of `print_model`."""
        print_model(model.guarantee_, self.out, what, code)
        if self.ledger is not None and model.guarantee_.charges:
            print_charge(self.ledger[0], account["ledger"], model.guarantee_)
