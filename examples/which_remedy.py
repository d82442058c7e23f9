"""Measure which remedies help cosines to recover the clusters of the paper's simulation.

    python examples/which_remedy.py --output docs/remedies.csv --page docs/remedies.md

The remedies are all measures on the item embeddings of one model, all rescalings of this model, all
methods of preprocessing, and several ways to train on the cosine. The score of a remedy is the AUC
over ordered pairs of items: the probability that two items of the same cluster have a higher score
than two items of different clusters. Each seed draws new data. On these data, the AUC of a remedy
is compared with the AUC of the plain cosine, which is the cosine of a model of Eq. 1 with D = I.
The table shows the mean difference with its 95 % t interval over seeds.

The script writes one line per remedy and seed to the csv file, and replaces the table of the page.
Lines that the csv file already contains are not computed again. At the size of the paper (20,000
users, 1,000 items), a seed takes some minutes, mostly for CosineMF.
"""

import argparse
import csv
import math
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.stats

from fastcos import (
    CosineMF,
    LinearMF,
    get_measure,
    gram_matmul,
    list_measures,
    similarity_blocks,
    simulate_interactions,
)
from fastcos.models.preprocessing import (
    NormalizeRows,
    PopularityWeights,
    ShiftedPPMI,
    StandardizeColumns,
    biases,
)
from fastcos.similarity import summaries
from fastcos.similarity.canonical import canonicalize

# The rank of the models. The paper uses the same rank.
K = 50
# The kind and the name of one remedy. All other remedies are compared with this remedy.
PLAIN = ("measure", "cosine")
# The script leaves out three kinds of measures: those that compare users with each other, those
# that compare users with items, and those that need features of items. The items of the simulation
# have no features.
LEFT_OUT = {"user_item_cosine", "user_item_dot", "project_back_users", "soft_cosine"}
# The measure learned_diagonal learns from this number of labelled pairs. One in 500 pairs of items
# is therefore labelled.
N_LABELLED_PAIRS = 1000
# There are five true clusters, so this number is close to the true rank. The AUC of a model with
# this rank therefore shows the most that a better choice of the rank can achieve.
TRUE_K = 6
WORD2VEC = {"similarity": "dot", "loss": "negative_sampling", "temperature": 1.0}
TEMPERATURES = {
    **{f"cosine, temperature {t:g}": {"temperature": t} for t in (0.05, 0.07, 0.1, 0.25, 1.0)},
    **{
        f"dot product, temperature {t:g}": {"similarity": "dot", "temperature": t}
        for t in (0.25, 1.0, 2.0)
    },
    "word2vec's loss with an item bias, power 3/4": WORD2VEC,
    **{
        f"word2vec's loss, power {beta:g}": WORD2VEC
        | {"item_bias": False, "negative_exponent": beta}
        for beta in (0.0, 0.5, 0.75, 1.0)
    },
}
TRAININGS = {
    **TEMPERATURES,
    "cosine, layer norm": {"similarity": "layer_norm"},
    "cosine, negative sampling": {"loss": "negative_sampling"},
    "cosine, uniform negatives": {"negative_exponent": 0.0},
    "cosine, norm penalty": {"norm_penalty": 0.1},
    "cosine, inverse propensities": {"propensity_exponent": 0.5},
}
# In the page, these two lines enclose the table.
START, END = "<!-- table: made by examples/which_remedy.py -->", "<!-- end of table -->"


def auc(scores, cluster):
    """Return the AUC over ordered pairs; equal scores count one half."""
    pairs = ~np.eye(len(cluster), dtype=bool)
    same = (cluster[:, None] == cluster)[pairs]
    ranks = scipy.stats.rankdata(scores[pairs])
    n = int(same.sum())
    return float((ranks[same].sum() - n * (n + 1) / 2) / (n * (len(same) - n)))


def auc_of(items, cluster, measure="cosine"):
    """Score all pairs of items by a measure, and return the AUC of these scores."""
    scores = np.vstack([block for _, block in similarity_blocks(items, measure=measure)])
    if get_measure(measure).name == "spearman_dims":
        # Many rank correlations are equal, but the rounding errors of float32 products make them
        # differ slightly, and these errors depend on the CPU. Rounding makes such values equal
        # again.
        scores = np.round(scores, 6)
    return auc(scores, cluster)


def parameters_of(name, model, items, X, cluster, seed):
    """Return the parameters that a measure requires."""
    if name.startswith("rescaled_cosine"):
        return {"model": model}
    if name == "eq2_cosine":
        knee = model.default_regularization("weight_decay")
        return {"model": model, "regularization": knee}
    if name in ("query_metric_cosine", "project_back_items"):
        return {"other": model.user_embeddings(X)}
    if name == "popularity_whitened_cosine":
        return {"popularity": np.bincount(X.indices, minlength=len(items)).astype(float)}
    if name == "learned_diagonal":
        pairs = np.random.default_rng(seed).integers(0, len(items), (N_LABELLED_PAIRS, 2))
        return {"pairs": pairs, "targets": cluster[pairs[:, 0]] == cluster[pairs[:, 1]]}
    return {}


def linear_items(X, **centres):
    """Return the item embeddings of Eq. 1 with D = I and the λ of ``default_regularization``."""
    p = X.shape[1]
    gram = gram_matmul(X, np.eye(p), **centres)
    squares, V = scipy.linalg.eigh(gram, subset_by_index=(p - K, p - 1))
    squares, V = np.maximum(squares[::-1], 0), V[:, ::-1]
    knee = squares[math.ceil(K / 5) - 1]
    if knee == 0:
        raise SystemExit("--users must be larger, because there are too few interactions")
    return V * np.sqrt(squares / (squares + knee))


def preprocessed(X):
    """For each preprocessing, return a function that computes the item embeddings of Eq. 1."""
    standard = StandardizeColumns().fit(X)
    none, half = {"row_center": None, "center": None}, PopularityWeights
    return {
        "standardize columns": lambda: linear_items(standard.transform(X), center=standard.center_),
        "center columns": lambda: linear_items(X, **biases(X, rows=False)._asdict()),
        "center rows": lambda: linear_items(X, **biases(X, columns=False)._asdict()),
        "double center": lambda: linear_items(X, **biases(X)._asdict()),
        "normalize rows": lambda: linear_items(NormalizeRows().fit_transform(X), **none),
        "IPS columns, power 1/2": lambda: linear_items(half(0.5).fit_transform(X)),
        "IPS columns, power 3/4": lambda: linear_items(half(0.75).fit_transform(X)),
        "IPS rows, power 1/2": lambda: linear_items(half(0.0, 0.5).fit_transform(X)),
        "correspondence scaling": lambda: linear_items(half(0.5, 0.5).fit_transform(X)),
        "towards popular items, power -3/4": lambda: linear_items(half(-0.75).fit_transform(X)),
        "shifted PPMI": lambda: linear_items(ShiftedPPMI().fit(X).ppmi_),
    }


def canonical_items(model, X):
    """Return the item embeddings of the balanced form of the model."""
    return canonicalize(model.user_embeddings(X), model.item_embeddings()).items


def remedies(X, cluster, seed):
    """Return a dict from the (kind, name) of each remedy to a function that computes its AUC.

    For a remedy of kind "training", the function also returns the held-out loss.
    """
    model = LinearMF(K, random_state=seed).fit(X)
    items = model.item_embeddings()
    made = {}
    for name in list_measures():
        if name in LEFT_OUT:
            continue

        def by_measure(name=name):
            rows = np.hstack([items, items]) if name == "weight_cosine" else items
            given = parameters_of(name, model, items, X, cluster, seed)
            return auc_of(rows, cluster, get_measure(name, **given))

        made["measure", name] = by_measure
    for name, embed in preprocessed(X).items():
        made["preprocessing", name] = lambda embed=embed: auc_of(embed(), cluster)
    columns = np.ascontiguousarray(X.T.toarray(), dtype=np.float32)
    for name, measure in (("cosine", "cosine"), ("correlation", "layer_norm_cosine")):
        made["no model", f"{name} of columns"] = lambda measure=measure: auc_of(
            columns, cluster, measure
        )
    made["after training", "canonicalize"] = lambda: auc_of(canonical_items(model, X), cluster)
    true_rank = LinearMF(TRUE_K, random_state=seed).fit(X)
    true_rank = true_rank.reregularized("dropout", model.default_regularization("dropout"))
    for name in ("identity", "orthonormal"):
        made["rank", f"{TRUE_K} dimensions, {name}"] = lambda name=name: auc_of(
            true_rank.item_embeddings(name), cluster
        )
    eq2 = model.default_regularization("weight_decay")
    made["training", "Eq. 2 (weight decay)"] = lambda: auc_of(
        model.reregularized("weight_decay", eq2).item_embeddings(), cluster
    )
    for name, given in TRAININGS.items():

        def by_training(given=given):
            trained = CosineMF(K, **given, random_state=seed).fit(X)
            return auc_of(trained.item_embeddings(), cluster), trained.validation_curve_.min()

        made["training", name] = by_training
    return made


def read(path):
    """Return the AUC and the held-out loss (or NaN) by (kind, name) and seed."""
    found = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                at = found.setdefault((row["kind"], row["remedy"]), {})
                at[int(row["seed"])] = float(row["auc"]), float(row["held_out_loss"] or "nan")
    return found


def run(given):
    """Score the remedies that the csv file does not contain, and append their lines."""
    found = read(given.output)
    new = not given.output.exists()
    with given.output.open("a", newline="") as file:
        out = csv.writer(file)
        if new:
            out.writerow(["kind", "remedy", "seed", "auc", "seconds", "held_out_loss"])
        for seed in range(given.seeds):
            X, cluster, *_ = simulate_interactions(given.users, given.items, random_state=seed)
            for key, score in remedies(X, cluster, seed).items():
                if seed in found.get(key, {}) or key[0] not in (given.kinds or key):
                    continue
                start = time.perf_counter()
                result = score()
                value, loss = result if isinstance(result, tuple) else (result, None)
                seconds = time.perf_counter() - start
                loss = "" if loss is None else f"{loss:.6f}"
                out.writerow([*key, seed, f"{value:.6f}", f"{seconds:.3f}", loss])
                file.flush()
                print(f"seed {seed} {key[0]:15} {key[1]:40} {value:.4f} {seconds:7.2f} s")


def interval(differences):
    """Return the mean and the half width of its 95 % t interval."""
    n = len(differences)
    width = scipy.stats.t.ppf(0.975, n - 1) * np.std(differences, ddof=1) / math.sqrt(n)
    return float(np.mean(differences)), float(width)


def table(found):
    """Return the Markdown table of all remedies, by descending mean difference."""
    plain = found[PLAIN]
    lines = []
    for (kind, name), scores in found.items():
        seeds = sorted(set(scores) & set(plain))
        values = np.array([scores[seed][0] for seed in seeds])
        differences = values - np.array([plain[seed][0] for seed in seeds])
        mean, width = interval(differences)
        verdict = "=" if abs(mean) <= width else "+" if mean > 0 else "-"
        better = f"{int((differences > 0).sum())} of {len(seeds)}"
        shown = f"`{name}`" if kind == "measure" and name in summaries() else name
        # Remedies of the same kind share a row if their AUCs are equal after rounding to four
        # decimals.
        equal = next((one for one in lines if one[5].round(4).tolist() == values.round(4).tolist()
                      and one[3] == kind), None)  # fmt: skip
        if equal is not None and (kind, name) != PLAIN:
            equal[4].append(shown)
            continue
        lines.append((mean, width, verdict, kind, [shown], values, better))
    lines.sort(key=lambda line: -line[0])
    head = ["kind", "remedy", "AUC", "lowest to highest", "against the plain cosine", "better in"]
    out = ["| " + " | ".join(head) + " |", "|---|---|---:|---:|---:|---:|"]
    for mean, width, verdict, kind, names, values, better in lines:
        change = "the reference" if "`cosine`" in names else f"{mean:+.4f} ± {width:.4f} {verdict}"
        better = "" if "`cosine`" in names else better
        shown = ", ".join(names)
        out.append(
            f"| {kind} | {shown} | {values.mean():.4f} | {values.min():.3f} to {values.max():.3f} "
            f"| {change} | {better} |"
        )
    return "\n".join(out)


def machine():
    """Return the processor and the versions as text."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    packages = [f"{name} {version(name)}" for name in ("fastcos", "numpy", "numba")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = f"Python {platform.python_version()}"
    return (
        f"{cores} cores of {model}, with {', '.join([python, *packages[:-1]])} and {packages[-1]}"
    )


def main():
    """Score the remedies that are missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("remedies.csv"))
    parser.add_argument("--kinds", nargs="+", help="only remedies of these kinds; default: all")
    parser.add_argument("--page", type=Path, help="Markdown file whose table is replaced")
    given = parser.parse_args()
    run(given)
    found = read(given.output)
    made = (
        f"Each data set contains {given.users:,} users and {given.items:,} items. A row of the "
        f"table summarises up to {len(found[PLAIN])} data sets. We computed the rows of the table "
        f"on {time.strftime('%Y-%m-%d', time.gmtime())} on {machine()}."
    )
    if given.page is None:
        print(table(found), made, sep="\n\n")
        return
    before, _, rest = given.page.read_text().partition(START)
    after = rest.partition(END)[2]
    page = f"{before}{START}\n\n{table(found)}\n\n{made}\n\n{END}{after}"
    given.page.write_text(page)


if __name__ == "__main__":
    main()
