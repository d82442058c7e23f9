import functools
import itertools
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import config
from fastcos.kernels import cpu, jit
from fastcos.parallel import readiness
from fastcos.search import cost_model
from fastcos.search.top_k import top_k
from tests.oracles import dense as dense_oracle
from tests.oracles.compare import assert_same_bits
from tests.oracles.dense_families import (
    FAMILIES,
    FORMS,
    clustered,
    duplicates,
    gaussian,
    near_ties,
    wild_norms,
)
from tests.robustness import dense_exactness

each_measure = pytest.mark.parametrize("measure", FORMS)


def most_with_cosine(parameter, values, with_others):
    """Parametrise a test by the measure, and by `values` of another parameter.

    The default tests combine the measure cosine with all values of the parameter. They combine
    every other measure only with the values in `with_others`.
    """
    return pytest.mark.parametrize(
        ("measure", parameter),
        [
            pytest.param(
                measure, value,
                marks=[pytest.mark.slow] * (measure != "cosine" and value not in with_others),
            )
            for measure in FORMS
            for value in values
        ],
    )  # fmt: skip


def finished(keys, measure):
    with np.errstate(over="ignore"):
        return (-np.sqrt(-keys) if measure == "neg_euclidean" else keys).astype(np.float32)


def assert_exact(X, Y=None, k=10, measure="cosine", **options):
    result = top_k(X, Y, k, measure=measure, **options)
    items = X if Y is None else Y
    columns, keys = dense_oracle.top_k(X, items, k, FORMS[measure], exclude_self=Y is None)
    np.testing.assert_array_equal(result.indices, columns)
    np.testing.assert_array_equal(result.scores, finished(keys, measure))
    assert result.indices.dtype == np.int64
    assert result.scores.dtype == np.float32


each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)


@each_measure
@each_family
@pytest.mark.parametrize(
    ("n", "d", "k"), [(300, 19, 10), pytest.param(700, 64, 40, marks=pytest.mark.slow)]
)
def test_neighbours_are_those_of_the_float64_scores(family, measure, n, d, k):
    assert_exact(family(n, d), k=k, measure=measure)


@pytest.mark.skipif(jit.DISABLE_JIT, reason="kernels are Python functions of their modules")
def test_many_neighbours_of_clusters_are_exact():
    assert_exact(clustered(700, 64), k=40)


@most_with_cosine("d", [1, 2, 3, 15, 16, 17, 50, 63, 65, 130], [1, 17, 130])
def test_any_depth_is_exact(d, measure):
    assert_exact(gaussian(260, d), k=9, measure=measure)
    assert_exact(gaussian(70, d, seed=1), gaussian(400, d), k=11, measure=measure)


@most_with_cosine("n", [2, 31, 32, 33, 127, 128, 129, 255, 256, 257], [2, 33, 256])
def test_any_number_of_rows_is_exact(n, measure):
    for k in {1, min(10, n - 1), n - 1}:
        assert_exact(gaussian(n, 20), k=k, measure=measure)


def test_a_single_row_finds_itself_or_nothing():
    one = np.ones((1, 3), np.float32)
    result = top_k(one, k=1, exclude_self=False)
    assert (result.indices.item(), result.scores.item()) == (0, 1.0)
    with pytest.raises(ValueError, match=r"queries must have at least 2 rows .*, got 1"):
        top_k(one, k=1)
    with pytest.raises(ValueError, match=r"queries must have at least 2 rows .*, got 1"):
        top_k(sp.csr_array(one), k=1)


@each_measure
def test_float64_rows_are_scored_as_given(measure):
    X = gaussian(400, 30).astype(np.float64) + 1e-9 * gaussian(400, 30, seed=9)
    assert_exact(X, k=10, measure=measure)
    assert_exact(X.astype(np.float32), X, k=10, measure=measure)


@each_measure
def test_few_queries_are_exact_with_and_without_an_index(measure):
    items = gaussian(20_000, 24)
    index = fastcos.SimilarityIndex(measure).fit(items)
    for n in (1, 5, 33):
        Q = gaussian(n, 24, seed=n)
        assert_exact(Q, items, k=12, measure=measure)
        assert_same_bits(index.search(Q, 12).indices, top_k(Q, items, 12, measure=measure).indices)


@pytest.mark.slow
@each_measure
@each_family
@pytest.mark.parametrize("isa", cpu.ISA_FEATURES)
def test_every_instruction_set_gives_the_same_bits(isa, family, measure):
    if isa not in cpu.supported_isas():
        pytest.skip(f"this CPU has no {isa}")
    X = family(500, 36)
    expected = top_k(X, k=20, measure=measure)
    before = config.isa()
    try:
        config.set_config(isa=isa)
        result = top_k(X, k=20, measure=measure)
    finally:
        config.set_config(isa=before)
    assert_same_bits(result.indices, expected.indices)
    assert_same_bits(result.scores, expected.scores)


@pytest.mark.parametrize(
    "measure",
    ["cosine", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dot", "neg_euclidean"))],
)
def test_threads_blocks_and_batches_give_the_same_bits(measure):
    X = np.concatenate([gaussian(900, 40), near_ties(300, 40)])
    expected = top_k(X, k=15, measure=measure)
    for n_threads in (1, 2, 3, 8):
        result = top_k(X, k=15, measure=measure, n_threads=n_threads)
        assert_same_bits(result.indices, expected.indices)
        assert_same_bits(result.scores, expected.scores)
    # A small working memory leads to small blocks.
    for memory in (0.4, 0.8, 1.5, 3):
        result = top_k(X, k=15, measure=measure, working_memory=memory)
        assert_same_bits(result.indices, expected.indices)
    whole = top_k(X, X, 15, measure=measure)
    for cuts in ([0, 1200], [0, 1, 1200], [0, 100, 101, 900, 1200], [0, 640, 1200]):
        parts = [top_k(X[a:b], X, 15, measure=measure) for a, b in itertools.pairwise(cuts)]
        assert_same_bits(np.concatenate([part.indices for part in parts]), whole.indices)
        assert_same_bits(np.concatenate([part.scores for part in parts]), whole.scores)


def test_fewer_neighbours_are_the_first_of_more():
    X = np.concatenate([gaussian(800, 33), duplicates(400, 33)])
    many = top_k(X, k=60)
    for k in (1, 5, 10, 59):
        assert_same_bits(top_k(X, k=k).indices, many.indices[:, :k])


def test_cosines_are_bounded_symmetric_and_1_with_itself():
    X = np.concatenate([gaussian(600, 21), wild_norms(200, 21)])
    result = top_k(X, k=800, exclude_self=False)
    square = np.empty((800, 800), np.float32)
    np.put_along_axis(square, result.indices, result.scores, axis=1)
    assert np.abs(square).max() <= 1
    assert_same_bits(square, square.T)
    np.testing.assert_array_equal(square.diagonal(), 1)


def test_excluded_items_are_not_found_and_rows_are_padded():
    Q, B = gaussian(90, 16), gaussian(500, 16, seed=1)
    rng = np.random.default_rng(0)
    excluded = rng.random((90, 500)) < 0.3
    excluded[3] = True
    excluded[3, :4] = False
    excluded[4] = True
    result = top_k(Q, B, 8, exclude=sp.csr_array(excluded))
    columns, keys = dense_oracle.top_k(Q, B, 8, "cosine", excluded=excluded)
    np.testing.assert_array_equal(result.indices, columns)
    np.testing.assert_array_equal(result.scores, keys.astype(np.float32))
    assert (result.indices[3] >= 0).sum() == 4
    assert (result.indices[4] == -1).all()


@pytest.mark.parametrize("share", [0.02, 0.4, 0.9])
def test_only_allowed_items_are_found(share):
    Q, B = gaussian(300, 16), gaussian(2000, 16, seed=1)
    allowed = np.random.default_rng(0).random(2000) < share
    columns, _ = dense_oracle.top_k(Q, B, 5, "cosine", allowed=allowed)
    np.testing.assert_array_equal(top_k(Q, B, 5, allowed=allowed).indices, columns)
    np.testing.assert_array_equal(
        top_k(Q, B, 5, allowed=np.flatnonzero(allowed)[::-1]).indices, columns
    )


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_items_are_checked_where_none_may_be_found(broken):
    X = gaussian(300, 16)
    assert (top_k(X[:4], X, 3, allowed=np.zeros(300, bool)).indices == -1).all()
    X[7, 3] = broken
    for allowed in (np.zeros(300, bool), [0, 1, 2], None):
        with pytest.raises(ValueError, match=r"^items must be finite, got NaN or .* in row 7"):
            top_k(gaussian(4, 16), X, 3, allowed=allowed)


def test_a_minimum_score_leaves_out_the_rest():
    X = gaussian(400, 8)
    whole, above = top_k(X, k=20), top_k(X, k=20, min_score=0.8)
    low = whole.scores < 0.8
    np.testing.assert_array_equal(above.indices, np.where(low, -1, whole.indices))
    np.testing.assert_array_equal(above.scores, np.where(low, -np.inf, whole.scores))


@pytest.mark.slow
def test_a_threshold_guessed_too_high_is_corrected():
    # Only the sampled panels contain near items, so the estimated number of near items is too high.
    X = gaussian(16_384, 24)
    for panel in range(4, 512, 8):
        X[32 * panel] = 1 + 0.01 * X[32 * panel]
    Q = np.concatenate([1 + 0.02 * gaussian(100, 24, seed=3), X[:100]])
    for k in (10, 70, 200):
        assert_exact(Q, X, k=k)


def test_every_layout_and_type_of_input_gives_the_same_answer(tmp_path):
    X = gaussian(300, 20)
    expected = top_k(X, k=5).indices
    wide = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)
    read_only = X.copy()
    read_only.flags.writeable = False
    np.save(tmp_path / "X.npy", X)
    for same in (
        np.asfortranarray(X), wide[::2, ::3], read_only, X[::-1][::-1], X.tolist(),
        np.load(tmp_path / "X.npy", mmap_mode="r"), X.astype(">f4"),
    ):  # fmt: skip
        np.testing.assert_array_equal(top_k(same, k=5).indices, expected)
    half = X.astype(np.float16)
    np.testing.assert_array_equal(
        top_k(half, k=5).indices, top_k(half.astype(np.float32), k=5).indices
    )
    assert_same_bits(X, gaussian(300, 20))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": [[1.0, np.nan]]}, r"queries must be finite, got NaN or infinity in row 0"),
        ({"k": 0}, r"k must be a whole number from 1 to 30, got 0"),
        ({"k": 31}, r"k must be a whole number from 1 to 30, got 31"),
        ({"items": np.ones((4, 3))}, r"items must have as many columns as queries \(2\), got 3"),
        ({"queries": np.ones((0, 2))}, r"queries must have at least one row and one column"),
        ({"measure": "cosin"}, r"measure must be one of .*, got 'cosin'"),
        ({"allowed": [40]}, r"allowed must hold item numbers from 0 to 29, got 40 to 40"),
        ({"exclude": sp.csr_array((3, 30))}, r"exclude must be of shape \(5, 30\), got \(3, 30\)"),
        ({"queries": np.full((5, 2), 1e200)}, r"queries must have entries whose squares can be"),
        ({"min_score": np.nan}, r"min_score must be a finite number, got nan"),
        ({"n_threads": 0}, r"n_threads must be a whole number from 1 to 4096, got 0"),
        ({"working_memory": -1}, r"working_memory must be a finite number > 0, got -1"),
    ],
)
def test_bad_arguments_are_refused_by_name(change, message):
    call = {"queries": np.ones((5, 2)), "items": np.ones((30, 2)), "k": 3} | change
    with pytest.raises(ValueError, match=message):
        top_k(**call)


def test_rows_that_are_no_numbers_are_refused():
    with pytest.raises(TypeError, match="queries must hold real numbers, got dtype object"):
        top_k(np.array([[1, None]], object))
    with pytest.raises(TypeError, match=r"must be a name or a Measure \(name, .*, got int"):
        top_k(np.ones((3, 2)), k=1, measure=3)


def test_too_little_working_memory_is_refused_with_the_need():
    with pytest.raises(ValueError, match=r"working_memory must be at least \d+\.\d\d MiB for this"):
        top_k(gaussian(3000, 16), k=100, working_memory=0.01)


def test_many_threads_share_little_working_memory():
    X = gaussian(3000, 16)
    result = top_k(X, k=20, working_memory=1.0, n_threads=64)
    assert_same_bits(result.indices, top_k(X, k=20, n_threads=1).indices)


def test_little_working_memory_does_not_change_the_answer():
    X = gaussian(5000, 16)
    assert_same_bits(top_k(X, k=20, working_memory=2.0).indices, top_k(X, k=20).indices)


def test_progress_ends_at_the_number_of_queries():
    seen = []
    top_k(gaussian(3000, 8), k=3, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] >= seen[0][0]
    assert seen[-1] == (3000, 3000)


# There are so few items that every pair is scored. The tasks of a search are therefore known.
FEW_PAIRS_PER_TASK = {"pairs_per_task": 10_000}


def test_progress_counts_the_parts_in_which_a_measure_scores_its_candidates():
    X, Q, seen = gaussian(100, 8), gaussian(1000, 8, seed=1), []
    options = {"n_threads": 1, "progress": lambda *step: seen.append(step)}
    with cost_model.costs_replaced(**FEW_PAIRS_PER_TASK):
        top_k(Q, X, k=1, measure="norm_angle_distance", working_memory=0.5, **options)
    assert seen == sorted(seen)
    assert seen[-1] == (1000, 1000)
    # The candidates of at most 273 queries fit in the working memory, so there are four parts.
    assert sum(step == (1000, 1000) for step in seen) == 1
    assert max(after - before for (before, _), (after, _) in itertools.pairwise(seen)) <= 273


def test_progress_goes_on_when_the_kernels_take_over_from_numpy(monkeypatch):
    X, Q, seen = gaussian(100, 8), gaussian(1000, 8, seed=1), []
    monkeypatch.setattr(readiness, "use_numpy", lambda: not seen)
    with cost_model.costs_replaced(numpy_batch_queries=500, **FEW_PAIRS_PER_TASK):
        top_k(Q, X, k=1, n_threads=1, progress=lambda *step: seen.append(step))
    assert (seen[0], seen[-1]) == ((500, 1000), (1000, 1000))
    assert len(seen) > 2
    assert seen == sorted(set(seen))


def in_a_process(code, **environment):
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=root, env={**os.environ, **environment}, text=True,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_an_unknown_instruction_set_is_refused():
    code = "import numpy, fastcos; fastcos.top_k(numpy.eye(200), k=1)"
    result = in_a_process(code, FASTCOS_ISA="mmx")
    assert "FASTCOS_ISA must be one of amx, vnni" in result.stderr


@pytest.mark.slow
def test_memory_holds_under_a_hard_limit_of_address_space():
    code = """
        import resource
        import numpy as np
        from fastcos.search import top_k
        X = np.random.default_rng(0).standard_normal((20_000, 64), dtype=np.float32)
        top_k(X[:400], k=10, working_memory=8)
        top_k(X[:100], X[:9000], k=10, working_memory=8)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        n, k = len(X), 10
        outputs, index, norms = n * k * 12, n * 140, n * 8 * 8
        allowed = used + outputs + index + norms + (8 << 20) + (64 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
        print(top_k(X, k=k, working_memory=8).indices.sum())
    """
    result = in_a_process(code)
    assert result.returncode == 0, result.stderr
    X = np.random.default_rng(0).standard_normal((20_000, 64), dtype=np.float32)
    assert int(result.stdout) == top_k(X, k=10).indices.sum()


@pytest.mark.slow
@pytest.mark.long
def test_a_million_cases_are_exact():
    counts = dense_exactness.count_errors(1_000_000)
    assert counts["cases"] >= 1_000_000
    assert counts["wrong"] == 0


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_an_interrupt_stops_a_search_within_half_a_second():
    code = """
        import os, signal, threading, time
        import numpy as np
        from fastcos.search import top_k
        X = np.random.default_rng(0).standard_normal((60_000, 200), dtype=np.float32)
        top_k(X[:400], k=10)
        sent = []
        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.3, interrupt).start()
        try:
            while True:
                top_k(X, k=100)
        except KeyboardInterrupt:
            print(time.monotonic() - sent[0])
        before = time.process_time()
        time.sleep(0.3)
        print(time.process_time() - before)
    """
    result = in_a_process(code)
    assert result.returncode == 0, result.stderr
    waited, worked_on = map(float, result.stdout.split())
    assert waited < 0.5
    assert worked_on < 0.1


@pytest.mark.slow
def test_both_drivers_give_the_same_bits():
    X, before = gaussian(3000, 40), config.backend()
    expected = top_k(X, k=10)
    try:
        config.set_config(backend="prange")
        result = top_k(X, k=10)
    finally:
        config.set_config(backend=before)
    assert_same_bits(result.indices, expected.indices)
    assert_same_bits(result.scores, expected.scores)


@pytest.mark.parametrize("seed", range(3))
def test_candidates_worse_by_their_estimates_are_tried(seed):
    # With little memory, the buffers of a block become full. None of the remaining candidates has a
    # better estimate than the best candidate so far. One of the remaining candidates nevertheless
    # has a better exact score.
    order = np.random.default_rng(seed).permutation(511)
    X = np.ldexp(wild_norms(511, 115)[order], -60)
    assert_exact(X, X, 1, "dot", working_memory=0.08)


def as_sparse(X):
    return sp.csr_array(np.maximum(X, 0).astype(np.float64))


def as_counts(X):
    return sp.csr_array(np.rint(np.abs(X)))


@pytest.mark.parametrize(
    ("convert", "measure"),
    [
        (np.asarray, "cosine"),
        (as_sparse, "cosine"),
        pytest.param(as_counts, "cosine", marks=pytest.mark.slow),  # code for whole numbers
        (lambda X: (X > 0).astype("u1"), "hamming"),
    ],
)
def test_items_that_are_the_queries_exclude_them_where_asked(convert, measure):
    X = convert(np.random.default_rng(0).standard_normal((40, 24)).astype(np.float32))
    search = functools.partial(top_k, k=5, measure=measure)
    alone = search(X)
    for pair, other in (
        (search(X, exclude_self=True), alone),
        (search(X, X, exclude_self=True), alone),
        (search(X, X), search(X, exclude_self=False)),
        (search(X, X, exclude_self=False), search(X, exclude_self=False)),
    ):
        np.testing.assert_array_equal(pair.indices, other.indices)
        np.testing.assert_array_equal(pair.scores, other.scores)
    assert not (alone.indices == np.arange(40)[:, None]).any()
    message = (
        "^exclude_self must be False if the numbers of queries and items differ, "
        "got True for 40 queries and 30 items$"
    )
    with pytest.raises(ValueError, match=message):
        search(X, X[:30], exclude_self=True)
