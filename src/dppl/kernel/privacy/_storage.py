"""Where a ledger is kept: tables in a SQLite file or a PostgreSQL database, which one process at a time uses.

Costs are not looked into here; `_account` adds them up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from dppl._optional import how_to_install
from dppl._version import __version__
from dppl.errors import LedgerError
from dppl.kernel.privacy._account import Account, Paid
from dppl.kernel.privacy.budgets import budget_from_dict

SCHEMA_VERSION = 3
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
    sa.Column("accounting", sa.String(16), nullable=False),
    sa.Column("unit", sa.String(16), nullable=False),
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
# Which steps of a training have begun, for those charges that say so.
_RUNS = sa.Table(
    "dppl_runs",
    _METADATA,
    sa.Column("release_id", sa.Integer, sa.ForeignKey(_RELEASES.c.id), primary_key=True, autoincrement=False),
    sa.Column("run", sa.String(32), nullable=False),
    sa.Column("begun", sa.Integer, nullable=False),
)


def connect(path_or_url: str | os.PathLike[str], *, must_exist: bool) -> sa.Engine:
    """Return what makes connections to a place as `Ledger` takes it, each for one transaction."""
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
            f"For PostgreSQL install the extra {how_to_install('postgresql')}."
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
def transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Let nobody else read or write until the end, and take all of it back if it ends with an error."""
    try:
        with engine.begin() as connection:
            yield connection
    except sa.exc.SQLAlchemyError as error:
        # The statement and its parameters are left out; they are public, but long.
        reason = " ".join(str(getattr(error, "orig", None) or type(error).__name__).split())
        file = f" {engine.url.database}" if engine.url.drivername == "sqlite" else ""
        raise LedgerError(f"the ledger{file} cannot be used: {reason.rstrip('.')}.") from None


def prepare(connection: sa.Connection) -> None:
    """Make the tables; refuse those of another schema."""
    _METADATA.create_all(connection)
    version = connection.execute(sa.select(_SCHEMA.c.version)).scalar_one_or_none()
    if version is None:
        connection.execute(_SCHEMA.insert().values(version=SCHEMA_VERSION))
    elif version != SCHEMA_VERSION:
        raise LedgerError(f"the ledger has schema {version}; this version of dppl reads schema {SCHEMA_VERSION}.")


def is_ledger(connection: sa.Connection) -> bool:
    """Tell whether the tables were made."""
    return sa.inspect(connection).has_table(_SCHEMA.name)


def names(connection: sa.Connection) -> list[str]:
    """Return the data sets, in the order in which their accounts were made."""
    return list(connection.execute(sa.select(_DATASETS.c.name).order_by(_DATASETS.c.id)).scalars())


def find(connection: sa.Connection, dataset: str) -> Account | None:
    """Return the account of a data set, if it has one."""
    row = _row(connection, dataset)
    if row is None:
        return None
    return Account(row.name, budget_from_dict(json.loads(row.budget)), row.adjacency, row.accounting, row.unit)


def add_account(connection: sa.Connection, account: Account) -> None:
    """Keep a new account."""
    connection.execute(
        _DATASETS.insert().values(
            name=account.dataset,
            budget=json.dumps(account.budget.to_dict()),
            adjacency=account.adjacency,
            created=_now(),
            accounting=account.accounting,
            unit=account.unit,
        )
    )


def paid(connection: sa.Connection, dataset: str) -> list[Paid]:
    """Return all charges of a data set, in order: the first one settles the order of an account."""
    found = _releases(connection, dataset, _RELEASES.c.partition_name, _RELEASES.c.cost)
    return [(partition, json.loads(cost)) for partition, cost in found]


def releases(connection: sa.Connection, dataset: str) -> list[dict[str, Any]]:
    """Return all that is known of the charges of a data set, in order, JSON-ready."""
    return [_as_dict(release) for release in _releases(connection, dataset, _RELEASES)]


def add_charge(
    connection: sa.Connection, dataset: str, *, cost: dict[str, Any], parameters: dict[str, Any], **texts: str | None
) -> int:
    """Keep a charge, of whose other columns all are texts, and return its number."""
    charge = _RELEASES.insert().values(
        dataset_id=_existing(connection, dataset).id,
        status=CHARGED,
        cost=json.dumps(cost),
        parameters=json.dumps(parameters, sort_keys=True, default=str),
        dppl_version=__version__,
        charged_at=_now(),
        **texts,
    )
    return int(connection.execute(charge.returning(_RELEASES.c.id)).scalar_one())


def add_run(connection: sa.Connection, number: int, run: str) -> None:
    """Keep the name of the training that a charge pays for, of which no step has begun."""
    connection.execute(_RUNS.insert().values(release_id=number, run=run, begun=0))


def begun(connection: sa.Connection, number: int, run: str) -> int | None:
    """Return how many steps of a training have begun; None if the charge is not its own."""
    query = sa.select(_RUNS.c.begun).where(_RUNS.c.release_id == number, _RUNS.c.run == run)
    return connection.execute(query).scalar_one_or_none()


def set_begun(connection: sa.Connection, number: int, begun: int) -> None:
    """Keep how many steps of the training of a charge have begun."""
    connection.execute(_RUNS.update().where(_RUNS.c.release_id == number).values(begun=begun))


def finish(connection: sa.Connection, number: int, *, model_sha256: str | None, tell_time: bool) -> None:
    """Mark a charge as released, with the time if it may be told."""
    connection.execute(
        _RELEASES.update()
        .where(_RELEASES.c.id == number)
        .values(status=RELEASED, released_at=_now() if tell_time else None, model_sha256=model_sha256)
    )


def _row(connection: sa.Connection, dataset: str) -> Any:
    return connection.execute(_DATASETS.select().where(_DATASETS.c.name == dataset)).one_or_none()


def _existing(connection: sa.Connection, dataset: str) -> Any:
    row = _row(connection, dataset)
    if row is None:
        raise LedgerError(f"the ledger has no data set {dataset!r} any more.")
    return row


def _releases(connection: sa.Connection, dataset: str, *columns: Any) -> Any:
    number = _existing(connection, dataset).id
    query = sa.select(*columns).where(_RELEASES.c.dataset_id == number).order_by(_RELEASES.c.id)
    return connection.execute(query)


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
