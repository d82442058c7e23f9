"""The gate of the audit: cosines, and matrices that measure lengths."""

import numpy as np
import pytest

from fastcos.auditing import checks as gate


def test_cosines_are_cut_to_one_where_float32_rounded_them_up():
    given = [-1 - 1e-7, 1 + 9e-7, 0.5, -1]
    np.testing.assert_array_equal(gate.as_cosines("x", given), [-1, 1, 0.5, -1])
    np.testing.assert_array_equal(gate.as_cosines("x", 0.25), [0.25])
    with pytest.raises(ValueError, match=r"x must be from -1 to 1, got .*1\.1.* at position 2"):
        gate.as_cosines("x", [0, 1, 1.1, 2])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_metric_is_symmetric_but_for_rounding(scale):
    random = np.random.default_rng(0)
    A = random.standard_normal((5, 9))
    symmetric = scale * (A @ A.T)
    rounded = symmetric * (1 + 1e-13 * random.standard_normal((5, 5)))
    np.testing.assert_array_equal(gate.as_metric("M", rounded), rounded)
    bent = symmetric.copy()
    bent[0, 1] += 1e-8 * np.abs(symmetric).max()
    with pytest.raises(ValueError, match="M must be symmetric and positive definite"):
        gate.as_metric("M", bent)


def test_a_metric_is_positive_in_every_direction():
    for lowest in (0.0, -0.25):
        with pytest.raises(
            ValueError, match=f"positive definite, got a smallest eigenvalue of {lowest:g}"
        ):
            gate.as_metric("M", np.diag([3.0, lowest, 2.0]))
    np.testing.assert_array_equal(gate.as_metric("M", [1.0, 2.0]), [1, 2])
    with pytest.raises(ValueError, match=r"M must be of shape \(3, 3\) or \(3,\), got \(2, 2\)"):
        gate.as_metric("M", np.eye(2), 3)
    with pytest.raises(ValueError, match="M must"):
        gate.as_metric("M", [1.0, 2.0], 3)
