"""Cost of the first run of each command: `python -m bench.first_run [COMMAND ...]`.

Every command runs in a folder of its own with an empty code cache, then three times with the cache
of the first run; `import fastcos` runs in five new processes. Prints a table. A few
minutes on two cores. `python -m bench.first_run README` times the steps of the README's first
command instead, in a clone and with a home of their own, and its last step again.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
FASTCOS = Path(sys.executable).parent / "fastcos"
SMALL = ["--users", "2000", "--items", "200"]
SIMULATE = ["simulate", *SMALL]
FIT = ["fit", "simulation/interactions.npz", "--rank", "20"]
# the commands that write the inputs of a command, and the command
COMMANDS = {
    "simulate": [SIMULATE],
    "fit": [SIMULATE, FIT],
    "neighbors": [SIMULATE, FIT, ["neighbors", "model"]],
    "compare": [SIMULATE, ["compare", "simulation/interactions.npz", "--rank", "20"]],
    "audit": [["audit", "items.npy"]],
    "reproduce": [["reproduce"]],
    "warmup": [["warmup"]],
}
VECTORS = (
    "import numpy as np; np.save('items.npy', np.random.default_rng(0).random((500, 16), 'f4'))"
)


def seconds(command: list[str], folder: Path, cache: Path) -> tuple[float, float]:
    """Return the wall seconds of a command, and the seconds of compiling that it reports."""
    environment = {**os.environ, "FASTCOS_CACHE_DIR": str(cache)}
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    taken = time.perf_counter() - started
    compiled = re.search(r"compiled for (\d+\.\d) s", done.stderr)
    return taken, float(compiled[1]) if compiled else 0.0


def time_readme() -> None:
    """Print the seconds of each step; no setting of Python or fastcos is inherited."""
    words = re.search(r"python3 -m venv .*", (ROOT / "README.md").read_text())
    assert words is not None
    steps = words[0].split(" && ")
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), f"{place}/clone"], check=True)
        own = ("PYTHON", "FASTCOS_", "OMP_", "OPENBLAS_", "XDG_", "VIRTUAL_ENV")
        environment = {name: v for name, v in os.environ.items() if not name.startswith(own)}
        for step in (*steps, steps[-1]):
            started = time.perf_counter()
            subprocess.run(
                step, shell=True, cwd=f"{place}/clone", env={**environment, "HOME": place},
                capture_output=True, check=True,
            )  # fmt: skip
            print(f"{time.perf_counter() - started:5.1f} s  {step}", flush=True)


def main(chosen: list[str]) -> None:
    """Time the import and the chosen commands, or those of the README."""
    if chosen == ["README"]:
        time_readme()
        return
    imports = [
        seconds([sys.executable, "-c", "import fastcos"], Path(), Path())[0]
        - seconds([sys.executable, "-c", "pass"], Path(), Path())[0]
        for _ in range(5)
    ]
    print(f"import fastcos: {statistics.median(imports) * 1e3:.0f} ms")
    print("| command | first run, s | compiling, s | later runs, s |\n|---|---:|---:|---:|")
    for name in chosen or COMMANDS:
        with tempfile.TemporaryDirectory() as place:
            folder, elsewhere = Path(place), Path(place) / "other"
            seconds([sys.executable, "-c", VECTORS], folder, elsewhere)
            *prepared, timed = COMMANDS[name]
            for words in prepared:
                seconds([str(FASTCOS), *words], folder, elsewhere)
            command = [str(FASTCOS), *timed]
            first, compiled = seconds(command, folder, folder / "cache")
            later = [seconds(command, folder, folder / "cache")[0] for _ in range(3)]
            print(f"| {name} | {first:.1f} | {compiled:.1f} | {statistics.median(later):.1f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
