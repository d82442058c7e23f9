"""Start gunicorn with an application that is loaded before the forks, and send requests."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]


def answers(application: str, folder: Path, requests: int, **environment: str) -> list[Any]:
    """Return the answers of a server to 8 clients, or raise an error if an answer is missing.

    The server has 2 workers with 4 threads each.
    """
    (folder / "application.py").write_text(application)
    address = f"127.0.0.1:{20000 + os.getpid() % 20000}"
    path = os.pathsep.join([str(folder), str(ROOT), *sys.path])
    arguments = ["--preload", "-w", "2", "--threads", "4", "-b", address]
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *arguments, "application:app"],
        env={**os.environ, **environment, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )

    def send(_: int) -> Any:
        for _ in range(3000):  # the first start compiles
            try:
                with urlopen(f"http://{address}", timeout=60) as answer:
                    return json.load(answer)
            except OSError as error:
                if "refused" not in str(error):
                    raise
                time.sleep(0.1)
        raise TimeoutError(f"no server at {address}")

    try:
        with ThreadPoolExecutor(8) as clients:
            return list(clients.map(send, range(requests)))
    finally:
        server.terminate()
        server.communicate(timeout=90)  # gunicorn waits 30 s for its workers
