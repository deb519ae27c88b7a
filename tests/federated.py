"""Three institutions of made-up records, and ways to them that fail."""

from contextlib import contextmanager
from typing import ClassVar

import numpy as np

from dppl import GaussianDP, Ledger
from dppl.federation import Federation, InProcess, Party
from dppl.federation.coordinator import of_parties
from dppl.federation.protocol import seed_of_ask
from dppl.kernel.measure import Measure
from dppl.kernel.records import private_data

NAMES = ("north", "south", "west")
CLASSES = ["a", "b", "c"]
DIM = 8


def tables(names=NAMES, n=30):
    """Return rows, labels and ids of persons of each."""
    rng = np.random.default_rng(5)
    out = {}
    for name in names:
        y = rng.integers(3, size=n)
        X = rng.normal(size=(n, DIM)) + 3 * np.eye(3, DIM)[y]
        out[name] = X, np.array(CLASSES)[y], rng.integers(n // 2, size=n)
    return out


def party(folder, name="north", *, data=None, persons=False, budget=3.0, **options):
    """Open an institution of the folder, or open it again."""
    X, y, ids = tables()[name] if data is None else data
    unit = {"unit": "person"} if persons else {}
    ledger = Ledger(folder / f"{name}.db", "wards", GaussianDP(budget), **unit)
    given = {"classes": CLASSES, "state": folder / f"{name}-state", "at_most": 1000}
    return Party(
        name, X, y, ledger=ledger, groups=ids if persons else None, **(given | options)
    )


@contextmanager
def parties(folder, names=NAMES, **options):
    """Open all institutions of a folder."""
    opened = {name: party(folder, name, **options) for name in names}
    try:
        yield opened
    finally:
        for one in opened.values():
            one.__exit__()


class Way(InProcess):
    """A way on which `spoil` may do something to what comes back from an institution, as bytes or None."""

    def __init__(self, opened, spoil):
        super().__init__(opened)
        self._spoil = spoil
        self.sent = []

    def exchange(self, messages):
        """Call each, and spoil what it says."""
        self.sent.append(messages)
        came = {}
        for name, content in messages.items():
            reply = self._spoil(name, content, self.parties[name])
            if reply is not None:
                came[name] = reply
        return came


class Together:
    """The same answers in one process, from the counter of the kernel alone: no messages, files or ledgers."""

    metadata: ClassVar = {}
    ids = None
    n_features = DIM
    shape = (None, DIM)
    measure = Federation.measure

    def __init__(self, data, seed):
        self.data = data
        self.names = tuple(data)
        self.seed = seed
        self.asked = 0

    def private_data(self, y, groups, **_):
        """Be what a fit was given."""
        return self

    def check(self, **_):
        """Allow everything."""

    def account(self, ledger, partition, plan):
        """Remember the plan."""
        self.plan = plan
        return self

    def charge(self, guarantee, **_):
        """Charge nobody."""
        return self

    def noted(self, guarantee):
        """Say what is guaranteed at each."""
        return of_parties(guarantee, tuple(self.data))

    def completed(self, guarantee):
        """Say that nobody left."""
        return guarantee

    def records(self, classes, **options):
        """Read all tables."""
        given = {"unknown_labels": "ignore", "adjacency": "add-remove"}
        self.read = {
            name: private_data(X, y).records(classes, **given)
            for name, (X, y, _) in self.data.items()
        }
        return self

    def answer(self, name, /, **released):
        """Add up, each with noise of the seed of this ask."""
        number = self.asked
        self.asked = self.asked + 1
        return sum(
            Measure(self.plan.measurements, one, seed_of_ask(self.seed, party, number))(
                name, **released
            )
            for party, one in self.read.items()
        )

    def finish(self, paid, **_):
        """Do nothing."""
