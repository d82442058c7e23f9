"""community_detection, compared with a loop over its definition and with sentence-transformers."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from fastcos import calibrate
from fastcos.search import community_detection


def communities(rows, threshold, min_size):
    """Return disjoint neighbourhoods of rows, the largest one first."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    table = (unit @ unit.T).astype(np.float32)
    candidates = []
    for center, line in enumerate(table):
        near = [j for j in range(len(rows)) if line[j] >= np.float32(threshold)]
        # A row comes first in its own neighbourhood, whatever the rounding.
        candidates.append(sorted(near, key=lambda j: (j != center, -line[j], j)))
    chosen, taken = [], set()
    for members in sorted(candidates, key=len, reverse=True):
        free = [j for j in members if j not in taken]
        if members and members[0] not in taken and len(free) >= min_size:
            chosen.append(free)
            taken.update(free)
    return sorted(chosen, key=len, reverse=True)


def random_case(seed):
    """Return overlapping clusters without equal cosines, a threshold, and a minimum size."""
    random = np.random.default_rng(seed)
    n, d = random.integers(1, 120), random.integers(2, 12)
    centers = random.standard_normal((random.integers(1, 6), d)) * 2
    rows = centers[random.integers(0, len(centers), n)] + random.standard_normal((n, d))
    return rows, random.uniform(-0.2, 0.98), int(random.integers(1, 15))


def test_community_detection_equals_the_definition():
    n_communities = 0
    for seed in range(50):
        rows, threshold, min_size = random_case(seed)
        found = community_detection(rows, threshold, min_size)
        assert found == communities(rows, threshold, min_size), seed
        n_communities += len(found)
    assert n_communities > 75


OF_SENTENCE_TRANSFORMERS = """
import json, sys
import numpy as np
from sentence_transformers.util import community_detection
cases = np.load("cases.npz")
answers = []
for seed in range(200):
    threshold, min_size = cases[f"arguments{seed}"]
    answers.append(community_detection(cases[f"rows{seed}"], float(threshold), int(min_size)))
json.dump(answers, open("answers.json", "w"))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None, reason="needs sentence-transformers"
)
def test_community_detection_equals_sentence_transformers(tmp_path):
    """fastcos finds the same communities as sentence-transformers, which runs in another process.

    That process must not import our folder `kernels` instead of the package of the same name.
    """
    cases = [random_case(seed) for seed in range(200)]
    arrays = {f"rows{seed}": rows for seed, (rows, _, _) in enumerate(cases)}
    arrays |= {f"arguments{seed}": np.array(rest) for seed, (_, *rest) in enumerate(cases)}
    np.savez(tmp_path / "cases.npz", **arrays)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", OF_SENTENCE_TRANSFORMERS]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads((tmp_path / "answers.json").read_text())
    for seed, ((rows, threshold, min_size), theirs) in enumerate(zip(cases, answers, strict=True)):
        assert community_detection(rows, threshold, min_size) == theirs, seed


def test_zero_rows_and_duplicates_in_communities():
    rows = np.array([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [2.0, 4.0], [1.0, 2.0]])
    assert community_detection(rows, 0.5, 1) == [[1, 3, 4]]
    assert community_detection(rows, 0.0, 1) == [[0, 1, 2, 3, 4]]
    assert community_detection(rows, 0.5, 4) == []
    assert community_detection(rows, 0.5, 6) == []


def test_community_detection_takes_a_calibration():
    rows = np.random.default_rng(0).standard_normal((300, 4))
    rate = calibrate(rows, fpr=0.01)
    assert community_detection(rows, rate, 5) == community_detection(rows, rate.threshold(), 5)
