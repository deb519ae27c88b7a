"""What the reference takes from imported code: parameters of estimators, and the names that packages import late."""

import importlib
import inspect

import griffe


class SharedParameters(griffe.Extension):
    """Parameters that estimators share are put into their docstrings by `dppl.methods.parameters`."""

    def on_class(self, *, cls, **_):
        """Take docstring and constructor of a class of parameters from its module."""
        if not any(
            decorator.callable_path.endswith("parameters")
            for decorator in cls.decorators
        ):
            return
        kind = getattr(importlib.import_module(cls.module.path), cls.name)
        cls.docstring.value = inspect.getdoc(kind)
        signature = inspect.signature(kind).parameters.values()
        own = [
            griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
        ]
        for one in signature:
            how = griffe.ParameterKind(one.kind.description)
            own.append(
                griffe.Parameter(
                    one.name,
                    annotation=one.annotation,
                    kind=how,
                    default=repr(one.default),
                )
            )
        cls.set_member(
            "__init__", griffe.Function("__init__", parameters=griffe.Parameters(*own))
        )


class LateNames(griffe.Extension):
    """The names of a stub are the public ones of its package, as `lazy_loader` makes them."""

    def on_package(self, *, pkg, **_):
        """Set what the package and those in it export."""
        for module in [pkg, *packages(pkg)]:
            if module.filepath.with_suffix(".pyi").exists():
                module.exports = importlib.import_module(module.path).__all__


def packages(module):
    """Yield the packages in a module, at any depth."""
    for inner in module.modules.values():
        if not inner.is_alias and inner.is_init_module:
            yield inner
            yield from packages(inner)
