"""Certificates: nearest neighbours that no rescaling of bounded condition can remove.

An edge is an item and one of its k nearest neighbours. Its radius is a condition number: under
every map of lower condition the neighbour stays among the k nearest. There are two families of
maps. "linear" is every invertible G; the cosines of the k + 1 nearest items give this radius.
"rescaling" is every diagonal D; this radius is larger and needs a search over competing items.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.engine.packing import encode_rows
from fastcos.kernels import certificates
from fastcos.neighbors.index import SimilarityIndex
from fastcos.neighbors.search import top_k
from fastcos.neighbors.types import Neighbors
from fastcos.reports.table import as_table
from fastcos.rescaling.cosine_bounds import CONDITION, as_condition
from fastcos.storage import memmap
from fastcos.validation import Floats, Integers

# halvings of the range of a ratio of norms: at most 2^6 pieces, reached only near the radius
DEPTH = 6
# factor between the lengths of one candidate list and the next, for undecided edges
_GROWTH = 8
# ratio of the logarithms of two neighbouring search levels: radii are exact to 1 %
_LEVEL_STEP = 0.01
# smallest logarithm of a search level: lower conditions are no change in float32
_LEAST_LEVEL = 1e-7
# share of working_memory for rows read from disk; the rest is for their sorted numbers
_ROWS_SHARE = 0.8
# bytes per entry of such a row, besides the entry: its copy in float32
_BYTES_BESIDE = 4


@as_table
class CertifiedNeighbors(NamedTuple):
    """Nearest neighbours of items, each with the condition that it is certified to survive.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Neighbours by descending cosine; equal ones by lower index.
    scores : ndarray (n, k), float32
        Their cosines.
    radius : ndarray (n, k), float64
        The neighbour stays under every map of lower condition; at least 1. inf: under all maps.
        NaN if the item or the neighbour is a zero row.
    certified : ndarray (n, k), bool
        Whether the radius exceeds the requested condition.
    """

    indices: Integers
    scores: npt.NDArray[np.float32]
    radius: Floats
    certified: npt.NDArray[np.bool_]


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


def certified_neighbors(
    items: Any,
    k: int = 10,
    condition: float = CONDITION,
    *,
    family: str = "linear",
    rows: Any = None,
    n_threads: int | None = None,
    working_memory: float | None = None,
    progress: parallel.Progress | None = None,
) -> CertifiedNeighbors:
    """The k nearest neighbours by cosine, each with the rescaling that it is certified to survive.

    Sound: no map of the family within the radius removes a neighbour. The radius of "linear" is a
    lower bound. The radius of "rescaling" is within 1 % (of its logarithm) of the condition at
    which some item can pass the neighbour.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings. A zero row has no direction: its edges are not certified.
    k : int
        Neighbours per item, from 1 to p - 1.
    condition : float
        Largest singular value of a map over its smallest (for D: largest entry over smallest).
    family : {"linear", "rescaling"}
        "linear" costs as much as ``top_k`` with k + 1. "rescaling" searches up to ``condition``;
        above it the radius is that of "linear".
    rows : array_like, optional
        A mask (p,) or item numbers: only their neighbours are certified. Default: all.
    n_threads, working_memory, progress
        As in :func:`fastcos.top_k`.

    Returns
    -------
    CertifiedNeighbors
        indices, scores, radius, certified; one row per item, or per one of rows, ascending.

    Raises
    ------
    ValueError
        NaN or infinity; k, condition, family or rows out of range.

    Notes
    -----
    With z = artanh(cosine), a linear map of condition κ moves z by at most ln κ. Neighbour j of i
    stays if z_ij - z_i(k+1) > 2 ln κ. For rescalings, "j beats m" is a linear programme at each
    ratio of their norms. It is solved for the 4,096 nearest items m; z bounds the others.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import certified_neighbors
    >>> items = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.9], [0.0, 1.0]])
    >>> found = certified_neighbors(items, k=1, condition=2.6)
    >>> found.indices[:, 0], found.radius[:, 0].round(2), found.certified[:, 0]
    (array([1, 0, 1, 2]), array([2.77, 2.56, 1.08, 1.43]), array([ True, False, False, False]))
    """
    validation.check_progress(progress)
    sample, k, condition = as_edges(items, k, condition, rows, working_memory)
    family = validation.as_choice("family", family, ("linear", "rescaling"))
    found = nearest(sample, min(k + 1, len(sample.items) - 1), n_threads, progress)
    radius = linear_radii(sample, found.indices, k, n_threads)
    if family == "rescaling":
        index = SimilarityIndex(n_threads=n_threads).fit(sample.items)
        # a hair above: a radius at the last level then exceeds the condition
        levels = validation.read_only(levels_up_to(condition, _LEVEL_STEP) * (1.0 + 1e-12))
        certain = rescaling_radii(sample, index, k, levels, n_threads, progress)
        radius = np.maximum(radius, certain)
    indices, scores = found.indices[:, :k].copy(), found.scores[:, :k].copy()
    return CertifiedNeighbors(indices, scores, radius, radius > condition)


def as_edges(
    items: Any, k: Any, condition: Any, rows: Any, working_memory: float | None = None
) -> tuple[ItemRows, int, float]:
    """Return the checked arguments of a search over the k nearest of some rows."""
    given = memmap.as_mapped_rows("items", items)
    p = len(given)
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


def linear_radii(sample: ItemRows, neighbors: Integers, k: int, n_threads: int | None) -> Floats:
    """Radius of the first k neighbours of each list under all linear maps."""
    n, m = neighbors.shape
    fisher_z = parallel.unfilled((n, m), np.float64)
    radius = parallel.unfilled((n, k), np.float64)
    for part, some, lists in parts(sample, validation.read_only(neighbors), n_threads):
        # 4 million products a block: milliseconds, so scheduling costs little
        rows_per_block = max(1, 4_000_000 // (sample.items.shape[1] * m))
        parallel.run(
            certificates.linear_radii, parallel.row_blocks(len(lists), rows_per_block),
            *some.arrays, lists, fisher_z[part], radius[part],
            n_threads=n_threads,
        )  # fmt: skip
    return radius


def levels_up_to(condition: float, step: float) -> Floats:
    """Ascending conditions up to condition whose logarithms differ by the factor exp(step)."""
    width = np.log(condition)
    n = int(np.ceil(np.log(max(width / _LEAST_LEVEL, 1.0)) / step))
    return np.append(np.exp(width * np.exp(-step * np.arange(n, 0, -1))), condition)


def rescaling_radii(
    sample: ItemRows,
    index: SimilarityIndex,
    k: int,
    levels: Floats,
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
    *,
    first_list: int = 48,
    longest_list: int = 4096,
    batch_rows: int = 4096,
) -> Floats:
    """Radius of the k nearest of every row under rescalings: one of the ascending levels.

    If the radius from Fisher's z alone lies between two levels, that one is returned. The
    first_list nearest competing items decide most edges (bench: audit.Edges). Undecided edges get
    longer lists, up to longest_list; Fisher's z bounds the items beyond. The lists of batch_rows
    rows are in memory at once: 128 MiB of the longest.
    """
    n, others = len(sample.rows), len(sample.items) - 1
    longest = min(others, max(longest_list, k + 1))
    radius = parallel.unfilled((n, k), np.float64)
    for start in range(0, n, batch_rows):
        batch, first, length = np.arange(start, min(start + batch_rows, n)), k, first_list + k
        # upper bounds of the radii, from the items seen so far
        bounds = np.full((len(batch), k), levels[-1])
        while len(batch):
            length = min(length, longest)
            part = sample.subset(sample.rows[batch])
            neighbors = validation.read_only(nearest(part, length, n_threads, index=index).indices)
            found = parallel.unfilled(bounds.shape, np.float64)
            undecided = parallel.unfilled(len(batch), np.uint8)
            for here, some, lists in parts(part, neighbors, n_threads):
                parallel.run(
                    certificates.rescaling_radii, parallel.row_blocks(len(lists), 4),
                    *some.arrays, lists, first, length == others, levels, DEPTH, bounds[here],
                    found[here], undecided[here],
                    n_threads=n_threads,
                )  # fmt: skip
            radius[batch] = found
            again = (undecided > 0) & (length < longest)
            batch, bounds, first, length = batch[again], bounds[again], length, length * _GROWTH
        if progress is not None:
            progress(min(start + batch_rows, n), n)
    return radius
