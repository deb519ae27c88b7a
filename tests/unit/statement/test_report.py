"""A report: its content is complete and of the form that is documented, and its forms are functions of it."""

import json
import re
from dataclasses import replace
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from sklearn.exceptions import NotFittedError

import dppl
from dppl import PublicData, lab
from dppl.continual import ContinualPrototypes
from dppl.errors import InputError, ParameterError
from dppl.evaluation.evaluation import Together
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.privacy.guarantee import Guarantee
from dppl.methods import LinearProbe
from dppl.statement import Report, make_report, model_card, words
from dppl.statement.data import content, describe, evaluation_of, file_of, of_model
from dppl.statement.pictures import gallery_of
from dppl.statement.rendering import at_most, view
from unit.statement.contents import (
    NAMES,
    account,
    described,
    evaluated,
    everything,
    fitted,
    gallery,
    privately_evaluated,
)

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
X = np.eye(6, 4, dtype=np.float32) + np.float32(0.1)
Y = np.array([0, 1, 2, 0, 1, 2])
P = X + np.float32(0.2)
MOST_BYTES = 1_000_000

MODELS = {
    "mean": dppl.MeanPrototypes(dppl.ZCDP(1.0), [0, 1, 2]),
    "seeded": dppl.MeanPrototypes(dppl.ApproxDP(1.0, 1e-6), [0, 1, 2], random_state=0),
    "softmax": dppl.SoftmaxPrototypes(dppl.GaussianDP(1.0), [0, 1, 2]),
    "public": dppl.PublicPrototypes(dppl.PureDP(1.0), [0, 1, 2], n_prototypes=2),
    "replaced": dppl.MeanPrototypes(dppl.ZCDP(1.0), [0, 1, 2], adjacency="replace-one"),
    "sampled": LinearProbe(
        dppl.ApproxDP(1.0, 1e-6), [0, 1, 2], sampling_rate=0.1, batch_size=3, steps=3
    ),
    "newton": lab.Newton(dppl.ZCDP(1.0), [0, 1, 2]),
    "stream": ContinualPrototypes(
        dppl.ApproxDP(1.0, 1e-6), [0, 1, 2], tasks="overlapping"
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param].set_params(public=PublicData(P)).fit(X, Y)


def test_the_schema_is_one_and_describes_every_field():
    Draft202012Validator.check_schema(SCHEMA)

    def fields(node):
        if isinstance(node, dict):
            yield from node.get("properties", {}).items()
            for value in node.values():
                yield from fields(value)
        elif isinstance(node, list):
            for value in node:
                yield from fields(value)

    found = list(fields(SCHEMA))
    assert len(found) > 60
    assert [name for name, field in found if not field.get("description")] == []


@pytest.mark.slow
def test_reports_of_all_models_are_valid_and_have_every_form(model):
    report = model.report()
    VALIDATOR.validate(report.dict())
    assert json.loads(report.json()) == report.dict()
    for form in (
        report.html(),
        report.markdown(),
        report.html_snippet(),
        report._repr_html_(),
    ):
        assert model.guarantee_.summary().split("(")[0] in unescape(form).replace(
            "\\", ""
        ).replace("\xa0", " ")


def test_a_report_with_everything_is_valid():
    VALIDATOR.validate(everything(NAMES).dict())


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(format=1),
        lambda d: d.pop("ledger"),
        lambda d: d["model"].update(sha256="00"),
        lambda d: d["guarantee"]["curve"][0].append(1.0),
        lambda d: d["guarantee"]["budget"].clear(),
        lambda d: d["evaluation"]["per_class"][0].update(accuracy=1.1),
        lambda d: d["evaluation"]["confusions"][0].update(n=0),
        lambda d: d["gallery"]["classes"][0]["items"][0].pop("id"),
        lambda d: d["ledger"].update(unheard_of=1),
        lambda d: d["private_evaluation"]["per_class"][0]["recall"].pop("low"),
    ],
)
def test_damaged_contents_are_not_valid(damage):
    damaged = everything(NAMES).dict()
    damage(damaged)
    assert not VALIDATOR.is_valid(damaged)


def test_every_form_is_a_function_of_the_content_alone():
    report = everything(NAMES)
    again = Report(json.loads(report.json()))
    for form in ("html", "html_snippet", "markdown", "json"):
        assert getattr(again, form)() == getattr(report, form)()
    other = report.dict()
    other["title"] = "Another"
    assert report.dict()["title"] != "Another"  # a copy
    assert Report(other).html() != report.html()
    with pytest.raises(InputError, match="format"):
        Report({**other, "format": 1})


def test_the_curve_is_that_of_the_guarantee(model):
    promise = model.guarantee_
    curve = model.report().dict()["guarantee"]["curve"]
    rates, found = (list(column) for column in zip(*curve, strict=True))
    assert rates == sorted(set(rates))
    assert found == [promise.true_positive_rate(rate) for rate in rates]
    assert all(one >= rate for rate, one in curve)  # guessing finds as many


def test_a_model_and_its_file_have_the_same_report(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    assert make_report(tmp_path / "model.safetensors").dict() == model.report().dict()


def test_bounds_are_rounded_up():
    assert at_most(0.018251) == "1.83 %"
    assert at_most(0.01) == "1 %"
    report = fitted(["a", "b"]).report()
    for rate, found in report.dict()["guarantee"]["curve"]:
        shown = float(at_most(found).removesuffix(" %")) / 100
        assert shown >= found - 1e-15, rate


def test_a_seeded_model_says_that_it_must_not_be_released(tmp_path):
    seeded, released = (
        dppl.MeanPrototypes(dppl.ZCDP(1.0), [0, 1], random_state=seed)
        .fit(np.eye(2), [0, 1])
        .report()
        for seed in (0, None)
    )
    assert "Not for release" in seeded.html()
    assert "Not for release" not in released.html()
    assert "NOT FOR RELEASE" in seeded.markdown()


def test_who_made_it_with_what_is_said():
    report = fitted(["a", "b"]).report(by="Ward 7 <b>")
    page = unescape(report.html())
    content_ = report.dict()
    assert "Made by Ward 7 <b>." in page
    assert "Ward 7 <b>" not in report.html()
    for name, value in content_["model"]["facts"]:
        assert name in page
        assert value in page
    assert f"dppl {dppl.__version__}" in page
    assert content_["model"]["sha256"] in page


def test_the_commands_are_in_every_form():
    report = fitted(["a", "b"]).report()
    commands = [one["command"] for one in report.dict()["checks"]]
    assert commands == [
        "sha256sum model.safetensors",
        "dppl show model.safetensors",
        "dppl verify model.safetensors",
        "dppl show model.safetensors --json",
        "dppl audit mean --mu 1",
    ]
    for command in commands:
        assert f"<pre>{command}</pre>" in report.html()
        assert f"\n{command}\n" in report.markdown()


def test_an_odd_file_name_is_quoted_in_commands(tmp_path):
    path = tmp_path / "my model; rm.safetensors"
    fitted(["a", "b"]).save(path)
    assert (
        make_report(path).dict()["checks"][0]["command"]
        == "sha256sum 'my model; rm.safetensors'"
    )


class Page(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.attributes = []
        self.text = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data):
        self.text.append(data)


def test_a_page_runs_nothing_and_loads_nothing():
    found = Page(everything(NAMES).html())
    assert not {"script", "link", "iframe", "object", "embed", "form"} & set(found.tags)
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]
    for _, name, value in found.attributes:
        if name in ("src", "href"):
            assert value.startswith(("#", "data:image/jpeg;base64,"))
    style = everything(NAMES).html().split("<style>")[1].split("</style>")[0]
    assert not re.search(r"url\(|@import|http", style)
    assert "script" in Page("<p><script>1</script></p>").tags  # the control


def test_every_link_leads_to_a_heading():
    found = Page(everything(NAMES).html())
    targets = [
        value.removeprefix("#") for _, name, value in found.attributes if name == "href"
    ]
    ids = [value for _, name, value in found.attributes if name == "id"]
    assert len(targets) == 7
    assert set(targets) == set(ids)
    assert len(ids) == len(set(ids))


def test_a_snippet_has_no_ids_and_begins_below_the_title_of_its_page():
    found = Page(everything(NAMES).html_snippet())
    assert not [value for _, name, value in found.attributes if name == "id"]
    assert "h1" not in found.tags
    assert "html" not in found.tags
    assert found.tags.count("h2") == 1


def test_names_are_shown_as_they_are_and_never_as_markup():
    report = everything(NAMES)
    text = "".join(Page(report.html()).text)
    for name in NAMES:
        shown = name if len(name) <= 60 else f"{name[:29]}…{name[-30:]}"
        assert shown in text
    # In attributes, too.
    assert "<script>alert" not in report.html()
    assert "'c' \"d\"" not in report.html()
    assert report.html().count('<bdi dir="auto">قطة سوداء</bdi>') >= 3
    markdown = report.markdown()
    assert "<script" not in markdown
    assert "[x](javascript" not in markdown
    assert "a\\|b" in markdown
    assert "| \\*\\*bold\\*\\*" in markdown


def test_assumptions_are_one_list_in_every_form(model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    report = model.report()
    description = describe(tmp_path / "m.safetensors")
    brief = dict(words.in_short(model.guarantee_))["Assumed"]
    forms = [
        str(model.guarantee_),
        model_card(description),
        unescape(report.html()),
        report.markdown(),
    ]
    assumed = model.guarantee_.assumptions
    assumptions = [*words.texts(assumed)]
    stated = [one.to_dict() for one in assumed]
    assert description["guarantee"]["assumptions"] == stated
    (listed,) = (
        one["items"]
        for one in report.dict()["guarantee"]["details"]
        if one["name"] == "assumptions"
    )
    assert listed == assumptions
    assert brief == f"{'; '.join(assumptions)}."
    for form in forms:
        assert all(one in form.replace("\\", "") for one in assumptions)


def test_what_was_measured_is_marked_as_not_covered():
    report = everything(NAMES)
    for form in (report.html(), report.markdown()):
        assert "Not covered by the guarantee." in form
        assert "must not be published" in form
    alone = fitted(NAMES).report()
    for form in (alone.html(), alone.markdown()):
        assert "must not be published" not in form


def test_a_private_evaluation_comes_before_the_promise_in_the_order_of_the_class_list():
    names = [name for name in NAMES if not name.startswith("long")]
    page = everything(names).html().replace("\xa0", " ")
    assert page.index('id="quality"') < page.index('id="promise"')
    part = page[page.index('id="quality"') : page.index('id="promise"')]
    for text in (
        "0.80 (0.70 to 0.90)",
        "cannot tell",
        "holds with 90 %",
        "may be published",
        "(the evaluation says that the parts are",
    ):
        assert text in part
    places = [
        part.index(f'<th scope="row"><bdi dir="auto">{name_of(name)}') for name in names
    ]
    assert places == sorted(places)
    assert part.count('class="between"') == 2 * len(names)
    markdown = everything(names).markdown()
    assert markdown.index("## How good it is") < markdown.index(
        "## The guarantee in numbers"
    )
    assert (
        "| ordinary | 0.80 (0.70 to 0.90) | cannot tell | 20 (10 to 30) |" in markdown
    )


def name_of(text):
    from dppl.statement.rendering import name

    return str(name(text)).removeprefix('<bdi dir="auto">')


def test_what_model_and_evaluation_cost_together_is_computed_and_never_read():
    model = fitted(["a", "b"])
    report = model.report()
    own = report.dict()["model"]["sha256"]
    mu = model.guarantee_.mu
    for stated, cost in (
        (Together(1e-4, disjoint=False), mu * 2**0.5),
        (Together(1e-4, disjoint=True), mu),
        (None, mu * 2**0.5),
    ):
        evaluation = replace(privately_evaluated(["a", "b"], own), together=stated)
        shown = dict(
            of_model(evaluation.to_dict(), describe_of(model), own)["guarantee"]
        )
        assert f"mu = {rounded_up(cost, 4)} (" in shown["With the model"]
    # What it costs with a model that is not at hand, nobody knows.
    other = privately_evaluated(["a", "b"], 64 * "0")
    assert "With the model" not in dict(
        of_model(other, describe_of(model), own)["guarantee"]
    )


@pytest.mark.parametrize(
    "forged",
    [
        {"together": {"mu": "x", "disjoint": 1, "reason": {}}},
        {"together": {"mu": -1.0, "disjoint": False, "reason": ""}},
        {"temperature": "hot"},
        {"confidence": "a"},
        {"confidence": 10**18},
        {"n": {"value": "x", "low": 0, "high": 1}},
        {"bands": [{"classes": 5}]},
        {"model_sha256": 5},
        {"top_k": "a"},
        {"unit": ["record"]},
    ],
    ids=str,
)
def test_a_field_of_another_type_is_the_error_of_the_evaluation(forged, tmp_path):
    model = fitted(["a", "b"])
    fields = privately_evaluated(["a", "b"]).to_dict()
    path = tmp_path / "e.json"
    path.write_text(json.dumps(fields))
    assert model.report(results=path).html()
    path.write_text(json.dumps(fields | forged))
    with pytest.raises(InputError, match="lacks a field"):
        model.report(results=path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"accuracy": 1' + "0" * 400 + "}", '{"accuracy": NaN}']
)
def test_json_beyond_all_bounds_is_no_evaluation(text, tmp_path):
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(InputError, match="does not hold an evaluation"):
        fitted(["a", "b"]).report(results=tmp_path / "e.json")


def describe_of(model):
    """Return what the file of a model says."""
    with file_of(model) as path:
        return describe(path)


def test_a_private_evaluation_of_another_file_is_marked_and_of_other_classes_refused(
    tmp_path,
):
    model = fitted(["a", "b"])
    model.save(tmp_path / "m.safetensors")
    own = sha256((tmp_path / "m.safetensors").read_bytes()).hexdigest()
    told = "do not hold the hash of this file"
    for evaluation, marked in (
        (privately_evaluated(["a", "b"], own), False),
        (privately_evaluated(["a", "b"], None), False),
        (privately_evaluated(["a", "b"]), True),
        (privately_evaluated(["a", "b"]).to_dict(), True),
    ):
        report = model.report(results=evaluation)
        unnamed = report.dict()["private_evaluation"]["same_file"] is None
        said = "whose model is not named"
        assert (said in report.html()) == (said in report.markdown()) == unnamed
        assert (told in report.html()) == (told in report.markdown()) == marked
        assert "Not for release" not in report.html()
    (tmp_path / "e.json").write_text(privately_evaluated(["a", "b"], own).to_json())
    assert (
        model.report(results=tmp_path / "e.json").dict()
        == model.report(results=privately_evaluated(["a", "b"], own)).dict()
    )
    with pytest.raises(InputError, match="other classes"):
        model.report(results=privately_evaluated(["a", "c"]))
    lacking = privately_evaluated(["a", "b"]).to_dict()
    lacking.pop("accuracy")
    with pytest.raises(InputError, match="lacks a field"):
        model.report(results=lacking)
    honest = privately_evaluated(["a", "b"])
    seeded = replace(honest, guarantee=replace(honest.guarantee, secure_noise=False))
    assert (
        "The noise of these numbers came from a seed"
        in model.report(results=seeded).html()
    )


def test_classes_stand_from_the_lowest_accuracy_and_minorities_are_marked():
    names = [f"c{place}" for place in range(8)]
    found = evaluated(names)
    for one, n in zip(found["per_class"], (9, 2, 7, 2, 8, 5, 6, 0), strict=True):
        one["n"] = n
    found["per_class"][7]["accuracy"] = None
    found["confusions"] = []
    said = evaluation_of(found, names)
    assert [one["class"] for one in said["per_class"] if one["minority"]] == [
        "c1"
    ]  # a quarter of seven, rounded down
    page = fitted(names).report(results=found).html()
    rows = page.split("predicted as it</caption>")[1].split("</table>")[0]
    order = re.findall(r'auto">(c\d)</bdi>', rows)
    measured = [one for one in said["per_class"] if one["n"]]
    assert order == [
        one["class"]
        for one in sorted(measured, key=lambda one: (one["accuracy"], one["class"]))
    ]
    assert "Classes without records here: 1." in page
    assert page.count('<tr class="minority">') == 1
    assert "No record was predicted as another class." in page


def test_the_largest_confusions_come_first_and_make_the_matrix():
    names = [f"class {place}" for place in range(50)]
    report = everything(names)
    counts = [one["n"] for one in report.dict()["evaluation"]["confusions"]]
    assert counts == sorted(counts, reverse=True)
    matrix = view(report.dict())["matrix"]
    first = report.dict()["evaluation"]["confusions"][0]
    assert matrix["names"][:2] == [first["class"], first["predicted"]]
    assert len(matrix["names"]) == 20
    assert not matrix["whole"]
    each = {one["class"]: one for one in report.dict()["evaluation"]["per_class"]}
    row = matrix["rows"][0]["cells"]
    assert row[0]["n"] == round(
        each[first["class"]]["n"] * each[first["class"]]["accuracy"]
    )
    assert row[1]["n"] == first["n"]


@pytest.mark.slow
def test_every_classifier_that_can_be_saved_has_its_report(tmp_path):
    search = dppl.PrivateSearch(
        dppl.MeanPrototypes(dppl.ApproxDP(2.0, 1e-5), ["a", "b"]),
        {"lattice__rotation": [None]},
    )
    texts = dppl.PrivateClassifier("python:none", dppl.ApproxDP(1.0, 1e-5), ["a", "b"])
    texts.model_ = fitted(["a", "b"])
    for model in (search.fit(np.eye(2), ["a", "b"]), texts):
        model.save(tmp_path / "model.safetensors", overwrite=True)
        assert (
            model.report(by="us").dict()
            == make_report(tmp_path / "model.safetensors", by="us").dict()
        )
    with pytest.raises(NotFittedError):
        dppl.PrivateClassifier(
            "python:none", dppl.ApproxDP(1.0, 1e-5), ["a", "b"]
        ).report()
    with pytest.raises(
        ParameterError, match="fitted classifier of dppl, or its file; got int"
    ):
        make_report(3)


def test_an_evaluation_of_another_model_is_refused():
    model = fitted(["a", "b"])
    with pytest.raises(InputError, match="other classes"):
        model.report(results=evaluated(["a", "c"]))
    lacking = evaluated(["a", "b"])
    del lacking["confusions"]
    with pytest.raises(InputError, match="lacks a field"):
        model.report(results=lacking)


@pytest.mark.parametrize(
    "damage",
    [
        {"n": "9"},
        {"accuracy": []},
        {"per_class": None},
        {
            "per_class": [
                {"class": "a", "n": 4, "accuracy": None},
                {"class": "b", "n": 5, "accuracy": 1.0},
            ]
        },
        {"confusions": [{"class": "c", "predicted": "a", "n": 1}]},
    ],
)
def test_a_damaged_evaluation_is_refused(damage):
    with pytest.raises(InputError, match="the evaluation"):
        fitted(["a", "b"]).report(results=evaluated(["a", "b"]) | damage)


def test_a_class_without_records_has_no_accuracy():
    measured = evaluated(["a", "b"])
    measured["per_class"][1] |= {"n": 0, "accuracy": None}
    measured["confusions"], measured["minority_accuracy"] = [], None
    assert (
        "Classes without records here: 1."
        in fitted(["a", "b"]).report(results=measured).html()
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"accuracy": 1}', "lacks a field"),
        ("[1, 2]", "--out FILE` writes one"),
        ('{"a": 1}', "does not hold an evaluation"),
        ("label\n", "does not hold an evaluation"),
    ],
)
def test_other_files_are_no_results(text, message, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        fitted(["a", "b"]).report(results=path)
    with pytest.raises(
        InputError, match=r"there is no results file.*evaluate .*--out FILE"
    ):
        fitted(["a", "b"]).report(results=tmp_path / "none.json")


def test_only_the_account_that_paid_is_shown(tmp_path):
    secret = dppl.Ledger(
        tmp_path / "ledger.db", "another data set", dppl.GaussianDP(2.0)
    )
    ledger = dppl.Ledger(tmp_path / "ledger.db", "wards", dppl.GaussianDP(2.0))
    fitted(["x", "y"], ledger=secret)
    model = fitted(["a", "b"], ledger=ledger)
    reports = [
        model.report(ledger=one)
        for one in (tmp_path / "ledger.db", str(tmp_path / "ledger.db"), ledger)
    ]
    assert len({report.json() for report in reports}) == 1
    report = reports[0]
    VALIDATOR.validate(report.dict())
    found = report.dict()["ledger"]
    assert (found["dataset"], found["number"], found["same_file"]) == ("wards", 2, True)
    assert "another data set" not in report.json() + report.html()
    assert "dppl ledger show LEDGER" in report.html()
    assert "does not hold the hash" not in report.html()


def test_a_ledger_that_did_not_pay_is_refused_and_one_of_another_file_is_told(tmp_path):
    ledger = dppl.Ledger(tmp_path / "ledger.db", "wards", dppl.GaussianDP(2.0))
    with pytest.raises(InputError, match="no account of the ledger paid"):
        fitted(["a", "b"]).report(ledger=ledger)
    fitted(["a", "b"], ledger=ledger)
    elsewhere = dppl.Ledger(tmp_path / "elsewhere.db", "wards", dppl.GaussianDP(2.0))
    model = fitted(["a", "b"], ledger=elsewhere)  # its entry has the same name
    report = model.report(ledger=ledger)
    assert not report.dict()["ledger"]["same_file"]
    assert "does not hold the hash of this file" in report.html()
    assert "does not hold the hash of this file" in report.markdown()


def test_what_a_report_says_of_itself_and_of_defaults():
    report = fitted(["a", "b"]).report()
    assert repr(report).startswith("<Report: A private classifier of embeddings; ")
    assert "None" not in report.markdown()
    for wrong in ([], None, {"format": 0}):
        with pytest.raises(InputError, match="a report is a dict of format 3"):
            Report(wrong)


def test_a_gallery_is_for_models_that_select(tmp_path):
    (tmp_path / "pool.txt").write_text("one\ntwo\n")
    with pytest.raises(ParameterError, match="selects none"):
        fitted(["a", "b"]).report(public=tmp_path / "pool.txt")
    model = dppl.PublicPrototypes(dppl.PureDP(1.0), [0, 1], public=PublicData(P)).fit(
        X, Y % 2
    )
    with pytest.raises(ParameterError, match="with ids"):
        model.report(public=tmp_path / "pool.txt")
    page = model.report().html()
    assert "What represents the classes" in page
    assert ", ".join(map(str, model.public_indices_[0])) in page


def test_a_gallery_has_as_many_classes_as_fit():
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    noise = image.fromarray(
        rng.integers(0, 255, (200, 100, 3), np.uint8)
    )  # which no format makes small
    names = [f"c{place}" for place in range(200)]
    found = gallery_of([(name, [("one", noise)]) for name in names], "image")
    assert 5 < len(found["classes"]) < 200
    assert len(found["classes"]) + found["n_left_out"] == 200
    assert len(json.dumps(found)) < 140_000
    clear = image.new("RGBA", (8, 8), (0, 0, 0, 0))
    page = Report(
        {
            **fitted(["a"]).report().dict(),
            "gallery": gallery_of([("a", [("i", clear)])], "image"),
        }
    )
    assert 'alt="public image i"' in page.html()
    VALIDATOR.validate(page.dict())


def worst(n_classes, letter):
    """Everything that a page may hold, with names as long as they are shown, of letters that take many bytes."""
    names = [f"{place:05}" + letter * 80 for place in range(n_classes)]
    description, digest, file = described(fitted(["a", "b"]))
    description = {**description, "classes": names, "parameters": {"big": "𝔊" * 10_000}}
    return Report(
        content(
            {
                **description,
                "public_ids": [["𝔊" * 300] * 20] * n_classes,
                "public_indices": [[1]] * n_classes,
            },
            sha256=digest,
            file=file,
            evaluation=evaluation_of(evaluated(names), names),
            ledger=account(200),
            gallery=gallery_of(
                [(name, [("i", "𝔊" * 1000)] * 3) for name in names], "text"
            ),
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_classes", "letter"),
    [(10, "𝔊"), (1000, "𝔊"), (1000, "_"), (1000, '"'), (10_000, "𝔊")],
)
def test_a_page_stays_small_whatever_the_classes_are_called(n_classes, letter):
    page = worst(n_classes, letter).html().encode("utf-8")
    assert len(page) < MOST_BYTES


def test_a_thousand_ordinary_classes_are_all_on_the_page():
    names = [f"Klasse {place}" for place in range(1000)]
    page = everything(names).html()
    assert len(page.encode("utf-8")) < MOST_BYTES / 2
    assert all(f'<bdi dir="auto">{name}</bdi>' in page for name in names)


def test_all_classes_are_in_the_json():
    names = [f"Klasse {place}" for place in range(2000)]
    whole = everything(names).dict()
    assert whole["model"]["classes"] == names
    assert len(whole["evaluation"]["per_class"]) == 2000


def test_nothing_of_the_records_is_in_a_report_of_a_model_alone():
    """Neighbours with one noise have one report but for what was released: here, noise that swamps the records."""
    one, other = (
        dppl.MeanPrototypes(dppl.GaussianDP(1.0), ["a", "b"], random_state=3)
        .fit(rows, ["a"] * len(rows))
        .report()
        for rows in (np.eye(3, 4), np.eye(4, 4))
    )
    first = one.dict()
    second = other.dict()
    for found in (first, second):
        del found["model"]["sha256"]  # of what was released
    assert first == second


def test_a_guarantee_of_nothing_has_the_curve_of_guessing():
    public = dppl.PublicData(examples=np.eye(2, 4), example_classes=[0, 1])
    model = dppl.SoftmaxPrototypes(dppl.GaussianDP(0.0), [0, 1], public=public).fit(
        np.eye(2, 4), [0, 1]
    )
    report = model.report()
    VALIDATOR.validate(report.dict())
    assert all(rate == found for rate, found in report.dict()["guarantee"]["curve"])
    assert "What was spent" not in report.html()
    assert isinstance(model.guarantee_, Guarantee)


def test_texts_of_the_gallery_keep_their_direction():
    report = Report({**fitted(["a"]).report().dict(), "gallery": gallery(["a"])})
    assert '<div dir="auto">ein Satz &lt;b&gt; مثال</div>' in report.html()
    assert "ein Satz &lt;b> مثال" in report.markdown()
