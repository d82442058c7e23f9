"""The best items of many users by inner products, in blocks of users."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from fastcos import validation
from fastcos.neighbors.search import Neighbors, top_k
from fastcos.parallel import Progress

# a block's embeddings: 32 MiB at 128 dimensions
_USERS_PER_BLOCK = 1 << 16


class RecommenderMixin:
    """``recommend`` for estimators with user_embeddings(X), item_embeddings() and _as_matrix."""

    def recommend(
        self: Any,
        X: Any,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Neighbors:
        """Return the k items of largest inner product with every user's embedding.

        Exact, and independent of rescaling. Users are embedded in blocks: beside the result, memory
        for 65,536 of them.

        Parameters
        ----------
        X : sparse matrix or array_like (m, p)
            Rows of any users, seen in fit or not.
        k : int
            From 1 to p.
        exclude_seen : bool
            Leave out the non-zeros of a user's row. A user with fewer than k other items is padded
            by -1 and -inf.
        n_threads : int, optional
            Default: the setting ``num_threads``.
        progress : callable, optional
            Called as progress(done, total) with numbers of users.

        Returns
        -------
        Neighbors
            indices (m, k) int64 by falling score, equal scores by lower index; scores (m, k)
            float32.

        Raises
        ------
        ValueError
            X or k is not valid.

        Examples
        --------
        >>> import numpy as np
        >>> from fastcos import LinearMF
        >>> X = np.array([[1.0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]])
        >>> LinearMF(2, regularization=0.1).fit(X).recommend(X, 1).indices.ravel().tolist()
        [2, 3, 0]
        """
        check_is_fitted(self)
        X = self._as_matrix(X, reset=False)
        m, p = X.shape
        k = validation.as_count("k", k, high=p)
        items = self.item_embeddings()
        found = Neighbors(np.empty((m, k), np.int64), np.empty((m, k), np.float32))
        for first in range(0, m, _USERS_PER_BLOCK):
            rows = X[first : first + _USERS_PER_BLOCK]

            def tell(done: int, _: int, first: int = first) -> None:
                if progress is not None:
                    progress(first + done, m)

            block = top_k(
                self.user_embeddings(rows), items, k, measure="dot", n_threads=n_threads,
                exclude=sp.csr_array(rows) if exclude_seen else None, progress=tell,
            )  # fmt: skip
            last = first + len(block.indices)
            found.indices[first:last], found.scores[first:last] = block
        return found
