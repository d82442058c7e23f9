"""The dense search engine under ``top_k`` and ``SimilarityIndex``: prepare items once, search."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, threads, validate
from fastcos.kernels import pair_scores, topk
from fastcos.measures import Measure

Rows = validate.Rows
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FORMS = {
    "dot": pair_scores.DOT,
    "cosine": pair_scores.COSINE,
    "euclidean": pair_scores.EUCLIDEAN,
}


class Side(NamedTuple):
    """Transformed rows of one side with what the exact scores need."""

    rows: Rows
    norms: Floats
    offsets: Floats


class Exclusions(NamedTuple):
    """Items that a query may not find: one of its own (or -1), and a CSR of others."""

    own: Integers
    indptr: Integers
    indices: Integers


def no_exclusions(n_queries: int) -> Exclusions:
    """Every query may find every item."""
    empty = np.zeros(0, np.int64)
    return Exclusions(
        np.full(n_queries, -1, np.int64), np.zeros(n_queries + 1, np.int64), empty
    )


def side(rows: Rows, offsets: Floats | None, n_threads: int | None) -> Side:
    """Norms of the rows, and offsets 0 where there are none."""
    rows = validate.read_only(np.ascontiguousarray(rows))
    norms = threads.poisoned(len(rows), np.float64)
    cuts = threads.cuts_by_rows(len(rows), max(1, 4_000_000 // rows.shape[1]))
    threads.run(pair_scores.row_norms, cuts, rows, norms, n_threads=n_threads)
    if offsets is None:
        offsets = np.zeros(len(rows))
    return Side(rows, validate.read_only(norms), validate.read_only(offsets))


def search(
    measure: Measure,
    queries: Side,
    items: Side,
    candidates: Integers,
    exclusions: Exclusions,
    k: int,
    n_threads: int | None = None,
    progress: threads.Progress | None = None,
) -> tuple[Integers, Floats]:
    """Columns (n, k) and keys (n, k) of the best candidates of every query."""
    n, depth = queries.rows.shape
    columns = threads.poisoned((n, k), np.int64)
    keys = threads.poisoned((n, k), np.float64)
    cuts = threads.cuts_by_rows(n, max(1, 50_000_000 // (len(candidates) * (depth + 16))))
    threads.run(
        topk.score_all_rows,
        cuts,
        FORMS[measure.form],
        queries.rows,
        queries.norms,
        items.rows,
        items.norms,
        items.offsets,
        candidates,
        *exclusions,
        -np.inf,
        keys,
        columns,
        n_threads=n_threads,
        progress=progress,
    )
    return columns, keys
