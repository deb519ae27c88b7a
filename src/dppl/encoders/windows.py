"""Texts as windows of tokens: a text longer than a model takes is read in several windows, over the whole of it.

A text that fits is one window, as it is. A longer one loses what its tokenizer puts at
both ends, and is read in windows of the model's full length, spread evenly so that each
overlaps the next by at least an eighth; every window gets both ends.
`dppl.encoders.fixed` embeds each window by itself and takes the mean of a text's
windows, weighted by their numbers of tokens, in which a token of k windows counts 1/k
in each. So the text alone decides its embedding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from dppl._utils.types import Array
from dppl.errors import ParameterError

Tokens = dict[str, Array]
PUBLIC = (
    "A quick brown fox jumps over the lazy dog while seven kind wizards, boxing 42 quartz jugs, give the "
    "public examples that decide nothing but the shape of this check."
)
# Tokens that are read by default: a page of 800 words, of which a tokenizer makes two
# each where it knows few of them.
PAGE = 1600
_OVERLAP = 8  # windows share at least one part of so many
_SAID = re.compile(
    r"tokens \w+, (?:at most|always) (\d+)(?:.*, (\d+) windows|.*)$", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class TextWindows:
    """A tokenizer, and the windows in which a model reads what it makes of a text."""

    # From a text to its tokens, up to a number, with special ones at both ends.
    encode: Callable[[str, int], Tokens]
    limit: int  # tokens of a window
    head: int  # tokens that every text begins with: special ones and a prompt
    tail: int
    max_windows: int

    @classmethod
    def of(
        cls,
        encode: Callable[[str, int], Tokens],
        limit: int,
        max_windows: int | None,
        prompt: str = "",
        unpadded: Callable[[str, int], Tokens] | None = None,
    ) -> TextWindows:
        """Find what a tokenizer puts at both ends; by default allow as many windows as hold a page."""

        def shared(step: int, *texts: str) -> int:
            one, other = (
                (unpadded or encode)(text, PAGE)["input_ids"][::step] for text in texts
            )
            return sum(
                1
                for _ in takewhile(
                    lambda pair: pair[0] == pair[1], zip(one, other, strict=False)
                )
            )

        head = shared(1, prompt, prompt + PUBLIC)
        tail = shared(-1, "", PUBLIC)
        if limit <= head + tail:
            raise ParameterError(
                f"must be above {head + tail}, the tokens at both ends of each text.",
                parameter="max_tokens",
            )
        one = cls(lambda text, most: encode(prompt + text, most), limit, head, tail, 1)
        made = replace(one, max_windows=max_windows or one.count(PAGE))
        made.prepare(
            PUBLIC
        )  # a tokenizer keeps this number, and must not be given it while other threads use it
        return made

    @property
    def size(self) -> int:
        """Tokens of a text in one of several windows."""
        return self.limit - self.head - self.tail

    @property
    def step(self) -> int:
        """The largest distance of two windows that follow one another."""
        return self.size - self.size // _OVERLAP

    @property
    def most(self) -> int:
        """Tokens of a text that are read."""
        return self.size + (self.max_windows - 1) * self.step

    def count(self, length: int) -> int:
        """Return how many windows a number of tokens needs."""
        return 1 + max(0, -(-(length - self.size) // self.step))

    def length(self, tokens: Tokens) -> int:
        """Return the number of tokens between both ends."""
        return len(tokens["input_ids"]) - self.head - self.tail

    def cuts(self, text: str) -> bool:
        """Return whether the end of a text is not read."""
        return self.length(self._encoded(text)) > self.most

    def prepare(self, text: str) -> Tokens:
        """Return the tokens of a text that are read."""
        tokens = self._encoded(text)
        unread = slice(
            self.head + self.most, self.head + max(self.most, self.length(tokens))
        )
        return {name: np.delete(row, unread) for name, row in tokens.items()}

    def _encoded(self, text: str) -> Tokens:
        # One token more than is read says that there are more. Of a text of megabytes
        # no more are worth their memory.
        return self.encode(text, self.head + self.most + 1 + self.tail)

    def split(self, tokens: Tokens) -> list[tuple[Tokens, float]]:
        """Return the windows of what `prepare` returned, each with its number of tokens: its weight."""
        length = self.length(tokens)
        if length <= self.size:
            return [(tokens, 1.0)]
        count = self.count(length)
        starts = [place * (length - self.size) // (count - 1) for place in range(count)]
        windows_of = np.zeros(length)  # in how many windows a token is
        for start in starts:
            windows_of[start : start + self.size] += 1

        def window(row: Array, start: int) -> Array:
            text = row[self.head : self.head + length]
            return np.concatenate(
                [
                    row[: self.head],
                    text[start : start + self.size],
                    row[self.head + length :],
                ]
            )

        return [
            (
                {name: window(row, start) for name, row in tokens.items()},
                math.fsum(1 / windows_of[start : start + self.size]),
            )
            for start in starts
        ]

    def __str__(self) -> str:
        if self.max_windows == 1:
            return ""
        return f", {self.max_windows} windows"


def said(preprocessing: str) -> str:
    """Return how long texts may be, from what the fingerprint of an encoder of texts says; "" for others."""
    found = _SAID.match(preprocessing)
    if found is None:
        return ""
    if found[2] is None:
        return f"1 window of {found[1]} tokens"
    return f"{found[2]} windows of {found[1]} tokens"
