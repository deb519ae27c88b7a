"""Folders of shards, on this machine and behind URLs: one order, one table, and what does not fit together refused."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dppl
from dppl import Ledger, PublicData
from dppl._utils.metadata import LATTICE
from dppl.continual import ContinualDiscriminant
from dppl.errors import DpplError, InputError, MissingExtra, ParameterError
from dppl.io import EmbeddingTable, convert_table, read_parts, read_table, write_table
from dppl.io.records.urls import shown_as
from dppl.io.tables import places as tables_places
from dppl.io.tables.places import natural, open_place
from dppl.kernel.lattice import Lattice
from stores import running_store

SECRET = "topsecret"
COUNTS = [
    4,
    3,
    5,
    1,
    2,
    4,
    4,
    4,
    4,
    4,
    6,
    2,
]  # twelve shards: names as texts would put 10 and 11 before 2
N = sum(COUNTS)
FIRSTS = np.cumsum([0, *COUNTS[:-1]])
ROWS = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float16)
URLS = [f"https://example.org/{number}" for number in range(N)]
LABELS = np.arange(N) % 3
PARTS = [
    slice(first, first + count) for first, count in zip(FIRSTS, COUNTS, strict=True)
]


def others(part):
    return pa.table(
        {"url": URLS[part], "key": pa.array(range(N))[part], "label": LABELS[part]}
    )


def lists(folder, kind=None):
    """Parquet shards with lists, of fixed size or not."""
    kind = kind or pa.list_(pa.float16())
    for number, part in enumerate(PARTS):
        rows = pa.array(list(ROWS[part]), kind)
        pq.write_table(
            others(part).append_column("x", rows),
            folder / f"shard_{number}.parquet",
            row_group_size=2,
        )
    return folder


def fixed(folder):
    return lists(folder, pa.list_(pa.float16(), 6))


LAYOUTS = [lists, fixed]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "pool"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def store():
    with running_store() as found:
        yield found


@pytest.fixture
def places(folder, store):
    """Return what puts the folder where a test needs it: here, in fsspec's memory, or in a store that speaks S3."""
    systems = []

    def put(path, where):
        rest = path.relative_to(folder).as_posix().strip(".")
        if where == "s3":
            store.objects.clear()
            store.put(folder, "pool")
            return store.url(f"pool/{rest}")
        if where == "memory":
            systems.append(pytest.importorskip("fsspec").filesystem("memory"))
            systems[-1].put(str(folder), "/pool", recursive=True)
            return f"fsspec+memory:///pool/{rest}"
        return path

    yield put
    for system in systems:
        system.rm("/pool", recursive=True)


WHERE = ["here", "memory", "s3"]


# --- order and layouts
# ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_one_table_wherever_it_lies(layout, where, folder, places):
    table = read_table(places(layout(folder), where), ids="url")
    assert (table.shape, table.dtype) == ((N, 6), np.float16)
    np.testing.assert_array_equal(table.to_array(), ROWS)
    np.testing.assert_array_equal(np.concatenate(list(table.blocks(5))), ROWS)
    assert {len(block) for block in table.blocks(5)} == {5, N % 5}
    assert table.ids == URLS
    assert table.y.tolist() == LABELS.tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_order_does_not_depend_on_that_of_the_folder(layout, folder, monkeypatch):
    path = layout(folder)
    listed = tables_places.fs.LocalFileSystem.get_file_info

    class Turned(tables_places.fs.LocalFileSystem):
        order: staticmethod

        def get_file_info(self, sought):
            found = listed(self, sought)
            return type(self).order(found) if isinstance(found, list) else found

    monkeypatch.setattr(tables_places, "_HERE", Turned())
    for order in (
        list,
        lambda found: found[::-1],
        lambda found: sorted(found, key=lambda one: one.path[::-1]),
    ):
        Turned.order = staticmethod(order)
        table = read_table(path, ids="url")
        np.testing.assert_array_equal(table.to_array(), ROWS)
        assert table.ids == URLS


def test_numbers_in_names_count_as_numbers():
    names = ["b_1", "a_10", "a_2", "a_02", "a", "a_2_1", "a_1b", "a_1"]
    assert sorted(names, key=natural) == [
        "a",
        "a_1",
        "a_1b",
        "a_02",
        "a_2",
        "a_2_1",
        "a_10",
        "b_1",
    ]
    assert sorted(reversed(names), key=natural) == sorted(names, key=natural)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.parquet", "l.parquet"])
def test_single_files_of_every_form(name, where, folder, places):
    np.save(folder / "a.npy", ROWS)
    write_table(folder / "a.npz", ROWS)
    write_table(folder / "a.parquet", ROWS)
    convert_table(folder / "a.parquet", folder / "l.parquet", rows="lattice")
    table = read_table(places(folder / name, where))
    np.testing.assert_array_equal(
        table.to_array(), Lattice(6).transform(ROWS) if name == "l.parquet" else ROWS
    )


def test_ids_may_be_whole_numbers_of_a_named_column(folder):
    table = read_table(fixed(folder), ids="key")
    assert table.ids == [str(number) for number in range(N)]
    assert read_table(folder).ids is None  # no column id


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fragments_are_the_files_in_order_and_are_read_elsewhere(layout, folder):
    table = read_table(layout(folder), ids="url")
    fragments = pickle.loads(pickle.dumps(table.fragments()))
    assert [(fragment.first, fragment.rows) for fragment in fragments] == list(
        zip(FIRSTS, COUNTS, strict=True)
    )
    assert [Path(fragment.path).stem.rpartition("_")[2] for fragment in fragments] == [
        str(n) for n in range(12)
    ]
    for fragment, part in zip(fragments, PARTS, strict=True):
        assert (fragment.shape, fragment.dtype) == (ROWS[part].shape, np.float16)
        np.testing.assert_array_equal(
            np.concatenate(list(fragment.blocks(2))), ROWS[part]
        )
        assert fragment.ids == URLS[part]
        assert len(pickle.dumps(fragment)) < 1000  # paths and no rows
    with pytest.raises(ParameterError):
        next(fragments[0].blocks(0))


def test_rows_in_memory_are_one_fragment(folder):
    np.savez(folder / "a.npz", x=ROWS)
    (fragment,) = read_table(folder / "a.npz").fragments()
    assert (fragment.path, fragment.first, fragment.rows, fragment.ids) == (
        None,
        0,
        N,
        None,
    )
    np.testing.assert_array_equal(next(fragment.blocks(N)), ROWS)


def test_of_a_url_only_the_bytes_that_are_needed_are_fetched(
    store, folder, monkeypatch
):
    monkeypatch.setattr("dppl.io.tables.parquet._FETCHED", 100_000)
    rows = np.random.default_rng(0).normal(size=(100_000, 16)).astype(np.float32)
    write_table(folder / "a.parquet", rows)
    store.objects.clear()
    store.put(folder, "pool")
    before = store.sent
    table = read_table(store.url("pool"))
    assert store.sent - before < 200_000  # the footer
    next(table.blocks(10))
    assert store.sent - before < 1_000_000  # of 6.4 million
    for _ in table.blocks(1000):
        pass
    assert store.sent - before > 6_400_000


# --- what is refused, before anything is charged
# -------------------------------------------------------------------


def cut(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


def shard(folder, number, rows=None, **columns):
    """Write a shard anew, with other rows or columns."""
    part = PARTS[number]
    rows = ROWS[part] if rows is None else rows
    table = others(part).append_column(
        "x",
        pa.array(list(rows), pa.list_(pa.from_numpy_dtype(rows.dtype), len(rows[0]))),
    )
    for name, column in columns.items():
        table = table.set_column(table.schema.names.index(name), name, column)
    return table


def replace(number, **changes):
    return lambda folder: pq.write_table(
        shard(folder, number, **changes), folder / f"shard_{number}.parquet"
    )


def other_encoders(folder):
    for number, name in ((1, "a"), (2, "b")):
        table = shard(folder, number).replace_schema_metadata({"encoder": name})
        pq.write_table(table, folder / f"shard_{number}.parquet")


SPOILT = {
    "a shard is cut": (
        lambda folder: cut(folder / "shard_4.parquet", 0.95),
        "shard_4.parquet must be a Parquet file",
    ),
    "a shard is empty": (
        lambda folder: cut(folder / "shard_4.parquet", 0),
        "shard_4.parquet must be a Parquet file",
    ),
    "widths differ": (
        replace(7, rows=np.zeros((4, 7), np.float16)),
        "must have the same columns and types; shard_7.parquet differs from shard_0.parquet",
    ),
    "types differ": (
        replace(7, rows=np.zeros((4, 6), np.float32)),
        "shards must have the same columns and types",
    ),
    "labels differ in kind": (
        replace(2, label=pa.array([SECRET] * COUNTS[2])),
        "all shards must have the same columns and types",
    ),
    "encoders differ": (other_encoders, "must name the same encoder"),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("spoilt", SPOILT)
def test_shards_that_do_not_fit_together_are_refused_by_name(
    spoilt, where, folder, places
):
    spoil, message = SPOILT[spoilt]
    spoil(fixed(folder))
    with pytest.raises(InputError) as caught:
        read_table(places(folder, where))
    line = str(caught.value)
    assert message in line
    assert SECRET not in line
    assert not any(
        f" {count} " in line for count in (N, *COUNTS)
    )  # the same reader serves private tables
    assert caught.value.__cause__ is None


def with_lengths(path, *lengths, **options):
    rows = [None if length is None else [1.0] * length for length in lengths]
    pq.write_table(
        pa.table({"x": pa.array(rows, pa.list_(pa.float32()))}), path, **options
    )


@pytest.mark.parametrize(
    "lengths", [(5, 5, 5), (7, 7, 7), (None, 5), (6, None, 5), (6, 6, 1)]
)
def test_lists_of_another_length_are_refused(lengths, tmp_path):
    """Wherever they are, before a row is read: a fit that has charged its ledger must not stop over one record."""
    with_lengths(tmp_path / "s_0.parquet", 6, 6, None)
    with_lengths(tmp_path / "s_1.parquet", *lengths)
    for read in (read_table, read_parts):
        with pytest.raises(
            InputError, match="all lists in column 'x' must have the same length"
        ):
            read(tmp_path)


@pytest.mark.parametrize("width", [1, 2, 6])
def test_lists_of_one_length_pass_whatever_is_null(width, tmp_path):
    with_lengths(
        tmp_path / "s_0.parquet", None, width, None, width, None, row_group_size=1
    )
    with_lengths(tmp_path / "s_1.parquet", None, None)
    with_lengths(tmp_path / "s_2.parquet")
    inner = pa.array([[None] * width, [1.0] * width], pa.list_(pa.float32()))
    pq.write_table(pa.table({"x": inner, "x.y": [1, 2]}), tmp_path / "s_3.parquet")
    rows = np.asarray(read_table(tmp_path))
    assert rows.shape == (9, width)
    assert np.isfinite(rows).all(axis=1).tolist() == [False, True, False, True] + 4 * [
        False
    ] + [True]


def test_a_named_column_of_ids_must_be_in_every_file(folder):
    replace(3, url=pa.array([0.5] * COUNTS[3]))(fixed(folder))
    with pytest.raises(
        InputError,
        match=r"ids must name one column of .* with texts, integers, .*; 'url' holds double",
    ):
        read_table(folder, ids="url")
    pq.write_table(shard(folder, 3).drop(["url"]), folder / "shard_3.parquet")
    with pytest.raises(InputError, match=r"shard_3\.parquet with .*; 'url' is none"):
        read_table(folder, ids="url")
    np.save(folder.parent / "a.npy", ROWS)
    with pytest.raises(InputError, match="must have a column 'url' of ids"):
        read_table(folder.parent / "a.npy", ids="url")


def test_a_shard_that_the_manifest_lists_must_be_there(folder):
    write_table(folder / "part-000000.parquet", ROWS)
    manifest = folder / "_manifest.json"
    manifest.write_text(
        '{"finished": true, "shards": [{"file": "part-000000.parquet"}]}'
    )
    assert read_table(folder).shape == ROWS.shape
    manifest.write_text(
        '{"finished": true, "shards": [{"file": "part-000000.parquet"}, {"file": "part-1.parquet"}]}'
    )
    with pytest.raises(InputError, match="every shard of its manifest; one is missing"):
        read_table(folder)


@pytest.mark.parametrize(
    "rows", [ROWS[:3], np.zeros((4, 7), np.float16), ROWS[:4].astype(np.float32)]
)
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_a_file_that_changes_later_is_noticed(rows, suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    save = np.save if suffix == "npy" else np.savez
    save(path, ROWS[:4])
    (part, *_) = read_parts(path, x="arr_0").parts
    save(path, rows)
    with pytest.raises(
        InputError, match=rf"a\.{suffix} must not change while it is read"
    ):
        list(part.read()[0].blocks(3))


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_file_of_two_names_is_refused(link, tmp_path):
    """Its records would count twice, and the noise is made for one."""
    for number in range(2):
        write_table(tmp_path / f"{number}.parquet", ROWS)
    assert read_table(tmp_path).shape == (
        2 * N,
        6,
    )  # copies are not known for what they are
    (tmp_path / "1.parquet").unlink()
    link(tmp_path / "1.parquet", tmp_path / "0.parquet")
    with pytest.raises(InputError, match="one has two, and would count twice"):
        read_table(tmp_path)


def test_files_in_upper_case_are_not_passed_over(tmp_path):
    for name in ("part-0.parquet", "part-1.PARQUET"):
        write_table(tmp_path / name, ROWS)
    assert read_table(tmp_path).shape == (2 * N, 6)


# --- URLs
# ----------------------------------------------------------------------------------------------------------


def test_a_url_may_have_gone_through_a_path(folder, places):
    url = places(fixed(folder), "s3")
    assert "//" not in str(Path(url)).partition("?")[0]
    np.testing.assert_array_equal(read_table(Path(url)).to_array(), ROWS)


def test_messages_show_neither_passwords_nor_queries(folder, places, store):
    url = places(folder, "s3")
    assert SECRET in url
    with pytest.raises(InputError) as caught:
        read_table(url)
    assert str(caught.value).startswith(
        "s3://bucket/pool must be an existing file or folder"
    )
    assert SECRET not in str(caught.value)
    (first, *_) = read_table(places(fixed(folder), "s3")).fragments()
    assert first.path == "s3://bucket/pool/shard_0.parquet"


@pytest.mark.parametrize(
    "url",
    [
        f"s3://KEY:slash/{SECRET}@bucket/pool",
        f"https://user:mark?{SECRET}@host/pool.npy",
        f"https://{SECRET}@host/pool.npy",
        f"https://user:{SECRET}@twice@host:8080/pool.npy",
        f"https://host:8080/pool.npy?token={SECRET}",
        f"https://host/pool@main.npy?token={SECRET}@",
        f"simplecache::https://user:{SECRET}@host/pool.npy",
        f"simplecache::s3:/KEY:{SECRET}@bucket/pool.npy?key={SECRET}",
        f"zip://pool.npy::https://user:{SECRET}@host/all.zip",
    ],
)
def test_no_form_of_a_password_is_shown(url):
    with pytest.raises(DpplError) as caught:
        read_table(url)
    assert SECRET not in str(caught.value) + shown_as(url) + shown_as(Path(url))
    assert "//host:8080" in shown_as("https://host:8080/pool@main.npy")


def test_a_place_shows_no_password_where_it_is_logged(places, folder):
    url = places(fixed(folder), "s3")
    assert SECRET not in repr(open_place(url)) + repr(read_table(url).fragments()[0])


def test_paths_that_look_like_urls_are_left_as_they_are(tmp_path):
    folder = tmp_path / "a:" / "b@c?d"
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", ROWS)
    np.testing.assert_array_equal(read_table(folder / "x.npy").to_array(), ROWS)


def test_a_fragment_of_a_url_is_read_elsewhere(folder, places):
    url = places(fixed(folder), "s3")
    fragment = pickle.loads(pickle.dumps(read_table(url).fragments()[10]))
    np.testing.assert_array_equal(next(fragment.blocks(100)), ROWS[PARTS[10]])


def test_a_missing_package_is_named_with_the_command(monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        MissingExtra,
        match=r"hf:// needs .*huggingface-hub; install it .*pip install -e '\.\[remote\]'",
    ):
        read_table("hf://datasets/someone/pool")


def test_an_unknown_scheme_is_refused():
    with pytest.raises(
        InputError, match="nope://pool must be a URL that Arrow can open"
    ):
        read_table("nope://pool")


# --- lattice rows
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(folder):
    """A table of embeddings, two of which have no direction, and its lattice rows."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 6)).astype(np.float32)
    rows[4], rows[5] = np.nan, 0
    columns = {
        "id": [f"r{n}" for n in range(60)],
        "x": list(rows),
        "y": rng.integers(0, 3, 60),
    }
    table = pa.table(
        columns,
        schema=pa.schema(
            [("id", pa.string()), ("x", pa.list_(pa.float32(), 6)), ("y", pa.int64())]
        ),
    )
    pq.write_table(
        table.replace_schema_metadata({"encoder": "e"}), folder / "x.parquet"
    )
    convert_table(folder / "x.parquet", folder / "l.parquet", rows="lattice")
    return folder / "x.parquet", folder / "l.parquet"


def test_lattice_rows_are_those_of_a_fit_and_keep_the_other_columns(pair):
    table, rows = map(read_table, pair)
    np.testing.assert_array_equal(
        rows.to_array(), Lattice(6).transform(table.to_array())
    )
    assert (rows.dtype, rows.ids, rows.y.tolist()) == (
        np.int8,
        table.ids,
        table.y.tolist(),
    )
    assert rows.metadata == {"encoder": "e", LATTICE: Lattice(6).name}
    assert pq.read_schema(pair[1]).field("x").type == pa.binary(6)
    second = pair[1].with_name("again.parquet")
    convert_table(pair[1], second)
    assert second.read_bytes() == pair[1].read_bytes()


def test_the_name_of_a_lattice_tells_every_map_apart():
    center = np.full(6, 0.1)
    others = [
        Lattice(6),
        Lattice(7),
        Lattice(6, pool=2),
        Lattice(6, rotation=0),
        Lattice(6, rotation=1),
        Lattice(6, center=center),
        Lattice(6, center=np.nextafter(center, 1)),
    ]
    assert len({lattice.name for lattice in others}) == len(others)
    assert Lattice(6, center=center).name == Lattice(6, center=center.tolist()).name


OTHERS = {
    "rotated": {"lattice": dppl.LatticeOptions(rotation=3)},
    "centred": {"lattice": dppl.LatticeOptions(center=np.full(6, 0.1))},
    "centred by public rows": {"lattice": dppl.LatticeOptions(center="public")},
    "pooled": {"lattice": dppl.LatticeOptions(pool=2)},
}


@pytest.mark.parametrize("role", ["X", "public.rows"])
@pytest.mark.parametrize("other", OTHERS)
def test_a_fit_of_another_map_takes_lattice_rows_as_directions(other, role, pair):
    table, rows = map(read_table, pair)
    given = {"X": table, "public.rows": table} | {role: rows}
    as_floats = {name: one.to_array().astype(np.float64) for name, one in given.items()}
    models = []
    for data in (given, as_floats):
        model = dppl.MeanPrototypes(
            dppl.ZCDP(0.5), classes=[0, 1, 2], random_state=0, **OTHERS[other]
        )
        models.append(
            model.set_params(public=PublicData(data["public.rows"])).fit(
                data["X"], rows.y
            )
        )
    assert models[0].prototypes_.tobytes() == models[1].prototypes_.tobytes()
    assert not models[0].lattice_.is_plain


FOREIGN = [
    Lattice(6, rotation=3),
    Lattice(6, center=np.full(6, 0.1)),
    Lattice(6, pool=2),
    Lattice(7),
]


@pytest.mark.parametrize("role", ["X", "public.rows"])
@pytest.mark.parametrize("lattice", FOREIGN, ids=Lattice.to_dict)
@pytest.mark.parametrize("model", [dppl.MeanPrototypes, dppl.SoftmaxPrototypes])
def test_rows_of_a_lattice_that_does_more_than_normalise_are_refused_and_nothing_is_paid(
    lattice, role, model, folder
):
    """Of the map of the fit, too: it would be applied twice."""
    rng = np.random.default_rng(1)
    ledger = Ledger(folder / "l.db", "wards", dppl.ZCDP(1.0))
    given = {"X": rng.normal(size=(60, 6)), "public.rows": rng.normal(size=(60, 6))}
    rows = Lattice(6).transform(given[role])
    own = (
        {
            "lattice": dppl.LatticeOptions(
                center=lattice.center, rotation=lattice.rotation
            )
        }
        if model is dppl.MeanPrototypes
        else {}
    )
    given[role] = EmbeddingTable.of(rows, metadata={LATTICE: lattice.name})
    with pytest.raises(
        InputError,
        match=f"{role} must hold embeddings.* Use the table that they were made from",
    ):
        model(
            dppl.ZCDP(0.5), [0, 1, 2], public=PublicData(given["public.rows"]), **own
        ).fit(given["X"], rng.integers(0, 3, 60), ledger=ledger)
    assert not ledger.releases()


def test_rotation_is_the_safe_side_where_public_rows_were_cut_off_already(pair):
    table, rows = map(read_table, pair)
    model = dppl.MeanPrototypes(
        dppl.ZCDP(0.5), classes=[0, 1, 2], lattice=dppl.LatticeOptions(rotation="auto")
    )
    assert (
        model.set_params(public=PublicData(rows)).fit(table, table.y).lattice_.rotation
        == 0
    )
    model.set_params(public=PublicData(table)).fit(rows, rows.y)
    assert model.lattice_.is_plain  # these embeddings need no rotation
    stream = ContinualDiscriminant(dppl.ZCDP(0.5), classes=[0, 1, 2])
    assert (
        stream.set_params(public=PublicData(rows)).fit(table, table.y).lattice_.rotation
        == 0
    )
    assert (
        stream.set_params(public=PublicData(table)).fit(rows, rows.y).lattice_.rotation
        is None
    )


def test_lattice_rows_are_no_examples(pair):
    table, rows = map(read_table, pair)
    model = dppl.SoftmaxPrototypes(dppl.ZCDP(0.5), classes=[0, 1, 2])
    with pytest.raises(InputError, match=r"public.examples must be embeddings"):
        model.set_params(public=PublicData(examples=rows, example_classes=rows.y)).fit(
            table, table.y
        )


def test_bytes_that_were_changed_keep_the_bound_on_norms(folder, pair):
    """The sensitivity rests on it, so a file is not believed."""
    table = pq.read_table(pair[1])
    wrong = pa.array([b"\x80" * 6, b"\x7f" * 6, None] * 20, pa.binary(6))
    pq.write_table(
        table.set_column(table.schema.get_field_index("x"), "x", wrong),
        folder / "w.parquet",
    )
    rows = read_table(folder / "w.parquet")
    assert rows.metadata[LATTICE] == Lattice(6).name
    (mapped,) = Lattice(6).blocks(rows, 100)
    squares = np.square(mapped.astype(int)).sum(axis=1)
    assert (squares <= Lattice(6).squared_norm).all()
    assert (squares > 0).tolist() == [True, True, False] * 20
    stored = np.square(np.asarray(rows).astype(int)).sum(axis=1)
    assert (
        stored > Lattice(6).squared_norm
    ).any()  # of the file itself the bound does not hold


def test_bytes_without_the_name_of_a_lattice_are_no_rows(folder, pair):
    table = pq.read_table(pair[1]).replace_schema_metadata(None)
    pq.write_table(table, folder / "w.parquet")
    with pytest.raises(InputError, match="lists of floats or integers"):
        read_table(folder / "w.parquet")


def test_shards_of_two_lattices_are_no_table(folder, pair):
    table = pq.read_table(pair[1])
    both = folder / "both"
    both.mkdir()
    pq.write_table(table, both / "s_0.parquet")
    metadata = {LATTICE: Lattice(6, rotation=1).name, "encoder": "e"}
    pq.write_table(table.replace_schema_metadata(metadata), both / "s_1.parquet")
    with pytest.raises(
        InputError, match="all shards must have the same columns and types"
    ):
        read_table(both)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pool_is_converted_with_its_ids_and_labels(layout, folder):
    out = folder.parent / "pool.parquet"
    convert_table(layout(folder), out, rows="lattice", ids="url")
    pool = read_table(out)
    np.testing.assert_array_equal(pool.to_array(), Lattice(6).transform(ROWS))
    assert (pool.ids, pool.y.tolist()) == (URLS, LABELS.tolist())
