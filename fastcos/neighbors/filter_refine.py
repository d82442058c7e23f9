"""Exact neighbours by measures that are no inner product: bound, re-score, certify, list."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel
from fastcos.engine import scan as dense
from fastcos.engine.range_candidates import list_reaching
from fastcos.engine.seeds import best_of_lists
from fastcos.kernels import tiles
from fastcos.measures import Bounded, Floored

# candidates of the first search beside k
_MORE = 14
# columns listed for a query, and how many times more where they were too few
_ROOM, _WIDER = 256, 8
_BYTES_PER_CANDIDATE = 128
# queries that are re-scored together: lists of like lengths are padded to one
_TOGETHER = 1024
_DOUBLINGS, _HALVINGS = 40, 6


class Engine(NamedTuple):
    """How the items of a search are found.

    find(side, exclusions, work, width) returns columns (n, width) and keys, best first; prepare()
    the items in panels; of them only those permitted, all if None; n_items: how many those are;
    known: the transformed queries, where they are there already.
    """

    find: Callable[..., tuple[dense.Integers, dense.Floats]]
    prepare: Callable[[], dense.Prepared]
    n_items: int
    permitted: dense.Integers | None = None
    known: dense.Side | None = None


class Asked(NamedTuple):
    """Queries as given, what they may not find, and how many each is to find."""

    rows: dense.Rows
    exclusions: dense.Exclusions
    k: int

    @property
    def n(self) -> int:
        """How many; the rows of bags may be sparse, and those have no len."""
        return int(self.rows.shape[0])

    def of(self, some: dense.Integers) -> "Asked":
        """Some of the queries, rising numbers; all of them as they are."""
        if len(some) == self.n:
            return self
        first, last = int(some[0]), int(some[-1]) + 1
        if last - first == len(some):
            return Asked(self.rows[first:last], self.exclusions.of_rows(first, last), self.k)
        return Asked(self.rows[some], self.exclusions.of(some), self.k)


def in_chunks(
    measure: Bounded,
    asked: Asked,
    searched: dense.Rows,
    min_score: float | None,
    work: dense.Work,
    engine: Engine,
) -> tuple[dense.Integers, Any]:
    """Indices (n, k) and scores (n, k) of all queries.

    The first search has k + 14 candidates. A query is done when its k-th best score exceeds what
    the measure says is the most that anything else could have. For the others that score tells
    which engine's key an item needs to be as good: all that may have it are listed and scored. In
    the worst case that is O(m) exact scores a query; memory stays working_memory.
    """
    n, k = asked.n, asked.k
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    loose = parallel.unfilled(n, np.float64)
    facts = measure.facts(searched)
    width = min(engine.n_items, k + _MORE)
    left = []
    for some in _chunks(np.arange(n, dtype=np.int64), width, work):
        part = asked.of(some)
        side = engine.known
        if side is None or part is not asked:
            side = dense.side(measure.queries(part.rows), None, work.n_threads, measure.form)
        listed, listed_keys = engine.find(side, part.exclusions, work, width)
        columns[some], keys[some] = _best(measure, part, facts, listed, work)
        loose[some] = listed_keys[:, -1]
        sure = (width >= engine.n_items) | (listed[:, -1] < 0)
        sure |= keys[some, -1] > measure.bound(part.rows, loose[some])
        left.append(some[~sure])
    some = np.concatenate(left)
    if len(some):
        floors = Floors(keys[some, -1], loose[some])
        rest = _reaching(measure, asked.of(some), facts, floors, work, engine)
        columns[some], keys[some] = rest
    return finished(measure, asked, columns, keys, min_score, work)


def finished(
    measure: Bounded,
    asked: Asked,
    columns: dense.Integers,
    keys: dense.Floats,
    min_score: float | None,
    work: dense.Work,
) -> tuple[dense.Integers, Any]:
    """Indices (n, k) and scores (n, k) from columns and exact keys."""
    n, k = asked.n, asked.k
    scores = parallel.unfilled((n, k), np.float32)
    for some in _chunks(np.arange(n, dtype=np.int64), k, work):
        final = measure.finish(keys[some], asked.of(some).rows)
        if min_score is not None:
            columns[some] = np.where(final < min_score, -1, columns[some])
        scores[some] = final
    scores[columns < 0] = -np.inf
    return columns, scores


class Floors(NamedTuple):
    """Of each query: an exact key that its k best reach, and the engine's key that is listed."""

    keys: dense.Floats
    loose: dense.Floats


def _chunks(queries: dense.Integers, width: int, work: dense.Work) -> Iterator[dense.Integers]:
    """Queries in parts whose lists of this width fit the working memory."""
    size = max(1, int(work.working_memory / (_BYTES_PER_CANDIDATE * width)))
    for first in range(0, len(queries), size):
        yield queries[first : first + size]


def _best(
    measure: Bounded,
    asked: Asked,
    facts: Any,
    listed: dense.Integers,
    work: dense.Work,
    floors: dense.Floats | None = None,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns and exact keys of the best k of every list (n, c), -1 for no item.

    floors (n,): keys that are known to be reached by k items of the list.
    """
    there = np.maximum(listed, 0)
    if floors is not None and isinstance(measure, Floored):
        exact = measure.rescore_above(asked.rows, facts, there, floors)
    else:
        exact = measure.rescore(asked.rows, facts, there)
    return best_of_lists(listed, exact, asked.k, work)


def _reaching(
    measure: Bounded,
    asked: Asked,
    facts: Any,
    floors: Floors,
    work: dense.Work,
    engine: Engine,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns and exact keys of the k best among all items that may reach the floors."""
    n, k = asked.n, asked.k
    prepared, form = engine.prepare(), measure.form
    rows, least = measure.queries(asked.rows), _least_keys(measure, asked.rows, floors)
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    left, room = np.arange(n, dtype=np.int64), min(_ROOM, engine.n_items)
    while len(left):
        longer = []
        for some in _chunks(left, room, work):
            part = asked.of(some)
            side = dense.side(rows[some], None, work.n_threads, form)
            listed = np.full((len(some), room), -1, np.int64)
            counts = _list(prepared, side, part, least[some], listed, work, engine.permitted)
            order = np.argsort(counts, kind="stable")
            fits = order[: np.searchsorted(counts[order], room, side="right")]
            for first in range(0, len(fits), _TOGETHER):
                few = np.sort(fits[first : first + _TOGETHER])
                lists = np.ascontiguousarray(listed[few, : max(k, counts[few].max())])
                columns[some[few]], keys[some[few]] = _best(
                    measure, part.of(few), facts, lists, work, floors.keys[some[few]]
                )
            longer.append(some[counts > room])
        left = np.concatenate(longer)
        room = min(engine.n_items, _WIDER * room)
    return columns, keys


def _list(
    prepared: dense.Prepared,
    side: dense.Side,
    asked: Asked,
    least: dense.Floats,
    listed: dense.Integers,
    work: dense.Work,
    permitted: dense.Integers | None,
) -> dense.Integers:
    """Fill listed (n, room) with the items that may reach least (n,); how many there are."""
    n, room = listed.shape
    if tiles.AVAILABLE:
        starts = np.arange(0, n * room, room, dtype=np.int64)
        flat = listed.reshape(-1)
        quiet = work._replace(progress=None)
        return list_reaching(
            prepared, side, asked.exclusions, least, room, starts, flat, quiet, permitted
        )
    found = np.sort(prepared.items.order) if permitted is None else permitted
    counts = np.empty(n, np.int64)
    for i in range(n):
        of = asked.exclusions
        out = of.indices[of.indptr[i] : of.indptr[i + 1]]
        every = found[(found != of.own[i]) & ~np.isin(found, out)]
        counts[i] = len(every)
        listed[i, : min(room, len(every))] = every[:room]
    return counts


def _least_keys(measure: Bounded, Q: dense.Rows, floors: Floors) -> dense.Floats:
    """Engine's keys (n,) below which nothing has an exact key as high as the floors.

    Below the listed keys, by steps that double until the bound is below the floor, and then by
    halving the last step. -inf where no key is that low.
    """
    step = 0.01 * np.abs(floors.loose) + 1e-9
    least, enough = floors.loose - step, floors.loose.copy()
    high = np.arange(len(step))
    for _ in range(_DOUBLINGS):
        high = high[measure.bound(Q[high], least[high]) >= floors.keys[high]]
        enough[high] = least[high]
        step[high] *= 2
        least[high] -= step[high]
    least[high] = -np.inf
    some = np.flatnonzero(np.isfinite(least))
    Q, low, enough = Q[some], least[some], enough[some]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + enough)
        below = measure.bound(Q, middle) < floors.keys[some]
        low, enough = np.where(below, middle, low), np.where(below, enough, middle)
    least[some] = low
    return least
