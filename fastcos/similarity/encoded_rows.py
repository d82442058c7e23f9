"""Rows that a measure has encoded for a search: validated, and with their norms and biases."""

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
# An empty array stands for a bias of 0 for every item.
NO_BIAS = validation.read_only(np.zeros(0))


class EncodedRows(NamedTuple):
    """Encoded queries or encoded items, with the norms and biases that exact scores need.

    - ``rows`` (n, d): The rows, in C order and read-only. Rows of float16, bfloat16 and other types
      of one or two bytes are stored as integers with the same bits (``parallel.memmap``).
    - ``norms`` (n,): The Euclidean norms of the rows.
    - ``bias`` (n,): The number that is added to the inner products of each item. If all biases are
      0, the array is empty.
    """

    rows: Rows
    norms: Floats
    bias: Floats

    def take(self, numbers: Integers | slice) -> "EncodedRows":
        """Return the rows with these numbers, in this order, with their norms and biases."""
        rows, norms, bias = self
        read_only = validation.read_only
        bias = read_only(bias[numbers]) if len(bias) else bias
        return EncodedRows(read_only(rows[numbers]), read_only(norms[numbers]), bias)


def encode_rows(
    encoded: Rows,
    bias: Floats | None,
    n_threads: int | None,
    metric_type: str,
    *,
    are_input_items: bool = False,
) -> EncodedRows:
    """Validate the rows that a measure has encoded, and compute their norms, in O(n d) time.

    ``are_input_items`` says whether the measure has returned the items of the caller unchanged;
    error messages then call the rows "items". A row with NaN or infinity has a norm of NaN or
    infinity, so the norms suffice to check that all rows are finite. For the cosine, float64 rows
    whose squares would underflow are scaled up, which changes no cosine.
    """
    name, hint, rows = "items", "counted from 0", cast(Any, memmap.as_bits(encoded))
    if rows is encoded:  # The entries have four or eight bytes.
        if not are_input_items:
            name, hint = "rows of a measure", "a zero row has no direction to divide by"
        _check_encoded(rows, bias)
        rows = validation.read_only(np.ascontiguousarray(rows))
    norms = row_norms(rows, n_threads)
    if not np.isfinite(norms).all():
        invalid = np.flatnonzero(~np.isfinite(norms))
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in {validation.format_rows(invalid)} "
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


def _check_encoded(rows: Any, bias: Any) -> None:
    """Raise TypeError or ValueError if a search cannot use the rows or the bias of a measure."""
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.char not in "fd":
        got = f"{getattr(rows, 'dtype', type(rows).__name__)} of shape {np.shape(rows)}"
        raise TypeError(f"rows of a measure must be float32 or float64, (n, d), got {got}")
    if bias is None:
        return
    if np.shape(bias) != (len(rows),) or bias.dtype != np.float64:
        raise ValueError(
            f"item_bias of a measure must be float64 of shape ({len(rows)},), got "
            f"{bias.dtype} of shape {np.shape(bias)}"
        )
    if not np.isfinite(bias).all():
        row = int(np.flatnonzero(~np.isfinite(bias))[0])
        raise ValueError(f"item_bias of a measure must be finite, got {bias[row]} for row {row}")


def row_norms(rows: Rows, n_threads: int | None = None) -> Floats:
    """Return the Euclidean norms (n,) of the rows as a read-only array.

    The rows must be read-only. Rows of one- or two-byte numbers may be stored as integers with the
    same bits (``parallel.memmap``).
    """
    # This function does not request the compilation of kernels for the type of the rows, because
    # the rows may be queries, whose type often differs from that of the items. Only a search
    # requests the compilation, for the type of its items.
    if not readiness.runs_kernels(memmap.from_bits(rows).dtype):
        with readiness.seconds_in_numpy():
            return validation.read_only(row_norms_in_numpy(memmap.from_bits(rows)))
    norms = parallel.unfilled(len(rows), np.float64)
    blocks = parallel.row_blocks(len(rows), max(1, 1_000_000 // rows.shape[1]))
    parallel.run(pair_scores.row_norms, blocks, rows, norms, n_threads=n_threads)
    return validation.read_only(norms)
