"""A graph from the cells of a table to labels: the same as from their rows, whatever the cells hold."""

import numpy as np
import pandas as pd
import pytest

from dppl import ApproxDP
from dppl.encoders import load_encoder
from dppl.errors import InputError
from dppl.export import onnx_graph
from dppl.training import PrivateClassifier
from inside import scores_of

SCHEMA = """
age = [18, 90]
income = { range = [-500, 1_000_000], scale = "log" }
dose = { range = [0.0, 900.0], missing = [-1, 0.5, "none given"] }
rating = [1, 5]
ward = ["north", "süd", "3", "none"]
stage = { order = ["I", "II", "III", "4"], missing = ["9"] }
smoker = { values = ["yes", "no"] }
alive = "yes/no"
seen = [2015-01-01, 2026-12-31]
"""
FLOATS = [np.nan, np.inf, -np.inf, -1.0, 0.0, 0.5, 1.0, 2.6, 18.0, 41.3, 90.0, 1e300]
WORDS = {
    "ward": ["north", "süd", "3", "3.0", "none", "None", "", "NaN", "North", "attic"],
    "stage": ["I", "II", "III", "4", "4.0", "9", "9.0", "", "null", "V"],
    "smoker": ["yes", "no", "Yes", "", "<NA>"],
    "alive": ["yes", "No", "TRUE", "f", "1", "0.0", "", "perhaps", "2"],
}
DAYS = ["2015-01-01", "2024-02-29", "2023-12-31", "2024-12-31", "0001-01-01"]
DAYS += ["1900-03-01", "2000-02-29", "2100-12-31", "9999-12-31", "NaT", "10000-01-01"]
N = 400


@pytest.fixture(scope="module")
def frame():
    """Return records with cells of all kinds, each as a graph takes it."""
    rng = np.random.default_rng(0)
    columns = {name: rng.choice(words, N) for name, words in WORDS.items()}
    for name in ("age", "income", "dose", "rating"):
        columns[name] = np.where(
            rng.random(N) < 0.5, rng.choice(FLOATS, N), rng.normal(40, 300, N).round(2)
        )
    columns["seen"] = rng.choice(np.array(DAYS, "datetime64[D]"), N)
    return columns


@pytest.fixture(scope="module")
def model(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    path.write_text(SCHEMA)
    model = PrivateClassifier(f"columns:{path}", ApproxDP(8, 1e-6), ["a", "b"])
    labels = np.where(frame["alive"] == "yes", "a", "b")
    return model.fit(records(frame), labels)


def records(frame):
    """Return the records as dppl reads them."""
    return pd.DataFrame({name: map(str, cells) for name, cells in frame.items()})


def outputs(model, frame):
    pytest.importorskip("onnx", reason="needs the extra export")
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    session = runtime.InferenceSession(
        onnx_graph.to_bytes(model), providers=["CPUExecutionProvider"]
    )
    kinds = {"S": object, "U": object, "M": np.int64, "f": np.float64}
    return session.run(
        None,
        {name: cells.astype(kinds[cells.dtype.kind]) for name, cells in frame.items()},
    )


def test_a_graph_reads_every_cell_as_the_schema_says(model, frame):
    label, scores, probabilities = outputs(model, frame)
    rows = load_encoder(model.encoder).encode(records(frame).to_dict("records"))
    assert len({cell.tobytes() for cell in rows}) > N / 2
    expected = scores_of(model.model_, rows)
    np.testing.assert_allclose(scores, expected, atol=1e-6 * np.ptp(expected))
    np.testing.assert_allclose(
        probabilities, model.predict_proba(records(frame)), atol=1e-6
    )
    assert label.tolist() == model.predict(records(frame)).tolist()
    # The control: of each column, cells of other records make other scores.
    for name in frame:
        other = outputs(model, frame | {name: frame[name][::-1]})[1]
        assert np.abs(other - expected).max() > 1e-3 * np.ptp(expected), name


@pytest.mark.parametrize(
    ("line", "said"),
    [('icd = "code"', "icd' is a code"), ("scores = [1, 9]", "scores")],
)
def test_columns_that_a_graph_cannot_read_are_named(line, said, tmp_path):
    pytest.importorskip("onnx", reason="needs the extra export")
    (tmp_path / "schema.toml").write_text(f"age = [18, 90]\n{line}\n")
    encoder = f"columns:{tmp_path / 'schema.toml'}"
    rows = [dict.fromkeys(load_encoder(encoder).names, "20")] * 20
    model = PrivateClassifier(encoder, ApproxDP(8, 1e-6), ["a", "b"])
    with pytest.raises(InputError, match=said):
        onnx_graph.to_onnx(model.fit(rows, ["a", "b"] * 10))
