"""Streams whose tasks are tables in parts: the bits of one process, and what they rest on once a cluster read one."""

import json
from dataclasses import replace

import numpy as np
import pytest

import dppl
from dppl import GaussianDP, LatticeOptions, Ledger, PublicData
from dppl.continual import (
    ContinualDiscriminant,
    ContinualEnsemble,
    ContinualPrototypes,
    recover,
)
from dppl.engines import LocalEngine, RayEngine
from dppl.errors import BudgetExceeded, InputError, ParameterError, UnknownLabelError
from dppl.io import read_parts
from dppl.kernel import parts as sums
from dppl.kernel import reading
from dppl.kernel.privacy.terms import Assumption, Term
from dppl.lab import FullDataContinual, NaiveContinual
from inside import tensors_of
from laws.recipes import CLASSES, DIM

BUDGET = GaussianDP(1.0)
PUBLIC = PublicData(np.eye(DIM) + 0.1)
# Class, parameters, and arguments of every `partial_fit`.
STREAMS = {
    "prototypes": (ContinualPrototypes, {}, {}),
    "prototypes, mapped": (
        ContinualPrototypes,
        {
            "accumulate": "sum",
            "lattice": LatticeOptions(center="public", pool=2, rotation=3),
            "public": PUBLIC,
        },
        {},
    ),
    "prototypes, overlapping": (ContinualPrototypes, {"tasks": "overlapping"}, {}),
    "discriminant": (ContinualDiscriminant, {}, {}),
    "discriminant with public rows": (ContinualDiscriminant, {"public": PUBLIC}, {}),
    "ensemble of probes": (ContinualEnsemble, {"head_options": {"steps": 3}}, {}),
    "ensemble of softmax": (ContinualEnsemble, {"head": "softmax"}, {}),
    "naive": (NaiveContinual, {"steps": 3}, {}),
    "all data": (FullDataContinual, {"steps": 3}, {}),
}
each_stream = pytest.mark.parametrize("stream", STREAMS)


def make(stream="prototypes", **options):
    kind, own, _ = STREAMS[stream]
    return kind(
        BUDGET,
        CLASSES,
        **{"unknown_labels": "ignore", "random_state": 7} | own | options,
    )


def task(n, seed):
    """Return records, two of which have no direction and some a label that no class has."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(CLASSES), n)
    X = rng.normal(size=(n, DIM)) + 3 * np.eye(len(CLASSES), DIM)[codes]
    X[3:4], X[4:5] = np.nan, 0
    y = np.array([*CLASSES, "elsewhere"])[codes]
    y[::9] = "elsewhere"
    return X, y


def tasks():
    """Return three tasks, of which the second is empty, and the classes that each may hold."""
    return [
        (*task(60, 1), CLASSES[:2]),
        (*task(0, 2), CLASSES),
        (*task(45, 3), CLASSES[1:]),
    ]


def parts(folder, X, y, rows=13):
    """Write the records, and return them as parts of so many rows."""
    folder.mkdir(exist_ok=True, parents=True)
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", y)
    return read_parts(folder / "x.npy", labels=folder / "y.npy", rows=rows)


def learned(stream, **further):
    """Learn the tasks as arrays."""
    model = make(stream)
    for X, y, allowed in tasks():
        model.partial_fit(X, y, task_classes=allowed, **further)
    return model


def learned_in_parts(stream, folder, engine=None, rows=13, **further):
    model = make(stream)
    for X, y, allowed in tasks():
        table = parts(folder, X, y, rows)
        model.partial_fit(
            replace(table, engine=engine or LocalEngine()),
            task_classes=allowed,
            **further,
        )
    return model


@pytest.mark.slow
@each_stream
def test_no_bit_depends_on_the_parts(stream, tmp_path):
    whole = learned(stream)
    for rows in (1, 13, 1000):
        model = learned_in_parts(stream, tmp_path, rows=rows)
        assert model.n_tasks_ == 3
        assert tensors_of(model) == tensors_of(whole)
        assert model.guarantee_ == whole.guarantee_


@each_stream
def test_no_bit_depends_on_ray(stream, tmp_path, ray_engine):
    model = learned_in_parts(stream, tmp_path, ray_engine)
    assert tensors_of(model) == tensors_of(learned(stream))


@each_stream
def test_fit_learns_one_task_in_parts(stream, tmp_path):
    X, y, _ = tasks()[0]
    assert tensors_of(make(stream).fit(parts(tmp_path, X, y))) == tensors_of(
        make(stream).fit(X, y)
    )


class Mixed(LocalEngine):
    """An engine that takes the first part for the second, too; a part that it yields twice is refused."""

    def each(self, function, items):
        yield from super().each(
            function, [items[0], items[0], *items[2:]][: len(items)]
        )


@each_stream
def test_a_part_that_counts_twice_would_be_noticed(stream, tmp_path):
    assert tensors_of(learned_in_parts(stream, tmp_path, Mixed())) != tensors_of(
        learned(stream)
    )


def test_records_of_other_classes_than_the_task_may_hold_would_be_noticed(
    tmp_path, monkeypatch
):
    """The other control of equal bits: codes as they are read, and not those of the task."""
    monkeypatch.setattr(reading, "within_task", lambda codes, *others: codes)
    seen = learned_in_parts("naive", tmp_path)
    monkeypatch.undo()
    assert tensors_of(seen) != tensors_of(learned("naive"))


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_correlated_noise_keeps_the_same_state(engine, tmp_path, request):
    engine = (
        LocalEngine() if engine == "local" else request.getfixturevalue("ray_engine")
    )
    models = []
    for name, given in (("arrays", None), ("parts", engine)):
        model = make(noise="toeplitz", max_tasks=4)
        for X, y, allowed in tasks():
            data = (
                {"X": X, "y": y}
                if given is None
                else {"X": replace(parts(tmp_path, X, y), engine=given)}
            )
            model.partial_fit(
                **data, task_classes=allowed, state=tmp_path / f"{name}.state"
            )
        recover(tmp_path / f"{name}.state", tmp_path / f"{name}.safetensors")
        models += [model, dppl.load(tmp_path / f"{name}.safetensors")]
    assert (
        tensors_of(models[0])
        == tensors_of(models[1])
        == tensors_of(models[2])
        == tensors_of(models[3])
    )


class Cluster(LocalEngine):
    """This process, which says of itself what Ray says."""

    assumption = RayEngine().assumption


def test_a_stream_rests_on_the_cluster_from_the_first_task_that_it_read(tmp_path):
    (X, y, _), model = tasks()[0], make()
    usual = make().partial_fit(X, y).guarantee_.assumptions
    for engine, said in (
        (LocalEngine(), 0),
        (Cluster(), 1),
        (LocalEngine(), 1),
        (Cluster(), 1),
    ):
        model.partial_fit(replace(parts(tmp_path, X, y), engine=engine))
        assert model.guarantee_.assumptions.count(Term(Assumption.CLUSTER)) == said
        assert len(model.guarantee_.assumptions) == len(usual) + said
        model.save(tmp_path / "model.safetensors", overwrite=True)
        assert dppl.load(tmp_path / "model.safetensors").guarantee_ == model.guarantee_
    model.partial_fit(X, y)
    assert model.n_tasks_ == 5
    assert Term(Assumption.CLUSTER) in model.guarantee_.assumptions
    json.dumps(model.guarantee_.to_dict())


def test_a_label_that_a_task_may_not_hold_stops_it_and_the_charge_stays(tmp_path):
    X, y, _ = tasks()[0]
    y = np.where(y == "elsewhere", CLASSES[0], y)
    ledger = Ledger(tmp_path / "ledger.db", dataset="fish", budget=GaussianDP(2.0))
    model = make(unknown_labels="error").partial_fit(
        parts(tmp_path, X, y), ledger=ledger, partition="one"
    )
    before = tensors_of(model)
    with pytest.raises(
        UnknownLabelError, match="must be one of task_classes"
    ) as failure:
        model.partial_fit(
            parts(tmp_path, X, y),
            task_classes=CLASSES[1:],
            ledger=ledger,
            partition="two",
        )
    assert not any(
        name in str(failure.value) for name in (repr(one) for one in CLASSES)
    )
    assert "The ledger keeps the charge" in failure.value.__notes__[0]
    assert len(ledger.releases()) == 2
    assert tensors_of(model) == before
    assert not sums.CACHE


REFUSED = {
    "labels beside the parts": ({"y": tasks()[0][1]}, {}, "hold their own labels"),
    "no classes": ({}, {"classes": None}, "must stay what it was"),
    "another parameter": ({}, {"accumulate": "sum"}, "must stay what it was"),
    "a state": ({"state": "stream.state"}, {}, "correlated noise"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_learned_is_refused_before_anything_is_charged(case, tmp_path):
    given, options, message = REFUSED[case]
    X, y, _ = tasks()[0]
    ledger = Ledger(tmp_path / "ledger.db", dataset="fish", budget=GaussianDP(2.0))
    model = make().partial_fit(parts(tmp_path, X, y)).set_params(**options)
    with pytest.raises((ParameterError, InputError), match=message):
        model.partial_fit(parts(tmp_path, X, y), ledger=ledger, **given)
    assert not ledger.releases()
    assert model.n_tasks_ == 1


def test_parts_of_another_width_or_encoder_are_refused_before_anything_is_charged(
    tmp_path,
):
    X, y, _ = tasks()[0]
    ledger = Ledger(tmp_path / "ledger.db", dataset="fish", budget=GaussianDP(2.0))
    model = make().partial_fit(X, y)
    with pytest.raises(InputError, match=f"X has {DIM + 1} features"):
        model.partial_fit(parts(tmp_path, np.ones((9, DIM + 1)), y[:9]), ledger=ledger)
    model.encoder_ = "one"
    table = parts(tmp_path, X, y)
    object.__setattr__(table, "metadata", {"encoder": "two"})
    with pytest.raises(InputError, match="another encoder"):
        model.partial_fit(table, ledger=ledger)
    assert not ledger.releases()


def test_the_ledger_is_asked_before_a_part_is_read(tmp_path):
    X, y, _ = tasks()[0]
    ledger = Ledger(tmp_path / "ledger.db", dataset="fish", budget=GaussianDP(0.5))
    table = parts(tmp_path, X, y)
    (tmp_path / "x.npy").unlink()  # would be an error if it were read
    with pytest.raises(BudgetExceeded):
        make().partial_fit(table, ledger=ledger)
