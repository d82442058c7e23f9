"""CosineMF and implicit's BPR: recall@20 of held-out interactions, and training time.

    python bench/cosine_training.py DATA

A fifth of every user's interactions is held out; both models train on the rest with the same number
of dimensions. BPR runs with its default step size and with three times that. Needs implicit.
"""

import argparse
import time
from pathlib import Path

import implicit.bpr
import numpy as np
import scipy.sparse as sp

from fastcos import read_interactions, top_k
from fastcos.models.cosine_mf import CosineMF
from fastcos.models.cosine_training import split_held_out

FILES = {
    "MovieLens small": ("ml-latest-small/ratings.csv.zip", None),
    "anime": ("anime/anime.zip", "anime_history.dat"),
}


def recall(users, items, known, held, k=20):
    """Return recall@k, with at most k relevant items per user, averaged over users."""
    found = top_k(users, items, k, measure="dot", exclude=known).indices
    held_rows = [set(held.indices[a:b]) for a, b in zip(held.indptr, held.indptr[1:], strict=False)]
    hits = [
        len(row & set(best)) / min(len(row), k)
        for row, best in zip(held_rows, found.tolist(), strict=True)
        if row
    ]
    return float(np.mean(hits))


def timed(fit):
    """Return the result of fit and its seconds."""
    start = time.perf_counter()
    return fit(), time.perf_counter() - start


def report(name, X, n_components, seeds):
    """Print one line per model and seed."""
    X = sp.csr_array((np.ones_like(X.data), X.indices, X.indptr), shape=X.shape)
    CosineMF(n_components, max_iter=1).fit(X[:50])
    for seed in range(seeds):
        known, held = split_held_out(X, 0.2, np.random.default_rng(seed))
        matrix = sp.csr_matrix(known.astype(np.float32))
        for rate in (0.01, 0.03):
            model = implicit.bpr.BayesianPersonalizedRanking(
                n_components, learning_rate=rate, random_state=seed
            )
            _, seconds = timed(lambda: model.fit(matrix, show_progress=False))  # noqa: B023
            score = recall(model.user_factors, model.item_factors, known, held)
            print(
                f"{name:16} seed {seed} BPR rate {rate}: {score:.4f} {seconds:6.2f} s", flush=True
            )
        for exponent in (0.75, 0.0):
            model = CosineMF(n_components, negative_exponent=exponent, random_state=seed)
            _, seconds = timed(lambda: model.fit(known))  # noqa: B023
            score = recall(*model.scoring_embeddings(known), known, held)
            print(
                f"{name:16} seed {seed} CosineMF exponent {exponent}: {score:.4f} {seconds:6.2f} s"
                f" ({model.n_iter_} passes)",
                flush=True,
            )


def main():
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    for name, (file, member) in FILES.items():
        X = read_interactions(given.data / file, member=member).X
        report(name, X, given.components, given.seeds)


if __name__ == "__main__":
    main()
