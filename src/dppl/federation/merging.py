"""One model of several that institutions released, each by itself: post-processing, which costs nothing more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from dppl.errors import ParameterError
from dppl.federation.coordinator import of_parties
from dppl.federation.protocol import hash_of_encoder
from dppl.methods import EmbeddingClassifier, MeanPrototypes, SoftmaxPrototypes, load
from dppl.methods.parameters import same_value


def merge(
    models: Mapping[str, EmbeddingClassifier | str | os.PathLike[str]],
    *,
    distinct: bool = False,
) -> EmbeddingClassifier:
    """Merge models of one method that were released from records of different institutions.

    Noisy sums (`MeanPrototypes`) add up to the sums that institutions would have
    answered together. Of `SoftmaxPrototypes` each class has the mean of its weights and
    centres over the models, each model as much as the class's share of its records, by
    its noisy counts; weights are short already where noise was large.

    Parameters
    ----------
    models : dict of str to classifier or path
        Fitted models, or their files, by the names of the institutions.
    distinct : bool, default=False
        Whether data sets that have one name in the ledgers are known to be different
        ones.

    Returns
    -------
    EmbeddingClassifier
        Its guarantee is the one of the model that cost most, for the records of each
        institution.

    Raises
    ------
    ParameterError
        If there are fewer than two, if they differ in method, parameters, classes,
        encoder or whom they protect, if their costs differ and have no mu, or if two
        were charged to data sets of one name: of one data set costs add up, and the
        statement is for each alone.

    Notes
    -----
    **Privacy.** Unit: as the models have it. Relation: as well. Released: nothing that
    the models do not hold. Sensitivity: none. Public inputs: the models. Not covered: a
    person with records in several of the models, for whom squares of mu add up.
    """
    read = {
        name: one if isinstance(one, EmbeddingClassifier) else load(one)
        for name, one in models.items()
    }
    if len(read) < 2:
        raise ParameterError("must be two models or more.", parameter="models")
    first, *others = read.values()
    for name, one in read.items():
        for what, differs in _differences(first, one):
            if differs:
                raise ParameterError(
                    f"must agree in {what}; {name} differs from {next(iter(read))}.",
                    parameter="models",
                )
    _check_that_no_two_are_of_one_data_set(read, distinct=distinct)
    merged: Any = deepcopy(first)
    every: list[Any] = [first, *others]
    stated = [one.guarantee_ for one in every]
    if isinstance(first, MeanPrototypes) and first.adjacency == "add-remove":
        merged.prototypes_ = np.sum([one.prototypes_ for one in every], axis=0)
    elif isinstance(first, SoftmaxPrototypes) and all(
        one.shares_ is not None for one in every
    ):
        weights = np.stack([one.shares_ for one in every])
        weights /= weights.sum(axis=0)  # a class is as whoever has its records knows it
        coef, intercept = (
            (weights.T * np.stack([getattr(one, name) for one in every]).T).T.sum(
                axis=0
            )
            for name in _SOFTMAX
        )
        center = np.mean([one.lattice_.center for one in every], axis=0)
        noises = [one.coef_noise_ for one in every]
        merged.path_ = None  # another fit cannot start from several
        merged.coef_noise_ = np.linalg.norm(weights * noises, axis=0)
        merged._set_model(
            coef, center, intercept, np.mean([one.shares_ for one in every], axis=0)
        )
    else:
        raise ParameterError(
            "must be of noisy sums or of softmax prototypes, under add-remove.",
            parameter="models",
        )
    dearest = max(
        stated, key=lambda one: one.mu or 0.0
    )  # where one has no mu, all releases are equal
    entries = tuple(
        replace(charge, party=name)
        for name, one in read.items()
        for charge in one.guarantee_.charges
    )
    # What one statement takes as public, or does not cover, the merged one does not
    # promise either.
    lists = ("public_inputs", "not_covered", "assumptions")
    of_all: Any = {
        name: tuple(
            dict.fromkeys(item for one in stated for item in getattr(one, name))
        )
        for name in lists
    }
    of_all |= {
        name: all(getattr(one, name) for one in stated)
        for name in ("secure_noise", "exact")
    }
    merged.guarantee_ = of_parties(replace(dearest, **of_all), tuple(read), entries)
    merged.budget = dearest.budget
    result: EmbeddingClassifier = merged
    return result


_SOFTMAX = ("coef_", "intercept_")


def _check_that_no_two_are_of_one_data_set(
    models: Mapping[str, Any], *, distinct: bool
) -> None:
    """Refuse models whose costs would add up, as far as their ledgers' names and their bytes show it."""
    if len({one.to_bytes() for one in models.values()}) < len(models):
        raise ParameterError(
            "must be different models; two are one.", parameter="models"
        )
    by_name: dict[str, str] = {}
    for name, one in models.items():
        for data_set in {charge.dataset for charge in one.guarantee_.charges}:
            other = by_name.setdefault(data_set, name)
            if other != name and not distinct:
                raise ParameterError(
                    f"{other} and {name} were charged to data sets called {data_set}. If it is one data set, their "
                    "costs add up: fit once, with the whole budget. If not, merge in Python with distinct=True."
                )


def _differences(one: Any, other: Any) -> list[tuple[str, bool]]:
    """Return in what two models may differ, and whether they do."""
    ours, theirs = (
        {name: value for name, value in model._fitted_with.items() if name not in _FREE}
        for model in (one, other)
    )

    our_cost = one.guarantee_
    their_cost = other.guarantee_

    def map_of(
        model: Any,
    ) -> Any:  # sums are about a public centre, and softmax prototypes about their own
        if isinstance(model, MeanPrototypes):
            return model.lattice_.name
        return model.lattice_.to_dict()

    plain = all(same_value(value, theirs.get(name)) for name, value in ours.items())
    return [
        ("method", type(one) is not type(other)),
        ("classes", not np.array_equal(one.classes_, other.classes_)),
        (
            "encoder",
            hash_of_encoder(one.encoder_) != hash_of_encoder(other.encoder_),
        ),
        ("parameters", not plain),
        ("width or map", map_of(one) != map_of(other)),
        ("whom they protect", our_cost.unit != their_cost.unit),
        (
            "cost, which has no mu",
            None in (our_cost.mu, their_cost.mu)
            and our_cost.releases != their_cost.releases,
        ),
        # Such as hits of a start, which one statement has or lacks for all.
        (
            "what they released",
            [one.statistic for one in our_cost.releases]
            != [one.statistic for one in their_cost.releases],
        ),
        (
            "institutions: merge models of one each",
            bool(our_cost.parties or their_cost.parties),
        ),
    ]


_FREE = ("budget", "classes", "random_state", "lattice")
