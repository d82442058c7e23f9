"""Counts, thresholds, p-values, intervals and files of calibrations, against NumPy and loops."""

import json

import numpy as np
import pytest
from scipy.stats import genpareto

from fastcos import SimilarityIndex, calibrate, neighbors_above, top_k
from fastcos.auditing import Calibration
from fastcos.auditing.calibration.tail import fit_tail
from fastcos.io import FastcosFormatError

EDGES = np.arange(-(2**15), 2**15 + 1) / 2**15


def unit(rows):
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def cosines(items, queries=None):
    """Return the cosines of all pairs of a query and an item, or of two different items."""
    if queries is not None:
        return np.clip(unit(queries) @ unit(items).T, -1, 1).ravel()
    scores = np.clip(unit(items) @ unit(items).T, -1, 1)
    return scores[~np.eye(len(items), dtype=bool)]


def clusters(seed=0, n=240, d=8):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((6, d))[rng.integers(0, 6, n)] + 0.7 * rng.standard_normal((n, d))


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).standard_normal((300, 8))


@pytest.fixture(scope="module")
def calibration(rows):
    return calibrate(rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_counts_equal_brute_force(rows, dtype):
    typed_rows = rows.astype(dtype)
    calibration = calibrate(typed_rows)
    assert calibration.n_pairs == calibration.counts.sum() == 300 * 299
    np.testing.assert_array_equal(calibration.counts, np.histogram(cosines(typed_rows), EDGES)[0])


def test_counts_of_queries_equal_brute_force(rows):
    queries = np.random.default_rng(1).standard_normal((70, 8))
    calibration = calibrate(rows, queries)
    assert calibration.n_pairs == 70 * 300
    np.testing.assert_array_equal(
        calibration.counts, np.histogram(cosines(rows, queries), EDGES)[0]
    )
    assert calibration.query_counts.shape == (6, 70)


def test_counts_are_exact_for_ties_on_edges():
    # The cosine of two of these items is exactly 0, 1 or -1, which are edges of bins.
    items = np.repeat(np.vstack([np.eye(3), -np.eye(3)]), 2, axis=0)
    calibration = calibrate(items)
    used = np.flatnonzero(calibration.counts)
    assert used.tolist() == [0, 2**15, 2**16 - 1]
    assert calibration.counts[used].tolist() == [24, 96, 12]
    assert calibration.n_duplicates == 6


def test_counts_by_dot_products_of_integers():
    items = np.random.default_rng(2).integers(-4, 5, (50, 3)).astype(float)
    items = items[items.any(axis=1)]
    calibration = calibrate(items, measure="dot")
    scores = (items @ items.T)[~np.eye(len(items), dtype=bool)]
    values, counts = np.unique(scores, return_counts=True)
    for value, count in zip(values, counts, strict=True):
        place = round((value - calibration.low) / calibration.width)
        assert calibration.edges[place] == value
        assert calibration.counts[min(place, 2**16 - 1)] == count


def test_zero_rows_are_left_out(rows):
    with_zeros = np.insert(rows, [0, 5, 300], 0.0, axis=0)
    calibration = calibrate(with_zeros)
    assert (calibration.n_zero, calibration.n_items, calibration.n_given) == (3, 300, (303, 303))
    np.testing.assert_array_equal(calibration.counts, calibrate(rows).counts)


def test_row_counts_equal_brute_force(rows, calibration):
    scores = unit(rows) @ unit(rows).T
    np.fill_diagonal(scores, -2)
    for level, counts in zip(calibration.levels, calibration.query_counts, strict=True):
        np.testing.assert_array_equal(counts, (scores >= level).sum(axis=1))


@pytest.mark.parametrize("fpr", [0.5, 0.1, 0.01, 0.002])
def test_threshold_is_the_least_edge_of_its_rate(rows, calibration, fpr):
    scores, threshold = cosines(rows), calibration.threshold(fpr)
    assert (scores >= threshold).mean() <= fpr < (scores >= threshold - calibration.width).mean()
    assert calibration.p_value(threshold) == pytest.approx((scores >= threshold).mean(), rel=1e-12)


def test_threshold_works_as_min_score_and_in_range_search(rows, calibration):
    threshold = calibration.threshold(0.01)
    expected = int((cosines(rows) >= threshold).sum())
    assert neighbors_above(rows, min_score=threshold).nnz == expected
    assert int((top_k(rows, k=299, min_score=threshold).indices >= 0).sum()) == expected


def test_threshold_is_beyond_ties_that_are_too_many():
    items = np.repeat(np.random.default_rng(0).standard_normal((20, 4)), 12, axis=0)
    calibration = calibrate(items)
    threshold = calibration.threshold(0.01)
    assert threshold == np.nextafter(np.float32(1), np.float32(2))
    assert neighbors_above(items, min_score=threshold).nnz == 0
    assert any("duplicates" in note for note in calibration.notes)
    assert any("no threshold has a false-positive rate below" in note for note in calibration.notes)


def test_p_value_decreases_and_is_one_for_padding(calibration):
    scores = np.linspace(-1.1, 1.1, 4001)
    p = calibration.p_value(scores)
    assert (np.diff(p) <= 0).all()
    assert p[0] == 1
    assert p[-1] >= calibration.smallest_fpr
    assert calibration.p_value([[-np.inf, 0.9]]).tolist()[0][0] == 1
    assert calibration.p_value(0.3).shape == ()


def test_threshold_inverts_the_tail(calibration):
    rates = [3e-4, 1e-4, 1e-5, 2e-7]
    thresholds = [calibration.threshold(rate) for rate in rates]
    assert thresholds == sorted(set(thresholds))
    np.testing.assert_allclose(calibration.p_value(thresholds), rates, rtol=1e-9)


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.2])
def test_tail_recovers_a_generalized_pareto(shape):
    scores = 0.5 + genpareto.rvs(shape, scale=0.02, size=20_000, random_state=0)
    edges = np.arange(0, 2**14 + 1) / 2**13
    tail = fit_tail(edges, np.histogram(scores, edges)[0])
    assert tail.n_pairs >= 1000
    assert tail.shape == pytest.approx(shape, abs=0.15)
    assert tail.distance < 0.05
    # In the tail model, the scale depends linearly on the score at which the tail starts.
    assert tail.scale == pytest.approx(0.02 + shape * (tail.start - 0.5), rel=0.15)


def test_tail_is_none_without_spread():
    counts = np.zeros(100, np.int64)
    counts[99] = 5000
    assert fit_tail(np.arange(101) / 100, counts) is None


def test_independent_pairs_are_those_of_a_bootstrap_of_rows():
    items = clusters()
    calibration = calibrate(items)
    above = unit(items) @ unit(items).T >= calibration.levels[1]
    np.fill_diagonal(above, False)
    rng, n = np.random.default_rng(0), len(items)
    weights = rng.multinomial(n, np.full(n, 1 / n), 4000).astype(float)
    rates = np.einsum("ri,ij,rj->r", weights, above.astype(float), weights, optimize=True)
    literal = rates.mean() ** 2 / rates.var()
    assert calibration.independent[1] == pytest.approx(literal, rel=0.15)
    # In clustered rows, the number of independent pairs is far lower than the number of pairs.
    assert calibration.independent[1] < above.sum() / 2 / 3


@pytest.mark.slow
def test_rate_interval_holds_in_new_samples():
    inside, n_trials = 0, 60
    for seed in range(n_trials):
        rng = np.random.default_rng(seed)
        first, second = rng.standard_normal((2, 120, 6))
        calibration = calibrate(first)
        low, high = calibration.rate_interval(0.02, confidence=0.9, held_out=True)
        inside += low <= (cosines(second) >= calibration.threshold(0.02)).mean() <= high
    # At least 54 of the 60 intervals are expected to contain the rate. With random seeds, one test
    # in a thousand would count fewer than 46 intervals that contain the rate.
    assert inside >= 46


def test_intervals_nest_and_contain_the_estimate(calibration):
    for rate in (0.1, 0.01, 1e-4):
        low, high = calibration.rate_interval(rate)
        wide_low, wide_high = calibration.rate_interval(rate, confidence=0.999)
        assert wide_low < low < rate < high < wide_high
        below, above = calibration.threshold_interval(rate)
        assert below <= calibration.threshold(rate) <= above


def test_expected_false_is_the_number_of_pairs_times_p(calibration):
    threshold = calibration.threshold(0.01)
    p = float(calibration.p_value(threshold))
    assert calibration.expected_false(threshold, n_items=500, n_queries=3) == pytest.approx(
        1500 * p
    )


def test_false_discovery_rate_equals_a_loop_over_all_pairs(rows):
    queries = np.random.default_rng(3).standard_normal((12, 8))
    calibration = calibrate(rows, np.random.default_rng(4).standard_normal((200, 8)))
    everything = top_k(queries, rows, k=300).scores
    p = np.sort(calibration.p_value(everything).ravel())
    order = np.argsort(calibration.p_value(everything).ravel(), kind="stable")
    expected, least = np.empty(len(p)), 1.0
    for rank in range(len(p), 0, -1):
        least = min(least, p[rank - 1] * len(p) / rank)
        expected[order[rank - 1]] = least
    adjusted = calibration.false_discovery_rate(everything, n_items=300)
    np.testing.assert_allclose(adjusted.ravel(), expected, rtol=1e-12)
    # If only the best 20 scores of each list are passed, an estimate may be higher than with all
    # scores, but it is never lower.
    few = calibration.false_discovery_rate(everything[:, :20], n_items=300)
    assert (few >= adjusted[:, :20] * (1 - 1e-12)).all()


def test_sample_draws_rows_and_maps_are_read(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    calibration = calibrate(mapped, sample=100, random_state=5)
    again = calibrate(rows, sample=100, random_state=5)
    assert (calibration.n_items, calibration.n_given) == (100, (300, 300))
    np.testing.assert_array_equal(calibration.counts, again.counts)
    assert calibration.dataset == again.dataset == calibrate(rows).dataset
    assert calibrate(rows, sample=1000).n_items == 300


def test_dataset_changes_with_any_value(rows, calibration):
    other = rows.copy()
    other[17, 3] = np.nextafter(other[17, 3], 9)
    assert calibrate(other).dataset != calibration.dataset


def test_json_is_readable_with_the_standard_library(calibration, tmp_path):
    calibration.save(tmp_path / "c.json")
    data = json.loads((tmp_path / "c.json").read_text("utf8"))
    above, place = 0, len(data["counts"])
    while above + data["counts"][place - 1] <= 0.01 * data["n_pairs"]:
        place -= 1
        above += data["counts"][place]
    edge = data["low"] + (data["first_bin"] + place) * data["width"]
    assert edge == calibration.threshold(0.01)
    assert "n_pairs" in data["reading"]


def test_saved_calibration_gives_the_same_answers(rows, tmp_path):
    calibration = calibrate(rows, condition=1.1, sample=30, model="m@2")
    calibration.save(tmp_path / "c.json")
    loaded = Calibration.load(tmp_path / "c.json")
    assert loaded.to_dict() == calibration.to_dict()
    assert loaded.threshold(1e-4) == calibration.threshold(1e-4)
    assert loaded.model == "m@2"


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"}, {"counts": [1]}, {"tail": {"a": 1}}, {"levels": [0.1]},
        *(
            pytest.param(change, marks=pytest.mark.slow)
            for change in (
                {"first_bin": 70_000}, {"n_given": [1]}, {"n_given": ["a", 3]}, {"fpr": 0},
                {"width": 0.0}, {"measure": 3}, {"independent": [None] * 6},
                {"query_counts": [[-1]]}, {"self_join": "x"}, {"n_zero": -1},
            )
        ),
    ],
)  # fmt: skip
def test_damaged_file_is_refused(calibration, tmp_path, change):
    (tmp_path / "c.json").write_text(json.dumps({**calibration.to_dict(), **change}))
    with pytest.raises(FastcosFormatError, match="is not a calibration"):
        Calibration.load(tmp_path / "c.json")


@pytest.mark.slow
def test_notes_report_rows_that_share_high_scores():
    rng = np.random.default_rng(0)
    hub = np.ones(16) + 0.15 * rng.standard_normal((25, 16))
    items = np.vstack([rng.standard_normal((800, 16)), hub])
    assert any("as one independent pair" in note for note in calibrate(items).notes)
    assert not calibrate(items[:800]).notes


def test_reading_names_probability_and_expected_number(calibration):
    text = calibration.reading(0.9, n_items=1000)
    assert f"{float(calibration.p_value(0.9)):.2g}" in text
    assert "1,000 items" in text


def test_progress_ends_at_its_total(rows):
    seen = []
    calibrate(rows, measure="dot", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (900, 900)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"sample": 1}, "sample"),
        ({"condition": 0.5}, "condition"),
        ({"condition": 1.2, "measure": "dot"}, "condition"),
        ({"measure": "cosin"}, "measure"),
        ({"queries": np.ones((2, 3))}, "queries"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_calibrate_refuses_wrong_arguments(rows, arguments, name):
    with pytest.raises(ValueError, match=name):
        calibrate(rows, **arguments)


@pytest.mark.parametrize("items", [np.zeros((5, 3)), np.ones((1, 3)), [[np.nan, 1.0]] * 3])
def test_calibrate_refuses_items_without_pairs(items):
    with pytest.raises(ValueError, match="items"):
        calibrate(items)


def test_methods_refuse_wrong_arguments(calibration):
    for fpr in (0, 1.5, calibration.smallest_fpr / 2, np.nan):
        with pytest.raises(ValueError, match="fpr"):
            calibration.threshold(fpr)
    with pytest.raises(ValueError, match="scores"):
        calibration.p_value([0.5, np.nan])
    with pytest.raises(ValueError, match="confidence"):
        calibration.rate_interval(0.01, confidence=1)
    with pytest.raises(ValueError, match="n_items"):
        calibration.expected_false(0.5, n_items=0)
    with pytest.raises(ValueError, match="scores"):
        calibration.false_discovery_rate([0.5, 0.6], n_items=10)


@pytest.mark.parametrize("measure", ["cosine", "dot"])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e140])
def test_thresholds_keep_their_promise_on_few_tied_rows(measure, scale):
    items = np.random.default_rng(0).integers(-2, 3, (20, 1)).astype(float) * scale
    calibration = calibrate(items, measure=measure)
    for fpr in (1.0, 0.5, 0.1, 0.01):
        if calibration.tail is not None:
            assert calibration.p_value(calibration.threshold(fpr)) <= fpr * (1 + 1e-9)
    assert json.dumps(calibration.to_dict(), allow_nan=False)
    assert calibration.verdict


def test_no_threshold_is_rounded_to_1():
    copies = np.repeat(np.random.default_rng(0).standard_normal((300, 8))[:40], 6, axis=0)
    calibration = calibrate(copies + 0.01 * np.random.default_rng(1).standard_normal(copies.shape))
    assert 0.999995 < calibration.threshold(1e-4) < 1
    cells = {row[0]: row[1:3] for row in calibration.thresholds().tables[0].rows}
    assert cells["0.0001"] == ["0.99999", "0.99999 .. 0.99999"]


@pytest.mark.slow
def test_thresholds_that_duplicates_make_unreachable_say_so(tmp_path):
    rows = np.random.default_rng(0).standard_normal((400, 8))
    # The largest score is shared by 40 x 39 of the 400 x 399 ordered pairs, that is by 0.98 %.
    rows[:40] = rows[0]
    calibration = calibrate(rows, fpr=1e-4)
    cells = {row[0]: row[1:] for row in calibration.thresholds().tables[0].rows}
    assert all(cells[rate][0] == "not reachable" for rate in ("0.001", "0.0001", "1e-05"))
    assert float(cells["0.1"][0]) < 1
    # If a threshold just below 1 can be reached, its printed value is below 1.
    near = rows[40:] * 0.01
    near[:, 0] = 1
    near = {row[0]: row[1] for row in calibrate(near).thresholds().tables[0].rows}
    assert 0.9995 < float(near["0.1"]) < 1
    assert calibration.verdict.startswith(
        "No threshold has a false-positive rate as low as 0.0001: the largest cosine is 1.000, and "
        "a share of 0.0098 of all random pairs reaches it."
    )
    assert calibrate(rows[39:], fpr=1e-3).is_reachable(1e-3)
    calibration.save(tmp_path / "calibration.json")
    assert (
        Calibration.load(tmp_path).verdict == calibration.verdict
    )  # The command `fastcos calibrate` writes such a folder, so load accepts the folder.
    assert "e+0" not in repr(calibrate(np.repeat(rows[39:], 30, axis=0), fpr=0.5, sample=300))


def test_searches_take_a_calibration_as_least_score():
    rows = np.random.default_rng(1).standard_normal((300, 8)).astype(np.float32)
    rate = calibrate(rows, fpr=0.01)
    index = SimilarityIndex().fit(rows)
    for call in (top_k, index.search):
        by_number, by_rate = (call(rows, k=9, min_score=one) for one in (rate.threshold(), rate))
        np.testing.assert_array_equal(by_number.indices, by_rate.indices)
    with pytest.raises(ValueError, match="min_score must be calibrated for dot, got"):
        top_k(rows, k=3, measure="dot", min_score=rate)
