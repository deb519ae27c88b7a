"""Pages stay short, and begin with what they are for."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    # The page of the commands is made from docstrings, and some pages are files of the root.
    *(
        path
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if path.name not in ("cli.md", "report.md")
        and not path.read_text("utf-8").startswith("--8<--")
    ),
]


def test_pages_stay_short_and_begin_with_what_they_are_for():
    pages = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in PAGES
    }
    words = {name: len(page.split()) for name, page in pages.items()}
    assert sum(words.values()) < 51_000
    assert words["docs/guarantees.md"] <= 4_300
    assert all(
        count <= 1_250
        for name, count in words.items()
        if name.startswith("docs/review")
    )
    assert words["docs/concepts.md"] <= 1_600
    assert len(pages["docs/results.md"].splitlines()) <= 200
    for name, page in pages.items():
        assert re.match(r"# [^\n]+\n\n[\w`[]", page), name
