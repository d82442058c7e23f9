"""Rescalings that take a nearest neighbour away, found by attack: facts, each with its witness."""

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.auditing import certificates
from fastcos.kernels import attacks

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# rivals that are helped one at a time, and how many of the nearest items vote on whether it worked
_RIVALS, N_LISTED = 1, 48
_LEVEL_STEP = 0.03


class Attack(NamedTuple):
    """For every edge, a rescaling under which the neighbour is not among the k nearest.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Neighbours by falling cosine; equal ones by lower index.
    radius : ndarray (n, k), float64
        The least condition at which a loss was found; inf where none was found. NaN where the item
        or the neighbour is a zero row.
    rescaling : ndarray (n, k, d), float64
        The diagonal of that D: among the rows of items / D the neighbour is not one of the k
        nearest. Ones where no loss was found.
    """

    indices: Integers
    radius: Floats
    rescaling: Floats


def vertex_attack(
    items: Any,
    k: int = 10,
    condition: float = 2.0,
    *,
    rows: Any = None,
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
) -> Attack:
    """Search, for every neighbour, a rescaling of small condition that takes it away.

    The other side of ``certified_neighbors(..., family="rescaling")``: the condition at which an
    edge can first be lost is between the two radii. That nothing is found proves nothing.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings.
    k : int
        Neighbours per item, from 1 to p - 1.
    condition : float
        Largest entry of D over its smallest, at most.
    rows : array_like, optional
        A mask (p,) or item numbers: only their neighbours are attacked. Default: all. The answer
        holds k d numbers per row.
    n_threads : int, optional
        Default: the setting ``num_threads``.
    progress : callable, optional
        Called as progress(done, total) with numbers of rows.

    Returns
    -------
    Attack
        indices, radius and rescaling; one row per item, or per one of rows, rising.

    Raises
    ------
    ValueError
        NaN or infinity; k, condition or rows out of range.

    Notes
    -----
    Random rescalings attack weakly: almost all neighbours survive them. Here each dimension is
    given all the weight there is, or none, by the sign of the derivative of z(item, rival) -
    z(item, neighbour) in its weight; and the point where the refined certificate fails is tried.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import vertex_attack
    >>> items = np.array([[1.0, 0.0, 0.1], [1.0, 0.3, 0.0], [1.0, 0.0, 0.6], [0.0, 1.0, 1.0]])
    >>> found = vertex_attack(items, k=1, condition=3.0, rows=[0])
    >>> round(float(found.radius[0, 0]), 1), found.rescaling[0, 0].round(2)
    (1.5, array([1.  , 0.65, 1.  ]))
    """
    side, k, condition = certificates.as_edges(items, k, condition, rows)
    neighbors = certificates.nearest(side, min(len(side.items) - 1, k + N_LISTED), n_threads)
    _, floors = certificates.linear_radii(side, neighbors.indices, k, n_threads)
    levels = certificates.levels_up_to(condition, _LEVEL_STEP)
    return attack(side, neighbors.indices, floors, levels, n_threads, progress)


def attack(
    side: certificates.Side,
    neighbors: Integers,
    floors: Floats,
    levels: Floats,
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
) -> Attack:
    """Attack the first k neighbours of each list, k = floors.shape[1], above known safe floors.

    Radii are among the rising levels.
    """
    n, k = floors.shape
    d = side.items.shape[1]
    radius, weights = (
        parallel.unfilled((n, k), np.float64),
        parallel.unfilled((n, k, d), np.float64),
    )
    told = None
    for part, some, lists in certificates.parts(side, validation.read_only(neighbors)):
        if progress is not None:
            told = functools.partial(_shifted, progress, part.start, n)
        parallel.run(
            attacks.attacked_radii, parallel.row_blocks(len(lists), 4), *some, lists,
            _RIVALS, validation.read_only(floors[part]), validation.read_only(levels),
            certificates.DEPTH, radius[part], weights[part],
            n_threads=n_threads, progress=told,
        )  # fmt: skip
    return Attack(neighbors[:, :k].copy(), radius, weights**-0.5)


def _shifted(progress: parallel.Progress, first: int, n: int, done: int, total: int) -> None:
    progress(first + done, n)
