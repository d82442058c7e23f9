"""How a measure finds what users do next: recall and NDCG of held-out interactions, per user."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastcos import parallel, validation
from fastcos.comparison.bootstrap import Question, Test, mean_chance, mean_estimate
from fastcos.comparison.candidates import Embeddings
from fastcos.comparison.entrants import USER_ITEM, Entrant
from fastcos.kernels import knn_vote
from fastcos.measures.row_transforms import Floats, Integers
from fastcos.metrics import checks
from fastcos.metrics.ranking import hits_of, ndcgs_at_k, recalls_at_k
from fastcos.models.cosine_training import split_held_out
from fastcos.neighbors.search import top_k

N_ASKED = 2000
N_VOTES = 20
N_RECOMMENDED = 20
HELD_OUT_SHARE = 0.2


class UserScores(NamedTuple):
    """What every asked user gets, (n,) float64 each.

    Attributes
    ----------
    ndcg, recall : ndarray
        At 20, of the items held out.
    """

    ndcg: Floats
    recall: Floats


class HeldOutQuestion:
    """Hides a fifth of every user's interactions, and asks for that of some users.

    Attributes
    ----------
    known : csr_array (n, p)
        What is left: all that a model may see.
    asked : ndarray (m,), int64
        Numbers of the users that are asked, rising.
    """

    def __init__(self, X: sp.csr_array, random: np.random.Generator) -> None:
        self.known, held = split_held_out(X, HELD_OUT_SHARE, random)
        able = np.flatnonzero(np.diff(held.indptr))
        checks.check_enough("X", len(able), 2, "users with interactions to hold out")
        self.asked = np.sort(random.permutation(able)[:N_ASKED])
        self._seen = sp.csr_array(self.known[self.asked])
        self._held = sp.csr_array(held[self.asked])
        self._k = min(N_RECOMMENDED, X.shape[1])

    def most_popular(self) -> UserScores:
        """Scores of recommending what most users know: of knowing nothing of the user."""
        count = np.bincount(self.known.indices, minlength=self.known.shape[1])
        order = np.argsort(-count, kind="stable")
        return self._scores(_unseen(order, self._seen, self._k))

    def answer(self, entrant: Entrant, embeddings: Embeddings) -> UserScores:
        """Score a measure: the lists of items seen vote; or the nearest users; or users' rows."""
        measure = entrant.measure(embeddings)
        if entrant.name in USER_ITEM:
            users: Any = embeddings.users
            found = top_k(
                users[self.asked], embeddings.items, self._k, measure=measure, exclude=self._seen
            ).indices
            return self._scores(found)
        rows = entrant.rows(embeddings)
        n = rows.shape[0]
        if entrant.of_users:
            lists = top_k(
                rows[self.asked], rows, min(N_VOTES, n - 1), measure=measure,
                exclude=self._themselves(n),
            ).indices  # fmt: skip
            return self._scores(self._voted_by_users(lists))
        lists = top_k(rows, k=min(N_VOTES, n - 1), measure=measure).indices
        return self._scores(self._voted(lists))

    def question(self, answers: Sequence[UserScores]) -> Question:
        """Which candidate finds what users did next; one must beat what is most popular."""
        ndcg, recall = (mean_estimate(np.stack(one)) for one in zip(*answers, strict=True))
        return Question(
            question="what users do next: held-out interactions",
            unit="users",
            n_units=len(self.asked),
            score=f"NDCG@{self._k}",
            estimate=ndcg,
            tests=(
                Test(
                    f"NDCG@{self._k}",
                    ndcg,
                    mean_chance(self.most_popular().ndcg),
                    "what is most popular has",
                ),
            ),
            others={f"recall@{self._k}": recall},
            failure="No measure says what users do next",
        )

    def _voted(self, lists: Integers) -> Integers:
        best = parallel.unfilled((len(self.asked), self._k), np.int64)
        parallel.run(
            knn_vote.recommend_by_lists, parallel.row_blocks(len(best), 32),
            *_row_starts_and_items(self._seen), validation.read_only(np.ascontiguousarray(lists)),
            _votes_by_rank(lists), best,
        )  # fmt: skip
        return best

    def _voted_by_users(self, lists: Integers) -> Integers:
        best = parallel.unfilled((len(self.asked), self._k), np.int64)
        parallel.run(
            knn_vote.recommend_by_users, parallel.row_blocks(len(best), 32),
            validation.read_only(self.asked), validation.read_only(np.ascontiguousarray(lists)),
            _votes_by_rank(lists), *_row_starts_and_items(self.known), self.known.shape[1], best,
        )  # fmt: skip
        return best

    def _themselves(self, n_users: int) -> sp.csr_array:
        """Nobody who is asked is among the nearest."""
        m = len(self.asked)
        return sp.csr_array((np.ones(m), self.asked, np.arange(m + 1)), shape=(m, n_users))

    def _scores(self, recommended: Integers) -> UserScores:
        hits, n_held = hits_of(recommended, self._held)
        return UserScores(ndcgs_at_k(hits, n_held), recalls_at_k(hits, n_held))


def _row_starts_and_items(X: sp.csr_array) -> tuple[Integers, Any]:
    starts, items = X.indptr.astype(np.int64), X.indices.astype(np.int32)
    return validation.read_only(starts), validation.read_only(items)


def _votes_by_rank(lists: Integers) -> Floats:
    return validation.read_only(1 / np.log2(np.arange(2, lists.shape[1] + 2)))


def _unseen(order: Integers, seen: sp.csr_array, k: int) -> Integers:
    """The first k of the order that each user has not seen, -1 where there are fewer."""
    lists = np.full((seen.shape[0], k), -1, np.int64)
    for user in range(seen.shape[0]):
        known = seen.indices[seen.indptr[user] : seen.indptr[user + 1]]
        some = order[: k + len(known)]
        some = some[~np.isin(some, known)][:k]
        lists[user, : len(some)] = some
    return lists
