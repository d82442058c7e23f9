"""Exact nearest neighbours among sparse rows: ``top_k`` for SciPy's sparse matrices."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import sparse_top_k as sparse_topk
from fastcos.linalg.csr import as_interactions, csr_arrays
from fastcos.search.packing import ExecutionOptions
from fastcos.search.request import Threshold, as_min_score, as_threshold, rounded_scores
from fastcos.search.results import Neighbors, no_neighbors, padded
from fastcos.search.sparse_rows import SparseRows, as_sparse_rows
from fastcos.similarity import Measure, get_measure

if TYPE_CHECKING:
    import scipy.sparse as sp

MEASURES = ("cosine", "dot")

# a block's non-zeros of queries, where so many sums to read count as one: some milliseconds
_NNZ_PER_BLOCK = 1 << 14
_SUMS_PER_NNZ = 256
# bytes of a pair's score, row and column while a block is made
_BYTES_PER_SUM = 40
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
    is_self = items is None and exclude_self
    own = np.arange(n) if is_self else np.full(n, -1)
    if exclude is None or validation.is_empty_list(exclude):
        import scipy.sparse as sp

        exclude = sp.csr_array((n, n_items), dtype=np.float32)
    else:
        exclude = as_interactions("exclude", exclude)
        validation.check_shape("exclude", exclude.shape, (n, n_items))
    validation.check_progress(progress)
    wanted = k = validation.as_neighbor_count(k, n_items, without_itself=is_self)
    count = n_items
    if allowed is not None:
        if validation.is_sparse(allowed):
            raise TypeError("allowed must be a mask or item numbers for sparse rows, got pairs")
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
    work = indptr + np.arange(len(indptr)) * (count // _SUMS_PER_NNZ)
    least = rounded_scores(-np.inf)
    if min_score is not None:
        min_score = as_min_score(min_score, get_measure(measure))
        least = rounded_scores(validation.as_real("min_score", min_score))
    # float64 scores above this bound may round to the least float32 score; the others are below it
    bound = float(np.nextafter(least, np.float32(-np.inf)))
    as_queries = sparse_topk.Queries(
        indptr, columns, query_values, given.norms, own.astype(np.int64), *csr_arrays(exclude)[:2]
    )
    parallel.run(
        sparse_topk.best_rows, parallel.work_blocks(work, _NNZ_PER_BLOCK), name == "cosine",
        as_queries, _items(searched, item_values, name == "cosine", sum_type), bound,
        np.empty(0, sum_type), scores, indices,
        n_threads=n_threads, progress=progress,
    )  # fmt: skip
    is_below = scores < least
    indices[is_below], scores[is_below] = -1, -np.inf
    if allowed is not None:
        indices = np.where(indices < 0, -1, allowed[indices])
    return padded(Neighbors(indices, scores), wanted)


def sparse_neighbors_above(
    queries: Any,
    threshold: float | Threshold,
    items: Any,
    *,
    measure: str | Measure,
    options: ExecutionOptions,
) -> "sp.csr_array":
    """Do what ``neighbors_above`` says for sparse rows, by SciPy's product of blocks of queries.

    A product is summed in float64 in the order of the columns. Pairs without a common column have
    no score, so that the threshold must be above 0.
    """
    import scipy.sparse as sp

    chosen = get_measure(measure)
    name = validation.as_choice("measure", chosen.name, MEASURES)
    given_threshold = as_threshold("threshold", threshold, chosen)
    least = rounded_scores(given_threshold)
    if least <= 0:
        raise ValueError(f"threshold must be above 0 for sparse rows, got {given_threshold:g}")
    given = as_sparse_rows("queries", queries, name, options.n_threads)
    searched = given if items is None else as_sparse_rows("items", items, name, options.n_threads)
    validation.check_same_width("items", searched, "queries", given)
    left = _as_matrix(given)
    right = left.T if searched is given else _as_matrix(searched).T
    n, m = left.shape[0], right.shape[1]
    size = max(1, int(options.working_memory / (_BYTES_PER_SUM * m)))
    found, held = [sp.csr_array((0, m), dtype=np.float32)], 0.0
    for lo in range(0, n, size):
        pairs = (left[lo : lo + size] @ right).tocoo()
        rows, columns, scores = pairs.coords[0], pairs.coords[1], pairs.data
        if name == "cosine":
            scores = np.minimum(scores / (given.norms[lo + rows] * searched.norms[columns]), 1.0)
        scores = rounded_scores(scores)
        kept = scores >= least
        if items is None:
            kept &= lo + rows != columns
        held += _BYTES_PER_SUM * float(kept.sum())
        validation.check_memory("working_memory", options.working_memory, held)
        entries = scores[kept], (rows[kept], columns[kept])
        found.append(sp.csr_array(entries, shape=pairs.shape))
        if options.progress is not None:
            options.progress(min(n, lo + size), n)
    together = sp.vstack(found, format="csr")
    together.sort_indices()
    return together


def _as_matrix(rows: SparseRows) -> "sp.csr_array":
    """Return the rows as a matrix of float64."""
    import scipy.sparse as sp

    indptr, columns, values = rows.by_row
    values = np.ones(len(columns)) if values is None else values.astype(np.float64)
    return sp.csr_array((values, columns, indptr), shape=rows.shape)


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
