"""Write docs/notebooks/*.ipynb, one a page of docs/start: its words, its Python and its commands, without outputs.

    python tools/notebooks.py

`tests/meta/test_site.py` is red while a notebook differs from its page, and runs one of
them.
"""

import json
import posixpath
import re
from pathlib import Path

from dppl._utils.files import write_atomically

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "start").glob("*.md"))
FOLDER = DOCS / "notebooks"


def notebook(page: Path) -> str:
    """Return the notebook of a page."""
    pieces = re.split(
        r"```(python|console)\n(.*?)```",
        page.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    cells = []
    for words, language, code in zip(
        pieces[::3], [*pieces[1::3], ""], [*pieces[2::3], ""], strict=True
    ):
        cells.append(cell("markdown", moved(words)))
        cells.append(cell("code", as_shell(code) if language == "console" else code))
    numbered = [
        {**one, "id": f"cell-{place}"} for place, one in enumerate(filter(None, cells))
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": numbered,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def cell(kind: str, source: str) -> dict[str, object] | None:
    """Return a cell, or None of nothing."""
    if not source.strip():
        return None
    outputs = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source.strip(), **outputs}


def as_shell(commands: str) -> str:
    """Return commands as lines of a notebook that the shell runs."""
    return "".join(f"!{line}\n" for line in commands.splitlines())


def moved(words: str) -> str:
    """Return words whose links lead from the folder of notebooks where they led from that of the pages."""
    return re.sub(
        r"\]\((?!https?:|#|\.\./)([^)]+)\)",
        lambda link: f"]({posixpath.join('../start', link[1])})",
        words,
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for page in PAGES:
        write_atomically(
            FOLDER / f"{page.stem}.ipynb", notebook(page).encode(), overwrite=True
        )
