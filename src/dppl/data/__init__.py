"""Embedding tables, and a built-in sample."""

from dppl.data.fragments import Fragment
from dppl.data.labels import align_labels, read_classes
from dppl.data.messages import load_messages
from dppl.data.parts import PartedTable, TablePart, read_parts
from dppl.data.person_ids import read_ids
from dppl.data.sample import Sample, load_sample
from dppl.data.tables import EmbeddingTable, read_table
from dppl.data.writing import write_table

__all__ = [
    "EmbeddingTable",
    "Fragment",
    "PartedTable",
    "Sample",
    "TablePart",
    "align_labels",
    "load_messages",
    "load_sample",
    "read_classes",
    "read_ids",
    "read_parts",
    "read_table",
    "write_table",
]
