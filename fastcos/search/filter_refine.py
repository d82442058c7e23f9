"""Exact top-k search by measures for which inner products give upper bounds on the scores.

The search first ranks items by a raw score, which is an inner product. The raw score of an item
determines an upper bound on its exact score. The search then computes the exact scores of the few
items with the best raw scores. A query is finished if its k-th best exact score exceeds the upper
bounds of all items that have not been scored exactly. For a query that is not finished, the search
also computes the exact score of every item whose upper bound reaches the k-th best exact score.

Source: Seidl and Kriegel, Optimal multi-step k-nearest neighbor search, SIGMOD 1998.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastcos import parallel, validation
from fastcos.search import cost_model, plan, scan
from fastcos.search.filters import AllowedRows
from fastcos.search.options import ExecutionOptions
from fastcos.search.range_candidates import find_candidates
from fastcos.search.rankings import Ranking, select_best, unfilled
from fastcos.search.request import QueryBatch
from fastcos.search.segments import Segment
from fastcos.similarity.base import UpperBounded
from fastcos.validation import Floats, Integers

# _min_raw_scores lowers a raw score in at most this many steps. Each step is twice as long as the
# previous step.
_DOUBLINGS = 40
# After the last step, a bisection halves the interval between the last two raw scores _HALVINGS
# times. The remaining error is less than 2 % of the length of the last step.
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
    """Return row numbers and exact raw scores (n, k) of each query's best items in the segment.

    ``queries.exclusions`` contains row numbers of the segment. ``allowed_rows`` is the result of
    ``Segment.allow``. ``best`` contains the best items of all earlier segments. In the worst case,
    all items of the segment are scored exactly for each query. The buffers do not exceed the
    working memory.
    """
    n = len(queries.rows)
    precomputed = measure.precompute(segment.rows)
    n_items = len(segment.live_row_numbers) if allowed_rows is None else allowed_rows.count
    width = plan.n_candidates(k, n_items)
    row_numbers, scores = unfilled(n, k)
    last_scores = parallel.unfilled(n, np.float64)
    unfinished = []
    for batch in _batches(np.arange(n, dtype=np.int64), width, options):
        part = queries.take(batch)
        request = scan.SegmentRequest(width, part.exclusions, allowed_rows)
        part_options = options.for_part(int(batch[0]), int(batch[-1]) + 1, n)
        candidates, raw = scan.search_segment(segment, part.encoded, request, part_options)
        row_numbers[batch], scores[batch] = _refine(
            measure, part, precomputed, candidates, k, options
        )
        last_scores[batch] = raw[:, -1]
        min_scores = _scores_of_kth(scores, best, batch)
        # A query is finished if every item that is allowed in its results is a candidate. In this
        # case, there are as many candidates as items, or the last candidate is padding.
        places = np.flatnonzero(candidates[:, -1] >= 0) if width < n_items else batch[:0]
        if len(places):
            bounds = measure.upper_bound(part.rows[places], last_scores[batch[places]])
            places = places[min_scores[places] <= bounds]
        unfinished.append(batch[places])
    batch = np.concatenate(unfinished)
    if len(batch):
        min_scores = _scores_of_kth(scores, best, batch)
        part = queries.take(batch)
        min_raw_scores = _min_raw_scores(measure, part.rows, min_scores, last_scores[batch])
        row_numbers[batch], scores[batch] = _refine_all(
            measure, part, precomputed, segment, min_raw_scores, k, options, allowed_rows
        )
    return row_numbers, scores


def _scores_of_kth(scores: Floats, best: Ranking | None, queries: Integers) -> Floats:
    """Return, for each query, a lower bound on its k-th best score in all segments so far.

    The bound is the larger of the k-th best score in this segment and the k-th best score in all
    earlier segments.
    """
    kth_scores: Floats = scores[queries, -1]
    return kth_scores if best is None else np.maximum(kth_scores, best[1][queries, -1])


def _batches(queries: Integers, width: int, options: ExecutionOptions) -> Iterator[Integers]:
    """Yield batches of queries such that ``width`` candidates per query fit in memory."""
    size = max(
        1, int(options.working_memory / (cost_model.COSTS.refined_bytes_per_candidate * width))
    )
    for first in range(0, len(queries), size):
        yield queries[first : first + size]


def _refine(
    measure: UpperBounded,
    queries: QueryBatch,
    precomputed: Any,
    candidates: Integers,
    k: int,
    options: ExecutionOptions,
) -> Ranking:
    """Return row numbers and exact raw scores (n, k) of the best candidates of each query.

    ``candidates`` (n, c) holds row numbers, and -1 as padding.
    """
    exact = measure.rescore(queries.rows, precomputed, np.maximum(candidates, 0))
    return select_best(candidates, exact, k, options.n_threads)


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
    """Return row numbers and exact raw scores (n, k) of each query's best items in the segment.

    ``min_raw_scores`` (n,) contains one threshold for each query: every item whose raw score
    reaches the threshold is scored exactly.
    """
    n = len(queries.rows)
    n_items = len(segment.live_row_numbers) if allowed_rows is None else allowed_rows.count
    silent_options = options._replace(progress=None)
    row_numbers, scores = unfilled(n, k)
    unfinished = np.arange(n, dtype=np.int64)
    capacity = min(cost_model.COSTS.refined_capacity, n_items)
    while len(unfinished):
        too_long = []
        for batch in _batches(unfinished, capacity, options):
            part = queries.take(batch)
            candidates = np.full((len(batch), capacity), -1, np.int64)
            counts = find_candidates(
                segment.packed, part.encoded, part.exclusions, min_raw_scores[batch],
                np.arange(0, candidates.size + 1, capacity), candidates.reshape(-1),
                silent_options, allowed_rows,
            )  # fmt: skip
            order = np.argsort(counts, kind="stable")
            fits = order[: np.searchsorted(counts[order], capacity, side="right")]
            for first in range(0, len(fits), cost_model.COSTS.refined_queries):
                places = np.sort(fits[first : first + cost_model.COSTS.refined_queries])
                lists = np.ascontiguousarray(candidates[places, : max(k, counts[places].max())])
                row_numbers[batch[places]], scores[batch[places]] = _refine(
                    measure, part.take(places), precomputed, lists, k, options
                )
            too_long.append(batch[counts > capacity])
        unfinished = np.concatenate(too_long)
        capacity = min(n_items, cost_model.COSTS.refined_growth * capacity)
    return row_numbers, scores


def _min_raw_scores(
    measure: UpperBounded, Q: validation.Rows, min_scores: Floats, last_scores: Floats
) -> Floats:
    """For each query, return a raw score; items with lower raw scores need not be scored exactly.

    Every item with a raw score below the returned number has an exact score below ``min_scores``
    (n,). The function starts with the raw score of the lowest-ranked candidate of each query,
    ``last_scores`` (n,). It lowers each raw score in steps; each step is twice as long as the
    previous step. The steps end at the first raw score whose upper bound is below ``min_scores``. A
    bisection within the last step then looks for the highest raw score whose upper bound is still
    below ``min_scores``. If even the last step ends at a raw score whose upper bound is at least
    ``min_scores``, the result is -inf.
    """
    step = 0.01 * np.abs(last_scores) + 1e-9
    min_raw_scores, upper = last_scores - step, last_scores.copy()
    open_queries = np.arange(len(step))
    for _ in range(_DOUBLINGS):
        if not len(open_queries):
            break
        bounds = measure.upper_bound(Q[open_queries], min_raw_scores[open_queries])
        open_queries = open_queries[bounds >= min_scores[open_queries]]
        upper[open_queries] = min_raw_scores[open_queries]
        step[open_queries] *= 2
        min_raw_scores[open_queries] -= step[open_queries]
    min_raw_scores[open_queries] = -np.inf
    finite_queries = np.flatnonzero(np.isfinite(min_raw_scores))
    if not len(finite_queries):
        return min_raw_scores
    Q, lower, upper = Q[finite_queries], min_raw_scores[finite_queries], upper[finite_queries]
    for _ in range(_HALVINGS):
        middle = 0.5 * (lower + upper)
        is_below = measure.upper_bound(Q, middle) < min_scores[finite_queries]
        lower, upper = np.where(is_below, middle, lower), np.where(is_below, upper, middle)
    min_raw_scores[finite_queries] = lower
    return min_raw_scores
