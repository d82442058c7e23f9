"""Write comparisons and leaderboards to files, and print them as tables.

Every file is written atomically, so that it is either complete or missing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos import io
from fastcos.cli.terminal import say, show_sections, show_table, show_text
from fastcos.storage import provenance

if TYPE_CHECKING:
    from fastcos.comparison import Comparison, Leaderboard

# Resolution of images in dots per inch. With these resolutions, a file that shows Figure 1 for
# 1,000 items in nine panels takes less than 500 kB.
DOTS_PER_INCH = {"png": 150, "svg": 64}
# A PNG file of similarity maps uses N_COLOURS colours for the colour scale and N_GREYS greys for
# texts.
N_COLOURS, N_GREYS = 128, 16


def write_comparison(
    comparison: "Comparison", folder: Path, *, stem: str, parameters: dict[str, Any], every: bool
) -> tuple[list[Path], dict[str, Any]]:
    """Write the figures, the table of rescalings and a JSON document.

    Return the paths and the document. If `every` is true, the figure has a panel for each named
    rescaling.
    """
    from fastcos.plots import ExponentGridDisplay, SimilarityMapsDisplay

    folder.mkdir(parents=True, exist_ok=True)
    maps = SimilarityMapsDisplay.from_comparison(comparison, every=every).plot().figure_
    paths = write_figure(maps, folder, stem, of_maps=True)
    if comparison.labels is not None and comparison.grid:
        grid = ExponentGridDisplay.from_comparison(comparison).plot().figure_
        paths += write_figure(grid, folder, "exponents", kinds=("png",))
    rows = [row.to_dict() for row in (*comparison.named, *comparison.grid)]
    io.write_csv(folder / f"{stem}.csv", tuple(rows[0]), (tuple(row.values()) for row in rows))
    document = provenance.provenance(parameters) | provenance.json_ready(comparison.to_dict())
    io.write_json(folder / f"{stem}.json", document)
    return [*paths, folder / f"{stem}.csv", folder / f"{stem}.json"], document


def write_leaderboard(leaderboard: "Leaderboard", folder: Path, stem: str) -> list[Path]:
    """Write the ranking as a csv file and as a figure."""
    from fastcos.plots import LeaderboardDisplay

    rows = [row.to_dict() for row in leaderboard.rows]
    csv = folder / f"{stem}.csv"
    io.write_csv(csv, tuple(rows[0]), (tuple(row.values()) for row in rows))
    figure = LeaderboardDisplay.from_leaderboard(leaderboard).plot().figure_
    return [csv, *write_figure(figure, folder, stem)]


def write_figure(
    figure: Any,
    folder: Path,
    stem: str,
    *,
    kinds: Sequence[str] = ("png", "svg"),
    of_maps: bool = False,
) -> list[Path]:
    """Write a figure to one file of each kind, such as png; return the paths of the files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    paths = [folder / f"{stem}.{kind}" for kind in kinds]
    for target in paths:
        kind = target.suffix[1:]
        figure.set_dpi(DOTS_PER_INCH[kind])
        with io.atomic_path(target) as path:
            # The canvases are called directly, because savefig draws every figure twice.
            if kind == "svg":
                FigureCanvasSVG(figure).print_svg(path)
            elif of_maps:
                canvas = FigureCanvasAgg(figure)
                canvas.draw()
                _with_few_colours(canvas.buffer_rgba()).save(path, "PNG")
            else:
                FigureCanvasAgg(figure).print_png(path)
        # The layout is computed for the first file. Because the layout is in inches, it is valid
        # for every file format and is reused for the remaining files.
        figure.set_layout_engine("none")
    return paths


def _with_few_colours(pixels: Any) -> Any:
    """Convert the RGBA pixels of a figure of similarity maps to an image with a palette.

    The image takes one byte per pixel instead of four.
    """
    from matplotlib import colormaps
    from PIL import Image

    from fastcos.plots.style import MAP_COLOURS

    scale = colormaps[MAP_COLOURS].resampled(N_COLOURS)(range(N_COLOURS))[:, :3]
    # The shades of grey run from black to a light grey, which is darker than the middle of the
    # colour scale. The last colour is white.
    greys = np.append(np.linspace(0, 0.8, N_GREYS - 1), 1)[:, None].repeat(3, axis=1)
    palette = Image.new("P", (1, 1))
    palette.putpalette((255 * np.vstack([scale, greys])).round().astype(np.uint8).tobytes())
    image = Image.fromarray(np.asarray(pixels)).convert("RGB")
    return image.quantize(palette=palette, dither=Image.Dither.NONE)


def show_comparison(comparison: "Comparison") -> None:
    """Print the table of rescalings, and then the conclusion that follows from the table."""
    from fastcos.comparison.result import rescalings_table

    show_table(rescalings_table(comparison.named))
    if zero := comparison.named[0].zero_items:
        show_text(
            f"{zero} items have no interactions, so their embeddings are zero and have no cosine. "
            "The scores are computed without these items."
        )
    named_range, grid_range = comparison.auc_range(), comparison.auc_range(grid=True)
    if named_range is not None and grid_range is not None:
        show_text(
            "All rescalings give the same predictions and the same loss. However, the AUC varies "
            f"by {named_range:.3f} among the named rescalings. On a grid of rescalings D = S^a Σ^b "
            f"with exponents a and b, the AUC varies by {grid_range:.3f}."
        )


def show_leaderboard(leaderboard: "Leaderboard", name: str = "") -> None:
    """Print the conclusion, and the best row of every measure."""
    show_text(f"{name}: {leaderboard.conclusion}" if name else leaderboard.conclusion)
    show_sections(leaderboard.sections())
    if leaderboard.left_out:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in leaderboard.left_out.items())
        say(
            "measures that were not evaluated (in brackets: the data that the measure needs, or "
            f"the limit that it exceeds): {reasons}"
        )
