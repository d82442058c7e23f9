"""Measure how much two training runs of a deep model with different seeds agree.

    python examples/deep_models.py --output deep_models.csv --page docs/explanation/deep_models.md

The script fits models to the simulation of the paper by gradient descent. There are two kinds of
models: two towers of two layers each, and plain user and item vectors, which are trained by the
loss of skip-gram with negative sampling (SGNS). Each variant is trained twice on each data set,
from two random initialisations. If the loss determines both the predictions and the rescaling D,
the two runs agree. The two runs may also agree for another reason: both initialisations have the
same distribution.

The script requires torch (``pip install torch``), and takes some minutes for ten data sets. For
each pair of runs, it measures:

- recall: the recall of held-out items, which shows whether the two runs are equally good;
- jaccard: the Jaccard index of the ten nearest items;
- rsa, rsa_mapped: the correlation between the cosines of all pairs in the two runs, before (rsa)
  and after (rsa_mapped) the best linear map from one run to the other. The increase from rsa to
  rsa_mapped is the part of the difference between the runs that is due to the parametrisation;
- condition: the κ of Theorem 3 between the items of the two runs. The script first aligns the items
  by an orthogonal Procrustes rotation. Then κ is the square root of exp(h), where h is Hilbert's
  distance between the two Gram matrices;
- to_balance: the κ between the users and the items of one run. It is computed in the same way as
  "condition", except that the rotation is left out. It is 1 if weight decay has balanced the users
  and the items.
"""

import argparse
import csv
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.stats
import torch
from torch import nn

import fastcos

N_USERS, N_ITEMS, N_DIMENSIONS, N_HIDDEN = 1000, 200, 10, 64
K = 10
# For each variant of the towers: similarity, temperature, optimiser, weight decay, and the dropout
# rates of the inputs and of the coordinates.
TOWERS = {
    "dot": ("dot", 1.0, "adam", 0.0, 0.0, 0.0),
    "dot, L2 in the loss": ("dot", 1.0, "adam", 1e-4, 0.0, 0.0),
    "dot, decoupled decay": ("dot", 1.0, "adamw", 0.1, 0.0, 0.0),
    "dot, dropout of inputs": ("dot", 1.0, "adam", 0.0, 0.5, 0.0),
    "dot, dropout of coordinates": ("dot", 1.0, "adam", 0.0, 0.0, 0.3),
    "cosine, temperature 0.07": ("cosine", 0.07, "adam", 0.0, 0.0, 0.0),
    "cosine, temperature 0.25": ("cosine", 0.25, "adam", 0.0, 0.0, 0.0),
}
# For each variant of SGNS: optimiser and weight decay.
FACTORS = {
    "SGNS": ("adam", 0.0),
    "SGNS, L2 in the loss": ("adam", 1e-3),
    "SGNS, decoupled decay": ("adamw", 0.1),
}
RATE, N_STEPS = 0.01, 500
N_NEGATIVES, NEGATIVE_EXPONENT = 5, 0.75
START, END = "<!-- table: made by examples/deep_models.py -->", "<!-- end of table -->"


def held_out_split(X, random):
    """Hold out one item of each user with at least two items.

    Return the remaining interactions, and the held-out item of each user. The number -1 means that
    no item of this user is held out.
    """
    rest, held = X.toarray() > 0, np.full(X.shape[0], -1)
    for user in np.flatnonzero(rest.sum(axis=1) > 1):
        held[user] = random.choice(np.flatnonzero(rest[user]))
        rest[user, held[user]] = False
    return rest, held


def recall(scores, rest, held, k=20):
    """Return the share of users whose held-out item is among their k best unseen items."""
    scores = np.where(rest, -np.inf, scores)
    users = np.flatnonzero(held >= 0)
    own = scores[users, held[users]]
    return float(((scores[users] > own[:, None]).sum(axis=1) < k).mean())


def optimiser(parameters, kind, decay):
    """Return Adam, with weight decay in the loss, or AdamW, with decoupled weight decay."""
    family = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
    return family(parameters, lr=RATE, weight_decay=decay)


def descend(step_loss, chosen):
    """Minimise the loss by full-batch steps, with a learning rate that falls linearly to 0."""
    schedule = torch.optim.lr_scheduler.LinearLR(chosen, 1.0, 0.0, N_STEPS)
    for _ in range(N_STEPS):
        chosen.zero_grad()
        step_loss().backward()
        chosen.step()
        schedule.step()


def trained_towers(rest, seed, similarity, temperature, kind, decay, of_inputs, of_coordinates):
    """Train two towers with a softmax over all items, and return users and items."""
    torch.manual_seed(seed)
    seen = torch.tensor(rest, dtype=torch.float32)
    inputs = seen / seen.sum(dim=1, keepdim=True).clamp(min=1).sqrt()
    ids = torch.eye(N_ITEMS)
    towers = nn.ModuleList(
        nn.Sequential(nn.Linear(N_ITEMS, N_HIDDEN), nn.ReLU(), nn.Linear(N_HIDDEN, N_DIMENSIONS))
        for _ in ("users", "items")
    )
    drop_inputs, drop_coordinates = nn.Dropout(of_inputs), nn.Dropout(of_coordinates)
    share = seen / seen.sum(dim=1, keepdim=True).clamp(min=1)

    def sides():
        return towers[0](drop_inputs(inputs)), towers[1](ids)

    def loss():
        users, items = sides()
        if similarity == "cosine":
            users, items = nn.functional.normalize(users), nn.functional.normalize(items)
        logits = drop_coordinates(users) @ items.T / temperature
        return -(share * logits.log_softmax(dim=1)).sum(dim=1).mean()

    descend(loss, optimiser(towers.parameters(), kind, decay))
    drop_inputs.eval()
    with torch.no_grad():
        users, items = (side.numpy().astype(np.float64) for side in sides())
    if similarity == "cosine":
        users, items = (rows / np.linalg.norm(rows, axis=1)[:, None] for rows in (users, items))
    return users, items


def trained_factors(rest, seed, kind, decay):
    """Train user and item vectors by the expected loss of SGNS without a bias, and return them."""
    torch.manual_seed(seed)
    seen = torch.tensor(rest, dtype=torch.float32)
    noise = seen.sum(dim=0) ** NEGATIVE_EXPONENT
    negatives = N_NEGATIVES * seen.sum(dim=1, keepdim=True) * noise / noise.sum()
    factors = nn.ParameterList(
        [nn.Parameter(0.3 * torch.randn(n, N_DIMENSIONS)) for n in (len(rest), N_ITEMS)]
    )

    def loss():
        scores = factors[0] @ factors[1].T
        softplus = nn.functional.softplus
        return (seen * softplus(-scores) + negatives * softplus(scores)).sum() / len(rest)

    descend(loss, optimiser(factors.parameters(), kind, decay))
    return tuple(factor.detach().numpy().astype(np.float64) for factor in factors)


def separation(one, other):
    """Return the condition between two sets of rows: the square root of exp(Hilbert's distance)."""
    values = scipy.linalg.eigh(one.T @ one, other.T @ other, eigvals_only=True)
    return float(np.sqrt(values[-1] / max(values[0], np.finfo(float).tiny)))


def pair_scores(runs, rest, held, clusters):
    """Return the scores of two runs on one data set; each run is a pair (users, items)."""
    lists = [fastcos.top_k(items, k=K).indices for _, items in runs]
    (users, one), (_, other) = runs
    rotation, _ = scipy.linalg.orthogonal_procrustes(one, other)
    mapped = one @ np.linalg.lstsq(one, other, rcond=None)[0]
    jaccard = fastcos.metrics.jaccard_at_k
    aucs = [fastcos.metrics.pair_auc(items, clusters).value for _, items in runs]
    recalls = [recall(users @ items.T, rest, held) for users, items in runs]
    return {
        "recall": np.mean(recalls),
        "recall_difference": abs(recalls[0] - recalls[1]),
        "auc": np.mean(aucs),
        "jaccard": jaccard(*lists),
        "rsa": fastcos.metrics.rsa(one, other).value,
        "rsa_mapped": fastcos.metrics.rsa(mapped, other).value,
        "condition": separation(one @ rotation, other),
        "to_balance": separation(users, one),
    }


COLUMNS = (
    "recall", "recall_difference", "auc", "jaccard", "rsa", "rsa_mapped", "condition",
    "to_balance"
)  # fmt: skip


def run(given):
    """Add the missing lines to the csv file: one line per variant and data set."""
    done = set()
    if given.output.exists():
        with given.output.open(newline="") as file:
            done = {(row["variant"], int(row["seed"])) for row in csv.DictReader(file)}
    with given.output.open("a", newline="") as file:
        out = csv.writer(file)
        if not done:
            out.writerow(["variant", "seed", *COLUMNS])
        for seed in range(given.seeds):
            X, clusters, *_ = fastcos.simulate_interactions(N_USERS, N_ITEMS, random_state=seed)
            rest, held = held_out_split(X, np.random.default_rng(seed))
            works = {
                **{f"towers, {name}": (trained_towers, how) for name, how in TOWERS.items()},
                **{name: (trained_factors, how) for name, how in FACTORS.items()},
            }
            for name, (train, how) in works.items():
                if (name, seed) in done:
                    continue
                runs = [train(rest, 2 * seed + number, *how) for number in (0, 1)]
                scores = pair_scores(runs, rest, held, clusters)
                out.writerow([name, seed, *(f"{scores[column]:.5f}" for column in COLUMNS)])
                file.flush()
                print(f"seed {seed} {name:30} " + " ".join(f"{scores[c]:.3f}" for c in COLUMNS))


def interval(values, digits=2):
    """Return the mean and its 95 % t interval as text."""
    mean = np.mean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    width = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
    return f"{mean:.{digits}f} ± {width:.{digits}f}"


def table(path):
    """Return the Markdown table of means over data sets, and the number of data sets.

    The means of conditions are geometric means; the intervals are 95 % t intervals.
    """
    found = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["variant"], []).append([float(row[name]) for name in COLUMNS])
    out = [
        "| model | recall@20 | recall difference | AUC | Jaccard@10 | RSA "
        "| RSA after a linear map | condition | condition to balance |",
        "|---|" + "---:|" * 8,
    ]
    for name, rows in found.items():
        columns = np.array(rows).T
        cells = [interval(column) for column in columns[:6]]
        for column in columns[6:]:
            logs = np.log(column)
            width = scipy.stats.t.ppf(0.975, len(logs) - 1) * scipy.stats.sem(logs)
            ends = np.exp([logs.mean() - width, logs.mean() + width])
            cells.append(f"{np.exp(logs.mean()):.2g} [{ends[0]:.2g}, {ends[1]:.2g}]")
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out), max(map(len, found.values()))


def main():
    """Train the variants that the csv file does not contain, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("deep_models.csv"))
    parser.add_argument("--page", type=Path, help="Markdown file whose table is replaced")
    given = parser.parse_args()
    torch.set_num_threads(1)  # with several threads, sums would depend on the number of cores
    run(given)
    text, n_seeds = table(given.output)
    packages = [f"{name} {version(name)}" for name in ("fastcos", "numpy", "torch")]
    made = (
        f"Each of the {n_seeds} data sets contains {N_USERS:,} users and {N_ITEMS} items. We ran "
        f"the study on {time.strftime('%Y-%m-%d', time.gmtime())} with Python "
        f"{platform.python_version()}, {', '.join(packages[:-1])} and {packages[-1]}."
    )
    if given.page is None:
        print(text, made, sep="\n\n")
        return
    page = given.page.read_text()
    before, after = page.partition(START)[0], page.partition(END)[2]
    given.page.write_text(f"{before}{START}\n\n{text}\n\n{made}\n\n{END}{after}")


if __name__ == "__main__":
    main()
