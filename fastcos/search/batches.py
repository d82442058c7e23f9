"""Compute how many queries and items a search processes at once, within the working memory.

The functions of this module depend only on sizes, like the functions of ``plan``; they read no
array.
"""

from typing import NamedTuple

from fastcos.parallel import memmap
from fastcos.search import cost_model
from fastcos.search.layout import tile_layout

# Segments of memory-mapped items begin at multiples of this many rows. A transform may multiply
# rows in blocks of this size. The transform may read the items segment by segment or all at once;
# its blocks are the same in both cases. The transformed rows are therefore also the same, bit for
# bit.
SEGMENT_MULTIPLE = 4096


def plan_batch(k: int, n_columns: int, working_memory: float) -> int:
    """Return how many queries form a batch, so that a batch with its results fits in memory."""
    bytes_per_query = 24 * k + 24 * n_columns + cost_model.COSTS.batch_bytes_per_query
    fits = int(cost_model.COSTS.batch_share * working_memory / bytes_per_query)
    return max(cost_model.COSTS.min_batch_queries, fits)


class BlockSizes(NamedTuple):
    """How many queries and items are read at once, and how many bytes their search may use."""

    queries: int
    items: int
    memory: float


def plan_blocks(
    n_queries: int, n_items: int, k: int, query_bytes: int, item_bytes: int, memory: float
) -> BlockSizes:
    """Return the block sizes of a search that must read the items in blocks.

    ``query_bytes`` is the number of bytes that a query and its encoded copy take; ``item_bytes`` is
    the number of bytes that an item and its encoded copy take. ``memory`` is the working memory in
    bytes.
    """
    costs = cost_model.COSTS
    query_bytes += costs.read_bytes_per_neighbor * k
    queries = memmap.rows_that_fit(memory, costs.read_queries_share, query_bytes, n_queries)
    share = 1 - costs.segment_search_share - queries * query_bytes / memory
    items = memmap.rows_that_fit(memory, share, item_bytes, n_items)
    items -= items % SEGMENT_MULTIPLE if items > SEGMENT_MULTIPLE else 0
    return BlockSizes(queries, items, costs.segment_search_share * memory)


def low_precision_memory(n_columns: int, n_bytes: int) -> float:
    """Return the memory limit, in bytes, for float32 copies of blocks of low-precision rows.

    ``n_bytes`` is the size of all original rows. The result is ``n_bytes``, but never less than a
    minimum, which may depend on ``n_columns``. If there are many rows, the copies therefore take at
    most as much memory as the original rows.
    """
    costs = cost_model.COSTS
    smallest = costs.low_precision_bytes_per_column * n_columns
    return max(costs.low_precision_memory, smallest, n_bytes)


def packs_low_precision(n_rows: int, n_columns: int, isa: str, memory: float) -> bool:
    """Return whether low-precision rows are packed all at once instead of block by block."""
    costs, layout = cost_model.COSTS, tile_layout(isa, n_columns)
    size = n_rows * (4 * layout.words + costs.read_bytes_per_row)
    is_large = 4 * n_rows * n_columns > costs.low_precision_memory
    return is_large and layout.quantised and size <= memory
