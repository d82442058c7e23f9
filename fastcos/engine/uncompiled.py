"""The search in NumPy, bit-identical to the kernels: while these are not compiled yet.

Compiling the search takes 15 s. Until it is compiled, calls are answered here, and a process that
searches on has it compiled by another one (``background``). Where that cannot be, calls are
answered here for about as long as compiling takes: the strategy of the ski rental problem, at most
twice the cost of the better way. A thread that compiles would hold the interpreter's lock.

``search`` finds candidates by a float64 matrix product in BLAS's order of summation, with a margin,
and scores them in the order of :mod:`fastcos.kernels.pair_scores`. The margin: let u = 2^-53, x and
y rows of d entries, and g(n) = n u / (1 - n u). In any order, with or without fused operations, a
float64 inner product has an error of at most g(d) sum |x_j y_j| <= g(d) |x| |y| (Higham, Accuracy
and Stability of Numerical Algorithms, 2nd ed., section 3.1; Cauchy-Schwarz). The product of BLAS
and the exact score are both so close to the real number that they differ at most by

    dot         2 g(d) |x| |y|, and 2 u (|x| |y| + |bias|) for adding the bias;
    cosine      g(d + 2) for unit rows, g(d + 2) for the product divided by the norms. The real
                cosine lies in [-1, 1], so that clipping brings the score no farther from it;
    euclidean   (|x|^2 + |y|^2) times 2 g(d + 3) for the sum of squared differences, g(d) for the
                product, and g(d + 6) for both norms and their sum.

All are below c S, where c = 1.1 (4 d + 24) u and S is |x| max |y| + max |bias|, 1, or |x|^2 +
max |y|^2; the tenth is for the rounding of the norms and of S. Norms and biases above 2^400 and
norms below 2^-400 might overflow or underflow: there every item is a candidate. An item among the k
best has a score of at least the k-th best approximation less c S, hence an approximation of at
least that less 2 c S. The same holds for every item that ties with it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel
from fastcos.engine import background
from fastcos.kernels.jit import is_ready
from fastcos.validation import Floats, Integers

Flags = npt.NDArray[np.bool_]

# lanes of a sum in pair_scores
_LANES = 16
# norms and biases between these neither overflow nor underflow
_SMALLEST, _LARGEST = 2.0**-400, 2.0**400
# above -inf, which marks pairs that may not be found
_LEAST_SCORE = np.finfo(np.float64).min
# a pair of rows of d entries costs d + 256 units of 0.1 ns (bench: starting)
_UNITS_PER_PAIR = 256
# entries of the rows that are multiplied at once: their products stay in the cache
_ENTRIES_AT_ONCE = 1 << 17
# bytes of a pair of a block: its approximation, a copy to select from, a flag
_BYTES_PER_PAIR = 17
# bytes of a block, at most: 0.7 s for 5,000 x 64 from here on, 1.2 s with 1 MiB (bench: starting)
_BLOCK_BYTES = 1 << 25

# units that this process may still spend here, about 15 s; 0: compile at once
work_left = 150_000_000_000
# units left from which on another process compiles: calls of 0.1 s in all do not need that
_WORK_LEFT_TO_START = work_left - 1_000_000_000


def takes(kernel: Any, n_queries: int, n_items: int, depth: int) -> bool:
    """Whether so much work is to be done here, not by this kernel; if so, it is counted."""
    global work_left
    work = n_queries * n_items * (depth + _UNITS_PER_PAIR)
    if work >= work_left or is_ready(kernel):
        return False
    work_left -= work
    if work_left < _WORK_LEFT_TO_START:
        background.start("float32")
    return True


def row_norms(rows: npt.NDArray[Any]) -> Floats:
    """Return the Euclidean norms (n,) of rows."""
    norms = np.empty(len(rows))
    for part in _parts(len(rows), rows.shape[1]):
        norms[part] = np.sqrt(_products(rows[part], rows[part]))
    return norms


def search(
    metric_type: str,
    items: Any,
    numbers: Integers,
    queries: Any,
    exclusions: Any,
    k: int,
    options: Any,
) -> tuple[Integers, Floats]:
    """Columns and raw scores (n, k) of the best items of these numbers, as of scan.score_all."""
    n, m = len(queries.rows), len(numbers)
    columns, scores = np.full((n, k), -1, np.int64), np.full((n, k), -np.inf)
    block_bytes = min(_BLOCK_BYTES, options.working_memory / 2)
    size = max(1, int(block_bytes / (_BYTES_PER_PAIR * m)))
    for lo in range(0, n, size):
        hi = min(n, lo + size)
        some = queries.take(slice(lo, hi))
        with np.errstate(all="ignore"):  # where every item is a candidate
            near, margins = _approximate(metric_type, some, items, numbers)
            near[_forbidden(exclusions.of_range(lo, hi), numbers)] = -np.inf
            best = np.partition(near, m - k, axis=1)[:, m - k] if k <= m else -np.inf
            least = np.maximum(best - margins, _LEAST_SCORE)
        row, place = np.divmod(np.flatnonzero(near >= least[:, None]), m)
        found = numbers[place]
        exact = _score(metric_type, some, items, row, found)
        order = np.lexsort((found, -exact, row))
        row, found, exact = row[order], found[order], exact[order]
        rank = np.arange(len(row)) - np.searchsorted(row, row)
        first = rank < k
        row, rank, found, exact = row[first], rank[first], found[first], exact[first]
        columns[lo + row, rank], scores[lo + row, rank] = found, exact
        if options.progress is not None:
            options.progress(hi, n)
    return columns, scores


def _approximate(
    metric_type: str, queries: Any, items: Any, numbers: Integers
) -> tuple[Floats, Floats]:
    """Return approximate scores (n, m), and 2 c S of every query (n,)."""
    depth = queries.rows.shape[1]
    sizes, norms = queries.norms, items.norms[numbers]
    bias = items.bias[numbers] if len(items.bias) else np.zeros(1)
    left = _scaled(metric_type, queries.rows, sizes)
    near = np.empty((len(left), len(numbers)))
    are_safe = _are_safe(queries.rows, sizes) & bool((np.abs(bias) < _LARGEST).all())
    for part in _parts(len(numbers), depth):
        rows = items.rows[numbers[part]]
        right = _scaled(metric_type, rows, norms[part]).T
        with parallel.blas_lock():
            near[:, part] = left @ right
        are_safe &= bool(_are_safe(rows, norms[part]).all())
    if metric_type == "cosine":
        scale = np.ones(len(sizes))
    elif metric_type == "dot":
        near += bias
        scale = sizes * norms.max() + np.abs(bias).max()
    else:
        near *= 2
        near -= (sizes * sizes)[:, None]
        near -= norms * norms
        scale = sizes * sizes + norms.max() ** 2
    near[~are_safe] = 0.0
    return near, np.where(are_safe, 2.2 * (4 * depth + 24) * 2.0**-53 * scale, np.inf)


def _scaled(metric_type: str, rows: npt.NDArray[Any], norms: Floats) -> Floats:
    """Return rows in float64, for the cosine divided by their norms."""
    if metric_type != "cosine":
        return rows.astype(np.float64)
    return rows / np.where(norms > 0, norms, 1.0)[:, None]


def _are_safe(rows: npt.NDArray[Any], norms: Floats) -> Flags:
    """Whether products with each row neither overflow nor underflow."""
    are_safe = (norms > _SMALLEST) & (norms < _LARGEST)
    zero = np.flatnonzero(norms == 0)
    are_safe[zero] = ~rows[zero].any(axis=1)
    return are_safe


def _forbidden(exclusions: Any, numbers: Integers) -> tuple[Any, Any]:
    """Queries and places in the ascending numbers of pairs that may not be found."""
    own, indptr, indices = exclusions
    n = len(own)
    query = np.concatenate([np.arange(n), np.repeat(np.arange(n), np.diff(indptr))])
    item = np.concatenate([own, indices[indptr[0] : indptr[-1]]])
    place = np.minimum(np.searchsorted(numbers, item), len(numbers) - 1)
    is_listed = numbers[place] == item
    return query[is_listed], place[is_listed]


def _score(metric_type: str, queries: Any, items: Any, row: Any, column: Integers) -> Floats:
    """Return the exact scores of pairs, as kernels.pair_scores.score_pairs does."""
    scores = np.empty(len(row))
    for part in _parts(len(row), queries.rows.shape[1]):
        x, y = queries.rows[row[part]], items.rows[column[part]]
        if metric_type == "euclidean":
            difference = np.subtract(x, y, dtype=np.float64)
            scores[part] = -_products(difference, difference)
        else:
            scores[part] = _products(x, y)
    if metric_type == "dot":
        if len(items.bias):
            scores += items.bias[column]
    elif metric_type == "cosine":
        lengths = queries.norms[row] * items.norms[column]
        cosines = np.divide(scores, lengths, out=np.zeros(len(scores)), where=lengths > 0)
        scores = np.clip(cosines, -1.0, 1.0)
    return scores


def _products(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Floats:
    """Return inner products (n,) of rows with rows, summed in the order of pair_scores."""
    depth = x.shape[1]
    whole = depth - depth % _LANES
    lanes = np.zeros((len(x), _LANES))
    for j in range(0, whole, _LANES):
        lanes += np.multiply(x[:, j : j + _LANES], y[:, j : j + _LANES], dtype=np.float64)
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    total: Floats = lanes[:, 0].copy()
    for j in range(whole, depth):
        total += np.multiply(x[:, j], y[:, j], dtype=np.float64)
    return total


def _parts(n: int, depth: int) -> Iterator[slice]:
    """Yield slices of n rows or pairs of rows."""
    size = max(1, _ENTRIES_AT_ONCE // depth)
    for lo in range(0, n, size):
        yield slice(lo, lo + size)
