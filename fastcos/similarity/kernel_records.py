"""Functions that build and validate the records that kernels take as arguments.

The module ``kernels.records`` defines the types of the records. A kernel trusts its arguments: an
array of a wrong type or shape would make it read memory outside of the array. The functions of this
module therefore validate the arguments, once per call of a kernel and never per row.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.kernels import records
from fastcos.similarity.encoded_rows import METRIC_TYPES, NO_BIAS, EncodedRows
from fastcos.validation import Floats, Integers, Rows

_NO_ROWS = validation.read_only(np.empty(0, np.int64))
# An empty array stands for no mask: every item is allowed. All masks are writable, because a kernel
# is compiled separately for writable and for read-only arrays.
ALL_ALLOWED = np.empty(0, np.uint8)
# Filters that have no effect: they exclude no item, and allow every item.
NO_FILTERS = records.QueryFilters(_NO_ROWS, _NO_ROWS, _NO_ROWS, ALL_ALLOWED)


def pair_scoring(metric_type: str, queries: EncodedRows, items: EncodedRows) -> Any:
    """Return the record for kernels that compute scores of queries (n, d) and items (m, d)."""
    return _scoring(metric_type, queries, items.rows, items.norms, items.bias)


def listed_scoring(metric_type: str, queries: EncodedRows, items: Rows) -> Any:
    """Return a record for exact scores that contains neither the norms nor the biases of the items.

    The kernels that take a record without norms compute the norms of the items themselves.
    """
    return _scoring(metric_type, queries, items, NO_BIAS, NO_BIAS)


def _scoring(
    metric_type: str, queries: EncodedRows, items: Rows, norms: Floats, bias: Floats
) -> Any:
    _require(queries.rows.shape[1:] == items.shape[1:], "queries and items of the same width")
    _require(len(queries.norms) == len(queries.rows), "a norm for each query")
    _require(len(norms) in (0, len(items)), "a norm for each item")
    _require(len(bias) in (0, len(items)), "a bias for each item")
    return records.PairScoring(
        METRIC_TYPES[metric_type],
        records.rows_of(queries.rows),
        validation.read_only(queries.norms),
        records.rows_of(items),
        validation.read_only(norms),
        validation.read_only(bias),
    )


def query_filters(
    self_rows: Integers,
    excluded_indptr: Integers,
    excluded_rows: Integers,
    allowed: npt.NDArray[np.uint8] = ALL_ALLOWED,
) -> Any:
    """Return the record with the filters of n queries.

    - ``self_rows`` (n,): The row number of the item that equals each query, or -1.
    - ``excluded_indptr`` (n + 1,) and ``excluded_rows``: The items
      ``excluded_rows[excluded_indptr[i] : excluded_indptr[i + 1]]`` are excluded from the result of
      query i.
    - ``allowed`` (m,): A mask of the items that a query may return. An empty array stands for no
      mask: every item is allowed.
    """
    _require(len(excluded_indptr) == len(self_rows) + 1, "a list of exclusions for each query")
    _require(allowed.dtype == np.uint8, "a mask of uint8")
    return records.QueryFilters(
        validation.read_only(self_rows),
        validation.read_only(excluded_indptr),
        validation.read_only(excluded_rows),
        allowed,
    )


def candidate_ranges(numbers: Integers, firsts: Integers, lasts: Integers) -> Any:
    """Return the record that lists, for each query, the items with which it is compared.

    Query i is compared with the items ``numbers[firsts[i] : lasts[i]]``.
    """
    _require(len(firsts) == len(lasts), "a first and a last item for each query")
    return records.CandidateRanges(
        validation.read_only(numbers), validation.read_only(firsts), validation.read_only(lasts)
    )


def masked(allowed: npt.NDArray[np.uint8]) -> Any:
    """Return filters that contain only a mask: every item outside of the mask is excluded."""
    _require(allowed.dtype == np.uint8, "a mask of uint8")
    return NO_FILTERS._replace(allowed=allowed)


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"the arguments of a kernel must have {rule}")
