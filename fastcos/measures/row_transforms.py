"""Rows as the measures need them: float64, of unit norm, mapped, ranked."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.engine.packing import METRIC_TYPES, row_norms
from fastcos.engine.safe_norms import scale_up
from fastcos.kernels import normal_cdf, ordered_rows, row_transforms
from fastcos.linalg import buffer_pool
from fastcos.measures.base import Rows
from fastcos.storage import memmap

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_WORK_PER_BLOCK, _MOST_ROWS = 1_000_000, 2048
# rows and steps that are enough to find a middle; and how far it may be, in median distances
_SAMPLE, _WEISZFELD_STEPS, _NEAR_ORIGIN = 256, 16, 2.0
# rows that stay in the cache while they are mapped in Python
_SORTED_AT_ONCE = 1024
# numbers in one partial sum over rows
_SUMMED_AT_ONCE = 2**21


def norms_of(rows: Rows) -> Floats:
    """Return Euclidean norms, (n,), also where squares underflow."""
    norms, scaled = _norms_and_scaled(rows)
    return norms if scaled is None else np.ldexp(row_norms(_given(scaled[0])), -scaled[1])


def scaled_up_rows(rows: Rows) -> Rows:
    """Return rows whose squares keep their digits: float64 rows that would underflow scaled up."""
    _, scaled = _norms_and_scaled(rows)
    return rows if scaled is None else scaled[0]


def _norms_and_scaled(rows: Rows) -> tuple[Floats, tuple[Rows, npt.NDArray[np.intc]] | None]:
    norms = row_norms(_given(rows))
    return norms, None if rows.dtype == np.float32 else scale_up(cast(Floats, rows), norms)


def _units(rows: Rows) -> tuple[Rows, Floats]:
    """Return rows whose squares keep their digits, and their norms."""
    norms, scaled = _norms_and_scaled(rows)
    return (rows, norms) if scaled is None else (scaled[0], row_norms(_given(scaled[0])))


def unit_rows(rows: Rows, powers: Floats | None = None) -> Floats:
    """Rows of unit norm times powers (n,); zero rows stay zero."""
    rows, norms = _units(rows)
    powers = np.ones(len(rows)) if powers is None else powers
    out = buffer_pool.empty(rows.shape, np.float64)
    parallel.run(row_transforms.unit_rows, _cuts(rows, 1), _given(rows), norms, powers, out)
    return out


def scaled_rows(rows: Rows) -> npt.NDArray[np.float32]:
    """Rows of unit norm in float32; zero rows stay zero."""
    out = buffer_pool.empty(rows.shape, np.float32)
    rows, norms = _units(rows)
    inverses = np.divide(1, norms, out=np.zeros(len(norms)), where=norms > 0)
    parallel.run(_scale, parallel.row_blocks(len(rows), _SORTED_AT_ONCE), rows, inverses, out)
    return out


def _scale(lo: int, hi: int, rows: Rows, factors: Floats, out: npt.NDArray[np.float32]) -> None:
    out[lo:hi] = rows[lo:hi] * factors[lo:hi, None]


def sorted_rows(rows: Rows) -> Rows:
    """Rows with their entries in rising order."""
    out: Rows = buffer_pool.empty(rows.shape, rows.dtype)
    parallel.run(_sort, parallel.row_blocks(len(rows), _SORTED_AT_ONCE), rows, out)
    return out


def _sort(lo: int, hi: int, rows: Rows, out: Rows) -> None:
    out[lo:hi] = rows[lo:hi]
    out[lo:hi].sort(axis=1)


def mapped_rows(rows: Rows, mean: Floats, root: Floats) -> Floats:
    """(rows - mean) root, where root is (d, r), or (d,) for a diagonal; rounding becomes zero.

    Without a mean, rows too short for their squares come out longer, which no cosine sees.
    """
    validation.check_same_width("rows", rows, "the fitted items", mean[None])
    if not mean.any():
        rows = scaled_up_rows(rows)
    if root.ndim == 1:
        out: Floats = rows.astype(np.float64)
        if mean.any():
            near = np.abs(out - mean) <= 1e-14 * (np.abs(out) + np.abs(mean))
            out -= mean
            out[near] = 0
        out *= root
        return out
    largest = float(np.linalg.norm(root, 2))
    out = parallel.unfilled((len(rows), root.shape[1]), np.float64)
    cuts = _cuts(rows, root.shape[1])
    parallel.run(
        row_transforms.map_rows, cuts, _given(rows), _given(mean), _given(root), largest, out
    )
    return out


def fingerprints(rows: Rows) -> npt.NDArray[np.uint64]:
    """64 bits per row, equal for equal rows of either float type."""
    out = parallel.unfilled(len(rows), np.uint64)
    parallel.run(row_transforms.fingerprint_rows, _cuts(rows, 1), _given(rows), out)
    return out


def ranked_rows(rows: Rows) -> npt.NDArray[np.float32]:
    """Average ranks of the entries within each row, less their mean."""
    out = parallel.unfilled(rows.shape, np.float32)
    parallel.run(row_transforms.rank_rows, _cuts(rows, 64), _given(rows), out)
    return out


def row_centred(rows: Rows) -> Floats:
    """Rows less their own mean over the dimensions; a constant row becomes exactly zero.

    Rows too short for their squares come out longer.
    """
    rows = scaled_up_rows(rows)
    out: Floats = rows.astype(np.float64)
    out -= out.mean(axis=1, keepdims=True)
    out[rows.max(axis=1) == rows.min(axis=1)] = 0
    return out


def mean_of(rows: Rows, shares: Floats | None = None) -> Floats:
    """Mean row in float64, by shares (n,) that sum to 1; exact for a constant column."""
    mean = np.zeros(rows.shape[1])
    first, same = rows[0], np.full(rows.shape[1], True)
    for lo, some in blocks_of(rows):
        if shares is None:
            mean += some.sum(axis=0, dtype=np.float64)
        else:
            mean += shares[lo : lo + len(some)] @ some
        same &= (some.max(axis=0) == first) & (some.min(axis=0) == first)
    if shares is None:
        mean /= len(rows)
    mean[same] = first[same]
    return mean


def origin_of(rows: Rows) -> Floats:
    """A row to measure distances from: 0, or the geometric median where rows lie far from 0.

    Products of rows that share a large part lose what tells them apart. Their mean would not do:
    where few rows are large and most are nearly 0, most lie far from it. Weiszfeld's steps on some
    rows.
    """
    some = rows[:: -(-len(rows) // _SAMPLE)].astype(np.float64)
    centre: Floats = np.median(some, axis=0)
    distances = np.linalg.norm(some - centre, axis=1)
    for _ in range(_WEISZFELD_STEPS):
        least = 1e-9 * distances.max()
        if least == 0:
            break
        weights = least / np.maximum(distances, least)
        centre = np.einsum("i,ij->j", weights, some) / weights.sum()
        distances = np.linalg.norm(some - centre, axis=1)
    around = np.linalg.norm(centre) <= _NEAR_ORIGIN * np.median(distances)
    return np.zeros_like(centre) if around else centre


def gram_of(rows: Rows, mean: Floats, shares: Floats | None = None) -> Floats:
    """Sum over rows of share (1/n each by default) times the outer square of row - mean."""
    d = rows.shape[1]
    total = np.zeros((d, d))
    for lo, some in blocks_of(rows):
        block = some - mean
        weights = 1 / len(rows) if shares is None else shares[lo : lo + len(some), None]
        total += block.T @ (block * weights)
    total += total.T
    return total / 2


def mean_squares_of(rows: Rows, mean: Floats) -> Floats:
    """Mean over rows of the squared entries of row - mean, (d,)."""
    total = np.zeros(rows.shape[1])
    for _, some in blocks_of(rows):
        total += np.square(some - mean).sum(axis=0)
    return total / len(rows)


def list_scores(
    metric_type: str, queries: Rows, items: Rows, columns: Integers, norms: Floats | None = None
) -> Floats:
    """The engine's float64 keys of every query and the items of its list, (n, k); no offsets.

    norms (p,): the items', where they are known.
    """
    norms = norms_of(items) if norms is None else norms
    if queries.dtype != items.dtype:
        queries, items = queries.astype(np.float64), items.astype(np.float64)
    keys = parallel.unfilled(columns.shape, np.float64)
    cuts = parallel.row_blocks(len(queries), max(1, 20_000 // keys.shape[1]))
    parallel.run(
        row_transforms.list_keys, cuts, METRIC_TYPES[metric_type], _given(queries),
        norms_of(queries), _given(items), norms, np.zeros(len(items)), _given(columns), keys,
    )  # fmt: skip
    return keys


def mutual_proximities(
    cosines: Floats,
    columns: Integers,
    query_means: Floats,
    query_deviations: Floats,
    means: Floats,
    deviations: Floats,
) -> Floats:
    """Logarithm of how likely smaller cosines are for both rows of each pair, (n, k)."""
    keys = parallel.unfilled(columns.shape, np.float64)
    cuts = parallel.row_blocks(len(columns), max(1, 20_000 // columns.shape[1]))
    of_rows = map(_given, (query_means, query_deviations, means, deviations))
    parallel.run(
        normal_cdf.mutual_proximity_rows, cuts, _given(cosines), _given(columns), *of_rows, keys
    )
    return keys


def list_recos(
    queries: Rows, rising_queries: Rows, items: Rows, rising_items: Rows, columns: Integers
) -> Floats:
    """Recos of every query and the items of its list, (n, k), -inf where the item is -1."""
    if queries.dtype != items.dtype:
        queries, rising_queries = queries.astype(np.float64), rising_queries.astype(np.float64)
        items, rising_items = items.astype(np.float64), rising_items.astype(np.float64)
    keys = parallel.unfilled(columns.shape, np.float64)
    cuts = parallel.row_blocks(len(queries), max(1, 4_000 // keys.shape[1]))
    parallel.run(
        ordered_rows.recos_rows, cuts,
        *map(_given, (queries, rising_queries, items, rising_items, columns)), keys,
    )  # fmt: skip
    return keys


def centroid_distances(rows: Rows, items: Rows, columns: Integers) -> Floats:
    """Squared distance of every row to the mean of the items of its list, (n,)."""
    if rows.dtype != items.dtype:
        rows, items = rows.astype(np.float64), items.astype(np.float64)
    out = parallel.unfilled(len(rows), np.float64)
    cuts = parallel.row_blocks(len(rows), max(1, 20_000 // columns.shape[1]))
    parallel.run(
        row_transforms.centroid_distances, cuts, _given(rows), _given(items), _given(columns), out
    )
    return out


def _given(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return validation.read_only(np.ascontiguousarray(array))


def _cuts(rows: Rows, work: int) -> parallel.Blocks:
    size = min(_MOST_ROWS, _WORK_PER_BLOCK // (rows.shape[1] * work) // 4 * 4)
    return parallel.row_blocks(len(rows), max(4, size))


def blocks_of(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """First row and rows of blocks, of rows in memory or on disk."""
    return memmap.iter_blocks("items", rows, max(1, _SUMMED_AT_ONCE // rows.shape[1]))
