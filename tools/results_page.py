"""Write the tables and figures of docs/results.md from its results files.

    python tools/results_page.py

For each `docs/results/NAME.parquet`, the packed results of `dppl bench NAME`, the report goes to `docs/results/NAME/`,
and the tables of `docs/results.md` between `<!-- NAME: begin -->` and `<!-- NAME: end -->` are made again. Needs
`pip install -e '.[lab]'`.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dppl.lab.experiments.results import SUFFIXES

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "results"
# Results of `dppl bench`, whose report docs/continual.md links to.
STREAMS = "continual"
# Results of so many tasks that the page has the winners only, and the report the rest.
SHORT = "few"
KEPT = {".md", ".png"}  # SVG and HTML hold the same, and are made by the same command


def report(results: Path) -> str:
    """Write the report of one results file; return its tables and figures, with links from the docs folder."""
    target = FOLDER / results.stem
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dppl", "bench", results.name, "--out", f"{folder}/{results.stem}"]
        subprocess.run(command, cwd=FOLDER, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for file in sorted(Path(folder, results.stem).iterdir()):
            if file.suffix in KEPT:
                shutil.copy(file, target / file.name)
    page = (target / "report.md").read_text(encoding="utf-8").replace(f"{folder}/", "")
    (target / "report.md").write_text(page, encoding="utf-8")
    _, first, *rest = re.split(r"(?=\n## )", page)
    tables = re.sub(r"\n(##+ )", r"\n#\1", first if results.stem == SHORT else first + "".join(rest))
    return re.sub(r"\]\((?!http)([^)]+\.png)\)", rf"](results/{results.stem}/\1)", tables)


def main() -> None:
    """Make every part of the page again."""
    path = DOCS / "results.md"
    page = path.read_text(encoding="utf-8")
    for results in sorted(path for path in FOLDER.iterdir() if path.suffix in SUFFIXES):
        if results.stem == STREAMS:
            report(results)
            continue
        begin, end = f"<!-- {results.stem}: begin -->", f"<!-- {results.stem}: end -->"
        before, begun, rest = page.partition(begin)
        _, ended, after = rest.partition(end)
        if not (begun and ended):
            sys.exit(f"{path} must have the lines {begin} and {end}, in this order; put them where its tables belong.")
        page = f"{before}{begin}\n{report(results)}\n{end}{after}"
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
