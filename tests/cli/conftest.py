"""The tests of the commands save time: figures have only one width, and their files are empty."""

from pathlib import Path

import pytest


def write_empty(canvas, file, **options):
    """Replace FigureCanvasSVG.print_svg: write an SVG without shapes to a path or a file."""
    text = "<svg ></svg>"
    file.write(text) if hasattr(file, "write") else Path(file).write_text(text)


@pytest.fixture(autouse=True)
def figures_without_shapes(monkeypatch):
    """Write figures as empty SVG files, because drawing takes most of the time of a command.

    For the same reason, each figure of a page is laid out at only one of its two widths.

    The tests in tests/plots draw figures, and so do module-wide fixtures such as `audited` in
    test_audit.py.
    """
    monkeypatch.setattr("matplotlib.backends.backend_svg.FigureCanvasSVG.print_svg", write_empty)
    monkeypatch.setattr("fastcos.plots.html.svg.WIDTHS", {"wide": 700})
