"""A script: compares the rates that fastcos.calibrate promises with observed rates.

    python -m tests.robustness.calibrated_rates EXPERIMENT

- null: makes a histogram of the cosines of all pairs of 20,000 rows (64 columns), compares it with
  a histogram of the float64 cosines, and reports the time.
- sampled: calibrates 1,000,000 rows (128 columns), once with a sample of 5,000 and once with a
  sample of 20,000, and reports the time and the thresholds of both calibrations.
- held_out: in six data sets, computes thresholds from one half of the rows, and measures the share
  of the pairs in the other half that reach these thresholds.
- tail: fits the tail model to a tenth of the rows. For a high threshold, compares the rate that the
  model predicts with the share of all pairs of rows that reach this threshold.
- fdr: measures the share of false discoveries in data with planted relevant pairs (--repeats 200).
- transfer: for two versions of a model, measures the share of pairs with a cosine of 0.6 or more,
  and computes the threshold for a rate of 1e-3.
- rescaling: compares the computed range of the threshold with the thresholds of rescaled rows. Rows
  of data sets are rescaled by 10,000 random D; rows with two or three columns are rescaled by all D
  of a grid.
- hubs: reports how much the rate varies from query to query, for the measures cosine,
  query_normalized and mutual_proximity.
"""

import argparse
import platform
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.sparse.linalg import svds
from scipy.stats import norm

from bench import data
from fastcos import LinearMF, calibrate, read_interactions, top_k
from fastcos.auditing import threshold_range
from fastcos.io import read_vectors
from fastcos.storage.provenance import versions

# These data sets may not be distributed with fastcos.
DATA = Path(__file__).parents[3] / "shared" / "data"
GLOVE = DATA / "glove50" / "glove50.npz"
RATES = (1e-2, 1e-3, 1e-4, 1e-5)
# The number of dimensions of the models that this script trains.
RANK = 64


def unit(rows):
    rows = np.asarray(rows, np.float64)
    return rows / np.maximum(np.linalg.norm(rows, axis=1), 1e-300)[:, None]


def pair_cosines(rows):
    """Return the cosines of all pairs of different rows."""
    X = unit(rows)
    return np.clip((X @ X.T)[np.triu_indices(len(X), 1)], -1, 1)


def item_embeddings(X, rank=RANK, **parameters):
    """Return the item embeddings of a linear model; items without interactions are left out."""
    X = sp.csr_array(X, dtype=np.float32)
    X = X[:, np.flatnonzero(X.sum(axis=0))]
    return LinearMF(n_components=rank, random_state=0, **parameters).fit(X).item_embeddings()


def cards():
    """Return the embeddings of cards in Magic decks, by an SVD of rank 128."""
    X = read_interactions(DATA / "mtg" / "mtg_csr.npz").X.astype(np.float32)
    _, s, Vt = svds(X, k=128, random_state=0)
    return np.ascontiguousarray(Vt.T * s, np.float32)


def anime():
    with zipfile.ZipFile(DATA / "anime" / "anime.zip") as archive:
        table = pd.read_csv(archive.open("anime/anime_history.dat"), sep="\t")
    users, items = (pd.factorize(table.iloc[:, column])[0] for column in (0, 1))
    return sp.csr_array((np.ones(len(users)), (users, items)))


def movielens():
    return read_interactions(DATA / "ml-latest-small" / "ratings.csv.zip").X


def retail():
    path = DATA / "online-retail" / "online_retail_pairs.csv.gz"
    X = read_interactions(path, user="customer", item="stock", value="quantity").X
    return sp.csr_array((np.ones(X.nnz), X.indices, X.indptr), X.shape)


def words():
    """Return the GloVe vectors of the words in the lists of categories and the lists of pairs."""
    listed = set()
    for name in ("battig.csv", "bless.csv"):
        listed |= set(pd.read_csv(DATA / "words" / name)["word"])
    for path in (DATA / "words").glob("EN-*.txt"):
        listed |= set(pd.read_csv(path, sep="\t", header=None)[[0, 1]].to_numpy().ravel())
    glove = read_vectors(GLOVE)
    return np.asarray(glove.vectors)[np.isin(glove.ids, list(listed))]


SETS = {
    "cards": cards,
    "anime": lambda: item_embeddings(anime()),
    "MovieLens": lambda: item_embeddings(movielens()),
    "GloVe": lambda: np.asarray(read_vectors(GLOVE).vectors),
    "words": words,
    "retail": lambda: item_embeddings(retail()),
}


def chosen(names):
    """Yield the name and the rows of each data set, without rows that are equal up to rounding."""
    for name in names or SETS:
        rows = SETS[name]()
        _, first = np.unique(np.round(unit(rows), 5), axis=0, return_index=True)
        print(f"{name}: {len(rows):,} rows, {len(first):,} different", flush=True)
        yield name, rows[np.sort(first)]


def null(options):
    rows = data.gaussian(20_000, 64)
    start = time.perf_counter()
    calibration = calibrate(rows)
    seconds = time.perf_counter() - start
    # The reference counts the scores by independent code: np.histogram searches sorted edges.
    truth, moved = np.zeros(2**16, np.int64), 0
    X, edges = unit(rows), np.arange(-(2**15), 2**15 + 1) / 2**15
    for first in range(0, len(X), 500):
        scores = X[first : first + 500] @ X.T
        scores[np.arange(500), first + np.arange(500)] = np.nan
        scores = np.clip(scores[~np.isnan(scores)], -1, 1)
        truth += np.histogram(scores, edges)[0]
        moved += int((np.abs(scores * 2**15 - np.rint(scores * 2**15)) < 72 * 2.0**-37).sum())
    print(f"pairs {calibration.n_pairs:,}; {seconds:.1f} s")
    print(f"bins with other counts: {(calibration.counts != truth).sum()} of {len(truth):,}")
    print(f"pairs counted elsewhere: {np.abs(calibration.counts - truth).sum() // 2}")
    print(f"pairs within rounding, (d + 8) 2^-52, of an edge: {moved}")


def sampled(options):
    rows = data.gaussian(1_000_000, 128) + 1.5 * np.eye(128, dtype=np.float32)[0]
    for size in (5_000, 20_000):
        start = time.perf_counter()
        calibration = calibrate(rows, sample=size, random_state=size)
        seconds = time.perf_counter() - start
        print(f"sample {size:,}: {calibration.n_pairs:,} pairs, {seconds:.0f} s")
        for rate in (*RATES, 1e-6):
            low, high = calibration.threshold_interval(rate, confidence=0.99)
            print(f"  {rate:g}: {calibration.threshold(rate):.4f} ({low:.4f} .. {high:.4f})")


def held_out(options):
    print("| data set | rows | rate | inside | median observed / promised | pairs per one |")
    print("|---|---|---|---|---|---|")
    for name, rows in chosen(options.sets):
        inside, ratios = dict.fromkeys(RATES, 0), {rate: [] for rate in RATES}
        shared = {rate: [] for rate in RATES}
        for split in range(options.first, options.first + options.repeats):
            order = np.random.default_rng(split).permutation(len(rows))[: options.rows]
            half = len(order) // 2
            fitted = calibrate(rows[order[:half]])
            scores = pair_cosines(rows[order[half : 2 * half]])
            for rate in RATES:
                threshold = fitted.threshold(rate)
                promised = float(fitted.p_value(threshold))
                observed = float((scores >= threshold).mean())
                low, high = fitted.rate_interval(promised, confidence=0.99, held_out=True)
                inside[rate] += low <= observed <= high
                ratios[rate].append(observed / promised)
                pairs = promised * fitted.n_pairs / 2
                shared[rate].append(pairs / fitted.independent_pairs(promised))
        for rate in RATES:
            print(
                f"| {name} | {half:,} | {rate:g} | {inside[rate]} of {options.repeats} "
                f"| {np.median(ratios[rate]):.2f} | {np.median(shared[rate]):.1f} |",
                flush=True,
            )
        print(f"{name}: {' '.join(fitted.notes) or 'no notes'}", flush=True)


def tail(options):
    print("| data set | observed share | modelled / observed, median (5 % .. 95 %) | distance |")
    print("|---|---|---|---|")
    for name, rows in chosen(options.sets):
        whole = calibrate(rows)
        ratios, distances, shares = [], [], []
        for seed in range(options.repeats):
            small = calibrate(rows, sample=max(300, len(rows) // 10), random_state=seed)
            # About one pair of the small sample reaches this threshold. The rate cannot be measured
            # from so few pairs.
            threshold = small.threshold(2 / small.n_pairs)
            observed = float(whole.pairs_above[min(np.searchsorted(whole.edges, threshold), 2**16)])
            shares.append(observed / whole.n_pairs)
            ratios.append(2 / small.n_pairs / max(shares[-1], 1 / whole.n_pairs))
            distances.append(np.nan if small.tail is None else small.tail.distance)
        low, middle, high = np.quantile(ratios, (0.05, 0.5, 0.95))
        print(
            f"| {name} | {np.median(shares):.1e} | {middle:.2f} ({low:.2f} .. {high:.2f}) "
            f"| {np.nanmedian(distances):.2f} |",
            flush=True,
        )


def fdr(options):
    """Estimate false discovery rates for queries that have planted relevant items.

    The null distribution comes from other queries, which have no relevant items.
    """
    d, n_items, n_queries, planted = 32, 2_000, 100, 5
    levels, results = (0.05, 0.2), {0.05: [], 0.2: []}
    power = {0.05: [], 0.2: []}
    for seed in range(options.first, options.first + options.repeats):
        rng = np.random.default_rng(seed)
        items = rng.standard_normal((n_items, d))
        queries = rng.standard_normal((n_queries, d))
        relevant = rng.permutation(n_items)[: n_queries * planted].reshape(n_queries, planted)
        noise = rng.standard_normal((n_queries, planted, d))
        items[relevant] = queries[:, None] + 1.1 * noise
        null_queries = rng.standard_normal((2_000, d))
        fitted = calibrate(items, null_queries)
        neighbors = top_k(queries, items, k=20)
        q = fitted.false_discovery_rate(neighbors.scores, n_items=n_items)
        true = (neighbors.indices[:, :, None] == relevant[:, None, :]).any(axis=2)
        for level in levels:
            is_rejected = q <= level
            results[level].append((is_rejected & ~true).sum() / max(1, is_rejected.sum()))
            power[level].append((is_rejected & true).sum() / relevant.size)
    unrelated = 1 - planted / n_items
    for level in levels:
        values = np.array(results[level])
        error = norm.ppf(0.995) * values.std(ddof=1) / np.sqrt(len(values))
        print(
            f"FDR {level:g}: observed {values.mean():.4f} ± {error:.4f} (99 %), expected "
            f"{level * unrelated:.4f}; {np.mean(power[level]):.0%} of the relevant pairs found"
        )


def transfer(options):
    """Train two versions of a model of MovieLens, with different ranks and regularisation."""
    X = sp.csr_array(movielens(), dtype=np.float32)
    X = X[:, np.flatnonzero(np.diff(sp.csc_array(X).indptr) >= 3)]
    versions_ = {
        "version 1": LinearMF(n_components=128, regularization=100.0, random_state=0),
        "version 2": LinearMF(n_components=16, regularization=3000.0, random_state=0),
    }
    number = 0.6
    calibrations = {}
    print("| model | share of pairs at 0.6 or more | threshold for 1e-3 | observed, held out |")
    print("|---|---|---|---|")
    half = np.random.default_rng(0).permutation(X.shape[1])
    for name, model in versions_.items():
        items = model.fit(X).item_embeddings()
        first, second = items[half[: len(half) // 2]], items[half[len(half) // 2 :]]
        calibrations[name] = fitted = calibrate(first, model=f"films@{name}")
        scores = pair_cosines(second)
        print(
            f"| {name} | {float(fitted.p_value(number)):.2e} | {fitted.threshold(1e-3):.3f} "
            f"| {float((scores >= fitted.threshold(1e-3)).mean()):.2e} |"
        )
    old, new = calibrations.values()
    moved = float(new.p_value(old.threshold(1e-3)))
    print(f"the old threshold {old.threshold(1e-3):.3f} on version 2: {moved:.2e}")


def rescaling(options):
    """Compare threshold_range with the thresholds that other D lead to.

    The rows of data sets are rescaled by random D. Rows with two or three columns are rescaled by
    all D of a grid.
    """
    cases = {name: (rows, 1e-3, 1.2) for name, rows in chosen(options.sets or ["GloVe"])}
    print("| rows | given | found | bound | 10,000 random D |")
    print("|---|---|---|---|---|")
    for name, (rows, rate, condition) in cases.items():
        rng = np.random.default_rng(0)
        directions = rows[rng.choice(len(rows), 400, replace=False)].astype(np.float64)
        bounds = threshold_range(directions, rate, condition=condition, sample=None)
        seen = []
        for trial in range(options.random):
            # In half of the trials, the logarithms of the weights are uniform. In the other half,
            # each weight is either 1 or `condition`.
            logs = rng.uniform(0, np.log(condition), directions.shape[1])
            if trial % 2:
                logs = np.log(condition) * (logs > np.log(condition) / 2)
            cosines = pair_cosines(directions * np.exp(logs))
            rank = int(rate * len(cosines))
            seen.append(np.partition(cosines, -rank)[-rank])
        print(
            f"| {name}, 400 | {bounds.given:.4f} | {bounds.low:.4f} .. {bounds.high:.4f} "
            f"| {bounds.bound_low:.4f} .. {bounds.bound_high:.4f} "
            f"| {min(seen):.4f} .. {max(seen):.4f} |",
            flush=True,
        )
    for d in (2, 3):
        worst = 0.0
        for seed in range(20):
            directions = np.random.default_rng(seed).standard_normal((8, d))
            bounds = threshold_range(directions, 0.2, condition=2.0, sample=None)
            low, high = every_rescaling(directions, 0.2, 2.0)
            worst = max(worst, abs(bounds.low - low), abs(bounds.high - high))
        print(f"{d} columns, 20 cases: largest difference to a grid of all D {worst:.1e}")


def every_rescaling(rows, rate, condition, steps=400):
    """Return the lowest and the highest of the thresholds for all D on a grid."""
    n, d = rows.shape
    line = np.linspace(0, 2 * np.log(condition), steps if d == 3 else 20 * steps)
    # The scale of D does not matter, so one weight is 1.
    if d == 2:
        logs = np.concatenate([np.stack([line, 0 * line], 1), np.stack([0 * line, line], 1)])
    else:
        a, b = (grid.ravel() for grid in np.meshgrid(line, line))
        zero = np.zeros_like(a)
        logs = np.concatenate(
            [np.stack(order, 1) for order in ((zero, a, b), (a, zero, b), (a, b, zero))]
        )
    left, right = np.triu_indices(n, 1)
    weights = np.exp(logs)
    dots = weights @ (rows[left] * rows[right]).T
    squares = weights @ (rows**2).T
    cosines = dots / np.sqrt(squares[:, left] * squares[:, right])
    rank = int(rate * len(left))
    thresholds = np.partition(cosines, -rank, axis=1)[:, -rank]
    return thresholds.min(), thresholds.max()


def hubs(options):
    print("| data set | measure | rate of a query, 5 % .. 95 % | highest 1 % |")
    print("|---|---|---|---|")
    for name, rows in chosen(options.sets):
        for measure in ("cosine", "query_normalized", "mutual_proximity"):
            fitted = calibrate(rows, measure=measure, sample=2_000)
            rates = fitted.query_counts[2] / (fitted.n_items - 1)
            low, high, top = np.quantile(rates, (0.05, 0.95, 0.99))
            print(f"| {name} | {measure} | {low:.1e} .. {high:.1e} | {top:.1e} |", flush=True)


EXPERIMENTS = (null, sampled, held_out, tail, fdr, transfer, rescaling, hubs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("experiment", choices=[one.__name__ for one in EXPERIMENTS])
    parser.add_argument("--sets", nargs="+", choices=SETS, help="data sets (default all)")
    parser.add_argument("--repeats", type=int, default=100, help="splits or simulations")
    parser.add_argument("--first", type=int, default=0, help="first seed of held_out and fdr")
    parser.add_argument("--rows", type=int, default=5000, help="rows of a split, both halves")
    parser.add_argument("--random", type=int, default=10_000, help="random D")
    options = parser.parse_args()
    result = versions()
    print(f"{platform.processor() or platform.machine()}; " + ", ".join(
        f"{name} {result[name]}" for name in ("python", "numpy", "scipy", "fastcos")
    ))  # fmt: skip
    next(one for one in EXPERIMENTS if one.__name__ == options.experiment)(options)


class _Plain(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of the docstring."""


if __name__ == "__main__":
    main()
