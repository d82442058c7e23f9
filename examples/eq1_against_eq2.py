"""Compare how well the two objectives of the paper predict held-out interactions.

    python examples/eq1_against_eq2.py --data DATA --output CSV --page PAGE

For each of five splits, the script holds out a fifth of the interactions. It measures the NDCG of
the first 20 recommendations for one half of the users. For each objective, it chooses the rank and
the λ with which this NDCG is highest. It then measures the NDCG of the chosen model for the other
half of the users.

Let σ be the singular values and V the right singular vectors of the training data. Both objectives
predict X V f(σ) V'. For Eq. 1, f(σ) = σ²/(σ² + λ); for Eq. 2, f(σ) = max(0, 1 - λ/σ). λ therefore
has the unit of σ² in Eq. 1, and the unit of σ in Eq. 2. The grid contains values of the *knee*
instead of λ. For Eq. 1, let s be the σ at which f is one half. For Eq. 2, let s be the σ at which f
becomes 0. The knee is s divided by the tenth largest singular value.

DATA is a folder that contains the folders ml-latest-small, online-retail and completejourney.
Without --data, the script uses only the ten presets of the simulation. Lines that the csv file
already contains are not computed again. The script takes about ten minutes on one core. The files
docs/eq1_against_eq2.csv and docs/reproduce.md contain the results of the script.
"""

import argparse
import csv
import time
from pathlib import Path

import numba
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
import scipy.stats

import fastcos
from fastcos.models import presets

TOP, SPLITS, USERS = 20, 5, 1500
RANKS = (2, 5, 10, 20, 35, 50, 100)
KNEES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.5, 7.0)
FIELDS = ("data", "users", "items", "split", "equation", "rank", "knee", "ndcg", "ndcg_rank_50")
START, END = "<!-- {}: made by examples/eq1_against_eq2.py -->", "<!-- end of {} -->"


@numba.njit(cache=True)  # noqa: TID251
def ndcg(scores, seen_ptr, seen, held_ptr, held):
    """Return the NDCG of the 20 best unseen items of each user; NaN if no item is held out."""
    n, p = scores.shape
    discounts = 1 / np.log2(np.arange(2.0, TOP + 2))
    out = np.full(n, np.nan)
    best, items = np.empty(TOP), np.empty(TOP, np.int64)
    is_held = np.zeros(p, np.bool_)
    for u in range(n):
        row = scores[u]
        row[seen[seen_ptr[u] : seen_ptr[u + 1]]] = -np.inf
        best[:], items[:] = -np.inf, -1
        for i in range(p):
            if row[i] <= best[TOP - 1]:
                continue
            place = TOP - 1
            while place > 0 and best[place - 1] < row[i]:
                best[place], items[place] = best[place - 1], items[place - 1]
                place -= 1
            best[place], items[place] = row[i], i
        wanted = held[held_ptr[u] : held_ptr[u + 1]]
        if len(wanted) == 0:
            continue
        is_held[wanted] = True
        gain = 0.0
        for place in range(TOP):
            if items[place] >= 0 and is_held[items[place]]:
                gain += discounts[place]
        is_held[wanted] = False
        out[u] = gain / discounts[: min(TOP, len(wanted))].sum()
    return out


def binary(X, least):
    """Set all interactions to 1, and leave out items with fewer than `least` users."""
    X = sp.csr_array(X)
    X = sp.csr_array((np.ones(X.nnz), X.indices, X.indptr), shape=X.shape)
    X = X[:, np.flatnonzero(X.sum(axis=0) >= least)]
    return sp.csr_array(X[np.flatnonzero(X.sum(axis=1) > 0)])


def data_sets(folder):
    """Yield the name and the interactions of each data set."""
    for preset in presets():
        data = fastcos.simulate_interactions(3000, 400, preset=preset, random_state=0)
        yield f"simulation, `{preset}`", binary(data.X, 1)
    if folder is None:
        return
    yield (
        "MovieLens latest-small",
        binary(fastcos.read_interactions(folder / "ml-latest-small" / "ratings.csv.zip").X, 5),
    )
    path = next((folder / "online-retail").glob("*pairs*"))
    yield "Online Retail", binary(fastcos.read_interactions(path, value="").X, 5)
    read = fastcos.read_interactions(
        folder / "completejourney" / "completejourney_pairs.csv.gz", user="household_id",
        item="product_id", value="",
    )  # fmt: skip
    yield "Complete Journey", binary(read.X, 20)


def split_lines(X, split):
    """Yield a line of the csv file for each equation.

    The rank and the knee are chosen on one half of the users; the NDCG is measured on the other
    half.
    """
    random = np.random.default_rng(split)
    all_pairs = sp.coo_array(X)
    is_held = random.random(all_pairs.nnz) < 0.2
    train, held = (
        sp.csr_array((all_pairs.data[part], [side[part] for side in all_pairs.coords]), X.shape)
        for part in (~is_held, is_held)
    )
    start = np.random.default_rng(split).standard_normal(min(X.shape))
    _, singular, Vt = scipy.sparse.linalg.svds(train, k=max(RANKS), v0=start)
    order = np.argsort(-singular)
    singular, V = singular[order], Vt[order].T
    users = np.sort(random.permutation(X.shape[0])[:USERS])
    train, held = train[users], held[users]
    lists = train.indptr, train.indices, held.indptr, held.indices
    is_choosing = random.random(len(users)) < 0.5
    projected = train @ V
    scores = {}
    for equation in (1, 2):
        for rank in RANKS:
            for knee in KNEES:
                limit, s = knee * singular[9], singular[:rank]
                f = s**2 / (s**2 + limit**2) if equation == 1 else np.maximum(1 - limit / s, 0)
                values = ndcg(
                    np.ascontiguousarray((projected[:, :rank] * f) @ V[:, :rank].T), *lists
                )
                scores[equation, rank, knee] = [
                    float(np.nanmean(values[half])) for half in (is_choosing, ~is_choosing)
                ]
    for equation in (1, 2):
        own = [key for key in scores if key[0] == equation]
        best = max(own, key=lambda key: scores[key][0])
        best_50 = max((key for key in own if key[1] == 50), key=lambda key: scores[key][0])
        yield (*X.shape, split, *best, f"{scores[best][1]:.5f}", f"{scores[best_50][1]:.5f}")


def read(path):
    """Return the lines of the csv file as dicts, or an empty list if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def fill(path, folder, seconds):
    """Compute the splits that the csv file does not contain, and append their lines."""
    stop, done = time.monotonic() + seconds, {(line["data"], line["split"]) for line in read(path)}
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        out = csv.writer(file)
        if is_new:
            out.writerow(FIELDS)
        for name, X in data_sets(folder):
            for split in range(SPLITS):
                if (name, str(split)) in done:
                    continue
                if time.monotonic() > stop:
                    return
                out.writerows((name, *line) for line in split_lines(X, split))
                file.flush()


def interval(differences):
    """Return as text the mean and half the width of its 95 % confidence interval (Student's t)."""
    width = scipy.stats.t.ppf(0.975, len(differences) - 1) * scipy.stats.sem(differences)
    return f"{np.mean(differences):+.3f} ± {width:.3f}"


def table(lines):
    """Return the Markdown table, with a row for each data set."""
    head = ["data", "users x items", "NDCG@20 of Eq. 1", "of Eq. 2", "Eq. 1 minus Eq. 2",
            "the same at rank 50", "rank chosen, Eq. 1", "Eq. 2"]  # fmt: skip
    out = ["| " + " | ".join(head) + " |", "|---|---:|" + "---:|" * (len(head) - 2)]
    for name in dict.fromkeys(line["data"] for line in lines):
        one, two = (
            sorted((line for line in lines if line["data"] == name and line["equation"] == number),
                   key=lambda line: line["split"])
            for number in "12"
        )  # fmt: skip
        if len(one) < 2:
            continue
        values = [
            [np.array([float(line[field]) for line in own]) for own in (one, two)]
            for field in ("ndcg", "ndcg_rank_50")
        ]
        ranks = [f"{np.median([int(line['rank']) for line in own]):g}" for own in (one, two)]
        size = f"{int(one[0]['users']):,} x {int(one[0]['items']):,}"
        cells = [name, size, *(f"{own.mean():.3f}" for own in values[0]),
                 *(interval(own[0] - own[1]) for own in values), *ranks]  # fmt: skip
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def main():
    """Compute the splits that are missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder that contains the data sets")
    parser.add_argument("--output", type=Path, default=Path("eq1_against_eq2.csv"))
    parser.add_argument("--page", type=Path, help="Markdown file whose table is replaced")
    parser.add_argument(
        "--seconds", type=float, default=np.inf, help="start no further split after this time"
    )
    given = parser.parse_args()
    fill(given.output, given.data, given.seconds)
    text = table(read(given.output))
    if given.page is None:
        print(text)
        return
    page = given.page.read_text("utf8")
    start, end = START.format("held out"), END.format("held out")
    before, after = page.partition(start)[0], page.partition(end)[2]
    given.page.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", "utf8")


if __name__ == "__main__":
    main()
