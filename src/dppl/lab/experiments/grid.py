"""The schema of a configuration, as pydantic models, and the grid of cells that it expands to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from dppl._utils import validate
from dppl.errors import ParameterError
from dppl.kernel.privacy import ZCDP, GaussianDP
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.lab.experiments.built_in import BUILT_IN
from dppl.lab.experiments.cells import NATURAL, NO_NOISE, NON_PRIVATE, NOT_NAMED, Cell
from dppl.lab.experiments.compared_methods import (
    ALL_METHODS,
    MEANS,
    METHODS,
    STREAM_METHODS,
    searched_method,
)
from dppl.lab.experiments.datasets import (
    DIGITS,
    GROUPS,
    IMAGES,
    NAMES,
    PARTS,
    WHOLE,
    WHOLE_IMAGES,
    DatasetSpec,
    ExampleSpec,
    Merged,
    Pool,
    PublicTraining,
)
from dppl.lab.experiments.method_kinds import PYTHON, OwnMethod
from dppl.lab.experiments.network_methods import network_digest
from dppl.lab.task_streams import APART, DATA_SETS, KINDS, RECIPES, Stream
from dppl.methods.registry import BY_NAME

T = TypeVar("T")
_Key = tuple[str, str]  # name and encoder of a data set


def _as_list(value: Any) -> Any:
    if isinstance(value, list) and value:
        return value
    return [value]


def _short(key: str, kind: Any = str) -> BeforeValidator:
    """Read a bare value, usually a text, as an entry with this one key."""
    return BeforeValidator(lambda one: {key: one} if isinstance(one, kind) else one)


def _refuse(rules: Mapping[str, object]) -> None:
    """Raise the first rule that is broken."""
    for rule, broken in rules.items():
        if broken:
            raise ValueError(rule)


def _with_code(name: Any) -> Any:
    """Read the name of a method; of one's own, with a hash of its code."""
    if isinstance(name, str) and name.startswith(PYTHON):
        return OwnMethod.named(name)
    return name


def _ratio(value: Any) -> Any:
    """Read an imbalance ratio."""
    is_number = (
        isinstance(value, int | float) and not isinstance(value, bool) and value >= 1
    )
    _refuse(
        {
            f"must be {NATURAL!r} or a number of at least 1; got {value!r}": value
            != NATURAL
            and not is_number
        }
    )
    return float(value) if is_number else value


def _axis(value: Any) -> Any:
    plain = all(
        isinstance(one, str | int | float | list | None) for one in _as_list(value)
    )
    _refuse({f"must hold numbers, texts, lists or null; got {value!r}": not plain})
    return _as_list(value)


def _budgets(value: Any) -> Any:
    """Read a single budget as a list of one, and the word for no privacy as a mu so large that nothing is private."""
    several = value if isinstance(value, list) else [value]
    return [{"mu": NO_NOISE} if one == NON_PRIVATE else one for one in several]


Several = Annotated[
    list[T], BeforeValidator(_as_list)
]  # a value stands for a list of one
Count = Annotated[int, Field(ge=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Number = Annotated[
    float, Field(allow_inf_nan=False)
]  # also of a text: YAML 1.1 takes 1e-5, without a dot, for one
Ratios = list[Annotated[float | str, PlainValidator(_ratio)]]
Seeds = Annotated[
    list[Annotated[int, Field(ge=0, strict=True)]],
    BeforeValidator(
        lambda value: list(range(value)) if type(value) is int and value > 0 else value
    ),
]


class _Strict(BaseModel):
    """A model that allows no other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Pool(_Strict):
    """A file of public rows; those whose lines in a text file are in `without` are dropped."""

    name: str
    file: str
    lines: str | None = None
    without: list[str] = []
    first: Count | None = None
    rows: Several[Count | None] = [None]

    @model_validator(mode="after")
    def _check(self) -> _Pool:
        _refuse(
            {
                "lines and without go together; add the other": (self.lines is None)
                == bool(self.without)
            }
        )
        return self


class _Dataset(_Strict):
    """A data set and its public pools."""

    name: str
    encoder: str = NOT_NAMED
    folder: str | None = None
    files: dict[str, str] = {}
    whole: Flag = False
    public: list[_Pool] = []
    ir: Ratios | None = None
    classes: Several[Merged | None] = [
        None
    ]  # tasks of few classes; None is the data set as it is
    shots: Several[Count | None] = [None]  # private records of each class
    ways: Several[Count | None] = [None]  # classes that a seed draws
    images: str | None = None  # a folder of images, or digits
    network: str | None = None  # that embeds images, and that methods train
    base: str | None = None  # a folder of images of other, public classes
    pretrain: PublicTraining | None = None  # how that is made

    @model_validator(mode="before")
    @classmethod
    def _name_the_encoder(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("name") in BUILT_IN:
            encoder, _ = BUILT_IN[value["name"]]
            return {"encoder": encoder, **value}
        return value

    @model_validator(mode="after")
    def _check(self) -> _Dataset:
        known = {NAMES, GROUPS, *PARTS, *IMAGES}
        if self.whole:
            known = {NAMES, GROUPS, *WHOLE, WHOLE_IMAGES}
        rules = {
            f"files has an unknown key {part!r}": part not in known
            for part in self.files
        }
        rules |= {
            "images and network go together; add the other": (self.images is None)
            != (self.network is None),
            "pretrain and base are for images": self.images is None
            and (self.pretrain, self.base) != (None, None),
            "images have no files, and are not whole": self.images is not None
            and bool(self.files or self.whole),
        }
        _refuse(rules)
        return self

    def spec(self, data: Path, source: str) -> tuple[DatasetSpec, list[Pool]]:
        """Return where the data set lies, and its public pools."""
        if self.name in BUILT_IN and self.folder is None:
            pools = [Pool("digits")] if self.name == "sample" else []
            return DatasetSpec(self.name, self.encoder), pools
        pools = [
            Pool(one.name, one.first, rows, tuple(one.without))
            for one in self.public
            for rows in one.rows
        ]
        paths = {one.name: data / one.file for one in self.public}
        if self.images is not None:
            place = data / self.images
            if self.images == DIGITS:
                place = Path(DIGITS)
                pools.append(Pool(DIGITS))
            spec = DatasetSpec(self.name, self.encoder, {}, paths, {}, source)
            made = self.pretrain
            if made is not None and made.images != DIGITS:
                made = replace(made, images=str(data / made.images))
            network = str(self.network)
            base = None if self.base is None else data / self.base
            spec = replace(spec, images=place, network=network, base=base)
            return replace(spec, pretrain=made), pools
        names = {
            part: f"{part}.npy" for part in (WHOLE if self.whole else PARTS)
        } | self.files
        files = {
            part: data / (self.folder or self.name) / name
            for part, name in names.items()
        }
        lines = {one.name: data / one.lines for one in self.public if one.lines}
        return DatasetSpec(self.name, self.encoder, files, paths, lines, source), pools


class _Budget(_Strict):
    """Budgets in one notion of privacy."""

    mu: Several[Number] | None = None
    e: Several[Number] | None = None
    rho: Several[Number] | None = None
    epsilon: Several[Number] | None = None
    delta: Number | None = None

    @model_validator(mode="after")
    def _check(self) -> _Budget:
        kinds = self.model_fields_set - {"delta"}
        rule = (
            "must name one of mu (Gaussian DP), e (sqrt(2 rho) in zCDP, as in the DPPL papers), rho, or epsilon; delta "
            "goes with epsilon, and with mu and e, of which it takes the epsilon that they imply; "
            f"got {', '.join(sorted(self.model_fields_set)) or 'nothing'}"
        )
        _refuse(
            {rule: len(kinds) != 1 or (self.delta is not None and kinds == {"rho"})}
        )
        list(self.each())  # which refuses numbers that are no budget
        return self

    def each(self) -> Iterator[dict[str, float]]:
        """Yield the parameters of each budget."""
        ((kind, values),) = self.model_dump(
            exclude_none=True, exclude={"delta"}
        ).items()
        if self.delta is None:
            delta = {}
        else:
            delta = {"delta": self.delta}
        for value in values:
            if kind in ("mu", "e") and self.delta is not None:
                yield GaussianDP(value).to_approx(self.delta).to_dict()
            elif kind == "e":
                validate.positive(e=value)
                yield ZCDP(value**2 / 2).to_dict()
            else:
                yield budget_from_dict({kind: value, **delta}).to_dict()


Budgets = Annotated[list[_Budget], BeforeValidator(_budgets)]


class _Method(BaseModel):
    """A method; keys without a field here are its parameters, and a list of values is an axis of the grid."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Annotated[list[Any], PlainValidator(_axis)]]

    method: Annotated[str, BeforeValidator(_with_code)]
    tune: Annotated[int, Field(ge=0, strict=True)] = 0
    search: Annotated[int, Field(ge=2, strict=True)] | None = None
    budgets: Budgets | None = None
    seeds: Seeds | None = None
    examples: Several[Annotated[ExampleSpec | None, _short("source", int | str)]] = [
        None
    ]
    in_all: Several[Flag] = [False]
    scatter: Flag = False
    layers: Flag = False
    tune_on: Literal["first task", "all tasks"] = "first task"
    alone: Flag = False

    def check(self, where: str, streams: bool) -> None:
        """Refuse what the method cannot do, and keys that do not go together."""
        name = self.method
        methods = STREAM_METHODS if streams else METHODS
        if name not in methods:
            own = "" if streams else ", or python:FILE.py:CLASS"
            raise ParameterError(
                f"{where} must be one of {', '.join(methods)}{own}; got {name!r}."
            )
        method = methods[name]
        entry = BY_NAME.get(methods[name].estimator)
        for parameter in self.__pydantic_extra__:
            if parameter not in method.parameters:
                raise ParameterError(
                    f"{where}: {name} has no parameter {parameter!r} to set; it has "
                    f"{', '.join(method.parameters) or 'none'}."
                )
        takes_examples = entry is not None and entry.load().starts_from_examples
        used = [one is not None and one.used for one in self.examples]
        # Each rule with what breaks it; the error names the first.
        can_search = searched_method(name).space and method.private
        rules = {
            f".tune: {name} has no hyper-parameters to search": self.tune
            and not can_search,
            f".search: {name} has no settings that a private search can fit": self.search
            and (method.of_images or not can_search),
            ".in_all is for streams": any(self.in_all) and not streams,
            f".scatter is for {', '.join(MEANS)}": self.scatter and name not in MEANS,
            f".layers: {name} trains no network": self.layers and not method.of_images,
            ".layers are for single fits": self.layers and streams,
            ".alone is for streams": self.alone and not streams,
            ".tune_on is for streams; add tune": self.tune_on != "first task"
            and not (streams and self.tune),
            f": {name} starts from examples; add examples": method.needs_examples
            and not all(used),
            f".examples: {name} does not start from examples": any(used)
            and not takes_examples,
            ".examples are for single fits": streams and self.examples != [None],
        }
        for rule, broken in rules.items():
            if broken:
                how = "" if "add" in rule else "; leave it out"
                raise ParameterError(f"{where}{rule}{how}.")


class _Stream(_Strict):
    """How data sets become streams, or the name of a benchmark."""

    recipe: str | None = None
    of: Several[str] = []
    kind: Literal[*KINDS] | None = None  # type: ignore[valid-type]
    tasks: Several[Count] = []
    elsewhere: Annotated[Number, Field(ge=0, le=1)] | None = None
    told: Several[Flag] = [False]

    @model_validator(mode="after")
    def _check(self) -> _Stream:
        joins = self.kind == DATA_SETS
        alone = self.model_fields_set <= {"recipe", "told"}
        if self.recipe is not None:
            rule = f"recipe must be one of {', '.join(RECIPES)}, with no other key but told; got {self.recipe!r}"
            _refuse({rule: self.recipe not in RECIPES or not alone})
            return self
        rules = {
            "must have the keys of and kind, or recipe": not (self.of and self.kind),
            f"{DATA_SETS} takes a list of several data sets, and other kinds take one": joins
            != (len(self.of) > 1),
            f"each kind but {DATA_SETS} needs tasks, and {DATA_SETS} has one a data set": joins
            == bool(self.tasks),
            "elsewhere is for blurry streams; leave it out": self.elsewhere is not None
            and self.kind != "blurry",
            f"told is for {' and '.join(APART)}, whose tasks have classes of their own": any(
                self.told
            )
            and self.kind not in APART,
        }
        _refuse(rules)
        return self

    def each(self) -> Iterator[tuple[list[str], Stream]]:
        """Yield streams, with the names of the data sets that each joins."""
        if self.recipe is not None:
            recipe = RECIPES[self.recipe]
            for told in self.told:
                yield (
                    list(recipe.datasets),
                    Stream(recipe.kind, recipe.n_tasks, None, told, self.recipe),
                )
            return
        elsewhere = self.elsewhere
        if elsewhere is None and self.kind == "blurry":
            elsewhere = 0.1
        for n_tasks, told in itertools.product(self.tasks or [len(self.of)], self.told):
            yield self.of, Stream(str(self.kind), n_tasks, elsewhere, told)


class _Config(_Strict):
    """A configuration; with streams, benchmarks name some of the data sets."""

    about: str = ""
    source: str = ""
    data: str = "."
    datasets: list[Annotated[_Dataset, _short("name")]] = []
    streams: list[Annotated[_Stream, _short("recipe")]] = []
    methods: list[Annotated[_Method, _short("method")]]
    budgets: Budgets = []
    ir: Ratios = [NATURAL]
    seeds: Seeds = [0, 1, 2]

    @model_validator(mode="after")
    def _check(self) -> _Config:
        _refuse({"datasets is missing; add it": not self.datasets and not self.streams})
        return self


class _Data(NamedTuple):
    """A data set in the grid."""

    spec: DatasetSpec
    pools: list[Pool]
    ratios: list[float | str]
    merged: list[Merged | None]
    shots: list[int | None]
    ways: list[int | None]

    @property
    def has_base(self) -> bool:
        """Whether there are public classes that no trial asks for."""
        return self.spec.base is not None or None not in self.ways


class _Choice(NamedTuple):
    """A method with one value for each parameter; it may have its own budgets and seeds."""

    where: str
    name: str
    parameters: dict[str, Any]
    trials: int
    search: int
    budgets: list[dict[str, float]]
    seeds: list[int]
    examples: ExampleSpec | None
    in_all: bool
    scatter: bool
    layers: bool
    tune_on: str
    alone: bool

    def fits(self, data: _Data, classes: Merged | None) -> bool:
        """Whether the data set has the images, or the examples, of the method; class names fit unmerged classes only."""
        if ALL_METHODS[self.name].of_images and not data.spec.has_images:
            return False
        if ALL_METHODS[self.name].from_base and not data.has_base:
            return False
        from_names = self.examples is not None and self.examples.source == NAMES
        return not from_names or (NAMES in data.spec.files and classes is None)


def grid(
    content: Any, data: Path | None, *, check: bool = True
) -> tuple[dict[_Key, DatasetSpec], list[Cell]]:
    """Return the data sets of a configuration, and its cells; unless `check` is false, files must be there."""
    try:
        config = _Config.model_validate(content)
    except ValidationError as error:
        raise ParameterError(_first_of(error)) from None
    sources = _datasets(config, Path(config.data) if data is None else data)
    # A task is a data set as it is, or a stream that is cut from one or several.
    tasks: list[tuple[_Key, Stream | None]] = [(key, None) for key in sources]
    if config.streams:
        tasks = [
            (_joined(names, f"streams[{place}].of", sources, config.ir), stream)
            for place, entry in enumerate(config.streams)
            for names, stream in entry.each()
        ]
        sources = {key: sources[key] for key, _ in tasks}
    choices = list(_choices(config))
    # A method that would get no cell at all is a mistake of the configuration.
    for choice in choices:
        if not any(choice.fits(one, None) for one in sources.values()):
            if ALL_METHODS[choice.name].of_images:
                what = f" is {choice.name}, and no data set has files: train_images."
            elif ALL_METHODS[choice.name].from_base:
                what = f" is {choice.name}, and no data set has base or ways."
            else:
                what = ".examples are names, and no data set has files: names."
            raise ParameterError(choice.where + what)
    # The streams that a choice is tuned on, where it is on all tasks; whether the method
    # is told the classes of a task makes no other task.
    tuned_on = {
        choice.where: tuple(
            dict.fromkeys(
                (*key, replace(stream, told=False))
                for key, stream in tasks
                if stream is not None and choice.fits(sources[key], None)
            )
        )
        for choice in choices
        if choice.tune_on == "all tasks"
    }
    # One seed after the other, so that an interrupted run has compared all methods.
    cells = {
        cell.key: cell
        for seed in dict.fromkeys(seed for choice in choices for seed in choice.seeds)
        for key, stream in tasks
        for classes in sources[key].merged
        for shots in sources[key].shots
        for ways in sources[key].ways
        for ratio in sources[key].ratios
        for choice in choices
        if seed in choice.seeds and choice.fits(sources[key], classes)
        for cell in _cells(
            choice,
            sources[key],
            ir=ratio,
            seed=seed,
            stream=stream,
            classes=classes,
            shots=shots,
            ways=ways,
            tuned_on=tuned_on.get(choice.where, ()),
        )
    }
    # Last, because whatever else is wrong can be said without the data.
    datasets = {key: one.spec for key, one in sources.items()}
    for spec in datasets.values() if check else ():
        spec.check()
    return datasets, list(cells.values())


def _first_of(error: ValidationError) -> str:
    """Say the first thing that is wrong: its key, the rule and the value."""
    first = error.errors()[0]
    where = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
    ).lstrip(".")
    where = where or "the configuration"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{where} is an unknown key; leave it out."
    if first["type"] == "missing":
        return f"{where} is missing; add it."
    rule = (
        first["msg"]
        .removeprefix("Value error, ")
        .replace("Input should be", "must be")
        .removesuffix(".")
    )
    value = ""
    if first["type"] != "value_error":
        value = f"; got {first['input']!r}"
    return f"{where}{' ' if rule.startswith('must') else ': '}{rule}{value}."


def _datasets(config: _Config, folder: Path) -> dict[_Key, _Data]:
    """Return the data sets of a configuration, and the benchmarks' data sets that it does not name itself."""
    recipes = [RECIPES[one.recipe] for one in config.streams if one.recipe is not None]
    needed = {name: one.whole for one in recipes for name in one.datasets}
    named = {entry.name for entry in config.datasets}
    entries = [
        _Dataset(name=name, whole=whole)
        for name, whole in needed.items()
        if name not in named
    ]
    sources: dict[_Key, _Data] = {}
    for place, entry in enumerate([*config.datasets, *entries]):
        key = entry.name, entry.encoder
        if key in sources:
            raise ParameterError(
                f"datasets[{place}] names {entry.name!r} with encoder {entry.encoder!r} again; leave one out."
            )
        # What a data set says of itself goes before what holds for all.
        ratios = config.ir if entry.ir is None else entry.ir
        sources[key] = _Data(
            *entry.spec(folder, config.source),
            ratios,
            entry.classes,
            entry.shots,
            entry.ways,
        )
    return sources


def _joined(
    names: list[str], where: str, sources: dict[_Key, _Data], ratios: list[float | str]
) -> _Key:
    """Return the key of the data set that a stream is of; several are joined to one first."""
    by_name = {name: one.spec for (name, _), one in sources.items()}
    for name in names:
        if name not in by_name:
            raise ParameterError(
                f"{where} must be one of {', '.join(by_name) or 'datasets'}; got {name!r}."
            )
    parts = tuple(by_name[name] for name in names)
    if len(parts) == 1:
        return parts[0].name, parts[0].encoder
    if any(sources[part.name, part.encoder].merged != [None] for part in parts):
        raise ParameterError(
            f"{where} must name data sets without classes; got {', '.join(names)}."
        )
    key = " + ".join(names), " + ".join(dict.fromkeys(part.encoder for part in parts))
    sources[key] = _Data(
        DatasetSpec(*key, parts=parts), [], ratios, [None], [None], [None]
    )
    return key


def _choices(config: _Config) -> Iterator[_Choice]:
    """Expand lists of values into all combinations."""
    for place, entry in enumerate(config.methods):
        where = f"methods[{place}]"
        entry.check(where, bool(config.streams))
        if entry.budgets is None:
            several = config.budgets
        else:
            several = entry.budgets
        budgets = [budget for one in several for budget in one.each()]
        if entry.seeds is None:
            seeds = config.seeds
        else:
            seeds = entry.seeds
        axes = entry.__pydantic_extra__
        for *values, start, in_all in itertools.product(
            *axes.values(), entry.examples, entry.in_all
        ):
            parameters = dict(zip(axes, values, strict=True))
            yield _Choice(
                where,
                entry.method,
                parameters,
                entry.tune,
                entry.search or 0,
                budgets,
                seeds,
                start,
                in_all,
                entry.scatter,
                entry.layers,
                entry.tune_on,
                entry.alone,
            )


def _cells(
    choice: _Choice,
    data: _Data,
    *,
    tuned_on: tuple[tuple[str, str, Stream], ...],
    **place: Any,
) -> Iterator[Cell]:
    """Yield the cells of a method at one place of the grid: each budget, pool and way of tuning."""
    method = ALL_METHODS[choice.name]
    spec = data.spec
    if method.public_rows(choice.parameters) == "required" and not data.pools:
        raise ParameterError(
            f"{choice.where}: {choice.name} needs public rows, and data set {spec.name!r} names none; add public."
        )
    if method.private and not choice.budgets:
        raise ParameterError(
            f"budgets must hold at least one budget; {choice.name} spends one."
        )
    for budget in choice.budgets if method.private else ():
        if tuple(budget) == ("epsilon",) and not method.pure:
            raise ParameterError(
                f"budgets: {choice.where} is {choice.name}, which cannot spend pure DP (epsilon {budget['epsilon']:g} "
                "without delta); give delta, mu, e or rho."
            )
        if budget == {"mu": 0} and (
            choice.examples is None or not choice.examples.used
        ):
            raise ParameterError(
                f"budgets: {choice.where} has no examples, and mu = 0 is for these alone."
            )
    # References without privacy have no budget, and methods without public rows no
    # pool.
    budgets: list[dict[str, float] | None] = [None]
    if method.private:
        budgets = [*choice.budgets]
    network = choice.parameters.get("network") or spec.network
    pools: list[Pool | None] = [None]
    if data.pools and method.uses_public(choice.parameters):
        pools = [*data.pools]
    # As it is, tuned at no cost, and by a private search, which is accounted in
    # approximate DP.
    ways = dict.fromkeys([(0, 0), (choice.trials, 0), (0, choice.search)])
    for budget, pool, (trials, search) in itertools.product(budgets, pools, ways):
        if search and "delta" not in (budget or {}):
            continue
        # Where nothing is searched, defaults that differ from the class's own are part
        # of the key.
        if trials or search:
            parameters = choice.parameters
        else:
            parameters = {**method.defaults, **choice.parameters}
        yield Cell(
            choice.name,
            parameters,
            spec.name,
            spec.encoder,
            pool,
            budget,
            trials=trials,
            search=search,
            examples=choice.examples,
            in_all=choice.in_all,
            scatter=choice.scatter,
            layers=choice.layers,
            tuned_on=tuned_on if trials else (),
            alone=choice.alone,
            network=network_digest(network) if network else None,
            **place,
        )
