"""The script that holds new measurements against committed ones, with planted regressions."""

import copy
import json
import math

import pytest

OLD = {
    "quick": False,
    "skipped": {},
    "entries": [
        {
            "part": "kernels",
            "name": "sums",
            "value": 0.8,
            "unit": "of the peak",
            "better": "higher",
        },
        {
            "part": "passes",
            "name": "map",
            "value": 8.0,
            "unit": "times a copy",
            "better": "lower",
        },
        {
            "part": "opacus",
            "name": "Opacus",
            "value": 5.0,
            "unit": "of our CPU seconds",
            "better": "higher",
        },
    ],
}


@pytest.fixture
def held(script, tmp_path, capsys):
    """Compare a changed copy of OLD with OLD."""

    def run(change):
        new = copy.deepcopy(OLD)
        change(new)
        paths = tmp_path / "new.json", tmp_path / "old.json"
        for path, content in zip(paths, (new, OLD), strict=True):
            path.write_text(json.dumps(content), encoding="utf-8")
        code = script("compare").main(list(map(str, paths)))
        return code, capsys.readouterr().out

    return run


def changed(place, factor):
    def change(results):
        results["entries"][place]["value"] *= factor

    return change


@pytest.mark.parametrize(
    ("place", "factor"),
    [(0, 1 / 1.16), (1, 1.16), (2, 1 / 1.16), (0, math.nan), (1, math.nan)],
)
def test_a_ratio_that_is_worse_by_more_is_named(held, place, factor):
    code, said = held(changed(place, factor))
    names = [entry["name"] for entry in OLD["entries"]]
    assert code == 1
    assert [name for name in names if f"worse: {name}: " in said] == [names[place]]


@pytest.mark.parametrize(
    ("place", "factor"), [(0, 1 / 1.14), (1, 1.14), (0, 100), (1, 0.01), (2, 1)]
)
def test_a_ratio_that_is_worse_by_less_or_better_passes(held, place, factor):
    code, said = held(changed(place, factor))
    assert code == 0
    assert "worse: " not in said


def test_a_ratio_that_vanished_is_worse(held):
    code, said = held(lambda results: results["entries"].pop(1))
    assert code == 1
    assert "worse: map: not measured" in said


def test_a_peer_that_is_not_installed_is_named_and_passes(held):
    def change(results):
        del results["entries"][2]
        results["skipped"]["opacus"] = "opacus is not installed"

    code, said = held(change)
    assert code == 0
    assert "left out: Opacus: opacus is not installed" in said


def test_a_reason_of_another_part_excuses_nothing(held):
    def change(results):
        del results["entries"][1]
        results["skipped"]["opacus"] = "opacus is not installed"

    assert held(change)[0] == 1


def test_what_is_new_is_not_compared(held):
    assert (
        held(
            lambda results: results["entries"].append(
                {**OLD["entries"][0], "name": "Gram"}
            )
        )[0]
        == 0
    )


def test_a_quick_run_is_not_compared_with_a_whole_one(held):
    assert held(lambda results: results.update(quick=True))[0] == 2
