"""What the reference shows has complete docstrings of numpydoc; all else a sentence, and prose that says why.

Shown is what a module named in docs/api lists in `__all__`, with the public methods of
such classes and of their bases. A method that overrides one of its base may say no more
than that; the base's section counts.
"""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from dppl.methods.registry import ENTRIES

ROOT = Path(__file__).parents[2]
PAGES = (page.read_text("utf-8") for page in (ROOT / "docs/api").glob("*.md"))
MODULES = sorted(
    name for page in PAGES for name in re.findall(r"^::: (\S+)", page, re.MULTILINE)
)
SECTION = re.compile(r"^ *[A-Z]\w+( \w+)?\n *---+$", re.MULTILINE)


def shown():
    """Yield the definitions of each thing that is shown, those of bases last."""
    for module in map(importlib.import_module, MODULES):
        for thing in (getattr(module, name) for name in getattr(module, "__all__", ())):
            yield [thing]
            for name in dir(thing) if inspect.isclass(thing) else ():
                if not name.startswith("_") or name == "__call__":
                    found = [
                        vars(base)[name] for base in thing.__mro__ if name in vars(base)
                    ]
                    yield [
                        getattr(one, "fget", getattr(one, "__func__", one))
                        for one in found
                    ]


def named(things):
    """Return functions and classes of dppl by module and qualified name."""
    found = [
        inspect.unwrap(one)
        for one in things
        if inspect.isfunction(one) or inspect.isclass(one)
    ]
    return {
        f"{one.__module__}.{one.__qualname__}": one
        for one in found
        if one.__module__.startswith("dppl.")
    }


def parameters(function):
    return [
        name
        for name in inspect.signature(function).parameters
        if name not in ("self", "cls")
    ]


def documented(function):
    """Return the names in the Parameters section."""
    _, found, rest = (inspect.getdoc(function) or "").partition(
        "Parameters\n----------\n"
    )
    section = re.split(r"\n\n\w+\n---", rest)[0]
    heads = [
        line.split(" : ")[0]
        for line in section.splitlines()
        if line and not line.startswith(" ")
    ]
    return (
        [name.strip().lstrip("*") for head in heads for name in head.split(",")]
        if found
        else []
    )


SHOWN = list(shown())
FUNCTIONS = {
    name: one
    for name, one in named(several[-1] for several in SHOWN).items()
    if not inspect.isclass(one) and len(parameters(one)) > 1
}


def definitions(node, prefix):
    """Yield functions and classes with their qualified names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
            yield from definitions(child, f"{prefix}{child.name}.")


def test_only_what_is_shown_has_sections():
    """Or what is shown inherits, as parameters that estimators share."""
    public = named(one for several in SHOWN for one in several) | named(
        base
        for several in SHOWN
        if inspect.isclass(several[0])
        for base in several[0].__mro__
    )
    for path in (ROOT / "src/dppl").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for name, node in definitions(ast.parse(path.read_text("utf-8")), f"{module}."):
            assert name in public or not SECTION.search(
                ast.get_docstring(node) or ""
            ), name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_all_parameters_are_documented(name):
    assert sorted(documented(FUNCTIONS[name])) == sorted(parameters(FUNCTIONS[name]))


ESTIMATORS = {entry.name: entry.load() for entry in ENTRIES}
# What all estimators mean by these is the same, so it is said in the same words.
SHARED = {"unknown_labels", "lattice", "random_state"}


def described(kind):
    """Return what the docstring of a class says of each parameter, its type and default first."""
    section = (
        inspect.getdoc(kind)
        .split("Parameters\n----------\n")[1]
        .split("\n\nAttributes")[0]
    )
    entries = re.findall(r"^(\w+) : (.*(?:\n(?:    .*|$))*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_documented_defaults_are_those_of_the_constructor(name):
    parameters = inspect.signature(ESTIMATORS[name]).parameters
    texts = described(ESTIMATORS[name])
    assert list(texts) == list(parameters)
    for parameter in parameters.values():
        stated = re.search(r"default=(\"[^\"]*\"|[\w.+-]+)", texts[parameter.name])
        assert (stated is None) == (parameter.default is inspect.Parameter.empty)
        if stated is not None:
            assert ast.literal_eval(stated[1]) == parameter.default


def test_shared_parameters_are_documented_in_the_same_words():
    said = {
        name: {described(kind).get(name) for kind in ESTIMATORS.values()} - {None}
        for name in SHARED
    }
    for name, texts in said.items():
        whole = {
            text for text in texts if " " in text.partition("default=")[2]
        }  # that of a reader of files is short
        assert len(whole) == 1, name
