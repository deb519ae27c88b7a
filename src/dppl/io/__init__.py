"""Tables of embeddings, and raw images and texts that become them: sources of records, decoding, and shards."""

from dppl.io.labels import read_classes
from dppl.io.messages import load_messages
from dppl.io.person_ids import read_ids
from dppl.io.pipeline import Embedded, embed, embed_windows
from dppl.io.records import Columns, Record, Source
from dppl.io.sample import Sample, load_sample
from dppl.io.sorting import sort_table
from dppl.io.sources import KINDS, has_columns, holds_embeddings, open_source
from dppl.io.tables import EmbeddingTable, PartedTable, read_parts, read_table
from dppl.io.writing import PERSON, ROWS, convert_table, write_table

__all__ = [
    "KINDS",
    "PERSON",
    "ROWS",
    "Columns",
    "Embedded",
    "EmbeddingTable",
    "PartedTable",
    "Record",
    "Sample",
    "Source",
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
