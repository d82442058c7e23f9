"""compare_vectors: which similarity to use for given vectors, by labels or by people's scores."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.comparison.entrants import entrants, readable_in_blocks
from fastcos.comparison.leaderboard import Standings
from fastcos.comparison.runner import Asker, Entries, answer_of
from fastcos.comparison.tasks.agreement import PairQuestion
from fastcos.comparison.tasks.recovery import LabelQuestion
from fastcos.measures import Measure, checks
from fastcos.measures.row_transforms import blocks_of
from fastcos.parallel import Progress
from fastcos.storage import memmap


class RatedPairs(NamedTuple):
    """Pairs of rows, and how alike people find them.

    Attributes
    ----------
    pairs : array_like (m, 2), int
        Row numbers.
    ratings : array_like (m,)
        On any scale.
    """

    pairs: Any
    ratings: Any


def compare_vectors(
    vectors: Any,
    labels: Any = None,
    *,
    pairs: Any = None,
    measures: Sequence[str | Measure] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Standings:
    """Which similarity to use for given vectors: every measure that needs nothing else.

    With labels it is asked how rows find others of their label, as in :func:`fastcos.compare`.
    With pairs it is how the scores follow people's: Spearman's correlation, which must exceed 0.
    The lead of the best measure over the plain cosine is that of a choice on one half of the rows
    or pairs which is judged on the other half, and the reverse.

    Memory-mapped vectors (``np.load(path, mmap_mode="r")``) are read in blocks that fit the setting
    ``working_memory``; the standings have the same numbers. Measures that look for neighbours while
    they are fitted need the rows in memory, and are left out, or refused where they were chosen.
    With labels a measure reads the file about 1,000 x rows x 32 bytes / working_memory times.

    Parameters
    ----------
    vectors : array_like (n, d), float32 or float64
        One row per item.
    labels : sequence (n,) of int or str, optional
        One label per row; None for a row to be left out. Give labels or pairs.
    pairs : (pairs, ratings), optional
        ``pairs`` (m, 2) row numbers and ``ratings`` (m,), larger for more alike.
    measures : sequence of str or Measure, optional
        Default: all that need no more than the rows.
    seed : int, default 0
        For what is asked and for the bootstrap.
    progress : callable, optional
        progress(done, total), in numbers of measures.

    Returns
    -------
    Standings

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
    >>> found = fastcos.compare_vectors(
    ...     vectors, pairs=(pairs, ratings), measures=["zscore_cosine"]
    ... )
    >>> str(found.recommended)
    'zscore_cosine'
    """
    rows = memmap.as_mapped_rows("vectors", vectors)
    seed = validation.as_count("seed", seed, low=0)
    checks.as_one_of("labels", labels, "pairs", pairs)
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2)]
    if pairs is None:
        codes = validation.as_partial_labels("labels", labels, len(rows))
        present = np.concatenate([some.any(axis=1) for _, some in blocks_of(rows)])
        asker: Asker = LabelQuestion(codes, present, streams[0])
    else:
        asker = PairQuestion(*_as_rated("pairs", pairs, len(rows)))
    embeddings = Embeddings(rows)
    taking_part, left_out = entrants(measures, embeddings)
    if memmap.is_memmap(rows):
        taking_part, others = readable_in_blocks(
            taking_part, embeddings, chosen=measures is not None
        )
        left_out |= others
    entries = Entries(asker, left_out, chosen=measures is not None)
    for done, entrant in enumerate(taking_part):
        entries.take(Candidate(entrant.label), answer_of(asker, entrant, embeddings))
        if progress is not None:
            progress(done + 1, len(taking_part))
    return entries.standings(streams[1])


def _as_rated(name: str, given: Any, n: int) -> RatedPairs:
    rated = RatedPairs(*given)
    pairs = checks.as_pairs(name, rated.pairs)
    checks.as_numbers_below(name, pairs, n)
    ratings = validation.as_vector("ratings", rated.ratings, len(pairs))
    checks.as_varied("ratings", ratings)
    return RatedPairs(pairs, ratings)
