"""The start of a process that compiles the search kernels, while NumPy answers.

A process that would stay slow starts ``python -m fastcos.engine.compile_searches`` once. What that
compiles goes to the code cache, where the processes that wait find it (``jit.is_ready``).
"""

import contextlib
import os
import subprocess
import sys

from fastcos import config
from fastcos.kernels import code_cache

# what runs in the other process
_MODULE = "fastcos.engine.compile_searches"

# whether this process has started one or could not, and the one that it started
is_started, _process = False, None


def start(dtype: str) -> None:
    """Compile searches of rows of a dtype in the background, unless this process did so before.

    Nothing is started without Numba, where code cannot be kept, and with FASTCOS_BACKGROUND=0.
    """
    global is_started, _process
    if is_started or os.environ.get("FASTCOS_BACKGROUND") == "0" or not sys.executable:
        return
    is_started = True
    if not (code_cache.has_compiler() and code_cache.is_writable()):
        return
    settings = {"FASTCOS_CACHE_DIR": str(code_cache.cache_directory()), "FASTCOS_BACKGROUND": "0"}
    if "isa" in config.overrides:
        settings["FASTCOS_ISA"] = config.isa()
    command = [sys.executable, "-m", _MODULE, dtype]
    nothing = subprocess.DEVNULL
    with contextlib.suppress(OSError):  # no process can be started
        _process = subprocess.Popen(
            command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True,
            env={**os.environ, **settings},
        )  # fmt: skip
        text = "once on this machine, for half a minute; searches are slower until then"
        hint = "fastcos warmup compiles all beforehand"
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # stderr is full or closed
                print(f"fastcos: compiling kernels in the background, {text}; {hint}",
                      file=sys.stderr, flush=True)  # fmt: skip
