"""The results file: nothing acknowledged is lost, nothing torn stays, one writer at a time, packing loses nothing."""

import json

import pyarrow.parquet as pq
import pytest

from dppl.errors import InputError
from dppl.lab.experiments.results import ResultsFile, read_results, write_results

# What a field may be in one result and in another: its own type, None, empty, mixed, or absent.
CONTENTS = [
    {"e": 0.1, "exact": True, "data": {"n": 3, "sizes": [3, 1]}, "warnings": [], "pool": None},
    {"e": None, "exact": None, "data": {"n": None, "sizes": [1]}, "warnings": ["µ"], "pool": {"rows": 2}},
    {"e": 5e-324, "data": {}, "ir": "natural", "stream": {"accuracies": [[0.1], [1.0, None]]}, "search": {"a.b": 1}},
    {"ir": 1.0, "data": {"n": 2**62}, "parameters": {"clip": [0, 1.5]}, "trials": True, "stream": {"accuracies": []}},
    {"ir": 1, "trials": 1, "text": "", "names": ["a", None], "empty": [None], "mixed": [1, 1.0, "1"]},
]


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


@pytest.mark.parametrize("torn", [b"{", b'{"schema": 1, "key": "c", "sta', b"\x00\xff", b'"text"', b"1"])
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


def test_a_record_that_lacks_only_its_line_break_is_kept(path):
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"schema": 1, "key": "c", "status": "done"}')
    assert len(read_results(path)) == 3
    with ResultsFile(path) as results:
        assert results.done == {"a", "c"}
        results.append(record("d"))
    assert [r["key"] for r in read_results(path)] == ["a", "b", "c", "d"]


def test_the_last_word_on_a_cell_is_its_result_if_it_has_one(path):
    with ResultsFile(path) as results:
        results.append(record("b"))
        results.append(record("a", "failed"))
    assert {r["key"]: r["status"] for r in read_results(path)} == {"a": "done", "b": "done"}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "line 2 is no result"),
        (b"[1]", "line 2 is no result"),
        (b'{"schema": 1}', "line 2 is no result"),
        (b'{"schema": 2, "key": "x", "status": "done"}', "line 2 has schema 2 .* reads schema 1"),
        (b'{"schema": 1, "key": "x", "status": "lost"}', "line 2 has schema 1 and status 'lost'"),
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


@pytest.fixture
def packed(tmp_path):
    """Results of all kinds of content, and the file that they are packed into."""
    results = [record(str(number)) | content for number, content in enumerate(CONTENTS)]
    path = tmp_path / "results.parquet"
    write_results(results, path)
    return results, path


def test_packed_results_are_the_same_in_all_types_and_in_the_order_of_their_fields(packed, tmp_path):
    results, path = packed
    assert json.dumps(read_results(path)) == json.dumps(results)
    columns = {field.name: str(field.type) for field in pq.read_schema(path)}
    assert columns["e"] == "double"
    assert columns["data.sizes"] == "list<element: int64>"
    lines = tmp_path / "results.jsonl"
    write_results(read_results(path), lines)
    assert lines.read_text("utf-8") == "".join(json.dumps(result) + "\n" for result in results)
    for taken in (path, lines):
        with pytest.raises(FileExistsError):
            write_results(results, taken)


def test_damage_of_packed_results_is_noticed_wherever_it_is(packed):
    results, path = packed
    whole = path.read_bytes()
    for place in range(0, len(whole), 61):
        path.write_bytes(whole[:place])
        with pytest.raises(InputError, match="damaged, or no results"):
            read_results(path)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            assert json.dumps(read_results(path)) == json.dumps(results)  # the byte holds nothing of them
        except InputError:
            continue


def test_a_field_of_packed_results_that_is_decoded_wrongly_is_noticed(packed):
    _, path = packed
    table = pq.read_table(path)
    for name in ("e", "data.n", "ir", "fields"):
        place = table.column_names.index(name)
        pq.write_table(table.set_column(place, name, table[name].take([4, 3, 2, 1, 0])), path)
        with pytest.raises(InputError, match="damaged, or no results"):
            read_results(path)


def test_packed_results_of_another_schema_are_an_error(tmp_path):
    path = tmp_path / "later.parquet"
    write_results([record("a") | {"schema": 2}], path)
    with pytest.raises(InputError, match=r"row 1 has schema 2 .* reads schema 1"):
        read_results(path)
