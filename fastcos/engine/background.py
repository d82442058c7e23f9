"""Compilation of the search kernels in a process of its own, while NumPy answers.

A process that would stay slow starts ``python -m fastcos.engine.background`` once: at low priority,
one at a time on a machine. It compiles what searches of one type of rows need, for one query
first, and saves it in the code cache, where the processes that wait find it (``jit.is_ready``).
"""

import contextlib
import os
import subprocess
import sys

import numpy as np

from fastcos import config
from fastcos.kernels import code_cache

# added to the niceness: a service that searches meanwhile keeps nine tenths of a core
_NICENESS = 10
# rows and columns of the searches that are compiled: few, but so many that tiles search them
_ROWS, _COLUMNS = 512, 16

# whether this process has started one, or must not
is_started = False


def start(dtype: str) -> None:
    """Compile searches of rows of a dtype in the background, unless this process did so before.

    Nothing is started where compiled code cannot be kept, and with FASTCOS_BACKGROUND=0.
    """
    global is_started
    if is_started or os.environ.get("FASTCOS_BACKGROUND") == "0" or not sys.executable:
        return
    is_started = True
    if not code_cache.is_writable():
        return
    settings = {"FASTCOS_ISA": config.isa(), "FASTCOS_CACHE_DIR": str(code_cache.cache_directory())}
    command = [sys.executable, "-m", __name__, dtype]
    nothing = subprocess.DEVNULL
    with contextlib.suppress(OSError):  # no process can be started: NumPy goes on
        subprocess.Popen(
            command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True,
            env={**os.environ, **settings, "FASTCOS_BACKGROUND": "0"},
        )  # fmt: skip
        text = "once on this machine, for half a minute; searches are slower until then"
        hint = "fastcos warmup compiles all beforehand"
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # stderr is full or closed
                print(f"fastcos: compiling kernels in the background, {text}; {hint}",
                      file=sys.stderr, flush=True)  # fmt: skip


def compile_searches(dtype: str) -> None:
    """Compile searches of rows of a dtype: of few queries first, then of many."""
    from fastcos.engine import packing, scan, segments, uncompiled

    uncompiled.work_left = 0
    options, few = packing.ExecutionOptions(1, 2.0**30), scan.FEW_QUERIES
    # with a common direction, which is taken out before packing
    rows = 1.0 + np.random.default_rng(0).standard_normal((_ROWS, _COLUMNS))
    items = packing.encode_rows(rows.astype(dtype), None, 1, "cosine")
    segment = segments.Segment("cosine", items, np.arange(_ROWS, dtype=np.int64), 1)
    for n in (1, 2 * few):
        queries, nothing = items.take(slice(n)), packing.no_exclusions(n)
        segment.pack()
        columns, scores = segment.plan(n, nothing)(queries, nothing, 10, options)
        scan.best_of_parts(np.stack([columns] * 2, axis=1), np.stack([scores] * 2, axis=1))


def main(dtype: str) -> None:
    """Compile at low priority, unless another process on this machine does."""
    with contextlib.suppress(AttributeError, OSError):  # Windows has no niceness
        os.nice(_NICENESS)
    with code_cache.sole_process("background") as is_sole:
        if is_sole:
            compile_searches(dtype)


if __name__ == "__main__":
    main(sys.argv[1])
