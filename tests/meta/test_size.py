"""The budget of lines notices what grows."""

import importlib.util
from pathlib import Path

SPEC = importlib.util.spec_from_file_location("dppl_tools_size", Path(__file__).parents[2] / "tools" / "size.py")
size = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(size)


def test_a_package_that_is_too_large_or_new_or_gone_is_named(tmp_path):
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "a.py").write_text("1\n" * 7)
    (tmp_path / "b.py").write_text("1\n2\n")
    counts = size.lines(tmp_path)
    assert counts == {".": 2, "kernel": 7}
    assert list(size.problems(counts, counts)) == []
    assert list(size.problems(counts, {"kernel": 5, ".": 2})) == ["kernel has 7 lines, 2 over its budget of 5"]
    assert list(size.problems(counts, {"kernel": 7})) == [". has 2 lines, 2 over its budget of 0"]
    assert list(size.problems(counts, {**counts, "lab": 1})) == ["lab is in the budget, but is no package"]
