"""Run a recommender from the first comparison to daily updates, by commands of fastcos.

    python examples/recommender.py ratings.csv --folder /tmp/shop --days 30

The script prints every command before it runs it, and stops if a command fails or an answer is
wrong. It takes these steps:

1. It compares similarity measures on the table, fits a model, and exports the embeddings.
2. It trains a model of implicit (``pip install implicit``), and builds an index of the items of the
   model with their ids. If implicit is not installed, it fits a model of fastcos instead.
3. It recommends to each user items that the user has not seen yet.
4. On each day, it removes some items from the index, and adds or replaces others.
5. It serves the index by ``retrieval_service.py``, changes it over HTTP, and restarts the service.

If implicit is installed, the script compares the answers with those of its methods
``similar_items`` and ``recommend(filter_already_liked_items=True)``. Otherwise, it compares the
answers with a loop over the factors of the model.
"""

import argparse
import csv
import json
import shlex
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import fastcos
from fastcos import io
from fastcos.cli.main import main as fastcos_main

K = 10


def run(*words, allowed=(0,)):
    """Print and run one command; stop if its exit status is not in `allowed`."""
    words = [str(one) for one in words]
    print(f"\n$ fastcos {shlex.join(words)}", flush=True)
    status = fastcos_main(words)
    if status not in allowed:
        raise SystemExit(f"exit status {status}")


class Truth:
    """Rows of a model with their ids; the correct neighbours are computed from the rows."""

    def __init__(self, ids, rows, *, cosine):
        self.row_of = {str(one): row for row, one in enumerate(ids.tolist())}
        self.rows = rows.astype(np.float64)
        if cosine:
            norms = np.linalg.norm(self.rows, axis=1, keepdims=True)
            self.rows /= np.where(norms > 0, norms, 1)

    def nearest(self, query, left_out):
        """Return the numbers of the K rows with the best scores, without the rows in left_out."""
        scores = self.rows @ query.astype(np.float64)
        scores[list(left_out)] = -np.inf
        best = np.argpartition(-scores, K)[:K]
        return best[np.argsort(-scores[best])]

    def check(self, what, found, expected, queries):
        """Stop if lists of ids differ from the expected rows; the order of equal scores is free."""
        wrong = 0
        for ids, best, query in zip(found, expected, queries.astype(np.float64), strict=True):
            mine = [self.row_of[str(one)] for one in ids]
            best = [one for one in best if one >= 0]
            scores, truth = self.rows[mine] @ query, self.rows[best] @ query
            tolerance = 1e-5 * np.linalg.norm(query)
            is_right = len(set(mine)) == len(best) and np.allclose(scores, truth, 0, tolerance)
            wrong += not is_right
        if wrong:
            raise SystemExit(f"{what}: {wrong} of {len(found)} lists are wrong")
        print(f"{what}: {len(found):,} lists are right", flush=True)


def lists_of(path, first, second):
    """Read two columns of ids from a csv file, as texts.

    Return a dict: for each id in the column `first`, the list of its ids in the column `second`.
    """
    found = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row[first], []).append(row[second])
    return found


def factorised(data, rank):
    """Return users (n, rank), items (p, rank), and the model that implicit has trained, or None.

    The model is None if implicit is not installed.
    """
    try:
        from implicit.als import AlternatingLeastSquares
    except ImportError as error:
        print(f"\nimplicit is not installed ({error}), so a model of fastcos is used", flush=True)
        model = fastcos.LinearMF(rank, random_state=0).fit(data.X)
        return model.user_embeddings(data.X), model.item_embeddings(), None
    model = AlternatingLeastSquares(rank, random_state=0, num_threads=1)
    model.fit(sp.csr_matrix(data.X), show_progress=False)
    return model.user_factors, model.item_factors, model


@contextmanager
def serving(folder, port):
    """Run the service on a port of this machine; yield the function request(method, path, body)."""
    import uvicorn
    from retrieval_service import service

    server = uvicorn.Server(uvicorn.Config(service(folder), port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.05)

    def request(method, path, body=None):
        content = None if body is None else json.dumps(body).encode()
        message = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", content, {"Content-Type": "application/json"},
            method=method,
        )  # fmt: skip
        with urllib.request.urlopen(message, timeout=60) as answer:
            return json.load(answer)

    try:
        yield request
    finally:
        server.should_exit = True
        thread.join()


def main() -> None:
    """Run all steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("interactions")
    parser.add_argument("--value", help="column of the values; '' gives every row the value 1")
    parser.add_argument("--folder", type=Path, required=True, help="a new folder")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument(
        "--port", type=int, default=8799, help="port of the service; 0 leaves the service out"
    )
    given = parser.parse_args()
    folder = given.folder
    folder.mkdir(parents=True)
    table, columns = given.interactions, [] if given.value is None else ["--value", given.value]

    # Compare similarities, fit a model of fastcos, and export embeddings that no rescaling changes.
    rank = ("--rank", given.rank)
    run("compare", table, *columns, *rank, "--out", folder / "compared", allowed=(0, 1))
    run("fit", table, *columns, *rank, "--out", folder / "model")
    run("index", "export", folder / "model", "--out", folder / "served")
    run("neighbors", folder / "served", "--k", K, "--out", folder / "films.csv")

    # A model of implicit stores no ids; its items are numbered like the columns of the matrix.
    data = io.read_interactions(table, value=given.value)
    users, items, model = factorised(data, given.rank)
    names, ids = data.user_ids, data.item_ids
    np.savez(folder / "als.npz", user_factors=users, item_factors=items)
    np.savez(folder / "users.npz", ids=names, vectors=users)
    np.save(folder / "item_ids.npy", ids)
    np.save(folder / "user_ids.npy", names)
    sides = ("--ids", folder / "item_ids.npy")

    run("index", "build", folder / "als.npz", folder / "shop", *sides)
    search = ("index", "search", folder / "shop", "--k", K, "--out", folder / "similar.csv")
    run(*search)
    truth, alive = Truth(ids, items, cosine=True), np.flatnonzero(items.any(axis=1))
    check_similar("similar items", truth, folder, ids, alive, [])
    if model is not None:
        found = lists_of(folder / "similar.csv", "item", "neighbor")
        pairs = zip(alive, model.similar_items(alive, K + 1)[0], strict=True)
        theirs = [[one for one in row if one != own][:K] for own, row in pairs]
        truth.check("similar_items", [found[str(ids[one])] for one in alive], theirs, items[alive])

    # Items that a user has seen are never recommended to this user.
    run("recommend", folder / "als.npz", table, *columns, *sides, "--user-ids",
        folder / "user_ids.npy", "--k", K, "--out", folder / "recommended.csv")  # fmt: skip
    found = lists_of(folder / "recommended.csv", "user", "item")
    truth, X = Truth(ids, items, cosine=False), sp.csr_matrix(data.X)
    for one, row in zip(names, X, strict=True):
        assert not {truth.row_of[item] for item in found[str(one)]} & set(row.indices.tolist())
    if model is None:
        theirs = [truth.nearest(users[row], X[[row]].indices) for row in range(X.shape[0])]
    else:
        theirs = model.recommend(np.arange(X.shape[0]), X, K, filter_already_liked_items=True)[0]
    truth.check("recommendations", [found[str(one)] for one in names], theirs, users)
    run("index", "build", folder / "als.npz", folder / "by_dot", *sides, "--measure", "dot")
    run("index", "search", folder / "by_dot", "--queries", folder / "users.npz", "--exclude", table,
        "--k", K, "--out", folder / "best.csv")  # fmt: skip
    same = lists_of(folder / "best.csv", "query", "neighbor")
    truth.check("without what was seen", [same[str(one)] for one in names], theirs, users)

    # Every day, some items are removed, and others are added or replaced.
    random, rows, present = np.random.default_rng(0), items.copy(), np.ones(len(items), bool)
    share = max(1, len(items) // 50)
    for day in range(1, given.days + 1):
        gone = random.choice(np.flatnonzero(present), share, replace=False)
        changed = random.choice(len(items), share, replace=False)
        rows[changed] *= random.uniform(0.5, 2.0, (share, rows.shape[1])).astype(rows.dtype)
        present[gone] = False
        present[changed] = True
        (folder / "gone.txt").write_text("\n".join(map(str, ids[gone])))
        np.savez(folder / "today.npz", ids=ids[changed], vectors=rows[changed])
        run("index", "remove", folder / "shop", "--ids", folder / "gone.txt")
        run("index", "add", folder / "shop", folder / "today.npz")
        run(*search)
        left, truth = np.flatnonzero(present & rows.any(axis=1)), Truth(ids, rows, cosine=True)
        check_similar(f"day {day}", truth, folder, ids, left, np.flatnonzero(~present))
    if given.port:
        serve(folder, ids, rows, present, given.port)
    print("\nall commands succeeded, and all answers are right")


def check_similar(what, truth, folder, ids, left, absent):
    """Check that similar.csv contains all items in `left`, and no item in `absent`.

    Also check that the list of neighbours of each item is correct.
    """
    found = lists_of(folder / "similar.csv", "item", "neighbor")
    assert set(ids[left].astype(str)) <= set(found)
    ids_found = {*found, *(one for row in found.values() for one in row)}
    assert not set(ids[absent].astype(str)) & ids_found
    expected = [truth.nearest(truth.rows[one], [one, *absent]) for one in left]
    truth.check(what, [found[str(ids[one])] for one in left], expected, truth.rows[left])


def serve(folder, ids, rows, present, port):
    """Serve the index, change it over HTTP, and restart the service."""
    from retrieval_service import publish

    left, truth = np.flatnonzero(present & rows.any(axis=1)), Truth(ids, rows, cosine=True)
    absent = np.setdiff1d(np.arange(len(ids)), left)
    publish(folder / "http", rows[left], ids[left])
    one, other, third = left[:3]
    with serving(folder / "http", port) as request:
        answer = [hit["id"] for hit in request("GET", f"/items/{ids[one]}/similar?k={K}")]
        expected = truth.nearest(truth.rows[one], [one, *absent])
        truth.check("the service", [answer], [expected], truth.rows[[one]])
        words = "&".join(f"exclude={item}" for item in answer[:4])
        more = [hit["id"] for hit in request("GET", f"/items/{ids[one]}/similar?k={K}&{words}")]
        gone = [one, *absent, *(truth.row_of[str(item)] for item in answer[:4])]
        expected = truth.nearest(truth.rows[one], gone)
        truth.check("without four of them", [more], [expected], truth.rows[[one]])
        new = (rows[other] * 2).tolist()  # the two rows then have the same direction
        request("POST", "/items", {"ids": [ids[one].item()], "vectors": [new]})
        request("DELETE", "/items", {"ids": [ids[third].item()]})
    with serving(folder / "http", port) as request:  # restart the service
        for a, b in ((one, other), (other, one)):
            (hit,) = request("GET", f"/items/{ids[a]}/similar?k=1")
            assert hit["score"] > 1 - 1e-5, (hit, ids[b])
        assert request("GET", "/ready")["items"] == len(left) - 1
        answers = request("POST", "/similar", {"ids": ids[left[3:20]].tolist(), "k": K})
        assert ids[third].item() not in {hit["id"] for hits in answers for hit in hits}
    print("after changes and a restart, the service answers right")


if __name__ == "__main__":
    main()
