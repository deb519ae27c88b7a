"""Imports point one way, names are exported in order, and privacy paragraphs say everything in order."""

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path

import pytest

import dppl
from dppl.finetune import SparseFinetuner
from dppl.lab import FilmEnsemble, LoraEnsemble, LoraFinetuner
from dppl.methods.registry import ENTRIES

SOURCE = Path(dppl.__file__).parent
# From bottom to top; a module may import from its own layer and those below.
LAYERS = [
    {"_version", "errors"},
    {"_utils", "engines"},
    {"kernel.privacy"},
    {"kernel.lattice"},
    {"kernel.mechanisms"},
    {"kernel"},
    {"reasons"},
    {"statement.english", "statement.words", "statement.trust"},
    {"encoders"},
    {"io", "metrics"},
    {"methods"},
    {"continual"},
    {"training"},
    {"federation"},
    {"finetune"},
    {"prediction"},
    {"evaluation"},
    {"planning"},
    {"testing"},
    {"statement"},
    {"audit"},
    {"export"},
    {"serve"},
    {"cli"},
    {"lab"},
    {"__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
MODULES = sorted(SOURCE.rglob("*.py"))
HEADINGS = [
    "Unit:",
    "Relation:",
    "Released:",
    "Sensitivity:",
    "Public inputs:",
    "Not covered:",
]


@functools.cache
def nodes(path):
    """Return all that a module consists of."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports(path):
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(path):
    """Name the layer of a file: its package, or the floor of it that the file is on."""
    return layer_of(".".join(("dppl", *path.relative_to(SOURCE).with_suffix("").parts)))


def layer_of(name):
    first, *rest = name.split(".")[1:]
    floor = ".".join((first, *rest[:1]))
    return floor if floor in RANK else first


def upward(path):
    """Return what a module imports from above its layer."""
    told_in_words = path.relative_to(SOURCE).as_posix() in (
        "kernel/privacy/guarantee.py",
        "kernel/privacy/ledger.py",
    )
    told = ("dppl.statement.words", "dppl.statement.trust")
    # What `print` shows of the kernel's data is the only thing that it does not say
    # itself.
    return [
        name
        for name in imports(path)
        if name.startswith("dppl.")
        and not (told_in_words and name.startswith(told))
        and RANK.get(layer_of(name), 0) > RANK[layer(path)]
    ]


def test_imports_point_downwards():
    found = {path: upward(path) for path in MODULES if path != SOURCE / "__init__.py"}
    assert {path: names for path, names in found.items() if names} == {}


# Name the lab in a string, and import it when they are asked for what is there.
NAMES_THE_LAB = {
    "cli/_commands.py",  # its commands
    "methods/registry.py",  # its estimators
}


def test_nothing_depends_on_the_lab():
    """Whoever deletes `dppl.lab` loses commands and comparison methods, and nothing else."""
    named = set()
    for path in MODULES:
        if layer(path) in ("lab", "__init__"):
            continue
        assert not [name for name in imports(path) if layer_of(f"{name}.") == "lab"], (
            path
        )
        strings = [
            node.value
            for node in nodes(path)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        if any(re.fullmatch(r"dppl\.lab[\w.]*", text) for text in strings):
            named.add(path.relative_to(SOURCE).as_posix())
    assert named == NAMES_THE_LAB


def test_the_page_for_contributors_lists_these_layers():
    page = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("## Where things are")[2].partition("\n## ")[0]
    rows = [
        set(re.findall(r"`([\w.]+)`", row))
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    ]
    assert rows == LAYERS


def test_every_layer_is_ranked():
    assert {layer(path) for path in MODULES} - {"__init__"} == set(RANK)


def test_the_core_imports_neither_torch_nor_a_web_framework():
    """The service is imported when it is asked for, and needs its extra then; so are configurations of the lab."""
    service = {SOURCE / "serve" / f"{name}.py" for name in ("app", "guard", "requests")}
    service.add(SOURCE / "lab/experiments/grid.py")
    heavy = {
        "torch",
        "fastapi",
        "flask",
        "pydantic",
        "ray",
        "starlette",
        "transformers",
        "uvicorn",
    }
    for path in MODULES:
        used = {name.split(".")[0] for name in imports(path)} & heavy
        assert used <= (
            {"fastapi", "pydantic", "starlette"} if path in service else set()
        ), path


def test_no_module_needs_what_only_the_tests_install():
    """OpenDP above all, which is an oracle of the tests: where they run, importing it would not fail."""
    only_tests = {"opendp", "pytest", "hypothesis", "jsonschema", "onnx", "duckdb"}
    assert (
        not {name.split(".")[0] for path in MODULES for name in imports(path)}
        & only_tests
    )


def test_only_one_module_draws_noise():
    """Generators elsewhere are for experiments' splits and public choices, listed here with a reason."""
    allowed = {
        "kernel/mechanisms/randomness.py",  # the noise
        "_utils/files.py",  # names of temporary files
        "io/splitting.py",  # coins that hold records out
        "io/sample.py",  # the fixed split of the sample
        "finetune/gradients.py",  # states of generators, which show whether a network draws
        "prediction/one_record.py",  # seeds with which classifiers draw alike for each record
        "lab/experiments/built_in.py",  # made-up classes, and the fixed split of tables
        "lab/experiments/datasets.py",  # subsets of evaluation data and of public rows
        "lab/experiments/tuning.py",  # validation parts
        "lab/finetuner.py",  # masks and first weights, of public networks
        "lab/few_shot.py",  # episodes of public classes, and first weights
        "lab/lora.py",  # first weights of adapters
        "lab/pretraining.py",  # first weights and the order of public images
        "lab/longtail.py",  # subsets of evaluation data
        "lab/task_streams.py",  # the order of public classes, and streams of evaluation data
    }
    names = {"secrets", "random", "numpy.random", "default_rng", "Generator", "urandom"}
    found = set()
    for path in MODULES:
        used = {node.attr for node in nodes(path) if isinstance(node, ast.Attribute)}
        if used & names or {name.split(".")[0] for name in imports(path)} & {
            "secrets",
            "random",
        }:
            found.add(path.relative_to(SOURCE).as_posix())
    assert found == allowed


def test_the_delta_that_is_shown_is_defined_once():
    """In sentences, tables and figures; examples in docstrings and helps are texts."""
    found = [
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Constant) and node.value == 1e-6
    ]
    assert found == ["kernel/privacy/budgets.py"]


NAMES = (
    "kernel.privacy",
    "kernel.lattice",
    "kernel.mechanisms",
    "methods",
    "continual",
    "encoders",
    "io",
    "training",
    "planning",
    "finetune",
    "federation",
    "audit",
    "evaluation",
    "export",
    "serve",
    "statement",
    "errors",
    "lab",
    "metrics",
)
PACKAGES = ["dppl", *(f"dppl.{name}" for name in NAMES)]


@pytest.mark.parametrize("name", PACKAGES)
def test_exports_are_documented(name):
    module = importlib.import_module(name)
    assert all(
        getattr(module, exported).__doc__
        for exported in module.__all__
        if not isinstance(getattr(module, exported), str | tuple | int)
    )


ESTIMATORS = [
    dppl.PrivateSearch,
    SparseFinetuner,
    FilmEnsemble,
    LoraEnsemble,
    LoraFinetuner,
    *(entry.load() for entry in ENTRIES),
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_states_its_privacy_in_order(estimator):
    text = " ".join(inspect.getdoc(estimator).split())
    notes = text.split("**Privacy.**")[1].split("References")[0]
    positions = [notes.find(heading) for heading in HEADINGS]
    assert -1 not in positions
    assert positions == sorted(positions)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_is_documented(estimator):
    documented = (
        inspect.getdoc(estimator).split("Parameters\n")[1].split("Attributes\n")[0]
    )
    for name in inspect.signature(estimator).parameters:
        assert f"\n{name} : " in documented


def homes(package):
    """Return the module of each name that a package imports when it is first asked for, by its stub."""
    stub = SOURCE.parent.joinpath(*package.split("."), "__init__.pyi")
    body = ast.parse(stub.read_text("utf-8")).body if stub.exists() else []
    return {
        alias.name: f"{package}.{node.module}"
        for node in body
        if node.module
        for alias in node.names
    }


def name_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def imported_modules(path):
    """Modules of dppl that a module imports: at its top or within functions, but not for types alone."""

    def statements(node):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        yield node
        for child in ast.iter_child_nodes(node):
            yield from statements(child)

    names = {name_of(path) for path in MODULES}
    for node in statements(nodes(path)[0]):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("dppl"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                home = homes(node.module).get(alias.name, node.module)
                yield full if full in names else home
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)


def circle(graph):
    """Return modules that import each other in a circle, or nothing."""
    done = set()

    def visit(name, path):
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        found = next(
            (
                one
                for other in graph.get(name, ())
                if (one := visit(other, [*path, name]))
            ),
            [],
        )
        done.add(name)
        return found

    return next((found for name in graph if (found := visit(name, []))), [])


def test_no_files_import_each_other_in_a_circle():
    """A name taken from a package counts as its module where a stub names it, else as the package's `__init__`."""
    graph = {name_of(path): set(imported_modules(path)) for path in MODULES}
    assert circle(graph) == []
    graph["dppl.kernel.privacy.accounting"].add("dppl.methods.base")  # the control
    assert "dppl.kernel.privacy.accounting" in circle(graph)
    assert homes("dppl.kernel")["Measure"] == "dppl.kernel.measure"


def test_imports_within_functions_are_seen_and_those_for_types_are_not():
    """The control of `imported_modules`."""
    of_guarantees = set(imported_modules(SOURCE / "kernel/privacy/guarantee.py"))
    assert "dppl.statement.words" in of_guarantees
    of_words = set(imported_modules(SOURCE / "statement/words.py"))
    assert "dppl.statement.english" in of_words
    assert "dppl.kernel.privacy.guarantee" not in of_words


# What holds records, draws noise or adds without it stays in the kernel. Others ask its
# counter, and take of these rooms ids and tables alone: nothing that adds or draws.
PRIVATE = {"records", "parts", "outcomes", "persons", "mechanisms"}
TAKEN = {
    "are_missing",
    "CAST",
    "ID_KINDS",
    "checked_ids",
    "classes_of_persons",
    "holds_ids",
    "id_bytes",
    "id_kind",
    "id_text",
    "entered",
    "ids_of_fit",
    "person_codes",
    "days_of",
    "texts_apart",
    "type_of_ids",
}
TAKEN |= {
    "CONFIDENCES",
    "SCORE_EDGES",
    "TEMPERATURES",
    "Disagreements",
    "Guesses",
    "MostHits",
    "SignedHits",
}
TAKEN |= {"COINPRESS_SPLITS", "Part", "Parted", "once_each", "pieces"}
TAKEN |= {"private_data", "private_parts"}
EXACT = {
    "class_sums",
    "gram_matrices",
    "weighted_sum",
    "SoftmaxGradient",
    "curvature_sums",
}
# Files of queries stand outside the kernel: gradients of networks need torch, and
# the lab's are one research method's each. Cells look at the clipping of CoinPress.
EXCEPT = {
    # They hand what is said of private test records to the counter.
    "evaluation/comparing.py": {"Outcomes", "Rivals"},
    "evaluation/measuring.py": {"outcomes", "Outcomes", "SeveralOutcomes"},
    "finetune/gradients.py": {
        "HeldRecords",
        "Records",
        "Randomness",
        "RoundedGaussian",
        "SampledGaussian",
    },
    "lab/experiments/measure_cell.py": {"CoinPress"},
    "lab/episode_queries.py": {"RoundedGaussian", "SampledGaussian"},
    "lab/friendly.py": {"HeldRecords", "Randomness", "RoundedGaussian"},
    "lab/finetuner.py": {"SampledGaussian"},
    "lab/published_topk.py": {"ExponentialMechanism", "HeldRecords", "Randomness"},
    "lab/votes.py": {"RoundedGaussian", "SampledGaussian"},
    "lab/projection_queries.py": {
        "HeldRecords",
        "Records",
        "Randomness",
        "SoftmaxGradient",
    },
}


def private_imports(path):
    """Return what a module imports of records, noise and exact sums."""
    found = set()
    for name in imports(path):
        inside = name.removeprefix("dppl.kernel.").split(".")
        last = name.rpartition(".")[2]
        if (
            name.startswith("dppl.kernel.")
            and last not in TAKEN
            and (PRIVATE & {*inside} or last in EXACT)
        ):
            found.add(last)
    return found


def test_only_the_kernel_imports_records_noise_and_exact_sums():
    outside = [path for path in MODULES if SOURCE / "kernel" not in path.parents]
    found = {
        path.relative_to(SOURCE).as_posix(): private_imports(path) for path in outside
    }
    assert {name: what for name, what in found.items() if what} == EXCEPT
    # The control: the rule sees what the kernel itself imports.
    queries = SOURCE / "kernel" / "queries"
    inside = private_imports(queries / "search.py") | private_imports(
        queries / "base.py"
    )
    assert {"HeldRecords", "Randomness", "RoundedGaussian"} <= inside
