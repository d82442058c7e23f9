"""An exact index of dense rows: packed once, searched many times, changed in O(new)."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastcos import parallel, storage, validation
from fastcos.reports import printable
from fastcos.search import index_files, index_ids, model_check
from fastcos.search.execute import finish, search
from fastcos.search.ids import Ids, as_ids
from fastcos.search.index_parts import Contents, IndexPart, contents_of
from fastcos.search.index_state import (
    IndexMemory,
    IndexState,
    changed_state,
    state_of_rows,
    state_on_disk,
    stored_state,
)
from fastcos.search.near_duplicates import NearDuplicates, connected
from fastcos.search.other_names import OtherNames
from fastcos.search.out_of_core import results_in_directory
from fastcos.search.packing import no_exclusions
from fastcos.search.radius import pairs_above
from fastcos.search.request import Threshold, as_min_score, as_threshold
from fastcos.search.rescoring import Rescored, as_candidates, best_of_candidates
from fastcos.search.results import IndexNeighbors, Neighbors, no_neighbors, padded
from fastcos.search.top_k import as_items, as_options, as_request
from fastcos.similarity import serialization
from fastcos.similarity.base import Measure, get_measure, require
from fastcos.validation import Integers

if TYPE_CHECKING:
    import scipy.sparse as sp


_KIND = "SimilarityIndex"
# neighbours that any index may be searched for: beyond, a wrong number would fill the memory
_LARGEST_PADDED = 65_536


class _Saved(NamedTuple):
    """What a directory held when it was read or written last; names: of its arrays."""

    path: Path
    checksum: str
    parts: dict[str, index_files.Fields]
    names: frozenset[str]


class SimilarityIndex(index_ids.ById, model_check.OfModel, OtherNames):
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
    an index has ids, but it is not changed or saved. A measure that learns reads the rows once
    more, in ``fit``.

    Parameters
    ----------
    measure : str or Measure
        As in :func:`fastcos.top_k`. It is fitted to the items that are in the index.
    n_threads : int, optional
        For packing. Default: the setting ``n_threads``.
    model : str, optional
        Name and version of what made the rows, such as ``"minilm@2"``. It is saved. To open the
        index for another model, to refresh it from an index of another model, to save it over one,
        and to search with the calibration of another model are errors.

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
        get_measure(measure)  # refuse a wrong one here, not in fit
        self.measure = measure
        self.n_threads = n_threads
        self.model = model_check.as_model(model)
        self._canaries: Any = None
        self._state: IndexState | None = None
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

    def fit(self, items: Any, ids: Any = None, *, copy: bool = True) -> "SimilarityIndex":
        """Fit the measure and pack the items, which get the positions 0 .. p-1. O(p d).

        Parameters
        ----------
        items : array_like (p, d), float32, float64, float16, bfloat16 or int8
            The last three are never widened as a whole, by measures with the capability ``append``.
            Those of a memory map are checked as they are read, that is by every search.
            ``np.empty((0, d))`` makes an empty index.
        ids : array_like (p,), int64 or str, optional
            All different; not -1 or "". Default: the positions.
        copy : bool, default True
            Whether the index copies the rows, so that the caller may change or free them. The copy
            takes as much memory as the rows, in their type. False: C-contiguous rows are kept as
            they are. If they are changed afterwards, searches return wrong neighbours without an
            error, and so does an index that is then saved and opened. Rows that must be converted
            (lists, other types, another order) are new in either case; those of a memory map are
            never copied.

        Returns
        -------
        SimilarityIndex
            Itself.

        Raises
        ------
        ValueError
            NaN or infinity, or an id that occurs twice.
        """
        measure, copy = get_measure(self.measure), validation.as_flag("copy", copy)
        rows = memmap.as_kept("items", _as_rows("items", items, measure, is_measured=True))
        named = None if ids is None else as_ids("ids", ids, len(rows))
        if memmap.is_on_disk(rows):
            state = state_on_disk(measure, rows, named)
        else:
            if copy and memmap.may_be_shared(rows, items):
                rows = validation.read_only(rows.copy())
            positions = np.arange(len(rows), dtype=np.int64)
            contents = Contents(rows, positions if named is None else named, positions)
            state = state_of_rows(measure, contents, len(rows), self.n_threads)
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
        is_filtered = not (allowed is allowed_ids is exclude is exclude_ids is min_score is None)
        is_plain = progress is None and out is None and working_memory is None
        if state.plain is not None and is_plain and not is_filtered:
            plain = state.plain.search(queries, k, n_threads)
            if plain is not None:
                return IndexNeighbors(*plain)
        fitted = state.fitted
        k = validation.as_count("k", k, high=max(fitted.n_items, _LARGEST_PADDED))
        Q = _as_query_rows(queries, state)
        options = as_options(n_threads, working_memory, progress)
        if not len(Q) or not fitted.n_live:
            return state.with_ids(padded(no_neighbors(len(Q)), k))
        lists, dropped = None, np.zeros(0, np.int64)
        if is_filtered:
            min_score = as_min_score(min_score, fitted.measure, self.model)
            allowed, lists, exclude, dropped = index_ids.filters(
                state, len(Q), allowed, exclude, allowed_ids, exclude_ids, may_drop=out is None
            )
            is_mask = lists is exclude is min_score is None and not validation.is_sparse(allowed)
            if state.plain is not None and is_plain and is_mask:
                if allowed is not None:
                    allowed = validation.as_item_mask("allowed", allowed, fitted.n_items)
                plain = state.plain.search(Q, k + len(dropped), n_threads, allowed)
                if plain is not None:
                    return index_ids.without(IndexNeighbors(*plain), dropped, k)
        request = as_request(
            Q, fitted.n_items, min(k + len(dropped), fitted.n_live), allowed=allowed,
            exclude=exclude, min_score=min_score, lists=lists,
        )  # fmt: skip
        if not request.k:
            return state.with_ids(padded(no_neighbors(len(Q)), k))
        if out is None:
            found = search(fitted, request, options)
            if len(dropped):
                is_dropped = np.isin(found.indices, dropped)
                scores = np.where(is_dropped, np.float32(-np.inf), found.scores)
                found = Neighbors(np.where(is_dropped, -1, found.indices), scores)
                found = index_ids.without(found, np.array([-1]), k)
            return state.with_ids(padded(found, k))
        validation.as_count("k", k, high=request.k)
        require(fitted.measure, "blocks")
        asked, rows = state.what_is_asked(request)
        measure = get_measure(self.measure)
        with results_in_directory(asked, rows, measure, options, out) as results:
            if results.is_complete:
                return state.with_ids(Neighbors(**results.finish()))
            return state.with_ids(search(fitted, request, options, results))

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

        As :func:`fastcos.search.near_duplicates`, without packing.
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

        As :func:`fastcos.search.rescore`, but ``missing`` is exact: the index searches its codes
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
            found = index_ids.find_all(state, gone)
            if len(gone):
                left, n_items = _without(state.parts, found), state.fitted.n_items
                measure = get_measure(self.measure)
                self._state = changed_state(state, measure, left, n_items, None, self.n_threads)

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
        state, wanted = self._current(), as_ids("ids", ids)
        found = index_ids.find_all(state, wanted)
        return index_ids.positions_in(state.parts_with_ids, found, len(wanted))

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
        return self._current().ids_at(places.astype(np.int64))

    def save(self, path: storage.PathLike, *, canaries: Any = None, replace: bool = False) -> None:
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
        replace : bool
            Replace an index of another model in path: one with another name or none while this
            index has a name, or with another number of columns. Processes that have the old one
            open refuse the new one in ``refresh``, and serve the old one on.

        Raises
        ------
        TypeError
            The measure is an object of a class that is not registered, or made with a model: only
            names, numbers and arrays can be stored. Or the rows are memory-mapped.
        ValueError
            path holds something else, an index of another model, or what another writer saved
            since this index was opened.
        """
        replace = validation.as_flag("replace", replace)
        with parallel.writer_lock():
            self._finish_save()
            state, saved = self._in_memory(), self._saved
            if canaries is not None:
                self._canaries = model_check.as_canaries(canaries, state.width)
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
                "model": model_check.as_model(self.model),
            }
            if self._canaries is not None:
                of_measure = of_measure | {"canaries": self._canaries}
            by_key = {part["key"]: part for part in parts}
            arrays |= of_measure
            written = _Saved(target, "", by_key, frozenset([*arrays, *kept]))
            self._saving = written, fields

            def check_replaced(old: dict[str, Any]) -> None:
                model_check.check_predecessor(target, old, self.model, state.width)

            checksum = storage.save_arrays(
                target, _KIND, arrays, fields, kept=kept,
                expected=None if saved is None else saved.checksum,
                check_replaced=None if replace else check_replaced,
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
            The model of the queries to come: an error if the index has the name of another model,
            or no name.

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
            The index has the name of another model, or none.
        """
        verify = validation.as_flag("verify", verify)
        target = validation.as_path("path", path).absolute()
        stored = storage.load_arrays(target, _KIND, verify=verify)
        index = cls()
        index._take_up(target, stored, {})
        model_check.check_opened_for(index.model, model_check.as_model(model))
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
            The index was not opened from a directory or saved to one. Or the directory now holds
            rows of another model: this index has the name of a model, and the saved one has
            another name or none, or another number of columns. Nothing is taken up then, and
            searches go on with the items as they were.
        """
        with parallel.writer_lock():
            self._finish_save()
            saved = self._saved
            if saved is None:
                raise ValueError("SimilarityIndex must be opened or saved before refresh")
            if storage.read_fields(saved.path, _KIND)[1] == saved.checksum:
                return False
            stored = storage.load_arrays(saved.path, _KIND, verify=False)
            width = self._current().width
            model_check.check_successor(saved.path, stored.fields, self.model, width)
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
        return self._current().memory

    def __getstate__(self) -> dict[str, Any]:
        # rows alone: packed arrays would come back writable, which compiles every kernel once more
        fields = vars(self) | {"_state": None, "_saved": None, "_saving": None}
        state = self._state
        if state is not None:
            fields["_kept"] = state.contents(), state.fitted.n_items
        return fields

    def __setstate__(self, fields: dict[str, Any]) -> None:
        kept = fields.pop("_kept", None)
        self.__dict__.update(fields)
        if kept is not None:
            contents, n_items = kept
            contents = contents._replace(rows=validation.read_only(contents.rows))
            measure = get_measure(self.measure)
            self._state = state_of_rows(measure, contents, n_items, self.n_threads)

    def _current(self) -> IndexState:
        return validation.check_fitted(_KIND, self._state)

    def _in_memory(self, purpose: str = "to be changed or saved") -> IndexState:
        """Return the state, unless the items are memory-mapped."""
        return self._current().in_memory(purpose)

    def _changed_by(self, items: Any, ids: Any, *, may_replace: bool) -> Ids:
        """Add or replace items; return their ids."""
        measure = get_measure(self.measure)
        rows = _as_rows("items", items, measure, in_memory=True)
        rows = memmap.as_kept("items", rows)
        given = None if ids is None else as_ids("ids", ids, len(rows))
        with parallel.writer_lock():
            state = self._in_memory()
            model_check.check_width("items", rows, state.width)
            n_items, parts, new = state.fitted.n_items, state.parts, given
            if new is None:
                if state.has_names:
                    raise TypeError("ids must be strings as those of the index, got None")
                index_ids.check_are_positions(parts)
                new = np.arange(n_items, n_items + len(rows), dtype=np.int64)
            found = index_ids.find(state, new)
            if not may_replace:
                index_ids.check_none(new, found)
            if not len(rows):
                return new
            positions = index_ids.positions_in(parts, found, len(new))
            is_new = positions < 0
            positions[is_new] = n_items + np.arange(is_new.sum())
            order = np.argsort(positions)
            # a copy: the caller may use the memory of the rows again
            contents = Contents(validation.read_only(rows[order]), new[order], positions[order])
            left, n_items = _without(parts, found), n_items + int(is_new.sum())
            self._state = changed_state(state, measure, left, n_items, contents, self.n_threads)
        return new

    def _take_up(
        self, path: Path, stored: storage.Stored, known: dict[str, index_files.Fields]
    ) -> None:
        """Replace the state by what a directory holds; parts of known keys may be reused."""
        with storage.refuse_damage(path):
            of_measure = storage.field(stored.fields, "measure", dict)
            given = serialization.from_parts(of_measure, stored.arrays)
            state = stored_state(stored, get_measure(given), self._state, known)
            by_key = {field["key"]: field for field in stored.fields["parts"]}
            model = None
            if stored.fields.get("model") is not None:  # older indexes have none
                model = storage.field(stored.fields, "model", str)
        self.measure, self._state, self._saving = given, state, None
        self.model, self._canaries = model, stored.arrays.get("canaries")
        self._saved = _Saved(path, stored.checksum, by_key, frozenset(stored.arrays))


def _as_rows(name: str, X: Any, measure: Measure, **options: bool) -> Any:
    """Return X as checked rows, left on disk or narrow where allowed; (0, d) are rows, too.

    options: of search.as_items.
    """
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 2 and shape[0] == 0 and shape[1] > 0 and not validation.is_sparse(X):
        return np.empty(shape, np.float32)
    return as_items(name, X, measure, in_blocks=True, **options)


def _as_query_rows(X: Any, state: IndexState) -> Any:
    """Return X as checked queries."""
    Q = _as_rows("queries", X, state.fitted.measure, or_vector=True)
    model_check.check_width("queries", Q, state.width)
    return memmap.widened("queries", Q)


def _without(parts: Sequence[IndexPart], found: index_ids.Found) -> list[IndexPart]:
    """Return the parts without what was found."""
    return [
        part.without(numbers) if len(numbers) else part
        for part, numbers in zip(parts, found.numbers, strict=True)
    ]
