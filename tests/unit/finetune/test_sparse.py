"""Sparse fine-tuning: the mask, the recipe, the model and its file."""

import hashlib
import json
import re
import struct
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

from dppl import ApproxDP, GaussianDP, Ledger
from dppl.errors import (
    BudgetError,
    InputError,
    ModelFileError,
    ParameterError,
    UnknownLabelError,
)
from dppl.finetune import (
    Recipe,
    SparseFinetuner,
    network_file,
    select_weights,
    to_group_norm,
)
from dppl.finetune.gradients import NetworkGradients
from dppl.finetune.trainer import Training
from dppl.kernel.privacy.terms import Caveat, Term
from dppl.statement import make_report
from overhearing import overheard

CLASSES = ["a", "b", "c"]
RECIPE = Recipe(epochs=5, batch_size=40.0, block=40)
NO_NOISE = GaussianDP(1e6)


def make(module, budget=NO_NOISE, **options):
    moves = {name: options.pop(name) for name in vars(RECIPE).keys() & options.keys()}
    options = {"sampling_rate": 1.0, "recipe": replace(RECIPE, **moves), **options}
    return SparseFinetuner(module, budget, CLASSES, **options)


@pytest.fixture
def labelled(images):
    X, y = images
    return X, np.array(CLASSES)[y]


# The mask.


def convolutions(torch, module):
    return {
        f"{name}.weight": layer.weight.detach().numpy().ravel()
        for name, layer in module.named_modules()
        if isinstance(layer, torch.nn.Conv2d)
    }


@pytest.mark.parametrize("sparsity", [0.003, 0.01, 0.25, 0.999, 1.0])
def test_the_largest_weights_of_all_convolutions_together_are_trained(
    torch, net, sparsity
):
    weights = convolutions(torch, net)
    every = np.abs(np.concatenate(list(weights.values())))
    selection = select_weights(net, ("conv",), sparsity=sparsity)
    taken = np.concatenate(
        [
            np.isin(np.arange(len(w)), selection.get(n, []))
            | (selection.get(n, 0) is None)
            for n, w in weights.items()
        ]
    )
    assert taken.sum() == max(1, round(sparsity * len(every)))
    assert not (~taken).any() or every[taken].min() > every[~taken].max()


def test_of_equal_weights_the_earlier_are_taken(torch, net):
    with torch.no_grad():
        for name in convolutions(torch, net):
            net.get_parameter(name).fill_(-0.5)
        net[0].weight.view(-1)[40] = 0.6
    selection = select_weights(net, ("conv",), sparsity=10 / (72 + 432))
    assert selection["0.weight"].tolist() == [*range(9), 40]
    assert "3.weight" not in selection


def test_parts_are_head_norm_and_conv(torch, net):
    assert list(select_weights(net, ("head",))) == ["8.weight", "8.bias"]
    assert list(select_weights(net, ("norm",))) == [
        "1.weight",
        "1.bias",
        "4.weight",
        "4.bias",
    ]
    assert "3.bias" not in select_weights(
        net, sparsity=1.0
    )  # the bias of a convolution is no part
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    assert list(select_weights(layer, ("norm",))) == [
        "norm1.weight",
        "norm1.bias",
        "norm2.weight",
        "norm2.bias",
    ]

    class OwnNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(3))

    assert list(select_weights(torch.nn.Sequential(OwnNorm()), ("norm",))) == [
        "0.scale"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": ()}, "train must name parts"),
        ({"train": "head"}, "train must name parts"),
        ({"train": ("body",)}, "train must be one of"),
        ({"sparsity": 0.0}, "sparsity"),
        ({"head": "0"}, "head must name a linear layer"),
    ],
)
def test_what_is_selected_is_checked(net, options, message):
    with pytest.raises(ParameterError, match=message):
        select_weights(net, **{"train": ("head",), **options})


def test_parts_that_are_not_there_are_named(torch):
    with pytest.raises(ParameterError, match="'conv'; leave it out"):
        select_weights(torch.nn.Sequential(torch.nn.Linear(3, 2)), ("head", "conv"))
    with pytest.raises(ParameterError, match="head"):
        select_weights(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)), ("head",))


def selections(module, data):
    found = []
    for X, y in data:
        model = make(module, sparsity=0.1, epochs=1).fit(X, y)
        found.append(
            {
                name: None if p is None else p.tolist()
                for name, p in model.selection_.items()
            }
        )
    return found


def test_the_mask_does_not_depend_on_private_records(net, labelled, monkeypatch):
    X, y = labelled
    data = [(X, y), (-3 * X[::-1].copy(), y)]
    one, other = selections(net, data)
    assert one == other
    # A planted fault: a trainer of the largest private gradients in place of the
    # largest public weights.
    original = Training.run

    def peeking(self, records, **options):
        module = deepcopy(self.module)
        module[8].weight.data[0] = 1.0  # a head of zeros would hide them
        X = records.inputs
        codes = np.searchsorted(CLASSES, records.labels)
        gradients = NetworkGradients(
            module, {"0.weight": None}, clip=1.0, shape=records.shape, block=len(X)
        )
        total = np.abs(gradients.block_sum(X, codes))
        self.selection["0.weight"] = np.sort(np.argsort(total)[-7:])
        self.__post_init__()
        return original(self, records, **options)

    monkeypatch.setattr(Training, "run", peeking)
    one, other = selections(net, data)
    assert one != other


# The recipe.


def test_defaults_are_those_of_the_document(net):
    model = SparseFinetuner(net, ApproxDP(1.13, 1e-5), CLASSES)
    trainer = model._training((1, 6, 6))
    assert (trainer.steps, trainer.sampling_rate, trainer.recipe, trainer.head) == (
        2000,
        0.1,
        Recipe(),
        "8",
    )


def test_without_a_rate_the_budget_and_the_ledger_decide_it(net, labelled, tmp_path):
    options = {"sampling_rate": None, "epochs": 1, "train": ("head",)}
    assert (
        make(net, ApproxDP(5.0, 1e-5), **options).fit(*labelled).sampling_rate_ == 0.1
    )
    assert make(net, GaussianDP(1.0), **options).fit(*labelled).sampling_rate_ == 1.0
    ledger = Ledger(tmp_path / "ledger.db", "images", ApproxDP(6.0, 1e-5))
    model = make(net, ApproxDP(5.0, 1e-5), **options)
    planned = model.plan((1, 6, 6), ledger=ledger)
    assert model.fit(*labelled, ledger=ledger).sampling_rate_ == 1.0
    assert planned.releases == model.guarantee_.releases
    assert ledger.releases()[0]["estimator"] == "SparseFinetuner"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"module": None},
            "module must be the public network, a torch.nn.Module; got a NoneType",
        ),
        ({"train": None}, "train must name parts among head, norm, conv"),
        ({"sampling_rate": 2}, "sampling_rate must be above 0 and at most 1"),
        ({"recipe": Recipe(epochs=2e6)}, "epochs must come to 100,000 steps at most"),
        (
            {"recipe": Recipe(block=2**50)},
            "the module cannot be trained record by record on shape (1, 6, 6)",
        ),
        ({"head": "nine"}, "must name a linear layer of the module, such as '8'"),
        (
            {"budget": GaussianDP(0.0)},
            "lets nothing be released, so there is nothing to train",
        ),
    ],
)
def test_wrong_parameters_are_named(net, labelled, options, words):
    with pytest.raises((ParameterError, BudgetError), match=re.escape(words)):
        make(net).set_params(**options).fit(*labelled)


@pytest.mark.slow
def test_the_documents_noise_is_epsilon_113_and_not_15(net):
    """Noise multiplier 15, sampling rate 0.1 and 2000 steps."""
    release = (
        SparseFinetuner(net, ApproxDP(1.13, 1e-5), CLASSES).plan((1, 6, 6)).releases[0]
    )
    assert release.parameters["noise_std"] / release.sensitivity == pytest.approx(
        15, rel=0.01
    )
    # Without sampling 200 full batches at this noise are about epsilon 4.1.
    assert GaussianDP(200**0.5 / 15).to_approx(1e-5).epsilon == pytest.approx(
        4.1, abs=0.1
    )


@pytest.mark.parametrize(
    ("epochs", "rate", "steps"),
    [(200, 0.1, 2000), (3, 1.0, 3), (0.5, 0.3, 2), (1, 0.7, 2)],
)
def test_steps_are_epochs_by_the_rate(net, epochs, rate, steps):
    model = make(net, ApproxDP(5.0, 1e-5), epochs=epochs, sampling_rate=rate)
    assert model._training((1, 6, 6)).steps == steps


@pytest.mark.parametrize(
    "train", [("head",), ("head", "norm"), ("head", "conv"), ("head", "norm", "conv")]
)
def test_it_learns(net, labelled, train):
    X, y = labelled
    model = make(net, train=train, sparsity=0.2, epochs=40, learning_rate=0.1).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.classes_.tolist() == CLASSES
    proba = model.predict_proba(X)
    assert np.allclose(proba.sum(1), 1, atol=1e-5)
    assert (np.array(CLASSES)[proba.argmax(1)] == model.predict(X)).all()
    assert model.predict(X[:0]).shape == (0,)
    mapped = X.copy()
    mapped.flags.writeable = False  # as of a file in memory; torch warns of such arrays
    assert (model.predict(mapped) == model.predict(X)).all()


def test_film_on_a_transformer(torch):
    nn = torch.nn
    torch.manual_seed(0)

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(9, 8)
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.head = nn.Linear(8, 2)

        def forward(self, tokens):
            return self.head(self.encoder(self.embedding(tokens)).mean(1))

    rng = np.random.default_rng(0)
    y = np.arange(40) % 3
    X = np.where(rng.random((40, 6)) < 0.7, y[:, None], rng.integers(0, 9, (40, 6)))
    model = make(
        Classifier(), train=("head", "norm"), epochs=30, learning_rate=0.1
    ).fit(X, np.array(CLASSES)[y])
    assert model.score(X, np.array(CLASSES)[y]) > 0.8
    assert sum("norm" in name for name in model.selection_) == 4


def test_a_head_that_is_kept_must_have_an_output_a_class(net, labelled):
    with pytest.raises(ParameterError, match="another number of outputs"):
        make(net, train=("norm",)).fit(*labelled)
    model = SparseFinetuner(
        net, NO_NOISE, range(5), train=("norm",), sampling_rate=1.0, recipe=RECIPE
    )
    model.fit(labelled[0], np.arange(40) % 5)
    assert (model.module_[8].weight == net[8].weight).all()


def test_labels_are_read_after_the_charge(net, labelled, tmp_path):
    X, y = labelled
    y = np.where(np.arange(40) == 7, "secret", y)
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(10.0))
    with pytest.raises(UnknownLabelError) as caught:
        make(net, GaussianDP(1.0)).fit(X, y, ledger=ledger)
    assert "secret" not in str(caught.value)
    assert len(ledger.releases()) == 1
    model = make(net, GaussianDP(1.0), unknown_labels="ignore").fit(X, y, ledger=ledger)
    assert ledger.releases()[1]["status"] == "not saved"
    model.save(tmp_path / "m.safetensors")
    (paid,) = ledger.releases()[1:]
    content = (tmp_path / "m.safetensors").read_bytes()
    assert (paid["status"], paid["model_sha256"]) == (
        "released",
        hashlib.sha256(content).hexdigest(),
    )
    room = network_file.most_bytes(model.plan(X.shape[1:]), model.width, model.classes)
    assert len(content) <= room < len(content) + 2**17
    assert Term(Caveat.UNKNOWN_LABEL_STOP) not in model.guarantee_.not_covered


def test_any_weights_may_be_named(net, labelled, tmp_path):
    places = np.array([0, 3, 7])
    model = make(net, train={"0.weight": places, "8.bias": None})
    model.set_params(classes=range(5)).fit(labelled[0], np.arange(40) % 5)
    moved = {
        name: (weight != net.get_parameter(name)).flatten()
        for name, weight in model.module_.named_parameters()
    }
    assert {name for name, some in moved.items() if some.any()} == {
        "0.weight",
        "8.bias",
    }
    assert np.flatnonzero(moved["0.weight"].numpy()).tolist() == places.tolist()
    with pytest.raises(
        ParameterError, match="train must name parts of the module for a file"
    ):
        model.save(tmp_path / "model.safetensors")
    with pytest.raises(
        ParameterError, match="selection must name parameters of the module"
    ):
        make(net, train={"9.weight": None}).fit(*labelled)


def test_a_strict_fit_stops_before_the_charge_and_says_so(net, labelled, tmp_path):
    X, y = labelled
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(10.0))
    strict = make(net, GaussianDP(1.0), unknown_labels="strict")
    for rows, labels in (
        (X, np.where(np.arange(40) == 7, "secret", y)),
        (np.where(X.max() == X, np.nan, X), y),
    ):
        with pytest.raises(InputError, match="records that can all be used"):
            strict.fit(rows, labels, ledger=ledger)
    assert not ledger.releases()
    assert (
        Term(Caveat.STRICT_STOP)
        in strict.fit(X, y, ledger=ledger).guarantee_.not_covered
    )


def test_classes_must_be_public(net, labelled):
    with pytest.raises(ParameterError, match="classes"):
        SparseFinetuner(net, NO_NOISE, None, recipe=RECIPE).fit(*labelled)


def test_scikit_learn_knows_its_parameters(net):
    model = make(net, sparsity=0.3)
    assert clone(model).get_params()["sparsity"] == 0.3


def test_a_failed_fit_leaves_no_model(net, labelled):
    model = make(net).fit(*labelled)
    with pytest.raises(ParameterError):
        model.set_params(sampling_rate=-1).fit(*labelled)
    assert not hasattr(model, "module_")


def test_the_release_is_what_the_plan_said(net, labelled):
    model = make(net, GaussianDP(1.0))
    planned = model.plan((1, 6, 6))
    with overheard() as heard:
        model.fit(*labelled)
    assert model.guarantee_.to_dict() == planned.to_dict()
    assert len(heard) == planned.releases[0].times


# The file.


def test_the_file_holds_the_trained_weights_only(torch, net, labelled, tmp_path):
    path = tmp_path / "model.safetensors"
    model = make(net, GaussianDP(1.0), sparsity=0.1).fit(*labelled)
    model.save(path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    size = sum(
        net.get_parameter(n).numel() if p is None else len(p)
        for n, p in model.selection_.items()
        if n[0] != "8"
    )
    assert header["values"]["shape"] == [size + 3 * 12 + 3]
    again = SparseFinetuner.load(path, net)
    for one, other in zip(
        again.module_.state_dict().values(),
        model.module_.state_dict().values(),
        strict=True,
    ):
        assert (one == other).all()
    assert (again.predict(labelled[0]) == model.predict(labelled[0])).all()
    assert again.guarantee_.to_dict() == model.guarantee_.to_dict()
    with pytest.raises(FileExistsError, match="overwrite it with overwrite=True"):
        model.save(path)
    with pytest.raises(ParameterError, match="module must be the public network"):
        SparseFinetuner.load(path, None)
    assert model.report(by="us").dict() == make_report(path, by="us").dict()
    described = network_file.describe(path)
    assert (described["n_steps"], described["noise_multiplier"]) == (
        5,
        pytest.approx(5**0.5),
    )
    assert again.get_params(deep=False) | {"module": 0} == model.get_params(
        deep=False
    ) | {
        "module": 0,
        "train": again.train,
        "classes": again.classes,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 6),
        ("sampling_rate", 0.5),
        ("clip", "1"),
        ("batch_size", None),
        ("block", True),
    ],
)
def test_a_file_whose_recipe_contradicts_its_guarantee_is_refused(
    net, labelled, tmp_path, monkeypatch, name, value
):
    model = make(net, GaussianDP(1.0), train=("head",)).fit(*labelled)
    if name in vars(model.recipe):
        model.recipe = SimpleNamespace(**vars(model.recipe) | {name: value})
    else:
        setattr(model, "sampling_rate_" if name == "sampling_rate" else name, value)
    model.save(tmp_path / "forged.safetensors")
    with pytest.raises(ModelFileError):
        network_file.describe(tmp_path / "forged.safetensors")


def test_a_file_fits_its_public_module_only(torch, net, labelled, tmp_path):
    path = tmp_path / "model.safetensors"
    make(net).fit(*labelled).save(path)
    with torch.no_grad():
        net[0].weight[0, 0, 0, 0] += 1e-6
    with pytest.raises(InputError, match="another public module"):
        SparseFinetuner.load(path, net)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ModelFileError):
        SparseFinetuner.load(path, net)
    with pytest.raises(FileNotFoundError):
        SparseFinetuner.load(tmp_path / "none", net)


# Group normalisation.


def test_batch_normalisation_becomes_group_normalisation(torch):
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(1, 6, 1),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.Sequential(nn.BatchNorm2d(7)),
    )
    module[1].weight.data.fill_(2.0)
    converted = to_group_norm(module, groups=4)
    assert isinstance(module[1], nn.BatchNorm2d)
    assert module[2].inplace
    assert (converted[1].num_groups, converted[3][0].num_groups) == (3, 1)
    assert (converted[1].weight == 2.0).all()
    assert not converted[2].inplace
    x = torch.randn(5, 1, 4, 4)
    body = converted[:3]
    assert torch.allclose(body(x)[:1], body(x[:1]), atol=1e-6)
    assert isinstance(to_group_norm(nn.BatchNorm1d(4)), nn.GroupNorm)
    with pytest.raises(ParameterError, match="groups"):
        to_group_norm(module, groups=0)


def test_a_converted_network_can_be_trained(torch, labelled):
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )
    with pytest.raises(ParameterError, match="to_group_norm"):
        make(module).fit(*labelled)
    make(to_group_norm(module)).fit(*labelled)


def test_a_checkpoint_is_of_one_class_list(net, images, tmp_path):
    X, y = images
    options = {"sampling_rate": 1.0, "recipe": Recipe(epochs=2, batch_size=20)}

    def stop(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SparseFinetuner(net, GaussianDP(1.0), [0, 1, 2], **options).fit(
            X, y, checkpoint=tmp_path / "run.ckpt", progress=stop
        )
    other = SparseFinetuner(
        net, GaussianDP(1.0), [0, 1, 3], unknown_labels="ignore", **options
    )
    with pytest.raises(
        ParameterError, match="a run with another classes, another unknown_labels"
    ):
        other.fit(X, y, checkpoint=tmp_path / "run.ckpt")
