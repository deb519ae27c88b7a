"""The methods that an experiment can compare: estimators of the registry with some parameters fixed, and references."""

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from dppl.encoders.load import without_folders
from dppl.finetune.weights import PARTS, WeightKind
from dppl.lab.experiments.method_kinds import (
    ComparedMethod,
    Methods,
    Range,
    RetrainedMethod,
    Space,
)
from dppl.lab.experiments.network_methods import NetworkMethod
from dppl.methods.registry import BY_NAME, ENTRIES


def _registered(
    estimator: str,
    label: str = "{}",
    fixed: Mapping[str, Any] | None = None,
    **more: Any,
) -> ComparedMethod:
    """Return a method of an estimator of the registry; the braces in `label` are the estimator's own."""
    entry = BY_NAME[estimator]
    return ComparedMethod(
        label.format(entry.label or entry.name), estimator, fixed or {}, **more
    )


def _trained(
    label: str,
    *train: WeightKind,
    space: Space | None = None,
    estimator: str = "ControlFinetuner",
    **fixed: Any,
) -> NetworkMethod:
    """Return a method that trains these parts of a network."""
    fixed = {"start": "public", **fixed, "train": train}
    return NetworkMethod(label, estimator, fixed, space=space or {})


# What a search may choose from. Of a pool of coordinates, of K, and of bounds on 1 +
# cosine, DPPL-v1's d_min and d_max, its section C.4.1 and others; "auto" reads bounds
# off public rows.
_POOL = {"lattice__pool": (1, 2, 4, 8)}
_CLIP = {
    "clip": (
        "auto",
        (0.0, 2.0),
        (1.0, 2.0),
        (1.0, 1.5),
        (1.1, 1.5),
        (1.2, 1.8),
        (1.5, 2.0),
    )
}
_DESCENT = {"steps": (10, 40, 100), "learning_rate": Range(0.1, 30.0)}
_RIDGE = {"ridge": Range(1e-2, 1e3)}
_AS_PUBLISHED = {"adjacency": "replace-one"}
# Full batches, which every budget can pay for.
_FILM = {
    "epochs": (10, 40, 200),
    "learning_rate": Range(1e-2, 10.0),
    "head_learning_rate": Range(1e-1, 30.0),
    "clip": Range(0.2, 10.0),
}
_NO_PUBLIC_ROWS = "{}, no public rows"

_NAMED: dict[str, ComparedMethod] = {
    "softmax": _registered("SoftmaxPrototypes"),
    "softmax-alone": _registered("SoftmaxPrototypes", _NO_PUBLIC_ROWS, public=False),
    "mean": _registered("MeanPrototypes", space=_POOL),
    "mean-replace-one": _registered(
        "MeanPrototypes", "{} as published (AAAI)", _AS_PUBLISHED, space=_POOL
    ),
    "coinpress": _registered(
        "MeanPrototypes",
        "{}, CoinPress (v1)",
        _AS_PUBLISHED | {"coinpress": "dppl"},
        space=_POOL,
    ),
    "friendly-core": _registered(
        "FriendlyCoreMeans", space={"radius": Range(0.2, 1.4)} | _POOL
    ),
    "public": _registered("PublicPrototypes", space=_CLIP | _POOL),
    "public-topk": _registered(
        "PublicPrototypes",
        "{} top-K",
        space={"n_prototypes": (1, 2, 3, 5, 10, 20), **_CLIP},
        defaults={"n_prototypes": 5},
    ),
    "projected": _registered(
        "ProjectedPrototypes",
        space={
            "share": Range(0.1, 0.9),
            "n_components": (16, 64, None),
            "steps": (5, 20, 80),
        },
    ),
    "projected-published": _registered(
        "ProjectedPrototypes",
        "{} as published",
        {"rule": "published"},
        space={
            "share": Range(0.1, 0.9),
            "lattice__pool": (1, 2, 4, 8, 16, 32, 64),
            "n_components": (8, 16, 64, None),
            "episodes": (1, 2, 4, 8),
            "sampling_rate": (0.1, 0.3, 1.0),
            "clip": Range(0.01, 10.0),
            "learning_rate": Range(0.02, 2.0),
            "steps": (5, 20, 80),
        },
    ),
    "linear-probe": _registered(
        "LinearProbe", space={**_DESCENT, "clip": Range(0.1, 1.4)}
    ),
    "global-adapt": _registered(
        "GlobalAdapt", space={**_DESCENT, "threshold": Range(0.3, 3.0)}
    ),
    # Without class Gram matrices, which Mehta et al. have, alpha scales the ridge and
    # nothing else.
    "least-squares": _registered("LeastSquares", space={**_RIDGE, **_POOL}),
    "least-squares-classes": _registered(
        "LeastSquares",
        "DP-LS",
        {"class_grams": True},
        space={"alpha": Range(1e-3, 1.0), **_RIDGE, **_POOL},
    ),
    "feature-covariance": _registered(
        "FeatureCovariance",
        space={"steps": (3, 10, 30), "learning_rate": Range(0.3, 10.0), **_RIDGE},
    ),
    "newton": _registered(
        "Newton",
        space={"steps": (1, 3, 10), "learning_rate": Range(0.1, 2.0), **_RIDGE},
    ),
    "adamix": _registered(
        "AdaMix",
        needs_examples=True,
        space={**_DESCENT, "clip_quantile": Range(0.1, 1.0)},
    ),
    "private-knn": _registered(
        "PrivateNeighbours",
        space={
            "n_neighbours": (20, 50, 100, 200, 400),
            "n_queries": (50, 100, 200, 400),
        },
    ),
    "pate": _registered(
        "TeacherEnsemble",
        space={
            "n_teachers": (20, 50, 100, 200, 400),
            "n_queries": (50, 100, 200, 400),
        },
    ),
    "film": _trained("DP-FiLM", "head", "norm", space=_FILM),
    "lora": NetworkMethod(
        "LoRA, DP-SGD",
        "LoraFinetuner",
        {"train": ("head",)},
        space={**_FILM, "rank": (1, 4, 16)},
    ),
    # Luo et al. recompute the statistics of batch normalisation (section 4.4).
    "film-statistics": _trained(
        "FiLM, statistics of the records",
        "head",
        "norm",
        estimator="NonPrivateStatistics",
    ),
    # Luo et al. (CVPR 2021): the controls of section 5.3, table 3, and the method.
    "head": _trained("Head, DP-SGD", "head", space=_FILM),
    "head-conv": _trained("Sparse fine-tuning without norm", "head", "conv"),
    "sparse": _trained("Sparse fine-tuning", *PARTS),
    "all-weights": _trained("All weights, DP-SGD", *PARTS, sparsity=1.0),
    "scratch": _trained("DP-SGD from scratch", *PARTS, sparsity=1.0, start="random"),
    "ncm": ComparedMethod("Nearest class mean", "NonPrivateNearestMean"),
    "lda": ComparedMethod("LDA", "NonPrivateLDA"),
    "logistic": ComparedMethod("Logistic regression", "NonPrivateLogisticRegression"),
    # The meta-learning methods of Luo et al. (CVPR 2021), table 2.
    **{
        name.lower(): ComparedMethod(name, f"NonPrivate{name}", from_base=True)
        for name in ("MatchingNet", "RelationNet", "ProtoNet")
    },
}
# Any other of the registry goes by its own defaults; records of experiments have one
# label.
_OTHERS = {
    one.method: _registered(one.name)
    for one in ENTRIES
    if one.method not in (None, "multilabel")
}
METHODS = Methods(
    {
        **_NAMED,
        **{name: one for name, one in _OTHERS.items() if name not in _NAMED},
    }
)

# Those whose prototypes are means, in units of a row.
MEANS = ("mean-replace-one", "coinpress", "friendly-core")

# Classifiers of streams go by their class: `partial_fit` is theirs alone. Those of
# DP-SGD take one setting a stream, as in DP-CL, appendix C.1.
_AS_PROBE: dict[str, Any] = {"searched_as": "linear-probe"}
_SEARCHED: dict[str, dict[str, Any]] = {
    "ContinualEnsemble": {**_AS_PROBE, "nested": "head_options"},
    "NaiveContinual": _AS_PROBE,
    "FullDataContinual": _AS_PROBE,
}
STREAM_METHODS: dict[str, ComparedMethod] = {
    **{
        entry.name: _registered(entry.name, **_SEARCHED.get(entry.name, {}))
        for entry in ENTRIES
        if entry.method is None
    },
    "FilmEnsemble": NetworkMethod("FilmEnsemble", "FilmEnsemble", searched_as="film"),
    "LoraEnsemble": NetworkMethod("LoraEnsemble", "LoraEnsemble", searched_as="lora"),
    "Retrained": RetrainedMethod("Softmax prototypes, this task", "Retrained"),
    "RetrainedOnAll": RetrainedMethod(
        "Softmax prototypes, all records so far", "RetrainedOnAll"
    ),
    "ContinualDiscriminant-alone": _registered(
        "ContinualDiscriminant", _NO_PUBLIC_ROWS, public=False
    ),
}
ALL_METHODS = ChainMap(METHODS, STREAM_METHODS)


def searched_method(name: str) -> ComparedMethod:
    """Return what a search for settings of a method fits: of a classifier of streams, its single fit."""
    return ALL_METHODS[ALL_METHODS[name].searched_as or name]


def label(
    name: str, parameters: Mapping[str, Any], examples: Mapping[str, Any] | None = None
) -> str:
    """Return what a method with these parameters and examples of the classes is called in tables and figures.

    >>> label("public-topk", {"n_prototypes": 5})
    'DPPL-Public top-5'
    >>> label("mean", {"lattice__pool": 2})
    'DPPL-Mean (pool 2)'
    >>> label("softmax", {}, {"source": 5, "wrong": "half"})
    'Softmax prototypes, from 5 examples a class, half of them wrong'
    """
    # K has its place within the name; all other parameters follow in brackets.
    rest = dict(parameters)
    text = ALL_METHODS[name].label
    if name == "public-topk" and "n_prototypes" in rest:
        text = text.replace("top-K", f"top-{rest.pop('n_prototypes')}")
    if "network" in rest:
        # Not how images are prepared, nor where its file lies.
        rest["network"] = without_folders(rest["network"]).partition("?")[0]
    details = [
        f"{key.rpartition('__')[2]} {value}" for key, value in sorted(rest.items())
    ]
    if details:
        text += f" ({', '.join(details)})"
    if examples is None or examples["source"] is None:
        return text
    source = examples["source"]
    plural = "" if examples["source"] == 1 else "s"
    if not examples.get("used", True):
        return f"{text}, {source} row{plural} a class left out"
    if isinstance(source, str):
        what = source
    else:
        what = f"{source} example{plural} a class"
    wrong = {None: "", "permuted": ", permuted", "half": ", half of them wrong"}[
        examples.get("wrong")
    ]
    return f"{text}, from {what}{wrong}"
