"""Draw the moving picture of the README: python docs/animation.py, half a minute on two cores.

The script fits one model of Eq. 1 at the size of the paper. The script then rescales this model by
D = S^a Σ^b, and moves the exponents a and b along a path. For every frame, the script computes the
cosines, the loss and the predictions anew from the rescaled factors. The picture shows that only
the cosines change.

    python docs/animation.py --means    # the table of the README: ten simulations, four minutes
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

import fastcos
from fastcos.plots import similarity_image
from fastcos.plots.style import COLOURS, MAP_COLOURS

PATH = Path(__file__).parent / "figures" / "rescaling.gif"
# FIXED is the colour of numbers that stay the same if D changes. MOVING is the colour of numbers
# that change with D.
FIXED, MOVING = COLOURS[0], COLOURS[1]
# A stop is a point (a, b) on the path, with the text that the picture shows at this point.
STOPS = (
    ((0.5, 0.0), "first special case (2.2)"),
    ((0.0, 0.0), "symmetric solution, Eq. 5"),
    ((0.0, -0.5), "end of section 2.3"),
)
# The table in the README also shows a case that the picture leaves out: the second special case of
# section 2.2 of the paper.
IN_TABLE = (*STOPS, ((-0.5, 0.0), "second special case (2.2)"))
N_SIMULATIONS = 10  # The seeds are 0 to 9; the picture shows the simulation with the seed 0.
STEPS = 9  # The number of frames between two stops.
# A stop is shown for REST milliseconds, and each frame between two stops for STEP milliseconds.
REST, STEP = 2200, 110
# The size of the picture in pixels. A page on GitHub is about 860 pixels wide.
WIDTH, HEIGHT = 860, 470
# The heat map has BLOCKS x BLOCKS cells and is SIDE pixels wide. Each cell shows the mean cosine
# between two blocks of items.
BLOCKS, SIDE = 120, 360
N_COLOURS = 128
N_USERS = 3  # The picture shows the highest prediction of this many users.


class Model:
    """A fitted model that computes, for any rescaling D, the quantities that the picture shows."""

    def __init__(self, data: fastcos.models.Simulation, rank: int = 50) -> None:
        self.X = data.X.astype(np.float64)
        self.labels = data.item_cluster
        self.fitted = fastcos.LinearMF(rank, regularization=len(data.user_preference) / 2).fit(
            self.X
        )
        self.gram = (self.X.T @ self.X).toarray()
        by_activity = np.argsort(-np.diff(self.X.indptr), kind="stable")
        self.users = by_activity[:: len(by_activity) // 20][:N_USERS]
        popularity = np.asarray(self.X.sum(axis=0)).ravel()
        self.order = np.lexsort((-popularity, self.labels))
        self.boundaries = np.flatnonzero(np.diff(self.labels[self.order])) + 1
        # This item of the second cluster is popular, but it is not the most popular one.
        self.item = self.order[self.boundaries[0] + len(self.order) // 25]

    def items(self, D: fastcos.Rescaling) -> np.ndarray:
        """Return the item embeddings B D^-1."""
        return np.asarray(self.fitted.item_embeddings(D), dtype=np.float64)

    def auc(self, D: fastcos.Rescaling) -> float:
        """Return the AUC of the clusters.

        The AUC is the probability that two items of the same cluster have a higher cosine than two
        items of different clusters.
        """
        return fastcos.metrics.pair_auc(self.items(D), self.labels).value

    def neighbors(self, D: fastcos.Rescaling) -> list[int]:
        """Return the five nearest neighbours of the item `self.item`."""
        items = self.items(D)
        found = fastcos.top_k(items[self.item], items, 6).indices[0].tolist()
        return [one for one in found if one != self.item][:5]

    def condition(self, D: fastcos.Rescaling) -> float:
        """Return the largest entry of D divided by its smallest entry."""
        fitted = self.fitted
        entries = fitted.shrinkage_**D.shrinkage * fitted.singular_values_**D.spectrum
        return float(entries.max() / entries.min())

    def loss(self, D: fastcos.Rescaling) -> float:
        """Return the loss of Eq. 1, ‖X - X A B'‖² + λ ‖A B'‖², of the rescaled factors."""
        S, sigma = self.fitted.shrinkage_, self.fitted.singular_values_
        a, b = D.shrinkage, D.spectrum
        A = self.fitted.components_.T * (S ** (0.5 + a) * sigma**b)
        W = A @ self.items(D).T
        rest = np.eye(len(W)) - W
        penalty = self.fitted.regularization_ * np.square(W).sum()
        return float((rest * (self.gram @ rest)).sum() + penalty)

    def predictions(self, D: fastcos.Rescaling) -> list[str]:
        """For each of a few users, return the highest prediction of the rescaled factors."""
        users = self.fitted.user_embeddings(self.X[self.users], D)
        scores = users @ self.items(D).T
        best = scores.argmax(axis=1)
        return [
            f"user {number}, item {item}:  {row[item]:.4f}"
            for number, item, row in zip(self.users, best, scores, strict=True)
        ]


def power(symbol: str, exponent: float) -> str:
    """Return a factor of D in TeX; its exponent has two decimals, so the width stays the same."""
    return f"{symbol}^{{{exponent:.2f}}}"


class Picture:
    """A figure whose moving parts are replaced from frame to frame."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor="white")
        self.canvas = FigureCanvasAgg(self.figure)
        self.text(18, 32, "One trained model. D rescales its dimensions; nothing is trained again.",
                  size=13.5, weight="bold")  # fmt: skip
        self.draw_pad()
        self.draw_map()
        left = 622
        self.text(left, 84, "D changes the cosines", color=MOVING, size=11.5, weight="bold")
        self.text(left, 104, "AUC of the true clusters", size=9.5)
        self.auc = self.text(left, 148, "", color=MOVING, size=26, weight="bold")
        self.text(left, 176, f"five nearest of item {model.item}", size=9.5)
        self.neighbors = self.text(left, 197, "", color=MOVING, size=10)
        self.text(left, 252, "The model is the same", color=FIXED, size=11.5, weight="bold")
        self.text(left, 272, "loss of Eq. 1", size=9.5)
        self.loss = self.text(left, 304, "", color=FIXED, size=18, weight="bold")
        self.text(left, 334, "highest predictions of three users", size=9.5)
        self.predictions = [
            self.text(left, 356 + 20 * row, "", color=FIXED, size=10) for row in range(N_USERS)
        ]

    def text(self, x, y, text, size=10, **style):
        """Write a text at the position (x, y), in pixels from the upper left corner."""
        place = x / WIDTH, 1 - y / HEIGHT
        return self.figure.text(*place, text, fontsize=size, va="baseline", **style)

    def axes(self, x, y, side):
        """Return square axes without ticks; x, y and side are pixels from the upper left corner."""
        ax = self.figure.add_axes((x / WIDTH, 1 - (y + side) / HEIGHT, side / WIDTH, side / HEIGHT))
        ax.set(xticks=[], yticks=[])
        return ax

    def draw_pad(self) -> None:
        """Draw a map of the AUC over the exponents (a, b), and the point that moves on this map."""
        a, b = np.linspace(-0.2, 0.7, 19), np.linspace(-0.7, 0.2, 19)
        auc = np.array([[self.model.auc(fastcos.Rescaling(x, y)) for x in a] for y in b])
        ax = self.axes(18, 100, 190)
        self.text(18, 90, "the choice of D", size=11.5, weight="bold")
        ax.imshow(np.round(auc * 32) / 32, extent=(a[0], a[-1], b[0], b[-1]), origin="lower",
                  cmap="cividis", vmin=0.5, vmax=1, interpolation="nearest")  # fmt: skip
        for (x, y), _ in STOPS:
            ax.plot(x, y, "o", color="white", markeredgecolor="black", markersize=6)
        (self.trace,) = ax.plot([], [], color="white", linewidth=1.2, linestyle=":")
        (self.point,) = ax.plot([], [], "o", color=MOVING, markeredgecolor="white", markersize=13)
        self.text(18, 304, "exponent of S \N{RIGHTWARDS ARROW}", size=8.5)
        self.text(6, 290, "exponent of Σ \N{RIGHTWARDS ARROW}", size=8.5, rotation=90)
        self.text(18, 322, "yellow: the clusters are recovered", size=8.5)
        self.formula = self.text(18, 358, "", color=MOVING, size=16)
        self.meaning = self.text(18, 384, "", color=MOVING, size=10)
        self.text(18, 424, "S: shrinkage of Eq. 1", size=8.5)
        self.text(18, 440, "Σ: singular values of the data", size=8.5)

    def draw_map(self) -> None:
        """Draw the heat map of the cosines of all pairs of items."""
        self.text(236, 90, "cosines of 1,000 items, five true clusters", size=10.5)
        ax = self.axes(236, 100, SIDE)
        self.image = ax.imshow(np.zeros((BLOCKS, BLOCKS)), cmap=MAP_COLOURS, vmin=-1, vmax=1,
                               interpolation="nearest")  # fmt: skip
        for boundary in self.model.boundaries * BLOCKS / len(self.model.order) - 0.5:
            ax.axhline(boundary, color="black", linewidth=0.6)
            ax.axvline(boundary, color="black", linewidth=0.6)

    def frame(self, a: float, b: float, meaning: str, walked: list[tuple[float, float]]):
        """Return the picture at D = S^a Σ^b."""
        D, model = fastcos.Rescaling(a, b), self.model
        pixels = similarity_image(model.items(D), model.order, pixels=BLOCKS)
        self.image.set_data(np.round(pixels * 12) / 12)  # Few colours make a small file.
        self.point.set_data([a], [b])
        self.trace.set_data(*zip(*walked, strict=True))
        self.formula.set_text(f"$D = {power('S', a)}\\,{power(chr(92) + 'Sigma', b)}$")
        self.meaning.set_text(meaning)
        self.auc.set_text(f"{model.auc(D):.3f}")
        self.neighbors.set_text("  ".join(map(str, model.neighbors(D))))
        self.loss.set_text(f"{model.loss(D):,.1f}")
        for line, text in zip(self.predictions, model.predictions(D), strict=True):
            line.set_text(text)
        self.canvas.draw()
        return Image.fromarray(np.asarray(self.canvas.buffer_rgba())).convert("RGB")


def aucs(data: fastcos.models.Simulation) -> dict[str, float]:
    """Return the AUC of each similarity in the table of the README, by its name."""
    model = Model(data)
    scores = {meaning: model.auc(fastcos.Rescaling(*place)) for place, meaning in IN_TABLE}
    n_users = len(data.user_preference)
    weight_decay = fastcos.LinearMF(50, regularization=n_users / 200, objective="weight_decay")
    items = weight_decay.fit(model.X).item_embeddings()
    scores["Eq. 2"] = fastcos.metrics.pair_auc(items, model.labels).value
    users = model.fitted.transform(model.X)
    rows = fastcos.query_metric(users).transform(model.fitted.item_embeddings())
    scores["query metric"] = fastcos.metrics.pair_auc(rows, model.labels).value
    return scores


def print_means() -> None:
    """Print the AUC in the simulation of the picture, and its mean over ten simulations."""
    simulations = [
        aucs(fastcos.simulate_interactions(random_state=seed)) for seed in range(N_SIMULATIONS)
    ]
    for name, first in simulations[0].items():
        values = [scores[name] for scores in simulations]
        mean, deviation = np.mean(values), np.std(values, ddof=1)
        print(f"{name}: {first:.3f}; mean {mean:.3f}, standard deviation {deviation:.3f}")


def main() -> None:
    """Simulate at the size of the paper, fit once, and draw every frame."""
    picture = Picture(Model(fastcos.simulate_interactions(random_state=0)))
    frames, durations, walked = [], [], []
    for number, (start, meaning) in enumerate(STOPS):
        end, _ = STOPS[(number + 1) % len(STOPS)]
        for step in range(STEPS + 1):
            share = (1 - np.cos(np.pi * step / (STEPS + 1))) / 2
            place = tuple(float(x + share * (y - x)) for x, y in zip(start, end, strict=True))
            walked.append(place)
            frames.append(picture.frame(*place, meaning if step == 0 else "", walked))
            durations.append(REST if step == 0 else STEP)
    for (a, b), meaning in STOPS:
        factors = fastcos.Rescaling(a, b)
        print(f"{meaning}: condition {picture.model.condition(factors):.1f} relative to D = I")
    # All frames share one palette, so that colours do not flicker and equal pixels stay equal.
    stops = [np.asarray(one) for one in frames[:: STEPS + 1]]
    palette = Image.fromarray(np.concatenate(stops)).quantize(N_COLOURS)
    few = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in frames]
    few[0].save(PATH, save_all=True, append_images=few[1:], duration=durations, loop=0,
                optimize=True)  # fmt: skip
    print(f"{PATH}: {len(few)} frames, {PATH.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    print_means() if sys.argv[1:] == ["--means"] else main()
