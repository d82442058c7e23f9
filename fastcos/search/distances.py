"""Distances of neighbours that a search has found, from differences of their rows.

1 - cosine and |x|^2 + |y|^2 - 2 <x, y> cancel for near rows: of two rows at a cosine distance of
5e-9 a float32 cosine is 1, and the distance would be 0.
"""

import numpy as np

from fastcos import validation
from fastcos.search.index import SimilarityIndex
from fastcos.similarity.row_transforms import unit_rows
from fastcos.validation import Floats, Integers

# measures whose scores are distances, up to a sign and a constant
MEASURES = ("cosine", "neg_euclidean")
# numbers of the rows of neighbours that are compared at once: 32 MiB in float64
_NUMBERS_AT_ONCE = 1 << 22


def distances_of(index: SimilarityIndex, rows: validation.Rows, positions: Integers) -> Floats:
    """Distances (n, k), float64, of rows (n, d) to the items at positions (n, k) of an index.

    Cosine: half the squared distance of the unit rows, which is 1 - cosine; 1 where a row is zero.
    neg_euclidean: the Euclidean distance. The ids of the index must be its positions.
    """
    n, k = positions.shape
    found = np.empty((n, k))
    size = max(1, _NUMBERS_AT_ONCE // (k * rows.shape[1]))
    is_cosine = index.measure == "cosine"
    for first in range(0, n, size):
        part = slice(first, min(n, first + size))
        items, places = np.unique(positions[part], return_inverse=True)
        right = index.vectors_of(items)
        left = unit_rows(rows[part]) if is_cosine else rows[part].astype(np.float64)
        right = unit_rows(validation.read_only(right)) if is_cosine else right.astype(np.float64)
        near = right[places.reshape(len(left), k)]
        differences = near - left[:, None]
        if is_cosine:
            found[part] = 0.5 * np.square(differences).sum(axis=2)
            has_directions = np.asarray(left.any(axis=1))[:, None] & np.asarray(near.any(axis=2))
            found[part][~has_directions] = 1.0
        else:  # a power of two: squares neither overflow nor vanish, and no bit is lost
            exponents = np.frexp(np.abs(differences).max(axis=2))[1]
            squares = np.square(np.ldexp(differences, -exponents[:, :, None])).sum(axis=2)
            found[part] = np.ldexp(np.sqrt(squares), exponents)
    return found
