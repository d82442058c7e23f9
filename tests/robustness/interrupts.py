"""A script: sends Ctrl-C (SIGINT) at random moments of public operations, and times the response.

    python -m tests.robustness.interrupts [--repeats 10] [--rows 20000] [operation ...]

The operations are those of memory_limits.py; the script repeats each of them until it sends SIGINT.
For each operation, the script prints the longest time in seconds from SIGINT to KeyboardInterrupt.
It also prints how many threads and files the interrupted calls left behind; the threads of the pool
are not counted. It exits with status 1 if a time exceeded 0.5 s, or if a thread or file was left
behind.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import fastcos
from tests.robustness.memory_limits import OPERATIONS

LONGEST = 0.5


def answered(name: str, inputs: tuple[Any, ...], delay: float) -> float:
    """Send SIGINT after `delay` seconds; return how many seconds KeyboardInterrupt took."""
    sent: list[float] = []

    def send() -> None:
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Timer(delay, send)
    try:
        sender.start()
        while True:
            OPERATIONS[name][1](*inputs)
    except KeyboardInterrupt:
        seconds = time.perf_counter() - sent[0]
    sender.join()
    return seconds


def worst(name: str, n: int, repeats: int, chance: random.Random) -> dict[str, Any]:
    make, call = OPERATIONS[name]
    inputs = make(n)
    call(*inputs)  # compiles the kernels, and starts the pool
    before, longest = threading.active_count(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        for _ in range(repeats):
            longest = max(longest, answered(name, inputs, 0.05 + chance.random()))
        files = len(list(Path(folder).iterdir()))
        tempfile.tempdir = None
    n_extra_threads = threading.active_count() - before
    return {
        "operation": name,
        "seconds": round(longest, 3),
        "threads": n_extra_threads,
        "files": files,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operation", nargs="*", help="names in memory_limits.py; default: all")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    fastcos.set_config(n_threads=2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    amiss, chance = 0, random.Random(0)
    for name in options.operation or OPERATIONS:
        result = worst(name, options.rows, options.repeats, chance)
        print(json.dumps(result), flush=True)
        amiss += result["seconds"] > LONGEST or result["threads"] > 0 or result["files"] > 0
    sys.exit(amiss > 0)
