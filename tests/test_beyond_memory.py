"""Cards and standings of embeddings on disk: those of the same rows in memory, in bounded memory."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from fastcos.auditing import audit


@pytest.fixture(scope="module")
def model():
    """Items in clusters, with zero rows and duplicates among them; users; labels; popularity."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20, 9500)
    items = rng.standard_normal((20, 12))[labels] + rng.standard_normal((9500, 12))
    items[[7, 5000]] = 0
    items[9000:9030] = items[:30]
    users = rng.standard_normal((5000, 12)).astype(np.float32)
    return items.astype(np.float32), users, labels, rng.integers(0, 99, 9500)


@pytest.fixture
def few_mib(monkeypatch):
    """Several blocks of rows of every kind."""
    monkeypatch.setenv("FASTCOS_WORKING_MEMORY", "5")


def on_disk(folder, **arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        yield np.load(folder / f"{name}.npy", mmap_mode="r")


@pytest.mark.usefixtures("few_mib")
def test_the_card_of_rows_on_disk_is_that_of_rows_in_memory(model, tmp_path):
    items, users, labels, popularity = model
    told = {"labels": labels, "popularity": popularity, "k": 4, "condition": 1.2}
    expected = audit(items, users, **told)
    assert (expected.n_zero, expected.n_duplicates) == (3, 29)
    found = audit(*on_disk(tmp_path, items=items, users=users), **told)
    assert json.dumps(found.to_dict()) == json.dumps(expected.to_dict())
