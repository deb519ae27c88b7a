"""Batches of texts, or of their windows, by their number of tokens.

A window of n tokens is computed in a batch padded to the next of the lengths 4, 6, 8,
..., 16, 20, ..., 32, 40, ..., 64, 80, ... above n, cut at the model's limit. So the
window alone decides the shape, and little is padded. That every row has at least one
padding token matters: libraries omit the attention mask, and compute another way, if it
happens that no row of a batch has any. Rows at the limit itself have none, and a
separate shape.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dppl._utils.types import Array, Float32
from dppl.encoders.fixed import Adapter
from dppl.encoders.windows import PUBLIC, TextWindows, Tokens
from dppl.errors import Argument, ParameterError

_USUAL = 16  # tokens of a text that batch_rows counts by


def pooled(pooling: str, hidden: Any, mask: Any) -> Any:
    """Return one row for each example of a model's last layer, an array of NumPy or of torch."""
    if pooling == "cls" and hidden.ndim == 4:
        raise ParameterError(
            Argument("pooling", "cls"),
            " needs a model with tokens; choose ",
            Argument("pooling", "mean"),
            ".",
        )
    if pooling == "cls":
        return hidden[:, 0]
    if mask is None:
        return hidden.mean((2, 3) if hidden.ndim == 4 else 1)
    # Padding takes no part in the mean of a text.
    return (hidden * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]


@dataclass(kw_only=True)
class TextAdapter(Adapter):
    """Batches of texts."""

    modality: ClassVar[str] = "text"
    windows: TextWindows
    prepare: Callable[[str], Tokens] = field(init=False)
    padding: Mapping[str, int] = field(
        default_factory=dict
    )  # values to pad with, by name of the array; 0 for others
    # Tokens for synthetic texts. Without it they come from an English sentence, if the
    # tokenizer knows them.
    vocabulary: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    # What a file for `dppl.encoders.onnx` must state of the tokenizer; None where it
    # cannot.
    stated: Callable[[], dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        self.prepare = self.windows.prepare

    @property
    def limit(self) -> int:
        """Tokens of a window."""
        return self.windows.limit

    def pieces(self, prepared: Tokens) -> Sequence[tuple[Tokens, float]]:
        """Return the windows of a text, each with its number of tokens."""
        return self.windows.split(prepared)

    def _shape(self, length: int) -> tuple[int, bool]:
        # Steps are a quarter of the largest power of two up to the length, and at least
        # 2.
        step = max(2, 1 << max(0, length.bit_length() - 3))
        padded = min(-(-(length + 1) // step) * step, self.limit)
        return padded, length < padded

    def shape_of(self, prepared: Any) -> tuple[int, bool]:
        """Return the padded length and whether a row has any padding."""
        return self._shape(len(prepared["input_ids"]))

    def shapes(self) -> Sequence[tuple[int, bool]]:
        """Return the shapes of all lengths, the longest first."""
        return list(dict.fromkeys(map(self._shape, range(self.limit, 0, -1))))

    def rows(self, shape: Any, batch_rows: int) -> int:
        """Return as many rows as keep the number of tokens about the same; if one row is asked for, one."""
        return self.only_rows or (
            max(1, batch_rows * _USUAL // shape[0]) if batch_rows > 1 else 1
        )

    def batch(self, batch_rows: int) -> str:
        """Describe the shapes of batches."""
        return f"{batch_rows} rows of {_USUAL} tokens, up to {self.limit}"

    def synthetic(self, shape: Any, count: int) -> list[Any]:
        """Return tokens of the vocabulary or of a public sentence, from the shortest to the longest of the shape."""
        lengths = [
            length
            for length in range(1, self.limit + 1)
            if self._shape(length) == shape
        ]
        tokens = self.prepare(PUBLIC)
        rows = []
        for seed in range(count):
            # Not all multiples of a kernel's width, which may agree by chance.
            length = lengths[seed * len(lengths) // count if seed < count - 1 else -1]
            row = {
                name: np.resize(np.roll(array, seed), length)
                for name, array in tokens.items()
            }
            if self.vocabulary.size:
                # Always the same tokens, and no generator: those are for noise.
                digits = np.frombuffer(
                    hashlib.shake_128(seed.to_bytes(4)).digest(4 * length), "<u4"
                )
                row["input_ids"] = self.vocabulary[digits % self.vocabulary.size]
                row["input_ids"][[0, -1]] = tokens["input_ids"][[0, -1]]
            rows.append(row)
        return rows

    def forward(self, inputs: Sequence[Any], shape: Any) -> Float32:
        """Embed a full batch."""
        return self.compute(self.arrays(inputs, shape))

    def arrays(self, inputs: Sequence[Any], shape: Any) -> dict[str, Array]:
        """Return a batch as arrays, padded on the right."""
        padded, _ = shape
        arrays = {
            name: np.full((len(inputs), padded), self.padding.get(name, 0), np.int64)
            for name in inputs[0]
        }
        mask = np.zeros((len(inputs), padded), np.int64)
        for place, row in enumerate(inputs):
            mask[place, : len(row["input_ids"])] = 1
            for name, values in row.items():
                arrays[name][place, : len(values)] = values
        return {**arrays, "attention_mask": mask}
