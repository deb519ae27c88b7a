"""The methods that an experiment can compare: estimators of the registry with some parameters fixed, and references."""

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dppl import lab
from dppl.kernel.privacy import Budget
from dppl.methods.parameters import with_options
from dppl.methods.public_data import PublicData
from dppl.methods.registry import BY_NAME, ENTRIES

# What the runner passes itself.
_GIVEN = ("budget", "classes", "random_state")


class Range(NamedTuple):
    """A hyper-parameter between two numbers, searched on a logarithmic scale."""

    low: float
    high: float


Space = Mapping[str, Range | tuple[Any, ...]]  # a range, or the values to choose from


@dataclass(frozen=True, slots=True)
class ComparedMethod:
    """One way to train a classifier."""

    label: str  # name in tables and figures
    estimator: str  # a class of the registry, or one of `dppl.lab` that is not private
    fixed: Mapping[str, Any] = field(
        default_factory=dict
    )  # parameters that make the method what it is
    public: bool = True  # whether it may read public rows that it can do without
    needs_examples: bool = (
        False  # whether a fit is impossible without public examples of the classes
    )
    space: Space = field(default_factory=dict)  # hyper-parameters to search
    # values for what neither a configuration nor a search sets, where the class's own
    # defaults would miss the point
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether it spends a budget; references give no guarantee."""
        return self.estimator in BY_NAME

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters that a configuration may set."""
        names = with_options(self._load()._get_param_names())
        return [name for name in names if name not in (*_GIVEN, *self.fixed)]

    def build(
        self,
        budget: Budget | None,
        classes: Any,
        random_state: int,
        parameters: Mapping[str, Any],
        public: PublicData | None = None,
    ) -> Any:
        """Return the unfitted classifier."""
        given: dict[str, Any] = {}
        if self.private:
            given = {
                "budget": budget,
                "classes": classes,
                "public": public,
                "random_state": random_state,
            }
        return self._load()(**given, **self.fixed).set_params(**parameters)

    def uses_public(self, parameters: Mapping[str, Any]) -> bool:
        """Return whether a fit with these parameters reads public rows where there are some."""
        role = self.public_rows(parameters)
        return role == "required" or (role == "optional" and self.public)

    def overlaps(self, parameters: Mapping[str, Any]) -> bool:
        """Return whether tasks of a stream may share records with these parameters, so that their costs add up."""
        return bool(
            parameters.get("tasks", getattr(self._load(), "tasks", "disjoint"))
            == "overlapping"
        )

    def public_rows(self, parameters: Mapping[str, Any]) -> str:
        """Return what public rows are to a fit with these parameters."""
        if not self.private:
            return "unused"
        model = self.build(None, None, 0, parameters)
        by_lattice = model.lattice is not None and model.lattice.reads_public_rows
        if by_lattice and model.public_rows == "unused":
            return "required"
        return str(model.public_rows)

    def _load(self) -> Any:
        if self.private:
            return BY_NAME[self.estimator].load()
        return getattr(lab, self.estimator)


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
    # Without class Gram matrices alpha scales the ridge and nothing else.
    "least-squares": _registered("LeastSquares", space={**_RIDGE, **_POOL}),
    "least-squares-classes": _registered(
        "LeastSquares",
        "{}, class Gram matrices",
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
    "ncm": ComparedMethod("Nearest class mean", "NonPrivateNearestMean"),
    "lda": ComparedMethod("LDA", "NonPrivateLDA"),
    "logistic": ComparedMethod("Logistic regression", "NonPrivateLogisticRegression"),
}
# Any other of the registry goes by its own defaults; records of experiments have one
# label.
_OTHERS = {
    one.method: _registered(one.name)
    for one in ENTRIES
    if one.method not in (None, "multilabel")
}
METHODS = {
    **_NAMED,
    **{name: one for name, one in _OTHERS.items() if name not in _NAMED},
}

# Those whose prototypes are means, in units of a row.
MEANS = ("mean-replace-one", "coinpress", "friendly-core")

# Classifiers of streams go by their class: `partial_fit` is theirs alone.
STREAM_METHODS: dict[str, ComparedMethod] = {
    **{
        entry.name: _registered(entry.name) for entry in ENTRIES if entry.method is None
    },
    "ContinualDiscriminant-alone": _registered(
        "ContinualDiscriminant", _NO_PUBLIC_ROWS, public=False
    ),
}
ALL_METHODS = ChainMap(METHODS, STREAM_METHODS)


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
