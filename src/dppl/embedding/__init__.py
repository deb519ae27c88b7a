"""From raw images and texts to tables of embeddings: sources of records, decoding, and shards that survive a crash."""

from dppl.data.writing import PERSON, ROWS, convert_table
from dppl.embedding.pipeline import Embedded, Window, embed, embed_windows
from dppl.embedding.records import Columns, Record, Source
from dppl.embedding.shards import OtherOptions, SourceChanged
from dppl.embedding.sorting import sort_table
from dppl.embedding.sources import KINDS, has_columns, holds_embeddings, open_source

__all__ = [
    "KINDS",
    "PERSON",
    "ROWS",
    "Columns",
    "Embedded",
    "OtherOptions",
    "Record",
    "Source",
    "SourceChanged",
    "Window",
    "convert_table",
    "embed",
    "embed_windows",
    "has_columns",
    "holds_embeddings",
    "open_source",
    "sort_table",
]
