"""fastcos reproduce: section 4 of the paper, at its own size, or its data."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fastcos import io
from fastcos.cli import options
from fastcos.cli.results import show_comparison, write_comparison
from fastcos.cli.terminal import print_json, progress_bar, say, say_written, spinner
from fastcos.storage import provenance

if TYPE_CHECKING:
    from fastcos.models.simulation import Simulation

DESCRIPTION = """\
Simulate the paper's interactions, train both objectives, and score every rescaling D of the first
by how well cosine similarity recovers the true clusters of the items. All rescalings are the same
model; their scores differ. Writes figure1.html, a page on which you move D, and figure1.png with
five panels as in the paper, figure1.svg, figure1.csv, figure1.json and exponents.png. With
--only-data, writes the simulated interactions and stops: interactions.npz (SciPy CSR), items.csv
(item, cluster, popularity) and simulation.json (every parameter and version)."""
EPILOG = """\
examples:
  fastcos reproduce                    20,000 users, 1,000 items as in the paper
  fastcos reproduce --users 2000 --items 200 --rank 20 --out small
  fastcos reproduce --rescaling 0.25,-0.5 --out own
  fastcos reproduce --seed 4 --preset zipf_pareto --json > table.json
  fastcos reproduce --only-data --users 5000 --items 500 --out sim
  fastcos compare sim/interactions.npz --labels sim/items.csv \\
    --label-column cluster
source: Steck, Ekanadham, Kallus 2024, arXiv:2403.05440, section 4"""

# the paper's λ of Eq. 1 is 10,000 for 20,000 users; X'X grows with the number of users
REGULARIZATION_PER_USER = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    group = parser.add_argument_group("simulation (section 4 of the paper)")
    sizes = ("users", "N", 20_000), ("items", "P", 1_000), ("clusters", "C", 5)
    for flag, metavar, default in sizes:
        group.add_argument(
            f"--{flag}", dest=f"n_{flag}", type=int, default=default, metavar=metavar,
            help=f"default {default}",
        )  # fmt: skip
    help_ = "range of the items' power-law exponents (default 0.25 1.5)"
    group.add_argument(
        "--item-exponent", type=float, nargs=2, default=(0.25, 1.5), metavar=("MIN", "MAX"),
        help=help_,
    )  # fmt: skip
    help_ = "power-law exponent of interactions per user (default 0.5)"
    group.add_argument("--user-exponent", type=float, default=0.5, metavar="B", help=help_)
    help_ = (
        "reading of what the paper leaves open (default zipf_bounded; a wrong name lists them all)"
    )
    group.add_argument("--preset", metavar="NAME", help=help_)
    options.add_model(parser, "users / 2, the paper's 10,000 for 20,000")
    options.add_rescalings(parser)
    help_ = "a panel of figure1 for every D, and for the worst of a grid"
    parser.add_argument("--all", action="store_true", help=help_)
    parser.add_argument(
        "--only-data", action="store_true", help="write the simulated interactions and stop"
    )
    options.add_output(parser, "reproduction")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Simulate, compare, write, print."""
    folder = options.out_directory(given)
    # imports and the first kernel take seconds, before any user is simulated
    say(f"simulating the interactions of {given.n_users:,} users with {given.n_items:,} items")
    from fastcos.models.simulation import simulate_interactions

    with progress_bar("simulating users") as progress:
        simulation = simulate_interactions(
            given.n_users,
            given.n_items,
            n_clusters=given.n_clusters,
            item_exponent=tuple(given.item_exponent),
            user_exponent=given.user_exponent,
            preset="zipf_bounded" if given.preset is None else given.preset,
            random_state=given.seed,
            progress=progress,
        )
    if given.only_data:
        return _write_data(simulation, given, folder)
    # imported after the first message
    from fastcos.comparison import compare
    from fastcos.plots.html import figure_page

    if given.regularization is None:
        given.regularization = REGULARIZATION_PER_USER * given.n_users
    X, clusters = simulation.X, simulation.item_cluster
    say(f"simulated {X.nnz:,} interactions of {X.shape[0]:,} users with {X.shape[1]:,} items")
    model = options.model_arguments(given)
    with progress_bar("factorising, then comparing rescalings") as progress:
        comparison = compare(
            X, clusters, **model, rescalings=options.chosen_rescalings(given),
            measures=("cosine",), progress=progress,
        )  # fmt: skip
    parameters = {"simulation": simulation.parameters, "model": comparison.parameters}
    with spinner("drawing"):
        written, document = write_comparison(
            comparison, folder, stem="figure1", parameters=parameters, every=given.all
        )
        if "dropout" in comparison.models:  # Eq. 2 leaves no D to move
            page = figure_page(comparison, X, provenance=provenance.provenance(parameters))
            io.write_text(folder / "figure1.html", page)
            written.insert(0, folder / "figure1.html")
    if given.json:
        print_json(document)
    else:
        show_comparison(comparison)
    say_written(written)
    return 0


def _write_data(simulation: "Simulation", given: argparse.Namespace, folder: Path) -> int:
    """Write the interactions, the items and how they were simulated."""
    import scipy.sparse as sp

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
