"""Rows that occur many times are searched once: copies of a row have the same keys.

Without this, every row of a group of g copies is a neighbour of g others at one score, which no
bound can tell apart, and all g^2 pairs are scored in float64.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.engine import scan as dense
from fastcos.kernels import exhaustive_top_k

# rows are grouped where the average row has this many copies, itself among them
_ENOUGH_COPIES = 2.0
_ROWS_PER_CHUNK = 4096


class Groups(NamedTuple):
    """Rows by equality, each group's in rising order; groups by their first rows.

    first (u,) the lowest row of each group; group_of (n,); members (n,), from starts[g] on those of
    group g; starts (u + 1,).
    """

    first: dense.Integers
    group_of: dense.Integers
    starts: dense.Integers
    members: dense.Integers


def grouped(side: dense.Side) -> Groups | None:
    """Return the groups of equal rows (with equal offsets), None where copies are few.

    Where no two norms are equal, O(n log n). Otherwise O(n d).
    """
    n = len(side.norms)
    norms = np.sort(side.norms)
    if not _many_copies(np.flatnonzero(norms[1:] != norms[:-1]) + 1, n):
        return None
    hashes = _hashes(side)
    order = np.argsort(hashes, kind="stable")
    # a collision that splits a group does no harm
    same = hashes[order[1:]] == hashes[order[:-1]]
    places = np.flatnonzero(same)
    for at in range(0, len(places), _ROWS_PER_CHUNK):
        some = places[at : at + _ROWS_PER_CHUNK]
        left, right = order[some], order[some + 1]
        same[some] = (side.rows[left] == side.rows[right]).all(axis=1)
        same[some] &= side.offsets[left] == side.offsets[right]
    cuts = np.flatnonzero(~same) + 1
    if not _many_copies(cuts, n):
        return None
    first = order[np.append(0, cuts)]
    by_first = np.argsort(first)
    number = np.empty(len(first), np.int64)
    number[by_first] = np.arange(len(first))
    group_of = np.empty(n, np.int64)
    group_of[order] = np.repeat(number, np.diff([0, *cuts, n]))
    members = np.argsort(group_of, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(group_of))).astype(np.int64)
    return Groups(*map(validation.read_only, (first[by_first], group_of, starts, members)))


def _many_copies(cuts: npt.NDArray[np.intp], n: int) -> bool:
    sizes = np.diff(np.concatenate([[0], cuts, [n]])).astype(np.float64)
    # no BLAS: its threads stay awake for milliseconds that a search needs
    return bool(np.square(sizes).sum() >= _ENOUGH_COPIES * n)


def _hashes(side: dense.Side) -> npt.NDArray[np.uint64]:
    """A random linear map of the bits of every row and its offset, modulo 2^64."""
    words = side.rows.view(np.uint32)
    weights = np.random.default_rng(0).integers(2**64, size=words.shape[1] + 1, dtype=np.uint64)
    hashes: npt.NDArray[np.uint64] = side.offsets.view(np.uint64) * weights[-1]
    for at in range(0, len(words), _ROWS_PER_CHUNK):
        some = slice(at, at + _ROWS_PER_CHUNK)
        hashes[some] += words[some].astype(np.uint64) @ weights[:-1]
    return hashes


def search(
    prepared: dense.Prepared,
    items: Groups,
    queries: dense.Side,
    own: dense.Integers,
    k: int,
    work: dense.Work,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns (n, k) and keys (n, k) as of dense_neighbors.search, from one row of every group.

    prepared holds items.first alone; own (n,): the item that a query may not find, or -1. Of an
    item among the best k, every group ahead of its own has a row ahead of it, so that its group is
    among the best k groups, or k + 1 where the row ahead may be the query itself.
    """
    n = len(queries.rows)
    told = work.progress
    if told is not None:
        work = work._replace(progress=lambda done, total: told(done * n // total, n))
    groups = grouped(queries)
    distinct, group_of = queries, validation.read_only(np.arange(n, dtype=np.int64))
    if groups is not None:
        first, group_of = groups.first, groups.group_of
        distinct = dense.Side(
            validation.read_only(queries.rows[first]),
            validation.read_only(queries.norms[first]),
            validation.read_only(queries.offsets[first]),
        )
    count = len(distinct.rows)
    parts = np.full(count, -1, np.int64), np.zeros(count + 1, np.int64), np.zeros(0, np.int64)
    nobody = dense.Exclusions(*map(validation.read_only, parts))
    wanted = min(k + 1, len(items.first))
    found, found_keys = dense.search(prepared, distinct, nobody, wanted, work)
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    parallel.run(
        exhaustive_top_k.expand_copies, parallel.row_blocks(n, 1024), group_of, own, found,
        found_keys,
        items.group_of, items.starts, items.members, keys, columns,
        n_threads=work.n_threads,
    )  # fmt: skip
    return columns, keys
