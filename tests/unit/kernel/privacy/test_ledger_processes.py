"""40 processes that charge one ledger at once, 8 of them killed: never overspent, never under-counted."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

import dppl
from dppl._utils.files import remove_left
from dppl.errors import BudgetExceeded, LedgerError
from dppl.kernel.privacy import ZCDP, Cost
from dppl.kernel.privacy import ledger as ledger_module
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.ledger import CHARGED, RELEASED, UNSAVED, Ledger, accounts

PROCESSES = 40
KILLED = 8
AT_ONCE = 8

# Forks a child for each fit, so that everything is imported once. Half of the victims
# are killed by us after a random time, which hits the inside of SQLite too; half kill
# themselves at a random call of their Python code, which does not depend on how fast
# the machine is.
CHILDREN = """
import json, os, random, signal, sys, time
import numpy as np
import dppl
from dppl.errors import BudgetExceeded
from dppl.kernel.mechanisms.gaussian import RoundedGaussian
from dppl.kernel.privacy.ledger import Ledger

url, processes, killed, at_once = sys.argv[1], *map(int, sys.argv[2:])
rng = random.Random(0)
X, y = np.vstack([np.eye(4), -np.eye(4)]), np.repeat([0, 1], 4)
rhos = [rng.uniform(0.005, 0.015) for _ in range(processes)]

def fit(i, dataset="wards"):
    ledger = Ledger(url, dataset)
    model = dppl.MeanPrototypes(dppl.ZCDP(rhos[i]), classes=[0, 1]).fit(X, y, ledger=ledger)
    model.save(f"{dataset}-{i}.safetensors")

calls = 0

def count(frame, event, argument):
    global calls
    calls += 1

def measured(rehearsal):
    global calls
    Ledger(url, rehearsal, dppl.ZCDP(1.0))
    fit(0, rehearsal)  # imports what is imported late
    started, calls = time.perf_counter(), 0
    sys.setprofile(count)
    fit(1, rehearsal)
    sys.setprofile(None)
    return time.perf_counter() - started

duration, length = measured("rehearsal"), calls
Ledger(url, "wards", dppl.ZCDP(0.01 * 0.75 * processes))
# Among the first, because later ones are refused before they come far.
victims = rng.sample(range(processes * 7 // 10), killed)
victims.sort(reverse=True)
# These die between charge and release; the very first, whom the budget cannot refuse.
at_draw = [victims.pop() for _ in range(max(1, killed // 10))]
call_of = {i: rng.randrange(length) for i in victims[::2]}
moment_of = {i: rng.uniform(0, duration * at_once / 2) for i in victims[1::2]}

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def child(i):
    def die_at_call(frame, event, argument):
        global calls
        calls += 1
        if calls > call_of[i]:
            die()
    global calls
    calls = 0
    if i in at_draw:
        RoundedGaussian.release = die
    if i in call_of:
        sys.setprofile(die_at_call)
    try:
        fit(i)
    except BudgetExceeded:
        os._exit(3)
    os._exit(0)

codes, running, waiting = {}, {}, list(range(processes))
started = time.perf_counter()
while waiting or running:
    while waiting and len(running) < at_once:
        i = waiting.pop(0)
        pid = os.fork()
        if pid == 0:
            try:
                child(i)
            finally:
                os._exit(1)
        running[i] = pid, time.perf_counter() + moment_of.get(i, float("inf"))
    for i, (pid, moment) in list(running.items()):
        if time.perf_counter() >= moment:
            os.kill(pid, signal.SIGKILL)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            codes[i] = os.waitstatus_to_exitcode(status)
            del running[i]
    time.sleep(0.002)
seconds = time.perf_counter() - started
outcome = {"certain": [*at_draw, *call_of], "by_time": list(moment_of)}
print(json.dumps({"codes": codes, "rhos": rhos, **outcome, "seconds": seconds}))
"""


def fit_in_many_processes(url, folder):
    """Run the children; return what became of each and what it wanted to spend."""
    # Forking is what this test wants; from 3.12 on Python warns of it.
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        CHILDREN,
        url,
        *map(str, (PROCESSES, KILLED)),
    ]
    done = subprocess.run(
        [*command, str(AT_ONCE)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    outcome = json.loads(done.stdout)
    outcome["codes"] = {int(i): code for i, code in outcome["codes"].items()}
    return outcome


def check_the_books(url, folder, outcome):
    """Compare the ledger with the model files that exist; return the numbers of released, killed, refused."""
    codes = outcome["codes"]
    rhos = outcome["rhos"]
    of_code = {
        code: {i for i, c in codes.items() if c == code}
        for code in (0, 3, -signal.SIGKILL)
    }
    finished, refused, killed = of_code.values()
    assert len(codes) == len(finished) + len(refused) + len(killed) == PROCESSES
    assert killed <= {*outcome["certain"], *outcome["by_time"]}
    # A late one may be refused before it comes to the place where it would die, but
    # none of them finishes.
    assert not set(outcome["certain"]) & finished

    ledger = Ledger(url, "wards")
    releases = ledger.releases()
    child_of = {
        rho: i for i, rho in enumerate(rhos)
    }  # random numbers: no two are equal
    booked = {
        child_of[release["parameters"]["budget"]["rho"]]: release
        for release in releases
    }
    assert len(booked) == len(releases)
    files = {
        int(path.stem.removeprefix("wards-")): path
        for path in Path(folder).glob("wards-*")
    }

    total = sum(
        (Cost.from_dict(release["cost"]).exact_rho for release in releases), Fraction(0)
    )
    spent = ledger.spent()["rho"]
    assert total <= Fraction(spent) <= ledger.budget.rho  # never overspent
    models = {i: dppl.load(path) for i, path in files.items()}
    costs = {i: model.guarantee_.releases[0].cost for i, model in models.items()}
    assert (
        sum(Cost.from_dict(cost).exact_rho for cost in costs.values()) <= total
    )  # never under-counted

    # Every model is on record, with its hash; every record of a whole fit has its
    # model.
    assert finished <= set(files) <= finished | killed
    assert set(files) <= set(booked) <= finished | killed
    for i, path in files.items():
        assert models[i].guarantee_.charges == (Charge("wards", booked[i]["number"]),)
        # Killed between the name of the file and the ledger's line, it is not on record.
        assert booked[i]["status"] == RELEASED or (
            booked[i]["status"] == UNSAVED and i in killed
        )
        assert (
            booked[i]["model_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        )
        assert costs[i] == booked[i]["cost"]
    for release in releases:
        assert release["status"] in (RELEASED, UNSAVED, CHARGED)
        assert (release["status"] == CHARGED) == (release["model_sha256"] is None)

    # Refused ones wrote nothing, and were refused for a reason.
    assert not refused & (set(files) | set(booked))
    for i in refused:
        assert spent + rhos[i] > ledger.budget.rho
    # Whoever is killed between the first byte of a file and its name leaves a part, and
    # nobody else does.
    for i in killed:
        remove_left([Path(folder) / f"wards-{i}.safetensors"])
    assert list(Path(folder).glob("*.part")) == []
    unfinished = sum(release["status"] == CHARGED for release in releases)
    assert refused  # or the limit was never met
    assert unfinished  # or nobody died between charge and release
    return {
        "released": len(finished),
        "killed": len(killed),
        "refused": len(refused),
        "unfinished": unfinished,
    }


def report(outcome, numbers, record_property):
    record_property("ledger", {**numbers, "seconds": round(outcome["seconds"], 1)})
    print(f"{PROCESSES} processes: {numbers}, {outcome['seconds']:.1f} s")


needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="the children are forked"
)


@pytest.mark.slow
@needs_fork
def test_many_processes_on_one_file(tmp_path, record_property):
    file = tmp_path / "ledger.db"
    outcome = fit_in_many_processes(str(file), tmp_path)
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    report(outcome, check_the_books(file, tmp_path, outcome), record_property)

    # The negative control of the books: they must not balance for a ledger that
    # forgets, doubles or overspends.
    paid = next(
        release
        for release in Ledger(file, "wards").releases()
        if release["status"] == RELEASED
    )
    for fault in (
        f"DELETE FROM dppl_releases WHERE id = {paid['number']}",
        f"UPDATE dppl_releases SET model_sha256 = '{'0' * 64}' WHERE model_sha256 IS NOT NULL",
        "UPDATE dppl_datasets SET budget = '{\"rho\": 0.01}'",
    ):
        copy = tmp_path / "copy.db"
        shutil.copy(file, copy)
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            connection.execute(fault)
            connection.commit()
        with pytest.raises(AssertionError):
            check_the_books(copy, tmp_path, outcome)


# PostgreSQL


def unprivileged():
    """Return the start of a command line, and the owner of files, for a user whom PostgreSQL accepts."""
    if os.geteuid() != 0:
        return [], None
    import pwd

    nobody = pwd.getpwnam("nobody")
    return [
        "setpriv",
        f"--reuid={nobody.pw_uid}",
        f"--regid={nobody.pw_gid}",
        "--clear-groups",
    ], nobody


@contextlib.contextmanager
def server(*settings):
    """Start a PostgreSQL server that only this machine's users of a private folder reach; yield its URL."""
    start, owner = unprivileged()
    folder = tempfile.mkdtemp(
        prefix="dppl-pg-", dir="/tmp"
    )  # the path of a socket must be short
    if owner is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    data = f"{folder}/data"
    environment = {**os.environ, "HOME": folder, "LC_ALL": "C"}
    try:
        init = [
            *start,
            "initdb",
            "-D",
            data,
            "-U",
            "dppl",
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
        ]
        subprocess.run(
            init,
            check=True,
            capture_output=True,
            cwd=folder,
            env=environment,
            timeout=120,
        )
        command = [
            *start,
            "postgres",
            "-D",
            data,
            "-k",
            folder,
            "-c",
            "listen_addresses=",
            "-c",
            "log_min_messages=fatal",
        ]
        command += [part for setting in settings for part in ("-c", setting)]
        with open(f"{folder}/log", "wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=folder, env=environment
            )
        try:
            url = f"postgresql+psycopg://dppl@/postgres?host={folder}"
            deadline = time.monotonic() + 60
            while True:
                try:
                    accounts(url)
                    break
                except LedgerError:
                    assert process.poll() is None, Path(f"{folder}/log").read_text()
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            yield url
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown
            process.wait(60)
    finally:
        shutil.rmtree(folder)


def has_postgresql():
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return False
    return shutil.which("initdb") is not None and shutil.which("postgres") is not None


def assert_the_error_of_a_missing_database(monkeypatch):
    """Where PostgreSQL cannot be tested, its absence is: without the driver the error names the extra."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"pip install -e '\.\[postgresql\]'"):
        Ledger("postgresql+psycopg://host/db", "wards", ZCDP(1.0))


@pytest.mark.postgresql
@needs_fork
def test_many_processes_on_postgresql(tmp_path, record_property, monkeypatch):
    if not has_postgresql():
        assert_the_error_of_a_missing_database(monkeypatch)
        return
    with server(
        "default_transaction_isolation=repeatable read", "synchronous_commit=off"
    ) as url:
        outcome = fit_in_many_processes(url, tmp_path)
        report(outcome, check_the_books(url, tmp_path, outcome), record_property)


@pytest.mark.postgresql
def test_postgresql_keeps_the_rules_of_the_file(monkeypatch):
    if not has_postgresql():
        assert_the_error_of_a_missing_database(monkeypatch)
        return
    with server("default_transaction_isolation=serializable") as url:
        # Many first visitors at once: one makes the tables, all find them.
        outcomes = at_once(8, lambda i: Ledger(url, f"first-{i % 2}", ZCDP(1.0)).budget)
        assert outcomes == [ZCDP(1.0)] * 8
        assert sorted(account.dataset for account in accounts(url)) == [
            "first-0",
            "first-1",
        ]

        for round_ in range(3):
            ledger = Ledger(url, f"race-{round_}", ZCDP(1.0))
            assert sorted(race(ledger, monkeypatch)) == ["charged", "refused"]
            assert 0.7 < ledger.spent()["rho"] <= 0.75

        before = ledger.to_dict()
        with pytest.raises(BudgetExceeded):
            fit_with(ledger, 0.5)
        assert ledger.to_dict() == before
        model = fit_with(ledger, 0.125)
        assert (
            ledger.releases()[-1]["model_sha256"]
            == hashlib.sha256(model.to_bytes()).hexdigest()
        )

        entry = ledger.charge(model.guarantee_, run="a" * 32)
        ledger.begin_step(entry, 1)
        with pytest.raises(LedgerError, match="begun before"):
            ledger.begin_step(entry, 1)
        assert ledger.steps_begun(entry) == 2

        # The negative control: without the lock the same race overspends.
        monkeypatch.setitem(
            ledger_module._BEGIN,
            "postgresql",
            ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED",),
        )
        ledger = Ledger(url, "no lock", ZCDP(1.0))
        assert race(ledger, monkeypatch) == ["charged", "charged"]
        assert 1.4 < ledger.spent()["rho"] <= 1.5

        # Nor does a lock that is held for ever stop everything for ever.
        short = [
            statement.replace("'120s'", "'100ms'") for statement in BEGIN_POSTGRESQL
        ]
        monkeypatch.setitem(ledger_module._BEGIN, "postgresql", short)
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
        with engine.begin() as party:
            party.exec_driver_sql(BEGIN_POSTGRESQL[-1])
            with pytest.raises(LedgerError, match="lock timeout") as caught:
                ledger.spent()
        assert "\n" not in str(caught.value)
        assert 1.4 < ledger.spent()["rho"] <= 1.5
    with pytest.raises(LedgerError) as caught:
        ledger.spent()
    assert "\n" not in str(caught.value)


BEGIN_POSTGRESQL = ledger_module._BEGIN["postgresql"]


def fit_with(ledger, rho):
    estimator = dppl.MeanPrototypes(ZCDP(rho), classes=[0, 1])
    return estimator.fit([[1.0, 0.0], [0.0, 1.0]], [0, 1], ledger=ledger)


def at_once(count, work):
    """Return the results of `work(i)` from as many threads; their errors too."""
    results = [None] * count
    barrier = threading.Barrier(count)

    def one(i):
        barrier.wait(timeout=30)
        try:
            results[i] = work(i)
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def race(ledger, monkeypatch):
    """Fit twice at once for 0.75; both wait, between reading the total and writing, for the other to have read."""
    both_have_read = threading.Barrier(2)
    whole = ledger_module._paid

    def paid(connection, dataset):
        rows = whole(connection, dataset)
        with contextlib.suppress(
            threading.BrokenBarrierError
        ):  # the other cannot read yet: the lock at work
            both_have_read.wait(timeout=1)
        return rows

    def work(_):
        try:
            fit_with(ledger, 0.75)
        except BudgetExceeded:
            return "refused"
        return "charged"

    with monkeypatch.context() as patch:
        patch.setattr(ledger_module, "_paid", paid)
        return at_once(2, work)
