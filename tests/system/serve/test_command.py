"""`dppl serve` as a process: what it says, what it refuses, and how it stops."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

import dppl
from command_line import invoke
from dppl.serve import listen
from system.serve.conftest import TOKEN, Client, served


@pytest.fixture
def process(digits, tmp_path):
    """Start the command with options; end all that was started."""
    started = []

    def start(*options, models=(digits,), **environment):
        command = [
            sys.executable,
            "-m",
            "dppl",
            "serve",
            *map(str, models),
            "--port",
            "0",
            *options,
        ]
        with (tmp_path / f"{len(started)}.log").open("w") as logs:
            ended = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=logs,
                text=True,
                env={**os.environ, **environment},
            )
        started.append(ended)
        url = ended.stdout.readline()
        return ended, int(url.rpartition(":")[2]), tmp_path / f"{len(started) - 1}.log"

    yield start
    for one in started:
        one.kill()
        one.wait()
        one.stdout.close()


def head(body):
    return (
        "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish_and_a_token_is_asked_for(
    process, sample, number
):
    needs_token = number == signal.SIGTERM
    options = ("--host", "0.0.0.0", "--token", "env:THE_TOKEN") if needs_token else ()
    ended, port, logs = process(*options, THE_TOKEN=TOKEN)
    assert Client(port).get("/health").status == (401 if needs_token else 200)
    assert Client(port, TOKEN).get("/health").json() == {
        "status": "ok",
        "models": ["digits"],
    }
    body = json.dumps({"embeddings": sample.X_test[:9].tolist()}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(head(body) + body[:10])
        assert (
            Client(port, TOKEN).get("/health").status == 200
        )  # so the other request is being read
        ended.send_signal(number)
        while True:  # until nobody listens any more
            try:
                socket.create_connection(("127.0.0.1", port), timeout=60).close()
            except ConnectionResetError:  # while it closes
                continue
            except ConnectionRefusedError:
                break
        connection.sendall(body[10:])
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["predictions"]) == 9
    assert ended.wait(60) == 0
    assert TOKEN not in logs.read_text()
    events = [json.loads(line) for line in logs.read_text().splitlines()]
    assert (events[0]["event"], events[0]["token"], events[-1]["event"]) == (
        "listening",
        needs_token,
        "stopped",
    )


@pytest.fixture
def failed(monkeypatch):
    """Run the command where it must refuse; return its exit code and message. It never begins to serve."""
    monkeypatch.setattr("dppl.serve.serve", None)

    def run(*arguments):
        result = invoke(["serve", *map(str, arguments)])
        return result.exit_code, result.stderr

    return run


def test_what_the_command_refuses(failed, digits, tmp_path):
    copy = tmp_path / digits.name
    shutil.copy(digits, copy)
    (tmp_path / "open.txt").write_text(TOKEN)
    (tmp_path / "open.txt").chmod(0o644)
    for arguments, code, said in [
        (
            (digits, "--host", "0.0.0.0"),
            2,
            "--host must be an address of this machine alone",
        ),
        ((digits, "--host", "0.0.0.0"), 2, "bring a token: give --token FILE"),
        ((digits, copy), 2, "two have one name"),
        ((tmp_path / "none.safetensors",), 4, "there is no model file"),
        (
            (digits, "--token", tmp_path / "open.txt"),
            2,
            "--token names a file that others may use",
        ),
        (
            (digits, "--token", "env:NOT_THERE"),
            2,
            "--token names an environment variable that is not set",
        ),
        (
            (digits, tmp_path / "other.safetensors", "--encoder", "letters"),
            2,
            "--encoder is for a single model",
        ),
        (
            (digits, "--port", "0", "--encoder", "pixels"),
            2,
            "names none and takes embeddings, so leave it out",
        ),
        ((digits, "--limits", "items=0"), 2, "items must be"),
        ((), 2, "Missing: MODEL."),
    ]:
        found, message = failed(*arguments)
        assert (found, said in message) == (code, True), message


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_a_missing_package_names_the_extra(failed, digits, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    code, message = failed(digits)
    assert code == 4
    assert "pip install -e '.[serve]'" in message
    assert package.replace("_", "-") in message


def test_without_an_encoder_embeddings_alone(animals):
    from dppl.serve import open_model

    with served([open_model(animals, "none")]) as client:
        assert client.get("/model").json()["takes"] == ["embeddings"]
        assert client.post(texts="abc").json()["error"] == "other_kind"
        row = dppl.PrivateClassifier.load(animals).encoder.encode(["abcabc"])[0]
        assert (
            client.post(embeddings=np.asarray(row).tolist()).json()["predictions"][0][
                "label"
            ]
            == "cat"
        )


def test_no_part_of_an_answer_waits_for_the_client_to_confirm_another():
    """Or the body waits 40 ms behind the headers, at every request of a connection but the first few."""
    with (
        listen("127.0.0.1", 0, has_token=False) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
