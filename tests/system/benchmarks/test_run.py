"""The command that measures everything: what it writes, leaves out and reports. No test looks at a time."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_exponents_are_those_of_power_laws(script, power):
    sizes = np.array([100, 200, 400, 800])
    assert script("growth").exponent(sizes, 0.003 * sizes**power) == pytest.approx(
        power, abs=1e-12
    )


def test_the_yardstick_is_that_of_the_same_moment(script, monkeypatch):
    """A machine that slows down between rounds changes no ratio."""
    measuring = script("measuring")
    slow = iter(
        [1.0] * 6 + [4.0] * 5 + [9.0] * 5
    )  # a first call that warms up, then three rounds
    monkeypatch.setattr(measuring, "timed", lambda function: function() * next(slow))

    def own():
        return np.ones(2)

    def double():
        return np.full(2, 2.0)

    found = measuring.measure({"one": own, "two": double}, own, 3)
    assert found["one"][1].tolist() == [1, 1]
    assert found["two"][1].tolist() == [2, 2]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_what_a_call_takes_and_not_what_calls_before_took(script):
    measuring = script("measuring")
    size = 1 << 24
    np.ones(4 * size, np.uint8)
    taken = measuring.extra_memory(lambda: np.ones(size, np.uint8))
    assert 0.95 * size < taken < 1.5 * size


@pytest.fixture
def parts(script, monkeypatch):
    """Let parts say what the test says."""

    def say(**told):
        monkeypatch.setattr(script("run"), "measure", lambda part, quick: told[part])
        return script("run")

    return say


LINE = {
    "name": "sums",
    "value": 0.5,
    "unit": "of the peak",
    "better": "higher",
    "note": "",
}


def test_what_is_left_out_stands_in_the_results_with_its_reason(parts, tmp_path):
    run = parts(
        kernels={"entries": [LINE]}, compiled={"skipped": "numba is not installed"}
    )
    assert run.main(["--only", "kernels", "compiled", "--folder", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["entries"] == [{**LINE, "part": "kernels"}]
    assert results["skipped"] == {"compiled": "numba is not installed"}
    page = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert "| sums | 0.5 | of the peak | higher |" in page
    assert "- compiled: numba is not installed" in page


def test_a_part_that_fails_is_neither_measured_nor_excused(parts, tmp_path):
    run = parts(kernels={"entries": [LINE]}, growth={"failed": "failed"})
    assert run.main(["--only", "kernels", "growth", "--folder", str(tmp_path)]) == 1
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["failed"] == ["growth"]
    assert results["skipped"] == {}
    assert len(results["entries"]) == 1


def test_growth_is_a_row_for_each_kernel(parts, tmp_path):
    lines = [
        {
            **LINE,
            "name": f"growth of sums with {key}",
            "exponent": power,
            "of the arithmetic": 1,
        }
        for key, power in {"n": 1.02, "C": 0.1}.items()
    ]
    parts(growth={"entries": lines}).main(
        ["--only", "growth", "--folder", str(tmp_path)]
    )
    assert "| sums | 1.02 (1) |  |  | 0.10 (1) |" in (
        tmp_path / "RESULTS.md"
    ).read_text(encoding="utf-8")


def test_packages_that_are_missing_or_broken_are_told_apart(
    script, monkeypatch, tmp_path
):
    (tmp_path / "broken_peer.py").write_text(
        "from json import nothing_of_that_name", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    missing = script("run").missing
    assert missing(("json", "no_such_peer")) == "no_such_peer is not installed"
    assert missing(("broken_peer",)).startswith(
        "broken_peer is installed but cannot be imported ("
    )
    assert missing(("json",)) == ""


def test_the_committed_results_are_whole_and_their_page_is_theirs(script):
    run = script("run")
    results = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    assert not results["quick"]
    assert not results["skipped"]
    assert not results["failed"]
    assert {entry["part"] for entry in results["entries"]} == set(run.PARTS)
    assert len({entry["name"] for entry in results["entries"]}) == len(
        results["entries"]
    )
    assert (FOLDER / "RESULTS.md").read_text(encoding="utf-8") == run.page(results)


@pytest.mark.slow
def test_a_quick_run_measures_and_equals_itself(tmp_path):
    words = [
        sys.executable,
        str(FOLDER / "run.py"),
        "--quick",
        "--only",
        "passes",
        "numpy",
        "--folder",
        str(tmp_path),
    ]
    subprocess.run(words, check=True, capture_output=True)
    path = tmp_path / "results.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    assert {entry["part"] for entry in results["entries"]} == {"passes", "numpy"}
    assert all(entry["value"] > 0 for entry in results["entries"])
    assert len({entry["name"] for entry in results["entries"]}) == len(
        results["entries"]
    )
    subprocess.run(
        [sys.executable, str(FOLDER / "compare.py"), str(path), str(path)],
        check=True,
        capture_output=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", ["kernels", "noise", "memory", "numpy"])
def test_other_parts_run(part):
    words = [sys.executable, str(FOLDER / "run.py"), "--quick", "--part", part]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1])["entries"]
