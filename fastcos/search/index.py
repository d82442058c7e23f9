"""``SimilarityIndex``, an exact index of dense rows, which are packed once and searched many times.

With the measures "cosine", "dot", "neg_euclidean" and "angular", the time for adding, replacing or
removing items is proportional to the number of changed rows.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, storage, validation
from fastcos.parallel import memmap
from fastcos.reports import printable
from fastcos.search import index_changes, index_directory, index_files, model_check
from fastcos.search.attribute_hints import with_attribute_hints
from fastcos.search.execute import execute
from fastcos.search.explain import SearchExplanation, explain_groups, explain_source
from fastcos.search.filters import as_filters, drop_positions, no_exclusions
from fastcos.search.index_directory import KIND, SavedIndex
from fastcos.search.index_parts import Contents, IndexMemory
from fastcos.search.index_state import (
    IndexState,
    state_of_contents,
    state_of_mapped_rows,
)
from fastcos.search.item_groups import ItemGroups, QueryGroups
from fastcos.search.near_duplicates import (
    NearDuplicates,
    connected_contents,
    no_near_duplicates,
)
from fastcos.search.options import as_options
from fastcos.search.range_search import pairs_above
from fastcos.search.request import (
    Threshold,
    as_index_queries,
    as_input_rows,
    as_min_score,
    as_request,
    as_threshold,
)
from fastcos.search.rescoring import Rescored, as_candidates, best_of_candidates, n_missing
from fastcos.search.results import IndexNeighbors, Neighbors, neighbors_of, padded
from fastcos.similarity.base import Measure, get_measure
from fastcos.validation import Floats, Integers, Rows
from fastcos.validation.ids import Ids, as_ids

if TYPE_CHECKING:
    import scipy.sparse as sp


# A search accepts any k up to this number, and pads the results if the index holds fewer items. A
# search accepts a larger k only if the index has at least k positions. A k that exceeds both this
# number and the number of positions is probably a mistake, and the padding of its results could use
# up the memory.
_MAX_PADDED_K = 65_536
# The names of methods and attributes of other libraries, and the names to use instead.
_ATTRIBUTE_HINTS = {
    "query": "search",
    "kneighbors": "search",
    "knn_query": "search",
    "range_search": "radius",
    "radius_neighbors": "radius",
    "load": "SimilarityIndex.open",
    "read": "SimilarityIndex.open",
    "dump": "save",
    "write": "save",
    "train": "fit",
    "build": "fit",
    "insert": "add",
    "add_items": "add",
    "add_with_ids": "add(rows, ids)",
    "update": "upsert",
    "replace": "upsert",
    "delete": "remove",
    "remove_ids": "remove",
    "reconstruct": "vectors_of",
    "get": "vectors_of",
    "ntotal": "n_items_",
    "size": "n_items_",
    "dim": "n_features_in_",
}


@with_attribute_hints(_ATTRIBUTE_HINTS)
class SimilarityIndex:
    """An index that finds exact nearest neighbours among items that have ids and can change.

    Every item has an id, which you choose, and a position. Positions are counted from 0, in the
    order in which the items were added. The id and the position of an item stay the same until the
    item is removed, and no position is used twice. Searches return positions and ids. Items with
    equal float64 scores are ordered by position. After any changes, results are bit-for-bit
    identical to those of a new index that contains the same rows in the order of their positions.

    If the measure has the capability ``append``, the average time that the methods ``add``,
    ``upsert`` and ``remove`` take is proportional to the number of changed rows. The measures with
    the capability ``append`` ("cosine", "dot", "neg_euclidean" and "angular") learn nothing from
    the items and compare the original rows. With any other measure, the index fits the measure
    again and packs all items again after every change. Many threads may search at the same time,
    even while another thread changes the index. Every search uses either the items from before a
    change or the items from after the change, and never a mixture. An index can be used in a forked
    child process.

    A saved index is a directory. ``open`` maps the files of the directory into memory, ``save``
    writes the changes, and ``refresh`` loads changes that another process has saved.

    If the measure has the capability ``blocks``, memory-mapped rows (``np.load(path,
    mmap_mode="r")``) stay on disk and are not packed. Every search of memory-mapped rows reads all
    of them once, in blocks that fit its ``working_memory``. Therefore one search with many queries
    is faster than many searches with one query each. Results for memory-mapped rows and for rows in
    memory are bit-for-bit identical. An index of memory-mapped rows has ids, but cannot be changed
    or saved. If the measure learns from the items, ``fit`` also reads all rows.

    Parameters
    ----------
    measure : str or Measure
        The name of a measure, or a Measure, as in :func:`fastcos.top_k`. ``fit`` fits the measure
        to the items.
    n_threads : int, optional
        The number of threads that pack items. Default: the setting ``n_threads``.
    model : str, optional
        The name and version of the model that made the rows, such as ``"minilm@2"``. The name is
        saved with the index. An error is raised if you open the index for another model, refresh it
        from the index of another model, or save it over the index of another model. An error is
        also raised if you search the index with the calibration of another model.

    Attributes
    ----------
    n_items_ : int
        The number of items in the index, without removed items.
    n_positions_ : int
        The number of positions, including the positions of removed items. A mask that is passed as
        ``allowed`` must contain one entry for each position.
    n_features_in_ : int
        The number of columns of the items.
    memory_ : IndexMemory
        The number of bytes that the codes and the rows take, and how many of these bytes are in
        memory-mapped files.

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
        get_measure(measure)  # an unknown measure raises an error here, not only in fit
        self.measure = measure
        self.n_threads = n_threads
        self.model = model_check.as_model(model)
        self._canaries: Rows | None = None
        self._state: IndexState | None = None
        self._saved: SavedIndex | None = None
        # ``_unfinished_save`` is a tuple while a save is running, or after a save was interrupted;
        # otherwise, it is None. The first element of the tuple describes the content of the
        # directory after the save. The second element contains the fields of the new header, which
        # show whether the save was completed.
        self._unfinished_save: tuple[SavedIndex, dict[str, Any]] | None = None

    def __repr__(self) -> str:
        """Return a description: the numbers of items and columns, the measure and the model."""
        if self._state is None:
            return f"SimilarityIndex(measure={self.measure!r}), not fitted"
        name = printable(self._state.items.measure.name)
        of = "" if self.model is None else f", of {printable(self.model)}"
        return f"SimilarityIndex of {self.n_items_:,} items x {self.n_features_in_}, by {name}{of}"

    # --- The items of the index: fit, add, upsert, remove ---

    def fit(
        self, items: Any, ids: Any = None, *, groups: Any = None, copy: bool = True
    ) -> SimilarityIndex:
        """Replace all items of the index by these items, which get the positions 0 to p - 1.

        The method fits the measure to the items and packs them, which takes O(p d) time.

        Parameters
        ----------
        items : array_like (p, d), float32, float64, float16, bfloat16 or int8
            One row per item. If the measure has the capability ``append``, rows of float16,
            bfloat16 and int8 are stored without conversion. Memory-mapped rows are checked whenever
            a search reads them. ``np.empty((0, d))`` makes an empty index.
        ids : array_like (p,), int64 or str, optional
            The ids of the items. The ids must be distinct, and no id may be -1 or "". Default: the
            positions.
        groups : array_like (p,), int64 or str, optional
            The group of each item, such as a tenant, a language or a category: a whole number or a
            string, but not -1 or "". With groups, ``search(queries, groups=...)`` finds only items
            in the group of each query, and other groups do not make the search slower.
            Memory-mapped items cannot have groups.
        copy : bool, default True
            Whether the index copies the rows, so that you may change or free them afterwards. The
            copy has the same type and takes as much memory as the rows. With ``copy=False``, the
            index uses C-contiguous rows without a copy. If you changed these rows later, the index
            and its saved copies would return wrong neighbours without an error. Rows that must be
            converted (lists, other types, another memory order) are always copied to a new array.
            Memory-mapped rows stay on disk and are never copied.

        Returns
        -------
        SimilarityIndex
            The index itself.

        Raises
        ------
        ValueError
            The rows contain NaN or infinity, or an id occurs twice.
        """
        measure, copy = get_measure(self.measure), validation.as_flag("copy", copy)
        rows = as_input_rows(
            "items", items, measure, or_empty=True, in_blocks=True, is_measured=True
        )
        rows = memmap.as_stored("items", rows)
        item_ids = None if ids is None else as_ids("ids", ids, len(rows))
        item_groups = None if groups is None else ItemGroups.of(groups, len(rows))
        if memmap.is_on_disk(rows):
            reason = "for memory-mapped rows (or pass np.array(items))"
            validation.check_none("groups", groups, reason)
            state = state_of_mapped_rows(measure, rows, item_ids)
        else:
            if copy and memmap.may_be_shared(rows, items):
                rows = validation.read_only(rows.copy())
            positions = np.arange(len(rows), dtype=np.int64)
            contents = Contents(rows, positions if item_ids is None else item_ids, positions)
            state = state_of_contents(measure, contents, len(rows), self.n_threads)
            state = dataclasses.replace(state, groups=item_groups)
        with parallel.writer_lock():
            self._state, self._saved, self._unfinished_save = state, None, None
        return self

    def add(self, items: Any, ids: Any = None, *, groups: Any = None) -> Ids:
        """Add items, which get the next positions; the index copies the rows of the items.

        Parameters
        ----------
        items : array_like (new, d)
            The new rows, whose type may differ from the type of the rows in the index.
        ids : array_like (new,), int64 or str, of the same type as the ids of the index
            The ids of the new items, which must not be in the index yet. If the id of every item in
            the index is the position of the item, you may omit ``ids``: the ids of the new items
            are then their positions.
        groups : array_like (new,), int64 or str, of the same type as the groups of the index
            The group of each item. This argument is required if the index has groups.

        Returns
        -------
        ndarray (new,), int64 or str
            The ids of the new items.

        Raises
        ------
        ValueError
            An id occurs twice or is already in the index. After a ValueError, the index is
            unchanged.
        """
        return self._add_or_replace(items, ids, groups, may_replace=False)

    def upsert(self, items: Any, ids: Any, *, groups: Any = None) -> None:
        """Add items, or replace the items that already have the same ids.

        A new item that replaces an item gets the position of the replaced item. The index copies
        the new rows.

        Parameters
        ----------
        items : array_like (new, d)
            The new rows.
        ids : array_like (new,), int64 or str, of the same type as the ids of the index
            The ids of the new items, which must be distinct.
        groups : array_like (new,), int64 or str, of the same type as the groups of the index
            The group of each item. This argument is required if the index has groups.

        Raises
        ------
        ValueError
            An id occurs twice. After a ValueError, the index is unchanged.
        """
        if ids is None:
            raise TypeError("ids must be given to replace items, got None")
        self._add_or_replace(items, ids, groups, may_replace=True)

    def remove(self, ids: Any) -> None:
        """Remove the items with these ids. The other items keep their positions.

        You may also remove all items.

        Parameters
        ----------
        ids : array_like (m,), int64 or str, of the same type as the ids of the index
            The ids must be distinct, and all of them must be in the index.

        Raises
        ------
        ValueError
            An id occurs twice or is not in the index. After a ValueError, the index is unchanged.
        """
        removed_ids, measure = as_ids("ids", ids), get_measure(self.measure)
        with parallel.writer_lock():
            state = self._fitted_state()
            self._state = index_changes.remove(state, measure, removed_ids, self.n_threads)

    def _add_or_replace(self, items: Any, ids: Any, groups: Any, *, may_replace: bool) -> Ids:
        """Add items and return their ids; with ``may_replace``, replace items with the same ids."""
        measure = get_measure(self.measure)
        rows = as_input_rows("items", items, measure, or_empty=True, in_blocks=True, in_memory=True)
        rows = memmap.as_stored("items", rows)
        item_ids = None if ids is None else as_ids("ids", ids, len(rows))
        with parallel.writer_lock():
            self._state, item_ids = index_changes.add_or_replace(
                self._fitted_state(), measure, rows, item_ids, groups, self.n_threads,
                may_replace=may_replace,
            )  # fmt: skip
        return item_ids

    # --- Methods that run or explain a search ---

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        allowed: Any = None,
        exclude: Any = None,
        allowed_ids: Any = None,
        exclude_ids: Any = None,
        min_score: float | Threshold | None = None,
        groups: Any = None,
        n_threads: int | None = None,
        working_memory: float | None = None,
        progress: parallel.Progress | None = None,
    ) -> IndexNeighbors:
        """Return the k items most similar to each query, exactly as :func:`fastcos.top_k` does.

        Parameters
        ----------
        queries : array_like (n, d) or (d,), as for :func:`fastcos.top_k`
            One row per query; n may be 0.
        k : int
            The number of neighbours per query. The largest allowed k is 65,536 or, if there are
            more positions, the number of positions. If a query can find fewer than k items, its
            neighbours are padded.
        allowed : array_like, or sparse (n, p), optional
            The positions at which items can be found: a mask over all positions, or an array of
            positions (``positions_of(ids)``). If ``allowed`` is a sparse matrix, the non-zeros of
            row i are the items that query i is allowed to find. The search scores all of these
            items.
        exclude : sparse (n, p), optional
            A matrix with a non-zero for each (query, position) pair that the results must not
            contain. If items were added after the matrix was made, the matrix has no columns for
            the new items, and excludes none of them.
        allowed_ids, exclude_ids : array_like of ids, or list of such arrays, optional
            With ``allowed_ids``, only items with these ids can be found; with ``exclude_ids``, no
            items with these ids can be found. A list of n arrays contains separate ids for each
            query. Ids that are not in the index have no effect.
        groups : array_like (n,) of groups, or one group for all queries, optional
            The group of each query, if the index was fitted with groups. A query finds only items
            of its own group, which may be empty. Groups without a query do not make the search
            slower.
        min_score, n_threads, working_memory, progress
            The same arguments as in :func:`fastcos.top_k`.

        Returns
        -------
        IndexNeighbors
            indices (n, k) int64, scores (n, k) float32 and ids (n, k).

        Raises
        ------
        ValueError
            The queries contain NaN or infinity, or do not have as many columns as the items; k is
            below 1 or too large; or the index was not fitted.
        """
        state = self._fitted_state()
        has_ids = allowed_ids is not None or exclude_ids is not None
        # A repeated search with few queries usually ends with the first call of
        # ``prepared.search`` below. A prepared search is tried before the arguments are checked,
        # because checking them takes longer than the search itself. A prepared search must meet
        # three conditions, which the module ``prepared`` lists. ``is_plain`` says whether the first
        # condition holds for all arguments except ``allowed``, ``allowed_ids`` and ``exclude_ids``.
        # If the caller has passed allowed_ids or exclude_ids, the ids must first be converted to
        # positions, so the prepared search is tried after the conversion.
        is_plain = exclude is None and min_score is None and groups is None
        is_plain = is_plain and working_memory is None and progress is None
        prepared = state.prepared if is_plain else None
        if prepared is not None and not has_ids:
            answer = prepared.search(queries, k, n_threads, allowed)
            if answer is not None:
                return answer
        n_positions, measure = state.n_positions, state.items.measure
        k = validation.as_count("k", k, high=max(n_positions, _MAX_PADDED_K))
        Q = as_index_queries(queries, measure, state.width, in_memory=groups is not None)
        options = as_options(n_threads, working_memory, progress)
        query_groups = None
        if groups is not None:
            item_groups = index_changes.groups_of(state, groups)
            query_groups = QueryGroups(item_groups, item_groups.find(groups, len(Q)))
        filters = as_filters(
            state, len(Q), allowed=allowed, exclude=exclude, allowed_ids=allowed_ids,
            exclude_ids=exclude_ids,
        )  # fmt: skip
        dropped_positions = filters.dropped
        if prepared is not None and has_ids and not filters.differ_by_query:
            answer = prepared.search(Q, k + len(dropped_positions), n_threads, filters.allowed)
            if answer is not None:
                neighbors = Neighbors(answer.indices, answer.scores)
                return state.with_ids(drop_positions(neighbors, dropped_positions, k))
        request = as_request(
            min(k + len(dropped_positions), state.n_live), len(Q), n_positions,
            allowed=filters.allowed, exclude=filters.exclude,
            min_score=as_min_score(min_score, measure, self.model), lists=filters.lists,
            groups=query_groups,
        )  # fmt: skip
        neighbors = execute(state.items, Q, request, options)
        return state.with_ids(padded(drop_positions(neighbors, dropped_positions, k), k))

    def similar(
        self,
        ids: Any,
        k: int = 10,
        *,
        allowed_ids: Any = None,
        exclude_ids: Any = None,
        min_score: float | Threshold | None = None,
        groups: Any = None,
        n_threads: int | None = None,
    ) -> IndexNeighbors:
        """For each id, return the k items that are most similar to the item with this id.

        Parameters
        ----------
        ids : array_like (m,), int64 or str, of the same type as the ids of the index; or one id
            The ids of the items whose neighbours are returned. All ids must be in the index.
        k, allowed_ids, exclude_ids, min_score, groups, n_threads
            The same arguments as in :meth:`search`.

        Returns
        -------
        IndexNeighbors
            indices (m, k) int64, scores (m, k) float32 and ids (m, k).

        Raises
        ------
        ValueError
            An id is not in the index.

        Examples
        --------
        >>> import fastcos
        >>> index = fastcos.SimilarityIndex().fit([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]], [7, 8, 9])
        >>> index.similar(7, k=1).ids.tolist()
        [[8]]
        >>> index.similar([7, 9], k=1, exclude_ids=[[8], []]).ids.tolist()
        [[9], [8]]
        """
        k, state = validation.as_count("k", k), self._fitted_state()
        item_ids = as_ids("ids", [ids] if np.ndim(ids) == 0 else ids, distinct=False)
        positions = state.positions_of(item_ids)
        # A search that excludes a different item for each query cannot be prepared. This search
        # therefore excludes no item and finds k + 1 neighbours. The query item itself is usually
        # one of these neighbours; it is then dropped.
        neighbors = self.search(
            state.rows_at(positions), k + 1, allowed_ids=allowed_ids, exclude_ids=exclude_ids,
            min_score=min_score, groups=groups, n_threads=n_threads,
        )  # fmt: skip
        is_itself = neighbors.indices == positions[:, None]
        dropped_rank = np.where(is_itself.any(axis=1), is_itself.argmax(axis=1), k)
        is_kept = np.arange(k + 1) != dropped_rank[:, None]
        return IndexNeighbors(*(array[is_kept].reshape(-1, k) for array in neighbors))

    def explain(
        self,
        n_queries: int,
        k: int = 10,
        *,
        allowed: Any = None,
        groups: Any = None,
        n_threads: int | None = None,
        working_memory: float | None = None,
    ) -> SearchExplanation:
        """Return an explanation of how a search would run, without running it.

        Parameters
        ----------
        n_queries : int
            The number of queries.
        k, allowed, groups, n_threads, working_memory
            The same arguments as in :meth:`search`; ``allowed`` is a mask or positions.

        Returns
        -------
        SearchExplanation
            The method of the search, why other methods are not used, how the work is divided among
            threads, how many bytes are read, how much memory the buffers take, and the estimated
            time. ``print`` shows the explanation as text. With ``groups``, the explanation depends
            on earlier searches of the index: a group is packed only after enough queries have
            searched it. The attribute ``method`` is then the method of the first group.

        Raises
        ------
        ValueError
            ``n_queries`` or k is below 1, or the index was not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from fastcos import SimilarityIndex
        >>> rows = np.random.default_rng(0).standard_normal((1000, 64)).astype(np.float32)
        >>> explanation = SimilarityIndex().fit(rows).explain(1, k=10)
        >>> str(explanation).splitlines()[0].partition(", k")[0]
        '1 query x 1,000 items x 64 columns'
        """
        state = self._fitted_state()
        n_queries = validation.as_count("n_queries", n_queries)
        k = validation.as_count("k", k, high=max(state.n_positions, _MAX_PADDED_K))
        options = as_options(n_threads, working_memory)
        if allowed is not None:
            allowed = validation.as_item_numbers("allowed", allowed, state.n_positions)
        if groups is not None:
            item_groups = index_changes.groups_of(state, groups)
            codes = item_groups.find(groups, n_queries)
            return explain_groups(state.items, k, options, item_groups, codes, allowed)
        return explain_source(state.items, n_queries, k, options, allowed)

    def radius(
        self,
        queries: Any,
        min_score: float | Threshold,
        *,
        allowed: Any = None,
        n_threads: int | None = None,
        working_memory: float | None = None,
    ) -> sp.csr_array:
        """Return all items that score at least ``min_score`` (see :func:`fastcos.neighbors_above`).

        Parameters
        ----------
        queries : array_like (n, d) or (d,)
            One row per query; n may be 0.
        min_score : float or Calibration
            The same argument as in :func:`fastcos.neighbors_above`.
        allowed : array_like, optional
            The positions at which items can be found: a mask over all positions, or an array of
            positions.
        n_threads, working_memory
            The same arguments as in :func:`fastcos.neighbors_above`.

        Returns
        -------
        csr_array (n, p), float32
            The scores, with one column for each position. The column numbers of a row are
            ascending. ``ids_of(result.indices)`` returns the ids of the items.

        Raises
        ------
        ValueError
            The pairs do not fit into ``working_memory``; the queries contain NaN or infinity; or
            the queries and items have different numbers of columns.
        TypeError
            The items are memory-mapped.
        """
        state = self._fitted_state()
        parts, measure = state.parts_in_memory("for a radius search"), state.items.measure
        Q = as_index_queries(queries, measure, state.width)
        threshold = as_threshold("min_score", min_score, measure, self.model)
        options, n_positions = as_options(n_threads, working_memory), state.n_positions
        allowed_positions = None
        if allowed is not None:
            allowed_positions = validation.as_item_numbers("allowed", allowed, n_positions)
        if not len(Q) or not parts:
            import scipy.sparse as sp

            return sp.csr_array((len(Q), n_positions), dtype=np.float32)
        Q = validation.as_rows("queries", Q)
        return pairs_above(
            state.items, Q, threshold, no_exclusions(len(Q)), options, allowed_positions
        )

    def near_duplicates(
        self,
        min_score: float | Threshold,
        *,
        n_threads: int | None = None,
        working_memory: float | None = None,
    ) -> NearDuplicates:
        """Group the items that are connected by pairs with a score of at least ``min_score``.

        The method works like :func:`fastcos.search.near_duplicates`, but does not need to pack the
        items. To keep only one item of each group, remove the other items: call
        ``remove(ids_of(positions))`` with their positions. If items were added or removed since
        ``fit``, the rows are copied once, which takes memory in addition to ``working_memory``.

        Parameters
        ----------
        min_score : float or Calibration
            The smallest score that connects two items, as in :func:`fastcos.neighbors_above`.
        n_threads, working_memory
            The same arguments as in :func:`fastcos.neighbors_above`.

        Returns
        -------
        NearDuplicates
            Items are identified by their positions. The label of a position without an item is -1.

        Raises
        ------
        ValueError
            The pairs do not fit into ``working_memory``.
        TypeError
            The items are memory-mapped.
        """
        state = self._fitted_state()
        parts = state.parts_in_memory("to connect items")
        threshold = as_threshold("min_score", min_score, state.items.measure, self.model)
        options = as_options(n_threads, working_memory)
        if not parts:
            return no_near_duplicates(state.n_positions)
        return connected_contents(state.items, state.contents(), threshold, options)

    def rescore(
        self,
        queries: Any,
        candidates: Any,
        k: int = 10,
        *,
        n_threads: int | None = None,
        working_memory: float | None = None,
    ) -> Rescored:
        """Return the k best candidates of each query, and how many true neighbours are missing.

        The method works like :func:`fastcos.search.rescore`, but also searches the index for the
        true neighbours. Therefore ``missing`` is an exact number and not a bound. The search for
        the true neighbours takes as long as ``search``.

        Parameters
        ----------
        queries : array_like (n, d) or (d,)
            One row per query.
        candidates : array_like (n, c), int
            The positions of each query's candidates; -1 stands for no candidate. Repeated positions
            count once.
        k : int
            The number of neighbours per query, at most c.
        n_threads, working_memory
            The same arguments as in :func:`fastcos.top_k`.

        Returns
        -------
        Rescored
            indices (n, k) int64, which are positions; scores (n, k) float32; and missing (n,)
            int64. For each query, ``missing`` contains how many of its k nearest items are not in
            ``indices``.

        Raises
        ------
        ValueError
            A candidate is out of range; k is out of range; or the queries do not have as many
            columns as the items.
        """
        state = self._fitted_state()
        state.parts_in_memory("to score candidates")
        measure = state.items.measure
        Q = validation.as_rows("queries", as_index_queries(queries, measure, state.width))
        lists = as_candidates(candidates, len(Q), state.n_positions)
        k = validation.as_count("k", k, high=lists.shape[1])
        options = as_options(n_threads, working_memory)
        positions, raw_scores = best_of_candidates(state.items, Q, lists, k, options)
        indices, scores = neighbors_of(measure, Q, positions, raw_scores, None)
        if not state.n_live:
            return Rescored(indices, scores, np.zeros(len(Q), np.int64))
        request = as_request(min(k, state.n_live), len(Q), state.n_positions)
        nearest = execute(state.items, Q, request, options).indices
        return Rescored(indices, scores, n_missing(nearest, indices, state.n_positions))

    # --- The files of the index: save, open, refresh ---

    def save(self, path: storage.PathLike, *, canaries: Any = None, replace: bool = False) -> None:
        """Write the index to a directory. The write is atomic and durable.

        If the index was opened from this directory, or was saved to it before, only the changes are
        written. Only one process writes to a directory at a time; other processes wait. If another
        process has saved a newer version since this index was opened or saved, ``save`` raises an
        error instead of overwriting the newer version.

        Parameters
        ----------
        path : path-like
            A new directory, or a directory to which an index was saved before.
        canaries : array_like (c, d), optional
            The rows that the model of this index computes for a few fixed inputs. Later,
            ``check_canaries`` compares the canaries with new embeddings of the same inputs. The
            canaries stay in the directory until you pass other canaries.
        replace : bool
            Whether to replace the index in the directory even if it belongs to another model. Two
            indexes with different numbers of columns belong to different models. The two indexes
            also belong to different models if only the index in the directory has a model name, or
            if both have model names and the names differ. In a process that has opened the replaced
            index, ``refresh`` raises an error, and searches continue to use the replaced index.

        Raises
        ------
        TypeError
            The rows are memory-mapped, or the measure cannot be stored. A measure can be stored
            only if its class is registered, and if each of its parameters is a name, a number or an
            array (and not, for example, a model).
        ValueError
            The directory contains files but no index, or contains an index of another model. The
            error is also raised if another process has saved a newer version of the index.
        """
        may_replace = validation.as_flag("replace", replace)
        with parallel.writer_lock():
            self._finish_interrupted_save()
            state = self._fitted_state()
            state.parts_in_memory()  # for memory-mapped rows, the error must precede any change
            if canaries is not None:
                self._canaries = model_check.as_canaries(canaries, state.width)
            target = validation.as_path("path", path).absolute()
            last_save = self._saved
            if last_save is not None and (last_save.path != target or not target.exists()):
                last_save = None
            files = index_directory.files_of(
                state, self.measure, self.model, self._canaries, target, last_save
            )
            self._unfinished_save = files.saved, files.fields

            def check_replaced(old_fields: dict[str, Any]) -> None:
                old_model = model_check.ModelFacts.of_header(old_fields)
                model_check.check_predecessor(target, old_model, self._model_facts(state))

            checksum = storage.save_arrays(
                target, KIND, files.arrays, files.fields, kept_arrays=files.kept_arrays,
                expected=None if last_save is None else last_save.checksum,
                check_replaced=None if may_replace else check_replaced,
            )  # fmt: skip
            self._saved = dataclasses.replace(files.saved, checksum=checksum)
            self._unfinished_save = None

    def _finish_interrupted_save(self) -> None:
        """Update ``_saved`` if the last save was interrupted after the header had been replaced."""
        if self._unfinished_save is not None:
            self._saved = index_directory.find_finished_save(*self._unfinished_save) or self._saved
            self._unfinished_save = None

    @classmethod
    def open(
        cls, path: storage.PathLike, *, verify: bool = False, model: str | None = None
    ) -> SimilarityIndex:
        """Return a saved index, whose arrays are memory maps that processes can share.

        If the measure has the capability ``append``, no row is read: the sizes of the files are
        checked, and the saved norms and codes are used. A measure without the capability ``append``
        is fitted to the saved rows again.

        Parameters
        ----------
        path : path-like
            A directory to which ``save`` has written an index. If the index was saved on a CPU that
            packs rows in another layout, the rows are packed again.
        verify : bool
            Whether to read every file and compare it with its checksum.
        model : str, optional
            The name of the model that embeds your queries. An error is raised if the index was
            saved without a model name or with a different one.

        Returns
        -------
        SimilarityIndex
            The index, ready to be searched.

        Raises
        ------
        FileNotFoundError
            The directory does not exist.
        FastcosFormatError
            The directory is damaged, or contains something other than an index.
        ValueError
            You pass a model name, but the index was saved with another model name or with none.
        """
        verify = validation.as_flag("verify", verify)
        target = validation.as_path("path", path).absolute()
        stored = storage.load_arrays(target, KIND, verify=verify)
        index = cls()
        index._load(target, stored, {})
        model_check.check_opened_for(index.model, model_check.as_model(model))
        return index

    def refresh(self) -> bool:
        """Load the version that another process has saved since this index was opened or saved.

        Searches that have already started continue to use the old items. Changes that were made to
        this index but not saved are lost. Arrays that have not changed are not loaded again.

        Returns
        -------
        bool
            Whether another process had saved a newer version.

        Raises
        ------
        ValueError
            The index was neither opened from a directory nor saved to one. The error is also raised
            if the directory now contains an index of another model. Two indexes with different
            numbers of columns belong to different models. The saved index also belongs to another
            model if only this index has a model name, or if both have model names and the names
            differ. After a ValueError, searches continue to use the old items.
        """
        with parallel.writer_lock():
            self._finish_interrupted_save()
            last_save = self._saved
            if last_save is None:
                raise ValueError("SimilarityIndex must be opened or saved before refresh is called")
            if storage.read_fields(last_save.path, KIND)[1] == last_save.checksum:
                return False
            stored = storage.load_arrays(last_save.path, KIND, verify=False)
            model_check.check_successor(
                last_save.path,
                self._model_facts(self._fitted_state()),
                model_check.ModelFacts.of_header(stored.fields),
            )
            self._load(last_save.path, stored, last_save.part_fields)
        return True

    def _load(
        self, path: Path, stored: storage.Stored, saved_fields: dict[str, index_files.Fields]
    ) -> None:
        """Replace the content of this index by the content of a directory.

        ``index_state.read_state`` describes ``saved_fields``.
        """
        old_parts = () if self._state is None else self._state.parts_in_memory()
        new_index = index_directory.read_directory(path, stored, old_parts, saved_fields)
        self.measure, self.model, self._state = new_index.measure, new_index.model, new_index.state
        self._canaries, self._saved = new_index.canaries, new_index.saved
        self._unfinished_save = None

    # --- The ids, positions and rows of items ---

    def __len__(self) -> int:
        """Return the number of items in the index, without removed items; 0 before ``fit``."""
        return 0 if self._state is None else self._state.n_live

    def __contains__(self, id: Any) -> bool:
        """Return whether an item of the index has this id."""
        state = self._fitted_state()
        try:
            positions = state.find_positions(as_ids("id", [id]))
        except (TypeError, ValueError):  # an invalid id, or an id of the wrong type
            return False
        return bool(positions[0] >= 0)

    @property
    def ids(self) -> Ids:
        """The ids of all items in the index, in the order of their positions."""
        state = self._fitted_state()
        return state.ids_at(state.live_positions())

    def positions_of(self, ids: Any) -> Integers:
        """Return the positions of the items with these ids, for use in ``allowed`` and ``exclude``.

        Parameters
        ----------
        ids : array_like (m,), int64 or str, of the same type as the ids of the index
            The ids must be distinct, and all of them must be in the index.

        Returns
        -------
        ndarray (m,), int64
            The positions, in the order of ids.

        Raises
        ------
        ValueError
            An id is not in the index.
        """
        state = self._fitted_state()
        return state.positions_of(as_ids("ids", ids))

    def ids_of(self, positions: Any) -> Ids:
        """Return the ids of the items at these positions.

        Parameters
        ----------
        positions : array_like of int64
            Positions in an array of any shape. If an entry is -1, or the position of a removed
            item, the result contains -1, or "" if the ids are strings.

        Returns
        -------
        ndarray, int64 or str
            The ids, in an array with the shape of ``positions``.
        """
        array = validation.as_array("positions", positions)
        if array.dtype.kind not in "iu":
            raise TypeError(f"positions must be whole numbers, got dtype {array.dtype}")
        return self._fitted_state().ids_at(array.astype(np.int64).ravel()).reshape(array.shape)

    def vectors_of(self, ids: Any) -> npt.NDArray[Any]:
        """Return the rows of the items with these ids, in O(m d) time.

        Parameters
        ----------
        ids : array_like (m,), int64 or str, of the same type as the ids of the index
            All ids must be in the index.

        Returns
        -------
        ndarray (m, d), float32 or float64
            The rows, in the order of ids.

        Raises
        ------
        ValueError
            An id is not in the index.
        """
        state = self._fitted_state()
        return state.rows_at(state.positions_of(as_ids("ids", ids, distinct=False)))

    # --- The model that made the embeddings ---

    def check_canaries(self, rows: Any, *, min_cosine: float = 0.99) -> Floats:
        """Return, for each canary, the cosine between its saved row and its new row.

        If the model has not changed, all cosines are 1, up to rounding errors.

        Parameters
        ----------
        rows : array_like (c, d)
            New embeddings of the inputs of the saved canaries, in the same order.
        min_cosine : float
            The smallest cosine that is accepted. ``min_cosine`` should be less than 1, because
            embeddings have rounding errors that depend on the hardware.

        Returns
        -------
        ndarray (c,), float64
            The cosines.

        Raises
        ------
        ValueError
            A cosine is smaller than ``min_cosine``, or the index has no canaries.
        """
        if self._canaries is None:
            rule = "be saved with the index before they can be checked"
            raise ValueError(f"canaries must {rule}, got none: call save(canaries=...)")
        min_cosine = validation.as_real("min_cosine", min_cosine)
        cosines = model_check.canary_cosines(self._canaries, rows)
        worst = int(cosines.argmin())
        if cosines[worst] < min_cosine:
            raise ValueError(
                f"rows must be embedded by the model {self.model or 'of the index'}, but the new "
                f"row of canary {worst} and its saved row have a cosine of only "
                f"{cosines[worst]:.3f}"
            )
        return cosines

    def _model_facts(self, state: IndexState) -> model_check.ModelFacts:
        """Return the model name and the number of columns of this index."""
        return model_check.ModelFacts(self.model, state.width)

    # --- The size of the index ---

    @property
    def n_items_(self) -> int:
        """The number of items in the index, without removed items."""
        return self._fitted_state().n_live

    @property
    def n_positions_(self) -> int:
        """The number of positions, including the positions of removed items."""
        return self._fitted_state().n_positions

    @property
    def n_features_in_(self) -> int:
        """The number of columns of the items."""
        return self._fitted_state().width

    @property
    def memory_(self) -> IndexMemory:
        """The number of bytes of codes and rows, and how many of these bytes are memory-mapped."""
        return self._fitted_state().memory

    def _fitted_state(self) -> IndexState:
        """Return the state of the index; raise ValueError if the index was not fitted."""
        return validation.check_fitted(KIND, self._state)

    # --- Pickling of the index ---

    def __getstate__(self) -> dict[str, Any]:
        # The packed arrays are not pickled, because they would be writable after unpickling, and
        # kernels would be compiled a second time for writable arrays.
        attributes = vars(self) | {"_state": None, "_saved": None, "_unfinished_save": None}
        if self._state is not None:
            contents = self._state.contents()
            attributes["_contents"] = contents.rows, contents.ids, contents.positions
            attributes["_n_positions"] = self._state.n_positions
            groups = self._state.groups
            attributes["_groups"] = None if groups is None else (groups.labels, groups.codes)
        return attributes

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        contents = attributes.pop("_contents", None)
        n_positions = attributes.pop("_n_positions", 0)
        groups = attributes.pop("_groups", None)
        self.__dict__.update(attributes)
        if contents is not None:
            rows, ids, positions = contents
            items = Contents(validation.read_only(rows), ids, positions)
            measure = get_measure(self.measure)
            state = state_of_contents(measure, items, n_positions, self.n_threads)
            item_groups = None if groups is None else ItemGroups(*groups)
            self._state = dataclasses.replace(state, groups=item_groups)
