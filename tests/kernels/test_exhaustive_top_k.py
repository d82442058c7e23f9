"""Exhaustive search, merging of results, filtering by a range, and expansion of duplicates."""

import itertools

import numpy as np
import pytest

from fastcos.kernels import candidate_filter, exhaustive_top_k, records, select
from fastcos.kernels.pair_scores import COSINE, DOT, EUCLIDEAN
from tests.kernels.inputs import frozen, frozen_rows


def small_rows(n, seed):
    """Return rows of small integers, so that scores are exact and often tie."""
    return np.random.default_rng(seed).integers(-2, 3, (n, 4)).astype(np.float64)


def true_scores(metric_type, Q, B, offsets):
    if metric_type == EUCLIDEAN:
        return -((Q[:, None] - B) ** 2).sum(axis=2)
    if metric_type == DOT:
        return Q @ B.T + offsets
    sizes = np.outer(norms(Q), norms(B))
    products = np.divide(Q @ B.T, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    return np.clip(products, -1, 1)


def best(scores, columns, k):
    """Return the k best scores and their columns; of equal scores, the lower column comes first.

    If there are fewer than k scores, the remaining places contain -inf and -1.
    """
    order = np.lexsort((columns, -scores))[:k]
    missing = k - len(order)
    return np.append(scores[order], [-np.inf] * missing), np.append(columns[order], [-1] * missing)


def norms(X):
    return np.sqrt((X * X).sum(axis=1))


def scoring(metric_type, Q, B, offsets):
    return records.PairScoring(
        metric_type, frozen_rows(Q), *frozen(norms(Q)), frozen_rows(B), *frozen(norms(B), offsets)
    )


def filters(own, indptr, excluded):
    return records.QueryFilters(*frozen(own, indptr, excluded), np.zeros(0, np.uint8))


def outputs(n, k):
    return np.full((n, k), np.nan), np.full((n, k), -7)


@pytest.mark.slow
def test_is_excluded_searches_its_range_only():
    indices = np.array([1, 3, 4, 8, 9, 20], np.int64)
    for first in range(7):
        for last in range(first, 7):
            for column in range(-1, 23):
                found = candidate_filter.is_excluded(column, *frozen(indices), first, last)
                assert found == (column in indices[first:last])


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 3, 4, 6])
def test_write_best_pads(count):
    scores, columns = np.arange(6.0, 0, -1), np.arange(6)
    (score_row,), (column_row,) = outputs(1, 4)
    select.write_best(scores, columns, min(count, 4), score_row, column_row)
    kept = min(count, 4)
    np.testing.assert_array_equal(score_row, [*scores[:kept], *[-np.inf] * (4 - kept)])
    np.testing.assert_array_equal(column_row, [*columns[:kept], *[-1] * (4 - kept)])


@pytest.mark.parametrize("metric_type", [DOT, COSINE, EUCLIDEAN])
@pytest.mark.parametrize(("m", "parts", "k"), [(7, 1, 7), (600, 1, 3), (500, 3, 3), (300, 2, 60)])
def test_score_all_rows_equals_numpy(metric_type, m, parts, k):
    Q, B = small_rows(3, m), small_rows(m + 5, m + 1)
    offsets = np.arange(m + 5) % 3 * 1.0 if metric_type == DOT else np.zeros(m + 5)
    candidates = np.delete(np.arange(m + 5), [0, 2, 3, 5, 6])
    own = np.array([-1, candidates[0], candidates[-1]])
    excluded = [np.array([], int), candidates[1:4], candidates[::2]]
    indptr = np.append(0, np.cumsum([len(some) for some in excluded]))
    firsts, lasts = np.array([0, 1, 2]), np.array([m, m, m - 1])
    scores, columns = outputs(3 * parts, k)
    exhaustive_top_k.score_all_rows(
        1, 3 * parts - 1, scoring(metric_type, Q, B, offsets),
        records.CandidateRanges(*frozen(candidates, firsts, lasts)), parts,
        filters(own, indptr, np.concatenate(excluded)), scores, columns,
    )  # fmt: skip
    truth = true_scores(metric_type, Q, B, offsets)
    for r in range(1, 3 * parts - 1):
        i, part = r // parts, r % parts
        some = candidates[firsts[i] : lasts[i]]
        some = some[part * len(some) // parts : (part + 1) * len(some) // parts]
        some = some[(some != own[i]) & ~np.isin(some, excluded[i])]
        expected_scores, expected_columns = best(truth[i, some], some, k)
        np.testing.assert_array_equal(columns[r], expected_columns)
        np.testing.assert_allclose(scores[r], expected_scores, rtol=1e-15)
    # These rows belong to other blocks, so they are not written.
    assert np.isnan(scores[[0, -1]]).all()
    assert (columns[[0, -1]] == -7).all()


def test_score_all_rows_compares_after_a_full_buffer():
    B = np.random.default_rng(0).random((200, 1))
    # The buffer holds 76 candidates. When the buffer is full, only the 3 best candidates are kept:
    # rows 4, 20 and 50. Row 150 comes later, and must replace row 50.
    B[[4, 20, 50, 150], 0] = 100, 50, 40, 60
    scores, columns = outputs(1, 3)
    exhaustive_top_k.score_all_rows(
        0, 1, scoring(DOT, np.ones((1, 1)), B, np.zeros(200)),
        records.CandidateRanges(*frozen(np.arange(200), np.array([0]), np.array([200]))), 1,
        filters(np.array([-1]), np.zeros(2, int), np.zeros(0, int)), scores, columns,
    )  # fmt: skip
    assert columns.tolist() == [[4, 150, 20]]
    assert scores.tolist() == [[100, 60, 50]]


def test_merge_rows_merges_parts():
    random, k = np.random.default_rng(0), 4
    part_scores = random.integers(0, 6, (5, 3 * k)).astype(np.float64)
    part_columns = np.stack([random.permutation(3 * k) for _ in range(5)])
    part_columns[1, 6:8], part_scores[1, 6:8] = -1, -np.inf
    part_columns[2], part_scores[2] = -1, -np.inf
    scores, columns = outputs(5, k)
    exhaustive_top_k.merge_rows(1, 4, *frozen(part_scores, part_columns), scores, columns)
    for i in range(1, 4):
        there = part_columns[i] >= 0
        expected_scores, expected_columns = best(part_scores[i][there], part_columns[i][there], k)
        np.testing.assert_array_equal(columns[i], expected_columns)
        np.testing.assert_array_equal(scores[i], expected_scores)
    assert (columns[[0, 4]] == -7).all()


def test_score_lists_scores_in_place_and_hides_nan():
    Q, B, random = small_rows(4, 1), small_rows(30, 2), np.random.default_rng(3)
    B[7] = np.nan  # A damaged file may contain NaN.
    starts = np.cumsum([0, 6, 0, 9, 5])
    columns = np.concatenate([random.permutation(30)[:count] for count in np.diff(starts)])
    columns[8], columns[9] = 7, 11
    scores = np.full(len(columns), -7.0)
    exhaustive_top_k.score_lists(
        1, 4, scoring(DOT, Q, B, np.zeros(30)), *frozen(starts, columns), scores
    )
    truth = np.nan_to_num(true_scores(DOT, Q, B, 0.0), nan=-np.inf)
    expected = truth[np.repeat(np.arange(4), np.diff(starts)), columns]
    expected[: starts[1]] = -7  # of another block
    assert expected[8] == -np.inf
    np.testing.assert_array_equal(scores, expected)


def test_keep_above_drops_low_candidates():
    Q, B, random = small_rows(4, 1), small_rows(30, 2), np.random.default_rng(3)
    counts, bounds = np.array([6, 0, 9, 5]), np.array([100.0, 0.0, -2.0, 1.0])
    starts = np.append(0, np.cumsum(counts))
    columns = np.concatenate([np.sort(random.choice(30, count, False)) for count in counts])
    given, kept, scores = columns.copy(), counts.copy(), np.full(len(columns), np.nan)
    exhaustive_top_k.keep_above(
        1, 4, scoring(DOT, Q, B, np.zeros(30)), bounds, starts[:-1], kept, columns, scores
    )
    truth = true_scores(DOT, Q, B, 0.0)
    for i in range(1, 4):
        some = given[starts[i] : starts[i + 1]]
        some = some[truth[i, some] >= bounds[i]]
        assert kept[i] == len(some)
        found = slice(starts[i], starts[i] + len(some))
        np.testing.assert_array_equal(columns[found], some)
        np.testing.assert_array_equal(scores[found], truth[i, some])
    assert kept[0] == counts[0]  # this row belongs to another block, so it is not written
    np.testing.assert_array_equal(columns[: starts[1]], given[: starts[1]])


def test_expand_copies_lists_duplicates():
    members = np.array([0, 4, 7, 1, 2, 9, 3, 5, 6, 8, *range(10, 40)])
    starts = np.array([0, 3, 6, 7, 10, 40])  # The groups have 3, 3, 1, 3 and 30 members.
    item_groups = np.empty(40, np.int64)
    for group, (first, last) in enumerate(itertools.pairwise(starts)):
        item_groups[members[first:last]] = group
    found = np.array([[9, 0, 3, -1], [12, 3, 0, 5], [5, 3, 0, 1], [3, 12, 0, -1]])
    found_scores = np.array([[3.0, 3, 1, -np.inf], [2.0, 2, 2, 2], [9.0, 8, 7, 6], [5.0, 2, 2, -1]])
    group_of, own = np.array([2, 0, 1, 0, 2, 3, 1]), np.array([-1, 4, 10, 9, 5, -1, -1])
    for k in (1, 2, 5, 12, 40):
        scores, columns = outputs(7, k)
        exhaustive_top_k.expand_copies(
            1, 6, records.DistinctResults(*frozen(group_of), found, found_scores), *frozen(own),
            records.CopyGroups(*frozen(item_groups, starts, members)), scores, columns,
        )  # fmt: skip
        for i in range(1, 6):
            pairs = [
                (score, member)
                for item, score in zip(found[group_of[i]], found_scores[group_of[i]], strict=True)
                if item >= 0
                for member in members[item_groups[members] == item_groups[item]]
                if member != own[i]
            ]
            all_scores, all_columns = (np.array(side) for side in zip(*pairs, strict=True))
            expected_scores, expected_columns = best(all_scores, all_columns, k)
            np.testing.assert_array_equal(columns[i], expected_columns)
            np.testing.assert_array_equal(scores[i], expected_scores)
        assert (columns[[0, 6]] == -7).all()
