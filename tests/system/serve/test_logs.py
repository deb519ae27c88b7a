"""Logs hold nothing of what was asked or answered, whatever goes wrong."""

import json
import logging
import socket
import time
from dataclasses import replace

import pytest

from dppl.serve import open_model
from system.serve.conftest import TOKEN, png, served

SECRET = "Jane Doe 4711"


def lines(client):
    """Return the log, which is JSON line by line."""
    return [json.loads(line) for line in client.logs.getvalue().splitlines()]


def holds(text, *secrets):
    return [secret for secret in secrets if str(secret) in text]


def ask_all(client):
    """Ask for all that holds a secret somewhere."""
    client.post(texts=[SECRET, "abcde"])
    client.post(texts=[f"odd {SECRET}"])
    client.post(embeddings=[0.47114711] * 27)
    client.post(embeddings=[0.47114711] * 26)
    client.post(texts=[SECRET], model=SECRET)
    client.upload(png())
    client.upload(b"no image " + SECRET.encode())
    client.get(
        f"/{SECRET.replace(' ', '+')}?name={SECRET.replace(' ', '+')}", Referer=SECRET
    )
    client.get("/model?model=Jane+Doe", Cookie=SECRET, Authorization=f"Bearer {SECRET}")
    client.ask("JANE", "/health")


@pytest.mark.parametrize("token", [None, TOKEN])
def test_nothing_of_a_request_is_logged(animals, pictures, token):
    with served([open_model(animals), open_model(pictures)], token=token) as client:
        ask_all(client)
    text = client.logs.getvalue()
    said = lines(client)
    assert not holds(
        text,
        SECRET,
        "Jane",
        "JANE",
        "4711",
        TOKEN,
        "abcde",
        "cat",
        "dark above",
        ".png",
        "127.0.0.1",
    )
    assert len(said) == 10
    assert {one["event"] for one in said} == {"answered"}


def test_what_is_logged(animals):
    with served([open_model(animals)]) as client:
        client.post(texts=["abcde", "fghij"])
        client.get("/else")
    predicted, other = lines(client)
    assert set(predicted) == {
        "time",
        "level",
        "event",
        "method",
        "route",
        "status",
        "ms",
        "model",
        "kind",
        "items",
    }
    assert (
        predicted["route"],
        predicted["status"],
        predicted["kind"],
        predicted["items"],
    ) == (
        "/predict",
        200,
        "texts",
        2,
    )
    assert (other["route"], other["status"]) == ("other", 404)


def test_a_client_that_goes_away_is_no_failure(animals):
    with served([open_model(animals)]) as client:
        with socket.create_connection(
            ("127.0.0.1", client.port), timeout=60
        ) as connection:
            head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(head + b"Content-Length: 99\r\n\r\n{")
        deadline = time.monotonic() + 60
        while not client.logs.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert [(one["event"], one["status"]) for one in lines(client)][:1] == [
        ("answered", 499)
    ]


def test_a_bug_is_logged_by_its_type_and_place(animals):
    def classify(row, *, similarity):
        raise RuntimeError(SECRET)

    with served([replace(open_model(animals), classify=classify)]) as client:
        answer = client.post(texts=SECRET)
    text = client.logs.getvalue()
    failed, answered = lines(client)
    assert (answer.status, answer.json()["error"]) == (500, "failed")
    assert not holds(text + answer.body.decode(), "Jane", "4711")
    assert (failed["event"], failed["error"], failed["level"]) == (
        "failed",
        "RuntimeError",
        "error",
    )
    assert failed["where"].startswith("test_logs.py:")
    assert answered["status"] == 500


def test_a_log_that_quotes_would_be_noticed(animals):
    """The control: arguments of libraries stay out, and what we would write ourselves is found."""
    with served([open_model(animals)]) as client:
        logging.getLogger("uvicorn.error").warning("Odd request: %s", SECRET)
        logging.getLogger("asyncio").error(SECRET)
        logging.getLogger("of.an.encoder").warning(SECRET)
        assert not holds(client.logs.getvalue(), SECRET)
        assert [(one["event"], one["logger"]) for one in lines(client)] == [
            ("Odd request: %s", "uvicorn.error"),
            ("library", "of.an.encoder"),
        ]
        logging.getLogger("dppl.serve").info(SECRET)
        assert holds(client.logs.getvalue(), SECRET)


def test_loggers_are_as_they_were(animals):
    log = logging.getLogger("uvicorn.error")
    before = log.handlers, log.propagate, log.level
    with served([open_model(animals)]):
        assert (log.handlers, log.propagate, log.level) != before
    assert (log.handlers, log.propagate, log.level) == before
