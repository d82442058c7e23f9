"""Recos of candidate lists."""

import numpy as np
import pytest

from fastcos.kernels import ordered_rows
from tests.kernels.inputs import frozen
from tests.oracles import measures as oracles


def some_rows(kind):
    random = np.random.default_rng(3)
    rows = random.standard_normal((60, 9)) ** (5 if kind == "spiky" else 1)
    rows[7], rows[20], rows[33] = 0, rows[4], 3 * rows[4]
    rows[41] = -rows[4]
    return rows.astype(np.float32) if kind == "float32" else rows


@pytest.mark.parametrize("kind", ["even", "spiky", "float32"])
def test_recos_rows_equals_sorted_python_lists(kind):
    rows = some_rows(kind)
    columns = np.random.default_rng(0).integers(-1, 60, (60, 25))
    keys, ordered = np.full((60, 25), np.nan), np.sort(rows, axis=1)
    ordered_rows.recos_rows(2, 60, *frozen(rows, ordered, rows, ordered, columns), keys)
    truth = np.take_along_axis(oracles.recos(rows, rows), np.maximum(columns, 0), axis=1)
    truth[columns < 0] = -np.inf
    np.testing.assert_allclose(keys[2:], truth[2:], rtol=1e-12, atol=1e-15)
    assert np.isnan(keys[:2]).all()
