"""The function ``choose_rank``, which recommends the number of latent dimensions of a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastcos import validation
from fastcos.comparison.tasks.held_out import HeldOutTask
from fastcos.linalg.csr import as_interactions
from fastcos.models.linear_mf import LinearMF
from fastcos.reports import as_table
from fastcos.validation import Floats, Integers

# The default ranks. They grow in about equal steps on a logarithmic scale, up to twice the rank of
# the paper.
RANKS = (2, 3, 4, 5, 6, 8, 12, 20, 35, 50, 100)
# Number of evaluated users. For 2,000 users, the standard error of a mean of scores from 0 to 1 is
# at most 0.011.
_N_USERS = 2000


@as_table
@dataclass(frozen=True)
class RankChoice:
    """Three recommendations for the number of latent dimensions, and the data behind them.

    Attributes
    ----------
    ranks : ndarray (m,), int64
        The compared ranks, ascending.
    ndcg : ndarray (m,), float64
        For each rank, the NDCG@20 with which a model of this rank predicts the held-out
        interactions, as a mean over users.
    ndcg_error : ndarray (m,), float64
        For each rank, the standard error of a difference: the NDCG of this rank minus the NDCG of
        the best rank. The standard error is computed over users.
    singular_values : ndarray (k,), float64
        Singular values of the interactions on which the models were trained, in descending order; k
        is the largest rank.
    noise_singular_values : ndarray (k,), float64
        Singular values of randomised interactions, in which the users of each item have been
        replaced by random users.
    by_held_out : int
        The smallest rank whose NDCG is within one standard error of the largest NDCG.
    by_gap : int
        The rank k ≥ 2 for which singular value k, divided by singular value k + 1, is largest. The
        rank 1 is excluded, because the first singular value mainly reflects popularity.
    by_parallel_analysis : int
        Each entry of ``singular_values`` is compared with the entry of ``noise_singular_values`` at
        the same index. ``by_parallel_analysis`` is the number of leading entries that exceed the
        noise, but at least 2.
    """

    ranks: Integers
    ndcg: Floats
    ndcg_error: Floats
    singular_values: Floats
    noise_singular_values: Floats
    by_held_out: int
    by_gap: int
    by_parallel_analysis: int


def choose_rank(
    X: Any,
    ranks: Sequence[int] | None = None,
    *,
    regularization: float | None = None,
    random_state: int = 0,
) -> RankChoice:
    """Return three recommendations for the number of latent dimensions of a model.

    Choose the number of dimensions before you compare rescalings D. A cosine depends on all
    dimensions, so dimensions that contain only noise add noise to the cosine. The three
    recommendations are based on the prediction of held-out interactions, on the largest gap between
    singular values, and on a comparison with random interactions. None of the three recommendations
    uses labels. The three recommendations may disagree, because superfluous dimensions harm a
    cosine more than they harm predictions.

    Parameters
    ----------
    X : sparse matrix or array_like (n, p)
        Interactions of n users with p items.
    ranks : sequence of int, optional
        The ranks to compare, each from 2 to min(n, p). Default: ranks from 2 to 100, in about equal
        steps on a logarithmic scale.
    regularization : float, optional
        The regularisation strength λ of Eq. 1, which is the same for all ranks. Default: the square
        of the tenth singular value, which is also the default of :func:`fastcos.compare` for a
        model of rank 50. If the largest rank k is below 10, the k-th singular value is used instead
        of the tenth.
    random_state : int, default 0
        Seed for drawing the held-out interactions and the random users, and for the solver.

    Returns
    -------
    RankChoice

    Notes
    -----
    The function computes two SVDs of the largest rank. Sources: for ``by_parallel_analysis``, Horn
    1965, doi:10.1007/BF02289447; for the rule of one standard error in ``by_held_out``, Breiman et
    al. 1984.

    Examples
    --------
    >>> import fastcos
    >>> X = fastcos.simulate_interactions(1000, 100, preset="zipf_pareto_focused").X
    >>> choice = fastcos.comparison.choose_rank(X, ranks=[2, 5, 20])
    >>> choice.by_gap, choice.ranks.tolist()
    (5, [2, 5, 20])
    """
    X = as_interactions("X", X)
    max_rank = min(X.shape)
    if ranks is None:
        ranks = [rank for rank in RANKS if rank <= max_rank]
    ranks = validation.as_list("ranks", ranks)
    distinct_ranks = sorted({validation.as_count("ranks", rank, 2, max_rank) for rank in ranks})
    if not distinct_ranks:
        raise ValueError("ranks must have at least one rank, got none")
    if regularization is not None:
        regularization = validation.as_real("regularization", regularization, low=0)
    random_state = validation.as_count("random_state", random_state, low=0)
    random = np.random.default_rng(random_state)
    task = HeldOutTask.split(X, random, _N_USERS)
    k = distinct_ranks[-1]
    model = fit_spectrum(task.training_X, k, regularization, random_state)
    users, items = model.user_embeddings(task.training_X), model.item_embeddings()
    ndcg = np.stack(
        [task.score_factors(users[:, :rank], items[:, :rank]).ndcg for rank in distinct_ranks]
    )
    noise_model = LinearMF(k, random_state=random_state).fit(
        shuffled_users(task.training_X, random)
    )
    values = model.singular_values_.astype(np.float64)
    noise_values = noise_model.singular_values_.astype(np.float64)
    return RankChoice(
        ranks=np.array(distinct_ranks),
        ndcg=ndcg.mean(axis=1),
        ndcg_error=_errors(ndcg),
        singular_values=values,
        noise_singular_values=noise_values,
        by_held_out=smallest_near_best(distinct_ranks, ndcg),
        by_gap=largest_gap(values),
        by_parallel_analysis=count_above(values, noise_values),
    )


def fit_spectrum(X: Any, rank: int, regularization: float | None, random_state: int) -> LinearMF:
    """Return a fitted model of Eq. 1.

    By default, λ is the square of the tenth largest singular value. If `rank` is less than 10, λ is
    the square of the smallest singular value of the model.
    """
    model = LinearMF(rank, random_state=random_state).fit(X)
    if regularization is None:
        # Number the singular values from the largest. In ``compare``, the default λ is the square
        # of the singular value with the number rank / 5. For the rank of the paper, which is 50,
        # this is the tenth largest singular value. This function uses the tenth largest singular
        # value for every rank of at least 10.
        regularization = float(model.singular_values_[min(10, rank) - 1]) ** 2
    return model.reregularized("dropout", regularization)


def smallest_near_best(ranks: Sequence[int], ndcg: Floats) -> int:
    """Return the smallest rank whose NDCG is within one standard error of the largest NDCG.

    Row i of `ndcg` (ranks, users) contains the NDCG of every user under the model of rank
    ``ranks[i]``.
    """
    means = ndcg.mean(axis=1)
    return ranks[int(np.argmax(means >= means.max() - _errors(ndcg)))]


def _errors(ndcg: Floats) -> Floats:
    """Return the standard error of the difference between each rank's NDCG and the best NDCG."""
    best = ndcg[ndcg.mean(axis=1).argmax()]
    return (ndcg - best).std(axis=1, ddof=1) / np.sqrt(ndcg.shape[1])


def count_above(values: Any, noise: Any) -> int:
    """Return the number of leading values that exceed the noise, but at least 2.

    Entry i of `noise` is the value that noise alone would produce instead of entry i of `values`.
    """
    return max(2, int(np.append(values > noise, False).argmin()))


def largest_gap(values: Floats) -> int:
    """Return the number of values before the largest gap between consecutive values.

    A gap is the ratio of a value to the next value. The gap between the first and the second entry
    of `values` is not considered.
    """
    ratios = values[1:-1] / np.maximum(values[2:], np.finfo(np.float64).tiny)
    return len(values) if not len(ratios) else int(ratios.argmax()) + 2


def shuffled_users(X: sp.csr_array, random: np.random.Generator) -> sp.csr_array:
    """Replace the users of each item by the same number of random users; return the new X."""
    columns = sp.csc_array(X)
    counts = np.diff(columns.indptr)
    rows = [random.choice(X.shape[0], count, replace=False) for count in counts.tolist()]
    users = np.concatenate(rows) if rows else columns.indices
    return sp.csr_array(sp.csc_array((columns.data, users, columns.indptr), shape=X.shape))
