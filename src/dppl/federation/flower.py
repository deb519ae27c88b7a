"""Messages over Flower's deployment runtime, with TLS and authenticated nodes.

A standard node of Flower runs the program that a coordinator sends. An institution must
not: a program on its machine could read the records without any noise. Its node is
therefore this process, which passes messages from Flower to `Party` and neither fetches
nor starts a program. The coordinator is this process, too: it opens a run with an empty
program and claims it.

Both use modules of Flower outside its documented interface, so dppl allows a single
minor version.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from dppl._utils.optional import optional
from dppl.errors import EngineError, InputError

# Polling intervals: short during a fit, when questions follow each other, and long
# between fits.
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
# The shortest that Flower allows. A killed node counts as present for two of them.
_HEARTBEAT_S = 10.0
_SAID_S = 30.0
_RECORD = "dppl"
_CONTENT = "content"
# An empty program, which nobody runs.
_PROGRAM = b"""[project]
name = "dppl"
version = "1.0.0"
description = "Messages of dppl; no program."
license = { text = "Apache-2.0" }
dependencies = []
[tool.flwr.app]
publisher = "dppl"
[tool.flwr.app.components]
serverapp = "dppl.none:app"
clientapp = "dppl.none:app"
"""


def _flower(module: str) -> Any:
    os.environ.setdefault(
        "FLWR_TELEMETRY_ENABLED", "0"
    )  # participation is confidential
    return optional(f"flwr.{module}", "Flower", "federation")


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise InputError(f"there is no {what} {path}.") from None


def public_key(path: Path) -> bytes:
    """Read the public key of an institution's node, in OpenSSH's form, as Flower compares it."""
    ssh = optional(
        "cryptography.hazmat.primitives.serialization", "cryptography", "federation"
    )
    try:
        key = ssh.load_ssh_public_key(_read(path, "public key"))
    except ValueError:
        raise InputError(f"{path} is no public key in OpenSSH's form.") from None
    found: bytes = _flower("supercore.primitives.asymmetric").public_key_to_bytes(key)
    return found


def _wrapped(content: bytes, **where: Any) -> Any:
    app = _flower("app")
    return app.Message(
        app.RecordDict({_RECORD: app.ConfigRecord({_CONTENT: content})}), **where
    )


def serve(
    answer: Callable[[bytes], bytes],
    *,
    superlink: str,
    root_certificates: Path,
    key: Path,
    ready: Callable[[], None],
    stopped: Callable[[], bool],
) -> None:
    """Answer messages from a SuperLink until `stopped`; a coordinator repeats a question that got no answer."""
    ssh = optional(
        "cryptography.hazmat.primitives.serialization", "cryptography", "federation"
    )
    http = optional("httpx", "Flower", "federation")
    try:
        private = ssh.load_ssh_private_key(_read(key, "private key"), None)
    except ValueError:
        raise InputError(
            f"{key} is no private key in OpenSSH's form, without a passphrase."
        ) from None
    hooks = _flower("supercore.interceptors")
    fleet = _flower("proto.fleet_pb2")
    beat = _flower("proto.heartbeat_pb2")
    proof = _flower("supernode.node_auth_http_interceptor").NodeAuthHttpInterceptor(
        private, private.public_key()
    )
    version = hooks.RuntimeVersionHttpInterceptor(component_name="SuperNode")
    name = _flower("supercore.primitives.asymmetric").public_key_to_bytes(
        private.public_key()
    )
    certificates = _read(root_certificates, "certificate")
    client = _flower("supernode.fleet_http_client").FleetHttpClient.from_server_address(
        superlink, False, certificates, interceptors=[version, proof]
    )
    node = None
    beaten = said = 0.0
    pause = _PAUSE_S
    while not stopped():
        try:
            if node is None:
                # Refused until the public key is registered, and for seconds after a
                # node with this key was killed.
                request = fleet.ActivateNodeRequest(
                    public_key=name, heartbeat_interval=_HEARTBEAT_S
                )
                node = _flower("proto.node_pb2").Node(
                    node_id=client.ActivateNode(request).node_id
                )
                ready()
            if time.monotonic() - beaten > _HEARTBEAT_S / 2:
                client.SendNodeHeartbeat(
                    beat.SendNodeHeartbeatRequest(
                        node=node, heartbeat_interval=_HEARTBEAT_S
                    )
                )
                beaten = time.monotonic()
            if _answered_one(client, node, answer):
                pause = _PAUSE_S
            else:
                pause = min(1.2 * pause, _LONGEST_PAUSE_S)
            time.sleep(pause)
        except (http.HTTPError, RuntimeError) as error:
            if time.monotonic() - said > _SAID_S:
                sys.stderr.write(
                    f"dppl: the SuperLink {superlink} does not answer as it must: {error}\n"
                )
                said = time.monotonic()
            node = None
            time.sleep(1)
    if node is not None:
        with suppress(
            http.HTTPError, RuntimeError
        ):  # the SuperLink may have stopped first
            client.DeactivateNode(fleet.DeactivateNodeRequest(node_id=node.node_id))
    client.close()


def _answered_one(client: Any, node: Any, answer: Callable[[bytes], bytes]) -> bool:
    """Pull one message, if there is one, and send the reply."""
    objects = _flower("supercore.inflatable.inflatable_object")
    moved = _flower("supercore.inflatable.inflatable_utils")
    calls = _flower("supercore.inflatable.inflatable_protobuf_utils")
    serde = _flower("common.serde")
    fleet = _flower("proto.fleet_pb2")
    came = client.PullMessages(fleet.PullMessagesRequest(node=node))
    if not came.messages_list:
        return False
    # A message arrives as the hashes of its parts, which are then fetched.
    asked = serde.message_from_proto(came.messages_list[0])
    run = asked.metadata.run_id
    name = asked.metadata.message_id
    names = [
        one.object_id
        for one in objects.iterate_object_tree(came.message_object_trees[0])
    ]
    pull = calls.make_pull_object_fn_protobuf(client.PullObject, node, run)
    contents = moved.pull_objects(names, pull_object_fn=pull)
    calls.make_confirm_message_received_fn_protobuf(
        client.ConfirmMessageReceived, node, run
    )(name)
    whole = moved.inflate_object_from_contents(name, contents)
    whole.metadata.__dict__["_message_id"] = (
        name  # a reply names the message that it answers
    )
    if whole.has_content():
        record = whole.content.get(_RECORD, {})
    else:
        record = {}
    reply = _wrapped(answer(bytes(record.get(_CONTENT, b""))), reply_to=whole)
    # The reply is sent in the same way; the SuperLink asks for the parts that it lacks.
    with objects.no_object_id_recompute():
        reply.metadata.__dict__["_message_id"] = reply.object_id
        parts = objects.get_all_nested_objects(reply)
        tree = objects.get_object_tree(reply)
        bare = _flower("app.message").remove_content_from_message(reply)
        sent = client.PushMessages(
            fleet.PushMessagesRequest(
                node=node,
                messages_list=[serde.message_to_proto(bare)],
                message_object_trees=[tree],
                clientapp_runtime_list=[0.0],
            )
        )
        push = calls.make_push_object_fn_protobuf(
            client.PushObject, node, run, sent.session_id
        )
        for part in sent.objects_to_push:
            push(part, parts[part].deflate())
    return True


class Superlink:
    """A connection to institutions through a SuperLink; public keys identify their nodes."""

    def __init__(
        self,
        address: str,
        parties: Mapping[str, bytes],
        *,
        root_certificates: Path,
        secret: Path,
        timeout: float = 600,
    ) -> None:
        self.names = tuple(parties)
        self._keys = dict(parties)
        self._timeout = timeout
        # The secret is for processes that claim runs.
        self._address = address
        self._secret = _read(secret, "secret")
        self._certificates = _read(root_certificates, "certificate")

    def __enter__(self) -> Self:
        """Open a run and claim it."""
        grid = _flower("superlink.grid")
        runtime = _flower("proto.runtime_pb2")
        token = self._claimed()
        self._grid = grid.HttpGrid(
            self._address, False, self._certificates, token=token
        )
        client = self._grid._runtime_client
        heartbeat = _flower("supercore.heartbeat")
        self._beats = heartbeat.HeartbeatSender(
            heartbeat.make_task_heartbeat_fn_http(client)
        )
        self._beats.start()
        task = client.PullTaskInput(runtime.PullTaskInputRequest())
        identity = _flower("supercore.task_identity")
        mine = identity.TaskIdentity
        mine.task_id = task.task_id
        mine.run_id = task.run.run_id
        mine.node_id = task.context.node_id
        self._grid.set_run(_flower("common.serde").run_from_proto(task.run))
        return self

    def __exit__(self, *_: object) -> None:
        """End the run."""
        runtime = _flower("proto.runtime_pb2")
        constant = _flower("common.constant")
        done = runtime.PushTaskOutputRequest(
            sub_status=constant.SubStatus.COMPLETED, details=""
        )
        self._beats.stop()
        self._grid._runtime_client.PushTaskOutput(done)
        self._grid.close()

    def exchange(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Deliver a message to each institution, and return what came back in time."""
        try:
            return self._exchanged(messages)
        except optional("httpx", "Flower", "federation").HTTPError as error:
            raise EngineError(
                f"the SuperLink {self._address} does not answer as it must: {error}"
            ) from None

    def _exchanged(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        app = _flower("app")
        end = time.monotonic() + self._timeout
        waiting: dict[str, str] = {}
        came: dict[str, bytes] = {}
        left = dict(messages)
        while time.monotonic() < end and (left or waiting):
            if left:
                nodes = {
                    node.public_key: node.node_id for node in self._grid.get_nodes()
                }
            else:
                nodes = {}
            for name in [one for one in left if self._keys[one] in nodes]:
                where = {
                    "dst_node_id": nodes[self._keys[name]],
                    "message_type": app.MessageType.QUERY,
                }
                sent = list(
                    self._grid.push_messages([_wrapped(left.pop(name), **where)])
                )
                waiting |= {
                    one: name for one in sent if one
                }  # none if it was too large
            for reply in self._grid.pull_messages(list(waiting)) if waiting else []:
                name = waiting.pop(
                    reply.metadata.reply_to_message_id, ""
                )  # a duplicate counts once
                if name and reply.has_content() and _RECORD in reply.content:
                    came[name] = bytes(reply.content[_RECORD].get(_CONTENT, b""))
            time.sleep(_PAUSE_S)
        return came

    def _claimed(self) -> str:
        """Start a run, and return the token with which its messages are sent."""
        control = _flower("proto.control_pb2")
        runtime = _flower("proto.runtime_pb2")
        serde = _flower("common.serde")
        fab = _flower("supercore.fab")
        hook = _flower("supercore.interceptors")
        program = _flower("cli.build").build_fab_from_files(
            {"pyproject.toml": _PROGRAM}
        )[0]
        version = hook.RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
        signed = hook.SuperExecAuthHttpInterceptor(
            master_secret=self._secret,
            protected_methods={"/flwr.proto.Runtime/AcquireTask"},
        )
        where = self._address, False, self._certificates
        http = optional("httpx", "Flower", "federation")
        kind = _flower("supercore.constant").TaskType.SERVER_APP
        starting = _flower("supercore.control").ControlHttpClient.from_server_address(
            *where, interceptors=[version]
        )
        claiming = _flower("supercore.runtime").RuntimeHttpClient.from_server_address(
            *where, interceptors=[version, signed]
        )
        try:
            # A SuperLink delivers messages to runs only, and a run needs a program.
            wrapped = serde.fab_to_proto(
                fab.Fab(sha256(program).hexdigest(), program, {})
            )
            run = starting.StartRun(control.StartRunRequest(fab=wrapped)).run_id
            end = time.monotonic() + self._timeout
            while time.monotonic() < end:
                task = claiming.AcquireTask(
                    runtime.AcquireTaskRequest(supported_task_types=[kind])
                )
                if task.token and task.task.run_id == run:
                    return str(task.token)
                time.sleep(_PAUSE_S)
        except http.HTTPError as error:
            raise EngineError(
                f"the SuperLink {self._address} does not answer as it must: {error}"
            ) from None
        finally:
            starting.close()
            claiming.close()
        raise EngineError(f"the SuperLink {self._address} started no run in time.")
