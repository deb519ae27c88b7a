"""A guarantee names the files that its releases rest on: a fit runs no other file of the kernel."""

import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

import dppl
from dppl import ZCDP, Ledger
from dppl.errors import DpplError
from dppl.io import read_parts
from dppl.kernel.measure import Measure
from dppl.kernel.privacy.terms import Mechanism, Statistic
from dppl.kernel.queries import base, factors
from dppl.statement import trust
from laws.recipes import FIRST, FIRST_CHARGED, each

PACKAGE = Path(dppl.__file__).parent
KERNEL = str(PACKAGE / "kernel")


@contextmanager
def watched():
    """Collect the files of the kernel of which a function runs, in any thread that starts."""
    found = set()

    def look(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(KERNEL):
            found.add(Path(name).relative_to(PACKAGE).as_posix())

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def unlisted(fit):
    """Return what a fit runs of the kernel and its guarantee does not name."""
    fit()  # what is imported runs once
    with watched() as ran:
        model = fit()
    listed = model.guarantee_.trusted_code()
    return ran - {one.path for one in listed.files}, listed, ran


@each(FIRST)
def test_a_fit_runs_no_file_of_the_kernel_that_is_not_listed(kind):
    X, y = kind.records(24)
    found, listed, ran = unlisted(lambda: kind.fit(X, y))
    assert found == set()
    # What is listed for all fits is little more than what runs.
    always = {one.path for one in listed.files if not one.when}
    assert len(always - ran) <= 7


@each(FIRST)
def test_a_fit_of_persons_runs_no_other_file(kind):
    X, y = kind.records(24)
    with suppress(DpplError):  # not all methods take persons
        groups = {"groups": np.arange(24) // 2}
        found, _, ran = unlisted(lambda: kind.fit(X, y, given=groups))
        assert found == set()
        assert "kernel/persons.py" in ran


@each(FIRST)
def test_a_fit_of_parts_runs_no_other_file(kind, tmp_path):
    X, y = kind.records(24)
    np.savez(tmp_path / "records.npz", x=X, y=y)
    with suppress(DpplError):  # not all methods read parts
        parts = read_parts(tmp_path / "records.npz")
        assert unlisted(lambda: kind.fit(parts, None))[0] == set()


@each(FIRST_CHARGED[:1])
def test_a_fit_that_is_charged_and_strict_runs_no_other_file(kind, tmp_path):
    X, y = kind.records(24)
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(9.0))
    given = {"ledger": ledger}
    fit = lambda: kind.fit(X, y, given=given, unknown_labels="strict")  # noqa: E731
    found, _, ran = unlisted(fit)
    assert found == set()
    assert {"kernel/privacy/ledger.py", "kernel/checking.py"} <= ran


def test_the_use_of_another_file_is_noticed(monkeypatch):
    """The control: an ask that goes through a file of correlated noise."""
    ask = Measure.__call__

    def astray(self, name, **released):
        factors.prefix_variance(3)
        return ask(self, name, **released)

    monkeypatch.setattr(Measure, "__call__", astray)
    (kind,) = FIRST_CHARGED[:1]
    found, _, _ = unlisted(lambda: kind.fit(*kind.records(24)))
    assert found == {"kernel/queries/factors.py"}


def test_every_code_names_the_file_that_proves_it():
    wraps = {Statistic.STATED, Statistic.OF_ONE_TASK, Statistic.WITH_CONSTANT}
    assert set(Statistic) - wraps == set(trust.QUERIES)
    assert set(Mechanism) - {Mechanism.STATED} == set(trust.MECHANISMS)

    def below(kind):
        yield from (
            one for some in kind.__subclasses__() for one in (some, *below(some))
        )

    for modules in trust.QUERIES.values():
        for module in modules:
            if module.startswith("kernel."):
                __import__(f"dppl.{module}")
    seen = set()
    for query in below(base.Query):
        module = query.__module__.removeprefix("dppl.")
        term = query.__dict__.get("statistic")
        code = getattr(term, "code", query.__dict__.get("_code", Statistic.STATED))
        if module.startswith("kernel.") and code is not Statistic.STATED:
            assert module in trust.with_imports(trust.QUERIES[code])
            seen.add(code)
    assert len(seen) > 20


def test_every_file_of_the_kernel_is_named_for_some_model():
    modules = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in (PACKAGE / "kernel").rglob("*.py")
        if path.name != "__init__.py"
    }
    facts = ("kernel.persons", "kernel.checking", "kernel.privacy.ledger")
    groups = (*trust.QUERIES.values(), *trust.MECHANISMS.values(), trust.IN_SOME_FITS)
    named = trust.with_imports([*facts, *(one for some in groups for one in some)])
    assert modules - named - trust.with_imports(trust.EVERY_FIT) == set()


def test_the_default_rests_on_little():
    (kind,) = FIRST_CHARGED[:1]
    code = kind.fit(*kind.records()).guarantee_.trusted_code()
    assert code.tokens_of_releases <= 17_550
