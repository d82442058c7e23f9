"""What every test process has: one BLAS thread, and Ctrl-C as in a terminal."""

import os
import signal

# before NumPy is there. The workers share the cores, and threads of OpenBLAS spin while they wait:
# tests/test_svd.py took 40 s instead of 436 on busy cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# a shell without job control starts its background jobs with SIGINT ignored, children inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
