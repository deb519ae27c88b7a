"""Choose hyper-parameters on private records, within the budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import wraps
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from dppl._utils.progress import hidden
from dppl._utils.types import Array
from dppl.errors import BudgetError, ParameterError
from dppl.kernel import reading
from dppl.kernel.lattice.stream import one_thread_each
from dppl.kernel.measure import Calibrated, Measure, Measurement, calibrated
from dppl.kernel.privacy import ZCDP, ApproxDP, Guarantee, Release
from dppl.kernel.privacy.accounting import rho_per_run_within
from dppl.kernel.privacy.budgets import check_strength, checked_budget
from dppl.kernel.privacy.guarantee import Adjacency
from dppl.kernel.privacy.terms import (
    Caveat,
    Mechanism,
    Norm,
    PublicInput,
    Statistic,
    Term,
)
from dppl.kernel.queries.search import RightAnswers, best_of, probability
from dppl.kernel.records import private_data
from dppl.methods.base import (
    EmbeddingClassifier,
    as_json,
    charge,
    charged,
    forget,
    public_facts,
)
from dppl.methods.parameters import Share, check_values, parameters, with_options
from dppl.methods.released import PaidBy, Reported

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger

Scoring: TypeAlias = Literal["accuracy", "balanced"]
_FIXED = (
    "budget",
    "classes",
    "adjacency",
    "unknown_labels",
    "max_classes_per_person",
    "random_state",
)


def _of_best(name: str) -> Callable[..., Any]:
    """Return the method of that name of the released model."""
    method: Callable[..., Any] = getattr(EmbeddingClassifier, name)

    @wraps(method)
    def of_best(self: PrivateSearch, *given: Any, **options: Any) -> Any:
        check_is_fitted(self, "best_estimator_")
        return method(self.best_estimator_, *given, **options)

    return of_best


@parameters
class PrivateSearch(Reported, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Fit the best of several candidates by a private score on held-out records.

    Each record goes by the toss of a coin into a training or a validation part. A run
    draws a candidate at random, fits it on the one and scores it on the other with
    Gaussian noise. The number of runs is random and must stay secret; the model of the
    best score is released with that score, and nothing else.

    Parameters
    ----------
    estimator : EmbeddingClassifier
        What to fit, with the public class list and an ApproxDP budget for the *whole*
        search.
    parameters : dict of str to list, or list of such dicts
        Candidates, as in scikit-learn's `ParameterGrid`. Chosen without looking at
        private data.
    mean_runs : int, default=10
        Mean of the geometric number of runs, at least 2. More runs cost little in
        budget, and time.
    validation_share : float, default=0.2
        Probability that a record is held out. The model never learns from these.
    scoring : {"accuracy", "balanced"}, default="accuracy"
        Number of held-out records that are classified rightly, or the mean over classes
        of the share of such.

    Attributes
    ----------
    best_estimator_ : EmbeddingClassifier
        The released model.
    best_params_ : dict
        Its candidate. Safe to publish.
    best_score_ : float
        Its noisy score: a number of records for ``"accuracy"``, a share for
        ``"balanced"``. Safe to publish.
    guarantee_ : Guarantee
        What the whole search promises.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: the estimator's. Released:
    `best_estimator_`, `best_params_` and `best_score_`. Sensitivity: in L2, 1 of the
    number of right answers; the square root of 2 (2 under replace-one) of the numbers
    of right answers and of records in each class; for the fits it is the estimator's. A
    record is in one part only, so a run costs what the dearer of fit and score does,
    and both get the same rho. Public inputs: as for the estimator, `parameters` and all
    other parameters. Not covered: the running time, which tells the number of runs, and
    with it the times of all files that are written after the search: of the model, and
    of the ledger, in which the charge is marked as released. Who knows the number sees
    a release that costs as much as all runs together. So show such times to nobody:
    publish a copy of the model that was made later.

    The exponential mechanism (`dppl.evaluation.choose`) cannot score the runs: [1]_
    needs a noisy score from each run, by which all runs are ordered, and the mechanism
    scores none.

    References
    ----------
    .. [1] Papernot, Steinke (2022), Hyperparameter tuning with Renyi differential
    privacy, arXiv:2110.03620v2.

    Examples
    --------
    >>> from dppl import ApproxDP, MeanPrototypes, PrivateSearch
    >>> from dppl.io import load_sample
    >>> sample = load_sample()
    >>> estimator = MeanPrototypes(ApproxDP(1, 1e-6), classes=sample.classes)
    >>> search = PrivateSearch(estimator, {"lattice__pool": [1, 2, 4]}, mean_runs=3)
    >>> search = search.fit(sample.X, sample.y)
    >>> search.best_params_["lattice__pool"] in (1, 2, 4)
    True
    """

    best_estimator_: EmbeddingClassifier = field(init=False)
    best_params_: dict[str, Any] = field(init=False)
    best_score_: float = field(init=False)
    guarantee_: Guarantee = field(init=False)
    classes_: Array = field(init=False)

    estimator: EmbeddingClassifier = field(kw_only=False)
    parameters: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] = (
        field(kw_only=False)
    )
    mean_runs: int = 10
    validation_share: Share = 0.2
    scoring: Scoring = "accuracy"
    random_state: int | None = None

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        ledger: Ledger | None = None,
        partition: str | None = None,
    ) -> Self:
        """Search on (`X`, `y`).

        Parameters
        ----------
        X, y, groups, ledger, partition
            As in the estimator's own `fit`, which also says what is raised. With
            `groups` a person counts in one class and is in one part of the data, and
            scores count persons. The ledger needs an account in approximate DP with
            ``accounting="renyi"``.
        """
        forget(self)
        budget, candidates = self._checked()
        check_strength(budget, stacklevel=2)
        adjacency = self.estimator.adjacency
        classes = reading.public_classes(self.estimator.classes)
        # A fit and its score read disjoint parts of the records, so each may cost what
        # a run may.
        rho, scoring = self._run(budget, adjacency, len(classes))
        with one_thread_each:
            # A candidate whose parameters do not fit each other, the width or the
            # public rows shows before it is paid.
            private = private_data(X, y, groups)
            models = []
            plans = []
            for candidate in candidates:
                model: EmbeddingClassifier = clone(self.estimator)
                model.set_params(
                    budget=ZCDP(rho), random_state=self.random_state, **candidate
                )
                model.check_parameters()
                models.append(model)
                # A search reduces a person to one row of one class, whatever the
                # estimator does by itself.
                plan = model._plan(private.n_features, private=(X, y))
                if plan.setting.start is not None:
                    raise ParameterError(
                        "is not for a search: it has no mu to add to that of a start. Leave it out, or fit without one.",
                        parameter="start",
                    )
                plans.append(replace(plan, whole_persons=False))
            for model, plan in zip(models, plans, strict=True):
                model.most_bytes(plan, X, groups)  # or no file would hold the best
            promises = [plan.guarantee_on(X, groups) for plan in plans]
            private.check(needs_rows=True, strict=False, classes=classes)
            facts = public_facts(X)
            guarantee = self._guarantee(promises, budget, rho, scoring)
            given = self.estimator.get_params(deep=False)
            recorded = {
                "estimator": {name: given[name] for name in given.keys() - set(_FIXED)},
                "candidates": [as_json(one) for one in candidates],
                "mean_runs": int(self.mean_runs),
                "scoring": self.scoring,
                "validation_share": probability(self.validation_share),
            }
            name = f"{type(self).__name__}({type(self.estimator).__name__})"
            charged_guarantee, entry = charge(
                ledger, partition, guarantee, name, recorded
            )

            def learn(number: int, measure: Measure) -> EmbeddingClassifier:
                fitted: EmbeddingClassifier = clone(models[number])
                fitted._settle(plans[number], facts, guarantee)
                fitted.learn(measure, plans[number].setting)
                fitted._complete(plans[number].setting)
                return fitted

            # The number of runs is secret, so nobody sees when one of them ends.
            with charged(entry), hidden(), np.errstate(all="ignore"):
                records: Any = private.records(
                    classes,
                    unknown_labels=self.estimator.unknown_labels,
                    adjacency=adjacency,
                )
                score, best, number = best_of(
                    records,
                    [plan.measurements for plan in plans],
                    learn,
                    scoring,
                    mean_runs=int(self.mean_runs),
                    validation_share=self.validation_share,
                    random_state=self.random_state,
                )
        self.classes_ = classes
        self.best_score_ = score
        self.best_estimator_ = best
        self.best_params_ = candidates[number]
        self.guarantee_ = best.guarantee_ = charged_guarantee
        best.budget = budget
        if ledger is not None and entry is not None:
            # The content of the ledger reveals no time of this; the time of its file
            # does, and is in `not_covered`.
            ledger.finish(
                entry, model_sha256=sha256(self.to_bytes()).hexdigest(), tell_time=False
            )
            self._paid_by = best._paid_by = PaidBy(ledger, entry)
        return self

    predict = _of_best("predict")
    predict_proba = _of_best("predict_proba")
    predict_log_proba = _of_best("predict_log_proba")
    decision_function = _of_best("decision_function")
    to_bytes = _of_best("to_bytes")

    def _checked(self) -> tuple[ApproxDP, list[dict[str, Any]]]:
        if not isinstance(self.estimator, EmbeddingClassifier):
            got = type(self.estimator).__name__
            raise ParameterError(
                f"estimator must be a dppl classifier of embeddings; got {got}."
            )
        if self.estimator.multilabel:
            raise ParameterError(
                "estimator must be of one label a record; a search scores no sets of labels."
            )
        if (
            self.estimator.max_classes_per_person not in (None, 1)
            or self.estimator.unknown_labels == "strict"
        ):
            raise ParameterError(
                "estimator must count a person in one class and skip unusable records; set max_classes_per_person "
                "to None and unknown_labels to 'error' or 'ignore'."
            )
        budget = checked_budget(self.estimator.budget)
        if not isinstance(budget, ApproxDP):
            what = f"a search is accounted in Rényi divergences, which end in approximate DP; got {budget!r}"
            raise BudgetError(
                f"{what}. Give the estimator ApproxDP(epsilon, delta), for the whole search."
            )
        from sklearn.model_selection import (
            ParameterGrid,
        )  # here, because loading a model needs none of it

        candidates = list(ParameterGrid(self.parameters))
        if not candidates:
            raise ParameterError(
                "parameters must name at least one candidate; got none."
            )
        known = with_options(self.estimator._get_param_names())
        for name in set().union(*candidates):
            if name not in known or name in _FIXED:
                what = f"parameters may name parameters of {type(self.estimator).__name__} but {', '.join(_FIXED)}"
                raise ParameterError(f"{what}; got {name!r}.")
        check_values(self)
        return budget, candidates

    def _run(
        self, budget: ApproxDP, adjacency: Adjacency, n_classes: int
    ) -> tuple[float, Calibrated]:
        """Return what a run may cost, and its score."""
        rho = rho_per_run_within(budget.epsilon, budget.delta, int(self.mean_runs))
        answers = RightAnswers(n_classes, by_class=self.scoring == "balanced")
        return rho, calibrated(ZCDP(rho), {"score": Measurement(answers)}, adjacency)[
            "score"
        ]

    def _guarantee(
        self, inner: list[Guarantee], budget: ApproxDP, rho: float, scoring: Calibrated
    ) -> Guarantee:
        share = probability(self.validation_share)
        noise = scoring.mechanism
        release = Release(
            mechanism=Term(Mechanism.REPEAT_AND_SELECT),
            statistic=Term(
                Statistic.BEST_CANDIDATE,
                n_candidates=len(inner),
                estimator=type(self.estimator).__name__,
                scoring=self.scoring,
            ),
            sensitivity=float(noise.squared_sensitivity) ** 0.5,
            norm=Norm.L2,
            parameters={
                "noise_std_of_score": noise.noise_std,
                "validation_share": share,
            },
            cost={"rho_per_run": rho, "mean_runs": float(self.mean_runs)},
        )
        # Any candidate may be released, so the promise is what all of them make.
        public: dict[Term[PublicInput], None] = {}
        uncovered: dict[Term[Caveat], None] = {}
        for one in inner:
            public |= dict.fromkeys(one.public_inputs)
            uncovered |= dict.fromkeys(one.not_covered)
        # What the search accounts for is tuned here.
        uncovered.pop(Term(Caveat.TUNED_ELSEWHERE), None)
        return replace(
            inner[0],
            budget=budget,
            releases=(release,),
            public_inputs=(*public, Term(PublicInput.CANDIDATES)),
            not_covered=(
                Term(Caveat.CHOICES_BEYOND_SEARCH),
                Term(Caveat.NUMBER_OF_RUNS),
                *uncovered,
            ),
            exact=all(one.exact for one in inner),
        )


def promised_again(
    stated: Mapping[str, Any], best: EmbeddingClassifier, n_features: int, groups: Any
) -> Guarantee:
    """Return what the search promises whose release a statement holds, and that released a model like `best`."""
    budget = checked_budget(best.budget)
    best_of = Term.from_dict(Statistic, stated["statistic"])
    if not isinstance(budget, ApproxDP) or best_of.code is not Statistic.BEST_CANDIDATE:
        raise ParameterError(
            "the statement is of a search, and has none of its budgets or candidates."
        )
    share = stated["parameters"]["validation_share"]
    runs = int(stated["cost"]["mean_runs"])
    scoring: Any = best_of["scoring"]
    search = PrivateSearch(
        best, {}, mean_runs=runs, validation_share=share, scoring=scoring
    )
    rho, score = search._run(
        budget, best.adjacency, len(reading.public_classes(best.classes))
    )
    plan = replace(
        clone(best).set_params(budget=ZCDP(rho)).plan(n_features), whole_persons=False
    )
    inner = plan.guarantee_on(np.empty((0, n_features)), groups)
    return search._guarantee([inner] * best_of["n_candidates"], budget, rho, score)
