"""Exact neighbours among dense rows."""

import numpy as np
import scipy.sparse as sp
from scipy.stats import norm, rankdata

import fastcos
from bench import answers, inputs

SHAPES = {"1,000 x 64": (1_000, 64), "20,000 x 128": (20_000, 128)}


class SelfNeighbors(answers.Situation):
    """Self-join: the neighbours of every row among the others."""

    params = [list(SHAPES), [10, 100]]
    param_names = ["shape", "k"]

    @answers.once
    def setup(self, shape, k):
        self.rows, self.k = inputs.gaussian(*SHAPES[shape]), k
        found = self.time_top_k()
        self.wrong = answers.at_most(0, answers.wrong_rows(found.indices, self.rows))

    def time_top_k(self, *_):
        return fastcos.top_k(self.rows, k=self.k)

    def track_wrong_rows(self, *_):
        return self.wrong

    track_wrong_rows.unit = f"of {answers.CHECKED_ROWS} rows"

    def track_peak_bytes(self, *_):
        return answers.peak_bytes(self.time_top_k)

    track_peak_bytes.unit = "bytes"


class Queries(answers.Situation):
    """Queries among other rows, by measures that are inner products of transformed rows."""

    params = [[1, 32, 1_000], ["cosine", "dot", "neg_euclidean"]]
    param_names = ["queries", "measure"]

    @answers.once
    def setup(self, queries, measure):
        self.items, self.measure = inputs.gaussian(20_000, 64), measure
        self.queries = inputs.gaussian(queries, 64, seed=1)
        found = self.time_top_k()
        self.wrong = answers.at_most(
            0, answers.wrong_rows(found.indices, self.queries, self.items, measure)
        )

    def time_top_k(self, *_):
        return fastcos.top_k(self.queries, self.items, 10, measure=self.measure)

    def track_wrong_rows(self, *_):
        return self.wrong

    track_wrong_rows.unit = f"of {answers.CHECKED_ROWS} rows"


class FilteredQueries(answers.Situation):
    """Filters: allowed items, excluded pairs, a minimum score."""

    @answers.once
    def setup(self):
        rng = np.random.default_rng(0)
        self.items, self.queries = inputs.gaussian(20_000, 64), inputs.gaussian(500, 64, seed=1)
        self.allowed = rng.random(20_000) < 0.5
        seen = rng.random((500, 20_000)) < 0.001
        self.seen = sp.csr_array(seen)
        found = fastcos.top_k(self.queries, self.items, 10, allowed=self.allowed).indices
        some = np.flatnonzero(self.allowed)
        wrong = answers.wrong_rows(np.searchsorted(some, found), self.queries, self.items[some])
        hit = np.take_along_axis(seen, self.time_exclude().indices, axis=1).sum()
        self.wrong = answers.at_most(0, wrong + hit)

    def time_allowed(self):
        return fastcos.top_k(self.queries, self.items, 10, allowed=self.allowed)

    def time_exclude(self):
        return fastcos.top_k(self.queries, self.items, 10, exclude=self.seen)

    def time_min_score(self):
        return fastcos.top_k(self.queries, self.items, 10, min_score=0.3)

    def track_wrong_rows(self):
        return self.wrong

    track_wrong_rows.unit = f"of {answers.CHECKED_ROWS} rows, and items seen"


def true_order(rows, measure):
    """Return float64 values in the order of the measure; -inf for a row and itself."""
    rows = rows.astype(np.float64)
    if measure == "zscore_cosine":
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    if measure == "spearman_dims":
        rows = rankdata(rows, axis=1) - (rows.shape[1] + 1) / 2
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    scores = unit @ unit.T
    own = np.eye(len(rows), dtype=bool)
    scores[own] = -np.inf
    if measure == "csls":
        nearest = -np.sort(-scores, axis=1)[:, :10].mean(axis=1)
        scores = 2 * scores - nearest[:, None] - nearest
    if measure == "mutual_proximity":
        others = scores[~own].reshape(len(rows), -1)
        mean, deviation = others.mean(axis=1), others.std(axis=1)
        scores = norm.cdf((scores - mean) / deviation)
        scores *= scores.T
    scores[own] = -np.inf
    return scores


class Measures(answers.Situation):
    """Measures that are more than an inner product; measure_costs.py times all of them."""

    params = [["csls", "mutual_proximity", "angular", "zscore_cosine", "spearman_dims"]]
    param_names = ["measure"]

    @answers.once
    def setup(self, measure):
        self.rows, self.measure = inputs.gaussian(3_000, 32), measure
        found = self.time_top_k()
        scores = true_order(self.rows, measure)
        best = -np.sort(-np.partition(scores, -10, axis=1)[:, -10:], axis=1)
        lost = best - np.take_along_axis(scores, found.indices, axis=1)
        self.error = answers.at_most(1e-6, float(lost.max()))
        self.mean_score = float(found.scores[:, -1].mean())

    def time_top_k(self, *_):
        return fastcos.top_k(self.rows, k=10, measure=self.measure)

    def track_error(self, *_):
        return self.error

    track_error.unit = "score"

    def track_mean_kth_score(self, *_):
        return self.mean_score

    track_mean_kth_score.unit = "score"


class AllPairs(answers.Situation):
    """Scores of all pairs: in blocks, above a threshold, as scikit-learn's graph."""

    params = [[1_000, 5_000]]
    param_names = ["rows"]
    threshold = 0.5

    @answers.once
    def setup(self, rows):
        self.rows = inputs.gaussian(rows, 64)
        unit = self.rows.astype(np.float64)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        products = unit @ unit.T
        np.fill_diagonal(products, -1)
        wrong = abs(self.time_neighbors_above().nnz - (products > self.threshold).sum())
        graph = fastcos.NeighborsTransformer(10).fit_transform(self.rows)
        self.wrong = answers.at_most(0, wrong + abs(graph.nnz - 11 * rows))
        blocks = fastcos.similarity_blocks(self.rows)
        np.fill_diagonal(products, 1)
        self.error = answers.at_most(
            1e-5, max(float(abs(block - products[at]).max()) for at, block in blocks)
        )

    def time_similarity_blocks(self, *_):
        for _at, _block in fastcos.similarity_blocks(self.rows):
            pass

    def time_neighbors_above(self, *_):
        return fastcos.neighbors_above(self.rows, self.threshold)

    def time_neighbors_transformer(self, *_):
        return fastcos.NeighborsTransformer(10).fit_transform(self.rows)

    def track_wrong_pairs(self, *_):
        return self.wrong

    track_wrong_pairs.unit = "pairs"

    def track_error(self, *_):
        return self.error

    track_error.unit = "cosine"


class Reranking(answers.Situation):
    """rerank with a trivial scorer."""

    @answers.once
    def setup(self):
        rows = inputs.gaussian(2_000, 32)
        self.neighbors = fastcos.top_k(rows, k=50)
        found = self.time_rerank()
        wrong = (found.indices != np.sort(self.neighbors.indices, axis=1)).any(axis=1).sum()
        self.wrong = answers.at_most(0, int(wrong))

    def time_rerank(self):
        return fastcos.rerank(self.neighbors, lambda query, items: -np.asarray(items, float))

    def track_wrong_rows(self):
        return self.wrong

    track_wrong_rows.unit = "rows"
