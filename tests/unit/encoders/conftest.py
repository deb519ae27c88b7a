"""Small models with random weights, saved to disk as the real ones are, and images and texts to embed."""

import numpy as np
import pytest

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,'-"
WORDS = (
    "card",
    "payment",
    "not",
    "arrived",
    "why",
    "was",
    "my",
    "account",
    "charged",
    "twice",
    "cancel",
    "the",
    "it",
)


@pytest.fixture(scope="session")
def tokens():
    """A small WordPiece tokenizer."""
    library = pytest.importorskip("tokenizers")
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        *WORDS,
        *LETTERS,
        *(f"##{letter}" for letter in LETTERS),
        "[SEP]",
    ]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    made = library.Tokenizer(library.models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = library.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    ends = [(piece, vocabulary[piece]) for piece in ("[CLS]", "[SEP]")]
    made.post_processor = library.processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=ends
    )
    return made


@pytest.fixture
def images():
    """Images of many shapes."""
    image = pytest.importorskip("PIL.Image")
    generator = np.random.default_rng(1)
    sizes = [
        (40, 30),
        (30, 40),
        (17, 90),
        (200, 8),
        (64, 64),
        (33, 32),
        (5, 5),
        (120, 80),
        (9, 300),
    ]
    return [
        image.fromarray(generator.integers(0, 256, (*size, 3), np.uint8))
        for size in sizes
    ]


@pytest.fixture
def texts():
    """Texts of no word to more than the tokenizer takes."""
    generator = np.random.default_rng(2)
    lengths = [
        0,
        1,
        2,
        3,
        3,
        5,
        5,
        5,
        5,
        5,
        6,
        8,
        9,
        11,
        13,
        14,
        20,
        25,
        30,
        44,
        45,
        46,
        46,
        50,
        60,
        80,
    ]
    return [" ".join(generator.choice(WORDS, length)) for length in lengths]


@pytest.fixture
def independent():
    """Assert that each embedding has the same bits alone, in any place and in any company."""

    def check(encoder, items):
        assert encoder.fingerprint.row_independent
        together = encoder.encode(items)
        assert together.shape == (len(items), encoder.dimension)
        assert together.dtype == np.float32
        assert (
            len(np.unique(together, axis=0)) > len(items) / 2
        )  # a constant would be independent too
        same_bits(np.concatenate([encoder.encode([item]) for item in items]), together)
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(len(items))
            same_bits(encoder.encode([items[i] for i in order]), together[order])
            some = order[: len(items) // 2]
            same_bits(
                encoder.encode([items[i] for i in (*some, *some[:1], *some)]),
                together[[*some, *some[:1], *some]],
            )
        assert encoder.encode([]).shape == (0, encoder.dimension)

    return check


@pytest.fixture(name="same_bits")
def _same_bits():
    return same_bits


def same_bits(one, other):
    """Assert that two arrays of float32 are equal, bit for bit."""
    np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
