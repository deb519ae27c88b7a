"""Empirical lower bounds on the privacy loss of estimators and mechanisms, each with a stated confidence."""

from dppl.audit.audit import AuditResult, audit, audit_in_one_run, audit_release
from dppl.audit.bounds import (
    epsilon_lower_bound,
    epsilon_of_gdp,
    gdp_lower_bound,
    one_run_lower_bound,
    zcdp_lower_bound,
)
from dppl.audit.canaries import Canary, Records, orthogonal_canaries, worst_case

__all__ = [
    "AuditResult",
    "Canary",
    "Records",
    "audit",
    "audit_in_one_run",
    "audit_release",
    "epsilon_lower_bound",
    "epsilon_of_gdp",
    "gdp_lower_bound",
    "one_run_lower_bound",
    "orthogonal_canaries",
    "worst_case",
    "zcdp_lower_bound",
]
