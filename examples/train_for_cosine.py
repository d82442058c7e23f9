"""How well the cosine of items finds the true clusters of the paper's simulation, by training.

Every row is one training: CosineMF on the cosine, on the layer-norm cosine, and, as the control,
the same model on the dot product at three temperatures; beside them the closed forms of the paper.
The number is the AUC over pairs of items: how often a pair of one cluster has a larger cosine than
a pair of two. python examples/train_for_cosine.py --users 2000 --items 500 --seeds 5
"""

import argparse
import time

import numpy as np

from fastcos import LinearMF, metrics, simulate_interactions
from fastcos.models.cosine_mf import CosineMF

TRAININGS = {
    "CosineMF": {},
    "CosineMF, layer norm": {"similarity": "layer_norm"},
    "CosineMF, negative sampling": {"loss": "negative_sampling"},
    "dot product, same temperature": {"similarity": "dot"},
    "dot product, temperature 1": {"similarity": "dot", "temperature": 1.0},
    "dot product, temperature 2": {"similarity": "dot", "temperature": 2.0},
}


def scores_of(n_users, n_items, seed):
    """AUC and seconds by training."""
    X, cluster, *_ = simulate_interactions(n_users, n_items, random_state=seed)
    found = {}
    for name, parameters in TRAININGS.items():
        start = time.perf_counter()
        items = CosineMF(50, **parameters, random_state=seed).fit(X).item_embeddings()
        seconds = time.perf_counter() - start
        found[name] = metrics.pair_auc(items, cluster).value, seconds
    # the penalty of the paper, for the number of users at hand
    start = time.perf_counter()
    linear = LinearMF(50, regularization=1e4 * n_users / 20_000).fit(X)
    seconds = time.perf_counter() - start
    for rescaling in ("orthonormal", "identity", "balanced"):
        items = linear.item_embeddings(rescaling)
        found[f"Eq. 1, {rescaling}"] = metrics.pair_auc(items, cluster).value, seconds
    eq2 = linear.reregularized("weight_decay", 100 * (n_users / 20_000) ** 0.5)
    found["Eq. 2"] = metrics.pair_auc(eq2.item_embeddings(), cluster).value, seconds
    return found


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    runs = [scores_of(given.users, given.items, seed) for seed in range(given.seeds)]
    print(
        f"{'training':32} {'AUC mean':>9} {'lowest':>7} {'highest':>7} {'beaten by CosineMF':>19} s"
    )
    for name in runs[0]:
        auc = np.array([run[name][0] for run in runs])
        beaten = sum(run["CosineMF"][0] > run[name][0] for run in runs)
        seconds = np.median([run[name][1] for run in runs])
        print(
            f"{name:32} {auc.mean():9.4f} {auc.min():7.4f} {auc.max():7.4f} "
            f"{beaten:12} of {len(runs)} {seconds:6.1f}"
        )


if __name__ == "__main__":
    main()
