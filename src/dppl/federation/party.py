"""An institution: it checks a plan with its own kernel, pays from its own ledger, and answers each ask once.

The order of events for an ask is: noise is drawn, the answer reaches the disk, the
ledger notes that this ask was answered, the answer leaves. Killed before the disk has
it, an answer was seen by nobody and is drawn again; killed later, it is read from the
disk. The ledger's count, and its hash of the last answer, find a folder that was rolled
back to an older copy, or a copy that another process answers from: such a folder lacks
an answer that the ledger knows of, or has another in its place, and gives no more of
them.

The charge has a random name that is on the disk before the ledger gets it, so it is
made once, whenever the process is killed. Nothing that is refused depends on a record:
reasons come from the plan, the policy and the counters alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Self
from uuid import uuid4

import numpy as np

from dppl._utils import validate
from dppl._utils.files import lasting_folder, locked
from dppl._utils.metadata import ENCODER, depends_on_company, stated
from dppl._utils.outside import parse_json
from dppl.errors import BudgetError, DpplError, LedgerError, ParameterError
from dppl.federation.journal import Journal
from dppl.federation.protocol import (
    Agreement,
    Message,
    Refusal,
    answer_to,
    hash_of,
    hash_of_encoder,
    identity,
    made_up_record,
    seed_of_ask,
    unpacked,
)
from dppl.kernel import reading
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.lattice.stream import one_thread_each
from dppl.kernel.measure import Measure, secure_noise
from dppl.kernel.privacy import Budget, Ledger
from dppl.kernel.privacy.composition import covers
from dppl.kernel.privacy.guarantee import software_versions
from dppl.kernel.privacy.ledger import LedgerEntry, check_name
from dppl.kernel.privacy.terms import Unit
from dppl.kernel.records import private_data
from dppl.methods import EmbeddingClassifier

_OTHER_COPY = "its folder is not the one that its ledger knows of: it was lost, rolled back or copied."
_LONGEST_REASON = 500
_IN_USE = "is in use by another process, which answers from it."


@dataclass(slots=True, eq=False, repr=False)
class _Paid:
    """A plan that was charged."""

    agreement: Agreement
    journal: Journal
    entry: LedgerEntry
    asked: list[str]  # name of each ask that has an answer on the disk
    noted: int  # how many of these the ledger knows of
    records: Any = field(default=None, repr=False)


class Party:
    """An institution with its own records, which answers what a plan declares and nothing else.

    Parameters
    ----------
    name : str
        What it is called in plans and statements.
    X : array-like, table or table in parts
        Its private embeddings.
    y : array-like of shape (n_records,), default=None
        Its private labels; None for a table in parts.
    classes : array-like of shape (n_classes,)
        The public class list that a plan must have.
    ledger : Ledger
        Its account, under add-remove, which pays for every plan.
    state : path
        Folder for its answers, and for nothing else. Who loses it loses the plans that
        are under way.
    at_most : int
        A public number that its records do not exceed. No answer can be longer than so
        many records make it.
    groups : array-like of shape (n_records,), default=None
        Private ids of persons, as in `EmbeddingClassifier.fit`.
    limit : Budget, default=None
        What a single plan may cost; None is what the ledger has left.
    public : iterable of tables and models, default=()
        Public rows and examples that plans may name, and released models that they may
        start from; examples hold their labels. They are compared by hash.
    several : MultiLabel, default=None
        How labels are given where a record may have several.
    random_state : int, default=None
        Seed of its noise, for experiments: such a model must not be released.

    Notes
    -----
    **Privacy.** Unit: one record, or a person with `groups`. Relation: add or remove.
    Released: the noisy answers of each plan that was charged, to everybody.
    Sensitivity: the L2 sensitivity of each query (`dppl.kernel.queries`). Public inputs:
    all that a plan holds, `name`, `at_most`, the width and encoder of `X`, and whether
    its table says that rows may depend on one another by rounding. Not covered: records
    of the same person elsewhere, timing, whether it takes part.
    """

    def __init__(
        self,
        name: str,
        X: Any,
        y: Any = None,
        *,
        classes: Any,
        ledger: Ledger,
        state: str | os.PathLike[str],
        at_most: int,
        groups: Any = None,
        limit: Budget | None = None,
        public: Iterable[Any] = (),
        several: MultiLabel | None = None,
        random_state: int | None = None,
    ) -> None:
        check_name("name", name)
        validate.positive_integer(at_most=at_most)
        if ledger.adjacency != "add-remove" or ledger.unit != (
            Unit.RECORD if groups is None else Unit.PERSON
        ):
            raise ParameterError(
                "must be kept under add-remove, for persons if there are groups and else for records.",
                parameter="ledger",
            )
        self.name = name
        self._data = (X, y, groups)
        self._ledger = ledger
        self._several = several
        self._limit = limit
        self._random_state = random_state
        self._classes = reading.public_classes(classes, in_order=several is not None)
        self._public = {
            digest for table in public for digest in _hashes(table, self._classes)
        }
        data = private_data(X, y, groups, several=several)  # shapes and kinds
        self.described = {
            "name": name,
            "n_features": data.n_features,
            "encoder": stated(X, ENCODER),
            "rows_mix": depends_on_company(X),
            "unit": ledger.unit,
            "at_most": int(at_most),
            "dppl": software_versions()["dppl"],
        }
        self._state = lasting_folder(Path(state))
        self._plans: dict[str, _Paid] = {}
        self._lock = Lock()
        self._open = ExitStack()
        self._open.enter_context(locked(self._state, f"{self._state} {_IN_USE}"))

    def __enter__(self) -> Self:
        """Return the party."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let another process work in the folder."""
        self._open.close()
        self._plans.clear()

    def __call__(self, content: bytes) -> bytes:
        """Answer one message; what cannot be answered is refused with a reason, which depends on no record."""
        try:
            with self._lock:
                return self._answered(content)
        except Refusal as refusal:
            reason = str(refusal)[:_LONGEST_REASON]
        except Exception as error:  # of others than dppl, the text could quote a record
            if isinstance(error, DpplError):
                told = str(error)
            elif isinstance(error, OSError) and error.strerror:
                told = str(error)  # the system's words name no content
            else:
                told = type(error).__name__
            sys.stderr.write(f"dppl: {self.name} failed to answer: {told}\n")
            reason = "it failed to answer; its operator sees why. Ask again later."
        return Message("refused", {"name": self.name, "reason": reason}, {}).to_bytes()

    def _answered(self, content: bytes) -> bytes:
        message = Message.parse(content)
        if message.kind == "hello":
            return Message("described", self.described, {}).to_bytes()
        if message.kind == "ask":
            return self._ask(content, message)
        if message.kind == "finish":
            return self._finish(message)
        if message.kind not in ("propose", "begin") or set(message.tensors) != {"plan"}:
            raise Refusal("no message of dppl is of this kind.")
        plan = message.tensors["plan"].tobytes()
        agreement = self._checked(plan)
        if message.kind == "begin":
            paid = self._begun(agreement, plan)
            told = {"dataset": paid.entry.dataset, "number": paid.entry.number}
            return Message(
                "begun", {"name": self.name, "plan": agreement.id, **told}, {}
            ).to_bytes()
        fine = secure_noise(self._random_state)
        return Message(
            "agreed",
            {"name": self.name, "plan": agreement.id, "secure_noise": fine},
            {},
        ).to_bytes()

    def _checked(self, plan: bytes) -> Agreement:
        """Read a plan and hold it to the policy, and to what the ledger has left unless it is paid."""
        read = Agreement.read(plan)
        if self.name not in read.parties:
            raise Refusal("the plan does not name this institution.")
        if read.classes != self._classes.tolist() or read.multilabel != (
            self._several is not None
        ):
            raise Refusal("the plan has another class list, or other labels.")
        if (read.n_features, read.unit) != (
            self.described["n_features"],
            self.described["unit"],
        ):
            raise Refusal(
                "the plan is for rows of another width, or for another unit than this institution protects."
            )
        if read.encoder != hash_of_encoder(self.described["encoder"]):
            raise Refusal(
                "the plan is for rows of another encoder or schema; it compares their hashes."
            )
        if not read.public <= self._public:
            raise Refusal(
                "the plan has public inputs that this institution does not know; it compares their hashes."
            )
        guarantee = read.guarantee(secure_noise=secure_noise(self._random_state))
        if not guarantee.releases:
            raise Refusal("the plan asks nothing.")
        try:
            if self._limit is not None and not covers(self._limit, guarantee.costs()):
                raise Refusal(
                    f"the plan costs more than {self._limit}, the most that a plan may cost here."
                )
            # A plan that was charged is in the account already, and must not need room
            # for itself once more.
            if not (self._state / read.id / "run").exists():
                self._ledger.check(guarantee)
        except BudgetError as error:
            raise Refusal(str(error)) from None
        return read

    def _begun(self, read: Agreement, plan: bytes) -> _Paid:
        """Charge a plan, if it was not charged before, and open its folder."""
        if read.id in self._plans:
            return self._plans[read.id]
        journal = Journal(self._state / read.id)
        if journal.read("run") is None:
            if journal.read("plan") is None:
                journal.write("plan", plan)
            # The name of the charge, on the disk before the ledger has it.
            journal.write("run", json.dumps({"run": uuid4().hex}).encode())
        run = parse_json(journal.read("run") or b"")["run"]
        try:
            entry = self._ledger.charge(
                read.guarantee(secure_noise=secure_noise(self._random_state)),
                estimator=read.estimator,
                parameters={
                    **read.parameters,
                    "plan": read.id,
                    "parties": ", ".join(read.parties),
                },
                run=run,
            )
        except BudgetError as error:
            raise Refusal(str(error)) from None
        asked = [
            Message.parse(journal.read(number) or b"").fields["name"]
            for number in range(len(journal))
        ]
        # The last answer that the ledger counts is missing in an older copy, and is
        # another one in a copy from which another process answered.
        noted = self._ledger.steps_begun(entry)
        last = None
        if noted:
            last = identity(journal.read(noted - 1) or b"")
        known = None
        if noted:
            known = self._row(entry)["parameters"].get("last_answer")
        if noted is None or last != known or journal.read("stopped") is not None:
            raise Refusal(_OTHER_COPY)
        self._plans[read.id] = _Paid(read, journal, entry, asked, noted)
        return self._plans[read.id]

    def _note(self, paid: _Paid) -> None:
        """Tell the ledger of all answers on the disk, before one of them leaves."""
        try:
            # More than one, if the process was killed between the disk and the ledger.
            while paid.noted < len(paid.asked):
                answer = paid.journal.read(paid.noted) or b""
                self._ledger.begin_step(paid.entry, paid.noted, answer=identity(answer))
                paid.noted += 1
        except LedgerError:
            if (self._ledger.steps_begun(paid.entry) or 0) <= paid.noted:
                raise  # it could not be reached
            # Another process answered from a copy of this folder, and the answer here
            # has another noise.
            paid.journal.write("stopped", b"")
            del self._plans[paid.agreement.id]
            raise Refusal(_OTHER_COPY) from None

    def _of(self, message: Message) -> _Paid:
        """Return the plan that a message names, after a restart from its folder."""
        name = message.fields.get("plan")
        # A name is a hash in hexadecimal, so it leads to no other folder.
        if not isinstance(name, str) or len(name) != 64 or not name.isalnum():
            raise Refusal("no plan of this name was agreed on here.")
        if name in self._plans:
            return self._plans[name]
        if not (self._state / name / "run").exists():
            raise Refusal("no plan of this name was agreed on here.")
        plan = Journal(self._state / name).read("plan") or b""
        # The policy may have changed since, and holds for the rest of the plan.
        return self._begun(self._checked(plan), plan)

    def _ask(self, content: bytes, message: Message) -> bytes:
        paid = self._of(message)
        number = message.fields.get("number")
        name = message.fields.get("name")
        # In order and without gaps, so that the number of files is the number of asks.
        if type(number) is not int or not 0 <= number <= len(paid.asked):
            raise Refusal(f"the next ask is number {len(paid.asked)}.")
        self._note(paid)
        if number < len(paid.asked):
            answer = paid.journal.read(number) or b""
            if Message.parse(answer).fields["question"] != identity(content):
                raise Refusal(
                    f"ask {number} was answered to another question, and no ask is answered twice."
                )
            return answer
        left = paid.agreement.paid
        if not isinstance(name, str) or name not in left:
            raise Refusal(f"{str(name)[:100]!r} was not declared.")
        if paid.asked.count(name) >= left[name].measurement.times:
            raise Refusal(
                f"{name!r} was declared for {left[name].measurement.times} asks, and all are answered."
            )
        try:
            released = unpacked(message.fields["values"], message.tensors)
            # What a made-up record cannot answer, these are not asked: that they could
            # not would tell of them.
            made_up_record(
                paid.agreement.n_features, self._classes, self._several
            ).total(left[name].measurement.query, **released)
        except Exception as error:  # whoever sent it may have sent anything
            if isinstance(error, DpplError):
                reason = str(error)
            else:
                reason = type(error).__name__
            raise Refusal(f"{name!r} cannot be asked so: {reason}") from None
        answer = answer_to(
            content,
            paid.agreement.id,
            number,
            self._drawn(paid, name, released),
            name=name,
        )
        paid.journal.write(number, answer)
        paid.asked.append(name)
        self._note(paid)
        return answer

    def _drawn(self, paid: _Paid, name: str, released: dict[str, Any]) -> Any:
        """Ask the `Measure` of the kernel, whose noise is fresh."""
        read = paid.agreement
        with one_thread_each, np.errstate(all="ignore"):
            if paid.records is None:  # they are read once for all asks of a plan
                X, y, groups = self._data
                data = private_data(
                    X,
                    y,
                    groups,
                    max_classes=read.max_classes_per_person,
                    several=self._several,
                )
                paid.records = data.records(
                    self._classes,
                    unknown_labels="ignore",
                    adjacency="add-remove",
                    max_classes=read.max_classes_per_person,
                    whole_persons=read.whole_persons,
                )
            seed = None
            if self._random_state is not None:
                seed = seed_of_ask(self._random_state, self.name, len(paid.asked))
            used = Counter(paid.asked)  # what was answered before a restart is spent
            return np.asarray(
                Measure(read.paid, paid.records, seed, used)(name, **released), np.int64
            )

    def _finish(self, message: Message) -> bytes:
        paid = self._of(message)
        digest = message.fields.get("model_sha256")
        if not isinstance(digest, str) or len(digest) != 64 or not digest.isalnum():
            raise Refusal("no hash of a model.")
        # The first hash stays: nobody changes later what the ledger says of the model.
        if self._row(paid.entry)["model_sha256"] is None:
            self._ledger.finish(paid.entry, model_sha256=digest)
        if message.fields.get("saved") is True:
            self._ledger.saved(paid.entry, digest)
        paid.records = None
        return Message(
            "finished", {"name": self.name, "plan": paid.agreement.id}, {}
        ).to_bytes()

    def _row(self, entry: LedgerEntry) -> dict[str, Any]:
        """Return what the ledger holds of a charge."""
        return next(
            one for one in self._ledger.releases() if one["number"] == entry.number
        )


def _hashes(table: Any, classes: Any) -> list[str]:
    """Return the hashes of a public table: of its rows, and of its labels if it has some; of a model that of its file."""
    if isinstance(table, EmbeddingClassifier):
        return [sha256(table.to_bytes()).hexdigest()]
    labels = getattr(table, "y", None)
    rows = reading.as_rows(table)
    if labels is None:
        return [hash_of(rows)]
    return [
        hash_of(rows),
        hash_of(
            reading.class_codes(reading.as_labels(labels, rows), classes, "ignore")[
                :, None
            ]
        ),
    ]
