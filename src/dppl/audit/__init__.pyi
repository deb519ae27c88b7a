from .audit import AuditResult as AuditResult
from .audit import audit as audit
from .canaries import AuditData as AuditData
from .canaries import Canary as Canary
from .canaries import worst_case as worst_case
from .verification import Verification as Verification
from .verification import verify as verify
