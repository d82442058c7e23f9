"""Draws the figures of these pages: python docs/figures.py, about a minute on two cores."""

from pathlib import Path

import fastcos
from fastcos.displays import RescalingsDisplay, SurvivalDisplay
from fastcos.plots import ExponentGridDisplay

FOLDER = Path(__file__).parent / "figures"
DOTS_PER_INCH = 130


def main() -> None:
    """Simulate at the size of the paper, fit, and draw."""
    FOLDER.mkdir(exist_ok=True)
    data = fastcos.simulate_interactions(seed=0)
    comparison = fastcos.compare(data.X, data.item_cluster, regularization=10_000)
    model = comparison.models["dropout"]
    card = fastcos.audit(
        model.item_embeddings(), model.transform(data.X), k=10, condition=1.1, seed=0
    )
    for name, display in (
        ("rescalings", RescalingsDisplay.from_estimator(model)),
        ("survival", SurvivalDisplay.from_audit(card)),
        ("exponents", ExponentGridDisplay.from_comparison(comparison)),
    ):
        display.plot().figure_.savefig(FOLDER / f"{name}.png", dpi=DOTS_PER_INCH)
    for point in card.survival:
        print(point)


if __name__ == "__main__":
    main()
