"""Words that CONTRIBUTING.md asks not to use: they are in no page, comment or docstring."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Phrases, and what to write instead. Words that are fine in other senses are refused in
# the odd one only.
RULES = {
    r"(?:told|tells?|telling)(?: \w+){0,3} apart": "distinguish",
    r"beside": "next to, besides, in addition to",
    r"(?:left|leaves?|leaving) out": "skip, omit",
    r"that of|those of": "repeat the noun",
    r"tells? whether|tells? if|telling whether": "return whether, say whether",
    r"refuses? what is not": "accept only",
    r"wanted": "requested, expected",
    r"told": "given, stated, named",
    r"stands? (?:in|on|under|at|there|here|before|after)": "is in, is on",
    r"of (?:its|their|one's) own(?! (?:class|style|kind))": "its own ..., separate",
    r"in place of": "instead, instead of",
    r"but for": "except for",
    r"anew": "over, from the start",
    r"for want of": "because ... is missing",
    r"in (?:other|different|any) company": "in another batch",
    r"mak(?:es?|ing) more of": "use better",
    r"giv(?:es?|ing) back": "return",
    r"adversar(?:y|ies|ial)": "attacker",
    r"neighbor\w*|(?<![-.])datasets?(?! :)|behaviors?|colors?": "neighbour, data set, behaviour, colour",
    r"(?:normal|optim|recogn|initial|summar|general|standard|random|serial)iz(?:e[ds]?(?! import)|ing|ation)": "-ise",
    r"(?:the|a|your|its) privacy budgets?": "budget",
}
RULE = re.compile(
    r"\b(?:"
    + "|".join(f"(?P<r{place}>{rule})" for place, rule in enumerate(RULES))
    + r")\b",
    re.IGNORECASE,
)
PAGES = [
    ROOT / "README.md",
    # The page of the commands is made from docstrings.
    *(
        path
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if path.name not in ("cli.md", "contributing.md", "report.md")
    ),
]


def faults(text: str) -> list[str]:
    """Return the phrases of a text that are refused, each with what to write."""
    advice = list(RULES.values())
    return [
        f"{found[0]!r}: {advice[int(found.lastgroup[1:])]}"
        for found in RULE.finditer(" ".join(text.split()))
    ]


def prose(page: str) -> str:
    """Return a page without code, comments, and addresses of links."""
    page = re.sub(
        r"<!--.*?-->",
        "",
        re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE),
        flags=re.DOTALL,
    )
    return re.sub(
        r"\]\([^)]*\)", "]", re.sub(r"(`+)(?:(?!\n\n).)*?\1", "", page, flags=re.DOTALL)
    )


def words_of(source: str) -> Iterator[str]:
    """Yield the comments and docstrings of a file of Python, without quoted code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            yield prose(
                re.sub(
                    r"^(>>>|\.\.\.) .*$",
                    "",
                    ast.get_docstring(node) or "",
                    flags=re.MULTILINE,
                )
            )
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield prose(token.string)


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_pages_have_no_refused_words(page):
    assert faults(prose(page.read_text(encoding="utf-8"))) == []


def test_contributing_has_no_refused_words_but_in_its_lists():
    assert faults(prose(CONTRIBUTING.partition("### Vocabulary")[0])) == []


@pytest.mark.slow
def test_sources_have_no_refused_words():
    files = sorted((ROOT / "src" / "dppl").rglob("*.py"))
    found = [
        (path.name, fault)
        for path in files
        for text in words_of(path.read_text(encoding="utf-8"))
        for fault in faults(text)
    ]
    assert found == []


def test_pages_stay_short_and_begin_with_what_they_are_for():
    pages = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in PAGES
    }
    words = {name: len(page.split()) for name, page in pages.items()}
    assert sum(words.values()) < 40_200
    assert words["docs/guarantees.md"] <= 6_600
    assert words["docs/concepts.md"] <= 1_600
    assert len(pages["docs/results.md"].splitlines()) <= 200
    for name, page in pages.items():
        assert re.match(r"# [^\n]+\n\n[\w`[]", page), name


PAIRS = re.findall(r"^\| ([^|]*\*\*[^|]*) \| ([^|]+) \|$", CONTRIBUTING, re.MULTILINE)


def test_there_are_twenty_pairs():
    assert len(PAIRS) >= 20


@pytest.mark.parametrize("pair", PAIRS)
def test_of_each_pair_the_first_is_refused_and_the_second_is_not(pair):
    bad, good = pair
    assert faults(bad.replace("**", ""))
    assert faults(good) == []


def test_code_and_addresses_are_no_prose():
    page = "`told` [a](beside.md) <!-- not run: told -->\n\n```python\ntold\n```\n"
    assert faults(prose(page)) == []
    assert list(words_of('x = 1  # told\n"""wanted"""\n'))[-1] == "# told"
