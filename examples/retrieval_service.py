"""A retrieval service: exact top-k over HTTP, with health, readiness and reload without downtime.

    python examples/retrieval_service.py make /tmp/index --items 100000 --dimensions 64
    INDEX=/tmp/index uvicorn --app-dir examples retrieval_service:app
    curl 'localhost:8000/items/7/similar?k=3'
    python examples/retrieval_service.py add /tmp/index --items 1000    # another process
    curl -X POST localhost:8000/refresh

Needs fastapi and an ASGI server. The folder holds one folder per version (``index``, ``items.npy``,
``ids.npy``) and the link ``current``, which ``publish`` moves only when a version is complete.
"""

import argparse
import os
import tempfile
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from fastapi import FastAPI, HTTPException, Query, Response
from pydantic import BaseModel, Field

import fastcos

MAX_K = 100
# multiply-adds of a search up to which two threads are no faster than one: 1 to 4 ms
SMALL = 2**24


class Request:
    """Queries of one request, and its answer."""

    def __init__(self, vectors: np.ndarray, k: int) -> None:
        self.vectors = vectors
        self.k = k
        self.answer: list[list[dict[str, object]]] | None = None
        self.error: Exception | None = None


class Batches:
    """Requests that wait at the same time are answered by one search.

    A search of 64 queries takes four times as long as one, not 64 times: it reads the items once.
    One thread at a time searches, for all that wait; while it does, others gather for the next
    search. A request that comes alone waits for nobody.
    """

    def __init__(self, index: fastcos.SimilarityIndex) -> None:
        self.index = index
        self._waiting: deque[Request] = deque()
        self._one_search = threading.Lock()

    def search(self, vectors: np.ndarray, k: int) -> list[list[dict[str, object]]]:
        """Return ids and scores of the k nearest items of each vector, best first."""
        request = Request(vectors, k)
        self._waiting.append(request)
        with self._one_search:
            # whoever had the lock before may have answered this request too
            if request.answer is None and request.error is None:
                self._answer([self._waiting.popleft() for _ in range(len(self._waiting))])
        if request.error is not None:
            raise request.error
        assert request.answer is not None
        return request.answer

    def _answer(self, batch: list[Request]) -> None:
        try:
            vectors = np.concatenate([request.vectors for request in batch])
            work = vectors.size * self.index.n_items_
            found = self.index.search(
                vectors, max(request.k for request in batch), n_threads=1 if work < SMALL else None
            )
            ids, scores = found.ids.tolist(), found.scores.tolist()
        except Exception as error:
            if len(batch) > 1:  # the fault of one request is not that of the others
                for request in batch:
                    self._answer([request])
            else:
                batch[0].error = error
            return
        first = 0
        for request in batch:
            rows = slice(first, first + len(request.vectors))
            request.answer = [
                [
                    {"id": name, "score": score}
                    for name, score in zip(names[: request.k], values[: request.k], strict=True)
                    if name  # "" stands for no item
                ]
                for names, values in zip(ids[rows], scores[rows], strict=True)
            ]
            first = rows.stop


class Retrieval(NamedTuple):
    """One version of the index: readers hold it for the length of a request."""

    batches: Batches
    items: np.ndarray
    number_of: dict[str, int]


class Vectors(BaseModel):
    """Queries as the model embeds them."""

    vectors: list[list[float]]
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 10


def publish(folder: Path, items: np.ndarray, ids: np.ndarray) -> None:
    """Write a new version beside the old ones, then let ``current`` point to it."""
    folder.mkdir(parents=True, exist_ok=True)
    version = Path(tempfile.mkdtemp(prefix="version-", dir=folder))
    fastcos.SimilarityIndex().fit(items, ids).save(version / "index")
    np.save(version / "items.npy", items)
    np.save(version / "ids.npy", ids)
    link = folder / f"{version.name}.link"
    link.symlink_to(version.name)
    link.replace(folder / "current")  # atomic: readers see the old version or the new one


def extend(folder: Path, items: np.ndarray, ids: np.ndarray) -> None:
    """Add items to the current version, or replace those with these ids; writes only what is new.

    A service takes them up by ``POST /refresh``. They are found from then on; their neighbours are
    those of their vectors (``POST /search``), until the next ``publish``.
    """
    path = (folder / "current").resolve(strict=True) / "index"
    index = fastcos.SimilarityIndex.open(path)
    index.upsert(items, ids)
    index.save(path)  # atomic; refused if another writer saved meanwhile


def loaded(folder: Path) -> Retrieval:
    """Map the current version and search once, so that no request waits for anything."""
    version = (folder / "current").resolve(strict=True)
    index = fastcos.SimilarityIndex.open(version / "index")
    items = np.load(version / "items.npy", mmap_mode="r")
    ids = np.load(version / "ids.npy").tolist()
    index.search(items[:1], k=1, n_threads=1)
    return Retrieval(Batches(index), items, {name: number for number, name in enumerate(ids)})


def service(folder: Path) -> FastAPI:
    """Return the application that serves the folder."""
    current: list[Retrieval] = []  # empty until ready, then one
    one_reload = threading.Lock()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        current.append(loaded(folder))
        yield
        current.clear()

    app = FastAPI(title="retrieval", lifespan=lifespan)

    def served() -> Retrieval:
        if not current:
            raise HTTPException(503, "no index is loaded")
        return current[0]

    @app.get("/health")
    def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "alive"}

    @app.get("/ready")
    def ready(response: Response) -> dict[str, object]:
        """An index is loaded: send requests."""
        if not current:
            response.status_code = 503
            return {"status": "no index"}
        return {"status": "ready", "items": current[0].batches.index.n_items_}

    @app.get("/items/{name}/similar")
    def similar(
        name: str, k: Annotated[int, Query(ge=1, le=MAX_K)] = 10
    ) -> list[dict[str, object]]:
        """The k items most similar to an item, without itself."""
        version = served()
        number = version.number_of.get(name)
        if number is None:
            raise HTTPException(404, f"no item {name!r}")
        (found,) = version.batches.search(version.items[number : number + 1], k + 1)
        return [other for other in found if other["id"] != name][:k]

    @app.post("/search")
    def search(queries: Vectors) -> list[list[dict[str, object]]]:
        """The k items most similar to each vector."""
        version = served()
        try:
            vectors = np.asarray(queries.vectors, dtype=np.float32)
            return version.batches.search(vectors, queries.k)
        except ValueError as error:  # the message names argument, rule and what came
            raise HTTPException(422, str(error)) from None

    @app.post("/refresh")
    def refresh() -> dict[str, object]:
        """Take up what a writer saved to the current version."""
        version = served()
        with one_reload:
            try:
                is_new = version.batches.index.refresh()
            except (OSError, ValueError) as error:
                raise HTTPException(409, f"kept the old items: {error}") from None
        return {"new": is_new, "items": version.batches.index.n_items_}

    @app.post("/reload")
    def reload() -> dict[str, object]:
        """Load what the folder holds now; a folder that cannot be read changes nothing."""
        with one_reload:
            try:
                fresh = loaded(folder)
            except (OSError, ValueError) as error:
                raise HTTPException(409, f"kept the old index: {error}") from None
            current[:] = [fresh]  # requests under way hold the old one until they are done
        return {"status": "ready", "items": fresh.batches.index.n_items_}

    return app


def random_items(n_items: int, n_dimensions: int, seed: int) -> np.ndarray:
    """Return items in 100 clusters, to try the service with."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((100, n_dimensions))
    noise = rng.standard_normal((n_items, n_dimensions))
    items: np.ndarray = (centres[rng.integers(100, size=n_items)] + noise).astype(np.float32)
    return items


def make(folder: Path, n_items: int, n_dimensions: int, seed: int = 0) -> None:
    """Publish an index of random items."""
    publish(folder, random_items(n_items, n_dimensions, seed), np.arange(n_items).astype(str))


def __getattr__(name: str) -> FastAPI:
    """Make ``app`` for a server, from the folder in the variable INDEX."""
    if name != "app":
        raise AttributeError(name)
    return service(Path(os.environ["INDEX"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write an index of random items, or add some.")
    parser.add_argument("command", choices=["make", "add"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=64)
    given = parser.parse_args()
    if given.command == "make":
        make(given.folder, given.items, given.dimensions)
    else:
        new = random_items(given.items, given.dimensions, seed=1)
        extend(given.folder, new, np.array([f"new-{number}" for number in range(given.items)]))
