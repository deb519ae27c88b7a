"""The two files that people write: an institution's, and a coordinator's. Paths in a file start at its folder."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from dppl._utils import validate
from dppl.errors import InputError, ParameterError
from dppl.federation.flower import Superlink, public_key, serve
from dppl.federation.party import Party
from dppl.io import read_classes, read_ids, read_table
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.privacy import ApproxDP, GaussianDP, Ledger
from dppl.methods.model_file import load

Kind = TypeVar("Kind")
_TYPES = {
    "str": str,
    "int": int,
    "float": float,
    "Path": Path,
    "tuple": tuple,
    "dict": dict,
}


@dataclass(frozen=True, kw_only=True)
class PartyFile:
    """An institution, as its owner describes it."""

    name: str
    table: Path
    classes: Path
    ledger: str  # a file, or the URL of a database
    dataset: str
    state: Path
    at_most: int
    superlink: str
    root_certificates: Path
    key: Path
    x: str = "x"
    y: str = "y"
    labels: Path | None = None
    groups: str | None = None
    separator: str | None = None
    public: tuple[Path, ...] = ()
    mu: float | None = None  # the most that one plan may cost; or epsilon and delta
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        # Half a limit would be none.
        if (self.epsilon is None) != (self.delta is None) or None not in (
            self.mu,
            self.epsilon,
        ):
            raise ParameterError(
                "must stand alone, or else epsilon and delta both.", parameter="mu"
            )

    def open(self) -> Party:
        """Open the institution; nothing private but the shape of its table is read before a plan is paid."""
        limit: Any = None if self.mu is None else GaussianDP(self.mu)
        if self.epsilon is not None and self.delta is not None:
            limit = ApproxDP(self.epsilon, self.delta)
        table = read_table(self.table, x=self.x, y=self.y, labels=self.labels)
        if table.y is None:
            raise InputError(
                f"{self.table} has no labels; name their array or column with y, or a file with labels."
            )
        return Party(
            self.name,
            table,
            table.y,
            classes=read_classes(self.classes, several=self.separator is not None),
            ledger=Ledger(self.ledger, self.dataset),
            state=self.state,
            at_most=self.at_most,
            groups=None if self.groups is None else read_ids(self.table, self.groups),
            limit=limit,
            public=[
                load(path) if path.suffix == ".safetensors" else read_table(path)
                for path in self.public
            ],
            several=None if self.separator is None else MultiLabel(self.separator),
        )

    def serve(self, party: Party, **how: Any) -> None:
        """Answer messages from the SuperLink."""
        serve(
            party,
            superlink=self.superlink,
            root_certificates=self.root_certificates,
            key=self.key,
            **how,
        )


@dataclass(frozen=True, kw_only=True)
class FederationFile:
    """Institutions, as a coordinator knows them: each by its name and the public key of its node."""

    superlink: str
    root_certificates: Path
    secret: Path
    parties: dict[str, str]
    timeout: float = 600.0
    missing: str = "stop"
    folder: Path = field(default=Path(), metadata={"hidden": True})

    def way(self) -> Superlink:
        """Return the way to them."""
        keys = {
            name: public_key(self.folder / path) for name, path in self.parties.items()
        }
        where: dict[str, Any] = {
            "root_certificates": self.root_certificates,
            "secret": self.secret,
        }
        return Superlink(self.superlink, keys, timeout=self.timeout, **where)


def read(path: Path, kind: type[Kind]) -> Kind:
    """Read a file of settings; an error names what is unknown, missing or of another type."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except OSError:
        raise InputError(f"there is no file {path}.") from None
    except ValueError as error:
        raise InputError(f"{path} is no TOML: {error}.") from None
    known = {one.name: one for one in fields(kind) if "hidden" not in one.metadata}  # type: ignore[arg-type]
    for name in given.keys() - known.keys():
        meant = validate.closest(name, known)
        raise ParameterError(
            f"of {path} is unknown." + (f" Is {meant} meant?" if meant else ""),
            parameter=name,
        )
    missing = [
        name
        for name, one in known.items()
        if one.default is MISSING and name not in given
    ]
    if missing:
        raise InputError(f"{path} must say {', '.join(missing)}.")
    values: dict[str, Any] = {"folder": path.parent} if kind is FederationFile else {}
    for name, value in given.items():
        text = str(known[name].type)
        if "Path" in text and isinstance(value, list):
            value = tuple(path.parent / one for one in value)
        elif "Path" in text and isinstance(value, str):
            value = path.parent / value
        elif text.startswith("float") and type(value) is int:
            value = float(value)
        if not isinstance(value, _TYPES[text.split("[")[0].split(" ")[0]]):
            raise ParameterError(
                f"of {path} has another type; got {value!r}.", parameter=name
            )
        values[name] = value
    if kind is PartyFile and "://" not in values["ledger"]:
        values["ledger"] = str(path.parent / values["ledger"])
    return kind(**values)
