"""The gate of the metrics: lists, labels, widths and sizes, at the edge of what is allowed."""

import numpy as np
import pytest

from fastcos.metrics import checks as gate


def test_lists_are_padded_by_minus_one_only_where_allowed():
    lists = np.array([[2, -1, -1], [0, 1, -1]])
    np.testing.assert_array_equal(gate.as_neighbor_lists("x", lists, padded=True), lists)
    with pytest.raises(ValueError, match="x must hold item numbers of at least 0, got -1"):
        gate.as_neighbor_lists("x", lists)
    with pytest.raises(ValueError, match="x must hold item numbers of at least -1, got -2"):
        gate.as_neighbor_lists("x", lists - 1, padded=True)
    for twice in ([[0, 0, -1]], [[1, -1, 1]]):
        with pytest.raises(ValueError, match="x must hold no item twice in a list, got one in row"):
            gate.as_neighbor_lists("x", twice, padded=True)


def test_the_number_that_is_out_of_range_is_told():
    with pytest.raises(ValueError, match="x must hold item numbers from 0 to 4, got 5"):
        gate.as_neighbor_lists("x", [[0, 5]], n_items=5)
    with pytest.raises(ValueError, match="x must hold item numbers from 0 to 4, got -3"):
        gate.as_neighbor_lists("x", [[-3, 5]], n_items=5)


def test_labels_of_queries_have_the_codes_of_the_items():
    known = np.array(["b", "a", "c", "a"])
    codes = gate.as_known_labels("x", ["c", "a", "b", "c"], known, 4)
    np.testing.assert_array_equal(codes, [2, 0, 1, 2])
    for odd in ("aa", "d", ""):
        with pytest.raises(ValueError, match=f"x must be among the labels, got '{odd}'"):
            gate.as_known_labels("x", ["a", odd], known, 2)
    with pytest.raises(ValueError, match=r"x must be of shape \(3,\), got \(2,\)"):
        gate.as_known_labels("x", ["a", "b"], known, 3)


def test_the_least_width_is_enough():
    gate.as_wide("x", np.ones((3, 2)), 2)
    with pytest.raises(ValueError, match="x must have at least 3 columns, got 2"):
        gate.as_wide("x", np.ones((3, 2)), 3)


def test_what_fits_exactly_is_allowed_and_the_need_is_told():
    gate.as_fitting("x", 3 * 2**20, 3.0)
    with pytest.raises(ValueError, match="working memory of 3 MiB, got a need of 7 MiB"):
        gate.as_fitting("x", 7 * 2**20, 3.0)
