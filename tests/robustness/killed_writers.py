"""A script: repeatedly kills a process while it saves (kill -9), and reads what remains.

    python -m tests.robustness.killed_writers KILLS KIND...

A child process alternately saves two versions to one place. After every kill, the place must
contain one complete version. For each kind, the script prints how many kills left the first
version, how many left the second version, and how many left temporary files. (The next writer may
find temporary files, but no reader sees them.)

The kinds whose names begin with "long-" use checkpoints. To make one version of long-neighbors, a
process must write to the disk 26 times, but each child process is killed within a dozen writes. The
script starts one child after another until a child completes the version. Each child continues from
the checkpoint of the previous child; without checkpoints, no child could complete the version. Then
further children work on the other version until it is complete. After every kill, every file must
belong to the previous or to the new version. In the end, all files must equal those of a process
that was never killed, byte by byte. The script prints the numbers of kills, of complete runs, and
of kills that left a checkpoint.
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
    """Two versions, a function that saves a version, and a function that reads it as bytes."""

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
    """Save rows and return the path; even after a kill, the file is complete or does not exist."""
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
    """Return the checksums of all files that a reader sees, in the order of the file names."""
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)


def files_of(read: bytes) -> list[bytes]:
    return [read[at : at + 32] for at in range(0, len(read), 32)]


KINDS = {
    "model": Kind((4, 8), fitted_and_saved, lambda path: LinearMF.load(path).components_.tobytes()),
    "index": Kind(
        (ROWS, -ROWS),
        # Each version is saved by a new index. An index that has saved to a folder refuses to
        # overwrite a newer version that another index has saved there.
        lambda rows, path: SimilarityIndex().fit(rows).save(path),
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
    checkpoint.WORK_PER_THREAD = 1  # Blocks are now as short as possible, and all of them are kept.
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
    """Kill a child after a few writes to the disk; return whether it had completed the work.

    The child is killed after a number of writes, and not after a time, so that it gets equally far
    on slow and on fast machines.
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
