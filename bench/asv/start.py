"""Start-up in a new process: asv times the returned code, and runs the second string before."""

SEARCH = "import numpy as np, fastcos; fastcos.top_k(np.eye(64, dtype=np.float32), k=3)"
# A short search alone compiles nothing; this one does, so that the timed process finds kernels.
COMPILE = f"from fastcos.parallel import readiness; readiness.compile_at_once(); {SEARCH}"
COMPILE_BEFORE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {COMPILE!r}])"


def timeraw_import():
    return "import fastcos"


def timeraw_import_of_top_k():
    return "from fastcos import top_k"


def timeraw_first_search():
    """The import and the first search, with compiled kernels on disk."""
    return SEARCH, COMPILE_BEFORE
