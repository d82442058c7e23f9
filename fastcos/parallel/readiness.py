"""Whether searches run compiled kernels yet, and what answers them until they do.

Compiling a search takes half a minute of processor time, once on a machine. Until it is done,
:mod:`fastcos.search.numpy_search` answers, and :mod:`fastcos.parallel.background` compiles in
another process. Where no other process can do that, this one searches in NumPy for about as long as
compiling takes and then compiles: the ski-rental strategy, which takes at most twice as long as the
better choice would have.

Searches of rows of one type run other code than those of another type, so readiness is known for
each type. A process that has compiled all that searches of a type need leaves a mark in the cache.
"""

import contextlib
import os
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastcos import config
from fastcos.kernels import (
    code_cache,
    cpu,
    exhaustive_top_k,
    native,
    packing,
    pair_scores,
    projection,
    tile_top_k,
)
from fastcos.parallel import background

# Seconds of searching in NumPy after which a process asks for compiled code: shorter programs end
# before it could be of use.
_SECONDS_BEFORE_COMPILING = 0.1
# Seconds of searching in NumPy, where no other process compiles, after which this process does.
_SECONDS_IN_NUMPY = 20.0
# Seconds between looks at the cache for code that another process has compiled.
_SECONDS_BETWEEN_LOOKS = 0.5

# Kernels that reach, or stand for, all that searches of packed and of unpacked rows run.
_SEARCH_KERNELS = (
    tile_top_k.scan_panels, tile_top_k.search_grid, exhaustive_top_k.score_all_rows,
    pair_scores.row_norms, packing.prepare_item_panels, projection.prepare_projected_panels,
)  # fmt: skip


class State:
    """What this process knows about its kernels."""

    def __init__(self) -> None:
        self.seconds_in_numpy = 0.0
        self.compile_at_once = False
        self.ready: set[str] = set()  # row types
        self.next_look: dict[str, float] = {}


state = State()


def compile_at_once() -> None:
    """Let this process compile whatever it calls, however small its inputs are."""
    state.compile_at_once = True


def is_ready(dtype: npt.DTypeLike) -> bool:
    """Whether compiled code of searches of rows of a type is in the wheel or in the cache."""
    name = np.dtype(dtype).name
    if name in state.ready:
        return True
    now = time.monotonic()
    if now >= state.next_look.get(name, 0.0):
        state.next_look[name] = now + _SECONDS_BETWEEN_LOOKS
        scan_panels = tile_top_k.scan_panels
        is_plain = not hasattr(scan_panels, "py_func")  # NUMBA_DISABLE_JIT
        if is_plain or native.holds(scan_panels) or _is_marked(name):
            state.ready.add(name)
    return name in state.ready


def leave_mark(dtype: npt.DTypeLike) -> None:
    """Tell other processes that all that searches of rows of a type need is in the cache."""
    name = np.dtype(dtype).name
    target = os.environ.get("NUMBA_CPU_NAME") or cpu.model()
    code_cache.leave_mark(_mark(name, target), _SEARCH_KERNELS)
    state.ready.add(name)


def _is_marked(dtype: str) -> bool:
    """Whether the cache has code for this CPU, or for a tier of CPUs that it belongs to."""
    if code_cache.is_marked(_mark(dtype, cpu.model()), _SEARCH_KERNELS):
        return True
    names = {name for name, _ in native.TIERS.values()}
    marked = {name for name in names if code_cache.is_marked(_mark(dtype, name), _SEARCH_KERNELS)}
    # which tiers this CPU has is known by LLVM, whose import takes 0.4 s
    return bool(marked) and any(native.TIERS[tier][0] in marked for tier in cpu.supported_tiers())


def _mark(dtype: str, target: str) -> str:
    # The default needs LLVM's list of features, whose import takes 0.4 s; a setting is validated.
    is_set = "isa" in config.overrides or os.environ.get("FASTCOS_ISA")
    isa = config.isa() if is_set else "any"
    return f"searches_{dtype}_{isa}_{target}"


def use_numpy(dtype: npt.DTypeLike) -> bool:
    """Whether searches of rows of a type are answered by NumPy for now."""
    if state.compile_at_once or is_ready(dtype):
        return False
    if state.seconds_in_numpy < _SECONDS_BEFORE_COMPILING:
        return True
    request(dtype)
    if background.is_running() or state.seconds_in_numpy < _SECONDS_IN_NUMPY:
        return True
    state.ready.add(np.dtype(dtype).name)
    return False


def request(dtype: npt.DTypeLike) -> None:
    """Have searches of rows of a type compiled by another process, where that is possible."""
    if not is_ready(dtype):
        background.start(np.dtype(dtype).name)


@contextlib.contextmanager
def seconds_in_numpy() -> Iterator[None]:
    """Count the time within the block as time spent in NumPy."""
    start = time.perf_counter()
    try:
        yield
    finally:
        state.seconds_in_numpy += time.perf_counter() - start


def explain(dtype: npt.DTypeLike) -> str:
    """Return in one sentence which code searches of rows of a type run, and why."""
    scan_panels = tile_top_k.scan_panels
    if not hasattr(scan_panels, "py_func"):
        return "plain Python, because NUMBA_DISABLE_JIT is set"
    if native.holds(scan_panels):
        return f"native code of the wheel, for {native.tier()}"
    if is_ready(dtype):
        return "code that Numba has compiled and the cache keeps"
    if background.is_running():
        return "NumPy, while another process compiles the kernels"
    reason = background.why_not()
    if reason:
        return f"NumPy at first, then code that this process compiles ({reason})"
    return "NumPy, until another process, which a longer search starts, has compiled the kernels"
