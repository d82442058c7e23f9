"""A script: kill -9 a process that saves, again and again, and read what it leaves.

    python -m tests.robustness.killed_writers KILLS KIND...

A child saves two versions in turn to one place; after every kill the place must hold one of them,
whole. Prints per kind how many kills left the first version, the second one, and temporary files
(which the next writer may find, and a reader never sees).

Of a long kind, a child makes one version and is killed within a dozen writings to the disk, of 26
(neighbors) in all, until one ends: only what was kept can bring it there. Then the
other version follows. After every kill every file must be of the version before or of the new one;
in the end all of the new one, without a byte of difference to one that was never killed. Prints
kills, runs that ended, and the kills that left a checkpoint.
"""

import contextlib
import functools
import hashlib
import json
import os
import random
import shutil
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
from fastcos.storage import checkpoint

RANDOM = np.random.default_rng(0)
X = sp.csr_array((RANDOM.random((300, 80)) < 0.2).astype(np.float32))
ROWS = RANDOM.standard_normal((2000, 32)).astype(np.float32)
WRITINGS = 12
LONG_ROWS = RANDOM.standard_normal((6100, 8)).astype(np.float32)


class Kind(NamedTuple):
    """Both versions, how one is saved and how it is read as bytes."""

    versions: tuple[Any, Any]
    save: Callable[[Any, Path], Any]
    read: Callable[[Path], bytes]


def fitted_and_saved(size: int, path: Path) -> None:
    LinearMF(size).fit(X).save(path)


def audited_and_written(first: int, path: Path) -> None:
    items = saved(path.parent.parent / f"{first}.npy", ROWS[first : first + 90, :8])
    call("audit", items, "--out", str(path))


def read_audit(path: Path) -> bytes:
    assert (path / "audit.html").read_text().rstrip().endswith("</html>")
    return json.dumps(json.loads((path / "audit.json").read_text())["audit"]).encode()


def saved(path: Path, rows: np.ndarray) -> str:
    """Save rows whole: a writer that was killed here would fail, not the one that is tested."""
    if not path.exists():
        part = path.with_suffix(".part.npy")
        np.save(part, rows)
        part.replace(path)
    return str(path)


def long_neighbors(first: int, path: Path) -> None:
    path.mkdir(exist_ok=True)
    parts, out = path / ".parts", str(path / "found.npz")
    items = saved(path.parent.parent / f"long{first}.npy", LONG_ROWS[first : first + 6000])
    call("neighbors", items, "--k", "5", "--checkpoint", str(parts), "--out", out)
    shutil.rmtree(parts)


def call(*words: str) -> None:
    with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
        assert main(words) == 0


def read_files(folder: Path) -> bytes:
    """Checksums of all files that a reader sees, in the order of names."""
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)


def files_of(read: bytes) -> list[bytes]:
    return [read[at : at + 32] for at in range(0, len(read), 32)]


KINDS = {
    "model": Kind((4, 8), fitted_and_saved, lambda path: LinearMF.load(path).components_.tobytes()),
    "index": Kind(
        (SimilarityIndex().fit(ROWS), SimilarityIndex().fit(-ROWS)),
        lambda index, path: index.save(path),
        lambda path: SimilarityIndex.open(path).search(ROWS[:4], 3).scores.tobytes(),
    ),
    "json": Kind(
        ([1] * 40_000, [2] * 50_000),
        lambda value, path: io.write_json(path, value),
        lambda path: path.read_bytes(),
    ),
    "audit": Kind((0, 90), audited_and_written, read_audit),
}
LONG_KINDS = {
    "long-neighbors": Kind((0, 100), long_neighbors, read_files),
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


def resumed(kind: Kind, folder: Path, kills: int, chance: random.Random) -> list[int]:
    place = folder / "place"
    known = []
    for version in kind.versions:
        kind.save(version, place)
        known.append(kind.read(place))
    checkpoint.WORK_PER_THREAD = 1  # now blocks are as short as they can be, and all are kept
    counts, now = [0, 0, 0], 0
    while counts[0] < kills or not counts[1]:
        ended = killed_or_ended(functools.partial(kind.save, kind.versions[now], place), chance)
        held = kind.read(place)
        whole = zip(*map(files_of, known), files_of(held), strict=True)
        assert all(file in versions for *versions, file in whole), "neither"
        leftovers = list(place.glob(".*.partial"))
        counts[0] += not ended
        counts[2] += not ended and len(leftovers) > 0
        if ended:
            assert held == known[now]
            assert not leftovers
            counts[1] += 1
            now = 1 - now
    return counts


def killed_or_ended(work: Callable[[], Any], chance: random.Random) -> bool:
    """Whether work ended in a child that is killed after a few writings to the disk.

    Not after a time: slow machines get as far as others.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        sync = os.fsync

        def counted_sync(descriptor: int) -> None:
            sync(descriptor)
            os.write(writing, b".")

        os.fsync = counted_sync
        work()
        os._exit(0)
    os.close(writing)
    remaining = chance.randrange(WRITINGS)
    while remaining and (seen := len(os.read(reading, remaining))):
        remaining -= seen
    time.sleep(chance.random() * 0.005)
    os.kill(child, signal.SIGKILL)
    os.close(reading)
    return os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    results = {}
    for name in sys.argv[2:] or [*KINDS, *LONG_KINDS]:
        work, kinds = (survived, KINDS) if name in KINDS else (resumed, LONG_KINDS)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "kept").mkdir()
            results[name] = work(
                kinds[name], Path(folder) / "kept", int(sys.argv[1]), random.Random(0)
            )
    print(json.dumps(results))
