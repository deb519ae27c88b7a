"""Batches of texts by their number of tokens.

A text of n tokens is computed in a batch padded to the next of the lengths 4, 6, 8, ..., 16, 20, ..., 32, 40, ..., 64,
80, ... above n, cut at the model's limit. So the text alone decides the shape, and little is padded. That every row
has at least one padding token matters: libraries leave out the attention mask, and compute another way, if it happens
that no row of a batch has any. Rows at the limit itself have none and form a class of their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dppl.encoders.fixed import Network, drawn
from dppl.errors import ParameterError

Tokens = dict[str, NDArray[np.int64]]
_USUAL = 16  # tokens of a text that batch_rows counts by
_PUBLIC = (
    "A quick brown fox jumps over the lazy dog while seven kind wizards, boxing 42 quartz jugs, give the "
    "public examples that decide nothing but the shape of this check."
)


def padded_length(length: int, limit: int) -> int:
    """Return the length of the batch that a text of `length` tokens is computed in."""
    wanted = length + 1
    step = max(2, 1 << max(0, (wanted - 1).bit_length() - 3))
    return min(-(-wanted // step) * step, limit)


def tokenise(tokenizer: Any, text: str, limit: int, *, padded: bool = False, prompt: str = "") -> Tokens:
    """Return the arrays that a tokenizer of transformers makes of one text, but for the attention mask."""
    encoded = tokenizer(prompt + text, truncation=True, max_length=limit, padding="max_length" if padded else False)
    return {name: np.array(row, np.int64) for name, row in encoded.items() if name != "attention_mask"}


def vocabulary(tokenizer: Any, model: Any) -> NDArray[np.int64]:
    """Return the ordinary tokens of a tokenizer; refuse one that the model has no embedding for."""
    tokens = set(tokenizer.get_vocab().values())
    last = max(tokens)
    for module in model.modules():
        try:
            rows = module.get_input_embeddings().num_embeddings
        except (AttributeError, NotImplementedError):  # not a model of transformers, or not one of tokens
            continue
        if last >= rows:
            raise ParameterError(
                f"the tokenizer has tokens up to number {last}, and the model embeddings for {rows} tokens only; "
                "resize_token_embeddings of transformers adds the others."
            )
    return np.array(sorted(tokens - set(tokenizer.added_tokens_decoder)), np.int64)


@dataclass(kw_only=True)
class TextNetwork(Network):
    """Batches of texts."""

    modality: ClassVar[str] = "text"
    limit: int  # largest number of tokens; `prepare` cuts there
    padding: Mapping[str, int] = field(default_factory=dict)  # values to pad with, by name of the array; 0 for others
    # Tokens for synthetic texts. Without it they are those of an English sentence, if the tokenizer knows them.
    vocabulary: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def shape_class(self, prepared: Any) -> Hashable:
        """Return the padded length and whether a row has any padding."""
        return self._class(len(prepared["input_ids"]))

    def _class(self, length: int) -> tuple[int, bool]:
        padded = padded_length(length, self.limit)
        return padded, length < padded

    def rows(self, shape: Any, batch_rows: int) -> int:
        """Return as many rows as keep the number of tokens about the same; if one row is asked for, one."""
        return self.only_rows or (max(1, batch_rows * _USUAL // shape[0]) if batch_rows > 1 else 1)

    def short_rows(self, shape: Any, batch_rows: int) -> int:
        """Return as many rows as hold 16 tokens: kernels for products of fewer round otherwise."""
        full = self.rows(shape, batch_rows)
        return full if self.only_rows else min(full, -(-_USUAL // shape[0]))

    def batch(self, batch_rows: int) -> str:
        """Describe the shapes of batches."""
        return f"{batch_rows} rows of {_USUAL} tokens, up to {self.limit}"

    def forward(self, inputs: Sequence[Any], shape: Any) -> NDArray[np.float32]:
        """Embed a full batch, padded on the right."""
        padded, _ = shape
        arrays = {name: self._padded([row[name] for row in inputs], padded, name) for name in inputs[0]}
        lengths = np.array([[len(row["input_ids"])] for row in inputs])
        return self.compute({**arrays, "attention_mask": (np.arange(padded) < lengths).astype(np.int64)})

    def _padded(self, rows: Sequence[NDArray[np.int64]], length: int, name: str) -> NDArray[np.int64]:
        array = np.full((len(rows), length), self.padding.get(name, 0), np.int64)
        for target, row in zip(array, rows, strict=True):
            target[: len(row)] = row
        return array

    def shapes(self) -> Sequence[Hashable]:
        """Return the longest class and usual ones."""
        return list(dict.fromkeys(self._class(min(length, self.limit)) for length in (self.limit, 26, 13, 7)))

    def all_shapes(self) -> Sequence[Hashable]:
        """Return the classes of all lengths, the longest first."""
        return list(dict.fromkeys(self._class(length) for length in range(self.limit, 0, -1)))

    def synthetic(self, shape: Any, count: int) -> list[Any]:
        """Return tokens of the vocabulary or of a public sentence, from the shortest to the longest of the class."""
        lengths = [length for length in range(1, self.limit + 1) if self._class(length) == shape]
        tokens = self.prepare(_PUBLIC)
        return [self._synthetic(tokens, lengths[i * len(lengths) // count], i) for i in range(count)]

    def _synthetic(self, tokens: Tokens, length: int, seed: int) -> Tokens:
        row = {name: np.resize(np.roll(array, seed), length) for name, array in tokens.items()}
        if self.vocabulary.size:
            row["input_ids"] = self.vocabulary[drawn(length, self.vocabulary.size, seed)]
            row["input_ids"][[0, -1]] = tokens["input_ids"][[0, -1]]
        return row
