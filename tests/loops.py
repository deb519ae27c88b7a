"""Many small cases in one test: each is checked, a failure names its case, and collecting them costs nothing."""

import functools
import inspect

import pytest


def loop(names, cases):
    """Run a test once for each case, in place of `pytest.mark.parametrize`.

    Each case has a `monkeypatch` and a `tmp_path` of its own; other fixtures are those
    of the one test.
    """
    names = (
        [name.strip() for name in names.split(",")]
        if isinstance(names, str)
        else list(names)
    )

    def decorate(test):
        @functools.wraps(test)
        def run(**given):
            for number, case in enumerate(cases):
                values = [case] if len(names) == 1 else case
                with pytest.MonkeyPatch.context() as patch:
                    own = dict(given)
                    if "monkeypatch" in given:
                        own["monkeypatch"] = patch
                    if "tmp_path" in given:
                        own["tmp_path"] = given["tmp_path"] / f"case-{number}"
                        own["tmp_path"].mkdir()
                    try:
                        test(**own, **dict(zip(names, values, strict=True)))
                    except BaseException as error:  # `pytest.fail` raises no Exception
                        error.add_note(
                            f"In the case {dict(zip(names, map(repr, values), strict=True))}"
                        )
                        raise

        signature = inspect.signature(test)
        rest = [one for name, one in signature.parameters.items() if name not in names]
        run.__signature__ = signature.replace(parameters=rest)
        return run

    return decorate
