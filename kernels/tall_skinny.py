"""The operations B'Z and Z + B C for a basis B with many rows and few columns.

BLAS computes B'Z and Z + B C as fast as the kernels of this module. However, the idle threads of
BLAS keep cores busy for milliseconds after each call, although the next sparse product needs these
cores. Moreover, the results of BLAS depend on the number of threads. The kernels keep tiles of 8 x
16 sums in registers (``simd.tall_skinny``). Every product and every sum is rounded separately, so
on every CPU, results are bit-for-bit identical to those of the plain loops (``*_plain``).
"""

from .jit import kernel
from .simd.tall_skinny import (
    LANES,
    TILE,
    add_1_1,
    add_1_16,
    add_8_1,
    add_8_16,
    cross_1,
    cross_16,
)

# One pass reads this many rows of the basis, which stay in the first-level cache. With 256 rows
# instead of 64, the product takes twice as long, because hardware prefetching fails.
_ROWS = 64


@kernel
def cross_parts(lo, hi, boundaries, B, Z, C):
    """Set C[part] to B'Z, for the rows of the part and the first m columns of B.

    The kernel processes the parts lo to hi. `boundaries` (parts + 1,) int64 holds the row at which
    each part begins. `B` (p, c), `Z` (p, w) and the output `C` (parts, m, w) have one float type
    and C order. The number c must be at least m', where m' is m rounded up to a multiple of 8. The
    kernel takes O(rows m w) time.
    """
    width = Z.shape[1]
    for part in range(lo, hi):
        target = C[part]
        target[:] = 0
        for first in range(boundaries[part], boundaries[part + 1], _ROWS):
            last = min(first + _ROWS, boundaries[part + 1])
            for j in range(0, C.shape[1], TILE):
                column = 0
                while column + LANES <= width:
                    cross_16(B, first, last, j, Z, column, target)
                    column += LANES
                while column < width:
                    cross_1(B, first, last, j, Z, column, target)
                    column += 1


@kernel
def cross_parts_plain(lo, hi, boundaries, B, Z, C):
    """Compute the same result as cross_parts with plain loops instead of vector code."""
    for part in range(lo, hi):
        C[part] = 0
        for i in range(boundaries[part], boundaries[part + 1]):
            for j in range(C.shape[1]):
                for c in range(Z.shape[1]):
                    C[part, j, c] += B[i, j] * Z[i, c]


@kernel
def add_product_rows(lo, hi, B, C, Z):
    """Add the product B[i, :m] C to Z[i], for rows lo to hi.

    `B` (p, c), `C` (m, w) and `Z` (p, w) have one float type and C order, and c is at least m. `Z`
    is changed in place. The kernel takes O((hi - lo) m w) time.
    """
    m, width = C.shape
    end_of_tiles = lo + (hi - lo) // TILE * TILE
    column = 0
    while column + LANES <= width:
        for i in range(lo, end_of_tiles, TILE):
            add_8_16(B, m, C, i, Z, column)
        for i in range(end_of_tiles, hi):
            add_1_16(B, m, C, i, Z, column)
        column += LANES
    while column < width:
        for i in range(lo, end_of_tiles, TILE):
            add_8_1(B, m, C, i, Z, column)
        for i in range(end_of_tiles, hi):
            add_1_1(B, m, C, i, Z, column)
        column += 1


@kernel
def add_product_rows_plain(lo, hi, B, C, Z):
    """Compute the same result as add_product_rows with plain loops instead of vector code."""
    for i in range(lo, hi):
        for j in range(C.shape[0]):
            for c in range(C.shape[1]):
                Z[i, c] += B[i, j] * C[j, c]
