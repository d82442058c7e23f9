"""Tests of certified neighbours, and of attacks on neighbours.

No map drops a certified neighbour. An attack that succeeds returns a rescaling that drops the
attacked neighbour.
"""

import numpy as np
import pytest

from fastcos.auditing.attacks import vertex_attack
from fastcos.auditing.certificates import certified_neighbors, rescaling_radii
from fastcos.auditing.neighbor_edges import as_edges
from fastcos.similarity.cosine_bounds import cosine_interval
from fastcos.validation import read_only  # Numba compiles separate kernels for writable rows
from tests.oracles.audit import cosine, cosine_matrix, minimise_over_box, neighbour_sets, random_map

FAMILIES = ("linear", "rescaling")


def clustered(seed, p=60, d=5):
    """Return rows around a few centres, so that some neighbours are safe and many are not."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((6, d))[rng.integers(0, 6, p)] + 0.4 * rng.standard_normal((p, d))


def lost(result, rows, condition, k):
    """Return how many certified neighbours are not among the k nearest neighbours in `rows`."""
    stays = np.take_along_axis(neighbour_sets(rows, k), result.indices, axis=1)
    return int(((result.radius > condition) & ~stays).sum())


@pytest.mark.parametrize("n", [400, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_certified_edges_survive_random_maps(family, n):
    rng = np.random.default_rng(1)
    items, k, n_certified = clustered(2), 4, 0
    certified = certified_neighbors(items, k, 3.0, family=family)
    for _ in range(n):
        condition = float(np.exp(rng.uniform(0, 1.0)))
        if family == "linear":
            rows = items @ random_map(rng, 5, condition)
        else:
            d = np.exp(np.log(condition) * rng.integers(0, 2, 5))
            rows = items / d
        assert lost(certified, rows, condition, k) == 0
        n_certified += int((certified.radius > condition).sum())
    assert n_certified > 10 * n


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, pytest.param(400, marks=[pytest.mark.slow, pytest.mark.long])])
def test_attack_breaks_only_uncertified_edges_and_shows_how(n):
    closed = []
    for seed in range(n):
        items, k = clustered(100 + seed, p=80, d=6), 5
        certified = certified_neighbors(items, k, 2.0, family="rescaling")
        attack = vertex_attack(items, k, 2.0)
        np.testing.assert_array_equal(attack.indices, certified.indices)
        assert (attack.radius >= np.minimum(certified.radius, 2.0) * (1 - 1e-12)).all()
        broken = np.isfinite(attack.radius)
        for i, r in np.argwhere(broken):
            D = attack.rescaling[i, r]
            assert D.max() / D.min() <= attack.radius[i, r] * (1 + 1e-12)
            assert not neighbour_sets(items / D, k)[i, attack.indices[i, r]]
        closed.extend(certified.radius[~broken] >= 2)
        assert (attack.rescaling[~broken] == 1).all()
        assert broken.mean() > 0.3
    # A neighbour is undecided if no attack removes it and it is not certified. If no attack removes
    # a neighbour, the neighbour is usually certified, so few neighbours are undecided.
    assert np.mean(closed) > 0.5


def test_linear_radius_is_half_the_fisher_z_gap():
    items, k = clustered(3), 4
    scores = cosine_matrix(items)
    np.fill_diagonal(scores, -np.inf)
    z = np.arctanh(-np.sort(-scores, axis=1)[:, : k + 1])
    expected = np.exp(0.5 * (z[:, :k] - z[:, k:]))
    certified = certified_neighbors(items, k, 1.1)
    np.testing.assert_allclose(certified.radius, expected, rtol=1e-9)
    np.testing.assert_array_equal(certified.certified, certified.radius > 1.1)
    np.testing.assert_array_equal(certified.indices, np.argsort(-scores, axis=1)[:, :k])


@pytest.mark.slow
def test_rescaling_radius_is_where_an_item_can_pass():
    rng = np.random.default_rng(4)
    items = clustered(5, p=12, d=4)
    certified = certified_neighbors(items, 3, 3.0, family="rescaling")
    linear = certified_neighbors(items, 3, 3.0).radius
    assert (certified.radius >= linear).all()
    for i in range(0, 12, 4):
        outsiders = np.setdiff1d(np.arange(12), [i, *certified.indices[i]])
        for r, j in enumerate(certified.indices[i]):
            radius = certified.radius[i, r]
            if not 1.05 < radius < 3:
                continue
            # A numerical minimiser looks for weights with which another item overtakes the
            # neighbour. If the logarithm of the condition number is limited to 0.99 ln(radius), no
            # other item may overtake the neighbour. If the limit is 1.05 ln(radius), another item
            # must overtake the neighbour.
            assert least_lead(items, i, j, outsiders, 0.99 * np.log(radius), rng) > -1e-9
            assert least_lead(items, i, j, outsiders, 1.05 * np.log(radius), rng) < 0


def least_lead(items, i, j, outsiders, log_condition, rng):
    """Return the least cos(i, j) - cos(i, m) over the outsiders m and the weights in the box."""
    x, y = items[i], items[j]
    K = float(np.exp(2 * log_condition))
    return min(
        minimise_over_box(lambda w: cosine(x, y, w) - cosine(x, items[m], w), len(x), K, rng)  # noqa: B023
        for m in outsiders
    )


def test_linear_certificates_have_disjoint_intervals():
    items, k, condition = clustered(6), 4, 1.15
    certified = certified_neighbors(items, k, condition)
    checked = 0
    for i, r in np.argwhere(certified.certified):
        outsiders = np.setdiff1d(np.arange(len(items)), [i, *certified.indices[i]])
        x = np.tile(items[i], (len(outsiders), 1))
        highest = cosine_interval(x, items[outsiders], condition).high.max()
        assert cosine_interval(items[i], items[certified.indices[i, r]], condition).low > highest
        checked += 1
    assert checked > 20


def test_rescaling_certifies_more_than_linear():
    items = clustered(7, p=400, d=8)
    linear = certified_neighbors(items, 10, 1.5)
    certified = certified_neighbors(items, 10, 1.5, family="rescaling")
    assert (certified.radius >= linear.radius).all()
    assert certified.certified.mean() > 1.5 * linear.certified.mean() > 0
    capped = np.maximum(linear.radius, 1.5 * (1 + 1e-12))
    assert (certified.radius <= capped).all()


def radii(items, rows=None, **lists):
    sample, k, _ = as_edges(items, 5, 1.6, rows)
    levels = read_only(1.6 ** np.linspace(0.02, 1, 50))
    return rescaling_radii(sample, k, levels, **lists)


@pytest.mark.slow
def test_radii_do_not_depend_on_list_lengths():
    items, rows = clustered(8, p=700, d=6), np.arange(0, 700, 35)
    short = radii(items, rows)
    np.testing.assert_array_equal(short, radii(items, rows, first_list=699, batch_rows=7))


def test_items_beyond_the_longest_list_bound_the_radius():
    items = clustered(8, p=300, d=6)
    whole, short = radii(items), radii(items, first_list=2, longest_list=7)
    assert (short <= whole * (1 + 1e-3)).all()
    assert (short < whole * 0.999).mean() > 0.2


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_selects_rows_of_the_full_result(family):
    items = clustered(9, p=90)
    everything = certified_neighbors(items, 6, 1.4, family=family)
    chosen = np.array([3, 4, 50, 89])
    subset = certified_neighbors(items, 6, 1.4, family=family, rows=chosen)
    for part, whole in zip(subset, everything, strict=True):
        np.testing.assert_array_equal(part, whole[chosen])
    masked = certified_neighbors(items, 6, 1.4, rows=np.isin(np.arange(90), chosen))
    np.testing.assert_array_equal(masked.indices, subset.indices)


@pytest.mark.parametrize("family", FAMILIES)
def test_duplicates_and_zero_rows_are_not_certified(family):
    items = np.vstack([clustered(10, p=20), np.zeros((2, 5))])
    items[1:6] = items[0] * np.array([[1.0], [3.0], [0.1], [7.0], [1.0]])
    certified = certified_neighbors(items, 3, 1.2, family=family)
    # Six rows are multiples of one row. Under every map, each of the six items has the same cosine
    # with all five others, but its list has room for only three neighbours.
    assert (certified.radius[:6] == 1).all()
    assert np.isnan(certified.radius[20:]).all()
    assert not certified.certified[20:].any()
    assert np.isfinite(certified.radius[6:20][certified.indices[6:20] < 20]).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_radius_is_infinite_without_other_items(family):
    items = clustered(11, p=4)
    assert np.isinf(certified_neighbors(items, 3, 2.0, family=family).radius).all()
    assert np.isinf(vertex_attack(items, 3, 50.0).radius).all()


def test_radius_of_a_duplicate_is_infinite():
    items = clustered(12, p=15)
    items[1] = 2.5 * items[0]
    assert np.isinf(certified_neighbors(items, 1).radius[:2]).all()


def test_a_zero_row_can_pass_a_neighbour():
    items = np.array([[1.0, 1.0], [1.0, -0.9], [0.0, 0.0], [-1.0, 0.0]])
    certified = certified_neighbors(items, 1, 3.0, family="rescaling", rows=[0])
    assert certified.indices[0, 0] == 1
    # If the squared weights of the two dimensions are 1 and w, cosine(x, y) has the sign of 1 - 0.9
    # w. At w = 1 / 0.9, that is for the rescaling D = (1, sqrt(0.9)), this cosine is 0. The zero
    # row is then as near to x as y is.
    radius = certified.radius[0, 0]
    assert np.log(radius) == pytest.approx(-0.5 * np.log(0.9), rel=0.011)
    assert radius < np.sqrt(1 / 0.9)


def test_radii_ignore_item_order_and_norms():
    rng = np.random.default_rng(13)
    items = clustered(14, p=70)
    order = rng.permutation(70)
    scaled = (items * rng.uniform(0.01, 100, (70, 1)))[order]
    one = certified_neighbors(items, 4, 1.5, family="rescaling")
    other = certified_neighbors(scaled, 4, 1.5, family="rescaling")
    np.testing.assert_array_equal(order[other.indices], one.indices[order])
    np.testing.assert_allclose(other.radius, one.radius[order], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("search", [certified_neighbors, vertex_attack])
def test_results_are_bit_identical_for_any_threads(search):
    items = clustered(15, p=300, d=12)
    extra = {"family": "rescaling"} if search is certified_neighbors else {}
    results = [search(items, 5, 1.5, n_threads=n, **extra) for n in (1, 4)]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 5}, "k must be a whole number from 1 to 4, got 5"),
        ({"k": 2, "condition": 0.5}, "condition must be a finite number >= 1"),
        ({"k": 2, "family": "all"}, "family must be one of linear, rescaling, got 'all'"),
        ({"k": 2, "rows": [7]}, "rows must hold item numbers from 0 to 4"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        certified_neighbors(np.eye(5), **arguments)


@pytest.mark.slow
def test_float32_rows_have_the_radii_of_float64():
    items = clustered(16, p=200, d=16)
    whole = certified_neighbors(items.astype(np.float32), 5)
    same = certified_neighbors(items.astype(np.float32).astype(np.float64), 5)
    np.testing.assert_array_equal(whole.radius, same.radius)
