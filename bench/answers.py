"""References in float64, errors for wrong answers, and peak memory, for every benchmark."""

import functools
import sys
import tracemalloc
from pathlib import Path

import numpy as np

# rows whose neighbours are compared with a reference
CHECKED_ROWS = 25


_states = {}


class WrongAnswer(AssertionError):
    """The operation to be timed returns a wrong answer."""


class Situation:
    """How asv samples every class of the suite.

    The placement of threads and pages differs between processes, so several are used. asv needs
    more than 6 samples per side to distinguish two commits.
    """

    processes = 4
    repeat = (10, 40, 1.0)
    warmup_time = 0.3


def once(setup):
    """Run setup once per process and parameters; asv calls it before every sample."""

    @functools.wraps(setup)
    def setup_once(self, *parameters):
        key = type(self), parameters
        if key not in _states:
            setup(self, *parameters)
            _states[key] = dict(vars(self))
        vars(self).update(_states[key])

    return setup_once


def at_most(limit, error):
    """Return the error of an answer; raise WrongAnswer if it is above the limit."""
    if not error <= limit:
        raise WrongAnswer(f"error must be at most {limit:g}, got {error:g}")
    return float(error)


def peak_bytes(operation):
    """Return the peak bytes of an operation without its inputs: NumPy arrays, Python objects."""
    memory = sys.modules.get("fastcos.linalg.buffer_pool")
    if memory:  # older versions have none
        memory.release()
    tracemalloc.start()
    try:
        operation()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def scores_of(query, items, measure):
    """Return the float64 scores of one query."""
    items, query = items.astype(np.float64), query.astype(np.float64)
    products = items @ query
    if measure == "dot":
        return products
    if measure == "neg_euclidean":
        return -np.sqrt(((items - query) ** 2).sum(axis=1))
    lengths = np.linalg.norm(items, axis=1) * np.linalg.norm(query)
    return np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)


def wrong_rows(indices, queries, items=None, measure="cosine"):
    """Return how many of CHECKED_ROWS queries lack their exact neighbours in order."""
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
    """Return the largest error as a share of the largest true value."""
    truth = np.asarray(truth, np.float64)
    return float(np.abs(np.asarray(found) - truth).max() / max(np.abs(truth).max(), 1e-300))


def resident_mib(field):
    """Return VmRSS, or the peak VmHWM, of this process in MiB (Linux)."""
    # ru_maxrss would include the parent's peak before exec
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) / 1024
