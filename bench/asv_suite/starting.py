"""Start-up, each in a new process: the import, and the first call without and with compiled code.

asv times the first string, and executes the second one before.
"""

CALL = "import numpy as np, fastcos; fastcos.top_k(np.eye(64, dtype=np.float32), k=3)"
EMPTY_CACHE = (
    "import os, tempfile; folder = tempfile.TemporaryDirectory();"
    "os.environ['FASTCOS_CACHE_DIR'] = folder.name"
)
# a short search compiles nothing by itself
COMPILE = f"from fastcos.engine import readiness; readiness.compile_at_once(); {CALL}"
FULL_CACHE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {COMPILE!r}])"


def timeraw_import():
    return "import fastcos"


def timeraw_import_of_the_search():
    return "from fastcos import top_k"


def timeraw_cold_first_call():
    return CALL, EMPTY_CACHE


def timeraw_warm_first_call():
    return CALL, FULL_CACHE


timeraw_import.pretty_name = "start: import fastcos"
timeraw_import_of_the_search.pretty_name = "start: from fastcos import top_k"
timeraw_cold_first_call.pretty_name = "start: import and first search without compiled code"
timeraw_warm_first_call.pretty_name = "start: import and first search with compiled code"
