"""A released model as the start of another fit: what it leaves to that, and what whoever is in both pays."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from typing import Any, Self

import numpy as np

from dppl._utils.metadata import ENCODER, check_encoder, columns_of, stated
from dppl._utils.types import Array, Flags, Float
from dppl.errors import InputError, ParameterError
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.rounding import root_above
from dppl.kernel.privacy.terms import Caveat, PublicInput, Term, Unit
from dppl.methods import model_file


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What a released model leaves to another fit, in the class list of that fit."""

    chain: tuple[Term[PublicInput], ...]  # the model, and those that it started from
    unit: Unit  # whom each of them protects, at least
    known: Flags  # shape (n_classes,); the classes of the model
    coef: Float  # shape (n_classes, n_features); zero for other classes
    offsets: Float  # shape (n_classes,); with which other classes are never first
    center: Float  # shape (n_features,); the mean of its rows
    path: Float  # shape (n_classes, n_features); the sum of its released gradients
    variance: Float  # shape (n_classes,); of the noise in each coordinate of the path
    sizes: Float  # shape (n_classes,); records that rows of the path count as

    @classmethod
    def of(
        cls,
        estimator: Any,
        classes: Array,
        n_features: int,
        X: Any,
    ) -> Self | None:
        """Read the parameter `start` of an estimator; refuse what is no start for it, or for the private table X."""
        given = estimator.start
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, str | os.PathLike):
            given = model_file.load(given)
        old: Any = getattr(given, "model_", given)  # of a `PrivateClassifier`
        kind = type(estimator)
        if type(old) is not kind or not hasattr(old, "guarantee_"):
            raise ParameterError(
                f"must be a fitted {kind.__name__} or its model file; got {type(old).__name__}.",
                parameter="start",
            )
        # By name: a new class starts from nothing, and one that went is left out.
        places = {name: place for place, name in enumerate(old.classes_.tolist())}
        codes = np.array([places.get(name, -1) for name in classes.tolist()])
        known = codes >= 0
        for holds, problem in (
            (
                getattr(old, "path_", None) is not None,
                "keep the sum of its gradients; models of earlier versions, merged ones and those of public examples "
                "alone do not. Fit it again, or leave the start out",
            ),
            (
                old.guarantee_.secure_noise or estimator.random_state is not None,
                "be fit for release; its noise came from a seed. Fit it again without one",
            ),
            (
                old.guarantee_.mu is not None,
                "have a cost in Gaussian DP, which a search for hyper-parameters has not. Fit it again with what the "
                "search chose, or leave the start out",
            ),
            (
                old.n_features_in_ == n_features,
                f"have {n_features} features, as this fit has; it has {old.n_features_in_}. Take the encoder "
                "that it was fitted with",
            ),
            (
                known.any(),
                'have a class of this fit, by the same name (0 is not "0"); it has none of them',
            ),
        ):
            if not holds:
                raise ParameterError(f"must {problem}.", parameter="start")
        if X is not None:
            if stated(X, ENCODER) is not None and old.encoder_ is None:
                raise InputError("must name its encoder, as X does.", parameter="start")
            check_encoder(X, old.encoder_, "X")
            if columns_of(X) and old.columns_ and columns_of(X) != old.columns_:
                raise InputError(
                    f"must be of columns that are called as those of X; it is of {old.columns_}.",
                    parameter="start",
                )

        def rows(array: Float) -> Float:
            wide = np.zeros((len(codes), *array.shape[1:]))
            wide[known] = array[codes[known]]
            return wide

        here = Term(
            PublicInput.START,
            sha256=sha256(old.to_bytes()).hexdigest(),
            mu=_most(old.guarantee_),
        )
        return cls(
            chain=(here, *chain_of(old.guarantee_)),
            unit=old.guarantee_.unit,
            known=known,
            coef=rows(old.coef_),
            offsets=np.where(known, rows(old.intercept_), -1e6),
            center=old.lattice_.center,
            path=rows(old.path_),
            variance=rows(old.path_variance_),
            sizes=rows(old.path_sizes_),
        )

    @classmethod
    def stated_by(
        cls, chain: tuple[Term[PublicInput], ...], n_classes: int, n_features: int
    ) -> Self:
        """Return a stand-in of a chain that a statement names, for what depends on nothing else of a start."""
        rows = np.zeros((n_classes, n_features))
        each = np.ones(n_classes)
        return cls(
            chain,
            Unit.PERSON,
            each > 0,
            rows,
            each,
            rows[0],
            rows,
            each,
            each,
        )


def added_up(
    guarantee: Guarantee, chain: tuple[Term[PublicInput], ...] = ()
) -> Guarantee:
    """Return the guarantee of a fit that starts so, with what one in its data and in those of its whole chain pays."""
    stated = replace(guarantee, public_inputs=(*guarantee.public_inputs, *chain))
    each = {one["sha256"]: one["mu"] for one in chain_of(stated)}
    if not each:
        return guarantee
    square = sum(Fraction(mu) ** 2 for mu in (_most(guarantee), *each.values()))
    together = Term(Caveat.ALSO_IN_STARTS, mu=root_above(Fraction(square)))
    # A merged model has one such sum of each.
    others = (one for one in stated.not_covered if one.code is not together.code)
    return replace(stated, not_covered=(*others, together))


def _most(guarantee: Guarantee) -> Any:
    """Return the mu of one in all data of a model, which several institutions may hold."""
    for one in guarantee.not_covered:
        if one.code is Caveat.PERSON_AT_ALL_PARTIES:
            return one["mu"]
    return guarantee.mu


def chain_of(guarantee: Guarantee) -> tuple[Term[PublicInput], ...]:
    """Return the models that a model started from, the latest first."""
    return tuple(
        one for one in guarantee.public_inputs if one.code is PublicInput.START
    )
