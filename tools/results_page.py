"""Write all tables and figures of the results, for the site.

    python tools/results_page.py [FOLDER]

For each `docs/results/NAME.jsonl.xz`, the packed results of `dppl bench NAME`, the
report goes to `FOLDER/NAME/`, by default in `build/results`, unless it is there and
newer. `just site` puts them where docs/results.md links to. Needs `pip install -e
'.[lab]'`, and takes minutes.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKED = ROOT / "docs" / "results"
KEPT = {".md", ".png"}  # SVG holds the same


def report(results: Path, folder: Path) -> None:
    """Write the report of one results file into a folder of its name, if the file is newer."""
    name = results.name.partition(".")[0]
    target = folder / name
    page = target / "report.md"
    if page.is_file() and page.stat().st_mtime > results.stat().st_mtime:
        return
    with tempfile.TemporaryDirectory() as made:
        command = [
            sys.executable,
            "-m",
            "dppl",
            "bench",
            results.name,
            "--out",
            f"{made}/{name}",
        ]
        subprocess.run(
            command, cwd=results.parent, check=True, stdout=subprocess.DEVNULL
        )
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in sorted(Path(made, name).iterdir()):
            if file.suffix in KEPT:
                shutil.copy(file, target / file.name)
        page.write_text(
            page.read_text(encoding="utf-8").replace(f"{made}/", ""), encoding="utf-8"
        )


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "results"
    for path in sorted(PACKED.glob("*.jsonl.xz")):
        report(path, folder)
