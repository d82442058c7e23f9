"""A script: damage files of every format at random and read them.

    python -m tests.damaged_files SEED CASES FORMAT...

A damaged file must be read as what it was, or be refused by FastcosFormatError. Formats without a
checksum (text, .npy, Parquet) may also hold something else after the damage: any clean answer. The
process may use 1 GiB of addresses beyond what it started with, and a case 20 seconds; a crash, a
MemoryError or a hang ends it. Prints per format how many were refused, read alike and read
otherwise.
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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
import scipy.sparse as sp

from fastcos import LinearMF, SimilarityIndex, io
from fastcos.shards import InteractionShards
from fastcos.storage import FastcosFormatError

faulthandler.enable()
RANDOM = np.random.default_rng(0)
X = sp.csr_array(RANDOM.integers(0, 3, (40, 12)) * (RANDOM.random((40, 12)) < 0.4)).astype("f4")
ROWS = RANDOM.standard_normal((30, 4)).astype(np.float32)
TEXT = "user,item,value\n" + "".join(f"u{i % 37},{i % 23},{i % 5 + 1}\n" for i in range(300))


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
    return found.vectors.tolist(), np.asarray(found.ids).tolist()


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
    "model": Format(lambda path: LinearMF(3).fit(X).save(path), model, True),
    "index": Format(
        lambda path: SimilarityIndex().fit(ROWS).save(path),
        lambda path: SimilarityIndex.load(path).search(ROWS, 3).indices.tolist(),
        True,
    ),
    "shards": Format(saved_table, shards, True),
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


def try_case(form: Format, whole: Path, copy: Path, expected: Any, random: Any) -> int:
    """0 refused, 1 read alike, 2 read otherwise."""
    if whole.is_dir():
        shutil.copytree(whole, copy)
        files = sorted(path for path in copy.rglob("*") if path.is_file())
        target = files[random.integers(len(files))]
    else:
        shutil.copyfile(whole, copy)
        target = copy
    target.write_bytes(damaged(target.read_bytes(), random))
    try:
        found = form.read(copy)
    except FastcosFormatError:
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
            expected = form.read(whole)  # compiles what there is to compile
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
