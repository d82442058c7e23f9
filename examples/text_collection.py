"""Search a collection of texts by commands of fastcos, and check every answer.

    python examples/text_collection.py chunks.parquet --folder /tmp/texts

The table must contain the columns id, text and embedding. If you pass a file of vectors (.npy), the
script first writes a table with invented texts. Invented texts do not show whether the neighbours
make sense. The script prints every command before it runs it, and stops if a command
fails or an answer is wrong. It takes these steps:

1. It prints the neighbours of one text, and finds the neighbours of all texts.
2. It calibrates the scores, and finds pairs of near-duplicates.
3. It builds an index of the texts without near-duplicates, changes it and searches it.
4. It computes the true neighbours of some queries, and the recall of another index.
5. If LangChain is installed, the script searches a vector store for LangChain with filters.

The script compares the answers with scores that NumPy computes from the vectors.
"""

import argparse
import csv
import json
import shlex
from pathlib import Path

import numpy as np

import fastcos
from fastcos import io
from fastcos.cli.main import main as fastcos_main

K = 10
FPR = 1e-6


def run(*words):
    """Print and run one command; stop if it fails."""
    words = [str(one) for one in words]
    print(f"\n$ fastcos {shlex.join(words)}", flush=True)
    status = fastcos_main(words)
    if status != 0:
        raise SystemExit(f"exit status {status}")


def rows_of(path):
    """Read a CSV file; return one dict of texts per line."""
    with path.open(newline="", encoding="utf8") as file:
        return list(csv.DictReader(file))


def invented(vectors, path):
    """Write a table of the vectors with invented ids and texts; return its path."""
    print(
        f"{vectors} contains only vectors, so the ids and texts in {path} are invented", flush=True
    )
    rows = np.load(vectors).astype(np.float32)
    ids = [f"chunk-{row:05}" for row in range(len(rows))]
    texts = [f"invented text of chunk {row}" for row in range(len(rows))]
    io.write_parquet(path, {"id": ids, "text": texts, "embedding": rows.tolist()})
    return path


def check(what, is_right):
    """Print that an answer is right, or stop if it is wrong."""
    if not is_right:
        raise SystemExit(f"{what}: wrong")
    print(f"{what}: right", flush=True)


def main() -> None:
    """Run all steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("chunks")
    parser.add_argument("--folder", type=Path, required=True, help="a new folder")
    given = parser.parse_args()
    folder, chunks = given.folder, given.chunks
    folder.mkdir(parents=True)
    if chunks.endswith(".npy"):
        chunks = invented(chunks, folder / "chunks.parquet")
    vectors, ids = io.read_vectors(chunks)
    texts = io.read_names(chunks, ids, name="text")
    unit = vectors.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    row_of = {str(one): row for row, one in enumerate(ids)}

    # Print the first answers.
    run("neighbors", chunks, "--show", ids[3], "--text", "text", "--k", 5)
    run("neighbors", chunks, "--k", K, "--out", folder / "neighbors.csv")
    found = [row_of[row["neighbor"]] for row in rows_of(folder / "neighbors.csv")]
    some = np.arange(0, len(ids), max(1, len(ids) // 500))
    scores = unit[some] @ unit.T
    scores[np.arange(len(some)), some] = -np.inf
    best = -np.sort(-scores, axis=1)[:, :K]
    lists = np.reshape(found, (len(ids), K))[some]
    near = np.take_along_axis(scores, lists, axis=1)
    check(f"neighbours of {len(some)} texts", np.allclose(near, best, atol=1e-6))

    # Find out what a score means, and which pairs are nearly the same.
    run("calibrate", chunks, "--fpr", FPR, "--out", folder / "calibration")
    rate = fastcos.auditing.Calibration.load(folder / "calibration")
    run("index", "duplicates", chunks, "--fpr", FPR, "--text", "text",
        "--out", folder / "duplicates.csv", "--kept", folder / "kept.txt")  # fmt: skip
    pairs = rows_of(folder / "duplicates.csv")
    first, second = ([row_of[row[side]] for row in pairs] for side in ("first", "second"))
    cosines = np.einsum("nd,nd->n", unit[first], unit[second])
    least = min((float(row["score"]) for row in pairs), default=1.0)
    values = np.array([float(row["score"]) for row in pairs])
    check("scores of the pairs", np.allclose(cosines, values, atol=1e-6))
    check(
        "texts of the pairs", all(row["first_text"] == texts[row_of[row["first"]]] for row in pairs)
    )
    kept = np.array([row_of[one] for one in (folder / "kept.txt").read_text().split()])
    gone = np.setdiff1d(np.arange(len(ids)), kept)
    has_pair = (unit[gone] @ unit.T > least - 1e-6).sum(axis=1) > 1
    check(f"{len(gone):,} texts left out have a near-duplicate", has_pair.all())

    # Build an index of the texts that are kept, and change it.
    np.savez(folder / "kept.npz", ids=ids[kept], vectors=vectors[kept])
    run("index", "build", folder / "kept.npz", folder / "index")
    run("index", "remove", folder / "index", ids[kept[0]])
    run("index", "search", folder / "index", "--show", ids[kept[1]], "--names", chunks,
        "--text", "text")  # fmt: skip
    index = fastcos.SimilarityIndex.open(folder / "index")
    check("the index", len(index) == len(kept) - 1 and ids[kept[0]] not in index)
    nearest = index.similar(ids[kept[1]], 1).ids[0, 0]
    scores = unit[kept[2:]] @ unit[kept[1]]
    check("its first answer", np.isclose(unit[row_of[str(nearest)]] @ unit[kept[1]], scores.max()))

    # Compute the true neighbours, and the recall of the answers of another index.
    np.save(folder / "base.npy", vectors)
    np.save(folder / "queries.npy", vectors[some] + np.float32(0.01))
    files = (folder / "base.npy", "--queries", folder / "queries.npy", "--k", K)
    run("neighbors", *files, "--out", folder / "truth.npy")
    truth = np.load(folder / "truth.npy")
    # Replace the last neighbour of every query: an approximate index also misses some neighbours.
    truth[:, -1] = (truth[:, -1] + 1) % len(ids)
    np.save(folder / "found.npy", truth)
    run("neighbors", *files, "--result", folder / "found.npy", "--json")

    store_of(folder, ids, texts, vectors, rate)
    print("\nall commands succeeded, and all answers are right")


def store_of(folder, ids, texts, vectors, rate):
    """Save, open and search a vector store of LangChain that contains the given vectors."""
    try:
        from langchain_core.embeddings import DeterministicFakeEmbedding

        from fastcos.integrations.langchain import FastcosVectorStore
    except ImportError:
        print("LangChain is not installed (pip install langchain-core)")
        return
    embedding = DeterministicFakeEmbedding(size=vectors.shape[1])  # replace this by your embedding
    facts = [{"source": f"{row % 7}.pdf"} for row in range(len(ids))]
    store = FastcosVectorStore.from_embeddings(
        zip(texts.tolist(), vectors, strict=True), embedding, facts, ids=ids.astype(str).tolist()
    )
    store.save_local(folder / "store")
    store = FastcosVectorStore.load_local(folder / "store", embedding)
    query = vectors[5].tolist()
    found = store.similarity_search_by_vector(query, K, filter={"source": "5.pdf"})
    allowed = [str(one) for one in ids[5::7]]
    expected = store.index.search(vectors[5], K, allowed_ids=allowed).ids[0].tolist()
    check("LangChain with a filter", [one.id for one in found] == expected)
    near = store.similarity_search_by_vector(query, len(ids), min_score=rate)
    truth = store.index.radius(vectors[5], rate).nnz
    check("LangChain with a calibrated threshold", len(near) == truth)
    mixed = store.max_marginal_relevance_search_by_vector(query, K, fetch_k=50)
    check("LangChain with MMR", len({one.id for one in mixed}) == K)
    print(json.dumps({"documents": len(store.index), "first": found[0].page_content[:60]}))


if __name__ == "__main__":
    main()
