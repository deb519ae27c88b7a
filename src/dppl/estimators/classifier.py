"""What a method of one's own extends."""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from dppl.errors import ParameterError
from dppl.estimators.base import EmbeddingClassifier
from dppl.estimators.parameters import parameters
from dppl.estimators.plan import Setting


@parameters
class Classifier(EmbeddingClassifier):
    """A linear classifier that a method of one's own learns from noisy answers alone.

    A method implements two functions. ``measurements(setting)`` declares what it will ask of the private records, as a
    dictionary of `dppl.kernel.Measurement`, from parameters and public values. ``learn(measure, setting)`` asks
    ``measure(name, **released)``, which answers with noise, and sets `coef_` and, if it likes, `intercept_`. The
    statement, the charge, the noise and the checks follow from the measurements; docs/own-method.md has an example.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, dim), float64
        Weights on unit rows, in the order of `classes_`. Safe to publish.
    intercept_ : ndarray of shape (n_classes,), float64
        Added to the scores; zeros unless `learn` sets them. Safe to publish.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the answers to the declared
    measurements. Sensitivity: of each the reach of its query (`dppl.kernel.queries`), which the method cannot change.
    Public inputs: `classes`, all parameters, `public`, `n_features`, and whatever `measurements` and `learn` take
    from elsewhere. Not covered: a method that reads private values by another way than `measure`.
    """

    coef_: NDArray[np.float64] = field(init=False)
    intercept_: NDArray[np.float64] = field(init=False)
    _RELEASED = "coef_"

    def _complete(self, setting: Setting) -> None:
        self.intercept_ = getattr(self, "intercept_", np.zeros(setting.n_classes))
        shapes = {"coef_": (setting.n_classes, setting.lattice.dim), "intercept_": (setting.n_classes,)}
        for name, shape in shapes.items():
            learned = np.asarray(getattr(self, name, np.nan), np.float64)
            if learned.shape != shape or not np.isfinite(learned).all():
                got = learned.shape if learned.shape != shape else "numbers that are not finite"
                raise ParameterError(f"learn must set {name}, finite and of shape {shape}; got {got}.")
            setattr(self, name, learned)

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        n_classes = len(self.classes_)
        return {"coef": (np.float64, (n_classes, self.lattice_.dim)), "intercept": (np.float64, (n_classes,))}

    def _class_scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.asarray(features.astype(np.float64) @ self.coef_.T + self.intercept_)
