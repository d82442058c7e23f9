"""The roofline shows every operation at its place, and below the limits that were measured."""

import json

import pytest

from bench import roofline, tables

NAMES = ("name", "operations", "bytes", "seconds", "percent_of_limit", "limited_by")
POINTS = [
    dict(zip(NAMES, ("search", 8e9, 1e6, 2.0, 40.0, "tile"), strict=True)),
    dict(zip(NAMES, ("selection", 0.0, 1e6, 0.1, 70.0, "copy"), strict=True)),
]


@pytest.fixture(scope="module")
def axes():
    return roofline.draw(POINTS, {"tile": 1e11, "gemm": 1e10}, 2e10).axes


def test_roofline_places_points_by_intensity_and_rate(axes):
    markers = [line.get_xydata().tolist() for line in axes[0].lines if len(line.get_xdata()) == 1]
    assert markers == [[[8e3, 4.0]]]


def test_roofline_roofs_are_bandwidth_then_peak(axes):
    tile = axes[0].lines[0].get_xydata()
    assert tile[0, 1] == pytest.approx(20 * tile[0, 0])
    assert tile[-1, 1] == pytest.approx(100)


def test_roofline_bars_have_all_operations(axes):
    assert [bar.get_width() for bar in axes[1].patches] == [40.0, 70.0]
    assert [text.get_text() for text in axes[1].texts] == [" 40% of tile", " 70% of copy"]


def test_roofline_has_the_published_kernels():
    rows = json.loads(tables.RECORD.read_text("utf8"))
    points = roofline.points_of(rows)
    assert len(points) > 15
    assert all(one["seconds"] > 0 and one["percent_of_limit"] > 0 for one in points)
    assert sum(one["bytes"] > 0 for one in points) > 15
    assert len({one["name"] for one in points}) == len(points)
