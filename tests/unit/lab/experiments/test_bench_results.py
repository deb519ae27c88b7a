"""The results file: nothing acknowledged is lost, nothing torn stays, one writer at a time, packing loses nothing."""

import json

import pytest

from dppl.errors import InputError
from dppl.lab.experiments.results import ResultsFile, read_results, write_results


def record(key, status="done"):
    return {"schema": 1, "key": key, "status": status}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "results.jsonl"
    with ResultsFile(path) as results:
        results.append(record("a"))
        results.append(record("b", "failed"))
    return path


def test_what_was_appended_is_there_again(path):
    with ResultsFile(path) as results:
        assert results.done == {"a"}
        results.append(record("b"))
        assert results.done == {"a", "b"}
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize(
    "torn", [b"{", b'{"schema": 1, "key": "c", "sta', b"\x00\xff", b'"text"', b"1"]
)
def test_a_torn_last_line_is_ignored_and_cut_off(path, torn):
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert {r["key"] for r in read_results(path)} == {"a", "b"}
    assert path.read_bytes() == whole + torn  # reading changes nothing
    with ResultsFile(path) as results:
        assert path.read_bytes() == whole
        results.append(record("c"))
    assert [r["key"] for r in read_results(path)] == ["a", "b", "c"]


def test_a_file_that_is_one_torn_line_starts_afresh(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"schema"')
    with ResultsFile(path) as results:
        results.append(record("a"))
    assert [r["key"] for r in read_results(path)] == ["a"]


def test_the_last_word_on_a_cell_is_its_result_if_it_has_one(path):
    with ResultsFile(path) as results:
        results.append(record("b"))
        results.append(record("a", "failed"))
    assert {r["key"]: r["status"] for r in read_results(path)} == {
        "a": "done",
        "b": "done",
    }


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "line 2 is no result"),
        (b"[1]", "line 2 is no result"),
        (b'{"schema": 1}', "line 2 is no result"),
        (
            b'{"schema": 2, "key": "x", "status": "done"}',
            "line 2 has schema 2 .* reads schema 1",
        ),
        (
            b'{"schema": 1, "key": "x", "status": "lost"}',
            "line 2 has schema 1 and status 'lost'",
        ),
    ],
)
def test_damage_inside_the_file_is_an_error_and_changes_nothing(path, line, told):
    first, second = path.read_bytes().splitlines(keepends=True)
    damaged = first + line + b"\n" + second
    path.write_bytes(damaged)
    for read in (ResultsFile, read_results):
        with pytest.raises(InputError, match=told):
            read(path)
    assert path.read_bytes() == damaged


def test_a_second_runner_is_locked_out_until_the_first_is_gone(path):
    with ResultsFile(path):
        with pytest.raises(InputError, match="in use by another run"):
            ResultsFile(path)
        assert len(read_results(path)) == 2  # a report may look on
    with ResultsFile(path):
        pass


def test_no_results_file_is_said_so(tmp_path):
    with pytest.raises(InputError, match=r"no results file .*none\.jsonl"):
        read_results(tmp_path / "none.jsonl")


def test_packing_loses_nothing_and_overwrites_nothing(path, tmp_path):
    packed = tmp_path / "packed.jsonl.xz"
    lines = tmp_path / "again.jsonl"
    results = [
        record("c") | {"e": 5e-324, "pool": None, "exact": True, "warnings": ["µ"]},
        *read_results(path),
    ]
    for target in (packed, lines):
        write_results(results, target)
        assert json.dumps(read_results(target)) == json.dumps(results)
        with pytest.raises(FileExistsError):
            write_results(results, target)
    assert lines.read_text("utf-8") == "".join(
        json.dumps(result) + "\n" for result in results
    )


def test_damage_of_packed_results_is_noticed_wherever_it_is(path, tmp_path):
    packed = tmp_path / "packed.jsonl.xz"
    results = read_results(path)
    write_results(results, packed)
    whole = packed.read_bytes()
    for place in range(0, len(whole), 7):
        for damaged in (
            whole[:place],
            whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :],
        ):
            packed.write_bytes(damaged)
            with pytest.raises(InputError, match="damaged, or not packed"):
                read_results(packed)
