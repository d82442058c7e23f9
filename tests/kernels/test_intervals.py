"""Intervals of cosines agree with brute force, and the kernels write only to their own rows."""

import numpy as np
import pytest

from fastcos.kernels import intervals, records
from fastcos.parallel import memmap
from tests.kernels.inputs import frozen
from tests.oracles.audit import cosine, cosines_at, vertices


def pairs(seed, n, d):
    rng = np.random.default_rng(seed)
    return rng, *rng.standard_normal((2, n, d))


def norms(rows):
    return np.linalg.norm(rows, axis=1)


@pytest.mark.parametrize("d", [1, 2, 7])
def test_box_intervals_contain_all_vertices(d):
    _, x, y = pairs(1, 30, d)
    x[12], y[13] = 0, 0
    ends, weights = np.full((30, 2), -7.0), np.full((30, 2, d), -7.0)
    result = records.RowPairs(*frozen(x, y, norms(x), norms(y)))
    intervals.box_intervals(10, 20, result, 6.25, ends, weights)
    for untouched in (slice(0, 10), slice(20, 30)):
        assert (ends[untouched] == -7).all()
        assert (weights[untouched] == -7).all()
    for i in range(10, 20):
        if i in (12, 13):
            assert np.isnan(ends[i]).all()
            assert (weights[i] == 1).all()
            continue
        corners = cosines_at(x[i], y[i], vertices(d, 6.25))
        assert ends[i, 0] <= corners.min() + 1e-12
        assert ends[i, 1] >= corners.max() - 1e-12
        for end, w in zip(ends[i], weights[i], strict=True):
            assert cosine(x[i], y[i], w) == pytest.approx(end, abs=1e-12)
            assert 1 <= w.min() <= w.max() <= 6.25


def test_pair_indices_sum_contributions():
    _, x, y = pairs(2, 12, 5)
    y[6] = -2 * x[6]
    z, indices, parts = np.full(12, -7.0), np.full(12, -7.0), np.full((12, 5), -7.0)
    rows = records.RowPairs(*frozen(x, y, norms(x), norms(y)))
    intervals.pair_indices(4, 8, rows, z, indices, parts)
    for untouched in (slice(0, 4), slice(8, 12)):
        assert (z[untouched] == -7).all()
        assert (indices[untouched] == -7).all()
        assert (parts[untouched] == -7).all()
    for i in (4, 5, 7):
        assert z[i] == pytest.approx(np.arctanh(cosine(x[i], y[i])), rel=1e-12)
        assert np.abs(parts[i]).sum() == pytest.approx(indices[i], rel=1e-12)
        assert parts[i].sum() == pytest.approx(0, abs=1e-14)
    assert z[6] == -np.inf
    assert indices[6] == 0


@pytest.mark.slow  # compiled for this test alone; the audit reads float32 and float64 rows by it
@pytest.mark.parametrize("number_type", [np.float64, np.float32, np.float16, np.int8])
def test_read_unit_row_divides_by_the_norm(number_type):
    numbers = (3 * pairs(4, 3, 19)[1]).astype(number_type)
    rows = records.rows_of(memmap.as_bits(numbers))
    unit = np.full(19, -7.0)
    intervals.read_unit_row(rows, 1, 2.0, unit)
    np.testing.assert_array_equal(unit, numbers[1].astype(np.float64) / 2.0)
    intervals.read_unit_row(rows, 1, 0.0, unit)
    np.testing.assert_array_equal(unit, np.zeros(19))


def test_edge_indices_totals_sum_over_parts():
    rng, items, _ = pairs(3, 25, 4)
    items[5] = 0
    rows = np.arange(0, 25, 2)
    neighbors = np.array([rng.choice(np.delete(np.arange(25), row), 3, False) for row in rows])
    first_of = np.array([0, 4, 9, 13])
    indices, totals = np.full((13, 3), -7.0), np.full((3, 4), -7.0)
    sample = records.SampledRows(records.rows_of(items), *frozen(norms(items), rows))
    intervals.edge_indices(1, 3, sample, *frozen(neighbors, first_of), indices, totals)
    assert (indices[:4] == -7).all()
    assert (totals[0] == -7).all()
    for part in (1, 2):
        expected = np.zeros(4)
        for i in range(first_of[part], first_of[part + 1]):
            for r, j in enumerate(neighbors[i]):
                if j == 5:
                    assert np.isnan(indices[i, r])
                    continue
                x, y = items[rows[i]] / norms(items)[rows[i]], items[j] / norms(items)[j]
                plus, minus = (v / np.linalg.norm(v) for v in (x + y, x - y))
                share = 0.5 * np.abs(plus**2 - minus**2)
                assert indices[i, r] == pytest.approx(share.sum(), rel=1e-12)
                expected += share
        np.testing.assert_allclose(totals[part], expected, rtol=1e-12)
