"""A script: changes an index at random while threads search it and processes serve its files.

    python -m tests.robustness.index_soak [--changes 10000] [--threads 8] [--processes 2]

Before every change, the script builds a new index of the rows that will remain; afterwards,
searches must return bit-identical results. The answer of a thread must be right for at least one
state of the index between the start and the end of the search. Each process refreshes its index
before it searches. The answer of a process must be right for one of the saved states. The script
prints one JSON line: the numbers of changes, searches and wrong answers. It exits with status 1 if
an answer was wrong.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

from fastcos.search.index import SimilarityIndex

WIDTH, K = 20, 7
RANDOM = np.random.default_rng(0)
# With small integers, many scores tie, so positions decide.
QUERIES = RANDOM.integers(-2, 3, (6, WIDTH)).astype(np.float32)
READER = """
import sys
import numpy as np
from tests.robustness.index_soak import answer
from fastcos.search.index import SimilarityIndex
index = SimilarityIndex.open(sys.argv[1])
print(answer(index), flush=True)
while sys.stdin.readline():
    index.refresh()
    print(answer(index), flush=True)
"""


def answer(index: SimilarityIndex) -> str:
    """Return a checksum of the ids and scores that an index finds."""
    result = index.search(QUERIES, K)
    return hashlib.sha256(result.ids.tobytes() + result.scores.tobytes()).hexdigest()


class Soak:
    """An index, its rows in the order of positions, and the answers that it must give."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random, self.path = np.random.default_rng(seed), path
        self.rows = {one: self.new_rows(1)[0] for one in range(300)}
        self.index = SimilarityIndex().fit(np.array(list(self.rows.values())), list(self.rows))
        self.expected, self.version = {0: answer(self.index)}, 0
        self.next_id = 300
        self.searches = self.wrong = 0
        self.index.save(path)
        self.saved = {self.expected[0]}

    def new_rows(self, n: int) -> Any:
        rows = self.random.integers(-2, 3, (n, WIDTH)).astype(np.float32)
        rows[~rows.any(axis=1)] = 1.0
        return rows

    def change(self) -> None:
        """Record the right answer for the next state of the index, and then change the index."""
        kind, size = self.random.integers(3), int(self.random.choice([1, 5, 60]))
        ids = np.arange(self.next_id, self.next_id + size)
        live = np.array(list(self.rows))
        if kind == 0 and len(live) > 2 * size + 200:
            ids = self.random.choice(live, 2 * size, replace=False)
            for one in ids.tolist():
                del self.rows[one]
            self.announce()
            self.index.remove(ids)
        else:
            self.next_id += size
            if kind == 1:
                old = self.random.choice(live, size, replace=False)
                ids = self.random.permutation(np.concatenate([ids, old]))
            rows = self.new_rows(len(ids))
            self.rows.update(zip(ids.tolist(), rows, strict=True))
            self.announce()
            (self.index.upsert if kind == 1 else self.index.add)(rows, ids)
        self.version += 1
        if self.random.random() < 0.05:
            self.saved.add(self.expected[self.version])
            self.index.save(self.path)
        if self.random.random() < 0.02:
            self.index.save(self.path)
            self.saved.add(self.expected[self.version])
            self.index = SimilarityIndex.open(self.path, verify=bool(self.random.random() < 0.1))

    def announce(self) -> None:
        fresh = SimilarityIndex().fit(np.array(list(self.rows.values())), list(self.rows))
        self.expected[self.version + 1] = answer(fresh)

    def read(self, stop: threading.Event, lock: threading.Lock) -> None:
        """Search repeatedly until `stop` is set.

        Each answer must be right for a state that the index had during the search.
        """
        while not stop.wait(0.01):  # while this thread waits, the writer can run
            first = self.version
            result = answer(self.index)
            # The index may have changed already, although `version` has not been increased yet.
            states = range(first, self.version + 2)
            is_right = result in {self.expected.get(state) for state in states}
            with lock:
                self.searches += 1
                self.wrong += not is_right


def soak(n_changes: int, n_threads: int, n_processes: int, seed: int = 0) -> dict[str, int]:
    """Change, search and serve an index; return the counts."""
    with tempfile.TemporaryDirectory() as folder:
        it = Soak(Path(folder) / "index", seed)
        stop, lock = threading.Event(), threading.Lock()
        threads = [threading.Thread(target=it.read, args=(stop, lock)) for _ in range(n_threads)]
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", READER, str(it.path)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True,
            )
            for _ in range(n_processes)
        ]  # fmt: skip
        served = wrong_served = 0
        for thread in threads:
            thread.start()
        for step in range(n_changes):
            it.change()
            if step % 10 == 9:
                for reader in readers:
                    assert reader.stdin is not None
                    assert reader.stdout is not None
                    reader.stdin.write("\n")
                    reader.stdin.flush()
                    served += 1
                    wrong_served += reader.stdout.readline().strip() not in it.saved
        stop.set()
        for thread in threads:
            thread.join()
        for reader in readers:
            reader.communicate()
    return {
        "changes": n_changes,
        "searches": it.searches,
        "wrong": it.wrong,
        "served": served,
        "wrong_served": wrong_served,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    counts = soak(options.changes, options.threads, options.processes)
    print(json.dumps(counts))
    sys.exit(counts["wrong"] + counts["wrong_served"] > 0)
