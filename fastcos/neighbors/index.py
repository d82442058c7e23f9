"""An exact index of dense rows, packed once and searched many times."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, storage, validation
from fastcos.engine.packing import packed_items, tile_layout
from fastcos.engine.segments import Segment
from fastcos.measures import serialization
from fastcos.measures.base import Measure, get_measure, require
from fastcos.neighbors.out_of_core import results_in_directory
from fastcos.neighbors.search import (
    as_items,
    as_options,
    as_request,
    fit_items,
    search,
)
from fastcos.neighbors.types import FittedItems, Neighbors, no_neighbors, padded

_KIND = "SimilarityIndex"
# arrays of a packed index that are saved, by their names in the kernels' Items
_PACKED = ("order", "packed", "small_offsets", "statistics", "shift")


class SimilarityIndex:
    """Exact nearest neighbours of queries among items that are packed once.

    Many threads may search at once, also while another adds, replaces or removes items: a search
    sees the items as they were before a change or after it. Works after fork. Needs the rows, and
    beside them ``bytes_per_item_`` bytes an item: one a column, or 4 on CPUs without int8
    instructions, and about 30.

    Memory-mapped rows (``np.load(path, mmap_mode="r")``) stay on disk, by measures with the
    capability ``blocks``: nothing is packed, and every search reads all rows once, in blocks that
    fit its working_memory. So give it many queries at a time; the answers are the same bits. Such
    an index is not changed or saved. A measure that learns reads the rows once more, in ``fit``.

    Parameters
    ----------
    measure : str or Measure
        As in :func:`fastcos.top_k`. It is fitted to the items that are in the index.
    n_threads : int, optional
        For packing. Default: the setting ``num_threads``.

    Attributes
    ----------
    n_items_ : int
        Items that can be found.
    n_features_in_ : int
        Columns of the items.
    bytes_per_item_ : float
        Memory of the packed index beside the rows, per item.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import SimilarityIndex
    >>> index = SimilarityIndex().fit(np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]]))
    >>> index.search(np.array([[1.0, 0.1]]), k=2).indices.tolist()
    [[1, 0]]
    """

    def __init__(self, measure: str | Measure = "cosine", *, n_threads: int | None = None) -> None:
        self.measure = measure
        self.n_threads = n_threads
        self._items: FittedItems | None = None

    def fit(self, items: Any) -> "SimilarityIndex":
        """Fit the measure and pack the items, which become numbers 0 .. p-1. O(p d).

        Parameters
        ----------
        items : array_like (p, d), float32 or float64
            Kept, not copied, where they are C-contiguous: do not change them afterwards. Those of a
            memory map are checked as they are read, that is by every search.

        Returns
        -------
        SimilarityIndex
            Itself.
        """
        measure = get_measure(self.measure)
        rows = as_items("items", items, measure)
        with parallel.writer_lock():
            self._items = self._fitted_to(rows, None)
        return self

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        allowed: Any = None,
        exclude: Any = None,
        min_score: float | None = None,
        n_threads: int | None = None,
        working_memory: float | None = None,
        progress: parallel.Progress | None = None,
        out: storage.PathLike | None = None,
    ) -> Neighbors:
        """The k items most similar to every query, as :func:`fastcos.top_k` finds them.

        Parameters
        ----------
        queries : array_like (n, d) or (d,), as for :func:`fastcos.top_k`
            One row per query.
        k : int
            From 1 to the number of items in the index.
        allowed : array_like, optional
            A mask over all item numbers, or item numbers: only these can be found. Fewer
            than k of them: padded.
        exclude : sparse (n, p), optional
            Its non-zeros are pairs that must not be found.
        min_score, n_threads, working_memory, progress, out
            As in :func:`fastcos.top_k`.

        Returns
        -------
        Neighbors
            indices (n, k) int64 and scores (n, k) float32.

        Raises
        ------
        ValueError
            NaN or infinity, k out of range, queries of another width, or nothing was fitted.
        """
        fitted = self._fitted()
        Q = as_items("queries", queries, fitted.measure, or_vector=True)
        options = as_options(n_threads, working_memory, progress)
        request = as_request(
            Q, fitted.rows, k, live=fitted.numbers, allowed=allowed, exclude=exclude,
            min_score=min_score,
        )  # fmt: skip
        if not request.k:
            return padded(no_neighbors(len(Q)), k)
        results = None
        if out is not None:
            validation.as_count("k", k, high=request.k)
            require(fitted.measure, "blocks")
            kept = request
            if request.permitted is None:
                kept = request._replace(permitted=fitted.numbers)
            measure = get_measure(self.measure)
            results = results_in_directory(kept, fitted.rows, measure, options, out)
            if results.is_complete:
                return Neighbors(**results.finish())
        return padded(search(fitted, request, options, results), k)

    def add(self, items: Any) -> npt.NDArray[np.int64]:
        """Add items under the next numbers. O((p + new) d).

        Parameters
        ----------
        items : array_like (new, d)
            More rows.

        Returns
        -------
        ndarray (new,), int64
            Their numbers.
        """
        new = validation.as_rows("items", items)
        with parallel.writer_lock():
            old, numbers = self._in_memory()
            validation.check_same_width("items", new, "the items of the index", old)
            added = np.arange(len(old), len(old) + len(new), dtype=np.int64)
            rows = np.concatenate([old, new.astype(old.dtype, copy=False)])
            self._items = self._fitted_to(rows, np.concatenate([numbers, added]))
        return added

    def replace(self, numbers: Any, items: Any) -> None:
        """Give the items of these numbers new rows; removed ones come back. O(p d).

        Parameters
        ----------
        numbers : array_like (m,), int
            Different item numbers.
        items : array_like (m, d)
            Their new rows, in the order of numbers.
        """
        new = validation.as_rows("items", items)
        with parallel.writer_lock():
            old, live = self._in_memory()
            validation.check_same_width("items", new, "the items of the index", old)
            unique = validation.as_item_numbers("numbers", numbers, len(old), distinct=True)
            validation.check_shape("items", new.shape, (len(unique), old.shape[1]))
            rows = old.copy()
            rows[np.asarray(numbers)] = new
            self._items = self._fitted_to(rows, np.union1d(live, unique))

    def remove(self, numbers: Any) -> None:
        """Let the items of these numbers be found no more; the others keep their numbers. O(p d).

        Parameters
        ----------
        numbers : array_like (m,), int
            Different item numbers; at least one item must be left.
        """
        with parallel.writer_lock():
            rows, live = self._in_memory()
            gone = validation.as_item_numbers("numbers", numbers, len(rows), distinct=True)
            left = np.setdiff1d(live, gone, assume_unique=True)
            validation.as_count("items left", len(left))
            self._items = self._fitted_to(rows, left)

    def save(self, path: storage.PathLike) -> None:
        """Write the index to a directory, whole or not at all.

        Parameters
        ----------
        path : path-like
            A new directory, or one that this function wrote.

        Raises
        ------
        TypeError
            The measure is an object of a class that is not registered, or made with a model: only
            names, numbers and arrays can be stored.
        """
        rows, numbers = self._in_memory()
        measure, of_measure = serialization.to_parts(self.measure)
        packed = cast(Segment, self._fitted().segment).packed
        fields = {
            "measure": measure,
            "layout": list(packed.layout),
            "unit": packed.unit,
            "bias_unit": packed.bias_unit,
        }
        arrays = {name: getattr(packed.arrays, name) for name in _PACKED}
        arrays |= {"rows": rows, "numbers": numbers, **of_measure}
        storage.save_arrays(path, _KIND, arrays, fields)

    @classmethod
    def load(cls, path: storage.PathLike) -> "SimilarityIndex":
        """Return a saved index; its arrays are memory maps that threads and processes share.

        Parameters
        ----------
        path : path-like
            What ``save`` wrote. An index saved on a CPU with other tiles is packed anew.

        Returns
        -------
        SimilarityIndex
            Fitted.

        Raises
        ------
        FileNotFoundError
            There is no such directory.
        FastcosFormatError
            It is damaged, or holds something else.
        """
        stored = storage.load_arrays(path, _KIND)
        index = cls(serialization.from_parts(stored.fields["measure"], stored.arrays))
        arrays, fields = stored.arrays, stored.fields
        fitted = fit_items(
            arrays["rows"], get_measure(index.measure), None, numbers=arrays["numbers"]
        )
        segment = cast(Segment, fitted.segment)
        here = tile_layout(config.isa(), segment.encoded.rows.shape[1])
        if fields["layout"] == list(here):
            segment.packed = packed_items(
                segment.metric_type, here, segment.encoded, [arrays[name] for name in _PACKED],
                fields["unit"], fields["bias_unit"],
            )  # fmt: skip
        else:
            segment.pack()
        index._items = fitted
        return index

    @property
    def n_items_(self) -> int:
        """Items that can be found."""
        fitted = self._fitted()
        return len(fitted.rows if fitted.numbers is None else fitted.numbers)

    @property
    def n_features_in_(self) -> int:
        """Columns of the items."""
        return int(self._fitted().rows.shape[1])

    @property
    def bytes_per_item_(self) -> float:
        """Memory of the packed index beside the rows, per item."""
        fitted = self._fitted()
        if fitted.segment is None:
            return 0.0
        encoded = fitted.segment.encoded
        arrays = [
            getattr(packed.arrays, name)
            for packed in fitted.segment.packed_forms
            for name in _PACKED
        ]
        size = sum(array.nbytes for array in [*arrays, encoded.norms, encoded.bias])
        return float(size / len(fitted.rows))

    def __getstate__(self) -> dict[str, Any]:
        # rows alone: packed arrays would come back writable, which compiles every kernel once more
        state = vars(self) | {"_items": None}
        if self._items is not None:
            state["_kept"] = self._items.rows, self._items.numbers
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        kept = state.pop("_kept", None)
        self.__dict__.update(state)
        if kept is not None:
            rows, numbers = kept
            self._items = self._fitted_to(validation.read_only(rows), numbers)

    def _fitted(self) -> FittedItems:
        return validation.check_fitted(_KIND, self._items)

    def _in_memory(self) -> tuple[validation.Rows, npt.NDArray[np.int64]]:
        """Return rows and numbers of the items, unless they are memory-mapped."""
        fitted = self._fitted()
        if fitted.numbers is None:
            raise TypeError(
                "the index must hold rows in memory to be changed or saved, got a memory map"
            )
        return fitted.rows, fitted.numbers

    def _fitted_to(self, rows: Any, numbers: npt.NDArray[np.int64] | None) -> FittedItems:
        """Fit the measure to these items, encode and pack them."""
        fitted = fit_items(rows, get_measure(self.measure), self.n_threads, numbers)
        if fitted.segment is not None:
            fitted.segment.pack()
        return fitted
