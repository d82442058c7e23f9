"""Neighbours of the items among themselves where fitting has met likely ones: score those first."""

from collections.abc import Callable

import numpy as np

from fastcos import dense_neighbors as dense
from fastcos import threads, validate
from fastcos.kernels import lists, maps
from fastcos.measure import Candidates

_PAIRS_PER_BLOCK = 20_000


def search(
    form: str,
    items: dense.Side,
    prepare: Callable[[], dense.Prepared],
    listed: Candidates,
    queries: dense.Side,
    exclusions: dense.Exclusions,
    k: int,
    work: dense.Work,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns (n, k) and keys (n, k) of the best other items of the items exclusions.own.

    Queries whose k-th best listed key is above their ceiling are done. The engine, prepared only
    where it is needed, searches for the others what reaches at least that key.
    """
    columns, keys = _best_listed(form, queries, items, listed.columns[exclusions.own], k, work)
    left = np.flatnonzero(~(keys[:, -1] > listed.ceilings[exclusions.own]))
    if len(left):
        some = dense.side(queries.rows[left], None, work.n_threads)
        floors = keys[left, -1] if k <= listed.columns.shape[1] else None
        columns[left], keys[left] = dense.search(
            prepare(), some, exclusions.of(left), k, work, floors=floors
        )
    return columns, keys


def _best_listed(
    form: str,
    queries: dense.Side,
    items: dense.Side,
    listed: dense.Integers,
    k: int,
    work: dense.Work,
) -> tuple[dense.Integers, dense.Floats]:
    """The k best of the items listed for each query, by the engine's keys; padded."""
    n, c = listed.shape
    listed = validate.read_only(np.ascontiguousarray(listed))
    listed_keys = threads.poisoned((n, c), np.float64)
    cuts = threads.cuts_by_rows(n, max(1, _PAIRS_PER_BLOCK // c))
    threads.run(
        maps.list_keys, cuts, dense.FORMS[form], queries.rows, queries.norms, items.rows,
        items.norms, items.offsets, listed, listed_keys,
        n_threads=work.n_threads,
    )  # fmt: skip
    return best_of_lists(listed, listed_keys, k, work)


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
