"""Exact scores and order of candidate lists: what each query may find, or what others found."""

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import exhaustive_top_k
from fastcos.search import scan, segments
from fastcos.search.packing import ExecutionOptions, Found
from fastcos.search.request import SearchRequest
from fastcos.search.sources import ItemSource
from fastcos.similarity.base import UpperBounded, is_upper_bounded
from fastcos.similarity.encoded_rows import METRIC_TYPES, EncodedRows
from fastcos.validation import Floats, Integers

# pairs that a thread scores at once
_PAIRS_PER_BLOCK = 20_000
# queries whose lists are scored together by a measure of pairs, padded to one length
_RESCORED_QUERIES = 256
# position, number, score and flags of a pair, in its list and padded
_BYTES_PER_PAIR = 96


def best_of_lists(
    items: ItemSource, request: SearchRequest, Q: validation.Rows, queries: EncodedRows,
    first: int, options: ExecutionOptions,
) -> Found:  # fmt: skip
    """Positions and raw scores (m, k) of the best of each list, for the queries from first on.

    O(L d) for L entries of all lists: the other items are not looked at.
    """
    indptr, positions = request.lists or (np.zeros(1, np.int64), np.zeros(0, np.int64))
    indptr = indptr[first : first + len(Q) + 1]
    positions = positions[indptr[0] : indptr[-1]]
    indptr = indptr - indptr[0]
    raw = score_lists(items.read_listed(positions, options), Q, queries, indptr, positions, options)
    if options.progress is not None:
        options.progress(first + len(Q), len(request.queries))
    return best_of_scored(indptr, positions, raw, request.k, options)


def score_lists(
    items: ItemSource, Q: validation.Rows, queries: EncodedRows, indptr: Integers,
    positions: Integers, options: ExecutionOptions,
) -> Floats:  # fmt: skip
    """Raw scores (L,) of the items at the positions in each query's list, -inf of removed ones.

    indptr (n + 1,): where the list of each of n queries starts; positions (L,).
    """
    raw = np.full(len(positions), -np.inf)
    for segment in items.segments:
        numbers, found = segment.locate(positions)
        if len(segment.numbers) < len(segment.encoded.rows):
            some = np.flatnonzero(found)
            found[some] = np.isin(numbers[some], segment.numbers)
        places = np.flatnonzero(found)
        if not len(places):
            continue
        starts = np.concatenate([[0], np.cumsum(found)])[indptr].astype(np.int64)
        here, right = numbers[places], segment.encoded
        if is_upper_bounded(items.measure):
            raw[places] = score_by_measure(items.measure, segment.rows, Q, starts, here)
            continue
        left, scores = scan.as_wide(queries, right.rows), parallel.unfilled(len(here), np.float64)
        parallel.run(
            exhaustive_top_k.score_lists, parallel.work_blocks(starts, _PAIRS_PER_BLOCK),
            METRIC_TYPES[segment.metric_type], left.rows, left.norms, *right,
            validation.read_only(starts), validation.read_only(here), scores,
            n_threads=options.n_threads,
        )  # fmt: skip
        raw[places] = scores
    return raw


def score_by_measure(
    measure: UpperBounded, rows: validation.Rows, Q: validation.Rows, starts: Integers,
    numbers: Integers,
) -> Floats:  # fmt: skip
    """Raw scores of pairs that only the measure can score; those of query i from starts[i] on."""
    precomputed, counts, raw = measure.precompute(rows), np.diff(starts), np.empty(len(numbers))
    for first in range(0, len(Q), _RESCORED_QUERIES):
        some = slice(first, first + _RESCORED_QUERIES)
        listed = np.arange(counts[some].max(initial=0)) < counts[some, None]
        if not listed.any():
            continue
        lists = np.zeros(listed.shape, np.int64)
        part = slice(starts[first], starts[min(first + _RESCORED_QUERIES, len(Q))])
        lists[listed] = numbers[part]
        raw[part] = measure.rescore(Q[some], precomputed, lists)[listed]
    return raw


def best_of_scored(
    indptr: Integers, positions: Integers, raw: Floats, k: int, options: ExecutionOptions
) -> Found:
    """Positions and raw scores (n, k) of the best of each scored list; entries of -inf are none."""
    n, lengths = len(indptr) - 1, np.diff(indptr)
    columns, scores = np.full((n, k), -1, np.int64), np.full((n, k), -np.inf)
    order, at = np.argsort(-lengths, kind="stable"), 0
    while at < n and lengths[order[at]]:
        # lists of similar length are padded to one
        width = int(lengths[order[at]])
        size = max(1, int(options.working_memory / (_BYTES_PER_PAIR * width)))
        some = order[at : at + size]
        at += size
        places = indptr[some, None] + np.arange(width)
        listed = np.arange(width) < lengths[some, None]
        places = np.where(listed, places, 0)
        keys = np.where(listed, raw[places], -np.inf)
        numbers = np.where(keys > -np.inf, positions[places], -1)
        columns[some], scores[some] = segments.best_of_lists(numbers, keys, k, options.n_threads)
    return columns, scores
