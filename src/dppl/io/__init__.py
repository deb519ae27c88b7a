"""Tables of embeddings, and raw images and texts that become them: sources of records, decoding, and shards."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.io.fragments import Fragment
    from dppl.io.labels import align_labels, read_classes
    from dppl.io.messages import load_messages
    from dppl.io.parts import PartedTable, TablePart, read_parts
    from dppl.io.person_ids import read_ids
    from dppl.io.pipeline import Embedded, Window, embed, embed_windows
    from dppl.io.records import Columns, Record, Source
    from dppl.io.sample import Sample, load_sample
    from dppl.io.shards import OtherOptions, SourceChanged
    from dppl.io.sorting import sort_table
    from dppl.io.sources import KINDS, has_columns, holds_embeddings, open_source
    from dppl.io.tables import EmbeddingTable, read_table
    from dppl.io.writing import PERSON, ROWS, convert_table, write_table

__all__ = [
    "KINDS",
    "PERSON",
    "ROWS",
    "Columns",
    "Embedded",
    "EmbeddingTable",
    "Fragment",
    "OtherOptions",
    "PartedTable",
    "Record",
    "Sample",
    "Source",
    "SourceChanged",
    "TablePart",
    "Window",
    "align_labels",
    "convert_table",
    "embed",
    "embed_windows",
    "has_columns",
    "holds_embeddings",
    "load_messages",
    "load_sample",
    "open_source",
    "read_classes",
    "read_ids",
    "read_parts",
    "read_table",
    "sort_table",
    "write_table",
]

# Arrow and its file systems take as long to import as NumPy, and no help of a command needs them.
_HOMES = {
    "Fragment": "dppl.io.fragments",
    **dict.fromkeys(["align_labels", "read_classes"], "dppl.io.labels"),
    "load_messages": "dppl.io.messages",
    **dict.fromkeys(["PartedTable", "TablePart", "read_parts"], "dppl.io.parts"),
    "read_ids": "dppl.io.person_ids",
    **dict.fromkeys(["Embedded", "Window", "embed", "embed_windows"], "dppl.io.pipeline"),
    **dict.fromkeys(["Columns", "Record", "Source"], "dppl.io.records"),
    **dict.fromkeys(["Sample", "load_sample"], "dppl.io.sample"),
    **dict.fromkeys(["OtherOptions", "SourceChanged"], "dppl.io.shards"),
    "sort_table": "dppl.io.sorting",
    **dict.fromkeys(["KINDS", "has_columns", "holds_embeddings", "open_source"], "dppl.io.sources"),
    **dict.fromkeys(["EmbeddingTable", "read_table"], "dppl.io.tables"),
    **dict.fromkeys(["PERSON", "ROWS", "convert_table", "write_table"], "dppl.io.writing"),
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
