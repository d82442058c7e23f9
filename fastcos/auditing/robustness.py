"""The robustness curve: bounds on the share of neighbours that survive rescalings, by condition."""

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.auditing import attacks, certificates, edges
from fastcos.auditing.records import RobustnessPoint
from fastcos.neighbors.index import SimilarityIndex
from fastcos.validation import Floats

# dense near 1, where most neighbours are lost: the table of docs/howto/audit.md
CONDITIONS = (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 1.7, 2.0)


def robustness_curve(
    sample: edges.ItemRows,
    linear: Floats,
    k: int,
    condition: float,
    n_threads: int | None = None,
) -> tuple[RobustnessPoint, ...]:
    """The points at CONDITIONS and at condition, for the sampled rows.

    linear (p, k): radii of all edges under all linear maps.
    """
    conditions = np.array(sorted({*CONDITIONS, condition}))
    index = SimilarityIndex(n_threads=n_threads).fit(sample.items)
    # a certified radius must exceed its condition; the radius of an attack may equal it
    levels = validation.read_only(conditions * (1 + 1e-12))
    certain = certificates.rescaling_radii(sample, index, k, levels, n_threads)
    certain = np.maximum(certain, linear[sample.rows])
    length = min(len(sample.items) - 1, k + attacks.N_LISTED)
    listed = edges.nearest(sample, length, n_threads, index=index).indices
    broken = attacks.attack(sample, listed, certain, conditions, n_threads).radius
    points = []
    for kappa in conditions.tolist():
        shares = [_share(radius > kappa, radius) for radius in (linear, certain, broken)]
        errors = [
            standard_error(_shares_by_row(radius > kappa, radius), len(sample.items))
            for radius in (certain, broken)
        ]
        points.append(RobustnessPoint(kappa, *shares, *errors))
    return tuple(points)


def standard_error(values: Floats, population: int) -> float:
    """Standard error of the mean of a sample drawn without replacement; 0 for all of them."""
    n = len(values)
    if n < 2 or n >= population:
        return 0.0
    return float(values.std(ddof=1) * np.sqrt((1 - n / population) / n))


def _share(holds: npt.NDArray[np.bool_], radius: Floats) -> float:
    """Share of the edges for which it holds; a NaN radius is no edge."""
    edges = ~np.isnan(radius)
    return float(holds[edges].mean()) if edges.any() else 0.0


def _shares_by_row(holds: npt.NDArray[np.bool_], radius: Floats) -> Floats:
    """The share of each row that has an edge."""
    edges = ~np.isnan(radius)
    rows = edges.any(axis=1)
    shares: Floats = (holds & edges)[rows].sum(axis=1) / edges[rows].sum(axis=1)
    return shares
