"""Rows that a measure has encoded for a search: validated, and with their norms and biases.

``encode_queries`` and ``encode_items`` call the methods of the measure, and ``match_type`` converts
encoded queries to the number type in which the items are searched.
"""

from typing import Any, NamedTuple, cast

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import pair_scores, records
from fastcos.parallel import memmap, readiness
from fastcos.similarity import safe_norms
from fastcos.similarity.base import Measure
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
    - ``bias`` (n,): For each item, the number that is added to every inner product of a query with
      this item. If all biases are 0, the array is empty.
    """

    rows: Rows
    norms: Floats
    bias: Floats

    def take(self, numbers: Integers | slice) -> "EncodedRows":
        """Return the rows at the indices ``numbers``, with their norms and biases."""
        rows, norms, bias = self
        read_only = validation.read_only
        bias = read_only(bias[numbers]) if len(bias) else bias
        return EncodedRows(read_only(rows[numbers]), read_only(norms[numbers]), bias)


def encode_items(measure: Measure, B: Rows, n_threads: int | None) -> EncodedRows:
    """Return the items as a fitted measure encodes them, with their norms and biases."""
    validation.check_scorable("items", B, B)
    encoded, bias = measure.encode_items(B), measure.item_bias(B)
    return encode_rows(encoded, bias, n_threads, measure.metric_type, are_input_items=encoded is B)


def encode_queries(measure: Measure, Q: Rows, n_threads: int | None) -> EncodedRows:
    """Return the queries, encoded by a fitted measure, and their norms."""
    validation.check_scorable("queries", Q, Q)
    return encode_rows(measure.encode_queries(Q), None, n_threads, measure.metric_type)


def encode_rows(
    encoded: Rows,
    bias: Floats | None,
    n_threads: int | None,
    metric_type: str,
    *,
    are_input_items: bool = False,
) -> EncodedRows:
    """Validate the rows that a measure has encoded, and compute their norms, in O(n d) time.

    ``are_input_items`` is True if the measure has returned the items of the caller unchanged; error
    messages then call the rows "items". A row with NaN or infinity has a norm of NaN or infinity,
    so the norms suffice to check that all rows are finite. If the score is the cosine, float64 rows
    whose squares would underflow are scaled up; scaling a row changes no cosine.
    """
    name, hint, rows = "items", "counted from 0", cast(Any, memmap.as_bits(encoded))
    if rows is encoded:  # The entries of the rows have four or eight bytes.
        if not are_input_items:
            name, hint = "rows of a measure", "the measure may have divided a zero row by its norm"
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
        raise TypeError(f"rows of a measure must be a float32 or float64 array (n, d), got {got}")
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

    The rows must be read-only. Rows whose numbers have one or two bytes may also be passed as
    integers that have the same bits (``parallel.memmap``).
    """
    # This function does not start the compilation of kernels; only a search does.
    if not readiness.runs_kernels():
        with readiness.seconds_in_numpy():
            return validation.read_only(row_norms_in_numpy(memmap.from_bits(rows)))
    norms = parallel.unfilled(len(rows), np.float64)
    blocks = parallel.row_blocks(len(rows), max(1, 1_000_000 // rows.shape[1]))
    parallel.run(pair_scores.row_norms, blocks, records.rows_of(rows), norms, n_threads=n_threads)
    return validation.read_only(norms)


def match_type(queries: EncodedRows, items: Rows) -> EncodedRows:
    """Convert queries to the type in which the items are searched; all scores stay the same.

    If the items are not float32, queries are searched in float64, because float64 represents all
    numbers of the queries exactly. If the items are float32, and float32 represents all numbers of
    the queries exactly, float64 queries are searched in float32. For example, the output of a
    float32 model is searched in float32, even if it is passed as a list of Python floats.
    """
    rows = match_row_type(queries.rows, items.dtype)
    return queries if rows is queries.rows else queries._replace(rows=rows)


def match_row_type(rows: Rows, item_type: np.dtype[Any]) -> Rows:
    """Convert queries to the type in which a search compares them with items of ``item_type``."""
    if rows.dtype == item_type and item_type.itemsize > 2:  # the quickest check comes first
        return rows
    if item_type != np.float32:
        if rows.dtype != np.float64:
            return validation.read_only(memmap.from_bits(rows).astype(np.float64))
    elif rows.dtype == np.float64:
        with np.errstate(over="ignore", under="ignore"):
            float32_rows = rows.astype(np.float32)
        if np.array_equal(float32_rows, rows):
            return validation.read_only(float32_rows)
    return rows
