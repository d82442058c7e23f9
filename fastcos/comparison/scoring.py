"""What a fitted measure ranks by, for queries against a pool of items, a block at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastcos import config, validation
from fastcos.measures import Measure, UpperBounded
from fastcos.measures.row_transforms import Floats, Integers, list_scores, norms_of, unit_rows
from fastcos.metrics.labelled import packed, products
from fastcos.storage import memmap
from fastcos.validation import Rows

# numbers in one block of keys
_BLOCK = 2**21
# a measure of pairs makes columns and terms beside its keys, up to so many arrays of their size
_ARRAYS_OF_PAIRS = 8
# of rows on disk: shares of the working memory for keys, and for items of the pool, whose entries
# are there as given, mapped, of unit norm and packed
_KEYS_SHARE, _POOL_SHARE, _BYTES_PER_ENTRY = 0.25, 0.25, 32


def key_blocks(
    measure: Measure, rows: Any, asked: Integers, pool: Integers
) -> Iterator[tuple[slice, Floats]]:
    """Keys (b, m) of the asked rows with the pool's, for a slice of b asked after another.

    In float64. Keys of one query have the order of its scores, which ``finish`` keeps. Rows on disk
    are read once a slice, which is as wide as fits the working memory.
    """
    n, m = len(asked), len(pool)
    queries = _some(rows, asked)
    on_disk = memmap.is_memmap(rows)
    block, step = max(1, _BLOCK // m), m
    if on_disk:
        memory = config.working_memory() * 2**20
        block = max(1, int(_KEYS_SHARE * memory / (8 * m)))
        step = max(1, int(_POOL_SHARE * memory / (_BYTES_PER_ENTRY * rows.shape[1])))
    if isinstance(measure, UpperBounded):
        block = max(1, block // _ARRAYS_OF_PAIRS)
    known = None if on_disk else list(_pieces(measure, rows, pool, step))
    for first in range(0, n, block):
        part = slice(first, min(n, first + block))
        pieces = _pieces(measure, rows, pool, step) if known is None else known
        keys = [_keys(measure, queries[part], facts, width) for facts, width in pieces]
        yield part, keys[0] if len(keys) == 1 else np.hstack(keys)


def _pieces(measure: Measure, rows: Any, pool: Integers, step: int) -> Iterator[tuple[Any, int]]:
    """Facts of so many items of the pool at a time, and how many they are."""
    for lo in range(0, len(pool), step):
        some = pool[lo : lo + step]
        yield _facts(measure, _some(rows, some)), len(some)


def _some(rows: Any, numbers: Integers) -> Any:
    """Rows of these numbers; bags may be sparse."""
    return rows[numbers] if sp.issparse(rows) else memmap.take_rows("vectors", rows, numbers)


def _facts(measure: Measure, items: Rows) -> Any:
    if isinstance(measure, UpperBounded):
        return measure.precompute(items)
    rows = np.ascontiguousarray(measure.encode_items(items), dtype=np.float64)
    norms = norms_of(rows)
    if measure.metric_type == "cosine":
        rows = unit_rows(rows)
    offsets = -0.5 * np.square(norms) if measure.metric_type == "euclidean" else None
    if measure.metric_type == "dot":
        offsets = measure.item_bias(items)
    return packed(rows), offsets


def _keys(measure: Measure, queries: Rows, facts: Any, m: int) -> Floats:
    if isinstance(measure, UpperBounded):
        return measure.rescore(queries, facts, np.tile(np.arange(m), (queries.shape[0], 1)))
    panels, offsets = facts
    rows = np.ascontiguousarray(measure.encode_queries(queries), dtype=np.float64)
    if measure.metric_type == "cosine":
        rows = unit_rows(rows)
    keys: Floats = products(rows, panels, m)
    if offsets is not None:
        keys += offsets
    return keys


def pair_scores(measure: Measure, rows: Rows, pairs: Integers) -> Floats:
    """Scores (m,) of pairs (m, 2) of rows, as ``top_k`` would give them, in float64."""
    queries, columns = rows[pairs[:, 0]], np.ascontiguousarray(pairs[:, 1:])
    if isinstance(measure, UpperBounded):
        keys = measure.rescore(queries, measure.precompute(rows), columns)
    else:
        keys = list_scores(
            measure.metric_type,
            measure.encode_queries(queries),
            measure.encode_items(rows),
            columns,
        )
        offsets = measure.item_bias(rows)
        if offsets is not None:
            keys = keys + offsets[columns]
    return validation.read_only(measure.to_score(keys, queries)[:, 0])
