"""Messages between a coordinator and institutions: JSON and tensors with a checksum, and no code.

A plan names the kernel's queries by class and public parameters. Each institution
computes sensitivities, noise and cost with its own kernel and trusts no number that it
receives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dppl._utils import tensorfile
from dppl._utils.fingerprint import function_of
from dppl._utils.metadata import LONGEST_NAME
from dppl.errors import DpplError, ErrorKind, ParameterError
from dppl.kernel import queries
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.kernel.measure import (
    Calibrated,
    Measurement,
    calibrated,
    check_declared,
    rows_of_a_person,
)
from dppl.kernel.privacy import Budget, Guarantee
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.kernel.privacy.guarantee import software_versions
from dppl.kernel.privacy.ledger import check_name
from dppl.kernel.privacy.terms import PublicInput, Statistic, Term, Unit
from dppl.kernel.queries import ADD_REMOVE
from dppl.kernel.records import private_data
from dppl.methods.fit_plan import Plan, Setting, of_persons

KEY = "dppl_federation"
FORMAT = 3
# Queries whose noisy answers can be added: sums. Selections cannot.
QUERIES = {
    kind.__name__: kind
    for kind in (
        queries.NumberOfRecords,
        queries.ClassCounts,
        queries.ClassSums,
        queries.WeightedSum,
        queries.GramMatrix,
        queries.ClassGramMatrices,
        queries.SecondMoment,
        queries.SoftmaxGradients,
        queries.LongResiduals,
        queries.SoftmaxCurvatures,
        queries.Hits,
        queries.Shortfalls,
        queries.LabelCounts,
        queries.LabelGradients,
        queries.LabelHits,
        queries.LabelShortfalls,
    )
}
_ROWS = 4096
# Limits of a message. Honest ones stay far below them. Texts end up in ledgers,
# statements and terminals.
_LONGEST_TEXT = 1000
_MOST_VALUES = 100_000
_DEEPEST = 20
_MOST_MEASUREMENTS = 100


class Refusal(DpplError, RuntimeError):
    """An institution declines a request; the reason depends on no record."""

    kind = ErrorKind.REFUSED


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its kind, a few fields, and tensors."""

    kind: str
    fields: dict[str, Any]
    tensors: dict[str, NDArray[Any]]

    def to_bytes(self) -> bytes:
        """Serialize the message; equal messages give equal bytes."""
        return tensorfile.to_bytes(
            KEY, {"format": FORMAT, "kind": self.kind, **self.fields}, self.tensors
        )

    @classmethod
    def parse(cls, content: bytes) -> Message:
        """Parse what `to_bytes` wrote; raise Refusal for anything else."""
        try:
            given, tensors = tensorfile.parsed(content, KEY)
            if given.pop("format") != FORMAT:
                raise Refusal(
                    "the message has another format: use the same version of dppl everywhere."
                )
            _check_values(given)
            return cls(given.pop("kind"), given, tensors)
        except Refusal:
            raise
        except Exception:  # whoever sent it may have sent anything
            raise Refusal("the message is damaged, or none of dppl's.") from None


def _check_values(fields: dict[str, Any]) -> None:
    """Refuse texts, numbers or nesting that could harm a program that stores or shows them."""
    left: list[tuple[Any, int]] = [(fields, 0)]
    seen = 0
    while left:
        value, depth = left.pop()
        seen += 1
        if isinstance(value, dict | list):
            if isinstance(value, dict):
                inside = [*value, *value.values()]
            else:
                inside = value
            left += [(one, depth + 1) for one in inside]
        fits = True
        if isinstance(value, str):
            longest = _LONGEST_TEXT
            if value is fields.get("encoder"):  # which is compared, and never shown
                longest = LONGEST_NAME
            fits = len(value) <= longest and value.isprintable()
        elif isinstance(value, int | float):
            fits = abs(value) < 2**63  # false for NaN
        if not fits or depth > _DEEPEST or seen + len(left) > _MOST_VALUES:
            raise Refusal(
                "the message has a text that is not printable or has more than 1000 characters, a number beyond "
                "64 bits, or too many values."
            )


def identity(content: bytes) -> str:
    """Return the hash of a plan or question, which names it."""
    return sha256(content).hexdigest()


def packed(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Split named values into those for JSON and arrays; a lattice is its parameters and its centre."""
    plain: dict[str, Any] = {}
    tensors: dict[str, NDArray[Any]] = {}
    for name, value in values.items():
        if isinstance(value, Lattice):
            plain[name] = {"lattice": value.to_dict()}
            if value.center is not None:
                tensors[name] = value.center
        elif isinstance(value, np.ndarray):
            tensors[name] = value
        elif value is None or isinstance(value, str | int | float):
            plain[name] = value
        else:
            raise ParameterError(
                f"{name} cannot travel to an institution: it is of {type(value).__name__}."
            )
    return plain, tensors


def unpacked(
    plain: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]
) -> dict[str, Any]:
    """Return what `packed` split."""
    values: dict[str, Any] = dict(tensors)
    for name, value in plain.items():
        if isinstance(value, dict):
            value = Lattice(**value["lattice"], center=tensors.get(name))
        values[name] = value
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """A plan as an institution reads it: what may be asked, and what that costs here."""

    id: str
    estimator: str
    parameters: dict[str, Any]
    classes: list[Any]
    n_features: int
    encoder: str | None  # the hash of its function
    multilabel: bool
    whole_persons: bool
    max_classes_per_person: int | None
    unit: Unit
    parties: tuple[str, ...]
    public: frozenset[str]  # hashes of public inputs
    budget: Budget
    paid: dict[str, Calibrated]

    def guarantee(self, *, secure_noise: bool) -> Guarantee:
        """Return what is promised for the records of one institution, for its ledger."""
        guarantee = Guarantee(
            budget=self.budget,
            adjacency=ADD_REMOVE,
            releases=tuple(
                one.release for one in self.paid.values() if one.release is not None
            ),
            public_inputs=(Term(PublicInput.PLAN),),
            not_covered=(),
            secure_noise=secure_noise,
        )
        if self.unit is Unit.RECORD:
            return guarantee
        return of_persons(
            guarantee, self.max_classes_per_person, whole=self.whole_persons
        )

    @classmethod
    def read(cls, content: bytes) -> Agreement:
        """Parse a plan and compute its cost; raise Refusal if it is incomplete or states another cost."""
        message = Message.parse(content)
        try:
            return cls._of(identity(content), message)
        except DpplError as error:
            raise Refusal(f"the plan cannot be followed: {error}") from None
        except Exception as error:  # whoever sent it may have sent anything
            raise Refusal(
                f"the plan cannot be read ({type(error).__name__})."
            ) from None

    @classmethod
    def _of(cls, name: str, message: Message) -> Agreement:
        given = message.fields
        versions = software_versions()["dppl"], FORMAT
        if (given["dppl"], given["plan_format"]) != versions:
            raise Refusal(
                f"it is of dppl {given['dppl']}, and this is dppl {versions[0]}."
            )
        if given["adjacency"] != ADD_REMOVE:
            raise Refusal("institutions answer under add-remove alone.")
        if type(given["parameters"]) is not dict or not (
            len(given["measurements"]) <= _MOST_MEASUREMENTS
        ):
            raise Refusal(
                f"it has no parameters, or more than {_MOST_MEASUREMENTS} measurements."
            )
        for party in given["parties"]:
            check_name("parties", party)
        check_name("estimator", given["estimator"])
        for one in given["measurements"]:
            check_name("measurements", one["name"])
        classes = given["classes"]
        most = given["max_classes_per_person"]
        if (
            not 0 < len(classes) == len(set(classes))
            or type(given["n_features"]) is not int
        ):
            raise Refusal(
                "its class list is empty or repeats a class, or its number of features is not an integer."
            )
        declared = {
            one["name"]: Measurement(
                _query(
                    one["query"],
                    unpacked(one["values"], _named(message.tensors, one["name"])),
                ),
                one["percent"],
                one["times"],
                None
                if one["statistic"] is None
                else Term.from_dict(Statistic, one["statistic"]),
            )
            for one in given["measurements"]
        }
        if len(declared) < len(given["measurements"]):
            raise Refusal("two of its measurements have the same name.")
        whole = given["whole_persons"] is True
        several = given["multilabel"] is True
        check_declared(declared, len(classes), multilabel=several, whole_persons=whole)
        if any(
            _width(one) not in (None, given["n_features"]) for one in declared.values()
        ):
            raise Refusal("a measurement is not of rows of the stated width.")
        # A person's rows can be merged into one. Label sets cannot, so such records
        # are weighted by one over their number.
        unit = Unit(given["unit"])
        if several and not whole and unit is Unit.PERSON:
            raise Refusal("persons whose records have several labels enter as a whole.")
        if most is not None and (
            type(most) is not int or most < 1 or unit is not Unit.PERSON
        ):
            raise Refusal(
                "max_classes_per_person is a positive integer, and for persons."
            )
        # The cost is computed here; the plan's own numbers are only compared with it.
        budget = budget_from_dict(given["budget"])
        paid = calibrated(
            budget,
            declared,
            ADD_REMOVE,
            rows_of_a_person(most, len(classes), whole=whole),
        )
        read = cls(
            name,
            given["estimator"],
            given["parameters"],
            classes,
            given["n_features"],
            given["encoder_sha256"],
            several,
            whole,
            most,
            unit,
            tuple(given["parties"]),
            frozenset(given["public"].values()),
            budget,
            paid,
        )
        if [
            one.to_dict() for one in read.guarantee(secure_noise=True).releases
        ] != given["releases"]:
            raise Refusal(
                "its noise or cost differs from what this institution computes."
            )
        return read


def plan_bytes(
    plan: Plan,
    guarantee: Guarantee,
    estimator: str,
    parameters: dict[str, Any],
    *,
    multilabel: bool,
    **more: Any,
) -> bytes:
    """Serialize the plan of a fit; `more` holds the coordinator's own fields."""
    setting = plan.setting
    measurements = []
    tensors: dict[str, NDArray[Any]] = {}
    for name, paid in plan.measurements.items():
        one = paid.measurement
        kind = type(one.query).__name__
        if QUERIES.get(kind) is not type(one.query):
            raise ParameterError(
                f"{estimator} cannot be fitted on institutions: answers of {kind} do not add up."
            )
        values = {
            field.name: getattr(one.query, field.name) for field in fields(one.query)
        }
        plain, arrays = packed(values)
        named = None
        if one.statistic is not None:
            named = one.statistic.to_dict()
        how = {"percent": one.percent, "times": one.times, "statistic": named}
        measurements.append({"name": name, "query": kind, "values": plain, **how})
        tensors |= {f"{name}.{of}": array for of, array in arrays.items()}
    given = {
        "plan_format": FORMAT,
        "dppl": software_versions()["dppl"],
        "estimator": estimator,
        "parameters": parameters,
        "classes": setting.classes.tolist(),
        "n_features": setting.n_features,
        "multilabel": multilabel,
        "whole_persons": plan.whole_persons,
        "max_classes_per_person": plan.parameters.get("max_classes_per_person"),
        "adjacency": guarantee.adjacency,
        "budget": guarantee.budget.to_dict(),
        "measurements": measurements,
        "releases": [one.to_dict() for one in guarantee.releases],
        "public": public_inputs(setting),
        **more,
    }
    return Message("plan", given, tensors).to_bytes()


def public_inputs(setting: Setting) -> dict[str, str]:
    """Return hashes of the public rows and examples of a fit, and of the model that it starts from."""
    public = setting.public
    if public.rows is None:
        hashes = {}
    else:
        hashes = {"public rows": hash_of(public.rows)}
    if public.examples is not None:
        hashes["examples"] = hash_of(public.examples.rows)
        hashes["classes of the examples"] = hash_of(
            np.asarray(public.examples.codes)[:, None]
        )
    if setting.start is not None:
        hashes["start"] = setting.start.chain[0]["sha256"]
    return hashes


def hash_of_encoder(name: str | None) -> str | None:
    """Return a hash that all names of one encoder have, wherever a schema or network lies."""
    return None if name is None else identity(function_of(name).encode())


def hash_of(rows: RowSource) -> str:
    """Hash the values of public rows, whatever type stores them."""
    digest = sha256(f"{tuple(rows.shape)}".encode())
    for block in iter_blocks(rows, _ROWS):
        # float64 holds every float16 and float32 exactly.
        digest.update(np.ascontiguousarray(block, np.float64).tobytes())
    return digest.hexdigest()


def question(plan: str, number: int, name: str, released: Mapping[str, Any]) -> bytes:
    """Serialize a question."""
    plain, tensors = packed(released)
    # A repeated question has equal bytes, so its hash tells that it was asked before.
    return Message(
        "ask", {"plan": plan, "number": number, "name": name, "values": plain}, tensors
    ).to_bytes()


def answer_to(
    content: bytes, plan: str, number: int, value: NDArray[np.int64], **more: Any
) -> bytes:
    """Serialize the answer to a question."""
    given = {"plan": plan, "number": number, "question": identity(content), **more}
    return Message("answer", given, {"answer": value}).to_bytes()


def made_up_record(
    n_features: int, classes: NDArray[Any], several: MultiLabel | None
) -> Any:
    """Return one row of zeros, whose answers have the shapes of all answers."""
    if several is None:
        labels = classes[:1]
    else:
        labels = np.zeros((1, len(classes)), bool)
    made_up = private_data(np.zeros((1, n_features)), labels, several=several)
    return made_up.records(classes, unknown_labels="ignore", adjacency=ADD_REMOVE)


def seed_of_ask(seed: int, party: str, number: int) -> int:
    """Return the seed of one answer in an experiment, different for each answer and institution."""
    return int.from_bytes(
        sha256(f"{int(seed)} {number} {party}".encode()).digest()[:8], "big"
    )


def _named(tensors: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    start = f"{name}."
    return {
        key.removeprefix(start): one
        for key, one in tensors.items()
        if key.startswith(start)
    }


def _query(kind: str, values: dict[str, Any]) -> queries.Query:
    """Build a query of the kernel; raise Refusal for an unknown name or other parameters."""
    if kind not in QUERIES:
        raise Refusal(f"no query that adds up is called {kind!r}.")
    made = QUERIES[kind]
    hints = get_type_hints(made)
    expected = {field.name: hints[field.name] for field in fields(made)}
    values = {
        name: values[name]
        for name in values
        if not isinstance(values[name], np.ndarray)
    }
    # Exact types: True would pass for the integer 1.
    if {name: type(value) for name, value in values.items()} != expected:
        raise Refusal(f"{kind} has other parameters.")
    # Sampled queries are accounted in (epsilon, delta) alone, which no ledger charges,
    # and composing them is slow.
    if values.get("sampling_rate", 1.0) != 1.0:
        raise Refusal(f"{kind} is asked of all records here, never of samples.")
    if any(
        isinstance(value, int) and value < (name != "bias")
        for name, value in values.items()
    ):
        raise Refusal(f"{kind} has a parameter below what it may be.")
    return made(**values)


def _width(one: Measurement) -> int | None:
    lattice = getattr(one.query, "lattice", None)
    if lattice is None:
        return None
    return int(lattice.n_features)
