"""choose_rank: how many latent dimensions the interactions support, by three criteria."""

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

# ranks to compare: equal steps on a logarithmic scale up to twice the paper's rank
RANKS = (2, 3, 4, 5, 6, 8, 12, 20, 35, 50, 100)
# evaluated users: the standard error of a mean of scores from 0 to 1 is at most 0.011
_N_USERS = 2000


@as_table
@dataclass(frozen=True)
class RankChoice:
    """Three recommendations of the number of dimensions, and the numbers behind them.

    Attributes
    ----------
    ranks : ndarray (m,), int64
        The compared ranks, ascending.
    ndcg : ndarray (m,), float64
        NDCG@20 of held-out interactions by the model of each rank, mean over users.
    ndcg_error : ndarray (m,), float64
        Standard error over users of the difference to the best rank.
    singular_values : ndarray (k,), float64
        Of the interactions, descending; k is the largest rank.
    noise_singular_values : ndarray (k,), float64
        Of the same interactions with the users of each item drawn at random.
    by_held_out : int
        The smallest rank whose NDCG is within one standard error of the best.
    by_gap : int
        The rank before the largest ratio of two singular values in a row. The first ratio, which
        is that of popularity, does not count.
    by_parallel_analysis : int
        Number of leading singular values above those of the noise; at least 2.
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
    """How many latent dimensions to give a model of these interactions, before any D is compared.

    A cosine weights all dimensions; those beyond the signal add noise to it. The three criteria
    use no labels. They need not agree: prediction forgives dimensions that a cosine does not.

    Parameters
    ----------
    X : sparse matrix or array_like (n, p)
        Interactions of n users with p items.
    ranks : sequence of int, optional
        From 2 to min(n, p). Default: 2 to 100, in equal steps on a logarithmic scale.
    regularization : float, optional
        λ of Eq. 1 for all ranks. Default: as in :func:`fastcos.compare` at rank 50.
    random_state : int, default 0
        Seed of the held-out interactions, the noise and the solver.

    Returns
    -------
    RankChoice

    Notes
    -----
    Two SVDs of the largest rank. Sources: parallel analysis, Horn 1965, doi:10.1007/BF02289447;
    the rule of one standard error, Breiman et al. 1984.

    Examples
    --------
    >>> import fastcos
    >>> X = fastcos.simulate_interactions(1000, 100, preset="zipf_pareto_focused").X
    >>> choice = fastcos.comparison.choose_rank(X, ranks=[2, 5, 20])
    >>> choice.by_gap, choice.ranks.tolist()
    (5, [2, 5, 20])
    """
    X = as_interactions("X", X)
    most = min(X.shape)
    if ranks is None:
        ranks = [rank for rank in RANKS if rank <= most]
    given = validation.as_list("ranks", ranks)
    chosen = sorted({validation.as_count("ranks", rank, 2, most) for rank in given})
    if not chosen:
        raise ValueError("ranks must have at least one rank, got none")
    if regularization is not None:
        regularization = validation.as_real("regularization", regularization, low=0)
    random_state = validation.as_count("random_state", random_state, low=0)
    random = np.random.default_rng(random_state)
    task = HeldOutTask(X, random, _N_USERS)
    model = fit_spectrum(task.rest, chosen[-1], regularization, random_state)
    users, items = model.user_embeddings(task.rest), model.item_embeddings()
    ndcg = np.stack([task.score_factors(users[:, :k], items[:, :k]).ndcg for k in chosen])
    noise = LinearMF(chosen[-1], random_state=random_state).fit(shuffled_users(task.rest, random))
    values = model.singular_values_.astype(np.float64)
    of_noise = noise.singular_values_.astype(np.float64)
    return RankChoice(
        ranks=np.array(chosen),
        ndcg=ndcg.mean(axis=1),
        ndcg_error=_errors(ndcg),
        singular_values=values,
        noise_singular_values=of_noise,
        by_held_out=simplest_of_best(chosen, ndcg),
        by_gap=largest_gap(values),
        by_parallel_analysis=n_above(values, of_noise),
    )


def fit_spectrum(X: Any, rank: int, regularization: float | None, random_state: int) -> LinearMF:
    """Eq. 1 of this rank; λ None: the square of the singular value number 10, as for rank 50."""
    model = LinearMF(rank, random_state=random_state).fit(X)
    if regularization is None:
        # the paper's rank is 50, the default knee its fifth
        regularization = float(model.singular_values_[min(10, rank) - 1]) ** 2
    return model.reregularized("dropout", regularization)


def simplest_of_best(ranks: Sequence[int], ndcg: Floats) -> int:
    """The smallest rank within one standard error of the best; ndcg (ranks, users)."""
    means = ndcg.mean(axis=1)
    return ranks[int(np.argmax(means >= means.max() - _errors(ndcg)))]


def _errors(ndcg: Floats) -> Floats:
    """Standard error over users of the difference to the best rank."""
    best = ndcg[ndcg.mean(axis=1).argmax()]
    return (ndcg - best).std(axis=1, ddof=1) / np.sqrt(ndcg.shape[1])


def n_above(values: Any, noise: Any) -> int:
    """Number of leading values above those of the noise; at least 2."""
    return max(2, int(np.append(values > noise, False).argmin()))


def largest_gap(values: Floats) -> int:
    """Number of values before the largest ratio of two in a row, the first ratio left out."""
    ratios = values[1:-1] / np.maximum(values[2:], np.finfo(np.float64).tiny)
    return len(values) if not len(ratios) else int(ratios.argmax()) + 2


def shuffled_users(X: sp.csr_array, random: np.random.Generator) -> sp.csr_array:
    """X with the users of each item drawn at random: item counts stay, all else is noise."""
    columns = sp.csc_array(X)
    counts = np.diff(columns.indptr)
    rows = [random.choice(X.shape[0], count, replace=False) for count in counts.tolist()]
    drawn = np.concatenate(rows) if rows else columns.indices
    return sp.csr_array(sp.csc_array((columns.data, drawn, columns.indptr), shape=X.shape))
