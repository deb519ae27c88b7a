"""Audit every configuration of a mechanism or estimator and write the table of docs/api/audit.md.

    python tools/audit_table.py [--runs N]

Each row is one `dppl.audit` on worst-case data: the lower bound that was measured,
beside the loss that is promised. The exit status is 1 if a promise is refuted. A new
estimator of the registry has a row by its recipe in `tests/laws/recipes.py`, which the
page gets when the table is made again.
"""

import argparse
import decimal
import inspect
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from dppl import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    MeanPrototypes,
    PublicData,
    PublicPrototypes,
    PureDP,
    SoftmaxPrototypes,
    __version__,
)
from dppl._utils.files import write_atomically
from dppl.audit import AuditResult, audit, worst_case
from dppl.audit.audit import audit_release
from dppl.audit.canaries import AuditData, Canary, Likelihood, Selected
from dppl.continual import ContinualDiscriminant, ContinualEnsemble, ContinualPrototypes
from dppl.kernel.mechanisms import ExponentialMechanism, RoundedGaussian
from dppl.kernel.mechanisms.randomness import randomness
from dppl.kernel.privacy import Budget
from dppl.kernel.queries.factors import factor
from dppl.lab import (
    AdaMix,
    FeatureCovariance,
    FriendlyCoreMeans,
    FullDataContinual,
    GlobalAdapt,
    LeastSquares,
    NaiveContinual,
    Newton,
    PrivateNeighbours,
    ProjectedPrototypes,
    PublishedTopK,
    TeacherEnsemble,
)
from dppl.methods import EmbeddingClassifier, LinearProbe
from dppl.methods.parameters import parameters
from dppl.methods.registry import ENTRIES

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from laws.recipes import RECIPES
from overhearing import overheard

PAGE = Path(__file__).parents[1] / "docs" / "api" / "audit.md"
BEGIN = "<!-- audit table: begin -->"
END = "<!-- audit table: end -->"
COLUMNS = (
    "mechanism or estimator",
    "adjacency",
    "claimed",
    "measured",
    "share",
    "bound",
    "runs",
    "seconds",
)
# Of one row; all rows hold at once with the confidence that the caption states (union
# bound).
CONFIDENCE = 0.999
_FIT_RUNS = 2000
_SLOW_FIT_RUNS = 1000
_RELEASE_RUNS = 8000
_ADD_REMOVE = "add-remove"
_REPLACE_ONE = "replace-one"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One row of the table.

    Parameters
    ----------
    method : str
        What is audited, in Markdown.
    adjacency : {"add-remove", "replace-one"}
    claim : Budget
        What it promises.
    runs : int
        Runs with the canary, and as many without.
    audit : callable
        Takes a number of runs and returns the `AuditResult`.
    """

    method: str
    adjacency: str
    claim: Budget
    runs: int
    audit: Callable[[int], AuditResult]

    @property
    def key(self) -> tuple[str, str, str]:
        """The first three cells of its row, which name it."""
        return self.method, self.adjacency, f"`{self.claim!r}`"


def fitted(
    estimator: EmbeddingClassifier, named: str = "", **case: Any
) -> Configuration:
    """Audit an estimator by many fits on its worst case, perhaps from examples or for a person, which `named` says."""

    def run(runs: int) -> AuditResult:
        data, canary = worst_case(estimator, runs=runs, confidence=CONFIDENCE, **case)
        delta = getattr(estimator.budget, "delta", None)
        return audit(
            estimator, data, canary, runs=runs, confidence=CONFIDENCE, delta=delta
        )

    fast = isinstance(estimator, MeanPrototypes | PublicPrototypes)
    configuration = _of_estimator(estimator, _FIT_RUNS if fast else _SLOW_FIT_RUNS, run)
    return replace(configuration, method=configuration.method + named)


def stream(estimator: ContinualPrototypes) -> Configuration:
    """Audit a stream of correlated noise; the record in question is in the first task, and so in the most rows."""
    n_tasks = int(estimator.max_tasks or 0)
    dim = 16
    first, *later = factor(n_tasks).rows
    column = [
        first.own,
        *(row.weights[0] for row in later),
    ]  # the oldest bin holds the first task
    empty = np.zeros((0, dim)), np.asarray(estimator.classes)[:0]
    # All coordinates as long as each other lose nothing to the lattice.
    first = np.ones((1, dim)), list(estimator.classes)

    def release(include: bool) -> float:
        model = clone(estimator)
        likelihood = 0.0
        with tempfile.TemporaryDirectory() as folder:
            for task in range(n_tasks):
                with overheard() as heard:
                    model.partial_fit(
                        *(first if include and task == 0 else empty),
                        state=Path(folder) / "state",
                    )
                likelihood += float(column[task]) * float(heard[0][1].sum())
        return likelihood

    def run(runs: int) -> AuditResult:
        return audit_release(
            release, estimator.budget, runs=runs, confidence=CONFIDENCE
        )

    return _of_estimator(estimator, _SLOW_FIT_RUNS, run)


def gaussian(claim: Budget) -> Configuration:
    """Audit the bare noise on one integer of sensitivity 127."""
    mechanism = RoundedGaussian.within(claim, Fraction(127**2))
    source = randomness(None)

    def release(include: bool) -> float:
        return float(mechanism.release(np.array([127 * include]), source)[0])

    def run(runs: int) -> AuditResult:
        return audit_release(release, claim, runs=runs, confidence=CONFIDENCE)

    return Configuration(
        method="`RoundedGaussian`",
        adjacency=_ADD_REMOVE,
        claim=claim,
        runs=_RELEASE_RUNS,
        audit=run,
    )


def selection(claim: Budget, size: int, n_others: int) -> Configuration:
    """Audit a bare selection among rows of which the canary raises `size` by the sensitivity and `n_others` not."""
    mechanism = ExponentialMechanism.within(claim, 7, size)
    source = randomness(None)
    targets = np.arange(n_others + size) >= n_others

    def release(include: bool) -> float:
        return float(targets[mechanism.select(7 * include * targets, source)].all())

    def run(runs: int) -> AuditResult:
        return audit_release(release, claim, runs=runs, confidence=CONFIDENCE)

    method = f"`ExponentialMechanism(size={size})`"
    return Configuration(
        method=method, adjacency=_ADD_REMOVE, claim=claim, runs=_RELEASE_RUNS, audit=run
    )


def _of_estimator(
    estimator: EmbeddingClassifier, runs: int, run: Callable[[int], AuditResult]
) -> Configuration:
    """Name a configuration by the parameters that are not the default and stand in no other column."""
    defaults = {
        name: p.default
        for name, p in inspect.signature(type(estimator)).parameters.items()
    }
    given = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in ("budget", "epsilon", "delta", "classes", "adjacency")
        and value != defaults[name]
    }
    parameters = ", ".join(f"{name}={value!r}" for name, value in given.items())
    name = type(estimator).__name__ + (f"({parameters})" if parameters else "")
    return Configuration(
        method=f"`{name}`",
        adjacency=estimator.adjacency,
        claim=estimator.budget,
        runs=runs,
        audit=run,
    )


@parameters
class Still(ProjectedPrototypes):
    """A projection that stays as it starts, so that the canary's gradient is the same in all steps."""

    learning_rate: float = field(default=1e-6, init=False)


Still.__name__ = ProjectedPrototypes.__name__


def beside(
    estimator: EmbeddingClassifier,
    data: AuditData,
    canary: Canary,
) -> Configuration:
    """Audit an estimator on data of its own."""

    def run(runs: int) -> AuditResult:
        delta = getattr(estimator.budget, "delta", None)
        return audit(
            estimator, data, canary, runs=runs, confidence=CONFIDENCE, delta=delta
        )

    return _of_estimator(estimator, _SLOW_FIT_RUNS, run)


def core() -> Configuration:
    """Audit FriendlyCore on an outlier, beside a class of one direction."""
    east, north = np.eye(2, 4)
    return beside(
        FriendlyCoreMeans(ApproxDP(4.0, 1e-2, allow_weak=True), _ONE, radius=1.5),
        AuditData(np.tile(east, (150, 1)), np.repeat(_ONE, 150)),
        Canary(north, _ONE[0], lambda model: float(model.prototypes_[0] @ north)),
    )


def ranked(n_public: int) -> Configuration:
    """Audit the published sets, of one row each, on a row that the canary moves from the first rank to the last."""
    east, north = np.eye(2, 4)
    public = np.vstack([np.tile(east, (n_public - 1, 1)), north])
    # Both nearly as similar to all public rows, so that ranks alone decide.
    record, canary = 0.7 * east + 0.71 * north, 0.8 * east + 0.6 * north
    return beside(
        PublishedTopK(
            PureDP(6.0, allow_weak=True), _ONE, n_prototypes=1, clip=(0.0, 2.0)
        ),
        AuditData([record], _ONE, PublicData(public)),
        Canary(canary, _ONE[0], Selected(n_public - 1)),
    )


def voting(estimator: EmbeddingClassifier) -> Configuration:
    """Audit votes on one public row, of which the canary takes one from the other class."""
    east = np.eye(1, 4)
    seen = Likelihood((np.array([0, 1]),), (np.array([1, -1]),))
    return beside(
        estimator,
        AuditData(-east, _TWO[1:], PublicData(east)),
        Canary(east[0], _TWO[0], seen),
    )


_ONE = ["a"]
_TWO = ["a", "b"]
# Few steps, so short that the canary's gradient is as long as the clipping norm in all
# of them.
_STEPS = {"steps": 2, "learning_rate": 1e-6}
_PERSON = {"person_records": 50}
NAMED = (
    gaussian(GaussianDP(2.0)),
    selection(PureDP(3.0), 1, 36),
    selection(PureDP(3.0), 3, 4),
    selection(ZCDP(2.0), 1, 13),
    fitted(MeanPrototypes(GaussianDP(2.0), _ONE)),
    fitted(MeanPrototypes(ApproxDP(4.0, 1e-5), _ONE)),
    fitted(MeanPrototypes(GaussianDP(2.0), _ONE, adjacency=_REPLACE_ONE)),
    fitted(MeanPrototypes(ApproxDP(4.0, 1e-5), _ONE, adjacency=_REPLACE_ONE)),
    fitted(
        MeanPrototypes(GaussianDP(2.0), _ONE, adjacency=_REPLACE_ONE, coinpress="dppl")
    ),
    fitted(
        MeanPrototypes(GaussianDP(2.0), _ONE), ", a person of 50 records", **_PERSON
    ),
    fitted(PublicPrototypes(PureDP(3.0), _ONE)),
    fitted(PublicPrototypes(GaussianDP(2.0), _ONE)),
    fitted(PublicPrototypes(PureDP(3.0), _ONE, n_prototypes=3)),
    fitted(PublicPrototypes(ZCDP(2.0), _ONE)),
    fitted(PublicPrototypes(ZCDP(2.0), _ONE, n_prototypes=3)),
    fitted(PublicPrototypes(PureDP(3.0), _ONE, adjacency=_REPLACE_ONE)),
    fitted(PublicPrototypes(PureDP(3.0), _ONE, n_prototypes=3, adjacency=_REPLACE_ONE)),
    fitted(PublicPrototypes(ZCDP(2.0), _ONE, adjacency=_REPLACE_ONE)),
    fitted(PublicPrototypes(ZCDP(2.0), _ONE, n_prototypes=3, adjacency=_REPLACE_ONE)),
    ranked(10),
    fitted(SoftmaxPrototypes(GaussianDP(2.0), _TWO)),
    fitted(SoftmaxPrototypes(GaussianDP(2.0), _TWO), " from examples", examples=True),
    fitted(
        SoftmaxPrototypes(GaussianDP(2.0), _TWO), ", a person of 50 records", **_PERSON
    ),
    fitted(
        SoftmaxPrototypes(GaussianDP(2.0), _TWO),
        ", a person of 50 records in both classes",
        **_PERSON,
        spread=True,
    ),
    fitted(ContinualPrototypes(GaussianDP(2.0), _TWO)),
    fitted(ContinualDiscriminant(GaussianDP(2.0), _TWO)),
    fitted(Still(GaussianDP(2.0), _TWO, steps=2)),
    stream(ContinualPrototypes(GaussianDP(2.0), _ONE, noise="toeplitz", max_tasks=8)),
    fitted(
        ContinualEnsemble(GaussianDP(2.0), _TWO, head_options={"clip": 0.5, **_STEPS})
    ),
    fitted(NaiveContinual(GaussianDP(2.0), _TWO, clip=0.5, **_STEPS)),
    fitted(FullDataContinual(GaussianDP(2.0), _TWO, clip=0.5, **_STEPS)),
    fitted(LinearProbe(GaussianDP(2.0), _TWO, clip=0.5, **_STEPS)),
    fitted(GlobalAdapt(GaussianDP(2.0), _TWO, upper_bound=0.01, **_STEPS)),
    fitted(AdaMix(GaussianDP(2.0), _TWO, **_STEPS)),
    fitted(LeastSquares(GaussianDP(2.0), _TWO)),
    fitted(LeastSquares(GaussianDP(2.0), _TWO, class_grams=True)),
    fitted(FeatureCovariance(GaussianDP(2.0), _TWO, **_STEPS)),
    fitted(Newton(GaussianDP(2.0), _TWO, **_STEPS)),
    core(),
    voting(TeacherEnsemble(GaussianDP(2.0), _TWO, n_queries=1, n_teachers=1)),
    voting(PrivateNeighbours(GaussianDP(2.0), _TWO, n_queries=1, n_neighbours=1)),
)
# Any other estimator of the registry is audited as the first of its recipes makes it.
_OTHERS = [
    fitted(
        entry.load()(
            GaussianDP(2.0), _TWO, **next(iter(RECIPES[entry.name].values())).options
        )
    )
    for entry in ENTRIES
    if not any(
        configuration.method.startswith(f"`{entry.name}") for configuration in NAMED
    )
]
CONFIGURATIONS = (*NAMED, *_OTHERS)


def rendered(results: Sequence[tuple[Configuration, AuditResult]]) -> str:
    """Return the caption and the table in Markdown."""
    rows = [
        COLUMNS,
        tuple("---" for _ in COLUMNS),
        *(_cells(*result) for result in results),
    ]
    together = _rounded_down(1 - len(results) * (1 - CONFIDENCE))
    caption = (
        f"Measured with dppl {__version__} by `python tools/audit_table.py`. Every bound holds with confidence "
        f"{CONFIDENCE}, so all {len(results)} hold at once with at least {together}."
    )
    return "\n".join([caption, "", *(f"| {' | '.join(row)} |" for row in rows)])


def _cells(configuration: Configuration, result: AuditResult) -> tuple[str, ...]:
    share = (
        "**REFUTED**"
        if result.violation
        else f"{int(100 * result.lower_bound / result.claimed)} %"
    )
    measured = f"{result.parameter} ≥ {_rounded_down(result.lower_bound)}"
    return (
        *configuration.key,
        measured,
        share,
        result.bound,
        f"{result.runs:,}",
        f"{result.seconds:.1f}",
    )


def _rounded_down(value: float) -> str:
    context = decimal.Context(prec=3, rounding=decimal.ROUND_FLOOR)
    return f"{float(context.create_decimal(decimal.Decimal(value))):.3g}"


def placed(page: str, table: str) -> str:
    """Return the page with `table` between its markers.

    Raises
    ------
    ValueError
        If the markers do not stand in it once each and in order.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"the page must hold {BEGIN} and then {END}, once each.")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def say(text: str, end: str = "\n") -> None:
    """Write progress at once, also into a pipe."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def main() -> int:
    """Run the command line; return 1 if a promise is refuted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", metavar="N", type=int, help="runs of every audit")
    options = parser.parse_args()
    placed(
        PAGE.read_text(encoding="utf-8"), ""
    )  # a page without markers should fail now and not in minutes
    results = []
    for number, configuration in enumerate(CONFIGURATIONS, 1):
        say(
            f"{number:2}/{len(CONFIGURATIONS)}  {', '.join(configuration.key)} ... ",
            end="",
        )
        runs = configuration.runs if options.runs is None else options.runs
        result = configuration.audit(runs)
        results.append((configuration, result))
        say(" | ".join(_cells(configuration, result)[3:]))
    # Read again: somebody may have written the page meanwhile.
    page = placed(PAGE.read_text(encoding="utf-8"), rendered(results))
    write_atomically(PAGE, page.encode("utf-8"), overwrite=True)
    refuted = [
        ", ".join(configuration.key)
        for configuration, result in results
        if result.violation
    ]
    say(
        f"{PAGE.name} written. "
        + (f"REFUTED: {'; '.join(refuted)}" if refuted else "No promise was refuted.")
    )
    return 1 if refuted else 0


if __name__ == "__main__":
    sys.exit(main())
