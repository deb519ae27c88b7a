"""The tool that writes the tables of results for the site."""

import importlib.util
import os
from pathlib import Path

ROOT = Path(__file__).parents[4]
SPEC = importlib.util.spec_from_file_location(
    "dppl_tools_results_page", ROOT / "tools" / "results_page.py"
)
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


def test_a_report_is_made_once_and_again_when_its_results_are_newer(
    tmp_path, monkeypatch
):
    """The command that writes a report is that of tests/system/cli/test_cli_bench.py, so files stand for it here."""
    runs = []

    def run(command, *, cwd, **_):
        runs.append(command[1:-1])
        folder = Path(command[-1])
        folder.mkdir()
        (folder / "report.md").write_text(f"`dppl bench {folder}` of {cwd.name}")
        for name in ("accuracy.png", "accuracy.svg"):
            (folder / name).touch()

    monkeypatch.setattr(tool.subprocess, "run", run)
    results = tmp_path / "some.jsonl.xz"
    results.touch()
    tool.report(results, tmp_path / "built")
    page = tmp_path / "built" / "some" / "report.md"
    text = page.read_text(encoding="utf-8")
    assert (
        text == f"`dppl bench some` of {tmp_path.name}"
    )  # without the folder in which it was made
    assert runs == [["-m", "dppl", "bench", "some.jsonl.xz", "--out"]]
    assert {path.name for path in page.parent.iterdir()} == {
        "report.md",
        "accuracy.png",
    }
    page.write_text("kept")
    tool.report(results, tmp_path / "built")
    assert page.read_text() == "kept"
    os.utime(page, (0, 0))  # older than the results
    tool.report(results, tmp_path / "built")
    assert page.read_text(encoding="utf-8") == text
