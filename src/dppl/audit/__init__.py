"""Empirical lower bounds on the privacy loss of estimators and mechanisms, each with a stated confidence."""

from dppl.audit.audit import AuditResult, audit, audit_in_one_run, audit_release
from dppl.audit.canaries import Canary, Records, orthogonal_canaries, worst_case

__all__ = [
    "AuditResult",
    "Canary",
    "Records",
    "audit",
    "audit_in_one_run",
    "audit_release",
    "orthogonal_canaries",
    "worst_case",
]
