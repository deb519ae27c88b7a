"""`loop` runs every case, and says which one failed."""

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
    assert failure.value.__notes__ == ["In the case {'one': \"'c'\", 'more': \"'d'\"}", "In the case {'two': '2'}"]
