"""Exact scores of candidates from another system, and a bound on how many neighbours it missed."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import listed_items
from fastcos.parallel import memmap
from fastcos.search.candidate_lists import best_of_positions, best_of_scored, score_lists
from fastcos.search.options import ExecutionOptions, as_options
from fastcos.search.rankings import select_best
from fastcos.search.request import as_input_rows
from fastcos.search.results import neighbors_of
from fastcos.search.sources import ItemSource, fit_items
from fastcos.similarity import kernel_records, safe_norms
from fastcos.similarity.base import Measure, capabilities, get_measure
from fastcos.similarity.encoded_rows import (
    EncodedRows,
    encode_queries,
    encode_rows,
    match_type,
    row_norms,
)
from fastcos.validation import Floats, Integers

# If rows must be copied, a thread copies and scores this many bytes of rows at once, so that the
# copies stay in its second-level cache.
_BLOCK_BYTES = 1 << 20
# The number of (query, candidate) pairs that a thread scores in one block (docs/dev/costs.md,
# "rescoring").
_PAIRS_PER_BLOCK = 2000
# The bytes that a candidate takes while it is scored and ordered.
_BYTES_PER_CANDIDATE = 64
# n_missing compares this many candidates with true neighbours at once.
_COMPARED_ENTRIES = 1 << 16


class Rescored(NamedTuple):
    """The best candidates of each query, best first.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Item numbers by descending score; equal scores are ordered by item number. If a query has
        fewer than k candidates, the remaining entries are -1.
    scores : ndarray (n, k), float32
        The scores of the returned items; -inf in entries without an item.
    missing : ndarray (n,), int64, or None
        For each query, an upper bound on the number of its k nearest items that are missing from
        the returned items. If ``missing`` is 0 for a query, the returned items are certainly its k
        nearest items. ``missing`` is None if no ``upper_bounds`` were passed.
    """

    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    missing: npt.NDArray[np.int64] | None


def rescore(
    queries: Any,
    items: Any,
    candidates: Any,
    k: int = 10,
    *,
    measure: str | Measure = "cosine",
    upper_bounds: Any = None,
    n_threads: int | None = None,
    working_memory: float | None = None,
) -> Rescored:
    """Return the k candidates of each query that have the highest exact scores.

    The candidates may come from an approximate index, from a vector database, or from a search by
    binary codes. If the measure has the capability ``append`` ("cosine", "dot", "neg_euclidean" and
    "angular"), only the rows of the candidates are read. A measure without the capability
    ``append`` is fitted to all items. The function takes O(n c d) time. The scores are bit-for-bit
    identical to those of :func:`fastcos.top_k`.

    If the k-th score exceeds every score that an item outside of the candidates could have, the
    returned items are certainly the k nearest items. If you know an upper bound on the scores of
    all items outside of the candidates, pass it as ``upper_bounds``. After an approximate search,
    you can compute such an upper bound: it is the sum of the lowest approximate score among the
    candidates and the largest error of the approximation. :meth:`fastcos.SimilarityIndex.rescore`
    needs no bounds, because it searches for the true neighbours.

    Parameters
    ----------
    queries : array_like (n, d) or (d,), as for :func:`fastcos.top_k`
        One row per query.
    items : array_like (m, d)
        All items, which may be memory-mapped.
    candidates : array_like (n, c), int
        The item numbers of each query's candidates; -1 stands for no candidate. Repeated numbers
        count once.
    k : int
        The number of neighbours per query, at most c.
    measure : str or Measure
        The measure, as in :func:`fastcos.top_k`.
    upper_bounds : array_like (n,), optional
        For each query, the largest score that an item outside of its candidates may have. Pass inf
        for a query whose bound is not known, and -inf for a query whose candidates include every
        item. If ``upper_bounds`` is None, ``missing`` in the result is also None.
    n_threads, working_memory
        The same arguments as in :func:`fastcos.top_k`.

    Returns
    -------
    Rescored
        indices (n, k) int64, scores (n, k) float32, and missing (n,) int64 or None.

    Raises
    ------
    ValueError
        A candidate is out of range; k is out of range; the row of a candidate contains NaN or
        infinity; or an upper bound is NaN.

    Examples
    --------
    >>> from fastcos.search import rescore
    >>> items = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [-1.0, 0.0]]
    >>> best = rescore([[1.0, 0.0]], items, [[2, 0, 3]], k=2, upper_bounds=[0.5])
    >>> best.indices.tolist(), best.missing.tolist()
    ([[0, 2]], [0])
    """
    unfitted_measure = get_measure(measure)
    Q = validation.as_rows("queries", queries, or_vector=True)
    X = _as_listed_items(items, unfitted_measure)
    validation.check_same_width("items", X, "queries", Q)
    lists = as_candidates(candidates, len(Q), X.shape[0])
    k = validation.as_count("k", k, high=lists.shape[1])
    options = as_options(n_threads, working_memory)
    bounds = None if upper_bounds is None else _as_upper_bounds(upper_bounds, len(Q))
    if capabilities(unfitted_measure).append:
        columns, raw_scores = _best_of_rows(X, unfitted_measure, Q, lists, k, options)
        fitted_measure = unfitted_measure
    else:
        fitted_items = fit_items(X, unfitted_measure, options)
        columns, raw_scores = best_of_candidates(fitted_items, Q, lists, k, options)
        fitted_measure = fitted_items.measure
    indices, scores = neighbors_of(fitted_measure, Q, columns, raw_scores, None)
    if bounds is None:
        return Rescored(indices, scores, None)
    exact_scores = np.where(columns < 0, -np.inf, fitted_measure.to_score(raw_scores, Q))
    # No unlisted item has a score above the upper bound. If the score of a candidate exceeds the
    # bound, no unlisted item can therefore rank above this candidate. ``missing`` is the number of
    # candidates whose score is at most the bound. It includes candidates whose score equals the
    # bound, because an unlisted item with the same score but a lower item number would rank above
    # them.
    missing = (exact_scores <= bounds[:, None]).sum(axis=1)
    n_not_listed = X.shape[0] - (lists >= 0).sum(axis=1)
    return Rescored(indices, scores, np.minimum(missing, n_not_listed))


def _as_upper_bounds(upper_bounds: Any, n: int) -> Floats:
    """Return ``upper_bounds`` as a float64 array (n,), which may contain infinity but not NaN."""
    bounds = validation.as_array("upper_bounds", upper_bounds).astype(np.float64)
    validation.check_shape("upper_bounds", bounds.shape, (n,))
    if np.isnan(bounds).any():
        place = int(np.flatnonzero(np.isnan(bounds))[0])
        raise ValueError(f"upper_bounds must not be NaN, got NaN at position {place}")
    return bounds


def as_candidates(candidates: Any, n: int, n_items: int) -> Integers:
    """Return ``candidates`` as an int64 array (n, c) of item numbers, ascending in each row.

    A repeated item number is replaced by -1, which stands for no candidate.
    """
    array = validation.as_array("candidates", candidates)
    if array.ndim != 2 or array.shape[0] != n or not array.shape[1]:
        raise ValueError(
            f"candidates must be of shape ({n}, c) with c of at least 1, got {array.shape}"
        )
    if array.dtype.kind not in "iu":
        raise TypeError(f"candidates must hold whole numbers, got dtype {array.dtype}")
    if array.min() < -1 or array.max() >= n_items:
        raise ValueError(
            f"candidates must hold item numbers from 0 to {n_items - 1}, or -1 as padding, got "
            f"numbers from {int(array.min())} to {int(array.max())}"
        )
    lists = array.astype(np.int64)
    lists.sort(axis=1)
    lists[:, 1:][lists[:, 1:] == lists[:, :-1]] = -1
    return lists


def n_missing(nearest: Integers, indices: Integers, n_items: int) -> Integers:
    """Return, for each query, the number of `nearest` items that are missing from `indices`.

    `nearest` has the shape (n, k), and `indices` has the shape (n, c). In both arrays, -1 marks an
    entry without an item.
    """
    missing = np.empty(len(nearest), np.int64)
    size = max(1, _COMPARED_ENTRIES // indices.shape[1])
    for lo in range(0, len(nearest), size):
        block = slice(lo, lo + size)
        # Each (query, item) pair is encoded as one number, so that np.isin can compare all pairs.
        # This avoids a three-dimensional array of queries, true neighbours and candidates.
        first_pair = np.arange(len(nearest[block]))[:, None] * n_items
        candidate_pairs = (first_pair + indices[block])[indices[block] >= 0]
        is_missing = ~np.isin(first_pair + nearest[block], candidate_pairs) & (nearest[block] >= 0)
        missing[block] = is_missing.sum(axis=1)
    return missing


def best_of_candidates(
    items: ItemSource, Q: validation.Rows, lists: Integers, k: int, options: ExecutionOptions
) -> tuple[Integers, Floats]:
    """Return positions and raw scores (n, k) of the best candidates in each row of ``lists``."""
    measure, is_listed = items.measure, lists >= 0
    queries = encode_queries(measure, Q, options.n_threads)
    indptr = np.concatenate([[0], np.cumsum(is_listed.sum(axis=1))])
    positions = lists[is_listed]
    if items.segments:
        return best_of_positions(items, Q, queries, indptr, positions, k, options)
    raw_scores = np.full(len(positions), -np.inf)
    for block in items.read_blocks(positions, options):
        block_scores = score_lists(block, Q, queries, indptr, positions, options)
        np.maximum(raw_scores, block_scores, out=raw_scores)
    return best_of_scored(indptr, positions, raw_scores, k, options)


def _as_listed_items(items: Any, measure: Measure) -> Any:
    """Return the items as rows; the values are checked only if the measure must be fitted."""
    if capabilities(measure).append:
        array = validation.as_shared_array(items)
        return array if memmap.is_narrow(array) else validation.as_row_shape("items", items)
    return as_input_rows("items", items, measure)


def _best_of_rows(
    X: Any, measure: Measure, Q: validation.Rows, lists: Integers, k: int, options: ExecutionOptions
) -> tuple[Integers, Floats]:
    """Return item numbers and raw scores (n, k) of the best candidates in each row of ``lists``.

    Only the rows of the candidates are read.
    """
    n, width = lists.shape
    bytes_per_query = float(_BYTES_PER_CANDIDATE * width)
    validation.check_memory("working_memory", options.working_memory, bytes_per_query)
    size = max(1, int(options.working_memory / bytes_per_query))
    queries = encode_queries(measure, Q, options.n_threads)
    columns, raw_scores = np.empty((n, k), np.int64), np.empty((n, k))
    for lo in range(0, n, size):
        block = lists[lo : lo + size]
        is_listed = block >= 0
        query_of_pair = lo + np.repeat(np.arange(len(block)), is_listed.sum(axis=1))
        block_scores = np.full(block.shape, -np.inf)
        block_scores[is_listed] = _score_pairs(
            X, measure.metric_type, queries, validation.read_only(query_of_pair),
            validation.read_only(block[is_listed]), options,
        )  # fmt: skip
        columns[lo : lo + size], raw_scores[lo : lo + size] = select_best(
            block, block_scores, k, options.n_threads
        )
    return columns, raw_scores


def _score_pairs(
    X: Any, metric_type: str, queries: EncodedRows, query_of_pair: Integers, columns: Integers,
    options: ExecutionOptions,
) -> Floats:  # fmt: skip
    """Return the raw scores (m,) of m pairs.

    Pair i consists of query ``query_of_pair[i]`` and item ``columns[i]``.
    """
    queries, raw_scores = match_type(queries, X), np.full(len(columns), np.nan)
    if not memmap.is_read_in_blocks(X) and X.flags.c_contiguous and X.dtype == queries.rows.dtype:
        # If squares of the row underflow or are not finite, the kernel writes NaN instead of a
        # score, and _score_copies scores the pair.
        smallest_norm = safe_norms.MIN_NORM if X.dtype == np.float64 else 0.0
        parallel.run(
            listed_items.score_listed_items,
            parallel.row_blocks(len(raw_scores), _PAIRS_PER_BLOCK),
            kernel_records.listed_scoring(metric_type, queries, X), query_of_pair, columns,
            smallest_norm, raw_scores,
            n_threads=options.n_threads,
        )  # fmt: skip
    unscored = np.flatnonzero(np.isnan(raw_scores))
    size = max(1, _BLOCK_BYTES // (X.shape[1] * max(4, X.dtype.itemsize)))
    parallel.run(
        _score_copies, parallel.row_blocks(len(unscored), size), X, metric_type, queries, unscored,
        query_of_pair, columns, raw_scores,
        n_threads=options.n_threads,
    )  # fmt: skip
    return raw_scores


def _score_copies(
    lo: int, hi: int, X: Any, metric_type: str, queries: EncodedRows, unscored: Integers,
    query_of_pair: Integers, columns: Integers, raw_scores: Floats,
) -> None:  # fmt: skip
    """Score the pairs ``unscored[lo:hi]`` from copies of item rows; the copies fit in the cache.

    A row must be copied if it is memory-mapped, if it must be converted to the type of the queries,
    or if its squares underflow. ValueError is raised for rows that are not finite.
    """
    if lo == hi:
        return
    pairs = unscored[lo:hi]
    item_numbers, row_of_pair = np.unique(columns[pairs], return_inverse=True)
    rows = memmap.take_rows("items", X, item_numbers)
    if rows.dtype.char not in "fd":
        rows = validation.as_rows("items", rows)
    if rows.dtype != queries.rows.dtype:  # the kernel requires queries and rows of the same type
        rows = validation.read_only(rows.astype(np.float64))
        queries = match_type(queries, rows)
    norms = row_norms(rows, 1)
    if not np.isfinite(norms).all():
        broken_rows = item_numbers[~np.isfinite(norms)]
        raise ValueError(
            "items must be finite, and each row must have a finite sum of squares, got NaN, "
            f"infinity or too large values in {validation.format_rows(broken_rows)} (counted "
            "from 0)"
        )
    if rows.dtype == np.float64:
        rows = encode_rows(rows, None, 1, metric_type).rows
    scores, block = np.empty(len(pairs)), parallel.row_blocks(len(pairs), len(pairs))
    parallel.run(
        listed_items.score_listed_items, block,
        kernel_records.listed_scoring(metric_type, queries, rows),
        validation.read_only(query_of_pair[pairs]),
        validation.read_only(row_of_pair.astype(np.int64)), 0.0, scores,
    )  # fmt: skip
    raw_scores[pairs] = scores
