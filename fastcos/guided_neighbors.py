"""Neighbours of the items among themselves where fitting has met likely ones: score those first."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastcos import dense_neighbors as dense
from fastcos import threads, validate
from fastcos.kernels import lists
from fastcos.measure import Candidates
from fastcos.transposition import transposed

_PAIRS_PER_BLOCK = 20_000


class MutualLists(NamedTuple):
    """Likely neighbours of every item, and whose likely neighbour it is.

    columns (p, c) and ceilings (p,) as of Candidates; naming: from naming_indptr[j] on the items on
    whose list j is, rising.
    """

    columns: dense.Integers
    ceilings: dense.Floats
    naming_indptr: dense.Integers
    naming: dense.Integers


def mutual_lists(met: Candidates, n_threads: int | None) -> MutualLists:
    """Find whose lists every item is on. O(p c)."""
    p, c = met.columns.shape
    columns = validate.read_only(np.ascontiguousarray(met.columns))
    every = np.arange(0, p * c + 1, c, dtype=np.int64)
    flat = columns.reshape(-1)
    indptr, naming, _ = transposed(every, flat, None, p, np.int64, n_threads)
    return MutualLists(columns, met.ceilings, indptr, naming)


def search(
    form: str,
    items: dense.Side,
    prepare: Callable[[], dense.Prepared],
    listed: MutualLists,
    queries: dense.Side,
    exclusions: dense.Exclusions,
    k: int,
    work: dense.Work,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns (n, k) and keys (n, k) of the best other items of the items exclusions.own.

    Queries whose k-th best listed key is above their ceiling are done. The engine, prepared only
    where it is needed, searches for the others what reaches at least that key.
    """
    n = len(queries.rows)
    columns, keys = threads.poisoned((n, k), np.int64), threads.poisoned((n, k), np.float64)
    width = 2 * listed.columns.shape[1]
    threads.run(
        lists.best_of_mutual_lists, threads.cuts_by_rows(n, max(1, _PAIRS_PER_BLOCK // width)),
        dense.FORMS[form], queries.rows, queries.norms, items.rows, items.norms, items.offsets,
        exclusions.own, listed.columns, listed.naming_indptr, listed.naming, keys, columns,
        n_threads=work.n_threads,
    )  # fmt: skip
    left = np.flatnonzero(~(keys[:, -1] > listed.ceilings[exclusions.own]))
    if len(left):
        some = dense.side(queries.rows[left], None, work.n_threads)
        floors = keys[left, -1] if k <= listed.columns.shape[1] else None
        columns[left], keys[left] = dense.search(
            prepare(), some, exclusions.of(left), k, work, floors=floors
        )
    return columns, keys


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
