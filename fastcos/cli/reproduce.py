"""fastcos reproduce: section 4 of the paper, at its own size."""

import argparse
import csv
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.results import show_comparison, write_comparison, write_figure
from fastcos.cli.terminal import print_json, print_table, progress_bar, say, spinner
from fastcos.kernels import sampling
from fastcos.kernels.jit import is_ready
from fastcos.storage import provenance

if TYPE_CHECKING:
    from fastcos.comparison.sensitivity import SensitivityRow

DESCRIPTION = """\
Simulate the paper's interactions, train both objectives, and score every rescaling D of the first
by how well cosine similarity recovers the true clusters of the items. All rescalings are the same
model; their scores differ. Writes figure1.png, figure1.svg, figure1.csv, figure1.json and
exponents.png. With --sensitivity, do it for every preset of the simulation and several seeds, by
rank, λ and D, beside the prediction of held-out interactions. Writes sensitivity.csv, .png, .svg
and .json."""
EPILOG = """\
examples:
  fastcos reproduce                    20,000 users, 1,000 items as in the paper
  fastcos reproduce --users 2000 --items 200 --rank 20 --out small
  fastcos reproduce --sensitivity      ten presets of ten seeds; resumed
  fastcos reproduce --seed 4 --preset zipf_pareto --json > table.json
source: Steck, Ekanadham, Kallus 2024, arXiv:2403.05440, section 4"""

# data sets of a preset in the study
N_SEEDS = 10
# what is imported once the interactions are simulated
LATER_IMPORTS = """\
import fastcos.comparison, fastcos.plots, sklearn.metrics
import matplotlib.backends.backend_agg, matplotlib.backends.backend_svg, PIL.PngImagePlugin"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_simulation(parser)
    options.add_model(parser, "users / 2, the paper's 10,000 for 20,000")
    group = parser.add_argument_group("sensitivity to rank, λ and D")
    group.add_argument("--sensitivity", action="store_true", help="run the study")
    group.add_argument(
        "--seeds", type=int, metavar="N", help=f"data sets of a preset (default {N_SEEDS})"
    )
    options.add_output(parser, "reproduction")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Simulate, compare, write, print."""
    options.apply_common(given)
    folder = options.out_directory(given)
    if given.sensitivity:
        return _study(given, folder)
    validation.check_none("--seeds", given.seeds, "without --sensitivity")
    if is_ready(sampling.sample_rows):
        return _reproduce(given, folder)
    # the first run: while kernels compile, a second process compiles the sources of these libraries
    # and lists the fonts for matplotlib
    command = [sys.executable, "-c", LATER_IMPORTS]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL):
        return _reproduce(given, folder)


def _reproduce(given: argparse.Namespace, folder: Path) -> int:
    """Simulate one data set and compare the rescalings."""
    simulation = options.simulate(given)
    # imported after the first message
    from fastcos.comparison import compare
    from fastcos.comparison.sensitivity import REGULARIZATION_PER_USER

    if given.regularization is None:
        given.regularization = REGULARIZATION_PER_USER * given.n_users
    X, clusters = simulation.X, simulation.item_cluster
    say(f"simulated {X.nnz:,} interactions of {X.shape[0]:,} users with {X.shape[1]:,} items")
    model = options.model_arguments(given)
    with progress_bar("factorising, then comparing rescalings") as progress:
        comparison = compare(X, clusters, **model, measures=("cosine",), progress=progress)
    parameters = {"simulation": simulation.parameters, "model": comparison.parameters}
    with spinner("drawing"):
        written = write_comparison(comparison, folder, stem="figure1", parameters=parameters)
    show_comparison(comparison, written, parameters, as_json=given.json)
    return 0


def _study(given: argparse.Namespace, folder: Path) -> int:
    """Score every preset and seed that the folder does not have yet; write, draw, print."""
    from fastcos.comparison.sensitivity import SensitivityRow, conclusions, summary_table
    from fastcos.datasets import presets
    from fastcos.plots import SensitivityDisplay

    n_seeds = N_SEEDS if given.seeds is None else validation.as_count("--seeds", given.seeds)
    seeds = range(given.seed, given.seed + n_seeds)
    names = list(presets()) if given.preset is None else [given.preset]
    places = [(name, seed) for name in names for seed in seeds]
    parts = folder / "sensitivity"
    parts.mkdir(parents=True, exist_ok=True)
    rows = []
    for done, (name, seed) in enumerate(places, 1):
        rows += _rows_of(given, parts, name, seed)
        say(f"{done} of {len(places)} data sets: {name}, seed {seed}")
    sentences, (header, lines) = conclusions(rows), summary_table(rows)
    io.write_csv(folder / "sensitivity.csv", SensitivityRow._fields, rows)
    parameters = {"users": given.n_users, "items": given.n_items, "presets": names}
    document = provenance.provenance({**parameters, "seeds": list(seeds)})
    document["conclusions"] = sentences
    document["auc"] = [dict(zip(header, line, strict=True)) for line in lines]
    io.write_json(folder / "sensitivity.json", document)
    figures = write_figure(SensitivityDisplay(rows).plot().figure_, folder, "sensitivity")
    if given.json:
        print_json(document)
    else:
        print_table("AUC of the clusters at the paper's rank, means over seeds", header, lines)
        for number, sentence in enumerate(sentences, 1):
            print(f"{number}. {sentence}")
    written = (folder / "sensitivity.csv", folder / "sensitivity.json", *figures)
    say("wrote " + ", ".join(str(path) for path in written))
    return 0


def _rows_of(
    given: argparse.Namespace, parts: Path, name: str, seed: int
) -> list["SensitivityRow"]:
    """The rows of one data set, from its file where there is one."""
    from fastcos.comparison.sensitivity import SensitivityRow, score_simulation

    numbers = (given.n_users, given.n_items, given.n_clusters, *given.item_exponent)
    key = "-".join(f"{number:g}" for number in (*numbers, given.user_exponent))
    path = parts / f"{name}-{seed}-{key}.csv"
    if not path.exists():
        arguments = argparse.Namespace(**{**vars(given), "preset": name, "seed": seed})
        scored = score_simulation(options.simulate(arguments), name, seed)
        io.write_csv(path, SensitivityRow._fields, scored)
    kinds: tuple[Any, ...] = (str, int, str, int, float, str, float, float, float)
    with path.open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    return [
        SensitivityRow(*(kind(cell) for kind, cell in zip(kinds, line, strict=True)))
        for line in lines
    ]
