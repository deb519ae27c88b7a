"""Whether a model file states what its method costs: everything is computed again, from parameters alone.

The way is the one of a fit before it reads a record: method and parameters,
measurements, sensitivity, noise, mu, epsilon.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dppl._utils import tensorfile
from dppl._utils.types import Float
from dppl.errors import DpplError, ModelFileError
from dppl.finetune.network_file import is_finetuned
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.terms import (
    Code,
    Mechanism,
    Neighbours,
    Norm,
    PublicInput,
    Statistic,
    Term,
    Unit,
)
from dppl.methods import EmbeddingClassifier, PublicData
from dppl.methods.model_file import FINETUNED, KEY, load, unfitted
from dppl.methods.released import Reported
from dppl.methods.start import Start
from dppl.statement import words
from dppl.statement.data import describe, file_of

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger

_CLOSE = 1e-9  # relative: the last digits went through floats, which other versions of libraries may round differently
_PUBLIC_ROWS = Term(PublicInput.PUBLIC_ROWS).to_dict()
_LETTERS = 200  # of what a file states and a check shows
_ROUNDED_UP = {"sensitivity", "mu", "rho", "epsilon"}
_ROWS = 64  # at least, of each of two stand-ins for public rows
_MOST_NUMBERS = 2**23  # in one, so that a forged file does not fill the memory
_BELIEVED = (
    "the method, its parameters, the class list and the map, from which everything else is computed",
    "what was released, and by which encoder of which data",
    "that the noise came from the operating system, and that dppl ran unchanged",
)
_SEEDED = "that the noise came from a seed, so the model is not for release: who guesses the seed can subtract it"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was compared: what the file states, and what follows from its parameters."""

    what: str
    stated: str
    computed: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found.

    Parameters
    ----------
    checks : tuple of Check
        What was compared, in order.
    believed : tuple of str
        What nothing but the file says.
    reason : str, default=None
        Why nothing could be computed, as for a method that dppl does not know.
    """

    checks: tuple[Check, ...]
    believed: tuple[str, ...] = _BELIEVED
    reason: str | None = None

    @property
    def holds(self) -> bool:
        """Whether everything was computed, and nothing differs."""
        return self.reason is None and all(check.holds for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, JSON-ready."""
        return {"holds": self.holds, **asdict(self)}

    def __str__(self) -> str:
        if self.reason is not None:
            return f"It cannot be verified: {self.reason}"
        lines = []
        for one in self.checks:
            line = f"{one.what}: {one.stated}"
            if not one.holds:
                line += f" is stated, {one.computed} computed"
            lines.append(line)
        return "\n".join([*lines, "Verified." if self.holds else "NOT verified."])


def verify(
    model: Reported | str | os.PathLike[str], *, ledger: Ledger | None = None
) -> Verification:
    """Compute sensitivities, noise and cost of a model again, and compare them with its statement.

    Parameters
    ----------
    model : classifier or path
        A fitted classifier of dppl, or its file.
    ledger : Ledger, default=None
        The account that paid for the model. Its charge must name this file and have its
        cost.

    Returns
    -------
    Verification
        `holds` says whether everything agrees; ``print`` shows what was compared.

    Raises
    ------
    FileNotFoundError, ModelFileError
        If there is no such file, or it is damaged, or no model.

    Notes
    -----
    Of the statement only the budget is used and, where it applies, for how many tasks, runs or persons it is. So the
    numbers are the ones that the method has with these parameters. Whether it was run so, no program can see: the file
    is not signed.

    Examples
    --------
    >>> import dppl, numpy as np
    >>> model = dppl.MeanPrototypes(dppl.ApproxDP(1, 1e-6), classes=["a", "b"]).fit(np.eye(2), ["a", "b"])
    >>> dppl.verify(model).holds
    True
    """
    with file_of(model) as path:
        try:
            if is_finetuned(path):
                # Here, because it needs what trains networks.
                from dppl.finetune.planned import planned

                fields, guarantee = planned(path)
                stated = fields["guarantee"]
                promises = [guarantee] * 3
                believed = ["the number of trained weights, of which it holds so many"]
            else:
                stated, promises, believed = _of_estimator(path)
            checks = list(_compared(stated, *promises[:2]))
            if ledger is not None:
                checks += _charges(
                    stated, promises[-1], ledger, sha256(path.read_bytes()).hexdigest()
                )
        except _CannotCompute as error:
            return Verification((), reason=str(error))
        except (DpplError, OSError):
            raise
        except Exception:  # the file may hold anything
            what = "states its guarantee in a form that cannot be read"
            raise ModelFileError(f"{path} {what}. Fetch or fit it again.") from None
        if all(check.holds for check in checks):
            checks.append(_whole(path))
        if stated["secure_noise"] is True:
            said = _BELIEVED
        else:
            said = (*_BELIEVED[:-1], _SEEDED)
        return Verification(tuple(checks), (*said, *believed))


class _CannotCompute(Exception):
    """The parameters of a file do not lead to a statement; the message says why."""


_Promises = tuple[dict[str, Any], list[Guarantee], list[str]]


def _of_estimator(path: Path) -> _Promises:
    """Return the statement of a classifier, what it would be with one and with other public rows, and of one charge."""
    fields, tensors, estimator = unfitted(path)
    if estimator is None:
        raise _CannotCompute(
            f"{fields['estimator']} is no method of dppl, and only its code says what it measures."
        )
    stated = fields["guarantee"]
    n_tasks = 1
    if "n_tasks" in tensors:
        n_tasks = int(tensors["n_tasks"][0])
    try:
        of_one = [_promised(fields, estimator, variant) for variant in (0, 1)]
        promises = of_one
        if n_tasks > 1:  # of a stream, whose tasks may add up
            stream: Any = estimator
            promises = [
                replace(stream._of_tasks(one, n_tasks), n_models=n_tasks)
                for one in of_one
            ]
    except DpplError as error:
        raise _CannotCompute(f"no fit of its parameters is possible: {error}") from None
    believed = [f"that it protects {words.text(Unit(stated['unit']))}"]
    if _chain(stated):
        believed.append(
            "what the models that it started from cost, unless this ledger paid for them"
        )
    if promises[0].releases != promises[1].releases:
        believed.append(
            "numbers that follow from public rows, which are not in the file"
        )
    return stated, [*promises, of_one[0]], believed


def _promised(
    fields: Mapping[str, Any], estimator: EmbeddingClassifier, variant: int
) -> Guarantee:
    """Return what a fit of these parameters promises, with one of two stand-ins for public rows and examples."""
    stated = fields["guarantee"]
    width = fields["lattice"]["n_features"]

    def stand_in(n: int) -> Float:
        if n * width > _MOST_NUMBERS:
            raise _CannotCompute(
                f"{n:,} public rows of {width:,} numbers are more than a check computes with."
            )
        values = np.arange(n * width, dtype=np.float64)
        values *= variant + 1
        return np.cos(values, out=values).reshape(n, width)

    # Public rows are not in a file. Whatever differs between two stand-ins follows from
    # them and is not compared.
    rows = examples = None
    if estimator.public_rows == "required" or _PUBLIC_ROWS in stated["public_inputs"]:
        # Their number is public, and some costs depend on it.
        told = [one["parameters"].get("n_public") for one in stated["releases"]]
        n_rows = int(next(filter(None, told), _ROWS))
        rows = stand_in(max(n_rows, getattr(estimator, "n_prototypes", 1)))
    counts = fields.get("examples", {}).get("counts", [])
    described = [
        name for name, count in zip(fields["classes"], counts, strict=False) if count
    ]
    if described:
        examples = stand_in(len(described))
    estimator.set_params(public=PublicData(rows, examples, described or None))
    if chain := _chain(stated):
        start = Start.stated_by(chain, len(fields["classes"]), width)
        estimator.set_params(start=start)
    groups = None
    if Unit(stated["unit"]) is Unit.PERSON:
        groups = ()
    if stated["releases"] and "mean_runs" in stated["releases"][0]["cost"]:
        # Here, because only the model of a search needs scikit-learn.
        from dppl.methods.private_search import promised_again

        return promised_again(stated["releases"][0], estimator, width, groups)
    promised = estimator.plan(width).guarantee_on(np.empty((0, width)), groups)
    if not stated.get("parties"):
        return promised
    from dppl.federation.coordinator import of_parties  # here, because few are of some

    return of_parties(promised, tuple(stated["parties"]))


def _chain(stated: Mapping[str, Any]) -> tuple[Term[PublicInput], ...]:
    """Return the models that a model says it started from, the latest first."""
    return tuple(
        Term.from_dict(PublicInput, one)
        for one in stated["public_inputs"]
        if one["code"] == PublicInput.START
    )


def _compared(
    stated: Mapping[str, Any], promised: Guarantee, other: Guarantee
) -> Iterator[Check]:
    """Compare a statement with what is promised, except for what differs with other public rows."""
    n_stated = len(stated["releases"])
    n_promised = len(promised.releases)
    yield Check(
        "kinds of releases", str(n_stated), str(n_promised), n_stated == n_promised
    )
    for says, one, another in zip(
        stated["releases"], promised.releases, other.releases, strict=False
    ):
        said, here, there = map(_facts, (says, one.to_dict(), another.to_dict()))
        free = {name for name in here if here[name] != there.get(name)}
        kept = [
            {name: facts[name] for name in facts if name not in free}
            for facts in (said, here)
        ]
        yield _check(words.text(one.statistic, promised.unit), *kept)
    # Files of single models need not state their number.
    says_whom = {
        "unit": Unit(stated["unit"]),
        "adjacency": stated["adjacency"],
        "neighbours": Term.from_dict(Neighbours, stated["neighbours"]),
        "exact": stated["exact"],
        "n_models": stated.get("n_models", 1),
    }
    whom = {
        "unit": promised.unit,
        "adjacency": promised.adjacency,
        "neighbours": promised.relation,
        "exact": promised.exact,
        "n_models": promised.n_models,
    }
    checked = _check("whom it protects", says_whom, whom)
    if checked.holds:
        protected = f"{words.text(promised.unit)} ({promised.adjacency})"
        checked = replace(checked, stated=protected)
    yield checked
    delta = promised.usual_delta
    budget = {"notion": promised.budget.notion, **promised.budget.to_dict()}
    total = (
        f"epsilon {rounded_up(promised.epsilon(delta), 4)} at delta {rounded_up(delta)}"
    )
    fits = not _different(
        says := {"notion": stated["notion"], **stated["budget"]}, budget
    )
    fits = fits and promised.stays_within_budget()
    yield Check(
        "all of them, within the budget",
        f"{_text(says)}: {total}",
        f"{_text(budget)}: {total}",
        fits,
    )
    # A statement may exclude more than it has to, and never less.
    lists = ("public_inputs", "assumptions", "not_covered")
    missing = [
        item
        for name in lists
        for item in getattr(promised, name)
        if item.to_dict() not in stated[name]
    ]
    what = "public inputs, assumptions, and what it does not cover"
    yield Check(
        what,
        f"{sum(len(stated[name]) for name in lists)} items",
        "also: " + "; ".join(words.texts(missing)),
        not missing,
    )


def _charges(
    stated: Mapping[str, Any], of_one: Guarantee, ledger: Ledger, digest: str
) -> Iterator[Check]:
    """Compare the charges of a model with what each should have cost, and the last one with the file."""
    # Charges that the file names, and those that name the file: each must be there and
    # have the right cost.
    named = [Charge.from_dict(one) for one in stated["charges"]]
    paid = {Charge(ledger.dataset, one["number"]): one for one in ledger.releases()}
    mine = [
        charge
        for charge, one in paid.items()
        if charge in named or one["model_sha256"] == digest
    ]
    lost = [
        charge
        for charge in named
        if charge not in paid
        and charge.party is None
        and charge.dataset == ledger.dataset
    ]
    if lost or not mine:
        yield Check(
            f"ledger of {ledger.dataset}",
            "; ".join(map(str, lost)) or "no charge",
            "a charge for this file",
            False,
        )
        return
    try:
        cost = ledger.cost_of(of_one)
    except DpplError as error:
        yield Check(
            f"ledger of {ledger.dataset}", "another kind of account", str(error), False
        )
        return
    for charge in mine:
        yield _check(f"ledger: {charge}", paid[charge]["cost"], cost)
    # A network is saved after its training, so its charge holds no hash.
    last = paid[mine[-1]]["model_sha256"] or digest
    yield Check("ledger: hash of the file", last, digest, last == digest)
    # What it started from may have been paid for by other accounts.
    chain = {one["sha256"]: one["mu"] for one in _chain(stated)}
    for one in paid.values():
        mu = chain.get(one["model_sha256"])
        if mu is not None:
            what = f"ledger: start {one['model_sha256'][:12]}, release {one['number']}"
            # Of several institutions this one paid a part.
            yield _check(what, {"mu": mu}, {"mu": max(mu, one["cost"]["mu"])})
    said = (paid[mine[-1]]["parameters"] or {}).get("start")
    if chain or said:
        first = next(iter(chain), None)
        yield Check("ledger: its start", str(first), str(said), said == first)


def _whole(path: Path) -> Check:
    """Read the whole file: whether its tensors, parameters and statement fit together, and it holds nothing else."""
    what = "tensors and parameters"
    says = "they fit together, and nothing else is there"
    more = ""
    try:
        describe(path)
        key = FINETUNED if is_finetuned(path) else KEY
        fields, tensors = tensorfile.read(path, key)
        if tensorfile.to_bytes(key, fields, tensors) != path.read_bytes():
            more = "there are bytes that no reader looks at"
        elif key == KEY:
            # What the model would write itself has all that it needs; anything beyond
            # could be records.
            with file_of(load(path)) as again:
                own, known = tensorfile.read(again, key)
            beyond = [*_beyond(fields, own), *sorted({*tensors} - {*known})]
            more = "; ".join(f"{name} is no part of a model" for name in beyond)
    except (
        ModelFileError,
        UnicodeError,
    ) as error:  # the latter of texts that no file can hold
        more = str(error)
    return Check(what, more or says, says, not more)


def _beyond(fields: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of what a model would not write so; it may write more, such as defaults that came later."""
    for name, value in fields.items():
        if isinstance(value, dict) and isinstance(own.get(name), dict):
            yield from (f"{name}, {other}" for other in _beyond(value, own[name]))
        elif name not in own or own[name] != value:
            yield name


def _facts(release: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a release states, by name."""
    terms = {
        "mechanism": Term.from_dict(Mechanism, release["mechanism"]),
        "statistic": Term.from_dict(Statistic, release["statistic"]),
        "norm": Norm(release["norm"]),
    }
    numbers = {
        "times": release.get("times", 1),
        "sensitivity": release["sensitivity"],
        **release["parameters"],
    }
    return {**terms, **numbers, **release["cost"]}


def _check(what: str, stated: Mapping[str, Any], computed: Mapping[str, Any]) -> Check:
    """Compare by name, and show what differs, or else all numbers."""
    differ = _different(stated, computed)
    shown = differ or [
        name for name in stated if not isinstance(stated[name], str | Term)
    ]
    digits = 12 if differ else 6
    here, there = (
        _text({name: one[name] for name in shown if name in one}, digits)
        for one in (stated, computed)
    )
    return Check(what, here, there, not differ)


def _different(stated: Mapping[str, Any], computed: Mapping[str, Any]) -> list[str]:
    """Return the names under which the two hold different values, or one of them none."""
    return [
        name
        for name in {**stated, **computed}
        if not _equal(stated.get(name), computed.get(name))
    ]


def _equal(stated: Any, computed: Any) -> bool:
    if isinstance(computed, float) and type(stated) in (int, float):
        return math.isclose(stated, computed, rel_tol=_CLOSE)
    return type(stated) is type(computed) and bool(stated == computed)


def _text(facts: Mapping[str, Any], digits: int = 12) -> str:
    return ", ".join(
        f"{name} {_shown(name, value, digits)}" for name, value in facts.items()
    )


def _shown(name: str, value: Any, digits: int) -> str:
    """Write a code in words, and a number as `dppl show` does: costs rounded up, noise to the nearest."""
    if isinstance(value, float):
        write = rounded_up if name in _ROUNDED_UP else words.nearest
        return write(value, digits)
    text = words.text(value) if isinstance(value, Term | Code) else str(value)
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}..."
