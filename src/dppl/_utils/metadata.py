"""What a table of embeddings says of itself: its encoder, the lattice of its rows, and what its columns were called."""

from typing import Any

from dppl._utils.fingerprint import same_encoder
from dppl._utils.outside import parse_json
from dppl.errors import InputError

# Entries of a table's metadata: its encoder, names of columns, the lattice whose rows
# it holds already, and what is not covered of rows that may depend on one another.
ENCODER = "encoder"
COLUMNS = "dppl_columns"
LATTICE = "dppl_lattice"
NOT_COVERED = "not_covered"
LONGEST_NAME = 1 << 18  # the fingerprint of an encoder of columns holds its schema


def stated(X: Any, entry: str) -> str | None:
    """Return an entry of the metadata of a table, if it has one that may be a name."""
    metadata = getattr(X, "metadata", None)
    text = None
    if isinstance(metadata, dict):
        text = metadata.get(entry)
    if isinstance(text, str) and len(text) <= LONGEST_NAME:
        return text
    return None


def columns_of(X: Any) -> dict[str, str]:
    """Return the names of columns that a table says its owner typed: of the text or image, the label and the id."""
    try:
        return checked_columns(parse_json(stated(X, COLUMNS) or "")) or {}
    except ValueError:
        return {}


def checked_columns(value: Any) -> dict[str, str] | None:
    """Return names of columns, or None for anything else."""
    if not isinstance(value, dict) or not set(value) <= {"x", "y", "id"}:
        return None
    if not all(isinstance(name, str) for name in value.values()):
        return None
    return value


def depends_on_company(X: Any) -> bool:
    """Return whether a table says that its rows may depend on one another by rounding."""
    metadata = getattr(X, "metadata", None)
    return isinstance(metadata, dict) and NOT_COVERED in metadata


def check_encoder(X: Any, expected: str | None, name: str) -> None:
    """Refuse a table that names another encoder."""
    named = stated(X, ENCODER)
    if named is not None and expected is not None and not same_encoder(named, expected):
        raise InputError(
            f"{name} must be embedded by the encoder that the fit names; its table names another encoder, or other "
            "weights or preprocessing. Embed these records with the same encoder."
        )
