"""Fixed shapes and the check of row independence, on models of NumPy: what mixes rows is found."""

import threading

import numpy as np
import pytest

from dppl.encoders.fixed import FixedShapeEncoder
from dppl.encoders.images import ImageNetwork
from dppl.encoders.tokens import TextNetwork, padded_length
from dppl.errors import ParameterError

pytest.importorskip("PIL")
IDENTITY = {"library": "tests", "weights": "none", "preprocessing": "none", "pooling": "none", "versions": "none"}


def pixels(image):
    return np.asarray(image.resize((4, 4)), np.float32).reshape(-1) / 255


def network(compute, **changes):
    def named(arrays):
        return compute(arrays["pixel_values"])

    return ImageNetwork(**{**IDENTITY, "prepare": pixels, "compute": named, "batch_rows": 8, **changes})


def encoder(compute, batch_rows=None, **changes):
    return FixedShapeEncoder(network(compute, **changes), "tests", batch_rows)


def by_place(x):
    """Round otherwise in the last row, as kernels with a remainder loop do."""
    x = x.copy()
    x[-1] = np.nextafter(x[-1], np.float32(np.inf))
    return x


def by_company(x):
    """Round otherwise when rows differ."""
    return np.nextafter(x, np.float32(np.inf)) if (x != x[0]).any() else x


def test_rows_are_independent(independent, images):
    independent(encoder(np.tanh, batch_rows=4), images)


@pytest.mark.parametrize("compute", [by_place, by_company])
def test_rounding_that_depends_on_place_or_company_is_found(compute, images):
    found = encoder(compute, batch_rows=4)
    assert not found.fingerprint.row_independent
    rows = found.encode(images)
    assert any((found.encode([image])[0] != row).any() for image, row in zip(images, rows, strict=True))


@pytest.mark.parametrize("compute", [lambda x: x - x.mean(0), lambda x: x / x.sum(), lambda x: x[::-1].copy()])
def test_models_that_mix_rows_are_refused(compute):
    with pytest.raises(ParameterError, match="mixes the rows of a batch"):
        encoder(compute, batch_rows=4)
    assert encoder(compute, batch_rows=1).fingerprint.row_independent


def test_every_batch_has_the_same_rows_whatever_comes(images):
    seen = set()

    def compute(x):
        seen.add(x.shape)
        return x

    found = encoder(compute, batch_rows=4)
    for count in range(len(images) + 1):
        found.encode(images[:count])
    assert seen == {(4, 48)}


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize("error", [MemoryError(), OutOfMemoryError("CUDA"), RuntimeError("can't allocate memory")])
def test_rows_are_halved_until_they_fit_and_then_fixed(error, images):
    def compute(x):
        if len(x) > 3:
            raise error
        return x

    found = encoder(compute)
    assert found.batch_rows == 2
    assert found.encode(images).shape == (len(images), 48)
    with pytest.raises(ParameterError, match="batch_rows=8 does not fit"):
        encoder(compute, batch_rows=8)


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    def compute(x):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        encoder(compute)


def test_one_row_that_does_not_fit_is_an_error():
    def compute(x):
        raise MemoryError

    with pytest.raises(ParameterError, match="batch_rows=1 does not fit"):
        encoder(compute)


def test_a_model_that_overflows_is_refused():
    with pytest.raises(ParameterError, match="overflows in float16"):
        encoder(lambda x: x * np.float32(np.inf), dtype="float16")


def test_a_model_of_one_batch_size_gets_it():
    assert encoder(np.tanh, only_rows=3).batch_rows == 3
    with pytest.raises(ParameterError, match="batch_rows must be 3"):
        encoder(np.tanh, only_rows=3, batch_rows=4)


@pytest.mark.parametrize("rows", [0, -1, 1.5, True])
def test_batch_rows_are_checked(rows):
    with pytest.raises(ParameterError, match="batch_rows must be an integer"):
        encoder(np.tanh, batch_rows=rows)


def test_batches_are_computed_beside_the_callers_thread(images):
    threads = set()

    def compute(x):
        threads.add(threading.current_thread())
        return x

    found = encoder(compute, batch_rows=1)
    threads.clear()
    found.encode(images)
    assert threading.main_thread() not in threads


# Texts


def words(text):
    return {"input_ids": np.array([1, *(len(word) for word in text.split()), 2])[:40]}


def mean(arrays):
    """Round otherwise where no row has padding, as libraries do that then leave the mask out."""
    mask = arrays["attention_mask"][:, :, None]
    tokens = np.sin(arrays["input_ids"][:, :, None] * np.arange(1, 9, dtype=np.float32))
    rows = ((tokens * mask).sum(1) / mask.sum(1)).astype(np.float32)
    return np.nextafter(rows, np.float32(np.inf)) if mask.all() else rows


def text_network(kind=TextNetwork, compute=mean, **changes):
    return kind(**{**IDENTITY, "prepare": words, "compute": compute, "batch_rows": 4, "limit": 40, **changes})


class Naive(TextNetwork):
    """What dppl does not do: batches padded to their longest text, and no longer."""

    def _class(self, length):
        return (self.limit, True)

    def rows(self, shape, batch_rows):
        return batch_rows

    def forward(self, inputs, shape):
        longest = max(len(row["input_ids"]) for row in inputs)
        return super().forward(inputs, (longest, True))


def test_padded_lengths():
    lengths = sorted({padded_length(n, 100) for n in range(1, 101)})
    assert lengths == [2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 100]
    assert all(padded_length(n, 512) > n for n in range(1, 512))
    assert padded_length(512, 512) == 512


def test_texts_are_independent(independent, texts):
    independent(FixedShapeEncoder(text_network(), "tests"), texts)


def test_a_batch_has_padding_in_all_rows_or_in_none(texts):
    shapes = set()

    def compute(arrays):
        full = arrays["attention_mask"].all(axis=1)
        assert full.all() or not full.any()
        shapes.add(arrays["input_ids"].shape)
        return mean(arrays)

    FixedShapeEncoder(text_network(compute=compute), "tests").encode(texts)
    assert len({length for _, length in shapes}) == len(shapes) > 5  # a length has one number of rows


def test_one_row_means_one(texts):
    rows = set()

    def compute(arrays):
        rows.add(len(arrays["input_ids"]))
        return mean(arrays)

    FixedShapeEncoder(text_network(compute=compute), "tests", 1).encode(texts)
    assert rows == {1}


def test_padding_to_the_longest_text_is_found(texts):
    naive = FixedShapeEncoder(text_network(Naive), "tests")
    assert not naive.fingerprint.row_independent
    rows = naive.encode(texts)
    assert any((naive.encode([text])[0] != row).any() for text, row in zip(texts, rows, strict=True))
