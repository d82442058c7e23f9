"""What every benchmark needs: the truth in float64, no time for a wrong answer, peak bytes."""

import functools
import sys
import tracemalloc

import numpy as np

# rows whose neighbours are looked up again, one by one
CHECKED_ROWS = 25


_states = {}


class WrongAnswer(AssertionError):
    """The operation to be timed does not do what it should."""


class Situation:
    """How asv samples every class of the suite.

    A process is one sample of where threads and pages happen to lie, so several are taken; and asv
    needs more than 6 samples a side to tell two commits apart.
    """

    processes = 4
    repeat = (10, 40, 1.0)
    warmup_time = 0.3


def once(setup):
    """Let setup run once a process and parameters: asv calls it before every sample."""

    @functools.wraps(setup)
    def setup_once(self, *parameters):
        key = type(self), parameters
        if key not in _states:
            setup(self, *parameters)
            _states[key] = dict(vars(self))
        vars(self).update(_states[key])

    return setup_once


def at_most(limit, error):
    """Return the error of an answer; above the limit there is nothing to be timed."""
    if not error <= limit:
        raise WrongAnswer(f"off by {error:g}, {limit:g} is allowed")
    return float(error)


def peak_bytes(operation):
    """Bytes that operation held at once, inputs apart: NumPy's arrays and Python's objects."""
    memory = sys.modules.get("fastcos.linalg.buffer_pool")
    if memory:  # not in older versions
        memory.release()
    tracemalloc.start()
    try:
        operation()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def scores_of(query, items, measure):
    """The float64 scores of one query."""
    items, query = items.astype(np.float64), query.astype(np.float64)
    products = items @ query
    if measure == "dot":
        return products
    if measure == "neg_euclidean":
        return -np.sqrt(((items - query) ** 2).sum(axis=1))
    lengths = np.linalg.norm(items, axis=1) * np.linalg.norm(query)
    return np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)


def wrong_rows(indices, queries, items=None, measure="cosine"):
    """How many of CHECKED_ROWS queries do not have their exact neighbours, in order."""
    own, wrong = items is None, 0
    items = queries if own else items
    for row in np.linspace(0, len(queries) - 1, min(CHECKED_ROWS, len(queries))).astype(int):
        scores = scores_of(queries[row], items, measure)
        if own:
            scores[row] = -np.inf
        wrong += not np.array_equal(
            np.argsort(-scores, kind="stable")[: indices.shape[1]], indices[row]
        )
    return wrong


def relative_error(found, truth):
    """Largest deviation, as a share of the largest true value."""
    truth = np.asarray(truth, np.float64)
    return float(np.abs(np.asarray(found) - truth).max() / max(np.abs(truth).max(), 1e-300))
