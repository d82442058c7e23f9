"""Matrices of the sparse cases: .npy files that every process reads, kept between runs."""

import numpy as np
import pytest

from bench import inputs


def pytest_collection_modifyitems(config):
    """Refuse parallel runs: they disturb the times."""
    if getattr(config.option, "numprocesses", None) or hasattr(config, "workerinput"):
        pytest.exit("timed tests must run one at a time: use -n 0", returncode=2)


PARTS = ("data", "indices", "indptr", "shape")


def make_matrix(name):
    if name == "decks":
        return inputs.decks()
    X = inputs.zipf_interactions()
    return X if name == "zipf" else inputs.zipf_items(X).T.tocsr()


@pytest.fixture(scope="session")
def folder(request, tmp_path_factory):
    """Return a folder in pytest's cache, if there is one: zipf takes half a minute to make."""
    cache = getattr(request.config, "cache", None)
    return cache.mkdir("sparse_inputs") if cache else tmp_path_factory.mktemp("sparse_inputs")


@pytest.fixture
def matrix(request, folder):
    """Return the files of the matrix that the case starts with: decks, zipf or zipf_slice.

    zipf_slice holds 20,000 users of zipf, with 6.3 M non-zeros.
    """
    name = request.node.callspec.params["case"].split()[0]
    files = [folder / f"{name}_{part}.npy" for part in PARTS]
    if not all(file.exists() for file in files):
        X = make_matrix(name)
        if X is None:
            pytest.skip("the deck data are not installed")
        parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32), np.array(X.shape)
        for file, part in zip(files, parts, strict=True):
            np.save(file, part)
    return [str(file) for file in files]
