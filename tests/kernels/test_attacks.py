"""Each part of an attack equals its definition, and a successful attack returns valid weights."""

import numpy as np
import pytest

from fastcos.kernels import attacks, records
from tests.kernels.inputs import frozen
from tests.oracles.audit import cosine, vertices


def unit(v):
    return v / np.linalg.norm(v)


def neighborhoods(seed, n, m=8, d=4):
    """Yield a random generator, an item, other items by descending cosine, and a weight limit."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        x = unit(rng.standard_normal(d))
        units = np.array([unit(x + 0.7 * rng.standard_normal(d)) for _ in range(m)])
        yield rng, x, units[np.argsort(-(units @ x))], float(np.exp(rng.uniform(0.1, 2)))


def rank(x, units, edge, w):
    """Return how many items are nearer to x than the item `edge` is, for the weights w.

    Only items whose cosines are higher by more than MARGIN are counted.
    """
    values = np.array([cosine(x, y, w) for y in units])
    return int((np.delete(values, edge) > values[edge] + attacks.MARGIN).sum())


# The tests with this mark are slow, because each compiles one function of the attacks separately.
# The code of attacked_radii contains all these functions, so the default test of attacked_radii
# covers them.
compiled_alone = pytest.mark.slow


@compiled_alone
def test_sensitivity_is_the_derivative_of_fisher_z():
    for rng, x, units, _ in neighborhoods(1, 50):
        y, w, step = units[0], np.exp(rng.uniform(0, 1, 4)), 1e-5
        slopes = np.full(4, 10.0)
        attacks.add_sensitivity(x, y, w, -2.0, slopes)
        for j in range(4):
            up, down = w.copy(), w.copy()
            up[j], down[j] = w[j] * np.exp(step), w[j] * np.exp(-step)
            change = np.arctanh(cosine(x, y, up)) - np.arctanh(cosine(x, y, down))
            assert slopes[j] == pytest.approx(10 - change / step, abs=1e-6)


@compiled_alone
def test_sensitivity_of_zero_and_collinear_rows_is_0():
    x, w, slopes = np.array([1.0, 2.0]), np.ones(2), np.zeros(2)
    for y in (np.zeros(2), 3 * x, -x):
        attacks.add_sensitivity(x, y, w, 1.0, slopes)
    assert (slopes == 0).all()


@compiled_alone
def test_to_vertex_follows_positive_slopes():
    w = np.full(3, np.nan)
    attacks.to_vertex(np.array([0.1, 0.0, -1.0]), 9.0, w)
    assert w.tolist() == [9, 1, 1]


@compiled_alone
def test_is_lost_counts_nearer_items():
    lost = 0
    for rng, x, units, K in neighborhoods(2, 200):
        w = np.exp(rng.uniform(0, np.log(K), 4))
        for edge in range(len(units)):
            for k in (1, 3, 7):
                result = attacks.is_lost(x, units, edge, k, w)
                assert result == (rank(x, units, edge, w) >= k)
                lost += result
    assert lost > 500


@compiled_alone
def test_find_counterexample_returns_valid_weights():
    broken, missed = 0, 0
    for _, x, units, K in neighborhoods(3, 150):
        w, k = np.full(4, np.nan), 2
        result = attacks.find_counterexample(x, units, 1, k, 2, K, 6, w)
        if result:
            assert w.min() >= 1
            assert w.max() <= K
            assert rank(x, units, 1, w) >= k
        else:
            missed += any(rank(x, units, 1, corner) >= k for corner in vertices(4, K))
        broken += result
    assert broken > 40
    assert missed < 0.1 * broken


def test_attacked_radii_are_levels_with_counterexamples():
    rng = np.random.default_rng(4)
    items = rng.standard_normal((40, 5))
    items[17] = 0
    norms = np.linalg.norm(items, axis=1)
    unit_rows = np.divide(items, norms[:, None], out=np.zeros_like(items), where=norms[:, None] > 0)
    scores = unit_rows @ unit_rows.T
    np.fill_diagonal(scores, -2)
    neighbors = np.argsort(-scores, axis=1, kind="stable")[:, :12]
    levels, k = np.array([1.02, 1.1, 1.3, 2.0]), 3
    radii, weights = np.full((40, k), -7.0), np.full((40, k, 5), -7.0)
    certified = np.ones((40, k))
    certified[12] = 1.2
    attacks.attacked_radii(
        10, 20, records.SampledRows(records.rows_of(items), *frozen(norms, np.arange(40))),
        *frozen(np.ascontiguousarray(neighbors)), records.Attacks(1, *frozen(certified, levels), 6),
        radii, weights,
    )  # fmt: skip
    for untouched in (slice(0, 10), slice(20, 40)):
        assert (radii[untouched] == -7).all()
        assert (weights[untouched] == -7).all()
    assert np.isnan(radii[17]).all()
    inner = np.delete(radii[10:20], 7, axis=0)
    zero = np.isnan(inner)
    assert set(inner[~zero]) <= {*levels, np.inf}
    assert np.isfinite(inner[~zero]).any()
    # Neighbours that are certified at a level are not attacked at this level.
    assert radii[12].min() >= 1.3
    for i in range(10, 20):
        for r in range(k):
            w = weights[i, r]
            if np.isfinite(radii[i, r]):
                assert w.max() / w.min() <= radii[i, r] ** 2 * (1 + 1e-12)
                assert rank(unit_rows[i], unit_rows[neighbors[i]], r, w) >= k
            else:
                assert (w == 1).all()
