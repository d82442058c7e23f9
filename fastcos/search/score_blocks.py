"""Compute the scores of all queries with all items, for a block of queries at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.search.candidate_lists import score_lists
from fastcos.search.options import as_options
from fastcos.search.results import rounded_scores
from fastcos.search.segments import encode_segment
from fastcos.search.sources import FittedItems
from fastcos.similarity.base import Measure, UpperBounded, get_measure, is_upper_bounded
from fastcos.similarity.encoded_rows import EncodedRows, encode_queries, encode_rows
from fastcos.validation import Floats

# The bytes that one score takes while its block is computed. Three numbers are in memory for each
# score: the score itself, the raw score, and a third number that depends on the measure. If the
# score is computed from a product, the third number is this product in float64. If the score is
# computed from a distance, the third number is the position of the item.
_BYTES_PER_SCORE = 64


def similarity_blocks(
    queries: Any,
    items: Any = None,
    *,
    measure: str | Measure = "cosine",
    block: int | None = None,
    working_memory: float | None = None,
) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """Yield the scores of every query with every item, for a block of queries at a time.

    The scores of most measures are computed by matrix products of the transformed rows, in float64
    for float64 rows and in float32 for other rows. Scores from matrix products agree with the
    scores of :func:`top_k` except for rounding errors. The scores of the measure "neg_euclidean"
    are computed from the differences of rows, and not by matrix products. Computing differences
    takes several times as long as a matrix product, but the resulting scores are bit-for-bit
    identical to the scores of :func:`top_k`. All blocks together take O(n m d) time. The function
    needs memory for one block and for one copy of the items.

    Parameters
    ----------
    queries : array_like (n, d), or (d,) where items are given, as for :func:`fastcos.top_k`
        One row per query.
    items : array_like (m, d), optional
        The items. By default, the queries are compared with each other.
    measure : str or Measure
        The measure, as in :func:`top_k`.
    block : int, optional
        The number of queries in a block. By default, a block contains as many queries as fit into
        ``working_memory``.
    working_memory : float, optional
        The memory for a block in MiB. Default: the setting ``working_memory``.

    Returns
    -------
    iterator of (slice, ndarray (rows, m), float32)
        For each block, the slice of its queries, and the scores of these queries with all items.

    Raises
    ------
    ValueError
        The rows contain NaN or infinity; the rows have different numbers of columns; ``block`` is
        below 1; or the scores of one query do not fit into ``working_memory``.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.search import similarity_blocks
    >>> X = np.array([[3.0, 4.0], [4.0, 3.0], [0.0, 1.0]])
    >>> for rows, scores in similarity_blocks(X, X[:2]):
    ...     print(rows.stop, scores.astype(float).round(2).tolist())
    3 [[1.0, 0.96], [0.96, 1.0], [0.8, 0.6]]
    """
    Q = validation.as_rows("queries", queries, or_vector=items is not None)
    X = Q if items is None else validation.as_rows("items", items)
    validation.check_same_width("items", X, "queries", Q)
    validation.check_scorable("queries", Q, X)
    if block is None:
        memory = as_options(None, working_memory).working_memory
        bytes_per_query = float(_BYTES_PER_SCORE * len(X))
        validation.check_memory("working_memory", memory, bytes_per_query)
        block = min(len(Q), int(memory / bytes_per_query))
    block = validation.as_count("block", block)
    fitted_measure = get_measure(measure).fit(X)
    blocks = score_blocks(fitted_measure, Q, X, block)
    return ((rows, rounded_scores(scores)) for rows, scores in blocks)


def score_blocks(
    measure: Measure, queries: validation.Rows, items: validation.Rows, block: int
) -> Iterator[tuple[slice, Floats]]:
    """Yield the float64 scores of every query with every item, for a block of queries at a time.

    The rows are validated, and the measure is fitted to the items.
    """
    if is_upper_bounded(measure):
        return _rescored_blocks(measure, queries, items, block)
    if measure.metric_type == "euclidean":
        return _difference_blocks(measure, queries, items, block)
    return _product_blocks(measure, queries, items, block)


def _rescored_blocks(
    measure: UpperBounded, queries: validation.Rows, items: validation.Rows, block: int
) -> Iterator[tuple[slice, Floats]]:
    """Yield the scores that an ``UpperBounded`` measure computes by its method ``rescore``."""
    precomputed, all_items = measure.precompute(items), np.arange(len(items))
    for first in range(0, len(queries), block):
        Q = queries[first : first + block]
        raw_scores = measure.rescore(Q, precomputed, np.tile(all_items, (len(Q), 1)))
        yield slice(first, first + len(Q)), measure.to_score(raw_scores, Q)


def _difference_blocks(
    measure: Measure, queries: validation.Rows, items: validation.Rows, block: int
) -> Iterator[tuple[slice, Floats]]:
    """Yield scores that are computed from the differences of rows.

    If the distance of two rows is small compared with their norms, computing it from inner products
    would be inaccurate. For rows of norm r, the squared distance would have an error of about
    1e-7 r^2 in float32.
    """
    options = as_options(None, None)
    segment = encode_segment(measure, items, options.n_threads)
    fitted_items = FittedItems(measure, len(items), (segment,))
    all_items = np.arange(len(items), dtype=np.int64)
    for first in range(0, len(queries), block):
        Q = queries[first : first + block]
        encoded_queries = encode_queries(measure, Q, None)
        indptr = np.arange(len(Q) + 1, dtype=np.int64) * len(items)
        positions = np.tile(all_items, len(Q))
        raw_scores = score_lists(fitted_items, Q, encoded_queries, indptr, positions, options)
        yield slice(first, first + len(Q)), measure.to_score(raw_scores.reshape(len(Q), -1), Q)


def _product_blocks(
    measure: Measure, queries: validation.Rows, items: validation.Rows, block: int
) -> Iterator[tuple[slice, Floats]]:
    """Yield scores that are computed by matrix products of blocks of rows."""
    metric_type, bias = measure.metric_type, measure.item_bias(items)
    right = encode_rows(measure.encode_items(items), bias, None, metric_type)
    item_rows = _unit_rows(right) if metric_type == "cosine" else right.rows
    for first in range(0, len(queries), block):
        Q = queries[first : first + block]
        encoded_queries = encode_rows(measure.encode_queries(Q), None, None, metric_type)
        query_rows = (
            _unit_rows(encoded_queries) if metric_type == "cosine" else encoded_queries.rows
        )
        with parallel.blas_lock():
            raw_scores = query_rows @ item_rows.T
        if metric_type == "cosine":
            np.clip(raw_scores, -1, 1, out=raw_scores)
        elif bias is not None:
            raw_scores = raw_scores + bias
        raw_scores = raw_scores.astype(np.float64, copy=False)
        yield slice(first, first + len(Q)), measure.to_score(raw_scores, Q)


def _unit_rows(encoded: EncodedRows) -> validation.Rows:
    """Return the rows divided by their norms; rows of zeros stay zero."""
    norms = np.where(encoded.norms > 0, encoded.norms, 1.0)[:, None]
    # The division is in float64, because a norm may be too small for float32.
    return np.divide(encoded.rows, norms, out=np.empty_like(encoded.rows), casting="same_kind")
