"""The eight tasks of the comparison, each in three sizes.

A task names the function of a library that performs it (`operation`), creates the seeded arguments
of this function, and checks the answer in float64 before anything is timed. No time is reported for
a library whose answer is wrong. Neighbours with equal scores may be listed in any order, and a
library that computes in float32 may confuse items whose scores float32 cannot distinguish.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bench import check, data

K = 10
COLUMNS = 64
SVD_TOLERANCE = 1e-2
# The largest allowed error of a product of float32 numbers, as a share of the largest entry of the
# result.
PRODUCT_TOLERANCE = 1e-4


class Task(NamedTuple):
    """One task of the comparison."""

    title: str  # the task in words; the numbers of its size are formatted into it
    operation: str  # the name of the function in bench/compare/libraries/*.py
    sizes: dict  # for each name of a size, the arguments of make
    make: Callable  # returns the arguments of the operation, by name
    # `checker` takes the arguments that `make` returns. It returns a function that takes an answer
    # and raises an error if the answer is wrong.
    checker: Callable


def search_of_embeddings(queries, n, d):
    """Return rows that resemble text embeddings, and queries from the same distribution."""
    items = data.embeddings(n, d)
    return {"items": items, "queries": data.embeddings(queries, d, seed=1), "k": K}


def search_by_other_queries(queries, n, d):
    """Return rows that resemble text embeddings, and queries from a different distribution.

    In practice, such queries are texts of another kind than the items.
    """
    items = data.embeddings(n, d)
    return {"items": items, "queries": data.gaussian(queries, d, seed=1), "k": K}


def join(n, d):
    """Return independent normal rows, which are the hardest input for bounds on cosines.

    The task compares the rows with each other.
    """
    return {"rows": data.gaussian(n, d), "k": K}


def product(n_users, n_items, nnz):
    """Return a matrix of interactions, and a dense factor."""
    X = data.interactions(n_users, n_items, nnz)
    return {"X": X, "A": data.gaussian(X.shape[1], COLUMNS)}


def factorisation(n_users, n_items, nnz, k):
    """Return the arguments of a singular value decomposition: the matrix, k and the tolerance."""
    return {"X": data.interactions(n_users, n_items, nnz), "k": k, "tolerance": SVD_TOLERANCE}


def item_join(n_users, n_items, nnz):
    """Return a matrix of interactions, whose columns are compared with each other."""
    return {"X": data.interactions(n_users, n_items, nnz), "k": K}


def cosine_rounding(d):
    """Return the largest difference between two cosines whose order may be wrong in float32.

    The cosines are those of rows with d columns. A product of d columns has d roundings of 2^-24 in
    any order of summation, and each of the two norms has d / 2 + 3 roundings. Each of the two
    cosines may have an error of this size, and the two errors may have opposite signs.
    """
    return 2 * (2 * d + 6) * 2.0**-24


def search_checker(items, queries, k, sample=check.SAMPLE):
    """Return a checker that computes the cosines of sampled queries with all items in float64."""
    at = check.sample_of(len(queries), sample)

    def checker(indices):
        assert np.shape(indices) == (len(queries), k), "the answer must have the shape (n, k)"
        wrong = check.wrong_neighbors(
            np.asarray(indices)[at], queries[at], items, tolerance=cosine_rounding(items.shape[1])
        ).sum()
        assert wrong == 0, f"{wrong} of {k * len(at)} neighbours are wrong"

    return checker


def join_checker(rows, k):
    """Return a checker that computes the cosines of sampled rows with other rows in float64."""
    at = check.sample_of(len(rows))

    def checker(indices):
        assert np.shape(indices) == (len(rows), k), "the answer must have the shape (n, k)"
        tolerance = cosine_rounding(rows.shape[1])
        sample_indices = np.asarray(indices)[at]
        wrong = check.wrong_neighbors(
            sample_indices, rows[at], rows, tolerance=tolerance, self_items=at
        ).sum()
        assert wrong == 0, f"{wrong} of {k * len(at)} neighbours are wrong"

    return checker


def product_checker(X, A):
    """Return a checker that compares sampled rows of the product with SciPy's float64 product."""
    at = check.sample_of(X.shape[0], 1_000)
    expected = X[at] @ A.astype(np.float64)
    return lambda Y: check.product(Y[at], expected, PRODUCT_TOLERANCE)


def gram_checker(X, A):
    """Return a checker that compares five columns of the product with SciPy's float64 product."""
    expected = X.T @ (X @ A[:, :5].astype(np.float64))
    return lambda Y: check.product(Y[:, :5], expected, PRODUCT_TOLERANCE)


def svd_checker(X, k, tolerance):
    """Return a checker that computes the residuals of all triplets in float64."""

    def checker(triplets):
        s, Vt = triplets[:, 0], triplets[:, 1:]
        assert len(s) == k, f"{len(s)} singular triplets instead of {k}"
        largest = check.residuals(X, s, Vt).max()
        assert largest <= tolerance, f"the largest residual is {largest:.3g}"

    return checker


def item_join_checker(X, k, sample=200):
    """Return a checker that compares the k best cosines of sampled items with float64 cosines.

    The cosine of an item with n entries is a sum of at most n products of two rounded factors. The
    relative error of the sum is at most (n + 2) u / (1 - (n + 2) u) with u = 2^-24 (Higham,
    Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
    """
    at = check.sample_of(X.shape[1], sample)
    expected = np.maximum(check.item_neighbors(X, at, k), 0)
    terms = (np.bincount(X.indices, minlength=X.shape[1])[at] + 2) * 2.0**-24
    allowed = 1e-5 + terms / (1 - terms)

    def checker(scores):
        error = np.abs(scores[at] - expected).max(axis=1)
        wrong = (error > allowed).sum()
        assert wrong == 0, (
            f"{wrong} of {len(at)} items have wrong cosines, by up to {error.max():.2g}"
        )

    return checker


TASKS = {
    "one_query": Task(
        "one query among {n:,} x {d} embeddings, k = 10", "search",
        {
            "small": {"queries": 1, "n": 1_000, "d": 64},
            "medium": {"queries": 1, "n": 10_000, "d": 384},
            "large": {"queries": 1, "n": 100_000, "d": 768},
        },
        search_of_embeddings, search_checker,
    ),
    "batch": Task(
        "{queries:,} queries among {n:,} x {d} embeddings, k = 10", "search",
        {
            "small": {"queries": 256, "n": 10_000, "d": 64},
            "medium": {"queries": 256, "n": 50_000, "d": 384},
            "large": {"queries": 1_000, "n": 100_000, "d": 768},
        },
        search_of_embeddings, search_checker,
    ),
    "other_queries": Task(
        "{queries:,} out-of-distribution queries among {n:,} x {d} embeddings, k = 10", "search",
        {
            "small": {"queries": 256, "n": 10_000, "d": 64},
            "medium": {"queries": 256, "n": 50_000, "d": 384},
            "large": {"queries": 1_000, "n": 100_000, "d": 768},
        },
        search_by_other_queries, search_checker,
    ),
    "self_join": Task(
        "neighbours of all {n:,} x {d} random rows, k = 10, including the time to build an index",
        "self_join",
        {
            "small": {"n": 1_000, "d": 64},
            "medium": {"n": 20_000, "d": 128},
            "large": {"n": 50_000, "d": 768},
        },
        join, join_checker,
    ),
    "sparse_join": Task(
        "nearest items of all {n_items:,} items by cosine, {nnz:,} interactions, k = 10",
        "sparse_join",
        {
            "small": {"n_users": 10_000, "n_items": 3_000, "nnz": 400_000},
            "medium": {"n_users": 50_000, "n_items": 20_000, "nnz": 3_000_000},
            "large": {"n_users": 140_000, "n_items": 27_000, "nnz": 18_000_000},
        },
        item_join, item_join_checker,
    ),
    "product": Task(
        "X A, {n_users:,} x {n_items:,}, {nnz:,} non-zeros, 64 columns", "product",
        {
            "small": {"n_users": 40_000, "n_items": 20_000, "nnz": 800_000},
            "medium": {"n_users": 100_000, "n_items": 20_000, "nnz": 6_000_000},
            "large": {"n_users": 140_000, "n_items": 27_000, "nnz": 18_000_000},
        },
        product, product_checker,
    ),
    "gram": Task(
        "X'(X A), {n_users:,} x {n_items:,}, {nnz:,} non-zeros, 64 columns", "gram",
        {
            "small": {"n_users": 40_000, "n_items": 20_000, "nnz": 800_000},
            "medium": {"n_users": 100_000, "n_items": 20_000, "nnz": 6_000_000},
            "large": {"n_users": 140_000, "n_items": 27_000, "nnz": 18_000_000},
        },
        product, gram_checker,
    ),
    "svd": Task(
        "{k} singular triplets to a residual of 0.01, {n_users:,} x {n_items:,}, {nnz:,} non-zeros",
        "svd",
        {
            "small": {"n_users": 10_000, "n_items": 3_000, "nnz": 400_000, "k": 16},
            "medium": {"n_users": 40_000, "n_items": 20_000, "nnz": 800_000, "k": 16},
            "large": {"n_users": 140_000, "n_items": 27_000, "nnz": 18_000_000, "k": 64},
        },
        factorisation, svd_checker,
    ),
}  # fmt: skip


class Row(NamedTuple):
    """A row of the published table: a task in one of its sizes."""

    key: str
    title: str
    operation: str
    make: Callable  # takes no arguments
    checker: Callable


def rows_of(names, sizes):
    """Return the rows of built-in tasks with these names, in these sizes."""
    return [
        Row(
            f"{name} {size}", TASKS[name].title.format(**parameters), TASKS[name].operation,
            lambda task=TASKS[name], parameters=parameters: task.make(**parameters),
            TASKS[name].checker,
        )
        for name in names
        for size, parameters in TASKS[name].sizes.items()
        if size in sizes
    ]  # fmt: skip


def rows_of_file(path, k=K):
    """Return the rows of the table that are measured on a file of vectors or interactions.

    For vectors, the table has one row for a search and one row for a self-join. For interactions,
    the table has one row for the product X A, one row for the product X'(X A), and one row for the
    search for the nearest items of all items.
    """
    from fastcos import io

    if io.holds_vectors(str(path)):
        X = np.ascontiguousarray(io.read_vectors(str(path)).vectors, np.float32)
        n_queries = max(1, min(256, len(X) // 2))
        arguments = {
            "search": {"items": X[n_queries:], "queries": X[:n_queries], "k": k},
            "self_join": {"rows": X, "k": k},
        }
        size = f"{X.shape[0]:,} x {X.shape[1]} rows of {path.name}"
        titles = {
            "search": f"{n_queries:,} queries among {size}, k = {k}",
            "self_join": f"neighbours of all {size}, k = {k}, including the time to build an index",
        }
        checkers = {"search": search_checker, "self_join": join_checker}
    else:
        X = io.read_interactions(str(path)).X.tocsr().astype(np.float32)
        A = data.gaussian(X.shape[1], COLUMNS)
        arguments = {
            "product": {"X": X, "A": A}, "gram": {"X": X, "A": A},
            "sparse_join": {"X": X, "k": min(k, X.shape[1] - 1)},
        }  # fmt: skip
        size = f"{path.name}, {X.shape[0]:,} x {X.shape[1]:,}, {X.nnz:,} non-zeros"
        titles = {
            "product": f"X A, {size}, 64 columns", "gram": f"X'(X A), {size}, 64 columns",
            "sparse_join": f"nearest items of all items by cosine, {size}, k = {k}",
        }  # fmt: skip
        checkers = {
            "product": product_checker, "gram": gram_checker, "sparse_join": item_join_checker,
        }  # fmt: skip
    return [
        Row(
            f"{name} {path.name}", titles[name], name, lambda name=name: arguments[name],
            checkers[name],
        )
        for name in arguments
    ]  # fmt: skip
