"""Every public function with two parameters or more has a Parameters section that names all of them.

Public is what a package exports, with its methods, and every name without an underscore in the modules of `MODULES`. A
method that overrides one of its base says no more than that; the base's section counts. Commands have help texts.
"""

import ast
import importlib
import inspect
import pkgutil
import re

import pytest

from dppl.estimators.registry import ENTRIES

PACKAGES = ("dppl", *(f"dppl.{name}" for name in ("baselines", "embedding", "encoders", "estimators", "prototypes")))
PACKAGES += ("dppl.continual", "dppl.continual.metrics", "dppl.continual.streams")
PACKAGES += (
    "dppl.errors",
    "dppl.experiments",
    "dppl.cards",
    "dppl.training",
    "dppl.finetune",
    "dppl.planning",
    "dppl.export",
)
MODULES = ("audit", "data", "lattice", "mechanisms", "privacy")


def public_names():
    """Yield every public function and class."""
    for name in PACKAGES:
        module = importlib.import_module(name)
        yield from (getattr(module, exported) for exported in getattr(module, "__all__", ()))
    for package in MODULES:
        path = importlib.import_module(f"dppl.{package}").__path__
        for found in pkgutil.iter_modules(path, f"dppl.{package}."):
            if not found.name.split(".")[-1].startswith("_"):
                content = vars(importlib.import_module(found.name)).items()
                yield from (thing for name, thing in content if not name.startswith("_") and callable(thing))


def methods(cls):
    """Yield the public methods of a class, each as its bases define it for the first time."""
    for name in dir(cls):
        if not name.startswith("_"):
            first = [vars(base)[name] for base in cls.__mro__ if name in vars(base)][-1]
            yield getattr(first, "__func__", first)


def functions():
    """Return public functions of two parameters or more by name."""
    things = list(public_names())
    found = [thing for thing in things if inspect.isroutine(thing)]
    found += [method for cls in things if inspect.isclass(cls) for method in methods(cls)]
    names = {f"{f.__module__}.{f.__qualname__}": f for f in map(inspect.unwrap, found) if inspect.isfunction(f)}
    return {
        name: function
        for name, function in names.items()
        if name.startswith("dppl.") and "._" not in name and len(parameters(function)) > 1
    }


def parameters(function):
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def documented(function):
    """Return the names in the Parameters section."""
    _, found, rest = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")
    section = re.split(r"\n\n\w+\n---", rest)[0]
    heads = [line.split(" : ")[0] for line in section.splitlines() if line and not line.startswith(" ")]
    return [name.strip().lstrip("*") for head in heads for name in head.split(",")] if found else []


FUNCTIONS = functions()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_all_parameters_are_documented(name):
    assert sorted(documented(FUNCTIONS[name])) == sorted(parameters(FUNCTIONS[name]))


ESTIMATORS = {entry.name: entry.load() for entry in ENTRIES}
# What all estimators mean by these is the same, so it is said in the same words.
SHARED = {"unknown_labels", "center", "rotation", "random_state"}


def described(kind):
    """Return what the docstring of a class says of each parameter, its type and default first."""
    section = inspect.getdoc(kind).split("Parameters\n----------\n")[1].split("\n\nAttributes")[0]
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
    said = {name: {described(kind).get(name) for kind in ESTIMATORS.values()} - {None} for name in SHARED}
    for name, texts in said.items():
        whole = {text for text in texts if " " in text.partition("default=")[2]}  # that of a reader of files is short
        assert len(whole) == 1, name
