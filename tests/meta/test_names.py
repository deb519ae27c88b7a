"""A name of a module or a class means one thing, so that a search finds it."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import dppl

SOURCE = Path(dppl.__file__).parent
# A command's file and class are named as the command is typed, and groups of its options
# as what they hold: in `cli` a name is the user's.
MODULES = [path for path in SOURCE.rglob("*.py") if SOURCE / "cli" not in path.parents]
# Names of modules that stay, and why.
KEPT = {
    "base": "what the queries share, and what the methods share",
    "records": "raw records of a file, and the records of a fit",
}


def modules(paths):
    """Return the files of each name; the main module of a package may have the name of the package."""
    found = defaultdict(set)
    for path in paths:
        here = path.parent if path.stem in ("__init__", path.parent.name) else path
        if here != SOURCE:
            found[here.stem].add(here.relative_to(SOURCE).as_posix())
    return found


def classes(sources):
    """Return the files of each public class and alias of a type."""
    found = defaultdict(set)
    for place, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                name = node.name
            elif isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node):
                name = ast.unparse(node.target)
            else:
                continue
            if not name.startswith("_"):
                found[name].add(place)
    return found


def shared(found):
    return {name for name, places in found.items() if len(places) > 1}


def test_a_name_of_a_module_is_of_one_thing():
    assert shared(modules(MODULES)) == set(KEPT)


def test_a_name_of_a_class_is_of_one_thing():
    sources = {path: path.read_text(encoding="utf-8") for path in MODULES}
    assert shared(classes(sources)) == set()


def test_names_of_two_things_are_noticed():
    """The control."""
    package = SOURCE / "room"
    paths = [package / "__init__.py", package / "room.py", package / "one.py"]
    assert shared(modules(paths)) == set()
    assert shared(modules([*paths, SOURCE / "other" / "one.py"])) == {"one"}
    assert shared(modules([*paths, SOURCE / "other" / "room.py"])) == {"room"}


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("class Plan: pass", {"Plan"}),
        ("Plan: TypeAlias = int", {"Plan"}),
        ("class Other: pass", set()),
        ("class _Own: pass", set()),
    ],
)
def test_classes_of_two_things_are_noticed(other, expected):
    """The control."""
    first = "class Plan: pass\nclass _Own: pass"
    assert shared(classes({"first": first, "second": other})) == expected
