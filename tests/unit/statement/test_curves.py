"""The page of a model of tables draws its shapes; what it calls columns, cells and classes stays text."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from browsing import NARROW
from dppl import ApproxDP, SoftmaxPrototypes
from dppl.statement import Report, make_report
from dppl.training import PrivateClassifier

ODD = "<script>alert('&')</script>"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    path.write_text(
        f"""age = [18, 90]
"ward{ODD}" = ["north", "{ODD}"]
seen = [2020-01-01, 2029-12-31]
"""
    )
    draw = np.random.default_rng(0)
    rows = [
        {"age": str(age), f"ward{ODD}": "north", "seen": "2024-01-01"}
        for age in draw.integers(18, 91, 400)
    ]
    labels = [ODD if int(row["age"]) > 50 else "young" for row in rows]
    classifier = PrivateClassifier(
        f"columns:{path}", ApproxDP(2, 1e-6), classes=["young", ODD], random_state=0
    )
    return classifier.fit(rows, labels)


def test_a_page_draws_each_column_and_escapes_what_a_schema_calls_it(model):
    report = make_report(model)
    page = report.html()
    assert page.count("<figure>") == 2 + 5  # two of the guarantee; a date has three
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)
    assert Report(json.loads(report.json())).html() == page
    assert "What each column says" in report.markdown()


def test_a_curve_is_drawn_where_the_shapes_say(model):
    shapes = make_report(model).dict()["shapes"]
    assert shapes["shapes"][0]["column"] == "age"  # it tells most, and comes first
    page = make_report(model).html()
    path = re.search(r'class="line line0" d="M([^"]*)"', page)[1]
    heights = [-float(point.split()[1]) for point in path.split("L")]
    points = [one for one in shapes["shapes"][0]["points"] if one["place"] is not None]
    expected = [one["scores"][1] - one["scores"][0] for one in points]
    assert np.corrcoef(heights, expected)[0, 1] > 0.999
    assert heights[-1] < heights[0]  # the second class is the young one


@pytest.mark.slow
@pytest.mark.usefixtures("browser")
def test_scores_of_many_classes_fit_a_phone(tmp_path, visit):
    wards = ["gynaecology and obstetrics", "Donaudampfschifffahrtsgesellschaft"]
    (tmp_path / "schema.toml").write_text(f"ward = {wards}")
    classes = [f"class {place}" for place in range(6)]
    model = PrivateClassifier(
        f"columns:{tmp_path}/schema.toml",
        ApproxDP(2, 1e-6),
        classes=classes,
        random_state=0,
    ).fit([{"ward": ""}] * 6, classes)
    page = tmp_path / "page.html"
    page.write_text(make_report(model).html(), encoding="utf-8")
    found = visit(page, "light", NARROW)
    assert found.overflow() <= 0
    # The control: the numbers in one line, as they were.
    found.page.add_style_tag(content=".dppl .beside { white-space: nowrap; }")
    assert found.overflow() > 0


def test_other_models_have_none():
    plain = SoftmaxPrototypes(ApproxDP(1, 1e-6), classes=[0, 1], random_state=0)
    report = make_report(plain.fit(np.eye(8), np.arange(8) % 2))
    assert report.dict()["shapes"] is None
    assert "What each column says" not in report.html()
