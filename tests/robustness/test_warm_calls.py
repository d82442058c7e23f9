"""After ``fastcos warmup``, no documented call compiles anything (see warm_calls.py)."""

import os
import subprocess
import sys

import pytest

from tests.robustness import warm_calls

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """Return a cache that `fastcos warmup` has filled."""
    cache = tmp_path_factory.mktemp("warmed")
    code = "from fastcos.cli.main import main; raise SystemExit(main(['warmup']))"
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FASTCOS_CACHE_DIR": str(cache)}, check=True, capture_output=True,
    )  # fmt: skip
    return cache


@pytest.mark.parametrize("name", warm_calls.GROUPS)
def test_calls_after_warmup_compile_nothing(name, warmed):
    assert warm_calls.added(warmed, name) == {}
