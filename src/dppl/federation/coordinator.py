"""`measure` over several institutions: each is asked what the method asks, and the checked answers are added up.

The coordinator holds no record and no secret. Every answer already has the noise of its
institution, so what the coordinator or an eavesdropper learns costs no more than the
published model. Its folder lets a stopped fit go on: it has the sums of the asks that
were answered, and repeats the ask that was under way, which each institution answers
again from its disk.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dppl._utils import validate
from dppl._utils.metadata import ENCODER, NOT_COVERED
from dppl._utils.outside import parse_json
from dppl.errors import EngineError, InputError, ParameterError
from dppl.federation.journal import Journal
from dppl.federation.protocol import (
    Message,
    Refusal,
    answer_to,
    hash_of_encoder,
    identity,
    made_up_record,
    plan_bytes,
    question,
)
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.measure import Calibrated, Measure
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.terms import (
    Assumption,
    Caveat,
    PublicInput,
    Term,
    Unit,
)
from dppl.kernel.queries import ADD_REMOVE, OwnAnswer, Query
from dppl.methods.fit_plan import Plan
from dppl.methods.start import added_up

Int64 = NDArray[np.int64]
Missing: TypeAlias = Literal["stop", "continue"]
Value = TypeVar("Value")

# Standard deviations beyond its expected length that noise may have: exceeded with
# probability e^-50 at most.
_MARGIN = 10.0
_LARGEST_SUM = 2.0**62


class Transport(Protocol):
    """A way to institutions, which are called by their names."""

    names: tuple[str, ...]

    def exchange(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Deliver a message to each, and return what came back in time."""


class InProcess:
    """Institutions in this process, for tests and simulations.

    Parameters
    ----------
    parties : dict of str to Party
        By name.
    """

    def __init__(self, parties: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self.parties = dict(parties)
        self.names = tuple(self.parties)

    def exchange(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Call them one after the other.

        Parameters
        ----------
        messages : dict of str to bytes

        Returns
        -------
        dict of str to bytes
            The answer of each.
        """
        return {name: self.parties[name](content) for name, content in messages.items()}


class Federation:
    """Institutions that hold records, as what a fit takes for `X`: ``model.fit(Federation(transport))``.

    Parameters
    ----------
    transport : Transport
        The way to them.
    state : path, default=None
        Folder of a fit, from which it goes on after a stop. None keeps nothing, and a
        fit that stops is lost.
    missing : {"stop", "continue"}, default="stop"
        What to do when one does not answer, or not as it must: stop, to go on later, or
        continue without it. The statement then says since when.
    tries : int, default=3
        How often an answer is asked for, each time as long as the transport waits.

    Notes
    -----
    **Privacy.** Unit: as the institutions have it. Relation: add or remove. Released:
    their noisy answers, to everybody. Sensitivity: the L2 sensitivity of each query.
    Public inputs: the plan, who takes part and what they state of their tables. Not
    covered: a person with records at several of them, timing. An institution that lies
    about its records spoils the model, as far as the bound on its answers allows.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        state: str | os.PathLike[str] | None = None,
        missing: Missing = "stop",
        tries: int = 3,
    ) -> None:
        validate.one_of(("stop", "continue"), missing=missing)
        validate.positive_integer(tries=tries)
        self.names = tuple(transport.names)
        if not self.names or len(set(self.names)) < len(self.names):
            raise ParameterError(
                "must name one institution or more, and each once.", parameter="parties"
            )
        self.missing = missing
        self.journal = Journal(state)
        self._transport = transport
        self._tries = tries
        # A fit that goes on has this on its disk: only whoever is asked next needs to
        # be there.
        agreed = self.journal.read("agreed")
        if agreed is None:
            said = self._ask_all("hello", {}, "described")
            self.described: dict[str, dict[str, Any]] = {
                name: one.fields for name, one in said.items()
            }
        else:
            self.described = parse_json(agreed)["described"]
        for fact in ("n_features", "unit", "dppl"):
            # What an institution says may be of any type, and not every one can be in a set.
            if len({repr(one.get(fact)) for one in self.described.values()}) > 1:
                each = ", ".join(
                    f"{name}: {one.get(fact)}" for name, one in self.described.items()
                )
                raise ParameterError(
                    f"must agree in {fact}; they have {each}.", parameter="parties"
                )
        for name, one in self.described.items():
            for fact in ("at_most", "n_features"):
                validate.positive_integer(**{f"{fact} of {name}": one.get(fact)})
            if one.get("unit") not in ("record", "person") or not isinstance(
                one.get("encoder"), str | None
            ):
                raise ParameterError(
                    f"must have a unit and an encoder; {name} describes none.",
                    parameter="parties",
                )
        first = self.described[self.names[0]]
        for name, one in self.described.items():
            if hash_of_encoder(one["encoder"]) != hash_of_encoder(first["encoder"]):
                raise ParameterError(
                    f"must agree in encoder, and in the schema of columns; {name} has another one than {self.names[0]}.",
                    parameter="parties",
                )
        self.n_features = int(first["n_features"])
        self.unit = str(first["unit"])
        self.ids: tuple[()] | None = () if self.unit == Unit.PERSON else None
        if first["encoder"] is None:
            self.metadata = {}
        else:
            self.metadata = {ENCODER: str(first["encoder"])}
        # What one table does not promise, the model of all does not.
        if any(one.get("rows_mix") is not False for one in self.described.values()):
            self.metadata[NOT_COVERED] = Caveat.ROWS_MIX
        self.shape = (
            None,
            self.n_features,
        )  # of all tables; nobody knows the number of records

    def cost_in_words(self) -> str:
        """Say what it costs that each institution adds its own noise, before anybody agrees to a plan."""
        k = len(self.names)
        wider = math.sqrt(len(self.names))
        return (
            f"the noise of the sum of {k} institutions is {wider:.3g} times the noise of one, so the model is as "
            f"accurate as one of all records in one place at {1 / wider:.3g} of the mu (see dppl plan)."
        )

    # What a fit asks of its records

    def private_data(self, y: None, groups: None, **how: Any) -> Federation:
        """Return the institutions as a fit takes them, which have labels and ids of their own.

        Parameters
        ----------
        y, groups : None
        **how
            What a fit says of records in one place.
        """
        if y is not None or groups is not None:
            raise InputError(
                "y and groups must be left out: each institution has its own labels and ids."
            )
        return self

    def measure(
        self, paid: Mapping[str, Calibrated], records: Any, random_state: None
    ) -> Measure:
        """Return the counter of a fit, at which the institutions answer.

        Parameters
        ----------
        paid : dict of str to Calibrated
            The measurements of the plan.
        records : Answers or None
        random_state : None
        """
        # The noise of a sum is wider than the noise of one; whoever leaves takes away
        # theirs, too.
        wider = math.sqrt(len(self.names))
        asked = {}
        for name, one in paid.items():
            query = _SumOfAnswers(name, one.measurement.query)
            noise = SimpleNamespace(noise_std=wider * float(one.mechanism.noise_std))
            measurement = replace(one.measurement, query=query)
            asked[name] = Calibrated(measurement, noise, one.release)
        return Measure(asked, records, random_state)

    def check(self, *, needs_rows: bool, strict: bool, classes: NDArray[Any]) -> None:
        """Refuse fits that need more than noisy sums.

        Parameters
        ----------
        needs_rows, strict : bool
            Whether the fit needs rows one after another, or looks at records before it
            charges.
        classes : ndarray
            The class list.
        """
        if needs_rows or strict:
            if needs_rows:
                what = "needs rows one after another"
            else:
                what = "looks at records before it charges"
            raise ParameterError(
                f"the fit {what}, and institutions answer with noisy sums alone."
            )

    def account(self, ledger: None, partition: None, plan: Plan) -> _Accounts:
        """Return the ledgers of all as one, after refusing what only a fit on records in one place has.

        Parameters
        ----------
        ledger, partition : None
            Each institution charges its own.
        plan : Plan
        """
        setting = plan.setting
        given = plan.parameters
        if ledger is not None or partition is not None:
            raise ParameterError(
                "must be left out: each institution charges its own.",
                parameter="ledger",
            )
        if given["unknown_labels"] != "ignore":
            rule = "must be 'ignore', for an institution that stops at a label would tell of its records"
            raise ParameterError(
                f"{rule}; got {given['unknown_labels']!r}.", parameter="unknown_labels"
            )
        if given["random_state"] is not None:
            raise ParameterError(
                "must be None: each institution draws its own noise.",
                parameter="random_state",
            )
        if plan.guarantee.adjacency != ADD_REMOVE:
            # Under replace-one each institution's number of records would be public,
            # and nobody agreed to that.
            raise ParameterError(
                "must be add-remove for institutions.", parameter="adjacency"
            )
        if (
            setting.task.earlier is not None
            or len(setting.task.allowed) < setting.n_classes
        ):
            raise ParameterError(
                "a stream of tasks cannot be fitted on institutions yet."
            )
        return _Accounts(self, plan)

    def records(
        self, classes: NDArray[Any], *, paid: Answers, **options: Any
    ) -> Answers:
        """Return the institutions that charged the plan, which read their own records.

        Parameters
        ----------
        classes : ndarray
            The class list.
        paid : Answers
            What was charged.
        **options
            What a fit says of records in one place.
        """
        return paid

    # The way to the institutions

    def _exchange(self, names: Iterable[str], content: bytes) -> Mapping[str, bytes]:
        """Send a message to some institutions, and return the replies that came in time."""
        messages = dict.fromkeys(names, content)
        if messages:
            return self._transport.exchange(messages)
        return {}

    def _ask(
        self,
        names: Sequence[str],
        content: bytes,
        read: Callable[[str, bytes | None], Value],
    ) -> tuple[dict[str, Value], dict[str, str]]:
        """Repeat a question until `read` accepts each reply, a few times at most; return good answers, and reasons for the rest.

        Equal bytes get the same answer, so that a repeated question costs nothing.
        """
        good: dict[str, Value] = {}
        reasons: dict[str, str] = {}
        for _ in range(self._tries):
            missing = [one for one in names if one not in good]
            came = self._exchange(missing, content)
            for one in missing:
                try:
                    good[one] = read(one, came.get(one))
                except Refusal as refusal:
                    reasons[one] = str(refusal)
        return good, {one: reason for one, reason in reasons.items() if one not in good}

    def _ask_all(
        self, kind: str, tensors: dict[str, NDArray[Any]], expected: str
    ) -> dict[str, Message]:
        """Send a message to all; stop if one does not reply as expected."""
        content = Message(kind, {}, tensors).to_bytes()
        good, reasons = self._ask(
            self.names, content, lambda one, reply: _reply(one, reply, expected)
        )
        for one, reason in reasons.items():
            raise EngineError(f"an institution does not take part. {one}: {reason}")
        return {name: good[name] for name in self.names}


@dataclass(frozen=True)
class _SumOfAnswers(OwnAnswer):
    """The sum of the institutions' noisy answers to one query."""

    name: str
    query: Query

    @property
    def squared_norm(self) -> Fraction:
        """As at each of them."""
        return self.query.squared_norm

    @property
    def unit(self) -> float:
        """As at each of them."""
        return self.query.unit

    def answer(self, _: Any, records: Answers, source: Any, **released: Any) -> Int64:
        """Return the sum; no noise is drawn here."""
        return records.answer(self.name, **released)


@dataclass(frozen=True, slots=True, eq=False)
class _Accounts:
    """The ledgers of all institutions, as a fit sees one ledger."""

    federation: Federation
    plan: Plan

    def charge(
        self,
        guarantee: Guarantee,
        *,
        estimator: str,
        parameters: dict[str, Any],
        partition: None,
    ) -> Answers:
        """Let all institutions check the plan, then all charge it; a resumed fit is charged once."""
        federation = self.federation
        journal = self.federation.journal
        plan = self.plan
        before = journal.read("plan")
        # Equal plans would get equal answers, so each fit has a random name.
        if before is None:
            fit = uuid4().hex
        else:
            fit = Message.parse(before).fields["fit"]
        several = "separator" in plan.parameters
        who: dict[str, Any] = {
            "unit": federation.unit,
            "encoder_sha256": hash_of_encoder(federation.metadata.get(ENCODER)),
            "parties": list(federation.names),
            "fit": fit,
        }
        content = plan_bytes(
            plan, guarantee, estimator, parameters, multilabel=several, **who
        )
        if before not in (None, content):
            raise ParameterError(
                "holds another fit, or one by other versions; name another folder.",
                parameter="state",
            )
        if before is None:
            journal.write("plan", content)
        agreed = journal.read("agreed")
        if agreed is None:
            as_tensor = {"plan": np.frombuffer(content, np.uint8)}
            # All agree before any is charged, so a refusal costs nothing.
            checked = federation._ask_all("propose", as_tensor, "agreed")
            begun = federation._ask_all("begin", as_tensor, "begun")
            known = {
                "described": federation.described,
                "secure_noise": all(
                    one.fields.get("secure_noise") is True for one in checked.values()
                ),
                "charges": [
                    _charge(name, one.fields).to_dict() for name, one in begun.items()
                ],
            }
            agreed = json.dumps(known).encode()
            journal.write("agreed", agreed)
        known = parse_json(agreed)
        made_up = made_up_record(
            federation.n_features,
            plan.setting.classes,
            MultiLabel() if several else None,
        )
        return Answers(
            federation,
            identity(content),
            plan.measurements,
            made_up,
            tuple(map(Charge.from_dict, known["charges"])),
            known["secure_noise"],
        )

    def finish(self, paid: Answers, *, model_sha256: str) -> None:
        """Send all the hash of the model; an institution that misses it loses nothing."""
        told = Message(
            "finish", {"plan": paid.plan, "model_sha256": model_sha256}, {}
        ).to_bytes()
        self.federation._exchange(paid.present, told)

    def saved(self, paid: Answers, sha256: str) -> None:
        """Tell all that the model is saved; an institution that misses it loses nothing."""
        fields = {"plan": paid.plan, "model_sha256": sha256, "saved": True}
        with suppress(Exception):
            self.federation._exchange(
                paid.present, Message("finish", fields, {}).to_bytes()
            )


@dataclass(slots=True, eq=False)
class Answers:
    """The institutions' answers under one charged plan; a fit uses them in place of records."""

    federation: Federation
    plan: str  # its hash
    paid: Mapping[str, Calibrated]
    made_up: Any  # a record, whose answers have the shape of every answer
    charges: tuple[Charge, ...]  # where each charged the plan
    secure_noise: bool  # whether all draw noise from their operating systems
    left: dict[str, int] = field(
        default_factory=dict
    )  # who left, and the number of the ask that they did not answer
    asked: int = 0

    @property
    def present(self) -> tuple[str, ...]:
        """Those who have not left."""
        return tuple(one for one in self.federation.names if one not in self.left)

    def __str__(self) -> str:
        return "; ".join(map(str, self.charges))

    def noted(self, guarantee: Guarantee) -> Guarantee:
        """Return what is guaranteed at each institution, and where it was charged."""
        guarantee = replace(guarantee, secure_noise=self.secure_noise)
        return of_parties(guarantee, self.federation.names, self.charges)

    def completed(self, guarantee: Guarantee) -> Guarantee:
        """Return the guarantee with a note on who left."""
        left = {one: number + 1 for one, number in self.left.items()}
        return replace(guarantee, left=left)

    def answer(self, name: str, /, **released: Any) -> Int64:
        """Return the sum of the answers of the institutions that are present."""
        number = self.asked
        self.asked = self.asked + 1
        content = question(self.plan, number, name, released)
        journal = self.federation.journal
        kept = journal.read(number)
        if kept is not None:
            before = Message.parse(kept)
            if before.fields["question"] != identity(content):
                raise ParameterError(
                    "holds answers to other questions; name another folder.",
                    parameter="state",
                )
            self.left = before.fields["left"]
            return before.tensors["answer"]
        shape = self.made_up.total(self.paid[name].measurement.query, **released).shape
        good, reasons = self.federation._ask(
            self.present,
            content,
            lambda one, reply: self._checked(one, reply, content, number, name, shape),
        )
        for one, reason in reasons.items():
            if self.federation.missing == "stop" or not good:
                again = ""
                if journal.folder is not None:
                    again = " Fit again with the same folder to go on."
                raise EngineError(
                    f"{one} does not answer ask {number + 1}: {reason}{again}"
                )
            self.left = {**self.left, one: number}
        total = np.asarray(sum(good.values()), np.int64)
        # The sum and who had left are written together, so that a resumed fit adds up
        # the same answers.
        journal.write(
            number, answer_to(content, self.plan, number, total, left=self.left)
        )
        return total

    def _checked(
        self,
        one: str,
        reply: bytes | None,
        content: bytes,
        number: int,
        name: str,
        shape: tuple[int, ...],
    ) -> Int64:
        """Check an answer against the question and against the number of records that its sender states."""
        message = _reply(one, reply, "answer")
        given = message.fields
        if (given.get("plan"), given.get("number"), given.get("question")) != (
            self.plan,
            number,
            identity(content),
        ):
            raise Refusal("it answers another question.")
        answer = message.tensors.get("answer")
        if answer is None or answer.dtype != np.int64 or answer.shape != shape:
            raise Refusal("its answer has another form.")
        paid = self.paid[name]
        at_most = float(self.federation.described[one]["at_most"])
        # A Gaussian vector is longer than its root mean square by t standard deviations
        # with probability exp(-t²/2) at most, and rounding adds less than half a step
        # to each entry.
        noise = float(paid.mechanism.noise_std) * (
            math.sqrt(answer.size) + _MARGIN
        ) + math.sqrt(answer.size)
        bound = at_most * math.sqrt(paid.measurement.query.squared_norm) + noise
        if not np.linalg.norm(answer.astype(np.float64)) <= bound:
            raise Refusal(
                "its answer is longer than the number of records that it states allows."
            )
        if bound * len(self.federation.names) >= _LARGEST_SUM:
            raise Refusal("so many records as it states could leave 64-bit sums.")
        return answer


def of_parties(
    guarantee: Guarantee, names: tuple[str, ...], charges: tuple[Charge, ...] = ()
) -> Guarantee:
    """Return the guarantee at each institution, for its own records and against all others."""
    mu = guarantee.mu
    # Each costs mu at most, so k of them cost the square root of k times mu.
    at_several = Term(Caveat.PERSON_AT_SEVERAL_PARTIES)
    if mu is not None:
        at_all = math.sqrt(len(names)) * mu
        at_several = Term(Caveat.PERSON_AT_ALL_PARTIES, mu=at_all)
    return added_up(
        replace(
            guarantee,
            parties=names,
            charges=charges,
            public_inputs=(*guarantee.public_inputs, Term(PublicInput.PARTIES)),
            assumptions=(*guarantee.assumptions, Term(Assumption.OWN_NOISE)),
            not_covered=(
                *guarantee.not_covered,
                at_several,
                Term(Caveat.PARTICIPATION),
            ),
        )
    )


def _reply(one: str, content: bytes | None, kind: str) -> Message:
    """Parse a reply of one kind; raise Refusal with the reason if there is none."""
    if content is None:
        raise Refusal("no answer came in time.")
    message = Message.parse(content)
    if message.kind == "refused":
        raise Refusal(f"it refuses: {str(message.fields.get('reason'))[:500]}")
    if message.kind != kind or (kind != "answer" and message.fields.get("name") != one):
        raise Refusal("it answers something else.")
    return message


def _charge(party: str, fields: Mapping[str, Any]) -> Charge:
    """Parse where an institution says that it charged the plan."""
    try:
        return Charge.from_dict(
            {
                "dataset": fields["dataset"][:300],
                "number": fields["number"],
                "party": party,
            }
        )
    except (KeyError, TypeError):
        raise Refusal(f"{party} does not tell where it charged the plan.") from None
