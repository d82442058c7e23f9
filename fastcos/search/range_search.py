"""Range search: return a sparse matrix of all pairs of rows whose score reaches a threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import exhaustive_top_k
from fastcos.search.candidate_lists import padded_ranges, row_ranges, score_pairs_by_measure
from fastcos.search.filters import AllowedRows, ExcludedItems, no_exclusions
from fastcos.search.options import ExecutionOptions, as_options
from fastcos.search.packing import pair_scoring
from fastcos.search.range_candidates import find_candidates
from fastcos.search.request import Threshold, as_threshold
from fastcos.search.results import rounded_scores
from fastcos.search.segments import Segment, exclusions_within
from fastcos.search.sources import ItemSource, fit_items
from fastcos.similarity.base import Measure, get_measure, is_upper_bounded
from fastcos.similarity.encoded_rows import EncodedRows, encode_queries
from fastcos.validation import Floats, Integers

if TYPE_CHECKING:
    import scipy.sparse as sp

# The bytes that a pair takes in the result: 4 for its score and 8 for its position.
_BYTES_PER_PAIR = 4 + 8
# The bytes that a candidate pair takes while it is scored and ordered.
_BYTES_PER_CANDIDATE = 128
# The number of candidate pairs that a thread scores in one block.
_PAIRS_PER_BLOCK = 100_000


def neighbors_above(
    queries: Any,
    items: Any = None,
    *,
    min_score: float | Threshold,
    measure: str | Measure = "cosine",
    n_threads: int | None = None,
    working_memory: float | None = None,
    progress: parallel.Progress | None = None,
) -> sp.csr_array:
    """Return all (query, item) pairs that score at least ``min_score``, as a sparse matrix.

    The result is exact: the score of each pair and ``min_score`` are rounded to float32, and a pair
    is returned if its rounded score is at least the rounded ``min_score``. The pairs that may
    qualify are counted before memory for them is allocated. Counting the pairs takes O(n m d) time.
    In the worst case, scoring the pairs takes about as long as counting them.

    Parameters
    ----------
    queries : array_like (n, d), or (d,) if items are given; or sparse
        One row per query, as for :func:`fastcos.top_k`. Sparse rows can be compared by cosine or
        dot, and ``min_score`` must then be above 0.
    items : array_like (m, d), optional
        The items. By default, the queries are compared with each other, and no row is paired with
        itself.
    min_score : float or Calibration
        The lowest score that a pair in the result may have. If you pass a
        :class:`fastcos.auditing.Calibration` of this measure, its threshold for the false-positive
        rate ``fpr`` is used.
    measure : str or Measure
        The measure, as in :func:`fastcos.top_k`.
    n_threads : int, optional
        The number of threads. Default: the setting ``n_threads``.
    working_memory : float, optional
        The memory in MiB for the result and for the buffers that are needed to compute it. Default:
        the setting ``working_memory``.
    progress : callable, optional
        Called as ``progress(done, total)``, where both arguments count queries: first while the
        pairs are counted, and again while the pairs are scored.

    Returns
    -------
    csr_array (n, m), float32
        The scores of the pairs, with ascending column numbers in each row. A pair with a score of 0
        is stored as an explicit zero.

    Raises
    ------
    ValueError
        The pairs do not fit into ``working_memory``; the rows contain NaN or infinity; the queries
        and items have different numbers of columns; or the calibration is for another measure.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate, neighbors_above
    >>> X = np.array([[3.0, 4.0], [4.0, 3.0], [0.0, 1.0]])
    >>> neighbors_above(X, min_score=0.9).toarray().astype(float).round(2).tolist()
    [[0.0, 0.96, 0.0], [0.96, 0.0, 0.0], [0.0, 0.0, 0.0]]

    With a threshold calibrated for ``fpr=0.01``, at most 1 % of all pairs are in the result:

    >>> items = np.random.default_rng(0).standard_normal((200, 8))
    >>> neighbors_above(items, min_score=calibrate(items, fpr=0.01)).nnz / (200 * 199) <= 0.01
    True
    """
    if validation.any_sparse(queries, items):
        from fastcos.search.sparse import sparse_neighbors_above

        options = as_options(n_threads, working_memory, progress)
        return sparse_neighbors_above(
            queries, items, min_score=min_score, measure=measure, options=options
        )
    Q = validation.as_rows("queries", queries, or_vector=items is not None)
    X = Q if items is None else validation.as_rows("items", items)
    validation.check_same_width("items", X, "queries", Q)
    validation.check_scorable("queries", Q, X)
    unfitted_measure = get_measure(measure)
    threshold = as_threshold("min_score", min_score, unfitted_measure)
    options = as_options(n_threads, working_memory, progress)
    fitted_items = fit_items(X, unfitted_measure, options)
    exclusions = no_exclusions(len(Q), exclude_self=items is None)
    return pairs_above(fitted_items, Q, threshold, exclusions, options)


def pairs_above(
    items: ItemSource,
    Q: validation.Rows,
    min_score: float,
    exclusions: ExcludedItems,
    options: ExecutionOptions,
    allowed_positions: Integers | None = None,
    *,
    bytes_per_pair: int = 0,
) -> sp.csr_array:
    """Return the scores of all (query, item) pairs that score at least ``min_score``.

    The result is a sparse matrix of queries x positions. The function first counts the candidates,
    which are the pairs that may reach ``min_score``. If the result might not fit into the working
    memory, ValueError is raised before any pair is scored. The function then scores the candidates
    of one batch of queries at a time; a batch fits in the working memory.

    Parameters
    ----------
    items : ItemSource
        Items in memory.
    Q : ndarray (n, d)
        The queries.
    min_score : float
        The lowest score that a pair in the result may have.
    exclusions : ExcludedItems
        The positions that each query must not find.
    options : ExecutionOptions
        The arguments of ``progress`` count queries. ``progress`` is called first while the
        candidates are counted, and again while the candidates are scored.
    allowed_positions : ndarray, optional
        The ascending positions of the items that are allowed in the results. None allows all items.
    bytes_per_pair : int
        The number of bytes per pair that the caller will need in addition to the result.
    """
    import scipy.sparse as sp

    measure, n = items.measure, len(Q)
    queries = encode_queries(measure, Q, options.n_threads)
    bounds = _raw_score_bounds(measure, Q, min_score)
    searches = []
    for segment in items.segments:
        allowed_rows = segment.allow(allowed_positions)
        if allowed_rows is not None and not len(allowed_rows.row_numbers):
            continue
        is_whole = len(segment.encoded.rows) == items.n_items
        excluded_rows = exclusions if is_whole else exclusions_within(exclusions, segment)
        searches.append(_SegmentSearch(measure, segment, excluded_rows, allowed_rows))
    counts = [search.count_candidates(queries, bounds.candidates, options) for search in searches]
    n_candidates = np.sum([np.zeros(n, np.int64), *counts], axis=0)
    capacity, largest = int(n_candidates.sum()), int(n_candidates.max(initial=0))
    result_bytes = float((_BYTES_PER_PAIR + bytes_per_pair) * capacity)
    required = result_bytes + _BYTES_PER_CANDIDATE * largest
    validation.check_memory("working_memory", options.working_memory, required)
    max_candidates = int((options.working_memory - result_bytes) / _BYTES_PER_CANDIDATE)
    # The arrays have room for all candidates. The operating system provides memory only for the
    # pages that are written, so candidates that do not reach min_score take no memory.
    scores, positions = np.empty(capacity, np.float32), np.empty(capacity, np.int64)
    indptr = np.zeros(n + 1, np.int64)
    for lo, hi in row_ranges(n_candidates, max_candidates):
        of_block = slice(lo, hi)
        pairs = _qualifying_pairs(
            searches, [segment_counts[of_block] for segment_counts in counts],
            queries if hi - lo == n else queries.take(of_block), Q[of_block],
            _RawScoreBounds(bounds.exact[of_block], bounds.candidates[of_block]), lo, n, options,
        )  # fmt: skip
        indptr[lo + 1 : hi + 1] = indptr[lo] + np.cumsum(pairs.counts)
        entries = slice(indptr[lo], indptr[hi])
        positions[entries] = pairs.positions
        scores[entries] = _scores_of_pairs(measure, Q[of_block], pairs)
    # The arrays are shrunk in place, so that the result is not copied.
    scores.resize(int(indptr[-1]), refcheck=False)
    positions.resize(int(indptr[-1]), refcheck=False)
    return sp.csr_array((scores, positions, indptr), shape=(n, items.n_items))


@dataclass(frozen=True)
class _RawScoreBounds:
    """Two thresholds for the raw scores of each query, as two arrays (n,).

    A row is a candidate if its raw score may reach the threshold ``candidates``. The exact raw
    score of a candidate must reach the threshold ``exact``. The two thresholds are equal unless the
    measure is ``UpperBounded``. If the measure is ``UpperBounded``, a raw score determines only an
    upper bound on the score.
    """

    exact: Floats
    candidates: Floats


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a query and a position, and their raw scores; sorted by query, then by position."""

    counts: npt.NDArray[np.intp]  # the number of pairs of each query
    positions: Integers
    raw_scores: Floats


class _SegmentSearch:
    """The range search of one segment, limited to the items that are allowed in the results."""

    def __init__(
        self,
        measure: Measure,
        segment: Segment,
        excluded_rows: ExcludedItems,
        allowed_rows: AllowedRows | None,
    ) -> None:
        self.segment = segment
        self._measure, self._encoded = measure, segment.encoded
        self._excluded_rows, self._allowed_rows = excluded_rows, allowed_rows
        self._precomputed = measure.precompute(segment.rows) if is_upper_bounded(measure) else None

    def count_candidates(
        self, queries: EncodedRows, bounds: Floats, options: ExecutionOptions
    ) -> Integers:
        """Return, for each query, how many rows may reach the bound of the query."""
        no_room, no_rows = np.zeros(len(bounds) + 1, np.int64), np.zeros(0, np.int64)
        return find_candidates(
            self.segment.packed, queries, self._excluded_rows, bounds, no_room, no_rows, options,
            self._allowed_rows,
        )  # fmt: skip

    def list_candidates(
        self, queries: EncodedRows, bounds: Floats, counts: Integers, first_query: int,
        n_planned: int, options: ExecutionOptions,
    ) -> tuple[Integers, Integers]:  # fmt: skip
        """Return the row numbers of the candidates of all queries in one array, and the starts.

        The candidates of query i are ``rows[starts[i]:starts[i + 1]]``. ``counts`` contains the
        numbers of candidates that ``count_candidates`` has counted. The whole request has
        ``n_planned`` queries; the queries passed to this function start with query ``first_query``
        of the request.
        """
        excluded_rows = self._excluded_rows.of_range(first_query, first_query + len(bounds))
        while True:
            starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            rows = parallel.unfilled(int(starts[-1]), np.int64)
            new_counts = find_candidates(
                self.segment.packed, queries, excluded_rows, bounds, starts, rows, options,
                self._allowed_rows, n_planned,
            )  # fmt: skip
            is_complete = (new_counts <= counts).all()
            if is_complete and (new_counts == counts).all():
                return rows, starts
            if is_complete:
                is_listed = np.arange(len(rows)) < np.repeat(starts[:-1] + new_counts, counts)
                return rows[is_listed], np.concatenate([[0], np.cumsum(new_counts)])
            # The candidates were counted in a search of all queries of the request. This pass
            # searches only some of the queries. The number of candidates of a query may depend on
            # the other queries in the same search (see ``find_candidates``). The next pass searches
            # for the same queries as this pass, and finds the same candidates.
            counts = new_counts

    def qualifying(
        self, queries: EncodedRows, Q: validation.Rows, starts: Integers, rows: Integers,
        bounds: Floats, options: ExecutionOptions,
    ) -> tuple[Integers, Integers, Floats]:  # fmt: skip
        """Return the candidates whose exact raw scores reach the bounds of their queries.

        The result consists of three arrays, with the query, the row and the raw score of each of
        these candidates. When the function is called, the candidates of query i are
        ``rows[starts[i]:starts[i + 1]]``. ``rows`` is overwritten.
        """
        counts = np.diff(starts)
        if is_upper_bounded(self._measure):
            raw_scores = score_pairs_by_measure(self._measure, self._precomputed, Q, starts, rows)
            query_of_pair = np.repeat(np.arange(len(Q)), counts)
            entries = np.flatnonzero(raw_scores >= bounds[query_of_pair])
            return query_of_pair[entries], rows[entries], raw_scores[entries]
        raw_scores = parallel.unfilled(len(rows), np.float64)
        # The kernel moves the candidates that reach the bound to the front of the list of their
        # query, and writes their number to ``counts``.
        parallel.run(
            exhaustive_top_k.keep_above, parallel.work_blocks(starts, _PAIRS_PER_BLOCK),
            pair_scoring(self._measure.metric_type, queries, self._encoded),
            bounds, starts[:-1], counts, rows, raw_scores,
            n_threads=options.n_threads,
        )  # fmt: skip
        query_of_pair = np.repeat(np.arange(len(Q)), counts)
        gaps = starts[:-1] - (np.cumsum(counts) - counts)
        entries = np.arange(len(query_of_pair)) + gaps[query_of_pair]
        return query_of_pair, rows[entries], raw_scores[entries]


def _qualifying_pairs(
    searches: Sequence[_SegmentSearch], counts: Sequence[Integers], queries: EncodedRows,
    Q: validation.Rows, bounds: _RawScoreBounds, first_query: int, n_planned: int,
    options: ExecutionOptions,
) -> _Pairs:  # fmt: skip
    """Return the (query, item) pairs whose exact raw scores reach the bounds.

    ``searches`` contains one range search per segment. ``counts`` contains, for each segment, the
    number of candidates of each query. The whole request has ``n_planned`` queries; the queries
    passed to this function start with query ``first_query`` of the request.
    """
    if options.progress is not None:
        report, total = options.progress, first_query + len(Q)
        options = options._replace(progress=lambda done, _: report(first_query + done, total))
    query_lists, position_lists, score_lists = [], [], []
    for search, segment_counts in zip(searches, counts, strict=True):
        rows, starts = search.list_candidates(
            queries, bounds.candidates, segment_counts, first_query, n_planned, options
        )
        query_of_pair, rows, raw_scores = search.qualifying(
            queries, Q, starts, rows, bounds.exact, options
        )
        query_lists.append(query_of_pair)
        position_lists.append(search.segment.positions_of(rows))
        score_lists.append(raw_scores)
    if not searches:
        return _Pairs(np.zeros(len(Q), np.intp), np.zeros(0, np.int64), np.zeros(0))
    query_of_pair, positions = _concatenated(query_lists), _concatenated(position_lists)
    raw_scores = _concatenated(score_lists)
    order = np.lexsort((positions, query_of_pair))
    pair_counts = np.bincount(query_of_pair, minlength=len(Q))
    return _Pairs(pair_counts, positions[order], raw_scores[order])


def _concatenated(arrays: list[Any]) -> Any:
    """Return the concatenation of arrays, without a copy if there is only one array."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _scores_of_pairs(
    measure: Measure, Q: validation.Rows, pairs: _Pairs
) -> npt.NDArray[np.float32]:
    """Convert the raw scores of these pairs to scores of the measure."""
    scores = np.empty(len(pairs.raw_scores), np.float32)
    starts = np.concatenate([[0], np.cumsum(pairs.counts)])
    for lo, hi in padded_ranges(pairs.counts):
        is_entry = np.arange(pairs.counts[lo:hi].max()) < pairs.counts[lo:hi, None]
        raw_scores = np.full(is_entry.shape, -np.inf)
        entries = slice(starts[lo], starts[hi])
        raw_scores[is_entry] = pairs.raw_scores[entries]
        with np.errstate(all="ignore"):  # to_score may not be defined for -inf, the padding
            scores[entries] = measure.to_score(raw_scores, Q[lo:hi])[is_entry]
    return scores


def _raw_score_bounds(measure: Measure, Q: validation.Rows, min_score: float) -> _RawScoreBounds:
    """Convert ``min_score`` to thresholds for the raw scores of each query.

    ``exact`` is the lowest raw score that qualifies. A raw score qualifies if the score computed
    from it is at least ``min_score``, after both have been rounded to float32.
    """
    n, metric_type = len(Q), measure.metric_type
    threshold = rounded_scores(min_score)

    def reach(raw_scores: Floats) -> npt.NDArray[np.bool_]:
        return rounded_scores(measure.to_score(raw_scores[:, None], Q)[:, 0]) >= threshold

    exact_bounds = _smallest_rounding_to(threshold, n)
    with np.errstate(all="ignore"):
        is_exact = reach(exact_bounds) & ~reach(np.nextafter(exact_bounds, -np.inf))
    if not is_exact.all():  # the measure's scores are not its raw scores
        exact_bounds = _smallest_qualifying(reach, n, metric_type)
    if not is_upper_bounded(measure):
        return _RawScoreBounds(exact_bounds, exact_bounds)
    candidates = _smallest_qualifying(
        lambda raw_scores: measure.upper_bound(Q, raw_scores) >= exact_bounds, n, metric_type
    )
    return _RawScoreBounds(exact_bounds, candidates)


def _smallest_rounding_to(threshold: npt.NDArray[np.float32], n: int) -> Floats:
    """Return n copies of the smallest float64 number whose rounded value is at least `threshold`.

    Here, rounding means conversion to float32.
    """
    with np.errstate(all="ignore"):
        lower = np.nextafter(threshold, np.float32(-np.inf))
        smallest = (np.float64(lower) + np.float64(threshold)) / 2
        if rounded_scores(smallest) < threshold:
            smallest = np.nextafter(smallest, np.inf)
    return np.full(n, smallest)


def _smallest_qualifying(
    reach: Callable[[Floats], npt.NDArray[np.bool_]], n: int, metric_type: str
) -> Floats:
    """For each query, return the lowest raw score that ``reach`` accepts, or inf if none exists.

    ``reach`` maps one raw score per query (n,) to one boolean per query (n,). If ``reach`` is True
    for a raw score, it must be True for every higher raw score of the same query.
    """
    largest = np.finfo(np.float64).max
    low, high = np.full(n, -largest), np.full(n, 0.0 if metric_type == "euclidean" else largest)
    with np.errstate(all="ignore"):
        high_qualifies, low_qualifies = reach(high.copy()), reach(low.copy())
        # The bisection runs over integers instead of floats: ``_as_codes`` maps a larger float to a
        # larger integer, and neighbouring floats to neighbouring integers. After 64 steps, ``low``
        # and ``high`` are therefore neighbouring floats.
        low_code, high_code = _as_codes(low), _as_codes(high)
        for _ in range(64):
            middle = (low_code >> 1) + (high_code >> 1) + (low_code & high_code & 1)
            middle_qualifies = reach(_as_floats(middle))
            high_code = np.where(middle_qualifies, middle, high_code)
            low_code = np.where(middle_qualifies, low_code, middle)
    smallest = np.where(low_qualifies, low, _as_floats(high_code))
    return np.ascontiguousarray(np.where(high_qualifies, smallest, np.inf))


def _as_codes(values: Floats) -> npt.NDArray[np.int64]:
    """Map float64 numbers to int64 codes that have the same order."""
    bits = values.view(np.int64)
    return np.where(bits < 0, np.int64(-(2**63)) - bits, bits)


def _as_floats(codes: npt.NDArray[np.int64]) -> Floats:
    """Convert codes from ``_as_codes`` back to float64 numbers."""
    bits = np.where(codes < 0, np.int64(-(2**63)) - codes, codes)
    return np.ascontiguousarray(bits).view(np.float64)
