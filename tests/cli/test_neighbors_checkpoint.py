"""Tests of `fastcos neighbors --checkpoint`, which keeps finished blocks and resumes."""

import json
import subprocess
import sys

import numpy as np
import pytest

from fastcos.cli.main import main


@pytest.fixture
def items(tmp_path):
    rows = np.random.default_rng(1).standard_normal((300, 6)).astype(np.float32)
    np.save(tmp_path / "items.npy", rows)
    return tmp_path / "items.npy"


def search(items, out, *words):
    return main(["neighbors", str(items), "--k", "5", "--out", str(out), *words])


def test_checkpoint_holds_arrays_and_gives_the_same_file(items, tmp_path):
    parts = tmp_path / "parts"
    assert search(items, tmp_path / "plain.npz") == 0
    for _ in range(2):  # The second call reads the arrays that the first one wrote.
        assert search(items, tmp_path / "resumed.npz", "--checkpoint", str(parts)) == 0
        assert (tmp_path / "resumed.npz").read_bytes() == (tmp_path / "plain.npz").read_bytes()
    assert np.load(parts / "indices.npy").shape == (300, 5)


def test_checkpoint_of_another_search_is_refused(items, tmp_path, capsys):
    words = ("--checkpoint", str(tmp_path / "parts"))
    assert search(items, tmp_path / "cosine.npz", *words) == 0
    assert search(items, tmp_path / "dot.npz", *words, "--measure", "dot") == 2
    assert "--checkpoint must" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_killed_searches_end_with_the_same_files():
    command = [sys.executable, "-m", "tests.robustness.killed_writers", "4", "long-neighbors"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    killed, ended, _ = json.loads(done.stdout)["long-neighbors"]
    assert killed >= 4
    assert ended >= 1
