"""DPPL-Mean: each class becomes a noisy sum or mean of its embeddings."""

from dataclasses import field
from typing import Literal, TypeAlias

import numpy as np

from dppl._utils.types import Float, Float32
from dppl.errors import Argument, ParameterError
from dppl.kernel import Measure, Measurement
from dppl.kernel.mechanisms import COINPRESS_SPLITS
from dppl.kernel.privacy.guarantee import Adjacency
from dppl.kernel.queries import ClassSums, CoinPressMeans, PublicClassSizes
from dppl.methods import EmbeddingClassifier
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import LatticeParameter, PersonsParameter, parameters
from dppl.methods.shared import cosine_sharpness, noise_variance, unit_directions

Split: TypeAlias = Literal["dppl", "original"]


@parameters
class MeanPrototypes(LatticeParameter, PersonsParameter, EmbeddingClassifier):
    r"""One prototype per class: the sum of its embeddings with Gaussian noise.

    Rows become integers of bounded norm (`Lattice`); the exact integer sums of all
    classes are released in one Gaussian query. Cosine similarity ignores the length of
    a sum, so no private count is needed.

    Parameters
    ----------
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
        ``"replace-one"`` reproduces DPPL-AAAI eq. (1): noisy means, twice the
        sensitivity, and class sizes taken as public.
    coinpress : {"dppl", "original"} or tuple of float, default=None
        DPPL-v1's iterative means instead of sums, by the shares of the budget for each
        step: DPPL-v1's, (5, 7, 52)/64, CoinPress's own, (1, 1, 6)/8, or others. It
        needs ``adjacency="replace-one"``.

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_classes, dim), float64
        Noisy sums (add-remove) or means (replace-one) of unit rows, in the order of
        `classes_`. Safe to publish.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record (or replace one by
    another of its class). Released: `prototypes_`. Sensitivity: s in L2 over the whole
    matrix of sums, where s = 127·√dim/4 lattice steps (2s under replace-one); a record
    touches one class, so all classes cost what one does. Public inputs: `classes`, all
    parameters, `public`, `n_features`; class sizes under replace-one. Not covered:
    choice of parameters by private data, timing, a changed label under add/remove (two
    steps).

    References
    ----------
    .. [1] Wahdany, Jagielski, Dziedzic, Boenisch, DPPL-AAAI (AAAI 2025), eq. (1), and
    DPPL-v1 (arXiv:2406.08039),
       section 4.1.
    .. [2] Dong, Roth, Su (2022), Gaussian differential privacy, arXiv:1905.02383v3.
    """

    prototypes_: Float = field(init=False)
    _RELEASED = "prototypes_"
    replaces_within_classes = True

    adjacency: Adjacency = "add-remove"
    coinpress: Split | tuple[float, ...] | None = None

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        if self.coinpress is not None and self.adjacency != "replace-one":
            raise ParameterError(
                "divides by class sizes, which only ",
                Argument("adjacency", "replace-one"),
                f" treats as public; got {self.adjacency!r}.",
                parameter="coinpress",
            )

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare the class sums, or means by CoinPress; class sizes are public where neighbours agree in them."""
        lattice = setting.lattice
        n_classes = setting.n_classes
        if self.coinpress is not None:
            split = self.coinpress
            if isinstance(split, str):
                split = COINPRESS_SPLITS[split]
            return {
                "means": Measurement(CoinPressMeans(lattice, n_classes, tuple(split)))
            }
        if self.adjacency == "replace-one":
            sizes = {"sizes": Measurement(PublicClassSizes(n_classes))}
        else:
            sizes = {}
        return {"sums": Measurement(ClassSums(lattice, n_classes)), **sizes}

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Divide sums by their unit, and by public class sizes."""
        if "means" in measure:
            self.prototypes_ = measure("means")
            return
        self.prototypes_ = measure("sums") / measure.unit("sums")
        if "sizes" in measure:
            self.prototypes_ /= np.maximum(measure("sizes"), 1)[:, None]

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        return {"prototypes": (np.float64, (len(self.classes_), self.lattice_.dim))}

    def _class_scores(self, features: Float32) -> Float:
        return features.astype(np.float64) @ unit_directions(self.prototypes_).T

    def _sharpness(self) -> float:
        # Under replace-one sums are divided by sizes that are not kept, so their noise
        # is not known.
        known = self.adjacency == "add-remove"
        variance = 0.0
        if known:
            variance = noise_variance(self.guarantee_, self.lattice_.scale)
        return cosine_sharpness(self.prototypes_, variance)
