"""A script: kill -9 a process that saves, again and again, and read what it leaves.

    python -m tests.killed_writers KILLS KIND...

A child saves two versions in turn to one place; after every kill the place must hold one of them,
whole. Prints per kind how many kills left the first version, the second one, and temporary files
(which the next writer may find, and a reader never sees).
"""

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastcos import LinearMF, SimilarityIndex, io
from fastcos.cli.main import main

RANDOM = np.random.default_rng(0)
X = sp.csr_array((RANDOM.random((300, 80)) < 0.2).astype(np.float32))
ROWS = RANDOM.standard_normal((2000, 32)).astype(np.float32)


class Kind(NamedTuple):
    """Both versions, how one is saved and how it is read as bytes."""

    versions: tuple[Any, Any]
    save: Callable[[Any, Path], Any]
    read: Callable[[Path], bytes]


def fitted_and_saved(size: int, path: Path) -> None:
    LinearMF(size).fit(X).save(path)


def audited_and_written(first: int, path: Path) -> None:
    items = path.parent.parent / f"{first}.npy"
    if not items.exists():
        np.save(items, ROWS[first : first + 90, :8])
    with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
        assert main(["audit", str(items), "--out", str(path)]) == 0


def read_audit(path: Path) -> bytes:
    assert (path / "audit.html").read_text().rstrip().endswith("</html>")
    return json.dumps(json.loads((path / "audit.json").read_text())["audit"]).encode()


KINDS = {
    "model": Kind((4, 8), fitted_and_saved, lambda path: LinearMF.load(path).components_.tobytes()),
    "index": Kind(
        (SimilarityIndex().fit(ROWS), SimilarityIndex().fit(-ROWS)),
        lambda index, path: index.save(path),
        lambda path: SimilarityIndex.load(path).search(ROWS[:4], 3).scores.tobytes(),
    ),
    "json": Kind(
        ([1] * 40_000, [2] * 50_000),
        lambda value, path: io.write_json(path, value),
        lambda path: path.read_bytes(),
    ),
    "audit": Kind((0, 90), audited_and_written, read_audit),
}


def survived(kind: Kind, folder: Path, kills: int, chance: random.Random) -> list[int]:
    place = folder / "place"
    known = []
    for version in kind.versions:
        kind.save(version, place)
        started = time.perf_counter()
        kind.save(version, place)
        seconds = time.perf_counter() - started
        known.append(kind.read(place))
    assert known[0] != known[1]
    counts = [0, 0, 0]
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            while True:
                for version in kind.versions:
                    kind.save(version, place)
        time.sleep(chance.random() * 4 * seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        counts[known.index(kind.read(place))] += 1  # ValueError: neither
        counts[2] += len(list(folder.iterdir())) > 1
    return counts


if __name__ == "__main__":
    found = {}
    for name in sys.argv[2:] or list(KINDS):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "kept").mkdir()
            found[name] = survived(
                KINDS[name], Path(folder) / "kept", int(sys.argv[1]), random.Random(0)
            )
    print(json.dumps(found))
