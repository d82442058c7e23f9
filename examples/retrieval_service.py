"""A service that finds exact nearest neighbours over HTTP, with filters, changes and metrics.

    python examples/retrieval_service.py make /tmp/index --items 100000 --dimensions 64
    INDEX=/tmp/index uvicorn --app-dir examples retrieval_service:app
    curl 'localhost:8000/items/7/similar?k=3&exclude=12&exclude=40'
    curl -X POST localhost:8000/items -H 'content-type: application/json' \
         -d '{"ids": [7], "vectors": [[...]]}'
    fastcos index add /tmp/index/current/index today.parquet    # another process
    curl -X POST localhost:8000/refresh

The service requires fastapi and an ASGI server. The folder contains one index per version, and the
link ``current``. ``publish`` changes the link only after the new version is complete. With
REFRESH=5, the service looks every five seconds for changes that other processes have saved, and
loads them.

With MODEL=minilm@2, the service starts only if the index belongs to that model. While the service
runs, it does not replace an index by the index of another model: it continues to serve the old
items. It reports the refused index in the log, in the answers of /refresh, /reload and /ready, and
in /metrics.

With SLOW=0.05, the log explains each search that takes more than 50 ms. For a slow search within
groups, the log contains the duration but no explanation, because the duration depends on the sizes
of the groups.
"""

import argparse
import os
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
from fastapi import FastAPI, HTTPException, Query, Response
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import fastcos

Id: TypeAlias = int | str
Hits: TypeAlias = list[dict[str, object]]

MAX_K = 100
# A search with fewer multiply-adds than this takes 1 to 4 ms. It uses only one thread, because two
# threads are not faster.
SMALL = 2**24
# A search that takes longer than this number of seconds is explained in the log.
SLOW = float(os.environ.get("SLOW", "inf"))
# The upper ends of the bins of the latency histogram, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
# /metrics contains these quantiles of the durations of the latest requests, for users without
# Prometheus.
QUANTILES, N_LATEST = (0.5, 0.99), 1000


class Request:
    """The queries and filters of one request, and its answer or its error."""

    def __init__(
        self,
        vectors: np.ndarray,
        k: int,
        exclude: Sequence[Sequence[Id]] | None = None,
        allowed: Sequence[Id] | None = None,
        groups: Sequence[Id] | None = None,
    ) -> None:
        self.vectors, self.k = vectors, k
        self.exclude, self.allowed, self.groups = exclude, allowed, groups
        self.answer: list[Hits] | None = None
        self.error: Exception | None = None


class Batches:
    """Collects the requests that are waiting, and answers all of them by one search.

    Among 200,000 rows of 128 columns, a search for 64 queries takes only about seven times as long
    as a search for one query, because it reads the items once. Only one thread searches at a time,
    and it searches for all waiting requests. Requests that arrive meanwhile wait for the next
    search. A lone
    request is served immediately. A request with `allowed` is searched by itself, and all requests
    with `groups` are searched together.
    """

    def __init__(self, index: fastcos.SimilarityIndex, path: Path | None = None) -> None:
        self.index, self.path = index, path
        self._waiting: deque[Request] = deque()
        self._one_search = threading.Lock()

    def search(
        self,
        vectors: np.ndarray,
        k: int,
        exclude: Sequence[Sequence[Id]] | None = None,
        allowed: Sequence[Id] | None = None,
        groups: Sequence[Id] | None = None,
    ) -> list[Hits]:
        """Return ids and scores of the k nearest items of each vector, best first."""
        request = Request(vectors, k, exclude, allowed, groups)
        self._waiting.append(request)
        with self._one_search:
            # The thread that held the lock before may have answered this request as well.
            if request.answer is None and request.error is None:
                waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
                together = [one for one in waiting if one.allowed is None]
                self._answer([one for one in together if one.groups is None])
                self._answer([one for one in together if one.groups is not None])
                for one in waiting:
                    if one.allowed is not None:
                        self._answer([one])
        if request.error is not None:
            raise request.error
        assert request.answer is not None
        return request.answer

    def _answer(self, batch: list[Request]) -> None:
        if not batch:
            return
        try:
            vectors = np.concatenate([request.vectors for request in batch])
            filters: dict[str, object] = {}
            if any(request.exclude for request in batch):
                filters["exclude_ids"] = [
                    ids for one in batch for ids in (one.exclude or [()] * len(one.vectors))
                ]
            if batch[0].allowed is not None:
                filters["allowed_ids"] = batch[0].allowed
            if batch[0].groups is not None:
                filters["groups"] = [group for one in batch for group in one.groups or ()]
            work = vectors.size * self.index.n_items_
            n_threads = 1 if work < SMALL else None
            k = max(request.k for request in batch)
            started = time.perf_counter()
            found = self.index.search(vectors, k, n_threads=n_threads, **filters)
            seconds = time.perf_counter() - started
            if seconds > SLOW:
                reasons = "within groups: see the sizes of the groups"
                if batch[0].groups is None:
                    reasons = str(self.index.explain(len(vectors), k, n_threads=n_threads))
                print(f"slow: {seconds:.3f} s for {len(vectors)} queries\n{reasons}", flush=True)
            ids, scores = found.ids.tolist(), found.scores.tolist()
        except Exception as error:
            if len(batch) > 1:  # an invalid request must not make the other requests fail
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
                    if name not in ("", -1)  # these ids stand for no item
                ]
                for names, values in zip(ids[rows], scores[rows], strict=True)
            ]
            first = rows.stop


class Metrics:
    """Counts of requests and their durations, in the format of Prometheus."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()
        self._latest: deque[float] = deque(maxlen=N_LATEST)
        self._buckets = np.zeros(len(BUCKETS) + 1, np.int64)
        self._seconds = 0.0
        self._lock = threading.Lock()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count one request."""
        with self._lock:
            self._counts[path, status] += 1
            self._buckets[np.searchsorted(BUCKETS, seconds)] += 1
            self._seconds += seconds
            self._latest.append(seconds)

    def text(self, n_items: int, *, is_stale: bool) -> str:
        """Return the metrics in the text format of Prometheus."""
        with self._lock:
            counts, buckets, seconds = dict(self._counts), self._buckets.cumsum(), self._seconds
            latest = np.array(self._latest or [0.0])
        lines = ["# TYPE fastcos_requests_total counter"]
        lines += [
            f'fastcos_requests_total{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(counts.items())
        ]
        lines.append("# TYPE fastcos_request_seconds histogram")
        for edge, count in zip((*BUCKETS, "+Inf"), buckets.tolist(), strict=True):
            lines.append(f'fastcos_request_seconds_bucket{{le="{edge}"}} {count}')
        lines += [
            f"fastcos_request_seconds_sum {seconds:.6f}",
            f"fastcos_request_seconds_count {buckets[-1]}",
            "# TYPE fastcos_latest_request_seconds gauge",
            *(
                f'fastcos_latest_request_seconds{{quantile="{share}"}} '
                f"{np.quantile(latest, share):.6f}"
                for share in QUANTILES
            ),
            "# TYPE fastcos_items gauge",
            f"fastcos_items {n_items}",
            "# TYPE fastcos_stale gauge",
            f"fastcos_stale {int(is_stale)}",
        ]
        return "\n".join(lines) + "\n"


class Measured:
    """Middleware that adds each request to the metrics, under its route instead of its path."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, and count its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            path = getattr(scope.get("route"), "path", "unknown")
            self._metrics.add(path, status, time.perf_counter() - started)


class Vectors(BaseModel):
    """Body of POST /search.

    vectors: the query vectors.
    exclude: for each query, ids that it must not find.
    allowed: the only ids that the queries can find.
    groups: the group of each query.
    model: the name of the model that made the vectors. If the index belongs to another model, the
        status of the answer is 409.
    """

    vectors: list[list[float]]
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 10
    exclude: list[list[Id]] | None = None
    allowed: list[Id] | None = None
    groups: list[Id] | None = None
    model: str | None = None


class Similar(BaseModel):
    """Body of POST /similar: the ids of the items, and the same filters as in Vectors."""

    ids: list[Id]
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 10
    exclude: list[list[Id]] | None = None
    allowed: list[Id] | None = None
    groups: list[Id] | None = None


class Items(BaseModel):
    """Body of POST /items: items to add, or to replace if the index contains their ids.

    groups: the group of each item, if the index has groups.
    """

    ids: list[Id]
    vectors: list[list[float]]
    groups: list[Id] | None = None


class Gone(BaseModel):
    """Body of DELETE /items: the ids of the items to remove."""

    ids: list[Id]


def publish(
    folder: Path,
    items: np.ndarray,
    ids: np.ndarray,
    model: str | None = None,
    *,
    measure: str = "cosine",
    groups: np.ndarray | None = None,
) -> None:
    """Write a new version of the index into the folder, and then set the link ``current`` to it.

    measure: use "dot" if the queries are vectors of users. groups: the group of each item, such as
    its shop or its category.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The user who runs the service must be able to read this folder. If tempfile created the
    # folder, only its owner could read it.
    version = folder / f"version-{uuid.uuid4().hex}"
    version.mkdir()
    index = fastcos.SimilarityIndex(measure, model=model).fit(items, ids, groups=groups)
    index.save(version / "index")
    link = folder / f"{version.name}.link"
    link.symlink_to(version.name)
    link.replace(folder / "current")  # atomic: a reader sees either the old version or the new one


def current_index(folder: Path) -> Path:
    """Return the directory of the index of the current version, for ``fastcos index``."""
    return (folder / "current").resolve(strict=True) / "index"


def loaded(folder: Path, model: str | None = None) -> Batches:
    """Open the current version, and search once, so that the first request is not slow.

    Raise an error if the index belongs to another model.
    """
    path = current_index(folder)
    index = fastcos.SimilarityIndex.open(path, model=model)
    index.search(np.ones(index.n_features_in_, np.float32), k=1, n_threads=1)
    return Batches(index, path)


def service(folder: Path, refresh_seconds: float = 0.0, model: str | None = None) -> FastAPI:
    """Return the application that serves the folder; its index must belong to the model."""
    current: list[Batches] = []  # empty until the service is ready, then one element
    refused: list[str] = []  # the reason why the index of the folder is not served, or empty
    one_writer, metrics, stopped = threading.Lock(), Metrics(), threading.Event()

    def refreshed() -> bool:
        """Load the changes that were saved; return whether there were any.

        If the changes cannot be loaded, the old items remain in use, and /ready reports the error.
        """
        with one_writer:
            try:
                is_new = served().index.refresh()
            except (OSError, ValueError) as error:
                refused[:] = [str(error)]
                raise
            refused.clear()
            return is_new

    def load_anew() -> None:
        """Load the current version; its model and number of columns must not have changed."""
        new = loaded(folder, current[0].index.model if current else model)
        width = new.index.n_features_in_
        if current and width != (before := current[0].index.n_features_in_):
            raise ValueError(f"the index must have {before} columns as the old one, got {width}")
        current[:] = [new]  # running requests still use the old index
        refused.clear()

    def keep_fresh() -> None:
        while not stopped.wait(refresh_seconds):
            before = refused.copy()
            try:
                refreshed()
            except (OSError, ValueError) as error:  # the service continues to serve the old items
                if [str(error)] != before:  # report it once, not every few seconds
                    print(f"kept the old items: {error}", flush=True)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        current.append(loaded(folder, model))
        refreshing = threading.Thread(target=keep_fresh, daemon=True)
        if refresh_seconds:
            refreshing.start()
        yield
        stopped.set()
        if refresh_seconds:  # a refresh that is running still needs the index
            refreshing.join()
        current.clear()

    app = FastAPI(title="retrieval", lifespan=lifespan)
    app.add_middleware(Measured, metrics=metrics)

    def served() -> Batches:
        if not current:
            raise HTTPException(503, "no index is loaded")
        return current[0]

    def id_of(text: Id) -> Id:
        """Convert an id to a number if the ids of the index are numbers."""
        ids = served().index.ids_of([-1])
        try:
            return int(text) if ids.dtype.kind == "i" else str(text)
        except ValueError:
            return text  # the index cannot contain this id, so the status becomes 404

    def neighbors(
        ids: Sequence[Id],
        k: int,
        exclude: list[list[Id]] | None,
        allowed: list[Id] | None,
        groups: list[Id] | None,
    ) -> list[Hits]:
        """Return the k nearest items of each item, leaving out the item itself.

        If the index does not contain an item, the status of the answer is 404.
        """
        batches, names = served(), [id_of(one) for one in ids]
        try:
            vectors = batches.index.vectors_of(names)
        except (TypeError, ValueError):
            gone = next((one for one in names if one not in batches.index), names)
            raise HTTPException(404, f"no item {gone!r}") from None
        others = exclude or [[]] * len(names)
        if len(others) != len(names):
            raise HTTPException(422, f"exclude must have a list for each of {len(names)} ids")
        # An item must not be returned as its own neighbour. If nothing else is excluded, finding
        # k + 1 neighbours and dropping the item itself is faster than excluding the item from the
        # search.
        if not any(others) and allowed is None and groups is None:
            answers = batches.search(vectors, k + 1)
            pairs = zip(names, answers, strict=True)
            return [[hit for hit in hits if hit["id"] != own][:k] for own, hits in pairs]
        bought = [[own, *map(id_of, one)] for own, one in zip(names, others, strict=True)]
        return searched(vectors, k, bought, allowed, groups)

    def searched(
        vectors: np.ndarray,
        k: int,
        exclude: list[list[Id]] | None,
        allowed: list[Id] | None,
        groups: list[Id] | None,
    ) -> list[Hits]:
        try:
            return served().search(
                vectors,
                k,
                None if exclude is None else [[id_of(one) for one in ids] for ids in exclude],
                None if allowed is None else [id_of(one) for one in allowed],
                groups,
            )
        except (
            TypeError,
            ValueError,
        ) as error:  # the client receives the message
            raise HTTPException(422, str(error)) from None

    def changed(change: Callable[[fastcos.SimilarityIndex], object]) -> dict[str, object]:
        """Change the index and save it, after loading the changes of other processes."""
        with one_writer:
            batches = served()
            index, path = batches.index, batches.path
            try:
                if path != current_index(folder):
                    raise ValueError("a newer version was published; POST /reload loads it")
                index.refresh()
            except (OSError, ValueError) as error:  # for example, an index of another model
                refused[:] = [str(error)]
                raise HTTPException(409, f"nothing was changed: {error}") from None
            try:
                change(index)
            except (TypeError, ValueError) as error:
                raise HTTPException(422, str(error)) from None
            try:
                index.save(path)
            except (
                OSError,
                ValueError,
            ) as error:  # for example, the disk is full, or another process was faster
                reopened = fastcos.SimilarityIndex.open(path, model=index.model)
                current[:] = [Batches(reopened, path)]
                raise HTTPException(409, f"nothing was changed: {error}") from None
            return {"items": index.n_items_}

    @app.get("/health")
    def health() -> dict[str, str]:
        """Answer if the process runs."""
        return {"status": "alive"}

    @app.get("/ready")
    def ready(response: Response) -> dict[str, object]:
        """Answer with status 200 if an index is loaded, and with 503 otherwise."""
        if not current:
            response.status_code = 503
            return {"status": "no index"}
        index = current[0].index
        answer: dict[str, object] = {"status": "ready", "items": index.n_items_}
        if index.model is not None:
            answer["model"] = index.model
        if refused:
            answer["kept_the_old_items"] = refused[0]
        return answer

    @app.get("/metrics")
    def metrics_text() -> Response:
        """Return the metrics of this process for Prometheus."""
        n_items = current[0].index.n_items_ if current else 0
        return Response(
            metrics.text(n_items, is_stale=bool(refused)), media_type="text/plain; version=0.0.4"
        )

    @app.get("/items/{name:path}/similar")  # an id may contain slashes
    def similar(
        name: str,
        k: Annotated[int, Query(ge=1, le=MAX_K)] = 10,
        exclude: Annotated[list[str] | None, Query()] = None,
        group: str | None = None,
    ) -> Hits:
        """Return the k items most similar to an item, leaving out this item and excluded items."""
        without = None if exclude is None else [list(exclude)]
        return neighbors([name], k, without, None, None if group is None else [group])[0]

    @app.post("/similar")
    def similar_of_many(items: Similar) -> list[Hits]:
        """Return the k items most similar to each of several items."""
        if not items.ids:
            return []
        return neighbors(items.ids, items.k, items.exclude, items.allowed, items.groups)

    @app.post("/search")
    def search(queries: Vectors) -> list[Hits]:
        """Return the k items most similar to each vector."""
        if not queries.vectors:
            return []
        try:
            vectors = np.asarray(queries.vectors, dtype=np.float32)
        except ValueError:
            raise HTTPException(422, "vectors must have the same length") from None
        model = served().index.model
        if queries.model is not None and queries.model != model:
            raise HTTPException(409, f"the index is of the model {model}, got {queries.model}")
        return searched(vectors, queries.k, queries.exclude, queries.allowed, queries.groups)

    @app.post("/items")
    def upsert(items: Items) -> dict[str, object]:
        """Add or replace items; the change is on disk before the service answers."""
        ids = [id_of(one) for one in items.ids]
        rows = np.asarray(items.vectors, np.float32)
        return changed(lambda index: index.upsert(rows, ids, groups=items.groups))

    @app.delete("/items")
    def remove(gone: Gone) -> dict[str, object]:
        """Remove items; the change is on disk before the service answers."""
        ids = [id_of(one) for one in gone.ids]
        return changed(lambda index: index.remove(ids))

    @app.post("/refresh")
    def refresh() -> dict[str, object]:
        """Load the changes that another process has saved to the current version."""
        try:
            is_new = refreshed()
        except (OSError, ValueError) as error:
            raise HTTPException(409, f"kept the old items: {error}") from None
        return {"new": is_new, "items": served().index.n_items_}

    @app.post("/reload")
    def reload() -> dict[str, object]:
        """Load the version to which ``current`` points; keep the old one after an error."""
        with one_writer:
            try:
                load_anew()
            except (OSError, ValueError) as error:
                refused[:] = [str(error)]
                raise HTTPException(409, f"kept the old index: {error}") from None
        return {"status": "ready", "items": current[0].index.n_items_}

    return app


def random_items(n: int, d: int, seed: int) -> np.ndarray:
    """Return random items in 100 clusters, to try the service."""
    rng = np.random.default_rng(seed)
    noise, centres = rng.standard_normal((n, d)), rng.standard_normal((100, d))
    items: np.ndarray = (centres[rng.integers(100, size=n)] + noise).astype(np.float32)
    return items


def make(folder: Path, n: int, d: int, seed: int = 0) -> None:
    """Publish an index of random items with the ids 0 to n - 1."""
    publish(folder, random_items(n, d, seed), np.arange(n))


def __getattr__(name: str) -> FastAPI:
    """Create the application ``app`` from environment variables when a server imports it."""
    if name != "app":
        raise AttributeError(name)
    refresh_seconds = float(os.environ.get("REFRESH", "0"))
    return service(Path(os.environ["INDEX"]), refresh_seconds, os.environ.get("MODEL"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Publish an index of random items.")
    parser.add_argument("command", choices=["make"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=64)
    given = parser.parse_args()
    make(given.folder, given.items, given.dimensions)
