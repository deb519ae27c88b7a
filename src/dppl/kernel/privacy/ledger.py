"""The ledger: a lasting record of every release from a private data set, which refuses what its budget does not cover.

A release is charged before any private value enters a mechanism and before noise is
drawn. A process that dies afterwards leaves its charge behind, marked as unfinished.
Costs are exact or rounded up, and one transaction reads the total and adds to it, so
that processes that charge at once never overspend. Three tables of a SQLite file or a
PostgreSQL database hold it.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, TypeAlias

import sqlalchemy as sa

from dppl._utils import validate
from dppl._utils.optional import how_to_install
from dppl._utils.outside import parse_json
from dppl._version import __version__
from dppl.errors import BudgetExceeded, LedgerError, ParameterError
from dppl.kernel.privacy.accounting import (
    epsilon_and_order,
    epsilon_of_zcdp,
    search_epsilon_and_order,
    zcdp_within,
)
from dppl.kernel.privacy.budgets import (
    ApproxDP,
    Budget,
    GaussianDP,
    budget_from_dict,
    checked_budget,
    refuse_slip,
    worth_showing,
)
from dppl.kernel.privacy.composition import (
    Cost,
    epsilon_at,
    total_budget,
    total_epsilon,
    total_mu,
    total_rho,
)
from dppl.kernel.privacy.guarantee import ADJACENCIES, Adjacency, Charge, Guarantee
from dppl.kernel.privacy.rounding import below, root_below
from dppl.kernel.privacy.terms import Mechanism, Term, Unit
from dppl.kernel.privacy.tradeoff import (
    SMALLEST_EPSILON,
    gaussian_epsilon,
    gaussian_mu_within,
)

__all__ = [
    "CHARGED",
    "RELEASED",
    "SCHEMA_VERSION",
    "UNSAVED",
    "Ledger",
    "LedgerEntry",
    "accounts",
]

SCHEMA_VERSION = 5
# Of a charge: paid for; released, and in no file yet; released, and in a file.
CHARGED = "charged"
UNSAVED = "not saved"
RELEASED = "released"
# Whom an account is for: a record, or a person with all of their records.
UNITS = (Unit.RECORD.value, Unit.PERSON.value)
# How accounts add up, by the parameters of their budget; the first is for a new
# account.
_ROUTES = {
    ("mu",): ("gdp",),
    ("rho",): ("zcdp",),
    ("epsilon",): ("pure",),
    ("epsilon", "delta"): ("gdp", "renyi"),
    ("epsilon", "alpha"): ("zcdp",),
}
# What a release must cost to be added up by a route, and what to do with others;
# searches cost none of these.
_COSTS = {
    "gdp": ("mu", "charge it to an account in zCDP"),
    "zcdp": ("rho", "charge it to an account in approximate DP"),
    "pure": (
        "epsilon",
        "Gaussian noise has none, but PublicPrototypes (method public) has one",
    ),
}
_NAME = re.compile("[A-Za-z0-9._-]+( [A-Za-z0-9._-]+)*")
_LOOKS = str.maketrans(
    "01i", "oll"
)  # what small letters and digits look like, some of them as large ones
# The part of the data set that a release came from, None for all of it, and what it
# cost.
Paid: TypeAlias = tuple[str | None, dict[str, Any]]

_FOREIGN = (
    "the ledger holds what dppl did not write, so nothing is charged to it; restore a copy "
    "that is whole."
)
_PATIENCE_S = 120  # how long a charge waits for others to finish theirs
# Every transaction takes the one write lock first, so that nobody charges between its
# read and its write. PostgreSQL needs its default isolation for that, whatever the
# server is set to: a stricter one would read a state from before the wait.
_BEGIN = {
    "sqlite": ("BEGIN IMMEDIATE",),
    "postgresql": (
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET LOCAL synchronous_commit = on",
        f"SET LOCAL lock_timeout = '{_PATIENCE_S}s'",
        "SELECT pg_advisory_xact_lock(1685089388)",  # any number does; this one spells "dppl"
    ),
}

_METADATA = sa.MetaData()
_SCHEMA = sa.Table(
    "dppl_schema", _METADATA, sa.Column("version", sa.Integer, primary_key=True)
)
_DATASETS = sa.Table(
    "dppl_datasets",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("budget", sa.JSON, nullable=False),
    sa.Column("adjacency", sa.String(32), nullable=False),
    sa.Column("created", sa.String(40), nullable=False),
    sa.Column("accounting", sa.String(16), nullable=False),
    sa.Column("unit", sa.String(16), nullable=False),
)
_RELEASES = sa.Table(
    "dppl_releases",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, key="number"),
    sa.Column(
        "dataset_id",
        sa.Integer,
        sa.ForeignKey(_DATASETS.c.id),
        nullable=False,
        index=True,
    ),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("mechanism", sa.JSON, nullable=False),  # each with its number of draws
    sa.Column("cost", sa.JSON, nullable=False),
    sa.Column("adjacency", sa.String(32), nullable=False),
    sa.Column("partition_name", sa.String(255), key="partition"),
    sa.Column("estimator", sa.Text, nullable=False),
    sa.Column("parameters", sa.JSON, nullable=False),
    sa.Column("dppl_version", sa.String(32), nullable=False),
    sa.Column("charged_at", sa.String(40), nullable=False),
    sa.Column("released_at", sa.String(40)),
    sa.Column("model_sha256", sa.String(64)),
    # Of a training that draws step by step: its name, and how many steps have begun.
    sa.Column("run", sa.String(32)),
    sa.Column("begun", sa.Integer),
)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A charge: where it stands, for the statement of the model that it paid for."""

    dataset: str
    number: int  # number of the release in its ledger
    # name of the training that it pays for step by step: a random number, which no
    # other charge in any ledger has
    run: str | None = None

    def __str__(self) -> str:
        return f"{self.dataset}, release {self.number}"

    def noted(self, guarantee: Guarantee) -> Guarantee:
        """Return a guarantee that says where it was charged."""
        return replace(guarantee, charges=(Charge(self.dataset, self.number),))

    def completed(self, guarantee: Guarantee) -> Guarantee:
        """Return what a guarantee says once everything was asked: the same, for records in one place."""
        return guarantee


class Ledger:
    r"""The account of one data set in a ledger file or database.

    Parameters
    ----------
    path_or_url : path or str
        A SQLite file, made where there is none, or the SQLAlchemy URL of a PostgreSQL
        database (``postgresql+psycopg://…``).
    dataset : str
        Name of the private data set: 1 to 255 ASCII letters, digits, ``.``, ``_`` and
        ``-``, with single spaces between them, as all names in a ledger. Whoever adds
        records to it later keeps the name and the account.
    budget : Budget, default=None
        Total that all releases may spend. Needed when the data set is new; afterwards
        None, or the same budget.
    adjacency : {"add-remove", "replace-one"}, default=None
        Relation in which the account is kept, since costs under different relations do
        not add. None is add-remove for a new data set.
    accounting : {"gdp", "renyi"}, default=None
        How a new account in ApproxDP adds up; it stays so, because a route chosen later
        could be chosen by what earlier releases showed. ``"gdp"``, the default, adds
        squares of mu and converts exactly, which allows the most Gaussian noise.
        ``"renyi"`` adds zCDP costs, which allows more selections of public rows, or,
        with searches for hyper-parameters among them, which have no mu, Rényi
        divergences at one order.
    unit : {"record", "person"}, default=None
        Whom the account is for; None is a record for a new data set. One for persons
        takes the releases of fits with `groups`, and no others.

    Notes
    -----
    **Privacy.** Unit: `unit`. Relation: as stated by `adjacency`. Released: nothing;
    the ledger holds costs and public parameters only. Sensitivity: none. Public inputs:
    everything stored. Not covered: releases made without the ledger, and the truth of
    `partition` names. Under replace-one the total holds for the narrowest relation
    among the releases: `MeanPrototypes` hides a replacement within a class only.

    Examples
    --------
    >>> import tempfile, numpy as np, dppl
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = dppl.Ledger(folder.name + "/ledger.db", "wards", dppl.ApproxDP(2, 1e-6))
    >>> model = dppl.MeanPrototypes(dppl.ApproxDP(1, 1e-6), classes=[0, 1])
    >>> model = model.fit(np.eye(2), [0, 1], ledger=ledger)
    >>> round(ledger.spent()["epsilon"], 6)
    1.0
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        dataset: str,
        budget: Budget | None = None,
        *,
        adjacency: Adjacency | None = None,
        accounting: str | None = None,
        unit: str | None = None,
    ) -> None:
        check_name("dataset", dataset)
        if budget is not None and checked_budget(budget).is_zero:
            raise ParameterError(
                "budget must be above 0, or the account could pay for nothing."
            )
        routes: tuple[str, ...] = ()
        if budget is not None:
            refuse_slip(budget)
            routes = _ROUTES[tuple(budget.to_dict())]
        if accounting is not None and routes:
            validate.one_of(routes, accounting=accounting)
        if adjacency is not None:
            validate.one_of(ADJACENCIES, adjacency=adjacency)
        if unit is not None:
            validate.one_of(UNITS, unit=unit)
        # Without a budget the account must be there already, and so must its file.
        self._engine = _connect(path_or_url, must_exist=budget is None)
        with _transaction(self._engine) as connection:
            _prepare(connection)
            row = connection.execute(
                _DATASETS.select().where(_DATASETS.c.name == dataset)
            ).one_or_none()
            if row is None:
                names = _names(connection)
                check_name("dataset", dataset, names)
                if budget is None:
                    rule = f"must be a data set of {self._engine.url.database}, which has {', '.join(names) or 'none'}"
                    text = f"{rule}; got {dataset!r}; `dppl ledger create` opens an account for another."
                    meant = validate.closest(dataset, names)
                    raise ParameterError(text, parameter="dataset", suggestion=meant)
                if unit == Unit.PERSON and adjacency == "replace-one":
                    raise ParameterError(
                        "for persons needs the adjacency add-remove.", parameter="unit"
                    )
                account = _DATASETS.insert().values(
                    name=dataset,
                    budget=budget.to_dict(),
                    adjacency=adjacency or "add-remove",
                    created=_now(),
                    accounting=accounting or routes[0],
                    unit=unit or Unit.RECORD.value,
                )
                row = connection.execute(account.returning(*_DATASETS.c)).one()
        self.dataset = dataset
        try:
            self.budget = budget_from_dict(row.budget)
            validate.one_of(
                _ROUTES[tuple(self.budget.to_dict())], accounting=row.accounting
            )
            validate.one_of(ADJACENCIES, adjacency=row.adjacency)
            validate.one_of(UNITS, unit=row.unit)
        except (KeyError, TypeError, ValueError):
            raise LedgerError(_FOREIGN) from None
        self.adjacency = row.adjacency
        self.accounting = row.accounting
        self.unit = row.unit
        self._parameter = next(
            iter(self.budget.to_dict())
        )  # what is spent: mu, rho or epsilon
        # An account is fixed for good, so whatever is given must be what it was opened
        # with.
        given = {
            "budget": budget,
            "adjacency": adjacency,
            "accounting": accounting,
            "unit": unit,
        }
        for name, value in given.items():
            if value not in (None, fixed := getattr(self, name)):
                raise ParameterError(
                    f"data set {dataset!r} has the {name} {fixed!r} in this ledger; got {value!r}."
                )

    def charge(
        self,
        guarantee: Guarantee,
        *,
        estimator: str = "",
        parameters: dict[str, Any] | None = None,
        partition: str | None = None,
        run: str | None = None,
    ) -> LedgerEntry:
        """Pay for the releases of `guarantee`, or raise `BudgetExceeded` and change nothing.

        Parameters
        ----------
        guarantee : Guarantee
            Its releases are charged, not its budget: a mechanism may cost less than it
            was allowed.
        estimator : str, default=""
            Who asks, for the record.
        parameters : dict, default=None
            Public parameters, JSON-ready, for the record.
        partition : str, default=None
            Name of a part of the data set that shares no record (in an account for
            persons, no person) with parts of other names, which is the caller's word.
            Releases on such parts cost the maximum over parts.
        run : str, default=None
            The random name of a training that draws in steps and may be interrupted, 32
            characters long. It is charged once however often it asks, and `begin_step`
            keeps several processes from drawing more than it paid for.
        """
        cost = self.cost_of(guarantee, partition=partition)
        # What keeps a release from being an ordinary one is kept for the record.
        unusual = {
            name: False
            for name in ("exact", "secure_noise")
            if not getattr(guarantee, name)
        }
        drawn = dict.fromkeys((one.mechanism, one.times) for one in guarantee.releases)
        public = (parameters or {}) | unusual
        try:
            parse_json(_as_json(public))
        except ValueError as error:
            rule = f"must be JSON that can be read again, and {error}"
            raise ParameterError(f"{rule}.", parameter="parameters") from None
        with _transaction(self._engine) as connection:
            if run is not None:
                of_run = (
                    _RELEASES.c.dataset_id == _dataset_id(connection, self.dataset),
                    _RELEASES.c.run == run,
                )
                what = (_RELEASES.c.number, _RELEASES.c.cost, _RELEASES.c.partition)
                paid = connection.execute(sa.select(*what).where(*of_run)).one_or_none()
                if paid is not None:
                    if (paid.cost, paid.partition) != (cost, partition):
                        raise LedgerError(
                            f"release {paid.number} of {self.dataset!r} paid for another training of this name."
                        )
                    return LedgerEntry(self.dataset, paid.number, run)
            self._join(_paid(connection, self.dataset), (partition, cost))
            charge = _RELEASES.insert().values(
                dataset_id=_dataset_id(connection, self.dataset),
                status=CHARGED,
                mechanism=[
                    {"mechanism": mechanism.to_dict(), "times": times}
                    for mechanism, times in drawn
                ],
                cost=cost,
                adjacency=guarantee.adjacency,
                partition=partition,
                estimator=estimator,
                parameters=public,
                dppl_version=__version__,
                charged_at=_now(),
                run=run,
                begun=None if run is None else 0,
            )
            number: int = connection.execute(
                charge.returning(_RELEASES.c.number)
            ).scalar_one()
        return LedgerEntry(self.dataset, number, run)

    def steps_begun(self, entry: LedgerEntry) -> int | None:
        """Return how many steps of a training have begun; None if this ledger does not hold its charge."""
        with _transaction(self._engine) as connection:
            return self._begun(connection, entry)

    def begin_step(
        self, entry: LedgerEntry, step: int, *, answer: str | None = None
    ) -> None:
        """Record that a step of a training begins, before it draws; each begins once.

        Parameters
        ----------
        entry : LedgerEntry
            What `charge` returned for a run.
        step : int
            Steps count from 0.
        answer : str, default=None
            Hash of what the step released, which stays among the parameters of the
            charge until the next one.
        """
        with _transaction(self._engine) as connection:
            begun = self._begun(connection, entry)
            if begun is None:
                raise LedgerError(
                    f"the ledger does not hold the charge of this training of {self.dataset!r} any more."
                )
            if begun > step:
                training = f"the training that release {entry.number} of {self.dataset!r} paid for"
                raise LedgerError(
                    f"step {step + 1} of {training} has begun before, in a run from the same checkpoint."
                )
            of_entry = _RELEASES.c.number == entry.number
            values: dict[str, Any] = {"begun": step + 1}
            if answer is not None:
                known = connection.execute(
                    sa.select(_RELEASES.c.parameters).where(of_entry)
                ).scalar_one()
                values["parameters"] = {**known, "last_answer": answer}
            connection.execute(_RELEASES.update().where(of_entry).values(values))

    def check(self, guarantee: Guarantee, *, partition: str | None = None) -> None:
        """Raise what `charge` would raise now, and charge nothing: before long work.

        Parameters
        ----------
        guarantee : Guarantee
            For instance from the plan that `EmbeddingClassifier.plan` returns.
        partition : str, default=None
            As in `charge`.
        """
        cost = self.cost_of(guarantee, partition=partition)
        with _transaction(self._engine) as connection:
            self._join(_paid(connection, self.dataset), (partition, cost))

    def finish(
        self,
        entry: LedgerEntry,
        *,
        model_sha256: str | None = None,
        tell_time: bool = True,
    ) -> None:
        """Mark a charge as released; it is "not saved" until `saved` says that there is a file.

        Parameters
        ----------
        entry : LedgerEntry
        model_sha256 : str, default=None
            Hash that the model file will have.
        tell_time : bool, default=True
            False for a search, whose time would reveal its number of runs, which must
            stay secret. (Whoever sees the time of the ledger's file, or the logs of a
            database, learns it all the same.)
        """
        values = {
            "status": UNSAVED,
            "released_at": _now() if tell_time else None,
            "model_sha256": model_sha256,
        }
        with _transaction(self._engine) as connection:
            connection.execute(
                _RELEASES.update()
                .where(_RELEASES.c.number == entry.number)
                .values(values)
            )

    def saved(self, entry: LedgerEntry | Charge, sha256: str) -> None:
        """Record that a file holds what a charge paid for.

        Parameters
        ----------
        entry : LedgerEntry or Charge
            Or what a guarantee says of it.
        sha256 : str
            Hash of the file. A file of another hash than `finish` was given changes
            nothing.
        """
        of_others = isinstance(entry, Charge) and entry.party is not None
        if of_others or entry.dataset != self.dataset:
            return
        of_entry = (
            _RELEASES.c.number == entry.number,
            _RELEASES.c.status == UNSAVED,
            sa.func.coalesce(_RELEASES.c.model_sha256, sha256) == sha256,
        )
        with _transaction(self._engine) as connection:
            connection.execute(
                _RELEASES.update()
                .where(
                    _RELEASES.c.dataset_id == _dataset_id(connection, self.dataset),
                    *of_entry,
                )
                .values(status=RELEASED, model_sha256=sha256)
            )

    def spent(self) -> dict[str, float]:
        """Return what is spent, in the parameters of the budget's notion."""
        with _transaction(self._engine) as connection:
            return self.budget.to_dict() | {
                self._parameter: self._total(_paid(connection, self.dataset))
            }

    def left(self) -> dict[str, float]:
        """Return the largest single release that still fits, rounded down; with "renyi" the difference of epsilons."""
        name = self._parameter
        return {name: self._rest(self.budget.to_dict()[name], self.spent()[name])}

    def releases(self) -> list[dict[str, Any]]:
        """Return all charges of the data set in order, JSON-ready."""
        with _transaction(self._engine) as connection:
            hidden = ("dataset_id", "run", "begun")
            columns = [
                column.label(column.key)
                for column in _RELEASES.c
                if column.key not in hidden
            ]
            paid = [
                dict(row._mapping) for row in _rows(connection, self.dataset, *columns)
            ]
        for one in paid:
            _check_charge(one)
        return paid

    def to_dict(self) -> dict[str, Any]:
        """Return the whole account, JSON-ready."""
        return {
            "dataset": self.dataset,
            "adjacency": self.adjacency,
            "budget": self.budget.to_dict(),
            "accounting": self.accounting,
            "unit": self.unit,
            "spent": self.spent(),
            "left": self.left(),
            "releases": self.releases(),
        }

    def _repr_html_(self) -> str:
        """Show the account in a notebook."""
        from dppl.statement import words  # here, because the kernel knows no words

        return words.account_as_html(self.to_dict())

    def cost_of(
        self, guarantee: Guarantee, *, partition: str | None = None
    ) -> dict[str, Any]:
        """Return what a release costs here; raise ParameterError if it is of no kind that this account adds up.

        Parameters
        ----------
        guarantee : Guarantee
        partition : str, default=None
            As in `charge`.
        """
        if partition is not None:
            check_name("partition", partition)
            if self.adjacency == "replace-one":
                rule = "needs an account under add-remove: a record that is replaced may touch both parts"
                raise ParameterError(f"{rule}.", parameter="partition")
        if guarantee.adjacency != self.adjacency:
            kinds = f"under {self.adjacency}, but this release is private under {guarantee.adjacency}"
            raise ParameterError(
                f"data set {self.dataset!r} is accounted {kinds}; such costs do not add."
            )
        unit = guarantee.unit.of_account.value
        if unit != self.unit:
            kinds = f"by the {self.unit}, but this release protects a {unit}"
            fit = f"fit {'without' if unit == 'person' else 'with'} groups, or open an account for {unit}s"
            raise ParameterError(
                f"data set {self.dataset!r} is accounted {kinds}: {fit}."
            )
        costs = guarantee.costs()
        if any(cost.mean_runs is not None for cost in costs):
            if len(costs) > 1:
                raise ParameterError(
                    "a search is charged alone; charge each guarantee that holds one by itself."
                )
            return dict(guarantee.releases[0].cost)
        # A notion in which one of the releases has no cost has none of all together.
        total = {"rho": total_rho(costs)}
        if all(cost.mu is not None for cost in costs):
            total["mu"] = total_mu(costs)
        if all(cost.epsilon is not None for cost in costs):
            total["epsilon"] = total_epsilon(costs)
        return total

    def _join(self, paid: Sequence[Paid], new: Paid) -> None:
        """Refuse a release that may not join those that are paid, in the order in which they were."""
        partition, cost = new
        if partition is not None:
            parts = {name for name, _ in paid if name is not None}
            check_name("partition", partition, parts)
        needed, instead = _COSTS.get(self.accounting, (None, ""))
        if needed not in (None, *cost):
            if "mean_runs" in cost:
                instead = "a search for hyper-parameters needs one in approximate DP with the accounting 'renyi'"
            account = (
                f"data set {self.dataset!r} has the accounting {self.accounting!r}"
            )
            raise BudgetExceeded(
                f"{account}, in which this release states no cost; {instead}."
            )
        total = self._total([*paid, new])
        budget = self.budget.to_dict()[self._parameter]
        if total > budget:
            spent = self._total(paid)
            needs = self._rest(total, spent)
            left = worth_showing(self._rest(budget, spent), budget)
            # With few digits, or with all of them where the two would look the same.
            digits = ".6g" if f"{needs:.6g}" != f"{left:.6g}" else ""
            raise BudgetExceeded(
                f"this release needs {self._parameter} = {needs:{digits}} of data set {self.dataset!r}, which has "
                f"{left:{digits}} left of {budget:.6g}. Nothing was drawn and nothing charged. "
                f"What is spent does not come back: take a smaller budget, or records that share no {self.unit} with "
                "these, as a part of their own."
            )

    def _total(self, paid: Sequence[Paid]) -> float:
        """Return what releases cost together: parts of different names by maximum, everything else by sum."""
        costs = [(partition, Cost.from_dict(cost)) for partition, cost in paid]
        order = self._order([cost for _, cost in costs])
        parts: set[str | None] = {None, *(partition for partition, _ in costs)}
        totals = []
        for part in parts:
            # Parts are disjoint: a record is in one of them, and in what names none.
            of_part = [cost for name, cost in costs if name in (None, part)]
            totals.append(self._sum(of_part, order))
        return max(totals)

    def _rest(self, whole: float, part: float) -> float:
        """Return what `whole` has beyond `part`, rounded down; of mu it is squares that add up."""
        if not whole > part:
            return 0.0
        if isinstance(self.budget, GaussianDP):
            return root_below(Fraction(whole) ** 2 - Fraction(part) ** 2)
        if isinstance(self.budget, ApproxDP) and self.accounting == "gdp" and part > 0:
            of_whole, of_part = (
                gaussian_mu_within(epsilon, self.budget.delta)
                for epsilon in (whole, part)
            )
            squared = Fraction(of_whole) ** 2 - Fraction(of_part) ** 2
            epsilon = 0.0
            if squared > 0:
                epsilon = gaussian_epsilon(root_below(squared), self.budget.delta)
            if epsilon > SMALLEST_EPSILON:
                return math.nextafter(epsilon, 0.0)
            return 0.0
        return below(Fraction(whole) - Fraction(part))

    def _order(self, costs: list[Cost]) -> float | None:
        """Return the Rényi order of an account with searches, which was settled before anything was released.

        It follows from the first release if this was a search, else from the conversion
        of the budget itself. An order chosen later could be chosen by what earlier
        releases showed.
        """
        if self.accounting != "renyi" or all(cost.mean_runs is None for cost in costs):
            return None
        assert isinstance(self.budget, ApproxDP)
        first = costs[0]
        delta = self.budget.delta
        if first.mean_runs is None:
            return epsilon_and_order(zcdp_within(self.budget.epsilon, delta), delta)[1]
        return search_epsilon_and_order(first.rho, first.mean_runs, delta)[1]

    def _sum(self, costs: list[Cost], order: float | None) -> float:
        """Add up by the route of this account.

        Costs are chosen by what came before, and only sums of fixed kinds of cost are
        proven to hold then (Feldman, Zrnic 2021, arXiv:2008.11193; Smith, Thakurta
        2022, arXiv:2210.17520), not the best of several routes.
        """
        if not costs:
            return 0.0
        # Equal costs are counted, so that a long account adds up quickly.
        costs = [replace(cost, count=count) for cost, count in Counter(costs).items()]
        if not isinstance(self.budget, ApproxDP):
            return total_budget(self.budget, costs).to_dict()[self._parameter]
        if self.accounting == "gdp":
            return gaussian_epsilon(total_mu(costs), self.budget.delta)
        if order is None:
            return epsilon_of_zcdp(total_rho(costs), self.budget.delta)
        return epsilon_at(costs, self.budget.delta, order)

    def _begun(self, connection: sa.Connection, entry: LedgerEntry) -> int | None:
        if entry.run is None or entry.dataset != self.dataset:
            return None
        query = sa.select(_RELEASES.c.begun).where(
            _RELEASES.c.number == entry.number, _RELEASES.c.run == entry.run
        )
        return connection.execute(query).scalar_one_or_none()


def accounts(path_or_url: str | os.PathLike[str]) -> list[Ledger]:
    """Return the accounts of all data sets in an existing file or database; it may hold none yet."""
    with _transaction(_connect(path_or_url, must_exist=True)) as connection:
        if not sa.inspect(connection).has_table(_SCHEMA.name):
            return []
        _prepare(connection)
        names = _names(connection)
    return [Ledger(path_or_url, name) for name in names]


def check_name(parameter: str, name: object, others: Iterable[str] = ()) -> None:
    """Raise unless a name is a plain one, and looks like none in use, which would split one account or part in two."""
    if not isinstance(name, str) or len(name) > 255 or not _NAME.fullmatch(name):
        rule = "must be a name of 1 to 255 ASCII letters, digits, '.', '_' and '-', with single spaces between them"
        raise ParameterError(f"{rule}; got {name!a}.", parameter=parameter)
    for other in others:
        if name != other and name.lower().translate(_LOOKS) == other.lower().translate(
            _LOOKS
        ):
            rule = "must not look like a name that is in use; for the same records give that one"
            raise ParameterError(
                f"{rule}: got {name!r}, which looks like {other!r}.",
                parameter=parameter,
            )


def _connect(path_or_url: str | os.PathLike[str], *, must_exist: bool) -> sa.Engine:
    """Return what makes connections to a place as `Ledger` takes it, each for one transaction."""
    text = os.fspath(path_or_url)
    try:
        if "://" in text:
            url = sa.make_url(text)
        else:
            url = sa.URL.create("sqlite", database=text)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        # No pool: a connection that outlives its transaction would keep files open and
        # locks alive.
        engine = sa.create_engine(
            url,
            poolclass=sa.pool.NullPool,
            json_serializer=_as_json,
            json_deserializer=_read_column,
        )
    except (sa.exc.ArgumentError, ImportError, ValueError) as error:
        # Other texts than of a missing module could quote a password.
        reason = ""
        if isinstance(error, ImportError):
            reason = f" ({error})"
        places = f"a SQLite file or the URL of a PostgreSQL database (extra {how_to_install('postgresql')})"
        raise LedgerError(
            f"a ledger is {places}; this one cannot be used{reason}."
        ) from None
    if engine.dialect.name not in _BEGIN:
        raise LedgerError(
            f"a ledger is kept in SQLite or PostgreSQL; got {engine.dialect.name}."
        )
    if engine.dialect.name == "sqlite":
        file = url.database
        if not file or ":memory:" in file:
            raise LedgerError("a ledger in memory would be forgotten; name a file.")
        if must_exist and not file.startswith("file:") and not os.path.exists(file):
            raise LedgerError(
                f"there is no ledger {file}; create one with `dppl ledger create`."
            )
        sa.event.listen(engine, "connect", _make_sqlite_strict)

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        for statement in _BEGIN[engine.dialect.name]:
            connection.exec_driver_sql(statement)

    return engine


def _make_sqlite_strict(connection: Any, _: Any) -> None:
    connection.isolation_level = (
        None  # the driver would begin transactions later than we must
    )
    connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_S * 1000}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


@contextmanager
def _transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Let nobody else read or write until the end, and take all of it back if it ends with an error."""
    try:
        with engine.begin() as connection:
            yield connection
    # Messages of SQLite quote the bytes of a damaged schema, which may be no UTF-8.
    except (sa.exc.SQLAlchemyError, UnicodeError) as error:
        # The statement and its parameters are omitted; they are public, but long.
        reason = " ".join(
            str(getattr(error, "orig", None) or type(error).__name__).split()
        )
        file = ""
        if engine.url.drivername == "sqlite":
            file = f" {engine.url.database}"
        raise LedgerError(
            f"the ledger{file} cannot be used: {reason.rstrip('.')}."
        ) from None


def _prepare(connection: sa.Connection) -> None:
    """Make the tables; refuse another schema."""
    _METADATA.create_all(connection)
    version = connection.execute(sa.select(_SCHEMA.c.version)).scalar_one_or_none()
    if version is None:
        connection.execute(_SCHEMA.insert().values(version=SCHEMA_VERSION))
    elif version != SCHEMA_VERSION:
        raise LedgerError(
            f"the ledger has schema {version}; this version of dppl reads schema {SCHEMA_VERSION}."
        )


def _names(connection: sa.Connection) -> list[str]:
    """Return the data sets, in the order in which their accounts were made."""
    return list(
        connection.execute(
            sa.select(_DATASETS.c.name).order_by(_DATASETS.c.id)
        ).scalars()
    )


def _dataset_id(connection: sa.Connection, dataset: str) -> int:
    row = connection.execute(
        _DATASETS.select().where(_DATASETS.c.name == dataset)
    ).one_or_none()
    if row is None:
        raise LedgerError(f"the ledger has no data set {dataset!r} any more.")
    return int(row.id)


def _rows(
    connection: sa.Connection, dataset: str, *columns: sa.ColumnElement[Any]
) -> Iterator[Any]:
    """Return the charges of a data set in order: the first one settles the order of an account."""
    of_dataset = _RELEASES.c.dataset_id == _dataset_id(connection, dataset)
    yield from connection.execute(
        sa.select(*columns).where(of_dataset).order_by(_RELEASES.c.number)
    )


def _paid(connection: sa.Connection, dataset: str) -> list[Paid]:
    paid: list[Paid] = [
        tuple(row)
        for row in _rows(connection, dataset, _RELEASES.c.partition, _RELEASES.c.cost)
    ]
    for _, cost in paid:
        _check_cost(cost)
    return paid


def _as_json(value: Any) -> str:
    return json.dumps(value, default=str)


def _read_column(text: object) -> Any:
    """Return the JSON of a column, which anybody who has the file may have written."""
    try:
        # PostgreSQL's driver gives bytes, and SQLite numbers as such.
        return parse_json(text if isinstance(text, bytes) else str(text))
    except ValueError:
        raise LedgerError(_FOREIGN) from None


def _check_cost(cost: Any) -> None:
    """Raise unless a charge has a cost."""
    try:
        Cost.from_dict(cost)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise LedgerError(_FOREIGN) from None


def _check_charge(charge: Mapping[str, Any]) -> None:
    """Raise unless a charge has the form that `Ledger.charge` writes."""
    _check_cost(charge["cost"])
    texts = ("status", "estimator", "charged_at")
    try:
        for one in charge["mechanism"]:
            Term.from_dict(Mechanism, one["mechanism"])
            validate.positive_integer(times=one["times"])
        whole = all(type(charge[name]) is str for name in texts)
        whole &= isinstance(charge["parameters"], dict)
        whole &= isinstance(charge["model_sha256"], str | None)
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise LedgerError(_FOREIGN)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
