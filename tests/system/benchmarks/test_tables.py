"""The page of columns states what the committed measurements say."""

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[3]
MEASURED = ROOT / "docs" / "results" / "tables.jsonl"
SPEC = importlib.util.spec_from_file_location(
    "dppl_benchmarks_tables", ROOT / "benchmarks" / "tables.py"
)
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


@pytest.mark.skipif(not MEASURED.is_file(), reason="measurements are not in the sdist")
def test_the_page_has_the_table_of_the_measurements():
    frame = pd.DataFrame(script.read_cells(MEASURED))
    page = (ROOT / "docs" / "start" / "columns.md").read_text(encoding="utf-8")
    assert "\n".join(script.ahead_of("dp-ebm", frame)) in page
    *_, mean = script.ahead_of("probe", frame)
    assert mean.split(" | ")[2] == "+0.014 ± 0.004"
    assert "0.014 ± 0.004 behind at epsilon 0.5" in " ".join(page.split())
