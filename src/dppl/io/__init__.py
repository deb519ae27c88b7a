"""Tables of embeddings, and raw images and texts that become them: sources of records, decoding, and shards."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.io.labels import read_classes
    from dppl.io.pipeline import Embedded, embed
    from dppl.io.records import Columns, Source
    from dppl.io.sample import Sample, load_messages, load_sample
    from dppl.io.sources import KINDS, has_columns, holds_embeddings, open_source
    from dppl.io.tables import EmbeddingTable, PartedTable, read_ids, read_parts, read_table
    from dppl.io.writing import PERSON, ROWS, convert_table, write_table

__all__ = [
    "KINDS",
    "PERSON",
    "ROWS",
    "Columns",
    "Embedded",
    "EmbeddingTable",
    "PartedTable",
    "Sample",
    "Source",
    "convert_table",
    "embed",
    "has_columns",
    "holds_embeddings",
    "load_messages",
    "load_sample",
    "open_source",
    "read_classes",
    "read_ids",
    "read_parts",
    "read_table",
    "write_table",
]

# Arrow and its file systems take as long to import as NumPy, and no help of a command needs them.
_HOMES = {
    "read_classes": "dppl.io.labels",
    **dict.fromkeys(["Embedded", "embed"], "dppl.io.pipeline"),
    **dict.fromkeys(["Columns", "Source"], "dppl.io.records"),
    **dict.fromkeys(["Sample", "load_messages", "load_sample"], "dppl.io.sample"),
    **dict.fromkeys(["KINDS", "has_columns", "holds_embeddings", "open_source"], "dppl.io.sources"),
    **dict.fromkeys(["EmbeddingTable", "PartedTable", "read_ids", "read_parts", "read_table"], "dppl.io.tables"),
    **dict.fromkeys(["PERSON", "ROWS", "convert_table", "write_table"], "dppl.io.writing"),
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
