"""An exact index of dense rows, prepared once and searched many times."""

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from fastcos import parallel, storage, validation
from fastcos.engine import query_batches, scan as dense
from fastcos.engine.segments import Question, can_stream, search_in_blocks
from fastcos.measures import Bounded, Measure, Sharp, get_measure, serialization
from fastcos.neighbors import filter_refine, ratio
from fastcos.neighbors.search import Neighbors, as_exclusions, as_work
from fastcos.storage import memmap

_KIND = "SimilarityIndex"
_PACKED = ("order", "packed", "starts", "small_offsets", "statistics", "shift")


class _State(NamedTuple):
    """All that a search reads; never changed, only replaced as a whole.

    numbers: the items that are not removed, rising; rows holds removed ones too.
    """

    rows: validation.Rows
    numbers: npt.NDArray[np.int64]
    measure: Measure
    side: dense.Side
    prepared: dense.Prepared


class _OnDisk(NamedTuple):
    """What a search reads of memory-mapped rows: nothing is prepared."""

    rows: Any
    measure: Measure


class SimilarityIndex:
    """Exact nearest neighbours of queries among items that are prepared once.

    Many threads may search at once, also while another adds, replaces or removes items: a search
    sees the items as they were before a change or after it. Works after fork. Needs the rows, and
    beside them ``bytes_per_item_`` bytes an item (rows of a multiple of 64 codes, or 4 bytes a
    column on CPUs without int8 instructions, and 60 bytes).

    Memory-mapped rows (``np.load(path, mmap_mode="r")``) stay on disk, by measures that need no
    search before: nothing is prepared, and every search reads all rows once, in blocks that fit its
    working_memory. So give it many queries at a time; the answers are the same bits. Such an index
    is not changed or saved. What a learning measure needs is one more reading, in ``fit``.

    Parameters
    ----------
    measure : str or Measure
        As in :func:`fastcos.top_k`. It is fitted to the items that are in the index.
    n_threads : int, optional
        For preparing. Default: the setting ``num_threads``.

    Attributes
    ----------
    n_items_ : int
        Items that can be found.
    n_features_in_ : int
        Columns of the items.
    bytes_per_item_ : float
        Memory of the prepared index beside the rows, per item.

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
        self._state: _State | _OnDisk | None = None

    def fit(self, items: Any) -> "SimilarityIndex":
        """Prepare the items, which become numbers 0 .. p-1. O(p d).

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
        if memmap.is_memmap(items) and can_stream(self.measure):
            mapped = memmap.as_mapped_rows("items", items)
            with parallel.writer_lock():
                self._state = _OnDisk(mapped, get_measure(self.measure).fit(mapped))
            return self
        rows = validation.as_rows("items", items)
        with parallel.writer_lock():
            self._state = self._prepared(rows, np.arange(len(rows), dtype=np.int64))
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
    ) -> Neighbors:
        """The k items most similar to every query, as :func:`fastcos.top_k` finds them.

        Parameters
        ----------
        queries : array_like (n, d), float32 or float64
            One row per query.
        k : int
            From 1 to the number of items that may be found.
        allowed : array_like, optional
            A mask over all item numbers, or item numbers: only these can be found.
        exclude : sparse (n, p), optional
            Its non-zeros are pairs that must not be found.
        min_score, n_threads, working_memory, progress
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
        state = self._fitted()
        given = validation.as_rows("queries", queries)
        validation.check_same_width("queries", given, "the items of the index", state.rows)
        validation.check_scorable("queries", given, given)
        permitted = None
        if allowed is not None:
            permitted = validation.as_item_numbers("allowed", allowed, len(state.rows))
            if isinstance(state, _State):
                permitted = np.intersect1d(permitted, state.numbers, assume_unique=True)
        n_found = self.n_items_ if permitted is None else len(permitted)
        k = validation.as_count("k", k, high=n_found)
        exclusions = as_exclusions(exclude, len(given), len(state.rows), own=False)
        work = as_work(n_threads, working_memory, progress)
        if min_score is not None:
            min_score = validation.as_real("min_score", min_score)
        asked = Question(given, state.rows, k, state.measure, permitted, exclusions, min_score)
        if isinstance(state, _OnDisk):
            return Neighbors(*search_in_blocks(asked, state.measure, work))

        def find(side: dense.Side, excluded: dense.Exclusions, work: dense.Work, k: int = k) -> Any:
            return dense.search(state.prepared, side, excluded, k, work, permitted)

        queries_asked = filter_refine.Asked(given, exclusions, k)
        if ratio.serves(state.measure, len(given)):
            numbers = state.numbers if permitted is None else permitted
            measure = cast(Sharp, state.measure)
            return Neighbors(
                *ratio.search(measure, queries_asked, state.rows, numbers, min_score, work)
            )
        if isinstance(state.measure, Bounded):
            engine = filter_refine.Engine(find, lambda: state.prepared, n_found, permitted)
            return Neighbors(
                *filter_refine.in_chunks(
                    state.measure, queries_asked, state.rows, min_score, work, engine
                )
            )
        results = query_batches.results_in_chunks(asked, work)
        return Neighbors(*query_batches.in_chunks(asked, state.measure, work, find, results))

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
            old = self._in_memory()
            validation.check_same_width("items", new, "the items of the index", old.rows)
            numbers = np.arange(len(old.rows), len(old.rows) + len(new), dtype=np.int64)
            rows = np.concatenate([old.rows, new.astype(old.rows.dtype, copy=False)])
            self._state = self._prepared(rows, np.concatenate([old.numbers, numbers]))
        return numbers

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
            old = self._in_memory()
            validation.check_same_width("items", new, "the items of the index", old.rows)
            unique = validation.as_item_numbers("numbers", numbers, len(old.rows))
            validation.check_shape("items", new.shape, (len(unique), old.rows.shape[1]))
            rows = old.rows.copy()
            rows[np.asarray(numbers)] = new
            self._state = self._prepared(rows, np.union1d(old.numbers, unique))

    def remove(self, numbers: Any) -> None:
        """Let the items of these numbers be found no more; the others keep their numbers. O(p d).

        Parameters
        ----------
        numbers : array_like (m,), int
            Item numbers; at least one item must be left.
        """
        with parallel.writer_lock():
            old = self._in_memory()
            gone = validation.as_item_numbers("numbers", numbers, len(old.rows))
            left = np.setdiff1d(old.numbers, gone, assume_unique=True)
            validation.as_count("items left", len(left))
            self._state = self._prepared(old.rows, left)

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
        state = self._in_memory()
        measure, of_measure = serialization.parts_of(self.measure)
        packed = {field: getattr(state.prepared.items, _field(field)) for field in _PACKED}
        fields = {
            "measure": measure,
            "tiling": list(state.prepared.tiling),
            "unit": state.prepared.unit,
            "offset_unit": state.prepared.offset_unit,
        }
        arrays = {"rows": state.rows, "numbers": state.numbers, **packed, **of_measure}
        storage.save_arrays(path, _KIND, arrays, fields)

    @classmethod
    def load(cls, path: storage.PathLike) -> "SimilarityIndex":
        """Return a saved index; its arrays are memory maps that threads and processes share.

        Parameters
        ----------
        path : path-like
            What ``save`` wrote. An index saved on a CPU with other tiles is prepared anew.

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
        index = cls(serialization.measure_of(stored.fields["measure"], stored.arrays))
        rows, numbers = stored.arrays["rows"], stored.arrays["numbers"]
        index._state = index._restored(rows, numbers, stored)
        return index

    @property
    def n_items_(self) -> int:
        """Items that can be found."""
        state = self._fitted()
        return len(state.rows if isinstance(state, _OnDisk) else state.numbers)

    @property
    def n_features_in_(self) -> int:
        """Columns of the items."""
        return int(self._fitted().rows.shape[1])

    @property
    def bytes_per_item_(self) -> float:
        """Memory of the prepared index beside the rows, per item."""
        state = self._fitted()
        if isinstance(state, _OnDisk):
            return 0.0
        arrays = [getattr(state.prepared.items, _field(field)) for field in _PACKED]
        size = sum(array.nbytes for array in [*arrays, state.side.norms, state.side.offsets])
        return float(size / len(state.rows))

    def __setstate__(self, state: dict[str, Any]) -> None:
        # pickles and copies make arrays writable: that would compile every kernel once more
        self.__dict__.update(state)
        self._state = _frozen(self._state)

    def _fitted(self) -> _State | _OnDisk:
        return cast(_State | _OnDisk, validation.check_fitted(_KIND, self._state))

    def _in_memory(self) -> _State:
        state = self._fitted()
        rule = "of rows in memory to be changed or saved"
        return validation.as_instance("the index", state, _State, rule)

    def _side(
        self, rows: validation.Rows, numbers: npt.NDArray[np.int64]
    ) -> tuple[Any, dense.Side]:
        live = rows if len(numbers) == len(rows) else rows[numbers]
        measure = get_measure(self.measure).fit(live)
        offsets = measure.item_offsets(rows)
        validation.check_scorable("items", rows, rows)
        return measure, dense.side(measure.items(rows), offsets, self.n_threads, measure.form)

    def _prepared(self, rows: validation.Rows, numbers: npt.NDArray[np.int64]) -> _State:
        measure, side = self._side(rows, numbers)
        prepared = dense.prepare(measure.form, side, numbers, self.n_threads)
        return _State(rows, numbers, measure, side, prepared)

    def _restored(
        self, rows: validation.Rows, numbers: npt.NDArray[np.int64], stored: storage.Stored
    ) -> _State:
        measure, side = self._side(rows, numbers)
        kept = dense.Tiling(*stored.fields["tiling"])
        here = dense.current_tiling(side.rows.shape[1])
        # written before there were shifts, or where tiles are others
        if here.quantised != kept.quantised or not stored.arrays.keys() >= set(_PACKED):
            prepared = dense.prepare(measure.form, side, numbers, self.n_threads)
        else:
            prepared = dense.packed_items(
                measure.form,
                here,
                side,
                [stored.arrays[field] for field in _PACKED],
                stored.fields["unit"],
                stored.fields["offset_unit"],
            )
        return _State(rows, numbers, measure, side, prepared)


def _frozen(value: Any) -> Any:
    """The same value with every array in its tuples read-only."""
    if isinstance(value, np.ndarray):
        return validation.read_only(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_frozen, value))
    return value


def _field(name: str) -> str:
    """Name in the kernels' Items of an array as it is stored."""
    return "codes" if name == "packed" else name
