"""Few-shot learners on features, without privacy: they learn from public classes how to compare, and then compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.preprocessing import normalize

from dppl._utils.optional import optional
from dppl._utils.types import Array, Float
from dppl.errors import InputError
from dppl.lab.ceilings import NonPrivateClassifier

_QUERIES = 15  # of each class in an episode
_HIDDEN = 64
# Cosines of unit rows lie close together; this is what a softmax is given of them.
_SCALE = 100.0
_TINY = 1e-30


class _Trial(NamedTuple):
    known: Any  # records, of shape (n_known, width)
    each: Any  # their classes, one-hot
    rows: Any  # to classify, of shape (n, width)


class NonPrivateFewShot(NonPrivateClassifier):
    """NOT PRIVATE. A linear layer on unit rows, trained in episodes of public classes; subclasses compare with it.

    An episode is a trial as `fit` is given one: as many classes, as many records of
    each, and other records to classify. Published networks are trained whole in this
    way; here the encoder stays as it is, and the layer starts as the identity.

    Parameters
    ----------
    episodes : int, default=300
    learning_rate : float, default=1e-3
        Of Adam.
    random_state : int, default=0
        Draws episodes.
    """

    def __init__(
        self, episodes: int = 300, learning_rate: float = 1e-3, random_state: int = 0
    ) -> None:
        self.episodes = episodes
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(  # type: ignore[override]
        self, X: ArrayLike, y: ArrayLike, *, base: tuple[ArrayLike, ArrayLike]
    ) -> Self:
        """Learn to compare from the classes of `base`, and keep the records to compare with.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
        y : array-like of shape (n_records,)
        base : (array-like of shape (n_base, n_features), array-like of shape (n_base,))
            Public rows of other classes, with their labels.
        """
        self._base = base
        super().fit(X, y)
        del self._base
        return self

    def _classifier(self) -> _Comparison:
        return _Comparison(self)

    def _weights(self, torch: Any, width: int) -> list[Any]:
        """Return what episodes train: the layer."""
        return [torch.eye(width)]

    def _scores(self, torch: Any, weights: list[Any], trial: _Trial) -> Any:
        """Return log-probabilities (n, n_classes) of the rows of a trial."""
        raise NotImplementedError

    def _loss(self, torch: Any, scores: Any, codes: Any) -> Any:
        return torch.nn.functional.cross_entropy(scores, codes)


class NonPrivateProtoNet(NonPrivateFewShot):
    """NOT PRIVATE. Prototypical network: the class whose mean embedded record is nearest, squared distances as logits.

    References
    ----------
    Snell, Swersky, Zemel (2017), Prototypical networks for few-shot learning, NeurIPS.
    """

    def _scores(self, torch: Any, weights: list[Any], trial: _Trial) -> Any:
        (layer,) = weights
        sizes = trial.each.sum(0)[:, None]
        means = trial.each.T @ trial.known @ layer / sizes
        away = (trial.rows @ layer)[:, None] - means
        return -_SCALE * away.square().sum(-1)


class NonPrivateMatchingNet(NonPrivateFewShot):
    """NOT PRIVATE. Matching network: the class with the most attention, a softmax of cosines over all records.

    Without the embeddings in context, which read all records in some order.

    References
    ----------
    Vinyals, Blundell, Lillicrap, Kavukcuoglu, Wierstra (2016), Matching networks for one
    shot learning, NeurIPS.
    """

    def _scores(self, torch: Any, weights: list[Any], trial: _Trial) -> Any:
        (layer,) = weights
        rows = torch.nn.functional.normalize(trial.rows @ layer)
        known = torch.nn.functional.normalize(trial.known @ layer)
        attention = torch.softmax(_SCALE * rows @ known.T, dim=1)
        # A class that gets none of it has a logarithm, too.
        return (attention @ trial.each + _TINY).log()


class NonPrivateRelationNet(NonPrivateFewShot):
    """NOT PRIVATE. Relation network: a small network says how well a row goes with the mean of a class's records.

    Published are sums, whose length follows the number of records.

    References
    ----------
    Sung, Yang, Zhang, Xiang, Torr, Hospedales (2018), Learning to compare: relation
    network for few-shot learning, CVPR.
    """

    def _weights(self, torch: Any, width: int) -> list[Any]:
        shapes = ((2 * width, _HIDDEN), (_HIDDEN,), (_HIDDEN, 1))
        drawn = [torch.randn(shape) / (shape[0] / 2) ** 0.5 for shape in shapes]
        # Features of unit rows are small beside what such weights are for.
        return [torch.eye(width) * width**0.5, *drawn]

    def _scores(self, torch: Any, weights: list[Any], trial: _Trial) -> Any:
        layer, first, bias, last = weights
        sizes = trial.each.sum(0)[:, None]
        means = trial.each.T @ trial.known @ layer / sizes
        means = means.expand(len(trial.rows), -1, -1)
        rows = (trial.rows @ layer)[:, None]
        pairs = torch.cat([means, rows.expand_as(means)], dim=-1)
        hidden = torch.relu(pairs @ first + bias)
        return torch.sigmoid(hidden @ last)[..., 0]

    def _loss(self, torch: Any, scores: Any, codes: Any) -> Any:
        wanted = torch.nn.functional.one_hot(codes, scores.shape[1]).to(scores)
        return torch.nn.functional.mse_loss(scores, wanted)


class _Comparison:
    """What `NonPrivateClassifier` fits: the weights of a learner, and its records."""

    def __init__(self, learner: NonPrivateFewShot) -> None:
        self._learner = learner

    def fit(self, rows: Float, labels: Array) -> Self:
        learner = self._learner
        torch = optional("torch", "torch", "torch")
        self.classes_, codes = np.unique(labels, return_inverse=True)
        one_hot = torch.eye(len(self.classes_))
        self._known = torch.from_numpy(np.float32(rows))
        self._each = one_hot[torch.from_numpy(codes)]
        with torch.random.fork_rng():
            torch.manual_seed(learner.random_state)
            self._weights = learner._weights(torch, rows.shape[1])
        for weight in self._weights:
            weight.requires_grad_()
        steps = torch.optim.Adam(self._weights, lr=learner.learning_rate)
        X, y = learner._base
        public = torch.from_numpy(normalize(np.asarray(X, np.float32)))
        shots = int(np.bincount(codes).min())
        each = one_hot.repeat_interleave(shots, dim=0)
        for known, asked in _episodes(np.asarray(y), len(one_hot), shots, learner):
            trial = _Trial(public[known.ravel()], each, public[asked.ravel()])
            scores = learner._scores(torch, self._weights, trial)
            answers = torch.arange(len(asked)).repeat_interleave(asked.shape[1])
            steps.zero_grad()
            learner._loss(torch, scores, answers).backward()
            steps.step()
        return self

    def predict(self, rows: Float) -> Array:
        torch = optional("torch", "torch", "torch")
        given = torch.from_numpy(np.float32(rows))
        trial = _Trial(self._known, self._each, given)
        with torch.no_grad():
            scores = self._learner._scores(torch, self._weights, trial)
        return np.asarray(self.classes_[scores.argmax(1).numpy()])


def _episodes(
    y: Array, ways: int, shots: int, learner: NonPrivateFewShot
) -> Iterator[tuple[Array, Array]]:
    """Yield places of base rows, of shape (ways, shots), and of others of the same classes."""
    classes, codes = np.unique(y, return_inverse=True)
    places = [np.flatnonzero(codes == code) for code in range(len(classes))]
    enough = [one for one in places if len(one) > shots]
    if len(enough) < ways:
        raise InputError(
            f"episodes need {ways} public classes of more than {shots} records each; got {len(enough)}. "
            "Give more of them, or take fewer ways or shots."
        )
    queries = min(_QUERIES, min(map(len, enough)) - shots)
    rng = np.random.default_rng(learner.random_state)
    for _ in range(learner.episodes):
        classes = rng.choice(len(enough), ways, replace=False)
        drawn = np.stack(
            [
                rng.choice(enough[code], shots + queries, replace=False)
                for code in classes
            ]
        )
        yield drawn[:, :shots], drawn[:, shots:]
