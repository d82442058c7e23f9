"""For the tests of the commands: figures are laid out, but their shapes are not written."""

from pathlib import Path

import pytest


def write_empty(canvas, file, **options):
    """Write an SVG without shapes to a path or a file, as FigureCanvasSVG.print_svg."""
    text = "<svg ></svg>"
    file.write(text) if hasattr(file, "write") else Path(file).write_text(text)


@pytest.fixture(autouse=True)
def figures_without_shapes(monkeypatch):
    """Leave figures empty: drawing them takes most of the time of a command.

    tests/plots draws them, and so do the fixtures of modules, such as those of test_audit.py.
    """
    monkeypatch.setattr("matplotlib.backends.backend_svg.FigureCanvasSVG.print_svg", write_empty)
