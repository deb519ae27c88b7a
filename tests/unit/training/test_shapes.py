"""Shapes of a model of tables: they add up to its scores, and their noise is that of the fit."""

import numpy as np
import pytest

from dppl import ApproxDP, SoftmaxPrototypes
from dppl.errors import InputError, ParameterError
from dppl.methods import load
from dppl.training import PrivateClassifier
from dppl.training.items import embed_items
from dppl.training.shapes import shapes

SCHEMA = """
age = [18, 90]
income = { range = [-500, 1_000_000], scale = "log" }
rating = [1, 5]
sex = ["female", "male"]
stage = { order = ["I", "II", "III"] }
smoker = "yes/no"
joined = [2015-01-01, 2026-12-31]
icd = "code"
"""
CELLS = {
    "age": ["41.5", "", "inf", "forty"],
    "income": ["-30", "7e5", "-1e9", "nan"],
    "rating": ["3", "2.5", "9", ""],
    "sex": ["male", "female", "other", ""],
    "stage": ["II", "I", "IV", "III"],
    "smoker": ["No", "1", "perhaps", ""],
    "joined": ["29.02.2024", "2015-01-01", "1900-01-01", "soon"],
    "icd": ["E11.9 type II", "", "I10", "E11 b"],
}
N = 4


def records(n, seed=0):
    """Return records of which the age and the sex tell the class."""
    draw = np.random.default_rng(seed)
    rows = [
        {name: draw.choice(cells) for name, cells in CELLS.items()} for _ in range(n)
    ]
    for row in rows:
        row["age"] = str(draw.integers(18, 91))
    labels = [
        "abc"[(int(row["age"]) > 50) + (row["sex"] == "male" and row["stage"] == "I")]
        for row in rows
    ]
    return rows, labels


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    path.write_text(SCHEMA)
    return f"columns:{path}"


def fitted(schema, **options):
    X, y = records(400)
    options = {"classes": ["a", "b", "c"], "random_state": 3} | options
    budget = options.pop("budget", ApproxDP(2, 1e-6))
    return PrivateClassifier(schema, budget, **options).fit(X, y)


def added_up(found, n):
    """Return the scores of records that one point of each shape makes, by the formula of the documentation."""
    scores = np.sum(
        [[one["scores"] for one in shape["points"]] for shape in found["shapes"]],
        axis=0,
    )
    squares = np.sum(
        [[one["square"] for one in shape["points"]] for shape in found["shapes"]],
        axis=0,
    )
    assert len(scores) == n
    return scores / np.sqrt(squares)[:, None] + found["offsets"]


@pytest.mark.parametrize(
    "options",
    [{}, {"classes": ["a", "b"], "unknown_labels": "ignore"}],
    ids=["three classes", "two classes"],
)
def test_shapes_at_the_cells_of_a_record_add_up_to_its_scores(schema, options):
    model = fitted(schema, **options)
    rows = [{name: cells[place] for name, cells in CELLS.items()} for place in range(N)]
    scores = added_up(model.shapes(CELLS), N)
    expected = model.decision_function(rows)
    if len(model.classes_) == 2:
        scores = scores[:, 1] - scores[:, 0]
    np.testing.assert_allclose(scores, expected, atol=2e-5 * np.abs(expected).max())
    # A control: one cell less, and they do not.
    assert (
        np.abs(
            added_up(model.shapes(CELLS | {"age": ["20"] * N}), N)
            - added_up(model.shapes(CELLS), N)
        ).max()
        > 1e-3
    )


def test_shapes_read_off_a_file_are_those_of_the_fit_and_cover_the_schema(
    schema, tmp_path
):
    model = fitted(schema)
    model.save(tmp_path / "model.safetensors")
    found = shapes(load(tmp_path / "model.safetensors"))
    assert found == model.shapes()
    assert found["length"] == pytest.approx(1, abs=0.5)
    parts = [(one["column"], one["part"]) for one in found["shapes"]]
    dates = [("joined", part) for part in ("trend", "season", "weekday")]
    assert parts == [*((name, "") for name in list(CELLS)[:6]), *dates, ("icd", "")]
    for one in found["shapes"]:
        places = [
            point["place"] for point in one["points"] if point["place"] is not None
        ]
        assert (one["ends"] is None) == (not places)
        assert places == sorted(places)
    names = [point["cell"] for point in found["shapes"][3]["points"]]
    assert names == ["female", "male", "unknown", "missing"]


def test_a_curve_goes_where_its_class_lies(schema):
    found = fitted(schema).shapes({"age": ["25", "80"]})
    young, old = (point["scores"] for point in found["shapes"][0]["points"])
    assert young[0] > old[0]


@pytest.mark.slow
def test_weights_of_seeds_differ_by_the_stated_noise(schema):
    """Fixed seeds, so no alarm is by chance. A planted fault, which forgets all gradients but one, is noticed."""
    X, y = records(400)
    encoder = PrivateClassifier(schema, ApproxDP(1, 1e-6), classes=["a", "b"])._loaded()
    rows = embed_items(encoder, X, "X")
    models = [
        SoftmaxPrototypes(
            ApproxDP(1, 1e-6), classes=["a", "b", "c"], random_state=seed
        ).fit(rows, y)
        for seed in range(40)
    ]
    spread = np.std([one.coef_ for one in models], axis=0, ddof=1)
    stated = np.sqrt(np.mean([one.coef_noise_**2 for one in models], axis=0))
    ratio = np.sqrt(np.square(spread).mean(axis=1)) / stated
    np.testing.assert_allclose(ratio, 1, atol=0.15)


def test_models_without_shapes_say_so(schema):
    model = fitted(schema, method="mean")
    with pytest.raises(InputError, match="linear models"):
        model.shapes()
    plain = SoftmaxPrototypes(ApproxDP(1, 1e-6), classes=[0, 1], random_state=0)
    with pytest.raises(InputError, match="columns:SCHEMA"):
        shapes(plain.fit(np.eye(8), np.arange(8) % 2))


def test_cells_of_another_column_are_refused(schema):
    with pytest.raises(ParameterError, match="ward"):
        fitted(schema).shapes({"ward": ["north"]})
