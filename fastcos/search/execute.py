"""Execute a request: search all segments of the items for batches of queries, and merge the best.

This module runs every search of dense rows that an index has not prepared (``prepared``): searches
of ``top_k``, of ``SimilarityIndex``, of rows on disk and of a cluster. ``run_search`` divides the
queries into batches that fit the working memory. Each batch searches each segment, by the plan of
the segment (``scan``), or by ``filter_refine`` if the measure only bounds an inner product.
``finish`` converts the raw scores of these searches to results.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.parallel import memmap
from fastcos.search import scan, segments
from fastcos.search.filter_refine import filter_and_refine
from fastcos.search.filters import no_exclusions
from fastcos.search.lists import best_of_lists
from fastcos.search.options import ExecutionOptions
from fastcos.search.packing import Floats, Integers
from fastcos.search.rankings import Ranking, merge
from fastcos.search.request import SearchRequest, rounded_scores
from fastcos.search.results import Neighbors
from fastcos.search.sources import ItemSource
from fastcos.similarity.base import BaseMeasure, Measure, is_upper_bounded
from fastcos.similarity.encoded_rows import EncodedRows, encode_rows


def run_search(
    items: ItemSource, request: SearchRequest, options: ExecutionOptions, results: Any = None
) -> Neighbors:
    """Answer a request: every batch of queries searches every segment, and is finished once.

    If results is given, batches are written to it instead of memory; see storage.checkpoint.
    """
    n, k = request.queries.shape[0], request.k
    batches: Iterator[tuple[int, int]]
    if results is None:
        size = items.batch_size(request, options)
        batches = iter([(lo, min(n, lo + size)) for lo in range(0, n, size)])
        shape = n if n > size else 0, k  # one batch is returned without a copy
        indices, scores = parallel.unfilled(shape, np.int64), parallel.unfilled(shape, np.float32)
    else:
        batches = results.missing()
    for lo, hi in batches:
        Q = memmap.read_rows("queries", request.queries, lo, hi)
        columns, raw = best_of_items(items, request, Q, lo, options)
        neighbors = Neighbors(*finish(items.measure, Q, columns, raw, request.min_score))
        if results is not None:
            results.write(lo, **neighbors._asdict())
        elif hi - lo == n:
            return neighbors
        else:
            indices[lo:hi], scores[lo:hi] = neighbors
    return Neighbors(indices, scores) if results is None else Neighbors(**results.finish())


def best_of_items(
    items: ItemSource,
    request: SearchRequest,
    Q: validation.Rows,
    first: int,
    options: ExecutionOptions,
    within: range | None = None,
) -> Ranking:
    """Return columns and raw scores (m, k) of the best items for the queries Q.

    The number of the first query is `first`. within holds the items to search, or None for all. The
    search of a segment starts from the k-th best scores of the segments before it.
    """
    measure, k, n = items.measure, request.k, request.queries.shape[0]
    validation.check_scorable("queries", Q, Q)
    queries = _encoded_queries(items, request, Q, first, options)
    if request.lists is not None:
        return best_of_lists(items, request, Q, queries, first, options)
    exclusions = no_exclusions(len(Q))
    if request.exclusions is not None:
        exclusions = request.exclusions.of_range(first, first + len(Q))
    report = _query_progress(options.progress, first, first + len(Q), n)
    best: Ranking | None = None
    for segment, allowed_rows, share, memory in items.tasks(request, options, within):
        if allowed_rows is not None and not allowed_rows.count:
            continue
        segment_exclusions = exclusions
        if len(segment.encoded.rows) < items.n_items:
            segment_exclusions = segments.exclusions_within(exclusions, segment)
        progress = None if report is None else report(share)
        limited = ExecutionOptions(options.n_threads, memory, progress)
        if is_upper_bounded(measure):
            columns, raw = filter_and_refine(
                measure, segment, Q, queries, segment_exclusions, k, limited, allowed_rows, best
            )
        else:
            thresholds = None if best is None else best[1][:, -1]
            segment_request = scan.SegmentRequest(
                k, segment_exclusions, allowed_rows, thresholds, items.n_live
            )
            columns, raw = scan.search_segment(segment, queries, segment_request, limited)
        segment_best = segment.positions_of(columns), raw
        if best is not None:
            segment_best = merge(best, segment_best, options.n_threads)
        best = segment_best
    if best is None:
        return np.full((len(Q), k), -1, np.int64), np.full((len(Q), k), -np.inf)
    return best


def finish(
    measure: Measure,
    Q: validation.Rows,
    columns: Integers,
    raw: Floats,
    min_score: float | None,
) -> tuple[Integers, npt.NDArray[np.float32]]:
    """Convert columns and raw scores of the queries Q to results, like prepared searches."""
    scores = rounded_scores(measure.to_score(raw, Q))  # in float64 order
    if min_score is not None:
        columns = np.where(scores < rounded_scores(min_score), -1, columns)
    if columns.min(initial=0) < 0:
        scores = np.where(columns < 0, np.float32(-np.inf), scores)
    return columns, scores


def _encoded_queries(
    items: ItemSource,
    request: SearchRequest,
    Q: validation.Rows,
    first: int,
    options: ExecutionOptions,
) -> EncodedRows:
    """Encode the queries; if they are the items, encoded in the same way, return the items."""
    measure, only = items.measure, items.segments[0] if len(items.segments) == 1 else None
    alike = getattr(type(measure), "encode_queries", None) is BaseMeasure.encode_queries
    if only is not None and request.queries is only.rows and alike:
        encoded = only.encoded
        # If the rows have one- or two-byte numbers, only the queries are converted to float32.
        if Q.dtype == encoded.rows.dtype:
            same = len(Q) == len(only.rows)
            return encoded if same else encoded.take(slice(first, first + len(Q)))
    return encode_rows(measure.encode_queries(Q), None, options.n_threads, measure.metric_type)


def _query_progress(
    progress: parallel.Progress | None, first: int, last: int, n: int
) -> Callable[[tuple[float, float]], parallel.Progress] | None:
    """Report progress within a segment, which is a share of all items, as a number of n queries."""
    if progress is None:
        return None
    n_reported = first

    def of_segment(share: tuple[float, float]) -> parallel.Progress:
        start, stop = share

        def report(done: int, total: int) -> None:
            nonlocal n_reported
            part = start + (stop - start) * done / total
            # Some queries are searched twice, but the count must not fall.
            n_reported = max(n_reported, first + int(part * (last - first)))
            progress(n_reported, n)

        return report

    return of_segment
