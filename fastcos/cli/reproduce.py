"""The command ``fastcos reproduce``, which reproduces section 4 of the paper."""

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
Simulate interactions as in Steck et al. 2024, and fit one model per objective of that paper. For
each rescaling D of the model of Eq. 1, report how well cosine similarity recovers the true
clusters of the items. A rescaling D is a diagonal matrix that scales the latent dimensions. All
rescalings give the same predictions and the same loss, but the cosines recover the clusters well
under some rescalings and badly under others. The command writes figure1.html, a page on which you
can change D, and figure1.png, with five panels as in the paper. It also writes figure1.svg,
figure1.csv, figure1.json and exponents.png. With --only-data, the command writes only the simulated
data, and fits no model. The data are interactions.npz (SciPy CSR), items.csv (item, cluster,
popularity) and simulation.json (all parameters and versions)."""
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

# The λ of Eq. 1 in the paper is 10,000 for 20,000 users. The entries of X'X grow in proportion to
# the number of users, so λ must grow in the same proportion.
REGULARIZATION_PER_USER = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    group = parser.add_argument_group("simulation (section 4 of the paper)")
    sizes = ("users", "N", 20_000), ("items", "P", 1_000), ("clusters", "C", 5)
    for flag, metavar, default in sizes:
        group.add_argument(
            f"--{flag}", dest=f"n_{flag}", type=int, default=default, metavar=metavar,
            help=f"number of {flag} (default {default})",
        )  # fmt: skip
    help_ = (
        "named set of values for the simulation settings that the paper does not specify "
        "(default zipf_bounded; fastcos.models.presets() in Python returns all names)"
    )
    group.add_argument("--preset", metavar="NAME", help=help_)
    half_of_users = "half of --users, as in the paper (20,000 users, λ = 10,000)"
    options.add_model(parser, half_of_users)
    options.add_rescalings(parser)
    help_ = (
        "draw one panel of figure1 for each named rescaling D, and another panel for the worst "
        "rescaling on a grid. The grid consists of rescalings D = S^a Σ^b with exponents a and b"
    )
    parser.add_argument("--all", action="store_true", help=help_)
    parser.add_argument(
        "--only-data", action="store_true", help="write the simulated interactions and stop"
    )
    options.add_output(parser, "reproduction")
    options.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate the interactions, compare rescalings, and write and print the comparison."""
    folder = options.out_directory(args)
    # A message is printed first, because the imports and the first kernel take several seconds.
    say(f"simulating the interactions of {args.n_users:,} users with {args.n_items:,} items")
    from fastcos.models.simulation import simulate_interactions

    rescalings = options.parse_rescalings(args)
    with progress_bar("simulating users") as progress:
        simulation = simulate_interactions(
            args.n_users,
            args.n_items,
            n_clusters=args.n_clusters,
            preset="zipf_bounded" if args.preset is None else args.preset,
            random_state=args.seed,
            progress=progress,
        )
    if args.only_data:
        return _write_data(simulation, args, folder)
    # Importing the comparison and the page takes time. They are therefore imported only after the
    # first message has been printed.
    from fastcos.comparison import compare
    from fastcos.plots.html import figure_page

    if args.regularization is None:
        args.regularization = REGULARIZATION_PER_USER * args.n_users
    X, clusters = simulation.X, simulation.item_cluster
    say(f"simulated {X.nnz:,} interactions of {X.shape[0]:,} users with {X.shape[1]:,} items")
    model = options.model_arguments(args)
    with progress_bar("factorising, then comparing rescalings") as progress:
        comparison = compare(
            X, clusters, **model, rescalings=rescalings,
            measures=("cosine",), progress=progress,
        )  # fmt: skip
    parameters = {"simulation": simulation.parameters, "model": comparison.parameters}
    with spinner("drawing"):
        paths, document = write_comparison(
            comparison, folder, stem="figure1", parameters=parameters, every=args.all
        )
        # On the page, a reader changes the rescaling D. There is no page if only Eq. 2 was trained,
        # because Eq. 2 determines D.
        if "dropout" in comparison.models:
            page = figure_page(comparison, X, provenance=provenance.provenance(parameters))
            io.write_text(folder / "figure1.html", page)
            paths.insert(0, folder / "figure1.html")
    if args.json:
        print_json(document)
    else:
        show_comparison(comparison)
    say_written(paths)
    return 0


def _write_data(simulation: "Simulation", args: argparse.Namespace, folder: Path) -> int:
    """Write the interactions, the items and the parameters of the simulation."""
    import scipy.sparse as sp

    folder.mkdir(parents=True, exist_ok=True)
    with io.atomic_path(folder / "interactions.npz") as path, path.open("wb") as file:
        sp.save_npz(file, simulation.X)
    clusters, popularity = simulation.item_cluster.tolist(), simulation.item_popularity.tolist()
    items = zip(range(len(clusters)), clusters, popularity, strict=True)
    io.write_csv(folder / "items.csv", ("item", "cluster", "popularity"), items)
    document = provenance.provenance(simulation.parameters)
    io.write_json(folder / "simulation.json", document)
    if args.json:
        print_json(document)
    say(f"wrote {simulation.X.nnz:,} interactions to {folder}")
    return 0
