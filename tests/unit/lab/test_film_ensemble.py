"""FiLM and a head for each task of a stream: what it computes, promises, stores and pays."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dppl import ApproxDP, GaussianDP, Ledger
from dppl.errors import (
    BudgetExceeded,
    ParameterError,
    UnknownLabelError,
    WeakBudgetWarning,
)
from dppl.finetune import Recipe, SparseFinetuner
from dppl.finetune.gradients import NetworkGradients
from dppl.finetune.trainer import Training
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.terms import Statistic, Term, Unit
from dppl.lab import FilmEnsemble
from dppl.methods.fit_plan import seed_of
from laws.replay import spent, watched

CLASSES = ["a", "b", "c", "d"]
RECIPE = Recipe(epochs=3, batch_size=20.0, block=20)
OPTIONS = {"sampling_rate": 1.0, "recipe": RECIPE}
BUDGET = GaussianDP(1.0)
# Scale and shift of 8 and of 12 channels, and a head of 12 x 4 weights and 4
# intercepts.
N_TRAINED = 2 * (8 + 12) + 12 * 4 + 4


def make(
    module,
    budget=BUDGET,
    *,
    kind=FilmEnsemble,
    options=OPTIONS,
    random_state=0,
    **further,
):
    return kind(
        module, budget, CLASSES, options=options, random_state=random_state, **further
    )


def learn(module, given, model=None, **further):
    model = make(module, **further) if model is None else model
    for X, y, *groups in given:
        model.partial_fit(X, y, groups=groups[0] if groups else None)
    return model


@pytest.fixture
def tasks(images):
    """Return three tasks, the first of two classes."""
    X, y = images
    rng = np.random.default_rng(1)
    parts = [
        (X[y < 2], y[y < 2]),
        (X[y == 2], y[y == 2]),
        (rng.normal(size=(6, *X.shape[1:])) - 3, np.full(6, 3)),
    ]
    return [
        (rows.astype(np.float32), np.array(CLASSES)[codes]) for rows, codes in parts
    ]


# What it computes.


def alone(module, task, seed, **further):
    options = {**OPTIONS, **further}
    return SparseFinetuner(
        module, BUDGET, CLASSES, train=("head", "norm"), random_state=seed, **options
    ).fit(*task)


def test_tasks_are_trained_from_the_public_network_and_the_largest_logit_wins(
    torch, net, tasks
):
    model = learn(net, tasks, scores="largest")
    scores = []
    for number, (task, seed) in enumerate(
        zip(tasks, [0, seed_of(0, 1), seed_of(0, 2)], strict=True)
    ):
        one = alone(net, task, seed)
        trained = [
            one.module_.get_parameter(name).detach().numpy().ravel()
            for name in one.selection_
        ]
        assert (model.values_[number] == np.concatenate(trained)).all()
        scores.append(one.decision_function(tasks[0][0]))
    assert np.allclose(
        model.decision_function(tasks[0][0]), np.max(scores, axis=0), atol=1e-6
    )
    assert (learn(net, tasks[:2]).values_ == model.values_[:2]).all()
    assert model.predict(tasks[0][0][:0]).shape == (0,)


def test_normalised_scores_are_those_of_the_formula_and_know_neither_scale_nor_intercept(
    torch, net, tasks
):
    model = learn(net, tasks)
    X = tasks[0][0]
    total = 0
    for task, seed in zip(tasks, [0, seed_of(0, 1), seed_of(0, 2)], strict=True):
        one = alone(net, task, seed).module_
        with torch.no_grad():
            rows = one[:-1](torch.from_numpy(X)).numpy()
        weights = one[-1].weight.detach().numpy()
        weights = weights - weights.mean(axis=0)
        cosines = (
            rows
            @ weights.T
            / np.linalg.norm(rows, axis=1)[:, None]
            / np.linalg.norm(weights, axis=1)
        )
        total = total + np.exp(np.sqrt(12) * cosines)
    before = model.decision_function(X)
    assert np.allclose(before, np.log(total), atol=1e-5)
    published = learn(net, tasks, scores="largest")
    for scores in (model, published):
        before = scores.decision_function(X)
        scores.values_[1, -52:-4] *= 50
        scores.values_[1, -4:] += 7
        assert np.allclose(scores.decision_function(X), before, atol=1e-4) == (
            scores is model
        )


def test_it_learns_and_remembers(net, tasks):
    pairs = [
        tasks[0],
        tuple(np.concatenate(parts) for parts in zip(*tasks[1:], strict=True)),
    ]  # of two classes each
    model = make(
        net,
        GaussianDP(3e4),
        options={**OPTIONS, "recipe": replace(RECIPE, epochs=15, learning_rate=0.1)},
    )
    with pytest.warns(WeakBudgetWarning):
        learn(net, pairs, model)
    assert all(model.score(X, y) > 0.6 for X, y in pairs)


def test_a_class_that_no_task_may_hold_is_never_predicted(net, tasks):
    model = make(net)
    for (X, y), may in zip(tasks, (["a", "b"], ["c"], ["b", "c"]), strict=True):
        model.partial_fit(X, np.where(y == "d", "c", y), task_classes=may)
    assert model.allowed_.T.tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 1, 0]]
    scores = model.decision_function(np.concatenate([X for X, _ in tasks]))
    assert (scores[:, 3] < -1e299).all()
    assert (scores[:, :3] > -1e3).all()
    with pytest.raises(UnknownLabelError, match="task_classes"):
        model.partial_fit(*tasks[1], task_classes=["a"])
    assert model.n_tasks_ == 3


# What it promises.


def replay(module, given, number, record, **further):
    """Hold a stream to its law: one record more in one task shows there alone, by no more than the stated cost."""
    (X, y), label = given[number], "b"
    more = [
        *given[:number],
        (np.concatenate([X, record[None]]), [*y, label]),
        *given[number + 1 :],
    ]
    with watched() as uses:
        first = learn(module, more, **further)
    with watched([answer for _, _, answer in uses]) as again:
        second = learn(module, given, **further)
    assert len(uses) == len(again) == 3 * 3  # steps of three tasks
    costs = [spent(one, other, 3) for one, other in zip(uses, again, strict=True)]
    of_tasks = [sum(costs[start : start + 3]) for start in (0, 3, 6)]
    assert not any(cost for place, cost in enumerate(of_tasks) if place != number)
    assert sum(of_tasks) <= Fraction(first.guarantee_.mu) ** 2
    assert first.guarantee_ == second.guarantee_
    # Equal answers of the mechanisms, equal model: nothing else of the records comes
    # through.
    assert (first.values_ == second.values_).all()
    assert (first.allowed_ == second.allowed_).all()
    return sum(of_tasks), Fraction(first.guarantee_.mu) ** 2


# Computed one by one, records are exactly what they are alone; and each gradient is
# longer than the clipping norm.
ALONE = {**OPTIONS, "recipe": replace(RECIPE, block=1, clip=1e-3)}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_record_moves_its_task_alone_and_by_the_stated_cost(net, tasks, number):
    few = [(X[:4], y[:4]) for X, y in tasks]
    cost, stated = replay(
        net, few, number, np.full((1, 6, 6), 2.0, np.float32), options=ALONE
    )
    assert cost > stated * Fraction(9, 10)


def test_a_person_in_all_tasks_pays_what_each_of_them_costs(net, tasks):
    few = [(X[:4], y[:4]) for X, y in tasks]
    cost, stated = replay(
        net,
        few,
        1,
        np.full((1, 6, 6), 2.0, np.float32),
        options=ALONE,
        tasks="overlapping",
    )
    assert stated * Fraction(3, 10) < cost <= stated / 3 * (1 + Fraction(1, 10**9))


def test_a_person_of_many_records_pays_as_one_of_one_does(net, tasks):
    few = [(X[:4], y[:4], [0, 0, 1, None]) for X, y in tasks]
    X, y, ids = few[1]
    many = (
        np.concatenate([X, np.full((9, 1, 6, 6), 2.0, np.float32)]),
        [*y, *"bbbbbbbba"],
        [*ids, *["patient"] * 9],
    )
    stated = learn(net, few, options=ALONE).guarantee_
    with watched() as uses:
        first = learn(net, [few[0], many, few[2]], options=ALONE)
    with watched([answer for *_, answer in uses]) as again:
        second = learn(net, few, options=ALONE)
    cost = sum(spent(one, other, 3) for one, other in zip(uses, again, strict=True))
    assert Fraction(9, 10) * Fraction(stated.mu) ** 2 < cost <= Fraction(stated.mu) ** 2
    assert first.guarantee_ == second.guarantee_ == stated
    assert stated.unit == Unit.PERSON
    with pytest.raises(ParameterError, match="earlier tasks has other"):
        first.partial_fit(X, y)
    # Their records by themselves cost more than was stated.
    with watched([answer for *_, answer in uses]) as alone:
        learn(net, [few[0][:2], many[:2], few[2][:2]], options=ALONE)
    moved = alone[3][1] - again[3][1]
    assert (
        sum(int(step) ** 2 for step in moved) > 9 * uses[3][0].squared_sensitivity / 3
    )


def test_the_replay_notices_records_that_later_tasks_see_again(net, tasks, monkeypatch):
    """A planted fault: what the first task has beyond four records is kept, and trained on again."""
    original = Training.run
    kept = []
    calls = []
    few = [(X[:4], y[:4]) for X, y in tasks]

    def keeping(self, records, **further):
        calls.append(0)
        X = records.inputs
        y = records.labels
        if len(calls) % 3 == 1:  # the first of three tasks
            kept[:] = X[4:], y[4:]
        inputs, labels = (
            np.concatenate([one[:4], more])
            for one, more in zip((X, y), kept, strict=True)
        )
        records.inputs = inputs
        records.labels = labels
        return original(self, records, **further)

    monkeypatch.setattr(Training, "run", keeping)
    with pytest.raises(AssertionError):
        replay(net, few, 0, np.full((1, 6, 6), 2.0, np.float32), options=ALONE)


def test_the_statement_of_disjoint_tasks_is_that_of_one(net, tasks):
    one = learn(net, tasks[:1]).guarantee_
    guarantee = learn(net, tasks).guarantee_
    assert guarantee.mu == one.mu <= 1
    assert guarantee.n_models == 3
    assert guarantee.releases == one.releases
    assert guarantee.releases[0].statistic == Term(
        Statistic.OF_ONE_TASK,
        of=Term(Statistic.NETWORK_GRADIENTS, n_weights=N_TRAINED),
    )
    said = " ".join(str(guarantee).split())
    for words in (
        "a record is in one task",
        "the boundaries of the tasks",
        "boundaries of tasks that depend on private",
    ):
        assert words in said


@pytest.mark.parametrize("budget", [BUDGET, ApproxDP(2.0, 1e-6)], ids=str)
def test_the_statement_of_tasks_that_overlap_is_of_all_of_them(
    net, tasks, budget, tmp_path
):
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(9.0))
    model = make(net, budget, tasks="overlapping")
    one = learn(net, tasks[:1], budget=budget, tasks="overlapping").guarantee_
    for number in (1, 2, 3):
        guarantee = learn(net, tasks[number - 1 : number], model).guarantee_
        squared = number * Fraction(one.mu) ** 2
        assert (
            squared <= Fraction(guarantee.mu) ** 2 <= squared * (1 + Fraction(1, 10**9))
        )
        assert guarantee.stays_within_budget()
    assert guarantee.unit is Unit.PERSON_IN_TASKS
    with pytest.raises(
        ParameterError, match="partition names a part that shares no record"
    ):
        model.partial_fit(*tasks[0], ledger=ledger, partition="may")
    assert not ledger.releases()
    with pytest.raises(ParameterError, match="sampling_rate"):
        make(
            net,
            ApproxDP(8.0, 1e-5),
            tasks="overlapping",
            options={**OPTIONS, "sampling_rate": 0.5},
        ).fit(*tasks[0])


def test_samples_are_stated(net, tasks):
    budget = ApproxDP(9.0, 1e-5)
    model = learn(
        net, tasks[:2], budget=budget, options={**OPTIONS, "sampling_rate": 0.5}
    )
    assert model.guarantee_.releases[0].parameters["sampling_rate"] == 0.5
    assert model.guarantee_.budget == budget
    assert (model.guarantee_.mu, model.guarantee_.n_models) == (None, 2)


def test_the_noise_of_no_two_tasks_is_the_same_and_seeds_are_told(net, tasks):
    X, y = tasks[0]
    model = learn(
        net,
        [(X[:0], y[:0])] * 2,
        options={**OPTIONS, "recipe": replace(RECIPE, epochs=1)},
    )
    assert not (model.values_[0] == model.values_[1])[
        -52:
    ].any()  # of heads that were zero
    assert not model.guarantee_.secure_noise
    mixed = make(net, random_state=None).partial_fit(*tasks[0])
    assert mixed.guarantee_.secure_noise
    assert (
        not mixed.set_params(random_state=1)
        .partial_fit(*tasks[1])
        .guarantee_.secure_noise
    )
    assert (
        not mixed.set_params(random_state=None)
        .partial_fit(*tasks[2])
        .guarantee_.secure_noise
    )


@pytest.mark.parametrize(
    "change",
    [
        {"budget": GaussianDP(0.5)},
        {"classes": CLASSES[:3]},
        {"options": {**OPTIONS, "recipe": replace(RECIPE, clip=0.5)}},
        {"tasks": "overlapping"},
        {"scores": "largest"},
        {"unknown_labels": "ignore"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_task_that_does_not_continue_the_earlier_ones_is_refused(
    net, tasks, change, tmp_path
):
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(9.0))
    model = learn(net, tasks[:1]).set_params(**change)
    with pytest.raises(
        ParameterError, match=f"{next(iter(change))} must stay what it was"
    ):
        model.partial_fit(*tasks[1], ledger=ledger)
    assert not ledger.releases()
    model.fit(*tasks[1])
    assert model.n_tasks_ == model.guarantee_.n_models == 1


def test_another_network_or_shape_does_not_continue_a_stream(torch, net, tasks):
    model = learn(net, tasks[:1])
    with pytest.raises(ParameterError, match="shape must stay"):
        model.partial_fit(np.zeros((3, 1, 8, 8)), ["a"] * 3)
    with torch.no_grad():
        net[0].weight[0, 0, 0, 0] += 1e-6
    with pytest.raises(ParameterError, match="module must stay"):
        model.partial_fit(*tasks[1])


@pytest.mark.parametrize(
    ("further", "words"),
    [
        (
            {"options": {"train": ("head",)}},
            "options must be a dictionary with some of head, sampling_rate, recipe",
        ),
        ({"options": [("head", "8")]}, "options must be a dictionary"),
        ({"scores": "mean"}, "'normalised', 'largest'"),
        ({"tasks": "apart"}, "'disjoint', 'overlapping'"),
        ({"unknown_labels": "drop"}, "unknown_labels"),
        ({"unknown_labels": "strict"}, "unknown_labels"),
    ],
)
def test_parameters_are_checked(net, tasks, further, words):
    with pytest.raises(ParameterError, match=words):
        make(net, **further).fit(*tasks[0])


# What it pays.


def test_each_task_is_charged_before_its_first_step(net, tasks, tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(1.2))
    charges = []
    original = NetworkGradients.block_sum
    monkeypatch.setattr(
        NetworkGradients,
        "block_sum",
        lambda self, *args: (
            charges.append(len(ledger.releases())) or original(self, *args)
        ),
    )
    model = make(net, random_state=None)
    for number, (X, y) in enumerate(tasks, start=1):
        charges.clear()
        model.partial_fit(X, y, ledger=ledger, partition=f"task {number}")
        assert set(charges) == {number}
    charged = tuple(Charge("images", number) for number in (1, 2, 3))
    assert model.guarantee_.charges == charged
    assert {release["status"] for release in ledger.releases()} == {"not saved"}
    charges.clear()
    with pytest.raises(BudgetExceeded):
        model.partial_fit(*tasks[0], ledger=ledger, partition="task 1")
    assert not charges
    assert model.n_tasks_ == 3


def test_messages_and_failed_tasks_show_no_private_value(net, tasks, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(9.0))
    X, y = tasks[1]
    model = learn(net, tasks[:1])
    with pytest.raises(UnknownLabelError) as caught:
        model.partial_fit(
            X, np.where(np.arange(len(y)) == 1, "secret", y), ledger=ledger
        )
    assert "secret" not in str(caught.value)
    assert (model.n_tasks_, len(ledger.releases())) == (1, 1)
