"""DPPL-Mean with means by FriendlyCore, which omits what lies far from its class."""

from dataclasses import field

import numpy as np

from dppl._utils.types import Float, Float32
from dppl.errors import ParameterError
from dppl.kernel import Measure, Measurement
from dppl.lab.friendly import FriendlyMeans
from dppl.methods import EmbeddingClassifier
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import LatticeParameter, Positive, parameters
from dppl.methods.shared import cosine_sharpness, unit_directions

# No two rows of norm 1 lie further apart.
_FURTHEST = 2.0


@parameters
class FriendlyCoreMeans(LatticeParameter, EmbeddingClassifier):
    r"""One prototype per class: the noisy mean of its rows that lie close to most others of the class.

    DPPL-v1 and DPPL-AAAI name FriendlyCore next to plain means and CoinPress. A row is
    kept if more than half of its class lie within `radius` of it, by a margin that
    noise needs. The mean of those that are kept gets noise of twice the radius, divided
    by a private lower bound of their number.

    Parameters
    ----------
    budget : ApproxDP, default=None
        What the whole fit may spend. A quarter of delta is for Gaussian noise, the rest
        for failures.
    radius : float, default=1.2
        Within which rows of norm 1 are friends, at most 2. Choose it by public rows.

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_classes, dim), float64
        Noisy means of unit rows, in the order of `classes_`; zero where too few rows
        were kept to say anything. Safe to publish.

    Notes
    -----
    The noise of a mean is narrower than the noise of `MeanPrototypes` for radii below 0.4 only, since rows have norm 1, and a
    class needs about 500/mu records before any is kept. All pairs of a class are compared.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released:
    `prototypes_`. Sensitivity: of the mean of a core, twice the radius divided by its
    size; that the core has this diameter, and this size, holds except with three
    quarters of delta (`dppl.lab.friendly.FriendlyCore`, with the proof). A record
    touches one class, so all classes cost what one does. It is accounted in (epsilon,
    delta) alone, so no ledger charges it. Public inputs: `classes`, all parameters,
    `public`, `n_features`. Not covered: choice of parameters by private data, timing, a
    changed label (two steps).

    References
    ----------
    .. [1] Tsfadia, Cohen, Kaplan, Mansour, Stemmer (2022), FriendlyCore: practical
    differentially private aggregation,
       ICML, arXiv:2110.10132.
    .. [2] Dong, Roth, Su (2022), arXiv:1905.02383v3, Corollary 3.3 (composition).
    """

    prototypes_: Float = field(init=False)
    _RELEASED = "prototypes_"

    radius: Positive = 1.2

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        if self.radius > _FURTHEST:
            raise ParameterError(
                f"must be at most 2, the distance of opposite rows; got {self.radius!r}.",
                parameter="radius",
            )

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare the means."""
        means = FriendlyMeans(setting.lattice, setting.n_classes, self.radius)
        return {"means": Measurement(means)}

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Take the means."""
        self.prototypes_ = measure("means")

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        return {"prototypes": (np.float64, (len(self.classes_), self.lattice_.dim))}

    def _class_scores(self, features: Float32) -> Float:
        return features.astype(np.float64) @ unit_directions(self.prototypes_).T

    def _sharpness(self) -> float:
        return cosine_sharpness(self.prototypes_)
