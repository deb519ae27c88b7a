"""The audit table of docs/api/audit.md names every configuration that its tool knows, and the tool renders."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from dppl import ZCDP, PublicPrototypes
from dppl.audit import AuditResult
from dppl.methods.registry import ENTRIES

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location(
    "dppl_tools_audit_table", ROOT / "tools" / "audit_table.py"
)
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)
PAGE = (ROOT / "docs" / "api" / "audit.md").read_text(encoding="utf-8")


def rows(page):
    """Return the cells of the table between the markers, without its head."""
    between = page.split(tool.BEGIN)[1].split(tool.END)[0]
    return [
        tuple(line.strip("| ").split(" | "))
        for line in between.splitlines()
        if line.startswith("|")
    ][2:]


def result(configuration, share):
    name, claimed = next(iter(configuration.claim.to_dict().items()))
    return AuditResult(
        method="any",
        notion=configuration.claim.notion,
        parameter=name,
        claimed=claimed,
        lower_bound=share * claimed,
        provable=2 * claimed,
        delta=0.0,
        bound="event",
        confidence=tool.CONFIDENCE,
        runs=1234,
        seconds=5.678,
        samples=(np.zeros(2), np.zeros(2)),
    )


def test_the_page_holds_a_row_for_every_named_configuration_in_order():
    """Those that follow from recipes come when the table is made again with `python tools/audit_table.py`."""
    found = [row[:3] for row in rows(PAGE)]
    named = {configuration.key for configuration in tool.NAMED}
    assert found == [
        one.key for one in tool.CONFIGURATIONS if one.key in named or one.key in found
    ]


def test_every_estimator_is_audited():
    audited = {
        re.match(r"`(\w+)", configuration.method)[1]
        for configuration in tool.CONFIGURATIONS
    }
    assert audited >= {entry.name for entry in ENTRIES}


def test_no_two_configurations_have_the_same_name():
    assert len({configuration.key for configuration in tool.CONFIGURATIONS}) == len(
        tool.CONFIGURATIONS
    )


def test_no_promise_on_the_page_is_refuted():
    shares = [re.fullmatch(r"(\d+) %", row[4]) for row in rows(PAGE)]
    assert all(share and int(share[1]) <= 100 for share in shares)


def test_a_table_is_rendered_and_replaces_what_stood_there():
    results = [
        (configuration, result(configuration, 0.6789))
        for configuration in tool.CONFIGURATIONS
    ]
    page = tool.placed(
        f"before\n{tool.BEGIN}\noutdated\n{tool.END}\nafter\n", tool.rendered(results)
    )
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "outdated" not in page
    assert [row[:3] for row in rows(page)] == [
        configuration.key for configuration in tool.CONFIGURATIONS
    ]
    assert rows(page)[0][3:] == (
        "mu ≥ 1.35",
        "67 %",
        "event",
        "1,234",
        "5.7",
    )  # rounded down
    assert tool.placed(page, tool.rendered(results)) == page
    assert (
        "confidence 0.999, so all 19 hold at once with at least 0.98."
        in tool.rendered([results[0]] * 19)
    )


def test_a_refuted_promise_shows():
    first = tool.CONFIGURATIONS[0]
    assert "**REFUTED**" in tool.rendered([(first, result(first, 1.01))])


@pytest.mark.parametrize(
    "page", ["", tool.BEGIN, tool.END + tool.BEGIN, 2 * (tool.BEGIN + tool.END)]
)
def test_a_page_without_markers_is_refused(page):
    with pytest.raises(ValueError, match="once each"):
        tool.placed(page, "table")


def test_a_row_is_named_by_what_is_not_the_default():
    assert tool.fitted(
        PublicPrototypes(ZCDP(1.0), ["a"], n_prototypes=3, adjacency="replace-one")
    ).key == (
        "`PublicPrototypes(n_prototypes=3)`",
        "replace-one",
        "`ZCDP(rho=1.0)`",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "configuration",
    tool.CONFIGURATIONS,
    ids=lambda configuration: " ".join(configuration.key),
)
def test_every_configuration_runs_and_claims_what_its_row_says(configuration):
    found = configuration.audit(2)
    claimed = configuration.claim.to_dict()[found.parameter]
    # Noise is rounded up to a float, and its cost down from there.
    assert claimed * (1 - 1e-9) <= found.claimed <= claimed
    assert found.confidence == tool.CONFIDENCE
