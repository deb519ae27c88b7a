"""Guarantees and accounts in words: in a paragraph, as a table, and in full. Numbers are rounded to the weaker side."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dppl.kernel.privacy.budgets import (
    USUAL_DELTA,
    GaussianDP,
    as_typed,
    rounded_up,
    worth_showing,
)
from dppl.kernel.privacy.release import Release
from dppl.kernel.privacy.sensitivity import squared_norm_of
from dppl.kernel.privacy.terms import Code, Mechanism, Term, Unit
from dppl.statement import english

if TYPE_CHECKING:
    from dppl.kernel.privacy.guarantee import Guarantee

_COSTS = ("mu", "rho", "epsilon", "delta", "rho_per_run", "mean_runs")
NOTHING_RELEASED = english.PAGE["nothing_released"]
_SEEDED = (
    "NOT FOR RELEASE: the noise came from a seed, so anyone who guesses the seed can subtract it. Fit again without a "
    "seed before publishing."
)
_AT_EACH = (
    "each added its own noise to each answer, and these are the releases and the cost at each of them, to its own "
    "records, towards everybody, the coordinator and the other institutions included"
)
# Parameters of noise that are lengths.
_IN_UNITS = ("noise_std", "off_diagonal_noise_std")
_RESEARCH = "RESEARCH USE: the noise that was drawn is not exactly the noise that was accounted; see Not covered."


def summary(guarantee: Guarantee, delta: float | None = None) -> str:
    """Return the statement in one short paragraph, with the epsilon at `delta`, which is the usual one by default."""
    if delta is None:
        delta = guarantee.usual_delta
    return " ".join([*_warnings(guarantee), _headline(guarantee, delta)])


def statement(guarantee: Guarantee) -> str:
    """Return everything as one text."""
    # Equal consecutive releases, such as the steps of a descent, are one entry with a
    # count.
    released = "; ".join(
        _release(release, times, guarantee.unit)
        for release, times in in_a_row(guarantee.releases)
    )
    rest = (
        f"{heading}: {'; '.join(items)}." for _, heading, items in details(guarantee)
    )
    return " ".join(
        [summary(guarantee), *([f"Released: {released}."] if released else []), *rest]
    )


def in_short(guarantee: Guarantee) -> list[tuple[str, str]]:
    """Return the guarantee in four lines: what is promised, to whom, on which assumptions, and what to remember."""
    promise = NOTHING_RELEASED
    if guarantee.releases:
        views = _views(guarantee, guarantee.usual_delta)
        guess = percent(guarantee.best_guess())
        promise = (
            f"{views}; a guess of membership is right in at most {guess} of cases."
        )
    if guarantee.unit is Unit.PERSON:
        same = "records of the same persons"
    else:
        same = "the same records"
    return [
        ("Guarantee", " ".join([*_warnings(guarantee), promise])),
        ("Protected", f"{protected(guarantee)}."),
        ("Assumed", f"{'; '.join(texts(guarantee.assumptions))}."),
        (
            "Remember",
            f"further releases from {same} add up; a ledger keeps account of them.",
        ),
    ]


def table(guarantee: Guarantee, delta: float | None = None) -> list[tuple[str, str]]:
    """Return the numbers as pairs of texts, with the epsilon at one more `delta` if there is one."""
    # Computed over from the releases, never read from a file.
    implied = guarantee.implied(delta)
    pure = guarantee.pure_epsilon
    if pure is None:
        rows = []
    else:
        rows = [("epsilon, pure DP", rounded_up(pure, 4))]
    if (
        implied["mu"] is not None
    ):  # sums over samples, for example, have no cost in Gaussian DP
        rows.append(("mu, Gaussian DP", rounded_up(implied["mu"], 4)))
    for at in implied["epsilon"]:
        rows.append(
            (
                f"epsilon at delta = {rounded_up(at['delta'])}",
                rounded_up(at["epsilon"], 4),
            )
        )
    rows.append(
        ("membership guess is right", f"at most {percent(implied['best_guess'])}")
    )
    for test in implied["tests"]:
        name = f"true positive rate at {100 * test['false_positive_rate']:g} % false positive rate"
        rows.append(
            (name, f"at most {thousandths_of(test['true_positive_rate']) / 10:g} %")
        )
    return rows


def details(guarantee: Guarantee) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return what the guarantee rests on and does not cover: names for programs, headings, and items."""
    neighbours = text(guarantee.relation)
    made = ", ".join(
        f"{name} {version}" for name, version in sorted(guarantee.software.items())
    )
    stayed = []
    for name in guarantee.parties:
        left = guarantee.left.get(name)
        without = f", without its answers from ask {left} on"
        stayed.append(name if left is None else name + without)
    parties = f"{', '.join(stayed)}; {_AT_EACH}"
    charges = tuple(map(str, guarantee.charges))
    # Headings without items say nothing and are skipped at the end.
    details = [
        ("protected", "Protected", (protected(guarantee),)),
        ("neighbours", "Neighbours", (f"{neighbours} ({guarantee.adjacency})",)),
        ("parties", "Institutions", (parties,) if guarantee.parties else ()),
        ("public_inputs", "Treated as public", texts(guarantee.public_inputs)),
        ("assumptions", "Assumed", texts(guarantee.assumptions)),
        ("not_covered", "Not covered", texts(guarantee.not_covered)),
        ("charges", "Charged to the ledger", charges),
        ("software", "Made with", (made,)),
    ]
    return [(name, heading, items) for name, heading, items in details if items]


def text(
    one: Term[Any] | Code, unit: Unit = Unit.RECORD, *, said: Any = english
) -> str:
    """Return what a code says; `unit` decides whether records or persons are counted, `said` is a file of texts."""
    if isinstance(one, Code):
        return str(said.TEXTS[type(one)][one])
    values: dict[str, Any] = {**_records(unit)}
    for name, value in one.values:
        if isinstance(value, Term):
            value = text(value, unit, said=said)
        elif isinstance(value, float):
            value = rounded_up(value, 3).replace(".", said.DECIMAL)
        values[name] = value
    return str(said.TEXTS[type(one.code)][one.code].format(**values))


def texts(terms: Iterable[Term[Any]]) -> tuple[str, ...]:
    """Return what several codes say."""
    return tuple(text(one) for one in terms)


def protected(guarantee: Guarantee) -> str:
    """Return the unit of privacy, and what that means for a person with several records."""
    less = "; a person with several records is protected less, the more they have"
    return text(guarantee.unit) + less * (guarantee.unit is Unit.RECORD)


def in_a_row(releases: Iterable[Release]) -> list[tuple[Release, int]]:
    """Return each release with the number of equal ones that follow each other, such as the steps of a stream."""
    return [(release, len(list(equal))) for release, equal in groupby(releases)]


def drawn(mechanism: Term[Mechanism], times: int) -> str:
    """Return the mechanism, and how often it was used."""
    name = text(mechanism)
    return name if times == 1 else f"{name}, {times} times"


def charged(drawn_by: Iterable[Mapping[str, Any]]) -> str:
    """Return the mechanisms of a charge, from how a ledger holds them."""
    return "; ".join(
        drawn(Term.from_dict(Mechanism, one["mechanism"]), one["times"])
        for one in drawn_by
    )


def sensitivity(release: Release, unit: Unit) -> str:
    """Return the sensitivity with its unit; `unit` is of the guarantee."""
    return _with_unit(release, rounded_up(release.sensitivity), unit)


def noise(release: Release, unit: Unit) -> list[str]:
    """Return the parameters of the noise, lengths with their unit, such as "noise_std = 2.5 records"."""
    return [f"{name} = {value}" for name, value in _parameters(release, unit)]


def _parameters(release: Release, unit: Unit) -> list[tuple[str, str]]:
    # A file orders parameters by name; here share_2 comes before share_10.
    named = sorted(
        release.parameters.items(),
        key=lambda item: re.sub(r"\d+", lambda n: n[0].zfill(9), item[0]),
    )
    return [
        (
            name,
            _with_unit(release, nearest(value), unit)
            if name in _IN_UNITS
            else nearest(value),
        )
        for name, value in named
    ]


def nearest(value: float, digits: int = 6) -> str:
    """Write a number that is no cost, such as noise, with at most so many significant digits."""
    return f"{value:.{digits}g}".replace("e+0", "e+").replace("e-0", "e-")


def _with_unit(release: Release, length: str, unit: Unit) -> str:
    """Return a sensitivity or noise with its unit where the norm does not say it: integers are released."""
    if not release.mechanism.code.adds_integers:
        return length
    one, several = english.COUNTED.get(release.statistic.innermost.code, english.STEPS)
    counted = one if length in ("1", "1.0") else several
    return f"{length} {counted.format(**_records(unit))}"


def _records(unit: Unit) -> dict[str, str]:
    """Return what is counted where records are, one and several."""
    one, several = english.RECORDS[unit]
    return {"record": one, "records": several}


def _warnings(guarantee: Guarantee) -> list[str]:
    seeded = bool(guarantee.releases) and not guarantee.secure_noise
    return [_SEEDED] * seeded + [_RESEARCH] * (not guarantee.exact)


def _views(guarantee: Guarantee, delta: float) -> str:
    """Return the loss as epsilon and as mu, such as "epsilon = 1 at delta = 1e-6 (mu = 0.2368)"."""
    epsilon = f"epsilon = {rounded_up(guarantee.epsilon(delta), 4)} at delta = {rounded_up(delta)}"
    # Pure DP holds at delta = 0, so it comes before the epsilon that a delta buys.
    pure = guarantee.pure_epsilon
    if pure is None:
        first, *rest = [epsilon]
    else:
        first, *rest = [f"epsilon = {rounded_up(pure, 4)}, pure DP", epsilon]
    if guarantee.mu is not None:
        rest.append(f"mu = {rounded_up(guarantee.mu, 4)}")
    return f"{first} ({', '.join(rest)})" if rest else first


def _headline(guarantee: Guarantee, delta: float) -> str:
    if not guarantee.releases:
        return NOTHING_RELEASED
    added = guarantee.adjacency == "add-remove"
    if added:
        which = f"whether {text(guarantee.unit)} was in"
    else:
        which = f"which of two choices for {text(guarantee.unit)} was in"
    # An evaluation releases no model, and a stream one after each task.
    n = guarantee.n_models
    if guarantee.n_models:
        data = "training data"
    else:
        data = "test data"
    released = {0: "what was released", 1: "the released model"}.get(
        n, f"the models released after each of {n} tasks"
    )
    return (
        f"Differentially private: {_views(guarantee, delta)}. Someone who sees {released} learns only a bounded amount "
        f"about {which} the {data}. A guess, with both equally likely beforehand, is right in at most "
        f"{percent(guarantee.best_guess())} of cases, whatever else the guesser knows."
    )


def percent(probability: float) -> str:
    """Round up, and never to a comfortable 100 % that is not one."""
    for digits in (0, 1, 3):
        value = math.ceil(probability * 100 * 10**digits) / 10**digits
        if value < 100:
            return f"{value:.{digits}f} %"
    return "100 %"


def thousandths_of(rate: float) -> int:
    """Round up to a thousandth."""
    return min(math.ceil(1000 * rate), 1000)


def price(release: Release) -> list[str]:
    """Return what a release costs, in each notion that it has, such as "mu = 0.5"."""
    costs = [
        f"{name} = {rounded_up(release.cost[name])}"
        for name in _COSTS
        if name in release.cost
    ]
    # Of an own query only its author says how far a record moves it.
    own = squared_norm_of(release.statistic) is None
    mechanism = release.mechanism.code
    stated = mechanism.states_its_cost or (mechanism.adds_integers and own)
    if stated:
        return [*costs, "as stated, not computed again"]
    return costs


def _release(release: Release, times: int, unit: Unit) -> str:
    parameters = ", ".join(
        f"{name} {value}" for name, value in _parameters(release, unit)
    )
    cost = ", ".join(price(release))
    return (
        f"{f'{times} times ' if times > 1 else ''}{text(release.statistic, unit)} by the "
        f"{drawn(release.mechanism, release.times)} ({text(release.norm)} sensitivity {sensitivity(release, unit)}, "
        f"{parameters}; cost {cost}{' each' if times > 1 else ''})"
    )


def as_html(guarantee: Guarantee) -> str:
    """Return what a notebook shows of a guarantee."""
    return _page(summary(guarantee), table(guarantee))


# What is said of a charge that no file belongs to.
IN_NO_FILE = {"charged": "charged, unfinished", "not saved": "not saved"}


def account_as_html(book: Mapping[str, Any]) -> str:
    """Return what a notebook shows of an account, from `Ledger.to_dict`."""
    rows = [
        ("budget", in_words(book["budget"])),
        ("spent", in_words(book["spent"])),
        ("left", rounded_down(book["left"], book["budget"])),
    ]
    for release in book["releases"]:
        if release["partition"] is None:
            part = []
        else:
            part = [f"part {release['partition']}"]
        unfinished = [IN_NO_FILE[one] for one in IN_NO_FILE if one == release["status"]]
        texts = [
            release["estimator"] or charged(release["mechanism"]),
            *part,
            *figures(release["cost"]),
            *unfinished,
        ]
        rows.append((f"release {release['number']}", ", ".join(texts)))
    whose = ", for persons" * (book["unit"] == Unit.PERSON)
    heading = f"Ledger of {book['dataset']}: {book['adjacency']}{whose}, accounting {book['accounting']}"
    return _page(heading, rows)


def _page(text: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a paragraph and a table of names and values as HTML; texts are shown as they are."""
    left = ' style="text-align: left"'
    cells = "".join(
        f"<tr><th{left}>{escape(name)}</th><td{left}>{escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<p>{escape(text)}</p><table>{cells}</table>"


def listed(names: Sequence[Any], most: int) -> str:
    """Write the first names, and how many more there are."""
    shown = ", ".join(map(str, names[:most]))
    if len(names) <= most:
        return shown
    return f"{shown} and {len(names) - most} more"


def in_words(budget: Mapping[str, float]) -> str:
    """Write a budget, or what is spent of one; a mu with the epsilon that it implies."""
    text = ", ".join(figures(budget))
    if not budget.get("mu"):  # another notion, or nothing spent
        return text
    epsilon = GaussianDP(**budget).to_approx(USUAL_DELTA).epsilon
    return f"{text} (epsilon {rounded_up(epsilon, 4)}, delta {rounded_up(USUAL_DELTA)})"


def figures(cost: Mapping[str, float]) -> list[str]:
    """Write the parameters of a cost, rounded up."""
    return [f"{name} {rounded_up(value)}" for name, value in cost.items()]


def rounded_down(left: Mapping[str, float], budget: Mapping[str, float]) -> str:
    """Write what is left of a budget, rounded down; what only rounding lost counts as nothing."""
    texts = []
    for name, value in left.items():
        value = worth_showing(value, budget[name])
        nearest = f"{value:.6g}"
        # The nearest number of six digits serves if, when typed, it still fits.
        fits = value > 0 and as_typed(float(nearest)) <= value
        texts.append(
            f"{name} {nearest if fits else rounded_up(-value).removeprefix('-')}"
        )
    return ", ".join(texts)
