"""scanpy builds its neighbourhood graph with our transformer, as the recipe in our docs says."""

import numpy as np
import pytest


def test_scanpy_takes_our_transformer():
    scanpy = pytest.importorskip("scanpy", reason="needs scanpy")
    from sklearn.neighbors import KNeighborsTransformer

    from fastcos import NeighborsTransformer

    X = np.random.default_rng(0).standard_normal((60, 10)).astype(np.float32)
    for measure, metric in (("neg_euclidean", "euclidean"), ("cosine", "cosine")):
        exact = KNeighborsTransformer(n_neighbors=15, algorithm="brute", metric=metric)
        ours, theirs = (
            with_neighbors(scanpy, X, one)
            for one in (NeighborsTransformer(15, measure=measure), exact)
        )
        difference = ours.obsp["distances"] - theirs.obsp["distances"]
        assert abs(difference).max() < 1e-5
        assert abs(ours.obsp["connectivities"] - theirs.obsp["connectivities"]).max() < 1e-4


def with_neighbors(scanpy, X, transformer):
    cells = scanpy.AnnData(X.copy())
    scanpy.pp.neighbors(cells, use_rep="X", transformer=transformer)
    return cells
