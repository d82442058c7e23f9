"""scanpy's neighbourhood graph by our transformer, as its recipe says."""

import numpy as np
import pytest


def test_scanpy_takes_our_transformer():
    scanpy = pytest.importorskip("scanpy", reason="needs scanpy")
    from fastcos import NeighborsTransformer

    X = np.random.default_rng(0).standard_normal((60, 10)).astype(np.float32)
    for measure, metric in (("neg_euclidean", "euclidean"), ("cosine", "cosine")):
        ours, theirs = scanpy.AnnData(X.copy()), scanpy.AnnData(X.copy())
        transformer = NeighborsTransformer(15, measure=measure)
        scanpy.pp.neighbors(ours, use_rep="X", n_neighbors=15, transformer=transformer)
        exact = {"transformer": "sklearn", "metric": metric}
        scanpy.pp.neighbors(theirs, use_rep="X", n_neighbors=15, **exact)
        difference = ours.obsp["distances"] - theirs.obsp["distances"]
        assert abs(difference).max() < 1e-5
        assert abs(ours.obsp["connectivities"] - theirs.obsp["connectivities"]).max() < 1e-4
