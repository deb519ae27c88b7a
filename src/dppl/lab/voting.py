"""Students of private votes: PATE, whose teachers share the records, and Private-kNN, whose records vote themselves."""

from typing import Any

import numpy as np

from dppl._utils.progress import steps
from dppl._utils.types import Float
from dppl.errors import InputError
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice import iter_blocks
from dppl.lab.votes import NeighbourVotes, TeacherVotes, winners
from dppl.methods import Classifier
from dppl.methods.examples import ExampleClassifier
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import (
    Count,
    LatticeParameter,
    Probability,
    parameters,
)


@parameters
class Student(LatticeParameter, Classifier):
    """Softmax regression on public rows that private votes have labelled.

    Parameters
    ----------
    n_queries : int, default=200
        How many public rows are labelled, the first ones; each costs alike.
    """

    n_queries: Count = 200
    public_rows = "required"

    def prepare(self, setting: Setting) -> Any:
        """Take the public rows that are labelled."""
        if setting.public.rows is None:
            raise InputError("votes are on public rows; give public=PublicData(rows).")
        blocks = iter_blocks(setting.public.rows, self.n_queries)
        return np.asarray(next(iter(blocks)))[: self.n_queries]

    def _learn_from(self, votes: Float, setting: Setting) -> None:
        rows = setting.lattice.features(setting.prepared).astype(np.float64)
        student = ExampleClassifier.fit(rows, winners(votes), setting.n_classes)
        self.coef_ = student.coef
        # Classes that no public row was given are not predicted.
        self.intercept_ = student.offsets


@parameters
class TeacherEnsemble(Student):
    r"""A student of teachers that vote with Gaussian noise (PATE, GNMax).

    The records are in `n_teachers` parts; the part of a record follows from the record.
    The teacher of a part is the nearest mean of its records. Teachers vote on public
    rows, and the student learns the classes of the most noisy votes.

    Parameters
    ----------
    n_teachers : int, default=100
        Number of parts.

    Notes
    -----
    Published teachers and students are networks; here both are of frozen embeddings. All noisy votes are released, at the
    cost of the largest, so screening by a threshold (Confident-GNMax) would save nothing in the account that does not
    depend on the data. That account is exact here: squares of mu add, which is not above the published sum of Rényi
    divergences. A public row has √2 of sensitivity, also if a record is added.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    votes on all rows; `coef_` is computed from those and from public rows. Sensitivity:
    √(2·n_queries) in L2 over all votes, since a record is in one part. Public inputs:
    `classes`, all parameters, `public`, `n_features`. Not covered: choice of parameters
    by private data, timing, a changed label (two steps).

    References
    ----------
    .. [1] Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson (2018), Scalable
    private learning with PATE, ICLR,
       arXiv:1802.08908.
    """

    n_teachers: Count = 100

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare the votes on all rows."""
        votes = TeacherVotes(
            setting.lattice,
            setting.n_classes,
            len(setting.prepared),
            self.n_teachers,
        )
        return {"votes": Measurement(votes)}

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Learn from the classes of the most votes."""
        public = setting.lattice.transform(setting.prepared)
        self._learn_from(measure("votes", public=public), setting)


@parameters
class PrivateNeighbours(Student):
    r"""A student of the nearest records of public rows, which vote with Gaussian noise (Private-kNN).

    For each public row the `n_neighbours` nearest records of a fresh Poisson sample
    vote for their classes.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
        What the whole fit may spend; ApproxDP with `sampling_rate` below 1.
    n_neighbours : int, default=200
        How many records vote.
    sampling_rate : float, default=1.0
        Probability with which a record is in the sample of a public row.

    Notes
    -----
    Distances are of frozen embeddings as they are; the published method learns a metric in turns with the student, and
    screens public rows by a noisy threshold first. Accounting is by privacy loss distributions, which is not above the
    published Rényi account of the same samples.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    votes on each row; `coef_` is computed from those and from public rows. Sensitivity:
    √2 in L2 of the votes on a row, since a record takes the place of one other at most.
    Public inputs: `classes`, all parameters, `public`, `n_features`. Not covered:
    choice of parameters by private data, timing, a changed label (two steps). With
    `sampling_rate` below 1 it is accounted in (epsilon, delta) only.

    References
    ----------
    .. [1] Zhu, Yu, Chandraker, Wang (2020), Private-kNN: practical differential privacy
    for computer vision, CVPR.
    .. [2] Mironov, Talwar, Zhang (2019), arXiv:1908.10530v1, Theorem 4 (samples).
    """

    n_neighbours: Count = 200
    sampling_rate: Probability = 1.0

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare the votes on each row."""
        votes = NeighbourVotes(
            setting.lattice,
            setting.n_classes,
            self.n_neighbours,
            self.sampling_rate,
        )
        return {"votes": Measurement(votes, times=len(setting.prepared))}

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Learn from the classes of the most votes."""
        public = setting.lattice.transform(setting.prepared)
        votes = [
            measure("votes", public=public[place : place + 1])
            for place in steps(len(public))
        ]
        self._learn_from(np.array(votes), setting)
