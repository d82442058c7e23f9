"""Attacks: searches for rescalings that remove a neighbour from the k nearest items.

A successful attack is a counterexample that anybody can check, because its result contains the
rescaling that removes the neighbour.
"""

from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.auditing import certificates, neighbor_edges
from fastcos.kernels import attacks, records
from fastcos.reports import as_table
from fastcos.similarity.cosine_bounds import CONDITION
from fastcos.validation import Floats, Integers

# An attack tries to remove one neighbour from the list of an item. The attack first looks for
# dimension weights that move the next k entries of the list closer to the item. If these weights do
# not remove the neighbour, the attack tries single competing items, at most _COMPETITORS of them.
# For each competing item, it looks for weights that move this competing item closer.
_COMPETITORS = 1
# The list of an item contains its k nearest neighbours and the next N_LISTED items. An attack has
# removed a neighbour of an item if at least k other entries of the item's list are now nearer to
# the item than this neighbour.
N_LISTED = 48
# An attack tries only an ascending list of condition numbers, which are called levels. The
# logarithm of each level is exp(_LEVEL_STEP) times the logarithm of the previous level, and thus
# about 3 % larger. Rounding a radius up to a level therefore raises the logarithm of the radius by
# about 3 % at most.
_LEVEL_STEP = 0.03


@as_table
class Attack(NamedTuple):
    """The result of attacks: for each neighbour of an item, a rescaling that removes it.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Neighbours in descending order of the cosine. Neighbours with equal cosines are in ascending
        order of the index.
    radius : ndarray (n, k), float64
        The lowest condition number at which the attack found a rescaling that removes the neighbour
        from the k nearest items. The radius is inf if the attack found no rescaling that removes
        the neighbour. The radius is NaN if the item or the neighbour is a zero row.
    rescaling : ndarray (n, k, d), float64
        The diagonal of a rescaling D that removes the neighbour: among the rows of ``items / D``,
        the neighbour is not one of the k nearest. All entries of the diagonal are 1 if the attack
        found no rescaling that removes the neighbour.
    """

    indices: Integers
    radius: Floats
    rescaling: Floats


def vertex_attack(
    items: Any,
    k: int = 10,
    condition: float = CONDITION,
    *,
    rows: Any = None,
    n_threads: int | None = None,
    working_memory: float | None = None,
    progress: parallel.Progress | None = None,
) -> Attack:
    """For each nearest neighbour of an item, search for a rescaling that removes the neighbour.

    The attack is the counterpart of ``certified_neighbors(..., family="rescaling")``. Consider the
    lowest condition number of a rescaling that removes a neighbour. This condition number lies
    between two radii: the radius of the certificate and the radius of the attack. If the attack
    finds no rescaling that removes a neighbour, there may still be one.

    Parameters
    ----------
    items, k, condition, rows, n_threads, working_memory, progress
        As in :func:`fastcos.certified_neighbors`. The array ``rescaling`` of the result takes
        ``8 * k * d`` bytes per row, where d is the number of dimensions.

    Returns
    -------
    Attack
        The arrays ``indices``, ``radius`` and ``rescaling``, with one row per item. If ``rows`` is
        passed, the arrays contain only the items in ``rows``, in ascending order.

    Notes
    -----
    Random rescalings are weak attacks, because they remove almost no neighbours. ``vertex_attack``
    therefore gives each dimension either the largest or the smallest weight. Let z be Fisher's z of
    a cosine. Let δ be the difference z(item, competitor) - z(item, neighbour). If a larger weight
    of a dimension increases δ, the dimension gets the largest weight; otherwise it gets the
    smallest weight. The certificate of ``family="rescaling"`` tries to prove that the neighbour
    stays nearer than each competitor. If this proof fails, the certificate provides weights that
    may make the competitor nearer than the neighbour. The attack also tries these weights.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import vertex_attack
    >>> items = np.array([[1.0, 0.0, 0.1], [1.0, 0.3, 0.0], [1.0, 0.0, 0.6], [0.0, 1.0, 1.0]])
    >>> attack = vertex_attack(items, k=1, condition=3.0, rows=[0])
    >>> round(float(attack.radius[0, 0]), 1), attack.rescaling[0, 0].round(2)
    (1.5, array([1.  , 0.65, 1.  ]))
    """
    validation.check_progress(progress)
    sample, k, condition = neighbor_edges.as_edges(
        items, k, condition, rows, working_memory, n_threads
    )
    neighbors = nearest_and_competing(sample, k)
    certain = certificates.linear_radii(sample, neighbors, k)
    levels = certificates.levels_up_to(condition, _LEVEL_STEP)
    return attack(sample, neighbors, certain, levels, progress)


def nearest_and_competing(sample: neighbor_edges.ItemRows, k: int) -> Integers:
    """For each row, return the k nearest items and then the items that may replace them."""
    return neighbor_edges.nearest_items(sample, min(len(sample.items) - 1, k + N_LISTED)).indices


def attack(
    sample: neighbor_edges.ItemRows,
    neighbors: Integers,
    certain: Floats,
    levels: Floats,
    progress: parallel.Progress | None = None,
) -> Attack:
    """For each of the first k neighbours in a list, return a rescaling that removes the neighbour.

    ``certain`` (n, k) contains the certified radius of each neighbour. ``levels`` contains the
    condition numbers to try, in ascending order. For each neighbour, the function tries only the
    levels above the neighbour's certified radius. A radius in the result is one of the levels, inf
    or NaN.
    """
    n, k = certain.shape
    radius = parallel.unfilled((n, k), np.float64)
    weights = parallel.unfilled((n, k, sample.items.shape[1]), np.float64)
    for part, gathered, lists in neighbor_edges.parts(sample, validation.read_only(neighbors)):

        def report_part(done: int, _: int, first: int = part.start) -> None:
            if progress is not None:
                progress(first + done, n)

        parallel.run(
            attacks.attacked_radii, parallel.row_blocks(len(lists), 4), gathered.arrays, lists,
            records.Attacks(
                _COMPETITORS, validation.read_only(certain[part]), validation.read_only(levels),
                certificates.DEPTH,
            ),
            radius[part], weights[part],
            n_threads=sample.n_threads,
            progress=None if progress is None else report_part,
        )  # fmt: skip
    return Attack(neighbors[:, :k].copy(), radius, weights**-0.5)
