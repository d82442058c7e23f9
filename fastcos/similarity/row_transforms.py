"""Functions that several measures share: transforms of rows, and exact scores of pairs of rows."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fastcos import parallel
from fastcos.kernels import row_transforms
from fastcos.parallel import buffer_pool, memmap
from fastcos.similarity import kernel_records
from fastcos.similarity.base import Measure, is_upper_bounded
from fastcos.similarity.encoded_rows import NO_BIAS, EncodedRows, row_norms
from fastcos.similarity.row_maps import as_contiguous, fingerprints, row_cuts
from fastcos.similarity.safe_norms import scale_up
from fastcos.validation import Floats, Integers, Rows

# Number of pairs whose rows are copied and scored at once.
_PAIRS_AT_ONCE = 2**15
# Number of rows that are hashed at once.
_HASHED_AT_ONCE = 8192


def norms_of(rows: Rows) -> Floats:
    """Return the Euclidean norms (n,) of rows, even if squares of their entries would underflow."""
    _, norms, exponents = _scale_up(rows)
    return norms if exponents is None else np.ldexp(norms, -exponents)


def scaled_up_rows(rows: Rows) -> Rows:
    """Return the rows; float64 rows with underflowing squares are multiplied by powers of 2."""
    return _scale_up(rows)[0]


def _scale_up(rows: Rows) -> tuple[Rows, Floats, npt.NDArray[np.intc] | None]:
    """Return the scaled rows, their norms, and the exponents e of the scales 2^e.

    The exponents are None if no row was scaled.
    """
    norms = row_norms(as_contiguous(rows))
    scaled = None if rows.dtype == np.float32 else scale_up(cast(Floats, rows), norms)
    if scaled is None:
        return rows, norms, None
    return scaled[0], row_norms(as_contiguous(scaled[0])), scaled[1]


def unit_rows(rows: Rows, factors: Floats | None = None) -> Floats:
    """Return the rows scaled to unit norm, float64; zero rows stay zero.

    If ``factors`` (n,) is not None, each unit row is multiplied by its factor.
    """
    rows, norms, _ = _scale_up(rows)
    factors = np.ones(len(rows)) if factors is None else factors
    units = buffer_pool.empty(rows.shape, np.float64)
    parallel.run(
        row_transforms.unit_rows, row_cuts(rows, 1), as_contiguous(rows), norms, factors, units
    )
    return units


def count_duplicates(rows: Rows) -> int:
    """Return the number of nonzero rows whose 64-bit hash equals the hash of an earlier row."""
    hashes = np.concatenate(
        [
            fingerprints(block[block.any(axis=1)])
            for _, block in memmap.iter_blocks("items", rows, _HASHED_AT_ONCE)
        ]
    )
    return len(hashes) - len(np.unique(hashes))


def list_scores(
    metric_type: str, queries: Rows, items: Rows, columns: Integers, norms: Floats | None = None
) -> Floats:
    """Return the raw scores (n, k) of each query with the items in its list, without biases.

    ``columns`` (n, k) contains the row numbers of the items in the list of each query. ``norms``
    (p,) contains the norms of the items; if it is None, the function computes the norms.
    """
    norms = norms_of(items) if norms is None else norms
    queries, items = same_type(queries, items)
    return over_lists(
        row_transforms.list_scores, columns,
        kernel_records.pair_scoring(
            metric_type, EncodedRows(queries, norms_of(queries), NO_BIAS),
            EncodedRows(items, norms, NO_BIAS),
        ),
        columns,
    )  # fmt: skip


def pair_scores(measure: Measure, rows: Rows, pairs: Integers) -> Floats:
    """Return the float64 scores (m,) of pairs (m, 2) of rows, as ``top_k`` would return them.

    If the rows are on disk, only the rows of the pairs are read.
    """
    row_numbers, positions = np.unique(pairs, return_inverse=True)
    rows = memmap.take_rows("vectors", rows, row_numbers)
    pairs = positions.reshape(pairs.shape)
    bias = norms = None
    if is_upper_bounded(measure):
        items: Any = measure.precompute(rows)
    else:
        items, bias = measure.encode_items(rows), measure.item_bias(rows)
        norms = norms_of(items)
    scores = np.empty(len(pairs))
    for lo in range(0, len(pairs), _PAIRS_AT_ONCE):
        part = pairs[lo : lo + _PAIRS_AT_ONCE]
        queries, columns = rows[part[:, 0]], np.ascontiguousarray(part[:, 1:])
        if is_upper_bounded(measure):
            raw = measure.rescore(queries, items, columns)
        else:
            encoded = measure.encode_queries(queries)
            raw = list_scores(measure.metric_type, encoded, items, columns, norms)
        if bias is not None:
            raw = raw + bias[columns]
        scores[lo : lo + len(part)] = measure.to_score(raw, queries)[:, 0]
    return scores


def over_lists(
    kernel: Any, columns: Integers, *arguments: Any, pairs_per_task: int = 20_000
) -> Floats:
    """Return the scores (n, k) that a kernel computes for each query and its list of items.

    ``columns`` (n, k) contains the row numbers of the items in the list of each query. A thread
    scores ``pairs_per_task`` pairs in one task.
    """
    scores = parallel.unfilled(columns.shape, np.float64)
    blocks = parallel.row_blocks(len(columns), max(1, pairs_per_task // columns.shape[1]))
    inputs = (as_contiguous(a) if isinstance(a, np.ndarray) else a for a in arguments)
    parallel.run(kernel, blocks, *inputs, scores)
    return scores


def inverses(values: Floats) -> Floats:
    """Return 1 / value for each value, or 0 if the value is 0."""
    return np.divide(1.0, values, out=np.zeros(len(values)), where=values > 0)


def same_type(*arrays: Rows) -> tuple[Rows, ...]:
    """Return the arrays unchanged if all have the same type; otherwise convert all to float64."""
    if len({array.dtype for array in arrays}) == 1:
        return arrays
    return tuple(array.astype(np.float64, copy=False) for array in arrays)
