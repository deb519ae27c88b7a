"""The description of the service is true: answers fit it, and requests made from it never break the service."""

import json
import subprocess
import sys
from importlib.util import find_spec

import jsonschema
import pytest

from dppl.serve import open_model
from system.serve.conftest import TOKEN, png, served

EXAMPLES = 30
# What a body may be, a schema cannot say whole: widths differ between models, and few
# bytes are an image.
EXCLUDED = "positive_data_acceptance"


@pytest.fixture
def description(animals):
    with served([open_model(animals)]) as client:
        yield client, client.get("/openapi.json").json()


def schema_of(description, path, status=200):
    (operation,) = description["paths"][path].values()
    found = operation["responses"]["200" if status == 200 else "default"]["content"][
        "application/json"
    ]["schema"]
    return {**found, "components": description["components"]}


def test_answers_are_as_described(description):
    client, content = description
    answers = [
        ("/predict", client.post(texts=["abc", " "])),
        ("/predict", client.post(texts=["abc", " "], probabilities=True)),
        (
            "/predict",
            client.post(
                texts=["abc", " "], min_confidence=1, min_similarity=0.5, top=0
            ),
        ),
        ("/predict", client.post(embeddings=[0.0])),
        ("/predict", client.post(texts="a", model="none")),
        ("/predict", client.upload(png())),
        (
            "/predict",
            client.ask("POST", "/predict", b"{", {"Content-Type": "application/json"}),
        ),
        (
            "/predict",
            client.ask("POST", "/predict", b"{}", {"Content-Type": "text/plain"}),
        ),
        ("/model", client.get("/model")),
        ("/model", client.get("/model?model=none")),
        ("/health", client.get("/health")),
        ("/health", client.get("/health", Host="example.org")),
        ("/health", client.get("/health", Origin="null")),
    ]
    assert [answer.status for _, answer in answers] == [
        200,
        200,
        200,
        422,
        404,
        422,
        400,
        415,
        200,
        404,
        200,
        421,
        403,
    ]
    for path, answer in answers:
        jsonschema.validate(answer.json(), schema_of(content, path, answer.status))
    with pytest.raises(jsonschema.ValidationError):  # the control
        jsonschema.validate({"model": "animals"}, schema_of(content, "/predict"))


def test_requests_as_described_are_taken(description):
    client, content = description
    schemas = content["paths"]["/predict"]["post"]["requestBody"]["content"]
    validator = jsonschema.Draft202012Validator(schemas["application/json"]["schema"])
    row = [1.0] * 27
    for body in ({"texts": ["abc"], "top": 1}, {"embeddings": [row]}):
        assert validator.is_valid(body)
        assert client.post(**body).status == 200
    assert (
        client.post(texts=["abc"], min_confidence=1, top=0).json()["predictions"][0][
            "top"
        ]
        != []
    )
    for body in (
        {},
        {"texts": []},
        {"texts": ["a"], "min_confidence": 2},
        {"texts": ["a"], "min_similarity": -1.5},
        {"texts": ["a"], "x": 1},
        {"embeddings": [[1.0]]},
        {"texts": ["a"], "top": -1},
    ):
        assert not validator.is_valid(body)
        assert client.post(**body).status == 422


def test_a_service_with_a_token_says_so(animals):
    with served([open_model(animals)], token=TOKEN) as client:
        content = client.get("/openapi.json").json()
    operations = [
        operation for path in content["paths"].values() for operation in path.values()
    ]
    assert all(operation["security"] == [{"token": []}] for operation in operations)
    assert content["components"]["securitySchemes"]["token"] == {
        "type": "http",
        "scheme": "bearer",
    }


def test_there_are_no_pages_that_load_programs_from_elsewhere(description):
    client, _ = description
    assert [client.get(path).status for path in ("/docs", "/redoc")] == [404, 404]


def fuzzed(client, folder):
    """Return the exit code and the report of a run of schemathesis, which keeps notes where it runs."""
    command = [sys.executable, "-W", "ignore", "-m", "schemathesis.cli", "run"]
    command += [
        f"http://127.0.0.1:{client.port}/openapi.json",
        "--max-examples",
        str(EXAMPLES),
        "--seed",
        "1",
    ]
    command += [
        "--exclude-checks",
        EXCLUDED,
        "--header",
        f"Authorization: Bearer {client.token}",
        "--no-color",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=folder
    )
    report = "".join(
        done.stdout.partition("= FAILURES =")[1:]
    )  # it quotes whole requests
    return done.returncode, "\n".join(
        line[:200] for line in report.splitlines()
    ) or done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("schemathesis") is None, reason="schemathesis is not installed"
)
def test_no_request_made_from_the_description_breaks_the_service(
    animals, pictures, tmp_path
):
    with served([open_model(animals), open_model(pictures)], token=TOKEN) as client:
        code, report = fuzzed(client, tmp_path)
    assert code == 0, report
    statuses = {
        json.loads(line)["status"]
        for line in client.logs.getvalue().splitlines()
        if "status" in line
    }
    assert {200, 405, 422} <= statuses
    assert max(statuses) < 500


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("schemathesis") is None, reason="schemathesis is not installed"
)
def test_a_service_that_breaks_would_be_noticed(animals, monkeypatch, tmp_path):
    monkeypatch.setattr("dppl.serve.models.Served.prediction", None)
    with served([open_model(animals)], token=TOKEN) as client:
        code, report = fuzzed(client, tmp_path)
    assert (code, "Server error" in report) == (1, True), report
