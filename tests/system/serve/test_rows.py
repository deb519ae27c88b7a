"""A model of tables over HTTP: rows are objects of fields, and answers are those of the model."""

import numpy as np
import pytest

from dppl import ApproxDP
from dppl.serve import open_model
from dppl.training import PrivateClassifier
from system.serve.conftest import served

ROWS = [
    {"age": 30, "ward": "north", "seen": "2024-02-29", "smoker": True},
    {"age": "80.5", "ward": "elsewhere", "seen": None, "smoker": "no"},
    {"age": 10**400, "ward": 3},
    {},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
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
    model = PrivateClassifier(
        f"columns:{folder / 'schema.toml'}", ApproxDP(2, 1e-6), classes=["old", "young"]
    )
    model.fit(rows, labels).save(folder / "ages.safetensors")
    return folder / "ages.safetensors"


def test_rows_are_objects_of_fields(path):
    names = ("age", "ward", "seen", "smoker")
    whole = [{name: row.get(name) for name in names} for row in ROWS]
    expected = PrivateClassifier.load(path).predict_proba(whole)
    with served([open_model(path)]) as client:
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
def test_other_rows_are_refused_without_being_shown(path, rows):
    with served([open_model(path)]) as client:
        answer = client.post(rows=rows)
    assert answer.status == 422
    assert b"Secret" not in answer.body
    assert "Secret" not in client.logs.getvalue()
