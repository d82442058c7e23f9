"""fastcos fit: a linear model of interactions, saved on disk."""

import argparse
from pathlib import Path
from typing import Any

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.model_folder import write_model_folder
from fastcos.cli.terminal import print_json, print_next, progress_bar, say
from fastcos.storage import provenance

DESCRIPTION = """\
Factorise interactions, X ≈ X A B', in closed form and save the model. Writes DIR/model (arrays with
checksums, read back as memory maps), DIR/items.npz (the ids of the items, in the model's order),
DIR/users.npz (the number of users and the mean of each column of X) and DIR/model.json (parameters,
residuals of the singular triplets, versions). The commands neighbors, audit, export and compare
read DIR. With --shards, the table may be larger than memory: it is read once and written as row
shards with checksums, which are then read one at a time; 16 bytes of disk a row meanwhile."""
EPILOG = """\
examples:
  fastcos fit ratings.csv --rank 128 --out films
  fastcos neighbors films --k 20 --out neighbors.csv
  fastcos audit films
  fastcos fit ratings.csv.gz --shards ratings --rank 128 --out films
  fastcos fit ratings --rank 64 --out smaller
input: csv or tsv with user, item and perhaps value columns (plain, .gz, .zip), .npz CSR,
.mtx, .parquet or .arrow (pip install pyarrow), or a folder of shards"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_interactions(parser)
    parser.add_argument(
        "--shards", metavar="DIR", help="folder for row shards of a table larger than memory"
    )
    help_ = "value of several rows of one user and item (default sum)"
    parser.add_argument("--duplicates", choices=("sum", "last", "max"), default="sum", help=help_)
    default = "the singular value number K/5 for Eq. 2, its square for Eq. 1"
    group = options.add_model(parser, default, "dropout", "weight_decay")
    help_ = "largest relative residual of a singular triplet (default 1e-3)"
    group.add_argument("--tol", type=float, default=1e-3, metavar="T", help=help_)
    options.add_output(parser, "model")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, fit, write."""
    from fastcos.models.linear_mf import LinearMF

    folder = options.out_directory(given)
    tol = validation.as_real("--tol", given.tol, above=0)
    validation.as_count("--seed", given.seed, low=0)
    if given.regularization is not None:
        validation.as_real("--regularization", given.regularization, low=0)
    X, item_ids = _interactions(given)
    n, p = X.shape
    model = LinearMF(
        given.rank, objective=given.objective, regularization=given.regularization, tol=tol,
        random_state=given.seed,
    )  # fmt: skip
    with progress_bar("factorising") as progress:
        model.fit(X, progress=progress)
    write_model_folder(folder, model, X, item_ids)
    counts = {"n_users": n, "n_items": p, "n_interactions": X.nnz}
    used = {"n_components": len(model.components_), "regularization": model.regularization_}
    parameters = options.arguments(given) | model.get_params() | counts | used
    fitted = {
        "singular_values": model.singular_values_,
        "relative_residuals": model.residuals_,
        "effective_rank": model.effective_rank_,
    }
    document = provenance.provenance(parameters) | {"model": provenance.json_ready(fitted)}
    io.write_json(folder / "model.json", document)
    say(
        f"rank {used['n_components']}, largest relative residual {max(model.residuals_):.1e}, "
        f"{model.effective_rank_} directions kept; wrote {folder}"
    )
    if given.json:
        print_json(document)
    else:
        audit = ["fastcos", "audit", str(folder)]
        print_next([(audit, "how arbitrary its cosines are, and what to compare")])
    return 0


def _interactions(given: argparse.Namespace) -> tuple[Any, Any]:
    """Return X and the ids of its items, from a file, through shards or from a folder of shards."""
    folder = given.shards
    if Path(given.interactions).is_dir():
        folder = given.interactions
        options.refuse(given, "for a folder of shards", *options.INTERACTION_COLUMNS, "shards")
    elif folder is not None:
        columns = options.columns_of(given)
        with progress_bar("reading bytes, then writing rows") as progress:
            io.ingest_interactions(
                given.interactions, folder, **columns, duplicates=given.duplicates,
                progress=progress,
            )  # fmt: skip
    else:
        data = options.read_interactions(given, given.duplicates)
        return data.X, data.item_ids
    from fastcos.linalg.shards import InteractionShards

    shards = InteractionShards(folder)
    n, p = shards.shape
    say(f"read {shards.nnz:,} interactions of {n:,} users with {p:,} items")
    return shards, shards.item_ids
