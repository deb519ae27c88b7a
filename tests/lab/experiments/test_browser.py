"""Pages of `dppl bench` in a real browser."""

from pathlib import Path

import pytest

from browsing import NARROW, WIDE
from dppl.lab.experiments.report import write_report
from dppl.lab.experiments.results import read_results, write_results

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("browser")]  # first, as it skips
RESULTS = Path(__file__).parents[3] / "docs" / "results"
WRONG = {"key": "another", "status": "failed", "error": "InputError", "message": "Of <no> 'use' & `so`."}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write a page of single fits, of which one failed, and a page of a stream."""
    folder = tmp_path_factory.mktemp("pages")
    fits = read("images")
    (stream, *_) = streams = read("continual")
    of_one = [result for result in streams if result["cell"]["stream"] == stream["cell"]["stream"]]
    for name, results in (("bench", [*fits, fits[0] | WRONG]), ("continual", of_one)):
        path = folder / f"{name}.jsonl"
        write_results(results, path)
        write_report(path, folder / name)
    return folder


def read(name):
    return read_results(next(RESULTS.glob(f"{name}.*")))


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["bench", "continual"])
def test_a_page_is_accessible_quiet_and_fits(name, theme, size, pages, visit):
    found = visit(pages / name / "report.html", theme, size)
    assert found.violations() == {}
    assert found.overflow() <= 0
    assert found.said == []
    assert [address for address in found.asked if not address.startswith("data:")] == [
        (pages / name / "report.html").as_uri()
    ]


@pytest.mark.parametrize("name", ["bench", "continual"])
def test_a_screen_reader_gets_figures_tables_and_headings(name, pages, visit):
    page = visit(pages / name / "report.html").page
    assert page.locator("h1").count() == 1
    for picture in page.get_by_role("img").all():
        assert picture.get_attribute("alt")
    regions = page.get_by_role("region").all()
    assert len(regions) > 5
    for region in regions:
        assert region.get_attribute("aria-label")
        assert region.locator("thead th[scope=col]").count() > 1
        assert region.locator("tbody tr").count() == region.locator("tbody th[scope=row]").count() > 0


def test_the_keyboard_reaches_contents_and_tables(pages, visit):
    found = visit(pages / "bench" / "report.html", size=NARROW)
    links = found.page.locator("nav a").all_inner_texts()
    tables = [one.get_attribute("aria-label") for one in found.page.get_by_role("region").all()]
    assert found.reached(len(links) + len(tables)) == links + tables
    found.page.locator("nav a").last.focus()
    found.page.keyboard.press("Enter")
    assert found.page.evaluate("scrollY") > 1000
