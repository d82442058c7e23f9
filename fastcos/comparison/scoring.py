"""Raw scores of a fitted measure, for blocks of queries against a pool of items, or for pairs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastcos import config, validation
from fastcos.measures import Measure
from fastcos.measures.base import is_upper_bounded
from fastcos.measures.row_transforms import list_scores, norms_of, unit_rows
from fastcos.metrics.labelled import packed, products
from fastcos.storage import memmap
from fastcos.validation import Floats, Integers, Rows

# raw scores in one block: 16 MiB, of which several fit a working memory of 64 MiB
BLOCK = 2**21
# arrays of the size of its raw scores that a pairwise measure makes
ARRAYS_OF_PAIRS = 8
# rows on disk: share of the working memory for raw scores, and for items of the pool
SCORES_SHARE = 0.25
POOL_SHARE = 0.25
# an entry of a mapped item is held as given, transformed, of unit norm and packed, 8 bytes each
BYTES_PER_ENTRY = 32


def raw_score_blocks(
    measure: Measure, rows: Any, queries: Integers, pool: Integers
) -> Iterator[tuple[slice, Floats]]:
    """Raw scores (b, m) of b query rows with the rows of the pool, for consecutive slices.

    In float64. Raw scores of one query have the order of its scores. Rows on disk are read once
    per slice, which is as wide as fits the working memory.
    """
    n, m = len(queries), len(pool)
    query_rows = memmap.take_rows("vectors", rows, queries)
    on_disk = isinstance(rows, np.memmap)
    block, step = max(1, BLOCK // m), m
    if on_disk:
        memory = config.working_memory() * 2**20
        block = max(1, int(SCORES_SHARE * memory / (8 * m)))
        step = max(1, int(POOL_SHARE * memory / (BYTES_PER_ENTRY * rows.shape[1])))
    if is_upper_bounded(measure):
        block = max(1, block // ARRAYS_OF_PAIRS)
    known = None if on_disk else list(_pieces(measure, rows, pool, step))
    for first in range(0, n, block):
        part = slice(first, min(n, first + block))
        pieces = _pieces(measure, rows, pool, step) if known is None else known
        scores = [_raw_scores(measure, query_rows[part], items, width) for items, width in pieces]
        yield part, scores[0] if len(scores) == 1 else np.hstack(scores)


def _pieces(measure: Measure, rows: Any, pool: Integers, step: int) -> Iterator[tuple[Any, int]]:
    """Precomputed arrays of at most ``step`` items of the pool at a time, and their number."""
    for lo in range(0, len(pool), step):
        some = pool[lo : lo + step]
        yield _precomputed(measure, memmap.take_rows("vectors", rows, some)), len(some)


def _precomputed(measure: Measure, items: Rows) -> Any:
    if is_upper_bounded(measure):
        return measure.precompute(items)
    rows = np.ascontiguousarray(measure.encode_items(items), dtype=np.float64)
    bias = -0.5 * np.square(norms_of(rows)) if measure.metric_type == "euclidean" else None
    if measure.metric_type == "cosine":
        rows = unit_rows(rows)
    if measure.metric_type == "dot":
        bias = measure.item_bias(items)
    return packed(rows), bias


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


def pair_scores(measure: Measure, rows: Rows, pairs: Integers) -> Floats:
    """Scores (m,) of pairs (m, 2) of rows, as ``top_k`` would return them, in float64."""
    queries, columns = rows[pairs[:, 0]], np.ascontiguousarray(pairs[:, 1:])
    if is_upper_bounded(measure):
        raw = measure.rescore(queries, measure.precompute(rows), columns)
    else:
        encoded = measure.encode_queries(queries), measure.encode_items(rows)
        raw = list_scores(measure.metric_type, *encoded, columns)
        if (bias := measure.item_bias(rows)) is not None:
            raw = raw + bias[columns]
    return validation.read_only(measure.to_score(raw, queries)[:, 0])
