"""How many neighbours rescalings can take away, as a bracket over their condition."""

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.auditing import attacks, certificates
from fastcos.auditing.report import Floats, Survival
from fastcos.neighbors.index import SimilarityIndex

# conditions at which the card tells what survives, besides the one asked for
CONDITIONS = (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 1.7, 2.0)


def survival(
    side: certificates.Side, linear: Floats, k: int, condition: float, n_threads: int | None = None
) -> tuple[Survival, ...]:
    """The bracket over CONDITIONS and the one asked for, on the rows of side.

    linear (p, k): radii of all edges under all linear maps.
    """
    conditions = np.array(sorted({*CONDITIONS, condition}))
    index = SimilarityIndex(n_threads=n_threads).fit(side.items)
    # a certified radius is to exceed its condition, the radius of a loss is not
    levels = validation.read_only(conditions * (1 + 1e-12))
    certain = certificates.rescaling_radii(side, index, k, levels, n_threads)
    certain = np.maximum(certain, linear[side.rows])
    length = min(len(side.items) - 1, k + attacks.N_LISTED)
    listed = certificates.nearest_of(index, side, length, n_threads).indices
    broken = attacks.attack(side, listed, certain, conditions, n_threads).radius
    found = []
    for kappa in conditions.tolist():
        everywhere = _share(linear > kappa, linear)
        low, high = (_share(radius > kappa, radius) for radius in (certain, broken))
        errors = (
            standard_error(_by_row(radius > kappa, radius), len(side.items))
            for radius in (certain, broken)
        )
        found.append(Survival(kappa, everywhere, low, high, *errors))
    return tuple(found)


def standard_error(values: Floats, population: int) -> float:
    """Standard error of the mean of values drawn without replacement; 0 where all were."""
    n = len(values)
    if n < 2 or n >= population:
        return 0.0
    return float(values.std(ddof=1) * np.sqrt((1 - n / population) / n))


def _share(claims: npt.NDArray[np.bool_], radius: Floats) -> float:
    edges = ~np.isnan(radius)
    return float(claims[edges].mean()) if edges.any() else 0.0


def _by_row(claims: npt.NDArray[np.bool_], radius: Floats) -> Floats:
    """Share of the claims that are true, of every row with an edge."""
    edges = ~np.isnan(radius)
    kept = edges.any(axis=1)
    shares: Floats = (claims & edges)[kept].sum(axis=1) / edges[kept].sum(axis=1)
    return shares
