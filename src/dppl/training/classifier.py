"""`PrivateClassifier`: a frozen public encoder and a private classifier of its embeddings, as one estimator."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from dppl._utils import validate
from dppl._utils.fingerprint import Fingerprint
from dppl._utils.types import Array
from dppl.encoders import Encoder, load_encoder
from dppl.encoders.columns import SCHEME, rebuild
from dppl.encoders.load import Device, EncoderPrecision, refuse_code
from dppl.errors import InputError, ParameterError
from dppl.io import EmbeddingTable
from dppl.kernel.persons import ids_of_fit
from dppl.kernel.privacy import Budget
from dppl.kernel.privacy.budgets import checked_budget
from dppl.kernel.privacy.terms import Term
from dppl.kernel.reading import (
    UNUSABLE,
    UnknownLabels,
    Unusable,
    as_labels,
    check_kind,
    public_classes,
)
from dppl.methods import EmbeddingClassifier, load
from dppl.methods.as_scikit import check_fitted
from dppl.methods.base import forget
from dppl.methods.parameters import StartParameter, parameters
from dppl.methods.public_data import PublicData, refuse_private_as_public
from dppl.methods.registry import Method, estimator_of
from dppl.methods.released import ReleasedClassifier, refuse_unusable
from dppl.reasons import SkipReason
from dppl.training import pipeline
from dppl.training.descriptions import described, embed_examples, names_by_default
from dppl.training.embedding import embed_windows
from dppl.training.items import Items, check_items, embed_items
from dppl.training.shapes import shapes

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger


def _asks(name: str) -> Any:
    """Return a method of all classifiers; where a record may have several labels, it is the fitted estimator's."""
    inherited = getattr(ReleasedClassifier, name)

    @wraps(inherited)
    def method(self: PrivateClassifier, X: Any, *args: Any, **options: Any) -> Any:
        check_fitted(self, "model_")
        if not self.model_.multilabel:
            return inherited(self, X, *args, **options)
        return getattr(self.model_, name)(
            self._rows(X, options.get("unusable", "error")), *args, **options
        )

    return method


@parameters
class PrivateClassifier(StartParameter, ReleasedClassifier):
    r"""Train a private classifier on raw images or texts, or on rows of a table.

    A frozen public encoder embeds each item by itself; a private estimator is fitted on
    the embeddings. `predict` and its like take items, too. An item that cannot be used
    (a damaged image, an empty text) is skipped with its label, as every fit skips such
    rows: silently, because whether there is one is private. Under replace-one, where
    the number of records is public, it stays as a row of zeros. `unusable` tells its
    owner.

    Parameters
    ----------
    encoder : str or Encoder
        URI for `dppl.encoders.load_encoder`, such as ``"minilm"``, or an encoder. With
        ``"columns:schema.toml"`` an item is a row: a frame of pandas, polars or Arrow
        that has the columns of the schema, or a list of mappings.
    budget : GaussianDP, ZCDP, ApproxDP or PureDP, default=None
        What the whole fit may spend.
    descriptions : {"auto", "names"}, mapping, Path or None, default="auto"
        Public descriptions of the classes, from which ``method`` ``"auto"`` and
        ``"softmax"`` start. ``"names"`` takes what the classes are called; a mapping
        leads from classes to a text or several; a Path names what `dppl train
        --descriptions` reads. ``"auto"`` is ``"names"`` where texts are embedded and
        all names are words, and None else. Those that were written by looking at
        private records are not public.
    start : model or path, default=None
        A released model to start from, by the same encoder and method, as in
        `SoftmaxPrototypes`; ``"auto"`` then describes no class.
    public : PublicData, default=None
        Public items of the same kind as its rows; `descriptions` take the place of its
        examples. An item that cannot be used stays as a zero row, so `public_indices_`
        of a model that selects rows counts along these items.
    method : {"auto", "softmax", "public", "mean", "multilabel"}, default="auto"
        What is fitted on the embeddings; ``"auto"`` lets the budget decide.
        ``"multilabel"`` is for several labels a record: `y` and what `predict` returns
        are as of `MultiLabelPrototypes`.
    options : mapping, default=None
        Further parameters of that estimator, for instance ``{"n_prototypes": 3}`` of
        `PublicPrototypes`, or ``{"separator": ";", "max_labels": 5}`` of several labels
        a record.
    unknown_labels : {"error", "ignore", "strict"}, default="error"
        What a label outside `classes` does, as in `SoftmaxPrototypes`. Labels, and with
        ``"strict"`` items, are checked before anything is embedded.

    Attributes
    ----------
    model_ : EmbeddingClassifier
        The fitted estimator.

    Notes
    -----
    An encoder that is named by its URI is loaded once in a process. A fit on the same records with the same seed gives
    the model of `dppl train`: both hold embeddings in float16 for it, and predict on float32. To choose
    hyper-parameters within the budget, embed once and give the rows to `PrivateSearch`.

    **Privacy.** Unit: one record, which is one item and its label. Relation: as for
    `method`, add or remove one record by default. Released: what the estimator
    releases. Sensitivity: its own, because an embedding is a function of its item
    alone, and so is whether it is skipped; where the encoder cannot promise that, the
    guarantee lists it as not covered. Public inputs: the encoder, `classes`,
    `descriptions`, `public`, all parameters. Not covered: as the estimator says.
    Embedding happens before a ledger is charged; it releases nothing.

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
    unknown_labels: UnknownLabels | Literal["strict"] = "error"
    random_state: int | None = None

    model_: EmbeddingClassifier = field(init=False, repr=False)
    _RELEASED = "model_"

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
            Private texts (str), or images: Pillow images, uint8 arrays, paths or the
            bytes of files.
        y : array-like of shape (n_records,)
            Private labels.
        groups, ledger, partition
            As in `SoftmaxPrototypes.fit`; an item that cannot be used is such a row.

        Raises
        ------
        ParameterError, BudgetError, BudgetExceeded, InputError, UnknownLabelError
            As `SoftmaxPrototypes.fit`.
        MissingExtra
            If the encoder needs a package that is not installed.
        """
        public = self.public or PublicData()
        if public.examples is not None:
            raise ParameterError(
                "has examples; give descriptions of the classes in their place.",
                parameter="public",
            )
        options = dict(self.options or {})
        own = {name: getattr(self, name) for name in ("unknown_labels", "random_state")}
        if options.keys() & own:
            raise ParameterError(
                f"must not hold {' or '.join(own)}; give them by themselves.",
                parameter="options",
            )
        if self.start is not None:
            own["start"] = self.start
        model = estimator_of(
            self.method, checked_budget(self.budget), self.classes, **own, **options
        )
        model.check_parameters()  # before hours of embedding
        forget(self)  # a fit that fails leaves an unfitted classifier
        automatic = isinstance(self.descriptions, str) and self.descriptions == "auto"
        examples = None
        if not automatic:
            examples = described(self.descriptions, model)
        encoder = self._loaded()
        pipeline.check_start(model, encoder)
        if automatic:
            examples = names_by_default(model, encoder)
        check_items(encoder, X, "X")
        shape = np.empty((len(X), 0))
        if model.several is None:
            labels = as_labels(y, shape)
        else:
            labels = model.several.checked(y, shape)
        if model.several is None:  # before hours of embedding, too
            check_kind(labels, public_classes(model.classes))
        groups = ids_of_fit(groups, np.empty((len(X), 0)), model.max_classes_per_person)
        refuse_private_as_public(X, public.rows)
        if isinstance(self.descriptions, Mapping):
            for texts in self.descriptions.values():
                refuse_private_as_public(X, texts, "descriptions")
        if not model.budget.is_zero:
            items = Items(X, encoder, "X")
            classes = np.asarray(model.classes)
            pipeline.check_records(
                items,
                encoder,
                classes,
                self.unknown_labels,
                model.several,
                labels,
                groups,
            )

        # Public data and the account come before the private items, which take most of
        # the time.
        example_rows = public_rows = None
        if examples is not None:
            example_rows = embed_examples(examples, encoder, rows=pipeline.ROWS)
        if public.rows is not None:
            public_rows = embed_items(
                encoder, public.rows, "public.rows", rows=pipeline.ROWS
            )
        data = PublicData(public_rows, example_rows)
        # A budget of mu = 0 makes a model of the examples alone, and no private item is
        # embedded.
        plan = pipeline.settle(
            model, encoder.dimension, data, groups is not None, ledger, partition
        )
        if not pipeline.reads_records(plan):
            X = []
            labels = labels[:0]
            groups = None if groups is None else groups[:0]
        rows = embed_items(encoder, X, "X", rows=pipeline.ROWS)
        if self.unknown_labels == "strict" and plan.guarantee.releases:
            model.check(rows, labels, groups=groups)
        return self._with(
            model.fit(rows, labels, groups=groups, ledger=ledger, partition=partition)
        )

    def unusable(self, X: Any) -> list[tuple[int, Term[SkipReason]]]:
        """Return position and reason of each item that a fit cannot use. For the owner of private items only.

        The `code` of a reason is of `dppl.reasons.SkipReason`. It takes as long as
        embedding the items, because an embedding that is not finite cannot be used
        either.

        Parameters
        ----------
        X : sequence of n items
        """
        encoder = self._loaded()
        windows = embed_windows(Items(X, encoder, "X"), encoder, rows=pipeline.ROWS)
        return [
            (int(item.id or 0), item.reason)
            for window in windows
            for item in window.skipped
        ]

    def shapes(self, cells: Mapping[str, Any] | None = None) -> dict[str, Any]:
        r"""Return what each column adds to the scores of the classes. It is read off the model and costs nothing.

        A score is ``offsets[class] + sum(scores) / sqrt(sum(squares))``, where the sums are
        over one point of each shape: the model is linear in rows that are scaled to length
        1 once the released mean is taken off. That length differs little from row to row,
        and is ``length`` on average.

        Parameters
        ----------
        cells : mapping, default=None
            Cells of each column at which to tell; None takes cells that are spread over
            what the schema foresees. Columns that are not named have no shape then.

        Returns
        -------
        dict
            JSON-ready: ``classes``, ``offsets``, ``length``, and ``shapes``, a list of
            ``column``, ``part`` (of a date: trend, season, weekday; "" else), ``ends`` (of
            a curve, what its first and last place are called; None for bars) and
            ``points``. Each has ``cell``, ``place`` (from 0 to 1 along a curve; None is a
            bar), ``scores``, ``noise`` (their standard deviations; None if the model does
            not tell) and ``square``.

        Raises
        ------
        InputError
            If the model has no such shapes.
        ParameterError
            If `cells` names another column, or one of texts, which have no shape.

        Notes
        -----
        ``noise`` is that of the gradients of `SoftmaxPrototypes`, weighed as its last step
        weighs them. Coordinates of its weights have independent noise of one size a class,
        or less along public axes by which some was taken out, so a point's is that size
        times the length of what its cell fills in. It leaves out that later gradients
        answer to earlier noise, that steps were chosen by noisy values (they scale all
        scores alike), and noise of the mean, which moves a whole shape and, at large
        budgets, bends it by as much again. So a band of two
        standard deviations is a scale to read a curve by, and no confidence interval: that
        the records are a sample, and that the fit stops early, is not in it either.
        """
        check_fitted(self, "model_")
        return shapes(self.model_, cells)

    def to_bytes(self) -> bytes:
        """Return the content of the model file that `save` writes; the model names its encoder."""
        check_fitted(self, "model_")
        return self.model_.to_bytes()

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], encoder: str | Encoder | None = None
    ) -> PrivateClassifier:
        """Read a model that `save`, `dppl train` or `dppl fit` wrote, ready to predict on raw items.

        Parameters
        ----------
        path : path
        encoder : str or Encoder, default=None
            The model's encoder, where its files lie in a local folder. None loads what
            the model names.

        Raises
        ------
        InputError
            If the model names no encoder, or `encoder` is another one.
        """
        model = load(path)
        return cls(
            encoder_of_model(model, encoder), model.budget, model.classes_
        )._with(model)

    def _with(self, model: EmbeddingClassifier) -> Self:
        """Set what the fitted estimator says of itself."""
        self.model_ = model
        self.classes_ = model.classes_
        self.guarantee_ = model.guarantee_
        self._paid_by = getattr(model, "_paid_by", None)
        self.shares_ = model.shares_
        self.has_similarity = model.has_similarity
        return self

    def _sharpness(self) -> float:
        return self.model_._sharpness()

    def _scores(
        self,
        X: Any,
        unusable: Unusable = "error",
        made: Callable[[Any], Array] = np.asarray,
        *,
        similarity: bool = False,
    ) -> Array:
        """Embed items, and return what the estimator makes of their scores."""
        check_fitted(self, "model_")
        return self.model_._scores(
            self._rows(X, unusable), unusable, made, similarity=similarity
        )

    def _rows(self, X: Any, unusable: Unusable) -> EmbeddingTable:
        """Embed items."""
        validate.one_of(UNUSABLE, unusable=unusable)
        rows = embed_items(self._loaded(), X, "X")
        if unusable == "error":
            refuse_unusable(
                np.isnan(np.asarray(rows)).all(axis=1),
                "X has items that cannot be used",
            )
        return rows

    predict = _asks("predict")
    predict_proba = _asks("predict_proba")
    decision_function = _asks("decision_function")
    score = _asks("score")

    def predict_labels(
        self, X: Any, *, unusable: Unusable = "error"
    ) -> list[list[Any] | None]:
        """Return a list of labels for each item, where a record may have several; as `MultiLabelPrototypes` does.

        Parameters
        ----------
        X : sequence of n items
        unusable : {"error", "empty"}, default="error"
            What to do about items that cannot be used: refuse them, or return None for
            each.

        Raises
        ------
        ParameterError
            If the model gives one label a record.
        """
        check_fitted(self, "model_")
        if not self.model_.multilabel:
            raise ParameterError(
                "must be 'multilabel' for predict_labels; use predict.",
                parameter="method",
            )
        labels: list[list[Any] | None] = self.model_.predict_labels(
            self._rows(X, unusable), unusable=unusable
        )
        return labels

    def _loaded(self) -> Encoder:
        if isinstance(self.encoder, str):
            return _load_once(self.encoder)
        return self.encoder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags


@lru_cache(maxsize=1)  # loading takes seconds, and every clone of a search asks again
def _load_once(uri: str) -> Encoder:
    return load_encoder(uri)


def encoder_of_model(
    model: EmbeddingClassifier,
    encoder: str | Encoder | None = None,
    *,
    device: Device = "auto",
    trial: bool = True,
) -> Encoder:
    """Return the encoder of a model: the given one, or loaded by the URI that it names unless that is Python code."""
    if model.encoder_ is None:
        raise InputError(
            "the model does not name its encoder; embed the records first, and predict on the table."
        )
    named = Fingerprint.parse(model.encoder_)
    if encoder is None:
        refuse_code(named.uri)
    loaded = named.uri if encoder is None else encoder
    load = partial(
        load_encoder,
        device=device,
        precision=cast(EncoderPrecision, named.dtype),
        trial=trial,
    )
    if encoder is None and named.uri.startswith(SCHEME):
        loaded = rebuild(named, load)  # the model file holds the schema
    elif isinstance(loaded, str):
        loaded = load(loaded)
    if not loaded.fingerprint.same_function(named):
        raise InputError(
            f"the model was fitted on embeddings of {named.uri!r}; this is another encoder, or other weights or "
            f"preprocessing: {loaded.fingerprint.uri!r}. Name the right one."
        )
    return loaded
