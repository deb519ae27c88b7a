import numpy as np
import pytest
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from dppl.io import load_sample
from dppl.io.sample import _DiffusionMap


@pytest.fixture(autouse=True, scope="module")
def _one_blas_thread():
    # Several test processes whose BLAS threads wait for each other take seconds instead
    # of tenths.
    with threadpool_limits(limits=1):
        yield


@pytest.fixture(scope="module")
def sample():
    return load_sample()


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def class_means(sample):
    rows = unit(sample.X)
    return unit(
        np.stack([rows[sample.y == name].mean(axis=0) for name in sample.classes])
    )


def accuracy(sample, prototypes):
    return np.mean(
        sample.classes[(unit(sample.X_test) @ prototypes.T).argmax(axis=1)]
        == sample.y_test
    )


def test_parts_have_their_sizes_and_types(sample):
    assert sample.X.shape == (640, 32)
    assert sample.X_public.shape == (860, 32)
    assert sample.X_test.shape == (297, 32)
    assert all(
        rows.dtype == np.float32 for rows in (sample.X, sample.X_public, sample.X_test)
    )
    assert all(
        labels.dtype == np.int64 for labels in (sample.y, sample.y_test, sample.classes)
    )
    assert sample.y.shape == (640,)
    assert sample.y_test.shape == (297,)
    assert sample.classes.tolist() == list(range(10))
    assert set(sample.y) == set(sample.y_test) == set(range(10))
    assert all(
        np.isfinite(rows).all() for rows in (sample.X, sample.X_public, sample.X_test)
    )
    assert sample.encoder == "digits-diffusion-map-32"
    assert "digits" in sample.description


def test_the_parts_are_a_split_of_the_digits(sample):
    assert sample.public_images.shape == (860, 8, 8)
    assert sample.public_images.dtype == np.uint8
    digits = load_digits()
    label_of = {
        image.tobytes(): label
        for image, label in zip(
            digits.images.astype(np.uint8), digits.target, strict=True
        )
    }
    assert len(label_of) == len(
        digits.target
    )  # no image occurs twice, so an image tells its label
    public = [label_of[image.tobytes()] for image in sample.public_images]
    assert len({image.tobytes() for image in sample.public_images}) == len(public)
    together = np.concatenate([public, sample.y, sample.y_test])
    assert np.array_equal(np.bincount(together), np.bincount(digits.target))


def test_no_test_image_is_private_or_public(sample):
    """A test row that equals another row would show an image on both sides of the split."""
    others = np.concatenate([sample.X, sample.X_public])
    nearest = np.abs(sample.X_test[:, None] - others[None]).max(axis=2).min(axis=1)
    assert nearest.min() > 1e-4


def test_public_rows_belong_to_public_images(sample):
    encoder = _DiffusionMap(sample.public_images)
    np.testing.assert_allclose(
        encoder.encode(sample.public_images), sample.X_public, rtol=1e-4, atol=1e-4
    )


def test_the_encoder_maps_each_image_by_itself(sample):
    """One private image must not change the embedding of another, or sensitivities would be wrong."""
    encoder = _DiffusionMap(sample.public_images)
    images = load_digits().images.astype(np.uint8)[:50]
    together = encoder.encode(images)
    alone = np.concatenate([encoder.encode(image[None]) for image in images])
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-6)


def test_public_rows_satisfy_the_eigenvalue_equation(sample):
    """The Nyström formula gives back, at a point of the map, the eigenvector that it extends."""
    encoder = _DiffusionMap(sample.public_images)
    rows = encoder.encode(sample.public_images).astype(np.float64)
    ratios = np.einsum("ij,ij->j", rows, encoder._axes) / np.einsum(
        "ij,ij->j", encoder._axes, encoder._axes
    )
    np.testing.assert_allclose(rows, encoder._axes * ratios, atol=1e-5)
    assert np.all(np.diff(ratios) < 1e-9)  # eigenvalues of a random walk, largest first
    assert ratios.max() < 1


def test_class_means_and_public_prototypes_work(sample):
    """Measured 0.963 and 0.926; a worse encoder (raw pixels: 0.90, 0.83) falls below."""
    means = class_means(sample)
    assert accuracy(sample, means) > 0.94
    public = unit(sample.X_public)
    assert accuracy(sample, public[(public @ means.T).argmax(axis=0)]) > 0.90


def test_shuffled_labels_do_not_work(sample):
    rows = unit(sample.X)
    labels = np.random.default_rng(0).permutation(sample.y)
    means = unit(
        np.stack([rows[labels == name].mean(axis=0) for name in sample.classes])
    )
    assert accuracy(sample, means) < 0.5


def test_loading_repeats_itself(sample):
    again = load_sample()
    for name in ("X", "y", "X_public", "public_images", "X_test", "y_test"):
        assert np.array_equal(getattr(sample, name), getattr(again, name)), name


@pytest.mark.slow
def test_blas_threads_do_not_matter(sample):
    with threadpool_limits(limits=2):
        double = load_sample()
    np.testing.assert_allclose(sample.X, double.X, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sample.X_public, double.X_public, rtol=1e-5, atol=1e-5)


def test_repr_shows_no_data(sample):
    assert repr(sample) == "<Sample: digits-diffusion-map-32>"
