"""Decide whether a search runs compiled kernels, or NumPy code until kernels are compiled.

Compiling the search kernels takes about half a minute of processor time, once per machine. Until
the kernels are compiled, :mod:`fastcos.search.numpy_search` answers searches, while
:mod:`fastcos.parallel.background` compiles the kernels in another process. If no other process can
compile, this process searches in NumPy for about as long as compiling takes, and then compiles the
kernels itself. The usual solution of the ski-rental problem is to switch as soon as the delay has
cost as much as the switch. If a process first searches in NumPy and then compiles, its searches
take at most about twice as long as with the better of two other plans: to compile at the start, and
never to compile.

Each row type (such as float32) needs kernels of its own, so each row type becomes ready at its own
time. A process that has compiled all kernels for a row type marks the type as ready in the code
cache.
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
    few_queries,
    native,
    packing,
    pair_scores,
    projected_queries,
    projection,
    tile_top_k,
)
from fastcos.parallel import background

# A process starts a compilation of the kernels only after this many seconds of searches in NumPy. A
# program that searches for less than 0.1 s would end before the kernels are compiled.
_SECONDS_BEFORE_COMPILING = 0.1
# If no other process can compile the kernels, this process compiles them after it has searched in
# NumPy for this many seconds.
_SECONDS_IN_NUMPY = 20.0
# The seconds between two checks of whether another process has put compiled kernels into the cache.
_SECONDS_BETWEEN_CHECKS = 0.5

# If the cache contains the compiled code of these kernels, it also contains the code of all other
# kernels that are needed to search packed or unpacked rows.
_SEARCH_KERNELS = (
    few_queries.search_few_queries, projected_queries.search_few_by_projection,
    tile_top_k.search_grid, exhaustive_top_k.score_all_rows, pair_scores.row_norms,
    packing.prepare_item_panels, projection.prepare_projected_panels,
)  # fmt: skip


class State:
    """The row types whose kernels are compiled, and the time spent on searches in NumPy."""

    def __init__(self) -> None:
        # seconds_in_numpy is set to 0 when a row type becomes ready, so that searches of every row
        # type can run in NumPy for up to _SECONDS_IN_NUMPY.
        self.seconds_in_numpy = 0.0
        self.compile_at_once = False
        # The names of the row types whose kernels are compiled.
        self.ready: set[str] = set()
        # For each row type, the earliest time (time.monotonic()) of the next check of the cache.
        self.next_check: dict[str, float] = {}

    def add_ready(self, name: str) -> None:
        """Record that searches of the row type `name` run compiled kernels from now on."""
        self.ready.add(name)
        self.seconds_in_numpy = 0.0


state = State()


def compile_at_once() -> None:
    """Make this process compile kernels when it calls them, instead of searching in NumPy."""
    state.compile_at_once = True


def is_ready(dtype: npt.DTypeLike) -> bool:
    """Return whether the wheel or the cache contains the compiled search kernels for a row type."""
    name = np.dtype(dtype).name
    if name in state.ready:
        return True
    now = time.monotonic()
    if now >= state.next_check.get(name, 0.0):
        state.next_check[name] = now + _SECONDS_BETWEEN_CHECKS
        search_grid = tile_top_k.search_grid
        is_plain = not hasattr(search_grid, "py_func")  # NUMBA_DISABLE_JIT
        if is_plain or native.holds(search_grid) or _is_marked(name):
            state.add_ready(name)
    return name in state.ready


def leave_mark(dtype: npt.DTypeLike) -> None:
    """Mark in the cache that all kernels that search rows of a type are compiled."""
    name = np.dtype(dtype).name
    target = os.environ.get("NUMBA_CPU_NAME") or cpu.model()
    code_cache.leave_mark(_mark(name, target), _SEARCH_KERNELS)
    state.add_ready(name)


def _is_marked(dtype: str) -> bool:
    """Return whether the cache is marked as holding compiled kernels that this CPU can run.

    The kernels are compiled for the model of this CPU, or for a tier, which is a group of CPU
    models with common instruction sets (``native.TIERS``).
    """
    if code_cache.is_marked(_mark(dtype, cpu.model()), _SEARCH_KERNELS):
        return True
    names = {name for name, _ in native.TIERS.values()}
    marked = {name for name in names if code_cache.is_marked(_mark(dtype, name), _SEARCH_KERNELS)}
    # Only LLVM can tell to which tiers this CPU belongs. LLVM is imported only if the cache is
    # marked for some tier, because its import takes 0.4 s.
    return bool(marked) and any(native.TIERS[tier][0] in marked for tier in cpu.supported_tiers())


def _mark(dtype: str, target: str) -> str:
    # config.isa() is called only if the user has chosen an instruction set. For a user who has not
    # chosen an instruction set, config.isa() would import LLVM to find the default instruction set,
    # and this import takes 0.4 s.
    is_set = "isa" in config.overrides or os.environ.get("FASTCOS_ISA")
    isa = config.isa() if is_set else "any"
    return f"searches_{dtype}_{isa}_{target}"


def runs_kernels(dtype: npt.DTypeLike) -> bool:
    """Return whether searches of a row type run kernels, even if the kernels must be compiled."""
    return state.compile_at_once or is_ready(dtype)


def use_numpy(dtype: npt.DTypeLike) -> bool:
    """Return whether searches of a row type must use NumPy, because compiled kernels are missing.

    If this process has searched in NumPy for ``_SECONDS_BEFORE_COMPILING``, the call also starts
    another process that compiles the kernels.
    """
    if runs_kernels(dtype):
        return False
    if state.seconds_in_numpy < _SECONDS_BEFORE_COMPILING:
        return True
    request(dtype)
    name = np.dtype(dtype).name
    if background.is_running(name) or state.seconds_in_numpy < _SECONDS_IN_NUMPY:
        return True
    if not code_cache.has_compiler():
        return True
    state.add_ready(name)
    return False


def request(dtype: npt.DTypeLike) -> None:
    """Let another process compile the search kernels for a row type, if needed and possible."""
    if not is_ready(dtype):
        background.start(np.dtype(dtype).name)


@contextlib.contextmanager
def seconds_in_numpy() -> Iterator[None]:
    """Add the time spent in the ``with`` block to the time of searches in NumPy."""
    start = time.perf_counter()
    try:
        yield
    finally:
        state.seconds_in_numpy += time.perf_counter() - start


def explain(dtype: npt.DTypeLike, *, may_use_numpy: bool = True) -> str:
    """Return one phrase that says which code runs searches of rows of a type, and why.

    ``may_use_numpy`` says whether searches may run in NumPy until the kernels are compiled. If many
    rows are duplicates, searches never run in NumPy.
    """
    search_grid = tile_top_k.search_grid
    if not hasattr(search_grid, "py_func"):
        return "plain Python, because NUMBA_DISABLE_JIT is set"
    if native.holds(search_grid):
        return f"native code of the wheel, for {native.tier()}"
    name = np.dtype(dtype).name
    if is_ready(name) and _is_marked(name):
        return "code that Numba has compiled and the cache keeps"
    reason = background.why_not(name)
    if runs_kernels(name) or not may_use_numpy:
        return f"code that this process compiles{f' ({reason})' if reason else ''}"
    if background.is_running(name) or background.is_running_elsewhere(name):
        return "NumPy, while another process compiles the kernels"
    if not code_cache.has_compiler():
        return f"NumPy, because no kernels can be compiled ({reason})"
    if reason:
        return f"NumPy at first, then code that this process compiles ({reason})"
    return "NumPy, until a process that a longer search starts has compiled the kernels"
