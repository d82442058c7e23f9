"""Row transforms of the similarity measures, and scores of candidate lists.

A transformed row depends only on the original row, not on the other rows of the call. Items with
equal rows therefore remain equal after the transform, have equal scores, and are ordered by item
number. A matrix product by BLAS, unlike these kernels, may give different results for equal rows.
"""

import numpy as np

from .jit import kernel
from .pair_scores import score_items
from .select import sort_best_first
from .simd.memory import prefetch_row
from .simd.pair_products import product

# The prefetch distance: while one row is scored, the row that comes _AHEAD rows later is
# prefetched. For 30,000 rows of 384 columns, scoring a pair takes 100 ns with a prefetch distance
# of 16 or 32 rows. With a prefetch distance of 4 rows, scoring a pair takes 160 ns.
_AHEAD = 16
# The number of input rows that are multiplied by the matrix `root` at the same time. A row of
# `root` is loaded only once for all of these input rows.
_ROWS = 4
# The number of rows that are hashed at the same time. Each step of a hash needs the result of the
# previous step. While one hash waits for this result, the CPU computes steps of the other hashes.
_HASHED = 8


@kernel
def map_rows(lo, hi, rows, mean, root, largest, out):
    """Subtract `mean` from each row, multiply by the matrix `root`, and write the result to out.

    The kernel processes the rows i from lo to hi. `rows` (n, d) is a float array, `mean` (d,) and
    `root` (d, r) are float64, and `largest` is at least the largest singular value of `root`. The
    result is written to `out` (n, r) float64. An entry of rows[i] whose relative difference from
    the mean is at most 1e-14 counts as equal to the mean. If the norm of out[i] is at most 1e-12 *
    largest * |rows[i] - mean|, the kernel regards the entries of out[i] as rounding errors, and
    sets them to zero. The kernel takes O((hi - lo) d r) time, and adds the terms of each sum in the
    order of the columns.
    """
    depth, width = root.shape
    centred = np.empty((_ROWS, depth))
    for first in range(lo, hi, _ROWS):
        count = min(_ROWS, hi - first)
        for i in range(count):
            for j in range(depth):
                x = np.float64(rows[first + i, j])
                difference = x - mean[j]
                near = abs(difference) <= 1e-14 * (abs(x) + abs(mean[j]))
                centred[i, j] = 0.0 if near else difference
        for i in range(count, _ROWS):
            centred[i] = 0.0
        if count == _ROWS:
            a, b, c, d = out[first], out[first + 1], out[first + 2], out[first + 3]
            for m in range(width):
                a[m] = b[m] = c[m] = d[m] = 0.0
            for j in range(depth):
                s, t, u, v = centred[0, j], centred[1, j], centred[2, j], centred[3, j]
                line = root[j]
                for m in range(width):
                    a[m] += s * line[m]
                    b[m] += t * line[m]
                    c[m] += u * line[m]
                    d[m] += v * line[m]
        else:
            for i in range(count):
                out_row = out[first + i]
                for m in range(width):
                    out_row[m] = 0.0
                for j in range(depth):
                    s = centred[i, j]
                    for m in range(width):
                        out_row[m] += s * root[j, m]
        for i in range(count):
            before, after, size = 0.0, 0.0, 0.0
            for j in range(depth):
                size = max(size, abs(centred[i, j]))
            unit = size if size > 0.0 else 1.0  # squares of tiny rows underflow
            for j in range(depth):
                before += (centred[i, j] / unit) ** 2
            for m in range(width):
                after += (out[first + i, m] / unit) ** 2
            if after <= 1e-24 * largest * largest * before:
                out[first + i] = 0.0


@kernel
def rank_rows(lo, hi, rows, out):
    """Set out[i] to the centred ranks of the entries of rows[i], for rows lo to hi.

    Centred ranks are ranks minus the mean rank of the row. Equal entries share the mean of their
    ranks. `rows` (n, d) is a float array. The ranks are written to `out` (n, d) float32; they are
    multiples of 1/2, which float32 represents exactly. The ranks of a constant row are 0. The
    kernel sorts each row with ``select.sort_best_first``.
    """
    depth = rows.shape[1]
    middle = 0.5 * (depth - 1)
    row, order = np.empty(depth), np.empty(depth, np.int64)
    for i in range(lo, hi):
        for j in range(depth):
            row[j] = rows[i, j]
            order[j] = j
        # NumPy's argsort is not called here, because Numba's version of it makes a list, and native
        # libraries have no memory for lists (native.c).
        sort_best_first(row, order, depth)
        first = 0
        while first < depth:
            last = first
            while last + 1 < depth and row[last + 1] == row[first]:
                last += 1
            for at in range(first, last + 1):
                out[i, order[at]] = np.float32(middle - 0.5 * (first + last))
            first = last + 1


@kernel
def unit_rows(lo, hi, rows, norms, powers, out):
    """For rows lo to hi, set out[i] to powers[i] * rows[i] / norms[i], or to 0 if the norm is 0.

    `rows` (n, d) is a float array, `norms` and `powers` (n,) are float64, and `out` (n, d) float64
    is the output.
    """
    depth = rows.shape[1]
    for i in range(lo, hi):
        for j in range(depth):
            unit = np.float64(rows[i, j]) / norms[i] if norms[i] > 0.0 else 0.0
            out[i, j] = unit * powers[i]


@kernel
def list_scores(lo, hi, scoring, lists, scores):
    """Write the exact scores of query i with the items in lists[i] to scores[i], for lo <= i < hi.

    `scoring` is a PairScoring, `lists` (n, k) int64 holds item numbers, and `scores` (n, k) float64
    is the output. The kernel takes O((hi - lo) k d) time.
    """
    for i in range(lo, hi):
        score_items(scoring, i, lists[i], lists.shape[1], scores[i])


@kernel
def recos_rows(lo, hi, queries, sorted_queries, items, sorted_items, lists, scores):
    """Write the recos similarities of query i and the items in lists[i], for lo <= i < hi.

    The recos similarity is the inner product of two rows, divided by the magnitude of the inner
    product of their sorted entries. If the inner product of the rows is negative, the sorted
    entries of the query are taken in descending order. If the recos similarity is undefined, 0 is
    written. `queries` (n, d) and `items` (p, d) have the same dtype. `sorted_queries` and
    `sorted_items` hold the rows of `queries` and `items` after the entries of each row have been
    sorted in ascending order. `lists` (n, c) int64 holds item numbers and is padded with -1. The
    output `scores` (n, c) float64 is -inf for padding. The kernel takes O((hi - lo) c d) time.
    """
    depth = items.shape[1]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    flat_sorted_queries, flat_sorted_items = sorted_queries.reshape(-1), sorted_items.reshape(-1)
    descending = np.empty(depth, queries.dtype)
    for i in range(lo, hi):
        for j in range(depth):
            descending[j] = sorted_queries[i, depth - 1 - j]
        for entry in range(-_AHEAD, lists.shape[1]):
            later_item = lists[i, min(entry + _AHEAD, lists.shape[1] - 1)]
            if later_item >= 0:
                prefetch_row(flat_items, later_item * depth, depth)
                prefetch_row(flat_sorted_items, later_item * depth, depth)
            if entry < 0:
                continue
            item = lists[i, entry]
            if item < 0:
                scores[i, entry] = -np.inf
                continue
            start = item * depth
            top = product(flat_queries, i * depth, flat_items, start, depth)
            if top < 0.0:
                bottom = abs(product(descending, 0, flat_sorted_items, start, depth))
            else:
                bottom = abs(
                    product(flat_sorted_queries, i * depth, flat_sorted_items, start, depth)
                )
            scores[i, entry] = min(max(top / bottom, -1.0), 1.0) if bottom > 0.0 else 0.0


@kernel
def centroid_distances(lo, hi, rows, items, lists, out):
    """Set out[i] to the squared distance of rows[i] from the mean of the items in lists[i].

    The kernel processes the rows i from lo to hi. `rows` (n, d) and `items` (p, d) are float64,
    `lists` (n, k) int64 holds item numbers, and `out` (n,) float64 is the output. The kernel takes
    O((hi - lo) k d) time.
    """
    depth, k = rows.shape[1], lists.shape[1]
    total = np.empty(depth)
    for i in range(lo, hi):
        total[:] = 0.0
        for entry in range(k):
            item = items[lists[i, entry]]
            for j in range(depth):
                total[j] += item[j]
        square = 0.0
        for j in range(depth):
            difference = rows[i, j] - total[j] / k
            square += difference * difference
        out[i] = square


@kernel
def fingerprint_rows(lo, hi, rows, out):
    """Set out[i] to a 64-bit hash of rows[i], for rows lo to hi.

    `rows` is a float array (n, d), and the hashes are written to `out` (n,) uint64. A float32 row
    and a float64 row with equal numbers have equal hashes, and -0 counts as 0. The kernel takes
    O((hi - lo) d) time.
    """
    depth = rows.shape[1]
    values = np.empty((depth, _HASHED))
    bits = values.view(np.uint64)
    totals = np.empty(_HASHED, np.uint64)
    for first in range(lo, hi, _HASHED):
        count = min(_HASHED, hi - first)
        for i in range(_HASHED):
            row = rows[first + min(i, count - 1)]
            for j in range(depth):
                values[j, i] = np.float64(row[j]) + 0.0
        totals[:] = np.uint64(depth)
        for j in range(depth):
            for i in range(_HASHED):
                # Small integers that are stored as floats differ only in a few high bits. The
                # finalizer of splitmix64 mixes the bits, so that a difference in a few bits affects
                # all bits of the hash.
                total = (totals[i] ^ bits[j, i]) + np.uint64(0x9E3779B97F4A7C15)
                total = (total ^ (total >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                total = (total ^ (total >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                totals[i] = total ^ (total >> np.uint64(31))
        for i in range(count):
            out[first + i] = totals[i]
