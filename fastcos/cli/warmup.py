"""fastcos warmup: compile everything once, for containers and impatient people."""

import argparse
import time
from typing import Any

from fastcos.cli.terminal import say
from fastcos.kernels import code_cache

DESCRIPTION = """\
Run every kernel on tiny inputs, so that later processes find compiled code in the cache directory.
In a container image, run it at build time as the user that will run the service."""


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "warmup",
        help="compile every kernel into the cache directory",
        description=DESCRIPTION,
        epilog="example: FASTCOS_CACHE_DIR=/opt/fastcos-cache fastcos warmup",
    )
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run the main job on a tiny input."""
    from fastcos.comparison import compare
    from fastcos.datasets import simulate_interactions

    started = time.perf_counter()
    simulation = simulate_interactions(200, 60, seed=0)
    compare(simulation.X, simulation.item_cluster, n_components=8)
    seconds = time.perf_counter() - started
    say(f"compiled into {code_cache.cache_directory()} in {seconds:.1f} s")
    return 0
