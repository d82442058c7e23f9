"""Search a separate list of items for each query: score all listed items and find the best."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import exhaustive_top_k
from fastcos.search.options import ExecutionOptions
from fastcos.search.packing import pair_scoring
from fastcos.search.rankings import Ranking, padding, select_best
from fastcos.search.request import QueryBatch, SearchRequest
from fastcos.search.segments import Segment
from fastcos.search.sources import ItemSource
from fastcos.similarity.base import Measure, UpperBounded, is_upper_bounded
from fastcos.similarity.encoded_rows import EncodedRows
from fastcos.validation import Floats, Integers

# The number of pairs that a thread scores in one block.
_PAIRS_PER_BLOCK = 20_000
# The bytes that a listed item takes while its list is scored and ordered. The position, the row
# number and the score of the item are all stored twice. One copy is in the list of the query. The
# other copy is in an array of several lists, which are padded to the same length.
_BYTES_PER_PAIR = 128
# Some measures compute scores by a method of their own instead of a kernel. For such a measure, all
# lists in a block are padded to the same length. A block of several lists has at most this many
# entries, including the padding.
_PADDED_ENTRIES = 1 << 16
# The largest number of lists in a block of padded lists.
_PADDED_ROWS = 1 << 10


def best_of_lists(
    items: ItemSource, queries: QueryBatch, request: SearchRequest, options: ExecutionOptions
) -> Ranking:
    """Return positions and raw scores (n, k) of the best items in the list of each query.

    The search takes O(L d) time if the lists of the batch have L entries in total. Items that are
    in no list are not read, unless the measure is ``UpperBounded``: its method ``precompute`` reads
    all items.
    """
    # ``execute`` calls this function only if the request has lists.
    indptr, positions = request.lists  # type: ignore[misc]
    last = queries.first_query + len(queries.rows)
    indptr = indptr[queries.first_query : last + 1]
    positions = positions[indptr[0] : indptr[-1]]
    listed_items = items.read_listed(positions, options)
    best = best_of_positions(
        listed_items, queries.rows, queries.encoded, indptr - indptr[0], positions, request.k,
        options,
    )  # fmt: skip
    if options.progress is not None:
        options.progress(last, queries.total)
    return best


def best_of_positions(
    items: ItemSource, Q: validation.Rows, queries: EncodedRows, indptr: Integers,
    positions: Integers, k: int, options: ExecutionOptions,
) -> Ranking:  # fmt: skip
    """Return positions and raw scores (n, k) of the best items in the list of each query.

    The list of query i is ``positions[indptr[i]:indptr[i + 1]]``. The function scores as many lists
    at once as fit into the working memory.
    """
    n, lengths = len(Q), np.diff(indptr)
    longest = float(lengths.max(initial=0)) * _BYTES_PER_PAIR
    validation.check_memory("working_memory", options.working_memory, longest)
    max_entries = int(options.working_memory / _BYTES_PER_PAIR)
    best_positions, best_scores = padding(n, k)
    for lo, hi in row_ranges(lengths, max_entries):
        start, end = indptr[lo], indptr[hi]
        block_indptr, block_positions = indptr[lo : hi + 1] - start, positions[start:end]
        block_queries = queries if hi - lo == n else queries.take(slice(lo, hi))
        raw_scores = score_lists(
            items, Q[lo:hi], block_queries, block_indptr, block_positions, options
        )
        best_positions[lo:hi], best_scores[lo:hi] = best_of_scored(
            block_indptr, block_positions, raw_scores, k, options
        )
    return best_positions, best_scores


def row_ranges(counts: npt.NDArray[np.integer[Any]], max_total: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges (lo, hi) of rows such that ``counts[lo:hi].sum() <= max_total``.

    A row whose count is larger than ``max_total`` forms a range of its own.
    """
    ends = np.cumsum(counts, dtype=np.int64)
    lo = 0
    while lo < len(counts):
        n_before = int(ends[lo - 1]) if lo else 0
        hi = max(lo + 1, int(np.searchsorted(ends, n_before + max_total, side="right")))
        yield lo, hi
        lo = hi


def score_lists(
    items: ItemSource, Q: validation.Rows, queries: EncodedRows, indptr: Integers,
    positions: Integers, options: ExecutionOptions,
) -> Floats:  # fmt: skip
    """Return the raw score of each query with each item in its list, as one array (L,).

    The list of query i is ``positions[indptr[i]:indptr[i + 1]]``, and its scores are at the same
    indices in the result. The score of a removed item is -inf.
    """
    raw_scores = np.full(len(positions), -np.inf)
    for segment in items.segments:
        row_numbers, is_live = segment.locate(positions)
        if len(segment.live_row_numbers) < len(segment.encoded.rows):
            in_segment = np.flatnonzero(is_live)
            is_live[in_segment] = np.isin(row_numbers[in_segment], segment.live_row_numbers)
        if is_live.all():
            return _score_rows(items.measure, segment, Q, queries, indptr, row_numbers, options)
        entries = np.flatnonzero(is_live)
        if len(entries):
            starts = np.concatenate([[0], np.cumsum(is_live)])[indptr].astype(np.int64)
            raw_scores[entries] = _score_rows(
                items.measure, segment, Q, queries, starts, row_numbers[entries], options
            )
    return raw_scores


def _score_rows(
    measure: Measure, segment: Segment, Q: validation.Rows, queries: EncodedRows, starts: Integers,
    row_numbers: Integers, options: ExecutionOptions,
) -> Floats:  # fmt: skip
    """Return the raw score of each query with each row in its list, as one array (L,).

    The list of query i is ``row_numbers[starts[i]:starts[i + 1]]``.
    """
    if is_upper_bounded(measure):
        precomputed = measure.precompute(segment.rows)
        return score_pairs_by_measure(measure, precomputed, Q, starts, row_numbers)
    encoded, scores = segment.encoded, parallel.unfilled(len(row_numbers), np.float64)
    parallel.run(
        exhaustive_top_k.score_lists, parallel.work_blocks(starts, _PAIRS_PER_BLOCK),
        pair_scoring(segment.metric_type, queries, encoded),
        validation.read_only(starts), validation.read_only(row_numbers), scores,
        n_threads=options.n_threads,
    )  # fmt: skip
    return scores


def score_pairs_by_measure(
    measure: UpperBounded, precomputed: Any, Q: validation.Rows, starts: Integers,
    row_numbers: Integers,
) -> Floats:  # fmt: skip
    """Let the measure compute the raw score of each query with each row in its list.

    No kernel computes the scores of an ``UpperBounded`` measure, so the method ``rescore`` of the
    measure is called. The list of query i is ``row_numbers[starts[i]:starts[i + 1]]``.
    ``precomputed`` is the result of ``measure.precompute`` for all rows.
    """
    counts, raw_scores = np.diff(starts), np.empty(len(row_numbers))
    for lo, hi in padded_ranges(counts):
        is_entry = np.arange(counts[lo:hi].max(initial=0)) < counts[lo:hi, None]
        if not is_entry.any():
            continue
        lists = np.zeros(is_entry.shape, np.int64)
        entries = slice(starts[lo], starts[hi])
        lists[is_entry] = row_numbers[entries]
        raw_scores[entries] = measure.rescore(Q[lo:hi], precomputed, lists)[is_entry]
    return raw_scores


def padded_ranges(counts: npt.NDArray[np.integer[Any]]) -> Iterator[tuple[int, int]]:
    """Divide lists into ranges (lo, hi); the caller pads the lists of a range to equal length.

    ``counts`` holds the length of each list. The padded lists of a range have at most
    ``_PADDED_ENTRIES`` entries in total. A single list that is longer than this limit forms a range
    of its own.
    """
    lo = 0
    while lo < len(counts):
        longest = np.maximum.accumulate(counts[lo : lo + _PADDED_ROWS])
        entries = longest * np.arange(1, len(longest) + 1)
        hi = lo + max(1, int(np.searchsorted(entries, _PADDED_ENTRIES, side="right")))
        yield lo, hi
        lo = hi


def best_of_scored(
    indptr: Integers, positions: Integers, raw_scores: Floats, k: int, options: ExecutionOptions
) -> Ranking:
    """Return the positions and raw scores (n, k) of the best entries of each list.

    The list of query i is ``positions[indptr[i]:indptr[i + 1]]``, and its raw scores are at the
    same indices in ``raw_scores``. Items with the score -inf are left out of the result.
    """
    n, lengths = len(indptr) - 1, np.diff(indptr)
    best_positions, best_scores = padding(n, k)
    # Lists of similar length are padded to the same length and sorted together. The longest lists
    # come first.
    by_length, n_ordered = np.argsort(-lengths, kind="stable"), 0
    while n_ordered < n and lengths[by_length[n_ordered]]:
        width = int(lengths[by_length[n_ordered]])
        size = max(1, int(options.working_memory / (_BYTES_PER_PAIR * width)))
        queries = by_length[n_ordered : n_ordered + size]
        n_ordered += size
        is_entry = np.arange(width) < lengths[queries, None]
        entries = np.where(is_entry, indptr[queries, None] + np.arange(width), 0)
        scores = np.where(is_entry, raw_scores[entries], -np.inf)
        columns = np.where(scores > -np.inf, positions[entries], -1)
        best_positions[queries], best_scores[queries] = select_best(
            columns, scores, k, options.n_threads
        )
    return best_positions, best_scores
