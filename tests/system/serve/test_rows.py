"""A model of tables over HTTP: rows are objects of fields, and answers are those of the model."""

import numpy as np
import pytest

import dppl
from dppl.serve import open_model
from system.serve.conftest import served

ROWS = [
    {"age": 30, "ward": "north", "seen": "2024-02-29", "smoker": True},
    {"age": "80.5", "ward": "elsewhere", "seen": None, "smoker": "no"},
    {"age": 10**400, "ward": 3},
    {},
]


def test_rows_are_objects_of_fields(ages):
    names = ("age", "ward", "seen", "smoker")
    whole = [{name: row.get(name) for name in names} for row in ROWS]
    expected = dppl.PrivateClassifier.load(ages).predict_proba(whole)
    with served([open_model(ages)]) as client:
        about = client.get("/model").json()
        answer = client.post(rows=ROWS, probabilities=True).json()
    found = [one["probabilities"] for one in answer["predictions"]]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert about["takes"] == ["embeddings", "rows"]
    assert about["fields"][1] == {
        "name": "ward",
        "kind": "category",
        "values": ["north", "south"],
        "low": None,
        "high": None,
    }
    assert [one["low"] for one in about["fields"]] == [18, None, "2020-01-01", None]


@pytest.mark.parametrize(
    "rows",
    [[{"name": "Secret"}], [{"age": ["Secret"]}], ["Secret"], [{"age": {"Secret": 1}}]],
)
def test_other_rows_are_refused_without_being_shown(ages, rows):
    with served([open_model(ages)]) as client:
        answer = client.post(rows=rows)
    assert answer.status == 422
    assert b"Secret" not in answer.body
    assert "Secret" not in client.logs.getvalue()
