"""Is the predicted overlap of a mapped text encoder right? A check on two encoders of your own.

Row i of both files embeds the same text. In each repetition ``map_encoder`` sees a random sample of
the texts from the new encoder, and predicts how many of the ten nearest a mapped query shares with
the old query. The truth is counted on texts outside the sample.

    python examples/mapped_encoder.py old.npy new.npy --samples 10 --sample-size 2000

The last two columns are about another question: how many neighbours a mapped query in the old
corpus shares with the new query in a corpus that the new encoder has embedded. The sample shows
this for small corpora only. "Extrapolated" continues a line in the logarithm of the corpus size.
We tried this and found no interval that one may trust: see docs/howto/switch_model.md.

Takes about ten seconds per sample for 20,000 texts of 384 dimensions.
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
    """Return the vectors of both encoders, row by row for the same texts, as float32."""
    old, new = io.read_vectors(old_path), io.read_vectors(new_path)
    if len(old.vectors) != len(new.vectors):
        got = f"{len(old.vectors)} and {len(new.vectors)}"
        raise SystemExit(f"both files must have one row per text, got {got} rows")
    if old.has_ids and new.has_ids and not np.array_equal(old.ids, new.ids):
        raise SystemExit("both files must have the same ids in the same order")
    return old.vectors.astype(np.float32), new.vectors.astype(np.float32)


def nearest_others(index: fastcos.SimilarityIndex, queries: Any, own: Any) -> Any:
    """Return the nearest rows of each query, without the row of its own text."""
    found = index.search(queries, NEAREST + 1).indices
    return [
        [row for row in rows if row != itself][:NEAREST]
        for rows, itself in zip(found.tolist(), own.tolist(), strict=True)
    ]


def shared(first: Any, second: Any) -> float:
    """Mean share of the rows that both lists of a text contain."""
    pairs = zip(first, second, strict=True)
    return float(np.mean([len({*one} & {*other}) / NEAREST for one, other in pairs]))


def true_overlaps(
    bridge: EncoderMap, of_old: fastcos.SimilarityIndex, of_new: Any, old: Any, new: Any, texts: Any
) -> tuple[float, float]:
    """Overlap of mapped queries with the old encoder, and with the new one in its own corpus."""
    mapped = nearest_others(of_old, bridge.transform(new[texts]).astype(np.float32), texts)
    by_old = shared(mapped, nearest_others(of_old, old[texts], texts))
    return by_old, shared(mapped, nearest_others(of_new, new[texts], texts))


def extrapolated_overlap(old: Any, new: Any, n_corpus: int, generator: Any) -> float:
    """Overlap with the new encoder in its own corpus, continued from corpora within the sample.

    Each tenth of the sample is mapped by a rotation that the other nine tenths determine. The
    sample is split into corpora of an eighth, a quarter, a half and all of its size.
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
    """Predict and count, sample by sample; print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("old", type=Path, help="vectors of the old encoder: .npy, .npz, .parquet")
    parser.add_argument("new", type=Path, help="vectors of the new encoder for the same texts")
    parser.add_argument("--samples", type=int, default=10, help="how often to draw a sample")
    parser.add_argument("--sample-size", type=int, default=2000, help="texts that fit the map")
    parser.add_argument("--queries", type=int, default=3000, help="texts that count the truth")
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
    print(f"\nthe interval holds the truth in {n_held} of {given.samples}")


if __name__ == "__main__":
    main()
