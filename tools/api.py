"""Write what docs/stability.md promises of Python, so that no change of it goes unseen: names and signatures.

    python tools/api.py

`tests/meta/test_api.py` is red while the file differs from the code. Options and exit
codes are in docs/cli.md, and forms of JSON in docs/*.schema.json, likewise.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dppl._utils.files import write_atomically

SNAPSHOT = Path(__file__).parents[1] / "tests" / "meta" / "api.txt"
PACKAGES = [
    "dppl",
    "dppl.encoders",
    "dppl.errors",
    "dppl.kernel",
    "dppl.kernel.queries",
    "dppl.methods",
    "dppl.testing",
]
EXPERIMENTAL = ["compare"]


def snapshot() -> str:
    """Return each public name of the packages, with what it takes and, of a class, what it adds to its bases."""
    modules = [importlib.import_module(package) for package in PACKAGES]
    public = {
        module.__name__: {
            name: getattr(module, name)
            for name in sorted({*module.__all__} - {*EXPERIMENTAL})
        }
        for module in modules
    }
    classes = {
        value
        for values in public.values()
        for value in values.values()
        if inspect.isclass(value)
    }
    lines: list[str] = []
    for package, values in public.items():
        lines += ["", f"# {package}"]
        for name, value in values.items():
            lines.append(name + signature(value))
            if inspect.isclass(value):
                lines += [f"  {line}" for line in members(value, classes)]
    return "\n".join(lines[1:]) + "\n"


def members(kind: type, public: set[type]) -> Iterator[str]:
    """Yield a line for each public base, and for each member that the class has from elsewhere in dppl."""
    bases = [base for base in kind.__mro__[1:] if base in public]
    yield from (f"extends {base.__name__}" for base in bases)
    told = {name for base in bases for name in dir(base)} - {*vars(kind)}
    for name in sorted({name for base in written(kind) for name in vars(base)} - told):
        # scikit-learn gives each estimator set_..._request, as its version has them.
        if not (name.startswith("_") or name.endswith("_request")):
            yield f".{name}" + signature(getattr(kind, name))


def written(kind: type) -> list[type]:
    """Return the class and its bases, without those of other libraries."""
    return [base for base in kind.__mro__ if base.__module__.startswith("dppl.")]


def signature(value: Any) -> str:
    """Return what a function or class takes; types are for type checkers, and addresses for nobody."""
    if not callable(value):
        return ""
    if inspect.isclass(value) and not any(
        "__init__" in vars(base) for base in written(value)
    ):
        return ""  # an enumeration or a warning is made as its Python makes it
    parameters = inspect.signature(value).parameters.values()
    untyped = [one.replace(annotation=one.empty) for one in parameters]
    return re.sub(" at 0x[0-9a-f]+", "", str(inspect.Signature(untyped)))


if __name__ == "__main__":
    write_atomically(SNAPSHOT, snapshot().encode(), overwrite=True)
