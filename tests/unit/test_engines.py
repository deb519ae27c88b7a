"""Fits of tables in parts: the bits of one process, whoever reads the parts, and nothing private on the way."""

import os
import pickle
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dppl
from dppl import (
    ApproxDP,
    GaussianDP,
    MeanPrototypes,
    MultiLabelPrototypes,
    PublicData,
    PublicPrototypes,
    PureDP,
    SoftmaxPrototypes,
)
from dppl.engines import LocalEngine, RayEngine, _outcome, engine_of
from dppl.errors import (
    EngineError,
    InputError,
    MissingExtra,
    ParameterError,
    UnknownLabelError,
)
from dppl.io import PartedTable, read_parts, read_table
from dppl.io.tables.read import TablePart
from dppl.kernel import parts as sums
from dppl.kernel.lattice import Lattice
from dppl.kernel.parts import PartReader, Piece, PrivateParts, SpreadRecords
from dppl.kernel.privacy.terms import Assumption, Term
from dppl.kernel.queries import ClassSums
from dppl.kernel.queries import selection as public
from dppl.kernel.records import HeldRecords
from dppl.lab import AdaMix, FeatureCovariance, GlobalAdapt, LeastSquares, Newton
from dppl.methods import LinearProbe
from inside import tensors_of

CLASSES = ["Aal", "Barsch", "Zander"]
DIM = 8
N = 400
BUDGET = GaussianDP(1.0)
EXAMPLES = PublicData(None, np.eye(3, 8) + 0.1, CLASSES)
FITS = {
    "mean": lambda: MeanPrototypes(BUDGET, CLASSES, random_state=7),
    "mean, replace-one": lambda: MeanPrototypes(
        BUDGET, CLASSES, adjacency="replace-one", random_state=7
    ),
    "softmax": lambda: SoftmaxPrototypes(BUDGET, CLASSES, random_state=7),
    "several labels": lambda: MultiLabelPrototypes(BUDGET, CLASSES, random_state=7),
    "least squares": lambda: LeastSquares(BUDGET, CLASSES, random_state=7),
    "least squares of each class": lambda: LeastSquares(
        BUDGET, CLASSES, class_grams=True, random_state=7
    ),
    "probe": lambda: LinearProbe(BUDGET, CLASSES, steps=4, random_state=7),
    "probe of a batch size": lambda: LinearProbe(
        BUDGET, CLASSES, steps=4, batch_size=N, random_state=7
    ),
    "feature covariance": lambda: FeatureCovariance(
        BUDGET, CLASSES, steps=4, random_state=7
    ),
    "newton": lambda: Newton(BUDGET, CLASSES, steps=4, random_state=7),
    "global adapt": lambda: GlobalAdapt(BUDGET, CLASSES, steps=4, random_state=7),
    "adamix": lambda: AdaMix(BUDGET, CLASSES, public=EXAMPLES, steps=4, random_state=7),
}


def records():
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 3, N)
    rows = (rng.normal(size=(N, DIM)) + 2 * np.eye(3, DIM)[codes]).astype(np.float32)
    rows[5], rows[6] = np.nan, 0  # neither has a direction
    return rows, np.array(CLASSES)[codes]


def write(path, rows, labels):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    pq.write_table(
        pa.table({"x": lists, "y": pa.array(labels.tolist(), pa.string())}), path
    )


def sharded(folder, cuts, rows=None, labels=None):
    """Write the records as shards that end at these places; two equal ones make an empty shard."""
    if rows is None:
        rows, labels = records()
    folder.mkdir()
    for number, (first, last) in enumerate(
        zip([0, *cuts], [*cuts, len(rows)], strict=True)
    ):
        write(
            folder / f"part-{number:03}.parquet", rows[first:last], labels[first:last]
        )
    return folder


@pytest.fixture
def folder(tmp_path):
    return sharded(tmp_path / "shards", [100, 250, 250, 301])


def whole(fit, **further):
    rows, labels = records()
    return FITS[fit]().fit(rows, labels, **further)


@pytest.mark.slow
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(
    "cuts", [[], [1], [100, 250, 250, 301], list(range(40, N, 40))], ids=len
)
def test_no_bit_depends_on_the_parts(fit, cuts, tmp_path):
    table = read_parts(sharded(tmp_path / "shards", cuts))
    assert len(table.parts) == len(cuts) + 1
    assert tensors_of(FITS[fit]().fit(table)) == tensors_of(whole(fit))


def test_public_rows_and_examples_go_with_parts(folder):
    public = PublicData(np.eye(DIM) + 0.1, EXAMPLES.examples, CLASSES)
    model = FITS["softmax"]().set_params(public=public)
    in_parts = tensors_of(model.fit(read_parts(folder)))
    assert in_parts == tensors_of(model.fit(*records()))
    assert in_parts != tensors_of(whole("softmax"))


@pytest.mark.parametrize("rows_each", [7, 100, 1000])
def test_a_npy_file_is_cut_into_rows(rows_each, tmp_path):
    rows, labels = records()
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", labels)
    table = read_parts(tmp_path / "x.npy", labels=tmp_path / "y.npy", rows=rows_each)
    assert len(table.parts) == -(-N // rows_each)
    assert tensors_of(FITS["softmax"]().fit(table)) == tensors_of(whole("softmax"))


@pytest.mark.parametrize("fit", FITS)
def test_no_bit_depends_on_ray(fit, folder, ray_engine):
    model = FITS[fit]().fit(read_parts(folder, engine=ray_engine))
    assert tensors_of(model) == tensors_of(whole(fit))


@pytest.mark.parametrize("engine", ["local", "ray"])
@pytest.mark.parametrize("fit", ["mean", "softmax", "several labels"])
def test_no_bit_of_a_fit_on_persons_depends_on_the_parts(fit, engine, folder, request):
    """Of persons whose rows are adjacent, and of those with rows in all parts."""
    engine = (
        LocalEngine() if engine == "local" else request.getfixturevalue("ray_engine")
    )
    spread = np.random.default_rng(1).integers(0, 60, N)
    for ids in (
        np.arange(N) // 7,
        spread,
        np.where(np.arange(N) < 200, "patient", spread.astype(str)),
    ):
        in_parts = FITS[fit]().fit(read_parts(folder, engine=engine), groups=ids)
        alone = whole(fit, groups=ids)
        assert tensors_of(in_parts) == tensors_of(alone)
        assert in_parts.guarantee_.unit == alone.guarantee_.unit


@pytest.mark.parametrize("fit", ["mean", "softmax"])
def test_a_person_counts_in_as_many_classes_of_a_table_in_parts(fit, folder):
    ids = np.random.default_rng(1).integers(0, 60, N)
    of_two = FITS[fit]().set_params(max_classes_per_person=2)
    in_parts = tensors_of(of_two.fit(read_parts(folder), groups=ids))
    assert in_parts == tensors_of(of_two.fit(*records(), groups=ids))
    assert in_parts != tensors_of(
        of_two.set_params(max_classes_per_person=1).fit(*records(), groups=ids)
    )


def test_a_person_is_read_with_their_first_part_alone(folder):
    """The control: without what other parts hold of a person, and with persons who count in each part, bits differ."""
    table = read_parts(folder)
    ids = np.arange(N) // 7
    whole_pieces = PrivateParts.pieces_by_part
    for change in (
        lambda parts: [part[:1] for part in parts],
        lambda parts: [[Piece(p[0].part)] for p in parts],
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                PrivateParts,
                "pieces_by_part",
                lambda self, change=change: change(whole_pieces(self)),
            )
            assert tensors_of(FITS["softmax"]().fit(table, groups=ids)) != tensors_of(
                whole("softmax", groups=ids)
            )


class Mixed:
    """An engine that takes the first part for the second, too."""

    assumption = None
    check = LocalEngine.check

    def each(self, function, items):
        yield from LocalEngine().each(function, [items[0], items[0], *items[2:]])


def test_a_part_that_counts_twice_would_be_noticed(folder):
    """The control of the tests of equal bits."""
    table = read_parts(folder)
    assert tensors_of(FITS["mean"]().fit(replace(table, engine=Mixed()))) != tensors_of(
        whole("mean")
    )


@dataclass
class Breaking(Mixed):
    """An engine that breaks its promise: what it yields has these places."""

    places: tuple[int, ...]

    def each(self, function, items):
        yield from (
            (place, function(items[place % len(items)])) for place in self.places
        )


@pytest.mark.parametrize(
    "places",
    [(0, 0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 4), (0, 1, 2, 4), (), (0, 1, 2, 3, 4, 5)],
)
def test_an_engine_that_counts_a_part_twice_or_never_ends_the_fit(places, folder):
    """As where a worker died after it had answered: with noise for one record, two would be told."""
    with pytest.raises(EngineError, match="broken its promise"):
        FITS["mean"]().fit(read_parts(folder, engine=Breaking(places)))


@dataclass(frozen=True)
class Dying:
    """A part that kills the process that reads it, as often as the folder lacks marks."""

    part: object
    folder: str
    times: int
    parent: int

    def read(self):
        assert os.getpid() != self.parent
        for number in range(self.times):
            with suppress(FileExistsError):
                (Path(self.folder) / f"killed {number}").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return self.part.read()


def dying(folder, marks, times):
    table = read_parts(folder)
    parts = list(table.parts)
    parts[2] = Dying(parts[2], str(marks), times, os.getpid())
    return PartedTable(parts=tuple(parts), n_features=DIM, labelled=True)


def test_a_worker_killed_in_the_middle_of_a_fit_changes_no_bit(
    folder, tmp_path, ray_engine, by_value
):
    (tmp_path / "marks").mkdir()
    model = FITS["softmax"]().fit(
        replace(dying(folder, tmp_path / "marks", 3), engine=ray_engine)
    )
    assert len(list((tmp_path / "marks").iterdir())) == 3
    assert tensors_of(model) == tensors_of(whole("softmax"))


def test_a_part_that_kills_every_worker_ends_the_fit_and_the_charge_stays(
    folder, tmp_path, ray_engine, by_value
):
    (tmp_path / "marks").mkdir()
    ledger = dppl.Ledger(tmp_path / "ledger.db", dataset="fish", budget=GaussianDP(2.0))
    model = FITS["mean"]()
    with pytest.raises(EngineError, match="Ray gave up") as failure:
        model.fit(
            replace(dying(folder, tmp_path / "marks", 50), engine=ray_engine),
            ledger=ledger,
        )
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__
    assert "The ledger keeps the charge" in failure.value.__notes__[0]
    assert not hasattr(model, "prototypes_")
    assert len(ledger.releases()) == 1


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (None, "Ray does not start on this machine"),
        ("auto", "no cluster of Ray answers at 'auto' .*start one"),
    ],
)
@pytest.mark.parametrize("kind", [ConnectionError, ValueError, RuntimeError])
def test_a_cluster_that_does_not_answer_is_named(address, message, kind, monkeypatch):
    def init(**_):
        raise kind("topsecret")

    fake = SimpleNamespace(
        is_initialized=lambda: False,
        init=init,
        exceptions=SimpleNamespace(RayError=type("RayError", (Exception,), {})),
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    with pytest.raises(EngineError, match=message) as failure:
        RayEngine(address).check()
    assert "topsecret" not in str(failure.value)


def quoting(_):
    raise ValueError("Aal 0.123456")


def test_a_task_hands_out_no_word_of_another_library():
    failure = _outcome(dppl.__version__, quoting, None)
    assert str(failure) == "a task stopped with ValueError."
    assert _outcome(dppl.__version__, abs, -3) == 3


def test_a_task_without_its_files_says_where_they_must_be():
    failure = _outcome(dppl.__version__, os.stat, "/nowhere/Aal")
    assert isinstance(failure, InputError)
    assert "all machines need them at the same paths" in str(failure)
    assert "Aal" not in str(failure)


@dataclass(frozen=True)
class Raising:
    """A part whose reader quotes a record."""

    def read(self):
        raise RuntimeError("Aal 0.123456")


def test_what_a_task_raises_quotes_nothing(ray_engine, by_value):
    table = PartedTable(parts=(Raising(),), n_features=DIM, labelled=True)
    with pytest.raises(EngineError) as failure:
        FITS["mean"]().fit(replace(table, engine=ray_engine))
    assert str(failure.value) == "a task stopped with RuntimeError."
    assert "0.123456" not in "".join(
        map(str, (failure.value.__cause__, failure.value.__context__))
    )


def test_ray_keeps_no_word_of_the_records(tmp_path, ray_engine):
    """Neither an unknown label, which stops tasks, nor labels that are known stand in any log of the session."""
    import ray

    rows, labels = records()
    labels = labels.astype("<U40")
    labels[17] = "Quastenflosser-4711"
    folder = sharded(tmp_path / "unknown", [200], rows, labels)
    with pytest.raises(UnknownLabelError) as failure:
        FITS["mean"]().fit(read_parts(folder, engine=ray_engine))
    assert "Quastenflosser" not in str(failure.value)
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())
    texts = [file.read_bytes() for file in logs.rglob("*") if file.is_file()]
    assert sum(map(len, texts)) > 1000
    assert not any(b"Quastenflosser" in text or b"Zander" in text for text in texts)


def test_labels_outside_the_list_are_left_out_in_every_part(tmp_path, ray_engine):
    rows, labels = records()
    labels[::3] = "Aa"
    folder = sharded(tmp_path / "unknown", [130, 131], rows, labels)
    model = FITS["softmax"]().set_params(unknown_labels="ignore")
    alone = FITS["softmax"]().set_params(unknown_labels="ignore").fit(rows, labels)
    assert tensors_of(model.fit(read_parts(folder, engine=ray_engine))) == tensors_of(
        alone
    )


@dataclass(frozen=True)
class Watched:
    """An engine that keeps what travels, as Ray would see it."""

    sent: list
    returned: list
    assumption: None = None
    check = LocalEngine.check

    def each(self, function, items):
        for place, item in enumerate(items):
            self.sent.append(pickle.dumps((function, item)))
            work, one = pickle.loads(self.sent[-1])
            value = work(one)
            self.returned.append(value)
            yield place, value


def test_neither_rows_nor_labels_travel(tmp_path):
    """Rows and labels that nothing else holds are sought in what goes to tasks; back come integers of public shapes."""
    rows, labels = records()
    labels = np.where(np.arange(N) % 2, "Quastenflosser", labels)
    folder = sharded(tmp_path / "secret", [50, 300], rows, labels)
    watched = Watched([], [])
    model = FITS["softmax"]().set_params(unknown_labels="ignore")
    model.fit(read_parts(folder, engine=watched))
    secrets = [
        b"Quastenflosser",
        rows[1].tobytes(),
        Lattice(DIM).transform(rows[1:2]).tobytes(),
    ]
    assert not any(secret in sent for secret in secrets for sent in watched.sent)
    held = HeldRecords(rows, np.zeros(N, np.intp))
    control = pickle.dumps((held.rows, labels.tolist(), Lattice(DIM).transform(rows)))
    assert all(secret in control for secret in secrets)
    shapes = {(1,), (3,), (DIM,), (3, DIM), (DIM, DIM)}
    assert {value.shape for value in watched.returned} == shapes
    assert all(value.dtype == np.int64 for value in watched.returned)


class Trusted(Mixed):
    """This process, which says of itself what Ray says."""

    assumption = RayEngine().assumption
    each = LocalEngine.each


def test_the_statement_says_who_saw_sums_without_noise(folder, tmp_path):
    model = FITS["mean"]().fit(read_parts(folder, engine=Trusted()))
    assert model.guarantee_.assumptions.count(Term(Assumption.CLUSTER)) == 1
    assert "before noise" in str(model.guarantee_)
    model.save(tmp_path / "model.safetensors")
    assert (
        dppl.load(tmp_path / "model.safetensors").guarantee_.to_dict()
        == model.guarantee_.to_dict()
    )
    alone = FITS["mean"]().fit(read_parts(folder))
    assert alone.guarantee_.assumptions == whole("mean").guarantee_.assumptions


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_damaged_part_stops_the_fit_and_is_named(engine, folder, tmp_path, request):
    engine = (
        LocalEngine() if engine == "local" else request.getfixturevalue("ray_engine")
    )
    table = read_parts(folder)
    damaged = folder / "part-001.parquet"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:40] + bytes(len(content) - 80) + content[-40:])
    ledger = dppl.Ledger(tmp_path / "ledger.db", dataset="fish", budget=GaussianDP(2.0))
    with pytest.raises(InputError, match=r"part-001\.parquet") as failure:
        FITS["mean"]().fit(replace(table, engine=engine), ledger=ledger)
    assert not any(name in str(failure.value) for name in CLASSES)
    assert len(ledger.releases()) == 1


REFUSED = {
    "a selection without public rows": (
        PublicPrototypes(PureDP(1.0), CLASSES),
        {},
        "selects among public rows",
    ),
    "coinpress": (
        MeanPrototypes(BUDGET, CLASSES, coinpress="dppl", adjacency="replace-one"),
        {},
        "sums over them",
    ),
    "samples": (
        LinearProbe(ApproxDP(1.0, 1e-6), CLASSES, sampling_rate=0.1, batch_size=40),
        {},
        "sums over them",
    ),
    "too few ids": (
        FITS["mean"](),
        {"groups": np.arange(N - 1)},
        "the same number of rows",
    ),
    "labels": (FITS["mean"](), {"y": records()[1]}, "hold their own labels"),
    "no classes": (MeanPrototypes(BUDGET), {}, "public list of classes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_spread_is_refused_before_anything_is_charged(
    case, folder, tmp_path
):
    model, given, message = REFUSED[case]
    ledger = dppl.Ledger(tmp_path / "ledger.db", dataset="fish", budget=GaussianDP(2.0))
    with pytest.raises((ParameterError, InputError), match=message):
        model.fit(read_parts(folder), ledger=ledger, **given)
    assert not ledger.releases()


@pytest.mark.parametrize("engine", [None, "ray"])
def test_predictions_do_not_depend_on_the_parts(engine, folder, request):
    engine = LocalEngine() if engine is None else request.getfixturevalue("ray_engine")
    model = whole("softmax")
    rows = records()[0]
    table = read_parts(folder, engine=engine)
    assert (
        model.predict(table, unusable="empty") == model.predict(rows, unusable="empty")
    ).all()
    found = model.predict_proba(table, unusable="empty")
    # Products of floats may round in another way where a block ends elsewhere.
    np.testing.assert_allclose(
        found, model.predict_proba(rows, unusable="empty"), rtol=1e-12
    )
    for method in (model.predict, model.predict_proba):
        with pytest.raises(InputError, match="at 5, 6, counted from 0"):
            method(table)


def test_labels_in_parts_have_the_type_of_the_classes(tmp_path):
    rows = np.delete(records()[0], [5, 6], axis=0)
    labels = np.delete(records()[1], [5, 6])
    found = whole("mean").predict(
        read_parts(sharded(tmp_path / "usable", [9], rows, labels))
    )
    assert found.dtype == whole("mean").predict(rows).dtype


def test_rows_of_another_width_are_refused(folder):
    model = MeanPrototypes(BUDGET, CLASSES).fit(np.eye(3), CLASSES)
    with pytest.raises(InputError, match="X has 8 features"):
        model.predict(read_parts(folder))


def test_parts_without_labels_are_refused_before_anything_is_charged(tmp_path):
    np.save(tmp_path / "x.npy", records()[0])
    with pytest.raises(InputError, match="has no labels"):
        FITS["mean"]().fit(read_parts(tmp_path / "x.npy"))


def test_lists_without_a_fixed_size_have_the_width_of_the_table(tmp_path):
    """A part whose rows are all missing has no width of its own, and stops nothing."""
    rows, labels = records()
    (tmp_path / "lists").mkdir()
    lists = [*rows[:300].tolist(), *[None] * 50, *rows[300:].tolist()]
    texts = [*labels[:300], *["Aal"] * 50, *labels[300:]]
    for number, (first, last) in enumerate([(0, 300), (300, 350), (350, 450)]):
        part = {
            "x": pa.array(lists[first:last], pa.list_(pa.float32())),
            "y": texts[first:last],
        }
        pq.write_table(pa.table(part), tmp_path / "lists" / f"{number}.parquet")
    table = read_parts(tmp_path / "lists")
    assert len(table.parts) == 3
    assert tensors_of(FITS["mean"]().fit(table)) == tensors_of(whole("mean"))


def test_labels_may_lie_in_one_file(tmp_path):
    rows, labels = records()
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", labels)
    table = read_parts(tmp_path / "x.npy", labels=tmp_path / "y.npy", rows=60)
    assert tensors_of(FITS["mean"]().fit(table)) == tensors_of(whole("mean"))
    np.save(tmp_path / "y.npy", labels[:-1])
    with pytest.raises(InputError, match="must not change") as failure:
        FITS["mean"]().fit(table)
    assert not any(name in str(failure.value) for name in CLASSES)


def test_a_npz_file_is_one_part_that_travels_as_a_path(tmp_path):
    rows, labels = records()
    np.savez(tmp_path / "t.npz", X=rows, label=labels)
    watched = Watched([], [])
    model = FITS["mean"]().fit(read_parts(tmp_path / "t.npz", engine=watched))
    assert tensors_of(model) == tensors_of(whole("mean"))
    assert not any(rows[1].tobytes() in sent for sent in watched.sent)


def test_parts_of_a_url(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    local = sharded(tmp_path / "pool", [100, 250])
    store = fsspec.filesystem("memory")
    for file in local.iterdir():
        store.pipe_file(f"/engines/{file.name}", file.read_bytes())
    table = read_parts("fsspec+memory:///engines")
    assert len(table.parts) == 3
    assert tensors_of(
        FITS["mean"]().fit(replace(table, engine=Watched([], [])))
    ) == tensors_of(whole("mean"))


def test_parts_are_found_from_any_working_folder(folder, pool, tmp_path, monkeypatch):
    """As processes of Ray work in folders of their own."""
    monkeypatch.chdir(tmp_path)
    table = read_parts("shards")
    public_table = read_table("pool", y=None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert tensors_of(selected(table, X_public=public_table)) == tensors_of(
        selected(*records())
    )


def test_a_npy_pool_is_cut_for_tasks(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sums, "_PIECE_ROWS", 700)
    np.save(tmp_path / "pool.npy", public_rows())
    watched = Watched([], [])
    model = selected(
        read_parts(folder, engine=watched), X_public=read_table(tmp_path / "pool.npy")
    )
    assert tensors_of(model) == tensors_of(selected(*records()))
    # Five pieces for the scores, and those that were looked at again.
    assert 5 < len(watched.sent) <= 5 + 5


def test_values_come_once_each_with_their_places(ray_engine):
    found = list(ray_engine.each(abs, list(range(0, -50, -1))))
    assert sorted(found) == [(place, place) for place in range(50)]


def test_other_versions_on_the_cluster_are_refused_before_anything_is_charged(
    ray_engine, folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("dppl.engines.__version__", "0.0.0")
    ledger = dppl.Ledger(tmp_path / "ledger.db", dataset="fish", budget=GaussianDP(2.0))
    with pytest.raises(EngineError, match="one version of dppl"):
        FITS["mean"]().fit(read_parts(folder, engine=ray_engine), ledger=ledger)
    assert not ledger.releases()


def test_a_missing_ray_is_said_before_anything_is_charged(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "ray", None)
    ledger = dppl.Ledger(tmp_path / "ledger.db", dataset="fish", budget=GaussianDP(2.0))
    with pytest.raises(MissingExtra, match=r"pip install -e '\.\[ray\]'"):
        FITS["mean"]().fit(read_parts(folder, engine=RayEngine()), ledger=ledger)
    assert not ledger.releases()


def test_rows_are_kept_from_pass_to_pass_and_of_no_other_fit(folder, monkeypatch):
    """As in a worker, which hears of the end of a fit by the beginning of the next one."""
    monkeypatch.setattr(SpreadRecords, "close", lambda _: None)
    reads = []
    whole_table = TablePart.read
    monkeypatch.setattr(
        TablePart, "read", lambda part: reads.append(part) or whole_table(part)
    )
    first = FITS["softmax"]().fit(read_parts(folder))
    assert len(reads) == 5  # and not once a pass
    rows, labels = records()
    write(folder / "part-001.parquet", -rows[100:250], labels[100:250])
    second = FITS["softmax"]().fit(read_parts(folder))
    assert len(reads) == 10
    assert len(sums.CACHE) == 5
    assert tensors_of(first) == tensors_of(whole("softmax")) != tensors_of(second)
    rows[100:250] *= -1
    assert tensors_of(second) == tensors_of(FITS["softmax"]().fit(rows, labels))


def test_what_does_not_fit_is_read_again(folder, monkeypatch):
    monkeypatch.setattr(sums, "CACHE_BYTES", 250 * DIM)
    held = []
    read = sums.reading.checked_inputs
    monkeypatch.setattr(
        sums.reading,
        "checked_inputs",
        lambda *a, **k: (
            held.append(
                sum(len(one.codes) * one.rows.shape[1] for one in sums.CACHE.values())
            )
            or read(*a, **k)
        ),
    )
    assert tensors_of(FITS["softmax"]().fit(read_parts(folder))) == tensors_of(
        whole("softmax")
    )
    assert max(held) == 250 * DIM
    assert len(held) > 20


def test_this_process_keeps_nothing_after_a_fit(folder):
    FITS["softmax"]().fit(read_parts(folder))
    assert not sums.CACHE


@pytest.mark.slow
def test_fits_of_several_threads_do_not_disturb_each_other(tmp_path):
    """What is kept is one for all threads of a process: in all orders, each fit is of its own records."""
    tables = [
        read_parts(sharded(tmp_path / str(n), [40 * (n + 1), 300])) for n in range(2)
    ]
    rows, labels = records()
    tables.append(read_parts(sharded(tmp_path / "other", [60, 300], -rows, labels)))
    alone = [tensors_of(FITS["softmax"]().fit(table)) for table in tables]
    assert alone[0] == alone[1] != alone[2]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as threads:
            found = list(
                threads.map(
                    lambda table: tensors_of(FITS["softmax"]().fit(table)), 4 * tables
                )
            )
    finally:
        sys.setswitchinterval(before)
    assert found == 4 * alone


def test_no_two_fits_have_one_name(folder, monkeypatch):
    """Two that begin at one moment, on clocks as coarse as some are, would get each other's records."""
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    spread = [
        SpreadRecords(
            [[Piece(part)] for part in read_parts(folder).parts],
            LocalEngine(),
            PartReader(CLASSES, "error", "add-remove"),
        )
        for _ in range(100)
    ]
    assert len({one.reader.fit for one in spread}) == 100


def test_engines_have_names(monkeypatch):
    assert engine_of("local") == LocalEngine()
    assert (engine_of("ray"), engine_of("auto")) == (RayEngine(), RayEngine("auto"))
    assert engine_of("ray://head:10001") == RayEngine("ray://head:10001")
    assert engine_of("ray://head:10001?cores=2&gpus=0.5") == RayEngine(
        "ray://head:10001", cores=2, gpus=0.5
    )
    for wrong, message in (
        ("dask", "engine must be local, ray, or the address"),
        ("ray?gpu=1", "engine may say after .* how many cores and gpus"),
        ("ray?cores=", "engine may say after .* how many cores and gpus"),
        ("ray?cores=0", "cores must be an integer"),
        ("ray?gpus=-1", "gpus must be a finite number of at least 0"),
    ):
        with pytest.raises(ParameterError, match=message):
            engine_of(wrong)


def test_tasks_go_where_there_is_room_for_them():
    """On a machine with four cores and a GPU, and on one that has six cores alone."""
    nodes = [
        {"NodeID": "a", "Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}},
        {"NodeID": "b", "Alive": True, "Resources": {"CPU": 6.0}},
        {"NodeID": "c", "Alive": False, "Resources": {"CPU": 6.0, "GPU": 8.0}},
    ]
    scheduling = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
    ray = SimpleNamespace(
        nodes=lambda: nodes, util=SimpleNamespace(scheduling_strategies=scheduling)
    )

    def machines(**given):
        places = RayEngine(**given)._places(ray)
        return "".join(place.get("scheduling_strategy", "") for place in places)

    assert machines() == "aaaabbbbbb"
    assert machines(cores=3) == "abb"
    assert machines(gpus=0.5) == "aa"
    assert machines(gpus=0.1) == "aaaa"
    with pytest.raises(EngineError, match=r"no machine .* 5 cores and 0\.5 GPUs"):
        machines(cores=5, gpus=0.5)


def test_sums_are_those_of_one_process(folder):
    rows, labels = records()
    spread = SpreadRecords(
        [[Piece(part)] for part in read_parts(folder).parts],
        LocalEngine(),
        PartReader(np.array(CLASSES), "error", "add-remove"),
    )
    held = HeldRecords(
        rows, np.where(np.isnan(rows).any(axis=1), -1, np.searchsorted(CLASSES, labels))
    )
    one, other = (some.total(ClassSums(Lattice(DIM), 3)) for some in (spread, held))
    assert (one == other).all()


def public_rows():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(3000, DIM)).astype(np.float32)
    rows[::7] += (
        2 * np.eye(3, DIM, dtype=np.float32)[rng.integers(0, 3, len(rows[::7]))]
    )
    rows[11], rows[12] = np.nan, 0
    return rows


@pytest.fixture
def pool(tmp_path, monkeypatch):
    """Public rows in files, one of which is empty, scored in pieces of one or two files and small parts."""
    monkeypatch.setattr(sums, "_PIECE_ROWS", 1000)
    monkeypatch.setattr(public, "PUBLIC_ROWS", 64)
    rows = public_rows()
    return read_table(
        sharded(tmp_path / "pool", [100, 700, 700, 2200], rows, np.full(len(rows), "")),
        y=None,
    )


SELECTIONS = {
    "one row": {},
    "several rows": {"n_prototypes": 5},
    "without a clip": {"clip": (0, 2)},
    "replace-one": {"adjacency": "replace-one", "n_prototypes": 2},
}


def selected(X, y=None, *, X_public=None, case="one row", **further):
    model = PublicPrototypes(PureDP(1.0), CLASSES, random_state=7, **SELECTIONS[case])
    return model.set_params(
        public=PublicData(public_rows() if X_public is None else X_public)
    ).fit(X, y, **further)


@pytest.mark.slow
@pytest.mark.parametrize("case", SELECTIONS)
@pytest.mark.parametrize(
    "tally_bytes", [1, 1 << 25], ids=["a part a piece", "small parts"]
)
def test_no_selection_depends_on_the_parts(
    case, tally_bytes, folder, pool, monkeypatch
):
    monkeypatch.setattr(public, "_TALLY_BYTES", tally_bytes)
    watched = Watched([], [])
    model = selected(read_parts(folder, engine=watched), X_public=pool, case=case)
    assert tensors_of(model) == tensors_of(selected(*records(), case=case))
    assert len(watched.sent) > 3  # three pieces, and those that were looked at again


@pytest.mark.parametrize("case", SELECTIONS)
def test_no_selection_depends_on_ray(case, folder, pool, ray_engine):
    model = selected(read_parts(folder, engine=ray_engine), X_public=pool, case=case)
    assert tensors_of(model) == tensors_of(selected(*records(), case=case))
    assert Term(Assumption.CLUSTER) in model.guarantee_.assumptions


def test_public_rows_in_memory_are_one_piece(folder, ray_engine):
    model = selected(read_parts(folder, engine=ray_engine), X_public=public_rows())
    assert tensors_of(model) == tensors_of(selected(*records()))


@pytest.mark.parametrize("places", [(0, 0, 1, 2), (0, 1)])
def test_an_engine_that_scores_a_piece_twice_or_never_ends_the_selection(
    places, folder, pool
):
    with pytest.raises(EngineError, match="broken its promise"):
        selected(read_parts(folder, engine=Breaking(places)), X_public=pool)


class OfOnePart(LocalEngine):
    """An engine whose tasks have read the first part of the private records alone."""

    def each(self, function, items):
        if isinstance(function, partial):  # and not what reads public rows
            parts, *rest = function.args
            function = partial(function.func, parts[:1], *rest)
        yield from LocalEngine().each(function, items)


def test_scores_of_some_private_records_would_be_noticed(folder, pool):
    """The control of the tests of equal selections."""
    model = selected(read_parts(folder, engine=OfOnePart()), X_public=pool)
    assert tensors_of(model) != tensors_of(selected(*records()))


def test_a_worker_killed_in_the_middle_of_a_selection_changes_no_bit(
    folder, pool, tmp_path, ray_engine, by_value
):
    (tmp_path / "marks").mkdir()
    model = selected(
        replace(dying(folder, tmp_path / "marks", 3), engine=ray_engine), X_public=pool
    )
    assert len(list((tmp_path / "marks").iterdir())) == 3
    assert tensors_of(model) == tensors_of(selected(*records()))


def test_selections_that_travel_hold_neither_rows_nor_labels(tmp_path, pool):
    """Only what is sought of public rows comes back; of private ones, counts."""
    rows, labels = records()
    labels = np.where(np.arange(N) % 2, "Quastenflosser", labels)
    folder = sharded(tmp_path / "secret", [50, 300], rows, labels)
    watched = Watched([], [])
    model = PublicPrototypes(
        PureDP(1.0), CLASSES, unknown_labels="ignore", random_state=7
    )
    model.set_params(public=PublicData(pool)).fit(read_parts(folder, engine=watched))
    secrets = [
        b"Quastenflosser",
        rows[1].tobytes(),
        Lattice(DIM).transform(rows[1:2]).tobytes(),
    ]
    answers = [pickle.dumps(value) for value in watched.returned]
    assert not any(
        secret in each for secret in secrets for each in watched.sent + answers
    )
    looks = [
        found
        for value in watched.returned
        for found in value
        if isinstance(found, tuple)
    ]
    assert 3 <= sum(len(positions) for *_, positions in looks) < 100  # of 3,000


def test_private_rows_are_read_once_a_process(folder, pool, monkeypatch):
    reads = []
    whole_table = TablePart.read
    monkeypatch.setattr(
        TablePart, "read", lambda part: reads.append(part) or whole_table(part)
    )
    selected(read_parts(folder), X_public=pool)
    assert len(reads) == 5
    assert not sums.CACHE
