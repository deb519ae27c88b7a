"""Guarantees and accounts in words: in a paragraph, as a table, and in full. Numbers are rounded to the weaker side."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from dppl import _html
from dppl.kernel.privacy.budgets import USUAL_DELTA, GaussianDP, as_typed, rounded_up, worth_showing
from dppl.kernel.privacy.guarantee import NEIGHBOURS, PERSON, RECORD, Guarantee, Release

_COSTS = ("mu", "rho", "epsilon", "delta", "rho_per_run", "mean_runs")
NOTHING_RELEASED = "Nothing was released from private records: the model is a function of public inputs alone."


def protected(guarantee: Guarantee) -> str:
    """Return the unit, and what a promise about it is to whoever is more than that."""
    less = "; a person with several is protected less, the more they have"
    return guarantee.unit + less * (guarantee.unit == RECORD)


def summary(guarantee: Guarantee, delta: float | None = None) -> str:
    """Return the statement in one short paragraph, with the epsilon at `delta`, which is the usual one by default."""
    return " ".join([*_warnings(guarantee), _headline(guarantee, guarantee.usual_delta if delta is None else delta)])


def statement(guarantee: Guarantee) -> str:
    """Return everything as one text."""
    # Equal releases in a row, such as the steps of a stream, are said once.
    released = "; ".join(_release_in_words(release, times) for release, times in in_a_row(guarantee.releases))
    rest = (f"{heading}: {'; '.join(items)}." for heading, items in details(guarantee))
    said = [f"Released: {released}."] if released else []
    return " ".join([summary(guarantee), *said, *rest])


def in_short(guarantee: Guarantee) -> list[tuple[str, str]]:
    """Return the guarantee in four lines, as headings with texts: what, of whom, on what it rests, what to remember."""
    promise = NOTHING_RELEASED
    if guarantee.releases:
        both, guess = views(guarantee, guarantee.usual_delta), _percent(guarantee.best_guess())
        promise = f"{both}; a guess of membership is right in at most {guess} of cases."
    same = "records of the same persons" if guarantee.unit == PERSON else "the same records"
    return [
        ("Guarantee", " ".join([*_warnings(guarantee), promise])),
        ("Protected", f"{protected(guarantee)}."),
        ("Assumed", f"{'; '.join(guarantee.assumptions)}."),
        ("Remember", f"further fits on {same} add up; a ledger keeps account of them."),
    ]


def table(guarantee: Guarantee, delta: float | None = None) -> list[tuple[str, str]]:
    """Return the numbers as pairs of texts, with the epsilon at one more `delta` if there is one."""
    implied = guarantee.implied(delta)
    # Releases without a cost in Gaussian DP, such as sums over samples, imply no mu.
    mu = [] if implied["mu"] is None else [("mu, Gaussian DP", rounded_up(implied["mu"], 4))]
    pure = guarantee.pure_epsilon
    return [
        *([] if pure is None else [("epsilon, pure DP", rounded_up(pure, 4))]),
        *mu,
        *((f"epsilon at delta = {rounded_up(at['delta'])}", rounded_up(at["epsilon"], 4)) for at in implied["epsilon"]),
        ("membership guess is right", f"at most {_percent(implied['best_guess'])}"),
        *(
            (
                f"true positive rate at {100 * test['false_positive_rate']:g} % false positive rate",
                f"at most {_thousandths(test['true_positive_rate']) / 10:g} %",
            )
            for test in implied["tests"]
        ),
    ]


def details(guarantee: Guarantee) -> list[tuple[str, tuple[str, ...]]]:
    """Return what it rests on and does not cover, as headings with items."""
    made = ", ".join(f"{name} {version}" for name, version in sorted(guarantee.software.items()))
    details = [
        ("Protected", (protected(guarantee),)),
        ("Neighbours", (f"{guarantee.neighbours or NEIGHBOURS[guarantee.adjacency]} ({guarantee.adjacency})",)),
        ("Treated as public", guarantee.public_inputs),
        ("Assumed", guarantee.assumptions),
        ("Not covered", guarantee.not_covered),
        ("Charged to the ledger", () if guarantee.ledger_entry is None else (guarantee.ledger_entry,)),
        ("Made with", (made,)),
    ]
    return [(heading, items) for heading, items in details if items]


def in_a_row(releases: Iterable[Release]) -> list[tuple[Release, int]]:
    """Return each release with the number of equal ones that follow each other."""
    return [(release, len(list(equal))) for release, equal in groupby(releases)]


def sensitivity(release: Release) -> str:
    """Return the sensitivity with its unit."""
    return measured(release, rounded_up(release.sensitivity))


def noise(release: Release) -> list[str]:
    """Return the parameters of the noise, lengths among them with their unit, such as "noise_std = 2.5 records"."""
    # A file orders parameters by name, so they are put in one order here.
    named = [(name, f"{value:.6g}") for name, value in sorted(release.parameters.items(), key=_in_order)]
    return [f"{name} = {measured(release, text) if name.endswith('noise_std') else text}" for name, text in named]


def measured(release: Release, length: str) -> str:
    """Return a sensitivity or noise with its unit, where the norm does not say it: what is released is integers."""
    if not release.mechanism.startswith("rounded Gaussian"):
        return length
    counted = re.match(r"number of (?:rows of |long )?(\w+)", release.statistic)
    unit = counted[1] if counted else "grid steps"
    return f"{length} {unit.removesuffix('s') if length in ('1', '1.0') else unit}"


def _warnings(guarantee: Guarantee) -> list[str]:
    seeded = (
        "NOT FOR RELEASE: the noise came from a seed, so anyone who guesses it can take the noise out again. Fit "
        "once more without a seed before publishing."
    )
    research = "RESEARCH USE: what was drawn is not exactly what the accounting speaks of; see what is not covered."
    return [seeded] * (bool(guarantee.releases) and not guarantee.fit_for_release) + [research] * (not guarantee.exact)


def views(guarantee: Guarantee, delta: float) -> str:
    """Return what was drawn as epsilon and as mu, such as "epsilon = 1 at delta = 1e-6 (mu = 0.2368)"."""
    epsilon = f"epsilon = {rounded_up(guarantee.epsilon(delta), 4)} at delta = {rounded_up(delta)}"
    pure = guarantee.pure_epsilon
    first, *rest = [epsilon] if pure is None else [f"epsilon = {rounded_up(pure, 4)}, pure DP", epsilon]
    if guarantee.mu is not None:
        rest.append(f"mu = {rounded_up(guarantee.mu, 4)}")
    return f"{first} ({', '.join(rest)})" if rest else first


def _headline(guarantee: Guarantee, delta: float) -> str:
    if not guarantee.releases:
        return NOTHING_RELEASED
    which = (
        f"whether {guarantee.unit} was among"
        if guarantee.adjacency == "add-remove"
        else f"which of two choices for {guarantee.unit} was among"
    )
    n_models = guarantee.n_models
    released = "the released model" if n_models == 1 else f"the models released after each of {n_models} tasks"
    return (
        f"Differentially private: {views(guarantee, delta)}. Whoever sees {released} can tell only to a bounded degree "
        f"{which} the training data. Someone who guesses this, both being equally likely beforehand, is right in at "
        f"most {_percent(guarantee.best_guess())} of cases, whatever else they know."
    )


def _percent(probability: float) -> str:
    """Round up, and never to a comfortable 100 % that is not one."""
    for digits in (0, 1, 3):
        value = math.ceil(probability * 100 * 10**digits) / 10**digits
        if value < 100:
            return f"{value:.{digits}f} %"
    return "100 %"


def _thousandths(rate: float) -> int:
    """Round up to a thousandth."""
    return min(math.ceil(1000 * rate), 1000)


def _in_order(parameter: tuple[str, float]) -> list[str]:
    """Return a key that puts share_2 before share_10."""
    return [part.zfill(9) if part.isdigit() else part for part in re.split(r"(\d+)", parameter[0])]


def _release_in_words(release: Release, times: int) -> str:
    parameters = ", ".join(text.replace(" = ", " ") for text in noise(release))
    cost = ", ".join(f"{name} = {rounded_up(release.cost[name])}" for name in _COSTS if name in release.cost)
    return (
        f"{f'{times} times ' if times > 1 else ''}{release.statistic} by the {release.drawn} ({release.norm} "
        f"sensitivity {sensitivity(release)}, {parameters}; cost {cost}{' each' if times > 1 else ''})"
    )


def as_html(guarantee: Guarantee) -> str:
    """Return what a notebook shows of a guarantee."""
    return _html.summary(summary(guarantee), table(guarantee))


def account_as_html(book: Mapping[str, Any]) -> str:
    """Return what a notebook shows of an account, from `Ledger.to_dict`."""
    rows = [
        ("budget", in_words(book["budget"])),
        ("spent", in_words(book["spent"])),
        ("left", rounded_down(book["left"], book["budget"])),
    ]
    for release in book["releases"]:
        part = [] if release["partition"] is None else [f"part {release['partition']}"]
        unfinished = ["charged, unfinished"] * (release["status"] == "charged")
        texts = [release["estimator"] or release["mechanism"], *part, *figures(release["cost"]), *unfinished]
        rows.append((f"release {release['number']}", ", ".join(texts)))
    whose = ", for persons" * (book["unit"] == "person")
    heading = f"Ledger of {book['dataset']}: {book['adjacency']}{whose}, accounting {book['accounting']}"
    return _html.summary(heading, rows)


def listed(names: Sequence[Any], most: int) -> str:
    """Write the first names, and how many more there are."""
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def in_words(budget: Mapping[str, float]) -> str:
    """Write a budget, or what is spent of one; a mu with the epsilon that it implies."""
    text = ", ".join(figures(budget))
    if not budget.get("mu"):  # another notion, or nothing spent
        return text
    epsilon = GaussianDP(**budget).to_approx(USUAL_DELTA).epsilon
    return f"{text} (epsilon {rounded_up(epsilon, 4)} at delta {rounded_up(USUAL_DELTA)})"


def figures(cost: Mapping[str, float]) -> list[str]:
    """Write a cost, rounded up, a parameter each."""
    return [f"{name} {rounded_up(value)}" for name, value in cost.items()]


def rounded_down(left: Mapping[str, float], budget: Mapping[str, float]) -> str:
    """Write what is left of a budget; what is lost in rounding only counts as nothing."""
    return ", ".join(f"{name} {_typed(worth_showing(value, budget[name]))}" for name, value in left.items())


def _typed(left: float) -> str:
    """Write what is left with six digits, rounded down unless the nearest number, when it is typed, still fits."""
    nearest = f"{left:.6g}"
    return nearest if left > 0 and as_typed(float(nearest)) <= left else rounded_up(-left).removeprefix("-")
