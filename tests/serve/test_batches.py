"""The queue before an encoder: what waits is embedded together, and nobody's failure is another's."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from dppl.serve.batches import Batches


class Encoder:
    """Embeds a number as itself; waits for a signal where it is told to."""

    window = 100

    def __init__(self, *, row_independent=True, gate=None):
        self.fingerprint = SimpleNamespace(row_independent=row_independent)
        self.gate, self.entered, self.batches = gate, threading.Event(), []

    def encode_prepared(self, batch):
        self.batches.append(list(batch))
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(60)
        if "bad" in batch:
            raise ValueError("Jane Doe")
        if "huge" in batch:
            raise MemoryError
        return np.array(batch, np.float32)[:, None]


async def one_and_then(encoder, others, most=100, seen=None):
    """Embed 0, and when the encoder is at it, ask for lists of others; return all answers."""
    batches = Batches(encoder, most, (seen if seen is not None else []).append)
    first = asyncio.create_task(batches.embed([0]))
    await asyncio.to_thread(encoder.entered.wait, 60)
    rest = [asyncio.create_task(batches.embed(other)) for other in others]
    await asyncio.sleep(0)  # they are in the queue
    encoder.gate.set()
    found = await asyncio.gather(first, *rest, return_exceptions=True)
    batches.close()
    return found


def numbers(rows):
    return [None if row is None else float(row[0]) for row in rows]


def test_what_waited_is_embedded_together_and_comes_back_in_order():
    encoder, seen = Encoder(gate=threading.Event()), []
    found = asyncio.run(one_and_then(encoder, [[1, 2], [3], [4]], seen=seen))
    assert [numbers(rows) for rows in found] == [[0], [1, 2], [3], [4]]
    assert encoder.batches == [[0], [1, 2, 3, 4]]
    assert seen == [1, 4]


def test_a_batch_has_a_largest_size():
    encoder = Encoder(gate=threading.Event())
    asyncio.run(one_and_then(encoder, [[1, 2, 3], [4, 5]], most=2))
    assert encoder.batches == [[0], [1, 2], [3, 4], [5]]


def test_an_encoder_whose_rows_depend_on_each_other_gets_one_at_a_time():
    encoder = Encoder(row_independent=False, gate=threading.Event())
    found = asyncio.run(one_and_then(encoder, [[1, 2], [3]]))
    assert encoder.batches == [[0], [1], [2], [3]]
    assert [numbers(rows) for rows in found] == [[0], [1, 2], [3]]


def test_an_item_that_cannot_be_embedded_harms_no_other():
    encoder = Encoder(gate=threading.Event())
    found = asyncio.run(one_and_then(encoder, [[1, "bad"], [3]]))
    assert [numbers(rows) for rows in found] == [[0], [1, None], [3]]


def test_a_lack_of_memory_is_told_to_all_of_the_batch_and_to_no_later_one():
    encoder = Encoder(gate=threading.Event())
    first, second, third = asyncio.run(one_and_then(encoder, [["huge"], [3]], most=1))
    assert isinstance(second, MemoryError)
    assert (numbers(first), numbers(third)) == ([0], [3])


def test_what_nobody_waits_for_is_not_begun():
    async def given_up():
        encoder = Encoder(gate=threading.Event())
        batches = Batches(encoder, 100, lambda count: None)
        first = asyncio.create_task(batches.embed([0]))
        await asyncio.to_thread(encoder.entered.wait, 60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await batches.embed([1, 2])
        last = asyncio.create_task(batches.embed([3]))
        await asyncio.sleep(0)
        encoder.gate.set()
        assert [numbers(await task) for task in (first, last)] == [[0], [3]]
        batches.close()
        return encoder.batches

    assert asyncio.run(given_up()) == [[0], [3]]
