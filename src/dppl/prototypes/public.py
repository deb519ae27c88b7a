"""DPPL-Public: each class is represented by public rows that the exponential mechanism selects."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate, groupby
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl import _validate
from dppl._progress import progress
from dppl.errors import InputError, ParameterError
from dppl.estimators import EmbeddingClassifier
from dppl.estimators.model_file import Misfit, check_tensor
from dppl.estimators.plan import Plan
from dppl.estimators.public_data import PublicData
from dppl.estimators.reading import UnknownLabels
from dppl.estimators.sums import HeldRecords, Records, RowsByClass, public_rows_at
from dppl.lattice import (
    DEVICE_ROWS,
    PUBLIC_ROWS,
    Lattice,
    RowSource,
    SimilarityClip,
    TensorRows,
    each_utilities,
    iter_blocks,
    lattice_blocks,
    utilities,
)
from dppl.lattice.tensors import as_numpy, on_device
from dppl.mechanisms import ExponentialMechanism, Randomness, Tally
from dppl.mechanisms.exponential import Wanted
from dppl.privacy import Budget, Release
from dppl.privacy.guarantee import Adjacency
from dppl.prototypes._shared import cosine_sharpness, unit_directions

Int64 = NDArray[np.int64]

# Tallies of parts of the public rows may take so many bytes together; the more parts, the less is looked at again.
_TALLY_BYTES = 1 << 25
# The second look holds about so many bytes of rows and utilities at a time.
_LOOK_BYTES = 1 << 23
# So many utilities of a block come from a device at a time.
_UTILITIES = 1 << 21
# clip="auto": similarities among this many public rows, and their quantiles that become the bounds.
_CLIP_ROWS = 2000
_CLIP_QUANTILES = (0.5, 0.999)


@dataclass(frozen=True, slots=True)
class _Selection:
    """Bounds on 1 + cosine, and the mechanism that selects rows by similarities within them."""

    bounds: tuple[float, float]
    of_rows: ExponentialMechanism


class PublicPrototypes(EmbeddingClassifier):
    r"""Represent each class by one or several *public* rows, selected under differential privacy.

    The utility of a public row for a class is the sum of its clipped similarities with the class's private rows. The
    exponential mechanism picks a row per class with probability proportional to exp(epsilon·utility/sensitivity), or a
    set of rows by the utility of its worst member. This is pure differential privacy; what is released are positions of
    public rows.

    Parameters
    ----------
    budget : GaussianDP, ZCDP, ApproxDP or PureDP, default=None
        What the whole fit may spend. Of ZCDP(rho) a selection uses epsilon = sqrt(8·rho), of GaussianDP(mu)
        epsilon = 2·log(Phi(mu/2)/Phi(-mu/2)).
    classes : array-like of shape (n_classes,), default=None
        Public list of classes. A class without records gets a uniform draw.
    n_prototypes : int, default=1
        Rows per class (the papers' K).
    clip : "auto" or (float, float), default="auto"
        Bounds (d_min, d_max) within [0, 2] on 1 + cosine similarity. ``"auto"`` takes quantiles of the similarities
        among public rows, at no cost. (0, 2) clips nothing.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
        Under ``"replace-one"`` a record changes two selections, or one twice as much, so each is half as sharp.
    pool : int, default=1
        Kernel size of average pooling over neighbouring coordinates.
    center : array-like of shape (n_features,) or "public", default=None
        Public mean that is subtracted from unit rows; ``"public"`` takes that of `X_public`.
    rotation : int or "auto", default=None
        Seed of a public rotation, for encoders with a few huge coordinates; ``"auto"`` rotates if `X_public` needs it.
    unknown_labels : {"error", "ignore"}, default="error"
        What to do with a label outside `classes`: stop without showing it, or leave the record out silently.
    random_state : int, default=None
        None draws noise from the operating system. An integer repeats a run, and the guarantee then says that the model
        must not be released.

    Attributes
    ----------
    public_indices_ : ndarray of shape (n_classes, n_prototypes), int64
        Positions of the selected rows in `X_public`, ascending within a class. Safe to publish.
    public_ids_ : ndarray of shape (n_classes, n_prototypes), object, or None
        Their ids, if `X_public` is a table that has them.
    prototypes_ : ndarray of shape (n_classes, n_prototypes, dim), int8
        Their lattice rows.
    clip_ : tuple of float
        The bounds (d_min, d_max) in use.
    classes_, guarantee_, lattice_, n_features_in_, encoder_
        As in `MeanPrototypes`.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record (or replace one). Released: `public_indices_`.
    Sensitivity: a record adds an integer between 0 and about (d_max - d_min)·s² to each utility of its own class, so
    utilities are monotone, and disjoint classes cost together what one does. Public inputs: `classes`, `X_public`, all
    parameters, `n_features`. Not covered: choice of parameters by private data, timing, a changed label under
    add/remove (two steps).

    References
    ----------
    .. [1] Wahdany, Jagielski, Dziedzic, Boenisch, DPPL-v1 (arXiv:2406.08039), sections 4.2, C.3, C.4 (eq. 7) and D.1.
       Its eq. (6) for several rows is corrected here, see `dppl.mechanisms.ExponentialMechanism`.

    Examples
    --------
    >>> from dppl import PureDP, PublicPrototypes
    >>> from dppl.data import load_sample
    >>> sample = load_sample()
    >>> model = PublicPrototypes(PureDP(1), classes=sample.classes)
    >>> model.fit(sample.X, sample.y, X_public=sample.X_public).public_indices_.shape
    (10, 1)
    """

    prototypes_: NDArray[np.int8]
    public_indices_: NDArray[np.int64]
    public_ids_: NDArray[np.object_] | None
    _PURE = True
    _RELEASED = "prototypes_"

    clip_: tuple[float, float]

    def __init__(
        self,
        budget: Budget | None = None,
        classes: ArrayLike | None = None,
        n_prototypes: int = 1,
        *,
        clip: Literal["auto"] | tuple[float, float] = "auto",
        adjacency: Adjacency = "add-remove",
        pool: int = 1,
        center: ArrayLike | Literal["public"] | None = None,
        rotation: int | Literal["auto"] | None = None,
        unknown_labels: UnknownLabels = "error",
        random_state: int | None = None,
    ) -> None:
        self.budget = budget
        self.classes = classes
        self.n_prototypes = n_prototypes
        self.clip = clip
        self.adjacency = adjacency
        self.pool = pool
        self.center = center
        self.rotation = rotation
        self.unknown_labels = unknown_labels
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _validate.positive_integer(n_prototypes=self.n_prototypes)
        if isinstance(self.clip, str):
            _validate.one_of(("auto",), clip=self.clip)
            return
        low, high = self.clip
        if not 0 <= low < high <= 2:
            raise ParameterError(
                f"must be 'auto' or (d_min, d_max) with 0 <= d_min < d_max <= 2; got {self.clip!r}.", parameter="clip"
            )

    def _mechanism(self, lattice: Lattice, public: PublicData) -> _Selection:
        rows = public.rows
        if rows is None:
            raise InputError("PublicPrototypes selects among public rows; pass them to fit as X_public.")
        if rows.shape[0] < self.n_prototypes:
            raise InputError(
                f"selecting {self.n_prototypes} rows for a class needs at least as many public ones; got "
                f"{rows.shape[0]}; pass more of them, or select fewer."
            )
        low, high = _auto_clip(public, lattice) if isinstance(self.clip, str) else self.clip
        bounds = float(low), float(high)
        sensitivity = _similarity_clip(bounds, lattice).sensitivity
        budget = self.resolved_budget
        within = ExponentialMechanism.within(budget, sensitivity, self.n_prototypes, adjacency=self.adjacency)
        return _Selection(bounds, within)

    def _releases(self, mechanism: _Selection, n_classes: int, dim: int) -> tuple[Release, ...]:
        statistic = f"positions of {self.n_prototypes} public rows for each of {n_classes} classes"
        return (mechanism.of_rows.describe(statistic, adjacency=self.adjacency),)

    @property
    def _sums_alone(self) -> bool:
        return True

    def _release_sums(self, plan: Plan, records: Records, source: Randomness) -> None:
        public, mechanism = plan.public.rows, plan.mechanism.of_rows
        assert public is not None  # _mechanism refused that
        self.clip_ = plan.mechanism.bounds
        clip = _similarity_clip(self.clip_, self.lattice_)
        scores = _Scores.of(public.shape[0], self.lattice_, len(self.classes_), clip, mechanism)
        pool = _PublicPool(records, records.split(public), scores)
        self.public_indices_ = mechanism.select_each(pool.tallies(), pool.look, source)
        ids = getattr(public, "ids", None)
        self.public_ids_ = None if ids is None else np.array(ids, object)[self.public_indices_]
        indices = self.public_indices_.ravel()
        selected = self.lattice_.transform(public_rows_at(public, indices, plan.public.engine))
        self.prototypes_ = selected.reshape(*self.public_indices_.shape, self.lattice_.dim)

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {"prototypes": self.prototypes_, "public_indices": self.public_indices_}

    def _saved_parameters(self) -> dict[str, Any]:
        return {**self._fitted_with, "clip": self.clip_}

    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        shape = len(self.classes_), self.n_prototypes
        self.prototypes_ = check_tensor(tensors, "prototypes", (*shape, self.lattice_.dim), np.int8)
        self.public_indices_ = check_tensor(tensors, "public_indices", shape, np.int64)
        if (self.public_indices_ < 0).any():
            raise Misfit("its positions of public rows do not fit its classes")
        self.public_ids_ = None
        self.clip_ = parameters["clip"]

    def _uses_public_rows(self, public: PublicData) -> bool:
        return True

    def _class_scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        # The mean distance to unit prototypes (DPPL-v1 eq. 7) is one minus the product with their mean.
        directions = unit_directions(self.prototypes_).mean(axis=1)
        return np.asarray(features.astype(np.float64) @ directions.T)

    def _sharpness(self) -> float:
        # Several rows that point in many directions have a short mean, which makes probabilities cautious by itself.
        return cosine_sharpness(unit_directions(self.prototypes_).mean(axis=1))


class _PublicPool:
    """The candidates, in pieces of which each is scored by itself, in parts with a tally each."""

    def __init__(self, records: Records, pieces: Sequence[RowSource], scores: _Scores) -> None:
        self._records, self._pieces, self._scores = records, pieces, scores
        rows = [piece.shape[0] for piece in pieces]
        self._first_rows = [0, *accumulate(rows)]
        self._first_parts = [0, *accumulate(map(scores.n_parts, rows))]

    def tallies(self) -> list[Tally]:
        """Return one for each part."""
        found = dict(self._records.each(self._scores.tallies, self._pieces))
        places = range(len(self._pieces))
        self._hashes = [found[place][1] for place in places]
        return [tally for place in places for tally in found[place][0]]

    def look(self, wanted: Wanted) -> Iterator[tuple[int, int, Int64, Int64]]:
        """Yield what `ExponentialMechanism.select_each` wants to see again, in one pass over pieces that hold it."""
        of_pieces: dict[int, Wanted] = {}
        for part, classes in wanted.items():
            place = bisect_right(self._first_parts, part) - 1
            of_pieces.setdefault(place, {})[part - self._first_parts[place]] = classes
        places = list(of_pieces)
        items = [(self._pieces[place], of_pieces[place], self._hashes[place]) for place in places]
        for item, (code, part, few, positions) in self._records.each(self._scores.look, items):
            place = places[item]
            yield code, part + self._first_parts[place], few, positions + self._first_rows[place]


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """Utilities of pieces of the public rows: public parameters, which travel. A part is a number of whole blocks."""

    lattice: Lattice
    n_classes: int
    clip: SimilarityClip
    mechanism: ExponentialMechanism
    block_rows: int
    part_rows: int

    @classmethod
    def of(
        cls, n_public: int, lattice: Lattice, n_classes: int, clip: SimilarityClip, mechanism: ExponentialMechanism
    ) -> _Scores:
        empty = mechanism.tally(np.empty((n_classes, 0), np.int64))
        # A tally takes the same memory for few rows as for many.
        n_parts = max(1, _TALLY_BYTES // (4 * empty.counts.size + empty.best.nbytes))
        part_rows = PUBLIC_ROWS * math.ceil(n_public / (PUBLIC_ROWS * n_parts))
        return cls(lattice, n_classes, clip, mechanism, PUBLIC_ROWS, part_rows)

    def n_parts(self, rows: int) -> int:
        return math.ceil(rows / self.part_rows)

    def tallies(self, records: HeldRecords, piece: RowSource) -> Iterator[tuple[list[Tally], list[bytes]]]:
        """Yield the tallies of the parts of a piece, and hashes of their lattice rows; none of rows on a device."""
        private, n_public = self._private(records, piece), piece.shape[0]
        empty = self.mechanism.tally(np.empty((self.n_classes, 0), np.int64))
        parts, lock = [empty] * self.n_parts(n_public), Lock()

        def count(start: int, block: Any, few: Int64) -> None:
            usable = _usable(block)
            for part in range(start // self.part_rows, self.n_parts(start + len(block))):
                inside = slice(max(0, part * self.part_rows - start), (part + 1) * self.part_rows - start)
                scores, kept = few[:, inside], usable[inside]
                tally = self.mechanism.tally(scores if kept.all() else scores[:, kept])
                with lock:  # in any order, the same integers
                    parts[part] = Tally.merged([parts[part], tally])
            with lock:
                advance(len(block))

        hashes = _Hashes(self.part_rows)
        if on_device(piece):
            # A device wants more rows at a time than a part may have.
            size = max(self.block_rows, min(DEVICE_ROWS, _UTILITIES // self.n_classes))
            blocks = lattice_blocks(self.lattice, piece, size)
        else:
            blocks = (hashes.of(start, block) for start, block in self._blocks(piece, range(len(parts))))
        with progress("selecting", n_public) as advance:
            each_utilities(private.rows, private.sizes, blocks, n_public, self.lattice, self.clip, count)
        # Nobody but this process can change what is on a device.
        yield parts, [] if on_device(piece) else [hashes.found[part].digest() for part in range(len(parts))]

    def look(
        self, records: HeldRecords, item: tuple[RowSource, Wanted, list[bytes]]
    ) -> Iterator[tuple[int, int, Int64, Int64]]:
        """Yield what is sought in a piece; parts and positions are those within it.

        Raises
        ------
        InputError
            If the rows are not those of the tallies. Scores of others would not be those that the draw was made by, and
            which candidate has them would tell the draw's private bins.
        """
        piece, wanted, before = item
        private, hashes = self._private(records, piece), _Hashes(self.part_rows)

        def held(block: tuple[int, Any]) -> tuple[int, int]:
            part, offset = divmod(block[0], self.part_rows)
            return part, offset * (self.lattice.dim + 8 * len(wanted[part])) // _LOOK_BYTES

        for (part, _), group in groupby(self._blocks(piece, wanted), held):
            starts, blocks = zip(*group, strict=True)
            for start, block in zip(starts, blocks, strict=True) if before else ():
                hashes.of(start, block)
            usable = np.flatnonzero(np.concatenate([_usable(block) for block in blocks]))
            size = sum(map(len, blocks))
            few = utilities(private.of_classes(wanted[part]), blocks, size, self.lattice, self.clip)
            for (code, bins), scores in zip(wanted[part].items(), few, strict=True):
                sought = usable[self.mechanism.is_sought(scores[usable], bins)]
                yield code, part, scores[sought], starts[0] + sought
        if before and any(hashes.found[part].digest() != before[part] for part in wanted):
            raise InputError("the public rows changed while they were read.")

    def _private(self, records: HeldRecords, piece: RowSource) -> RowsByClass:
        """Return private lattice rows, beside public ones that are on a device: there are more of those."""
        private = records.by_class(self.lattice, self.n_classes)
        return private.beside(piece.tensor) if on_device(piece) else private

    def _blocks(self, piece: RowSource, parts: Collection[int]) -> Iterator[tuple[int, Any]]:
        """Yield positions and lattice rows of blocks, none of which lies in two parts."""
        if on_device(piece):
            for part in parts:
                inside = piece.tensor[part * self.part_rows : (part + 1) * self.part_rows]
                for offset, rows in enumerate(lattice_blocks(self.lattice, TensorRows(inside), self.block_rows)):
                    yield part * self.part_rows + offset * self.block_rows, rows
            return
        if isinstance(piece, np.ndarray):
            for part in parts:
                inside = piece[part * self.part_rows : (part + 1) * self.part_rows]
                for offset in range(0, len(inside), self.block_rows):
                    rows = inside[offset : offset + self.block_rows]
                    yield part * self.part_rows + offset, self.lattice.transform(rows)
            return
        start = 0
        for block in iter_blocks(piece, self.block_rows):
            edge = -start % self.block_rows  # a table may yield blocks of any size
            for rows in (block[:edge], block[edge:]):
                if len(rows) and start // self.part_rows in parts:
                    yield start, self.lattice.transform(rows)
                start += len(rows)


class _Hashes:
    """Hashes of the rows of each part, whose blocks come in order."""

    def __init__(self, part_rows: int) -> None:
        self._part_rows = part_rows
        self.found: defaultdict[int, Any] = defaultdict(sha256)

    def of(self, start: int, block: NDArray[np.int8]) -> NDArray[np.int8]:
        """Take a block in, and return it."""
        self.found[start // self._part_rows].update(block.data)
        return block


def _usable(block: Any) -> NDArray[np.bool_]:
    """Tell which rows are candidates: a damaged public row maps to zero, and represents nothing."""
    return as_numpy(block.any(axis=1))


def _similarity_clip(bounds: tuple[float, float], lattice: Lattice) -> SimilarityClip:
    (low, high), square = bounds, lattice.squared_norm
    return SimilarityClip(low=math.floor((low - 1) * square), high=math.ceil((high - 1) * square))


def _auto_clip(public: PublicData, lattice: Lattice) -> tuple[float, float]:
    """Return bounds on 1 + cosine from similarities among public rows, which cost nothing.

    Below the median of all pairs a similarity says "unrelated"; hardly a pair lies above the upper quantile. Between
    them a record can say the most per unit of sensitivity.
    """
    assert public.rows is not None
    n = public.rows.shape[0]
    looked_at = np.linspace(0, n - 1, min(n, _CLIP_ROWS)).astype(np.int64)
    rows = public_rows_at(public.rows, looked_at, public.engine)
    # Of the lattice rows: these are the same whether a table holds embeddings or their lattice rows.
    features = Lattice(lattice.dim).features(lattice.transform(rows))
    features = features[features.any(axis=1)]
    similarities = (features @ features.T)[np.triu_indices(len(features), 1)]
    if similarities.size:
        low, high = np.clip(1 + np.quantile(similarities, _CLIP_QUANTILES).astype(np.float64), 0, 2)
        if low < high:
            return float(low), float(high)
    return 0.0, 2.0
