"""Check the links of the project's pages: files, headings, the navigation, and the form of addresses elsewhere.

    python tools/check_links.py

Prints each fault with its place, and exits with 1 if there is one. No address is
fetched. What is checked:

- links of README.md, CONTRIBUTING.md, CHANGELOG.md and all pages and notebooks in docs/
  lead to a file, and to a heading if they name one; from a page of the site they do not
  leave docs/, because the site ends there;
- paths such as docs/guarantees.md or tests/laws that pages, sources, tests and tools
  name exist, with the heading;
- the navigation of mkdocs.yml has every page once, and no other (reports of results are
  linked, not listed, and made for the site);
- other addresses are https, with a host and without spaces.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^ *(```+).*?^ *\1 *$", re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r"(`+)(?:(?!\n\n).)*?\1", re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]*)>?\)")
NAMED = re.compile(
    r"(?<![\w/.-])((?:docs|tests|tools|benchmarks)/[\w/.-]*\w)(#[\w-]+)?"
)
# What the text names as an example, or what a command is going to write.
GENERATED = re.compile(r"docs/results/|[*<>{}]|\bNAME\b")


def faults(root: Path = ROOT) -> list[str]:
    """Return all faults under a folder, each with its file."""
    pages = sorted((root / "docs").rglob("*.md"))
    outside = [root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    notebooks = sorted((root / "docs").rglob("*.ipynb"))
    found = [
        fault
        for page in [*pages, *notebooks, *outside]
        for fault in of_links(page, root)
    ]
    sources = [
        path
        for folder in ("src", "tests", "tools")
        for path in sorted((root / folder).rglob("*.py"))
    ]
    found += [
        fault for path in [*pages, *outside, *sources] for fault in of_names(path, root)
    ]
    return found + of_navigation(
        (root / "mkdocs.yml").read_text(encoding="utf-8"), pages, root
    )


def of_links(page: Path, root: Path) -> Iterator[str]:
    """Yield the faults of the links of one page."""
    place = page.relative_to(root)
    docs = root / "docs"
    for target in links(words(page)):
        if re.match(r"[a-z][a-z+.-]*:", target):
            if not is_address(target):
                yield f"{place}: {target} is not an https address"
            continue
        path, _, heading = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if is_generated(file):
            continue
        if not file.is_file():
            yield f"{place}: there is no {target}"
        elif page.is_relative_to(docs) and not file.is_relative_to(docs):
            yield f"{place}: {target} is not on the site"
        elif heading and heading not in headings(file):
            yield f"{place}: no heading for {target}"


def of_names(file: Path, root: Path) -> Iterator[str]:
    """Yield the files that a text names in words and that do not exist, and the headings that they lack."""
    for path, anchor in NAMED.findall(file.read_text(encoding="utf-8")):
        if GENERATED.search(path):
            continue
        if not any((root / name).exists() for name in (path, f"{path}.py")):
            yield f"{file.relative_to(root)}: there is no {path}"
        elif (
            anchor and path.endswith(".md") and anchor[1:] not in headings(root / path)
        ):
            yield f"{file.relative_to(root)}: no heading for {path}{anchor}"


def of_navigation(configuration: str, pages: Iterable[Path], root: Path) -> list[str]:
    """Return what the navigation names and is not there, names twice, or leaves out."""
    listed = Counter(
        re.findall(r"^ +- (?:[^#\n]*: )?([\w/-]+\.md)$", configuration, re.MULTILINE)
    )
    there = {
        page.relative_to(root / "docs").as_posix()
        for page in pages
        if "results" not in page.parts
    }
    return [
        *(
            f"mkdocs.yml: there is no docs/{page}"
            for page in sorted(listed.keys() - there)
        ),
        *(
            f"mkdocs.yml: docs/{page} is not in the navigation"
            for page in sorted(there - listed.keys())
        ),
        *(
            f"mkdocs.yml: docs/{page} is named {times} times"
            for page, times in listed.items()
            if times > 1
        ),
    ]


def words(page: Path) -> str:
    """Return the Markdown of a page, or of a notebook's cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    return "\n\n".join(
        cell["source"]
        for cell in json.loads(text)["cells"]
        if cell["cell_type"] == "markdown"
    )


def links(text: str) -> list[str]:
    """Return the targets of links, of which code has none."""
    return LINK.findall(QUOTED.sub("code", FENCED.sub("", text)))


@cache
def headings(page: Path) -> frozenset[str]:
    """Return the anchors of the headings of a page, as GitHub and the site make them."""
    seen: Counter[str] = Counter()
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    anchors = re.findall(r'<a id="([^"]+)"', text)
    for heading in re.findall(r"^#+ +(.*?) *#*$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        anchors.append(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(anchors)


def is_generated(file: Path) -> bool:
    """Return whether a page of tables is made from packed results by tools/results_page.py, for the site."""
    return file.name == "report.md" and file.parent.with_suffix(".jsonl.xz").is_file()


def is_address(target: str) -> bool:
    """Tell whether this has the form of an address that a page may lead to."""
    parts = urlsplit(target)
    return (
        parts.scheme == "https"
        and re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc) is not None
    )


if __name__ == "__main__":
    found = faults()
    print("\n".join(found) or "all links lead somewhere")  # noqa: T201
    sys.exit(bool(found))
