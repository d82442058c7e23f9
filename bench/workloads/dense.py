"""Exact neighbours among dense rows: self-join, queries, index, measures, graphs."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import fastcos
from bench import answers, inputs
from bench.workloads import Work, Workload
from fastcos import get_config, metrics
from fastcos.cli.limits import search_work
from fastcos.engine import packing
from fastcos.kernels.select import keep_best
from tests.oracles import measures as oracles

K = 10
# widths of common text embeddings
WIDE = (384, 768, 1536)


def shape_of(text):
    """Return the numbers of "20,000 x 128"."""
    return tuple(int(number.replace(",", "")) for number in text.split(" x "))


def float32_error(d):
    """Return the largest error of a float32 cosine, whatever the order of summation.

    The product of d columns takes d roundings of 2^-24, each of the two norms d / 2 + 3.
    """
    return (2 * d + 6) * 2.0**-24


class _Search(Workload):
    """Search of self.queries, or of the items themselves, among self.items."""

    unit = "pairs"
    measure, k, own = "cosine", K, False

    def error(self, answer):
        queries = self.items if self.own else self.queries
        return answers.wrong_rows(
            answer.indices, queries, None if self.own else self.items, self.measure
        )

    def work(self):
        n = len(self.items if self.own else self.queries)
        return search_work(n, len(self.items), self.items.shape[1], self.k)

    def job(self):
        arrays = {"items": self.items} | ({} if self.own else {"queries": self.queries})
        return "search", arrays, {"k": self.k, "measure": self.measure}

    def disagreement(self, theirs, answer):
        """Compare scores: neighbours that tie in float32 may be swapped."""
        ours, allowed = answer.scores, float32_error(self.items.shape[1])
        if self.measure == "neg_euclidean":
            # x^2 + y^2 - 2xy cancels: the error is relative to the largest norm
            given = [self.items] if self.own else [self.items, self.queries]
            longest = max(float(np.linalg.norm(rows, axis=1).max()) for rows in given)
            theirs, ours = theirs.astype(np.float64) ** 2, ours.astype(np.float64) ** 2
            allowed *= (2 * longest) ** 2
        return abs(theirs - ours).max() / allowed


class SelfJoin(_Search):
    """The neighbours of every row among the others."""

    question = "dense neighbours"
    own = True
    axes = {
        "rows": ["1,000 x 64", "20,000 x 128", *(f"4,000 x {d}" for d in WIDE)],
        "k": [10, 100],
    }
    quick = {"rows": ["2,000 x 64", *(f"2,000 x {d}" for d in WIDE)], "k": [10]}
    large = {
        "rows": [
            "40,000 x 128", "decks 60,000 x 128", "cards 17,192 x 128", "glove 8,347 x 50",
            *(f"20,000 x {d}" for d in WIDE),
        ],
    }  # fmt: skip
    competitors = {"faiss": 2.5, "numpy": None, "sklearn": None, "chunkdot": None, "implicit": None}

    def make(self, rows, k):
        self.items, self.k = self.rows_of(rows), k

    @staticmethod
    def rows_of(rows):
        name = rows.split()[0]
        if name in ("decks", "cards"):
            return inputs.required(inputs.deck_embeddings())[name == "cards"]
        if name == "glove":
            return inputs.required(inputs.glove())
        return inputs.gaussian(*shape_of(rows))

    def call(self):
        return fastcos.top_k(self.items, k=self.k)


class EuclideanSelfJoin(_Search):
    """The same by distance."""

    question = "dense neighbours"
    own, measure = True, "neg_euclidean"
    axes = {"rows": ["20,000 x 64"]}
    quick = {"rows": ["2,000 x 64"]}
    competitors = {"sklearn": 4.0, "faiss": 2.0}

    def make(self, rows):
        self.items = inputs.gaussian(*shape_of(rows))

    def call(self):
        return fastcos.top_k(self.items, k=K, measure=self.measure)


class OneShot(_Search):
    """Queries among other rows, which are packed in the call."""

    question = "dense queries, one shot"
    axes = {
        "queries": [1, 32, 1_000],
        "items": ["20,000 x 64", *(f"4,000 x {d}" for d in WIDE)],
        "measure": ["cosine", "dot", "neg_euclidean"],
        "k": [K],
    }
    quick = {"queries": [1_000], "items": ["4,000 x 64", "4,000 x 768"], "measure": ["cosine"]}
    large = {
        "queries": [1_000],
        "items": ["200,000 x 64", *(f"100,000 x {d}" for d in WIDE)],
        "measure": ["cosine"],
        "k": [10, 100],
    }
    competitors = {"faiss": 2.0, "numpy": None, "sklearn": None, "chunkdot": None, "implicit": None}

    def make(self, queries, items, measure, k):
        n, d = shape_of(items)
        self.items, self.measure, self.k = inputs.gaussian(n, d), measure, k
        self.queries = inputs.gaussian(queries, d, seed=1)

    def call(self):
        return fastcos.top_k(self.queries, self.items, self.k, measure=self.measure)


class IndexSearch(_Search):
    """Queries of a fitted index: one, few and many."""

    question = "dense queries, index"
    axes = {
        "queries": [1, 16, 256],
        "items": ["1,000 x 64", "50,000 x 64", *(f"10,000 x {d}" for d in WIDE)],
        "k": [K],
    }
    quick = {"queries": [1, 16], "items": ["10,000 x 64", "10,000 x 768"]}
    large = {
        "queries": [1, 256],
        "items": ["1,000,000 x 128", *(f"100,000 x {d}" for d in WIDE)],
        "k": [10, 100],
    }
    competitors = {"faiss": 2.5, "numpy": None, "sklearn": None, "usearch": 2.5, "implicit": None}

    def make(self, queries, items, k):
        n, d = shape_of(items)
        self.items, self.queries = inputs.gaussian(n, d), inputs.gaussian(queries, d, seed=1)
        self.index, self.k = fastcos.SimilarityIndex().fit(self.items), k

    def call(self):
        return self.index.search(self.queries, self.k)

    def work(self):
        """Count the packed items: their codes are what an index must read."""
        m, d = self.items.shape
        one = super().work()
        return one._replace(reads=4.0 * m * packing.tile_layout(get_config().isa, d).words)


class FilteredQueries(_Search):
    """Filters: allowed items, excluded pairs, a minimum score."""

    question = "dense queries, filtered"
    axes = {"filter": ["allowed", "exclude", "min_score"]}
    quick = None

    def make(self, filter):
        rng = np.random.default_rng(0)
        self.items, self.queries = inputs.gaussian(20_000, 64), inputs.gaussian(500, 64, seed=1)
        allowed, seen = rng.random(20_000) < 0.5, rng.random((500, 20_000)) < 0.001
        self.excluded = np.zeros_like(seen)
        if filter == "allowed":
            self.option, self.excluded = {"allowed": allowed}, np.broadcast_to(~allowed, seen.shape)
        elif filter == "exclude":
            self.option, self.excluded = {"exclude": sp.csr_array(seen)}, seen
        else:
            self.option = {"min_score": 0.3}

    def call(self):
        return fastcos.top_k(self.queries, self.items, K, **self.option)

    def error(self, answer):
        rows = slice(0, 500, 20)
        scores = answers.scores_of(self.queries[rows], self.items, "cosine")
        scores[self.excluded[rows] | (scores < self.option.get("min_score", -2))] = -np.inf
        best = np.argsort(-scores, axis=1, kind="stable")[:, :K]
        best[np.take_along_axis(scores, best, axis=1) == -np.inf] = -1
        return (best != answer.indices[rows]).any(axis=1).sum()


class ApproximateSearch(IndexSearch):
    """Queries of clustered rows; the competitors scan codes, and their recall is a result."""

    question = "dense queries, approximate scans"
    axes = {"queries": [1_000], "items": ["10,000 x 384"], "k": [K]}
    quick = None
    large = {"items": ["60,000 x 768"], "k": [10, 100]}
    competitors = dict.fromkeys(
        ("faiss", "faiss SQ8", "faiss SQ4", "faiss PQ fast-scan", "usearch int8", "turbovec")
    )

    def make(self, queries, items, k):
        n, d = shape_of(items)
        rows = inputs.clustered(n + queries, d, np.random.default_rng(0))
        self.items, self.queries = np.split(rows, [n])
        self.index, self.k = fastcos.SimilarityIndex().fit(self.items), k

    def job(self):
        return ("approximate search", *super().job()[1:])

    def disagreement(self, theirs, answer):
        """An approximate answer is not wrong; facts has how many neighbours it holds."""
        return 0.0

    def facts(self, theirs, answer):
        return {"recall": metrics.overlap_at_k(theirs, answer.indices)}


class Rescoring(_Search):
    """Exact scores of 100 candidates a query, and their order."""

    question = "exact scores of candidates"
    unit = "candidates"
    axes = {"queries": [1_000], "items": ["10,000 x 768"]}
    quick = None
    large = {"items": ["100,000 x 768"]}
    competitors = {"numpy float32": None, "numpy float64": None}

    def make(self, queries, items):
        n, d = shape_of(items)
        self.items, self.queries = inputs.gaussian(n, d), inputs.gaussian(queries, d, seed=1)
        # n / 100 items apart: the candidates of a query are different items
        first = np.random.default_rng(0).integers(n, size=(queries, 1))
        self.candidates = (first + n // 100 * np.arange(100)) % n

    def call(self):
        return fastcos.neighbors.rescore(self.queries, self.items, self.candidates, K)

    def error(self, answer):
        wrong = 0
        for query, listed, found in zip(self.queries, self.candidates, answer.indices, strict=True):
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
    quick = None
    large = {
        "type": ["float32", "float16", "bfloat16", "int8", "bits"], "items": ["100,000 x 768"],
    }  # fmt: skip

    def make(self, type, items):
        n, d = shape_of(items)
        self.given = [inputs.narrow(inputs.gaussian(m, d, m), type) for m in (n, 1_000)]
        self.items, self.queries = self.given
        if type == "bits":  # products of signs order items as Hamming distances do
            self.measure = "dot"
            self.items, self.queries = (
                np.unpackbits(one, axis=1) * np.float32(2) - 1 for one in self.given
            )

    def call(self):
        items, queries = self.given
        measure = "hamming" if self.measure == "dot" else "cosine"
        return fastcos.top_k(queries, items, K, measure=measure)

    def work(self):
        return super().work()._replace(reads=float(sum(rows.nbytes for rows in self.given)))


class NarrowIndex(NarrowRows):
    """The same by an index that is made and searched once, and keeps the rows as they are."""

    axes = NarrowRows.axes | {"type": ["float16", "int8"]}
    large = NarrowRows.large | {"type": ["float32", "float16", "bfloat16", "int8"]}

    def call(self):
        items, queries = self.given
        return fastcos.SimilarityIndex().fit(items).search(queries, K)


# measures that are more than an inner product, by their formulas: rows to scores of all pairs
MEASURES = {
    "csls": lambda rows: oracles.csls(rows, 10),
    "mutual_proximity": oracles.mutual_proximity,
    "angular": lambda rows: oracles.cosine(rows, rows),
    "zscore_cosine": lambda rows: oracles.zscores(rows, rows),
    "spearman_dims": lambda rows: oracles.spearman(rows, rows),
}


class Measures(Workload):
    """Self-join by other measures; measure_costs.py times all of them."""

    question = "dense neighbours, other measures"
    unit = "pairs"
    axes = {"measure": list(MEASURES)}
    quick = None
    limit = 1e-6

    def make(self, measure):
        self.rows, self.measure = inputs.gaussian(3_000, 32), measure

    def call(self):
        return fastcos.top_k(self.rows, k=K, measure=self.measure)

    def error(self, answer):
        scores = MEASURES[self.measure](self.rows.astype(np.float64))
        np.fill_diagonal(scores, -np.inf)
        best = -np.sort(-scores, axis=1)[:, :K]
        return (best - np.take_along_axis(scores, answer.indices, axis=1)).max()

    def work(self):
        return search_work(3_000, 3_000, 32, K)


class _IndexChange(Workload):
    """An index of rows: fitted, changed, saved or loaded; then its answers are compared."""

    question = "index, changes"
    axes = {"items": [1_000, 50_000]}
    quick = None

    def make(self, items):
        self.rows, self.queries = inputs.gaussian(items, 64), inputs.gaussian(256, 64, seed=1)
        self.index = fastcos.SimilarityIndex().fit(self.rows)
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "index")
        self.index.save(self.path)

    def error(self, answer):
        found = answer.search(self.queries, K).indices
        one_by_one = [answer.search(query[None], K).indices[0] for query in self.queries[:10]]
        wrong = (np.array(one_by_one) != found[:10]).sum()
        return wrong + answers.wrong_rows(found, self.queries, self.rows)

    def work(self):
        n, d = self.rows.shape
        return Work(n, reads=4.0 * n * d, writes=5.0 * n * d)


class IndexFit(_IndexChange):
    quick = {"items": [1_000]}

    def call(self):
        return fastcos.SimilarityIndex().fit(self.rows)


class IndexReplace(_IndexChange):
    def call(self):
        self.index.upsert(self.rows[:100], np.arange(100))
        return self.index

    def work(self):
        return Work(100, reads=4.0 * 100 * 64, writes=5.0 * 100 * 64)


class IndexSave(_IndexChange):
    def call(self):
        self.index.save(self.path)
        return self.index


class IndexLoad(_IndexChange):
    def call(self):
        return fastcos.SimilarityIndex.open(self.path, verify=True)

    def work(self):
        n, d = self.rows.shape
        return Work(n, reads=5.0 * n * d)  # the checksum reads all


class Packing(Workload):
    """Scale, rotate and quantise rows into panels."""

    question = "packing and selection"
    axes = {"rows": ["20,000 x 128", "20,000 x 768"]}
    quick = {"rows": ["4,000 x 768"]}
    limit = 0.02  # an int8 code of a rotated unit row keeps its norm within 1%

    def make(self, rows):
        self.rows = packing.encode_rows(inputs.gaussian(*shape_of(rows)), None, None, "cosine")
        self.numbers = np.arange(len(self.rows.rows))

    def call(self):
        return packing.pack_items("cosine", self.rows, self.numbers, None)

    def error(self, answer):
        """Compare lengths: codes times the scale of their panel have norm 1, however rotated."""
        arrays, layout = answer.arrays, answer.layout
        panels = len(self.numbers) // 32
        packed = np.asarray(arrays.packed)[: panels * 32 * layout.words]
        if layout.isa == "amx":
            blocks = packed.reshape(panels, -1, 32, 16).transpose(0, 2, 1, 3)
        elif layout.quantised:
            blocks = packed.reshape(panels, 4, layout.words, 8).transpose(0, 1, 3, 2)
        else:
            blocks = packed
        rows = np.ascontiguousarray(blocks).reshape(panels, 32, layout.words)
        if layout.quantised:
            rows = rows.view(np.int8).astype(np.float64) if layout.isa == "amx" else (
                rows.view(np.uint8).astype(np.float64) - 128
            )  # fmt: skip
        lengths = np.linalg.norm(rows, axis=2) / arrays.statistics[:panels, :1]
        return abs(lengths - 1).max()

    def work(self):
        n, d = self.rows.rows.shape
        return Work(n, reads=4.0 * n * d, writes=1.0 * n * d)


class Selection(Workload):
    """The best k of the candidates of one query, after a copy that keeps the input."""

    question = "packing and selection"
    unit = "candidates"
    axes = {"candidates": [500, 100_000], "k": [10, 100]}
    quick = {"candidates": [100_000], "k": [100]}

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
    axes = {"rows": [1_000, 5_000]}
    quick = None
    threshold = 0.5

    def make(self, rows):
        self.rows = inputs.gaussian(rows, 64)

    @functools.cached_property
    def cosines(self):
        return answers.scores_of(self.rows, self.rows, "cosine")

    def work(self):
        n, d = self.rows.shape
        return search_work(n, n, d, K)


class RangeSearch(_Graph):
    def call(self):
        return fastcos.neighbors_above(self.rows, self.threshold)

    def error(self, answer):
        return abs(answer.nnz - (self.cosines > self.threshold).sum() + len(self.rows))


class SimilarityBlocks(_Graph):
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


class KNeighborsGraph(_Graph):
    def call(self):
        return fastcos.NeighborsTransformer(K).fit_transform(self.rows)

    def error(self, answer):
        own = np.arange(len(self.rows))[:, None]
        best = np.argsort(-self.cosines, axis=1, kind="stable")[:, : K + 1]
        graph = np.sort(answer.indices.reshape(len(self.rows), -1), axis=1)
        return (graph != np.sort(best, axis=1)).sum() + (best != own).all(axis=1).sum()


class Reranking(Workload):
    """rerank with a trivial scorer."""

    question = "blocks, range search, graphs"
    unit = "candidates"
    quick = None

    def make(self):
        self.neighbors = fastcos.top_k(inputs.gaussian(2_000, 32), k=50)

    def call(self):
        return fastcos.rerank(self.neighbors, lambda query, items: -np.asarray(items, float))

    def error(self, answer):
        return (answer.indices != np.sort(self.neighbors.indices, axis=1)).any(axis=1).sum()

    def work(self):
        return Work(100_000, reads=1.6e6, writes=1.2e6)
