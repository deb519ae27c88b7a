"""The tool that writes the tables of docs/results.md."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location(
    "dppl_tools_results_page", Path(__file__).parents[3] / "tools" / "results_page.py"
)
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)
BEGIN, END = "<!-- some: begin -->", "<!-- some: end -->"


@pytest.fixture(params=["some.jsonl", "some.parquet"])
def page(request, tmp_path, monkeypatch):
    """A page to write to, with one results file beside it."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / request.param).touch()
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    monkeypatch.setattr(tool, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(tool, "report", lambda results: "new")
    return tmp_path / "results.md"


def test_what_stands_between_the_markers_is_replaced(page):
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    tool.main()
    assert page.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["before, after", f"before {BEGIN} after", f"{END} before {BEGIN} after"])
def test_a_page_without_the_markers_is_left_as_it_is(page, text):
    page.write_text(text)
    with pytest.raises(SystemExit, match="must have the lines <!-- some: begin --> and <!-- some: end -->"):
        tool.main()
    assert page.read_text() == text
