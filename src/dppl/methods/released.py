"""What a released model can do: classify rows, report on itself and be saved. None of it costs anything."""

import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl._utils import validate
from dppl._utils.files import Output, write_atomically
from dppl._utils.metadata import check_encoder
from dppl._utils.types import Array, Flags, Float, Float32
from dppl.errors import DpplError, InputError, ParameterError
from dppl.kernel import reading
from dppl.kernel.lattice import Lattice, iter_blocks
from dppl.kernel.parts import Part
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.guarantee import Adjacency
from dppl.kernel.reading import Codes, Unusable
from dppl.kernel.records import Parted
from dppl.methods import model_file
from dppl.methods.as_scikit import ScikitEstimator, check_features, check_fitted
from dppl.methods.parameters import LatticeOptions
from dppl.methods.public_data import ExamplesKept
from dppl.methods.shared import unit_directions
from dppl.reasons import NoLabel

# How frequent classes are: all alike, as in the data of the fit, or public numbers.
Shares: TypeAlias = Literal["equal", "data"] | ArrayLike
_ROWS = 8192
# Positions that a message lists.
_LISTED = 10
_UNUSABLE = "X has rows without a direction (NaN, infinity, only zeros)"


@dataclass(frozen=True, slots=True)
class PaidBy:
    """The account that paid for a model, which hears when the model is in a file. Copies share it; a pickle has none."""

    account: Any
    entry: Any

    def saved(self, sha256: str) -> None:
        """Tell the account."""
        self.account.saved(self.entry, sha256)

    def __deepcopy__(self, _: Any) -> Self:
        """Return the same account."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the account out: its place may hold a password."""
        return type(None), ()


class Reported:
    """Mixin of classifiers that write themselves to a file, and say what they promise by it.

    Parameters
    ----------
    classes : array-like of shape (n_classes,), default=None
        Public list of classes.
    random_state : int, default=None
        None draws noise from the operating system. An integer repeats a run, and the
        guarantee then says that the model must not be released.
    """

    guarantee_: Guarantee

    def to_bytes(self) -> bytes:
        """Return the content of the model file that `save` writes."""
        raise NotImplementedError

    def save(
        self, path: str | os.PathLike[str] | Output, *, overwrite: bool = False
    ) -> None:
        """Write the released model to one safetensors file, in one step.

        The file holds what was released, public inputs and the guarantee: nothing
        private, nothing executable. A ledger that was charged has its hash from then
        on.

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
        content = self.to_bytes()
        try:
            write_atomically(path, content, overwrite=overwrite)
        except OSError as error:
            if self.guarantee_.charges:
                kept = "; ".join(map(str, self.guarantee_.charges))
                error.add_note(f"The ledger keeps the charge: {kept}.")
            raise
        if (paid_by := getattr(self, "_paid_by", None)) is not None:
            try:
                paid_by.saved(sha256(content).hexdigest())
            except DpplError as error:
                error.add_note("The model file is written.")
                raise

    def report(
        self,
        *,
        results: Any = None,
        ledger: Any = None,
        public: Any = None,
        by: str | None = None,
        purpose: str | None = None,
    ) -> Any:
        """Return the `dppl.statement.Report` of the model, which notebooks show: what it does and promises, and checks.

        Parameters
        ----------
        results, ledger, public, by, purpose
            As for `dppl.statement.make_report`.
        """
        # By name, because a report knows all layers above this one.
        return import_module("dppl.statement").make_report(
            self, results=results, ledger=ledger, public=public, by=by, purpose=purpose
        )


class ReleasedClassifier(Reported, ScikitEstimator):
    """A classifier of embeddings as it is after its fit. Subclasses say how it scores rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The sorted class list.
    guarantee_ : Guarantee
        What is promised. ``print(model.guarantee_)``.
    """

    random_state: int | None
    # What only some methods take as parameters.
    adjacency: Adjacency = "add-remove"
    lattice: LatticeOptions | None = None
    max_classes_per_person: int | None = None
    separator: str | None = None
    start: Any = None

    classes_: Array
    guarantee_: Guarantee
    lattice_: Lattice
    encoder_: str | None
    columns_: dict[str, str]
    examples_: ExamplesKept | None
    public_ids_: Array | None
    _fitted_with: dict[str, Any]
    n_features_in_: int
    # Shares of the classes in the data of the fit, of shape (n_classes,), where a
    # method released counts of them.
    shares_: Float | None = None
    # Noise in a coordinate of each class's weights, where a method tells of it.
    coef_noise_: Float | None = None

    # Name of the attribute that holds what was released; a model that has it is fitted.
    _RELEASED: ClassVar[str]
    # Whether that is a vector or more for each class in the space of the mapped rows.
    has_similarity: bool = True

    def decision_function(self, X: Any, *, unusable: Unusable = "error") -> Float:
        """Return the score of each class for each row.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)
            Rows to classify; they cost nothing.
        unusable : {"error", "empty"}, default="error"
            What to do about rows without a direction (NaN, infinity, only zeros):
            refuse them, or give them NaN.

        Returns
        -------
        ndarray of shape (n, n_classes) or, for two classes, (n,)
            Larger is likelier. For two classes, the second's value minus the first's.

        Raises
        ------
        InputError
            If rows cannot be used, with ``unusable="error"``. The message names their
            positions.
        """
        scores = self._scores(X, unusable)
        if len(self.classes_) == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict(
        self,
        X: Any,
        *,
        min_confidence: float | None = None,
        min_similarity: float | None = None,
        unusable: Unusable = "error",
    ) -> Array:
        """Predict the class of the largest score for each row; ties go to the first class.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features), or table in parts
        min_confidence : float, default=None
            Least value of the largest of `predict_proba`, below which the label is
            None. `Evaluation.threshold` and `public_threshold` of `dppl.evaluation`
            choose it.
        min_similarity : float, default=None
            Least `similarity`, below which the label is None: the row is of none of the
            classes.
        unusable : {"error", "empty"}, default="error"
            As in `decision_function`; the empty label is None.

        Returns
        -------
        ndarray of shape (n,)
            Of objects where a label may be None.
        """
        least = Least(min_confidence, min_similarity)
        if least == ALWAYS:
            codes = self._scores(X, unusable, _codes)
            return labels_of(codes, self.classes_, codes < 0, unusable)
        near = min_similarity is not None
        codes = self._scores(
            X, unusable, partial(_sure_codes, least, self._sharpness()), similarity=near
        )
        return labels_of(codes, self.classes_, codes < 0, "empty")

    def similarity(self, X: Any, *, unusable: Unusable = "error") -> Float:
        """Return how near each row is to the nearest class: the largest cosine with a class's released vector.

        Rows of no class are far from all of them; a quantile among public rows of none
        of the classes says how far (docs/probabilities.md).

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features), or table in parts
        unusable : {"error", "empty"}, default="error"
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n,)
            From -1 to 1.

        Raises
        ------
        ParameterError
            If the method has no vector for each class in the space of the rows, such as
            `ContinualEnsemble`.
        """
        return self._scores(X, unusable, _last, similarity=True)

    def predict_proba(
        self, X: Any, *, shares: Shares = "equal", unusable: Unusable = "error"
    ) -> Float:
        """Return the probability of each class for each row.

        It is the softmax of the scores times a factor that follows from what was
        released and from how much noise that holds (docs/probabilities.md says how far
        it can be trusted), plus the logarithms of the classes' shares.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features), or table in parts
        shares : {"equal", "data"} or array-like of shape (n_classes,), default="equal"
            How frequent classes are among these rows: all alike, as `predict` has it;
            as in the data of the fit, as far as its noisy counts tell
            (`SoftmaxPrototypes` releases them); or public numbers in the order of
            `classes_`, which need not add up to 1.
        unusable : {"error", "empty"}, default="error"
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`; rows sum to 1. For equal shares the
            largest belongs to the predicted class, up to rounding.
        """
        offsets = self._log_shares(shares)
        return self._scores(
            X, unusable, partial(_probabilities, self._sharpness(), offsets)
        )

    def predict_log_proba(self, X: Any, **options: Any) -> Float:
        """Return the logarithm of the probability of each class for each row.

        Parameters
        ----------
        X, options
            As in `predict_proba`.

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        with np.errstate(divide="ignore"):  # a probability may be 0
            return np.asarray(np.log(self.predict_proba(X, **options)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on (`X`, `y`). Measured on private records, it is not covered by the guarantee.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)
        y : array-like of shape (n,)
            True labels, of the kind of the classes.
        sample_weight : array-like of shape (n,), default=None

        Raises
        ------
        InputError
            If there is no row.
        """
        scores = self._scores(X)
        truth = reading.class_codes(
            reading.as_labels(y, scores), self.classes_, "ignore"
        )
        return share(scores.argmax(axis=1) == truth, sample_weight)

    to_bytes = model_file.to_bytes

    @abstractmethod
    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        """Return dtype and shape of each released array, by its name, the attribute without the underscore."""

    def _tensors(self) -> dict[str, Array]:
        """Return the released arrays for the model file."""
        return {name: getattr(self, f"{name}_") for name in self._shapes()}

    def _restore(self, tensors: dict[str, Array], parameters: dict[str, Any]) -> None:
        """Set the fitted attributes from a model file; raise `Misfit` if they do not fit the rest of it."""
        for name, (kind, shape) in self._shapes().items():
            setattr(
                self, f"{name}_", model_file.check_tensor(tensors, name, shape, kind)
            )

    @abstractmethod
    def _class_scores(self, features: Float32) -> Float:
        """Return scores of shape (n, n_classes) for mapped rows."""

    def _directions(self) -> Float32:
        """Return the unit vectors of the classes, shape (n_classes or more, dim); mapped rows are near one of them."""
        if not self.has_similarity:
            what = f"needs a vector for each class in the space of the rows; {type(self).__name__} has none."
            raise ParameterError(what, parameter="min_similarity")
        vectors = np.asarray(getattr(self, self._RELEASED))
        return unit_directions(vectors.reshape(-1, self.lattice_.dim))

    def _sharpness(self) -> float:
        """Return what turns scores into logits, from released values and parameters; 1 for those that are logits."""
        return 1.0

    def _log_shares(self, shares: Shares) -> Float:
        """Return the logarithm of how frequent each class is; minus infinity for one that does not occur."""
        check_fitted(self, self._RELEASED)
        given: Any = shares
        if isinstance(shares, str):
            validate.one_of(("equal", "data"), shares=shares)
            if shares == "equal":
                given = np.ones(len(self.classes_))
            else:
                given = self.shares_
        if given is None:
            raise ParameterError(
                "'data' needs noisy counts of the classes, and this model released none; give public frequencies, one "
                "a class.",
                parameter="shares",
            )
        values = np.asarray(given, np.float64)
        fine = np.isfinite(values).all() and (values >= 0).all() and values.any()
        if values.shape != self.classes_.shape or not fine:
            raise ParameterError(
                f"must be 'equal', 'data', or a frequency for each of the {len(self.classes_)} classes, none below 0 "
                "and not all 0.",
                parameter="shares",
            )
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(values))

    def _scores(
        self,
        X: Any,
        unusable: Unusable = "error",
        made: Callable[[Any], Array] = np.asarray,
        *,
        similarity: bool = False,
    ) -> Array:
        """Return what is made of the scores, of shape (n, n_classes): NaN for rows that cannot be used and may stay.

        With `similarity` a last column has the cosine with the nearest class.
        """
        check_fitted(self, self._RELEASED)
        directions = self._directions() if similarity else None
        validate.one_of(reading.UNUSABLE, unusable=unusable)
        self._check_continues(X)
        if isinstance(X, Parted):
            results = dict(
                X.engine.each(partial(_scores_of_part, self, made, similarity), X.parts)
            )
            result = np.concatenate([results[place] for place in range(len(results))])
        else:
            blocks = [np.empty((0, len(self.classes_) + similarity))]
            for block in iter_blocks(reading.as_rows(X), _ROWS):
                features = self.lattice_.features(block)
                scores = self._class_scores(features)
                if directions is not None:
                    scores = np.column_stack(
                        [scores, (features @ directions.T).max(axis=1)]
                    )
                blocks.append(
                    np.where(features.any(axis=1, keepdims=True), scores, np.nan)
                )
            result = made(np.concatenate(blocks))
        if unusable == "error":
            if np.issubdtype(result.dtype, np.integer):
                bad = result == -1
            else:
                bad = np.isnan(result if result.ndim == 1 else result[:, 0])
            refuse_unusable(bad, _UNUSABLE)
        return result

    def _check_continues(self, X: Any) -> None:
        """Refuse rows of another width, or by another encoder, than the rows of the fit."""
        if isinstance(X, Parted):
            if X.n_features != self.n_features_in_:
                raise InputError(
                    f"X has {X.n_features} features, but the fit had {self.n_features_in_}."
                )
        else:
            check_features(self, X, reading.as_rows(X).shape[1])
        check_encoder(X, getattr(self, "encoder_", None), "X")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = self.random_state is None
        tags.classifier_tags.poor_score = (
            True  # on the tiny sets of scikit-learn's checks noise drowns the classes
        )
        return tags


@dataclass(frozen=True, slots=True)
class Least:
    """Public numbers below which a model gives no label: the largest probability, and the cosine with any class."""

    min_confidence: float | None = None
    min_similarity: float | None = None

    def __post_init__(self) -> None:
        if self.min_confidence is not None:
            validate.closed_unit(min_confidence=self.min_confidence)
        if self.min_similarity is not None:
            validate.cosine(min_similarity=self.min_similarity)

    def reasons(self, confidence: Array, similarity: Array | None) -> Array:
        """Return for each row why it gets no label, or None; a row that is far from all classes is not unsure."""
        reasons = np.full(len(confidence), None, object)
        if self.min_confidence is not None:
            reasons[~(confidence >= self.min_confidence)] = NoLabel.NOT_SURE
        if self.min_similarity is not None:
            assert similarity is not None
            reasons[~(similarity >= self.min_similarity)] = NoLabel.NONE_OF_THESE
        return reasons


ALWAYS = Least()  # a model that labels every row


def _scores_of_part(
    model: ReleasedClassifier,
    made: Callable[[Any], Array],
    similarity: bool,
    part: Part,
) -> Array:
    return model._scores(part.read()[0], "empty", made, similarity=similarity)


def _last(scores: Float) -> Float:
    return scores[:, -1]


def _sure_codes(least: Least, sharpness: float, scores: Float) -> NDArray[np.int32]:
    """Return the position of the class of each row, -1 where it cannot be used, and -2 where it gets no label."""
    near = None
    if least.min_similarity is not None:
        near = scores[:, -1]
        scores = scores[:, :-1]
    confidence = _probabilities(sharpness, np.zeros(scores.shape[1]), scores).max(
        axis=1
    )
    codes = _codes(scores)
    codes[(codes >= 0) & (least.reasons(confidence, near) != None)] = -2  # noqa: E711  # elementwise
    return codes


def _codes(scores: Float) -> NDArray[np.int32]:
    """Return the position of the class of each row, -1 where it cannot be used."""
    return np.where(np.isnan(scores[:, 0]), -1, scores.argmax(axis=1)).astype(np.int32)


def _probabilities(sharpness: float, offsets: Float, scores: Float) -> Float:
    from scipy.special import (
        softmax,
    )  # here, as few ask for probabilities and it is slow to import

    return np.asarray(softmax(sharpness * scores + offsets, axis=1))


def refuse_unusable(unusable: Flags, what: str) -> None:
    """Refuse to predict such rows. Whoever predicts has them, so the message says where they are."""
    places = np.flatnonzero(unusable).tolist()
    if places:
        listed = ", ".join(map(str, places[:_LISTED])) + " and others" * (
            len(places) > _LISTED
        )
        raise InputError(
            f"{what}, which have no class: at {listed}, counted from 0. Leave them out, or pass "
            "unusable='empty' to predict, predict_proba or decision_function."
        )


def share(right: Flags, sample_weight: Any) -> float:
    """Return the share of right predictions; of none there is no share."""
    if not len(right):
        raise InputError("X must have at least one row to score; it has none.")
    return float(np.average(right, weights=sample_weight))


def labels_of(codes: Codes, classes: Array, unusable: Flags, how: str) -> Array:
    """Return the class of each row; with ``how="empty"`` as objects, of which those that cannot be used are None."""
    labels = np.asarray(classes[codes])
    if how == "empty":
        labels = labels.astype(object)
        labels[unusable] = None
    return labels
