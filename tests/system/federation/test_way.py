"""What comes over Flower: late, twice, from others, or not at all."""

from types import SimpleNamespace

import pytest

from dppl.errors import EngineError
from dppl.federation.flower import Superlink


class Grid:
    """Nodes that take messages, and answer as `replies` says: lists of (to which message, content), look by look."""

    def __init__(self, *replies, nodes=("north", "south")):
        self.replies = list(replies)
        self.nodes = nodes
        self.sent = []

    def get_nodes(self):
        return [
            SimpleNamespace(public_key=f"key of {name}".encode(), node_id=1 + i)
            for i, name in enumerate(self.nodes)
        ]

    def push_messages(self, messages):
        self.sent += [
            (one.metadata.dst_node_id, bytes(one.content["dppl"]["content"]))
            for one in messages
        ]
        return [f"message {len(self.sent)}"]

    def pull_messages(self, waiting):
        came = self.replies.pop(0) if self.replies else []
        return [
            SimpleNamespace(
                metadata=SimpleNamespace(reply_to_message_id=to),
                has_content=lambda content=content: content is not None,
                content={"dppl": {"content": content}},
            )
            for to, content in came
        ]


@pytest.fixture
def way(tmp_path, monkeypatch):
    task = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name in (
        "_task_id",
        "_run_id",
        "_node_id",
    ):  # without which Flower makes no message
        monkeypatch.setattr(task, name, 1)
    for name in ("secret", "ca.crt"):
        (tmp_path / name).write_bytes(b"x")
    keys = {name: f"key of {name}".encode() for name in ("north", "south")}
    return Superlink(
        "127.0.0.1:1",
        keys,
        root_certificates=tmp_path / "ca.crt",
        secret=tmp_path / "secret",
        timeout=0.5,
    )


def test_each_answer_counts_once_and_for_its_own_question(way):
    both = {"north": b"?n", "south": b"?s"}
    way._grid = Grid(
        [("message 2", b"s")],
        [("message 2", b"twice"), ("message 9", b"other"), ("message 1", b"n")],
    )
    assert way.exchange(both) == {"north": b"n", "south": b"s"}
    assert way._grid.sent == [(1, b"?n"), (2, b"?s")]


def test_what_is_late_or_empty_is_no_answer(way):
    both = {"north": b"?n", "south": b"?s"}
    way._grid = Grid([("message 1", None), ("message 2", b"s")])
    assert way.exchange(both) == {"south": b"s"}
    # The next question to the same institution is another message, to which an answer
    # to the last one is none.
    way._grid = Grid([("message 0", b"late")])
    assert way.exchange({"north": b"?n"}) == {}
    way._grid = Grid(
        [("message 1", b"n")], nodes=("north", "stranger")
    )  # whoever is not there is not waited for alone
    assert way.exchange(both) == {"north": b"n"}
    assert way._grid.sent == [(1, b"?n")]


def test_a_superlink_that_fails_is_named(way):
    import httpx

    def broken():
        raise httpx.ConnectError("refused")

    way._grid = SimpleNamespace(get_nodes=broken)
    with pytest.raises(
        EngineError, match=r"127\.0\.0\.1:1 does not answer as it must: refused"
    ):
        way.exchange({"north": b"?"})
