"""The directory ``out`` to which a search writes results, so that the search can be resumed."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.parallel import memmap
from fastcos.search import cost_model
from fastcos.search.options import ExecutionOptions
from fastcos.search.request import SearchRequest
from fastcos.search.sources import block_sizes
from fastcos.similarity.base import Measure
from fastcos.storage.checkpoint import Checkpoint, rows_per_block


def results_in_directory(
    X: Any, queries: Any, request: SearchRequest, measure: Measure, options: ExecutionOptions,
    out: Any,
) -> Checkpoint:  # fmt: skip
    """Return the checkpoint in the directory ``out``, to which batches of results are written.

    If the directory contains results of an interrupted run of the same search, this run is resumed.
    """
    n, k = len(queries), request.k
    is_mapped = memmap.is_on_disk(X) or memmap.is_on_disk(queries)
    costs = cost_model.COSTS
    min_batch = costs.min_written_queries_on_disk if is_mapped else costs.min_written_queries
    batch = rows_per_block(X.shape[0] * X.shape[1], minimum=min_batch)
    if is_mapped:
        batch = min(batch, block_sizes(X, queries, k, measure, options).queries)
    arrays = {"indices": ((n, k), np.int64), "scores": ((n, k), np.float32)}
    return Checkpoint(out, fingerprint(X, queries, request, measure), arrays, batch)


def fingerprint(X: Any, queries: Any, request: SearchRequest, measure: Measure) -> dict[str, Any]:
    """Return JSON values that identify everything on which the result of a search depends."""
    # The hash that joblib computes depends on every bit of the arrays of a measure. joblib is
    # imported only here, because its import takes 0.2 s.
    import joblib

    return {
        "queries": memmap.fingerprint(queries),
        "items": "the queries" if queries is X else memmap.fingerprint(X),
        "k": request.k,
        "measure": [measure.name, joblib.hash(vars(measure))],
        "permitted": _fingerprints(request.allowed_positions, *(request.lists or ())),
        "exclusions": _fingerprints(*(request.exclusions or ())),
        "min_score": request.min_score,
    }


def _fingerprints(*arrays: npt.NDArray[Any] | None) -> list[Any]:
    return [array if array is None else memmap.fingerprint(array) for array in arrays]
