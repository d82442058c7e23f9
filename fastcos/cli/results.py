"""Files and tables of a comparison."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastcos import io
from fastcos.cli.leaderboard import leaderboard_document, write_figure
from fastcos.cli.terminal import print_json, print_table, say
from fastcos.comparison import EQ2, Comparison, RescalingScores
from fastcos.storage import provenance

# heading, field
COLUMNS = (
    ("AUC", "pair_auc"),
    ("MAP@R", "map_at_r"),
    ("AMI", "ami"),
    ("ARI", "ari"),
    ("silhouette", "silhouette"),
    ("within", "within"),
    ("between", "between"),
    ("d'", "contrast"),
    ("eff. rank", "effective_rank"),
    ("Jaccard@10", "jaccard_at_10"),
)


def document(comparison: Comparison, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return scores and everything needed to repeat them, JSON-ready."""
    scores = {
        "named": [row._asdict() for row in comparison.named],
        "grid": [row._asdict() for row in comparison.grid],
    }
    leaderboard = leaderboard_document(comparison.leaderboard)
    return {
        **provenance.provenance(parameters),
        "scores": provenance.json_ready(scores),
        "leaderboard": leaderboard,
    }


def write_comparison(
    comparison: Comparison, folder: Path, *, stem: str, parameters: dict[str, Any]
) -> list[Path]:
    """Write figure, table and provenance; each file appears whole or not at all."""
    from fastcos.plots import ExponentGridDisplay, SimilarityMapsDisplay

    folder.mkdir(parents=True, exist_ok=True)
    maps = SimilarityMapsDisplay.from_comparison(comparison).plot().figure_
    written = write_figure(maps, folder, stem)
    if comparison.labels is not None and comparison.grid:
        grid = ExponentGridDisplay.from_comparison(comparison).plot().figure_
        written += write_figure(grid, folder, "exponents", kinds=("png",))
    io.write_csv(
        folder / f"{stem}.csv", RescalingScores._fields, [*comparison.named, *comparison.grid]
    )
    io.write_json(folder / f"{stem}.json", document(comparison, parameters))
    return [*written, folder / f"{stem}.csv", folder / f"{stem}.json"]


def show_comparison(
    comparison: Comparison, written: Sequence[Path], parameters: dict[str, Any], *, as_json: bool
) -> None:
    """Print the table and what it says, or the JSON document."""
    if as_json:
        print_json(document(comparison, parameters))
    else:
        columns = [  # without labels most of them are empty
            (heading, name)
            for heading, name in COLUMNS
            if any(getattr(row, name) is not None for row in comparison.named)
        ]
        rows = [
            [
                f"{row.name}  D = {row.formula}" if row.name != EQ2 else "eq2  unique",
                *(getattr(row, name) for _, name in columns),
            ]
            for row in comparison.named
        ]
        title = "Item-item cosine under every rescaling D of one model (Eq. 1), and under Eq. 2"
        print_table(title, ["rescaling", *(heading for heading, _ in columns)], rows)
        _print_conclusion(comparison)
    say("wrote " + ", ".join(str(path) for path in written))


def _print_conclusion(comparison: Comparison) -> None:
    zero = comparison.named[0].zero_items if comparison.named else 0
    if zero:
        print(f"{zero} items have no direction (no interactions): left out of every score.")
    named, grid = comparison.auc_range(), comparison.auc_range(grid=True)
    if named is None or grid is None:
        return
    print(
        f"One model, one loss: AUC differs by {named:.3f} between the named rescalings "
        f"and by {grid:.3f} over the exponent grid D = S^a Σ^b."
    )
