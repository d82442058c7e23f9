"""Which nearest neighbours no rescaling of the latent dimensions can take away.

The radius of an edge, that is an item and one of its k nearest, is a condition number: under every
map of a lower condition the neighbour stays among the k nearest. Two families of maps are offered.
"linear" is every invertible G: the radius follows from the cosines of the k + 1 nearest alone.
"rescaling" is every diagonal D: the radius is larger and takes a search over rivals.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.auditing import checks
from fastcos.engine import scan
from fastcos.kernels import certificates
from fastcos.neighbors.index import SimilarityIndex
from fastcos.neighbors.search import top_k
from fastcos.neighbors.types import Neighbors
from fastcos.storage import memmap

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FAMILIES = ("linear", "rescaling")
# halvings of the range of a ratio of norms: 2^6 pieces at most, met only near the true radius
DEPTH = 6
# rivals met one by one: first, growth where the answer hangs on the others, and at most
_FIRST_LIST, _GROWTH, _LONGEST_LIST = 48, 8, 4096
_BATCH = 4096
# levels between which radii are searched: how far their logarithms are apart, the least of them
_LEVEL_STEP, _LEAST_LEVEL = 0.01, 1e-7
# of the working memory, for rows that are read from disk at once; beside an entry of them
_ROWS_SHARE, _BYTES_BESIDE = 0.8, 4


class CertifiedNeighbors(NamedTuple):
    """The nearest neighbours of items, and how much rescaling each of them survives for sure.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Neighbours by falling cosine; equal ones by lower index.
    scores : ndarray (n, k), float32
        Their cosines.
    radius : ndarray (n, k), float64
        Under every map of a condition below it the neighbour stays; at least 1. inf: under all of
        them. NaN where the item or the neighbour is a zero row.
    certified : ndarray (n, k), bool
        Whether the radius exceeds the condition asked for.
    """

    indices: Integers
    scores: npt.NDArray[np.float32]
    radius: Floats
    certified: npt.NDArray[np.bool_]


class Side(NamedTuple):
    """Items, in memory or on disk, with their norms, and the rows whose edges are looked at."""

    items: Any
    norms: Floats
    rows: Integers


def certified_neighbors(
    items: Any,
    k: int = 10,
    condition: float = 2.0,
    *,
    family: str = "linear",
    rows: Any = None,
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
) -> CertifiedNeighbors:
    """The k nearest neighbours by cosine, each with the rescaling that it is certain to survive.

    Sound: a certified neighbour is never lost. Not complete for "linear", where the radius is a
    lower bound; for "rescaling" it is within 1 % (of its logarithm) of the condition at which some
    rival can pass the neighbour.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings. A zero row has no direction: its edges are not certified.
    k : int
        Neighbours per item, from 1 to p - 1.
    condition : float
        Largest singular value of a map over its smallest (for D: largest entry over smallest).
    family : {"linear", "rescaling"}
        "linear" costs as much as ``top_k`` with k + 1. "rescaling" looks no further than
        ``condition``: above it the radius is that of "linear".
    rows : array_like, optional
        A mask (p,) or item numbers: only their neighbours are looked at. Default: all.
    n_threads : int, optional
        Default: the setting ``num_threads``.
    progress : callable, optional
        Called as progress(done, total) with numbers of rows.

    Returns
    -------
    CertifiedNeighbors
        indices, scores, radius, certified; one row per item, or per one of rows, rising.

    Raises
    ------
    ValueError
        NaN or infinity; k, condition, family or rows out of range.

    Notes
    -----
    With z = artanh(cosine), no linear map of condition κ moves a z by more than ln κ: neighbour j
    of i stays if z_ij - z_i(k+1) > 2 ln κ. For rescalings, "j beats rival m" is a linear programme
    at each ratio of their norms; 4,096 rivals are met in this way, any others by their z.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import certified_neighbors
    >>> items = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.9], [0.0, 1.0]])
    >>> found = certified_neighbors(items, k=1, condition=2.6)
    >>> found.indices[:, 0], found.radius[:, 0].round(2), found.certified[:, 0]
    (array([1, 0, 1, 2]), array([2.77, 2.56, 1.08, 1.43]), array([ True, False, False, False]))
    """
    side, k, condition = as_edges(items, k, condition, rows)
    family = validation.as_choice("family", family, FAMILIES)
    found = nearest(side, min(k + 1, len(side.items) - 1), n_threads, progress)
    _, radius = linear_radii(side, found.indices, k, n_threads)
    if family == "rescaling":
        index = SimilarityIndex(n_threads=n_threads).fit(side.items)
        certain = rescaling_radii(side, index, k, safe_levels(condition), n_threads, progress)
        radius = np.maximum(radius, certain)
    indices, scores = found.indices[:, :k].copy(), found.scores[:, :k].copy()
    return CertifiedNeighbors(indices, scores, radius, radius > condition)


def as_edges(items: Any, k: Any, condition: Any, rows: Any) -> tuple[Side, int, float]:
    """Return the checked arguments of a search over the k nearest of some rows."""
    given = memmap.as_mapped_rows("items", items)
    p = len(given)
    k = validation.as_count("k", k, high=p - 1)
    condition = checks.as_condition("condition", condition)
    chosen = np.arange(p) if rows is None else validation.as_item_numbers("rows", rows, p)
    norms = parallel.unfilled(p, np.float64)
    for lo, block in memmap.iter_blocks("items", given, _rows_at_once(given, 1)):
        validation.check_scorable("items", block, block)
        side = scan.side(block, None, None, "cosine")
        norms[lo : lo + len(block)] = side.norms
    items = given if memmap.is_memmap(given) else side.rows
    return Side(items, validation.read_only(norms), validation.read_only(chosen)), k, condition


def _rows_at_once(items: Any, listed: int) -> int:
    """How many rows to look at, with as many listed rows each; all of them in memory."""
    if not memmap.is_memmap(items):
        return len(items)
    row_bytes = (items.itemsize + _BYTES_BESIDE) * items.shape[1]
    fits = _ROWS_SHARE * config.working_memory() * 2**20 / (row_bytes * listed)
    return max(1, int(fits))


def parts(
    side: Side, lists: Integers, n_threads: int | None = 1
) -> Iterator[tuple[slice, Side, Integers]]:
    """Cut the rows of a side and their lists into parts whose items are in memory.

    Yields which rows, a side of the items that these and their lists name, and the lists by the
    numbers that the items have there. Items in memory stay as they are, in one part.
    """
    if not memmap.is_memmap(side.items):
        yield slice(0, len(lists)), side, lists
        return
    step = _rows_at_once(side.items, lists.shape[1] + 1)
    for lo in range(0, len(lists), step):
        part = slice(lo, min(len(lists), lo + step))
        yield part, *named_by(side._replace(rows=side.rows[part]), lists[part], n_threads)


def named_by(side: Side, lists: Integers, n_threads: int | None = 1) -> tuple[Side, Integers]:
    """Return a side of the items that the rows and their lists name, in memory, and the lists."""
    edges = np.column_stack([side.rows, lists])
    used, numbers = np.unique(edges, return_inverse=True)
    numbers = numbers.reshape(edges.shape)
    own, listed = (numbers[:, place].astype(np.int64) for place in (0, slice(1, None)))
    rows = memmap.take_rows("items", side.items, used, n_threads)
    few = scan.side(rows, None, n_threads, "cosine")
    return Side(few.rows, few.norms, validation.read_only(own)), validation.read_only(listed)


def nearest(
    side: Side,
    length: int,
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
) -> Neighbors:
    """Return the nearest items of the rows of one side, without the row itself."""
    if len(side.rows) == len(side.items):
        return top_k(side.items, k=length, n_threads=n_threads, progress=progress)
    index = SimilarityIndex(n_threads=n_threads).fit(side.items)
    return nearest_of(index, side, length, n_threads, progress)


def nearest_of(
    index: SimilarityIndex,
    side: Side,
    length: int,
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
) -> Neighbors:
    """Return the same of items that are prepared already."""
    queries = memmap.take_rows("items", side.items, side.rows)
    longer = index.search(queries, length + 1, n_threads=n_threads, progress=progress)
    own = longer.indices == side.rows[:, np.newaxis]
    # among many duplicates the row itself may not be listed: then the last one goes
    own[~own.any(axis=1), -1] = True
    indices, scores = (part[~own].reshape(len(side.rows), length) for part in longer)
    return Neighbors(indices, scores)


def linear_radii(
    side: Side, neighbors: Integers, k: int, n_threads: int | None
) -> tuple[Floats, Floats]:
    """Fisher z of the listed neighbours, and the radius of the first k under all linear maps."""
    n, m = neighbors.shape
    z, radius = parallel.unfilled((n, m), np.float64), parallel.unfilled((n, k), np.float64)
    for part, some, lists in parts(side, validation.read_only(neighbors), n_threads):
        cuts = parallel.row_blocks(len(lists), max(1, 4_000_000 // (side.items.shape[1] * m)))
        parallel.run(
            certificates.linear_radii, cuts, *some, lists, z[part], radius[part],
            n_threads=n_threads,
        )  # fmt: skip
    return z, radius


def levels_up_to(condition: float, step: float) -> Floats:
    """Conditions up to condition whose logarithms are apart by the share step."""
    width = np.log(condition)
    n = int(np.ceil(np.log(max(width / _LEAST_LEVEL, 1.0)) / step))
    return np.append(np.exp(width * np.exp(-step * np.arange(n, 0, -1))), condition)


def safe_levels(condition: float) -> Floats:
    """Levels of which the last is a hair above condition: a radius there exceeds condition."""
    return validation.read_only(levels_up_to(condition, _LEVEL_STEP) * (1.0 + 1e-12))


def rescaling_radii(
    side: Side,
    index: SimilarityIndex,
    k: int,
    levels: Floats,
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
) -> Floats:
    """Radius of the k nearest of every row under rescalings, one of the rising levels.

    Or the radius that Fisher's z alone tells, where that lies between two levels.
    """
    n, others = len(side.rows), len(side.items) - 1
    longest = min(others, max(_LONGEST_LIST, k + 1))
    radius = parallel.unfilled((n, k), np.float64)
    for start in range(0, n, _BATCH):
        batch, first, length = np.arange(start, min(start + _BATCH, n)), k, _FIRST_LIST + k
        met = np.full((len(batch), k), levels[-1])
        while len(batch):
            length = min(length, longest)
            part = side._replace(rows=validation.read_only(side.rows[batch]))
            neighbors = validation.read_only(nearest_of(index, part, length, n_threads).indices)
            found = parallel.unfilled(met.shape, np.float64)
            short = parallel.unfilled(len(batch), np.uint8)
            for here, some, lists in parts(part, neighbors, n_threads):
                parallel.run(
                    certificates.rescaling_radii, parallel.row_blocks(len(lists), 4), *some,
                    lists, first, length == others, levels, DEPTH, met[here], found[here],
                    short[here],
                    n_threads=n_threads,
                )  # fmt: skip
            radius[batch] = found
            unsure = (short > 0) & (length < longest)
            batch, met, first, length = batch[unsure], met[unsure], length, length * _GROWTH
        if progress is not None:
            progress(min(start + _BATCH, n), n)
    return radius
