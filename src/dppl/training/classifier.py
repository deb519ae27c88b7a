"""`PrivateClassifier`: a frozen public encoder and a private classifier of its embeddings, as one estimator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dppl import _validate
from dppl._fingerprint import Fingerprint
from dppl.encoders import Encoder, load_encoder
from dppl.encoders.fixed import for_prediction
from dppl.encoders.load import Device, Precision, refuse_code
from dppl.errors import InputError, ParameterError
from dppl.estimators import EmbeddingClassifier, load
from dppl.estimators.parameters import parameters
from dppl.estimators.public_data import PublicData, refuse_private_as_public
from dppl.estimators.registry import Method, estimator_of
from dppl.estimators.released import Shares, refuse_unusable
from dppl.estimators.reported import Reported
from dppl.io.pipeline import embed_windows
from dppl.kernel.persons import ids_of_fit
from dppl.kernel.privacy import Budget, Guarantee
from dppl.kernel.privacy.budgets import checked_budget
from dppl.kernel.reading import UNUSABLE, Unusable, as_labels
from dppl.training import workflow
from dppl.training.descriptions import described, embed_examples, names_by_default
from dppl.training.items import Items, check_items, embed_items

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger


@parameters
class PrivateClassifier(Reported, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Train a private classifier on raw images or texts.

    A frozen public encoder embeds each item by itself; a private estimator is fitted on the embeddings. An item that
    cannot be used (a damaged image, an empty text) is left out with its label, as every fit leaves such rows out:
    silently, because whether there is one is private. Under replace-one, where the number of records is public, it
    stays as a row of zeros. `unusable` tells its owner.

    Parameters
    ----------
    encoder : str or Encoder
        URI for `dppl.encoders.load_encoder`, such as ``"minilm"``, or an encoder.
    budget : GaussianDP, ZCDP, ApproxDP or PureDP, default=None
        What the whole fit may spend.
    classes : array-like of shape (n_classes,), default=None
        Public list of classes.
    descriptions : {"auto", "names"}, mapping, sequence, Path or None, default="auto"
        Public descriptions of the classes, from which ``method`` ``"auto"`` and ``"softmax"`` start. ``"names"`` takes
        what the classes are called; a mapping leads from classes to a text or several, a sequence has an entry for each
        of `classes`, in their order; a Path names what `dppl train --descriptions` reads. ``"auto"`` is ``"names"``
        where texts are embedded and all names are words, and None else. Those that were written by looking at private
        records are not public.
    public : PublicData, default=None
        Public items of the same kind as its rows; `descriptions` take the place of its examples. An item that cannot be
        used stays as a zero row, so that `public_indices_` of a model that selects rows counts along these items.
    method : {"auto", "softmax", "public", "mean"}, default="auto"
        What is fitted on the embeddings; ``"auto"`` lets the budget decide.
    options : mapping, default=None
        Further parameters of that estimator, for instance ``{"n_prototypes": 3}`` of `PublicPrototypes`, or
        ``{"unknown_labels": "strict"}``.
    random_state : int, default=None
        None draws noise from the operating system. An integer repeats a run, and the guarantee then says that the model
        must not be released.

    Attributes
    ----------
    model_ : EmbeddingClassifier
        The fitted estimator; `classes_` and `guarantee_` are its own.

    See Also
    --------
    PrivateSearch : chooses hyper-parameters within the budget; it takes estimators of embeddings, so embed once (with
        `dppl embed`, or an encoder's `encode`) and search on the rows.

    Notes
    -----
    An encoder that is named by its URI is loaded once in a process. A fit on the same records with the same seed gives
    the model of `dppl train`: both hold embeddings in float16 for it, and predict on float32. Scores of
    `decision_function` rank records; `predict_proba` is for classes that are equally frequent (docs/probabilities.md).

    **Privacy.** Unit: one record, which is one item and its label. Relation: that of `method`, add or remove one record
    by default. Released: what the estimator releases. Sensitivity: its own, because an embedding is a function of its
    item alone, and so is whether it is left out; where the encoder cannot promise that, the guarantee lists it as not
    covered. Public inputs: the encoder, `classes`, `descriptions`, `public`, all parameters. Not covered: as the
    estimator says. Embedding happens before a ledger is charged; it releases nothing.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dppl import ApproxDP
    >>> from dppl.training import PrivateClassifier
    >>> digits = load_digits()
    >>> images = (digits.images * 15.9).astype("uint8")
    >>> model = PrivateClassifier("pixels", ApproxDP(1, 1e-6), classes=range(10))
    >>> model = model.fit(images[:1200], digits.target[:1200])
    >>> bool(model.score(images[1200:], digits.target[1200:]) > 0.5)
    True
    """

    encoder: str | Encoder = field(kw_only=False)
    budget: Budget | None = field(default=None, kw_only=False)
    classes: ArrayLike | None = field(default=None, kw_only=False)
    descriptions: Any = "auto"
    public: PublicData | None = None
    method: Method | Literal["auto"] = "auto"
    options: Mapping[str, Any] | None = None
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
        """Embed the items and release a classifier of their classes.

        Parameters
        ----------
        X : sequence of n_records items
            Private texts (str), or images: Pillow images, uint8 arrays, paths or the bytes of files.
        y : array-like of shape (n_records,)
            Private labels.
        groups, ledger, partition
            As in `SoftmaxPrototypes.fit`; an item that cannot be used is such a row.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, BudgetError, BudgetExceeded, InputError, UnknownLabelError
            As `SoftmaxPrototypes.fit`.
        MissingExtra
            If the encoder needs a package that is not installed.
        """
        public = self.public or PublicData()
        if public.examples is not None:
            raise ParameterError("has examples; give descriptions of the classes in their place.", parameter="public")
        items = public.rows
        model = self._estimator()
        model.check_parameters()  # before hours of embedding
        if hasattr(self, "model_"):  # a fit that fails leaves an unfitted classifier
            del self.model_
        automatic = isinstance(self.descriptions, str) and self.descriptions == "auto"
        examples = None if automatic else described(self.descriptions, model)
        encoder = self._loaded()
        if automatic:
            examples = names_by_default(model, encoder)
        check_items(encoder.modality, X, "X")
        labels = as_labels(y, np.empty((len(X), 0)))
        groups = ids_of_fit(groups, np.empty((len(X), 0)), model.max_classes_per_person)
        refuse_private_as_public(X, items)
        refuse_private_as_public(X, self.descriptions, "descriptions")

        # Public data and the account come before the private items, which take most of the time.
        example_rows = None if examples is None else embed_examples(examples, encoder, rows=workflow.ROWS)
        public_rows = None if items is None else embed_items(encoder, items, "public.rows", rows=workflow.ROWS)
        of_persons = groups is not None
        reads = workflow.settle(
            model,
            encoder.dimension,
            public_rows,
            example_rows,
            ledger=ledger,
            partition=partition,
            of_persons=of_persons,
        )
        if reads:
            rows = embed_items(encoder, X, "X", rows=workflow.ROWS)
        else:
            assert example_rows is not None
            rows, labels, groups = workflow.no_records(encoder.dimension, example_rows, of_persons)
        model.fit(rows, labels, groups=groups, ledger=ledger, partition=partition)
        self.model_: EmbeddingClassifier = model
        return self

    def predict(self, X: Any, *, unusable: Unusable = "error") -> NDArray[Any]:
        """Return the class of each item.

        Parameters
        ----------
        X : sequence of n items
        unusable : {"error", "empty"}, default="error"
            What to do about items that cannot be used (a damaged image, an empty text): refuse them, or give them None
            in an array of objects.

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        InputError
            If items cannot be used, with ``unusable="error"``. The message names their positions; the method of the
            same name says why.
        """
        rows = self._embedded(X, unusable)
        return self.model_.predict(rows, unusable=unusable)

    def decision_function(self, X: Any, *, unusable: Unusable = "error") -> NDArray[np.float64]:
        """Return the score of each class for each item.

        Parameters
        ----------
        X : sequence of n items
        unusable : {"error", "empty"}, default="error"
            As in `predict`; scores are NaN for None.

        Returns
        -------
        ndarray of shape (n, n_classes) or, for two classes, (n,)
        """
        rows = self._embedded(X, unusable)
        return self.model_.decision_function(rows, unusable=unusable)

    def predict_proba(self, X: Any, *, shares: Shares = "equal", unusable: Unusable = "error") -> NDArray[np.float64]:
        """Return the probability of each class for each item: see `SoftmaxPrototypes.predict_proba`.

        Parameters
        ----------
        X : sequence of n items
        shares : {"equal", "data"} or array-like of shape (n_classes,), default="equal"
            How frequent classes are among these items, as in `SoftmaxPrototypes.predict_proba`.
        unusable : {"error", "empty"}, default="error"
            As in `predict`; probabilities are NaN for None.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        rows = self._embedded(X, unusable)
        return self.model_.predict_proba(rows, shares=shares, unusable=unusable)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on (`X`, `y`). Measured on private records, it is not covered by the guarantee.

        Parameters
        ----------
        X : sequence of n items
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), default=None
        """
        rows = self._embedded(X)
        return self.model_.score(rows, y, sample_weight)

    def unusable(self, X: Any) -> list[tuple[int, str]]:
        """Return position and reason of each item that a fit cannot use. For the owner of private items only.

        It takes as long as embedding the items, because an embedding that is not finite cannot be used either.

        Parameters
        ----------
        X : sequence of n items
        """
        encoder = self._loaded()
        windows = embed_windows(Items(X, encoder.modality, "X"), encoder, rows=workflow.ROWS)
        return [(int(item.id or 0), item.reason) for window in windows for item in window.skipped]

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the released model, which names its encoder, to one file.

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
        check_is_fitted(self, "model_")
        self.model_.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], encoder: str | Encoder | None = None) -> PrivateClassifier:
        """Read a model that `save`, `dppl train` or `dppl fit` wrote, ready to predict on raw items.

        An encoder that was tried on this machine is not tried again, so fit a `PrivateClassifier` of your own: the
        statement of a fit on this one would say that rows may depend on their company.

        Parameters
        ----------
        path : path
        encoder : str or Encoder, default=None
            The model's encoder, where its files lie in a local folder. None loads what the model names.

        Raises
        ------
        InputError
            If the model names no encoder, or `encoder` is another one.
        """
        model = load(path)
        again = cls(encoder_of_model(model, encoder, predicting=True), model.budget, model.classes_)
        again.model_ = model
        return again

    @property
    def classes_(self) -> NDArray[Any]:
        """The sorted class list."""
        return self.model_.classes_

    @property
    def guarantee_(self) -> Guarantee:
        """What is promised."""
        return self.model_.guarantee_

    def _estimator(self) -> EmbeddingClassifier:
        options = dict(self.options or {})
        return estimator_of(
            self.method, checked_budget(self.budget), self.classes, random_state=self.random_state, **options
        )

    def _loaded(self) -> Encoder:
        return _load_once(self.encoder) if isinstance(self.encoder, str) else self.encoder

    def _embedded(self, X: Any, unusable: Unusable = "error") -> Any:
        check_is_fitted(self, "model_")
        _validate.one_of(UNUSABLE, unusable=unusable)
        table = embed_items(for_prediction(self._loaded()), X, "X")
        if unusable == "error":
            refuse_unusable(np.isnan(np.asarray(table)).all(axis=1), "X has items that cannot be used")
        return table

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.non_deterministic = self.random_state is None
        return tags


@lru_cache(maxsize=1)  # loading takes seconds, and every clone of a search asks again
def _load_once(uri: str) -> Encoder:
    return load_encoder(uri)


def encoder_of_model(
    model: EmbeddingClassifier,
    encoder: str | Encoder | None = None,
    *,
    device: Device = "auto",
    predicting: bool = False,
) -> Encoder:
    """Return the encoder that a model was fitted with.

    Parameters
    ----------
    model : EmbeddingClassifier
    encoder : str or Encoder, default=None
        Where to find it; None loads it by the URI that the model names, unless that is one of Python code.
    device : {"auto", "cpu", "cuda"}
        Where a loaded encoder runs.
    predicting : bool, default=False
        Whether it is for predictions alone and never for a fit, see `load_encoder`.

    Raises
    ------
    InputError
        If the model names none, or one of Python code while `encoder` is None, or `encoder` computes something else.
    """
    if model.encoder_ is None:
        raise InputError("the model does not name its encoder; embed the records first, and predict on the table.")
    named = Fingerprint.parse(model.encoder_)
    if encoder is None:
        refuse_code(named.uri)
    wanted = named.uri if encoder is None else encoder
    found = (
        load_encoder(wanted, device=device, precision=cast(Precision, named.dtype), predicting=predicting)
        if isinstance(wanted, str)
        else wanted
    )
    if not found.fingerprint.same_function(named):
        raise InputError(
            f"the model was fitted on embeddings of {named.uri!r}; this is another encoder, or other weights or "
            f"preprocessing: {found.fingerprint.uri!r}. Name the right one."
        )
    return found
