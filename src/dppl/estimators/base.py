"""What all classifiers share: their inputs and the way a fit runs."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import validate_data

from dppl import _validate
from dppl._metadata import columns_of, encoder_of
from dppl.engines import Engine, InProcess
from dppl.errors import BudgetError, InputError, ParameterError, WeakBudgetWarning
from dppl.estimators.parameters import parameters
from dppl.estimators.plan import Plan, Setting
from dppl.estimators.public_data import PublicData, PublicValues, checked, refuse_private
from dppl.estimators.released import ReleasedClassifier
from dppl.kernel import persons, reading
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks, usable_rows
from dppl.kernel.lattice.threads import one_thread_each
from dppl.kernel.measure import Measure, Measurement, calibrated
from dppl.kernel.mechanisms import Randomness, randomness
from dppl.kernel.privacy import Budget, Guarantee
from dppl.kernel.privacy.budgets import checked_budget
from dppl.kernel.privacy.composition import budget_of_one
from dppl.kernel.privacy.guarantee import (
    A_CHANGED_RECORD,
    A_STRICT_STOP,
    ADJACENCIES,
    ALWAYS_UNCOVERED,
    FORM_OF_FILES,
)
from dppl.kernel.reading import Codes, UnknownLabels
from dppl.kernel.records import HeldRecords, Parted, Records, SpreadRecords, refuse_labels
from dppl.kernel.whole_persons import WholePersons

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger, LedgerEntry

_MEAN_ROWS = 4096
_EXAMPLES = (
    "the examples or descriptions of the classes, which nobody may have written or chosen by looking at private records"
)
# Parameters of some estimators; of others they are facts, which nobody may set.
_OF_SOME = ("adjacency", "pool", "center", "rotation", "tasks", "noise", "max_tasks", "keep_tasks", "accumulate")
# Any fixed number does: the rotation is public.
_AUTO_ROTATION = 0


@parameters
class EmbeddingClassifier(ReleasedClassifier):
    """A classifier that is released from private records by a mechanism.

    Subclasses say what is released and how it scores rows. A fit runs in one direction: the plan, from parameters; the
    charge; then private rows, which enter a mechanism and nothing else.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
        What the whole fit may spend.
    classes : array-like of shape (n_classes,), default=None
        Public list of classes.
    public : PublicData, default=None
        Public rows, and public examples of the classes, by the encoder of the private records.
    unknown_labels : {"error", "ignore"}, default="error"
        What to do with a label outside `classes`: stop without showing it, or leave the record out silently.
    strict : bool, default=False
        Whether a fit stops, before anything is charged, if a row cannot be used or a label lies outside `classes`,
        whatever `unknown_labels` says. That it did not stop is one bit about the records, which the guarantee names as
        not covered. Not with a table in parts.
    max_classes_per_person : int, default=None
        In how many classes a person counts at most, in a fit with ids of persons: those of most of their rows. None is
        all for `SoftmaxPrototypes`, where their number costs nothing, and 1 elsewhere. More than 1 means more noise
        there: by the square root of the number where classes are released apart (class sums), and else by the number.
    random_state : int, default=None
        None draws noise from the operating system. An integer repeats a run, and the guarantee then says that the model
        must not be released.
    """

    budget: Budget | None = field(default=None, kw_only=False)
    classes: ArrayLike | None = field(default=None, kw_only=False)
    public: PublicData | None = None
    unknown_labels: UnknownLabels = "error"
    strict: bool = False
    max_classes_per_person: int | None = None
    random_state: int | None = None

    # Rotations of its map, if it has no parameter for them.
    _ROTATIONS: ClassVar[tuple[int | None, ...]] = (None,)
    # Whether it takes public examples of the classes.
    _STARTS_FROM_EXAMPLES: ClassVar[bool] = False
    # Whether it can spend a budget of pure DP.
    _PURE: ClassVar[bool] = False
    # Whether what it releases of a class follows from the rows of that class alone, with noise of its own.
    _CLASSES_APART: ClassVar[bool] = False
    # Whether persons enter it with all of their records, of any number of classes, at the cost of one record.
    _WHOLE_PERSONS: ClassVar[bool] = False

    def fit(
        self, X: Any, y: Any = None, *, groups: Any = None, ledger: Ledger | None = None, partition: str | None = None
    ) -> Self:
        """Release a classifier of the classes of (`X`, `y`).

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n_records, n_features)
            Private embeddings, one row a record. Rows of NaN, infinity or only zeros are left out with their labels,
            silently; under replace-one they are rows of zeros, which count as records. A tensor on
            another device is read in blocks. Or a table in parts that holds its own labels
            (`dppl.data.read_parts`), for methods that read records through sums alone.
        y : array-like of shape (n_records,), default=None
            Private labels. None is for a table in parts.
        groups : array-like of shape (n_records,), default=None
            Private ids of the persons whose records these are. With them the guarantee is for a person with all of
            their records (docs/persons.md), which together count as much as one record. Ids are matched as labels are;
            None, NaN and empty texts are one person each.
        ledger : Ledger, default=None
            Account of the data set. The release is charged before any private value is read; if the fit stops
            after that, the charge stays.
        partition : str, default=None
            Name of the part of the data set that (`X`, `y`) is, see `Ledger.charge`.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, BudgetError
            If a parameter breaks its rule, or the budget cannot be spent by this mechanism.
        EngineError
            If work that an engine spread did not end. The ledger keeps the charge.
        BudgetExceeded
            If the ledger does not cover the release. Nothing was drawn then.
        InputError, UnknownLabelError
            If arrays do not fit together, a label lies outside `classes`, or with `strict`.
        """
        self.check_parameters()
        if self.resolved_budget.is_weak:
            warnings.warn(self.resolved_budget.weakness, WeakBudgetWarning, stacklevel=2)
        with one_thread_each:
            return self._fit(X, y, groups, ledger, partition)

    def _fit(
        self, X: Any, y: Any, groups: Any, ledger: Ledger | None, partition: str | None, plan: Plan | None = None
    ) -> Self:
        """Fit, of a search by a plan: passes over public rows, or warnings, would tell how many runs it has."""
        if isinstance(X, Parted):
            return self._fit_parts(X, y, groups, ledger, partition)
        source = randomness(self.random_state)
        self._forget()
        rows, labels = reading.checked_inputs(X, y)
        ids = None
        if plan is None:
            ids = persons.ids_of_fit(groups, rows, self.max_classes_per_person)
            refuse_private(self._public, X, y)
            plan = self._plan(rows.shape[1])
        guarantee = plan.guarantee_on(X, groups)
        if self.strict and guarantee.releases:
            guarantee = replace(guarantee, not_covered=(*guarantee.not_covered, A_STRICT_STOP))
            reading.refuse_unusable_records(usable_rows(rows), labels, plan.classes)

        def release(plan: Plan) -> None:
            # From here on private rows are read, and only the mechanism sees them.
            codes = np.empty(0, np.intp)
            if plan.guarantee.releases:
                codes = reading.codes_of_records(rows, labels, plan.classes, self.unknown_labels, self.adjacency)
            if plan.guarantee.releases and ids is not None:
                self._release_persons(plan, rows, codes, persons.person_codes(ids), source)
            else:
                self._release(plan, rows, codes, source)

        with self._whole_or_nothing():
            validate_data(self, X, skip_check_array=True)
            return self._paid(plan, X, guarantee, ledger, partition, release)

    def _fit_parts(self, X: Parted, y: Any, groups: Any, ledger: Ledger | None, partition: str | None) -> Self:
        """Fit a table in parts, of which only sums come back to this process."""
        source = randomness(self.random_state)
        self._forget()
        if groups is not None or self.max_classes_per_person is not None:
            raise ParameterError(
                "needs all records of a person in one place, not a table in parts.", parameter="groups"
            )
        if self.strict:
            raise ParameterError("reads records before it charges, so not with a table in parts.", parameter="strict")
        refuse_labels(y)
        if not X.labelled:
            raise InputError("X has no labels in its parts; name their column or file.")
        refuse_private(self._public, X, None)
        plan = self._plan(X.n_features, X.engine)
        if any(one.measurement.query.needs_rows for one in plan.measurements.values()):
            raise ParameterError(
                f"{type(self).__name__} needs rows one after another with these parameters, and not sums over them "
                "alone; pass X as one table, or use SoftmaxPrototypes."
            )
        X.engine.check()
        guarantee = plan.guarantee_on(X)
        if X.engine.assumption is not None and guarantee.releases:
            guarantee = replace(guarantee, assumptions=(*guarantee.assumptions, X.engine.assumption))

        def release(plan: Plan) -> None:
            spread = SpreadRecords(X.parts, X.engine, plan.classes, self.unknown_labels, self.adjacency)
            with closing(spread):
                self._release_records(plan, spread, source)

        with self._whole_or_nothing():
            self.n_features_in_ = X.n_features
            return self._paid(plan, X, guarantee, ledger, partition, release)

    def _paid(
        self,
        plan: Plan,
        X: Any,
        guarantee: Guarantee,
        ledger: Ledger | None,
        partition: str | None,
        release: Callable[[Plan], None],
    ) -> Self:
        """Charge, then release."""
        # What the model file will say; parameters set after the fit have no part in it.
        self._fitted_with = {name: deepcopy(value) for name, value in self.get_params(deep=False).items()}
        del self._fitted_with["public"]
        guarantee, charge = self._charge(guarantee, ledger, partition)
        self.classes_, self.lattice_ = plan.classes, plan.lattice
        self.encoder_, self.guarantee_ = encoder_of(X), guarantee
        self.columns_ = columns_of(X)
        examples = plan.public.examples
        self.examples_ = None if examples is None else examples.kept(len(plan.classes))
        with charged(charge):
            release(plan)
        if ledger is not None and charge is not None:
            ledger.finish(charge, model_sha256=sha256(self.to_bytes()).hexdigest())
        return self

    def plan(self, n_features: int) -> Plan:
        """Settle all of a fit that parameters decide: nothing is fitted or charged.

        Parameters
        ----------
        n_features : int
            Width of the embeddings.

        Returns
        -------
        Plan
            Its `guarantee` is what a fit would guarantee and cost.

        Raises
        ------
        ParameterError, BudgetError, InputError
            As `fit`.
        """
        _validate.positive_integer(n_features=n_features)
        self.check_parameters()
        with one_thread_each:
            return self._plan(n_features)

    @property
    def _public(self) -> PublicData:
        return self.public or PublicData()

    def _plan(self, n_features: int, engine: Engine | None = None) -> Plan:
        """Plan a fit in which a person has at most so many rows: that of single rows, at their part of the budget."""
        classes = reading.public_classes(self.classes)
        public = replace(checked(self._public, n_features, classes), engine=engine or InProcess())
        n_rows = 1 if self._WHOLE_PERSONS else min(self.max_classes_per_person or 1, len(classes))
        if n_rows == 1:
            return self._planned(classes, public, n_features)
        if getattr(self, "sampling_rate", 1) < 1:
            raise ParameterError(
                "must be 1 where samples of the records are added, whose cost to several rows together is not known; "
                f"or set sampling_rate to 1. Got {self.max_classes_per_person}.",
                parameter="max_classes_per_person",
            )
        budget = budget_of_one(self.resolved_budget, n_rows, apart=self._CLASSES_APART, selects=self._PURE)
        of_one: Self = clone(self).set_params(budget=budget)
        return of_one._planned(classes, public, n_features).of_several_rows(self, n_rows)

    @property
    def resolved_budget(self) -> Budget:
        """The budget, which is one."""
        return checked_budget(self.budget)

    def _planned(self, classes: NDArray[Any], public: PublicValues, n_features: int) -> Plan:
        if public.examples is not None and not self._STARTS_FROM_EXAMPLES:
            raise ParameterError(
                f"public.examples is for methods that start from examples; {type(self).__name__} does not. Leave it "
                "out, or use SoftmaxPrototypes."
            )
        lattice = self.public_lattice(n_features, public.rows)
        setting = Setting(n_features, classes, lattice, public)
        setting = replace(setting, prepared=self.prepare(setting))
        declared = self.measurements(setting)
        if not isinstance(declared, dict) or not all(isinstance(one, Measurement) for one in declared.values()):
            raise ParameterError("measurements must return a dictionary of Measurement by name.")
        for name, one in declared.items():
            if getattr(one.query, "n_classes", None) not in (None, setting.n_classes):
                raise ParameterError(f"the measurement {name!r} must be of {setting.n_classes} classes, as the fit is.")
            if self._WHOLE_PERSONS and not one.query.whole_persons:
                raise ParameterError(f"the measurement {name!r} is not one that whole persons move as one record does.")
        paid = calibrated(self.resolved_budget, declared, self._relation_of_records)
        guarantee = Guarantee(
            budget=self.resolved_budget,
            adjacency=self.adjacency,
            neighbours=self._neighbours(),
            releases=tuple(one.release for one in paid.values() if one.release is not None),
            public_inputs=self._public_inputs(public),
            not_covered=self._not_covered(),
            fit_for_release=randomness(self.random_state).fit_for_release,
        )
        return Plan(type(self), deepcopy(self.get_params(deep=False)), setting, paid, guarantee)

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """Leave an unfitted model behind if a fit fails.

        Numbers that leave the range of floats belong to single rows, and must neither warn nor stop the others.
        """
        try:
            with np.errstate(all="ignore"):
                yield
        except BaseException:
            self._forget()
            raise

    def prepare(self, setting: Setting) -> Any:
        """Compute what both `measurements` and `learn` need of public values; it becomes `setting.prepared`."""
        return None

    @abstractmethod
    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare what the fit will ask of the private records, from parameters and public values only."""

    @abstractmethod
    def learn(self, measure: Measure, setting: Setting) -> None:
        """Set the fitted attributes from what `measure` answers. No private value is in reach.

        Parameters
        ----------
        measure : Measure
            Answers what was declared, with noise, as often as was declared.
        setting : Setting
            The public values that the fit knows.
        """

    @property
    def _relation_of_records(self) -> str:
        """The relation of neighbours, as queries know it."""
        return self.adjacency

    def _release(self, plan: Plan, rows: RowSource, codes: Codes, source: Randomness) -> None:
        """Learn from rows and codes in this process."""
        self._release_records(plan, HeldRecords(rows, codes), source)

    def _release_records(self, plan: Plan, records: Records, source: Randomness) -> None:
        """Learn from records, wherever they lie."""
        measure = Measure(plan.measurements, records, source)
        try:
            self.learn(measure, plan.setting)
        finally:
            measure.close()  # a method that keeps it keeps no record

    def _release_persons(self, plan: Plan, rows: RowSource, codes: Codes, numbers: Codes, source: Randomness) -> None:
        """Learn from persons, of these numbers: whole, or each as one row of a class."""
        n_classes, most = len(plan.classes), self.max_classes_per_person
        if self._WHOLE_PERSONS:
            whole = WholePersons.of(codes, numbers, n_classes, most)
            self._release_records(plan, HeldRecords(rows, whole.codes, whole), source)
        else:
            self._release(plan, *persons.rows_of_persons(rows, codes, numbers, n_classes, most or 1), source)

    def _charge(
        self, guarantee: Guarantee, ledger: Ledger | None, partition: str | None
    ) -> tuple[Guarantee, LedgerEntry | None]:
        """Pay; return the guarantee, which notes where, and the entry."""
        if not (ledger is None or hasattr(ledger, "charge")):
            raise ParameterError(f"must be a dppl.Ledger; got {type(ledger).__name__}.", parameter="ledger")
        if ledger is None and partition is not None:
            raise ParameterError("partition names a part of a ledger's data set; pass ledger as well.")
        if ledger is None or not guarantee.releases:
            return guarantee, None
        # Not the seed: whoever reads the ledger could take the noise out again.
        parameters = {name: as_json(value) for name, value in self._fitted_with.items() if name != "random_state"}
        entry = ledger.charge(guarantee, estimator=type(self).__name__, parameters=parameters, partition=partition)
        return replace(guarantee, ledger_entry=f"{entry.dataset}, release {entry.number}"), entry

    def _forget(self) -> None:
        """Drop what an earlier fit left, so that a refit that fails leaves an unfitted model and not a mixture."""
        for name in [name for name in vars(self) if name.endswith("_") or name == "_fitted_with"]:
            delattr(self, name)

    def check_parameters(self) -> None:
        """Check parameters and budget against each other.

        Raises
        ------
        ParameterError, BudgetError
            If a parameter breaks its rule, or this method cannot spend such a budget.
        """
        self._check_parameters()

    def _check_parameters(self) -> None:
        known = self._get_param_names()
        for name in _OF_SOME:
            if name in vars(self) and name not in known:
                raise ParameterError(f"{type(self).__name__} has no parameter {name}; take it off the estimator again.")
        budget = self.resolved_budget
        if budget.is_zero and not self._STARTS_FROM_EXAMPLES:
            raise BudgetError(
                f"{budget} lets nothing be released, so {type(self).__name__} has nothing to fit; "
                "SoftmaxPrototypes makes a model of public examples alone of it."
            )
        _validate.one_of(ADJACENCIES, adjacency=self.adjacency)
        _validate.one_of(reading.UNKNOWN_LABELS, unknown_labels=self.unknown_labels)
        if self.max_classes_per_person is not None:
            _validate.positive_integer(max_classes_per_person=self.max_classes_per_person)
        if not isinstance(self.public, PublicData | None):
            raise ParameterError(f"must be a dppl.PublicData; got {type(self.public).__name__}.", parameter="public")

    def public_lattice(self, n_features: int, public: RowSource | None) -> Lattice:
        """Return the public map from embeddings to integer rows, from parameters and public rows only.

        Parameters
        ----------
        n_features : int
        public : array or table of shape (n_public, n_features), or None

        Returns
        -------
        Lattice
        """
        center = self.center
        if isinstance(center, str):
            _validate.one_of(("public",), center=center)
            if public is None:
                raise ParameterError("center='public' is fitted on public rows; give public=PublicData(rows).")
            center = _mean_direction(public)
        rotation = self.rotation
        if isinstance(rotation, str):
            _validate.one_of(("auto",), rotation=rotation)
            plain = Lattice(n_features, center=center, pool=self.pool)
            rotation = _AUTO_ROTATION if public is not None and plain.loses_much(public) else None
        return Lattice(n_features, center=center, pool=self.pool, rotation=rotation)

    def _neighbours(self) -> str | None:
        """Describe neighbouring data sets where the relation's own words do not."""
        return None

    def _public_inputs(self, public: PublicValues) -> tuple[str, ...]:
        """Name what every guarantee treats as public."""
        inputs = ["the list of classes", "the encoder", "the number of features", FORM_OF_FILES, "all parameters"]
        if self._uses_public_rows(public):
            inputs.append("the public rows")
        if public.examples is not None:
            inputs.append(_EXAMPLES)
        if self.adjacency == "replace-one":
            inputs.append("the number of records")
        return tuple(inputs)

    def _uses_public_rows(self, public: PublicValues) -> bool:
        """Tell whether what is released depends on public rows."""
        return isinstance(self.center, str) or isinstance(self.rotation, str)

    def _not_covered(self) -> tuple[str, ...]:
        missing = list(ALWAYS_UNCOVERED)
        if self.adjacency == "add-remove":
            missing.append(A_CHANGED_RECORD)
        if self.unknown_labels == "error":
            missing.append("whether the fit stopped at a label outside the class list (unknown_labels='error')")
        return tuple(missing)


@contextmanager
def charged(charge: LedgerEntry | None) -> Iterator[None]:
    """Tell whoever meets an error in here, or interrupts it, that its release stays paid for."""
    try:
        yield
    except BaseException as error:
        if charge is not None:
            error.add_note(f"The ledger keeps the charge: {charge.dataset}, release {charge.number}.")
        raise


def as_json(value: Any) -> Any:
    """Shorten a public parameter for the ledger."""
    if isinstance(value, Budget):
        return value.to_dict()
    if isinstance(value, np.ndarray | list | tuple | range) and len(value) > 100:
        return f"{type(value).__name__} of length {len(value)}"
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _mean_direction(public: RowSource) -> NDArray[np.float64]:
    lattice = Lattice(public.shape[1])
    total = np.zeros(lattice.dim)
    for block in iter_blocks(public, _MEAN_ROWS):
        total += lattice.features(block).sum(axis=0, dtype=np.float64)
    return np.asarray(total / max(public.shape[0], 1))
