"""For two text encoders of your own, check the overlap that map_encoder predicts.

    python examples/mapped_encoder.py old.npy new.npy --samples 10 --sample-size 2000

Row i of the two files must embed the same text. In each repetition, ``map_encoder`` uses a random
sample of the texts to fit a map from the new to the old encoder. A query text then has two vectors
in the space of the old encoder: its mapped vector, and the vector of the old encoder.
``map_encoder`` predicts the overlap, which is the share of the ten nearest texts that both vectors
find. The script counts the true overlap for texts that are not in the sample.

The last two columns of the table show a second overlap. It compares two searches for one query
among the same texts. In one search, the query has its mapped vector, and the texts have the vectors
of the old encoder. In the other search, both the query and the texts have the vectors of the new
encoder. The second overlap is the share of neighbours that both searches find. A sample is enough
to measure the second overlap for corpora of at most the size of the sample. For larger corpora, the
column "extrapolated" continues these measurements linearly in the logarithm of the size of the
corpus. We found no reliable interval for the extrapolated overlap, as docs/howto/switch_model.md
explains.

For 20,000 texts of 384 dimensions, a repetition takes about ten seconds.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import fastcos
from fastcos import io
from fastcos.auditing import EncoderMap, map_encoder

NEAREST = 10


def read(old_path: Path, new_path: Path) -> tuple[Any, Any]:
    """Return the vectors of the two encoders as float32; row i of both embeds the same text."""
    old, new = io.read_vectors(old_path), io.read_vectors(new_path)
    if len(old.vectors) != len(new.vectors):
        got = f"{len(old.vectors)} and {len(new.vectors)}"
        raise SystemExit(f"both files must have one row per text, got {got} rows")
    if old.has_ids and new.has_ids and not np.array_equal(old.ids, new.ids):
        raise SystemExit("both files must have the same ids in the same order")
    return old.vectors.astype(np.float32), new.vectors.astype(np.float32)


def nearest_others(index: fastcos.SimilarityIndex, queries: Any, own: Any) -> Any:
    """For each query, return the nearest rows, but not the row with the same text as the query."""
    found = index.search(queries, NEAREST + 1).indices
    return [
        [row for row in rows if row != itself][:NEAREST]
        for rows, itself in zip(found.tolist(), own.tolist(), strict=True)
    ]


def shared(first: Any, second: Any) -> float:
    """For each text, compare two lists of neighbours; return the mean share that both contain."""
    pairs = zip(first, second, strict=True)
    return float(np.mean([len({*one} & {*other}) / NEAREST for one, other in pairs]))


def true_overlaps(
    bridge: EncoderMap, of_old: fastcos.SimilarityIndex, of_new: Any, old: Any, new: Any, texts: Any
) -> tuple[float, float]:
    """Return the true overlap and the second overlap of the query texts.

    Both overlaps start from the neighbours of mapped queries in the corpus of the old encoder. For
    the true overlap, these neighbours are compared with the neighbours of old queries in the same
    corpus. For the second overlap, they are compared with the neighbours of new queries in the
    corpus of the new encoder.
    """
    mapped = nearest_others(of_old, bridge.transform(new[texts]).astype(np.float32), texts)
    by_old = shared(mapped, nearest_others(of_old, old[texts], texts))
    return by_old, shared(mapped, nearest_others(of_new, new[texts], texts))


def extrapolated_overlap(old: Any, new: Any, n_corpus: int, generator: Any) -> float:
    """Extrapolate the second overlap to a corpus of n_corpus texts.

    Each tenth of the sample is mapped by a rotation that is fitted to the other nine tenths. The
    second overlap is measured in corpora of four sizes: an eighth, a quarter and a half of the
    sample, and the whole sample.
    """
    old, new = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (old, new))
    mapped = np.empty_like(old)
    for fold in np.array_split(generator.permutation(len(old)), 10):
        rest = np.setdiff1d(np.arange(len(old)), fold)
        U, _, Vt = np.linalg.svd(new[rest].T @ old[rest], full_matrices=False)
        mapped[fold] = new[fold] @ (U @ Vt)
    sizes, overlaps = [], []
    for n_parts in (8, 4, 2, 1):
        values = []
        for part in np.array_split(generator.permutation(len(old)), n_parts):
            numbers = np.arange(len(part))
            in_old = fastcos.SimilarityIndex().fit(old[part])
            in_new = fastcos.SimilarityIndex().fit(new[part])
            values.append(
                shared(
                    nearest_others(in_old, mapped[part], numbers),
                    nearest_others(in_new, new[part], numbers),
                )
            )
        sizes.append(len(old) / n_parts)
        overlaps.append(np.mean(values))
    return float(np.polyval(np.polyfit(np.log(sizes), overlaps, 1), np.log(n_corpus)))


def main() -> None:
    """Print a table with the predicted and the true overlap of each sample."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("old", type=Path, help="vectors of the old encoder: .npy, .npz, .parquet")
    parser.add_argument("new", type=Path, help="vectors of the new encoder for the same texts")
    parser.add_argument("--samples", type=int, default=10, help="number of samples to draw")
    parser.add_argument(
        "--sample-size", type=int, default=2000, help="number of texts to fit the map"
    )
    parser.add_argument(
        "--queries", type=int, default=3000, help="number of texts to count the true overlap"
    )
    parser.add_argument(
        "--kind", choices=("orthogonal", "linear"), default="orthogonal", help="kind of the map"
    )
    parser.add_argument("--seed", type=int, default=7, help="seed of the samples")
    given = parser.parse_args()
    old, new = read(given.old, given.new)
    if not 100 <= given.sample_size < len(old):
        parser.error(f"--sample-size must be from 100 to {len(old) - 1}, got {given.sample_size}")
    if min(given.samples, given.queries) < 1:
        parser.error("--samples and --queries must be at least 1")
    of_old, of_new = (fastcos.SimilarityIndex().fit(rows) for rows in (old, new))
    generator = np.random.default_rng(given.seed)
    header = ("sample", "predicted", "interval of 95 %", "true", "held",
              "new corpus, extrapolated", "new corpus, true")  # fmt: skip
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    n_held = 0
    for number in range(given.samples):
        order = generator.permutation(len(old))
        sample, others = order[: given.sample_size], order[given.sample_size :][: given.queries]
        bridge = map_encoder(
            new[sample], old, sample, kind=given.kind, k=NEAREST, random_state=number
        )
        truth, truth_of_new = true_overlaps(bridge, of_old, of_new, old, new, others)
        holds = bridge.overlap_low <= truth <= bridge.overlap_high
        n_held += holds
        extrapolated = extrapolated_overlap(
            old[sample], new[sample], len(old), np.random.default_rng(number)
        )
        cells = (
            f"{number + 1}",
            f"{bridge.overlap:.4f}",
            f"{bridge.overlap_low:.4f} to {bridge.overlap_high:.4f}",
            f"{truth:.4f}",
            "yes" if holds else "no",
            f"{extrapolated:.4f}",
            f"{truth_of_new:.4f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\n{n_held} of {given.samples} intervals contain the true overlap")


if __name__ == "__main__":
    main()
