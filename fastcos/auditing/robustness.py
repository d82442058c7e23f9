"""The robustness curve: bounds on the share of neighbours that survive rescalings, by condition."""

import numpy as np

from fastcos import validation
from fastcos.auditing import attacks, certificates, edges
from fastcos.auditing.records import RobustnessPoint
from fastcos.auditing.worst_rescaling import MapSearch
from fastcos.validation import Floats

# dense near 1, where most neighbours are lost: the table of docs/howto/audit.md
CONDITIONS = (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 1.7, 2.0)


def robustness_curve(
    sample: edges.ItemRows, linear: Floats, k: int, condition: float, generator: np.random.Generator
) -> tuple[RobustnessPoint, ...]:
    """The points at CONDITIONS and at condition, for the sampled rows.

    linear (p, k): radii of all edges under all linear maps. generator draws the items of the
    search for the worst single maps.
    """
    conditions = np.array(sorted({*CONDITIONS, condition}))
    # a certified radius must exceed its condition; the radius of an attack may equal it
    levels = validation.read_only(conditions * (1 + 1e-12))
    certain = np.maximum(certificates.rescaling_radii(sample, k, levels), linear[sample.rows])
    competing = attacks.nearest_and_competing(sample, k)
    broken = attacks.attack(sample, competing, certain, conditions).radius
    search = MapSearch(sample, k, generator)
    single = search.worst(condition)
    linear_map = search.worst_linear(single)
    others = [kappa for kappa in conditions.tolist() if kappa != condition]
    singles, linears = (
        {point.condition: point.replaced for point in [start, *search.along(others, start)]}
        for start in (single, linear_map)
    )
    points = []
    worst = worst_linear = 0.0
    for kappa in conditions.tolist():
        # a map of a lower condition is one of a higher condition too
        worst = max(worst, singles[kappa])
        worst_linear = max(worst, worst_linear, linears[kappa])
        points.append(
            RobustnessPoint(
                condition=kappa,
                certified_linear=_share(linear, kappa),
                certified=_share(certain, kappa),
                unbroken=_share(broken, kappa),
                certified_error=_error(certain, kappa, len(sample.items)),
                unbroken_error=_error(broken, kappa, len(sample.items)),
                worst_rescaling=1 - worst,
                worst_linear=1 - worst_linear,
                random_rescaling=1 - search.random(kappa),
            )
        )
    return tuple(points)


def _share(radius: Floats, condition: float) -> float:
    """Share of the edges with a radius above the condition; a NaN radius is no edge."""
    known = radius[~np.isnan(radius)]
    return float((known > condition).mean()) if len(known) else 0.0


def _error(radius: Floats, condition: float, population: int) -> float:
    """Standard error of that share, over rows that have an edge."""
    n_edges = (~np.isnan(radius)).sum(axis=1)
    rows = n_edges > 0
    return edges.standard_error((radius > condition)[rows].sum(axis=1) / n_edges[rows], population)
