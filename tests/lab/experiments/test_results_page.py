"""The tool that writes the tables of results for the site."""

import importlib.util
import os
from pathlib import Path

import pytest

from dppl.lab.experiments.results import read_results, write_results

ROOT = Path(__file__).parents[3]
SPEC = importlib.util.spec_from_file_location("dppl_tools_results_page", ROOT / "tools" / "results_page.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


@pytest.mark.slow
def test_a_report_is_made_once_and_again_when_its_results_are_newer(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra lab")
    results = tmp_path / "some.parquet"
    write_results(read_results(ROOT / "docs" / "results" / "few.parquet")[:4], results)
    tool.report(results, tmp_path / "built")
    page = tmp_path / "built" / "some" / "report.md"
    text = page.read_text(encoding="utf-8")
    assert "4 cells done" in text
    assert list(page.parent.glob("*.png"))
    assert {path.suffix for path in page.parent.iterdir()} == {".md", ".png"}
    page.write_text("kept")
    tool.report(results, tmp_path / "built")
    assert page.read_text() == "kept"
    os.utime(page, (0, 0))  # older than the results
    tool.report(results, tmp_path / "built")
    assert page.read_text(encoding="utf-8") == text
