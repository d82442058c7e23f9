"""Readers of interactions, labels and vectors; atomic writers.

A reader recognises the format by the suffix and aligns what it reads with ids::

    CSV, TSV, JSON lines (tables), Parquet, Arrow (parquet) --> columns --> Interactions, Vectors,
    .npz, safetensors (arrays) -----------------------------> columns --> Vectors, Factors
    word vectors, .npy (vectors) ---------------------------------------> Vectors
    sparse matrices (matrices) -----------------------------------------> Interactions
    fvecs, fbin, ivecs, ibin (ann_files) -------------------------------> memory maps
    fitted models of other libraries (from_model) ----------------------> Factors

Compressed files and byte order marks are undone by ``streams``. ``columns`` has the rules by which
a column is read, the same for all formats: what its cells are, and which spellings of an id are one
id. ``column_choice`` has the rules by which the columns of users, items, values, ids and vectors
are found. The results say in their attribute ``columns`` which columns were read.

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
from fastcos.io.writing import write_csv, write_json, write_npy, write_npz, write_parquet
from fastcos.storage import FastcosFormatError
from fastcos.storage.atomic_files import atomic_path, write_text

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
