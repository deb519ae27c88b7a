"""Images in folders: their parts, few-shot trials, controls of sparse fine-tuning, and a public training."""

import signal
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dppl import ApproxDP, GaussianDP
from dppl.errors import BudgetError, InputError, ParameterError
from dppl.finetune import Recipe, SparseFinetuner, select_weights
from dppl.finetune.networks import load_network
from dppl.kernel.privacy.sampling import sampled_gaussian_multiplier
from dppl.lab import ControlFinetuner
from dppl.lab.commands.bench import Bench
from dppl.lab.experiments import image_sets, measure_cell, runner
from dppl.lab.experiments.datasets import PublicTraining
from dppl.lab.experiments.image_sets import load, split_images
from dppl.lab.experiments.markdown import write_report
from dppl.lab.experiments.measure_cell import check_cells, run_cell
from dppl.lab.experiments.network_methods import on_pixels
from dppl.lab.experiments.results import write_results
from dppl.lab.experiments.runner import run_experiment
from dppl.lab.finetuner import NonPrivateFinetuner, NonPrivateStatistics
from dppl.lab.moments_accountant import epsilon_by_moments
from dppl.lab.pretraining import pretrain
from dppl.lab.resnet import for_cifar, for_photos

CODE = """
from torch import nn

def make():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 6),
    )
"""
SIZE = 6
CLASSES = "abcdef"
EACH = 10
SAMPLED = [{"epsilon": [8], "delta": 1e-5}, "non-private"]


@pytest.fixture
def place(torch, tmp_path, monkeypatch):
    """Work in a folder with images of six classes, whose first pixel is their number, and a network."""
    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(CODE)
    save_file(_network(torch, 0).state_dict(), "net.safetensors")
    rng = np.random.default_rng(0)
    for code, name in enumerate(CLASSES):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for n in range(EACH):
            pixels = rng.integers(0, 60, size=(SIZE, SIZE, 3)) + 35 * code
            pixels[0, 0] = code * EACH + n
            file = tmp_path / "photos" / name / f"{n}.png"
            Image.fromarray(pixels.astype(np.uint8)).save(file)
    return tmp_path


def _network(torch, seed):
    names = {}
    exec(CODE, names)
    torch.manual_seed(seed)
    return names["make"]().eval()


URI = f"python:net.py:make@net.safetensors?size={SIZE}"


def photos(place, **further):
    return {
        "name": "photos",
        "encoder": "tiny",
        "images": str(place / "photos"),
        "network": URI,
        **further,
    }


def numbers(images):
    return images[:, 0, 0, 0].tolist()


def results(experiment):
    check_cells(experiment.cells, experiment.datasets)
    found = [run_cell(cell, experiment.datasets) for cell in experiment.cells]
    assert [one.get("message") for one in found] == [None] * len(found)
    return found


def test_no_image_is_in_training_and_test(place):
    parts, _ = split_images(place / "photos", URI)
    train, test = numbers(parts["X"]), numbers(parts["X_test"])
    assert sorted(train + test) == list(range(len(CLASSES) * EACH))
    assert len(test) == len(CLASSES) * EACH // 5
    # Labels are those of the images.
    for part in ("", "_test"):
        codes = [number // EACH for number in numbers(parts[f"X{part}"])]
        assert [CLASSES[code] for code in codes] == parts[f"y{part}"].tolist()


def test_the_test_set_of_a_folder_is_its_own(place):
    for part, names in (("train", "abc"), ("test", "def")):
        (place / "own" / part).mkdir(parents=True)
        for name in names:
            (place / "photos" / name).rename(place / "own" / part / name)
    parts, _ = split_images(place / "own", URI)
    assert set(parts["y"]) == set("abc")
    assert set(parts["y_test"]) == set("def")
    (place / "own" / "test").rename(place / "own" / "later")
    with pytest.raises(InputError, match="both of the subfolders"):
        split_images(place / "own", URI)


def test_digits_have_public_rows_that_are_neither_private_nor_tests():
    parts, pools = split_images(Path("digits"), URI)
    sizes = [len(rows) for rows in (parts["X"], parts["X_test"], pools["digits"])]
    assert sum(sizes) == 1797
    assert min(sizes) > 200


def test_a_network_with_other_weights_at_the_same_path_is_another(
    torch, place, experiment
):
    from safetensors.torch import save_file

    usual = {"datasets": [photos(place)], "methods": ["ncm", "head"], "ir": None}
    usual["budgets"] = {"mu": 1}
    before = experiment(**usual)
    weights = on_pixels(URI)[0].network[0].weight.clone()
    save_file(_network(torch, 1).state_dict(), "net.safetensors")
    after = experiment(**usual)
    keys = {cell.key for one in (before, after) for cell in one.cells}
    assert len(keys) == 4
    assert not torch.equal(on_pixels(URI)[0].network[0].weight, weights)


def test_a_trial_draws_its_classes_and_as_many_records_of_each(place, experiment):
    methods = [
        {"method": name, "epochs": 1} for name in ("head", "film", "sparse", "scratch")
    ]
    loaded = experiment(
        datasets=[photos(place, ways=2, shots=[3])],
        methods=["ncm", "softmax", *methods],
        budgets=[{"mu": 1}, "non-private"],
        seeds=2,
        ir=None,
    )
    drawn = set()
    for one in results(loaded):
        assert one["data"]["class_sizes"] == [3, 3]
        drawn.add((one["cell"]["seed"], one["data"]["n_test"]))
    # A seed is one trial for all methods.
    assert len({seed for seed, _ in drawn}) == len(drawn) == 2
    (spec,) = loaded.datasets.values()
    whole = load(spec)
    tasks = {tuple(whole.few(2, 3, seed).classes) for seed in range(20)}
    assert len(tasks) > 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shots": [10]}, "shots: 10 records of each class are more"),
        ({"ways": 7}, "ways: 7 classes are more"),
        ({"network": None}, "images and network go together"),
        ({"whole": True}, "have no files"),
        ({"images": "nowhere"}, "no file"),
    ],
)
def test_what_a_folder_lacks_is_said(place, experiment, changes, words):
    def check():
        loaded = experiment(
            datasets=[photos(place, **changes)], methods=["ncm"], budgets=None, ir=None
        )
        check_cells(loaded.cells, loaded.datasets)

    with pytest.raises((InputError, ParameterError), match=words):
        check()


def test_votes_and_trained_weights_are_compared_and_drawn(place, experiment, drawn):
    (place / "pool").mkdir()
    for code, name in enumerate(CLASSES):
        (place / "photos" / name / "0.png").rename(place / "pool" / f"{code}.png")
    trained = {"sampling_rate": 0.5, "epochs": 2, "layers": True}
    loaded = experiment(
        datasets=[
            photos(
                place,
                encoder="voted",
                public=[{"name": "near", "file": str(place / "pool")}],
            )
        ],
        methods=[
            {"method": "private-knn", "n_neighbours": 3, "n_queries": 6},
            {"method": "pate", "n_teachers": 3, "n_queries": 6},
            {
                **trained,
                "method": "sparse",
                "sparsity": 0.1,
                "mask": ["largest", "random"],
            },
            {**trained, "method": "scratch"},
        ],
        budgets=SAMPLED,
        ir=None,
    )
    found = results(loaded)
    # Every method has its bound, which promises nothing.
    assert [one["notion"] == "none" for one in found] == [False, True] * 5
    layers = [one["layers"] for one in found if "layers" in one]
    convolutions = [
        sum(layer["trained"] for layer in several if layer["kind"] == "conv")
        for several in layers
    ]
    whole = 8 * 3 * 9 + 8 * 8 * 9
    assert convolutions == [round(0.1 * whole)] * 4 + [whole] * 2
    names = ("noise-layers", "noise-share", "trained-layers")
    drawn |= {f"{name}-photos-voted" for name in names}
    made = {"config": loaded.config, "data_folder": None}
    write_results([one | made for one in found], place / "found.jsonl")
    files = write_report(place / "found.jsonl", place / "report")
    for name in drawn:
        assert (place / "report" / f"{name}.png").stat().st_size > 5000
    assert all(file.exists() for file in files)


def test_noise_and_gradient_of_a_layer_are_those_of_a_step(torch, place, experiment):
    loaded = experiment(
        datasets=[photos(place)],
        methods=[
            {
                "method": "head",
                "sampling_rate": 0.25,
                "epochs": 1,
                "clip": 0.5,
                "layers": True,
            }
        ],
        budgets=SAMPLED[:1],
        ir=None,
    )
    (one,) = results(loaded)
    head = one["layers"][-1]
    assert head["kind"] == "head"
    assert head["trained"] == head["weights"] == 8 * 6 + 6
    multiplier = sampled_gaussian_multiplier(
        8, 1e-5, sampling_rate=0.25, steps=4, mu=0.0
    )
    assert head["noise"] == pytest.approx(0.5 * multiplier * head["trained"] ** 0.5)
    # No sum is longer than its records' clipped gradients.
    assert 0 < head["gradient"] <= 0.25 * 48 * 0.5
    assert all(layer["gradient"] == 0 for layer in one["layers"][:-1])


def finetuner(kind=ControlFinetuner, budget=8, module=None, **further):
    recipe = Recipe(epochs=2, batch_size=20)
    return kind(
        load_network(URI).module if module is None else module,
        ApproxDP(budget, 1e-5),
        range(3),
        sampling_rate=0.5,
        recipe=recipe,
        random_state=further.pop("seed", 0),
        sparsity=0.1,
        **further,
    )


def records(n=40):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 3, SIZE, SIZE)) + y[:, None, None, None]
    return X.astype(np.float32), y


def test_a_random_mask_has_as_many_weights_elsewhere(place):
    X, y = records()
    masks = [
        finetuner(mask=mask, seed=seed).fit(X, y).selection_
        for mask, seed in (("largest", 0), ("largest", 1), ("random", 0), ("random", 1))
    ]
    convolutions = ("0.weight", "3.weight")
    flat = [
        {(name, place) for name in convolutions for place in mask.get(name, ())}
        for mask in masks
    ]
    assert flat[0] == flat[1]
    assert len({frozenset(one) for one in flat}) == 3
    assert {len(one) for one in flat} == {round(0.1 * (216 + 576))}
    # Like the whole, about three of eleven are in the first layer, and no more.
    first = sum(name == "0.weight" for name, _ in flat[2] | flat[3])
    assert 20 < first < 60
    whole = select_weights(load_network(URI).module, ("head", "norm"))
    assert whole.keys() <= masks[2].keys()


def test_a_start_at_random_forgets_the_public_network(torch, place):
    X, y = records()
    public = load_network(URI).module.state_dict()
    for start, same in (("public", True), ("random", False)):
        model = finetuner(start=start, train=("head",), seed=5).fit(X, y)
        assert (
            torch.equal(model.module_.state_dict()["0.weight"], public["0.weight"])
            == same
        )
    plain = finetuner(SparseFinetuner).fit(X, y)
    ours = finetuner().fit(X, y)
    assert np.array_equal(plain.decision_function(X), ours.decision_function(X))


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_the_moments_accountant_asks_for_more_noise_and_the_statement_for_less(
    place, rate
):
    """Its noise is what RDP gives by Mironov's conversion; what is stated is what that noise costs."""
    X, y = records()
    usual, published = (
        finetuner(accounting=one, budget=2, train=("head",))
        .set_params(sampling_rate=rate)
        .fit(X, y)
        .guarantee_
        for one in ("distributions", "moments")
    )
    ratios = [
        one.releases[0].parameters["noise_std"] / 2**22 for one in (usual, published)
    ]
    assert 1.05 < ratios[1] / ratios[0] < 1.5
    steps = published.releases[0].times
    assert epsilon_by_moments(ratios[1], 1e-5, rate, steps) == pytest.approx(2)
    assert published.stays_within_budget()
    assert 1 < published.epsilon(1e-5) < 1.9 < usual.epsilon(1e-5) <= 2
    with pytest.raises(BudgetError, match="use ApproxDP"):
        finetuner(accounting="moments").set_params(
            sampling_rate=1.0, budget=GaussianDP(1.0)
        ).fit(X, y)


def test_the_bound_is_what_ever_less_noise_leads_to(place):
    X, y = records()
    bound = finetuner(NonPrivateFinetuner).fit(X, y)
    assert not hasattr(bound, "guarantee_")
    near, far = (
        np.abs(
            finetuner(budget=budget).fit(X, y).decision_function(X)
            - bound.decision_function(X)
        ).mean()
        for budget in (20, 1)
    )
    assert near < far / 3


def test_recomputed_statistics_are_those_of_the_records(torch, place):
    X, y = records()
    X += 3
    layer = torch.nn.BatchNorm2d(8)
    public = _network(torch, 0)
    public[1] = layer.eval()
    for model, same in (
        (finetuner(module=public, train=("head", "norm")), True),
        (finetuner(NonPrivateStatistics, module=public, train=("head", "norm")), False),
    ):
        module = model.fit(X, y).module_
        with torch.no_grad():
            seen = module[0](torch.from_numpy(X))
        assert torch.equal(module[1].running_mean, public[1].running_mean) == same
        if not same:
            assert torch.allclose(module[1].running_mean, seen.mean((0, 2, 3)))
            assert torch.allclose(module[1].running_var, seen.var((0, 2, 3)))
    assert not hasattr(model, "guarantee_")
    # Group normalisation has none.
    with pytest.raises(ParameterError, match="batch normalisation"):
        finetuner(NonPrivateStatistics).fit(X, y)


def test_a_check_embeds_nothing_and_a_run_embeds_once(
    place, experiment, monkeypatch, tmp_path
):
    calls = []
    embed = image_sets.features
    monkeypatch.setattr(
        image_sets,
        "features",
        lambda network, images: calls.append(len(images)) or embed(network, images),
    )
    monkeypatch.setattr(runner, "ProcessPoolExecutor", InProcess)
    measure_cell._LOADED.clear()
    loaded = experiment(
        datasets=[photos(place, base="photos", ways=3)],
        data=str(place),
        methods=["ncm", "protonet", {"method": "head", "epochs": 1}],
        budgets={"mu": 1},
        ir=None,
        seeds=2,
    )
    check_cells(loaded.cells, loaded.datasets)
    assert not calls
    found = []
    run_experiment(loaded, tmp_path / "found.jsonl", jobs=1, finished=found.append)
    assert [one.get("message") for one in found] == [None] * 6
    # Private records, tests, and images of public classes: each once for six cells.
    assert sorted(calls) == [12, 48, 60]
    measure_cell._LOADED.clear()
    direct = [run_cell(cell, loaded.datasets) for cell in loaded.cells]
    assert [one["metrics"] for one in found] == [one["metrics"] for one in direct]


class InProcess:
    """A pool that computes a cell when it is given one."""

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, function, *given):
        future = Future()
        future.set_result(function(*given))
        return future


TRAIN = """
import os, signal, sys
from dppl.finetune.checkpoint import Checkpoint
from dppl.lab.experiments.datasets import PublicTraining
from dppl.lab.pretraining import pretrain
write = Checkpoint.write
def killed(self, state, begun):
    write(self, state, begun)
    if begun == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoint.write = killed
pretrain(sys.argv[1], PublicTraining("photos", **eval(sys.argv[3])))
"""


def test_a_public_training_goes_on_where_it_was_killed(place):
    def named(file):
        return f"python:net.py:make@{file}?size={SIZE}"

    whole, cut = Path("whole.safetensors"), Path("cut.safetensors")
    settings = {"epochs": 4, "batch_size": 16, "augment": True}
    pretrain(named(whole), PublicTraining("photos", **settings))
    for epoch in (1, 3):
        command = [sys.executable, "-c", TRAIN, named(cut), str(epoch), str(settings)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert not cut.exists()
    # Other settings are another run, which the checkpoint is not of.
    with pytest.raises(ParameterError, match="another recipe"):
        pretrain(named(cut), PublicTraining("photos", epochs=5))
    pretrain(named(cut), PublicTraining("photos", **settings))
    assert cut.read_bytes() == whole.read_bytes()
    files = {path.name for path in place.iterdir() if path.is_file()}
    assert files == {"net.py", "net.safetensors", cut.name, whole.name}


def test_a_configuration_trains_its_network_first(torch, place, write_config, capsys):
    made = URI.replace("net.safe", "made.safe")
    training = {"images": str(place / "photos"), "epochs": 30, "batch_size": 16}
    config = {
        "datasets": [photos(place, network=made, pretrain=training)],
        "methods": ["ncm"],
        "budgets": None,
    }
    request = Bench(experiment=str(write_config(**config)), jobs=1)
    request.run()
    weights = Path("made.safetensors").read_bytes()
    module, _ = on_pixels(made)
    parts, _ = split_images(place / "photos", URI)
    images = torch.from_numpy(np.concatenate([parts["X"], parts["X_test"]]))
    labels = np.concatenate([parts["y"], parts["y_test"]])
    with torch.no_grad():
        found = module(images).argmax(1).numpy()
    assert np.mean(found == np.searchsorted(list(CLASSES), labels)) > 0.6
    # The same command again finds the network, and its result.
    capsys.readouterr()
    request.run()
    assert "1 done before" in capsys.readouterr().out
    assert Path("made.safetensors").read_bytes() == weights


def test_a_public_training_wants_an_output_a_class_and_no_statistics(place):
    (place / "photos" / "g").mkdir()
    Image.new("RGB", (SIZE, SIZE)).save(place / "photos" / "g" / "0.png")
    training = PublicTraining("photos")
    new = URI.replace("net.safe", "new.safe")
    with pytest.raises(ParameterError, match="each of 7 classes; it has 6"):
        pretrain(new, training)
    Path("net.py").write_text(CODE.replace("nn.GroupNorm(2, 8)", "nn.BatchNorm2d(8)"))
    with pytest.raises(ParameterError, match="to_group_norm"):
        pretrain(new, training)


def test_the_resnet_of_the_paper_has_three_convolutions_of_one_pixel(torch):
    for make, size in ((for_cifar, 32), (for_photos, 84)):
        module = make()
        assert module(torch.zeros(1, 3, size, size)).shape == (1, 100)
        kernels = [
            layer.kernel_size
            for layer in module.modules()
            if isinstance(layer, torch.nn.Conv2d)
        ]
        assert len(kernels) == 20
        assert kernels.count((1, 1)) == 3
        assert not any(
            isinstance(layer, torch.nn.BatchNorm2d) for layer in module.modules()
        )
