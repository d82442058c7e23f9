"""The start of fastcos in a new process.

Each function returns the code that asv times. If a function returns two strings, asv first runs the
second string as preparation, and then times the first string.
"""

SEARCH = "import numpy as np, fastcos; fastcos.top_k(np.eye(64, dtype=np.float32), k=3)"
# A short search compiles no kernel, so this code compiles the kernels before a process is timed.
COMPILE = f"from fastcos.parallel import readiness; readiness.compile_at_once(); {SEARCH}"
COMPILE_BEFORE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {COMPILE!r}])"


def timeraw_import():
    return "import fastcos"


def timeraw_import_of_top_k():
    return "from fastcos import top_k"


def timeraw_first_search():
    """Measure the time of the import and of the first search, with compiled kernels on disk."""
    return SEARCH, COMPILE_BEFORE
