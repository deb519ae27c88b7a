"""A stream of tasks: what it releases, what it costs, and what is left of it when something goes wrong."""

from dataclasses import replace

import numpy as np
import pytest

import dppl
from dppl import ZCDP, GaussianDP, LatticeOptions, Ledger, MeanPrototypes, PublicData
from dppl.continual import ContinualPrototypes, _sums
from dppl.continual._sums import ReleasedSums
from dppl.errors import InputError, ModelFileError, ParameterError
from dppl.io import EmbeddingTable
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.terms import PublicInput, Term
from dppl.lab.task_streams import class_incremental, shuffled
from inside import behind
from laws.recipes import BY_NAME, CLASSES, DIM
from laws.streams import replay

QUARTER = ZCDP(0.25)
RULES = ("weighted", "sum")
each_rule = pytest.mark.parametrize("accumulate", RULES)


def make(budget=QUARTER, classes=CLASSES, **options):
    return ContinualPrototypes(budget, classes, **({"random_state": 0} | options))


def records(n=12, seed=1, n_classes=3, dim=DIM):
    """Return n records whose classes differ, and the codes of their classes."""
    rng = np.random.default_rng(100 + seed)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, dim)) + 3 * np.eye(n_classes, dim)[y], y


def named(codes):
    return np.array(CLASSES)[codes]


def stream(n_tasks=3):
    """Return a few tasks, of which the second is empty."""
    tasks = [records(seed=seed) for seed in range(n_tasks)]
    tasks[1] = (np.zeros((0, DIM)), np.zeros(0, int))
    return [(X, named(y)) for X, y in tasks]


def learn(tasks, model=None, **options):
    model = make(**options) if model is None else model
    for X, y in tasks:
        model.partial_fit(X, y)
    return model


# What it computes


@each_rule
@pytest.mark.parametrize(
    "options",
    [{}, {"lattice": LatticeOptions(pool=2, rotation=3, center=np.full(DIM, 0.1))}],
    ids=["", "mapped"],
)
def test_one_task_is_mean_prototypes_bit_for_bit(accumulate, options):
    X, y = records()
    mean = MeanPrototypes(QUARTER, CLASSES, random_state=7, **options).fit(X, named(y))
    for fit in ("fit", "partial_fit"):
        model = getattr(make(accumulate=accumulate, random_state=7, **options), fit)(
            X, named(y)
        )
        assert model.prototypes_.tobytes() == mean.prototypes_.tobytes()
        assert (model.decision_function(X) == mean.decision_function(X)).all()
        assert model.guarantee_.mu == mean.guarantee_.mu


@each_rule
@pytest.mark.filterwarnings("ignore::dppl.errors.WeakBudgetWarning")
def test_without_noise_neither_the_split_nor_its_order_matters(accumulate):
    X, y = records(60)
    for make_stream in (class_incremental, shuffled):
        tasks = [
            (X[task.rows], named(y[task.rows]))
            for task in make_stream(y, [0, 1, 2], 3, seed=0)
        ]
        whole, parts, reverse = (
            learn(order, budget=GaussianDP(1e5), accumulate=accumulate)
            for order in ([(X, named(y))], tasks, tasks[::-1])
        )
        assert np.allclose(parts.prototypes_, whole.prototypes_, atol=1e-4)
        assert np.allclose(parts.prototypes_, reverse.prototypes_, rtol=1e-12)
        assert (parts.predict(X) == whole.predict(X)).all()


def test_published_sums_add_up_and_the_noise_of_no_two_tasks_is_the_same():
    empty = np.zeros((0, DIM)), np.zeros(0, str)
    one, two = (learn(n * [empty], accumulate="sum").prototypes_ for n in (1, 2))
    assert not np.isclose(two, 2 * one).any()
    tasks = stream()
    assert np.allclose(
        learn(tasks, accumulate="sum").prototypes_, learn(tasks).released_.total
    )


def test_weights_are_right_whether_a_class_is_in_one_task_or_in_all():
    """The loss of either world is far below what the wrong rule loses."""
    n_classes = 30
    dim = 64
    n_tasks = 30
    # Another seed than that of the noise, which would draw the centres again.
    rng = np.random.default_rng(5)
    centers = rng.normal(size=(n_classes, dim))
    y = rng.integers(n_classes, size=3000)
    X = 0.6 * centers[y] + rng.normal(size=(len(y), dim))
    accuracy = {}
    for make_stream in (class_incremental, shuffled):
        tasks = [
            (X[task.rows], y[task.rows])
            for task in make_stream(y, range(n_classes), n_tasks, seed=1)
        ]
        for rule in RULES:
            model = learn(
                tasks, budget=GaussianDP(0.2), classes=range(n_classes), accumulate=rule
            )
            accuracy[make_stream, rule] = model.score(X, y)
    # The published sums are as good as one task with sqrt(30) times the noise, whatever
    # the stream.
    assert accuracy[class_incremental, "sum"] == pytest.approx(
        accuracy[shuffled, "sum"], abs=0.03
    )
    assert 0.1 < accuracy[shuffled, "sum"] < 0.4
    assert accuracy[class_incremental, "weighted"] > 0.8
    assert accuracy[shuffled, "weighted"] > accuracy[shuffled, "sum"] - 0.02


def test_evidence_of_noise_stays_low_over_many_tasks_and_that_of_a_signal_does_not():
    rng = np.random.default_rng(0)
    variance = np.ones(2000)
    noise = rng.normal(size=(2000, 50))
    weights, evidence = _sums.presence(noise, variance)
    assert weights.mean() < 0.02
    assert evidence.mean() < 0
    weights, evidence = _sums.presence(noise + 2, variance)
    assert weights.min() > 0.5
    assert evidence.min() > 5
    assert (_sums.evidence_of(np.zeros((3, 50)), np.ones(3)) == -1).all()


def test_a_class_that_no_task_could_hold_is_never_predicted():
    X, y = records()
    kept = y < 2
    model = make().partial_fit(X[kept], named(y[kept]), task_classes=["b", "a"])
    assert (model.predict(-X) != "c").all()
    assert model.released_.n_sums.tolist() == [1, 1, 0]
    assert not model.prototypes_[2].any()
    model.partial_fit(X, named(y))
    assert model.released_.n_sums.tolist() == [2, 2, 1]
    assert (model.prototypes_[2] == model.released_.total[2]).all()


def test_a_task_that_does_not_continue_the_earlier_ones_is_refused():
    X, y = records()
    table = lambda encoder: EmbeddingTable.of(X, metadata={"encoder": encoder})  # noqa: E731
    model = make().partial_fit(table("one"), named(y))
    before = model.to_bytes()
    with pytest.raises(InputError, match="encoder"):
        model.partial_fit(table("other"), named(y))
    with pytest.raises(ValueError, match="expecting 6 features"):
        model.partial_fit(X[:, :5], named(y))
    for name, value in {
        "budget": ZCDP(0.5),
        "accumulate": "sum",
        "classes": ["a", "b"],
        "lattice": LatticeOptions(pool=2),
    }.items():
        changed = getattr(model, name)
        with pytest.raises(ParameterError, match=f"{name} must stay"):
            model.set_params(**{name: value}).partial_fit(X, named(y))
        model.set_params(**{name: changed})
    assert model.to_bytes() == before
    assert model.partial_fit(X, named(y)).encoder_ == "one"
    with pytest.raises(ParameterError, match="public list of classes"):
        make(classes=None).partial_fit(X, named(y))


# What it promises, beside the laws of tests/laws/test_streams.py


def test_a_number_of_sums_that_counts_tasks_with_records_is_noticed(monkeypatch):
    kind = BY_NAME["ContinualPrototypes add-remove"]
    case = (
        [
            (np.ones((2, DIM)), ["a", "a"]),
            (np.zeros((0, DIM)), []),
            (np.zeros((0, DIM)), []),
        ],
        2,
        np.ones(DIM),
        "b",
    )
    replay(kind, *case)
    whole = ContinualPrototypes.learn

    def learn(self, measure, setting):
        whole(self, measure, setting)
        codes = behind(measure).records.codes
        self.released_.n_sums[:] -= (
            np.bincount(codes[codes >= 0], minlength=len(CLASSES)) == 0
        )

    monkeypatch.setattr(ContinualPrototypes, "learn", learn)
    with pytest.raises(AssertionError):
        replay(kind, *case)


def test_public_rows_are_read_once(tmp_path):
    public = np.random.default_rng(3).normal(size=(9, DIM)) + 1
    first, _, third = stream()
    model = make(
        lattice=LatticeOptions(center="public"), public=PublicData(public)
    ).partial_fit(*first)
    model.partial_fit(*third)
    assert Term(PublicInput.PUBLIC_ROWS) in model.guarantee_.public_inputs
    model.save(tmp_path / "m.safetensors")
    again = dppl.load(tmp_path / "m.safetensors").set_params(random_state=0)
    assert again.partial_fit(*first).to_bytes() == model.partial_fit(*first).to_bytes()
    assert Term(PublicInput.PUBLIC_ROWS) in again.guarantee_.public_inputs


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_tasks": [0]},
        {"n_sums": [4, 0, 0]},
        {"n_sums": [-1, 0, 0]},
        {"n_tasks": [1, 1]},
    ],
)
def test_a_file_whose_numbers_of_tasks_contradict_each_other_is_refused(
    wrong, tmp_path, monkeypatch
):
    model = learn(stream())
    whole = ReleasedSums.to_tensors
    arrays = {name: np.array(value, np.int64) for name, value in wrong.items()}
    monkeypatch.setattr(ReleasedSums, "to_tensors", lambda self: whole(self) | arrays)
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(ModelFileError):
        dppl.load(tmp_path / "m.safetensors")


# What a reviewer broke


def test_the_model_of_a_search_does_not_go_on(tmp_path):
    """Its statement is of a search, which that of one more task would replace."""
    X, y = records(90)
    search = dppl.PrivateSearch(
        make(dppl.ApproxDP(2.0, 1e-6)),
        {"accumulate": list(RULES)},
        mean_runs=2,
        random_state=0,
    ).fit(X, named(y))
    search.save(tmp_path / "m.safetensors")
    again = dppl.load(tmp_path / "m.safetensors")
    content = again.to_bytes()
    account = Ledger(tmp_path / "ledger.db", "records", GaussianDP(9.0))
    with pytest.raises(ParameterError, match="start over with fit"):
        again.partial_fit(X, named(y), ledger=account)
    assert again.to_bytes() == content
    assert account.releases() == []
    best = search.best_estimator_
    best.set_params(budget=ZCDP(search.guarantee_.releases[0].cost["rho_per_run"]))
    with pytest.raises(ParameterError, match=r"start over with fit|budget must stay"):
        best.partial_fit(X, named(y))


@pytest.mark.parametrize("kind", [list, lambda names: np.array(names, "<U9")])
def test_a_class_list_that_was_changed_in_place_is_refused_before_anything_is_paid(
    kind, tmp_path
):
    classes = kind(CLASSES)
    model = learn(stream(2)[:1], classes=classes)
    content = model.to_bytes()
    account = Ledger(tmp_path / "ledger.db", "records", GaussianDP(9.0))
    classes[1] = "z"
    with pytest.raises(ParameterError, match="classes must stay"):
        model.partial_fit(*stream(2)[0], ledger=account)
    assert account.releases() == []
    assert model.to_bytes() == content


def test_a_task_whose_file_could_not_be_read_is_refused_before_the_charge(tmp_path):
    """Of 1,001 charges no file is read."""
    account = Ledger(tmp_path / "ledger.db", "records", GaussianDP(9.0))
    model = make().partial_fit(*stream(2)[0], ledger=account)
    model.guarantee_ = replace(
        model.guarantee_, charges=tuple(Charge("records", n) for n in range(1000))
    )
    with pytest.raises(ModelFileError, match="too long"):
        model.partial_fit(*stream(2)[0], ledger=account)
    assert len(account.releases()) == 1


@pytest.mark.parametrize(
    "X",
    [np.arange(137.0), [], [["Jane"] * DIM] * 2, {0: 1}],
    ids=["1d", "empty", "texts", "dict"],
)
def test_wrong_rows_of_a_later_task_get_the_messages_of_the_first(X):
    said = []
    for model in (make(), learn(stream(2)[:1])):
        with pytest.raises((InputError, TypeError, ParameterError)) as raised:
            model.partial_fit(X, ["a"])
        said.append(str(raised.value))
        assert raised.value.__cause__ is None
        assert "137" not in said[-1]
        assert "Jane" not in said[-1]
    assert said[0] == said[1]
