"""Cost of the first run of each command: `python -m bench.first_run [COMMAND ...]`.

Every command runs in a folder of its own, its home, where no kernel, no bytecode of a library and
no list of fonts exists yet, then three times in the same folder; `import fastcos` runs in five new
processes. Prints a table. A few minutes on two cores.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FASTCOS = Path(sys.executable).parent / "fastcos"
SMALL = ["--users", "2000", "--items", "200"]
# commands that write the inputs of a command
PREPARED = {
    "compare": [["simulate", *SMALL]],
    "fit": [["simulate", *SMALL]],
    "neighbors": [["simulate", *SMALL], ["fit", "simulation/interactions.npz", "--rank", "20"]],
    "audit": [],
}
COMMANDS = {
    "simulate": ["simulate", *SMALL],
    "fit": ["fit", "simulation/interactions.npz", "--rank", "20"],
    "neighbors": ["neighbors", "model"],
    "compare": ["compare", "simulation/interactions.npz", "--rank", "20"],
    "audit": ["audit", "items.npy"],
    "reproduce": ["reproduce"],
    "warmup": ["warmup"],
}
VECTORS = (
    "import numpy as np; np.save('items.npy', np.random.default_rng(0).random((500, 16), 'f4'))"
)


def seconds(command: list[str], folder: Path, cache: Path) -> tuple[float, float]:
    """Return the wall seconds of a command, and the seconds of compiling that it reports."""
    environment = {**os.environ, "FASTCOS_CACHE_DIR": str(cache), "HOME": str(cache)}
    environment |= {"PYTHONPYCACHEPREFIX": str(cache), "PYTHONDONTWRITEBYTECODE": ""}
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    taken = time.perf_counter() - started
    compiled = re.search(r"compiled for (\d+\.\d) s", done.stderr)
    return taken, float(compiled[1]) if compiled else 0.0


def main(chosen: list[str]) -> None:
    """Time the import and the chosen commands."""
    with tempfile.TemporaryDirectory() as place:
        imports = [
            seconds([sys.executable, "-c", "import fastcos"], Path(), Path(place))[0]
            - seconds([sys.executable, "-c", "pass"], Path(), Path(place))[0]
            for _ in range(5)
        ]
    print(f"import fastcos: {statistics.median(imports) * 1e3:.0f} ms")
    print("| command | first run, s | compiling, s | later runs, s |\n|---|---:|---:|---:|")
    for name in chosen or COMMANDS:
        with tempfile.TemporaryDirectory() as place:
            folder, elsewhere = Path(place), Path(place) / "other"
            seconds([sys.executable, "-c", VECTORS], folder, elsewhere)
            for words in PREPARED.get(name, []):
                seconds([str(FASTCOS), *words], folder, elsewhere)
            command = [str(FASTCOS), *COMMANDS[name]]
            first, compiled = seconds(command, folder, folder / "cache")
            later = [seconds(command, folder, folder / "cache")[0] for _ in range(3)]
            print(f"| {name} | {first:.1f} | {compiled:.1f} | {statistics.median(later):.1f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
