"""Measure how much the cosines of a model change if it is trained again.

    python examples/retraining.py --data DATA --output docs/retraining.csv --page PAGE

A rescaling changes the cosines of a model, but not its predictions. If a model is trained twice,
the two runs may differ by such a rescaling. This script measures how large this difference is. Each
model is trained twenty times on the same data, from different seeds. The twenty runs form ten
pairs. Each run belongs to only one pair, so the pairs are independent, and the intervals are
computed over pairs. In half of the pairs, one run has 10 % more weight decay than the other. The
cosine softmax has no weight decay; in half of its pairs, one run has a temperature that is 10 %
higher. All other models without weight decay have the same settings in both runs of a pair.

DATA is a folder that contains the folders ml-latest-small and online-retail. Without --data, only
the simulation is used. Items with fewer than ten users are left out. BPR requires the package
implicit.

For each pair, the script measures:

- kappa: the condition of Theorem 3 between the items of the two runs. The script first aligns the
  items by an orthogonal Procrustes rotation. Then kappa is the square root of exp(h), where h is
  Hilbert's distance between the two Gram matrices. kappa is 1 if the items of one run are a
  rotation of the items of the other run;
- given, mapped, query_metric: the share of the ten nearest neighbours that both runs have in
  common. The measure "given" finds the neighbours in each run by the cosine of the items. The
  measure "mapped" also uses the cosine, but first applies the best linear map from the items of one
  run to the items of the other run. The measure "query_metric" finds the neighbours by the query
  metric of each run. The increase from "given" to "mapped" is due to the parametrisation; the
  remaining difference is due to the noise of training.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.stats

import fastcos
from fastcos.auditing import diff_models

RANK, RUNS, LEAST_USERS = 16, 20, 10
SWEEPS, STEPS, RATE, HIDDEN = 60, 300, 0.03, 64
# SGNS is left out for a data set with more than MOST_SCORES user-item pairs, because its loss needs
# all of these pairs. Towers are left out for a data set with more than MOST_LOGITS pairs.
MOST_SCORES, MOST_LOGITS = 2_000_000, 400_000
FIELDS = ("data", "model", "decay", "pair", "kappa", "given", "mapped", "query_metric")
# One kind of decay has two names: one in the csv file (the key), and one in the table (the value).
NAMES = {"per side, 1 to 9": "λ 9 times as large for items as for users"}
START, END = "<!-- {}: made by examples/retraining.py -->", "<!-- end of {} -->"


def solve_rows(X, other, decay, weights):
    """Solve the least-squares problem of each row of X against all rows of `other`.

    The weight decay of row i is decay times weights[i].
    """
    right = X @ other
    gram, d = other.T @ other, other.shape[1]
    if weights is None:
        return np.linalg.solve(gram + (decay + 1e-9) * np.eye(d), right.T).T
    grams = gram + (decay * weights + 1e-9)[:, None, None] * np.eye(d)
    return np.linalg.solve(grams, right[:, :, None])[:, :, 0]


def squares(X, seed, users, items, weighted=False):
    """Train by alternating least squares on all entries of X; return users and items."""
    random = np.random.default_rng(seed)
    P, Q = (random.standard_normal((n, RANK)) * 0.1 for n in X.shape)
    counts = [np.asarray(X.sum(axis=axis)).ravel() for axis in (1, 0)]
    # The mean weight is 1, so that decays are comparable.
    of_users, of_items = ([c / c.mean() for c in counts]) if weighted else (None, None)
    for _ in range(SWEEPS):
        P = solve_rows(X, Q, users, of_users)
        Q = solve_rows(X.T, P, items, of_items)
    return P, Q


def bpr(X, seed, decay):
    """Train a BPR model of implicit; return its users and items without the columns of biases."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(
        factors=RANK, regularization=decay, iterations=100, random_state=seed, num_threads=1,
        verify_negative_samples=True,
    )  # fmt: skip
    model.fit(sp.csr_matrix(X, dtype=np.float32), show_progress=False)
    return model.user_factors[:, :-1], model.item_factors[:, :-1]


def adam(parameters, gradients):
    """Update the parameters in place by STEPS steps of Adam.

    gradients() returns the gradient of the loss with respect to each parameter.
    """
    moments = [(np.zeros_like(one), np.zeros_like(one)) for one in parameters]
    for step in range(1, STEPS + 1):
        for one, slope, (m, v) in zip(parameters, gradients(), moments, strict=True):
            m += 0.1 * (slope - m)
            v += 0.001 * (slope**2 - v)
            one -= RATE * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-12)


def sgns(X, seed, decay):
    """Train by the expected loss of SGNS with 5 negatives; return users and items.

    Negatives are drawn with a probability proportional to count^(3/4).
    """
    random, seen = np.random.default_rng(seed), X.toarray().astype(np.float32)
    P, Q = (random.standard_normal((n, RANK)).astype(np.float32) * 0.3 for n in X.shape)
    noise = seen.sum(axis=0) ** 0.75
    negatives = 5 * seen.sum(axis=1, keepdims=True) * (noise / noise.sum())
    total = seen.sum()

    def gradients():
        shares = 1 / (1 + np.exp(-(P @ Q.T)))
        slopes = ((seen + negatives) * shares - seen) / total
        return slopes @ Q + decay * P, slopes.T @ P + decay * Q

    adam((P, Q), gradients)
    return P, Q


def cosine_mf(X, seed, temperature):
    """Train CosineMF until the held-out loss stops falling, for at most 60 passes."""
    model = fastcos.CosineMF(
        RANK, temperature=temperature, random_state=seed, max_iter=60, n_iter_no_change=5,
        n_negatives=256,
    ).fit(X)  # fmt: skip
    return model.user_embeddings(X), model.item_embeddings()


def towers(X, seed, first, last):
    """Train a user tower and free item vectors by a softmax over all items.

    The user tower has one hidden layer.

    first: the weight decay of the hidden layer.
    last: the weight decay of the last layer and of the items.
    """
    random = np.random.default_rng(seed)
    seen = X.toarray()
    inputs = seen / np.linalg.norm(seen, axis=1, keepdims=True)
    p = X.shape[1]
    parameters = [
        random.standard_normal((p, HIDDEN)) / np.sqrt(p) * 3,
        random.standard_normal((HIDDEN, RANK)) / np.sqrt(HIDDEN),
        random.standard_normal((p, RANK)) * 0.3,
    ]
    decays = first, last, last

    def gradients():
        hidden = np.tanh(inputs @ parameters[0])
        P, Q = hidden @ parameters[1], parameters[2]
        logits = P @ Q.T
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        slopes = (shares * seen.sum(axis=1, keepdims=True) - seen) / seen.sum()
        of_P = slopes @ Q
        of_hidden = (of_P @ parameters[1].T) * (1 - hidden**2)
        found = inputs.T @ of_hidden, hidden.T @ of_P, slopes.T @ P
        return [one + decay * w for one, decay, w in zip(found, decays, parameters, strict=True)]

    adam(parameters, gradients)
    return np.tanh(inputs @ parameters[0]) @ parameters[1], parameters[2]


def models(X):
    """Yield (model, decay, train) for each combination of a model and a kind of decay.

    The function train(seed, factor) returns users and items. Its argument ``factor`` multiplies the
    weight decay or the temperature of the model.
    """
    # A decay of half of the smallest singular value has an effect but removes no dimension (Eq. 6).
    scale = fastcos.LinearMF(RANK).fit(X).singular_values_.astype(float)[-1] / 2
    yield "ALS", "none", lambda seed, f: squares(X, seed, 0.0, 0.0)
    yield "ALS", "users only", lambda seed, f: squares(X, seed, f * scale, 0.0)
    yield "ALS", "joint", lambda seed, f: squares(X, seed, f * scale, f * scale)
    yield "ALS", "per side, 1 to 9", lambda seed, f: squares(X, seed, f * scale / 3, f * scale * 3)
    yield "ALS", "weighted by counts", lambda seed, f: squares(X, seed, f * scale, f * scale, True)
    yield "BPR", "none", lambda seed, f: bpr(X, seed, 0.0)
    yield "BPR", "joint", lambda seed, f: bpr(X, seed, f * 0.01)
    yield "cosine softmax", "none", lambda seed, f: cosine_mf(X, seed, 0.25 * f)
    if X.shape[0] * X.shape[1] <= MOST_SCORES:
        yield "SGNS", "none", lambda seed, f: sgns(X, seed, 0.0)
        yield "SGNS", "joint", lambda seed, f: sgns(X, seed, f * 1e-6)
    if X.shape[0] * X.shape[1] <= MOST_LOGITS:
        yield "towers", "none", lambda seed, f: towers(X, seed, 0.0, 0.0)
        yield "towers", "joint", lambda seed, f: towers(X, seed, f * 1e-4, f * 1e-4)
        yield "towers", "first layer only", lambda seed, f: towers(X, seed, f * 1e-4, 0.0)
        yield "towers", "last layer only", lambda seed, f: towers(X, seed, 0.0, f * 1e-4)


def kappa(one, other):
    """Align the items of two runs by a Procrustes rotation; return the condition between them."""
    one, other = one.astype(float), other.astype(float)
    turn, _ = scipy.linalg.orthogonal_procrustes(one, other)
    left, right = (rows.T @ rows for rows in (one @ turn, other))
    tiny = 1e-10 * np.eye(len(left))
    ratios = scipy.linalg.eigh(
        left + tiny * np.trace(left), right + tiny * np.trace(right), eigvals_only=True
    )
    # If a map G leads from one run to the other, the Gram matrix K of the items becomes G' K G.
    # G occurs twice in G' K G, so the ratio of the eigenvalues is the square of the condition
    # number of G.
    return float(np.sqrt(ratios[-1] / ratios[0]))


def data_sets(folder):
    """Yield the name and the interactions of each data set."""
    yield (
        "simulation",
        sp.csr_array(
            fastcos.simulate_interactions(1000, 200, preset="zipf_pareto", random_state=0).X
        ),
    )
    if folder is None:
        return
    seen = fastcos.read_interactions(folder / "ml-latest-small" / "ratings.csv.zip")
    yield "MovieLens", seen.X
    names = sorted((folder / "online-retail").glob("*pairs*"))
    if names:
        yield "retail", fastcos.read_interactions(names[0], value="").X


def binary(X):
    """Set all interactions to 1, and leave out items with fewer than LEAST_USERS users."""
    X = sp.csr_array((np.ones(X.nnz), X.indices, X.indptr), shape=X.shape)
    X = X[:, np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() >= LEAST_USERS)]
    return sp.csr_array(X[np.flatnonzero(np.asarray(X.sum(axis=1)).ravel() > 0)])


def read(path):
    """Return the lines of the csv file as dicts, or an empty list if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def fill(path, folder, runs, seconds, only=None):
    """Compute the pairs that the csv file does not contain, and append their lines."""
    started, found = time.monotonic(), read(path)
    done = {(row["data"], row["model"], row["decay"], int(row["pair"])) for row in found}
    with path.open("a", newline="") as file:
        out = csv.writer(file)
        if not found:
            out.writerow(FIELDS)
        for data, given in data_sets(folder):
            X = binary(given)
            if only and data != only:
                continue
            for name, decay, train in models(X):
                for pair in range(runs // 2):
                    if (data, name, decay, pair) in done:
                        continue
                    # In half of the pairs, the second run has 10 % more decay than the first run.
                    factors = 1.0, 1.1 if pair % 2 else 1.0
                    (P, Q), (P2, Q2) = (train(2 * pair + run, factors[run]) for run in range(2))
                    diff = diff_models(Q2, Q, users=P2, old_users=P)
                    values = (kappa(Q, Q2), diff.overlap, diff.overlap_after_linear_map,
                              diff.query_metric_overlap)  # fmt: skip
                    out.writerow([data, name, decay, pair, *(f"{v:.5f}" for v in values)])
                    file.flush()
                    if time.monotonic() - started > seconds:
                        return


def interval(values):
    """Return the mean and the half width of its 95 % t interval as text."""
    width = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
    return f"{np.mean(values):.2f} ± {width:.2f}"


def table(rows):
    """Return the Markdown table, with a row for each data set, model and decay."""
    head = ["data", "model", "decay", "κ, median (lowest to highest)", "overlap by the cosine",
            "overlap after the best linear map", "overlap by the query metric",
            "pairs"]  # fmt: skip
    out = ["| " + " | ".join(head) + " |", "|---|---|---|" + "---:|" * (len(head) - 3)]
    lines: list[list[str]] = []
    for key in dict.fromkeys((row["data"], row["model"], row["decay"]) for row in rows):
        own = [row for row in rows if (row["data"], row["model"], row["decay"]) == key]
        if len(own) < 2:
            continue
        of = {name: np.array([float(row[name]) for row in own]) for name in FIELDS[4:]}
        k = of["kappa"]
        cells = [*key, f"{np.median(k):.3g} ({k.min():.3g} to {k.max():.3g})",
                 *(interval(of[name]) for name in FIELDS[5:]), str(len(own))]  # fmt: skip
        # If several kinds of decay have equal results, the table shows them in one row.
        if lines and [*lines[-1][:2], *lines[-1][3:]] == [*cells[:2], *cells[3:]]:
            lines[-1][2] += f", or {NAMES.get(cells[2], cells[2])}"
        else:
            lines.append(cells)
    return "\n".join([*out, *("| " + " | ".join(cells) + " |" for cells in lines)])


def main():
    """Compute the pairs that are missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder that contains the data sets")
    parser.add_argument("--output", type=Path, default=Path("retraining.csv"))
    parser.add_argument("--page", type=Path, help="Markdown file whose table is replaced")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument(
        "--seconds", type=float, default=np.inf, help="start no further pair after this"
    )
    parser.add_argument("--only", help="use only this data set")
    given = parser.parse_args()
    fill(given.output, given.data, given.runs, given.seconds, given.only)
    text = table(read(given.output))
    if given.page is None:
        print(text)
        return
    page = given.page.read_text("utf8")
    start, end = START.format("retraining"), END.format("retraining")
    before, after = page.partition(start)[0], page.partition(end)[2]
    given.page.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", "utf8")


if __name__ == "__main__":
    main()
