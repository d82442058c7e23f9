"""Exact nearest neighbours among sparse rows: ``top_k`` for sparse matrices of SciPy.

The kernel reads inverted lists: for each column, the items that have a non-zero in this column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import sparse_top_k as kernels
from fastcos.linalg.csr import as_interactions, csr_arrays
from fastcos.search.options import ExecutionOptions
from fastcos.search.request import (
    Threshold,
    as_exclude_self,
    as_min_score,
    as_threshold,
)
from fastcos.search.results import Neighbors, padded, rounded_scores
from fastcos.search.sparse_rows import SparseRows, as_sparse_rows, without_unused_columns
from fastcos.similarity import Measure, get_measure

if TYPE_CHECKING:
    import scipy.sparse as sp

MEASURES = ("cosine", "dot")

# The queries are divided into blocks. A block takes about as much time as _NNZ_PER_BLOCK non-zeros
# of queries. Every query also reads one sum per item. Reading _SUMS_PER_NNZ sums takes as long as
# processing one non-zero.
_NNZ_PER_BLOCK = 1 << 14
_SUMS_PER_NNZ = 256
# The bytes that a (query, item) pair takes in sparse_neighbors_above.
_BYTES_PER_PAIR = 40
# The bytes that a neighbour takes in the buffers of a thread, which hold 2 k + 64 neighbours.
_BYTES_PER_NEIGHBOR = 24
# The number of neighbours that are compared with min_score at once, after the search.
_RESULTS_PER_BLOCK = 1 << 16
# Whole numbers are summed exactly in int32 if all partial sums are below this limit.
LARGEST_SUM = 2.0**31


def sparse_top_k(
    queries: Any,
    items: Any,
    k: int,
    *,
    measure: str | Measure,
    exclude_self: bool | None,
    allowed: Any,
    exclude: Any,
    min_score: float | None,
    options: ExecutionOptions,
) -> Neighbors:
    """Return the nearest neighbours of sparse rows, with the arguments and results of ``top_k``.

    If all values are whole numbers that fit int16, inner products are exact. Otherwise, inner
    products are summed in float64, in the order of the columns. For each query, the search reads
    only the columns in which the query has a non-zero. The time for a query is therefore
    proportional to the number of non-zeros of the items in these columns. The function needs memory
    for one or two copies of the non-zeros, however many columns there are. In addition, it needs
    O(m) memory per thread. If ``working_memory`` is too small for all threads, fewer threads are
    used. A CSC matrix is searched as fast as a CSR matrix.
    """
    name = validation.as_choice("measure", get_measure(measure).name, MEASURES)
    query_rows, item_rows = _as_both_rows(queries, items, name, options.n_threads)
    (n, _), n_items = query_rows.shape, item_rows.shape[0]
    exclude_self = as_exclude_self(exclude_self, n, n_items, has_items=items is not None)
    if allowed is None:  # a lack of working memory raises an error before the rows are transposed
        _threads_that_fit(n_items, 1, np.int32, options)
    if exclude is None or validation.is_empty_list(exclude):
        import scipy.sparse as sp

        exclude = sp.csr_array((n, n_items), dtype=np.float32)
    else:
        exclude = as_interactions("exclude", exclude)
        validation.check_shape("exclude", exclude.shape, (n, n_items))
    requested_k = k = validation.as_neighbor_count(k, n_items, without_itself=exclude_self)
    self_items = np.arange(n) if exclude_self else np.full(n, -1)
    if allowed is not None:
        if validation.is_sparse(allowed):
            raise TypeError(
                "allowed must be a mask or item numbers for sparse rows, got a sparse matrix"
            )
        allowed = validation.as_item_numbers("allowed", allowed, n_items)
        k = min(k, len(allowed))
        if not k:
            shape = n, requested_k
            return Neighbors(np.full(shape, -1), np.full(shape, -np.inf, np.float32))
        place_of_item = np.full(n_items, -1)
        place_of_item[allowed] = np.arange(len(allowed))
        self_items = np.where(self_items < 0, -1, place_of_item[self_items])
        item_rows, exclude = item_rows.only(allowed), exclude[:, allowed]
    if query_rows.are_whole and item_rows.are_whole:  # sums of whole numbers are exact in any order
        order = item_rows.columns_by_length()
        are_same = item_rows is query_rows
        query_rows = query_rows.with_columns(order)
        item_rows = query_rows if are_same else item_rows.with_columns(order)
    sum_type, query_values, item_values = _summation(query_rows, item_rows)
    n_threads = _threads_that_fit(item_rows.shape[0], k, sum_type, options)
    min_float32 = rounded_scores(-np.inf)
    if min_score is not None:
        min_score = as_min_score(min_score, get_measure(measure))
        min_float32 = rounded_scores(validation.as_real("min_score", min_score))
    # The smallest float32 score that qualifies is min_float32. A float64 score slightly below
    # min_float32 may still be rounded up to min_float32. The kernel therefore keeps all pairs whose
    # float64 score is above ``bound``, the largest float32 number below min_float32.
    bound = float(np.nextafter(min_float32, np.float32(-np.inf)))
    indptr, columns, _ = query_rows.by_row
    exclude_arrays = csr_arrays(exclude)
    kernel_queries = kernels.Queries(
        indptr, columns, query_values, query_rows.norms, self_items.astype(np.int64),
        exclude_arrays.indptr, exclude_arrays.indices,
    )  # fmt: skip
    kernel_items = _kernel_items(item_rows, item_values, name == "cosine", sum_type)
    work = indptr + np.arange(n + 1) * (item_rows.shape[0] // _SUMS_PER_NNZ)
    indices, scores = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float32)
    parallel.run(
        kernels.best_rows, parallel.work_blocks(work, _NNZ_PER_BLOCK), kernel_queries,
        kernel_items, bound, scores, indices,
        n_threads=n_threads, progress=options.progress,
    )  # fmt: skip
    rows_at_once = max(1, _RESULTS_PER_BLOCK // k)
    for lo in range(0, n, rows_at_once):
        block = slice(lo, lo + rows_at_once)
        is_below = scores[block] < min_float32
        scores[block][is_below], indices[block][is_below] = -np.inf, -1
        if allowed is not None:
            indices[block] = np.where(indices[block] < 0, -1, allowed[indices[block]])
    return padded(Neighbors(indices, scores), requested_k)


def sparse_neighbors_above(
    queries: Any,
    items: Any,
    *,
    min_score: float | Threshold,
    measure: str | Measure,
    options: ExecutionOptions,
) -> sp.csr_array:
    """Return all pairs of sparse rows that score at least ``min_score``, for ``neighbors_above``.

    SciPy multiplies one block of queries at a time by all items. Products are summed in float64, in
    the order of the columns. If no column is non-zero in both rows of a pair, the score of the pair
    is 0. The scores of such pairs are not computed, so ``min_score`` must be above 0.
    """
    import scipy.sparse as sp

    fitted = get_measure(measure)
    name = validation.as_choice("measure", fitted.name, MEASURES)
    threshold = as_threshold("min_score", min_score, fitted)
    min_float32 = rounded_scores(threshold)
    if min_float32 <= 0:
        raise ValueError(f"min_score must be above 0 for sparse rows, got {threshold:g}")
    query_rows, item_rows = _as_both_rows(queries, items, name, options.n_threads)
    query_matrix = _as_matrix(query_rows)
    item_matrix = query_matrix if item_rows is query_rows else _as_matrix(item_rows)
    item_matrix = item_matrix.T.tocsr()
    n, n_items = query_matrix.shape[0], item_matrix.shape[1]
    validation.check_memory("working_memory", options.working_memory, _BYTES_PER_PAIR * n_items)
    size = max(1, int(options.working_memory / (2 * _BYTES_PER_PAIR * n_items)))
    blocks, result_bytes = [sp.csr_array((0, n_items), dtype=np.float32)], 0.0
    for lo in range(0, n, size):
        pairs = (query_matrix[lo : lo + size] @ item_matrix).tocoo()
        rows, columns, scores = pairs.coords[0], pairs.coords[1], pairs.data
        if name == "cosine":
            scores = scores / (query_rows.norms[lo + rows] * item_rows.norms[columns])
            scores = np.minimum(scores, 1.0)
        scores = rounded_scores(scores)
        qualifies = scores >= min_float32
        if items is None:
            qualifies &= lo + rows != columns
        result_bytes += _BYTES_PER_PAIR * float(np.count_nonzero(qualifies))
        validation.check_memory("working_memory", options.working_memory, result_bytes)
        entries = scores[qualifies], (rows[qualifies], columns[qualifies])
        blocks.append(sp.csr_array(entries, shape=pairs.shape))
        if options.progress is not None:
            options.progress(min(n, lo + size), n)
    result = sp.vstack(blocks, format="csr")
    result.sort_indices()
    return result


def _as_both_rows(
    queries: Any, items: Any, measure: str, n_threads: int | None
) -> tuple[SparseRows, SparseRows]:
    """Return the validated queries and items, which are the same object if ``items`` is None."""
    query_rows = as_sparse_rows("queries", queries, measure, n_threads)
    if items is None:
        (rows,) = without_unused_columns(query_rows)
        return rows, rows
    item_rows = as_sparse_rows("items", items, measure, n_threads)
    validation.check_same_width("items", item_rows, "queries", query_rows)
    query_rows, item_rows = without_unused_columns(query_rows, item_rows)
    return query_rows, item_rows


def _as_matrix(rows: SparseRows) -> sp.csr_array:
    """Return the rows as a float64 CSR matrix."""
    import scipy.sparse as sp

    indptr, columns, values = rows.by_row
    values = np.ones(len(columns)) if values is None else values.astype(np.float64)
    return sp.csr_array((values, columns, indptr), shape=rows.shape)


def _summation(query_rows: SparseRows, item_rows: SparseRows) -> tuple[npt.DTypeLike, Any, Any]:
    """Return a tuple: the type of sums of products, the query values, and the item values.

    Both arrays of values are None if all non-zeros of the queries and of the items are 1.
    """
    query_values, item_values = query_rows.by_row[2], item_rows.by_column[2]
    if query_values is None and item_values is None:
        return np.int32, None, None
    if query_values is None:
        query_values = np.ones(len(query_rows.by_row[1]), np.int16)
    if item_values is None:
        item_values = np.ones(len(item_rows.by_column[1]), np.int16)
    are_whole = query_rows.are_whole and item_rows.are_whole
    # By the Cauchy-Schwarz inequality, the product of the norms also bounds every partial sum.
    if are_whole and query_rows.norms.max() * item_rows.norms.max() < LARGEST_SUM:
        sum_type: npt.DTypeLike = np.int32
    else:  # integers are converted, so that kernels are compiled for fewer combinations of types
        sum_type = np.float64
        query_values, item_values = _as_floats(query_values), _as_floats(item_values)
    return sum_type, validation.read_only(query_values), validation.read_only(item_values)


def _as_floats(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.float64) if values.dtype.kind == "i" else values


def _threads_that_fit(
    n_items: int, k: int, sum_type: npt.DTypeLike, options: ExecutionOptions
) -> int:
    """Return the number of threads whose buffers fit the working memory.

    Each thread stores one sum per item.
    """
    bytes_per_thread = 1.1 * n_items * np.dtype(sum_type).itemsize
    bytes_per_thread += (2 * k + 64) * _BYTES_PER_NEIGHBOR
    validation.check_memory("working_memory", options.working_memory, bytes_per_thread)
    return min(options.n_threads, int(options.working_memory / bytes_per_thread))


def _kernel_items(
    item_rows: SparseRows, values: Any, is_cosine: bool, sum_type: npt.DTypeLike
) -> kernels.Items:
    """Return the inverted lists of the items in the format that the kernel reads."""
    m, norms = item_rows.shape[0], item_rows.norms
    factors = np.zeros(-(-m // kernels.STRIP) * kernels.STRIP)
    factors[:m] = np.divide(1.0, norms, out=np.zeros(m), where=norms > 0) if is_cosine else 1.0
    factors = factors.astype(np.float32 if sum_type == np.int32 else np.float64)
    indptr, lists, _ = item_rows.by_column
    if item_rows.packed is not None and sum_type == np.int32:
        lists, values = validation.read_only(item_rows.packed), None
    return kernels.Items(
        indptr, np.ascontiguousarray(lists), values, norms, factors, is_cosine,
        np.empty(0, sum_type),
    )  # fmt: skip
