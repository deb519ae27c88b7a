"""What a configuration may say, as models of pydantic, and the grid of cells that it stands for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, model_validator

from dppl import _validate
from dppl.errors import DpplError, ParameterError
from dppl.kernel.privacy import ZCDP
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.lab.experiments.config import NATURAL, NO_NOISE, NON_PRIVATE, NOT_NAMED, PERSON, RECORD, Cell
from dppl.lab.experiments.datasets import (
    IDS,
    NAMES,
    PARTS,
    PARTS_IDS,
    SAMPLE,
    WHOLE,
    WRONG,
    DatasetSpec,
    Examples,
    Merged,
    Persons,
    Pool,
)
from dppl.lab.experiments.methods import ALL_METHODS, METHODS, STREAM_METHODS, checked_method
from dppl.lab.experiments.streams import APART, DATA_SETS, KINDS, RECIPES, Stream

__all__ = ["grid"]

T = TypeVar("T")
_Key = tuple[str, str]  # name and encoder of a data set


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) and value else [value]


def _entries(key: str) -> BeforeValidator:
    """Read a text in a list as an entry that has only this key."""
    return BeforeValidator(
        lambda several: (
            [{key: one} if isinstance(one, str) else one for one in several] if isinstance(several, list) else several
        )
    )


def _refuse(rules: Mapping[str, object]) -> None:
    for rule, broken in rules.items():
        if broken:
            raise ValueError(rule)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _number(value: Any) -> Any:
    """Pass what pydantic reads as a number: YAML 1.1 takes 1e-5, without a dot, for a text."""
    _refuse({f"must be a finite number; got {value!r}": isinstance(value, bool)})
    return value


def _ratio(value: Any) -> float | str:
    is_ratio = isinstance(value, int | float) and not isinstance(value, bool) and value >= 1
    _refuse({f"must be {NATURAL!r} or a number of at least 1; got {value!r}": value != NATURAL and not is_ratio})
    return NATURAL if value == NATURAL else float(value)


def _seeds(value: Any) -> Any:
    if isinstance(value, list):
        return value
    _refuse({f"must be an integer of at least 1, or a list of seeds; got {value!r}": not _is_count(value)})
    return list(range(value))


def _source(value: Any) -> Any:
    rule = f"must be {NAMES!r} or a number of rows a class; got {value!r}"
    _refuse({rule: value != NAMES and not _is_count(value)})
    return value


def _axis(value: Any) -> Any:
    plain = all(isinstance(one, str | int | float | list | None) for one in _as_list(value))
    _refuse({f"must hold numbers, texts, lists or null; got {value!r}": not plain})
    return _as_list(value)


Several = Annotated[list[T], BeforeValidator(_as_list)]  # a value stands for a list of one
Count = Annotated[int, Field(ge=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Number = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_number)]
Ratios = list[Annotated[float | str, PlainValidator(_ratio)]]
Seeds = Annotated[list[Annotated[int, Field(ge=0, strict=True)]], BeforeValidator(_seeds)]


class _Strict(BaseModel):
    """What may have no other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Pool(_Strict):
    """A file of public rows, maybe without those that have some line in a text file."""

    name: str
    file: str
    lines: str | None = None
    without: list[str] = []
    first: Count | None = None
    rows: Several[Count | None] = [None]

    @model_validator(mode="after")
    def _check(self) -> _Pool:
        _refuse({"lines and without go together; add the other": (self.lines is None) == bool(self.without)})
        return self


class _Persons(_Strict):
    """Parameters of made-up persons; a list means each of its values."""

    number: Several[Count]
    largest: Several[Count] = [50]
    share: Several[Annotated[Number, Field(gt=0, le=1)]] = [1.0]
    offset: Several[Annotated[Number, Field(ge=0)]] = [0.3]


class _Classes(_Strict):
    """To which tasks of few classes a data set is put together."""

    alone: Several[Count] = []
    groups: Several[Annotated[int, Field(ge=2, strict=True)]] = []


class _Dataset(_Strict):
    """A data set, its public pools, and whom its cells protect."""

    name: str
    encoder: str = NOT_NAMED
    folder: str | None = None
    files: dict[str, str] = {}
    whole: Flag = False
    public: list[_Pool] = []
    ir: Ratios | None = None
    classes: _Classes | None = None
    groups: str | None = None
    persons: _Persons | None = None
    unit: Several[Literal[RECORD, PERSON]] | None = None  # type: ignore[valid-type]

    @model_validator(mode="before")
    @classmethod
    def _name_the_encoder(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("name") == SAMPLE:
            return {"encoder": "digits-diffusion-map-32", **value}
        return value

    @model_validator(mode="after")
    def _check(self) -> _Dataset:
        known = (*(WHOLE if self.whole else PARTS), NAMES)
        personal = self.groups or self.persons
        rules = {f"files has an unknown key {part!r}": part not in known for part in self.files} | {
            "must not have both groups, which names ids, and persons, which makes some up": self.groups
            and self.persons,
            "unit is for data sets with groups or persons; leave it out": self.unit and not personal,
            "classes is for single fits, without groups or persons; leave it out": self.classes and personal,
        }
        _refuse(rules)
        return self

    def spec(self, data: Path, source: str) -> tuple[DatasetSpec, list[Pool]]:
        """Return where the data set lies, and its public pools."""
        if self.name == SAMPLE and self.folder is None:
            return DatasetSpec(SAMPLE, self.encoder), [Pool("digits")]
        folder = data / (self.folder or self.name)
        names = {part: f"{part}.npy" for part in (WHOLE if self.whole else PARTS)} | self.files
        if self.groups:
            names |= {one: f"{one.replace(IDS, self.groups)}.npy" for one in ((IDS,) if self.whole else PARTS_IDS)}
        files = {part: folder / name for part, name in names.items()}
        pools = [Pool(one.name, one.first, rows, tuple(one.without)) for one in self.public for rows in one.rows]
        paths = {one.name: data / one.file for one in self.public}
        lines = {one.name: data / one.lines for one in self.public if one.lines}
        return DatasetSpec(self.name, self.encoder, files, paths, lines, source), pools

    def protected(self) -> list[tuple[Persons | None, str]]:
        """Return whose records the cells learn from, and whom they protect."""
        several: list[Persons | None] = [Persons(self.groups) if self.groups else None]
        if self.persons:
            axes = self.persons.model_dump(exclude_unset=True)
            several = [Persons(**dict(zip(axes, each, strict=True))) for each in itertools.product(*axes.values())]
        units = self.unit or [RECORD if several == [None] else PERSON]
        return list(itertools.product(several, units))

    def merged(self) -> list[Merged | None]:
        """Return the tasks of few classes that are made of the data set; None is the data set as it is."""
        if self.classes is None:
            return [None]
        return [*(Merged(alone=n) for n in self.classes.alone), *(Merged(groups=n) for n in self.classes.groups)]


class _Budget(_Strict):
    """Budgets of one notion."""

    mu: Several[Number] | None = None
    e: Several[Number] | None = None
    rho: Several[Number] | None = None
    epsilon: Several[Number] | None = None
    delta: Number | None = None

    @model_validator(mode="after")
    def _check(self) -> _Budget:
        kinds = self.model_fields_set - {"delta"}
        rule = (
            "must name one of mu (Gaussian DP), e (sqrt(2 rho) in zCDP, as in the DPPL papers), rho, or epsilon with "
            f"or without delta; got {', '.join(sorted(self.model_fields_set)) or 'nothing'}"
        )
        _refuse({rule: len(kinds) != 1 or (self.delta is not None and kinds != {"epsilon"})})
        return self

    def each(self, where: str) -> Iterator[dict[str, float]]:
        """Yield the budgets; errors name the place of one."""
        ((kind, values),) = self.model_dump(exclude_none=True, exclude={"delta"}).items()
        delta = {} if self.delta is None else {"delta": self.delta}
        for place, value in enumerate(values):
            try:
                if kind == "e":
                    _validate.positive(e=value)
                    yield ZCDP(value**2 / 2).to_dict()
                else:
                    yield budget_from_dict({kind: value, **delta}).to_dict()
            except DpplError as error:
                raise ParameterError(f"{where}.{kind}[{place}]: {error}") from None


def _budget_entries(value: Any) -> Any:
    entries = value if isinstance(value, list) else [value]
    return [{"mu": NO_NOISE} if one == NON_PRIVATE else one for one in entries]


Budgets = Annotated[list[_Budget], BeforeValidator(_budget_entries)]


def _every(budgets: list[_Budget], where: str) -> list[dict[str, float]]:
    return [budget for place, one in enumerate(budgets) for budget in one.each(f"{where}[{place}]")]


class _Method(BaseModel):
    """A method; keys that have no field here are its parameters, and a list of values is an axis of the grid."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Annotated[list[Any], PlainValidator(_axis)]]

    method: str
    tune: Annotated[int, Field(ge=0, strict=True)] = 0
    budgets: Budgets | None = None
    seeds: Seeds | None = None
    examples: Several[Annotated[int | str, PlainValidator(_source)]] | None = None
    wrong: Several[Literal[*WRONG] | None] | None = None  # type: ignore[valid-type]
    left_out: Several[Count] | None = None
    in_all: Several[Flag] | None = None

    @property
    def starts(self) -> list[Examples | None]:
        """What a method starts from: examples, right or wrong ones, or zero, maybe without the examples' rows."""
        if self.left_out:
            return [Examples(n, used=False) for n in self.left_out]
        return [Examples(*each) for each in itertools.product(self.examples or [], self.wrong or [None])] or [None]

    def check(self, where: str, streams: bool) -> None:
        """Refuse what the method cannot do, and keys that do not go together."""
        name = self.method
        method = checked_method(name, self.__pydantic_extra__, where, STREAM_METHODS if streams else METHODS)
        # Each rule with what breaks it; the first that is broken is told.
        rules = {
            f".tune: {name} has no hyper-parameters to search": self.tune and not (method.space and method.private),
            ".left_out is for single fits": self.left_out and streams,
            ".in_all is for streams": self.in_all and not streams,
            ".left_out is for a start without examples": self.left_out and (self.examples or self.wrong),
            ".wrong is for examples; add examples": self.wrong and not self.examples,
            f": {name} starts from examples; add examples": method.needs_examples and not self.examples,
            f".examples: {name} does not start from examples": self.examples and not method.takes_examples,
        }
        for rule, broken in rules.items():
            if broken:
                raise ParameterError(f"{where}{rule}." if "add" in rule else f"{where}{rule}; leave it out.")


class _Stream(_Strict):
    """How data sets become streams, or the name of a benchmark."""

    recipe: str | None = None
    of: Several[str] | None = None
    kind: Literal[*KINDS] | None = None  # type: ignore[valid-type]
    tasks: Several[Count] | None = None
    elsewhere: Annotated[Number, Field(ge=0, le=1)] | None = None
    told: Several[Flag] = [False]

    @model_validator(mode="after")
    def _check(self) -> _Stream:
        if self.recipe is not None:
            alone = self.recipe in RECIPES and self.model_fields_set <= {"recipe", "told"}
            rule = f"recipe must be one of {', '.join(RECIPES)}, with no other key but told; got {self.recipe!r}"
            _refuse({rule: not alone})
            return self
        joins, of = self.kind == DATA_SETS, self.of or []
        rules = {
            "must have the keys of and kind, or recipe": not (of and self.kind),
            f"{DATA_SETS} takes a list of several data sets, and other kinds take one": joins != (len(of) > 1),
            f"each kind but {DATA_SETS} needs tasks, and {DATA_SETS} has one a data set": joins != (self.tasks is None),
            "elsewhere is for blurry streams; leave it out": self.elsewhere is not None and self.kind != "blurry",
            f"told is for {' and '.join(APART)}, whose tasks have classes of their own": any(self.told)
            and self.kind not in APART,
        }
        _refuse(rules)
        return self

    def each(self) -> Iterator[tuple[list[str], Stream]]:
        """Yield streams, with the names of the data sets that each joins."""
        if self.recipe is not None:
            recipe = RECIPES[self.recipe]
            for told in self.told:
                yield list(recipe.datasets), Stream(recipe.kind, recipe.n_tasks, None, told, self.recipe)
            return
        assert self.of
        elsewhere = (0.1 if self.elsewhere is None else self.elsewhere) if self.kind == "blurry" else None
        for n_tasks, told in itertools.product(self.tasks or [len(self.of)], self.told):
            yield self.of, Stream(str(self.kind), n_tasks, elsewhere, told)


class _Config(_Strict):
    """A configuration of single fits."""

    about: str = ""
    source: str = ""
    data: str = "."
    datasets: Annotated[list[_Dataset], _entries("name")]
    methods: Annotated[list[_Method], _entries("method")]
    budgets: Budgets = []
    ir: Ratios = [NATURAL]
    seeds: Seeds = [0, 1, 2]


class _StreamConfig(_Config):
    """A configuration of streams, some of whose data sets the benchmarks name."""

    datasets: Annotated[list[_Dataset], _entries("name")] = []
    streams: Annotated[list[_Stream], _entries("recipe")]


@dataclass(frozen=True, slots=True)
class _Data:
    """A data set in the grid."""

    spec: DatasetSpec
    pools: list[Pool]
    ratios: list[float | str]
    protected: list[tuple[Persons | None, str]]
    merged: list[Merged | None]


@dataclass(frozen=True, slots=True)
class _Choice:
    """A method with one value for each parameter."""

    where: str
    name: str
    parameters: dict[str, Any]
    trials: int
    budgets: list[dict[str, float]]
    seeds: list[int]
    examples: Examples | None
    in_all: bool

    @property
    def from_names(self) -> bool:
        return self.examples is not None and self.examples.source == NAMES

    def protects(self, unit: str) -> bool:
        """Tell whether there are cells of this unit: methods under replace-one have no promise to a person."""
        return unit == RECORD or ALL_METHODS[self.name].adjacency(self.parameters) != "replace-one"


def grid(content: Any, data: Path | None, *, streams: bool) -> tuple[str, dict[_Key, DatasetSpec], list[Cell]]:
    """Return what a configuration says of itself, its data sets, and its cells."""
    try:
        config = (_StreamConfig if streams else _Config).model_validate(content)
    except ValidationError as error:
        raise ParameterError(_first_of(error)) from None
    sources = _datasets(config, Path(config.data) if data is None else data)
    # A task is a data set as it is, or a stream that is cut from one or several.
    tasks: list[tuple[_Key, Stream | None]] = [(key, None) for key in sources]
    if isinstance(config, _StreamConfig):
        tasks = [
            (_joined(names, f"streams[{place}].of", sources, config.ir), stream)
            for place, entry in enumerate(config.streams)
            for names, stream in entry.each()
        ]
        sources = {key: sources[key] for key, _ in tasks}
    choices = list(_choices(config, streams))
    # A method that would get no cell at all is a mistake of the configuration.
    for choice in choices:
        if choice.from_names and not any(NAMES in one.spec.files for one in sources.values()):
            raise ParameterError(f"{choice.where}.examples are names, and no data set has files: names.")
        if not any(choice.protects(unit) for one in sources.values() for _, unit in one.protected):
            raise ParameterError(
                f"{choice.where}: {choice.name} is under replace-one, which promises nothing to a person, and no data "
                f"set has unit: {RECORD}."
            )
    # One seed after the other, so that an interrupted run has compared all methods.
    cells = {
        cell.key: cell
        for seed in dict.fromkeys(seed for choice in choices for seed in choice.seeds)
        for key, stream in tasks
        for classes in sources[key].merged
        for ratio in sources[key].ratios
        for choice in choices
        if seed in choice.seeds and not (choice.from_names and (classes or NAMES not in sources[key].spec.files))
        for persons, unit in sources[key].protected
        if choice.protects(unit)
        for cell in _cells(
            choice, sources[key], ir=ratio, seed=seed, stream=stream, persons=persons, unit=unit, classes=classes
        )
    }
    # Last, because whatever else is wrong can be said without the data.
    datasets = {key: one.spec for key, one in sources.items()}
    for spec in datasets.values():
        spec.check()
    return config.about, datasets, list(cells.values())


def _first_of(error: ValidationError) -> str:
    """Say the first thing that is wrong: its key, the rule and the value."""
    first = error.errors()[0]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    where = where or "the configuration"
    if first["type"] == "extra_forbidden":
        return f"{where} is an unknown key; leave it out."
    if first["type"] == "missing":
        return f"{where} is missing; add it."
    rule = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    value = "" if first["type"] == "value_error" else f"; got {first['input']!r}"
    return f"{where}{' ' if rule.startswith('must') else ': '}{rule}{value}."


def _datasets(config: _Config, folder: Path) -> dict[_Key, _Data]:
    """Return the data sets of a configuration, and those of benchmarks that it does not name itself."""
    streams = isinstance(config, _StreamConfig)
    entries = list(config.datasets)
    # Data sets of benchmarks are named by these, unless the configuration says where they lie.
    if isinstance(config, _StreamConfig):
        recipes = [RECIPES[one.recipe] for one in config.streams if one.recipe is not None]
        missing = {name: one.whole for one in recipes for name in one.datasets}
        named = {entry.name for entry in entries}
        entries += [_Dataset(name=name, whole=whole) for name, whole in missing.items() if name not in named]
    sources: dict[_Key, _Data] = {}
    for place, entry in enumerate(entries):
        where, key = f"datasets[{place}]", (entry.name, entry.encoder)
        if key in sources:
            raise ParameterError(f"{where} names {entry.name!r} with encoder {entry.encoder!r} again; leave one out.")
        for name in ("groups", "persons", "unit", "classes") if streams else ():
            if name in entry.model_fields_set:
                raise ParameterError(f"{where}.{name} is for single fits; streams protect records, so leave it out.")
        # What a data set says of itself goes before what holds for all.
        spec, pools = entry.spec(folder, config.source)
        ratios = config.ir if entry.ir is None else entry.ir
        sources[key] = _Data(spec, pools, ratios, entry.protected(), entry.merged())
    return sources


def _joined(names: list[str], where: str, sources: dict[_Key, _Data], ratios: list[float | str]) -> _Key:
    """Return the key of the data set that a stream is of; several are joined to one first."""
    by_name = {name: one.spec for (name, _), one in sources.items()}
    for name in names:
        if name not in by_name:
            raise ParameterError(f"{where} must be one of {', '.join(by_name) or 'datasets'}; got {name!r}.")
    parts = tuple(by_name[name] for name in names)
    if len(parts) == 1:
        return parts[0].name, parts[0].encoder
    key = " + ".join(names), " + ".join(dict.fromkeys(part.encoder for part in parts))
    sources[key] = _Data(DatasetSpec(*key, parts=parts), [], ratios, [(None, RECORD)], [None])
    return key


def _choices(config: _Config, streams: bool) -> Iterator[_Choice]:
    """Expand lists of values into all combinations; a method may have budgets and seeds of its own."""
    shared = _every(config.budgets, "budgets")
    for place, entry in enumerate(config.methods):
        where = f"methods[{place}]"
        entry.check(where, streams)
        budgets = shared if entry.budgets is None else _every(entry.budgets, f"{where}.budgets")
        seeds = config.seeds if entry.seeds is None else entry.seeds
        axes = entry.__pydantic_extra__
        for values in itertools.product(*axes.values()):
            parameters = dict(zip(axes, values, strict=True))
            for start, in_all in itertools.product(entry.starts, entry.in_all or [False]):
                yield _Choice(where, entry.method, parameters, entry.tune, budgets, seeds, start, in_all)


def _cells(choice: _Choice, data: _Data, **place: Any) -> Iterator[Cell]:
    """Yield the cells of a method at one place of the grid: each budget, pool and way of tuning."""
    method, spec = ALL_METHODS[choice.name], data.spec
    if method.needs_public(choice.parameters) and not data.pools:
        raise ParameterError(
            f"{choice.where}: {choice.name} needs public rows, and data set {spec.name!r} names none; add public."
        )
    if method.private and not choice.budgets:
        raise ParameterError(f"budgets must hold at least one budget; {choice.name} spends one.")
    # References without privacy have no budget, and methods without public rows no pool.
    budgets: list[dict[str, float] | None] = [*choice.budgets] if method.private else [None]
    pools = [*data.pools] if data.pools and method.uses_public(choice.parameters) else [None]
    for budget, pool, trials in itertools.product(budgets, pools, dict.fromkeys((0, choice.trials))):
        if budget is not None and tuple(budget) == ("epsilon",) and not method.pure:
            raise ParameterError(
                f"budgets: {choice.where} is {choice.name}, which cannot spend pure DP (epsilon {budget['epsilon']:g} "
                "without delta); give delta, mu, e or rho."
            )
        if budget == {"mu": 0} and (choice.examples is None or not choice.examples.used):
            raise ParameterError(f"budgets: {choice.where} has no examples, and mu = 0 is for these alone.")
        # Where nothing is searched, defaults that differ from the class's own are part of the key.
        yield Cell(
            method=choice.name,
            parameters=choice.parameters if trials else {**method.defaults, **choice.parameters},
            dataset=spec.name,
            encoder=spec.encoder,
            pool=pool,
            budget=budget,
            trials=trials,
            examples=choice.examples,
            in_all=choice.in_all,
            **place,
        )
