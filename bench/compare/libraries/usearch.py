"""USearch: its exact search."""

import numpy as np
from usearch.index import MetricKind, search as exact_search

from bench.compare.rows import n_threads, without_itself

NAME = "USearch"
REQUIRES = "usearch>=2"


def neighbors(items, queries, k):
    """Return the keys (n, k) of the nearest items."""
    matches = exact_search(items, queries, k, MetricKind.Cos, exact=True, threads=n_threads())
    return np.asarray(matches.keys).astype(np.int64).reshape(len(queries), k)


def search(items, queries, k):
    return (lambda: neighbors(items, queries, k)), np.asarray


def self_join(rows, k):
    return (lambda: neighbors(rows, rows, k + 1)), without_itself
