"""Configurations of experiments: a YAML file becomes a list of cells, or an error that names the key."""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from dppl._utils.optional import optional
from dppl.errors import InputError, ParameterError
from dppl.kernel.privacy import Budget
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.lab.experiments.datasets import DatasetSpec, Examples, Merged, Pool
from dppl.lab.experiments.papers import FIGURES
from dppl.lab.task_streams import Stream

_BUILT_IN = resources.files("dppl.lab.experiments") / "configs"
# Raised when cells or results change their meaning; results of different schemas are
# never mixed.
SCHEMA = 1
NATURAL = "natural"
# So little noise that it is lost in the rounding of rows; what is clipped and rounded
# stays so.
NON_PRIVATE = "non-private"
NO_NOISE = 1e6
# The encoder of a data set for which none is given.
NOT_NAMED = "not named"


@dataclass(frozen=True, slots=True)
class Cell:
    """One fit of an experiment. Its key is a hash of these fields, so equal cells are computed once."""

    method: str
    parameters: dict[str, Any]
    dataset: str
    encoder: str
    pool: Pool | None  # public rows; None where the method uses none
    budget: (
        dict[str, float] | None
    )  # parameters of the budget; None for a reference without privacy
    ir: float | str  # imbalance ratio; "natural" leaves class sizes as they are
    seed: int  # draws the subset, which is the same for every method, and a subset of the public rows
    trials: int = 0  # hyper-parameter settings tried on private data; 0 for none
    examples: Examples | None = None  # public examples of the classes
    stream: Stream | None = None  # cuts the rows into tasks; None learns them at once
    # whether all tasks of a stream together, whose costs add up, may spend the budget,
    # and not each of them
    in_all: bool = False
    classes: Merged | None = (
        None  # how the classes of the data set are put together to few
    )

    @property
    def key(self) -> str:
        """Hash of what is computed: neither paths nor versions enter it."""
        text = json.dumps(
            [SCHEMA, self.to_dict()],
            sort_keys=True,
            separators=(",", ":"),
            allow_nan=False,
        )
        return sha256(text.encode()).hexdigest()[:32]

    @property
    def noise_seed(self) -> int:
        """Seed of the noise: another one for every cell."""
        return int(self.key[:8], 16)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON; later fields are skipped where they are not used, so that keys stay."""
        fields = asdict(self)
        if self.pool is not None and not self.pool.without:
            del fields["pool"]["without"]
        return {name: one for name, one in fields.items() if one or name not in _LATER}

    def make_budget(self) -> Budget | None:
        """Return the budget as an object."""
        if self.budget is None:
            return None
        # Comparisons show what little privacy buys, on public data.
        if "epsilon" in self.budget:
            how = {"allow_weak": True}
        else:
            how = {}
        return budget_from_dict(self.budget, **how)


_LATER = ("examples", "stream", "in_all", "classes")


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
