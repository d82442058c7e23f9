"""The task of predicting held-out interactions, scored by the NDCG and recall of each user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastcos import validation
from fastcos.comparison.bootstrap import Evaluation, mean_estimate
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.comparison.recommending import recommend
from fastcos.metrics.retrieval import gains_of, ndcgs_at_k, recalls_at_k
from fastcos.models.cosine_training import split_held_out
from fastcos.search.top_k import top_k
from fastcos.validation import Floats, Integers

# Number of evaluated users. For 5,000 users, the standard error of a mean of scores from 0 to 1 is
# at most 0.007.
N_USERS = 5000
# If fewer than FEW_USERS users are evaluated, the conclusion contains a warning. At least FEW_USERS
# users are sampled; if fewer users have held-out interactions, all of them are sampled. For 500
# users, the standard error of a mean of scores from 0 to 1 is at most 0.022.
FEW_USERS = 500
# Number of recommended items, which is the k of NDCG@k and recall@k.
N_RECOMMENDED = 20
# Share of the interactions of each user that are held out.
HELD_OUT_SHARE = 0.2


class UserScores(NamedTuple):
    """NDCG@20 and recall@20 of the held-out items for each evaluated user, as arrays (n,)."""

    ndcg: Floats
    recall: Floats


class HeldOutTask:
    """The task of predicting held-out interactions of some users.

    - `training_X` (n, p): the interactions on which models are trained; they are not held out.
    - `held_out` (n, p): the held-out interactions; no model is trained on them.
    - `users` (m,): ascending row numbers of the evaluated users.
    """

    def __init__(
        self,
        training_X: sp.csr_array,
        held_out: sp.csr_array,
        random: np.random.Generator,
        n_users: int = N_USERS,
        n_items: int | None = None,
    ) -> None:
        self.training_X = training_X
        eligible = np.flatnonzero(np.diff(held_out.indptr))
        sampled_users = random.permutation(eligible)[:n_users]
        if n_items is not None:
            # Keep as many of the first users as possible, provided that all kept users together
            # have seen at most n_items items. Keep at least FEW_USERS users, even if these have
            # seen more than n_items items.
            training_rows = sp.csr_array(self.training_X[sampled_users])
            _, first = np.unique(training_rows.indices, return_index=True)
            n_seen = np.searchsorted(np.sort(first), training_rows.indptr[1:])
            sampled_users = sampled_users[
                : max(FEW_USERS, np.searchsorted(n_seen, n_items, side="right"))
            ]
        self.users = np.sort(sampled_users)
        self._training_rows = sp.csr_array(self.training_X[self.users])
        self._held_out = sp.csr_array(held_out[self.users])
        self._k = min(N_RECOMMENDED, training_X.shape[1])

    @staticmethod
    def split(
        X: sp.csr_array,
        random: np.random.Generator,
        n_users: int = N_USERS,
        n_items: int | None = None,
    ) -> HeldOutTask:
        """Return the task of predicting a random fifth of every user's interactions."""
        training_X, held_out = split_held_out(X, HELD_OUT_SHARE, random)
        n_eligible = int(np.count_nonzero(np.diff(held_out.indptr)))
        validation.check_enough("X", n_eligible, 2, "users with interactions to hold out")
        return HeldOutTask(training_X, held_out, random, n_users, n_items)

    def most_popular(self) -> UserScores:
        """Return the scores that result from recommending the most popular items to all users.

        These scores are the chance level of this task.
        """
        X = self.training_X
        popularity = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64)
        return self.score_factors(np.ones((X.shape[0], 1)), popularity[:, None])

    def score(self, candidate: Candidate, embeddings: Embeddings) -> UserScores:
        """Return the NDCG and the recall of the candidate's recommendations for each user."""
        neighbors = recommend(candidate, embeddings, self.users, self.training_X, self._k)
        return self._scores(neighbors.indices)

    def score_factors(self, users: Any, items: Any) -> UserScores:
        """Rank items (p, k) by inner products with users (n, k); return the NDCG and the recall."""
        neighbors = top_k(
            users[self.users], items, self._k, measure="dot", exclude=self._training_rows
        )
        return self._scores(neighbors.indices)

    def evaluation(self, scores: Sequence[UserScores]) -> Evaluation:
        """Return the evaluation of all candidates on this task, ranked by NDCG.

        A candidate is recommended only if the NDCG of the best candidate is significantly higher
        than the NDCG of the most popular items.
        """
        ndcg, recall = (mean_estimate(np.stack(values)) for values in zip(*scores, strict=True))
        popular = self.most_popular()
        return Evaluation(
            task="prediction of held-out interactions",
            unit="users",
            n_units=len(self.users),
            score=f"NDCG@{self._k}",
            estimate=ndcg,
            failure="No measure predicts held-out interactions",
            chance=mean_estimate(popular.ndcg[None]),
            baseline="for the most popular items",
            trivial="most popular items",
            trivial_scores={f"recall@{self._k}": mean_estimate(popular.recall[None])},
            other_scores={f"recall@{self._k}": recall},
            few=FEW_USERS,
        )

    def _scores(self, recommended: Integers) -> UserScores:
        hits = gains_of(recommended, self._held_out)
        return UserScores(ndcgs_at_k(hits, self._held_out), recalls_at_k(hits, self._held_out))
