"""Choose hyper-parameters on private records, within the budget."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from dppl import _validate
from dppl._metadata import encoder_of
from dppl._progress import shown_by
from dppl.errors import BudgetError, ParameterError, WeakBudgetWarning
from dppl.estimators.base import EmbeddingClassifier, as_json, charged
from dppl.estimators.public_data import refuse_private
from dppl.estimators.released import Shares
from dppl.estimators.reported import Reported
from dppl.kernel import persons, reading
from dppl.kernel.lattice import RowSource, iter_blocks, take_rows
from dppl.kernel.lattice.threads import one_thread_each
from dppl.kernel.mechanisms import Randomness, RoundedGaussian, randomness
from dppl.kernel.privacy import ZCDP, ApproxDP, Guarantee, Release
from dppl.kernel.privacy.accounting import rho_per_run_within
from dppl.kernel.privacy.guarantee import TUNED_ELSEWHERE
from dppl.kernel.reading import Codes, Unusable

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger, LedgerEntry

Scoring: TypeAlias = Literal["accuracy", "balanced"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)
_FIXED = ("budget", "classes", "adjacency", "unknown_labels", "random_state")
_ROWS = 4096


class PrivateSearch(Reported, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Fit the best of several candidates, found by a private score on held-out records.

    Each record goes by the toss of a coin into a training or a validation part. A run draws a candidate at random, fits
    it on the one and scores it on the other with Gaussian noise. The number of runs is random and must stay
    secret; the model of the best score is released with that score, and nothing else.

    Parameters
    ----------
    estimator : EmbeddingClassifier
        What to fit, with the public class list and an ApproxDP budget for the *whole* search.
    parameters : dict of str to list, or list of such dicts
        Candidates, as in scikit-learn's `ParameterGrid`. Chosen without looking at private data.
    mean_runs : int, default=10
        Mean of the geometric number of runs, at least 2. More runs cost little in budget, and time.
    validation_share : float, default=0.2
        Probability that a record is held out. The model never learns from these.
    scoring : {"accuracy", "balanced"}, default="accuracy"
        Number of held-out records that are classified rightly, or the mean over classes of the share of such.
    random_state : int, default=None
        None draws from the operating system. An integer repeats a search, and the guarantee then says that the model
        must not be released.

    Attributes
    ----------
    best_estimator_ : EmbeddingClassifier
        The released model.
    best_params_ : dict
        Its candidate. Safe to publish.
    best_score_ : float
        Its noisy score: a number of records for ``"accuracy"``, a share for ``"balanced"``. Safe to publish.
    guarantee_ : Guarantee
        What the whole search promises.
    classes_ : ndarray of shape (n_classes,)

    Notes
    -----
    **Privacy.** Unit: one record. Relation: that of the estimator. Released: `best_estimator_`, `best_params_` and
    `best_score_`. Sensitivity: in L2, 1 of the number of right answers; the square root of 2 (2 under replace-one) of
    the numbers of right answers and of records in each class; that of the fits is the estimator's own. A record is in
    one part only, so a run costs what the dearer of fit and score does, and both get the same rho. Public inputs: those
    of the estimator, `parameters` and all other parameters. Not covered: the running time, which tells the number of
    runs, and with it the times of all files that are written after the search: that of the model, and that of the
    ledger, in which the charge is marked as released. Who knows the number sees a release that costs as much as all
    runs together. So show such times to nobody: publish a copy of the model that was made later.

    References
    ----------
    .. [1] Papernot, Steinke (2022), Hyperparameter tuning with Renyi differential privacy, arXiv:2110.03620v2.

    Examples
    --------
    >>> from dppl import ApproxDP, MeanPrototypes, PrivateSearch
    >>> from dppl.data import load_sample
    >>> sample = load_sample()
    >>> estimator = MeanPrototypes(ApproxDP(1, 1e-6), classes=sample.classes)
    >>> search = PrivateSearch(estimator, {"pool": [1, 2, 4]}, mean_runs=3)
    >>> search = search.fit(sample.X, sample.y)
    >>> search.best_params_["pool"] in (1, 2, 4)
    True
    """

    best_estimator_: EmbeddingClassifier
    best_params_: dict[str, Any]
    best_score_: float
    guarantee_: Guarantee
    classes_: NDArray[Any]

    def __init__(
        self,
        estimator: EmbeddingClassifier,
        parameters: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        *,
        mean_runs: int = 10,
        validation_share: float = 0.2,
        scoring: Scoring = "accuracy",
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.parameters = parameters
        self.mean_runs = mean_runs
        self.validation_share = validation_share
        self.scoring = scoring
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, *, groups: Any = None, ledger: Ledger | None = None, partition: str | None = None
    ) -> Self:
        """Search on (`X`, `y`).

        Parameters
        ----------
        X, y, groups, ledger, partition
            As in the estimator's own `fit`. With `groups` a person counts in one class and is in one part of the data,
            and scores count persons. The ledger needs an account in approximate DP with ``accounting="renyi"``.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, BudgetError
            If a parameter breaks its rule, or the budget is too small for a search.
        BudgetExceeded
            If the ledger does not cover the search. Nothing was drawn then.
        InputError, UnknownLabelError
            As the estimator's own `fit`.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # a search that fails must not leave the model of an earlier one
        budget, candidates = self._checked()
        if budget.is_weak:
            warnings.warn(budget.weakness, WeakBudgetWarning, stacklevel=2)
        source = randomness(self.random_state)
        rho = rho_per_run_within(budget.epsilon, budget.delta, int(self.mean_runs))
        scores = RoundedGaussian.within(ZCDP(rho), self._squared_sensitivity())
        # A candidate whose parameters do not fit each other, the width or the public rows shows before it is paid for.
        refuse_private(self.estimator._public, X, y)
        rows, labels = reading.checked_inputs(X, y)
        ids = None if groups is None else persons.checked_ids(groups, rows)
        classes = reading.public_classes(self.estimator.classes)
        models = [self._candidate(candidate, rho, source) for candidate in candidates]
        with one_thread_each:
            # With ids, a person is reduced to a record of one class before anything else.
            most = None if groups is None else 1
            plans = [model.set_params(max_classes_per_person=most)._plan(rows.shape[1]) for model in models]
        inner = [plan.guarantee_on(X, groups) for plan in plans]
        guarantee = self._guarantee(inner, budget, rho, scores, source)
        charge = self._charge(guarantee, ledger, partition, candidates)
        # The number of runs is secret, so nobody is told when one of them ends.
        with one_thread_each, charged(charge), shown_by(None):
            # From here on private rows are read.
            unknown, adjacency = self.estimator.unknown_labels, self.estimator.adjacency
            codes = reading.codes_of_records(rows, labels, classes, unknown, adjacency)
            if ids is not None:
                rows, codes = persons.rows_of_persons(rows, codes, persons.person_codes(ids), len(classes))
                labels = classes[codes]
            held_out = _coins(len(labels), self.validation_share, source)
            training = np.flatnonzero(~held_out)
            train_rows, train_labels = take_rows(rows, training), labels[training]
            test_rows, test_codes = take_rows(rows, np.flatnonzero(held_out)), codes[held_out]

            def run() -> tuple[float, bytes, EmbeddingClassifier, dict[str, Any]]:
                number = source.below(len(candidates))
                candidate = candidates[number]
                model = self._candidate(candidate, rho, source)
                model._fit(train_rows, train_labels, None, None, None, plan=plans[number])
                model.encoder_ = encoder_of(X)
                score = self._score(model, test_rows, test_codes, scores, source)
                # The theorem wants a total order on results, so equal scores are told apart by the models' bytes.
                return score, model.to_bytes(), model, candidate

            best = run()
            while source.below(int(self.mean_runs)):  # stops with probability 1/mean_runs: a geometric number of runs
                best = max(best, run(), key=lambda result: result[:2])
        self.classes_ = classes
        self.best_score_, _, self.best_estimator_, self.best_params_ = best
        if charge is not None:
            guarantee = replace(guarantee, ledger_entry=f"{charge.dataset}, release {charge.number}")
        self.guarantee_ = self.best_estimator_.guarantee_ = guarantee
        self.best_estimator_.budget = budget
        if ledger is not None and charge is not None:
            model_hash = sha256(self.best_estimator_.to_bytes()).hexdigest()
            # The content of the ledger tells no time of this; that of its file does, and stands in `not_covered`.
            ledger.finish(charge, model_sha256=model_hash, tell_time=False)
        return self

    def predict(self, X: Any, *, unusable: Unusable = "error") -> NDArray[Any]:
        """Return the class of each row by the released model.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)
        unusable : {"error", "empty"}, default="error"
            As in `EmbeddingClassifier.predict`.
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X, unusable=unusable)

    def predict_proba(self, X: Any, *, shares: Shares = "equal", unusable: Unusable = "error") -> NDArray[np.float64]:
        """Return the probability of each class for each row by the released model.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)
        shares : {"equal", "data"} or array-like of shape (n_classes,), default="equal"
            As in `EmbeddingClassifier.predict_proba`.
        unusable : {"error", "empty"}, default="error"
            As in `EmbeddingClassifier.predict`.
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X, shares=shares, unusable=unusable)

    def decision_function(self, X: Any, *, unusable: Unusable = "error") -> NDArray[np.float64]:
        """Return the score of each class for each row by the released model.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)
        unusable : {"error", "empty"}, default="error"
            As in `EmbeddingClassifier.predict`.
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.decision_function(X, unusable=unusable)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the released model, with the guarantee of the search; see `EmbeddingClassifier.save`.

        Parameters
        ----------
        path : path
        overwrite : bool, default=False
            Whether an existing file may be replaced.
        """
        check_is_fitted(self, "best_estimator_")
        self.best_estimator_.save(path, overwrite=overwrite)

    def _checked(self) -> tuple[ApproxDP, list[dict[str, Any]]]:
        if not isinstance(self.estimator, EmbeddingClassifier):
            raise ParameterError(
                f"estimator must be a dppl classifier of embeddings; got {type(self.estimator).__name__}."
            )
        if self.estimator.max_classes_per_person not in (None, 1) or self.estimator.strict:
            raise ParameterError(
                "estimator must count a person in one class and leave unusable records out; set max_classes_per_person "
                "to None and strict to False."
            )
        budget = self.estimator.resolved_budget
        if not isinstance(budget, ApproxDP):
            raise BudgetError(
                f"a search is accounted in Rényi divergences, which end in approximate DP; got {budget!r}. Give the "
                "estimator ApproxDP(epsilon, delta), for the whole search."
            )
        from sklearn.model_selection import ParameterGrid  # here, because loading a model needs none of it

        candidates = list(ParameterGrid(self.parameters))
        if not candidates:
            raise ParameterError("parameters must name at least one candidate; got none.")
        known = self.estimator.get_params(deep=False)
        for name in {name for candidate in candidates for name in candidate}:
            if name not in known or name in _FIXED:
                raise ParameterError(
                    f"parameters may name parameters of {type(self.estimator).__name__} but {', '.join(_FIXED)}; got "
                    f"{name!r}."
                )
        _validate.open_unit(validation_share=self.validation_share)
        _validate.one_of(SCORINGS, scoring=self.scoring)
        return budget, candidates

    def _candidate(self, parameters: Mapping[str, Any], rho: float, source: Randomness) -> EmbeddingClassifier:
        """Return an unfitted candidate that may spend what one run may."""
        seed = None if source.fit_for_release else source.bits(31)
        candidate: EmbeddingClassifier = clone(self.estimator)
        candidate.set_params(budget=ZCDP(rho), random_state=seed, **parameters)
        candidate.check_parameters()
        return candidate

    def _squared_sensitivity(self) -> Fraction:
        if self.scoring == "accuracy":
            return Fraction(1)
        # A record counts in its class, and perhaps among the right ones; a replaced one may do so in two classes.
        return Fraction(4 if self.estimator.adjacency == "replace-one" else 2)

    def _score(
        self, model: EmbeddingClassifier, rows: RowSource, codes: Codes, mechanism: RoundedGaussian, source: Randomness
    ) -> float:
        exact = _counts(model, rows, codes)
        if self.scoring == "accuracy":
            return float(mechanism.release(exact[0].sum(keepdims=True), source)[0])
        right, size = mechanism.release(exact, source)
        # Where hardly any records are, noise would decide; a class of less than its noise counts as that large.
        return float(np.clip(right / np.maximum(size, max(1.0, mechanism.noise_std)), 0.0, 1.0).mean())

    def _guarantee(
        self, inner: list[Guarantee], budget: ApproxDP, rho: float, scores: RoundedGaussian, source: Randomness
    ) -> Guarantee:
        release = Release(
            mechanism="repeat-and-select mechanism (a geometric number of runs)",
            statistic=f"best of {len(inner)} candidates of {type(self.estimator).__name__} in held-out {self.scoring}",
            sensitivity=float(scores.squared_sensitivity) ** 0.5,
            norm="L2",
            parameters={
                "noise_std_of_score": scores.noise_std,
                "validation_share": _heads(self.validation_share) / 256,
            },
            cost={"rho_per_run": rho, "mean_runs": float(self.mean_runs)},
        )
        uncovered = [text for text in _union(g.not_covered for g in inner) if text != TUNED_ELSEWHERE]
        return Guarantee(
            budget=budget,
            adjacency=self.estimator.adjacency,
            neighbours=inner[0].neighbours,
            unit=inner[0].unit,
            releases=(release,),
            public_inputs=(*_union(g.public_inputs for g in inner), "the candidates of the search"),
            not_covered=(
                "choices by private data other than this search",
                "the number of runs of the search, which its running time tells, and so do the times of files written "
                "after it (the model, the ledger)",
                *uncovered,
            ),
            fit_for_release=source.fit_for_release,
            exact=all(g.exact for g in inner),
        )

    def _charge(
        self, guarantee: Guarantee, ledger: Ledger | None, partition: str | None, candidates: list[dict[str, Any]]
    ) -> LedgerEntry | None:
        if ledger is None:
            if partition is not None:
                raise ParameterError("partition names a part of a ledger's data set; pass ledger as well.")
            return None
        fixed = {name: value for name, value in self.estimator.get_params(deep=False).items() if name not in _FIXED}
        parameters = {
            "estimator": {name: as_json(value) for name, value in fixed.items()},
            "candidates": [{name: as_json(value) for name, value in one.items()} for one in candidates],
            "mean_runs": int(self.mean_runs),
            "scoring": self.scoring,
            "validation_share": _heads(self.validation_share) / 256,
        }
        name = f"{type(self).__name__}({type(self.estimator).__name__})"
        return ledger.charge(guarantee, estimator=name, parameters=parameters, partition=partition)


def _coins(n: int, share: float, source: Randomness) -> NDArray[np.bool_]:
    """Toss one coin a record, whatever the record is."""
    return np.frombuffer(source.bits(8 * n).to_bytes(n, "little"), np.uint8) < _heads(share)


def _heads(share: float) -> int:
    """Return how many of 256 sides of the coin hold a record out."""
    return max(1, min(255, round(256 * share)))


def _counts(model: EmbeddingClassifier, rows: RowSource, codes: Codes) -> NDArray[np.int64]:
    """Return, for each class, the number of records that the model gets right and the number of records.

    Rows are classified one by one: in a matrix product a record could move its neighbours by a rounding step, across a
    decision boundary.
    """
    parts = [model.lattice_.features(block) for block in iter_blocks(rows, _ROWS)]
    guesses = [int(model._class_scores(row[None])[0].argmax()) for features in parts for row in features]
    known = codes >= 0
    right = known & (np.array(guesses, np.intp) == codes)
    return np.stack([np.bincount(codes[chosen], minlength=len(model.classes_)) for chosen in (right, known)])


def _union(lists: Any) -> list[str]:
    return list(dict.fromkeys(text for texts in lists for text in texts))
