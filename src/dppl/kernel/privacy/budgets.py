"""Budgets with their notion: pure, Gaussian, zero-concentrated, Rényi and approximate differential privacy.

A number such as 1.0 means nothing without its notion, so budgets of different notions
neither compare nor mix; the conversions that exist are methods, and those that do not
raise `BudgetError` and say why.

`split` shares a budget among releases, and `budget_of_one` among the rows of a person
(group privacy). Rows that enter releases which follow from one class each cost as
releases on disjoint data that one person's rows are in, sqrt(k) times mu for k rows. In
general they cost what k neighbour steps do, k times mu.
"""

from __future__ import annotations

import decimal
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import ClassVar

from dppl._utils import validate
from dppl.errors import Argument, BudgetError, ParameterError, warn_once
from dppl.kernel.privacy import tradeoff
from dppl.kernel.privacy.rounding import below, root_below

USUAL_DELTA = 1e-6  # of the one epsilon in sentences, tables and figures
# Up to the first epsilon a budget is strong, from the second on weak: Gaussian noise of
# epsilon 3 at delta 1e-6 (mu = 0.65) lets a guess of membership be right in 63 % of
# cases, and pure DP in 95 %.
STRONG_AND_WEAK = (1.0, 3.0)
LARGE_DELTA = 1e-4  # from here on too large for most data
# Costs of single rows are rounded up, and once more the costs of several that follow
# from them: their squares add up to less than this share above what they are.
_HEAD_ROOM = 1 + Fraction(1, 2**48)
# A smaller share of a budget remains by rounding, and is nothing that anyone would
# spend.
_REMAINDER = 1e-5


class Budget(ABC):
    """Base of the five notions: a frozen dataclass whose fields are the parameters of the notion."""

    notion: ClassVar[str]
    # Whether its epsilon is that of pure or approximate DP.
    states_epsilon: ClassVar[bool] = False
    # Whether an epsilon or a delta is meant that protects hardly anybody; no part of the
    # promise.
    allow_weak: bool = False

    def __post_init__(self) -> None:
        """Check the parameters, and keep them as Python floats: NumPy's narrow ones lower the precision of the rest."""
        rules = {"delta": validate.open_unit, "mu": validate.not_negative}
        for name, value in self.to_dict().items():
            rules.get(name, validate.positive)(**{name: value})
            object.__setattr__(self, name, float(value))
        if mu := self.to_dict().get("mu"):
            tradeoff.check_mu(mu, least=tradeoff.SMALLEST_MU)

    def __str__(self) -> str:
        parameters = " at ".join(
            f"{name} = {rounded_up(value)}" for name, value in self.to_dict().items()
        )
        return f"{parameters}, {self.notion}"

    @property
    def is_zero(self) -> bool:
        """Whether nothing that depends on a private record may be released."""
        return not any(self.to_dict().values())

    @property
    def usual_epsilon(self) -> float:
        """The epsilon of the budget; of one that has none, what it implies at a delta of 1e-6."""
        parameters = self.to_dict()
        if self.states_epsilon or self.is_zero:
            return parameters.get("epsilon", 0.0)
        try:
            mu = self.gaussian_allowance().mu
            return tradeoff.gaussian_epsilon(mu, USUAL_DELTA)
        except BudgetError:  # beyond all use, or too little for any
            if next(iter(parameters.values())) > 1:
                return math.inf
            return 0.0

    @property
    def weakness(self) -> str:
        """A warning where it implies an epsilon of at least 3, or has a delta of at least 1e-4."""
        strong, weak = STRONG_AND_WEAK
        warnings = []
        epsilon = self.usual_epsilon
        implied = ""
        if not self.states_epsilon:
            implied = f" It implies epsilon = {rounded_up(epsilon, 4)} at delta = {rounded_up(USUAL_DELTA)}."
        delta = self.to_dict().get("delta", 0.0)
        if epsilon >= weak:
            warnings.append(
                f"{self} is a weak guarantee.{implied} The model's statement says how often a guess of membership may "
                f"be right. An epsilon of at most {strong:g} is strong; choose one near it if the accuracy allows."
            )
        if delta >= LARGE_DELTA:
            warnings.append(
                f"delta = {rounded_up(delta)} is too large for most data: with a delta of 1 / number of records or "
                "more, a mechanism may publish a whole record. Choose one far below that, for instance 1e-6."
            )
        return " ".join(warnings)

    def to_dict(self) -> dict[str, float]:
        """Return the parameters by name, for example ``{"rho": 0.5}``."""
        parameters = (one.name for one in fields(self) if one.compare)  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in parameters}

    @abstractmethod
    def to_approx(self, delta: float) -> ApproxDP:
        """Return the (epsilon, delta) guarantee that this budget implies at `delta`."""

    @abstractmethod
    def gaussian_allowance(self) -> GaussianDP:
        """Return the largest cost of Gaussian noise that stays within this budget, rounded down."""

    @abstractmethod
    def selection_epsilon(self) -> float:
        """Return the largest pure epsilon of *one* bounded-range selection that stays within this budget."""

    # Python asks the other budget for >= and >.
    def __le__(self, other: object) -> bool:
        if not isinstance(other, Budget):
            raise TypeError(
                f"{self!r} compares with a budget only; got {type(other).__name__}."
            )
        if type(other) is not type(self):
            raise BudgetError(
                f"{self!r} and {other!r} are different notions and do not compare; convert one first."
            )
        theirs = other.to_dict()
        return all(mine <= theirs[name] for name, mine in self.to_dict().items())

    def __lt__(self, other: object) -> bool:
        return self <= other and self != other


@dataclass(frozen=True, slots=True)
class PureDP(Budget):
    """Pure differential privacy (Dwork, McSherry, Nissim, Smith 2006, Definition 1).

    Parameters
    ----------
    epsilon : float
        Bound on the log-ratio of the probabilities of any outcome between neighbours,
        greater than 0.
    allow_weak : bool, default=False
        Needed to spend an epsilon above 20.

    Examples
    --------
    >>> PureDP(1.0).to_approx(1e-6)
    ApproxDP(epsilon=1.0, delta=1e-06)
    """

    epsilon: float
    allow_weak: bool = field(default=False, kw_only=True, compare=False, repr=False)
    notion: ClassVar[str] = "pure DP"
    states_epsilon: ClassVar[bool] = True

    def to_approx(self, delta: float) -> ApproxDP:
        """Return the same epsilon: pure DP implies (epsilon, delta) for every delta."""
        return ApproxDP(self.epsilon, delta)

    def gaussian_allowance(self) -> GaussianDP:
        """Raise `BudgetError`: no Gaussian noise implies pure DP."""
        raise BudgetError(
            "Gaussian noise gives no pure-DP guarantee; use another notion, or PublicPrototypes."
        )

    def selection_epsilon(self) -> float:
        """Return the largest float epsilon that is at most the decimal number of the budget."""
        return as_typed(self.epsilon)


@dataclass(frozen=True, slots=True)
class GaussianDP(Budget):
    """Gaussian differential privacy, the notion of Gaussian noise: it loses nothing in composition or conversion.

    Dong, Roth, Su (2022), arXiv:1905.02383v3, Definition 2.6.

    Parameters
    ----------
    mu : float
        No test distinguishes neighbours better than N(0, 1) from N(mu, 1). It is the
        x-axis of the DPPL papers' figures, sqrt(2·rho). With 0 no private record is
        read, which is for models of public examples alone.

    Examples
    --------
    >>> round(GaussianDP(1.0).to_approx(1e-6).epsilon, 3)
    4.887
    """

    mu: float
    notion: ClassVar[str] = "Gaussian DP"

    def to_approx(self, delta: float) -> ApproxDP:
        """Return the exact epsilon at `delta`, rounded up (Dong, Roth, Su 2022, arXiv:1905.02383v3, Corollary 2.13)."""
        return ApproxDP(tradeoff.gaussian_epsilon(self.mu, float(delta)), delta)

    def gaussian_allowance(self) -> GaussianDP:
        """Return the largest float mu that is at most the decimal number, so that 0.6² and 0.8² add up to 1."""
        if self.is_zero:
            raise BudgetError(
                "mu = 0 allows no finite noise; spend more, or release nothing."
            )
        return GaussianDP(as_typed(self.mu))

    def selection_epsilon(self) -> float:
        """Return the largest range of one selection that is mu-GDP, rounded down (`dppl.kernel.privacy.tradeoff`)."""
        self.gaussian_allowance()  # raises for mu = 0
        return tradeoff.selection_range_within(self.mu)


@dataclass(frozen=True, slots=True)
class ZCDP(Budget):
    """Zero-concentrated differential privacy (Bun and Steinke 2016, arXiv:1605.02065v1, Definition 1.1).

    Parameters
    ----------
    rho : float
        The Rényi divergence of order alpha between neighbours is at most rho·alpha, for
        all alpha > 1. Greater than 0.

    Examples
    --------
    >>> round(ZCDP(0.5).to_approx(1e-6).epsilon, 3)
    5.222
    """

    rho: float
    notion: ClassVar[str] = "zCDP"

    def to_approx(self, delta: float) -> ApproxDP:
        """Return the smallest epsilon that Rényi conversion proves at `delta`, rounded up."""
        validate.open_unit(delta=delta)
        from dppl.kernel.privacy.accounting import epsilon_of_zcdp

        return ApproxDP(epsilon_of_zcdp(self.rho, delta), delta)

    def gaussian_allowance(self) -> GaussianDP:
        """Return mu = sqrt(2·rho), rounded down: Gaussian noise costs rho = mu²/2."""
        return GaussianDP(root_below(2 * Fraction(as_typed(self.rho))))

    def selection_epsilon(self) -> float:
        """Return sqrt(8·rho), rounded down: epsilon-bounded range is epsilon²/8-zCDP (Cesar, Rogers 2021)."""
        return root_below(8 * Fraction(self.rho))


@dataclass(frozen=True, slots=True)
class RenyiDP(Budget):
    """Rényi differential privacy of one order (Mironov 2017, arXiv:1702.07476, Definition 4).

    It says nothing of other orders than `alpha` and lower ones, so what it implies in
    approximate DP is weaker than what a fit proves by its noise, which the statement
    gives.

    Parameters
    ----------
    alpha : float
        The order, above 1.
    epsilon : float
        Bound on the Rényi divergence of this order between neighbours, greater than 0.
        It is no epsilon of pure or approximate DP. Gaussian noise of zCDP cost rho
        spends exactly alpha·rho.

    Examples
    --------
    >>> RenyiDP(alpha=8, epsilon=4).gaussian_allowance()
    GaussianDP(mu=1.0)
    >>> round(RenyiDP(alpha=8, epsilon=4).to_approx(1e-6).epsilon, 3)
    5.543
    """

    alpha: float
    epsilon: float
    notion: ClassVar[str] = "Rényi DP"

    def __post_init__(self) -> None:
        """Check the parameters."""
        super(RenyiDP, self).__post_init__()
        if self.alpha <= 1:
            raise ParameterError(
                f"must be above 1; got {self.alpha!r}.", parameter="alpha"
            )

    def __str__(self) -> str:
        # Rounded down, for at a higher order it would promise more.
        alpha = rounded_up(-self.alpha).removeprefix("-")
        epsilon = rounded_up(self.epsilon)
        return f"epsilon = {epsilon} at alpha = {alpha}, {self.notion}"

    def __le__(self, other: object) -> bool:
        """Compare budgets of one order: divergences of two orders do not order each other."""
        if isinstance(other, RenyiDP) and other.alpha != self.alpha:
            raise BudgetError(
                f"{self!r} and {other!r} are of different orders and do not compare."
            )
        return super(RenyiDP, self).__le__(other)

    def to_dict(self) -> dict[str, float]:
        """Return the parameters by name, first what is spent."""
        return {"epsilon": self.epsilon, "alpha": self.alpha}

    @property
    def usual_epsilon(self) -> float:
        """The epsilon that it implies at a delta of 1e-6."""
        return self.to_approx(USUAL_DELTA).epsilon

    @property
    def exact_rho(self) -> Fraction:
        """The zCDP cost that spends it."""
        return Fraction(as_typed(self.epsilon)) / Fraction(self.alpha)

    def to_approx(self, delta: float) -> ApproxDP:
        """Return the epsilon that the divergence of this order proves at `delta`, rounded up."""
        validate.open_unit(delta=delta)
        from dppl.kernel.privacy.accounting import epsilon_at_order

        return ApproxDP(epsilon_at_order(self.epsilon, delta, self.alpha), delta)

    def gaussian_allowance(self) -> GaussianDP:
        """Return mu = sqrt(2·epsilon/alpha), rounded down: Gaussian noise has divergence alpha·mu²/2."""
        return GaussianDP(root_below(2 * self.exact_rho))

    def selection_epsilon(self) -> float:
        """Return sqrt(8·epsilon/alpha), rounded down, as of zCDP."""
        return root_below(8 * self.exact_rho)


@dataclass(frozen=True, slots=True)
class ApproxDP(Budget):
    """Approximate differential privacy (Dwork, Kenthapadi, McSherry, Mironov, Naor 2006).

    Parameters
    ----------
    epsilon : float
        For every set of outcomes, P(S) is at most exp(epsilon)·P'(S) + `delta` between
        neighbours. Greater than 0.
    delta : float
        Slack in that inequality, strictly between 0 and 1; meaningful values lie far
        below 1/n. It is not the probability that the loss exceeds epsilon, which can be
        larger.
    allow_weak : bool, default=False
        Needed to spend an epsilon above 20, or a delta of 1e-3 or more.
    """

    epsilon: float
    delta: float
    allow_weak: bool = field(default=False, kw_only=True, compare=False, repr=False)
    notion: ClassVar[str] = "approximate DP"
    states_epsilon: ClassVar[bool] = True

    def to_approx(self, delta: float) -> ApproxDP:
        """Return the budget itself if `delta` is not smaller than its own."""
        validate.open_unit(delta=delta)
        if delta < self.delta:
            raise BudgetError(
                f"{self!r} implies nothing at the smaller delta={delta!r}."
            )
        return ApproxDP(self.epsilon, delta)

    def gaussian_allowance(self) -> GaussianDP:
        """Return the largest mu whose exact epsilon at this delta stays within this one (`GaussianDP.to_approx`)."""
        return GaussianDP(tradeoff.gaussian_mu_within(self.epsilon, self.delta))

    def selection_epsilon(self) -> float:
        """Return epsilon: one pure-DP selection spends it with delta = 0."""
        return self.epsilon


def checked_budget(budget: object) -> Budget:
    """Return the budget if it is one."""
    if not isinstance(budget, Budget):
        notions = "GaussianDP(mu), ZCDP(rho), RenyiDP(alpha, epsilon), ApproxDP(epsilon, delta) or PureDP(epsilon)"
        raise ParameterError(
            f"budget must be {notions}: a number means nothing without its notion; got {type(budget).__name__}."
        )
    return budget


def refuse_slip(
    budget: Budget, *, allowed: bool = False, implied: bool = False
) -> None:
    """Raise for an epsilon above 20 or a delta of 1e-3 or more, unless it is said that it is meant.

    With `implied` also for a mu or rho that implies such an epsilon at a delta of 1e-6.
    """
    if budget.allow_weak or allowed:
        return
    given = {"delta": 0.0} | budget.to_dict()
    strength = next(name for name in given if name != "delta")
    epsilon = 0.0
    if implied or budget.states_epsilon:
        epsilon = budget.usual_epsilon
    most = "at most 20"
    if not budget.states_epsilon:
        most = (
            f"so small that epsilon is at most 20 at delta = {rounded_up(USUAL_DELTA)}"
        )
    for name, holds, rule in (
        (strength, epsilon <= 20, most),
        ("delta", given["delta"] < 1e-3, "below 1e-3"),
    ):
        if not holds:
            raise ParameterError(
                f"must be {rule}, for more protects hardly anybody; got {given[name]:g}. If it is meant, set ",
                Argument("allow_weak", True),
                ".",
                parameter=name,
            )


def check_strength(budget: object, stacklevel: int) -> None:
    """Refuse a budget that somebody spends by a slip, and warn of a weak one."""
    budget = checked_budget(budget)
    refuse_slip(budget)
    if weakness := budget.weakness:
        warn_once(weakness, stacklevel + 1)


def budget_from_dict(fields: dict[str, float], **how: bool) -> Budget:
    """Return the budget with these parameters: ``mu``, ``rho``, ``epsilon``, or that with ``alpha`` or ``delta``."""
    kinds: dict[tuple[str, ...], Callable[..., Budget]]
    kinds = {
        ("mu",): GaussianDP,
        ("rho",): ZCDP,
        ("epsilon",): PureDP,
        ("delta", "epsilon"): ApproxDP,
        ("alpha", "epsilon"): RenyiDP,
    }
    kind = kinds.get(tuple(sorted(fields)))
    if kind is None:
        raise ValueError(f"no notion of privacy has the parameters {sorted(fields)}")
    return kind(**fields, **how)


def as_typed(value: float) -> float:
    """Return the largest float that is at most the shortest decimal number which is read as `value`.

    >>> as_typed(0.5), as_typed(0.8) < 0.8  # the float 0.8 lies above the decimal number
    (0.5, True)
    """
    return below(min(Fraction(repr(value)), Fraction(value)))


def worth_showing(left: float, budget: float) -> float:
    """Return what is left of a budget as people are shown it, without what only rounding left over.

    >>> worth_showing(7.45e-9, 0.5), worth_showing(1e-5, 0.5)
    (0.0, 1e-05)
    """
    return left if left > _REMAINDER * budget else 0.0


def rounded_up(value: float, digits: int = 6) -> str:
    """Write a cost with at most so many significant digits, never less than it is.

    >>> rounded_up(1e-5), rounded_up(10.0436, 3), rounded_up(3.00000001e-9)
    ('1e-5', '10.1', '3.00001e-9')
    """
    short = f"{value:.{digits}g}"
    if float(short) != value:  # unlike 1e-5, whose float lies a little above
        nearest = decimal.Context(
            prec=digits, rounding=decimal.ROUND_CEILING
        ).create_decimal(decimal.Decimal(value))
        short = f"{float(nearest):.{digits}g}"
    return short.replace("e-0", "e-").replace("e+0", "e+")


def split(budget: Budget, shares: Sequence[float]) -> list[GaussianDP]:
    """Share what a budget allows in Gaussian noise in these proportions, each part rounded down.

    Squares of mu add up (Dong, Roth, Su 2022, arXiv:1905.02383v3, Corollary 3.3), so it
    is these that are shared.

    >>> split(GaussianDP(5.0), (9, 16))
    [GaussianDP(mu=3.0), GaussianDP(mu=4.0)]
    """
    validate.positive(**{f"shares[{i}]": share for i, share in enumerate(shares)})
    squared_mu = Fraction(budget.gaussian_allowance().mu) ** 2
    exact = [Fraction(float(share)) for share in shares]
    return [GaussianDP(root_below(squared_mu * share / sum(exact))) for share in exact]


def budget_of_one(budget: Budget, n_rows: int, *, selects: bool) -> Budget:
    """Return what a fit on single rows may spend, so that `n_rows` rows together cost no more than `budget`.

    It is in the notion of `budget`; of approximate DP, what it allows in Gaussian DP,
    or in pure DP to selections, and of Rényi DP in zCDP. The rows are in different classes. Either all releases
    are selections, whose costs add up in pure DP (`selects`), or what is released of a
    class follows from the rows of that class alone, with its own noise.

    Dong, Roth, Su (2022), arXiv:1905.02383v3, Theorem 2.14 (groups) and Corollary 3.3
    (composition). Bun and Steinke (2016), arXiv:1605.02065v1, Proposition 1.9 (groups)
    and Lemma 1.7 (composition).
    """
    if budget.is_zero:
        return budget
    if isinstance(budget, PureDP) or (selects and isinstance(budget, ApproxDP)):
        return PureDP(below(Fraction(as_typed(budget.epsilon)) / n_rows))
    squared = _HEAD_ROOM * (n_rows**2 if selects else n_rows)
    if isinstance(budget, ZCDP):
        return ZCDP(below(Fraction(as_typed(budget.rho)) / squared))
    if isinstance(budget, RenyiDP):
        return ZCDP(below(budget.exact_rho / squared))
    return GaussianDP(
        root_below(Fraction(budget.gaussian_allowance().mu) ** 2 / squared)
    )
