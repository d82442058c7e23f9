"""For each optimiser and number of epochs, measure the final scale of the latent dimensions.

    python examples/scale_of_dimensions.py --data DATA --cache CACHE --page PAGE --figure PNG

The *start* of a training run consists of its initial embeddings. The script trains matrix
factorisations from ten seeds, and from two starts for each seed. The second start is a copy of the
first start that is rescaled by a D of condition 4. The script writes the tables and the figure of
docs/explanation/scale_of_dimensions.md and, with --output, the means as a csv file. It also prints,
for single training runs, how much the measured times and final scales differ from the predicted
times and scales. DATA is a folder that contains the folders ml-latest-small and online-retail. The
folder CACHE contains one line per finished training run, so a stopped script can be resumed. The
script takes about half an hour on one core.

For each training run, the script computes the canonical form of the model (see
fastcos.canonicalize), and the linear map from the items of this form to the trained items. To
compute the condition between two runs, the script compares only these two maps. Differences between
the predictions of the two runs therefore have no influence. The overlap is the share of the ten
nearest neighbours that is the same in both runs. If the overlap of the canonical forms is also low,
D is not the reason.
"""

import argparse
import csv
import itertools
import time
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.stats
from factor_training import descend, movielens, retail, simulated, slopes, train

import fastcos
from fastcos.auditing import gradient_noise
from fastcos.plots.style import COLOURS, figure_style

ROOT = Path(__file__).parents[1]
RANK, SEEDS, CONDITION, NEIGHBORS = 8, 10, 4.0, 10
FIELDS = (
    "data", "regime", "epochs", "seed", "loss", "starts", "overlap_starts",
    "overlap_starts_canonical", "balanced", "predicted", "forget", "seeds", "overlap_seeds",
    "overlap_seeds_canonical",
)  # fmt: skip
FORGETTING = (
    "data", "decay", "seed", "predicted_epochs", "measured_epochs", "rescaled_start_to_predicted",
    "rescaled_start_to_balanced", "usual_epochs", "usual_start_to_predicted",
    "usual_start_to_balanced",
)  # fmt: skip


def regimes(name):
    """Yield (label, epochs, recipe) for each way to train on the data set `name`.

    A model is measured after each number of epochs in `epochs`. The step sizes suit the data set.
    """
    dense = name.startswith("simulation")
    slow, fast, batch = (0.003, 0.01, 512) if dense else (0.005, 0.02, 1024)
    gd_step, gd_epochs = (4e-4, 1000) if dense else (2e-3, 500)
    small, usual = (0.05, 0.5) if dense else (0.02, 0.2)
    ridge = (3.0, 3.0) if dense else (1.0, 1.0)
    long = (20, 100, 400)
    by_adam = long if dense else long[:2]

    def gd(start, decays=(0.0, 0.0)):
        return {"by": "gd", "start": start, "step": gd_step, "decays": decays}

    def als(*decays):
        return {"by": "als", "start": usual, "decays": decays}

    def sgd(step, decays=(0.0, 0.0), size=1):
        start = usual if dense else 0.1
        return {"by": "sgd", "start": start, "step": step, "batch": size, "decays": decays}

    def adam(rate, start, decays=(0.0, 0.0)):
        return {"by": "adam", "start": start, "step": rate, "batch": batch, "decays": decays}

    yield f"gradient descent, full batch, start {small:g}", (gd_epochs,), gd(small)
    yield f"gradient descent, full batch, start {usual:g}", (gd_epochs,), gd(usual)
    decay = (0.02, 0.02)
    yield (
        f"gradient descent, full batch, start {usual:g}, decay on both",
        (gd_epochs,),
        gd(usual, decay),
    )
    yield "ALS, no decay", (20, 100), als(0.0, 0.0)
    yield "ALS, decay on users", (20, 100), als(ridge[0], 0.0)
    yield "ALS, decay on both", (20, 100), als(*ridge)
    if not dense:
        implicit = {"by": "implicit", "start": 0.01, "decays": (0.01, 0.01), "rank": 100}
        yield "ALS of implicit, its defaults", (15, 100), implicit
    yield f"SGD, step {slow:g}", long, sgd(slow)
    yield f"SGD, step {fast:g}", long, sgd(fast)
    yield f"SGD, step {fast:g}, batch {batch}", long, sgd(fast, size=batch)
    yield f"SGD, step {slow:g}, decay 0.02 on both", long, sgd(slow, decay)
    yield f"SGD, step {fast:g}, decay 0.02 on both", long, sgd(fast, decay)
    yield f"SGD, step {fast:g}, decay 0.02 on users", long, sgd(fast, (0.02, 0.0))
    yield f"Adam 0.001, batch {batch}, start 0.1", by_adam, adam(0.001, 0.1)
    yield f"Adam 0.001, batch {batch}, start 1", by_adam, adam(0.001, 1.0)
    yield f"Adam 0.01, batch {batch}, start 0.1", by_adam, adam(0.01, 0.1)
    label = f"Adam 0.01, batch {batch}, start 0.1, decay 0.02 on both"
    yield label, by_adam, adam(0.01, 0.1, decay)


# ----- comparison of two training runs


def canonical(P, Q):
    """Return the canonical items of the product PQ', and the map G from these items to Q."""
    R_left = np.linalg.qr(P)[1]
    right, R_right = np.linalg.qr(Q)
    _, singular, Vt = np.linalg.svd(R_left @ R_right.T)
    items = right @ (Vt.T * np.sqrt(singular))
    return items, np.linalg.lstsq(items, Q, rcond=None)[0]


def condition_between(one, other):
    """Return the condition between the scales of two training runs.

    In each run, a map G leads from the items in canonical form to the trained items. The cosines
    depend on G only through GG'. Before the maps of the two runs are compared, the canonical forms
    are rotated onto each other. Differences between the predictions therefore have no influence.
    """
    (items, G), (other_items, H) = canonical(*one), canonical(*other)
    R = scipy.linalg.orthogonal_procrustes(items, other_items)[0]
    ratios = scipy.linalg.eigh(R.T @ G @ G.T @ R, H @ H.T, eigvals_only=True)
    return float(np.sqrt(ratios[-1] / ratios[0]))


def canonical_items(P, Q):
    """Return the items of the canonical form of the product PQ'."""
    return canonical(P, Q)[0]


def condition_to_balance(P, Q):
    """Return the condition of the map from the items of the canonical (balanced) form to Q."""
    return float(np.linalg.cond(canonical(P, Q)[1]))


def nearest(Q):
    """Return the ten nearest neighbours of each item by the cosine."""
    return fastcos.top_k(Q, k=NEIGHBORS).indices


def shared(one, other):
    """Return the share of the ten nearest neighbours that two sets of items have in common."""
    pairs = zip(nearest(one), nearest(other), strict=True)
    return float(np.mean([len(np.intersect1d(a, b)) / NEIGHBORS for a, b in pairs]))


def noise_of(data, recipe, P, Q):
    """Return how far a model is from the scale at which SGD ends, and how fast SGD gets there.

    The first value compares two scales: it is the condition between the scale of the model and the
    predicted final scale of SGD. The second value is the predicted number of epochs until SGD has
    forgotten the scale of its start. For optimisers other than SGD, both values are empty texts.
    """
    if recipe["by"] != "sgd":
        return "", ""
    decays = recipe.get("decays", (0.0, 0.0))[::-1]  # the decay of the items, then of the users
    noise = gradient_noise(Q, P, slopes(data, P, Q), step=recipe["step"], weight_decay=decays)
    return noise.condition, noise.epochs_to_forget


def lines_of(data, label, marks, recipe, pair):
    """Train each seed of a pair from both starts, and yield the lines of the csv file."""
    starts = {
        (seed, condition): train(data, recipe.get("rank", RANK), recipe, marks, seed, condition)
        for seed, condition in itertools.product(pair, (1.0, CONDITION))
    }
    for mark in marks:
        ends = {key: next(one) for key, one in starts.items()}
        for seed in pair:
            (P, Q), (P2, Q2) = ends[seed, 1.0], ends[seed, CONDITION]
            line = {
                "data": data.name, "regime": label, "epochs": mark, "seed": seed,
                "loss": np.mean(slopes(data, P, Q).data ** 2),
                "starts": condition_between((P, Q), (P2, Q2)), "overlap_starts": shared(Q, Q2),
                "overlap_starts_canonical": shared(canonical_items(P, Q), canonical_items(P2, Q2)),
                "balanced": condition_to_balance(P, Q),
            }  # fmt: skip
            line["predicted"], line["forget"] = noise_of(data, recipe, P, Q)
            if seed == pair[0]:
                P3, Q3 = ends[pair[1], 1.0]
                line |= {
                    "seeds": condition_between((P, Q), (P3, Q3)), "overlap_seeds": shared(Q, Q3),
                    "overlap_seeds_canonical": shared(
                        canonical_items(P, Q), canonical_items(P3, Q3)
                    ),
                }  # fmt: skip
            yield line


# ----- the time to forget


def forgetting_cases(folder):
    """Yield (data, decay, step): three data sets, each with four values of the weight decay."""
    sets = [simulated((1.0, 1.0)), simulated((0.4, 2.0))]
    if folder is not None:
        sets.append(movielens(folder))
    for data in sets:
        for decay in (0.0, 0.005, 0.02, 0.1):
            yield data, decay, 0.01 if data.name.startswith("simulation") else 0.02


def forgetting(data, decay, step, seed):
    """Measure how many epochs SGD takes to forget a rescaling D of condition 4.

    Two runs of SGD are compared: the first run starts from the scale at which SGD is predicted to
    end, and the second run starts from D times this scale. SGD has forgotten D as soon as the
    logarithm of the condition between the two runs has fallen to 1/e of its initial value. The
    function also measures how far the final scale of SGD is from the predicted scale and from the
    balanced form.
    """
    recipe = {"by": "sgd", "start": 0.3, "step": step, "batch": 1, "decays": (decay, decay)}

    def noise(P, Q):
        return gradient_noise(Q, P, slopes(data, P, Q), step=step, weight_decay=decay)

    dense = data.name.startswith("simulation")
    *_, (P, Q) = train(data, RANK, recipe, [60 if dense else 300], seed)
    rest = noise(P, Q).balancing_map
    D = np.geomspace(CONDITION**0.5, CONDITION**-0.5, RANK)
    P, Q = P @ np.linalg.inv(rest), Q @ rest
    predicted = noise(P * D, Q / D).epochs_to_forget
    last = max(6, round(4 * predicted))
    marks = np.unique(np.linspace(1, last, 60).round().astype(int)).tolist()
    runs = (descend(data, P * d, Q / d, recipe, marks, seed) for d in (np.ones(RANK), D))
    conditions = [CONDITION]
    for one, other in zip(*runs, strict=True):
        conditions.append(condition_between(one, other))
    goal, logs = np.log(CONDITION) / np.e, np.log(conditions)
    after = int(np.argmax(logs < goal))
    measured = np.interp(
        goal, logs[[after, after - 1]], [[0, *marks][i] for i in (after, after - 1)]
    )
    # Also train a model from a usual start. Predict how many epochs SGD takes to forget this start.
    # Train for twice this number of epochs, but for at least 20 epochs.
    usual = max(20, round(2 * noise(*other).epochs_to_forget))
    *_, (P, Q) = train(data, RANK, recipe, [usual], seed)
    return {
        "data": data.name, "decay": decay, "seed": seed, "predicted_epochs": predicted,
        "measured_epochs": float(measured) if logs.min() < goal else np.inf,
        "rescaled_start_to_predicted": noise(*other).condition,
        "rescaled_start_to_balanced": condition_to_balance(*other),
        "usual_epochs": usual, "usual_start_to_predicted": noise(P, Q).condition,
        "usual_start_to_balanced": condition_to_balance(P, Q),
    }  # fmt: skip


# ----- cache, tables


def read(path):
    """Return the lines of a csv file as dicts, or an empty list if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def fill(path, fields, tasks, stop):
    """Until the time `stop`, run each task whose key is not in the file, and append its lines."""
    done = {(line["data"], line[fields[1]], line["seed"]) for line in read(path)}
    new = not path.exists()
    with path.open("a", newline="") as file:
        out = csv.DictWriter(file, fields)
        if new:
            out.writeheader()
        for key, lines in tasks:
            if tuple(map(str, key)) in done:
                continue
            if time.monotonic() > stop:
                return
            found = [
                {name: f"{v:.6g}" if isinstance(v, float) else v for name, v in line.items()}
                for line in lines()
            ]
            out.writerows(found)
            file.flush()


def study_tasks(folder, only):
    """Yield (key, lines) for each combination of a data set, a way to train and a pair of seeds.

    lines() trains the models and yields the lines of the csv file. All ways to train are run with
    one pair of seeds before the next pair begins. If the script is stopped early, the results of
    all ways to train therefore cover about the same number of seeds.
    """
    sets = [simulated()] + ([movielens(folder), retail(folder)] if folder else [])
    sets = [data for data in sets if only is None or data.name == only]
    for first in range(0, SEEDS, 2):
        for data in sets:
            for label, marks, recipe in regimes(data.name):
                pair = first, first + 1

                def lines(data=data, label=label, marks=marks, recipe=recipe, pair=pair):
                    return lines_of(data, label, marks, recipe, pair)

                yield (data.name, label, first), lines


def forgetting_tasks(folder, only):
    """Yield (key, lines) for each data set, weight decay and seed.

    lines() measures how long SGD takes to forget its start, and returns one line of the csv file.
    """
    for seed in range(3):
        for data, decay, step in forgetting_cases(folder):
            if only is None or data.name == only:

                def lines(data=data, decay=decay, step=step, seed=seed):
                    return [forgetting(data, decay, step, seed)]

                yield (data.name, f"{decay:g}", seed), lines


def geometric(values):
    """Return the geometric mean and its 95 % t interval, which is NaN for a single value."""
    logs = np.log(values)
    width = scipy.stats.t.ppf(0.975, len(logs) - 1) * scipy.stats.sem(logs)
    return tuple(np.exp([logs.mean(), logs.mean() - width, logs.mean() + width]).tolist())


def arithmetic(values):
    """Return the mean and its 95 % t interval."""
    width = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
    return float(np.mean(values)), float(np.mean(values) - width), float(np.mean(values) + width)


MEANS = {
    "starts": geometric, "seeds": geometric, "balanced": geometric, "predicted": geometric,
    "forget": geometric, "overlap_starts": arithmetic, "overlap_starts_canonical": arithmetic,
    "overlap_seeds": arithmetic, "overlap_seeds_canonical": arithmetic,
}  # fmt: skip


def means(lines):
    """Return {(data, regime, epochs): {column: (mean, low, high)}} over all training runs."""
    groups = {}
    for line in lines:
        groups.setdefault((line["data"], line["regime"], int(line["epochs"])), []).append(line)
    found = {}
    for key, own in groups.items():
        if len(own) < SEEDS:
            continue
        values = {name: [float(line[name]) for line in own if line[name]] for name in MEANS}
        found[key] = {
            name: MEANS[name](np.array(numbers)) for name, numbers in values.items() if numbers
        }
    return found


def print_limits(forgetting_lines, study_lines):
    """Print how much the times and final scales of single training runs differ from predictions."""
    ratios = [
        float(line["measured_epochs"]) / float(line["predicted_epochs"])
        for line in forgetting_lines
    ]
    factors = np.exp(np.abs(np.log(ratios)))
    print(
        "The time to forget is within a factor of 1.5 of the prediction in "
        f"{np.sum(factors < 1.5)} of {len(factors)} training runs, and within a factor of "
        f"{factors.max():.2f} in all of them."
    )
    usual = sorted((float(line["usual_start_to_predicted"]), *map(line.get, FORGETTING[:3]))
                   for line in forgetting_lines)  # fmt: skip
    rescaled = [float(line["rescaled_start_to_predicted"]) for line in forgetting_lines]
    print(
        "After four times the time to forget, the condition to the predicted scale is at most "
        f"{max(rescaled):.3f}. From usual starts, it is at most 1.1 after twice that time in "
        f"{sum(condition <= 1.1 for condition, *_ in usual)} of {len(usual)} training runs; the "
        f"largest (condition, data, decay, seed) is {usual[-1]}."
    )
    rested = [float(line["predicted"]) for line in study_lines
              if line["forget"] and 2 * float(line["forget"]) <= float(line["epochs"])]  # fmt: skip
    if rested:
        print(
            f"{len(rested)} measurements came after at least twice the time to forget; "
            f"the condition to the predicted scale is then at most {max(rested):.3f}."
        )


def write_means(path, found):
    """Write a csv file with the means for each data set, way to train and number of epochs."""
    columns = [f"{name}{part}" for name in MEANS for part in ("", "_low", "_high")]
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("data", "regime", "epochs", *columns))
        for key, values in found.items():
            numbers = [values.get(name, ("", "", "")) for name in MEANS]
            cells = [f"{v:.4g}" if v != "" else "" for triple in numbers for v in triple]
            out.writerow((*key, *cells))


def factor(triple):
    """Return a condition and its interval as text."""
    if triple is None:
        return "-"
    mean, low, high = triple
    # A condition number is never below 1, so an interval that extends below 1 is cut off at 1.
    digits = 2 if mean < 9.95 else 1
    return f"{mean:.{digits}f} [{max(low, 1):.{digits}f}, {high:.{digits}f}]"


def share(triple):
    """Return an overlap and the half width of its interval as text."""
    mean, low, _ = triple
    return f"{mean:.2f} ± {mean - low:.2f}"


def study_table(found, data):
    """Return the Markdown table of one data set, with a row for each way to train."""
    head = ("trained by", "epochs", "other start", "other seed", "to balanced", "to predicted",
            "lists, other start", "lists, canonical, other start", "lists, other seed",
            "lists, canonical, other seed")  # fmt: skip
    out = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    labels = labels_of(data)
    keys = [key for key in found if key[0] == data and key[1] in labels]
    for key in sorted(keys, key=lambda key: (labels.index(key[1]), key[2])):
        row = found[key]
        cells = [key[1].replace("on both", "on users and items"), f"{key[2]:,}",
                 *(factor(row.get(name)) for name in ("starts", "seeds", "balanced", "predicted")),
                 *(share(row[name]) for name in MEANS if name.startswith("overlap"))]  # fmt: skip
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def forgetting_table(lines):
    """Return the Markdown table of how many epochs SGD takes to forget its start.

    Each number is the geometric mean of three training runs.
    """
    head = ("data", "decay per observation", "epochs to forget, predicted",
            "epochs to forget, measured",
            "rescaled start: condition between model and predicted scale",
            "rescaled start: condition between model and balanced form",
            "usual start: condition between model and predicted scale")  # fmt: skip
    out = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for key in dict.fromkeys((line["data"], line["decay"]) for line in lines):
        own = [line for line in lines if (line["data"], line["decay"]) == key]
        mean = {name: np.exp(np.mean([np.log(float(line[name])) for line in own]))
                for name in FORGETTING[3:]}  # fmt: skip
        cells = [*key, f"{mean['predicted_epochs']:.3g}", f"{mean['measured_epochs']:.3g}",
                 *(f"{mean[name]:.2f}" for name in
                   ("rescaled_start_to_predicted", "rescaled_start_to_balanced",
                    "usual_start_to_predicted"))]  # fmt: skip
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


# The marker and the colour of each data set in the figure.
STYLES = {
    "simulation": ("o", COLOURS[0]), "simulation, two noise levels": ("^", COLOURS[3]),
    "MovieLens": ("s", COLOURS[1]), "Online Retail": ("D", COLOURS[2]),
}  # fmt: skip
REFERENCE = {"color": "#555555", "linewidth": 1}  # The style of reference lines.


def figure(found, lines):
    """Draw three panels: the influence of the start, the time to forget it, and the final scale."""
    from matplotlib.figure import Figure

    with figure_style():
        drawn = Figure(figsize=(8.4, 8.6), layout="constrained")
        above, below = drawn.subfigures(2, 1, height_ratios=(1.75, 1))
        draw_starts(above.subplots(), found)
        left, right = below.subplots(1, 2)
        draw_times(left, lines)
        draw_ends(right, lines)
    return drawn


def draw_starts(ax, found):
    """For each way to train, draw a row with the condition between the runs from the two starts."""
    sets = list(dict.fromkeys(data for data, _, _ in found))
    # The last data sets were trained in more ways than the first ones. The labels are therefore
    # collected from the last data set to the first.
    names = dict.fromkeys(
        common_name(label) for data in reversed(sets) for label in labels_of(data)
    )
    places = {name: -place for place, name in enumerate(names)}
    for offset, data in enumerate(sets):
        marker, colour = STYLES[data]
        for label, marks, _ in regimes(data):
            values = [
                found[data, label, mark]["starts"][0]
                for mark in marks
                if (data, label, mark) in found
            ]
            if values:
                y = [places[common_name(label)] + 0.22 * (1 - offset)] * len(values)
                ax.plot(values, y, "-", color=colour, alpha=0.5, linewidth=1)
                ax.plot(values[:-1], y[:-1], marker, color=colour, markerfacecolor="white")
                ax.plot(values[-1], y[-1], marker, color=colour)
    for data in sets:
        marker, colour = STYLES[data]
        ax.plot([], [], marker, color=colour, label=f"{data}, at the end")
    ax.plot([], [], "o", color="#555555", markerfacecolor="white", label="after fewer epochs")
    conditions = {1.2: "1.2, the default\nof an audit", 4: "4, as far apart as\nthe starts"}
    for condition, text in conditions.items():
        ax.axvline(condition, zorder=0, linestyle=":", **REFERENCE)
        ax.annotate(text, (condition, 1.1), xytext=(3, 0), textcoords="offset points", va="center")
    ax.set_xscale("log")
    ax.set_xticks([1, 2, 4, 10, 30], ["1", "2", "4", "10", "30"])
    ax.minorticks_off()
    ax.set_yticks(list(places.values()), list(places))
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(0.97, 40), ylim=(min(places.values()) - 0.6, 1.8))
    ax.set_xlabel("condition of the rescaling between trainings from two starts (1: no difference)")
    ax.set_title("Does training forget the scale of its start?")
    ax.legend(loc="center right", bbox_to_anchor=(1, 0.75))


def draw_times(ax, lines):
    """Plot the measured against the predicted number of epochs until SGD forgets its start."""
    ends = np.array([1.5, 600])
    for width, dashes in ((1, "-"), (1.5, ":"), (1 / 1.5, ":")):
        ax.plot(ends, ends * width, linestyle=dashes, zorder=0, **REFERENCE)
    ax.annotate("solid: equal\ndotted: a factor of 1.5", (0.98, 0.03), xycoords="axes fraction",
                ha="right", va="bottom")  # fmt: skip
    draw_cases(ax, lines, "predicted_epochs", "measured_epochs")
    ax.set(xscale="log", yscale="log", xlabel="predicted", ylabel="measured")
    ax.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    ax.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    ax.minorticks_off()
    ax.set_title("Epochs until SGD forgets its start")
    ax.legend(loc="upper left")


def draw_ends(ax, lines):
    """Plot how far SGD ends from two scales: the predicted scale, and the balanced form."""
    draw_cases(ax, lines, "rescaled_start_to_balanced", "rescaled_start_to_predicted")
    ax.axhline(1.1, zorder=0, linestyle=":", **REFERENCE)
    ax.annotate("1.1", (1, 1.1), xytext=(0, 3), textcoords="offset points")
    ax.set(ylim=(0.995, 1.12), xlabel="condition to the balanced form",
           ylabel="condition to the prediction")  # fmt: skip
    ax.set_title("Where SGD ends (1: there)")


def draw_cases(ax, lines, x, y):
    """Draw a marker for each training run, in the style of its data set."""
    for case in dict.fromkeys(line["data"] for line in lines):
        marker, colour = STYLES[case]
        cases = [line for line in lines if line["data"] == case]
        ax.plot([float(line[x]) for line in cases], [float(line[y]) for line in cases], marker,
                color=colour, label=case)  # fmt: skip


def common_name(label):
    """Return the name of a way to train, which is the same for all data sets.

    The numbers for the step, the batch and the start differ between data sets, so the name contains
    words such as "small step" instead of these numbers.
    """
    for size, word in ((("start 0.05", "start 0.02"), "small start"),
                       (("start 0.5", "start 0.2"), "large start"),
                       (("step 0.003", "step 0.005"), "small step"),
                       (("step 0.01", "step 0.02"), "large step"),
                       (("batch 512", "batch 1024"), "batches")):  # fmt: skip
        for text in size:
            label = label.replace(text, word)
    return label


def labels_of(data):
    """For one data set, return the labels of all ways to train."""
    return [label for label, _, _ in regimes(data)]


def replace_table(page, name, text):
    """Return the page with the text between the two comments that contain this name."""
    start, end = (
        f"<!-- {name}: made by examples/scale_of_dimensions.py -->",
        f"<!-- end of {name} -->",
    )
    before, after = page.partition(start)[0], page.partition(end)[2]
    return f"{before}{start}\n\n{text}\n\n{end}{after}"


def main():
    """Train the models that the cache does not contain, and write the tables and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder that contains the data sets")
    parser.add_argument(
        "--cache", type=Path, required=True, help="folder for the lines of finished training runs"
    )
    parser.add_argument(
        "--seconds", type=float, default=np.inf, help="start no training run after this"
    )
    parser.add_argument("--only", help="train only on this data set")
    parser.add_argument("--output", type=Path, help="csv file for the means")
    parser.add_argument("--page", type=Path, help="Markdown file whose tables are replaced")
    parser.add_argument("--figure", type=Path, help="file for the figure")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    stop = time.monotonic() + given.seconds
    forget, trained = given.cache / "forgetting.csv", given.cache / "trainings.csv"
    fill(forget, FORGETTING, forgetting_tasks(given.data, given.only), stop)
    fill(trained, FIELDS, study_tasks(given.data, given.only), stop)
    found, lines = means(read(trained)), read(forget)
    print_limits(lines, read(trained))
    if given.output is not None:
        write_means(given.output, found)
    if given.figure is not None:
        figure(found, lines).savefig(given.figure, dpi=130)
    if given.page is not None:
        page = replace_table(given.page.read_text("utf8"), "forgetting", forgetting_table(lines))
        for data in dict.fromkeys(data for data, _, _ in found):
            page = replace_table(page, data, study_table(found, data))
        given.page.write_text(page, "utf8")


if __name__ == "__main__":
    main()
