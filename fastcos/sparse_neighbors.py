"""Exact nearest neighbours among sparse rows: ``top_k`` for SciPy's sparse matrices."""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import short_rows, threads, validate
from fastcos.kernels import sparse_topk
from fastcos.measure import Measure, get_measure
from fastcos.transposition import transposed
from fastcos.validate_csr import as_interactions, csr_arrays

MEASURES = ("cosine", "dot")

Arrays = tuple[npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any] | None]

# a block's non-zeros of queries, where so many sums to read count as one: some milliseconds
_NNZ_PER_BLOCK = 1 << 14
_SUMS_PER_NNZ = 256
# sums of whole numbers stay below this in int32
_LARGEST_SUM = 2.0**31
_LARGEST_INT32 = 2**31 - 1


class SparseRows:
    """Rows by row and by column, whichever is asked for, with their norms.

    Either is a tuple (indptr int64, indices, data), data None where all values are 1 and of a small
    integer type where all are whole numbers. Indices by row are int32 (int64 beyond), by column
    uint16 where that holds the rows.
    """

    def __init__(
        self, shape: tuple[int, int], by_row: Arrays | None, by_column: Arrays | None,
        n_threads: int | None,
    ) -> None:  # fmt: skip
        self.shape, self._n_threads = shape, n_threads
        self._by_row, self._by_column = by_row, by_column
        self.values = (by_row or by_column)[2]  # type: ignore[index]  # one of them is there

    @functools.cached_property
    def by_row(self) -> Arrays:
        """CSR of the rows."""
        n, d = self.shape
        if self._by_row is None:
            indptr, indices, data = self._by_column or self._by_row  # type: ignore[misc]
            return transposed(indptr, indices, data, n, _index_type(d), self._n_threads)
        return _narrowed(self._by_row, _index_type(d))

    @functools.cached_property
    def by_column(self) -> Arrays:
        """CSR of the transpose."""
        n, d = self.shape
        narrow = np.uint16 if n <= 2**16 else _index_type(n)
        if self._by_column is None:
            return transposed(*self.by_row, d, narrow, self._n_threads)
        return _narrowed(self._by_column, narrow)

    @functools.cached_property
    def norms(self) -> npt.NDArray[np.float64]:
        """Euclidean norms of the rows, (n,)."""
        indptr, _, data = self.by_row
        norms = threads.poisoned(self.shape[0], np.float64)
        cuts = threads.cuts_by_work(indptr, 1 << 20)
        threads.run(sparse_topk.row_norms, cuts, indptr, data, norms, n_threads=self._n_threads)
        return validate.read_only(norms)


def sparse_top_k(
    queries: Any,
    items: Any,
    k: int,
    *,
    measure: str | Measure,
    exclude_self: bool,
    allowed: Any,
    exclude: Any,
    min_score: float | None,
    n_threads: int | None,
    progress: threads.Progress | None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Do what ``top_k`` says for sparse rows; return indices and scores.

    Inner products of whole numbers are exact; others are summed in float64 in the order of the
    columns. Time O(the items' non-zeros in the columns of every query); memory one or two copies of
    the items, and O(m) per thread. A CSC matrix, such as the transpose of a CSR one, is as good.
    """
    name = validate.as_choice("measure", get_measure(measure).name, MEASURES)
    given = _checked("queries", queries, name, n_threads)
    searched = given if items is None else _checked("items", items, name, n_threads)
    validate.as_same_width("items", searched, "queries", given)
    (n, _), n_items = given.shape, searched.shape[0]
    own = np.arange(n) if items is None and exclude_self else np.full(n, -1)
    if exclude is None:
        exclude = sp.csr_array((n, n_items), dtype=np.float32)
    else:
        exclude = as_interactions("exclude", exclude)
        validate.as_shape("exclude", exclude.shape, (n, n_items))
    numbers = np.arange(n_items)
    if allowed is not None:
        numbers = validate.as_item_numbers("allowed", allowed, n_items)
        searched, own, exclude = _only(numbers, searched, own, exclude, n_threads)
    k = validate.as_neighbor_count(k, len(numbers), without_itself=items is None and exclude_self)
    indices, keys = threads.poisoned((n, k), np.int64), threads.poisoned((n, k), np.float64)
    sum_type, query_values, item_values = _kinds(given, searched)
    indptr, columns, _ = given.by_row
    threads.run(
        sparse_topk.best_rows,
        _cuts(indptr, len(numbers)),
        name == "cosine",
        sparse_topk.Queries(
            indptr, columns, query_values, given.norms, own.astype(np.int64),
            *csr_arrays(exclude)[:2],
        ),
        _items(searched, item_values, name == "cosine", sum_type),
        -np.inf if min_score is None else validate.as_real("min_score", min_score),
        np.empty(0, sum_type),
        keys,
        indices,
        n_threads=n_threads,
        progress=progress,
    )  # fmt: skip
    found = np.where(indices < 0, -1, numbers[indices])
    return found, keys.astype(np.float32)


def _checked(name: str, X: Any, measure: str, n_threads: int | None) -> SparseRows:
    """Pass the gate; CSC is the CSR of the transpose, and is not converted."""
    if sp.issparse(X) and X.ndim == 2 and X.format == "csc":
        clean = as_interactions(f"{name}.T", X.T)
        rows = SparseRows(clean.shape[::-1], None, _compact(clean), n_threads)
    else:
        clean = as_interactions(name, X)
        rows = SparseRows(clean.shape, _compact(clean), None, n_threads)
    return _lengthened(rows, n_threads) if measure == "cosine" else rows


def _lengthened(rows: SparseRows, n_threads: int | None) -> SparseRows:
    """Rows of which those too short for their squares are multiplied by powers of two."""
    indptr, indices, data = rows.by_row
    short = None if data is None else short_rows.are_short(rows.norms, data.dtype)
    if data is None or short is None:
        return rows
    row_of = np.repeat(np.arange(len(short)), np.diff(indptr))
    largest = np.zeros(len(short))
    np.maximum.at(largest, row_of, np.abs(data))
    steps = np.where(short, short_rows.exponents(largest), 0)
    longer = np.ldexp(data, steps[row_of])
    return SparseRows(rows.shape, (indptr, indices, longer), None, n_threads)


def _compact(X: sp.csr_array) -> Arrays:
    """Return the arrays, data as None for ones and as integers for whole numbers that are small."""
    indptr, indices, given = csr_arrays(X)
    data: npt.NDArray[Any] = given
    if (data[:4096] != np.rint(data[:4096])).any():
        return indptr, indices, data
    if (data == 1).all():
        return indptr, indices, None
    largest = np.abs(data).max(initial=0)
    if largest < 2**15:
        whole = data.astype(np.int16)
        data = whole if np.array_equal(whole, data) else data
    return indptr, indices, data


def _only(
    numbers: npt.NDArray[np.int64],
    searched: SparseRows,
    own: npt.NDArray[np.int64],
    exclude: sp.csr_array,
    n_threads: int | None,
) -> tuple[SparseRows, npt.NDArray[np.int64], sp.csr_array]:
    """Keep the items of these numbers, renumbered in order."""
    place = np.full(searched.shape[0], -1)
    place[numbers] = np.arange(len(numbers))
    indptr, indices, data = searched.by_row
    rows = sp.csr_array((np.arange(len(indices)), indices, indptr), shape=searched.shape)[numbers]
    kept = None if data is None else data[rows.data]
    arrays = rows.indptr.astype(np.int64), rows.indices, kept
    fewer = SparseRows((len(numbers), searched.shape[1]), arrays, None, n_threads)
    return fewer, np.where(own < 0, -1, place[own]), exclude[:, numbers]


def _kinds(given: SparseRows, searched: SparseRows) -> tuple[npt.DTypeLike, Any, Any]:
    """Settle how products are summed: the type of the sums, the values of both sides."""
    query_values, item_values = given.by_row[2], searched.by_column[2]
    if query_values is None and item_values is None:
        return np.int32, None, None
    if query_values is None:
        query_values = np.ones(len(given.by_row[1]), np.int16)
    if item_values is None:
        item_values = np.ones(len(searched.by_column[1]), np.int16)
    are_whole = query_values.dtype.kind == item_values.dtype.kind == "i"
    # a bound for every partial sum too, by Cauchy and Schwarz
    sum_type: npt.DTypeLike = np.float64
    if are_whole and given.norms.max() * searched.norms.max() < _LARGEST_SUM:
        sum_type = np.int32
    else:  # few combinations of types to compile
        query_values, item_values = _as_floats(query_values), _as_floats(item_values)
    return sum_type, validate.read_only(query_values), validate.read_only(item_values)


def _as_floats(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.float64) if values.dtype.kind == "i" else values


def _items(
    searched: SparseRows, values: Any, is_cosine: bool, sum_type: npt.DTypeLike
) -> sparse_topk.Items:
    m = searched.shape[0]
    norms = searched.norms
    factors = np.zeros(-(-m // sparse_topk.STRIP) * sparse_topk.STRIP)
    factors[:m] = np.divide(1.0, norms, out=np.zeros(m), where=norms > 0) if is_cosine else 1.0
    factors = factors.astype(np.float32 if sum_type == np.int32 else np.float64)
    indptr, lists, _ = searched.by_column
    return sparse_topk.Items(indptr, lists, values, norms, factors)


def _cuts(indptr: npt.NDArray[np.int64], n_items: int) -> threads.Cuts:
    """Cut the queries by their non-zeros and the sums to be read."""
    sums = np.arange(len(indptr)) * (n_items // _SUMS_PER_NNZ)
    return threads.cuts_by_work(indptr + sums, _NNZ_PER_BLOCK)


def _index_type(count: int) -> npt.DTypeLike:
    return np.int32 if count <= _LARGEST_INT32 else np.int64


def _narrowed(arrays: Arrays, index_type: npt.DTypeLike) -> Arrays:
    indptr, indices, data = arrays
    narrow = validate.read_only(indices.astype(index_type, copy=False))
    readable = None if data is None else validate.read_only(data)
    return validate.read_only(indptr), narrow, readable
