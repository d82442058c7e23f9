"""Rows as searches take them: transformed by a measure, checked, with their norms and biases."""

from typing import Any, NamedTuple, cast

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import pair_scores
from fastcos.parallel import memmap, readiness
from fastcos.similarity import safe_norms
from fastcos.similarity.numpy_products import row_norms_in_numpy
from fastcos.validation import Floats, Integers, Rows

METRIC_TYPES = {
    "dot": pair_scores.DOT,
    "cosine": pair_scores.COSINE,
    "euclidean": pair_scores.EUCLIDEAN,
}
# no bias: it is 0 for all items
NO_BIAS = validation.read_only(np.zeros(0))


class EncodedRows(NamedTuple):
    """Transformed rows of one side with what the exact scores need.

    rows (n, d), C order, read-only, narrow ones as bits (parallel.memmap); norms (n,); bias
    (n,), added to each item's inner product, or (0,) where it is 0.
    """

    rows: Rows
    norms: Floats
    bias: Floats

    def take(self, numbers: Integers | slice) -> "EncodedRows":
        """Return some of the rows, in the order of numbers."""
        rows, norms, bias = self
        read_only = validation.read_only
        bias = read_only(bias[numbers]) if len(bias) else bias
        return EncodedRows(read_only(rows[numbers]), read_only(norms[numbers]), bias)


def encode_rows(
    transformed: Rows,
    bias: Floats | None,
    n_threads: int | None,
    metric_type: str,
    *,
    as_given: bool = False,
) -> EncodedRows:
    """Check transformed rows and measure their norms. O(n d).

    as_given: they are a caller's items. The norms show NaN and infinity, so that nothing else needs
    to look for them. For the cosine, float64 rows whose squares would underflow are scaled up,
    which no cosine sees.
    """
    name, hint, rows = "items", "counted from 0", cast(Any, memmap.as_bits(transformed))
    if rows is transformed:  # not narrow
        if not as_given:
            name, hint = "rows of a measure", "a zero row has no direction to divide by"
        _check_transformed(rows, bias)
        rows = validation.read_only(np.ascontiguousarray(rows))
    norms = row_norms(rows, n_threads)
    if not np.isfinite(norms).all():
        broken = np.flatnonzero(~np.isfinite(norms))
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in {validation.format_rows(broken)} "
            f"({hint})"
        )
    if metric_type == "cosine" and rows.dtype == np.float64:
        scaled = safe_norms.scale_up(cast(Floats, rows), norms)
        if scaled is not None:
            rows = validation.read_only(scaled[0])
            norms = row_norms(rows, n_threads)
    if bias is None or not bias.any():
        bias = NO_BIAS
    return EncodedRows(rows, norms, validation.read_only(bias))


def _check_transformed(rows: Any, bias: Any) -> None:
    """Refuse what a measure made of rows, if the engine cannot take it."""
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.char not in "fd":
        came = f"{getattr(rows, 'dtype', type(rows).__name__)} of shape {np.shape(rows)}"
        raise TypeError(f"rows of a measure must be float32 or float64, (n, d), got {came}")
    if bias is None:
        return
    if np.shape(bias) != (len(rows),) or bias.dtype != np.float64:
        raise ValueError(
            f"item_bias of a measure must be float64 of shape ({len(rows)},), got "
            f"{bias.dtype} of shape {np.shape(bias)}"
        )
    if not np.isfinite(bias).all():
        at = int(np.flatnonzero(~np.isfinite(bias))[0])
        raise ValueError(f"item_bias of a measure must be finite, got {bias[at]} for row {at}")


def row_norms(rows: Rows, n_threads: int | None = None) -> Floats:
    """Return the Euclidean norms (n,) of read-only rows, which may be bits of narrow ones."""
    kernel = pair_scores.row_norms
    if not parallel.has_run(kernel) and readiness.use_numpy(memmap.from_bits(rows).dtype):
        with readiness.seconds_in_numpy():
            return validation.read_only(row_norms_in_numpy(memmap.from_bits(rows)))
    norms = parallel.unfilled(len(rows), np.float64)
    blocks = parallel.row_blocks(len(rows), max(1, 1_000_000 // rows.shape[1]))
    parallel.run(kernel, blocks, rows, norms, n_threads=n_threads)
    return validation.read_only(norms)
