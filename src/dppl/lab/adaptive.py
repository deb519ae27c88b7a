"""DPPL-Public or DPPL-Mean, whichever a public rule takes for the budget and the size of the classes."""

import math
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils.types import Array, Float, Float32
from dppl.errors import ParameterError
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice import Lattice
from dppl.kernel.privacy.budgets import checked_budget
from dppl.kernel.privacy.release import Misfit
from dppl.methods import EmbeddingClassifier
from dppl.methods.fit_plan import Setting
from dppl.methods.mean import MeanPrototypes
from dppl.methods.parameters import LatticeParameter, Positive, parameters
from dppl.methods.public import PublicPrototypes
from dppl.methods.shared import cosine_sharpness, noise_variance, unit_directions


@parameters
class AdaptivePrototypes(LatticeParameter, EmbeddingClassifier):
    r"""`PublicPrototypes` at small budgets for the class size, and `MeanPrototypes` at larger ones.

    Both DPPL papers suggest this choice in section 5.1, and give no rule. Here means
    are taken if the sum of `class_size` unit rows is at least `crossover` times as long
    as the noise of a sum, √dim/mu. The rule reads the budget and public numbers, so the
    one that it takes spends the whole budget.

    Parameters
    ----------
    class_size : float, default=None
        A public guess of the number of records of the smallest class, never taken from
        the private data. It is required.
    crossover : float, default=0.15
        The ratio of both lengths from which means are taken. The better the public rows
        represent the classes, the larger.

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_classes, dim), float64, or (n_classes, 1, dim), int8
        What `MeanPrototypes` or `PublicPrototypes` released. Safe to publish.
    public_indices_, public_ids_
        As in `PublicPrototypes`, where it was taken.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record. Released: as by
    the one that was taken, which the statement shows. Sensitivity: as there. Public
    inputs: `classes`, all parameters, `public`, `n_features`. Not covered: choice of
    parameters by private data, timing, a changed label (two steps).

    References
    ----------
    .. [1] DPPL-v1 (arXiv:2406.08039) and DPPL-AAAI (AAAI 2025), section 5.1.
    """

    prototypes_: Array = field(init=False)
    public_indices_: NDArray[np.int64] = field(init=False)
    public_ids_: NDArray[np.object_] | None = field(init=False)

    class_size: Positive | None = None
    crossover: Positive = 0.15

    _RELEASED = "prototypes_"
    public_rows = "required"

    def _takes_means(self, lattice: Lattice) -> bool:
        if self.class_size is None:
            raise ParameterError(
                "is required: a public guess of how many records the smallest class has.",
                parameter="class_size",
            )
        mu = checked_budget(self.budget).gaussian_allowance().mu
        return self.class_size >= self.crossover * math.sqrt(lattice.dim) / mu

    def prepare(
        self, setting: Setting
    ) -> tuple[MeanPrototypes | PublicPrototypes, Setting]:
        """Take one of both, and set it up."""
        # The one that is not taken is neither declared nor paid for.
        taken: MeanPrototypes | PublicPrototypes
        if self._takes_means(setting.lattice):
            taken = MeanPrototypes(self.budget, self.classes)
        else:
            taken = PublicPrototypes(self.budget, self.classes)
        return taken, replace(setting, prepared=taken.prepare(setting))

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare what that one does."""
        taken, inner = setting.prepared
        declared: dict[str, Measurement] = taken.measurements(inner)
        return declared

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Learn as that one does."""
        taken, inner = setting.prepared
        taken.learn(measure, inner)
        self.prototypes_ = taken.prototypes_
        if isinstance(taken, PublicPrototypes):
            self.public_indices_ = taken.public_indices_
            self.public_ids_ = taken.public_ids_

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        n_classes = len(self.classes_)
        dim = self.lattice_.dim
        if self._takes_means(self.lattice_):
            return {"prototypes": (np.float64, (n_classes, dim))}
        return {
            "prototypes": (np.int8, (n_classes, 1, dim)),
            "public_indices": (np.int64, (n_classes, 1)),
        }

    def _restore(self, tensors: dict[str, Array], parameters: dict[str, Any]) -> None:
        super()._restore(tensors, parameters)
        if "public_indices" in tensors:
            if (self.public_indices_ < 0).any():
                raise Misfit("its positions of public rows do not fit its classes")
            self.public_ids_ = None

    def _flat(self) -> Array:
        return self.prototypes_.reshape(len(self.classes_), -1)

    def _class_scores(self, features: Float32) -> Float:
        return features.astype(np.float64) @ unit_directions(self._flat()).T

    def _sharpness(self) -> float:
        variance = noise_variance(self.guarantee_, self.lattice_.scale)
        return cosine_sharpness(self._flat(), variance)
