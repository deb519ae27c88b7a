"""Fixed shapes and the check of row independence, on models of NumPy: what mixes rows is found."""

import copy
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dppl.encoders.fixed import FixedShapeEncoder
from dppl.encoders.pixels import ImageAdapter
from dppl.encoders.tokens import TextAdapter
from dppl.encoders.windows import TextWindows
from dppl.errors import ParameterError

pytest.importorskip("PIL")
IDENTITY = {
    "library": "tests",
    "weights": "none",
    "preprocessing": "none",
    "pooling": "none",
    "versions": "none",
}


def pixels(image):
    return np.asarray(image.resize((4, 4)), np.float32).reshape(-1) / 255


def adapter(compute, **changes):
    def named(arrays):
        return compute(arrays["pixel_values"])

    return ImageAdapter(
        **{**IDENTITY, "prepare": pixels, "compute": named, "batch_rows": 8, **changes}
    )


def encoder(compute, batch_rows=None, **changes):
    return FixedShapeEncoder(adapter(compute, **changes), "tests", batch_rows)


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


def by_repetition(x):
    """Round otherwise when some rows are alike and others are not, as a mixture of experts may."""
    return (
        np.nextafter(x, np.float32(np.inf))
        if 1 < len(np.unique(x, axis=0)) < len(x)
        else x
    )


@pytest.mark.parametrize("compute", [by_place, by_company, by_repetition])
def test_rounding_that_depends_on_place_or_company_is_found(compute, images):
    found = encoder(compute, batch_rows=4)
    assert not found.fingerprint.row_independent
    rows = found.encode(images + images[:1])[:-1]
    assert any(
        (found.encode([image])[0] != row).any()
        for image, row in zip(images, rows, strict=True)
    )


def saturated_scale(x):
    """Quantise by a scale of the whole batch, which bright images all set to the same, as after a ReLU6."""
    x = np.clip(60 * x, 0, 6)
    scale = x.max() / np.float32(255)
    return np.round(x / scale) * scale


def standardised(x):
    """Divide by the spread of the batch, which is zero among copies: a difference that is NaN is none of zero."""
    with np.errstate(all="ignore"):
        return (x - x.mean(0)) / x.std(0)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x - x.mean(0),
        lambda x: x / x.sum(),
        lambda x: x[::-1].copy(),
        saturated_scale,
        standardised,
    ],
)
def test_models_that_mix_rows_are_refused(compute):
    with pytest.raises(ParameterError, match="mixes the rows of a batch"):
        encoder(compute, batch_rows=4)
    if compute is not standardised:  # which makes NaN of one row, too
        assert encoder(compute, batch_rows=1).fingerprint.row_independent


def one_thread(_):
    return ThreadPoolExecutor(1)  # what is remembered is the same in every run


class Remembering:
    """Move an embedding by a little of what was computed before."""

    last = np.float32(0)

    def __call__(self, x):
        moved = x + np.float32(1e-6) * self.last
        self.last = x.sum()
        return moved


@pytest.mark.parametrize("batch_rows", [1, 4])
def test_models_that_remember_are_refused(batch_rows):
    with pytest.raises(ParameterError, match="changes while it computes"):
        encoder(Remembering(), batch_rows=batch_rows, pool=one_thread)


def test_a_device_that_rounds_differently_in_every_run_promises_nothing(images):
    def restless(step):
        calls = itertools.count()
        return lambda x: x * np.float32(1 + step * next(calls))

    assert not encoder(
        restless(1e-7), batch_rows=4, device="cuda"
    ).fingerprint.row_independent
    for step, device in ((1e-7, "cpu"), (1e-2, "cuda")):
        with pytest.raises(ParameterError, match="changes while it computes"):
            encoder(restless(step), batch_rows=4, device=device)


def test_progress_is_told_after_each_batch(images):
    counts = []
    made = encoder(np.tanh, batch_rows=4)
    rows = made.encode_prepared(
        [made.prepare(image) for image in images], counts.append
    )
    np.testing.assert_array_equal(rows, made.encode(images))
    assert sum(counts) == len(images)
    assert max(counts) == 4 < len(images)


def test_a_state_that_changes_is_refused_though_no_row_shows_it():
    seen = []
    with pytest.raises(ParameterError, match="changes while it computes"):
        encoder(
            lambda x: seen.append(len(x)) or x,
            batch_rows=4,
            state=lambda: str(len(seen)),
        )


def by_shorter_side(image):
    """Keep the form of an image, as a processor without a crop does."""
    side = min(image.size)
    return np.asarray(
        image.resize([4 * length // side for length in image.size]), np.float32
    )


def test_a_preprocessing_that_keeps_the_form_of_images_is_refused():
    with pytest.raises(ParameterError, match="set do_center_crop and a crop_size"):
        adapter(np.tanh, prepare=by_shorter_side)


@pytest.mark.parametrize("odd", [lambda x: x[:-1], lambda x: x.astype(np.float64)])
def test_an_odd_image_raises_when_it_is_prepared(odd, images):
    def prepare(image):
        return odd(pixels(image)) if image.size == (5, 5) else pixels(image)

    found = encoder(np.tanh, prepare=prepare)
    [small] = [image for image in images if image.size == (5, 5)]
    with pytest.raises(ValueError, match="another shape than others"):
        found.prepare(small)
    assert found.prepare(images[0]).shape == (48,)


def test_forms_that_cannot_be_prepared_do_not_matter(independent, images):
    def prepare(image):
        if min(image.size) == 1:
            raise ValueError("too thin")
        return pixels(image)

    independent(encoder(np.tanh, prepare=prepare), images)


def test_copies_are_the_encoder_itself():
    frozen = encoder(np.tanh)
    assert copy.deepcopy(frozen) is frozen


def numbers_of_rows(images, rounds_otherwise=(), **changes):
    """Return in how many rows lists of all lengths are computed."""
    seen = set()

    def compute(x):
        seen.add(len(x))
        return np.nextafter(x, np.float32(np.inf)) if len(x) in rounds_otherwise else x

    found = encoder(compute, batch_rows=6, **changes)
    assert found.fingerprint.row_independent
    seen.clear()
    whole = found.encode(images)
    for count in range(len(images) + 1):
        np.testing.assert_array_equal(found.encode(images[:count]), whole[:count])
    return seen


def test_numbers_of_rows_are_powers_of_two_up_to_a_full_batch(images):
    assert numbers_of_rows(images) == {1, 2, 4, 6}


def test_numbers_of_rows_that_round_otherwise_are_not_used(images):
    assert numbers_of_rows(images, rounds_otherwise=(1,)) == {2, 4, 6}
    assert numbers_of_rows(images, rounds_otherwise=(2, 3, 4)) == {1, 6}


def test_a_device_has_full_batches_and_a_model_of_one_number_of_rows_that_number(
    images,
):
    assert numbers_of_rows(images, device="cuda") == {6}
    assert numbers_of_rows(images, only_rows=6) == {6}


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OutOfMemoryError("CUDA"), RuntimeError("can't allocate memory")],
)
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
        encoder(lambda x: np.full_like(x, np.inf), dtype="float16")


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


def words(text, most):
    return {
        "input_ids": np.array([1, *(len(word) for word in text.split()[: most - 2]), 2])
    }


def mean(arrays):
    """Round otherwise where no row has padding, as libraries do that then leave the mask out."""
    mask = arrays["attention_mask"][:, :, None]
    tokens = np.sin(arrays["input_ids"][:, :, None] * np.arange(1, 9, dtype=np.float32))
    rows = ((tokens * mask).sum(1) / mask.sum(1)).astype(np.float32)
    return np.nextafter(rows, np.float32(np.inf)) if mask.all() else rows


BATCH_ROWS = 4


def text_adapter(
    kind=TextAdapter, compute=mean, encode=words, limit=40, max_windows=None, **changes
):
    windows = TextWindows.of(encode, limit, max_windows)
    return kind(
        **{
            **IDENTITY,
            "windows": windows,
            "compute": compute,
            "batch_rows": BATCH_ROWS,
            **changes,
        }
    )


class Naive(TextAdapter):
    """What dppl does not do: batches padded to their longest text, and no longer."""

    def _shape(self, length):
        return (self.limit, True)

    def rows(self, shape, batch_rows):
        return batch_rows

    def forward(self, inputs, shape):
        longest = max(len(row["input_ids"]) for row in inputs)
        return super().forward(inputs, (longest, True))


def test_padded_lengths():
    lengths = sorted(
        length for length, padded in text_adapter(limit=100).shapes() if padded
    )
    assert lengths == [
        2,
        4,
        6,
        8,
        10,
        12,
        14,
        16,
        20,
        24,
        28,
        32,
        40,
        48,
        56,
        64,
        80,
        96,
        100,
    ]
    assert text_adapter(limit=512).shapes()[0] == (512, False)


def test_texts_are_independent(independent, texts):
    independent(FixedShapeEncoder(text_adapter(), "tests"), texts)


def test_a_batch_has_padding_in_all_rows_or_in_none(texts):
    shapes = set()

    def compute(arrays):
        full = arrays["attention_mask"].all(axis=1)
        assert full.all() or not full.any()
        shapes.add(arrays["input_ids"].shape)
        return mean(arrays)

    made = FixedShapeEncoder(text_adapter(compute=compute), "tests")
    shapes.clear()
    made.encode(texts)
    assert (
        len({length for _, length in shapes}) == len(shapes) > 5
    )  # a length has one number of rows


def test_one_row_means_one(texts):
    rows = set()

    def compute(arrays):
        rows.add(len(arrays["input_ids"]))
        return mean(arrays)

    FixedShapeEncoder(text_adapter(compute=compute), "tests", 1).encode(texts)
    assert rows == {1}


class LastLength:
    """Move an embedding by the length of the batch before, as a rotary embedding that adapts does."""

    last = np.float32(0)

    def __call__(self, arrays):
        moved = mean(arrays) + np.float32(1e-5) * self.last
        self.last = np.float32(arrays["input_ids"].shape[1])
        return moved


@pytest.mark.parametrize("batch_rows", [1, 4])
def test_a_model_that_remembers_a_length_is_refused(batch_rows):
    with pytest.raises(ParameterError, match="changes while it computes"):
        FixedShapeEncoder(
            text_adapter(compute=LastLength(), pool=one_thread), "tests", batch_rows
        )


def test_synthetic_texts_differ_whatever_the_tokenizer_knows():
    """One of another language makes the same token of all English words."""

    def encode(text, most):
        return {"input_ids": np.array([1, *(0 for _ in text.split()[: most - 2]), 2])}

    found = text_adapter(encode=encode, vocabulary=np.arange(3, 30))
    texts = [row["input_ids"] for row in found.synthetic(found.shapes()[0], 8)]
    assert len({tuple(text) for text in texts}) == 8
    assert set(np.concatenate(texts)) == {1, 2, *range(3, 30)}


def test_padding_to_the_longest_text_is_found(texts):
    naive = FixedShapeEncoder(text_adapter(Naive), "tests")
    assert not naive.fingerprint.row_independent
    rows = naive.encode(texts)
    assert any(
        (naive.encode([text])[0] != row).any()
        for text, row in zip(texts, rows, strict=True)
    )


# The shapes that are tried


class Counting:
    """Count the batches of each length that were computed."""

    def __init__(self, compute=mean):
        self.compute = compute
        self.lengths = []

    def __call__(self, arrays):
        self.lengths.append(arrays["input_ids"].shape[1])
        return self.compute(arrays)


def load(compute=mean, batch_rows=None):
    return FixedShapeEncoder(text_adapter(compute=compute), "tests", batch_rows)


def test_every_load_tries_all_shapes_that_have_company():
    counting = Counting()
    load(counting)
    assert set(counting.lengths) == {length for length, _ in text_adapter().shapes()}
    alone = Counting()
    load(alone, batch_rows=1)
    # Memory is of the model, so without company two shapes show it.
    assert set(alone.lengths) == {40, 2}


def by_place_in_one_shape(arrays):
    """Round otherwise in the last row, in batches of one unusual length alone."""
    rows = mean(arrays)
    if arrays["input_ids"].shape[1] == 20:
        rows[-1] = np.nextafter(rows[-1], np.float32(np.inf))
    return rows


def by_second_place(arrays):
    rows = mean(arrays)
    rows[1:2] = np.nextafter(rows[1:2], np.float32(np.inf))
    return rows


def by_few(arrays):
    """Round otherwise where at most half of the rows are copies, as a kernel for few distinct rows may."""
    rows = mean(arrays)
    few = len(np.unique(rows, axis=0)) <= max(1, len(rows) // 2)
    return np.nextafter(rows, np.float32(np.inf)) if few else rows


def not_a_number_in_one_shape(arrays):
    rows = mean(arrays)
    return rows * np.float32(np.nan) if arrays["input_ids"].shape[1] == 20 else rows


def test_not_a_number_in_one_shape_hides_nothing():
    with pytest.raises(ParameterError, match="mixes the rows of a batch"):
        load(not_a_number_in_one_shape)


@pytest.mark.parametrize("compute", [by_place_in_one_shape, by_second_place, by_few])
def test_a_single_shape_or_place_that_rounds_otherwise_is_found(compute):
    assert not load(compute).fingerprint.row_independent
    assert load(by_place_in_one_shape, batch_rows=1).fingerprint.row_independent


def by_long_texts_alone(arrays):
    """Round otherwise in a batch of one text, if it is the longest of its shape."""
    rows = mean(arrays)
    longest = arrays["input_ids"].shape[1] - 1
    alone = len(rows) == 1 and arrays["attention_mask"].sum() == longest
    return np.nextafter(rows, np.float32(np.inf)) if alone else rows


def test_one_row_is_tried_with_the_longest_text(independent, texts):
    independent(load(by_long_texts_alone), texts)


def test_a_few_texts_are_computed_in_few_rows():
    shapes = []

    def compute(arrays):
        shapes.append(arrays["input_ids"].shape)
        return mean(arrays)

    made = load(compute)
    shapes.clear()
    for count in (1, 3, 9):
        made.encode(["one two"] * count)
    assert shapes == [(1, 6), (4, 6), (10, 6)]
