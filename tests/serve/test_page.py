"""The page at `/` in a browser: it predicts, says what is guaranteed, and fits a phone."""

import re
import shutil
from importlib.util import find_spec

import pytest

import dppl
from dppl.serve import opened
from serve.conftest import TOKEN, png, served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]
PHONE = {"width": 380, "height": 740}


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visited(browser):
    """Open the page of a service; return it, and what the browser complained of."""
    contexts = []

    def visit(client, **options):
        contexts.append(browser.new_context(viewport=PHONE, **options))
        page = contexts[-1].new_page()
        complaints = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"http://127.0.0.1:{client.port}/")
        shows(page, "#promise", re.compile("."))
        return page, complaints

    yield visit
    for context in contexts:
        context.close()


def shows(page, selector, text):
    """Wait until a part of the page has a text."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_text(text)


def test_a_text(visited, animals):
    with served([opened(animals)]) as client:
        page, complaints = visited(client)
        page.get_by_label("Text").fill("abc <b>")
        page.get_by_role("button", name="Predict").press("Enter")
        shows(page, "#label", "cat")
        (first, *others) = page.locator("#top tbody tr").all_inner_texts()
        near = page.locator("#near tbody tr").all_inner_texts()
        assert page.inner_text("#promise") == dppl.load(animals).guarantee_.summary()
        assert "further fits on the same records add up" in page.inner_text("#short")
        page.get_by_label("Text").fill(" ")
        page.get_by_role("button", name="Predict").click()
        shows(page, "#reason", "This cannot be used: it is empty.")
        assert complaints == []
    assert first.startswith("cat")
    assert first.endswith("%")
    assert len(others) == 2
    assert len(near) == 3
    assert near[0].startswith("cat")


def test_an_image_by_choosing_and_by_dropping(visited, pictures, tmp_path):
    (tmp_path / "a.png").write_bytes(png("below"))
    (tmp_path / "b.png").write_bytes(png("above"))
    with served([opened(pictures)]) as client:
        page, complaints = visited(client)
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
        assert complaints == []


def test_embeddings_and_another_model(visited, digits, animals, sample):
    with served([opened(animals), opened(digits)]) as client:
        page, complaints = visited(client)
        page.get_by_label("Model").select_option("digits")
        page.get_by_label("Embedding: 32 numbers").fill(" ".join(map(str, sample.X_test[0].tolist())))
        page.get_by_role("button", name="Predict").click()
        shows(page, "#label", str(dppl.load(digits).predict(sample.X_test[:1])[0]))
        page.get_by_label("Embedding").fill("one two")
        page.get_by_role("button", name="Predict").click()
        shows(page, "#reason", re.compile("^Type numbers"))
        assert complaints == []


def test_the_model_that_was_chosen_last_is_shown(visited, digits, animals):
    """Also where the answer about another one comes later."""
    with served([opened(animals), opened(digits)]) as client:
        page, complaints = visited(client)
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
        assert complaints == []


def test_the_browser_asks_for_the_token(visited, animals):
    with served([opened(animals)], token=TOKEN) as client:
        page, _ = visited(client, http_credentials={"username": "me", "password": TOKEN})
        page.get_by_label("Text").fill("fgh")
        page.get_by_role("button", name="Predict").click()
        shows(page, "#label", "dog")


def contrast(page, selector):
    """Return the contrast of a text with the page, as WCAG computes it."""
    return page.evaluate(
        """selector => {
            const light = text => {
                const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(c => c / 255)
                    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const front = light(getComputedStyle(document.querySelector(selector)).color);
            const back = light(getComputedStyle(document.body).backgroundColor);
            return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
        }""",
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_can_be_read(visited, animals, scheme, tmp_path):
    with served([opened(animals)]) as client:
        page, _ = visited(client, color_scheme=scheme)
        page.get_by_label("Text").fill("klm")
        page.get_by_role("button", name="Predict").click()
        shows(page, "#label", "gnu")
        page.get_by_text("The whole statement").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        for selector in ("body", "#label", "#about", "caption", "#near td", "dt"):
            assert contrast(page, selector) >= 4.5, selector
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
        assert dark == (scheme == "dark")
        page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)


def test_keyboard_and_names(visited, animals):
    """Every control has a name, and the tabulator reaches the text, the button and the statement in this order."""
    with served([opened(animals)]) as client:
        page, _ = visited(client)
        reached = []
        for _ in range(3):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.tagName"))
        assert reached == ["TEXTAREA", "BUTTON", "SUMMARY"]
        unnamed = page.evaluate(
            """[...document.querySelectorAll("input, select, textarea")]
                .filter(one => !one.labels.length && !one.ariaLabel).map(one => one.id)"""
        )
        assert unnamed == []
        assert page.get_by_role("status").count() == 1
        assert page.locator("html").get_attribute("lang") == "en"
