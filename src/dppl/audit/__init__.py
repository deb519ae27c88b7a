"""Empirical lower bounds on the privacy loss of estimators, each with a stated confidence: they can only refute."""

from dppl.audit.audit import AuditResult, audit
from dppl.audit.canaries import Canary, Records, worst_case

__all__ = ["AuditResult", "Canary", "Records", "audit", "worst_case"]
