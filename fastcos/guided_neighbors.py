"""Neighbours of the items among themselves where fitting has met likely ones: judge those first."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from fastcos import dense_neighbors as dense
from fastcos import threads, validate
from fastcos.kernels import lists, tiles
from fastcos.measure import Candidates
from fastcos.reaching_pairs import list_reaching
from fastcos.transposition import transposed

_PAIRS_PER_BLOCK = 20_000
# columns listed for a query, beside k; and queries that show whether so many are enough
_ROOM, _SAMPLE = 54, 128


class MutualLists(NamedTuple):
    """Likely neighbours of every item, and whose likely neighbour it is.

    met: as of Candidates; naming, naming_keys: from naming_indptr[j] on the items on whose list j
    is, rising, and j's keys with them.
    """

    met: Candidates
    naming_indptr: dense.Integers
    naming: dense.Integers
    naming_keys: dense.Floats


class Listed(NamedTuple):
    """Items of some queries: the first counts (n,) of columns (n, room), unordered."""

    counts: dense.Integers
    columns: dense.Integers

    def of(self, some: dense.Integers) -> "Listed":
        """Those of some of the queries."""
        return Listed(self.counts[some], self.columns[some])


def mutual_lists(met: Candidates, n_threads: int | None) -> MutualLists:
    """Find whose lists every item is on. O(p c)."""
    p, c = met.columns.shape
    read_only: Any = validate.read_only
    met = Candidates(*(read_only(np.ascontiguousarray(part)) for part in met))
    every = np.arange(0, p * c + 1, c, dtype=np.int64)
    flat, keys = met.columns.reshape(-1), met.named_keys.reshape(-1)
    indptr, naming, values = transposed(every, flat, keys, p, np.int64, n_threads)
    return MutualLists(met, indptr, naming, cast(dense.Floats, values))


def search(
    form: str,
    items: dense.Side,
    prepare: Callable[[], dense.Prepared],
    mutual: MutualLists,
    queries: dense.Side,
    exclusions: dense.Exclusions,
    k: int,
    work: dense.Work,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns (n, k) and keys (n, k) of the best other items of the items exclusions.own.

    The k-th best listed key is a floor of every query. Where it is above the ceiling the listed
    items that reach it are scored, and that is all. The engine, prepared only where it is needed,
    finds for the others all that may reach the floor.
    """
    n = len(queries.rows)
    columns, keys = threads.poisoned((n, k), np.int64), threads.poisoned((n, k), np.float64)
    size = max(1024, int(work.working_memory / 4 / (8 * (k + _ROOM))))
    for first in range(0, n, size):
        some = np.arange(first, min(n, first + size))
        part = _of(queries, some)
        few = exclusions.of_rows(first, some[-1] + 1)
        floors, listed = _likely(mutual, few.own, k, work)
        done = (floors > mutual.met.ceilings[few.own]) & (listed.counts <= k + _ROOM)
        ready = np.flatnonzero(done)
        found = _best(form, items, _of(part, ready), listed.of(ready), k, work)
        columns[some[ready]], keys[some[ready]] = found
        left = np.flatnonzero(~done)
        if len(left):
            rest, outside = _of(part, left), few.of(left)
            if k > mutual.met.columns.shape[1]:
                found = dense.search(prepare(), rest, outside, k, work)
            else:
                found = _reaching(prepare(), items, rest, outside, k, work, floors[left])
            columns[some[left]], keys[some[left]] = found
    return columns, keys


def _of(queries: dense.Side, some: dense.Integers) -> dense.Side:
    """Some of the queries, rising numbers; all of them as they are."""
    if len(some) == len(queries.rows):
        return queries
    return dense.Side(
        validate.read_only(queries.rows[some]),
        validate.read_only(queries.norms[some]),
        validate.read_only(queries.offsets[some]),
    )


def _likely(
    mutual: MutualLists, numbers: dense.Integers, k: int, work: dense.Work
) -> tuple[dense.Floats, Listed]:
    """Floors (n,), -inf where fewer than k are listed, and the listed items that may reach them."""
    n, room = len(numbers), k + _ROOM
    floors, counts = threads.poisoned(n, np.float64), threads.poisoned(n, np.int64)
    columns = np.empty((n, room), np.int64)
    met = mutual.met
    cuts = threads.cuts_by_rows(n, max(1, _PAIRS_PER_BLOCK // met.columns.shape[1]))
    threads.run(
        lists.likely_of_mutual_lists, cuts, numbers, k, met.columns, met.keys,
        mutual.naming_indptr, mutual.naming, mutual.naming_keys, met.errors, floors, counts,
        columns,
        n_threads=work.n_threads,
    )  # fmt: skip
    return floors, Listed(counts, columns)


def _best(
    form: str, items: dense.Side, queries: dense.Side, listed: Listed, k: int, work: dense.Work
) -> tuple[dense.Integers, dense.Floats]:
    """Columns and keys (n, k) of the best of the listed items."""
    n = len(queries.rows)
    columns, keys = threads.poisoned((n, k), np.int64), threads.poisoned((n, k), np.float64)
    threads.run(
        lists.best_of_scored_lists, threads.cuts_by_rows(n, max(1, _PAIRS_PER_BLOCK // (2 * k))),
        dense.FORMS[form], queries.rows, queries.norms, items.rows, items.norms, items.offsets,
        validate.read_only(listed.counts), validate.read_only(listed.columns), keys, columns,
        n_threads=work.n_threads,
    )  # fmt: skip
    return columns, keys


def _reaching(
    prepared: dense.Prepared,
    items: dense.Side,
    queries: dense.Side,
    exclusions: dense.Exclusions,
    k: int,
    work: dense.Work,
    floors: dense.Floats,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns and keys (n, k) of the best of all items, of which k are known to reach the floors.

    Where the room is too narrow for most of some queries the floors say too little.
    """
    n = len(floors)
    if not tiles.AVAILABLE:
        return dense.search(prepared, queries, exclusions, k, work, floors=floors)
    sample = np.arange(0, n, -(-n // _SAMPLE))
    quiet = work._replace(progress=None)
    tried = _list(prepared, _of(queries, sample), exclusions.of(sample), k, quiet, floors[sample])
    if (tried.counts > k + _ROOM).mean() > 0.5:
        return dense.search(prepared, queries, exclusions, k, work)
    listed = _list(prepared, queries, exclusions, k, work, floors)
    narrow = listed.counts > k + _ROOM
    listed.counts[narrow] = 0
    columns, keys = _best(prepared.form, items, queries, listed, k, work)
    over = np.flatnonzero(narrow)
    if len(over):
        columns[over], keys[over] = dense.search(
            prepared, _of(queries, over), exclusions.of(over), k, quiet, floors=floors[over]
        )
    return columns, keys


def _list(
    prepared: dense.Prepared,
    queries: dense.Side,
    exclusions: dense.Exclusions,
    k: int,
    work: dense.Work,
    floors: dense.Floats,
) -> Listed:
    """The items that may reach the floors; counts are not held to the room."""
    n, room = len(floors), k + _ROOM
    columns = np.empty((n, room), np.int64)
    starts = np.arange(0, n * room, room, dtype=np.int64)
    counts = list_reaching(
        prepared, queries, exclusions, floors, room, starts, columns.reshape(-1), work
    )
    return Listed(counts, columns)


def best_of_lists(
    listed: dense.Integers, listed_keys: dense.Floats, k: int, work: dense.Work
) -> tuple[dense.Integers, dense.Floats]:
    """The k best of every list (n, c) of items (-1: none) by key, equal keys by lower item."""
    n, c = listed.shape
    columns, keys = threads.poisoned((n, k), np.int64), threads.poisoned((n, k), np.float64)
    cuts = threads.cuts_by_rows(n, max(1, _PAIRS_PER_BLOCK // c))
    threads.run(
        lists.best_of_lists, cuts, validate.read_only(listed), validate.read_only(listed_keys),
        keys, columns,
        n_threads=work.n_threads,
    )  # fmt: skip
    return columns, keys
