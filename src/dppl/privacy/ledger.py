"""The ledger: a lasting record of every release from a private data set, which refuses what its budget does not cover.

A release is charged before any private value enters a mechanism and before noise is drawn. A process that dies
afterwards leaves its charge behind, marked as unfinished: what was spent is never under-counted. All arithmetic on
costs is exact or rounded up, and one transaction reads the total and adds to it, so that processes that charge at once
never overspend together.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import sqlalchemy as sa

from dppl import _validate
from dppl._version import __version__
from dppl.errors import BudgetExceeded, LedgerError, ParameterError
from dppl.privacy.accounting import epsilon_of_zcdp, float_below, mu_below, order_of_zcdp_within
from dppl.privacy.budgets import ZCDP, ApproxDP, Budget, GaussianDP, PureDP
from dppl.privacy.composition import Cost, epsilon_at, total_epsilon, total_mu, total_rho
from dppl.privacy.guarantee import ADJACENCIES, Guarantee, budget_from_dict
from dppl.privacy.names import check_name, refuse_look_alike
from dppl.privacy.search import best_order
from dppl.privacy.tradeoff import SMALLEST_EPSILON, gaussian_epsilon, gaussian_mu_within

SCHEMA_VERSION = 2
# Routes by which an account adds up, fixed when it is made. `tests/privacy/before` holds a ledger of schema 1, which
# had no column for them: accounts in approximate DP then counted as "renyi" does.
_ROUTES = {"mu": ("gdp",), "rho": ("zcdp",), "epsilon": ("pure",), "epsilon, delta": ("gdp", "renyi")}
CHARGED, RELEASED = "charged", "released"
_PATIENCE_S = 120  # how long a charge waits for others to finish theirs
# Every transaction takes the one write lock first, so that nobody charges between its read and its write. PostgreSQL
# needs its default isolation for that, whatever the server is set to: a stricter one would read a state from before
# the wait.
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
_SCHEMA = sa.Table("dppl_schema", _METADATA, sa.Column("version", sa.Integer, primary_key=True))
_DATASETS = sa.Table(
    "dppl_datasets",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("budget", sa.Text, nullable=False),
    sa.Column("adjacency", sa.String(32), nullable=False),
    sa.Column("created", sa.String(40), nullable=False),
    sa.Column("accounting", sa.String(16)),
)
_RELEASES = sa.Table(
    "dppl_releases",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("dataset_id", sa.Integer, sa.ForeignKey(_DATASETS.c.id), nullable=False, index=True),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("mechanism", sa.Text, nullable=False),
    sa.Column("cost", sa.Text, nullable=False),
    sa.Column("adjacency", sa.String(32), nullable=False),
    sa.Column("partition_name", sa.String(255)),
    sa.Column("estimator", sa.Text, nullable=False),
    sa.Column("parameters", sa.Text, nullable=False),
    sa.Column("dppl_version", sa.String(32), nullable=False),
    sa.Column("charged_at", sa.String(40), nullable=False),
    sa.Column("released_at", sa.String(40)),
    sa.Column("model_sha256", sa.String(64)),
)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A charge: where it stands, for the statement of the model that it paid for.

    Parameters
    ----------
    dataset : str
    number : int
        Number of the release in its ledger.
    """

    dataset: str
    number: int


class Ledger:
    r"""The account of one data set in a ledger file or database.

    Parameters
    ----------
    path_or_url : path or str
        A SQLite file, made where there is none, or the SQLAlchemy URL of a PostgreSQL database
        (``postgresql+psycopg://…``).
    dataset : str
        Name of the private data set. Whoever adds records to it later keeps the name and the account.
    budget : Budget, default=None
        Total that all releases may spend. Needed when the data set is new; afterwards None, or the same budget.
    adjacency : {"add-remove", "replace-one"}, default=None
        Relation in which the account is kept. None is add-remove for a new data set. Releases under another relation
        are refused, because costs under different relations do not add.
    accounting : {"gdp", "renyi"}, default=None
        How a new account in ApproxDP adds up; it stays so, because a route chosen later could be chosen by what earlier
        releases showed. ``"gdp"``, the default, adds squares of mu and converts exactly, which allows the most Gaussian
        noise. ``"renyi"`` adds zCDP costs, which allows more selections of public rows, or, with searches for
        hyper-parameters among them, which have no mu, Rényi divergences at one order.

    Raises
    ------
    ParameterError
        If the data set is new and `budget` is missing or its name looks like that of another one here, or what is given
        contradicts the ledger.
    LedgerError
        If the file or database is not a ledger, one of a later schema, or cannot be reached.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: as stated by `adjacency`. Released: nothing; the ledger holds costs and
    public parameters only. Sensitivity: none. Public inputs: everything stored. Not covered: releases made without the
    ledger, and the truth of `partition` names. Under replace-one the total holds for the narrowest relation among the
    releases: `MeanPrototypes` hides a replacement within a class only.

    Examples
    --------
    >>> import tempfile, numpy as np, dppl
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(folder.name + "/ledger.db", "wards", ZCDP(1.0))
    >>> model = dppl.MeanPrototypes(dppl.ZCDP(0.75), classes=[0, 1]).fit(np.eye(2), [0, 1], ledger=ledger)
    >>> round(ledger.spent()["rho"], 6)
    0.75
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        dataset: str,
        budget: Budget | None = None,
        *,
        adjacency: str | None = None,
        accounting: str | None = None,
    ) -> None:
        check_name("dataset", dataset)
        if budget is not None and not isinstance(budget, Budget):
            raise ParameterError(f"budget must be GaussianDP, ZCDP, ApproxDP or PureDP; got {budget!r}.")
        if budget is not None and accounting is not None:
            _validate.one_of(_routes(budget), accounting=accounting)
        if adjacency is not None:
            _validate.one_of(ADJACENCIES, adjacency=adjacency)
        # Without a budget the account must be there already, and so must its file.
        self._engine = _engine(path_or_url, must_exist=budget is None)
        self.dataset = dataset
        with _transaction(self._engine) as connection:
            _prepare_schema(connection)
            row = _find(connection, dataset)
            if row is None:
                refuse_look_alike("dataset", dataset, connection.execute(sa.select(_DATASETS.c.name)).scalars())
                if budget is None:
                    raise ParameterError(f"the ledger has no data set {dataset!r}; give its total budget to open one.")
                connection.execute(
                    _DATASETS.insert().values(
                        name=dataset,
                        budget=json.dumps(budget.to_dict()),
                        adjacency=adjacency or "add-remove",
                        created=_now(),
                        accounting=accounting or _routes(budget)[0],
                    )
                )
                row = _find(connection, dataset)
        assert row is not None
        self.budget = budget_from_dict(json.loads(row.budget))
        self.adjacency: str = row.adjacency
        self.accounting: str = row.accounting
        if budget not in (None, self.budget):
            raise ParameterError(f"data set {dataset!r} has the budget {self.budget!r} in this ledger; got {budget!r}.")
        if adjacency not in (None, self.adjacency):
            raise ParameterError(f"data set {dataset!r} is accounted under {self.adjacency}; got {adjacency!r}.")
        if accounting not in (None, self.accounting):
            raise ParameterError(f"data set {dataset!r} has the accounting {self.accounting!r}; got {accounting!r}.")

    def charge(
        self,
        guarantee: Guarantee,
        *,
        estimator: str = "",
        parameters: dict[str, Any] | None = None,
        partition: str | None = None,
    ) -> LedgerEntry:
        """Pay for the releases of `guarantee`, or refuse and change nothing.

        Parameters
        ----------
        guarantee : Guarantee
            Its releases are charged, not its budget: a mechanism may cost less than it was allowed.
        estimator : str, default=""
            Who asks, for the record.
        parameters : dict, default=None
            Public parameters, JSON-ready, for the record.
        partition : str, default=None
            Name of a part of the data set that shares no record with parts of other names. Releases on such parts
            cost together the maximum over parts; that they are disjoint is the caller's word.

        Returns
        -------
        LedgerEntry

        Raises
        ------
        BudgetExceeded
            If the total would exceed the budget of the data set.
        BudgetError
            If the releases are accounted in (epsilon, delta) only, which no account adds up.
        ParameterError
            If the guarantee is for another adjacency than the account, or `partition` is not a name, or a new one that
            looks like that of another part.
        """
        cost = self._cost(guarantee, partition)
        with _transaction(self._engine) as connection:
            row = _find(connection, self.dataset)
            assert row is not None
            self._refuse(_paid(connection, row.id), partition, cost)
            number = connection.execute(
                _RELEASES.insert()
                .values(
                    dataset_id=row.id,
                    status=CHARGED,
                    mechanism="; ".join(dict.fromkeys(release.drawn for release in guarantee.releases)),
                    cost=json.dumps(cost),
                    adjacency=guarantee.adjacency,
                    partition_name=partition,
                    estimator=estimator,
                    parameters=json.dumps(
                        {**_reservations(guarantee), **(parameters or {})}, sort_keys=True, default=str
                    ),
                    dppl_version=__version__,
                    charged_at=_now(),
                )
                .returning(_RELEASES.c.id)
            ).scalar_one()
        return LedgerEntry(self.dataset, int(number))

    def check(self, guarantee: Guarantee, *, partition: str | None = None) -> None:
        """Refuse what `charge` would refuse now, and charge nothing: for asking before long work.

        Parameters
        ----------
        guarantee : Guarantee
            For instance from the plan that `EmbeddingClassifier.plan` returns.
        partition : str, default=None
            As in `charge`.

        Raises
        ------
        BudgetExceeded, BudgetError, ParameterError
            As `charge`.
        """
        cost = self._cost(guarantee, partition)
        with _transaction(self._engine) as connection:
            row = _find(connection, self.dataset)
            assert row is not None
            self._refuse(_paid(connection, row.id), partition, cost)

    def finish(self, entry: LedgerEntry, *, model_sha256: str | None = None, tell_time: bool = True) -> None:
        """Mark a charge as released, with the hash of the model file that it paid for.

        The time is left out on request: that of a search would tell its number of runs, which must stay secret. Whoever
        sees the time of the ledger's file (or the logs of a database) can tell it all the same.

        Parameters
        ----------
        entry : LedgerEntry
            What `charge` returned.
        model_sha256 : str, default=None
            Hash of the model file; None if there is none.
        tell_time : bool, default=True
            Whether the time is kept, too.
        """
        with _transaction(self._engine) as connection:
            connection.execute(
                _RELEASES.update()
                .where(_RELEASES.c.id == entry.number)
                .values(status=RELEASED, released_at=_now() if tell_time else None, model_sha256=model_sha256)
            )

    def spent(self) -> dict[str, float]:
        """Return what is spent, in the parameters of the budget's notion."""
        with _transaction(self._engine) as connection:
            row = _find(connection, self.dataset)
            assert row is not None
            return self._total(_paid(connection, row.id))

    def left(self) -> dict[str, float]:
        """Return the largest single release that still fits, rounded down.

        Where an ApproxDP account adds zCDP costs or Rényi divergences it is the difference of epsilons, a rough guide.
        """
        name = _main_parameter(self.budget)
        return {name: self._rest(self.budget.to_dict()[name], self.spent()[name])}

    def releases(self) -> list[dict[str, Any]]:
        """Return all charges of the data set in order, JSON-ready."""
        with _transaction(self._engine) as connection:
            row = _find(connection, self.dataset)
            assert row is not None
            query = _RELEASES.select().where(_RELEASES.c.dataset_id == row.id).order_by(_RELEASES.c.id)
            return [_as_dict(release) for release in connection.execute(query)]

    def to_dict(self) -> dict[str, Any]:
        """Return the whole account, JSON-ready."""
        return {
            "dataset": self.dataset,
            "adjacency": self.adjacency,
            "budget": self.budget.to_dict(),
            "accounting": self.accounting,
            "spent": self.spent(),
            "left": self.left(),
            "releases": self.releases(),
        }

    def _cost(self, guarantee: Guarantee, partition: str | None) -> dict[str, Any]:
        """Return what a release costs, if it is of a kind that this account adds up."""
        if partition is not None:
            check_name("partition", partition)
            if self.adjacency == "replace-one":
                raise ParameterError(
                    "needs an account under add-remove: under replace-one a record may leave one part and enter "
                    "another, and so touch both.",
                    parameter="partition",
                )
        if guarantee.adjacency != self.adjacency:
            raise ParameterError(
                f"data set {self.dataset!r} is accounted under {self.adjacency}, but this release is private under "
                f"{guarantee.adjacency}; costs under different relations do not add."
            )
        return _cost_of(guarantee)

    def _refuse(
        self, paid: list[tuple[str | None, dict[str, Any]]], partition: str | None, cost: dict[str, Any]
    ) -> None:
        parts = {name for name, _ in paid if name is not None}
        if partition is not None and partition not in parts:
            refuse_look_alike("partition", partition, parts)
        self._refuse_overspending(paid, (partition, cost))

    def _refuse_overspending(self, paid: list[tuple[str | None, dict[str, Any]]], new: tuple[str | None, Any]) -> None:
        if self.accounting != "renyi" and "mean_runs" in new[1]:
            raise BudgetExceeded(
                f"data set {self.dataset!r} has the accounting {self.accounting!r}, but a search for hyper-parameters "
                "is accounted in Rényi divergences only; its account must be made in approximate DP, with the "
                "accounting 'renyi'."
            )
        if self.accounting == "gdp" and "mu" not in new[1]:
            raise BudgetExceeded(
                f"data set {self.dataset!r} is accounted in Gaussian DP, in which this release, of an earlier dppl, "
                "stated no cost; charge it to an account in zCDP."
            )
        if self.accounting == "pure" and "epsilon" not in new[1]:
            raise BudgetExceeded(
                f"data set {self.dataset!r} has a pure-DP budget, but this release (Gaussian noise) has no such cost; "
                "PublicPrototypes (method public) has one."
            )
        total = self._total([*paid, new])
        name = _main_parameter(self.budget)
        budget = self.budget.to_dict()[name]
        if total[name] > budget:
            spent = self._total(paid)[name]
            needed, left = _told_apart(self._rest(total[name], spent), self._rest(budget, spent))
            raise BudgetExceeded(
                f"this release needs {name} = {needed} of data set {self.dataset!r}, which has {left} left of "
                f"{budget:.6g}. Nothing was drawn and nothing charged."
            )

    def _rest(self, whole: float, part: float) -> float:
        """Return what `whole` has beyond `part`, rounded down; of mu it is squares that add up."""
        if not whole > part:
            return 0.0
        if isinstance(self.budget, GaussianDP):
            return mu_below(Fraction(whole) ** 2 - Fraction(part) ** 2)
        if isinstance(self.budget, ApproxDP) and self.accounting == "gdp" and part > 0:
            of_whole, of_part = (gaussian_mu_within(epsilon, self.budget.delta) for epsilon in (whole, part))
            squared = Fraction(of_whole) ** 2 - Fraction(of_part) ** 2
            epsilon = gaussian_epsilon(mu_below(squared), self.budget.delta) if squared > 0 else 0.0
            return math.nextafter(epsilon, 0.0) if epsilon > SMALLEST_EPSILON else 0.0
        return float_below(Fraction(whole) - Fraction(part))

    def _total(self, paid: Sequence[tuple[str | None, dict[str, Any]]]) -> dict[str, float]:
        """Compose: parts of different names by maximum, everything else by sum."""
        order = self._order([Cost.from_dict(cost) for _, cost in paid])
        shared = [cost for partition, cost in paid if partition is None]
        parts = {partition for partition, _ in paid if partition is not None}
        groups = [shared + [cost for name, cost in paid if name == partition] for partition in parts] or [shared]
        return max(
            (self._compose(group, order) for group in groups), key=lambda total: total[_main_parameter(self.budget)]
        )

    def _order(self, costs: list[Cost]) -> float | None:
        """Return the Rényi order of an account with searches, which was settled before anything was released.

        It is that of the first release if this was a search, else the one at which the budget itself converts. An order
        chosen later could be chosen by what earlier releases showed.
        """
        if self.accounting != "renyi" or all(cost.mean_runs is None for cost in costs):
            return None
        assert isinstance(self.budget, ApproxDP)
        first = costs[0]
        if first.mean_runs is None:
            return order_of_zcdp_within(self.budget.epsilon, self.budget.delta)
        return best_order(first.rho, first.mean_runs, self.budget.delta)

    def _compose(self, paid: list[dict[str, Any]], order: float | None) -> dict[str, float]:
        costs = _grouped(paid)
        if isinstance(self.budget, ZCDP):
            return {"rho": total_rho(costs)}
        if isinstance(self.budget, PureDP):
            return {"epsilon": total_epsilon(costs)}
        if isinstance(self.budget, GaussianDP):
            return {"mu": total_mu(costs)}
        assert isinstance(self.budget, ApproxDP)
        # One route for good: costs are chosen by what came before, and only sums of fixed kinds of cost are proven to
        # hold then (Feldman, Zrnic 2021, arXiv:2008.11193; Smith, Thakurta 2022, arXiv:2210.17520), not the best of
        # several routes.
        if not costs:
            epsilon = 0.0
        elif self.accounting == "gdp":
            epsilon = gaussian_epsilon(total_mu(costs), self.budget.delta)
        elif order is None:
            epsilon = epsilon_of_zcdp(total_rho(costs), self.budget.delta)
        else:
            epsilon = epsilon_at(costs, self.budget.delta, order)
        return {"epsilon": epsilon, "delta": self.budget.delta}


def accounts(path_or_url: str | os.PathLike[str]) -> list[Ledger]:
    """Return the accounts of all data sets in an existing file or database; it may hold none yet.

    Raises
    ------
    LedgerError
        If there is no file, or it cannot be used.
    """
    with _transaction(_engine(path_or_url, must_exist=True)) as connection:
        if not sa.inspect(connection).has_table(_SCHEMA.name):
            return []
        _prepare_schema(connection)
        names = connection.execute(sa.select(_DATASETS.c.name).order_by(_DATASETS.c.id)).scalars().all()
    return [Ledger(path_or_url, name) for name in names]


def _reservations(guarantee: Guarantee) -> dict[str, bool]:
    """Return what keeps a release from being an ordinary one, for the record."""
    usual = {"exact": guarantee.exact, "fit_for_release": guarantee.fit_for_release}
    return {name: value for name, value in usual.items() if not value}


def _cost_of(guarantee: Guarantee) -> dict[str, Any]:
    """Add up the releases of one fit; a pure cost only if all of them have one. A search is one release."""
    costs = guarantee.costs()
    if any(cost.mean_runs is not None for cost in costs):
        if len(costs) > 1:
            raise ParameterError("a search is charged alone; charge each guarantee that holds one by itself.")
        return dict(guarantee.releases[0].cost)
    total: dict[str, Any] = {"rho": total_rho(costs)}
    if all(cost.mu is not None for cost in costs):
        total["mu"] = total_mu(costs)
    if all(cost.epsilon is not None for cost in costs):
        total["epsilon"] = total_epsilon(costs)
    return total


def _grouped(paid: list[dict[str, Any]]) -> list[Cost]:
    counts = Counter(Cost.from_dict(cost) for cost in paid)
    return [replace(cost, count=count) for cost, count in counts.items()]


def _told_apart(first: float, second: float) -> tuple[str, str]:
    """Write two numbers with few digits, or with all of them where they would look the same."""
    short = f"{first:.6g}", f"{second:.6g}"
    return short if short[0] != short[1] else (repr(first), repr(second))


def _main_parameter(budget: Budget) -> str:
    return next(iter(budget.to_dict()))


def _routes(budget: Budget) -> tuple[str, ...]:
    return _ROUTES[", ".join(budget.to_dict())]


def _engine(path_or_url: str | os.PathLike[str], *, must_exist: bool = False) -> sa.Engine:
    text = os.fspath(path_or_url)
    try:
        url = sa.make_url(text) if "://" in text else sa.URL.create("sqlite", database=text)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        # No pool: a connection that outlives its transaction would keep files open and locks alive.
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    except (sa.exc.ArgumentError, ImportError, ValueError) as error:
        # Other texts than that of a missing module could quote a password.
        reason = f" ({error})" if isinstance(error, ImportError) else ""
        raise LedgerError(
            f"a ledger is a SQLite file or the URL of a PostgreSQL database; this one cannot be used{reason}. "
            "For PostgreSQL install the extra: pip install 'dppl[postgresql]'."
        ) from None
    if engine.dialect.name not in _BEGIN:
        raise LedgerError(f"a ledger is kept in SQLite or PostgreSQL; got {engine.dialect.name}.")
    if engine.dialect.name == "sqlite":
        file = url.database
        if not file or ":memory:" in file:
            raise LedgerError("a ledger in memory would be forgotten; name a file.")
        if must_exist and not file.startswith("file:") and not os.path.exists(file):
            raise LedgerError(f"there is no ledger {file}; open one with a budget, or `dppl ledger create`.")
        sa.event.listen(engine, "connect", _make_sqlite_strict)

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        for statement in _BEGIN[engine.dialect.name]:
            connection.exec_driver_sql(statement)

    return engine


def _make_sqlite_strict(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # the driver would begin transactions later than we must
    connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_S * 1000}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


@contextmanager
def _transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    try:
        with engine.begin() as connection:
            yield connection
    except sa.exc.SQLAlchemyError as error:
        # The statement and its parameters are left out; they are public, but long.
        reason = " ".join(str(getattr(error, "orig", None) or type(error).__name__).split())
        raise LedgerError(f"the ledger cannot be used: {reason.rstrip('.')}.") from None


def _prepare_schema(connection: sa.Connection) -> None:
    _METADATA.create_all(connection)
    version = connection.execute(sa.select(_SCHEMA.c.version)).scalar_one_or_none()
    if version is None:
        connection.execute(_SCHEMA.insert().values(version=SCHEMA_VERSION))
    elif version == 1:
        _upgrade(connection)
    elif version != SCHEMA_VERSION:
        raise LedgerError(
            f"the ledger has schema {version}; this version of dppl knows schema {SCHEMA_VERSION}. Update dppl."
        )


def _upgrade(connection: sa.Connection) -> None:
    """Turn a ledger of schema 1 into one of schema 2, whose accounts add up as they did."""
    connection.exec_driver_sql(f"ALTER TABLE {_DATASETS.name} ADD COLUMN accounting VARCHAR(16)")
    for row in connection.execute(_DATASETS.select()).all():
        route = _routes(budget_from_dict(json.loads(row.budget)))[-1]
        connection.execute(_DATASETS.update().where(_DATASETS.c.id == row.id).values(accounting=route))
    connection.execute(_SCHEMA.update().values(version=SCHEMA_VERSION))


def _find(connection: sa.Connection, dataset: str) -> Any:
    return connection.execute(_DATASETS.select().where(_DATASETS.c.name == dataset)).one_or_none()


def _paid(connection: sa.Connection, dataset_id: int) -> list[tuple[str | None, dict[str, Any]]]:
    query = sa.select(_RELEASES.c.partition_name, _RELEASES.c.cost).where(_RELEASES.c.dataset_id == dataset_id)
    query = query.order_by(_RELEASES.c.id)  # the first release settles the order of an account
    return [(partition, json.loads(cost)) for partition, cost in connection.execute(query)]


def _as_dict(release: Any) -> dict[str, Any]:
    return {
        "number": release.id,
        "status": release.status,
        "mechanism": release.mechanism,
        "cost": json.loads(release.cost),
        "adjacency": release.adjacency,
        "partition": release.partition_name,
        "estimator": release.estimator,
        "parameters": json.loads(release.parameters),
        "dppl_version": release.dppl_version,
        "charged_at": release.charged_at,
        "released_at": release.released_at,
        "model_sha256": release.model_sha256,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
