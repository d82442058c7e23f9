"""An exact index of dense rows: packed once, searched many times, changed in O(new)."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastcos import parallel, storage, validation
from fastcos.engine import narrow_rows
from fastcos.engine.packing import no_exclusions
from fastcos.measures import serialization
from fastcos.measures.base import Measure, capabilities, get_measure, require
from fastcos.neighbors import index_files, index_ids, index_model
from fastcos.neighbors.ids import NO_ID, Ids, as_ids
from fastcos.neighbors.index_parts import Contents, IndexPart, contents_of, merged, new_part
from fastcos.neighbors.near_duplicates import NearDuplicates, connected
from fastcos.neighbors.out_of_core import MappedItems, results_in_directory
from fastcos.neighbors.plain_search import PlainSearch
from fastcos.neighbors.radius import pairs_above
from fastcos.neighbors.rescoring import Rescored, as_candidates, best_of_candidates
from fastcos.neighbors.results import IndexNeighbors, Neighbors, no_neighbors, padded
from fastcos.neighbors.search import as_items, as_options, as_request, finish, search
from fastcos.neighbors.types import FittedItems, Threshold, as_min_score, as_threshold
from fastcos.reports.table import printable
from fastcos.storage import memmap
from fastcos.validation import Integers

if TYPE_CHECKING:
    import scipy.sparse as sp


_KIND = "SimilarityIndex"
# neighbours that any index may be searched for: beyond, a wrong number would fill the memory
_LARGEST_PADDED = 65_536


class IndexMemory(NamedTuple):
    """Bytes of an index.

    Attributes
    ----------
    codes : int
        What searches read of all items: codes, norms, biases. About 1.1 bytes a column and 30 an
        item; 4 a column on CPUs without int8 instructions.
    rows : int
        Rows as given. Searches read only those of the few items that the codes do not exclude.
    mapped : int
        How much of both lies in files, which the system reads when needed and may drop.
    """

    codes: int
    rows: int
    mapped: int


class _State(NamedTuple):
    """What a search reads, replaced as a whole by every change."""

    fitted: FittedItems
    parts: tuple[IndexPart, ...]
    width: int
    has_names: bool = False
    plain: PlainSearch | None = None

    @property
    def is_mapped(self) -> bool:
        """Whether the items stay on disk; such an index is not changed or saved."""
        return isinstance(self.fitted, MappedItems)

    @property
    def no_id(self) -> int | str:
        """What stands for no item among ids: strings, or numbers."""
        return "" if self.has_names else NO_ID


def _state_of(
    fitted: FittedItems, parts: Sequence[IndexPart], width: int, has_names: bool = False
) -> _State:
    """Return the state of these parts, and prepare their plain search."""
    plain = PlainSearch(fitted, parts) if PlainSearch.serves(fitted) else None
    return _State(fitted, tuple(parts), width, has_names, plain)


class _Saved(NamedTuple):
    """What a directory held when it was read or written last; names: of its arrays."""

    path: Path
    checksum: str
    parts: dict[str, index_files.Fields]
    names: frozenset[str]


class SimilarityIndex(index_ids.ById, index_model.OfModel):
    """Exact nearest neighbours among items that have ids and can change.

    An item has an id, which the caller gives, and a position, which counts items in the order in
    which they came. Both stay with it until it is removed, and no position is used twice. Searches
    return both. Equal scores are ordered by position. Results are bit-identical to those of a new
    index of the same rows in the order of their positions.

    ``add``, ``upsert`` and ``remove`` cost O(new) on average, by measures with the capability
    ``append``, which learn nothing from items and use rows as given (cosine, dot, neg_euclidean,
    angular). By other measures every change fits and packs all items. Many threads may search, also
    while another changes the index: a search sees all items as they were before a change or after.
    Works after fork.

    A saved index is a directory. ``open`` maps it, ``save`` writes what changed, and ``refresh``
    takes up what another process saved.

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
    model : str, optional
        Name and version of what made the rows, such as ``"minilm@2"``. It is saved; opening the
        index for another model, or a calibration of another, is an error.

    Attributes
    ----------
    n_items_ : int
        Items that can be found.
    n_positions_ : int
        Positions given so far: the length of a mask for ``allowed``.
    n_features_in_ : int
        Columns of the items.
    memory_ : IndexMemory
        Bytes of codes and rows, and how many are mapped.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import SimilarityIndex
    >>> items = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])
    >>> index = SimilarityIndex().fit(items, ids=["a", "b", "c"])
    >>> index.search(np.array([[1.0, 0.1]]), k=2).ids.tolist()
    [['b', 'a']]
    >>> index.remove(["b"])
    >>> index.add(np.array([[1.0, 0.1]]), ids=["d"]).tolist()
    ['d']
    >>> index.search(np.array([[1.0, 0.1]]), k=2).ids.tolist()
    [['d', 'a']]
    """

    def __init__(
        self,
        measure: str | Measure = "cosine",
        *,
        n_threads: int | None = None,
        model: str | None = None,
    ) -> None:
        self.measure = measure
        self.n_threads = n_threads
        self.model = index_model.as_model(model)
        self._canaries: Any = None
        self._state: _State | None = None
        self._saved: _Saved | None = None
        # what a save that runs, or was interrupted, writes
        self._saving: tuple[_Saved, dict[str, Any]] | None = None

    def __repr__(self) -> str:
        """Say how many items there are, of how many columns, and the measure."""
        if self._state is None:
            return f"SimilarityIndex(measure={self.measure!r}), not fitted"
        name = printable(self._state.fitted.measure.name)
        of = "" if self.model is None else f", of {printable(self.model)}"
        return f"SimilarityIndex of {self.n_items_:,} items x {self.n_features_in_}, by {name}{of}"

    def fit(self, items: Any, ids: Any = None) -> "SimilarityIndex":
        """Fit the measure and pack the items, which get the positions 0 .. p-1. O(p d).

        Parameters
        ----------
        items : array_like (p, d), float32, float64, float16, bfloat16 or int8
            Kept, not copied, where they are C-contiguous: do not change them afterwards. The last
            three are never widened as a whole, by measures with the capability ``append``. Those of
            a memory map are checked as they are read, that is by every search.
            ``np.empty((0, d))`` makes an empty index.
        ids : array_like (p,), int64 or str, optional
            All different; not -1 or "". Default: the positions.

        Returns
        -------
        SimilarityIndex
            Itself.

        Raises
        ------
        ValueError
            NaN or infinity, or an id that occurs twice.
        """
        measure = get_measure(self.measure)
        rows = _as_item_rows("items", items, measure)
        if isinstance(rows, np.memmap):
            validation.check_none("ids", ids, "for memory-mapped items")
            state = _State(MappedItems(measure.fit(rows), len(rows), (), rows), (), rows.shape[1])
        else:
            positions = np.arange(len(rows), dtype=np.int64)
            named = positions if ids is None else as_ids("ids", ids, len(rows))
            contents = Contents(rows, named, positions)
            state = self._fitted_to(contents, len(rows))
        with parallel.writer_lock():
            self._state, self._saved, self._saving = state, None, None
        return self

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        allowed: Any = None,
        exclude: Any = None,
        allowed_ids: Any = None,
        exclude_ids: Any = None,
        min_score: float | None = None,
        n_threads: int | None = None,
        working_memory: float | None = None,
        progress: parallel.Progress | None = None,
        out: storage.PathLike | None = None,
    ) -> IndexNeighbors:
        """The k items most similar to every query, as :func:`fastcos.top_k` finds them.

        Parameters
        ----------
        queries : array_like (n, d) or (d,), as for :func:`fastcos.top_k`
            One row per query; n may be 0.
        k : int
            Neighbours per query, at most 65,536 or the number of positions. Where fewer can be
            found: padded.
        allowed : array_like, or sparse (n, p), optional
            A mask over all positions, or positions (``positions_of(ids)``): only these can be
            found. The non-zeros of a sparse matrix: those that each query may find, all of which
            are scored.
        exclude : sparse (n, p), optional
            Its non-zeros are pairs of queries and positions that must not be found. Of a matrix
            with fewer columns, made before items were added, the new ones are not excluded.
        allowed_ids, exclude_ids : array_like of ids, or a list of them for each query, optional
            Only these can be found, or none of these. Ids that are not in the index are left out.
        min_score, n_threads, working_memory, progress
            As in :func:`fastcos.top_k`.
        out : path-like, optional
            As in :func:`fastcos.top_k`; k must not exceed the number of items.

        Returns
        -------
        IndexNeighbors
            indices (n, k) int64, scores (n, k) float32 and ids (n, k).

        Raises
        ------
        ValueError
            NaN or infinity, k below 1, queries of another width, or nothing was fitted.
        """
        state = self._current()
        by_id = allowed_ids is not None or exclude_ids is not None
        has_filter = by_id or not (allowed is exclude is min_score is None)
        is_plain = progress is None and out is None and working_memory is None
        if state.plain is not None and is_plain and not has_filter:
            plain = state.plain.search(queries, k, n_threads)
            if plain is not None:
                return IndexNeighbors(*plain)
        fitted = state.fitted
        k = validation.as_count("k", k, high=max(fitted.n_items, _LARGEST_PADDED))
        Q = _as_query_rows(queries, state)
        options = as_options(n_threads, working_memory, progress)
        if not len(Q) or not fitted.n_live:
            return _with_ids(state, padded(no_neighbors(len(Q)), k))
        if has_filter:
            min_score = as_min_score(min_score, fitted.measure, self.model)
            allowed, exclude = index_ids.filters(
                state, len(Q), allowed, exclude, allowed_ids, exclude_ids
            )
        request = as_request(
            Q, fitted.n_items, min(k, fitted.n_live), allowed=allowed, exclude=exclude,
            min_score=min_score,
        )  # fmt: skip
        if not request.k:
            return _with_ids(state, padded(no_neighbors(len(Q)), k))
        results = None
        if out is not None:
            validation.as_count("k", k, high=request.k)
            require(fitted.measure, "blocks")
            kept, rows = request, fitted.rows
            if not state.is_mapped:
                rows, _, positions = contents_of(state.parts)
                if request.permitted is not None:
                    positions = np.intersect1d(request.permitted, positions, assume_unique=True)
                kept = request._replace(permitted=positions)
            measure = get_measure(self.measure)
            results = results_in_directory(kept, rows, measure, options, out)
            if results.is_complete:
                return _with_ids(state, Neighbors(**results.finish()))
        return _with_ids(state, padded(search(fitted, request, options, results), k))

    def radius(
        self,
        queries: Any,
        threshold: float | Threshold,
        *,
        allowed: Any = None,
        n_threads: int | None = None,
        working_memory: float | None = None,
    ) -> "sp.csr_array":
        """All items with a score of at least threshold, as :func:`fastcos.neighbors_above`.

        Parameters
        ----------
        queries : array_like (n, d) or (d,)
            One row per query; n may be 0.
        threshold : float or Calibration
            As in :func:`fastcos.neighbors_above`.
        allowed : array_like, optional
            A mask over all positions, or positions: only these can be found.
        n_threads, working_memory
            As in :func:`fastcos.neighbors_above`.

        Returns
        -------
        csr_array (n, p), float32
            The scores, a column for each position given so far; columns ascend within a row.
            ``ids_of(found.indices)`` are their ids.

        Raises
        ------
        ValueError
            More pairs than working_memory holds, NaN or infinity, queries of another width.
        TypeError
            The items are memory-mapped.
        """
        state = self._in_memory("for a radius search")
        Q = _as_query_rows(queries, state)
        least = as_threshold("threshold", threshold, state.fitted.measure, self.model)
        options, n_items = as_options(n_threads, working_memory), state.fitted.n_items
        permitted = None
        if allowed is not None:
            permitted = validation.as_item_numbers("allowed", allowed, n_items)
        if not len(Q) or not state.parts:
            import scipy.sparse as sp

            return sp.csr_array((len(Q), n_items), dtype=np.float32)
        Q = validation.as_rows("queries", Q)
        validation.check_scorable("queries", Q, Q)
        return pairs_above(state.fitted, Q, least, no_exclusions(len(Q)), options, permitted)

    def near_duplicates(
        self,
        threshold: float | Threshold,
        *,
        n_threads: int | None = None,
        working_memory: float | None = None,
    ) -> NearDuplicates:
        """Connected components of the items' pairs with a score of at least threshold.

        As :func:`fastcos.neighbors.near_duplicates`, without packing.
        ``remove(ids_of(positions))`` of all but the representatives leaves one item of each group.

        Parameters
        ----------
        threshold : float or Calibration
            Score from which two items are connected, as in :func:`fastcos.neighbors_above`.
        n_threads, working_memory
            As in :func:`fastcos.neighbors_above`.

        Returns
        -------
        NearDuplicates
            Labels of every position, -1 where no item is; representatives and pairs are positions.

        Raises
        ------
        ValueError
            More pairs than working_memory holds.
        TypeError
            The items are memory-mapped.
        """
        state = self._in_memory("to connect items")
        fitted = state.fitted
        least = as_threshold("threshold", threshold, fitted.measure, self.model)
        options = as_options(n_threads, working_memory)
        labels = np.full(fitted.n_items, -1, np.int64)
        if not state.parts:
            return NearDuplicates(
                labels, np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros(0, np.float32)
            )
        rows, _, positions = contents_of(state.parts)
        rows = memmap.read_rows("items", rows, 0, len(rows))
        nothing = no_exclusions(len(rows))
        own = nothing._replace(own=validation.read_only(positions))
        pairs = pairs_above(fitted, rows, least, own, options)
        groups = connected(pairs[:, positions])
        labels[positions] = groups.labels
        return NearDuplicates(
            labels, positions[groups.representatives], positions[groups.pairs], groups.scores
        )

    def rescore(
        self,
        queries: Any,
        candidates: Any,
        k: int = 10,
        *,
        n_threads: int | None = None,
        working_memory: float | None = None,
    ) -> Rescored:
        """The k best of each query's candidates, and how many of the true k nearest they miss.

        As :func:`fastcos.neighbors.rescore`, but ``missing`` is exact: the index searches its codes
        of all items, so that this costs as much as ``search``.

        Parameters
        ----------
        queries : array_like (n, d) or (d,)
            One row per query.
        candidates : array_like (n, c), int
            Positions of each query's candidates; -1 stands for none. Repeated ones count once.
        k : int
            Neighbours per query, at most c.
        n_threads, working_memory
            As in :func:`fastcos.top_k`.

        Returns
        -------
        Rescored
            indices (n, k) int64 are positions; scores (n, k) float32 and missing (n,) int64.

        Raises
        ------
        ValueError
            A candidate out of range, k out of range, queries of another width.
        """
        state = self._in_memory("to score candidates")
        Q = validation.as_rows("queries", _as_query_rows(queries, state))
        validation.check_scorable("queries", Q, Q)
        lists = as_candidates(candidates, len(Q), state.fitted.n_items)
        k = validation.as_count("k", k, high=lists.shape[1])
        options = as_options(n_threads, working_memory)
        columns, raw = best_of_candidates(state.fitted, Q, lists, k, options)
        indices, scores = finish(state.fitted.measure, Q, columns, raw, None)
        n_live = state.fitted.n_live
        missing = np.zeros(len(Q), np.int64)
        if n_live:
            request = as_request(Q, state.fitted.n_items, min(k, n_live))
            nearest = search(state.fitted, request, options).indices
            is_found = (nearest[:, :, None] == indices[:, None]).any(axis=2)
            missing[:] = (~is_found).sum(axis=1)
        return Rescored(indices, scores, missing)

    def add(self, items: Any, ids: Any = None) -> Ids:
        """Add items, which get the next positions.

        Parameters
        ----------
        items : array_like (new, d)
            More rows; their type may differ from that of those in the index.
        ids : array_like (new,), int64 or str as those of the index
            None of them in the index. Default: the positions, where those of the index are
            positions too.

        Returns
        -------
        ndarray (new,), int64 or str
            Their ids.

        Raises
        ------
        ValueError
            An id occurs twice or is in the index already, which then stays as it was.
        """
        return self._changed_by(items, ids, may_replace=False)

    def upsert(self, items: Any, ids: Any) -> None:
        """Add items, or replace those that have these ids, which keep their positions.

        Parameters
        ----------
        items : array_like (new, d)
            Their rows.
        ids : array_like (new,), int64 or str as those of the index
            All different.

        Raises
        ------
        ValueError
            An id occurs twice; the index stays as it was.
        """
        if ids is None:
            raise TypeError("ids must be given to replace items, got None")
        self._changed_by(items, ids, may_replace=True)

    def remove(self, ids: Any) -> None:
        """Remove items; the others keep their positions. The index may become empty.

        Parameters
        ----------
        ids : array_like (m,), int64 or str as those of the index
            All different, all in the index.

        Raises
        ------
        ValueError
            An id occurs twice or is not in the index, which then stays as it was.
        """
        gone = as_ids("ids", ids)
        with parallel.writer_lock():
            state = self._in_memory()
            found = index_ids.find(state.parts, state.has_names, gone)
            index_ids.check_all("ids", gone, found, "in the index")
            if len(gone):
                parts = _without(state.parts, found)
                self._state = self._with_parts(state, parts, state.fitted.n_items)

    def positions_of(self, ids: Any) -> Integers:
        """Return the positions of items, for ``allowed`` and ``exclude``.

        Parameters
        ----------
        ids : array_like (m,), int64 or str as those of the index
            All different, all in the index.

        Returns
        -------
        ndarray (m,), int64
            In the order of ids.

        Raises
        ------
        ValueError
            An id is not in the index.
        """
        state, wanted = self._in_memory("to look up ids"), as_ids("ids", ids)
        found = index_ids.find(state.parts, state.has_names, wanted)
        index_ids.check_all("ids", wanted, found, "in the index")
        return index_ids.positions_in(state.parts, found, len(wanted))

    def ids_of(self, positions: Any) -> Ids:
        """Return the ids at positions, as searches return them.

        Parameters
        ----------
        positions : array_like of int64
            Any shape. -1, and a position whose item is gone, have the id -1 or "".

        Returns
        -------
        ndarray, int64 or str
            In the shape of positions.
        """
        places = validation.as_array("positions", positions)
        if places.dtype.kind not in "iu":
            raise TypeError(f"positions must be whole numbers, got dtype {places.dtype}")
        return _ids_at(self._current(), places.astype(np.int64))

    def save(self, path: storage.PathLike, *, canaries: Any = None) -> None:
        """Write the index to a directory, whole or not at all, and through to the disk.

        A directory that this index was opened from or saved to gets only what is new. Writers wait
        for each other. Who would overwrite what another writer saved meanwhile gets an error.

        Parameters
        ----------
        path : path-like
            A new directory, or one that this function wrote.
        canaries : array_like (c, d), optional
            Rows of a few fixed inputs, embedded by the model of this index, for ``check_canaries``.
            They stay in the directory until others are given.

        Raises
        ------
        TypeError
            The measure is an object of a class that is not registered, or made with a model: only
            names, numbers and arrays can be stored. Or the rows are memory-mapped.
        ValueError
            path holds something else, or what another writer saved since this index was opened.
        """
        with parallel.writer_lock():
            self._finish_save()
            state, saved = self._in_memory(), self._saved
            if canaries is not None:
                self._canaries = index_model.as_canaries(canaries, state.width)
            target = validation.as_path("path", path).absolute()
            if saved is not None and (saved.path != target or not target.exists()):
                saved = None
            measure, of_measure = serialization.to_parts(self.measure)
            arrays, parts, kept = index_files.to_stored(
                state.parts,
                {} if saved is None else saved.parts,
                frozenset() if saved is None else saved.names,
            )
            fields = {
                "measure": measure,
                "width": state.width,
                "has_names": state.has_names,
                "positions": state.fitted.n_items,
                "parts": parts,
                "model": self.model,
            }
            if self._canaries is not None:
                of_measure = of_measure | {"canaries": self._canaries}
            by_key = {part["key"]: part for part in parts}
            arrays |= of_measure
            written = _Saved(target, "", by_key, frozenset([*arrays, *kept]))
            self._saving = written, fields
            checksum = storage.save_arrays(
                target, _KIND, arrays, fields, kept=kept,
                expected=None if saved is None else saved.checksum,
            )  # fmt: skip
            self._saved, self._saving = written._replace(checksum=checksum), None

    def _finish_save(self) -> None:
        """Take up a save that was interrupted after it had replaced the header."""
        if self._saving is not None:
            written, fields = self._saving
            with contextlib.suppress(storage.FastcosFormatError, OSError):
                found, checksum = storage.read_fields(written.path, _KIND)
                if found == json.loads(json.dumps(fields)):  # keys of parts are of this index alone
                    self._saved = written._replace(checksum=checksum)
            self._saving = None

    @classmethod
    def open(
        cls, path: storage.PathLike, *, verify: bool = False, model: str | None = None
    ) -> "SimilarityIndex":
        """Return a saved index; its arrays are memory maps that threads and processes share.

        By measures with the capability ``append`` no row is read: sizes of files are checked, and
        the norms and codes are those that were saved. Other measures are fitted again.

        Parameters
        ----------
        path : path-like
            What ``save`` wrote. An index saved on a CPU with other tiles is packed anew.
        verify : bool
            Read every file and compare its checksum.
        model : str, optional
            The model of the queries to come: an error if the index was made by another.

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
        ValueError
            The index has the name of another model.
        """
        verify = validation.as_flag("verify", verify)
        target = validation.as_path("path", path).absolute()
        stored = storage.load_arrays(target, _KIND, verify=verify)
        index = cls()
        index._take_up(target, stored, {})
        wanted = index_model.as_model(model)
        index_model.check_same_model("model", index.model, wanted)
        index.model = index.model or wanted
        return index

    def refresh(self) -> bool:
        """Take up what another process has saved since this index was opened or saved.

        Searches that run finish on what they started with. What was changed here and not saved is
        dropped. The arrays of parts that stay are not mapped again.

        Returns
        -------
        bool
            Whether there was anything new.

        Raises
        ------
        ValueError
            The index was not opened from a directory or saved to one.
        """
        with parallel.writer_lock():
            self._finish_save()
            saved = self._saved
            if saved is None:
                raise ValueError("SimilarityIndex must be opened or saved before refresh")
            if storage.read_fields(saved.path, _KIND)[1] == saved.checksum:
                return False
            stored = storage.load_arrays(saved.path, _KIND, verify=False)
            self._take_up(saved.path, stored, saved.parts)
        return True

    @property
    def n_items_(self) -> int:
        """Items that can be found."""
        return self._current().fitted.n_live

    @property
    def n_positions_(self) -> int:
        """Positions given so far, those of removed items included."""
        return self._current().fitted.n_items

    @property
    def n_features_in_(self) -> int:
        """Columns of the items."""
        return self._current().width

    @property
    def memory_(self) -> IndexMemory:
        """Bytes of codes and rows, and how many of them are mapped."""
        state = self._current()
        if state.is_mapped:
            size = state.fitted.rows.nbytes
            return IndexMemory(0, size, size)
        codes = rows = mapped = 0
        for part in state.parts:
            encoded, shared = part.segment.encoded, part.segment.rows
            arrays = [
                array
                for packed in part.segment.packed_forms
                for array in index_files.packed_arrays(packed).values()
            ]
            arrays += [encoded.norms, encoded.bias]
            size = sum(array.nbytes for array in arrays)
            codes, rows = codes + size, rows + shared.nbytes
            mapped += size - encoded.bias.nbytes + shared.nbytes if part.is_mapped else 0
        return IndexMemory(codes, rows, mapped)

    def __getstate__(self) -> dict[str, Any]:
        # rows alone: packed arrays would come back writable, which compiles every kernel once more
        fields = vars(self) | {"_state": None, "_saved": None, "_saving": None}
        state = self._state
        if state is not None:
            contents = state.fitted.rows if state.is_mapped else _nothing(state.width)
            if state.parts:
                contents = contents_of(state.parts)
            fields["_kept"] = contents, state.fitted.n_items
        return fields

    def __setstate__(self, fields: dict[str, Any]) -> None:
        kept = fields.pop("_kept", None)
        self.__dict__.update(fields)
        if kept is not None:
            contents, n_items = kept
            if not isinstance(contents, Contents):
                positions = np.arange(n_items, dtype=np.int64)
                contents = Contents(np.asarray(contents), positions, positions)
            rows = validation.read_only(contents.rows)
            self._state = self._fitted_to(contents._replace(rows=rows), n_items)

    def _current(self) -> _State:
        return validation.check_fitted(_KIND, self._state)

    def _in_memory(self, purpose: str = "to be changed or saved") -> _State:
        """Return the state, unless the items are memory-mapped."""
        state = self._current()
        if state.is_mapped:
            raise TypeError(f"the index must hold rows in memory {purpose}, got a memory map")
        return state

    def _changed_by(self, items: Any, ids: Any, *, may_replace: bool) -> Ids:
        """Add or replace items; return their ids."""
        measure = get_measure(self.measure)
        rows = _as_item_rows("items", items, measure, in_memory=True)
        given = None if ids is None else as_ids("ids", ids, len(rows))
        with parallel.writer_lock():
            state = self._in_memory()
            _check_width("items", rows, state)
            n_items, parts = state.fitted.n_items, state.parts
            new = given
            if new is None:
                if state.has_names:
                    raise TypeError("ids must be strings as those of the index, got None")
                index_ids.check_are_positions(parts)
                new = np.arange(n_items, n_items + len(rows), dtype=np.int64)
            found = index_ids.find(state.parts, state.has_names, new)
            if not may_replace:
                index_ids.check_none("ids", new, found)
            if not len(rows):
                return new
            positions = index_ids.positions_in(parts, found, len(new))
            is_new = positions < 0
            positions[is_new] = n_items + np.arange(is_new.sum())
            order = np.argsort(positions)
            # a copy: the caller may use the memory of the rows again
            contents = Contents(validation.read_only(rows[order]), new[order], positions[order])
            self._state = self._with_parts(
                state, _without(parts, found), n_items + int(is_new.sum()), contents
            )
        return new

    def _with_parts(
        self,
        state: _State,
        parts: Sequence[IndexPart],
        n_items: int,
        new: Contents | None = None,
    ) -> _State:
        """Return the state with these parts and new contents."""
        measure = state.fitted.measure
        if capabilities(measure).append:
            if new is not None:
                parts = [*parts, new_part(new, measure, self.n_threads)]
            parts = merged(parts, measure, self.n_threads)
            segments = tuple(part.segment for part in parts)
            fitted = FittedItems(measure, n_items, segments)
            has_names = state.has_names if new is None else new.ids.dtype.kind == "U"
            return _state_of(fitted, parts, state.width, has_names)
        contents = [contents_of([part]) for part in parts if len(part.segment.numbers)]
        contents += [] if new is None else [new]
        if not contents:
            return _State(FittedItems(measure, n_items, ()), (), state.width, state.has_names)
        rows, ids, positions = map(np.concatenate, zip(*contents, strict=True))
        order = np.argsort(positions)
        all_rows = validation.read_only(rows[order])
        return self._fitted_to(Contents(all_rows, ids[order], positions[order]), n_items)

    def _fitted_to(self, contents: Contents, n_items: int) -> _State:
        """Fit the measure to these items, encode and pack them."""
        measure, width = get_measure(self.measure), contents.rows.shape[1]
        if not len(contents.rows):
            return _State(FittedItems(measure, n_items, ()), (), width)
        fitted = measure.fit(contents.rows)
        part = new_part(contents, fitted, self.n_threads)
        has_names = contents.ids.dtype.kind == "U"
        return _state_of(FittedItems(fitted, n_items, (part.segment,)), (part,), width, has_names)

    def _take_up(
        self, path: Path, stored: storage.Stored, known: dict[str, index_files.Fields]
    ) -> None:
        """Replace the state by what a directory holds; parts of known keys may be reused."""
        with storage.refuse_damage(path):
            given = serialization.from_parts(stored.fields["measure"], stored.arrays)
            state = self._state_of(stored, get_measure(given), known)
            by_key = {field["key"]: field for field in stored.fields["parts"]}
        self.measure, self._state, self._saving = given, state, None
        self.model, self._canaries = stored.fields.get("model"), stored.arrays.get("canaries")
        self._saved = _Saved(path, stored.checksum, by_key, frozenset(stored.arrays))

    def _state_of(
        self, stored: storage.Stored, measure: Measure, known: dict[str, index_files.Fields]
    ) -> _State:
        """Return what a directory holds, checked."""
        fields, parts = stored.fields, []
        have = {} if self._state is None else {part.key: part for part in self._state.parts}
        if len(fields["parts"]) == 1:  # a measure that learns has one part
            measure = measure.fit(stored.arrays[f"rows_{fields['parts'][0]['key']}"])
        width, n_positions = int(fields["width"]), int(fields["positions"])
        has_names = bool(fields["has_names"])
        if not (width > 0 and 0 <= n_positions < index_files.MOST_POSITIONS):
            raise ValueError(f"width and positions must be counts, got {width}, {n_positions}")
        for field in fields["parts"]:
            key = field["key"]
            part = have.get(key)
            before = known.get(key, {}).get("removed")
            # removed items only become more: as many are the same
            if part is None or not part.n_removed == field["removed"] == before:
                part = index_files.from_stored(field, stored, measure)
            segment, n = part.segment, len(part.segment.rows)
            last = segment.first + n - 1 if segment.positions is None else segment.positions[-1]
            facts = segment.rows.shape[1], part.ids.values.dtype.kind == "U"
            if facts != (width, has_names) or last >= n_positions:
                raise ValueError(f"width, has_names and positions must be those of part {key}")
            parts.append(part)
        fitted = FittedItems(measure, n_positions, tuple(part.segment for part in parts))
        return _state_of(fitted, parts, width, has_names)


def _nothing(width: int) -> Contents:
    none = np.zeros(0, np.int64)
    return Contents(np.empty((0, width), np.float32), none, none)


def _as_item_rows(
    name: str, X: Any, measure: Measure, *, or_vector: bool = False, in_memory: bool = False
) -> Any:
    """Return X as as_items does, narrow where kernels read it; no rows (0, d) are rows, too."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 2 and shape[0] == 0 and shape[1] > 0 and not validation.is_sparse(X):
        return np.empty(shape, np.float32)
    if in_memory and isinstance(X, np.memmap):
        return validation.as_rows(name, X)
    rows = as_items(name, X, measure, or_vector=or_vector, in_blocks=True)
    if not memmap.is_narrow(rows):
        return rows
    if not narrow_rows.has_kernels(rows):
        return validation.as_rows(name, rows)
    return validation.read_only(np.ascontiguousarray(rows))


def _as_query_rows(X: Any, state: _State) -> Any:
    """Return queries as _as_item_rows does, narrow ones in float32."""
    if type(X) is np.ndarray and X.ndim == 1:
        X = X[np.newaxis]
    Q = _as_item_rows("queries", X, state.fitted.measure, or_vector=True)
    _check_width("queries", Q, state)
    return validation.as_rows("queries", Q, dtype=np.float32) if memmap.is_narrow(Q) else Q


def _check_width(name: str, rows: Any, state: _State) -> None:
    validation.check_same_width(name, rows, "the items of the index", np.empty((0, state.width)))


def _without(parts: Sequence[IndexPart], found: index_ids.Found) -> list[IndexPart]:
    """Return the parts without what was found."""
    return [
        part.without(numbers) if len(numbers) else part
        for part, numbers in zip(parts, found.numbers, strict=True)
    ]


def _ids_at(state: _State, positions: Integers) -> Ids:
    """Return the ids at positions, -1 or "" where there is no item."""
    if state.is_mapped:
        return positions.copy()
    kinds = [part.ids.values.dtype for part in state.parts]
    kind = np.result_type(*kinds) if kinds else np.dtype(np.str_ if state.has_names else np.int64)
    ids = np.full(positions.shape, state.no_id, kind)
    for part in state.parts:
        numbers, found = part.segment.locate(positions)
        found[found] = part.is_live(numbers[found])
        ids[found] = part.ids.values[numbers[found]]
    return ids


def _with_ids(state: _State, found: Neighbors) -> IndexNeighbors:
    return IndexNeighbors(*found, _ids_at(state, np.asarray(found.indices)))
