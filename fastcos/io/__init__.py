"""Reading interactions, labels and vectors; writing files that appear whole or not at all.

Bad files are refused here, by FastcosFormatError with the file and the row; arguments at the gate.
"""

from fastcos.io.factors import Factors, common_rows, read_factors
from fastcos.io.ingest import ingest_interactions
from fastcos.io.interactions import Interactions, read_interactions
from fastcos.io.labels import ItemLabels, read_labels, read_names
from fastcos.io.pairs import ItemPairs, read_pairs
from fastcos.io.popularity import Popularity, read_popularity
from fastcos.io.vectors import Vectors, holds_vectors, read_ids, read_vectors
from fastcos.io.writing import atomic_path, write_csv, write_json, write_npy, write_npz, write_text
from fastcos.storage import FastcosFormatError

__all__ = [
    "Factors",
    "FastcosFormatError",
    "Interactions",
    "ItemLabels",
    "ItemPairs",
    "Popularity",
    "Vectors",
    "atomic_path",
    "common_rows",
    "holds_vectors",
    "ingest_interactions",
    "read_factors",
    "read_ids",
    "read_interactions",
    "read_labels",
    "read_names",
    "read_pairs",
    "read_popularity",
    "read_vectors",
    "write_csv",
    "write_json",
    "write_npy",
    "write_npz",
    "write_text",
]
