"""Fixed shapes and the check of row independence, on models of NumPy: what mixes rows is found."""

import copy
import itertools
import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import numpy as np
import pytest

from dppl.encoders import verdicts
from dppl.encoders.encoder import Fingerprint
from dppl.encoders.fixed import FixedShapeEncoder, for_prediction
from dppl.encoders.images import ImageNetwork
from dppl.encoders.tokens import TextNetwork, padded_length
from dppl.errors import ParameterError
from dppl.io.pipeline import table_metadata

pytest.importorskip("PIL")
FOLDER = verdicts._folder  # which fixtures replace
IDENTITY = {"library": "tests", "weights": "none", "preprocessing": "none", "pooling": "none", "versions": "none"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Have an empty cache folder, since models here share a name."""
    monkeypatch.setattr(verdicts, "_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


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


def by_repetition(x):
    """Round otherwise when some rows are alike and others are not, as a mixture of experts may."""
    return np.nextafter(x, np.float32(np.inf)) if 1 < len(np.unique(x, axis=0)) < len(x) else x


@pytest.mark.parametrize("compute", [by_place, by_company, by_repetition])
def test_rounding_that_depends_on_place_or_company_is_found(compute, images):
    found = encoder(compute, batch_rows=4)
    assert not found.fingerprint.row_independent
    rows = found.encode(images + images[:1])[:-1]
    assert any((found.encode([image])[0] != row).any() for image, row in zip(images, rows, strict=True))


def saturated_scale(x):
    """Quantise by a scale of the whole batch, which bright images all set to the same, as after a ReLU6."""
    x = np.clip(60 * x, 0, 6)
    scale = x.max() / np.float32(255)
    return np.round(x / scale) * scale


@pytest.mark.parametrize(
    "compute", [lambda x: x - x.mean(0), lambda x: x / x.sum(), lambda x: x[::-1].copy(), saturated_scale]
)
def test_models_that_mix_rows_are_refused(compute):
    with pytest.raises(ParameterError, match="mixes the rows of a batch"):
        encoder(compute, batch_rows=4)
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

    assert not encoder(restless(1e-7), batch_rows=4, device="cuda").fingerprint.row_independent
    for step, device in ((1e-7, "cpu"), (1e-2, "cuda")):
        with pytest.raises(ParameterError, match="changes while it computes"):
            encoder(restless(step), batch_rows=4, device=device)


def test_progress_is_told_after_each_batch(images):
    counts = []
    made = encoder(np.tanh, batch_rows=4)
    rows = made.encode_prepared([made.prepare(image) for image in images], counts.append)
    np.testing.assert_array_equal(rows, made.encode(images))
    assert sum(counts) == len(images)
    assert max(counts) == 4 < len(images)


def test_a_state_that_changes_is_refused_though_no_row_shows_it():
    seen = []
    with pytest.raises(ParameterError, match="changes while it computes"):
        encoder(lambda x: seen.append(len(x)) or x, batch_rows=4, state=lambda: str(len(seen)))


def by_shorter_side(image):
    """Keep the form of an image, as a processor without a crop does."""
    side = min(image.size)
    return np.asarray(image.resize([4 * length // side for length in image.size]), np.float32)


def test_a_preprocessing_that_keeps_the_form_of_images_is_refused():
    with pytest.raises(ParameterError, match="set do_center_crop and a crop_size"):
        network(np.tanh, prepare=by_shorter_side)


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


def test_an_encoder_that_was_not_loaded_cannot_be_pickled():
    found = encoder(np.tanh)
    with pytest.raises(pickle.PicklingError, match="only an encoder that load_encoder made"):
        pickle.dumps(found)
    assert copy.copy(found) is copy.deepcopy(found) is found


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


def words(text):
    return {"input_ids": np.array([1, *(len(word) for word in text.split()), 2])[:40]}


def mean(arrays):
    """Round otherwise where no row has padding, as libraries do that then leave the mask out."""
    mask = arrays["attention_mask"][:, :, None]
    tokens = np.sin(arrays["input_ids"][:, :, None] * np.arange(1, 9, dtype=np.float32))
    rows = ((tokens * mask).sum(1) / mask.sum(1)).astype(np.float32)
    return np.nextafter(rows, np.float32(np.inf)) if mask.all() else rows


BATCH_ROWS = 4


def text_network(kind=TextNetwork, compute=mean, **changes):
    return kind(**{**IDENTITY, "prepare": words, "compute": compute, "batch_rows": BATCH_ROWS, "limit": 40, **changes})


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

    made = FixedShapeEncoder(text_network(compute=compute), "tests")
    shapes.clear()
    made.encode(texts)
    assert len({length for _, length in shapes}) == len(shapes) > 5  # a length has one number of rows


def test_one_row_means_one(texts):
    rows = set()

    def compute(arrays):
        rows.add(len(arrays["input_ids"]))
        return mean(arrays)

    FixedShapeEncoder(text_network(compute=compute), "tests", 1).encode(texts)
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
        FixedShapeEncoder(text_network(compute=LastLength(), pool=one_thread), "tests", batch_rows)


def test_synthetic_texts_differ_whatever_the_tokenizer_knows():
    """One of another language makes the same token of all English words."""

    def prepare(text):
        return {"input_ids": np.array([1, *(0 for _ in text.split()), 2])[:40]}

    found = text_network(prepare=prepare, vocabulary=np.arange(3, 30))
    texts = [row["input_ids"] for row in found.synthetic(found.shapes()[0], 8)]
    assert len({tuple(text) for text in texts}) == 8
    assert set(np.concatenate(texts)) == {1, 2, *range(3, 30)}


def test_padding_to_the_longest_text_is_found(texts):
    naive = FixedShapeEncoder(text_network(Naive), "tests")
    assert not naive.fingerprint.row_independent
    rows = naive.encode(texts)
    assert any((naive.encode([text])[0] != row).any() for text, row in zip(texts, rows, strict=True))


# All shapes, and what is kept of the trial

UNUSUAL = 18  # tokens that no usual shape is padded to


def by_place_in_one_shape(arrays):
    """Round otherwise in the last row, in batches of one length alone."""
    rows = mean(arrays)
    if arrays["input_ids"].shape[1] == padded_length(UNUSUAL, 40):
        rows[-1] = np.nextafter(rows[-1], np.float32(np.inf))
    return rows


class Counting:
    """Count the lengths that were computed."""

    def __init__(self, compute=mean):
        self.compute, self.lengths = compute, set()

    def __call__(self, arrays):
        self.lengths.add(arrays["input_ids"].shape[1])
        return self.compute(arrays)


def load(compute=mean, batch_rows=None, **changes):
    return FixedShapeEncoder(text_network(compute=compute, **changes), "tests", batch_rows)


def test_a_shape_that_is_not_usual_is_tried_too(cache):
    assert not load(by_place_in_one_shape).fingerprint.row_independent
    assert not load(by_place_in_one_shape).fingerprint.row_independent  # as it is kept
    assert load(by_place_in_one_shape, batch_rows=1).fingerprint.row_independent


def test_all_shapes_are_tried_once(cache):
    first, later, moved = Counting(), Counting(), Counting()
    assert load(first).fingerprint == load(later).fingerprint
    assert {padded_length(n, 40) for n in range(1, 40)} - first.lengths == set()
    assert later.lengths == {shape[0] for shape in text_network().shapes()} < first.lengths
    FixedShapeEncoder(text_network(compute=moved), "elsewhere")
    assert moved.lengths == later.lengths
    (file,) = cache.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    kept = json.loads(file.read_text())
    assert set(kept) == {"trial", "encoder", "software", "bits", "row_independent", "short"}
    assert set(kept["encoder"]) == {field.name for field in fields(Fingerprint)} - {"uri", "row_independent"}
    assert set(kept["software"]) == {"dppl", "numpy", "Python", "processor"}


@pytest.mark.parametrize("name", ["weights", "preprocessing", "pooling", "library", "versions"])
def test_what_is_kept_is_of_one_encoder(name, cache):
    load()
    other = Counting()
    load(other, **{name: "another"})
    assert len(other.lengths) > 8
    assert len(list(cache.iterdir())) == 2


def test_what_is_kept_is_of_one_software_and_processor(cache, monkeypatch):
    load()
    for name, value in (("__version__", "0.0"), ("_processor", lambda: "another"), ("_TRIAL", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(verdicts, name, value)
            again = Counting()
            load(again)
            assert len(again.lengths) > 8


def test_what_is_kept_is_of_one_choice_of_kernels(cache):
    """Settings of a library choose them, in the environment or in Python, and their bits are all that tells."""

    def otherwise(arrays):
        return np.nextafter(mean(arrays), np.float32(np.inf))

    def otherwise_by_place(arrays):
        return np.nextafter(by_place_in_one_shape(arrays), np.float32(np.inf))

    assert load().fingerprint.row_independent
    again, later = Counting(otherwise), Counting(otherwise)
    load(again)
    assert len(again.lengths) > 8
    load(later)
    assert len(later.lengths) <= 8
    assert len(list(cache.iterdir())) == 2
    for file in cache.iterdir():
        file.unlink()
    assert load().fingerprint.row_independent
    assert not load(otherwise_by_place).fingerprint.row_independent


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-5],
        lambda text: "[]",
        lambda text: '{"row_independent": true, "short": true}',
        lambda text: text.replace("true", '"yes"'),
        lambda text: text.replace('"tests"', '"another"'),
        lambda text: text.replace("{", '{"more": 1,', 1),
        lambda text: "\udcff",
    ],
)
def test_a_broken_or_foreign_file_is_ignored_and_replaced(damage, cache):
    load()
    (file,) = cache.iterdir()
    text = file.read_text()
    file.write_bytes(damage(text).encode("utf-8", "surrogateescape"))
    again = Counting()
    assert load(again).fingerprint.row_independent
    assert len(again.lengths) > 8
    assert file.read_text() == text


def test_without_a_folder_every_load_tries_all_shapes(cache, monkeypatch):
    def nowhere():
        raise RuntimeError("there is no home")

    cache.write_text("a file")
    for folder in (lambda: cache, nowhere):
        monkeypatch.setattr(verdicts, "_folder", folder)
        again = Counting()
        assert load(again).fingerprint.row_independent
        assert len(again.lengths) > 8


def by_few_tokens(arrays):
    """Round otherwise where a product has few rows, as libraries do that have a kernel for these."""
    rows = mean(arrays)
    return np.nextafter(rows, np.float32(np.inf)) if arrays["input_ids"].size < 16 else rows


def by_short_batch(arrays):
    """Round otherwise in every batch that is not full."""
    rows = mean(arrays)
    count, length = arrays["input_ids"].shape
    return rows if count == text_network().rows((length, True), BATCH_ROWS) else np.nextafter(rows, np.float32(np.inf))


def by_last_of_a_short_batch(arrays):
    """Round otherwise in the last place of a batch of a few rows."""
    rows = mean(arrays)
    if 1 < len(rows) == -(-16 // arrays["input_ids"].shape[1]):
        rows[-1] = np.nextafter(rows[-1], np.float32(np.inf))
    return rows


def shapes_of(encode, batches):
    batches.clear()
    encode()
    return sorted(batches)


@pytest.mark.parametrize("compute", [mean, by_few_tokens])
def test_a_prediction_computes_few_texts_in_short_batches_with_the_same_bits(compute, texts, independent, cache):
    batches = []

    def seen(arrays):
        batches.append(arrays["input_ids"].shape)
        return compute(arrays)

    full = load(seen)
    few = for_prediction(full)
    assert few is not full
    assert few.fingerprint == full.fingerprint
    independent(few, texts)
    same = full.encode(texts)
    assert (few.encode(texts) == same).all()
    length = padded_length(len(few.prepare(texts[0])["input_ids"]), 40)
    rows = full._network.rows((length, True), BATCH_ROWS)
    short = -(-16 // length)
    assert short < rows
    assert shapes_of(lambda: few.encode(texts[:1]), batches) == [(short, length)]
    assert shapes_of(lambda: full.encode(texts[:1]), batches) == [(rows, length)]  # as a fit does
    assert shapes_of(lambda: few.encode(texts[:1] * rows), batches) == [(rows, length)]
    assert shapes_of(lambda: few.encode(texts[:1] * (short + 1)), batches) == [(short, length)] * 2


def test_a_fit_on_embeddings_of_an_encoder_for_predictions_says_that_company_counts(cache):
    full = load()
    few = for_prediction(full)
    assert few.spares
    assert not full.spares
    assert "not_covered" in table_metadata(few)
    assert table_metadata(full) == {name: value for name, value in table_metadata(few).items() if name != "not_covered"}


@pytest.mark.parametrize("compute", [by_short_batch, by_last_of_a_short_batch])
def test_short_batches_that_round_otherwise_are_found_and_not_used(compute, texts, cache):
    for _ in range(2):  # as it is kept
        found = load(compute)
        assert found.fingerprint.row_independent
        assert for_prediction(found) is found


def test_only_a_load_for_predictions_takes_an_earlier_result_without_a_trial(cache):
    counting = Counting()
    first = FixedShapeEncoder(text_network(compute=mean), "tests", predicting=True)  # nothing is known yet
    again = FixedShapeEncoder(text_network(compute=counting), "tests", predicting=True)
    assert [one.spares for one in (first, again)] == [False, True]
    assert "not_covered" in table_metadata(again)
    assert counting.lengths == {40, 8}  # whether a batch fits into memory, and bits that tell kernels apart
    assert again.fingerprint == first.fingerprint
    assert again.fingerprint.row_independent
    load(counting)
    assert len(counting.lengths) > 1
    assert not load(by_place_in_one_shape, weights="another").fingerprint.row_independent
    doubtful = text_network(compute=mean, weights="another")
    assert not FixedShapeEncoder(doubtful, "tests", predicting=True).fingerprint.row_independent


def test_other_devices_and_models_of_one_shape_have_no_short_batches(cache):
    for one in (encoder(np.tanh, batch_rows=4), load(batch_rows=1), load(device="cuda")):
        assert for_prediction(one) is one


def test_a_kept_result_does_not_stand_for_the_usual_shapes(cache, images):
    """What is kept can add doubt and never take any away."""

    def by_second_place(arrays):
        rows = mean(arrays)
        rows[1:2] = np.nextafter(rows[1:2], np.float32(np.inf))
        return rows

    load()
    assert not load(by_second_place).fingerprint.row_independent
    assert len(list(cache.iterdir())) == 1  # which was found, as single rows have the same bits
    with pytest.raises(ParameterError, match="mixes the rows of a batch"):
        load(lambda arrays: mean(arrays) - mean(arrays).mean(0))


def test_models_of_one_shape_and_other_devices_keep_nothing(cache):
    encoder(np.tanh, batch_rows=4)
    load(batch_rows=1)
    load(device="cuda")
    assert not cache.exists()


def test_the_folder_is_that_for_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "named"))
    assert FOLDER() == tmp_path / "named" / "dppl"
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert FOLDER() == tmp_path / ".cache" / "dppl"
