"""`evaluate`: plan, pay, compare predictions with labels in the kernel, and say what the noisy tables show."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.pipeline import Pipeline

from dppl._utils import validate
from dppl._utils.types import Flags, Float
from dppl.errors import ParameterError
from dppl.evaluation import intervals
from dppl.evaluation.already_predicted import predictions_of
from dppl.evaluation.evaluation import (
    Abstention,
    Confusion,
    Estimate,
    Evaluation,
    OfBand,
    OfClass,
    OfConfidence,
    OfLabels,
    Threshold,
    Together,
    abstention,
)
from dppl.kernel.checking import are_known, refuse_unusable_records
from dppl.kernel.measure import (
    Calibrated,
    Measure,
    Measurement,
    calibrated,
    secure_noise,
)
from dppl.kernel.persons import are_missing
from dppl.kernel.privacy import Budget, Guarantee
from dppl.kernel.privacy.budgets import check_strength
from dppl.kernel.privacy.guarantee import ALWAYS_UNCOVERED, Charge
from dppl.kernel.privacy.terms import Assumption, Caveat, PublicInput, Term
from dppl.kernel.queries import ADD_REMOVE, outcomes
from dppl.kernel.queries.outcomes import (
    CONFIDENCES,
    SCORE_EDGES,
    Guesses,
    Outcomes,
    SeveralOutcomes,
)
from dppl.methods.base import charge, charged
from dppl.methods.fit_plan import of_persons
from dppl.prediction.pending import (
    LabelSets,
    PendingPredictions,
    Predicts,
    label_sets,
)

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger

# What may be asked besides accuracy, recall and balanced accuracy.
PARTS = ("precision", "confusions", "calibration", "reliability", "curve")
# Shares of mu². What is not asked for leaves its share to the others.
SHARES = {
    "totals": 15,
    "classes": 40,
    "bands": 20,
    "alarms": 15,
    "calibration": 10,
    "reliability": 40,
}
# With few classes each is a band by itself, and two need no false alarms.
_FEW = 4
_CLASSES_OF_FEW = 60
_HISTOGRAM = 35
_CONFUSIONS = 40
# Where a record has several labels: whether all are right, and the outcomes of each
# label.
_WHOLE = 15
_LABELS = 85
_MOST_CONFUSED = 100

_PUBLIC_INPUTS = (
    Term(PublicInput.CLASSES),
    Term(PublicInput.MODEL),
    Term(PublicInput.FORM_OF_FILES),
    Term(PublicInput.PARAMETERS),
)
NOT_COVERED = (Term(Caveat.CHOSEN_BY_NUMBERS), Term(Caveat.RECORDS_OF_TRAINING))


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Noisy tables in records, and the variance of the noise in a cell of each."""

    tables: Mapping[str, Float]
    variances: Mapping[str, float]
    bands: intervals.Bands


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Known:
    """What is known of a model before it is tested."""

    model: Any  # what has a guarantee and a file, if anything
    sha256: str | None
    is_disjoint: (
        bool  # whether the ledger shows that the model was trained on another part
    )
    choices: list[
        Charge
    ]  # releases in the ledger that chose among models by these records

    @classmethod
    def of(cls, model: Any, ledger: Ledger | None, partition: str | None) -> Known:
        """Ask the ledger; a model is refused on records that it may have been trained on.

        The name of a release may be from another ledger. So it is enough to refuse, but
        shows nothing, and nor does the hash of a stream, which is of the last of its
        releases.
        """
        while isinstance(model, Pipeline):
            model = model.steps[-1][1]
        digest = None
        if hasattr(model, "to_bytes"):
            digest = sha256(model.to_bytes()).hexdigest()
        promised = getattr(model, "guarantee_", None)
        named = getattr(promised, "charges", ())
        is_disjoint = False
        choices = []
        # What is no ledger is refused when it is charged.
        for release in getattr(ledger, "releases", list)():
            charge = Charge(getattr(ledger, "dataset", ""), release["number"])
            kind = release["estimator"]
            is_file = release["model_sha256"] == digest is not None
            if partition is not None and release["partition"] not in (None, partition):
                is_disjoint |= is_file
            elif kind in ("comparison", "choice"):
                choices.append(charge)
            elif is_file or (charge in named and kind != "evaluation"):
                rule = "must name a part that the model was not trained on; the ledger says that it was"
                raise ParameterError(
                    f"{rule}. Nothing was charged.", parameter="partition"
                )
        return cls(
            model,
            digest,
            is_disjoint and getattr(promised, "n_models", 0) == 1,
            choices,
        )


def evaluate(
    model: Predicts,
    X: Any,
    y: Any,
    budget: Budget,
    *,
    groups: Any = None,
    ledger: Ledger | None = None,
    partition: str | None = None,
    confidence: float = 0.9,
    top_k: int = 5,
    parts: Collection[str] | None = None,
    unknown_labels: Literal["ignore", "strict"] = "ignore",
    random_state: int | None = None,
) -> Evaluation:
    r"""Measure how good a classifier is on private test records, under differential privacy.

    Parameters
    ----------
    model : classifier
        Fitted, with `classes_` and `predict`, and perhaps `predict_proba`: of dppl, of
        scikit-learn, or a table of predictions (`AlreadyPredicted`). Of several labels
        a record: of dppl, scikit-learn's `OneVsRestClassifier`, or a table.
    X : array-like of shape (n_records, ...)
        Private records as the model takes them. One that cannot be scored counts as a
        miss.
    y : array-like of shape (n_records,)
        Private labels; a number and its text name the same class. Records with other
        labels count nowhere. For a classifier of several labels a record: sets of
        labels, as its fit takes them; other labels count nowhere.
    budget : GaussianDP, ZCDP or ApproxDP
        What the whole evaluation may spend.
    groups : array-like of shape (n_records,), default=None
        Private ids of the persons whose records these are. A record then counts one
        over the number of records of its person, so that all numbers are of persons.
    ledger : Ledger, default=None
        Account of the data set, charged before a private value is read.
    partition : str, default=None
        Part of the data set that these records are, see `Ledger.charge`.
    confidence : float, default=0.9
        Probability with which each interval covers.
    top_k : int, default=5
        Ask whether the label is among so many likeliest classes, if the model has
        probabilities and more classes.
    parts : collection of str, default=None
        What to ask besides accuracy, recall and balanced accuracy, each at its share of
        the budget: ``"precision"`` (and F1), ``"confusions"``, ``"calibration"``,
        ``"reliability"``, and, for two classes, ``"curve"`` (AUROC, sensitivity and
        specificity). None asks for precision, for calibration where there are
        probabilities, and for the curve of two classes.
    unknown_labels : {"ignore", "strict"}, default="ignore"
        ``"strict"`` stops before anything is charged if a record cannot be scored or
        has another label. That it did not stop is one bit about the records, which the
        guarantee names as not covered.
    random_state : int, default=None
        None draws noise from the operating system. With an integer the evaluation must
        not be released.

    Raises
    ------
    ParameterError, BudgetError, BudgetExceeded
        If a parameter breaks its rule, budget or ledger do not allow it, or the ledger
        shows that the model was trained on these records. Nothing was charged then.
    InputError
        If shapes do not match, or a strict evaluation stops.

    Notes
    -----
    **Several labels a record.** Of a record, the first `max_labels` true labels in the
    order of the classes count, and the `max_labels` likeliest of the predicted ones; it
    is a number of the model. The numbers are thus of a model that predicts no more, on
    labels of which no more are true. Whether all labels of a record are right looks at
    all.

    **Privacy.** Unit: one record, or one person with all records (`groups`). Relation:
    add or remove one. Released: the evaluation, computed from noisy tables of outcomes.
    Sensitivity: 1 record in L2 for each table, and √(2·`max_labels`) records for the
    table of labels (`dppl.kernel.queries.outcomes`). Public inputs: the model, its classes, all
    parameters. Not covered: choices made from the numbers, and what the model tells of
    its training records.

    Examples
    --------
    >>> import numpy as np, dppl
    >>> rows, labels = np.tile(np.eye(3), (200, 1)), np.tile(["a", "b", "c"], 200)
    >>> budget = dppl.ApproxDP(1, 1e-6)
    >>> model = dppl.MeanPrototypes(budget, classes=["a", "b", "c"]).fit(rows, labels)
    >>> evaluation = dppl.evaluate(model, rows, labels, budget)
    >>> bool(evaluation.accuracy.low > 0.8)
    True
    """
    check_strength(budget, stacklevel=2)
    pending = predictions_of(model, X)
    n_classes = len(pending.classes)
    validate.one_of(("ignore", "strict"), unknown_labels=unknown_labels)
    validate.open_unit(confidence=confidence)
    validate.positive_integer(top_k=top_k)
    k = None
    if pending.probabilities and n_classes > top_k:
        k = top_k
    several = pending.several
    declared = measurements(
        n_classes, parts, probabilities=pending.probabilities, several=several
    )
    paid = calibrated(budget, declared, ADD_REMOVE)
    labels, ids = pending.labels_and_ids(y, groups)
    known = Known.of(pending.model, ledger, partition)
    guarantee = guarantee_of(
        budget, paid, [pending], ids is not None, random_state, known.choices
    )
    confidences = not declared.keys().isdisjoint({"calibration", "reliability"})
    scored: list[Flags] = []

    def guesses() -> Iterator[Guesses]:
        for some in pending.guesses():
            scored.append(some.predicted >= 0)
            yield some

    def read() -> Outcomes | SeveralOutcomes:
        """Compare labels with predictions: from here on values are private, and only queries see them."""
        with np.errstate(all="ignore"):
            if several is None:
                compared = labels, ids, pending.classes, guesses()
                return Outcomes.of(*compared, top_k=k, confidences=confidences)
            truth, _ = several.labels.read(
                labels, pending.classes
            )  # other labels count nowhere
            return SeveralOutcomes.of(truth, ids, guesses(), several.max_labels)

    held = None
    if unknown_labels == "strict":
        stop = Term(Caveat.STRICT_STOP)
        guarantee = replace(guarantee, not_covered=(*guarantee.not_covered, stop))
        held = read()
        used = are_known(
            labels, pending.classes, None if several is None else several.labels
        )
        used &= np.concatenate([*scored, np.empty(0, bool)])
        if ids is not None:
            used &= ~are_missing(ids)
        refuse_unusable_records(int(used.sum()), len(used))
    asked = {"parts": list(declared), "confidence": confidence, "top_k": k}
    recorded = {
        "model": type(pending.model).__name__,
        "model_sha256": known.sha256,
        **asked,
    }
    guarantee, entry = charge(ledger, partition, guarantee, "evaluation", recorded)
    with (
        charged(entry),
        np.errstate(all="ignore"),
        Measure(paid, held or read(), random_state) as measure,
    ):
        tables = _asked(measure, n_classes)
    if ledger is not None and entry is not None:
        ledger.finish(entry)
    classes = pending.classes.tolist()
    if several is None:
        said = _said(tables, classes, confidence, k)
    else:
        said = said_of_labels(tables, classes, confidence, several.max_labels)
    return Evaluation(
        classes=tuple(classes),
        unit=guarantee.unit,
        confidence=confidence,
        guarantee=guarantee,
        top_k=k,
        together=_together(known, guarantee),
        # A file says nothing of the steps that come before it.
        model_sha256=known.sha256 if known.model is pending.model else None,
        **said,
    )


def public_threshold(
    model: Predicts, X: Any, y: Any, *, max_error: float = 0.05, confidence: float = 0.9
) -> Abstention:
    """Return the least confidence at which at most `max_error` of the answers are wrong, by public labelled records.

    Parameters
    ----------
    model : classifier
        As for `evaluate`, with probabilities.
    X : array-like of shape (n_records, ...)
        Public records like those that will be predicted, on which the model was not
        trained.
    y : array-like of shape (n_records,)
    max_error : float, default=0.05
        Fixed before the records were seen.
    confidence : float, default=0.9
        Probability with which the bound holds, over the choice of these records.

    Raises
    ------
    ParameterError
        If a parameter breaks its rule, or the model says no probabilities.

    Notes
    -----
    **Privacy.** Unit: none. Relation: none. Released: the exact numbers behind the
    threshold. Sensitivity: none is bounded. Public inputs: all. Not covered: private
    records; for these use `evaluate` with ``"reliability"`` among its parts, and
    `Evaluation.threshold`.
    """
    pending = predictions_of(model, X)
    if not pending.probabilities or pending.several is not None:
        raise ParameterError(
            "must have predict_proba, and give a record one label.", parameter="model"
        )
    labels, ids = pending.labels_and_ids(y, None)
    held = Outcomes.of(
        labels, ids, pending.classes, pending.guesses(), confidences=True
    )
    query = outcomes.ReliabilityBins()
    right, wrong = held.total(query) / query.unit
    return abstention(right, wrong, 0.0, max_error, confidence)


def check(
    model: Any,
    budget: Budget,
    *,
    persons: bool,
    ledger: Ledger | None,
    partition: str | None,
) -> None:
    """Raise what `evaluate` would say of public facts and the account, before an encoder is loaded."""
    if ledger is not None:
        known = Known.of(model, ledger, partition)
        declared = measurements(len(model.classes_), several=label_sets(model))
        paid = calibrated(budget, declared, ADD_REMOVE)
        ledger.check(
            guarantee_of(budget, paid, [], persons, None, known.choices),
            partition=partition,
        )


def usual_parts(n_classes: int, *, probabilities: bool = True) -> set[str]:
    """Return what is asked if nothing is named."""
    parts = {"precision"}
    if probabilities:
        parts.add("calibration")
        if n_classes == 2:
            parts.add("curve")
    return parts


def measurements(
    n_classes: int,
    parts: Collection[str] | None = None,
    *,
    probabilities: bool = True,
    several: LabelSets | None = None,
) -> dict[str, Measurement]:
    """Return what an evaluation asks, with shares, from public values alone."""
    if several is not None:
        if parts is not None:
            raise ParameterError(
                "are for a model of one label a record; leave them out.",
                parameter="parts",
            )
        labels = outcomes.LabelOutcomes(n_classes, several.max_labels)
        return {
            "totals": Measurement(outcomes.WholeSets(), _WHOLE),
            "labels": Measurement(labels, _LABELS),
        }
    if parts is None:
        parts = usual_parts(n_classes, probabilities=probabilities)
    for part in parts:
        validate.one_of(PARTS, parts=part)
    if not probabilities and (
        without := set(parts) & {"calibration", "reliability", "curve"}
    ):
        raise ParameterError(
            f"{min(without)!r} needs a model with predict_proba.", parameter="parts"
        )
    if "curve" in parts and n_classes != 2:
        raise ParameterError(
            f"'curve' is for two classes; these are {n_classes}.", parameter="parts"
        )
    if "confusions" in parts and n_classes > _MOST_CONFUSED:
        raise ParameterError(
            f"'confusions' is for at most {_MOST_CONFUSED} classes.", parameter="parts"
        )
    # Few classes are asked one by one; more are asked in bands, too, whose sums drown
    # in less noise.
    few = n_classes <= _FEW
    asked = {
        "totals": (outcomes.Totals(), SHARES["totals"]),
        "classes": (
            outcomes.ClassOutcomes(n_classes),
            _CLASSES_OF_FEW if few else SHARES["classes"],
        ),
    }
    if "curve" in parts:
        asked["classes"] = outcomes.ClassOutcomes(n_classes), SHARES["classes"]
        asked["histogram"] = outcomes.ScoreHistogram(), _HISTOGRAM
    if not few:
        asked["bands"] = outcomes.BandOutcomes(n_classes), SHARES["bands"]
    if "precision" in parts and n_classes > 2:
        asked["alarms"] = outcomes.FalseAlarms(n_classes), SHARES["alarms"]
    if "calibration" in parts:
        asked["calibration"] = outcomes.CalibrationSums(), SHARES["calibration"]
    if "reliability" in parts:
        asked["reliability"] = outcomes.ReliabilityBins(), SHARES["reliability"]
    if "confusions" in parts and n_classes > 2:
        asked["confusions"] = outcomes.Confusions(n_classes), _CONFUSIONS
    return {
        name: Measurement(query, percent) for name, (query, percent) in asked.items()
    }


def guarantee_of(
    budget: Budget,
    paid: Mapping[str, Calibrated],
    pending: Sequence[PendingPredictions],
    persons: bool,
    random_state: int | None,
    choices: Sequence[Charge],
) -> Guarantee:
    """Return what a release of outcomes guarantees, from public values alone."""
    mixed = [Term(Caveat.ROWS_MIX)] * any(one.mixes for one in pending)
    guarantee = Guarantee(
        budget=budget,
        adjacency=ADD_REMOVE,
        releases=tuple(one.release for one in paid.values() if one.release is not None),
        public_inputs=_PUBLIC_INPUTS,
        not_covered=(
            *mixed,
            *ALWAYS_UNCOVERED,
            Term(Caveat.CHANGED_RECORD),
            *NOT_COVERED,
            *(
                Term(
                    Caveat.CHOSEN_BY_THESE_RECORDS,
                    dataset=one.dataset,
                    number=one.number,
                )
                for one in choices
            ),
        ),
        secure_noise=secure_noise(random_state),
        assumptions=(
            *dict.fromkeys(one.assumption for one in pending),
            Term(Assumption.PUBLIC_MADE_APART),
        ),
        n_models=0,
    )
    if persons:
        return of_persons(guarantee, whole=True)
    return guarantee


def _together(known: Known, guarantee: Guarantee) -> Together | None:
    """Return what model and evaluation cost a record together, in Gaussian DP."""
    promised = getattr(known.model, "guarantee_", None)
    if not isinstance(promised, Guarantee):
        return None
    return Together.of(promised, guarantee, disjoint=known.is_disjoint)


def variance(noise_std: float, unit: float) -> float:
    """Return the variance of rounded noise, in records; rounding adds 1/12 of a step squared."""
    return (noise_std**2 + 1 / 12) / unit**2


def _asked(measure: Measure, n_classes: int) -> Tables:
    """Ask for all tables; bands follow from the sizes that were released before."""
    tables: dict[str, Float] = {}
    variances: dict[str, float] = {}

    def ask(name: str, **released: Any) -> None:
        unit = measure.unit(name)
        tables[name] = np.asarray(measure(name, **released), np.float64) / unit
        variances[name] = variance(measure.noise_std(name), unit)

    bands = intervals.each_class(n_classes)
    if "labels" in measure:
        ask("totals")
        ask("labels")
        tables["classes"], tables["alarms"] = tables["labels"][:2], tables["labels"][2]
        variances["classes"] = variances["alarms"] = variances["labels"]
        return Tables(tables, variances, bands)
    ask("classes")
    if "bands" in measure:
        bands = intervals.bands_of(
            tables["classes"].sum(axis=0), float(np.sqrt(2 * variances["classes"]))
        )
        ask("bands", bands=bands.of_class, weights=bands.weights)
    for name in (
        "totals",
        "alarms",
        "calibration",
        "reliability",
        "confusions",
        "histogram",
    ):
        if name in measure:
            ask(name)
    return Tables(tables, variances, bands)


def _said(
    noisy: Tables, classes: list[Any], confidence: float, top_k: int | None
) -> dict[str, Any]:
    """Return what the tables show; a function of released values alone."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    tables = noisy.tables
    v = noisy.variances
    # Each cell has separate noise, so a sum of k cells has k times the variance.
    right, among, neither = tables["totals"]
    accuracy = intervals.ratio(right, among + neither, v["totals"], 2 * v["totals"], z)
    said: dict[str, Any] = {
        "n": number(intervals.count(tables["totals"].sum(), 3 * v["totals"], z)),
        "accuracy": estimate(accuracy),
        "per_class": _of_classes(noisy, classes, z),
    }
    if top_k is not None:
        said["top_k_accuracy"] = estimate(
            intervals.ratio(right + among, neither, 2 * v["totals"], v["totals"], z)
        )
    # Without bands each class is one by itself.
    if "bands" in tables:
        table, of_table = (tables["bands"], v["bands"])
    else:
        table, of_table = (tables["classes"], v["classes"])
    sizes = tables["classes"].sum(axis=0)
    error = float(np.sqrt(2 * v["classes"]))
    said["balanced_accuracy"] = estimate(
        intervals.balanced_accuracy(table, of_table, noisy.bands, sizes, error, z)
    )
    recalls = _estimates(intervals.ratio(table[0], table[1], of_table, of_table, z))
    said["bands"] = tuple(
        OfBand(
            tuple(classes[c] for c in np.flatnonzero(noisy.bands.of_class == band)),
            recall,
            bool(tail),
        )
        for band, (recall, tail) in enumerate(
            zip(recalls, noisy.bands.tail, strict=True)
        )
        if "bands" in tables
    )
    if "confusions" in tables:
        said["confusions"] = _confusions(
            tables["confusions"], v["confusions"], classes, confidence, z
        )
    if "calibration" in tables:
        n = float(tables["totals"].sum())
        gap = intervals.gap(
            tables["calibration"],
            v["calibration"],
            float(accuracy[0]),
            n,
            3 * v["totals"],
            z,
        )
        said["calibration_gap"] = estimate(gap, (-1.0, 1.0))
        # A temperature is stated only where the gap is more than noise and chance.
        if gap[1] > 0 or gap[2] < 0:
            said["temperature"] = intervals.temperature(tables["calibration"])
    if "reliability" in tables:
        hits, misses = tables["reliability"]
        each = _estimates(
            intervals.ratio(hits, misses, v["reliability"], v["reliability"], z)
        )
        noise = [math.sqrt(v["reliability"])] * len(each)
        columns = (
            CONFIDENCES[:-1],
            CONFIDENCES[1:],
            each,
            hits.tolist(),
            misses.tolist(),
            noise,
        )
        said["reliability"] = tuple(
            OfConfidence(*row) for row in zip(*columns, strict=True)
        )
    if "histogram" in tables:
        said["auroc"] = estimate(
            intervals.auroc(tables["histogram"], v["histogram"], z)
        )
        said["thresholds"] = _thresholds(tables["histogram"], v["histogram"], z)
    return said


def said_of_labels(
    noisy: Tables, classes: list[Any], confidence: float, max_labels: int
) -> dict[str, Any]:
    """Return what the tables show where a record has several labels."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    (right, other), v_whole = noisy.tables["totals"], noisy.variances["totals"]
    table = noisy.tables["labels"]
    v = noisy.variances["labels"]
    found, missed, false = table
    total_found, total_missed, total_false = table.sum(axis=1)
    # The square of what a record adds to m cells is at most m times the sum of their
    # squares (Cauchy and Schwarz). So m times the variance of independent cells is
    # enough, however they depend on each other: the m of larger records weighs more, in
    # the mean by 1 where m varies as Poisson's. Simulated, not proven.
    most = float(min(2 * max_labels, len(classes)))
    cells_each = float(table.sum() / max(right + other, 1.0))
    design = float(np.clip(1 + cells_each, 1.0, most))
    v_all = len(classes) * v
    precision, recall = (
        estimate(intervals.ratio(total_found, wrong, v_all, v_all, z, design))
        for wrong in (total_false, total_missed)
    )
    f1 = intervals.ratio(
        2 * total_found, total_missed + total_false, 4 * v_all, 2 * v_all, z, design
    )
    macro_f1 = intervals.mean_ratio(2 * found, missed + false, 4 * v, 2 * v, z, design)
    return {
        "n": number(intervals.count(right + other, 2 * v_whole, z)),
        "accuracy": estimate(intervals.ratio(right, other, v_whole, v_whole, z)),
        "balanced_accuracy": estimate(
            intervals.mean_ratio(found, missed, v, v, z, design)
        ),
        "per_class": _of_classes(noisy, classes, z),
        "bands": (),
        "labels": OfLabels(
            max_labels=max_labels,
            precision=precision,
            recall=recall,
            f1=estimate(f1),
            macro_f1=estimate(macro_f1),
        ),
    }


def _of_classes(noisy: Tables, classes: list[Any], z: float) -> tuple[OfClass, ...]:
    (hits, misses), v = noisy.tables["classes"], noisy.variances["classes"]
    sizes = [
        number(one)
        for one in zip(*intervals.count(hits + misses, 2 * v, z), strict=True)
    ]
    columns = [classes, sizes, _estimates(intervals.ratio(hits, misses, v, v, z))]
    alarms = noisy.tables.get("alarms")
    of_alarms = noisy.variances.get("alarms", v)
    if (
        alarms is None and len(classes) == 2
    ):  # what one of two classes misses is an alarm for the other
        alarms = misses[::-1]
    if alarms is not None:
        columns.append(_estimates(intervals.ratio(hits, alarms, v, of_alarms, z)))
        # F1 is a share of 2·hits + misses + alarms; a hit enters twice, so the sampling
        # variance is twice a count's.
        f1 = intervals.ratio(
            2 * hits, misses + alarms, 4 * v, v + of_alarms, z, design=2.0
        )
        columns.append(_estimates(f1))
    return tuple(OfClass(*row) for row in zip(*columns, strict=True))


def _confusions(
    table: Float, v: float, classes: list[Any], confidence: float, z: float
) -> tuple[Confusion, ...]:
    """Return pairs that noise alone would hardly reach, in any of the cells together, the most frequent first."""
    # Bonferroni: of so many cells, noise lifts one above the limit with the probability
    # 1 - confidence at most.
    off_diagonal = ~np.eye(len(table), dtype=bool)
    least = np.sqrt(v) * NormalDist().inv_cdf(
        1 - (1 - confidence) / np.count_nonzero(off_diagonal)
    )
    told = sorted(
        np.argwhere(off_diagonal & (table > least)).tolist(),
        key=lambda cell: -table[tuple(cell)],
    )
    return tuple(
        Confusion(
            classes[one],
            classes[other],
            number(intervals.count(table[one, other], v, z)),
        )
        for one, other in told
    )


def _thresholds(histogram: Float, v: float, z: float) -> tuple[Threshold, ...]:
    """Return sensitivity and specificity at each edge of the public bins."""
    n_bins = histogram.shape[1]
    # A sum over k bins has k times the variance of the noise in one.
    below = np.cumsum(histogram, axis=1)[:, :-1]
    bins = np.arange(1, n_bins)
    above = histogram.sum(axis=1, keepdims=True) - below
    sensitivity = _estimates(
        intervals.ratio(above[1], below[1], v * (n_bins - bins), v * bins, z)
    )
    specificity = _estimates(
        intervals.ratio(below[0], above[0], v * bins, v * (n_bins - bins), z)
    )
    rows = zip(SCORE_EDGES.tolist(), sensitivity, specificity, strict=True)
    return tuple(Threshold(*row) for row in rows)


def _estimates(interval: intervals.Interval) -> list[Estimate]:
    return [estimate(one) for one in zip(*interval, strict=True)]


def estimate(
    interval: intervals.Interval, ends: tuple[float, float] = (0.0, 1.0)
) -> Estimate:
    """Return an estimate, without a value where its interval holds everything or is all that is known."""
    value, low, high = (float(one) for one in interval)
    if (low, high) == ends or math.isnan(value):
        return Estimate(None, low, high)
    return Estimate(value, low, high)


def number(interval: intervals.Interval) -> Estimate:
    """Return an estimate of a number."""
    return Estimate(*(float(one) for one in interval))
