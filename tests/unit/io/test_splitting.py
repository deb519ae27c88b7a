"""Each id falls by itself: with one record more or less, in another file and in another format all others stay."""

import csv
import io
import json
import math
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import norm

from dppl.errors import InputError, ParameterError
from dppl.io import held_out, read_table, split_file

PERSONS = np.repeat([f"p{number}" for number in range(60)], np.arange(60) % 4 + 1)
TEXTS = [
    f'text {number}, "quoted"\nin two lines' if number % 7 == 0 else f"text {number}"
    for number in range(len(PERSONS))
]


def write_csv(path, texts, persons):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [
                ("text", "who", "label"),
                *((text, one, "a") for text, one in zip(texts, persons, strict=True)),
            ]
        )


def write_jsonl(path, texts, persons):
    lines = [
        json.dumps({"text": text, "who": one})
        for text, one in zip(texts, persons, strict=True)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))


def write_parquet(path, texts, persons):
    pq.write_table(
        pa.table(
            {"text": list(texts), "who": list(persons)}, metadata={"encoder": "e"}
        ),
        path,
    )


def write_npz(path, texts, persons):
    np.savez(path, x=np.array(texts), who=np.array(persons))


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return [(row["text"], row["who"]) for row in csv.DictReader(file)]


def read_parquet(path):
    table = pq.read_table(path)
    return list(zip(table["text"].to_pylist(), table["who"].to_pylist(), strict=True))


def read_npz(path):
    with np.load(path) as arrays:
        return list(zip(arrays["x"].tolist(), arrays["who"].tolist(), strict=True))


FORMATS = {
    "csv": (write_csv, read_csv),
    "jsonl": (
        write_jsonl,
        lambda path: [
            (one["text"], one["who"])
            for one in map(json.loads, path.read_text().splitlines())
        ],
    ),
    "parquet": (write_parquet, read_parquet),
    "npz": (write_npz, read_npz),
}


def parts(folder, suffix, texts, persons, **options):
    """Write records in a format, split them, and return both parts."""
    write, read = FORMATS[suffix]
    folder.mkdir(exist_ok=True)
    path, *outs = (folder / f"{name}.{suffix}" for name in ("all", "train", "test"))
    for out in outs:
        out.unlink(missing_ok=True)
    write(path, texts, persons)
    split_file(path, *outs, 0.4, **options)
    return tuple(map(read, outs))


EVERY_FORMAT = pytest.mark.parametrize("suffix", FORMATS)


@EVERY_FORMAT
def test_every_record_is_in_one_part_in_its_order(suffix, tmp_path):
    train, test = parts(tmp_path, suffix, TEXTS, PERSONS)
    everything = list(zip(TEXTS, PERSONS.tolist(), strict=True))
    assert sorted(train + test) == sorted(everything)
    assert [one for one in everything if one in set(train)] == train
    assert train
    assert test


@EVERY_FORMAT
def test_persons_fall_with_all_of_their_records(suffix, tmp_path):
    train, test = parts(tmp_path, suffix, TEXTS, PERSONS, groups="who")
    assert not {one for _, one in train} & {one for _, one in test}
    # The control: without their ids some of 60 persons lie on both sides, but with a
    # chance below 1e-9.
    train, test = parts(tmp_path, suffix, TEXTS, PERSONS)
    assert {one for _, one in train} & {one for _, one in test}


@EVERY_FORMAT
def test_one_person_less_leaves_all_others_where_they_are(suffix, tmp_path):
    whole = parts(tmp_path / "all", suffix, TEXTS, PERSONS, groups="who", key="k")
    for person in ("p0", "p3", "p59"):
        kept = np.flatnonzero(person != PERSONS)
        less = parts(
            tmp_path / person,
            suffix,
            [TEXTS[place] for place in kept],
            PERSONS[kept],
            groups="who",
            key="k",
        )
        assert less == tuple(
            [one for one in part if one[1] != person] for part in whole
        )


@EVERY_FORMAT
def test_the_same_key_puts_an_id_on_the_same_side_in_every_format(suffix, tmp_path):
    _, test = parts(tmp_path, suffix, TEXTS, PERSONS, groups="who", key="k")
    assert {one for _, one in test} == set(
        PERSONS[held_out(PERSONS, 0.4, b"k")].tolist()
    )
    _, other = parts(tmp_path, suffix, TEXTS, PERSONS, groups="who", key="another")
    assert other != test


@EVERY_FORMAT
def test_only_the_owner_may_read_the_parts_and_nothing_is_replaced(suffix, tmp_path):
    parts(tmp_path, suffix, TEXTS, PERSONS)
    outs = [tmp_path / f"{name}.{suffix}" for name in ("train", "test")]
    assert [out.stat().st_mode & 0o777 for out in outs] == [0o600, 0o600]
    before = outs[1].read_bytes()
    outs[0].unlink()
    with pytest.raises(FileExistsError):
        split_file(tmp_path / f"all.{suffix}", *outs, 0.4)
    assert outs[1].read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} <= {
        f"{name}.{suffix}" for name in ("all", "train", "test")
    }


# Shares differ by more than ten standard errors.
IDS = np.arange(20_000)


def is_share(mask, share, false_alarm=1e-6):
    """Return whether a number of held-out ids may be of this share; wrongly not so with a chance of 1e-6."""
    n = len(mask)
    return abs(mask.sum() - n * share) <= norm.isf(false_alarm / 2) * math.sqrt(
        n * share * (1 - share)
    )


def test_the_share_is_as_asked_with_and_without_a_key():
    for ids, key in (
        (IDS, None),
        (IDS, "k"),
        (len(IDS), None),
        (np.full(20_000, None), "k"),
    ):
        mask = held_out(ids, 0.2, key)
        assert is_share(mask, 0.2)
        assert not is_share(mask, 0.25)  # the control


def test_ids_fall_independently_of_each_other_and_keys_of_keys():
    one = held_out(IDS, 0.5, "one")
    other = held_out(IDS, 0.5, "other")
    assert is_share(one == other, 0.5)
    assert is_share(one[1:] == one[:-1], 0.5)
    assert not is_share(one == held_out(IDS, 0.5, "one"), 0.5)  # the control


def test_a_larger_share_holds_out_the_same_and_more():
    small, large = (held_out(IDS, share, "k") for share in (0.2, 0.3))
    assert not (small & ~large).any()


def test_no_fresh_coin_falls_twice_alike():
    """But with a chance of 2**-300."""
    for ids in (300, range(300), [None] * 300):
        key = (
            "k" if ids == [None] * 300 else None
        )  # who has no id is nobody for a key either
        assert (held_out(ids, 0.5, key) != held_out(ids, 0.5, key)).any()


def test_a_side_never_changes_with_a_version():
    """Files of last quarter were split by these."""
    ids = ["ann", "bo", "cy", "dee", 7, 2**200, b"raw", Decimal(3), UUID(int=5)]
    assert held_out(ids, 0.5, "a secret").tolist() == [
        True,
        True,
        False,
        True,
        False,
        True,
        False,
        True,
        True,
    ]


def test_ids_are_matched_as_fits_match_them():
    for ids in (
        [7, "7", Decimal("7.0"), np.int8(7)],
        [UUID(int=5), str(UUID(int=5))],
        [b"x", np.bytes_(b"x"), "x"],
    ):
        for key in map(str, range(20)):
            assert len(set(held_out(ids, 0.5, key).tolist())) == 1
    # Others differ: each of 20 keys would put both on one side with a chance of 1e-6.
    for one, other in (
        ("a", "b"),
        (UUID(int=5), UUID(int=6)),
        (b"\xfe", b"\xff"),
        ("7", "07"),
    ):
        assert any(
            len(set(held_out([one, other], 0.5, key).tolist())) == 2
            for key in map(str, range(20))
        )


def test_what_cannot_be_an_id_or_a_key_is_refused():
    for one in (object(), True, 7.0, 1j, ("a", 1)):
        with pytest.raises(InputError, match="compared by value"):
            held_out([one], 0.5)
    for share in (0, 1, -0.1, "a", True):
        with pytest.raises(ParameterError, match=r"^share must lie"):
            held_out(3, share)
    for key in ("", b" ", 7):
        with pytest.raises(ParameterError, match=r"^key must be"):
            held_out(["a"], 0.5, key)
    with pytest.raises(ParameterError, match=r"^key needs ids"):
        held_out(3, 0.5, "k")


DAMAGED = [
    'open,"p1,a\n',  # the rest of the file is one record
    'a "b" c,p1,a\n',
    "too,many,columns,p1\n",
    "few\n",
    "\n",
    ",,\n",
    "text,,a\r\n",
    "\ufeffx,p2,a\n",
    "x" * 200_000 + ",p2,a\n",
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_rows_are_copied_as_they_are(damage, tmp_path):
    """Byte by byte, blank ones excepted, whatever one of them holds; others stay where they are."""
    head = "\ufefftext,who,label\r\n"
    rows = [f"t{number},p{number},a\r\n" for number in range(30)]

    def split(name, rows):
        path, *outs = (
            tmp_path / f"{name}{part}.csv" for part in ("", "-train", "-test")
        )
        path.write_bytes((head + "".join(rows)).encode())
        split_file(path, *outs, 0.5, groups="who", key="k")
        return [out.read_bytes().decode().removeprefix(head) for out in outs]

    without = split("a", rows)
    with_it = split("b", [*rows, damage])
    assert ["".join(sorted(without[0] + without[1]))] == [
        "".join(sorted("".join(rows)))
    ]
    added = [
        long.removeprefix(short) for short, long in zip(without, with_it, strict=True)
    ]
    assert sorted(added) == ["", "" if damage in ("\n", ",,\n") else damage]


def test_lines_of_json_are_copied_as_they_are(tmp_path):
    lines = [
        '{"who": 1}\n',
        "\n",
        "no json\n",
        "[1]\n",
        '{"who": [1]}\n',
        '{"who": null}\r\n',
        '\ufeff{"who": 1.0}\n',
        "{}",
    ]
    (tmp_path / "a.jsonl").write_text("".join(lines), newline="")
    split_file(
        tmp_path / "a.jsonl",
        tmp_path / "b.jsonl",
        tmp_path / "c.jsonl",
        0.5,
        groups="who",
        key="k",
    )
    parts = [(tmp_path / name).read_bytes().decode() for name in ("b.jsonl", "c.jsonl")]
    assert sorted("".join(parts)) == sorted("".join(lines).replace("\n\n", "\n", 1))
    assert any('{"who": 1}' in part and '{"who": 1.0}' in part for part in parts)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", None])
def test_the_encoding_stays(encoding, tmp_path):
    text = "text,Straße\nÄ,1\nÖ,2\nÜ,3\n"
    (tmp_path / "a.csv").write_bytes(text.encode(encoding or "utf-8"))
    named = {"encoding": encoding} if encoding == "cp1252" else {}
    split_file(
        tmp_path / "a.csv",
        tmp_path / "b.csv",
        tmp_path / "c.csv",
        0.5,
        groups="Straße",
        **named,
    )
    head, *rows = text.splitlines(keepends=True)
    read = [
        (tmp_path / name).read_bytes().decode(encoding or "utf-8")
        for name in ("b.csv", "c.csv")
    ]
    assert all(one.startswith(head) for one in read)
    assert sorted("".join(one.removeprefix(head) for one in read)) == sorted(
        "".join(rows)
    )


def test_shards_of_embeddings_become_two_tables_with_their_metadata(tmp_path):
    (tmp_path / "shards").mkdir()
    rows = pa.FixedSizeListArray.from_arrays(
        pa.array(np.arange(40, dtype=np.float16)), 2
    )
    whole = pa.table(
        {"x": rows, "y": pa.array(["a", "b"] * 10), "who": pa.array(range(20))},
        metadata={"encoder": "e", "pandas": "20 rows"},
    )
    for name, part in (("1", whole.slice(0, 13)), ("2", whole.slice(13))):
        pq.write_table(part, tmp_path / "shards" / f"{name}.parquet")
    split_file(
        tmp_path / "shards",
        tmp_path / "a.parquet",
        tmp_path / "b.parquet",
        0.5,
        groups="who",
    )
    tables = [read_table(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    assert [table.metadata for table in tables] == [{"encoder": "e"}] * 2
    assert sorted(
        np.concatenate([np.asarray(table)[:, 0] for table in tables]).tolist()
    ) == list(range(0, 40, 2))
    assert all(table.dtype == np.float16 for table in tables)
    pq.write_table(whole.drop_columns("y"), tmp_path / "shards" / "3.parquet")
    with pytest.raises(InputError, match="same columns"):
        split_file(
            tmp_path / "shards", tmp_path / "c.parquet", tmp_path / "d.parquet", 0.5
        )


def test_no_part_holds_a_value_of_the_other(tmp_path):
    """A dictionary, as pandas writes categories, is of all rows of the table."""
    who = [f"patient {number:02}" for number in range(40)]
    pq.write_table(
        pa.table({"who": pa.array(who).dictionary_encode()}), tmp_path / "a.parquet"
    )
    split_file(
        tmp_path / "a.parquet",
        tmp_path / "b.parquet",
        tmp_path / "c.parquet",
        0.5,
        groups="who",
        key="k",
    )
    for name in ("b.parquet", "c.parquet"):
        written = (
            pq.ParquetFile(tmp_path / name, read_dictionary=["who"])
            .read()["who"]
            .chunk(0)
        )
        assert written.dictionary.to_pylist() == written.to_pylist()
        assert 0 < len(written) < 40


def test_what_cannot_be_split_is_refused_before_a_file_is_made(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    np.savez(tmp_path / "odd.npz", x=np.ones((3, 2)), classes=np.arange(2))
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.png").touch()
    (tmp_path / "a.csv").write_text("text,who,who\nsecret,1,2\n")
    for name, suffix, said in (
        ("a.npy", ".npy", "no labels in it"),
        ("odd.npz", ".npz", "one entry a record"),
        ("a.txt", ".txt", "no labels in it"),
        ("photos", "", "write a CSV file with the columns file and label"),
        (
            "a.csv",
            ".csv",
            "row 1, taken as the header, has cells that .* repeat another",
        ),
    ):
        outs = [tmp_path / f"out{place}{suffix}" for place in range(2)]
        with pytest.raises(InputError, match=said) as raised:
            split_file(
                tmp_path / name, *outs, 0.5, groups="who" if name == "a.csv" else None
            )
        assert "secret" not in str(raised.value)
        assert not any(out.exists() for out in outs)
    with pytest.raises(ParameterError, match=r"^out_test must end in \.csv"):
        split_file(tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.npz", 0.5)


def test_a_table_larger_than_what_is_held_is_written_in_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("dppl.io.splitting._GROUP_BYTES", 1 << 12)
    pq.write_table(pa.table({"who": np.arange(5000)}), tmp_path / "a.parquet")
    split_file(
        tmp_path / "a.parquet",
        tmp_path / "b.parquet",
        tmp_path / "c.parquet",
        0.5,
        groups="who",
        key="k",
    )
    files = [pq.ParquetFile(tmp_path / name) for name in ("b.parquet", "c.parquet")]
    assert all(file.num_row_groups > 1 for file in files)
    mask = held_out(np.arange(5000), 0.5, "k")
    assert files[1].read()["who"].to_pylist() == np.flatnonzero(mask).tolist()


def test_the_reader_of_rows_keeps_no_line_of_the_next():
    from dppl.io.records.lines import written_rows

    text = 'a,"b\nc"\n\nd,e\r\n"f'
    assert [one for _, one, _ in written_rows(io.StringIO(text, newline=""), ",")] == [
        'a,"b\nc"\n',
        "d,e\r\n",
        '"f',
    ]
