"""A script: damage files of every format at random and read them.

    python -m tests.robustness.damaged_files SEED CASES FORMAT...

A damaged file must be read as what it was, or be refused by FastcosFormatError. Formats without a
checksum (text, .npy, Parquet) may also hold something else after the damage: any clean answer. The
process may use 1 GiB of addresses beyond what it started with, and a case 20 seconds; a crash, a
MemoryError or a hang ends it. A checkpoint is resumed, or refused as one of another
call. Prints per format how many were refused, read alike and read otherwise.
"""

import faulthandler
import gzip
import json
import resource
import shutil
import signal
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
import scipy.sparse as sp

from fastcos import CosineMF, LinearMF, SimilarityIndex, io
from fastcos.linalg.shards import InteractionShards
from fastcos.storage import FastcosFormatError, OccupiedError, checkpoint

faulthandler.enable()
RANDOM = np.random.default_rng(0)
X = sp.csr_array(RANDOM.integers(0, 3, (40, 12)) * (RANDOM.random((40, 12)) < 0.4)).astype("f4")
ROWS = RANDOM.standard_normal((30, 4)).astype(np.float32)
TEXT = "user,item,value\n" + "".join(f"u{i % 37},{i % 23},{i % 5 + 1}\n" for i in range(300))
WORDS = [f"w{i}" for i in range(len(ROWS))]
LABELS = "item,label\n" + "".join(f"{word},{'ab'[i % 2]}\n" for i, word in enumerate(WORDS))
COUNTS = "item,count\n" + "".join(f"{word},{i + 1}\n" for i, word in enumerate(WORDS))
PAIRS = "".join(f"{a},{b},{i % 7}\n" for i, (a, b) in enumerate(pairwise(WORDS)))


class Format(NamedTuple):
    """How a file or directory is made, read, and whether it finds its damage."""

    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    has_checksum: bool


def interactions(path: Path) -> Any:
    found = io.read_interactions(path)
    return found.user_ids.tolist(), found.item_ids.tolist(), found.X.toarray().tolist()


def vectors(path: Path) -> Any:
    found = io.read_vectors(path)
    return np.asarray(found.vectors).tolist(), np.asarray(found.ids).tolist()


def word_vectors(path: Path) -> None:
    lines = [
        " ".join([word, *map(str, row)]) for word, row in zip(WORDS, ROWS.tolist(), strict=True)
    ]
    path.write_text("\n".join([f"{len(ROWS)} 4", *lines]) + "\n")


def binary_vectors(path: Path) -> None:
    lines = [word.encode() + b" " + row.tobytes() for word, row in zip(WORDS, ROWS, strict=True)]
    path.write_bytes(f"{len(ROWS)} 4\n".encode() + b"\n".join(lines) + b"\n")


def safetensors(path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"vectors": ROWS}, path)


def vector_table(path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"id": WORDS, "vector": ROWS.tolist()}), path)


def factors(path: Path) -> Any:
    found = io.read_factors(path)
    assert found.users is not None
    return found.items.tolist(), found.users.tolist()


def labels(path: Path) -> Any:
    found = io.read_labels(path, WORDS, column="label")
    return [np.asarray(part).tolist() for part in found]


def popularity(path: Path) -> Any:
    return [np.asarray(part).tolist() for part in io.read_popularity(path, WORDS)]


def pairs(path: Path) -> Any:
    return [np.asarray(part).tolist() for part in io.read_pairs(path, WORDS)]


def search(path: Path) -> checkpoint.Checkpoint:
    shapes = {"indices": ((30, 3), np.int64), "scores": ((30, 3), np.float32)}
    return checkpoint.Checkpoint(path / "out", {"k": 3}, shapes, 4)


def half_a_search(path: Path, blocks: int = 4) -> None:
    """Leave what a search leaves that is killed after so many blocks."""
    path.mkdir()
    run = search(path)
    for lo, hi in list(run.missing())[:blocks]:
        run.write(lo, indices=np.arange(3 * lo, 3 * hi).reshape(-1, 3), scores=ROWS[lo:hi, :3])
    if blocks > 7:
        run.finish()


def rest_of_a_search(path: Path) -> Any:
    run = search(path)
    for lo, hi in run.missing():
        run.write(lo, indices=np.arange(3 * lo, 3 * hi).reshape(-1, 3), scores=ROWS[lo:hi, :3])
    return [np.asarray(array).tolist() for array in run.finish().values()]


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ratings.csv", TEXT)


def parquet(path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = {"user": [1, 2, 3] * 20, "item": ["a", "b"] * 30, "value": [1.0, 0.5, 2.0] * 20}
    parquet.write_table(pyarrow.table(columns), path)


def model(path: Path) -> Any:
    loaded = LinearMF.load(path)
    return loaded.components_.tolist(), loaded.shrinkage_.tolist()


def shards(path: Path) -> Any:
    loaded = InteractionShards(path)
    return [rows.toarray().tolist() for _, rows in loaded.blocks()], loaded.user_ids.tolist()


def saved_table(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "ratings.csv"
        table.write_text(TEXT)
        io.ingest_interactions(table, path, entries_per_shard=100)


FORMATS = {
    "csv": Format(lambda path: path.write_text(TEXT), interactions, False),
    "csv.gz": Format(
        lambda path: path.write_bytes(gzip.compress(TEXT.encode())), interactions, True
    ),
    "zip": Format(zipped, interactions, True),
    "npz": Format(lambda path: sp.save_npz(path, X), interactions, True),
    "mtx": Format(lambda path: scipy.io.mmwrite(path, X), interactions, False),
    "parquet": Format(parquet, interactions, False),
    "npy": Format(lambda path: np.save(path, ROWS), vectors, False),
    "vectors.npz": Format(lambda path: np.savez(path, vectors=ROWS, ids=WORDS), vectors, True),
    "vectors.parquet": Format(vector_table, vectors, False),
    "safetensors": Format(safetensors, vectors, False),
    "vec": Format(word_vectors, vectors, False),
    "bin": Format(binary_vectors, vectors, False),
    "factors.npz": Format(
        lambda path: np.savez_compressed(path, items=ROWS, users=ROWS[:9]), factors, True
    ),
    "labels.csv": Format(lambda path: path.write_text(LABELS), labels, False),
    "popularity.csv": Format(lambda path: path.write_text(COUNTS), popularity, False),
    "pairs.csv": Format(lambda path: path.write_text(PAIRS), pairs, False),
    "model": Format(lambda path: LinearMF(3).fit(X).save(path), model, True),
    "cosine model": Format(
        lambda path: CosineMF(3, max_iter=1, random_state=0).fit(X).save(path),
        lambda path: CosineMF.load(path).components_.tolist(),
        True,
    ),
    "index": Format(
        lambda path: SimilarityIndex().fit(ROWS).save(path),
        lambda path: SimilarityIndex.open(path, verify=True).search(ROWS, 3).indices.tolist(),
        True,
    ),
    "shards": Format(saved_table, shards, True),
    "half a search": Format(half_a_search, rest_of_a_search, False),
    "search": Format(lambda path: half_a_search(path, 8), rest_of_a_search, False),
}


def damaged(content: bytes, random: Any) -> bytes:
    """The content with a bit or a byte changed, cut short, or with a piece lost or doubled."""
    kind, at = random.integers(5), int(random.integers(max(1, len(content))))
    other = bytearray(content)
    if kind == 0 or not content:
        return content[:at]
    if kind == 1:
        other[at] ^= 1 << int(random.integers(8))
    elif kind == 2:
        other[at] = int(random.choice([0, 10, 45, 57, 127, 255]))
    elif kind == 3:
        del other[at : at + int(random.integers(1, 9))]
    else:
        other[at:at] = other[at : at + int(random.integers(1, 9))]
    return bytes(other)


def copied(whole: Path, copy: Path) -> Path:
    """A copy, since reading a search that was cut off ends it."""
    return Path((shutil.copytree if whole.is_dir() else shutil.copyfile)(whole, copy))


def try_case(form: Format, whole: Path, copy: Path, expected: Any, random: Any) -> int:
    """0 refused, 1 read alike, 2 read otherwise."""
    copied(whole, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file()) or [copy]
    target = files[random.integers(len(files))]
    target.write_bytes(damaged(target.read_bytes(), random))
    try:
        found = form.read(copy)
    except (FastcosFormatError, OccupiedError):
        return 0
    finally:
        shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
    assert found == expected or not form.has_checksum, "read otherwise"
    return 1 if found == expected else 2


def main(seed: int, cases: int, names: list[str]) -> dict[str, list[int]]:
    counts = {name: [0, 0, 0] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            form, whole = FORMATS[name], Path(folder) / f"whole.{name}"
            form.make(whole)
            # compiles what there is to compile
            expected = form.read(copied(whole, Path(folder) / f"first.{name}"))
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, resource.RLIM_INFINITY))
            for case in range(cases):
                print(name, seed, case, file=sys.stderr, flush=True)
                signal.alarm(20)
                random = np.random.default_rng([seed, case])
                copy = Path(folder) / f"copy.{name}"
                counts[name][try_case(form, whole, copy, expected, random)] += 1
            signal.alarm(0)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    return counts


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(FORMATS))))
