"""A fit pays before it looks at anything private or draws, whatever becomes of it. One that cannot pay does neither."""

import hashlib
import json
import sqlite3

import numpy as np
import pytest

from dppl import ApproxDP, GaussianDP, Ledger, PureDP
from dppl.errors import BudgetExceeded, InputError, ParameterError, UnknownLabelError
from dppl.kernel import reading
from dppl.kernel.lattice import Lattice
from dppl.kernel.mechanisms.randomness import (
    SeededRandomness,
    SystemRandomness,
    randomness,
)
from dppl.kernel.privacy import ZCDP
from dppl.kernel.privacy.ledger import CHARGED as PAID
from dppl.kernel.privacy.ledger import UNSAVED
from dppl.methods import base
from laws.ledgers import content_without_times, spy_on
from laws.recipes import FIRST, SHARED_CHARGED, Table, each

DRAWING = [
    (source, name)
    for source in (SystemRandomness, SeededRandomness)
    for name in ("below", "bits", "rounded_gaussian")
]
QUARTER = ZCDP(0.25)


def account(file, kind, budget=None):
    return Ledger(file, "wards", budget or ZCDP(1.0), adjacency=kind.adjacency)


def check_order(kind, file, seed=None):
    """Look at the ledger whenever records are read or mapped, labels are compared, or a value is drawn."""
    account(file, kind)
    X, y = kind.records()
    estimator = kind.make(QUARTER, random_state=seed)
    seen = []

    def look(what):
        # Another connection: it sees only what has been committed.
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
            seen.append(
                (
                    what,
                    connection.execute(
                        "SELECT status, cost FROM dppl_releases"
                    ).fetchall(),
                )
            )
        connection.close()

    # Without public rows all that is mapped is private.
    names = (
        ()
        if kind.recipe.public or kind.recipe.examples
        else ("transform", "_map", "blocks")
    )
    mapping = [(Lattice, name) for name in names]
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in [
            (reading, "class_codes"),
            (kind.cls, "learn"),
            *DRAWING,
            *mapping,
        ]:
            spy_on(patch, owner, name, look)
        estimator.fit(Table(X, lambda: look("rows")), y, ledger=Ledger(file, "wards"))
    # Labels are matched of records whose row can be used, where the others are left
    # out.
    assert seen[0][0] == ("rows" if kind.adjacency == "add-remove" else "class_codes")
    what = {what for what, _ in seen}
    assert {"rows", "learn"} <= what
    assert what & {name for _, name in DRAWING}
    for _, releases in seen:
        assert {status for status, _ in releases} == {PAID}
        assert all(json.loads(cost)["rho"] > 0 for _, cost in releases)


@each(SHARED_CHARGED)
def test_the_charge_is_on_record_before_anything_private_is_looked_at_or_drawn(
    kind, tmp_path
):
    check_order(kind, tmp_path / "ledger.db")


@each(SHARED_CHARGED)
def test_so_it_is_in_a_seeded_fit(kind, tmp_path):
    check_order(kind, tmp_path / "ledger.db", seed=1)


def draw_early(*arguments):
    randomness(None).rounded_gaussian(1.0, (1,))
    return _charge(*arguments)


def read_early(*arguments):
    reading.class_codes(np.array(["a"]), np.array(["a"]), "ignore")
    return _charge(*arguments)


_charge = base.charge


@pytest.mark.parametrize("fault", [draw_early, read_early])
def test_whatever_comes_before_the_charge_is_noticed(fault, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "charge", fault)
    with pytest.raises(AssertionError):
        check_order(FIRST[0], tmp_path / "ledger.db")


@each(SHARED_CHARGED)
def test_a_refused_fit_draws_nothing_reads_nothing_and_writes_nothing(
    kind, tmp_path, monkeypatch
):
    file = tmp_path / "ledger.db"
    X, y = kind.records()
    estimator = kind.make(QUARTER, random_state=None)
    ledger = account(file, kind, ZCDP(0.375))
    estimator.fit(X, y, ledger=ledger)
    before = ledger.to_dict()
    content = file.read_bytes()

    def never(what="rows"):
        raise AssertionError(f"{what} was called")

    for owner, method in [(reading, "class_codes"), (kind.cls, "learn"), *DRAWING]:
        spy_on(monkeypatch, owner, method, never)
    with pytest.raises(BudgetExceeded) as caught:
        estimator.fit(Table(X, never), y, ledger=ledger)
    assert "0.375" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ledger.to_dict() == before
    assert file.read_bytes() == content
    assert not [
        name for name in vars(estimator) if name.endswith("_") or name == "_fitted_with"
    ]
    with pytest.raises(
        AssertionError, match="class_codes was called"
    ):  # the spies are in place
        estimator.fit(X, y)


@pytest.mark.slow
@each(SHARED_CHARGED)
def test_an_account_of_any_notion_is_charged_what_the_guarantee_says(kind, tmp_path):
    for number, budget in enumerate((ZCDP(2.0), GaussianDP(2.0), ApproxDP(9.0, 1e-6))):
        ledger = account(tmp_path / f"{number}.db", kind, budget)
        model = kind.fit(*kind.records(), budget=QUARTER, given={"ledger": ledger})
        (entry,) = ledger.releases()
        assert entry["cost"]["mu"] == model.guarantee_.mu
        assert entry["estimator"] == kind.entry.name
        assert (entry["status"], entry["model_sha256"]) == (
            UNSAVED,
            hashlib.sha256(model.to_bytes()).hexdigest(),
        )
        if number == 1:
            assert ledger.spent() == {"mu": model.guarantee_.mu}
        *_, charge = model.guarantee_.charges
        assert charge.dataset == "wards"
        assert f"wards, release {charge.number}" in str(model.guarantee_)
    ledger = account(tmp_path / "pure.db", kind, PureDP(2.0))
    fit = lambda: kind.fit(*kind.records(), budget=QUARTER, given={"ledger": ledger})  # noqa: E731
    if kind.entry.pure:
        fit()
        assert 0 < ledger.spent()["epsilon"] <= QUARTER.selection_epsilon()
    else:
        with pytest.raises(BudgetExceeded, match="Gaussian"):
            fit()


ERRORS = [RuntimeError("gone"), MemoryError(), KeyboardInterrupt()]


def check_a_fit_that_dies(kind, file):
    """A fit that dies before its mechanisms are used, or after, leaves no model and stays paid."""
    X, y = kind.records()
    estimator = kind.make(QUARTER, random_state=None)
    ledger = account(file, kind)

    def learned():
        return [
            name
            for name in vars(estimator)
            if name.endswith("_") or name == "_fitted_with"
        ]

    estimator.fit(X, y)  # a refit must not leave the earlier model
    whole = kind.cls.learn
    reached = []

    def learn(self, *arguments):
        if len(reached) % 2:
            whole(self, *arguments)
        reached.append(learned())
        raise ERRORS[len(reached) - 1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind.cls, "learn", learn)
        for count in (1, 2, 3):
            with pytest.raises(type(ERRORS[count - 1])):
                estimator.fit(X, y, ledger=ledger)
            assert learned() == []
            assert len(reached) == count
            assert {"classes_", "lattice_", "guarantee_"} <= set(reached[-1])
            assert [release["status"] for release in ledger.releases()] == [
                PAID
            ] * count
    spent = ledger.spent()["rho"]
    assert 0.7 < spent <= 0.75
    estimator.fit(X, y, ledger=ledger)
    assert ledger.spent()["rho"] > 1.3 * spent
    with pytest.raises(BudgetExceeded):
        estimator.fit(X, y, ledger=ledger)
    assert learned() == []


@each(SHARED_CHARGED)
def test_a_fit_that_dies_after_the_charge_leaves_no_model_and_stays_paid(
    kind, tmp_path
):
    check_a_fit_that_dies(kind, tmp_path / "ledger.db")


def test_a_model_that_is_left_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "forget", lambda estimator: None)
    with pytest.raises(AssertionError):
        check_a_fit_that_dies(FIRST[0], tmp_path / "ledger.db")


def test_a_charge_that_is_taken_back_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(
        base, "charge", lambda ledger, partition, guarantee, *others: (guarantee, None)
    )
    with pytest.raises(AssertionError):
        check_a_fit_that_dies(FIRST[0], tmp_path / "ledger.db")


@each(SHARED_CHARGED)
def test_a_fit_that_stops_at_an_unknown_label_has_paid_and_leaves_no_model(
    kind, tmp_path
):
    file = tmp_path / "ledger.db"
    X, y = kind.records()
    ledger = account(file, kind)
    model = kind.fit(X, y, budget=QUARTER)
    with pytest.raises(UnknownLabelError):
        model.fit(X, np.append(y[:-1], "Jane"), ledger=ledger)
    assert not [
        name for name in vars(model) if name.endswith("_") or name == "_fitted_with"
    ]
    (release,) = ledger.releases()
    assert (release["status"], release["released_at"], release["model_sha256"]) == (
        PAID,
        None,
        None,
    )
    assert 0.2 < ledger.spent()["rho"] <= 0.25
    assert b"Jane" not in file.read_bytes()


@each(SHARED_CHARGED)
def test_a_fit_whose_parameters_or_shapes_are_wrong_pays_nothing(kind, tmp_path):
    X, y = kind.records()
    ledger = account(tmp_path / "ledger.db", kind)
    for arguments in (
        (X, y[:-1]),
        (X[0], y),
        (X, y.reshape(2, -1)),
        (X[:, :0], y),
        (X[:, :, None], y),
    ):
        with pytest.raises(InputError):
            kind.fit(*arguments, budget=QUARTER, given={"ledger": ledger})
    with pytest.raises(ParameterError):
        kind.fit(X, y, budget=QUARTER, unknown_labels="drop", given={"ledger": ledger})
    with pytest.raises(ParameterError):
        kind.fit(X, y, budget=0.25, given={"ledger": ledger})
    with pytest.raises(ParameterError):
        kind.fit(X, y, budget=QUARTER, classes=["a", "a"], given={"ledger": ledger})
    with pytest.raises((InputError, ParameterError)):
        kind.fit(
            X,
            y,
            budget=QUARTER,
            given={"ledger": ledger},
            public=kind.public_data(rows=np.ones((9, kind.dim - 1))),
        )
    with pytest.raises(ParameterError, match="public"):
        kind.fit(
            X,
            y,
            budget=QUARTER,
            given={"ledger": ledger},
            public=kind.public_data(rows=X),
        )
    assert ledger.releases() == []


@each(SHARED_CHARGED)
def test_neighbours_leave_the_same_ledger_but_for_times_and_the_released_model(
    kind, tmp_path
):
    # The hash is that of the released model, which differs as much as the mechanism
    # lets it.
    X, y = kind.records()
    if kind.adjacency == "add-remove":
        changed = [
            (np.vstack([X, 7 * X[:1]]), np.append(y, "b")),
            (np.vstack([X, X[:1] * np.nan]), [*y, "a"]),
        ]
    else:
        changed = [(np.vstack([row, X[1:]]), y) for row in (-X[:1], X[:1] * np.nan)]
    contents = []
    models = []
    for place, (rows, labels) in enumerate([(X, y), *changed]):
        ledger = account(tmp_path / f"{place}.db", kind)
        given = {"ledger": ledger}
        # Parts are of add-remove, and share no record.
        if (
            kind.adjacency == "add-remove"
            and getattr(kind.make(), "tasks", "disjoint") == "disjoint"
        ):
            given["partition"] = "north"
        model = kind.fit(rows, labels, budget=QUARTER, random_state=3, given=given)
        content = content_without_times(tmp_path / f"{place}.db")
        models.append(
            {release.pop("model_sha256") for release in content["dppl_releases"]}
        )
        contents.append(content)
        assert models[-1] == {hashlib.sha256(model.to_bytes()).hexdigest()}
    assert set(contents[0]) == {"dppl_datasets", "dppl_releases", "dppl_schema"}
    assert contents[0] == contents[1] == contents[2]
    if not kind.entry.pure:
        assert models[0] != models[1]  # the changed record was read


@each(SHARED_CHARGED)
def test_neighbours_whose_fits_fail_leave_the_same_ledger(kind, tmp_path):
    X, y = kind.records()
    contents = []
    for place, labels in enumerate(
        (np.append(y[:-1], "Jane"), np.append(y[:-2], ["John", "Jane"]))
    ):
        ledger = account(tmp_path / f"{place}.db", kind)
        with pytest.raises(UnknownLabelError):
            kind.fit(X, labels, budget=QUARTER, given={"ledger": ledger})
        contents.append(content_without_times(tmp_path / f"{place}.db"))
        assert b"Jane" not in (tmp_path / f"{place}.db").read_bytes()
    assert contents[0] == contents[1]
