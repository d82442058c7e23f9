"""Every pair of rows whose score reaches a threshold, as a sparse matrix."""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import parallel, validation
from fastcos.engine import scan as dense
from fastcos.engine.range_candidates import list_reaching
from fastcos.kernels import exhaustive_top_k
from fastcos.measures import Bounded, Measure, checks, get_measure
from fastcos.neighbors.search import as_exclusions, as_work

_BYTES_PER_PAIR = 8 + 8 + 4 + 8


def neighbors_above(
    queries: Any,
    threshold: float,
    items: Any = None,
    *,
    measure: str | Measure = "cosine",
    max_memory: float | None = None,
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
) -> sp.csr_array:
    """All pairs with a score of at least threshold.

    Exact: by the float64 scores. Pairs are counted before anything is allocated. Time 2 O(n m d).

    Parameters
    ----------
    queries : array_like (n, d), float32 or float64
        One row per query.
    threshold : float
        Least score of a pair that is wanted.
    items : array_like (m, d), optional
        None: the queries themselves; a row is then not paired with itself.
    measure : str or Measure
        As in :func:`fastcos.top_k`.
    max_memory : float, optional
        MiB that the answer may take while it is made. Default: the setting ``working_memory``.
    n_threads : int, optional
        Default: the setting ``num_threads``.
    progress : callable, optional
        Called as progress(done, total) with numbers of queries, once while counting and once more.

    Returns
    -------
    csr_array (n, m), float32
        The scores; columns rise within a row. A pair of score 0 is kept as an explicit zero.

    Raises
    ------
    ValueError
        More pairs than max_memory holds, NaN or infinity, rows of different width.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import neighbors_above
    >>> X = np.array([[3.0, 4.0], [4.0, 3.0], [0.0, 1.0]])
    >>> neighbors_above(X, 0.9).toarray().astype(float).round(2).tolist()
    [[0.0, 0.96, 0.0], [0.96, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    given = validation.as_rows("queries", queries)
    searched = given if items is None else validation.as_rows("items", items)
    validation.check_same_width("items", searched, "queries", given)
    validation.check_scorable("queries", given, searched)
    least = validation.as_real("threshold", threshold)
    work = as_work(n_threads, max_memory, progress)
    fitted = get_measure(measure).fit(searched)
    checks.as_reduced("measure", fitted, bounded=isinstance(fitted, Bounded))
    offsets = fitted.item_offsets(searched)
    right = dense.side(fitted.items(searched), offsets, n_threads, fitted.form)
    left = dense.side(fitted.queries(given), None, n_threads, fitted.form)
    exclusions = as_exclusions(None, len(given), len(searched), items is None)
    bounds = _least_keys(fitted, given, least)
    prepared = dense.prepare(
        fitted.form, right, np.arange(len(searched), dtype=np.int64), n_threads
    )
    starts, columns = _candidates(prepared, left, exclusions, bounds, work)
    counts, keys = np.diff(starts), parallel.unfilled(len(columns), np.float64)
    parallel.run(
        exhaustive_top_k.keep_above, parallel.work_blocks(starts, 100_000),
        dense.FORMS[fitted.form],
        left.rows, left.norms, right.rows, right.norms, right.offsets, bounds, starts[:-1], counts,
        columns, keys,
        n_threads=n_threads,
    )  # fmt: skip
    return _as_csr(fitted, given, starts, counts, columns, keys, (len(given), len(searched)))


def _least_keys(measure: Measure, given: validation.Rows, least: float) -> dense.Floats:
    """Least key of each query whose finished score is at least `least`: finish never decreases."""
    highest = 0.0 if measure.form == "euclidean" else np.finfo(np.float64).max
    low = np.full((len(given), 1), -np.finfo(np.float64).max)
    high = np.full((len(given), 1), highest)
    high_is_enough = measure.finish(high.copy(), given) >= least
    # halve the whole numbers that stand for the floats: 64 steps reach neighbours
    low_code, high_code = _ordered(low), _ordered(high)
    for _ in range(64):
        middle = (low_code >> 1) + (high_code >> 1) + (low_code & high_code & 1)
        enough = measure.finish(_as_floats(middle), given) >= least
        high_code = np.where(enough, middle, high_code)
        low_code = np.where(enough, low_code, middle)
    found = np.where(measure.finish(low.copy(), given) >= least, low, _as_floats(high_code))
    return np.ascontiguousarray(np.where(high_is_enough, found, np.inf)[:, 0])


def _ordered(values: dense.Floats) -> npt.NDArray[np.int64]:
    """Whole numbers in the order of the floats."""
    bits = values.view(np.int64)
    return np.where(bits < 0, np.int64(-(2**63)) - bits, bits)


def _as_floats(codes: npt.NDArray[np.int64]) -> dense.Floats:
    bits = np.where(codes < 0, np.int64(-(2**63)) - codes, codes)
    return np.ascontiguousarray(bits).view(np.float64)


def _candidates(
    prepared: dense.Prepared,
    queries: dense.Side,
    exclusions: dense.Exclusions,
    bounds: dense.Floats,
    work: dense.Work,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Starts (n + 1,) and columns of all pairs that may reach their bound."""
    n = len(bounds)
    starts, columns = np.zeros(n + 1, np.int64), np.zeros(0, np.int64)
    for room in (0, len(prepared.items.rows)):
        counts = list_reaching(
            prepared, queries, exclusions, bounds, room, starts[:-1], columns, work
        )
        if room == 0:
            np.cumsum(counts, out=starts[1:])
            validation.check_memory(
                "max_memory", work.working_memory, float(starts[-1] * _BYTES_PER_PAIR)
            )
            columns = parallel.unfilled(int(starts[-1]), np.int64)
    return starts, columns


def _as_csr(
    measure: Measure,
    given: validation.Rows,
    starts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    keys: dense.Floats,
    shape: tuple[int, int],
) -> sp.csr_array:
    indptr = np.append(0, np.cumsum(counts))
    kept = np.repeat(starts[:-1] - indptr[:-1], counts) + np.arange(indptr[-1])
    indices, values = columns[kept], keys[kept]
    scores = np.empty(len(values), np.float32)
    for first in range(0, len(given), 4096):
        last = min(first + 4096, len(given))
        part = slice(indptr[first], indptr[last])
        rows = np.repeat(np.arange(first, last), counts[first:last])
        scores[part] = measure.finish(values[part, None], given[rows])[:, 0]
    pairs = sp.csr_array((scores, indices, indptr), shape=shape)
    pairs.sort_indices()
    return pairs
