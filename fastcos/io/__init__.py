"""Readers of interactions, labels and vectors; atomic writers.

A reader recognises the format by the suffix, converts it and aligns it with ids::

    text (plain, gzip, zip) -> streams -> tables -> columns -> Interactions, ItemLabels, ...
    Parquet                 -> parquet -----------> columns -> the same
    sparse matrices         -> arrays, matrices -------------> Interactions
    npy, npz, safetensors, word vectors, tables -------------> Vectors, Factors
    fvecs, fbin, ivecs, ibin (ann_files) --------------------> memory maps
    fitted models of other libraries (from_model) -----------> Factors

``read_interactions`` returns a sparse matrix with the ids of its rows and columns;
``ingest_interactions`` writes the same matrix as shards without holding it in memory. ``items`` has
the readers that align a table with given item ids. Damaged or unsuitable files raise
FastcosFormatError with the file and the first rows; nothing is unpickled, and declared sizes are
validated before memory is allocated. Writers replace a file atomically (``atomic_path``).
"""

from fastcos.io.factors import Factors, common_rows, read_factors
from fastcos.io.fitted_models import from_model
from fastcos.io.ingest import ingest_interactions
from fastcos.io.interactions import Interactions, read_interactions
from fastcos.io.items import (
    ItemLabels,
    ItemPairs,
    Popularity,
    read_labels,
    read_names,
    read_pairs,
    read_popularity,
)
from fastcos.io.vectors import Vectors, holds_vectors, read_ids, read_vectors
from fastcos.io.writing import (
    atomic_path,
    write_csv,
    write_json,
    write_npy,
    write_npz,
    write_parquet,
    write_text,
)
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
    "from_model",
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
    "write_parquet",
    "write_text",
]
