"""Certificates: proofs that no map below a certain condition number removes a neighbour.

An edge is a pair of an item and one of its k nearest neighbours. The radius of an edge is a
condition number: under every map with a lower condition number, the neighbour stays among the k
nearest. The family "linear" contains every invertible map G. The radius of an edge for the family
"linear" follows from the cosines of the k + 1 nearest items. The family "rescaling" contains only
the diagonal maps D. The radius of an edge is therefore at least as large for rescalings as for all
invertible maps. To compute the radius of an edge for rescalings, the code examines the competing
items. An item m competes with the neighbour j of an item i if, under some rescaling, m may be
nearer to i than j is.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.auditing import neighbor_edges
from fastcos.kernels import certificates, records
from fastcos.reports import as_table
from fastcos.similarity.cosine_bounds import CONDITION
from fastcos.validation import Floats, Integers

# To prove that a neighbour stays nearer than a competing item, a certificate examines all possible
# ratios of the norms of the two items. If the proof fails for an interval of ratios, the
# certificate halves the interval, at most DEPTH times. A certificate examines all 2^DEPTH intervals
# only if the condition number is near the radius.
DEPTH = 6
# If a longer list of competing items could raise the radius of an edge, the list is made _GROWTH
# times as long, and the edge is examined again.
_GROWTH = 8
# A search tries only an ascending list of condition numbers, which are called levels. The logarithm
# of each level is exp(_LEVEL_STEP) times the logarithm of the previous level, and thus about 1 %
# larger. Rounding a radius down to a level therefore reduces the logarithm of the radius by at most
# 1 %.
_LEVEL_STEP = 0.01
# The logarithm of the lowest condition number that a search tries. A map with the condition number
# exp(_MIN_LOG_LEVEL) is so near to the identity that it does not change float32 rows.
_MIN_LOG_LEVEL = 1e-7


@as_table
class CertifiedNeighbors(NamedTuple):
    """Nearest neighbours of items, with a proven radius of robustness for each neighbour.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Neighbours in descending order of the cosine. Neighbours with equal cosines are in ascending
        order of the index.
    scores : ndarray (n, k), float32
        Cosines of the neighbours.
    radius : ndarray (n, k), float64
        Radius of each neighbour, at least 1. Under every map with a condition number below the
        radius, the neighbour stays among the k nearest items. The radius is inf if no map of any
        condition number removes the neighbour, and NaN if the item or the neighbour is a zero row.
    certified : ndarray (n, k), bool
        Whether the radius exceeds the argument ``condition``.
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
    """Return the k nearest neighbours by cosine, each with a proven radius of robustness.

    The radius of a neighbour is a condition number. A map of the family whose condition number is
    lower than the radius does not remove the neighbour from the k nearest items. The radius is only
    a lower bound: a map that removes the neighbour may need a larger condition number. For the
    family "rescaling", the function tests only a sequence of condition numbers; from one to the
    next, the logarithm of the condition number grows by about 1 %.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings. A zero row has no direction, so none of its neighbours is certified.
    k : int
        Number of neighbours per item, from 1 to p - 1.
    condition : float
        A neighbour is certified if it survives all maps with a condition number of at most
        ``condition``. The condition number of a linear map is its largest singular value divided by
        its smallest. The condition number of a rescaling D is its largest entry divided by its
        smallest.
    family : {"linear", "rescaling"}
        The maps against which neighbours are certified: all invertible linear maps, or rescalings.
        For "linear", the function takes as long as ``top_k`` with k + 1 neighbours. For
        "rescaling", the function takes longer and examines only condition numbers up to
        ``condition``. If a radius in the result exceeds ``condition`` by more than a rounding
        error, this radius is therefore the radius for the family "linear".
    rows : array_like, optional
        A mask (p,) or row numbers of the items whose neighbours are certified. Default: all items.

    n_threads, working_memory, progress
        As in :func:`fastcos.top_k`.

    Returns
    -------
    CertifiedNeighbors
        The arrays ``indices``, ``scores``, ``radius`` and ``certified``, with one row per item. If
        ``rows`` is passed, the arrays contain only the items in ``rows``, in ascending order.

    Raises
    ------
    ValueError
        ``items`` contains NaN or infinity; or ``k``, ``condition``, ``family`` or ``rows`` is out
        of range.

    Notes
    -----
    A linear map with the condition number κ changes Fisher's z of a cosine, z = artanh(cosine), by
    at most ln κ. Let z_ij be Fisher's z of the cosine between item i and item j. Let z_i(k+1) be
    Fisher's z of the cosine between item i and its (k + 1)-th nearest item. Under such a map,
    neighbour j stays among the k nearest items of item i if z_ij - z_i(k+1) is larger than 2 ln κ.
    For rescalings, the function tests every item m that is not one of the k nearest. The test is
    whether any rescaling can bring item m nearer to item i than neighbour j. For one fixed ratio
    between the norms of items j and m, the test is a linear programme. The function solves these
    linear programmes for the 4,096 items m that are nearest to item i. For all other items m, the
    function uses the test for linear maps: if z_ij - z_im is larger than 2 ln κ, neighbour j stays
    nearer than item m.

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
    sample, k, condition = neighbor_edges.as_edges(
        items, k, condition, rows, working_memory, n_threads
    )
    family = validation.as_choice("family", family, ("linear", "rescaling"))
    neighbors = neighbor_edges.nearest_items(
        sample, min(k + 1, len(sample.items) - 1), progress=progress
    )
    radius = linear_radii(sample, neighbors.indices, k)
    if family == "rescaling":
        # The last level is ``condition``. A neighbour counts as certified only if its radius is
        # above ``condition``. All levels are raised slightly, so that a neighbour whose radius is
        # the last level counts as certified.
        levels = validation.read_only(levels_up_to(condition, _LEVEL_STEP) * (1.0 + 1e-12))
        radius = np.maximum(radius, rescaling_radii(sample, k, levels, progress))
    indices, scores = neighbors.indices[:, :k].copy(), neighbors.scores[:, :k].copy()
    return CertifiedNeighbors(indices, scores, radius, radius > condition)


def linear_radii(sample: neighbor_edges.ItemRows, neighbors: Integers, k: int) -> Floats:
    """Return the radii (n, k) of the first k neighbours of each list for the family "linear"."""
    n, m = neighbors.shape
    fisher_z = parallel.unfilled((n, m), np.float64)
    radius = parallel.unfilled((n, k), np.float64)
    for part, gathered, lists in neighbor_edges.parts(sample, validation.read_only(neighbors)):
        # A block of rows that needs 4 million multiplications takes milliseconds, so the time for
        # scheduling the block is negligible.
        rows_per_block = max(1, 4_000_000 // (sample.items.shape[1] * m))
        parallel.run(
            certificates.linear_radii, parallel.row_blocks(len(lists), rows_per_block),
            gathered.arrays, lists, fisher_z[part], radius[part],
            n_threads=sample.n_threads,
        )  # fmt: skip
    return radius


def levels_up_to(condition: float, step: float) -> Floats:
    """Return condition numbers in ascending order; the largest is ``condition``.

    Each logarithm of a condition number is exp(``step``) times the logarithm before it.
    """
    width = np.log(condition)
    n = int(np.ceil(np.log(max(width / _MIN_LOG_LEVEL, 1.0)) / step))
    return np.append(np.exp(width * np.exp(-step * np.arange(n, 0, -1))), condition)


def rescaling_radii(
    sample: neighbor_edges.ItemRows,
    k: int,
    levels: Floats,
    progress: parallel.Progress | None = None,
    *,
    first_list: int = 48,
    longest_list: int = 4096,
    batch_rows: int = 4096,
) -> Floats:
    """Return the radii (n, k) of the k nearest neighbours for the family "rescaling".

    Each radius is either one of the ascending ``levels`` or a number that is computed from Fisher's
    z of the cosines alone. Each edge is first examined with a list of the ``first_list`` nearest
    competing items, which suffices for most edges. If a longer list could raise the radius of an
    edge, the edge is examined again with longer lists of up to ``longest_list`` items. For items
    that are not in the list, the code uses a general bound: a map with the condition number κ
    changes Fisher's z of a cosine by at most ln κ.

    The lists of ``batch_rows`` rows are in memory at the same time. With the default arguments, the
    lists take at most 128 MiB.
    """
    n, max_length = len(sample.rows), len(sample.items) - 1
    longest = min(max_length, max(longest_list, k + 1))
    radius = parallel.unfilled((n, k), np.float64)
    for start in range(0, n, batch_rows):
        batch, first, length = np.arange(start, min(start + batch_rows, n)), k, first_list + k
        # Upper bounds on the radii, computed from the items that have been examined so far.
        bounds = np.full((len(batch), k), levels[-1])
        while len(batch):
            length = min(length, longest)
            part = sample.subset(sample.rows[batch])
            neighbors = validation.read_only(neighbor_edges.nearest_items(part, length).indices)
            radii = parallel.unfilled(bounds.shape, np.float64)
            undecided = parallel.unfilled(len(batch), np.uint8)
            for span, gathered, lists in neighbor_edges.parts(part, neighbors):
                parallel.run(
                    certificates.rescaling_radii, parallel.row_blocks(len(lists), 4),
                    gathered.arrays, lists,
                    records.CertificateSearch(first, length == max_length, levels, DEPTH),
                    bounds[span], radii[span], undecided[span],
                    n_threads=sample.n_threads,
                )  # fmt: skip
            radius[batch] = radii
            is_retried = (undecided > 0) & (length < longest)
            batch, bounds = batch[is_retried], bounds[is_retried]
            first, length = length, length * _GROWTH
        if progress is not None:
            progress(min(start + batch_rows, n), n)
    return radius
