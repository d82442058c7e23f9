"""fastcos ingest: a table of interactions as shards on disk, for data larger than memory."""

import argparse

from fastcos.cli import options
from fastcos.cli.terminal import print_json, progress_bar, say

DESCRIPTION = """\
Read a table of interactions once and write them to DIR as row shards with checksums, which fastcos
fit reads one at a time. Needs memory for the distinct ids and one shard, and 16 bytes of disk a row
while it works."""
EPILOG = """\
example:
  fastcos ingest ratings.csv.gz --out ratings
  fastcos fit ratings --rank 128 --out films
input: csv or tsv with user, item and perhaps value columns (plain, .gz, .zip), or .parquet
(pip install pyarrow)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_interactions(parser)
    parser.add_argument(
        "--duplicates",
        choices=("sum", "last", "max"),
        default="sum",
        help="value of several rows of one user and item (default sum)",
    )
    options.add_output(parser, "shards")


def run(given: argparse.Namespace) -> int:
    """Read and write in one pass."""
    from fastcos.io import ingest_interactions

    folder = options.out_directory(given)
    with progress_bar("reading bytes, then writing rows") as progress:
        shards = ingest_interactions(
            given.interactions,
            folder,
            user=given.user,
            item=given.item,
            value=given.value,
            duplicates=given.duplicates,
            member=given.member,
            progress=progress,
        )
    n, p = shards.shape
    if given.json:
        print_json({"users": n, "items": p, "interactions": shards.nnz, "shards": len(shards)})
    say(f"wrote {shards.nnz:,} interactions of {n:,} users with {p:,} items to {given.out}")
    return 0
