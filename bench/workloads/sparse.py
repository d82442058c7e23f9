"""Products, truncated SVD and exact neighbours of sparse interactions; weightings; reading."""

import functools
import tempfile
from pathlib import Path

import numpy as np
from sklearn.preprocessing import StandardScaler, normalize

import fastcos
from bench import answers, inputs
from bench.limits import Work, bytes_of, gram_work, product_work, svd_work
from bench.workloads import Workload

SMALL, MIDDLE = "2,000 x 500", "40,000 x 20,000"
# rows of a product that are compared
CHECKED = 1_000


def csr_job(task, X, parameters, **arrays):
    """Return the job of a competitor on a CSR matrix."""
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
    return task, parts | arrays, parameters | {"shape": X.shape}


class Matmul(Workload):
    """X A."""

    question = "sparse products"
    unit = "non-zeros"
    axes = {"shape": [MIDDLE], "columns": [16, 64]}
    quick = {"columns": [64]}
    large = {"shape": ["zipf", "ml-32m"], "columns": [64, 128]}
    limit = 1e-5
    tables = {"shape": [MIDDLE, "zipf"], "columns": [64]}
    roofline = {"columns": [64]}
    phrase = "X A, {shape}, {columns} columns"
    competitors = ("scipy", "mkl")
    task = "product"

    def make(self, shape, columns):
        self.X = inputs.interactions(shape)
        n, p = self.X.shape
        self.A = np.random.default_rng(0).standard_normal((p, columns)).astype(np.float32)
        self.rows = np.linspace(0, n - 1, min(CHECKED, n)).astype(int)

    def call(self):
        return fastcos.matmul(self.X, self.A)

    def error(self, answer):
        truth = self.X[self.rows].astype(np.float64) @ self.A
        return answers.relative_error(answer[self.rows], truth)

    def work(self):
        return product_work(self.X, self.A.shape[1])

    def job(self):
        return csr_job(self.task, self.X, {}, A=self.A)

    def disagreement(self, theirs, answer):
        return answers.relative_error(theirs, answer) / 1e-4


class Rmatmul(Matmul):
    """X'Y."""

    quick = large = tables = None
    phrase, competitors = "X'Y, {shape}, {columns} columns", ()

    def make(self, shape, columns):
        super().make(shape, columns)
        rng = np.random.default_rng(1)
        self.Y = rng.standard_normal((self.X.shape[0], columns)).astype(np.float32)

    def call(self):
        return fastcos.rmatmul(self.X, self.Y)

    def error(self, answer):
        return answers.relative_error(answer, self.X.astype(np.float64).T @ self.Y)

    def work(self):
        reads, writes = bytes_of(self.X) + self.Y.nbytes, float(self.A.nbytes)
        return super().work()._replace(reads=reads, writes=writes)


class GramMatmul(Matmul):
    """X'(X A) in one pass over X."""

    roofline = Matmul.tables
    phrase, task = "X'(X A), {shape}, {columns} columns", "gram"

    def call(self):
        return fastcos.gram_matmul(self.X, self.A)

    def error(self, answer):
        wide = self.X.astype(np.float64)
        return answers.relative_error(answer, wide.T @ (wide @ self.A))

    def work(self):
        return gram_work(self.X, self.A.shape[1])


class TruncatedSVD(Workload):
    """Truncated SVD to a certified residual."""

    question = "truncated SVD at equal residual"
    unit = "non-zeros"
    axes = {"shape": [MIDDLE], "k": [16], "tol": [1e-2, 1e-4]}
    quick = {"shape": ["10,000 x 3,000"], "tol": [1e-2]}
    large = {"shape": ["zipf"], "k": [64, 128]}
    tables = {"tol": [1e-2]}
    roofline = {"tol": [1e-2]}
    phrase = "truncated SVD, {shape}, k = {k}, residual {tol}"
    competitors = ("scikit-learn", "arpack", "primme")

    def make(self, shape, k, tol):
        self.X, self.k, self.tol = inputs.interactions(shape), k, tol

    def call(self):
        return fastcos.randomized_svd(self.X, self.k, tol=self.tol)

    def error(self, answer):
        """Return 0 where the residual is at most tol, in float64."""
        return float(answers.residuals(self.X, answer.s, answer.Vt).max() > self.tol)

    def work(self):
        return svd_work(self.X, self.k)

    def job(self):
        return csr_job("svd", self.X, {"k": self.k, "tol": self.tol})

    def disagreement(self, theirs, answer):
        s, Vt = theirs[:, 0], theirs[:, 1:]
        return answers.residuals(self.X, s, Vt).max() / self.tol


class ItemNeighbors(Workload):
    """Items of interactions, compared by their users."""

    question = "sparse neighbours"
    unit = "pairs of non-zeros"
    axes = {"shape": ["10,000 x 3,000"], "k": [10, 100]}
    quick = {"k": [10]}
    large = {"shape": ["zipf_slice"]}
    limit = 1e-6  # counts have many ties, and SciPy sums in another order
    tables = {"shape": ["10,000 x 3,000", "zipf_slice"], "k": [10]}
    roofline = {"k": [10]}
    phrase = "neighbours of all items, {shape}, k = {k}"
    competitors = ("sparse_dot_topn", "implicit")

    def make(self, shape, k):
        self.X, self.k = inputs.interactions(shape), k
        self.items = self.X.T.tocsr()

    def call(self):
        return fastcos.top_k(self.items, k=self.k)

    def error(self, answer):
        rows = np.linspace(0, self.items.shape[0] - 1, min(500, self.items.shape[0])).astype(int)
        unit = normalize(self.items.astype(np.float64))
        cosines = (unit[rows] @ unit.T).toarray()
        cosines[np.arange(len(rows)), rows] = -np.inf
        best = -np.sort(-cosines, axis=1)[:, : self.k]
        return abs(answer.scores[rows] - best).max()

    def work(self):
        """Count a pair of interactions of one user once: its product is in two cosines."""
        per_user = np.diff(self.X.indptr).astype(np.float64)
        pairs = float((per_user * (per_user - 1)).sum() / 2)
        n = self.items.shape[0]
        return Work(pairs, pairs, "float32", bytes_of(self.items),
                    12.0 * n * self.k, pairs, (n, 1), self.X.indices)  # fmt: skip

    def job(self):
        return csr_job("items", self.X, {"k": self.k})

    def disagreement(self, theirs, answer):
        """Compare k-th best scores: 1e-5, and the rounding of sums in float32.

        The cosine of an item with n entries is a sum of at most n products of two rounded factors.
        Its error is at most g = (n + 2) u / (1 - (n + 2) u) times the cosine (Higham 2002, Accuracy
        and Stability of Numerical Algorithms, section 3.1); the k-th best moves no further.
        """
        terms = (np.diff(self.items.indptr) + 2) * np.finfo(np.float32).eps / 2
        return (abs(theirs - answer.scores[:, -1]) / (1e-5 + terms / (1 - terms))).max()


def ppmi(X):
    """Return X times the shifted PPMI of its items, by the formula of ShiftedPPMI."""
    pairs = (X.T @ X).toarray()
    np.fill_diagonal(pairs, 0)
    totals = pairs.sum(axis=1)
    contexts = totals**0.75
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(pairs * contexts.sum() / np.outer(totals, contexts))
    return X @ np.where(pairs > 0, np.maximum(values, 0), 0)


# transformer of fastcos.models by name, and its reference; all entries of X are 1
TRANSFORMERS = {
    "normalise": ("NormalizeRows", normalize),
    "standardise": ("StandardizeColumns", StandardScaler(with_mean=False).fit_transform),
    "popularity": ("PopularityWeights", functools.partial(normalize, axis=0)),
    "ppmi": ("ShiftedPPMI", ppmi),
}


class Weighting(Workload):
    """Weights of interactions before a factorisation."""

    question = "weightings of interactions"
    unit = "non-zeros"
    # ppmi counts pairs of items: a minute if the popular items have 40,000 users
    axes = {"transformer": list(TRANSFORMERS), "shape": [SMALL]}
    quick = {"transformer": ["standardise"]}
    large = {"transformer": ["normalise", "standardise", "popularity"], "shape": [MIDDLE]}
    roofline = {"transformer": ["standardise"], "shape": [MIDDLE]}
    limit = 1e-5

    def make(self, transformer, shape):
        self.X, (name, self.truth) = inputs.interactions(shape), TRANSFORMERS[transformer]
        self.transformer = getattr(fastcos.models, name)()

    def call(self):
        return self.transformer.fit_transform(self.X)

    def error(self, answer):
        return abs(answer - self.truth(self.X.astype(np.float64))).max()

    def work(self):
        return Work(self.X.nnz, reads=bytes_of(self.X), writes=bytes_of(self.X))


class Simulation(Workload):
    """Simulated interactions in the size of the paper."""

    question = "interactions"
    unit = "non-zeros"

    def make(self):
        self.nnz = self.call().X.nnz

    def call(self):
        return fastcos.simulate_interactions(20_000, 1_000, random_state=0)

    def error(self, answer):
        """Return how many entries are repeated or other than 1, and how many rows are missing."""
        X = answer.X
        repeated = sum(len(set(row)) < len(row) for row in np.split(X.indices, X.indptr[1:-1]))
        return repeated + (X.data != 1).sum() + abs(X.shape[0] - 20_000)

    def work(self):
        return Work(self.nnz, writes=8.0 * self.nnz)


class Reading(Workload):
    """A csv of 40,000 interactions."""

    question = "interactions"
    unit = "non-zeros"

    def make(self):
        self.X = inputs.interactions(SMALL)
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "interactions.csv")
        rows = np.stack([*self.X.nonzero(), self.X.data], axis=1).astype(int)
        np.savetxt(self.path, rows, "%d", ",", header="user,item,value", comments="")

    def call(self):
        return fastcos.read_interactions(self.path)

    def error(self, answer):
        return abs(float(answer.X.sum() - self.X.sum())) + abs(answer.X.nnz - self.X.nnz)

    def work(self):
        return Work(self.X.nnz, reads=float(self.path.stat().st_size))


class Ingesting(Reading):
    """A csv of 40,000 interactions to a matrix on disk, each time in a new folder."""

    def call(self):
        new = tempfile.mkdtemp(dir=self.folder.name)
        return fastcos.io.ingest_interactions(self.path, Path(new, "matrix"))

    def error(self, answer):
        return abs(answer.nnz - self.X.nnz)
