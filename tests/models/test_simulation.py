"""Simulated interactions: their distributions, reproducibility and refused arguments."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_array_equal

from fastcos.models import presets, simulate_interactions

SMALL = {"n_users": 300, "n_items": 60}


def bytes_of(simulation):
    X = simulation.X
    return tuple(array.tobytes() for array in (X.indptr, X.indices, X.data, *simulation[1:4]))


def assert_is_interactions(simulation, n, p, n_clusters):
    X, item_cluster, item_popularity, user_preference, _ = simulation
    assert X.format == "csr"
    assert X.shape == (n, p)
    assert X.dtype == np.float32
    assert (X.data == 1).all()
    for first, last in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        assert (np.diff(X.indices[first:last]) > 0).all()
    assert (X.indptr[1:] > X.indptr[:-1]).all()
    assert item_cluster.shape == item_popularity.shape == (p,)
    assert item_cluster.dtype == np.int64
    assert item_cluster.min() >= 0
    assert item_cluster.max() < n_clusters
    assert (item_popularity > 0).all()
    assert np.isfinite(item_popularity).all()
    assert user_preference.shape == (n, n_clusters)
    assert (user_preference >= 0).all()
    np.testing.assert_allclose(user_preference.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("preset", presets())
def test_presets_simulate_and_record_their_choices(preset):
    simulation = simulate_interactions(**SMALL, preset=preset, random_state=3)
    assert_is_interactions(simulation, 300, 60, 5)
    assert simulation.parameters["preset"] == preset
    assert presets()[preset].items() <= simulation.parameters.items()


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("zipf_bounded", {}),
        ("zipf_bounded_focused", {"preference_concentration": 0.3}),
        ("zipf_bounded_cluster_normalised", {"popularity_scale": "cluster_sum"}),
        ("zipf_bounded_dirichlet_clusters", {"cluster_probabilities": "dirichlet"}),
        ("zipf_pareto", {"activity_distribution": "pareto_clipped"}),
        (
            "zipf_pareto_focused",
            {"activity_distribution": "pareto_clipped", "preference_concentration": 0.3},
        ),
        ("pareto_bounded", {"popularity_distribution": "pareto_draw"}),
        ("power_bounded", {"popularity_distribution": "power_draw"}),
        (
            "power_pareto",
            {"popularity_distribution": "power_draw", "activity_distribution": "pareto_clipped"},
        ),
        (
            "public_replication",
            {
                "popularity_distribution": "bounded_pareto_draw",
                "activity_distribution": "pareto_clipped",
            },
        ),
    ],
)
def test_presets_equal_their_choices(preset, changes):
    by_name = simulate_interactions(**SMALL, preset=preset)
    by_choices = simulate_interactions(**SMALL, **changes)
    overridden = simulate_interactions(**SMALL, preset=preset, **presets()["zipf_bounded"])
    assert bytes_of(by_name) == bytes_of(by_choices)
    assert bytes_of(overridden) == bytes_of(simulate_interactions(**SMALL))
    assert (bytes_of(by_name) == bytes_of(overridden)) == (preset == "zipf_bounded")


def test_presets_start_with_the_default():
    assert len(presets()) == 10
    assert next(iter(presets())) == "zipf_bounded"
    presets()["zipf_bounded"]["popularity_distribution"] = "changed by a caller"
    assert presets()["zipf_bounded"]["popularity_distribution"] == "rank_zipf"


def test_parameters_simulate_the_same_again():
    for changes in (
        {"preset": "power_pareto", "random_state": 9},
        {"preference_distribution": "softmax", "interactions_per_user": 5},
        {"cluster_probabilities": [3, 0, 1, 1, 2], "user_exponent": 1, "item_exponent": (0, 2)},
    ):
        first = simulate_interactions(**SMALL, **changes)
        assert bytes_of(simulate_interactions(**first.parameters)) == bytes_of(first)


SIX_TASKS = {"n_users": 9000, "n_items": 200, "random_state": 4}


@pytest.mark.slow
def test_simulation_is_bit_identical_over_threads():
    alone = bytes_of(simulate_interactions(**SIX_TASKS, n_threads=1))
    for n_threads in (2, 3, 8):
        assert bytes_of(simulate_interactions(**SIX_TASKS, n_threads=n_threads)) == alone
    assert bytes_of(simulate_interactions(**(SIX_TASKS | {"random_state": 5}))) != alone


@pytest.mark.slow
def test_simulation_is_bit_identical_with_prange(monkeypatch):
    alone = bytes_of(simulate_interactions(**SIX_TASKS, n_threads=1))
    monkeypatch.setenv("FASTCOS_BACKEND", "prange")
    assert bytes_of(simulate_interactions(**SIX_TASKS)) == alone


def test_choices_have_independent_random_streams():
    first = simulate_interactions(**SMALL)
    other = simulate_interactions(
        **SMALL, activity_distribution="pareto_clipped", item_exponent=(1, 1)
    )
    assert_array_equal(first.item_cluster, other.item_cluster)
    assert_array_equal(first.user_preference, other.user_preference)
    assert (first.X.indptr != other.X.indptr).any()


@pytest.mark.parametrize("exponent", [0, 0.5, 1.7])
def test_activity_bounded_power_follows_its_law(exponent):
    X = simulate_interactions(20_000, 12, user_exponent=exponent, random_state=2).X
    came = np.bincount(np.diff(X.indptr), minlength=13)
    assert came[0] == 0
    law = np.arange(1, 13) ** -float(exponent)
    assert scipy.stats.chisquare(came[1:], law / law.sum() * 20_000).pvalue > 1e-3


@pytest.mark.parametrize("exponent", [0.5, 1.2])
def test_activity_pareto_clipped_follows_its_law(exponent):
    X = simulate_interactions(
        20_000, 25, user_exponent=exponent, activity_distribution="pareto_clipped", random_state=2
    ).X
    came = np.bincount(np.diff(X.indptr), minlength=13)
    # For a uniform U, U^(-1/b) is at least x with probability x^-b. A user has at most 12 items,
    # which is half of the 25 items, rounded down. Every larger value is therefore replaced by 12.
    tail = np.append(np.arange(1, 13) ** -exponent, 0)
    assert len(came) == 13
    assert scipy.stats.chisquare(came[1:], (tail[:-1] - tail[1:]) * 20_000).pvalue > 1e-3


def test_popularity_rank_zipf_is_a_power_of_the_rank():
    simulation = simulate_interactions(10, 500, item_exponent=(0.5, 1.5), random_state=6)
    exponents = []
    for c in range(5):
        popularity = simulation.item_popularity[simulation.item_cluster == c]
        descending = -np.sort(-popularity)
        exponents.append(-np.log2(descending[1]))
        np.testing.assert_allclose(descending, np.arange(1, len(descending) + 1) ** -exponents[-1])
        # The items are not numbered by their popularity.
        assert abs(scipy.stats.spearmanr(popularity, np.arange(len(popularity)))[0]) < 0.4
    assert 0.5 <= min(exponents) < max(exponents) <= 1.5


@pytest.mark.parametrize(
    ("law", "power", "least"),
    [("pareto_draw", -0.8, 0.0), ("power_draw", 0.8, 0.0), ("bounded_pareto_draw", -0.8, 0.01)],
)
def test_popularity_draws_are_powers_of_uniform_numbers(law, power, least):
    simulation = simulate_interactions(
        10, 5000, item_exponent=(0.8, 0.8), popularity_distribution=law, random_state=1
    )
    uniform = (simulation.item_popularity**power - least) / (1 - least)
    assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-3


def test_popularity_cluster_sum_is_one():
    simulation = simulate_interactions(10, 300, popularity_scale="cluster_sum")
    sums = np.bincount(simulation.item_cluster, simulation.item_popularity)
    np.testing.assert_allclose(sums, 1, rtol=1e-12)


def test_item_exponents_are_uniform():
    exponents = []
    for seed in range(200):
        popularity = simulate_interactions(
            1, 50, n_clusters=1, item_exponent=(1, 3), random_state=seed
        ).item_popularity
        exponents.append(-np.log2(np.sort(popularity)[-2]))
    assert scipy.stats.kstest(exponents, "uniform", (1, 2)).pvalue > 1e-3


def test_clusters_follow_given_probabilities():
    shares = np.array([3, 0, 1, 1, 5])
    cluster = simulate_interactions(5, 10_000, cluster_probabilities=shares).item_cluster
    came = np.bincount(cluster, minlength=5)
    assert came[1] == 0
    assert scipy.stats.chisquare(came[shares > 0], shares[shares > 0] * 1000).pvalue > 1e-3


def test_preferences_follow_their_laws():
    for concentration in (0.3, 1, 4):
        preference = simulate_interactions(
            5000, 20, preference_concentration=concentration
        ).user_preference
        law = scipy.stats.beta(concentration, 4 * concentration)
        assert scipy.stats.kstest(preference[:, 2], law.cdf).pvalue > 1e-3
    preference = simulate_interactions(5000, 20, preference_distribution="softmax").user_preference
    difference = np.log(preference[:, 0] / preference[:, 3])
    assert scipy.stats.kstest(difference, scipy.stats.norm(0, np.sqrt(2)).cdf).pvalue > 1e-3


def test_first_items_follow_preference_times_popularity():
    simulation = simulate_interactions(20_000, 15, interactions_per_user=1, random_state=8)
    chance = simulation.user_preference[:, simulation.item_cluster] * simulation.item_popularity
    chance /= chance.sum(axis=1, keepdims=True)
    came = np.bincount(simulation.X.indices, minlength=15)
    deviation = np.sqrt((chance * (1 - chance)).sum(axis=0))
    assert np.abs((came - chance.sum(axis=0)) / deviation).max() < 4


def test_simulation_of_awkward_sizes():
    for n, p, c in ((1, 1, 1), (3, 1, 1), (1, 7, 7), (5, 2, 2), (2, 300, 300)):
        for preset in presets():
            assert_is_interactions(
                simulate_interactions(n, p, n_clusters=c, preset=preset), n, p, c
            )
    X = simulate_interactions(7, 9, interactions_per_user=9).X
    assert X.nnz == 63


def test_users_with_few_weighted_items_get_all_of_them():
    simulation = simulate_interactions(
        4000,
        40,
        n_clusters=40,
        preference_concentration=0.01,
        interactions_per_user=40,
        random_state=1,
    )
    with_weight = (simulation.user_preference > 0)[:, simulation.item_cluster]
    assert not with_weight.all()
    assert_array_equal(simulation.X.toarray() > 0, with_weight)


def test_progress_counts_users():
    calls = []
    simulate_interactions(**SMALL, n_threads=1, progress=lambda *call: calls.append(call))
    assert calls[-1] == (300, 300)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_users": 0}, "n_users must be a whole number of at least 1, got 0"),
        ({"n_items": 2.5}, "n_items must be a whole number of at least 1, got 2.5"),
        ({"n_clusters": 61}, "n_clusters must be a whole number from 1 to 60, got 61"),
        ({"item_exponent": 0.5}, r"item_exponent must be of shape \(2,\), got shape \(\)"),
        ({"item_exponent": (-1, 1)}, r"item_exponent\[0\] must be .* >= 0 and <= 20, got -1.0"),
        ({"item_exponent": (1, 0.5)}, r"item_exponent\[1\] must be .* >= 1 and <= 20, got 0.5"),
        ({"item_exponent": (0.2, np.nan)}, "item_exponent must be finite, got nan at position 1"),
        (
            {"item_exponent": (0, 1), "popularity_distribution": "pareto_draw"},
            r"item_exponent\[0\] must be .* >= 0.1 and <= 20, got 0.0",
        ),
        ({"user_exponent": -0.5}, "user_exponent must be a finite number >= 0 .* got -0.5"),
        ({"user_exponent": np.nan}, "user_exponent must be a finite number .* got nan"),
        (
            {"user_exponent": 0, "preset": "zipf_pareto"},
            "user_exponent must be a finite number >= 0.1 and <= 20, got 0",
        ),
        ({"preset": "zipf"}, "preset must be one of zipf_bounded, .*, got 'zipf'"),
        ({"preset": None}, "preset must be one of zipf_bounded, .*, got None"),
        (
            {"popularity_distribution": "zipf"},
            "popularity_distribution must be one of rank_zipf, .* got 'zipf'",
        ),
        ({"popularity_scale": "x"}, "popularity_scale must be one of unscaled, cluster_sum, got"),
        (
            {"preference_distribution": 1},
            "preference_distribution must be one of dirichlet, softmax, got 1",
        ),
        (
            {"activity_distribution": "x"},
            "activity_distribution must be one of bounded_power, pareto_clipped, got",
        ),
        ({"preference_concentration": 0}, "preference_concentration must be .* >= 0.01, got 0"),
        (
            {"preference_concentration": 2, "preference_distribution": "softmax"},
            "preference_concentration must be None if preference_distribution is 'softmax', got 2",
        ),
        (
            {"cluster_probabilities": "even"},
            "cluster_probabilities must be one of uniform, dirichlet, got 'even'",
        ),
        ({"cluster_probabilities": [1, 2]}, r"cluster_probabilities must be of shape \(5,\), got"),
        (
            {"cluster_probabilities": [1, 2, -1, 0, 0]},
            "cluster_probabilities must be at least 0 and not all 0, got",
        ),
        ({"interactions_per_user": 61}, "interactions_per_user must be .* from 1 to 60, got 61"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0, got -1"),
        ({"n_threads": 0}, "n_threads must be a whole number from 1 to 4096, got 0"),
    ],
)
def test_simulation_refuses_invalid_arguments(changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        simulate_interactions(**(SMALL | changes))


@pytest.mark.slow  # the other tests check the same distributions in smaller simulations
def test_simulation_of_paper_size_has_expected_spectrum():
    # A float64 prototype with another random generator has a density of 0.341, a largest singular
    # value of 2143, and 10 singular values above 100.
    X = simulate_interactions().X
    assert abs(X.nnz / 2e7 - 0.3415) < 0.006
    dense = X.toarray()
    values = np.sqrt(np.linalg.eigvalsh((dense.T @ dense).astype(np.float64))[::-1][:50])
    assert 2050 < values[0] < 2250
    assert 7 <= (values > 100).sum() <= 14
    assert 40 < values[49] < 60


LARGE = """
import resource
from fastcos.models import simulate_interactions
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
simulate_interactions(100, 50)
before = peak()
X = simulate_interactions(1_000_000, 100_000, interactions_per_user=20, preset="{preset}").X
assert X.nnz == 20_000_000 and X.shape == (1_000_000, 100_000)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss in KiB is Linux's")
@pytest.mark.parametrize("preset", ["zipf_bounded", "pareto_bounded"])
def test_simulation_memory_is_that_of_interactions(preset):
    script = LARGE.format(preset=preset)
    output = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    # X takes 160 MB, the preferences 40 MB and the sizes 24 MB; an array of n p bytes would take
    # 100 GB.
    assert float(output) < 500
