"""Row transforms of the measures, and scores of candidate lists.

A transformed row depends on that row alone, not on the other rows of the call. Duplicates therefore
remain duplicates, and ties are broken by item number. BLAS does not guarantee that.
"""

import numpy as np

from .jit import kernel
from .pair_scores import score_items
from .simd.memory import prefetch_row
from .simd.pair_products import product

# The number of rows that are prefetched ahead. For pairs of 30,000 x 384 rows, 16 takes 100 ns per
# pair, and so does 32; 4 takes 160 ns.
_AHEAD = 16
# The number of rows that are multiplied together, so that each row of the map is loaded once.
_ROWS = 4
# The number of rows that are hashed together, because the steps of one hash depend on each other.
_HASHED = 8


@kernel
def map_rows(lo, hi, rows, mean, root, largest, out):
    """out[i] = (rows[i] - mean) root for rows lo .. hi; zero if that is rounding only.

    rows (n, d) float; mean (d,), root (d, r) float64; largest: at least the largest singular value
    of root; out (n, r) float64 out. A row is zero where |out[i]| <= 1e-12 largest |rows[i] - mean|
    or where rows[i] equals the mean to 1e-14 of their entries. O((hi - lo) d r); each sum in the
    order of d.
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
                one = out[first + i]
                for m in range(width):
                    one[m] = 0.0
                for j in range(depth):
                    s = centred[i, j]
                    for m in range(width):
                        one[m] += s * root[j, m]
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
    """out[i] = ranks of the entries of rows[i] less their mean; equal entries share a mean rank.

    rows (n, d) float, out (n, d) float32 out: multiples of 1/2, exact. A constant row gives zeros.
    O((hi - lo) d log d).
    """
    depth = rows.shape[1]
    middle = 0.5 * (depth - 1)
    row = np.empty(depth)
    for i in range(lo, hi):
        for j in range(depth):
            row[j] = rows[i, j]
        order = np.argsort(row)  # always float64, because sorting takes long to compile
        first = 0
        while first < depth:
            last = first
            while last + 1 < depth and row[order[last + 1]] == row[order[first]]:
                last += 1
            for at in range(first, last + 1):
                out[i, order[at]] = np.float32(0.5 * (first + last) - middle)
            first = last + 1


@kernel
def unit_rows(lo, hi, rows, norms, powers, out):
    """out[i] = powers[i] rows[i] / norms[i] for rows lo .. hi, zero where the norm is zero.

    rows (n, d) float; norms, powers (n,) float64; out (n, d) float64 out.
    """
    depth = rows.shape[1]
    for i in range(lo, hi):
        for j in range(depth):
            unit = np.float64(rows[i, j]) / norms[i] if norms[i] > 0.0 else 0.0
            out[i, j] = unit * powers[i]


@kernel
def list_scores(lo, hi, scoring, columns, scores):
    """scores[i] = exact scores of query i and the items columns[i], for queries lo .. hi.

    scoring: PairScoring; columns (n, k) int64; scores (n, k) float64 out. O((hi - lo) k d).
    """
    for i in range(lo, hi):
        score_items(scoring, i, columns[i], columns.shape[1], scores[i])


@kernel
def recos_rows(lo, hi, queries, sorted_queries, items, sorted_items, columns, scores):
    """scores[i] = recos of query i and the items columns[i], queries lo .. hi; 0 if undefined.

    This is the inner product of two rows over that of their sorted entries. queries (n, d), items
    (p, d) of one dtype, and the same with sorted entries; columns (n, c) int64, padded by -1;
    scores (n, c) float64 out, -inf for padding. O((hi - lo) c d).
    """
    depth = items.shape[1]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    flat_own, flat_sorted = sorted_queries.reshape(-1), sorted_items.reshape(-1)
    descending = np.empty(depth, queries.dtype)
    for i in range(lo, hi):
        for j in range(depth):
            descending[j] = sorted_queries[i, depth - 1 - j]
        for entry in range(-_AHEAD, columns.shape[1]):
            ahead = columns[i, min(entry + _AHEAD, columns.shape[1] - 1)]
            if ahead >= 0:
                prefetch_row(flat_items, ahead * depth, depth)
                prefetch_row(flat_sorted, ahead * depth, depth)
            if entry < 0:
                continue
            column = columns[i, entry]
            if column < 0:
                scores[i, entry] = -np.inf
                continue
            start = column * depth
            top = product(flat_queries, i * depth, flat_items, start, depth)
            if top < 0.0:
                bottom = abs(product(descending, 0, flat_sorted, start, depth))
            else:
                bottom = abs(product(flat_own, i * depth, flat_sorted, start, depth))
            scores[i, entry] = min(max(top / bottom, -1.0), 1.0) if bottom > 0.0 else 0.0


@kernel
def centroid_distances(lo, hi, rows, items, columns, out):
    """out[i] = |rows[i] - mean of items[columns[i]]|^2 for rows lo .. hi.

    rows (n, d), items (p, d) float64; columns (n, k) int64; out (n,) float64 out. O((hi - lo) k d).
    """
    depth, k = rows.shape[1], columns.shape[1]
    total = np.empty(depth)
    for i in range(lo, hi):
        total[:] = 0.0
        for entry in range(k):
            item = items[columns[i, entry]]
            for j in range(depth):
                total[j] += item[j]
        square = 0.0
        for j in range(depth):
            difference = rows[i, j] - total[j] / k
            square += difference * difference
        out[i] = square


@kernel
def fingerprint_rows(lo, hi, rows, out):
    """out[i] = 64-bit hash of rows[i], the same for float32 and float64. O((hi - lo) d).

    rows is a float array (n, d), and the hashes are written to out (n,) uint64. -0 counts as 0.
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
                # The bits are mixed with the finalizer of splitmix64, because small integers that
                # are stored as floats differ only in a few high bits.
                total = (totals[i] ^ bits[j, i]) + np.uint64(0x9E3779B97F4A7C15)
                total = (total ^ (total >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                total = (total ^ (total >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                totals[i] = total ^ (total >> np.uint64(31))
        for i in range(count):
            out[first + i] = totals[i]
