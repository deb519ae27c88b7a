"""Networks beside embeddings, few records a class, and settings that private records choose."""

import numpy as np
import pytest
from PIL import Image

from dppl import ApproxDP
from dppl.errors import InputError, ParameterError
from dppl.finetune.networks import load_network
from dppl.lab.experiments import measure_cell
from dppl.lab.experiments.compared_methods import (
    ALL_METHODS,
    METHODS,
)
from dppl.lab.experiments.compared_methods import (
    STREAM_METHODS as METHODS_OF_STREAMS,
)
from dppl.lab.experiments.image_sets import load
from dppl.lab.experiments.markdown import write_report
from dppl.lab.experiments.measure_cell import check_cells, run_cell
from dppl.lab.experiments.names import place_of, series_name
from dppl.lab.experiments.network_methods import on_pixels
from dppl.lab.experiments.results import write_results

NETWORK = """
import torch

def make():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 7),
    )
"""
COLOURS = "&mean=0.4,0.5,0.6&std=0.2,0.3,0.4"
FILES = {"train_images": "train_images.npy", "test_images": "test_images.npy"}
APPROX = {"epsilon": [8], "delta": 1e-5}
PROBES = ("ContinualEnsemble", "NaiveContinual", "FullDataContinual")


@pytest.fixture
def network(torch, data, monkeypatch):
    """Return the URI of a small network, with bright and dark images beside the rows of `blobs`."""
    from safetensors.torch import save_file

    monkeypatch.chdir(data.parent)
    (data.parent / "net.py").write_text(NETWORK)
    names = {}
    exec(NETWORK, names)
    torch.manual_seed(0)
    save_file(names["make"]().state_dict(), "net.safetensors")
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        y = np.load(data / "blobs" / f"{part}_y.npy")
        shade = 60 * y[:, None, None, None]
        images = shade + rng.integers(0, 40, size=(len(y), 6, 6, 3))
        np.save(data / "blobs" / f"{part}_images.npy", images.astype(np.uint8))
    return f"python:net.py:make@net.safetensors?size=6{COLOURS}"


def film(network, **further):
    return {"method": "film", "network": network, "epochs": 2, **further}


def blobs(**further):
    public = [{"name": "near", "file": "blobs/public_x.npy"}]
    return {
        "name": "blobs",
        "encoder": "none",
        "files": FILES,
        "public": public,
        **further,
    }


def results(experiment):
    check_cells(experiment.cells, experiment.datasets)
    found = [run_cell(cell, experiment.datasets) for cell in experiment.cells]
    assert all(one["status"] == "done" for one in found), found
    return found


def test_a_network_sees_pixels_as_it_does_without_a_comparison(torch, network):
    module, head = on_pixels(network)
    plain = load_network(network)
    image = np.random.default_rng(1).integers(0, 256, size=(6, 6, 3)).astype(np.uint8)
    prepared = plain.preprocessing(Image.fromarray(image))
    expected = plain.module(torch.from_numpy(prepared[None]))
    torch.testing.assert_close(module(torch.from_numpy(image[None])), expected)
    assert head == f"network.{plain.head}"
    # An image of another size becomes as large as the network takes it.
    larger, _ = on_pixels(network.replace("size=6", "size=12"))
    seen = []
    larger.network.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    larger(torch.from_numpy(image[None]))
    assert seen[0].shape == (1, 3, 12, 12)


def test_networks_are_compared_on_the_records_of_embeddings(experiment, network):
    loaded = experiment(
        datasets=[blobs(shots=[3, None])],
        methods=["mean", film(network)],
        budgets=[APPROX],
        ir=None,
    )
    few_mean, few, mean, all_of_them = results(loaded)
    for one, size in ((few_mean, 3), (few, 3), (mean, 40), (all_of_them, 40)):
        assert one["data"]["class_sizes"] == [size] * 4
    assert few["data"]["dim"] == 6 * 6 * 3
    assert place_of(few["cell"])[0] == "blobs (3 records a class)"
    # Nobody's folders, and no preparation of images.
    name = series_name(few["cell"])
    assert "python:net.py:make@net.safetensors" in name
    assert "mean=" not in name
    # A batch is what the data set has.
    method = METHODS["film"]
    model = method.build(ApproxDP(8, 1e-5), range(4), 0, few["cell"]["parameters"])
    assert method.sized(model, 12).recipe.batch_size == 12


def test_an_ensemble_of_networks_learns_a_stream(experiment, network):
    stream = {"of": "blobs", "kind": "class-incremental", "tasks": 2}
    ensemble = {**film(network), "method": "FilmEnsemble", "scores": "largest"}
    loaded = experiment(
        datasets=[blobs(public=[])],
        streams=[stream],
        methods=[ensemble, "ContinualPrototypes"],
        budgets=[APPROX],
    )
    first, _ = results(loaded)
    (cell, _) = loaded.cells
    # Two tasks, each with scale and shift of four channels, and a head of 4 x 4 and 4.
    assert first["stream"]["model_bytes"] == 2 * 4 * (8 + 20)
    assert len(first["stream"]["accuracies"]) == 2
    assert cell.parameters["scores"] == "largest"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"datasets": [{"name": "blobs", "encoder": "none"}]}, "no data set has files"),
        ({"methods": [{"method": "film"}]}, "network must name"),
        (
            {"methods": [{"method": "film", "network": "x", "search": 5}]},
            "private search",
        ),
        (
            {"methods": [{"method": "film", "network": "x", "tasks": 3}]},
            "no parameter 'tasks'",
        ),
    ],
)
def test_what_a_network_cannot_do_is_refused(experiment, network, changes, words):
    usual = {"datasets": [blobs()], "methods": [film(network)], "budgets": [APPROX]}

    def checked():
        loaded = experiment(**usual | changes)
        check_cells(loaded.cells, loaded.datasets)

    with pytest.raises(ParameterError, match=words):
        checked()


@pytest.mark.parametrize("wrong", [np.zeros((3, 6, 6, 3), np.uint8), np.zeros(160)])
def test_images_are_as_many_as_rows(experiment, network, data, wrong):
    np.save(data / "blobs" / "train_images.npy", wrong)
    loaded = experiment(datasets=[blobs()], methods=[film(network)], budgets=[APPROX])
    with pytest.raises(InputError, match="train_images must hold an image"):
        check_cells(loaded.cells, loaded.datasets)


@pytest.mark.parametrize("way", ["tune", "search"])
def test_methods_of_a_stream_take_one_setting_of_the_first_task(experiment, way):
    entry = {"method": "ContinualPrototypes"}
    loaded = experiment(
        streams=[{"of": "blobs", "kind": "class-incremental", "tasks": 2}],
        methods=[entry, *({"method": name, way: 4} for name in PROBES)],
        budgets=[APPROX, "non-private"],
    )
    found = results(loaded)
    searched = [one for one in found if one["search"] and one["e"] < 1e5]
    settings = [
        one["parameters"].get("head_options", one["parameters"]) for one in searched
    ]
    assert [one["cell"]["method"] for one in searched] == list(PROBES)
    assert settings[0] == settings[1] == settings[2]
    # Half of epsilon and delta pay for a private search; what is tuned pays nothing.
    assert [one["covered"] for one in searched] == [way == "search"] * 3
    budget = ApproxDP(8, 1e-5)
    if way == "search":
        budget = ApproxDP(4, 5e-6)
        # Without noise nothing is left to search for.
        assert not any(one["search"] for one in found if one["e"] > 1e5)
    mu = budget.gaussian_allowance().mu
    assert searched[0]["metrics"]["total_mu"] == pytest.approx(mu, rel=1e-3)


def test_one_setting_of_all_tasks_is_that_of_every_stream(experiment, monkeypatch):
    judged = []
    tune = measure_cell.tune
    monkeypatch.setattr(
        measure_cell,
        "tune",
        lambda cell, method, parts: (
            judged.append([len(one.y) for one in parts]) or tune(cell, method, parts)
        ),
    )
    measure_cell._TUNED.clear()
    loaded = experiment(
        streams=[
            {"of": "blobs", "kind": "class-incremental", "tasks": [2, 4], "told": told}
            for told in (True, False)
        ],
        methods=[
            {"method": name, "tune": 3, "tune_on": "all tasks"} for name in PROBES
        ],
        budgets=[APPROX],
    )
    found = [one for one in results(loaded) if one["search"]]
    assert len(found) == 2 * 2 * len(PROBES)
    # One search on two tasks of 80 records and four of 40, for every stream and method.
    assert judged == [[80, 80, 40, 40, 40, 40]]
    assert len({str(one["search"]) for one in found}) == 1
    assert found[0]["search"]["validation_rows"] == 2 * 16 + 4 * 8
    assert not any(one["covered"] for one in found)
    assert "all tasks" in series_name(found[0]["cell"])
    with pytest.raises(ParameterError, match="tune_on is for streams; add tune"):
        experiment(methods=[{"method": "linear-probe", "tune_on": "all tasks"}])


def test_a_task_alone_has_its_member_of_the_ensemble(experiment, drawn, tmp_path):
    loaded = experiment(
        streams=[{"of": "blobs", "kind": "class-incremental", "tasks": 2}],
        methods=[
            {"method": "ContinualEnsemble", "alone": True, "scores": "largest"},
            {"method": "FullDataContinual", "alone": True},
        ],
        budgets=[APPROX],
    )
    found = results(loaded)
    dataset = load(loaded.datasets["blobs", "none"])
    (cell, _) = loaded.cells
    tasks = cell.stream.tasks(dataset, dataset.y, 0)
    tests = cell.stream.test_tasks(dataset, 0)
    ensemble = METHODS_OF_STREAMS["ContinualEnsemble"].build(
        cell.make_budget(), dataset.classes, cell.noise_seed, cell.parameters
    )
    for task in tasks:
        ensemble.partial_fit(dataset.X[task.rows], dataset.y[task.rows])
    for number, (test, reached) in enumerate(
        zip(tests, found[0]["stream"]["alone"], strict=True)
    ):
        rows = ensemble.lattice_.features(dataset.X_test[test.rows])
        scores = rows @ ensemble.coef_[:, number].T
        right = dataset.classes[scores.argmax(axis=1)] == dataset.y_test[test.rows]
        assert reached == right.mean()
    # After the first task there is no other, whatever a method keeps.
    for one in found:
        assert one["stream"]["alone"][0] == one["stream"]["accuracies"][0][0]
    drawn.add("alone-blobs-none-2-tasks-class-incremental-ir-1")
    made = {"config": loaded.config, "data_folder": None}
    write_results([one | made for one in found], tmp_path / "found.jsonl")
    files = write_report(tmp_path / "found.jsonl", tmp_path / "report")
    (picture,) = (
        file
        for file in files
        if file.name.startswith("alone") and file.suffix == ".png"
    )
    assert picture.stat().st_size > 5000


def test_a_private_search_of_a_single_fit_spends_the_whole_budget(experiment):
    loaded = experiment(
        methods=[{"method": "linear-probe", "search": 3}], budgets=[APPROX]
    )
    plain, searched = results(loaded)
    assert plain["search"] is None
    assert searched["covered"]
    assert searched["search"]["mean_runs"] == 3
    assert searched["parameters"] == searched["search"]["best"]
    assert "private search" in series_name(searched["cell"])
    assert place_of(plain["cell"]) == place_of(searched["cell"])


def test_settings_of_a_search_are_of_the_method_that_is_fitted():
    for method in ALL_METHODS.values():
        if method.searched_as is not None:
            assert METHODS[method.searched_as].space
