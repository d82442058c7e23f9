"""Is the predicted overlap of a mapped text encoder right? A check on two encoders of your own.

Row i of both files embeds the same text. In each repetition ``map_encoder`` sees a random sample of
the texts from the new encoder, and predicts how many of the ten nearest a mapped query shares with
the old query. The truth is counted on texts outside the sample.

    python examples/mapped_encoder.py old.npy new.npy --samples 10 --sample-size 2000

Takes a few seconds per sample for 20,000 texts of 384 dimensions.
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


def true_overlap(
    found: EncoderMap, index: fastcos.SimilarityIndex, old: Any, new: Any, texts: Any
) -> float:
    """Mean share of the lists that a mapped new query and the old query have in common."""
    mapped = found.transform(new[texts]).astype(np.float32)
    lists = zip(
        nearest_others(index, mapped, texts),
        nearest_others(index, old[texts], texts),
        strict=True,
    )
    return float(np.mean([len({*one} & {*other}) / NEAREST for one, other in lists]))


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
    index = fastcos.SimilarityIndex().fit(old)
    generator = np.random.default_rng(given.seed)
    print("| sample | predicted | interval of 95 % | true | held |\n|---|---|---|---|---|")
    n_held = 0
    for number in range(given.samples):
        order = generator.permutation(len(old))
        sample, others = order[: given.sample_size], order[given.sample_size :][: given.queries]
        found = map_encoder(
            new[sample], old, sample, kind=given.kind, k=NEAREST, random_state=number
        )
        truth = true_overlap(found, index, old, new, others)
        holds = found.overlap_low <= truth <= found.overlap_high
        n_held += holds
        interval = f"{found.overlap_low:.4f} to {found.overlap_high:.4f}"
        cells = (number + 1, f"{found.overlap:.4f}", interval, f"{truth:.4f}")
        print(f"| {' | '.join(map(str, cells))} | {'yes' if holds else 'no'} |", flush=True)
    print(f"\nthe interval holds the truth in {n_held} of {given.samples}")


if __name__ == "__main__":
    main()
