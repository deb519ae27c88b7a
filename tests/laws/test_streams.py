"""What every classifier of streams promises, over all tasks together, and what is left of it when something fails."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dppl
from checksums import forged
from dppl import ApproxDP, GaussianDP, Ledger
from dppl._utils import tensorfile
from dppl.errors import (
    BudgetExceeded,
    InputError,
    ModelFileError,
    ParameterError,
    UnknownLabelError,
)
from dppl.kernel.mechanisms import RoundedGaussian
from dppl.kernel.privacy import ZCDP
from dppl.kernel.privacy.guarantee import Charge
from dppl.statement.words import text
from inside import behind, relation_of, tensors_of
from laws.recipes import CLASSES, each, rows
from laws.replay import clip_nothing
from laws.streams import (
    FIRST_OF_TASKS,
    OF_TASKS,
    empty,
    handed_in,
    learn,
    replay,
    stream,
    streams_of_tasks,
)

pytestmark = pytest.mark.slow

QUARTER = ZCDP(0.25)
ADDING_UP = [kind for kind in OF_TASKS if kind.make().tasks == "overlapping"]
DISJOINT = [kind for kind in FIRST_OF_TASKS if kind not in ADDING_UP]
HEADS = [kind for kind in FIRST_OF_TASKS if kind.entry.name != "ContinualPrototypes"]


# Neighbours


@each(OF_TASKS)
@given(data=st.data())
@settings(max_examples=10)
def test_a_record_in_any_task_moves_the_stream_by_the_stated_cost(kind, data):
    tasks = data.draw(streams_of_tasks(kind.dim))
    where = data.draw(st.integers(0, len(tasks) - 1))
    label = data.draw(st.sampled_from([*CLASSES, "elsewhere"]))
    budget = data.draw(
        st.sampled_from([None, QUARTER, GaussianDP(1.3), ApproxDP(2.0, 1e-6)])
    )
    replay(kind, tasks, where, data.draw(rows(kind.dim)), label, budget)


def lone(kind):
    """Two records of one class, and then two tasks without any."""
    return [(np.ones((2, kind.dim)), ["a", "a"]), empty(kind), empty(kind)]


def wrapped(patch, kind, change):
    """Let `change(model, codes)` see what a task has released, and the classes of its records."""
    learn = kind.cls.learn
    partial_fit = kind.cls.partial_fit
    codes = []

    def noted(self, measure, setting):
        codes[:] = [behind(measure).records.codes]
        learn(self, measure, setting)

    def changed(self, *given, **more):
        partial_fit(self, *given, **more)
        change(self, codes[0])
        return self

    patch.setattr(kind.cls, "learn", noted)
    patch.setattr(kind.cls, "partial_fit", changed)


def skip_the_empty(patch, kind):
    """Release nothing of an empty task."""
    whole = kind.cls.partial_fit
    skipping = lambda self, X, y, **more: whole(self, X, y, **more) if len(X) else self  # noqa: E731
    patch.setattr(kind.cls, "partial_fit", skipping)


def learn_what_is_there(patch, kind):
    """Let a task speak only for the classes that occur in it."""
    whole = kind.cls.learn

    def learn(self, measure, setting):
        codes = behind(measure).records.codes
        object.__setattr__(setting.task, "allowed", np.unique(codes[codes >= 0]))
        whole(self, measure, setting)

    patch.setattr(kind.cls, "learn", learn)


def keep_what_is_there(patch, kind):
    """Release weights for the classes alone that occur."""

    def change(model, codes):
        model.coef_[~np.isin(np.arange(len(CLASSES)), codes)] = 0

    wrapped(patch, kind, change)


def count_the_tasks_with_records(patch, kind):
    def change(model, codes):
        model.n_tasks_ -= not len(codes)

    wrapped(patch, kind, change)


def weigh_by_size(patch, kind):
    """Divide what is released of a task by its number of records."""

    def change(model, codes):
        name = "coef_" if hasattr(model, "coef_") else "prototypes_"
        setattr(model, name, getattr(model, name) / (1 + len(codes)))

    wrapped(patch, kind, change)


def clip_none(patch, kind):
    clip_nothing(patch)


FAULTS = [
    *(
        (fault, kind)
        for kind in DISJOINT
        for fault in (skip_the_empty, count_the_tasks_with_records)
    ),
    *(
        (fault, kind)
        for kind in FIRST_OF_TASKS
        for fault in (learn_what_is_there, weigh_by_size, clip_none)
    ),
    *((keep_what_is_there, kind) for kind in HEADS),
]


@pytest.mark.parametrize(("fault", "kind"), FAULTS)
def test_the_replay_notices(fault, kind, monkeypatch):
    case = lone(kind), 2, np.full(kind.dim, 1.2), "b"
    replay(kind, *case)
    fault(monkeypatch, kind)
    with pytest.raises(AssertionError):
        replay(kind, *case)


@each([kind for kind in ADDING_UP if kind.cls.takes_earlier_records])
def test_the_replay_notices_that_the_cost_of_later_tasks_is_forgotten(
    kind, monkeypatch
):
    case = [empty(kind)] * 3, 0, np.full(kind.dim, 1.2), "b"
    replay(kind, *case)
    monkeypatch.setattr(kind.cls, "_of_tasks", lambda self, guarantee, _: guarantee)
    with pytest.raises(AssertionError):
        replay(kind, *case)


# The statement


@each(OF_TASKS)
def test_the_statement_is_of_one_task_where_tasks_are_disjoint_and_else_of_all(kind):
    one = kind.make().plan(kind.dim).guarantee
    for n_tasks in (1, 2, 5):
        guarantee = learn(kind, stream(kind, max(n_tasks, 2))[:n_tasks]).guarantee_
        times = n_tasks if kind in ADDING_UP else 1
        squared = sum(Fraction(release.cost["mu"]) ** 2 for release in one.releases)
        assert (
            times * squared
            <= Fraction(guarantee.mu) ** 2
            <= times * squared * (1 + Fraction(1, 10**9))
        )
        assert guarantee.stays_within_budget()
        assert [release.times for release in guarantee.releases] == [
            times * release.times for release in one.releases
        ]
    said = " ".join(str(guarantee).split())
    relation = relation_of(kind.make())
    terms = (relation.neighbours, relation.assumption, relation.not_covered)
    for words in (
        *(text(term, guarantee.unit) for term in terms),
        "boundaries of tasks that depend on private records",
        "the boundaries of the tasks and the classes that each may hold",
    ):
        assert words in said


@each(FIRST_OF_TASKS)
def test_one_seeded_task_makes_the_stream_unfit_for_release(kind):
    first, second, third = handed_in(kind, stream(kind))
    model = kind.make(random_state=None).partial_fit(*first)
    assert model.guarantee_.secure_noise
    assert (
        not model.set_params(random_state=1)
        .partial_fit(*second)
        .guarantee_.secure_noise
    )
    assert (
        not model.set_params(random_state=None)
        .partial_fit(*third)
        .guarantee_.secure_noise
    )


def check_noise_of_tasks(kind):
    """The answers of the mechanisms on empty tasks are their noise."""
    with pytest.MonkeyPatch.context() as patch:
        drawn = []
        whole = RoundedGaussian.release

        def release(self, exact, source):
            drawn.append(whole(self, exact, source) - exact)
            return drawn[-1] + exact

        patch.setattr(RoundedGaussian, "release", release)
        learn(kind, 2 * [empty(kind)])
    first, second = np.split(np.array([noise.ravel()[0] for noise in drawn]), 2)
    assert not (first == second).all()


@each(OF_TASKS)
def test_the_noise_of_no_two_tasks_is_the_same(kind):
    check_noise_of_tasks(kind)


@each(FIRST_OF_TASKS)
def test_noise_that_comes_again_is_noticed(kind, monkeypatch):
    monkeypatch.setattr("dppl.methods.fit_plan.seed_of", lambda seed, task: seed)
    with pytest.raises(AssertionError):
        check_noise_of_tasks(kind)


# Classes


@each(OF_TASKS)
def test_a_class_that_no_task_could_hold_is_never_predicted(kind):
    X, y = kind.records(30)
    kept = y != "c"
    held = {"task_classes": ["b", "a"]}
    model = kind.make().partial_fit(X[kept], y[kept], **held)
    for rows_of_all in (X, -X):
        assert (model.predict(rows_of_all) != "c").all()
        assert np.isfinite(model.decision_function(rows_of_all)).all()
    model.partial_fit(X, y)
    assert (model.predict(np.concatenate([X, -X])) == "c").any()


@each(FIRST_OF_TASKS)
def test_labels_outside_the_classes_of_a_task(kind):
    X, y = kind.records()
    with pytest.raises(UnknownLabelError, match="task_classes"):
        kind.make().partial_fit(X, y, task_classes=["a", "b"])
    ignoring = kind.make(unknown_labels="ignore").partial_fit(
        X, y, task_classes=["a", "b"]
    )
    kept = kind.make().partial_fit(X[y != "c"], y[y != "c"], task_classes=["a", "b"])
    assert tensors_of(ignoring) == tensors_of(kept)
    # A strict task says that all of its records count, and is stopped by one of a class
    # that it may not hold.
    kind.make(unknown_labels="strict").partial_fit(
        X[y != "c"], y[y != "c"], task_classes=["a", "b"]
    )
    with pytest.raises(InputError, match="strict wants records that can all be used"):
        kind.make(unknown_labels="strict").partial_fit(X, y, task_classes=["a", "b"])
    with pytest.raises(ParameterError, match="some of the classes") as caught:
        kind.make().partial_fit(X, y, task_classes=["a", "z"])
    assert caught.value.parameter == "task_classes"


# Account and files


@each(FIRST_OF_TASKS)
def test_every_task_is_charged_and_names_make_disjoint_ones_cost_the_largest(
    kind, tmp_path
):
    for place, names in enumerate(
        [(None, None, None), ("may", "june", "july")][: 1 + (kind in DISJOINT)]
    ):
        ledger = Ledger(tmp_path / f"{place}.db", "wards", ZCDP(1.0))
        model = kind.make(QUARTER)
        for task, name in zip(handed_in(kind, stream(kind)), names, strict=True):
            model.partial_fit(*task, ledger=ledger, partition=name)
        assert {release["status"] for release in ledger.releases()} == {"not saved"}
        assert len(ledger.releases()) == 3  # the empty task, too
        assert ledger.spent()["rho"] == pytest.approx(
            0.25 if names[0] else 0.75, rel=1e-6
        )
        charges = tuple(Charge("wards", number) for number in (1, 2, 3))
        assert model.guarantee_.charges == charges


def stop(*arguments, **named):
    raise KeyboardInterrupt


def check_a_task_that_fails(kind, owner, name, path):
    first, _, third = handed_in(kind, stream(kind))
    ledger = Ledger(path, "wards", ZCDP(0.75))
    model = kind.make(QUARTER).partial_fit(*first, ledger=ledger)
    before = model.to_bytes()
    attributes = dict(vars(model))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, stop)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(*third, ledger=ledger)
    assert model.to_bytes() == before
    assert vars(model) == attributes
    # The charge stays, and trying again is a second release.
    assert [release["status"] for release in ledger.releases()] == [
        "not saved",
        "charged",
    ]
    model.partial_fit(*third, ledger=ledger)
    assert ledger.spent()["rho"] == pytest.approx(0.75, rel=1e-6)
    uninterrupted = kind.make(QUARTER).partial_fit(*first).partial_fit(*third)
    for _ in range(2):
        assert tensors_of(model) == tensors_of(uninterrupted)
        with pytest.raises(BudgetExceeded):
            model.partial_fit(*third, ledger=ledger)


FAILURES = [
    (RoundedGaussian, "release"),
    (None, "_complete"),  # of the estimator
    (Ledger, "finish"),
]


@pytest.mark.parametrize(("owner", "name"), FAILURES)
@each(FIRST_OF_TASKS)
def test_a_task_that_fails_after_its_charge_leaves_the_earlier_model(
    kind, owner, name, tmp_path
):
    check_a_task_that_fails(kind, owner or kind.cls, name, tmp_path / "ledger.db")


@each(FIRST_OF_TASKS)
def test_a_model_that_is_changed_in_place_is_noticed(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("dppl.continual._stream.copy.copy", lambda model: model)
    with pytest.raises((AssertionError, AttributeError)):
        check_a_task_that_fails(
            kind, RoundedGaussian, "release", tmp_path / "ledger.db"
        )


@each(FIRST_OF_TASKS)
def test_a_first_task_that_fails_leaves_no_model(kind):
    model = kind.make()
    with pytest.raises(UnknownLabelError):
        model.partial_fit(np.ones((1, kind.dim)), ["z"])
    assert not [name for name in vars(model) if name.endswith("_")]
    assert not hasattr(model, "n_tasks_")


@each(OF_TASKS)
def test_a_loaded_model_goes_on_as_if_nothing_had_happened(kind, tmp_path):
    tasks = stream(kind, 4)
    path = tmp_path / "m.safetensors"
    model = kind.make()
    for number, task in enumerate(handed_in(kind, tasks)):
        model.partial_fit(*task)
        model.save(path, overwrite=True)
        uninterrupted = model
        model = dppl.load(path)
        assert model.n_tasks_ == number + 1
        assert model.to_bytes() == uninterrupted.to_bytes()
        assert (
            model.predict(kind.records(seed=9)[0])
            == uninterrupted.predict(kind.records(seed=9)[0])
        ).all()
        model.set_params(
            random_state=0, public=kind.public_data()
        )  # neither is in the file
    assert model.to_bytes() == learn(kind, tasks).to_bytes()


@pytest.mark.parametrize("n_tasks", [[0], [2, 2], [9]])
@each([kind for kind in OF_TASKS if kind.entry.name == "ContinualEnsemble"])
def test_a_file_of_another_number_of_heads_is_refused(kind, n_tasks, tmp_path):
    path = tmp_path / "m.safetensors"
    learn(kind, stream(kind)).save(path)
    description, tensors = tensorfile.read(path, "dppl")
    forged(path, description, tensors)
    dppl.load(path)  # the control
    forged(path, description, tensors | {"n_tasks": np.array(n_tasks, np.int64)})
    with pytest.raises(ModelFileError):
        dppl.load(path)


@each(FIRST_OF_TASKS)
def test_fit_starts_again(kind):
    tasks = stream(kind)
    assert (
        learn(kind, tasks).fit(*tasks[0]).to_bytes()
        == learn(kind, tasks[:1]).to_bytes()
    )


@each(OF_TASKS)
def test_a_task_with_other_parameters_is_refused(kind):
    model = learn(kind, stream(kind)[:1])
    content = model.to_bytes()
    for name, value in {
        "budget": ZCDP(0.5),
        "classes": ["a", "b"],
        "unknown_labels": "ignore",
    }.items():
        before = getattr(model, name)
        with pytest.raises(ParameterError, match=f"{name} must stay"):
            model.set_params(**{name: value}).partial_fit(*kind.records())
        model.set_params(**{name: before})
    assert model.to_bytes() == content
