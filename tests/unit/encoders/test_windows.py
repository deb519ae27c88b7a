"""Texts longer than a model takes: windows over the whole of them, and one embedding that depends on the text alone."""

import numpy as np
import pytest

from dppl.encoders.fixed import FixedShapeEncoder
from dppl.encoders.tokens import TextAdapter
from dppl.encoders.windows import PAGE, TextWindows, said
from dppl.errors import ParameterError
from dppl.io import open_source
from dppl.io.kept import kept_in
from dppl.training.embedding import embed_windows

IDENTITY = {
    "library": "tests",
    "weights": "none",
    "preprocessing": "none",
    "pooling": "none",
    "versions": "none",
}
START = 1001
END = 1002


def encode(text, most):
    """Make a token of each word, its number, between two special ones."""
    words = [int(word) if word.isdecimal() else len(word) for word in text.split()]
    ids = np.array([START, *words[: most - 2], END])
    return {"input_ids": ids, "kinds": ids % 7}


def numbers(length, start=0):
    """Return a text of different words."""
    return " ".join(str(start + place) for place in range(length))


def mean(arrays):
    """Return the mean of the tokens in a nonlinear map of neighbours, so that what is next to a token counts."""
    ids = arrays["input_ids"]
    mask = arrays["attention_mask"]
    angles = (ids + np.roll(ids, 1, axis=1))[:, :, None] * np.arange(1, 9) / 50
    return ((np.sin(angles) * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]).astype(
        np.float32
    )


def unit(arrays):
    rows = mean(arrays)
    return rows / np.sqrt((rows * rows).sum(1, keepdims=True))


def encoder(compute=mean, limit=18, max_windows=4, **changes):
    windows = TextWindows.of(encode, limit, max_windows)
    return FixedShapeEncoder(
        TextAdapter(
            **IDENTITY, windows=windows, compute=compute, batch_rows=4, **changes
        ),
        "tests",
    )


@pytest.fixture
def long_texts():
    """Texts of one window to more than four."""
    return [
        numbers(length, 7 * length)
        for length in (0, 1, 3, 15, 16, 17, 18, 29, 30, 31, 44, 57, 58, 59, 90, 300)
    ]


@pytest.mark.parametrize(
    ("limit", "max_windows"), [(3, 1), (3, 5), (10, 1), (10, 3), (18, 4), (50, 9)]
)
def test_windows_cover_a_text_evenly_and_each_token_counts_once(limit, max_windows):
    made = TextWindows.of(encode, limit, max_windows)
    assert (made.head, made.tail) == (1, 1)
    size = limit - 2
    for length in range(made.most + 5):
        tokens = made.prepare(numbers(length))
        read = min(length, made.most)
        assert tokens["input_ids"].tolist() == [START, *range(read), END]
        assert made.cuts(numbers(length)) == (length > made.most)
        pieces = made.split(tokens)
        assert (len(pieces) == 1) == (length <= size or max_windows == 1)
        assert len(pieces) <= max_windows
        if len(pieces) == 1:
            assert pieces == [(tokens, 1.0)]
            continue
        assert all(len(piece["input_ids"]) == limit for piece, _ in pieces)
        assert all(
            (piece["kinds"] == piece["input_ids"] % 7).all() for piece, _ in pieces
        )
        inner = [piece["input_ids"].tolist() for piece, _ in pieces]
        assert all((ids[0], ids[-1]) == (START, END) for ids in inner)
        starts = [ids[1] for ids in inner]
        assert starts[0] == 0
        assert starts[-1] + size == read
        assert all(ids[1:-1] == list(range(ids[1], ids[1] + size)) for ids in inner)
        steps = np.diff(starts)
        assert steps.max() - steps.min() <= 1
        assert steps.max() <= size - size // 8
        weights = [weight for _, weight in pieces]
        assert sum(weights) == pytest.approx(read, rel=1e-12)
        share = sum(
            1 / sum(start <= place < start + size for start in starts)
            for place in range(size)
        )
        assert weights[0] == pytest.approx(share, rel=1e-12)
    assert len(pieces) == max_windows


def test_as_many_windows_as_hold_a_page():
    for limit, number in (
        (64, 29),
        (77, 25),
        (128, 15),
        (256, 8),
        (512, 4),
        (1602, 1),
        (8192, 1),
    ):
        made = TextWindows.of(encode, limit, None)
        assert made.max_windows == number
        assert made.most >= PAGE
        assert number == 1 or TextWindows.of(encode, limit, number - 1).most < PAGE


def test_a_prompt_is_in_every_window():
    made = TextWindows.of(encode, 10, 3, prompt="77 88 ")
    assert (made.head, made.tail, made.size) == (3, 1, 6)
    for piece, _ in made.split(made.prepare(numbers(11))):
        assert piece["input_ids"][[0, 1, 2, -1]].tolist() == [START, 77, 88, END]


def test_a_limit_without_room_for_a_token_is_refused():
    with pytest.raises(ParameterError, match="max_tokens must be above 2"):
        TextWindows.of(encode, 2, None)


def test_long_texts_are_independent(independent, long_texts):
    independent(encoder(), long_texts)
    independent(encoder(unit), long_texts)


def test_a_neighbour_moves_no_other_embedding(long_texts, same_bits):
    made = encoder()
    before = made.encode(long_texts)
    for place in range(len(long_texts)):
        same_bits(
            made.encode(long_texts[:place] + long_texts[place + 1 :]),
            np.delete(before, place, axis=0),
        )
        changed = [*long_texts[:place], numbers(200, 5), *long_texts[place + 1 :]]
        same_bits(
            np.delete(made.encode(changed), place, axis=0),
            np.delete(before, place, axis=0),
        )


def test_a_text_of_one_window_is_embedded_as_it_was(long_texts, same_bits):
    texts = [text for text in long_texts if len(text.split()) <= 16]
    assert len(texts) == 5
    same_bits(
        encoder(max_windows=4).encode([*texts, numbers(40)])[:-1],
        encoder(max_windows=1).encode(texts),
    )


def test_a_long_text_is_the_mean_of_its_windows():
    """Two windows, 14 of whose tokens are in both."""
    for compute in (mean, unit):
        made = encoder(compute)
        windows = made.encode([numbers(16), numbers(16, 2)]).astype(float)
        lengths = np.linalg.norm(windows, axis=1)
        direction = windows.mean(0)
        expected = direction / np.linalg.norm(direction) * lengths.mean()
        np.testing.assert_allclose(made.encode([numbers(18)])[0], expected, rtol=1e-5)
    assert np.linalg.norm(made.encode([numbers(40)])) == pytest.approx(1, rel=1e-6)
    # Three windows from 0, 14 and 28, which share two tokens: they count 14 + 2/2, 12 +
    # 2 * 2/2 and 14 + 2/2 tokens.
    windows = (
        encoder(unit)
        .encode([numbers(16), numbers(16, 14), numbers(16, 28)])
        .astype(float)
    )
    direction = np.array([15, 14, 15]) @ windows
    expected = direction / np.linalg.norm(direction)
    np.testing.assert_allclose(
        encoder(unit).encode([numbers(44)])[0], expected, rtol=1e-5
    )


def test_what_is_beyond_the_last_window_is_not_read(same_bits):
    made = encoder()
    most = made.text_windows.most
    whole, cut, other = made.encode(
        [numbers(most), numbers(most + 1), numbers(most - 1)]
    )
    same_bits(whole, cut)
    assert (whole != other).any()


def test_empty_texts_have_one_window(same_bits):
    one, *others = encoder().encode(["", "  ", "\n\t "])
    assert np.isfinite(one).all()
    for other in others:
        same_bits(one, other)


def test_a_text_of_a_megabyte_takes_no_more_than_its_first_windows(same_bits):
    made = encoder()
    text = numbers(180_000)
    assert len(text) > 1_000_000
    assert len(made.prepare(text)["input_ids"]) == made.text_windows.most + 2
    same_bits(made.encode([text]), made.encode([numbers(made.text_windows.most)]))


def test_progress_counts_texts_and_not_windows(long_texts):
    made = encoder()
    counts = []
    prepared = [made.prepare(text) for text in long_texts]
    made.encode_prepared(prepared, counts.append)
    assert (
        sum(counts)
        == len(long_texts)
        < sum(len(made.text_windows.split(one)) for one in prepared)
    )
    assert min(counts) >= 0


def test_a_window_that_is_not_finite_spoils_its_text_alone(long_texts):
    def compute(arrays):
        rows = mean(arrays)
        rows[(arrays["input_ids"] == 999).any(axis=1)] = np.inf
        return rows

    found = encoder(compute).encode([*long_texts, numbers(60, 950)])
    assert np.isfinite(found[:-1]).all()
    assert not np.isfinite(found[-1]).any()


def test_windows_that_cancel_have_no_direction():
    def signed(arrays):
        return np.where(arrays["input_ids"][:, 1] == 0, 1, -1).astype(np.float32)[
            :, None
        ]

    assert encoder(signed).encode([numbers(18)]) == [[0]]


def test_a_fingerprint_says_how_long_texts_may_be():
    for preprocessing, words in (
        ("tokens ab12, at most 256", "1 window of 256 tokens"),
        ("tokens ab12, at most 256, 8 windows", "8 windows of 256 tokens"),
        ("tokens ab12, always 64, 30 windows", "30 windows of 64 tokens"),
        (
            "tokens ab12, at most 40, prompt 'in 9 windows, ', 2 windows",
            "2 windows of 40 tokens",
        ),
        ("tokens ab12, at most 40, prompt 'x, 9 windows'", "1 window of 40 tokens"),
        ("tokens ab12, at most 48, padding 0, 3 windows", "3 windows of 48 tokens"),
        ("bicubic", ""),
    ):
        assert said(preprocessing) == words


def test_what_was_interrupted_between_two_windows_of_a_text_ends_with_the_same_bits(
    long_texts, tmp_path, same_bits
):
    """Batches of the model are kept by what they hold: which windows, of which texts."""
    (tmp_path / "t.txt").write_text("".join(f"{text}\n" for text in long_texts[1:]))
    source = open_source(tmp_path / "t.txt")

    def work(most):
        computed = []

        def compute(arrays):
            if watching and len(computed) == most:
                raise KeyboardInterrupt
            computed.append(len(arrays["input_ids"]))
            return mean(arrays)

        watching = False
        made = encoder(compute)
        made.workers = 1  # the order of batches is then that of their texts
        made.batch_rows = 1  # a window each
        computed.clear()
        watching = True
        with kept_in(tmp_path / "kept", "maker") as kept:
            (window,) = embed_windows(source, made, kept=kept)
        return np.stack(window.rows), len(computed)

    whole, batches = work(None)
    (plain,) = embed_windows(source, encoder())
    same_bits(np.stack(plain.rows), whole)
    assert batches > 9
    for most in range(1, batches):
        with pytest.raises(KeyboardInterrupt):
            work(most)
        rows, rest = work(None)
        same_bits(rows, whole)
        assert rest == batches - most
