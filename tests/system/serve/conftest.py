"""A service in a thread, on a free port, and what asks it."""

import base64
import http.client
import io
import json
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import dppl
from dppl import PublicData
from dppl.io import EmbeddingTable
from dppl.serve import Limits, listen, open_model
from dppl.serve.server import json_lines, server_of

ALPHABETS = {"cat": "abcde", "dog": "fghij", "gnu": "klmno"}
TOKEN = "correct-horse-battery-staple"


def texts_of(names, seed):
    rng = np.random.default_rng(seed)
    return [
        "".join(rng.choice(list(ALPHABETS[name]), rng.integers(3, 30)))
        for name in names
    ]


Y = np.repeat(list(ALPHABETS), (20, 12, 5)).tolist()


class Client:
    """Sends a request on a connection of its own."""

    def __init__(self, port, token=None, logs=None):
        self.port = port
        self.token = token
        self.logs = logs

    def ask(self, method, path, body=None, headers=None):
        """Return status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        bearer = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        connection.request(method, path, body, {**bearer, **(headers or {})})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return SimpleNamespace(
            status=answer.status,
            headers=answer.headers,
            body=content,
            json=lambda: json.loads(content),
        )

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, **content):
        """Ask for a prediction; a single text or row becomes a list of one."""
        for kind in content.keys() & {"texts", "embeddings"}:
            value = content[kind]
            if isinstance(value, str) or (
                isinstance(value, list) and value and isinstance(value[0], float)
            ):
                content[kind] = [value]
        return self.ask(
            "POST",
            "/predict",
            json.dumps(content),
            {"Content-Type": "application/json"},
        )

    def upload(self, *images, **fields):
        """Send the bytes of images."""
        return self.post(
            images=[base64.b64encode(image).decode() for image in images], **fields
        )


@contextmanager
def served(models, *, token=None, limits=None):
    """Serve models in a thread; yield a client that has the token, and the logs."""
    logs = io.StringIO()
    with (
        listen("127.0.0.1", 0, has_token=token is not None) as listening,
        json_lines(logs),
    ):
        server = server_of(models, token, limits or Limits())
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()  # the socket listens already, so requests wait for it
        try:
            yield Client(listening.getsockname()[1], token, logs)
        finally:
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive()


@pytest.fixture(scope="session", autouse=True)
def _extra():
    for module in ("fastapi", "uvicorn"):
        pytest.importorskip(module, reason="the extra serve is not installed")


@pytest.fixture(scope="session")
def sample():
    return dppl.io.load_sample()


@pytest.fixture(scope="session")
def digits(sample, tmp_path_factory):
    """Return the path of a model of the sample's embeddings."""
    path = tmp_path_factory.mktemp("models") / "digits.safetensors"
    budget = dppl.GaussianDP(2.0)
    model = dppl.SoftmaxPrototypes(budget, classes=sample.classes, random_state=0)
    model.set_params(public=PublicData(sample.X_public)).fit(sample.X, sample.y).save(
        path
    )
    return path


@pytest.fixture
def animals(letters, tmp_path):
    """Return the path of a model of texts."""
    path = tmp_path / "animals.safetensors"
    model = dppl.PrivateClassifier(
        "letters", dppl.ZCDP(1e4), list(ALPHABETS), random_state=3
    )
    model.fit(texts_of(Y, 0), Y).save(path)
    return path


@pytest.fixture
def pictures(tmp_path):
    """Return the path of a model of images."""
    rng = np.random.default_rng(0)
    y = np.repeat(["dark above", "dark below"], 40)
    images = rng.integers(0, 40, (80, 12, 10, 3), np.uint8)
    images[:40, 6:] += 200
    images[40:, :6] += 200
    path = tmp_path / "pictures.safetensors"
    model = dppl.PrivateClassifier(
        "pixels", dppl.ZCDP(10.0), sorted(set(y)), method="mean", random_state=0
    )
    model.fit(images, y).save(path)
    return path


def png(bright="below", shape=(12, 10)):
    pixels = np.zeros((*shape, 3), np.uint8)
    half = shape[0] // 2
    pixels[half:] += 200 if bright == "below" else 0
    pixels[:half] += 200 if bright == "above" else 0
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def as_table(encoder, texts):
    return EmbeddingTable.of(
        encoder.encode(texts), metadata={"encoder": encoder.fingerprint.text()}
    )


@pytest.fixture
def text_model(animals):
    return open_model(animals)


@pytest.fixture(scope="module")
def ages(tmp_path_factory):
    """Return a model of rows of a table."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "schema.toml").write_text(
        """age = [18, 90]
ward = ["north", "south"]
seen = [2020-01-01, 2029-12-31]
smoker = "yes/no"
"""
    )
    draw = np.random.default_rng(0)
    rows = [
        {"age": str(age), "ward": "north", "seen": "2024-01-01", "smoker": "yes"}
        for age in draw.integers(18, 91, 300)
    ]
    labels = ["old" if int(row["age"]) > 50 else "young" for row in rows]
    model = dppl.PrivateClassifier(
        f"columns:{folder / 'schema.toml'}",
        dppl.ApproxDP(2, 1e-6),
        classes=["old", "young"],
    )
    model.fit(rows, labels).save(folder / "ages.safetensors")
    return folder / "ages.safetensors"
