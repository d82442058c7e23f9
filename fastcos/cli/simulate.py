"""fastcos simulate: the paper's interactions as files."""

import argparse

import scipy.sparse as sp

from fastcos import io
from fastcos.cli import options
from fastcos.cli.terminal import print_json, say
from fastcos.storage import provenance

DESCRIPTION = """\
Simulate interactions as in section 4 of the paper. Writes interactions.npz (SciPy CSR),
items.csv (item, cluster, popularity) and simulation.json (every parameter and version)."""
EPILOG = """\
example:
  fastcos simulate --users 5000 --items 500 --out sim
  fastcos compare sim/interactions.npz --labels sim/items.csv \\
    --label-column cluster"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_simulation(parser)
    options.add_output(parser, "simulation")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Simulate and write."""
    options.apply_common(given)
    folder = options.out_directory(given)
    simulation = options.simulate(given)
    folder.mkdir(parents=True, exist_ok=True)
    with io.atomic_path(folder / "interactions.npz") as path, path.open("wb") as file:
        sp.save_npz(file, simulation.X)
    clusters, popularity = simulation.item_cluster.tolist(), simulation.item_popularity.tolist()
    items = zip(range(len(clusters)), clusters, popularity, strict=True)
    io.write_csv(folder / "items.csv", ("item", "cluster", "popularity"), items)
    document = provenance.provenance(simulation.parameters)
    io.write_json(folder / "simulation.json", document)
    if given.json:
        print_json(document)
    say(f"wrote {simulation.X.nnz:,} interactions to {folder}")
    return 0
