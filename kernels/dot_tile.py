"""Float64 dot products of 6 rows of one matrix with 32 rows of another; the products form a tile.

The second matrix is packed in panels of 32 rows; the rows of a panel form the columns of a tile.
Every product and every sum is rounded separately, in the order of the dimensions, so results are
bit-for-bit identical to the results of a plain loop on every CPU.
"""

import numpy as np

from .jit import borrowing_kernel, kernel
from .simd.dot_tile import COLUMNS, ROWS, WIDTH, dot_products


@borrowing_kernel
def dot_tile(rows, first_row, panels, panel, tile):
    """Set tile[r, c] to the dot product of row first_row + r with row c of a packed panel.

    `rows` (n, d) is float64 in C order, and `panels` (P, d, 32) float64 is the output of pack_rows.
    `panel` is the number of the panel, and `tile` (6, 32) float64 is the output. If there is no row
    first_row + r, the last row is read instead. The kernel performs 192 d multiply-adds.
    """
    for column in range(0, COLUMNS, WIDTH):
        dot_products(rows, first_row, panels, panel, column, tile)


@borrowing_kernel
def pack_rows(lo, hi, rows, panels):
    """Pack rows in panels: set panels[q, :, c] to rows[32 q + c], for the panels q from lo to hi.

    `rows` (n, d) is float64. The output `panels` (ceil(n / 32), d, 32) is float64 and holds zeros
    where the last panel has no row. The kernel copies 32 (hi - lo) d numbers.
    """
    for panel in range(lo, hi):
        for column in range(COLUMNS):
            row = panel * COLUMNS + column
            for dimension in range(rows.shape[1]):
                inside = row < rows.shape[0]
                panels[panel, dimension, column] = rows[row, dimension] if inside else 0.0


@kernel
def products_rows(lo, hi, rows, panels, out):
    """Set out[i, j] to the dot product of rows[i] and packed row j, for i from lo to hi and all j.

    `rows` (n, d) and `panels` (ceil(m / 32), d, 32) are float64, and `out` (n, m) float64 is the
    output. The kernel takes O((hi - lo) m d) time.
    """
    tile = np.empty((ROWS, COLUMNS))
    for panel in range(panels.shape[0]):
        first_column = panel * COLUMNS
        width = min(COLUMNS, out.shape[1] - first_column)
        for first_row in range(lo, hi, ROWS):
            dot_tile(rows, first_row, panels, panel, tile)
            for r in range(min(ROWS, hi - first_row)):
                for c in range(width):
                    out[first_row + r, first_column + c] = tile[r, c]
