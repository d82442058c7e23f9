"""Figures of a model and of an audit have the same style, and are drawn on the given axes.

Drawing a figure does not show it.
"""

import dataclasses

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import _pylab_helpers
from matplotlib.figure import Figure

from fastcos import LinearMF, audit, rescalings, simulate_interactions
from fastcos.plots import (
    DimensionSharesDisplay,
    LabelRecoveryDisplay,
    RescalingsDisplay,
    RobustnessDisplay,
)
from fastcos.plots.style import COLOURS, line_style


@pytest.fixture(scope="module")
def model():
    return LinearMF(6, regularization=50.0).fit(simulate_interactions(200, 40, random_state=0).X)


@pytest.fixture(scope="module")
def report():
    items = np.random.default_rng(0).standard_normal((100, 5))
    return audit(items, labels=np.arange(100) % 2, k=4)


@pytest.fixture
def displays(model, report):
    return [
        RescalingsDisplay.from_estimator(model),
        RobustnessDisplay(report),
        DimensionSharesDisplay(report),
        LabelRecoveryDisplay(report.label_recovery),
    ]


def test_rescalings_display_has_the_norms_of_theory(model):
    s, shrinkage = model.singular_values_, model.shrinkage_
    lines = RescalingsDisplay.from_estimator(model).norms
    assert len(lines) == len(rescalings())
    for named, norms in zip(rescalings(), lines.values(), strict=True):
        a, b = named.rescaling.item_exponents
        expected = shrinkage**a * s**b  # V has unit columns, and the items are V S^a Σ^b.
        np.testing.assert_allclose(norms, expected / expected.max(), rtol=1e-5)


def test_rescalings_display_refuses_a_model_of_eq2(model):
    unique = model.reregularized("weight_decay", 1.0)
    with pytest.raises(ValueError, match="objective of the model must be one of dropout, got"):
        RescalingsDisplay.from_estimator(unique)


def test_robustness_display_draws_the_curve_of_the_report(report):
    display = RobustnessDisplay(report)
    verdict, *drawn = display.plot().ax_.get_lines()
    curves = ("unbroken", "certified", "certified_linear", "worst_rescaling", "worst_linear",
              "random_rescaling")  # fmt: skip
    assert verdict.get_xdata() == [report.condition] * 2
    for curve, name in zip(drawn, curves, strict=True):
        assert curve.get_ydata().tolist() == [getattr(point, name) for point in report.robustness]
    (band,) = display.ax_.collections
    edges = band.get_paths()[0].vertices
    for point in report.robustness:
        heights = edges[np.isclose(edges[:, 0], point.condition), 1]
        assert {heights.min(), heights.max()} == {point.certified, point.unbroken}


@pytest.mark.parametrize("condition", [1.0, 2.0, 30.0, 1e15])
def test_robustness_display_labels_ticks_apart(report, condition):
    last = dataclasses.replace(report.robustness[-1], condition=max(2.0, condition))
    longer = dataclasses.replace(report, robustness=(*report.robustness[:-1], last))
    ax = RobustnessDisplay(longer).plot().ax_
    places = ax.transData.transform([(tick, 0) for tick in ax.get_xticks()])[:, 0]
    assert np.diff(places).min() > 30


@pytest.mark.slow
def test_dimension_shares_display_draws_the_largest():
    wide = audit(np.random.default_rng(1).standard_normal((80, 70)), k=3)
    heights = [bar.get_height() for bar in DimensionSharesDisplay(wide).plot().ax_.patches]
    largest = np.sort(wide.dimension_shares)[-64:]
    assert heights == [share for share in wide.dimension_shares if share >= largest[0]]


def test_label_recovery_display_draws_both_rescalings(report):
    result = report.label_recovery
    worst, best = LabelRecoveryDisplay(result).plot().ax_.get_lines()
    np.testing.assert_allclose(worst.get_ydata(), 1 / result.low_rescaling)
    np.testing.assert_allclose(best.get_ydata(), 1 / result.high_rescaling)


def test_plot_draws_on_given_axes_and_returns_itself(displays):
    axes = Figure().subplots(2, 2).ravel()
    for display, ax in zip(displays, axes, strict=True):
        assert display.plot(ax=ax) is display
        assert display.ax_ is ax
        assert display.figure_ is ax.figure


def test_plot_labels_axes_and_shows_nothing(displays):
    before = dict(mpl.rcParams)
    for display in displays:
        display.plot()
        assert display.ax_.get_xlabel()
        assert display.ax_.get_ylabel()
        assert display.ax_.get_title(loc="left")
    assert dict(mpl.rcParams) == before
    assert not _pylab_helpers.Gcf.figs


def test_line_styles_differ_in_colour_and_marker():
    styles = [line_style(number) for number in range(len(COLOURS))]
    assert len({style["color"] for style in styles}) == len(COLOURS)
    assert len({style["marker"] for style in styles}) == len(COLOURS)
