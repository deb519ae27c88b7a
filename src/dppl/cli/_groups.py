"""Groups of options that commands share: a budget, a ledger, a table, raw records, an encoder, a method."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dppl.cli._output import note
from dppl.cli._progress import working
from dppl.cli._request import flag, option, request
from dppl.encoders.load import Device
from dppl.engines import Engine, engine_of
from dppl.errors import ParameterError, WeakBudgetWarning
from dppl.estimators.registry import BY_METHOD, BY_NAME, estimator_of
from dppl.io import KINDS, Columns
from dppl.kernel.privacy import ZCDP, ApproxDP, GaussianDP, PureDP
from dppl.kernel.privacy import Budget as Spent
from dppl.predictions import Predictor, load_predictor

if TYPE_CHECKING:
    from dppl.estimators.released import Shares
    from dppl.kernel.privacy import Ledger

_CONSTANTS = {"true": True, "false": False, "none": None}
METHODS = f"auto|{'|'.join(BY_METHOD)}"
_READING = ("id", "kind", "split", "encoding", "delimiter")


@request(panel="budget")
class Budget:
    """What a release may cost; exactly one notion of privacy."""

    epsilon: float | None = option(
        "E", "With --delta: approximate DP. Alone: pure DP, which selects public rows.", None
    )
    delta: float | None = option("D", "Far below 1 / number of records, such as 1e-6.", None)
    mu: float | None = option(
        "M",
        "Gaussian DP: sensitivity / noise. 0.2368, 0.5 and 1 are epsilon 1, 2.3 and 4.9 at delta 1e-6; 0 is a model of "
        "public examples alone.",
        None,
    )
    rho: float | None = option("R", "zCDP; for Gaussian noise rho = mu²/2.", None)

    def spent(self) -> Spent:
        """Return the budget, and say so if it is weak."""
        if sum(value is not None for value in (self.mu, self.rho, self.epsilon)) != 1:
            raise ParameterError(
                "specify exactly one budget: --epsilon E --delta D, --mu M, --rho R, or --epsilon E alone, which is "
                "pure DP."
            )
        if self.epsilon is None and self.delta is not None:
            raise ParameterError("belongs to --epsilon; --mu and --rho need none.", parameter="delta")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", WeakBudgetWarning)
            budget = self._as_typed()
        for warning in said:
            note(str(warning.message))
        if budget.is_weak:
            note(budget.weakness)
        return budget

    def audited(self) -> tuple[Spent, float | None]:
        """Return the budget of an audit, and the delta at which it measures: with --mu or --rho, that of --delta."""
        if self.epsilon is not None:
            return self.spent(), None
        return replace(self, delta=None).spent(), self.delta

    def _as_typed(self) -> Spent:
        if self.mu is not None:
            return GaussianDP(self.mu)
        if self.rho is not None:
            return ZCDP(self.rho)
        assert self.epsilon is not None
        if self.delta is None:
            return PureDP(self.epsilon)
        return ApproxDP(self.epsilon, self.delta)


@request(panel="ledger")
class Account:
    """What pays for a release."""

    ledger: str | None = option("FILE", "Ledger that pays for the release; see `dppl ledger`.", None)
    dataset: str | None = option("NAME", "Data set in the ledger that is fitted.", None)
    partition: str | None = option(
        "NAME", "Part of the data set that is fitted; it shares no record with other parts.", None
    )

    def opened(self) -> Ledger | None:
        """Open the account, in an existing ledger; None if nothing names one."""
        if self.ledger is None and self.dataset is None and self.partition is None:
            return None
        if self.ledger is None or self.dataset is None:
            raise ParameterError("--ledger FILE and --dataset NAME go together, and --partition with them.")
        from dppl.kernel.privacy.ledger import Ledger, accounts, check_name  # SQLAlchemy, which no help needs

        names = [account.dataset for account in accounts(self.ledger)]
        if self.dataset not in names:
            check_name("dataset", self.dataset, names)
            raise ParameterError(
                f"the ledger has no data set {self.dataset!r}, but {', '.join(map(repr, names)) or 'none at all'}; "
                "name one of them, or open an account with `dppl ledger create`."
            )
        return Ledger(self.ledger, self.dataset)


@request(panel="data")
class Table:
    """Where a table of embeddings holds what."""

    labels: Path | None = option(
        "FILE", "Labels in a file of their own: .npy, or .txt or .csv with one label per line and no header.", None
    )
    x: str = option("NAME", "Array or column that holds the embeddings. Default x.", "x")
    y: str = option("NAME", "Array or column that holds the labels. Default y.", "y")


@request(panel="data")
class Items:
    """How raw images or texts are read; of a table of embeddings `x` says the same."""

    x: str | None = option("NAME", "Column of texts or images. Default: text, image, ...; of embeddings x.", None)
    read: list[str] = option(
        "NAME=VALUE",
        f"How DATA is read; may be repeated. kind: {', '.join(KINDS)}. split: of a saved data set. id: "
        "column of ids of records, not of persons; by default the row number, or the path. encoding, delimiter: of a "
        "CSV, JSON lines or text file; by default UTF-8, or UTF-16 by its byte order mark, and what the header shows.",
        (),
        typed={name: f"--read {name}" for name in _READING} | {"columns": "--x, --y, --groups and --read id"},
    )

    def how(self) -> dict[str, str]:
        """Return what ``--read`` says, by name."""
        said = dict(one.partition("=")[::2] for one in self.read)
        for name, value in said.items():
            if name not in _READING or not value:
                raise ParameterError(f"takes NAME=VALUE with {', '.join(_READING)}; got {name}.", parameter="read")
        return said


@request(panel="data")
class Labelled(Items):
    """How raw images or texts and their labels are read."""

    y: str | None = option("NAME", "Column of labels. Default: label, labels or y.", None)
    labels: Path | None = option(
        "FILE", "Labels in a file of their own: of images a CSV file that names files and labels.", None
    )

    def columns(self, groups: str | None = None) -> Columns:
        """Return the columns that are named."""
        return Columns(self.x, self.y, self.how().get("id"), groups)

    def typed(self) -> list[str]:
        """Return these options as they were typed."""
        named = [(f"--{name}", getattr(self, name)) for name in ("labels", "x", "y")]
        shown = [part for name, value in named if value is not None for part in (name, str(value))]
        return shown + [part for one in self.read for part in ("--read", one)]


@request(panel="data")
class Persons:
    """Whom a guarantee is for."""

    groups: str | None = option(
        "NAME|FILE",
        "Array or column of person ids, which are private and may repeat (person, in a table of dppl embed; for .npy a "
        "second .npy file): protect each person with all of their records, not each record (docs/persons.md).",
        None,
        typed={"person": "--groups"},
    )
    max_classes_per_person: int | None = option(
        "N",
        "With --groups: in how many classes a person counts at most, those of most of their rows. By default all with "
        "--method softmax, and 1 with others, where more means more noise (docs/persons.md).",
        None,
        min=1,
    )


@request(panel="data")
class Care:
    """What a fit does about records that it cannot use."""

    unknown_labels: str = option(
        "error|ignore",
        "With a label outside --classes: stop the fit, or leave the record out; neither names it. Default error.",
        "error",
    )
    strict: bool = flag(
        "Stop before anything is charged if one record cannot be used, or has a label outside --classes. That is one "
        "bit about the records, which no guarantee covers."
    )
    review: bool = flag(
        "First show what `dppl check` shows on your terminal, never in a log or pipe, and ask whether to go on. No "
        "guarantee covers your choice."
    )


@request(panel="method")
class Method:
    """Which estimator is fitted, and with which parameters."""

    method: str = option(
        METHODS,
        f"{''.join(f'{method}: {entry.hint}. ' for method, entry in BY_METHOD.items())}Default auto: the first that "
        "offers the relation and can spend the budget.",
        "auto",
    )
    options: list[str] = option(
        "NAME=VALUE",
        "A parameter of the method, as in Python (docs/methods.md); may be repeated: n_prototypes=3, "
        "adjacency=replace-one, lattice__rotation=auto.",
        (),
    )
    random_state: int | None = option(
        "INT", "Repeatable noise, for experiments only: the model must not be released.", None, min=0
    )

    def estimator(self, budget: Spent, classes: Any, rows: Path | None, **given: Any) -> Any:
        """Return the unfitted estimator with the options that are `given`, as far as they are not None.

        `rows`, the path of public ones, is refused if the estimator would not use them.
        """
        if self.method in BY_NAME and (short := BY_NAME[self.method].method) in BY_METHOD:
            raise ParameterError(
                f"takes the short names of methods; got {self.method}.", parameter="method", suggestion=short
            )
        options = named_values(self.options, "options")
        if rows is not None and self.method == "mean" and not options.keys() & {"lattice__center", "lattice__rotation"}:
            raise ParameterError(
                "has no effect with --method mean; add --options lattice__center=public or --options "
                "lattice__rotation=auto, or leave it out.",
                parameter="public",
            )
        given = {name: value for name, value in given.items() if value is not None}
        if self.random_state is not None:
            given["random_state"] = self.random_state
        return estimator_of(self.method, budget, classes, **given, **options)


def named_values(given: Iterable[str], parameter: str) -> dict[str, Any]:
    """Return what ``NAME=VALUE`` says: numbers, tuples and texts as in Python, quoted or not."""
    values: dict[str, Any] = {}
    for one in given:
        name, separator, text = one.partition("=")
        if not separator or not name.isidentifier():
            raise ParameterError(f"must be NAME=VALUE; got {one!r}.", parameter=parameter)
        try:
            values[name] = _CONSTANTS[text] if text in _CONSTANTS else ast.literal_eval(text)
        except (SyntaxError, ValueError):
            values[name] = tuple(text.split(",")) if "," in text else text
    return values


@request(panel="engine")
class Where:
    """Where the work is done."""

    engine: str = option("local|ray", "ray: read and compute in tasks of Ray (docs/scale.md). Default local.", "local")
    address: str | None = option(
        "ADDRESS", "ray: the cluster, such as auto or ray://HOST:10001. Default: this machine alone.", None
    )

    def opened(self) -> Engine | None:
        """Return the engine; None for this process."""
        found = engine_of(self.engine, self.address)
        return None if self.engine == "local" else found


@request(panel="encoder")
class ModelEncoder:
    """What embeds records for a model."""

    encoder: str | None = option(
        "URI", "Where the model's encoder is, or the network of `dppl finetune`. Default: as the model names it.", None
    )
    device: str = option("auto|cpu|cuda", "Where the encoder runs. Default auto.", "auto")

    def predictor(self, model: Any, shares: Shares | None = None) -> Predictor:
        """Load the encoder, and say so if a person is watching."""
        with working("loading the encoder"):
            return load_predictor(model, self.encoder, cast(Device, self.device), shares)
