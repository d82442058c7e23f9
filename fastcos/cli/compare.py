"""fastcos compare: every rescaling of one model of a person's own data."""

import argparse
from typing import Any

import numpy as np

from fastcos.cli import options
from fastcos.cli.results import neighbor_table, show_comparison, write_comparison
from fastcos.cli.terminal import print_table, progress_bar, say

DESCRIPTION = """\
Factorise interactions once and compare item-item cosine similarity under every rescaling D of that
one model, and under Eq. 2: scores against labels, and the ten nearest neighbours of well-known
items side by side. Writes comparison.png, .svg, .csv, .json, exponents.png and neighbors.csv."""
EPILOG = """\
examples:
  fastcos compare ratings.csv --labels movies.csv --label-column genres
  fastcos compare clicks.npz --rank 128 --regularization 5000 --out clicks-compared
input: csv or tsv with user, item and perhaps value columns (plain, .gz, .zip), .npz CSR, .mtx"""
N_SHOWN_RESCALINGS = 4


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "compare",
        help="the same question on your own interactions",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_interactions(parser)
    options.add_labels(parser)
    options.add_model(parser)
    options.add_output(parser, "comparison")
    parser.add_argument(
        "--show", type=int, default=3, metavar="N", help="print neighbours of N items (default 3)"
    )
    options.add_common(parser)
    parser.set_defaults(run=run)
