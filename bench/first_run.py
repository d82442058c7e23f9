"""Cost of the first run of each command: `python -m bench.first_run` prints a table.

Every command runs with an empty code cache of its own, then three times with the cache of the first
run; `import fastcos` runs in five new processes. Five minutes on two cores.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.clock import in_turns
from bench.inputs import gaussian

FASTCOS = Path(sys.executable).parent / "fastcos"
# later ones read what earlier ones write
COMMANDS = (
    "reproduce --only-data --users 2000 --items 200",
    "fit reproduction/interactions.npz --rank 20",
    "neighbors model",
    "compare reproduction/interactions.npz --rank 20",
    "audit items.npy",
    "reproduce",
    "warmup",
)


def run(command, folder):
    """Return the wall seconds of a command, and the seconds of compiling that it reports."""
    words = command.split()
    environment = os.environ | {"FASTCOS_CACHE_DIR": str(folder / "caches" / words[0])}
    started = time.perf_counter()
    done = subprocess.run(
        [FASTCOS, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    taken = time.perf_counter() - started
    compiled = re.search(r"compiled for (\d+\.\d) s", done.stderr)
    return taken, float(compiled[1]) if compiled else 0.0


def python(code):
    subprocess.run([sys.executable, "-c", code], check=True)


def main():
    importing, starting = in_turns(lambda: python("import fastcos"), lambda: python("pass")).T
    print(f"import fastcos: {1e3 * np.median(importing - starting):.0f} ms")
    print("| command | first run, s | compiling, s | later runs, s |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.save(folder / "items.npy", gaussian(500, 16))
        for command in COMMANDS:
            first, compiled = run(command, folder)
            later = np.median([run(command, folder)[0] for _ in range(3)])
            name = command.split()[0]
            print(f"| {name} | {first:.1f} | {compiled:.1f} | {later:.1f} |", flush=True)


if __name__ == "__main__":
    main()
