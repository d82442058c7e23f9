"""Exact nearest neighbours among sparse rows: ``top_k`` for SciPy's sparse matrices."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.engine.sparse_rows import SparseRows, as_sparse_rows
from fastcos.kernels import sparse_top_k as sparse_topk
from fastcos.linalg.csr import as_interactions, csr_arrays
from fastcos.measures import Measure, get_measure
from fastcos.neighbors.types import Neighbors, no_neighbors, padded

MEASURES = ("cosine", "dot")

# a block's non-zeros of queries, where so many sums to read count as one: some milliseconds
_NNZ_PER_BLOCK = 1 << 14
_SUMS_PER_NNZ = 256
# sums of whole numbers stay below this in int32
LARGEST_SUM = 2.0**31


def sparse_top_k(
    queries: Any,
    items: Any,
    k: int,
    *,
    measure: str | Measure,
    exclude_self: bool,
    allowed: Any,
    exclude: Any,
    min_score: float | None,
    n_threads: int | None,
    progress: parallel.Progress | None,
) -> Neighbors:
    """Do what ``top_k`` says for sparse rows; return indices and scores.

    Inner products of whole numbers are exact; others are summed in float64 in the order of the
    columns. Time O(the items' non-zeros in the columns of every query); memory one or two copies of
    the items, and O(m) per thread. A CSC matrix, such as the transpose of a CSR one, is as good.
    """
    name = validation.as_choice("measure", get_measure(measure).name, MEASURES)
    given = as_sparse_rows("queries", queries, name, n_threads)
    searched = given if items is None else as_sparse_rows("items", items, name, n_threads)
    validation.check_same_width("items", searched, "queries", given)
    (n, _), n_items = given.shape, searched.shape[0]
    own = np.arange(n) if items is None and exclude_self else np.full(n, -1)
    if exclude is None:
        import scipy.sparse as sp

        exclude = sp.csr_array((n, n_items), dtype=np.float32)
    else:
        exclude = as_interactions("exclude", exclude)
        validation.check_shape("exclude", exclude.shape, (n, n_items))
    validation.check_progress(progress)
    wanted = k = validation.as_neighbor_count(
        k, n_items, without_itself=items is None and exclude_self
    )
    count = n_items
    if allowed is not None:
        allowed = validation.as_item_numbers("allowed", allowed, n_items)
        place, count = np.full(n_items, -1), len(allowed)
        k = min(k, count)
        if not k:
            return padded(no_neighbors(n), wanted)
        place[allowed] = np.arange(count)
        searched, exclude = searched.only(allowed), exclude[:, allowed]
        own = np.where(own < 0, -1, place[own])
    if given.are_whole and searched.are_whole:  # exact in every order
        order = searched.columns_by_length()
        is_one = searched is given
        given = given.with_columns(order)
        searched = given if is_one else searched.with_columns(order)
    indices, scores = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float32)
    sum_type, query_values, item_values = _kinds(given, searched)
    indptr, columns, _ = given.by_row
    parallel.run(
        sparse_topk.best_rows,
        _cuts(indptr, count),
        name == "cosine",
        sparse_topk.Queries(
            indptr, columns, query_values, given.norms, own.astype(np.int64),
            *csr_arrays(exclude)[:2],
        ),
        _items(searched, item_values, name == "cosine", sum_type),
        -np.inf if min_score is None else validation.as_real("min_score", min_score),
        np.empty(0, sum_type),
        scores,
        indices,
        n_threads=n_threads,
        progress=progress,
    )  # fmt: skip
    if allowed is not None:
        indices = np.where(indices < 0, -1, allowed[indices])
    return padded(Neighbors(indices, scores), wanted)


def _kinds(given: SparseRows, searched: SparseRows) -> tuple[npt.DTypeLike, Any, Any]:
    """Settle how products are summed: the type of the sums, the values of both sides."""
    query_values, item_values = given.by_row[2], searched.by_column[2]
    if query_values is None and item_values is None:
        return np.int32, None, None
    if query_values is None:
        query_values = np.ones(len(given.by_row[1]), np.int16)
    if item_values is None:
        item_values = np.ones(len(searched.by_column[1]), np.int16)
    # a bound for every partial sum too, by Cauchy and Schwarz
    sum_type: npt.DTypeLike = np.float64
    are_whole = given.are_whole and searched.are_whole
    if are_whole and given.norms.max() * searched.norms.max() < LARGEST_SUM:
        sum_type = np.int32
    else:  # few combinations of types to compile
        query_values, item_values = _as_floats(query_values), _as_floats(item_values)
    return sum_type, validation.read_only(query_values), validation.read_only(item_values)


def _as_floats(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.float64) if values.dtype.kind == "i" else values


def _items(
    searched: SparseRows, values: Any, is_cosine: bool, sum_type: npt.DTypeLike
) -> sparse_topk.Items:
    m = searched.shape[0]
    norms = searched.norms
    factors = np.zeros(-(-m // sparse_topk.STRIP) * sparse_topk.STRIP)
    factors[:m] = np.divide(1.0, norms, out=np.zeros(m), where=norms > 0) if is_cosine else 1.0
    factors = factors.astype(np.float32 if sum_type == np.int32 else np.float64)
    indptr, lists, _ = searched.by_column
    if searched.packed is not None and sum_type == np.int32:
        return sparse_topk.Items(
            indptr, validation.read_only(searched.packed), None, norms, factors
        )
    return sparse_topk.Items(indptr, np.ascontiguousarray(lists), values, norms, factors)


def _cuts(indptr: npt.NDArray[np.int64], n_items: int) -> parallel.Blocks:
    """Cut the queries by their non-zeros and the sums to be read."""
    sums = np.arange(len(indptr)) * (n_items // _SUMS_PER_NNZ)
    return parallel.work_blocks(indptr + sums, _NNZ_PER_BLOCK)
