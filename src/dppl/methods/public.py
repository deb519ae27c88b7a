"""DPPL-Public: each class is represented by public rows that the exponential mechanism selects."""

from dataclasses import field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dppl._utils.types import Array, Float, Float32
from dppl.errors import InputError, ParameterError
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice import Lattice, RowSource, take_rows
from dppl.kernel.privacy.guarantee import Adjacency
from dppl.kernel.privacy.release import Misfit
from dppl.kernel.queries.selection import Selection
from dppl.methods import EmbeddingClassifier
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import (
    Count,
    LatticeParameter,
    PersonsParameter,
    parameters,
)
from dppl.methods.shared import cosine_sharpness, unit_directions

# clip="auto": similarities among this many public rows, and their quantiles that become
# the bounds.
_CLIP_ROWS = 2000
_CLIP_QUANTILES = (0.5, 0.999)


@parameters
class PublicPrototypes(LatticeParameter, PersonsParameter, EmbeddingClassifier):
    r"""Represent each class by one or several *public* rows, selected under differential privacy.

    The utility of a public row for a class is the sum of its clipped similarities with
    the class's private rows. The exponential mechanism picks a row per class with
    probability proportional to exp(epsilon·utility/sensitivity), or a set of rows by
    the utility of its worst member. This is pure differential privacy.

    Parameters
    ----------
    budget : GaussianDP, ZCDP, ApproxDP or PureDP, default=None
        What the whole fit may spend. Of ZCDP(rho) a selection uses epsilon =
        sqrt(8·rho), of GaussianDP(mu) epsilon = 2·log(Phi(mu/2)/Phi(-mu/2)).
    n_prototypes : int, default=1
        Rows per class (the papers' K).
    clip : "auto" or (float, float), default="auto"
        Bounds (d_min, d_max) within [0, 2] on 1 + cosine similarity. ``"auto"`` takes
        quantiles of the similarities among public rows, at no cost. (0, 2) clips
        nothing.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
        Under ``"replace-one"`` a record changes two selections, or one twice as much,
        so each is half as sharp.

    Attributes
    ----------
    public_indices_ : ndarray of shape (n_classes, n_prototypes), int64
        Positions of the selected rows in the public rows, ascending within a class.
        Safe to publish.
    public_ids_ : ndarray of shape (n_classes, n_prototypes), object, or None
        Their ids, if `public` has a table that has them.
    prototypes_ : ndarray of shape (n_classes, n_prototypes, dim), int8
        Their lattice rows.
    clip_ : tuple of float
        The bounds (d_min, d_max) in use.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record (or replace one).
    Released: `public_indices_`. Sensitivity: a record adds an integer between 0 and
    about (d_max - d_min)·s² to each utility of its own class, so utilities are
    monotone, and disjoint classes cost what one does. Public inputs: `classes`,
    `public`, all parameters, `n_features`. Not covered: choice of parameters by private
    data, timing, a changed label under add/remove (two steps).

    References
    ----------
    .. [1] Wahdany, Jagielski, Dziedzic, Boenisch, DPPL-v1 (arXiv:2406.08039), sections
    4.2, C.3, C.4 (eq. 7) and D.1.
       Its eq. (6) for several rows is corrected here, see
       `dppl.kernel.mechanisms.ExponentialMechanism`.

    Examples
    --------
    >>> from dppl import PublicData, PublicPrototypes, PureDP
    >>> from dppl.io import load_sample
    >>> sample = load_sample()
    >>> model = PublicPrototypes(PureDP(1), sample.classes, public=PublicData(sample.X_public))
    >>> model.fit(sample.X, sample.y).public_indices_.shape
    (10, 1)
    """

    prototypes_: NDArray[np.int8] = field(init=False)
    public_indices_: NDArray[np.int64] = field(init=False)
    public_ids_: NDArray[np.object_] | None = field(init=False)
    clip_: tuple[float, float] = field(init=False)
    _RELEASED = "prototypes_"
    public_rows = "required"

    n_prototypes: Count = 1
    clip: Literal["auto"] | tuple[float, float] = "auto"
    adjacency: Adjacency = "add-remove"

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        if isinstance(self.clip, str):
            clip = (0.0, 2.0)
        else:
            clip = self.clip
        if np.shape(clip) != (2,) or not 0 <= clip[0] < clip[1] <= 2:
            raise ParameterError(
                f"must be 'auto' or (d_min, d_max) with 0 <= d_min < d_max <= 2; got {self.clip!r}.",
                parameter="clip",
            )

    def prepare(self, setting: Setting) -> tuple[float, float]:
        """Return the bounds of similarities: the parameter's own, or what public rows say."""
        public = setting.public.rows
        if public is None:
            raise ParameterError(
                "is required: PublicPrototypes selects among public rows. SoftmaxPrototypes, the default, needs none.",
                parameter="public",
            )
        n_public = public.shape[0]
        least = self.n_prototypes
        if n_public < least:
            raise InputError(
                f"public.rows must be at least {least}, to select as many for a class; got {n_public}."
            )
        if isinstance(self.clip, str):
            low, high = _auto_clip(public, setting.lattice)
        else:
            low, high = self.clip
        return float(low), float(high)

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare the selection."""
        selection = Selection(
            setting.lattice, setting.n_classes, self.n_prototypes, setting.prepared
        )
        return {"rows": Measurement(selection)}

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Select rows, and read them."""
        public = setting.public.rows
        assert public is not None  # prepare refused that
        self.clip_ = setting.prepared
        self.public_indices_ = measure("rows", public=public)
        ids = getattr(public, "ids", None)
        self.public_ids_ = None
        if ids is not None:
            self.public_ids_ = np.array(ids, object)[self.public_indices_]
        rows = setting.lattice.transform(
            take_rows(public, self.public_indices_.ravel())
        )
        self.prototypes_ = rows.reshape(*self.public_indices_.shape, -1)

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        shape = len(self.classes_), self.n_prototypes
        return {
            "prototypes": (np.int8, (*shape, self.lattice_.dim)),
            "public_indices": (np.int64, shape),
        }

    def _complete(self, setting: Setting) -> None:
        self._fitted_with["clip"] = (
            self.clip_
        )  # the bounds that "auto" found, which a loaded model has, too

    def _restore(self, tensors: dict[str, Array], parameters: dict[str, Any]) -> None:
        super()._restore(tensors, parameters)
        if (self.public_indices_ < 0).any():
            raise Misfit("its positions of public rows do not fit its classes")
        self.public_ids_ = None
        self.clip_ = parameters["clip"]

    def _class_scores(self, features: Float32) -> Float:
        # The mean distance to unit prototypes (DPPL-v1 eq. 7) is one minus the product
        # with their mean.
        directions = unit_directions(self.prototypes_).mean(axis=1)
        return np.asarray(features.astype(np.float64) @ directions.T)

    def _sharpness(self) -> float:
        # Several rows that point in many directions have a short mean, which makes
        # probabilities cautious by itself.
        return cosine_sharpness(unit_directions(self.prototypes_).mean(axis=1))


def _auto_clip(public: RowSource, lattice: Lattice) -> tuple[float, float]:
    """Return bounds on 1 + cosine from similarities among public rows, which cost nothing."""
    # Below the median a similarity says "unrelated"; hardly a pair lies above the upper
    # quantile. Between them a record can say the most per unit of sensitivity.
    n = public.shape[0]
    looked_at = np.linspace(0, n - 1, min(n, _CLIP_ROWS)).astype(np.int64)
    # Of the lattice rows: these are the same whether a table holds embeddings or their
    # lattice rows.
    features = Lattice(lattice.dim).features(
        lattice.transform(take_rows(public, looked_at))
    )
    features = features[features.any(axis=1)]
    similarities = (features @ features.T)[np.triu_indices(len(features), 1)]
    if similarities.size:
        low, high = np.clip(
            1 + np.quantile(similarities, _CLIP_QUANTILES).astype(np.float64), 0, 2
        )
        if low < high:
            return float(low), float(high)
    return 0.0, 2.0
