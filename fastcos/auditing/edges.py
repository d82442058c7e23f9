"""Edges of an audit: items, a subset of their rows, and the nearest items of those."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import config, parallel, validation
from fastcos.engine.packing import encode_rows
from fastcos.neighbors.index import SimilarityIndex
from fastcos.neighbors.results import Neighbors
from fastcos.neighbors.search import top_k
from fastcos.rescaling.cosine_bounds import as_condition
from fastcos.storage import memmap
from fastcos.validation import Floats, Integers

# share of working_memory for rows read from disk; the rest is for their sorted numbers
_ROWS_SHARE = 0.8
# bytes per entry of such a row, besides the entry: its copy in float32
_BYTES_BESIDE = 4


class ItemRows(NamedTuple):
    """Items, in memory or memory-mapped, with their norms, and a subset of their rows.

    working_memory: MiB for rows that are read from disk.
    """

    items: Any
    norms: Floats
    rows: Integers
    working_memory: float

    @property
    def arrays(self) -> tuple[Any, Floats, Integers]:
        """What kernels take."""
        return self[:3]

    def subset(self, rows: Integers) -> "ItemRows":
        """The same items with other rows."""
        return self._replace(rows=validation.read_only(rows))


def as_edges(
    items: Any, k: Any, condition: Any, rows: Any, working_memory: float | None = None
) -> tuple[ItemRows, int, float]:
    """Return the checked arguments of a search over the k nearest of some rows."""
    given = memmap.as_mapped_rows("items", items)
    p = len(given)
    if p < 2:
        raise ValueError(f"items must have at least 2 rows, got {p}")
    k = validation.as_count("k", k, high=p - 1)
    condition = as_condition("condition", condition)
    chosen = np.arange(p) if rows is None else validation.as_item_numbers("rows", rows, p)
    memory = config.working_memory() if working_memory is None else working_memory
    memory = validation.as_real("working_memory", memory, above=0)
    norms = parallel.unfilled(p, np.float64)
    for lo, block in memmap.iter_blocks("items", given, _rows_at_once(given, memory, 1)):
        validation.check_scorable("items", block, block)
        encoded = encode_rows(block, None, None, "cosine")
        norms[lo : lo + len(block)] = encoded.norms
    items = given if isinstance(given, np.memmap) else encoded.rows
    sample = ItemRows(items, validation.read_only(norms), validation.read_only(chosen), memory)
    return sample, k, condition


def _rows_at_once(items: Any, working_memory: float, rows_per_list: int) -> int:
    """How many lists of rows fit working_memory; all of them if the items are in memory."""
    if not isinstance(items, np.memmap):
        return len(items)
    row_bytes = (items.itemsize + _BYTES_BESIDE) * items.shape[1]
    fits = _ROWS_SHARE * working_memory * 2**20 / (row_bytes * rows_per_list)
    return max(1, int(fits))


def parts(
    sample: ItemRows, lists: Integers, n_threads: int | None = 1
) -> Iterator[tuple[slice, ItemRows, Integers]]:
    """Split rows and their lists into parts whose items fit in memory.

    Yields the slice of rows, the items that these rows and their lists name, and the lists with
    the numbers of those items. Items in memory are one part and keep their numbers.
    """
    if not isinstance(sample.items, np.memmap):
        yield slice(0, len(lists)), sample, lists
        return
    step = _rows_at_once(sample.items, sample.working_memory, lists.shape[1] + 1)
    for lo in range(0, len(lists), step):
        part = slice(lo, min(len(lists), lo + step))
        yield part, *gather_items(sample.subset(sample.rows[part]), lists[part], n_threads)


def gather_items(
    sample: ItemRows, lists: Integers, n_threads: int | None = 1
) -> tuple[ItemRows, Integers]:
    """Copy the items that the rows and their lists name to memory; renumber the lists for them."""
    edges = np.column_stack([sample.rows, lists])
    used, numbers = np.unique(edges, return_inverse=True)
    numbers = numbers.reshape(edges.shape).astype(np.int64)
    rows = memmap.take_rows("items", sample.items, used, n_threads)
    encoded = encode_rows(rows, None, n_threads, "cosine")
    gathered = sample._replace(items=encoded.rows, norms=encoded.norms)
    # the columns of numbers are strided; kernels take contiguous arrays
    own, listed = (np.ascontiguousarray(part) for part in (numbers[:, 0], numbers[:, 1:]))
    return gathered.subset(own), validation.read_only(listed)


def nearest(
    sample: ItemRows,
    length: int,
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
    index: SimilarityIndex | None = None,
) -> Neighbors:
    """Return the nearest items of the sampled rows, without the row itself; index: of the items."""
    if index is None and len(sample.rows) == len(sample.items):
        return top_k(
            sample.items, k=length, n_threads=n_threads, progress=progress,
            working_memory=sample.working_memory,
        )  # fmt: skip
    if index is None:
        index = SimilarityIndex(n_threads=n_threads).fit(sample.items)
    queries = memmap.take_rows("items", sample.items, sample.rows)
    longer = index.search(
        queries, length + 1, n_threads=n_threads, progress=progress,
        working_memory=sample.working_memory,
    )  # fmt: skip
    own = longer.indices == sample.rows[:, np.newaxis]
    # among many duplicates the row itself may be missing: then drop the last item
    own[~own.any(axis=1), -1] = True
    shape = len(sample.rows), length
    return Neighbors(longer.indices[~own].reshape(shape), longer.scores[~own].reshape(shape))
