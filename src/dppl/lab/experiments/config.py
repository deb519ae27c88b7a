"""Configurations of experiments: a YAML file becomes a list of cells, or an error that names the key."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from dppl import _validate
from dppl._optional import optional
from dppl.errors import DpplError, InputError, ParameterError
from dppl.kernel.privacy import ZCDP, Budget
from dppl.kernel.privacy.budgets import budget_from_dict
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

__all__ = ["SCHEMA", "Cell", "Experiment", "built_in_names", "load_experiment"]

# Raised when cells or results change their meaning; results of different schemas are never mixed.
SCHEMA = 1
NATURAL = "natural"
# So little noise that it is lost in the rounding of rows; what is clipped and rounded stays so.
NON_PRIVATE, NO_NOISE = "non-private", 1e6
# The encoder of a data set for which none is given.
NOT_NAMED = "not named"

_KEYS = ("about", "source", "data", "datasets", "methods", "budgets", "ir", "seeds")
_STREAM_KEYS = ("of", "kind", "tasks", "elsewhere", "told")
_RECIPE_KEYS = ("recipe", "told")
_DATASET_KEYS = ("name", "encoder", "folder", "files", "whole", "public", "ir", "classes", "groups", "persons", "unit")
_PERSONS_KEYS = ("number", "largest", "share", "offset")
# What classes are put together to, and the least number that leaves two of them.
_LEAST_CLASSES = {"alone": 1, "groups": 2}
# Whom a cell protects.
RECORD, PERSON = "record", "person"
_POOL_KEYS = ("name", "file", "lines", "without", "first", "rows")
_BUDGET_KEYS = ("mu", "e", "rho", "epsilon", "delta")
# Built-in configurations of streams: one of this name, and others that begin with it.
_STREAMS, _STREAMS_PREFIX = "continual", "continual-"
_METHOD_KEYS = ("method", "tune", "budgets", "seeds", "examples", "wrong", "left_out", "in_all")


@dataclass(frozen=True, slots=True)
class Cell:
    """One fit of an experiment. Its key is a hash of these fields, so equal cells are computed once."""

    method: str
    parameters: dict[str, Any]
    dataset: str
    encoder: str
    pool: Pool | None  # public rows; None where the method uses none
    budget: dict[str, float] | None  # parameters of the budget; None for a reference without privacy
    ir: float | str  # imbalance ratio; "natural" leaves class sizes as they are
    seed: int  # draws the subset, which is the same for every method, and a subset of the public rows
    trials: int = 0  # hyper-parameter settings tried on private data; 0 for none
    examples: Examples | None = None  # public examples of the classes
    stream: Stream | None = None  # cuts the rows into tasks; None learns them at once
    # whether all tasks of a stream together, whose costs add up, may spend the budget, and not each of them
    in_all: bool = False
    persons: Persons | None = None  # whose records these are; None where nothing is known of that
    # Whom the promise is for. References without privacy have cells of both, beside what is compared with them.
    unit: str = RECORD
    classes: Merged | None = None  # how the classes of the data set are put together to few

    @property
    def key(self) -> str:
        """Hash of what is computed: neither paths nor versions enter it."""
        text = json.dumps([SCHEMA, self.to_dict()], sort_keys=True, separators=(",", ":"), allow_nan=False)
        return sha256(text.encode()).hexdigest()[:32]

    @property
    def noise_seed(self) -> int:
        """Seed of the noise: another one for every cell."""
        return int(self.key[:8], 16)

    @property
    def non_private(self) -> bool:
        """Whether the budget is one that nobody would call privacy."""
        return self.budget == {"mu": NO_NOISE}

    @property
    def tuned(self) -> bool:
        """Whether hyper-parameters are searched on private data."""
        return self.trials > 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        fields = asdict(self)
        if self.pool is not None and not self.pool.without:
            del fields["pool"]["without"]  # so that the keys of measured cells stay
        for name in ("examples", "stream", "in_all", "persons", "classes"):
            if not fields[name]:
                del fields[name]  # likewise
        if self.persons is None:
            del fields["unit"]
        return fields

    def make_budget(self) -> Budget | None:
        """Return the budget as an object."""
        return None if self.budget is None else budget_from_dict(self.budget)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A checked configuration."""

    name: str  # what its results file is called by default
    config: str  # path or name by which it was loaded, as given
    data: str | None  # folder that was given in place of the configuration's, as given
    about: str
    datasets: dict[tuple[str, str], DatasetSpec]  # by name and encoder
    cells: list[Cell]  # one seed after the other, so that an interrupted run has compared all methods


def built_in_names(*, streams: bool = False) -> list[str]:
    """Return the names of the configurations that come with dppl, of streams of tasks or of single fits."""
    folder = resources.files("dppl.lab.experiments") / "configs"
    files = sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return [name.removeprefix(_STREAMS_PREFIX) for name in files if name.startswith(_STREAMS) == streams]


def load_experiment(config: str, data: Path | None = None, *, streams: bool = False) -> Experiment:
    """Read and check a configuration: a YAML file by its path, or a built-in one by its name.

    `data` takes the place of the configuration's own folder.
    """
    name, text = _text(config, streams)
    yaml = optional("yaml", "PyYAML", "lab")
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ParameterError(f"{config} must be YAML; {' '.join(str(error).split())}.") from None
    try:
        about, datasets, cells = _grid(content, data, streams)
    except ParameterError as error:
        raise ParameterError(f"{config}: {error}") from None
    except InputError as error:
        raise InputError(f"{config}: {error}") from None
    return Experiment(name, config, None if data is None else str(data), about, datasets, cells)


def _text(config: str, streams: bool) -> tuple[str, str]:
    built_in = built_in_names(streams=streams)
    if config in built_in:
        name = _STREAMS_PREFIX + config if streams and config != _STREAMS else config
        return name, (resources.files("dppl.lab.experiments") / "configs" / f"{name}.yaml").read_text("utf-8")
    path = Path(config)
    if not path.is_file():
        raise ParameterError(
            f"CONFIG must be a YAML file or one of {', '.join(built_in)}; got {config!r}, and there is no such file."
        )
    try:
        return path.stem, path.read_text("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{config} must be UTF-8 text.") from None


def _grid(content: Any, data: Path | None, streams: bool) -> tuple[str, dict[tuple[str, str], DatasetSpec], list[Cell]]:
    keys, required = ((*_KEYS, "streams"), "streams") if streams else (_KEYS, "datasets")
    top = _mapping(content, "the configuration", keys, required=(required, "methods"))
    folder = data if data is not None else Path(_string(top.get("data", "."), "data"))
    source = _string(top.get("source", ""), "source")
    datasets: dict[tuple[str, str], DatasetSpec] = {}
    pools: dict[tuple[str, str], list[Pool]] = {}
    ratios: dict[tuple[str, str], list[float | str]] = {}
    protected: dict[tuple[str, str], list[tuple[Persons | None, str]]] = {}
    merged: dict[tuple[str, str], list[Merged | None]] = {}
    usual = top.get("ir", [NATURAL])
    recipes = _data_of_recipes(top["streams"], top.get("datasets", [])) if streams else []
    for where, entry in [*_items(top.get("datasets", []), "datasets"), *recipes]:
        spec, its_pools = _dataset(entry, where, folder, source)
        if (spec.name, spec.encoder) in datasets:
            raise ParameterError(f"{where} names {spec.name!r} with encoder {spec.encoder!r} again; leave one out.")
        datasets[spec.name, spec.encoder], pools[spec.name, spec.encoder] = spec, its_pools
        own = isinstance(entry, Mapping) and "ir" in entry
        ratios[spec.name, spec.encoder] = _ratios(entry["ir"], f"{where}.ir") if own else _ratios(usual, "ir")
        protected[spec.name, spec.encoder] = list(_protected(entry, where, streams))
        merged[spec.name, spec.encoder] = list(_merged(entry, where, streams))
    tasks: list[tuple[tuple[str, str], Stream | None]] = [(key, None) for key in datasets]
    if streams:
        tasks = [
            (_of(names, where, datasets, pools, ratios, _ratios(usual, "ir")), stream)
            for where, entry in _items(top["streams"], "streams")
            for names, stream in _streams(entry, where)
        ]
        datasets = {key: datasets[key] for key, _ in tasks}
    budgets = _budgets(top.get("budgets", []), "budgets")
    seeds = _seeds(top.get("seeds", 3), "seeds")
    methods = [
        choice
        for where, entry in _items(top["methods"], "methods")
        for choice in _methods(entry, where, budgets, seeds, streams)
    ]
    for choice in methods:
        if choice.from_names and not any(NAMES in spec.files for spec in datasets.values()):
            raise ParameterError(f"{choice.where}.examples are names, and no data set has files: names.")
        if not any(choice.protects(unit) for several in protected.values() for _, unit in several):
            raise ParameterError(
                f"{choice.where}: {choice.name} is under replace-one, which promises nothing to a person, and no data "
                f"set has unit: {RECORD}."
            )
    cells = [
        cell
        for seed in dict.fromkeys(seed for choice in methods for seed in choice.seeds)
        for key, stream in tasks
        for classes in merged.get(key, [None])
        for ratio in ratios[key]
        for choice in methods
        if seed in choice.seeds and not (choice.from_names and (classes or NAMES not in datasets[key].files))
        for persons, unit in protected.get(key, [(None, RECORD)])
        if choice.protects(unit)
        for cell in _cells(choice, datasets[key], pools[key], ratio, seed, stream, persons, unit, classes)
    ]
    for spec in datasets.values():
        spec.check()
    unique = {cell.key: cell for cell in cells}
    return _string(top.get("about", ""), "about"), datasets, list(unique.values())


@dataclass(frozen=True, slots=True)
class _MethodSpec:
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


def _cells(
    choice: _MethodSpec,
    spec: DatasetSpec,
    pools: list[Pool],
    ratio: float | str,
    seed: int,
    stream: Stream | None,
    persons: Persons | None,
    unit: str,
    classes: Merged | None,
) -> Iterator[Cell]:
    method = ALL_METHODS[choice.name]
    if method.needs_public(choice.parameters) and not pools:
        raise ParameterError(
            f"{choice.where}: {choice.name} needs public rows, and data set {spec.name!r} names none; add public."
        )
    if method.private and not choice.budgets:
        raise ParameterError(f"budgets must hold at least one budget; {choice.name} spends one.")
    spent: list[dict[str, float] | None] = [*choice.budgets] if method.private else [None]
    read: list[Pool | None] = [*pools] if pools and method.uses_public(choice.parameters) else [None]
    for budget in spent:
        if budget is not None and tuple(budget) == ("epsilon",) and not method.pure:
            raise ParameterError(
                f"budgets: {choice.where} is {choice.name}, which cannot spend pure DP (epsilon {budget['epsilon']:g} "
                "without delta); give delta, mu, e or rho."
            )
        if budget == {"mu": 0} and (choice.examples is None or not choice.examples.used):
            raise ParameterError(f"budgets: {choice.where} has no examples, and mu = 0 is for these alone.")
        for pool in read:
            for trials in dict.fromkeys((0, choice.trials)):
                parameters = choice.parameters if trials else {**method.defaults, **choice.parameters}
                place = spec.name, spec.encoder, pool, budget, ratio, seed
                what = choice.examples, stream, choice.in_all, persons, unit, classes
                yield Cell(choice.name, parameters, *place, trials, *what)


def _data_of_recipes(streams: Any, datasets: Any) -> list[tuple[str, Any]]:
    """Return entries for data sets of recipes that the configuration does not name itself."""
    named = {entry.get("name") for _, entry in _items(datasets, "datasets") if isinstance(entry, Mapping)}
    named |= {entry for entry in datasets if isinstance(entry, str)}
    used = [entry.get("recipe") if isinstance(entry, Mapping) else entry for _, entry in _items(streams, "streams")]
    recipes = dict.fromkeys(name for name in used if isinstance(name, str) and name in RECIPES)
    missing = {one: RECIPES[name].whole for name in recipes for one in RECIPES[name].datasets if one not in named}
    return [(name, {"name": name, "whole": whole}) for name, whole in missing.items()]


def _streams(entry: Any, where: str) -> Iterator[tuple[list[str], Stream]]:
    """Yield the streams of an entry, with the names of the data sets that each joins."""
    if isinstance(entry, str):
        entry = {"recipe": entry}
    if isinstance(entry, Mapping) and "recipe" in entry:
        fields = _mapping(entry, where, _RECIPE_KEYS)
        if fields["recipe"] not in RECIPES:
            raise ParameterError(f"{where}.recipe must be one of {', '.join(RECIPES)}; got {fields['recipe']!r}.")
        recipe = RECIPES[fields["recipe"]]
        for told in _values(fields.get("told", False)):
            stream = Stream(recipe.kind, recipe.n_tasks, None, _flag(told, f"{where}.told"), fields["recipe"])
            yield list(recipe.datasets), stream
        return
    fields = _mapping(entry, where, _STREAM_KEYS, required=("of", "kind"))
    names = [_string(name, f"{where}.of") for name in _values(fields["of"])]
    kind = fields["kind"]
    if kind not in KINDS:
        raise ParameterError(f"{where}.kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    if (kind == DATA_SETS) != (len(names) > 1):
        raise ParameterError(f"{where}: {DATA_SETS} takes a list of several data sets, and other kinds take one.")
    if (kind == DATA_SETS) == ("tasks" in fields):
        raise ParameterError(f"{where}: each kind but {DATA_SETS} needs tasks, and {DATA_SETS} has one a data set.")
    if "elsewhere" in fields and kind != "blurry":
        raise ParameterError(f"{where}.elsewhere is for blurry streams; leave it out.")
    elsewhere = _number(fields.get("elsewhere", 0.1), f"{where}.elsewhere") if kind == "blurry" else None
    if elsewhere is not None and not 0 <= elsewhere <= 1:
        raise ParameterError(f"{where}.elsewhere must be from 0 to 1; got {elsewhere!r}.")
    for n_tasks, told in itertools.product(
        _values(fields.get("tasks", len(names))), _values(fields.get("told", False))
    ):
        if _flag(told, f"{where}.told") and kind not in APART:
            raise ParameterError(f"{where}.told is for {' and '.join(APART)}, whose tasks have classes of their own.")
        yield names, Stream(kind, _count(n_tasks, f"{where}.tasks"), elsewhere, told)


def _of(
    names: list[str],
    where: str,
    datasets: dict[tuple[str, str], DatasetSpec],
    pools: dict[tuple[str, str], list[Pool]],
    ratios: dict[tuple[str, str], list[float | str]],
    usual: list[float | str],
) -> tuple[str, str]:
    """Return the key of the data set that a stream is of; several are joined to one first."""
    by_name = {name: spec for (name, _), spec in datasets.items()}
    for name in names:
        if name not in by_name:
            raise ParameterError(f"{where}.of must be one of {', '.join(by_name) or 'datasets'}; got {name!r}.")
    parts = tuple(by_name[name] for name in names)
    if len(parts) == 1:
        return parts[0].name, parts[0].encoder
    key = " + ".join(names), " + ".join(dict.fromkeys(part.encoder for part in parts))
    datasets[key], pools[key], ratios[key] = DatasetSpec(*key, parts=parts), [], usual
    return key


def _methods(
    entry: Any, where: str, budgets: list[dict[str, float]], seeds: list[int], streams: bool
) -> Iterator[_MethodSpec]:
    """Expand lists of values into all combinations; an entry may have budgets and seeds of its own."""
    if isinstance(entry, str):
        entry = {"method": entry}
    fields = _mapping(entry, where, None, required=("method",))
    name = _string(fields["method"], f"{where}.method")
    trials = _count(fields.get("tune", 0), f"{where}.tune", least=0)
    if "budgets" in fields:
        budgets = _budgets(fields["budgets"], f"{where}.budgets")
    if "seeds" in fields:
        seeds = _seeds(fields["seeds"], f"{where}.seeds")
    axes = {key: _values(value) for key, value in fields.items() if key not in _METHOD_KEYS}
    for key, values in axes.items():
        if not all(isinstance(value, str | int | float | list | None) for value in values):
            raise ParameterError(f"{where}.{key} must hold numbers, texts, lists or null; got {fields[key]!r}.")
    method = checked_method(name, axes, where, STREAM_METHODS if streams else METHODS)
    if trials and not method.space:
        raise ParameterError(f"{where}.tune: {name} has no hyper-parameters to search; leave tune out.")
    if trials and not method.private:
        raise ParameterError(f"{where}.tune: {name} is a reference without privacy; leave tune out.")
    for key, right in (("left_out", not streams), ("in_all", streams)):
        if key in fields and not right:
            raise ParameterError(f"{where}.{key} is for {'single fits' if streams else 'streams'}; leave it out.")
    totals = [_flag(value, f"{where}.in_all") for value in _values(fields.get("in_all", False))]
    starts = list(_examples(fields, where, name))
    for combination in itertools.product(*axes.values()):
        parameters = dict(zip(axes, combination, strict=True))
        for start, in_all in itertools.product(starts, totals):
            yield _MethodSpec(where, name, parameters, trials, budgets, seeds, start, in_all)


def _examples(fields: Mapping[str, Any], where: str, name: str) -> Iterator[Examples | None]:
    """Read what a method starts from: examples, right or wrong ones, or zero, maybe without the examples' rows."""
    method = ALL_METHODS[name]
    if "left_out" in fields:
        if "examples" in fields or "wrong" in fields:
            raise ParameterError(f"{where}.left_out is for a start without examples; leave examples and wrong out.")
        for value in _values(fields["left_out"]):
            yield Examples(_count(value, f"{where}.left_out"), used=False)
    elif "examples" not in fields:
        if "wrong" in fields:
            raise ParameterError(f"{where}.wrong is for examples; add examples.")
        if method.needs_examples:
            raise ParameterError(f"{where}: {name} starts from examples; add examples.")
        yield None
    elif not method.takes_examples:
        raise ParameterError(f"{where}.examples: {name} does not start from examples; leave examples out.")
    else:
        for source, wrong in itertools.product(_values(fields["examples"]), _values(fields.get("wrong"))):
            if wrong is not None and wrong not in WRONG:
                raise ParameterError(f"{where}.wrong must be one of {', '.join(WRONG)}; got {wrong!r}.")
            if isinstance(source, str) and source != NAMES:
                raise ParameterError(f"{where}.examples must be {NAMES!r} or a number of rows a class; got {source!r}.")
            yield Examples(source if source == NAMES else _count(source, f"{where}.examples"), wrong)


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) and value else [value]


def _dataset(entry: Any, where: str, data: Path, source: str) -> tuple[DatasetSpec, list[Pool]]:
    if entry == SAMPLE:
        return DatasetSpec(SAMPLE, "digits-diffusion-map-32"), [Pool("digits")]
    if isinstance(entry, str):
        entry = {"name": entry}
    fields = _mapping(entry, where, _DATASET_KEYS, required=("name",))
    name = _string(fields["name"], f"{where}.name")
    folder = data / _string(fields.get("folder", name), f"{where}.folder")
    parts = WHOLE if _flag(fields.get("whole", False), f"{where}.whole") else PARTS
    given = {part: f"{part}.npy" for part in parts} | _mapping(
        fields.get("files", {}), f"{where}.files", (*parts, NAMES)
    )
    files = {part: folder / _string(file, f"{where}.files.{part}") for part, file in given.items()}
    if "groups" in fields:
        ids = _string(fields["groups"], f"{where}.groups")
        own = {IDS: f"{ids}.npy"} if parts == WHOLE else {name: f"{name.replace(IDS, ids)}.npy" for name in PARTS_IDS}
        files |= {part: folder / file for part, file in own.items()}
    pools: list[Pool] = []
    paths: dict[str, Path] = {}
    lines: dict[str, Path] = {}
    for place, pool in _items(fields.get("public", []), f"{where}.public"):
        its = _mapping(pool, place, _POOL_KEYS, required=("name", "file"))
        pool_name = _string(its["name"], f"{place}.name")
        paths[pool_name] = data / _string(its["file"], f"{place}.file")
        without: tuple[str, ...] = ()
        if "lines" in its or "without" in its:
            its = _mapping(its, place, _POOL_KEYS, required=("lines", "without"))
            lines[pool_name] = data / _string(its["lines"], f"{place}.lines")
            without = tuple(_string(text, name) for name, text in _items(its["without"], f"{place}.without"))
        first = None if its.get("first") is None else _count(its["first"], f"{place}.first")
        sizes = [None if rows is None else _count(rows, f"{place}.rows") for rows in _values(its.get("rows"))]
        pools += [Pool(pool_name, first, rows, without) for rows in sizes]
    encoder = _string(fields.get("encoder", NOT_NAMED), f"{where}.encoder")
    return DatasetSpec(name, encoder, files, paths, lines, source), pools


def _protected(entry: Any, where: str, streams: bool) -> Iterator[tuple[Persons | None, str]]:
    """Yield whose records the cells of a data set learn from, and whom they protect."""
    fields = entry if isinstance(entry, Mapping) else {}
    named = [key for key in ("groups", "persons", "unit") if key in fields]
    if streams and named:
        raise ParameterError(f"{where}.{named[0]} is for single fits; streams protect records, so leave it out.")
    if "groups" in fields and "persons" in fields:
        raise ParameterError(f"{where} must not have both groups, which names ids, and persons, which makes some up.")
    if named == ["unit"]:
        raise ParameterError(f"{where}.unit is for data sets with groups or persons; leave it out.")
    several: list[Persons | None] = [None]
    if "groups" in fields:
        several = [Persons(_string(fields["groups"], f"{where}.groups"))]
    if "persons" in fields:
        several = list(_made_up(fields["persons"], f"{where}.persons"))
    units = _values(fields.get("unit", PERSON if named else RECORD))
    for persons, unit in itertools.product(several, units):
        if unit not in (RECORD, PERSON):
            raise ParameterError(f"{where}.unit must be {RECORD} or {PERSON}; got {unit!r}.")
        yield persons, unit


def _merged(entry: Any, where: str, streams: bool) -> Iterator[Merged | None]:
    """Yield the tasks of few classes that are made of a data set; None is the data set as it is."""
    if not isinstance(entry, Mapping) or "classes" not in entry:
        yield None
        return
    if streams or "groups" in entry or "persons" in entry:
        raise ParameterError(f"{where}.classes is for single fits, without groups or persons; leave it out.")
    fields = _mapping(entry["classes"], f"{where}.classes", _LEAST_CLASSES)
    for key, values in fields.items():
        for value in _values(values):
            yield Merged(**{key: _count(value, f"{where}.classes.{key}", _LEAST_CLASSES[key])})


def _made_up(entry: Any, where: str) -> Iterator[Persons]:
    """Read the parameters of made-up persons; a list means each of its values."""
    fields = _mapping(entry, where, _PERSONS_KEYS, required=("number",))
    readers: dict[str, Callable[[Any, str], float]] = {
        "number": _count,
        "largest": _count,
        "share": _number,
        "offset": _number,
    }
    axes: list[list[Any]] = [
        [readers[key](one, f"{where}.{key}") for one in _values(value)] for key, value in fields.items()
    ]
    for values in itertools.product(*axes):
        persons = Persons(**dict(zip(fields, values, strict=True)))
        if not 0 < persons.share <= 1:
            raise ParameterError(f"{where}.share must be above 0 and at most 1; got {persons.share!r}.")
        if persons.offset < 0:
            raise ParameterError(f"{where}.offset must be at least 0; got {persons.offset!r}.")
        yield persons


def _budgets(entry: Any, where: str) -> list[dict[str, float]]:
    entries = entry if isinstance(entry, list) else [entry]
    return [budget for place, one in _items(entries, where) for budget in _one_notion(one, place)]


def _one_notion(entry: Any, where: str) -> Iterator[dict[str, float]]:
    if entry == NON_PRIVATE:
        yield {"mu": NO_NOISE}
        return
    fields = _mapping(entry, where, _BUDGET_KEYS)
    named = [key for key in ("mu", "e", "rho", "epsilon") if key in fields]
    if len(named) != 1 or ("delta" in fields and named != ["epsilon"]):
        raise ParameterError(
            f"{where} must name one of mu (Gaussian DP), e (sqrt(2 rho) in zCDP, as in the DPPL papers), rho, or "
            f"epsilon with or without delta; got {', '.join(fields) or 'nothing'}."
        )
    (kind,) = named
    for place, value in _items(_values(fields[kind]), f"{where}.{kind}"):
        number = _number(value, place)
        try:
            if kind == "e":
                _validate.positive(e=number)
                yield ZCDP.from_paper_epsilon(number).to_dict()
            elif "delta" in fields:
                delta = _number(fields["delta"], f"{where}.delta")
                yield budget_from_dict({"epsilon": number, "delta": delta}).to_dict()
            else:
                yield budget_from_dict({kind: number}).to_dict()
        except DpplError as error:
            raise ParameterError(f"{place}: {error}") from None


def _ratios(entry: Any, where: str) -> list[float | str]:
    return [_ratio(one, place) for place, one in _items(entry, where)]


def _ratio(entry: Any, where: str) -> float | str:
    if entry == NATURAL:
        return NATURAL
    if isinstance(entry, str) or _number(entry, where) < 1:
        raise ParameterError(f"{where} must be {NATURAL!r} or a number of at least 1; got {entry!r}.")
    return _number(entry, where)


def _seeds(entry: Any, where: str) -> list[int]:
    if isinstance(entry, list):
        return [_count(seed, place, least=0) for place, seed in _items(entry, where)]
    return list(range(_count(entry, where)))


def _mapping(value: Any, where: str, keys: Collection[str] | None, required: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ParameterError(f"{where} must be a mapping of names to values; got {value!r}.")
    for key in value:
        if keys is not None and key not in keys:
            raise ParameterError(f"{where} has an unknown key {key!r}; allowed are {', '.join(keys)}.")
    for key in required:
        if key not in value:
            raise ParameterError(f"{where} must have the key {key!r}; it has {', '.join(value) or 'none'}.")
    return dict(value)


def _items(value: Any, where: str) -> list[tuple[str, Any]]:
    if not isinstance(value, list):
        raise ParameterError(f"{where} must be a list; got {value!r}.")
    return [(f"{where}[{place}]", entry) for place, entry in enumerate(value)]


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ParameterError(f"{where} must be a text; got {value!r}.")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ParameterError(f"{where} must be true or false; got {value!r}.")
    return value


def _count(value: Any, where: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(f"{where} must be an integer of at least {least}; got {value!r}.")
    return value


def _number(value: Any, where: str) -> float:
    """Read a number; YAML 1.1 takes 1e-5, without a dot, for a text."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ParameterError(f"{where} must be a finite number; got {value!r}.")
    return number
