"""The planted faults of tools/mutants.txt still fit the sources, so that the list cannot rot unseen."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location(
    "dppl_tools_mutate", ROOT / "tools" / "mutate.py"
)
mutate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutate)

SOURCE = """
LIMIT = 4

class Bag:
    def __init__(self, n):
        self.n = n

    def take(self, one, count=1, *, twice=False):
        check(one, count, twice=twice)
        if count > 1 and twice:
            count = 2 * count
        return {"one": one, "many": [one, *[1], count], "n": self.n}

def take(one):
    return max(one, 1)
"""


def planted(change, folder):
    (folder / "a").mkdir()
    (folder / "a" / "b.py").write_text(SOURCE, encoding="utf-8")
    (mutant,) = mutate.table(f"m: tests/meta/test_mutants.py\n  {change}\n")
    path, faulty = mutant.apply(folder)
    assert path == folder / "a" / "b.py"
    return ast.unparse(faulty)


@pytest.mark.slow
def test_every_fault_applies_to_one_place():
    wrong = []
    for mutant in mutate.MUTANTS:
        try:
            path, faulty = mutant.apply()
            compile(faulty, path, "exec")
        except (ValueError, SyntaxError) as error:
            wrong.append(f"{mutant.name}: {error}")
    assert not wrong, "\n".join(wrong)


def test_every_fault_names_tests_that_exist():
    def has(path, keyword):
        return re.search(
            rf"^def test_\w*{keyword}",
            (ROOT / path).read_text(encoding="utf-8"),
            re.MULTILINE,
        )

    assert not [
        (one.name, path)
        for one in mutate.MUTANTS
        for path in one.tests
        if not has(path, one.keyword)
    ]


@pytest.mark.slow
def test_no_two_faults_are_the_same():
    for key in (
        lambda mutant: mutant.name,
        lambda mutant: (mutant.find(), mutant.number, mutant.old, mutant.new),
    ):
        assert len({key(mutant) for mutant in mutate.MUTANTS}) == len(mutate.MUTANTS)


@pytest.mark.parametrize(
    ("change", "old", "new"),
    [
        ("LIMIT: 4 => 5", "LIMIT = 4", "LIMIT = 5"),
        (
            "Bag.take: $a > 1 and $b => $b and $a >= 1",
            "count > 1 and twice:",
            "twice and count >= 1:",
        ),
        ("a.b.Bag.take: check(...) => pass", "check(one, count, twice=twice)", "pass"),
        (
            "Bag.take: check(..., twice=$x) => check(...)",
            "(one, count, twice=twice)",
            "(one, count)",
        ),
        (
            "Bag.take: check($a, ...) => check($a, 7, **...)",
            "check(one, count",
            "check(one, 7, count",
        ),
        ("Bag.take: [$x, ..., $n] => [...]", "[one, *[1], count]", "[*[1]]"),
        (
            'Bag.take: {**..., "many": $m, **...} => {**..., **...}',
            '"many": [one, *[1], count], ',
            "",
        ),
        ("Bag.take: if $c: ... => while $c: ...", "if count", "while count"),
        (
            "Bag.take: $c = 2 * $c => $c = $c; $c = 3",
            "count = 2 * count",
            "count = count; count = 3",
        ),
        ("Bag.take #3: one => None", "[one", "[None"),
        ("b.take: max => min", "max(", "min("),
        (
            "b.take:\n    return $x\n    =>\n    one = LIMIT\n    return $x",
            "return max",
            "one = LIMIT; return max",
        ),
    ],
)
def test_a_change(change, old, new, tmp_path):
    assert SOURCE.count(old) == 1
    assert planted(change, tmp_path) == ast.unparse(ast.parse(SOURCE.replace(old, new)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("Bag.takes: max => min", "Bag.takes is gone; near it: Bag.take"),
        ("take: max => min", r"take may be any of \['a.b.Bag.take', 'a.b.take'\]"),
        ("Bag.take: 9 => 1", "'9' stands 0 times in a.b.Bag.take"),
        ("Bag.take: one => 1", "'one' stands 3 times in a.b.Bag.take"),
        ("Bag.take #4: one => 1", "'one' stands 3 times in a.b.Bag.take"),
        ("b.take: max => count", "a.b.take knows no count"),
        ("b.take: max($x, ...) => max($x, ...)", "nothing changes"),
        ("b.take: max", "not a mutant: m: "),
    ],
)
def test_a_fault_that_does_not_fit_is_noticed(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        planted(change, tmp_path)


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (0, "3 passed in 1s\n", (mutate.SURVIVED, "")),
        (
            1,
            ".F\nFAILED a/b.py::test_c[1 x] - assert 0\n1 failed\n",
            (mutate.KILLED, "a/b.py::test_c[1 x]"),
        ),
        (
            1,
            "ERROR a/b.py::test_c - ValueError\n1 error\n",
            (mutate.KILLED, "a/b.py::test_c"),
        ),
        (1, "FAILED a/b.py::test_c\n", (mutate.KILLED, "a/b.py::test_c")),
        (
            2,
            "ERROR a/b.py - ImportError\n1 error\n",
            (mutate.BROKEN, "pytest ended with status 2: 1 error"),
        ),
        (
            5,
            "9 deselected\n",
            (mutate.BROKEN, "pytest ended with status 5: 9 deselected"),
        ),
        (-9, "", (mutate.BROKEN, "pytest ended with status -9: ")),
    ],
)
def test_only_a_test_that_ran_and_failed_kills(status, output, expected):
    assert mutate.judge(status, output) == expected
