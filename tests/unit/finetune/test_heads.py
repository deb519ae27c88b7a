"""The default method as the head of a network: one fit with the training, under one guarantee."""

import math

import numpy as np
import pytest

from dppl import ApproxDP, GaussianDP, Ledger, SoftmaxPrototypes
from dppl._utils import tensorfile
from dppl.audit.verification import verify
from dppl.errors import BudgetError, ModelFileError, ParameterError
from dppl.finetune import Recipe, SparseFinetuner, heads, select_weights
from dppl.finetune.gradients import RADIUS, NetworkGradients, noise_within
from dppl.finetune.schedule import SHARES, training_of
from dppl.kernel.privacy.sampling import sampled_gaussian_epsilon
from dppl.kernel.privacy.terms import Unit
from dppl.kernel.privacy.tradeoff import gaussian_epsilon
from laws.replay import spent, watched

CLASSES = [0, 1, 2]
SHAPE = (1, 6, 6)


def make(net, budget, *, rate=1.0, epochs=4.0, **options):
    recipe = {
        name: options.pop(name)
        for name in set(Recipe.__dataclass_fields__) & set(options)
    }
    recipe = Recipe(
        epochs=epochs,
        batch_size=40 * rate,
        **{"default_head": True, "block": 8, **recipe},
    )
    return SparseFinetuner(
        net,
        budget,
        CLASSES,
        **{
            "train": ("head", "norm"),
            "sampling_rate": rate,
            "recipe": recipe,
            **options,
        },
    )


@pytest.mark.parametrize("mu", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_samples_of_nearly_all_records_cost_with_others_what_gaussians_do(mu, delta):
    """At a rate of 1 - 2⁻³² the squares of mu add up, which has a closed form."""
    exact = gaussian_epsilon(math.hypot(mu, math.sqrt(12) / 7), delta)
    stated = sampled_gaussian_epsilon(7.0, delta, 1 - 2.0**-32, 12, mu)
    assert exact * (1 - 1e-6) <= stated <= exact * 1.005


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate"),
    [(0.1, 1e-6, 0.02), (8.0, 1e-5, 1 / 16), (3.0, 1e-3, 0.5)],
)
def test_all_releases_together_stay_within_the_budget_and_use_it(
    epsilon, delta, rate, net
):
    budget = ApproxDP(epsilon, delta)
    guarantee = make(net, budget, rate=rate, epochs=48 * rate).plan(SHAPE)
    assert guarantee.stays_within_budget()
    assert 0.98 * epsilon < guarantee.epsilon(delta) <= epsilon
    training = training_of(guarantee)
    assert 0 < training.cost["epsilon"] < epsilon  # of the training alone
    # The control: the noise of a training that forgets the heads is too little.
    forgetful = noise_within(budget, 48, rate).describe(training.statistic)
    assert forgetful.parameters["noise_std"] < training.parameters["noise_std"]
    releases = tuple(
        forgetful if one is training else one for one in guarantee.releases
    )
    object.__setattr__(guarantee, "releases", releases)
    assert not guarantee.stays_within_budget()


def test_a_ledger_charges_heads_and_training_together(net, images, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(1.0))
    model = make(net, GaussianDP(0.6)).fit(*images, ledger=ledger)
    assert model.guarantee_.mu == pytest.approx(0.6, rel=1e-9)
    assert ledger.spent()["mu"] == model.guarantee_.mu <= 0.6
    assert len(ledger.releases()) == 1
    with pytest.raises(BudgetError, match="a ledger cannot charge it"):
        make(net, ApproxDP(1.0, 1e-5), rate=0.5).fit(*images, ledger=ledger)


@pytest.mark.parametrize(("record", "each"), [(0, 1), (7, 1), (0, 8)])
def test_a_record_or_person_moves_all_answers_together_no_further_than_the_budget(
    record, each, net, images
):
    X, y = images
    model = make(net, GaussianDP(2.0), random_state=5, block=1, clip=0.01)
    ids = np.arange(40) // each
    others = ids != record
    with watched() as first:
        model.fit(X, y, groups=None if each == 1 else ids)
    with watched([answer for _, _, answer in first]) as second:
        model.fit(X[others], y[others], groups=None if each == 1 else ids[others])
    assert len(first) == len(second) == 4 + 2 * (5 + 16)
    moved = sum(
        spent(one, other, one[0].times)
        for one, other in zip(first, second, strict=True)
    )
    assert 0.1 <= moved <= 4


@pytest.mark.parametrize(("ask", "kept"), [(1, "zeros"), (2, "trained")])
def test_a_head_that_was_interrupted_is_lost_and_paid_for(
    ask, kept, net, images, tmp_path, monkeypatch
):
    fits = []
    fit = SoftmaxPrototypes.fit

    def interrupted(self, *args, **options):
        fits.append(self.budget.mu)
        if len(fits) == ask:
            raise KeyboardInterrupt
        return fit(self, *args, **options)

    monkeypatch.setattr(SoftmaxPrototypes, "fit", interrupted)
    model = make(net, GaussianDP(1.0))
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        model.fit(*images, checkpoint=path)
    model.fit(*images, checkpoint=path)
    first, _, last = np.sqrt(np.array(SHARES) / 100)
    assert fits == pytest.approx([first, last])  # and none of them again
    model.fit(*images, checkpoint=path)
    assert len(fits) == 2
    assert kept == "zeros" or abs(model.module_[-1].weight).max() > 0


def test_the_head_scores_as_the_model_of_features_does(torch, net):
    rng = np.random.default_rng(0)
    X = (0.5 + rng.normal(size=(200, 128))).astype(np.float32)
    y = rng.integers(0, 3, 200)
    model = SoftmaxPrototypes(GaussianDP(5.0), CLASSES, random_state=0).fit(X, y)
    layer = torch.nn.Linear(128, 3)
    heads.make_default(layer)
    heads.set_head(layer, model)
    exact = model.decision_function(X)  # of rows that are rounded to the lattice
    assert (
        np.abs(layer(torch.tensor(X)).detach().numpy() - exact).max()
        < 0.05
        < np.abs(exact).max() / 20
    )
    layer.center.zero_()
    assert np.abs(layer(torch.tensor(X)).detach().numpy() - exact).max() > 0.5


def test_both_heads_are_fitted_on_what_the_network_hands_them(
    torch, net, images, monkeypatch
):
    X, y = images
    fits = []
    fit = SoftmaxPrototypes.fit

    def seen(self, features, *args, **options):
        fits.append((self, features))
        return fit(self, features, *args, **options)

    monkeypatch.setattr(SoftmaxPrototypes, "fit", seen)
    model = make(net, GaussianDP(50.0)).fit(X, y)
    with torch.no_grad():
        for (_, features), module in zip(fits, (net, model.module_), strict=True):
            assert np.allclose(
                features, module[:-1](torch.tensor(X)).numpy(), atol=1e-5
            )
    last, features = fits[1]
    exact = last.decision_function(features)  # of rows that are rounded to the lattice
    assert np.abs(model.decision_function(X) - exact).max() < 0.02 * np.abs(exact).max()


def test_features_are_of_one_record_each_at_the_weights_of_the_step(torch, net, images):
    X, _ = images
    gradients = NetworkGradients(
        net, select_weights(net, ("head", "norm")), clip=1.0, shape=SHAPE, block=7
    )
    values = np.random.default_rng(0).normal(size=gradients.size).astype(np.float32)
    found = gradients.features(X, "8", values)
    with torch.no_grad():
        plain = gradients.module[:-1](torch.tensor(X)).numpy()
        public = net[:-1](torch.tensor(X)).numpy()
    assert found.shape == (40, 12)
    assert np.allclose(found, plain, atol=1e-5)
    assert not np.allclose(found, public, atol=1e-2)
    assert gradients.features(X[:0], "8", values).shape == (0, 12)


@pytest.mark.parametrize("persons", [False, True])
def test_a_file_states_all_releases_and_is_verified(persons, net, images, tmp_path):
    X, y = images
    model = make(net, ApproxDP(2.0, 1e-5), rate=0.5)
    model.fit(X, y, groups=np.arange(40) // 4 if persons else None)
    path = tmp_path / "model.safetensors"
    model.save(path)
    assert (model.guarantee_.unit == Unit.PERSON) is persons
    assert verify(path).holds
    again = SparseFinetuner.load(path, net)
    assert (again.decision_function(X) == model.decision_function(X)).all()
    assert again.guarantee_.releases == model.guarantee_.releases


@pytest.mark.parametrize(
    ("name", "value"),
    [("width", 13), ("width", None), ("width", "12"), ("default_head", False)],
)
def test_a_file_that_says_otherwise_of_its_head_is_refused(
    name, value, net, images, tmp_path
):
    path = tmp_path / "model.safetensors"
    make(net, GaussianDP(1.0)).fit(*images).save(path)
    fields, tensors = tensorfile.read(path, "dppl_finetune")
    (fields if name == "width" else fields["parameters"]["recipe"])[name] = value
    path.write_bytes(tensorfile.to_bytes("dppl_finetune", fields, tensors))
    with pytest.raises(ModelFileError):
        SparseFinetuner.load(path, net)


def test_a_recommended_training_follows_from_public_numbers(torch, net):
    few = SparseFinetuner.recommended(net, ApproxDP(1.0, 1e-5), CLASSES, 900)
    many = SparseFinetuner.recommended(net, ApproxDP(1.0, 1e-5), CLASSES, 3000)
    assert (few.train, many.train, many.sparsity) == (
        ("head",),
        ("head", "norm", "conv"),
        1.0,
    )
    assert many.recipe.batch_size == 3000 / 16
    noise_std = training_of(many.plan(SHAPE)).parameters["noise_std"] / RADIUS
    assert many.recipe.head_learning_rate == pytest.approx(
        2 * 3000 / 16 / 100 / noise_std, rel=1e-2
    )
    assert few.recipe.head_learning_rate == pytest.approx(
        0.3 * many.recipe.head_learning_rate
    )
    flat = torch.nn.Sequential(
        *net[:4], torch.nn.Flatten(), torch.nn.LayerNorm(108), torch.nn.Linear(108, 900)
    )
    assert SparseFinetuner.recommended(
        flat, ApproxDP(1.0, 1e-5), CLASSES, 3000
    ).train == ("head", "norm")
    assert (
        SparseFinetuner.recommended(net, GaussianDP(1.0), CLASSES, 3000).sampling_rate
        == 1
    )


@pytest.mark.parametrize("keeps", [True, False])
def test_filters_keep_their_mean_and_deviation(keeps, net, images):
    options = {
        "train": ("head", "norm", "conv"),
        "sparsity": 1.0,
        "keep_filters": keeps,
        "random_state": 0,
    }
    trained = make(net, GaussianDP(1.0), **options).fit(*images).module_
    for name in ("0.weight", "3.weight"):
        before, after = (
            m.get_parameter(name)
            .detach()
            .numpy()
            .reshape(len(m.get_parameter(name)), -1)
            for m in (net, trained)
        )
        assert np.abs(after - before).max() > 1e-4
        for of in (np.mean, np.std):
            assert np.allclose(of(after, 1), of(before, 1), atol=1e-6) is keeps


@pytest.mark.parametrize("keeps", [True, False])
def test_no_clip_is_spent_on_means_and_deviations_of_filters(keeps, torch, net, images):
    X, y = images
    selection = select_weights(net, ("head", "conv"), sparsity=1.0)
    gradients = NetworkGradients(
        net, selection, clip=0.01, shape=SHAPE, block=8, keep_filters=keeps
    )
    rows = gradients.integers(torch.tensor(X[:8]), torch.tensor(y[:8])).double()
    assert (rows.norm(dim=1) > 0.5 * RADIUS).all()
    assert (rows.norm(dim=1) <= RADIUS).all()
    filters = net[3].weight.flatten(1).double()
    own = rows[:, 72:504].reshape(8, 12, 36)
    for direction in (
        torch.ones_like(filters),
        filters - filters.mean(1, keepdim=True),
    ):
        along = (
            (own * direction / direction.norm(dim=1, keepdim=True)).sum(2).abs().max()
        )
        assert bool(along < 10) is keeps  # integers are rounded by 1/2


def test_a_head_that_is_not_trained_is_refused(net):
    with pytest.raises(
        ParameterError, match="default_head needs the part 'head' in train"
    ):
        make(net, GaussianDP(1.0), train=("norm",)).plan(SHAPE)
    with pytest.raises(ParameterError, match="default_head must be True or False"):
        Recipe(default_head=1)


@pytest.mark.parametrize("way", ["tokens", "twice"])
def test_a_head_that_takes_more_than_a_vector_a_record_is_refused_before_it_is_paid(
    way, torch
):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(6, 3)

        def forward(self, x):
            rows = x[:, 0]
            return (
                self.head(rows).mean(1)
                if way == "tokens"
                else self.head(rows[:, 0]) + self.head(rows[:, 1])
            )

    with pytest.raises(
        ParameterError,
        match="default_head of a recipe needs a head that is called once a record",
    ):
        make(Net(), GaussianDP(1.0), train=("head",)).plan(SHAPE)
    make(Net(), GaussianDP(1.0), train=("head",), default_head=False).plan(SHAPE)


def test_a_file_cannot_have_a_wide_head_planned(net, images, tmp_path):
    path = tmp_path / "model.safetensors"
    make(net, GaussianDP(1.0)).fit(*images).save(path)
    fields, tensors = tensorfile.read(path, "dppl_finetune")
    fields["width"] = 10**9
    path.write_bytes(tensorfile.to_bytes("dppl_finetune", fields, tensors))
    with pytest.raises(ModelFileError):
        verify(path)
