"""Two trainings of implicit's ALS and BPR, before and after fastcos.align.

For each data set that is given by path, each model is trained twice with different seeds on the
same 80 % of the interactions. The table shows what happens to vectors of the first training among
those of the second one.

    python examples/stabilized_retraining.py ratings.csv.zip online_retail_pairs.csv.gz

Needs implicit. Takes about a minute per data set.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import fastcos

# Items and users with fewer interactions are left out.
MINIMUM = 5
RANK = 32
HELD_OUT = 0.2


def split(X: Any, seed: int = 0) -> tuple[Any, Any]:
    """Return training and held-out interactions of users and items with enough of them."""
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
    """Return users and items of implicit's model, with the columns of its biases."""
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking

    if name == "ALS":
        model = AlternatingLeastSquares(RANK, regularization=0.05, random_state=seed)
    else:
        model = BayesianPersonalizedRanking(RANK, random_state=seed)
    model.fit(X, show_progress=False)
    return np.asarray(model.user_factors), np.asarray(model.item_factors)


def recall(users: Any, items: Any, X: Any, held: Any, k: int = 20) -> float:
    """Share of a user's held-out items among the k best that the user has not seen."""
    lists = fastcos.top_k(users, items, k, measure="dot", exclude=X).indices
    shares = [
        np.isin(found, wanted).sum() / min(k, len(wanted))
        for found, wanted in zip(lists, np.split(held.indices, held.indptr[1:-1]), strict=True)
        if len(wanted)
    ]
    return float(np.mean(shares))


def median_cosine(first: Any, second: Any) -> float:
    """Median cosine of the rows with the same number."""
    sizes = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    with np.errstate(invalid="ignore"):
        return float(np.nanmedian(np.einsum("ij,ij->i", first, second) / sizes))


def main() -> None:
    """Train, align, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path, help="tables of interactions")
    print(
        "| data, model | item with itself | finds itself | recall@20 of old users | of new users |"
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
