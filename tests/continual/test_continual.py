"""A stream of tasks: what it releases, what it costs, and what is left of it when something goes wrong."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dppl
from dppl import ZCDP, GaussianDP, Ledger, MeanPrototypes
from dppl.continual import ContinualPrototypes, _presence
from dppl.continual._sums import ReleasedSums
from dppl.continual.streams import class_incremental, shuffled
from dppl.data import EmbeddingTable
from dppl.errors import BudgetExceeded, InputError, ModelFileError, ParameterError, UnknownLabelError
from dppl.mechanisms import RoundedGaussian
from laws.recipes import CLASSES, DIM, rows
from laws.replay import clip_nothing, spent, watched

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
@pytest.mark.parametrize("options", [{}, {"pool": 2, "rotation": 3, "center": np.full(DIM, 0.1)}], ids=["", "mapped"])
def test_one_task_is_mean_prototypes_bit_for_bit(accumulate, options):
    X, y = records()
    mean = MeanPrototypes(QUARTER, CLASSES, random_state=7, **options).fit(X, named(y))
    for fit in ("fit", "partial_fit"):
        model = getattr(make(accumulate=accumulate, random_state=7, **options), fit)(X, named(y))
        assert model.prototypes_.tobytes() == mean.prototypes_.tobytes()
        assert (model.decision_function(X) == mean.decision_function(X)).all()
        assert model.guarantee_.mu == mean.guarantee_.mu


@each_rule
@pytest.mark.filterwarnings("ignore::dppl.errors.WeakBudgetWarning")
def test_without_noise_neither_the_split_nor_its_order_matters(accumulate):
    X, y = records(60)
    for make_stream in (class_incremental, shuffled):
        tasks = [(X[task.rows], named(y[task.rows])) for task in make_stream(y, [0, 1, 2], 3, seed=0)]
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
    assert np.allclose(learn(tasks, accumulate="sum").prototypes_, learn(tasks).released_.total)


def test_weights_are_right_whether_a_class_is_in_one_task_or_in_all():
    """The loss of either world is far below what the wrong rule loses."""
    n_classes, dim, n_tasks = 30, 64, 30
    # Another seed than that of the noise, which would draw the centres again.
    rng = np.random.default_rng(5)
    centers, y = rng.normal(size=(n_classes, dim)), rng.integers(n_classes, size=3000)
    X = 0.6 * centers[y] + rng.normal(size=(len(y), dim))
    accuracy = {}
    for make_stream in (class_incremental, shuffled):
        tasks = [(X[task.rows], y[task.rows]) for task in make_stream(y, range(n_classes), n_tasks, seed=1)]
        for rule in RULES:
            model = learn(tasks, budget=GaussianDP(0.2), classes=range(n_classes), accumulate=rule)
            accuracy[make_stream, rule] = model.score(X, y)
    # The published sums are as good as one task with sqrt(30) times the noise, whatever the stream.
    assert accuracy[class_incremental, "sum"] == pytest.approx(accuracy[shuffled, "sum"], abs=0.03)
    assert 0.1 < accuracy[shuffled, "sum"] < 0.4
    assert accuracy[class_incremental, "weighted"] > 0.8
    assert accuracy[shuffled, "weighted"] > accuracy[shuffled, "sum"] - 0.02


def test_evidence_of_noise_stays_low_over_many_tasks_and_that_of_a_signal_does_not():
    rng, variance = np.random.default_rng(0), np.ones(2000)
    noise = rng.normal(size=(2000, 50))
    weights, evidence = _presence.presence(noise, variance)
    assert weights.mean() < 0.02
    assert evidence.mean() < 0
    weights, evidence = _presence.presence(noise + 2, variance)
    assert weights.min() > 0.5
    assert evidence.min() > 5
    assert (_presence.evidence(np.zeros((3, 50)), np.ones(3)) == -1).all()


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


def test_labels_outside_the_classes_of_a_task():
    X, y = records()
    with pytest.raises(UnknownLabelError, match="task_classes"):
        make().partial_fit(X, named(y), task_classes=["a", "b"])
    ignoring = make(unknown_labels="ignore").partial_fit(X, named(y), task_classes=["a", "b"])
    kept = make().partial_fit(X[y < 2], named(y[y < 2]), task_classes=["a", "b"])
    assert (ignoring.prototypes_ == kept.prototypes_).all()
    with pytest.raises(ParameterError, match="some of the classes") as caught:
        make().partial_fit(X, named(y), task_classes=["a", "z"])
    assert caught.value.parameter == "task_classes"


def test_a_task_that_does_not_continue_the_earlier_ones_is_refused():
    X, y = records()
    table = lambda encoder: EmbeddingTable.of(X, metadata={"encoder": encoder})  # noqa: E731
    model = make().partial_fit(table("one"), named(y))
    before = model.to_bytes()
    with pytest.raises(InputError, match="encoder"):
        model.partial_fit(table("other"), named(y))
    with pytest.raises(ValueError, match="expecting 6 features"):
        model.partial_fit(X[:, :5], named(y))
    for name, value in {"budget": ZCDP(0.5), "accumulate": "sum", "classes": ["a", "b"], "pool": 2}.items():
        changed = getattr(model, name)
        with pytest.raises(ParameterError, match=f"{name} must stay"):
            model.set_params(**{name: value}).partial_fit(X, named(y))
        model.set_params(**{name: changed})
    assert model.to_bytes() == before
    assert model.partial_fit(X, named(y)).encoder_ == "one"
    with pytest.raises(ParameterError, match="public list of the classes of all tasks"):
        make(classes=None).partial_fit(X, named(y))


def test_fit_starts_again():
    tasks = stream()
    assert learn(tasks).fit(*tasks[0]).to_bytes() == learn(tasks[:1]).to_bytes()


# What it promises


def replay(tasks, where, row, label, **options):
    """Hold a stream to the law of neighbours: a record more in one task shows by what one task costs, and no more."""
    more = list(tasks)
    X, y = tasks[where]
    more[where] = np.concatenate([X, row[None]]), [*y, label]
    options = {"unknown_labels": "ignore", **options}
    with watched() as uses:
        first = learn(more, **options)
    with watched([answer for _, _, answer in uses]) as again:
        second = learn(tasks, **options)
    assert len(uses) == len(again) == len(tasks)
    assert [one[1].shape for one in uses] == [other[1].shape for other in again] == [(len(CLASSES), DIM)] * len(tasks)
    costs = [spent(one, other, 1) for one, other in zip(uses, again, strict=True)]
    assert not any(cost for task, cost in enumerate(costs) if task != where)
    assert sum(costs) <= Fraction(first.guarantee_.mu) ** 2
    assert first.guarantee_.stays_within_budget()
    assert first.guarantee_ == second.guarantee_
    assert first.to_bytes() == second.to_bytes()


@st.composite
def streams_of_tasks(draw):
    """Up to 4 tasks of up to 4 records, often empty or of one class."""
    tasks = []
    for _ in range(draw(st.integers(1, 4))):
        y = draw(st.lists(st.sampled_from(CLASSES), max_size=4))
        X = [draw(rows(DIM)) for _ in y]
        tasks.append((np.array(X).reshape(len(y), DIM), y))
    return tasks


@pytest.mark.slow
@given(data=st.data(), accumulate=st.sampled_from(RULES))
@settings(max_examples=60)
def test_a_record_in_any_task_moves_the_stream_by_the_stated_cost(data, accumulate):
    tasks = data.draw(streams_of_tasks())
    where = data.draw(st.integers(0, len(tasks) - 1))
    label = data.draw(st.sampled_from([*CLASSES, "elsewhere"]))
    replay(tasks, where, data.draw(rows(DIM)), label, accumulate=accumulate, budget=data.draw(BUDGETS))


BUDGETS = st.sampled_from([QUARTER, GaussianDP(1.3), dppl.ApproxDP(2.0, 1e-6)])
EMPTY = np.zeros((0, DIM)), []
LONE = [(np.ones((2, DIM)), ["a", "a"]), EMPTY, EMPTY]


def skip_the_empty(patch):
    """Release nothing of an empty task."""
    whole = ContinualPrototypes.partial_fit
    skipping = lambda self, X, y: whole(self, X, y) if len(X) else self  # noqa: E731
    patch.setattr(ContinualPrototypes, "partial_fit", skipping)


def sum_what_is_there(patch):
    """Release sums of those classes alone that occur in a task."""
    whole = ContinualPrototypes._release

    def release(self, plan, rows, codes, source):
        object.__setattr__(self._task, "allowed", np.unique(codes))
        whole(self, plan, rows, codes, source)

    patch.setattr(ContinualPrototypes, "_release", release)


def count_the_tasks_with_records(patch):
    """Tell from the number of records whether a class had a sum."""
    whole = ContinualPrototypes._release

    def release(self, plan, rows, codes, source):
        whole(self, plan, rows, codes, source)
        self.released_.n_sums[:] -= np.bincount(codes[codes >= 0], minlength=len(CLASSES)) == 0

    patch.setattr(ContinualPrototypes, "_release", release)


def weigh_by_size(patch):
    """Divide the noise of a task by its number of records."""
    whole = ContinualPrototypes._release

    def release(self, plan, rows, codes, source):
        whole(self, plan, rows, codes, source)
        self.prototypes_ = self.prototypes_ / (1 + len(codes))

    patch.setattr(ContinualPrototypes, "_release", release)


@pytest.mark.parametrize(
    "fault", [skip_the_empty, sum_what_is_there, count_the_tasks_with_records, weigh_by_size, clip_nothing]
)
def test_the_replay_notices(fault, monkeypatch):
    replay(LONE, 2, np.full(DIM, 1.2), "b")
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        replay(LONE, 2, np.full(DIM, 1.2), "b")


def test_the_guarantee_is_that_of_one_task_and_says_what_it_rests_on():
    model = make()
    for X, y in stream():
        guarantee = model.partial_fit(X, y).guarantee_
        assert guarantee.releases == make().plan(DIM).guarantee.releases
        assert guarantee.stays_within_budget()
    said = " ".join(str(guarantee).split())
    for words in (
        "one record is added to or removed from one task",
        "tasks are disjoint: a record is in one task",
        "a record or a person in several tasks, whose costs add up",
        "boundaries of tasks that depend on private records",
        "the boundaries of the tasks and the classes that each may hold",
    ):
        assert words in said


def test_one_seeded_task_makes_the_stream_unfit_for_release():
    first, second, third = stream()
    model = make(random_state=None).partial_fit(*first)
    assert model.guarantee_.fit_for_release
    assert not model.set_params(random_state=1).partial_fit(*second).guarantee_.fit_for_release
    assert not model.set_params(random_state=None).partial_fit(*third).guarantee_.fit_for_release


# Account and files


def test_tasks_of_names_cost_the_largest_and_tasks_without_names_add_up(tmp_path):
    for place, names in enumerate([("may", "june", "july"), (None, None, None)]):
        ledger = Ledger(tmp_path / f"{place}.db", "wards", ZCDP(1.0))
        model = make()
        for (X, y), name in zip(stream(), names, strict=True):
            model.partial_fit(X, y, ledger=ledger, partition=name)
        assert len(ledger.releases()) == 3  # the empty task, too
        assert {release["status"] for release in ledger.releases()} == {"released"}
        assert ledger.spent()["rho"] == pytest.approx(0.25 if names[0] else 0.75, rel=1e-6)
        assert model.guarantee_.ledger_entry == "wards, release 1; wards, release 2; wards, release 3"


def fail_to_sum(patch):
    patch.setattr("dppl.continual.prototypes.class_sums", stop)


def fail_to_draw(patch):
    patch.setattr(RoundedGaussian, "release", stop)


def fail_to_weigh(patch):
    patch.setattr(ReleasedSums, "weighted", stop)


def fail_to_finish(patch):
    patch.setattr(Ledger, "finish", stop)


def stop(*arguments, **named):
    raise KeyboardInterrupt


def check_a_task_that_fails(fault, path):
    first, _, third = stream()
    ledger = Ledger(path, "wards", ZCDP(0.75))
    model = make().partial_fit(*first, ledger=ledger)
    before, attributes = model.to_bytes(), dict(vars(model))
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(*third, ledger=ledger)
    assert model.to_bytes() == before
    assert vars(model) == attributes
    # The charge stays, and trying again is a second release.
    assert [release["status"] for release in ledger.releases()] == ["released", "charged"]
    model.partial_fit(*third, ledger=ledger)
    assert ledger.spent()["rho"] == pytest.approx(0.75, rel=1e-6)
    uninterrupted = learn([first, third])
    assert (model.prototypes_ == uninterrupted.prototypes_).all()
    with pytest.raises(BudgetExceeded):
        model.partial_fit(*third, ledger=ledger)
    assert (model.prototypes_ == uninterrupted.prototypes_).all()


@pytest.mark.parametrize("fault", [fail_to_sum, fail_to_draw, fail_to_weigh, fail_to_finish])
def test_a_task_that_fails_after_its_charge_leaves_the_earlier_model(fault, tmp_path):
    check_a_task_that_fails(fault, tmp_path / "ledger.db")


def test_a_model_that_is_changed_in_place_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("dppl.continual._stream.copy.copy", lambda model: model)
    with pytest.raises((AssertionError, AttributeError)):
        check_a_task_that_fails(fail_to_draw, tmp_path / "ledger.db")


def test_a_first_task_that_fails_leaves_no_model():
    model = make()
    with pytest.raises(UnknownLabelError):
        model.partial_fit(np.ones((1, DIM)), ["z"])
    assert not [name for name in vars(model) if name.endswith("_")]
    assert not hasattr(model, "n_tasks_")


@each_rule
@pytest.mark.parametrize("options", [{}, {"pool": 2, "rotation": 3, "center": np.full(DIM, 0.1)}], ids=["", "mapped"])
def test_a_loaded_model_goes_on_as_if_nothing_had_happened(accumulate, options, tmp_path):
    tasks, path = stream(4), tmp_path / "m.safetensors"
    model = make(accumulate=accumulate, **options)
    for number, task in enumerate(tasks):
        model.partial_fit(*task)
        model.save(path, overwrite=True)
        uninterrupted, model = model, dppl.load(path)
        assert model.n_tasks_ == number + 1
        assert model.to_bytes() == uninterrupted.to_bytes()
        model.set_params(random_state=0)
    assert model.to_bytes() == learn(tasks, accumulate=accumulate, **options).to_bytes()


def test_public_rows_are_read_once(tmp_path):
    public = np.random.default_rng(3).normal(size=(9, DIM)) + 1
    first, _, third = stream()
    model = make(center="public").partial_fit(*first, public)
    model.partial_fit(*third)
    assert "the public rows (X_public)" in model.guarantee_.public_inputs
    model.save(tmp_path / "m.safetensors")
    again = dppl.load(tmp_path / "m.safetensors").set_params(random_state=0)
    assert again.partial_fit(*first).to_bytes() == model.partial_fit(*first).to_bytes()
    assert "the public rows (X_public)" in again.guarantee_.public_inputs


@pytest.mark.parametrize(
    "wrong", [{"n_tasks": [0]}, {"n_sums": [4, 0, 0]}, {"n_sums": [-1, 0, 0]}, {"n_tasks": [1, 1]}]
)
def test_a_file_whose_numbers_of_tasks_contradict_each_other_is_refused(wrong, tmp_path, monkeypatch):
    model, whole = learn(stream()), ReleasedSums.to_tensors
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
        make(dppl.ApproxDP(2.0, 1e-6)), {"accumulate": list(RULES)}, mean_runs=2, random_state=0
    ).fit(X, named(y))
    search.save(tmp_path / "m.safetensors")
    again = dppl.load(tmp_path / "m.safetensors")
    content = again.to_bytes()
    account = Ledger(tmp_path / "ledger.db", "records", GaussianDP(9.0))
    with pytest.raises(ParameterError, match="start again with fit"):
        again.partial_fit(X, named(y), ledger=account)
    assert again.to_bytes() == content
    assert account.releases() == []
    best = search.best_estimator_
    best.set_params(budget=ZCDP(search.guarantee_.releases[0].cost["rho_per_run"]))
    with pytest.raises(ParameterError, match=r"start again with fit|budget must stay"):
        best.partial_fit(X, named(y))


@pytest.mark.parametrize("kind", [list, lambda names: np.array(names, "<U9")])
def test_a_class_list_that_was_changed_in_place_is_refused_before_anything_is_paid(kind, tmp_path):
    classes = kind(CLASSES)
    model = learn(stream(2)[:1], classes=classes)
    content = model.to_bytes()
    account = Ledger(tmp_path / "ledger.db", "records", GaussianDP(9.0))
    classes[1] = "z"
    with pytest.raises(ParameterError, match="classes must stay"):
        model.partial_fit(*stream(2)[0], ledger=account)
    assert account.releases() == []
    assert model.to_bytes() == content


@pytest.mark.parametrize(
    "X", [np.arange(137.0), [], [["Jane"] * DIM] * 2, {0: 1}], ids=["1d", "empty", "texts", "dict"]
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
