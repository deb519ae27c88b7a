"""Configurations of experiments: a YAML file becomes a list of cells, or an error that names the key."""

from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from dppl._utils.optional import optional
from dppl.errors import InputError, ParameterError
from dppl.lab.experiments.cells import Cell
from dppl.lab.experiments.datasets import DatasetSpec
from dppl.lab.experiments.papers import FIGURES

_BUILT_IN = resources.files("dppl.lab.experiments") / "configs"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A checked configuration."""

    name: str  # what its results file is called by default
    config: str  # path or name by which it was loaded, as given
    data: str | None  # folder that was given instead of the configuration's, as given
    datasets: dict[tuple[str, str], DatasetSpec]  # by name and encoder
    cells: list[
        Cell
    ]  # one seed after the other, so that an interrupted run has compared all methods


def built_in_names() -> list[str]:
    """Return the names of the configurations that come with dppl."""
    return sorted(
        file.name.removesuffix(".yaml")
        for file in _BUILT_IN.iterdir()
        if file.name.endswith(".yaml")
    )


def built_in(name: str) -> Traversable:
    """Return the file of a configuration that comes with dppl."""
    return _BUILT_IN / f"{name}.yaml"


def figure_as_yaml(name: str) -> str:
    """Return the configuration of a figure, to copy."""
    yaml = optional("yaml", "PyYAML", "lab")
    figure = FIGURES[name]
    base = built_in(figure.base).read_text("utf-8")
    return str(yaml.safe_dump(figure.content(yaml.safe_load(base)), sort_keys=False))


def load_experiment(
    config: str, data: Path | None = None, *, check: bool = True
) -> Experiment:
    """Read and check a YAML file, a built-in configuration or a paper's figure; `data` replaces its folder."""
    names = built_in_names()
    path = Path(config)
    figure = FIGURES.get(config)
    known = config if figure is None else figure.base
    file = built_in(known) if known in names else path
    if not file.is_file():
        raise ParameterError(
            f"CONFIG must be a YAML file or one of {', '.join(names)}; got {config!r}, and there is no such file."
        )
    yaml = optional("yaml", "PyYAML", "lab")
    optional("pydantic", "pydantic", "lab")
    from dppl.lab.experiments.grid import (
        grid,
    )  # here, because the names of cells need no pydantic

    try:
        content = yaml.safe_load(file.read_text("utf-8"))
        if figure is not None:
            content = figure.content(content)
        datasets, cells = grid(content, data, check=check)
    except UnicodeDecodeError:
        raise InputError(f"{config} must be UTF-8 text.") from None
    except yaml.YAMLError as error:
        raise ParameterError(
            f"{config} must be YAML; {' '.join(str(error).split())}."
        ) from None
    except (ParameterError, InputError) as error:
        raise type(error)(f"{config}: {error}") from None
    if figure or config in names:
        name = config.replace(":", "-")
    else:
        name = path.stem
    return Experiment(
        name, config, None if data is None else str(data), datasets, cells
    )
