"""The planted faults of tools/mutate.py still fit the sources, so that the list cannot rot unseen."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("dppl_tools_mutate", ROOT / "tools" / "mutate.py")
mutate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutate)


@pytest.mark.parametrize("mutant", mutate.MUTANTS, ids=lambda mutant: mutant.name)
def test_every_fault_applies_once_and_stays_python(mutant):
    source = (ROOT / "src" / "dppl" / mutant.file).read_text(encoding="utf-8")
    faulty = mutant.apply(source)
    # Another program, and not another comment or layout.
    assert ast.dump(ast.parse(faulty)) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("mutant", mutate.MUTANTS, ids=lambda mutant: mutant.name)
def test_every_fault_names_tests_that_exist(mutant):
    assert mutant.tests
    for path in mutant.tests:
        names = re.findall(r"^def (test_\w+)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
        assert any(mutant.keyword in name for name in names)


def test_no_two_faults_are_the_same():
    for key in (lambda mutant: mutant.name, lambda mutant: (mutant.file, mutant.old, mutant.new)):
        assert len({key(mutant) for mutant in mutate.MUTANTS}) == len(mutate.MUTANTS)


@pytest.mark.parametrize(("source", "new"), [("", "b"), ("a a", "b"), ("a", "a")])
def test_a_fault_that_does_not_fit_is_noticed(source, new):
    with pytest.raises(ValueError, match=r"must stand in x\.py once"):
        mutate.Mutant(name="m", file="x.py", old="a", new=new, tests=()).apply(source)


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (0, "3 passed in 1s\n", (mutate.SURVIVED, "")),
        (1, ".F\nFAILED a/b.py::test_c[1 x] - assert 0\n1 failed\n", (mutate.KILLED, "a/b.py::test_c[1 x]")),
        (1, "ERROR a/b.py::test_c - ValueError\n1 error\n", (mutate.KILLED, "a/b.py::test_c")),
        (1, "FAILED a/b.py::test_c\n", (mutate.KILLED, "a/b.py::test_c")),
        (2, "ERROR a/b.py - ImportError\n1 error\n", (mutate.BROKEN, "pytest ended with status 2: 1 error")),
        (5, "9 deselected\n", (mutate.BROKEN, "pytest ended with status 5: 9 deselected")),
        (-9, "", (mutate.BROKEN, "pytest ended with status -9: ")),
    ],
)
def test_only_a_test_that_ran_and_failed_kills(status, output, expected):
    assert mutate.judge(status, output) == expected
