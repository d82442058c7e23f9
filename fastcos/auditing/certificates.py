"""Certificates: nearest neighbours that no rescaling of bounded condition can remove.

An edge is an item and one of its k nearest neighbours. Its radius is a condition number: under
every map of lower condition the neighbour stays among the k nearest. There are two families of
maps. "linear" is every invertible G; the cosines of the k + 1 nearest items give this radius.
"rescaling" is every diagonal D; this radius is larger and needs a search over competing items.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.auditing import edges
from fastcos.kernels import certificates
from fastcos.reports import as_table
from fastcos.similarity.cosine_bounds import CONDITION
from fastcos.validation import Floats, Integers

# halvings of the range of a ratio of norms: at most 2^6 pieces, reached only near the radius
DEPTH = 6
# factor between the lengths of one candidate list and the next, for undecided edges
_GROWTH = 8
# ratio of the logarithms of two neighbouring search levels: radii are exact to 1 %
_LEVEL_STEP = 0.01
# smallest logarithm of a search level: lower conditions are no change in float32
_LEAST_LEVEL = 1e-7


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
    >>> edges = certified_neighbors(items, k=1, condition=2.6)
    >>> edges.indices[:, 0], edges.radius[:, 0].round(2), edges.certified[:, 0]
    (array([1, 0, 1, 2]), array([2.77, 2.56, 1.08, 1.43]), array([ True, False, False, False]))
    """
    validation.check_progress(progress)
    sample, k, condition = edges.as_edges(items, k, condition, rows, working_memory, n_threads)
    family = validation.as_choice("family", family, ("linear", "rescaling"))
    longer = edges.nearest_items(sample, min(k + 1, len(sample.items) - 1), progress=progress)
    radius = linear_radii(sample, longer.indices, k)
    if family == "rescaling":
        # a hair above: a radius at the last level then exceeds the condition
        levels = validation.read_only(levels_up_to(condition, _LEVEL_STEP) * (1.0 + 1e-12))
        radius = np.maximum(radius, rescaling_radii(sample, k, levels, progress))
    indices, scores = longer.indices[:, :k].copy(), longer.scores[:, :k].copy()
    return CertifiedNeighbors(indices, scores, radius, radius > condition)


def linear_radii(sample: edges.ItemRows, neighbors: Integers, k: int) -> Floats:
    """Radius of the first k neighbours of each list under all linear maps."""
    n, m = neighbors.shape
    fisher_z = parallel.unfilled((n, m), np.float64)
    radius = parallel.unfilled((n, k), np.float64)
    for part, gathered, lists in edges.parts(sample, validation.read_only(neighbors)):
        # 4 million products a block: milliseconds, so scheduling costs little
        rows_per_block = max(1, 4_000_000 // (sample.items.shape[1] * m))
        parallel.run(
            certificates.linear_radii, parallel.row_blocks(len(lists), rows_per_block),
            *gathered.arrays, lists, fisher_z[part], radius[part],
            n_threads=sample.n_threads,
        )  # fmt: skip
    return radius


def levels_up_to(condition: float, step: float) -> Floats:
    """Ascending conditions up to condition whose logarithms differ by the factor exp(step)."""
    width = np.log(condition)
    n = int(np.ceil(np.log(max(width / _LEAST_LEVEL, 1.0)) / step))
    return np.append(np.exp(width * np.exp(-step * np.arange(n, 0, -1))), condition)


def rescaling_radii(
    sample: edges.ItemRows,
    k: int,
    levels: Floats,
    progress: parallel.Progress | None = None,
    *,
    first_list: int = 48,
    longest_list: int = 4096,
    batch_rows: int = 4096,
) -> Floats:
    """Radius of the k nearest of every row under rescalings: one of the ascending levels.

    If the radius from Fisher's z alone lies between two levels, that one is returned. The
    first_list nearest competing items decide most edges. Undecided edges get
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
            neighbors = validation.read_only(edges.nearest_items(part, length).indices)
            radii = parallel.unfilled(bounds.shape, np.float64)
            undecided = parallel.unfilled(len(batch), np.uint8)
            for here, gathered, lists in edges.parts(part, neighbors):
                parallel.run(
                    certificates.rescaling_radii, parallel.row_blocks(len(lists), 4),
                    *gathered.arrays, lists, first, length == others, levels, DEPTH, bounds[here],
                    radii[here], undecided[here],
                    n_threads=sample.n_threads,
                )  # fmt: skip
            radius[batch] = radii
            again = (undecided > 0) & (length < longest)
            batch, bounds, first, length = batch[again], bounds[again], length, length * _GROWTH
        if progress is not None:
            progress(min(start + batch_rows, n), n)
    return radius
