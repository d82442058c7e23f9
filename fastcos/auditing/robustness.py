"""The robustness curve: bounds on the share of surviving neighbours, for several condition numbers.

A neighbour survives a map if it is still among the k nearest items after the map has been applied
to all items.
"""

import numpy as np

from fastcos import validation
from fastcos.auditing import attacks, certificates, neighbor_edges
from fastcos.auditing.audit_records import RobustnessPoint
from fastcos.auditing.worst_rescaling import MapSearch
from fastcos.validation import Floats

# The robustness curve is computed at these condition numbers. Most of them are near 1, because most
# neighbours are lost even at such low condition numbers. The table in docs/howto/audit.md must list
# the same condition numbers as CONDITIONS.
CONDITIONS = (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 1.7, 2.0)


def robustness_curve(
    sample: neighbor_edges.ItemRows,
    linear: Floats,
    k: int,
    condition: float,
    generator: np.random.Generator,
) -> tuple[RobustnessPoint, ...]:
    """Return the points of the robustness curve, in ascending order of the condition number.

    There is one point for ``condition``, and one point for each other number in CONDITIONS.
    ``sample`` contains all items, and the row numbers of the sampled items. Under rescalings, only
    the edges of the sampled items are certified and attacked. For each edge of each item,
    ``linear`` (p, k) contains the certified radius under linear maps. ``generator`` draws the
    samples and the starting points of the map search, and also the random rescalings.
    """
    conditions = np.array(sorted({*CONDITIONS, condition}))
    # The certified radius of an edge is one of ``levels``. An edge counts as certified at a
    # condition number only if its certified radius is larger than this condition number. Each entry
    # of ``levels`` is therefore slightly larger than the condition number at the same index. An
    # edge counts as removed at a condition number κ if an attack has removed it with a rescaling
    # whose condition number is at most κ. The attacks therefore try exactly the numbers in
    # ``conditions``.
    levels = validation.read_only(conditions * (1 + 1e-12))
    certain = np.maximum(certificates.rescaling_radii(sample, k, levels), linear[sample.rows])
    competing = attacks.nearest_and_competing(sample, k)
    attack_radii = attacks.attack(sample, competing, certain, conditions).radius
    search = MapSearch(sample, k, generator)
    rescaling = search.worst(condition)
    linear_map = search.worst_linear(rescaling)
    other_conditions = [kappa for kappa in conditions.tolist() if kappa != condition]
    replaced, replaced_linear = (
        {
            worst_map.condition: worst_map.replaced
            for worst_map in [start, *search.along(other_conditions, start)]
        }
        for start in (rescaling, linear_map)
    )
    points = []
    worst = worst_linear = 0.0
    for kappa in conditions.tolist():
        # A map that is allowed for one condition number is also allowed for every higher condition
        # number. As the condition number rises, the largest share of neighbours that a map can
        # replace therefore never falls. Every rescaling is a linear map. At each condition number,
        # linear maps can therefore replace at least as large a share of the neighbours as
        # rescalings can.
        worst = max(worst, replaced[kappa])
        worst_linear = max(worst, worst_linear, replaced_linear[kappa])
        points.append(
            RobustnessPoint(
                condition=kappa,
                certified_linear=_share(linear, kappa),
                certified=_share(certain, kappa),
                unbroken=_share(attack_radii, kappa),
                certified_error=_error(certain, kappa, len(sample.items)),
                unbroken_error=_error(attack_radii, kappa, len(sample.items)),
                worst_rescaling=1 - worst,
                worst_linear=1 - worst_linear,
                random_rescaling=1 - search.random(kappa),
            )
        )
    return tuple(points)


def _share(radius: Floats, condition: float) -> float:
    """Return the share of edges whose radius exceeds ``condition``.

    Edges of zero rows, whose radius is NaN, are left out.
    """
    edge_radii = radius[~np.isnan(radius)]
    return float((edge_radii > condition).mean()) if len(edge_radii) else 0.0


def _error(radius: Floats, condition: float, population: int) -> float:
    """Return the standard error of the result of ``_share`` for a sample of rows."""
    n_edges = (~np.isnan(radius)).sum(axis=1)
    rows = n_edges > 0
    return neighbor_edges.standard_error(
        (radius > condition)[rows].sum(axis=1) / n_edges[rows], population
    )
