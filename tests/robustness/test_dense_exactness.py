"""A short run of dense_exactness: every entry point finds the exact neighbours of tied rows."""

import numpy as np
import pytest

import fastcos
from tests.oracles import dense, dense_families
from tests.robustness import dense_exactness


@pytest.fixture(autouse=True)
def same_isa_afterwards():
    isa = fastcos.get_config().isa
    yield
    fastcos.set_config(isa=isa)


# This test is slow, because it compiles code for all instruction sets of this CPU. Other tests need
# only the code for the best instruction set.
@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False], ids=["self-join", "queries"])
@pytest.mark.parametrize("entry_point", dense_exactness.ENTRY_POINTS)
def test_neighbors_by_equals_the_oracle(entry_point, own, tmp_path):
    X = dense_families.duplicates(70, 9)
    truth, _ = dense.top_k(X, X, 5, "cosine", exclude_self=own)
    for seed in range(3):
        rng, folder = np.random.default_rng(seed), tmp_path / str(seed)
        folder.mkdir()
        result = dense_exactness.neighbors_by(entry_point, rng, X, 5, "cosine", own, folder)
        np.testing.assert_array_equal(result, truth)


@pytest.mark.slow
def test_count_errors_counts_wrong_neighbours(monkeypatch):
    right = dense_exactness.neighbors_by
    monkeypatch.setattr(dense_exactness, "neighbors_by", lambda *case: right(*case) + 1)
    counts = dense_exactness.count_errors(1)
    assert counts["wrong"] == counts["cases"] > 0
