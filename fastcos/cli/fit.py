"""The command ``fastcos fit``, which fits a linear model to interactions and saves the model."""

import argparse
from pathlib import Path
from typing import Any

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.model_folder import write_model_folder
from fastcos.cli.terminal import print_json, print_next, progress_bar, say
from fastcos.storage import provenance

DESCRIPTION = """\
Factorise the matrix X of interactions, X ≈ X A B', in closed form, and save the model.
  DIR/model contains arrays with checksums; later commands map them to memory.
  DIR/items.npz contains the ids of the items, in the order of the model.
  DIR/users.npz contains the number of users, and statistics of columns of X.
  DIR/model.json contains parameters, versions, and one residual per singular
      value. The residual is an upper bound on the relative error of the value.
The commands neighbors, recommend, audit, calibrate, index and compare read DIR. With --shards, the
table of interactions can be larger than memory. The command reads the table once, and divides its
rows among several files. These files are called shards, and have checksums. The command then reads
one shard at a time. To write the shards, the command needs 16 bytes of temporary disk space per row
of the table."""
EPILOG = """\
examples:
  fastcos fit ratings.csv --rank 128 --out films
  fastcos neighbors films --k 20 --out neighbors.csv
  fastcos audit films
  fastcos fit ratings.csv.gz --shards ratings --rank 128 --out films
  fastcos fit ratings --rank 64 --out smaller
input: csv or tsv with columns for users, items and optionally values (plain, .gz, .zip),
.npz CSR, .mtx, .parquet or .arrow (pip install pyarrow), or a folder of shards"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_interactions(parser)
    help_ = "folder to write shards to, if the table of interactions is larger than memory"
    parser.add_argument("--shards", metavar="DIR", help=help_)
    help_ = "how to combine the values of several rows with the same user and item (default sum)"
    parser.add_argument("--duplicates", choices=("sum", "last", "max"), default="sum", help=help_)
    default = (
        "s² for dropout and s for weight_decay, where s is the (K/5)-th largest singular value of "
        "the interactions, and K is the rank. If s is the largest singular value, the default for "
        "weight_decay is s/2"
    )
    group = options.add_model(parser, default, "dropout", "weight_decay")
    help_ = (
        "largest allowed residual of a singular value (default 1e-3); the residual is an upper "
        "bound on the relative error of the singular value"
    )
    group.add_argument("--tol", type=float, default=1e-3, metavar="T", help=help_)
    options.add_output(parser, "model")
    options.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Read the interactions, fit the model and write the model folder."""
    from fastcos.models.linear_mf import LinearMF

    folder = options.out_directory(args)
    tol = validation.as_real("--tol", args.tol, above=0)
    validation.as_count("--seed", args.seed, low=0)
    if args.regularization is not None:
        validation.as_real("--regularization", args.regularization, low=0)
    X, item_ids = _interactions(args)
    n, p = X.shape
    model = LinearMF(
        args.rank, objective=args.objective, regularization=args.regularization, tol=tol,
        random_state=args.seed,
    )  # fmt: skip
    with progress_bar("factorising") as progress:
        model.fit(X, progress=progress)
    write_model_folder(folder, model, X, item_ids)
    counts = {"n_users": n, "n_items": p, "n_interactions": X.nnz}
    fitted_parameters = {
        "n_components": len(model.components_),
        "regularization": model.regularization_,
    }
    parameters = options.arguments(args) | model.get_params() | counts | fitted_parameters
    fitted = {
        "singular_values": model.singular_values_,
        "relative_residuals": model.residuals_,
        "effective_rank": model.effective_rank_,
    }
    document = provenance.provenance(parameters) | {"model": provenance.json_ready(fitted)}
    io.write_json(folder / "model.json", document)
    say(
        f"wrote a model of rank {len(model.components_)} to {folder}; its effective rank is "
        f"{model.effective_rank_}, and its largest relative residual is "
        f"{max(model.residuals_):.1e}"
    )
    if args.json:
        print_json(document)
    else:
        audit = ["fastcos", "audit", str(folder)]
        reason = (
            "measures how much the cosines depend on arbitrary scales, and recommends a similarity"
        )
        print_next([(audit, reason)])
    return 0


def _interactions(args: argparse.Namespace) -> tuple[Any, Any]:
    """Return X and the ids of its items; X is read from a file or from a folder of shards."""
    folder = args.shards
    if Path(args.interactions).is_dir():
        folder = args.interactions
        options.refuse(args, "for a folder of shards", *options.INTERACTION_COLUMNS, "shards")
    elif folder is not None:
        columns = options.column_arguments(args)
        with progress_bar("reading the table, then writing shards") as progress:
            io.ingest_interactions(
                args.interactions, folder, **columns, duplicates=args.duplicates,
                progress=progress,
            )  # fmt: skip
    else:
        data = options.read_interactions(args, args.duplicates)
        return data.X, data.item_ids
    from fastcos.linalg.shards import InteractionShards

    shards = InteractionShards(folder)
    n, p = shards.shape
    say(f"read {shards.nnz:,} interactions of {n:,} users with {p:,} items")
    return shards, shards.item_ids
