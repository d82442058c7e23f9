"""Items whose keys may reach a bound of each query, as the tiles see it: nothing is scored."""

import numpy as np

from fastcos import parallel
from fastcos.engine import scan as dense
from fastcos.kernels import candidate_filter, tiles

_QUERIES_PER_BLOCK = 128


def list_reaching(
    prepared: dense.Prepared,
    queries: dense.Side,
    exclusions: dense.Exclusions,
    bounds: dense.Floats,
    room: int,
    starts: dense.Integers,
    columns: dense.Integers,
    work: dense.Work,
    permitted: dense.Integers | None = None,
    weights: dense.Floats | None = None,
) -> dense.Integers:
    """How many items of each query may have a key of at least bounds (n,); their numbers.

    columns out: the first `room` of them, unordered, from starts (n,) on. None is left out that
    the query may find; some may be there whose keys are below. O(n m d) operations of the tiles.
    permitted: rising numbers of the items that may be found, all that were prepared if None;
    weights (n,): what the items' offsets are multiplied by, at least 0, all 1 if None.
    """
    n, layout = len(bounds), prepared.tiling
    counts = parallel.unfilled(n, np.int64)
    mask = np.zeros(0, np.uint8)
    if permitted is not None:
        mask = np.zeros(len(prepared.items.rows), np.uint8)
        mask[permitted] = 1
    parallel.run(
        candidate_filter.pass_rows, parallel.row_blocks(n, _QUERIES_PER_BLOCK),
        tiles.ISA_TUPLES[layout.isa], dense.FORMS[prepared.form],
        (layout.quantised, layout.unsigned, layout.depth), np.arange(n, dtype=np.int64),
        dense.packed_queries(prepared, queries, exclusions, mask, weights), prepared.items, bounds,
        *dense.tile_types(layout), room, starts, counts, columns,
        n_threads=work.n_threads, progress=work.progress,
    )  # fmt: skip
    return counts
