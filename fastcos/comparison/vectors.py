"""The function ``compare_vectors``, which recommends a similarity measure for vectors."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.comparison.candidates import (
    DEFAULT,
    Candidate,
    Embeddings,
    select_candidates,
)
from fastcos.comparison.examples import choose_examples
from fastcos.comparison.leaderboard import Leaderboard
from fastcos.comparison.runner import CandidateEvaluator, Executor, Task, rank_results, run_here
from fastcos.comparison.scoring import items_at_once
from fastcos.comparison.tasks.held_out import HeldOutTask
from fastcos.comparison.tasks.label_recovery import LabelTask
from fastcos.comparison.tasks.rated_pairs import PairTask
from fastcos.linalg.csr import as_interactions
from fastcos.metrics.label_permutation import label_names
from fastcos.parallel import Progress, memmap
from fastcos.similarity import Measure
from fastcos.similarity.base import capabilities
from fastcos.similarity.linear import as_pairs, check_varied
from fastcos.similarity.moments import blocks_of
from fastcos.validation import Floats, Integers


def compare_vectors(
    vectors: Any,
    labels: Any = None,
    *,
    pairs: Any = None,
    held_out: Any = None,
    interactions: Any = None,
    users: Any = None,
    measures: Sequence[str | Measure] | str | None = None,
    n_examples: int = 0,
    progress: Progress | None = None,
    random_state: int = 0,
    executor: Executor = run_here,
) -> Leaderboard:
    """Compare similarity measures for your vectors or for your model, and recommend one measure.

    With ``labels``, the task is to find rows with the same label, as in :func:`fastcos.compare`.

    With ``pairs``, the task is to agree with people's ratings of pairs. The score is Spearman's
    correlation between the values of a measure and the ratings. No measure is recommended unless
    Spearman's correlation of the best measure is significantly above 0.

    With ``held_out``, the task is to predict interactions that the model has not seen, as in
    :func:`fastcos.compare` without labels. This task evaluates both the recommendations of a model
    and the neighbour lists of its items. The model may be, for example, an ALS or BPR model of the
    library ``implicit``. The measure ``user_item_dot`` recommends the items for which the model
    predicts the highest scores. If a measure compares items with each other, each item that a user
    has seen votes for similar items. A measure is recommended only if the best measure scores
    significantly higher than a trivial answer, which recommends the most popular items.

    The lead of the best measure over the cosine is cross-fitted, as in :func:`fastcos.compare`.

    Memory-mapped vectors (``np.load(path, mmap_mode="r")``) that do not fit into the setting
    ``working_memory`` are read in blocks, with the same results. Measures whose method ``fit``
    searches for neighbours require that the rows are in memory. If the vectors do not fit into
    memory, these measures are left out by default, and the function raises an error if you choose
    one of them. Let N be 1,000 x rows x 32 bytes / working_memory. With labels, the whole file of
    the vectors is read about N times for each measure. For ``norm_angle_distance``, N is eight
    times as large.

    Parameters
    ----------
    vectors : array_like (p, d), float32 or float64, or Factors
        One row per item. You can also pass the Factors that :func:`fastcos.from_model` and
        :func:`fastcos.io.read_factors` return; they contain the items, the users and the biases of
        a model.
    labels : sequence (p,) of int or str, optional
        One label per row; None leaves a row out. Pass exactly one of ``labels``, ``pairs`` and
        ``held_out``.
    pairs : (pairs, ratings), optional
        The array ``pairs`` (m, 2) contains the row numbers of m pairs. The array ``ratings`` (m,)
        contains one rating per pair; more similar pairs have larger ratings.
    held_out : sparse matrix or array_like (n, p), optional
        Interactions of n users with p items; the model was not trained on these interactions. Every
        non-zero entry marks an item to predict; the value of the entry does not matter. At most
        5,000 users are evaluated.
    interactions : sparse matrix or array_like (n, p), optional
        The items that each user had seen before the held-out interactions; required with
        ``held_out``. These seen items vote for similar items, and are never recommended to the
        user.
    users : array_like (n, d), optional
        Embeddings of the users. The measure ``query_metric_cosine`` requires embeddings of the
        users. Measures that compare users with items, such as ``user_item_dot``, also require the
        users, and are evaluated only with ``held_out``.
    measures : sequence of str or Measure, or "default", optional
        The measures to compare, or "default" for twelve measures that rank the items in twelve
        different orders. If you omit ``measures``, the comparison includes all measures for which
        you have passed the required data.
    n_examples : int, default 0
        Number of example rows, as in :func:`fastcos.compare`. With ``labels``, the example rows are
        drawn at random from each label; with ``pairs``, the example rows are those that occur in
        the most pairs.
    progress : callable, optional
        Function that is called as progress(done, total), where both numbers count measures.
    random_state : int, default 0
        Seed for the bootstrap, and for choosing the queries, the evaluated users and the example
        rows.
    executor : callable, optional
        As in :func:`fastcos.compare`.

    Returns
    -------
    Leaderboard
        The measures by descending score, with a recommendation.

    Raises
    ------
    ValueError
        An argument is invalid.

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

    The next example evaluates a model on interactions on which the model was not trained:

    >>> X = fastcos.simulate_interactions(600, 80, random_state=0).X
    >>> train, test = X.copy(), X.copy()
    >>> is_held_out = random.random(X.nnz) < 0.2
    >>> train.data[is_held_out] = 0
    >>> test.data[~is_held_out] = 0
    >>> model = fastcos.LinearMF(10, regularization=10.0).fit(train)
    >>> board = fastcos.compare_vectors(
    ...     model.item_embeddings(), users=model.user_embeddings(train),
    ...     held_out=test, interactions=train, measures=["query_metric_cosine", "user_item_dot"],
    ... )
    >>> sorted(row.candidate.measure for row in board.rows)
    ['cosine', 'most popular items', 'query_metric_cosine', 'user_item_dot']
    """
    vectors, users, scoring = _parts_of_model(vectors, users)
    rows = memmap.as_mapped_rows("vectors", vectors)
    if fits_in_memory := items_at_once(rows) == len(rows):
        rows = memmap.read_rows("vectors", rows, 0, len(rows))
    validation.check_progress(progress)
    validation.check_callable("executor", executor)
    random_state = validation.as_count("random_state", random_state, low=0)
    n_examples = validation.as_count("n_examples", n_examples, low=0)
    tasks = {"labels": labels, "pairs": pairs, "held_out": held_out}
    names = [name for name, value in tasks.items() if value is not None]
    if len(names) != 1:
        got = " and ".join(names) or "none"
        raise ValueError(f"one of labels, pairs and held_out must be given, got {got}")
    if users is not None:
        users = validation.as_rows("users", users)
        validation.check_same_width("users", users, "vectors", rows)
    seeds = np.random.SeedSequence(random_state).spawn(3)
    task_random, bootstrap_random, example_random = map(np.random.default_rng, seeds)
    if held_out is None:
        validation.check_none("interactions", interactions, "without held_out")
    if held_out is not None:
        question = _held_out_question(interactions, held_out, len(rows), users, task_random)
    elif labels is not None:
        question = _label_question(labels, rows, task_random, example_random)
    else:
        question = _pair_question(pairs, len(rows))
    task, examples = question.task, None
    if n_examples:
        examples = choose_examples(question.codes, question.example_priority, n_examples)
    embeddings = Embeddings(rows, question.popularity, user_rows=users, scoring=scoring)
    are_chosen = measures not in (None, DEFAULT)
    with_users = users is not None and held_out is not None
    candidates, left_out = select_candidates(measures, embeddings, with_users=with_users)
    if not fits_in_memory:
        candidates, unsupported = _readable_in_blocks(candidates, embeddings, are_chosen=are_chosen)
        left_out |= dict.fromkeys(unsupported, "rows in memory")
    results = []
    evaluator = CandidateEvaluator(task, {"": embeddings}.__getitem__, examples)
    for result in zip(candidates, executor(evaluator, candidates), strict=True):
        results.append(result)
        if progress is not None:
            progress(len(results), len(candidates))
    return rank_results(
        task, results, left_out, bootstrap_random, are_chosen=are_chosen, examples=examples
    )


def _parts_of_model(vectors: Any, users: Any) -> tuple[Any, Any, Any]:
    """Split Factors into three results: the items, the users, and the ``ScoringEmbeddings``.

    The ``ScoringEmbeddings`` contain rows of users and items whose inner products are the scores of
    a model with biases. The third result is None if the model has no biases, because the scores of
    such a model are the inner products of its users and items. If `vectors` are not Factors, they
    are returned unchanged.
    """
    if not hasattr(vectors, "has_biases"):
        return vectors, users, None
    if vectors.users is None:
        return vectors.items, users, None
    validation.check_none("users", users, "for a model that holds its users")
    scoring = vectors.scoring_embeddings() if vectors.has_biases else None
    return vectors.items, vectors.users, scoring


class _Question(NamedTuple):
    """A task, with further data about the items.

    - `example_priority`: a number per item; items with larger numbers are preferred as examples.
    - `codes`: the label code of each item, or -1 for an item without a label.
    - `popularity`: the number of interactions of each item.
    """

    task: Task
    example_priority: Integers
    codes: Integers | None = None
    popularity: Floats | None = None


def _held_out_question(
    interactions: Any, held_out: Any, n_items: int, users: Any, task_random: np.random.Generator
) -> _Question:
    """Return the task of predicting held-out interactions of each user."""
    training_X, held_out_X = _as_held_out(interactions, held_out, n_items, users)
    counts = np.bincount(training_X.indices, minlength=n_items).astype(np.int64)
    task = HeldOutTask(training_X, held_out_X, task_random)
    return _Question(task, counts, popularity=counts.astype(np.float64))


def _label_question(
    labels: Any, rows: Any, task_random: np.random.Generator, example_random: np.random.Generator
) -> _Question:
    """Return the task of finding rows with the same label; example rows are drawn at random."""
    codes = validation.as_partial_labels("labels", labels, len(rows))
    is_present = np.concatenate([block.any(axis=1) for _, block in blocks_of(rows)])
    task = LabelTask(codes, is_present, task_random, names=label_names(labels))
    return _Question(task, example_random.permutation(len(rows)), codes)


def _pair_question(pairs: Any, n_items: int) -> _Question:
    """Return the task of predicting ratings of pairs.

    The examples are the rows that occur in the most pairs.
    """
    values = validation.as_list("pairs", pairs)
    if len(values) != 2:
        raise ValueError(
            "pairs must contain two values, namely the pairs of items and the ratings of these "
            f"pairs, got {len(values)} values"
        )
    numbers = as_pairs("pairs", values[0], n_items)
    ratings = validation.as_vector("ratings", values[1], len(numbers))
    check_varied("ratings", ratings)
    counts = np.bincount(numbers.ravel(), minlength=n_items).astype(np.int64)
    return _Question(PairTask(numbers, ratings), counts)


def _readable_in_blocks(
    candidates: Sequence[Candidate], embeddings: Embeddings, *, are_chosen: bool
) -> tuple[list[Candidate], list[str]]:
    """Return the candidates that accept rows on disk, and the names of the unsupported measures.

    If the caller has chosen the measures (`are_chosen`), the function raises an error for a measure
    that does not accept rows on disk.
    """
    supported = [
        candidate for candidate in candidates if capabilities(candidate.make(embeddings)).blocks
    ]
    unsupported = [candidate.measure for candidate in candidates if candidate not in supported]
    if are_chosen and unsupported:
        got = validation.format_value(unsupported[0])
        raise ValueError(
            f"measures must have the capability 'blocks', got {got}. Rows on disk that are larger "
            "than working_memory are read in blocks"
        )
    return supported, unsupported


def _as_held_out(interactions: Any, held_out: Any, n_items: int, users: Any) -> tuple[Any, Any]:
    """Return the interactions and the held-out interactions as validated matrices (n, p)."""
    held_out_X = as_interactions("held_out", held_out)
    n_users = held_out_X.shape[0] if users is None else len(users)
    validation.check_shape("held_out", held_out_X.shape, (n_users, n_items))
    if interactions is None:
        raise ValueError("interactions must be given if held_out is given, got None")
    training_X = as_interactions("interactions", interactions)
    validation.check_shape("interactions", training_X.shape, held_out_X.shape)
    n_eligible = int(np.count_nonzero(np.diff(held_out_X.indptr)))
    validation.check_enough("held_out", n_eligible, 2, "users with interactions")
    return training_X, held_out_X
