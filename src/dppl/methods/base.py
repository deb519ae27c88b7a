"""What all classifiers share: their parameters and the way a fit runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import field, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from dppl._utils import validate
from dppl._utils.metadata import ENCODER, columns_of, stated
from dppl._utils.types import Float, Float32
from dppl.errors import Argument, BudgetError, ParameterError
from dppl.kernel import reading
from dppl.kernel.checking import refuse_unusable
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.kernel.lattice.stream import one_thread_each
from dppl.kernel.measure import (
    Calibrated,
    Measure,
    Measurement,
    calibrated,
    check_declared,
    rows_of_a_person,
    secure_noise,
)
from dppl.kernel.privacy import Budget, Guarantee
from dppl.kernel.privacy.budgets import check_strength, checked_budget
from dppl.kernel.privacy.guarantee import ADJACENCIES, ALWAYS_UNCOVERED, Charge
from dppl.kernel.privacy.terms import Caveat, Neighbours, PublicInput, Term, own_words
from dppl.kernel.queries import WITHIN_CLASS
from dppl.kernel.reading import UnknownLabels
from dppl.kernel.records import private_data
from dppl.methods import model_file
from dppl.methods.as_scikit import names_of_features
from dppl.methods.fit_plan import Plan, Setting, Task
from dppl.methods.parameters import (
    GROUPS,
    PUBLIC,
    ROTATION,
    LatticeOptions,
    check_values,
    parameters,
    with_options,
)
from dppl.methods.public_data import PublicData, PublicValues
from dppl.methods.released import PaidBy, ReleasedClassifier
from dppl.methods.start import Start, added_up

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger, LedgerEntry

_MEAN_ROWS = 4096
_PUBLIC_INPUTS = (
    Term(PublicInput.CLASSES),
    Term(PublicInput.ENCODER),
    Term(PublicInput.N_FEATURES),
    Term(PublicInput.FORM_OF_FILES),
    Term(PublicInput.PARAMETERS),
)


@parameters
class EmbeddingClassifier(ReleasedClassifier):
    """A classifier that is released from private records by a mechanism.

    Subclasses say what is released and how it scores rows. A fit runs in one direction:
    the plan, from parameters; the charge; then private rows, which enter a mechanism
    and nothing else.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
        What the whole fit may spend.
    public : PublicData, default=None
        Public rows, and public examples of the classes, by the encoder of the private
        records.
    unknown_labels : {"error", "ignore", "strict"}, default="error"
        What to do with a label outside `classes`: stop without showing it, or skip the
        record silently. ``"strict"`` stops also if a row cannot be used; `check` does
        so before anything is charged. That it did not stop is one bit about the
        records, which the guarantee names as not covered. Not with a table in parts.

    Attributes
    ----------
    lattice_ : Lattice
        The public map from embeddings to integer rows.
    n_features_in_ : int
        Width of the embeddings.
    encoder_ : str or None
        The encoder that the table of embeddings names, if it does.
    """

    budget: Budget = field(default=None, kw_only=False)  # type: ignore[assignment]  # None is refused
    classes: ArrayLike | None = field(default=None, kw_only=False)
    public: PublicData | None = None
    unknown_labels: UnknownLabels | Literal["strict"] = "error"
    random_state: int | None = None

    # Whether it takes public examples of the classes.
    starts_from_examples: ClassVar[bool] = False
    # What public rows are to it, besides what `lattice` reads off them.
    public_rows: ClassVar[Literal["unused", "optional", "required"]] = "unused"
    # Whether replace-one keeps the class of a record, and so the number of records in
    # each class.
    replaces_within_classes: ClassVar[bool] = False
    # Whether persons enter it with all of their records, of any number of classes, at
    # the cost of one record. All its queries must then allow it.
    whole_persons: ClassVar[bool] = False
    # Whether a record may have several labels, or none.
    multilabel: ClassVar[bool] = False
    # What else the guarantee does not cover: terms, or the words of an own method.
    not_covered: ClassVar[tuple[Term[Caveat] | str, ...]] = ()

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        ledger: Ledger | None = None,
        partition: str | None = None,
    ) -> Self:
        """Release a classifier of the classes of (`X`, `y`).

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n_records, n_features)
            Private embeddings, one row a record. Rows of NaN, infinity or only zeros
            are skipped silently; under replace-one they are rows of zeros, which count
            as records. A table in parts (`dppl.io.read_parts`) is for methods that read
            records through sums alone.
        y : array-like of shape (n_records,), default=None
            Private labels. None is for a table in parts, which holds its own.
        groups : array-like of shape (n_records,), default=None
            Private ids of the persons whose records these are. With them the guarantee
            is for a person with all of their records (docs/persons.md). Ids are matched
            as labels are; a missing one is a separate person.
        ledger : Ledger, default=None
            Account of the data set, charged before any private value is read; if the
            fit stops then, the charge stays.
        partition : str, default=None
            Name of the part of the data set that (`X`, `y`) is, see `Ledger.charge`.

        Raises
        ------
        ParameterError, BudgetError, BudgetExceeded
            If a parameter breaks its rule, or budget or ledger do not allow the
            release. Nothing was drawn then.
        InputError, UnknownLabelError, EngineError
            If the arrays do not match, a label lies outside `classes`, a row cannot be
            used in a strict fit, or work that an engine spread did not end. The ledger
            keeps the charge.
        """
        return self._fit(X, y, groups, ledger, partition)

    def check(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Stop unless all of these private records can be used; nothing is charged, drawn or fitted.

        It reads private values, which a fit does only when it has paid. That it did not
        stop is one bit about them: fit with ``unknown_labels="strict"`` then, so that
        the guarantee names it.

        Parameters
        ----------
        X, y, groups
            As for `fit`.

        Raises
        ------
        InputError
            If a row, a label or an id cannot be used, or there are no records; the
            message is the same for all.
        """
        self.check_parameters()
        classes = reading.public_classes(self.classes, in_order=self.multilabel)
        private = private_data(
            X,
            y,
            groups,
            max_classes=self.max_classes_per_person,
            several=self.several,
        )
        private.check(needs_rows=True, strict=True, classes=classes)
        with one_thread_each, np.errstate(all="ignore"):
            refuse_unusable(private, classes)
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        groups: Any,
        ledger: Ledger | None,
        partition: str | None,
        task: Task | None = None,
        state: Any = None,
    ) -> Self:
        """Plan, pay, read, learn: in this order. A fit that fails leaves an unfitted model behind.

        `state` is what a stream keeps of its records between tasks, and private.
        """
        forget(self)
        try:
            self.check_parameters()
            check_strength(self.budget, stacklevel=3)
            # Numbers that leave the range of floats belong to single rows, and must
            # neither warn nor stop the others.
            with one_thread_each, np.errstate(all="ignore"):
                # Plan: shapes, kinds, parameters and public values alone decide what is
                # released, and what it costs.
                if groups is not None and self.multilabel and not self.whole_persons:
                    raise ParameterError(
                        "is for methods of several labels that take whole persons.",
                        parameter="groups",
                    )
                private = private_data(
                    X,
                    y,
                    groups,
                    max_classes=self.max_classes_per_person,
                    several=self.several,
                )
                plan = self._plan(private.n_features, task, (X, y))
                classes = plan.setting.classes
                task = plan.setting.task
                guarantee = plan.guarantee_on(X, private.ids)
                queries = [one.measurement.query for one in plan.measurements.values()]
                private.check(
                    needs_rows=any(query.needs_rows for query in queries),
                    strict=self.unknown_labels == "strict" and bool(guarantee.releases),
                    classes=classes[task.allowed],
                )
                facts = public_facts(X)
                # Pay, before a private value is read: whoever stops a fit after that
                # has seen something of it. Not the seed: whoever reads the ledger could
                # remove the noise.
                recorded = {
                    name: one
                    for name, one in plan.parameters.items()
                    if name != "random_state"
                }
                if plan.setting.start is not None:
                    recorded["start"] = plan.setting.start.chain[0]["sha256"]
                account = private.account(ledger, partition, plan)
                room = self.most_bytes(plan, X, private.ids)
                if state is not None:
                    state.reserve(queries[0], room)
                guarantee, entry = charge(
                    account, partition, guarantee, type(self).__name__, recorded
                )
                with charged(entry):
                    records = None
                    if queries:
                        records = private.records(
                            classes,
                            unknown_labels=self.unknown_labels,
                            adjacency=self.adjacency,
                            allowed=task.allowed,
                            max_classes=self.max_classes_per_person,
                            whole_persons=self.whole_persons,
                            stream=state,
                            paid=entry,
                        )
                    self._settle(plan, facts, guarantee)
                    with private.measure(
                        plan.measurements, records, task.seed(self.random_state)
                    ) as measure:
                        self.learn(measure, plan.setting)
                    self._complete(plan.setting)
                    if state is not None:
                        state.write(self)
                if entry is not None:
                    self.guarantee_ = entry.completed(self.guarantee_)
                    account.finish(
                        entry, model_sha256=sha256(self.to_bytes()).hexdigest()
                    )
                    self._paid_by = PaidBy(account, entry)
        except BaseException:
            forget(self)
            raise
        return self

    @property
    def several(self) -> MultiLabel | None:
        """How labels are given where a record may have several; None where it has one."""
        if self.multilabel:
            return MultiLabel(self.separator)
        return None

    def _settle(self, plan: Plan, facts: dict[str, Any], guarantee: Guarantee) -> None:
        """Set what a fitted model has before it has learned: public facts, and what the plan says."""
        self.__dict__ |= facts
        self.n_features_in_ = plan.setting.n_features
        self.classes_ = plan.setting.classes
        self.lattice_ = plan.setting.lattice
        self.guarantee_ = guarantee
        examples = plan.setting.public.examples
        self.examples_ = None
        if examples is not None:
            self.examples_ = examples.kept(plan.setting.n_classes)
        # What the model file will say; parameters that are set after the fit have no
        # part in it.
        self._fitted_with = dict(plan.parameters)

    def _complete(self, setting: Setting) -> None:
        """Check and complete what `learn` set."""

    def plan(self, n_features: int) -> Plan:
        """Settle all of a fit that parameters decide: nothing is fitted or charged.

        The `guarantee` of the plan is what a fit on rows of so many features would
        guarantee and cost.
        """
        validate.positive_integer(n_features=n_features)
        self.check_parameters()
        with one_thread_each:
            return self._plan(n_features)

    def _plan(
        self,
        n_features: int,
        task: Task | None = None,
        private: tuple[Any, Any] = (None, None),
    ) -> Plan:
        """Plan a fit from parameters, public values and the width of rows; no public array may be a `private` one."""
        classes = reading.public_classes(self.classes, in_order=self.multilabel)
        public = (self.public or PublicData())._checked(n_features, classes, private)
        if public.examples is not None and not self.starts_from_examples:
            what = f"public.examples is for methods that start from examples; {type(self).__name__} does not."
            raise ParameterError(f"{what} Leave it out, or use SoftmaxPrototypes.")
        task = task or Task(None, np.arange(len(classes)))
        if task.earlier is None:
            lattice = self._lattice(n_features, public.rows)
        else:
            lattice = task.earlier.lattice_
        by_lattice = (self.lattice or LatticeOptions()).reads_public_rows
        if self.public_rows == "unused" and not by_lattice:
            # The statement names public rows, so a method that does not say that it
            # reads them gets none.
            public = replace(public, rows=None)
        start = Start.of(self, classes, n_features, private[0])
        if start is not None and public.examples is not None:
            raise ParameterError(
                "is instead of public examples or descriptions; leave one of them out.",
                parameter="start",
            )
        setting = Setting(
            n_features, classes, lattice, public, task, len(classes), start
        )
        setting = replace(setting, prepared=self.prepare(setting))
        declared = self.measurements(setting)
        if not isinstance(declared, dict) or not all(
            isinstance(one, Measurement) for one in declared.values()
        ):
            raise ParameterError(
                "measurements must return a dictionary of Measurement by name."
            )
        check_declared(
            declared,
            len(classes),
            multilabel=self.multilabel,
            whole_persons=self.whole_persons,
        )
        relation: str = self.adjacency
        if relation == "replace-one" and self.replaces_within_classes:
            relation = WITHIN_CLASS
        n_rows = rows_of_a_person(
            self.max_classes_per_person, len(classes), whole=self.whole_persons
        )
        paid = calibrated(self.budget, declared, relation, n_rows)
        guarantee = self._guarantee(paid, relation, public)
        if start is not None:
            guarantee = added_up(guarantee, start.chain)
        given = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in PUBLIC
        }
        return Plan(deepcopy(given), setting, paid, guarantee, self.whole_persons)

    def _guarantee(
        self, paid: Mapping[str, Calibrated], relation: str, public: PublicValues
    ) -> Guarantee:
        """State what a fit of single records promises, from public values alone."""
        replaces = self.adjacency == "replace-one"
        within = relation == WITHIN_CLASS
        return Guarantee(
            budget=self.budget,
            adjacency=self.adjacency,
            neighbours=(Term(Neighbours.RECORD_REPLACED_IN_CLASS) if within else None),
            releases=tuple(
                one.release for one in paid.values() if one.release is not None
            ),
            public_inputs=(
                *_PUBLIC_INPUTS,
                *[Term(PublicInput.PUBLIC_ROWS)] * (public.rows is not None),
                *[Term(PublicInput.EXAMPLES)] * (public.examples is not None),
                *[Term(PublicInput.N_RECORDS)] * replaces,
                *[Term(PublicInput.CLASS_SIZES)] * within,
            ),
            not_covered=(
                *ALWAYS_UNCOVERED,
                *[Term(Caveat.CHANGED_RECORD)] * (not replaces),
                *[Term(Caveat.UNKNOWN_LABEL_STOP)] * (self.unknown_labels == "error"),
                *[Term(Caveat.CHANGED_LABEL)] * within,
                *(own_words(Caveat, one) for one in self.not_covered),
            ),
            secure_noise=secure_noise(self.random_state),
        )

    def most_bytes(self, plan: Plan, X: Any = None, groups: Any = None) -> int:
        """Return how large the model file of a fit by this plan is at most: a function of public values.

        Parameters
        ----------
        plan : Plan
        X, groups : default=None
            Of which only what `Plan.guarantee_on` reads is read.
        """
        made: Any = copy(self)
        forget(made)
        made._settle(
            plan,
            public_facts(X),
            replace(plan.guarantee_on(X, groups), charges=(Charge("to come", 1),)),
        )
        made._join(plan.setting.task)
        return model_file.most_bytes(made)

    def _join(self, task: Task) -> None:
        """State what all tasks of a stream cost so far."""

    def prepare(self, setting: Setting) -> Any:
        """Compute what both `measurements` and `learn` need of public values; it becomes `setting.prepared`."""

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

    def check_parameters(self) -> None:
        """Check parameters and budget against each other; ParameterError or BudgetError if they break a rule."""
        known = {*self._get_param_names(), *(one.name for one in fields(self))}
        for name in vars(self):
            # A fact of the class, such as its relation of neighbours, which nobody may
            # set.
            if (
                hasattr(type(self), name)
                and name not in known
                and not name.endswith("_")
            ):
                raise ParameterError(
                    f"{type(self).__name__} has no parameter {name}; delete that attribute."
                )
        if checked_budget(self.budget).is_zero and not self.starts_from_examples:
            what = f"{self.budget} lets nothing be released, so {type(self).__name__} has nothing to fit"
            raise BudgetError(
                f"{what}; SoftmaxPrototypes makes a model of public examples alone of it."
            )
        validate.one_of(ADJACENCIES, adjacency=self.adjacency)
        check_values(self)
        for name, kind in (("public", PublicData), ("lattice", LatticeOptions)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                got = type(value).__name__
                raise ParameterError(
                    f"must be a dppl.{kind.__name__}; got {got}.", parameter=name
                )

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as scikit-learn does; ``lattice__pool`` sets an option of `lattice` alone."""
        given = {name: value for name, value in params.items() if "__" not in name}
        for name in params.keys() - given.keys():
            group, _, option = name.partition("__")
            if name not in with_options(self._get_param_names()):
                raise ParameterError(f"{type(self).__name__} has no parameter {name}.")
            # A group is immutable, because copies of an estimator share it.
            before = given.get(group, getattr(self, group)) or GROUPS[group]()
            given[group] = replace(before, **{option: params[name]})
        super().set_params(**given)
        return self

    def _lattice(self, n_features: int, public: RowSource | None) -> Lattice:
        """Return the public map from embeddings to integer rows."""
        options = self.lattice or LatticeOptions()
        center = options.center
        rotation = options.rotation
        if isinstance(center, str):
            validate.one_of(("public",), center=center)
            if public is None:
                raise ParameterError(
                    Argument("center", "public"),
                    " is fitted on public rows; give public=PublicData(rows).",
                )
            plain = Lattice(n_features)
            total = np.zeros(n_features)
            for block in iter_blocks(public, _MEAN_ROWS):
                total += plain.features(block).sum(axis=0, dtype=np.float64)
            center = total / max(public.shape[0], 1)
        if isinstance(rotation, str):
            validate.one_of(("auto",), rotation=rotation)
            plain = Lattice(n_features, center=center, pool=options.pool)
            rotation = None
            if public is not None and plain.loses_much(public):
                rotation = ROTATION
        return Lattice(n_features, center=center, pool=options.pool, rotation=rotation)


@parameters
class Classifier(EmbeddingClassifier):
    """A linear classifier that a new method learns from noisy answers alone.

    ``measurements(setting)`` declares what it will ask of the private records, as a
    dictionary of `dppl.kernel.Measurement`. ``learn(measure, setting)`` asks
    ``measure(name, **released)``, which answers with noise, and sets `coef_` and, if it
    likes, `intercept_`. All else follows from the measurements (docs/own-method.md).

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, dim), float64
        Weights on unit rows, in the order of `classes_`. Safe to publish.
    intercept_ : ndarray of shape (n_classes,), float64
        Added to the scores; zeros unless `learn` sets them. Safe to publish.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    answers to the declared measurements. Sensitivity: the L2 sensitivity of each query
    (`dppl.kernel.queries`), which the method cannot change. Public inputs: `classes`,
    all parameters, `public`, `n_features`, and whatever `measurements` and `learn` take
    from elsewhere. Not covered: a method that reads private values by another way than
    `measure`.
    """

    coef_: Float = field(init=False)
    intercept_: Float = field(init=False)
    _RELEASED = "coef_"

    def _complete(self, setting: Setting) -> None:
        self.intercept_ = getattr(self, "intercept_", np.zeros(setting.n_classes))
        shapes = {
            "coef_": (setting.n_classes, setting.lattice.dim),
            "intercept_": (setting.n_classes,),
        }
        for name, shape in shapes.items():
            learned = np.asarray(getattr(self, name, np.nan), np.float64)
            if learned.shape != shape or not np.isfinite(learned).all():
                got = "numbers that are not finite"
                if learned.shape != shape:
                    got = str(learned.shape)
                raise ParameterError(
                    f"learn must set {name}, finite and of shape {shape}; got {got}."
                )
            setattr(self, name, learned)

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        n_classes = len(self.classes_)
        return {
            "coef": (np.float64, (n_classes, self.lattice_.dim)),
            "intercept": (np.float64, (n_classes,)),
        }

    def _class_scores(self, features: Float32) -> Float:
        return np.asarray(features.astype(np.float64) @ self.coef_.T + self.intercept_)


def forget(estimator: Any) -> None:
    """Drop what an earlier fit left, so that a refit that fails leaves an unfitted model and not a mixture."""
    for name in [
        name
        for name in vars(estimator)
        if name.endswith("_") or name in ("_fitted_with", "_paid_by")
    ]:
        delattr(estimator, name)


def public_facts(X: Any) -> dict[str, Any]:
    """Return what a fitted model says of its table: names of features, as scikit-learn has them, and the encoder."""
    return {
        **names_of_features(X),
        "encoder_": stated(X, ENCODER),
        "columns_": columns_of(X),
    }


def charge(
    ledger: Ledger | None,
    partition: str | None,
    guarantee: Guarantee,
    name: str,
    parameters: dict[str, Any],
) -> tuple[Guarantee, LedgerEntry | None]:
    """Pay for a release; return the guarantee, which notes where, and the entry."""
    if not (ledger is None or hasattr(ledger, "charge")):
        raise ParameterError(
            f"must be a dppl.Ledger; got {type(ledger).__name__}.", parameter="ledger"
        )
    if ledger is None and partition is not None:
        raise ParameterError(
            "partition names a part of a ledger's data set; pass ledger as well."
        )
    if ledger is None or not guarantee.releases:
        return guarantee, None
    entry = ledger.charge(
        guarantee, estimator=name, parameters=as_json(parameters), partition=partition
    )
    return entry.noted(guarantee), entry


@contextmanager
def charged(charge: LedgerEntry | None) -> Iterator[None]:
    """Tell whoever meets an error in here, or interrupts it, that its release stays paid for."""
    try:
        yield
    except BaseException as error:
        if charge is not None:
            error.add_note(f"The ledger keeps the charge: {charge}.")
        raise


def as_json(value: Any) -> Any:
    """Shorten a public parameter for the ledger."""
    if isinstance(value, Budget):
        return value.to_dict()
    if isinstance(value, LatticeOptions | dict):
        named = value if isinstance(value, dict) else vars(value)
        return {name: as_json(one) for name, one in named.items()}
    if isinstance(value, np.ndarray | list | tuple | range) and len(value) > 100:
        return f"{type(value).__name__} of length {len(value)}"
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value
