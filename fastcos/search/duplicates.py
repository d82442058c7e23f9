"""Find groups of equal rows, so that a row that occurs many times is searched only once.

Equal rows have equal scores with every query. Suppose that the items contain g copies of a row, and
that each copy is also a query. The bounds of the tiles cannot rule out any pair of two copies, so
all g^2 pairs would be scored in float64. If equal rows are grouped, only one row of each group is
searched.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import exhaustive_top_k, records
from fastcos.search.filters import ExcludedItems
from fastcos.search.plan import pays_grouping
from fastcos.search.rankings import Ranking, unfilled
from fastcos.similarity.encoded_rows import EncodedRows
from fastcos.validation import Integers

# The number of rows that are hashed or compared at once. The number is small enough that these rows
# stay in the cache of the CPU.
_CHUNK = 4096
# The number of queries in one block of ``expand``.
_EXPANDED_ROWS = 1024


class DuplicateGroups(NamedTuple):
    """Groups of equal rows; the groups are ordered by their lowest row number.

    ``first`` (u,) contains the lowest row number of each of the u groups. ``group_of`` (p,)
    contains, for each of p rows, the index of its group. The row numbers of group g are
    ``members[starts[g] : starts[g + 1]]``, in ascending order. For n grouped rows, ``members`` has
    the shape (n,), and ``starts`` has the shape (u + 1,).
    """

    first: Integers
    group_of: Integers
    starts: Integers
    members: Integers


def find_duplicates(encoded: EncodedRows) -> DuplicateGroups | None:
    """Return the groups of equal rows with equal biases, or None if too few rows have copies.

    The function takes O(n d) time. If ``packing.norms_repeat`` returns False, too few rows have
    copies, so a call of ``find_duplicates`` would only return None. Callers call ``norms_repeat``
    first, because it takes less time than ``find_duplicates``.
    """
    n = len(encoded.norms)
    hashes = _hashes(encoded)
    order = np.argsort(hashes, kind="stable")
    # If two different rows have the same hash, a group may be split in two, but the results of
    # searches are correct nevertheless.
    is_same = hashes[order[1:]] == hashes[order[:-1]]
    places = np.flatnonzero(is_same)
    for at in range(0, len(places), _CHUNK):
        chunk = places[at : at + _CHUNK]
        left, right = order[chunk], order[chunk + 1]
        is_same[chunk] = (encoded.rows[left] == encoded.rows[right]).all(axis=1)
        if len(encoded.bias):
            is_same[chunk] &= encoded.bias[left] == encoded.bias[right]
    ends = np.flatnonzero(~is_same) + 1
    if not pays_grouping(ends, n):
        return None
    first = order[np.append(0, ends)]
    by_first = np.argsort(first)
    number = np.empty(len(first), np.int64)
    number[by_first] = np.arange(len(first))
    group_of = np.empty(n, np.int64)
    group_of[order] = np.repeat(number, np.diff([0, *ends, n]))
    members = np.argsort(group_of, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(group_of))).astype(np.int64)
    groups = (first[by_first], group_of, starts, members)
    return DuplicateGroups(*map(validation.read_only, groups))


def find_duplicates_among(encoded: EncodedRows, numbers: Integers) -> DuplicateGroups | None:
    """Return the groups of equal rows among the rows in ``numbers``.

    ``numbers`` contains row numbers in ascending order. The result is None if few of these rows
    repeat.
    """
    if len(numbers) == len(encoded.rows):
        return find_duplicates(encoded)
    subset_groups = find_duplicates(encoded.take(numbers))
    if subset_groups is None:
        return None
    group_of = np.zeros(len(encoded.rows), np.int64)
    group_of[numbers] = subset_groups.group_of
    first, members = numbers[subset_groups.first], numbers[subset_groups.members]
    groups = first, group_of, subset_groups.starts, members
    return DuplicateGroups(*map(validation.read_only, groups))


def _hashes(encoded: EncodedRows) -> npt.NDArray[np.uint64]:
    """Return, for each row, a hash of the row and its bias.

    Each word of the row and the bits of its bias are multiplied by fixed random 64-bit weights; the
    hash is the sum of these products, modulo 2^64.
    """
    words = encoded.rows.view(f"u{min(4, encoded.rows.itemsize)}")
    weights = np.random.default_rng(0).integers(2**64, size=words.shape[1] + 1, dtype=np.uint64)
    bias = encoded.bias if len(encoded.bias) else np.zeros(len(words))
    hashes: npt.NDArray[np.uint64] = bias.view(np.uint64) * weights[-1]
    for at in range(0, len(words), _CHUNK):
        chunk = slice(at, at + _CHUNK)
        hashes[chunk] += words[chunk].astype(np.uint64) @ weights[:-1]
    return hashes


def expand(
    items: DuplicateGroups,
    exclusions: ExcludedItems,
    group_of_query: Integers,
    groups: Ranking,
    k: int,
    n_threads: int,
) -> Ranking:
    """Return row numbers and raw scores (n, k) of the best items in the best groups of each query.

    Equal queries are searched only once: one of them, the distinct query, stands for all of them.
    ``group_of_query`` (n,) contains, for each query, the index of the distinct query that stands
    for it. For each distinct query, ``groups`` contains the first row number and the raw score of
    each of the k + 1 best groups. The function uses only the field ``self_rows`` of ``exclusions``.

    Each of the k best items belongs to one of the k + 1 best groups, for the following reason. If a
    group A ranks above the group of an item, A contains at least one row that ranks above the item.
    If an item is one of the best k items, at most k - 1 items rank above it. In addition, the query
    itself may rank above the item: the groups include the query, although the results exclude it.
    Therefore, at most k groups rank above the group of the item.
    """
    n = len(group_of_query)
    best_groups, best_scores = groups
    columns, scores = unfilled(n, k)
    parallel.run(
        exhaustive_top_k.expand_copies, parallel.row_blocks(n, _EXPANDED_ROWS),
        records.DistinctResults(group_of_query, best_groups, best_scores),
        validation.read_only(exclusions.self_rows),
        records.CopyGroups(items.group_of, items.starts, items.members), scores, columns,
        n_threads=n_threads,
    )  # fmt: skip
    return columns, scores
