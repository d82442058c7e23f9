"""Strategy 2: exact top-k by an upper bound that is an inner product (multi-step k-NN).

Items are ranked by a raw score that bounds the exact score. The few items with the best raw scores
are scored exactly. A query is finished if its k-th best exact score exceeds the bounds of all other
items. For the other queries, every item whose bound reaches the k-th best exact score is scored,
too.

Source: Seidl and Kriegel, Optimal multi-step k-nearest neighbor search, SIGMOD 1998.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastcos import parallel, validation
from fastcos.search import cost_model, scan
from fastcos.search.filters import AllowedRows
from fastcos.search.options import ExecutionOptions
from fastcos.search.query_batch import QueryBatch
from fastcos.search.range_candidates import find_candidates
from fastcos.search.rankings import Ranking, select_best
from fastcos.search.segments import Segment
from fastcos.similarity.base import UpperBounded
from fastcos.validation import Floats, Integers

# The number of steps that double the distance of a raw score, from a hundredth of the score.
_DOUBLINGS = 40
# The number of times that the last step is halved, after which it is 2 % of its length.
_HALVINGS = 6


def filter_and_refine(
    measure: UpperBounded,
    segment: Segment,
    queries: QueryBatch,
    k: int,
    options: ExecutionOptions,
    allowed_rows: AllowedRows | None = None,
    best: Ranking | None = None,
) -> Ranking:
    """Return columns and exact raw scores (n, k) of a segment's best items for some queries.

    The exclusions of the queries are rows of the segment. allowed_rows is the result of
    Segment.allow, and best the ranking of the earlier segments. In the worst case, O(m) items per
    query are scored exactly. The memory stays within working_memory.
    """
    n = len(queries.rows)
    precomputed = measure.precompute(segment.rows)
    n_items = len(segment.numbers) if allowed_rows is None else allowed_rows.count
    width = min(n_items, k + cost_model.COSTS.extra_candidates)
    columns, scores = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    last = parallel.unfilled(n, np.float64)
    unfinished = []
    for batch in _batches(np.arange(n, dtype=np.int64), width, options):
        part = queries.take(batch)
        request = scan.SegmentRequest(width, part.exclusions, allowed_rows)
        listed, raw = scan.search_segment(segment, part.encoded, request, options)
        columns[batch], scores[batch] = _refine(measure, part, precomputed, listed, k, options)
        last[batch] = raw[:, -1]
        reached = _reached(scores, best, batch)
        # A list with padding, or with all items, leaves no item out.
        cut = np.flatnonzero(listed[:, -1] >= 0) if width < n_items else batch[:0]
        if len(cut):
            bounds = measure.upper_bound(part.rows[cut], last[batch[cut]])
            cut = cut[reached[cut] <= bounds]
        unfinished.append(batch[cut])
    batch = np.concatenate(unfinished)
    if len(batch):
        reached = _reached(scores, best, batch)
        part = queries.take(batch)
        min_raw_scores = _min_raw_scores(measure, part.rows, reached, last[batch])
        columns[batch], scores[batch] = _refine_all(
            measure, part, precomputed, segment, min_raw_scores, k, options, allowed_rows
        )
    return columns, scores


def _reached(scores: Floats, best: Ranking | None, queries: Integers) -> Floats:
    """Return the score of each query that k items of this or earlier segments reach."""
    kth_scores: Floats = scores[queries, -1]
    return kth_scores if best is None else np.maximum(kth_scores, best[1][queries, -1])


def _batches(queries: Integers, width: int, options: ExecutionOptions) -> Iterator[Integers]:
    """Yield queries whose lists of this width fit the working memory."""
    size = max(
        1, int(options.working_memory / (cost_model.COSTS.refined_bytes_per_candidate * width))
    )
    for first in range(0, len(queries), size):
        yield queries[first : first + size]


def _refine(
    measure: UpperBounded,
    queries: QueryBatch,
    precomputed: Any,
    listed: Integers,
    k: int,
    options: ExecutionOptions,
) -> Ranking:
    """Return columns and exact raw scores of the best k of every list (n, c); -1 is no item."""
    exact = measure.rescore(queries.rows, precomputed, np.maximum(listed, 0))
    return select_best(listed, exact, k, options.n_threads)


def _refine_all(
    measure: UpperBounded,
    queries: QueryBatch,
    precomputed: Any,
    segment: Segment,
    min_raw_scores: Floats,
    k: int,
    options: ExecutionOptions,
    allowed_rows: AllowedRows | None,
) -> Ranking:
    """Return columns and exact raw scores of the k best items of at least min_raw_scores (n,)."""
    n = len(queries.rows)
    n_items = len(segment.numbers) if allowed_rows is None else allowed_rows.count
    quiet = options._replace(progress=None)
    columns, scores = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    unfinished = np.arange(n, dtype=np.int64)
    capacity = min(cost_model.COSTS.refined_capacity, n_items)
    while len(unfinished):
        too_long = []
        for batch in _batches(unfinished, capacity, options):
            part = queries.take(batch)
            listed = np.full((len(batch), capacity), -1, np.int64)
            counts = find_candidates(
                segment.packed, part.encoded, part.exclusions, min_raw_scores[batch], capacity,
                np.arange(0, listed.size, capacity), listed.reshape(-1), quiet, allowed_rows,
            )  # fmt: skip
            order = np.argsort(counts, kind="stable")
            fits = order[: np.searchsorted(counts[order], capacity, side="right")]
            for first in range(0, len(fits), cost_model.COSTS.refined_queries):
                few = np.sort(fits[first : first + cost_model.COSTS.refined_queries])
                lists = np.ascontiguousarray(listed[few, : max(k, counts[few].max())])
                refined = _refine(measure, part.take(few), precomputed, lists, k, options)
                columns[batch[few]], scores[batch[few]] = refined
            too_long.append(batch[counts > capacity])
        unfinished = np.concatenate(too_long)
        capacity = min(n_items, cost_model.COSTS.refined_growth * capacity)
    return columns, scores


def _min_raw_scores(
    measure: UpperBounded, Q: validation.Rows, reached: Floats, last: Floats
) -> Floats:
    """Return raw scores (n,) below which no item has an exact score of at least reached (n,).

    The search starts at the last listed raw scores. It descends by steps that double until the
    bound is below reached, and then halves the last step. The result is -inf if no raw score is low
    enough.
    """
    step = 0.01 * np.abs(last) + 1e-9
    min_raw_scores, enough = last - step, last.copy()
    high = np.arange(len(step))
    for _ in range(_DOUBLINGS):
        if not len(high):
            break
        high = high[measure.upper_bound(Q[high], min_raw_scores[high]) >= reached[high]]
        enough[high] = min_raw_scores[high]
        step[high] *= 2
        min_raw_scores[high] -= step[high]
    min_raw_scores[high] = -np.inf
    finite = np.flatnonzero(np.isfinite(min_raw_scores))
    if not len(finite):
        return min_raw_scores
    Q, low, enough = Q[finite], min_raw_scores[finite], enough[finite]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + enough)
        below = measure.upper_bound(Q, middle) < reached[finite]
        low, enough = np.where(below, middle, low), np.where(below, enough, middle)
    min_raw_scores[finite] = low
    return min_raw_scores
