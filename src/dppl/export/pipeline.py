"""A model as a pipeline of scikit-learn's own parts, which loads without dppl."""

from __future__ import annotations

import json
from io import BytesIO
from itertools import count
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from dppl._optional import optional
from dppl.errors import InputError
from dppl.export.scorer import Float, Scorer, fitted, scorer_of, statement

__all__ = ["to_bytes", "to_sklearn"]

_SCHEMA = "schema.json"


def to_sklearn(model: Any) -> Pipeline:
    """Return a fitted pipeline of scikit-learn's own parts.

    Parameters
    ----------
    model : EmbeddingClassifier, PrivateClassifier or PrivateSearch
        Fitted.

    Returns
    -------
    sklearn.pipeline.Pipeline
        Its `predict` and `predict_proba` are those of the model. Its `decision_function` are logits: that of the model
        times a factor, ``statement_["sharpness"]``. ``statement_`` is the guarantee with what else is known of the
        model.

    Raises
    ------
    InputError
        If the model cannot be exported, or no parts of scikit-learn compute its scores: those of several tasks'
        heads, or of a single class.

    Notes
    -----
    scikit-learn refuses rows with NaN or infinity, and gives a row of zeros a class like any other.
    """
    model = fitted(model)
    scorer = scorer_of(model)
    if len(scorer.heads) > 1:
        raise InputError(
            f"{type(model).__name__} combines the scores of {len(scorer.heads)} tasks, which no part of "
            "scikit-learn does; export it to ONNX or torch."
        )
    if len(scorer.classes) == 1:
        raise InputError("scikit-learn's classifiers have two classes or more; this model has 1. Export it to ONNX.")
    steps = [*_unit(scorer.n_features), *_map(scorer), *_head(scorer), ("classify", _classifier(scorer))]
    pipeline = Pipeline(steps)
    pipeline.statement_ = statement(model)
    return pipeline


def to_bytes(model: Any) -> bytes:
    """Return `to_sklearn` as skops writes it, without pickle, but for addresses in memory and the time of day."""
    skops = optional("skops.io", "skops", "export")
    ids, files = count(1), dict[str, str]()

    def renumbered(node: dict[str, Any]) -> dict[str, Any]:
        """Take a number for an address in memory, which also names files; keys of the statement hold no such values."""
        if isinstance(node.get("__id__"), int):
            node["__id__"] = next(ids)
        if isinstance(name := node.get("file"), str):
            node["file"] = files.setdefault(name, f"{len(files)}.npy")
        return node

    written = BytesIO()
    with ZipFile(BytesIO(skops.dumps(to_sklearn(model)))) as made, ZipFile(written, "w", ZIP_DEFLATED) as archive:
        schema = json.loads(made.read(_SCHEMA), object_hook=renumbered)
        for name, number in files.items():
            archive.writestr(ZipInfo(number), made.read(name), ZIP_DEFLATED)  # of 1980, as those without a date are
        archive.writestr(ZipInfo(_SCHEMA), json.dumps(schema), ZIP_DEFLATED)
    return written.getvalue()


def _unit(n_features: int) -> list[tuple[str, Any]]:
    # Squares of float16 and of huge rows leave the range, and Normalizer takes rows shorter than 2e-15 for zeros.
    wide = FunctionTransformer(np.positive, kw_args={"dtype": "float64"})
    longer = StandardScaler(with_mean=False)
    longer.mean_, longer.var_, longer.scale_ = None, None, np.full(n_features, 2.0**-200)
    longer.n_features_in_, longer.n_samples_seen_ = n_features, 1
    return [("float64", wide), ("longer", longer), ("largest 1", Normalizer(norm="max")), ("unit", Normalizer())]


def _map(scorer: Scorer) -> list[tuple[str, Any]]:
    steps: list[tuple[str, Any]] = [] if scorer.center is None else [("center", _minus(scorer.center))]
    if scorer.pool > 1:
        sums = np.repeat(np.eye(scorer.dim), scorer.pool, axis=1)
        rest = np.zeros((scorer.dim, scorer.n_features - sums.shape[1]))
        steps.append(("pool", _times(np.hstack([sums, rest]))))
    return [*steps, ("unit of the map", Normalizer())] if scorer.moves else []


def _head(scorer: Scorer) -> list[tuple[str, Any]]:
    (head,) = scorer.heads
    steps: list[tuple[str, Any]] = [] if head.center is None else [("center of the head", _minus(head.center))]
    if head.projection is not None:
        steps.append(("project", _times(head.projection)))
    return [*steps, ("unit of the head", Normalizer())] if head.moves else []


def _minus(center: Float) -> StandardScaler:
    scaler = StandardScaler(with_std=False)
    scaler.mean_, scaler.var_, scaler.scale_ = center, None, None
    scaler.n_features_in_, scaler.n_samples_seen_ = len(center), 1
    return scaler


def _times(matrix: Float) -> TruncatedSVD:
    product = TruncatedSVD(n_components=len(matrix))
    product.components_, product.n_features_in_ = matrix, matrix.shape[1]
    return product


def _classifier(scorer: Scorer) -> LogisticRegression:
    (head,) = scorer.heads
    # Classes of no task have an offset of -inf, which scikit-learn does not take.
    intercept = np.nan_to_num(scorer.sharpness * head.offsets, neginf=np.finfo(np.float64).min)
    coef = scorer.sharpness * head.weights
    if len(scorer.classes) == 2:  # scikit-learn then has one logit, that of the second class
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    classifier = LogisticRegression()
    classifier.classes_, classifier.coef_, classifier.intercept_ = scorer.classes, coef, intercept
    classifier.n_features_in_, classifier.n_iter_ = coef.shape[1], np.zeros(1, np.int32)
    return classifier
