"""What a file states is computed again: every honest model verifies, and every number that was changed is found."""

import contextlib
import json
import tracemalloc
import warnings

import numpy as np
import pytest

import dppl
from checksums import forged
from dppl import (
    ApproxDP,
    Classifier,
    GaussianDP,
    Ledger,
    MeanPrototypes,
    PrivateSearch,
    PublicData,
    PureDP,
    SoftmaxPrototypes,
)
from dppl._utils import tensorfile
from dppl.audit.verification import verify
from dppl.errors import DpplError, ModelFileError
from dppl.finetune import Recipe, SparseFinetuner
from dppl.kernel import Measurement
from dppl.kernel.queries import ClassSums
from dppl.methods.model_file import KEY
from dppl.methods.registry import BY_NAME
from laws.recipes import CHARGED, KINDS, SHARED
from laws.streams import learn, stream

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))
Y = np.array(list("abc"))[RNG.integers(0, 3, 40)]
PERSONS = np.arange(40) // 3


def fits(kind, folder):
    """Yield the models of all fits that a kind allows: of records, of persons, and of a stream."""
    records, y = kind.records(40)
    yield kind.fit(records, y)
    for options in ({}, {"max_classes_per_person": 2}):
        try:
            yield kind.fit(records, y, given={"groups": PERSONS}, **options)
        except (
            DpplError,
            TypeError,
        ):  # a stream, an adjacency or a sum that persons do not have
            continue
    if hasattr(kind.cls, "partial_fit"):
        correlated = kind.recipe.options.get("noise", "independent") != "independent"
        yield learn(
            kind, stream(kind), how={"state": folder / "state"} if correlated else {}
        )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_model_verifies(kind, tmp_path):
    for model in fits(kind, tmp_path):
        found = verify(model)
        assert found.holds, str(found)
        assert str(found).endswith("Verified.")
        json.dumps(found.to_dict())


@pytest.fixture(scope="module")
def network():
    """Weights of a small network, trained with noise: in samples, and in full batches."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)
    )
    options = {"train": ["head"], "recipe": Recipe(epochs=2, batch_size=20.0, block=8)}
    full = SparseFinetuner(
        module, GaussianDP(1.0), list("abc"), sampling_rate=1.0, **options
    )
    sampled = SparseFinetuner(
        module, ApproxDP(3.0, 1e-5), list("abc"), sampling_rate=0.5, **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            name: one.fit(X.astype(np.float32), Y)
            for name, one in (("full", full), ("sampled", sampled))
        }


@pytest.fixture(params=["full", "sampled"])
def trained(request, network):
    return network[request.param]


def search(scoring="accuracy"):
    estimator = MeanPrototypes(ApproxDP(1.0, 1e-6), list("abc"))
    return PrivateSearch(
        estimator, {"lattice__pool": [1, 2, 3]}, mean_runs=2, scoring=scoring
    )


def test_a_network_and_a_search_verify(trained):
    for model in (
        trained,
        search().fit(X, Y),
        search("balanced").fit(X, Y, groups=PERSONS),
    ):
        found = verify(model)
        assert found.holds, str(found)


def numbers_of(guarantee):
    """Yield the way to each number that a statement holds of releases and budget."""
    for place, release in enumerate(guarantee["releases"]):
        yield "releases", place, "sensitivity"
        yield "releases", place, "times"
        yield from (
            ("releases", place, group, name)
            for group in ("parameters", "cost")
            for name in release[group]
        )
    yield from (("budget", name) for name in guarantee["budget"])


def changed(guarantee, way, factor):
    """Return the statement with one number changed; a count by 1."""
    copied = json.loads(json.dumps(guarantee))
    *path, last = way
    place = copied
    for name in path:
        place = place[name]
    place[last] = (
        place.get(last, 1) + (1 if factor > 1 else -1)
        if last in ("times", "mean_runs")
        else factor * place[last]
    )
    return copied


def is_found(path, description, guarantee, key="dppl"):
    """Write the file with another statement and the checksum that fits it, and return whether the lie is noticed."""
    forged(path, {**description, "guarantee": guarantee}, key=key)
    return not verify(path).holds


def raw(path, key="dppl"):
    from dppl._utils import tensorfile

    return tensorfile.read(path, key)[0]


def check_every_change_is_found(path, key="dppl"):
    description = raw(path, key)
    guarantee = description["guarantee"]
    assert not is_found(path, description, guarantee, key), (
        "the negative control: as it was"
    )
    sampled = (
        "delta" in guarantee["releases"][0]["cost"]
    )  # each takes a second to calibrate
    for way in numbers_of(guarantee):
        for factor in (0.99,) if sampled else (0.99, 1.01):
            assert is_found(path, description, changed(guarantee, way, factor), key), (
                way,
                factor,
            )
    releases = guarantee["releases"]
    for other in ([*releases[1:]], [*releases, releases[-1]]):
        assert is_found(path, description, {**guarantee, "releases": other}, key)
    for name, value in (
        ("adjacency", "replace-one"),
        ("unit", "person"),
        ("exact", False),
    ):
        if guarantee[name] != value:
            assert is_found(path, description, {**guarantee, name: value}, key), name
    for place in range(len(guarantee["not_covered"])):
        others = (
            guarantee["not_covered"][:place] + guarantee["not_covered"][place + 1 :]
        )
        if not is_found(path, description, {**guarantee, "not_covered": others}, key):
            # What only the private table or the ledger decides is not for parameters to
            # say.
            code = guarantee["not_covered"][place]["code"]
            assert code in (
                *("rows_mix", "unknown_label_stop", "strict_stop"),
                *("id_stop", "partly_charged"),
            )


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHARED, ids=str)
def test_every_changed_number_is_found(kind, tmp_path):
    path = tmp_path / "m.safetensors"
    kind.fit(*kind.records(40)).save(path)
    check_every_change_is_found(path)


def test_every_changed_number_of_a_search_is_found(tmp_path):
    path = tmp_path / "m.safetensors"
    search().fit(X, Y).save(path)
    check_every_change_is_found(path)


def test_every_changed_number_of_a_network_is_found(trained, tmp_path):
    path = tmp_path / "m.safetensors"
    trained.save(path)
    check_every_change_is_found(path, "dppl_finetune")


def test_parameters_that_cost_more_are_found(tmp_path):
    """Not the statement is changed here, but what it is about."""
    path = tmp_path / "m.safetensors"
    SoftmaxPrototypes(ApproxDP(1.0, 1e-6), list("abc")).fit(X, Y, groups=PERSONS).save(
        path
    )
    description = raw(path)
    forged(path, description | {"estimator": "MeanPrototypes"})
    assert not verify(path).holds
    MeanPrototypes(ApproxDP(1.0, 1e-6), list("abc"), max_classes_per_person=2).fit(
        X, Y, groups=PERSONS
    ).save(path, overwrite=True)
    description = raw(path)
    assert verify(path).holds
    forged(
        path,
        description
        | {"parameters": description["parameters"] | {"max_classes_per_person": 1}},
    )
    assert not verify(path).holds


def test_what_a_forged_file_states_fills_no_screen(tmp_path):
    path = tmp_path / "m.safetensors"
    MeanPrototypes(ApproxDP(1.0, 1e-6), list("abc")).fit(X, Y).save(path)
    description = raw(path)
    usual = len(str(verify(path)))
    for name, lie in (("adjacency", "x" * 10**6), ("exact", ["x"] * 10**5)):
        forged(
            path, description | {"guarantee": description["guarantee"] | {name: lie}}
        )
        found = verify(path)
        assert not found.holds
        assert name in str(found)
        assert len(str(found)) < usual + 1000


class Own(Classifier):
    def measurements(self, setting):
        return {"sums": Measurement(ClassSums(setting.lattice, setting.n_classes))}

    def learn(self, measure, setting):
        self.coef_ = measure("sums") / measure.unit("sums")


def test_a_method_of_ones_own_cannot_be_verified_unless_it_is_known(
    tmp_path, monkeypatch
):
    path = tmp_path / "own.safetensors"
    Own(GaussianDP(1.0), list("abc")).fit(X, Y).save(path)
    found = verify(path)
    assert not found.holds
    assert "Own is no method of dppl" in found.reason
    assert str(found).startswith("It cannot be verified")


def test_a_damaged_file_is_an_error(tmp_path):
    path = tmp_path / "m.safetensors"
    MeanPrototypes(GaussianDP(1.0), list("abc")).fit(X, Y).save(path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ModelFileError, match="is damaged"):
        verify(path)
    path.write_bytes(content)
    forged(path, raw(path) | {"guarantee": {"budget": {"mu": 1.0}, "unit": 3}})
    with pytest.raises(ModelFileError, match="form that cannot be read"):
        verify(path)
    with pytest.raises(FileNotFoundError, match="no model file"):
        verify(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "kind", [one for one in SHARED if one in CHARGED and one.adjacency == "add-remove"]
)
def test_the_charge_of_a_ledger_names_the_file_and_its_cost(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    ledger = Ledger(
        folder / "ledger.db",
        "wards",
        PureDP(9.0) if kind.recipe.budget == PureDP(1.0) else dppl.ZCDP(90.0),
    )
    path = folder / "m.safetensors"
    records, y = kind.records(40)
    correlated = kind.recipe.options.get("noise", "independent") != "independent"
    if hasattr(kind.cls, "partial_fit"):
        how = {"ledger": ledger} | ({"state": folder / "state"} if correlated else {})
        model = learn(kind, stream(kind), how=how)
    else:
        model = kind.fit(records, y, given={"ledger": ledger})
    model.save(path)
    found = verify(path, ledger=ledger)
    assert found.holds, str(found)
    # The same model once more is another release: this charge is not its own.
    other = kind.fit(records, y) if not correlated else kind.make()
    if not correlated:
        assert not verify(other, ledger=ledger).holds


def test_a_charge_of_another_cost_is_found(tmp_path):
    import sqlite3

    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(9.0))
    path = tmp_path / "m.safetensors"
    MeanPrototypes(GaussianDP(1.0), list("abc")).fit(X, Y, ledger=ledger).save(path)
    assert verify(path, ledger=ledger).holds
    # Other weights under the same statement: the file is not the one that was paid for.
    content = path.read_bytes()
    model = dppl.load(path)
    forged(path, raw(path), {"prototypes": model.prototypes_ + 1})
    found = verify(path, ledger=ledger)
    assert [check.what for check in found.checks if not check.holds] == [
        "ledger: hash of the file"
    ]
    path.write_bytes(content)
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute(
            "UPDATE dppl_releases SET cost = ?",
            (json.dumps({"mu": 0.5, "rho": 0.125}),),
        )
    connection.close()
    found = verify(path, ledger=ledger)
    assert [check.what for check in found.checks if not check.holds] == [
        "ledger: wards, release 1"
    ]
    others = Ledger(tmp_path / "ledger.db", "others", GaussianDP(9.0))
    assert not verify(path, ledger=others).holds
    of_persons = Ledger(
        tmp_path / "ledger.db", "persons", GaussianDP(9.0), unit="person"
    )
    MeanPrototypes(GaussianDP(1.0), list("abc")).fit(
        X, Y, groups=PERSONS, ledger=of_persons
    )
    assert not verify(path, ledger=of_persons).holds


def test_every_estimator_is_among_these():
    assert {kind.entry.name for kind in KINDS} == set(BY_NAME)


RECORDS = {"records": X}


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (
            lambda fields, tensors: tensors.update(RECORDS),
            "records is no part of a model",
        ),
        (
            lambda fields, tensors: fields.update(RECORDS),
            "records is no part of a model",
        ),
        (
            lambda fields, tensors: fields["guarantee"].update(RECORDS),
            "guarantee, records is no part of a model",
        ),
    ],
)
def test_a_file_that_holds_more_than_a_model_is_found(lie, found, tmp_path):
    from dppl._utils import tensorfile

    path = tmp_path / "m.safetensors"
    MeanPrototypes(GaussianDP(1.0), list("abc")).fit(X, Y).save(path)
    fields, tensors = tensorfile.read(path, "dppl")
    lie(fields, tensors)
    path.write_bytes(tensorfile.to_bytes("dppl", fields, tensors))
    (differs,) = [check for check in verify(path).checks if not check.holds]
    assert differs.stated == found


@pytest.mark.parametrize("twice", [False, True])
def test_bytes_that_no_reader_looks_at_are_found(twice, tmp_path):
    from hashlib import sha256

    from safetensors.numpy import load_file, save

    path = tmp_path / "m.safetensors"
    MeanPrototypes(GaussianDP(1.0), list("abc")).fit(X, Y).save(path)
    text = json.dumps(
        {"checksum": "0" * 64, **raw(path)}, sort_keys=True, ensure_ascii=False
    )
    # Beside the description, or in it under a name that comes twice.
    hidden = {} if twice else {"other": "records"}
    text = '{"classes": "records", ' + text[1:] if twice else text
    content = save(load_file(path), {"dppl": text, **hidden})
    path.write_bytes(
        content.replace(b"0" * 64, sha256(content).hexdigest().encode(), 1)
    )
    if twice:
        with pytest.raises(ModelFileError, match="cannot be read"):
            verify(path)
        return
    (differs,) = [check for check in verify(path).checks if not check.holds]
    assert differs.stated == "there are bytes that no reader looks at"


def test_a_network_with_more_fields_is_none(trained, tmp_path):
    path = tmp_path / "m.safetensors"
    trained.save(path)
    fields = raw(path, "dppl_finetune")
    for lie in (
        {"records": [1]},
        {"guarantee": fields["guarantee"] | {"records": [1]}},
    ):
        forged(path, fields | lie, key="dppl_finetune")
        assert not verify(path).holds


def test_noise_of_a_seed_is_said():
    honest, seeded = (
        MeanPrototypes(GaussianDP(1.0), list("abc"), random_state=seed).fit(X, Y)
        for seed in (None, 1)
    )
    assert any("from the operating system" in text for text in verify(honest).believed)
    assert not any(
        "from the operating system" in text for text in verify(seeded).believed
    )
    assert any("from a seed" in text for text in verify(seeded).believed)


def rewritten(model, tmp_path, change):
    """Write a model file of which the description was changed, with its checksum."""
    path = tmp_path / "model.safetensors"
    model.save(path, overwrite=True)
    fields, _ = tensorfile.read(path, KEY)
    change(fields)
    forged(path, fields)
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["parameters"].update(n_prototypes=10**7),
        lambda d: d["parameters"].update(n_prototypes=10**18),
        lambda d: d["lattice"].update(n_features=2 * 10**6),
    ],
)
def test_stand_ins_of_a_forged_file_do_not_fill_the_memory(change, tmp_path):
    public = PublicData(X + 0.5)
    model = BY_NAME["PublicPrototypes"].load()(PureDP(1.0), list("abc"), public=public)
    path = rewritten(model.fit(X, Y), tmp_path, lambda d: None)
    assert verify(path).holds
    tracemalloc.start()
    try:
        found = verify(rewritten(model, tmp_path, change))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not found.holds
    assert "more than a check computes with" in str(found)
    assert peak < 2**26


@pytest.mark.parametrize("steps", [10**18, 10**400, 0.5, "a", [1], {"a": 1}])
def test_any_number_of_steps_of_a_forged_file_ends_in_its_error(steps, tmp_path):
    model = BY_NAME["GlobalAdapt"].load()(ApproxDP(1.0, 1e-6), list("abc")).fit(X, Y)
    assert verify(model).holds
    path = rewritten(model, tmp_path, lambda d: d["parameters"].update(steps=steps))
    with contextlib.suppress(ModelFileError):
        assert not verify(path).holds
