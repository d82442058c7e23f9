"""Writing interactions as a directory of row shards; :mod:`fastcos.linalg.shards` reads it."""

import shutil
import uuid
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import storage, validation

Ids = npt.NDArray[Any]

KIND, SHARD_KIND = "InteractionShards", "InteractionShard"
MANIFEST = "manifest"
# of one shard: 4 bytes of column and 4 of value each; some ms of work in every product
ENTRIES_PER_SHARD = 1 << 24
_LARGEST_INT32 = 2**31 - 1


class ShardWriter:
    """Writes shards one by one; the directory appears when the block of ``with`` ends well."""

    def __init__(self, path: storage.PathLike, item_ids: Ids) -> None:
        self._target = validation.as_path("path", path).absolute()
        storage.check_new_directory("path", self._target)
        self._folder = self._target.with_name(f".{self._target.name}.{uuid.uuid4().hex}")
        self._item_ids, self._dtype = item_ids, np.dtype(np.float32)
        p = len(item_ids)
        self._sums, self._counts = np.zeros(p), np.zeros(p, np.int64)
        self._lows, self._highs = np.full(p, np.inf), np.full(p, -np.inf)
        self._first_rows = [0]
        self._user_ids: list[Ids] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        return self

    def add(self, X: sp.csr_array, user_ids: Ids) -> None:
        """Write the next rows, a canonical CSR of all items' columns."""
        # of one type: SciPy would copy the narrower of the two
        kind = np.int32 if max(X.shape[1], X.nnz) <= _LARGEST_INT32 else np.int64
        indices = X.indices.astype(kind, copy=False)
        arrays = {"indptr": X.indptr.astype(kind), "indices": indices}
        if not (X.data == 1).all():
            arrays["data"] = X.data
            self._dtype = np.result_type(self._dtype, X.data)
        name = f"{len(self._first_rows) - 1:05d}"
        storage.save_arrays(self._folder / name, SHARD_KIND, arrays, {})
        self._sums += np.bincount(X.indices, X.data, minlength=X.shape[1])
        self._counts += np.bincount(X.indices, minlength=X.shape[1])
        np.minimum.at(self._lows, X.indices, X.data)
        np.maximum.at(self._highs, X.indices, X.data)
        self._first_rows.append(self._first_rows[-1] + X.shape[0])
        self._user_ids.append(user_ids)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _finish(self) -> None:
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
        storage.save_arrays(self._folder / MANIFEST, KIND, arrays, fields)
        if self._target.is_dir():
            self._target.rmdir()  # empty, as the gate has seen
        self._folder.rename(self._target)


def row_cuts(indptr: npt.NDArray[np.integer[Any]], entries: int) -> list[int]:
    """Rows where shards of about so many entries begin, and the number of rows."""
    n = len(indptr) - 1
    wanted = np.arange(entries, int(indptr[-1]), entries)
    inner = np.searchsorted(indptr, wanted)
    cuts: list[int] = np.unique(np.concatenate([[0], np.minimum(inner, n), [n]])).tolist()
    return cuts
