"""What the reference shows of an estimator: its docstring and constructor as they are when it was imported."""

import importlib
import inspect

import griffe


class SharedParameters(griffe.Extension):
    """Parameters that estimators share are put into their docstrings by `dppl.estimators.parameters`."""

    def on_class(self, *, cls, **_):
        """Take docstring and constructor of a class of parameters from its module."""
        if not any(decorator.callable_path.endswith("parameters") for decorator in cls.decorators):
            return
        kind = getattr(importlib.import_module(cls.module.path), cls.name)
        cls.docstring.value = inspect.getdoc(kind)
        signature = inspect.signature(kind).parameters.values()
        own = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
        for one in signature:
            how = griffe.ParameterKind(one.kind.description)
            own.append(griffe.Parameter(one.name, annotation=one.annotation, kind=how, default=repr(one.default)))
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*own)))
