"""Many small cases in one test: each is checked, a failure names its case, and collecting them costs nothing."""

import functools
import inspect


def loop(names, cases):
    """Run a test once for each case, in place of `pytest.mark.parametrize`; fixtures are those of the one test."""
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def decorate(test):
        @functools.wraps(test)
        def run(**given):
            for case in cases:
                values = [case] if len(names) == 1 else case
                try:
                    test(**given, **dict(zip(names, values, strict=True)))
                except Exception as error:
                    error.add_note(f"In the case {dict(zip(names, map(repr, values), strict=True))}")
                    raise

        signature = inspect.signature(test)
        rest = [one for name, one in signature.parameters.items() if name not in names]
        run.__signature__ = signature.replace(parameters=rest)
        return run

    return decorate
