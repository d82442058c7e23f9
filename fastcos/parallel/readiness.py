"""Decide which code performs a search: the compiled kernels or, until they are compiled, NumPy.

Compiling the search kernels takes about half a minute of processor time, once per machine. Until
the kernels are compiled, :mod:`fastcos.search.numpy_search` answers searches, while
:mod:`fastcos.parallel.background` compiles the kernels in another process. If no other process can
compile, this process searches in NumPy for about as long as compiling takes, and then compiles the
kernels itself. This is the usual strategy in the ski-rental problem: rent until the rent adds up to
the price, and then buy. Two plans are simpler: never compile, or compile before the first search.
The searches take at most about twice as long as they would under the better of these two plans.

The same kernels read rows of every number type (``kernels.records.Rows``), so one compilation
serves all number types. A process that has compiled all search kernels leaves a mark in the code
cache.
"""

import contextlib
import os
import time
from collections.abc import Iterator

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
# Once in this many seconds, a process checks whether another process has put compiled kernels into
# the cache.
_SECONDS_BETWEEN_CHECKS = 0.5

# A search of packed or unpacked rows needs only these kernels. If the cache contains their code,
# nothing must be compiled.
_SEARCH_KERNELS = (
    few_queries.search_few_queries, projected_queries.search_few_by_projection,
    tile_top_k.search_grid, exhaustive_top_k.score_all_rows, pair_scores.row_norms,
    packing.prepare_item_panels, projection.prepare_projected_panels,
)  # fmt: skip


class State:
    """Whether searches run compiled kernels, and the time spent on searches in NumPy."""

    def __init__(self) -> None:
        self.seconds_in_numpy = 0.0
        self.compile_at_once = False
        # True once the kernels are compiled, or once this process has decided to compile them.
        self.is_ready = False
        # The earliest time (time.monotonic()) of the next check of the cache.
        self.next_check = 0.0


state = State()


def compile_at_once() -> None:
    """Make this process compile kernels when it calls them, instead of searching in NumPy."""
    state.compile_at_once = True


def is_ready() -> bool:
    """Return whether the wheel or the cache contains the compiled search kernels."""
    if state.is_ready:
        return True
    now = time.monotonic()
    if now >= state.next_check:
        state.next_check = now + _SECONDS_BETWEEN_CHECKS
        search_grid = tile_top_k.search_grid
        is_plain = not hasattr(search_grid, "py_func")  # NUMBA_DISABLE_JIT
        state.is_ready = is_plain or native.holds(search_grid) or _is_marked()
    return state.is_ready


def leave_mark() -> None:
    """Mark in the cache that all kernels of searches are compiled."""
    target = os.environ.get("NUMBA_CPU_NAME") or cpu.model()
    code_cache.leave_mark(_mark(target), _SEARCH_KERNELS)
    state.is_ready = True


def _is_marked() -> bool:
    """Return whether the cache is marked as holding compiled kernels that this CPU can run.

    The kernels are compiled for the model of this CPU, or for a tier, which is a group of CPU
    models with common instruction sets (``native.TIERS``).
    """
    if code_cache.is_marked(_mark(cpu.model()), _SEARCH_KERNELS):
        return True
    names = {name for name, _ in native.TIERS.values()}
    marked = {name for name in names if code_cache.is_marked(_mark(name), _SEARCH_KERNELS)}
    # Only LLVM can tell to which tiers this CPU belongs, and importing LLVM takes 0.4 s. LLVM is
    # therefore imported only if the cache holds compiled kernels for at least one tier.
    return bool(marked) and any(native.TIERS[tier][0] in marked for tier in cpu.supported_tiers())


def _mark(target: str) -> str:
    # config.isa() is called only if the user has chosen an instruction set. For all other users,
    # config.isa() would take 0.4 s, because it would import LLVM to find the default instruction
    # set.
    is_set = "isa" in config.overrides or os.environ.get("FASTCOS_ISA")
    isa = config.isa() if is_set else "any"
    return f"searches_{isa}_{target}"


def runs_kernels() -> bool:
    """Return whether searches run kernels, even if the kernels must be compiled."""
    return state.compile_at_once or is_ready()


def use_numpy() -> bool:
    """Return whether searches must use NumPy, because compiled kernels are missing.

    If this process has searched in NumPy for ``_SECONDS_BEFORE_COMPILING``, the call also starts
    another process that compiles the kernels.
    """
    if runs_kernels():
        return False
    if state.seconds_in_numpy < _SECONDS_BEFORE_COMPILING:
        return True
    request()
    if background.is_running() or state.seconds_in_numpy < _SECONDS_IN_NUMPY:
        return True
    if not code_cache.has_compiler():
        return True
    state.is_ready = True
    return False


def request() -> None:
    """Let another process compile the search kernels, if needed and possible."""
    if not is_ready():
        background.start()


@contextlib.contextmanager
def seconds_in_numpy() -> Iterator[None]:
    """Add the time spent in the ``with`` block to the time of searches in NumPy."""
    start = time.perf_counter()
    try:
        yield
    finally:
        state.seconds_in_numpy += time.perf_counter() - start


def explain(*, may_use_numpy: bool = True) -> str:
    """Return one phrase that says which code runs searches, and why.

    ``may_use_numpy`` says whether searches may run in NumPy until the kernels are compiled. If many
    rows are duplicates, searches never run in NumPy.
    """
    search_grid = tile_top_k.search_grid
    if not hasattr(search_grid, "py_func"):
        return "plain Python, because NUMBA_DISABLE_JIT is set"
    if native.holds(search_grid):
        return f"native code of the wheel, for {native.tier()}"
    if is_ready() and _is_marked():
        return "code that Numba has compiled, loaded from the cache"
    reason = background.why_not()
    if runs_kernels() or not may_use_numpy:
        return f"code that this process compiles{f' ({reason})' if reason else ''}"
    if background.is_running() or background.is_running_elsewhere():
        return "NumPy, while another process compiles the kernels"
    if not code_cache.has_compiler():
        return f"NumPy, because no kernels can be compiled ({reason})"
    if reason:
        return f"NumPy at first, then code that this process compiles ({reason})"
    seconds = f"{_SECONDS_BEFORE_COMPILING:g} s"
    until = f"once searches have taken {seconds}, another process compiles the kernels"
    return f"NumPy at first; {until}"
