"""The check of how code reads notices what needs a second reading, and nothing else."""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location(
    "dppl_tools_reads", Path(__file__).parents[2] / "tools" / "reads.py"
)
reads = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reads)

COUNTED = {
    "a = b if c else d\n": reads.CONDITIONAL,
    "[a for b in c for a in b]\n": reads.DENSE,
    "[[a for a in b] for b in c]\n": reads.DENSE,
    "{a: f(a) for a in b if a}\n": reads.DENSE,
    "[f(a) for a in b]\n": None,
    "[a for a in b if a.c]\n": None,
    "a, b = 1, c\n": reads.TUPLE,
    "a, b = b, a\n": None,
    "a, b = c\n": None,
    "# why\n": reads.COMMENTS,
    "def f():\n" + 51 * "    a = 1\n": reads.LONG,
    "def f():\n" + 50 * "    a = 1\n" + 9 * "    # why\n": reads.COMMENTS,
    'def f():\n    """Say it.\n' + 60 * "\n    More.\n" + '    """\n    a = 1\n': None,
}


@pytest.mark.parametrize("code", COUNTED)
def test_what_is_counted(code):
    expected = {COUNTED[code]} - {None}
    assert {what for what, _ in reads.places(code)} == expected


def test_what_is_beyond_a_limit_is_named():
    kept = Counter({reads.COMMENTS: 60, reads.CONDITIONAL: 14})
    assert list(reads.problems(kept, 1000)) == []
    assert list(reads.problems(kept + Counter([reads.CONDITIONAL]), 1000)) == [
        "15.0 conditional expressions in 1,000 lines of code, over 14.0"
    ]
    assert list(reads.problems(kept - Counter([reads.COMMENTS]), 1000)) == [
        "5.9 comments in 100 lines of code, under 6.0"
    ]
