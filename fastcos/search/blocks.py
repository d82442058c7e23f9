"""All scores of queries with all items, some rows at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.search.lists import score_lists
from fastcos.search.request import rounded_scores
from fastcos.search.segments import encode_segment
from fastcos.search.sources import FittedItems
from fastcos.search.top_k import as_options
from fastcos.similarity.base import Measure, get_measure, is_upper_bounded
from fastcos.similarity.encoded_rows import EncodedRows, encode_rows
from fastcos.validation import Floats

# bytes of a score: the product in float64, the score, and what to_score makes of it; or, of a
# distance, the item, where its score is, and the scores
_BYTES_PER_SCORE = 64


def similarity_blocks(
    queries: Any,
    items: Any = None,
    *,
    measure: str | Measure = "cosine",
    block: int | None = None,
    working_memory: float | None = None,
) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """Scores of every query with every item, some rows at a time.

    A float32 (float64 for float64 rows) matrix product of the transformed rows: within rounding of
    the scores of :func:`top_k`, not the same bits. Distances (neg_euclidean) are computed from
    differences, in several times the time of a product, and have the bits of :func:`top_k`. Time
    O(n m d), memory one block.

    Parameters
    ----------
    queries : array_like (n, d), or (d,) where items are given, as for :func:`fastcos.top_k`
        One row per query.
    items : array_like (m, d), optional
        None: the queries themselves.
    measure : str or Measure
        As in :func:`top_k`.
    block : int, optional
        Rows of a block. Default: as many as fit working_memory.
    working_memory : float, optional
        MiB for a block. Default: the setting ``working_memory``.

    Returns
    -------
    iterator of (slice, ndarray (rows, m), float32)
        Which queries a block belongs to, and their scores with all items.

    Raises
    ------
    ValueError
        NaN or infinity, rows of different width, a block of no rows.

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
        fits = as_options(None, working_memory).working_memory / (_BYTES_PER_SCORE * len(X))
        block = max(1, min(len(Q), int(fits)))
    block = validation.as_count("block", block)
    fitted = get_measure(measure).fit(X)
    blocks = score_blocks(fitted, Q, X, block)
    return ((rows, rounded_scores(scores)) for rows, scores in blocks)


def score_blocks(
    measure: Measure, queries: validation.Rows, items: validation.Rows, block: int
) -> Iterator[tuple[slice, Floats]]:
    """Yield the float64 scores of checked rows by a measure fitted to the items."""
    if is_upper_bounded(measure):
        return _refined_blocks(measure, queries, items, block)
    if measure.metric_type == "euclidean":
        return _difference_blocks(measure, queries, items, block)
    return _product_blocks(measure, queries, items, block)


def _refined_blocks(
    measure: Any, queries: validation.Rows, items: validation.Rows, block: int
) -> Iterator[tuple[slice, Floats]]:
    precomputed, every = measure.precompute(items), np.arange(len(items))
    for first in range(0, len(queries), block):
        Q = queries[first : first + block]
        exact = measure.rescore(Q, precomputed, np.tile(every, (len(Q), 1)))
        yield slice(first, first + len(Q)), measure.to_score(exact, Q)


def _difference_blocks(
    measure: Measure, queries: validation.Rows, items: validation.Rows, block: int
) -> Iterator[tuple[slice, Floats]]:
    """Yield scores by differences: those by products are wrong for near rows far from the origin.

    A float32 product of rows of size r has an error of about 1e-7 r^2, and so has the square of a
    distance that is computed from it.
    """
    options = as_options(None, None)
    segment = encode_segment(measure, items, options.n_threads)
    encoded = FittedItems(measure, len(items), (segment,))
    every = np.arange(len(items), dtype=np.int64)
    for first in range(0, len(queries), block):
        Q = queries[first : first + block]
        left = encode_rows(measure.encode_queries(Q), None, None, measure.metric_type)
        indptr = np.arange(len(Q) + 1, dtype=np.int64) * len(items)
        raw = score_lists(encoded, Q, left, indptr, np.tile(every, len(Q)), options)
        yield slice(first, first + len(Q)), measure.to_score(raw.reshape(len(Q), -1), Q)


def _product_blocks(
    measure: Measure, queries: validation.Rows, items: validation.Rows, block: int
) -> Iterator[tuple[slice, Floats]]:
    kind, bias = measure.metric_type, measure.item_bias(items)
    right = encode_rows(measure.encode_items(items), bias, None, kind)
    if kind == "cosine":
        right = right._replace(rows=_unit(right))
    for first in range(0, len(queries), block):
        Q = queries[first : first + block]
        left = encode_rows(measure.encode_queries(Q), None, None, kind)
        if kind == "cosine":
            left = left._replace(rows=_unit(left))
        with parallel.blas_lock():
            raw = left.rows @ right.rows.T
        if kind == "cosine":
            np.clip(raw, -1, 1, out=raw)
        elif bias is not None:
            raw = raw + bias
        yield slice(first, first + len(Q)), measure.to_score(raw.astype(np.float64, copy=False), Q)


def _unit(encoded: EncodedRows) -> validation.Rows:
    norms = np.where(encoded.norms > 0, encoded.norms, 1.0)[:, None]
    # in float64, also where norms are below the range of float32
    return np.divide(encoded.rows, norms, out=np.empty_like(encoded.rows), casting="same_kind")
