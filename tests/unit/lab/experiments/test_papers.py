"""Figures of the papers: every one is a grid that can be computed, and draws what it is named after."""

import numpy as np
import pytest
import yaml

from dppl.errors import ParameterError
from dppl.lab.commands.bench import Bench
from dppl.lab.experiments.config import built_in, figure_as_yaml, load_experiment
from dppl.lab.experiments.grid import grid
from dppl.lab.experiments.papers import FIGURES


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_cells_without_its_data_at_hand(name):
    figure = FIGURES[name]
    content = yaml.safe_load(built_in(figure.base).read_text("utf-8"))
    few = {**figure.content(content), "seeds": 1, "budgets": {"mu": 1}}
    _, cells = grid(few, None, check=False)
    assert cells
    methods = {cell.method for cell in cells}
    if figure.draws == "coinpress-":
        assert methods == {"coinpress"}
    if figure.draws in ("top-k-", "best-k-"):
        assert {cell.parameters.get("n_prototypes") for cell in cells} > {
            1,
            20,
        }
    if not figure.streams:
        assert {cell.dataset for cell in cells} == set(figure.sets)
        assert {cell.ir for cell in cells} == (
            set(map(float, figure.ir)) or {"natural"}
        )


def test_streams_have_the_published_rules_beside_ours():
    cells = load_experiment("dp-cl:1", check=False).cells
    rules = {tuple(cell.parameters.items()) for cell in cells}
    assert rules >= {
        (("accumulate", "sum"),),
        (("accumulate", "weighted"),),
        (("scores", "largest"),),
        (("scores", "normalised"),),
    }


def test_the_configuration_that_is_shown_has_the_same_cells(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(figure_as_yaml("dppl-aaai:10"))
    mine = load_experiment(str(path), check=False)
    ours = load_experiment("dppl-aaai:10", check=False)
    assert [cell.key for cell in mine.cells] == [cell.key for cell in ours.cells]
    # The same figure at another width is another grid.
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**content, "seeds": 1}))
    assert len(load_experiment(str(path), check=False).cells) < len(ours.cells)


def test_mu_with_a_delta_is_the_epsilon_that_it_implies():
    cells = load_experiment("dppl-aaai:10", check=False).cells
    budgets = [cell.budget for cell in cells if cell.method == "friendly-core"]
    assert {tuple(budget) for budget in budgets} == {("epsilon", "delta")}
    assert any(budget["epsilon"] == pytest.approx(4.8866, 1e-4) for budget in budgets)


def test_a_figure_is_computed_and_drawn_into_a_folder_of_its_name(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data" / "vit-h-14"
    rng = np.random.default_rng(0)
    for name, n in (("cifar10", 40), ("imagenet", 20)):
        (folder / name).mkdir(parents=True)
        for part in ("train", "test"):
            y = np.arange(n) % 4
            X = rng.normal(size=(n, 8)) + 3 * np.eye(4, 8)[y]
            np.save(folder / name / f"{part}_x.npy", X.astype(np.float32))
            np.save(folder / name / f"{part}_y.npy", y)
        np.save(folder / name / "x.npy", X.astype(np.float32))
    monkeypatch.setitem(FIGURES, "dppl-v1:13", _few(FIGURES["dppl-v1:13"]))
    Bench(experiment="paper", figure="dppl-v1:13", data=tmp_path / "data", jobs=1).run()
    drawn = sorted(path.name for path in (tmp_path / "dppl-v1-13").glob("*.png"))
    assert any(name.startswith("coinpress-") for name in drawn)


@pytest.mark.parametrize("name", ["dp-cl:1", "dp-cl:a1"])
def test_a_figure_of_streams_is_drawn_by_its_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data" / "cifar100"
    folder.mkdir(parents=True)
    y = np.arange(200) % 100
    X = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    for part in ("train", "test"):
        np.save(folder / f"{part}_x.npy", X)
        np.save(folder / f"{part}_y.npy", y)
    figure = FIGURES[name]
    few = _few(figure, methods=["ContinualPrototypes"])
    monkeypatch.setitem(FIGURES, name, few)
    Bench(experiment="paper", figure=name, data=tmp_path / "data", jobs=1).run()
    drawn = (tmp_path / name.replace(":", "-")).glob("*.png")
    assert any(path.name.startswith(figure.draws) for path in drawn)


def test_film_is_in_the_figures_of_data_sets_that_need_it():
    for name, figure in FIGURES.items():
        if figure.streams:
            content = yaml.safe_load(figure_as_yaml(name))
            networks = [one for one in content["methods"] if "network" in one]
            assert bool(networks) == (figure.streams == ("5-dataset",))
            assert ("datasets" in content) == bool(networks)


def _few(figure, **changes):
    """Return a figure at one budget and seed."""

    class Few:
        base = figure.base

        def content(self, base):
            few = {"budgets": {"e": [8]}, "seeds": 1, **changes}
            return {**figure.content(base), **few}

    return Few()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"list": True}, "go with paper"),
        ({"figure": "dppl-v1:13"}, "go with paper"),
        ({"show": True}, "go with paper"),
    ],
)
def test_figures_go_with_the_papers(options, words):
    with pytest.raises(ParameterError, match=words):
        Bench(experiment="quick", **options).run()


def test_the_list_says_what_each_needs(capsys):
    Bench(experiment="paper", list=True).run()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(FIGURES)
    (line,) = [line for line in lines if line.startswith("dppl-v1:5 ")]
    assert "vit-h-14" in line
    assert "cifar100" in line
    assert "IR 50" in line


def test_an_unknown_figure_is_refused():
    with pytest.raises(ParameterError, match="paper --list prints; got dppl-v1:99"):
        Bench(experiment="paper", figure="dppl-v1:99").run()
