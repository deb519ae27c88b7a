"""The queue before an encoder: what waits is embedded together, and nobody's failure is another's."""

import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from types import SimpleNamespace

import numpy as np
import pytest

from dppl.serve.batches import Batches


class Encoder:
    """Embeds a number as itself; waits for a signal where it is told to."""

    window = 100

    def __init__(self, *, row_independent=True, gate=None):
        self.fingerprint = SimpleNamespace(row_independent=row_independent)
        self.gate = gate
        self.entered = threading.Event()
        self.batches = []

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


def one_and_then(encoder, others, most=100):
    """Embed 0, and when the encoder is at it, ask for lists of others; return all answers, an error in place of one."""
    batches = Batches(encoder, most)
    with ThreadPoolExecutor() as threads:
        asked = [threads.submit(batches.embed, [0], monotonic() + 60)]
        assert encoder.entered.wait(60)
        for number, other in enumerate(others, 1):
            asked.append(threads.submit(batches.embed, other, monotonic() + 60))
            until(
                lambda number=number: (
                    len(batches._waiting) == sum(map(len, others[:number]))
                )
            )
        encoder.gate.set()
        answers = [one.exception() or one.result() for one in asked]
    return answers


def until(holds):
    """Wait until something holds that another thread brings about."""
    deadline = monotonic() + 60
    while not holds():
        assert monotonic() < deadline
        sleep(0.001)


def numbers(rows):
    return [None if row is None else float(row[0]) for row in rows]


def test_what_waited_is_embedded_together_and_comes_back_in_order():
    encoder = Encoder(gate=threading.Event())
    found = one_and_then(encoder, [[1, 2], [3], [4]])
    assert [numbers(rows) for rows in found] == [[0], [1, 2], [3], [4]]
    assert encoder.batches == [[0], [1, 2, 3, 4]]


def test_a_batch_has_a_largest_size():
    encoder = Encoder(gate=threading.Event())
    one_and_then(encoder, [[1, 2, 3], [4, 5]], most=2)
    assert encoder.batches == [[0], [1, 2], [3, 4], [5]]


def test_items_of_one_shape_share_a_batch_and_the_oldest_comes_first():
    encoder = Encoder(gate=threading.Event())
    encoder.shape_of = lambda number: number % 2
    found = one_and_then(encoder, [[1, 2], [4], [3]])
    assert encoder.batches == [[0], [1, 3], [2, 4]]
    assert [numbers(rows) for rows in found] == [[0], [1, 2], [4], [3]]


def test_as_many_batches_are_embedded_at_a_time_as_the_encoder_has_threads():
    encoder = Encoder(gate=threading.Event())
    encoder.workers = 2
    batches = Batches(encoder, most=1)
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(batches.embed, [0, 1, 2], monotonic() + 60)
        until(lambda: len(encoder.batches) == 2)
        encoder.gate.set()
        assert numbers(asked.result()) == [0, 1, 2]


def test_an_encoder_whose_rows_depend_on_each_other_gets_one_at_a_time():
    encoder = Encoder(row_independent=False, gate=threading.Event())
    found = one_and_then(encoder, [[1, 2], [3]])
    assert encoder.batches == [[0], [1], [2], [3]]
    assert [numbers(rows) for rows in found] == [[0], [1, 2], [3]]


def test_an_item_that_cannot_be_embedded_harms_no_other():
    encoder = Encoder(gate=threading.Event())
    found = one_and_then(encoder, [[1, "bad"], [3]])
    assert [numbers(rows) for rows in found] == [[0], [1, None], [3]]


def test_a_lack_of_memory_is_told_to_all_of_the_batch_and_to_no_later_one():
    encoder = Encoder(gate=threading.Event())
    first, second, third = one_and_then(encoder, [["huge"], [3]], most=1)
    assert isinstance(second, MemoryError)
    assert (numbers(first), numbers(third)) == ([0], [3])


def test_what_nobody_waits_for_is_not_begun():
    encoder = Encoder(gate=threading.Event())
    batches = Batches(encoder, 100)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(batches.embed, [0], monotonic() + 60)
        assert encoder.entered.wait(60)
        with pytest.raises(TimeoutError):
            batches.embed([1, 2], monotonic() + 0.01)
        last = threads.submit(batches.embed, [3], monotonic() + 60)
        encoder.gate.set()
        assert [numbers(one.result()) for one in (first, last)] == [[0], [3]]
    assert encoder.batches == [[0], [3]]
