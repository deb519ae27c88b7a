"""The ledger: a lasting record of every release from a private data set, which refuses what its budget does not cover.

A release is charged before any private value enters a mechanism and before noise is drawn. A process that dies
afterwards leaves its charge behind, marked as unfinished: what was spent is never under-counted. All arithmetic on
costs is exact or rounded up, and one transaction reads the total and adds to it, so that processes that charge at once
never overspend together.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from dppl import _validate
from dppl._html import summary
from dppl.errors import LedgerError, ParameterError
from dppl.kernel.privacy import _storage
from dppl.kernel.privacy._account import UNITS, Account, check_name, routes
from dppl.kernel.privacy._shown import figures, in_words, rounded_down
from dppl.kernel.privacy._storage import CHARGED, RELEASED, SCHEMA_VERSION
from dppl.kernel.privacy.budgets import Budget
from dppl.kernel.privacy.guarantee import ADJACENCIES, Adjacency, Guarantee

__all__ = ["CHARGED", "RELEASED", "SCHEMA_VERSION", "Ledger", "LedgerEntry", "accounts"]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A charge: where it stands, for the statement of the model that it paid for."""

    dataset: str
    number: int  # number of the release in its ledger
    # name of the training that it pays for step by step: a random number, which no other charge in any ledger has
    run: str | None = None


class Ledger:
    r"""The account of one data set in a ledger file or database.

    Parameters
    ----------
    path_or_url : path or str
        A SQLite file, made where there is none, or the SQLAlchemy URL of a PostgreSQL database
        (``postgresql+psycopg://…``).
    dataset : str
        Name of the private data set: 1 to 255 ASCII letters, digits, ``.``, ``_`` and ``-``, with single spaces between
        them, as all names in a ledger. Whoever adds records to it later keeps the name and the account.
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
    unit : {"record", "person"}, default=None
        Whom the account is for; None is a record for a new data set. One for persons takes the releases of fits with
        `groups`, and no others.

    Raises
    ------
    ParameterError
        If the data set is new and `budget` is missing or its name looks like that of another one here, or what is given
        contradicts the ledger.
    LedgerError
        If the file or database is not a ledger, one of another schema, or cannot be reached.

    Notes
    -----
    **Privacy.** Unit: that of `unit`. Relation: as stated by `adjacency`. Released: nothing; the ledger holds costs and
    public parameters only. Sensitivity: none. Public inputs: everything stored. Not covered: releases made without the
    ledger, and the truth of `partition` names. Under replace-one the total holds for the narrowest relation among the
    releases: `MeanPrototypes` hides a replacement within a class only.

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
        if budget is not None and not isinstance(budget, Budget):
            raise ParameterError(f"budget must be GaussianDP, ZCDP, ApproxDP or PureDP; got {budget!r}.")
        if budget is not None and budget.is_zero:
            raise ParameterError("budget must be above 0, or the account could pay for nothing.")
        if budget is not None and accounting is not None:
            _validate.one_of(routes(budget), accounting=accounting)
        if adjacency is not None:
            _validate.one_of(ADJACENCIES, adjacency=adjacency)
        if unit is not None:
            _validate.one_of(UNITS, unit=unit)
        # Without a budget the account must be there already, and so must its file.
        self._engine = _storage.connect(path_or_url, must_exist=budget is None)
        with _storage.transaction(self._engine) as connection:
            _storage.prepare(connection)
            account = _storage.find(connection, dataset)
            if account is None:
                check_name("dataset", dataset, _storage.names(connection))
                if budget is None:
                    raise ParameterError(f"the ledger has no data set {dataset!r}; give its total budget to open one.")
                if unit == "person" and adjacency == "replace-one":
                    raise ParameterError(
                        "for persons needs the adjacency add-remove; no fit with groups is under another.",
                        parameter="unit",
                    )
                account = Account(
                    dataset, budget, adjacency or "add-remove", accounting or routes(budget)[0], unit or "record"
                )
                _storage.add_account(connection, account)
        self._account = account
        self.dataset = dataset
        self.budget, self.adjacency, self.accounting = account.budget, account.adjacency, account.accounting
        self.unit = account.unit
        if budget not in (None, self.budget):
            raise ParameterError(f"data set {dataset!r} has the budget {self.budget!r} in this ledger; got {budget!r}.")
        if adjacency not in (None, self.adjacency):
            raise ParameterError(f"data set {dataset!r} is accounted under {self.adjacency}; got {adjacency!r}.")
        if accounting not in (None, self.accounting):
            raise ParameterError(f"data set {dataset!r} has the accounting {self.accounting!r}; got {accounting!r}.")
        if unit not in (None, self.unit):
            raise ParameterError(f"data set {dataset!r} is accounted by the {self.unit}; got {unit!r}.")

    def charge(
        self,
        guarantee: Guarantee,
        *,
        estimator: str = "",
        parameters: dict[str, Any] | None = None,
        partition: str | None = None,
        stepwise: bool = False,
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
            Name of a part of the data set that shares no record (in an account for persons, no person) with parts of
            other names. Releases on such parts
            cost together the maximum over parts; that they are disjoint is the caller's word.
        stepwise : bool, default=False
            Whether it pays for a training that draws in steps and may be interrupted. Then `begin_step` keeps several
            runs of it from drawing more than they paid for together.

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
            If the guarantee is for another adjacency or unit than the account, or `partition` is not a name, or a new
            one that looks like that of another part.
        """
        cost = self._account.cost(guarantee, partition)
        with _storage.transaction(self._engine) as connection:
            self._account.check(_storage.paid(connection, self.dataset), (partition, cost))
            number = _storage.add_charge(
                connection,
                self.dataset,
                cost=cost,
                parameters={**_reservations(guarantee), **(parameters or {})},
                mechanism="; ".join(dict.fromkeys(release.drawn for release in guarantee.releases)),
                adjacency=guarantee.adjacency,
                partition_name=partition,
                estimator=estimator,
            )
            run = uuid4().hex if stepwise else None
            if run is not None:
                _storage.add_run(connection, number, run)
        return LedgerEntry(self.dataset, number, run)

    def steps_begun(self, entry: LedgerEntry) -> int | None:
        """Return how many steps of a training have begun; None if this ledger does not hold its charge.

        Parameters
        ----------
        entry : LedgerEntry
            What `charge` returned, of this ledger or another.
        """
        with _storage.transaction(self._engine) as connection:
            return self._begun(connection, entry)

    def begin_step(self, entry: LedgerEntry, step: int) -> None:
        """Keep that a step of a training begins, once and for all. It is called before the step draws.

        Parameters
        ----------
        entry : LedgerEntry
            What `charge` returned with ``stepwise=True``.
        step : int
            Steps count from 0.

        Raises
        ------
        LedgerError
            If this step or a later one has begun before, in another run that went on from the same state, or the ledger
            does not hold the charge.
        """
        with _storage.transaction(self._engine) as connection:
            begun = self._begun(connection, entry)
            if begun is None:
                raise LedgerError(f"the ledger does not hold the charge of this training of {self.dataset!r} any more.")
            if begun > step:
                raise LedgerError(
                    f"step {step + 1} of the training that release {entry.number} of {self.dataset!r} paid for has "
                    "begun before, in another run that went on from a copy of the checkpoint."
                )
            _storage.set_begun(connection, entry.number, step + 1)

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
        cost = self._account.cost(guarantee, partition)
        with _storage.transaction(self._engine) as connection:
            self._account.check(_storage.paid(connection, self.dataset), (partition, cost))

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
        with _storage.transaction(self._engine) as connection:
            _storage.finish(connection, entry.number, model_sha256=model_sha256, tell_time=tell_time)

    def spent(self) -> dict[str, float]:
        """Return what is spent, in the parameters of the budget's notion."""
        with _storage.transaction(self._engine) as connection:
            return self._account.total(_storage.paid(connection, self.dataset))

    def left(self) -> dict[str, float]:
        """Return the largest single release that still fits, rounded down.

        Where an ApproxDP account adds zCDP costs or Rényi divergences it is the difference of epsilons, a rough guide.
        """
        return self._account.left(self.spent())

    def releases(self) -> list[dict[str, Any]]:
        """Return all charges of the data set in order, JSON-ready."""
        with _storage.transaction(self._engine) as connection:
            return _storage.releases(connection, self.dataset)

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
        book = self.to_dict()
        rows = [
            ("budget", in_words(book["budget"])),
            ("spent", in_words(book["spent"])),
            ("left", rounded_down(book["left"], book["budget"])),
            *((f"release {release['number']}", _in_a_line(release)) for release in book["releases"]),
        ]
        whose = ", for persons" if self.unit == "person" else ""
        return summary(f"Ledger of {self.dataset}: {self.adjacency}{whose}, accounting {self.accounting}", rows)

    def _begun(self, connection: Any, entry: LedgerEntry) -> int | None:
        if entry.run is None or entry.dataset != self.dataset:
            return None
        return _storage.begun(connection, entry.number, entry.run)


def accounts(path_or_url: str | os.PathLike[str]) -> list[Ledger]:
    """Return the accounts of all data sets in an existing file or database; it may hold none yet."""
    with _storage.transaction(_storage.connect(path_or_url, must_exist=True)) as connection:
        if not _storage.is_ledger(connection):
            return []
        _storage.prepare(connection)
        names = _storage.names(connection)
    return [Ledger(path_or_url, name) for name in names]


def _in_a_line(release: dict[str, Any]) -> str:
    part = [] if release["partition"] is None else [f"part {release['partition']}"]
    unfinished = [] if release["status"] == RELEASED else ["charged, unfinished"]
    return ", ".join([release["estimator"] or release["mechanism"], *part, *figures(release["cost"]), *unfinished])


def _reservations(guarantee: Guarantee) -> dict[str, bool]:
    """Return what keeps a release from being an ordinary one, for the record."""
    usual = {"exact": guarantee.exact, "fit_for_release": guarantee.fit_for_release}
    return {name: value for name, value in usual.items() if not value}
