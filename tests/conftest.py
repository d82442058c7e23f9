"""What every test has: one BLAS thread, Ctrl-C as in a terminal, and settings of its own."""

import os
import signal

import pytest

# before NumPy is there. The workers share the cores, and threads of OpenBLAS spin while they wait:
# tests/linalg/test_svd.py took 40 s instead of 436 on busy cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# a shell without job control starts its background jobs with SIGINT ignored, children inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def settings_end_with_the_test(monkeypatch):
    from fastcos import config

    monkeypatch.setattr(config, "_given", dict(config._given))
