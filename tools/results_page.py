"""Write all tables and figures of the results, for the site.

    python tools/results_page.py

For each `docs/results/NAME.parquet`, the packed results of `dppl bench NAME`, the report goes to `docs/results/NAME/`,
which git ignores and docs/results.md links to. Needs `pip install -e '.[lab]'`, and takes minutes.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "results"
KEPT = {".md", ".png"}  # SVG and HTML hold the same, and are made by the same command


def report(results: Path) -> None:
    """Write the report of one results file next to it, if the file is newer."""
    target = results.with_suffix("")
    page = target / "report.md"
    if page.is_file() and page.stat().st_mtime > results.stat().st_mtime:
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dppl", "bench", results.name, "--out", f"{folder}/{results.stem}"]
        subprocess.run(command, cwd=results.parent, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for file in sorted(Path(folder, results.stem).iterdir()):
            if file.suffix in KEPT:
                shutil.copy(file, target / file.name)
        page.write_text(page.read_text(encoding="utf-8").replace(f"{folder}/", ""), encoding="utf-8")


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.parquet")):
        report(path)
