"""Held-out interactions: recall and NDCG of recommendations, per user."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastcos import validation
from fastcos.comparison.bootstrap import Evaluation, mean_estimate
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.comparison.recommending import recommend
from fastcos.metrics.retrieval import hits_of, ndcgs_at_k, recalls_at_k
from fastcos.models.cosine_training import split_held_out
from fastcos.search.top_k import top_k
from fastcos.validation import Floats, Integers

# evaluated users: the standard error of a mean of scores from 0 to 1 is at most 0.007
N_USERS = 5000
# users below which the conclusion warns, and which no sample goes below: at most 0.022
FEW_USERS = 500
# recommended items: the k of NDCG@k and recall@k
N_RECOMMENDED = 20
# share of each user's interactions
HELD_OUT_SHARE = 0.2


class UserScores(NamedTuple):
    """NDCG@20 and recall@20 of the held-out items, of each evaluated user, (n,)."""

    ndcg: Floats
    recall: Floats


class HeldOutTask:
    """Hold out a fifth of every user's interactions, and recommend them to some users.

    rest (n, p): the other interactions, all that a model may see. users (m,): ascending numbers of
    the evaluated users.
    """

    def __init__(
        self,
        X: sp.csr_array,
        random: np.random.Generator,
        n_users: int = N_USERS,
        n_items: int | None = None,
    ) -> None:
        self.rest, held = split_held_out(X, HELD_OUT_SHARE, random)
        able = np.flatnonzero(np.diff(held.indptr))
        validation.check_enough("X", len(able), 2, "users with interactions to hold out")
        drawn = random.permutation(able)[:n_users]
        if n_items is not None:  # only the first, who have together seen that number of items
            seen = sp.csr_array(self.rest[drawn])
            _, first = np.unique(seen.indices, return_index=True)
            n_seen = np.searchsorted(np.sort(first), seen.indptr[1:])
            drawn = drawn[: max(FEW_USERS, np.searchsorted(n_seen, n_items, side="right"))]
        self.users = np.sort(drawn)
        self._seen = sp.csr_array(self.rest[self.users])
        self._held = sp.csr_array(held[self.users])
        self._k = min(N_RECOMMENDED, X.shape[1])

    def most_popular(self) -> UserScores:
        """Scores of the most popular items, the same for all users: the chance level."""
        count = np.bincount(self.rest.indices, minlength=self.rest.shape[1]).astype(np.float64)
        return self.score_factors(np.ones((self.rest.shape[0], 1)), count[:, None])

    def score(self, candidate: Candidate, embeddings: Embeddings) -> UserScores:
        """Recommend by user-item scores, by votes of the nearest users or of the nearest items."""
        recommended = recommend(candidate, embeddings, self.users, self.rest, self._k)
        return self._scores(recommended.indices)

    def score_factors(self, users: Any, items: Any) -> UserScores:
        """Recommend the items with the largest products with the rows (n, k) of the users."""
        recommended = top_k(users[self.users], items, self._k, measure="dot", exclude=self._seen)
        return self._scores(recommended.indices)

    def evaluation(self, scores: Sequence[UserScores]) -> Evaluation:
        """Ranked by NDCG; the best must exceed that of the most popular items."""
        ndcg, recall = (mean_estimate(np.stack(one)) for one in zip(*scores, strict=True))
        return Evaluation(
            task="prediction of held-out interactions",
            unit="users",
            n_units=len(self.users),
            score=f"NDCG@{self._k}",
            estimate=ndcg,
            failure="No measure predicts held-out interactions",
            chance=mean_estimate(self.most_popular().ndcg[None]),
            baseline="the most popular items have",
            other_scores={f"recall@{self._k}": recall},
            few=FEW_USERS,
        )

    def _scores(self, recommended: Integers) -> UserScores:
        hits, n_held = hits_of(recommended, self._held)
        return UserScores(ndcgs_at_k(hits, n_held), recalls_at_k(hits, n_held))
