"""Distances between queries and neighbours, computed from the differences of their rows.

The formulas 1 - cosine and |x|^2 + |y|^2 - 2 x'y lose all significant digits if x and y are nearly
equal. For example, if the cosine distance of two rows is 5e-9, their cosine in float32 is 1, and
the first formula gives the distance 0.
"""

import numpy as np

from fastcos import validation
from fastcos.search.index import SimilarityIndex
from fastcos.similarity.row_transforms import unit_rows
from fastcos.validation import Floats, Integers

# The measures for which distances can be computed. A cosine is 1 minus a distance, and a
# neg_euclidean score is minus a distance.
MEASURES = ("cosine", "neg_euclidean")
# The number of entries in one block of differences between rows (4 MiB of float64).
_ENTRIES_AT_ONCE = 1 << 19


def distances_of(index: SimilarityIndex, rows: validation.Rows, positions: Integers) -> Floats:
    """Return the float64 distance (n, k) between each row (n, d) and each of its k items.

    ``positions`` (n, k) contains the positions of the k items of each row. If the measure of the
    index is "neg_euclidean", the distance is the Euclidean distance. If the measure is cosine, the
    distance is 1 - cosine, computed as half the squared Euclidean distance of the two unit rows.
    The cosine distance of a zero row to every row is 1. The id of every item of the index must be
    the position of the item.
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
            # The differences are scaled so that their squares neither overflow nor underflow. The
            # factor is a power of two, so that scaling causes no rounding error.
            exponents = np.frexp(np.abs(differences).max(axis=2))[1]
            scaled_differences = np.ldexp(differences, -exponents[:, :, None])
            scaled_distances = np.sqrt(np.square(scaled_differences).sum(axis=2))
            distances[block] = np.ldexp(scaled_distances, exponents)
    return distances
