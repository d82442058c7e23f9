"""A script: damages files of every format at random, and reads them.

    python -m tests.robustness.damaged_files SEED CASES FORMAT...

A reader of a damaged file must either return the original content or raise a FastcosFormatError.
Other content is allowed in three cases: the format has no checksum (text, .npy, Parquet); an index
is opened without verify=True; or a directory is "signed", which means that the script corrects the
checksums after the damage. The process may use 1 GiB more addresses than at its start, and each
case may take 20 seconds. A crash, a MemoryError or a hang ends the process. A search with a damaged
checkpoint either continues, or raises the same error as a search with the checkpoint of another
call. For each format, the script prints how many files were refused, how many were read with the
original content, and how many were read with other content.
"""

import faulthandler
import gzip
import hashlib
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

import fastcos
from fastcos import CosineMF, LinearMF, SimilarityIndex, io
from fastcos.linalg.shards import InteractionShards
from fastcos.search import cost_model
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
    """A file format: how it is written and read, and whether its checksums reveal damage."""

    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    has_checksum: bool
    is_signed: bool = False


def interactions(path: Path) -> Any:
    result = io.read_interactions(path)
    return result.user_ids.tolist(), result.item_ids.tolist(), result.X.toarray().tolist()


def vectors(path: Path) -> Any:
    table = io.read_vectors(path)
    return np.asarray(table.vectors).tolist(), np.asarray(table.ids).tolist()


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


def vector_records(path: Path) -> None:
    records = zip(WORDS, ROWS.tolist(), strict=True)
    lines = (json.dumps({"id": word, "vector": row}) for word, row in records)
    path.write_text("\n".join(lines))


def wide_table(path: Path) -> None:
    records = zip(WORDS, ROWS.tolist(), strict=True)
    lines = (",".join([word, *map(str, row)]) for word, row in records)
    path.write_text("\n".join(["id,a,b,c,d", *lines]))


def arrow_table(path: Path) -> None:
    import pyarrow

    table = pyarrow.table({"id": WORDS, "vector": ROWS.tolist()})
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def factors(path: Path) -> Any:
    result = io.read_factors(path)
    assert result.users is not None
    return result.items.tolist(), result.users.tolist()


def labels(path: Path) -> Any:
    result = io.read_labels(path, WORDS, column="label")
    return [np.asarray(part).tolist() for part in result]


def popularity(path: Path) -> Any:
    return [np.asarray(part).tolist() for part in io.read_popularity(path, WORDS)]


def pairs(path: Path) -> Any:
    return [np.asarray(part).tolist() for part in io.read_pairs(path, WORDS)]


def search(path: Path) -> checkpoint.Checkpoint:
    shapes = {"indices": ((30, 3), np.int64), "scores": ((30, 3), np.float32)}
    return checkpoint.Checkpoint(path / "out", {"k": 3}, shapes, 4)


def half_a_search(path: Path, blocks: int = 4) -> None:
    """Write the files that a search leaves behind if it is killed after this many blocks."""
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


def calibration(path: Path) -> Any:
    """Do what users do: load, ask for thresholds and probabilities, print, export."""
    loaded = fastcos.auditing.Calibration.load(path)
    values = loaded.p_value([-1.0, 0.3, 0.9]).tolist(), loaded.threshold(0.01), loaded.verdict
    return [*values, repr(loaded), loaded.reading(0.5), loaded.to_dict()]


def saved_table(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "ratings.csv"
        table.write_text(TEXT)
        io.ingest_interactions(table, path, entries_per_shard=100)


def saved_index(path: Path, rows: Any, measure: Any = "dot", ids: Any = None) -> None:
    index = SimilarityIndex(measure).fit(rows, ids=ids)
    index.search(rows[:40], 7)
    index.save(path)


def index_with_prefixes(path: Path, rows: Any, measure: Any) -> None:
    """Save an index with prefixes, which usually only an index of wide rows has."""
    with cost_model.costs_replaced(projected_columns=16):
        saved_index(path, rows, measure)
    assert any(file.name.startswith("prefix_axes") for file in path.iterdir())


def changed_index(path: Path) -> None:
    index = SimilarityIndex("cosine").fit(MANY, ids=[f"i{i}" for i in range(len(MANY))])
    index.remove(["i3", "i77"])
    index.add(ROWS[:, :1].repeat(MANY.shape[1], axis=1), ids=WORDS)
    index.upsert(MANY[:2] * 2, ids=["i5", "w2"])
    index.save(path)


def opened_index(path: Path) -> Any:
    """Open an index, search it with many and with few queries, change it, and search it again."""
    index = SimilarityIndex.open(path)
    results = [index.search(MANY[:40], 7), index.search(MANY[:2], 3)]
    try:
        index.remove(index.ids_of([int(results[0].indices.max())]))
        named = index.ids_of([0]).dtype.kind == "U"
        index.upsert(MANY[:3], ids=["new 1", "new 2", "new 3"] if named else [901, 902, 903])
        results.append(index.search(MANY[:40], 7))
    except ValueError:  # SimilarityIndex.open did not detect that some rows contain NaN
        pass
    for one in results:
        assert one.indices.min() >= -1
        assert one.indices.max() < index.n_positions_
    return [(one.indices.tolist(), one.ids.tolist()) for one in results]


MANY = RANDOM.standard_normal((300, 24)).astype(np.float32)
NAMES = [f"n{i * 7 % 300}" for i in range(len(MANY))]
INDEXES: dict[str, Callable[[Path], None]] = {
    "rows": lambda path: saved_index(path, MANY),
    "names": lambda path: saved_index(path, MANY, "cosine", NAMES),
    "copies": lambda path: saved_index(path, np.repeat(MANY[:40], 8, axis=0), "neg_euclidean"),
    "float16": lambda path: saved_index(path, MANY.astype(np.float16), "cosine"),
    "csls": lambda path: saved_index(path, MANY, "csls"),
    "changes": changed_index,
    "prefixes": lambda path: index_with_prefixes(path, MANY, "cosine"),
    "float16 prefixes": lambda path: index_with_prefixes(path, MANY.astype(np.float16), "dot"),
}


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
    "vectors.arrow": Format(arrow_table, vectors, False),
    "vectors.jsonl": Format(vector_records, vectors, False),
    "vectors.csv": Format(wide_table, vectors, False),
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
    "verified index": Format(
        lambda path: SimilarityIndex().fit(ROWS).save(path),
        lambda path: SimilarityIndex.open(path, verify=True).search(ROWS, 3).indices.tolist(),
        True,
    ),
    **{f"index of {name}": Format(make, opened_index, False) for name, make in INDEXES.items()},
    "shards": Format(saved_table, shards, True),
    "calibration": Format(lambda path: fastcos.calibrate(MANY[:60]).save(path), calibration, False),
    "half a search": Format(half_a_search, rest_of_a_search, False),
    "search": Format(lambda path: half_a_search(path, 8), rest_of_a_search, False),
}


def damaged(content: bytes, random: Any) -> bytes:
    """Damage the content: change a bit or byte, cut off the end, or delete or double a piece."""
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


FORMATS |= {
    f"signed {name}": form._replace(has_checksum=False, is_signed=True)
    for name, form in FORMATS.items()
    if name.startswith("index") or name in ("model", "cosine model", "shards", "calibration")
}
STRANGE = [None, True, -1, 0, 3, 2**40, 2**63, 1e300, "", "x", "../secret", [], {}, [0], [-1, 3]]


def change_value(header: Any, random: Any) -> None:
    """Replace, remove or repeat one value anywhere in a JSON document."""
    at = header
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = keys[random.integers(len(keys))]
        if isinstance(at[key], (dict, list)) and len(at[key]) and random.random() < 0.8:
            at = at[key]
            continue
        kind = random.integers(3)
        if kind == 0:
            del at[key]
        elif kind == 1 and isinstance(at[key], (int, float)):
            at[key] += int(random.integers(-2, 3))
        else:
            at[key] = STRANGE[random.integers(len(STRANGE))]
        return


def sign(directory: Path) -> None:
    """Correct the sizes and checksums in the header of a directory."""
    header = json.loads((directory / "header.json").read_text("utf8"))
    for entry in header["arrays"].values():
        content = (directory / entry["file"]).read_bytes()
        entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    sign_header(directory, header)


def sign_header(directory: Path, header: Any) -> None:
    header.pop("sha256", None)
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    (directory / "header.json").write_text(json.dumps(header | {"sha256": digest}), "utf8")


def damage_and_sign(directory: Path, random: Any) -> None:
    """Change a value in the header, or some numbers in an array, and correct the checksums."""
    header = json.loads((directory / "header.json").read_text("utf8"))
    files = [directory / entry["file"] for entry in header["arrays"].values()]
    if random.random() < 0.4 or not files:
        change_value(header, random)
        sign_header(directory, header)
        return
    file = files[random.integers(len(files))]
    content = bytearray(file.read_bytes())
    for _ in range(int(random.integers(1, 4))):
        at = int(random.integers(64, len(content)))
        if random.random() < 0.5:
            content[at] ^= 1 << int(random.integers(8))
        else:  # overwrite eight bytes with NaN (as an integer: -1), 0 or a large number
            content[at - at % 8 : at - at % 8 + 8] = [b"\xff" * 8, b"\0" * 8, b"\x7f" * 8][at % 3]
    file.write_bytes(content)
    sign(directory)


def copied(whole: Path, copy: Path) -> Path:
    """Copy a file or directory, because reading the files of an interrupted search changes them."""
    return Path((shutil.copytree if whole.is_dir() else shutil.copyfile)(whole, copy))


def try_case(form: Format, whole: Path, copy: Path, expected: Any, random: Any) -> int:
    """Damage a file and read it.

    Return 0 if the file was refused, 1 if reading it returned the original content, and 2 if
    reading it returned other content.
    """
    copied(whole, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file()) or [copy]
    target = files[random.integers(len(files))]
    if form.is_signed and target == copy:  # a JSON file without checksums
        content = json.loads(target.read_text("utf8"))
        change_value(content, random)
        target.write_text(json.dumps(content), "utf8")
    elif form.is_signed:
        damage_and_sign(target.parent, random)
    else:
        target.write_bytes(damaged(target.read_bytes(), random))
    try:
        result = form.read(copy)
    except (FastcosFormatError, OccupiedError):
        return 0
    finally:
        shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
    assert result == expected or not form.has_checksum, "read otherwise"
    return 1 if result == expected else 2


def main(seed: int, cases: int, names: list[str]) -> dict[str, list[int]]:
    counts = {name: [0, 0, 0] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            form, whole = FORMATS[name], Path(folder) / f"whole.{name}"
            form.make(whole)
            # The first reading compiles kernels.
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
