"""Exact scores and order of candidates that something else found, and what may be missing."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import listed_items
from fastcos.parallel import memmap
from fastcos.search import scan, segments
from fastcos.search.execute import finish
from fastcos.search.lists import best_of_scored, score_lists
from fastcos.search.packing import ExecutionOptions
from fastcos.search.sources import ItemSource, fit_items
from fastcos.search.top_k import as_items, as_options
from fastcos.similarity import safe_norms
from fastcos.similarity.base import Measure, capabilities, get_measure
from fastcos.similarity.encoded_rows import METRIC_TYPES, EncodedRows, encode_rows, row_norms
from fastcos.validation import Floats, Integers

# bytes of the rows that a thread copies and scores at once: they stay in its second cache
_BLOCK_BYTES = 1 << 20
# pairs that a thread scores at once, 0.3 ms for 768 columns
_PAIRS_PER_BLOCK = 2000


class Rescored(NamedTuple):
    """The best candidates of every query, best first.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Items by descending score; equal scores by lower index. -1 where there are fewer than k.
    scores : ndarray (n, k), float32
        Their scores; -inf where there are fewer than k.
    missing : ndarray (n,), int64, or None
        At most so many of the true k nearest are not in the row. 0: certainly none. None where
        nothing is known, because no upper bounds were given.
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
    """The k best of each query's candidates by exact score, wherever the candidates come from.

    For lists of an approximate index, a vector database or binary codes. Reads the candidates' rows
    alone, by measures with the capability ``append`` (cosine, dot, neg_euclidean, angular); others
    are fitted to all items. O(n c d). The bits are those of :func:`fastcos.top_k`.

    A row is certainly right if its k-th score exceeds what any other item could have. Give that as
    upper_bounds: for example the last approximate score of the list plus the largest error.
    :meth:`fastcos.SimilarityIndex.rescore` needs no bounds.

    Parameters
    ----------
    queries : array_like (n, d) or (d,), as for :func:`fastcos.top_k`
        One row per query.
    items : array_like (m, d)
        All items, also memory-mapped.
    candidates : array_like (n, c), int
        Item numbers of each query; -1 stands for none. Repeated ones count once.
    k : int
        Neighbours per query, at most c.
    measure : str or Measure
        As in :func:`fastcos.top_k`.
    upper_bounds : array_like (n,), optional
        No item that is missing from a query's candidates has a higher score. inf where nothing is
        known, -inf where nothing is missing. Default: nothing is known, and ``missing`` is None.
    n_threads, working_memory
        As in :func:`fastcos.top_k`.

    Returns
    -------
    Rescored
        indices (n, k) int64, scores (n, k) float32 and missing (n,) int64, or None without bounds.

    Raises
    ------
    ValueError
        A candidate out of range, NaN or infinity in its row, k out of range, bounds that are NaN.

    Examples
    --------
    >>> from fastcos.search import rescore
    >>> items = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [-1.0, 0.0]]
    >>> found = rescore([[1.0, 0.0]], items, [[2, 0, 3]], k=2, upper_bounds=[0.5])
    >>> found.indices.tolist(), found.missing.tolist()
    ([[0, 2]], [0])
    """
    given = get_measure(measure)
    Q = validation.as_rows("queries", queries, or_vector=True)
    X = _as_listed_items(items, given)
    validation.check_same_width("items", X, "queries", Q)
    validation.check_scorable("queries", Q, Q)
    lists = as_candidates(candidates, len(Q), X.shape[0])
    k = validation.as_count("k", k, high=lists.shape[1])
    options = as_options(n_threads, working_memory)
    bounds = None
    if upper_bounds is not None:
        bounds = validation.as_array("upper_bounds", upper_bounds).astype(np.float64)
        validation.check_shape("upper_bounds", bounds.shape, (len(Q),))
        if np.isnan(bounds).any():
            at = int(np.flatnonzero(np.isnan(bounds))[0])
            raise ValueError(f"upper_bounds must not be NaN, got NaN at position {at}")
    if capabilities(given).append:
        columns, raw = _best_of_rows(X, given, Q, lists, k, options)
        fitted = given
    else:
        items_read = fit_items(X, given, options)
        columns, raw = best_of_candidates(items_read, Q, lists, k, options)
        fitted = items_read.measure
    indices, scores = finish(fitted, Q, columns, raw, None)
    if bounds is None:
        return Rescored(indices, scores, None)
    exact = np.where(columns < 0, -np.inf, fitted.to_score(raw, Q))
    # an item that ties with a bound may have a lower number
    missing = (exact <= bounds[:, None]).sum(axis=1)
    others = X.shape[0] - (lists >= 0).sum(axis=1)
    return Rescored(indices, scores, np.minimum(missing, others))


def as_candidates(candidates: Any, n: int, n_items: int) -> Integers:
    """Return item numbers (n, c), ascending in each row; repeated ones are -1."""
    array = validation.as_array("candidates", candidates)
    if array.ndim != 2 or array.shape[0] != n or not array.shape[1]:
        raise ValueError(
            f"candidates must be of shape ({n}, c) with c of at least 1, got {array.shape}"
        )
    if array.dtype.kind not in "iu":
        raise TypeError(f"candidates must hold whole numbers, got dtype {array.dtype}")
    if array.min() < -1 or array.max() >= n_items:
        raise ValueError(
            f"candidates must hold item numbers from 0 to {n_items - 1} or -1, got "
            f"{int(array.min())} to {int(array.max())}"
        )
    lists = np.sort(array.astype(np.int64), axis=1)
    lists[:, 1:][lists[:, 1:] == lists[:, :-1]] = -1
    return lists


def best_of_candidates(
    items: ItemSource, Q: validation.Rows, lists: Integers, k: int, options: ExecutionOptions
) -> tuple[Integers, Floats]:
    """Positions and raw scores (n, k) of the best of each list (n, c), -1 for no item."""
    measure, listed = items.measure, lists >= 0
    queries = encode_rows(measure.encode_queries(Q), None, options.n_threads, measure.metric_type)
    indptr = np.concatenate([[0], np.cumsum(listed.sum(axis=1))])
    positions = lists[listed]
    raw = np.full(len(positions), -np.inf)
    for block in items.read_blocks(positions, options):
        np.maximum(raw, score_lists(block, Q, queries, indptr, positions, options), out=raw)
    return best_of_scored(indptr, positions, raw, k, options)


def _as_listed_items(items: Any, measure: Measure) -> Any:
    """Return items whose values are not read yet, unless the measure needs all of them."""
    if capabilities(measure).append:
        shared = validation.as_shared_array(items)
        return shared if memmap.is_narrow(shared) else validation.as_row_shape("items", items)
    return as_items("items", items, measure)


def _best_of_rows(
    X: Any, measure: Measure, Q: validation.Rows, lists: Integers, k: int, options: ExecutionOptions
) -> tuple[Integers, Floats]:
    """Positions and raw scores (n, k) of the best of each list, from the listed rows alone."""
    queries = encode_rows(measure.encode_queries(Q), None, options.n_threads, measure.metric_type)
    listed = lists >= 0
    numbers = validation.read_only(np.repeat(np.arange(len(lists)), listed.sum(axis=1)))
    columns = validation.read_only(lists[listed])
    raw = np.full(lists.shape, -np.inf)
    raw[listed] = _score_pairs(X, measure.metric_type, queries, numbers, columns, options)
    return segments.best_of_lists(lists, raw, k, options.n_threads)


def _score_pairs(
    X: Any, metric_type: str, queries: EncodedRows, numbers: Integers, columns: Integers,
    options: ExecutionOptions,
) -> Floats:  # fmt: skip
    """Raw scores (m,) of queries numbers (m,) and items columns (m,)."""
    queries, raw = scan.as_wide(queries, X), np.full(len(columns), np.nan)
    if not memmap.is_read_in_blocks(X) and X.flags.c_contiguous and X.dtype == queries.rows.dtype:
        # rows whose squares underflow are left to the copies
        least = safe_norms.LEAST_NORM if X.dtype == np.float64 else 0.0
        parallel.run(
            listed_items.score_listed_items, parallel.row_blocks(len(raw), _PAIRS_PER_BLOCK),
            METRIC_TYPES[metric_type], queries.rows, queries.norms, validation.read_only(X),
            numbers, columns, least, raw,
            n_threads=options.n_threads,
        )  # fmt: skip
    left = np.flatnonzero(np.isnan(raw))
    size = max(1, _BLOCK_BYTES // (X.shape[1] * max(4, X.dtype.itemsize)))
    parallel.run(
        _score_copies, parallel.row_blocks(len(left), size), X, metric_type, queries, left,
        numbers, columns, raw,
        n_threads=options.n_threads,
    )  # fmt: skip
    return raw


def _score_copies(
    lo: int, hi: int, X: Any, metric_type: str, queries: EncodedRows, left: Integers,
    numbers: Integers, columns: Integers, raw: Floats,
) -> None:  # fmt: skip
    """Score pairs left[lo:hi] by copies of the rows, which stay in a cache.

    For rows of maps and of other types, and for those that are not finite or very small.
    """
    if lo == hi:
        return
    pairs = left[lo:hi]
    items, places = np.unique(columns[pairs], return_inverse=True)
    rows = memmap.take_rows("items", X, items)
    if rows.dtype.char not in "fd":
        rows = validation.as_rows("items", rows)
    if rows.dtype != queries.rows.dtype:  # one signature of the kernel
        rows = validation.read_only(rows.astype(np.float64))
        queries = scan.as_wide(queries, rows)
    norms = row_norms(rows, 1)
    if not np.isfinite(norms).all():
        broken = items[~np.isfinite(norms)]
        raise ValueError(
            "items must be finite, with squares that can be summed, got other values in "
            f"{validation.format_rows(broken)} (counted from 0)"
        )
    if rows.dtype == np.float64:
        rows = encode_rows(rows, None, 1, metric_type).rows
    scores, block = np.empty(len(pairs)), parallel.row_blocks(len(pairs), len(pairs))
    parallel.run(
        listed_items.score_listed_items, block, METRIC_TYPES[metric_type], queries.rows,
        queries.norms, rows, validation.read_only(numbers[pairs]),
        validation.read_only(places.astype(np.int64)), 0.0, scores,
    )  # fmt: skip
    raw[pairs] = scores
