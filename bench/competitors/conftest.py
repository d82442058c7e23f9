"""Matrices of the sparse rivals, made once and kept as .npy files that every process reads."""

import sys
from pathlib import Path

import numpy as np
import pytest

from bench import inputs

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(config):
    """Two tests at once are no timing."""
    if getattr(config.option, "numprocesses", None) or hasattr(config, "workerinput"):
        pytest.exit("timings need one process: run with -n 0", returncode=2)


PARTS = ("data", "indices", "indptr", "shape")


def made(name):
    if name == "decks":
        return inputs.decks()
    X = inputs.zipf_interactions()
    return X if name == "zipf" else inputs.zipf_items(X).T.tocsr()


@pytest.fixture(scope="session")
def folder(request, tmp_path_factory):
    """Pytest's cache, where it has one: zipf takes half a minute to make."""
    cache = getattr(request.config, "cache", None)
    return cache.mkdir("sparse_inputs") if cache else tmp_path_factory.mktemp("sparse_inputs")


@pytest.fixture
def matrix(request, folder):
    """Files of the matrix that the test's case begins with: decks, zipf or zipf_slice.

    zipf_slice is zipf's users whose 27,000 x 20,000 transpose has 6.3 M non-zeros.
    """
    name = request.node.callspec.params["case"].split()[0]
    files = [folder / f"{name}_{part}.npy" for part in PARTS]
    if not all(file.exists() for file in files):
        X = made(name)
        if X is None:
            pytest.skip("no deck data beside the repository")
        parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32), np.array(X.shape)
        for file, part in zip(files, parts, strict=True):
            np.save(file, part)
    return [str(file) for file in files]
