"""Start-up: the import, the first call ever, and the first call of a process."""

import os
import subprocess
import sys
import tempfile

import numpy as np

FIRST_CALL = """
import time
started = time.perf_counter()
import numpy as np, fastcos
fastcos.top_k(np.eye(64, dtype=np.float32), k=3)
print(time.perf_counter() - started)
"""


def timeraw_import():
    return "import fastcos"


def timeraw_import_of_the_search():
    return "from fastcos import top_k"


class FirstCall:
    """import and top_k in a new process, with an empty and with a full code cache."""

    params = [["cold", "warm"]]
    param_names = ["compiled code"]
    timeout = 300

    def setup(self, state):
        self.folder = tempfile.TemporaryDirectory()
        if state == "warm":
            self.run()

    def teardown(self, state):
        self.folder.cleanup()

    def run(self):
        environment = {**os.environ, "FASTCOS_CACHE_DIR": self.folder.name}
        command = [sys.executable, "-c", FIRST_CALL]
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        return float(result.stdout)

    def track_first_top_k(self, state):
        return float(np.median([self.run()] if state == "cold" else [self.run() for _ in range(5)]))

    track_first_top_k.unit = "seconds"
