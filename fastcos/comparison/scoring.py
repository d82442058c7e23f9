"""Computes raw scores of a fitted measure between blocks of queries and a pool of items."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastcos import config
from fastcos.metrics.labelled import packed, products
from fastcos.parallel import memmap
from fastcos.similarity import Measure
from fastcos.similarity.base import is_upper_bounded
from fastcos.similarity.row_transforms import norms_of, unit_rows
from fastcos.validation import Floats, Integers, Rows

# Number of raw scores in one block. The float64 scores of a block take 16 MiB, so that several
# blocks fit into 64 MiB.
BLOCK = 2**21
# A measure that implements UpperBounded allocates about ARRAYS_OF_PAIRS arrays, each of them as
# large as the array of the raw scores.
ARRAYS_OF_PAIRS = 8
# If the items are on disk and would take more than POOL_SHARE of the working memory, they are read
# in blocks of this size. The raw scores then take SCORES_SHARE of the working memory.
SCORES_SHARE = 0.25
POOL_SHARE = 0.25
# When items are read from disk and scored, each of their entries takes this number of bytes of
# memory. Memory holds four copies of each entry, each of 8 bytes: the entry as it was read, the
# transformed entry, the normalised entry, and the packed entry.
BYTES_PER_ENTRY = 32


def items_at_once(rows: Any) -> int:
    """Return how many of the rows are held in memory at the same time.

    If the rows are on disk, the result is the number of rows that fit into a quarter of the setting
    ``working_memory``, but at most the number of all rows. If the rows are in memory, the result is
    the number of all rows.
    """
    memory = POOL_SHARE * config.working_memory() * 2**20
    return memmap.rows_at_once(rows, memory, BYTES_PER_ENTRY * rows.shape[1])


def raw_score_blocks(
    measure: Measure, rows: Any, queries: Integers, pool: Integers
) -> Iterator[tuple[slice, Floats]]:
    """Yield slices of b queries, and their raw float64 scores (b, m) with all items of the pool.

    `queries` (n,) and `pool` (m,) contain row numbers. Raw scores may differ from the scores of the
    measure, but they rank the items of the pool in the same order for every query. If the rows are
    on disk and do not fit into memory, the whole pool is read once per slice of queries. A slice
    then contains as many queries as memory permits.
    """
    n, m = len(queries), len(pool)
    query_rows = memmap.take_rows("vectors", rows, queries)
    step = items_at_once(rows)
    # If the pool does not fit into memory, every slice of queries requires one pass over the whole
    # pool. Slices are therefore long.
    entries = BLOCK if step >= m else int(SCORES_SHARE * config.working_memory() * 2**20 / 8)
    if is_upper_bounded(measure):
        entries //= ARRAYS_OF_PAIRS
    block = max(1, entries // m)
    pool_in_memory = list(_pieces(measure, rows, pool, step)) if step >= m else None
    for first in range(0, n, block):
        part = slice(first, min(n, first + block))
        pieces = pool_in_memory or _pieces(measure, rows, pool, step)
        scores = [_raw_scores(measure, query_rows[part], items, width) for items, width in pieces]
        yield part, scores[0] if len(scores) == 1 else np.hstack(scores)


def _pieces(measure: Measure, rows: Any, pool: Integers, step: int) -> Iterator[tuple[Any, int]]:
    """Split `pool` into pieces of up to `step` items; yield each precomputed piece and its size."""
    for lo in range(0, len(pool), step):
        numbers = pool[lo : lo + step]
        yield _precomputed(measure, memmap.take_rows("vectors", rows, numbers)), len(numbers)


def _precomputed(measure: Measure, items: Rows) -> Any:
    if is_upper_bounded(measure):
        return measure.precompute(items)
    rows = np.ascontiguousarray(measure.encode_items(items), dtype=np.float64)
    if measure.metric_type == "cosine":
        return packed(unit_rows(rows)), None
    if measure.metric_type == "euclidean":
        return packed(rows), -0.5 * np.square(norms_of(rows))
    return packed(rows), measure.item_bias(items)


def _raw_scores(measure: Measure, queries: Rows, precomputed: Any, m: int) -> Floats:
    if is_upper_bounded(measure):
        columns = np.tile(np.arange(m), (queries.shape[0], 1))
        return measure.rescore(queries, precomputed, columns)
    panels, bias = precomputed
    rows = np.ascontiguousarray(measure.encode_queries(queries), dtype=np.float64)
    if measure.metric_type == "cosine":
        rows = unit_rows(rows)
    scores: Floats = products(rows, panels, m)
    if bias is not None:
        scores += bias
    return scores
