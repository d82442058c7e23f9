"""Matrices of the sparse rivals, made once and kept as .npy files that every process reads."""

import sys
from pathlib import Path

import numpy as np
import pytest

from bench import inputs

sys.path.insert(0, str(Path(__file__).parent))


def files_of(X, folder):
    """Save X with int32 indices; return the names of the files."""
    parts = {
        "data": X.data, "indices": X.indices.astype(np.int32), "indptr": X.indptr.astype(np.int32),
        "shape": np.array(X.shape),
    }  # fmt: skip
    files = [folder / f"{name}.npy" for name in parts]
    for file, part in zip(files, parts.values(), strict=True):
        np.save(file, part)
    return [str(file) for file in files]


@pytest.fixture(scope="session")
def matrices(tmp_path_factory):
    """Files of decks, zipf and the users of zipf's 27,000 x 20,000 slice; decks may be absent."""
    X, decks = inputs.zipf_interactions(), inputs.decks()
    found = {"zipf": X, "zipf_slice": inputs.zipf_items(X).T.tocsr()}
    if decks is not None:
        found["decks"] = decks
    folder = tmp_path_factory.mktemp("matrices")
    names = {}
    for name, matrix in found.items():
        (folder / name).mkdir()
        names[name] = files_of(matrix, folder / name)
    return names


@pytest.fixture
def matrix(request, matrices):
    """Files of the matrix that the test's case begins with."""
    name = request.node.callspec.params["case"].split()[0]
    if name not in matrices:
        pytest.skip("no deck data beside the repository")
    return matrices[name]
