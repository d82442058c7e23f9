"""Every public function, class and command refuses at least ten wrong inputs.

The error message is one line, which names the argument, the rule and the value: "k must be a whole
number from 1 to 19, got 0".
The test also fails if a call with a wrong input is accepted.
"""

import inspect
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import auditing, comparison, io, linalg, metrics, models, search, similarity
from fastcos.auditing import report
from fastcos.io import FastcosFormatError

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((20, 4))
MANY_ROWS = np.random.default_rng(1).standard_normal((120, 4))
SQUARE = RNG.standard_normal((4, 4))
COUNTS = (RNG.random((30, 20)) < 0.4).astype(float)
NOT_FINITE = np.where(np.arange(80).reshape(20, 4) == 7, np.nan, ROWS)
INFINITE = np.where(np.arange(80).reshape(20, 4) == 7, np.inf, ROWS)
LABELS = [0, 1] * 10
# The neighbours are written down here, because top_k would compile kernels before any test runs.
LISTS = (np.arange(20)[:, None] + [1, 2, 3]) % 20
NEIGHBORS = fastcos.Neighbors(LISTS, np.ones((20, 3), np.float32))
DATES = np.full((20, 4), "2026-01-01", "datetime64[D]")
MASKED = np.ma.masked_array(ROWS, ROWS > 1)


class Odd:
    """An object that no argument accepts."""

    def __repr__(self):
        return "Odd()"


# Wrong values, by kind of argument.
NO_ROWS = [
    None, "rows", 5, [], np.zeros((0, 4)), np.zeros((20, 0)), ROWS[0, :, None, None], NOT_FINITE,
    INFINITE, ROWS.astype(complex), ROWS.astype(str), DATES, MASKED, ROWS > 0, {"a": 1}, Odd(),
    [[1, 2], [3]], np.zeros((20, 4), np.uint8),
]  # fmt: skip
NO_ROWS = [
    value for value in NO_ROWS if not (isinstance(value, np.ndarray) and value.dtype == bool)
]
# An index may be empty, and so may a batch of queries.
SOME_ROWS = [value for value in NO_ROWS if getattr(value, "shape", None) != (0, 4)]
NO_IDS = [
    None, [0, 0] * 10, [-1] * 20, [0.5] * 20, ["a"] * 20, [True] * 20, ROWS, 5, "a", Odd(), {},
    [2**64 + i for i in range(20)], [None] * 20, [Odd()] * 20, [*"abcdefghijklmnopqrs", 1],
]  # fmt: skip
NO_COUNT = [0, -1, 2.5, "3", None, float("nan"), 10**12, [1], True, Odd()]
NO_OPTIONAL_COUNT = [value for value in NO_COUNT if value is not None]
NO_THREADS = NO_OPTIONAL_COUNT
NO_REAL = ["1", None, float("nan"), float("inf"), [1.0], True, Odd(), b"1", 1j, {}]
NO_OPTIONAL_REAL = [value for value in NO_REAL if value is not None]
NO_SEED = [-1, 2.5, "0", None, float("nan"), [0], True, Odd(), np.ones(2), b"0"]
NO_FLAG = [0, 1, "yes", None, 2.0, [], [True], Odd(), "False", np.ones(2)]
NO_OPTIONAL_FLAG = [value for value in NO_FLAG if value is not None]
NO_NAME = ["", "nothing", None, 5, [], Odd(), b"cosine", 1.5, {}, ("dot",)]
NO_OPTIONAL_NAME = [value for value in NO_NAME if value is not None]
NO_MEASURE = ["", "cosin", None, 5, [], Odd(), b"cosine", 1.5, {}, ("dot",)]
NO_CALL = [5, "print", [], {}, True, 0.5, b"", (), Odd(), np.ones(2)]
NO_PATH = [None, 5, "", [], Odd(), 1.5, {}, (), True, b""]
NO_LABELS = [
    5, "ab", [0] * 19, [0] * 20, [0.5] * 20, [["a"]] * 20, ["a", 1] * 10, np.zeros((20, 1)), Odd(),
    {"a": 1}, [np.nan, 1] * 10,
]  # fmt: skip
NO_LISTS = [
    None, "lists", 5, LISTS[0], LISTS.astype(float) + 0.5, LISTS - 100, Odd(), {},
    LISTS.astype(str), [[0, 1], [2]], LISTS[:, :0],
]  # fmt: skip
NO_MATRIX = [
    None, "X", 5, [], COUNTS[0], np.zeros((0, 3)), np.full((30, 20), np.nan),
    COUNTS.astype(complex), COUNTS.astype(str), Odd(), {"a": 1}, [[1, 2], [3]],
    np.full((30, 20), np.inf),
]  # fmt: skip
NO_VECTOR = [None, "v", 5, [], ROWS, ROWS[0] * np.nan, ["a"] * 4, ROWS[0] + 1j, Odd(), {}]
NO_ITEMS = [  # masks and item numbers
    5, "a", [-1], [20], [0.5], [True] * 19, ROWS, Odd(), {}, ["a"],
]  # fmt: skip
NO_EXCLUSIONS = [
    5,
    "a",
    [0],
    COUNTS[:, :3],
    sp.csr_array((20, 3)),
    sp.csr_array((3, 20)),
    Odd(),
    {},
    True,
    0.5,
]
NO_SVD = [None, 5, "svd", (), {}, Odd(), (None, [1.0]), ROWS, [ROWS], 0.5]
NO_CENTER = [5.5, "a", [1.0], [np.nan] * 20, ROWS, Odd(), {}, [1j] * 20, ["a"] * 20, True]
NO_NEIGHBORS = [None, 5, "a", [], Odd(), {}, ROWS, (LISTS,), 0.5, True]
NO_MEMORY = [0, -1, "1", float("nan"), float("inf"), [1], True, Odd(), b"1", 1j]
NO_LIST = [5, "x", Odd(), 0.5, True, [5], [None], [Odd()], ["nothing"], {"a": 1}]


def cases(call, **wrong):
    """Return a case for each wrong value of each argument; `call` must accept keyword arguments."""
    return [(call, name, value) for name, values in wrong.items() for value in values]


TWO_ROWS = {"first": NO_ROWS, "second": NO_ROWS}
SEARCH = {
    "queries": NO_ROWS, "k": NO_COUNT, "measure": NO_MEASURE, "exclude_self": NO_OPTIONAL_FLAG,
    "allowed": NO_ITEMS, "exclude": NO_EXCLUSIONS, "min_score": NO_OPTIONAL_REAL,
    "n_threads": NO_THREADS, "working_memory": NO_MEMORY, "progress": NO_CALL,
    "out": [5, "", [], Odd(), 1.5, {}, (), True, b"x"],
}  # fmt: skip
PRODUCT = {
    "center": NO_CENTER, "scale": NO_CENTER, "row_center": NO_CENTER, "n_threads": NO_THREADS,
}  # fmt: skip
EDGES = {
    "items": NO_ROWS, "k": NO_COUNT, "condition": [*NO_REAL, 0.5], "n_threads": NO_THREADS,
    "working_memory": NO_MEMORY, "progress": NO_CALL, "rows": NO_ITEMS,
}  # fmt: skip
COMPARE = {
    "X": NO_MATRIX, "labels": NO_LABELS, "n_components": NO_OPTIONAL_COUNT,
    "regularization": [-1, *NO_OPTIONAL_REAL], "weight_decay": [-1, *NO_OPTIONAL_REAL],
    "objective": NO_NAME, "rescalings": NO_LIST, "preprocessing": NO_LIST, "measures": NO_LIST,
    "grid": NO_FLAG, "n_sampled": NO_OPTIONAL_COUNT[:2], "budget": [0, -1, *NO_OPTIONAL_REAL],
    "on_rescalings": NO_CALL, "progress": NO_CALL, "random_state": NO_SEED,
    "executor": [5, "x", [], Odd(), {}, True, 0.5, (), b""],
}  # fmt: skip
FACTORS = {"items": NO_ROWS, "users": NO_ROWS[1:]}
COSINES = {"x": NO_ROWS, "y": NO_ROWS, "n_threads": NO_THREADS}
LABELLED = {"items": NO_ROWS, "labels": [None, *NO_LABELS], "n_threads": NO_THREADS}


def metric(name, *arrays, **fixed):
    """Return a function that calls a metric.

    Keyword arguments of this function replace the arguments that are passed here.
    """
    function = getattr(metrics, name)
    names = list(inspect.signature(function).parameters)

    def call(**changed):
        return function(**{**dict(zip(names, arrays, strict=False)), **fixed, **changed})

    return call


def fitted(estimator, **parameters):
    def call(X=COUNTS, **changed):
        return estimator(**{**parameters, **changed}).fit(X)

    return call


def indexed(method, *arrays, **fixed):
    """Return a function that calls a method of a new index.

    Keyword arguments of this function replace the arguments that are passed here.
    """

    def call(**changed):
        index = fastcos.SimilarityIndex().fit(ROWS)
        function = getattr(index, method)
        names = list(inspect.signature(function).parameters)
        return function(**{**dict(zip(names, arrays, strict=False)), **fixed, **changed})

    return call


def base(function, **fixed):
    """Return a function that calls `function` with valid arguments.

    Keyword arguments of the returned function replace some of the valid arguments.
    """
    return lambda **changed: function(**{**fixed, **changed})


GROUPS = {
    "top_k": cases(base(fastcos.top_k, queries=ROWS, k=2), **SEARCH),
    "top_k sparse": cases(
        base(fastcos.top_k, queries=sp.csr_array(COUNTS), k=2),
        **{k: v for k, v in SEARCH.items() if k not in ("queries", "allowed", "exclude")},
    ),
    "neighbors_above": cases(
        base(fastcos.neighbors_above, queries=ROWS, min_score=0.9),
        queries=NO_ROWS, min_score=NO_REAL, measure=NO_MEASURE, n_threads=NO_THREADS,
        working_memory=NO_MEMORY, progress=NO_CALL, items=NO_ROWS[1:],
    ),
    "similarity_blocks": cases(
        lambda **arguments: list(fastcos.similarity_blocks(**{"queries": ROWS, **arguments})),
        queries=NO_ROWS, items=NO_ROWS[1:], measure=NO_MEASURE, working_memory=NO_MEMORY,
        block=NO_OPTIONAL_COUNT[:4],
    ),
    "SimilarityIndex": cases(
        lambda items=ROWS, ids=None, **options: fastcos.SimilarityIndex(**options).fit(items, ids),
        items=SOME_ROWS, ids=NO_IDS[1:], measure=NO_MEASURE, n_threads=NO_THREADS,
    ),
    "SimilarityIndex.search": cases(
        indexed("search", ROWS, 2),
        queries=[*SOME_ROWS, ROWS[:, :3]], k=NO_COUNT, allowed=NO_ITEMS,
        # A matrix may have fewer columns than the index has items. Items beyond the last column of
        # the matrix are not excluded.
        exclude=[*NO_EXCLUSIONS[:4], *NO_EXCLUSIONS[5:]],
        min_score=NO_OPTIONAL_REAL, progress=NO_CALL,
    ),
    "SimilarityIndex.radius": cases(
        indexed("radius", ROWS, 0.9),
        queries=[*SOME_ROWS, ROWS[:, :3]], min_score=NO_REAL, allowed=NO_ITEMS,
        n_threads=NO_THREADS, working_memory=NO_MEMORY,
    ),
    "SimilarityIndex.rescore": cases(
        indexed("rescore", ROWS, LISTS, 2),
        queries=[*NO_ROWS, ROWS[:, :3]], candidates=NO_LISTS, k=NO_COUNT, n_threads=NO_THREADS,
        working_memory=NO_MEMORY,
    ),
    "rescore": cases(
        base(search.rescore, queries=ROWS, items=ROWS, candidates=LISTS, k=2),
        queries=NO_ROWS, items=[*NO_ROWS, ROWS[:, :3]], candidates=NO_LISTS, k=NO_COUNT,
        measure=NO_MEASURE, n_threads=NO_THREADS, working_memory=NO_MEMORY,
        upper_bounds=[5, "a", [1.0], [np.nan] * 20, ROWS, Odd(), {}, ["a"] * 20, [None] * 20, [1j]],
    ),
    "semantic_search": cases(
        base(search.semantic_search, query_embeddings=ROWS, corpus_embeddings=ROWS),
        query_embeddings=[*NO_ROWS, ROWS[:, :3]], corpus_embeddings=NO_ROWS, top_k=NO_COUNT[:-4],
        query_chunk_size=NO_COUNT[:6], corpus_chunk_size=NO_COUNT[:6],
        score_function=["cosine", None, 5, [], Odd(), len, b"cos_sim", 1.5, {}, ("dot",)],
    ),
    "explain_top_k": cases(
        base(fastcos.explain_top_k, n_queries=5, n_items=1000, n_columns=8),
        n_queries=NO_COUNT[:6], n_items=NO_COUNT[:6], n_columns=NO_COUNT[:6], k=[*NO_COUNT, 1001],
        dtype=[*NO_NAME, "complex64", "U3"], n_threads=NO_THREADS, working_memory=NO_MEMORY,
        isa=NO_OPTIONAL_NAME,
    ),
    "SimilarityIndex.explain": cases(
        indexed("explain", 5), n_queries=NO_COUNT[:6], k=NO_COUNT, n_threads=NO_THREADS,
        working_memory=NO_MEMORY,
    ),
    "community_detection": cases(
        base(search.community_detection, embeddings=ROWS), embeddings=NO_ROWS,
        threshold=NO_REAL, min_community_size=NO_COUNT[:6], batch_size=NO_COUNT[:6],
        show_progress_bar=NO_FLAG,
    ),
    "near_duplicates": cases(
        base(search.near_duplicates, items=ROWS, min_score=0.9), items=NO_ROWS,
        min_score=NO_REAL, measure=NO_MEASURE, n_threads=NO_THREADS, working_memory=NO_MEMORY,
    ),
    "SimilarityIndex.add": cases(
        indexed("add", ROWS, range(20, 40)),
        items=[*SOME_ROWS, ROWS[:, :3]], ids=[*NO_IDS[1:], range(20)],
    ),
    "SimilarityIndex.upsert": cases(
        indexed("upsert", ROWS, range(20)),
        items=[*SOME_ROWS, ROWS[:, :3]], ids=[*NO_IDS, range(19)],
    ),
    "SimilarityIndex.remove": cases(indexed("remove", [0]), ids=[*NO_IDS, [20]]),
    "SimilarityIndex.positions_of": cases(indexed("positions_of", [0]), ids=[*NO_IDS, [20]]),
    "SimilarityIndex.ids_of": cases(
        indexed("ids_of", [0]),
        positions=[None, "a", ["a"], [0.5], 1.5, [None], {}, Odd(), [Odd()], ROWS, [[1], [2, 3]]],
    ),
    "SimilarityIndex.save": cases(indexed("save", "x"), path=NO_PATH),
    "SimilarityIndex.open": cases(base(fastcos.SimilarityIndex.open), path=NO_PATH),
    "NeighborsTransformer": cases(
        lambda X=ROWS, **arguments: fastcos.NeighborsTransformer(**arguments).fit_transform(X),
        X=[v for v in NO_ROWS if not isinstance(v, np.ndarray) or v.dtype != np.uint8],
        n_neighbors=NO_COUNT, mode=NO_NAME, measure=NO_MEASURE,
    ),
    "rerank": cases(
        base(fastcos.rerank, neighbors=NEIGHBORS, scorer=len),
        neighbors=NO_NEIGHBORS, scorer=[None, *NO_CALL], progress=NO_CALL,
    ),
    "matmul": cases(
        base(fastcos.matmul, X=COUNTS, A=np.ones((20, 3))), X=NO_MATRIX, A=NO_ROWS, **PRODUCT
    ),
    "rmatmul": cases(
        base(fastcos.rmatmul, X=COUNTS, Y=np.ones((30, 3))), X=NO_MATRIX, Y=NO_ROWS, **PRODUCT
    ),
    "gram_matmul": cases(
        base(fastcos.gram_matmul, X=COUNTS, Q=np.ones((20, 3))), X=NO_MATRIX, Q=NO_ROWS, **PRODUCT
    ),
    "randomized_svd": cases(
        base(fastcos.randomized_svd, X=COUNTS, n_components=3),
        X=NO_MATRIX, n_components=NO_COUNT, tol=[0, -1, *NO_REAL], max_iter=NO_COUNT[:6],
        compute_u=NO_FLAG, random_state=NO_SEED, progress=NO_CALL, **PRODUCT,
    ),
    "svd_residuals": cases(
        base(fastcos.svd_residuals, X=COUNTS, svd=fastcos.randomized_svd(COUNTS, 3)),
        X=NO_MATRIX, svd=NO_SVD, **PRODUCT,
    ),
    "audit": cases(
        base(fastcos.audit, items=ROWS, k=2),
        users=NO_ROWS[1:], labels=NO_LABELS, popularity=[5, "a", *NO_VECTOR[3:], [1.0] * 3],
        trained_on=NO_NAME, random_state=NO_SEED,
        **{name: values for name, values in EDGES.items() if name != "rows"},
    ),
    "calibrate": cases(
        base(fastcos.calibrate, items=ROWS),
        items=NO_ROWS, queries=NO_ROWS[1:], measure=NO_MEASURE, fpr=[*NO_REAL, 0, -1, 2],
        sample=[*NO_OPTIONAL_COUNT[:5], 1, Odd()], condition=[*NO_OPTIONAL_REAL, 0.5],
        model=[5, [], Odd(), ""], progress=NO_CALL, random_state=NO_SEED,
    ),
    "threshold_range": cases(
        base(fastcos.auditing.threshold_range, items=ROWS, fpr=0.1),
        items=NO_ROWS, fpr=[*NO_REAL, 0, 2, 1e-9], condition=[*NO_REAL, 0.5],
        sample=[*NO_OPTIONAL_COUNT[:5], 1], random_state=NO_SEED,
    ),
    "calibrate_pairs": cases(
        base(fastcos.auditing.calibrate_pairs, scores=[0.1, 0.5, 0.7], relevant=[0, 1, 1]),
        scores=NO_VECTOR, relevant=[*NO_VECTOR, [0, 1], [1, 1, 1], [0, 1, 2]], method=NO_NAME,
    ),
    "pairs_near": cases(
        base(fastcos.auditing.pairs_near, items=ROWS, threshold=0.5),
        items=NO_ROWS, threshold=NO_REAL, queries=NO_ROWS[1:], n_each=NO_COUNT[:6],
        measure=NO_MEASURE, random_state=NO_SEED,
    ),
    "score_pairs": cases(
        base(fastcos.auditing.score_pairs, items=ROWS, pairs=[[0, 1]]),
        items=NO_ROWS, pairs=[None, 5, "a", [0, 1], [[0, 20]], [[-1, 0]], [[0.5, 1]], Odd(), {}],
        measure=NO_MEASURE,
    ),
    "certified_neighbors": cases(
        base(fastcos.certified_neighbors, items=ROWS, k=2), family=NO_NAME, **EDGES
    ),
    "vertex_attack": cases(base(auditing.vertex_attack, items=ROWS, k=2), **EDGES),
    "worst_rescaling": cases(
        base(auditing.worst_rescaling, items=ROWS, k=2),
        items=NO_ROWS, k=NO_COUNT, condition=[*NO_REAL, 0.5], family=NO_NAME, n_starts=NO_COUNT,
        n_threads=NO_THREADS, random_state=NO_SEED,
    ),
    "cosine_interval": cases(
        base(auditing.cosine_interval, x=ROWS, y=ROWS, condition=1.2),
        condition=[*NO_REAL, 0.5], **COSINES,
    ),
    "fisher_z_interval": cases(
        base(auditing.fisher_z_interval, cosine=0.5, condition=1.2),
        cosine=["a", None, 2.0, -2.0, float("nan"), Odd(), {}, 1j, "0.5", DATES],
        condition=[*NO_REAL, 0.5],
    ),
    "tv_index": cases(base(auditing.tv_index, x=ROWS, y=ROWS), **COSINES),
    "unbounded_range": cases(base(auditing.unbounded_range, x=ROWS, y=ROWS), x=NO_ROWS, y=NO_ROWS),
    "rescaling_distance": cases(
        base(auditing.rescaling_distance, first=np.ones(4), second=np.ones(4)),
        first=NO_VECTOR, second=NO_VECTOR,
    ),
    "label_recovery_range": cases(
        base(auditing.label_recovery_range, items=ROWS, labels=LABELS),
        items=NO_ROWS, labels=[None, *NO_LABELS], condition=[*NO_REAL, 0.5],
        n_threads=NO_THREADS, random_state=NO_SEED,
    ),
    "diff_models": cases(
        base(auditing.diff_models, items=ROWS, old_items=ROWS, k=2),
        items=NO_ROWS, old_items=NO_ROWS, users=NO_ROWS[1:], old_users=NO_ROWS[1:], k=NO_COUNT,
        n_threads=NO_THREADS, random_state=NO_SEED,
    ),
    "align": cases(
        base(auditing.align, items=ROWS, old_items=ROWS, users=ROWS, old_users=ROWS),
        items=NO_ROWS, old_items=NO_ROWS, users=NO_ROWS[1:], old_users=NO_ROWS[1:],
        random_state=NO_SEED,
    ),
    "map_encoder": cases(
        base(auditing.map_encoder, new=MANY_ROWS, old_corpus=MANY_ROWS, rows=np.arange(120), k=2),
        new=NO_ROWS, old_corpus=NO_ROWS, k=NO_COUNT, kind=["affine", None, 1], random_state=NO_SEED,
    ),
    "canonicalize": cases(base(fastcos.canonicalize, users=ROWS, items=ROWS), users=NO_ROWS,
                          items=NO_ROWS),
    "gradient_noise": cases(
        base(auditing.gradient_noise, items=ROWS, users=ROWS, slopes=np.eye(len(ROWS)), step=0.1),
        items=NO_ROWS, users=NO_ROWS, slopes=NO_ROWS, step=[*NO_REAL, 0, -1],
        weight_decay=[*NO_REAL, -1, (1, 2, 3), ()],
    ),
    "query_metric": cases(
        base(fastcos.query_metric, users=ROWS),
        users=NO_ROWS, centered=NO_FLAG, sample=NO_OPTIONAL_COUNT[:4], random_state=NO_SEED,
    ),
    "compare": cases(
        base(fastcos.compare, X=COUNTS, labels=LABELS, n_components=3, measures=["cosine"]),
        **COMPARE,
    ),
    "compare_vectors": cases(
        base(fastcos.compare_vectors, vectors=ROWS, labels=LABELS, measures=["cosine"]),
        vectors=NO_ROWS, labels=NO_LABELS, measures=NO_LIST, random_state=NO_SEED,
        progress=NO_CALL, executor=COMPARE["executor"],
    ),
    "compare_vectors pairs": cases(
        base(fastcos.compare_vectors, vectors=ROWS, measures=["cosine"]),
        pairs=[5, "a", [], (1, 2), ([[0, 1]], ["a"]), ([[0, 99]], [1.0]), Odd(), ([[0, 1]], []),
               ([[0.5, 1]], [1.0]), ([[0, 1, 2]], [1.0])],
    ),
    "choose_rank": cases(
        base(comparison.choose_rank, X=COUNTS, ranks=(2, 3)),
        X=NO_MATRIX, ranks=[5, "a", [], [0], [2.5], [99], Odd(), [None], ["2"], [True]],
        regularization=[-1, *NO_OPTIONAL_REAL], random_state=NO_SEED,
    ),
    "simulate_interactions": cases(
        base(fastcos.simulate_interactions, n_users=30, n_items=8, n_clusters=2),
        n_users=NO_COUNT[:-4], n_items=NO_COUNT[:-4], n_clusters=NO_COUNT,
        item_exponent=[5, "a", (2, 1), (1,), None, Odd(), (float("nan"), 1), ("a", "b"), {}, ()],
        user_exponent=NO_REAL, preset=NO_NAME, popularity_distribution=["", "no", 5, [], Odd()],
        interactions_per_user=[0, -1, "a", Odd(), [], float("nan")],
        cluster_probabilities=[5, "a", [0, 0], [-1, 2], [1, 2, 3], Odd(), ["a", "b"], {}],
        random_state=NO_SEED, n_threads=NO_THREADS, progress=NO_CALL,
    ),
    "LinearMF": cases(
        fitted(models.LinearMF, n_components=3),
        X=NO_MATRIX, n_components=NO_OPTIONAL_COUNT, objective=NO_NAME,
        regularization=[-1, *NO_OPTIONAL_REAL], center=[5, "a", None, [], Odd(), 0.5, 1, {}],
        solver=NO_NAME, tol=[0, -1, *NO_REAL],
    ),
    "CosineMF": cases(
        fitted(models.CosineMF, n_components=3, max_iter=1),
        X=NO_MATRIX, n_components=NO_OPTIONAL_COUNT, similarity=NO_NAME, loss=NO_NAME,
        temperature=[0, -1, *NO_REAL], item_bias=NO_FLAG, n_negatives=NO_COUNT[:6],
        learning_rate=[-1, *NO_REAL], batch_size=NO_COUNT[:6], max_iter=NO_COUNT[:6],
        validation_fraction=[-1, 1, 2, *NO_REAL], n_iter_no_change=NO_COUNT[:6],
        random_state=["a", -1, 2.5, Odd()],
    ),
    "LinearMF.recommend": cases(
        lambda X=COUNTS, k=2, **options: models.LinearMF(2).fit(COUNTS).recommend(X, k, **options),
        X=[*NO_MATRIX, COUNTS[:, :3]], k=NO_COUNT, exclude_seen=NO_FLAG, n_threads=NO_THREADS,
        progress=NO_CALL,
    ),
    "LinearMF.item_embeddings": cases(
        lambda rescaling: models.LinearMF(2).fit(COUNTS).item_embeddings(rescaling),
        rescaling=["", "nothing", 5, [], Odd(), [1.0], [0.0, 1.0], [np.nan, 1], {}, b"identity"],
    ),
    "NormalizeRows": cases(fitted(models.NormalizeRows), X=NO_MATRIX),
    "StandardizeColumns": cases(fitted(models.StandardizeColumns), X=NO_MATRIX),
    "PopularityWeights": cases(
        fitted(models.PopularityWeights), X=NO_MATRIX, column_power=NO_REAL, row_power=NO_REAL
    ),
    "ShiftedPPMI": cases(
        fitted(models.ShiftedPPMI), X=NO_MATRIX, smoothing=NO_REAL, shift=NO_REAL
    ),
    "Rescaling": cases(
        base(fastcos.Rescaling), shrinkage=NO_REAL, spectrum=NO_REAL
    ),
    "get_measure": cases(lambda measure: fastcos.get_measure(measure), measure=NO_MEASURE)
    + cases(lambda n_neighbors: fastcos.get_measure("csls", n_neighbors=n_neighbors),
            n_neighbors=NO_COUNT[:6]),
    "register": cases(lambda measure: similarity.register(measure), measure=NO_MEASURE),
    "set_config": cases(
        fastcos.set_config, n_threads=NO_OPTIONAL_COUNT, backend=NO_OPTIONAL_NAME,
        isa=NO_OPTIONAL_NAME,
        cache_dir=[5, [], Odd(), 1.5, {}, (), True], working_memory=NO_MEMORY,
    ),
    "from_model": cases(
        base(fastcos.from_model, model=SimpleNamespace(item_factors=ROWS, user_factors=ROWS)),
        model=[None, 5, "als", [], ROWS, Odd(), {}, SimpleNamespace(), True, object],
        users=[ROWS],
    ),
    "read_interactions": cases(
        base(io.read_interactions, path="ratings.csv"),
        path=NO_PATH, user=[5, "no", [], Odd()], item=[5, "no", [], Odd()],
        value=[5, "no", [], Odd()], duplicates=NO_NAME, member=[5, "no", [], Odd()],
        delimiter=[5, "", ";;", [], Odd(), True], header=[0, 1, "yes", 2.0, [], Odd()],
        progress=NO_CALL,
    ),
    "ingest_interactions": cases(
        base(io.ingest_interactions, path="ratings.csv", out="shards"),
        path=NO_PATH, out=NO_PATH, user=[5, "no", [], Odd()], duplicates=NO_NAME,
        delimiter=[5, "", ";;", [], Odd(), True], header=[0, 1, "yes", 2.0, [], Odd()],
        entries_per_shard=NO_COUNT[:6], progress=NO_CALL,
    ),
    "read_vectors": cases(
        base(io.read_vectors, path="items.npz"),
        path=NO_PATH, vector_column=[5, "no", [], Odd(), ""], id_column=[5, "no", [], Odd()],
    ),
    "read_factors": cases(
        base(io.read_factors, path="items.npz"),
        path=NO_PATH, users=[5, "no", [], Odd(), "", True],
        vector_column=[5, "no", [], Odd()], id_column=[5, "no", [], Odd()],
    ),
    "read_labels": cases(
        base(io.read_labels, path="labels.csv", item_ids=np.arange(20), column="label"),
        path=NO_PATH, item_ids=[None, 5, "a", [], Odd(), {}, ROWS, [[1]]],
        column=[None, 5, "no", [], Odd()], item=[5, "no", [], Odd()], name=[5, "no", [], Odd()],
        separator=[5, [], Odd(), True], only=[5, Odd(), [5], "a", True], member=[5, "no", Odd()],
    ),
    "read_names": cases(
        base(io.read_names, path="labels.csv", item_ids=np.arange(20), name="label"),
        path=NO_PATH, item_ids=[None, 5, "a", [], Odd(), {}, ROWS], name=[5, "no", [], Odd()],
        item=[5, "no", [], Odd()],
    ),
    "read_pairs": cases(
        base(io.read_pairs, path="pairs.csv", ids=np.arange(20)),
        path=NO_PATH, ids=[None, 5, "a", [], Odd(), {}, ROWS],
    ),
    "read_popularity": cases(
        base(io.read_popularity, path="pairs.csv", item_ids=np.arange(20), column="value"),
        path=NO_PATH, item_ids=[None, 5, "a", [], Odd(), {}, ROWS], column=[5, "no", [], Odd()],
        item=[5, "no", [], Odd()],
    ),
    "read_ids": cases(
        base(io.read_ids, path="items.npz", length=20), path=NO_PATH, length=[3, -1, *NO_COUNT[2:4]]
    ),
    "holds_vectors": cases(io.holds_vectors, path=NO_PATH),
    "common_rows": cases(
        base(io.common_rows, path="a", ids=np.arange(3), old_path="b", old_ids=np.arange(3)),
        ids=[None, 5, "a", Odd(), {}, ROWS], old_ids=[None, 5, "a", Odd(), {}, ROWS],
    ),
    "write_npy": cases(
        base(io.write_npy, path="x.npy", array=ROWS), path=NO_PATH,
        array=[None, Odd(), {}, np.array([Odd()])],
    ),
    "write_npz": cases(
        base(io.write_npz, path="x.npz", arrays={"a": ROWS}), path=NO_PATH,
        arrays=[None, 5, "a", [], Odd(), {"a": Odd()}, {5: ROWS}],
    ),
    "write_json": cases(
        base(io.write_json, path="x.json", value={}), path=NO_PATH, value=[Odd(), {"a": Odd()}]
    ),
    "write_csv": cases(
        base(io.write_csv, path="x.csv", header=("a",), rows=[(1,)]), path=NO_PATH,
        header=[None, 5, Odd()], rows=[None, 5, Odd()],
    ),
    "write_text": cases(base(io.write_text, path="x.txt", text="a"), path=NO_PATH,
                        text=[None, 5, Odd(), b"a", []]),
    "write_parquet": cases(
        base(io.write_parquet, path="x.parquet", columns={"a": [1]}), path=NO_PATH,
        columns=[None, 5, "a", Odd()],
    ),
    "InteractionShards": cases(base(linalg.InteractionShards, path="no"), path=[*NO_PATH, "no"],
                               verify=NO_FLAG),
    "hubness": cases(
        metric("hubness", LISTS),
        neighbors=NO_LISTS, n_items=[0, -1, 2.5, "a", Odd()], k=NO_OPTIONAL_COUNT,
    ),
    "jaccard_at_k": cases(metric("jaccard_at_k", LISTS, LISTS), first=NO_LISTS, second=NO_LISTS,
                          k=NO_OPTIONAL_COUNT),
    "overlap_at_k": cases(metric("overlap_at_k", LISTS, LISTS), first=NO_LISTS, second=NO_LISTS,
                          k=NO_OPTIONAL_COUNT),
    "rank_biased_overlap": cases(
        metric("rank_biased_overlap", LISTS, LISTS), first=NO_LISTS, second=NO_LISTS,
        k=NO_OPTIONAL_COUNT, persistence=[0, 1, 2, *NO_REAL],
    ),
    "neighbor_purity": cases(
        metric("neighbor_purity", LISTS, LABELS), neighbors=NO_LISTS, labels=[None, *NO_LABELS],
        k=NO_OPTIONAL_COUNT,
    ),
    **{
        name: cases(
            metric(name, np.tile([0, 1], (30, 1)), sp.csr_array(COUNTS)),
            recommended=NO_LISTS, held_out=NO_MATRIX, k=NO_OPTIONAL_COUNT,
        )
        for name in ("hit_rate_at_k", "map_at_k", "mrr_at_k", "precision_at_k", "recall_at_k")
    },
    "ndcg_at_k": cases(
        metric("ndcg_at_k", np.tile([0, 1], (30, 1)), sp.csr_array(COUNTS)),
        recommended=NO_LISTS, held_out=NO_MATRIX, k=NO_OPTIONAL_COUNT, graded=NO_FLAG,
    ),
    "popularity_bias": cases(
        metric("popularity_bias", ROWS, np.arange(20.0), LISTS),
        items=NO_ROWS, popularity=NO_VECTOR, neighbors=NO_LISTS, k=NO_OPTIONAL_COUNT,
    ),
    "rsa": cases(
        metric("rsa", ROWS, ROWS), method=NO_NAME, n_pairs=NO_OPTIONAL_COUNT[:4],
        random_state=NO_SEED, **TWO_ROWS,
    ),
    "trustworthiness": cases(
        metric("trustworthiness", ROWS, ROWS), original=NO_ROWS, embedding=NO_ROWS, k=NO_COUNT,
        n_threads=NO_THREADS,
    ),
    "stratified_auc": cases(
        metric("stratified_auc", ROWS, LABELS, np.arange(20.0)), popularity=NO_VECTOR,
        n_strata=NO_COUNT[:6], **LABELLED,
    ),
    "clustering_scores": cases(
        metric("clustering_scores", ROWS, LABELS), n_starts=NO_COUNT[:6], random_state=NO_SEED,
        **LABELLED,
    ),
    "pair_auc": cases(metric("pair_auc", ROWS, LABELS), exact=NO_OPTIONAL_FLAG, **LABELLED),
    "map_at_r": cases(metric("map_at_r", ROWS, LABELS), **LABELLED),
    "silhouette": cases(metric("silhouette", ROWS, LABELS), **LABELLED),
    "within_between": cases(
        metric("within_between", ROWS, LABELS), items=NO_ROWS, labels=[None, *NO_LABELS]
    ),
    "model_change": cases(
        metric("model_change", ROWS, ROWS, ROWS, ROWS), first_users=NO_ROWS, first_items=NO_ROWS,
        second_users=NO_ROWS, second_items=NO_ROWS,
    ),
} | {
    name: cases(metric(name, ROWS, ROWS), **TWO_ROWS)
    for name in ("cca_similarity", "cka", "procrustes")
} | {
    name: cases(metric(name, ROWS), items=NO_ROWS)
    for name in ("effective_rank", "isoscore", "mean_cosine", "participation_ratio")
}  # fmt: skip
# For the argument X of these estimators, the checks of scikit-learn require error messages in the
# wording of scikit-learn.
ESTIMATORS = {
    "LinearMF", "CosineMF", "LinearMF.recommend", "NeighborsTransformer", "NormalizeRows",
    "StandardizeColumns", "PopularityWeights", "ShiftedPPMI",
}  # fmt: skip
# These names stand for functions without arguments, or for records that a call returns.
NOT_CALLED = {
    "get_config", "rescalings", "list_measures", "presets", "summaries", "Neighbors", "SVD",
    "atomic_path", "EQ2", "METHODS", "RATES", "metrics", "Measure", "BaseMeasure", "UpperBounded",
}  # fmt: skip
PACKAGES = (
    fastcos,
    auditing,
    comparison,
    io,
    linalg,
    similarity,
    metrics,
    models,
    search,
)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("items.npz", ids=np.arange(20), vectors=ROWS)
    tmp_path.joinpath("ratings.csv").write_text("user,item,value\n1,2,3\n2,3,1\n")
    lines = "".join(f"{i},k{i % 2}\n" for i in range(20))
    tmp_path.joinpath("labels.csv").write_text("item,label\n" + lines)
    tmp_path.joinpath("pairs.csv").write_text("item,value\n1,2\n")
    return tmp_path


ARGUMENTS = {
    (name, argument): [case for case in group if case[1] == argument]
    for name, group in GROUPS.items()
    for _, argument, _ in group
}


@pytest.mark.parametrize(
    ("name", "argument"), ARGUMENTS, ids=[f"{name}-{argument}" for name, argument in ARGUMENTS]
)
def test_wrong_values_are_refused_in_one_line(name, argument, files):
    before = sorted(files.iterdir())
    for call, _, value in ARGUMENTS[name, argument]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises((TypeError, ValueError, OSError)) as caught:
                call(**{argument: value})
        line = str(caught.value)
        if isinstance(caught.value, FileNotFoundError):
            assert isinstance(value, str)
        elif name in ESTIMATORS and argument == "X":
            assert line
        else:
            assert "\n" not in line, line
            assert re.search(r" must .*(, got |: )", line), line
            assert len(line) <= 300, line
            is_of_file = isinstance(caught.value, FastcosFormatError)
            assert re.match(rf"\W*(the )?{argument}\b", line) or is_of_file, line
        assert sorted(files.iterdir()) == before, line


class Loud:
    """A value whose repr is long, has many lines, or raises an error."""

    def __init__(self, words):
        self.words = words

    def __repr__(self):
        if self.words is None:
            raise RuntimeError("no words")
        return self.words


LONG = {
    "text": "letters " * 10_000,
    "lines": Loud("a line\n" * 1_000),
    "words": Loud("word " * 10_000),
    "silent": Loud(None),
    "number": -(10**5_000),  # a positive number would be a valid number of iterations
    "list": [f"item {number}" for number in range(5_000)],
    "tuple": tuple(range(5_000)),
    "set": {f"item {number}" for number in range(5_000)},
    "mapping": dict.fromkeys(range(5_000), "value"),
    "nested": [[[[["deep"] * 100] * 10] * 10] * 10],
    "array": np.array([f"item {number}" for number in range(5_000)]),
    "bytes": b"bytes " * 10_000,
    "path": "folder/" * 500 + "file.npy",
    "texts": ["letters " * 10_000] * 20,
}


@pytest.mark.parametrize("value", LONG)
def test_messages_are_short_whatever_the_value(value, files):
    long = {}
    for (name, argument), ((call, *_), *_) in ARGUMENTS.items():
        is_of_scikit_learn = name in ESTIMATORS and argument == "X"
        try:
            with warnings.catch_warnings(action="ignore"):
                call(**{argument: LONG[value]})
        except Exception as error:
            is_of_system = isinstance(error, OSError) and error.errno is not None  # names the path
            expected = (TypeError, ValueError, OSError, AttributeError)
            line = str(error)
            is_short = isinstance(error, expected) and "\n" not in line and len(line) <= 300
            if not (is_short or is_of_system or is_of_scikit_learn):
                long[name, argument] = f"{type(error).__name__}: {line[:200]}"
    assert not long


def test_every_public_name_has_ten_wrong_calls():
    named = " ".join(GROUPS)
    records = {name for name in dir(report) if inspect.isclass(getattr(report, name))}
    missing = []
    for package in PACKAGES:
        for name in package.__all__:
            thing = getattr(package, name)
            is_record = inspect.isclass(thing) and not hasattr(thing, "fit")
            if inspect.ismodule(thing) or name in NOT_CALLED or name in records or is_record:
                continue
            if not re.search(rf"\b{name}\b", named):
                missing.append(name)
    assert missing == []
    assert [name for name, group in GROUPS.items() if len(group) < 10] == []
    assert sum(map(len, GROUPS.values())) > 700
