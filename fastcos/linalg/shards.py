"""Interactions in a directory of row shards, larger than memory if need be."""

import bisect
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import parallel, storage, validation
from fastcos.linalg.csr import as_interactions
from fastcos.linalg.shard_writer import (
    ENTRIES_PER_SHARD,
    KIND,
    MANIFEST,
    SHARD_KIND,
    Ids,
    ShardWriter,
    row_cuts,
)
from fastcos.linalg.sharded import ShardedOperator
from fastcos.linalg.sparse_operator import SparseOperator
from fastcos.storage import memmap

Floats = npt.NDArray[np.float64]

# so many fit memory anyway, 0.3 GB of them: products of no more are those of one CSR
ENTRIES_HELD = 1 << 25
_LARGEST_INT32 = 2**31 - 1


class InteractionShards:
    """Interactions X (n, p) on disk, cut into shards of whole rows.

    Takes the place of X in :func:`fastcos.matmul`, :func:`fastcos.rmatmul`,
    :func:`fastcos.gram_matmul`, :func:`fastcos.randomized_svd` and ``LinearMF.fit``: every product
    reads the rows once, some at a time, while the system reads the next ahead. Products have the
    bits of one CSR of the same type in memory, wherever the shards are cut, and so has the SVD of
    no more columns than rows. Up to 2^25 (33.5 million) non-zeros are read into memory.

    Parameters
    ----------
    path : path-like
        What :meth:`write` or ``fastcos ingest`` wrote.
    verify : bool
        Whether every byte is checked against its checksum, which reads everything once.

    Attributes
    ----------
    shape : tuple (n, p)
    nnz : int
        Non-zeros.
    dtype : dtype
        float32, or float64 where values need it.
    user_ids, item_ids : ndarray (n,), (p,)
        int64 or str.
    column_sums, column_lows, column_highs : ndarray (p,), float64
        Of every column, zeros counted.

    Raises
    ------
    FileNotFoundError
        There is no such directory.
    FastcosFormatError
        It is damaged, or holds something else.

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
        stored = storage.load_arrays(self.path / MANIFEST, KIND)
        n, p = stored.fields["shape"]
        self.shape: tuple[int, int] = (int(n), int(p))
        self.nnz = int(stored.fields["nnz"])
        self.dtype = np.dtype(stored.fields["dtype"])
        self.user_ids: Ids = stored.arrays["user_ids"]
        self.item_ids: Ids = stored.arrays["item_ids"]
        self.first_rows: list[int] = stored.arrays["first_rows"].tolist()
        self.column_sums: Floats = stored.arrays["column_sums"]
        self.column_lows: Floats = stored.arrays["column_lows"]
        self.column_highs: Floats = stored.arrays["column_highs"]
        self._shards = [self._opened(number, verify) for number in range(len(self))]

    @classmethod
    def write(
        cls,
        path: storage.PathLike,
        X: Any,
        *,
        user_ids: npt.ArrayLike | None = None,
        item_ids: npt.ArrayLike | None = None,
        entries_per_shard: int = ENTRIES_PER_SHARD,
    ) -> "InteractionShards":
        """Write interactions that fit memory as shards.

        Parameters
        ----------
        path : path-like
            A new directory; it appears whole or not at all.
        X : sparse matrix or array (n, p), or array_like
        user_ids, item_ids : array_like, optional
            Default: 0 .. n-1 and 0 .. p-1.
        entries_per_shard : int
            A shard ends with the row that reaches so many non-zeros.

        Returns
        -------
        InteractionShards
            Opened.

        Raises
        ------
        ValueError
            path exists and is not empty, or X is malformed.
        """
        X = as_interactions("X", X)
        entries = validation.as_count("entries_per_shard", entries_per_shard)
        n, p = X.shape
        users = np.arange(n) if user_ids is None else np.asarray(user_ids)
        items = np.arange(p) if item_ids is None else np.asarray(item_ids)
        validation.check_shape("user_ids", users.shape, (n,))
        validation.check_shape("item_ids", items.shape, (p,))
        cuts = row_cuts(X.indptr, entries)
        with ShardWriter(path, items) as writer:
            for lo, hi in pairwise(cuts):
                writer.add(X[lo:hi], users[lo:hi])
        return cls(path, verify=False)

    def __len__(self) -> int:
        """Shards."""
        return len(self.first_rows) - 1

    def shard(self, number: int) -> sp.csr_array:
        """Rows of one shard; its arrays are memory maps.

        Parameters
        ----------
        number : int
            From 0.

        Returns
        -------
        csr_array (rows, p)
        """
        rows = self.first_rows[number + 1] - self.first_rows[number]
        return _some_rows(self._shards[number], 0, rows, self.shape[1])

    def whole(self) -> sp.csr_array:
        """All rows, in memory.

        Returns
        -------
        csr_array (n, p)
        """
        indptrs, indices, data = zip(*self._shards, strict=True)
        starts = np.concatenate([[0], np.cumsum([len(some) for some in indices])])
        indptr = np.concatenate(
            [[0], *(some[1:] + start for some, start in zip(indptrs, starts, strict=False))]
        )
        columns = np.concatenate(indices)
        kind = np.int32 if starts[-1] <= _LARGEST_INT32 else np.int64
        are_ones = all(some.strides == (0,) for some in data)
        values = np.broadcast_to(data[0][:1], columns.shape) if are_ones else np.concatenate(data)
        for array in (*indptrs, *indices, *data):
            memmap.release(array)
        X = sp.csr_array(
            (values, columns.astype(kind, copy=False), indptr.astype(kind)), self.shape
        )
        X.has_canonical_format = True
        return X

    def blocks(self, lo: int = 0, hi: int | None = None) -> Iterator[tuple[int, sp.csr_array]]:
        """First row and rows of every shard, in order, those in [lo, hi) only.

        One is in memory, the next is read ahead.

        Parameters
        ----------
        lo, hi : int
            Row numbers; by default all.

        Yields
        ------
        tuple (int, csr_array)
        """
        hi = self.shape[0] if hi is None else hi
        for number, first, last in self._within(lo, hi):
            X = _some_rows(self._shards[number], first, last, self.shape[1])
            begin = self.first_rows[number] + first
            self.read_ahead(begin + X.shape[0], min(hi, begin + 2 * X.shape[0]))
            yield begin, X
            for array in (X.indices, X.data):
                memmap.release(array)

    def read_ahead(self, lo: int, hi: int) -> None:
        """Let the system read rows [lo, hi) in the background.

        Parameters
        ----------
        lo, hi : int
            Row numbers.
        """
        for number, first, last in self._within(lo, hi):
            indptr, *arrays = self._shards[number]
            for array in arrays:
                memmap.read_ahead(array[indptr[first] : indptr[last]])

    def rows_at_work(self, targets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """First rows before which there are so many non-zeros and rows, added up.

        Parameters
        ----------
        targets : ndarray, int64
            Rising.

        Returns
        -------
        ndarray, int64
        """
        found: list[int] = []
        before = 0
        for first, (indptr, indices, _) in zip(self.first_rows, self._shards, strict=False):
            some = targets[len(found) :]
            some = some[some <= before + len(indices) + len(indptr) - 1] - before
            found.extend((first + parallel.rows_at_work(indptr, some)).tolist())
            before += len(indices) + len(indptr) - 1
        return np.array(found, np.int64)

    def _within(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        """Every shard with rows of [lo, hi), the first of them there, and the end of them."""
        for number in range(bisect.bisect_right(self.first_rows, lo) - 1, len(self)):
            begin, end = self.first_rows[number : number + 2]
            if begin >= hi:
                return
            yield number, max(lo - begin, 0), min(hi, end) - begin

    def as_operator(self, n_threads: int | None) -> Any:
        """Products with X, shard by shard.

        Parameters
        ----------
        n_threads : int or None
            None: those of the configuration.

        Returns
        -------
        Operator
        """
        if self.nnz <= ENTRIES_HELD:
            return SparseOperator(self.whole(), n_threads)
        return ShardedOperator(self, n_threads)

    def _opened(self, number: int, verify: bool) -> Sequence[npt.NDArray[Any]]:
        """indptr, indices and data of a shard; data of ones take no memory."""
        stored = storage.load_arrays(self.path / f"{number:05d}", SHARD_KIND, verify=verify)
        indptr, indices = stored.arrays["indptr"], stored.arrays["indices"]
        rows = self.first_rows[number + 1] - self.first_rows[number]
        ones = np.broadcast_to(self.dtype.type(1), indices.shape)
        data = stored.arrays.get("data", ones).astype(self.dtype, copy=False)
        if verify:
            X = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, self.shape[1]))
            if as_interactions("X", X).nnz != len(indices) or len(indptr) != rows + 1:
                raise storage.FastcosFormatError(f"{self.path} is damaged: shard {number}")
            for array in (indptr, indices, data):
                memmap.release(array)
        return indptr, indices, data


def _some_rows(shard: Sequence[npt.NDArray[Any]], lo: int, hi: int, p: int) -> sp.csr_array:
    indptr, indices, data = shard
    some = slice(int(indptr[lo]), int(indptr[hi]))
    X = sp.csr_array((hi - lo, p), dtype=data.dtype)
    # the constructor would copy a map of which few rows are taken
    X.indptr, X.indices, X.data = indptr[lo : hi + 1] - indptr[lo], indices[some], data[some]
    X.has_canonical_format = True
    return X
