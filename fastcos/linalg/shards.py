"""Interactions on disk that are split into shards of rows, and products of these interactions.

::

    shard_writer -> path/  manifest/, 00000/, 00001/, ... -> InteractionShards (memory maps)
                                                                   |
                             up to ENTRIES_HELD non-zeros: SparseOperator of all rows in memory
                             more: ShardedOperator, which reads the rows once for every product
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, storage, validation
from fastcos.kernels import sparse
from fastcos.linalg import operators, partial_sums
from fastcos.linalg.csr import as_interactions
from fastcos.linalg.operators import LARGEST_INT32, Matrix, Operator, SparseOperator, Workspace
from fastcos.parallel import memmap
from fastcos.validation import Floats

if TYPE_CHECKING:
    import scipy.sparse as sp

Ids = npt.NDArray[Any]

# Interactions with up to this many non-zeros, which take 0.3 GB, are read into memory.
ENTRIES_HELD = 1 << 25
# The default number of non-zeros of a shard. A non-zero takes 4 bytes for its column and 4 bytes
# for its value. A product works on a shard of this size for several milliseconds.
ENTRIES_PER_SHARD = 1 << 24
# The directory with the name _MANIFEST stores the ids, the statistics of the columns, and the first
# row of each shard. The header of this directory states the kind _KIND, and the header of a shard
# states the kind _SHARD_KIND.
_KIND = "InteractionShards"
_SHARD_KIND = "InteractionShard"
_MANIFEST = "manifest"
# The types that the values of interactions may have.
_DTYPES = ("float32", "float64")


class InteractionShards:
    """Interactions X (n, p) on disk, split into shards of whole rows.

    An object of this class can replace X in :func:`fastcos.matmul`, :func:`fastcos.rmatmul`,
    :func:`fastcos.gram_matmul`, :func:`fastcos.randomized_svd` and ``LinearMF.fit``. Every product
    reads the rows once, in blocks; while one block is multiplied, the operating system already
    reads the next block. The products are bit-identical to the products of a CSR matrix in memory
    with the same rows and the same type, wherever the shard boundaries lie. If p <= n, the SVD of
    the shards is also bit-identical to the SVD of this CSR matrix. Interactions with up to 2^25
    (33.5 million) non-zeros are read into memory as a whole.

    Parameters
    ----------
    path : path-like
        The folder that :meth:`write` or ``fastcos fit --shards`` wrote.
    verify : bool
        Whether to compare all files with their checksums; the comparison reads all shards once. If
        ``verify`` is False, only column numbers are checked, at the first use of each shard.

    Attributes
    ----------
    shape : tuple (n, p)
    nnz : int
        The number of non-zeros.
    dtype : dtype
        float32, or float64 if some of the shards contain float64 values.
    user_ids, item_ids : ndarray (n,), (p,)
        Ids of the rows and of the columns, int64 or str.
    column_sums, column_lows, column_highs : ndarray (p,), float64
        The sum, the smallest value and the largest value of every column. Entries that are not
        stored count as zeros.

    Raises
    ------
    FileNotFoundError
        The directory does not exist.
    FastcosFormatError
        The directory is damaged, or contains something other than shards.

    Examples
    --------
    >>> import tempfile, fastcos, scipy.sparse as sp
    >>> X = sp.random_array((100, 20), density=0.2, rng=0, format="csr")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = fastcos.linalg.InteractionShards.write(f"{folder}/x", X, entries_per_shard=100)
    ...     (shards.shape, len(shards)), fastcos.randomized_svd(shards, 3).s.shape
    (((100, 20), 4), (3,))
    """

    def __init__(self, path: storage.PathLike, *, verify: bool = True) -> None:
        self.path = validation.as_path("path", path)
        verify = validation.as_flag("verify", verify)
        # Each number in this set is the index of a shard whose column numbers have not been checked
        # yet.
        self._unread: set[int] = set()
        stored = storage.load_arrays(self.path / _MANIFEST, _KIND)
        with storage.refuse_damage(self.path / _MANIFEST):
            self._read_manifest(stored)
            self._shards = [self._open(number, verify) for number in range(len(self))]
            if sum(len(indices) for _, indices, _ in self._shards) != self.nnz:
                raise ValueError(f"shards must hold {self.nnz} non-zeros")

    def _read_manifest(self, stored: storage.Stored) -> None:
        """Validate the manifest of the shards, and set the attributes from it."""
        n, p = shape = storage.field(stored.fields, "shape", list)
        if not all(type(size) is int for size in shape):
            raise ValueError(f"shape must hold whole numbers, got {shape}")
        self.shape: tuple[int, int] = (n, p)
        self.nnz = storage.field(stored.fields, "nnz", int)
        name = storage.field(stored.fields, "dtype", str)
        if name not in _DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {name!r}")
        self.dtype = np.dtype(name)
        self.user_ids: Ids = stored.arrays["user_ids"]
        self.item_ids: Ids = stored.arrays["item_ids"]
        self.first_rows: list[int] = stored.arrays["first_rows"].tolist()
        self.column_sums: Floats = stored.arrays["column_sums"]
        self.column_lows: Floats = stored.arrays["column_lows"]
        self.column_highs: Floats = stored.arrays["column_highs"]
        starts = self.first_rows
        if starts[0] != 0 or starts[-1] != n or any(lo >= hi for lo, hi in pairwise(starts)):
            raise ValueError(f"first_rows must ascend from 0 to {n}")
        for name in ("user_ids", "item_ids", "column_sums", "column_lows", "column_highs"):
            size = n if name == "user_ids" else p
            validation.check_shape(name, getattr(self, name).shape, (size,))

    @classmethod
    def write(
        cls,
        path: storage.PathLike,
        X: Any,
        *,
        user_ids: npt.ArrayLike | None = None,
        item_ids: npt.ArrayLike | None = None,
        entries_per_shard: int = ENTRIES_PER_SHARD,
    ) -> InteractionShards:
        """Write shards of interactions that fit into memory.

        Parameters
        ----------
        path : path-like
            A new directory, which appears only when it is complete.
        X : sparse matrix or array (n, p), or array_like
            Interactions of n users with p items.
        user_ids, item_ids : array_like, optional
            Ids of the users and of the items. Default: the row numbers 0 .. n-1 and the column
            numbers 0 .. p-1.
        entries_per_shard : int
            A shard ends after the row in which the number of non-zeros of the shard reaches this
            limit.

        Returns
        -------
        InteractionShards
            The shards that were written, opened for reading.

        Raises
        ------
        ValueError
            ``path`` exists and is not empty, or X is malformed.
        """
        X = as_interactions("X", X)
        entries = validation.as_count("entries_per_shard", entries_per_shard)
        n, p = X.shape
        users = np.arange(n) if user_ids is None else np.asarray(user_ids)
        items = np.arange(p) if item_ids is None else np.asarray(item_ids)
        validation.check_shape("user_ids", users.shape, (n,))
        validation.check_shape("item_ids", items.shape, (p,))
        with shard_writer(path, items) as writer:
            for lo, hi in pairwise(shard_rows(X.indptr, entries)):
                writer.add(X[lo:hi], users[lo:hi])
        return cls(path, verify=False)

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self.first_rows) - 1

    def shard(self, number: int) -> sp.csr_array:
        """Return the rows of one shard as a CSR array that is a memory map of the files.

        Parameters
        ----------
        number : int
            The number of the shard, from 0.

        Returns
        -------
        csr_array (rows, p)
        """
        rows = self.first_rows[number + 1] - self.first_rows[number]
        return _rows_of(self._read(number), 0, rows, self.shape[1])

    def whole(self) -> sp.csr_array:
        """Return all rows in memory.

        Returns
        -------
        csr_array (n, p)
        """
        import scipy.sparse as sp

        indptrs, indices, data = zip(*map(self._read, range(len(self))), strict=True)
        starts = np.concatenate([[0], np.cumsum([len(columns) for columns in indices])])
        indptr = np.concatenate(
            [[0], *(part[1:] + start for part, start in zip(indptrs, starts, strict=False))]
        )
        columns = np.concatenate(indices)
        kind = np.int32 if starts[-1] <= LARGEST_INT32 else np.int64
        are_ones = all(values.strides == (0,) for values in data)
        values = np.broadcast_to(data[0][:1], columns.shape) if are_ones else np.concatenate(data)
        for array in (*indptrs, *indices, *data):
            memmap.release(array)
        X = sp.csr_array(
            (values, columns.astype(kind, copy=False), indptr.astype(kind)), self.shape
        )
        X.has_canonical_format = True
        return X

    def blocks(self, lo: int = 0, hi: int | None = None) -> Iterator[tuple[int, sp.csr_array]]:
        """Yield (index of the first row, rows) for every shard that has rows in [lo, hi).

        While the caller works on one shard, the operating system reads the next shard.

        Parameters
        ----------
        lo, hi : int
            Yield the rows from lo to hi - 1. By default, all rows are yielded.

        Yields
        ------
        tuple (int, csr_array)
        """
        hi = self.shape[0] if hi is None else hi
        for number, first, last in self._within(lo, hi):
            X = _rows_of(self._read(number), first, last, self.shape[1])
            begin = self.first_rows[number] + first
            self._read_ahead(begin + X.shape[0], min(hi, begin + 2 * X.shape[0]))
            yield begin, X
            for array in (X.indices, X.data):
                memmap.release(array)

    def _read(self, number: int) -> Sequence[npt.NDArray[Any]]:
        """Return the arrays of a shard; raise an error if a column number is out of range."""
        indptr, indices, data = self._shards[number]
        if number in self._unread and len(indices):
            low, high = int(indices.min()), int(indices.max())
            if low < 0 or high >= self.shape[1]:
                raise storage.FastcosFormatError(
                    f"{self.path / f'{number:05d}'} is damaged: column numbers must be from 0 to "
                    f"{self.shape[1] - 1}, got {low} to {high}"
                )
        self._unread.discard(number)
        return indptr, indices, data

    def _read_ahead(self, lo: int, hi: int) -> None:
        """Ask the operating system to read rows [lo, hi) in the background."""
        for number, first, last in self._within(lo, hi):
            indptr, *arrays = self._shards[number]
            for array in arrays:
                memmap.read_ahead(array[indptr[first] : indptr[last]])

    def _rows_at_work(self, targets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each target, return the smallest i such that the work before row i reaches it.

        The work before row i is i plus the number of non-zeros in the first i rows. The targets
        must be in ascending order.
        """
        rows: list[int] = []
        work_before = 0  # the work before the first row of the current shard
        for first, (indptr, indices, _) in zip(self.first_rows, self._shards, strict=False):
            work = len(indices) + len(indptr) - 1
            remaining = targets[len(rows) :]
            targets_in_shard = remaining[remaining <= work_before + work] - work_before
            rows.extend((first + parallel.rows_at_work(indptr, targets_in_shard)).tolist())
            work_before += work
        return np.array(rows, np.int64)

    def _within(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        """Yield (number, first, last) for every shard that has rows in [lo, hi).

        These rows are the rows [first, last) of the shard.
        """
        for number in range(bisect.bisect_right(self.first_rows, lo) - 1, len(self)):
            begin, end = self.first_rows[number : number + 2]
            if begin >= hi:
                return
            yield number, max(lo - begin, 0), min(hi, end) - begin

    def _as_operator(self, n_threads: int | None) -> Operator:
        """Return an operator with all rows in memory, or an operator that reads shard by shard."""
        if self.nnz <= ENTRIES_HELD:
            return SparseOperator(self.whole(), n_threads)
        return ShardedOperator(self, n_threads)

    def _open(self, number: int, verify: bool) -> Sequence[npt.NDArray[Any]]:
        """Return the checked indptr, indices and data of a shard.

        If all values of the shard are 1, `data` repeats a single number and takes no memory.
        """
        path = self.path / f"{number:05d}"
        arrays = storage.load_arrays(path, _SHARD_KIND, verify=verify).arrays
        rows = self.first_rows[number + 1] - self.first_rows[number]
        with storage.refuse_damage(path):
            indptr, indices = arrays["indptr"], arrays["indices"]
            ones = np.broadcast_to(self.dtype.type(1), indices.shape)
            data = arrays.get("data", ones).astype(self.dtype, copy=False)
            if indptr.shape != (rows + 1,) or indices.ndim != 1 or data.shape != indices.shape:
                raise ValueError(f"shard {number} must hold {rows} rows, got {len(indptr) - 1}")
            if indptr.dtype.kind != "i" or indices.dtype.kind != "i":
                got = f"{indptr.dtype} and {indices.dtype}"
                raise ValueError(f"indptr and indices must be integers, got {got}")
            if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
                raise ValueError(f"indptr must ascend from 0 to {len(indices)}")
            if not verify:
                self._unread.add(number)
                return indptr, indices, data
            import scipy.sparse as sp

            X = sp.csr_array((data, indices, indptr), shape=(rows, self.shape[1]))
            if as_interactions("X", X).nnz != len(indices):
                raise ValueError("values must not be 0, and no row may contain a column twice")
            for array in (indptr, indices, data):
                memmap.release(array)
        return indptr, indices, data


def _rows_of(shard: Sequence[npt.NDArray[Any]], lo: int, hi: int, p: int) -> sp.csr_array:
    """Return rows [lo, hi) of a shard without copying their entries."""
    import scipy.sparse as sp

    indptr, indices, data = shard
    entries = slice(int(indptr[lo]), int(indptr[hi]))
    X = sp.csr_array((hi - lo, p), dtype=data.dtype)
    # The constructor of csr_array would copy the whole memory map, even to take only a few rows.
    X.indptr = indptr[lo : hi + 1] - indptr[lo]
    X.indices, X.data = indices[entries], data[entries]
    X.has_canonical_format = True
    return X


@contextlib.contextmanager
def shard_writer(path: storage.PathLike, item_ids: Ids) -> Iterator[_ShardWriter]:
    """Yield a writer of shards; the directory `path` appears if the `with` block succeeds."""
    target = validation.as_path("path", path).absolute()
    storage.check_new_directory("path", target)
    with storage.temporary_directory(target) as folder:
        writer = _ShardWriter(folder, item_ids)
        yield writer
        writer.finish()
        if target.is_dir():
            target.rmdir()  # check_new_directory accepts only an empty directory
        folder.rename(target)


class _ShardWriter:
    """Saves shards of rows in a folder and, at the end, a manifest that describes the shards."""

    def __init__(self, folder: Path, item_ids: Ids) -> None:
        self._folder, self._item_ids, self._dtype = folder, item_ids, np.dtype(np.float32)
        p = len(item_ids)
        self._sums, self._counts = np.zeros(p), np.zeros(p, np.int64)
        self._lows, self._highs = np.full(p, np.inf), np.full(p, -np.inf)
        self._first_rows = [0]
        self._user_ids: list[Ids] = []

    def add(self, X: sp.csr_array, user_ids: Ids) -> None:
        """Write X as the next shard; X is a canonical CSR matrix with one column per item."""
        # indptr and indices get the same type. If the types of indptr and indices differed, SciPy
        # would convert (and thus copy) the array of the narrower type.
        kind = np.int32 if max(X.shape[1], X.nnz) <= LARGEST_INT32 else np.int64
        indices = X.indices.astype(kind, copy=False)
        arrays = {"indptr": X.indptr.astype(kind), "indices": indices}
        if not (X.data == 1).all():
            arrays["data"] = X.data
            self._dtype = np.result_type(self._dtype, X.data)
        name = f"{len(self._first_rows) - 1:05d}"
        storage.save_arrays(self._folder / name, _SHARD_KIND, arrays, {})
        self._sums += np.bincount(X.indices, X.data, minlength=X.shape[1])
        self._counts += np.bincount(X.indices, minlength=X.shape[1])
        np.minimum.at(self._lows, X.indices, X.data)
        np.maximum.at(self._highs, X.indices, X.data)
        self._first_rows.append(self._first_rows[-1] + X.shape[0])
        self._user_ids.append(user_ids)

    def finish(self) -> None:
        """Write the manifest, which lists the shards, after all shards have been written."""
        with_zeros = self._counts < self._first_rows[-1]
        self._lows[with_zeros] = np.minimum(self._lows[with_zeros], 0)
        self._highs[with_zeros] = np.maximum(self._highs[with_zeros], 0)
        arrays = {
            "user_ids": np.concatenate(self._user_ids),
            "item_ids": self._item_ids,
            "first_rows": np.array(self._first_rows, np.int64),
            "column_sums": self._sums,
            "column_lows": self._lows,
            "column_highs": self._highs,
        }
        fields = {
            "shape": [self._first_rows[-1], len(self._item_ids)],
            "nnz": int(self._counts.sum()),
            "dtype": self._dtype.name,
        }
        storage.save_arrays(self._folder / _MANIFEST, _KIND, arrays, fields)


def shard_rows(indptr: npt.NDArray[np.integer[Any]], entries: int) -> list[int]:
    """Return the first row of every shard, followed by the number of rows.

    A shard has about `entries` non-zeros.
    """
    n = len(indptr) - 1
    boundaries = np.arange(entries, int(indptr[-1]), entries)
    inner = np.minimum(np.searchsorted(indptr, boundaries), n)
    return np.unique(np.concatenate([[0], inner, [n]])).tolist()


class ShardedOperator(Operator):
    """Computes the products of InteractionShards; each product reads the rows once.

    The rows are divided into the same parts as in :class:`SparseOperator`, and the sums of the
    parts are added in the same order. A thread sums whole parts, which may span several shards, so
    threads do not wait for each other at the end of a shard.
    """

    def __init__(self, X: InteractionShards, n_threads: int | None = None) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        self._X, self._n_threads = X, n_threads
        self._memory = Workspace()
        n, p = X.shape
        starts = partial_sums.starts(n, p, X.nnz)
        self._part_rows = np.unique(np.concatenate([[0], X._rows_at_work(starts), [n]])).tolist()

    def matmul(self, A: Matrix) -> Matrix:
        """Return the product X A (n, l) for A (p, l)."""
        Y = np.empty((self.shape[0], A.shape[1]), np.result_type(self.dtype, A.dtype))
        for first, X in self._X.blocks():
            Y[first : first + X.shape[0]] = SparseOperator(X, self._n_threads).matmul(A)
        return Y

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return the product X'Y (p, l) for Y (n, l)."""
        return self._sum_parts("rmatmul_parts", operators.as_factor(self, Y))

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return the product X'(X Q) (p, l) for Q (p, l)."""
        Q = operators.on_cache_lines(operators.as_factor(self, Q))
        return self._sum_parts("gram_parts", Q)

    def gram(self) -> Floats:
        """Return X'X in float64, (p, p)."""

        def dense_rows(lo: int, hi: int) -> Matrix:
            return np.concatenate([X.toarray() for _, X in self._X.blocks(lo, hi)])

        return operators.sparse_gram(self, self._X.nnz, dense_rows)

    def _sum_parts(self, kernel: str, factor: Matrix) -> Matrix:
        """Compute a product part by part with the named kernel; return the sum of the parts."""
        if len(self._part_rows) == 2:
            return self._sum_in_order(kernel, factor)
        p, width, parts = self.shape[1], factor.shape[1], len(self._part_rows) - 1
        panels = list(operators.panel_columns(factor))
        n_slots = partial_sums.at_once(parts, p * width * factor.itemsize, self._n_threads)
        memory = self._memory.array((n_slots * p * width,), factor.dtype)
        sums = [
            memory[n_slots * p * column : n_slots * p * (column + w)].reshape(n_slots, p, w)
            for column, w in panels
        ]
        out = np.zeros((p, width), factor.dtype)

        def sum_part(lo: int, hi: int, first: int, sums: list[Matrix]) -> None:
            """Sum the parts with numbers [first + lo, first + hi), panel by panel, into `sums`."""
            for slot in range(lo, hi):
                begin, end = self._part_rows[first + slot : first + slot + 2]
                ahead = self._part_rows[first + slot + self._size : first + slot + self._size + 2]
                if len(ahead) == 2:
                    self._X._read_ahead(*ahead)
                for row, X in self._X.blocks(begin, end):
                    for (column, _), panel in zip(panels, sums, strict=True):
                        part_sum = panel[slot : slot + 1]
                        _add_rows(kernel, X, row, factor, column, row > begin, part_sum)

        for first in range(0, parts, n_slots):
            used_sums = [panel[: parts - first] for panel in sums]
            numbers = parallel.row_blocks(len(used_sums[0]), 1)
            parallel.run(sum_part, numbers, first, used_sums, n_threads=self._n_threads)
            for (column, _), panel in zip(panels, used_sums, strict=True):
                partial_sums.add(panel, column, out, self._n_threads)
        return out

    def _sum_in_order(self, kernel: str, factor: Matrix) -> Matrix:
        """Return the product, summed over all rows in order; each thread sums some columns."""
        p, width = self.shape[1], factor.shape[1]
        columns = parallel.row_blocks(width, max(4, -(-width // self._size)))
        sums = [np.zeros((1, p, hi - lo), factor.dtype) for lo, hi in pairwise(columns)]
        numbers = parallel.row_blocks(len(sums), 1)

        def add_columns(lo: int, hi: int, X: sp.csr_array, row: int) -> None:
            for column, panel in zip(columns[lo:hi].tolist(), sums[lo:hi], strict=True):
                _add_rows(kernel, X, row, factor, column, True, panel)

        for row, X in self._X.blocks():
            parallel.run(add_columns, numbers, X, row, n_threads=self._n_threads)
        return np.concatenate([panel[0] for panel in sums], axis=1)

    @property
    def _size(self) -> int:
        """The number of threads that compute the products."""
        return config.n_threads() if self._n_threads is None else self._n_threads


def _add_rows(
    kernel: str,
    X: sp.csr_array,
    row: int,
    factor: Matrix,
    column: int,
    is_started: bool,
    sums: Matrix,
) -> None:
    """Multiply the rows X by the factor; add the product to `sums` (1, p, w) in place.

    `row` is the index that the first row of X has in the whole matrix. `is_started` says whether
    `sums` already contains the products of earlier rows of the same part.
    """
    n = X.shape[0]
    rows_of_factor = factor[row : row + n] if kernel == "rmatmul_parts" else factor
    rows = validation.read_only(np.array([0, n]))
    columns = validation.read_only(np.array([column, column + sums.shape[2]]))
    body = operators.kernel_body(sparse, kernel)
    body(0, 1, rows, operators.kernel_arrays(X), rows_of_factor, columns, is_started, sums)
