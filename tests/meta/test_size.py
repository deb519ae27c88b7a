"""The budget of tokens notices what grows, and what is dense."""

import importlib.util
from pathlib import Path

SPEC = importlib.util.spec_from_file_location(
    "dppl_tools_size", Path(__file__).parents[2] / "tools" / "size.py"
)
size = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(size)


def test_comments_docstrings_and_line_breaks_are_free():
    bare = 'def f(a):\n    return g(a, "b")\n'
    documented = '"""A module."""\n\n\ndef f(a):\n    """Do it."""\n    # Why.\n    return g(\n        a, "b"\n    )\n'
    assert size.measure(bare) == (13, 2)
    assert size.measure(documented)[0] == 13
    assert size.measure("a = 'text'\n") == (3, 1)  # a string that documents nothing


def test_a_formatted_string_is_one_token_on_every_python():
    """From Python 3.12 on, tokenize takes it apart."""
    nested = "a = f'{b + 1} {c!r:>{d}} {f(x, f\"{y}\")}' + d\n"
    assert size.measure(nested) == (5, 1)


def test_a_package_that_is_too_large_or_new_or_gone_is_named(tmp_path):
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "a.py").write_text("a = 1\nb = 2\n")
    (tmp_path / "b.py").write_text("a = 1\n")
    tokens, n_lines = size.count(tmp_path)
    assert tokens == {".": 3, "kernel": 6}
    assert n_lines == 3
    assert list(size.problems(tokens, n_lines, tokens)) == []
    assert list(size.problems(tokens, n_lines, {"kernel": 5, ".": 3})) == [
        "kernel has 6 tokens, over its budget of 5"
    ]
    assert list(size.problems(tokens, n_lines, {"kernel": 6})) == [
        ". has 3 tokens, over its budget of 0"
    ]
    assert list(size.problems(tokens, n_lines, {**tokens, "lab": 1})) == [
        "lab is in the budget, but is no package"
    ]


def test_dense_code_is_named():
    assert list(size.problems({"kernel": 80}, 10, {"kernel": 80})) == [
        "8.00 tokens a line of code, over 7.67"
    ]
