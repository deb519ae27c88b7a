"""What is said of skipped records, in words that tests compare."""

from dppl.kernel.privacy.terms import Term
from dppl.reasons import SkipReason
from dppl.statement import words


def said(reason):
    """Return the text of a reason: a term, or its form in a file."""
    if isinstance(reason, dict):
        reason = Term.from_dict(SkipReason, reason)
    return words.text(reason)


def outcome(record):
    """Return label, content and version of a record; of one that is skipped the reason, also where it is the version."""
    from dppl.io.records.record import BadRecord

    try:
        return record.label, record.load(), record.version
    except BadRecord as skipped:
        text = said(skipped.reason)
        told = record.version == str(skipped.reason.to_dict())
        return record.label, text, text if told else record.version
