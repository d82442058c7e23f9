"""Readers of interactions, labels and vectors, and atomic writers.

A reader recognises the format of a file by its suffix, and returns the content together with ids::

    CSV, TSV, JSON lines (tables), Parquet, Arrow (parquet) --> columns --> Interactions, Vectors,
    .npz, safetensors (arrays) -----------------------------> columns --> Vectors, Factors
    word vectors, .npy (vectors) ---------------------------------------> Vectors
    sparse matrices (matrices) -----------------------------------------> Interactions
    fvecs, fbin, ivecs, ibin (ann_files) -------------------------------> memory maps
    fitted models of other libraries (from_model) ----------------------> Factors

``streams`` decompresses files and removes byte order marks. ``columns`` contains the rules for
reading a column, which are the same for all formats: the type of the cells, and which spellings
stand for the same id. ``column_choice`` contains the rules for finding the columns of users, items,
values, ids and vectors. The attribute ``columns`` of a result lists the columns that were read.

``read_interactions`` returns a sparse matrix with the ids of its rows and columns;
``ingest_interactions`` writes the same matrix as shards and never holds all of it in memory.
``items`` contains the readers that align a table with existing item ids. Damaged or unsuitable
files raise FastcosFormatError, whose message names the file and the first faulty rows. No reader
unpickles data, and declared sizes are validated before memory is allocated. Writers replace a file
atomically (``atomic_path``).
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
