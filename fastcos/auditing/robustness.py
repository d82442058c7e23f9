"""The robustness curve: bounds on the share of neighbours that survive rescalings, by condition."""

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.auditing import attacks, certificates, edges
from fastcos.auditing.records import RobustnessPoint
from fastcos.auditing.sampling import standard_error
from fastcos.auditing.worst_rescaling import MapSearch
from fastcos.neighbors.index import SimilarityIndex
from fastcos.validation import Floats

# dense near 1, where most neighbours are lost: the table of docs/howto/audit.md
CONDITIONS = (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 1.7, 2.0)


def robustness_curve(
    sample: edges.ItemRows,
    linear: Floats,
    k: int,
    condition: float,
    generator: np.random.Generator,
    n_threads: int | None = None,
) -> tuple[RobustnessPoint, ...]:
    """The points at CONDITIONS and at condition, for the sampled rows.

    linear (p, k): radii of all edges under all linear maps. generator draws the items of the
    search for the worst single maps.
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
    search = MapSearch(sample, index, k, generator, n_threads=n_threads)
    single = search.worst(condition)
    linear_map = search.worst_linear(single)
    others = [kappa for kappa in conditions.tolist() if kappa != condition]
    singles = {one.condition: one for one in [single, *search.along(others, single)]}
    linears = {one.condition: one for one in [linear_map, *search.along(others, linear_map)]}
    points = []
    worst = worst_linear = 0.0
    for kappa in conditions.tolist():
        errors = [
            standard_error(_shares_by_row(radius > kappa, radius), len(sample.items))
            for radius in (certain, broken)
        ]
        # a map of a lower condition is one of a higher condition too
        worst = max(worst, singles[kappa].replaced)
        worst_linear = max(worst, worst_linear, linears[kappa].replaced)
        points.append(
            RobustnessPoint(
                condition=kappa,
                certified_linear=_share(linear > kappa, linear),
                certified=_share(certain > kappa, certain),
                unbroken=_share(broken > kappa, broken),
                certified_error=errors[0],
                unbroken_error=errors[1],
                worst_rescaling=1 - worst,
                worst_linear=1 - worst_linear,
                random_rescaling=1 - search.random(kappa),
            )
        )
    return tuple(points)


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
