"""Who may ask, what may be asked, and what a refusal says."""

import asyncio
import base64
import gzip
import http.client
import json
import os
import socket
import threading
import time
from dataclasses import replace

import pytest

from dppl.errors import InputError, ParameterError
from dppl.serve import Limits, application, listen, models, open_model
from dppl.serve.requests import RequestError, read_json, request_model
from dppl.serve.server import read_token
from system.serve.conftest import TOKEN, Client, png, served

ROUTES = ["/", "/health", "/model", "/openapi.json", "/predict", "/nothing"]
SECRET = "Jane Doe, 4711"


def refused(answer, status, error):
    """Check a refusal, and that it quotes nothing."""
    assert (answer.status, answer.json()["error"]) == (status, error)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json().keys() == {"error", "message"}
    assert b"Doe" not in answer.body


@pytest.fixture(scope="module")
def model(digits):
    return open_model(digits)


@pytest.fixture(scope="module")
def client(model):
    with served([model]) as client:
        yield client


@pytest.fixture(scope="module")
def with_token(model):
    with served([model], token=TOKEN) as client:
        yield client


# Who


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "header",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Cookie": TOKEN},
    ],
)
def test_every_route_wants_the_token(with_token, path, header):
    stranger = Client(with_token.port)
    answer = stranger.ask("POST" if path == "/predict" else "GET", path, headers=header)
    refused(answer, 401, "no_token")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("value", [f"Bearer {TOKEN}", f"bearer  {TOKEN}"])
def test_the_token_opens_all(with_token, value):
    stranger = Client(with_token.port)
    statuses = [stranger.get(path, Authorization=value).status for path in ROUTES]
    assert statuses == [200, 200, 200, 200, 405, 404]
    assert (
        stranger.get("/health", Authorization=value, Host="models.example.org").status
        == 200
    )


def test_tokens_are_compared_in_constant_time(with_token, monkeypatch):
    compared = []
    monkeypatch.setattr(
        "hmac.compare_digest", lambda a, b: compared.append((a, b)) or a == b
    )
    for token in ("", "x", TOKEN[:-1], TOKEN, "y" * 1000):
        Client(with_token.port, token).get("/health")
    assert {len(one) for pair in compared for one in pair} == {32}
    assert [a == b for a, b in compared] == [False, False, False, True, False]


@pytest.mark.parametrize(
    "host",
    [
        *(
            "example.org",
            "example.org:80",
            "127.0.0.1.example.org",
            "",
            "[::1",
            "10.0.0.1",
        ),
        *(
            "evil.com@localhost",
            "evil.com:80@127.0.0.1:8000",
            "localhost/x",
            "localhost?x",
            "localhost#x",
            "localhost:x",
        ),
    ],
)
def test_without_a_token_only_names_of_this_machine_are_answered(client, host):
    refused(client.get("/health", Host=host), 421, "wrong_host")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]:8000", "127.0.0.2"]
)
def test_names_of_this_machine(client, host):
    assert client.get("/health", Host=host).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        *("https://example.org", "null", "http://localhost:1", "http://[", ""),
        *("ftp://localhost:8000", "http://localhost:8000/x", "http://x@localhost:8000"),
    ],
)
def test_pages_of_other_sites_may_not_ask(client, origin):
    refused(
        client.get("/health", Origin=origin, Host="localhost:8000"), 403, "other_origin"
    )


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization"])
@pytest.mark.parametrize("with_token", [False, True])
def test_what_decides_is_sent_once(model, name, with_token):
    good = {
        "Host": "localhost:8000",
        "Origin": "http://localhost:8000",
        "Authorization": f"Bearer {TOKEN}",
    }
    bad = {
        "Host": "example.org",
        "Origin": "https://example.org",
        "Authorization": "Bearer wrong",
    }
    app = application([model], token=TOKEN if with_token else None)

    def status(headers):
        raw = [(key.lower().encode(), value.encode()) for key, value in headers]
        sent = []

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/health",
            "headers": raw,
            "query_string": b"",
        }
        asyncio.run(app(scope, None, send))
        return sent[0]["status"]

    assert status(good.items()) == 200
    for other in (bad, good):
        assert status([(name, other[name]), *good.items()]) == 400


def test_the_page_itself_may_ask_and_others_are_granted_nothing(client):
    answer = client.get(
        "/health", Origin="http://localhost:8000", Host="localhost:8000"
    )
    assert answer.status == 200
    assert not [
        name for name in answer.headers if name.lower().startswith("access-control")
    ]


@pytest.mark.parametrize("path", ROUTES)
def test_every_answer_has_the_headers(client, path):
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert "Server" not in headers


def test_the_page_loads_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.headers["Content-Type"].startswith("text/html")
    assert b"//" not in page.body.replace(b"http-equiv", b"")
    assert "unsafe" not in page.headers["Content-Security-Policy"]


# What


@pytest.mark.parametrize(
    ("content", "status", "error"),
    [
        (b"", 400, "not_json"),
        (b"{", 400, "not_json"),
        (b"\xff", 400, "not_json"),
        (b'{"embeddings": ' + b"[" * 200, 400, "not_json"),
        (b'{"embeddings": ' + b"[" * 100_000, 422, "too_many_items"),
        (b'{"embeddings": [' + b"[]," * 5_000_000 + b"[]]}", 422, "too_many_items"),
        (b'{"texts": ["' + b"[" * 1000 + rb"\"" + b'"], "top": -1}', 422, "invalid"),
        (b'{"texts": ' + rb'"\"' * 1_000_000, 400, "not_json"),
        (b'{"embeddings": [' + b"9" * 5000 + b"]}", 400, "not_json"),
        (b"[]", 422, "invalid"),
        ({}, 422, "invalid"),
        ({"embeddings": []}, 422, "invalid"),
        ({"embeddings": [[1.0] * 31]}, 422, "wrong_width"),
        ({"embeddings": [[1.0] * 32, [1.0] * 33]}, 422, "wrong_width"),
        ({"embeddings": [[]]}, 422, "invalid"),
        ({"embeddings": [SECRET] * 32}, 422, "invalid"),
        ({"embeddings": ["1"] * 32}, 422, "invalid"),
        ({"embeddings": [True] * 32}, 422, "invalid"),
        ({"embeddings": [[[1.0]]]}, 422, "invalid"),
        ({"embeddings": [[1.0] * 32, 1.0]}, 422, "invalid"),
        ({"embeddings": SECRET}, 422, "invalid"),
        ({"texts": SECRET}, 422, "invalid"),
        ({"images": [SECRET]}, 422, "invalid"),
        ({"images": [base64.b64encode(png()).decode()]}, 422, "other_kind"),
        ({"embeddings": None}, 422, "invalid"),
        ({"embeddings": [[1.0] * 32], "texts": [SECRET]}, 422, "invalid"),
        ({"embeddings": [[1.0] * 32], SECRET: 1}, 422, "invalid"),
        ({"embeddings": [[1.0] * 32], "top": -1}, 422, "invalid"),
        ({"embeddings": [[1.0] * 32], "top": True}, 422, "invalid"),
        ({"embeddings": [[1.0] * 32], "top": 1.5}, 422, "invalid"),
        ({"embeddings": [[1.0] * 32], "top": SECRET}, 422, "invalid"),
        ({"embeddings": [[1.0] * 32], "probabilities": 1}, 422, "invalid"),
        ({"embeddings": [[1.0] * 32], "model": 1}, 422, "invalid"),
        ({"embeddings": [[1.0] * 32], "model": SECRET}, 404, "no_such_model"),
        ({"texts": [1]}, 422, "invalid"),
        ({"texts": [SECRET]}, 422, "other_kind"),
        ({"embeddings": [[1.0] * 32] * 257}, 422, "too_many_items"),
    ],
)
def test_bodies_that_are_refused(client, content, status, error):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    refused(
        client.ask("POST", "/predict", body, {"Content-Type": "application/json"}),
        status,
        error,
    )


def test_a_refusal_names_the_field_and_its_rule(client):
    row = [1.0] * 32
    for content, said in [
        (
            {"embeddings": row, "top": -1},
            "top is not as /openapi.json describes it. Input should be greater than or",
        ),
        ({"embeddings": row, "texts": [SECRET]}, "Send one kind of items."),
        (
            {"embeddings": row, SECRET: 1},
            "It may have embeddings, texts, images, rows, model, top, probabilities",
        ),
    ]:
        assert said in client.post(**content).json()["message"]


def test_numbers_at_the_edges_are_taken(client):
    """Those that are too large for a float, or none, leave an embedding without a direction; others get answers."""
    for odd in ("1e999", str(10**400), "NaN", "-Infinity"):
        row = json.dumps([1e308, -1e308, 5e-324] + [0.0] * 28)[:-1] + f", {odd}]"
        body = f'{{"embeddings": [{row}, {[1.0] * 32}], "top": {10**40}}}'
        answer = client.ask(
            "POST",
            "/predict",
            body,
            {"Content-Type": "application/json; charset=utf-8"},
        )
        assert answer.status == 200
        assert [one["label"] is None for one in answer.json()["predictions"]] == [
            True,
            False,
        ]


@pytest.mark.parametrize(
    "kind", ["text/plain", "", "multipart/form-data; boundary=X", "application/jsonp"]
)
def test_other_types_are_refused(client, kind):
    refused(
        client.ask("POST", "/predict", b"{}", {"Content-Type": kind}), 415, "other_type"
    )


@pytest.mark.parametrize(
    "coding", ["gzip", "GZIP", "identity, gzip", "br", "deflate", "x"]
)
def test_packed_bodies_are_refused_unread(client, coding):
    """A few bytes may unpack to gigabytes. The control: the same body as it is."""
    body = json.dumps({"embeddings": [[1.0] * 32]}).encode()
    plain = {"Content-Type": "application/json"}
    for headers in (plain, {**plain, "Content-Encoding": "Identity"}):
        assert client.ask("POST", "/predict", body, headers).status == 200
    packed = {**plain, "Content-Encoding": coding}
    answer = client.ask("POST", "/predict", gzip.compress(body), packed)
    refused(answer, 415, "packed")
    assert answer.headers["Accept-Encoding"] == "identity"


def test_health_has_a_status_without_a_body(client):
    answer = client.ask("HEAD", "/health")
    assert (answer.status, answer.body) == (200, b"")
    assert client.ask("HEAD", "/health", None, {"Host": "example.org"}).status == 421
    assert client.ask("HEAD", "/nothing").status == 404


# How much


def test_large_bodies(model):
    with served([model], limits=Limits(body_bytes=1000)) as client:
        refused(client.post(texts="x" * 1001), 413, "too_many_bytes")
        refused(client.post(texts="x" * 3000), 413, "too_many_bytes")
        refused(client.post(texts="x" * 900), 422, "other_kind")


def test_large_images(pictures):
    large = png(shape=(40, 30))
    small = png(shape=(30, 30))
    with served([open_model(pictures)], limits=Limits(pixels=900)) as client:
        refused(client.upload(large), 413, "too_many_pixels")
        refused(client.upload(small, large), 413, "too_many_pixels")
        assert client.upload(small).status == 200


def test_images_of_a_request_that_is_refused_are_not_decoded(pictures, monkeypatch):
    """They would keep others waiting, and be no longer among the predictions that may run."""
    begun = []
    large = png(shape=(40, 30))
    small = png(shape=(30, 30))
    decode = models.decode

    def slowly(payload, *options):
        begun.append(payload)
        if payload == small:
            time.sleep(0.1)
        return decode(payload, *options)

    monkeypatch.setattr(models, "decode", slowly)
    with served([open_model(pictures)], limits=Limits(pixels=900)) as client:
        refused(client.upload(large, *[small] * 100), 413, "too_many_pixels")
        assert client.upload(small).status == 200
    assert len(begun) < 50


def test_a_body_that_takes_too_long(model):
    with served([model], limits=Limits(seconds=0.2)) as client:
        with socket.create_connection(
            ("127.0.0.1", client.port), timeout=60
        ) as connection:
            head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(head + b"Content-Length: 100\r\n\r\n{")
            answer = connection.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert client.get("/health").status == 200


def waiting(model):
    """Return a model that waits for an event before it classifies, the event that it does, and the one it waits for."""
    begun = threading.Event()
    go = threading.Event()

    def classify(row, *, similarity):
        begun.set()
        assert go.wait(60)
        return model.classify(row, similarity=similarity)

    return replace(model, classify=classify), begun, go


@pytest.mark.slow
def test_a_connection_is_kept_between_requests(model):
    with served([model], limits=Limits(seconds=1)) as client:
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
        for _ in range(5):
            connection.request("GET", "/health")
            assert connection.getresponse().read()
            opened_once = connection.sock
            time.sleep(0.4)
        assert connection.sock is opened_once
        connection.close()


def test_a_prediction_that_takes_too_long(model, sample):
    slow, _, go = waiting(model)
    with served([slow], limits=Limits(seconds=0.2)) as client:
        answer = client.post(embeddings=sample.X_test[0].tolist())
        go.set()
        refused(answer, 503, "busy")
        assert answer.headers["Retry-After"] == "1"
        assert client.post(embeddings=sample.X_test[0].tolist()).status == 200


def test_more_predictions_than_may_run(model, sample):
    slow, begun, go = waiting(model)
    row = sample.X_test[0].tolist()
    answers = []
    with served([slow], limits=Limits(requests=1)) as client:
        first = threading.Thread(
            target=lambda: answers.append(client.post(embeddings=row))
        )
        first.start()
        assert begun.wait(60)
        refused(client.post(embeddings=row), 503, "busy")
        assert client.get("/health").status == 200  # the other routes do
        go.set()
        first.join()
        assert answers[0].status == 200
        assert client.post(embeddings=row).status == 200


def test_a_lack_of_memory_is_not_the_end(model, sample):
    def classify(row, *, similarity):
        raise MemoryError

    with served([replace(model, classify=classify)]) as client:
        refused(client.post(embeddings=sample.X_test[0].tolist()), 503, "busy")


@pytest.mark.parametrize(
    "name", ["body_bytes", "items", "pixels", "seconds", "requests"]
)
def test_limits_are_positive(name):
    with pytest.raises(ParameterError, match=f"{name} must be"):
        Limits(**{name: 0})


def test_pixels_have_an_upper_limit():
    with pytest.raises(ParameterError, match="pixels must be at most"):
        Limits(pixels=10**9)


# Where


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3"])
def test_other_addresses_want_a_token(host):
    with pytest.raises(
        ParameterError, match="host must be an address of this machine alone"
    ):
        listen(host, 0, has_token=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3"])
def test_loopback_wants_none(host):
    with listen(host, 0, has_token=False) as listening:
        assert (
            listening.getsockname()[0].startswith("127.")
            or listening.getsockname()[0] == "::1"
        )


def test_all_addresses_with_a_token():
    with listen("0.0.0.0", 0, has_token=True) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"


def test_a_port_that_is_taken():
    with listen("127.0.0.1", 0, has_token=False) as first:
        port = first.getsockname()[1]
        with pytest.raises(
            InputError, match=f"cannot bind to port {port} of 127.0.0.1: "
        ):
            listen("127.0.0.1", port, has_token=False)


def test_a_host_that_is_not_one():
    with pytest.raises(ParameterError, match="host must be a name or an address"):
        listen("no such host", 0, has_token=True)


def test_the_token_is_read_from_a_file_or_a_variable(tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    assert read_token(str(file)) == TOKEN
    monkeypatch.setenv("THE_TOKEN", TOKEN)
    assert read_token("env:THE_TOKEN") == TOKEN


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 15, "with blanks " * 3, "Jane Doe" * 9, "ü" * 20]
)
def test_tokens_that_are_refused(tmp_path, token):
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    with pytest.raises(
        ParameterError, match="token must lead to 16 characters"
    ) as refusal:
        read_token(str(file))
    assert "Doe" not in str(refusal.value)


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
def test_a_token_that_others_may_read(tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o640)
    with pytest.raises(ParameterError, match="token names a file that others may use"):
        read_token(str(file))


def test_a_token_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_token(str(tmp_path / "token"))
    with pytest.raises(
        ParameterError, match="token names an environment variable that is not set"
    ):
        read_token("env:NO_SUCH_VARIABLE")


def test_lists_are_counted_before_they_are_made(monkeypatch):
    """Millions of empty ones would hold the interpreter for seconds."""
    read = []
    json_request = request_model(8, [32])
    monkeypatch.setattr(json_request, "model_validate_json", read.append)
    for body in (
        b'{"embeddings": [' + b"[]," * 9 + b"[]]}",
        b'{"texts": "a", "x": [' + b"{}," * 9 + b"{}]}",
    ):
        with pytest.raises(RequestError, match="8 items at most"):
            read_json(json_request, body, 8)
    assert read == []
    read_json(json_request, b'{"texts": ["[[[[[[", "{{{{{{", "\\"[", "\\\\"]}', 8)
    read_json(json_request, b'{"embeddings": [' + b"[]," * 7 + b"[]]}", 8)
    assert len(read) == 2
