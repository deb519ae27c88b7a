"""The trusted base of one model, derived from the codes in its guarantee; no code is run to find it.

Each statistic, mechanism and fact of a guarantee maps to modules of the trusted base,
and so do the imports at the top of these modules. A module that is imported within a
function is needed by some fits only, and is listed here under the fact that needs it.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dppl._version import __version__
from dppl.kernel.privacy.terms import Assumption, Caveat, Mechanism, Statistic, Unit

if TYPE_CHECKING:
    from dppl.kernel.privacy.guarantee import Guarantee

_PACKAGE = Path(__file__).parents[1]
_INSTITUTION = ("federation.journal", "federation.party", "federation.protocol")
# Modules outside the kernel that decide a guarantee: queries that need torch or belong
# to one research method, the outcomes of test records, and the answers of institutions.
OUTSIDE = (
    "prediction.one_record",
    "prediction.rebuilt",
    *_INSTITUTION,
    "finetune.backward",
    "finetune.gradients",
    "finetune.schedule",
    "lab.adapt_queries",
    "lab.episode_queries",
    "lab.friendly",
    "lab.projection_queries",
    "lab.published_topk",
    "lab.votes",
)
# What every fit runs to read, to query and to state its cost.
EVERY_FIT = ("kernel.measure", "kernel.privacy.guarantee", "kernel.records")
_SUMS = ("kernel.queries.sums",)
_SOFTMAX = ("kernel.queries.softmax_gradients",)
_LABELS = ("kernel.label_sets", "kernel.queries.label_gradients")
_OUTCOMES = ("prediction.one_record", "kernel.queries.outcomes")
_NETWORK = ("finetune.backward", "finetune.gradients", "finetune.schedule")
QUERIES: dict[Statistic, tuple[str, ...]] = {
    Statistic.PROJECTED: ("lab.projection_queries",),
    Statistic.EPISODE_GRADIENTS: ("lab.episode_queries",),
    Statistic.BEFORE_TRAINING: _NETWORK,
    Statistic.AFTER_TRAINING: _NETWORK,
    Statistic.NUMBER_OF_RECORDS: _SUMS,
    Statistic.RECORDS_OF_CLASSES: _SUMS,
    Statistic.CLASS_COUNTS: _SUMS,
    Statistic.CLASS_SUMS: _SUMS,
    Statistic.WEIGHTED_SUM: _SUMS,
    Statistic.GRAM_MATRIX: ("kernel.queries.grams",),
    Statistic.CLASS_GRAM_MATRICES: ("kernel.queries.grams",),
    Statistic.SECOND_MOMENT: ("kernel.queries.second_moment",),
    Statistic.CORRELATED_CLASS_SUMS: ("kernel.queries.correlated",),
    Statistic.CLASS_MEANS: ("kernel.queries.coinpress_means", "kernel.queries.sums"),
    Statistic.CLIPPED_GRADIENTS: _SOFTMAX,
    Statistic.SCALED_GRADIENTS: _SOFTMAX,
    Statistic.LONG_GRADIENTS: _SOFTMAX,
    Statistic.HITS_OF_EXAMPLES: _SOFTMAX,
    Statistic.SHORTFALLS: _SOFTMAX,
    Statistic.HESSIANS: ("kernel.queries.softmax_curvatures",),
    Statistic.COUNTED_GRADIENTS: ("lab.adapt_queries", *_SOFTMAX),
    Statistic.LABEL_COUNTS: _LABELS,
    Statistic.CLIPPED_LABEL_GRADIENTS: _LABELS,
    Statistic.HITS_OF_LABELS: _LABELS,
    Statistic.LABEL_SHORTFALLS: _LABELS,
    Statistic.NETWORK_GRADIENTS: _NETWORK,
    Statistic.PUBLIC_POSITIONS: ("kernel.queries.selection",),
    Statistic.RIGHT_ANSWERS: ("kernel.queries.search",),
    Statistic.RIGHT_ANSWERS_OF_CLASSES: ("kernel.queries.search",),
    Statistic.BEST_CANDIDATE: ("kernel.queries.search",),
    Statistic.CORE_MEANS: ("lab.friendly",),
    Statistic.TEACHER_VOTES: ("lab.votes",),
    Statistic.NEIGHBOUR_VOTES: ("lab.votes",),
} | dict.fromkeys(
    (
        Statistic.TOTALS,
        Statistic.CLASS_OUTCOMES,
        Statistic.BAND_OUTCOMES,
        Statistic.FALSE_ALARMS,
        Statistic.CONFUSIONS,
        Statistic.CALIBRATION_SUMS,
        Statistic.RELIABILITY_BINS,
        Statistic.SCORE_HISTOGRAM,
        Statistic.WHOLE_LABEL_SETS,
        Statistic.LABEL_OUTCOMES,
        Statistic.SIGNED_HITS,
        Statistic.DISAGREEMENTS,
        Statistic.MOST_HITS,
    ),
    _OUTCOMES,
)
MECHANISMS: dict[Mechanism, tuple[str, ...]] = {
    Mechanism.ROUNDED_GAUSSIAN: ("kernel.mechanisms.gaussian",),
    Mechanism.SYMMETRIC_ROUNDED_GAUSSIAN: ("kernel.mechanisms.symmetric",),
    Mechanism.SAMPLED_ROUNDED_GAUSSIAN: ("kernel.mechanisms.sampled",),
    Mechanism.COINPRESS: ("kernel.mechanisms.coinpress",),
    Mechanism.EXPONENTIAL: ("kernel.mechanisms.exponential",),
    Mechanism.JOINT_EXPONENTIAL: ("kernel.mechanisms.exponential",),
    Mechanism.REPEAT_AND_SELECT: ("kernel.privacy.accounting",),
    Mechanism.FRIENDLY_CORE: ("lab.friendly",),
    Mechanism.PUBLISHED_TOP_K: ("kernel.mechanisms.exponential", "lab.published_topk"),
}
# Modules that run in some fits, where the guarantee does not tell in which.
IN_SOME_FITS = {
    "kernel.parts": "of a table in parts",
    "kernel.lattice.compiled": "with numba",
}
_CODE_FREE = {
    *("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"),
    "FSTRING_END",
}


@dataclass(frozen=True, slots=True)
class TrustedFile:
    """A file of the trusted base."""

    path: str  # below the package
    lines: int  # of code, without comments and docstrings
    tokens: int  # on these lines
    sha256: str
    when: str = ""  # which fits run it, if the guarantee cannot tell

    @property
    def decides(self) -> str:
        """Return "releases" if it decides what leaves the records, and "cost" if it computes what that costs."""
        privacy = Path("kernel", "privacy") in Path(self.path).parents
        return "cost" if privacy else "releases"


@dataclass(frozen=True, slots=True)
class TrustedCode:
    """What the releases of a model rest on, in the version that is installed."""

    files: tuple[TrustedFile, ...]
    # Statistics of user-defined queries, whose proofs are outside dppl.
    stated: tuple[str, ...]
    made_by: str  # version of dppl that made the releases
    version: str = __version__  # whose files these are

    @property
    def lines(self) -> int:
        """Lines of code that run in every such fit."""
        return sum(one.lines for one in self.files if not one.when)

    @property
    def tokens(self) -> int:
        """Tokens on these lines."""
        return sum(one.tokens for one in self.files if not one.when)

    @property
    def tokens_of_releases(self) -> int:
        """Tokens that decide what leaves the records; the rest computes what that costs."""
        files = [one for one in self.files if one.decides == "releases"]
        return sum(one.tokens for one in files if not one.when)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, JSON-ready."""
        totals = ("lines", "tokens", "tokens_of_releases")
        return {**asdict(self), **{name: getattr(self, name) for name in totals}}


def trusted_code(guarantee: Guarantee) -> TrustedCode:
    """Return what the releases of a guarantee rest on."""
    needed = with_imports(_roots(guarantee))
    optional = with_imports([*needed, *_in_some_fits(guarantee)])
    files = [_file(module) for module in sorted(needed)]
    for module in sorted(optional - needed):
        files.append(_file(module, IN_SOME_FITS.get(module, "of a table in parts")))
    statistics = (one.statistic.innermost for one in guarantee.releases)
    return TrustedCode(
        tuple(files),
        tuple(one["text"] for one in statistics if one.code is Statistic.STATED),
        guarantee.software.get("dppl", "unknown"),
    )


def _roots(guarantee: Guarantee) -> Iterator[str]:
    yield from EVERY_FIT
    for release in guarantee.releases:
        yield from MECHANISMS.get(release.mechanism.code, ())
        statistic = release.statistic
        yield from QUERIES.get(statistic.code, ())
        while "of" in statistic.code.fields:
            statistic = statistic["of"]
            yield from QUERIES.get(statistic.code, ())
    if guarantee.unit is Unit.PERSON:
        yield "kernel.persons"
    if guarantee.charges:
        yield "kernel.privacy.ledger"
    if guarantee.parties:
        yield from _INSTITUTION
    assumed = {one.code for one in guarantee.assumptions}
    if Assumption.CLUSTER in assumed:
        yield "kernel.parts"
    if Caveat.STRICT_STOP in {one.code for one in guarantee.not_covered}:
        yield "kernel.checking"


def _in_some_fits(guarantee: Guarantee) -> Iterator[str]:
    yield "kernel.lattice.compiled"
    # Fits of networks, evaluations and institutions read rows from one place.
    codes = {one.statistic.innermost.code for one in guarantee.releases}
    if not codes & {Statistic.NETWORK_GRADIENTS, Statistic.TOTALS}:
        yield "kernel.parts"


def with_imports(modules: Iterable[str]) -> set[str]:
    """Return modules of the trusted base, and those of it that they import when they are imported."""
    found: set[str] = set()
    left = list(modules)
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += imported(module)
    return found


@cache
def imported(module: str) -> tuple[str, ...]:
    """Return the modules of the trusted base that a module imports at its top, except for types."""
    found = []
    for node in _statements(ast.parse(_path(module).read_text("utf-8")).body):
        if isinstance(node, ast.ImportFrom) and node.module:
            top, _, package = node.module.partition(".")
            if top == "dppl":
                found += [_home(package, alias.name) for alias in node.names]
    return tuple(name for name in found if name[:7] == "kernel." or name in OUTSIDE)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _statements(
                one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt)
            )
        yield node


def _home(package: str, name: str) -> str:
    """Return the module that defines a name of a package."""
    whole = f"{package}.{name}"
    if _path(whole).exists():
        return whole
    stub = _PACKAGE.joinpath(*package.split("."), "__init__.pyi")
    if stub.exists():
        body = ast.parse(stub.read_text("utf-8")).body
    else:
        body = []
    for node in body:
        if isinstance(node, ast.ImportFrom) and name in {
            alias.name for alias in node.names
        }:
            return f"{package}.{node.module}"
    return package


def _path(module: str) -> Path:
    path = _PACKAGE.joinpath(*module.split("."))
    if path.is_dir():
        return path / "__init__.py"
    return path.with_suffix(".py")


@cache
def _file(module: str, when: str = "") -> TrustedFile:
    path = _path(module)
    content = path.read_bytes()
    rows = rows_of_code(content.decode("utf-8"))
    name = path.relative_to(_PACKAGE).as_posix()
    return TrustedFile(
        name, len(set(rows)), len(rows), sha256(content).hexdigest(), when
    )


def rows_of_code(source: str) -> list[int]:
    """Return the line of each token of a file: of code alone, without docstrings, comments and layout."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False):
            documentation |= set(
                range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
            )
    rows = []
    inside = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        # From Python 3.12 on an f-string is taken apart; here it is one token.
        kind = tokenize.tok_name[token.type]
        inside -= kind == "FSTRING_END"
        counts = not inside and kind not in _CODE_FREE
        if counts and token.start[0] not in documentation:
            rows.append(token.start[0])
        inside += kind == "FSTRING_START"
    return rows
