"""Tests use what a room offers to others: a private name is read by the tests of its own room alone."""

import ast
import functools
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src" / "dppl"
# Reaches past what is offered for all other tests, and says why.
ALLOWED = {"inside.py"}
# Without these no private name is read.
PRIVATE = re.compile(r"[.,(]\s*_[a-zA-Z]|import _")
# What tests/unit/*.py are about.
SINGLE = {"_utils", "engines", "metrics"}


def is_private(name):
    """Whether a name is private; what ends with an underscore is a protocol, such as `_repr_html_`."""
    return name.startswith("_") and not name.endswith("_") and name != "_utils"


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def defined(tree):
    """Return the private names that code defines or imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return {name for name in found if is_private(name)}


@functools.cache
def names_by_room():
    names = {}
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names.setdefault(room_of(path), set()).update(defined(tree))
    return names


def rooms_of_tests(path):
    """Return the rooms that a test file is about."""
    first, *rest = path.relative_to(TESTS).parts
    if first not in ("unit", "system") or not rest:
        return set()
    return {rest[0]} if len(rest) > 1 else SINGLE


def is_of_another_package(node, imported):
    """Whether an attribute begins with a module that is not dppl's."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in imported


def private_reads(tree, rooms):
    """Yield the private names of other rooms that a test reads or imports."""
    names = names_by_room()
    own = defined(tree).union(*(names.get(room, ()) for room in rooms))
    others = set().union(*names.values()) - own
    nodes = list(ast.walk(tree))
    imported = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names = {alias.asname or alias.name for alias in node.names}
            imported |= {name for name in names if not name.startswith("dppl")}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("dppl."):
            room, *modules = node.module.split(".")[1:]
            names = [*modules, *(alias.name for alias in node.names)]
            if room not in rooms:
                yield from filter(is_private, names)
        elif isinstance(node, ast.Attribute) and node.attr in others:
            is_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not is_self and not is_of_another_package(node, imported):
                yield node.attr


def test_no_test_reads_a_private_name_of_another_room():
    read = {}
    for path in TESTS.rglob("*.py"):
        if path.name not in ALLOWED:
            text = path.read_text(encoding="utf-8")
            # Parsing takes longest, and most files name nothing private.
            tree = ast.parse(text if PRIVATE.search(text) else "")
            read[path] = list(private_reads(tree, rooms_of_tests(path)))
    assert {path: names for path, names in read.items() if names} == {}
    assert len(read) > 100


CONTROLS = {
    "from dppl.kernel.measure import _Counter": ["_Counter"],
    "from dppl.continual._stream import of_stream": ["_stream"],
    "records = measure._counter.records": ["_counter"],
    "import os\nos._exit(0)": [],
    "import ray\nray._private": [],
    "measure._of_the_test = 1\nmeasure._of_the_test": [],
}


@pytest.mark.parametrize("code", CONTROLS)
def test_a_private_name_is_noticed(code):
    assert list(private_reads(ast.parse(code), {"io"})) == CONTROLS[code]


def test_a_room_may_read_its_own_names():
    tree = ast.parse("measure._counter")
    assert list(private_reads(tree, {"kernel"})) == []
