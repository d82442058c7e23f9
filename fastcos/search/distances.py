"""Distances of neighbours that a search returned, computed from differences of their rows.

The formulas 1 - cosine and |x|^2 + |y|^2 - 2 <x, y> lose all digits for rows that are near each
other. For example, two rows at a cosine distance of 5e-9 have a float32 cosine of 1, from which the
distance would be computed as 0.
"""

import numpy as np

from fastcos import validation
from fastcos.search.index import SimilarityIndex
from fastcos.similarity.row_transforms import unit_rows
from fastcos.validation import Floats, Integers

# The measures whose scores are distances, up to a sign and a constant.
MEASURES = ("cosine", "neg_euclidean")
# The number of entries of rows that are compared at once; they take 4 MiB in float64.
_ENTRIES_AT_ONCE = 1 << 19


def distances_of(index: SimilarityIndex, rows: validation.Rows, positions: Integers) -> Floats:
    """Return the float64 distances (n, k) of rows (n, d) to the items at positions (n, k).

    If the measure is cosine, the distance of two rows is half the squared distance of their unit
    rows, which is 1 - cosine, or 1 if a row is zero. If the measure is neg_euclidean, the distance
    is the Euclidean distance. The ids of the index must be its positions.
    """
    n, k = positions.shape
    distances = np.empty((n, k))
    size = max(1, _ENTRIES_AT_ONCE // (k * rows.shape[1]))
    is_cosine = index.measure == "cosine"
    for first in range(0, n, size):
        block = slice(first, min(n, first + size))
        items, place_of_neighbor = np.unique(positions[block], return_inverse=True)
        item_rows, query_rows = index.vectors_of(items), rows[block]
        if is_cosine:
            item_rows = unit_rows(validation.read_only(item_rows))
            query_rows = unit_rows(query_rows)
        else:
            item_rows, query_rows = item_rows.astype(np.float64), query_rows.astype(np.float64)
        neighbor_rows = item_rows[place_of_neighbor.reshape(len(query_rows), k)]
        differences = neighbor_rows - query_rows[:, None]
        if is_cosine:
            distances[block] = 0.5 * np.square(differences).sum(axis=2)
            query_is_zero = ~np.asarray(query_rows.any(axis=1))
            has_no_direction = query_is_zero[:, None] | ~np.asarray(neighbor_rows.any(axis=2))
            distances[block][has_no_direction] = 1.0
        else:
            # Scaling by a power of two loses no bit, and keeps squares from overflow and underflow.
            exponents = np.frexp(np.abs(differences).max(axis=2))[1]
            scaled_differences = np.ldexp(differences, -exponents[:, :, None])
            scaled_distances = np.sqrt(np.square(scaled_differences).sum(axis=2))
            distances[block] = np.ldexp(scaled_distances, exponents)
    return distances
