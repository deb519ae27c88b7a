"""The counter over institutions: it asks each of them what a method asks, checks the answers, and adds them up.

It holds no record and no secret. Every answer has its institution's noise already, so what a coordinator learns, and
whoever listens, costs no more than the published model does. Its folder is for going on after a stop: of the asks that
were answered it has the sums, and an ask that was under way is asked again, whose answer comes from the disk of the
institution that gave it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, Literal, Protocol, TypeAlias
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dppl import _validate
from dppl._metadata import ENCODER
from dppl.errors import EngineError, ParameterError
from dppl.estimators.plan import Plan, of_holders
from dppl.federation.journal import Journal
from dppl.federation.plan import Message, Refusal, answer_to, identity, made_up_record, plan_bytes, question
from dppl.kernel.privacy import Guarantee
from dppl.kernel.reading import SeveralLabels

Int64 = NDArray[np.int64]
Missing: TypeAlias = Literal["stop", "continue"]

# Standard deviations beyond its expected length that noise may have: exceeded with probability e^-50 at most.
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
    holders : dict of str to Holder
        By name.
    """

    def __init__(self, holders: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self.holders = dict(holders)
        self.names = tuple(self.holders)

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
        return {name: self.holders[name](content) for name, content in messages.items()}


class Federation:
    """Institutions that hold records, as what a fit takes for `X`: ``model.fit(Federation(transport))``.

    Parameters
    ----------
    transport : Transport
        The way to them.
    state : path, default=None
        Folder of a fit, from which it goes on after a stop. None keeps nothing, and a fit that stops is lost.
    missing : {"stop", "continue"}, default="stop"
        What to do when one does not answer, or not as it must: stop, to go on later, or continue without it. The
        statement then says since when.
    tries : int, default=3
        How often an answer is asked for, each time as long as the transport waits.

    Notes
    -----
    **Privacy.** Unit: as the institutions have it. Relation: add or remove. Released: their noisy answers, to
    everybody. Sensitivity: of each the reach of its query. Public inputs: the plan, who takes part and what they state
    of their tables. Not covered: a person with records at several of them, timing. An institution that lies about its
    records spoils the model, as far as the bound on its answers allows.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        state: str | os.PathLike[str] | None = None,
        missing: Missing = "stop",
        tries: int = 3,
    ) -> None:
        _validate.one_of(("stop", "continue"), missing=missing)
        _validate.positive_integer(tries=tries)
        self._transport, self._missing, self._tries = transport, missing, tries
        self._journal = None if state is None else Journal(state)
        names = tuple(transport.names)
        if not names or len(set(names)) < len(names):
            raise ParameterError("must name one institution or more, and each once.", parameter="holders")
        self._names, self._left, self._asked = names, dict[str, int](), 0
        # Of a fit that goes on, what was agreed: only whoever is asked next needs to be there.
        before = None if self._journal is None else self._journal.read("agreed")
        self._agreed: dict[str, Any] = {} if before is None else json.loads(before)
        if not self._agreed:
            told = self._all("hello", {}, "described")
            self._agreed["described"] = {name: message.fields for name, message in told.items()}
        self.described: dict[str, dict[str, Any]] = self._agreed["described"]
        for fact in ("n_features", "encoder", "unit", "dppl"):
            if len({self.described[name].get(fact) for name in names}) > 1:
                each = ", ".join(f"{name}: {self.described[name].get(fact)}" for name in names)
                raise ParameterError(f"must agree in {fact}; they have {each}.", parameter="holders")
        first = self.described[names[0]]
        self.n_features, self.unit = int(first["n_features"]), str(first["unit"])
        self.metadata = {} if first["encoder"] is None else {ENCODER: str(first["encoder"])}
        for name in names:
            _validate.positive_integer(**{f"at_most of {name}": self.described[name].get("at_most")})
        self.shape = (None, self.n_features)  # of all tables; nobody knows the number of records
        self.widening = math.sqrt(len(names))

    def cost_in_words(self) -> str:
        """Say what it costs that each institution adds its own noise, before anybody agrees to a plan."""
        k = len(self._names)
        return (
            f"the noise of the sum of {k} institutions is {self.widening:.3g} times the noise of one, so the model is "
            f"as accurate as one of all records in one place at {1 / self.widening:.3g} of the mu (see dppl plan)."
        )

    # What a fit asks of its records

    def check(self, *, needs_rows: bool, strict: bool, classes: NDArray[Any]) -> None:
        """Refuse fits that need more than noisy sums.

        Parameters
        ----------
        needs_rows, strict : bool
            Whether the fit needs rows one after another, or looks at records before it charges.
        classes : ndarray
            The class list.
        """
        if needs_rows or strict:
            what = "needs rows one after another" if needs_rows else "looks at records before it charges"
            raise ParameterError(f"the fit {what}, and institutions answer with noisy sums alone.")

    def records(self, classes: NDArray[Any], **options: Any) -> Federation:
        """Return the institutions, which read their own records.

        Parameters
        ----------
        classes : ndarray
            The class list.
        **options
            What a fit says of records in one place.
        """
        several = SeveralLabels() if self._several_labels else None
        self._made_up = made_up_record(self.n_features, classes, several)
        return self

    def agree(self, plan: Plan, guarantee: Guarantee, estimator: str, parameters: dict[str, Any]) -> Guarantee:
        """Have all check a plan, and then all charge it; return what is guaranteed at each.

        Parameters
        ----------
        plan : Plan
        guarantee : Guarantee
            What the plan promises for records in one place.
        estimator : str
        parameters : dict
            Name and public parameters of the method, for the ledgers.
        """
        if plan.setting.task.earlier is not None or len(plan.setting.task.allowed) < plan.setting.n_classes:
            raise ParameterError("a stream of tasks cannot be fitted on institutions yet.")
        if self.unit == "person":
            guarantee = plan.guarantee_on(self, ())
        given: dict[str, Any] = {"unit": self.unit, "holders": list(self._names)}
        several = "separator" in plan.parameters
        before = None if self._journal is None else self._journal.read("plan")
        # A random name, so that no two fits are one plan.
        given["fit"] = uuid4().hex if before is None else Message.parse(before).fields["fit"]
        content = plan_bytes(plan, guarantee, estimator, parameters, several_labels=several, **given)
        if before not in (None, content):
            raise ParameterError("holds another fit, or one by other versions; name another folder.", parameter="state")
        if self._journal is not None and before is None:
            self._journal.write("plan", content)
        self._plan, self._paid, self._several_labels = identity(content), plan.measurements, several
        self._asked, self._left = 0, {}
        if self._agreed.get("plan") != self._plan:
            as_tensor = {"plan": np.frombuffer(content, np.uint8)}
            checked = self._all("propose", as_tensor, "agreed")
            self._agreed["fit_for_release"] = all(one.fields.get("fit_for_release") is True for one in checked.values())
            begun = self._all("begin", as_tensor, "begun")
            self._agreed["entries"] = [f"{name}: {str(begun[name].fields.get('entry'))[:300]}" for name in self._names]
            self._agreed["plan"] = self._plan
            if self._journal is not None:
                self._journal.write("agreed", json.dumps(self._agreed).encode())
        guarantee = replace(guarantee, fit_for_release=self._agreed["fit_for_release"])
        return of_holders(guarantee, self._names, tuple(self._agreed["entries"]))

    def answer(self, name: str, /, **released: Any) -> Int64:
        """Return the sum of the answers of all that are left.

        Parameters
        ----------
        name : str
            As the measurement was declared.
        **released
            What it is asked at.
        """
        number, self._asked = self._asked, self._asked + 1
        content = question(self._plan, number, name, released)
        kept = None if self._journal is None else self._journal.read(number)
        if kept is not None:
            before = Message.parse(kept)
            if before.fields["question"] != identity(content):
                raise ParameterError("holds answers to other questions; name another folder.", parameter="state")
            self._left = before.fields["left"]
            return before.tensors["answer"]
        shape = self._made_up.total(self._paid[name].measurement.query, **released).shape
        good: dict[str, Int64] = {}
        reasons: dict[str, str] = {}
        for _ in range(self._tries):
            asked = [one for one in self._present if one not in good]
            came = self._transport.exchange(dict.fromkeys(asked, content)) if asked else {}
            for one in asked:
                try:
                    good[one] = self._checked(one, came.get(one), content, number, name, shape)
                except Refusal as refusal:
                    reasons[one] = str(refusal)
        for one in self._present:
            if one in good:
                continue
            if self._missing == "stop" or len(self._left) + 1 == len(self._names):
                again = "" if self._journal is None else " Fit again with the same folder to go on."
                raise EngineError(f"{one} does not answer ask {number + 1}: {reasons[one]}{again}")
            self._left = {**self._left, one: number}
        total = np.asarray(sum(good[one] for one in self._present), np.int64)
        if self._journal is not None:
            self._journal.write(number, answer_to(content, self._plan, number, total, left=self._left))
        return total

    def finish(self, model: Any) -> None:
        """Note in the guarantee who left, and tell all the hash of the model; who does not hear it loses nothing."""
        since = {one: f"{one}, without its answers from ask {number + 1} on" for one, number in self._left.items()}
        holders = tuple(since.get(one, one) for one in self._names)
        model.guarantee_ = replace(model.guarantee_, holders=holders)
        told = {"plan": self._plan, "model_sha256": sha256(model.to_bytes()).hexdigest()}
        self._transport.exchange(dict.fromkeys(self._present, Message("finish", told, {}).to_bytes()))

    # The way to the institutions

    @property
    def _present(self) -> tuple[str, ...]:
        return tuple(one for one in self._names if one not in self._left)

    def _all(self, kind: str, tensors: dict[str, NDArray[Any]], expected: str) -> dict[str, Message]:
        """Return what all say to a message; stop if one does not answer as expected."""
        content = Message(kind, {}, tensors).to_bytes()
        good: dict[str, Message] = {}
        reason = ""
        for _ in range(self._tries):
            missing = [one for one in self._names if one not in good]
            came = self._transport.exchange(dict.fromkeys(missing, content))
            for one in missing:
                try:
                    good[one] = _reply(one, came.get(one), expected)
                except Refusal as refusal:
                    reason = f"{one}: {refusal}"
            if len(good) == len(self._names):
                return good
        raise EngineError(f"an institution does not take part. {reason}")

    def _checked(
        self, one: str, reply: bytes | None, content: bytes, number: int, name: str, shape: tuple[int, ...]
    ) -> Int64:
        """Return an answer, after holding it to the question and to the number of records that its sender states."""
        message = _reply(one, reply, "answer")
        given = message.fields
        if (given.get("plan"), given.get("number"), given.get("question")) != (self._plan, number, identity(content)):
            raise Refusal("it answers another question.")
        answer = message.tensors.get("answer")
        if answer is None or answer.dtype != np.int64 or answer.shape != shape:
            raise Refusal("its answer has another form.")
        paid, at_most = self._paid[name], float(self.described[one]["at_most"])
        # A Gaussian vector is longer than its root mean square by t standard deviations with probability exp(-t²/2)
        # at most, and rounding adds less than half a step to each entry.
        noise = float(paid.mechanism.noise_std) * (math.sqrt(answer.size) + _MARGIN) + math.sqrt(answer.size)
        bound = at_most * math.sqrt(paid.measurement.query.squared_norm) + noise
        if not np.linalg.norm(answer.astype(np.float64)) <= bound:
            raise Refusal("its answer is longer than the number of records that it states allows.")
        if bound * len(self._names) >= _LARGEST_SUM:
            raise Refusal("so many records as it states could leave 64-bit sums.")
        return answer


def _reply(one: str, content: bytes | None, kind: str) -> Message:
    """Read a reply of the kind; a Refusal says why there is none."""
    if content is None:
        raise Refusal("no answer came in time.")
    message = Message.parse(content)
    if message.kind == "refused":
        raise Refusal(f"it refuses: {str(message.fields.get('reason'))[:500]}")
    if message.kind != kind or (kind != "answer" and message.fields.get("name") != one):
        raise Refusal("it answers something else.")
    return message
