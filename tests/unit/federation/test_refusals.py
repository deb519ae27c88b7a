"""What a coordinator may try at an institution, and an institution at a coordinator: refused, with a reason."""

import functools
import json
import math
import pickle
import re
import shutil

import numpy as np
import pytest

from dppl import GaussianDP, Ledger, MultiLabelPrototypes, SoftmaxPrototypes
from dppl._utils import tensorfile
from dppl.errors import EngineError, ParameterError
from dppl.federation import Federation, InProcess
from dppl.federation.protocol import KEY, Message, answer_to, identity, question
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.lattice import Lattice
from dppl.kernel.mechanisms import sampled
from dppl.methods import LinearProbe
from federated import CLASSES, DIM, NAMES, Way, parties, party, tables

BUDGET = GaussianDP(0.5)


class Stopped(Exception):
    """The coordinator stops here."""


def probe(steps=3, **options):
    return LinearProbe(BUDGET, CLASSES, steps=steps, unknown_labels="ignore", **options)


def said(reply):
    """Return the reason of a refusal."""
    message = Message.parse(reply)
    assert message.kind == "refused", message
    return message.fields["reason"]


def told(kind, plan):
    return Message(kind, {}, {"plan": np.frombuffer(plan, np.uint8)}).to_bytes()


@pytest.fixture
def begun(tmp_path):
    """An institution that has begun a plan of three gradients and a size, with the bytes of the plan."""
    opened = party(tmp_path)

    def stop_at_the_first_ask(name, content, one):
        if Message.parse(content).kind == "ask":
            raise Stopped
        return one(content)

    way = Way({"north": opened}, stop_at_the_first_ask)
    with pytest.raises(Stopped):
        probe().fit(Federation(way, tries=1))
    plan = next(
        Message.parse(one["north"]).tensors["plan"].tobytes() for one in way.sent[1:]
    )
    yield opened, plan
    opened.__exit__()


WEIGHTS = np.zeros((3, DIM))


def test_an_ask_that_is_repeated_gets_the_same_bits_and_never_fresh_noise(begun):
    one, plan = begun
    ask = question(identity(plan), 0, "gradients", {"weights": WEIGHTS, "clip": 1.0})
    first = one(ask)
    assert Message.parse(first).kind == "answer"
    assert one(ask) == first
    # The same question under the next number is another ask, which was paid for, and
    # has other noise.
    second = one(
        question(identity(plan), 1, "gradients", {"weights": WEIGHTS, "clip": 1.0})
    )
    assert not np.array_equal(
        Message.parse(second).tensors["answer"], Message.parse(first).tensors["answer"]
    )
    assert one(ask) == first


def places(value, path=()):
    """Yield where every value of a description is."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inside:
        yield (*path, key)
        if isinstance(one, dict | list):
            yield from places(one, (*path, key))


def lying(content, path, value, monkeypatch):
    """Return a message with another value at one place, as JSON of any kind can have it, and the right checksum."""
    fields, tensors = tensorfile.parsed(content, KEY)
    inner = fields
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with monkeypatch.context() as patch:
        patch.setattr(tensorfile, "as_json", lambda one: json.dumps(one))
        return tensorfile.to_bytes(KEY, fields, tensors)


DEEP = functools.reduce(lambda inner, _: [inner], range(900), [])
# What no honest message holds anywhere.
HARMFUL = [
    "x" * 1001,
    "x\x1b[2J",
    "x\0",
    "\ud800",
    math.nan,
    -math.inf,
    10**400,
    2**63,
    DEEP,
    {"x": DEEP},
    ["x"] * 100_001,
]


def test_texts_and_numbers_that_could_harm_are_refused_wherever_they_stand(
    begun, monkeypatch, capsys
):
    one, plan = begun
    ask = question(identity(plan), 0, "gradients", {"weights": WEIGHTS, "clip": 1.0})
    fields, _ = tensorfile.parsed(plan, KEY)
    wheres = [path for path in places(fields) if path[0] != "format"]
    # Each at one place, and every place with one of them.
    for number, path in enumerate(wheres):
        bad = HARMFUL[number % len(HARMFUL)]
        for kind in ("propose", "begin"):
            reply = one(told(kind, lying(plan, path, bad, monkeypatch)))
            assert said(reply).startswith("the message ")
    assert len(wheres) > len(HARMFUL)
    for path in (("plan",), ("number",), ("name",), ("values", "clip"), ("kind",)):
        for bad in HARMFUL:
            reply = one(lying(ask, path, bad, monkeypatch))
            assert said(reply).startswith("the message ")
    assert capsys.readouterr().err == ""
    # The control: what is honest is agreed on and answered.
    assert Message.parse(one(told("propose", plan))).kind == "agreed"
    assert Message.parse(one(ask)).kind == "answer"


def test_malformed_messages_end_in_a_refusal_and_in_nothing_else(
    begun, monkeypatch, capsys, tmp_path
):
    one, plan = begun
    ask = question(identity(plan), 0, "gradients", {"weights": WEIGHTS, "clip": 1.0})
    finish = Message("finish", {"plan": identity(plan), "model_sha256": "a"}, {})
    rng = np.random.default_rng(0)
    tried = [rng.bytes(n) for n in (0, 1, 8, 100, 10_000)]
    tried += [ask[:cut] for cut in range(0, len(ask), 61)]
    for content in (ask, finish.to_bytes(), told("propose", plan)):
        fields, tensors = tensorfile.parsed(content, KEY)
        for path in [one for one in places(fields) if one != ("format",)]:
            for bad in (None, True, -1, 0.5, "x", [], {}, [[]], {"lattice": {}}):
                tried.append(lying(content, path, bad, monkeypatch))
        for name in tensors:
            for bad in (np.zeros(0), np.zeros((1,) * 30), np.full(3, np.nan)):
                tensors_now = {**tensors, name: bad}
                tried.append(tensorfile.to_bytes(KEY, fields, tensors_now))
    honest = lying(ask, ("values", "clip"), 0.5, monkeypatch)
    assert Message.parse(one(honest)).kind == "answer"
    for content in tried:
        assert content == honest or len(said(one(content))) <= 500
    fields, _ = tensorfile.parsed(plan, KEY)
    kinds = []
    for path in places(fields):
        for bad in ("x", [], {}, [[]], -1, {"lattice": {"n_features": 10**12}}):
            reply = Message.parse(
                one(told("propose", lying(plan, path, bad, monkeypatch)))
            )
            kinds.append((path[0], reply.kind))
            assert len(reply.fields.get("reason", "")) <= 500
    # What names and flags say is the coordinator's to choose: cost and unit follow from
    # the rest, of which only a few values are others that a plan may have.
    chosen = {"parameters", "estimator", "fit", "kind", "multilabel", "public"}
    agreed = {where for where, kind in kinds if kind == "agreed"}
    assert agreed <= chosen | {"whole_persons", "measurements"}
    assert {where for where, kind in kinds if kind == "refused"} > {"budget", "parties"}
    assert capsys.readouterr().err == ""
    assert len(Ledger(tmp_path / "north.db", "wards").releases()) == 1


def test_a_plan_holds_no_samples_and_none_is_accounted_for(begun, monkeypatch):
    one, plan = begun

    def accounted(*_, **__):
        raise AssertionError("this takes long")

    monkeypatch.setattr(sampled, "sampled_gaussian_multiplier", accounted)
    number = next(
        number
        for number, given in enumerate(Message.parse(plan).fields["measurements"])
        if given["query"] == "SoftmaxGradients"
    )
    path = ("measurements", number, "values", "sampling_rate")
    for rate in (0.5, 1e-9):
        forged = lying(plan, path, rate, monkeypatch)
        assert "never of samples" in said(one(told("propose", forged)))
    same = lying(plan, path, 1.0, monkeypatch)
    assert Message.parse(one(told("propose", same))).kind == "agreed"


def test_a_plan_of_very_many_measurements_is_refused(begun, monkeypatch):
    one, plan = begun
    given = Message.parse(plan).fields["measurements"]
    many = [{**given[-1], "name": f"more{number}"} for number in range(101)]
    forged = lying(plan, ("measurements",), many, monkeypatch)
    assert "more than 100 measurements" in said(one(told("propose", forged)))


@pytest.mark.parametrize(
    ("fact", "lie"),
    [
        ("at_most", 0),
        ("at_most", None),
        ("at_most", "many"),
        ("n_features", {}),
        ("n_features", 0.5),
        ("n_features", -1),
        ("unit", None),
        ("unit", ["record"]),
        ("encoder", {"a": 1}),
    ],
)
def test_institutions_that_describe_themselves_wrongly_are_named(fact, lie, tmp_path):
    def spoil(name, content, one):
        fields = Message.parse(one(content)).fields
        return Message("described", fields | {fact: lie}, {}).to_bytes()

    with parties(tmp_path) as opened, pytest.raises(ParameterError):
        Federation(Way(opened, spoil), tries=1).names  # noqa: B018
    with parties(tmp_path) as opened:
        assert Federation(InProcess(opened), tries=1).n_features == DIM


def test_asks_that_were_not_agreed_on_are_refused_and_cost_nothing(begun, tmp_path):
    one, plan = begun
    name = identity(plan)
    fine = {"weights": WEIGHTS, "clip": 1.0}
    assert Message.parse(one(question(name, 0, "gradients", fine))).kind == "answer"
    tried = [
        (
            question(name, 0, "gradients", {"weights": WEIGHTS + 1, "clip": 1.0}),
            "answered to another question",
        ),
        (question(name, 0, "size", {}), "answered to another question"),
        (question(name, 2, "gradients", fine), "the next ask is number 1"),
        (question(name, -1, "gradients", fine), "the next ask is number 1"),
        (question(name, 1, "sums", {}), "was not declared"),
        (
            question(name, 1, "gradients", {"weights": WEIGHTS[:2], "clip": 1.0}),
            "must have the shape",
        ),
        (question(name, 1, "gradients", {}), "TypeError"),
        (
            question(name, 1, "gradients", {"weights": WEIGHTS * np.nan, "clip": 1.0}),
            "must be finite",
        ),
        (
            question(name, 1, "gradients", {"weights": WEIGHTS + 1e300, "clip": 1.0}),
            "at most 2[*][*]90",
        ),
        (
            question(name, 1, "gradients", {"weights": WEIGHTS, "clip": 0.0}),
            "clip must lie",
        ),
        (question(name, 1, "gradients", {**fine, "records": 1}), "TypeError"),
        (
            question(name, 1, "gradients", {**fine, "at": Lattice(DIM + 1)}),
            "another map",
        ),
        # Rows of no institution fit, so an institution without any would answer, and
        # one with a row would fail.
        (
            question(name, 1, "gradients", {**fine, "at": Lattice(2 * DIM, pool=2)}),
            "another map",
        ),
        (question("0" * 64, 0, "gradients", fine), "no plan of this name"),
        (question("../../x", 0, "gradients", fine), "no plan of this name"),
        (b"garbage", "damaged"),
        (Message("run", {}, {}).to_bytes(), "no message"),
        (
            Message("finish", {"plan": name, "model_sha256": "x"}, {}).to_bytes(),
            "no hash",
        ),
    ]
    for content, reason in tried:
        assert re.search(reason, said(one(content))), reason
    # None of these was spent: what was declared is answered, and then no more.
    for number, ask in enumerate(("size", "gradients", "gradients"), 1):
        given = {} if ask == "size" else fine
        assert Message.parse(one(question(name, number, ask, given))).kind == "answer"
    assert "declared for 3 asks, and all are answered" in said(
        one(question(name, 4, "gradients", fine))
    )
    (paid,) = Ledger(tmp_path / "north.db", "wards").releases()
    assert paid["cost"]["mu"] <= 0.5


def changed(plan, change):
    """Return a plan in which the coordinator changed something."""
    message = Message.parse(plan)
    fields = json.loads(json.dumps(message.fields))
    change(fields, fields["measurements"][0])
    return Message("plan", fields, message.tensors).to_bytes()


PLANS = [
    (lambda plan, one: one.update(times=99), "noise or cost differs"),
    (lambda plan, one: one.update(percent=1e-3), "noise or cost differs"),
    (lambda plan, one: one.update(percent=-1), "percent must"),
    (lambda plan, one: plan.update(budget={"mu": 50.0}), "noise or cost differs"),
    (
        lambda plan, one: plan["releases"][0]["parameters"].update(noise_std=1.0),
        "noise or cost differs",
    ),
    (lambda plan, one: plan.update(measurements=[]), "noise or cost differs"),
    (lambda plan, one: plan.update(measurements=[], releases=[]), "asks nothing"),
    (lambda plan, one: plan["measurements"].append(one), "the same name"),
    (
        lambda plan, one: one.update(query="PublicClassSizes", values={"n_classes": 3}),
        "no query that adds up",
    ),
    (lambda plan, one: one.update(query="HeldRecords"), "no query that adds up"),
    (lambda plan, one: one["values"].update(n_classes=2), "must be of 3 classes"),
    (lambda plan, one: one["values"].update(n_classes=True), "other parameters"),
    (lambda plan, one: one["values"].update(bias=-1), "below what it may be"),
    (
        lambda plan, one: one["values"]["lattice"]["lattice"].update(n_features=9),
        "stated width",
    ),
    (
        lambda plan, one: one["values"]["lattice"]["lattice"].update(n_features=-9),
        "n_features must",
    ),
    (lambda plan, one: one["values"].update(path="/etc/passwd"), "other parameters"),
    (lambda plan, one: plan.update(adjacency="replace-one"), "under add-remove alone"),
    (lambda plan, one: plan.update(classes=["a", "b", "d"]), "another class list"),
    (lambda plan, one: plan.update(classes=["a", "b", "b"]), "class list"),
    (
        lambda plan, one: plan.update(unit="person"),
        "noise or cost differs|another unit",
    ),
    (lambda plan, one: plan.update(parties=["south"]), "does not name"),
    (lambda plan, one: plan.update(public={"public rows": "0" * 64}), "does not know"),
    (lambda plan, one: plan.update(encoder_sha256="0" * 64), "another encoder"),
    (lambda plan, one: plan.update(dppl="9.9"), "it is of dppl 9.9"),
    (
        lambda plan, one: plan.update(multilabel=True),
        "another class list, or other labels|must be of 3 classes",
    ),
    (lambda plan, one: plan.update(max_classes_per_person=10**9), "for persons"),
    (
        lambda plan, one: plan.update(max_classes_per_person=-1, unit="person"),
        "for persons",
    ),
    (lambda plan, one: plan.pop("budget"), "cannot be read"),
    (lambda plan, one: plan.update(unit="patient"), "cannot be read"),
    (lambda plan, one: one.update(statistic="a sum"), "cannot be read"),
    (lambda plan, one: one.update(statistic={"code": "unheard_of"}), "cannot be read"),
]


def test_plans_that_are_not_whole_or_dearer_or_of_another_kind_are_refused(
    begun, tmp_path
):
    one, plan = begun
    for change, reason in PLANS:
        for kind in ("propose", "begin"):
            text = said(one(told(kind, changed(plan, change))))
            assert any(part in text for part in reason.split("|")), (reason, text)
    assert len(Ledger(tmp_path / "north.db", "wards").releases()) == 1


def test_persons_of_multilabel_enter_as_a_whole(tmp_path):
    """A person with thirty records counts once, in whatever form the coordinator asks; before, the ask failed late."""
    X, y, _ = tables()["north"]
    data = X, np.array(CLASSES)[None] == y[:, None], np.zeros(len(X), int)
    with party(tmp_path, data=data, persons=True, several=MultiLabel()) as one:
        way = Way({"north": one}, lambda name, content, held: held(content))
        MultiLabelPrototypes(BUDGET, CLASSES, unknown_labels="ignore").fit(
            Federation(way)
        )
        plan = next(
            Message.parse(sent["north"]).tensors["plan"].tobytes()
            for sent in way.sent[1:]
        )
        in_rows = changed(plan, lambda fields, _: fields.update(whole_persons=False))
        assert "enter as a whole" in said(one(told("propose", in_rows)))


def test_no_plan_hides_from_the_ledger_that_its_answers_must_not_be_released(
    begun, tmp_path
):
    _, plan = begun
    hidden = changed(
        plan, lambda fields, _: fields["parameters"].update(secure_noise=True)
    )
    with party(tmp_path, state=tmp_path / "seeded", random_state=1) as seeded:
        assert Message.parse(seeded(told("begin", hidden))).kind == "begun"
    assert (
        Ledger(tmp_path / "north.db", "wards").releases()[-1]["parameters"][
            "secure_noise"
        ]
        is False
    )


def test_a_plan_may_cost_no_more_than_the_policy_or_the_account_allows(tmp_path, begun):
    _, plan = begun
    with_limit = party(
        tmp_path, "north", state=tmp_path / "other", limit=GaussianDP(0.4)
    )
    assert "costs more than mu = 0.4" in said(with_limit(told("propose", plan)))
    (tmp_path / "poor").mkdir()
    poor = party(tmp_path / "poor", budget=0.3)
    assert "has 0.3 left" in said(poor(told("propose", plan)))
    assert "has 0.3 left" in said(poor(told("begin", plan)))


def test_an_old_plan_that_is_played_again_gets_its_old_answers_and_no_charge(
    begun, tmp_path
):
    one, plan = begun
    ask = question(identity(plan), 0, "gradients", {"weights": WEIGHTS, "clip": 1.0})
    first = one(ask)
    one.__exit__()
    again = party(tmp_path)
    assert Message.parse(again(told("begin", plan))).kind == "begun"
    assert again(ask) == first
    assert len(Ledger(tmp_path / "north.db", "wards").releases()) == 1


def test_a_folder_that_was_rolled_back_or_copied_answers_no_more(begun, tmp_path):
    one, plan = begun
    name = identity(plan)
    asks = [
        question(name, number, "gradients", {"weights": WEIGHTS, "clip": 1.0})
        for number in range(3)
    ]
    one(asks[0])
    copied = tmp_path / "copy"
    shutil.copytree(tmp_path / "north-state", copied)
    one(asks[1])
    older = party(tmp_path, state=copied)
    assert "rolled back or copied" in said(older(asks[1]))
    older.__exit__()
    # Another process that has answered from a copy since this one looked.
    shutil.rmtree(copied)
    shutil.copytree(tmp_path / "north-state", copied)
    twin = party(tmp_path, state=copied)
    assert Message.parse(twin(asks[1])).kind == "answer"
    assert Message.parse(one(asks[2])).kind == "answer"
    for _ in range(2):
        assert "rolled back or copied" in said(twin(asks[2]))
    twin.__exit__()
    assert "rolled back or copied" in said(party(tmp_path, state=copied)(asks[2]))


def test_a_copy_that_was_killed_before_its_answer_was_noted_does_not_give_it(
    begun, tmp_path, monkeypatch
):
    one, plan = begun
    ask = question(identity(plan), 0, "gradients", {"weights": WEIGHTS, "clip": 1.0})
    copied = tmp_path / "copy"
    shutil.copytree(tmp_path / "north-state", copied)
    with monkeypatch.context() as patch, party(tmp_path, state=copied) as twin:

        def killed(*_, **__):
            raise KeyboardInterrupt

        patch.setattr(Ledger, "begin_step", killed)
        with pytest.raises(KeyboardInterrupt):
            twin(ask)
    assert (copied / identity(plan) / "00000.answer").exists()
    first = one(ask)
    assert Message.parse(first).kind == "answer"
    # The ledger knows of one answer, and here is one, but another.
    with party(tmp_path, state=copied) as twin:
        assert "rolled back or copied" in said(twin(ask))
    one.__exit__()
    with party(tmp_path) as again:
        assert again(ask) == first


def test_what_stops_at_a_row_stops_with_records_and_without(
    begun, tmp_path, monkeypatch
):
    _, plan = begun

    def exact(query, blocks, codes, **at):
        for block in blocks:
            block[0] / "no number"
        return np.zeros((3, DIM), np.int64)

    monkeypatch.setattr("dppl.kernel.queries.SoftmaxGradients.exact", exact)
    X, y, _ = tables()["north"]
    ask = question(identity(plan), 0, "gradients", {"weights": WEIGHTS, "clip": 1.0})
    reasons = set()
    for n in (0, len(X)):
        with party(
            tmp_path, state=tmp_path / f"of-{n}", data=(X[:n], y[:n], None)
        ) as one:
            one(told("begin", plan))
            reasons.add(said(one(ask)))
    (reason,) = reasons
    assert "cannot be asked so" in reason


def test_a_lost_folder_pays_again_for_fresh_noise(begun, tmp_path):
    _, plan = begun
    other = party(tmp_path, state=tmp_path / "new")
    assert "no plan of this name" in said(
        other(question(identity(plan), 0, "size", {}))
    )
    assert Message.parse(other(told("begin", plan))).kind == "begun"
    assert len(Ledger(tmp_path / "north.db", "wards").releases()) == 2


def test_two_processes_do_not_answer_from_one_folder(tmp_path):
    first = party(tmp_path)
    with pytest.raises(Exception, match="in use by another process"):
        party(tmp_path)
    first.__exit__()
    party(tmp_path)


def test_an_error_of_the_records_is_told_to_nobody_but_the_operator(tmp_path, capsys):
    X, y, _ = tables()["north"]
    opened = {"north": party(tmp_path, data=(X, [*y[:-1], object()], None))}
    # A label that is no label is of no class, and no reason to stop.
    assert probe().fit(Federation(InProcess(opened))).coef_.shape == (3, DIM)
    opened["north"]._data = (X, "secret", None)
    with pytest.raises(EngineError) as caught:
        probe().fit(Federation(InProcess(opened), tries=1))
    assert "its operator sees why" in str(caught.value)
    assert "secret" not in str(caught.value) + capsys.readouterr().err


# What an institution may send


def edited(reply, **fields):
    message = Message.parse(reply)
    return Message(message.kind, message.fields | fields, message.tensors).to_bytes()


def replaced(reply, change):
    message = Message.parse(reply)
    return Message(
        message.kind, message.fields, {"answer": change(message.tensors["answer"])}
    ).to_bytes()


BAD = [
    (lambda reply: b"", "damaged"),
    (lambda reply: b"\x00" * 100, "damaged"),
    (lambda reply: reply[:-1], "damaged"),
    (lambda reply: None, "no answer came in time"),
    (lambda reply: replaced(reply, lambda a: a.astype(np.float64)), "another form"),
    (lambda reply: replaced(reply, lambda a: np.full(a.shape, np.nan)), "another form"),
    (lambda reply: replaced(reply, lambda a: a[:1]), "another form"),
    (
        lambda reply: replaced(reply, lambda a: np.full(a.shape, 2**62)),
        "longer than the number of records",
    ),
    (
        lambda reply: replaced(reply, lambda a: np.full(a.shape, -(2**63))),
        "longer than the number of records",
    ),
    (lambda reply: edited(reply, plan="0" * 64), "answers another question"),
    (lambda reply: edited(reply, number=99), "answers another question"),
    (lambda reply: edited(reply, question="0" * 64), "answers another question"),
    (
        lambda reply: Message("refused", {"reason": "no"}, {}).to_bytes(),
        "it refuses: no",
    ),
    (lambda reply: Message("begun", {}, {}).to_bytes(), "something else"),
]


def spoilt(bad, at=2, names=("south",)):
    def spoil(name, content, one):
        reply = one(content)
        asked = Message.parse(content)
        wrong = name in names and asked.kind == "ask" and asked.fields["number"] >= at
        return bad(reply) if wrong else reply

    return spoil


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_bad_answer_stops_the_fit_and_names_who_gave_it(bad, reason, tmp_path):
    with parties(tmp_path, NAMES[:2]) as opened:
        way = Way(opened, spoilt(bad))
        with pytest.raises(
            EngineError, match=f"south does not answer ask 3: .*{reason}"
        ):
            probe().fit(Federation(way))
    assert len(way.sent) == 3 + 2 + 3  # each ask that failed was tried three times
    assert [set(one) for one in way.sent[-2:]] == [{"south"}] * 2  # of who failed alone


def test_after_a_stop_the_fit_goes_on_where_it_was_and_ends_as_if_it_had_not(tmp_path):
    with parties(tmp_path, random_state=3) as opened:
        whole = probe().fit(Federation(InProcess(opened)))
    (tmp_path / "other").mkdir()
    again = pytest.raises(EngineError, match="Fit again with the same folder to go on")
    with parties(tmp_path / "other", random_state=3) as opened, again:
        probe().fit(
            Federation(Way(opened, spoilt(lambda reply: None)), state=tmp_path / "fit")
        )
    with parties(tmp_path / "other", random_state=3) as opened:
        resumed = probe().fit(Federation(InProcess(opened), state=tmp_path / "fit"))
        assert resumed.coef_.tobytes() == whole.coef_.tobytes()
        with pytest.raises(ParameterError, match="state holds another fit"):
            probe(clip=0.5).fit(Federation(InProcess(opened), state=tmp_path / "fit"))
    for name in NAMES:
        assert len(Ledger(tmp_path / "other" / f"{name}.db", "wards").releases()) == 1


def test_a_fit_may_continue_without_one_that_left_at_step_nine_and_says_so(tmp_path):
    with parties(tmp_path) as opened:
        way = Way(opened, spoilt(lambda reply: None, at=8))
        model = probe(steps=12).fit(
            Federation(way, missing="continue", state=tmp_path / "fit")
        )
        assert model.guarantee_.parties == ("north", "south", "west")
        assert model.guarantee_.left == {"south": 9}
        assert "south, without its answers from ask 9 on" in str(model.guarantee_)
        assert all(
            "south" not in one for one in way.sent[-5:]
        )  # whoever left is not asked again
        # Whoever goes on from the folder keeps to it, whether it came back or is gone
        # for good.
        for way in (
            InProcess(opened),
            Way(
                opened,
                lambda name, content, one: None if name == "south" else one(content),
            ),
        ):
            again = probe(steps=12).fit(
                Federation(way, missing="continue", state=tmp_path / "fit")
            )
            assert again.to_bytes() == model.to_bytes()
        with pytest.raises(EngineError, match="north does not answer ask 3"):
            probe().fit(
                Federation(
                    Way(opened, spoilt(lambda reply: None, names=NAMES)),
                    missing="continue",
                )
            )


def test_nobody_is_charged_where_one_refuses_the_plan(tmp_path):
    with parties(tmp_path) as opened:
        opened["west"].__exit__()
        opened["west"] = party(tmp_path, "west", limit=GaussianDP(0.1))
        with pytest.raises(EngineError, match="west: it refuses: the plan costs more"):
            probe().fit(Federation(InProcess(opened)))
    assert not any(
        Ledger(tmp_path / f"{name}.db", "wards").releases() for name in NAMES
    )


def test_no_honest_answer_exceeds_the_bound_of_its_sender(tmp_path):
    """All records have one class and direction, so sums are as long as can be; the bound fails with e^-50 at most."""
    X = np.tile(np.eye(1, DIM), (1000, 1))
    y = ["a"] * 1000
    with parties(tmp_path, NAMES[:1], data=(X, y, None), at_most=1000) as opened:
        SoftmaxPrototypes(GaussianDP(2), CLASSES, unknown_labels="ignore").fit(
            Federation(InProcess(opened))
        )
    # The control: as many records as twice the stated number are too many.
    (tmp_path / "more").mkdir()
    too_long = pytest.raises(EngineError, match="longer than the number of records")
    with (
        parties(tmp_path / "more", NAMES[:1], data=(X, y, None), at_most=400) as opened,
        too_long,
    ):
        SoftmaxPrototypes(GaussianDP(2), CLASSES, unknown_labels="ignore").fit(
            Federation(InProcess(opened))
        )


def test_plans_and_asks_hold_no_code(tmp_path):
    """A pickle, or anything else that is no safetensors file, is refused before it is looked into."""

    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("ran code",))

    assert "damaged" in said(party(tmp_path)(pickle.dumps(Bomb())))
    assert answer_to(b"", "p", 0, np.zeros(1, np.int64))[8:9] == b"{"
