import numpy as np
import pytest

from fastcos.kernels.select import (
    GAPS,
    keep_best,
    kth_largest,
    select_best,
    sort_ascending,
    sort_best_first,
)


@pytest.mark.parametrize("count", [1, 2, 16, 17, 100, 256, 257, 1000, 5000])
@pytest.mark.parametrize("values", [3, 10**9])
def test_sort_best_first_sorts_by_key_then_column(count, values):
    rng = np.random.default_rng(count)
    keys, columns = rng.integers(0, values, count + 5) * 1.0, rng.permutation(count + 5)
    order = np.lexsort((columns[:count], -keys[:count]))
    expected = keys[:count][order], columns[:count][order], keys[count:].copy()
    sort_best_first(keys, columns, count)
    np.testing.assert_array_equal(keys[:count], expected[0])
    np.testing.assert_array_equal(columns[:count], expected[1])
    np.testing.assert_array_equal(keys[count:], expected[2])


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("values", [1, 3, 10**6])
def test_kth_largest_equals_sort(values, dtype):
    rng = np.random.default_rng(values)
    for count in (1, 2, 3, 50, 333):
        scores = rng.integers(0, values, count).astype(dtype)
        for k in {1, count // 2 + 1, count}:
            assert kth_largest(scores.copy(), count, k) == np.sort(scores)[count - k]
        for ordered in (np.sort(scores), np.sort(scores)[::-1].copy()):
            assert kth_largest(ordered, count, 1) == scores.max()


def test_kth_largest_ranks_nan_below_all_numbers():
    """The scores of damaged rows may be NaN, at any position in the list."""
    rng = np.random.default_rng(0)
    for count in range(1, 12):
        for n_nan in range(count + 1):
            scores = rng.integers(0, 4, count) * 1.0
            scores[rng.permutation(count)[:n_nan]] = np.nan
            descending = -np.sort(-scores)  # NumPy sorts NaN last
            for k in range(1, count + 1):
                np.testing.assert_equal(kth_largest(scores.copy(), count, k), descending[k - 1])


@pytest.mark.parametrize("count", [1, 2, 16, 17, 100, 256, 257, 1000])
@pytest.mark.parametrize("nan_share", [0.1, 0.5, 1.0])
def test_nan_precedes_no_number(count, nan_share):
    """A damaged row, whose score is NaN, must not displace an intact row from the k best rows."""
    rng = np.random.default_rng(count)
    keys, columns = rng.integers(-5, 5, count) * 1.0, rng.permutation(count)
    keys[rng.random(count) < nan_share] = np.nan
    numbers = np.where(np.isnan(keys), -np.inf, keys)
    order = np.lexsort((columns, -numbers))
    sorted_keys, sorted_columns = keys.copy(), columns.copy()
    sort_best_first(sorted_keys, sorted_columns, count)
    np.testing.assert_array_equal(sorted_keys, numbers[order])
    np.testing.assert_array_equal(sorted_columns, columns[order])
    for k in {1, count // 3 + 1, count}:
        best_keys, best_columns = keys.copy(), columns.copy()
        kth = select_best(best_keys, best_columns, count, k, np.empty(count))
        assert kth == numbers[order][k - 1]
        assert set(best_columns[:k]) == set(columns[order][:k])
        best_keys, best_columns = keys.copy(), columns.copy()
        assert keep_best(best_keys, best_columns, count, k, np.empty(count)) == k
        np.testing.assert_array_equal(best_keys[:k], numbers[order][:k])
        np.testing.assert_array_equal(best_columns[:k], columns[order][:k])


@pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 11, 700, 5000])
@pytest.mark.parametrize("values", [3, 10**9])
def test_sort_ascending_equals_numpy(count, values):
    numbers = np.random.default_rng(count).integers(-values, values, count)
    for given in (numbers, np.sort(numbers), np.sort(numbers)[::-1]):
        result = given.copy()
        sort_ascending(result)
        np.testing.assert_array_equal(result, np.sort(numbers))


@pytest.mark.parametrize("values", [1, 4, 10**6])
def test_select_best_moves_the_best_to_the_front_and_returns_the_worst_of_them(values):
    rng = np.random.default_rng(2)
    for count, k in ((1, 1), (7, 7), (40, 7), (500, 300), (500, 1)):
        keys, columns = rng.integers(0, values, count) * 1.0, rng.permutation(count)
        best = np.lexsort((columns, -keys))[:k]
        expected = keys[best[-1]], dict(zip(columns[best], keys[best], strict=True))
        assert select_best(keys, columns, count, k, np.empty(count)) == expected[0]
        assert dict(zip(columns[:k], keys[:k], strict=True)) == expected[1]


@pytest.mark.parametrize("values", [1, 4, 10**6])
def test_keep_best_breaks_ties_by_lower_column(values):
    rng = np.random.default_rng(0)
    for count, k in ((1, 1), (5, 9), (40, 7), (500, 300), (500, 1)):
        keys, columns = rng.integers(0, values, count) * 1.0, rng.permutation(count)
        order = np.lexsort((columns, -keys))[:k]
        expected = keys[order], columns[order]
        n_best = keep_best(keys, columns, count, k, np.empty(count))
        assert n_best == min(count, k)
        np.testing.assert_array_equal(keys[:n_best], expected[0])
        np.testing.assert_array_equal(columns[:n_best], expected[1])


def test_keep_best_on_many_small_lists():
    rng = np.random.default_rng(1)
    for _ in range(200):
        count, k, values = rng.integers(1, 24), rng.integers(1, 12), rng.choice([2, 5, 1000])
        keys, columns = rng.integers(0, values, count) * 1.0, rng.permutation(count)
        order = np.lexsort((columns, -keys))[:k]
        expected = keys[order], columns[order]
        n_best = keep_best(keys, columns, count, k, np.empty(count))
        np.testing.assert_array_equal(keys[:n_best], expected[0])
        np.testing.assert_array_equal(columns[:n_best], expected[1])


def test_gaps_are_ciuras_and_then_geometric():
    gaps = GAPS[::-1].tolist()
    assert gaps[:8] == [1, 4, 10, 23, 57, 132, 301, 701]
    assert gaps[8:] == [gap * 9 // 4 for gap in gaps[7:-1]]
