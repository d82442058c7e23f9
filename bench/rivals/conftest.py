"""Matrices of the sparse rivals, made once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench import inputs


@pytest.fixture(scope="session")
def decks():
    X = inputs.decks()
    if X is None:
        pytest.skip("no deck data beside the repository")
    return X


@pytest.fixture(scope="session")
def zipf(tmp_path_factory):
    return inputs.zipf_interactions()


@pytest.fixture(params=["decks", "zipf"])
def interactions(request):
    return request.getfixturevalue(request.param)
