"""Imports point one way, names are exported in order, and privacy paragraphs say everything in order."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import dppl
from dppl import baselines

SOURCE = Path(dppl.__file__).parent
# From bottom to top; a module may import from its own layer and those below.
LAYERS = [
    {"_version", "errors"},
    {"_validate", "_files", "_fingerprint", "_optional"},
    {"privacy"},
    {"lattice"},
    {"mechanisms"},
    {"estimators"},
    {"prototypes"},
    {"baselines"},
    {"data"},
    {"encoders"},
    {"embedding"},
    {"training"},
    {"audit"},
    {"experiments"},
    {"report"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
MODULES = sorted(SOURCE.rglob("*.py"))
HEADINGS = ["Unit:", "Relation:", "Released:", "Sensitivity:", "Public inputs:", "Not covered:"]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(path):
    part = path.relative_to(SOURCE).parts[0]
    return part.removesuffix(".py")


@pytest.mark.parametrize("path", [p for p in MODULES if p != SOURCE / "__init__.py"], ids=str)
def test_imports_point_downwards(path):
    for name in imports(path):
        if name.startswith("dppl."):
            target = name.split(".")[1]
            assert RANK.get(target, 0) <= RANK[layer(path)], f"{path.name} imports {name}"


def test_every_layer_is_ranked():
    assert {layer(path) for path in MODULES} - {"__init__"} == set(RANK)


def test_the_core_imports_neither_torch_nor_a_web_framework():
    heavy = {"torch", "fastapi", "flask", "ray", "transformers"}
    assert not {name.split(".")[0] for path in MODULES for name in imports(path)} & heavy


def test_no_module_needs_what_only_the_tests_install():
    """OpenDP above all, which is an oracle of the tests: where they run, importing it would not fail."""
    only_tests = {"opendp", "pytest", "hypothesis", "jsonschema", "onnx", "duckdb"}
    assert not {name.split(".")[0] for path in MODULES for name in imports(path)} & only_tests


def test_only_one_module_draws_noise():
    """Generators elsewhere are for experiments' splits and public choices, listed here with a reason."""
    allowed = {
        "mechanisms/randomness.py",  # the noise
        "_files.py",  # names of temporary files
        "data/longtail.py",  # subsets of evaluation data
        "data/sample.py",  # the fixed split of the sample
        "experiments/splits.py",  # validation parts and subsets of public rows
    }
    names = {"secrets", "random", "numpy.random", "default_rng", "Generator", "urandom"}
    found = set()
    for path in MODULES:
        used = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute)
        }
        if used & names or {name.split(".")[0] for name in imports(path)} & {"secrets", "random"}:
            found.add(path.relative_to(SOURCE).as_posix())
    assert found == allowed


def test_the_delta_that_is_shown_is_defined_once():
    """In sentences, tables and figures; examples in docstrings and helps are texts."""
    found = [
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value == 1e-6
    ]
    assert found == ["privacy/guarantee.py"]


NAMES = (
    "privacy",
    "lattice",
    "mechanisms",
    "estimators",
    "prototypes",
    "baselines",
    "data",
    "encoders",
    "embedding",
    "training",
    "audit",
    "report",
    "errors",
)
PACKAGES = ["dppl", *(f"dppl.{name}" for name in NAMES)]


@pytest.mark.parametrize("name", PACKAGES)
def test_exports_are_complete_and_sorted(name):
    module = importlib.import_module(name)
    assert sorted(module.__all__, key=lambda n: (not n.isupper(), n == n.lower(), n)) == list(module.__all__)
    assert all(
        getattr(module, exported).__doc__
        for exported in module.__all__
        if not isinstance(getattr(module, exported), str | tuple | int)
    )


ESTIMATORS = [
    dppl.MeanPrototypes,
    dppl.PublicPrototypes,
    dppl.SoftmaxPrototypes,
    dppl.PrivateSearch,
    baselines.FeatureCovariance,
    baselines.GlobalAdapt,
    baselines.LeastSquares,
    baselines.LinearProbe,
    baselines.Newton,
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_states_its_privacy_in_order(estimator):
    notes = inspect.getdoc(estimator).split("**Privacy.**")[1].split("References")[0]
    positions = [notes.find(heading) for heading in HEADINGS]
    assert -1 not in positions
    assert positions == sorted(positions)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_is_documented(estimator):
    documented = inspect.getdoc(estimator).split("Parameters\n")[1].split("Attributes\n")[0]
    for name in inspect.signature(estimator).parameters:
        assert f"\n{name} : " in documented
