"""FAISS with the OpenBLAS of its wheel: IndexFlatIP over unit rows."""

import os

import faiss

from bench.compare.rows import unit, without_itself
from bench.compare.settings import Setting, openblas

NAME = "FAISS"
REQUIRES = "faiss-cpu>=1.15"
# FAISS multiplies by BLAS if a batch has at least a certain number of vectors. The first setting
# keeps FAISS's default for this number. With the second setting, FAISS multiplies by BLAS for every
# batch.
SETTINGS = [
    Setting(f"{openblas_setting.name}{words}", openblas_setting.variables | variables)
    for openblas_setting in openblas()
    for words, variables in (("", {}), (", BLAS for every batch", {"COMPARE_FAISS_BLAS": "1"}))
]


def index_of(items):
    """Return an index of unit rows."""
    if "COMPARE_FAISS_BLAS" in os.environ:
        faiss.cvar.distance_compute_blas_threshold = 1
    index = faiss.IndexFlatIP(items.shape[1])
    index.add(items)
    return index


def search(items, queries, k):
    index, queries = index_of(unit(items)), unit(queries)
    return (lambda: index.search(queries, k)), lambda results: results[1]


def self_join(rows, k):
    def call():
        units = unit(rows)
        return index_of(units).search(units, k + 1)

    return call, lambda results: without_itself(results[1])
