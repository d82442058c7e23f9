"""Figures of a model and of an audit: drawn where asked, in the style of the house, never shown."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import _pylab_helpers
from matplotlib.figure import Figure

from fastcos import LinearMF, audit, rescalings, simulate_interactions
from fastcos.plots.rescalings import RescalingsDisplay, SurvivalDisplay
from fastcos.plots.style import COLOURS, line


@pytest.fixture(scope="module")
def model():
    return LinearMF(6, regularization=50.0).fit(simulate_interactions(200, 40, random_state=0).X)


@pytest.fixture(scope="module")
def card():
    return audit(np.random.default_rng(0).standard_normal((100, 5)), k=4)


@pytest.fixture
def displays(model, card):
    return [RescalingsDisplay.from_estimator(model), SurvivalDisplay.from_audit(card)]


def test_the_columns_have_the_norms_of_theory(model):
    s, shrinkage = model.singular_values_, model.shrinkage_
    lines = RescalingsDisplay.from_estimator(model).norms
    assert len(lines) == len(rescalings())
    for named, norms in zip(rescalings(), lines.values(), strict=True):
        a, b = named.rescaling.item_exponents
        expected = shrinkage**a * s**b  # V has unit columns: items are V S^a Σ^b
        np.testing.assert_allclose(norms, expected / expected.max(), rtol=1e-5)


def test_a_model_of_eq2_has_no_rescalings_to_draw(model):
    unique = model.reregularized("weight_decay", 1.0)
    with pytest.raises(ValueError, match="objective of the model must be one of dropout, got"):
        RescalingsDisplay.from_estimator(unique)


def test_the_survival_is_that_of_the_card(card):
    display = SurvivalDisplay.from_audit(card)
    assert display.condition.tolist() == [point.condition for point in card.survival]
    drawn = display.plot().ax_.get_lines()
    for curve, name in zip(
        drawn, ("survives_attack", "certified", "certified_linear"), strict=True
    ):
        assert curve.get_ydata().tolist() == [getattr(point, name) for point in card.survival]


def test_displays_draw_on_given_axes_and_return_themselves(displays):
    axes = Figure().subplots(1, 2)
    for display, ax in zip(displays, axes, strict=True):
        assert display.plot(ax=ax) is display
        assert display.ax_ is ax
        assert display.figure_ is ax.figure


def test_every_axis_is_labelled_and_nothing_is_shown(displays):
    before = dict(mpl.rcParams)
    for display in displays:
        display.plot()
        assert display.ax_.get_xlabel()
        assert display.ax_.get_ylabel()
        assert display.ax_.get_title(loc="left")
    assert dict(mpl.rcParams) == before
    assert not _pylab_helpers.Gcf.figs


def test_lines_differ_in_colour_dashes_and_marker():
    styles = [line(number) for number in range(len(COLOURS))]
    assert len({style["color"] for style in styles}) == len(COLOURS)
    assert len({style["marker"] for style in styles}) == len(COLOURS)
