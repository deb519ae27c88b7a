"""A cell of an experiment: one fit, with a key that says what is computed."""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from dppl.kernel.privacy import Budget
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.lab.experiments.datasets import ExampleSpec, Merged, Pool
from dppl.lab.task_streams import Stream

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
    examples: ExampleSpec | None = None  # public examples of the classes
    stream: Stream | None = None  # cuts the rows into tasks; None learns them at once
    # whether all tasks of a stream together, whose costs add up, may spend the budget,
    # and not each of them
    in_all: bool = False
    classes: Merged | None = (
        None  # how the classes of the data set are put together to few
    )
    search: int = 0  # mean number of runs of a private search for settings; 0 for none
    shots: int | None = None  # private records of each class; None is all
    ways: int | None = None  # classes that the seed draws; None is all
    network: str | None = None  # hash of the network that is trained, or embeds images
    layers: bool = False  # whether the result says what is trained of each layer
    # data sets, encoders and streams whose tasks judge settings; none is the first task
    # of the cell's own
    tuned_on: tuple[tuple[str, str, Stream], ...] = ()
    alone: bool = False  # whether each task of a stream has a model of its own, too
    scatter: bool = False  # whether the result has true and private means, in a plane

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
        how = {"allow_weak": True} if "epsilon" in self.budget else {}
        return budget_from_dict(self.budget, **how)


_LATER = (
    *("examples", "stream", "in_all", "classes", "search", "shots", "scatter"),
    *("ways", "network", "layers", "tuned_on", "alone"),
)
