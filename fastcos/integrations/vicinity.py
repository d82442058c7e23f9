"""A backend for vicinity (``pip install vicinity``) that searches exactly with fastcos."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from vicinity.backends.base import AbstractBackend
from vicinity.backends.basic import BasicArgs, BasicVectorStore
from vicinity.datatypes import Backend, QueryResult
from vicinity.utils import Metric

from fastcos import validation
from fastcos.search import SimilarityIndex
from fastcos.search.distances import distances_of

_MEASURES = {Metric.COSINE: "cosine", Metric.EUCLIDEAN: "neg_euclidean"}


class FastcosBackend(BasicVectorStore, AbstractBackend[BasicArgs]):  # type: ignore[misc]
    """A backend for vicinity; it holds vectors in memory and searches them exactly.

    This backend returns the same distances as vicinity's basic backend, and writes the same files.
    ``Vicinity.load`` accepts the files of this backend, and creates a basic backend from them.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinity import Vicinity  # doctest: +SKIP
    >>> from fastcos.integrations.vicinity import FastcosBackend  # doctest: +SKIP
    >>> backend = FastcosBackend.from_vectors(np.eye(3, dtype=np.float32))  # doctest: +SKIP
    >>> Vicinity(["a", "b", "c"], backend).query(np.array([[0, 2.0, 1]]), k=1)  # doctest: +SKIP
    [[('b', 0.10557281970977783)]]
    """

    argument_class = BasicArgs

    def __init__(self, vectors: npt.NDArray[Any], arguments: BasicArgs) -> None:
        super().__init__(vectors=np.asarray(vectors), arguments=arguments)
        self._update_precomputed_data()

    @classmethod
    def from_vectors(
        cls, vectors: npt.NDArray[Any], metric: str | Metric = "cosine", **kwargs: Any
    ) -> "FastcosBackend":
        """Return a backend that holds these vectors; `metric` is "cosine" or "euclidean"."""
        parsed_metric = Metric.from_string(metric)
        if parsed_metric not in _MEASURES:
            names = ", ".join(metric.value for metric in _MEASURES)
            raise ValueError(f"metric must be one of {names}, got {parsed_metric.value!r}")
        return cls(vectors, BasicArgs(metric=parsed_metric))

    @property
    def backend_type(self) -> Backend:
        """``Backend.BASIC``, because the files have the format of vicinity's basic backend."""
        return Backend.BASIC

    def _update_precomputed_data(self) -> None:
        self._index = SimilarityIndex(_MEASURES[self.arguments.metric]).fit(self._vectors)

    def query(self, vectors: npt.NDArray[Any], k: int) -> QueryResult:
        """Return the row numbers and distances of the k vectors nearest to each query.

        The vectors are in the order of ascending distance.
        """
        rows = validation.as_rows("queries", vectors, or_vector=True)
        indices = self._index.search(rows, min(k, len(self))).indices
        distances = distances_of(self._index, rows, indices).astype(np.float32)
        return list(zip(indices, distances, strict=True))

    def threshold(self, vectors: npt.NDArray[Any], threshold: float, max_k: int) -> QueryResult:
        """Find the max_k nearest vectors; return those at a distance of at most `threshold`."""
        return [
            (numbers[distances <= threshold], distances[distances <= threshold])
            for numbers, distances in self.query(vectors, max_k)
        ]

    def save(self, path: Path) -> None:
        """Write the vectors and the arguments of the backend to a directory."""
        super().save(path)
        self.arguments.dump(path / "arguments.json")

    @classmethod
    def load(cls, path: Path) -> "FastcosBackend":
        """Return the backend that ``save`` has written to a directory."""
        return cls(cls._load_vectors(path), BasicArgs.load(path / "arguments.json"))
