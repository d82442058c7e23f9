import numpy as np
import pytest

from fastcos import Rescaling, compare, rescalings
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


def test_panels_are_those_of_the_paper(comparison):
    display = SimilarityMapsDisplay.from_comparison(comparison)
    assert [title.split("\n")[:2] for title in display.titles] == [
        ["The truth:", "1 for equal labels,"], ["Eq. 1, $D = S^{1/2}$", "orthonormal"],
        ["Eq. 1, $D = I$", "identity"], [r"Eq. 1, $D = \Sigma^{-1/2}$", "balanced"],
        ["Eq. 2", "its only solution"],
    ]  # fmt: skip
    truth = display.images[0]
    assert set(np.unique(truth)) == {0.0, 1.0}
    sizes = np.bincount(comparison.labels)
    np.testing.assert_allclose(display.boundaries, np.cumsum(sizes)[:-1] / sizes.sum())
    shown = display.plot().figure_.get_supxlabel()
    assert "n = 400 users, p = 60 items, rank k = 6, λ = 30 of Eq. 1" in shown
    assert shown.endswith("seed 0")


def test_panels_of_every_rescaling_begin_with_the_worst(comparison):
    display = SimilarityMapsDisplay.from_comparison(comparison, every=True)
    worst = min(comparison.grid, key=lambda row: row.pair_auc)
    assert f"AUC {worst.pair_auc:.3f}" in display.titles[1]
    assert len(display.images) == 9


@pytest.mark.slow
def test_panels_have_a_rescaling_without_a_name():
    X, clusters = clustered_interactions()
    own = [*(one.name for one in rescalings()), Rescaling(0.25, -0.5)]
    result = compare(X, clusters, n_components=4, measures=["cosine"], rescalings=own, grid=False)
    titles = SimilarityMapsDisplay.from_comparison(result).titles
    assert titles[-2].startswith(r"Eq. 1, $D = S^{0.25}\,\Sigma^{-1/2}$")
    assert len(titles) == 6


def test_maps_without_labels_have_no_truth_panel():
    X, _ = clustered_interactions()
    result = compare(X, n_components=4, measures=["cosine"])
    display = SimilarityMapsDisplay.from_comparison(result)
    assert not display.titles[0].startswith("The truth")
    assert len(display.images) == 4
    assert len(SimilarityMapsDisplay.from_comparison(result, every=True).images) == 7


@pytest.mark.slow
def test_maps_name_the_labels_beside_their_blocks():
    X, clusters = clustered_interactions()
    kinds = np.array(["western", "comedy", "a name of more than sixteen letters"])
    result = compare(X, kinds[clusters], n_components=4, measures=["cosine"])
    first, *others = SimilarityMapsDisplay.from_comparison(result).plot().axes_
    names = [text.get_text() for text in first.get_yticklabels()]
    assert names == [name[:16] for name in sorted(kinds)]
    sizes = np.bincount(result.labels)
    side = first.get_images()[0].get_array().shape[0]
    middles = (np.cumsum(sizes) - sizes / 2) * side / sizes.sum() - 0.5
    np.testing.assert_allclose(first.get_yticks(), middles)
    assert not any(len(ax.get_yticks()) for ax in others)


@pytest.mark.slow
def test_maps_without_labels_are_not_called_sorted_by_label():
    X, _ = clustered_interactions()
    display = SimilarityMapsDisplay.from_comparison(compare(X, n_components=4, measures=["dot"]))
    figure = display.plot().figure_
    assert "label" not in figure.get_supxlabel()
    assert not any(len(ax.get_yticks()) for ax in display.axes_)


def test_maps_share_one_colour_scale(comparison):
    figure = SimilarityMapsDisplay.from_comparison(comparison).plot().figure_
    images = [image for ax in figure.axes for image in ax.get_images()]
    assert len(images) == 5
    assert {image.get_clim() for image in images} == {(-1.0, 1.0)}


def test_grid_shows_the_auc_of_each_pair(comparison):
    display = ExponentGridDisplay.from_comparison(comparison)
    for row in comparison.grid:
        a, b = display.shrinkage.index(row.shrinkage), display.spectrum.index(row.spectrum)
        shown = display.auc[a, b]
        assert shown == row.pair_auc
    texts = [text.get_text() for text in display.plot().ax_.texts]
    assert [text.split("\n")[0] for text in texts] == [f"{one:.2f}" for one in display.auc.ravel()]
    named = {text.split("\n")[1] for text in texts if "\n" in text}
    assert named == {one.name for one in rescalings()}


def test_drawing_leaves_pyplot_alone(comparison):
    from matplotlib import _pylab_helpers

    SimilarityMapsDisplay.from_comparison(comparison).plot()
    assert not _pylab_helpers.Gcf.figs
