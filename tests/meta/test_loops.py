"""`loop` runs every case, and says which one failed."""

from types import SimpleNamespace

import pytest

from loops import loop


def test_every_case_is_run_and_a_failure_is_named():
    ran = []

    @loop("two", [1, 2])
    @loop("one, more", [("a", "b"), ("c", "d")])
    def check(one, more, two):
        ran.append((one, more, two))
        assert (one, two) != ("c", 2)

    with pytest.raises(AssertionError) as failure:
        check()
    assert ran == [("a", "b", 1), ("c", "d", 1), ("a", "b", 2), ("c", "d", 2)]
    assert failure.value.__notes__ == [
        "In the case {'one': \"'c'\", 'more': \"'d'\"}",
        "In the case {'two': '2'}",
    ]


def test_each_case_has_a_folder_and_patches_of_its_own(tmp_path, monkeypatch):
    seen = SimpleNamespace(value=0)

    @loop("case", "ab")
    def check(case, tmp_path, monkeypatch):
        assert (seen.value, list(tmp_path.iterdir())) == (0, [])
        (tmp_path / "left").touch()
        monkeypatch.setattr(seen, "value", case)

    check(tmp_path=tmp_path, monkeypatch=monkeypatch)
    assert seen.value == 0
