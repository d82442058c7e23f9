"""Products, truncated SVD and exact neighbours of sparse interactions; weightings; reading."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

import fastcos
from bench import answers, inputs
from bench.answers import reference
from bench.limits import Work, bytes_of, gram_work, product_work, svd_work
from bench.workloads import Case, Workload

normalize = reference("sklearn.preprocessing:normalize")
scale = reference("sklearn.preprocessing:scale")
SMALL, MIDDLE = "2,000 x 500", "40,000 x 20,000"
# rows of a product that are compared
CHECKED = 1_000
# settings of all products
PRODUCTS = {
    "question": "sparse products", "unit": "non-zeros", "limit": 1e-5,
    "axes": {"shape": [MIDDLE], "columns": [16, 64]},
}  # fmt: skip
PUBLISHED = {"shape": [MIDDLE, "zipf"], "columns": [64]}
COMPARED = {
    "quick": {"columns": [64]}, "large": {"shape": ["zipf", "ml-32m"], "columns": [64, 128]},
    "tables": PUBLISHED, "competitors": ("scipy", "mkl"),
}  # fmt: skip


def factors(shape, columns):
    """Return a matrix X, and A of X A."""
    X, random = inputs.interactions(shape), np.random.default_rng(0)
    return X, random.standard_normal((X.shape[1], columns)).astype(np.float32)


def csr_job(task, X, parameters, **arrays):
    """Return the job of a competitor on a CSR matrix."""
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
    return task, parts | arrays, parameters | {"shape": X.shape}


def product_disagreement(theirs, answer):
    return answers.relative_error(theirs, answer) / 1e-4


@Workload(
    **PRODUCTS, **COMPARED, roofline={"columns": [64]}, phrase="X A, {shape}, {columns} columns"
)
def Matmul(shape, columns):
    """X A."""
    X, A = factors(shape, columns)
    rows = np.linspace(0, X.shape[0] - 1, min(CHECKED, X.shape[0])).astype(int)

    def error(answer):
        return answers.relative_error(answer[rows], X[rows].astype(np.float64) @ A)

    return Case(
        partial(fastcos.matmul, X, A), error, product_work(X, columns),
        partial(csr_job, "product", X, {}, A=A), product_disagreement,
    )  # fmt: skip


@Workload(**PRODUCTS, roofline={"columns": [64]}, phrase="X'Y, {shape}, {columns} columns")
def Rmatmul(shape, columns):
    """X'Y."""
    X, A = factors(shape, columns)
    Y = np.random.default_rng(1).standard_normal((X.shape[0], columns)).astype(np.float32)

    def error(answer):
        return answers.relative_error(answer, X.astype(np.float64).T @ Y)

    reads, writes = bytes_of(X) + Y.nbytes, float(A.nbytes)
    work = product_work(X, columns)._replace(reads=reads, writes=writes)
    return Case(partial(fastcos.rmatmul, X, Y), error, work)


@Workload(**PRODUCTS, **COMPARED, roofline=PUBLISHED, phrase="X'(X A), {shape}, {columns} columns")
def GramMatmul(shape, columns):
    """X'(X A) in one pass over X."""
    X, A = factors(shape, columns)

    def error(answer):
        wide = X.astype(np.float64)
        return answers.relative_error(answer, wide.T @ (wide @ A))

    return Case(
        partial(fastcos.gram_matmul, X, A), error, gram_work(X, columns),
        partial(csr_job, "gram", X, {}, A=A), product_disagreement,
    )  # fmt: skip


@Workload(
    "truncated SVD at equal residual", unit="non-zeros",
    axes={"shape": [MIDDLE], "k": [16], "tol": [1e-2, 1e-4]},
    quick={"shape": ["10,000 x 3,000"], "tol": [1e-2]}, large={"shape": ["zipf"], "k": [64, 128]},
    tables={"tol": [1e-2]}, roofline={"tol": [1e-2]},
    phrase="truncated SVD, {shape}, k = {k}, residual {tol}",
    competitors=("scikit-learn", "arpack", "primme"),
)  # fmt: skip
def TruncatedSVD(shape, k, tol):
    """Truncated SVD to a certified residual."""
    X = inputs.interactions(shape)

    def error(answer):
        """Return 0 where the residual is at most tol, in float64."""
        return float(answers.residuals(X, answer.s, answer.Vt).max() > tol)

    def disagreement(theirs, answer):
        return answers.residuals(X, theirs[:, 0], theirs[:, 1:]).max() / tol

    call, job = partial(fastcos.randomized_svd, X, k, tol=tol), {"k": k, "tol": tol}
    return Case(call, error, svd_work(X, k), partial(csr_job, "svd", X, job), disagreement)


@Workload(
    "sparse neighbours", unit="pairs of non-zeros",
    axes={"shape": ["10,000 x 3,000"], "k": [10, 100]}, quick={"k": [10]},
    large={"shape": ["zipf_slice"]}, tables={"shape": ["10,000 x 3,000", "zipf_slice"], "k": [10]},
    roofline={"k": [10]}, phrase="neighbours of all items, {shape}, k = {k}",
    competitors=("sparse_dot_topn", "implicit"),
    limit=1e-6,  # counts have many ties, and SciPy sums in another order
)  # fmt: skip
def ItemNeighbors(shape, k):
    """Items of interactions, compared by their users."""
    X = inputs.interactions(shape)
    items = X.T.tocsr()
    n = items.shape[0]

    def error(answer):
        rows = np.linspace(0, n - 1, min(500, n)).astype(int)
        unit = normalize(items.astype(np.float64))
        cosines = (unit[rows] @ unit.T).toarray()
        cosines[np.arange(len(rows)), rows] = -np.inf
        best = -np.sort(-cosines, axis=1)[:, :k]
        return abs(answer.scores[rows] - best).max()

    def disagreement(theirs, answer):
        """Compare k-th best scores: 1e-5, and the rounding of sums in float32.

        The cosine of an item with n entries is a sum of at most n products of two rounded factors.
        Its error is at most g = (n + 2) u / (1 - (n + 2) u) times the cosine (Higham 2002, Accuracy
        and Stability of Numerical Algorithms, section 3.1); the k-th best moves no further.
        """
        terms = (np.diff(items.indptr) + 2) * np.finfo(np.float32).eps / 2
        return (abs(theirs - answer.scores[:, -1]) / (1e-5 + terms / (1 - terms))).max()

    # a pair of interactions of one user counts once: its product is in two cosines
    per_user = np.diff(X.indptr).astype(np.float64)
    pairs = float((per_user * (per_user - 1)).sum() / 2)
    writes = 12.0 * n * k
    work = Work(pairs, pairs, "float32", bytes_of(items), writes, pairs, (n, 1), X.indices)
    job = partial(csr_job, "items", X, {"k": k})
    return Case(partial(fastcos.top_k, items, k=k), error, work, job, disagreement)


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
    "standardise": ("StandardizeColumns", partial(scale, with_mean=False)),
    "popularity": ("PopularityWeights", partial(normalize, axis=0)),
    "ppmi": ("ShiftedPPMI", ppmi),
}


@Workload(
    "weightings of interactions", unit="non-zeros", limit=1e-5,
    # ppmi counts pairs of items: a minute if the popular items have 40,000 users
    axes={"transformer": list(TRANSFORMERS), "shape": [SMALL]},
    quick={"transformer": ["standardise"]},
    large={"transformer": ["normalise", "standardise", "popularity"], "shape": [MIDDLE]},
    roofline={"transformer": ["standardise"], "shape": [MIDDLE]},
)  # fmt: skip
def Weighting(transformer, shape):
    """Weights of interactions before a factorisation."""
    X, (name, truth) = inputs.interactions(shape), TRANSFORMERS[transformer]
    return Case(
        partial(getattr(fastcos.models, name)().fit_transform, X),
        lambda answer: abs(answer - truth(X.astype(np.float64))).max(),
        Work(X.nnz, reads=bytes_of(X), writes=bytes_of(X)),
    )


@Workload("interactions", unit="non-zeros")
def Simulation():
    """Simulated interactions in the size of the paper."""
    call = partial(fastcos.simulate_interactions, 20_000, 1_000, random_state=0)

    def error(answer):
        """Return how many entries are repeated or other than 1, and how many rows are missing."""
        X = answer.X
        repeated = sum(len(set(row)) < len(row) for row in np.split(X.indices, X.indptr[1:-1]))
        return repeated + (X.data != 1).sum() + abs(X.shape[0] - 20_000)

    nnz = call().X.nnz
    return Case(call, error, Work(nnz, writes=8.0 * nnz))


def csv_file():
    """Return the path of a csv of interactions, these, and the work of reading it."""
    X, path = inputs.interactions(SMALL), inputs.new_folder() / "interactions.csv"
    rows = np.stack([*X.nonzero(), X.data], axis=1).astype(int)
    np.savetxt(path, rows, "%d", ",", header="user,item,value", comments="")
    return path, X, Work(X.nnz, reads=float(path.stat().st_size))


@Workload("interactions", unit="non-zeros")
def Reading():
    """A csv of 40,000 interactions."""
    path, X, work = csv_file()

    def error(answer):
        return abs(float(answer.X.sum() - X.sum())) + abs(answer.X.nnz - X.nnz)

    return Case(partial(fastcos.read_interactions, path), error, work)


@Workload("interactions", unit="non-zeros")
def Ingesting():
    """A csv of 40,000 interactions to a matrix on disk, each time in a new folder."""
    path, X, work = csv_file()

    def call():
        new = tempfile.mkdtemp(dir=path.parent)
        return fastcos.io.ingest_interactions(path, Path(new, "matrix"))

    return Case(call, lambda answer: abs(answer.nnz - X.nnz), work)
