"""Tells that kernels are compiled, which happens once per machine and version."""

import contextlib
from collections.abc import Iterator
from typing import Any

from fastcos.cli.terminal import say

# what the first run of a verb takes longer than the second: python -m bench.first_run, 2 cores
SECONDS = {
    "reproduce": 25,
    "simulate": 4,
    "compare": 40,
    "fit": 1,
    "neighbors": 13,
    "audit": 30,
    "warmup": 125,
}


@contextlib.contextmanager
def compilation_told(verb: str) -> Iterator[None]:
    """Tell when the first kernel is compiled while the block runs, and at the end how long it took.

    Says nothing where every kernel is found in the cache.
    """
    from numba.core import event

    class Listener(event.TimingListener):  # type: ignore[misc]
        told = False

        def on_start(self, started: Any) -> None:
            from fastcos.kernels import code_cache

            if not self.told:
                self.told = True
                usual = f", about {SECONDS[verb]} s" if verb in SECONDS else ""
                say(
                    f"compiling kernels once{usual}; later runs find them in "
                    f"{code_cache.cache_directory()}"
                )
            super().on_start(started)

    listener = Listener()
    with event.install_listener("numba:compile", listener):
        yield
    if listener.done:
        say(f"compiled for {listener.duration:.1f} s")
