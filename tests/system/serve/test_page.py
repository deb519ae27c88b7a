"""The page at `/` in a browser: it predicts, says what is guaranteed, and fits a phone."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dppl
from browsing import NARROW, WIDE
from dppl.methods.released import Least
from dppl.serve import app, open_model
from system.serve.conftest import png, served
from unit.statement.contents import NAMES

pytestmark = pytest.mark.slow


@pytest.fixture
def visited(visit):
    """Open the page of a service."""

    def open_(client, theme="light", size=NARROW, **options):
        found = visit(f"http://127.0.0.1:{client.port}/", theme, size, **options)
        shows(found.page, "#promise", re.compile("."))
        return found

    return open_


def is_quiet(found, client):
    """Say whether the browser complained of nothing, and asked nobody but the service; blobs are the page's own."""
    own = (
        f"http://127.0.0.1:{client.port}/",
        f"blob:http://127.0.0.1:{client.port}/",
        "data:",
    )
    return found.said == [] and all(address.startswith(own) for address in found.asked)


def shows(page, selector, text):
    """Wait until a part of the page has a text."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_text(
        text, timeout=60_000
    )  # machines that run tests are shared


def test_a_text(visited, animals):
    with served([open_model(animals)]) as client:
        found = visited(client)
        page = found.page
        page.get_by_label("Text").fill("abc <b>")
        page.get_by_role("button", name="Predict").press("Enter")
        shows(page, "#label", "cat")
        (first, *others) = page.locator("#top tbody tr").all_inner_texts()
        assert page.inner_text("#promise") == dppl.load(animals).guarantee_.summary()
        assert "further releases from the same records add up" in page.inner_text(
            "#short"
        )
        page.get_by_label("Text").fill(" ")
        page.get_by_role("button", name="Predict").click()
        shows(page, "#reason", "This cannot be used: it is empty.")
        assert is_quiet(found, client)
    assert first.startswith("cat")
    assert first.endswith("%")
    assert len(others) == 2


def test_fields_of_a_row(visited, ages):
    with served([open_model(ages)]) as client:
        found = visited(client)
        page = found.page
        page.get_by_label("age", exact=True).fill("85")
        page.get_by_label("ward").select_option("north")
        page.get_by_label("seen").fill("2024-02-29")
        page.get_by_role("button", name="Predict").click()
        shows(page, "#label", "old")
        page.get_by_label("age", exact=True).fill("20")
        shows(page, "#label", "")
        page.get_by_label("age", exact=True).press("Enter")
        shows(page, "#label", "young")
        assert is_quiet(found, client)


def test_a_text_that_gets_no_label_shows_the_nearest_classes(visited, animals):
    for least, said in (
        (Least(1.0), "The model is not sure."),
        (Least(None, 1.0), "It seems to be none of these"),
    ):
        with served([open_model(animals, least=least)]) as client:
            page = visited(client).page
            page.get_by_label("Text").fill("abcfk")
            page.get_by_role("button", name="Predict").press("Enter")
            shows(page, "#label", "No answer")
            assert page.inner_text("#reason").startswith(said)
            assert len(page.locator("#top tbody tr").all_inner_texts()) == 3


def test_an_edited_text_clears_the_answer_and_ctrl_enter_asks(visited, animals):
    with served([open_model(animals)]) as client:
        found = visited(client)
        page = found.page
        late = []
        page.get_by_label("Text").fill("abc")
        for keys, label in (("Control+Enter", "cat"), ("Meta+Enter", "dog")):
            page.keyboard.press(keys)
            shows(page, "#label", label)
            assert page.locator("#numbers").is_visible()
            page.get_by_label("Text").press_sequentially("fghij" * 5)
            shows(page, "#label", "")
            shows(page, "#reason", "There is none yet.")
            assert not page.locator("#numbers").is_visible()
        # An answer on its way is to the text as it was.
        page.route("**/predict", lambda route: late.append(route))
        with page.expect_request("**/predict"):
            page.keyboard.press("Control+Enter")
        page.get_by_label("Text").fill("klm")
        with page.expect_response("**/predict") as answered:
            late[0].continue_()
        answered.value.finished()
        page.evaluate("fetch('health').then(answer => answer.text())")
        shows(page, "#reason", "There is none yet.")
        page.keyboard.press("Enter")  # alone it is a line
        assert page.get_by_label("Text").input_value() == "klm\n"
        assert len(late) == 1
        assert is_quiet(found, client)


def test_bars_are_beside_their_text(visited, animals):
    with served([open_model(animals)]) as client:
        page = visited(client, size=WIDE).page
        page.get_by_label("Text").fill("abc")
        page.get_by_role("button", name="Predict").click()
        shows(page, "#label", "cat")
        for row in page.locator("#top tbody tr").all():
            head, meter, number = (
                row.locator(one).bounding_box() for one in ("th", "meter", ".number")
            )
            assert 0 <= meter["x"] - (head["x"] + head["width"]) < 20
            assert number["x"] - (meter["x"] + meter["width"]) < 20
            middle = row.locator("th").evaluate(
                "e => { const r = document.createRange(); r.selectNode(e.firstChild);"
                " const b = r.getBoundingClientRect(); return b.top + b.height / 2 }"
            )
            assert abs(meter["y"] + meter["height"] / 2 - middle) < 4


def test_an_image_by_choosing_and_by_dropping(visited, pictures, tmp_path):
    (tmp_path / "a.png").write_bytes(png("below"))
    (tmp_path / "b.png").write_bytes(png("above"))
    with served([open_model(pictures)]) as client:
        found = visited(client)
        page = found.page
        page.get_by_label("Drop an image here").set_input_files(tmp_path / "a.png")
        shows(page, "#label", "dark above")
        assert page.locator("#shown").is_visible()
        page.evaluate(
            """bytes => {
                const data = new DataTransfer();
                data.items.add(new File([new Uint8Array(bytes)], "b.png", {type: "image/png"}));
                const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true});
                document.getElementById("drop").dispatchEvent(drop);
            }""",
            list((tmp_path / "b.png").read_bytes()),
        )
        shows(page, "#label", "dark below")
        assert is_quiet(found, client)


def test_embeddings_and_another_model(visited, digits, animals, sample):
    with served([open_model(animals), open_model(digits)]) as client:
        found = visited(client)
        page = found.page
        page.get_by_label("Model").select_option("digits")
        page.get_by_label("Embedding: 32 numbers").fill(
            " ".join(map(str, sample.X_test[0].tolist()))
        )
        page.get_by_role("button", name="Predict").click()
        shows(page, "#label", str(dppl.load(digits).predict(sample.X_test[:1])[0]))
        page.get_by_label("Embedding").fill("one two")
        page.get_by_role("button", name="Predict").click()
        shows(page, "#reason", re.compile("^Type numbers"))
        assert is_quiet(found, client)


def test_the_model_that_was_chosen_last_is_shown(visited, digits, animals):
    """Also where the answer about another one comes later."""
    with served([open_model(animals), open_model(digits)]) as client:
        found = visited(client)
        page = found.page
        late = []
        page.route("**/model?model=digits", lambda route: late.append(route))
        page.get_by_label("Model").select_option("digits")
        page.get_by_label("Model").select_option("animals")
        page.evaluate("fetch('model?model=animals').then(answer => answer.text())")
        with page.expect_response("**/model?model=digits") as answered:
            late[0].continue_()
        answered.value.finished()
        page.evaluate("fetch('health').then(answer => answer.text())")
        shows(page, "#about", re.compile("^animals: "))
        assert page.get_by_label("Text").is_visible()
        assert is_quiet(found, client)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_accessible_quiet_and_fits(visited, animals, theme, size):
    with served([open_model(animals)]) as client:
        found = visited(client, theme, size)
        assert found.violations() == {}
        found.page.get_by_label("Text").fill("klm")
        found.page.get_by_role("button", name="Predict").click()
        shows(found.page, "#label", "gnu")
        found.unfold()
        assert found.violations() == {}
        assert found.overflow() <= 0
        found.page.get_by_label("Text").fill(" ")
        found.page.get_by_role("button", name="Predict").click()
        shows(found.page, "#reason", re.compile("^This cannot be used"))
        assert found.violations() == {}
        dark = (
            found.page.evaluate("getComputedStyle(document.body).backgroundColor")
            == "rgb(20, 23, 26)"
        )
        assert is_quiet(found, client)
    assert dark == (theme == "dark")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_accessible_for_images_and_several_models(
    visited, pictures, digits, theme, tmp_path
):
    (tmp_path / "a.png").write_bytes(png("below", (40, 900)))
    with served([open_model(pictures), open_model(digits)]) as client:
        found = visited(client, theme)
        found.page.get_by_label("Drop an image here").set_input_files(
            tmp_path / "a.png"
        )
        shows(found.page, "#label", "dark above")
        assert found.violations() == {}
        assert found.overflow() <= 0
        found.page.get_by_label("Model").select_option("digits")
        shows(found.page, "#what", "Embedding: 32 numbers")
        assert found.violations() == {}
        assert found.overflow() <= 0
        assert is_quiet(found, client)


def test_names_are_shown_as_they_are_and_fit(visited, tmp_path):
    names = [*NAMES, "x" * 200]
    y = np.repeat(names, 20)
    X = np.repeat(np.eye(len(names)), 20, axis=0)
    dppl.MeanPrototypes(dppl.GaussianDP(9.0), classes=names).fit(X, y).save(
        tmp_path / "odd.safetensors"
    )
    with served([open_model(tmp_path / "odd.safetensors")]) as client:
        found = visited(client)
        for place, name in enumerate(names):
            found.page.get_by_label("Embedding").fill(
                " ".join(map(str, np.eye(len(names))[place]))
            )
            found.page.get_by_role("button", name="Predict").click()
            shows(found.page, "#label", name)
            assert found.overflow() <= 0
        assert is_quiet(found, client)


def focused(page):
    """Return what has the focus, once it shows it."""
    assert (
        page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        == "solid"
    )
    return page.evaluate("document.activeElement.id || document.activeElement.tagName")


def test_the_keyboard_is_enough(visited, animals):
    with served([open_model(animals)]) as client:
        page = visited(client).page
        page.keyboard.press("Tab")
        assert focused(page) == "text"
        page.keyboard.type("abc")
        page.keyboard.press("Tab")
        assert focused(page) == "BUTTON"
        page.keyboard.press("Enter")
        shows(page, "#label", "cat")
        assert focused(page) == "BUTTON"  # one may go on from there
        page.keyboard.press("Tab")
        assert focused(page) == "SUMMARY"
        assert not page.locator("#statement").is_visible()
        page.keyboard.press("Enter")
        assert page.locator("#statement").is_visible()


def test_the_keyboard_reaches_models_and_images(visited, pictures, digits):
    with served([open_model(pictures), open_model(digits)]) as client:
        page = visited(client).page
        reached = []
        for _ in range(3):
            page.keyboard.press("Tab")
            reached.append(focused(page))
        assert reached == ["model", "file", "SUMMARY"]
        page.get_by_label("Model").focus()
        page.keyboard.press("ArrowDown")
        shows(page, "#what", "Embedding: 32 numbers")


def test_a_screen_reader_hears_the_prediction_and_names(visited, animals):
    with served([open_model(animals)]) as client:
        page = visited(client).page
        page.get_by_label("Text").fill("abc")
        page.get_by_role("button", name="Predict").click()
        shows(page, "#label", "cat")
        assert re.fullmatch(
            r"cat\s+Probability \d+\.\d\s%", page.get_by_role("status").inner_text()
        )
        for name in ("Prediction", "What is guaranteed"):
            assert page.get_by_role("region", name=name).count() == 1
        for table in page.locator("table").all():
            assert table.locator("caption").count() == 1
            assert table.locator("th[scope=row]").count() == 3
        assert page.locator("h1").count() == 1
        assert page.locator("html").get_attribute("lang") == "en"


@pytest.mark.parametrize(
    ("whole", "faulty", "notices"),
    [
        (
            '<label id="what" for="text">',
            '<label id="what">',
            lambda found, _: "label" in found.violations(),
        ),
        (
            "--quiet: #57606a",
            "--quiet: #a7b0ba",
            lambda found, _: "color-contrast" in found.violations(),
        ),
        ("dt { ", "dt { width: 90rem; ", lambda found, _: found.overflow() > 0),
        (
            '"use strict";',
            'console.info("said");',
            lambda found, client: not is_quiet(found, client),
        ),
        # The page's policy lets nothing out, and the browser says so.
        (
            "<h1>",
            '<img alt="" src="http://127.0.0.1:9/x.png"><h1>',
            lambda found, client: not is_quiet(found, client),
        ),
    ],
)
def test_faults_would_be_noticed(visited, animals, monkeypatch, whole, faulty, notices):
    """In the page that has none on a phone, as a test above says."""
    text = Path(app.__file__).with_name("page.html").read_text(encoding="utf-8")
    assert text.count(whole) == 1
    file = SimpleNamespace(read_text=lambda encoding: text.replace(whole, faulty))
    monkeypatch.setattr(
        app, "files", lambda _: SimpleNamespace(joinpath=lambda _: file)
    )
    monkeypatch.setattr(app, "page", app.page.__wrapped__)  # not the kept one
    with served([open_model(animals)]) as client:
        assert notices(visited(client), client)
