"""Certificates, compared with linear programming, brute force and a numerical search."""

import numpy as np
import pytest
from scipy.optimize import linprog

from fastcos.kernels import certificates, records
from tests.kernels.inputs import frozen
from tests.oracles.audit import cosine, minimise_over_box, vertices


def unit(v):
    return v / np.linalg.norm(v)


def triples(seed, n, largest=6):
    """Yield a generator, an item, a near neighbour, a farther competitor, and a weight limit."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        d = int(rng.integers(2, largest + 1))
        x = unit(rng.standard_normal(d))
        y, m = (unit(x + s * rng.standard_normal(d)) for s in (0.5, 0.8))
        yield rng, x, y, m, float(np.exp(rng.uniform(0.05, 1.5)))


# The tests with this mark are slow, because each compiles one function of the certificates
# separately. The code of rescaling_radii contains all these functions, so the default tests of
# rescaling_radii cover them, here and in tests/auditing/test_certificates.py.
compiled_alone = pytest.mark.slow


@compiled_alone
def test_ratio_range_equals_brute_force():
    for _, _, y, m, K in triples(1, 200):
        corners = vertices(len(y), K)
        ratios = (corners @ m**2) / (corners @ y**2)
        result = certificates.ratio_range(m**2, y**2, K)
        assert result == pytest.approx((ratios.min(), ratios.max()), rel=1e-13)


@compiled_alone
def test_count_levels_equals_searchsorted():
    levels = np.array([1.0, 1.5, 1.5, 2.0, 8.0])
    for limit in (0.5, 1.0, 1.2, 1.5, 1.7, 2.0, 8.0, 9.0, np.inf):
        assert certificates.count_levels(levels, limit, False) == np.searchsorted(levels, limit)
        assert certificates.count_levels(levels, limit, True) == np.searchsorted(
            levels, limit, "right"
        )


@compiled_alone
def test_best_multiplier_solves_the_linear_programme():
    for rng, x, y, m, K in triples(2, 150):
        d = len(x)
        least, largest = np.sqrt(certificates.ratio_range(m**2, y**2, K))
        ratio = np.exp(rng.uniform(np.log(least), np.log(largest)))
        a, g = x * (ratio * y - m), m**2 - ratio**2 * y**2
        w = np.full(d, np.nan)
        multiplier, total = certificates.best_multiplier(a, g, K, w)
        truth = linprog(a, A_eq=g[np.newaxis], b_eq=[0.0], bounds=[(1, K)] * d)
        assert total == pytest.approx(truth.fun, abs=1e-9)
        h = a + multiplier * g
        assert np.minimum(h, K * h).sum() == pytest.approx(truth.fun, abs=1e-9)
        assert w.min() >= 1
        assert w.max() <= K
        assert w @ g == pytest.approx(0, abs=1e-9)
        assert w @ a == pytest.approx(truth.fun, abs=1e-9)


@compiled_alone
@pytest.mark.parametrize("n", [80, pytest.param(1000, marks=pytest.mark.long)])
def test_refined_certificate_agrees_with_numerical_minimisation(n):
    passed, refused, joint = 0, 0, 0
    for rng, x, y, m, K in triples(3, n):
        least = minimise_over_box(
            lambda w: cosine(x, y, w) - cosine(x, m, w),  # noqa: B023
            len(x), K, rng,
        )  # fmt: skip
        if abs(least) < 1e-3:
            continue
        w = np.full(len(x), np.nan)
        ratios = certificates.norm_ratios(y, m, K)
        answer = certificates.refined_certificate(x, y, m, K, ratios, 8, w)
        assert answer == np.sign(least)
        if answer < 0:
            assert w.min() >= 1
            assert w.max() <= K
            assert cosine(x, y, w) - cosine(x, m, w) <= 1e-12
        passed, refused = passed + (answer > 0), refused + (answer < 0)
        sure = certificates.joint_certificate(x, y, m, K, ratios)
        assert least > 0 or not sure
        joint += sure
    assert min(passed, refused) > n // 8
    # The joint certificate is cheaper than the refined one. It certifies fewer neighbours than the
    # refined certificate, but more than a quarter as many.
    assert passed // 4 < joint < passed


@compiled_alone
def test_beats_does_not_certify_ties():
    rng = np.random.default_rng(4)
    for _ in range(200):
        x, y = np.abs(rng.standard_normal((2, 6)))
        x, y = unit(x), unit(y)
        for competitor in (y, unit(3 * y), unit(0.7 * y)):
            for K in (1.0, 1.5, 1e6):
                assert certificates.beats(x, y, competitor, K, 6, np.empty(6)) <= 0


@compiled_alone
def test_refined_certificate_searches_after_open_pieces():
    K = 2.59560960637459
    x = np.array([0.44060624, 0.19082202, 0.53716702, -0.13316876, 0.68056651])
    y = np.array([-0.21366728, 0.77210318, 0.49102839, -0.24200745, 0.24192247])
    m = np.array([0.12322358, 0.96578663, -0.04917797, 0.15400669, 0.16104537])
    w = np.full(5, np.nan)
    ratios = certificates.norm_ratios(y, m, K)
    for depth in range(3, 12):
        assert certificates.refined_certificate(x, y, m, K, ratios, depth, w) == -1
        assert cosine(x, y, w) < cosine(x, m, w)


@compiled_alone
def test_certified_level_is_the_last_certified_one():
    levels, results = np.array([1.01, 1.05, 1.1, 1.2, 1.4, 2.0]), set()
    for _, x, y, m, _ in triples(6, 200):
        if x @ y <= x @ m:
            continue
        w = np.full(len(x), np.nan)
        for start in (2.0, 1.4, 1.3):
            sure = [c for c in (*levels, start) if certificates.beats(x, y, m, c * c, 8, w) > 0]
            expected = max([c for c in sure if c <= start], default=1.005)
            radius = certificates.certified_level(x, y, m, 1.005, start, levels, 8, w)
            assert radius == expected
            results.add(radius)
    assert {1.005, 1.3, 2.0} < results
    assert len(results) > 5


@compiled_alone
def test_separation_of_infinite_z():
    inf = np.inf
    assert certificates.separation(inf, inf) == 1
    assert certificates.separation(inf, 3.0) == inf
    assert certificates.separation(-2.0, -inf) == inf
    assert certificates.separation(-inf, -inf) == 1
    assert certificates.separation(1.0, 1.0 + 1e-12) == 1
    assert certificates.separation(1.0, 0.0) == np.exp(0.5)


def test_rows_kernels_fill_their_rows_only():
    rng = np.random.default_rng(5)
    items = rng.standard_normal((30, 4))
    norms = np.linalg.norm(items, axis=1)
    scores = items @ items.T / np.outer(norms, norms)
    np.fill_diagonal(scores, -2)
    neighbors = np.argsort(-scores, axis=1)[:, :9]
    sample = records.SampledRows(records.rows_of(items), *frozen(norms, np.arange(30)))
    neighbors, levels = frozen(np.ascontiguousarray(neighbors), np.array([1.1, 1.5, 2.0]))
    z, radii = np.full((30, 9), -7.0), np.full((30, 3), -7.0)
    certificates.linear_radii(10, 20, sample, neighbors, z, radii)
    assert (z[10:20] > -7).all()
    assert (radii[10:20] >= 1).all()
    for part in (slice(0, 10), slice(20, 30)):
        assert (z[part] == -7).all()
        assert (radii[part] == -7).all()
    radii[:], partial, truncated = -7.0, np.full((30, 3), 2.0), np.full(30, 249, np.uint8)
    certificates.rescaling_radii(
        10, 20, sample, neighbors,
        records.CertificateSearch(3, False, levels, 6), partial, radii, truncated,
    )  # fmt: skip
    assert (radii[10:20] >= 1).all()
    assert (truncated[10:20] <= 1).all()
    assert (radii[10:20] <= partial[10:20]).all()
    assert (np.delete(partial, np.s_[10:20], axis=0) == 2).all()
    assert (np.delete(radii, np.s_[10:20], axis=0) == -7).all()
    assert (np.delete(truncated, np.s_[10:20]) == 249).all()
