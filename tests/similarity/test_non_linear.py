"""No score exceeds the upper bound of its similarity, and a search with this bound is exact."""

import numpy as np
import pytest

from fastcos import SimilarityIndex, get_measure, top_k
from fastcos.search.options import ExecutionOptions
from fastcos.search.scan import nearest
from fastcos.search.segments import Segment
from fastcos.similarity.encoded_rows import encode_rows
from tests.oracles import measures as oracles
from tests.similarity.cases import uneven_rows

N, D = 120, 9
each_kind = pytest.mark.parametrize(
    "kind", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)]
)
NAMES = ["mutual_proximity", "norm_angle_distance", "recos"]


def gaussian(seed=5):
    return np.random.default_rng(seed).standard_normal((N, D))


def powers_of_ten(low, high, seed=6):
    return 10.0 ** np.random.default_rng(seed).uniform(low, high, (N, 1))


def with_zero_rows():
    rows = gaussian()
    rows[::7] = 0
    return rows


def one_huge_coordinate():
    rows = gaussian()
    rows[np.arange(0, N, 3), np.arange(0, N, 3) % D] = 1e8
    return rows


def duplicates():
    return np.tile(gaussian()[: N // 8], (8, 1))


def clusters():
    rows, of = gaussian(), np.random.default_rng(7).integers(0, 12, N)
    return 0.01 * rows + rows[of]


def nearly_equal():
    return 1 + 1e-7 * gaussian()


def of_one_direction():
    """Return rows of different norms that all have the same or the opposite direction."""
    return np.outer(np.linspace(-20, 40, N), gaussian()[0])


ROWS = {
    "gaussian": gaussian,
    "zero rows": with_zero_rows,
    "tiny rows": lambda: 1e-170 * gaussian(),
    "some tiny rows": lambda: np.where(np.arange(N)[:, None] % 5, 1.0, 1e-170) * gaussian(),
    "12 orders of magnitude": lambda: gaussian() * powers_of_ten(-6, 6),
    "large rows": lambda: 1e100 * gaussian(),
    "one huge coordinate": one_huge_coordinate,
    "spikes": lambda: gaussian() ** 5,
    "duplicates": duplicates,
    "clusters": clusters,
    "nearly equal": nearly_equal,
    "one direction": of_one_direction,
    "positive": lambda: np.abs(gaussian()),
    "one column": lambda: gaussian()[:, :1] * powers_of_ten(-1, 1),
    "unit norms": lambda: oracles.unit(gaussian()),
}


def ranked_scores(measure, rows):
    """Return the engine's raw scores of all pairs, in descending order, and the exact scores."""
    items = encode_rows(measure.encode_items(rows), None, None, measure.metric_type)
    queries = encode_rows(measure.encode_queries(rows), None, None, measure.metric_type)
    segment = Segment(measure.metric_type, items, np.arange(len(rows)))
    columns, raw = nearest(queries, segment, len(rows), ExecutionOptions(1, 2.0**28))
    return raw, measure.rescore(rows, measure.precompute(rows), columns)


def assert_never_exceeded(measure, rows, upper_bound):
    raw, exact = ranked_scores(measure, rows)
    # Consider the items whose raw score is at most raw[i, j]. The highest exact score of these
    # items is best[i, j].
    best = np.maximum.accumulate(exact[:, ::-1], axis=1)[:, ::-1]
    before = np.full(len(rows), np.inf)
    for j in range(raw.shape[1]):
        bounds = upper_bound(rows, raw[:, j])
        assert (best[:, j] <= bounds).all()
        assert (bounds <= before + 1e-12 * (1 + np.abs(bounds))).all()
        before = bounds


@pytest.mark.slow
@each_kind
@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("name", NAMES)
def test_upper_bound_is_never_exceeded(name, shape, kind):
    with np.errstate(under="ignore", over="ignore"):
        rows = ROWS[shape]().astype(kind)
    if not np.isfinite(rows).all():
        pytest.skip("beyond float32")
    measure = get_measure(name).fit(rows)
    assert_never_exceeded(measure, rows, measure.upper_bound)


@pytest.mark.parametrize(
    "weight", [30.0, *(pytest.param(w, marks=pytest.mark.slow) for w in (1e-3, 0.05, 1e4))]
)
@pytest.mark.parametrize("shape", ROWS)
def test_norm_angle_upper_bound_holds_for_any_weight(shape, weight):
    rows = ROWS[shape]()
    measure = get_measure("norm_angle_distance", weight=weight).fit(rows)
    assert_never_exceeded(measure, rows, measure.upper_bound)


def permutations_of_one_row():
    """Return permutations of one row.

    For these rows, recos equals its upper bound except for the slack of the bound.
    """
    random = np.random.default_rng(1)
    return np.array([random.permutation(np.arange(1.0, D + 1)) for _ in range(N)])


def regular_polygon():
    """Return rows with equal moments, for which the bound of mutual proximity is exact."""
    angles = 2 * np.pi * np.arange(N) / N
    return np.column_stack([np.cos(angles), np.sin(angles)])


TIGHT = {
    ("recos", "permutations"): permutations_of_one_row,
    ("mutual_proximity", "polygon"): regular_polygon,
    # In the case "angles", only the angles differ, and in the case "norms", only the norms differ.
    ("norm_angle_distance", "angles"): regular_polygon,
    ("norm_angle_distance", "norms"): lambda: np.geomspace(1, 1e4, N)[:, None] * np.ones((1, 3)),
}


@pytest.mark.parametrize("case", TIGHT, ids=" ".join)
def test_upper_bound_one_percent_lower_would_be_exceeded(case):
    rows, measure = TIGHT[case](), get_measure(case[0])
    measure = measure.fit(rows)

    def one_percent_lower(Q, raw):
        bounds = measure.upper_bound(Q, raw)
        return bounds - 0.01 * np.abs(bounds)

    assert_never_exceeded(measure, rows, measure.upper_bound)
    with pytest.raises(AssertionError):
        assert_never_exceeded(measure, rows, one_percent_lower)


@each_kind
@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("name", NAMES)
def test_top_k_is_exact_for_adversarial_rows(name, shape, kind):
    with np.errstate(under="ignore", over="ignore"):
        rows = ROWS[shape]().astype(kind)
    if not np.isfinite(rows).all():
        pytest.skip("beyond float32")
    fitted = get_measure(name).fit(rows)
    exact = fitted.rescore(rows, fitted.precompute(rows), np.tile(np.arange(N), (N, 1)))
    np.fill_diagonal(exact, -np.inf)
    order = np.argsort(-exact, axis=1, kind="stable")[:, :8]
    np.testing.assert_array_equal(top_k(rows, k=8, measure=name).indices, order)


@pytest.mark.parametrize("memory", [0.5, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_long_candidate_lists_are_searched_exactly(name, memory):
    """A search of these rows needs long lists of candidates; some rows are zero or duplicates."""
    rows = uneven_rows(700, 12).astype(np.float64) ** 3
    fitted = get_measure(name).fit(rows)
    exact = fitted.rescore(rows, fitted.precompute(rows), np.tile(np.arange(700), (700, 1)))
    np.fill_diagonal(exact, -np.inf)
    order = np.argsort(-exact, axis=1, kind="stable")[:, :9]
    result = top_k(rows, k=9, measure=name, working_memory=memory)
    np.testing.assert_array_equal(result.indices, order)


@pytest.mark.parametrize("weight", [0.05, 1.0, 30.0])
@pytest.mark.parametrize(
    ("n", "d"), [(130, 1), (700, 3), pytest.param(900, 40, marks=pytest.mark.slow)]
)
def test_norm_angle_of_clusters_is_its_formula(n, d, weight):
    rows = uneven_rows(n, d)
    truth = oracles.norm_angle(rows, rows, weight)
    np.fill_diagonal(truth, -np.inf)
    best = -np.sort(-truth, axis=1)[:, :7]
    result = top_k(rows, k=7, measure=get_measure("norm_angle_distance", weight=weight))
    np.testing.assert_allclose(result.scores, best, rtol=1e-6, atol=1e-6 * weight)
    np.testing.assert_allclose(
        np.take_along_axis(truth, result.indices, axis=1), best, rtol=1e-7, atol=1e-7 * weight
    )
    # Identical rows are ordered by their numbers.
    for row in result.indices.tolist():
        same = [j for j in row if j in (5, 17, 40, 90)]
        assert same == sorted(same)


def test_norm_angle_of_mapped_rows_is_exact_over_many_segments(tmp_path):
    rows = uneven_rows(9000, 6)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = top_k(rows[:300], rows, 7, measure="norm_angle_distance")
    result = top_k(rows[:300], mapped, 7, measure="norm_angle_distance", working_memory=2.5)
    np.testing.assert_array_equal(result.indices, expected.indices)
    np.testing.assert_array_equal(result.scores, expected.scores)


@pytest.mark.parametrize("name", NAMES)
def test_removed_items_are_not_found(name):
    rows = uneven_rows(200, 6).astype(np.float64)
    index = SimilarityIndex(name).fit(rows)
    index.remove([0, 5])
    rest = np.delete(np.arange(200), [0, 5])
    result, expected = index.search(rows, 6), top_k(rows, rows[rest], 6, measure=name)
    np.testing.assert_array_equal(result.indices, rest[expected.indices])
    np.testing.assert_array_equal(result.scores, expected.scores)


def test_recos_of_opposite_orders_finds_the_lowest_indices():
    """All items have the lowest possible score, -1, so no item can be excluded by its raw score."""
    scales = np.random.default_rng(5).uniform(0.5, 2, (300, 1))
    items, queries = scales * [-1.0, 1.0], np.array([[1.0, -1.0], [3.0, -3.0]])
    result = top_k(queries, items, k=3, measure="recos")
    np.testing.assert_array_equal(result.indices, [[0, 1, 2]] * 2)
    np.testing.assert_array_equal(result.scores, -1)
