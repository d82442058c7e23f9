"""The validation of neighbour lists and query labels is correct at the limits of what is valid."""

import numpy as np
import pytest

from fastcos import metrics
from fastcos.metrics.labelled import as_neighbor_lists


def test_neighbor_lists_are_padded_only_if_allowed():
    lists = np.array([[2, -1, -1], [0, 1, -1]])
    np.testing.assert_array_equal(as_neighbor_lists("x", lists, padded=True), lists)
    with pytest.raises(ValueError, match="x must hold item numbers of at least 0, got -1"):
        as_neighbor_lists("x", lists)
    with pytest.raises(ValueError, match="x must hold item numbers of at least -1, got -2"):
        as_neighbor_lists("x", lists - 1, padded=True)
    for repeated in ([[0, 0, -1]], [[1, -1, 1]]):
        with pytest.raises(ValueError, match="x must not repeat an item in a list"):
            as_neighbor_lists("x", repeated, padded=True)


def test_neighbor_lists_errors_state_the_number():
    with pytest.raises(ValueError, match="x must hold item numbers from 0 to 4, got 5"):
        as_neighbor_lists("x", [[0, 5]], n_items=5)
    with pytest.raises(ValueError, match="x must hold item numbers from 0 to 4, got -3"):
        as_neighbor_lists("x", [[-3, 5]], n_items=5)


def test_neighbor_lists_of_several_lengths_are_refused():
    with pytest.raises(ValueError, match="x must have rows of one length, got 2 numbers in row 0"):
        as_neighbor_lists("x", [[0, 5], [1]])


def test_neighbor_purity_matches_query_labels_to_items():
    labels = np.array(["b", "a", "c", "a"])
    for known in (labels, labels.astype(object)):
        purity = metrics.neighbor_purity([[2], [1], [0]], known, query_labels=["c", "a", "c"])
        assert purity.value == pytest.approx(2 / 3)
    for odd in ("aa", "d", ""):
        with pytest.raises(ValueError, match=f"query_labels must be among the labels, got '{odd}'"):
            metrics.neighbor_purity([[0], [1]], labels, query_labels=["a", odd])
    with pytest.raises(ValueError, match=r"query_labels must be of shape \(3,\), got \(2,\)"):
        metrics.neighbor_purity([[0], [1], [2]], labels, query_labels=["a", "b"])
