"""What all classifiers share: inputs, prediction and the way a fit runs."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dppl import _validate
from dppl.errors import InputError, ParameterError, WeakBudgetWarning
from dppl.estimators import records
from dppl.estimators.records import Codes
from dppl.lattice import Lattice, RowSource, TensorRows, iter_blocks
from dppl.mechanisms import Randomness, randomness
from dppl.privacy import Budget, Guarantee
from dppl.privacy.guarantee import ADJACENCIES, ALWAYS_UNCOVERED
from dppl.privacy.ledger import Ledger, LedgerEntry

_PREDICT_ROWS = 8192
_MEAN_ROWS = 4096
# Any fixed number does: the rotation is public.
_AUTO_ROTATION = 0
_SAME = "X_public must be public data; got the private rows themselves."


class EmbeddingClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is released from private records by a mechanism.

    Subclasses say what is released and how it scores rows. A fit runs in one direction: parameters and public inputs
    first, then the guarantee, and only then private rows, which enter a mechanism and nothing else.
    """

    budget: Budget
    classes: ArrayLike | None
    adjacency: str
    pool: int
    center: ArrayLike | str | None
    rotation: int | str | None
    unknown_labels: str
    random_state: int | None

    classes_: NDArray[Any]
    guarantee_: Guarantee
    lattice_: Lattice
    encoder_: str | None
    _fitted_with: dict[str, Any]
    _rows_mix = False
    n_features_in_: int

    # Name of the attribute that holds what was released; a model that has it is fitted.
    _RELEASED: ClassVar[str]

    def fit(
        self, X: Any, y: Any, X_public: Any = None, *, ledger: Ledger | None = None, partition: str | None = None
    ) -> Self:
        """Release a classifier of the classes of (`X`, `y`).

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n_records, n_features)
            Private embeddings, one row a record. Rows with NaN, infinity or only zeros count as zero rows, silently. A
            tensor on a device stays there: softmax gradients are summed on it, all else reads it a block at a time.
        y : array-like of shape (n_records,)
            Private labels.
        X_public : array-like, torch tensor or table of shape (n_public, n_features), default=None
            Public embeddings of the same encoder.
        ledger : Ledger, default=None
            Account of the data set. The release is charged before any private value is read (but labels that have to
            serve as class list); if the fit stops after that, the charge stays.
        partition : str, default=None
            Name of the part of the data set that (`X`, `y`) is, see `Ledger.charge`.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, BudgetError
            If a parameter breaks its rule, or the budget cannot be spent by this mechanism.
        BudgetExceeded
            If the ledger does not cover the release. Nothing was drawn then.
        InputError, UnknownLabelError
            If arrays do not fit together, or a label lies outside `classes`.
        """
        self._check_parameters()
        if self.budget.is_weak:
            warnings.warn(self.budget.weakness, WeakBudgetWarning, stacklevel=2)
        source = randomness(self.random_state)
        self._forget()
        rows, labels, public = self._inputs(X, y, X_public)
        mechanism = self._set_up(labels, public)
        self.guarantee_ = self._guarantee(mechanism, source)
        charge = self._charge(ledger, partition)
        # Numbers that leave the range of floats belong to single rows, and must neither warn nor stop the others.
        with charged(charge), np.errstate(all="ignore"):
            # From here on private rows are read, and only `mechanism` sees them.
            codes = records.class_codes(labels, self.classes_, self.unknown_labels)
            self._release(mechanism, rows, codes, public, source)
        if ledger is not None and charge is not None:
            ledger.finish(charge, model_sha256=sha256(self.to_bytes()).hexdigest())
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of each class for each row.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)
            Rows to classify; they cost nothing.

        Returns
        -------
        ndarray of shape (n, n_classes) or, for two classes, (n,)
            Larger is likelier. For two classes, the second's value minus the first's.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of the largest score for each row.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n,)
            Labels. A row without a direction (NaN, infinity, only zeros) gets the first class.
        """
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on (`X`, `y`). Measured on private records, it is not covered by the guarantee.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)
        y : array-like of shape (n,)
            True labels; a number and its text name the same class.
        sample_weight : array-like of shape (n,), default=None

        Returns
        -------
        float
        """
        scores = self._scores(X)
        truth = records.class_codes(records.as_labels(y, scores), self.classes_, "ignore")
        return float(np.average(scores.argmax(axis=1) == truth, weights=sample_weight))

    def guarantee_for(self, n_features: int, X_public: Any = None) -> Guarantee:
        """Return what a fit would promise and cost, from public things alone: nothing is fitted or charged.

        Parameters
        ----------
        n_features : int
            Width of the embeddings.
        X_public : array-like, torch tensor or table of shape (n_public, n_features), default=None
            Public embeddings that the fit would get.

        Returns
        -------
        Guarantee
            That of `fit` before it reads a record: without what a table of private embeddings says of itself.

        Raises
        ------
        ParameterError, BudgetError, InputError
            As `fit`; also if `classes` is None, because the labels then decide.
        """
        _validate.positive_integer(n_features=n_features)
        trial: Self = clone(self)
        trial._check_parameters()
        if trial.classes is None:
            raise ParameterError("classes must be the public list of classes; got None.")
        source = randomness(trial.random_state)
        _, labels, public = trial._inputs(np.empty((0, n_features)), np.empty(0, np.intp), X_public)
        return trial._guarantee(trial._set_up(labels, public), source)

    def to_bytes(self) -> bytes:
        """Return the content of the model file that `save` writes."""
        from dppl.estimators.model_file import to_bytes  # that module knows all estimators

        check_is_fitted(self, self._RELEASED)
        return to_bytes(self)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the released model to one safetensors file, in one step.

        The file holds what was released, public inputs and the guarantee: nothing private, nothing executable.

        Parameters
        ----------
        path : path
        overwrite : bool, default=False
            Whether an existing file may be replaced.

        Raises
        ------
        FileExistsError
            If the file exists and `overwrite` is False.
        """
        from dppl.estimators.model_file import save  # that module knows all estimators

        check_is_fitted(self, self._RELEASED)
        save(self, path, overwrite=overwrite)

    def _inputs(self, X: Any, y: Any, X_public: Any) -> tuple[RowSource, NDArray[Any], RowSource | None]:
        """Check shapes and kinds, which are public but for the number of rows; return rows, labels and public rows."""
        if X_public is not None and X is X_public:
            raise ParameterError(_SAME)
        rows = records.as_rows(X)
        labels = records.as_labels(y, rows)
        public = None if X_public is None else records.as_rows(X_public, "X_public")
        if public is not None and _same_data(rows, public):
            raise ParameterError(_SAME)
        validate_data(self, X, skip_check_array=True)
        if public is not None and public.shape[1] != self.n_features_in_:
            raise InputError(
                f"X_public must have the {self.n_features_in_} features of X; got {public.shape[1]} features."
            )
        self.encoder_ = records.encoder_of(X)
        records.check_encoder(X_public, self.encoder_, "X_public")
        self._rows_mix = records.depends_on_company(X)
        return rows, labels, public

    def _set_up(self, labels: NDArray[Any], public: RowSource | None) -> Any:
        """Set the public attributes of a fit and return its mechanism."""
        self.classes_ = records.public_classes(self.classes, labels)
        self.lattice_ = self._public_lattice(public)
        # What the model file will say; parameters set after the fit have no part in it.
        self._fitted_with = self.get_params(deep=False)
        return self._plan(public)

    @abstractmethod
    def _plan(self, public: RowSource | None) -> Any:
        """Return the calibrated mechanism, from parameters and public inputs only."""

    @abstractmethod
    def _guarantee(self, mechanism: Any, source: Randomness) -> Guarantee:
        """Return what releasing by `mechanism` promises."""

    @abstractmethod
    def _release(
        self, mechanism: Any, rows: RowSource, codes: Codes, public: RowSource | None, source: Randomness
    ) -> None:
        """Set the fitted attributes to what `mechanism` releases from the private rows."""

    @abstractmethod
    def _tensors(self) -> dict[str, NDArray[Any]]:
        """Return the released arrays for the model file."""

    @abstractmethod
    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        """Set the fitted attributes from a model file; raise `Misfit` if they do not fit the rest of it."""

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the parameters of the fit, with those that were found from public data in their place."""
        return self._fitted_with

    @abstractmethod
    def _class_scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return scores of shape (n, n_classes) for mapped rows."""

    def _charge(self, ledger: Ledger | None, partition: str | None) -> LedgerEntry | None:
        """Pay, and note in the guarantee where."""
        if ledger is None:
            if partition is not None:
                raise ParameterError("partition names a part of a ledger's data set; pass ledger as well.")
            return None
        # Not the seed: whoever reads the ledger could take the noise out again.
        parameters = {name: as_json(value) for name, value in self._fitted_with.items() if name != "random_state"}
        entry = ledger.charge(
            self.guarantee_, estimator=type(self).__name__, parameters=parameters, partition=partition
        )
        self.guarantee_ = replace(self.guarantee_, ledger_entry=f"{entry.dataset}, release {entry.number}")
        return entry

    def _forget(self) -> None:
        """Drop what an earlier fit left, so that a refit that fails leaves an unfitted model and not a mixture."""
        for name in [name for name in vars(self) if name.endswith("_") or name == "_fitted_with"]:
            delattr(self, name)

    def _check_parameters(self) -> None:
        if not isinstance(self.budget, Budget):
            raise ParameterError(
                "budget must be GaussianDP(mu), ZCDP(rho), ApproxDP(epsilon, delta) or PureDP(epsilon), since a number "
                f"means nothing without its notion; got {self.budget!r}."
            )
        _validate.one_of(ADJACENCIES, adjacency=self.adjacency)
        _validate.one_of(records.UNKNOWN_LABELS, unknown_labels=self.unknown_labels)

    def _public_lattice(self, public: RowSource | None) -> Lattice:
        """Build the public map, from parameters and public rows only."""
        center = self.center
        if isinstance(center, str):
            _validate.one_of(("public",), center=center)
            if public is None:
                raise ParameterError("center='public' is fitted on public rows; pass X_public to fit.")
            center = _mean_direction(public)
        rotation = self.rotation
        if isinstance(rotation, str):
            _validate.one_of(("auto",), rotation=rotation)
            plain = Lattice(self.n_features_in_, center=center, pool=self.pool)
            rotation = _AUTO_ROTATION if public is not None and plain.loses_much(public) else None
        return Lattice(self.n_features_in_, center=center, pool=self.pool, rotation=rotation)

    def _public_inputs(self) -> tuple[str, ...]:
        """Name what every guarantee treats as public."""
        inputs = ["the encoder", "the number of features", "all parameters"]
        if self.classes is not None:
            inputs.insert(0, "the list of classes")
        if self._uses_public_rows():
            inputs.append("the public rows (X_public)")
        if self.adjacency == "replace-one":
            inputs.append("the number of records")
        return tuple(inputs)

    def _uses_public_rows(self) -> bool:
        """Tell whether what is released depends on public rows."""
        return isinstance(self.center, str) or isinstance(self.rotation, str)

    def _not_covered(self) -> tuple[str, ...]:
        missing = list(ALWAYS_UNCOVERED)
        if self._rows_mix:
            missing.insert(0, "rounding by which an embedding may depend on the records embedded beside it")
        if self.adjacency == "add-remove":
            missing.append("a changed label or record, which counts as one removed and one added")
        if self.classes is None:
            missing.insert(0, "the label set: it was read from the private labels")
        if self.unknown_labels == "error":
            missing.append("whether the fit stopped at a label outside the class list (unknown_labels='error')")
        return tuple(missing)

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, self._RELEASED)
        rows = records.as_rows(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        records.check_encoder(X, getattr(self, "encoder_", None), "X")
        parts = [self._class_scores(self.lattice_.features(block)) for block in iter_blocks(rows, _PREDICT_ROWS)]
        return np.concatenate(parts) if parts else np.empty((0, len(self.classes_)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = self.random_state is None
        tags.classifier_tags.poor_score = True  # on the tiny sets of scikit-learn's checks noise drowns the classes
        return tags


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


def _same_data(rows: RowSource, public: RowSource) -> bool:
    """Catch the commonest slip: one array, or views of one, in both roles. Says nothing about the values."""
    if isinstance(rows, np.ndarray) and isinstance(public, np.ndarray):
        return np.may_share_memory(rows, public)
    if isinstance(rows, TensorRows) and isinstance(public, TensorRows):
        return rows.shares_memory(public)
    return rows is public


def _mean_direction(public: RowSource) -> NDArray[np.float64]:
    lattice = Lattice(public.shape[1])
    total = np.zeros(lattice.dim)
    for block in iter_blocks(public, _MEAN_ROWS):
        total += lattice.features(block).sum(axis=0, dtype=np.float64)
    return np.asarray(total / max(public.shape[0], 1))
