"""Simulation of interactions with known item clusters, as in the paper arXiv:2403.05440."""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import parallel, validation
from fastcos.kernels import records
from fastcos.kernels.sampling import Clusters, sample_rows
from fastcos.reports import as_table
from fastcos.validation import Floats, Integers

# Largest number that fits into the int32 indices of a CSR matrix. If X has more than INT32_MAX
# entries or columns, its indices are int64.
INT32_MAX = 2**31 - 1

_CHOICES: dict[str, tuple[str, ...]] = {
    "popularity_distribution": ("rank_zipf", "pareto_draw", "power_draw", "bounded_pareto_draw"),
    "popularity_scale": ("unscaled", "cluster_sum"),
    "preference_distribution": ("dirichlet", "softmax"),
    "activity_distribution": ("bounded_power", "pareto_clipped"),
}
_DEFAULTS: dict[str, Any] = {
    "cluster_probabilities": "uniform",
    "popularity_distribution": "rank_zipf",
    "popularity_scale": "unscaled",
    "preference_distribution": "dirichlet",
    "preference_concentration": 1.0,
    "activity_distribution": "bounded_power",
}
_FOCUSED = {"preference_concentration": 0.3}
_PARETO = {"activity_distribution": "pareto_clipped"}
_PRESETS: dict[str, dict[str, Any]] = {
    "zipf_bounded": {},
    "zipf_bounded_focused": _FOCUSED,
    "zipf_bounded_cluster_normalised": {"popularity_scale": "cluster_sum"},
    "zipf_bounded_dirichlet_clusters": {"cluster_probabilities": "dirichlet"},
    "zipf_pareto": _PARETO,
    "zipf_pareto_focused": _PARETO | _FOCUSED,
    "pareto_bounded": {"popularity_distribution": "pareto_draw"},
    "power_bounded": {"popularity_distribution": "power_draw"},
    "power_pareto": _PARETO | {"popularity_distribution": "power_draw"},
    "public_replication": _PARETO | {"popularity_distribution": "bounded_pareto_draw"},
}
# Up to the exponent _LARGEST_EXPONENT, all popularities and their sums are in the range of float64.
_LARGEST_EXPONENT = 20.0
# Some popularities and activities are computed as U^(1/exponent) or U^(-1/exponent) from a uniform
# random number U. In these distributions, the exponent must be at least _SMALLEST_DRAWN_EXPONENT.
_SMALLEST_DRAWN_EXPONENT = 0.1
# In a race, the kernel draws a random key for every item, and selects the items with the best keys.
# If a user interacts with at least a quarter of all items (1 / _RACE_SHARE), the kernel selects the
# user's items by a race. Otherwise, the kernel draws one item after another and ignores items that
# the user already has. If a user still lacks items after n_items draws, the kernel selects the
# missing items by a race.
_RACE_SHARE = 4
# Number of interactions that a thread draws in one task. A task takes about 20 ms.
_WORK_PER_BLOCK = 100_000


@as_table
class Simulation(NamedTuple):
    """Simulated interactions, with the clusters, popularities and preferences behind them.

    Attributes
    ----------
    X : scipy.sparse.csr_array (n, p), float32
        The interactions. Every stored entry is 1, and column indices ascend within a row.
    item_cluster : ndarray (p,), int64
        The cluster of every item, numbered from 0. Some clusters may be empty.
    item_popularity : ndarray (p,), float64
        Baseline popularity p_i of every item. Multiplying all popularities by the same factor would
        not change the simulation.
    user_preference : ndarray (n, C), float64
        Preference p_uc of every user u for every cluster c; the preferences of a user sum to 1.
    parameters : dict
        The arguments that reproduce the data, including the values that the preset chose. The call
        ``simulate_interactions(**parameters)`` returns the same data.
    """

    X: Any
    item_cluster: Integers
    item_popularity: Floats
    user_preference: Floats
    parameters: dict[str, Any]


def presets() -> dict[str, dict[str, Any]]:
    """Return the presets of :func:`simulate_interactions`: a dict from names to dicts of choices.

    The first preset is the default preset of the simulation.

    Examples
    --------
    >>> from fastcos.models import presets
    >>> presets()["zipf_pareto"]["activity_distribution"]
    'pareto_clipped'
    """
    return {name: _DEFAULTS | changes for name, changes in _PRESETS.items()}


def simulate_interactions(
    n_users: int = 20_000,
    n_items: int = 1_000,
    *,
    n_clusters: int = 5,
    item_exponent: tuple[float, float] = (0.25, 1.5),
    user_exponent: float = 0.5,
    preset: str = "zipf_bounded",
    cluster_probabilities: str | npt.ArrayLike | None = None,
    popularity_distribution: str | None = None,
    popularity_scale: str | None = None,
    preference_distribution: str | None = None,
    preference_concentration: float | None = None,
    activity_distribution: str | None = None,
    interactions_per_user: int | None = None,
    random_state: int = 0,
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
) -> Simulation:
    """Simulate interactions of users with items, as in section 4 of the paper.

    Items are assigned to clusters at random. Every cluster c has an exponent β_c, which is drawn
    from the uniform distribution over the interval ``item_exponent``. The popularity p_i of every
    item i of cluster c is drawn from a power law with the exponent β_c. Every user u has random
    cluster preferences p_uc, and interacts with k_u different items. The items of a user u are
    drawn one after another, without replacement. The probability of item i is proportional to p_uc
    p_i, where c is the cluster of item i. The number k_u follows a power law with the exponent
    ``user_exponent``. The preset chooses the details that the paper does not specify. To override a
    choice of the preset, pass one of the arguments from ``cluster_probabilities`` to
    ``activity_distribution``.

    All random numbers follow their distributions exactly, except for float64 rounding errors. The
    function needs memory for the interactions and for the n C cluster preferences, but not for an n
    x p matrix. Each step of the simulation draws its random numbers from a separate stream. For
    example, if you choose another popularity distribution, the random numbers for the clusters and
    the preferences stay the same.

    Parameters
    ----------
    n_users, n_items : int
        The number n of users and the number p of items, each at least 1.
    n_clusters : int
        Number C of clusters, from 1 to n_items. Some clusters may be tiny or empty.
    item_exponent : (float, float)
        The lower and the upper end of the interval from which β_c is drawn. Both ends must be from
        0 to 20 if ``popularity_distribution`` is "rank_zipf", and from 0.1 to 20 otherwise.
    user_exponent : float
        Exponent of the distribution from which each user's number of interactions k_u is drawn. The
        exponent must be from 0.1 to 20 if ``activity_distribution`` is "pareto_clipped", and from 0
        to 20 otherwise.
    preset : str
        A name in ``fastcos.models.presets()``. The default "zipf_bounded" applies the power laws of
        the paper to ranks. The items of a cluster are ranked, and the popularity of an item depends
        on its rank. A user's number of interactions follows a power law and is from 1 to n_items.
    cluster_probabilities : {"uniform", "dirichlet"} or array_like (C,), optional
        For each cluster, the probability that an item is assigned to the cluster. With "uniform",
        all clusters have the same probability. With "dirichlet", the probabilities are drawn from a
        Dirichlet distribution of concentration 1. If an array is passed, the probabilities are
        proportional to its entries.
    popularity_distribution : str, optional
        The distribution of the item popularities in a cluster. The exponent of the cluster is β.
        With "rank_zipf", the items of the cluster are ranked at random, and the popularity is
        rank^-β. With "pareto_draw", the popularity is U^(-1/β), where U is uniformly distributed
        from 0 to 1. With "power_draw", the popularity is U^(1/β). With "bounded_pareto_draw", the
        popularity is U^(-1/β), where U is uniformly distributed from 0.01 to 1.
    popularity_scale : {"unscaled", "cluster_sum"}, optional
        With "cluster_sum", the popularities of the items in every cluster are scaled such that
        their sum is 1.
    preference_distribution : {"dirichlet", "softmax"}, optional
        The distribution of the cluster preferences of a user: a Dirichlet distribution
        ("dirichlet"), or the softmax of C standard normal numbers ("softmax").
    preference_concentration : float, optional
        Concentration of the Dirichlet distribution of the preferences, at least 0.01. If the
        concentration is below 1, most users prefer few clusters.
    activity_distribution : {"bounded_power", "pareto_clipped"}, optional
        The distribution of k_u, the number of interactions of user u. With "bounded_power", the
        probability that k_u = x is proportional to x^-user_exponent for x from 1 to p. With
        "pareto_clipped", k_u is computed from U^(-1/user_exponent), where U is uniformly
        distributed from 0 to 1. The power is rounded down and limited to p / 2, but k_u is at least
        1.
    interactions_per_user : int, optional
        Number of interactions k_u of every user, from 1 to n_items. By default, k_u is drawn from
        activity_distribution.
    random_state : int
        The seed of all random numbers. The same seed yields the same interactions for any number of
        threads and for both values of the setting ``backend``.
    n_threads : int, optional
        Number of threads. Default: the setting ``n_threads``.
    progress : callable, optional
        Function that is called as progress(done, total), where both arguments count users.

    Returns
    -------
    Simulation
        A named tuple (X, item_cluster, item_popularity, user_preference, parameters). A user for
        whom fewer than k_u items have a positive probability interacts with all of these items.
        Items without interactions are zero columns of X.

    Raises
    ------
    ValueError
        A preset or a distribution is unknown, or a number is out of range.

    Notes
    -----
    Source: Steck, Ekanadham, Kallus 2024, arXiv:2403.05440, section 4. The interactions are not
    centred and contain no bias terms. The items of the users are drawn with the counter-based
    generator Philox4x32-10 (Salmon et al. 2011). All other random numbers are drawn with
    ``numpy.random.Generator``. A new version of NumPy may change the numbers that
    ``numpy.random.Generator`` draws for a seed.

    Examples
    --------
    >>> from fastcos.models import simulate_interactions
    >>> simulation = simulate_interactions(1000, 100, interactions_per_user=7, random_state=1)
    >>> simulation.X.shape, simulation.X.nnz
    ((1000, 100), 7000)
    >>> simulation.parameters["preference_distribution"]
    'dirichlet'
    """
    validation.check_progress(progress)
    n_items = validation.as_count("n_items", n_items)
    n_clusters = validation.as_count("n_clusters", n_clusters, high=n_items)
    if interactions_per_user is not None:
        interactions_per_user = validation.as_count(
            "interactions_per_user", interactions_per_user, high=n_items
        )
    overrides = {
        "cluster_probabilities": cluster_probabilities,
        "popularity_distribution": popularity_distribution,
        "popularity_scale": popularity_scale,
        "preference_distribution": preference_distribution,
        "preference_concentration": preference_concentration,
        "activity_distribution": activity_distribution,
    }
    choices = _choices(preset, overrides, n_clusters)
    lowest = (
        _SMALLEST_DRAWN_EXPONENT if choices["activity_distribution"] == "pareto_clipped" else 0.0
    )
    parameters = {
        "n_users": validation.as_count("n_users", n_users),
        "n_items": n_items,
        "n_clusters": n_clusters,
        "item_exponent": _as_item_exponents(item_exponent, choices["popularity_distribution"]),
        "user_exponent": validation.as_real(
            "user_exponent", user_exponent, low=lowest, high=_LARGEST_EXPONENT
        ),
        "preset": preset,
        **choices,
        "interactions_per_user": interactions_per_user,
        "random_state": validation.as_count("random_state", random_state, low=0),
    }
    if n_threads is not None:
        n_threads = validation.as_thread_count("n_threads", n_threads)
    return _simulate(parameters, n_threads, progress)


def _simulate(
    parameters: dict[str, Any], n_threads: int | None, progress: parallel.Progress | None
) -> Simulation:
    """Return the simulation with the validated parameters."""
    n_users, n_items = parameters["n_users"], parameters["n_items"]
    n_clusters = parameters["n_clusters"]
    *streams, item_seed = np.random.SeedSequence(parameters["random_state"]).spawn(6)
    clusters, slopes, popularities, preferences, activities = map(np.random.default_rng, streams)
    shares = parameters["cluster_probabilities"]
    if shares == "dirichlet":
        shares = clusters.dirichlet(np.ones(n_clusters))
    elif shares == "uniform":
        shares = np.full(n_clusters, 1 / n_clusters)
    item_cluster = clusters.choice(n_clusters, size=n_items, p=shares)
    lowest, highest = parameters["item_exponent"]
    cluster_exponent = slopes.uniform(lowest, highest, size=n_clusters)
    popularity = _popularity(popularities, item_cluster, cluster_exponent, parameters)
    preference = _preference(preferences, parameters)
    if parameters["interactions_per_user"] is None:
        activity = _activity(activities, parameters)
    else:
        activity = np.full(n_users, parameters["interactions_per_user"], np.int64)
    first, second = item_seed.generate_state(2).tolist()
    X = _draw_items(
        preference, item_cluster, popularity, activity, (first, second), n_threads, progress
    )
    return Simulation(X, item_cluster, popularity, preference, parameters)


def _choices(preset: str, overrides: dict[str, Any], n_clusters: int) -> dict[str, Any]:
    """Return the choices of the preset; an override that is not None replaces a choice."""
    validation.as_choice("preset", preset, tuple(_PRESETS))
    choices = presets()[preset] | {
        name: value for name, value in overrides.items() if value is not None
    }
    for name, values in _CHOICES.items():
        validation.as_choice(name, choices[name], values)
    name = "preference_concentration"
    if choices["preference_distribution"] == "softmax":
        validation.check_none(name, overrides[name], "if preference_distribution is 'softmax'")
        choices[name] = None
    else:
        choices[name] = validation.as_real(name, choices[name], low=0.01)
    name = "cluster_probabilities"
    if isinstance(choices[name], str):
        validation.as_choice(name, choices[name], ("uniform", "dirichlet"))
    else:
        choices[name] = validation.as_probabilities(name, choices[name], n_clusters).tolist()
    return choices


def _as_item_exponents(item_exponent: Any, popularity_distribution: str) -> tuple[float, float]:
    low, high = validation.as_vector("item_exponent", item_exponent, 2).tolist()
    lowest = 0.0 if popularity_distribution == "rank_zipf" else _SMALLEST_DRAWN_EXPONENT
    low = validation.as_real("item_exponent[0]", low, low=lowest, high=_LARGEST_EXPONENT)
    return low, validation.as_real("item_exponent[1]", high, low=low, high=_LARGEST_EXPONENT)


def _popularity(
    random: np.random.Generator, item_cluster: Integers, exponent: Floats, choices: dict[str, Any]
) -> Floats:
    """Return the baseline popularity (p,) of every item, drawn at random."""
    n_items, distribution = len(item_cluster), choices["popularity_distribution"]
    beta = exponent[item_cluster]
    if distribution == "rank_zipf":
        shuffled = random.permutation(n_items)
        order = shuffled[np.argsort(item_cluster[shuffled], kind="stable")]
        size = np.bincount(item_cluster, minlength=len(exponent))
        rank = np.empty(n_items)
        rank[order] = np.arange(n_items) - np.repeat(np.cumsum(size) - size, size) + 1
        popularity = rank**-beta
    else:
        uniform = 1 - random.random(n_items)  # in (0, 1]
        if distribution == "bounded_pareto_draw":
            uniform = 0.01 + 0.99 * uniform
        popularity = uniform ** (1 / beta if distribution == "power_draw" else -1 / beta)
    if choices["popularity_scale"] == "cluster_sum":
        popularity /= np.bincount(item_cluster, popularity, len(exponent))[item_cluster]
    return popularity


def _preference(random: np.random.Generator, parameters: dict[str, Any]) -> Floats:
    """Return the cluster preferences (n, C) of the users, drawn at random; rows sum to 1."""
    n_users, n_clusters = parameters["n_users"], parameters["n_clusters"]
    if parameters["preference_distribution"] == "dirichlet":
        alpha = np.full(n_clusters, parameters["preference_concentration"])
        return random.dirichlet(alpha, size=n_users)
    preference = random.standard_normal((n_users, n_clusters))
    np.exp(preference, out=preference)
    preference /= preference.sum(axis=1, keepdims=True)
    return preference


def _activity(random: np.random.Generator, parameters: dict[str, Any]) -> Integers:
    """Return the number k_u of interactions of every user, drawn at random from 1 to n_items."""
    n_items: int = parameters["n_items"]
    exponent: float = parameters["user_exponent"]
    uniform: Floats = 1 - random.random(parameters["n_users"])
    if parameters["activity_distribution"] == "pareto_clipped":
        limit = max(1, n_items // 2)
        # The power below has a negative exponent, so it would overflow for very small uniform
        # numbers. A lower bound on the uniform numbers ensures that no power exceeds twice the
        # limit. The function np.minimum then clips the powers at the limit.
        uniform = np.maximum(uniform, math.exp(-exponent * math.log(2 * limit)))
        return np.minimum(uniform ** (-1 / exponent), limit).astype(np.int64)
    cumulative = np.cumsum(np.arange(1, n_items + 1) ** -exponent)
    return np.asarray(np.searchsorted(cumulative, uniform * cumulative[-1]).astype(np.int64) + 1)


def _draw_items(
    preference: Floats,
    item_cluster: Integers,
    popularity: Floats,
    activity: Integers,
    key: tuple[int, int],
    n_threads: int | None,
    progress: parallel.Progress | None,
) -> sp.csr_array:
    """Draw ``activity[u]`` items at random for each user u, and return a binary CSR matrix.

    The weight of item i for user u is ``preference[u, item_cluster[i]] * popularity[i]``. If fewer
    than activity[u] items have a positive weight, the user gets all items of positive weight. The
    time of the function is proportional to the number of interactions. The time does not grow with
    n p, the number of all pairs of a user and an item.

    - `preference` (n, C): the cluster preferences of the users.
    - `item_cluster` (p,), `popularity` (p,): the clusters and the popularities of the items.
    - `activity` (n,): the number of interactions of every user.
    - `key`: the two 32-bit words that seed the random generator.
    """
    n_items, n_clusters = len(item_cluster), preference.shape[1]
    order = np.argsort(item_cluster, kind="stable")
    starts = np.searchsorted(item_cluster[order], np.arange(n_clusters + 1)).astype(np.int64)
    weights = popularity[order]
    cumulative = np.empty(n_items)
    for first, last in pairwise(starts.tolist()):
        np.cumsum(weights[first:last], out=cumulative[first:last])
    with np.errstate(divide="ignore"):
        log_weight = np.log(weights)
    n_weighted = np.bincount(item_cluster[popularity > 0], minlength=n_clusters)

    indptr = np.zeros(len(activity) + 1, np.int64)
    np.cumsum(np.minimum(activity, (preference > 0) @ n_weighted), out=indptr[1:])
    n_drawn = int(indptr[-1])
    index_type = np.int32 if max(n_drawn, n_items) <= INT32_MAX else np.int64
    indices = parallel.unfilled(n_drawn, index_type)
    # For each block of users, the kernel first clears one mark per item. With at least 4 n_items
    # interactions per block, clearing the marks takes little of the time.
    blocks = parallel.work_blocks(indptr, max(_WORK_PER_BLOCK, 4 * n_items))
    clusters = Clusters(*map(validation.read_only, (starts, order, cumulative, log_weight)))
    parallel.run(
        sample_rows, blocks, validation.read_only(preference), clusters,
        records.Drawing(*key, race_from=-(-n_items // _RACE_SHARE), max_draws=n_items),
        validation.read_only(indptr), indices,
        n_threads=n_threads, progress=progress,
    )  # fmt: skip
    ones = np.ones(n_drawn, np.float32)
    return sp.csr_array((ones, indices, indptr.astype(index_type)), shape=(len(activity), n_items))
