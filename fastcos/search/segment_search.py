"""Search all segments of the items for a batch of queries, and merge the results of the segments.

``scan`` searches a segment unless the measure is ``UpperBounded``. If the measure is
``UpperBounded``, ``filter_refine`` searches the segment: it calls ``scan`` to find candidates, and
the measure ranks the candidates.
"""

from collections.abc import Callable

from fastcos import parallel
from fastcos.search.filter_refine import filter_and_refine
from fastcos.search.options import ExecutionOptions
from fastcos.search.rankings import Ranking, merge, padding
from fastcos.search.request import QueryBatch, SearchRequest
from fastcos.search.scan import SegmentRequest, search_segment
from fastcos.search.segments import exclusions_within
from fastcos.search.sources import ItemSource
from fastcos.similarity.base import is_upper_bounded


def search_segments(
    items: ItemSource,
    queries: QueryBatch,
    request: SearchRequest,
    options: ExecutionOptions,
    within: range | None = None,
) -> Ranking:
    """Return positions and raw scores (n, k) of the best items for the queries of a batch.

    ``within`` is the range of positions to search; None means all positions. Only ``MappedItems``
    can be searched within a range; ``FittedItems`` ignore ``within``.

    Segments are searched one after another. If every query of the batch has found k items in the
    segments that have already been searched, the k-th best score of each query can serve as its
    first threshold in the next segment. Only a search that compares blocks of queries with the rows
    uses these thresholds (``scan._scan_query_blocks``). ``filter_refine`` uses the best items of
    earlier segments in a different way.
    """
    measure, k = items.measure, request.k
    bounding_measure = measure if is_upper_bounded(measure) else None
    report = _segment_progress(options.progress, queries)
    best: Ranking | None = None
    for segment, allowed_rows, share, memory in items.tasks(queries.rows, request, options, within):
        if allowed_rows is not None and not allowed_rows.count:
            continue
        exclusions = queries.exclusions
        if len(segment.encoded.rows) < items.n_items:
            exclusions = exclusions_within(exclusions, segment)
        progress = None if report is None else report(share)
        limits = ExecutionOptions(options.n_threads, memory, progress)
        if bounding_measure is not None:
            columns, raw_scores = filter_and_refine(
                bounding_measure, segment, queries._replace(exclusions=exclusions), k, limits,
                allowed_rows, best,
            )  # fmt: skip
        else:
            thresholds = None if best is None else best[1][:, -1]
            segment_request = SegmentRequest(k, exclusions, allowed_rows, thresholds, items.n_live)
            columns, raw_scores = search_segment(segment, queries.encoded, segment_request, limits)
        segment_best = segment.positions_of(columns), raw_scores
        if best is not None:
            segment_best = merge(best, segment_best, options.n_threads)
        best = segment_best
    return padding(len(queries.rows), k) if best is None else best


def _segment_progress(
    progress: parallel.Progress | None, queries: QueryBatch
) -> Callable[[tuple[float, float]], parallel.Progress] | None:
    """Return a function that makes a progress callback for a segment; None if ``progress`` is None.

    The returned function takes the start and the end of the segment, as fractions of the number of
    items. The callback converts progress within the segment to progress of the whole search,
    measured in answered queries.
    """
    if progress is None:
        return None
    first, n_queries = queries.first_query, len(queries.rows)
    n_reported = first

    def of_segment(share: tuple[float, float]) -> parallel.Progress:
        start, stop = share

        def report(n_done: int, total: int) -> None:
            nonlocal n_reported
            part = start + (stop - start) * n_done / total
            # The reported number of queries never decreases, even when some queries are searched
            # again.
            n_reported = max(n_reported, first + int(part * n_queries))
            progress(n_reported, queries.total)

        return report

    return of_segment
