"""Neighbours of the items among themselves where fitting has met likely ones: judge those first."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from fastcos import parallel, validation
from fastcos.engine import scan as dense
from fastcos.kernels import candidate_lists, range_top_k, tiles
from fastcos.linalg.transpose import transposed
from fastcos.measures import Candidates

_PAIRS_PER_BLOCK = 20_000
# items listed for a query, beside k: of Gaussian rows 40 of 40,000 may reach a bound for k = 10
_ROOM = 246
# queries that are searched first, to show what bounds the others may have; and then tried with them
_SHOWN, _TRIED = 384, 128
# without floors: fewest queries, so that trying for nothing costs little; items listed for a query,
# beside k: of Gaussian rows 32 of 40,000 may reach a bound for k = 10, and 80 would cost what the
# engine costs; and the share of the tried that may miss, each of which is searched twice
_MANY, _NARROW_ROOM, _FEW_MISSED = 32_768, 54, 1 / 8
# median difference of norms from their median, in that, beyond which nothing is tried
_ALIKE = 1 / 4
# with floors, which spare the engine less
_MANY_MISSED = 1 / 2
# share of the queries from which on all are searched: that costs less than a copy of most rows
_NEARLY_ALL = 0.98
# steps of the least squares; and the share of queries that may find less than they are likely to
_ROUNDS, _MISSED = 6, 1 / 64


class MutualLists(NamedTuple):
    """Likely neighbours of every item, and whose likely neighbour it is.

    met: as of Candidates; naming, naming_keys: from naming_indptr[j] on the items on whose list j
    is, rising, and j's keys with them.
    """

    met: Candidates
    naming_indptr: dense.Integers
    naming: dense.Integers
    naming_keys: dense.Floats


def mutual_lists(met: Candidates, n_threads: int | None) -> MutualLists:
    """Find whose lists every item is on. O(p c)."""
    p, c = met.columns.shape
    read_only: Any = validation.read_only
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
    finds for the others all that may reach the floor, or what is likely to be a better one.
    """
    n = len(queries.rows)
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    floors, done = parallel.unfilled(n, np.float64), parallel.unfilled(n, np.uint8)
    met = mutual.met
    parallel.run(
        candidate_lists.best_of_mutual_lists,
        parallel.row_blocks(n, max(1, _PAIRS_PER_BLOCK // met.columns.shape[1])),
        exclusions.own, dense.FORMS[form], queries.rows, queries.norms, items.rows, items.norms,
        items.offsets, met.columns, met.keys, mutual.naming_indptr, mutual.naming,
        mutual.naming_keys, met.errors, met.ceilings, floors, done, keys, columns,
        n_threads=work.n_threads,
    )  # fmt: skip
    asked = _Asked(queries, exclusions, floors, columns, keys)
    left = np.flatnonzero(done == 0)
    if len(left) and k > met.columns.shape[1]:
        _search(prepare(), asked, left, work, with_floors=False)
    elif len(left):
        _search_with_floors(prepare(), asked, left, work, _ROOM, _MANY_MISSED)
    return columns, keys


def search_likely(
    prepared: dense.Prepared,
    queries: dense.Side,
    exclusions: dense.Exclusions,
    k: int,
    work: dense.Work,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns (n, k) and keys (n, k) as of dense_neighbors.search, for the items exclusions.own.

    Where their norms tell about how near the k-th neighbours are, listing what is as near takes
    two thirds of the engine's time; where some queries show that they do not, the engine searches.
    """
    n = len(queries.rows)
    middle = np.median(queries.norms)
    uneven = np.median(np.abs(queries.norms - middle)) > _ALIKE * middle
    if n < _MANY or k > _NARROW_ROOM or uneven:
        return dense.search(prepared, queries, exclusions, k, work)
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    asked = _Asked(queries, exclusions, np.full(n, -np.inf), columns, keys)
    _search_with_floors(prepared, asked, np.arange(n), work, _NARROW_ROOM, _FEW_MISSED)
    return columns, keys


class _Asked(NamedTuple):
    """All queries, a key of each that k items have, and their answers."""

    queries: dense.Side
    exclusions: dense.Exclusions
    floors: dense.Floats
    columns: dense.Integers
    keys: dense.Floats


def _search_with_floors(
    prepared: dense.Prepared,
    asked: _Asked,
    left: dense.Integers,
    work: dense.Work,
    room: int,
    most_missed: float,
) -> None:
    """Answer the queries `left`, of which k items are known to reach the floors (-inf: none is).

    Some are searched, and what their floors fell short by tells what bounds the others are likely
    to reach: of Gaussian rows by dis_sim_local 20 items may reach those, 140 the floors. Where the
    k-th best key is below the bound, or where more than k + room items may reach it, the floor is
    what is left; and so it is for all where more than most_missed of those tried first fare so.
    """
    quiet = work._replace(progress=None)
    bounds = asked.floors.copy()
    if len(left) > 2 * (_SHOWN + _TRIED):
        shown = left[:: -(-len(left) // _SHOWN)]
        _search(prepared, asked, shown, quiet)
        left = np.setdiff1d(left, shown, assume_unique=True)
        bounds[left] = likely_bounds(
            asked.floors, asked.queries.norms, prepared.items.offsets[asked.exclusions.own],
            asked.keys[:, -1], shown, left,
        )  # fmt: skip
    tried = left[:: -(-len(left) // _TRIED)]
    missed = _score_reaching(prepared, asked, tried, bounds, room, quiet)
    rest = np.setdiff1d(left, tried, assume_unique=True)
    if len(missed) <= most_missed * len(tried):
        rest = _score_reaching(prepared, asked, rest, bounds, room, work)
    rest = np.union1d(rest, missed)
    if len(rest):
        _search(prepared, asked, rest, quiet)


def likely_bounds(
    floors: dense.Floats,
    norms: dense.Floats,
    worth: dense.Floats,
    found: dense.Floats,
    shown: dense.Integers,
    asked: dense.Integers,
) -> dense.Floats:
    """Keys that the queries `asked` are likely to find k of, never below their floors.

    found: the k-th best keys, known of the queries `shown`. Linear in the floor, the query's norm
    and its square and its worth as an item, in units of the last two, by least squares that weigh
    outliers less; lowered so that one shown query in 64 would miss its own.
    """
    one = np.ones_like(norms)
    known = not np.isneginf(floors).all()
    with np.errstate(all="ignore"):
        squares = norms * norms
        unit = squares + np.abs(worth)
        facts = one, floors if known else one, norms, squares, worth
        of_shown = np.stack([fact[shown] for fact in facts], axis=1) / unit[shown, None]
        wanted = found[shown] / unit[shown]
        if not np.isfinite(of_shown).all() or not np.isfinite(wanted).all():
            return floors[asked]
        # columns differ by many powers of ten
        sizes = np.abs(of_shown).max(axis=0)
        sizes[sizes == 0] = 1
        of_shown /= sizes
        weights = np.ones(len(shown))
        for _ in range(_ROUNDS):
            root = np.sqrt(weights)
            solved = np.linalg.lstsq(of_shown * root[:, None], wanted * root, rcond=None)[0]
            missing = wanted - of_shown @ solved
            usual = 1.5 * np.median(np.abs(missing))
            weights = usual / np.maximum(np.abs(missing), usual) if usual > 0 else weights
        bounds: dense.Floats = np.quantile(missing, _MISSED) * unit
        for factor, fact in zip(solved / sizes, facts, strict=True):
            bounds += factor * fact
        return np.fmax(floors, bounds)[asked]


def _score_reaching(
    prepared: dense.Prepared,
    asked: _Asked,
    some: dense.Integers,
    bounds: dense.Floats,
    room: int,
    work: dense.Work,
) -> dense.Integers:
    """Score all items that may reach the bounds (n,) of some queries; whose answers are missing."""
    if not tiles.AVAILABLE:
        return some
    k = asked.columns.shape[1]
    room = max(1, k + room)
    given = dense.as_wide(asked.queries, prepared.items.rows)
    scaled = dense.packed_queries(prepared, given, asked.exclusions, np.zeros(0, np.uint8))
    block, n_threads = dense.blocks(len(some), room, k, given.rows.shape[1], work)
    parallel.run(
        range_top_k.best_of_reaching_rows, parallel.row_blocks(len(some), block),
        *dense.code_of(prepared), validation.read_only(some), scaled, prepared.items, bounds,
        *dense.tile_types(prepared.tiling), room, parallel.unfilled(len(bounds), np.int64),
        asked.keys, asked.columns,
        n_threads=n_threads, progress=work.progress,
    )  # fmt: skip
    # of what is not listed no key is as high as the bound
    missed = (asked.columns[some, -1] < 0) | (asked.keys[some, -1] < bounds[some])
    found: dense.Integers = some[missed]
    return found


def _search(
    prepared: dense.Prepared,
    asked: _Asked,
    some: dense.Integers,
    work: dense.Work,
    *,
    with_floors: bool = True,
) -> None:
    """Answer some queries by the engine."""
    given = asked.queries
    if len(some) >= _NEARLY_ALL * len(given.rows):
        some = np.arange(len(given.rows))
    if len(some) < len(given.rows):
        given = given.of(some)
    asked.columns[some], asked.keys[some] = dense.search(
        prepared, given, asked.exclusions.of(some), asked.columns.shape[1], work,
        floors=asked.floors[some] if with_floors else None,
    )  # fmt: skip


def best_of_lists(
    listed: dense.Integers, listed_keys: dense.Floats, k: int, work: dense.Work
) -> tuple[dense.Integers, dense.Floats]:
    """The k best of every list (n, c) of items (-1: none) by key, equal keys by lower item."""
    n, c = listed.shape
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    cuts = parallel.row_blocks(n, max(1, _PAIRS_PER_BLOCK // c))
    parallel.run(
        candidate_lists.best_of_lists, cuts, validation.read_only(listed),
        validation.read_only(listed_keys),
        keys, columns,
        n_threads=work.n_threads,
    )  # fmt: skip
    return columns, keys
