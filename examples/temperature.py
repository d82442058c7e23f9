"""At the temperature with the lowest held-out loss, measure how well cosines recover clusters.

    python examples/temperature.py --output docs/temperature.csv --page docs/remedies.md

The script trains models on a small version of the simulation of the paper, for each combination of
rank, temperature, loss and kind of model. Each model is trained once for 20 passes, and once until
the held-out loss has stopped falling. The score is the AUC over pairs of items: the probability
that two items of the same cluster have a higher cosine than two items of different clusters.

There are four kinds of models:

- ``CosineMF``, in which the vector of a user is the mean of the vectors of the user's items. Some
  of these models are trained with a softmax over the item and 300 or 32 drawn negatives, and others
  with the loss of negative sampling.
- Models in which each user has a vector. They are trained by full-batch Adam with a softmax over
  all items.
- Models in which two layers encode the users. They are also trained by full-batch Adam with a
  softmax over all items.
- Models with the loss of word2vec on dot products. Some of these models are trained by
  ``CosineMF``, which draws the negatives. In the other models, each user has a vector, and the
  training uses the expected loss over all draws of negatives.

Lines that the csv file already contains are not computed again.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import scipy.stats

import fastcos
from fastcos.metrics import pair_auc

N_USERS, N_ITEMS, SEEDS = 1000, 200, 10
RANKS, TEMPERATURES = (6, 10, 50), (0.07, 0.1, 0.15, 0.25, 1.0)
# SHORT limits the short training runs, and LONG limits the long ones. The first number is the
# largest number of passes. The second number is the patience: training stops if the held-out loss
# has not fallen for this number of passes.
SHORT, LONG = (20, 3), (400, 15)
SHARED = {
    "CosineMF": {"n_negatives": 300},
    "CosineMF, 32 negatives": {"n_negatives": 32},
    "CosineMF, negative sampling": {"loss": "negative_sampling", "n_negatives": 32},
}
WORD2VEC = {
    f"word2vec, {n} negatives": {
        "similarity": "dot", "loss": "negative_sampling", "item_bias": False, "n_negatives": n,
    }
    for n in (1, 5, 25, 256, 1024)
}  # fmt: skip
# The number of negatives per interaction, for the expected loss.
EXPECTED = (1, 5, 25)
HIDDEN, RATE, STEPS, PATIENCE = 64, 0.03, 600, 40
FIELDS = ("model", "rank", "temperature", "passes", "seed", "auc", "loss", "stopped_at")
START, END = "<!-- {}: made by examples/temperature.py -->", "<!-- end of {} -->"


def units(rows):
    """Return the rows normalised to norm 1, and their norms."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True) + 1e-12
    return rows / norms, norms


def through_units(gradient, unit, norms):
    """Turn a gradient with respect to unit vectors into the gradient with respect to the rows."""
    return (gradient - unit * (gradient * unit).sum(axis=1, keepdims=True)) / norms


def by_gradient(X, rank, temperature, tower, short, seed):
    """Train by full-batch Adam.

    Return the items at the lowest held-out loss, this loss, and the step at which it occurred.

    If tower is true, a network with one hidden layer encodes the users; otherwise, each user has a
    vector of its own.
    """
    random = np.random.default_rng(seed)
    seen = X.toarray() > 0
    held = seen & (random.random(seen.shape) < 0.05)
    seen &= ~held
    inputs, _ = units(seen.astype(float))
    n, p = seen.shape
    items, bias = random.standard_normal((p, rank)), np.zeros(p)
    if tower:
        users = [
            random.standard_normal((p, HIDDEN)) / np.sqrt(p) * 3,
            random.standard_normal((HIDDEN, rank)) / np.sqrt(HIDDEN),
        ]
    else:
        users = [random.standard_normal((n, rank))]
    parameters = [items, bias, *users]
    first, second = ([np.zeros_like(one) for one in parameters] for _ in range(2))
    best, found, at = np.inf, None, 0
    for step in range(1, (SHORT[0] * 3 if short else STEPS) + 1):
        hidden = np.tanh(inputs @ users[0]) if tower else None
        raw = hidden @ users[1] if tower else users[0]
        (U, U_norms), (B, B_norms) = units(raw), units(items)
        logits = U @ B.T / temperature + bias
        logits -= logits.max(axis=1, keepdims=True)
        shares = np.exp(logits)
        shares /= shares.sum(axis=1, keepdims=True)
        # A held-out item competes with the items that are not in the training data.
        free = np.where(seen, 0.0, np.exp(logits))
        loss = float((np.log(free.sum(axis=1))[:, None] - logits)[held].mean())
        if loss < best - 1e-5:
            best, found, at = loss, B.copy(), step
        elif not short and step - at > PATIENCE:
            break
        slopes = (shares * seen.sum(axis=1, keepdims=True) - seen) / seen.sum()
        of_items = through_units(slopes.T @ U / temperature, B, B_norms)
        of_raw = through_units(slopes @ B / temperature, U, U_norms)
        if tower:
            of_hidden = (of_raw @ users[1].T) * (1 - hidden**2)
            of_users = [inputs.T @ of_hidden, hidden.T @ of_raw]
        else:
            of_users = [of_raw]
        gradients = [of_items, slopes.sum(axis=0), *of_users]
        for one, slope, m, v in zip(parameters, gradients, first, second, strict=True):
            m += 0.1 * (slope - m)
            v += 0.001 * (slope**2 - v)
            one -= RATE * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-12)
    return found, best, at


def by_word2vec(X, rank, n_negatives, short, seed):
    """Train by the expected loss of word2vec, without a bias, by full-batch Adam.

    Return the item vectors, NaN (because there is no held-out loss), and the number of steps.
    """
    random, seen = np.random.default_rng(seed), X.toarray().astype(float)
    parameters = [random.standard_normal((n, rank)) * 0.3 for n in seen.shape]
    noise = seen.sum(axis=0) ** 0.75
    negatives = n_negatives * seen.sum(axis=1, keepdims=True) * (noise / noise.sum())
    moments = [(np.zeros_like(one), np.zeros_like(one)) for one in parameters]
    for step in range(1, (SHORT[0] * 3 if short else STEPS) + 1):
        P, Q = parameters
        slopes = ((seen + negatives) / (1 + np.exp(-(P @ Q.T))) - seen) / seen.sum()
        for one, slope, (m, v) in zip(parameters, (slopes @ Q, slopes.T @ P), moments, strict=True):
            m += 0.1 * (slope - m)
            v += 0.001 * (slope**2 - v)
            one -= RATE * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-12)
    return parameters[1], np.nan, step


def runs():
    """Yield (model, rank, temperature, passes, train) of each training run.

    train(X, seed) returns the items, the held-out loss and the last pass.
    """

    def shared(rank, temperature, given, passes):
        def train(X, seed):
            limits = {"max_iter": passes[0], "n_iter_no_change": passes[1]}
            model = fastcos.CosineMF(
                rank, temperature=temperature, random_state=seed, **limits, **given
            ).fit(X)
            return model.item_embeddings(), model.validation_curve_.min(), model.n_iter_

        return train

    for rank in RANKS:
        for passes, word in ((SHORT, "20"), (LONG, "all")):
            for temperature in TEMPERATURES:
                for name, given in SHARED.items():
                    yield name, rank, temperature, word, shared(rank, temperature, given, passes)
                for name, tower in (("free users", False), ("two layers", True)):

                    def train(X, seed, rank=rank, t=temperature, tower=tower, short=word == "20"):
                        return by_gradient(X, rank, t, tower, short, seed)

                    yield name, rank, temperature, word, train
    for rank in RANKS[1:]:
        for passes, word in ((SHORT, "20"), (LONG, "all")):
            for name, given in WORD2VEC.items():
                yield name, rank, 1.0, word, shared(rank, 1.0, given, passes)
            for n in EXPECTED:

                def train(X, seed, rank=rank, n=n, short=word == "20"):
                    return by_word2vec(X, rank, n, short, seed)

                yield f"word2vec in expectation, {n} negatives", rank, 1.0, word, train


def read(path):
    """Return (auc, loss) by (model, rank, temperature, passes) and seed."""
    found = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                key = row["model"], int(row["rank"]), float(row["temperature"]), row["passes"]
                value = float(row["auc"]), float(row["loss"])
                found.setdefault(key, {})[int(row["seed"])] = value
    return found


def fill(path, n_seeds, seconds, only=None):
    """Compute the training runs that the csv file does not contain, and append their lines."""
    started, found = time.monotonic(), read(path)
    new = not path.exists()
    with path.open("a", newline="") as file:
        out = csv.writer(file)
        if new:
            out.writerow(FIELDS)
        for seed in range(n_seeds):
            X, cluster, *_ = fastcos.simulate_interactions(N_USERS, N_ITEMS, random_state=seed)
            for name, rank, temperature, passes, train in runs():
                key = name, rank, temperature, passes
                if seed in found.get(key, {}) or (only and not name.startswith(only)):
                    continue
                items, loss, at = train(X, seed)
                value = pair_auc(items, cluster).value
                out.writerow([*key, seed, f"{value:.5f}", f"{loss:.5f}", at])
                file.flush()
                if time.monotonic() - started > seconds:
                    return


def interval(values):
    """Return a text: the mean, and the half width of the 95 % t interval of the mean."""
    width = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
    return f"{np.mean(values):.3f} ± {width:.3f}"


def chosen(found, name, rank, passes):
    """Return, for each seed, the temperature with the lowest loss, its AUC, and all AUCs."""
    of_each = [found.get((name, rank, t, passes), {}) for t in TEMPERATURES]
    seeds = sorted(set.intersection(*(set(one) for one in of_each)))
    losses = np.array([[one[s][1] for one in of_each] for s in seeds])
    aucs = np.array([[one[s][0] for one in of_each] for s in seeds])
    if not seeds:
        return None
    at = losses.argmin(axis=1)
    return at, aucs[np.arange(len(seeds)), at], aucs


def table(found):
    """Return the Markdown table of the AUC by temperature.

    The table also shows how much AUC is lost if the temperature is chosen by the held-out loss.
    """
    names = [*SHARED, "free users", "two layers"]
    head = ["model", "rank", "passes", *(f"{t:g}" for t in TEMPERATURES),
            "τ of the lowest held-out loss", "AUC at that τ", "cost against the best τ",
            "seeds"]  # fmt: skip
    out = ["| " + " | ".join(head) + " |", "|---|---:|---|" + "---:|" * (len(head) - 3)]
    for name in names:
        for rank in RANKS:
            # Full-batch models have learned little after 20 passes, so only the csv contains them.
            for passes in ("20", "all") if name in SHARED else ("all",):
                picked = chosen(found, name, rank, passes)
                if picked is None or len(picked[0]) < 2:
                    continue
                at, auc, aucs = picked
                counts = [(TEMPERATURES[t], (at == t).sum()) for t in sorted(set(at))]
                taken = [f"{t:g} ({n} {'seed' if n == 1 else 'seeds'})" for t, n in counts]
                cells = [name, rank, passes, *(f"{v:.3f}" for v in aucs.mean(axis=0)),
                         ", ".join(taken), f"{auc.mean():.3f}",
                         interval(aucs.max(axis=1) - auc), len(at)]  # fmt: skip
                out.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(out)


def word2vec_table(found):
    """Return the Markdown table of the AUC of models with the loss of word2vec.

    Each row shows one number of negatives, and each column shows one rank and one number of passes.
    """
    keys = [(rank, passes) for rank in RANKS[1:] for passes in ("20", "all")]
    head = ["trained by", "negatives", *(f"rank {rank}, {passes} passes" for rank, passes in keys)]
    out = ["| " + " | ".join(head) + " |", "|---|---:|" + "---:|" * len(keys)]
    names = [*WORD2VEC, *(f"word2vec in expectation, {n} negatives" for n in EXPECTED)]
    for name in names:
        own = "in expectation" in name
        trained = (
            "all users at once, with new negatives for each interaction"
            if own
            else "CosineMF, with new negatives for each batch"
        )
        cells = [trained, name.split(", ")[1].split()[0]]
        for rank, passes in keys:
            scores = found.get((name, rank, 1.0, passes), {})
            cells.append(interval([s[0] for s in scores.values()]) if len(scores) > 1 else "-")
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def figure(found, path):
    """Plot the AUC after long training against temperature: a panel per model, a line per rank."""
    from matplotlib.figure import Figure

    from fastcos.plots.style import GRID_COLOUR, line_style

    names = ["CosineMF", "CosineMF, negative sampling", "free users", "two layers"]
    drawn = Figure(figsize=(8.4, 6), layout="constrained")
    axes = drawn.subplots(2, 2, sharex=True, sharey=True)
    for ax, name in zip(axes.flat, names, strict=True):
        for number, rank in enumerate(RANKS):
            picked = chosen(found, name, rank, "all")
            if picked is None:
                continue
            at, _, aucs = picked
            means, style = aucs.mean(axis=0), line_style(number)
            ax.plot(TEMPERATURES, means, label=f"rank {rank}", **style)
            usual = np.bincount(at).argmax()  # The temperature that the held-out loss chooses.
            ax.plot(TEMPERATURES[usual], means[usual], "o", markersize=14, fillstyle="none",
                    markeredgewidth=2, color=style["color"])  # fmt: skip
        ax.set_title(name, loc="left", fontsize=12)
        ax.set_xscale("log")
        ax.set_xticks(TEMPERATURES, [f"{t:g}" for t in TEMPERATURES])
        ax.minorticks_off()
        ax.set_ylim(0.48, 1.02)
        ax.grid(visible=True, axis="y", color=GRID_COLOUR)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[1]:
        ax.set_xlabel("temperature (circle: chosen by the held-out loss)", fontsize=11)
    for ax in axes[:, 0]:
        ax.set_ylabel("AUC of the clusters", fontsize=11)
    axes[0, 0].legend(fontsize=11, frameon=False, loc="lower right")
    drawn.savefig(path, dpi=110)


def main():
    """Compute the training runs that are missing, and write the tables and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("temperature.csv"))
    parser.add_argument("--page", type=Path, help="Markdown file whose tables are replaced")
    parser.add_argument("--figure", type=Path, help="PNG file")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--seconds", type=float, default=np.inf, help="start no training run after this"
    )
    parser.add_argument("--only", help="train only models whose names start with this text")
    given = parser.parse_args()
    fill(given.output, given.seeds, given.seconds, given.only)
    found = read(given.output)
    texts = {"temperatures": table(found), "negatives": word2vec_table(found)}
    if given.figure is not None:
        figure(found, given.figure)
    if given.page is None:
        print(*texts.values(), sep="\n\n")
        return
    page = given.page.read_text("utf8")
    for name, text in texts.items():
        start, end = START.format(name), END.format(name)
        before, after = page.partition(start)[0], page.partition(end)[2]
        page = f"{before}{start}\n\n{text}\n\n{end}{after}"
    given.page.write_text(page, "utf8")


if __name__ == "__main__":
    main()
