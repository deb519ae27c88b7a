"""Groups of options that commands share: a budget, a ledger, a table, raw records, an encoder, a method."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dppl.cli._output import note
from dppl.cli._progress import working
from dppl.cli._request import flag, option, request
from dppl.errors import ParameterError
from dppl.estimators.registry import BY_METHOD, BY_NAME, estimator_of

if TYPE_CHECKING:
    from dppl.engines import Engine
    from dppl.estimators.released import Shares
    from dppl.io import Columns
    from dppl.kernel.privacy import Budget as Spent
    from dppl.kernel.privacy import Ledger
    from dppl.predictions import Predictor

_CONSTANTS = {"true": True, "false": False, "none": None}
METHODS = f"auto|{'|'.join(BY_METHOD)}"
_READING = ("id", "kind", "encoding", "delimiter")


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

    def spent(self) -> Spent:
        """Return the budget."""
        from dppl.kernel.privacy import ApproxDP, GaussianDP, PureDP

        if (self.mu is None) == (self.epsilon is None):
            raise ParameterError(
                "specify exactly one budget: --epsilon E --delta D, --mu M, or --epsilon E alone, which is pure DP."
            )
        if self.mu is not None:
            if self.delta is not None:
                raise ParameterError("belongs to --epsilon; --mu needs none.", parameter="delta")
            return GaussianDP(self.mu)
        assert self.epsilon is not None
        return PureDP(self.epsilon) if self.delta is None else ApproxDP(self.epsilon, self.delta)


def say_if_weak(budget: Spent) -> None:
    """Say before a fit, once nothing is wrong with the request, that its budget promises little."""
    if budget.weakness:
        note(budget.weakness)


@request(panel="ledger")
class Account:
    """What pays for a release."""

    ledger: str | None = option("FILE", "Ledger that pays for the release; see `dppl ledger`.", None)
    dataset: str | None = option(
        "NAME[/PART]",
        "Data set in the ledger that is fitted, or a part of it that shares no record with other parts.",
        None,
    )

    @property
    def partition(self) -> str | None:
        """The part of the data set, if one is named."""
        _, slash, part = (self.dataset or "").partition("/")
        return part if slash else None

    def opened(self) -> Ledger | None:
        """Open the account, in an existing ledger; None if nothing names one."""
        if self.ledger is None and self.dataset is None:
            return None
        if self.ledger is None or self.dataset is None:
            raise ParameterError("--ledger FILE and --dataset NAME go together.")
        from dppl.kernel.privacy.ledger import Ledger, accounts, check_name  # SQLAlchemy, which no help needs

        names, dataset = [account.dataset for account in accounts(self.ledger)], self.dataset.partition("/")[0]
        if dataset not in names:
            check_name("dataset", dataset, names)
            raise ParameterError(
                f"the ledger has no data set {dataset!r}, but {', '.join(map(repr, names)) or 'none at all'}; "
                "name one of them, or open an account with `dppl ledger create`."
            )
        return Ledger(self.ledger, dataset)


@request(panel="data")
class Table:
    """Where a table of embeddings holds what."""

    labels: Path | None = option(
        "FILE", "Labels in a file of their own: .npy, or .txt or .csv with one label per line and no header.", None
    )
    x: str = option("NAME", "Array or column that holds the embeddings. Default x.", "x")
    y: str = option("NAME", "Array or column that holds the labels. Default y.", "y")


def how_to_read(given: Iterable[str], known: Collection[str] = _READING) -> dict[str, str]:
    """Return what ``--read`` says, by name."""
    said = dict(one.partition("=")[::2] for one in given)
    for name, value in said.items():
        if name not in known or not value:
            raise ParameterError(f"takes NAME=VALUE with {', '.join(known)}; got {name}.", parameter="read")
    return said


@request(panel="data")
class Items:
    """How raw images or texts are read; of a table of embeddings `x` says the same."""

    x: str | None = option("NAME", "Column of texts or images. Default: text, image, ...; of embeddings x.", None)
    read: list[str] = option(
        "NAME=VALUE",
        "How DATA is read; may be repeated. kind: auto, images, csv, jsonl, parquet, text. id: column of ids of "
        "records, not of persons; by default the row number, or the path. encoding, delimiter: of a CSV, JSON lines or "
        "text file; by default UTF-8, or UTF-16 by its byte order mark, and what the header shows.",
        (),
        typed={name: f"--read {name}" for name in _READING} | {"columns": "--x, --y, --groups and --read id"},
    )

    def how(self) -> dict[str, str]:
        """Return what ``--read`` says, by name."""
        return how_to_read(self.read)


@request(panel="data")
class Labelled(Items):
    """How raw images or texts and their labels are read."""

    y: str | None = option("NAME", "Column of labels. Default: label, labels or y.", None)
    labels: Path | None = option(
        "FILE", "Labels in a file of their own: of images a CSV file that names files and labels.", None
    )

    def columns(self, groups: str | None = None) -> Columns:
        """Return the columns that are named."""
        from dppl.io import Columns

        return Columns(self.x, self.y, self.how().get("id"), groups)

    def typed(self) -> list[str]:
        """Return these options as they were typed."""
        named = [(f"--{name}", getattr(self, name)) for name in ("labels", "x", "y")]
        shown = [part for name, value in named if value is not None for part in (name, str(value))]
        return shown + [part for one in self.read for part in ("--read", one)]


@request(panel="data")
class Care:
    """Whom a guarantee is for, and what its owner sees before."""

    groups: str | None = option(
        "NAME|FILE",
        "Array or column of person ids, which are private and may repeat (person, in a table of dppl embed; for .npy a "
        "second .npy file): protect each person with all of their records, not each record (docs/persons.md).",
        None,
        typed={"person": "--groups"},
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
        "A parameter of the method, as in Python (docs/methods.md); may be repeated: with --method public "
        "n_prototypes=3, with mean lattice__rotation=auto. unknown_labels=ignore leaves out records with a label "
        "outside --classes, at which a fit stops otherwise; unknown_labels=strict stops before anything is charged, "
        "also if a record cannot be used, which is one bit about the records that no guarantee covers. With --groups, "
        "max_classes_per_person=N: in how many classes a person counts at most (docs/persons.md). random_state=N "
        "repeats the noise; such a model must not be released.",
        (),
    )

    def estimator(self, budget: Spent, classes: Any, rows: Path | None, **given: Any) -> Any:
        """Return the unfitted estimator; `rows`, the path of public ones, is refused if it would not use them."""
        if self.method in BY_NAME and (short := BY_NAME[self.method].method) in BY_METHOD:
            raise ParameterError(
                f"takes the short names of methods; got {self.method}.", parameter="method", suggestion=short
            )
        options = named_values(self.options)
        if rows is not None and self.method == "mean" and not options.keys() & {"lattice__center", "lattice__rotation"}:
            raise ParameterError(
                "has no effect with --method mean; add --options lattice__center=public or --options "
                "lattice__rotation=auto, or leave it out.",
                parameter="public",
            )
        return estimator_of(self.method, budget, classes, **given, **options)


def named_values(
    given: Iterable[str], parameter: str = "options", known: Collection[str] | None = None
) -> dict[str, Any]:
    """Return what ``NAME=VALUE`` says of known names: numbers, tuples and texts as in Python, quoted or not."""
    values: dict[str, Any] = {}
    for one in given:
        name, separator, text = one.partition("=")
        if not separator or not name.isidentifier():
            raise ParameterError(f"must be NAME=VALUE; got {one!r}.", parameter=parameter)
        if name in values:
            raise ParameterError(f"must name each value once; got {name} twice.", parameter=parameter)
        if known is not None and name not in known:
            raise ParameterError(f"must be of {', '.join(known)}; got {name!r}.", parameter=parameter)
        try:
            values[name] = _CONSTANTS[text] if text in _CONSTANTS else ast.literal_eval(text)
        except (SyntaxError, ValueError):
            values[name] = tuple(text.split(",")) if "," in text else text
    return values


@request(panel="engine")
class Where:
    """Where the work is done."""

    engine: str = option(
        "local|ray|ADDRESS",
        "ray: read and compute in tasks of Ray on this machine; auto or ray://HOST:10001: on a cluster "
        "(docs/scale.md). Default local.",
        "local",
    )

    def opened(self) -> Engine | None:
        """Return the engine; None for this process."""
        from dppl.engines import engine_of

        return None if self.engine == "local" else engine_of(self.engine)


@request(panel="encoder")
class ModelEncoder:
    """What embeds records for a model."""

    encoder: str | None = option(
        "URI", "Where the model's encoder is, or the network of `dppl finetune`. Default: as the model names it.", None
    )
    device: str = option("auto|cpu|cuda", "Where the encoder runs. Default auto.", "auto")

    def predictor(self, model: Any, shares: Shares | None = None) -> Predictor:
        """Load the encoder, and say so if a person is watching."""
        from dppl.predictions import load_predictor

        with working("loading the encoder"):
            return load_predictor(model, self.encoder, self.device, shares)  # type: ignore[arg-type]
