"""Processes are forked while other threads search, encode, pack or compile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

COLD = """
import os, threading, time, numpy as np
from fastcos import parallel
from fastcos.kernels import pair_scores, records
def norms():
    rows = np.ones((4, 3)); rows.flags.writeable = False
    out = np.zeros(4)
    parallel.run(pair_scores.row_norms, np.array([0, 4]), records.rows_of(rows), out)
    return out
threading.Thread(target=norms).start()
time.sleep({wait})
child = os.fork()
if child == 0:
    import signal
    signal.alarm(60)
    os._exit(int((norms() != 3**0.5).any()))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", *arguments], cwd=ROOT, timeout=600,
        env={**os.environ, **environment}, capture_output=True, text=True,
    )  # fmt: skip


def search_beside_forks(children, *operations):
    ended = python("-m", "tests.robustness.busy_forks", "--children", str(children), *operations)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
def test_children_forked_beside_every_search_end():
    search_beside_forks(3)


@pytest.mark.long
def test_more_children_forked_beside_every_search_end():
    search_beside_forks(5)


# The child is forked while Numba is being imported, or while Numba compiles.
@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.3, 0.1, 0.6])
def test_child_forked_beside_a_compilation_ends(wait, tmp_path):
    ended = python("-c", COLD.format(wait=wait), FASTCOS_CACHE_DIR=str(tmp_path))
    assert ended.stdout.strip() == "0", ended.stderr
