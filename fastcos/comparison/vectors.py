"""compare_vectors: which similarity to use for vectors, judged by labels or by rated pairs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.comparison.candidates import Embeddings, select_candidates
from fastcos.comparison.examples import choose_examples
from fastcos.comparison.leaderboard import Leaderboard
from fastcos.comparison.runner import CandidateEvaluator, Executor, Task, rank_results, run_here
from fastcos.comparison.scoring import items_at_once
from fastcos.comparison.tasks.label_recovery import LabelTask
from fastcos.comparison.tasks.rated_pairs import PairTask
from fastcos.metrics.label_permutation import label_names
from fastcos.parallel import Progress, memmap
from fastcos.similarity import Measure
from fastcos.similarity.base import capabilities
from fastcos.similarity.linear import as_pairs, check_varied
from fastcos.similarity.moments import blocks_of


def compare_vectors(
    vectors: Any,
    labels: Any = None,
    *,
    pairs: Any = None,
    measures: Sequence[str | Measure] | None = None,
    n_examples: int = 0,
    progress: Progress | None = None,
    random_state: int = 0,
    executor: Executor = run_here,
) -> Leaderboard:
    """Find out which similarity to use for vectors, among the measures that need only the rows.

    With labels, the task is to find rows with the same label, as in :func:`fastcos.compare`. With
    pairs, the task is to agree with people's ratings: the score is Spearman's correlation, which
    must exceed 0. The lead of the best measure over the cosine is cross-fitted, as in
    :func:`fastcos.compare`.

    Memory-mapped vectors (``np.load(path, mmap_mode="r")``) that do not fit the setting
    ``working_memory`` are read in blocks, with the same results. Measures whose ``fit`` searches
    neighbours require the rows in memory; for such vectors they are left out by default, and raise
    an error if you choose them. With labels, each measure reads the file about 1,000 x rows x 32
    bytes / working_memory times.

    Parameters
    ----------
    vectors : array_like (n, d), float32 or float64
        One row per item.
    labels : sequence (n,) of int or str, optional
        One label per row; None leaves a row out. Pass either labels or pairs.
    pairs : (pairs, ratings), optional
        Row numbers ``pairs`` (m, 2), and ``ratings`` (m,), which are larger for more similar pairs.
    measures : sequence of str or Measure, optional
        The measures to compare. Default: all measures that need only the rows.
    n_examples : int, default 0
        Number of example rows, as in :func:`fastcos.compare`. They are drawn at random from each
        label, or are the rows in the most pairs.
    progress : callable, optional
        Called as progress(done, total) with numbers of measures.
    random_state : int, default 0
        Seed of the choice of queries and of the bootstrap.
    executor : callable, optional
        As in :func:`fastcos.compare`.

    Returns
    -------
    Leaderboard
        The measures by descending score, with a recommendation.

    Raises
    ------
    ValueError
        An argument breaks its rule.

    Examples
    --------
    >>> import numpy as np
    >>> import fastcos
    >>> random = np.random.default_rng(0)
    >>> vectors = random.standard_normal((200, 8)) * [9, 1, 1, 1, 1, 1, 1, 1]
    >>> pairs = random.integers(0, 200, (400, 2))
    >>> ratings = (vectors[pairs[:, 0], 1:] * vectors[pairs[:, 1], 1:]).sum(axis=1)
    >>> board = fastcos.compare_vectors(
    ...     vectors, pairs=(pairs, ratings), measures=["zscore_cosine"]
    ... )
    >>> str(board.recommended)
    'zscore_cosine'
    """
    rows = memmap.as_mapped_rows("vectors", vectors)
    if fits := items_at_once(rows) == len(rows):
        rows = memmap.read_rows("vectors", rows, 0, len(rows))
    validation.check_progress(progress)
    validation.check_callable("executor", executor)
    random_state = validation.as_count("random_state", random_state, low=0)
    n_examples = validation.as_count("n_examples", n_examples, low=0)
    if (labels is None) == (pairs is None):
        got = "neither" if labels is None else "both"
        raise ValueError(f"one of labels and pairs must be given, got {got}")
    seeds = np.random.SeedSequence(random_state).spawn(3)
    sampling, resampling, drawing = map(np.random.default_rng, seeds)
    codes = None
    if pairs is None:
        codes = validation.as_partial_labels("labels", labels, len(rows))
        present = np.concatenate([block.any(axis=1) for _, block in blocks_of(rows)])
        task: Task = LabelTask(codes, present, sampling, names=label_names(labels))
        order = drawing.permutation(len(rows))
    else:
        values = validation.as_list("pairs", pairs)
        if len(values) != 2:
            raise ValueError(f"pairs must be (pairs, ratings), got {len(values)} values")
        numbers, ratings = values
        numbers = as_pairs("pairs", numbers, len(rows))
        ratings = validation.as_vector("ratings", ratings, len(numbers))
        check_varied("ratings", ratings)
        task = PairTask(numbers, ratings)
        order = np.bincount(numbers.ravel(), minlength=len(rows))
    examples = choose_examples(codes, order, n_examples) if n_examples else None
    embeddings = Embeddings(rows)
    chosen = measures is not None
    candidates, left_out = select_candidates(measures, embeddings)
    if not fits:
        supported = [
            candidate for candidate in candidates if capabilities(candidate.make(embeddings)).blocks
        ]
        unsupported = [candidate.measure for candidate in candidates if candidate not in supported]
        if chosen and unsupported:
            rule = "have the capability 'blocks' for rows on disk that do not fit working_memory"
            raise ValueError(f"measures must {rule}, got {validation.format_value(unsupported[0])}")
        candidates, left_out = supported, left_out | dict.fromkeys(unsupported, "rows in memory")
    results = []
    evaluator = CandidateEvaluator(task, {"": embeddings}.__getitem__, examples)
    for result in zip(candidates, executor(evaluator, candidates), strict=True):
        results.append(result)
        if progress is not None:
            progress(len(results), len(candidates))
    return rank_results(task, results, left_out, resampling, chosen=chosen, examples=examples)
