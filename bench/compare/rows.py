"""Functions that the files of several libraries share, such as the normalisation of rows."""

import os

import numpy as np


def n_threads():
    """Return the number of threads that every library uses."""
    return int(os.environ["OMP_NUM_THREADS"])


def unit(rows):
    """Return the rows divided by their norms; zero rows stay zero."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def without_itself(indices):
    """Remove each query row from the list of its k + 1 neighbours; return neighbours (n, k).

    If a query row has many duplicates, its list may not contain the row itself; then the last
    neighbour is dropped.
    """
    is_other = indices != np.arange(len(indices))[:, None]
    is_other[is_other.all(axis=1), -1] = False
    return indices[is_other].reshape(len(indices), -1)


def best_of_products(multiply, queries, k, block=1024):
    """Return the k items with the largest products with each query, in descending order.

    multiply is a function that returns the products of a block of queries with all items.
    """
    indices = np.empty((len(queries), k), np.int64)
    for first in range(0, len(queries), block):
        products = multiply(queries[first : first + block])
        best = np.argpartition(products, -k, axis=1)[:, -k:]
        order = np.argsort(-np.take_along_axis(products, best, axis=1), axis=1, kind="stable")
        indices[first : first + block] = np.take_along_axis(best, order, axis=1)
    return indices


def joined(search, rows, k, read):
    """Return a function that searches all rows for k + 1 neighbours, and a reader of its result.

    The reader removes each row from its own neighbours, so k neighbours remain.
    """
    call, _ = search(rows, rows, k + 1)
    return call, lambda result: without_itself(read(result))
