"""The figures and tables of the papers, each as a separate grid: where it is in the paper, and its cells."""

import copy
from dataclasses import dataclass, field
from typing import Any

from dppl.kernel.privacy.budgets import USUAL_DELTA

# The data sets and encoders of the DPPL papers, in the order of their figures.
_SETS = ("cifar10", "cifar100", "food101", "stl10")
_LARGEST = "vit-h-14"
_IN_PLANE = {
    "method": "coinpress",
    "scatter": True,
    "budgets": {"rho": [1e-3, 1e-4]},
    "seeds": 1,
}
_MAIN = ["softmax", "mean", "coinpress", "public", "linear-probe"]
_TOP_K = {"method": "public-topk", "n_prototypes": [1, 2, 3, 5, 10, 20]}
_PROJECTED = [
    "mean",
    "public",
    {
        "method": "projected",
        "head": ["mean", "public"],
        "share": [0.25, 0.5, 0.75],
        "n_components": [64, None],
    },
    {"method": "projected-published", "head": ["mean", "public"]},
]
_SWEEP = [
    {"method": name, "tune": tune, "budgets": {"e": [0.1, 1, 8], "delta": USUAL_DELTA}}
    for name, tune in (("mean", 20), ("projected", 100), ("projected-published", 100))
]
_POOL_SIZES = [1_000, 10_000, 100_000, None]
_FRIENDLY = {
    "method": "friendly-core",
    "radius": [1.0, 1.2, 1.4],
    "budgets": {"e": [0.25, 0.5, 1, 2, 4, 8], "delta": USUAL_DELTA},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure or table, as a narrower grid of a built-in configuration."""

    title: str
    draws: str  # how the names of its pictures in the report begin
    base: str = "paper"
    sets: tuple[str, ...] = _SETS
    encoders: tuple[str, ...] = ()  # none are all
    methods: list[Any] = field(default_factory=list)  # none are the base's
    ir: tuple[int, ...] = (1, 10, 50, 100)  # none is the natural one
    pools: tuple[str, ...] = ("imagenet",)
    rows: list[int | None] | None = None  # sizes of the pools
    streams: tuple[str, ...] = ()
    of_images: bool = False  # whether methods that train a network are among them
    alone: bool = False  # whether tasks have models of their own

    @property
    def needs(self) -> str:
        """What its cells are of."""
        if self.streams:
            return ", ".join(self.streams)
        by = ", ".join(self.encoders) or "all encoders"
        ratios = ", ".join(map(str, self.ir)) or "natural"
        named = [one if isinstance(one, str) else one["method"] for one in self.methods]
        methods = ", ".join(named) or f"all methods of {self.base}"
        return f"{', '.join(self.sets)} by {by}, IR {ratios}; {methods}"

    def content(self, base: dict[str, Any]) -> dict[str, Any]:
        """Return its configuration, from the configuration that it narrows."""
        content = copy.deepcopy(base)
        content["about"] = self.title
        if self.methods:
            # By its name a method is as the base has it.
            own = {
                one["method"]: one for one in base["methods"] if isinstance(one, dict)
            }
            content["methods"] = [
                own.get(one, one) if isinstance(one, str) else one
                for one in self.methods
            ]
        if self.alone:
            content["methods"] = [{**one, "alone": True} for one in content["methods"]]
        if self.streams:
            content["streams"] = list(self.streams)
            if not self.of_images:
                del content["datasets"]
                content["methods"] = [
                    one for one in content["methods"] if "network" not in one
                ]
            return content
        if self.ir:
            content["ir"] = list(self.ir)
        content["datasets"] = [
            {**one, "public": [self._pool(one, name) for name in self.pools]}
            if self.pools
            else one
            for one in content["datasets"]
            if one["name"] in self.sets
            and (not self.encoders or one["encoder"] in self.encoders)
        ]
        return content

    def _pool(self, dataset: dict[str, Any], name: str) -> dict[str, Any]:
        file = f"{dataset['encoder']}/{name}/x.npy"
        rows = {} if self.rows is None else {"rows": self.rows}
        return {"name": name, "file": file, **rows}


def _on_cifar100(title: str, draws: str, **more: Any) -> Figure:
    narrowed: dict[str, Any] = {"sets": ("cifar100",), "encoders": (_LARGEST,)}
    return Figure(title=title, draws=draws, **(narrowed | more))


def _stream(name: str, draws: str, recipe: str, **more: Any) -> Figure:
    what = {"title": f"Published rules, ours and baselines on {name}"} | more
    return Figure(draws=draws, base="continual-paper", streams=(recipe,), **what)


def _of_all(first: int, title: str, draws: str, order: tuple[str, ...]) -> Any:
    return {
        f"dppl-v1:{first + place}": Figure(
            title=f"{title} {name}", draws=draws, sets=(name,)
        )
        for place, name in enumerate(order)
    }


def _sparse(paper: str, end: str, main: str, *few: str) -> dict[str, Figure]:
    """Return the figures of Sparse-FT, by the configurations whose names have this end, of a main data set and few-shot ones."""
    as_base: dict[str, Any] = {
        "base": f"luo{end}",
        "sets": (main,),
        "ir": (),
        "pools": (),
    }
    layers = ["scratch", "all-weights", "film", "sparse"]
    of = "Sparse fine-tuning and"
    return {
        f"{paper}:3": Figure(
            title="Noise over gradient", draws="noise-", methods=layers, **as_base
        ),
        f"{paper}:4": Figure(
            title="What is trained of each layer",
            draws="trained-layers-",
            methods=["sparse"],
            **as_base,
        ),
        f"{paper}:5": Figure(
            title="Accuracy over the budget",
            draws="accuracy-",
            methods=["sparse"],
            **as_base,
        ),
        f"{paper}:table-1": Figure(
            title=f"{of} other private methods",
            draws="report.md",
            methods=["scratch", "all-weights", "private-knn", "pate", "sparse"],
            **as_base,
        ),
        f"{paper}:table-2": Figure(
            title=f"{of} controls on few records",
            draws="report.md",
            **{**as_base, "base": f"luo-few-shot{end}", "sets": few},
        ),
        f"{paper}:table-3": Figure(
            title=f"{of} its parts",
            draws="report.md",
            methods=["head", "film", "head-conv", "sparse"],
            **as_base,
        ),
    }


_BASELINES = _on_cifar100("Methods and baselines on CIFAR-100", "accuracy-")
_ON_SETS = Figure(
    title="Four data sets at IR 100",
    draws="datasets-",
    encoders=(_LARGEST,),
    ir=(100,),
    methods=_MAIN,
)
_MINORITY = _on_cifar100("Minority classes on CIFAR-100", "minority-", ir=(50,))
_ENCODERS = Figure(title="Encoders on CIFAR-100", draws="encoders-", sets=("cifar100",))
_PROJECTION = _on_cifar100(
    "A projection before prototypes", "accuracy-", methods=_PROJECTED, ir=(1,)
)
_POOLS = _on_cifar100(
    "ImageNet and CC3M as public rows, and how many",
    "pool",
    methods=["public"],
    ir=(1, 100),
    pools=("imagenet", "cc3m"),
    rows=_POOL_SIZES,
)
_POOL_SIZES_BY_SET = Figure(
    title="Number of public rows",
    draws="pool-size-",
    encoders=(_LARGEST,),
    methods=["public"],
    rows=_POOL_SIZES,
)
_MEANS = _on_cifar100(
    "Estimators of means",
    "mean-estimators-",
    methods=["mean", "mean-replace-one", "coinpress", _FRIENDLY],
    ir=(1,),
)
# v1 orders the last two as FOOD101, STL10 for K, and the other way round elsewhere.
_AS_K = ("cifar10", "cifar100", "food101", "stl10")
_AS_MAIN = ("cifar10", "cifar100", "stl10", "food101")
_K = {
    f"dppl-v1:{14 + place}": Figure(
        title=f"Top-K on {name}",
        draws="top-k-",
        sets=(name,),
        methods=["mean", "public", _TOP_K],
    )
    for place, name in enumerate(_AS_K)
}
FIGURES: dict[str, Figure] = {
    "dppl-v1:2": _on_cifar100(
        "Prototypes and a linear probe on CIFAR-100",
        "accuracy-",
        methods=_MAIN,
    ),
    "dppl-v1:3": _ON_SETS,
    "dppl-v1:4": _BASELINES,
    "dppl-v1:5": _MINORITY,
    "dppl-v1:6": _ENCODERS,
    "dppl-v1:7": _PROJECTION,
    "dppl-v1:8": _POOLS,
    "dppl-v1:9": _on_cifar100("Top-K", "top-k-", methods=["mean", "public", _TOP_K]),
    "dppl-v1:10": Figure(
        title="Class sizes, with table 1",
        draws="class-sizes-",
        encoders=(_LARGEST,),
        methods=["mean"],
    ),
    "dppl-v1:11": _POOL_SIZES_BY_SET,
    "dppl-v1:12": Figure(
        title="True and private means in two dimensions",
        draws="scatter-",
        sets=("cifar10",),
        encoders=(_LARGEST,),
        methods=[_IN_PLANE],
        ir=(1,),
    ),
    "dppl-v1:13": Figure(
        title="Steps of CoinPress",
        draws="coinpress-",
        sets=("cifar10",),
        encoders=(_LARGEST,),
        methods=["coinpress"],
        ir=(1,),
    ),
    **_K,
    "dppl-v1:18": Figure(
        title="The best K", draws="best-k-", methods=["mean", "public", _TOP_K]
    ),
    "dppl-v1:19": _on_cifar100(
        "Settings of a projection", "sweep-", methods=_SWEEP, ir=(1,)
    ),
    **_of_all(20, "Methods and baselines on", "accuracy-", _AS_MAIN),
    **_of_all(24, "Minority classes on", "minority-", _AS_MAIN),
    "dppl-v1:table-2": Figure(
        title="Seconds of a fit", draws="report.md", encoders=(_LARGEST,), ir=(1,)
    ),
    "dppl-aaai:2": _BASELINES,
    "dppl-aaai:3": _ON_SETS,
    "dppl-aaai:4": _MINORITY,
    "dppl-aaai:5": _ENCODERS,
    "dppl-aaai:6": _PROJECTION,
    "dppl-aaai:7": _POOLS,
    # Named in the text; the appendix of the other version has it as figure 11.
    "dppl-aaai:9": _POOL_SIZES_BY_SET,
    "dppl-aaai:10": _MEANS,
    "dp-cl:1": _stream("Split CIFAR-100", "average-accuracy-", "cifar100-10x10"),
    "dp-cl:2": _stream("5-Dataset", "average-accuracy-", "5-dataset", of_images=True),
    "dp-cl:table-1": _stream("Split ImageNet-R", "report.md", "imagenet-r-10x20"),
    "dp-cl:a1": _stream("Split CIFAR-100", "forgetting-", "cifar100-10x10"),
    "dp-cl:a.1": _stream(
        "5-Dataset",
        "alone-",
        "5-dataset",
        title="Models of single tasks alone, on 5-Dataset",
        methods=["ContinualEnsemble", "FilmEnsemble"],
        of_images=True,
        alone=True,
    ),
    "dp-cl:a2": _stream("5-Dataset", "forgetting-", "5-dataset", of_images=True),
    **_sparse("sparse-ft", "", "cifar10", "cropdisease", "eurosat", "isic2018"),
    **_sparse("sparse-ft-digits", "-digits", "digits", "digits"),
}
