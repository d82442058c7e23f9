"""Exact neighbours by a measure that one inner product tells apart once a floor is known.

A floor is guessed for every query from a sample of the items, all that may reach it are listed, the
lists are narrowed and scored. Where fewer than k reach it, it is lowered and all begins anew: what
the guess was cannot show in the answer.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel
from fastcos.engine import scan as dense
from fastcos.engine.range_candidates import list_reaching
from fastcos.engine.seeds import best_of_lists
from fastcos.kernels import candidate_filter, tiles
from fastcos.linalg import buffer_pool
from fastcos.measures import Measure, Sharp, SharpRows
from fastcos.neighbors.filter_refine import Asked, finished

# queries and items that tell a usual floor
_QUERIES_ASKED, _ITEMS_ASKED = 16, 2048
# one panel of so many is sampled; queries whose panels are sampled together
_SAMPLED, _QUERIES_PER_BLOCK = 4, 256
# columns listed for a query, and how many times more where they were too few
_ROOM, _WIDER = 256, 8
# queries that are searched together, a thread; lists that are padded to one length, where they
# are longer than this beside 2 k
_PER_THREAD, _TOGETHER, _SHORT = 4096, 1024, 12
# queries that show whether all are alike, and how many of them may reach less
_FIRST, _RARE = 1024, 0.01
# floors are lowered so often; the first time by this share
_LOWERINGS, _STEP = 6, 0.05


class _Items(NamedTuple):
    """What is searched: facts for exact keys, what tells them apart, and that in panels."""

    facts: Any
    sharp: SharpRows
    prepared: dense.Prepared
    n: int


def serves(measure: Measure, n_queries: int) -> bool:
    """Whether so many queries are searched here by this measure."""
    many = n_queries > dense.SCORES_PER_PACKING
    return many and isinstance(measure, Sharp) and tiles.AVAILABLE


def search(
    measure: Sharp,
    asked: Asked,
    searched: dense.Rows,
    numbers: dense.Integers,
    min_score: float | None,
    work: dense.Work,
) -> tuple[dense.Integers, Any]:
    """Indices (n, k) and scores (n, k) of all queries among the items numbers, which rise."""
    n, k = asked.n, asked.k
    sharp = measure.sharp_rows(searched)
    side = dense.side(*sharp, work.n_threads)
    prepared = dense.prepare("dot", side, numbers, work.n_threads)
    items = _Items(measure.facts(searched), sharp, prepared, len(numbers))
    usual = _usual_floor(measure, asked, items, numbers)
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    for some in _parts(np.arange(n), int(work.working_memory / (32 * sharp.rows.shape[1]))):
        part = asked.of(some)
        mapped = sharp.of(some) if asked.rows is searched else measure.sharp_rows(part.rows)
        columns[some], keys[some] = _lowering(measure, part, mapped, items, usual, work)
        if work.progress is not None:
            work.progress(int(some[-1]) + 1, n)
    return finished(measure, asked, columns, keys, min_score, work)


def _parts(numbers: dense.Integers, size: int) -> Iterator[dense.Integers]:
    size = max(1, size)
    return (numbers[first : first + size] for first in range(0, len(numbers), size))


def _sample_rank(k: int, n_items: int, n_sampled: int) -> float:
    """A rank in a sample that fewer than k of all items reach in a few cases of a hundred."""
    expected = k * n_sampled / n_items
    return expected + 2 * math.sqrt(expected) + 1.5


def _usual_floor(
    measure: Sharp, asked: Asked, items: _Items, numbers: dense.Integers
) -> dense.Floats:
    """The exact key (1,) that about k items of a middling query reach."""
    sample = numbers[:: -(-len(numbers) // _ITEMS_ASKED)]
    some = np.arange(0, asked.n, -(-asked.n // _QUERIES_ASKED))
    part = asked.of(some)
    exact = measure.rescore(part.rows, items.facts, np.tile(sample, (len(some), 1)))
    exact[sample == part.exclusions.own[:, None]] = -np.inf
    rank = min(len(sample), int(_sample_rank(asked.k, items.n, len(sample))))
    floors = np.sort(exact, axis=1)[:, -rank]
    floors = floors[np.isfinite(floors)]
    return np.median(floors, keepdims=True) if len(floors) else np.full(1, -np.inf)


def _guessed(
    measure: Sharp,
    mapped: SharpRows,
    items: _Items,
    k: int,
    usual: dense.Floats,
    work: dense.Work,
) -> dense.Floats:
    """Exact keys (n,) that rather more than k items of each query are likely to reach."""
    n, prepared = len(mapped.rows), items.prepared
    n_panels = len(prepared.items.statistics)
    stride = max(1, min(_SAMPLED, n_panels // 64))
    panels = n_panels // stride
    rank = _sample_rank(k, stride, 1)
    # no panel counts twice
    rank = int(panels * -math.expm1(-rank / panels)) + 1
    usual = np.repeat(usual, n)
    if rank > panels // 2 or not np.isfinite(usual).all():
        return np.full(n, -np.inf)
    asked = measure.sharp_queries(mapped, usual)
    side = dense.side(asked.rows, None, work.n_threads)
    nothing = dense.no_exclusions(n, own=False)
    layout, keys = prepared.tiling, parallel.unfilled(n, np.float64)
    parallel.run(
        candidate_filter.guess_keys, parallel.row_blocks(n, _QUERIES_PER_BLOCK),
        tiles.ISA_TUPLES[layout.isa], (layout.quantised, layout.unsigned, layout.depth),
        dense.packed_queries(prepared, side, nothing, np.zeros(0, np.uint8), asked.weights),
        prepared.items,
        stride, rank, *dense.tile_types(layout), keys,
        n_threads=work.n_threads,
    )  # fmt: skip
    return measure.likely(usual, keys)


def _lowering(
    measure: Sharp,
    asked: Asked,
    mapped: SharpRows,
    items: _Items,
    usual: dense.Floats,
    work: dense.Work,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns and exact keys of the k best, by floors that are lowered until k items reach them."""
    shape = asked.n, asked.k
    columns, keys = parallel.unfilled(shape, np.int64), parallel.unfilled(shape, np.float64)
    every, step = np.arange(asked.n), _STEP
    first, others = every[:_FIRST], every[_FIRST:]
    floors = _guessed(measure, mapped.of(first), items, asked.k, usual, work)
    if len(others):
        _, exact = _reaching(measure, asked.of(first), mapped.of(first), items, floors, work)
        # where queries are alike, what nearly all of some reach says more than a sample of items
        common = np.quantile(exact[:, -1], _RARE, method="lower")
        if common >= np.median(floors):
            floors = np.append(floors, np.full(len(others), common))
        else:
            parts = _parts(others, _PER_THREAD * work.size)
            guesses = (
                _guessed(measure, mapped.of(some), items, asked.k, usual, work) for some in parts
            )
            floors = np.concatenate([floors, *guesses])
    left = every
    for lowered in range(_LOWERINGS + 1):
        part, own = (asked, mapped) if not lowered else (asked.of(left), mapped.of(left))
        found = _reaching(measure, part, own, items, floors, work)
        columns[left], keys[left] = found
        worst = found[1][:, -1]
        few = np.flatnonzero(worst < floors)
        if not len(few):
            break
        left, worst, floors = left[few], worst[few], floors[few]
        # k are known to reach the worst of k, whatever it is
        lower = floors - step * (1 + np.abs(floors)) if lowered < _LOWERINGS - 1 else -np.inf
        floors = np.where(np.isfinite(worst), worst, lower)
        step *= 2
    return columns, keys


def _reaching(
    measure: Sharp,
    asked: Asked,
    mapped: SharpRows,
    items: _Items,
    floors: dense.Floats,
    work: dense.Work,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns and exact keys of the k best among all items that may reach the floors."""
    n, k = asked.n, asked.k
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    quiet = work._replace(progress=None)
    left, room = np.arange(n), min(_ROOM, items.n)
    size = max(room, min(n, _PER_THREAD * work.size) * room)
    buffer = buffer_pool.empty((min(size, max(room, int(work.working_memory / 32))),), np.int64)
    while len(left):
        longer = []
        for some in _parts(left, len(buffer) // room):
            if len(buffer) < room * len(some):
                buffer = np.empty(room * len(some), np.int64)
            part, own = asked.of(some), mapped.of(some)
            queries = measure.sharp_queries(own, floors[some])
            listed = buffer[: room * len(some)].reshape(len(some), room)
            counts = list_reaching(
                items.prepared, dense.side(queries.rows, None, work.n_threads), part.exclusions,
                queries.least, room, np.arange(0, listed.size, room), listed.reshape(-1), quiet,
                weights=queries.weights,
            )  # fmt: skip
            longer.append(some[counts > room])
            counts[counts > room] = 0
            measure.narrow(own, items.sharp, k, counts, listed)
            columns[some], keys[some] = _best(measure, part, items.facts, counts, listed, work)
        left = np.concatenate(longer)
        room = min(items.n, _WIDER * room)
    return columns, keys


def _best(
    measure: Sharp,
    asked: Asked,
    facts: Any,
    counts: dense.Integers,
    listed: dense.Integers,
    work: dense.Work,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns and exact keys of the best k of the first counts (n,) of listed (n, room)."""
    shape = asked.n, asked.k
    columns, keys = parallel.unfilled(shape, np.int64), parallel.unfilled(shape, np.float64)
    short = 2 * asked.k + _SHORT
    longer = np.flatnonzero(counts > short)
    longer = longer[np.argsort(counts[longer], kind="stable")]
    parts = np.flatnonzero(counts <= short), *map(np.sort, _parts(longer, _TOGETHER))
    for few in filter(len, parts):
        c = int(counts[few].max(initial=1))
        lists = np.where(np.arange(c) < counts[few, None], listed[few, :c], -1)
        exact = measure.rescore(asked.of(few).rows, facts, lists)
        columns[few], keys[few] = best_of_lists(lists, exact, asked.k, work)
    return columns, keys
