"""Exact neighbours among dense rows: self-join, queries, index, measures, graphs."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import fastcos
from bench import answers, inputs
from bench.inputs import shape_of
from bench.limits import Work, search_work
from bench.workloads import Workload
from fastcos import get_config
from fastcos.engine import packing, scan
from fastcos.kernels.select import keep_best
from tests.oracles import dense

K = 10
# widths of common text embeddings
WIDE = (384, 768, 1536)


def queries_and_items(queries, items):
    """Return standard normal rows: so many queries, and the items of "20,000 x 128"."""
    n, d = shape_of(items)
    return inputs.gaussian(queries, d, seed=1), inputs.gaussian(n, d)


class _Search(Workload):
    """Search of self.rows: queries and items, or items among themselves."""

    unit = "pairs"
    k, measure, option = K, "cosine", {}
    ties = 0.0

    @property
    def items(self):
        return self.rows[-1]

    def call(self):
        return fastcos.top_k(*self.rows, k=self.k, measure=self.measure, **self.option)

    def error(self, answer):
        return answers.wrong_rows(answer.indices, *self.rows, measure=self.measure, ties=self.ties)

    def work(self):
        return search_work(len(self.rows[0]), *self.items.shape, self.k)

    def job(self):
        arrays = dict(zip(("items", "queries"), reversed(self.rows), strict=False))
        return "search", arrays, {"k": self.k, "measure": self.measure}

    def disagreement(self, theirs, answer):
        """Compare scores: neighbours that tie in float32 may be swapped.

        The product of d columns takes d roundings of 2^-24, whatever the order of summation, each
        of the two norms d / 2 + 3.
        """
        ours, allowed = answer.scores, (2 * self.items.shape[1] + 6) * 2.0**-24
        if self.measure == "neg_euclidean":
            # x^2 + y^2 - 2xy cancels: the error is relative to the largest norm
            longest = max(float(np.linalg.norm(rows, axis=1).max()) for rows in self.rows)
            theirs, ours = theirs.astype(np.float64) ** 2, ours.astype(np.float64) ** 2
            allowed *= (2 * longest) ** 2
        return abs(theirs - ours).max() / allowed


class SelfJoin(_Search):
    """The neighbours of every row among the others."""

    question = "dense neighbours"
    axes = {"rows": ["1,000 x 64", "20,000 x 128", "4,000 x 768"], "k": [10, 100]}
    quick = {"rows": ["2,000 x 64", *(f"2,000 x {d}" for d in WIDE)], "k": [10]}
    large = {"rows": ["40,000 x 128", *(f"20,000 x {d}" for d in WIDE)]}
    tables = {"rows": ["1,000 x 64", "2,000 x 64", "20,000 x 128"], "k": [10]}
    roofline = {"rows": ["20,000 x 128", *(f"10,000 x {d}" for d in WIDE)], "k": [10]}
    phrase = "neighbours of all {rows}, k = {k}"
    competitors = ("faiss", "faiss Panorama", "numpy", "sklearn", "chunkdot", "implicit", "numkong")

    def make(self, rows, k=K):
        self.rows, self.k = [inputs.rows(rows)], k
        # what float64 sums order by their last bits has no known order in a user's file
        self.ties = 1e-14 * Path(rows).exists()


class EuclideanSelfJoin(SelfJoin):
    """The neighbours of every row by distance."""

    measure = "neg_euclidean"
    axes = {"rows": ["20,000 x 64"]}
    quick = tables = {"rows": ["2,000 x 64"]}
    large = roofline = None
    phrase = "neighbours of all {rows} by distance, k = 10"
    competitors = ("sklearn", "faiss")


class OneShot(_Search):
    """Queries among other rows, which are packed in the call."""

    question = "dense queries, one shot"
    axes = {
        "queries": [1, 32, 1_000],
        "items": ["20,000 x 64", "4,000 x 768"],
        "measure": ["cosine"],
        "k": [K],
    }
    quick = {"queries": [1_000], "items": ["4,000 x 64", "4,000 x 768"]}
    large = {
        "queries": [1_000],
        "items": ["200,000 x 64", *(f"100,000 x {d}" for d in WIDE)],
        "k": [10, 100],
    }
    tables = {"queries": [1_000], "items": ["4,000 x 64", "50,000 x 384"]}
    roofline = {"queries": [1_000], "items": ["4,000 x 768"]}
    phrase = "{queries}, {items} that were not packed before, k = {k}"
    competitors = SelfJoin.competitors

    def make(self, queries, items, measure, k):
        self.rows = queries_and_items(queries, items)
        self.measure, self.k = measure, k


class IndexSearch(_Search):
    """Queries of a fitted index: one, few and many."""

    question = "dense queries, index"
    axes = {"queries": [1, 16, 256], "items": ["50,000 x 64", "10,000 x 768"], "k": [K]}
    quick = {"queries": [1, 16], "items": ["10,000 x 64", "10,000 x 768"]}
    large = {
        "queries": [1, 256],
        "items": ["1,000,000 x 128", *(f"100,000 x {d}" for d in WIDE)],
        "k": [10, 100],
    }
    tables = {"queries": [1, 256], "items": ["10,000 x 64", "100,000 x 384"]}
    roofline = {"queries": [1, 256], "items": ["100,000 x 768"]}
    phrase = "{queries}, {items}, k = {k}"
    competitors = ("faiss", "faiss Panorama", "numpy", "sklearn", "usearch", "implicit", "numkong")

    def make(self, queries, items, k):
        self.rows, self.k = self.rows_of(queries, items), k
        self.index = fastcos.SimilarityIndex().fit(self.items)

    rows_of = staticmethod(queries_and_items)

    def call(self):
        return self.index.search(self.rows[0], self.k)

    def work(self):
        """Count the packed items: their codes are what an index must read."""
        m, d = self.items.shape
        words = packing.tile_layout(get_config().isa, d).words
        return super().work()._replace(reads=4.0 * m * words)


class SmallSearch(IndexSearch):
    """A service's searches: few queries of small to middling indexes."""

    axes = {
        "queries": [1, 4, 16],
        "items": [f"{n:,} x {d}" for n in (1_000, 10_000, 100_000) for d in (64, 384, 768)],
        "k": [K],
    }
    quick = {"queries": [1, 4], "items": ["1,000 x 64"]}
    large = roofline = None
    tables = {"queries": [1], "items": ["1,000 x 64", "10,000 x 384", "10,000 x 768"]}


class RestedSearch(SmallSearch):
    """A service's searches after a pause: threads sleep, and caches hold other data."""

    state = "rested"
    axes = SmallSearch.axes | {"queries": [1]}
    quick = {"items": ["10,000 x 64"]}
    tables = {"items": ["10,000 x 64", "100,000 x 384"]}


class DecayingSearch(IndexSearch):
    """Rows whose columns decay as i^-0.7, as those of embeddings do after a rotation."""

    axes = {"queries": [1, 256], "items": ["50,000 x 384"], "k": [K]}
    quick = {"items": ["10,000 x 384"]}
    large = roofline = None
    tables = {}
    phrase = "{queries}, {items} with a decaying spectrum, k = {k}"

    @staticmethod
    def rows_of(queries, items):
        n, d = shape_of(items)
        scales = np.arange(1, d + 1, dtype=np.float32) ** -0.7
        return inputs.gaussian(queries, d, seed=1) * scales, inputs.gaussian(n, d) * scales


class ApproximateSearch(IndexSearch):
    """Queries of clustered rows; the competitors scan codes, and their recall is a result."""

    question = "dense queries, approximate scans"
    axes = {"queries": [1_000], "items": ["10,000 x 384"], "k": [K]}
    quick = roofline = None
    large = {"items": ["60,000 x 768"], "k": [10, 100]}
    tables = {"items": ["60,000 x 768"]}
    phrase = "{queries}, {items} in clusters, k = {k}"
    competitors = ("faiss", "faiss SQ8", "faiss SQ4", "faiss PQ fast-scan", "usearch int8",
                   "turbovec", "turbovec 2 bits")  # fmt: skip

    @staticmethod
    def rows_of(queries, items):
        if Path(items).exists():
            rows = inputs.rows(items)
        else:
            n, d = shape_of(items)
            rows = inputs.clustered(n + queries, d, np.random.default_rng(0))
        return rows[-queries:], rows[:-queries]

    def job(self):
        return ("approximate search", *super().job()[1:])

    def disagreement(self, theirs, answer):
        """An approximate answer is not wrong; facts has how many neighbours it holds."""
        return 0.0

    def facts(self, theirs, answer):
        return {"recall": fastcos.metrics.overlap_at_k(theirs, answer.indices)}


class FilteredQueries(_Search):
    """Filters: allowed items, excluded pairs, a minimum score."""

    question = "dense queries, filtered"
    axes = {"filter": ["allowed", "exclude", "min_score"]}
    roofline = {"filter": ["allowed"]}

    def make(self, filter):
        self.rows = queries_and_items(500, "20,000 x 64")
        rng = np.random.default_rng(0)
        allowed, seen = rng.random(20_000) < 0.5, rng.random((500, 20_000)) < 0.001
        # the option, and the pairs of queries and items that it leaves out
        value, self.excluded = {
            "allowed": (allowed, np.broadcast_to(~allowed, seen.shape)),
            "exclude": (sp.csr_array(seen), seen),
            "min_score": (0.3, np.zeros_like(seen)),
        }[filter]
        self.option = {filter: value}

    def error(self, answer):
        checked = slice(0, 500, 20)
        queries, excluded = self.rows[0][checked], self.excluded[checked]
        best, scores = dense.top_k(queries, self.items, K, "cosine", excluded=excluded)
        best[scores < self.option.get("min_score", -2)] = -1
        return (best != answer.indices[checked]).any(axis=1).sum()


class Rescoring(_Search):
    """Exact scores of 100 candidates a query, and their order."""

    question = "exact scores of candidates"
    unit = "candidates"
    axes = {"queries": [1_000], "items": ["10,000 x 768"]}
    large = {"items": ["100,000 x 768"]}
    roofline = {}
    competitors = ("numpy float32", "numpy float64")

    def make(self, queries, items):
        self.rows, n = queries_and_items(queries, items), shape_of(items)[0]
        # n / 100 items apart: the candidates of a query are different items
        first = np.random.default_rng(0).integers(n, size=(queries, 1))
        self.candidates = (first + n // 100 * np.arange(100)) % n

    def call(self):
        return fastcos.neighbors.rescore(*self.rows, self.candidates, K)

    def error(self, answer):
        wrong = 0
        for query, listed, found in zip(self.rows[0], self.candidates, answer.indices, strict=True):
            scores = answers.scores_of(query[None], self.items[listed], self.measure)[0]
            wrong += (listed[np.argsort(-scores)[:K]] != found).any()
        return wrong

    def work(self):
        n, d = self.candidates.size, self.items.shape[1]
        order = self.candidates.ravel().astype(np.int32)
        return Work(n, float(n) * d, gathers=n, table=self.items.shape, order=order)

    def job(self):
        _, arrays, parameters = super().job()
        return "rescoring", arrays | {"candidates": self.candidates}, parameters


class NarrowRows(_Search):
    """Rows of two bytes, one byte and one bit, which are packed in the call."""

    question = "dense queries, narrow rows"
    axes = {"type": ["float16", "int8", "bits"], "items": ["4,000 x 768"]}
    large = {
        "type": ["float32", "float16", "bfloat16", "int8", "bits"], "items": ["100,000 x 768"],
    }  # fmt: skip
    roofline = {"type": ["float16"]}

    def make(self, type, items):
        n, d = shape_of(items)
        self.narrow = [inputs.narrow(inputs.gaussian(m, d, m), type) for m in (1_000, n)]
        self.rows = self.narrow
        if type == "bits":  # products of signs order items as Hamming distances do
            self.measure = "dot"
            self.rows = [np.unpackbits(one, axis=1) * np.float32(2) - 1 for one in self.narrow]

    def call(self):
        measure = "hamming" if self.measure == "dot" else "cosine"
        return fastcos.top_k(*self.narrow, k=K, measure=measure)

    def work(self):
        return super().work()._replace(reads=float(sum(rows.nbytes for rows in self.narrow)))


class NarrowIndex(NarrowRows):
    """Narrow rows in an index that is made and searched once, and keeps them as they are."""

    axes = NarrowRows.axes | {"type": ["float16", "int8"]}
    large = NarrowRows.large | {"type": ["float32", "float16", "bfloat16", "int8"]}

    def call(self):
        queries, items = self.narrow
        return fastcos.SimilarityIndex().fit(items).search(queries, K)


# measures by their formulas: oracles and rows to scores of all pairs
MEASURES = {
    "dot": lambda oracles, rows: rows @ rows.T,
    "csls": lambda oracles, rows: oracles.csls(rows, 10),
    "mutual_proximity": lambda oracles, rows: oracles.mutual_proximity(rows),
    "angular": lambda oracles, rows: oracles.cosine(rows, rows),
    "zscore_cosine": lambda oracles, rows: oracles.zscores(rows, rows),
    "spearman_dims": lambda oracles, rows: oracles.spearman(rows, rows),
}


class Measures(_Search):
    """Self-join by other measures.

    measure_costs.py times all of them.
    """

    question = "dense neighbours, other measures"
    axes = {"measure": list(MEASURES)}
    roofline = {"measure": ["csls"]}
    limit = 1e-6

    def make(self, measure):
        self.rows, self.measure = [inputs.gaussian(3_000, 32)], measure

    def error(self, answer):
        from tests.oracles import measures

        scores = MEASURES[self.measure](measures, self.items.astype(np.float64))
        np.fill_diagonal(scores, -np.inf)
        best = -np.sort(-scores, axis=1)[:, :K]
        return (best - np.take_along_axis(scores, answer.indices, axis=1)).max()


class _IndexChange(Workload):
    """An index of rows: fitted, changed, saved or opened; then its answers are compared."""

    question = "index, changes"
    axes = {"items": [50_000]}
    large = {"items": [1_000_000]}
    phrase = "{said}, {items} rows x 64"

    def make(self, items, **how):
        self.queries, self.rows = queries_and_items(256, f"{items} x 64")
        self.how, self.index = how, fastcos.SimilarityIndex().fit(self.rows)
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "index")
        self.index.save(self.path)

    def error(self, answer):
        found = answer.search(self.queries, K).indices
        return answers.wrong_rows(found, self.queries, self.rows)

    def work(self):
        n, d = self.rows.shape
        return Work(n, reads=4.0 * n * d, writes=5.0 * n * d)


class IndexFit(_IndexChange):
    """Fit an index."""

    quick = {"items": [1_000]}
    roofline = {}

    def call(self):
        return fastcos.SimilarityIndex().fit(self.rows)


class IndexReplace(_IndexChange):
    """Replace 100 items of an index, which stays in memory or is saved."""

    axes = {"then": ["nothing", "save"]} | _IndexChange.axes
    changed = np.arange(100)

    def call(self):
        self.index.upsert(self.rows[self.changed], self.changed)
        if self.how["then"] == "save":
            self.index.save(self.path)
        return self.index

    def work(self):
        n, d = len(self.changed), self.rows.shape[1]
        return Work(n, reads=4.0 * n * d, writes=5.0 * n * d)


class IndexOpen(_IndexChange):
    """Open an index, without and with the verification of its checksums."""

    axes = {"verify": ["nothing", "checksums"]} | _IndexChange.axes

    def call(self):
        return fastcos.SimilarityIndex.open(self.path, verify=self.how["verify"] == "checksums")

    def work(self):
        n, d = self.rows.shape
        return Work(n, reads=5.0 * n * d * (self.how["verify"] == "checksums"))


class Packing(_Search):
    """Scale, rotate and quantise rows into panels."""

    question = "packing and selection"
    unit = "rows"
    axes = {"rows": ["20,000 x 768"]}
    quick = {"rows": ["4,000 x 768"]}
    roofline = {}

    def make(self, rows):
        self.rows = [inputs.rows(rows)]
        self.encoded = packing.encode_rows(self.items, None, None, "cosine")
        self.numbers = np.arange(len(self.items))

    def call(self):
        return packing.pack_items("cosine", self.encoded, self.numbers, None)

    def error(self, answer):
        """Search the packed items for the first of them, which lose what is packed wrongly."""
        few, options = slice(answers.CHECKED_ROWS), packing.ExecutionOptions(1, 2**26)
        nothing = packing.no_exclusions(answers.CHECKED_ROWS)
        found, _ = scan.search(answer, self.encoded.take(few), nothing, K, options)
        return answers.wrong_rows(found, self.items[few], self.items)

    def work(self):
        n, d = self.items.shape
        return Work(n, reads=4.0 * n * d, writes=1.0 * n * d)


class Selection(Workload):
    """The best k of the candidates of one query, after a copy that keeps the input."""

    question = "packing and selection"
    unit = "candidates"
    axes = {"candidates": [500, 100_000], "k": [100]}
    quick = {"candidates": [100_000]}

    def make(self, candidates, k):
        self.keys = np.random.default_rng(0).standard_normal(candidates)
        self.numbers, self.k = np.arange(candidates), k
        self.used = self.keys.copy(), self.numbers.copy(), np.empty(candidates)

    def call(self):
        keys, numbers, scratch = self.used
        keys[:], numbers[:] = self.keys, self.numbers
        keep_best(keys, numbers, len(keys), self.k, scratch)
        return numbers[: self.k]

    def error(self, answer):
        return (answer != np.argsort(-self.keys, kind="stable")[: self.k]).sum()

    def work(self):
        n = len(self.keys)
        return Work(n, reads=16.0 * n, writes=16.0 * n)


class _Graph(Workload):
    """All pairs of a few rows."""

    question = "blocks, range search, graphs"
    unit = "pairs"
    axes = {"rows": [5_000]}
    roofline = {}

    def make(self, rows):
        self.rows = inputs.gaussian(rows, 64)

    @functools.cached_property
    def cosines(self):
        return answers.scores_of(self.rows, self.rows, "cosine")

    def work(self):
        return search_work(len(self.rows), *self.rows.shape, K)


class RangeSearch(_Graph):
    """All pairs above a score."""

    threshold = 0.5

    def call(self):
        return fastcos.neighbors_above(self.rows, self.threshold)

    def error(self, answer):
        return abs(answer.nnz - (self.cosines > self.threshold).sum() + len(self.rows))


class SimilarityBlocks(_Graph):
    """All scores, block by block."""

    limit = 1e-5

    def call(self):
        for _at, _block in fastcos.similarity_blocks(self.rows):
            pass

    def error(self, _):
        blocks = fastcos.similarity_blocks(self.rows)
        return max(abs(block - self.cosines[at]).max() for at, block in blocks)

    def work(self):
        n, d = self.rows.shape
        return Work(float(n) * n, float(n) * n * d, "float32", 4.0 * n * d, 4.0 * n * n)
