"""fastcos reproduce: section 4 of the paper, at its own size."""

import argparse

from fastcos.cli import options
from fastcos.cli.results import show_comparison, write_comparison
from fastcos.cli.terminal import progress_bar, say, spinner

DESCRIPTION = """\
Simulate the paper's interactions, train both objectives, and score every rescaling D of the first
by how well cosine similarity recovers the true clusters of the items. All rescalings are the same
model; their scores differ. Writes figure1.png, figure1.svg, figure1.csv, figure1.json and
exponents.png."""
EPILOG = """\
examples:
  fastcos reproduce                    20,000 users, 1,000 items as in the paper
  fastcos reproduce --users 2000 --items 200 --rank 20 --out small
  fastcos reproduce --seed 4 --preset zipf_pareto --json > table.json
source: Steck, Ekanadham, Kallus 2024, arXiv:2403.05440, section 4"""

# the paper's λ of Eq. 1 is 10,000 for 20,000 users; X'X grows with the number of users
REGULARIZATION_PER_USER = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_simulation(parser)
    options.add_model(parser, "users / 2, the paper's 10,000 for 20,000")
    options.add_output(parser, "reproduction")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Simulate, compare, write, print."""
    from fastcos.comparison import compare

    options.apply_common(given)
    folder = options.out_directory(given)
    if given.regularization is None:
        given.regularization = REGULARIZATION_PER_USER * given.n_users
    simulation = options.simulate(given)
    X, clusters = simulation.X, simulation.item_cluster
    say(f"simulated {X.nnz:,} interactions of {X.shape[0]:,} users with {X.shape[1]:,} items")
    model = options.model_arguments(given, X.shape)
    with progress_bar("factorising, then comparing rescalings") as progress:
        comparison = compare(X, clusters, **model, measures=("cosine",), progress=progress)
    parameters = {"simulation": simulation.parameters, "model": comparison.parameters}
    with spinner("drawing"):
        written = write_comparison(comparison, folder, stem="figure1", parameters=parameters)
    show_comparison(comparison, written, parameters, as_json=given.json)
    return 0
