"""A shift of the dense screen for directions that crowd: cosines near 1 need finer differences.

Rows with their mean taken off are often short and then all look the same way, against the mean.
Their cosines differ by less than the screen's error, a part of |a'| |b'| = 1, and nearly all pairs
would be scored in float64: 60 times the time of the rows as given. For unit rows and a common mu

    <a', b'> = <a' - mu, b' - mu> + <mu, b' - mu> + <a', mu>,

so the screen may rank the first two terms: an inner product of rows that are short where they crowd
round mu, and its error with them, and an offset of the item. The third is the query's intercept.
"""

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import packing

Floats = npt.NDArray[np.float64]

NONE = validation.read_only(np.zeros(0))
_SAMPLE = 128
# rows closer than this crowd: the screen's error is about 0.02 of a cosine
_CLOSE = 0.98
# the others' error is up to twice as large under a shift
_LEAST_SHARE = 0.15
_FEWEST = 256


def shift_for(given: validation.Rows, factors: Floats, candidates: npt.NDArray[np.int64]) -> Floats:
    """Direction (d,) round which many of the unit rows factors * given crowd; empty if none.

    Judged by a sample of at most 128 of the candidates. O(128^2 d), and nothing for fewer than 256.
    """
    n = len(candidates)
    if n < _FEWEST:
        return NONE
    # steps of the golden ratio meet no period of the rows
    places = np.arange(min(_SAMPLE, n // 8)) * 0.6180339887498949 % 1.0
    some = candidates[(places * n).astype(np.int64)]
    sample = given[some] * factors[some, None]
    # no BLAS: its idle threads spin for 30 ms on the cores of the search
    close = np.einsum("ij,kj->ik", sample, sample) > _CLOSE
    sizes = close.sum(axis=1)
    if sizes.max() < _LEAST_SHARE * len(some):
        return NONE
    # towards the densest place: the half nearest to their mean, again and again
    near = sample[close[np.argmax(sizes)]]
    while len(near) > 8:
        distances = np.square(near - near.mean(axis=0)).sum(axis=1)
        near = near[np.argsort(distances, kind="stable")[: -(-len(near) // 2)]]
    mean = near.mean(axis=0)
    return validation.read_only(mean / np.sqrt(mean @ mean))


def products(
    given: validation.Rows, factors: Floats, shift: Floats, n_threads: int | None
) -> Floats:
    """<shift, factors row - shift> (n,) of every row. O(n d)."""
    found = parallel.unfilled(len(given), np.float64)
    cuts = parallel.row_blocks(len(given), max(1, 1_000_000 // given.shape[1]))
    parallel.run(
        packing.shift_products, cuts, given, validation.read_only(factors), shift, found,
        n_threads=n_threads,
    )  # fmt: skip
    return validation.read_only(found)


def of_queries(given: validation.Rows, factors: Floats, shift: Floats) -> tuple[Floats, float]:
    """Intercepts -<a', mu> (n,), and what float64 may round in a key and its terms.

    Those are the key, two products and the shifted rows: sums of depth terms whose sizes sum to at
    most 2 each; and the square of mu is 1 only within such a rounding.
    """
    intercepts = -1.0 - products(given, factors, shift, 1)
    return intercepts, 16.0 * (len(shift) + 16) * 2.0**-53
