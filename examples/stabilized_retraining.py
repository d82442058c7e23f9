"""Measure how well fastcos.align matches two training runs of implicit's ALS and BPR.

    python examples/stabilized_retraining.py ratings.csv.zip online_retail_pairs.csv.gz

For each table of interactions, the script trains each model twice, with different seeds, on the
same 80 % of the interactions. The printed table shows, before and after the alignment, how well
vectors of one training run can be used together with vectors of the other run.

The script requires implicit, and takes about a minute per table.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import fastcos

# Items and users with fewer interactions than this are left out.
MINIMUM = 5
RANK = 32
HELD_OUT = 0.2


def split(X: Any, seed: int = 0) -> tuple[Any, Any]:
    """Return the training and the held-out interactions.

    Users and items with fewer than MINIMUM interactions are left out.
    """
    X = sp.csr_matrix((X != 0).astype(np.float32))
    for _ in range(3):
        X = X[:, np.asarray((X != 0).sum(axis=0)).ravel() >= MINIMUM]
        X = X[np.asarray((X != 0).sum(axis=1)).ravel() >= MINIMUM]
    pairs = X.tocoo()
    held = np.random.default_rng(seed).random(pairs.nnz) < HELD_OUT

    def part(mask: Any) -> Any:
        entries = (pairs.data[mask], (pairs.row[mask], pairs.col[mask]))
        return sp.csr_matrix(entries, shape=X.shape)

    return part(~held), part(held)


def train(name: str, X: Any, seed: int) -> tuple[Any, Any]:
    """Train a model of implicit; return users and items, including the columns of biases."""
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking

    if name == "ALS":
        model = AlternatingLeastSquares(RANK, regularization=0.05, random_state=seed)
    else:
        model = BayesianPersonalizedRanking(RANK, random_state=seed)
    model.fit(X, show_progress=False)
    return np.asarray(model.user_factors), np.asarray(model.item_factors)


def recall(users: Any, items: Any, X: Any, held: Any, k: int = 20) -> float:
    """Return the share of held-out items among the k best unseen items, averaged over users."""
    lists = fastcos.top_k(users, items, k, measure="dot", exclude=X).indices
    shares = [
        np.isin(found, wanted).sum() / min(k, len(wanted))
        for found, wanted in zip(lists, np.split(held.indices, held.indptr[1:-1]), strict=True)
        if len(wanted)
    ]
    return float(np.mean(shares))


def median_cosine(first: Any, second: Any) -> float:
    """Return the median cosine between row i of the first and row i of the second matrix."""
    sizes = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    with np.errstate(invalid="ignore"):
        return float(np.nanmedian(np.einsum("ij,ij->i", first, second) / sizes))


def main() -> None:
    """Train and align the models, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path, help="tables of interactions")
    print(
        "| data, model | median cosine between the old and the new vector of an item | share of "
        "old vectors whose nearest new vector belongs to the same item | recall@20 with old user "
        "vectors | recall@20 with new user vectors |"
    )
    print("|---|---|---|---|---|")
    for path in parser.parse_args().data:
        X, held = split(fastcos.read_interactions(path, value="").X)
        for name in ("ALS", "BPR"):
            old_users, old_items = train(name, X, 0)
            users, items = train(name, X, 1)
            aligned = fastcos.align(items, old_items, users=users, old_users=old_users)
            values = (
                (median_cosine(old_items, items), float(np.median(aligned.self_cosines))),
                (aligned.self_match_rate_before, aligned.self_match_rate),
                (
                    recall(old_users, items, X, held),
                    recall(aligned.old_users, aligned.items, X, held),
                ),
            )
            cells = " | ".join(f"{before:.3f} -> {after:.3f}" for before, after in values)
            fresh = recall(users, items, X, held)
            print(f"| {path.parent.name}, {name} | {cells} | {fresh:.3f} |", flush=True)


if __name__ == "__main__":
    main()
