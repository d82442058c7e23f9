"""Public operations work under a hard limit on the size of the address space."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.robustness.memory_limits import OPERATIONS, SIZES
from tests.test_determinism import PROMISED

# These operations do not work on rows.
SMALL = {"rescaling_distance"}
# fastcos does not promise the exact bits of the results of these operations, so they are not in
# PROMISED.
OTHERS = {"ingest_interactions", "read_interactions", "similarity_blocks"}


def test_public_operations_are_all_called():
    called = {name.partition(",")[0] for name in OPERATIONS}
    assert called == {*PROMISED, *OTHERS} - SMALL


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_operations_keep_their_bound_at_three_sizes():
    command = [sys.executable, "-m", "tests.robustness.memory_limits"]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = {}
    for line in done.stdout.splitlines():
        results |= json.loads(line)
    assert results == {name: list(SIZES) for name in OPERATIONS}
