import numpy as np
import pytest

from fastcos import compare
from fastcos.plots import ExponentGridDisplay, SimilarityMapsDisplay, similarity_image
from tests.comparison.test_compare import clustered_interactions


@pytest.fixture(scope="module")
def comparison():
    X, clusters = clustered_interactions()
    return compare(X, clusters, n_components=6, regularization=30.0, measures=["cosine"])


def cosine_matrix(rows):
    lengths = np.linalg.norm(rows, axis=1)
    lengths[lengths == 0] = 1
    units = rows / lengths[:, None]
    return units @ units.T


def test_small_image_is_the_cosine_matrix():
    rows = np.random.default_rng(0).standard_normal((9, 4))
    rows[3] = 0
    order = np.array([4, 3, 8, 0])
    np.testing.assert_allclose(
        similarity_image(rows, order), cosine_matrix(rows)[np.ix_(order, order)], atol=1e-12
    )


@pytest.mark.parametrize(("n", "pixels"), [(10, 3), (7, 7), (100, 9), (8, 1)])
def test_large_image_holds_block_means(n, pixels):
    rows = np.random.default_rng(n).standard_normal((n, 5))
    image = similarity_image(rows, np.arange(n), pixels=pixels)
    cosines = cosine_matrix(rows)
    cuts = [i * n // pixels for i in range(pixels + 1)]
    for a in range(pixels):
        for b in range(pixels):
            block = cosines[cuts[a] : cuts[a + 1], cuts[b] : cuts[b + 1]]
            assert image[a, b] == pytest.approx(block.mean(), abs=1e-12)


def test_panels_are_truth_then_ascending_auc_then_eq2(comparison):
    display = SimilarityMapsDisplay.from_comparison(comparison)
    shown = [title.split("AUC ")[1][:5] for title in display.titles[1:-1]]
    assert shown == sorted(shown)
    assert display.titles[0].startswith("truth")
    assert display.titles[-1].startswith("Eq. 2")
    assert float(shown[0]) == pytest.approx(min(r.pair_auc for r in comparison.grid), abs=6e-4)
    truth = display.images[0]
    assert set(np.unique(truth)) == {0.0, 1.0}
    sizes = np.bincount(comparison.labels)
    np.testing.assert_allclose(display.boundaries, np.cumsum(sizes)[:-1] / sizes.sum())


def test_maps_without_labels_have_no_truth_panel():
    X, _ = clustered_interactions()
    display = SimilarityMapsDisplay.from_comparison(compare(X, n_components=4, measures=["cosine"]))
    assert not display.titles[0].startswith("truth")
    assert len(display.images) == 7


def test_maps_share_one_colour_scale(comparison):
    figure = SimilarityMapsDisplay.from_comparison(comparison).plot().figure_
    images = [image for ax in figure.axes for image in ax.get_images()]
    assert len(images) == 9
    assert {image.get_clim() for image in images} == {(-1.0, 1.0)}


def test_grid_shows_the_auc_of_each_pair(comparison):
    display = ExponentGridDisplay.from_comparison(comparison)
    for row in comparison.grid:
        a, b = row.rescaling.item_exponents
        shown = display.auc[display.shrinkage.index(a), display.spectrum.index(b)]
        assert shown == row.pair_auc
    texts = [text.get_text() for text in display.plot().ax_.texts]
    assert texts == [f"{value:.2f}" for value in display.auc.ravel()]


def test_drawing_leaves_pyplot_alone(comparison):
    from matplotlib import _pylab_helpers

    SimilarityMapsDisplay.from_comparison(comparison).plot()
    assert not _pylab_helpers.Gcf.figs
