"""Exact neighbours among dense rows: self-join, queries, index, measures, graphs."""

from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import fastcos
from bench import answers, inputs
from bench.inputs import shape_of
from bench.limits import Work, search_work
from bench.workloads import Case, Workload
from fastcos import get_config
from fastcos.engine import packing, scan
from fastcos.kernels.select import keep_best
from tests.oracles import dense, measures as oracles

K = 10
# widths of common text embeddings
WIDE = (384, 768, 1536)


def search_case(rows, k=K, measure="cosine", call=None, ties=0.0):
    """Return the Case of a search of rows: queries and items, or items among themselves."""
    items = rows[-1]
    arrays = dict(zip(("items", "queries"), reversed(rows), strict=False))

    def error(answer):
        return answers.wrong_rows(answer.indices, *rows, measure=measure, ties=ties)

    def disagreement(theirs, answer):
        """Compare scores: neighbours that tie in float32 may be swapped.

        The product of d columns takes d roundings of 2^-24, whatever the order of summation, each
        of the two norms d / 2 + 3.
        """
        ours, allowed = answer.scores, (2 * items.shape[1] + 6) * 2.0**-24
        if measure == "neg_euclidean":
            # x^2 + y^2 - 2xy cancels: the error is relative to the largest norm
            longest = max(float(np.linalg.norm(some, axis=1).max()) for some in rows)
            theirs, ours = theirs.astype(np.float64) ** 2, ours.astype(np.float64) ** 2
            allowed *= (2 * longest) ** 2
        return abs(theirs - ours).max() / allowed

    return Case(
        call or partial(fastcos.top_k, *rows, k=k, measure=measure),
        error,
        search_work(len(rows[0]), *items.shape, k),
        lambda: ("search", arrays, {"k": k, "measure": measure}),
        disagreement,
    )


def queries_and_items(queries, items):
    """Return standard normal rows: so many queries, and the items of "20,000 x 128"."""
    n, d = shape_of(items)
    return inputs.gaussian(queries, d, seed=1), inputs.gaussian(n, d)


SEARCHERS = ("faiss", "faiss Panorama", "numpy", "sklearn", "chunkdot", "implicit", "numkong")


@Workload(
    "dense neighbours", unit="pairs",
    axes={"rows": ["1,000 x 64", "20,000 x 128", "4,000 x 768"], "k": [10, 100]},
    quick={"rows": ["2,000 x 64", *(f"1,000 x {d}" for d in WIDE)], "k": [10]},
    large={"rows": ["40,000 x 128", *(f"20,000 x {d}" for d in WIDE)]},
    tables={"rows": ["1,000 x 64", "2,000 x 64", "20,000 x 128"], "k": [10]},
    roofline={"rows": ["20,000 x 128", *(f"10,000 x {d}" for d in WIDE)], "k": [10]},
    phrase="neighbours of all {rows}, k = {k}", competitors=SEARCHERS,
)  # fmt: skip
def SelfJoin(rows, k):
    """The neighbours of every row among the others."""
    # what float64 sums order by their last bits has no known order in a user's file
    return search_case([inputs.rows(rows)], k, ties=1e-14 * Path(rows).exists())


@Workload(
    "dense neighbours", unit="pairs", axes={"rows": ["20,000 x 64"]},
    quick={"rows": ["2,000 x 64"]}, tables={"rows": ["2,000 x 64"]},
    phrase="neighbours of all {rows} by distance, k = 10", competitors=("sklearn", "faiss"),
)  # fmt: skip
def EuclideanSelfJoin(rows):
    """The neighbours of every row by distance."""
    return search_case([inputs.rows(rows)], measure="neg_euclidean")


@Workload(
    "dense queries, one shot", unit="pairs",
    axes={
        "queries": [1, 32, 1_000], "items": ["20,000 x 64", "4,000 x 768"],
        "measure": ["cosine"], "k": [K],
    },
    quick={"queries": [1_000], "items": ["4,000 x 64", "4,000 x 768"]},
    large={
        "queries": [1_000], "items": ["200,000 x 64", *(f"100,000 x {d}" for d in WIDE)],
        "k": [10, 100],
    },
    tables={"queries": [1_000], "items": ["4,000 x 64", "50,000 x 384"]},
    roofline={"queries": [1_000], "items": ["4,000 x 768"]},
    phrase="{queries}, {items} that were not packed before, k = {k}", competitors=SEARCHERS,
)  # fmt: skip
def OneShot(queries, items, measure, k):
    """Queries among other rows, which are packed in the call."""
    return search_case(queries_and_items(queries, items), k, measure)


def index_case(rows, k):
    """Return the Case of queries of a fitted index."""
    (queries, items), index = rows, fastcos.SimilarityIndex().fit(rows[1])
    case = search_case(rows, k, call=partial(index.search, queries, k))
    # an index must read the codes of its items
    words = packing.tile_layout(get_config().isa, items.shape[1]).words
    return case._replace(work=case.work._replace(reads=4.0 * len(items) * words))


INDEX = {
    "question": "dense queries, index", "unit": "pairs", "phrase": "{queries}, {items}, k = {k}",
    "competitors":
        ("faiss", "faiss Panorama", "numpy", "sklearn", "usearch", "implicit", "numkong"),
}  # fmt: skip
SMALL = [f"{n:,} x {d}" for n in (1_000, 10_000, 100_000) for d in (64, 384, 768)]


@Workload(
    **INDEX, name="RestedSearch", state="rested",
    said="A service's searches after a pause: threads sleep, and caches hold other data",
    axes={"queries": [1], "items": SMALL, "k": [K]}, quick={"items": ["10,000 x 64"]},
    tables={"items": ["10,000 x 64", "100,000 x 384"]},
)  # fmt: skip
@Workload(
    **INDEX, name="SmallSearch",
    said="A service's searches: few queries of small to middling indexes",
    axes={"queries": [1, 4, 16], "items": SMALL, "k": [K]},
    quick={"queries": [1, 4], "items": ["1,000 x 64"]},
    tables={"queries": [1], "items": ["1,000 x 64", "10,000 x 384", "10,000 x 768"]},
)  # fmt: skip
@Workload(
    **INDEX, axes={"queries": [1, 16, 256], "items": ["50,000 x 64", "10,000 x 768"], "k": [K]},
    quick={"queries": [1, 16], "items": ["10,000 x 64", "10,000 x 768"]},
    large={
        "queries": [1, 256], "items": ["1,000,000 x 128", *(f"100,000 x {d}" for d in WIDE)],
        "k": [10, 100],
    },
    tables={"queries": [1, 256], "items": ["10,000 x 64", "100,000 x 384"]},
    roofline={"queries": [1, 256], "items": ["100,000 x 768"]},
)  # fmt: skip
def IndexSearch(queries, items, k):
    """Queries of a fitted index: one, few and many."""
    return index_case(queries_and_items(queries, items), k)


@Workload(**INDEX | {
    "axes": {"queries": [1, 256], "items": ["50,000 x 384"], "k": [K]},
    "quick": {"items": ["10,000 x 384"]}, "tables": {},
    "phrase": "{queries}, {items} with a decaying spectrum, k = {k}",
})  # fmt: skip
def DecayingSearch(queries, items, k):
    """Rows whose columns decay as i^-0.7, as those of embeddings do after a rotation."""
    scales = np.arange(1, shape_of(items)[1] + 1, dtype=np.float32) ** -0.7
    return index_case([rows * scales for rows in queries_and_items(queries, items)], k)


@Workload(
    "dense queries, approximate scans", unit="pairs",
    axes={"queries": [1_000], "items": ["10,000 x 384"], "k": [K]},
    large={"items": ["60,000 x 768"], "k": [10, 100]}, tables={"items": ["60,000 x 768"]},
    phrase="{queries}, {items} in clusters, k = {k}",
    competitors=("faiss", "faiss SQ8", "faiss SQ4", "faiss PQ fast-scan", "usearch int8",
                 "turbovec", "turbovec 2 bits"),
)  # fmt: skip
def ApproximateSearch(queries, items, k):
    """Queries of clustered rows; the competitors scan codes, and their recall is a result."""
    if Path(items).exists():
        rows = inputs.rows(items)
    else:
        n, d = shape_of(items)
        rows = inputs.clustered(n + queries, d, np.random.default_rng(0))
    case = index_case((rows[-queries:], rows[:-queries]), k)
    return case._replace(
        job=lambda: ("approximate search", *case.job()[1:]),
        # an approximate answer is not wrong
        disagreement=lambda theirs, answer: 0.0,
        facts=lambda theirs, answer: {
            "recall": fastcos.metrics.overlap_at_k(theirs, answer.indices)
        },
    )


@Workload(
    "dense queries, filtered", unit="pairs",
    axes={"filter": ["allowed", "exclude", "min_score"]}, roofline={"filter": ["allowed"]},
)  # fmt: skip
def FilteredQueries(filter):
    """Filters: allowed items, excluded pairs, a minimum score."""
    queries, items = queries_and_items(500, "20,000 x 64")
    rng = np.random.default_rng(0)
    allowed, seen = rng.random(20_000) < 0.5, rng.random((500, 20_000)) < 0.001
    # the option, and the pairs of queries and items that it leaves out
    value, excluded = {
        "allowed": (allowed, np.broadcast_to(~allowed, seen.shape)),
        "exclude": (sp.csr_array(seen), seen),
        "min_score": (0.3, np.zeros_like(seen)),
    }[filter]

    def error(answer):
        checked = slice(0, 500, 20)
        best, scores = dense.top_k(queries[checked], items, K, "cosine", excluded=excluded[checked])
        if filter == "min_score":
            best[scores < value] = -1
        return (best != answer.indices[checked]).any(axis=1).sum()

    call = partial(fastcos.top_k, queries, items, k=K, **{filter: value})
    return search_case((queries, items), call=call)._replace(error=error)


@Workload(
    "exact scores of candidates", unit="candidates",
    axes={"queries": [1_000], "items": ["10,000 x 768"]}, large={"items": ["100,000 x 768"]},
    roofline={}, competitors=("numpy float32", "numpy float64"),
)  # fmt: skip
def Rescoring(queries, items):
    """Exact scores of 100 candidates a query, and their order."""
    rows = queries, items = queries_and_items(queries, items)
    # n / 100 items apart: the candidates of a query are different items
    first = np.random.default_rng(0).integers(len(items), size=(len(queries), 1))
    candidates = (first + len(items) // 100 * np.arange(100)) % len(items)
    case = search_case(rows)

    def error(answer):
        wrong = 0
        for query, listed, found in zip(queries, candidates, answer.indices, strict=True):
            scores = answers.scores_of(query[None], items[listed], "cosine")[0]
            wrong += (listed[np.argsort(-scores)[:K]] != found).any()
        return wrong

    def job():
        _, arrays, parameters = case.job()
        return "rescoring", arrays | {"candidates": candidates}, parameters

    n, order = candidates.size, candidates.ravel().astype(np.int32)
    work = Work(n, float(n) * items.shape[1], gathers=n, table=items.shape, order=order)
    call = partial(fastcos.neighbors.rescore, *rows, candidates, K)
    return case._replace(call=call, error=error, work=work, job=job)


NARROW = {"question": "dense queries, narrow rows", "unit": "pairs"}


def narrow_case(call, type, items):
    """Return the Case of a call on queries and items of a type."""
    n, d = shape_of(items)
    narrow = rows = [inputs.narrow(inputs.gaussian(m, d, m), type) for m in (1_000, n)]
    if type == "bits":  # products of signs order items as Hamming distances do
        rows = [np.unpackbits(one, axis=1) * np.float32(2) - 1 for one in narrow]
    measure = "dot" if type == "bits" else "cosine"
    case = search_case(rows, measure=measure, call=partial(call, *narrow))
    return case._replace(work=case.work._replace(reads=float(sum(one.nbytes for one in narrow))))


@Workload(
    **NARROW, axes={"type": ["float16", "int8", "bits"], "items": ["4,000 x 768"]},
    large={
        "type": ["float32", "float16", "bfloat16", "int8", "bits"], "items": ["100,000 x 768"],
    },
    roofline={"type": ["float16"]},
)  # fmt: skip
def NarrowRows(type, items):
    """Rows of two bytes, one byte and one bit, which are packed in the call."""
    measure = "hamming" if type == "bits" else "cosine"
    return narrow_case(partial(fastcos.top_k, k=K, measure=measure), type, items)


@Workload(
    **NARROW, axes={"type": ["float16", "int8"], "items": ["4,000 x 768"]},
    large={"type": ["float32", "float16", "bfloat16", "int8"], "items": ["100,000 x 768"]},
    roofline={"type": ["float16"]},
)  # fmt: skip
def NarrowIndex(type, items):
    """Narrow rows in an index that is made and searched once, and keeps them as they are."""

    def call(queries, rows):
        return fastcos.SimilarityIndex().fit(rows).search(queries, K)

    return narrow_case(call, type, items)


# measures by their formulas: rows to scores of all pairs
MEASURES = {
    "dot": lambda rows: rows @ rows.T,
    "csls": lambda rows: oracles.csls(rows, 10),
    "mutual_proximity": oracles.mutual_proximity,
    "angular": lambda rows: oracles.cosine(rows, rows),
    "zscore_cosine": lambda rows: oracles.zscores(rows, rows),
    "spearman_dims": lambda rows: oracles.spearman(rows, rows),
}


@Workload(
    "dense neighbours, other measures", unit="pairs", axes={"measure": list(MEASURES)},
    roofline={"measure": ["csls"]}, limit=1e-6,
)  # fmt: skip
def Measures(measure):
    """Self-join by other measures.

    measure_costs.py times all of them.
    """
    rows = inputs.gaussian(3_000, 32)

    def error(answer):
        scores = MEASURES[measure](rows.astype(np.float64))
        np.fill_diagonal(scores, -np.inf)
        best = -np.sort(-scores, axis=1)[:, :K]
        return (best - np.take_along_axis(scores, answer.indices, axis=1)).max()

    return search_case([rows], measure=measure)._replace(error=error)


CHANGES = {
    "question": "index, changes", "large": {"items": [1_000_000]},
    "phrase": "{said}, {items} rows x 64",
}  # fmt: skip


def index_of(items):
    """Return an index, its rows, and the check of an index that should have the same answers."""
    queries, rows = queries_and_items(256, f"{items} x 64")

    def error(answer):
        return answers.wrong_rows(answer.search(queries, K).indices, queries, rows)

    return fastcos.SimilarityIndex().fit(rows), rows, error


@Workload(**CHANGES, axes={"items": [50_000]}, quick={"items": [1_000]}, roofline={})
def IndexFit(items):
    """Fit an index."""
    _, rows, error = index_of(items)
    work = Work(items, reads=4.0 * rows.size, writes=5.0 * rows.size)
    return Case(lambda: fastcos.SimilarityIndex().fit(rows), error, work)


@Workload(**CHANGES, axes={"then": ["nothing", "save"], "items": [50_000]})
def IndexReplace(then, items):
    """Replace 100 items of an index, which stays in memory or is saved."""
    (index, rows, error), path = index_of(items), inputs.new_folder() / "index"
    changed = np.arange(100)

    def call():
        index.upsert(rows[changed], changed)
        if then == "save":
            index.save(path)
        return index

    index.save(path)
    size = rows[changed].size
    return Case(call, error, Work(len(changed), reads=4.0 * size, writes=5.0 * size))


@Workload(**CHANGES, axes={"verify": ["nothing", "checksums"], "items": [50_000]})
def IndexOpen(verify, items):
    """Open an index, without and with the verification of its checksums."""
    (index, rows, error), path = index_of(items), inputs.new_folder() / "index"
    index.save(path)
    verified = verify == "checksums"
    call = partial(fastcos.SimilarityIndex.open, path, verify=verified)
    return Case(call, error, Work(items, reads=5.0 * rows.size * verified))


@Workload(
    "packing and selection", axes={"rows": ["20,000 x 768"]}, quick={"rows": ["4,000 x 768"]},
    roofline={},
)  # fmt: skip
def Packing(rows):
    """Scale, rotate and quantise rows into panels."""
    items = inputs.rows(rows)
    encoded = packing.encode_rows(items, None, None, "cosine")

    def error(answer):
        """Search the packed items for the first of them, which lose what is packed wrongly."""
        few, options = slice(answers.CHECKED_ROWS), packing.ExecutionOptions(1, 2**26)
        nothing = packing.no_exclusions(answers.CHECKED_ROWS)
        found, _ = scan.search(answer, encoded.take(few), nothing, K, options)
        return answers.wrong_rows(found, items[few], items)

    call = partial(packing.pack_items, "cosine", encoded, np.arange(len(items)), None)
    return Case(call, error, Work(len(items), reads=4.0 * items.size, writes=1.0 * items.size))


@Workload(
    "packing and selection", unit="candidates", axes={"candidates": [500, 100_000], "k": [100]},
    quick={"candidates": [100_000]},
)  # fmt: skip
def Selection(candidates, k):
    """The best k of the candidates of one query, after a copy that keeps the input."""
    given = np.random.default_rng(0).standard_normal(candidates), np.arange(candidates)
    keys, numbers = (values.copy() for values in given)
    scratch = np.empty(candidates)

    def call():
        keys[:], numbers[:] = given
        keep_best(keys, numbers, candidates, k, scratch)
        return numbers[:k]

    def error(answer):
        return (answer != np.argsort(-given[0], kind="stable")[:k]).sum()

    return Case(call, error, Work(candidates, reads=16.0 * candidates, writes=16.0 * candidates))


GRAPHS = {
    "question": "blocks, range search, graphs", "unit": "pairs", "axes": {"rows": [5_000]},
    "roofline": {},
}  # fmt: skip


@Workload(**GRAPHS)
def RangeSearch(rows):
    """All pairs above a score."""
    X, threshold = inputs.gaussian(rows, 64), 0.5

    def error(answer):
        return abs(answer.nnz - (answers.scores_of(X, X, "cosine") > threshold).sum() + len(X))

    call = partial(fastcos.neighbors_above, X, threshold)
    return Case(call, error, search_work(rows, *X.shape, K))


@Workload(**GRAPHS, limit=1e-5)
def SimilarityBlocks(rows):
    """All scores, block by block."""
    X = inputs.gaussian(rows, 64)

    def call():
        for _at, _block in fastcos.similarity_blocks(X):
            pass

    def error(_):
        cosines = answers.scores_of(X, X, "cosine")
        return max(abs(block - cosines[at]).max() for at, block in fastcos.similarity_blocks(X))

    pairs = float(rows) * rows
    work = Work(pairs, pairs * X.shape[1], "float32", 4.0 * X.size, 4.0 * pairs)
    return Case(call, error, work)
