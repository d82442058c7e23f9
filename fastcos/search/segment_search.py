"""Search all segments of the items for a batch of queries, and merge the results of the segments.

``scan`` searches a segment unless the measure is ``UpperBounded``. If the measure is
``UpperBounded``, ``filter_refine`` searches the segment: it calls ``scan`` to find candidates, and
the measure ranks the candidates.
"""

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
    reports = None if options.progress is None else _BatchProgress(options.progress, queries)
    best: Ranking | None = None
    for segment, allowed_rows, share, memory in items.tasks(queries.rows, request, options, within):
        if allowed_rows is not None and not allowed_rows.count:
            continue
        exclusions = queries.exclusions
        if len(segment.encoded.rows) < items.n_items:
            exclusions = exclusions_within(exclusions, segment)
        progress = None if reports is None else reports.of_segment(share)
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
    if reports is not None:
        reports.finish()
    return padding(len(queries.rows), k) if best is None else best


class _BatchProgress:
    """Converts progress within a segment to progress of the whole search.

    The progress of the whole search is measured in answered queries. ``queries`` is the batch of
    queries that is being searched.
    """

    def __init__(self, progress: parallel.Progress, queries: QueryBatch) -> None:
        self._progress, self._total = progress, queries.total
        self._first, self._n_queries = queries.first_query, len(queries.rows)
        self._n_reported = self._first

    def of_segment(self, share: tuple[float, float]) -> parallel.Progress:
        """Return a function that is called with the progress within a segment.

        ``share`` contains the start and the end of the segment, as fractions of the number of
        items.
        """
        start, stop = share

        def report(n_done: int, total: int) -> None:
            part = start + (stop - start) * n_done / total
            # The reported number of queries never decreases, even when some queries are searched
            # again.
            n_answered = self._first + int(part * self._n_queries)
            self._n_reported = max(self._n_reported, n_answered)
            self._progress(self._n_reported, self._total)

        return report

    def finish(self) -> None:
        """Report that all queries of the batch are answered, unless this has been reported.

        The searches of the segments may not have reported it, because a segment without allowed
        rows is not searched and reports no progress.
        """
        if self._n_reported < self._first + self._n_queries:
            self._progress(self._first + self._n_queries, self._total)
