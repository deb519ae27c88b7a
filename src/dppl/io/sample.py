"""Tasks that need no download: digits behind an encoder that was fitted on public images, and made-up messages."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_SEED = 0
_N_PUBLIC = 860
_N_PRIVATE = 640
# Chosen for non-private accuracy of class means and of public prototypes, on five
# splits of these digits.
_DIMENSION = 32
_NEIGHBOUR = 20  # the distance to this neighbour is the local scale of a point
_SHARPNESS = 8.0
_STEPS = 2

_DESCRIPTION = (
    "1797 handwritten digits of 8 x 8 pixels, split once at random: public images without labels, private "
    "and test images with labels. The encoder, a diffusion map of 32 dimensions, was fitted on the public "
    "images only; its settings were chosen with labels. Public and private images come from the same source, "
    "which makes the task easier than most."
)


_PHRASES = {
    "delivery": (
        "when will {} arrive?",
        "{} has not come yet",
        "was {} posted?",
        "track the delivery of {}",
    ),
    "loss": (
        "I have lost {}",
        "someone stole {}",
        "please block {}",
        "{} fell out of my pocket",
    ),
    "limit": (
        "how much can I spend with {}?",
        "raise the limit of {}",
        "{} was declined, why?",
        "what may {} cost?",
    ),
}
_OWNERS = (
    "my",
    "our",
    "the new",
    "my son's",
    "my wife's",
    "the company's",
    "his",
    "her",
    "a second",
    "the old",
)
_CARDS = ("card", "credit card", "debit card", "bank card", "travel card")
INTENTS = tuple(_PHRASES)
NEW_MESSAGES = (
    "Is my card in the post?",
    "A thief took my purse",
    "What is the most I can pay?",
)


def load_messages() -> list[tuple[str, str]]:
    """Return 600 pairs of a made-up message to a bank and its intent, to try classifiers of texts on."""
    return [
        (phrase.format(f"{owner} {card}"), intent)
        for intent, phrases in _PHRASES.items()
        for phrase, owner, card in product(phrases, _OWNERS, _CARDS)
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Sample:
    """A labelled private part, a public part without labels, and a test part, all embedded by one encoder.

    Attributes
    ----------
    X, X_public, X_test : ndarray of float32 of shape (n, 32)
        Private rows, rows in the public role, and rows for measuring accuracy.
    y, y_test : ndarray of int64 of shape (n,)
        Labels of `X` and of `X_test`.
    public_images : ndarray of uint8 of shape (n_public, 8, 8)
        The images behind `X_public`, 0 (background) to 16.
    classes : ndarray of int64 of shape (10,)
        The digits 0 to 9.
    encoder, description : str
        Name of the encoder, and what the task is, in a few sentences.
    """

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    X_public: npt.NDArray[np.float32]
    public_images: npt.NDArray[np.uint8]
    X_test: npt.NDArray[np.float32]
    y_test: npt.NDArray[np.int64]
    classes: npt.NDArray[np.int64]
    encoder: str
    description: str

    def __repr__(self) -> str:
        return f"<Sample: {self.encoder}>"


def load_sample() -> Sample:
    """Load the built-in task.

    Returns
    -------
    Sample
        The same rows at every call on one machine. The encoder is fitted on the public
        images, without labels, and maps each image by itself.

    Notes
    -----
    The images are scikit-learn's, of UCI's "Optical Recognition of Handwritten Digits" (doi:10.24432/C50P49). The
    encoder is a diffusion map (Coifman and Lafon 2006, doi:10.1016/j.acha.2006.04.006) of the public images with local
    scales (Zelnik-Manor and Perona, NeurIPS 2004), extended to others by the Nyström formula. Its settings were chosen
    with labels, so accuracies are good for demonstrations and tests, not for comparisons.
    """
    # Here and not above: importing sklearn.datasets takes longer than the rest of the
    # package needs.
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = digits.images.astype(np.uint8)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(_SEED).permutation(len(images))
    public, private, test = np.split(order, [_N_PUBLIC, _N_PUBLIC + _N_PRIVATE])
    encoder = _DiffusionMap(images[public])
    return Sample(
        X=encoder.encode(images[private]),
        y=labels[private],
        X_public=encoder.encode(images[public]),
        public_images=images[public],
        X_test=encoder.encode(images[test]),
        y_test=labels[test],
        classes=np.arange(10, dtype=np.int64),
        encoder=f"digits-diffusion-map-{_DIMENSION}",
        description=_DESCRIPTION,
    )


class _DiffusionMap:
    """Diffusion map of some images, for those and others.

    The kernel of two images is exp(-a·|p - q|²/(l(p)·l(q))), where l is the distance to
    the `_NEIGHBOUR`-th image of the map and a the sharpness. Divided by its row sums it
    is a random walk; an image is described by the leading eigenvectors of the walk,
    without the constant one, times their eigenvalues to the power of `_STEPS`.
    """

    def __init__(self, images: npt.NDArray[np.uint8]) -> None:
        self._pixels = images.reshape(len(images), -1).astype(np.float64)
        distances = _squared_distances(self._pixels, self._pixels)
        self._scales = _local_scales(distances)
        kernel = np.exp(-_SHARPNESS * distances / np.outer(self._scales, self._scales))
        degrees = kernel.sum(axis=1)
        # Symmetric, and similar to the walk: the same eigenvalues, and eigenvectors up
        # to a factor a row.
        eigenvalues, vectors = np.linalg.eigh(
            kernel / np.sqrt(np.outer(degrees, degrees))
        )
        leading = slice(-2, -2 - _DIMENSION, -1)
        axes = vectors[:, leading] * np.sqrt(degrees.sum() / degrees)[:, None]
        # LAPACK leaves the sign open.
        axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(_DIMENSION)])
        # One step is the walk in `encode`.
        self._axes = axes * eigenvalues[leading] ** (_STEPS - 1)

    def encode(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Embed images, each by itself."""
        pixels = images.reshape(len(images), -1).astype(np.float64)
        distances = _squared_distances(pixels, self._pixels)
        walk = np.exp(
            -_SHARPNESS * distances / np.outer(_local_scales(distances), self._scales)
        )
        walk /= walk.sum(axis=1, keepdims=True)
        rows: npt.NDArray[np.float32] = (walk @ self._axes).astype(np.float32)
        return rows


def _squared_distances(rows: Floats, others: Floats) -> Floats:
    """Pairwise; exact for whole pixel values, whatever the BLAS library does."""
    squares = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)
    distances: Floats = squares - 2.0 * rows @ others.T
    return distances


def _local_scales(distances: Floats) -> Floats:
    scales: Floats = np.sqrt(np.partition(distances, _NEIGHBOUR, axis=1)[:, _NEIGHBOUR])
    return scales
