"""Products of tall matrices with few columns: the same bits on any number of threads."""

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import tall_skinny
from fastcos.linalg.sparse_operator import Matrix, kernel_body

# rows whose products are added one by one; a sum of such sums has at most so many terms
_ROWS_OF_A_PART = 512
_MOST_PARTS = 64
# columns are multiplied by tiles of so many
TILE = tall_skinny.TILE


def cross(
    B: Matrix, Z: Matrix, *, columns: int | None = None, n_threads: int | None = None
) -> npt.NDArray[np.float64]:
    """Return B'Z, of the first columns of B only if their number is given.

    B (p, m) and Z (p, w) are of one type, in which parts of the rows are summed; the parts are
    added in float64.
    """
    m = B.shape[1] if columns is None else columns
    tiled = -(-m // TILE) * TILE
    if tiled > B.shape[1]:
        B = np.pad(B, ((0, 0), (0, tiled - B.shape[1])))
    cuts = parallel.row_blocks(len(Z), max(_ROWS_OF_A_PART, -(-len(Z) // _MOST_PARTS)))
    sums = np.empty((len(cuts) - 1, tiled, Z.shape[1]), Z.dtype)
    arrays = validation.read_only(cuts), validation.read_only(B), validation.read_only(Z), sums
    parts = parallel.row_blocks(len(sums), 1)
    parallel.run(kernel_body(tall_skinny, "cross_parts"), parts, *arrays, n_threads=n_threads)
    total: npt.NDArray[np.float64] = sums[:, :m].sum(axis=0, dtype=np.float64)
    return total


def add_product(B: Matrix, C: Matrix, Z: Matrix, *, n_threads: int | None = None) -> None:
    """Z += B C in place, for B (p, at least m), C (m, w) and Z (p, w); computed in Z's type."""
    C = np.ascontiguousarray(C, dtype=Z.dtype)
    arrays = validation.read_only(B), validation.read_only(C), Z
    cuts = parallel.row_blocks(len(Z), _ROWS_OF_A_PART)
    parallel.run(kernel_body(tall_skinny, "add_product_rows"), cuts, *arrays, n_threads=n_threads)


def product(B: Matrix, C: Matrix, *, n_threads: int | None = None) -> Matrix:
    """Return B[:, :m] C for C (m, w), in B's type."""
    Z = np.zeros((len(B), C.shape[1]), B.dtype)
    add_product(B, C, Z, n_threads=n_threads)
    return Z
