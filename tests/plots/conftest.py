"""Fixtures for the tests of all pages that contain a script: a browser and a comparison."""

import pytest

from fastcos import compare, simulate_interactions
from tests.plots.browser import opened_browser


@pytest.fixture(scope="session")
def browser():
    with opened_browser() as driver:
        yield driver


@pytest.fixture(scope="session")
def compared():
    """Return clustered interactions, and their comparison by four measures, with examples."""
    data = simulate_interactions(400, 90, random_state=3)
    measures = ["dot", "neg_euclidean", "csls"]
    return data, compare(
        data.X, data.item_cluster, n_components=12, measures=measures, n_examples=20
    )
