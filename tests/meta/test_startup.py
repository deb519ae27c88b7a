"""What is imported when: a package or command that is not used costs no time, and no name is lost by that."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dppl
from dppl.cli.main import COMMANDS, app_with

DATABASE_AND_TABLES = {"sqlalchemy", "pyarrow", "pandas", "opendp", "dp_accounting"}
HEAVY = {
    *DATABASE_AND_TABLES,
    "scipy",
    "sklearn",
    "torch",
    "transformers",
    "sentence_transformers",
    "matplotlib",
}
HEAVY |= {"jinja2"}
STUBS = sorted(Path(dppl.__file__).parent.rglob("__init__.pyi"))
LAZY = [".".join(path.parent.relative_to(STUBS[0].parents[1]).parts) for path in STUBS]


def imported(programs, *arguments):
    """Run programs one after the other in one process; return the packages that are imported after each."""
    wrapped = "import sys\n"
    for program in programs:
        wrapped += (
            f"try:\n    {program}\nexcept SystemExit as end:\n    assert not end.code\n"
        )
        wrapped += "print('\\n', *{name.split('.')[0] for name in sys.modules}, file=sys.stderr)\n"
    command = [sys.executable, "-c", wrapped, *map(str, arguments)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return [
        set(line.split()) for line in ended.stderr.splitlines() if line.startswith(" ")
    ]


def typed(*words):
    """Return a program that runs the command line."""
    return f"sys.argv[1:] = {words}; from dppl.cli.main import run; run()"


@pytest.mark.slow
def test_nothing_heavy_is_imported_before_it_is_used():
    """One process does more and more, so that what it imports later is the control of what it imports before."""
    modules = [_module(name) for name in COMMANDS]
    (
        package,
        version,
        commands_listed,
        options_listed,
        modules_of_commands,
        service,
        exports,
    ) = imported(
        [
            "import dppl; dir(dppl)",
            typed("--version"),
            typed("--help"),
            typed("fit", "--help"),
            f"import {', '.join(modules)}",
            "import dppl.serve; [getattr(dppl.serve, name) for name in dppl.serve.__all__]",
            "import dppl.export; [getattr(dppl.export, name) for name in dppl.export.__all__]",
        ]
    )
    assert not package & {*HEAVY, "numpy", "rich", "cyclopts"}
    assert not (version | commands_listed | options_listed) & {*HEAVY, "numpy"}
    assert not modules_of_commands & {
        "scipy",
        "sklearn",
        "torch",
        "pandas",
        "matplotlib",
        "dp_accounting",
        "fastapi",
    }
    assert not service & {"fastapi", "starlette", "uvicorn"}
    assert not exports & {"onnx", "onnxruntime", "torch", "huggingface_hub"}
    assert "cyclopts" in version
    assert "numpy" in modules_of_commands
    assert "sklearn" in exports


@pytest.mark.slow
def test_every_module_is_imported_where_posix_is_not():
    """Windows has no such modules; what is missing here for want of an extra is missing there, too."""
    posix = ["fcntl", "grp", "pwd", "resource", "termios", "tty"]
    program = """
import importlib, pkgutil, sys
sys.modules |= dict.fromkeys(sys.argv[1:])
import dppl
names = [module.name for module in pkgutil.walk_packages(dppl.__path__, "dppl.")]
for name in [*names, "resource"]:
    if name != "dppl.__main__":
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(name, error.name)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, *posix],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    failed = dict(map(str.split, ended.stdout.splitlines()))
    assert failed.pop("resource") == "resource"
    assert not {*posix} & {*failed.values()}, failed


@pytest.mark.slow
def test_loading_and_predicting_import_neither_a_database_nor_tables(tmp_path):
    path = tmp_path / "model.safetensors"
    dppl.MeanPrototypes(dppl.GaussianDP(1.0), classes=["a", "b"]).fit(
        np.eye(2), ["a", "b"]
    ).save(path)
    use = "import dppl, numpy; dppl.load(sys.argv[1]).predict(numpy.eye(2))"
    # scikit-learn imports pandas, and pandas pyarrow, where they are installed.
    before, after, control = imported(["import sklearn.base", use, "dppl.Ledger"], path)
    assert not (after - before) & DATABASE_AND_TABLES
    assert "sqlalchemy" in control


@pytest.mark.slow
def test_a_fit_from_the_prompt_imports_no_library_that_it_does_not_use(tmp_path):
    """Of scikit-learn and pandas each alone takes longer than a fit on a few hundred rows."""
    labels = ["a", "b"] * 4
    (tmp_path / "classes.txt").write_text("a\nb\n")
    np.savez(tmp_path / "t.npz", x=np.eye(8), y=labels)
    pq.write_table(
        pa.table({"x": list(np.eye(8)), "y": labels}), tmp_path / "t.parquet"
    )
    pq.write_table(
        pa.table({"x": list(np.eye(8)), "y": [0, 1] * 4}), tmp_path / "n.parquet"
    )
    (tmp_path / "numbers.txt").write_text("0\n1\n")
    options = (
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--out",
        str(tmp_path / "model.safetensors"),
        "--force",
        "--classes",
    )
    tables = {
        "t.npz": "classes.txt",
        "t.parquet": "classes.txt",
        "n.parquet": "numbers.txt",
    }
    typed_fits = [
        typed("fit", str(tmp_path / table), *options, str(tmp_path / one))
        for table, one in tables.items()
    ]
    checks = [
        typed(command, str(tmp_path / "model.safetensors"))
        for command in ("show", "verify")
    ]
    *fits, control = imported(
        [
            *typed_fits,
            *checks,
            "import dppl; print(dppl.MeanPrototypes().__sklearn_tags__())",
        ]
    )
    assert not set.union(*fits) & {
        "scipy",
        "sklearn",
        "pandas",
        "sqlalchemy",
        "dp_accounting",
        "torch",
        "numba",
        "jinja2",
    }
    assert "pyarrow" in fits[0]
    assert {"sklearn", "scipy"} <= control


def test_an_ordinary_fit_imports_nothing_of_federation():
    """What is not imported runs no line: institutions are composed around a fit, not branches of it."""
    fit = (
        "import sys, numpy, dppl; model = dppl.SoftmaxPrototypes(dppl.ApproxDP(1, 1e-6), classes=['a', 'b']); "
        "model.fit(numpy.eye(2), ['a', 'b']); "
    )
    shown = (
        "print(*(name for name in sys.modules if name.startswith('dppl.federation')))"
    )
    assert imported_names(fit + shown) == []
    control = imported_names(f"import sys, dppl; dppl.federation.Federation; {shown}")
    assert "dppl.federation.coordinator" in control


def test_packages_are_attributes():
    (here,) = imported_names(
        "from dppl import continual; import dppl; print(dppl.continual is continual)"
    )
    assert here == "True"
    packages = {
        path.parent.name for path in Path(dppl.__file__).parent.glob("*/__init__.py")
    }
    public = {name for name in dir(dppl) if inspect.ismodule(getattr(dppl, name))}
    assert public == packages - {"_utils", "cli", "prediction", "serve"} | {
        "errors",
        "testing",
    }
    for name in public:
        assert getattr(dppl, name) is importlib.import_module(f"dppl.{name}")


def imported_names(program):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.parametrize("name", LAZY)
def test_every_name_of_a_stub_is_found_and_listed(name):
    module = importlib.import_module(name)
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text("utf-8"))
    names = [(node, alias) for node in stub.body for alias in node.names]
    assert all(
        alias.asname == alias.name for _, alias in names
    )  # else type checkers take it as private
    assert sorted(alias.name for _, alias in names) == sorted(dir(module))
    hidden = (
        {alias.name for node, alias in names if node.module is None}
        if module is dppl
        else set()
    )
    assert sorted(module.__all__) == sorted(set(dir(module)) - hidden)
    for node, alias in names:
        if node.module is None:
            assert getattr(module, alias.name) is importlib.import_module(
                f"{name}.{alias.name}"
            )
        else:
            defined = importlib.import_module(f"{'.' * node.level}{node.module}", name)
            assert getattr(module, alias.name) is getattr(defined, alias.name)


@pytest.mark.parametrize("name", LAZY)
def test_what_does_not_exist_is_missed_as_ever(name):
    module = importlib.import_module(name)
    assert not hasattr(module, "Prototypes")
    with pytest.raises(AttributeError, match="attribute Prototypes"):
        module.Prototypes  # noqa: B018 (looking it up is the test)


def test_a_star_brings_all_exports():
    names = {}
    exec("from dppl import *", names)
    assert set(dppl.__all__) <= set(names)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_the_first_sentence_of_its_help(name):
    command = app_with([name])[name]
    assert command.name == (name,)
    first = " ".join(command.help.split("\n\n")[0].split())
    assert first == COMMANDS[name]


def test_every_command_is_listed():
    """A module of `dppl.cli` or of the lab's commands without an underscore holds a command, or several."""
    modules = {
        f"{package}.{path.stem}"
        for package in ("dppl.cli", "dppl.lab.commands")
        for path in Path(importlib.import_module(package).__file__).parent.glob(
            "[a-z]*.py"
        )
    }
    assert {_module(name) for name in COMMANDS} == modules - {"dppl.cli.main"}


def _module(command):
    package = "dppl.lab.commands" if command in ("bench", "demo") else "dppl.cli"
    return f"{package}.{command}"
