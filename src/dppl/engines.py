"""Where work on files is done: in this process, or by tasks of Ray on several machines.

An engine applies one pure function to each of many small descriptions of files. It
promises two things: every item yields exactly one value, whatever died on the way, and
values come with the place of their item, so that whoever adds them adds each once.
Functions and items that are handed to `RayEngine` travel over the network and may come
to lie on the disks of the cluster. So they hold paths, parameters and what was
released, and never a private row or label; a task reads those itself. Only which
records are of one person travels. What comes back is as secret as what it is made of:
sums and scores without noise, or predictions; and so are the bins in which a selection
has tasks look again. Tasks that embed return nothing: they write shards of the table.

Nothing else that a task meets leaves its machine. An exception becomes a
few words, without the traceback and the text of any library, and warnings are silent
there.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Protocol, TypeVar
from urllib.parse import parse_qsl

from dppl._utils import validate
from dppl._utils.optional import optional
from dppl._version import __version__
from dppl.errors import DpplError, EngineError, InputError, ParameterError

__all__ = ["Engine", "LocalEngine", "RayEngine", "engine_of"]

Item = TypeVar("Item")
Value = TypeVar("Value")

# Items of a task: enough to take longer than its start, and few to be done again.
_ITEMS_PER_TASK = 4
# What an address may say of each task, and its type.
_OF_A_TASK: dict[str, Callable[[str], Any]] = {"cores": int, "gpus": float}
# How often a task is started over after its process or machine died.
_RETRIES = 5


class Engine(Protocol):
    """What applies a function to items."""

    @property
    def assumption(self) -> str | None:
        """What a guarantee rests on if private records were read there."""

    def check(self) -> None:
        """Raise what would stop all work, while nothing is charged or written."""

    def each(
        self, function: Callable[[Item], Value], items: Sequence[Item]
    ) -> Iterator[tuple[int, Value]]:
        """Yield the place and the value of each item once, in any order.

        `function` must be pure, or write the same files whenever it is called: a task
        may run again, and on another machine.
        """


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """In this process, one item after the other."""

    assumption: ClassVar[None] = None  # no other process reads a record

    def check(self) -> None:
        """Do nothing."""

    def each(
        self, function: Callable[[Item], Value], items: Sequence[Item]
    ) -> Iterator[tuple[int, Value]]:
        """Yield the place and the value of each item once, in order."""
        yield from ((place, function(item)) for place, item in enumerate(items))


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Tasks of Ray (extra ``ray``), on this machine or on a cluster.

    A cluster that cannot be used is refused when it is first used; nothing is charged
    then.

    Every machine needs the same version of dppl, and the files under the same paths. If
    a process or machine dies, its tasks run again elsewhere; they are pure, so no bit
    depends on it.

    **Privacy.** Unit: as in the fit. Nothing is released here. Ray's object store holds
    what functions and items hold (paths, parameters, released weights, numbers of
    persons) and what tasks return, and may write both to the disks of the cluster: for
    a fit these are sums of private records without noise. The statement of the model
    says that the cluster is trusted with them. Not covered: who else can read the
    memory, the disks or the network of the cluster.
    """

    assumption: ClassVar[str] = "cluster"

    # ``"auto"`` on a machine of the cluster, or ``"ray://HOST:10001"``. None takes the
    # Ray that this process is connected to, or starts one on this machine alone.
    address: str | None = None
    # Processor cores that a task reserves. As many as a machine has let one process do
    # all of a fit there, with as many threads, and keep its rows from pass to pass.
    cores: int = 1
    # Graphics processors that a task reserves; below 1, tasks share one. Not measured.
    gpus: float = 0.0

    def __post_init__(self) -> None:
        validate.positive_integer(cores=self.cores)
        validate.not_negative(gpus=self.gpus)

    def check(self) -> None:
        """Run a task that does nothing, to see that the cluster works."""
        for _ in self.each(bool, (0,)):
            pass

    def each(
        self, function: Callable[[Item], Value], items: Sequence[Item]
    ) -> Iterator[tuple[int, Value]]:
        """Yield the place and the value of each item once, in the order in which tasks end."""
        ray = self._connected()
        with _in_our_words(ray):
            places = self._places(ray)
            task = ray.remote(
                max_retries=_RETRIES, num_cpus=self.cores, num_gpus=self.gpus
            )(_outcomes)
            shared = ray.put(function)
        # The item of a number goes to the same process in every pass, which has kept
        # what it read for the last one.
        waiting = [
            iter(range(first, len(items), len(places))) for first in range(len(places))
        ]
        running: dict[Any, tuple[int, list[int]]] = {}
        free = list(range(len(places)))
        # Where one fails, those that run end by themselves and nobody reads what they return: to cancel a task that is
        # about to end can end this process (https://github.com/ray-project/ray/pull/54798).
        while True:
            with _in_our_words(ray):
                for place in free:
                    if numbers := list(islice(waiting[place], _ITEMS_PER_TASK)):
                        few = [items[number] for number in numbers]
                        running[
                            task.options(**places[place]).remote(
                                __version__, shared, few
                            )
                        ] = place, numbers
                if not running:
                    return
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                outcomes = ray.get(done)
            place, numbers = running.pop(done)
            free = [place]
            for number, outcome in zip(numbers, outcomes, strict=True):
                if isinstance(outcome, DpplError):
                    raise outcome
                yield number, outcome
            del done, outcomes, outcome  # lets the store forget it

    def _places(self, ray: Any) -> list[dict[str, Any]]:
        """Return the options by which a task runs in a certain process, of as many as the machines have room for."""
        room = {}
        for node in ray.nodes():
            if node["Alive"]:
                has = node["Resources"].get
                room[node["NodeID"]] = int(has("CPU", 0)) // self.cores
                if self.gpus:
                    on_gpus = int(has("GPU", 0) / self.gpus)
                    room[node["NodeID"]] = min(room[node["NodeID"]], on_gpus)
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        processes = [
            # As long as the machine lives. Ray gives a process tasks of one environment
            # only.
            {
                "scheduling_strategy": affinity(machine, soft=True),
                "runtime_env": {"env_vars": {"DPPL_PROCESS": str(process)}},
            }
            for machine in sorted(room)
            for process in range(room[machine])
        ]
        if self.gpus and not processes:
            raise EngineError(
                f"no machine of the cluster has {self.cores} cores and {self.gpus:g} GPUs; ask for fewer."
            )
        return processes if len(processes) > 1 else [{}]

    def _connected(self) -> Any:
        """Return the module of Ray, connected."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray = optional("ray", "ray", "ray")
        if not ray.is_initialized():
            # No output of workers on this terminal, and no page that shows tasks.
            own: dict[str, Any]
            if self.address is None:
                own = {"include_dashboard": False}
            else:
                own = {"address": self.address}
            try:
                ray.init(log_to_driver=False, logging_level="ERROR", **own)
            except Exception as error:  # a node that starts too slowly raises just that
                kind = type(error).__name__
                what = f"Ray does not start on this machine ({kind}); see that it has memory and disk, and try again."
                if self.address is not None:
                    what = (
                        f"no cluster of Ray answers at {self.address!r} ({kind}); start one (docs/scale.md), or "
                        "correct the address. Without one Ray starts on this machine alone."
                    )
                raise EngineError(what) from None
        return ray


def engine_of(where: str) -> Engine:
    """Return the engine of a name: ``local``, ``ray`` on this machine, or an address; ``?gpus=`` is of its tasks."""
    if where == "local":
        return LocalEngine()
    address, _, asked = where.partition("?")
    if address not in ("ray", "auto") and ":" not in address:
        raise ParameterError(
            f"must be local, ray, or the address of a cluster, such as auto or ray://HOST:10001; got {where!r}.",
            parameter="engine",
        )
    given = dict(parse_qsl(asked, keep_blank_values=True))
    try:
        taken = {name: _OF_A_TASK[name](value) for name, value in given.items()}
    except (KeyError, ValueError):
        raise ParameterError(
            f"may say after ? how many cores and gpus a task takes, as in ray?cores=2&gpus=0.5; got {where!r}.",
            parameter="engine",
        ) from None
    return RayEngine(None if address == "ray" else address, **taken)


def _outcomes(
    version: str, function: Callable[[Any], Any], items: Sequence[Any]
) -> list[Any]:
    return [_outcome(version, function, item) for item in items]


def _outcome(version: str, function: Callable[[Any], Any], item: Any) -> Any:
    """Run in a task: return the value, or a new exception of dppl; whatever else is raised may quote a record."""
    if version != __version__:
        return EngineError(
            "the machines of a cluster must all have one version of dppl; they differ."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(item)
    except DpplError as error:
        # Its own words, which quote no record, and neither traceback nor cause.
        kind = next(
            kind
            for kind in type(error).__mro__
            if kind.__module__ == DpplError.__module__
        )
        return kind(
            *error.message, parameter=error.parameter, suggestion=error.suggestion
        )
    except OSError as error:
        why = type(error).__name__
        return InputError(
            f"a task cannot read its files ({why}); all machines need them at the same paths."
        )
    except Exception as error:
        return EngineError(f"a task stopped with {type(error).__name__}.")


@contextmanager
def _in_our_words(ray: Any) -> Iterator[None]:
    """Turn what Ray raises into one line: its own text may hold the traceback of a task."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise EngineError(
            f"Ray gave up ({type(error).__name__}); see that the cluster runs, that its machines have memory for a "
            "part and one version of dppl, and try again."
        ) from None
