"""fastcos fit: a linear model of a person's interactions, kept on disk."""

import argparse
from pathlib import Path

from fastcos import io, report, validate
from fastcos.cli import options
from fastcos.cli.terminal import print_json, say, spinner

DESCRIPTION = """\
Factorise interactions, X ≈ X A B', in closed form and keep the model. Writes DIR/model (arrays with
checksums, read back as memory maps), DIR/items.npz (the ids of the items, in the model's order) and
DIR/model.json (parameters, residuals of the singular triplets, versions)."""
EPILOG = """\
example:
  fastcos fit ratings.csv --rank 128 --out films
  fastcos neighbors films --k 20 --out neighbors.csv
input: csv or tsv with user, item and perhaps value columns (plain, .gz, .zip), .npz CSR,
.mtx, or .parquet (pip install 'fastcos[io]')"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    options.add_interactions(parser)
    group = parser.add_argument_group("model")
    group.add_argument("--rank", type=int, default=50, metavar="K", help="rank k (default 50)")
    group.add_argument(
        "--objective",
        choices=("dropout", "weight_decay"),
        default="dropout",
        help="Eq. 1 is dropout, Eq. 2 is weight_decay (default dropout)",
    )
    group.add_argument(
        "--regularization",
        type=float,
        metavar="L",
        help="λ (default: the singular value number K/5 for Eq. 2, its square for Eq. 1)",
    )
    group.add_argument(
        "--tol",
        type=float,
        default=1e-3,
        metavar="T",
        help="largest relative residual of a singular triplet (default 1e-3)",
    )
    options.add_output(parser, "model")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, fit, write."""
    from fastcos.factorization import LinearMF

    options.apply_common(given)
    seed = validate.as_count("--seed", given.seed, low=0)
    if given.regularization is not None:
        validate.as_real("--regularization", given.regularization, low=0)
    with spinner("reading"):
        data = options.read_interactions(given)
    n, p = data.X.shape
    rank = validate.as_count("--rank", given.rank, high=min(n, p))
    tol = validate.as_real("--tol", given.tol, above=0)
    say(f"read {data.X.nnz:,} interactions of {n:,} users with {p:,} items")
    with spinner("factorising"):
        model = LinearMF(rank, tol=tol, random_state=seed).fit(data.X)
    strength = given.regularization
    if strength is None:
        strength = model.default_regularization(given.objective)
    model = model.reregularized(given.objective, strength)
    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "model")
    io.write_npz(folder / "items.npz", {"ids": data.item_ids})
    document = report.provenance(
        {
            "interactions": given.interactions,
            "n_users": n,
            "n_items": p,
            "n_interactions": data.X.nnz,
            **model.get_params(),
        }
    )
    document["model"] = report.json_ready(
        {
            "singular_values": model.singular_values_,
            "relative_residuals": model.residuals_,
            "effective_rank": model.effective_rank_,
        }
    )
    io.write_json(folder / "model.json", document)
    if given.json:
        print_json(document)
    say(
        f"rank {rank}, largest relative residual {max(model.residuals_):.1e}, "
        f"{model.effective_rank_} directions kept; wrote {folder}"
    )
    return 0
