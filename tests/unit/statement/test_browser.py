"""Reports in a real browser: both themes, a telephone, the keyboard, print, accessibility, and no network."""

import pytest

from browsing import NARROW, WIDE
from unit.statement.contents import NAMES, everything

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("browser"),
]  # first, as it skips

# Five times what the confusion matrix has room for.
MANY = [f"Klasse {place}, {NAMES[place % 3]}" for place in range(100)]
SIZES = {"wide": WIDE, "narrow": NARROW}
# Pairs: each page in each theme and at each width, and each width in each theme: axe-core
# takes seconds for a page of many classes.
VIEWS = [
    ("few", "light", "wide"),
    ("few", "dark", "narrow"),
    ("many", "light", "narrow"),
    ("many", "dark", "wide"),
    ("snippet", "light", "wide"),
    ("snippet", "dark", "narrow"),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write a page of few classes, one of many, and one of a snippet."""
    folder = tmp_path_factory.mktemp("pages")
    few = everything(NAMES)
    many = everything(MANY)
    snippet = f'<!DOCTYPE html><html lang="en"><title>n</title><body><main><h1>n</h1>{few.html_snippet()}</main></body>'
    for name, text in (
        ("few", few.html()),
        ("many", many.html()),
        ("snippet", snippet),
    ):
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("name", "theme", "size"), VIEWS)
def test_a_page_is_accessible_quiet_and_fits(name, theme, size, pages, visit):
    found = visit(pages / f"{name}.html", theme, SIZES[size])
    assert len(found.page.screenshot()) > 20_000
    assert found.said == []
    assert found.asked == [(pages / f"{name}.html").as_uri()]
    assert found.overflow() <= 0
    found.unfold()
    assert found.violations() == {}
    assert found.overflow() <= 0


@pytest.mark.parametrize(
    ("planted", "notices"),
    [
        (
            '<img src="data:,"><p style="color: #aaa; background: #fff">pale</p>',
            lambda found: {*found.violations()} == {"image-alt", "color-contrast"},
        ),
        ('<div style="width: 3000px">wide</div>', lambda found: found.overflow() > 0),
        (
            "<script>console.error('said')</script>",
            lambda found: found.said == ["said"],
        ),
        (
            '<img alt="" src="http://127.0.0.1:9/x.png">',
            lambda found: len(found.asked) == 2,
        ),
    ],
    ids=["inaccessible", "wide", "loud", "asking"],
)
def test_faults_would_be_noticed(planted, notices, pages, visit, tmp_path):
    """In the page of few classes, which the test above finds to have none."""
    whole = (pages / "few.html").read_text(encoding="utf-8")
    (tmp_path / "faulty.html").write_text(
        whole.replace("</main>", f"{planted}</main>"), encoding="utf-8"
    )
    assert notices(visit(tmp_path / "faulty.html"))


INTENTS = [
    f"card_payment_{end}"
    for end in (
        "fee_charged",
        "not_recognised",
        "wrong_exchange_rate",
        "declined_abroad",
    )
]
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def intents(visit, tmp_path):
    """A page of classes whose names begin alike, on a phone; the matrix has all of its twenty columns."""
    names = [f"{name}_{place}" for place in range(5) for name in INTENTS]
    (tmp_path / "intents.html").write_text(everything(names).html(), encoding="utf-8")
    return visit(tmp_path / "intents.html", "light", PHONE).page


def test_classes_of_the_matrix_can_be_told_apart(intents):
    matrix = intents.get_by_role("region", name="Confusion matrix")
    columns = matrix.locator("thead th").all_inner_texts()[1:]
    rows = matrix.locator("tbody th").all_inner_texts()
    assert len(set(columns)) == len(rows) == 20
    assert [row.split()[0] for row in rows] == columns
    clipped = "all => all.filter(e => e.scrollWidth > e.clientWidth || getComputedStyle(e).textOverflow != 'clip').length"
    assert matrix.locator("th, th *").evaluate_all(clipped) == 0
    first = matrix.locator("tbody th").first
    left = first.bounding_box()["x"]
    assert matrix.evaluate("e => { e.scrollLeft = 300; return e.scrollLeft }") == 300
    assert first.bounding_box()["x"] == left


def test_names_end_their_lines_at_underscores(intents):
    """No line of a name begins with what is not the beginning of a word."""
    script = """all => all.flatMap(name => {
        const starts = [], range = document.createRange();
        let top = null;
        for (const part of name.childNodes) for (let place = 0; place < (part.length || 0); place++) {
            range.setStart(part, place); range.setEnd(part, place + 1);
            const box = range.getBoundingClientRect();
            if (top !== null && box.top > top + 2) starts.push(place);
            top = box.top;
        }
        return starts;
    })"""
    starts = (
        intents.get_by_role("region", name="Largest confusions")
        .locator("bdi")
        .evaluate_all(script)
    )
    assert starts  # they have several lines
    assert set(starts) == {0}


def test_what_was_spent_fits_a_phone(intents):
    for name in ("What was released", "Releases from this data set"):
        region = intents.get_by_role("region", name=name)
        assert region.evaluate("e => e.scrollWidth - e.clientWidth") <= 0
        assert (
            region.get_by_role("rowheader").count()
            == region.get_by_role("row").count() - 1
            > 0
        )
        assert region.get_by_role("columnheader").count() > 2


def brightness(found):
    """Return the mean of the channels of the background, and of the text."""
    script = "s => getComputedStyle(document.body)[s].match(/[\\d.]+/g).slice(0, 3).map(Number)"
    return [
        sum(found.page.evaluate(script, name)) / 3
        for name in ("backgroundColor", "color")
    ]


def test_the_theme_is_that_of_the_reader(pages, visit):
    paper, ink = brightness(visit(pages / "few.html", "light"))
    assert paper > 240
    assert ink < 60
    paper, ink = brightness(visit(pages / "few.html", "dark"))
    assert paper < 60
    assert ink > 200


def test_a_page_looks_the_same_without_scripts(pages, visit):
    pictures = [
        visit(pages / "few.html", java_script_enabled=on).page.screenshot()
        for on in (True, False)
    ]
    assert pictures[0] == pictures[1]


def test_print_is_light_and_has_what_is_folded(pages, visit):
    found = visit(pages / "few.html", "dark")
    assert not found.page.locator("details:not([open]) table").first.is_visible()
    found.page.emulate_media(media="print")
    paper, ink = brightness(found)
    assert (paper, ink) == (255, 0)
    assert found.page.locator("details:not([open]) table").first.is_visible()
    assert not found.page.locator("nav").is_visible()
    found.page.emulate_media(media="screen")
    assert found.page.locator("nav").is_visible()


def test_the_keyboard_reaches_links_folds_and_what_scrolls(pages, visit):
    found = visit(pages / "few.html", size=NARROW)
    expected = {
        "What is promised",
        "How to check it",
        "The curve as a table",
        "Confusion matrix",
        "Largest confusions",
    }
    assert expected <= set(found.reached(60))
    curve = found.page.get_by_text("The curve as a table")
    curve.focus()
    found.page.keyboard.press("Enter")
    assert found.page.get_by_role(
        "region", name="The trade-off curve as a table"
    ).is_visible()


def test_a_screen_reader_gets_charts_tables_and_headings(pages, visit):
    found = visit(pages / "few.html")
    charts = found.page.get_by_role("img").all()
    labels = [one.get_attribute("aria-label") for one in charts]
    assert any(
        label and label.startswith("Trade-off curve. At a false-alarm rate of")
        for label in labels
    )
    for table in found.page.locator("table").all():
        assert table.locator("caption").count() == 1
        assert table.locator("th").count() > 0
    assert found.page.locator("h1").count() == 1
    assert found.page.get_by_role("main").count() == 1
    assert found.page.locator("html").get_attribute("lang") == "en"


def test_arabic_runs_from_right_to_left(pages, visit):
    found = visit(pages / "few.html")
    direction = "e => getComputedStyle(e).direction"
    names = {
        name: found.page.locator("bdi", has_text=name).first.evaluate(direction)
        for name in NAMES[:2]
    }
    assert names == {NAMES[0]: "ltr", NAMES[1]: "rtl"}
