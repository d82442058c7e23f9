"""The edges of an audit, which are pairs of an item and one of its nearest items."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import config, parallel, validation
from fastcos.kernels import records
from fastcos.parallel import memmap
from fastcos.search.index import SimilarityIndex
from fastcos.search.results import Neighbors
from fastcos.search.top_k import top_k
from fastcos.similarity.cosine_bounds import as_condition
from fastcos.similarity.encoded_rows import encode_rows
from fastcos.validation import Floats, Integers

# Share of ``working_memory`` that rows from disk may take. The remaining memory is needed for the
# sorted row numbers.
_ROWS_SHARE = 0.8
# Memory also holds a float32 copy of the rows that are read from disk. The copy takes _COPY_BYTES
# bytes per entry.
_COPY_BYTES = 4


class ItemRows(NamedTuple):
    """Item embeddings with their norms, and the row numbers of a subset of the items.

    - ``items``: The embeddings of all items, in memory or memory-mapped.
    - ``norms``: The norms of all items.
    - ``rows``: The row numbers of the subset.
    - ``get_index``: A function that returns the search index of all items, and builds this index
      when it is called for the first time.
    - ``working_memory``: The largest amount of memory that a search may use, in MiB.
    - ``max_rows``: The number of items that fit in ``working_memory``. If the items are in memory,
      ``max_rows`` is the number of all items.
    - ``n_threads``: The number of threads.
    """

    items: Any
    norms: Floats
    rows: Integers
    get_index: Callable[[], SimilarityIndex]
    working_memory: float
    max_rows: int
    n_threads: int | None

    @property
    def arrays(self) -> Any:
        """The items, their norms and the row numbers, as the record that is passed to kernels."""
        return records.SampledRows(records.rows_of(self.items), self.norms, self.rows)

    def subset(self, rows: Integers) -> "ItemRows":
        """Return the same items with another subset of rows."""
        return self._replace(rows=validation.read_only(rows))


def as_edges(
    items: Any, k: Any, condition: Any, rows: Any = None,
    working_memory: float | None = None, n_threads: int | None = None,
) -> tuple[ItemRows, int, float]:  # fmt: skip
    """Return the validated ``items``, ``k`` and ``condition`` for a function that uses edges.

    The items are returned as an ``ItemRows`` object with the subset ``rows``. If ``rows`` is None,
    the subset contains all rows.
    """
    item_rows = memmap.as_mapped_rows("items", items)
    p = len(item_rows)
    validation.check_enough("items", p, 2, "rows")
    k = validation.as_count("k", k, high=p - 1)
    condition = as_condition("condition", condition)
    subset = np.arange(p) if rows is None else validation.as_item_numbers("rows", rows, p)
    memory = config.working_memory() if working_memory is None else working_memory
    memory = validation.as_real("working_memory", memory, above=0)
    row_bytes = (item_rows.itemsize + _COPY_BYTES) * item_rows.shape[1]
    max_rows = memmap.rows_at_once(item_rows, _ROWS_SHARE * memory * 2**20, row_bytes)
    norms = parallel.unfilled(p, np.float64)
    for lo, block in memmap.iter_blocks("items", item_rows, max_rows):
        validation.check_scorable("items", block, block)
        encoded = encode_rows(block, None, None, "cosine")
        norms[lo : lo + len(block)] = encoded.norms
    items = encoded.rows if max_rows == p else item_rows

    @functools.cache
    def get_index() -> SimilarityIndex:
        return SimilarityIndex(n_threads=n_threads).fit(items, copy=False)

    norms, subset = validation.read_only(norms), validation.read_only(subset)
    return ItemRows(items, norms, subset, get_index, memory, max_rows, n_threads), k, condition


def parts(sample: ItemRows, lists: Integers) -> Iterator[tuple[slice, ItemRows, Integers]]:
    """Yield the sampled rows and their lists in parts whose items fit in memory.

    Each part is a tuple of three entries: a slice of the sampled rows, the items of the part, and
    the neighbour lists of the rows. The items of the part are the items that occur among its rows
    or in its lists. Each entry of the lists is the position of an item among the items of the part.
    If all items fit in memory, the function yields all rows as a single part, without renumbering
    the entries of the lists.
    """
    if sample.max_rows == len(sample.items):
        yield slice(0, len(lists)), sample, lists
        return
    step = max(1, sample.max_rows // (lists.shape[1] + 1))
    for lo in range(0, len(lists), step):
        part = slice(lo, min(len(lists), lo + step))
        yield part, *gather_items(sample.subset(sample.rows[part]), lists[part])


def gather_items(sample: ItemRows, lists: Integers) -> tuple[ItemRows, Integers]:
    """Copy the sampled items and the listed items to memory; return the copy and the lists.

    Each entry of the returned lists is the position of an item among the copied items.
    """
    edges = np.column_stack([sample.rows, lists])
    gathered_rows, numbers = np.unique(edges, return_inverse=True)
    numbers = numbers.reshape(edges.shape).astype(np.int64)
    rows = memmap.take_rows("items", sample.items, gathered_rows, sample.n_threads)
    encoded = encode_rows(rows, None, sample.n_threads, "cosine")
    gathered = sample._replace(items=encoded.rows, norms=encoded.norms, max_rows=len(gathered_rows))
    # The columns of the array ``numbers`` are not contiguous, but kernels require contiguous
    # arrays.
    row_numbers = np.ascontiguousarray(numbers[:, 0])
    list_numbers = np.ascontiguousarray(numbers[:, 1:])
    return gathered.subset(row_numbers), validation.read_only(list_numbers)


def nearest_items(
    sample: ItemRows,
    length: int,
    *,
    index: SimilarityIndex | None = None,
    progress: parallel.Progress | None = None,
) -> Neighbors:
    """Return the ``length`` nearest items of each sampled row, without the row itself.

    By default, items are compared by their cosine. To compare items by another measure, pass an
    index of the same items that uses this measure.
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
    neighbors = index.search(queries, length + 1, **options)
    is_removed = neighbors.indices == sample.rows[:, np.newaxis]
    # Each item is removed from its own list. If an item has many duplicates, they may fill its
    # list, so that the list does not contain the item itself. In this case, the last duplicate in
    # the list is removed.
    is_removed[~is_removed.any(axis=1), -1] = True
    shape = len(sample.rows), length
    return Neighbors(
        neighbors.indices[~is_removed].reshape(shape), neighbors.scores[~is_removed].reshape(shape)
    )


def standard_error(values: Floats, population: int) -> float:
    """Return the standard error of the mean of a sample that was drawn without replacement.

    The standard error is 0 if the sample is the whole population.
    """
    n = len(values)
    if n < 2 or n >= population:
        return 0.0
    return float(values.std(ddof=1) * np.sqrt((1 - n / population) / n))
