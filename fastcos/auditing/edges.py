"""Edges of an audit: items, a sample of their rows, the nearest items of those, and its error."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import config, parallel, validation
from fastcos.parallel import memmap
from fastcos.search.index import SimilarityIndex
from fastcos.search.results import Neighbors
from fastcos.search.top_k import top_k
from fastcos.similarity.cosine_bounds import as_condition
from fastcos.similarity.encoded_rows import encode_rows
from fastcos.validation import Floats, Integers

# share of working_memory for rows read from disk; the rest is for their sorted numbers
_ROWS_SHARE = 0.8
# bytes per entry of such a row, besides the entry itself: its copy in float32
_COPY_BYTES = 4


class ItemRows(NamedTuple):
    """Items, in memory or memory-mapped, with their norms, and a subset of their rows.

    get_index: of all items, made at the first call. working_memory: MiB for a search. at_once: how
    many items fit in it; all if in memory.
    """

    items: Any
    norms: Floats
    rows: Integers
    get_index: Callable[[], SimilarityIndex]
    working_memory: float
    at_once: int
    n_threads: int | None

    @property
    def arrays(self) -> tuple[Any, Floats, Integers]:
        """The arrays that kernels take."""
        return self[:3]

    def subset(self, rows: Integers) -> "ItemRows":
        """The same items with other rows."""
        return self._replace(rows=validation.read_only(rows))


def as_edges(
    items: Any, k: Any, condition: Any, rows: Any = None,
    working_memory: float | None = None, n_threads: int | None = None,
) -> tuple[ItemRows, int, float]:  # fmt: skip
    """Return the checked arguments of a search over the k nearest of some rows."""
    given = memmap.as_mapped_rows("items", items)
    p = len(given)
    validation.check_enough("items", p, 2, "rows")
    k = validation.as_count("k", k, high=p - 1)
    condition = as_condition("condition", condition)
    chosen = np.arange(p) if rows is None else validation.as_item_numbers("rows", rows, p)
    memory = config.working_memory() if working_memory is None else working_memory
    memory = validation.as_real("working_memory", memory, above=0)
    row_bytes = (given.itemsize + _COPY_BYTES) * given.shape[1]
    at_once = memmap.rows_at_once(given, _ROWS_SHARE * memory * 2**20, row_bytes)
    norms = parallel.unfilled(p, np.float64)
    for lo, block in memmap.iter_blocks("items", given, at_once):
        validation.check_scorable("items", block, block)
        encoded = encode_rows(block, None, None, "cosine")
        norms[lo : lo + len(block)] = encoded.norms
    items = encoded.rows if at_once == p else given

    @functools.cache
    def get_index() -> SimilarityIndex:
        return SimilarityIndex(n_threads=n_threads).fit(items, copy=False)

    norms, chosen = validation.read_only(norms), validation.read_only(chosen)
    return ItemRows(items, norms, chosen, get_index, memory, at_once, n_threads), k, condition


def parts(sample: ItemRows, lists: Integers) -> Iterator[tuple[slice, ItemRows, Integers]]:
    """Split rows and their lists into parts whose items fit in memory.

    Yields the slice of rows, the items that these rows and their lists name, and the lists with
    the numbers of those items. Items that all fit are one part and keep their numbers.
    """
    if sample.at_once == len(sample.items):
        yield slice(0, len(lists)), sample, lists
        return
    step = max(1, sample.at_once // (lists.shape[1] + 1))
    for lo in range(0, len(lists), step):
        part = slice(lo, min(len(lists), lo + step))
        yield part, *gather_items(sample.subset(sample.rows[part]), lists[part])


def gather_items(sample: ItemRows, lists: Integers) -> tuple[ItemRows, Integers]:
    """Copy the items that the rows and their lists name to memory; renumber the lists for them."""
    edges = np.column_stack([sample.rows, lists])
    used, numbers = np.unique(edges, return_inverse=True)
    numbers = numbers.reshape(edges.shape).astype(np.int64)
    rows = memmap.take_rows("items", sample.items, used, sample.n_threads)
    encoded = encode_rows(rows, None, sample.n_threads, "cosine")
    gathered = sample._replace(items=encoded.rows, norms=encoded.norms, at_once=len(used))
    # the columns of numbers are strided; kernels take contiguous arrays
    own, listed = (np.ascontiguousarray(part) for part in (numbers[:, 0], numbers[:, 1:]))
    return gathered.subset(own), validation.read_only(listed)


def nearest_items(
    sample: ItemRows,
    length: int,
    *,
    index: SimilarityIndex | None = None,
    progress: parallel.Progress | None = None,
) -> Neighbors:
    """Return the nearest items of the sampled rows, without the row itself.

    index: of the items by another measure than their cosine.
    """
    options: dict[str, Any] = {
        "n_threads": sample.n_threads,
        "working_memory": sample.working_memory,
        "progress": progress,
    }
    if index is None and len(sample.rows) == len(sample.items):
        return top_k(sample.items, k=length, **options)
    index = sample.get_index() if index is None else index
    queries = memmap.take_rows("items", sample.items, sample.rows)
    longer = index.search(queries, length + 1, **options)
    own = longer.indices == sample.rows[:, np.newaxis]
    # among many duplicates the row itself may be missing: then drop the last item
    own[~own.any(axis=1), -1] = True
    shape = len(sample.rows), length
    return Neighbors(longer.indices[~own].reshape(shape), longer.scores[~own].reshape(shape))


def standard_error(values: Floats, population: int) -> float:
    """Standard error of the mean of a sample drawn without replacement; 0 for all of them."""
    n = len(values)
    if n < 2 or n >= population:
        return 0.0
    return float(values.std(ddof=1) * np.sqrt((1 - n / population) / n))
